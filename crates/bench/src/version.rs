//! Versions of NFS over which calls are made.

use std::str::FromStr;

/// A version of NFS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NfsVersion {
    /// NFSv3 (RFC 1813).
    #[default]
    V3,
    /// NFSv4.1 (RFC 8881).
    V4_1,
    /// NFSv4.2 (RFC 7862): the same requests by another minor version.
    V4_2,
}

impl NfsVersion {
    /// As it is written: 3, 4.1 or 4.2.
    pub fn name(self) -> &'static str {
        match self {
            Self::V3 => "3",
            Self::V4_1 => "4.1",
            Self::V4_2 => "4.2",
        }
    }

    /// Whether it has sessions.
    pub fn is_4(self) -> bool {
        self != Self::V3
    }

    /// The minor version, which NFSv3 has none of.
    pub fn minor(self) -> u32 {
        match self {
            Self::V3 => 0,
            Self::V4_1 => 1,
            Self::V4_2 => 2,
        }
    }
}

impl std::fmt::Display for NfsVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for NfsVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::V3, Self::V4_1, Self::V4_2];
        let known = all.into_iter().find(|version| version.name() == text);
        known.ok_or_else(|| "write 3, 4.1 or 4.2".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_they_are_printed() {
        for version in [NfsVersion::V3, NfsVersion::V4_1, NfsVersion::V4_2] {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        assert!("4".parse::<NfsVersion>().is_err());
    }
}
