//! Extended attributes of users: GETXATTR, LISTXATTRS, SETXATTR, REMOVEXATTR.
//!
//! Who may do what is as xattr(7) has it. Setting and removing are not in the log: the object is flushed.

use std::ffi::CString;

use rustix::io::Errno;
use steadfast_sys::xattr::{self, Presence};
use steadfast_vfs::permission::READ;
use steadfast_vfs::{
    Attr, Caller, Changed, Durable, FsError, SetXattrHow, StorageHandle, XATTR_NAME_BYTES_MAX,
    XATTR_VALUE_BYTES_MAX,
};

use super::Tree;
use crate::error::from_errno;
use crate::traits::can_have_user_attributes;

/// What names of users' attributes begin with.
const NAMESPACE: &[u8] = b"user.";
/// Most values are shorter.
const VALUE_BYTES: usize = 4096;
/// Bytes of all names of an object (`XATTR_LIST_MAX`).
const LIST_BYTES_MAX: usize = 64 << 10;

/// A name as the kernel has it.
fn full_name(name: &[u8]) -> Result<CString, FsError> {
    if name.len() > XATTR_NAME_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    if name.is_empty() {
        return Err(FsError::Invalid);
    }
    CString::new([NAMESPACE, name].concat()).map_err(|_| FsError::Invalid)
}

fn error(errno: Errno) -> FsError {
    match errno {
        Errno::NODATA => FsError::NotFound,
        Errno::TOOBIG | Errno::RANGE => FsError::FileTooLarge,
        errno => from_errno(errno),
    }
}

impl Tree {
    pub(crate) fn do_xattr(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        name: &[u8],
    ) -> Result<Vec<u8>, FsError> {
        let name = full_name(name)?;
        let (node, attr) = self.live(object, caller.waiting)?;
        if !can_have_user_attributes(attr.kind) {
            return Err(FsError::NotFound);
        }
        node.require(&attr, caller.cred, READ)?;
        // The kernel asks too, and this thread may be somebody else still.
        self.assume_server()?;
        let mut value = vec![0; VALUE_BYTES];
        let mut read = xattr::value(&node.path, &name, &mut value);
        if read == Err(Errno::RANGE) {
            value.resize(XATTR_VALUE_BYTES_MAX, 0);
            read = xattr::value(&node.path, &name, &mut value);
        }
        value.truncate(read.map_err(error)?);
        Ok(value)
    }

    pub(crate) fn do_xattr_names(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
    ) -> Result<Vec<Vec<u8>>, FsError> {
        let (node, attr) = self.live(object, caller.waiting)?;
        if !can_have_user_attributes(attr.kind) {
            return Ok(Vec::new());
        }
        node.require(&attr, caller.cred, READ)?;
        self.assume_server()?;
        let mut all = vec![0; VALUE_BYTES];
        let mut read = xattr::names(&node.path, &mut all);
        if read == Err(Errno::RANGE) {
            all.resize(LIST_BYTES_MAX, 0);
            read = xattr::names(&node.path, &mut all);
        }
        all.truncate(read.map_err(error)?);
        let own = all.split(|byte| *byte == 0).filter_map(|name| name.strip_prefix(NAMESPACE));
        Ok(own.map(<[u8]>::to_vec).collect())
    }

    pub(crate) fn do_set_xattr(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        name: &[u8],
        value: &[u8],
        how: SetXattrHow,
    ) -> Durable<Changed<()>> {
        let presence = match how {
            SetXattrHow::Either => Presence::Any,
            SetXattrHow::Create => Presence::Absent,
            SetXattrHow::Replace => Presence::Present,
        };
        self.change_beside_log(caller, object, |node, before| {
            let name = full_name(name)?;
            require_can_have(before)?;
            if value.len() > XATTR_VALUE_BYTES_MAX {
                return Err(FsError::FileTooLarge);
            }
            self.assume(caller.cred)?;
            xattr::set_if(&node.path, &name, value, presence).map_err(error)
        })
    }

    pub(crate) fn do_remove_xattr(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        name: &[u8],
    ) -> Durable<Changed<()>> {
        self.change_beside_log(caller, object, |node, before| {
            let name = full_name(name)?;
            require_can_have(before)?;
            self.assume(caller.cred)?;
            xattr::remove(&node.path, &name).map_err(error)
        })
    }
}

/// As the kernel answers, which does not look whose the object is.
fn require_can_have(attr: &Attr) -> Result<(), FsError> {
    if can_have_user_attributes(attr.kind) { Ok(()) } else { Err(FsError::NotPermitted) }
}
