//! NFSACL version 3: POSIX ACLs beside NFSv3, as Linux and Solaris speak it. Statuses and attributes are written as
//! NFSv3 writes them, lists as [`steadfast_wire::nfsacl`] has them.
//!
//! On the wire an access ACL always has a mask; one that repeats the group's permissions is
//! added for a list without, and dropped from a list that does not need it.

use steadfast_vfs::{Acl, AclEntry, AclTag, Attr, FsError};
use steadfast_wire::nfsacl::{self as wire, AclList, Getacl3Args, SecAttr, Setacl3Args};
use steadfast_xdr::{Encode, Writer};

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
            let since = call.begin_telling();
            let (access, default, attr) = target.storage.acls(&target.caller(), &target.handle)?;
            let may_tell = call.told(since, target.storage, &target.handle, &attr).is_some();
            Ok((access, default, attr, may_tell))
        });
        let (access, default, attr, may_tell) = match result {
            Ok(found) => found,
            Err(error) => return call.fail(&mut w, error),
        };
        encode::ok(&mut w);
        encode::post_op_attr(&mut w, Some(&attr).filter(|_| may_tell));
        lists(mask, access, default, &attr).encode(&mut w);
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
fn with_mask(mut acl: Acl, mode: u32) -> Acl {
    let has_mask = acl.entries.iter().any(|entry| entry.tag == AclTag::Mask);
    if !acl.entries.is_empty() && !has_mask {
        let group = acl.entries.iter().find(|entry| entry.tag == AclTag::GroupObject);
        let permissions = group.map_or((mode >> 3 & 7) as u8, |entry| entry.permissions);
        acl.entries.push(AclEntry { tag: AclTag::Mask, permissions });
        acl.entries.sort_by_key(|entry| entry.tag);
    }
    acl
}

/// What `mask` asks for of an object's lists.
fn lists(mask: u32, access: Acl, default: Option<Acl>, attr: &Attr) -> SecAttr {
    let told = |acl: Acl, bit, count_bit, type_flags| {
        let acl = with_mask(acl, attr.mode);
        let (wants_entries, wants_count) = (mask & bit != 0, mask & count_bit != 0);
        let told = if wants_entries { acl.entries.as_slice() } else { &[] };
        AclList {
            count: if wants_entries || wants_count { acl.entries.len() as u32 } else { 0 },
            entries: told.iter().map(|entry| told_entry(*entry, attr, type_flags)).collect(),
        }
    };
    SecAttr {
        mask,
        access: told(access, MASK_ACCESS, MASK_ACCESS_COUNT, 0),
        default: told(default.unwrap_or_default(), MASK_DEFAULT, MASK_DEFAULT_COUNT, TYPE_DEFAULT),
    }
}

/// The entries of the file's user and group carry these as ids.
fn told_entry(entry: AclEntry, attr: &Attr, type_flags: u32) -> wire::AclEntry {
    let (kind, id) = match entry.tag {
        AclTag::UserObject => (TYPE_USER_OBJECT, attr.uid),
        AclTag::User(uid) => (TYPE_USER, uid),
        AclTag::GroupObject => (TYPE_GROUP_OBJECT, attr.gid),
        AclTag::Group(gid) => (TYPE_GROUP, gid),
        AclTag::Mask => (TYPE_MASK, 0),
        AclTag::Other => (TYPE_OTHER, 0),
    };
    wire::AclEntry { tag: kind | type_flags, id, permissions: entry.permissions.into() }
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
    use steadfast_vfs::{DeviceNumber, FileKind, Time};
    use steadfast_xdr::{Decode, Reader};

    use super::*;

    /// Of a directory of user 5 and group 6.
    fn attributes(mode: u32) -> Attr {
        Attr {
            kind: FileKind::Directory,
            mode,
            links: 1,
            uid: 5,
            gid: 6,
            size: 0,
            used: 0,
            device: DeviceNumber { major: 0, minor: 0 },
            fsid: 1,
            fileid: 2,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
        }
    }

    fn encoded(lists: &SecAttr) -> Vec<u8> {
        let mut bytes = Vec::new();
        lists.encode(&mut Writer::new(&mut bytes));
        bytes
    }

    #[test]
    fn a_mask_is_added_for_the_wire_and_dropped_again() {
        let minimal = Acl::from_mode(0o640);
        let told = lists(MASK_ALL, minimal.clone(), None, &attributes(0o640));
        assert_eq!((told.access.count, told.access.entries.len()), (4, 4));
        let bytes = encoded(&told);
        let decoded = SecAttr::decode(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(list(&decoded.access).unwrap(), minimal);
        assert_eq!(list(&decoded.default).unwrap(), Acl::default());
    }

    /// Word by word, for each of the lists and counts that may be asked for.
    #[test]
    fn lists_and_counts_are_told_as_they_are_asked_for() {
        let entry = |tag, permissions| AclEntry { tag, permissions };
        let access = Acl {
            entries: vec![
                entry(AclTag::UserObject, 7),
                entry(AclTag::User(1000), 6),
                entry(AclTag::GroupObject, 5),
                entry(AclTag::Group(100), 4),
                entry(AclTag::Mask, 6),
                entry(AclTag::Other, 1),
            ],
        };
        let default = Acl::from_mode(0o750);
        let access_words =
            [[0x1, 5, 7], [0x2, 1000, 6], [0x4, 6, 5], [0x8, 100, 4], [0x10, 0, 6], [0x20, 0, 1]];
        let default_words =
            [[0x1001, 5, 7], [0x1004, 6, 5], [0x1010, 0, 5], [0x1020, 0, 0]].concat();
        for mask in 0..=MASK_ALL {
            let told = lists(mask, access.clone(), Some(default.clone()), &attributes(0o750));
            let [has_access, counts_access, has_default, counts_default] =
                [1, 2, 4, 8].map(|bit| u32::from(mask & bit != 0));
            let mut words = vec![mask, 6 * (has_access | counts_access), 6 * has_access];
            words.extend(access_words.concat().iter().filter(|_| has_access == 1));
            words.extend([4 * (has_default | counts_default), 4 * has_default]);
            words.extend(default_words.iter().filter(|_| has_default == 1));
            let expected: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            assert_eq!(encoded(&told), expected, "{mask:#x}");
        }
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
