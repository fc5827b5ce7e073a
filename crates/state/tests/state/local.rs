//! What is told for local processes: what is locked by anybody, and what of that changes; and hosts
//! that wait for local processes. Rings: unit; [`Shown`] serves the properties of others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use steadfast_state::{
    Effect, FileKey, GrantAnswer, Host, LockKind, LockRange, NlmError, NlmLock, NlmOwner, State,
    StateError,
};

use crate::common::{file, state};

const WHOLE: LockRange = LockRange { offset: 0, length: u64::MAX };
/// Bytes that are looked at: the first ones and the last ones.
const EDGE: u64 = 48;

/// What somebody knows who looks at what is told as changed, and nothing else.
#[derive(Default)]
pub(crate) struct Shown(HashMap<FileKey, HashMap<u64, LockKind>>);

fn bytes() -> impl Iterator<Item = u64> {
    (0..EDGE).chain(u64::MAX - EDGE + 1..=u64::MAX)
}

fn last(range: LockRange) -> u64 {
    match range.length {
        u64::MAX => u64::MAX,
        length => range.offset + (length - 1),
    }
}

fn has(range: LockRange, byte: u64) -> bool {
    range.offset <= byte && byte <= last(range)
}

impl Shown {
    pub(crate) fn watching(state: &State) -> Self {
        state.watch_locks();
        Self::default()
    }

    /// Looks, and compares all of these files with what is locked there.
    pub(crate) fn check(&mut self, state: &State, files: &[FileKey]) {
        for (file, range) in state.take_changed_locks() {
            let shown = self.0.entry(file).or_default();
            shown.retain(|byte, _| !has(range, *byte));
            let parts = state.locked_parts(&file, range).expect("a range");
            let mut behind = Some(range.offset);
            for (part, kind) in parts {
                assert!(behind.is_some_and(|behind| behind <= part.offset), "parts in order");
                let last = last(part);
                assert!(has(range, part.offset) && has(range, last));
                behind = last.checked_add(1);
                shown.extend(bytes().filter(|byte| has(part, *byte)).map(|byte| (byte, kind)));
            }
        }
        for file in files {
            let locks = state.locks(file);
            let mut held = HashMap::new();
            for byte in bytes() {
                let locks = locks.iter().filter(|lock| !lock.is_waiting && has(lock.range, byte));
                if let Some(kind) = locks.map(|lock| lock.kind).max() {
                    held.insert(byte, kind);
                }
            }
            assert_eq!(self.0.get(file).cloned().unwrap_or_default(), held);
            assert_eq!(state.has_locks(file), !locks.is_empty());
        }
    }
}

fn host(state: &State, number: u8) -> Host {
    state.host(0, b"h", IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))).expect("host")
}

/// Held back, or asked as usual.
fn ask(state: &State, host: &Host, svid: u32, is_held_back: bool) -> Result<(), NlmError> {
    let owner = NlmOwner { svid, oh: (*b"o").into() };
    let note: Arc<[u8]> = Arc::from(&b"note"[..]);
    let (file, kind) = (file(1), LockKind::Write);
    let request = NlmLock { file, owner: &owner, range: WHOLE, kind, waits: Some(&note) };
    if is_held_back { state.nlm_hold_back(host, &request) } else { state.nlm_lock(host, &request) }
}

fn granted(state: &State) -> Vec<u32> {
    let granted = state.take_effects().into_iter();
    granted
        .filter_map(|effect| match effect {
            Effect::Granted { owner, .. } => Some(owner.svid),
            Effect::Free { .. }
            | Effect::Recall { .. }
            | Effect::AskHolder { .. }
            | Effect::Answered { .. }
            | Effect::Returned { .. }
            | Effect::Undelegated { .. } => None,
        })
        .collect()
}

#[test]
fn who_waits_for_a_local_process_is_granted_the_lock_a_second_later() {
    let state = state();
    let one = host(&state, 1);
    assert_eq!(ask(&state, &one, 1, true), Err(NlmError::Blocked));
    state.tick(500);
    assert!(granted(&state).is_empty());
    // Nobody comes in between.
    assert_eq!(ask(&state, &host(&state, 2), 2, false), Err(NlmError::Blocked));
    state.tick(1000);
    assert_eq!(granted(&state), [1]);
    // A local process was quicker: it waits on, behind the other now.
    let owner = NlmOwner { svid: 1, oh: (*b"o").into() };
    state
        .answer_grant(&one, &file(1), &owner, WHOLE, LockKind::Write, GrantAnswer::TakenBack)
        .expect("answer");
    assert_eq!(ask(&state, &one, 1, true), Err(NlmError::Blocked));
    assert_eq!(granted(&state), [2]);
    assert_eq!(state.locks(&file(1)).len(), 2);
}

#[test]
fn who_was_the_last_to_wait_is_told_of_as_a_change() {
    let state = state();
    state.watch_locks();
    let (one, two) = (host(&state, 1), host(&state, 2));
    let owner = |svid| NlmOwner { svid, oh: (*b"o").into() };
    assert_eq!(ask(&state, &one, 1, false), Ok(()));
    assert_eq!(ask(&state, &two, 2, true), Err(NlmError::Blocked));
    state.nlm_unlock(&one, &file(1), &owner(1), WHOLE).expect("unlocked");
    state.take_changed_locks();
    assert!(state.has_locks(&file(1)), "somebody waits");
    let cancelled = state.nlm_cancel(&two, &file(1), &owner(2), WHOLE, LockKind::Write);
    assert_eq!(cancelled, Ok(true));
    assert_eq!(state.take_changed_locks(), [(file(1), WHOLE)], "the file may be let go");
}

#[test]
fn who_waits_for_a_local_process_may_cancel_and_leaves_nothing() {
    let state = state();
    let one = host(&state, 1);
    let owner = NlmOwner { svid: 1, oh: (*b"o").into() };
    assert_eq!(ask(&state, &one, 1, true), Err(NlmError::Blocked));
    assert!(state.has_locks(&file(1)));
    let cancelled = state.nlm_cancel(&one, &file(1), &owner, WHOLE, LockKind::Write);
    assert_eq!(cancelled, Ok(true));
    assert!(!state.has_locks(&file(1)));
    assert_eq!(state.opens(), 0);
    // Who does not wait is told to come again.
    let request =
        NlmLock { file: file(1), owner: &owner, range: WHOLE, kind: LockKind::Read, waits: None };
    let refused = state.nlm_hold_back(&one, &request);
    assert_eq!(refused, Err(NlmError::State(StateError::TryLater)));
    assert_eq!(state.opens(), 0);
    state.tick(5000);
    assert!(granted(&state).is_empty());
}
