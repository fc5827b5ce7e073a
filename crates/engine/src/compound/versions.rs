//! Minor versions of NFSv4, and which of them have an operation.

/// A set of minor versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions(u8);

impl Versions {
    /// All that are known.
    pub(crate) const ALL: Self = Self(0b111);
    /// Minor version 0 alone: what sessions replaced.
    pub(crate) const V0: Self = Self(0b001);
    /// Minor version 1 and what follows (RFC 8881).
    pub(crate) const FROM_1: Self = Self(0b110);
    /// Minor version 2 and what follows (RFC 7862, RFC 8276).
    pub(crate) const FROM_2: Self = Self(0b100);
    /// Those that are served.
    pub(crate) const SERVED: Self = Self::ALL;

    /// Whether a minor version is one of them.
    pub(crate) const fn has(self, minor: u32) -> bool {
        minor < u8::BITS && self.0 >> minor & 1 != 0
    }

    /// Whether all of them are later than a minor version, which does not know what they have.
    pub(crate) const fn are_after(self, minor: u32) -> bool {
        minor < self.0.trailing_zeros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_knows_what_came_before_it() {
        for (versions, has, are_after) in [
            (Versions::ALL, [true, true, true, false], [false; 4]),
            (Versions::V0, [true, false, false, false], [false; 4]),
            (Versions::FROM_1, [false, true, true, false], [true, false, false, false]),
            (Versions::FROM_2, [false, false, true, false], [true, true, false, false]),
        ] {
            for (minor, (has, are_after)) in (0..).zip(has.into_iter().zip(are_after)) {
                assert_eq!(versions.has(minor), has, "{versions:?} {minor}");
                assert_eq!(versions.are_after(minor), are_after, "{versions:?} {minor}");
            }
            assert!(!versions.has(u32::MAX));
        }
    }
}
