//! Slots of a session (RFC 8881 §2.10.6): which request has which.

use steadfast_wire::nfs4::{Sequence4Args, Sequence4Result};

/// Most slots that a client uses of a session, whatever the server has.
pub const SLOTS_MAX: u32 = 1024;

/// A slot in the hands of one request at a time.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot {
    number: u32,
    sequence: u32,
}

impl Slot {
    /// Which slot.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The sequence id of the request that it is for.
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// SEQUENCE succeeded: the next request has the next sequence id. After a SEQUENCE that failed
    /// the slot stays where it is (§18.46.3).
    pub fn advance(&mut self) {
        self.sequence = self.sequence.wrapping_add(1);
    }
}

/// All slots of a session.
#[derive(Debug)]
pub struct Slots {
    session: [u8; 16],
    /// Those that nobody has, by number.
    free: Vec<Option<Slot>>,
    /// How many of them the server wants to be used.
    target: u32,
}

impl Slots {
    /// The slots of a new session, [`SLOTS_MAX`] at most.
    pub fn new(session: [u8; 16], count: u32) -> Self {
        let count = count.min(SLOTS_MAX);
        let free = (0..count).map(|number| Some(Slot { number, sequence: 1 })).collect();
        Self { session, free, target: count }
    }

    /// The session.
    pub fn session(&self) -> [u8; 16] {
        self.session
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.free.len() as u32
    }

    /// The lowest slot that nobody has and that the server wants to be used.
    pub fn take(&mut self) -> Option<Slot> {
        self.free.iter_mut().take(self.target as usize).find_map(Option::take)
    }

    /// Gives a slot back. A request without a reply leaves its slot unknown: do not give it back.
    pub fn give_back(&mut self, slot: Slot) {
        if let Some(place) = self.free.get_mut(slot.number as usize) {
            *place = Some(slot);
        }
    }

    /// The highest slot that somebody has; 0 if nobody has one.
    pub fn highest_in_use(&self) -> u32 {
        self.free.iter().rposition(Option::is_none).unwrap_or(0) as u32
    }

    /// The SEQUENCE of a slot's request.
    pub fn arguments(&self, slot: &Slot, is_kept: bool) -> Sequence4Args {
        Sequence4Args {
            sessionid: self.session,
            sequenceid: slot.sequence,
            slotid: slot.number,
            highest_slotid: self.highest_in_use(),
            cachethis: is_kept,
        }
    }

    /// Takes note of how many slots the server wants to be used: one at least.
    pub fn heed(&mut self, result: &Sequence4Result) {
        self.target = result.target_highest_slotid.saturating_add(1).min(self.count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_count_their_own_requests() {
        let mut slots = Slots::new([7; 16], 3);
        let mut first = slots.take().unwrap();
        let second = slots.take().unwrap();
        assert_eq!((first.number(), first.sequence(), second.number()), (0, 1, 1));
        assert_eq!(slots.highest_in_use(), 1);
        first.advance();
        slots.give_back(first);
        let again = slots.take().unwrap();
        assert_eq!((again.number(), again.sequence()), (0, 2));
        slots.give_back(second);
        let refused = slots.take().unwrap();
        assert_eq!((refused.number(), refused.sequence()), (1, 1));
        let third = slots.take().unwrap();
        assert_eq!((slots.arguments(&third, true).highest_slotid, slots.take()), (2, None));
    }

    #[test]
    fn the_server_steers_how_many_are_used() {
        let mut slots = Slots::new([7; 16], u32::MAX);
        assert_eq!(slots.count(), SLOTS_MAX);
        let mut told = Sequence4Result {
            sessionid: [7; 16],
            sequenceid: 1,
            slotid: 0,
            highest_slotid: 63,
            target_highest_slotid: 0,
            status_flags: 0,
        };
        slots.heed(&told);
        let only = slots.take().unwrap();
        assert_eq!(slots.take(), None);
        told.target_highest_slotid = u32::MAX;
        slots.heed(&told);
        assert_eq!(slots.take().map(|slot| slot.number()), Some(1));
        slots.give_back(only);
    }

    #[test]
    fn sequence_ids_go_round() {
        let mut slot = Slot { number: 0, sequence: u32::MAX };
        slot.advance();
        assert_eq!(slot.sequence(), 0);
    }
}
