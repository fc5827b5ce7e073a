//! Unit ring: headers of links and of IP.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Fragment, IpPayload, LinkType, Network, Packet, network};
use crate::capture::testing::{CLIENT, SERVER, ip_bytes, ipv4_fragment};

fn packet(link: LinkType, bytes: &[u8]) -> Packet<'_> {
    Packet { time_ns: 0, link, bytes, wire_bytes: bytes.len(), interface: 5 }
}

fn whole<'a>(found: &Network<'a>) -> IpPayload<'a> {
    match found {
        Network::Whole(payload) => *payload,
        other => panic!("{other:?}"),
    }
}

fn with(head: &[u8], rest: &[u8]) -> Vec<u8> {
    [head, rest].concat()
}

fn cooked2(hardware: u8, kind: u8) -> Vec<u8> {
    let mut head = vec![8, 0, 0, 0, 0, 0, 0, 9, hardware >> 6, hardware, kind];
    head[8..10].copy_from_slice(&(u16::from(hardware) * 4).to_be_bytes());
    head.extend([6, 0, 0, 0, 0, 0, 0, 0, 0]);
    head
}

#[test]
fn every_link_header_is_read() {
    let inner = ip_bytes(CLIENT, SERVER, 17, b"payload");
    let addresses = [2; 12];
    let rows = [
        (LinkType::Ip, Vec::new(), 5),
        (LinkType::Loopback, vec![2, 0, 0, 0], 5),
        (LinkType::Ethernet, with(&addresses, &[8, 0]), 5),
        (LinkType::Ethernet, with(&addresses, &[0x81, 0, 0, 7, 8, 0]), 5),
        (LinkType::Ethernet, with(&addresses, &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9, 8, 0]), 5),
        (LinkType::LinuxCooked1, [&[0, 0, 0, 1, 0, 6][..], &[0; 8], &[8, 0]].concat(), 5),
        (LinkType::LinuxCooked2, cooked2(1, 0), 9),
    ];
    for (link, head, interface) in rows {
        // Behind short packets Ethernet has padding.
        let bytes = [&head[..], &inner, &[0; 10]].concat();
        let found = whole(&network(&packet(link, &bytes)));
        let expected = IpPayload {
            source: CLIENT,
            destination: SERVER,
            protocol: 17,
            bytes: b"payload",
            missing: 0,
            interface,
        };
        assert_eq!(found, expected, "{link:?}");
        for cut in 0..head.len() + 20 {
            assert_eq!(network(&packet(link, &bytes[..cut])), Network::Other, "{link:?} {cut}");
        }
    }
    assert_eq!(LinkType::from_number(105), None);
}

#[test]
fn the_way_out_over_loopback_is_a_copy() {
    let inner = ip_bytes(CLIENT, SERVER, 17, b"payload");
    let cooked1 = |kind: u8, hardware: u16| {
        let hardware = hardware.to_be_bytes();
        [&[0, kind, hardware[0], hardware[1], 0, 6][..], &[0; 8], &[8, 0], &inner].concat()
    };
    let is_copy =
        |bytes: &[u8]| network(&packet(LinkType::LinuxCooked1, bytes)) == Network::LoopbackCopy;
    assert!(is_copy(&cooked1(4, 772)));
    assert!(!is_copy(&cooked1(0, 772)) && !is_copy(&cooked1(4, 1)));
    // 193 * 4 is 772.
    let bytes = with(&cooked2(193, 4), &inner);
    assert_eq!(network(&packet(LinkType::LinuxCooked2, &bytes)), Network::LoopbackCopy);
    let bytes = with(&cooked2(193, 0), &inner);
    whole(&network(&packet(LinkType::LinuxCooked2, &bytes)));
}

#[test]
fn lengths_that_are_too_large_for_their_field_and_cut_packets() {
    let six = |last: u8| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)));
    for (source, destination) in [(CLIENT, SERVER), (six(1), six(2))] {
        let large = vec![7; 200_000];
        let bytes = ip_bytes(source, destination, 6, &large);
        let found = whole(&network(&packet(LinkType::Ip, &bytes)));
        assert_eq!((found.bytes.len(), found.missing), (200_000, 0), "{source}");
        // The capture has kept 100 bytes of it.
        let cut = Packet { wire_bytes: bytes.len(), ..packet(LinkType::Ip, &bytes[..100]) };
        let found = whole(&network(&cut));
        assert_eq!(found.bytes.len() + found.missing, 200_000);

        let bytes = ip_bytes(source, destination, 6, &[7; 1000]);
        let found = whole(&network(&packet(LinkType::Ip, &bytes[..100])));
        assert_eq!(found.bytes.len() + found.missing, 1000);
    }
}

#[test]
fn fragments_are_told() {
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let bytes = ipv4_fragment(source, destination, 17, 77, 1480, true, b"12345678");
    match network(&packet(LinkType::Ip, &bytes)) {
        Network::Fragment(Fragment { id: 77, offset: 1480, has_more: true, part }) => {
            assert_eq!(part.bytes, b"12345678");
        }
        other => panic!("{other:?}"),
    }
    // IPv6: hop-by-hop options, a fragment header, then what is not to be read as a header.
    let (source, destination) = (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
    let mut payload = vec![44, 0, 1, 4, 0, 0, 0, 0];
    payload.extend([17, 0, 5, 0xc8, 0, 0, 1, 2]);
    payload.extend(b"12345678");
    let bytes = crate::capture::testing::ipv6_bytes(source, destination, 0, &payload);
    match network(&packet(LinkType::Ip, &bytes)) {
        Network::Fragment(Fragment { id: 258, offset: 1480, has_more: false, part }) => {
            assert_eq!((part.bytes, part.protocol), (&b"12345678"[..], 17));
        }
        other => panic!("{other:?}"),
    }
    // A fragment header of a packet in one piece.
    payload[10..12].copy_from_slice(&[0, 0]);
    let bytes = crate::capture::testing::ipv6_bytes(source, destination, 0, &payload);
    assert_eq!(whole(&network(&packet(LinkType::Ip, &bytes))).bytes, b"12345678");
}
