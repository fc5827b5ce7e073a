//! Names of directory entries.

use crate::FsError;

/// The longest name in bytes (Linux `NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;

/// One directory entry's name: 1 to 255 bytes, neither `/` nor NUL in it, neither `.` nor `..`.
/// Any other byte may occur; names are not text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks a name that came from outside and is to be created, removed or renamed.
    ///
    /// # Errors
    /// [`FsError::NameTooLong`] over 255 bytes, [`FsError::AccessDenied`] for an empty name or
    /// one with `/` or NUL (what Linux's nfsd answers), [`FsError::Exists`] for `.` and `..`;
    /// operations to which the last does not fit map it themselves.
    pub fn new(bytes: &'a [u8]) -> Result<Self, FsError> {
        if bytes.len() > NAME_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        if bytes.is_empty() || bytes.contains(&b'/') || bytes.contains(&0) {
            return Err(FsError::AccessDenied);
        }
        if bytes == b"." || bytes == b".." {
            return Err(FsError::Exists);
        }
        Ok(Self(bytes))
    }

    /// The name's bytes.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

impl std::fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_clean() {
        assert_eq!(Name::new(b"").unwrap_err(), FsError::AccessDenied);
        assert_eq!(Name::new(b"a/b").unwrap_err(), FsError::AccessDenied);
        assert_eq!(Name::new(b"a\0b").unwrap_err(), FsError::AccessDenied);
        assert_eq!(Name::new(b".").unwrap_err(), FsError::Exists);
        assert_eq!(Name::new(b"..").unwrap_err(), FsError::Exists);
        assert_eq!(Name::new(&[b'x'; 256]).unwrap_err(), FsError::NameTooLong);
        assert!(Name::new(&[b'x'; 255]).is_ok());
        assert!(Name::new(b"\xff\xfe\n").is_ok());
        assert!(Name::new(b"...").is_ok());
    }
}
