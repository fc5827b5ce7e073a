//! Property ring: what is read over the server's answer equals a model of bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::ops::Range;
use std::sync::Arc;

use common::{medium, options, truncate, write};
use proptest::collection::vec;
use proptest::prelude::*;
use steadfast_journal::{Change, Content, Journal, Sequence, Settled};

const FILE_BYTES: usize = 400;

#[derive(Clone, Debug)]
enum Step {
    Write { file: usize, at: usize, bytes: usize, seed: u8 },
    Truncate { file: usize, size: usize },
    Stable(usize),
    Refused(usize),
    Sync,
    Maintain,
    Reopen,
    Read { file: usize, range: Range<usize> },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let file = 0..3usize;
    let step = prop_oneof![
        6 => (file.clone(), 0..FILE_BYTES, 1..700usize, any::<u8>()).prop_map(
            |(file, at, bytes, seed)| Step::Write { file, at, bytes, seed }),
        2 => (file.clone(), 0..FILE_BYTES).prop_map(|(file, size)| Step::Truncate { file, size }),
        3 => any::<usize>().prop_map(Step::Stable),
        2 => any::<usize>().prop_map(Step::Refused),
        2 => Just(Step::Sync),
        1 => Just(Step::Maintain),
        1 => Just(Step::Reopen),
        4 => (file, 0..FILE_BYTES, 0..FILE_BYTES)
            .prop_map(|(file, a, b)| Step::Read { file, range: a.min(b)..a.max(b) }),
    ];
    vec(step, 1..60)
}

const FILES: [&[u8]; 3] = [b"a", b"bb", b"a longer handle"];

/// What a place of a file has that is pending: bytes, and from which records. The newest is last.
type Cell = Vec<(u8, Sequence)>;

fn data(bytes: usize, seed: u8) -> Vec<u8> {
    // Some of it can be compressed.
    (0..bytes).map(|at| seed.wrapping_add((at / 9) as u8)).collect()
}

fn overlay(journal: &Journal, file: usize, range: Range<usize>) -> Vec<Option<u8>> {
    let mut cells = vec![None; FILE_BYTES];
    let range = range.start as u64..range.end as u64;
    for overlay in journal.read_pending(FILES[file], range.clone()).unwrap() {
        let bytes = match overlay.content {
            Content::Data(data) => data,
            Content::Zeros(bytes) => vec![0; bytes as usize],
        };
        for (at, byte) in (overlay.offset..).zip(bytes) {
            assert!(range.contains(&at));
            assert_eq!(cells[at as usize], None, "pieces do not overlap");
            cells[at as usize] = Some(byte);
        }
    }
    cells
}

/// What is sent, applied in order to what the server has.
fn sent(journal: &Journal, file: usize, into: &mut [u8]) {
    for pending in journal.pending_of(FILES[file]) {
        let stored = journal.read(pending.sequence).unwrap().unwrap();
        match stored.record().change {
            Change::Write { offset, data, .. } => {
                for range in pending.ranges {
                    for at in range.start..range.end.min(into.len() as u64) {
                        into[at as usize] = data[(at - offset) as usize];
                    }
                }
            }
            Change::SetAttr { attributes, .. } => {
                let size = attributes.size.unwrap() as usize;
                into[size.min(FILE_BYTES)..].fill(0);
            }
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn overlays_are_the_newest_bytes(steps in steps(), compress in any::<bool>(), is_prompt in any::<bool>()) {
        let medium = medium(256);
        let options = steadfast_journal::Options { compress, ..options() };
        let opened = || Journal::on_medium(Arc::clone(&medium) as _, &options, [7; 16]).unwrap().0;
        let mut journal = opened();
        let mut model = vec![vec![Cell::new(); FILE_BYTES]; FILES.len()];
        let mut appended = Vec::new();
        for step in steps {
            match step {
                Step::Write { file, at, bytes, seed } => {
                    let data = data(bytes, seed);
                    let appending = journal.append(&write(FILES[file], at as u64, &data));
                    let Ok(sequence) = appending else { continue };
                    for (cell, byte) in model[file][at..].iter_mut().zip(data) {
                        cell.push((byte, sequence));
                    }
                    appended.push((sequence, None));
                }
                Step::Truncate { file, size } => {
                    let appending = journal.append(&truncate(FILES[file], size as u64));
                    let Ok(sequence) = appending else { continue };
                    model[file][size..].iter_mut().for_each(|cell| cell.push((0, sequence)));
                    appended.push((sequence, Some((file, size))));
                }
                Step::Stable(which) => {
                    if appended.is_empty() { continue }
                    let (sequence, truncation) = appended[which % appended.len()];
                    journal.stable([sequence]);
                    for cell in model.iter_mut().flatten() {
                        // Of a write the server has what was sent.
                        if cell.last().is_some_and(|(_, of)| *of == sequence) {
                            cell.clear();
                        }
                    }
                    if let Some((file, size)) = truncation {
                        for cell in &mut model[file][size..] {
                            if cell.iter().any(|(_, of)| *of == sequence) {
                                cell.retain(|(_, of)| *of > sequence);
                            }
                        }
                    }
                    if is_prompt {
                        journal.maintain().unwrap();
                    }
                }
                // What is noted late may be found again after reopening.
                Step::Refused(which) => {
                    if appended.is_empty() || !is_prompt { continue }
                    let (sequence, _) = appended[which % appended.len()];
                    journal.settled([sequence], Settled::Refused);
                    for cell in model.iter_mut().flatten() {
                        cell.retain(|(_, of)| *of != sequence);
                    }
                    journal.maintain().unwrap();
                }
                Step::Sync => journal.sync(Sequence(u64::MAX)).unwrap(),
                Step::Maintain => journal.maintain().unwrap(),
                Step::Reopen => {
                    journal.close().unwrap();
                    journal = opened();
                }
                Step::Read { file, range } => {
                    let found = overlay(&journal, file, range.clone());
                    for at in range {
                        let expected = model[file][at].last().map(|(byte, _)| *byte);
                        prop_assert_eq!(found[at], expected, "file {}, byte {}", file, at);
                    }
                }
            }
        }
        for (file, cells) in model.iter().enumerate() {
            let expected: Vec<_> = cells.iter().map(|cell| cell.last().map(|(byte, _)| *byte)).collect();
            prop_assert_eq!(&overlay(&journal, file, 0..FILE_BYTES), &expected);
            // To send it gives the same bytes, whatever the server had.
            let mut bytes = vec![0xee; FILE_BYTES];
            sent(&journal, file, &mut bytes);
            for (at, expected) in expected.iter().enumerate() {
                if let Some(expected) = expected {
                    prop_assert_eq!(bytes[at], *expected);
                }
            }
        }
    }
}
