//! Locks: stateids, conflicts, what ends them, courtesy. Rings: unit, property, threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{
    BOTH, DENY_NONE, LEASE_MS, READ, WRITE, client, file, session, state, state_with,
};
use proptest::prelude::*;
use steadfast_state::{
    Client, Conflict, Lock, LockBy, LockError, LockKind, LockRange, Open, ShareAccess, State,
    StateError, StateId,
};

const TO_THE_END: u64 = u64::MAX;

fn opened(
    state: &State,
    client: &Arc<Client>,
    owner: &[u8],
    at: u8,
    access: ShareAccess,
) -> StateId {
    let request = Open { owner, file: file(at), access, deny: DENY_NONE };
    state.open(client, &request).expect("open")
}

fn range(offset: u64, length: u64) -> LockRange {
    LockRange { offset, length }
}

fn lock(at: u8, kind: LockKind, range: LockRange, by: LockBy<'_>) -> Lock<'_> {
    Lock { file: file(at), kind, range, by, is_waited_for: false }
}

fn by(open: StateId, owner: &[u8]) -> LockBy<'_> {
    LockBy::Open { open, owner }
}

fn denied(error: LockError) -> Conflict {
    match error {
        LockError::Denied(conflict) => conflict,
        LockError::State(error) => panic!("{error}"),
    }
}

#[test]
fn owners_exclude_each_other_and_are_told_by_whom() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let (first, second) =
        (opened(&state, &one, b"o", 1, BOTH), opened(&state, &two, b"o", 1, BOTH));
    let write = |open, owner, range| lock(1, LockKind::Write, range, by(open, owner));
    let held = state.lock(&one, &write(first, b"x", range(10, 10))).expect("lock");
    assert_eq!(held.seqid, 1);
    let conflict =
        denied(state.lock(&two, &write(second, b"x", range(0, TO_THE_END))).expect_err("denied"));
    let expected = Conflict {
        offset: 10,
        length: 10,
        kind: LockKind::Write,
        client: one.id(),
        owner: (*b"x").into(),
    };
    assert_eq!(conflict, expected);
    let same_client = state.lock(&one, &write(first, b"y", range(19, 1)));
    assert_eq!(denied(same_client.expect_err("another owner of the client")), expected);
    let tested = state.test_lock(&two, &file(1), LockKind::Read, range(19, 1), b"x");
    assert_eq!(denied(tested.expect_err("denied")), expected);
    assert_eq!(state.test_lock(&one, &file(1), LockKind::Write, range(0, 99), b"x"), Ok(()));
    assert!(state.lock(&two, &write(second, b"x", range(0, 10))).is_ok(), "before it");
    assert!(state.lock(&two, &write(second, b"x", range(20, TO_THE_END))).is_ok(), "behind it");
    let freed = state.unlock(&one, &held, &file(1), range(10, 5)).expect("unlock");
    assert_eq!((freed.other, freed.seqid), (held.other, 2));
    assert!(state.lock(&two, &write(second, b"x", range(10, 5))).is_ok());
    assert!(state.lock(&two, &write(second, b"x", range(15, 1))).is_err());
}

#[test]
fn stateids_of_locks_are_judged_as_their_open() {
    let state = state();
    let client = client(&state, 0, "a");
    let open = opened(&state, &client, b"o", 1, READ);
    let read = lock(1, LockKind::Read, range(0, 1), by(open, b"x"));
    let id = state.lock(&client, &read).expect("lock");
    let write = Lock { kind: LockKind::Write, ..read };
    assert_eq!(state.lock(&client, &write), Err(StateError::OpenMode.into()));
    assert_eq!(state.judge(&client, &id, &file(1), READ), Ok(()));
    assert_eq!(state.judge(&client, &id, &file(1), WRITE), Err(StateError::OpenMode));
    assert_eq!(state.judge(&client, &id, &file(2), READ), Err(StateError::BadStateId));
    let again = Lock { by: LockBy::Lock(id), range: range(5, 1), ..read };
    let second = state.lock(&client, &again).expect("lock");
    assert_eq!((second.other, second.seqid), (id.other, 2));
    assert_eq!(state.lock(&client, &again), Err(StateError::OldStateId.into()));
    let by_open = state.lock(&client, &read).expect("the same owner by its open");
    assert_eq!((by_open.other, by_open.seqid), (id.other, 3));
    let elsewhere = Lock { file: file(2), by: LockBy::Lock(by_open), ..read };
    assert_eq!(state.lock(&client, &elsewhere), Err(StateError::BadStateId.into()));
    assert_eq!(state.close(&client, &by_open, None), Err(StateError::BadStateId), "no open");
    assert_eq!(state.free(&client, &by_open), Err(StateError::LocksHeld));
    let empty = state.unlock(&client, &by_open, &file(1), range(0, TO_THE_END)).expect("unlock");
    assert_eq!(state.test(&client, &empty), Ok(()));
    assert_eq!(state.free(&client, &empty), Ok(()));
    assert_eq!(state.test(&client, &empty), Err(StateError::BadStateId));
    assert_eq!(state.locks(&file(1)), []);
}

#[test]
fn ranges_that_cannot_be_are_refused() {
    let state = state();
    let client = client(&state, 0, "a");
    let open = opened(&state, &client, b"o", 1, BOTH);
    for (offset, length) in [(0, 0), (5, 0), (2, u64::MAX - 1), (u64::MAX, 1)] {
        let request = lock(1, LockKind::Read, range(offset, length), by(open, b"x"));
        assert_eq!(state.lock(&client, &request), Err(StateError::Invalid.into()));
    }
    for (offset, length) in [(u64::MAX, TO_THE_END), (1, u64::MAX - 1), (7, TO_THE_END)] {
        let request = lock(1, LockKind::Read, range(offset, length), by(open, b"x"));
        assert!(state.lock(&client, &request).is_ok(), "{offset} {length}");
    }
}

#[test]
fn locks_go_with_their_open_and_with_their_client() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let (first, second) =
        (opened(&state, &one, b"o", 1, BOTH), opened(&state, &two, b"o", 1, BOTH));
    let other = opened(&state, &one, b"p", 1, BOTH);
    let all = |open, owner| lock(1, LockKind::Write, range(0, TO_THE_END), by(open, owner));
    let id = state.lock(&one, &all(first, b"x")).expect("lock");
    state.close(&one, &other, None).expect("another open of the file");
    assert!(state.lock(&two, &all(second, b"x")).is_err());
    state.close(&one, &first, None).expect("close");
    assert_eq!(state.test(&one, &id), Err(StateError::BadStateId));
    assert!(state.lock(&two, &all(second, b"x")).is_ok());
    assert_eq!(state.destroy_client(0, two.id()), Err(StateError::ClientIdBusy));
    state.remove_client(two.id()).expect("removed");
    assert_eq!(state.open_files(), 0);
    assert_eq!(state.locks(&file(1)), []);
    assert_eq!(state.lock(&two, &all(second, b"x")), Err(StateError::Expired.into()));
}

#[test]
fn who_is_silent_for_longer_than_a_lease_gives_way() {
    let state = state();
    let sessions = [session(&state, 0, "a", 1), session(&state, 0, "b", 1)];
    let [one, two] = sessions.each_ref().map(|session| Arc::clone(session.client()));
    let (first, second) =
        (opened(&state, &one, b"o", 1, BOTH), opened(&state, &two, b"o", 1, BOTH));
    let all = |open| lock(1, LockKind::Write, range(0, TO_THE_END), by(open, b"x"));
    state.lock(&one, &all(first)).expect("lock");
    two.renew(LEASE_MS);
    state.tick(LEASE_MS);
    assert!(state.lock(&two, &all(second)).is_err(), "its lease is good");
    two.renew(LEASE_MS + 1);
    state.tick(LEASE_MS + 1);
    assert!(state.lock(&two, &all(second)).is_ok());
    assert_eq!(state.judge(&one, &first, &file(1), READ), Err(StateError::Expired));
}

#[test]
fn ranges_of_a_client_are_bounded() {
    let state = state_with(|limits| limits.ranges_a_client_max = 10);
    let client = client(&state, 0, "a");
    let open = opened(&state, &client, b"o", 1, BOTH);
    let nth = |at: u64| lock(1, LockKind::Read, range(2 * at, 1), by(open, b"x"));
    for at in 0..10 {
        state.lock(&client, &nth(at)).expect("lock");
    }
    assert_eq!(state.lock(&client, &nth(10)), Err(StateError::TryLater.into()));
    let clients = state.clients(0);
    assert_eq!(clients.iter().map(|client| client.locks).collect::<Vec<_>>(), [10]);
}

const BYTES: u64 = 12;
const OWNERS: [&[u8]; 2] = [b"x", b"y"];

proptest! {
    /// Of several clients, owners and files: nobody gets what the model says another has.
    #[test]
    fn locks_are_what_an_array_of_bytes_says(
        steps in prop::collection::vec(
            (0..4_u8, 0..2_usize, 0..2_usize, 0..2_u8, 0..BYTES, 1..BYTES, any::<bool>()), 1..120,
        ),
    ) {
        let state = state();
        let clients = [client(&state, 0, "a"), client(&state, 0, "b")];
        let opens = clients.each_ref().map(|client| {
            [0, 1].map(|at| opened(&state, client, b"o", at, BOTH))
        });
        // By file, client, owner and byte.
        let mut model = [[[[None::<LockKind>; 2 * BYTES as usize]; 2]; 2]; 2];
        let mut ids = [[[None::<StateId>; 2]; 2]; 2];
        for (what, who, owner, at, offset, length, is_write) in steps {
            let kind = if is_write { LockKind::Write } else { LockKind::Read };
            let (client, bytes) = (&clients[who], offset as usize..(offset + length) as usize);
            let range = range(offset, length);
            let is_free = (0..2).all(|other| (0..2).all(|other_owner| {
                let own = (other, other_owner) == (who, owner);
                own || model[usize::from(at)][other][other_owner][bytes.clone()].iter().flatten()
                    .all(|held| !is_write && *held == LockKind::Read)
            }));
            let id = &mut ids[usize::from(at)][who][owner];
            match what {
                0 | 1 => {
                    let by = match *id {
                        Some(id) if what == 1 => LockBy::Lock(id),
                        _ => by(opens[who][usize::from(at)], OWNERS[owner]),
                    };
                    match state.lock(client, &lock(at, kind, range, by)) {
                        Ok(locked) => {
                            prop_assert!(is_free);
                            prop_assert_eq!(locked.seqid, id.map_or(1, |id| id.seqid + 1));
                            *id = Some(locked);
                            model[usize::from(at)][who][owner][bytes].fill(Some(kind));
                        }
                        Err(error) => {
                            prop_assert!(!is_free, "{}", error);
                            prop_assert!(matches!(error, LockError::Denied(_)));
                        }
                    }
                }
                2 => if let Some(held) = *id {
                    *id = Some(state.unlock(client, &held, &file(at), range).expect("unlock"));
                    model[usize::from(at)][who][owner][bytes].fill(None);
                },
                _ => {
                    let tested = state.test_lock(client, &file(at), kind, range, OWNERS[owner]);
                    prop_assert_eq!(tested.is_ok(), is_free);
                }
            }
        }
    }
}

#[test]
fn of_many_threads_one_has_the_lock() {
    const TURNS: u32 = 5_000;
    let state = state();
    let inside = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            let (state, inside) = (&state, &inside);
            let client = client(state, 0, name);
            scope.spawn(move || {
                let open = opened(state, &client, b"o", 1, BOTH);
                let request = lock(1, LockKind::Write, range(3, 4), by(open, b"x"));
                let mut turns = 0;
                while turns < TURNS {
                    let Ok(id) = state.lock(&client, &request) else { continue };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two have it");
                    inside.fetch_sub(1, Ordering::SeqCst);
                    state.unlock(&client, &id, &file(1), range(0, TO_THE_END)).expect("unlock");
                    turns += 1;
                }
            });
        }
    });
}
