//! What the server says of its own accord: calls to programs that run at its clients.
//!
//! The engine does no I/O. It gives each call to an [`Outbound`], which sends it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_state::{Effect, FileKey, Host, LockKind, LockRange, NlmLock, NlmOwner};
use steadfast_wire::nlm::{self, NlmStat, v4};
use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use crate::nlm::{note::Note, procedure};
use crate::peer::Transport;
use crate::{Engine, Shared};

/// Sends calls to clients, and remembers which of them have locks.
pub trait Outbound: Send + Sync {
    /// Sends a call. Never waits: it only takes it.
    fn send(&self, call: OutboundCall);

    /// Records that a host has locks, so that a start of the server after this one tells it. On
    /// the disk when this returns, for which it may wait. Whether that could be done.
    fn record(&self, name: &[u8], address: IpAddr) -> bool;

    /// What this host calls itself.
    fn own_name(&self) -> &str;

    /// The state number of this host's NSM: odd while it is up.
    fn state_number(&self) -> u32;
}

/// A call to a program at a client.
#[derive(Clone, Debug)]
pub struct OutboundCall {
    /// The client.
    pub to: IpAddr,
    /// Our address that the client knows: it compares who calls.
    pub from: IpAddr,
    /// How.
    pub transport: Transport,
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// Its arguments.
    pub arguments: Vec<u8>,
    /// If it tells of a grant: it is repeated until it is answered, as long as
    /// [`Engine::is_grant_unanswered`]. Others are sent once.
    pub grant: Option<Grant>,
}

/// A lock that a host has, and has to be told of.
#[derive(Clone, Debug)]
pub struct Grant {
    host: Host,
    file: FileKey,
    owner: NlmOwner,
    range: LockRange,
    kind: LockKind,
}

impl Engine {
    /// Has somebody send calls to clients from now on, once for all. Before that, who waits for a
    /// lock finds that it has it when it asks again.
    pub fn set_outbound(&self, outbound: Arc<dyn Outbound>) {
        // The second one is not asked for.
        let _ = self.shared.outbound.set(outbound);
    }

    /// The server has lost what it knew of hosts with locks: from now on until `length_ms` have
    /// passed by the clock that [`Engine::call`] gets, they may take again what they had, and
    /// nobody else gets a lock. It is one grace period with that of clients of NFSv4
    /// ([`Engine::keep_records`]).
    pub fn begin_grace(&self, length_ms: u64) {
        self.shared.state.begin_grace(self.now_ms.load(Ordering::Relaxed), length_ms);
    }

    /// Whether only what was held before may be opened and locked.
    pub fn is_in_grace(&self) -> bool {
        self.shared.state.is_in_grace(self.now_ms.load(Ordering::Relaxed))
    }

    /// Names and addresses of the hosts that have locks or wait for some.
    pub fn hosts_with_locks(&self) -> Vec<(Vec<u8>, IpAddr)> {
        let hosts = self.shared.state.hosts_with_locks();
        hosts.iter().map(|host| (host.name().to_vec(), host.address())).collect()
    }

    /// Names and addresses of the hosts that have to stay recorded ([`Outbound::record`]). Others are
    /// recorded again before they get something, if that comes after this.
    pub fn hosts_in_use(&self) -> Vec<(Vec<u8>, IpAddr)> {
        let hosts = self.shared.state.hosts_in_use();
        hosts.iter().map(|host| (host.name().to_vec(), host.address())).collect()
    }

    /// Whether the host still has to be told of a grant: it has the lock, and has not answered.
    pub fn is_grant_unanswered(&self, grant: &Grant) -> bool {
        let Grant { host, file, owner, range, kind } = grant;
        self.shared.state.is_grant_unanswered(host, file, owner, *range, *kind)
    }

    /// The host has answered with this result. If it does not want the lock, it loses it.
    ///
    /// # Errors
    /// When the result cannot be read: then it was no answer.
    pub fn answer_grant(&self, grant: &Grant, result: &[u8]) -> Result<(), XdrError> {
        let Grant { host, file, owner, range, kind } = grant;
        let is_wanted = v4::Res::decode(&mut Reader::new(result))?.stat == NlmStat::Granted;
        let state = &self.shared.state;
        // It fails for ranges that no lock can have.
        let _ = state.answer_grant(host, file, owner, *range, *kind, is_wanted);
        self.shared.send_effects(self.now_ms.load(Ordering::Relaxed));
        self.shared.keep_state();
        Ok(())
    }
}

impl Shared {
    /// Sends what the state has others do.
    pub(crate) fn send_effects(&self, now_ms: u64) {
        self.settle_local_locks();
        loop {
            let effects = self.state.take_effects();
            if effects.is_empty() {
                return;
            }
            self.keep_state();
            let effects = self.of_delegations(now_ms, effects);
            // Whose locks they were must not reclaim them: that has to be stable first.
            if !self.keep_records() {
                self.state.put_back_effects(effects);
                return;
            }
            for effect in effects {
                let (host, file, owner, range, kind, bytes) = match effect {
                    Effect::Granted { host, file, owner, range, kind, note } => {
                        (host, file, owner, range, kind, note)
                    }
                    Effect::Free { client, owner, handle } => {
                        self.tell_of_free_lock(now_ms, client, owner, handle);
                        continue;
                    }
                    Effect::Recall { .. } | Effect::Returned { .. } => continue,
                };
                let grant = Grant { host, file, owner, range, kind };
                let Ok(note) = Note::decode(&mut Reader::new(&bytes)) else { continue };
                // Who is held back for a local process is not granted it before a second has passed.
                if !self.is_granted_locally(&file, range, kind, note.handle) {
                    self.take_grant_back(&grant, &bytes);
                } else if let Some(outbound) = self.outbound.get() {
                    outbound.send(self.granted(&**outbound, grant, &note));
                }
            }
        }
    }

    /// Carries out the effects that are of delegations, and gives back the others. They do not wait for
    /// the records of clients.
    fn of_delegations(&self, now_ms: u64, effects: Vec<Effect>) -> Vec<Effect> {
        let mut others = Vec::with_capacity(effects.len());
        for effect in effects {
            match effect {
                Effect::Recall { client, id, file, handle, not_before_ms } => {
                    self.recall((now_ms, not_before_ms), client, id, file, handle);
                }
                Effect::Returned { file } => self.delegation_is_returned(&file),
                other => others.push(other),
            }
        }
        others
    }

    /// A local process was quicker than a grant of which the host does not know yet: it goes on waiting.
    fn take_grant_back(&self, grant: &Grant, note: &Arc<[u8]>) {
        let Grant { host, file, owner, range, kind } = grant;
        // Neither fails for what the state has granted; if too many wait, the host asks again.
        let _ = self.state.answer_grant(host, file, owner, *range, *kind, false);
        let (file, range, kind) = (*file, *range, *kind);
        let request = NlmLock { file, owner, range, kind, waits: Some(note) };
        let _ = self.state.nlm_hold_back(host, &request);
        self.settle_local_locks();
        self.keep_state();
    }

    /// The call that tells of a grant.
    fn granted(&self, outbound: &dyn Outbound, grant: Grant, note: &Note<'_>) -> OutboundCall {
        // Nobody but us has to understand it.
        let cookie = self.grants.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let LockRange { offset, length } = grant.range;
        let granted = v4::TestArgs {
            cookie: &cookie,
            exclusive: grant.kind == LockKind::Write,
            lock: v4::Lock {
                caller_name: outbound.own_name().as_bytes(),
                fh: note.handle,
                oh: &grant.owner.oh,
                svid: grant.owner.svid,
                offset,
                length: if length == u64::MAX { 0 } else { length },
            },
        };
        let mut arguments = Vec::new();
        let mut w = Writer::new(&mut arguments);
        if note.version == 4 {
            granted.encode(&mut w);
        } else {
            let v4::TestArgs { cookie, exclusive, lock } = granted;
            let (offset, length) = (u32::try_from(lock.offset), u32::try_from(lock.length));
            let mut lock: nlm::v1::Lock<'_> = lock.into();
            // The client knows its lock by the numbers that it asked with, though the range may go
            // beyond those of 32 bits.
            if let (Ok(offset), Ok(length)) = (offset, length) {
                (lock.offset, lock.length) = (offset, length);
            }
            nlm::v1::TestArgs { cookie, exclusive, lock }.encode(&mut w);
        }
        OutboundCall {
            to: grant.host.address(),
            from: note.local,
            transport: note.transport,
            program: nlm::PROGRAM,
            version: note.version,
            procedure: procedure::GRANTED,
            arguments,
            grant: Some(grant),
        }
    }
}
