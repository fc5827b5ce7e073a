//! Calls that may not wait for their storage yet, since too many workers do ([`crate::blocked`]). They go on when
//! there is room, in turns of their clients; or when it is known that the storage hangs, or they have waited for
//! long: then their clients are told to try later.

use std::collections::{HashMap, VecDeque};

use steadfast_engine::{Room, StorageId};

use super::KeptCall;
use crate::turns::ClientId;

/// How often room is looked for, in ms: soon again where there was some, since those who got it may
/// be done soon.
const LOOK_MS: u64 = 5;
const NEXT_LOOK_MS: u64 = 1;
/// Calls that a seat keeps suspended for storage at the most.
const CALLS_MAX: usize = 4096;

/// Those of one seat.
#[derive(Debug, Default)]
pub(crate) struct ForStorage {
    lines: HashMap<StorageId, Line>,
    count: usize,
    next_look_ms: u64,
}

/// Those that want one storage.
#[derive(Debug, Default)]
struct Line {
    by_client: HashMap<ClientId, VecDeque<KeptCall>>,
    /// Whose turn is next. Each client that has calls, once.
    turns: VecDeque<ClientId>,
}

impl ForStorage {
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

    /// Keeps a call; one that had been suspended before goes to where it was, before others of its client.
    pub(crate) fn push(
        &mut self,
        client: ClientId,
        call: KeptCall,
        storage: StorageId,
        now_ms: u64,
    ) {
        if self.count == 0 {
            self.next_look_ms = now_ms + LOOK_MS;
        }
        self.count += 1;
        let Line { by_client, turns } = self.lines.entry(storage).or_default();
        let calls = by_client.entry(client).or_default();
        let since_ms = call.batch.suspended_since_ms();
        if calls.is_empty() {
            if since_ms < Some(now_ms) {
                turns.push_front(client);
            } else {
                turns.push_back(client);
            }
        }
        let before = calls.iter().rposition(|other| other.batch.suspended_since_ms() <= since_ms);
        calls.insert(before.map_or(0, |index| index + 1), call);
    }

    /// When [`ForStorage::take_ready`] is to be called next, in ms.
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
    ) -> Vec<KeptCall> {
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
    pub(crate) fn take_of(&mut self, token: u64) -> Vec<KeptCall> {
        let mut taken = Vec::new();
        if self.count > 0 {
            self.lines.retain(|_, line| {
                line.extract(|calls| extract(calls, |call| call.is_of(token), &mut taken))
            });
            self.count -= taken.len();
        }
        taken
    }
}

impl Line {
    /// Takes out so many calls, one of a client at a time.
    fn take(&mut self, count: usize, into: &mut Vec<KeptCall>) {
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

    fn take_expired(&mut self, expired_ms: Option<u64>, into: &mut Vec<KeptCall>) {
        let is_expired = |call: &KeptCall| call.batch.suspended_since_ms() <= expired_ms;
        self.extract(|calls| {
            while calls.front().is_some_and(is_expired) {
                into.extend(calls.pop_front());
            }
        });
    }

    /// Has calls of each client taken out; whether any are left.
    fn extract(&mut self, mut take: impl FnMut(&mut VecDeque<KeptCall>)) -> bool {
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

    use steadfast_engine::SuspendedCall;

    use super::super::KeptOrigin;
    use super::*;
    use crate::batch::Batch;
    use crate::turns::Turns;

    const A: StorageId = StorageId(1);
    const B: StorageId = StorageId(2);

    fn clients() -> [ClientId; 3] {
        let mut turns = Turns::<()>::default();
        [(); 3].map(|()| turns.join_apart())
    }

    fn call(token: u64, since_ms: u64) -> KeptCall {
        let call = SuspendedCall::for_test(Vec::new());
        let batch = Batch::new(0).only(0, call, since_ms, Default::default());
        KeptCall { origin: KeptOrigin::Connection(token), batch }
    }

    fn tokens(calls: &[KeptCall]) -> Vec<u64> {
        let token = |call: &KeptCall| match call.origin {
            KeptOrigin::Connection(token) => token,
            KeptOrigin::Datagrams(_) => u64::MAX,
        };
        calls.iter().map(token).collect()
    }

    #[test]
    fn clients_take_turns_as_there_is_room() {
        let [x, y, z] = clients();
        let mut suspended = ForStorage::default();
        for (client, token) in [(x, 1), (x, 2), (x, 3), (y, 4), (z, 5), (y, 6)] {
            suspended.push(client, call(token, token), A, 0);
        }
        let full = |_| (Room::Later, 0);
        assert!(suspended.take_ready(full, None, LOOK_MS - 1).is_empty());
        assert_eq!(suspended.next_look_ms(), Some(LOOK_MS));
        assert!(suspended.take_ready(full, None, LOOK_MS).is_empty());
        assert_eq!(suspended.next_look_ms(), Some(2 * LOOK_MS));
        assert_eq!(tokens(&suspended.take_ready(|_| (Room::Free, 4), None, 10)), [1, 4, 5, 2]);
        assert_eq!(suspended.next_look_ms(), Some(10 + NEXT_LOOK_MS));
        // There was none after all.
        suspended.push(x, call(2, 2), A, 10);
        assert_eq!(tokens(&suspended.take_ready(|_| (Room::None, 0), None, 15)), [6, 2, 3]);
        assert!(suspended.is_empty() && !suspended.has_line(A));
        assert_eq!(suspended.next_look_ms(), None);
    }

    #[test]
    fn who_has_waited_for_long_waits_no_more() {
        let [x, y, _] = clients();
        let mut suspended = ForStorage::default();
        for (client, token, since_ms) in [(x, 1, 0), (x, 2, 9), (y, 3, 4), (y, 4, 8)] {
            suspended.push(client, call(token, since_ms), A, since_ms);
        }
        let room = |_| (Room::Later, 0);
        assert_eq!(tokens(&suspended.take_ready(room, Some(8), 2_008)), [1, 3, 4]);
        assert_eq!(tokens(&suspended.take_of(2)), [2]);
        assert!(suspended.is_empty());
    }

    proptest! {
        /// Each call comes out once, those of a client to a storage in their order.
        #[test]
        fn every_call_comes_out_once(
            steps in proptest::collection::vec((0..6_u8, 0..3_usize, any::<bool>(), 0..4_usize), 0..200),
        ) {
            let clients = clients();
            let mut suspended = ForStorage::default();
            let (mut now_ms, mut pushed, mut out) = (0, 0, Vec::new());
            for (what, client, is_a, room) in steps {
                now_ms += LOOK_MS;
                match what {
                    0..4 => {
                        let storage = if is_a { A } else { B };
                        suspended.push(clients[client], call(pushed, now_ms), storage, now_ms);
                        pushed += 1;
                    }
                    4 => out.extend(tokens(&suspended.take_ready(|_| (Room::Free, room), None, now_ms))),
                    _ => out.extend(tokens(&suspended.take_of(pushed.saturating_sub(2)))),
                }
                prop_assert_eq!(suspended.count + out.len(), pushed as usize);
                prop_assert_eq!(suspended.has_line(A) || suspended.has_line(B), !suspended.is_empty());
            }
            out.extend(tokens(&suspended.take_ready(|_| (Room::None, 0), None, now_ms + LOOK_MS)));
            out.sort_unstable();
            prop_assert_eq!(out, (0..pushed).collect::<Vec<_>>());
        }
    }
}
