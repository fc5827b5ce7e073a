//! What can be decided at the start, and the words of refusals.

use thiserror::Error;

use crate::superblock::FORMAT_VERSION;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Make a new log: [`crate::format()`].
    Format,
    /// Go on: nothing to replay, and the write verifier stays, as nothing was lost.
    Start,
    /// Replay all live records (there may be none), checkpoint, and go on with a new verifier.
    Replay,
    /// Write the live records of absent file systems to set-aside files ([`crate::aside`]), make
    /// those stable, and do the rest as for [`Decision::Replay`].
    ReplayAndSetAside,
    /// Serve without a log, and say why.
    Refuse(Refusal),
}

/// Why a log is not used, and what to do about it. The number is of operations that may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the text says it")]
pub enum Refusal {
    #[error(
        "the superblocks of the intent log cannot be read: look for errors of the device in the \
         kernel's messages; if it is lost, `steadfast log discard --yes-lose {0}-operations`"
    )]
    Unreadable(u64),
    #[error(
        "the intent log has format version {0}, this program reads version {FORMAT_VERSION}: \
         start the newer steadfast that used it and stop it cleanly, which empties the log"
    )]
    OtherVersion(u32),
    #[error(
        "both superblocks of the intent log are zeros, but about {0} operations are in it: if \
         they are of no use, `steadfast log discard --yes-lose {0}-operations`"
    )]
    SuperblocksLost(u64),
    #[error(
        "the medium of the intent log holds something else: if it is of no use, \
         `steadfast log discard --yes-lose {0}-operations` makes it a log"
    )]
    Foreign(u64),
    #[error(
        "a part of the medium of the intent log holds something else: if nothing else uses it, \
         `steadfast log adopt` mends the log; if its {0} operations are of no use, \
         `steadfast log discard --yes-lose {0}-operations`"
    )]
    HalfForeign(u64),
    #[error(
        "both superblocks of the intent log are damaged, and about {0} operations are in it: \
         restore its medium from a copy if you can; if they are of no use, \
         `steadfast log discard --yes-lose {0}-operations`"
    )]
    SuperblocksDamaged(u64),
    #[error(
        "the medium of the intent log is smaller than the log: give it back its size; if that \
         cannot be, `steadfast log discard --yes-lose {0}-operations` (or more)"
    )]
    RingTruncated(u64),
    #[error(
        "the intent log cannot be read to its end, {0} operations were found before: look for \
         errors of the device in the kernel's messages; if it is lost, \
         `steadfast log discard --yes-lose {0}-operations` (or more)"
    )]
    RecordsUnreadable(u64),
    #[error(
        "operations that were stable are missing from the intent log, {0} were found before them: \
         its medium is damaged; `steadfast log verify` shows where; to go on without them and all \
         that follow, `steadfast log discard --yes-lose {0}-operations` (or more)"
    )]
    RecordsDamaged(u64),
    #[error(
        "the intent log belongs to another host and has {0} operations: if that host is gone and \
         its file systems are here, `steadfast log adopt`; if they are of no use, \
         `steadfast log discard --yes-lose {0}-operations`"
    )]
    OtherHost(u64),
    #[error(
        "the intent log belongs to another host, which may be using it: if that host is gone, \
         `steadfast log adopt` or `steadfast log discard --yes-lose {0}-operations`"
    )]
    OtherHostOpen(u64),
    #[error(
        "this server has not used this intent log before, and it has {0} operations: if they are \
         to be replayed here, `steadfast log adopt`; if they are of no use, \
         `steadfast log discard --yes-lose {0}-operations`"
    )]
    Unknown(u64),
    #[error(
        "the intent log has {0} operations, and none of their file systems is mounted: mount them \
         and start again; if they are gone, `steadfast log discard --yes-lose {0}-operations`"
    )]
    NoFileSystems(u64),
}
