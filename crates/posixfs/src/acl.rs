//! POSIX ACLs as the kernel keeps them in extended attributes (`posix_acl_xattr.h`, version 2).

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use steadfast_recovery::ACL_BYTES_MAX;
use steadfast_sys::xattr;
use steadfast_vfs::{Acl, AclEntry, AclTag, FileKind, FsError};

use crate::attributes;
use crate::error::from_errno;

const ACCESS: &CStr = c"system.posix_acl_access";
const DEFAULT: &CStr = c"system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// The NFSACL protocol and the Linux client bound lists at 1024 entries (`NFS_ACL_MAX_ENTRIES`).
const ENTRIES_MAX: usize = 1024;
const UNDEFINED_ID: u32 = u32::MAX;

const TAG_USER_OBJECT: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_GROUP_OBJECT: u16 = 0x04;
const TAG_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHER: u16 = 0x20;

/// Which of an object's two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Access,
    Default,
}

impl Which {
    fn attribute(self) -> &'static CStr {
        match self {
            Self::Access => ACCESS,
            Self::Default => DEFAULT,
        }
    }
}

/// Whether the file system of `object` keeps ACLs. An object that can have none, like a symbolic
/// link, does not show that: then `is_known` tells whether such file systems have them.
pub(crate) fn are_supported(object: impl AsFd, is_known: bool) -> Result<bool, FsError> {
    let object = object.as_fd();
    let can_have_one = matches!(
        attributes::kind(&attributes::stat(object)?),
        FileKind::Regular | FileKind::Directory
    );
    match xattr::value(object, ACCESS, &mut []) {
        Ok(_) | Err(Errno::NODATA | Errno::RANGE) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(!can_have_one && is_known),
        Err(errno) => {
            // Without /proc it cannot be told, and nobody may be let in by the mode bits alone.
            tracing::error!("cannot read ACLs (is /proc mounted?): {errno}");
            Err(from_errno(errno))
        }
    }
}

/// A list of an open object, if it has one.
pub(crate) fn read(object: impl AsFd, which: Which) -> Result<Option<Acl>, FsError> {
    let object = object.as_fd();
    let mut small = [0; HEADER_BYTES + 32 * ENTRY_BYTES];
    match xattr::value(object, which.attribute(), &mut small) {
        Ok(length) => decode(small.get(..length).unwrap_or(&[])).map(Some),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(Errno::RANGE) => {
            let mut large = vec![0; HEADER_BYTES + ENTRIES_MAX * ENTRY_BYTES];
            let length = xattr::value(object, which.attribute(), &mut large).map_err(from_errno)?;
            decode(large.get(..length).unwrap_or(&[])).map(Some)
        }
        Err(errno) => Err(from_errno(errno)),
    }
}

/// Sets a list, by the thread's identity; an empty one is removed.
pub(crate) fn write(object: impl AsFd, which: Which, acl: &Acl) -> Result<(), FsError> {
    let bytes =
        if acl.entries.is_empty() { Vec::new() } else { encode(acl).ok_or(FsError::Invalid)? };
    write_encoded(object, which, &bytes)
}

/// Gives an open object a list as [`encoded`] made it.
pub(crate) fn write_encoded(object: impl AsFd, which: Which, bytes: &[u8]) -> Result<(), FsError> {
    if bytes.is_empty() {
        return match xattr::remove(object, which.attribute()) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(errno) => Err(from_errno(errno)),
        };
    }
    xattr::set(object, which.attribute(), bytes).map_err(from_errno)
}

/// A list of an object as the kernel keeps it, read by `value`; empty if it has none.
pub(crate) fn kept<'o>(
    object: BorrowedFd<'o>,
    which: Which,
    value: impl Fn(BorrowedFd<'o>, &CStr, &mut [u8]) -> rustix::io::Result<usize>,
) -> Result<Vec<u8>, FsError> {
    let mut small = [0; HEADER_BYTES + 32 * ENTRY_BYTES];
    match value(object, which.attribute(), &mut small) {
        Ok(length) => Ok(small.get(..length).unwrap_or(&[]).to_vec()),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(Vec::new()),
        Err(Errno::RANGE) => {
            let mut large = vec![0; ACL_BYTES_MAX];
            let length = value(object, which.attribute(), &mut large).map_err(from_errno)?;
            large.truncate(length);
            Ok(large)
        }
        Err(errno) => Err(from_errno(errno)),
    }
}

/// A list with the permission bits of a mode, as the kernel changes it when the mode is set; `None`
/// if it is no list.
pub(crate) fn with_mode(bytes: &[u8], mode: u32) -> Option<Vec<u8>> {
    let mut acl = decode(bytes).ok()?;
    let has_mask = acl.entries.iter().any(|entry| entry.tag == AclTag::Mask);
    for entry in &mut acl.entries {
        let shift = match entry.tag {
            AclTag::UserObject => 6,
            AclTag::Mask => 3,
            AclTag::GroupObject if !has_mask => 3,
            AclTag::Other => 0,
            _ => continue,
        };
        entry.permissions = (mode >> shift & 7) as u8;
    }
    encode(&acl)
}

fn decode(bytes: &[u8]) -> Result<Acl, FsError> {
    let malformed = || {
        tracing::error!(bytes = bytes.len(), "the kernel gave an ACL that cannot be read");
        FsError::Io
    };
    let (version, mut rest) = bytes.split_first_chunk::<4>().ok_or_else(malformed)?;
    if u32::from_le_bytes(*version) != VERSION || !rest.len().is_multiple_of(ENTRY_BYTES) {
        return Err(malformed());
    }
    let mut entries = Vec::with_capacity(rest.len() / ENTRY_BYTES);
    while let Some(([tag0, tag1, bits0, bits1, id @ ..], left)) =
        rest.split_first_chunk::<ENTRY_BYTES>()
    {
        rest = left;
        let id = u32::from_le_bytes(*id);
        let tag = match u16::from_le_bytes([*tag0, *tag1]) {
            TAG_USER_OBJECT => AclTag::UserObject,
            TAG_USER => AclTag::User(id),
            TAG_GROUP_OBJECT => AclTag::GroupObject,
            TAG_GROUP => AclTag::Group(id),
            TAG_MASK => AclTag::Mask,
            TAG_OTHER => AclTag::Other,
            _ => return Err(malformed()),
        };
        let permissions = (u16::from_le_bytes([*bits0, *bits1]) & 7) as u8;
        entries.push(AclEntry { tag, permissions });
    }
    Ok(Acl { entries })
}

/// A list as the kernel keeps it, for the log; nothing for an empty one, which is not kept.
pub(crate) fn encoded(acl: &Acl) -> Vec<u8> {
    if acl.entries.is_empty() { Vec::new() } else { encode(acl).unwrap_or_default() }
}

/// `None` for a list that is too long or whose permissions are no permissions. The kernel checks
/// that the entries make a list, for which they must be in order.
fn encode(acl: &Acl) -> Option<Vec<u8>> {
    if acl.entries.len() > ENTRIES_MAX {
        return None;
    }
    let mut entries = acl.entries.clone();
    entries.sort_by_key(|entry| entry.tag);
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for entry in &entries {
        if entry.permissions > 7 {
            return None;
        }
        let (tag, id) = match entry.tag {
            AclTag::UserObject => (TAG_USER_OBJECT, UNDEFINED_ID),
            AclTag::User(id) => (TAG_USER, id),
            AclTag::GroupObject => (TAG_GROUP_OBJECT, UNDEFINED_ID),
            AclTag::Group(id) => (TAG_GROUP, id),
            AclTag::Mask => (TAG_MASK, UNDEFINED_ID),
            AclTag::Other => (TAG_OTHER, UNDEFINED_ID),
        };
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&u16::from(entry.permissions).to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_kept_sorted_and_whole() {
        let entry = |tag, permissions| AclEntry { tag, permissions };
        let acl = Acl {
            entries: vec![
                entry(AclTag::Other, 0),
                entry(AclTag::Mask, 7),
                entry(AclTag::Group(9), 5),
                entry(AclTag::User(7), 6),
                entry(AclTag::UserObject, 7),
                entry(AclTag::GroupObject, 4),
            ],
        };
        let mut sorted = acl.clone();
        sorted.entries.sort_by_key(|entry| entry.tag);
        assert_eq!(decode(&encode(&acl).unwrap()).unwrap(), sorted);
        assert_eq!(encode(&Acl { entries: vec![entry(AclTag::Other, 8)] }), None);
        assert_eq!(encode(&Acl { entries: vec![entry(AclTag::Other, 1); 1025] }), None);
        for bytes in [
            &[][..],
            &[2, 0, 0],
            &[1, 0, 0, 0],
            &[2, 0, 0, 0, 1],
            &[2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(decode(bytes), Err(FsError::Io));
        }
    }
}
