//! rpcbind, versions 2 to 4 (RFC 1833), for hosts where no other runs: it answers where this
//! server's own programs are, and lets nobody register others.
//!
//! A call that is to be passed on (CALLIT, BCAST, INDIRECT) is answered for procedure 0 of what is
//! served here, which is what broadcasts look for servers with. Its reply is smaller than the call,
//! so that nobody can have this server send more than he sends himself. Of others CALLIT and BCAST
//! say nothing, as they do of all that fails.

mod netbuf;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, Ordering};

use steadfast_wire::rpcbind::{Netbuf, RemoteCall, RemoteResult, RemoteResult2};
use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use crate::call::Transport;
use crate::dispatch::{PROGRAM_MOUNT, PROGRAM_NFS, PROGRAM_NFSACL, PROGRAM_RPCBIND};
use crate::session::{Outcome, Session};

use self::netbuf::universal;

const RPCBIND_PORT: u16 = 111;
const PROTOCOL_TCP: u32 = 6;
const PROTOCOL_UDP: u32 = 17;
/// Longest netid, universal address and owner, and address of a transport.
const STRING_BYTES_MAX: usize = 1024;
/// The names of the transports that there are.
const NETIDS: [&str; 4] = ["tcp", "udp", "tcp6", "udp6"];
/// Versions of which calls are counted, and procedures of each (`rpcb_stat_byvers`).
const FIRST_VERSION: u32 = 2;
const VERSIONS: usize = 3;
const PROCEDURES: usize = 13;

/// How often each procedure of each version was called (GETSTAT). Numbers go on at 0 after the
/// highest.
#[derive(Debug, Default)]
pub(crate) struct CallCounts([[AtomicU32; PROCEDURES]; VERSIONS]);

impl CallCounts {
    fn note(&self, version: u32, procedure: u32) {
        let of_version =
            version.checked_sub(FIRST_VERSION).and_then(|row| self.0.get(row as usize));
        if let Some(count) = of_version.and_then(|row| row.get(procedure as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

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

/// Runs a procedure; `None` for a number that does not exist.
pub(crate) fn execute(
    version: u32,
    procedure: u32,
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Option<Result<Outcome, XdrError>> {
    session.engine.rpcbind_calls.note(version, procedure);
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
        (_, 5) => {
            return Some(Ok(
                pass_on(version, session, arguments, &mut w).unwrap_or(Outcome::Silent)
            ));
        }
        (3 | 4, 1 | 2) => binding(arguments).map(|_| w.bool(false)),
        (3 | 4, 3) => binding(arguments).map(|wanted| {
            w.opaque(address(session, &wanted, false).as_bytes());
        }),
        (3 | 4, 4) => {
            dump3(session, &mut w);
            Ok(())
        }
        (3 | 4, 6) => {
            w.u32(session.host.unix_time_s()?);
            Ok(())
        }
        (3 | 4, 7) => arguments.opaque(STRING_BYTES_MAX).map(|universal| {
            let bytes = netbuf::to_transport(universal);
            Netbuf { maxlen: bytes.len() as u32, buf: &bytes }.encode(&mut w);
        }),
        (3 | 4, 8) => Netbuf::decode(arguments).map(|netbuf| {
            w.opaque(netbuf::to_universal(netbuf.buf).as_bytes());
        }),
        (4, 9) => binding(arguments).map(|wanted| {
            w.opaque(address(session, &wanted, true).as_bytes());
        }),
        (4, 10) => match pass_on(version, session, arguments, &mut w) {
            Ok(outcome) => return Some(Ok(outcome)),
            Err(NotPassedOn::NoProcedure) => return None,
            Err(NotPassedOn::NoProgram) => return Some(Ok(Outcome::NoProgram)),
            Err(NotPassedOn::Undecodable(error)) => Err(error),
        },
        (4, 11) => binding(arguments).map(|wanted| address_list(session, &wanted, &mut w)),
        (4, 12) => {
            statistics(session, &mut w);
            Ok(())
        }
        _ => return None,
    };
    Some(result.map(|()| Outcome::Done))
}

/// Why a call was not passed on.
enum NotPassedOn {
    Undecodable(XdrError),
    /// The program is not served in this version, or not in this way.
    NoProgram,
    /// The procedure is not one that may be called so.
    NoProcedure,
}

/// CALLIT, BCAST, INDIRECT: calls procedure 0 of a program that is served here, and tells where.
fn pass_on(
    version: u32,
    session: &Session<'_>,
    arguments: &mut Reader<'_>,
    w: &mut Writer<'_>,
) -> Result<Outcome, NotPassedOn> {
    // Procedure 0 has no arguments, and takes any.
    let RemoteCall { prog: program, vers: wanted_version, proc_: procedure, .. } =
        RemoteCall::decode(arguments).map_err(NotPassedOn::Undecodable)?;
    if !SERVICES.contains(&(program, wanted_version)) {
        return Err(NotPassedOn::NoProgram);
    }
    if procedure != 0 {
        return Err(NotPassedOn::NoProcedure);
    }
    let port = port(session, program).ok_or(NotPassedOn::NoProgram)?;
    if version == 2 {
        // Whose result is a port of UDP (RFC 1833 §3.2, note 2).
        if !protocols(session).any(|served| served == PROTOCOL_UDP) {
            return Err(NotPassedOn::NoProgram);
        }
        RemoteResult2 { port: u32::from(port), res: b"" }.encode(w);
    } else {
        let wanted = Wanted { program, version: wanted_version, netid: b"" };
        let address = address(session, &wanted, true);
        if address.is_empty() {
            return Err(NotPassedOn::NoProgram);
        }
        RemoteResult { addr: address.as_bytes(), results: b"" }.encode(w);
    }
    Ok(Outcome::Done)
}

/// GETSTAT (RFC 1833 §2.1): of each version how often each procedure was called. Nothing was ever
/// set or unset; of single programs, and of calls that were passed on, no account is kept.
fn statistics(session: &Session<'_>, w: &mut Writer<'_>) {
    for version in &session.engine.rpcbind_calls.0 {
        for count in version {
            w.u32(count.load(Ordering::Relaxed));
        }
        let (set, unset) = (0, 0);
        w.u32(set);
        w.u32(unset);
        for _addresses_then_remote_calls in 0..2 {
            w.bool(false);
        }
    }
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
    // The RFC has the netid ignored, and the one of the transport taken by which the request came.
    // Clients may well ask for another one that there is: then they use it.
    let is_ipv6 = session.peer.local.ip().to_canonical().is_ipv6();
    let own = match (session.peer.transport, is_ipv6) {
        (Transport::Tcp, false) => "tcp",
        (Transport::Udp, false) => "udp",
        (Transport::Tcp, true) => "tcp6",
        (Transport::Udp, true) => "udp6",
    };
    let netid = NETIDS.into_iter().find(|netid| netid.as_bytes() == wanted.netid).unwrap_or(own);
    transports(session)
        .find(|(name, _)| *name == netid)
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
