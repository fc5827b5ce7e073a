//! By what transports this server can be reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use steadfast_wire::rpcbind::{PROTOCOL_TCP, PROTOCOL_UDP};

use crate::peer::Transport;

/// What is listened on: a client must not be sent to where nobody answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transports {
    /// UDP beside TCP.
    pub udp: bool,
    /// An address of IPv4.
    pub ipv4: bool,
    /// An address of IPv6.
    pub ipv6: bool,
}

impl Transports {
    /// Those that are listened on, by their names.
    pub fn netids(self) -> impl Iterator<Item = Netid> {
        let is_listened_on = move |netid: &Netid| {
            let has_family = if netid.is_ipv6 { self.ipv6 } else { self.ipv4 };
            has_family && (self.udp || netid.transport != Transport::Udp)
        };
        NETIDS.into_iter().filter(is_listened_on)
    }
}

/// A transport in a family of addresses, as rpcbind of version 3 and 4 names it (RFC 1833 §1, RFC 5665).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Netid {
    /// The name.
    pub name: &'static str,
    /// The transport.
    pub transport: Transport,
    /// Over IPv6, and not IPv4.
    pub is_ipv6: bool,
}

/// All that there are.
pub(super) const NETIDS: [Netid; 4] = [
    Netid { name: "tcp", transport: Transport::Tcp, is_ipv6: false },
    Netid { name: "udp", transport: Transport::Udp, is_ipv6: false },
    Netid { name: "tcp6", transport: Transport::Tcp, is_ipv6: true },
    Netid { name: "udp6", transport: Transport::Udp, is_ipv6: true },
];

impl Netid {
    /// The protocol's number, as version 2 has it.
    pub fn protocol(self) -> u32 {
        match self.transport {
            Transport::Tcp => PROTOCOL_TCP,
            Transport::Udp => PROTOCOL_UDP,
        }
    }

    /// The protocol's name (`nc_proto`).
    pub(super) fn protocol_name(self) -> &'static str {
        match self.transport {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        }
    }

    /// The name of the family of addresses (`nc_protofmly`).
    pub(super) fn family_name(self) -> &'static str {
        if self.is_ipv6 { "inet6" } else { "inet" }
    }

    /// What the transport does (`nc_semantics`): `NC_TPI_CLTS` is 1, `NC_TPI_COTS_ORD` is 3.
    pub(super) fn semantics(self) -> u32 {
        match self.transport {
            Transport::Tcp => 3,
            Transport::Udp => 1,
        }
    }

    /// The address that stands for any one.
    pub(super) fn unspecified(self) -> IpAddr {
        if self.is_ipv6 {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        } else {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        }
    }
}
