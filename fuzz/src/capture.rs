//! Rows of packets for the targets that capture them, and their seeds.

use std::net::Ipv4Addr;

use steadfast_control::capture::{
    CaptureCounts, CapturedMessage, CapturedTimes, ExecutedCall, Frame,
};
use steadfast_observe::capture::{Dissector, LinkType, Observed, Packet};
use steadfast_wire::nfs3::NfsFh3;
use steadfast_wire::rpc::{CallHeader, OpaqueAuth};

use crate::written;

/// A step of the input: what it is, how many bytes belong to it, and they.
const UDP_CALL: u8 = 5;
const UDP_REPLY: u8 = 6;
const TCP_CALL: u8 = 7;
const TCP_REPLY: u8 = 8;
/// So many bytes of the calls' stream are lost.
const GAP: u8 = 9;
/// So many seconds go by.
const TIME: u8 = 10;
const KINDS: u8 = 11;

fn links() -> [LinkType; 5] {
    [
        LinkType::Ethernet,
        LinkType::LinuxCooked1,
        LinkType::LinuxCooked2,
        LinkType::Loopback,
        LinkType::Ip,
    ]
}

/// Hands the packets that an input describes to a dissector, and checks what it counts.
pub fn packets(mut input: &[u8]) {
    let mut dissector = Dissector::new([2049, 111]);
    let (mut calls, mut now_ns, mut sequences) = (0_u64, 1_u64, [1_u32, 1]);
    while let Some(([kind, high, low], rest)) = input.split_first_chunk::<3>() {
        let announced = usize::from(u16::from_be_bytes([*high, *low]));
        let (body, later) = rest.split_at(announced.min(rest.len()));
        input = later;
        now_ns += 1000;
        let mut link = LinkType::Ip;
        let bytes = match kind % KINDS {
            GAP => {
                sequences[0] = sequences[0].wrapping_add(announced as u32);
                input = rest;
                continue;
            }
            TIME => {
                now_ns += announced as u64 * 1_000_000_000;
                input = rest;
                continue;
            }
            kind @ (UDP_CALL | UDP_REPLY) => udp(kind == UDP_CALL, body),
            kind @ (TCP_CALL | TCP_REPLY) => {
                let sequence = &mut sequences[usize::from(kind == TCP_REPLY)];
                let bytes = tcp(kind == TCP_CALL, *sequence, body);
                *sequence = sequence.wrapping_add(body.len() as u32);
                bytes
            }
            raw => {
                link = links()[usize::from(raw)];
                body.to_vec()
            }
        };
        let packet =
            Packet { time_ns: now_ns, link, bytes: &bytes, wire_bytes: bytes.len(), interface: 0 };
        dissector.handle_packet(&packet, &mut |observed: &Observed<'_>| {
            calls += u64::from(!observed.key.is_part);
            assert!(observed.time_ns <= now_ns);
        });
    }
    let counts = dissector.counts();
    assert!(calls + counts.waiting <= counts.messages, "{calls} calls of {counts:?}");
    assert!(counts.connections <= counts.packets);
}

fn ip(is_call: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + payload.len()).unwrap_or(0);
    let (client, server) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let (source, destination) = if is_call { (client, server) } else { (server, client) };
    let mut bytes = vec![0x45, 0];
    bytes.extend(length.to_be_bytes());
    bytes.extend([0, 1, 0, 0, 64, protocol, 0, 0]);
    bytes.extend(source.octets());
    bytes.extend(destination.octets());
    bytes.extend(payload);
    bytes
}

fn ports(is_call: bool) -> [u8; 4] {
    let [[a, b], [c, d]] = [800_u16.to_be_bytes(), 2049_u16.to_be_bytes()];
    if is_call { [a, b, c, d] } else { [c, d, a, b] }
}

fn udp(is_call: bool, body: &[u8]) -> Vec<u8> {
    ip(is_call, 17, &[&ports(is_call)[..], &[0; 4], body].concat())
}

fn tcp(is_call: bool, sequence: u32, body: &[u8]) -> Vec<u8> {
    let rest = [0, 0, 0, 0, 5 << 4, 0, 1, 0, 0, 0, 0, 0];
    ip(is_call, 6, &[&ports(is_call)[..], &sequence.to_be_bytes(), &rest, body].concat())
}

fn step(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u16).to_be_bytes(), body].concat()
}

/// Valid inputs of `capture_packets` by their names.
pub fn packet_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let none = OpaqueAuth { flavor: 0, body: &[] };
    let head = |vers, proc_| {
        written(&CallHeader {
            xid: 7,
            rpcvers: 2,
            prog: 100_003,
            vers,
            proc_,
            cred: none,
            verf: none,
        })
    };
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_be_bytes()).collect() };
    let record = |body: &[u8]| [&(body.len() as u32 | 1 << 31).to_be_bytes()[..], body].concat();
    let lookup =
        [head(3, 3), written(&NfsFh3(b"directory")), words(&[4]), b"name".to_vec()].concat();
    let found = [words(&[7, 1, 0, 0, 0, 0, 0]), written(&NfsFh3(b"file"))].concat();
    // PUTFH and GETFH of minor version 1.
    let compound = [head(4, 1), words(&[0, 1, 2, 22, 4, 9, 10])].concat();
    let executed = words(&[7, 1, 0, 0, 0, 0, 0, 0, 2, 22, 0, 10, 0, 4, 9]);
    let datagrams = [step(UDP_CALL, &lookup), step(UDP_REPLY, &found)].concat();
    let stream = [
        step(TCP_CALL, &record(&lookup)),
        step(TCP_REPLY, &record(&found)),
        step(TCP_CALL, &record(&compound)),
        step(TCP_REPLY, &record(&executed)),
    ];
    let lossy = [
        step(TCP_CALL, &record(&lookup)[..20]),
        vec![GAP, 0, 90],
        step(TCP_CALL, &record(&compound)),
        vec![TIME, 0, 3],
        step(TCP_CALL, &record(&lookup)),
    ];
    let raw = step(4, &udp(true, &lookup));
    vec![
        ("datagrams", datagrams),
        ("stream", stream.concat()),
        ("lossy", lossy.concat()),
        ("raw", raw),
    ]
}

/// Valid inputs of `capture_stream` by their names, without its magic.
pub fn stream_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let message = |is_sent: bool, bytes: Vec<u8>| {
        Frame::Message(CapturedMessage {
            time_ns: 1_700_000_000_000_000_000,
            client: ([192, 0, 2, 1], 700).into(),
            server: ([192, 0, 2, 2], 2049).into(),
            is_datagram: false,
            is_sent,
            is_repeat: false,
            times: is_sent.then_some(CapturedTimes::default()),
            executed: is_sent.then_some(ExecutedCall {
                program: 100_003,
                version: 4,
                procedure: 1,
            }),
            length: bytes.len() as u32 + 8,
            bytes,
        })
    };
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_be_bytes()).collect() };
    let write = words(&[7, 0, 2, 100_003, 3, 7, 0, 0, 0, 0, 4, 1, 0, 0, 8, 2, 8, 5, 5]);
    let compound = words(&[8, 0, 2, 100_003, 4, 1, 0, 0, 0, 0, 0, 0, 2, 24, 9, 1, 2]);
    let found = words(&[8, 1, 0, 0, 0, 0, 0, 0, 2, 24, 0, 9, 0, 0, 0]);
    let frames = [
        Frame::Counts(CaptureCounts { dropped: 3, room_bytes: 1 << 25 }),
        message(false, write),
        message(false, compound),
        message(true, found),
        Frame::CutOff(CaptureCounts { dropped: 4, room_bytes: 1 << 25 }),
    ];
    let mut bytes = Vec::new();
    for frame in &frames {
        frame.write(&mut bytes);
    }
    vec![("counts_write_and_compound", bytes)]
}

/// Valid inputs of `capture_file` by their names.
pub fn file_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_be_bytes()).collect() };
    let block = |kind: u32, body: Vec<u8>| {
        let length = 12 + body.len() as u32;
        [words(&[kind, length]), body, words(&[length])].concat()
    };
    let pcap = words(&[0xa1b2_c3d4, 0x0002_0004, 0, 0, 65_535, 1, 5, 6, 4, 4, 0x0102_0304]);
    let pcapng = [
        block(0x0a0d_0d0a, words(&[0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX])),
        block(1, words(&[276 << 16, 0, 9 << 16 | 1, 9 << 24, 0])),
        block(6, words(&[0, 1, 2, 4, 4, 0x0102_0304])),
        block(3, words(&[4, 0x0102_0304])),
        block(5, words(&[0, 1, 2, 5 << 16 | 8, 0, 3, 0])),
    ];
    vec![("pcap", pcap), ("pcapng", pcapng.concat())]
}
