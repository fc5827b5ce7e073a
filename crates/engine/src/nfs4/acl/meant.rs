//! A list of NFSv4 that a client sets, as POSIX ACLs.
//!
//! The list is gone through once. Each class of callers that POSIX ACLs know collects what the list
//! allows and denies it, and what came first counts. Who is in which groups is not known: what is
//! denied to a group is denied to each owner, user and group that is named, and what is allowed to a
//! group is allowed to that group alone. So the classes never get more than the list grants.

use std::collections::BTreeMap;

use steadfast_shares::AccountKind;
use steadfast_vfs::{Acl, AclEntry, AclTag};
use steadfast_wire::nfs4::{Ace4, NfsStat4};
use steadfast_xdr::{Decode, Reader};

use super::{
    ALARM, ALLOW, APPEND_DATA, AUDIT, DELETE, DELETE_CHILD, DENY, EVERYONE_WHO, EXECUTE,
    FAILED_ACCESS, GROUP_WHO, IDENTIFIER_GROUP, INHERIT, INHERIT_ONLY, INHERITED,
    NO_PROPAGATE_INHERIT, OWNER_WHO, READ, READ_ACL, READ_ATTRIBUTES, READ_DATA, READ_NAMED_ATTRS,
    SEARCH, SUCCESSFUL_ACCESS, SYNCHRONIZE, WRITE, WRITE_ACL, WRITE_ATTRIBUTES, WRITE_DATA,
    WRITE_NAMED_ATTRS, WRITE_OWNER, WRITE_RETENTION, WRITE_RETENTION_HOLD, write_mask,
};

/// Most entries of a list that a client sets. A denial to a group touches all that were named
/// before, so the work grows with the square.
pub(in crate::nfs4) const ENTRIES_MAX: u32 = 1024;

/// Most entries of a POSIX ACL that the storage takes.
const ACL_ENTRIES_MAX: usize = 1024;

const FLAGS: u32 = INHERIT
    | NO_PROPAGATE_INHERIT
    | INHERIT_ONLY
    | SUCCESSFUL_ACCESS
    | FAILED_ACCESS
    | IDENTIFIER_GROUP
    | INHERITED;
/// What POSIX ACLs have no word for.
const FLAGS_REFUSED: u32 = NO_PROPAGATE_INHERIT | SUCCESSFUL_ACCESS | FAILED_ACCESS | INHERITED;

const RIGHTS: u32 = READ_DATA
    | WRITE_DATA
    | APPEND_DATA
    | READ_NAMED_ATTRS
    | WRITE_NAMED_ATTRS
    | EXECUTE
    | DELETE_CHILD
    | READ_ATTRIBUTES
    | WRITE_ATTRIBUTES
    | WRITE_RETENTION
    | WRITE_RETENTION_HOLD
    | DELETE
    | READ_ACL
    | WRITE_ACL
    | WRITE_OWNER
    | SYNCHRONIZE;
/// What nobody can be denied on a POSIX file system: attributes and ACLs are read by all, and a name
/// is removed by who may write to its directory.
const NOT_DENIABLE: u32 =
    READ_ATTRIBUTES | READ_ACL | DELETE | WRITE_RETENTION | WRITE_RETENTION_HOLD;
/// What an owner cannot be denied beside.
const NOT_DENIABLE_TO_OWNER: u32 = WRITE_ATTRIBUTES | WRITE_ACL;

/// For whom an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nfs4) enum Who {
    Owner,
    Group,
    Everyone,
    User(u32),
    NamedGroup(u32),
}

/// An entry that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nfs4) struct Entry {
    is_allowing: bool,
    flags: u32,
    rights: u32,
    pub(super) who: Who,
}

/// The POSIX ACLs that a list means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nfs4) struct Lists {
    pub(in crate::nfs4) access: Acl,
    /// Of directories; an empty one removes what there is.
    pub(in crate::nfs4) default: Option<Acl>,
}

/// Reads the attribute `acl`. Whoever is named goes through `number_of`.
///
/// # Errors
/// `BadXdr`; `FBig` for more than [`ENTRIES_MAX`] entries; `Inval` for bits and types that the RFC
/// does not know; `AttrNotSupp` for those that are not supported; what `number_of` says.
pub(in crate::nfs4) fn entries(
    r: &mut Reader<'_>,
    mut number_of: impl FnMut(&[u8], AccountKind) -> Result<u32, NfsStat4>,
) -> Result<Vec<Entry>, NfsStat4> {
    let count = r.u32().map_err(|_| NfsStat4::BadXdr)?;
    if count > ENTRIES_MAX {
        return Err(NfsStat4::FBig);
    }
    let mut entries = Vec::new();
    for _ in 0..count {
        let entry = Ace4::decode(r).map_err(|_| NfsStat4::BadXdr)?;
        entries.push(read(&entry, &mut number_of)?);
    }
    Ok(entries)
}

fn read(
    entry: &Ace4<'_>,
    number_of: &mut impl FnMut(&[u8], AccountKind) -> Result<u32, NfsStat4>,
) -> Result<Entry, NfsStat4> {
    let is_allowing = match entry.kind {
        ALLOW => true,
        DENY => false,
        AUDIT | ALARM => return Err(NfsStat4::AttrNotSupp),
        _ => return Err(NfsStat4::Inval),
    };
    if entry.flag & !FLAGS != 0 || entry.access_mask & !RIGHTS != 0 {
        return Err(NfsStat4::Inval);
    }
    if entry.flag & FLAGS_REFUSED != 0 {
        return Err(NfsStat4::AttrNotSupp);
    }
    let is_group = entry.flag & IDENTIFIER_GROUP != 0;
    let who = match entry.who {
        OWNER_WHO => Who::Owner,
        GROUP_WHO => Who::Group,
        EVERYONE_WHO => Who::Everyone,
        // Other classes of the RFC (`INTERACTIVE@`, §6.2.1.5), which no file system here has.
        who if who.ends_with(b"@") => return Err(NfsStat4::AttrNotSupp),
        who if is_group => Who::NamedGroup(number_of(who, AccountKind::Group)?),
        who => Who::User(number_of(who, AccountKind::User)?),
    };
    Ok(Entry { is_allowing, flags: entry.flag, rights: entry.access_mask, who })
}

/// The POSIX ACLs that a list means for an object of this owner.
///
/// # Errors
/// `Inval` if a file that is no directory is to have entries that are inherited; `AttrNotSupp` for
/// what POSIX ACLs cannot say.
pub(in crate::nfs4) fn meant(
    entries: &[Entry],
    owner: u32,
    is_directory: bool,
) -> Result<Lists, NfsStat4> {
    let mut access = Classes::new(Some(owner));
    // What the owner was allowed so far.
    let mut of_owner = 0;
    let mut default = None;
    for entry in entries {
        let is_inherited = match entry.flags & INHERIT {
            0 => false,
            INHERIT => true,
            _ if !is_directory => return Err(NfsStat4::Inval),
            // Inherited by files alone, or by directories alone.
            _ => return Err(NfsStat4::AttrNotSupp),
        };
        if is_inherited && !is_directory {
            return Err(NfsStat4::Inval);
        }
        let permissions = permissions(entry, is_directory)?;
        if entry.is_allowing && matches!(entry.who, Who::Owner | Who::Everyone) {
            of_owner |= entry.rights;
        }
        // Anybody may own what inherits an entry, and the owner may be in any group.
        let is_owner = is_inherited || !matches!(entry.who, Who::User(user) if user != owner);
        let lost = entry.rights & NOT_DENIABLE_TO_OWNER & !of_owner;
        if !entry.is_allowing && is_owner && lost != 0 {
            return Err(NfsStat4::AttrNotSupp);
        }
        let is_effective = entry.flags & INHERIT_ONLY == 0;
        if !is_effective && !is_inherited {
            return Err(NfsStat4::Inval);
        }
        if is_effective {
            access.take(entry.who, entry.is_allowing, permissions);
        }
        if is_inherited {
            // Anybody may come to own what inherits it.
            let default = default.get_or_insert_with(|| Classes::new(None));
            default.take(entry.who, entry.is_allowing, permissions);
        }
    }
    let default = default.map(Classes::into_acl).unwrap_or_default();
    let lists = Lists { access: access.into_acl(), default: is_directory.then_some(default) };
    let is_too_long = |acl: &Acl| acl.entries.len() > ACL_ENTRIES_MAX;
    if is_too_long(&lists.access) || lists.default.as_ref().is_some_and(is_too_long) {
        return Err(NfsStat4::FBig);
    }
    Ok(lists)
}

/// The bits of permissions that an entry allows or denies.
fn permissions(entry: &Entry, is_directory: bool) -> Result<u8, NfsStat4> {
    let has = |mask: u32| entry.rights & mask != 0;
    let to_write = write_mask(is_directory);
    if entry.is_allowing {
        // A part of it would be granted as the whole, or not at all.
        if has(to_write) && entry.rights & to_write != to_write {
            return Err(NfsStat4::AttrNotSupp);
        }
    } else {
        let lacks_data = (has(READ_NAMED_ATTRS) && !has(READ_DATA))
            || (has(WRITE_NAMED_ATTRS) && !has(to_write));
        if has(NOT_DENIABLE) || lacks_data {
            return Err(NfsStat4::AttrNotSupp);
        }
    }
    let bit = |mask, bit| if has(mask) { bit } else { 0 };
    Ok(bit(READ_DATA, READ) | bit(to_write, WRITE) | bit(EXECUTE, SEARCH))
}

/// What one class is allowed and denied so far.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    allowed: u8,
    denied: u8,
}

impl Class {
    fn take(&mut self, is_allowing: bool, permissions: u8) {
        if is_allowing {
            self.allowed |= permissions & !self.denied;
        } else {
            self.denied |= permissions & !self.allowed;
        }
    }
}

/// The classes of callers that POSIX ACLs know.
struct Classes {
    /// `None` if anybody may be the owner.
    owner_uid: Option<u32>,
    owner: Class,
    group: Class,
    other: Class,
    users: BTreeMap<u32, Class>,
    groups: BTreeMap<u32, Class>,
    /// What a user or group begins with that is named further down.
    next: Class,
}

impl Classes {
    fn new(owner_uid: Option<u32>) -> Self {
        let class = Class::default();
        let (users, groups) = (BTreeMap::new(), BTreeMap::new());
        Self { owner_uid, owner: class, group: class, other: class, users, groups, next: class }
    }

    fn take(&mut self, who: Who, is_allowing: bool, permissions: u8) {
        match who {
            Who::Owner => self.owner.take(is_allowing, permissions),
            Who::User(uid) => {
                let next = self.next;
                self.users.entry(uid).or_insert(next).take(is_allowing, permissions);
                if !is_allowing && self.owner_uid.is_none_or(|owner| owner == uid) {
                    self.owner.take(false, permissions);
                }
            }
            Who::Group if is_allowing => self.group.take(true, permissions),
            Who::NamedGroup(gid) if is_allowing => {
                let next = self.next;
                self.groups.entry(gid).or_insert(next).take(true, permissions);
            }
            Who::Group => self.take_of_all(false, permissions),
            Who::NamedGroup(gid) => {
                let next = self.next;
                self.groups.entry(gid).or_insert(next);
                self.take_of_all(false, permissions);
            }
            Who::Everyone => {
                self.take_of_all(is_allowing, permissions);
                self.other.take(is_allowing, permissions);
            }
        }
    }

    /// Of all that may be in a group.
    fn take_of_all(&mut self, is_allowing: bool, permissions: u8) {
        let named = self.users.values_mut().chain(self.groups.values_mut());
        for class in named.chain([&mut self.owner, &mut self.group, &mut self.next]) {
            class.take(is_allowing, permissions);
        }
    }

    fn into_acl(self) -> Acl {
        let entry = |tag, class: Class| AclEntry { tag, permissions: class.allowed };
        let mut entries = vec![entry(AclTag::UserObject, self.owner)];
        entries.extend(self.users.iter().map(|(uid, class)| entry(AclTag::User(*uid), *class)));
        entries.push(entry(AclTag::GroupObject, self.group));
        entries.extend(self.groups.iter().map(|(gid, class)| entry(AclTag::Group(*gid), *class)));
        if !self.users.is_empty() || !self.groups.is_empty() {
            let of_owner = |entry: &&AclEntry| entry.tag != AclTag::UserObject;
            let bound = entries.iter().filter(of_owner);
            let all = bound.fold(0, |all, entry| all | entry.permissions);
            // With an empty mask the kernel would take those who are named for all others.
            let permissions = if all == 0 { self.other.allowed } else { all };
            entries.push(AclEntry { tag: AclTag::Mask, permissions });
        }
        entries.push(entry(AclTag::Other, self.other));
        Acl { entries }
    }
}
