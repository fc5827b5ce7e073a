//! The intent log: an append-only ring on a device or in a file, where operations become stable
//! before the file systems that they change are.
//!
//! This crate is the log as a value: its format ([`mod@format`], [`superblock`], [`record`]), the
//! order of its records and their gathering into batches ([`IntentLog`], [`Batch`]), reading it
//! ([`Reader`], [`survey()`]), and what is to be done with one that is found at the start
//! ([`recovery`]). It knows bytes and their order; what a record means is the engine's.
//!
//! It must never do I/O other than through [`Medium`], start threads, or know the time or chance:
//! uuids and verifiers are arguments. It trusts nothing that it reads from a medium.
//!
//! What it promises, by the invariants of the design: an LSN is stable ([`IntentLog::stable`]) only
//! when its record and all before it are on the medium; the scan finds these, in order, byte for
//! byte, until they are checkpointed; and finds nothing that was not completed.
#![forbid(unsafe_code)]

mod admission;
pub mod aside;
mod batch;
pub mod begun;
mod copies;
mod file_systems;
pub mod format;
mod log;
pub mod mark;
mod medium;
mod queue;
pub mod record;
pub mod recovery;
mod renewal;
pub mod replies;
mod ring;
mod scan;
pub mod superblock;
mod superblocks;
mod survey;
mod tail;
pub mod testing;
mod usage;

pub use admission::{Admission, Refused};
pub use batch::Batch;
pub use copies::{
    Facts, SuperblockCopy, WriteSuperblockError, adopt, amend, format, inspect, new_superblock,
};
pub use file_systems::FileSystemUsage;
pub use format::{BATCHES_IN_FLIGHT_MAX, Lsn, NO_FILE_SYSTEM, Position};
pub use log::{Exhausted, IntentLog};
pub use mark::{MARK_FILE_BYTES, MARK_SLOT_BYTES, Mark, MarkPlace};
pub use medium::{BLOCK_BYTES, Block, Medium, MediumError, MemoryAdvice};
pub use record::Record;
pub use renewal::RenewError;
pub use scan::{End, Extent, Found, Reader};
pub use superblock::{FileSystemEntry, Identity, Superblock, SuperblockFault, TableFull};
pub use survey::{LiveRecords, Survey, count_record_like, each_live, survey, survey_operations};
pub use usage::{BUCKETS, Counters, Histogram, Usage};
