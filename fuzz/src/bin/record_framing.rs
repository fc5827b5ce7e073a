//! Splitting of a stream into records, as a connection receives it, against the plainest splitter
//! there is. First bytes: the bound of records, how the stream is cut; the rest is the stream.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_rpc::record::{Splitter, Step};

// The runtime keeps its framing to itself; the module stands on its own, so it is taken as it is.
#[allow(dead_code, unreachable_pub)]
#[path = "../../../crates/runtime/src/framing.rs"]
mod framing;

use framing::{Framing, FramingError, RecordPlace, Records};

#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    records: Vec<Vec<u8>>,
    error: Option<FramingError>,
    is_partial: bool,
}

fn plain(mut stream: &[u8], max_bytes: usize) -> Outcome {
    let mut outcome = Outcome::default();
    let mut record = Vec::new();
    loop {
        let Some((mark, rest)) = stream.split_first_chunk::<4>() else {
            outcome.is_partial |= !stream.is_empty();
            return outcome;
        };
        let mark = u32::from_be_bytes(*mark);
        let (is_last, length) = (mark >> 31 == 1, (mark & 0x7fff_ffff) as usize);
        if record.len() + length > max_bytes {
            let announced_bytes = (record.len() + length) as u64;
            outcome.error = Some(FramingError { announced_bytes, max_bytes });
            return outcome;
        }
        outcome.is_partial = true;
        let Some((data, rest)) = rest.split_at_checked(length) else { return outcome };
        record.extend_from_slice(data);
        stream = rest;
        if is_last {
            outcome.records.push(std::mem::take(&mut record));
            outcome.is_partial = false;
        }
    }
}

/// As the runtime's worker does it: direct room first, the rest through the buffer.
fn pieces(stream: &[u8], max_bytes: usize, cuts: &[u8]) -> Outcome {
    let mut framing = Framing::default();
    let mut outcome = Outcome::default();
    let mut spare = Vec::new();
    let mut cuts = cuts.iter().cycle();
    let (mut rest, mut received_bytes) = (stream, 0);
    while !rest.is_empty() {
        let length = cuts.next().map_or(rest.len(), |cut| usize::from(*cut) + 1);
        let (piece, later) = rest.split_at(length.min(rest.len()));
        rest = later;
        received_bytes += piece.len();
        let mut records = Records::default();
        let room = framing.direct_room(&mut spare);
        let direct = room.len().min(piece.len());
        room[..direct].copy_from_slice(&piece[..direct]);
        framing.advance(direct, &mut records);
        let buffer = &piece[direct..];
        let result = framing.split(buffer, max_bytes, &mut records, &mut spare);
        // Memory grows with what came, not with what was announced.
        assert!(framing.stash_bytes() <= 4 * received_bytes + 8192);
        for place in &records.places {
            outcome.records.push(match place {
                RecordPlace::Buffer(range) => buffer[range.clone()].to_vec(),
                RecordPlace::Joined(index) => records.joined[*index].filled().to_vec(),
            });
        }
        spare.extend(records.joined.into_iter().map(framing::Stash::cleared));
        if let Err(error) = result {
            outcome.error = Some(error);
            return outcome;
        }
    }
    outcome.is_partial = framing.is_partial();
    outcome
}

/// As everybody else does it: piece by piece.
fn steps(stream: &[u8], max_bytes: usize, cuts: &[u8]) -> Outcome {
    let (mut outcome, mut record) = (Outcome::default(), Vec::new());
    let mut splitter = Splitter::default();
    let mut cuts = cuts.iter().cycle();
    let mut rest = stream;
    while !rest.is_empty() {
        let length = cuts.next().map_or(rest.len(), |cut| usize::from(*cut) + 1);
        let (mut received, later) = rest.split_at(length.min(rest.len()));
        rest = later;
        loop {
            match splitter.step(&mut received, max_bytes) {
                Ok(Step::Piece(piece)) => record.extend_from_slice(piece),
                Ok(Step::End) => outcome.records.push(std::mem::take(&mut record)),
                Ok(Step::Starved) => break,
                Err(error) => {
                    outcome.error = Some(error);
                    return outcome;
                }
            }
        }
    }
    outcome.is_partial = splitter.is_partial();
    outcome
}

fuzz_target!(|input: &[u8]| {
    let Some(([max, a, b, c], stream)) = input.split_first_chunk::<4>() else { return };
    let max_bytes = 1 << (max % 24);
    let expected = plain(stream, max_bytes);
    for cuts in [&[][..], &[0], &[*a, *b, *c]] {
        for mut found in [pieces(stream, max_bytes, cuts), steps(stream, max_bytes, cuts)] {
            if found.error.is_some() {
                found.is_partial = expected.is_partial;
            }
            assert_eq!(found, expected, "cut by {cuts:?}");
        }
    }
});
