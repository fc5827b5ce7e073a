//! POSIX ACLs as a list of NFSv4.
//!
//! POSIX ACLs pick one entry for a caller; NFSv4 goes through its list until each right has been
//! allowed or denied. So each entry is followed, or preceded, by a denial of what the entries behind
//! it would add. The entries of groups stand together: a caller has what any of his groups has.

use std::sync::Arc;

use steadfast_shares::AccountKind;
use steadfast_vfs::{Acl, AclTag};
use steadfast_wire::nfs4::Ace4;
use steadfast_xdr::{Encode, Writer};

use super::{
    ALLOW, DENY, EVERYONE_WHO, EXECUTE, GROUP_WHO, IDENTIFIER_GROUP, INHERIT, INHERIT_ONLY, OF_ALL,
    OF_OWNER, OWNER_WHO, READ, READ_DATA, SEARCH, WRITE, write_mask,
};

/// Finds by what name a user or group is told; `None`: by number.
pub(in crate::nfs4) type Namer<'n> = dyn FnMut(AccountKind, u32) -> Option<Arc<str>> + 'n;

/// Appends the attribute `acl`: the access ACL of an object, and the default ACL of a directory.
pub(in crate::nfs4) fn encode(
    w: &mut Writer<'_>,
    access: &Acl,
    default: Option<&Acl>,
    is_directory: bool,
    name_of: &mut Namer<'_>,
) {
    let mut list = Telling { is_directory, flags: 0, count: 0, bytes: Vec::new(), name_of };
    list.tell(access);
    if let Some(default) = default {
        list.flags = INHERIT | INHERIT_ONLY;
        list.tell(default);
    }
    w.u32(list.count);
    w.fixed_opaque(&list.bytes);
}

/// A list as far as it was told.
struct Telling<'t, 'n> {
    is_directory: bool,
    /// Of each entry.
    flags: u32,
    count: u32,
    bytes: Vec<u8>,
    name_of: &'t mut Namer<'n>,
}

impl Telling<'_, '_> {
    fn tell(&mut self, acl: &Acl) {
        let of = |wanted| {
            let entry = acl.entries.iter().find(|entry| entry.tag == wanted);
            entry.map(|entry| entry.permissions)
        };
        let mask = of(AclTag::Mask).unwrap_or(7);
        let owner = of(AclTag::UserObject).unwrap_or(0);
        let other = of(AclTag::Other).unwrap_or(0);
        let mut users = Vec::new();
        let mut groups = vec![(None, of(AclTag::GroupObject).unwrap_or(0) & mask)];
        // Without a bit in the mask the kernel goes by the mode, and knows nobody by name.
        let named = if mask == 0 { &[][..] } else { &acl.entries };
        for entry in named {
            match entry.tag {
                AclTag::User(uid) => users.push((uid, entry.permissions & mask)),
                AclTag::Group(gid) => groups.push((Some(gid), entry.permissions & mask)),
                _ => {}
            }
        }
        let by_groups = groups.iter().fold(other, |all, (_, permissions)| all | permissions);
        // Owners may be named, and be in groups.
        let behind_owner = users.iter().fold(by_groups, |all, (_, permissions)| all | permissions);

        self.deny(OWNER_WHO, 0, behind_owner & !owner);
        self.allow(OWNER_WHO, 0, owner, OF_OWNER);
        for (uid, permissions) in users {
            let who = self.who(AccountKind::User, uid);
            self.deny(who.as_bytes(), 0, by_groups & !permissions);
            self.allow(who.as_bytes(), 0, permissions, 0);
        }
        for (gid, permissions) in &groups {
            self.of_group(*gid, |list, who| list.allow(who, IDENTIFIER_GROUP, *permissions, 0));
        }
        for (gid, permissions) in &groups {
            let denied = other & !permissions;
            self.of_group(*gid, |list, who| list.deny(who, IDENTIFIER_GROUP, denied));
        }
        self.allow(EVERYONE_WHO, 0, other, 0);
    }

    /// `None` for the group of the object.
    fn of_group(&mut self, gid: Option<u32>, tell: impl FnOnce(&mut Self, &[u8])) {
        match gid {
            None => tell(self, GROUP_WHO),
            Some(gid) => {
                let who = self.who(AccountKind::Group, gid);
                tell(self, who.as_bytes());
            }
        }
    }

    fn who(&mut self, kind: AccountKind, number: u32) -> Arc<str> {
        (self.name_of)(kind, number).unwrap_or_else(|| number.to_string().into())
    }

    fn allow(&mut self, who: &[u8], flag: u32, permissions: u8, beside: u32) {
        let access_mask = self.rights(permissions) | OF_ALL | beside;
        self.entry(&Ace4 { kind: ALLOW, flag, access_mask, who });
    }

    fn deny(&mut self, who: &[u8], flag: u32, permissions: u8) {
        if permissions != 0 {
            let access_mask = self.rights(permissions);
            self.entry(&Ace4 { kind: DENY, flag, access_mask, who });
        }
    }

    fn entry(&mut self, entry: &Ace4<'_>) {
        let entry = Ace4 { flag: entry.flag | self.flags, ..*entry };
        entry.encode(&mut Writer::new(&mut self.bytes));
        self.count += 1;
    }

    fn rights(&self, permissions: u8) -> u32 {
        let of = |bit, mask| if permissions & bit == 0 { 0 } else { mask };
        of(READ, READ_DATA) | of(WRITE, write_mask(self.is_directory)) | of(SEARCH, EXECUTE)
    }
}
