//! What can go wrong, by who has to act.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::format::Sequence;
use crate::record::Unfit;
use crate::superblock::SuperblockFault;

/// Why a journal cannot be opened. Nothing was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("the journal {} is in use by {owner}", path.display())]
    InUse {
        /// Its directory.
        path: PathBuf,
        /// The process.
        owner: String,
    },
    /// It is of another mount.
    #[error(
        "the journal is of the share {share} of {server}, and still belongs to it: mount that, or \
         discard the journal, or name another directory"
    )]
    OtherShare {
        /// Of which server it is.
        server: String,
        /// Of which share.
        share: String,
    },
    /// There is no superblock.
    #[error("there is no journal that can be read: {0}")]
    Superblock(SuperblockFault),
    /// The ring would be too small, or too large.
    #[error("a journal needs a ring of at least 16 KiB and at most 64 GiB")]
    TooSmall,
    /// The ring's file is much shorter than its superblock says.
    #[error(
        "the ring was cut off: it has {bytes} bytes of {wanted}; too many to make it as long again"
    )]
    CutOff {
        /// What there is.
        bytes: u64,
        /// What there should be.
        wanted: u64,
    },
    /// A text of the options is too long.
    #[error("the names of server and share and the mount options have at most 1024 bytes each")]
    TooLong,
    /// There is none.
    #[error("there is no journal in {}", .0.display())]
    Missing(PathBuf),
    /// The medium does not read or write.
    #[error("the journal's medium failed: {0}")]
    Medium(String),
    /// A file cannot be opened, made, or locked.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// The medium has failed: nothing is appended any more, and what was not stable is not going to be.
/// The caller sends everything synchronously, tells the user, and does so from what
/// [`crate::Journal::pending`] still gives.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the journal has failed and is not used any more: {why}")]
pub struct Failed {
    /// What the medium said.
    pub why: String,
}

/// Why a record was not appended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AppendError {
    /// There is no room until records leave.
    #[error("the journal is full: {must_leave_bytes} bytes must leave for {wanted_bytes}")]
    Full {
        /// What the record needs.
        wanted_bytes: u64,
        /// How much of the ring must become free at its tail.
        must_leave_bytes: u64,
    },
    /// There will never be room.
    #[error("a record of {bytes} bytes is too large for a ring of {ring_bytes} bytes")]
    TooLarge {
        /// What the record has.
        bytes: usize,
        /// What the ring has.
        ring_bytes: u64,
    },
    /// The record cannot be written as it is.
    #[error(transparent)]
    Unfit(Unfit),
    /// The medium has failed.
    #[error(transparent)]
    Failed(#[from] Failed),
}

/// Why a pending record was not read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The medium does not read.
    #[error("the journal cannot be read: {0}")]
    Medium(String),
    /// The record on the medium is not the one that was written.
    #[error("record {0} of the journal is damaged")]
    Damaged(Sequence),
}
