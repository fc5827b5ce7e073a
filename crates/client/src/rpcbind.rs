//! Which port serves a program: rpcbind, version 2 (RFC 1833 §3).

use steadfast_xdr::Reader;

use crate::call::{Identity, Procedure, encoded};
use crate::error::ClientError;
use crate::transport::RpcTransport;

/// The RPC program of rpcbind.
pub const RPCBIND: u32 = 100_000;

/// GETPORT.
pub const GETPORT: Procedure =
    Procedure { program: RPCBIND, version: 2, number: 3, name: "GETPORT" };

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
    let arguments = encoded(|w| {
        for word in [program, version, if udp { 17 } else { 6 }, 0] {
            w.u32(word);
        }
    });
    let bytes = transport.call(GETPORT, &Identity::None, &arguments)?;
    let procedure = GETPORT.name;
    let port =
        Reader::new(&bytes).u32().map_err(|error| ClientError::Malformed { procedure, error })?;
    match u16::try_from(port) {
        Ok(0) => Ok(None),
        Ok(port) => Ok(Some(port)),
        Err(_) => Err(ClientError::Contradiction { procedure, why: "a port above 65535" }),
    }
}
