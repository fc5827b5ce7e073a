//! The MOUNT protocol, version 3 (RFC 1813 appendix I).

use steadfast_xdr::{Reader, XdrError};

use crate::call::{Identity, Procedure, encoded};
use crate::error::ClientError;
use crate::object::{self, FileHandle};
use crate::transport::RpcTransport;

/// The RPC program of MOUNT.
pub const MOUNT: u32 = 100_005;

/// Most entries of a list that are taken from a server.
const LIST_MAX: usize = 1_000_000;
const PATH_BYTES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 255;

const fn mount3(number: u32, name: &'static str) -> Procedure {
    Procedure { program: MOUNT, version: 3, number, name }
}

/// MNT.
pub const MNT: Procedure = mount3(1, "MNT");
/// DUMP.
pub const DUMP: Procedure = mount3(2, "DUMP");
/// UMNT.
pub const UMNT: Procedure = mount3(3, "UMNT");
/// UMNTALL.
pub const UMNTALL: Procedure = mount3(4, "UMNTALL");
/// EXPORT.
pub const EXPORT: Procedure = mount3(5, "EXPORT");

/// What MNT grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The handle of the directory.
    pub handle: FileHandle,
    /// RPC authentication flavours that the server takes there.
    pub flavours: Vec<u32>,
}

/// A share as EXPORT tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Its path.
    pub path: Vec<u8>,
    /// Who may mount it.
    pub groups: Vec<Vec<u8>>,
}

/// A mount as DUMP tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Who.
    pub host: Vec<u8>,
    /// What.
    pub path: Vec<u8>,
}

fn path_argument(path: &[u8]) -> Vec<u8> {
    encoded(|w| w.opaque(path))
}

fn finish<T>(
    procedure: Procedure,
    r: &Reader<'_>,
    result: Result<T, XdrError>,
) -> Result<T, ClientError> {
    let procedure = procedure.name;
    let value = result.map_err(|error| ClientError::Malformed { procedure, error })?;
    match r.remaining() {
        0 => Ok(value),
        bytes => Err(ClientError::TrailingBytes { procedure, bytes }),
    }
}

/// MNT: the handle of a directory.
///
/// # Errors
/// [`ClientError::Mount`] when the server refuses.
pub fn mnt(
    transport: &mut impl RpcTransport,
    identity: &Identity,
    path: &[u8],
) -> Result<Mounted, ClientError> {
    let bytes = transport.call(MNT, identity, &path_argument(path))?;
    let mut r = Reader::new(&bytes);
    let result = (|| {
        let status = r.u32()?;
        if status != 0 {
            return Ok(Err(status));
        }
        let handle = object::handle(&mut r)?;
        let count = r.u32()?;
        // Each flavour takes four bytes, so the message bounds them.
        let flavours = (0..count).map(|_| r.u32()).collect::<Result<_, _>>()?;
        Ok(Ok(Mounted { handle, flavours }))
    })();
    finish(MNT, &r, result)?.map_err(ClientError::Mount)
}

/// UMNT: this client uses `path` no more.
///
/// # Errors
/// See [`ClientError`].
pub fn umnt(
    transport: &mut impl RpcTransport,
    identity: &Identity,
    path: &[u8],
) -> Result<(), ClientError> {
    let bytes = transport.call(UMNT, identity, &path_argument(path))?;
    finish(UMNT, &Reader::new(&bytes), Ok(()))
}

/// UMNTALL: this client uses nothing any more.
///
/// # Errors
/// See [`ClientError`].
pub fn umntall(transport: &mut impl RpcTransport, identity: &Identity) -> Result<(), ClientError> {
    let bytes = transport.call(UMNTALL, identity, &[])?;
    finish(UMNTALL, &Reader::new(&bytes), Ok(()))
}

fn list<T>(
    procedure: Procedure,
    bytes: &[u8],
    mut item: impl FnMut(&mut Reader<'_>) -> Result<T, XdrError>,
) -> Result<Vec<T>, ClientError> {
    let mut r = Reader::new(bytes);
    let mut items = Vec::new();
    let result = loop {
        match r.bool() {
            Ok(true) if items.len() >= LIST_MAX => {
                return Err(ClientError::ListTooLong { procedure: procedure.name, max: LIST_MAX });
            }
            Ok(true) => match item(&mut r) {
                Ok(value) => items.push(value),
                Err(error) => break Err(error),
            },
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    finish(procedure, &r, result)?;
    Ok(items)
}

/// DUMP: who has mounted what, as far as the server knows.
///
/// # Errors
/// See [`ClientError`].
pub fn dump(
    transport: &mut impl RpcTransport,
    identity: &Identity,
) -> Result<Vec<Mount>, ClientError> {
    let bytes = transport.call(DUMP, identity, &[])?;
    list(DUMP, &bytes, |r| {
        Ok(Mount {
            host: r.opaque(NAME_BYTES_MAX)?.to_vec(),
            path: r.opaque(PATH_BYTES_MAX)?.to_vec(),
        })
    })
}

/// EXPORT: the shares.
///
/// # Errors
/// See [`ClientError`].
pub fn export(
    transport: &mut impl RpcTransport,
    identity: &Identity,
) -> Result<Vec<Exported>, ClientError> {
    let bytes = transport.call(EXPORT, identity, &[])?;
    list(EXPORT, &bytes, |r| {
        let path = r.opaque(PATH_BYTES_MAX)?.to_vec();
        let mut groups = Vec::new();
        while r.bool()? {
            groups.push(r.opaque(NAME_BYTES_MAX)?.to_vec());
        }
        Ok(Exported { path, groups })
    })
}
