//! The room in the ring: what is used, what is promised, and where the tail can go.

use std::collections::VecDeque;

use crate::format::{Lsn, Position};

/// Places that are remembered, about: the tail stops at one of them. For a ring of 64 MiB and less
/// each batch is one; for a larger one, those that are a part of this size apart.
const MARKS: u64 = 16 << 10;

/// Where a batch begins.
#[derive(Clone, Copy, Debug)]
struct Mark {
    first: Lsn,
    position: Position,
}

/// The ring's room. Positions here are all on block boundaries.
#[derive(Debug)]
pub(crate) struct Ring {
    bytes: u64,
    /// Where the next batch begins.
    head: Position,
    /// What is before this may be written over: all superblocks on the medium agree to it.
    tail: Position,
    /// Room promised to records that are not in a batch.
    promised_bytes: u64,
    marks: VecDeque<Mark>,
    /// Whether the next batch needs a mark, as a superblock may say that the tail is there.
    has_tail_at_head: bool,
}

impl Ring {
    /// An empty ring.
    pub(crate) fn new(bytes: u64, head: Position) -> Self {
        Self {
            bytes,
            head,
            tail: head,
            promised_bytes: 0,
            marks: VecDeque::new(),
            has_tail_at_head: true,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.head.since(self.tail)
    }

    pub(crate) fn promised_bytes(&self) -> u64 {
        self.promised_bytes
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        let free = self.bytes.checked_sub(self.used_bytes() + self.promised_bytes);
        assert!(free.is_some(), "more of the ring is in use than there is");
        free.unwrap_or_default()
    }

    /// Where the next batch begins.
    pub(crate) fn head(&self) -> Position {
        self.head
    }

    pub(crate) fn tail(&self) -> Position {
        self.tail
    }

    /// The distance of marks.
    pub(crate) fn grain_bytes(&self) -> u64 {
        self.bytes / MARKS
    }

    pub(crate) fn promise(&mut self, bytes: u64) {
        self.promised_bytes += bytes;
    }

    pub(crate) fn take_back(&mut self, bytes: u64) {
        let left = self.promised_bytes.checked_sub(bytes);
        assert!(left.is_some(), "room was given back that was not promised");
        self.promised_bytes = left.unwrap_or_default();
    }

    /// Places a batch that begins with this record, in the room promised to its records.
    pub(crate) fn place(&mut self, first: Lsn, bytes: u64, promised_bytes: u64) -> Position {
        assert!(bytes <= promised_bytes, "a batch needs no more room than its records one by one");
        self.take_back(promised_bytes);
        let position = self.head;
        let grain_bytes = self.grain_bytes();
        let is_far = |mark: &Mark| position.since(mark.position) >= grain_bytes;
        if std::mem::take(&mut self.has_tail_at_head) || self.marks.back().is_none_or(is_far) {
            self.marks.push_back(Mark { first, position });
        }
        self.head = position.plus(bytes);
        position
    }

    /// The first record of which it is known where it is.
    pub(crate) fn oldest(&self) -> Option<Lsn> {
        self.marks.front().map(|mark| mark.first)
    }

    /// Where the tail can be if nothing before `first_live` is needed; `next` is the LSN of the
    /// record that will be at the head.
    pub(crate) fn tail_before(&mut self, first_live: Lsn, next: Lsn) -> (Position, Lsn) {
        if first_live >= next {
            self.has_tail_at_head = true;
            return (self.head, next);
        }
        let after = self.marks.partition_point(|mark| mark.first <= first_live);
        let mark = after.checked_sub(1).and_then(|index| self.marks.get(index));
        assert!(mark.is_some(), "what is live is in the ring");
        mark.map_or((self.tail, next), |mark| (mark.position, mark.first))
    }

    /// All superblocks agree that the tail is here.
    pub(crate) fn give_back(&mut self, tail: Position) {
        assert!(tail <= self.head, "the tail stays behind the head");
        self.tail = self.tail.max(tail);
        while self.marks.front().is_some_and(|mark| mark.position < self.tail) {
            self.marks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ring;
    use crate::format::{Lsn, Position};

    #[test]
    fn the_tail_stops_where_batches_begin() {
        let mut ring = Ring::new(16 << 12, Position(1 << 12));
        ring.promise(3 << 12);
        assert_eq!(ring.place(Lsn(1), 1 << 12, 2 << 12), Position(1 << 12));
        assert_eq!(ring.place(Lsn(4), 1 << 12, 1 << 12), Position(2 << 12));
        assert_eq!((ring.promised_bytes(), ring.free_bytes()), (0, 14 << 12));
        assert_eq!(ring.tail_before(Lsn(3), Lsn(5)), (Position(1 << 12), Lsn(1)));
        assert_eq!(ring.tail_before(Lsn(4), Lsn(5)), (Position(2 << 12), Lsn(4)));
        assert_eq!(ring.tail_before(Lsn(5), Lsn(5)), (Position(3 << 12), Lsn(5)));
        ring.give_back(Position(2 << 12));
        assert_eq!(ring.used_bytes(), 1 << 12);
    }

    #[test]
    fn marks_of_a_large_ring_are_few_but_a_tail_can_always_be_found() {
        let mut ring = Ring::new(1 << 30, Position(0));
        for lsn in 1..=1000 {
            ring.promise(4096);
            ring.place(Lsn(lsn), 4096, 4096);
        }
        assert!(ring.marks.len() <= 1000 * 4096 / (1 << 16) + 1, "{}", ring.marks.len());
        assert_eq!(ring.tail_before(Lsn(17), Lsn(1001)), (Position(16 << 12), Lsn(17)));
        assert_eq!(ring.tail_before(Lsn(20), Lsn(1001)), (Position(16 << 12), Lsn(17)));
        // At the head there is no mark yet; the next batch has to be one.
        let (tail, lsn) = ring.tail_before(Lsn(1001), Lsn(1001));
        assert_eq!((tail, lsn), (Position(1000 << 12), Lsn(1001)));
        ring.promise(8192);
        ring.place(Lsn(1001), 4096, 4096);
        ring.place(Lsn(1002), 4096, 4096);
        ring.give_back(tail);
        assert_eq!(ring.tail_before(Lsn(1002), Lsn(1003)), (tail, Lsn(1001)));
    }
}
