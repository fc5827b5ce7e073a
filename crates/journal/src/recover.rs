//! What a ring says: which records have not left, and what is newest of each file.

use steadfast_intent_log::Medium;

use crate::format::{Header, Sequence};
use crate::index::{Entry, Index};
use crate::notes::{self, KIND_BYPASS, KIND_LEFT, KIND_OUTCOME, KIND_STAMP, Stamp};
use crate::record::{self, Kind};
use crate::scan::{Scanned, scan};
use crate::superblock::Superblock;

/// A stamp, and where its frame is.
struct Seen {
    object: Vec<u8>,
    stamp: Stamp,
    position: u64,
}

impl Seen {
    fn of(object: &[u8], stamp: Stamp, header: &Header) -> Self {
        Self { object: object.to_vec(), stamp, position: header.position }
    }
}

/// Reads the ring into an index.
pub(crate) fn read_ring(
    medium: &dyn Medium,
    superblock: &Superblock,
    index: &mut Index,
) -> Scanned {
    let mut left = Vec::new();
    let (mut outcomes, mut stamps, mut bypasses) = (Vec::new(), Vec::new(), Vec::new());
    // What has left is known only from later frames, and cuts all the same what is older.
    let mut entries = Vec::new();
    let scanned = scan(medium, superblock, &mut |header, payload| match header.kind {
        // Both are about earlier records. One that says otherwise would hide what is appended later.
        KIND_LEFT => notes::decode_ranges(payload)
            .filter(|ranges| ranges.iter().all(|(_, last)| *last < header.sequence))
            .map(|ranges| left.extend(ranges))
            .is_some(),
        KIND_OUTCOME => notes::decode_outcome(payload)
            .filter(|noted| noted.of < header.sequence)
            .map(|noted| {
                stamps
                    .extend(noted.outcome.after.map(|stamp| Seen::of(noted.object, stamp, header)));
                outcomes.push((noted.of, noted.outcome));
            })
            .is_some(),
        KIND_STAMP => notes::decode_stamp(payload)
            .map(|(object, stamp)| stamps.push(Seen::of(object, stamp, header)))
            .is_some(),
        KIND_BYPASS => notes::decode_bypass(payload)
            .map(|object| bypasses.push((object.to_vec(), header.sequence)))
            .is_some(),
        code => {
            let Some(kind) = Kind::of_code(code) else { return false };
            let Some(decoded) = record::decode(kind, header.flags, payload) else { return false };
            let mut entry = Entry::new(kind, &decoded);
            entry.stands_at(header);
            entries.push((header.sequence, entry));
            true
        }
    });
    let left = joined(left);
    for (sequence, entry) in entries {
        let after = left.partition_point(|(first, _)| *first <= sequence);
        let range = after.checked_sub(1).and_then(|at| left.get(at));
        let has_left = range.is_some_and(|(_, last)| *last >= sequence);
        let superseded =
            if has_left { index.cut_by(&entry) } else { index.insert(sequence, entry) };
        for which in superseded {
            index.remove(which);
        }
    }
    for (of, outcome) in outcomes {
        if let Some(entry) = index.get_mut(of) {
            entry.note(outcome);
        }
    }
    for Seen { object, stamp, position } in stamps {
        index.note_stamp(&object, stamp, position);
    }
    for (object, sequence) in bypasses {
        index.bypass(&object, sequence);
    }
    scanned
}

/// The same ranges in order, none of which touches another.
fn joined(mut ranges: Vec<(Sequence, Sequence)>) -> Vec<(Sequence, Sequence)> {
    ranges.sort_unstable();
    let mut joined = Vec::<(Sequence, Sequence)>::with_capacity(ranges.len());
    for (first, last) in ranges {
        match joined.last_mut() {
            Some((_, end)) if first <= end.next() => *end = last.max(*end),
            _ => joined.push((first, last)),
        }
    }
    joined
}
