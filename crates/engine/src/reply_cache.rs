//! The duplicate request cache: a changing call that comes again is answered again, never
//! executed again.
//!
//! Keyed by client address (no port: clients reconnect), xid, program, version, procedure and a
//! checksum of the arguments' beginning and length. A duplicate of a call in progress is
//! dropped; of a finished one, answered with the same bytes. Sharded, with a lock and a queue
//! a shard; the shard comes from both client and xid, so one busy client spreads.
//!
//! Entries leave by age ([`ENTRY_LIFE_MS`]) or, oldest first, when a shard's bytes exceed its
//! part of the bound. Calls in progress never leave.

use std::collections::{HashMap, VecDeque, hash_map};
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const SHARDS: usize = 64;

/// How long a finished reply is kept when there is room: longer than the retransmission
/// time-outs of clients (Linux: 60 s over TCP, 1.1 s and up over UDP).
const ENTRY_LIFE_MS: u64 = 180_000;

/// How many bytes of the arguments the checksum covers. A WRITE's handle, offset and first data
/// are among them; a longer part would cost time on each large WRITE, and beyond 240 bytes XXH3
/// takes its slower way.
const CHECKSUM_BYTES: usize = 240;

/// Counted for an entry besides its reply: map slot, queue slot, allocation.
const ENTRY_OVERHEAD_BYTES: usize = 128;

/// Names one call of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallKey {
    client: u128,
    operation: u64,
    xid: u32,
    checksum: u64,
}

impl std::hash::Hash for CallKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Client and arguments are mixed into the checksum already (its seed), so this is all
        // that needs hashing; equality compares the rest.
        state.write_u64(self.checksum);
    }
}

impl CallKey {
    /// The key of a call with these arguments.
    pub(crate) fn new(
        client: IpAddr,
        xid: u32,
        (program, version, procedure): (u32, u32, u32),
        arguments: &[u8],
    ) -> Self {
        let client = match client.to_canonical() {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        let operation =
            (u64::from(program) << 32) ^ (u64::from(version) << 16) ^ u64::from(procedure);
        let seed = (client as u64)
            ^ ((client >> 64) as u64)
            ^ (u64::from(xid) << 32)
            ^ operation
            ^ arguments.len() as u64;
        let start = arguments.get(..CHECKSUM_BYTES).unwrap_or(arguments);
        Self { client, operation, xid, checksum: xxh3_64_with_seed(start, seed) }
    }

    fn shard(&self) -> usize {
        // Bits that the shard's own map uses neither for its buckets (the low ones) nor for its
        // tags (the top seven).
        (self.checksum >> 40) as usize % SHARDS
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

enum Entry {
    InProgress,
    Finished { reply: Box<[u8]> },
}

#[derive(Default)]
struct Shard {
    entries: HashMap<CallKey, Entry, BuildHasherDefault<KeyHasher>>,
    /// Finished calls by the time they finished.
    queue: VecDeque<(u64, CallKey)>,
    bytes: usize,
}

impl Shard {
    fn evict_oldest(&mut self) {
        if let Some((_, key)) = self.queue.pop_front()
            && let Some(Entry::Finished { reply }) = self.entries.remove(&key)
        {
            self.bytes -= reply.len() + ENTRY_OVERHEAD_BYTES;
        }
    }
}

/// What the cache knows of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Never seen: execute it, then [`ReplyCache::finish`] or [`ReplyCache::forget`].
    New,
    /// Being executed: drop this copy.
    InProgress,
    /// Executed: the reply was appended to the buffer.
    Replayed,
}

/// The cache.
pub(crate) struct ReplyCache {
    shards: Box<[Mutex<Shard>]>,
    shard_bytes_max: usize,
}

impl ReplyCache {
    /// A cache bounded to about this many bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shard_bytes_max: bytes_max / SHARDS,
        }
    }

    fn shard(&self, key: &CallKey) -> Option<&Mutex<Shard>> {
        self.shards.get(key.shard())
    }

    /// Registers a call, or finds it registered.
    pub(crate) fn admit(&self, key: &CallKey, replayed: &mut Vec<u8>) -> Admission {
        let Some(shard) = self.shard(key) else {
            return Admission::New;
        };
        match shard.lock().entries.entry(*key) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(Entry::InProgress);
                Admission::New
            }
            hash_map::Entry::Occupied(occupied) => match occupied.get() {
                Entry::InProgress => Admission::InProgress,
                Entry::Finished { reply } => {
                    replayed.extend_from_slice(reply);
                    Admission::Replayed
                }
            },
        }
    }

    /// Keeps the reply of an admitted call.
    pub(crate) fn finish(&self, key: &CallKey, now_ms: u64, reply: &[u8]) {
        let Some(shard) = self.shard(key) else { return };
        let reply: Box<[u8]> = reply.into();
        let mut guard = shard.lock();
        let shard = &mut *guard;
        shard.bytes += reply.len() + ENTRY_OVERHEAD_BYTES;
        shard.entries.insert(*key, Entry::Finished { reply });
        shard.queue.push_back((now_ms, *key));
        while shard.bytes > self.shard_bytes_max && shard.queue.len() > 1 {
            shard.evict_oldest();
        }
    }

    /// Forgets an admitted call that the client is to try again.
    pub(crate) fn forget(&self, key: &CallKey) {
        if let Some(shard) = self.shard(key) {
            shard.lock().entries.remove(key);
        }
    }

    /// Drops what is older than its life, and gives memory back.
    pub(crate) fn expire(&self, now_ms: u64) {
        for shard in &*self.shards {
            let mut shard = shard.lock();
            while let Some((finished_ms, _)) = shard.queue.front()
                && finished_ms.saturating_add(ENTRY_LIFE_MS) < now_ms
            {
                shard.evict_oldest();
            }
            if shard.queue.capacity() > 64 && shard.queue.len() < shard.queue.capacity() / 4 {
                shard.queue.shrink_to_fit();
                shard.entries.shrink_to_fit();
            }
        }
    }

    /// How many calls and bytes are kept.
    pub(crate) fn usage(&self) -> (usize, usize) {
        self.shards.iter().fold((0, 0), |(calls, bytes), shard| {
            let shard = shard.lock();
            (calls + shard.entries.len(), bytes + shard.bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn key(xid: u32, arguments: &[u8]) -> CallKey {
        CallKey::new(IpAddr::V4(Ipv4Addr::LOCALHOST), xid, (100_003, 3, 8), arguments)
    }

    #[test]
    fn a_duplicate_in_progress_is_dropped_and_a_finished_one_replayed() {
        let cache = ReplyCache::new(1 << 20);
        let mut replayed = Vec::new();
        let first = key(7, b"arguments");
        assert_eq!(cache.admit(&first, &mut replayed), Admission::New);
        assert_eq!(cache.admit(&first, &mut replayed), Admission::InProgress);
        cache.finish(&first, 0, b"the reply");
        assert_eq!(cache.admit(&first, &mut replayed), Admission::Replayed);
        assert_eq!(replayed, b"the reply");
    }

    #[test]
    fn another_client_xid_procedure_or_argument_is_another_call() {
        let cache = ReplyCache::new(1 << 20);
        let mut replayed = Vec::new();
        let base = key(7, b"arguments");
        assert_eq!(cache.admit(&base, &mut replayed), Admission::New);
        let others = [
            key(8, b"arguments"),
            key(7, b"argumentz"),
            key(7, b"arguments and more"),
            CallKey::new(Ipv4Addr::new(127, 0, 0, 2).into(), 7, (100_003, 3, 8), b"arguments"),
            CallKey::new(Ipv4Addr::LOCALHOST.into(), 7, (100_003, 3, 9), b"arguments"),
        ];
        for other in others {
            assert_eq!(cache.admit(&other, &mut replayed), Admission::New);
        }
    }

    #[test]
    fn a_mapped_address_is_the_same_client() {
        let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        assert_eq!(CallKey::new(mapped, 7, (100_003, 3, 8), b"x"), key(7, b"x"));
    }

    #[test]
    fn the_oldest_leave_when_the_bound_is_reached_but_never_a_call_in_progress() {
        let cache = ReplyCache::new(SHARDS * 1024);
        let mut replayed = Vec::new();
        let running = key(u32::MAX, b"running");
        assert_eq!(cache.admit(&running, &mut replayed), Admission::New);
        for xid in 0..10_000 {
            let key = key(xid, b"x");
            assert_eq!(cache.admit(&key, &mut replayed), Admission::New);
            cache.finish(&key, u64::from(xid), &[0; 100]);
        }
        let (_, bytes) = cache.usage();
        assert!(bytes <= SHARDS * 1024, "{bytes} bytes are over the bound");
        assert_eq!(cache.admit(&running, &mut replayed), Admission::InProgress);
        assert_eq!(cache.admit(&key(9_999, b"x"), &mut replayed), Admission::Replayed);
        assert_eq!(cache.admit(&key(0, b"x"), &mut replayed), Admission::New);
    }

    #[test]
    fn it_shrinks_when_idle() {
        let cache = ReplyCache::new(1 << 24);
        let mut replayed = Vec::new();
        for xid in 0..10_000 {
            let key = key(xid, b"x");
            assert_eq!(cache.admit(&key, &mut replayed), Admission::New);
            cache.finish(&key, 5, &[0; 100]);
        }
        cache.expire(5 + ENTRY_LIFE_MS);
        assert_eq!(cache.usage().0, 10_000);
        cache.expire(6 + ENTRY_LIFE_MS);
        assert_eq!(cache.usage(), (0, 0));
    }

    #[test]
    fn a_forgotten_call_is_new_again() {
        let cache = ReplyCache::new(1 << 20);
        let mut replayed = Vec::new();
        let call = key(1, b"x");
        assert_eq!(cache.admit(&call, &mut replayed), Admission::New);
        cache.forget(&call);
        assert_eq!(cache.admit(&call, &mut replayed), Admission::New);
    }
}
