//! Unit and property rings: packets are read as the messages that they were made of.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::io::Cursor;

use etherparse::{SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::*;
use crate::capture::file::{PacketFile, PacketWriter};
use steadfast_sys::packet_ring::RingStatistics;

fn message(is_v6: bool, is_sent: bool, bytes: &[u8], length: usize) -> Message<'_> {
    let (client, server): (IpAddr, IpAddr) = if is_v6 {
        ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
    } else {
        ([192, 0, 2, 1].into(), [192, 0, 2, 2].into())
    };
    let (client, server) = (SocketAddr::new(client, 700), SocketAddr::new(server, 2049));
    Message { client, server, is_sent, length, executed: None, bytes }
}

/// The frames of a message, each with its true length.
fn frames(
    packets: &mut Packets,
    message: &Message<'_>,
    is_datagram: bool,
) -> Vec<(Vec<u8>, usize)> {
    let mut frames = Vec::new();
    let write = |bytes: &[u8], length, _| {
        frames.push((bytes.to_vec(), length));
        Ok(())
    };
    packets.of(message, is_datagram, write).unwrap();
    frames
}

#[test]
fn segments_follow_each_other() {
    let mut packets = Packets::default();
    let long = vec![9; 150_000];
    for is_v6 in [false, true] {
        let mut next = 1;
        for round in 0..3 {
            let frames = frames(&mut packets, &message(is_v6, false, &long, long.len()), false);
            assert_eq!(frames.len(), 3);
            for (index, (bytes, length)) in frames.iter().enumerate() {
                assert_eq!(bytes.len(), *length);
                let sliced = SlicedPacket::from_ethernet(bytes).unwrap();
                let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("no TCP") };
                assert_eq!(tcp.sequence_number(), next);
                assert_eq!(tcp.acknowledgment_number(), 1 + round * 104);
                assert_eq!((tcp.ack(), tcp.psh()), (true, index == 2));
                next = next.wrapping_add(tcp.payload().len() as u32);
            }
            assert_eq!(next - 1, (round + 1) * 150_004);
            let reply = self::frames(&mut packets, &message(is_v6, true, &[1; 100], 100), false);
            let sliced = SlicedPacket::from_ethernet(&reply[0].0).unwrap();
            let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("no TCP") };
            let ports = (tcp.source_port(), tcp.destination_port());
            assert_eq!((ports, tcp.acknowledgment_number()), ((2049, 700), next));
        }
    }
}

#[test]
fn sequence_numbers_wrap_around() {
    let mut packets = Packets::default();
    let last = message(false, false, &[], (1 << 20) - 4);
    let mut sequence = 0;
    for _ in 0..4097 {
        frames(&mut packets, &last, false);
        sequence += 1 << 20;
    }
    let next = frames(&mut packets, &message(false, false, &[7], 1), false);
    let sliced = SlicedPacket::from_ethernet(&next[0].0).unwrap();
    let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("no TCP") };
    assert_eq!(tcp.sequence_number(), (1_u64 + sequence) as u32);
}

/// Sums of IP and of TCP or UDP as another implementation makes them.
fn checksums(bytes: &[u8]) {
    let sliced = SlicedPacket::from_ethernet(bytes).unwrap();
    let transport = sliced.transport.unwrap();
    match sliced.net.unwrap() {
        etherparse::NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            match transport {
                TransportSlice::Tcp(tcp) => {
                    let own = tcp.to_header();
                    let sum = own.calc_checksum_ipv4(&header, tcp.payload()).unwrap();
                    assert_eq!(own.checksum, sum);
                }
                TransportSlice::Udp(udp) => {
                    let own = udp.to_header();
                    let sum = own.calc_checksum_ipv4(&header, udp.payload()).unwrap();
                    assert_eq!(own.checksum, sum);
                }
                other => panic!("{other:?}"),
            }
        }
        etherparse::NetSlice::Ipv6(ip) => {
            let header = ip.header().to_header();
            match transport {
                TransportSlice::Tcp(tcp) => {
                    let own = tcp.to_header();
                    let sum = own.calc_checksum_ipv6(&header, tcp.payload()).unwrap();
                    assert_eq!(own.checksum, sum);
                }
                TransportSlice::Udp(udp) => {
                    let own = udp.to_header();
                    let sum = own.calc_checksum_ipv6(&header, udp.payload()).unwrap();
                    assert_eq!(own.checksum, sum);
                }
                other => panic!("{other:?}"),
            }
        }
        etherparse::NetSlice::Arp(arp) => panic!("{arp:?}"),
    }
}

#[test]
fn connections_that_are_used_keep_their_numbers() {
    let mut packets = Packets::default();
    let bytes = [1; 6];
    for port in 0..=u16::MAX {
        let mut other = message(false, false, &bytes, 6);
        other.client.set_port(port);
        packets.of(&other, false, |_, _, _| Ok(())).unwrap();
    }
    let mut used = message(false, false, &bytes, 6);
    used.client.set_port(65_000);
    packets.of(&used, false, |_, _, _| Ok(())).unwrap();
    let another = message(true, false, &bytes, 6);
    packets.of(&another, false, |_, _, _| Ok(())).unwrap();
    assert!(packets.flows.len() <= FLOWS_MAX / 2 + 1);
    assert_eq!(packets.flows[&(used.client, used.server)].next, [21, 1]);
}

#[test]
fn a_message_is_decoded_where_what_is_known_of_it_ends() {
    let bytes = vec![1; SEGMENT_BYTES + 10];
    for (kept, wanted) in [(bytes.len(), [false, true]), (1000, [true, true])] {
        let message = message(false, false, &bytes[..kept], bytes.len());
        let mut ends = Vec::new();
        let write = |_: &[u8], _, has_end| {
            ends.push(has_end);
            Ok(())
        };
        Packets::default().of(&message, false, write).unwrap();
        assert_eq!(ends, wanted, "{kept}");
    }
}

/// A message: whether it is of IPv6, sent, and a datagram, its bytes, and how many of them were not kept.
fn any_message() -> impl Strategy<Value = (bool, bool, bool, Vec<u8>, usize)> {
    let size = prop_oneof![4 => 1..600_usize, 1 => 1..200_000_usize];
    let bytes = (size, any::<u8>()).prop_map(|(size, first)| {
        (0..size).map(|at| (at as u8).wrapping_mul(31).wrapping_add(first)).collect()
    });
    let missing = prop_oneof![2 => Just(0), 1 => 0..100_000_usize];
    (any::<bool>(), any::<bool>(), any::<bool>(), bytes, missing)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Our own reader of pcapng takes the file back to the same messages.
    #[test]
    fn files_are_read_as_the_messages_that_they_are_of(
        messages in proptest::collection::vec(any_message(), 0..12),
    ) {
        let mut packets = Packets::default();
        let mut writer = PacketWriter::of_ethernet(Vec::new(), "a test", "nothing").unwrap();
        let mut bytes_at_most = 0;
        let begin = writer.file_bytes();
        for (time, (is_v6, is_sent, is_datagram, bytes, missing)) in messages.iter().enumerate() {
            let is_datagram = *is_datagram && bytes.len() + missing < 60_000;
            let message = message(*is_v6, *is_sent, bytes, bytes.len() + missing);
            bytes_at_most += file_bytes(&message);
            packets
                .of(&message, is_datagram, |bytes, length, _| {
                    writer.write_frame(time as u64, bytes, length, Some("a comment"))
                })
                .unwrap();
        }
        prop_assert!(writer.file_bytes() - begin <= bytes_at_most);
        let counted = RingStatistics { received: 9, dropped: 2 };
        let file = writer.finish(99, counted).unwrap();
        let mut file = PacketFile::new(Cursor::new(file)).unwrap();
        for (time, (is_v6, is_sent, is_datagram, bytes, missing)) in messages.iter().enumerate() {
            let length = bytes.len() + missing;
            let is_datagram = *is_datagram && length < 60_000;
            let (mut carried, mut announced) = (Vec::<u8>::new(), 0);
            let whole = if is_datagram { length } else { length + 4 };
            while announced < whole {
                let packet = file.next_packet().unwrap().unwrap();
                prop_assert_eq!(packet.time_ns, time as u64);
                let unknown = packet.wire_bytes - packet.bytes.len();
                // Where bytes are missing the lengths in the packet are those of the wire.
                let mut wire = packet.bytes.to_vec();
                wire.resize(packet.wire_bytes, 0);
                checksums(&wire);
                let sliced = SlicedPacket::from_ethernet(&wire).unwrap();
                let is_of_v6 = matches!(sliced.net, Some(etherparse::NetSlice::Ipv6(_)));
                prop_assert_eq!(is_of_v6, *is_v6);
                let (ports, payload) = match sliced.transport.unwrap() {
                    TransportSlice::Tcp(tcp) if !is_datagram => {
                        ((tcp.source_port(), tcp.destination_port()), tcp.payload())
                    }
                    TransportSlice::Udp(udp) if is_datagram => {
                        ((udp.source_port(), udp.destination_port()), udp.payload())
                    }
                    other => panic!("{other:?}"),
                };
                prop_assert_eq!(ports, if *is_sent { (2049, 700) } else { (700, 2049) });
                announced += payload.len();
                carried.extend(&payload[..payload.len() - unknown]);
            }
            let mark = (LAST_FRAGMENT | length as u32).to_be_bytes();
            let mark = if is_datagram { &[][..] } else { &mark };
            prop_assert_eq!(carried, [mark, &bytes[..]].concat());
        }
        prop_assert!(file.next_packet().unwrap().is_none());
        prop_assert_eq!(file.dropped(), Some(2));
    }
}
