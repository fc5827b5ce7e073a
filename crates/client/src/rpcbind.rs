//! Where a host serves its programs: rpcbind (RFC 1833), version 2 (§3) and versions 3 and 4 (§2).

use steadfast_wire::ListReader;
use steadfast_wire::rpcbind::{UniversalAddress, universal_parts};
use steadfast_xdr::{Decode, Encode, Reader, XdrError};

use crate::call::{Identity, Procedure, encoded};
use crate::error::ClientError;
use crate::transport::RpcTransport;

pub use steadfast_wire::rpcbind::{
    Binding, Mapping, PORT, PROGRAM as RPCBIND, PROTOCOL_TCP, PROTOCOL_UDP, universal,
};

const fn procedure(version: u32, number: u32, name: &'static str) -> Procedure {
    Procedure { program: RPCBIND, version, number, name }
}

/// NULL of version 2.
pub const NULL: Procedure = procedure(2, 0, "NULL");
/// SET of version 2.
pub const SET2: Procedure = procedure(2, 1, "SET");
/// UNSET of version 2.
pub const UNSET2: Procedure = procedure(2, 2, "UNSET");
/// GETPORT.
pub const GETPORT: Procedure = procedure(2, 3, "GETPORT");
/// DUMP of version 2.
pub const DUMP2: Procedure = procedure(2, 4, "DUMP");
/// GETADDR of version 3.
pub const GETADDR: Procedure = procedure(3, 3, "GETADDR");
/// SET of version 4.
pub const SET: Procedure = procedure(4, 1, "SET");
/// UNSET of version 4.
pub const UNSET: Procedure = procedure(4, 2, "UNSET");
/// DUMP of version 4.
pub const DUMP: Procedure = procedure(4, 4, "DUMP");

/// A program that rpcbind knows, whoever registered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The transport's name; empty for a protocol of version 2 that has none.
    pub netid: Vec<u8>,
    /// The port.
    pub port: u16,
}

fn call(
    transport: &mut impl RpcTransport,
    procedure: Procedure,
    arguments: &[u8],
) -> Result<Vec<u8>, ClientError> {
    transport.call(procedure, &Identity::None, arguments)
}

fn decoded<T>(procedure: Procedure, results: Result<T, XdrError>) -> Result<T, ClientError> {
    results.map_err(|error| ClientError::Malformed { procedure: procedure.name, error })
}

/// Calls a procedure whose result is whether something was done.
fn ask(
    transport: &mut impl RpcTransport,
    procedure: Procedure,
    arguments: &impl Encode,
) -> Result<bool, ClientError> {
    let bytes = call(transport, procedure, &of(arguments))?;
    decoded(procedure, Reader::new(&bytes).bool())
}

/// Arguments: this value.
fn of(value: &impl Encode) -> Vec<u8> {
    encoded(|w| value.encode(w))
}

/// NULL: whether there is an rpcbind.
///
/// # Errors
/// See [`ClientError`].
pub fn null(transport: &mut impl RpcTransport) -> Result<(), ClientError> {
    call(transport, NULL, &[]).map(drop)
}

/// The TCP port (or with `udp` the UDP port) of a program's version; `None` if it is not served.
///
/// # Errors
/// See [`ClientError`].
pub fn port(
    transport: &mut impl RpcTransport,
    program: u32,
    version: u32,
    udp: bool,
) -> Result<Option<u16>, ClientError> {
    let prot = if udp { PROTOCOL_UDP } else { PROTOCOL_TCP };
    let wanted = Mapping { prog: program, vers: version, prot, port: 0 };
    let bytes = call(transport, GETPORT, &of(&wanted))?;
    match u16::try_from(decoded(GETPORT, Reader::new(&bytes).u32())?) {
        Ok(0) => Ok(None),
        Ok(port) => Ok(Some(port)),
        Err(_) => {
            Err(ClientError::Contradiction { procedure: GETPORT.name, why: "a port above 65535" })
        }
    }
}

/// The port of a program's version by GETADDR of version 3, which knows IPv6; `None` if it is not
/// served.
///
/// # Errors
/// See [`ClientError`].
pub fn port_by_address(
    transport: &mut impl RpcTransport,
    wanted: &Binding<'_>,
) -> Result<Option<u16>, ClientError> {
    let bytes = call(transport, GETADDR, &of(wanted))?;
    let told = decoded(GETADDR, UniversalAddress::decode(&mut Reader::new(&bytes)))?;
    Ok(universal_parts(told.addr).map(|(_, port)| port).filter(|port| *port != 0))
}

/// SET of version 4: whether it was registered.
///
/// # Errors
/// See [`ClientError`].
pub fn set(transport: &mut impl RpcTransport, binding: &Binding<'_>) -> Result<bool, ClientError> {
    ask(transport, SET, binding)
}

/// SET of version 2: whether it was registered.
///
/// # Errors
/// See [`ClientError`].
pub fn set2(transport: &mut impl RpcTransport, mapping: &Mapping) -> Result<bool, ClientError> {
    ask(transport, SET2, mapping)
}

/// UNSET of version 4: whether anything was removed.
///
/// # Errors
/// See [`ClientError`].
pub fn unset(
    transport: &mut impl RpcTransport,
    binding: &Binding<'_>,
) -> Result<bool, ClientError> {
    ask(transport, UNSET, binding)
}

/// UNSET of version 2: whether anything was removed. It forgets all protocols of a program's version
/// at once.
///
/// # Errors
/// See [`ClientError`].
pub fn unset2(transport: &mut impl RpcTransport, mapping: &Mapping) -> Result<bool, ClientError> {
    ask(transport, UNSET2, mapping)
}

/// DUMP of version 4: all that is registered with a port.
///
/// # Errors
/// See [`ClientError`].
pub fn dump(transport: &mut impl RpcTransport) -> Result<Vec<Registration>, ClientError> {
    let bytes = call(transport, DUMP, &[])?;
    let registration = |it: Binding<'_>| {
        let (_, port) = universal_parts(it.addr)?;
        let netid = it.netid.to_vec();
        Some(Registration { program: it.prog, version: it.vers, netid, port })
    };
    let mut r = Reader::new(&bytes);
    let known = ListReader::new(&mut r).filter_map(|it| it.map(registration).transpose());
    decoded(DUMP, known.collect())
}

/// DUMP of version 2.
///
/// # Errors
/// See [`ClientError`].
pub fn dump2(transport: &mut impl RpcTransport) -> Result<Vec<Registration>, ClientError> {
    let bytes = call(transport, DUMP2, &[])?;
    let registration = |it: Mapping| {
        let netid: &[u8] = match it.prot {
            PROTOCOL_TCP => b"tcp",
            PROTOCOL_UDP => b"udp",
            _ => b"",
        };
        let port = u16::try_from(it.port).unwrap_or(0);
        Registration { program: it.prog, version: it.vers, netid: netid.to_vec(), port }
    };
    let mut r = Reader::new(&bytes);
    decoded(DUMP2, ListReader::new(&mut r).map(|it| it.map(registration)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::{Reply, ReplyBody};

    /// Answers every call with these results.
    struct Canned(Vec<u8>);

    impl RpcTransport for Canned {
        fn exchange(
            &mut self,
            _procedure: Procedure,
            _identity: &Identity,
            _arguments: &[u8],
        ) -> Result<Reply, ClientError> {
            let body = ReplyBody::Success { results_at: 0 };
            Ok(Reply { xid: 0, body, message: self.0.clone() })
        }
    }

    #[test]
    fn an_address_without_a_port_is_none() {
        let wanted = Binding { prog: 100_003, vers: 3, netid: b"tcp6", addr: b"", owner: b"" };
        for (addr, expected) in [
            (&b"::1.8.1"[..], Some(2049)),
            (b"::1.0.0", None),
            (b"", None),
            (b"::1", None),
            (b"::1.8.256", None),
        ] {
            let mut server = Canned(of(&UniversalAddress { addr }));
            assert_eq!(port_by_address(&mut server, &wanted).unwrap(), expected, "{addr:?}");
        }
    }

    #[test]
    fn a_result_that_is_missing_is_malformed() {
        let binding = Binding { prog: 1, vers: 1, netid: b"", addr: b"", owner: b"" };
        let mapping = Mapping { prog: 1, vers: 1, prot: PROTOCOL_TCP, port: 1 };
        let mut server = Canned(Vec::new());
        for (outcome, name) in [
            (set(&mut server, &binding), "SET"),
            (set2(&mut server, &mapping), "SET"),
            (unset(&mut server, &binding), "UNSET"),
            (unset2(&mut server, &mapping), "UNSET"),
        ] {
            let error = outcome.unwrap_err();
            assert!(
                matches!(error, ClientError::Malformed { procedure, .. } if procedure == name),
                "{error}"
            );
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
