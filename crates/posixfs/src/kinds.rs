//! Kinds of file systems, and the numbers that the kernel has for them (`linux/magic.h`).

/// The kinds of file system whose limits and habits are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VolumeKind {
    Ext4,
    Xfs,
    Btrfs,
    /// In memory only: nothing can be made more stable than it is.
    Memory,
    Other,
}

pub(crate) const EXT4_MAGIC: u64 = 0xef53;
pub(crate) const XFS_MAGIC: u64 = 0x5846_5342;
pub(crate) const BTRFS_MAGIC: u64 = 0x9123_683e;
pub(crate) const TMPFS_MAGIC: u64 = 0x0102_1994;
pub(crate) const RAMFS_MAGIC: u64 = 0x8584_58f6;
