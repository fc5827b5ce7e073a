//! Byte-range locks: stateids, conflicts, courtesy, bounds. Rings: unit, threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{
    BOTH, DENY_NONE, LEASE_MS, READ, WRITE, client, create, exchange, file, session, state,
    state_with,
};
use steadfast_state::{
    Client, Lock, LockBy, LockError, LockKind, LockRange, Open, ShareAccess, State, StateError,
    StateId,
};

const MAX: u64 = u64::MAX;

fn open(state: &State, client: &Arc<Client>, at: u8, access: ShareAccess) -> StateId {
    let request = Open { owner: b"open", file: file(at), access, deny: DENY_NONE };
    state.open(client, &request).expect("open")
}

fn range(offset: u64, length: u64) -> LockRange {
    LockRange { offset, length }
}

fn by_open(open: StateId, owner: &[u8]) -> LockBy<'_> {
    LockBy::Open { open: StateId { seqid: 0, ..open }, owner }
}

fn write(at: u8, range: LockRange, by: LockBy<'_>) -> Lock<'_> {
    Lock { file: file(at), kind: LockKind::Write, range, by, is_waited_for: false }
}

fn read(at: u8, range: LockRange, by: LockBy<'_>) -> Lock<'_> {
    Lock { kind: LockKind::Read, ..write(at, range, by) }
}

fn is_denied(locked: &Result<StateId, LockError>) -> bool {
    matches!(locked, Err(LockError::Denied(_)))
}

fn locks_of(state: &State, client: &Client) -> usize {
    let report = state.clients(0).into_iter().find(|report| report.id == client.id());
    report.map_or(0, |report| report.locks)
}

#[test]
fn a_lock_stateid_belongs_to_its_owner_and_open() {
    let state = state();
    let client = client(&state, 0, "a");
    let opened = open(&state, &client, 1, BOTH);
    let first = state.lock(&client, &write(1, range(0, 10), by_open(opened, b"x"))).expect("lock");
    assert_eq!(first.seqid, 1);
    assert_ne!(first.other, opened.other);
    let again = state.lock(&client, &read(1, range(3, 2), by_open(opened, b"x"))).expect("lock");
    assert_eq!(again, StateId { seqid: 2, ..first });
    let third = state.lock(&client, &write(1, range(20, MAX), LockBy::Lock(again))).expect("lock");
    assert_eq!(third, StateId { seqid: 3, ..first });
    let left = state.unlock(&client, &third, &file(1), range(0, 1)).expect("unlock");
    assert_eq!(left, StateId { seqid: 4, ..first });
    let other = state.lock(&client, &read(1, range(100, 1), by_open(opened, b"y")));
    assert!(is_denied(&other), "another owner of the same client");
    let other = state.lock(&client, &read(1, range(15, 1), by_open(opened, b"y"))).expect("lock");
    assert_ne!(other.other, first.other);

    let request = Open { owner: b"open 2", file: file(1), access: BOTH, deny: DENY_NONE };
    let second = state.open(&client, &request).expect("open");
    let by_second = state.lock(&client, &read(1, range(5, 1), by_open(second, b"x")));
    let by_second = by_second.expect("the owner's own locks do not conflict");
    assert_ne!(by_second.other, first.other);
    state.close(&client, &second, None).expect("close");
    assert_eq!(state.test(&client, &by_second), Err(StateError::BadStateId));
    assert_eq!(state.test(&client, &left), Ok(()));
    // [1, 3) write, [3, 5) read, [6, 10) write, [15] read of y, [20, ...) write.
    assert_eq!(locks_of(&state, &client), 5);
    let held: Vec<_> = state.locks(&file(1)).iter().map(|lock| lock.range).collect();
    let expected = [range(3, 2), range(1, 2), range(6, 4), range(20, MAX), range(15, 1)];
    assert_eq!(held, expected, "by owner, read locks first");
}

#[test]
fn stateids_of_opens_and_locks_are_not_taken_for_each_other() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let opened = open(&state, &one, 1, BOTH);
    let locked = state.lock(&one, &write(1, range(0, 1), by_open(opened, b"x"))).expect("lock");
    let bad = Err(StateError::BadStateId);
    assert_eq!(state.close(&one, &locked, None), bad);
    assert_eq!(state.downgrade(&one, &locked, &file(1), READ, DENY_NONE).map(|_| ()), bad);
    assert_eq!(state.unlock(&one, &opened, &file(1), range(0, 1)).map(|_| ()), bad);
    assert_eq!(state.unlock(&two, &locked, &file(1), range(0, 1)).map(|_| ()), bad);
    assert_eq!(state.unlock(&one, &locked, &file(2), range(0, 1)).map(|_| ()), bad);
    let behind = StateId { seqid: 2, ..locked };
    assert_eq!(state.unlock(&one, &behind, &file(1), range(0, 1)).map(|_| ()), bad);
    let bad = Err(LockError::State(StateError::BadStateId));
    for (client, at, by) in [
        (&one, 1, LockBy::Lock(opened)),
        (&one, 1, LockBy::Lock(StateId::ANONYMOUS)),
        (&one, 1, LockBy::Open { open: locked, owner: b"x" }),
        (&one, 2, LockBy::Lock(locked)),
        (&one, 2, by_open(opened, b"x")),
        (&two, 1, LockBy::Lock(locked)),
        (&two, 1, by_open(opened, b"x")),
    ] {
        assert_eq!(state.lock(client, &write(at, range(0, 1), by)).map(|_| ()), bad, "{by:?}");
    }
    let newer = state.lock(&one, &write(1, range(1, 1), LockBy::Lock(locked))).expect("lock");
    let old = StateError::OldStateId;
    assert_eq!(state.unlock(&one, &locked, &file(1), range(0, 1)), Err(old));
    let again = state.lock(&one, &write(1, range(1, 1), LockBy::Lock(locked)));
    assert_eq!(again, Err(LockError::State(old)));
    assert_eq!((state.test(&one, &locked), state.test(&one, &newer)), (Err(old), Ok(())));
}

#[test]
fn a_lock_needs_the_access_of_its_open_and_is_judged_as_it() {
    let state = state();
    let client = client(&state, 0, "a");
    let reads = open(&state, &client, 1, READ);
    let writes = open(&state, &client, 2, WRITE);
    let no = Err(LockError::State(StateError::OpenMode));
    assert_eq!(state.lock(&client, &write(1, range(0, 1), by_open(reads, b"x"))), no);
    assert_eq!(state.lock(&client, &read(2, range(0, 1), by_open(writes, b"x"))), no);
    let one = state.lock(&client, &read(1, range(0, 1), by_open(reads, b"x"))).expect("lock");
    let two = state.lock(&client, &write(2, range(0, 1), by_open(writes, b"x"))).expect("lock");
    assert_eq!(state.judge(&client, &one, &file(1), READ), Ok(()));
    assert_eq!(state.judge(&client, &one, &file(1), WRITE), Err(StateError::OpenMode));
    assert_eq!(state.judge(&client, &one, &file(2), READ), Err(StateError::BadStateId));
    assert_eq!(state.judge(&client, &two, &file(2), WRITE), Ok(()));
    let upgrade = open(&state, &client, 1, WRITE);
    assert_eq!(state.judge(&client, &one, &file(1), WRITE), Ok(()));
    let one = state.lock(&client, &write(1, range(0, 1), LockBy::Lock(one))).expect("lock");
    let downgraded = state.downgrade(&client, &upgrade, &file(1), READ, DENY_NONE);
    assert!(downgraded.is_ok());
    assert_eq!(locks_of(&state, &client), 2, "a downgrade leaves locks");
    assert_eq!(state.lock(&client, &write(1, range(0, 1), LockBy::Lock(one))), no);
    assert!(state.unlock(&client, &one, &file(1), range(0, MAX)).is_ok());
}

#[test]
fn ranges_and_owners_are_judged() {
    let state = state();
    let client = client(&state, 0, "a");
    let opened = open(&state, &client, 1, BOTH);
    let locked = state.lock(&client, &write(1, range(0, 1), by_open(opened, b"x"))).expect("lock");
    let invalid = LockError::State(StateError::Invalid);
    for bad in [range(0, 0), range(MAX, 1), range(2, MAX - 1)] {
        let by = by_open(opened, b"x");
        assert_eq!(state.lock(&client, &write(1, bad, by)), Err(invalid.clone()));
        let tested = state.test_lock(&client, &file(1), LockKind::Read, bad, b"y");
        assert_eq!(tested, Err(invalid.clone()));
        let unlocked = state.unlock(&client, &locked, &file(1), bad);
        assert_eq!(unlocked, Err(StateError::Invalid));
    }
    let long = [0; 1025];
    let locked = state.lock(&client, &write(1, range(0, 1), by_open(opened, &long)));
    assert_eq!(locked, Err(invalid.clone()));
    let tested = state.test_lock(&client, &file(1), LockKind::Read, range(0, 1), &long);
    assert_eq!(tested, Err(invalid));
    let last = state.lock(&client, &write(1, range(MAX, MAX), by_open(opened, &long[1..])));
    assert!(last.is_ok());
}

#[test]
fn who_is_denied_is_told_the_lock_in_the_way() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let (first, second) = (open(&state, &one, 1, BOTH), open(&state, &two, 1, BOTH));
    state.lock(&one, &write(1, range(5, MAX), by_open(first, b"x"))).expect("lock");
    state.lock(&one, &read(1, range(0, 2), by_open(first, b"y"))).expect("lock");
    let Err(LockError::Denied(conflict)) =
        state.lock(&two, &read(1, range(0, 6), by_open(second, b"x")))
    else {
        panic!("not denied")
    };
    assert_eq!((conflict.offset, conflict.length), (5, MAX));
    assert_eq!((conflict.kind, conflict.client), (LockKind::Write, one.id()));
    assert_eq!(&*conflict.owner, b"x");
    let test =
        |client, kind, range, owner: &[u8]| state.test_lock(client, &file(1), kind, range, owner);
    let denied = Err(LockError::Denied(conflict));
    assert_eq!(test(&two, LockKind::Read, range(0, 6), b"x"), denied);
    assert_eq!(test(&one, LockKind::Read, range(0, 6), b"y"), denied);
    assert_eq!(test(&one, LockKind::Write, range(5, 1), b"x"), Ok(()));
    assert_eq!(test(&two, LockKind::Read, range(0, 5), b"x"), Ok(()));
    assert!(test(&two, LockKind::Write, range(0, 5), b"x").is_err());
    assert_eq!(state.test_lock(&two, &file(9), LockKind::Write, range(0, MAX), b"x"), Ok(()));
    assert_eq!(locks_of(&state, &two), 0);
}

#[test]
fn close_releases_what_its_open_locked() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let (first, second) = (open(&state, &one, 1, BOTH), open(&state, &two, 1, BOTH));
    let x = state.lock(&one, &write(1, range(0, 10), by_open(first, b"x"))).expect("lock");
    let y = state.lock(&one, &write(1, range(10, 10), by_open(first, b"y"))).expect("lock");
    let all = write(1, range(0, MAX), by_open(second, b"x"));
    assert!(is_denied(&state.lock(&two, &all)));
    state.close(&one, &first, None).expect("close");
    assert_eq!(locks_of(&state, &one), 0);
    for id in [x, y] {
        let bad = Err(StateError::BadStateId);
        assert_eq!((state.test(&one, &id), state.free(&one, &id)), (bad, bad));
    }
    assert!(state.lock(&two, &all).is_ok());
    state.remove_client(two.id()).expect("removed");
    assert_eq!((state.locks(&file(1)), state.open_files()), (Vec::new(), 0));
    let gone = state.lock(&two, &all);
    assert_eq!(gone, Err(LockError::State(StateError::Expired)));
    let tested = state.test_lock(&two, &file(1), LockKind::Read, range(0, 1), b"x");
    assert_eq!(tested, Err(LockError::State(StateError::Expired)));
}

#[test]
fn a_lock_stateid_is_freed_once_it_has_no_locks() {
    let state = state();
    let client = client(&state, 0, "a");
    let opened = open(&state, &client, 1, BOTH);
    let id = state.lock(&client, &write(1, range(0, 9), by_open(opened, b"x"))).expect("lock");
    assert_eq!(state.free(&client, &id), Err(StateError::LocksHeld));
    let id = state.unlock(&client, &id, &file(1), range(0, 8)).expect("unlock");
    assert_eq!(state.free(&client, &id), Err(StateError::LocksHeld));
    let id = state.unlock(&client, &id, &file(1), range(0, MAX)).expect("unlock");
    assert_eq!(state.test(&client, &id), Ok(()));
    assert_eq!(state.free(&client, &StateId { seqid: 1, ..id }), Err(StateError::OldStateId));
    assert_eq!(state.free(&client, &id), Ok(()));
    assert_eq!(state.free(&client, &id), Err(StateError::BadStateId));
    assert_eq!(state.free(&client, &opened), Err(StateError::LocksHeld));
    let new = state.lock(&client, &write(1, range(0, 9), by_open(opened, b"x"))).expect("lock");
    assert_eq!(new.seqid, 1);
    assert_ne!(new.other, id.other);
}

#[test]
fn an_expired_client_loses_its_locks_only_to_a_conflict() {
    let state = state();
    let old = session(&state, 0, "a", 1);
    let opened = open(&state, old.client(), 1, BOTH);
    let by = by_open(opened, b"x");
    let id = state.lock(old.client(), &write(1, range(0, 10), by)).expect("lock");
    let two = client(&state, LEASE_MS, "b");
    let second = open(&state, &two, 1, BOTH);
    let asked = write(1, range(9, 1), by_open(second, b"x"));
    assert!(is_denied(&state.lock(&two, &asked)), "the lease is good until it ends");
    two.renew(LEASE_MS + 1);
    assert!(state.lock(&two, &write(1, range(10, 1), by_open(second, b"x"))).is_ok());
    assert_eq!(state.test_lock(&two, &file(1), LockKind::Write, range(0, MAX), b"x"), Ok(()));
    assert_eq!(state.test(old.client(), &id), Ok(()), "no conflict");
    assert!(state.lock(&two, &asked).is_ok());
    assert_eq!(state.test(old.client(), &id), Err(StateError::Expired));
    assert!(old.is_ended());
    assert_eq!(state.locks(&file(1)).len(), 1);
}

#[test]
fn one_living_client_with_a_lock_saves_the_expired_ones() {
    let state = state();
    let (old, living) = (client(&state, 0, "a"), client(&state, 5, "b"));
    for client in [&old, &living] {
        let opened = open(&state, client, 1, BOTH);
        state.lock(client, &read(1, range(0, 10), by_open(opened, b"x"))).expect("lock");
    }
    let new = client(&state, LEASE_MS + 1, "c");
    let opened = open(&state, &new, 1, BOTH);
    let asked = write(1, range(0, 1), by_open(opened, b"x"));
    assert!(is_denied(&state.lock(&new, &asked)));
    assert_eq!(locks_of(&state, &old), 1);
    new.renew(LEASE_MS + 6);
    assert!(state.lock(&new, &asked).is_ok());
    assert_eq!((state.clients(0).len(), state.locks(&file(1)).len()), (1, 1));
}

#[test]
fn many_expired_clients_with_locks_make_way_for_one() {
    let state = state();
    for number in 0..300 {
        let old = client(&state, 0, &number.to_string());
        let opened = open(&state, &old, 1, BOTH);
        for owner in [b"x", b"y"] {
            state.lock(&old, &read(1, range(0, MAX), by_open(opened, owner))).expect("lock");
        }
    }
    let new = client(&state, LEASE_MS + 1, "new");
    let opened = open(&state, &new, 1, BOTH);
    assert!(state.lock(&new, &write(1, range(7, 1), by_open(opened, b"x"))).is_ok());
    assert_eq!((state.locks(&file(1)).len(), state.clients(0).len()), (1, 1));
}

#[test]
fn a_restarted_client_loses_its_locks_when_it_is_confirmed() {
    let state = state();
    let old = session(&state, 0, "a", 1);
    let opened = open(&state, old.client(), 1, BOTH);
    let by = by_open(opened, b"x");
    state.lock(old.client(), &write(1, range(0, 10), by)).expect("lock");
    state.destroy_session(old.id()).expect("destroyed");
    assert_eq!(state.destroy_client(0, old.client().id()), Err(StateError::ClientIdBusy));
    let new = exchange(&state, 0, "a", 2, "root").expect("restart");
    assert_eq!(state.locks(&file(1)).len(), 1);
    create(&state, 0, new.client, 1, "root").expect("confirmed");
    assert_eq!((state.locks(&file(1)).len(), state.open_files()), (0, 0));
}

#[test]
fn the_ranges_and_lock_stateids_of_a_client_are_bounded() {
    const RANGES_MAX: u64 = 10;
    let state = state_with(|limits| limits.ranges_a_client_max = RANGES_MAX as u32);
    let (greedy, other) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let opened = open(&state, &greedy, 1, BOTH);
    let lock = |offset, length, owner: &[u8]| {
        state.lock(&greedy, &write(1, range(offset, length), by_open(opened, owner)))
    };
    let full = Err(LockError::State(StateError::TryLater));
    for number in 0..RANGES_MAX {
        assert!(lock(number * 10, 5, b"x").is_ok());
    }
    assert_eq!(lock(1000, 1, b"x"), full);
    let elsewhere = open(&state, &greedy, 2, BOTH);
    let there = write(2, range(0, 1), by_open(elsewhere, b"x"));
    assert_eq!(state.lock(&greedy, &there), full);
    assert!(lock(5, 1, b"x").is_ok(), "it makes a range longer");
    let split = read(1, range(1, 1), by_open(opened, b"x"));
    assert_eq!(state.lock(&greedy, &split), full);
    let id = lock(6, 4, b"x").expect("it joins two ranges");
    assert!(state.lock(&greedy, &split).is_err(), "two more are one too many");
    let id = state.unlock(&greedy, &id, &file(1), range(12, 1)).expect("one more");
    let unlocked = state.unlock(&greedy, &id, &file(1), range(22, 1));
    assert_eq!(unlocked, Err(StateError::TryLater));
    assert_eq!(locks_of(&state, &greedy), 10);
    let id = state.unlock(&greedy, &id, &file(1), range(0, MAX)).expect("fewer");
    assert_eq!((state.free(&greedy, &id), locks_of(&state, &greedy)), (Ok(()), 0));

    let mut ids = Vec::new();
    for owner in 0..2 * RANGES_MAX {
        match lock(0, 1, &owner.to_be_bytes()) {
            Ok(id) => ids.push(state.unlock(&greedy, &id, &file(1), range(0, 1)).expect("held")),
            locked => assert_eq!(locked, full),
        }
    }
    assert_eq!(ids.len() as u64, RANGES_MAX);
    assert_eq!(state.free(&greedy, &ids[3]), Ok(()));
    assert!(lock(0, 1, b"one more").is_ok());
    let theirs = open(&state, &other, 1, BOTH);
    let beside = write(1, range(1, 1), by_open(theirs, b"x"));
    assert!(state.lock(&other, &beside).is_ok(), "others are not concerned");
}

#[test]
fn the_locks_of_all_are_bounded_and_courteous_clients_make_room() {
    const LOCKS_MAX: u32 = 40;
    let state = state_with(|limits| limits.locks_max = LOCKS_MAX);
    let lock = |client, open, owner: u64| {
        let range = range(owner * 2, 1);
        state.lock(client, &write(1, range, by_open(open, &owner.to_be_bytes())))
    };
    let (first, second) = (client(&state, 0, "a"), client(&state, 5, "b"));
    let (one, two) = (open(&state, &first, 1, BOTH), open(&state, &second, 1, BOTH));
    // Each is a range and a stateid.
    (0..10).for_each(|owner| assert!(lock(&first, one, owner).is_ok()));
    (10..20).for_each(|owner| assert!(lock(&second, two, owner).is_ok()));
    let full = Err(LockError::State(StateError::TryLater));
    assert_eq!(lock(&second, two, 20), full, "all are alive");
    second.renew(LEASE_MS + 1);
    let id = lock(&second, two, 20).expect("a courteous client leaves");
    assert_eq!(state.unlock(&second, &id, &file(1), range(0, 1)).map(|id| id.seqid), Ok(2));
    assert_eq!((state.clients(0).len(), locks_of(&state, &second)), (1, 11));
    // What ends is counted down: by CLOSE, LOCKU and FREE_STATEID.
    for round in 0..3 * u64::from(LOCKS_MAX) {
        let id = lock(&second, two, 30).expect("room");
        let id = state.unlock(&second, &id, &file(1), range(60, 1)).expect("held");
        if round % 2 == 0 {
            assert_eq!(state.free(&second, &id), Ok(()));
        }
    }
    state.close(&second, &StateId { seqid: 0, ..two }, None).expect("open");
    let two = open(&state, &second, 1, BOTH);
    let locked = (0..100).take_while(|owner| lock(&second, two, *owner).is_ok()).count();
    assert_eq!(locked, LOCKS_MAX as usize / 2);
    state.remove_client(second.id()).expect("alive");
    let third = client(&state, 0, "c");
    let three = open(&state, &third, 1, BOTH);
    let locked = (0..100).take_while(|owner| lock(&third, three, *owner).is_ok()).count();
    assert_eq!(locked, LOCKS_MAX as usize / 2);
}

#[test]
fn twenty_thousand_ranges_are_as_quick_as_one() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let (first, second) = (open(&state, &one, 1, BOTH), open(&state, &two, 1, BOTH));
    // From behind.
    for number in (0..20_000).rev() {
        let by = by_open(first, b"x");
        state.lock(&one, &read(1, range(number * 2, 1), by)).expect("room");
    }
    for number in 0..100_000 {
        let by = by_open(second, b"x");
        assert!(state.lock(&two, &read(1, range(0, MAX), by)).is_ok());
        let at = number % 20_000 * 2;
        assert!(is_denied(&state.lock(&two, &write(1, range(at, 1), by))));
        assert!(state.lock(&two, &write(1, range(at + 1, 1), by)).is_ok());
    }
    state.close(&one, &first, None).expect("close");
    assert_eq!(locks_of(&state, &one), 0);
}

#[test]
fn ten_thousand_owners_are_as_quick_as_one() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let (first, second) = (open(&state, &one, 1, BOTH), open(&state, &two, 1, BOTH));
    for number in 0..10_000_u64 {
        let name = number.to_be_bytes();
        let locked = state.lock(&one, &write(1, range(number * 2, 1), by_open(first, &name)));
        assert!(locked.is_ok());
    }
    for number in 0..10_000 {
        let by = by_open(second, b"x");
        assert!(state.lock(&two, &write(1, range(number * 2 + 1, 1), by)).is_ok());
        assert!(is_denied(&state.lock(&two, &read(1, range(number * 2, MAX), by))));
    }
    state.close(&one, &first, None).expect("close");
    assert!(state.lock(&two, &write(1, range(0, MAX), by_open(second, b"x"))).is_ok());
}

#[test]
fn threads_never_hold_one_byte_at_the_same_time() {
    const ROUNDS: u32 = 50_000;
    let state = state();
    let inside: [AtomicU32; 4] = Default::default();
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (state, inside) = (&state, &inside);
            scope.spawn(move || {
                let client = client(state, 0, &thread.to_string());
                let mut opened = open(state, &client, 1, BOTH);
                for round in 0..ROUNDS {
                    let place = u64::from(round) % 3;
                    // Two bytes of four.
                    let mut asked = write(1, range(place, 2), by_open(opened, b"x"));
                    asked.is_waited_for = round % 5 > 2;
                    let id = loop {
                        match state.lock(&client, &asked) {
                            Ok(id) => break id,
                            Err(LockError::Denied(_)) => std::thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    };
                    let held = &inside[place as usize..place as usize + 2];
                    for byte in held {
                        assert_eq!(byte.fetch_add(1, Ordering::Relaxed), 0);
                    }
                    for byte in held {
                        byte.fetch_sub(1, Ordering::Relaxed);
                    }
                    if round % 100 == 99 {
                        state.close(&client, &opened, Some(&file(1))).expect("open");
                        opened = open(state, &client, 1, BOTH);
                        continue;
                    }
                    state.unlock(&client, &id, &file(1), asked.range).expect("held");
                }
            });
        }
    });
    assert!(state.locks(&file(1)).is_empty(), "nobody waits, either");
}

#[test]
fn clients_that_are_removed_while_they_lock_leave_nothing_behind() {
    const ROUNDS: u64 = 10_000;
    const LOCKS_MAX: u32 = 200;
    let state = state_with(|limits| limits.locks_max = LOCKS_MAX);
    let removed = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|thread| {
                let (state, removed, name) = (&state, &removed, thread.to_string());
                scope.spawn(move || {
                    let mut verifier = 1;
                    let mut own = Arc::clone(session(state, 0, &name, verifier).client());
                    for round in 0..100 * ROUNDS {
                        if round > ROUNDS && removed.load(Ordering::Relaxed) > 10 {
                            break;
                        }
                        let at = (round % 3) as u8;
                        let request =
                            Open { owner: b"open", file: file(at), access: BOTH, deny: DENY_NONE };
                        let owner = [round as u8 % 5];
                        let locked = state.open(&own, &request).map(|open| {
                            let mut asked = write(at, range(round % 7, 3), by_open(open, &owner));
                            asked.is_waited_for = round % 2 == 0;
                            (open, state.lock(&own, &asked))
                        });
                        let is_gone = match locked {
                            Ok((open, Ok(_))) if round % 4 == 0 => {
                                let open = StateId { seqid: 0, ..open };
                                state.close(&own, &open, None) == Err(StateError::Expired)
                            }
                            Ok((_, Ok(_) | Err(LockError::Denied(_)))) => false,
                            Ok((_, Err(LockError::State(error)))) | Err(error) => {
                                assert_eq!(error, StateError::Expired);
                                true
                            }
                        };
                        if is_gone {
                            verifier += 1;
                            own = Arc::clone(session(state, 0, &name, verifier).client());
                        }
                    }
                })
            })
            .collect();
        while !workers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            for report in state.clients(0).iter().filter(|report| report.opens > 2) {
                // It may be gone by now.
                let is_removed = state.remove_client(report.id).is_ok();
                removed.fetch_add(u32::from(is_removed), Ordering::Relaxed);
            }
            std::thread::yield_now();
        }
    });
    assert!(removed.load(Ordering::Relaxed) > 0);
    for report in state.clients(0) {
        state.remove_client(report.id).expect("known");
    }
    assert_eq!((state.opens(), state.open_files()), (0, 0));
    assert!((0..3).all(|at| state.locks(&file(at)).is_empty()));
    // Nor is anything counted that is gone.
    let last = client(&state, 0, "last");
    let opened = open(&state, &last, 1, BOTH);
    let lock = |owner: u64| {
        let owner = owner.to_be_bytes();
        state.lock(&last, &read(1, range(0, 1), by_open(opened, &owner))).is_ok()
    };
    assert_eq!((0..1_000).take_while(|owner| lock(*owner)).count(), LOCKS_MAX as usize / 2);
}
