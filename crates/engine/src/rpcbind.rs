//! rpcbind, versions 2 to 4 (RFC 1833), for hosts where no other runs: it answers where this
//! server's own programs are, and lets nobody register others.
//!
//! A call that is to be passed on (CALLIT, BCAST, INDIRECT) is answered for procedure 0 of what is
//! served here, which is what broadcasts look for servers with. Its reply is smaller than the call,
//! so that nobody can have this server send more than he sends himself. Of others CALLIT and BCAST
//! say nothing, as they do of all that fails.

mod netbuf;

pub(crate) mod counts;
pub(crate) mod transports;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use steadfast_wire::rpcbind::{
    AddressEntry, Binding, Mapping, Netbuf, PORT, PROTOCOL_TCP, PROTOCOL_UDP, RemoteCall,
    RemoteResult, RemoteResult2, UniversalAddress, VersionStatistics, universal,
};
use steadfast_wire::{List, ListWriter};
use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use crate::call::{Call, Outcome, Refusal};
use crate::operation::Operation;
use crate::peer::Transport;
use crate::program::{Ignored, Null, Port, Procedure, Program, Row, Version, run};
use crate::reply::ReplyBuffer;

/// The names of the transports that there are.
const NETIDS: [&str; 4] = ["tcp", "udp", "tcp6", "udp6"];

/// rpcbind.
pub(crate) const PROGRAM: Program = Program {
    name: "rpcbind",
    number: steadfast_wire::rpcbind::PROGRAM,
    port: Port::Fixed(PORT),
    versions: &[
        Version::new(2, PROCEDURES_OF_2),
        Version::new(3, PROCEDURES_OF_3),
        Version::new(4, PROCEDURES_OF_4),
    ],
};

/// The port mapper, version 2 (RFC 1833 §3) by number.
const PROCEDURES_OF_2: &[Row] = &[
    counted::<Null>(),
    counted::<Set2>(),
    counted::<Unset2>(),
    counted::<Getport>(),
    counted::<Dump2>(),
    counted::<Callit>(),
];

/// Version 4 (RFC 1833 §2) by number.
const PROCEDURES_OF_4: &[Row] = &[
    counted::<Null>(),
    counted::<Set>(),
    counted::<Unset>(),
    counted::<Getaddr>(),
    counted::<Dump>(),
    counted::<Callit>(),
    counted::<Gettime>(),
    counted::<Uaddr2taddr>(),
    counted::<Taddr2uaddr>(),
    counted::<Getversaddr>(),
    counted::<Indirect>(),
    counted::<Getaddrlist>(),
    counted::<Getstat>(),
];

/// Version 3 (RFC 1833 §2) has the first of these.
const PROCEDURES_OF_3: &[Row] = PROCEDURES_OF_4.split_at(9).0;

/// A procedure of which the calls are counted (GETSTAT), also those that cannot be decoded.
const fn counted<P: Procedure>() -> Row {
    Row::of::<P>().through(count_and_run::<P>)
}

fn count_and_run<P: Procedure>(
    call: &mut Call<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut ReplyBuffer,
) -> Outcome {
    let (_, version, procedure) = call.message.numbers;
    call.shared.rpcbind_calls.note(version, procedure);
    run::<P>(call, arguments, reply)
}

/// Declares a procedure that cannot fail.
macro_rules! answers {
    ($(#[$doc:meta])* $name:ident, $rfc_name:literal, $arguments:ty, $run:expr) => {
        $(#[$doc])*
        struct $name;

        impl Procedure for $name {
            const OPERATION: Operation = Operation::answers($rfc_name);
            type Arguments<'a> = $arguments;

            fn run(
                call: &mut Call<'_>,
                arguments: &Self::Arguments<'_>,
                reply: &mut ReplyBuffer,
            ) -> Outcome {
                let run: fn(&Call<'_>, &Self::Arguments<'_>, &mut Writer<'_>) -> Outcome = $run;
                run(call, arguments, &mut Writer::new(&mut reply.bytes))
            }
        }
    };
}

// Nobody may register others here.
answers!(Set2, "SET", Mapping, |_, _, w| {
    w.bool(false);
    Outcome::Done
});
answers!(Unset2, "UNSET", Mapping, |_, _, w| {
    w.bool(false);
    Outcome::Done
});
answers!(Set, "SET", Binding<'a>, |_, _, w| {
    w.bool(false);
    Outcome::Done
});
answers!(Unset, "UNSET", Binding<'a>, |_, _, w| {
    w.bool(false);
    Outcome::Done
});
answers!(Getport, "GETPORT", Mapping, |call, wanted, w| {
    let is_served = protocols(call).any(|served| served == wanted.prot);
    let port = if is_served { port(call, wanted.prog) } else { None };
    w.u32(u32::from(port.unwrap_or(0)));
    Outcome::Done
});
answers!(Dump2, "DUMP", Ignored, |call, _, w| {
    dump2(call, w);
    Outcome::Done
});
answers!(Dump, "DUMP", Ignored, |call, _, w| {
    dump3(call, w);
    Outcome::Done
});
answers!(
    /// CALLIT; in version 4 it is called BCAST. Silent in the face of errors.
    Callit,
    "CALLIT",
    MaybeRemoteCall<'a>,
    |call, remote, w| match &remote.0 {
        Some(remote) if pass_on(call, remote, w).is_ok() => Outcome::Done,
        _ => Outcome::Silent,
    }
);
answers!(Indirect, "INDIRECT", RemoteCall<'a>, |call, remote, w| {
    match pass_on(call, remote, w) {
        Ok(()) => Outcome::Done,
        Err(why) => Outcome::Refused(why),
    }
});
answers!(Getaddr, "GETADDR", Binding<'a>, |call, wanted, w| {
    UniversalAddress { addr: address(call, wanted, false).as_bytes() }.encode(w);
    Outcome::Done
});
answers!(Getversaddr, "GETVERSADDR", Binding<'a>, |call, wanted, w| {
    UniversalAddress { addr: address(call, wanted, true).as_bytes() }.encode(w);
    Outcome::Done
});
answers!(Getaddrlist, "GETADDRLIST", Binding<'a>, |call, wanted, w| {
    address_list(call, wanted, w);
    Outcome::Done
});
answers!(Gettime, "GETTIME", Ignored, |call, _, w| match call.host.unix_time_s() {
    Some(seconds) => {
        w.u32(seconds);
        Outcome::Done
    }
    None => Outcome::Refused(Refusal::NoProcedure),
});
answers!(Uaddr2taddr, "UADDR2TADDR", UniversalAddress<'a>, |_, universal, w| {
    let bytes = netbuf::to_transport(universal.addr);
    Netbuf { maxlen: bytes.len() as u32, buf: &bytes }.encode(w);
    Outcome::Done
});
answers!(Taddr2uaddr, "TADDR2UADDR", Netbuf<'a>, |_, netbuf, w| {
    UniversalAddress { addr: netbuf::to_universal(netbuf.buf).as_bytes() }.encode(w);
    Outcome::Done
});
answers!(Getstat, "GETSTAT", Ignored, |call, _, w| {
    statistics(call, w);
    Outcome::Done
});

/// Arguments of CALLIT; `None` if they cannot be decoded, of which it says nothing either.
struct MaybeRemoteCall<'a>(Option<RemoteCall<'a>>);

impl<'a> Decode<'a> for MaybeRemoteCall<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self(RemoteCall::decode(r).ok()))
    }
}

/// CALLIT, BCAST, INDIRECT: calls procedure 0 of a program that is served here, and tells where.
fn pass_on(call: &Call<'_>, remote: &RemoteCall<'_>, w: &mut Writer<'_>) -> Result<(), Refusal> {
    // Procedure 0 has no arguments, and takes any.
    let RemoteCall { prog, vers, proc_: procedure, .. } = *remote;
    if !is_served(call, prog, vers) {
        return Err(Refusal::NoProgram);
    }
    if procedure != 0 {
        return Err(Refusal::NoProcedure);
    }
    let port = port(call, prog).ok_or(Refusal::NoProgram)?;
    let (_, asked_version, _) = call.message.numbers;
    if asked_version == 2 {
        // Whose result is a port of UDP (RFC 1833 §3.2, note 2).
        if !protocols(call).any(|served| served == PROTOCOL_UDP) {
            return Err(Refusal::NoProgram);
        }
        RemoteResult2 { port: u32::from(port), res: b"" }.encode(w);
    } else {
        let wanted = Binding { prog, vers, netid: b"", addr: b"", owner: b"" };
        let address = address(call, &wanted, true);
        if address.is_empty() {
            return Err(Refusal::NoProgram);
        }
        RemoteResult { addr: address.as_bytes(), results: b"" }.encode(w);
    }
    Ok(())
}

/// GETSTAT (RFC 1833 §2.1): of each version how often each procedure was called. Nothing was ever
/// set or unset; of single programs, and of calls that were passed on, no account is kept.
fn statistics(call: &Call<'_>, w: &mut Writer<'_>) {
    for info in call.shared.rpcbind_calls.by_version() {
        let (addrinfo, rmtinfo) = (List(Vec::new()), List(Vec::new()));
        VersionStatistics { info, setinfo: 0, unsetinfo: 0, addrinfo, rmtinfo }.encode(w);
    }
}

/// The programs that are told of.
fn listed(call: &Call<'_>) -> impl Iterator<Item = &'static Program> + use<> {
    call.programs.iter().filter(|program| program.port != Port::NfsUnlisted)
}

/// All that is served, by number, and whether over UDP too.
fn services(call: &Call<'_>) -> Vec<(u32, u32, bool)> {
    let asked_for = call.shared.optional_versions();
    let of = |program: &Program, version: &Version| {
        (program.number, version.number, version.is_over_udp())
    };
    let versions = |program: &'static Program| {
        program.served(asked_for).iter().map(move |version| of(program, version))
    };
    let mut all: Vec<(u32, u32, bool)> = listed(call).flat_map(versions).collect();
    all.sort_unstable();
    all
}

fn is_served(call: &Call<'_>, program: u32, version: u32) -> bool {
    let asked_for = call.shared.optional_versions();
    let program = listed(call).find(|known| known.number == program);
    program
        .is_some_and(|known| known.served(asked_for).iter().any(|served| served.number == version))
}

fn port(call: &Call<'_>, program: u32) -> Option<u16> {
    match listed(call).find(|known| known.number == program)?.port {
        Port::Fixed(port) => Some(port),
        Port::Nfs | Port::NfsUnlisted => Some(call.shared.config.nfs_port),
    }
}

/// The protocols that version 2 tells: those served in the family in which it is asked, as it
/// knows nothing of families.
fn protocols(call: &Call<'_>) -> impl Iterator<Item = u32> {
    let served = call.shared.config.transports;
    let [tcp, udp] = match call.peer.local.ip().to_canonical() {
        IpAddr::V4(_) => ["tcp", "udp"],
        IpAddr::V6(_) => ["tcp6", "udp6"],
    };
    [(tcp, PROTOCOL_TCP), (udp, PROTOCOL_UDP)]
        .into_iter()
        .filter(move |(netid, _)| served.has(netid))
        .map(|(_, protocol)| protocol)
}

/// The transports we serve, with the address to tell for each.
fn transports(call: &Call<'_>) -> impl Iterator<Item = (&'static str, IpAddr)> {
    let served = call.shared.config.transports;
    let asked_at = call.peer.local.ip().to_canonical();
    let (v4, v6) = match asked_at {
        IpAddr::V4(_) => (asked_at, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        IpAddr::V6(_) => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), asked_at),
    };
    [("tcp", v4), ("udp", v4), ("tcp6", v6), ("udp6", v6)]
        .into_iter()
        .filter(move |(netid, _)| served.has(netid))
}

/// The universal address of a program; empty if it is not served (RFC 1833 §2.2.1).
fn address(call: &Call<'_>, wanted: &Binding<'_>, is_version_exact: bool) -> String {
    let is_served = is_served(call, wanted.prog, wanted.vers);
    if is_version_exact && !is_served {
        return String::new();
    }
    // The RFC has the netid ignored, and the one of the transport taken by which the request came.
    // Clients may well ask for another one that there is: then they use it.
    let is_ipv6 = call.peer.local.ip().to_canonical().is_ipv6();
    let own = match (call.peer.transport, is_ipv6) {
        (Transport::Tcp, false) => "tcp",
        (Transport::Udp, false) => "udp",
        (Transport::Tcp, true) => "tcp6",
        (Transport::Udp, true) => "udp6",
    };
    let netid = NETIDS.into_iter().find(|netid| netid.as_bytes() == wanted.netid).unwrap_or(own);
    transports(call)
        .find(|(name, _)| *name == netid)
        .and_then(|(_, ip)| Some(universal(ip, port(call, wanted.prog)?)))
        .unwrap_or_default()
}

fn dump2(call: &Call<'_>, w: &mut Writer<'_>) {
    let mut list = ListWriter::new(w);
    for (prog, vers, over_udp) in services(call) {
        let port = u32::from(port(call, prog).unwrap_or(0));
        for prot in protocols(call).filter(|it| over_udp || *it != PROTOCOL_UDP) {
            list.push(&Mapping { prog, vers, prot, port });
        }
    }
    list.end();
}

fn dump3(call: &Call<'_>, w: &mut Writer<'_>) {
    let mut list = ListWriter::new(w);
    for (prog, vers, over_udp) in services(call) {
        let is_meant = |(netid, _): &(&str, IpAddr)| over_udp || !netid.starts_with("udp");
        for (netid, ip) in transports(call).filter(is_meant) {
            let unspecified = match ip {
                IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            };
            let address = universal(unspecified, port(call, prog).unwrap_or(0));
            let (netid, addr) = (netid.as_bytes(), address.as_bytes());
            list.push(&Binding { prog, vers, netid, addr, owner: b"superuser" });
        }
    }
    list.end();
}

/// GETADDRLIST (RFC 1833 §2.2.1): every transport of one program and version.
fn address_list(call: &Call<'_>, wanted: &Binding<'_>, w: &mut Writer<'_>) {
    let mut list = ListWriter::new(w);
    if is_served(call, wanted.prog, wanted.vers)
        && let Some(port) = port(call, wanted.prog)
    {
        for (netid, ip) in transports(call) {
            let (family, protocol) = match netid {
                "tcp" => ("inet", "tcp"),
                "udp" => ("inet", "udp"),
                "tcp6" => ("inet6", "tcp"),
                _ => ("inet6", "udp"),
            };
            // NC_TPI_CLTS is 1, NC_TPI_COTS_ORD is 3.
            let nc_semantics = if protocol == "udp" { 1 } else { 3 };
            list.push(&AddressEntry {
                maddr: universal(ip, port).as_bytes(),
                nc_netid: netid.as_bytes(),
                nc_semantics,
                nc_protofmly: family.as_bytes(),
                nc_proto: protocol.as_bytes(),
            });
        }
    }
    list.end();
}
