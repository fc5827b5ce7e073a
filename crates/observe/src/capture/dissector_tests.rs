//! Unit ring: from packets to calls, with all that a capture meets.
//!
//! What captures stumble over, and the tests of it:
//!
//! | case | tests |
//! |---|---|
//! | a packet is lost | `a_lost_segment_is_counted_and_the_next_records_are_found`; in `record_tests`: `a_hole_inside_a_fragment_costs_the_end_of_one_record`, `implausible_lengths_lose_the_place_and_long_records_are_cut`, `whole_records_are_found` |
//! | the capture begins in the middle | `attaching_in_the_middle_finds_the_next_call`; in `record_tests`: `the_middle_of_a_stream_is_searched_for_calls_and_awaited_replies` |
//! | records of many fragments | in `record_tests`: `records_of_many_fragments_come_in_any_pieces` |
//! | frames far above the MTU | `a_segment_may_be_far_larger_than_the_mtu_and_a_record_in_many_segments`; in `packet_tests`: `lengths_that_are_too_large_for_their_field_and_cut_packets` |
//! | checksums that the network card was to fill in | all: every packet that `testing` makes has wrong ones |
//! | fragments of UDP by IPv4 and IPv6 | `datagrams_in_fragments_are_put_together`, `datagrams_in_fragments_of_ipv6_are_put_together`, `fragments_that_a_capture_has_cut_or_seen_twice_are_no_loss` |
//! | the kernel drops packets | in `sys::packet_ring`: `packets_of_loopback_are_seen_filtered_and_counted_when_dropped`; in `watch::text`: `what_is_missing_is_told`; in `file::tests`: `what_is_written_is_read` |
//! | the buffer behind a gap | in `stream`: `a_gap_is_given_up_by_time_by_acknowledgement_and_by_size`, `segments_without_bytes_take_memory_too` |
//! | calls without a reply | `calls_without_a_reply_are_forgotten_and_memory_is_bounded`, `calls_that_wait_are_bounded_in_bytes_too` |
//! | retransmissions | `a_retransmission_keeps_the_first_calls_time`, `a_call_that_comes_again_after_its_reply_is_a_retransmission` |
//! | TLS and Kerberos with privacy | `tls_is_told_and_not_taken_for_calls`, `kerberos_is_read_as_far_as_it_can_be`; in `watch::text`: `what_kerberos_hides_is_told` |
//! | a COMPOUND is all its operations | in `compound::tests`: `each_operation_has_its_status_its_file_and_its_bytes` |
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use steadfast_wire::mount::{DirPath, Mounted3};
use steadfast_wire::nfs2;
use steadfast_wire::nfs3::{self, DirOpArgs3, NfsFh3, StableHow, Write3Args};
use steadfast_wire::nfs4::{
    CallbackClient4, CallbackCompoundHead4, CallbackRecall4Args, CompoundHead4, Op4,
    SetClientId4Args, StateId4,
};
use steadfast_wire::rpc::{OpaqueAuth, RPCSEC_GSS};
use steadfast_wire::rpcbind::Mapping;
use steadfast_wire::{mount, nfsacl, nlm, recovery, rpcbind};
use steadfast_xdr::Writer;

use super::connection::REPLY_WAIT_NS;
use super::testing::*;
use super::{Dissector, Handle, LinkType, Observed, OperationKey, Packet, Status, User};

/// What was observed, in short.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    what: String,
    status: Status,
    latency_ns: Option<u64>,
    retransmissions: u32,
}

struct Fixture {
    dissector: Dissector,
    seen: Vec<Seen>,
    now_ns: u64,
}

impl Fixture {
    fn new() -> Self {
        Self { dissector: Dissector::new([2049, 111]), seen: Vec::new(), now_ns: 1_000_000_000 }
    }

    fn packet(&mut self, packet: &Packet<'_>) {
        let seen = &mut self.seen;
        self.dissector.handle_packet(packet, &mut |observed: &Observed<'_>| {
            seen.push(Seen {
                what: observed.key.to_string(),
                status: observed.status,
                latency_ns: observed.latency_ns,
                retransmissions: observed.retransmissions,
            });
        });
    }

    /// A packet, 1 ms after the last one.
    fn bytes(&mut self, bytes: &[u8]) {
        self.now_ns += 1_000_000;
        let now_ns = self.now_ns;
        self.packet(&ip(now_ns, bytes));
    }

    fn udp(&mut self, message: &[u8], is_call: bool) {
        let bytes = if is_call {
            ip_bytes(CLIENT, SERVER, 17, &udp_bytes((PORT, 2049), message))
        } else {
            ip_bytes(SERVER, CLIENT, 17, &udp_bytes((2049, PORT), message))
        };
        self.bytes(&bytes);
    }

    /// A call and its reply by UDP; what is observed.
    fn exchange(&mut self, call: &[u8], reply: &[u8]) -> Vec<(String, Status)> {
        self.seen.clear();
        self.udp(call, true);
        self.udp(reply, false);
        self.seen.iter().map(|seen| (seen.what.clone(), seen.status)).collect()
    }

    /// SYN of both sides; the first bytes have the sequence numbers 101 and 201.
    fn connect(&mut self) {
        let syn = |ports, sequence| tcp_bytes(ports, sequence, 0, SYN, &[]);
        self.bytes(&ip_bytes(CLIENT, SERVER, 6, &syn((PORT, 2049), 100)));
        self.bytes(&ip_bytes(SERVER, CLIENT, 6, &syn((2049, PORT), 200)));
    }

    fn names(&self) -> Vec<&str> {
        self.seen.iter().map(|seen| seen.what.as_str()).collect()
    }
}

#[test]
fn calls_and_replies_by_tcp_and_udp_and_both_kinds_of_ip() {
    let six = |last| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
    let mapped = |last| IpAddr::V6(Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped());
    for (client, server) in [(CLIENT, SERVER), (six(1), six(2)), (mapped(1), mapped(2))] {
        for is_tcp in [true, false] {
            let mut fixture = Fixture::new();
            let (call, reply) = (getattr(5), getattr_reply(5, 0));
            let (protocol, call, reply) = if is_tcp {
                let call = tcp_bytes((PORT, 2049), 1, 0, 0, &record(&call));
                (6, call, tcp_bytes((2049, PORT), 1, 0, 0, &record(&reply)))
            } else {
                (17, udp_bytes((PORT, 2049), &call), udp_bytes((2049, PORT), &reply))
            };
            fixture.bytes(&ip_bytes(client, server, protocol, &call));
            fixture.bytes(&ip_bytes(server, client, protocol, &reply));
            let expected = Seen {
                what: "nfs3 getattr".to_owned(),
                status: Status::Ok,
                latency_ns: Some(1_000_000),
                retransmissions: 0,
            };
            assert_eq!(fixture.seen, [expected], "{client} {is_tcp}");
        }
    }
}

#[test]
fn who_calls_and_what_is_told() {
    let mut fixture = Fixture::new();
    let mut observed = Vec::new();
    let args = Write3Args {
        file: NfsFh3(b"file"),
        offset: 0,
        count: 5,
        stable: StableHow::Unstable,
        data: b"hello",
    };
    let call = call(9, (nfs3::PROGRAM, 3, 7), &written(&args));
    let results = [words(&[0, 0, 0, 5, 0]), vec![0; 8]].concat();
    for (number, bytes) in
        [to_server(1, &record(&call)), to_client(1, &record(&reply(9, &results)))]
            .iter()
            .enumerate()
    {
        fixture.dissector.handle_packet(&ip(number as u64, bytes), &mut |it: &Observed<'_>| {
            observed.push((it.client.ip(), it.server, it.user, it.handle, it.written_bytes));
        });
    }
    let server = (SERVER, 2049).into();
    let expected = (CLIENT, server, User::Uid(7), Some(Handle::of(b"file")), 5);
    assert_eq!(observed, [expected]);
}

#[test]
fn a_segment_may_be_far_larger_than_the_mtu_and_a_record_in_many_segments() {
    let mut fixture = Fixture::new();
    fixture.connect();
    let calls: Vec<u8> = (0..3000).flat_map(|xid| record(&getattr(xid))).collect();
    assert!(calls.len() > 200_000);
    fixture.bytes(&to_server(101, &calls));
    let replies: Vec<u8> = (0..3000).flat_map(|xid| record(&getattr_reply(xid, 0))).collect();
    for (index, piece) in replies.chunks(1448).enumerate() {
        fixture.bytes(&to_client(201 + 1448 * index as u32, piece));
    }
    assert_eq!(fixture.seen.len(), 3000);
    let counts = fixture.dissector.counts();
    assert_eq!((counts.gaps, counts.searches, counts.waiting), (0, 0, 0));
}

#[test]
fn a_lost_segment_is_counted_and_the_next_records_are_found() {
    let mut fixture = Fixture::new();
    fixture.connect();
    let calls: Vec<Vec<u8>> = (0..100).map(|xid| record(&getattr(xid))).collect();
    let length = calls[0].len() as u32;
    for (xid, call) in (0..100_u32).zip(&calls) {
        // Number 10 is lost wholly, and a part of 11 with it.
        let bytes = match xid {
            10 => continue,
            11 => &call[20..],
            _ => &call[..],
        };
        let skipped = call.len() as u32 - bytes.len() as u32;
        fixture.bytes(&to_server(101 + xid * length + skipped, bytes));
    }
    // The server has everything.
    let acknowledged = tcp_bytes((2049, PORT), 201, 101 + 100 * length, ACK, &[]);
    fixture.bytes(&ip_bytes(SERVER, CLIENT, 6, &acknowledged));
    fixture.now_ns += 50_000_000;
    fixture.bytes(&ip_bytes(SERVER, CLIENT, 6, &acknowledged));
    let replies: Vec<u8> = (0..100).flat_map(|xid| record(&getattr_reply(xid, 0))).collect();
    fixture.bytes(&to_client(201, &replies));
    let counts = fixture.dissector.counts();
    assert_eq!((counts.gaps, counts.gap_bytes), (1, u64::from(length) + 20));
    assert_eq!((counts.searches, counts.replies_without_call), (1, 2));
    assert_eq!(fixture.seen.len(), 98);
    assert!(counts.is_lossy());
}

#[test]
fn attaching_in_the_middle_finds_the_next_call() {
    let mut fixture = Fixture::new();
    let stream: Vec<u8> = (0..10).flat_map(|xid| record(&getattr(xid))).collect();
    fixture.bytes(&to_server(u32::MAX - 100, &stream[30..]));
    let replies: Vec<u8> = (0..10).flat_map(|xid| record(&getattr_reply(xid, 0))).collect();
    fixture.bytes(&to_client(7, &replies[10..]));
    // The first call was cut, and the first reply whose xid is awaited is the second.
    assert_eq!(fixture.seen.len(), 9);
}

#[test]
fn a_retransmission_keeps_the_first_calls_time() {
    let mut fixture = Fixture::new();
    fixture.udp(&getattr(5), true);
    fixture.udp(&getattr(5), true);
    fixture.udp(&getattr(5), true);
    fixture.udp(&getattr_reply(5, 70), false);
    fixture.udp(&getattr_reply(5, 70), false);
    let seen = &fixture.seen[0];
    assert_eq!((seen.latency_ns, seen.retransmissions), (Some(3_000_000), 2));
    assert_eq!(seen.status, Status::Failed(70));
    let counts = fixture.dissector.counts();
    assert_eq!((counts.retransmissions, counts.replies_without_call), (2, 1));
    // By TCP, after a reset, from the same port.
    let mut fixture = Fixture::new();
    fixture.connect();
    fixture.bytes(&to_server(101, &record(&getattr(5))));
    fixture.bytes(&ip_bytes(CLIENT, SERVER, 6, &tcp_bytes((PORT, 2049), 101, 0, RST, &[])));
    let syn = tcp_bytes((PORT, 2049), 90_000, 0, SYN, &[]);
    fixture.bytes(&ip_bytes(CLIENT, SERVER, 6, &syn));
    fixture.bytes(&to_server(90_001, &record(&getattr(5))));
    fixture.bytes(&to_client(7, &record(&getattr_reply(5, 0))));
    assert_eq!(fixture.seen[0].retransmissions, 1);
    assert_eq!(fixture.seen[0].latency_ns, Some(4_000_000));
}

#[test]
fn a_call_that_comes_again_after_its_reply_is_a_retransmission() {
    let mut fixture = Fixture::new();
    for xid in [5, 5, 6] {
        fixture.udp(&getattr(xid), true);
        fixture.udp(&getattr_reply(xid, 0), false);
    }
    // The same number for another procedure: a client that was started anew.
    fixture.udp(&call(6, (nfs3::PROGRAM, 3, 19), &written(&NfsFh3(b"file"))), true);
    fixture.udp(&reply(6, &words(&[70, 0])), false);
    let found: Vec<u32> = fixture.seen.iter().map(|seen| seen.retransmissions).collect();
    assert_eq!(found, [0, 1, 0, 0]);
    assert_eq!(fixture.seen[1].latency_ns, Some(1_000_000));
    assert_eq!(fixture.dissector.counts().retransmissions, 1);
}

#[test]
fn a_reply_that_waits_for_a_lost_segment_counts_until_that_comes() {
    let call = record(&getattr(5));
    let reply = record(&getattr_reply(5, 0));
    for has_come in [true, false] {
        let mut fixture = Fixture::new();
        fixture.connect();
        let (first, second) = call.split_at(40);
        // The call's end overtakes its beginning.
        fixture.bytes(&to_server(141, second));
        fixture.bytes(&to_server(101, first));
        let begun_ns = fixture.now_ns;
        fixture.bytes(&to_client(201, &reply[..60]));
        fixture.bytes(&to_client(221 + 60, &reply[80..]));
        let last_ns = fixture.now_ns;
        fixture.now_ns += 200_000_000;
        if has_come {
            fixture.bytes(&to_client(261, &reply[60..80]));
            assert_eq!(fixture.seen[0].latency_ns, Some(fixture.now_ns - begun_ns));
        } else {
            // The client has it: only the capture has not.
            let acknowledged = tcp_bytes(
                (PORT, 2049),
                101 + call.len() as u32,
                201 + reply.len() as u32,
                ACK,
                &[],
            );
            let bytes = ip_bytes(CLIENT, SERVER, 6, &acknowledged);
            fixture.bytes(&bytes);
            fixture.now_ns += 50_000_000;
            fixture.bytes(&bytes);
            assert_eq!(fixture.dissector.counts().gaps, 1);
            assert_eq!(fixture.seen[0].latency_ns, Some(last_ns - begun_ns));
        }
    }
}

#[test]
fn calls_without_a_reply_are_forgotten_and_memory_is_bounded() {
    let mut fixture = Fixture::new();
    fixture.udp(&getattr(5), true);
    fixture.now_ns += REPLY_WAIT_NS;
    fixture.udp(&getattr(6), true);
    assert_eq!(fixture.seen.len(), 1);
    assert_eq!((fixture.seen[0].latency_ns, fixture.seen[0].status), (None, Status::Unknown));
    let counts = fixture.dissector.counts();
    assert_eq!((counts.unanswered, counts.waiting), (1, 1));
    for xid in 0..(super::connection::WAITING_MAX as u32 + 10) {
        fixture.now_ns -= 1_000_000;
        fixture.udp(&getattr(xid), true);
    }
    let counts = fixture.dissector.counts();
    assert_eq!((counts.waiting, counts.not_followed), (super::connection::WAITING_MAX, 10));
}

#[test]
fn what_is_incomplete_and_silent_is_given_up() {
    let mut fixture = Fixture::new();
    fixture.connect();
    fixture.bytes(&to_server(101, &record(&[&getattr(5)[..], &[0; 9000]].concat())[..5000]));
    fixture.bytes(&to_client(500, &[1; 1000]));
    fixture.now_ns += REPLY_WAIT_NS + 2_000_000_000;
    fixture.udp(&getattr(6), true);
    let counts = fixture.dissector.counts();
    assert_eq!((counts.given_up, counts.connections), (1, 2));
    // Nothing is left to give up.
    fixture.now_ns += 2_000_000_000;
    fixture.udp(&getattr(7), true);
    assert_eq!(fixture.dissector.counts().given_up, 1);
}

#[test]
fn calls_that_wait_are_bounded_in_bytes_too() {
    let mut fixture = Fixture::new();
    let mut arguments = compound(202, b"directory");
    let lookup = written(&steadfast_wire::nfs4::Lookup4Args { objname: &[b'n'; 250] });
    for _ in 0..200 {
        arguments.extend(words(&[Op4::Lookup as u32]));
        arguments.extend(&lookup);
    }
    let mut xid = 0;
    while fixture.dissector.counts().not_followed == 0 {
        fixture.udp(&call(xid, (nfs3::PROGRAM, 4, 1), &arguments), true);
        fixture.now_ns -= 1_000_000;
        xid += 1;
        assert!(xid < 10_000, "no bound");
    }
    let counts = fixture.dissector.counts();
    assert!((250 << 20..=256 << 20).contains(&counts.waiting_bytes), "{counts:?}");
    assert_eq!(counts.waiting, u64::from(xid - 1));
    fixture.udp(&reply(0, &words(&[0, 0, 0])), false);
    assert!(fixture.dissector.counts().waiting_bytes < counts.waiting_bytes);
    fixture.now_ns += REPLY_WAIT_NS + 2_000_000_000;
    fixture.udp(&reply(0, &[]), false);
    let counts = fixture.dissector.counts();
    assert_eq!((counts.waiting, counts.waiting_bytes), (0, 0));
}

#[test]
fn datagrams_in_fragments_are_put_together() {
    let mut fixture = Fixture::new();
    let args = Write3Args {
        file: NfsFh3(b"file"),
        offset: 0,
        count: 8192,
        stable: StableHow::Unstable,
        data: &[7; 8192],
    };
    let message = call(5, (nfs3::PROGRAM, 3, 7), &written(&args));
    let datagram = udp_bytes((PORT, 2049), &message);
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let pieces: Vec<&[u8]> = datagram.chunks(1480).collect();
    for index in (0..pieces.len()).rev() {
        let has_more = index + 1 < pieces.len();
        let piece = pieces[index];
        fixture.bytes(&ipv4_fragment(source, destination, 17, 9, index * 1480, has_more, piece));
    }
    fixture.udp(&reply(5, &words(&[0, 0, 0, 8192, 0, 0, 0])), false);
    assert_eq!(fixture.names(), ["nfs3 write"]);
}

#[test]
fn datagrams_in_fragments_of_ipv6_are_put_together() {
    let args = Write3Args {
        file: NfsFh3(b"file"),
        offset: 0,
        count: 4096,
        stable: StableHow::Unstable,
        data: &[7; 4096],
    };
    let datagram = udp_bytes((PORT, 2049), &call(5, (nfs3::PROGRAM, 3, 7), &written(&args)));
    let address = |last: u16| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
    let (client, server) = (address(1), address(2));
    // Alone, and behind options for the destination.
    let options = [17, 0, 1, 4, 0, 0, 0, 0];
    for (protocol, whole) in [(17, datagram.clone()), (60, [&options[..], &datagram].concat())] {
        let mut fixture = Fixture::new();
        let pieces: Vec<&[u8]> = whole.chunks(1448).collect();
        for (index, piece) in pieces.iter().enumerate().rev() {
            let has_more = u16::from(index + 1 < pieces.len());
            let place = (index * 1448) as u16 | has_more;
            let header = [&[protocol, 0][..], &place.to_be_bytes(), &[0, 0, 0, 9]].concat();
            fixture.bytes(&ipv6_bytes(client, server, 44, &[&header[..], piece].concat()));
        }
        let reply = udp_bytes((2049, PORT), &reply(5, &words(&[0, 0, 0, 4096, 0, 0, 0])));
        fixture.bytes(&ip_bytes(server.into(), client.into(), 17, &reply));
        assert_eq!(fixture.names(), ["nfs3 write"], "{protocol}");
    }
}

#[test]
fn fragments_that_a_capture_has_cut_or_seen_twice_are_no_loss() {
    let args = Write3Args {
        file: NfsFh3(b"file"),
        offset: 0,
        count: 3000,
        stable: StableHow::Unstable,
        data: &[7; 3000],
    };
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let message = call(5, (nfs3::PROGRAM, 3, 7), &written(&args));
    let datagram = udp_bytes((PORT, 2049), &message);
    let pieces: Vec<&[u8]> = datagram.chunks(1480).collect();
    for (kept, interfaces) in [(200, &[1][..]), (9999, &[1, 2])] {
        let mut fixture = Fixture::new();
        for (index, piece) in pieces.iter().enumerate() {
            let has_more = index + 1 < pieces.len();
            let bytes = ipv4_fragment(source, destination, 17, 9, index * 1480, has_more, piece);
            for interface in interfaces {
                let part = &bytes[..bytes.len().min(kept)];
                let wire_bytes = bytes.len();
                let packet = ip(fixture.now_ns, part);
                fixture.packet(&Packet { interface: *interface, wire_bytes, ..packet });
            }
        }
        let reply = udp_bytes((2049, PORT), &reply(5, &words(&[0, 0, 0, 3000, 0, 0, 0])));
        let reply = ip_bytes(SERVER, CLIENT, 17, &reply);
        fixture.packet(&Packet { interface: 1, ..ip(fixture.now_ns, &reply) });
        assert_eq!((fixture.names(), fixture.seen[0].retransmissions), (vec!["nfs3 write"], 0));
        // What would never become complete is forgotten by now.
        fixture.now_ns += 40_000_000_000;
        fixture.udp(&getattr(7), true);
        assert_eq!(fixture.dissector.counts().incomplete_datagrams, 0, "{kept}");
    }
}

#[test]
fn packets_that_a_capture_has_cut_still_tell_calls() {
    let mut fixture = Fixture::new();
    fixture.connect();
    let args = Write3Args {
        file: NfsFh3(b"file"),
        offset: 0,
        count: 4000,
        stable: StableHow::Unstable,
        data: &[7; 4000],
    };
    let stream = record(&call(5, (nfs3::PROGRAM, 3, 7), &written(&args)));
    let mut sequence = 101;
    for piece in stream.chunks(1000) {
        let bytes = to_server(sequence, piece);
        fixture.now_ns += 1000;
        let kept = bytes.len().min(200);
        let packet = Packet { wire_bytes: bytes.len(), ..ip(fixture.now_ns, &bytes[..kept]) };
        fixture.packet(&packet);
        sequence += piece.len() as u32;
    }
    fixture.bytes(&to_server(sequence, &record(&getattr(6))));
    fixture.bytes(&to_client(201, &record(&reply(5, &words(&[0, 0, 0, 4000, 0, 0, 0])))));
    fixture.bytes(&to_client(201 + 24 + 4 + 28, &record(&getattr_reply(6, 0))));
    assert_eq!(fixture.names(), ["nfs3 write", "nfs3 getattr"]);
    assert_eq!(fixture.dissector.counts().searches, 0);
}

#[test]
fn what_is_seen_at_two_interfaces_is_counted_once() {
    let mut fixture = Fixture::new();
    for (bytes, is_call) in [(getattr(5), true), (getattr_reply(5, 0), false)] {
        for interface in [3, 4] {
            let bytes = if is_call {
                ip_bytes(CLIENT, SERVER, 17, &udp_bytes((PORT, 2049), &bytes))
            } else {
                ip_bytes(SERVER, CLIENT, 17, &udp_bytes((2049, PORT), &bytes))
            };
            fixture.now_ns += 1000;
            fixture.packet(&Packet { interface, ..ip(fixture.now_ns, &bytes) });
        }
    }
    assert_eq!((fixture.seen.len(), fixture.seen[0].retransmissions), (1, 0));
    assert_eq!(fixture.dissector.counts().copies, 2);
    // Traffic that moves to another interface is followed after a while.
    fixture.now_ns += 2_000_000_000;
    let bytes = ip_bytes(CLIENT, SERVER, 17, &udp_bytes((PORT, 2049), &getattr(6)));
    fixture.packet(&Packet { interface: 9, ..ip(fixture.now_ns, &bytes) });
    assert_eq!(fixture.dissector.counts().waiting, 1);
}

#[test]
fn both_sights_of_loopback_are_one() {
    let mut fixture = Fixture::new();
    let inner = ip_bytes(CLIENT, SERVER, 17, &udp_bytes((PORT, 2049), &getattr(5)));
    for kind in [4, 0] {
        let head = [&[8, 0, 0, 0, 0, 0, 0, 1][..], &772_u16.to_be_bytes(), &[kind, 6], &[0; 8]];
        let bytes = [&head.concat()[..], &inner].concat();
        let packet = Packet { link: LinkType::LinuxCooked2, ..ip(5, &bytes) };
        fixture.packet(&packet);
    }
    let counts = fixture.dissector.counts();
    assert_eq!((counts.copies, counts.waiting, counts.retransmissions), (1, 1, 0));
}

fn gss(service: u32, arguments: &[u8]) -> Vec<u8> {
    let body = words(&[1, 0, 1, service, 4, 99]);
    let cred = OpaqueAuth { flavor: RPCSEC_GSS, body: &body };
    call_by(5, (nfs3::PROGRAM, 3, 1), cred, arguments)
}

fn envelope(inner: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    w.opaque(&[&1_u32.to_be_bytes()[..], inner].concat());
    w.opaque(b"checksum");
    bytes
}

#[test]
fn kerberos_is_read_as_far_as_it_can_be() {
    let mut fixture = Fixture::new();
    let handle = written(&NfsFh3(b"handle"));
    let name = "nfs3 getattr".to_owned();
    let stale = words(&[70]);
    let found = fixture.exchange(&gss(1, &handle), &reply(5, &stale));
    assert_eq!(found, [(name.clone(), Status::Failed(70))]);
    let found = fixture.exchange(&gss(2, &envelope(&handle)), &reply(5, &envelope(&stale)));
    assert_eq!(found, [(name.clone(), Status::Failed(70))]);
    assert_eq!(fixture.dissector.counts().encrypted_calls, 0);
    let found = fixture.exchange(&gss(3, &envelope(&[7; 40])), &reply(5, &envelope(&[8; 40])));
    assert_eq!(found, [(name, Status::Unknown)]);
    assert_eq!(fixture.dissector.counts().encrypted_calls, 1);
    // What makes a context is not encrypted, whatever the service.
    let body = words(&[1, 1, 0, 3, 0]);
    let cred = OpaqueAuth { flavor: RPCSEC_GSS, body: &body };
    let found = fixture.exchange(&call_by(6, (nfs3::PROGRAM, 3, 0), cred, &[]), &reply(6, &[]));
    assert_eq!(found, [("nfs3 null".to_owned(), Status::Ok)]);
    assert_eq!(fixture.dissector.counts().encrypted_calls, 1);
}

#[test]
fn tls_is_told_and_not_taken_for_calls() {
    let mut fixture = Fixture::new();
    fixture.connect();
    let cred = OpaqueAuth { flavor: 7, body: &[] };
    let null = record(&call_by(5, (nfs3::PROGRAM, 4, 0), cred, &[]));
    fixture.bytes(&to_server(101, &null));
    fixture.bytes(&to_client(201, &record(&reply(5, &[]))));
    let mut sequence = 101 + null.len() as u32;
    for _ in 0..5 {
        let bytes = [&[0x16, 3, 1, 0, 100][..], &[9; 100]].concat();
        fixture.bytes(&to_server(sequence, &bytes));
        sequence += bytes.len() as u32;
    }
    let counts = fixture.dissector.counts();
    assert_eq!((counts.tls_connections, counts.tls_packets, counts.messages), (1, 4, 2));
    // Met in the middle.
    let mut fixture = Fixture::new();
    for index in 0..5_u32 {
        let bytes = [&[0x17, 3, 3, 0, 100][..], &[9; 100]].concat();
        fixture.bytes(&to_server(1 + index * bytes.len() as u32, &bytes));
    }
    assert_eq!(fixture.dissector.counts().tls_connections, 1);
}

/// Program, version, procedure, arguments, results, and what is observed.
type Exchange = (u32, u32, u32, Vec<u8>, Vec<u8>, &'static str, Status);

#[test]
fn all_programs_are_read() {
    let mut fixture = Fixture::new();
    let handle3 = written(&NfsFh3(b"handle"));
    let handle2 = [3; nfs2::HANDLE_BYTES];
    let lock = nlm::v4::TestArgs {
        cookie: b"c",
        exclusive: true,
        lock: nlm::v4::Lock {
            caller_name: b"host",
            fh: b"handle",
            oh: b"o",
            svid: 1,
            offset: 0,
            length: 0,
        },
    };
    let blocked = words(&[4, 99, 3]);
    let denied = words(&[4, 99, 1]);
    let rows: Vec<Exchange> = vec![
        (nfs3::PROGRAM, 2, 1, handle2.to_vec(), words(&[70]), "nfs2 getattr", Status::Failed(70)),
        (nfsacl::PROGRAM, 3, 1, handle3.clone(), words(&[0]), "nfsacl3 getacl", Status::Ok),
        (recovery::PROGRAM, 1, 2, handle3, words(&[5]), "recovery1 sync", Status::Failed(5)),
        (nlm::PROGRAM, 4, 1, written(&lock), denied, "nlm4 test", Status::Failed(1)),
        (nlm::PROGRAM, 4, 1, written(&lock), blocked, "nlm4 test", Status::Ok),
        (100_024, 1, 6, words(&[4, 99, 1]), vec![], "nsm1 notify", Status::Ok),
        (mount::PROGRAM, 3, 5, vec![], words(&[0]), "mount3 export", Status::Ok),
    ];
    for (program, version, procedure, arguments, results, name, status) in rows {
        let call = call(5, (program, version, procedure), &arguments);
        let found = fixture.exchange(&call, &reply(5, &results));
        assert_eq!(found, [(name.to_owned(), status)]);
    }
    // RPC itself refuses.
    let mut refusal = Vec::new();
    steadfast_rpc::prog_unavail(&mut Writer::new(&mut refusal), 5);
    let found = fixture.exchange(&getattr(5), &refusal);
    assert_eq!(found, [("nfs3 getattr".to_owned(), Status::Refused)]);
}

#[test]
fn names_of_shares_and_files_are_learnt() {
    let mut fixture = Fixture::new();
    let root = [&[1, 0, 6, 0][..], &[7; 16]].concat();
    let granted = Mounted3 { fhandle: NfsFh3(&root), auth_flavors: [1].into_iter().collect() };
    fixture.exchange(
        &call(5, (mount::PROGRAM, 3, 1), &written(&DirPath { path: b"/srv/data" })),
        &reply(5, &[words(&[0]), written(&granted)].concat()),
    );
    let file = [&[1, 0, 6, 1][..], &[7; 16], &[9; 8]].concat();
    let what = DirOpArgs3 { dir: NfsFh3(&root), name: b"a file" };
    fixture.exchange(
        &call(6, (nfs3::PROGRAM, 3, 3), &written(&what)),
        &reply(6, &[words(&[0]), written(&NfsFh3(&file))].concat()),
    );
    let names = fixture.dissector.names();
    assert_eq!(names.share(Handle::of(&file).share), Some("/srv/data"));
    assert_eq!(names.file(Handle::of(&file).file), Some("a file"));
}

#[test]
fn ports_are_learnt_from_rpcbind_and_from_clients() {
    let mut fixture = Fixture::new();
    let portmap = |message: &[u8], is_call: bool| {
        if is_call {
            ip_bytes(CLIENT, SERVER, 17, &udp_bytes((PORT, 111), message))
        } else {
            ip_bytes(SERVER, CLIENT, 17, &udp_bytes((111, PORT), message))
        }
    };
    for (program, port) in [(mount::PROGRAM, 4001), (100_068, 4002)] {
        let asked = Mapping { prog: program, vers: 3, prot: 17, port: 0 };
        let call = call(5, (rpcbind::PROGRAM, 2, 3), &written(&asked));
        fixture.bytes(&portmap(&call, true));
        fixture.bytes(&portmap(&reply(5, &words(&[port])), false));
    }
    // NFSv4.0: where the client wants its callbacks.
    let setclientid = SetClientId4Args {
        verifier: [1; 8],
        id: b"client",
        callback: CallbackClient4 { program: 1 << 30, netid: b"tcp", address: b"10.0.0.1.20.5" },
        callback_ident: 1,
    };
    let mut arguments = written(&CompoundHead4 { tag: b"", minorversion: 0, operations: 1 });
    arguments.extend(words(&[Op4::SetClientId as u32]));
    arguments.extend(written(&setclientid));
    fixture.udp(&call(7, (nfs3::PROGRAM, 4, 1), &arguments), true);
    let ports: Vec<u16> = fixture.dissector.ports().collect();
    assert_eq!(ports, [111, 2049, 4001, 20 * 256 + 5]);
}

#[test]
fn callbacks_have_client_and_server_as_they_are() {
    let mut dissector = Dissector::new([2049]);
    let head =
        CallbackCompoundHead4 { tag: b"", minorversion: 1, callback_ident: 0, operations: 1 };
    let recall = CallbackRecall4Args {
        stateid: StateId4 { seqid: 1, other: [1; 12] },
        truncate: false,
        fh: b"file",
    };
    let arguments = [written(&head), words(&[4]), written(&recall)].concat();
    let call = record(&call(5, (0x4000_0000, 1, 1), &arguments));
    let results = words(&[0, 0, 1, 4, 0]);
    let mut seen = Vec::new();
    for bytes in [to_client(1, &call), to_server(1, &record(&reply(5, &results)))] {
        dissector.handle_packet(&ip(1, &bytes), &mut |it: &Observed<'_>| {
            seen.push((it.key.to_string(), it.client.ip(), it.server.ip(), it.handle));
        });
    }
    let file = Some(Handle::of(b"file"));
    assert_eq!(
        seen,
        [
            ("nfs4.1 cb_recall".to_owned(), CLIENT, SERVER, file),
            ("nfs4.1 cb_compound".to_owned(), CLIENT, SERVER, None),
        ]
    );
}

#[test]
fn other_ports_are_left_alone() {
    let mut fixture = Fixture::new();
    let bytes = ip_bytes(CLIENT, SERVER, 17, &udp_bytes((PORT, 2050), &getattr(5)));
    fixture.bytes(&bytes);
    let counts = fixture.dissector.counts();
    assert_eq!((counts.other_packets, counts.messages, counts.connections), (1, 0, 0));
}

#[test]
fn keys_are_ordered_by_program() {
    let key = OperationKey::procedure(1, 1, 1);
    assert!(key < OperationKey::procedure(1, 1, 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Damaged packets of a conversation are survived.
    #[test]
    fn damaged_packets_are_survived(
        damage in prop::collection::vec((any::<u16>(), any::<u8>(), 0_u8..6, any::<u16>()), 0..40),
    ) {
        let mut fixture = Fixture::new();
        let conversation = [
            to_server(1, &record(&getattr(5))),
            to_client(1, &record(&getattr_reply(5, 0))),
            to_server(77, &record(&call(6, (nfs3::PROGRAM, 4, 1), &compound(2, b"handle")))),
            ip_bytes(CLIENT, SERVER, 17, &udp_bytes((PORT, 2049), &getattr(5))),
            to_client(500, &record(&call(5, (1 << 30, 1, 1), &[0; 40]))),
            to_server(0, &[0; 60]),
        ];
        for (place, value, which, length) in damage {
            let mut bytes = conversation[usize::from(which)].clone();
            let place = usize::from(place) % bytes.len();
            bytes[place] = value;
            let kept = usize::from(length) % (bytes.len() + 1);
            fixture.bytes(&bytes[..kept.max(1)]);
            fixture.bytes(&bytes);
        }
    }
}
