//! What tells one call of one client from all others.

use std::net::IpAddr;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// How many bytes of the arguments the checksum covers. A WRITE's handle, offset and first data
/// are among them; a longer part would cost time on each large WRITE, and beyond 240 bytes XXH3
/// takes its slower way.
const CHECKSUM_BYTES: usize = 240;

/// Bytes of a key in a log of replies.
pub(crate) const KEY_BYTES: usize = 32;

/// Clients are spread over so many groups, and the calls of one group over so many lanes.
const CLIENT_GROUPS: usize = 8;
pub(super) const XID_LANES: usize = 32;
/// Shards of the cache.
pub(super) const SHARDS: usize = CLIENT_GROUPS * XID_LANES;

/// Names one call of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallKey {
    client: u128,
    checksum: u64,
    xid: u32,
    /// Program, version and procedure.
    operation: u32,
}

impl std::hash::Hash for CallKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
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
        // Of the programs served, numbers have 20 bits, versions 4 and procedures 8.
        let operation = (program << 12) ^ (version << 8) ^ procedure;
        let seed = (client as u64)
            ^ ((client >> 64) as u64)
            ^ (u64::from(xid) << 32)
            ^ u64::from(operation)
            ^ arguments.len() as u64;
        let start = arguments.get(..CHECKSUM_BYTES).unwrap_or(arguments);
        Self { client, checksum: xxh3_64_with_seed(start, seed), xid, operation }
    }

    /// For an index: a hash of the whole key (client and arguments are mixed into the checksum), but for the
    /// low bits, which place the calls of a run next to each other, somewhere. A client that gives one
    /// xid to many calls has them at one of 4,096 places. (Nothing here is a secret: who wants to can make
    /// calls of which all bits are alike.)
    pub(super) fn hash_number(&self) -> u64 {
        let Counted { run, place } = Counted::of(self.xid);
        let run = spread(fold(self.client) ^ (u64::from(run) << 32));
        let place = run * XIDS_OF_A_RUN + u64::from(place);
        place & PLACE_PART | self.checksum & !PLACE_PART
    }

    /// Which shard it belongs to. The client decides the group, so that clients of different pools (a
    /// client usually has all its connections in one) seldom meet; and with the run of its xid, the
    /// lane. So one busy client spreads in time, and over its connections, each of which counts xids of
    /// its own (paper 001, duplicate request cache); calls in flight of one connection share a lock.
    pub(super) fn shard(&self) -> usize {
        let client = fold(self.client);
        let run = u64::from(Counted::of(self.xid).run);
        // Clients that count alike need not meet either.
        let lane = spread(run ^ client.rotate_left(32)) as usize % XID_LANES;
        spread(client) as usize % CLIENT_GROUPS * XID_LANES + lane
    }

    pub(crate) fn to_bytes(self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        let fields = [
            &self.client.to_le_bytes()[..],
            &self.checksum.to_le_bytes(),
            &self.xid.to_le_bytes(),
            &self.operation.to_le_bytes(),
        ];
        for (place, byte) in bytes.iter_mut().zip(fields.into_iter().flatten()) {
            *place = *byte;
        }
        bytes
    }

    /// The key of these bytes.
    pub(crate) fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Self {
        let part = |range: std::ops::Range<usize>| bytes.get(range).unwrap_or(&[]);
        Self {
            client: part(0..16).try_into().map_or(0, u128::from_le_bytes),
            checksum: part(16..24).try_into().map_or(0, u64::from_le_bytes),
            xid: part(24..28).try_into().map_or(0, u32::from_le_bytes),
            operation: part(28..32).try_into().map_or(0, u32::from_le_bytes),
        }
    }

    /// [`CallKey::hash_number`] of a key by its bytes.
    pub(super) fn hash_number_of(bytes: &[u8]) -> u64 {
        bytes.first_chunk().map_or(0, |bytes| Self::from_bytes(bytes).hash_number())
    }
}

/// Calls of a client that follow each other: where their replies are put, and looked for, is in the
/// processor's cache when the next one comes.
const XIDS_OF_A_RUN: u64 = 256;
/// The bits of [`CallKey::hash_number`] that say where in the index. Larger indexes go on with the
/// checksum, so that calls with one xid do not all meet.
const PLACE_PART: u64 = (1 << 12) - 1;

/// An xid as a counter. Clients count in network byte order, or in that of their processors (Linux),
/// so that either its lowest or its highest byte is what changes from call to call.
struct Counted {
    run: u16,
    place: u8,
}

impl Counted {
    fn of(xid: u32) -> Self {
        let [highest, upper, lower, lowest] = xid.to_be_bytes();
        Self { run: u16::from_be_bytes([upper, lower]), place: highest ^ lowest }
    }
}

/// The bits of an address that differ between clients are the last ones.
fn fold(client: u128) -> u64 {
    (client as u64) ^ ((client >> 64) as u64)
}

/// A number of 24 bits, in which all bits of this one have a say.
fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn key(xid: u32, arguments: &[u8]) -> CallKey {
        CallKey::new(Ipv4Addr::LOCALHOST.into(), xid, (100_003, 3, 8), arguments)
    }

    #[test]
    fn another_client_xid_procedure_or_argument_is_another_call() {
        let base = key(7, b"arguments");
        for other in [
            key(8, b"arguments"),
            key(7, b"argumentz"),
            key(7, b"arguments and more"),
            CallKey::new(Ipv4Addr::new(127, 0, 0, 2).into(), 7, (100_003, 3, 8), b"arguments"),
            CallKey::new(Ipv4Addr::LOCALHOST.into(), 7, (100_003, 3, 9), b"arguments"),
            CallKey::new(Ipv4Addr::LOCALHOST.into(), 7, (100_227, 3, 8), b"arguments"),
        ] {
            assert!(other != base && other.to_bytes() != base.to_bytes());
        }
        assert_eq!(CallKey::hash_number_of(&base.to_bytes()), base.hash_number());
        assert_eq!(CallKey::from_bytes(&base.to_bytes()), base);
    }

    #[test]
    fn a_mapped_address_is_the_same_client() {
        let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        assert_eq!(CallKey::new(mapped, 7, (100_003, 3, 8), b"x"), key(7, b"x"));
    }

    #[test]
    fn calls_that_follow_each_other_are_together_however_they_are_counted() {
        for order in [u32::to_be, u32::to_le] {
            let calls: Vec<CallKey> =
                (0..100 * 256).map(|number| key(order(number), b"")).collect();
            let shards: Vec<usize> = calls.iter().map(CallKey::shard).collect();
            let changes = shards.array_windows().filter(|[one, next]| one != next).count();
            assert!((90..100).contains(&changes), "{changes}");
            for run in calls.chunks(256) {
                let places: std::collections::BTreeSet<u64> =
                    run.iter().map(|call| call.hash_number() & PLACE_PART).collect();
                let span = places.last().unwrap() - places.first().unwrap();
                assert_eq!((places.len(), span), (256, 255));
            }
        }
    }

    #[test]
    fn calls_with_one_xid_are_not_at_one_place_in_a_large_index() {
        let places: std::collections::BTreeSet<u64> = (0_u32..1000)
            .map(|number| key(7, &number.to_be_bytes()).hash_number() & 0xf_ffff)
            .collect();
        assert!(places.len() > 200, "{}", places.len());
    }

    #[test]
    fn a_client_has_its_group_and_its_calls_all_lanes() {
        let shards = |last: u8| -> std::collections::BTreeSet<usize> {
            let client = IpAddr::from([192, 0, 2, last]);
            let runs = 0..512;
            runs.map(|run| CallKey::new(client, run * 256, (100_003, 3, 8), b"").shard()).collect()
        };
        let mut groups = std::collections::BTreeSet::new();
        for last in 0..64 {
            let shards = shards(last);
            assert_eq!(shards.len(), XID_LANES);
            let group = shards.first().unwrap() / XID_LANES;
            assert_eq!(shards.last().unwrap() / XID_LANES, group);
            groups.insert(group);
        }
        assert_eq!(groups.len(), CLIENT_GROUPS);
    }
}
