//! Hosts that speak NLM: who they are, and what others are to do for them.
//!
//! A host has no lease. It keeps its locks until it gives them up, until its monitor says that it
//! has restarted, or until the operator ends it.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::file_locks::{FileLocks, Freed, LockOwner, Time};
use crate::image::Event;
use crate::nlm::NlmOwner;
use crate::ranges::LockKind;
use crate::{Client, FileKey, LockRange, State, StateError, StateId};

/// Longest name of a host in bytes (`LM_MAXSTRLEN`).
const NAME_BYTES_MAX: usize = 1024;
/// Counts of grants that a host has.
const GRANT_COUNTS: usize = 64;

/// What is known of a host.
#[derive(Debug)]
pub(crate) struct HostData {
    name: Arc<[u8]>,
    address: IpAddr,
    /// The host's state number, as it said last; 0 if it never did.
    state: AtomicU32,
    is_recorded: AtomicBool,
    /// Calls that are about to give it something.
    users: AtomicUsize,
    ranges: AtomicIsize,
    /// How often an owner was granted something of a file, by a hash of both. Owners that share a count only
    /// keep what could be taken back.
    grants: [AtomicU32; GRANT_COUNTS],
}

impl HostData {
    pub(crate) fn new(name: Arc<[u8]>, address: IpAddr, state: u32) -> Self {
        Self {
            name,
            address,
            state: AtomicU32::new(state),
            is_recorded: AtomicBool::new(false),
            users: AtomicUsize::new(0),
            ranges: AtomicIsize::new(0),
            grants: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    pub(crate) fn name(&self) -> &Arc<[u8]> {
        &self.name
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// How many ranges it holds.
    pub(crate) fn ranges(&self) -> usize {
        usize::try_from(self.ranges.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub(crate) fn add_ranges(&self, growth: isize) {
        self.ranges.fetch_add(growth, Ordering::Relaxed);
    }

    /// How often an owner was granted something of a file: of its name, or of the owner of its reservation.
    pub(crate) fn grants(&self, owner: &[u8], file: &FileKey) -> &AtomicU32 {
        let mut hasher = DefaultHasher::new();
        (owner, file).hash(&mut hasher);
        let [first, ..] = &self.grants;
        self.grants.get(hasher.finish() as usize % GRANT_COUNTS).unwrap_or(first)
    }

    /// Notes the host as it is.
    pub(crate) fn note(&self, client: &Client) {
        client.journal.note(&Event::Host {
            id: client.id(),
            name: &self.name,
            address: self.address,
            state: self.state.load(Ordering::Relaxed),
        });
    }

    /// Takes the host's state number; whether it is newer than what was known.
    fn take_state(&self, state: u32) -> bool {
        let is_newer = |known: u32| state.wrapping_sub(known).cast_signed() > 0;
        let taken = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |known| {
            (known == 0 || is_newer(known)).then_some(state)
        });
        taken.is_ok()
    }
}

/// A host that speaks NLM.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) client: Arc<Client>,
    pub(crate) data: Arc<HostData>,
}

impl Host {
    /// The host of a client, if it is one.
    pub(crate) fn of(client: &Arc<Client>) -> Option<Self> {
        Some(Self { client: Arc::clone(client), data: Arc::clone(client.host()?) })
    }

    /// What it calls itself.
    pub fn name(&self) -> &[u8] {
        &self.data.name
    }

    /// Where its calls come from.
    pub fn address(&self) -> IpAddr {
        self.data.address
    }

    /// Whether [`Host::set_recorded`] was called, and [`State::hosts_in_use`] has not found since that
    /// the host has nothing.
    pub fn is_recorded(&self) -> bool {
        self.data.is_recorded.load(Ordering::SeqCst)
    }

    /// The host is about to get something: it counts among [`State::hosts_in_use`] as long as the
    /// result lives. To be called before [`Host::is_recorded`].
    pub fn begin_use(&self) -> HostInUse {
        self.data.users.fetch_add(1, Ordering::SeqCst);
        HostInUse(Arc::clone(&self.data))
    }

    /// It is recorded where a restart finds it, so that it may get its first lock.
    pub fn set_recorded(&self) {
        self.data.is_recorded.store(true, Ordering::SeqCst);
    }
}

/// A host that is about to get something.
#[derive(Debug)]
#[must_use = "it ends with this"]
pub struct HostInUse(Arc<HostData>);

impl Drop for HostInUse {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What somebody else is to do after a change of the state.
#[derive(Clone, Debug)]
pub enum Effect {
    /// A host was granted the lock that it waited for, and is to be told.
    Granted {
        /// The host.
        host: Host,
        /// The file.
        file: FileKey,
        /// The owner.
        owner: NlmOwner,
        /// The bytes.
        range: LockRange,
        /// The kind.
        kind: LockKind,
        /// What was given with the request.
        note: Arc<[u8]>,
    },
    /// A client waits for a lock and may ask for it again, which it is to be told.
    Free {
        /// The client.
        client: Arc<Client>,
        /// The lock-owner.
        owner: Arc<[u8]>,
        /// The file's handle, as it was given with the request.
        handle: Arc<[u8]>,
    },
    /// A client is to return a delegation, and to be told so.
    Recall {
        /// The client.
        client: Arc<Client>,
        /// The delegation.
        id: StateId,
        /// The file.
        file: FileKey,
        /// The file's handle, as it was given with the request.
        handle: Arc<[u8]>,
        /// Not before this time, in ms: the client may not have been told yet that it has it.
        not_before_ms: u64,
    },
    /// No delegation of this file is being recalled any more: who was told
    /// [`StateError::Recalling`] may ask again with success.
    Returned {
        /// The file.
        file: FileKey,
    },
}

/// The effects that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct Effects {
    list: Mutex<Vec<Effect>>,
    has_some: AtomicBool,
    /// The state's: ranges and lock stateids of all clients.
    locks: Arc<AtomicUsize>,
}

impl Effects {
    pub(crate) fn new(locks: Arc<AtomicUsize>) -> Self {
        Self { list: Mutex::default(), has_some: AtomicBool::new(false), locks }
    }

    pub(crate) fn push(&self, effect: Effect) {
        let mut list = self.list.lock();
        list.push(effect);
        self.has_some.store(true, Ordering::Release);
    }

    /// Takes up what a change of a file's locks has brought about.
    pub(crate) fn collect(&self, file: &FileKey, locks: &mut FileLocks) {
        let (granted, freed) = (locks.take_granted(), locks.take_freed());
        if granted.is_empty() && freed.is_empty() {
            return;
        }
        let mut list = self.list.lock();
        list.extend(freed.into_iter().map(|Freed { owner, handle }| {
            let LockOwner { client, name } = owner;
            Effect::Free { client, owner: name, handle }
        }));
        for grant in granted {
            // A negative number wraps, and so does the sum.
            self.locks.fetch_add(grant.growth.cast_unsigned(), Ordering::Relaxed);
            list.extend(Host::of(&grant.owner.client).map(|host| Effect::Granted {
                host,
                file: *file,
                owner: NlmOwner::of_name(&grant.owner.name),
                range: grant.span.into(),
                kind: grant.kind,
                note: grant.note,
            }));
        }
        self.has_some.store(true, Ordering::Release);
    }
}

/// What the state knows of hosts beside their records.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    /// Files that somebody waits for who is told when they are free.
    waited_for: Mutex<HashSet<FileKey>>,
}

impl Hosts {
    pub(crate) fn note_waited_for(&self, file: &FileKey) {
        self.waited_for.lock().insert(*file);
    }
}

impl State {
    /// The host of this name that calls from this address.
    ///
    /// # Errors
    /// [`StateError::Invalid`] for a name of more than 1,024 bytes; [`StateError::TryLater`] if
    /// there are too many hosts with locks.
    pub fn host(&self, now_ms: u64, name: &[u8], address: IpAddr) -> Result<Host, StateError> {
        if name.len() > NAME_BYTES_MAX {
            return Err(StateError::Invalid);
        }
        self.advance(now_ms);
        let mut left = Vec::new();
        let client = self.registry.lock().host(now_ms, name, address.to_canonical(), &mut left);
        self.end_all(left);
        Host::of(&client?).ok_or(StateError::Invalid)
    }

    /// The host of this name that calls from this address, if it was there before.
    pub fn known_host(&self, now_ms: u64, name: &[u8], address: IpAddr) -> Option<Host> {
        self.advance(now_ms);
        let client = self.registry.lock().known_host(now_ms, name, address.to_canonical())?;
        Host::of(&client)
    }

    /// All hosts that have locks or wait for some.
    pub fn hosts_with_locks(&self) -> Vec<Host> {
        let registry = self.registry.lock();
        let clients = registry.all_hosts().filter(|client| client.opens.lock().count() > 0);
        clients.filter_map(Host::of).collect()
    }

    /// All hosts that have locks, wait for some, or are about to. All others count as not recorded from
    /// now on.
    pub fn hosts_in_use(&self) -> Vec<Host> {
        let mut hosts: Vec<Host> = {
            let registry = self.registry.lock();
            registry.all_hosts().filter_map(Host::of).collect()
        };
        hosts.retain(|host| {
            if host.client.opens.lock().count() > 0 {
                return true;
            }
            // Who still finds it recorded has begun its use before this, and is seen; who has got
            // something and ended its use meanwhile, too.
            host.data.is_recorded.store(false, Ordering::SeqCst);
            host.data.users.load(Ordering::SeqCst) > 0 || host.client.opens.lock().count() > 0
        });
        hosts
    }

    /// Frees all that a host has and waits for.
    pub fn free_host(&self, host: &Host) {
        self.release_host(&host.client, &mut host.client.opens.lock());
    }

    /// A request came with the host's state number. If the host has restarted since it was heard
    /// last, what it had is freed.
    pub fn host_heard(&self, host: &Host, state: u32) {
        // Some hosts do not know theirs.
        if state == 0 {
            return;
        }
        // Who comes with the same number at the same time waits until what there was is freed.
        let mut opens = host.client.opens.lock();
        let is_known = host.data.state.load(Ordering::Relaxed) != 0;
        if host.data.take_state(state) {
            if is_known {
                self.release_host(&host.client, &mut opens);
            }
            host.data.note(&host.client);
        }
    }

    /// The monitor at this address says that its host has restarted. It counts if the number is
    /// newer than what was known of a host by this name there: then all that it had is freed.
    /// Whether there was such a host.
    ///
    /// Names are the same if one is the other with its domain: the monitor may know the longer one,
    /// and NLM the shorter.
    pub fn host_restarted(&self, name: &[u8], address: IpAddr, state: u32) -> bool {
        let address = address.to_canonical();
        let hosts: Vec<Host> = {
            let registry = self.registry.lock();
            registry.all_hosts().filter_map(Host::of).collect()
        };
        let mut is_known = false;
        for host in hosts {
            let is_meant = host.address() == address && are_same_host(host.name(), name);
            if !is_meant {
                continue;
            }
            let mut opens = host.client.opens.lock();
            if host.data.take_state(state) {
                is_known = true;
                self.release_host(&host.client, &mut opens);
                host.data.note(&host.client);
            }
        }
        is_known
    }

    /// Takes what is to be done for others since this was asked last. It costs next to nothing if
    /// there is nothing.
    pub fn take_effects(&self) -> Vec<Effect> {
        let effects = &self.files.effects;
        if !effects.has_some.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut list = effects.list.lock();
        effects.has_some.store(false, Ordering::Relaxed);
        std::mem::take(&mut *list)
    }

    /// Takes back what could not be done now: it is to be done after the next tick.
    pub fn put_back_effects(&self, effects: Vec<Effect>) {
        let mut list = self.files.effects.list.lock();
        let later = std::mem::replace(&mut *list, effects);
        list.extend(later);
    }

    /// Whoever asks next gets what was put back.
    pub(crate) fn offer_effects(&self) {
        let effects = &self.files.effects;
        if !effects.list.lock().is_empty() {
            effects.has_some.store(true, Ordering::Release);
        }
    }

    /// Grants what became free by time alone to hosts, and tells clients of it: a client's lease has expired, or one that
    /// came before has not asked again.
    pub(crate) fn judge_waiting(&self, now_ms: u64) {
        let files: Vec<FileKey> = {
            let mut waited_for = self.hosts.waited_for.lock();
            std::mem::take(&mut *waited_for).into_iter().collect()
        };
        let time = Time { now_ms, lease_ms: self.settings.lease_ms };
        for file in files {
            let judged = self.files.with_locks(&file, |locks| locks.judge_waiting(time));
            let Some((true, expired)) = judged else { continue };
            self.hosts.note_waited_for(&file);
            for client in expired {
                self.expire(now_ms, &client);
            }
        }
    }
}

/// Whether two names are of the same host, with or without its domain.
fn are_same_host(one: &[u8], other: &[u8]) -> bool {
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    let Some((head, tail)) = long.split_at_checked(short.len()) else { return false };
    !short.is_empty()
        && head.eq_ignore_ascii_case(short)
        && (tail.is_empty() || tail.starts_with(b"."))
}

#[cfg(test)]
mod tests {
    use super::are_same_host;

    #[test]
    fn a_host_is_the_same_with_and_without_its_domain() {
        assert!(are_same_host(b"a", b"a"));
        assert!(are_same_host(b"a", b"A.example.org"));
        assert!(are_same_host(b"a.example.org", b"a"));
        assert!(!are_same_host(b"a", b"ab"));
        assert!(!are_same_host(b"", b""));
        assert!(!are_same_host(b"a.example.org", b"a.example.com"));
    }
}
