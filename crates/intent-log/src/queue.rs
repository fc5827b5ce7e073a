//! The records that are not in a batch yet: reserved in the order in which their operations took
//! effect, completed in any order, taken in order up to the first that is not complete.

use std::collections::VecDeque;

use crate::format::{BATCH_RECORDS_MAX, Lsn};
use crate::record::record_bytes;

/// Records for which there is room from the start, so that it is rarely made while the lock is
/// held.
const SLOTS_FIRST: usize = 4096;

/// What a record tells, with its checksum.
#[derive(Debug, Default)]
pub(crate) struct Payload {
    pub(crate) bytes: Vec<u8>,
    pub(crate) crc: u32,
    /// Where in it begins what stands behind the change, if anything does.
    pub(crate) behind: Option<u32>,
}

impl Payload {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let crc = crc32c::crc32c(&bytes);
        Self { bytes, crc, behind: None }
    }
}

#[derive(Debug)]
struct Slot {
    file_system: u32,
    /// What was admitted.
    payload_bytes_max: u32,
    room_bytes: u64,
    payload: Option<Payload>,
}

/// A record that goes into a batch.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) lsn: Lsn,
    pub(crate) file_system: u32,
    pub(crate) payload: Payload,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The LSN of the first slot, or of the next record if there is none.
    first: Lsn,
    slots: VecDeque<Slot>,
    /// Slots at the front that are complete.
    complete: usize,
}

impl Queue {
    pub(crate) fn new(first: Lsn) -> Self {
        Self { first, slots: VecDeque::with_capacity(SLOTS_FIRST), complete: 0 }
    }

    /// The first LSN that is in no batch.
    pub(crate) fn first(&self) -> Lsn {
        self.first
    }

    /// The LSN reserved last.
    pub(crate) fn last(&self) -> Lsn {
        Lsn(self.first.0 + self.slots.len() as u64).previous()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn has_complete(&self) -> bool {
        self.complete > 0
    }

    pub(crate) fn reserve(
        &mut self,
        file_system: u32,
        payload_bytes_max: u32,
        room_bytes: u64,
    ) -> Lsn {
        self.slots.push_back(Slot { file_system, payload_bytes_max, room_bytes, payload: None });
        self.last()
    }

    /// Whether there is something more to take.
    pub(crate) fn complete(&mut self, lsn: Lsn, payload: Payload) -> bool {
        let index = usize::try_from(lsn.0.wrapping_sub(self.first.0)).unwrap_or(usize::MAX);
        let slot = self.slots.get_mut(index);
        assert!(slot.is_some(), "record {lsn} is not one that was reserved and is not written");
        let Some(slot) = slot else { return false };
        assert!(slot.payload.is_none(), "record {lsn} was completed before");
        assert!(
            payload.bytes.len() <= slot.payload_bytes_max as usize,
            "the payload of record {lsn} is larger than was admitted"
        );
        slot.payload = Some(payload);
        let before = self.complete;
        while self.slots.get(self.complete).is_some_and(|slot| slot.payload.is_some()) {
            self.complete += 1;
        }
        self.complete > before
    }

    /// Moves complete records into a batch: at least one if there is any, else as many as fit.
    /// Returns the bytes of the records, and the room that was admitted for them.
    pub(crate) fn take(&mut self, bytes_max: usize, into: &mut Vec<Ready>) -> (usize, u64) {
        let (mut bytes, mut room_bytes) = (0, 0);
        while self.complete > 0 && into.len() < BATCH_RECORDS_MAX {
            let payload_bytes = match self.slots.front() {
                Some(Slot { payload: Some(payload), .. }) => payload.bytes.len(),
                _ => break,
            };
            let more = record_bytes(payload_bytes);
            if !into.is_empty() && bytes + more > bytes_max {
                break;
            }
            let Some(Slot { file_system, room_bytes: room, payload: Some(payload), .. }) =
                self.slots.pop_front()
            else {
                break;
            };
            into.push(Ready { lsn: self.first, file_system, payload });
            self.first = self.first.next();
            self.complete -= 1;
            bytes += more;
            room_bytes += room;
        }
        (bytes, room_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{Payload, Queue};
    use crate::format::Lsn;

    #[test]
    fn records_wait_for_those_before_them() {
        let mut queue = Queue::new(Lsn(5));
        let lsns: Vec<Lsn> = (0..3).map(|_| queue.reserve(0, 10, 4096)).collect();
        assert_eq!(lsns, [Lsn(5), Lsn(6), Lsn(7)]);
        assert!(!queue.complete(Lsn(6), Payload::new(vec![1])));
        assert!(!queue.complete(Lsn(7), Payload::default()));
        let mut taken = Vec::new();
        assert_eq!(queue.take(1000, &mut taken), (0, 0));
        assert!(queue.complete(Lsn(5), Payload::default()));
        // The bound is for all but the first.
        assert_eq!(queue.take(1, &mut taken), (48, 4096));
        taken.clear();
        assert_eq!(queue.take(1000, &mut taken), (104, 8192));
        assert_eq!(taken.iter().map(|ready| ready.lsn).collect::<Vec<_>>(), [Lsn(6), Lsn(7)]);
        assert!(queue.is_empty());
        assert_eq!((queue.first(), queue.last()), (Lsn(8), Lsn(7)));
    }

    #[test]
    #[should_panic(expected = "completed before")]
    fn a_record_is_complete_once() {
        let mut queue = Queue::new(Lsn(1));
        queue.reserve(0, 10, 4096);
        queue.reserve(0, 10, 4096);
        queue.complete(Lsn(2), Payload::default());
        queue.complete(Lsn(2), Payload::default());
    }
}
