//! Calls that may not wait for their storage yet, since too many do ([`crate::held_up`]). They are
//! executed from their beginning when there is room, in turns of their clients; or when it is known
//! that the storage hangs, or they have waited for long: then their clients are told to try later.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use steadfast_engine::{Room, StorageId};

use crate::batch::Batch;
use crate::turns::ClientId;

/// How often room is looked for, in ms: soon again where there was some, since those who got it may
/// be done soon.
const LOOK_MS: u64 = 5;
const NEXT_LOOK_MS: u64 = 1;
/// Calls that a seat puts off at the most.
const CALLS_MAX: usize = 4096;

/// One call.
#[derive(Debug)]
pub(crate) struct PutOffCall {
    /// Of its connection.
    pub(crate) token: u64,
    /// Of this call alone.
    pub(crate) batch: Arc<Batch>,
}

/// Those of one seat.
#[derive(Debug, Default)]
pub(crate) struct PutOff {
    lines: HashMap<StorageId, Line>,
    count: usize,
    next_look_ms: u64,
}

/// Those that want one storage.
#[derive(Debug, Default)]
struct Line {
    by_client: HashMap<ClientId, VecDeque<PutOffCall>>,
    /// Whose turn is next. Each client that has calls, once.
    turns: VecDeque<ClientId>,
}

impl PutOff {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count >= CALLS_MAX
    }

    /// Whether calls wait to get at this storage.
    pub(crate) fn has_line(&self, storage: StorageId) -> bool {
        self.lines.contains_key(&storage)
    }

    /// Puts a call off; one that had been before goes to where it was, before others of its client.
    pub(crate) fn push(
        &mut self,
        client: ClientId,
        call: PutOffCall,
        storage: StorageId,
        now_ms: u64,
    ) {
        if self.count == 0 {
            self.next_look_ms = now_ms + LOOK_MS;
        }
        self.count += 1;
        let Line { by_client, turns } = self.lines.entry(storage).or_default();
        let calls = by_client.entry(client).or_default();
        let since_ms = call.batch.put_off_since_ms();
        if calls.is_empty() {
            if since_ms < Some(now_ms) {
                turns.push_front(client);
            } else {
                turns.push_back(client);
            }
        }
        let before = calls.iter().rposition(|other| other.batch.put_off_since_ms() <= since_ms);
        calls.insert(before.map_or(0, |index| index + 1), call);
    }

    /// When [`PutOff::take_ready`] is to be called next, in ms.
    pub(crate) fn next_look_ms(&self) -> Option<u64> {
        (self.count > 0).then_some(self.next_look_ms)
    }

    /// Takes out the calls that may be executed now: as many as there is room for, all whose storage
    /// hangs, and those that have waited since `expired_ms`. Nothing while it is not time to look.
    pub(crate) fn take_ready(
        &mut self,
        room: impl Fn(StorageId) -> (Room, usize),
        expired_ms: Option<u64>,
        now_ms: u64,
    ) -> Vec<PutOffCall> {
        if self.next_look_ms().is_none_or(|at| at > now_ms) {
            return Vec::new();
        }
        self.next_look_ms = now_ms + LOOK_MS;
        let mut ready = Vec::new();
        self.lines.retain(|storage, line| {
            line.take_expired(expired_ms, &mut ready);
            let count = match room(*storage) {
                (Room::None, _) => usize::MAX,
                (_, more) => more,
            };
            line.take(count, &mut ready);
            !line.turns.is_empty()
        });
        self.count -= ready.len();
        if !ready.is_empty() {
            self.next_look_ms = now_ms + NEXT_LOOK_MS;
        }
        ready
    }

    /// Takes out the calls of a connection.
    pub(crate) fn take_of(&mut self, token: u64) -> Vec<PutOffCall> {
        let mut taken = Vec::new();
        if self.count > 0 {
            self.lines.retain(|_, line| {
                line.extract(|calls| extract(calls, |call| call.token == token, &mut taken))
            });
            self.count -= taken.len();
        }
        taken
    }
}

impl Line {
    /// Takes out so many calls, one of a client at a time.
    fn take(&mut self, count: usize, into: &mut Vec<PutOffCall>) {
        for _ in 0..count {
            let Some(client) = self.turns.pop_front() else { return };
            let Some(calls) = self.by_client.get_mut(&client) else { continue };
            into.extend(calls.pop_front());
            if calls.is_empty() {
                self.by_client.remove(&client);
            } else {
                self.turns.push_back(client);
            }
        }
    }

    fn take_expired(&mut self, expired_ms: Option<u64>, into: &mut Vec<PutOffCall>) {
        let is_expired = |call: &PutOffCall| call.batch.put_off_since_ms() <= expired_ms;
        self.extract(|calls| {
            while calls.front().is_some_and(is_expired) {
                into.extend(calls.pop_front());
            }
        });
    }

    /// Has calls of each client taken out; whether any are left.
    fn extract(&mut self, mut take: impl FnMut(&mut VecDeque<PutOffCall>)) -> bool {
        let by_client = &mut self.by_client;
        self.turns.retain(|client| {
            let Some(calls) = by_client.get_mut(client) else { return false };
            take(calls);
            let has_more = !calls.is_empty();
            if !has_more {
                by_client.remove(client);
            }
            has_more
        });
        !self.turns.is_empty()
    }
}

fn extract<T>(from: &mut VecDeque<T>, is_wanted: impl Fn(&T) -> bool, into: &mut Vec<T>) {
    for each in std::mem::take(from) {
        if is_wanted(&each) {
            into.push(each);
        } else {
            from.push_back(each);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use steadfast_engine::PutOffCall as Kept;

    use super::*;
    use crate::turns::Turns;

    const A: StorageId = StorageId(1);
    const B: StorageId = StorageId(2);

    fn clients() -> [ClientId; 3] {
        let mut turns = Turns::<()>::default();
        [(); 3].map(|()| turns.join_apart())
    }

    fn call(token: u64, since_ms: u64) -> PutOffCall {
        let kept = Kept::for_test(Vec::new());
        PutOffCall { token, batch: Batch::new(0).only(0, kept, since_ms, Default::default()) }
    }

    fn tokens(calls: &[PutOffCall]) -> Vec<u64> {
        calls.iter().map(|call| call.token).collect()
    }

    #[test]
    fn clients_take_turns_as_there_is_room() {
        let [x, y, z] = clients();
        let mut put_off = PutOff::default();
        for (client, token) in [(x, 1), (x, 2), (x, 3), (y, 4), (z, 5), (y, 6)] {
            put_off.push(client, call(token, token), A, 0);
        }
        let full = |_| (Room::Later, 0);
        assert!(put_off.take_ready(full, None, LOOK_MS - 1).is_empty());
        assert_eq!(put_off.next_look_ms(), Some(LOOK_MS));
        assert!(put_off.take_ready(full, None, LOOK_MS).is_empty());
        assert_eq!(put_off.next_look_ms(), Some(2 * LOOK_MS));
        assert_eq!(tokens(&put_off.take_ready(|_| (Room::Free, 4), None, 10)), [1, 4, 5, 2]);
        assert_eq!(put_off.next_look_ms(), Some(10 + NEXT_LOOK_MS));
        // There was none after all.
        put_off.push(x, call(2, 2), A, 10);
        assert_eq!(tokens(&put_off.take_ready(|_| (Room::None, 0), None, 15)), [6, 2, 3]);
        assert!(put_off.is_empty() && !put_off.has_line(A));
        assert_eq!(put_off.next_look_ms(), None);
    }

    #[test]
    fn who_has_waited_for_long_waits_no_more() {
        let [x, y, _] = clients();
        let mut put_off = PutOff::default();
        for (client, token, since_ms) in [(x, 1, 0), (x, 2, 9), (y, 3, 4), (y, 4, 8)] {
            put_off.push(client, call(token, since_ms), A, since_ms);
        }
        let room = |_| (Room::Later, 0);
        assert_eq!(tokens(&put_off.take_ready(room, Some(8), 2_008)), [1, 3, 4]);
        assert_eq!(tokens(&put_off.take_of(2)), [2]);
        assert!(put_off.is_empty());
    }

    proptest! {
        /// Each call comes out once, those of a client to a storage in their order.
        #[test]
        fn every_call_comes_out_once(
            steps in proptest::collection::vec((0..6_u8, 0..3_usize, any::<bool>(), 0..4_usize), 0..200),
        ) {
            let clients = clients();
            let mut put_off = PutOff::default();
            let (mut now_ms, mut pushed, mut out) = (0, 0, Vec::new());
            for (what, client, is_a, room) in steps {
                now_ms += LOOK_MS;
                match what {
                    0..4 => {
                        let storage = if is_a { A } else { B };
                        put_off.push(clients[client], call(pushed, now_ms), storage, now_ms);
                        pushed += 1;
                    }
                    4 => out.extend(tokens(&put_off.take_ready(|_| (Room::Free, room), None, now_ms))),
                    _ => out.extend(tokens(&put_off.take_of(pushed.saturating_sub(2)))),
                }
                prop_assert_eq!(put_off.count + out.len(), pushed as usize);
                prop_assert_eq!(put_off.has_line(A) || put_off.has_line(B), !put_off.is_empty());
            }
            out.extend(tokens(&put_off.take_ready(|_| (Room::None, 0), None, now_ms + LOOK_MS)));
            out.sort_unstable();
            prop_assert_eq!(out, (0..pushed).collect::<Vec<_>>());
        }
    }
}
