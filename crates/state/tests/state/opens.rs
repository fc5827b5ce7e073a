//! Opens: shares, stateids, upgrades, downgrades, courtesy. Rings: unit, threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{
    BOTH, DENY_NONE, DENY_READ, DENY_WRITE, LEASE_MS, READ, WRITE, client, create, exchange, file,
    sequence, session, state,
};
use steadfast_state::{Open, Sequenced, SessionId, ShareAccess, ShareDeny, StateError, StateId};

fn open(owner: &[u8], at: u8, access: ShareAccess, deny: ShareDeny) -> Open<'_> {
    Open { owner, file: file(at), access, deny }
}

#[test]
fn a_second_open_of_one_owner_upgrades_the_first() {
    let state = state();
    let client = client(&state, 0, "a");
    let first = state.open(&client, &open(b"o", 1, READ, DENY_NONE)).expect("open");
    assert_eq!(first.seqid, 1);
    assert_eq!(state.judge(&client, &first, &file(1), WRITE), Err(StateError::OpenMode));
    let second = state.open(&client, &open(b"o", 1, WRITE, DENY_NONE)).expect("upgrade");
    assert_eq!((second.other, second.seqid), (first.other, 2));
    assert_eq!(state.judge(&client, &second, &file(1), WRITE), Ok(()));
    assert_eq!(state.judge(&client, &first, &file(1), READ), Err(StateError::OldStateId));
    assert_eq!((state.opens(), state.open_files()), (1, 1));
    let other = state.open(&client, &open(b"p", 1, READ, DENY_WRITE));
    assert_eq!(other, Err(StateError::ShareDenied), "another owner of the same client");
    let elsewhere = state.open(&client, &open(b"o", 2, READ, DENY_NONE)).expect("another file");
    assert_ne!(elsewhere.other, first.other);
}

#[test]
fn an_owner_is_denied_what_it_denies_itself() {
    let state = state();
    let client = client(&state, 0, "a");
    let cases = [
        ((BOTH, DENY_READ), (READ, DENY_NONE), false),
        ((BOTH, DENY_WRITE), (WRITE, DENY_NONE), false),
        ((BOTH, DENY_WRITE), (BOTH, DENY_WRITE), false),
        ((READ, DENY_NONE), (READ, DENY_READ), false),
        ((READ, DENY_READ), (WRITE, DENY_WRITE), true),
        ((READ, DENY_WRITE), (READ, DENY_WRITE), true),
        ((BOTH, DENY_NONE), (BOTH, DENY_NONE), true),
    ];
    for (at, (first, second, is_granted)) in (0..).zip(cases) {
        let id = state.open(&client, &open(b"o", at, first.0, first.1)).expect("open");
        let again = state.open(&client, &open(b"o", at, second.0, second.1));
        let upgraded = StateId { seqid: id.seqid + 1, ..id };
        let expected = if is_granted { Ok(upgraded) } else { Err(StateError::ShareDenied) };
        assert_eq!(again, expected, "{first:?}, then {second:?}");
        let latest = if is_granted { upgraded } else { id };
        assert_eq!(state.test(&client, &latest), Ok(()));
    }
}

#[test]
fn an_upgrade_that_is_denied_changes_nothing() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let id = state.open(&one, &open(b"o", 1, READ, DENY_NONE)).expect("open");
    let other = state.open(&two, &open(b"o", 1, READ, DENY_WRITE)).expect("open");
    for (access, deny) in [(WRITE, DENY_NONE), (READ, DENY_READ), (BOTH, DENY_NONE)] {
        let upgrade = state.open(&one, &open(b"o", 1, access, deny));
        assert_eq!(upgrade, Err(StateError::ShareDenied));
    }
    assert_eq!(state.test(&one, &id), Ok(()), "seqid 1 still");
    assert_eq!(state.judge(&one, &id, &file(1), WRITE), Err(StateError::OpenMode));
    state.close(&two, &other, None).expect("close");
    assert!(state.open(&one, &open(b"o", 1, WRITE, DENY_NONE)).is_ok());
    assert!(state.open(&two, &open(b"o", 1, READ, DENY_READ)).is_err());
}

#[test]
fn a_closed_stateid_is_never_valid_again() {
    let state = state();
    let client = client(&state, 0, "a");
    let request = open(b"o", 1, READ, DENY_NONE);
    let old = state.open(&client, &request).expect("open");
    state.close(&client, &old, Some(&file(1))).expect("close");
    assert_eq!(state.open_files(), 0);
    let new = state.open(&client, &request).expect("open");
    assert_eq!(new.seqid, 1);
    for seqid in [0, 1, 2] {
        let old = StateId { seqid, ..old };
        assert_eq!(state.test(&client, &old), Err(StateError::BadStateId));
        assert_eq!(state.close(&client, &old, None), Err(StateError::BadStateId));
    }
    assert_eq!(state.test(&client, &new), Ok(()));
}

#[test]
fn a_stateid_belongs_to_its_client_its_file_and_its_instance() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let id = state.open(&one, &open(b"o", 1, BOTH, DENY_NONE)).expect("open");
    let mut elsewhere = id;
    elsewhere.other[3] ^= 1;
    let cases = [
        (&two, id, file(1)),
        (&one, id, file(2)),
        (&one, elsewhere, file(1)),
        (&one, StateId { seqid: 2, ..id }, file(1)),
        (&one, StateId::CURRENT, file(1)),
        (&one, StateId::INVALID, file(1)),
        (&one, StateId { seqid: 5, ..StateId::READ_BYPASS }, file(1)),
    ];
    for (client, id, at) in cases {
        let bad = Err(StateError::BadStateId);
        assert_eq!(state.judge(client, &id, &at, READ), bad, "{id:?}");
        assert_eq!(state.close(client, &id, Some(&at)), bad);
        let downgraded = state.downgrade(client, &id, &at, READ, DENY_NONE);
        assert_eq!(downgraded.map(|_| ()), bad);
    }
    assert_eq!(state.judge(&one, &StateId { seqid: 0, ..id }, &file(1), BOTH), Ok(()));
    assert_eq!(state.free(&one, &id), Err(StateError::LocksHeld));
    assert_eq!(state.free(&two, &id), Err(StateError::BadStateId));
    assert_eq!(state.test(&one, &StateId::ANONYMOUS), Err(StateError::BadStateId));
}

#[test]
fn special_stateids_are_judged_by_what_opens_deny() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    let judge = |id: &StateId, access| state.judge(&two, id, &file(1), access);
    for id in [StateId::ANONYMOUS, StateId::READ_BYPASS] {
        assert_eq!(judge(&id, BOTH), Ok(()), "nobody has it open");
    }
    let id = state.open(&one, &open(b"o", 1, READ, DENY_READ)).expect("open");
    assert_eq!(judge(&StateId::ANONYMOUS, READ), Err(StateError::Locked));
    assert_eq!(judge(&StateId::ANONYMOUS, WRITE), Ok(()));
    assert_eq!(judge(&StateId::READ_BYPASS, READ), Ok(()));
    state.open(&one, &open(b"o", 1, WRITE, DENY_WRITE)).expect("upgrade");
    assert_eq!(judge(&StateId::ANONYMOUS, WRITE), Err(StateError::Locked));
    assert_eq!(judge(&StateId::READ_BYPASS, WRITE), Err(StateError::Locked));
    assert_eq!(judge(&StateId::READ_BYPASS, READ), Ok(()));
    state.close(&one, &StateId { seqid: 0, ..id }, None).expect("close");
    assert_eq!(judge(&StateId::ANONYMOUS, BOTH), Ok(()));
}

#[test]
fn an_open_for_writing_reads_what_nobody_denies() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    // The own deny is not judged.
    let id = state.open(&one, &open(b"o", 1, WRITE, DENY_READ)).expect("open");
    assert_eq!(state.judge(&one, &id, &file(1), READ), Ok(()));
    let id = state.open(&one, &open(b"o", 2, WRITE, DENY_NONE)).expect("open");
    state.open(&two, &open(b"o", 2, WRITE, DENY_READ)).expect("open");
    assert_eq!(state.judge(&one, &id, &file(2), READ), Err(StateError::Locked));
}

#[test]
fn a_downgrade_gives_up_a_share() {
    let state = state();
    let (one, two) = (client(&state, 0, "a"), client(&state, 0, "b"));
    state.open(&one, &open(b"o", 1, READ, DENY_NONE)).expect("open");
    let id = state.open(&one, &open(b"o", 1, WRITE, DENY_WRITE)).expect("upgrade");
    for (access, deny) in [(READ, DENY_WRITE), (BOTH, DENY_NONE), (WRITE, DENY_NONE)] {
        let downgraded = state.downgrade(&one, &id, &file(1), access, deny);
        assert_eq!(downgraded, Err(StateError::Invalid));
    }
    let nothing = state.downgrade(&one, &id, &file(1), ShareAccess::empty(), DENY_NONE);
    assert_eq!(nothing, Err(StateError::Invalid));
    assert!(state.open(&two, &open(b"o", 1, WRITE, DENY_NONE)).is_err());
    let id = state.downgrade(&one, &id, &file(1), READ, DENY_NONE).expect("downgrade");
    assert_eq!(id.seqid, 3);
    assert_eq!(state.judge(&one, &id, &file(1), WRITE), Err(StateError::OpenMode));
    assert!(state.open(&two, &open(b"o", 1, READ, DENY_WRITE)).is_ok());
    let again = state.downgrade(&one, &id, &file(1), WRITE, DENY_WRITE);
    assert_eq!(again, Err(StateError::Invalid), "that OPEN is not in effect any more");
}

#[test]
fn arguments_are_judged() {
    let state = state();
    let client = client(&state, 0, "a");
    let no_access = open(b"o", 1, ShareAccess::empty(), DENY_NONE);
    assert_eq!(state.open(&client, &no_access), Err(StateError::Invalid));
    assert!(state.open(&client, &open(&[0; 1024], 1, READ, DENY_NONE)).is_ok());
    let long = state.open(&client, &open(&[0; 1025], 1, READ, DENY_NONE));
    assert_eq!(long, Err(StateError::Invalid));
}

#[test]
fn an_expired_client_loses_its_state_only_to_a_conflict() {
    let state = state();
    let old = session(&state, 0, "a", 1);
    let id = state.open(old.client(), &open(b"o", 1, READ, DENY_WRITE)).expect("open");
    let two = client(&state, LEASE_MS, "b");
    let denied = state.open(&two, &open(b"o", 1, WRITE, DENY_NONE));
    assert_eq!(denied, Err(StateError::ShareDenied), "the lease is good until it ends");
    assert_eq!(state.judge(&two, &StateId::ANONYMOUS, &file(1), WRITE), Err(StateError::Locked));
    two.renew(LEASE_MS + 1);
    assert!(state.open(&two, &open(b"o", 1, READ, DENY_NONE)).is_ok());
    assert_eq!(state.test(old.client(), &id), Ok(()), "no conflict");
    assert!(state.open(&two, &open(b"o", 1, WRITE, DENY_NONE)).is_ok());
    assert_eq!(state.test(old.client(), &id), Err(StateError::Expired));
    assert!(old.is_ended() && state.session(old.id()).is_none());
    assert_eq!(state.clients(0).len(), 1);
}

#[test]
fn an_io_without_an_open_expires_who_is_in_the_way() {
    let state = state();
    let old = client(&state, 0, "a");
    let id = state.open(&old, &open(b"o", 1, READ, DENY_WRITE)).expect("open");
    let two = client(&state, LEASE_MS + 1, "b");
    assert_eq!(state.judge(&two, &StateId::ANONYMOUS, &file(1), WRITE), Ok(()));
    assert_eq!(state.test(&old, &id), Err(StateError::Expired));
}

#[test]
fn one_living_client_in_the_way_saves_the_expired_ones() {
    let state = state();
    let old = client(&state, 0, "a");
    let id = state.open(&old, &open(b"o", 1, READ, DENY_WRITE)).expect("open");
    let living = client(&state, LEASE_MS + 1, "b");
    state.open(&living, &open(b"o", 1, READ, DENY_WRITE)).expect("open");
    let denied = state.open(&living, &open(b"p", 1, WRITE, DENY_NONE));
    assert_eq!(denied, Err(StateError::ShareDenied));
    assert_eq!(state.test(&old, &id), Ok(()));
}

#[test]
fn a_silent_client_with_a_request_under_way_is_alive() {
    let state = state();
    let old = session(&state, 0, "a", 1);
    let id = state.open(old.client(), &open(b"o", 1, READ, DENY_WRITE)).expect("open");
    let Ok(Sequenced::New(under_way)) = old.begin(0, &sequence(0, 1)) else { panic!("new") };
    let two = client(&state, LEASE_MS + 1, "b");
    let denied = state.open(&two, &open(b"o", 1, WRITE, DENY_NONE));
    assert_eq!(denied, Err(StateError::ShareDenied));
    assert_eq!(state.test(old.client(), &id), Ok(()));
    under_way.finish(None);
    two.renew(LEASE_MS + 2);
    let denied = state.open(&two, &open(b"o", 1, WRITE, DENY_NONE));
    assert_eq!(denied, Err(StateError::ShareDenied), "its lease has begun anew");
}

#[test]
fn a_client_does_not_expire_itself() {
    let state = state();
    let client = client(&state, 0, "a");
    let id = state.open(&client, &open(b"o", 1, READ, DENY_WRITE)).expect("open");
    state.tick(LEASE_MS + 1);
    let denied = state.open(&client, &open(b"p", 1, WRITE, DENY_NONE));
    assert_eq!(denied, Err(StateError::ShareDenied));
    assert_eq!(state.test(&client, &id), Ok(()));
}

#[test]
fn many_expired_clients_make_way_for_one() {
    let state = state();
    for number in 0..300 {
        let old = client(&state, 0, &number.to_string());
        state.open(&old, &open(b"o", 1, READ, DENY_WRITE)).expect("open");
    }
    let new = client(&state, LEASE_MS + 1, "new");
    assert!(state.open(&new, &open(b"o", 1, WRITE, DENY_NONE)).is_ok());
    assert_eq!((state.opens(), state.clients(0).len()), (1, 1));
}

#[test]
fn threads_leave_nothing_behind() {
    const THREADS: u8 = 4;
    const ROUNDS: u32 = 3_000;
    let state = state();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let state = &state;
            scope.spawn(move || {
                let name = thread.to_string();
                let mut verifier = 1;
                let mut client = Arc::clone(session(state, 0, &name, verifier).client());
                let mut ids: Vec<StateId> = Vec::new();
                for round in 0..ROUNDS {
                    let deny = if round % 7 == 0 { DENY_WRITE } else { DENY_NONE };
                    let access = if round % 5 == 0 { WRITE } else { READ };
                    let owner = [round as u8 % 3];
                    match state.open(&client, &open(&owner, round as u8 % 4, access, deny)) {
                        Ok(id) => ids.push(id),
                        Err(error) => assert_eq!(error, StateError::ShareDenied),
                    }
                    if round % 3 == 0 {
                        for id in ids.drain(..) {
                            // Closed by its first stateid, so the next ones are unknown.
                            let _ = state.close(&client, &StateId { seqid: 0, ..id }, None);
                        }
                    }
                    if round % 500 == 499 {
                        ids.clear();
                        verifier += 1;
                        client = Arc::clone(session(state, 0, &name, verifier).client());
                    }
                }
                state.remove_client(client.id()).expect("alive");
            });
        }
    });
    assert_eq!((state.opens(), state.open_files(), state.clients(0).len()), (0, 0, 0));
}

#[test]
fn threads_that_expire_each_other_leave_nothing_behind() {
    const THREADS: u32 = 4;
    const ROUNDS: u32 = 4_000;
    let state = state();
    let clock_ms = AtomicU64::new(0);
    let expired = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (state, clock_ms, expired) = (&state, &clock_ms, &expired);
            scope.spawn(move || {
                let name = thread.to_string();
                let mut verifier = 0;
                let (mut last, mut next) = (SessionId([0; 16]), 1);
                for round in 0..ROUNDS {
                    // Who sleeps while another has a long round is expired by then.
                    if (round + thread * 29).is_multiple_of(40) {
                        std::thread::sleep(std::time::Duration::from_micros(300));
                    }
                    let is_long = (round + thread * 13).is_multiple_of(49);
                    let step_ms = if is_long { LEASE_MS + 1 } else { 1 };
                    let now_ms = clock_ms.fetch_add(step_ms, Ordering::Relaxed) + step_ms;
                    let own = state.session(&last);
                    let begun = own.map(|own| own.begin(now_ms, &sequence(0, next)));
                    let Some(Ok(Sequenced::New(slot))) = begun else {
                        expired.fetch_add(1, Ordering::Relaxed);
                        verifier += 1;
                        let id = exchange(state, now_ms, &name, verifier, "root").expect("room");
                        match create(state, now_ms, id.client, id.sequence, "root") {
                            Ok(created) => {
                                (last, next) = (created.session, 1);
                            }
                            // The record was a lease old before it was confirmed.
                            Err(error) => assert_eq!(error, StateError::StaleClientId),
                        }
                        continue;
                    };
                    next += 1;
                    let deny = if round % 3 == 0 { DENY_WRITE } else { DENY_NONE };
                    let access = if round % 2 == 0 { WRITE } else { READ };
                    let request = open(b"o", round as u8 % 5, access, deny);
                    match state.open(slot.session().client(), &request) {
                        Ok(id) if round % 7 == 0 => {
                            // Its client may be gone by now.
                            let closed = state.close(slot.session().client(), &id, None);
                            assert!(matches!(closed, Ok(()) | Err(StateError::Expired)));
                        }
                        Ok(_)
                        | Err(
                            StateError::ShareDenied | StateError::Expired | StateError::TryLater,
                        ) => (),
                        Err(error) => panic!("{error}"),
                    }
                    if round % 100 == 0 {
                        state.tick(now_ms);
                    }
                    slot.finish(None);
                }
            });
        }
    });
    assert!(expired.into_inner() > u64::from(THREADS), "somebody was in the way");
    for report in state.clients(0) {
        state.remove_client(report.id).expect("listed");
    }
    assert_eq!((state.opens(), state.open_files(), state.clients(0).len()), (0, 0, 0));
}
