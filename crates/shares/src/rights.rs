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

bitflags::bitflags! {
    /// Some flavours.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Flavors: u8 {
        /// [`Flavor::None`]
        const NONE = 1;
        /// [`Flavor::Sys`]
        const SYS = 2;
        /// [`Flavor::Krb5`]
        const KRB5 = 4;
        /// [`Flavor::Krb5i`]
        const KRB5I = 8;
        /// [`Flavor::Krb5p`]
        const KRB5P = 16;
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
