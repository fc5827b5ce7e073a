//! What a journal notes beside its records: what the server has answered, what has left, what was sent
//! around it.

use steadfast_intent_log::BLOCK_BYTES;

use crate::format::{Fields, HEADER_BYTES, Sequence};
use crate::record::{Unfit, Writer, handle, option};

/// These have left.
pub(crate) const KIND_LEFT: u8 = 64;
/// The server has stable what is left of these writes; later records, of which it is not known yet
/// whether the server accepts them, have superseded the rest.
pub(crate) const KIND_SETTLED: u8 = 68;
/// The server has refused these.
pub(crate) const KIND_REFUSED: u8 = 69;
pub(crate) const KIND_OUTCOME: u8 = 65;
pub(crate) const KIND_STAMP: u8 = 66;
/// Changes of these objects were sent around the journal.
pub(crate) const KIND_BYPASS: u8 = 67;
/// Ranges of sequences that one frame names: a block full.
pub(crate) const RANGES_MAX: usize = (BLOCK_BYTES - HEADER_BYTES) / 16;

/// A time of the server's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Below 1,000,000,000.
    pub nanoseconds: u32,
}

/// What the server said of an object, as far as it tells whether somebody has changed it
/// (`wcc_attr`, RFC 1813 §2.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The size in bytes.
    pub size: u64,
    /// When its data was changed (mtime).
    pub modified: Time,
    /// When it was changed (ctime).
    pub changed: Time,
}

/// What the server has answered to a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The handle of what was made. Empty if nothing was.
    pub handle: Vec<u8>,
    /// The place in the server's own order.
    pub order: Option<u64>,
    /// The write verifier of the answer.
    pub verifier: Option<[u8; 8]>,
    /// The first object of the record ([`crate::Record::objects`]) before the change: of a write the
    /// file, of a new name the directory.
    pub before: Option<Stamp>,
    /// The same object after it.
    pub after: Option<Stamp>,
}

impl Writer {
    fn stamp(&mut self, stamp: &Stamp) {
        self.u64(stamp.size);
        for time in [stamp.modified, stamp.changed] {
            self.0.extend_from_slice(&time.seconds.to_le_bytes());
            self.u32(time.nanoseconds);
        }
    }

    fn optional_stamp(&mut self, stamp: Option<&Stamp>) {
        self.0.push(u8::from(stamp.is_some()));
        if let Some(stamp) = stamp {
            self.stamp(stamp);
        }
    }
}

fn time(from: &mut Fields<'_>) -> Option<Time> {
    Some(Time { seconds: i64::from_le_bytes(from.array()?), nanoseconds: from.u32()? })
}

fn stamp(from: &mut Fields<'_>) -> Option<Stamp> {
    Some(Stamp { size: from.u64()?, modified: time(from)?, changed: time(from)? })
}

#[allow(clippy::option_option, reason = "the inner one is the value")]
fn optional_stamp(from: &mut Fields<'_>) -> Option<Option<Stamp>> {
    match from.u8()? {
        0 => Some(None),
        1 => stamp(from).map(Some),
        _ => None,
    }
}

/// The payload of a frame that names records.
pub(crate) fn encode_ranges(room_before: usize, ranges: &[(Sequence, Sequence)]) -> Vec<u8> {
    let mut into = Writer(vec![0; room_before]);
    for (first, last) in ranges {
        into.u64(first.0);
        into.u64(last.0);
    }
    into.0
}

pub(crate) fn decode_ranges(payload: &[u8]) -> Option<Vec<(Sequence, Sequence)>> {
    let mut from = Fields::new(payload);
    let mut ranges = Vec::new();
    while !from.rest().is_empty() {
        let (first, last) = (Sequence(from.u64()?), Sequence(from.u64()?));
        if first > last || ranges.len() == RANGES_MAX {
            return None;
        }
        ranges.push((first, last));
    }
    Some(ranges)
}

/// An outcome, with the object that its stamps are of: the record may have left when it is read.
pub(crate) fn encode_outcome(
    room_before: usize,
    of: Sequence,
    object: &[u8],
    outcome: &Outcome,
) -> Result<Vec<u8>, Unfit> {
    let mut into = Writer(vec![0; room_before]);
    into.u64(of.0);
    into.option(outcome.order);
    into.option(outcome.verifier.map(u64::from_le_bytes));
    into.handle(&outcome.handle)?;
    into.optional_stamp(outcome.before.as_ref());
    into.optional_stamp(outcome.after.as_ref());
    into.handle(object)?;
    Ok(into.0)
}

/// What a frame about an outcome says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Noted<'a> {
    pub(crate) of: Sequence,
    pub(crate) object: &'a [u8],
    pub(crate) outcome: Outcome,
}

pub(crate) fn decode_outcome(payload: &[u8]) -> Option<Noted<'_>> {
    let mut from = Fields::new(payload);
    let from = &mut from;
    let of = Sequence(from.u64()?);
    let order = option(from)?;
    let verifier = option(from)?.map(u64::to_le_bytes);
    let made = handle(from)?.to_vec();
    let (before, after) = (optional_stamp(from)?, optional_stamp(from)?);
    let object = handle(from)?;
    let outcome = Outcome { handle: made, order, verifier, before, after };
    from.rest().is_empty().then_some(Noted { of, object, outcome })
}

/// The newest stamp of an object, again: the frame that had it is about to be written over.
pub(crate) fn encode_stamp(
    room_before: usize,
    object: &[u8],
    stamp: &Stamp,
) -> Result<Vec<u8>, Unfit> {
    let mut into = Writer(vec![0; room_before]);
    into.handle(object)?;
    into.stamp(stamp);
    Ok(into.0)
}

pub(crate) fn decode_stamp(payload: &[u8]) -> Option<(&[u8], Stamp)> {
    let mut from = Fields::new(payload);
    let (object, stamp) = (handle(&mut from)?, stamp(&mut from)?);
    from.rest().is_empty().then_some((object, stamp))
}

/// An object that was changed around the journal.
pub(crate) fn encode_bypass(room_before: usize, object: &[u8]) -> Result<Vec<u8>, Unfit> {
    let mut into = Writer(vec![0; room_before]);
    into.handle(object)?;
    Ok(into.0)
}

pub(crate) fn decode_bypass(payload: &[u8]) -> Option<&[u8]> {
    let mut from = Fields::new(payload);
    let object = handle(&mut from)?;
    from.rest().is_empty().then_some(object)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_they_were_written() {
        let ranges = [(Sequence(1), Sequence(1)), (Sequence(4), Sequence(9))];
        assert_eq!(decode_ranges(&encode_ranges(0, &ranges)).unwrap(), ranges);
        assert_eq!(decode_ranges(&[0; 15]), None);
        let stamp = Stamp {
            size: u64::MAX,
            modified: Time { seconds: -1, nanoseconds: 999_999_999 },
            changed: Time { seconds: i64::MAX, nanoseconds: 1 },
        };
        let outcome = Outcome {
            handle: vec![1; 128],
            order: None,
            verifier: Some([7; 8]),
            before: Some(stamp),
            after: Some(Stamp::default()),
        };
        let payload = encode_outcome(0, Sequence(3), b"o", &outcome).unwrap();
        let noted = Noted { of: Sequence(3), object: b"o", outcome };
        assert_eq!(decode_outcome(&payload), Some(noted));
        for end in 0..payload.len() {
            assert_eq!(decode_outcome(&payload[..end]), None);
        }
        let payload = encode_stamp(0, b"object", &stamp).unwrap();
        assert_eq!(decode_stamp(&payload), Some((b"object".as_slice(), stamp)));
        let payload = encode_bypass(0, b"object").unwrap();
        assert_eq!(decode_bypass(&payload), Some(b"object".as_slice()));
        assert_eq!(decode_bypass(&payload[1..]), None);
    }
}
