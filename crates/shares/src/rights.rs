//! What a client may do with a share, and by which flavours.

/// Which callers are made anonymous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Squash {
    /// The superuser (`root_squash`, the default).
    #[default]
    Root,
    /// Nobody (`no_root_squash`).
    None,
    /// Everybody (`all_squash`).
    All,
}

/// How a caller says who he is (`sec=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// Not at all (`AUTH_NONE`).
    None,
    /// By numbers that are believed (`AUTH_SYS`).
    Sys,
    /// By Kerberos.
    Krb5,
    /// By Kerberos, with calls that cannot be changed on their way.
    Krb5i,
    /// By Kerberos, with calls that cannot be read on their way.
    Krb5p,
}

impl Flavor {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::None, Self::Sys, Self::Krb5, Self::Krb5i, Self::Krb5p];

    /// As it is written after `sec=`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Sys => "sys",
            Self::Krb5 => "krb5",
            Self::Krb5i => "krb5i",
            Self::Krb5p => "krb5p",
        }
    }
}

/// Some flavours, each once, in the order in which they were given: by exports(5) clients take the first that they can.
/// What this server tells clients has an order of its own.
///
/// Three bits a flavour, the first in the lowest; 0 is the end.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flavors(u16);

impl Flavors {
    /// [`Flavor::None`]
    pub const NONE: Self = Self(code(Flavor::None));
    /// [`Flavor::Sys`]
    pub const SYS: Self = Self(code(Flavor::Sys));
    /// [`Flavor::Krb5`]
    pub const KRB5: Self = Self(code(Flavor::Krb5));
    /// [`Flavor::Krb5i`]
    pub const KRB5I: Self = Self(code(Flavor::Krb5i));
    /// [`Flavor::Krb5p`]
    pub const KRB5P: Self = Self(code(Flavor::Krb5p));

    /// None at all.
    pub const fn empty() -> Self {
        Self(0)
    }

    /// Them, in their order.
    pub fn iter(self) -> impl Iterator<Item = Flavor> + Clone {
        self.codes().filter_map(|known| Flavor::ALL.into_iter().find(|one| code(*one) == known))
    }

    /// Whether all of these are among them.
    pub fn contains(self, others: Self) -> bool {
        others.codes().all(|one| self.has(one))
    }

    /// Whether some of these are among them.
    pub fn intersects(self, others: Self) -> bool {
        others.codes().any(|one| self.has(one))
    }

    fn codes(self) -> impl Iterator<Item = u16> + Clone {
        (0..Flavor::ALL.len())
            .map(move |place| (self.0 >> (CODE_BITS * place)) & CODE_MASK)
            .take_while(|one| *one != 0)
    }

    fn has(self, wanted: u16) -> bool {
        self.codes().any(|one| one == wanted)
    }
}

/// Bits of a flavour in [`Flavors`].
const CODE_BITS: usize = 3;
const CODE_MASK: u16 = 7;

/// A flavour as it stands in [`Flavors`].
const fn code(flavor: Flavor) -> u16 {
    match flavor {
        Flavor::None => 1,
        Flavor::Sys => 2,
        Flavor::Krb5 => 3,
        Flavor::Krb5i => 4,
        Flavor::Krb5p => 5,
    }
}

impl std::fmt::Debug for Flavors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl std::ops::BitOr for Flavors {
    type Output = Self;

    /// The others come behind.
    fn bitor(self, others: Self) -> Self {
        let mut all = self;
        for one in others.codes().filter(|one| !self.has(*one)) {
            all.0 |= one << (CODE_BITS * all.codes().count());
        }
        all
    }
}

impl std::ops::BitOrAssign for Flavors {
    fn bitor_assign(&mut self, others: Self) {
        *self = *self | others;
    }
}

impl FromIterator<Flavor> for Flavors {
    fn from_iter<I: IntoIterator<Item = Flavor>>(all: I) -> Self {
        all.into_iter().fold(Self::empty(), |before, one| before | one.into())
    }
}

impl Default for Flavors {
    /// As in exports(5).
    fn default() -> Self {
        Self::SYS
    }
}

impl From<Flavor> for Flavors {
    fn from(flavor: Flavor) -> Self {
        match flavor {
            Flavor::None => Self::NONE,
            Flavor::Sys => Self::SYS,
            Flavor::Krb5 => Self::KRB5,
            Flavor::Krb5i => Self::KRB5I,
            Flavor::Krb5p => Self::KRB5P,
        }
    }
}

/// What a client may do with a share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rights {
    /// To callers of which flavours they are given.
    pub flavors: Flavors,
    /// Whether calls must come from a port below 1024.
    pub needs_privileged_port: bool,
    /// Whether a user's groups are those that this host knows, not those that the client says.
    pub looks_up_groups: bool,
    /// No changes.
    pub is_read_only: bool,
    /// Changes are acknowledged before they are stable (`async` of exports(5)).
    pub is_async: bool,
    /// Who becomes anonymous.
    pub squash: Squash,
    /// The anonymous user.
    pub anonymous_uid: u32,
    /// The anonymous group.
    pub anonymous_gid: u32,
}

impl Default for Rights {
    /// As in exports(5), but that changes are allowed.
    fn default() -> Self {
        Self {
            flavors: Flavors::default(),
            needs_privileged_port: true,
            looks_up_groups: false,
            is_read_only: false,
            is_async: false,
            squash: Squash::Root,
            anonymous_uid: 65534,
            anonymous_gid: 65534,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use super::*;

    #[test]
    fn flavors_keep_their_order_and_are_there_once() {
        let some = Flavors::KRB5P | Flavors::SYS | Flavors::KRB5P | Flavors::NONE;
        assert!(some.iter().eq([Flavor::Krb5p, Flavor::Sys, Flavor::None]), "{some:?}");
        assert!(some.contains(Flavors::NONE | Flavors::KRB5P) && some.contains(Flavors::empty()));
        assert!(!some.contains(Flavors::SYS | Flavors::KRB5) && !some.contains(Flavors::KRB5I));
        assert!(some.intersects(Flavors::KRB5 | Flavors::SYS));
        assert!(!some.intersects(Flavors::KRB5 | Flavors::KRB5I));
        assert!(!Flavors::empty().intersects(some) && Flavors::empty().iter().next().is_none());
        assert_ne!(Flavors::SYS | Flavors::NONE, Flavors::NONE | Flavors::SYS);
        let all: Flavors = Flavor::ALL.into_iter().rev().chain(Flavor::ALL).collect();
        assert!(all.iter().eq(Flavor::ALL.into_iter().rev()), "{all:?}");
    }
}
