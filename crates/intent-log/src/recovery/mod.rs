//! What is to be done with a medium at the start: observed facts → decision, as a table.
//!
//! The rows of [`CASES`] are tried from the first to the last, and the first that fits decides. A
//! row names the facts that it asks for; it asks for no others. Together they cover everything; a
//! test goes through all combinations of facts, reaches every row, and checks what must never
//! happen, whatever the order of the rows: that live records are dropped, that they are replayed on
//! a host or into file systems that they are not of, that a stranger's data is written over.

mod decision;
mod facts;
pub mod marks;
#[cfg(test)]
mod tests;

pub use decision::{Decision, Refusal};
pub use facts::{Known, MarksFact, Observed, Presence, RecordsFact, RingFact, SuperblockFact};

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
    marks: Option<MarksFact>,
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
    marks: None,
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
    // A file system was taken further than the log has records of: the log, or the state directory
    // with it, was brought back from a copy, or has lost its end. To replay it would undo what came
    // after the copy. (With nothing live there is nothing to replay; the epochs go on after the
    // latest mark.)
    Case {
        marks: Some(MarksFact::LogIsOlder),
        ..refuse("older than its file systems", |o| {
            Decision::Refuse(Refusal::OlderThanFileSystems(o.operations))
        })
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
            && fits(self.marks, observed.marks)
    }
}

/// The row that fits, by its label, and its decision.
pub fn decide(observed: &Observed) -> (&'static str, Decision) {
    let case = CASES.iter().find(|case| case.fits(observed));
    // The last row fits everything.
    let refuse = Decision::Refuse(Refusal::NoFileSystems(observed.operations));
    case.map_or(("", refuse), |case| (case.label, (case.decide)(observed)))
}
