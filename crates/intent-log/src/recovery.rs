//! What is to be done with a medium at the start: observed facts → decision, as a table.
//!
//! The rows of [`CASES`] are tried from the first to the last, and the first that fits decides. A
//! row names the facts that it asks for; it asks for no others. Together they cover everything; a
//! test goes through all combinations of facts, reaches every row, and checks what must never
//! happen, whatever the order of the rows: that live records are dropped, that they are replayed on
//! a host or into file systems that they are not of, that a stranger's data is written over.

use thiserror::Error;

use crate::copies::{Facts, SuperblockCopy};
use crate::format::ring_bytes_of;
use crate::scan::{End, Survey};
use crate::superblock::{FORMAT_VERSION, SuperblockFault};

/// What the superblocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperblockFact {
    /// A copy cannot be read, and the other does not count.
    Unreadable,
    /// A copy is of another version.
    OtherVersion,
    /// Both are zeros.
    Blank,
    /// Neither counts, and there is something of which we know nothing.
    Foreign,
    /// One counts, and in place of the other is something of which we know nothing.
    HalfForeign,
    /// Neither counts, and at least one was ours.
    Damaged,
    /// One counts.
    Valid,
}

/// Whether the ring is as large as the medium has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingFact {
    /// It is.
    AsRecorded,
    /// The medium has become larger.
    MediumLarger,
    /// It has become smaller: a part of the ring is not there.
    MediumSmaller,
}

/// Whether this server knows the log, from its state directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is the one used last.
    Ours,
    /// It never was.
    Unknown,
    /// It was, failed, and was given up after all file systems were flushed, but that could not
    /// be written to it ([`crate::IntentLog::give_up`]).
    GivenUp,
}

/// What the scan found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordsFact {
    /// No live ones.
    None,
    /// Live ones, and nothing that contradicts them.
    Live,
    /// Some that were stable are missing.
    Damaged,
    /// It could not read on.
    Unreadable,
}

/// Which of the file systems that have live records are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// All.
    All,
    /// Some.
    Some,
    /// None.
    None,
}

/// All that a decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The superblocks.
    pub superblock: SuperblockFact,
    /// Whether records are in the ring, whatever the superblocks say ([`crate::count_record_like`];
    /// to be counted where neither counts).
    pub has_record_like: bool,
    /// The ring.
    pub ring: RingFact,
    /// What the state directory says.
    pub known: Known,
    /// Whether the superblock has this host's id.
    pub is_this_host: bool,
    /// Whether the log was closed.
    pub is_clean: bool,
    /// The scan.
    pub records: RecordsFact,
    /// The file systems.
    pub presence: Presence,
    /// How many operations would be lost by discarding: live records, or what looks like some.
    pub operations: u64,
    /// The version of a copy of another version.
    pub other_version: u32,
}

impl Observed {
    /// The facts, put together. `survey` is that of the superblock that counts, if one does and the
    /// ring is all there; `record_like` what was counted otherwise; `is_there` tells of the index
    /// of a file system whether it is.
    pub fn new(
        facts: &Facts,
        survey: Option<&Survey>,
        record_like: u64,
        known: Known,
        host: &[u8; 16],
        is_there: impl Fn(u32) -> bool,
    ) -> Self {
        let superblock = facts.superblock();
        let live = survey.map_or(0, Survey::live_records);
        let indices = || survey.into_iter().flat_map(|survey| survey.live.keys());
        let presence = match indices().filter(|index| is_there(**index)).count() {
            there if there == indices().count() => Presence::All,
            0 => Presence::None,
            _ => Presence::Some,
        };
        let ring = match (superblock, ring_bytes_of(facts.medium_bytes)) {
            (Some(superblock), Some(bytes)) if bytes == superblock.ring_bytes => {
                RingFact::AsRecorded
            }
            (Some(superblock), Some(bytes)) if bytes > superblock.ring_bytes => {
                RingFact::MediumLarger
            }
            (Some(_), _) => RingFact::MediumSmaller,
            (None, _) => RingFact::AsRecorded,
        };
        let records = match survey.map(|survey| &survey.end) {
            Some(End::Damage { .. }) => RecordsFact::Damaged,
            Some(End::Unreadable { .. }) => RecordsFact::Unreadable,
            Some(End::Clean | End::Gap { .. }) if live > 0 => RecordsFact::Live,
            Some(End::Clean | End::Gap { .. }) | None => RecordsFact::None,
        };
        Self {
            superblock: superblock_fact(facts),
            has_record_like: record_like > 0,
            ring,
            known,
            is_this_host: superblock.is_some_and(|superblock| superblock.host == *host),
            is_clean: superblock.is_some_and(|superblock| superblock.is_clean),
            records,
            presence,
            operations: if superblock.is_some() { live } else { record_like },
            other_version: facts.other_version().unwrap_or(FORMAT_VERSION),
        }
    }
}

fn superblock_fact(facts: &Facts) -> SuperblockFact {
    if facts.other_version().is_some() {
        return SuperblockFact::OtherVersion;
    }
    let has = |wanted: SuperblockFault| {
        facts.copies.iter().any(|copy| match copy {
            SuperblockCopy::Faulty(fault) => *fault == wanted,
            SuperblockCopy::Valid(_) | SuperblockCopy::Unreadable(_) => false,
        })
    };
    let is_unreadable =
        facts.copies.iter().any(|copy| matches!(copy, SuperblockCopy::Unreadable(_)));
    let is_foreign = has(SuperblockFault::Foreign);
    if facts.superblock().is_some() {
        if is_foreign { SuperblockFact::HalfForeign } else { SuperblockFact::Valid }
    } else if is_unreadable {
        SuperblockFact::Unreadable
    } else if is_foreign {
        SuperblockFact::Foreign
    } else if has(SuperblockFault::Damaged) || has(SuperblockFault::Contradictory) {
        SuperblockFact::Damaged
    } else {
        SuperblockFact::Blank
    }
}

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

/// A row of the table. `None` stands for any.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it is called in messages and tests.
    pub label: &'static str,
    superblock: Option<SuperblockFact>,
    has_record_like: Option<bool>,
    ring: Option<RingFact>,
    known: Option<Known>,
    is_this_host: Option<bool>,
    is_clean: Option<bool>,
    records: Option<RecordsFact>,
    presence: Option<Presence>,
    decide: fn(&Observed) -> Decision,
}

const ANY: Case = Case {
    label: "any",
    superblock: None,
    has_record_like: None,
    ring: None,
    known: None,
    is_this_host: None,
    is_clean: None,
    records: None,
    presence: None,
    decide: |_| Decision::Start,
};

const fn refuse(label: &'static str, decide: fn(&Observed) -> Decision) -> Case {
    Case { label, decide, ..ANY }
}

/// The table.
pub const CASES: &[Case] = &[
    // Neither copy counts and at least one cannot be read. What cannot be read may come back: a
    // cable, a controller. Nothing is written.
    Case {
        superblock: Some(SuperblockFact::Unreadable),
        ..refuse("superblocks unreadable", |o| Decision::Refuse(Refusal::Unreadable(o.operations)))
    },
    // A copy is of another version: a newer program was here, perhaps only began to be (the other
    // copy may be ours and intact). It knows what is in the log; this one does not.
    Case {
        superblock: Some(SuperblockFact::OtherVersion),
        ..refuse("another version", |o| Decision::Refuse(Refusal::OtherVersion(o.other_version)))
    },
    // Zeros in place of superblocks, but records in the ring: somebody zeroed the beginning of the
    // medium, or a part of it was lost. The records may be all that there is of operations that
    // clients were told are stable.
    Case {
        superblock: Some(SuperblockFact::Blank),
        has_record_like: Some(true),
        ..refuse("superblocks lost", |o| Decision::Refuse(Refusal::SuperblocksLost(o.operations)))
    },
    // A new medium: the file was written through with zeros, or the device never used.
    Case {
        label: "new medium",
        superblock: Some(SuperblockFact::Blank),
        decide: |_| Decision::Format,
        ..ANY
    },
    // There is something, and it was never ours: a file system, a partition table. It is not for us
    // to write over it.
    Case {
        superblock: Some(SuperblockFact::Foreign),
        ..refuse("something else", |o| Decision::Refuse(Refusal::Foreign(o.operations)))
    },
    // One copy is ours and intact, and there is something else in place of the other. A torn write
    // does not make that, as both have the same magic in one sector: somebody has begun to use the
    // medium for another thing, which to use the log would write over.
    Case {
        superblock: Some(SuperblockFact::HalfForeign),
        ..refuse("half something else", |o| Decision::Refuse(Refusal::HalfForeign(o.operations)))
    },
    // Both copies are damaged, which no crash does (they are never written at the same time), and
    // there are records. Without a superblock nobody knows which of them count.
    Case {
        superblock: Some(SuperblockFact::Damaged),
        has_record_like: Some(true),
        ..refuse("superblocks damaged", |o| {
            Decision::Refuse(Refusal::SuperblocksDamaged(o.operations))
        })
    },
    // The making of a log was interrupted: the first copy is torn, the second not written, and
    // there are no records, as none is written before both copies are.
    Case {
        label: "unfinished",
        superblock: Some(SuperblockFact::Damaged),
        decide: |_| Decision::Format,
        ..ANY
    },
    // The log failed while this server used it, and all its operations were made stable by
    // flushes. The file systems changed since; the records would undo that.
    Case { label: "given up", known: Some(Known::GivenUp), decide: |_| Decision::Format, ..ANY },
    // A closed log with nothing in it that another host used: it is as good as a new one. Its
    // verifier is that host's.
    Case {
        label: "another host's, clean",
        is_this_host: Some(false),
        is_clean: Some(true),
        decide: |_| Decision::Format,
        ..ANY
    },
    // A closed log whose medium has another size now: that is how to resize a log.
    Case {
        label: "clean, larger",
        ring: Some(RingFact::MediumLarger),
        is_clean: Some(true),
        decide: |_| Decision::Format,
        ..ANY
    },
    // The same, smaller.
    Case {
        label: "clean, smaller",
        ring: Some(RingFact::MediumSmaller),
        is_clean: Some(true),
        decide: |_| Decision::Format,
        ..ANY
    },
    // The usual start after a stop. Also of a log that the state directory does not know: there is
    // nothing in it that could be wrong.
    Case { label: "clean", is_clean: Some(true), decide: |_| Decision::Start, ..ANY },
    // A part of the ring is not there: what is left cannot be read as a ring.
    Case {
        ring: Some(RingFact::MediumSmaller),
        ..refuse("ring truncated", |o| Decision::Refuse(Refusal::RingTruncated(o.operations)))
    },
    // The scan met a place that cannot be read. What lies beyond it may be stable operations, and
    // to replay only those before would be to lose them.
    Case {
        records: Some(RecordsFact::Unreadable),
        ..refuse("records unreadable", |o| {
            Decision::Refuse(Refusal::RecordsUnreadable(o.operations))
        })
    },
    // The scan ended before records of which is known that they were stable.
    Case {
        records: Some(RecordsFact::Damaged),
        ..refuse("records damaged", |o| Decision::Refuse(Refusal::RecordsDamaged(o.operations)))
    },
    // Another host's operations. Its file systems may be elsewhere, or mounted there at this
    // moment.
    Case {
        is_this_host: Some(false),
        records: Some(RecordsFact::Live),
        ..refuse("another host's", |o| Decision::Refuse(Refusal::OtherHost(o.operations)))
    },
    // Another host's log, not closed, with nothing live: it crashed, or uses the log now, on a
    // device that both can reach.
    Case {
        is_this_host: Some(false),
        ..refuse("another host's, open", |o| Decision::Refuse(Refusal::OtherHostOpen(o.operations)))
    },
    // After a crash, with nothing that was not checkpointed. Data that was written unstable may be
    // lost all the same, so it is a replay of nothing, and the verifier changes.
    Case {
        label: "crash, nothing to replay",
        records: Some(RecordsFact::None),
        decide: |_| Decision::Replay,
        ..ANY
    },
    // This host's operations in a log that the state directory does not know: it was lost, or
    // another server of this host has one of its own. To replay them over a file system that was
    // served without them since would undo changes.
    Case {
        known: Some(Known::Unknown),
        ..refuse("unknown log", |o| Decision::Refuse(Refusal::Unknown(o.operations)))
    },
    // The usual start after a crash.
    Case { label: "crash", presence: Some(Presence::All), decide: |_| Decision::Replay, ..ANY },
    // After a crash, and a disk is missing. The others must not wait for it.
    Case {
        label: "crash, some absent",
        presence: Some(Presence::Some),
        decide: |_| Decision::ReplayAndSetAside,
        ..ANY
    },
    // After a crash, and nothing is mounted: that is more likely a mistake than a loss of all
    // disks.
    refuse("crash, all absent", |o| Decision::Refuse(Refusal::NoFileSystems(o.operations))),
];

fn fits<T: PartialEq + Copy>(asked: Option<T>, observed: T) -> bool {
    asked.is_none_or(|asked| asked == observed)
}

impl Case {
    /// Whether the row asks for nothing else.
    fn fits(&self, observed: &Observed) -> bool {
        fits(self.superblock, observed.superblock)
            && fits(self.has_record_like, observed.has_record_like)
            && fits(self.ring, observed.ring)
            && fits(self.known, observed.known)
            && fits(self.is_this_host, observed.is_this_host)
            && fits(self.is_clean, observed.is_clean)
            && fits(self.records, observed.records)
            && fits(self.presence, observed.presence)
    }
}

/// The row that fits, by its label, and its decision.
pub fn decide(observed: &Observed) -> (&'static str, Decision) {
    let case = CASES.iter().find(|case| case.fits(observed));
    // The last row fits everything.
    let refuse = Decision::Refuse(Refusal::NoFileSystems(observed.operations));
    case.map_or(("", refuse), |case| (case.label, (case.decide)(observed)))
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
