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
        "the superblocks of the intent log cannot be read. Look for errors of its device in the \
         kernel's messages, and start again when it can be read. If the device is lost, \
         `steadfast log discard --yes-lose {0}-operations` gives up what was only in the log"
    )]
    Unreadable(u64),
    #[error(
        "the intent log has format version {0}, this program reads version {FORMAT_VERSION}. Start \
         the newer steadfast that used it, stop it in order, which empties the log, and move the \
         log's file away before this version is started"
    )]
    OtherVersion(u32),
    #[error(
        "both superblocks of the intent log are zeros, but there are about {0} operations behind \
         them: a part of its device was overwritten or lost. Restore the log from a copy that was \
         made since. To give up all {0} operations: \
         `steadfast log discard --yes-lose {0}-operations`"
    )]
    SuperblocksLost(u64),
    #[error(
        "the device of the intent log holds something else, perhaps a file system. Check `path` in \
         [log]. If what is there is of no use, \
         `steadfast log discard --yes-lose {0}-operations` overwrites it with a new log"
    )]
    Foreign(u64),
    #[error(
        "a part of the device of the intent log holds something else: another program has begun to \
         use it. If none does now, `steadfast log adopt` repairs the log and keeps its {0} \
         operations; `steadfast log discard --yes-lose {0}-operations` gives all of them up"
    )]
    HalfForeign(u64),
    #[error(
        "both superblocks of the intent log are damaged, and there are about {0} operations behind \
         them. Restore the log from a copy that was made since. To give up all {0} operations: \
         `steadfast log discard --yes-lose {0}-operations`"
    )]
    SuperblocksDamaged(u64),
    #[error(
        "the device of the intent log is smaller than the log. Give it back its size, and start \
         again. If that is impossible, `steadfast log discard --yes-lose {0}-operations` gives up \
         the {0} operations that can be read, and those behind them"
    )]
    RingTruncated(u64),
    #[error(
        "the intent log cannot be read to its end: its device fails behind operation {0}. Look for \
         errors of the device in the kernel's messages, and start again when it can be read. \
         `steadfast log verify` lists what each choice keeps and loses: \
         `steadfast log adopt --up-to-damage` keeps the {0} operations before the place and gives up \
         the rest; `steadfast log discard --yes-lose {0}-operations` gives up all, these {0} too"
    )]
    RecordsUnreadable(u64),
    #[error(
        "operations that were stable are missing from the intent log: its device is damaged behind \
         operation {0}. `steadfast log verify` lists what each choice keeps and loses: \
         `steadfast log adopt --up-to-damage` keeps the {0} operations before the damage and gives up \
         the rest; `steadfast log discard --yes-lose {0}-operations` gives up all, these {0} too"
    )]
    RecordsDamaged(u64),
    #[error(
        "the intent log belongs to another host, and has {0} operations that are not on their file \
         systems. If that host is gone and its file systems are mounted here, \
         `steadfast log adopt` has the next start replay them. If they are of no use, \
         `steadfast log discard --yes-lose {0}-operations` gives up all of them"
    )]
    OtherHost(u64),
    #[error(
        "the intent log belongs to another host, which may be using it now; it has {0} operations \
         that are not on their file systems. If that host is gone, `steadfast log adopt` makes the \
         log this server's, or `steadfast log discard --yes-lose {0}-operations` makes it anew"
    )]
    OtherHostOpen(u64),
    #[error(
        "this server has not used this intent log before, and it has {0} operations that are not on \
         their file systems. If they are of the file systems that are mounted here, \
         `steadfast log adopt` has the next start replay them. If they are of no use, \
         `steadfast log discard --yes-lose {0}-operations` gives up all of them"
    )]
    Unknown(u64),
    #[error(
        "the intent log has {0} operations, and none of their file systems is mounted. Mount them \
         and start again. If they are gone, `steadfast log discard --yes-lose {0}-operations` gives \
         up all {0} operations"
    )]
    NoFileSystems(u64),
    #[error(
        "the intent log is older than its file systems: it, or the state directory, was restored from \
         a copy, or its end is lost. Its {0} operations would overwrite what is newer. Nothing was \
         changed. Choose: `steadfast log discard --yes-lose {0}-operations` keeps the file systems \
         as they are, and loses what only this log has (nothing, if it is an older copy); \
         `steadfast log adopt --replay-old-records` replays it: data that was changed since in the \
         same files is kept beside them, other changes of them may be lost. `steadfast log verify` \
         lists the operations"
    )]
    OlderThanFileSystems(u64),
}
