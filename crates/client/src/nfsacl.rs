//! NFSACL, version 3: POSIX ACLs beside NFSv3.

use steadfast_wire::nfs3::NfsFh3;
use steadfast_wire::nfsacl::{AclList, Getacl3Args, Getacl3Ok, SecAttr, Setacl3Args};
use steadfast_xdr::{Decode, Encode};

use crate::call::{Procedure, encoded};
use crate::error::ClientError;
use crate::nfs3::{Beside, Nfs3Client};
use crate::object::{self, Attributes, FileHandle};
use crate::transport::RpcTransport;

pub use steadfast_wire::nfsacl::{AclEntry, PROGRAM as NFSACL};

/// GETACL.
pub const GETACL: Procedure = Procedure { program: NFSACL, version: 3, number: 1, name: "GETACL" };
/// SETACL.
pub const SETACL: Procedure = Procedure { program: NFSACL, version: 3, number: 2, name: "SETACL" };

/// Access ACL, its count, default ACL, its count.
pub const MASK_ALL: u32 = 0xf;

/// Both ACLs of an object.
#[allow(missing_docs)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acls {
    pub attributes: Option<Attributes>,
    pub access: Vec<AclEntry>,
    pub default: Vec<AclEntry>,
}

fn list(entries: &[AclEntry]) -> AclList {
    AclList { count: entries.len() as u32, entries: entries.to_vec() }
}

/// Arguments of GETACL.
pub fn getacl_arguments(object: &FileHandle, mask: u32) -> Vec<u8> {
    let object = NfsFh3(object.as_bytes());
    encoded(|w| Getacl3Args { object, mask }.encode(w))
}

/// Arguments of SETACL.
pub fn setacl_arguments(
    object: &FileHandle,
    mask: u32,
    access: &[AclEntry],
    default: &[AclEntry],
) -> Vec<u8> {
    let object = NfsFh3(object.as_bytes());
    let acls = SecAttr { mask, access: list(access), default: list(default) };
    encoded(|w| Setacl3Args { object, acls }.encode(w))
}

impl<T: RpcTransport> Nfs3Client<T> {
    /// GETACL of both lists.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn getacl(&mut self, object: &FileHandle) -> Result<Acls, ClientError> {
        let arguments = getacl_arguments(object, MASK_ALL);
        self.run(GETACL, &arguments, Beside::Attributes, |r| {
            let Getacl3Ok { obj_attributes, acls } = Getacl3Ok::decode(r)?;
            let (access, default) = (acls.access.entries, acls.default.entries);
            Ok(Acls { attributes: obj_attributes.map(Into::into), access, default })
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
