//! What a file has of the disk, and what is copied from one to another there.

use crate::StorageHandle;

/// What [`crate::FileSystem::seek`] looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekFor {
    /// Something that may not be zeros.
    Data,
    /// Zeros that take no space. The end of the file is one.
    Hole,
}

/// What [`crate::FileSystem::seek`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Whether there is none up to the end of the file, which `offset` is then.
    pub is_end: bool,
}

/// What a range of a file begins with. Both are 0 where the file has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    /// Bytes of a hole.
    pub hole_bytes: u64,
    /// Bytes of data behind it.
    pub data_bytes: u64,
    /// Whether the file ends with them.
    pub is_end: bool,
}

/// A place in a file.
#[derive(Clone, Copy, Debug)]
pub struct FilePlace<'h> {
    /// The file.
    pub file: &'h StorageHandle,
    /// In bytes.
    pub offset: u64,
}
