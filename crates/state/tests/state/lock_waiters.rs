//! Who waits for a lock gets it in its turn, and nothing is kept for ever. Rings: unit, property.

use std::sync::Arc;

use crate::common::{BOTH, DENY_NONE, LEASE_MS, client, file, session, state};
use proptest::prelude::*;
use steadfast_state::{
    Client, Effect, Lock, LockBy, LockError, LockKind, LockRange, Open, State, StateError, StateId,
};

const ALL: LockRange = LockRange { offset: 0, length: u64::MAX };

/// A lock-owner with an open of its own.
struct Process {
    client: Arc<Client>,
    open: StateId,
    name: Vec<u8>,
    id: Option<StateId>,
}

impl Process {
    fn new(state: &State, client: &Arc<Client>, name: &str) -> Self {
        let owner = name.as_bytes();
        let request = Open { owner, file: file(1), access: BOTH, deny: DENY_NONE };
        let open = state.open(client, &request).expect("open");
        Self { client: Arc::clone(client), open, name: owner.to_vec(), id: None }
    }

    fn ask(
        &mut self,
        state: &State,
        kind: LockKind,
        range: LockRange,
        is_waited_for: bool,
    ) -> bool {
        let by = LockBy::Open { open: self.open, owner: &self.name };
        match state.lock(&self.client, &Lock { file: file(1), kind, range, by, is_waited_for }) {
            Ok(id) => self.id = Some(id),
            Err(LockError::Denied(_)) => return false,
            Err(error) => panic!("{error}"),
        }
        true
    }

    /// As [`Process::waits_to_write`], and is to be told.
    fn waits_to_be_told(&mut self, state: &State) -> bool {
        let by = LockBy::Open { open: self.open, owner: &self.name };
        let kind = LockKind::Write;
        let lock = Lock { file: file(1), kind, range: ALL, by, is_waited_for: true };
        let locked = state.lock_or_tell(&self.client, &lock, Some(&Arc::from(&b"handle"[..])));
        match locked {
            Ok(id) => self.id = Some(id),
            Err(LockError::Denied(_)) => return false,
            Err(error) => panic!("{error}"),
        }
        true
    }

    fn reads(&mut self, state: &State) -> bool {
        self.ask(state, LockKind::Read, ALL, false)
    }

    fn writes(&mut self, state: &State) -> bool {
        self.ask(state, LockKind::Write, ALL, false)
    }

    fn waits_to_read(&mut self, state: &State) -> bool {
        self.ask(state, LockKind::Read, ALL, true)
    }

    fn waits_to_write(&mut self, state: &State) -> bool {
        self.ask(state, LockKind::Write, ALL, true)
    }

    fn unlock(&mut self, state: &State) {
        let id = self.id.expect("locked before");
        self.id = Some(state.unlock(&self.client, &id, &file(1), ALL).expect("known"));
    }

    fn close(self, state: &State) {
        let open = StateId { seqid: 0, ..self.open };
        state.close(&self.client, &open, None).expect("open");
    }
}

fn waiting(state: &State) -> Vec<Vec<u8>> {
    let locks = state.locks(&file(1)).into_iter();
    locks.filter(|lock| lock.is_waiting).map(|lock| lock.owner.to_vec()).collect()
}

#[test]
fn readers_that_follow_each_other_do_not_starve_a_writer() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let mut writer = Process::new(&state, &two, "writer");
    let mut readers = [Process::new(&state, &one, "r1"), Process::new(&state, &one, "r2")];
    assert!(readers[0].reads(&state));
    assert!(!writer.waits_to_write(&state));
    assert!(readers[0].reads(&state), "it has the lock already");
    assert!(!readers[1].reads(&state));
    let by = LockBy::Open { open: readers[1].open, owner: b"r2" };
    let request =
        Lock { file: file(1), kind: LockKind::Read, range: ALL, by, is_waited_for: false };
    let Err(LockError::Denied(conflict)) = state.lock(&one, &request) else { panic!("granted") };
    assert_eq!((&*conflict.owner, conflict.kind), (&b"writer"[..], LockKind::Write));
    let range = LockRange { offset: 0, length: 1 };
    let tested = state.test_lock(&one, &file(1), LockKind::Read, range, b"r2");
    assert_eq!(tested, Ok(()), "nobody has it");
    readers[0].unlock(&state);
    assert!(!readers[0].reads(&state) && !readers[1].reads(&state));
    assert!(writer.waits_to_write(&state));
    assert!(waiting(&state).is_empty());
    writer.unlock(&state);
    assert!(readers[1].reads(&state));
}

#[test]
fn a_free_range_is_kept_for_two_seconds() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let mut holder = Process::new(&state, &one, "holder");
    let mut waiter = Process::new(&state, &two, "waiter");
    assert!(holder.writes(&state));
    assert!(!waiter.waits_to_write(&state));
    for now_ms in [1_000, 20_000] {
        state.tick(now_ms);
        assert!(holder.writes(&state));
    }
    holder.unlock(&state);
    for now_ms in [20_000, 21_000, 22_000] {
        state.tick(now_ms);
        assert!(!holder.writes(&state), "{now_ms}");
    }
    state.tick(22_001);
    assert!(holder.writes(&state));
    assert!(waiting(&state).is_empty());
}

#[test]
fn waiters_stand_in_order() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let mut holder = Process::new(&state, &one, "holder");
    let mut first = Process::new(&state, &two, "first");
    let mut second = Process::new(&state, &one, "second");
    let mut third = Process::new(&state, &two, "third");
    assert!(holder.writes(&state));
    assert!(!first.waits_to_write(&state));
    assert!(!second.waits_to_read(&state));
    assert!(!third.waits_to_read(&state));
    assert!(!first.waits_to_write(&state), "it keeps its place");
    assert_eq!(waiting(&state), [b"first".to_vec(), b"second".to_vec(), b"third".to_vec()]);
    holder.unlock(&state);
    assert!(!third.waits_to_read(&state) && !second.waits_to_read(&state));
    assert!(first.waits_to_write(&state));
    first.unlock(&state);
    // Readers do not keep each other waiting.
    assert!(third.waits_to_read(&state) && !holder.writes(&state));
    assert!(second.waits_to_read(&state));
    assert!(waiting(&state).is_empty());
}

#[test]
fn the_next_waiter_has_its_two_seconds_after_the_first() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let mut holder = Process::new(&state, &one, "holder");
    let mut first = Process::new(&state, &two, "first");
    let mut second = Process::new(&state, &two, "second");
    assert!(holder.writes(&state));
    assert!(!first.waits_to_write(&state) && !second.waits_to_write(&state));
    holder.unlock(&state);
    state.tick(2_001);
    assert!(!holder.writes(&state));
    assert_eq!(waiting(&state), [b"second".to_vec()]);
    state.tick(4_001);
    assert!(!holder.writes(&state));
    assert!(second.waits_to_write(&state), "in time");
}

#[test]
fn owners_that_wait_for_each_other_go_on() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let mut holder = Process::new(&state, &one, "holder");
    let mut waiter = Process::new(&state, &two, "waiter");
    let part = |offset| LockRange { offset, length: 1 };
    assert!(holder.ask(&state, LockKind::Read, part(0), false));
    assert!(!waiter.waits_to_write(&state));
    assert!(holder.ask(&state, LockKind::Write, part(5), false), "the waiter waits for it anyway");
    assert!(holder.ask(&state, LockKind::Write, part(0), false), "an upgrade");
    assert!(holder.ask(&state, LockKind::Read, part(0), false), "a downgrade");
    holder.unlock(&state);
    assert!(!holder.ask(&state, LockKind::Write, part(5), false));
}

#[test]
fn a_place_in_the_order_lasts_for_a_lease() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let mut holder = Process::new(&state, &one, "holder");
    let mut reader = Process::new(&state, &one, "reader");
    let mut waiter = Process::new(&state, &two, "waiter");
    assert!(holder.reads(&state));
    assert!(!waiter.waits_to_write(&state));
    for now_ms in [40_000, 80_000, LEASE_MS] {
        one.renew(now_ms);
        two.renew(now_ms);
        assert!(!reader.reads(&state) && !waiter.waits_to_write(&state), "{now_ms}");
    }
    one.renew(LEASE_MS + 1);
    assert!(reader.reads(&state));
    assert!(!waiter.waits_to_write(&state));
    assert_eq!(waiting(&state).len(), 1, "again, for another lease");
}

#[test]
fn who_does_not_ask_any_more_loses_its_place() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let mut holder = Process::new(&state, &one, "holder");
    let mut reader = Process::new(&state, &one, "reader");
    let mut waiter = Process::new(&state, &two, "waiter");
    assert!(holder.reads(&state));
    assert!(!waiter.waits_to_write(&state));
    two.renew(10_000);
    assert!(!waiter.waits_to_write(&state));
    state.tick(50_000);
    assert!(!reader.reads(&state));
    state.tick(50_001);
    assert!(reader.reads(&state));
    assert!(waiting(&state).is_empty());
}

#[test]
fn who_is_gone_does_not_wait() {
    let state = state();
    let (one, other) = (client(&state, 0, "a"), session(&state, 0, "b", 1));
    let mut holder = Process::new(&state, &one, "holder");
    let mut reader = Process::new(&state, &one, "reader");
    let mut waiter = Process::new(&state, other.client(), "waiter");
    assert!(holder.reads(&state));
    assert!(!waiter.waits_to_write(&state) && !reader.reads(&state));
    waiter.close(&state);
    assert!(reader.reads(&state), "its open is closed");

    let mut waiter = Process::new(&state, other.client(), "waiter");
    assert!(!waiter.waits_to_write(&state));
    session(&state, 0, "b", 2);
    assert!(waiting(&state).is_empty(), "its client has restarted");

    let late = client(&state, 0, "c");
    let mut waiter = Process::new(&state, &late, "waiter");
    one.renew(10);
    assert!(!waiter.waits_to_write(&state));
    one.renew(LEASE_MS + 1);
    holder.unlock(&state);
    assert!(waiting(&state).is_empty(), "its lease has expired");
}

#[test]
fn an_unlock_ends_a_wait() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let mut holder = Process::new(&state, &one, "holder");
    let mut waiter = Process::new(&state, &two, "waiter");
    assert!(holder.ask(&state, LockKind::Write, LockRange { offset: 9, length: 1 }, false));
    assert!(waiter.ask(&state, LockKind::Write, LockRange { offset: 0, length: 1 }, false));
    assert!(!waiter.waits_to_write(&state));
    waiter.unlock(&state);
    assert!(waiting(&state).is_empty());
}

#[test]
fn waiters_are_bounded_by_file_and_by_client() {
    let state = state();
    let one = client(&state, 0, "a");
    let mut holder = Process::new(&state, &one, "holder");
    assert!(holder.writes(&state));
    let mut waiters = Vec::new();
    let clients = ["0", "1", "2"].map(|name| client(&state, 0, name));
    for number in 0..100 {
        let mut waiter = Process::new(&state, &clients[number % 3], &number.to_string());
        assert!(!waiter.waits_to_write(&state));
        waiters.push(waiter);
    }
    assert_eq!(waiting(&state).len(), 64);
    for waiter in waiters {
        waiter.close(&state);
    }
    assert!(waiting(&state).is_empty());

    let greedy = client(&state, 0, "greedy");
    let mut waiter = Process::new(&state, &greedy, "waiter");
    let ranges = |offset| LockRange { offset, length: 1 };
    for offset in 0..100 {
        assert!(!waiter.ask(&state, LockKind::Write, ranges(offset), true));
    }
    assert_eq!(waiting(&state).len(), 64);
    let request = Open { owner: b"o", file: file(2), access: BOTH, deny: DENY_NONE };
    let elsewhere = [&one, &greedy].map(|client| state.open(client, &request).expect("open"));
    let lock = |client, open| {
        let by = LockBy::Open { open, owner: b"o" };
        let kind = LockKind::Write;
        state.lock(client, &Lock { file: file(2), kind, range: ALL, by, is_waited_for: true })
    };
    assert!(lock(&one, elsewhere[0]).is_ok());
    assert!(lock(&greedy, elsewhere[1]).is_err());
    assert_eq!(state.locks(&file(2)).len(), 1, "of all files together");
    holder.unlock(&state);
    assert!(waiter.writes(&state));
    assert!(waiting(&state).is_empty());
    assert!(lock(&greedy, elsewhere[1]).is_err());
    assert_eq!(state.locks(&file(2)).len(), 2);
    state.remove_client(greedy.id()).expect("alive");
    assert_eq!(state.locks(&file(2)).len(), 1);
    assert_eq!(state.test(&greedy, &elsewhere[1]), Err(StateError::Expired));
}

const STEP_MS: u64 = 500;
/// How long a lock is held at most.
const HOLD_STEPS: u32 = 6;
const PROCESSES: usize = 6;
/// Each of the others before: its lock, and what is kept for it in vain.
const WAIT_STEPS: u32 = PROCESSES as u32 * (HOLD_STEPS + 5);

#[derive(Clone, Debug)]
struct Job {
    /// Steps until it asks.
    pause: u32,
    is_write: bool,
    offset: u64,
    length: u64,
    is_waited_for: bool,
    /// It gives up after so many steps in vain.
    patience: Option<u32>,
    hold: u32,
}

fn job() -> impl Strategy<Value = Job> {
    let patience = proptest::option::weighted(0.2, 0..12_u32);
    (0..4_u32, any::<bool>(), 0..6_u64, 1..6_u64, 0..3_u8, patience, 1..=HOLD_STEPS).prop_map(
        |(pause, is_write, offset, length, waits, patience, hold)| {
            let is_waited_for = waits > 0;
            Job { pause, is_write, offset, length, is_waited_for, patience, hold }
        },
    )
}

impl Job {
    fn kind(&self) -> LockKind {
        if self.is_write { LockKind::Write } else { LockKind::Read }
    }

    fn range(&self) -> LockRange {
        LockRange { offset: self.offset, length: self.length }
    }
}

/// What a process does at the moment.
enum Doing {
    Pausing(u32),
    Asking(u32),
    Holding(u32),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn nothing_starves_and_nothing_is_kept_for_ever(
        jobs in proptest::collection::vec(proptest::collection::vec(job(), 1..5), PROCESSES)
    ) {
        const STEPS: u32 = 300;
        let state = state();
        let clients = [client(&state, 0, "a"), client(&state, 0, "b"), client(&state, 0, "c")];
        let mut processes: Vec<(Process, Doing, usize)> = (0..PROCESSES)
            .map(|number| {
                let process = Process::new(&state, &clients[number % 3], &number.to_string());
                (process, Doing::Pausing(0), 0)
            })
            .collect();
        for step in 0..STEPS {
            let now_ms = u64::from(step) * STEP_MS;
            state.tick(now_ms);
            for client in &clients {
                client.renew(now_ms);
            }
            for (jobs, (process, doing, at)) in jobs.iter().zip(&mut processes) {
                let job = &jobs[*at % jobs.len()];
                match doing {
                    Doing::Pausing(steps) if *steps < job.pause => *steps += 1,
                    Doing::Pausing(_) => *doing = Doing::Asking(0),
                    Doing::Asking(_) if process.ask(
                        &state, job.kind(), job.range(), job.is_waited_for
                    ) => *doing = Doing::Holding(0),
                    Doing::Asking(steps) if job.patience.is_some_and(|most| *steps >= most) => {
                        *doing = Doing::Pausing(0);
                        *at += 1;
                    }
                    Doing::Asking(steps) => {
                        *steps += 1;
                        let starves = job.is_waited_for && *steps > WAIT_STEPS;
                        prop_assert!(!starves, "{:?}", state.locks(&file(1)));
                    }
                    Doing::Holding(steps) if *steps < job.hold => *steps += 1,
                    Doing::Holding(_) => {
                        process.unlock(&state);
                        *doing = Doing::Pausing(0);
                        *at += 1;
                    }
                }
            }
        }
        for (process, doing, _) in &mut processes {
            if matches!(doing, Doing::Holding(_)) {
                process.unlock(&state);
            }
        }
        // Nobody asks any more: each that is remembered has its two seconds.
        let mut last = Process::new(&state, &clients[0], "last");
        let mut now_ms = u64::from(STEPS) * STEP_MS;
        let (rounds_max, mut rounds) = (waiting(&state).len(), 0);
        while !last.writes(&state) {
            rounds += 1;
            prop_assert!(rounds <= rounds_max, "{:?}", state.locks(&file(1)));
            now_ms += 2_001;
            state.tick(now_ms);
        }
        prop_assert!(waiting(&state).is_empty());
    }
}

/// Which clients are to be told that they may ask again, and the owners.
fn told(state: &State) -> Vec<(u64, Vec<u8>)> {
    let told = state.take_effects().into_iter().map(|effect| match effect {
        Effect::Free { client, owner, handle } => {
            assert_eq!(*handle, b"handle"[..]);
            (client.id().0, owner.to_vec())
        }
        Effect::Granted { .. }
        | Effect::Recall { .. }
        | Effect::AskHolder { .. }
        | Effect::Answered { .. }
        | Effect::Returned { .. }
        | Effect::Undelegated { .. } => {
            panic!("{effect:?}")
        }
    });
    told.collect()
}

#[test]
fn who_waits_is_told_in_its_turn_when_it_may_ask_again() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let mut holder = Process::new(&state, &one, "holder");
    let mut first = Process::new(&state, &two, "first");
    let mut second = Process::new(&state, &one, "second");
    let mut polls = Process::new(&state, &one, "polls");
    assert!(holder.writes(&state));
    assert!(!first.waits_to_be_told(&state) && !second.waits_to_be_told(&state));
    assert!(!polls.waits_to_write(&state));
    assert_eq!(told(&state), []);
    holder.unlock(&state);
    assert_eq!(told(&state), [(two.id().0, b"first".to_vec())]);
    state.tick(100);
    assert_eq!(told(&state), [], "it is told once");
    assert!(!second.waits_to_be_told(&state), "it is kept for the first");
    assert!(first.waits_to_be_told(&state));
    first.close(&state);
    assert_eq!(told(&state), [(one.id().0, b"second".to_vec())]);
    assert!(second.waits_to_be_told(&state));
    second.unlock(&state);
    assert_eq!(told(&state), [], "who only polls finds it when it asks");
    assert!(polls.waits_to_write(&state));
}

#[test]
fn what_becomes_free_by_time_alone_is_told_too() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let mut holder = Process::new(&state, &one, "holder");
    let mut lost = Process::new(&state, &two, "lost");
    let mut waits = Process::new(&state, &two, "waits");
    assert!(holder.writes(&state));
    assert!(!lost.waits_to_be_told(&state) && !waits.waits_to_be_told(&state));
    holder.unlock(&state);
    assert_eq!(told(&state), [(two.id().0, b"lost".to_vec())]);
    two.renew(2_001);
    state.tick(2_001);
    assert_eq!(told(&state), [(two.id().0, b"waits".to_vec())], "the first did not come");
    assert!(waits.waits_to_be_told(&state));

    // A client that is silent for longer than its lease keeps nobody waiting.
    let mut behind = Process::new(&state, &one, "behind");
    assert!(!behind.waits_to_be_told(&state));
    let now_ms = 2_001 + LEASE_MS + 1;
    one.renew(now_ms - 30_000);
    assert!(!behind.waits_to_be_told(&state));
    one.renew(now_ms);
    state.tick(now_ms);
    state.tick(now_ms + 1_000);
    assert_eq!(told(&state), [(one.id().0, b"behind".to_vec())]);
    assert!(behind.waits_to_be_told(&state));
}

#[test]
fn who_has_waited_for_a_lease_is_told_still() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let mut holder = Process::new(&state, &one, "holder");
    let mut waits = Process::new(&state, &two, "waits");
    assert!(holder.writes(&state));
    for round in 0..=4 {
        for client in [&one, &two] {
            client.renew(round * 30_000);
        }
        state.tick(round * 30_000);
        assert!(!waits.waits_to_be_told(&state));
    }
    let now_ms = 4 * 30_000 + 20_000;
    for client in [&one, &two] {
        client.renew(now_ms);
    }
    state.tick(now_ms);
    holder.unlock(&state);
    assert_eq!(told(&state), [(two.id().0, b"waits".to_vec())]);
}
