//! Clients of minor version 0, and the sequences of their owners against a model. Ring: unit, property.

use std::sync::Arc;

use proptest::prelude::*;
use steadfast_state::{
    Callback, Client, ClientId, Limits, Lock, LockBy, LockError, LockKind, LockRange, Open,
    OwnerBegun, OwnerReply, OwnerRequest, SetClient, SetClientError, SetClientId, State,
    StateError, StateId,
};

use crate::common::{
    BOTH, DENY_NONE, DENY_READ, LEASE_MS, READ, address, client, exchange, file, principal, state,
    state_with,
};

fn callback(ident: u32) -> Callback {
    Callback { program: 1, netid: (*b"tcp").into(), address: (*b"a").into(), ident }
}

fn set(
    state: &State,
    now_ms: u64,
    owner: &str,
    verifier: u64,
    who: &str,
) -> Result<SetClientId, SetClientError> {
    let request = SetClient {
        owner: owner.as_bytes(),
        verifier: verifier.to_be_bytes(),
        principal: &principal(who),
        callback: callback(verifier as u32),
        address: address(),
    };
    state.set_client(now_ms, &request)
}

fn confirm(state: &State, now_ms: u64, set: &SetClientId, who: &str) -> Result<(), StateError> {
    state.confirm_set_client(now_ms, set.client, set.confirm, &principal(who))
}

fn client0(state: &State, now_ms: u64, owner: &str) -> Arc<Client> {
    let set = set(state, now_ms, owner, 1, "root").expect("set");
    confirm(state, now_ms, &set, "root").expect("confirmed");
    state.set_client_of(now_ms, set.client).expect("known")
}

#[test]
fn an_id_is_good_once_it_is_confirmed() {
    let state = state();
    let first = set(&state, 0, "a", 1, "root").expect("new");
    let unknown = |id| state.set_client_of(0, id).err();
    assert_eq!(unknown(first.client), Some(StateError::StaleClientId));
    let other = SetClientId { confirm: [9; 8], ..first };
    assert_eq!(confirm(&state, 0, &other, "root"), Err(StateError::StaleClientId));
    assert_eq!(confirm(&state, 0, &first, "other"), Err(StateError::ClientInUse));
    // Who asks again before that gets another id, and the first is none any more.
    let second = set(&state, 0, "a", 1, "root").expect("again");
    assert_ne!(second.client, first.client);
    assert_eq!(confirm(&state, 0, &first, "root"), Err(StateError::StaleClientId));
    assert_eq!(confirm(&state, 0, &second, "root"), Ok(()));
    assert_eq!(confirm(&state, 0, &second, "root"), Ok(()), "a repetition");
    assert_eq!(unknown(second.client), None);
    assert_eq!(unknown(ClientId(second.client.0 ^ 1 << 40)), Some(StateError::StaleClientId));
    assert_eq!(unknown(ClientId(second.client.0 + 77)), Some(StateError::StaleClientId));
}

#[test]
fn a_client_changes_where_it_is_called_back_and_keeps_what_it_has() {
    let state = state();
    let first = set(&state, 0, "a", 1, "root").expect("new");
    confirm(&state, 0, &first, "root").expect("confirmed");
    let holder = state.set_client_of(0, first.client).expect("known");
    let open = Open { owner: b"o", file: file(1), access: BOTH, deny: DENY_READ };
    let id = state.open(&holder, &open).expect("open");
    let updated = SetClient {
        owner: b"a",
        verifier: 1_u64.to_be_bytes(),
        principal: &principal("root"),
        callback: callback(77),
        address: address(),
    };
    let updated = state.set_client(0, &updated).expect("update");
    assert_eq!(updated.client, first.client);
    assert_ne!(updated.confirm, first.confirm);
    assert_eq!(state.callback(first.client), Some(callback(1)));
    assert_eq!(confirm(&state, 0, &first, "root"), Ok(()), "an old one changes nothing");
    assert_eq!(state.callback(first.client), Some(callback(1)));
    assert_eq!(confirm(&state, 0, &updated, "other"), Err(StateError::ClientInUse));
    assert_eq!(confirm(&state, 0, &updated, "root"), Ok(()));
    assert_eq!(confirm(&state, 0, &updated, "root"), Ok(()));
    assert_eq!(state.callback(first.client), Some(callback(77)));
    assert_eq!(confirm(&state, 0, &first, "root"), Err(StateError::StaleClientId));
    assert_eq!(state.test(&holder, &id), Ok(()));
}

#[test]
fn a_restarted_client_keeps_its_state_until_it_is_confirmed_anew() {
    let state = state();
    let old = client0(&state, 0, "a");
    let open = Open { owner: b"o", file: file(1), access: BOTH, deny: DENY_READ };
    let id = state.open(&old, &open).expect("open");
    let new = set(&state, 0, "a", 2, "root").expect("restarted");
    assert_ne!(new.client, old.id());
    assert_eq!(state.test(&old, &id), Ok(()));
    confirm(&state, 0, &new, "root").expect("confirmed");
    assert_eq!(state.test(&old, &id), Err(StateError::Expired));
    assert_eq!(state.set_client_of(0, old.id()).err(), Some(StateError::Expired));
    assert_eq!(state.client_of_stateid(0, &id).err(), Some(StateError::Expired));
    assert_eq!((state.opens(), state.open_files(), state.clients(0).len()), (0, 0, 1));
}

#[test]
fn only_a_good_stateid_renews_a_lease() {
    for is_good in [true, false] {
        let state = state();
        let holder = client0(&state, 0, "a");
        let open = |client, number, deny| {
            state.open(client, &Open { owner: b"o", file: file(number), access: BOTH, deny })
        };
        let held = open(&holder, 1, DENY_READ).expect("open");
        let closed = open(&holder, 2, DENY_NONE).expect("open");
        state.close(&holder, &closed, None).expect("closed");
        let id = if is_good { held } else { closed };
        state.client_of_stateid(LEASE_MS, &id).expect("its client is known");
        let other = client0(&state, LEASE_MS + 1, "b");
        let taken = open(&other, 1, DENY_NONE).is_ok();
        assert_eq!(taken, !is_good, "its lease is over, if nobody has heard it");
    }
}

#[test]
fn a_name_in_use_is_refused_to_another_principal() {
    let state = state();
    let old = client0(&state, 0, "a");
    let open = Open { owner: b"o", file: file(1), access: BOTH, deny: DENY_NONE };
    let taken = set(&state, 0, "a", 2, "other").expect("it has nothing");
    state.open(&old, &open).expect("open");
    assert_eq!(set(&state, 0, "a", 2, "other"), Err(SetClientError::InUse(address())));
    assert_eq!(confirm(&state, 0, &taken, "other"), Err(StateError::ClientInUse));
    let later = LEASE_MS + 1;
    confirm(&state, later, &taken, "other").expect("its lease has expired");
    assert_eq!(state.set_client_of(later, old.id()).err(), Some(StateError::Expired));
    assert_eq!(state.opens(), 0);
}

#[test]
fn names_of_clients_with_sessions_are_others() {
    let state = state();
    let sessions = client(&state, 0, "a");
    let old = client0(&state, 0, "a");
    assert_ne!(sessions.id(), old.id());
    assert_eq!(state.clients(0).len(), 2);
    let again = exchange(&state, 0, "a", 1, "root").expect("known");
    assert_eq!((again.client, again.is_confirmed), (sessions.id(), true));
    // Ids of one kind are none of the other.
    assert_eq!(state.set_client_of(0, sessions.id()).err(), Some(StateError::StaleClientId));
    assert_eq!(state.destroy_client(0, old.id()), Err(StateError::StaleClientId));
    let created = crate::common::create(&state, 0, old.id(), 1, "root");
    assert_eq!(created, Err(StateError::StaleClientId));
    let open = Open { owner: b"o", file: file(1), access: READ, deny: DENY_NONE };
    let id = state.open(&sessions, &open).expect("open");
    assert_eq!(state.client_of_stateid(0, &id).err(), Some(StateError::BadStateId));
    let id = state.open(&old, &open).expect("open");
    assert_eq!(state.client_of_stateid(0, &id).map(|client| client.id()), Ok(old.id()));
    assert_eq!(state.test(&sessions, &id), Err(StateError::BadStateId));
}

#[test]
fn clients_are_bounded_and_the_courteous_make_room() {
    let state = state_with(|limits: &mut Limits| limits.clients_max = 2);
    let first = client0(&state, 0, "a");
    client0(&state, LEASE_MS, "b");
    let third = set(&state, LEASE_MS, "c", 1, "root").expect("unconfirmed");
    assert_eq!(confirm(&state, LEASE_MS, &third, "root"), Err(StateError::TryLater));
    confirm(&state, LEASE_MS + 1, &third, "root").expect("the first is courteous");
    assert_eq!(state.set_client_of(LEASE_MS + 1, first.id()).err(), Some(StateError::Expired));
    for number in 0..100 {
        set(&state, LEASE_MS, &format!("stranger {number}"), 1, "root").expect("always room");
    }
    assert!(state.clients(LEASE_MS).len() <= 2 + 16);
    let long = "x".repeat(1025);
    let refused = set(&state, 0, &long, 1, "root");
    assert_eq!(refused, Err(SetClientError::State(StateError::Invalid)));
}

#[test]
fn stateids_of_another_instance_are_stale() {
    let state = state();
    let holder = client0(&state, 0, "a");
    let open = Open { owner: b"o", file: file(1), access: READ, deny: DENY_NONE };
    let id = state.open(&holder, &open).expect("open");
    let mut before = id;
    before.other[3] ^= 1;
    assert_eq!(state.client_of_stateid(0, &before).err(), Some(StateError::StaleStateId));
    // Of a kind that there is none of.
    let mut unknown = [before, id, StateId { seqid: 1, other: [0xff; 12] }];
    let instance = id.other[3];
    for (id, instance) in unknown.iter_mut().zip([instance - 1, instance, 0xff]) {
        (id.other[3], id.other[6]) = (instance, id.other[6] | 0xf0);
    }
    let told = unknown.map(|id| state.client_of_stateid(0, &id).err());
    let [stale, bad] = [StateError::StaleStateId, StateError::BadStateId].map(Some);
    assert_eq!(told, [stale, bad, bad]);
    let special = [StateId::ANONYMOUS, StateId::READ_BYPASS, StateId::CURRENT, StateId::INVALID];
    for id in special {
        assert_eq!(state.client_of_stateid(0, &id).err(), Some(StateError::BadStateId));
    }
    assert_eq!(state.require_usable(&holder, &id), Ok(()));
    let latest = StateId { seqid: 0, ..id };
    assert_eq!(state.require_usable(&holder, &latest), Err(StateError::OldStateId));
}

fn request(seqid: u32, digest: u64) -> OwnerRequest {
    OwnerRequest { seqid, operation: 18, digest, earlier_digest: None }
}

fn reply(status: u32) -> OwnerReply {
    OwnerReply { status, result: [status as u8; 5].into(), object: None }
}

#[test]
fn one_request_of_an_owner_at_a_time() {
    let state = state();
    let holder = client0(&state, 0, "a");
    let begin = |seqid| state.begin_open(&holder, b"o", &request(seqid, 0));
    let Ok(OwnerBegun::New(first)) = begin(5) else { panic!("new") };
    assert_eq!(begin(5).err(), Some(StateError::OwnerBusy));
    assert_eq!(begin(6).err(), Some(StateError::OwnerBusy));
    assert_eq!(state.owners(&holder), (1, 0));
    drop(first);
    assert_eq!(state.owners(&holder), (0, 0), "it has used nothing, and is not known");
    let Ok(OwnerBegun::New(first)) = begin(9) else { panic!("new") };
    first.finish(reply(2));
    let Ok(OwnerBegun::Again(kept)) = begin(9) else { panic!("again") };
    assert_eq!(kept, reply(2));
    let long = vec![0; 1025];
    let refused = state.begin_open(&holder, &long, &request(1, 0)).err();
    assert_eq!(refused, Some(StateError::Invalid));
}

#[test]
fn owners_are_bounded_and_idle_ones_make_room() {
    let state = state_with(|limits: &mut Limits| limits.opens_a_client_max = 4);
    let holder = client0(&state, 0, "a");
    let begin = |number: u8| state.begin_open(&holder, &[number], &request(1, 0));
    let begun: Vec<_> = (0..4).map(|number| begin(number).expect("room")).collect();
    assert_eq!(begin(4).err(), Some(StateError::TryLater));
    for begun in begun {
        let OwnerBegun::New(owner) = begun else { panic!("new") };
        owner.finish(reply(2));
    }
    assert!(begin(4).is_ok());
    assert!(state.owners(&holder).0 <= 4);
}

#[test]
fn owners_that_have_failed_are_few() {
    let state = state();
    let holder = client0(&state, 0, "a");
    let begin = |number: u32| state.begin_open(&holder, &number.to_be_bytes(), &request(1, 0));
    for number in 0..1000 {
        let Ok(OwnerBegun::New(owner)) = begin(number) else { panic!("new") };
        owner.finish(reply(13));
        let Ok(OwnerBegun::Again(kept)) = begin(number) else { panic!("again") };
        assert_eq!(kept, reply(13));
    }
    assert_eq!(state.owners(&holder), (64, 0));
    // One that has opened something since stays.
    let Ok(OwnerBegun::New(owner)) =
        state.begin_open(&holder, &999_u32.to_be_bytes(), &request(2, 0))
    else {
        panic!("new")
    };
    let open = Open { owner: b"o", file: file(1), access: READ, deny: DENY_READ };
    assert!(state.opened(&owner, &state.open(&holder, &open).expect("open")));
    owner.finish(reply(0));
    for number in 1000..2000 {
        let Ok(OwnerBegun::New(owner)) = begin(number) else { panic!("new") };
        owner.finish(reply(13));
    }
    assert!(matches!(
        state.begin_open(&holder, &999_u32.to_be_bytes(), &request(2, 0)),
        Ok(OwnerBegun::Again(_))
    ));
    assert_eq!(state.owners(&holder), (65, 0));
}

#[test]
fn what_is_never_confirmed_is_closed_after_a_lease() {
    let state = state();
    let holder = client0(&state, 0, "a");
    let Ok(OwnerBegun::New(owner)) = state.begin_open(&holder, b"o", &request(5, 0)) else {
        panic!("new")
    };
    let open = Open { owner: b"o", file: file(1), access: READ, deny: DENY_READ };
    let id = state.open(&holder, &open).expect("open");
    assert!(state.opened(&owner, &id));
    owner.finish(reply(0));
    state.tick(LEASE_MS);
    assert_eq!((state.opens(), state.owners(&holder)), (1, (1, 0)));
    holder.renew(2 * LEASE_MS);
    state.tick(2 * LEASE_MS);
    assert_eq!((state.opens(), state.open_files(), state.owners(&holder)), (0, 0, (0, 0)));
}

#[test]
fn a_lock_owner_is_known_while_it_has_lock_stateids() {
    let state = state();
    let holder = client0(&state, 0, "a");
    let open = Open { owner: b"o", file: file(1), access: BOTH, deny: DENY_NONE };
    let id = state.open(&holder, &open).expect("open");
    let range = LockRange { offset: 0, length: 5 };
    let by = LockBy::Open { open: id, owner: b"l" };
    let lock = Lock { file: file(1), kind: LockKind::Write, range, by, is_waited_for: false };
    assert_eq!(state.judge_locker(&holder, b"l", 40), Ok(()));
    let locks = state.lock(&holder, &lock).expect("locked");
    state.locked(&holder, b"l", 40);
    assert_eq!(state.judge_locker(&holder, b"l", 40), Err(StateError::BadSequence));
    assert_eq!(state.judge_locker(&holder, b"l", 41), Ok(()));
    assert_eq!(state.release_lock_owner(&holder, b"l"), Err(StateError::LocksHeld));
    state.unlock(&holder, &locks, &file(1), range).expect("unlocked");
    state.release_lock_owner(&holder, b"l").expect("nothing held");
    assert_eq!(state.owners(&holder), (0, 0));
    assert_eq!(state.judge_locker(&holder, b"l", 7), Ok(()));
    let latest = StateId { seqid: 0, ..locks };
    assert_eq!(state.test(&holder, &latest), Err(StateError::BadStateId));
}

#[test]
fn a_lock_owner_that_is_released_stands_in_nobodys_way() {
    let state = state();
    let [holder, waiter, other] = ["a", "b", "c"].map(|name| client0(&state, 0, name));
    let range = LockRange { offset: 0, length: 5 };
    let lock = |client, owner, is_waited_for| {
        let open = Open { owner: b"o", file: file(1), access: BOTH, deny: DENY_NONE };
        let id = state.open(client, &open).expect("open");
        let by = LockBy::Open { open: id, owner };
        let lock = Lock { file: file(1), kind: LockKind::Write, range, by, is_waited_for };
        state.lock(client, &lock)
    };
    let held = lock(&holder, b"l", false).expect("locked");
    assert!(matches!(lock(&waiter, b"l", true), Err(LockError::Denied(_))));
    state.unlock(&holder, &held, &file(1), range).expect("unlocked");
    assert!(matches!(lock(&other, b"l", false), Err(LockError::Denied(_))), "another waits");
    state.release_lock_owner(&waiter, b"m").expect("it has nothing");
    state.release_lock_owner(&other, b"l").expect("it has nothing");
    assert!(matches!(lock(&other, b"l", false), Err(LockError::Denied(_))), "another waits");
    state.release_lock_owner(&waiter, b"l").expect("it has nothing");
    lock(&other, b"l", false).expect("nobody waits");
}

/// What a request of the model does.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// OPEN with a sequence id so far from the next, of this kind, ending so.
    Open {
        off: i8,
        digest: u64,
        end: End,
    },
    Confirm {
        off: i8,
        end: End,
    },
    Close {
        off: i8,
        end: End,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Succeeds,
    /// With a status that uses the sequence id.
    Fails,
    /// With one that does not.
    GivesUp,
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![4 => Just(End::Succeeds), 1 => Just(End::Fails), 1 => Just(End::GivesUp)]
}

fn step() -> impl Strategy<Value = Step> {
    let off = || prop_oneof![5 => Just(0_i8), 2 => Just(-1_i8), 1 => -4_i8..4];
    prop_oneof![
        4 => (off(), 0_u64..2, end()).prop_map(|(off, digest, end)| Step::Open { off, digest, end }),
        2 => (off(), end()).prop_map(|(off, end)| Step::Confirm { off, end }),
        2 => (off(), end()).prop_map(|(off, end)| Step::Close { off, end }),
    ]
}

/// An open-owner as the RFC has it, in a file or none.
#[derive(Debug, Default)]
struct Model {
    /// The last sequence id, its request, its reply; `None` before the first.
    last: Option<(OwnerRequest, OwnerReply)>,
    seqid: u32,
    is_confirmed: bool,
    open: Option<StateId>,
    /// Closed by the last request.
    closed: Option<StateId>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Each request is executed once, repeated if it is the last, or refused.
    #[test]
    fn owners_follow_their_sequence(
        start in prop_oneof![Just(0_u32), Just(u32::MAX - 2), any::<u32>()],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let state = state();
        let holder = client0(&state, 0, "a");
        let mut model = Model { seqid: start, ..Model::default() };
        for (number, step) in steps.into_iter().enumerate() {
            let (off, operation, digest, end) = match step {
                Step::Open { off, digest, end } => (off, 18, digest, end),
                Step::Confirm { off, end } => (off, 20, 0, end),
                Step::Close { off, end } => (off, 4, 0, end),
            };
            let seqid = model.seqid.wrapping_add(1).wrapping_add_signed(off.into());
            let earlier_digest = None;
            let request = OwnerRequest { seqid, operation, digest, earlier_digest };
            let target = model.open.or(model.closed);
            let is_again = model.last.as_ref().is_some_and(|(last, _)| *last == request);
            let is_next = seqid == model.seqid.wrapping_add(1);
            let is_known = model.last.is_some();
            let begun = match step {
                Step::Open { .. } => state.begin_open(&holder, b"o", &request),
                _ => match target {
                    Some(id) => state.begin_by_open(&holder, &id, &request, operation == 20),
                    None => continue,
                },
            };
            let expected = match step {
                _ if is_again && (operation == 18 || target.is_some()) => Ok(None),
                Step::Open { .. } if is_known && model.is_confirmed && !is_next => {
                    Err(StateError::BadSequence)
                }
                Step::Open { .. } => Ok(Some(())),
                _ if model.open.is_none() => Err(StateError::BadStateId),
                Step::Confirm { .. } if model.is_confirmed => Err(StateError::BadStateId),
                Step::Close { .. } if !model.is_confirmed => Err(StateError::BadStateId),
                _ if !is_next => Err(StateError::BadSequence),
                _ => Ok(Some(())),
            };
            match (begun, expected) {
                (Err(error), expected) => prop_assert_eq!(expected, Err(error), "{:?}", step),
                (Ok(OwnerBegun::Again(kept)), expected) => {
                    prop_assert_eq!(expected, Ok(None), "{:?}", step);
                    prop_assert_eq!(Some(&kept), model.last.as_ref().map(|(_, reply)| reply));
                }
                (Ok(OwnerBegun::New(owner)), expected) => {
                    prop_assert_eq!(expected, Ok(Some(())), "{:?}", step);
                    model.closed = None;
                    if operation == 18 && !model.is_confirmed {
                        // Begun anew: what it had is closed.
                        if let Some(id) = model.open.take() {
                            prop_assert_eq!(state.test(&holder, &id), Err(StateError::BadStateId));
                        }
                        model.last = None;
                    }
                    if end == End::GivesUp {
                        drop(owner);
                        if !is_known || model.last.is_none() {
                            model = Model { seqid: model.seqid, ..Model::default() };
                        }
                        continue;
                    }
                    if end == End::Succeeds {
                        match step {
                            Step::Open { .. } => {
                                let open = Open {
                                    owner: b"o", file: file(1), access: READ, deny: DENY_NONE,
                                };
                                let id = state.open(&holder, &open).expect("open");
                                let needs_confirm = state.opened(&owner, &id);
                                prop_assert_eq!(needs_confirm, !model.is_confirmed);
                                let usable = state.require_usable(&holder, &id);
                                prop_assert_eq!(usable.is_ok(), model.is_confirmed);
                                model.open = Some(id);
                            }
                            Step::Confirm { .. } => {
                                let id = model.open.expect("open");
                                let id = state.confirm_open(&owner, &id, &file(1)).expect("ok");
                                prop_assert_eq!(state.require_usable(&holder, &id), Ok(()));
                                model.open = Some(id);
                                model.is_confirmed = true;
                            }
                            Step::Close { .. } => {
                                let id = model.open.take().expect("open");
                                state.close(&holder, &id, None).expect("closed");
                                state.closed(&owner, &id);
                                model.closed = Some(id);
                            }
                        }
                    }
                    let kept = reply(number as u32);
                    owner.finish(kept.clone());
                    model.last = Some((request, kept));
                    model.seqid = seqid;
                }
            }
        }
        prop_assert_eq!(state.opens(), u32::from(model.open.is_some()));
    }
}
