//! Slots: what SEQUENCE judges, and at most once. Rings: unit, property, threads.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{channel, create_with, exchange, sequence, session, state};
use proptest::prelude::*;
use steadfast_state::{
    Channel, Replayed, Sequence, Sequenced, Session, SlotInUse, State, StateError,
};

fn begun(session: &Arc<Session>, request: Sequence) -> SlotInUse {
    match session.begin(0, &request) {
        Ok(Sequenced::New(slot)) => slot,
        other => panic!("not new: {other:?}"),
    }
}

#[test]
fn threads_may_share_the_state_and_hand_over_requests() {
    fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<State>();
    is_shared::<Session>();
    is_shared::<SlotInUse>();
}

#[test]
fn a_finished_request_is_replayed() {
    let state = state();
    let session = session(&state, 0, "a", 1);
    let slot = begun(&session, Sequence { is_kept: true, ..sequence(0, 1) });
    assert_eq!((slot.slot(), slot.sequence(), slot.is_kept()), (0, 1, true));
    assert_eq!(slot.session().id(), session.id());
    assert!(matches!(session.begin(0, &sequence(0, 1)), Ok(Sequenced::InProgress)));
    slot.finish(Some(b"reply"));
    for _ in 0..2 {
        let replayed = session.begin(0, &sequence(0, 1));
        assert!(
            matches!(&replayed, Ok(Sequenced::Replay(Replayed::Kept(kept))) if **kept == *b"reply")
        );
    }
    begun(&session, sequence(0, 2)).finish(None);
    let replayed = session.begin(0, &sequence(0, 2));
    assert!(matches!(replayed, Ok(Sequenced::Replay(Replayed::NotKept))));
    drop(begun(&session, sequence(0, 3)));
    let replayed = session.begin(0, &sequence(0, 3));
    assert!(matches!(replayed, Ok(Sequenced::Replay(Replayed::NotKept))));
}

#[test]
fn a_reply_that_is_too_large_is_not_kept() {
    let state = state();
    let session = session(&state, 0, "a", 1);
    begun(&session, sequence(0, 1)).finish(Some(&[7; 2048]));
    let replayed = session.begin(0, &sequence(0, 1));
    assert!(matches!(replayed, Ok(Sequenced::Replay(Replayed::Kept(_)))));
    begun(&session, sequence(0, 2)).finish(Some(&[7; 2049]));
    let replayed = session.begin(0, &sequence(0, 2));
    assert!(matches!(replayed, Ok(Sequenced::Replay(Replayed::NotKept))));
}

#[test]
fn a_sequence_that_fails_changes_nothing_of_its_slot() {
    let state = state();
    let session = session(&state, 0, "a", 1);
    let good = sequence(7, 1);
    let rows = [
        (Sequence { slot: 8, ..good }, StateError::BadSlot),
        (Sequence { slot: u32::MAX, ..good }, StateError::BadSlot),
        (Sequence { highest_slot: 8, ..good }, StateError::BadHighSlot),
        (Sequence { request_bytes: (1 << 20) + 1, ..good }, StateError::RequestTooBig),
        (Sequence { operations: 17, ..good }, StateError::TooManyOperations),
        (Sequence { sequence: 0, ..good }, StateError::SequenceMisordered),
        (Sequence { sequence: 2, ..good }, StateError::SequenceMisordered),
        (Sequence { sequence: u32::MAX, ..good }, StateError::SequenceMisordered),
    ];
    for (request, expected) in rows {
        assert_eq!(session.begin(0, &request).map(|_| ()), Err(expected), "{request:?}");
    }
    let limit = Sequence { highest_slot: 7, request_bytes: 1 << 20, operations: 16, ..good };
    let slot = begun(&session, limit);
    let other = Sequence { digest: 1, ..good };
    assert_eq!(session.begin(0, &other).map(|_| ()), Err(StateError::FalseRetry));
    slot.finish(None);
    assert_eq!(session.begin(0, &other).map(|_| ()), Err(StateError::FalseRetry));
    assert!(matches!(session.begin(0, &good), Ok(Sequenced::Replay(Replayed::NotKept))));
}

#[test]
fn a_destroyed_session_lets_its_requests_end() {
    let state = state();
    let session = session(&state, 0, "a", 1);
    let finished = begun(&session, sequence(0, 1));
    let dropped = begun(&session, sequence(1, 1));
    state.destroy_session(session.id()).expect("destroyed");
    let refused = session.begin(0, &sequence(2, 1));
    assert_eq!(refused.map(|_| ()), Err(StateError::BadSession));
    drop(session);
    finished.finish(Some(b"reply"));
    drop(dropped);
}

#[test]
fn of_two_threads_with_one_request_one_executes_it() {
    const ROUNDS: u32 = 20_000;
    let state = state();
    let session = session(&state, 0, "a", 1);
    // Threads that wait by spinning begin within some ns of each other; one of them a little later,
    // by another time each round.
    let arrived = AtomicU32::new(0);
    let meet = |round: u32| {
        arrived.fetch_add(1, Ordering::Relaxed);
        let mut spins = 0_u32;
        while arrived.load(Ordering::Relaxed) < 2 * round {
            spins += 1;
            if spins.is_multiple_of(1024) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    };
    let new_of_thread = |delays: u32| {
        // A thread that panicked would let the other wait for ever.
        let (mut new, mut wrong) = (0, 0);
        for round in 1..=ROUNDS {
            meet(round);
            (0..round % delays).for_each(|_| std::hint::spin_loop());
            match session.begin(0, &sequence(0, round)) {
                Ok(Sequenced::New(slot)) => {
                    new += 1;
                    // Kept and not kept ones follow each other.
                    let reply = round.to_be_bytes();
                    slot.finish((round % 3 > 0).then_some(&reply[..]));
                }
                Ok(Sequenced::Replay(Replayed::Kept(kept))) => {
                    wrong += u32::from(*kept != round.to_be_bytes());
                }
                Ok(Sequenced::Replay(Replayed::NotKept)) => wrong += round % 3,
                Ok(Sequenced::InProgress) => (),
                Err(_) => wrong += 1,
            }
        }
        (new, wrong)
    };
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(move || new_of_thread(1));
        (new_of_thread(16), other.join().expect("no panic"))
    });
    assert_eq!((one.0 + other.0, one.1, other.1), (ROUNDS, 0, 0));
}

#[test]
fn a_retransmission_never_gets_the_reply_of_another_request() {
    const REQUESTS: u32 = 50_000;
    let state = state();
    let session = session(&state, 0, "a", 1);
    let latest = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=REQUESTS {
                let slot = begun(&session, sequence(0, number));
                latest.store(number, Ordering::Relaxed);
                slot.finish(Some(&number.to_be_bytes()));
            }
        });
        loop {
            let number = latest.load(Ordering::Relaxed);
            match session.begin(0, &sequence(0, number)) {
                Ok(Sequenced::Replay(Replayed::Kept(kept))) => {
                    assert_eq!(*kept, number.to_be_bytes());
                }
                Ok(Sequenced::InProgress) | Err(StateError::SequenceMisordered) => (),
                other => panic!("{other:?}"),
            }
            if number == REQUESTS {
                break;
            }
        }
    });
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A request whose sequence id is the slot's last one and `ahead`.
    Begin {
        slot: u32,
        ahead: i32,
        digest: u64,
        operations: u32,
    },
    /// The oldest request under way ends; with a reply of so many bytes, or dropped.
    End {
        reply_bytes: Option<usize>,
    },
    Drop,
}

fn step() -> impl Strategy<Value = Step> {
    let begin =
        (0..4_u32, -2..3, 0..2_u64, 1..=3_u32).prop_map(|(slot, ahead, digest, operations)| {
            Step::Begin { slot, ahead, digest, operations }
        });
    let usual = (0..3_u32, 0..2).prop_map(|(slot, ahead)| Step::Begin {
        slot,
        ahead,
        digest: 0,
        operations: 1,
    });
    let end = proptest::option::of(0..8_usize).prop_map(|reply_bytes| Step::End { reply_bytes });
    prop_oneof![3 => begin, 5 => usual, 4 => end, 1 => Just(Step::Drop)]
}

const SLOTS: u32 = 3;
const OPERATIONS_MAX: u32 = 2;
const REPLY_BYTES_MAX: usize = 4;

/// The naive model of a slot: what its last request was, and what became of it.
#[derive(Clone, Debug)]
struct Last {
    sequence: u32,
    digest: u64,
    became: Became,
}

#[derive(Clone, Debug, PartialEq)]
enum Became {
    UnderWay,
    Ended,
    Kept(Vec<u8>),
}

fn small_session(state: &State) -> Arc<Session> {
    let id = exchange(state, 0, "a", 1, "root").expect("new").client;
    let fore = Channel {
        requests_max: SLOTS,
        operations_max: OPERATIONS_MAX,
        response_bytes_cached_max: REPLY_BYTES_MAX as u32,
        ..channel()
    };
    let created = create_with(state, 0, id, 1, "root", fore).expect("created");
    state.session(&created.session).expect("created")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn slots_are_as_the_model_has_them(steps in proptest::collection::vec(step(), 0..80)) {
        let state = state();
        let session = small_session(&state);
        let mut model: HashMap<u32, Last> = HashMap::new();
        let mut under_way: Vec<SlotInUse> = Vec::new();
        let mut executed: HashMap<(u32, u32), u32> = HashMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Begin { slot, ahead, digest, operations } => {
                    let last = model.get(&slot).cloned();
                    let at = last.as_ref().map_or(0, |last| last.sequence);
                    let is_free =
                        last.as_ref().is_none_or(|last| last.became != Became::UnderWay);
                    let asked = at.wrapping_add_signed(ahead);
                    let request =
                        Sequence { digest, operations, ..sequence(slot, asked) };
                    let found = session.begin(0, &request);
                    if slot >= SLOTS {
                        prop_assert_eq!(found.map(|_| ()), Err(StateError::BadSlot));
                    } else if operations > OPERATIONS_MAX {
                        prop_assert_eq!(found.map(|_| ()), Err(StateError::TooManyOperations));
                    } else if ahead == 1 && is_free {
                        let Ok(Sequenced::New(begun)) = found else {
                            return Err(TestCaseError::fail("not new"));
                        };
                        *executed.entry((slot, asked)).or_default() += 1;
                        under_way.push(begun);
                        let became = Became::UnderWay;
                        model.insert(slot, Last { sequence: asked, digest, became });
                    } else if let Some(last) = last.filter(|_| ahead == 0) {
                        match (last.digest == digest, last.became, found) {
                            (false, _, Err(StateError::FalseRetry))
                            | (true, Became::UnderWay, Ok(Sequenced::InProgress))
                            | (true, Became::Ended, Ok(Sequenced::Replay(Replayed::NotKept))) => (),
                            (
                                true,
                                Became::Kept(reply),
                                Ok(Sequenced::Replay(Replayed::Kept(kept))),
                            ) => prop_assert_eq!(&*kept, &*reply),
                            other => return Err(TestCaseError::fail(format!("{other:?}"))),
                        }
                    } else {
                        prop_assert_eq!(found.map(|_| ()), Err(StateError::SequenceMisordered));
                    }
                }
                Step::End { reply_bytes } if !under_way.is_empty() => {
                    let ended = under_way.remove(0);
                    let reply = reply_bytes.map(|bytes| vec![number as u8; bytes]);
                    let last = model.get_mut(&ended.slot()).expect("begun");
                    prop_assert_eq!(last.sequence, ended.sequence());
                    ended.finish(reply.as_deref());
                    let kept = reply.filter(|reply| reply.len() <= REPLY_BYTES_MAX);
 last.became = kept.map_or(Became::Ended, Became::Kept);
                }
                Step::Drop if !under_way.is_empty() => {
                    let dropped = under_way.remove(0);
                    model.get_mut(&dropped.slot()).expect("begun").became = Became::Ended;
                }
                Step::End { .. } | Step::Drop => (),
            }
        }
        prop_assert!(executed.values().all(|times| *times == 1));
    }
}
