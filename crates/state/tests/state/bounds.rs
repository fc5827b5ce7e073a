//! What clients can make is bounded. Ring: unit.

use std::collections::VecDeque;

use crate::common::{
    DENY_NONE, DENY_WRITE, LEASE_MS, READ, WRITE, channel, client, create, create_with, exchange,
    file, sequence, session, state, state_with,
};
use steadfast_state::{Channel, ClientId, FileKey, Open, Sequenced, Settings, State, StateError};
use steadfast_vfs::StorageHandle;

fn numbered(number: u32) -> FileKey {
    FileKey { file_system: 1, object: StorageHandle::new(&number.to_be_bytes()).expect("short") }
}

#[test]
fn a_client_that_opens_without_end_is_told_to_try_later() {
    const OPENS_MAX: u32 = 1_000;
    let state = state_with(|limits| limits.opens_a_client_max = OPENS_MAX);
    let (greedy, other) = (client(&state, 0, "a"), client(&state, 0, "b"));
    for number in 0..3 * OPENS_MAX {
        // By another file, by another owner.
        let (owner, at) = if number % 2 == 0 { (0, number) } else { (number, 0) };
        let request =
            Open { owner: &owner.to_be_bytes(), file: numbered(at), access: READ, deny: DENY_NONE };
        let opened = state.open(&greedy, &request);
        assert_eq!(opened.is_ok(), number < OPENS_MAX, "{number}");
        assert!(opened.is_ok() || opened == Err(StateError::TryLater));
    }
    assert_eq!(state.opens(), OPENS_MAX);
    let request = Open { owner: b"o", file: numbered(0), access: READ, deny: DENY_NONE };
    assert!(state.open(&other, &request).is_ok(), "others are not concerned");
    let known = Open { owner: &0_u32.to_be_bytes(), ..request };
    assert!(state.open(&greedy, &known).is_ok(), "nor are upgrades");
}

#[test]
fn the_opens_of_all_are_bounded_and_courteous_clients_make_room() {
    const OPENS_MAX: u32 = 30;
    let state = state_with(|limits| limits.opens_max = OPENS_MAX);
    let open = |client, at| {
        let request = Open { owner: b"o", file: numbered(at), access: READ, deny: DENY_NONE };
        state.open(client, &request)
    };
    let (first, second) = (client(&state, 0, "a"), client(&state, 5, "b"));
    (0..20).for_each(|at| assert!(open(&first, at).is_ok()));
    (0..10).for_each(|at| assert!(open(&second, at).is_ok()));
    let third = client(&state, 10, "c");
    assert_eq!(open(&third, 1), Err(StateError::TryLater), "all are alive");
    third.renew(LEASE_MS + 10);
    assert!(open(&third, 1).is_ok());
    assert_eq!(state.opens(), 11, "the client that was silent for longest is gone");
    assert_eq!(open(&first, 1), Err(StateError::Expired));
}

#[test]
fn a_hundred_thousand_owners_replace_each_other_oldest_first() {
    const CLIENTS_MAX: usize = 64;
    const UNCONFIRMED_MAX: usize = CLIENTS_MAX / 4;
    let state = state_with(|limits| limits.clients_max = CLIENTS_MAX as u32);
    let honest = session(&state, 0, "honest", 1);
    let mut made: VecDeque<ClientId> = VecDeque::new();
    for number in 0..100_000 {
        let id = exchange(&state, 0, &number.to_string(), 1, "root").expect("room").client;
        assert!(!made.contains(&id), "an id comes again too early");
        made.push_back(id);
        if made.len() > UNCONFIRMED_MAX {
            made.pop_front();
        }
        assert!(state.clients(0).len() <= UNCONFIRMED_MAX + 1 || number % 1024 > 0);
    }
    let reports = state.clients(0);
    assert_eq!(reports.len(), UNCONFIRMED_MAX + 1);
    assert!(reports.iter().any(|report| report.id == honest.client().id()));
    assert!(made.iter().all(|id| reports.iter().any(|report| report.id == *id)), "the latest");
    assert!(!honest.is_ended());
}

#[test]
fn one_owner_with_another_verifier_each_time_has_two_records() {
    let state = state();
    session(&state, 0, "a", 1);
    for verifier in 2..10_000 {
        exchange(&state, 0, "a", verifier, "root").expect("restart");
    }
    assert_eq!(state.clients(0).len(), 2);
    for verifier in 10_000..11_000 {
        session(&state, 0, "a", verifier);
    }
    assert_eq!(state.clients(0).len(), 1);
}

#[test]
fn living_clients_are_never_replaced() {
    const CLIENTS_MAX: u32 = 8;
    let state = state_with(|limits| limits.clients_max = CLIENTS_MAX);
    let sessions: Vec<_> =
        (0..CLIENTS_MAX).map(|number| session(&state, 0, &number.to_string(), 1)).collect();
    let more = exchange(&state, LEASE_MS, "one more", 1, "root").expect("unconfirmed").client;
    for now_ms in [0, LEASE_MS] {
        assert_eq!(create(&state, now_ms, more, 1, "root"), Err(StateError::TryLater));
    }
    let restarted = session(&state, LEASE_MS, "0", 2);
    assert!(sessions[0].is_ended() && !restarted.is_ended(), "it takes its own place");
    // The one that was silent for longest makes room, once its lease has expired.
    for place in [1, 2, 4, 5, 6, 7] {
        assert!(sessions[place].begin(LEASE_MS, &sequence(0, 1)).is_ok());
    }
    assert!(create(&state, LEASE_MS + 1, more, 1, "root").is_ok());
    let ended: Vec<bool> = sessions.iter().map(|session| session.is_ended()).collect();
    assert_eq!(ended, [true, false, false, true, false, false, false, false]);
}

#[test]
fn sessions_without_end_are_bounded() {
    let state = state_with(|limits| {
        (limits.clients_max, limits.sessions_a_client_max) = (3, 4);
    });
    for name in ["a", "b", "c"] {
        let id = exchange(&state, 0, name, 1, "root").expect("new").client;
        let mut sequence = 1;
        for _ in 0..4 {
            create(&state, 0, id, sequence, "root").expect("room");
            sequence += 1;
        }
        assert_eq!(create(&state, 0, id, sequence, "root"), Err(StateError::TryLater));
    }
    // Places are used again, ids are not.
    let id = exchange(&state, 0, "a", 1, "root").expect("known");
    let mut known = Vec::new();
    for sequence in id.sequence..id.sequence + 1_000 {
        let some = state.clients(0).first().map(|report| report.sessions);
        assert_eq!(some, Some(4));
        let last = known.last().copied();
        let destroyed = match last {
            Some(last) => last,
            None => create(&state, 0, id.client, id.sequence - 1, "root").expect("again").session,
        };
        state.destroy_session(&destroyed).expect("destroyed");
        let created = create(&state, 0, id.client, sequence, "root").expect("room");
        assert!(!known.contains(&created.session));
        known.push(created.session);
    }
}

#[test]
fn slots_get_fewer_when_memory_is_short_and_none_when_it_is_used_up() {
    // 64 slots of 2,048 bytes, and what a slot takes itself.
    const SESSION_BYTES: u64 = 64 * (2048 + 64);
    let state = state_with(|limits| limits.slot_bytes_max = 4 * SESSION_BYTES);
    let fore = Channel { requests_max: 1_000, ..channel() };
    let id = exchange(&state, 0, "a", 1, "root").expect("new").client;
    let mut slots = Vec::new();
    let mut sessions = Vec::new();
    for sequence in 1..=16 {
        let created = create_with(&state, 0, id, sequence, "root", fore).expect("room");
        slots.push(created.fore.requests_max);
        sessions.push(created.session);
    }
    assert_eq!(slots[..3], [64, 64, 64]);
    assert!(slots[3..].iter().all(|slots| (1..=4).contains(slots)), "{slots:?}");
    for session in sessions {
        state.destroy_session(&session).expect("destroyed");
    }
    let created = create_with(&state, 0, id, 17, "root", fore).expect("room");
    assert_eq!(created.fore.requests_max, 64);

    let tiny = state_with(|limits| limits.slot_bytes_max = 2048 + 64);
    let id = exchange(&tiny, 0, "a", 1, "root").expect("new").client;
    assert_eq!(create(&tiny, 0, id, 1, "root").map(|created| created.fore.requests_max), Ok(1));
    assert_eq!(create(&tiny, 0, id, 2, "root"), Err(StateError::TryLater));
    let restarted = session(&tiny, 0, "a", 2);
    assert!(!restarted.is_ended(), "it takes the bytes that it had before");
    let other = exchange(&tiny, LEASE_MS, "b", 1, "root").expect("new").client;
    assert_eq!(create(&tiny, LEASE_MS, other, 1, "root"), Err(StateError::TryLater));
    assert!(create(&tiny, LEASE_MS + 1, other, 1, "root").is_ok(), "a courteous one leaves");
    assert!(restarted.is_ended());
    let id = other;
    tiny.remove_client(id).expect("removed");
    let id = exchange(&tiny, 0, "a", 1, "root").expect("new").client;
    assert!(create(&tiny, 0, id, 1, "root").is_ok());
}

#[test]
fn each_client_that_is_taken_gets_a_session() {
    const CLIENTS: u32 = 1_024;
    // Of all slots that they ask for, a quarter.
    let state = state_with(|limits| {
        limits.clients_max = CLIENTS;
        limits.slot_bytes_max = u64::from(CLIENTS / 4) * 64 * (2048 + 64);
    });
    let fore = Channel { requests_max: 64, ..channel() };
    let mut slots = Vec::new();
    for number in 0..CLIENTS {
        let id = exchange(&state, 0, &format!("client {number}"), 1, "root").expect("new").client;
        slots.push(create_with(&state, 0, id, 1, "root", fore).expect("room").fore.requests_max);
    }
    assert!(slots.is_sorted_by(|one, next| one >= next), "{slots:?}");
    assert_eq!((slots.first(), slots.last()), (Some(&64), Some(&1)), "{slots:?}");
}

#[test]
fn long_names_are_refused_or_cut() {
    let state = state();
    assert!(exchange(&state, 0, &"a".repeat(1024), 1, "root").is_ok());
    let long = exchange(&state, 0, &"a".repeat(1025), 1, "root");
    assert_eq!(long, Err(StateError::Invalid));
}

#[test]
fn limits_of_nothing_do_not_panic() {
    let mut settings = Settings::new(0);
    let limits = &mut settings.limits;
    (limits.clients_max, limits.sessions_a_client_max) = (0, 0);
    (limits.opens_a_client_max, limits.opens_max, limits.slots_max) = (0, 0, 0);
    (limits.ranges_a_client_max, limits.locks_max) = (0, 0);
    (limits.reply_bytes_max, limits.slot_bytes_max) = (0, 0);
    let state = State::new(settings);
    let id = exchange(&state, 0, "a", 1, "root").expect("one record there is").client;
    assert_eq!(create(&state, 0, id, 1, "root"), Err(StateError::TryLater));
    state.tick(u64::MAX);
    assert_eq!(state.clients(0), []);
}

#[test]
fn many_opens_of_one_file_end_quickly() {
    let state = state();
    let client = client(&state, 0, "a");
    for owner in 0..100_000_u32 {
        let request =
            Open { owner: &owner.to_be_bytes(), file: file(1), access: READ, deny: DENY_WRITE };
        state.open(&client, &request).expect("room");
    }
    let other = crate::common::client(&state, 0, "b");
    let denied = Open { owner: b"o", file: file(1), access: WRITE, deny: DENY_NONE };
    assert_eq!(state.open(&other, &denied), Err(StateError::ShareDenied));
    state.remove_client(client.id()).expect("removed");
    assert_eq!((state.opens(), state.open_files()), (0, 0));
    assert!(state.open(&other, &denied).is_ok());
}

#[test]
fn kept_replies_go_with_their_session() {
    let state = state();
    let session = session(&state, 0, "a", 1);
    let Ok(Sequenced::New(slot)) = session.begin(0, &sequence(0, 1)) else { panic!("new") };
    slot.finish(Some(&[1; 100]));
    let weak = std::sync::Arc::downgrade(&session);
    state.destroy_session(session.id()).expect("destroyed");
    drop(session);
    assert!(weak.upgrade().is_none(), "nobody holds it any more");
}
