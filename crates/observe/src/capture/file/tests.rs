//! Unit and property rings: files of either format, byte order and resolution.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use proptest::prelude::*;
use steadfast_sys::packet_ring::{RingPacket, RingStatistics};

use super::{FileError, PacketFile, PacketWriter};
use crate::capture::LinkType;

/// Numbers in one byte order.
#[derive(Clone, Copy)]
struct In(bool);

impl In {
    fn word(self, number: u32) -> [u8; 4] {
        if self.0 { number.to_be_bytes() } else { number.to_le_bytes() }
    }

    fn half(self, number: u16) -> [u8; 2] {
        if self.0 { number.to_be_bytes() } else { number.to_le_bytes() }
    }

    fn words(self, numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| self.word(*number)).collect()
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let length = self.word(12 + body.len() as u32);
        [&self.word(kind)[..], &length, body, &length].concat()
    }
}

type Seen = (u64, LinkType, Vec<u8>, usize, u32);

fn all(bytes: &[u8]) -> Result<(Vec<Seen>, Option<u64>, bool), FileError> {
    let mut file = PacketFile::new(bytes)?;
    let mut seen = Vec::new();
    while let Some(packet) = file.next_packet()? {
        let bytes = packet.bytes.to_vec();
        seen.push((packet.time_ns, packet.link, bytes, packet.wire_bytes, packet.interface));
    }
    Ok((seen, file.dropped(), file.is_cut()))
}

#[test]
fn pcap_of_both_orders_and_resolutions() {
    for order in [In(true), In(false)] {
        for (magic, fraction, ns) in [(0xa1b2_c3d4, 7, 7000), (0xa1b2_3c4d, 7, 7)] {
            let mut bytes = order.words(&[magic]);
            bytes.extend([order.half(2), order.half(4)].concat());
            bytes.extend(order.words(&[0, 0, 262_144, 1]));
            bytes.extend(order.words(&[5, fraction, 3, 60]));
            bytes.extend(b"abc");
            bytes.extend(order.words(&[6, 0, 0, 0]));
            let (seen, dropped, is_cut) = all(&bytes).unwrap();
            let expected = [
                (5_000_000_000 + ns, LinkType::Ethernet, b"abc".to_vec(), 60, 0),
                (6_000_000_000, LinkType::Ethernet, vec![], 0, 0),
            ];
            assert_eq!((&seen[..], dropped, is_cut), (&expected[..], None, false));
            let (seen, _, is_cut) = all(&bytes[..bytes.len() - 17]).unwrap();
            assert_eq!((seen.len(), is_cut), (0, true));
        }
    }
}

#[test]
fn pcapng_of_both_orders_with_all_kinds_of_packets() {
    for order in [In(true), In(false)] {
        let section = [order.words(&[0x1a2b_3c4d]), [order.half(1), order.half(0)].concat()];
        let section = [section.concat(), vec![0xff; 8]].concat();
        let interface = |link: u16, options: &[u8]| {
            let head = [&order.half(link)[..], &[0, 0], &order.word(1000), options].concat();
            order.block(1, &head)
        };
        let resolution =
            |value: u8| [&order.half(9)[..], &order.half(1), &[value, 0, 0, 0]].concat();
        let offset = {
            let eight = if order.0 { 100_u64.to_be_bytes() } else { 100_u64.to_le_bytes() };
            [&order.half(14)[..], &order.half(8), &eight, &[0; 4]].concat()
        };
        let packet = |index: u32| {
            let head = order.words(&[index, 1, 0, 3, 77]);
            order.block(6, &[&head[..], b"abc\0"].concat())
        };
        let count = |number: u64| if order.0 { number.to_be_bytes() } else { number.to_le_bytes() };
        let statistics = [
            &order.words(&[1, 0, 0])[..],
            &order.half(5),
            &order.half(8),
            &count(40),
            &order.half(7),
            &order.half(8),
            &count(2),
        ];
        let bytes = [
            order.block(0x0a0d_0d0a, &section),
            interface(1, &[]),
            interface(276, &resolution(9)),
            interface(101, &[resolution(0x80 | 32), offset].concat()),
            interface(9999, &[]),
            packet(0),
            packet(1),
            packet(2),
            packet(3),
            // Of a kind that is not known.
            order.block(0x0bad, &[1, 2, 3, 4]),
            order.block(3, &[&order.word(2)[..], b"xy\0\0"].concat()),
            order.block(5, &statistics.concat()),
        ]
        .concat();
        let (seen, dropped, _) = all(&bytes).unwrap();
        let high = 1_u64 << 32;
        let abc = || b"abc".to_vec();
        let expected = [
            (high * 1000, LinkType::Ethernet, abc(), 77, 1),
            (high, LinkType::LinuxCooked2, abc(), 77, 2),
            (101_000_000_000, LinkType::Ip, abc(), 77, 3),
            (0, LinkType::Ethernet, b"xy".to_vec(), 2, 1),
        ];
        assert_eq!((&seen[..], dropped), (&expected[..], Some(42)));
        let twice = [&bytes[..], &bytes].concat();
        let (seen, dropped, _) = all(&twice).unwrap();
        assert_eq!((seen.len(), dropped), (8, Some(84)), "another section");
    }
}

#[test]
fn what_is_written_is_read() {
    let packet = RingPacket {
        time_ns: 1_700_000_000_123_456_789,
        bytes: &[0x45, 1, 2],
        wire_bytes: 9000,
        protocol: 0x0800,
        interface: 7,
        hardware_type: 772,
        packet_type: 0,
        address: ([1, 2, 3, 4, 5, 6, 0, 0], 6),
    };
    let mut writer = PacketWriter::new(Vec::new()).unwrap();
    writer.write(&packet).unwrap();
    writer.write(&RingPacket { bytes: &[0x45; 4], ..packet }).unwrap();
    let counted = RingStatistics { received: 5, dropped: 3 };
    let bytes = writer.finish(packet.time_ns, counted).unwrap();
    let (seen, dropped, is_cut) = all(&bytes).unwrap();
    assert_eq!((seen.len(), dropped, is_cut), (2, Some(3), false));
    let (time_ns, link, bytes, wire_bytes, _) = &seen[0];
    assert_eq!((*time_ns, *link, *wire_bytes), (packet.time_ns, LinkType::LinuxCooked2, 9020));
    let head = [8, 0, 0, 0, 0, 0, 0, 7, 3, 4, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0];
    assert_eq!(bytes[..], [&head[..], &[0x45, 1, 2]].concat());
}

#[test]
fn what_is_no_such_file_is_refused() {
    assert!(matches!(all(b""), Err(FileError::OtherFormat)));
    assert!(matches!(all(b"\x1f\x8b\x08\x00 compressed, and so on"), Err(FileError::OtherFormat)));
    let mut bytes = In(true).words(&[0xa1b2_c3d4, 0x0002_0004, 0, 0, 9, 147]);
    assert!(matches!(all(&bytes), Err(FileError::OtherLink(147))));
    bytes[23] = 1;
    bytes.extend(In(true).words(&[0, 0, 0x7fff_ffff, 9]));
    assert!(matches!(all(&bytes), Err(FileError::Damaged { at: 40 })));
}

proptest! {
    #[test]
    fn damaged_files_are_survived(
        damage in prop::collection::vec((any::<u16>(), any::<u8>()), 0..6),
        cut: u16,
    ) {
        let packet = RingPacket {
            time_ns: 5,
            bytes: &[0x45; 30],
            wire_bytes: 30,
            protocol: 0x0800,
            interface: 7,
            hardware_type: 1,
            packet_type: 0,
            address: ([0; 8], 6),
        };
        let mut writer = PacketWriter::new(Vec::new()).unwrap();
        for _ in 0..3 {
            writer.write(&packet).unwrap();
        }
        let mut bytes = writer.finish(9, RingStatistics::default()).unwrap();
        for (place, value) in damage {
            let place = usize::from(place) % bytes.len();
            bytes[place] = value;
        }
        bytes.truncate(bytes.len() - usize::from(cut) % 40);
        if let Ok((seen, ..)) = all(&bytes) {
            prop_assert!(seen.len() <= 3);
        }
    }
}
