//! POSIX ACLs as clients and local processes set them, and what is inherited of them.

use steadfast_client::nfsacl::{AclEntry, Acls};

use crate::random::Random;

/// Of whom an entry is, by its number in NFSACL and in the kernel's attribute.
const OWNER: u32 = 1;
const USER: u32 = 2;
const GROUP: u32 = 4;
const NAMED_GROUP: u32 = 8;
const MASK: u32 = 16;
const OTHER: u32 = 32;
/// Added in the default ACL of NFSACL.
const DEFAULT: u32 = 0x1000;
/// The kernel's version of the attribute, and the id of those without one.
const ATTRIBUTE_VERSION: u32 = 2;
const NOBODY: u32 = u32::MAX;

/// The access ACL's attribute.
pub(crate) const ACCESS_ATTRIBUTE: &str = "system.posix_acl_access";
/// The default ACL's attribute.
pub(crate) const DEFAULT_ATTRIBUTE: &str = "system.posix_acl_default";

/// An ACL with one named user and one named group. Each permission is read 4, write 2, execute 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    owner: u32,
    user: (u32, u32),
    group: u32,
    named_group: (u32, u32),
    mask: u32,
    other: u32,
}

impl Acl {
    /// Any.
    pub(crate) fn random(random: &mut Random) -> Self {
        let mut bits = || random.below(8) as u32;
        Self {
            owner: 7,
            user: (1001 + bits(), bits()),
            group: bits(),
            named_group: (2001 + bits(), bits()),
            mask: bits() | 4,
            other: bits(),
        }
    }

    /// The mode bits of an object that has it.
    pub(crate) fn mode(&self) -> u32 {
        self.owner << 6 | self.mask << 3 | self.other
    }

    /// After the object got this mode: by `chmod`, or when it was made.
    pub(crate) fn with_mode(self, mode: u32) -> Self {
        Self { owner: mode >> 6 & 7, mask: mode >> 3 & 7, other: mode & 7, ..self }
    }

    fn all(&self) -> [(u32, u32, u32); 6] {
        [
            (OWNER, NOBODY, self.owner),
            (USER, self.user.0, self.user.1),
            (GROUP, NOBODY, self.group),
            (NAMED_GROUP, self.named_group.0, self.named_group.1),
            (MASK, NOBODY, self.mask),
            (OTHER, NOBODY, self.other),
        ]
    }

    /// As NFSACL has it.
    pub(crate) fn entries(&self, is_default: bool) -> Vec<AclEntry> {
        let more = if is_default { DEFAULT } else { 0 };
        let entry = |(tag, id, permissions)| AclEntry {
            tag: tag | more,
            id: if id == NOBODY { 0 } else { id },
            permissions,
        };
        self.all().into_iter().map(entry).collect()
    }

    /// As the kernel's attribute has it.
    pub(crate) fn attribute(&self) -> Vec<u8> {
        let mut bytes = ATTRIBUTE_VERSION.to_le_bytes().to_vec();
        for (tag, id, permissions) in self.all() {
            bytes.extend((tag as u16).to_le_bytes());
            bytes.extend((permissions as u16).to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }
}

/// What is wrong with the ACLs that were read; `None` of a wanted one: it has to have none.
#[expect(clippy::option_option, reason = "not known, none, and one are three cases")]
pub(crate) fn fault(
    mode: Option<u32>,
    access: Option<Acl>,
    default: Option<Option<Acl>>,
    seen: &Acls,
) -> Option<String> {
    let access = access.zip(mode).map(|(acl, mode)| acl.with_mode(mode));
    let wanted = access.map_or_else(Vec::new, |acl| named(&acl.entries(false)));
    let there = named(&seen.access);
    if there != wanted {
        return Some(format!("access ACL {} instead of {}", shown(&there), shown(&wanted)));
    }
    let wanted = default?.map_or_else(Vec::new, |acl| named(&acl.entries(true)));
    let there = named(&seen.default);
    (there != wanted)
        .then(|| format!("default ACL {} instead of {}", shown(&there), shown(&wanted)))
}

/// The entries that the mode does not tell, in an order. A list without named ones has nothing that
/// the mode does not tell.
fn named(entries: &[AclEntry]) -> Vec<(u32, u32, u32)> {
    let is_named = |entry: &AclEntry| [USER, NAMED_GROUP].contains(&(entry.tag & !DEFAULT));
    let is_default = |entry: &AclEntry| entry.tag & DEFAULT != 0;
    if !entries.iter().any(|entry| is_named(entry) || is_default(entry)) {
        return Vec::new();
    }
    let id = |entry: &AclEntry| if is_named(entry) { entry.id } else { 0 };
    let mut all: Vec<_> =
        entries.iter().map(|entry| (entry.tag & !DEFAULT, id(entry), entry.permissions)).collect();
    all.sort_unstable();
    all
}

fn shown(entries: &[(u32, u32, u32)]) -> String {
    if entries.is_empty() {
        return "none".to_owned();
    }
    let one = |(tag, id, permissions): &(u32, u32, u32)| match *tag {
        OWNER => format!("u::{permissions}"),
        USER => format!("u:{id}:{permissions}"),
        GROUP => format!("g::{permissions}"),
        NAMED_GROUP => format!("g:{id}:{permissions}"),
        MASK => format!("m::{permissions}"),
        _ => format!("o::{permissions}"),
    };
    entries.iter().map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_that_was_gained_lost_or_widened_is_found() {
        let acl = Acl::random(&mut Random::new(7));
        let seen = |acl: Option<Acl>, default: Option<Acl>| Acls {
            access: acl.map_or_else(Vec::new, |acl| acl.entries(false)),
            default: default.map_or_else(Vec::new, |acl| acl.entries(true)),
            ..Acls::default()
        };
        let mode = Some(acl.mode());
        assert_eq!(fault(mode, Some(acl), Some(None), &seen(Some(acl), None)), None);
        assert!(fault(mode, Some(acl), Some(None), &seen(None, None)).is_some(), "lost");
        assert!(fault(mode, None, Some(None), &seen(Some(acl), None)).is_some(), "gained");
        let wider = Acl { user: (acl.user.0, acl.user.1 ^ 2), ..acl };
        assert!(fault(mode, Some(acl), None, &seen(Some(wider), None)).is_some());
        assert!(fault(mode, None, Some(None), &seen(None, Some(acl))).is_some());
        assert_eq!(fault(mode, None, Some(Some(acl)), &seen(None, Some(acl))), None);
        // An object without one has the list that its mode amounts to.
        let plain = [(OWNER, 6), (GROUP, 4), (OTHER, 0)].map(|(tag, permissions)| AclEntry {
            tag,
            id: 0,
            permissions,
        });
        let plain = Acls { access: plain.to_vec(), ..Acls::default() };
        assert_eq!(fault(Some(0o640), None, Some(None), &plain), None);
    }

    #[test]
    fn a_mode_narrows_the_mask_and_nothing_else() {
        let acl = Acl::random(&mut Random::new(7)).with_mode(0o640);
        assert_eq!(acl.mode(), 0o640);
        assert_eq!(acl.attribute().len(), 4 + 6 * 8);
    }
}
