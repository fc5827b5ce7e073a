//! POSIX access control lists (POSIX.1e draft 17), as `acl(5)` describes them.

/// Whom an entry is for. The numeric order is the order in which a valid list is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AclTag {
    /// The file's owner.
    UserObject,
    /// The user of this number.
    User(u32),
    /// The file's group.
    GroupObject,
    /// The group of this number.
    Group(u32),
    /// The bound on all named entries and the file's group.
    Mask,
    /// Everybody else.
    Other,
}

/// One entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// For whom.
    pub tag: AclTag,
    /// Read 4, write 2, execute 1.
    pub permissions: u8,
}

/// A list, sorted by tag. An empty list as a default ACL means: none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Acl {
    /// The entries.
    pub entries: Vec<AclEntry>,
}

impl Acl {
    /// The list that says what permission bits say.
    pub fn from_mode(mode: u32) -> Self {
        let entry = |tag, shift: u32| AclEntry { tag, permissions: ((mode >> shift) & 7) as u8 };
        Self {
            entries: vec![
                entry(AclTag::UserObject, 6),
                entry(AclTag::GroupObject, 3),
                entry(AclTag::Other, 0),
            ],
        }
    }

    /// The permission bits that a file with this list shows: the mask stands for the group.
    pub fn mode(&self) -> u32 {
        let of = |tag| self.entries.iter().find(|entry| entry.tag == tag);
        let bits = |entry: Option<&AclEntry>| entry.map_or(0, |it| u32::from(it.permissions & 7));
        let group = of(AclTag::Mask).or_else(|| of(AclTag::GroupObject));
        bits(of(AclTag::UserObject)) << 6 | bits(group) << 3 | bits(of(AclTag::Other))
    }

    /// Whether the list says no more than permission bits can (`acl_equiv_mode`).
    pub fn is_minimal(&self) -> bool {
        self.entries.iter().all(|entry| {
            matches!(entry.tag, AclTag::UserObject | AclTag::GroupObject | AclTag::Other)
        })
    }
}
