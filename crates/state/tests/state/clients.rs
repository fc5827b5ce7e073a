//! Clients and sessions: `EXCHANGE_ID`, `CREATE_SESSION`, `DESTROY_*`, leases. Ring: unit.

use std::sync::Arc;

use crate::common::{
    BOTH, DAY_MS, DENY_NONE, DENY_READ, LEASE_MS, READ, channel, client, create, create_with,
    exchange, exchange_as, file, sequence, session, state, state_with,
};
use steadfast_state::{Channel, ClientId, Open, Sequenced, SessionId, StateError};

#[test]
fn a_new_owner_gets_a_record_that_create_session_confirms() {
    let state = state();
    let first = exchange(&state, 0, "a", 1, "root").expect("new");
    assert!(!first.is_confirmed);
    assert_eq!(first.sequence, 1);
    assert_eq!(first.client.0 >> 32, 7, "the instance");
    let created = create(&state, 0, first.client, 1, "root").expect("created");
    let again = exchange(&state, 0, "a", 1, "root").expect("case 2");
    assert_eq!((again.client, again.is_confirmed, again.sequence), (first.client, true, 2));
    assert!(state.session(&created.session).is_some());
    assert_eq!(
        (created.sequence, created.flags, created.fore, created.back),
        (1, 2, channel(), channel())
    );
}

#[test]
fn an_unconfirmed_record_is_replaced_by_whoever_asks() {
    let state = state();
    let first = exchange(&state, 0, "a", 1, "root").expect("new");
    for (verifier, who) in [(1, "root"), (2, "root"), (1, "other"), (2, "other")] {
        let next = exchange(&state, 0, "a", verifier, who).expect("case 4");
        assert_ne!(next.client, first.client);
        assert_eq!(create(&state, 0, first.client, 1, "root"), Err(StateError::StaleClientId));
    }
    assert_eq!(state.clients(0).len(), 1);
}

#[test]
fn a_restarted_client_keeps_its_state_until_it_is_confirmed_anew() {
    let state = state();
    let old = session(&state, 0, "a", 1);
    let open = Open { owner: b"o", file: file(1), access: BOTH, deny: DENY_READ };
    let id = state.open(old.client(), &open).expect("open");
    let new = exchange(&state, 0, "a", 2, "root").expect("case 5");
    assert!(!new.is_confirmed);
    assert_ne!(new.client, old.client().id());
    assert_eq!(state.clients(0).len(), 2);
    assert_eq!(state.test(old.client(), &id), Ok(()));
    assert!(matches!(old.begin(0, &sequence(0, 1)), Ok(Sequenced::New(_))));

    let created = create(&state, 0, new.client, 1, "root").expect("confirmed");
    assert_eq!(state.session(old.id()).map(|_| ()), None);
    assert_eq!(old.begin(0, &sequence(0, 2)).map(|_| ()), Err(StateError::BadSession));
    assert_eq!(state.test(old.client(), &id), Err(StateError::Expired));
    assert_eq!((state.opens(), state.open_files(), state.clients(0).len()), (0, 0, 1));
    let new = state.session(&created.session).expect("new");
    assert!(state.open(new.client(), &open).is_ok(), "the old deny is gone");
    // The old verifier is another restart now.
    let third = exchange(&state, 0, "a", 1, "root").expect("case 5");
    assert!(!third.is_confirmed);
}

#[test]
fn an_owner_in_use_is_refused_to_another_principal() {
    let state = state();
    let old = session(&state, 0, "a", 1);
    assert_eq!(exchange(&state, 0, "a", 1, "other"), Err(StateError::ClientInUse));
    assert_eq!(exchange(&state, LEASE_MS, "a", 2, "other"), Err(StateError::ClientInUse));
    state.destroy_session(old.id()).expect("destroyed");
    let new = exchange(&state, LEASE_MS, "a", 1, "other").expect("case 3: no state");
    assert_ne!(new.client, old.client().id());
    assert_eq!(create(&state, 0, old.client().id(), 2, "root"), Err(StateError::StaleClientId));
}

#[test]
fn an_expired_owner_is_replaced_by_another_principal() {
    let state = state();
    let old = session(&state, 0, "a", 1);
    assert!(exchange(&state, LEASE_MS + 1, "a", 1, "other").is_ok());
    assert!(old.is_ended());
    assert!(state.session(old.id()).is_none());
}

#[test]
fn updates_need_the_confirmed_record_its_verifier_and_its_principal() {
    let state = state();
    let update = |verifier, who| exchange_as(&state, 0, "a", verifier, who, true);
    assert_eq!(update(1, "root"), Err(StateError::NoEntry));
    let first = exchange(&state, 0, "a", 1, "root").expect("new");
    assert_eq!(update(1, "root"), Err(StateError::NoEntry));
    create(&state, 0, first.client, 1, "root").expect("the record is left as it was");
    assert_eq!(update(2, "root"), Err(StateError::NotSame));
    assert_eq!(update(2, "other"), Err(StateError::NotSame));
    assert_eq!(update(1, "other"), Err(StateError::NotPermitted));
    let updated = update(1, "root").expect("case 6");
    assert_eq!((updated.client, updated.is_confirmed), (first.client, true));
}

#[test]
fn create_session_answers_a_retransmission_as_before() {
    let state = state();
    let exchanged = exchange(&state, 0, "a", 1, "root").expect("new");
    let id = exchanged.client;
    assert_eq!(create(&state, 0, id, 0, "root"), Err(StateError::SequenceMisordered));
    assert_eq!(create(&state, 0, id, 2, "root"), Err(StateError::SequenceMisordered));
    let first = create(&state, 0, id, 1, "root").expect("first");
    assert_eq!(create(&state, 0, id, 1, "root"), Ok(first));
    assert_eq!(create(&state, 0, id, 3, "root"), Err(StateError::SequenceMisordered));
    let second = create(&state, 0, id, 2, "root").expect("second");
    assert_ne!(first.session, second.session);
    assert_eq!(create(&state, 0, id, 1, "root"), Err(StateError::SequenceMisordered));
    state.destroy_session(&second.session).expect("destroyed");
    assert_eq!(create(&state, 0, id, 2, "root"), Ok(second), "even of one that is gone");
    assert_eq!(state.clients(0).first().map(|report| report.sessions), Some(1));
}

#[test]
fn a_create_session_that_fails_does_not_use_its_sequence_id() {
    let state = state_with(|limits| limits.sessions_a_client_max = 1);
    let id = exchange(&state, 0, "a", 1, "root").expect("new").client;
    let no_slots = Channel { requests_max: 0, ..channel() };
    for _ in 0..2 {
        assert_eq!(create(&state, 0, id, 1, "other"), Err(StateError::ClientInUse));
        let refused = create_with(&state, 0, id, 1, "root", no_slots);
        assert_eq!(refused, Err(StateError::TooSmall));
    }
    let first = create(&state, 0, id, 1, "root").expect("the first");
    assert_eq!(create(&state, 0, id, 2, "root"), Err(StateError::TryLater));
    state.destroy_session(&first.session).expect("destroyed");
    assert!(create(&state, 0, id, 2, "other").is_ok(), "a confirmed client may change principal");
}

#[test]
fn channels_are_clamped() {
    let state = state_with(|limits| (limits.slots_max, limits.reply_bytes_max) = (4, 512));
    let id = exchange(&state, 0, "a", 1, "root").expect("new").client;
    let created = create(&state, 0, id, 1, "root").expect("created");
    for granted in [created.fore, created.back] {
        let expected = Channel { requests_max: 4, response_bytes_cached_max: 512, ..channel() };
        assert_eq!(granted, expected);
    }
    let session = state.session(&created.session).expect("created");
    assert_eq!(session.fore(), &created.fore);
    assert_eq!((session.told().highest_slot, session.told().target_highest_slot), (3, 3));
}

#[test]
fn a_client_with_state_is_not_destroyed() {
    let state = state();
    let session = session(&state, 0, "a", 1);
    let client = Arc::clone(session.client());
    let open = Open { owner: b"o", file: file(1), access: READ, deny: DENY_NONE };
    let id = state.open(&client, &open).expect("open");
    assert_eq!(state.destroy_client(0, client.id()), Err(StateError::ClientIdBusy));
    state.destroy_session(session.id()).expect("destroyed");
    assert_eq!(state.destroy_session(session.id()), Err(StateError::BadSession));
    assert_eq!(state.destroy_client(0, client.id()), Err(StateError::ClientIdBusy));
    state.close(&client, &id, None).expect("closed");
    assert_eq!(state.destroy_client(0, client.id()), Ok(()));
    assert_eq!(state.destroy_client(0, client.id()), Err(StateError::StaleClientId));
    assert_eq!(state.open(&client, &open), Err(StateError::Expired));
    let unconfirmed = exchange(&state, 0, "b", 1, "root").expect("new");
    assert_eq!(state.destroy_client(0, unconfirmed.client), Ok(()));
    assert_eq!(state.clients(0), []);
}

#[test]
fn ids_of_another_instance_or_of_nothing_are_unknown() {
    let state = state();
    let id = client(&state, 0, "a").id();
    for unknown in [ClientId(0), ClientId(u64::MAX), ClientId(id.0 ^ 1 << 32), ClientId(id.0 ^ 1)] {
        assert_eq!(state.destroy_client(0, unknown), Err(StateError::StaleClientId));
        assert_eq!(create(&state, 0, unknown, 1, "root"), Err(StateError::StaleClientId));
    }
    for unknown in [[0; 16], [0xff; 16]] {
        assert_eq!(state.destroy_session(&SessionId(unknown)), Err(StateError::BadSession));
    }
}

#[test]
fn an_unconfirmed_record_goes_after_a_lease() {
    let state = state();
    let id = exchange(&state, 5, "a", 1, "root").expect("new").client;
    state.tick(LEASE_MS + 5);
    assert_eq!(state.clients(0).len(), 1);
    state.tick(LEASE_MS + 6);
    assert_eq!(state.clients(0).len(), 0);
    assert_eq!(create(&state, 0, id, 1, "root"), Err(StateError::StaleClientId));
}

#[test]
fn a_silent_client_is_courteous_for_a_day() {
    let state = state();
    let session = session(&state, 0, "a", 1);
    let open = Open { owner: b"o", file: file(1), access: READ, deny: DENY_NONE };
    let id = state.open(session.client(), &open).expect("open");
    state.tick(LEASE_MS + 1);
    let report = state.clients(LEASE_MS + 1).remove(0);
    assert!(report.is_courteous && report.is_confirmed);
    assert_eq!((report.since_renewal_ms, report.opens, report.sessions), (LEASE_MS + 1, 1, 1));
    assert_eq!((&*report.owner, &*report.implementation), (&b"a"[..], &b"test"[..]));

    let heard_ms = DAY_MS;
    state.tick(heard_ms);
    assert!(matches!(session.begin(heard_ms, &sequence(0, 1)), Ok(Sequenced::New(_))));
    assert_eq!(state.test(session.client(), &id), Ok(()));
    assert!(!state.clients(heard_ms).remove(0).is_courteous);

    state.tick(heard_ms + LEASE_MS + DAY_MS);
    assert_eq!(state.test(session.client(), &id), Ok(()));
    state.tick(heard_ms + LEASE_MS + DAY_MS + 1);
    assert_eq!(state.test(session.client(), &id), Err(StateError::Expired));
    assert_eq!((state.opens(), state.open_files()), (0, 0));
    assert!(session.is_ended() && state.session(session.id()).is_none());
}

#[test]
fn a_lease_does_not_expire_while_a_request_is_under_way() {
    let state = state();
    let session = session(&state, 0, "a", 1);
    let Ok(Sequenced::New(under_way)) = session.begin(0, &sequence(0, 1)) else { panic!("new") };
    let late_ms = 3 * DAY_MS;
    state.tick(late_ms);
    assert_eq!(exchange(&state, late_ms, "a", 1, "other"), Err(StateError::ClientInUse));
    under_way.finish(None);
    // It begins anew at the end.
    state.tick(late_ms + LEASE_MS);
    assert_eq!(exchange(&state, late_ms + LEASE_MS, "a", 1, "other"), Err(StateError::ClientInUse));
    state.tick(late_ms + LEASE_MS + DAY_MS + 1);
    assert_eq!(state.clients(0), []);
}

#[test]
fn each_request_that_makes_state_renews_the_lease() {
    let state = state();
    let session = session(&state, 0, "a", 1);
    let silent_ms = |now_ms| state.clients(now_ms).remove(0).since_renewal_ms;
    assert_eq!(silent_ms(10), 10);
    exchange(&state, 20, "a", 1, "root").expect("case 2");
    assert_eq!(silent_ms(20), 0);
    create(&state, 30, session.client().id(), 2, "root").expect("created");
    assert_eq!(silent_ms(30), 0);
    drop(session.begin(40, &sequence(0, 1)));
    assert_eq!(silent_ms(40), 0);
    assert!(session.begin(50, &sequence(0, 5)).is_err());
    assert_eq!(silent_ms(50), 10, "a SEQUENCE that fails renews nothing");
    assert_eq!(session.client().complete_reclaim(), Ok(()));
    assert!(session.client().has_completed_reclaim());
    assert_eq!(session.client().complete_reclaim(), Err(StateError::CompleteAlready));
}

#[test]
fn an_operator_may_remove_a_client() {
    let state = state();
    let session = session(&state, 0, "a", 1);
    let open = Open { owner: b"o", file: file(1), access: READ, deny: DENY_NONE };
    state.open(session.client(), &open).expect("open");
    state.remove_client(session.client().id()).expect("removed");
    assert!(session.is_ended());
    assert_eq!((state.opens(), state.open_files(), state.clients(0).len()), (0, 0, 0));
    assert_eq!(state.remove_client(session.client().id()), Err(StateError::StaleClientId));
}

#[test]
fn a_session_remembers_its_connections() {
    let state = state();
    let session = session(&state, 0, "a", 1);
    assert!(session.is_bound(1) && !session.is_bound(2));
    session.bind(2);
    session.bind(2);
    assert!(session.is_bound(2));
    session.unbind(2);
    assert!(!session.is_bound(2));
    (10..10_000).for_each(|connection| session.bind(connection));
    assert!(session.is_bound(9_999) && !session.is_bound(1));
}
