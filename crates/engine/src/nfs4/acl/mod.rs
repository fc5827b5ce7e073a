//! Access control lists of NFSv4 (RFC 8881 §6) over POSIX ACLs, both ways.
//!
//! The kernel decides about access, by POSIX ACLs. [`told`] tells a POSIX ACL as a list of NFSv4
//! that grants the same rights. [`meant()`] makes POSIX ACLs of a list that a client sets. They never
//! grant more than the list. They may grant less, where a list depends on who is in which groups.
//! A list is refused if it denies what POSIX ACLs cannot deny, or grants a part of what they can
//! only grant as a whole.

mod meant;
mod told;

#[cfg(test)]
mod tests;

#[cfg(test)]
use self::meant::ENTRIES_MAX;
pub(super) use self::meant::{Entry, Lists, entries, meant};
pub(super) use self::told::{Namer, encode};

/// `ACL4_SUPPORT_ALLOW_ACL` and `ACL4_SUPPORT_DENY_ACL`.
pub(super) const SUPPORT: u32 = 0b11;

/// `acetype4`.
const ALLOW: u32 = 0;
const DENY: u32 = 1;
const AUDIT: u32 = 2;
const ALARM: u32 = 3;

/// `aceflag4`.
const FILE_INHERIT: u32 = 0x1;
const DIRECTORY_INHERIT: u32 = 0x2;
const NO_PROPAGATE_INHERIT: u32 = 0x4;
const INHERIT_ONLY: u32 = 0x8;
const SUCCESSFUL_ACCESS: u32 = 0x10;
const FAILED_ACCESS: u32 = 0x20;
const IDENTIFIER_GROUP: u32 = 0x40;
const INHERITED: u32 = 0x80;
/// A POSIX default ACL is inherited by files and directories alike.
const INHERIT: u32 = FILE_INHERIT | DIRECTORY_INHERIT;

/// `acemask4`.
const READ_DATA: u32 = 0x1;
const WRITE_DATA: u32 = 0x2;
const APPEND_DATA: u32 = 0x4;
const READ_NAMED_ATTRS: u32 = 0x8;
const WRITE_NAMED_ATTRS: u32 = 0x10;
const EXECUTE: u32 = 0x20;
const DELETE_CHILD: u32 = 0x40;
const READ_ATTRIBUTES: u32 = 0x80;
const WRITE_ATTRIBUTES: u32 = 0x100;
const WRITE_RETENTION: u32 = 0x200;
const WRITE_RETENTION_HOLD: u32 = 0x400;
const DELETE: u32 = 0x1_0000;
const READ_ACL: u32 = 0x2_0000;
const WRITE_ACL: u32 = 0x4_0000;
const WRITE_OWNER: u32 = 0x8_0000;
const SYNCHRONIZE: u32 = 0x10_0000;

/// What everybody has who can reach an object.
const OF_ALL: u32 = READ_ATTRIBUTES | READ_ACL | SYNCHRONIZE;
/// What its owner has beside.
const OF_OWNER: u32 = WRITE_ATTRIBUTES | WRITE_ACL;

/// Bits of permissions, as POSIX ACLs have them.
const READ: u8 = 4;
const WRITE: u8 = 2;
const SEARCH: u8 = 1;

const OWNER_WHO: &[u8] = b"OWNER@";
const GROUP_WHO: &[u8] = b"GROUP@";
const EVERYONE_WHO: &[u8] = b"EVERYONE@";

/// What write permission is of an object.
const fn write_mask(is_directory: bool) -> u32 {
    let of_all = WRITE_DATA | APPEND_DATA;
    if is_directory { of_all | DELETE_CHILD } else { of_all }
}
