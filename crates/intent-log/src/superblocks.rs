//! What the two copies of the superblock on the medium say, as far as the running log wrote them.
//!
//! They are two so that one may be lost. So what the log does must be right by either of them: a
//! record is written only when both say its epoch, that the log is not clean, and which file
//! systems there are; room is given back only when both say that nothing live is in it.

use crate::format::Position;

/// What a copy says that matters while the log runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Saying {
    pub(crate) is_clean: bool,
    pub(crate) tail: Position,
    /// Of the table of file systems.
    pub(crate) generation: u64,
}

/// Both copies.
#[derive(Debug)]
pub(crate) struct Superblocks {
    /// The sequence number written last.
    sequence: u64,
    /// `None` while a copy is of an epoch before.
    written: [Option<Saying>; 2],
    issued: Option<Saying>,
}

impl Superblocks {
    pub(crate) fn new(sequence: u64) -> Self {
        Self { sequence, written: [None; 2], issued: None }
    }

    /// Whether one with this sequence number can be ours: written, or issued and perhaps written
    /// though the device said that it was not.
    pub(crate) fn may_have_written(&self, sequence: u64) -> bool {
        sequence <= self.sequence + 1
    }

    /// Another epoch begins, of which neither copy says anything yet.
    pub(crate) fn begin_epoch(&mut self) {
        self.written = [None; 2];
        self.issued = None;
    }

    /// The sequence number for a superblock that says so. It stays the next one until it is
    /// written: a write that failed is tried again in the same place, never over the other copy.
    pub(crate) fn issue(&mut self, saying: Saying) -> u64 {
        self.issued = Some(saying);
        self.sequence + 1
    }

    /// The superblock issued last is on the medium.
    pub(crate) fn note_written(&mut self, sequence: u64) {
        if sequence != self.sequence + 1 {
            return;
        }
        if let Some(saying) = self.issued.take() {
            self.sequence = sequence;
            self.written = [self.written[1], Some(saying)];
        }
    }

    /// Whether records may be written.
    pub(crate) fn allow_records(&self, generation: u64) -> bool {
        let allows = |saying: Saying| !saying.is_clean && saying.generation == generation;
        self.written.iter().all(|saying| saying.is_some_and(allows))
    }

    /// Before this, nothing live is in the ring by either copy.
    pub(crate) fn tail(&self) -> Option<Position> {
        let [older, newer] = self.written;
        Some(older?.tail.min(newer?.tail))
    }
}

#[cfg(test)]
mod tests {
    use super::{Saying, Superblocks};
    use crate::format::Position;

    const SAYING: Saying = Saying { is_clean: false, tail: Position(8), generation: 1 };

    #[test]
    fn both_copies_have_to_say_it() {
        let mut superblocks = Superblocks::new(4);
        assert_eq!(superblocks.issue(SAYING), 5);
        // That write failed; the next one goes to the same place.
        assert_eq!(superblocks.issue(SAYING), 5);
        superblocks.note_written(5);
        assert!(!superblocks.allow_records(1));
        assert_eq!(superblocks.tail(), None);
        assert_eq!(superblocks.issue(Saying { tail: Position(16), ..SAYING }), 6);
        superblocks.note_written(6);
        superblocks.note_written(6);
        assert!(superblocks.allow_records(1));
        assert!(!superblocks.allow_records(2));
        assert_eq!(superblocks.tail(), Some(Position(8)));
        superblocks.issue(Saying { is_clean: true, ..SAYING });
        superblocks.note_written(7);
        assert!(!superblocks.allow_records(1));
    }
}
