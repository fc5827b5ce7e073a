//! Unit tests of the table of recovery: all combinations of facts, and facts of real media.

use std::collections::BTreeSet;

use super::{
    CASES, Decision, Known, MarksFact, Observed, Presence, RecordsFact, Refusal, RingFact,
    SuperblockFact, decide,
};

fn all() -> impl Iterator<Item = Observed> {
    use SuperblockFact as S;
    let superblocks = [
        S::Unreadable,
        S::OtherVersion,
        S::Blank,
        S::Foreign,
        S::HalfForeign,
        S::Damaged,
        S::Valid,
    ];
    let rings = [RingFact::AsRecorded, RingFact::MediumLarger, RingFact::MediumSmaller];
    let knowns = [Known::Ours, Known::Unknown, Known::GivenUp];
    let records =
        [RecordsFact::None, RecordsFact::Live, RecordsFact::Damaged, RecordsFact::Unreadable];
    let presences = [Presence::All, Presence::Some, Presence::None];
    let marks = [MarksFact::Consistent, MarksFact::LogIsOlder];
    let number = 7 * 3 * 3 * 4 * 3 * 16;
    (0..number).map(move |mut number: usize| {
        let mut pick = |count: usize| {
            let picked = number % count;
            number /= count;
            picked
        };
        Observed {
            superblock: superblocks[pick(7)],
            ring: rings[pick(3)],
            known: knowns[pick(3)],
            records: records[pick(4)],
            presence: presences[pick(3)],
            marks: marks[pick(2)],
            has_record_like: pick(2) == 1,
            is_this_host: pick(2) == 1,
            is_clean: pick(2) == 1,
            operations: 7,
            other_version: 2,
        }
    })
}

#[test]
fn every_row_is_reached_and_labels_are_distinct() {
    let reached: BTreeSet<&str> = all().map(|observed| decide(&observed).0).collect();
    let labels: BTreeSet<&str> = CASES.iter().map(|case| case.label).collect();
    assert_eq!(reached, labels);
    assert_eq!(labels.len(), CASES.len());
}

#[test]
fn what_must_never_happen() {
    for observed in all() {
        let (label, decision) = decide(&observed);
        let is_valid = observed.superblock == SuperblockFact::Valid;
        let has_live = is_valid && !observed.is_clean && observed.records != RecordsFact::None;
        let is_ours = observed.is_this_host && observed.known == Known::Ours;
        match decision {
            Decision::Format => {
                assert!(!has_live || observed.known == Known::GivenUp, "{label}: {observed:?}");
                assert_ne!(observed.superblock, SuperblockFact::Foreign);
                assert_ne!(observed.superblock, SuperblockFact::HalfForeign);
                assert_ne!(observed.superblock, SuperblockFact::OtherVersion);
                assert!(is_valid || !observed.has_record_like, "{label}: {observed:?}");
            }
            Decision::Start => assert!(
                is_valid
                    && observed.is_clean
                    && observed.is_this_host
                    && observed.ring == RingFact::AsRecorded,
                "{label}: {observed:?}"
            ),
            Decision::Replay | Decision::ReplayAndSetAside => {
                assert!(is_valid && observed.is_this_host, "{label}: {observed:?}");
                let is_older = observed.marks == MarksFact::LogIsOlder;
                assert!(
                    !is_older || observed.records == RecordsFact::None,
                    "{label}: {observed:?}"
                );
                assert!(is_ours || observed.records == RecordsFact::None, "{label}: {observed:?}");
                assert_ne!(observed.ring, RingFact::MediumSmaller);
                assert!(matches!(observed.records, RecordsFact::None | RecordsFact::Live));
                let sets_aside = decision == Decision::ReplayAndSetAside;
                let some_absent = has_live && observed.presence != Presence::All;
                assert_eq!(sets_aside, some_absent, "{label}: {observed:?}");
            }
            Decision::Refuse(_) => {}
        }
    }
}

#[test]
fn refusals_say_what_to_do() {
    for observed in all() {
        let (label, decision) = decide(&observed);
        if let Decision::Refuse(refusal) = decision {
            let text = refusal.to_string();
            let helps = text.contains("--yes-lose 7-operations")
                || refusal == Refusal::OtherVersion(2) && text.contains("newer");
            assert!(helps, "{label}: {text}");
        }
    }
}
