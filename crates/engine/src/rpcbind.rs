//! rpcbind, versions 2 to 4 (RFC 1833), for hosts where no other runs: it answers where this
//! server's own programs are, and lets nobody register others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use steadfast_xdr::{Reader, Writer, XdrError};

use crate::call::Transport;
use crate::dispatch::{PROGRAM_MOUNT, PROGRAM_NFS, PROGRAM_NFSACL, PROGRAM_RPCBIND};
use crate::session::{Outcome, Session};

const RPCBIND_PORT: u16 = 111;
const PROTOCOL_TCP: u32 = 6;
const PROTOCOL_UDP: u32 = 17;
/// Longest netid, universal address and owner.
const STRING_BYTES_MAX: usize = 1024;

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
    /// Whether a transport of version 3 and 4 is served.
    fn has(self, netid: &str) -> bool {
        match netid {
            "tcp" => self.ipv4,
            "udp" => self.ipv4 && self.udp,
            "tcp6" => self.ipv6,
            "udp6" => self.ipv6 && self.udp,
            _ => false,
        }
    }
}

/// Every program and version that is served.
const SERVICES: [(u32, u32); 8] = [
    (PROGRAM_RPCBIND, 2),
    (PROGRAM_RPCBIND, 3),
    (PROGRAM_RPCBIND, 4),
    (PROGRAM_NFS, 3),
    (PROGRAM_MOUNT, 1),
    (PROGRAM_MOUNT, 2),
    (PROGRAM_MOUNT, 3),
    (PROGRAM_NFSACL, 3),
];

/// Runs a procedure; `None` for a number that does not exist or is not served.
pub(crate) fn execute(
    version: u32,
    procedure: u32,
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Option<Result<Outcome, XdrError>> {
    let mut w = Writer::new(reply);
    let result = match (version, procedure) {
        (_, 0) => Ok(()),
        (2, 1 | 2) => mapping(arguments).map(|_| w.bool(false)),
        (2, 3) => mapping(arguments).map(|(program, _, protocol)| {
            let is_served = protocols(session).any(|served| served == protocol);
            let port = if is_served { port(session, program) } else { None };
            w.u32(u32::from(port.unwrap_or(0)));
        }),
        (2, 4) => {
            dump2(session, &mut w);
            Ok(())
        }
        (3 | 4, 1 | 2) => binding(arguments).map(|_| w.bool(false)),
        (3 | 4, 3) => binding(arguments).map(|wanted| {
            w.opaque(address(session, &wanted, false).as_bytes());
        }),
        (4, 9) => binding(arguments).map(|wanted| {
            w.opaque(address(session, &wanted, true).as_bytes());
        }),
        (3 | 4, 4) => {
            dump3(session, &mut w);
            Ok(())
        }
        (4, 11) => binding(arguments).map(|wanted| address_list(session, &wanted, &mut w)),
        _ => return None,
    };
    Some(result.map(|()| Outcome::Done))
}

/// Program, version and protocol of a version 2 mapping.
fn mapping(arguments: &mut Reader<'_>) -> Result<(u32, u32, u32), XdrError> {
    let mapping = (arguments.u32()?, arguments.u32()?, arguments.u32()?);
    let _port = arguments.u32()?;
    Ok(mapping)
}

/// What a version 3 or 4 request asks for.
struct Wanted<'a> {
    program: u32,
    version: u32,
    netid: &'a [u8],
}

fn binding<'a>(arguments: &mut Reader<'a>) -> Result<Wanted<'a>, XdrError> {
    let wanted = Wanted {
        program: arguments.u32()?,
        version: arguments.u32()?,
        netid: arguments.opaque(STRING_BYTES_MAX)?,
    };
    let _address = arguments.opaque(STRING_BYTES_MAX)?;
    let _owner = arguments.opaque(STRING_BYTES_MAX)?;
    Ok(wanted)
}

fn port(session: &Session<'_>, program: u32) -> Option<u16> {
    let is_served = SERVICES.iter().any(|(served, _)| *served == program);
    match program {
        PROGRAM_RPCBIND => Some(RPCBIND_PORT),
        _ if is_served => Some(session.engine.config.nfs_port),
        _ => None,
    }
}

/// A universal address (RFC 5665 §5.2.3): the address we were asked at, and the port.
fn universal(address: IpAddr, port: u16) -> String {
    format!("{address}.{}.{}", port >> 8, port & 0xff)
}

/// The protocols that version 2 tells: those served in the family in which it is asked, as it
/// knows nothing of families.
fn protocols(session: &Session<'_>) -> impl Iterator<Item = u32> {
    let served = session.engine.config.transports;
    let [tcp, udp] = match session.peer.local.ip().to_canonical() {
        IpAddr::V4(_) => ["tcp", "udp"],
        IpAddr::V6(_) => ["tcp6", "udp6"],
    };
    [(tcp, PROTOCOL_TCP), (udp, PROTOCOL_UDP)]
        .into_iter()
        .filter(move |(netid, _)| served.has(netid))
        .map(|(_, protocol)| protocol)
}

/// The transports we serve, with the address to tell for each.
fn transports(session: &Session<'_>) -> impl Iterator<Item = (&'static str, IpAddr)> {
    let served = session.engine.config.transports;
    let asked_at = session.peer.local.ip().to_canonical();
    let (v4, v6) = match asked_at {
        IpAddr::V4(_) => (asked_at, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        IpAddr::V6(_) => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), asked_at),
    };
    [("tcp", v4), ("udp", v4), ("tcp6", v6), ("udp6", v6)]
        .into_iter()
        .filter(move |(netid, _)| served.has(netid))
}

/// The universal address of a program; empty if it is not served (RFC 1833 §2.2.1).
fn address(session: &Session<'_>, wanted: &Wanted<'_>, is_version_exact: bool) -> String {
    let is_served = SERVICES.contains(&(wanted.program, wanted.version));
    if is_version_exact && !is_served {
        return String::new();
    }
    let default_netid: &[u8] = match session.peer.transport {
        Transport::Tcp => b"tcp",
        Transport::Udp => b"udp",
    };
    let is_v6 = session.peer.local.ip().to_canonical().is_ipv6();
    let netid = if wanted.netid.is_empty() { default_netid } else { wanted.netid };
    transports(session)
        .find(|(name, _)| {
            name.as_bytes() == netid
                || (is_v6
                    && wanted.netid.is_empty()
                    && name.strip_suffix('6').is_some_and(|n| n.as_bytes() == netid))
        })
        .and_then(|(_, ip)| Some(universal(ip, port(session, wanted.program)?)))
        .unwrap_or_default()
}

fn dump2(session: &Session<'_>, w: &mut Writer<'_>) {
    for (program, version) in SERVICES {
        for protocol in protocols(session) {
            w.bool(true);
            w.u32(program);
            w.u32(version);
            w.u32(protocol);
            w.u32(u32::from(port(session, program).unwrap_or(0)));
        }
    }
    w.bool(false);
}

fn dump3(session: &Session<'_>, w: &mut Writer<'_>) {
    for (program, version) in SERVICES {
        for (netid, ip) in transports(session) {
            w.bool(true);
            w.u32(program);
            w.u32(version);
            w.opaque(netid.as_bytes());
            let unspecified = match ip {
                IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            };
            w.opaque(universal(unspecified, port(session, program).unwrap_or(0)).as_bytes());
            w.opaque(b"superuser");
        }
    }
    w.bool(false);
}

/// GETADDRLIST (RFC 1833 §2.2.1): every transport of one program and version.
fn address_list(session: &Session<'_>, wanted: &Wanted<'_>, w: &mut Writer<'_>) {
    if SERVICES.contains(&(wanted.program, wanted.version))
        && let Some(port) = port(session, wanted.program)
    {
        for (netid, ip) in transports(session) {
            let (family, protocol) = match netid {
                "tcp" => ("inet", "tcp"),
                "udp" => ("inet", "udp"),
                "tcp6" => ("inet6", "tcp"),
                _ => ("inet6", "udp"),
            };
            // NC_TPI_CLTS is 1, NC_TPI_COTS_ORD is 3.
            let semantics = if protocol == "udp" { 1 } else { 3 };
            w.bool(true);
            w.opaque(universal(ip, port).as_bytes());
            w.opaque(netid.as_bytes());
            w.u32(semantics);
            w.opaque(family.as_bytes());
            w.opaque(protocol.as_bytes());
        }
    }
    w.bool(false);
}
