//! What an open may do, and what it forbids all others.

use crate::ids::{ShareAccess, ShareDeny};

/// What an open may do, and what it forbids all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) access: ShareAccess,
    pub(crate) deny: ShareDeny,
}

impl Share {
    pub(crate) const NONE: Self = Self { access: ShareAccess::empty(), deny: ShareDeny::empty() };

    pub(crate) fn union(self, other: Self) -> Self {
        Self { access: self.access | other.access, deny: self.deny | other.deny }
    }

    pub(crate) fn common(self, other: Self) -> Self {
        Self { access: self.access & other.access, deny: self.deny & other.deny }
    }

    pub(crate) fn contains(self, other: Self) -> bool {
        self.access.contains(other.access) && self.deny.contains(other.deny)
    }

    /// Whether two owners cannot have these at the same time.
    pub(crate) fn conflicts(self, other: Self) -> bool {
        self.deny.bits() & other.access.bits() != 0 || self.access.bits() & other.deny.bits() != 0
    }

    /// A number below 16.
    pub(crate) fn number(self) -> u32 {
        u32::from(self.access.bits() << 2 | self.deny.bits())
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..16).map(|number: u8| Self {
            access: ShareAccess::from_bits_truncate(number >> 2),
            deny: ShareDeny::from_bits_truncate(number & 3),
        })
    }

    /// Its four bits: reads, writes, denies reading, denies writing.
    pub(crate) fn bits(self) -> [bool; 4] {
        [
            self.access.contains(ShareAccess::READ),
            self.access.contains(ShareAccess::WRITE),
            self.deny.contains(ShareDeny::READ),
            self.deny.contains(ShareDeny::WRITE),
        ]
    }
}

/// A set of shares, a bit for each pair of access and deny.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AskedShares(pub(crate) u16);

impl AskedShares {
    pub(crate) fn add(&mut self, share: Share) {
        self.0 |= 1 << share.number();
    }

    pub(crate) fn has(self, share: Share) -> bool {
        self.0 >> share.number() & 1 == 1
    }

    /// Takes a share out; what the others are together.
    pub(crate) fn remove(&mut self, share: Share) -> Share {
        self.0 &= !(1 << share.number());
        self.iter().fold(Share::NONE, Share::union)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn iter(self) -> impl Iterator<Item = Share> {
        Share::all().filter(move |share| self.has(*share))
    }

    /// Those that stay if the open is downgraded to `to`; `None` if they are not `to` together.
    ///
    /// `OPEN_DOWNGRADE` must name the union of some of the OPENs in effect (RFC 8881 §18.18.3).
    pub(crate) fn within(self, to: Share) -> Option<Self> {
        let mut stay = Self::default();
        let mut union = Share::NONE;
        for share in self.iter() {
            if to.contains(share) {
                stay.add(share);
                union = union.union(share);
            }
        }
        (union == to).then_some(stay)
    }
}

#[cfg(test)]
mod tests {
    use super::{AskedShares, Share};
    use crate::{ShareAccess, ShareDeny};

    type Shares<'a> = &'a [(u8, u8)];

    fn share(access: u8, deny: u8) -> Share {
        Share {
            access: ShareAccess::from_bits_truncate(access),
            deny: ShareDeny::from_bits_truncate(deny),
        }
    }

    #[test]
    fn a_downgrade_has_to_be_the_union_of_some_opens() {
        let asked = |shares: &[(u8, u8)]| {
            let mut asked = AskedShares::default();
            for (access, deny) in shares {
                asked.add(share(*access, *deny));
            }
            asked
        };
        let rows: [(Shares<'_>, (u8, u8), Option<Shares<'_>>); 7] = [
            (&[(3, 0)], (3, 0), Some(&[(3, 0)])),
            (&[(3, 0)], (1, 0), None),
            (&[(3, 0), (1, 0)], (1, 0), Some(&[(1, 0)])),
            (&[(2, 0), (1, 0)], (3, 0), Some(&[(1, 0), (2, 0)])),
            (&[(2, 0), (1, 1)], (3, 0), None),
            (&[(2, 2), (1, 1)], (3, 3), Some(&[(2, 2), (1, 1)])),
            (&[(1, 0)], (3, 0), None),
        ];
        for (opens, to, expected) in rows {
            let found = asked(opens).within(share(to.0, to.1));
            assert_eq!(found, expected.map(asked), "{opens:?} to {to:?}");
        }
    }
}
