//! What a ring says: which records have not left, and what is newest of each file.

use steadfast_intent_log::Medium;

use crate::format::{Header, Sequence};
use crate::index::{Entry, Index};
use crate::notes::{
    self, KIND_BYPASS, KIND_LEFT, KIND_OUTCOME, KIND_REFUSED, KIND_SETTLED, KIND_STAMP, Stamp,
};
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
    let (mut stamps, mut bypasses) = (Vec::new(), Vec::new());
    let scanned = scan(medium, superblock, &mut |header, payload| match header.kind {
        // These are about earlier records. One that says otherwise would hide what is appended later.
        kind @ (KIND_LEFT | KIND_SETTLED | KIND_REFUSED) => notes::decode_ranges(payload)
            .filter(|ranges| ranges.iter().all(|(_, last)| *last < header.sequence))
            .map(|ranges| apply(index, kind, &ranges))
            .is_some(),
        KIND_OUTCOME => notes::decode_outcome(payload)
            .filter(|noted| noted.of < header.sequence)
            .map(|noted| {
                stamps
                    .extend(noted.outcome.after.map(|stamp| Seen::of(noted.object, stamp, header)));
                if let Some(entry) = index.get_mut(noted.of) {
                    entry.note(noted.outcome);
                }
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
            index.insert(header.sequence, entry);
            true
        }
    });
    for Seen { object, stamp, position } in stamps {
        index.note_stamp(&object, stamp, position);
    }
    for (object, sequence) in bypasses {
        index.bypass(&object, sequence);
    }
    scanned
}

/// What a frame says about records before it.
fn apply(index: &mut Index, kind: u8, ranges: &[(Sequence, Sequence)]) {
    let found: Vec<Sequence> =
        ranges.iter().flat_map(|(first, last)| index.between(*first, *last)).collect();
    for sequence in found {
        match kind {
            KIND_LEFT => index.settle_whole(sequence),
            KIND_SETTLED => drop(index.settle(sequence)),
            _ => {
                index.refuse(sequence);
            }
        }
    }
}
