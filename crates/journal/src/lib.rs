//! The journal of a client: a ring file of fixed size on the client's own disk, with the changes of
//! an NFS share that the server does not have stable yet.
//!
//! Before a client sends a change to the server, it appends a [`Record`] ([`Journal::append`]).
//! [`Journal::sync`] makes it stable here. Records leave when the server has them stable
//! ([`Journal::stable`]), and for no other reason: a full ring refuses appends. After a crash of the
//! client [`Journal::open`] finds what has not left; after a crash of the server
//! [`Journal::pending`] tells what it may have lost. [`Journal::read_pending`] is what reads of the
//! client put over what the server answers.
//!
//! The crate has a core over a [`Medium`]: format, records, scan ([`Damage`]), index, and the
//! journal in use. `file` and [`care`] add files: the directory, its lock, the manifest, and
//! what `steadfast journal` does.
//!
//! # What it has from the intent log, and what not
//!
//! The medium is the intent log's ([`steadfast_intent_log::Medium`], blocks, its test double in
//! memory). Its ring is not, as both promise different things. Records of the log leave in order, by
//! file system, and its scan ends at the first gap: what comes after a gap was never acknowledged.
//! Records of the journal leave in any order, one by one, and whatever is whole behind a gap is still
//! data that nobody else has: so a frame tells its position and the sequence before it, and the scan
//! goes on behind damage.
//!
//! # It must never
//!
//! - drop a record that has not left, nor give a sequence twice;
//! - hold its lock while it reads, writes or flushes;
//! - trust what it reads: lengths are bounded, every frame has a checksum, and data its hash;
//! - take a frame of an earlier lap, an earlier epoch or another journal for one of its own.
#![forbid(unsafe_code)]

pub mod care;
mod errors;
mod file;
mod format;
mod growing;
mod index;
mod journal;
pub mod manifest;
mod notes;
mod pending;
mod ranges;
mod record;
mod recover;
pub mod report;
mod scan;
mod state;
mod status;
mod superblock;
pub mod testing;

pub use errors::{AppendError, Failed, OpenError, ReadError};
pub use format::{
    DATA_BYTES_MAX, GROUPS_MAX, HANDLE_BYTES_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, RING_BYTES_MAX,
    RING_BYTES_MIN, RING_OFFSET, SUPERBLOCK_BYTES, Sequence,
};
pub use journal::{Journal, JournalId, Options};
pub use notes::{Outcome, Stamp, Time};
pub use pending::{Content, Overlay, Pending, Stored};
pub use record::{Attributes, Change, Kind, Record, SetTime, Unfit};
pub use scan::Damage;
pub use state::Settled;
pub use status::{Load, Recovered, Statistics, Status};
pub use superblock::{FORMAT_VERSION, SuperblockFault, TEXT_BYTES_MAX};

/// What a journal is written on.
pub use steadfast_intent_log::Medium;
