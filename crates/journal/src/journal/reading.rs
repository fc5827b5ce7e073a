//! What a journal still has, and reading it: from memory while it is not on the medium, else from the
//! ring.

use std::ops::Range;
use std::sync::Arc;

use super::Journal;
use crate::errors::ReadError;
use crate::format::Sequence;
use crate::notes::Stamp;
use crate::pending::{Content, Overlay, Pending, Stored, list, read_entry, stored};
use crate::record::Change;

impl Journal {
    /// All that must still be sent, in the order in which it was appended.
    pub fn pending(&self) -> Vec<Pending> {
        let state = self.lock();
        list(&state.index, state.index.iter(), state.doubtful_before())
    }

    /// What must still be sent of a file, or of a directory's names, in order.
    pub fn pending_of(&self, object: &[u8]) -> Vec<Pending> {
        let state = self.lock();
        list(&state.index, state.index.of(object), state.doubtful_before())
    }

    /// What the server said last of an object: the newest [`after`](crate::Outcome::after) that was noted for a record
    /// of it, though that record may have left. Known as long as the object has records that have not left.
    /// `None` if nothing was noted, or if the ring had no room to keep it: then compare the object
    /// itself.
    pub fn last_stamp(&self, object: &[u8]) -> Option<Stamp> {
        self.state.lock().index.stamp(object)
    }

    /// Reads a record, with its hash checked. `None` if it has left.
    ///
    /// # Errors
    /// When the medium does not read, or the record was damaged on it.
    pub fn read(&self, sequence: Sequence) -> Result<Option<Stored>, ReadError> {
        self.read_stored(sequence, true)
    }

    fn read_stored(
        &self,
        sequence: Sequence,
        is_hash_checked: bool,
    ) -> Result<Option<Stored>, ReadError> {
        let (position, frame_bytes) = {
            let state = self.lock();
            let Some(entry) = state.index.get(sequence) else { return Ok(None) };
            if let Some(frame) = state.unwritten.get(&sequence).map(Arc::clone) {
                drop(state);
                return stored(sequence, &frame, is_hash_checked).map(Some);
            }
            (entry.position, entry.frame_bytes)
        };
        let ring_bytes = self.ring_bytes;
        let read = read_entry(&*self.medium, ring_bytes, sequence, position, frame_bytes)
            .and_then(|frame| stored(sequence, &frame, is_hash_checked));
        match read {
            Ok(stored) => Ok(Some(stored)),
            // It has left meanwhile, and its place is another record's.
            Err(_) if self.lock().index.get(sequence).is_none() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The newest bytes of a range that the server does not have stable, in the order of the file.
    ///
    /// Take this before the server is asked for the rest, and put it over the answer: what leaves
    /// meanwhile is in both.
    ///
    /// # Errors
    /// As [`Journal::read`].
    pub fn read_pending(&self, file: &[u8], range: Range<u64>) -> Result<Vec<Overlay>, ReadError> {
        loop {
            let pieces = self.lock().index.overlay(file, &range);
            let mut overlays = Vec::with_capacity(pieces.len());
            let mut last: Option<(Sequence, Stored)> = None;
            let mut has_all = true;
            for piece in pieces {
                let length = piece.range.end - piece.range.start;
                let offset = piece.range.start;
                if piece.is_zero {
                    overlays.push(Overlay { offset, content: Content::Zeros(length) });
                    continue;
                }
                if last.as_ref().is_none_or(|(sequence, _)| *sequence != piece.sequence) {
                    let read = self.read_stored(piece.sequence, false)?;
                    last = read.map(|stored| (piece.sequence, stored));
                }
                let Some((_, stored)) = &last else {
                    has_all = false;
                    break;
                };
                let Change::Write { offset: begin, data, .. } = stored.record().change else {
                    return Err(ReadError::Damaged(piece.sequence));
                };
                let from = usize::try_from(offset.saturating_sub(begin)).unwrap_or(usize::MAX);
                let end = from.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
                let data = data.get(from..end).ok_or(ReadError::Damaged(piece.sequence))?;
                overlays.push(Overlay { offset, content: Content::Data(data.to_vec()) });
            }
            // A record has left while this was reading: its bytes may be elsewhere now.
            if has_all {
                return Ok(overlays);
            }
        }
    }
}
