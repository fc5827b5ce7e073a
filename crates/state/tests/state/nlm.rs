//! Hosts that speak NLM: each operation, and hosts and clients of NFSv4.1 together against an array
//! of bytes. Rings: unit, property.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::common::{
    BOTH, DENY_NONE, DENY_READ, DENY_WRITE, LEASE_MS, READ, WRITE, client, file, sequence, session,
    state, state_with,
};
use crate::local::Shown;
use proptest::prelude::*;
use steadfast_state::{
    Client, ClientId, Effect, GrantAnswer, Host, Lock, LockBy, LockError, LockKind, LockRange,
    NlmError, NlmLock, NlmOwner, NlmTaken, Open, Sequenced, State, StateError, StateId,
};

const ALL: LockRange = LockRange { offset: 0, length: u64::MAX };

fn address(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
}

fn host(state: &State, number: u8) -> Host {
    state.host(0, format!("host{number}").as_bytes(), address(number)).expect("host")
}

fn owner(svid: u32) -> NlmOwner {
    NlmOwner { svid, oh: svid.to_string().into_bytes().into() }
}

fn range(offset: u64, length: u64) -> LockRange {
    LockRange { offset, length }
}

fn ask(
    state: &State,
    host: &Host,
    svid: u32,
    kind: LockKind,
    range: LockRange,
    waits: bool,
) -> Result<(), NlmError> {
    let note = Arc::from(svid.to_be_bytes().as_slice());
    let (owner, waits) = (owner(svid), waits.then_some(&note));
    state.nlm_lock(host, &NlmLock { file: file(1), owner: &owner, range, kind, waits })
}

fn unlock(state: &State, host: &Host, svid: u32, range: LockRange) {
    state.nlm_unlock(host, &file(1), &owner(svid), range).expect("unlock");
}

fn writes(state: &State, host: &Host, svid: u32, waits: bool) -> Result<(), NlmError> {
    ask(state, host, svid, LockKind::Write, ALL, waits)
}

/// The processes that were granted what they wait for, in order.
fn granted(state: &State) -> Vec<u32> {
    let process = |effect: Effect| match effect {
        Effect::Granted { owner, note, .. } => {
            assert_eq!(*note, owner.svid.to_be_bytes());
            owner.svid
        }
        Effect::Free { .. }
        | Effect::Recall { .. }
        | Effect::AskHolder { .. }
        | Effect::Answered { .. }
        | Effect::Returned { .. }
        | Effect::Undelegated { .. } => {
            panic!("a host is granted what it waits for")
        }
    };
    state.take_effects().into_iter().map(process).collect()
}

fn answer(state: &State, host: &Host, svid: u32, is_wanted: bool) {
    let owner = owner(svid);
    let known = state.begin_call_about_grant(host, &file(1), &owner, ALL, LockKind::Write);
    assert!(known, "{svid}");
    let says = if is_wanted { GrantAnswer::Wanted } else { GrantAnswer::Refused };
    let answered = state.answer_grant(host, &file(1), &owner, ALL, LockKind::Write, says);
    answered.expect("answer");
    assert!(!state.is_grant_unanswered(host, &file(1), &owner, ALL, LockKind::Write));
}

/// Linux refuses a lock that it has taken already: by an answer that was lost.
#[test]
fn who_was_called_twice_and_refuses_may_have_the_lock() {
    let state = state();
    let (one, two, three) = (host(&state, 1), host(&state, 2), host(&state, 3));
    writes(&state, &one, 1, false).expect("free");
    assert!(writes(&state, &two, 2, true).is_err());
    assert!(writes(&state, &three, 3, true).is_err());
    unlock(&state, &one, 1, ALL);
    assert_eq!(granted(&state), [2]);
    let call = || state.begin_call_about_grant(&two, &file(1), &owner(2), ALL, LockKind::Write);
    let refuses = || {
        let says = GrantAnswer::Refused;
        state.answer_grant(&two, &file(1), &owner(2), ALL, LockKind::Write, says).expect("answer");
    };
    // Nobody has asked yet: that is of an earlier grant.
    refuses();
    assert!(call() && call());
    refuses();
    assert!(!call());
    assert_eq!(granted(&state), []);
    assert!(writes(&state, &one, 1, false).is_err());
    // Who has it not, though, gives it up as it cancels its wait.
    let cancelled = state.nlm_cancel(&two, &file(1), &owner(2), ALL, LockKind::Write);
    assert_eq!(cancelled, Ok(true));
    assert_eq!(granted(&state), [3]);
}

/// A lock-owner of NFSv4.1.
fn nfs4(state: &State, name: &str) -> (Arc<Client>, StateId) {
    let client = client(state, 0, name);
    let request = Open { owner: b"o", file: file(1), access: BOTH, deny: DENY_NONE };
    let open = state.open(&client, &request).expect("open");
    (client, open)
}

fn nfs4_writes(
    state: &State,
    (client, open): &(Arc<Client>, StateId),
    waits: bool,
) -> Result<StateId, LockError> {
    let by = LockBy::Open { open: *open, owner: b"l" };
    let kind = LockKind::Write;
    let lock = Lock { file: file(1), kind, range: ALL, by, is_waited_for: waits };
    state.lock(client, &lock)
}

#[test]
fn locks_of_both_protocols_exclude_each_other() {
    let state = state();
    let (one, four) = (host(&state, 1), nfs4(&state, "four"));
    writes(&state, &one, 7, false).expect("free");
    match nfs4_writes(&state, &four, false) {
        Err(LockError::Denied(conflict)) => {
            assert_eq!((conflict.offset, conflict.length), (0, u64::MAX));
        }
        other => panic!("{other:?}"),
    }
    unlock(&state, &one, 7, ALL);
    nfs4_writes(&state, &four, false).expect("free");
    let denied = writes(&state, &one, 7, false);
    let tested = state.nlm_test(&one, &file(1), &owner(7), range(5, 1), LockKind::Read);
    for denied in [denied, tested] {
        match denied {
            Err(NlmError::Denied(holder)) => {
                assert_eq!((holder.owner.svid, holder.range), (0, ALL));
            }
            other => panic!("{other:?}"),
        }
    }
    // What is left is the client's open.
    assert_eq!((state.opens(), state.hosts_with_locks().len()), (1, 0));
}

#[test]
fn who_waits_is_granted_the_lock_in_turn_and_tells_whether_it_wants_it() {
    let state = state();
    let (one, two) = (host(&state, 1), host(&state, 2));
    writes(&state, &one, 1, false).expect("free");
    for (host, svid) in [(&two, 2), (&one, 3), (&two, 4), (&two, 2)] {
        assert_eq!(writes(&state, host, svid, true), Err(NlmError::Blocked));
    }
    assert_eq!(granted(&state), []);
    unlock(&state, &one, 1, ALL);
    assert_eq!(granted(&state), [2]);
    // It has the lock before it is told.
    assert!(writes(&state, &one, 1, false).is_err());
    answer(&state, &two, 2, true);
    unlock(&state, &two, 2, ALL);
    assert_eq!(granted(&state), [3]);
    answer(&state, &one, 3, false);
    assert_eq!(granted(&state), [4]);
    // Whoever repeats the request has heard of it.
    writes(&state, &two, 4, true).expect("granted");
    assert!(!state.is_grant_unanswered(&two, &file(1), &owner(4), ALL, LockKind::Write));
    unlock(&state, &two, 4, ALL);
    assert_eq!((state.opens(), state.open_files()), (0, 0));
}

#[test]
fn a_client_of_nfs4_that_unlocks_or_expires_lets_a_host_go_on() {
    let state = state();
    let (one, four) = (host(&state, 1), nfs4(&state, "four"));
    let id = nfs4_writes(&state, &four, false).expect("free");
    assert_eq!(writes(&state, &one, 1, true), Err(NlmError::Blocked));
    state.unlock(&four.0, &id, &file(1), ALL).expect("unlock");
    assert_eq!(granted(&state), [1]);
    unlock(&state, &one, 1, ALL);

    nfs4_writes(&state, &four, false).expect("free");
    assert_eq!(writes(&state, &one, 1, true), Err(NlmError::Blocked));
    state.tick(LEASE_MS);
    assert_eq!(granted(&state), []);
    state.tick(LEASE_MS + 1);
    assert_eq!(granted(&state), [1]);
    assert_eq!(state.locks(&file(1)).len(), 1);
}

#[test]
fn what_was_kept_for_a_client_of_nfs4_goes_to_the_host_behind_it() {
    let state = state();
    let (one, two, four) = (host(&state, 1), host(&state, 2), nfs4(&state, "four"));
    writes(&state, &one, 1, false).expect("free");
    assert!(nfs4_writes(&state, &four, true).is_err());
    assert_eq!(writes(&state, &two, 2, true), Err(NlmError::Blocked));
    unlock(&state, &one, 1, ALL);
    state.tick(1000);
    assert_eq!(granted(&state), []);
    state.tick(3500);
    assert_eq!(granted(&state), [2]);
}

#[test]
fn who_cancels_has_what_it_had_before() {
    let state = state();
    let (one, two) = (host(&state, 1), host(&state, 2));
    let cancel = |host: &Host, svid| {
        let cancelled = state.nlm_cancel(host, &file(1), &owner(svid), ALL, LockKind::Write);
        cancelled.expect("cancel")
    };
    assert!(!cancel(&one, 1));
    ask(&state, &one, 1, LockKind::Read, range(0, 10), false).expect("free");
    ask(&state, &two, 2, LockKind::Read, range(0, 10), false).expect("shared");
    assert_eq!(writes(&state, &two, 2, true), Err(NlmError::Blocked));
    assert!(cancel(&two, 2));
    unlock(&state, &one, 1, ALL);
    assert_eq!(granted(&state), []);

    // The grant crosses the CANCEL.
    ask(&state, &one, 1, LockKind::Read, range(0, 10), false).expect("shared");
    assert_eq!(writes(&state, &two, 2, true), Err(NlmError::Blocked));
    unlock(&state, &one, 1, ALL);
    assert_eq!(granted(&state), [2]);
    assert!(cancel(&two, 2));
    let held = state.locks(&file(1));
    assert_eq!(held.len(), 1);
    assert_eq!((held[0].range, held[0].kind), (range(0, 10), LockKind::Read));
    unlock(&state, &two, 2, ALL);
    assert_eq!((state.opens(), state.open_files()), (0, 0));
}

#[test]
fn a_host_that_restarts_loses_what_it_had_once() {
    let state = state();
    let (one, two) = (host(&state, 1), host(&state, 2));
    state.host_heard(&one, 3);
    writes(&state, &one, 1, false).expect("free");
    assert_eq!(writes(&state, &two, 2, true), Err(NlmError::Blocked));
    // Not from elsewhere, not by another name, not what is known.
    assert!(!state.host_restarted(b"host1", address(2), 5));
    assert!(!state.host_restarted(b"host", address(1), 5));
    assert!(!state.host_restarted(b"host1", address(1), 3));
    assert_eq!(granted(&state), []);
    assert!(state.host_restarted(b"host1.example.org", address(1), 5));
    assert_eq!(granted(&state), [2]);
    unlock(&state, &two, 2, ALL);

    state.host_heard(&one, 5);
    writes(&state, &one, 1, false).expect("free");
    assert!(!state.host_restarted(b"host1", address(1), 5), "told again");
    assert_eq!(state.hosts_with_locks().len(), 1);
    // Its first lock may come before its monitor's message.
    state.host_heard(&one, 7);
    assert_eq!(state.hosts_with_locks().len(), 0);
}

#[test]
fn reservations_are_opens_that_others_meet() {
    let state = state();
    let (one, two) = (host(&state, 1), host(&state, 2));
    let four = client(&state, 0, "four");
    let open = |access| {
        let request = Open { owner: b"o", file: file(1), access, deny: DENY_NONE };
        state.open(&four, &request)
    };
    let share =
        |host, owner: &[u8], access, deny| state.nlm_share(host, &file(1), owner, access, deny);
    share(&one, b"a", READ, DENY_WRITE).expect("free");
    share(&one, b"a", READ, DENY_WRITE).expect("again");
    assert_eq!(open(WRITE), Err(StateError::ShareDenied));
    assert_eq!(share(&two, b"a", WRITE, DENY_NONE), Err(StateError::ShareDenied));
    open(READ).expect("read");
    assert_eq!(share(&one, b"a", READ, DENY_READ), Err(StateError::ShareDenied));
    share(&one, b"a", READ, DENY_NONE).expect("less");
    open(WRITE).expect("write");
    // A lock of the host is none of its reservations.
    writes(&state, &one, 1, false).expect("free");
    unlock(&state, &one, 1, ALL);
    state.nlm_unshare(&one, &file(1), b"a");
    state.nlm_unshare(&one, &file(1), b"a");
    assert_eq!(state.opens(), 1);
}

#[test]
fn what_a_host_was_told_it_has_stays_when_an_earlier_request_fails() {
    let state = state();
    let host = host(&state, 1);
    let file = file(1);
    for is_overtaken in [true, false] {
        let share = NlmTaken::Share(b"o");
        let before = state.nlm_before(&host, &file, &share).expect("its own");
        for _ in 0..=u32::from(is_overtaken) {
            state.nlm_share(&host, &file, b"o", READ, DENY_READ).expect("free");
        }
        state.nlm_take_back(&host, &file, &share, &before).expect("its own");
        assert_eq!(state.opens(), u32::from(is_overtaken), "a share");
        state.nlm_unshare(&host, &file, b"o");

        let owner = owner(1);
        let lock = NlmTaken::Lock(&owner, range(0, 10));
        let before = state.nlm_before(&host, &file, &lock).expect("its own");
        let locked = ask(&state, &host, 1, LockKind::Write, range(0, 10), false);
        assert_eq!(locked, Ok(()));
        if is_overtaken {
            let locked = ask(&state, &host, 1, LockKind::Write, range(0, 5), false);
            assert_eq!(locked, Ok(()));
        }
        state.nlm_take_back(&host, &file, &lock, &before).expect("its own");
        assert_eq!(state.locks(&file).len(), usize::from(is_overtaken), "a lock");
        unlock(&state, &host, 1, range(0, 10));
    }
}

#[test]
fn no_owner_of_nfs4_is_a_host_and_no_client_id_either() {
    let state = state();
    let one = host(&state, 1);
    writes(&state, &one, 1, false).expect("free");
    let four = client(&state, 0, "host1");
    assert_eq!(state.hosts_with_locks().len(), 1);
    let hosts: Vec<ClientId> =
        state.clients(0).iter().map(|report| report.id).filter(|id| *id != four.id()).collect();
    assert_eq!(hosts.len(), 1);
    assert_eq!(state.destroy_client(0, hosts[0]), Err(StateError::StaleClientId));
    let created = crate::common::create(&state, 0, hosts[0], 1, "root");
    assert!(matches!(created, Err(StateError::StaleClientId)));
    // A day is nothing to a host.
    state.tick(2 * crate::common::DAY_MS);
    assert_eq!(state.hosts_with_locks().len(), 1);
    state.remove_client(hosts[0]).expect("known");
    assert_eq!((state.opens(), state.hosts_with_locks().len()), (0, 0));
    assert_eq!(writes(&state, &one, 1, false), Err(StateError::Expired.into()));
}

#[test]
fn what_a_host_can_make_is_bounded() {
    let state = state_with(|limits| {
        limits.ranges_a_client_max = 3;
        limits.clients_max = 1;
    });
    let one = host(&state, 1);
    for offset in [0, 10, 20] {
        ask(&state, &one, 1, LockKind::Write, range(offset, 5), false).expect("room");
    }
    let more = ask(&state, &one, 1, LockKind::Write, range(30, 5), false);
    assert_eq!(more, Err(StateError::TryLater.into()));
    assert_eq!(state.nlm_unlock(&one, &file(1), &owner(1), range(1, 1)), Err(StateError::TryLater));
    // One that has locks makes no room for another.
    let other = state.host(0, b"other", address(9));
    assert_eq!(other.map(drop), Err(StateError::TryLater));
    unlock(&state, &one, 1, ALL);
    let other = state.host(0, b"other", address(9)).expect("room");
    writes(&state, &other, 1, false).expect("free");
    for svid in 2..66 {
        assert_eq!(writes(&state, &other, svid, true), Err(NlmError::Blocked));
    }
    assert_eq!(writes(&state, &other, 66, true), Err(NlmError::Crowded));
}

#[test]
fn an_address_has_so_many_names_whatever_it_calls_itself() {
    let state = state();
    let of = |number: u32| state.host(0, format!("name{number}").as_bytes(), address(1));
    for number in 0..1000 {
        let host = of(number).expect("those without locks leave");
        if number < 63 {
            ask(&state, &host, number, LockKind::Read, ALL, false).expect("both read");
        }
    }
    assert!(state.known_host(0, b"name0", address(1)).is_some());
    assert!(state.known_host(0, b"name999", address(1)).is_some());
    assert!(state.known_host(0, b"name998", address(1)).is_none());
    ask(&state, &of(999).expect("known"), 1, LockKind::Read, ALL, false).expect("both read");
    assert_eq!(of(1000).map(drop), Err(StateError::TryLater));
    assert!(state.host(0, b"other", address(2)).is_ok());
}

#[test]
fn hosts_without_locks_are_recorded_anew_before_they_get_one() {
    let state = state();
    let [one, two, three] = [1, 2, 3].map(|number| host(&state, number));
    for host in [&one, &two, &three] {
        host.set_recorded();
    }
    writes(&state, &one, 1, false).expect("free");
    let in_use = two.begin_use();
    let named = |state: &State| -> Vec<Vec<u8>> {
        state.hosts_in_use().iter().map(|host| host.name().to_vec()).collect()
    };
    assert_eq!(named(&state), [b"host1".to_vec(), b"host2".to_vec()]);
    assert!(one.is_recorded() && !three.is_recorded());
    drop(in_use);
    assert_eq!(named(&state), [b"host1"]);
    assert!(!two.is_recorded());
    unlock(&state, &one, 1, ALL);
    assert!(named(&state).is_empty() && !one.is_recorded());
}

#[test]
fn who_waits_for_an_owner_does_not_keep_it_from_a_lock_that_becomes_free() {
    let state = state();
    let [a, b, c] = [1, 2, 3].map(|number| host(&state, number));
    ask(&state, &b, 2, LockKind::Read, range(0, 5), false).expect("free");
    ask(&state, &c, 3, LockKind::Write, range(10, 10), false).expect("free");
    let waits = [(&a, 1, range(0, 20)), (&b, 2, range(10, 10))];
    for (host, svid, range) in waits {
        let asked = ask(&state, host, svid, LockKind::Write, range, true);
        assert_eq!(asked, Err(NlmError::Blocked));
    }
    unlock(&state, &c, 3, ALL);
    assert_eq!(granted(&state), [2], "otherwise A waited for B, and B for A");
    unlock(&state, &b, 2, ALL);
    assert_eq!(granted(&state), [1]);
}

#[test]
fn a_thread_waits_on_while_another_of_its_process_locks_and_unlocks_beside_it() {
    let state = state();
    let [a, b] = [1, 2].map(|number| host(&state, number));
    ask(&state, &b, 2, LockKind::Read, range(0, 10), false).expect("free");
    let waits = || ask(&state, &a, 1, LockKind::Write, range(0, 10), true);
    assert_eq!(waits(), Err(NlmError::Blocked));
    // Less than it waits for.
    ask(&state, &a, 1, LockKind::Read, range(0, 10), false).expect("both read");
    unlock(&state, &a, 1, range(5, 1));
    unlock(&state, &b, 2, ALL);
    assert_eq!(granted(&state), [1]);
    unlock(&state, &a, 1, ALL);
    // All of it.
    ask(&state, &b, 2, LockKind::Write, range(0, 10), false).expect("free");
    assert_eq!(waits(), Err(NlmError::Blocked));
    unlock(&state, &a, 1, range(0, 10));
    unlock(&state, &b, 2, ALL);
    assert_eq!((granted(&state), state.hosts_with_locks().len()), (vec![], 0));
}

#[test]
fn a_host_waits_for_a_client_that_has_no_lease_and_a_request_under_way() {
    let state = state();
    let one = host(&state, 1);
    let session = session(&state, 0, "four", 1);
    let client = Arc::clone(session.client());
    let request = Open { owner: b"o", file: file(1), access: BOTH, deny: DENY_NONE };
    let open = state.open(&client, &request).expect("open");
    nfs4_writes(&state, &(client, open), false).expect("free");
    let Ok(Sequenced::New(under_way)) = session.begin(0, &sequence(0, 1)) else { panic!("new") };
    let now_ms = LEASE_MS + 1;
    state.tick(now_ms);
    assert_eq!(writes(&state, &one, 1, true), Err(NlmError::Blocked));
    assert!(matches!(writes(&state, &one, 2, false), Err(NlmError::Denied(_))));
    state.tick(now_ms + 1000);
    assert_eq!(granted(&state), []);
    drop(under_way);
    // With which its lease began anew.
    state.tick(now_ms + LEASE_MS);
    assert_eq!(granted(&state), []);
    state.tick(now_ms + 2 * LEASE_MS);
    assert_eq!(granted(&state), [1]);
}

#[test]
fn grace_lasts_as_long_as_was_said() {
    let state = state();
    assert!(!state.is_in_grace(0));
    state.begin_grace(1000, 90_000);
    assert!(state.is_in_grace(90_999) && !state.is_in_grace(91_000));
}

const BYTES: usize = 12;

#[derive(Clone, Copy, Debug)]
enum What {
    Ask { who: usize, kind: LockKind, first: usize, last: usize, waits: bool },
    Unlock { who: usize, first: usize, last: usize },
    Cancel { who: usize },
    Answer { who: usize, is_wanted: bool },
    Restart { host: u8 },
}

fn what() -> impl Strategy<Value = What> {
    let who = 0..PROCESSES;
    let kind = prop_oneof![Just(LockKind::Read), Just(LockKind::Write)];
    let bytes = (0..BYTES, 0..BYTES).prop_map(|(one, other)| (one.min(other), one.max(other)));
    let ask = (who.clone(), kind, bytes.clone(), any::<bool>())
        .prop_map(|(who, kind, (first, last), waits)| What::Ask { who, kind, first, last, waits });
    let unlock =
        (who.clone(), bytes).prop_map(|(who, (first, last))| What::Unlock { who, first, last });
    let answer = (who.clone(), proptest::bool::weighted(0.8))
        .prop_map(|(who, is_wanted)| What::Answer { who, is_wanted });
    prop_oneof![
        10 => ask,
        8 => unlock,
        2 => who.prop_map(|who| What::Cancel { who }),
        2 => answer,
        1 => (0..2_u8).prop_map(|host| What::Restart { host }),
    ]
}

/// Processes 0 to 3 are of two hosts, 4 and 5 of clients of NFSv4.1, which do not wait here.
const PROCESSES: usize = 6;

fn of_bytes(first: usize, last: usize) -> LockRange {
    range(first as u64, (last - first + 1) as u64)
}

/// What a process waits for, or was granted and has not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Wait {
    who: usize,
    kind: LockKind,
    first: usize,
    last: usize,
}

#[derive(Default)]
struct Model {
    bytes: [[Option<LockKind>; PROCESSES]; BYTES],
    waits: Vec<Wait>,
    grants: Vec<(Wait, Vec<Option<LockKind>>)>,
}

fn conflict(one: LockKind, other: LockKind) -> bool {
    one == LockKind::Write || other == LockKind::Write
}

impl Model {
    fn is_free(&self, wait: &Wait) -> bool {
        self.bytes[wait.first..=wait.last].iter().all(|byte| {
            let others = byte.iter().enumerate().filter(|(who, _)| *who != wait.who);
            !others.filter_map(|(_, kind)| *kind).any(|kind| conflict(kind, wait.kind))
        })
    }

    /// Whether a process keeps another from what that waits for.
    fn keeps(&self, who: usize, wait: &Wait) -> bool {
        self.bytes[wait.first..=wait.last]
            .iter()
            .any(|byte| byte[who].is_some_and(|kind| conflict(kind, wait.kind)))
    }

    fn comes_first(before: &Wait, wait: &Wait) -> bool {
        before.who != wait.who
            && conflict(before.kind, wait.kind)
            && before.first <= wait.last
            && wait.first <= before.last
    }

    fn set(&mut self, who: usize, first: usize, last: usize, kind: Option<LockKind>) {
        for byte in &mut self.bytes[first..=last] {
            byte[who] = kind;
        }
        self.grants
            .retain(|(grant, _)| grant.who != who || grant.last < first || last < grant.first);
    }

    /// Grants what is free, in order; who was granted something.
    fn grant(&mut self) -> Vec<usize> {
        let mut granted = Vec::new();
        loop {
            let mut has_granted = false;
            let mut waits: Vec<Wait> = Vec::new();
            for wait in std::mem::take(&mut self.waits) {
                let is_kept_out = !self.is_free(&wait)
                    || waits.iter().any(|before| {
                        Self::comes_first(before, &wait) && !self.keeps(wait.who, before)
                    });
                if is_kept_out {
                    waits.push(wait);
                    continue;
                }
                let Wait { who, kind, first, last } = wait;
                let before = self.bytes[first..=last].iter().map(|byte| byte[who]).collect();
                self.set(who, first, last, Some(kind));
                self.grants.push((wait, before));
                granted.push(who);
                has_granted = true;
            }
            self.waits = waits;
            if !has_granted {
                return granted;
            }
        }
    }

    fn refuse(&mut self, place: usize) {
        let (Wait { who, kind, first, last }, before) = self.grants.remove(place);
        self.set(who, first, last, None);
        for (byte, before) in (first..).zip(before) {
            self.bytes[byte][who] = before.map(|before| before.min(kind));
        }
    }
}

struct Run {
    state: State,
    hosts: [Host; 2],
    nfs4: [(Arc<Client>, StateId); 2],
    ids: [Option<StateId>; 2],
    model: Model,
    shown: Shown,
    restarts: u32,
}

impl Run {
    fn new() -> Self {
        let state = state();
        let shown = Shown::watching(&state);
        let hosts = [1, 2].map(|number| host(&state, number));
        let nfs4 = ["a", "b"].map(|name| nfs4(&state, name));
        Self { state, hosts, nfs4, ids: [None; 2], model: Model::default(), shown, restarts: 1 }
    }

    fn step(&mut self, what: What) {
        match what {
            What::Ask { who, kind, first, last, waits } => self.ask(who, kind, first, last, waits),
            What::Unlock { who, first, last } => {
                let range = of_bytes(first, last);
                if let Some(place) = who.checked_sub(4) {
                    let Some(id) = self.ids[place] else { return };
                    let client = &self.nfs4[place].0;
                    let unlocked = self.state.unlock(client, &id, &file(1), range);
                    self.ids[place] = Some(unlocked.expect("unlock"));
                } else {
                    unlock(&self.state, &self.hosts[who / 2], who as u32, range);
                    self.model
                        .waits
                        .retain(|wait| wait.who != who || wait.first < first || last < wait.last);
                }
                self.model.set(who, first, last, None);
            }
            What::Cancel { who } => {
                let of = |wait: &Wait| wait.who == who;
                let wait = self.model.waits.iter().find(|wait| of(wait)).copied();
                let grant = self.model.grants.iter().position(|(grant, _)| of(grant));
                let Some(Wait { kind, first, last, .. }) =
                    wait.or(grant.map(|place| self.model.grants[place].0))
                else {
                    return;
                };
                let (host, range) = (&self.hosts[who / 2], of_bytes(first, last));
                let cancelled =
                    self.state.nlm_cancel(host, &file(1), &owner(who as u32), range, kind);
                assert_eq!(cancelled, Ok(true));
                match (wait, grant) {
                    (Some(_), _) => {
                        let waits = &mut self.model.waits;
                        let place = waits.iter().position(of).expect("found");
                        waits.remove(place);
                    }
                    (None, Some(place)) => self.model.refuse(place),
                    (None, None) => {}
                }
            }
            What::Answer { who, is_wanted } => {
                let of = |(grant, _): &(Wait, _)| grant.who == who;
                let Some(place) = self.model.grants.iter().position(of) else { return };
                let Wait { kind, first, last, .. } = self.model.grants[place].0;
                let (host, owner) = (&self.hosts[who / 2], owner(who as u32));
                let range = of_bytes(first, last);
                let (state, at) = (&self.state, file(1));
                assert!(state.begin_call_about_grant(host, &at, &owner, range, kind));
                let says = if is_wanted { GrantAnswer::Wanted } else { GrantAnswer::Refused };
                state.answer_grant(host, &at, &owner, range, kind, says).expect("answer");
                if is_wanted {
                    self.model.grants.remove(place);
                } else {
                    self.model.refuse(place);
                }
            }
            What::Restart { host } => {
                self.restarts += 2;
                let name = format!("host{}", host + 1);
                let at = address(host + 1);
                assert!(self.state.host_restarted(name.as_bytes(), at, self.restarts));
                let its = [2 * usize::from(host), 2 * usize::from(host) + 1];
                self.model.waits.retain(|wait| !its.contains(&wait.who));
                for who in its {
                    self.model.set(who, 0, BYTES - 1, None);
                }
            }
        }
    }

    fn ask(&mut self, who: usize, kind: LockKind, first: usize, last: usize, waits: bool) {
        let wait = Wait { who, kind, first, last };
        let is_it = |other: &Wait| {
            other.who == who && other.kind == kind && (other.first, other.last) == (first, last)
        };
        let before = self.model.waits.iter().take_while(|other| !is_it(other));
        let is_first = !before
            .filter(|before| Model::comes_first(before, &wait))
            .any(|before| !self.model.keeps(who, before));
        let is_free = self.model.is_free(&wait) && is_first;
        let range = of_bytes(first, last);
        if let Some(place) = who.checked_sub(4) {
            let (client, open) = &self.nfs4[place];
            let by = match self.ids[place] {
                Some(id) => LockBy::Lock(id),
                None => LockBy::Open { open: *open, owner: b"l" },
            };
            let lock = Lock { file: file(1), kind, range, by, is_waited_for: false };
            match self.state.lock(client, &lock) {
                Ok(id) => self.ids[place] = Some(id),
                Err(LockError::Denied(_)) => assert!(!is_free),
                Err(error) => panic!("{error}"),
            }
        } else {
            let host = &self.hosts[who / 2];
            match ask(&self.state, host, who as u32, kind, range, waits) {
                Ok(()) => assert!(is_free),
                Err(NlmError::Denied(_)) => assert!(!is_free && !waits),
                Err(NlmError::Blocked) => assert!(!is_free && waits),
                Err(error) => panic!("{error}"),
            }
        }
        if is_free {
            self.model.waits.retain(|other| {
                other.who != who || other.first < first || last < other.last || other.kind > kind
            });
            self.model.set(who, first, last, Some(kind));
        } else if waits && who < 4 && !self.model.waits.iter().any(is_it) {
            self.model.waits.push(wait);
        }
    }

    fn check(&mut self) {
        let expected: Vec<u32> = self.model.grant().into_iter().map(|who| who as u32).collect();
        assert_eq!(granted(&self.state), expected);
        let mut bytes = [[None; PROCESSES]; BYTES];
        for lock in self.state.locks(&file(1)).iter().filter(|lock| !lock.is_waiting) {
            let who = match self.nfs4.iter().position(|(client, _)| client.id() == lock.client) {
                Some(place) => place + 4,
                None => usize::from(lock.owner[3]),
            };
            for byte in lock.range.offset..lock.range.offset + lock.range.length {
                bytes[byte as usize][who] = Some(lock.kind);
            }
        }
        assert_eq!(bytes, self.model.bytes);
        self.shown.check(&self.state, &[file(1)]);
        let waits = self.state.locks(&file(1)).iter().filter(|lock| lock.is_waiting).count();
        assert_eq!(waits, self.model.waits.len());
        let has = |host: usize| {
            let of = |who: usize| who < 4 && who / 2 == host;
            self.model.waits.iter().any(|wait| of(wait.who))
                || bytes.iter().any(|byte| (0..4).any(|who| of(who) && byte[who].is_some()))
        };
        let using = [0, 1].into_iter().filter(|host| has(*host)).count();
        assert_eq!(self.state.hosts_with_locks().len(), using);
        assert_eq!(self.state.opens() as usize, 2 + using);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn hosts_and_clients_lock_as_an_array_of_bytes_says(
        steps in prop::collection::vec(what(), 1..60),
    ) {
        let mut run = Run::new();
        for step in steps {
            run.step(step);
            run.check();
        }
    }
}
