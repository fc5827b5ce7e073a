//! NFSACL, version 3: POSIX ACLs beside NFSv3. There is no RFC; this is what Linux and Solaris
//! speak.

use crate::codec::structure;
use crate::nfs3::{Fattr3, NfsFh3, Res3};

/// Number of the program (RFC 5531 §8.2).
pub const PROGRAM: u32 = 100_227;
/// Most entries in one list.
pub const ENTRIES_MAX: usize = 1024;

structure! {
    /// An entry of an ACL (`aclent`).
    #[derive(Copy)]
    pub struct AclEntry {
        /// The type's number: owner 1, user 2, group 4, named group 8, mask 16, other 32;
        /// 0x1000 more in a default ACL.
        pub tag: u32,
        /// User or group of a named entry.
        pub id: u32,
        /// Read 4, write 2, execute 1.
        pub permissions: u32,
    }
}

structure! {
    /// A list with the count that goes before it and may be told without it.
    pub struct AclList {
        /// How many entries the ACL has.
        pub count: u32,
        /// The entries.
        pub entries: Vec<AclEntry>; max ENTRIES_MAX,
    }
}

structure! {
    /// Both lists of an object (`secattr`).
    pub struct SecAttr {
        /// Which of the lists and counts are meant: access 1, its count 2, default 4, its count
        /// 8.
        pub mask: u32,
        /// The access ACL.
        pub access: AclList,
        /// The default ACL of a directory.
        pub default: AclList,
    }
}

structure! {
    /// Arguments of GETACL.
    #[derive(Copy)]
    pub struct Getacl3Args<'a> {
        /// The object.
        pub object: NfsFh3<'a>,
        /// Which lists and counts are wanted, as in [`SecAttr::mask`].
        pub mask: u32,
    }
}

structure! {
    /// Arguments of SETACL.
    pub struct Setacl3Args<'a> {
        /// The object.
        pub object: NfsFh3<'a>,
        /// The lists.
        pub acls: SecAttr,
    }
}

structure! {
    /// What GETACL tells after `NFS3_OK`.
    pub struct Getacl3Ok {
        /// The object's attributes.
        pub obj_attributes: Option<Fattr3>,
        /// The lists and counts that were wanted.
        pub acls: SecAttr,
    }
}

/// Result of GETACL.
pub type Getacl3Res = Res3<Getacl3Ok, Option<Fattr3>>;
/// Result of SETACL.
pub type Setacl3Res = Res3<Option<Fattr3>, Option<Fattr3>>;
