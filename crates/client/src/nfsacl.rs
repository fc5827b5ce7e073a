//! NFSACL, version 3: POSIX ACLs beside NFSv3.

use steadfast_xdr::{Reader, Writer, XdrError};

use crate::call::{Procedure, encoded};
use crate::error::ClientError;
use crate::nfs3::{Beside, Nfs3Client};
use crate::object::{self, Attributes, FileHandle};
use crate::transport::RpcTransport;

/// The RPC program of NFSACL.
pub const NFSACL: u32 = 100_227;

/// GETACL.
pub const GETACL: Procedure = Procedure { program: NFSACL, version: 3, number: 1, name: "GETACL" };
/// SETACL.
pub const SETACL: Procedure = Procedure { program: NFSACL, version: 3, number: 2, name: "SETACL" };

/// Access ACL, its count, default ACL, its count.
pub const MASK_ALL: u32 = 0xf;
const ENTRIES_MAX: u32 = 1024;

/// An entry: who, and what (read 4, write 2, execute 1).
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// The type's number: owner 1, user 2, group 4, named group 8, mask 16, other 32; 0x1000
    /// more in a default ACL.
    pub tag: u32,
    pub id: u32,
    pub permissions: u32,
}

/// Both ACLs of an object.
#[allow(missing_docs)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acls {
    pub attributes: Option<Attributes>,
    pub access: Vec<AclEntry>,
    pub default: Vec<AclEntry>,
}

fn entries(r: &mut Reader<'_>) -> Result<Vec<AclEntry>, XdrError> {
    let _count = r.u32()?;
    let length = r.u32()?;
    if length > ENTRIES_MAX {
        return Err(XdrError::TooLong { length, max: ENTRIES_MAX });
    }
    (0..length)
        .map(|_| Ok(AclEntry { tag: r.u32()?, id: r.u32()?, permissions: r.u32()? }))
        .collect()
}

fn write_entries(w: &mut Writer<'_>, entries: &[AclEntry]) {
    w.u32(entries.len() as u32);
    w.u32(entries.len() as u32);
    for entry in entries {
        for word in [entry.tag, entry.id, entry.permissions] {
            w.u32(word);
        }
    }
}

/// Arguments of GETACL.
pub fn getacl_arguments(object: &FileHandle, mask: u32) -> Vec<u8> {
    encoded(|w| {
        w.opaque(object.as_bytes());
        w.u32(mask);
    })
}

/// Arguments of SETACL.
pub fn setacl_arguments(
    object: &FileHandle,
    mask: u32,
    access: &[AclEntry],
    default: &[AclEntry],
) -> Vec<u8> {
    encoded(|w| {
        w.opaque(object.as_bytes());
        w.u32(mask);
        write_entries(w, access);
        write_entries(w, default);
    })
}

impl<T: RpcTransport> Nfs3Client<T> {
    /// GETACL of both lists.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn getacl(&mut self, object: &FileHandle) -> Result<Acls, ClientError> {
        let arguments = getacl_arguments(object, MASK_ALL);
        self.run(GETACL, &arguments, Beside::Attributes, |r| {
            let attributes = object::post(r)?;
            let _mask = r.u32()?;
            Ok(Acls { attributes, access: entries(r)?, default: entries(r)? })
        })
    }

    /// SETACL of the lists that `mask` names (access 1, default 4).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn setacl(
        &mut self,
        object: &FileHandle,
        mask: u32,
        access: &[AclEntry],
        default: &[AclEntry],
    ) -> Result<Option<Attributes>, ClientError> {
        let arguments = setacl_arguments(object, mask, access, default);
        self.run(SETACL, &arguments, Beside::Attributes, object::post)
    }
}
