//! NFSACL version 3: POSIX ACLs beside NFSv3, as Linux and Solaris speak it.
//!
//! On the wire an access ACL always has a mask; one that repeats the group's permissions is
//! added for a list without, and dropped from a list that does not need it.

use steadfast_vfs::{Acl, AclEntry, AclTag, FsError};
use steadfast_wire::nfsacl::{self as wire, AclList, Getacl3Args, SecAttr, Setacl3Args};
use steadfast_xdr::Writer;

use crate::call::{Call, Outcome};
use crate::nfs3::encode;
use crate::nfs3::status::{changes, reads, status};
use crate::operation::Operation;
use crate::program::{Null, Port, Procedure, Program, Row, Version};
use crate::reply::ReplyBuffer;

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

/// Its procedures by number.
const PROCEDURES: &[Row] = &[Row::of::<Null>(), Row::of::<Getacl>(), Row::of::<Setacl>()];

/// NFSACL.
pub(crate) const PROGRAM: Program = Program {
    name: "nfsacl",
    number: steadfast_wire::nfsacl::PROGRAM,
    port: Port::Nfs,
    versions: &[Version::new(3, PROCEDURES)],
};

struct Getacl;

impl Procedure for Getacl {
    const OPERATION: Operation = reads("GETACL", 1);
    type Arguments<'a> = Getacl3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Getacl3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mask = arguments.mask;
        let mut w = Writer::new(&mut reply.bytes);
        let result = call.resolve(arguments.object.0).and_then(|target| {
            if mask & !MASK_ALL != 0 {
                return Err(FsError::Invalid);
            }
            call.may_block(&target)?;
            target.storage.acls(&target.caller(), &target.handle)
        });
        let (access, default, attr) = match result {
            Ok(found) => found,
            Err(error) => return call.fail(&mut w, error),
        };
        encode::ok(&mut w);
        encode::post_op_attr(&mut w, Some(&attr));
        w.u32(mask);
        let access = with_mask(&access, attr.mode);
        let default = default.map(|acl| with_mask(&acl, attr.mode)).unwrap_or_default();
        let owners = (attr.uid, attr.gid);
        let [entries_wanted, count_wanted] =
            [MASK_ACCESS, MASK_ACCESS_COUNT].map(|bit| mask & bit != 0);
        entries(&mut w, &access, owners, entries_wanted, count_wanted, 0);
        let [entries_wanted, count_wanted] =
            [MASK_DEFAULT, MASK_DEFAULT_COUNT].map(|bit| mask & bit != 0);
        entries(&mut w, &default, owners, entries_wanted, count_wanted, TYPE_DEFAULT);
        Outcome::Done
    }
}

struct Setacl;

impl Procedure for Setacl {
    const OPERATION: Operation = changes("SETACL", 1);
    type Arguments<'a> = Setacl3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Setacl3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let SecAttr { mask, access, default } = &arguments.acls;
        let mut w = Writer::new(&mut reply.bytes);
        let checked = call.resolve(arguments.object.0).and_then(|target| {
            if mask & !MASK_ALL != 0 {
                return Err(FsError::Invalid);
            }
            // A list that is not to be set may be there all the same. Of what has no default list the
            // storage knows.
            let wanted = |wire: &AclList, bit| (mask & bit != 0).then(|| list(wire)).transpose();
            let (access, default) = (wanted(access, MASK_ACCESS)?, wanted(default, MASK_DEFAULT)?);
            let change = call.begin_change(&target, None)?;
            Ok((target, access, default, change))
        });
        let (target, access, default, _change) = match checked {
            Ok(checked) => checked,
            Err(error) => return call.fail(&mut w, error),
        };
        let durable = target.storage.set_acls(
            &target.caller(),
            &target.handle,
            access.as_ref(),
            default.as_ref(),
        );
        let encoded = durable.map(|changed| {
            match changed.result {
                Ok(()) => encode::ok(&mut w),
                Err(error) => w.u32(status(error) as u32),
            }
            encode::post_op_attr(&mut w, changed.wcc.after.as_ref());
        });
        call.barrier(encoded)
    }
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

fn list(wire: &AclList) -> Result<Acl, FsError> {
    if wire.count as usize != wire.entries.len() {
        return Err(FsError::Invalid);
    }
    let mut entries = Vec::with_capacity(wire.entries.len());
    for wire::AclEntry { tag: kind, id, permissions } in &wire.entries {
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
    use steadfast_xdr::{Decode, Reader};

    use super::*;

    #[test]
    fn a_mask_is_added_for_the_wire_and_dropped_again() {
        let minimal = Acl::from_mode(0o640);
        let on_wire = with_mask(&minimal, 0o640);
        assert_eq!(on_wire.entries.len(), 4);
        let mut bytes = Vec::new();
        entries(&mut Writer::new(&mut bytes), &on_wire, (5, 6), true, true, 0);
        let decoded = AclList::decode(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(list(&decoded).unwrap(), minimal);
    }

    #[test]
    fn entries_that_make_no_sense_are_invalid() {
        let of = |count, entries: &[(u32, u32, u32)]| {
            let entry = |&(tag, id, permissions): &_| wire::AclEntry { tag, id, permissions };
            list(&AclList { count, entries: entries.iter().map(entry).collect() })
        };
        assert_eq!(of(1, &[(0x40, 0, 7)]), Err(FsError::Invalid));
        assert_eq!(of(1, &[(TYPE_OTHER, 0, 8)]), Err(FsError::Invalid));
        assert_eq!(of(2, &[(TYPE_OTHER, 0, 7)]), Err(FsError::Invalid));
        assert_eq!(of(0, &[(TYPE_OTHER, 0, 7)]), Err(FsError::Invalid));
        assert_eq!(of(0, &[]), Ok(Acl::default()));
    }
}
