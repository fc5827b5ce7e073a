//! Packets and messages for the tests of this crate.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use steadfast_rpc::record::Mark;
use steadfast_wire::nfs3::{self, NfsFh3};
use steadfast_wire::nfs4::{CompoundHead4, Op4, PutFh4Args, Sequence4Args};
use steadfast_wire::rpc::{AUTH_NONE, AUTH_SYS, CallHeader, OpaqueAuth};
use steadfast_xdr::{Encode, Writer};

use super::{LinkType, Packet};

pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

/// Client and server of most tests.
pub(crate) const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub(crate) const PORT: u16 = 800;

pub(crate) fn written(value: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut Writer::new(&mut bytes));
    bytes
}

/// A packet without a link header.
pub(crate) fn ip(time_ns: u64, bytes: &[u8]) -> Packet<'_> {
    Packet { time_ns, link: LinkType::Ip, bytes, wire_bytes: bytes.len(), interface: 0 }
}

/// An IP packet with this payload; checksums are wrong.
pub(crate) fn ip_bytes(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            ipv4_fragment(source, destination, protocol, 1, 0, false, payload)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            ipv6_bytes(source, destination, protocol, payload)
        }
        _ => panic!("two kinds of addresses"),
    }
}

pub(crate) fn ipv4_fragment(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    id: u16,
    offset: usize,
    has_more: bool,
    payload: &[u8],
) -> Vec<u8> {
    // Too long for the field is 0, as with TSO.
    let total = u16::try_from(20 + payload.len()).unwrap_or(0);
    let fragment = (offset / 8) as u16 | if has_more { 0x2000 } else { 0 };
    let mut bytes = vec![0x45, 0];
    bytes.extend(total.to_be_bytes());
    bytes.extend(id.to_be_bytes());
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0xba, 0xd0]);
    bytes.extend(source.octets());
    bytes.extend(destination.octets());
    bytes.extend(payload);
    bytes
}

pub(crate) fn ipv6_bytes(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend(u16::try_from(payload.len()).unwrap_or(0).to_be_bytes());
    bytes.extend([protocol, 64]);
    bytes.extend(source.octets());
    bytes.extend(destination.octets());
    bytes.extend(payload);
    bytes
}

pub(crate) fn tcp_bytes(
    ports: (u16, u16),
    sequence: u32,
    ack: u32,
    flags: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(ports.0.to_be_bytes());
    bytes.extend(ports.1.to_be_bytes());
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(ack.to_be_bytes());
    // With an option, so that the header is longer than usual. The checksum is wrong.
    bytes.extend([6 << 4, flags, 1, 0, 0xba, 0xd0, 0, 0, 1, 1, 1, 0]);
    bytes.extend(payload);
    bytes
}

pub(crate) fn udp_bytes(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(ports.0.to_be_bytes());
    bytes.extend(ports.1.to_be_bytes());
    bytes.extend(((8 + payload.len()) as u16).to_be_bytes());
    bytes.extend([0xba, 0xd0]);
    bytes.extend(payload);
    bytes
}

/// A segment from the client to port 2049 of the server.
pub(crate) fn to_server(sequence: u32, payload: &[u8]) -> Vec<u8> {
    ip_bytes(CLIENT, SERVER, 6, &tcp_bytes((PORT, 2049), sequence, 0, 0, payload))
}

/// And one back.
pub(crate) fn to_client(sequence: u32, payload: &[u8]) -> Vec<u8> {
    ip_bytes(SERVER, CLIENT, 6, &tcp_bytes((2049, PORT), sequence, 0, 0, payload))
}

/// Credentials of a user.
pub(crate) fn sys(uid: u32) -> Vec<u8> {
    let mut body = Vec::new();
    let mut w = Writer::new(&mut body);
    w.u32(0);
    w.opaque(b"host");
    for word in [uid, 100, 0] {
        w.u32(word);
    }
    body
}

/// The head of a call by user 7, and these arguments.
pub(crate) fn call(xid: u32, program: (u32, u32, u32), arguments: &[u8]) -> Vec<u8> {
    let body = sys(7);
    call_by(xid, program, OpaqueAuth { flavor: AUTH_SYS, body: &body }, arguments)
}

pub(crate) fn call_by(
    xid: u32,
    (prog, vers, proc_): (u32, u32, u32),
    cred: OpaqueAuth<'_>,
    arguments: &[u8],
) -> Vec<u8> {
    let verf = OpaqueAuth { flavor: AUTH_NONE, body: &[] };
    let mut bytes = written(&CallHeader { xid, rpcvers: 2, prog, vers, proc_, cred, verf });
    bytes.extend(arguments);
    bytes
}

/// A successful reply.
pub(crate) fn reply(xid: u32, results: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    steadfast_rpc::accepted_success(&mut Writer::new(&mut bytes), xid);
    bytes.extend(results);
    bytes
}

pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A GETATTR of NFSv3.
pub(crate) fn getattr(xid: u32) -> Vec<u8> {
    call(xid, (nfs3::PROGRAM, 3, 1), &written(&NfsFh3(b"some handle")))
}

/// Its reply, with this status.
pub(crate) fn getattr_reply(xid: u32, status: u32) -> Vec<u8> {
    let mut results = words(&[status]);
    if status == 0 {
        results.extend([0; 84]);
    }
    reply(xid, &results)
}

/// One record of one fragment.
pub(crate) fn record(message: &[u8]) -> Vec<u8> {
    fragments(message, &[])
}

/// A record that is cut at these places.
pub(crate) fn fragments(message: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut begin = 0;
    for cut in cuts {
        bytes.extend(Mark::new(cut - begin, false).to_bytes());
        bytes.extend(&message[begin..*cut]);
        begin = *cut;
    }
    bytes.extend(Mark::whole(message.len() - begin).to_bytes());
    bytes.extend(&message[begin..]);
    bytes
}

/// The beginning of a COMPOUND: SEQUENCE and PUTFH, of `operations` in all.
pub(crate) fn compound(operations: u32, handle: &[u8]) -> Vec<u8> {
    let mut bytes = written(&CompoundHead4 { tag: b"", minorversion: 1, operations });
    bytes.extend(words(&[Op4::Sequence as u32]));
    bytes.extend(written(&Sequence4Args {
        sessionid: [1; 16],
        sequenceid: 1,
        slotid: 0,
        highest_slotid: 0,
        cachethis: false,
    }));
    bytes.extend(words(&[Op4::PutFh as u32]));
    bytes.extend(written(&PutFh4Args { object: handle }));
    bytes
}
