//! The operations on hosts that speak NLM: who is one, and what ends its locks.
//!
//! A host has no lease. It keeps its locks until it gives them up, until its monitor says that it
//! has restarted, or until the operator ends it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::file_locks::Time;
use crate::{Effect, FileKey, Host, State, StateError};

/// Longest name of a host in bytes (`LM_MAXSTRLEN`).
const NAME_BYTES_MAX: usize = 1024;

/// What the state knows of hosts beside their records.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    /// Files that somebody waits for who is told when they are free; in an order that is the same in each run.
    waited_for: Mutex<BTreeSet<FileKey>>,
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

    /// Whether [`State::take_effects`] or [`State::take_changed_locks`] may give anything. Every call asks that, so it
    /// costs a look at two flags.
    #[inline]
    pub fn has_work_for_others(&self) -> bool {
        self.files.effects.has_some() || self.files.changed.has_some()
    }

    /// Takes what is to be done for others since this was asked last.
    pub fn take_effects(&self) -> Vec<Effect> {
        self.files.effects.take()
    }

    /// Takes back what could not be done now: it is to be done after the next tick.
    pub fn put_back_effects(&self, effects: Vec<Effect>) {
        self.files.effects.put_back(effects);
    }

    /// Whoever asks next gets what was put back.
    pub(crate) fn offer_effects(&self) {
        self.files.effects.offer();
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
