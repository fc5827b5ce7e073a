//! Extended attributes of users (xattr(7)): names are without the namespace, `user.`.

/// Longest name in bytes.
pub const XATTR_NAME_BYTES_MAX: usize = 255 - "user.".len();
/// Longest value in bytes; file systems may have less room.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;

/// Whether an extended attribute is to be there when it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetXattrHow {
    /// It may be or not.
    Either,
    /// If it is, [`crate::FsError::Exists`].
    Create,
    /// If it is not, [`crate::FsError::NotFound`].
    Replace,
}
