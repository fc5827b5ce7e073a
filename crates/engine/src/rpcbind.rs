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

use std::net::IpAddr;

use steadfast_wire::rpcbind::{
    AddressEntry, Binding, Mapping, Netbuf, PORT, RemoteCall, RemoteResult, RemoteResult2,
    UniversalAddress, VersionStatistics, universal,
};
use steadfast_wire::{List, ListWriter};
use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use crate::call::{Call, Outcome, Refusal};
use crate::operation::Operation;
use crate::peer::Transport;
use crate::program::{Ignored, Null, Port, Procedure, Program, Row, ServedVersion, Version, run};
use crate::reply::ReplyBuffer;

use transports::{NETIDS, Netid};

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
    let is_wanted = |netid: &Netid| netid.protocol() == wanted.prot;
    let netid = own_netids(call).find(is_wanted);
    let port = netid.and_then(|netid| port_over(call, wanted.prog, netid.transport));
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
    let (_, asked_version, _) = call.message.numbers;
    if asked_version == 2 {
        // Whose result is a port of UDP (RFC 1833 §3.2, note 2).
        let netid = own_netids(call).find(|netid| netid.transport == Transport::Udp);
        let port = netid.and_then(|netid| port_of(call, prog, vers, netid.transport));
        let port = port.ok_or(Refusal::NoProgram)?;
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

/// All that is served, by number.
fn services(call: &Call<'_>) -> Vec<ServedVersion> {
    let asked_for = call.shared.optional_versions();
    let mut all: Vec<_> = listed(call).flat_map(|program| program.services(asked_for)).collect();
    all.sort_unstable();
    all
}

fn is_served(call: &Call<'_>, program: u32, version: u32) -> bool {
    let asked_for = call.shared.optional_versions();
    let program = listed(call).find(|known| known.number == program);
    program
        .is_some_and(|known| known.served(asked_for).iter().any(|served| served.number == version))
}

fn port(call: &Call<'_>, program: &Program) -> u16 {
    match program.port {
        Port::Fixed(port) => port,
        Port::Nfs | Port::NfsUnlisted => call.shared.config.nfs_port,
    }
}

/// The port of a program, if any version of it is served over a transport.
fn port_over(call: &Call<'_>, program: u32, transport: Transport) -> Option<u16> {
    let program = listed(call).find(|known| known.number == program)?;
    let served = program.served_over(transport, call.shared.optional_versions());
    (!served.is_empty()).then(|| port(call, program))
}

/// The port of a version, if that version is served over a transport.
fn port_of(call: &Call<'_>, program: u32, version: u32, transport: Transport) -> Option<u16> {
    let program = listed(call).find(|known| known.number == program)?;
    let served = program.served_over(transport, call.shared.optional_versions());
    served.iter().any(|known| known.number == version).then(|| port(call, program))
}

/// The transports we are reached by.
fn netids(call: &Call<'_>) -> impl Iterator<Item = Netid> + use<> {
    call.shared.config.transports.netids()
}

/// Those that version 2 tells: of the family in which it is asked, as it knows nothing of families.
fn own_netids(call: &Call<'_>) -> impl Iterator<Item = Netid> + use<> {
    let is_ipv6 = call.peer.local.ip().to_canonical().is_ipv6();
    netids(call).filter(move |netid| netid.is_ipv6 == is_ipv6)
}

/// The address to tell for a transport.
fn ip(call: &Call<'_>, netid: Netid) -> IpAddr {
    let asked_at = call.peer.local.ip().to_canonical();
    if asked_at.is_ipv6() == netid.is_ipv6 { asked_at } else { netid.unspecified() }
}

/// The universal address of a program; empty if it is not served (RFC 1833 §2.2.1).
fn address(call: &Call<'_>, wanted: &Binding<'_>, is_version_exact: bool) -> String {
    // The RFC has the netid ignored, and the one of the transport taken by which the request came.
    // Clients may well ask for another one that there is: then they use it.
    let (transport, is_ipv6) = (call.peer.transport, call.peer.local.ip().to_canonical().is_ipv6());
    let is_own = |netid: &&Netid| (netid.transport, netid.is_ipv6) == (transport, is_ipv6);
    let named = NETIDS.iter().find(|netid| netid.name.as_bytes() == wanted.netid);
    named
        .or_else(|| NETIDS.iter().find(is_own))
        .and_then(|meant| netids(call).find(|netid| netid == meant))
        .and_then(|netid| {
            let port = if is_version_exact {
                port_of(call, wanted.prog, wanted.vers, netid.transport)?
            } else {
                port_over(call, wanted.prog, netid.transport)?
            };
            Some(universal(ip(call, netid), port))
        })
        .unwrap_or_default()
}

fn dump2(call: &Call<'_>, w: &mut Writer<'_>) {
    let mut list = ListWriter::new(w);
    for ServedVersion { program: prog, version: vers, over } in services(call) {
        for netid in own_netids(call).filter(|netid| over.has(netid.transport)) {
            let port = u32::from(port_over(call, prog, netid.transport).unwrap_or(0));
            list.push(&Mapping { prog, vers, prot: netid.protocol(), port });
        }
    }
    list.end();
}

fn dump3(call: &Call<'_>, w: &mut Writer<'_>) {
    let mut list = ListWriter::new(w);
    for ServedVersion { program: prog, version: vers, over } in services(call) {
        for id in netids(call).filter(|netid| over.has(netid.transport)) {
            let port = port_over(call, prog, id.transport).unwrap_or(0);
            let address = universal(id.unspecified(), port);
            let (netid, addr) = (id.name.as_bytes(), address.as_bytes());
            list.push(&Binding { prog, vers, netid, addr, owner: b"superuser" });
        }
    }
    list.end();
}

/// GETADDRLIST (RFC 1833 §2.2.1): every transport of one program and version.
fn address_list(call: &Call<'_>, wanted: &Binding<'_>, w: &mut Writer<'_>) {
    let mut list = ListWriter::new(w);
    for netid in netids(call) {
        let Some(port) = port_of(call, wanted.prog, wanted.vers, netid.transport) else { continue };
        list.push(&AddressEntry {
            maddr: universal(ip(call, netid), port).as_bytes(),
            nc_netid: netid.name.as_bytes(),
            nc_semantics: netid.semantics(),
            nc_protofmly: netid.family_name().as_bytes(),
            nc_proto: netid.protocol_name().as_bytes(),
        });
    }
    list.end();
}
