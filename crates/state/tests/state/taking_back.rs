//! What was granted to requests that failed afterwards. Rings: unit.

use std::sync::Arc;

use crate::common::{BOTH, DENY_NONE, DENY_READ, DENY_WRITE, READ, WRITE, client, file, state};
use steadfast_state::{
    Client, Granted, Image, Lock, LockBy, LockError, LockKind, LockRange, Open, Repeats,
    ShareAccess, ShareDeny, State, StateError, StateId,
};

fn grant(
    state: &State,
    client: &Arc<Client>,
    owner: &[u8],
    share: (ShareAccess, ShareDeny),
) -> Result<Granted, StateError> {
    let request = Open { owner, file: file(1), access: share.0, deny: share.1 };
    state.grant_open(client, &request, Repeats::None)
}

fn lock(
    state: &State,
    client: &Arc<Client>,
    by: LockBy<'_>,
    kind: LockKind,
    (offset, length): (u64, u64),
) -> Result<Granted, LockError> {
    let range = LockRange { offset, length };
    let request = Lock { file: file(1), kind, range, by, is_waited_for: false };
    state.grant_lock(client, &request, None)
}

#[test]
fn an_open_that_failed_denies_nothing_to_anybody() {
    let state = state();
    let [one, two] = ["a", "b"].map(|owner| client(&state, 0, owner));
    let share = (BOTH, DENY_WRITE);
    let granted = grant(&state, &one, b"o", share).expect("granted");
    assert_eq!(grant(&state, &two, b"o", share).err(), Some(StateError::ShareDenied));
    assert_eq!(grant(&state, &one, b"o", share).err(), Some(StateError::ShareDenied));
    let id = granted.id();
    state.take_back(granted);
    assert_eq!((state.opens(), state.open_files()), (0, 0));
    assert_eq!(state.test(&one, &id), Err(StateError::BadStateId));
    drop(grant(&state, &one, b"o", share).expect("its owner may open it again"));
    assert_eq!(state.opens(), 1);
}

#[test]
fn of_an_upgrade_what_it_added_goes() {
    let state = state();
    let [one, two] = ["a", "b"].map(|owner| client(&state, 0, owner));
    let first = grant(&state, &one, b"o", (READ, DENY_NONE)).expect("granted").id();
    let upgrade = grant(&state, &one, b"o", (WRITE, DENY_WRITE)).expect("granted");
    assert_eq!(upgrade.id(), StateId { seqid: 2, ..first });
    state.take_back(upgrade);
    // The client knows the stateid of before only.
    assert_eq!(state.test(&one, &first), Ok(()));
    assert_eq!(state.judge(&one, &first, &file(1), WRITE), Err(StateError::OpenMode));
    let other = grant(&state, &two, b"o", (WRITE, DENY_NONE)).expect("nobody denies it").id();
    state.close(&two, &other, None).expect("open");
    // What was asked for before stays, though the OPEN that failed asked for it too.
    let same = grant(&state, &one, b"o", (READ, DENY_NONE)).expect("granted");
    state.take_back(same);
    assert_eq!(state.judge(&one, &first, &file(1), READ), Ok(()));
    assert_eq!(grant(&state, &two, b"o", (READ, DENY_READ)).err(), Some(StateError::ShareDenied));
}

#[test]
fn what_two_opens_asked_for_goes_with_the_last_of_them() {
    for first_fails in [true, false] {
        let state = state();
        let client = client(&state, 0, "a");
        let share = (READ, DENY_WRITE);
        let one = grant(&state, &client, b"o", share).expect("granted");
        let two = grant(&state, &client, b"o", share).expect("granted");
        let (failed, other) = if first_fails { (one, two) } else { (two, one) };
        state.take_back(failed);
        assert_eq!(state.opens(), 1);
        // One that was answered cannot be taken back with another.
        drop(other);
        let three = grant(&state, &client, b"o", share).expect("granted");
        state.take_back(three);
        assert_eq!(state.opens(), 1);
    }
}

#[test]
fn of_a_lock_what_its_owner_had_before_stays() {
    let state = state();
    let [one, two] = ["a", "b"].map(|owner| client(&state, 0, owner));
    let open = grant(&state, &one, b"o", (BOTH, DENY_NONE)).expect("granted").id();
    let theirs = grant(&state, &two, b"o", (BOTH, DENY_NONE)).expect("granted").id();
    let by_open = LockBy::Open { open, owner: b"l" };
    let new = lock(&state, &one, by_open, LockKind::Write, (0, 10)).expect("free");
    let new_id = new.id();
    state.take_back(new);
    assert_eq!(state.test(&one, &new_id), Err(StateError::BadStateId));
    assert!(state.locks(&file(1)).is_empty());

    let held = lock(&state, &one, by_open, LockKind::Read, (5, 10)).expect("free").id();
    let wide = lock(&state, &one, LockBy::Lock(held), LockKind::Write, (0, 100)).expect("free");
    state.take_back(wide);
    assert_eq!(state.test(&one, &held), Ok(()));
    let left: Vec<_> = state.locks(&file(1)).iter().map(|lock| (lock.range, lock.kind)).collect();
    assert_eq!(left, [(LockRange { offset: 5, length: 10 }, LockKind::Read)]);
    let by_them = LockBy::Open { open: theirs, owner: b"l" };
    let read = lock(&state, &two, by_them, LockKind::Read, (0, 100)).expect("reads share").id();

    // What it let go of meanwhile, others may have.
    let less = lock(&state, &one, LockBy::Lock(held), LockKind::Read, (5, 10)).expect("its own");
    let id = less.id();
    state.unlock(&one, &id, &file(1), LockRange { offset: 5, length: 5 }).expect("unlocked");
    state.take_back(less);
    let range = LockRange { offset: 0, length: 100 };
    state.unlock(&two, &read, &file(1), range).expect("unlocked");
    let left: Vec<_> = state.locks(&file(1)).iter().map(|lock| lock.range).collect();
    assert_eq!(left, [LockRange { offset: 10, length: 5 }]);
}

#[test]
fn a_lock_that_was_answered_stays_when_an_earlier_one_fails() {
    // By the stateid of the lock that fails, by the open of that, and by another open of the file.
    for by in 0..3 {
        let state = state();
        let client = client(&state, 0, "a");
        let [open, other] = [&b"o"[..], b"p"]
            .map(|owner| grant(&state, &client, owner, (BOTH, DENY_NONE)).expect("granted").id());
        let by_open = LockBy::Open { open, owner: b"l" };
        let failed = lock(&state, &client, by_open, LockKind::Write, (0, 100)).expect("free");
        let by = match by {
            0 => LockBy::Lock(failed.id()),
            1 => by_open,
            _ => LockBy::Open { open: other, owner: b"l" },
        };
        let answered = lock(&state, &client, by, LockKind::Write, (0, 50)).expect("its own").id();
        state.take_back(failed);
        assert_eq!(state.test(&client, &answered), Ok(()));
        let left: u64 = state.locks(&file(1)).iter().map(|lock| lock.range.length).sum();
        assert_eq!(left, 100);
    }
}

#[test]
fn a_stateid_that_was_told_by_unlocking_stays() {
    let state = state();
    let client = client(&state, 0, "a");
    let open = grant(&state, &client, b"o", (BOTH, DENY_NONE)).expect("granted").id();
    let by_open = LockBy::Open { open, owner: b"l" };
    let failed = lock(&state, &client, by_open, LockKind::Write, (0, 100)).expect("free");
    let answered = lock(&state, &client, by_open, LockKind::Write, (200, 50)).expect("free").id();
    let range = LockRange { offset: 200, length: 50 };
    let told = state.unlock(&client, &answered, &file(1), range).expect("unlocked");
    state.take_back(failed);
    assert_eq!(state.test(&client, &told), Ok(()));
}

#[test]
fn a_write_lock_that_became_a_read_lock_in_vain_is_one_again() {
    for others_read in [false, true] {
        let state = state();
        let [one, two] = ["a", "b"].map(|owner| client(&state, 0, owner));
        let [by_one, by_two] = [&one, &two].map(|client| {
            let open = grant(&state, client, b"o", (BOTH, DENY_NONE)).expect("granted").id();
            LockBy::Open { open, owner: b"l" }
        });
        drop(lock(&state, &one, by_one, LockKind::Write, (0, 10)).expect("free"));
        let less = lock(&state, &one, by_one, LockKind::Read, (0, 10)).expect("its own");
        if others_read {
            drop(lock(&state, &two, by_two, LockKind::Read, (0, 10)).expect("reads share"));
        }
        state.take_back(less);
        let kinds: Vec<_> = state.locks(&file(1)).iter().map(|lock| lock.kind).collect();
        let expected =
            if others_read { vec![LockKind::Read, LockKind::Read] } else { vec![LockKind::Write] };
        assert_eq!(kinds, expected);
    }
}

#[test]
fn what_another_request_was_told_by_downgrading_stays() {
    let share = (BOTH, DENY_WRITE);
    // The request that fails has downgraded the open itself, or another one has; and another OPEN that is
    // not settled asked for the same, or none.
    for (by_itself, is_asked_twice) in [(true, false), (true, true), (false, false)] {
        let state = state();
        let client = client(&state, 0, "a");
        let failed = grant(&state, &client, b"o", share).expect("granted");
        let other = is_asked_twice.then(|| {
            let request = Open { owner: b"o", file: file(1), access: BOTH, deny: DENY_WRITE };
            state.grant_open(&client, &request, Repeats::Reclaim).expect("its own")
        });
        let id = StateId { seqid: 0, ..failed.id() };
        let own = if by_itself { &[&failed][..] } else { &[] };
        state.downgrade_granted(&client, &id, &file(1), share, own).expect("the same share");
        drop(other);
        state.take_back(failed);
        assert_eq!(state.opens(), u32::from(!by_itself || is_asked_twice));
    }
}

#[test]
fn whichever_of_two_fails_first_the_client_knows_the_seqid_that_is_left() {
    for first_fails_first in [true, false] {
        let state = state();
        let client = client(&state, 0, "a");
        let told = grant(&state, &client, b"o", (READ, DENY_NONE)).expect("granted").id();
        let by_open = LockBy::Open { open: told, owner: b"l" };
        let locked = lock(&state, &client, by_open, LockKind::Read, (0, 5)).expect("free").id();
        let opens =
            [(); 2].map(|()| grant(&state, &client, b"o", (READ, DENY_NONE)).expect("more"));
        let [one, two] = opens;
        let [one_lock, two_lock] = [10, 20].map(|at| {
            lock(&state, &client, by_again(locked), LockKind::Read, (at, 5)).expect("free")
        });
        let (first, last) = if first_fails_first { (one, two) } else { (two, one) };
        state.take_back(first);
        state.take_back(last);
        let (first, last) =
            if first_fails_first { (one_lock, two_lock) } else { (two_lock, one_lock) };
        state.take_back(first);
        state.take_back(last);
        let old = StateError::OldStateId;
        for id in [told, locked] {
            assert_eq!(state.test(&client, &id), Ok(()), "not {old}");
            let later = StateId { seqid: 2, ..id };
            assert_eq!(state.test(&client, &later), Err(StateError::BadStateId));
        }
    }
}

fn by_again(id: StateId) -> LockBy<'static> {
    LockBy::Lock(StateId { seqid: 0, ..id })
}

#[test]
fn locks_that_fail_together_go_together() {
    let state = state();
    let client = client(&state, 0, "a");
    let [open, other] = [&b"o"[..], b"p"]
        .map(|owner| grant(&state, &client, owner, (BOTH, DENY_NONE)).expect("granted").id());
    let granted: Vec<_> = [(open, 0), (other, 5), (open, 50)]
        .into_iter()
        .map(|(open, offset)| {
            let by = LockBy::Open { open, owner: b"l" };
            lock(&state, &client, by, LockKind::Write, (offset, 10)).expect("its own")
        })
        .collect();
    for granted in granted.into_iter().rev() {
        state.take_back(granted);
    }
    assert!(state.locks(&file(1)).is_empty());
}

#[test]
fn locks_go_with_an_open_that_is_taken_back() {
    let state = state();
    let [one, two] = ["a", "b"].map(|owner| client(&state, 0, owner));
    let open = grant(&state, &one, b"o", (BOTH, DENY_NONE)).expect("granted");
    let by_open = LockBy::Open { open: open.id(), owner: b"l" };
    drop(lock(&state, &one, by_open, LockKind::Write, (0, 10)).expect("free"));
    state.take_back(open);
    let theirs = grant(&state, &two, b"o", (BOTH, DENY_NONE)).expect("granted").id();
    let by_them = LockBy::Open { open: theirs, owner: b"l" };
    drop(lock(&state, &two, by_them, LockKind::Write, (0, 10)).expect("free"));
}

#[test]
fn who_reclaims_may_ask_again_for_what_it_has() {
    let state = state();
    let [one, two] = ["a", "b"].map(|owner| client(&state, 0, owner));
    let request = |owner| Open { owner, file: file(1), access: BOTH, deny: DENY_WRITE };
    let first = state.open(&one, &request(b"o")).expect("granted");
    let again = state.grant_open(&one, &request(b"o"), Repeats::Reclaim).expect("its own");
    assert_eq!(again.id(), StateId { seqid: 2, ..first });
    state.take_back(again);
    assert_eq!(state.test(&one, &first), Ok(()), "the first one stays");
    let denied = Err(StateError::ShareDenied);
    let open = |client, owner, repeats| {
        state.grant_open(client, &request(owner), repeats).map(|granted| granted.id())
    };
    assert_eq!(open(&one, b"o", Repeats::None), denied);
    assert_eq!(open(&one, b"o", Repeats::AfterRestart), denied, "it was not restarted");
    assert_eq!(open(&one, b"p", Repeats::Reclaim), denied, "another owner's");
    assert_eq!(open(&two, b"o", Repeats::Reclaim), denied);
    let more = Open { deny: DENY_READ | DENY_WRITE, ..request(b"o") };
    let more = state.grant_open(&one, &more, Repeats::Reclaim);
    assert_eq!(more.err(), Some(StateError::ShareDenied), "it never had that");
}

#[test]
fn after_a_restart_an_owner_may_ask_once_for_what_it_has() {
    let before = state();
    before.begin_keeping();
    let id = {
        let client = client(&before, 0, "a");
        grant(&before, &client, b"o", (BOTH, DENY_WRITE)).expect("granted").id()
    };
    let mut events = Vec::new();
    before.take_events(&mut events);
    let mut image = Image::default();
    image.add(&events).expect("events");
    let state = state();
    state.restore(0, image);
    let report = state.clients(0).pop().expect("restored");
    let client = state.client(report.id).expect("restored");
    let request = Open { owner: b"o", file: file(1), access: BOTH, deny: DENY_WRITE };
    let grant = || state.grant_open(&client, &request, Repeats::AfterRestart);
    let open = || grant().map(|granted| granted.id());
    // One that fails may be asked for again.
    let failed = grant().expect("it may come again");
    state.take_back(failed);
    assert_eq!(state.opens(), 1, "an earlier one may have been answered");
    assert_eq!(open(), Ok(StateId { seqid: 2, ..id }));
    assert_eq!(open(), Err(StateError::ShareDenied));
    // One that is to be finished by the process after it can be taken back by that.
    let latest = StateId { seqid: 2, ..id };
    let share_of_both_deny_write = (3 << 2 | 2) + 1;
    // Of one that others have followed nothing is taken back.
    let earlier = StateId { seqid: 1, ..id };
    let granted = state.granted_before(&client, earlier, share_of_both_deny_write).expect("open");
    state.take_back(granted);
    assert_eq!(state.opens(), 1);
    let granted = state.granted_before(&client, latest, share_of_both_deny_write).expect("open");
    state.take_back(granted);
    assert_eq!(state.opens(), 0);
}

#[test]
fn the_next_process_takes_back_nothing_that_another_open_had_asked_for() {
    let state = state();
    let client = client(&state, 0, "a");
    let first = grant(&state, &client, b"o", (BOTH, DENY_NONE)).expect("granted");
    let second = grant(&state, &client, b"o", (BOTH, DENY_NONE)).expect("granted");
    assert!(first.added() > 0, "it was the first to ask");
    assert_eq!(second.added(), 0, "the first may have been answered before a kill");
    state.take_back(second);
    state.take_back(first);
    assert_eq!(state.opens(), 0, "in one process both are known to have failed");
}

/// RFC 9754 §4: a delegation stands for it.
#[test]
fn an_open_is_left_out_unless_another_has_asked_for_it_meanwhile() {
    let state = state();
    let [one, two] = ["a", "b"].map(|owner| client(&state, 0, owner));
    let granted = grant(&state, &one, b"o", (BOTH, DENY_WRITE)).expect("granted");
    assert!(state.leave_out(granted).is_none());
    assert_eq!((state.opens(), state.open_files()), (0, 0));
    let other = grant(&state, &two, b"o", (WRITE, DENY_NONE)).expect("nobody denies it").id();
    state.close(&two, &other, None).expect("open");
    // The owner's second OPEN is told of seqid 2, which its client takes after seqid 1 only.
    let first = grant(&state, &one, b"o", (READ, DENY_NONE)).expect("granted");
    let second = grant(&state, &one, b"o", (READ, DENY_NONE)).expect("granted");
    assert_eq!(second.id(), StateId { seqid: 2, ..first.id() });
    assert!(state.leave_out(first).is_some(), "the second has it, too");
    assert!(state.leave_out(second).is_some(), "it was there already");
    assert_eq!(state.opens(), 1);
}
