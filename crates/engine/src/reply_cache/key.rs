//! What tells one call of one client from all others.
//!
//! A retransmission has the bytes of the call that it repeats, since clients keep the message
//! until they have the reply. So everything counts: client, xid, procedure, credentials,
//! arguments. One field is left out: the stamp of `AUTH_SYS`, "an arbitrary ID" (RFC 5531,
//! appendix A). Linux before 5.1 writes the time into it, and writes it anew when it encodes a
//! call again after its connection has failed.

use std::net::IpAddr;

use steadfast_wire::rpc::AUTH_SYS;
use twox_hash::XxHash3_128;

use crate::peer::Transport;

/// Where a message has its credential: after xid, message type, RPC version, program, version and
/// procedure.
pub(crate) const CREDENTIAL_AT: usize = 24;
/// Bytes of a key in a log of replies.
pub(crate) const KEY_BYTES: usize = 40;

/// Flavour and length of a credential, in bytes; and of `AUTH_SYS`'s stamp, which follows them.
const CREDENTIAL_HEAD_BYTES: usize = 8;
const STAMP_BYTES: usize = 4;

/// Clients are spread over so many groups, and the calls of one group over so many lanes.
const CLIENT_GROUPS: usize = 8;
pub(super) const XID_LANES: usize = 32;
/// Shards of the cache.
pub(super) const SHARDS: usize = CLIENT_GROUPS * XID_LANES;

/// Names one call of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallKey {
    client: u128,
    /// XXH3 of credentials and arguments. It is not meant to withstand somebody who makes calls
    /// that collide: he has to know the other's call as a whole, has the same address, and with
    /// `AUTH_SYS` can claim to be the other anyway.
    digest: u128,
    xid: u32,
    /// Program, version and procedure.
    operation: u32,
}

impl std::hash::Hash for CallKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash_number());
    }
}

impl CallKey {
    /// The key of a call. `signed` is its message from the credential on: credential, verifier,
    /// arguments.
    ///
    /// 8 ns for 120 bytes, 19 µs for 1 MiB (with AVX2; a `memcpy` of that takes 23 µs).
    pub(crate) fn new(
        client: IpAddr,
        transport: Transport,
        xid: u32,
        (program, version, procedure): (u32, u32, u32),
        signed: &[u8],
    ) -> Self {
        let client = match client.to_canonical() {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        // Of the programs served, numbers have 20 bits, versions 4 and procedures 8. That of the recovery program
        // has more, and loses its upper bits, which makes it no other's number.
        let operation = (program << 12) ^ (version << 8) ^ procedure;
        // A client does not change the transport of a mount: these are two callers.
        let way = match transport {
            Transport::Tcp => 0,
            Transport::Udp => 1,
        };
        let (head, hashed) = without_stamp(signed);
        let digest = XxHash3_128::oneshot(hashed) ^ mixed(head ^ way);
        Self { client, digest, xid, operation }
    }

    /// The client's number for the call.
    pub(crate) fn xid(&self) -> u32 {
        self.xid
    }

    /// Program, version and procedure that are called.
    pub(crate) fn numbers(&self) -> (u32, u32, u32) {
        (self.operation >> 12, self.operation >> 8 & 0xf, self.operation & 0xff)
    }

    /// For an index: a hash of the whole key, but for the
    /// low bits, which place the calls of a run next to each other, somewhere. A client that gives one
    /// xid to many calls has them at one of 4,096 places. (Nothing here is a secret: who wants to can make
    /// calls of which all bits are alike.)
    pub(super) fn hash_number(&self) -> u64 {
        let Counted { run, place } = Counted::of(self.xid);
        let run = spread(fold(self.client) ^ (u64::from(run) << 32));
        let place = run * XIDS_OF_A_RUN + u64::from(place);
        place & PLACE_PART | self.digest as u64 & !PLACE_PART
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
            &self.digest.to_le_bytes(),
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
            digest: part(16..32).try_into().map_or(0, u128::from_le_bytes),
            xid: part(32..36).try_into().map_or(0, u32::from_le_bytes),
            operation: part(36..40).try_into().map_or(0, u32::from_le_bytes),
        }
    }

    /// [`CallKey::hash_number`] of a key by its bytes.
    pub(super) fn hash_number_of(bytes: &[u8]) -> u64 {
        bytes.first_chunk().map_or(0, |bytes| Self::from_bytes(bytes).hash_number())
    }
}

/// Flavour and length of the credential as a number, and what is hashed of the rest.
fn without_stamp(signed: &[u8]) -> (u64, &[u8]) {
    let Some((head, rest)) = signed.split_first_chunk::<CREDENTIAL_HEAD_BYTES>() else {
        return (0, signed);
    };
    let number = u64::from_be_bytes(*head);
    let is_stamped = number >> 32 == u64::from(AUTH_SYS) && number as u32 as usize >= STAMP_BYTES;
    match rest.split_at_checked(STAMP_BYTES) {
        Some((_stamp, rest)) if is_stamped => (number, rest),
        _ => (number, rest),
    }
}

/// Tells requests of a slot apart whose sequence ids are the same: a digest of a message behind its
/// xid, program and procedure, without the stamp of its credential.
pub(crate) fn digest(message: &[u8]) -> u64 {
    let (head, hashed) = without_stamp(message.get(CREDENTIAL_AT..).unwrap_or(&[]));
    XxHash3_128::oneshot(hashed) as u64 ^ head
}

/// Tells bytes apart whose other names are the same.
pub(crate) fn digest_of(bytes: &[u8]) -> u64 {
    XxHash3_128::oneshot(bytes) as u64
}

/// A number of 128 bits, of which all depend on this one.
fn mixed(number: u64) -> u128 {
    u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

/// Calls of a client that follow each other: where their replies are put, and looked for, is in the
/// processor's cache when the next one comes.
const XIDS_OF_A_RUN: u64 = 256;
/// The bits of [`CallKey::hash_number`] that say where in the index. Larger indexes go on with the
/// digest, so that calls with one xid do not all meet.
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

    const CREATE: (u32, u32, u32) = (100_003, 3, 8);

    fn of_client(client: impl Into<IpAddr>, xid: u32) -> CallKey {
        CallKey::new(client.into(), Transport::Tcp, xid, CREATE, b"arguments")
    }

    fn key(xid: u32, arguments: &[u8]) -> CallKey {
        CallKey::new(Ipv4Addr::LOCALHOST.into(), Transport::Tcp, xid, CREATE, arguments)
    }

    /// A call from its credential on, by `AUTH_SYS`.
    fn signed(
        stamp: u32,
        name: u8,
        uid: u32,
        gid: u32,
        groups: &[u32],
        arguments: &[u8],
    ) -> CallKey {
        let mut body = [stamp, 1, u32::from(name) << 24, uid, gid, groups.len() as u32].to_vec();
        body.extend(groups);
        let mut message = vec![AUTH_SYS, 4 * body.len() as u32];
        message.extend(body);
        message.extend([0, 0]);
        let mut bytes: Vec<u8> = message.into_iter().flat_map(u32::to_be_bytes).collect();
        bytes.extend_from_slice(arguments);
        key(7, &bytes)
    }

    #[test]
    fn another_client_xid_procedure_or_argument_is_another_call() {
        let base = key(7, b"arguments");
        let localhost = IpAddr::from(Ipv4Addr::LOCALHOST);
        for other in [
            key(8, b"arguments"),
            key(7, b"argumentz"),
            key(7, b"arguments and more"),
            of_client(Ipv4Addr::new(127, 0, 0, 2), 7),
            CallKey::new(localhost, Transport::Tcp, 7, (100_003, 3, 9), b"arguments"),
            CallKey::new(localhost, Transport::Tcp, 7, (100_227, 3, 8), b"arguments"),
            CallKey::new(localhost, Transport::Udp, 7, CREATE, b"arguments"),
        ] {
            assert!(other != base && other.to_bytes() != base.to_bytes());
        }
        assert_eq!(CallKey::hash_number_of(&base.to_bytes()), base.hash_number());
        assert_eq!(CallKey::from_bytes(&base.to_bytes()), base);
        assert_eq!((base.xid(), base.numbers()), (7, CREATE));
    }

    #[test]
    fn a_mapped_address_is_the_same_client() {
        let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        assert_eq!(of_client(mapped, 7), key(7, b"arguments"));
    }

    #[test]
    fn whoever_calls_and_every_byte_of_the_arguments_count_and_the_stamp_does_not() {
        let base = signed(1, b'm', 2, 3, &[4, 5], b"arguments");
        assert_eq!(signed(9, b'm', 2, 3, &[4, 5], b"arguments"), base);
        for other in [
            signed(1, b'n', 2, 3, &[4, 5], b"arguments"),
            signed(1, b'm', 9, 3, &[4, 5], b"arguments"),
            signed(1, b'm', 2, 9, &[4, 5], b"arguments"),
            signed(1, b'm', 2, 3, &[4, 9], b"arguments"),
            signed(1, b'm', 2, 3, &[4], b"arguments"),
            signed(1, b'm', 2, 3, &[4, 5], b"argument"),
            // Nobody in particular; and somebody whose flavour is another.
            key(7, b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0arguments"),
            key(7, b"\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0arguments"),
        ] {
            assert_ne!(other, base);
        }
        // A WRITE's data far behind its beginning, and in the middle.
        let data = vec![7; 1 << 20];
        let base = signed(1, b'm', 2, 3, &[], &data);
        for at in [0, 239, 240, 400, 8_192, 524_288, (1 << 20) - 1] {
            let mut other = data.clone();
            other[at] ^= 1;
            assert_ne!(signed(1, b'm', 2, 3, &[], &other), base, "{at}");
        }
        // Nothing that short is a call; all the same.
        for short in [&b""[..], b"\0\0\0\x01", b"\0\0\0\x01\0\0\0\x04", b"\0\0\0\x01\0\0\0\x04ab"] {
            assert_eq!(key(7, short), key(7, short));
        }
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
            runs.map(|run| of_client(client, run * 256).shard()).collect()
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
