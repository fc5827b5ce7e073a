//! Property ring: after a crash that keeps any sectors of the write under way, everything that
//! `sync` has returned for is there, in order, and nothing is that was not appended.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::{contents, medium, open, open_image, record, write};
use proptest::collection::vec;
use proptest::prelude::*;
use steadfast_intent_log::testing::{Fault, MemoryMedium};
use steadfast_journal::{AppendError, Change, Journal, Sequence};

#[derive(Clone, Debug)]
enum Step {
    Write {
        file: usize,
        at: u64,
        bytes: usize,
        seed: u8,
    },
    Remove {
        seed: u8,
    },
    Sync,
    Stable(usize),
    Maintain,
    Close,
    /// The machine stops during a write from now on: these sectors of it are there.
    Crash {
        write: u64,
        sectors: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..3usize, 0..20_000u64, 1..6000usize, any::<u8>()).prop_map(
            |(file, at, bytes, seed)| Step::Write { file, at, bytes, seed }),
        2 => any::<u8>().prop_map(|seed| Step::Remove { seed }),
        4 => Just(Step::Sync),
        4 => any::<usize>().prop_map(Step::Stable),
        1 => Just(Step::Maintain),
        1 => Just(Step::Close),
        3 => (0..3u64, any::<u64>()).prop_map(|(write, sectors)| Step::Crash { write, sectors }),
    ];
    vec(step, 1..80)
}

const FILES: [&[u8]; 3] = [b"a", b"b", b"c"];
/// Small enough to go round, and to be full.
const RING_BLOCKS: u64 = 16;

#[derive(Debug)]
struct Appended {
    /// As text.
    content: String,
    /// Which bytes of which file, if it is a write.
    range: Option<(usize, std::ops::Range<u64>)>,
    is_synced: bool,
    has_left: bool,
}

struct Model {
    medium: Arc<MemoryMedium>,
    journal: Journal,
    appended: BTreeMap<Sequence, Appended>,
    highest: Sequence,
}

impl Model {
    fn new() -> Self {
        let medium = medium(RING_BLOCKS);
        let (journal, _) = open(&medium);
        Self { medium, journal, appended: BTreeMap::new(), highest: Sequence(0) }
    }

    fn append(
        &mut self,
        record: &steadfast_journal::Record<'_>,
        range: Option<(usize, std::ops::Range<u64>)>,
    ) {
        match self.journal.append(record) {
            Ok(sequence) => {
                assert!(sequence > self.highest, "sequences only grow");
                self.highest = sequence;
                let content = format!("{record:?}");
                let one = Appended { content, range, is_synced: false, has_left: false };
                self.appended.insert(sequence, one);
            }
            Err(AppendError::Full { must_leave_bytes, .. }) => {
                assert!(must_leave_bytes > 0);
                // The older half becomes stable on the server.
                let pending = common::pending(&self.journal);
                assert!(!pending.is_empty(), "a ring is not full of nothing");
                self.journal.sync(self.highest).unwrap();
                let half: Vec<_> = pending[..pending.len().div_ceil(2)].to_vec();
                for sequence in &half {
                    self.appended.get_mut(sequence).unwrap().has_left = true;
                }
                self.note_synced();
                self.journal.stable(half);
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn note_synced(&mut self) {
        for one in self.appended.values_mut() {
            one.is_synced = true;
        }
    }

    /// Whether later records that have effect cover all of a write.
    fn is_covered(&self, sequence: Sequence, found: &BTreeSet<Sequence>) -> bool {
        let Some((file, range)) = &self.appended[&sequence].range else { return false };
        let mut covered = vec![false; (range.end - range.start) as usize];
        for (later, one) in self.appended.range(sequence.next()..) {
            let has_effect = one.is_synced || one.has_left || found.contains(later);
            if let (Some((of, cover)), true) = (&one.range, has_effect)
                && of == file
            {
                for at in cover.start.max(range.start)..cover.end.min(range.end) {
                    covered[(at - range.start) as usize] = true;
                }
            }
        }
        covered.into_iter().all(|byte| byte)
    }

    fn check(&mut self, is_exact: bool) {
        let contents = contents(&self.journal);
        let found: BTreeSet<Sequence> = contents.iter().map(|(sequence, _)| *sequence).collect();
        for (sequence, content) in &contents {
            let one = self.appended.get(sequence).expect("nothing is invented");
            assert_eq!(content, &one.content);
            assert!(!(is_exact && one.has_left), "{sequence:?} had left");
        }
        for (sequence, one) in &self.appended {
            if one.is_synced && !one.has_left && !found.contains(sequence) {
                assert!(self.is_covered(*sequence, &found), "{sequence:?} is lost");
            }
        }
        // What was neither synced nor found is gone for good; what was found is stable.
        self.appended.retain(|sequence, one| {
            let is_kept = found.contains(sequence) || one.is_synced || one.has_left;
            one.is_synced |= found.contains(sequence);
            is_kept
        });
        // One that is pending again has not left.
        for sequence in &found {
            self.appended.get_mut(sequence).unwrap().has_left = false;
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Write { file, at, bytes, seed } => {
                let data: Vec<u8> = (0..*bytes).map(|n| (n as u8).wrapping_mul(*seed)).collect();
                let range = *at..*at + *bytes as u64;
                self.append(&write(FILES[*file], *at, &data), Some((*file, range)));
            }
            Step::Remove { seed } => {
                let change = Change::Remove { parent: b"p", name: &[*seed], object: b"" };
                self.append(&record(b"/p", change), None);
            }
            Step::Sync => {
                self.journal.sync(self.highest).unwrap();
                self.note_synced();
            }
            Step::Stable(which) => {
                let pending = common::pending(&self.journal);
                if pending.is_empty() {
                    return;
                }
                // A client syncs before it sends COMMIT.
                self.journal.sync(self.highest).unwrap();
                self.note_synced();
                let sequence = pending[which % pending.len()];
                self.journal.stable([sequence]);
                self.appended.get_mut(&sequence).unwrap().has_left = true;
            }
            Step::Maintain => {
                self.journal.maintain().unwrap();
                self.note_synced();
            }
            Step::Close => {
                // A ring that is full to the brim has no room for frames that say what has left.
                let status = self.journal.status();
                let has_room = status.used_bytes + 3 * 4096 <= status.ring_bytes;
                let (other, _) = open(&medium(RING_BLOCKS));
                let closed = std::mem::replace(&mut self.journal, other).close();
                assert!(closed.is_ok() || !has_room, "{closed:?}");
                self.note_synced();
                let recovered;
                (self.journal, recovered) = open(&self.medium);
                // What a crash had cut off is told until the tail has passed it.
                let is_lost = recovered.damage.iter().any(|damage| damage.was_stable);
                assert!(recovered.was_clean && !is_lost, "{recovered:?}");
                self.check(has_room);
            }
            Step::Crash { write, sectors } => self.crash(*write, *sectors),
        }
    }

    fn crash(&mut self, write: u64, sectors: u64) {
        self.medium.fault_at(write, Fault::Fail(sectors));
        // A sync and what maintenance writes; one of these fails, or none.
        if self.journal.sync(self.highest).is_ok() {
            self.note_synced();
            let _ = self.journal.maintain();
        }
        let image = self.medium.image();
        self.medium = Arc::new(MemoryMedium::from_image(image));
        let recovered;
        (self.journal, recovered) = open(&self.medium);
        let lost = recovered.damage.iter().filter(|damage| damage.was_stable).count();
        assert_eq!(lost, 0, "{recovered:?}");
        self.check(false);
        self.journal.acknowledge_damage();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn what_was_synced_is_there(steps in steps()) {
        let mut model = Model::new();
        for step in &steps {
            model.step(step);
        }
        model.crash(100, 0);
    }
}

#[test]
fn a_crash_while_the_journal_is_made_or_opened_leaves_one_that_opens() {
    for write in 0..2 {
        for sectors in [0, 1, 0x55, 0xfe] {
            let empty = medium(RING_BLOCKS);
            empty.fault_at(write, Fault::Fail(sectors));
            let made = Journal::on_medium(Arc::clone(&empty) as _, &common::options(), [7; 16]);
            assert!(made.is_err());
            let half_made = empty.image();
            let opened = Journal::on_medium(
                Arc::new(MemoryMedium::from_image(half_made)),
                &common::options(),
                [7; 16],
            );
            // A file is made beside its place, so only here can there be half a superblock.
            assert!(opened.is_ok() || write == 0 && sectors != 0);

            let used = medium(RING_BLOCKS);
            let (journal, _) = open(&used);
            let sequence = journal.append(&write_of(9)).unwrap();
            journal.sync(sequence).unwrap();
            let before = used.image();
            let reopened = Arc::new(MemoryMedium::from_image(before));
            reopened.fault_at(write, Fault::Fail(sectors));
            let opening =
                Journal::on_medium(Arc::clone(&reopened) as _, &common::options(), [7; 16]);
            assert!(opening.is_err());
            let (journal, _) = open_image(reopened.image());
            assert_eq!(common::pending(&journal), [sequence]);
        }
    }
}

fn write_of(seed: u8) -> steadfast_journal::Record<'static> {
    static DATA: [u8; 256] = [7; 256];
    write(b"f", 0, &DATA[..usize::from(seed)])
}
