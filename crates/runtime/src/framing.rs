//! Receives the RPC records of a TCP stream (RFC 5531 §11). Where they begin and end says
//! [`steadfast_rpc::record`]; this module has the memory.
//!
//! Records that lie whole in the receive buffer stay there and are told as ranges. Only what
//! begins in one receive and ends in another, or comes in several fragments, is gathered in the
//! connection's [`Stash`], which grows with the bytes received and never by what a record mark
//! announces. A large record is received straight into the stash, so its data is copied once
//! out of the socket.

use std::ops::Range;

pub(crate) use steadfast_rpc::record::TooLarge as FramingError;
use steadfast_rpc::record::{MARK_BYTES, Splitter, Step};

/// Room offered to a record that has only begun, in bytes; afterwards, room grows with what came.
const STASH_FIRST_BYTES: usize = 4096;

/// Records smaller than this get no used stash, which may be much larger.
const SPARE_FROM_BYTES: usize = 64 << 10;

/// Where a record of a batch is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RecordPlace {
    /// In the receive buffer.
    Buffer(Range<usize>),
    /// The stash of this index.
    Joined(usize),
}

/// Bytes of one record that did not come at once. `bytes` is initialised memory, of which
/// `filled` bytes are the record's; so a stash used again need not be zeroed again.
#[derive(Debug, Default)]
pub(crate) struct Stash {
    bytes: Vec<u8>,
    filled: usize,
}

impl Stash {
    pub(crate) fn filled(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or(&[])
    }

    /// Memory used in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    fn make_room(&mut self, more: usize) {
        let wanted = self.filled + more;
        if self.bytes.len() < wanted {
            // Doubling, so that a record that comes byte by byte is not copied for each.
            let wanted = wanted.max(self.filled * 2).max(64);
            self.bytes.reserve_exact(wanted - self.bytes.len());
            self.bytes.resize(wanted, 0);
        }
    }

    fn append(&mut self, data: &[u8]) {
        self.make_room(data.len());
        let end = self.filled + data.len();
        if let Some(place) = self.bytes.get_mut(self.filled..end) {
            place.copy_from_slice(data);
            self.filled = end;
        }
    }

    /// For use with another record.
    pub(crate) fn cleared(mut self) -> Self {
        self.filled = 0;
        self
    }
}

/// What one receive brought.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) places: Vec<RecordPlace>,
    pub(crate) joined: Vec<Stash>,
}

impl Records {
    fn push_joined(&mut self, stash: Stash) {
        self.places.push(RecordPlace::Joined(self.joined.len()));
        self.joined.push(stash);
    }
}

/// A connection's receiving state between two receives.
#[derive(Debug, Default)]
pub(crate) struct Framing {
    splitter: Splitter,
    stash: Stash,
}

impl Framing {
    /// Whether part of a record has come and the rest has not.
    pub(crate) fn is_partial(&self) -> bool {
        self.splitter.is_partial()
    }

    /// Memory held for a partial record, in bytes.
    pub(crate) fn stash_bytes(&self) -> usize {
        self.stash.capacity()
    }

    /// Where the next bytes of a record that has begun may be received directly; empty when
    /// none has. At most what is left of the fragment, and not much more than came already.
    pub(crate) fn direct_room(&mut self, spare: &mut Vec<Stash>) -> &mut [u8] {
        let left = self.splitter.fragment_left();
        if left == 0 {
            return &mut [];
        }
        self.begin_stash(left, spare);
        let there_already = self.stash.bytes.len() - self.stash.filled;
        let room = STASH_FIRST_BYTES.max(self.stash.filled * 3).max(there_already);
        let room = room.min(left);
        self.stash.make_room(room);
        let end = self.stash.filled + room;
        self.stash.bytes.get_mut(self.stash.filled..end).unwrap_or(&mut [])
    }

    /// Takes a used stash for a large record that begins: so much of the fragment is to be stashed.
    fn begin_stash(&mut self, left: usize, spare: &mut Vec<Stash>) {
        if self.stash.bytes.is_empty()
            && left >= SPARE_FROM_BYTES
            && let Some(stash) = spare.pop()
        {
            self.stash = stash;
        }
    }

    /// Takes note of `count` bytes received into [`Framing::direct_room`].
    pub(crate) fn advance(&mut self, count: usize, records: &mut Records) {
        let count = count.min(self.splitter.fragment_left());
        self.stash.filled += count;
        self.splitter.advance(count);
        if self.splitter.take_end() {
            records.push_joined(std::mem::take(&mut self.stash));
        }
    }

    /// Splits what was received into `buffer`.
    ///
    /// # Errors
    /// When framing is lost; the records told before that are good.
    pub(crate) fn split(
        &mut self,
        buffer: &[u8],
        record_bytes_max: usize,
        records: &mut Records,
        spare: &mut Vec<Stash>,
    ) -> Result<(), FramingError> {
        let mut rest = buffer;
        loop {
            if let Some((record, behind)) = self.splitter.whole(rest, record_bytes_max) {
                let start = buffer.len() - rest.len() + MARK_BYTES;
                records.places.push(RecordPlace::Buffer(start..start + record.len()));
                rest = behind;
                continue;
            }
            match self.splitter.step(&mut rest, record_bytes_max)? {
                Step::Piece(data) => {
                    self.begin_stash(self.splitter.fragment_left() + data.len(), spare);
                    self.stash.append(data);
                }
                Step::End => records.push_joined(std::mem::take(&mut self.stash)),
                Step::Starved => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(payload: &[u8], is_last: bool) -> Vec<u8> {
        let mark = if is_last { 0x8000_0000 } else { 0 } | payload.len() as u32;
        [&mark.to_be_bytes()[..], payload].concat()
    }

    fn payloads(buffer: &[u8], records: &Records) -> Vec<Vec<u8>> {
        records
            .places
            .iter()
            .map(|place| match place {
                RecordPlace::Buffer(range) => buffer[range.clone()].to_vec(),
                RecordPlace::Joined(index) => records.joined[*index].filled().to_vec(),
            })
            .collect()
    }

    #[test]
    fn whole_records_stay_in_the_buffer() {
        let buffer = [record(b"abc", true), record(b"d", true)].concat();
        let (mut framing, mut records) = (Framing::default(), Records::default());
        framing.split(&buffer, 100, &mut records, &mut Vec::new()).unwrap();
        assert_eq!(records.places, [RecordPlace::Buffer(4..7), RecordPlace::Buffer(11..12)]);
        assert!(!framing.is_partial());
    }

    #[test]
    fn any_cut_gives_the_same_records() {
        let stream = [
            record(b"abc", true),
            record(b"de", false),
            record(b"f", false),
            record(b"ghi", true),
            record(&[7; 300], true),
            record(b"tail", false),
            record(b"", true),
        ]
        .concat();
        let expected =
            [b"abc".to_vec(), b"defghi".to_vec(), vec![7; 300], b"tail".to_vec()].to_vec();
        for piece in 1..stream.len() {
            let mut framing = Framing::default();
            let mut seen = Vec::new();
            for part in stream.chunks(piece) {
                let mut records = Records::default();
                // As a receive does: first the direct room, then the buffer.
                let room = framing.direct_room(&mut Vec::new());
                let direct = room.len().min(part.len());
                room[..direct].copy_from_slice(&part[..direct]);
                framing.advance(direct, &mut records);
                let rest = &part[direct..];
                framing.split(rest, 1000, &mut records, &mut Vec::new()).unwrap();
                seen.extend(payloads(rest, &records));
            }
            assert_eq!(seen, expected, "pieces of {piece}");
            assert!(!framing.is_partial());
        }
    }

    #[test]
    fn announced_lengths_are_not_believed() {
        let mut framing = Framing::default();
        let mut records = Records::default();
        let max_bytes = 1 << 20;
        framing
            .split(&0x800f_ffff_u32.to_be_bytes(), max_bytes, &mut records, &mut Vec::new())
            .unwrap();
        framing.split(b"x", max_bytes, &mut records, &mut Vec::new()).unwrap();
        assert_eq!(framing.direct_room(&mut Vec::new()).len(), STASH_FIRST_BYTES);
        assert!(framing.stash_bytes() < 2 * STASH_FIRST_BYTES);
        let error = Framing::default()
            .split(&[0xff; 8], max_bytes, &mut records, &mut Vec::new())
            .unwrap_err();
        assert_eq!(error, FramingError { announced_bytes: 0x7fff_ffff, max_bytes });
        // A chain of small fragments has the same bound.
        let mut framing = Framing::default();
        let chain = record(&[0; 60], false);
        framing.split(&chain, 100, &mut records, &mut Vec::new()).unwrap();
        assert!(matches!(
            framing.split(&chain, 100, &mut records, &mut Vec::new()),
            Err(FramingError { announced_bytes: 120, .. })
        ));
    }

    #[test]
    fn large_records_use_a_stash_again_and_are_received_directly() {
        let stream = record(&vec![3; 500_000], true);
        let mut records = Records::default();
        let mut framing = Framing::default();
        let mut spare = Vec::new();
        framing.split(&stream, 1 << 20, &mut records, &mut spare).unwrap();
        assert!(framing.direct_room(&mut spare).is_empty());
        // That one lay in the buffer. Now one that comes in two parts, twice.
        for round in 0..2 {
            let mut records = Records::default();
            framing.split(&stream[..1000], 1 << 20, &mut records, &mut spare).unwrap();
            let mut rest = &stream[1000..];
            let mut receives = 0;
            while !rest.is_empty() {
                let room = framing.direct_room(&mut spare);
                let (now, later) = rest.split_at(room.len());
                room.copy_from_slice(now);
                framing.advance(now.len(), &mut records);
                rest = later;
                receives += 1;
            }
            assert_eq!(payloads(&[], &records), [vec![3; 500_000]]);
            // With memory that is there already, all the rest at once.
            assert_eq!(receives == 1, round == 1);
            spare.extend(records.joined.drain(..).map(Stash::cleared));
        }
    }

    /// RFC 5531 §11: a record is one or more fragments of 0 to 2^31 - 1 bytes each.
    #[test]
    fn fragments_may_be_empty_wherever_they_are() {
        let stream = [
            record(b"", false),
            record(b"", false),
            record(b"ab", false),
            record(b"", false),
            record(b"c", true),
            record(b"", false),
            record(b"d", false),
            record(b"", true),
            // No message at all: whoever reads messages says so.
            record(b"", true),
            record(b"", false),
            record(b"", true),
            record(b"e", true),
        ]
        .concat();
        let expected = [&b"abc"[..], b"d", b"", b"", b"e"].map(<[u8]>::to_vec);
        for piece in 1..=stream.len() {
            let mut framing = Framing::default();
            let mut seen = Vec::new();
            for part in stream.chunks(piece) {
                let mut records = Records::default();
                framing.split(part, 100, &mut records, &mut Vec::new()).unwrap();
                seen.extend(payloads(part, &records));
            }
            assert_eq!(seen, expected, "pieces of {piece}");
            assert!(!framing.is_partial());
        }
    }

    #[test]
    fn a_million_empty_fragments_cost_no_memory() {
        let mut framing = Framing::default();
        let mut records = Records::default();
        let many = [0; 4 << 10];
        for _ in 0..1024 {
            framing.split(&many, 100, &mut records, &mut Vec::new()).unwrap();
        }
        assert!(framing.is_partial() && records.places.is_empty());
        assert_eq!(framing.stash_bytes(), 0);
        framing.split(&record(b"x", true), 100, &mut records, &mut Vec::new()).unwrap();
        assert_eq!(payloads(&[], &records), [b"x".to_vec()]);
    }

    /// The largest record in the smallest fragments: copied in one piece, as fast as it comes.
    #[test]
    fn a_record_of_a_mebibyte_may_come_byte_by_byte() {
        let bytes = 1 << 20;
        let mut stream: Vec<u8> = (1..bytes).flat_map(|_| record(b"y", false)).collect();
        stream.extend(record(b"z", true));
        let mut framing = Framing::default();
        let mut records = Records::default();
        for part in stream.chunks(64 << 10) {
            framing.split(part, bytes, &mut records, &mut Vec::new()).unwrap();
        }
        let [payload] = &payloads(&[], &records)[..] else { panic!("one record") };
        assert_eq!((payload.len(), payload.last()), (bytes, Some(&b'z')));
        assert!(records.joined[0].capacity() <= 2 * bytes);
    }
}
