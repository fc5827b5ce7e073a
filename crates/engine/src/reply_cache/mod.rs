//! The duplicate request cache: a changing call that comes again is answered again, never
//! executed again.
//!
//! Keyed by client address (no port: clients reconnect), xid, program, version, procedure and a
//! checksum of the arguments' beginning and length (`key`). A duplicate of a call in progress
//! waits for it, if it came another way than the first, and is dropped if it came the same way;
//! of a finished one, it is answered with the same bytes. Sharded, each shard with a lock and a
//! log of replies (`log`) of its own.
//!
//! A reply is of use for as long as its client may ask again: the *history*. The cache grows
//! while what it would evict is younger than that, within its bound; at the bound the oldest
//! leave all the same, and are counted. What is older leaves when its room is needed, when it is
//! very old, or when memory is short. Calls in progress never leave.

mod key;
mod log;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};

use crate::call::{Origin, ReplySink};
pub(crate) use key::{CallKey, KEY_BYTES};
use key::{SHARDS, XID_LANES};
use log::Log;

/// How long a reply is kept at the most when nobody needs its room.
const LIFE_MS: u64 = 180_000;
/// The history while memory is very short: one time-out of a client over UDP, and some more.
const SHORT_HISTORY_MS: u64 = 2_000;
/// Ways by which duplicates of one call in progress wait for its reply, at the most: the newest.
const WAITERS_MAX: usize = 4;
/// At the bound, how many other shards are looked at for older replies, and more only until one
/// is found that uses the common part.
const SHARDS_TRIED: usize = 8;

/// How short of memory the machine is (the kernel's pressure stall information).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum MemoryPressure {
    /// There is enough.
    #[default]
    None = 0,
    /// Some processes wait for memory: caches give back what is of little use.
    Some = 1,
    /// All processes wait for memory: caches keep what they must.
    Full = 2,
}

/// A call that is being executed.
struct InProgress {
    origin: Origin,
    waiters: Vec<(Origin, Box<dyn ReplySink>)>,
}

#[derive(Default)]
struct Shard {
    in_progress: HashMap<CallKey, InProgress, BuildHasherDefault<KeyHasher>>,
    finished: Log,
    /// Of the log's bytes, those that are counted in the common part of the bound.
    common_bytes: usize,
}

/// Keys carry their own hash.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// What the cache knows of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Never seen: execute it, then [`ReplyCache::finish`] or [`ReplyCache::forget`].
    New,
    /// Being executed, and this copy came the same way: drop it.
    InProgress,
    /// Being executed, but the first copy came another way, which may be gone: see
    /// [`ReplyCache::wait`].
    InProgressElsewhere,
    /// Executed: the reply was appended to the buffer.
    Replayed,
}

/// What the cache uses, and how well it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyCacheUsage {
    /// Calls that are being executed, or wait to be stable.
    pub in_progress: usize,
    /// Replies that are kept.
    pub replies: usize,
    /// Memory that they use, in bytes.
    pub bytes: usize,
    /// Replies that left at the bound before they were as old as the history, since the start: a
    /// duplicate of one of them would have been executed again.
    pub evicted_young: u64,
    /// Replies that left so because memory was very short.
    pub evicted_by_pressure: u64,
}

/// The cache.
pub(crate) struct ReplyCache {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    history_ms: u64,
    /// Each shard may use this much, whatever the others do.
    own_bytes_max: usize,
    /// All of them together may use this much more.
    common_bytes_max: usize,
    /// What they do. Written when a log changes its size, not by each call.
    common_bytes: AtomicUsize,
    /// Where [`ReplyCache::evict_elsewhere`] looks next.
    hand: AtomicUsize,
    /// When [`ReplyCache::expire`] was called last.
    expired_ms: AtomicU64,
    pressure: AtomicU8,
    evicted_young: AtomicU64,
    evicted_by_pressure: AtomicU64,
}

impl ReplyCache {
    /// A cache bounded to this many bytes, that is to keep replies for `history_ms`.
    pub(crate) fn new(bytes_max: usize, history_ms: u64) -> Self {
        let own_bytes = bytes_max / 4;
        Self {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            history_ms,
            own_bytes_max: own_bytes / SHARDS,
            common_bytes_max: bytes_max - own_bytes,
            common_bytes: AtomicUsize::new(0),
            hand: AtomicUsize::new(0),
            expired_ms: AtomicU64::new(0),
            pressure: AtomicU8::new(MemoryPressure::None as u8),
            evicted_young: AtomicU64::new(0),
            evicted_by_pressure: AtomicU64::new(0),
        }
    }

    fn shard(&self, key: &CallKey) -> Option<&Mutex<Shard>> {
        self.shards.get(key.shard()).map(|shard| &**shard)
    }

    /// Registers a call that came this way, or finds it registered.
    pub(crate) fn admit(&self, key: &CallKey, origin: Origin, replayed: &mut Vec<u8>) -> Admission {
        let Some(shard) = self.shard(key) else {
            return Admission::New;
        };
        let mut shard = shard.lock();
        if let Some(reply) = shard.finished.find(key) {
            replayed.extend_from_slice(reply);
            return Admission::Replayed;
        }
        match shard.in_progress.get(key) {
            Some(running) if running.origin == origin => Admission::InProgress,
            Some(_) => Admission::InProgressElsewhere,
            None => {
                shard.in_progress.insert(*key, InProgress { origin, waiters: Vec::new() });
                Admission::New
            }
        }
    }

    /// Has the reply of a call in progress sent this way too. If it has ended meanwhile, does as
    /// [`ReplyCache::admit`]; the result tells.
    pub(crate) fn wait(
        &self,
        key: &CallKey,
        origin: Origin,
        sink: Box<dyn ReplySink>,
        replayed: &mut Vec<u8>,
    ) -> Admission {
        let Some(shard) = self.shard(key) else {
            return Admission::InProgress;
        };
        let mut shard = shard.lock();
        let shard = &mut *shard;
        if let Some(running) = shard.in_progress.get_mut(key) {
            running.waiters.retain(|(other, _)| *other != origin);
            if running.waiters.len() >= WAITERS_MAX {
                running.waiters.remove(0);
            }
            running.waiters.push((origin, sink));
            return Admission::InProgress;
        }
        if let Some(reply) = shard.finished.find(key) {
            replayed.extend_from_slice(reply);
            return Admission::Replayed;
        }
        // It was forgotten meanwhile.
        shard.in_progress.insert(*key, InProgress { origin, waiters: Vec::new() });
        Admission::New
    }

    /// Keeps the reply of an admitted call, and answers those who wait for it.
    pub(crate) fn finish(&self, key: &CallKey, now_ms: u64, reply: &[u8]) {
        let Some(shard) = self.shard(key) else { return };
        // A call may have taken long since its clock was read.
        let now_ms = now_ms.max(self.expired_ms.load(Ordering::Relaxed));
        let ended = {
            let mut shard = shard.lock();
            self.keep(&mut shard, key, now_ms, reply);
            shard.in_progress.remove(key)
        };
        answer(ended, reply);
    }

    /// Forgets an admitted call that the client is to try again, as the reply says that those
    /// who wait for it get too.
    pub(crate) fn forget(&self, key: &CallKey, reply: &[u8]) {
        let Some(shard) = self.shard(key) else { return };
        let ended = shard.lock().in_progress.remove(key);
        answer(ended, reply);
    }

    /// Forgets an admitted call that has no reply: it panicked.
    pub(crate) fn abandon(&self, key: &CallKey) {
        if let Some(shard) = self.shard(key) {
            shard.lock().in_progress.remove(key);
        }
    }

    fn keep(&self, shard: &mut Shard, key: &CallKey, now_ms: u64, reply: &[u8]) {
        while let Some(wanted) = shard.finished.wanted_segment(reply) {
            let oldest_ms = shard.finished.oldest_ms();
            let is_young = |finished_ms: u64| finished_ms + self.effective_history_ms() > now_ms;
            let may_grow = oldest_ms.is_none_or(is_young);
            if may_grow && self.reserve(shard, wanted) {
                shard.finished.add_segment(wanted);
                break;
            }
            if may_grow && self.evict_elsewhere(oldest_ms.unwrap_or(now_ms), now_ms) {
                continue;
            }
            if oldest_ms.is_none() {
                // Not even one fits: a duplicate is less bad than no bound.
                return;
            }
            self.evict_oldest(shard, now_ms);
        }
        shard.finished.append(key, now_ms, reply);
        self.settle_accounts(shard);
    }

    /// Lets the oldest replies of a shard go.
    fn evict_oldest(&self, shard: &mut Shard, now_ms: u64) {
        let oldest_ms = shard.finished.oldest_ms().unwrap_or(now_ms);
        let evicted = shard.finished.drop_oldest() as u64;
        if oldest_ms + self.effective_history_ms() > now_ms {
            self.evicted_young.fetch_add(evicted, Ordering::Relaxed);
        } else if oldest_ms + self.history_ms > now_ms {
            self.evicted_by_pressure.fetch_add(evicted, Ordering::Relaxed);
        }
        self.settle_accounts(shard);
    }

    /// At the bound, lets go what another shard has that is older than `oldest_ms`, looking at a
    /// few of them: so that what leaves is about the oldest of all, however unevenly the shards
    /// are used. The caller has a shard locked, so others are only tried.
    fn evict_elsewhere(&self, oldest_ms: u64, now_ms: u64) -> bool {
        let first = self.hand.fetch_add(1, Ordering::Relaxed);
        let mut found: Option<(u64, MutexGuard<'_, Shard>)> = None;
        for tried in 0..SHARDS {
            if tried >= SHARDS_TRIED && found.is_some() {
                break;
            }
            // One lane of each group of clients, then the next lanes.
            let index = (first + tried * (XID_LANES + 1)) % SHARDS;
            if let Some(shard) = self.shards.get(index).and_then(|shard| shard.try_lock())
                && shard.common_bytes > 0
                && let Some(at_ms) = shard.finished.oldest_ms()
                && found.as_ref().is_none_or(|(oldest_ms, _)| at_ms < *oldest_ms)
            {
                found = Some((at_ms, shard));
            }
        }
        match found {
            Some((at_ms, mut other)) if at_ms < oldest_ms => {
                self.evict_oldest(&mut other, now_ms);
                true
            }
            _ => false,
        }
    }

    /// Whether a shard may use so many bytes more.
    fn reserve(&self, shard: &Shard, more: usize) -> bool {
        let wanted = (shard.finished.bytes() + more).saturating_sub(self.own_bytes_max);
        let more_common = wanted.saturating_sub(shard.common_bytes);
        if more_common == 0 {
            return true;
        }
        self.common_bytes.load(Ordering::Relaxed) + more_common <= self.common_bytes_max
    }

    /// Counts what a shard uses beyond its own part.
    fn settle_accounts(&self, shard: &mut Shard) {
        let now = shard.finished.bytes().saturating_sub(self.own_bytes_max);
        let before = std::mem::replace(&mut shard.common_bytes, now);
        match now.cmp(&before) {
            std::cmp::Ordering::Greater => {
                self.common_bytes.fetch_add(now - before, Ordering::Relaxed);
            }
            std::cmp::Ordering::Less => {
                self.common_bytes.fetch_sub(before - now, Ordering::Relaxed);
            }
            std::cmp::Ordering::Equal => {}
        }
    }

    fn pressure(&self) -> MemoryPressure {
        match self.pressure.load(Ordering::Relaxed) {
            0 => MemoryPressure::None,
            1 => MemoryPressure::Some,
            _ => MemoryPressure::Full,
        }
    }

    fn effective_history_ms(&self) -> u64 {
        match self.pressure() {
            MemoryPressure::Full => self.history_ms.min(SHORT_HISTORY_MS),
            MemoryPressure::None | MemoryPressure::Some => self.history_ms,
        }
    }

    /// How short memory is, from now on.
    pub(crate) fn set_pressure(&self, pressure: MemoryPressure) {
        self.pressure.store(pressure as u8, Ordering::Relaxed);
    }

    /// Drops what is too old, and gives memory back; to be called about once a second.
    pub(crate) fn expire(&self, now_ms: u64) {
        self.expired_ms.store(now_ms, Ordering::Relaxed);
        let life_ms = match self.pressure() {
            MemoryPressure::None => self.history_ms.max(LIFE_MS),
            MemoryPressure::Some | MemoryPressure::Full => self.effective_history_ms(),
        };
        for shard in &*self.shards {
            let mut shard = shard.lock();
            while shard.finished.oldest_ms().is_some_and(|oldest_ms| oldest_ms + life_ms < now_ms) {
                self.evict_oldest(&mut shard, now_ms);
            }
            shard.finished.shrink_index();
            let in_progress = shard.in_progress.len();
            if shard.in_progress.capacity() > 64 + 4 * in_progress {
                shard.in_progress.shrink_to(2 * in_progress);
            }
            self.settle_accounts(&mut shard);
        }
    }

    /// What is kept.
    pub(crate) fn usage(&self) -> ReplyCacheUsage {
        let none = ReplyCacheUsage {
            evicted_young: self.evicted_young.load(Ordering::Relaxed),
            evicted_by_pressure: self.evicted_by_pressure.load(Ordering::Relaxed),
            ..ReplyCacheUsage::default()
        };
        self.shards.iter().fold(none, |usage, shard| {
            let shard = shard.lock();
            ReplyCacheUsage {
                in_progress: usage.in_progress + shard.in_progress.len(),
                replies: usage.replies + shard.finished.len(),
                bytes: usage.bytes + shard.finished.bytes(),
                ..usage
            }
        })
    }
}

/// Sends a reply to those who wait for it. No lock is held: a sink takes its own.
fn answer(ended: Option<InProgress>, reply: &[u8]) {
    for (_, sink) in ended.into_iter().flat_map(|ended| ended.waiters) {
        sink.send(reply);
    }
}
