//! What a journal tells of itself.

use crate::format::Sequence;
use crate::scan::Damage;

/// What was found when a journal was opened. [`crate::Journal::pending`] has the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Whether it was made just now.
    pub is_new: bool,
    /// Whether it had been closed.
    pub was_clean: bool,
    /// One of the two superblocks was not as it was written; the other one served.
    pub is_superblock_damaged: bool,
    /// Records that have not left.
    pub pending_records: u64,
    /// Changes were sent around the journal while it had records of the same objects, or while it had
    /// failed: [`crate::Pending::may_be_superseded`] tells which records are older.
    pub was_bypassed: bool,
    /// Where records are missing. The ring's tail does not pass the first such place before
    /// [`crate::Journal::acknowledge_damage`].
    pub damage: Vec<Damage>,
    /// Blocks of the ring that could not be read.
    pub unreadable_blocks: u64,
    /// Bytes at the end of the ring file that were missing, and are zeros now.
    pub cut_off_bytes: u64,
    /// The mount options of the mount before.
    pub previous_mount_options: Vec<u8>,
}

/// What was done since the journal was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Records that were appended.
    pub records: u64,
    /// Bytes of file data in them, before compression.
    pub data_bytes: u64,
    /// Bytes of batches as they were written.
    pub ring_bytes: u64,
    /// Batches: flushes of the medium for records.
    pub flushes: u64,
    /// Appends that found no room.
    pub full_waits: u64,
    /// Bytes that were not to be sent any more, as a later write or truncation came before that.
    pub superseded_bytes: u64,
    /// Records that have left.
    pub left_records: u64,
}

/// What a journal is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Why it has failed, if it has.
    pub failed: Option<String>,
    /// The size of the ring.
    pub ring_bytes: u64,
    /// Of it, what may not be written over.
    pub used_bytes: u64,
    /// Records that have not left.
    pub pending_records: u64,
    /// Files and directories that these are of.
    pub pending_objects: u64,
    /// The last sequence that was given.
    pub last: Sequence,
    /// Up to this one everything is on the medium.
    pub stable: Sequence,
    /// Why the manifest could not be written last.
    pub manifest_error: Option<String>,
    /// Counts.
    pub statistics: Statistics,
}

/// What a journal holds, as [`crate::Journal::load`] tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Why it has failed, if it has.
    pub failed: Option<String>,
    /// The size of the ring, in bytes.
    pub ring_bytes: u64,
    /// Of it, what may not be written over, in bytes.
    pub used_bytes: u64,
    /// Records that have not left.
    pub pending_records: u64,
    /// File data in these, in bytes, before compression.
    pub pending_bytes: u64,
    /// The oldest of them, and when it was made, in nanoseconds since 1970.
    pub oldest: Option<(Sequence, u64)>,
    /// The last sequence that was given.
    pub last: Sequence,
    /// Up to this one everything is on the medium.
    pub stable: Sequence,
    /// Counts.
    pub statistics: Statistics,
}
