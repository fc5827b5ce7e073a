//! NFSACL version 3: POSIX ACLs beside NFSv3, as Linux and Solaris speak it.
//!
//! On the wire an access ACL always has a mask; one that repeats the group's permissions is
//! added for a list without, and dropped from a list that does not need it.

use steadfast_vfs::{Acl, AclEntry, AclTag, FsError};
use steadfast_xdr::{Reader, Writer, XdrError};

use crate::nfs3::encode;
use crate::nfs3::status::status;
use crate::session::{Outcome, Session, barrier};

const HANDLE_BYTES_MAX: usize = 64;
/// Most entries in one list.
const ENTRIES_MAX: u32 = 1024;

const MASK_ACCESS: u32 = 0x1;
const MASK_ACCESS_COUNT: u32 = 0x2;
const MASK_DEFAULT: u32 = 0x4;
const MASK_DEFAULT_COUNT: u32 = 0x8;
const MASK_ALL: u32 = MASK_ACCESS | MASK_ACCESS_COUNT | MASK_DEFAULT | MASK_DEFAULT_COUNT;

const TYPE_USER_OBJECT: u32 = 0x1;
const TYPE_USER: u32 = 0x2;
const TYPE_GROUP_OBJECT: u32 = 0x4;
const TYPE_GROUP: u32 = 0x8;
const TYPE_MASK: u32 = 0x10;
const TYPE_OTHER: u32 = 0x20;
/// Added to the type of entries of a default ACL.
const TYPE_DEFAULT: u32 = 0x1000;

/// Runs a procedure; `None` for a number that does not exist.
pub(crate) fn execute(
    procedure: u32,
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Option<Result<Outcome, XdrError>> {
    Some(match procedure {
        0 => Ok(Outcome::Done),
        1 => getacl(session, arguments, reply),
        2 => setacl(session, arguments, reply),
        _ => return None,
    })
}

fn getacl(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, XdrError> {
    let object = arguments.opaque(HANDLE_BYTES_MAX)?;
    let mask = arguments.u32()?;
    let mut w = Writer::new(reply);
    let result = session.resolve(object).and_then(|target| {
        if mask & !MASK_ALL != 0 {
            return Err(FsError::Invalid);
        }
        session.may_block(&target)?;
        Ok((target.storage.acls(&target.caller(), &target.handle)?, target.cred.uid))
    });
    match result {
        Ok(((access, default, attr), _)) => {
            encode::ok(&mut w);
            encode::post_op_attr(&mut w, Some(&attr));
            w.u32(mask);
            let access = with_mask(&access, attr.mode);
            let default = default.map(|acl| with_mask(&acl, attr.mode)).unwrap_or_default();
            let owners = (attr.uid, attr.gid);
            entries(
                &mut w,
                &access,
                owners,
                mask & MASK_ACCESS != 0,
                mask & MASK_ACCESS_COUNT != 0,
                0,
            );
            entries(
                &mut w,
                &default,
                owners,
                mask & MASK_DEFAULT != 0,
                mask & MASK_DEFAULT_COUNT != 0,
                TYPE_DEFAULT,
            );
        }
        Err(error) => encode::failure(&mut w, error, 1),
    }
    Ok(Outcome::Done)
}

fn setacl(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, XdrError> {
    let object = arguments.opaque(HANDLE_BYTES_MAX)?;
    let mask = arguments.u32()?;
    let access = decode_entries(arguments)?;
    let default = decode_entries(arguments)?;
    let mut w = Writer::new(reply);
    let checked = session.resolve(object).and_then(|target| {
        if mask & !MASK_ALL != 0 {
            return Err(FsError::Invalid);
        }
        // A list that is not to be set may be there all the same. Of what has no default list the
        // storage knows.
        let wanted = |wire: &WireList, bit| (mask & bit != 0).then(|| list(wire)).transpose();
        let (access, default) = (wanted(&access, MASK_ACCESS)?, wanted(&default, MASK_DEFAULT)?);
        Ok((target, access, default))
    });
    let (target, access, default) = match checked {
        Ok(checked) => checked,
        Err(error) => {
            encode::failure(&mut w, error, 1);
            return Ok(Outcome::Done);
        }
    };
    let durable = target.storage.set_acls(
        &target.caller(),
        &target.handle,
        access.as_ref(),
        default.as_ref(),
    );
    Ok(barrier(durable.map(|changed| {
        match changed.result {
            Ok(()) => encode::ok(&mut w),
            Err(error) => w.u32(status(error) as u32),
        }
        encode::post_op_attr(&mut w, changed.wcc.after.as_ref());
    })))
}

/// The list with a mask, as the wire wants it. An empty list (no default ACL) stays empty.
fn with_mask(acl: &Acl, mode: u32) -> Acl {
    let mut acl = acl.clone();
    let has_mask = acl.entries.iter().any(|entry| entry.tag == AclTag::Mask);
    if !acl.entries.is_empty() && !has_mask {
        let group = acl.entries.iter().find(|entry| entry.tag == AclTag::GroupObject);
        let permissions = group.map_or((mode >> 3 & 7) as u8, |entry| entry.permissions);
        acl.entries.push(AclEntry { tag: AclTag::Mask, permissions });
        acl.entries.sort_by_key(|entry| entry.tag);
    }
    acl
}

/// `owners`: the file's user and group, which their entries carry as ids.
fn entries(
    w: &mut Writer<'_>,
    acl: &Acl,
    owners: (u32, u32),
    wants_entries: bool,
    wants_count: bool,
    type_flags: u32,
) {
    let count = acl.entries.len() as u32;
    w.u32(if wants_entries || wants_count { count } else { 0 });
    w.u32(if wants_entries { count } else { 0 });
    if wants_entries {
        for entry in &acl.entries {
            let (kind, id) = match entry.tag {
                AclTag::UserObject => (TYPE_USER_OBJECT, owners.0),
                AclTag::User(uid) => (TYPE_USER, uid),
                AclTag::GroupObject => (TYPE_GROUP_OBJECT, owners.1),
                AclTag::Group(gid) => (TYPE_GROUP, gid),
                AclTag::Mask => (TYPE_MASK, 0),
                AclTag::Other => (TYPE_OTHER, 0),
            };
            w.u32(kind | type_flags);
            w.u32(id);
            w.u32(u32::from(entry.permissions));
        }
    }
}

/// A list as it came.
struct WireList {
    /// How many entries it is said to have.
    count: u32,
    /// Of each its type, id, permissions.
    entries: Vec<(u32, u32, u32)>,
}

fn decode_entries(arguments: &mut Reader<'_>) -> Result<WireList, XdrError> {
    let count = arguments.u32()?;
    let length = arguments.u32()?;
    if length > ENTRIES_MAX {
        return Err(XdrError::TooLong { length, max: ENTRIES_MAX });
    }
    let entries: Result<_, XdrError> =
        (0..length).map(|_| Ok((arguments.u32()?, arguments.u32()?, arguments.u32()?))).collect();
    Ok(WireList { count, entries: entries? })
}

fn list(wire: &WireList) -> Result<Acl, FsError> {
    if wire.count as usize != wire.entries.len() {
        return Err(FsError::Invalid);
    }
    let mut entries = Vec::with_capacity(wire.entries.len());
    for (kind, id, permissions) in &wire.entries {
        let tag = match kind & !TYPE_DEFAULT {
            TYPE_USER_OBJECT => AclTag::UserObject,
            TYPE_USER => AclTag::User(*id),
            TYPE_GROUP_OBJECT => AclTag::GroupObject,
            TYPE_GROUP => AclTag::Group(*id),
            TYPE_MASK => AclTag::Mask,
            TYPE_OTHER => AclTag::Other,
            _ => return Err(FsError::Invalid),
        };
        if permissions & !7 != 0 {
            return Err(FsError::Invalid);
        }
        entries.push(AclEntry { tag, permissions: *permissions as u8 });
    }
    entries.sort_by_key(|entry| entry.tag);
    // Four entries may be the three of the mode and a mask that says nothing more.
    let permissions_of = |tag| {
        entries.iter().find(|entry| entry.tag == tag).map(|entry: &AclEntry| entry.permissions)
    };
    if entries.len() == 4 && permissions_of(AclTag::Mask) == permissions_of(AclTag::GroupObject) {
        entries.retain(|entry| entry.tag != AclTag::Mask);
    }
    Ok(Acl { entries })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_added_for_the_wire_and_dropped_again() {
        let minimal = Acl::from_mode(0o640);
        let on_wire = with_mask(&minimal, 0o640);
        assert_eq!(on_wire.entries.len(), 4);
        let mut bytes = Vec::new();
        entries(&mut Writer::new(&mut bytes), &on_wire, (5, 6), true, true, 0);
        let decoded = decode_entries(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(list(&decoded).unwrap(), minimal);
    }

    #[test]
    fn entries_that_make_no_sense_are_invalid() {
        let of = |count, entries: &[_]| list(&WireList { count, entries: entries.to_vec() });
        assert_eq!(of(1, &[(0x40, 0, 7)]), Err(FsError::Invalid));
        assert_eq!(of(1, &[(TYPE_OTHER, 0, 8)]), Err(FsError::Invalid));
        assert_eq!(of(2, &[(TYPE_OTHER, 0, 7)]), Err(FsError::Invalid));
        assert_eq!(of(0, &[(TYPE_OTHER, 0, 7)]), Err(FsError::Invalid));
        assert_eq!(of(0, &[]), Ok(Acl::default()));
    }
}
