//! Universal addresses (RFC 5665 §5.2.3) and those that a transport has (`netbuf`, RFC 1833 §2.1),
//! each made of the other.
//!
//! What is in a `netbuf` is the business of the host that has the transport: here what Linux has on
//! little-endian machines, `sockaddr_in` and `sockaddr_in6`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use steadfast_wire::rpcbind::{universal, universal_parts};

/// `AF_INET` and `AF_INET6` of Linux.
const FAMILY_IPV4: u16 = 2;
const FAMILY_IPV6: u16 = 10;
const IPV4_BYTES: usize = 16;
const IPV6_BYTES: usize = 28;

/// The transport's address of a universal one; empty for what is none.
pub(super) fn to_transport(universal: &[u8]) -> Vec<u8> {
    let Some((address, port)) = universal_parts(universal) else { return Vec::new() };
    let (family, rest, length) = match address.parse() {
        Ok(IpAddr::V4(ip)) => (FAMILY_IPV4, ip.octets().to_vec(), IPV4_BYTES),
        // Behind four bytes of the flow.
        Ok(IpAddr::V6(ip)) => (FAMILY_IPV6, [&[0; 4][..], &ip.octets()].concat(), IPV6_BYTES),
        Err(_) => return Vec::new(),
    };
    let mut bytes = [&family.to_le_bytes()[..], &port.to_be_bytes(), &rest].concat();
    bytes.resize(length, 0);
    bytes
}

/// The universal address of a transport's; empty for what is none.
pub(super) fn to_universal(bytes: &[u8]) -> String {
    let parts = bytes.split_first_chunk::<2>().and_then(|(family, rest)| {
        let (port, rest) = rest.split_first_chunk::<2>()?;
        let ip = match (u16::from_le_bytes(*family), u16::from_be_bytes(*family)) {
            (FAMILY_IPV4, _) | (_, FAMILY_IPV4) => {
                IpAddr::V4(Ipv4Addr::from(*rest.first_chunk::<4>()?))
            }
            (FAMILY_IPV6, _) | (_, FAMILY_IPV6) => {
                IpAddr::V6(Ipv6Addr::from(*rest.get(4..)?.first_chunk::<16>()?))
            }
            _ => return None,
        };
        Some((ip, u16::from_be_bytes(*port)))
    });
    parts.map(|(ip, port)| universal(ip, port)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_made_of_each_other() {
        for (text, bytes) in [
            ("192.0.2.7.8.1", [2, 0, 8, 1, 192, 0, 2, 7, 0, 0, 0, 0, 0, 0, 0, 0].to_vec()),
            (
                "2001:db8::7.0.111",
                [
                    &[10, 0, 0, 111, 0, 0, 0, 0, 0x20, 1, 0x0d, 0xb8][..],
                    &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0],
                ]
                .concat(),
            ),
        ] {
            assert_eq!(to_transport(text.as_bytes()), bytes);
            assert_eq!(to_universal(&bytes), text);
            let mut other_order = bytes.clone();
            other_order.swap(0, 1);
            assert_eq!(to_universal(&other_order), text);
            for length in 0..8 {
                assert_eq!(to_universal(&bytes[..length]), "");
            }
        }
        for odd in [
            &b""[..],
            b".",
            b"1.2.3.4.5",
            b"1.2.3.4.256.1",
            b"1.2.3.4.1.-1",
            b"host.1.2",
            b"\xff.1.2",
            b"::1",
            b"1.2.3.4.5.6.7",
        ] {
            assert!(to_transport(odd).is_empty(), "{odd:?}");
        }
        assert_eq!(to_universal(&[1, 0, 0, 0, 0, 0, 0, 0]), "");
    }
}
