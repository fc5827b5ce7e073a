//! The MOUNT protocol, version 3 (RFC 1813 appendix I).

use steadfast_wire::List;
use steadfast_wire::mount::{DirPath, ExportEntry, MountEntry, MountRes3};
use steadfast_xdr::{Decode, Encode, Reader};

use crate::call::{Identity, Procedure, encoded};
use crate::error::ClientError;
use crate::object::FileHandle;
use crate::transport::RpcTransport;

pub use steadfast_wire::mount::PROGRAM as MOUNT;

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
    encoded(|w| DirPath { path }.encode(w))
}

/// Reads results to their end.
fn decoded<'a, T: Decode<'a>>(procedure: Procedure, bytes: &'a [u8]) -> Result<T, ClientError> {
    let procedure = procedure.name;
    let mut r = Reader::new(bytes);
    let value = T::decode(&mut r).map_err(|error| ClientError::Malformed { procedure, error })?;
    match r.remaining() {
        0 => Ok(value),
        bytes => Err(ClientError::TrailingBytes { procedure, bytes }),
    }
}

/// Of results that are empty.
fn nothing(procedure: Procedure, bytes: &[u8]) -> Result<(), ClientError> {
    match bytes.len() {
        0 => Ok(()),
        bytes => Err(ClientError::TrailingBytes { procedure: procedure.name, bytes }),
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
    match decoded(MNT, &bytes)? {
        MountRes3::Ok(mounted) => {
            Ok(Mounted { handle: mounted.fhandle.into(), flavours: mounted.auth_flavors.to_vec() })
        }
        MountRes3::Failed(status) => Err(ClientError::Mount(status)),
    }
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
    nothing(UMNT, &bytes)
}

/// UMNTALL: this client uses nothing any more.
///
/// # Errors
/// See [`ClientError`].
pub fn umntall(transport: &mut impl RpcTransport, identity: &Identity) -> Result<(), ClientError> {
    let bytes = transport.call(UMNTALL, identity, &[])?;
    nothing(UMNTALL, &bytes)
}

/// Elements of a list. The record bounds it
/// ([`RECORD_BYTES_MAX`](crate::RECORD_BYTES_MAX)): each element takes bytes of it.
fn list<'a, T: Decode<'a>>(
    procedure: Procedure,
    bytes: &'a [u8],
) -> Result<std::vec::IntoIter<T>, ClientError> {
    let List(items) = decoded(procedure, bytes)?;
    Ok(items.into_iter())
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
    let mounts = list::<MountEntry<'_>>(DUMP, &bytes)?;
    let owned =
        |it: MountEntry<'_>| Mount { host: it.hostname.to_vec(), path: it.directory.to_vec() };
    Ok(mounts.map(owned).collect())
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
    let exports = list::<ExportEntry<'_>>(EXPORT, &bytes)?;
    let owned = |it: ExportEntry<'_>| Exported {
        path: it.directory.to_vec(),
        groups: it.groups.0.iter().map(|group| group.name.to_vec()).collect(),
    };
    Ok(exports.map(owned).collect())
}
