//! Unit and property rings: records in streams that are cut, reordered, repeated and lossy.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use proptest::prelude::*;

use super::{FRAGMENT_BYTES_MAX, Framing, Mark, RECORD_BYTES_MAX, Record, RecordSink, Times};
use crate::capture::stream::{Next, Placement, Segment, Stream, WAIT_NS};
use crate::capture::testing::{call, fragments, getattr, record, reply, words};

/// Collects records; awaits replies with an even xid.
#[derive(Default)]
struct Found {
    records: Vec<Vec<u8>>,
    lost_places: usize,
    tls: Vec<bool>,
}

impl RecordSink for Found {
    fn is_awaited(&self, xid: u32) -> bool {
        // A chance number is hardly one of those that somebody waits for.
        xid < 2000 && xid.is_multiple_of(2)
    }

    fn handle_record(&mut self, record: &Record<'_>) {
        self.records.push(record.bytes.to_vec());
    }

    fn handle_lost_place(&mut self) {
        self.lost_places += 1;
    }

    fn handle_tls(&mut self, is_certain: bool) {
        self.tls.push(is_certain);
    }
}

#[test]
fn records_of_many_fragments_come_in_any_pieces() {
    let (first, second) = (getattr(1), reply(3, &words(&[0, 1, 2])));
    let stream = [
        fragments(&first, &(1..first.len()).collect::<Vec<_>>()),
        record(&second),
        // Fragments inside a record may be empty, the last one too.
        fragments(&first, &[10, 10, 10, 20, first.len()]),
    ]
    .concat();
    for piece in [1, 3, 7, stream.len()] {
        let mut found = Found::default();
        let mut framing = Framing::at_begin();
        for bytes in stream.chunks(piece) {
            framing.handle(bytes, Times::at(0), &mut found);
        }
        assert_eq!(found.records, [first.clone(), second.clone(), first.clone()], "{piece}");
        assert_eq!(found.lost_places, 0);
    }
}

#[test]
fn where_the_place_is_known_a_record_may_begin_empty_or_have_no_bytes() {
    let message = getattr(1);
    let (empty, nothing) = (Mark::new(0, false).to_bytes(), Mark::whole(0).to_bytes());
    let stream = [
        &empty[..],
        &record(&message),
        &nothing,
        &record(&message),
        &empty,
        &empty,
        &nothing,
        &empty,
        &fragments(&message, &[10, 10]),
    ]
    .concat();
    for piece in [1, 3, 7, stream.len()] {
        let mut found = Found::default();
        let mut framing = Framing::at_begin();
        for bytes in stream.chunks(piece) {
            framing.handle(bytes, Times::at(0), &mut found);
        }
        assert_eq!(found.records, vec![message.clone(); 3], "{piece}");
        assert_eq!((found.lost_places, framing.kept_bytes()), (0, 0));
    }
    // What follows is no record: the place is lost, and found again.
    let mut found = Found::default();
    let stream = [&empty[..], &record(&[7; 40]), &record(&message)].concat();
    Framing::at_begin().handle(&stream, Times::at(0), &mut found);
    assert_eq!((found.records, found.lost_places), (vec![message], 1));
}

#[test]
fn the_middle_of_a_stream_is_searched_for_calls_and_awaited_replies() {
    let message = getattr(1);
    for (wanted, is_found) in [
        (message.clone(), true),
        (reply(2, &words(&[0])), true),
        (reply(3, &words(&[0])), false),
        // Another program than those that are read.
        (call(1, (300_000, 1, 1), &[]), false),
    ] {
        let stream = [&[0xab; 500][..], &record(&wanted)].concat();
        for piece in [1, 50, stream.len()] {
            let mut found = Found::default();
            let mut framing = Framing::in_the_middle();
            for bytes in stream.chunks(piece) {
                framing.handle(bytes, Times::at(0), &mut found);
            }
            assert_eq!(found.records.len(), usize::from(is_found));
            assert!(framing.kept_bytes() < 1000);
        }
    }
}

#[test]
fn a_hole_inside_a_fragment_costs_the_end_of_one_record() {
    let long = call(1, (100_003, 3, 7), &[7; 1000]);
    let next = getattr(2);
    let stream = [record(&long), record(&next)].concat();
    let mut found = Found::default();
    let mut framing = Framing::at_begin();
    framing.handle(&stream[..200], Times::at(0), &mut found);
    framing.handle_gap(300, 0, &mut found);
    framing.handle(&stream[500..], Times::at(0), &mut found);
    assert_eq!(found.records, [long[..196].to_vec(), next.clone()]);
    assert_eq!(found.lost_places, 0);

    // Over the record's end: the beginning of the next one is lost too.
    let stream = [record(&long), record(&next), record(&next)].concat();
    let mut found = Found::default();
    let mut framing = Framing::at_begin();
    framing.handle(&stream[..200], Times::at(0), &mut found);
    let hole = record(&long).len() - 200 + 5;
    framing.handle_gap(hole as u32, 0, &mut found);
    framing.handle(&stream[200 + hole..], Times::at(0), &mut found);
    assert_eq!(found.records, [long[..196].to_vec(), next]);
    assert_eq!(found.lost_places, 1);
}

#[test]
fn implausible_lengths_lose_the_place_and_long_records_are_cut() {
    let mut found = Found::default();
    let mut framing = Framing::at_begin();
    let too_long = Mark::whole(FRAGMENT_BYTES_MAX + 1);
    framing.handle(&too_long.to_bytes(), Times::at(0), &mut found);
    assert_eq!(found.lost_places, 1);
    framing.handle(&record(&getattr(1)), Times::at(0), &mut found);
    assert_eq!(found.records.len(), 1);

    let long = call(1, (100_003, 3, 7), &vec![7; RECORD_BYTES_MAX + 5000]);
    let stream = [fragments(&long, &[1000]), record(&getattr(1))].concat();
    let mut found = Found::default();
    let mut framing = Framing::at_begin();
    for piece in stream.chunks(1 << 16) {
        framing.handle(piece, Times::at(0), &mut found);
        assert!(framing.kept_bytes() <= 2 * RECORD_BYTES_MAX);
    }
    assert_eq!(found.records[0], long[..RECORD_BYTES_MAX]);
    assert_eq!(found.records[1], getattr(1));
    assert!(framing.kept_bytes() < RECORD_BYTES_MAX, "a large record's memory is given back");
}

#[test]
fn between_records_no_memory_is_kept_and_a_length_alone_gets_little() {
    let mut found = Found::default();
    let mut framing = Framing::at_begin();
    let stream = record(&call(2, (100_003, 3, 7), &vec![7; 500_000]));
    framing.handle(&stream[..60], Times::at(0), &mut found);
    assert!(framing.kept_bytes() < 100_000, "{}", framing.kept_bytes());
    framing.handle(&stream[60..], Times::at(0), &mut found);
    assert_eq!((found.records.len(), framing.kept_bytes()), (1, 0));
}

#[test]
fn tls_is_recognised() {
    let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc];
    let mut found = Found::default();
    let mut framing = Framing::at_begin();
    framing.handle(&record(&call(1, (100_003, 4, 0), &[])), Times::at(0), &mut found);
    framing.handle(&hello, Times::at(0), &mut found);
    assert_eq!((found.records.len(), &found.tls[..]), (1, &[true][..]));
    let mut found = Found::default();
    Framing::in_the_middle().handle(&[0x17, 3, 3, 0, 99, 1, 2, 3], Times::at(0), &mut found);
    assert_eq!(found.tls, [false]);
}

/// Cuts behind this place leave the head of a message whole.
const HEAD_BYTES: usize = 40;

/// A message, and how it is cut into fragments. Nothing behind its head looks like a mark or a head: what does so
/// by chance misleads who looks for the place, and it must.
fn message() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let body = prop::collection::vec(0x92_u8.., 0..300);
    (any::<bool>(), 0_u32..1000, body, prop::collection::vec(any::<u16>(), 0..4)).prop_map(
        |(is_call, xid, body, cuts)| {
            let message =
                if is_call { call(xid, (100_003, 3, 7), &body) } else { reply(xid * 2, &body) };
            let room = message.len().saturating_sub(HEAD_BYTES + 1);
            let cuts = cuts.iter().filter(|_| room > 0);
            let mut cuts: Vec<usize> =
                cuts.map(|cut| HEAD_BYTES + usize::from(*cut) % room).collect();
            cuts.sort_unstable();
            cuts.dedup();
            let stream = fragments(&message, &cuts);
            (message, stream)
        },
    )
}

/// What happens to a piece of a stream.
#[derive(Clone, Debug)]
struct Fate {
    length: usize,
    is_lost: bool,
    is_repeated: bool,
    /// How many places later it comes.
    delay: usize,
}

fn fate() -> impl Strategy<Value = Fate> {
    (1_usize..200, prop::bool::weighted(0.1), prop::bool::weighted(0.2), 0_usize..4).prop_map(
        |(length, is_lost, is_repeated, delay)| Fate { length, is_lost, is_repeated, delay },
    )
}

fn feed(framing: &mut Framing, stream: &mut Stream, segment: &Segment<'_>, found: &mut Found) {
    match stream.handle(segment) {
        Placement::Now { skip } => {
            framing.handle(&segment.payload[skip as usize..], Times::at(segment.time_ns), found);
        }
        Placement::Elsewhere => panic!("the stream does not jump"),
        Placement::Begin | Placement::Old | Placement::Early => {}
    }
    while let Some(next) = stream.poll_next(segment.time_ns) {
        match next {
            Next::Gap(length) => framing.handle_gap(length, segment.time_ns, found),
            Next::Segment(early) => framing.handle(&early.payload, Times::at(early.time_ns), found),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// All records that no loss has touched are found, in order, and nothing that was not sent.
    #[test]
    fn whole_records_are_found(
        messages in prop::collection::vec(message(), 1..30),
        fates in prop::collection::vec(fate(), 1..40),
        initial: u32,
    ) {
        let all: Vec<u8> = messages.iter().flat_map(|(_, stream)| stream.clone()).collect();
        let mut pieces = Vec::new();
        let mut lost = Vec::new();
        let mut at = 0;
        for (index, fate) in fates.iter().cycle().enumerate() {
            if at >= all.len() {
                break;
            }
            let end = (at + fate.length).min(all.len());
            // What follows a loss at the very end would tell it.
            if fate.is_lost && end < all.len() {
                lost.push(at..end);
            } else {
                pieces.push((index + fate.delay, at..end));
                if fate.is_repeated {
                    pieces.push((index + fate.delay + 2, at.saturating_sub(3)..end));
                }
            }
            at = end;
        }
        pieces.sort_by_key(|(place, _)| *place);
        // A repetition that reaches back must not bring what was lost.
        for (_, range) in &mut pieces {
            while lost.iter().any(|gone: &std::ops::Range<usize>| gone.contains(&range.start)) {
                range.start += 1;
            }
        }
        let mut stream = Stream::default();
        let mut framing = Framing::at_begin();
        let mut found = Found::default();
        let syn = Segment { sequence: initial, payload: &[], missing: 0, is_syn: true, time_ns: 0 };
        prop_assert_eq!(stream.handle(&syn), Placement::Begin);
        for (number, (_, range)) in pieces.iter().enumerate() {
            let segment = Segment {
                sequence: initial.wrapping_add(1).wrapping_add(range.start as u32),
                payload: &all[range.clone()],
                missing: 0,
                is_syn: false,
                time_ns: number as u64,
            };
            feed(&mut framing, &mut stream, &segment, &mut found);
        }
        // Time passes, and gaps are given up.
        for _ in 0..=lost.len() {
            let late = Segment { time_ns: WAIT_NS * 1000, ..syn };
            let late = Segment { is_syn: false, ..late };
            feed(&mut framing, &mut stream, &late, &mut found);
        }
        let mut begin = 0;
        let mut rest = found.records.iter();
        for (message, bytes) in &messages {
            let range = begin..begin + bytes.len();
            begin = range.end;
            let is_touched = lost.iter().any(|gone| gone.start < range.end && range.start < gone.end);
            if !is_touched {
                prop_assert!(rest.any(|record| record == message), "{range:?} of {lost:?}");
            }
        }
        // What else was found is the beginning of a damaged one.
        for record in &found.records {
            prop_assert!(messages.iter().any(|(message, _)| message.starts_with(record)));
        }
    }

    #[test]
    fn any_bytes_are_survived(pieces in prop::collection::vec(
        (prop::collection::vec(prop_oneof![Just(0_u8), Just(0x80), any::<u8>()], 0..100), 0_u32..200),
        0..40,
    ), is_begun: bool) {
        let mut framing = if is_begun { Framing::at_begin() } else { Framing::in_the_middle() };
        let mut found = Found::default();
        for (bytes, gap) in pieces {
            framing.handle(&bytes, Times::at(0), &mut found);
            framing.handle_gap(gap / 2 * (gap % 2), 0, &mut found);
        }
    }
}
