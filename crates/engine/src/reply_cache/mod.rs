//! The duplicate request cache: a changing call that comes again is answered again, never
//! executed again. It keeps results; the headers of replies are made when they are sent.
//!
//! Keyed by client address (no port: clients reconnect), transport, xid, program, version,
//! procedure, and a digest of credentials and all arguments (`key`). Sharded, each shard with a
//! lock and a log of replies (`log`) of its own.
//!
//! # Whose reply is it?
//!
//! Two processes, containers, or clients behind one address may count their xids alike and send
//! the same bytes, each on a connection of its own: both mean it. A client that lost its
//! connection sends the bytes again on a new one: it means it once. So each execution belongs to
//! the connection by which it came. A call that has equal bytes and comes by another connection
//! gets the reply only if the first connection is gone:
//!
//! | the first execution came by | the same bytes come by | answer |
//! |---|---|---|
//! | a connection | the same connection | its reply; dropped while it is being executed |
//! | a datagram | a datagram, from any port | the same: datagrams have no connections that could be told apart; one from another port waits for the reply |
//! | a connection | a datagram, or the reverse | executed: clients do not change the transport of a mount (it is in the key) |
//! | a connection that is closed, or that the kernel knows to be closed by its peer | another connection | the first one's reply, for which it waits if need be |
//! | a connection from a port | another connection from that port to the same of our addresses | the same: no two can live |
//! | a connection whose peer was heard of after the second connection was accepted | another connection | executed |
//! | a connection that was silent since then | another connection | the peer is asked for a sign of life (a keepalive probe): executed if one comes within a second or so; else the first one's reply, as the client has vanished (power, network, NAT) and has connected again |
//! | one of the last two, but too many are being asked | another connection | the first one's reply |
//! | a connection that is alive | another one that its peer has closed since | nothing: the client has left that one and sent the call again by the first, and the server reads only now what it had sent before |
//! | before a crash or restart | any connection | the reply: no connection has outlived it |
//!
//! A connection that was given a reply of another one owns it from then on: a third gets it only if
//! that one is gone too. Where nothing tells the two cases apart the reply is given: two equal
//! calls of which one was not executed are less bad than one that was executed twice.
//!
//! Linux with `nconnect` sends a call again by the connection that it was assigned to, and has
//! another sequence of xids on each. It connects again from the same port if it can.
//!
//! The engine knows numbers of connections. Whether one is gone the host finds out
//! ([`crate::CallHost::is_gone`]).
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
use smallvec::SmallVec;
use steadfast_xdr::Writer;

use crate::peer::Origin;
use crate::reply::ReplySink;

pub(crate) use key::{CREDENTIAL_AT, CallKey, KEY_BYTES, digest, digest_of};
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

/// Connections of one address that have sent the same bytes, at the most, about which a call asks
/// whether they are gone. Others count as alive.
const JUDGED_MAX: usize = 16;

/// The connection of replies that were kept over a crash or restart.
const NO_CONNECTION: u64 = u64::MAX;

/// One execution of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Execution {
    pub(crate) key: CallKey,
    /// By which it came.
    pub(crate) connection: u64,
}

/// Which connections are gone, as far as a call has found out.
#[derive(Debug, Default)]
pub(crate) struct Judged(SmallVec<[(u64, bool); 2]>);

impl Judged {
    pub(crate) fn note(&mut self, connection: u64, is_gone: bool) {
        self.0.push((connection, is_gone));
    }

    /// `None` if it is not known yet.
    fn is_gone(&self, connection: u64) -> Option<bool> {
        if connection == NO_CONNECTION {
            return Some(true);
        }
        let known = self.0.iter().find(|(known, _)| *known == connection);
        known.map(|(_, is_gone)| *is_gone).or((self.0.len() >= JUDGED_MAX).then_some(false))
    }
}

/// A call that is being executed.
struct InProgress {
    origin: Origin,
    waiters: Vec<(Origin, Box<dyn ReplySink>)>,
}

#[derive(Default)]
struct Shard {
    /// By call, all its executions: nearly always one.
    in_progress: HashMap<CallKey, SmallVec<[InProgress; 1]>, BuildHasherDefault<KeyHasher>>,
    finished: Log,
    /// Of the log's bytes, those that are counted in the common part of the bound.
    common_bytes: usize,
}

impl InProgress {
    fn is_of(&self, connection: u64) -> bool {
        self.origin.connection() == connection
    }
}

impl Shard {
    /// An execution has ended.
    fn end(&mut self, execution: &Execution) -> Option<InProgress> {
        let running = self.in_progress.get_mut(&execution.key)?;
        let place = running.iter().position(|one| one.is_of(execution.connection))?;
        let ended = running.swap_remove(place);
        if running.is_empty() {
            self.in_progress.remove(&execution.key);
        }
        Some(ended)
    }

    /// Gives the reply of an execution to another connection, if it has ended.
    fn take_over(&mut self, execution: &Execution, by: u64, replayed: &mut Vec<u8>) -> bool {
        let Some(reply) = self.finished.find(execution) else { return false };
        replayed.extend_from_slice(reply);
        self.finished.give(execution, by);
        true
    }
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
    /// Being executed, but the copy that came by this connection came another way, which may be
    /// gone: see [`ReplyCache::wait`].
    InProgressElsewhere(u64),
    /// It depends on whether this connection is gone: ask again when that is known.
    DependsOn(u64),
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
    /// Calls that had come before: replayed, dropped since the first is being executed, or waiting for it.
    pub duplicates: u64,
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
    duplicates: AtomicU64,
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
            duplicates: AtomicU64::new(0),
            evicted_young: AtomicU64::new(0),
            evicted_by_pressure: AtomicU64::new(0),
        }
    }

    fn shard(&self, key: &CallKey) -> Option<&Mutex<Shard>> {
        self.shards.get(key.shard()).map(|shard| &**shard)
    }

    /// Registers a call that came this way, or finds it registered.
    pub(crate) fn admit(
        &self,
        key: &CallKey,
        origin: Origin,
        judged: &Judged,
        replayed: &mut Vec<u8>,
    ) -> Admission {
        let admission = self.look_for(key, origin, judged, replayed);
        if !matches!(admission, Admission::New | Admission::DependsOn(_)) {
            self.duplicates.fetch_add(1, Ordering::Relaxed);
        }
        admission
    }

    fn look_for(
        &self,
        key: &CallKey,
        origin: Origin,
        judged: &Judged,
        replayed: &mut Vec<u8>,
    ) -> Admission {
        let Some(shard) = self.shard(key) else {
            return Admission::New;
        };
        let mut shard = shard.lock();
        let shard = &mut *shard;
        let own = Execution { key: *key, connection: origin.connection() };
        if let Some(reply) = shard.finished.find(&own) {
            replayed.extend_from_slice(reply);
            return Admission::Replayed;
        }
        let running = shard.in_progress.get(key).map_or(&[][..], |running| running);
        if let Some(running) = running.iter().find(|running| running.is_of(own.connection)) {
            return if running.origin == origin {
                Admission::InProgress
            } else {
                Admission::InProgressElsewhere(own.connection)
            };
        }
        // The first that is gone decides, or that nobody knows about.
        let may_be_gone = |connection: &u64| judged.is_gone(*connection) != Some(false);
        let running = running.iter().map(|running| running.origin.connection()).find(may_be_gone);
        let is_finished = running.is_none();
        let finished =
            || shard.finished.find_connection(key, |connection| may_be_gone(&connection));
        let decides = running.or_else(finished);
        let decides = decides.map(|connection| (connection, judged.is_gone(connection)));
        match decides {
            None => {
                let running = InProgress { origin, waiters: Vec::new() };
                shard.in_progress.entry(*key).or_default().push(running);
                Admission::New
            }
            Some((connection, None)) => Admission::DependsOn(connection),
            Some((connection, Some(_))) if is_finished => {
                shard.take_over(&Execution { key: *key, connection }, own.connection, replayed);
                Admission::Replayed
            }
            Some((connection, Some(_))) => Admission::InProgressElsewhere(connection),
        }
    }

    /// Has the reply of an execution in progress sent this way too. If it has ended meanwhile, does
    /// as [`ReplyCache::admit`]; the result tells.
    pub(crate) fn wait(
        &self,
        execution: &Execution,
        origin: Origin,
        sink: Box<dyn ReplySink>,
        replayed: &mut Vec<u8>,
    ) -> Admission {
        let Execution { key, connection } = execution;
        let Some(shard) = self.shard(key) else {
            return Admission::InProgress;
        };
        let mut shard = shard.lock();
        let shard = &mut *shard;
        let running = shard.in_progress.get_mut(key);
        let running = running.and_then(|all| all.iter_mut().find(|one| one.is_of(*connection)));
        if let Some(running) = running {
            running.waiters.retain(|(other, _)| *other != origin);
            if running.waiters.len() >= WAITERS_MAX {
                running.waiters.remove(0);
            }
            running.waiters.push((origin, sink));
            return Admission::InProgress;
        }
        if shard.take_over(execution, origin.connection(), replayed) {
            return Admission::Replayed;
        }
        // It was forgotten meanwhile.
        let running = InProgress { origin, waiters: Vec::new() };
        shard.in_progress.entry(*key).or_default().push(running);
        Admission::New
    }

    /// Keeps the reply of an admitted call, and answers those who wait for it.
    pub(crate) fn finish(&self, execution: &Execution, now_ms: u64, result: &[u8]) {
        let Some(shard) = self.shard(&execution.key) else { return };
        // A call may have taken long since its clock was read.
        let now_ms = now_ms.max(self.expired_ms.load(Ordering::Relaxed));
        let ended = {
            let mut shard = shard.lock();
            self.keep(&mut shard, execution, now_ms, result);
            shard.end(execution)
        };
        answer(ended, execution.key.xid(), result);
    }

    /// Keeps a reply that was kept over a crash or restart. The last of a call counts.
    pub(crate) fn restore(&self, key: &CallKey, now_ms: u64, result: &[u8]) {
        let Some(shard) = self.shard(key) else { return };
        let execution = Execution { key: *key, connection: NO_CONNECTION };
        self.keep(&mut shard.lock(), &execution, now_ms, result);
    }

    /// Forgets an admitted call that the client is to try again, as the reply says that those
    /// who wait for it get too.
    pub(crate) fn forget(&self, execution: &Execution, result: &[u8]) {
        let Some(shard) = self.shard(&execution.key) else { return };
        let ended = shard.lock().end(execution);
        answer(ended, execution.key.xid(), result);
    }

    /// Forgets an admitted call that has no reply: it panicked, or its client is to send it again.
    pub(crate) fn abandon(&self, execution: &Execution) {
        if let Some(shard) = self.shard(&execution.key) {
            shard.lock().end(execution);
        }
    }

    fn keep(&self, shard: &mut Shard, execution: &Execution, now_ms: u64, reply: &[u8]) {
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
        shard.finished.append(execution, now_ms, reply);
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
            duplicates: self.duplicates.load(Ordering::Relaxed),
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
fn answer(ended: Option<InProgress>, xid: u32, result: &[u8]) {
    let waiters = ended.map(|ended| ended.waiters).unwrap_or_default();
    if waiters.is_empty() {
        return;
    }
    let mut reply = Vec::new();
    steadfast_rpc::accepted_success(&mut Writer::new(&mut reply), xid);
    reply.extend_from_slice(result);
    for (_, sink) in waiters {
        sink.send(&reply);
    }
}
