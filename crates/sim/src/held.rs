//! Which ranges clients hold, as far as they know: no two may hold what conflicts.
//!
//! A client holds a range from the reply that grants it until it sends the call that gives it up. It
//! counts on it no longer than a lease after it sent the last call that the server has answered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::Checked;

/// The server's lease in ms.
pub(crate) const LEASE_MS: u64 = 90_000;
/// Processes of the server's machine have numbers from here on.
pub(crate) const LOCALS_FROM: u64 = 1 << 40;
/// Who waits and does not ask again has a place in the order for so long, in ms. Nobody tells the server that a wait
/// is over.
pub(crate) const WAIT_LASTS_MS: u64 = 40_000;
/// The server may have for so long what nobody has, in ms, as `leftovers` has it.
const LASTS_MS: u64 = 12_000;
/// What was is remembered for so long, in ms.
const REMEMBERED_MS: u64 = 3 * LEASE_MS;

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

/// What somebody had, or asked for.
#[derive(Debug)]
struct Past {
    lock: Lock,
    noted_ms: u64,
    /// Until when the server may have had it.
    until_ms: u64,
}

/// What all clients hold.
#[derive(Debug, Default)]
pub(crate) struct Held {
    locks: Vec<Lock>,
    /// What clients had or asked for lately, and have no more.
    past: VecDeque<Past>,
    /// What may be to write still, though its client counts on reading alone.
    strong: Vec<Lock>,
    /// What the server may have granted with a reply that its client will never read.
    uncertain: Vec<Lock>,
    /// What clients held that were not heard of for a lease, and others got since.
    lost: Vec<Lock>,
    /// When each client has sent the last call that was answered.
    renewed_ms: BTreeMap<u64, u64>,
    /// Clients of which the server does not know whether they have reclaimed all: another loss of its state takes what
    /// they have, and it waits for none of them.
    in_part: BTreeSet<u64>,
    /// What each worker waits for, or has a call under way about.
    claims: BTreeMap<(u64, u64), Lock>,
    /// Who has started anew, of which the server has not heard.
    telling: BTreeMap<u64, u64>,
    /// Who was telling, and until when.
    told: BTreeMap<u64, u64>,
    /// How often a host was called that it has a lock.
    pub(crate) grants_by_call: u64,
    /// How often a host has restarted.
    pub(crate) restarts: u64,
    /// How often a client of NFSv4.1 that waits was told that it may ask again.
    pub(crate) notices: u64,
    /// How often a client of NFSv4 was granted a lock that it had waited for.
    pub(crate) waited: u64,
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
        let checked = self.check(now_ms, &lock);
        if self.is_valid(lock.client, now_ms) {
            checked?;
        } else if checked.is_err() {
            // The reply comes late: others may have it by now, which the client is told when it renews its lease.
            self.lost.push(lock.clone());
        }
        // Those of valid leases would have been found.
        let lost = self.locks.iter().filter(|other| other.conflicts(&lock));
        let lost = lost.filter(|other| !self.is_valid(other.client, now_ms)).cloned();
        self.lost.extend(lost.collect::<Vec<_>>());
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
        cut(&mut self.locks, range);
        cut(&mut self.strong, range);
    }

    /// The client asks for a lock, which may replace a stronger one before it is told so.
    pub(crate) fn asks(&mut self, lock: &Lock) {
        if lock.is_write {
            return;
        }
        let parts = self.locks.iter().filter(|held| held.is_owned_by(lock) && held.overlaps(lock));
        let parts = parts.map(|held| Lock {
            first: held.first.max(lock.first),
            end: held.end.min(lock.end),
            ..held.clone()
        });
        for part in parts.collect::<Vec<_>>() {
            cut(&mut self.locks, &part);
            self.locks.push(Lock { is_write: false, ..part.clone() });
            // It is still what it was if the call fails.
            self.strong.extend(part.is_write.then_some(part));
        }
    }

    /// A worker waits for this lock, or has a call under way about it; or about none.
    pub(crate) fn claim(&mut self, client: u64, worker: u64, lock: Option<Lock>, now_ms: u64) {
        let before = match lock {
            Some(lock) => self.claims.insert((client, worker), lock),
            None => self.claims.remove(&(client, worker)),
        };
        self.was(before, now_ms, now_ms);
    }

    /// A worker does not wait any more, of which it tells nobody.
    pub(crate) fn ends_wait(&mut self, client: u64, worker: u64, now_ms: u64) {
        let before = self.claims.remove(&(client, worker));
        self.was(before, now_ms, now_ms + WAIT_LASTS_MS);
    }

    /// The server may have granted this, of which the client will not hear.
    pub(crate) fn may_have(&mut self, lock: Lock) {
        self.uncertain.push(lock);
    }

    /// A client has started anew, or the server has heard so.
    pub(crate) fn tells(&mut self, client: u64, is_telling: bool, now_ms: u64) {
        if is_telling {
            self.telling.entry(client).or_insert(now_ms);
        } else if self.telling.remove(&client).is_some() {
            self.told.insert(client, now_ms);
        }
    }

    /// Whether a client has got nothing new since it reclaimed, and does not say when it has all.
    pub(crate) fn has_in_part(&mut self, client: u64, is_in_part: bool) {
        if is_in_part {
            self.in_part.insert(client);
        } else {
            self.in_part.remove(&client);
        }
    }

    /// The server has lost its state.
    pub(crate) fn is_lost(&mut self, now_ms: u64) {
        for client in std::mem::take(&mut self.in_part) {
            self.take(client, now_ms);
        }
    }

    /// Somebody had these until now; and the server for longer.
    fn was(&mut self, locks: impl IntoIterator<Item = Lock>, now_ms: u64, until_ms: u64) {
        let past = locks.into_iter().map(|lock| Past { lock, noted_ms: now_ms, until_ms });
        self.past.extend(past);
        let is_old = |past: &Past| past.noted_ms + REMEMBERED_MS < now_ms;
        while self.past.front().is_some_and(is_old) {
            self.past.pop_front();
        }
    }

    /// Until when somebody may have kept an owner from a lock; `None` if somebody may still.
    pub(crate) fn free_since(&self, asked: &Lock) -> Option<u64> {
        let is_other = |other: &&Lock| !other.is_owned_by(asked) && other.overlaps(asked);
        let claimed = self.claims.values().chain(&self.uncertain).chain(&self.strong);
        let mut claimed = claimed.filter(is_other);
        let mut telling = self.telling.keys().filter(|client| **client != asked.client);
        let is_held = self.locks.iter().any(|other| other.conflicts(asked));
        if is_held || claimed.next().is_some() || telling.next().is_some() {
            return None;
        }
        let of_past = self.past.iter().filter(|past| is_other(&&past.lock));
        let told = self.told.iter().filter(|(client, _)| **client != asked.client);
        let ends = of_past.map(|past| past.until_ms).chain(told.map(|(_, until_ms)| *until_ms));
        Some(ends.max().unwrap_or(0))
    }

    /// A lock was denied, by a call that was sent then.
    ///
    /// # Errors
    /// That nobody was in its way.
    pub(crate) fn denied(&self, asked: &Lock, sent_ms: u64) -> Checked {
        match self.free_since(asked) {
            Some(since_ms) if since_ms + LASTS_MS < sent_ms => Err(format!(
                "{asked:?} is denied, and nobody has what conflicts since {since_ms} ms"
            )),
            _ => Ok(()),
        }
    }

    /// Whether a process of the server's machine has a block of a file.
    pub(crate) fn is_local(&self, block: &Lock) -> bool {
        self.locks.iter().any(|lock| lock.client >= LOCALS_FROM && lock.overlaps(block))
    }

    /// Whether a worker holds a block of a file, or may.
    pub(crate) fn has_block(&self, block: &Lock) -> bool {
        let mut all = self.locks.iter().chain(&self.uncertain).chain(self.claims.values());
        self.telling.contains_key(&block.client)
            || all.any(|lock| lock.is_owned_by(block) && lock.overlaps(block))
    }

    /// Whether a worker waits for a block of a file, or may; or has done so lately, if it tells nobody when it gives
    /// up.
    pub(crate) fn waits_for_block(&self, block: &Lock, now_ms: u64) -> bool {
        let its = |lock: &Lock| lock.is_owned_by(block) && lock.overlaps(block);
        self.telling.contains_key(&block.client)
            || self.claims.values().any(its)
            || self.past.iter().any(|past| past.until_ms > now_ms && its(&past.lock))
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

    /// The client holds nothing any more, and asks for nothing; what it held.
    pub(crate) fn take(&mut self, client: u64, now_ms: u64) -> Vec<Lock> {
        let (taken, left): (Vec<Lock>, _) =
            std::mem::take(&mut self.locks).into_iter().partition(|lock| lock.client == client);
        self.locks = left;
        self.strong.retain(|lock| lock.client != client);
        let mut gone = Vec::new();
        self.claims.retain(|(of, _), lock| {
            gone.extend((*of == client).then(|| lock.clone()));
            *of != client
        });
        gone.extend(self.uncertain.extract_if(.., |lock| lock.client == client));
        gone.extend(taken.iter().cloned());
        // What it waited for the server may keep in order.
        self.was(gone, now_ms, now_ms + WAIT_LASTS_MS);
        taken
    }
}

/// Takes a range of its owner out of a list.
pub(crate) fn cut(list: &mut Vec<Lock>, range: &Lock) {
    for held in std::mem::take(list) {
        if !(held.is_owned_by(range) && held.overlaps(range)) {
            list.push(held);
            continue;
        }
        if held.first < range.first {
            list.push(Lock { end: range.first, ..held.clone() });
        }
        if held.end > range.end {
            list.push(Lock { first: range.end, ..held });
        }
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
        held.renew(2, 1, 1).expect("nothing is held");
        assert!(held.lock(1, lock(2, 9, 12)).is_err());
        held.unlock(&lock(1, 4, 20));
        held.lock(1, lock(2, 4, 12)).expect("it was given up");
        assert!(held.lock(1, lock(2, 3, 12)).is_err());
        held.lock(LEASE_MS, lock(2, 0, 4)).expect("its holder has lost touch");
        held.renew(1, LEASE_MS, LEASE_MS).expect_err("it was not told that it has lost that");
    }

    #[test]
    fn a_late_reply_is_worth_no_more_than_the_lease() {
        let mut held = Held::default();
        held.renew(1, LEASE_MS, LEASE_MS).expect("nothing is held");
        held.lock(LEASE_MS, lock(1, 0, 10)).expect("free");
        held.lock(LEASE_MS, lock(2, 5, 6)).expect("its lease is over, and it has to ask");
        held.renew(2, LEASE_MS, LEASE_MS).expect_err("it was not told that it has not got that");
    }

    #[test]
    fn what_others_got_is_not_reclaimed() {
        let mut held = Held::default();
        held.lock(0, lock(1, 0, 10)).expect("free");
        held.lock(LEASE_MS, lock(2, 9, 12)).expect("its holder has lost touch");
        held.unlock(&lock(2, 9, 12));
        held.take(1, LEASE_MS);
        held.reclaim(LEASE_MS, lock(1, 0, 10)).expect_err("somebody had a part of it");
        held.knows(1);
        held.reclaim(LEASE_MS, lock(1, 0, 10)).expect("that is settled");
    }
}
