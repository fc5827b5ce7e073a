//! The kernel's filter: packets of these ports, and fragments, which have none.

use std::collections::BTreeSet;

use steadfast_sys::packet_ring::FilterInstruction;

// Classic BPF, as in linux/bpf_common.h and linux/filter.h.
const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF_INDEXED: u16 = 0x48;
const LOAD_INDEX: u16 = 0x01;
const LOAD_INDEX_IP_HEADER: u16 = 0xb1;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// Where the kernel has the packet's type and the interface's kind (`SKF_AD_OFF` and on).
const PACKET_TYPE: u32 = 0xffff_f004;
const HARDWARE_TYPE: u32 = 0xffff_f01c;

const TCP: u32 = 6;
const UDP: u32 = 17;
const IPV6_HEADERS: [u32; 4] = [0, 43, 44, 60];
/// Bytes of a packet that are kept: more than the largest has.
const KEPT_BYTES: u32 = 1 << 20;

fn plain(code: u16, value: u32) -> FilterInstruction {
    FilterInstruction { code, if_true: 0, if_false: 0, value }
}

fn equal(value: u32, if_true: u8, if_false: u8) -> FilterInstruction {
    FilterInstruction { code: JUMP_EQUAL, if_true, if_false, value }
}

const KEEP: FilterInstruction =
    FilterInstruction { code: RETURN, if_true: 0, if_false: 0, value: KEPT_BYTES };
const LEAVE: FilterInstruction =
    FilterInstruction { code: RETURN, if_true: 0, if_false: 0, value: 0 };

/// A filter for TCP and UDP of these ports, whichever side has them. Offsets begin at the network header.
/// Leaves out what goes over the loopback interface on its way out, since it comes in as well.
pub(crate) fn of_ports(ports: &BTreeSet<u16>) -> Vec<FilterInstruction> {
    let mut program = vec![
        plain(LOAD_WORD, HARDWARE_TYPE),
        equal(772, 0, 3),
        plain(LOAD_WORD, PACKET_TYPE),
        equal(4, 0, 1),
        LEAVE,
        plain(LOAD_BYTE, 0),
        plain(AND, 0xf0),
        equal(0x60, 11, 0),
        equal(0x40, 1, 0),
        LEAVE,
        // IPv4. The first fragment has ports as well, but the others need it.
        plain(LOAD_HALF, 6),
        plain(AND, 0x3fff),
        equal(0, 1, 0),
        KEEP,
        plain(LOAD_BYTE, 9),
        equal(TCP, 1, 0),
        equal(UDP, 0, 10),
        // The ports are behind the header, whose length is in its first byte.
        plain(LOAD_INDEX_IP_HEADER, 0),
    ];
    // IPv6: with extension headers, the program decides.
    let six = [
        plain(LOAD_BYTE, 6),
        equal(IPV6_HEADERS[0], 3, 0),
        equal(IPV6_HEADERS[1], 2, 0),
        equal(IPV6_HEADERS[2], 1, 0),
        equal(IPV6_HEADERS[3], 0, 1),
        KEEP,
        equal(TCP, 2, 0),
        equal(UDP, 1, 0),
        LEAVE,
        plain(LOAD_INDEX, 40),
    ];
    program.push(plain(JUMP, six.len() as u32));
    program.extend(six);
    for offset in [0, 2] {
        program.push(plain(LOAD_HALF_INDEXED, offset));
        for port in ports {
            program.push(equal(u32::from(*port), 0, 1));
            program.push(KEEP);
        }
    }
    program.push(LEAVE);
    program
}

#[cfg(test)]
mod tests {
    //! Unit ring: the program is run here as the kernel would.
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::capture::testing::{ip_bytes, ipv4_fragment, ipv6_bytes, tcp_bytes, udp_bytes};

    /// Runs a program on a packet of an interface of this kind.
    fn run(program: &[FilterInstruction], bytes: &[u8], hardware: u32, kind: u32) -> u32 {
        let (mut a, mut x, mut at) = (0_u32, 0_u32, 0_usize);
        loop {
            let FilterInstruction { code, if_true, if_false, value } = program[at];
            at += 1;
            let from = value as usize;
            match code {
                LOAD_WORD if value == PACKET_TYPE => a = kind,
                LOAD_WORD if value == HARDWARE_TYPE => a = hardware,
                LOAD_HALF => match bytes.get(from..from + 2) {
                    Some(two) => a = u32::from(two[0]) << 8 | u32::from(two[1]),
                    None => return 0,
                },
                LOAD_BYTE => match bytes.get(from) {
                    Some(byte) => a = u32::from(*byte),
                    None => return 0,
                },
                LOAD_HALF_INDEXED => match bytes.get(from + x as usize..from + x as usize + 2) {
                    Some(two) => a = u32::from(two[0]) << 8 | u32::from(two[1]),
                    None => return 0,
                },
                LOAD_INDEX => x = value,
                LOAD_INDEX_IP_HEADER => x = u32::from(bytes[0] & 0xf) * 4,
                AND => a &= value,
                JUMP => at += from,
                JUMP_EQUAL => at += usize::from(if a == value { if_true } else { if_false }),
                RETURN => return value,
                other => panic!("{other:#x}"),
            }
        }
    }

    #[test]
    fn packets_of_the_ports_and_fragments_are_kept() {
        let program = of_ports(&BTreeSet::from([111, 2049]));
        let keeps = |bytes: &[u8]| run(&program, bytes, 1, 0) != 0;
        let four = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST));
        let six = (IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));
        for (source, destination) in [four, six] {
            for (ports, is_kept) in [
                ((2049, 800), true),
                ((800, 2049), true),
                ((111, 9), true),
                ((9, 111), true),
                ((2048, 2050), false),
            ] {
                let tcp = ip_bytes(source, destination, 6, &tcp_bytes(ports, 1, 1, 0, b"x"));
                assert_eq!(keeps(&tcp), is_kept, "{ports:?}");
                let udp = ip_bytes(source, destination, 17, &udp_bytes(ports, b"x"));
                assert_eq!(keeps(&udp), is_kept, "{ports:?}");
                let other = ip_bytes(source, destination, 132, &udp_bytes(ports, b"x"));
                assert!(!keeps(&other));
            }
        }
        let address = Ipv4Addr::LOCALHOST;
        for (offset, has_more) in [(0, true), (8, true), (8, false)] {
            assert!(keeps(&ipv4_fragment(address, address, 17, 1, offset, has_more, &[0; 16])));
        }
        let address = Ipv6Addr::LOCALHOST;
        for header in IPV6_HEADERS {
            assert!(keeps(&ipv6_bytes(address, address, header as u8, &[0; 16])));
        }
        assert!(!keeps(&[]) && !keeps(&[0x20; 60]));
    }

    #[test]
    fn the_way_out_over_loopback_is_left_out() {
        let program = of_ports(&BTreeSet::from([2049]));
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let bytes = ip_bytes(address, address, 17, &udp_bytes((2049, 1), b"x"));
        assert_eq!(run(&program, &bytes, 772, 4), 0);
        assert_ne!(run(&program, &bytes, 772, 0), 0);
        assert_ne!(run(&program, &bytes, 1, 4), 0);
    }

    #[test]
    fn as_many_ports_as_may_be_learnt_make_a_program_that_the_kernel_takes() {
        let program = of_ports(&(1..=200).collect());
        // `BPF_MAXINSNS`
        assert!(program.len() < 4096);
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        for (port, is_kept) in [(1, true), (200, true), (201, false)] {
            let bytes = ip_bytes(address, address, 17, &udp_bytes((9999, port), b"x"));
            assert_eq!(run(&program, &bytes, 1, 0) != 0, is_kept);
        }
    }
}
