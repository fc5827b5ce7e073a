//! Calls that may not wait for their storage yet, since too many do ([`crate::held_up`]). They are
//! executed from their beginning when there is room, or when it is known that the storage hangs.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use steadfast_engine::{Room, StorageId};

use crate::batch::Batch;
use crate::held_up::HeldUp;

/// How often room is looked for, in ms.
const LOOK_MS: u64 = 5;

/// One call.
#[derive(Debug)]
pub(crate) struct PutOffCall {
    /// Of its connection.
    pub(crate) token: u64,
    /// Of this call alone.
    pub(crate) batch: Arc<Batch>,
    storage: StorageId,
}

/// Those of one seat, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct PutOff {
    calls: VecDeque<PutOffCall>,
    next_look_ms: u64,
}

impl PutOff {
    pub(crate) fn push(&mut self, token: u64, batch: Arc<Batch>, storage: StorageId, now_ms: u64) {
        if self.calls.is_empty() {
            self.next_look_ms = now_ms + LOOK_MS;
        }
        self.calls.push_back(PutOffCall { token, batch, storage });
    }

    /// When [`PutOff::take_ready`] is to be called next, in ms.
    pub(crate) fn next_look_ms(&self) -> Option<u64> {
        (!self.calls.is_empty()).then_some(self.next_look_ms)
    }

    /// Takes out the calls that may be executed now: as many as there is room for, and all whose
    /// storage hangs. Nothing while it is not time to look.
    pub(crate) fn take_ready(&mut self, held_up: &HeldUp, now_ms: u64) -> Vec<PutOffCall> {
        if self.next_look_ms().is_none_or(|at| at > now_ms) {
            return Vec::new();
        }
        self.next_look_ms = now_ms + LOOK_MS;
        let mut rooms: HashMap<StorageId, usize> = HashMap::new();
        let is_ready = |call: &mut PutOffCall| {
            let room = rooms.entry(call.storage).or_insert_with(|| {
                match held_up.room(call.storage, now_ms) {
                    (Room::None, _) => usize::MAX,
                    (_, room) => room,
                }
            });
            let is_ready = *room > 0;
            *room = room.saturating_sub(1);
            is_ready
        };
        extract(&mut self.calls, is_ready)
    }
}

fn extract<T>(from: &mut VecDeque<T>, mut is_wanted: impl FnMut(&mut T) -> bool) -> Vec<T> {
    let mut taken = Vec::new();
    for mut each in std::mem::take(from) {
        if is_wanted(&mut each) {
            taken.push(each);
        } else {
            from.push_back(each);
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: StorageId = StorageId(1);
    const B: StorageId = StorageId(2);

    fn tokens(calls: &[PutOffCall]) -> Vec<u64> {
        calls.iter().map(|call| call.token).collect()
    }

    #[test]
    fn calls_go_on_in_their_order_as_there_is_room() {
        let held_up = HeldUp::new(3, 1_000);
        for _ in 0..3 {
            held_up.enter(A, 0);
        }
        let mut put_off = PutOff::default();
        for (token, storage) in [(1, A), (2, A), (3, B), (4, A), (5, A)] {
            put_off.push(token, Arc::new(Batch::new(0)), storage, 0);
        }
        assert!(put_off.take_ready(&held_up, LOOK_MS - 1).is_empty(), "not yet");
        assert!(put_off.take_ready(&held_up, LOOK_MS).is_empty(), "nobody is left for B either");
        held_up.leave(A, 10);
        assert_eq!(tokens(&put_off.take_ready(&held_up, 10)), [3]);
        held_up.leave(A, 20);
        assert_eq!(tokens(&put_off.take_ready(&held_up, 20)), [1]);
        held_up.enter(A, 20);
        held_up.enter(A, 20);
        assert!(put_off.take_ready(&held_up, 1_019).is_empty());
        assert_eq!(tokens(&put_off.take_ready(&held_up, 1_024)), [2, 4, 5], "it hangs");
        assert_eq!(put_off.next_look_ms(), None);
    }
}
