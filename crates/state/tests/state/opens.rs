//! Opens: shares, stateids, upgrades, downgrades, courtesy. Rings: unit, property, threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{
    BOTH, DENY_NONE, DENY_READ, DENY_WRITE, LEASE_MS, READ, WRITE, client, create, exchange, file,
    sequence, session, state,
};
use proptest::prelude::*;
use steadfast_state::{
    Client, FileKey, Open, Sequenced, SessionId, ShareAccess, ShareDeny, State, StateError, StateId,
};

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

/// The naive model: a list of opens, each with the list of what was asked for.
#[derive(Clone, Debug)]
struct Listed {
    client: usize,
    owner: u8,
    file: u8,
    asked: Vec<(ShareAccess, ShareDeny)>,
    id: StateId,
}

impl Listed {
    fn share(&self) -> (ShareAccess, ShareDeny) {
        union(&self.asked)
    }
}

fn union(shares: &[(ShareAccess, ShareDeny)]) -> (ShareAccess, ShareDeny) {
    let none = (ShareAccess::empty(), ShareDeny::empty());
    shares.iter().fold(none, |(access, deny), share| (access | share.0, deny | share.1))
}

fn conflicts(one: (ShareAccess, ShareDeny), two: (ShareAccess, ShareDeny)) -> bool {
    one.0.bits() & two.1.bits() != 0 || one.1.bits() & two.0.bits() != 0
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open {
        client: usize,
        owner: u8,
        file: u8,
        access: ShareAccess,
        deny: ShareDeny,
    },
    Close {
        client: usize,
        id: usize,
        behind: u32,
        file: Option<u8>,
    },
    Downgrade {
        client: usize,
        id: usize,
        behind: u32,
        access: ShareAccess,
        deny: ShareDeny,
    },
    Judge {
        client: usize,
        id: usize,
        behind: u32,
        file: u8,
        access: ShareAccess,
    },
    Special {
        client: usize,
        is_bypass: bool,
        file: u8,
        access: ShareAccess,
    },
    /// Time goes on.
    Wait {
        leases: u64,
    },
    /// A client restarts.
    Restart {
        client: usize,
    },
}

const CLIENTS: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let client = 0..CLIENTS;
    let access = (1..=3_u8).prop_map(ShareAccess::from_bits_truncate);
    let deny = prop_oneof![3 => Just(0), 1 => 1..=3_u8].prop_map(ShareDeny::from_bits_truncate);
    let behind = prop_oneof![4 => Just(0), 1 => Just(1), 1 => Just(u32::MAX), 1 => Just(99)];
    let open = (client.clone(), 0..2_u8, 0..3_u8, access.clone(), deny.clone()).prop_map(
        |(client, owner, file, access, deny)| Step::Open { client, owner, file, access, deny },
    );
    let close = (client.clone(), 0..40_usize, behind.clone(), proptest::option::of(0..3_u8))
        .prop_map(|(client, id, behind, file)| Step::Close { client, id, behind, file });
    let downgrade = (client.clone(), 0..40_usize, behind.clone(), access.clone(), deny).prop_map(
        |(client, id, behind, access, deny)| Step::Downgrade { client, id, behind, access, deny },
    );
    let judge = (client.clone(), 0..40_usize, behind, 0..3_u8, access.clone()).prop_map(
        |(client, id, behind, file, access)| Step::Judge { client, id, behind, file, access },
    );
    let special = (client.clone(), any::<bool>(), 0..3_u8, access).prop_map(
        |(client, is_bypass, file, access)| Step::Special { client, is_bypass, file, access },
    );
    let wait = (0..2_u64).prop_map(|leases| Step::Wait { leases });
    let restart = client.prop_map(|client| Step::Restart { client });
    prop_oneof![
        12 => open, 4 => close, 3 => downgrade, 4 => judge, 2 => special, 2 => wait, 1 => restart
    ]
}

/// The state and its model, side by side.
struct Both {
    state: State,
    clients: Vec<Arc<Client>>,
    verifiers: Vec<u64>,
    now_ms: u64,
    renewed_ms: Vec<u64>,
    is_gone: Vec<bool>,
    opens: Vec<Listed>,
    /// All stateids that there ever were.
    ids: Vec<StateId>,
}

impl Both {
    fn new() -> Self {
        let state = state();
        let clients = (0..CLIENTS).map(|number| client(&state, 0, &number.to_string())).collect();
        Self {
            state,
            clients,
            verifiers: vec![1; CLIENTS],
            now_ms: 0,
            renewed_ms: vec![0; CLIENTS],
            is_gone: vec![false; CLIENTS],
            opens: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// A client that is heard has its lease renewed, as by SEQUENCE; one that is gone comes back.
    fn hear(&mut self, client: usize) {
        if self.is_gone[client] {
            self.restart(client);
        }
        self.clients[client].renew(self.now_ms);
        self.renewed_ms[client] = self.now_ms;
    }

    fn restart(&mut self, client: usize) {
        self.verifiers[client] += 1;
        let (name, verifier) = (client.to_string(), self.verifiers[client]);
        let exchanged =
            exchange(&self.state, self.now_ms, &name, verifier, "root").expect("exchange");
        let created = create(&self.state, self.now_ms, exchanged.client, 1, "root");
        let session = self.state.session(&created.expect("create").session).expect("created");
        self.clients[client] = Arc::clone(session.client());
        self.renewed_ms[client] = self.now_ms;
        self.is_gone[client] = false;
        self.opens.retain(|open| open.client != client);
    }

    /// What the model says of a share: others that conflict, unless all of them are expired.
    fn clear(
        &mut self,
        client: usize,
        own: Option<StateId>,
        at: u8,
        wanted: (ShareAccess, ShareDeny),
        error: StateError,
    ) -> Result<(), StateError> {
        let in_the_way: Vec<usize> = self
            .opens
            .iter()
            .filter(|open| open.file == at && own.is_none_or(|own| own.other != open.id.other))
            .filter(|open| conflicts(open.share(), wanted))
            .map(|open| open.client)
            .collect();
        let is_alive =
            |other: &usize| *other == client || self.now_ms - self.renewed_ms[*other] <= LEASE_MS;
        if in_the_way.iter().any(is_alive) {
            return Err(error);
        }
        for gone in in_the_way {
            self.is_gone[gone] = true;
            self.opens.retain(|open| open.client != gone);
        }
        Ok(())
    }

    fn named(&self, client: usize, id: &StateId) -> Result<usize, StateError> {
        let place = self
            .opens
            .iter()
            .position(|open| open.client == client && open.id.other == id.other)
            .ok_or(StateError::BadStateId)?;
        let latest = self.opens[place].id.seqid;
        match id.seqid {
            0 => Ok(place),
            seqid if seqid == latest => Ok(place),
            seqid if seqid < latest => Err(StateError::OldStateId),
            _ => Err(StateError::BadStateId),
        }
    }

    fn id(&self, number: usize, behind: u32) -> StateId {
        let known = self.ids.get(number % self.ids.len().max(1)).copied();
        let id = known.unwrap_or(StateId { seqid: 1, other: [9; 12] });
        let latest = self.opens.iter().find(|open| open.id.other == id.other);
        let seqid = latest.map_or(id.seqid, |open| open.id.seqid);
        // 99 stands for "the latest", and -1 for one that there is not yet.
        let seqid = if behind == 99 { 0 } else { seqid.saturating_sub(behind) };
        StateId { seqid: if behind == u32::MAX { id.seqid + 90 } else { seqid }, ..id }
    }

    fn open(
        &mut self,
        client: usize,
        owner: u8,
        at: u8,
        share: (ShareAccess, ShareDeny),
    ) -> Result<(), TestCaseError> {
        self.hear(client);
        let request = Open { owner: &[owner], file: file(at), access: share.0, deny: share.1 };
        let found = self.state.open(&self.clients[client], &request);
        let is_own =
            |open: &&mut Listed| (open.client, open.owner, open.file) == (client, owner, at);
        if let Err(error) = self.clear(client, None, at, share, StateError::ShareDenied) {
            prop_assert_eq!(found, Err(error));
            return Ok(());
        }
        let id = found.map_err(|error| TestCaseError::fail(error.to_string()))?;
        if let Some(open) = self.opens.iter_mut().find(is_own) {
            prop_assert_eq!(id, StateId { seqid: open.id.seqid + 1, ..open.id });
            open.asked.push(share);
            open.id = id;
        } else {
            prop_assert_eq!(id.seqid, 1);
            prop_assert!(self.ids.iter().all(|known| known.other != id.other), "reused");
            self.opens.push(Listed { client, owner, file: at, asked: vec![share], id });
            self.ids.push(id);
        }
        Ok(())
    }

    fn downgrade(
        &mut self,
        client: usize,
        id: StateId,
        to: (ShareAccess, ShareDeny),
    ) -> Result<(), TestCaseError> {
        self.hear(client);
        let named = self.named(client, &id);
        let at = named.map_or(0, |place| self.opens[place].file);
        let found = self.state.downgrade(&self.clients[client], &id, &file(at), to.0, to.1);
        let place = match named {
            Ok(place) => place,
            Err(error) => {
                prop_assert_eq!(found, Err(error));
                return Ok(());
            }
        };
        let open = &mut self.opens[place];
        // All subsets of what was asked for.
        let mut asked = open.asked.clone();
        asked.sort_by_key(|(access, deny)| (access.bits(), deny.bits()));
        asked.dedup();
        let is_union = (1..1_u32 << asked.len()).any(|subset| {
            let chosen: Vec<_> = (0..asked.len())
                .filter(|place| subset >> place & 1 == 1)
                .map(|place| asked[place])
                .collect();
            union(&chosen) == to
        });
        if is_union {
            open.id.seqid += 1;
            open.asked.retain(|share| to.0.contains(share.0) && to.1.contains(share.1));
            prop_assert_eq!(found, Ok(open.id));
        } else {
            prop_assert_eq!(found, Err(StateError::Invalid));
        }
        Ok(())
    }

    fn judge(
        &mut self,
        client: usize,
        id: StateId,
        at: u8,
        wanted: ShareAccess,
    ) -> Result<(), TestCaseError> {
        self.hear(client);
        let found = self.state.judge(&self.clients[client], &id, &file(at), wanted);
        let expected = self.named(client, &id).and_then(|place| {
            let open = self.opens[place].clone();
            if open.file != at {
                Err(StateError::BadStateId)
            } else if open.share().0.contains(wanted) {
                Ok(())
            } else if wanted == READ {
                let wanted = (wanted, DENY_NONE);
                self.clear(client, Some(open.id), at, wanted, StateError::Locked)
            } else {
                Err(StateError::OpenMode)
            }
        });
        prop_assert_eq!(found, expected);
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Open { client, owner, file, access, deny } => {
                self.open(client, owner, file, (access, deny))?;
            }
            Step::Close { client, id, behind, file: at } => {
                self.hear(client);
                let id = self.id(id, behind);
                let key: Option<FileKey> = at.map(file);
                let found = self.state.close(&self.clients[client], &id, key.as_ref());
                let expected = self.named(client, &id).and_then(|place| {
                    if at.is_some_and(|at| at != self.opens[place].file) {
                        return Err(StateError::BadStateId);
                    }
                    self.opens.remove(place);
                    Ok(())
                });
                prop_assert_eq!(found, expected);
            }
            Step::Downgrade { client, id, behind, access, deny } => {
                let id = self.id(id, behind);
                self.downgrade(client, id, (access, deny))?;
            }
            Step::Judge { client, id, behind, file, access } => {
                let id = self.id(id, behind);
                self.judge(client, id, file, access)?;
            }
            Step::Special { client, is_bypass, file: at, access } => {
                self.hear(client);
                let id = if is_bypass { StateId::READ_BYPASS } else { StateId::ANONYMOUS };
                let found = self.state.judge(&self.clients[client], &id, &file(at), access);
                let expected = if is_bypass && access == READ {
                    Ok(())
                } else {
                    self.clear(client, None, at, (access, DENY_NONE), StateError::Locked)
                };
                prop_assert_eq!(found, expected);
            }
            Step::Wait { leases } => {
                self.now_ms += leases * LEASE_MS + 7;
                self.state.tick(self.now_ms);
            }
            Step::Restart { client } => self.restart(client),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.state.opens() as usize, self.opens.len());
        let mut files: Vec<u8> = self.opens.iter().map(|open| open.file).collect();
        files.sort_unstable();
        files.dedup();
        prop_assert_eq!(self.state.open_files(), files.len());
        for (place, open) in self.opens.iter().enumerate() {
            prop_assert_eq!(self.state.test(&self.clients[open.client], &open.id), Ok(()));
            // Invariant 4.
            for other in self.opens.iter().skip(place + 1).filter(|other| other.file == open.file) {
                prop_assert!(!conflicts(open.share(), other.share()), "{open:?} {other:?}");
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn opens_are_as_the_model_has_them(steps in proptest::collection::vec(step(), 0..60)) {
        let mut both = Both::new();
        for step in steps {
            both.step(step)?;
            both.check()?;
        }
        for client in 0..CLIENTS {
            if !both.is_gone[client] {
                both.state.remove_client(both.clients[client].id()).expect("alive");
            }
        }
        prop_assert_eq!((both.state.opens(), both.state.open_files()), (0, 0));
    }
}
