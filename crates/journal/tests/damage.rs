//! Property ring: every flipped byte and every cut of a small journal is noticed, and the rest used.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::sync::Arc;

use common::{contents, medium, open, open_image, options, record, truncate, write};
use steadfast_intent_log::testing::MemoryMedium;
use steadfast_journal::{
    Attributes, Change, Journal, OpenError, Outcome, RING_OFFSET, Record, SUPERBLOCK_BYTES,
    Sequence,
};

/// A journal with a record of nearly each kind in batches of one and of several, some left; not
/// closed.
fn filled(medium: &Arc<MemoryMedium>) -> Journal {
    let (journal, _) = open(medium);
    let (parent, attributes) = (b"dir".as_slice(), Attributes::default());
    let append = |record: Record<'_>| journal.append(&record).unwrap();
    // Some of an earlier lap, so that stale frames lie about.
    for round in 0..7 {
        let sequence = append(write(b"old", round * 10_000, &[round as u8; 5000]));
        journal.sync(sequence).unwrap();
        journal.stable([sequence]);
        journal.maintain().unwrap();
    }
    append(write(b"f", 0, &[1; 300]));
    append(record(b"/d/n", Change::Create { parent, name: b"n", verifier: [5; 8], attributes }));
    let third = append(record(b"/d/m", Change::Mkdir { parent, name: b"m", attributes }));
    journal.sync(third).unwrap();
    let left = append(write(b"g", 100, &[2; 200]));
    journal.sync(left).unwrap();
    journal.stable([left]);
    let outcome = Outcome { handle: b"handle".to_vec(), order: Some(3), ..Outcome::default() };
    journal.note_outcome(third, outcome).unwrap();
    append(truncate(b"f", 1000));
    let rename = append(record(
        b"/d/n",
        Change::Rename {
            from_parent: parent,
            from_name: b"n",
            to_parent: b"other",
            to_name: b"k",
            to_path: b"/o/k",
            object: b"f",
            replaced: b"",
        },
    ));
    journal.sync(rename).unwrap();
    let last = append(write(b"f", 5000, &[3; 700]));
    journal.sync(last).unwrap();
    journal
}

const RING_BLOCKS: u64 = 8;

/// Bytes that say something, those beside them, and some of the others.
fn is_flipped(image: &[u8], at: usize) -> bool {
    let beside = &image[at.saturating_sub(4)..image.len().min(at + 5)];
    let is_long_run = beside.iter().all(|byte| *byte == image[at]);
    !is_long_run || at.is_multiple_of(97)
}

fn flip_each_byte(image: &[u8], is_clean: bool) {
    let (whole, recovered) = open_image(image.to_vec());
    assert!(recovered.damage.is_empty() && !recovered.is_superblock_damaged, "{recovered:?}");
    let expected = contents(&whole);
    assert_eq!(expected.len(), 6);
    let (mut noticed, image_bytes) = (0, image.len());
    for at in (0..image.len()).filter(|at| is_flipped(image, *at)) {
        let mut image = image.to_vec();
        image[at] ^= 1 << (at % 8);
        let (journal, recovered) = open_image(image);
        let found = contents(&journal);
        let is_noticed = !recovered.damage.is_empty() || recovered.is_superblock_damaged;
        noticed += u64::from(is_noticed);
        let missing = expected.iter().filter(|one| !found.contains(one)).count();
        assert!(missing <= 1, "byte {at}: {missing} records are missing");
        if found != expected {
            assert!(is_noticed, "byte {at} was not noticed");
        }
        // A record that has left is pending again if that was lost, and nothing else.
        assert!(found.len() - (expected.len() - missing) <= 1, "byte {at}: invented");
        if missing == 1 && is_clean {
            assert!(recovered.damage.iter().any(|one| one.was_stable), "byte {at}");
        }
        if at < RING_OFFSET as usize || at >= image_bytes - SUPERBLOCK_BYTES {
            assert!(recovered.is_superblock_damaged && missing == 0, "byte {at}");
        }
    }
    // The superblocks, and the frames but for runs of data.
    assert!(noticed > 1000, "{noticed}");
}

#[test]
fn a_flipped_byte_costs_at_most_its_record() {
    let medium = medium(RING_BLOCKS);
    let journal = filled(&medium);
    flip_each_byte(&medium.image(), false);
    journal.close().unwrap();
    flip_each_byte(&medium.image(), true);
}

#[test]
fn a_ring_that_is_cut_off_anywhere_gives_what_is_left() {
    let medium = medium(RING_BLOCKS);
    let journal = filled(&medium);
    let image = medium.image();
    let expected = contents(&journal);
    let left = Sequence(expected[2].0.0 + 1);
    journal.close().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let ring = directory.path().join("ring");
    for length in (0..image.len()).step_by(211).chain([4096, 8192, 12288, image.len()]) {
        std::fs::write(&ring, &image[..length]).unwrap();
        match Journal::open(directory.path(), &options()) {
            Ok((journal, recovered)) => {
                let mut found = contents(&journal);
                // That it has left may have been cut off.
                found.retain(|(sequence, _)| *sequence != left);
                assert!(found.iter().all(|one| expected.contains(one)), "cut at {length}");
                assert_eq!(recovered.cut_off_bytes, (image.len() - length) as u64);
                if found != expected {
                    assert!(recovered.cut_off_bytes > 0);
                }
            }
            Err(OpenError::TooSmall | OpenError::Superblock(_)) => {
                assert!(length < RING_OFFSET as usize, "cut at {length}");
            }
            Err(error) => panic!("cut at {length}: {error}"),
        }
    }
}

#[test]
fn zeros_in_the_place_of_a_journal_are_no_new_journal() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ring"), vec![0; 1 << 20]).unwrap();
    let refused = Journal::open(directory.path(), &options()).unwrap_err();
    assert!(matches!(refused, OpenError::Superblock(_)), "{refused}");
}

#[test]
fn missing_records_are_told_by_number_and_hold_the_tail() {
    let medium = medium(RING_BLOCKS);
    let (journal, _) = open(&medium);
    let mut sequences = Vec::new();
    for number in 0..4u8 {
        let sequence = journal.append(&write(b"f", u64::from(number) * 100, &[number; 100]));
        sequences.push(sequence.unwrap());
        journal.sync(sequences[usize::from(number)]).unwrap();
    }
    let image = medium.image();
    journal.close().unwrap();
    // The second batch.
    medium.flip((RING_OFFSET + 4096 + 20) * 8);
    let (damaged, recovered) = open(&medium);
    let [damage] = recovered.damage.as_slice() else { panic!("{recovered:?}") };
    assert_eq!(damage.sequences, Some((sequences[1], sequences[1])));
    assert!(damage.was_stable);
    let found = damaged.pending();
    assert_eq!(found.len(), 3);
    let doubts: Vec<bool> = found.iter().map(|one| one.may_be_superseded).collect();
    assert_eq!(doubts, [true, false, false]);
    let (again, recovered) = open_image(medium.image());
    assert_eq!(recovered.damage.len(), 1, "it is told until somebody has read it");
    again.stable(sequences.clone());
    let used = |journal: &Journal| {
        journal.maintain().unwrap();
        journal.status().used_bytes
    };
    let held = used(&again);
    again.acknowledge_damage();
    assert!(used(&again) < held);
    again.close().unwrap();
    // Blocks that cannot be read are as blocks that are damaged.
    let medium = Arc::new(MemoryMedium::from_image(image));
    medium.lose_block(RING_OFFSET + 2 * 4096);
    let (journal, recovered) = open(&medium);
    assert_eq!(recovered.unreadable_blocks, 1);
    assert_eq!(recovered.damage[0].sequences, Some((Sequence(3), Sequence(3))));
    assert_eq!(journal.pending().len(), 3);
}

/// The medium has lost the last records: nothing tells how many there were.
#[test]
fn unreadable_blocks_behind_the_last_record_are_damage() {
    let medium = medium(RING_BLOCKS);
    let (journal, _) = open(&medium);
    for number in 0..3u64 {
        let sequence = journal.append(&write(b"f", number * 100, &[1; 100])).unwrap();
        journal.sync(sequence).unwrap();
    }
    let image = medium.image();
    let medium = Arc::new(MemoryMedium::from_image(image));
    medium.lose_block(RING_OFFSET + 2 * 4096);
    let (journal, recovered) = open(&medium);
    let [damage] = recovered.damage.as_slice() else { panic!("{recovered:?}") };
    assert!(damage.sequences.is_none() && damage.was_stable, "{damage:?}");
    assert!(
        journal.pending().len() == 2 && journal.pending().iter().all(|it| it.may_be_superseded)
    );
}

/// One of the superblocks is at each end of the file.
#[test]
fn a_lost_begin_or_end_of_the_file_costs_no_record() {
    let medium = medium(RING_BLOCKS);
    let (journal, _) = open(&medium);
    let sequence = journal.append(&write(b"f", 0, &[1; 100])).unwrap();
    journal.sync(sequence).unwrap();
    let image = medium.image();
    for lost in [0..4096, image.len() - 8192..image.len()] {
        let mut image = image.clone();
        image[lost].fill(0);
        let (journal, recovered) = open_image(image);
        assert!(recovered.is_superblock_damaged);
        assert_eq!(common::pending(&journal), [sequence]);
    }
}
