//! Property ring: however records are cut into fragments, and their stream into receives, the same
//! records come out; what a peer announces costs nothing.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use steadfast_rpc::record::{
    FRAGMENT_BYTES_MAX, MARK_BYTES, Mark, Splitter, Step, TooLarge, fill_in_mark,
};

const MAX: usize = 4096;

fn fragment(bytes: &[u8], is_last: bool) -> Vec<u8> {
    [&Mark::new(bytes.len(), is_last).to_bytes()[..], bytes].concat()
}

/// A record in fragments of these sizes, which go round; an empty one may be among them.
fn in_fragments(record: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut rest = record;
    for size in sizes.iter().cycle().take(record.len() + sizes.len()) {
        let (piece, behind) = rest.split_at(rest.len().min(*size));
        stream.extend(fragment(piece, false));
        rest = behind;
        if rest.is_empty() {
            break;
        }
    }
    stream.extend(fragment(rest, true));
    stream
}

/// Reads a stream that comes in pieces of these sizes, and counts the steps.
fn read(stream: &[u8], sizes: &[usize], max: usize) -> Result<(Vec<Vec<u8>>, usize), TooLarge> {
    let mut splitter = Splitter::default();
    let (mut records, mut record, mut steps) = (Vec::new(), Vec::new(), 0);
    let mut sizes = sizes.iter().cycle();
    let mut rest = stream;
    while !rest.is_empty() {
        let size = *sizes.next().unwrap();
        let (mut received, behind) = rest.split_at(rest.len().min(size.max(1)));
        rest = behind;
        loop {
            steps += 1;
            if let Some((whole, behind)) = splitter.whole(received, max) {
                records.push(whole.to_vec());
                received = behind;
                continue;
            }
            match splitter.step(&mut received, max)? {
                Step::Piece(piece) => {
                    assert!(!piece.is_empty());
                    record.extend_from_slice(piece);
                    assert!(record.len() <= max);
                }
                Step::End => records.push(std::mem::take(&mut record)),
                Step::Starved => break,
            }
        }
        assert!(received.is_empty());
    }
    assert!(!splitter.is_partial() && record.is_empty());
    Ok((records, steps))
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_records(
        records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..6),
        fragments in prop::collection::vec(0_usize..40, 1..5),
        receives in prop::collection::vec(1_usize..90, 1..5),
    ) {
        // In fragments and not, by turns.
        let stream: Vec<u8> = records.iter().enumerate().flat_map(|(index, record)| {
            if index % 2 == 0 { in_fragments(record, &fragments) } else { fragment(record, true) }
        }).collect();
        for receives in [&receives[..], &[1], &[stream.len()]] {
            let (found, steps) = read(&stream, receives, MAX).unwrap();
            prop_assert_eq!(&found, &records);
            // Each step takes a byte at least, ends a record, or ends a receive.
            prop_assert!(steps <= 2 * stream.len() + records.len());
        }
    }

    #[test]
    fn bytes_that_went_elsewhere_count(length in 1_usize..500, direct in 0_usize..600) {
        let stream = fragment(&vec![7; length], true);
        let (mut mark, body) = stream.split_at(MARK_BYTES);
        let mut splitter = Splitter::default();
        prop_assert_eq!(splitter.step(&mut mark, MAX), Ok(Step::Starved));
        prop_assert_eq!(splitter.fragment_left(), length);
        splitter.advance(direct);
        prop_assert_eq!(splitter.fragment_left(), length.saturating_sub(direct));
        prop_assert_eq!(splitter.take_end(), direct >= length);
        prop_assert!(!splitter.take_end());
        if direct < length {
            let mut rest = &body[direct..];
            prop_assert_eq!(splitter.step(&mut rest, MAX), Ok(Step::Piece(&body[direct..])));
            prop_assert_eq!(splitter.step(&mut rest, MAX), Ok(Step::End));
        }
        prop_assert!(!splitter.is_partial());
    }

    #[test]
    fn any_four_bytes_are_a_mark(bytes: [u8; MARK_BYTES]) {
        let mark = Mark::from_bytes(bytes);
        prop_assert_eq!(mark.to_bytes(), bytes);
        prop_assert_eq!(Mark::new(mark.fragment_bytes(), mark.is_last()), mark);
        prop_assert_eq!(mark.is_last(), bytes[0] >= 0x80);
        prop_assert!(mark.fragment_bytes() <= FRAGMENT_BYTES_MAX);
    }

    #[test]
    fn any_bytes_are_records_or_refused(
        stream in prop::collection::vec(prop_oneof![8 => Just(0_u8), 1 => any::<u8>()], 0..300),
        max in 0_usize..40,
    ) {
        let mut splitter = Splitter::default();
        let mut rest = &stream[..];
        let (mut record_bytes, mut has_ended) = (0, false);
        for _ in 0..=2 * stream.len() {
            match splitter.step(&mut rest, max) {
                Ok(Step::Piece(piece)) => record_bytes += piece.len(),
                Ok(Step::End) => record_bytes = 0,
                Ok(Step::Starved) => has_ended = true,
                Err(TooLarge { announced_bytes, max_bytes }) => {
                    prop_assert!(announced_bytes > max as u64 && max_bytes == max);
                    has_ended = true;
                }
            }
            prop_assert!(record_bytes <= max);
            if has_ended {
                break;
            }
        }
        prop_assert!(has_ended, "for ever");
    }
}

#[test]
fn marks_are_as_rfc_5531_has_them() {
    assert_eq!(Mark::whole(40).to_bytes(), [0x80, 0, 0, 40]);
    assert_eq!(Mark::new(0x0102_0304, false).to_bytes(), [1, 2, 3, 4]);
    assert_eq!(Mark::new(0, false).to_bytes(), [0; 4]);
    assert_eq!(Mark::new(FRAGMENT_BYTES_MAX, true).to_bytes(), [0xff; 4]);
    let mut record = *b"....abc";
    fill_in_mark(&mut record);
    assert_eq!(record, *b"\x80\0\0\x03abc");
}

#[test]
#[should_panic(expected = "2 GiB")]
fn no_mark_lies_about_a_length() {
    let _ = Mark::whole(1 << 31);
}

#[test]
fn the_bound_is_that_of_all_fragments_together() {
    let stream = [fragment(&[0; 60], false), fragment(&[0; 41], true)].concat();
    let error = read(&stream, &[1], 100).unwrap_err();
    assert_eq!(error, TooLarge { announced_bytes: 101, max_bytes: 100 });
    assert_eq!(read(&stream, &[1], 101).unwrap().0, [vec![0; 101]]);
    // Of a record that comes whole in one fragment, too.
    let whole = fragment(&[0; 101], true);
    assert_eq!(read(&whole, &[usize::MAX], 100), Err(error));
    assert_eq!(read(&whole, &[usize::MAX], 101).unwrap().0, [vec![0; 101]]);
    // The next record begins anew.
    let twice = [&stream[..], &stream].concat();
    assert_eq!(read(&twice, &[7], 101).unwrap().0.len(), 2);
    let error = read(&[0xff; 4], &[4], 1 << 20).unwrap_err();
    assert_eq!(error.announced_bytes, 0x7fff_ffff);
}
