//! Delegations: grants, conflicts, recalls, revocation. Rings: unit, property, threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{
    BOTH, DENY_NONE, DENY_READ, DENY_WRITE, LEASE_MS, READ, WRITE, address, file, session,
};
use proptest::prelude::*;
use steadfast_state::{
    CallbackTarget, Client, Delegate, DelegationKind, Delegations, Effect, Held, LockKind,
    LockRange, NlmError, NlmLock, NlmOwner, NotDelegated, Open, Sequenced, Session, Settings,
    ShareAccess, ShareDeny, State, StateError, StateId,
};

const REVOKED: u32 = 0x40;
const QUIET_MS: u64 = 30_000;

pub(crate) fn state() -> State {
    State::new(Settings { delegations: Delegations::Write, ..Settings::new(7) })
}

/// A client that can be called.
pub(crate) fn client(state: &State, owner: &str) -> Arc<Session> {
    let session = session(state, 0, owner, 1);
    session.set_callback_target(CallbackTarget {
        minor_version: 1,
        program: 4,
        credential: [0; 8].into(),
    });
    assert!(session.bind_back(1));
    session
}

pub(crate) fn open(
    state: &State,
    client: &Arc<Client>,
    access: ShareAccess,
    deny: ShareDeny,
) -> Result<StateId, StateError> {
    state.open(client, &Open { owner: b"o", file: file(1), access, deny })
}

pub(crate) fn delegate(
    state: &State,
    now_ms: u64,
    client: &Arc<Client>,
    kind: DelegationKind,
) -> Result<StateId, NotDelegated> {
    let request = Delegate { file: file(1), kind, handle: b"handle", is_reclaim: false };
    state.delegate(now_ms, client, &request)
}

/// The clients that are asked to return what, and whether files are free.
fn effects(state: &State) -> (Vec<(u64, StateId)>, usize) {
    let (mut recalls, mut returned) = (Vec::new(), 0);
    for effect in state.take_effects() {
        match effect {
            Effect::Recall { client, id, file: of, handle, .. } => {
                assert_eq!((of, &*handle), (file(1), &b"handle"[..]));
                recalls.push((client.id().0, id));
            }
            Effect::Returned { file: of } => {
                assert_eq!(of, file(1));
                returned += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    recalls.sort_by_key(|(client, _)| *client);
    (recalls, returned)
}

fn status_flags(session: &Arc<Session>, now_ms: u64, sequence: u32) -> u32 {
    let request = crate::common::sequence(0, sequence);
    match session.begin(now_ms, &request) {
        Ok(Sequenced::New(slot)) => {
            slot.finish(None);
            session.told().status_flags
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_opened_its_file_to_write_after_the_grant_gets_it_back() {
    use DelegationKind::Read;
    let state = state();
    let (one, two) = (client(&state, "a"), client(&state, "b"));
    let (one, two) = (one.client(), two.client());
    let reclaim = |client| {
        let (file, handle, is_reclaim) = (file(1), &b"handle"[..], true);
        state.delegate(1, client, &Delegate { file, kind: Read, handle, is_reclaim })
    };
    // Its own opens are reclaimed first.
    open(&state, one, BOTH, DENY_NONE).expect("open");
    assert_eq!(delegate(&state, 1, one, Read), Err(NotDelegated::Contention));
    reclaim(one).expect("it had that, and the file open");
    assert_eq!(state.delegations(), 1);
    assert_eq!(reclaim(two), Err(NotDelegated::Contention), "another writes");
}

#[test]
fn nobody_changes_a_file_before_it_is_kept_whose_delegation_was_revoked() {
    use DelegationKind::Read;
    let state = state();
    state.begin_keeping();
    let keep = || {
        let taken = state.take_events(&mut Vec::new());
        state.events_are_kept(taken);
    };
    let one = client(&state, "a");
    open(&state, one.client(), READ, DENY_NONE).expect("open");
    delegate(&state, 1, one.client(), Read).expect("alone");
    assert!(state.has_unkept_events() && !state.has_unkept_revocations());
    keep();
    // Its holder has expired, and is in nobody's way.
    drop(state.begin_change(LEASE_MS + 2, None, &file(1)).expect("its lease is over"));
    assert_eq!(state.delegations(), 0);
    assert!(state.has_unkept_revocations());
    keep();
    assert!(!state.has_unkept_revocations());
    // The same of one that was recalled, and not returned.
    let session = session(&state, LEASE_MS + 3, "b", 1);
    let two = session.client();
    let now_ms = LEASE_MS + QUIET_MS + 3;
    assert_eq!(status_flags(&session, now_ms, 1), 0);
    open(&state, two, READ, DENY_NONE).expect("open");
    let handle = &b"handle"[..];
    let request = Delegate { file: file(1), kind: Read, handle, is_reclaim: true };
    state.delegate(now_ms, two, &request).expect("alone");
    state.begin_change(now_ms, None, &file(1)).expect_err("it is recalled");
    keep();
    state.tick(now_ms + LEASE_MS);
    // It is not silent.
    status_flags(&session, now_ms + LEASE_MS, 2);
    assert!(state.delegations() == 1 && !state.has_unkept_revocations());
    state.tick(now_ms + LEASE_MS + 1);
    assert_eq!(state.delegations(), 0);
    assert!(state.has_unkept_revocations());
    keep();
    assert!(!state.has_unkept_revocations());
}

#[test]
fn a_delegation_is_granted_to_who_is_alone() {
    use DelegationKind::{Read, Write};
    let state = state();
    let (one, two) = (client(&state, "a"), client(&state, "b"));
    let (one, two) = (one.client(), two.client());
    let writing = open(&state, one, BOTH, DENY_NONE).expect("open");
    open(&state, two, READ, DENY_NONE).expect("open");
    assert_eq!(delegate(&state, 1, one, Write), Err(NotDelegated::Contention));
    assert_eq!(delegate(&state, 1, two, Read), Err(NotDelegated::Contention));
    // Its locks to write would be its own affair.
    assert_eq!(delegate(&state, 1, one, Read), Err(NotDelegated::Contention));
    state.close(one, &writing, Some(&file(1))).expect("open");
    open(&state, one, READ, DENY_NONE).expect("open");
    assert_eq!(effects(&state).0, []);
    // Both may read what neither writes.
    let read = delegate(&state, 1, one, Read).expect("nobody else writes");
    assert_eq!(delegate(&state, 1, one, Write), Err(NotDelegated::Upgrade));
    assert_eq!(delegate(&state, 1, one, Read), Err(NotDelegated::HasOne));
    assert_eq!(state.delegations(), 1);
    state.return_delegation(one, &read, Some(&file(1))).expect("held");
    assert_eq!(state.return_delegation(one, &read, Some(&file(1))), Err(StateError::BadStateId));
    assert_eq!((state.delegations(), effects(&state)), (0, (vec![], 0)));
    let counts = state.delegation_counts();
    assert_eq!((counts.granted_read, counts.returned, counts.recalled), (1, 1, 0));
}

#[test]
fn only_who_can_be_called_gets_one_and_only_of_the_kinds_that_are_granted() {
    let state = state();
    let nobody = session(&state, 0, "nobody", 1);
    assert_eq!(
        delegate(&state, 1, nobody.client(), DelegationKind::Read),
        Err(NotDelegated::Resource)
    );
    let mut settings = Settings { delegations: Delegations::Read, ..Settings::new(7) };
    settings.limits.delegations_a_client_max = 1;
    let state = State::new(settings.clone());
    let one = client(&state, "a");
    assert_eq!(
        delegate(&state, 1, one.client(), DelegationKind::Write),
        Err(NotDelegated::NotGiven)
    );
    delegate(&state, 1, one.client(), DelegationKind::Read).expect("granted");
    let (kind, handle) = (DelegationKind::Read, &b"handle"[..]);
    let other = Delegate { file: file(2), kind, handle, is_reclaim: false };
    assert_eq!(state.delegate(1, one.client(), &other), Err(NotDelegated::Resource));
    // All clients together.
    settings.limits.delegations_a_client_max = 2;
    settings.limits.delegations_max = 1;
    let state = State::new(settings);
    let (one, two) = (client(&state, "a"), client(&state, "b"));
    delegate(&state, 1, one.client(), DelegationKind::Read).expect("granted");
    assert_eq!(state.delegate(1, two.client(), &other), Err(NotDelegated::Resource));
}

#[test]
fn what_conflicts_recalls_and_waits_until_it_is_returned() {
    use DelegationKind::{Read, Write};
    /// Whether it conflicts with a delegation to read, and to write.
    type Row = (&'static str, fn(&State, &Arc<Client>) -> Result<(), StateError>, bool, bool);
    let rows: [Row; 8] = [
        ("open to read", |s, c| open(s, c, READ, DENY_NONE).map(drop), false, true),
        ("open to write", |s, c| open(s, c, WRITE, DENY_NONE).map(drop), true, true),
        ("open that denies reading", |s, c| open(s, c, READ, DENY_READ).map(drop), true, true),
        ("change", |s, c| s.begin_change(5, Some(c), &file(1)).map(drop), true, true),
        ("change by a stranger", |s, _| s.begin_change(5, None, &file(1)).map(drop), true, true),
        ("read", |s, c| s.begin_read(5, Some(c), &file(1)), false, true),
        ("lock of a host to read", |s, _| nlm(s, LockKind::Read), false, true),
        ("lock of a host to write", |s, _| nlm(s, LockKind::Write), true, true),
    ];
    for (name, act, with_read, with_write) in rows {
        for (kind, conflicts) in [(Read, with_read), (Write, with_write)] {
            let state = state();
            let (holder, other) = (client(&state, "a"), client(&state, "b"));
            let (holder, other) = (holder.client(), other.client());
            let id = delegate(&state, 1, holder, kind).expect("alone");
            // Its own acts are not in its way.
            for access in [READ, BOTH] {
                let own = open(&state, holder, access, DENY_NONE).expect("own");
                state.close(holder, &own, None).expect("open");
            }
            drop(state.begin_change(1, Some(holder), &file(1)).expect("own"));
            state.begin_read(1, Some(holder), &file(1)).expect("own");
            let told = if conflicts { Err(StateError::Recalling) } else { Ok(()) };
            for _ in 0..2 {
                assert_eq!(act(&state, other), told, "{name}, {kind:?}");
            }
            let recalls = if conflicts { vec![(holder.id().0, id)] } else { vec![] };
            assert_eq!(effects(&state), (recalls, 0), "{name}, {kind:?}: once");
            if conflicts {
                assert!(state.is_recall_unanswered(&file(1), &id));
                state.return_delegation(holder, &id, None).expect("held");
                assert_eq!(effects(&state), (vec![], 1));
                assert_eq!(act(&state, other), Ok(()), "{name}, {kind:?}: returned");
            }
        }
    }
}

fn nlm(state: &State, kind: LockKind) -> Result<(), StateError> {
    let host = state.host(5, b"host", address()).expect("few");
    let owner = NlmOwner { svid: 1, oh: b"oh".as_slice().into() };
    let range = LockRange { offset: 0, length: 1 };
    let request = NlmLock { file: file(1), owner: &owner, range, kind, waits: None };
    match state.nlm_lock(&host, &request) {
        Ok(()) => Ok(()),
        Err(NlmError::State(error)) => Err(error),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn after_a_recall_nobody_gets_one_for_a_while() {
    let state = state();
    let (one, two) = (client(&state, "a"), client(&state, "b"));
    let (one, two) = (one.client(), two.client());
    let id = delegate(&state, 10, one, DelegationKind::Read).expect("alone");
    assert!(state.begin_change(10, Some(two), &file(1)).is_err());
    state.return_delegation(one, &id, None).expect("held");
    let again = |now_ms| delegate(&state, now_ms, one, DelegationKind::Read);
    assert_eq!(again(10 + QUIET_MS - 1), Err(NotDelegated::Contention));
    assert!(again(10 + QUIET_MS).is_ok());
}

#[test]
fn none_is_granted_while_a_change_is_under_way() {
    let state = state();
    let one = client(&state, "a");
    let change = state.begin_change(1, None, &file(1)).expect("nobody has one");
    let asked = || delegate(&state, 1, one.client(), DelegationKind::Read);
    assert_eq!(asked(), Err(NotDelegated::Contention));
    drop(change);
    assert!(asked().is_ok());
}

#[test]
fn locks_that_others_have_or_wait_for_are_in_the_way() {
    for (kind, is_granted) in [(LockKind::Read, true), (LockKind::Write, false)] {
        let state = state();
        let one = client(&state, "a");
        assert_eq!(nlm(&state, kind), Ok(()));
        let granted = delegate(&state, 1, one.client(), DelegationKind::Read);
        assert_eq!(granted.is_ok(), is_granted, "{kind:?}");
        let write = delegate(&state, 1, one.client(), DelegationKind::Write);
        assert!(write.is_err(), "{kind:?}");
    }
}

#[test]
fn what_is_not_returned_in_time_is_revoked_and_the_client_is_told() {
    let state = state();
    let (one, two) = (client(&state, "a"), client(&state, "b"));
    let (holder, other) = (one.client(), two.client());
    let id = delegate(&state, 1_000, holder, DelegationKind::Write).expect("alone");
    assert_eq!(state.judge(holder, &id, &file(1), BOTH), Ok(()));
    assert_eq!(state.test(holder, &id), Ok(()));
    assert_eq!(state.free(holder, &id), Err(StateError::LocksHeld));
    assert_eq!(open(&state, other, READ, DENY_NONE), Err(StateError::Recalling));
    assert_eq!(effects(&state).0.len(), 1);
    // It is asked again as long as it does not answer.
    let mut now_ms = 11_500;
    state.tick(now_ms);
    assert_eq!(effects(&state).0.len(), 1);
    state.recall_is_sent(now_ms, &file(1), &id);
    state.recall_is_answered(&file(1), &id);
    let (mut sequence, sent_ms) = (0, now_ms);
    while now_ms < sent_ms + LEASE_MS {
        now_ms += 10_000;
        sequence += 1;
        let flags = status_flags(&one, now_ms, sequence);
        if now_ms <= sent_ms + LEASE_MS {
            state.tick(now_ms);
            assert_eq!((flags, effects(&state).0), (0, vec![]));
            assert_eq!(open(&state, other, READ, DENY_NONE), Err(StateError::Recalling));
        }
    }
    state.tick(now_ms + 1);
    assert_eq!(effects(&state), (vec![], 1));
    assert!(open(&state, other, READ, DENY_NONE).is_ok());
    assert_eq!(status_flags(&one, now_ms, sequence + 1), REVOKED);
    for told in [
        state.test(holder, &id),
        state.judge(holder, &id, &file(1), READ),
        state.return_delegation(holder, &id, None),
    ] {
        assert_eq!(told, Err(StateError::DelegationRevoked));
    }
    let (held, _) = state.holdings(holder.id(), 9).expect("known");
    let kind = DelegationKind::Write;
    assert_eq!(held[0].held, Held::Delegation { kind, is_recalled: false, is_revoked: true });
    assert_eq!(state.free(holder, &id), Ok(()));
    assert_eq!(state.test(holder, &id), Err(StateError::BadStateId));
    assert_eq!(status_flags(&one, now_ms, sequence + 2), 0);
    assert_eq!(state.delegation_counts().revoked, 1);
}

#[test]
fn one_that_is_taken_back_after_it_was_revoked_is_told_to_nobody() {
    let state = state();
    let (one, two) = (client(&state, "a"), client(&state, "b"));
    let (kind, is_reclaim) = (DelegationKind::Write, false);
    let request = Delegate { file: file(1), kind, handle: b"handle", is_reclaim };
    let granted = state.grant_delegation(0, one.client(), &request).expect("alone");
    let id = granted.id();
    assert_eq!(open(&state, two.client(), READ, DENY_NONE), Err(StateError::Recalling));
    state.recall_is_sent(0, &file(1), &id);
    state.recall_is_answered(&file(1), &id);
    let mut flags = Vec::new();
    for (sequence, now_ms) in [(1, LEASE_MS / 2), (2, LEASE_MS), (3, LEASE_MS + 1)] {
        flags.push(status_flags(&one, now_ms, sequence));
        state.tick(now_ms);
    }
    assert_eq!(state.test(one.client(), &id), Err(StateError::DelegationRevoked));
    flags.push(status_flags(&one, LEASE_MS + 2, 4));
    state.take_back(granted);
    assert_eq!(state.test(one.client(), &id), Err(StateError::BadStateId));
    flags.push(status_flags(&one, LEASE_MS + 3, 5));
    assert_eq!(flags, [0, 0, 0, REVOKED, 0]);
}

#[test]
fn a_holder_that_is_silent_for_a_lease_loses_all_at_once() {
    let state = state();
    let (one, two) = (client(&state, "a"), client(&state, "b"));
    let (holder, other) = (one.client(), two.client());
    delegate(&state, 1, holder, DelegationKind::Write).expect("alone");
    let late_ms = LEASE_MS + 2;
    other.renew(late_ms);
    state.tick(late_ms);
    assert!(open(&state, other, BOTH, DENY_NONE).is_ok());
    assert!(state.client(holder.id()).is_none());
    assert_eq!(state.delegations(), 0);
    // One that is silent from the recall on is found by time.
    let state = self::state();
    let (one, two) = (client(&state, "a"), client(&state, "b"));
    let (holder, other) = (one.client(), two.client());
    delegate(&state, 1, holder, DelegationKind::Write).expect("alone");
    assert!(open(&state, other, BOTH, DENY_NONE).is_err());
    other.renew(late_ms);
    state.tick(late_ms);
    assert!(state.client(holder.id()).is_none());
    assert_eq!(effects(&state).1, 1);
    assert!(open(&state, other, BOTH, DENY_NONE).is_ok());
}

#[test]
fn a_share_of_a_host_that_is_denied_recalls_nothing() {
    let state = state();
    let (holder, other) = (client(&state, "a"), client(&state, "b"));
    delegate(&state, 1, holder.client(), DelegationKind::Read).expect("granted");
    open(&state, other.client(), READ, DENY_WRITE).expect("it disturbs no reading");
    let host = state.host(0, b"host", address()).expect("host");
    let denied = state.nlm_share(&host, &file(1), b"o", BOTH, DENY_NONE);
    assert_eq!(denied, Err(StateError::ShareDenied));
    assert_eq!(effects(&state), (vec![], 0));
}

#[derive(Clone, Copy, Debug)]
enum What {
    Open { client: usize, access: u8, deny: u8 },
    Close { client: usize },
    Delegate { client: usize, is_write: bool },
    Return { client: usize },
    Change { client: Option<usize> },
}

fn what() -> impl Strategy<Value = What> {
    let client = 0..3_usize;
    prop_oneof![
        4 => (client.clone(), 1..4_u8, 0..4_u8)
            .prop_map(|(client, access, deny)| What::Open { client, access, deny }),
        3 => client.clone().prop_map(|client| What::Close { client }),
        4 => (client.clone(), any::<bool>())
            .prop_map(|(client, is_write)| What::Delegate { client, is_write }),
        2 => client.clone().prop_map(|client| What::Return { client }),
        1 => proptest::option::of(client).prop_map(|client| What::Change { client }),
    ]
}

/// A client as the model has it.
#[derive(Clone, Copy, Default)]
struct Model {
    open: Option<(ShareAccess, ShareDeny)>,
    delegation: Option<(DelegationKind, bool)>,
}

fn conflicts(kind: DelegationKind, access: ShareAccess, deny: ShareDeny) -> bool {
    kind == DelegationKind::Write || access.contains(WRITE) || deny.contains(DENY_READ)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Against a list of who has what of one file.
    #[test]
    fn nobody_has_what_conflicts(steps in prop::collection::vec(what(), 1..80)) {
        let state = state();
        let sessions = ["a", "b", "c"].map(|owner| client(&state, owner));
        let clients = sessions.each_ref().map(|session| Arc::clone(session.client()));
        let mut models = [Model::default(); 3];
        let (mut opens, mut ids) = ([None; 3], [None; 3]);
        let mut now_ms = 1;
        for step in steps {
            now_ms += QUIET_MS;
            for client in &clients {
                client.renew(now_ms);
            }
            // What is denied anyhow has nothing recalled.
            let opened_all = models.map(|model| model.open);
            let is_denied = |access: ShareAccess, deny: ShareDeny| {
                opened_all.iter().flatten().any(|(by_access, by_deny)| {
                    access.bits() & by_deny.bits() != 0 || by_access.bits() & deny.bits() != 0
                })
            };
            // Of others, by what conflicts; those are recalled from then on.
            let mut recall = |by: Option<usize>, conflicts: &dyn Fn(DelegationKind) -> bool| {
                let mut is_recalling = false;
                for (place, model) in models.iter_mut().enumerate() {
                    if let Some((kind, is_recalled)) = &mut model.delegation
                        && Some(place) != by && conflicts(*kind)
                    {
                        (*is_recalled, is_recalling) = (true, true);
                    }
                }
                is_recalling
            };
            match step {
                What::Open { client, access, deny } => {
                    let access = ShareAccess::from_bits_truncate(access);
                    let deny = ShareDeny::from_bits_truncate(deny);
                    let is_denied = is_denied(access, deny);
                    let is_recalling = !is_denied
                        && recall(Some(client), &|kind| conflicts(kind, access, deny));
                    let opened = open(&state, &clients[client], access, deny);
                    assert_eq!(opened == Err(StateError::Recalling), is_recalling);
                    assert_eq!(opened == Err(StateError::ShareDenied), is_denied);
                    if let Ok(id) = opened {
                        opens[client] = Some(id);
                        let own = &mut models[client].open;
                        let before = own.unwrap_or((ShareAccess::empty(), DENY_NONE));
                        *own = Some((before.0 | access, before.1 | deny));
                    }
                }
                What::Close { client } => {
                    if let Some(id) = opens[client].take() {
                        state.close(&clients[client], &id, None).expect("open");
                        models[client].open = None;
                    }
                }
                What::Delegate { client, is_write } => {
                    let kind =
                        if is_write { DelegationKind::Write } else { DelegationKind::Read };
                    let is_free = models.iter().enumerate().all(|(place, model)| {
                        let is_open = model.open.is_some_and(|(access, deny)| {
                            conflicts(kind, access, deny)
                        });
                        let is_held = model.delegation.is_some_and(|(of, is_recalled)| {
                            is_write || of == DelegationKind::Write || is_recalled
                        });
                        let writes =
                            model.open.is_some_and(|(access, _)| access.contains(ShareAccess::WRITE));
                        if place == client {
                            model.delegation.is_none() && (is_write || !writes)
                        } else {
                            !is_open && !is_held
                        }
                    });
                    let granted = delegate(&state, now_ms, &clients[client], kind);
                    assert_eq!(granted.is_ok(), is_free, "{granted:?}");
                    if let Ok(id) = granted {
                        ids[client] = Some(id);
                        models[client].delegation = Some((kind, false));
                    }
                }
                What::Return { client } => {
                    if let Some(id) = ids[client].take() {
                        state.return_delegation(&clients[client], &id, None).expect("held");
                        models[client].delegation = None;
                    }
                }
                What::Change { client } => {
                    let is_recalling = recall(client, &|_| true);
                    let by = client.map(|client| &clients[client]);
                    let begun = state.begin_change(now_ms, by, &file(1));
                    assert_eq!(begun.is_err(), is_recalling);
                }
            }
            let held = models.iter().filter(|model| model.delegation.is_some()).count();
            assert_eq!(state.delegations(), held as u64);
        }
    }
}

/// A change and somebody else's delegation are never there at the same time.
#[test]
fn changes_and_grants_exclude_each_other() {
    let state = state();
    let holders = ["a", "b"].map(|owner| client(&state, owner));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for holder in &holders {
            let (state, is_over) = (&state, &is_over);
            scope.spawn(move || {
                let request = Delegate {
                    file: file(1),
                    kind: DelegationKind::Read,
                    handle: b"handle",
                    is_reclaim: false,
                };
                let mut now_ms = 1;
                while !is_over.load(Ordering::Relaxed) {
                    // Recalls keep no one from the next one.
                    now_ms += QUIET_MS;
                    if let Ok(id) = state.delegate(now_ms, holder.client(), &request) {
                        state.return_delegation(holder.client(), &id, None).expect("held");
                    }
                }
            });
        }
        let mut changes = 0;
        let mut recalls = 0;
        while changes < 20_000 {
            match state.begin_change(1, None, &file(1)) {
                Ok(change) => {
                    changes += 1;
                    assert_eq!(state.delegations(), 0);
                    drop(change);
                }
                Err(error) => {
                    assert_eq!(error, StateError::Recalling);
                    recalls += 1;
                }
            }
            state.take_effects();
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(recalls > 0 || changes > 0);
    });
}
