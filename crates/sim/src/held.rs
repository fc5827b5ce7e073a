//! Which ranges clients hold, as far as they know: no two may hold what conflicts.
//!
//! A client holds a range from the reply that grants it until it sends the call that gives it up. It
//! counts on it no longer than a lease after it sent the last call that the server has answered.

use std::collections::{BTreeMap, BTreeSet};

use crate::Checked;

/// The server's lease in ms.
pub(crate) const LEASE_MS: u64 = 90_000;

/// A range of a file that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) client: u64,
    /// A lock-owner of the client.
    pub(crate) owner: u64,
    pub(crate) file: u64,
    pub(crate) first: u64,
    /// Behind the last byte.
    pub(crate) end: u64,
    pub(crate) is_write: bool,
}

impl Lock {
    fn is_owned_by(&self, other: &Self) -> bool {
        (self.client, self.owner) == (other.client, other.owner)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.file == other.file && self.first < other.end && other.first < self.end
    }

    fn conflicts(&self, other: &Self) -> bool {
        !self.is_owned_by(other) && self.overlaps(other) && (self.is_write || other.is_write)
    }
}

/// What all clients hold.
#[derive(Debug, Default)]
pub(crate) struct Held {
    locks: Vec<Lock>,
    /// What clients held that were not heard of for a lease, and others got since.
    lost: Vec<Lock>,
    /// When each client has sent the last call that was answered.
    renewed_ms: BTreeMap<u64, u64>,
    /// What each worker of a host waits for, or has a call under way about.
    claims: BTreeMap<(u64, u64), Lock>,
    /// Hosts that have restarted, of which the server has not heard.
    pub(crate) telling: BTreeSet<u64>,
    /// How often a host was called that it has a lock.
    pub(crate) grants_by_call: u64,
    /// How often a host has restarted.
    pub(crate) restarts: u64,
    /// How often a lock was granted.
    pub(crate) grants: u64,
    /// How often a lock was reclaimed.
    pub(crate) reclaims: u64,
}

impl Held {
    /// Whether the client could count on its locks at a time.
    pub(crate) fn is_valid(&self, client: u64, at_ms: u64) -> bool {
        self.renewed_ms.get(&client).is_some_and(|renewed_ms| renewed_ms + LEASE_MS > at_ms)
    }

    fn check(&self, now_ms: u64, lock: &Lock) -> Checked {
        let other = self
            .locks
            .iter()
            .find(|other| other.conflicts(lock) && self.is_valid(other.client, now_ms));
        match other {
            Some(other) => Err(format!("two hold what conflicts: {other:?} and {lock:?}")),
            None => Ok(()),
        }
    }

    /// The server has answered a call that the client sent then.
    pub(crate) fn renew(&mut self, client: u64, sent_ms: u64, now_ms: u64) -> Checked {
        let was_valid = self.is_valid(client, now_ms);
        let renewed_ms = self.renewed_ms.entry(client).or_default();
        *renewed_ms = sent_ms.max(*renewed_ms);
        if !was_valid && self.is_valid(client, now_ms) {
            let is_counted_on = |lost: &&Lock| {
                let is_same = |held: &Lock| held.is_owned_by(lost) && held.overlaps(lost);
                lost.client == client && self.locks.iter().any(is_same)
            };
            if let Some(lock) = self.lost.iter().find(is_counted_on) {
                return Err(format!("a client is not told that others got what it held: {lock:?}"));
            }
            for lock in self.locks.iter().filter(|lock| lock.client == client) {
                self.check(now_ms, lock)?;
            }
        }
        Ok(())
    }

    /// The client was granted a lock.
    pub(crate) fn lock(&mut self, now_ms: u64, lock: Lock) -> Checked {
        self.check(now_ms, &lock)?;
        // Those of valid leases would have been found.
        let lost = self.locks.iter().filter(|other| other.conflicts(&lock));
        self.lost.extend(lost.cloned());
        self.grants += 1;
        self.unlock(&lock);
        self.locks.push(lock);
        Ok(())
    }

    /// The client was given back a lock after the server had lost it.
    pub(crate) fn reclaim(&mut self, now_ms: u64, lock: Lock) -> Checked {
        if self.lost.iter().any(|lost| lost.is_owned_by(&lock) && lost.overlaps(&lock)) {
            return Err(format!("what others got meanwhile is reclaimed: {lock:?}"));
        }
        self.reclaims += 1;
        self.lock(now_ms, lock)
    }

    /// The client has reclaimed all that it could, or starts anew: it knows what it has lost.
    pub(crate) fn knows(&mut self, client: u64) {
        self.lost.retain(|lock| lock.client != client);
    }

    /// The client gives up a range.
    pub(crate) fn unlock(&mut self, range: &Lock) {
        for held in std::mem::take(&mut self.locks) {
            if !(held.is_owned_by(range) && held.overlaps(range)) {
                self.locks.push(held);
                continue;
            }
            if held.first < range.first {
                self.locks.push(Lock { end: range.first, ..held.clone() });
            }
            if held.end > range.end {
                self.locks.push(Lock { first: range.end, ..held });
            }
        }
    }

    /// The client asks for a lock, which may replace a stronger one before it is told so.
    pub(crate) fn asks(&mut self, lock: &Lock) {
        if lock.is_write {
            return;
        }
        let parts = self.locks.iter().filter(|held| held.is_owned_by(lock) && held.overlaps(lock));
        let weaker: Vec<Lock> = parts
            .map(|held| Lock {
                first: held.first.max(lock.first),
                end: held.end.min(lock.end),
                is_write: false,
                ..held.clone()
            })
            .collect();
        for part in weaker {
            self.unlock(&part);
            self.locks.push(part);
        }
    }

    /// A worker waits for this lock, or has a call under way about it; or about none.
    pub(crate) fn claim(&mut self, client: u64, worker: u64, lock: Option<Lock>) {
        match lock {
            Some(lock) => self.claims.insert((client, worker), lock),
            None => self.claims.remove(&(client, worker)),
        };
    }

    /// Whether any worker of a host holds a block of any file, or may.
    pub(crate) fn has_block(&self, client: u64, block: u64) -> bool {
        let all = self.locks.iter().chain(self.claims.values());
        let mut of_client = all.filter(|lock| lock.client == client);
        self.telling.contains(&client)
            || of_client.any(|lock| (lock.first..lock.end).contains(&block))
    }

    /// Whether any worker of a host waits for a block of any file, or may.
    pub(crate) fn waits_for_block(&self, client: u64, block: u64) -> bool {
        let mut of_client = self.claims.values().filter(|lock| lock.client == client);
        self.telling.contains(&client)
            || of_client.any(|lock| (lock.first..lock.end).contains(&block))
    }

    /// What an owner holds.
    pub(crate) fn of(&self, client: u64, owner: u64) -> impl Iterator<Item = &Lock> {
        self.locks.iter().filter(move |lock| (lock.client, lock.owner) == (client, owner))
    }

    /// The client does not count on any lease.
    pub(crate) fn forget(&mut self, client: u64) {
        self.renewed_ms.remove(&client);
        self.knows(client);
    }

    /// The client holds nothing any more; what it held.
    pub(crate) fn take(&mut self, client: u64) -> Vec<Lock> {
        let (taken, left) =
            std::mem::take(&mut self.locks).into_iter().partition(|lock| lock.client == client);
        self.locks = left;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(client: u64, first: u64, end: u64) -> Lock {
        Lock { client, owner: 0, file: 0, first, end, is_write: true }
    }

    #[test]
    fn conflicts_are_found_while_leases_last() {
        let mut held = Held::default();
        held.renew(1, 0, 0).expect("nothing is held");
        held.lock(0, lock(1, 0, 10)).expect("free");
        assert!(held.lock(1, lock(2, 9, 12)).is_err());
        held.unlock(&lock(1, 4, 20));
        held.lock(1, lock(2, 4, 12)).expect("it was given up");
        assert!(held.lock(1, lock(2, 3, 12)).is_err());
        held.lock(LEASE_MS, lock(2, 0, 4)).expect("its holder has lost touch");
        held.renew(1, LEASE_MS, LEASE_MS).expect_err("it was not told that it has lost that");
    }

    #[test]
    fn what_others_got_is_not_reclaimed() {
        let mut held = Held::default();
        held.lock(0, lock(1, 0, 10)).expect("free");
        held.lock(LEASE_MS, lock(2, 9, 12)).expect("its holder has lost touch");
        held.unlock(&lock(2, 9, 12));
        held.take(1);
        held.reclaim(LEASE_MS, lock(1, 0, 10)).expect_err("somebody had a part of it");
        held.knows(1);
        held.reclaim(LEASE_MS, lock(1, 0, 10)).expect("that is settled");
    }
}
