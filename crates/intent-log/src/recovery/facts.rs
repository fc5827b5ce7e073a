//! What is observed at the start, reduced to what decisions depend on.

use crate::copies::{Facts, SuperblockCopy};
use crate::format::ring_bytes_of;
use crate::scan::End;
use crate::superblock::{FORMAT_VERSION, SuperblockFault};
use crate::survey::Survey;

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

/// What the marks on the file systems that are there say of the log as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarksFact {
    /// Nothing against it.
    Consistent,
    /// One of them was taken further than the log has records of ([`super::marks::Fate::LogIsOlder`]),
    /// and the administrator has not said that the records are to be replayed all the same.
    LogIsOlder,
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
    /// Their marks.
    pub marks: MarksFact,
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
            marks: MarksFact::Consistent,
            operations: match superblock {
                Some(_) => survey.map_or(0, Survey::live_operations),
                None => record_like,
            },
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
