//! Looks at files that are delegated to write: who is asked, and whose answer is of use. Rings: unit, property.

use std::sync::Arc;

use proptest::prelude::*;
use steadfast_state::{
    Change, Client, DelegationKind, Effect, HolderSays, State, StateError, StateId, StoredLook,
};

use crate::common::{BOTH, DENY_NONE, LEASE_MS, file};
use crate::delegations::{client, delegate, open, state};

const GIVEN: u64 = 100;
const STORED: StoredLook = StoredLook { change: GIVEN, size: 7 };
const SAME: HolderSays = HolderSays { change: GIVEN, size: 7 };

/// The questions, how many recalls, and how often the file was free again.
fn effects(state: &State) -> (Vec<u64>, usize, usize) {
    let (mut questions, mut recalls, mut returned) = (Vec::new(), 0, 0);
    for effect in state.take_effects() {
        match effect {
            Effect::AskHolder { file: of, handle, not_before_ms, question, .. } => {
                assert_eq!((of, &*handle), (file(1), &b"handle"[..]));
                assert_eq!(not_before_ms, 1_001, "a second after the grant");
                questions.push(question);
            }
            Effect::Recall { .. } => recalls += 1,
            Effect::Returned { .. } => returned += 1,
            other => panic!("{other:?}"),
        }
    }
    (questions, recalls, returned)
}

fn granted(state: &State, holder: &Arc<Client>) -> StateId {
    let id = delegate(state, 1, holder, DelegationKind::Write).expect("alone");
    state.change_is_given(&file(1), &id, GIVEN);
    id
}

fn says(state: &State, now_ms: u64, id: &StateId, question: u64, says: HolderSays) -> bool {
    state.holder_says(now_ms, (&file(1), id), question, says)
}

/// Looks at a file of which the storage has this.
fn look_at(
    state: &State,
    now_ms: u64,
    by: Option<&Arc<Client>>,
    stored: StoredLook,
) -> Result<(), StateError> {
    while let Some(at) = state.begin_look(now_ms, by, &file(1))? {
        if state.end_look(now_ms, &at, stored)? {
            return Ok(());
        }
    }
    Ok(())
}

fn look(state: &State, now_ms: u64, by: Option<&Arc<Client>>) -> Result<(), StateError> {
    look_at(state, now_ms, by, STORED)
}

#[test]
fn a_holder_that_has_changed_nothing_is_asked_once_and_keeps_its_delegation() {
    let state = state();
    let (holder, other) = (client(&state, "a"), client(&state, "b"));
    let (holder, other) = (holder.client(), other.client());
    assert_eq!(look(&state, 1, None), Ok(()), "nobody has a delegation");
    let id = granted(&state, holder);
    assert_eq!(look(&state, 5, Some(holder)), Ok(()), "its own look");
    for by in [None, Some(other), None] {
        assert_eq!(look(&state, 5, by), Err(StateError::Asking));
    }
    assert_eq!(effects(&state), (vec![1], 0, 0));
    assert!(state.is_holder_asked(&file(1), &id, 1) && !state.is_holder_asked(&file(1), &id, 2));
    assert!(says(&state, 6, &id, 1, SAME) && !says(&state, 6, &id, 1, SAME));
    assert!(!state.is_holder_asked(&file(1), &id, 1));
    assert_eq!(look(&state, 6, Some(other)), Ok(()));
    assert_eq!(look(&state, 1_006, None), Ok(()), "by the same answer");
    // It writes something at the server: what it said is of before.
    drop(state.begin_change(1_006, Some(holder), &file(1)).expect("own"));
    assert_eq!(look(&state, 1_006, None), Err(StateError::Asking));
    assert_eq!(effects(&state), (vec![2], 0, 0));
    let written = StoredLook { change: 300, size: 9 };
    // It tells what it was given, or what there is.
    assert!(says(&state, 1_007, &id, 2, HolderSays { change: GIVEN, size: 9 }));
    assert_eq!(look_at(&state, 1_007, None, written), Ok(()));
    assert_eq!(look(&state, 2_008, None), Err(StateError::Asking));
    assert!(says(&state, 2_008, &id, 3, HolderSays { change: 300, size: 9 }));
    assert_eq!(look_at(&state, 2_008, None, written), Ok(()));
    assert_eq!((state.delegation_counts().asked, state.delegation_counts().recalled), (3, 0));
    state.return_delegation(holder, &id, None).expect("held");
    assert_eq!(look(&state, 2_009, None), Ok(()));
    assert_eq!(effects(&state), (vec![3], 0, 0), "nobody waits");
}

#[test]
fn whatever_else_it_says_has_the_delegation_recalled() {
    for (change, size) in [(GIVEN + 1, 7), (GIVEN - 1, 7), (GIVEN, 8), (GIVEN, 6)] {
        let state = state();
        let holder = client(&state, "a");
        let id = granted(&state, holder.client());
        assert_eq!(look(&state, 2_000, None), Err(StateError::Asking));
        assert!(says(&state, 2_001, &id, 1, HolderSays { change, size }));
        assert_eq!(look(&state, 2_001, None), Err(StateError::Recalling));
        assert_eq!(effects(&state), (vec![1], 1, 0), "{change} {size}");
        assert_eq!(look(&state, 2_002, None), Err(StateError::Recalling));
        state.return_delegation(holder.client(), &id, None).expect("held");
        assert_eq!((effects(&state), look(&state, 2_003, None)), ((vec![], 0, 1), Ok(())));
    }
}

#[test]
fn who_does_not_answer_has_it_recalled() {
    // In time; or what it has answered is nonsense.
    for is_nonsense in [false, true] {
        let state = state();
        let (holder, other) = (client(&state, "a"), client(&state, "b"));
        let (holder, other) = (holder.client(), other.client());
        let id = granted(&state, holder);
        assert_eq!(look(&state, 2_000, None), Err(StateError::Asking));
        if is_nonsense {
            assert!(!state.holder_is_mute(2_001, (&file(1), &id), 2), "of no question");
            assert!(state.holder_is_mute(2_001, (&file(1), &id), 1));
        } else {
            assert_eq!(look(&state, 3_999, Some(other)), Err(StateError::Asking));
            assert_eq!(look(&state, 4_000, Some(other)), Err(StateError::Recalling));
        }
        assert_eq!(effects(&state), (vec![1], 1, 0));
        // Too late, and not asked again.
        assert!(!says(&state, 4_001, &id, 1, SAME));
        assert!(!state.holder_is_mute(4_001, (&file(1), &id), 1));
        assert_eq!(look(&state, 4_001, None), Err(StateError::Recalling));
        assert_eq!(effects(&state), (vec![], 0, 0));
        state.return_delegation(holder, &id, None).expect("held");
        assert_eq!((effects(&state), look(&state, 4_002, None)), ((vec![], 0, 1), Ok(())));
    }
}

#[test]
fn a_question_that_was_lost_long_ago_is_asked_again() {
    let state = state();
    let holder = client(&state, "a");
    let id = granted(&state, holder.client());
    assert_eq!(look(&state, 2_000, None), Err(StateError::Asking));
    // The holder's lease is renewed all the time.
    assert_eq!(look(&state, LEASE_MS / 2, None), Err(StateError::Asking));
    assert_eq!(effects(&state), (vec![1, 2], 0, 0));
    assert!(!says(&state, LEASE_MS / 2, &id, 1, SAME) && says(&state, LEASE_MS / 2, &id, 2, SAME));
    assert_eq!(look(&state, LEASE_MS / 2, None), Ok(()));
}

#[test]
fn an_answer_is_void_while_the_holder_changes_the_file() {
    let state = state();
    let holder = client(&state, "a");
    let holder = holder.client();
    let id = granted(&state, holder);
    // From before the question on; or it begins later; or what was stored is of before.
    let under_way = state.begin_change(1_999, Some(holder), &file(1)).expect("own");
    assert_eq!(look(&state, 2_000, None), Err(StateError::Asking));
    drop(under_way);
    assert!(says(&state, 2_100, &id, 1, SAME));
    assert_eq!(look(&state, 2_100, None), Err(StateError::Asking));
    drop(state.begin_change(2_200, Some(holder), &file(1)).expect("own"));
    assert!(says(&state, 2_300, &id, 2, SAME));
    assert_eq!(look(&state, 2_300, None), Err(StateError::Asking));
    assert!(says(&state, 2_400, &id, 3, SAME));
    let at = state.begin_look(2_400, None, &file(1)).expect("answered").expect("delegated");
    drop(state.begin_change(2_500, Some(holder), &file(1)).expect("own"));
    assert_eq!(state.end_look(2_500, &at, STORED), Ok(false));
    assert_eq!(effects(&state), (vec![1, 2, 3], 0, 0));
    // The delegation is returned while the storage is read.
    assert_eq!(look(&state, 2_500, None), Err(StateError::Asking));
    assert!(says(&state, 2_501, &id, 4, SAME));
    let at = state.begin_look(2_501, None, &file(1)).expect("answered").expect("delegated");
    state.return_delegation(holder, &id, None).expect("held");
    assert_eq!(state.end_look(2_501, &at, STORED), Ok(false));
    assert_eq!(look(&state, 2_501, None), Ok(()));
}

#[test]
fn who_waits_for_an_answer_is_woken_by_the_return_too() {
    let state = state();
    let holder = client(&state, "a");
    let id = granted(&state, holder.client());
    assert_eq!(look(&state, 5, None), Err(StateError::Asking));
    state.return_delegation(holder.client(), &id, None).expect("held");
    assert_eq!(effects(&state), (vec![1], 0, 1));
    assert!(!says(&state, 6, &id, 1, SAME));
    assert_eq!(look(&state, 6, None), Ok(()));
}

#[test]
fn an_answer_is_good_though_the_delegation_is_recalled_meanwhile() {
    let state = state();
    let (holder, other) = (client(&state, "a"), client(&state, "b"));
    let id = granted(&state, holder.client());
    assert_eq!(look(&state, 5, None), Err(StateError::Asking));
    let opened = open(&state, other.client(), BOTH, DENY_NONE);
    assert_eq!(opened, Err(StateError::Recalling));
    assert!(says(&state, 6, &id, 1, SAME));
    assert_eq!(look(&state, 7, None), Ok(()));
    // Nobody is asked any more.
    assert_eq!(look(&state, 2_000, None), Err(StateError::Recalling));
    assert_eq!(effects(&state), (vec![1], 1, 0));
}

#[test]
fn who_cannot_be_asked_is_not() {
    // One without a connection.
    let state = state();
    let holder = client(&state, "a");
    granted(&state, holder.client());
    holder.unbind_back(1);
    assert_eq!(look(&state, 5, None), Err(StateError::Recalling));
    assert_eq!(effects(&state), (vec![], 1, 0));
    // One that is dead: it loses all that it has.
    let state = self::state();
    let holder = client(&state, "a");
    granted(&state, holder.client());
    assert_eq!(look(&state, LEASE_MS + 2, None), Ok(()));
    assert_eq!(state.delegations(), 0);
    // One to read is in nobody's way.
    let state = self::state();
    let holder = client(&state, "a");
    delegate(&state, 1, holder.client(), DelegationKind::Read).expect("alone");
    assert_eq!(look(&state, 5, None), Ok(()));
    assert_eq!(effects(&state), (vec![], 0, 0));
}

/// A question, and what the holder was like since.
#[derive(Debug, Default)]
struct Question {
    /// Whether there was a moment when the server had all that the holder has.
    was_clean: bool,
    /// Whether the holder was changing the file at the server.
    was_changed: bool,
}

/// A holder, its file and its replies under way.
struct Model<'s> {
    state: &'s State,
    holder: Arc<Client>,
    now_ms: u64,
    disk: StoredLook,
    size: u64,
    is_dirty: bool,
    /// A WRITE that is on its way: the holder takes it for written.
    under_way: Option<(Change<'s>, u64)>,
    questions: Vec<Question>,
    replies: Vec<(u64, HolderSays)>,
    /// The last question that was answered, when, and whether there had been such a moment.
    answered: Option<(usize, u64, bool)>,
}

impl Model<'_> {
    fn note(&mut self) {
        let is_clean = !self.is_dirty && self.under_way.is_none();
        for question in &mut self.questions {
            question.was_clean |= is_clean;
            question.was_changed |= self.under_way.is_some();
        }
    }

    /// Whether the answer by which somebody was told is one.
    fn is_known(&self) -> bool {
        self.answered.is_some_and(|(place, at_ms, was_clean)| {
            was_clean && !self.questions[place].was_changed && self.now_ms <= at_ms + 1_000
        })
    }
}

proptest! {
    /// Answers, changes at the server and elsewhere, looks: a look ends without a recall only if the server had all
    /// of the file at some moment between question and answer, and the holder has changed nothing there since the
    /// question.
    #[test]
    fn nobody_is_told_what_is_behind(
        steps in proptest::collection::vec((0..9_u8, 0..40_u64), 1..200),
    ) {
        let state = state();
        let holder = client(&state, "a");
        let id = granted(&state, holder.client());
        let mut model = Model {
            state: &state,
            holder: Arc::clone(holder.client()),
            now_ms: 2_000,
            disk: STORED,
            size: STORED.size,
            is_dirty: false,
            under_way: None,
            questions: Vec::new(),
            replies: Vec::new(),
            answered: None,
        };
        for (step, by) in steps {
            model.now_ms += by * 5;
            let now_ms = model.now_ms;
            match step {
                0 => (model.is_dirty, model.size) = (true, model.size + by % 2),
                1 if model.is_dirty && model.under_way.is_none() => {
                    let change = state.begin_change(now_ms, Some(&model.holder), &file(1));
                    model.under_way = Some((change.expect("its own"), model.size));
                    model.is_dirty = false;
                }
                2 => if let Some((change, size)) = model.under_way.take() {
                    model.disk = StoredLook { change: now_ms * 1_000, size };
                    drop(change);
                },
                // The holder reads a question, perhaps again, and answers; that comes later.
                3 | 4 if !model.questions.is_empty() => {
                    let last = model.questions.len() as u64;
                    let question = last - by % last.min(3);
                    let change = GIVEN + u64::from(model.is_dirty);
                    model.replies.push((question, HolderSays { change, size: model.size }));
                }
                5 | 6 if !model.replies.is_empty() => {
                    let at = by as usize % model.replies.len();
                    let (question, told) = model.replies[at];
                    if says(&state, now_ms, &id, question, told) {
                        let place = question as usize - 1;
                        // What comes later is no moment between question and answer.
                        let was_clean = model.questions[place].was_clean;
                        model.answered = Some((place, now_ms, was_clean));
                    }
                }
                _ => {
                    let disk = model.disk;
                    let seen = look_at(&state, now_ms, None, disk);
                    let (asked, recalls, _) = effects(&state);
                    for question in asked {
                        prop_assert_eq!(question, model.questions.len() as u64 + 1);
                        model.questions.push(Question::default());
                    }
                    match seen {
                        Ok(()) => prop_assert!(model.is_known(), "{:?}", model.questions),
                        Err(StateError::Recalling) => {
                            prop_assert_eq!(recalls, 1);
                            break;
                        }
                        Err(error) => prop_assert_eq!(error, StateError::Asking),
                    }
                }
            }
            model.note();
        }
        model.under_way = None;
        state.return_delegation(&model.holder, &id, None).expect("held");
        for question in 1..=model.questions.len() as u64 {
            prop_assert!(!state.is_holder_asked(&file(1), &id, question));
            prop_assert!(!says(model.state, model.now_ms, &id, question, SAME));
        }
        prop_assert_eq!(look_at(&state, model.now_ms, None, model.disk), Ok(()));
        let (asked, recalls, _) = effects(&state);
        prop_assert_eq!((asked.len(), recalls, state.delegations()), (0, 0, 0));
    }
}
