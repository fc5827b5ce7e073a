//! The kernel's permission rules, for the checks made outside it.
//!
//! Reads of attributes and I/O on cached open files are checked here against current
//! attributes and ACLs (Linux `generic_permission`, `posix_acl_permission`); operations that
//! change names or attributes run with the caller's identity and are decided by the kernel. A
//! property test in `posixfs` holds the two against each other.

use crate::{Acl, AclTag, Attr, Cred, FileKind};

/// Permission to read a file or list a directory.
pub const READ: u8 = 4;
/// Permission to write.
pub const WRITE: u8 = 2;
/// Permission to execute a file or search a directory.
pub const EXECUTE: u8 = 1;

/// Whether `cred` may do all of `wanted` ([`READ`] | [`WRITE`] | [`EXECUTE`]) to an object with
/// these attributes and this access ACL (`None`: the mode bits alone decide).
pub fn is_allowed(attr: &Attr, acl: Option<&Acl>, cred: &Cred, wanted: u8) -> bool {
    if cred.is_superuser() {
        // CAP_DAC_OVERRIDE: all but executing a file that nobody may execute.
        return attr.kind == FileKind::Directory || wanted & EXECUTE == 0 || attr.mode & 0o111 != 0;
    }
    granted(attr, acl, cred) & wanted == wanted
        || acl.is_some_and(|acl| group_entry_allows(attr, acl, cred, wanted))
}

fn granted(attr: &Attr, acl: Option<&Acl>, cred: &Cred) -> u8 {
    let bits = |shift: u32| ((attr.mode >> shift) & 7) as u8;
    if cred.uid == attr.uid {
        return bits(6);
    }
    let Some(acl) = acl else {
        return if cred.is_member(attr.gid) { bits(3) } else { bits(0) };
    };
    let mask = mask_of(acl);
    for entry in &acl.entries {
        if entry.tag == AclTag::User(cred.uid) {
            return entry.permissions & mask;
        }
    }
    let belongs = acl.entries.iter().any(|entry| match entry.tag {
        AclTag::GroupObject => cred.is_member(attr.gid),
        AclTag::Group(gid) => cred.is_member(gid),
        _ => false,
    });
    // Each group entry stands alone: see `group_entry_allows`.
    if belongs { 0 } else { bits(0) }
}

/// Whether some one group entry that applies grants everything wanted. Owner and named users
/// never come here with a grant, since their entry decided.
fn group_entry_allows(attr: &Attr, acl: &Acl, cred: &Cred, wanted: u8) -> bool {
    if cred.uid == attr.uid || acl.entries.iter().any(|entry| entry.tag == AclTag::User(cred.uid)) {
        return false;
    }
    let mask = mask_of(acl);
    acl.entries.iter().any(|entry| {
        let applies = match entry.tag {
            AclTag::GroupObject => cred.is_member(attr.gid),
            AclTag::Group(gid) => cred.is_member(gid),
            _ => false,
        };
        applies && entry.permissions & mask & wanted == wanted
    })
}

fn mask_of(acl: &Acl) -> u8 {
    acl.entries.iter().find(|entry| entry.tag == AclTag::Mask).map_or(7, |entry| entry.permissions)
}
