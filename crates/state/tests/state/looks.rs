//! Looks at files that are delegated to write: who is asked, and whose answer is of use. Rings: unit, property.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use steadfast_state::{
    Change, Client, DelegationKind, Effect, HolderAnswered, HolderSays, Look, State, StateError,
    StateId, StoredLook,
};

use crate::common::{BOTH, DENY_NONE, LEASE_MS, file};
use crate::delegations::{client, delegate, open, state};

const GIVEN: u64 = 100;
const STORED: StoredLook = StoredLook { change: GIVEN, size: 7 };
const SAME: HolderSays = HolderSays { change: GIVEN, size: 7 };

/// The questions, those that nobody waits for any more, how many recalls, and how often the file was free again.
type Effects = (Vec<u64>, Vec<u64>, usize, usize);

fn effects(state: &State) -> Effects {
    let (mut questions, mut answered, mut recalls, mut returned) = (Vec::new(), Vec::new(), 0, 0);
    for effect in state.take_effects() {
        match effect {
            Effect::AskHolder { file: of, handle, question, .. } => {
                assert_eq!((of, &*handle), (file(1), &b"handle"[..]));
                questions.push(question);
            }
            Effect::Answered { file: of, question } => {
                assert_eq!(of, file(1));
                answered.push(question);
            }
            Effect::Recall { .. } => recalls += 1,
            Effect::Returned { .. } => returned += 1,
            other => panic!("{other:?}"),
        }
    }
    (questions, answered, recalls, returned)
}

fn granted(state: &State, holder: &Arc<Client>) -> StateId {
    let id = delegate(state, 1, holder, DelegationKind::Write).expect("alone");
    state.change_is_given(&file(1), &id, GIVEN);
    id
}

fn says(state: &State, now_ms: u64, id: &StateId, question: u64, says: HolderSays) -> bool {
    state.holder_says(now_ms, (&file(1), id), question, Some(says))
}

fn begin(state: &State, now_ms: u64, waited: Option<u64>) -> Result<Look, StateError> {
    state.begin_look(now_ms, None, &file(1), waited)
}

/// A look that has waited for this question: by its answer, what the storage has is right, or who knows.
fn judged(state: &State, now_ms: u64, waited: u64, stored: StoredLook) -> Result<bool, StateError> {
    match begin(state, now_ms, Some(waited))? {
        Look::Answered(at) => state.end_look(now_ms, &at, stored),
        look => panic!("{look:?}"),
    }
}

#[test]
fn a_holder_that_has_changed_nothing_is_asked_and_keeps_its_delegation() {
    let state = state();
    let (holder, other) = (client(&state, "a"), client(&state, "b"));
    let (holder, other) = (holder.client(), other.client());
    assert_eq!(begin(&state, 1, None), Ok(Look::Stored), "nobody has a delegation");
    let id = granted(&state, holder);
    let own = state.begin_look(5, Some(holder), &file(1), None);
    assert_eq!(own, Ok(Look::Stored));
    // The holder may not know of its delegation yet. Then who waits is woken by time.
    assert_eq!(begin(&state, 5, None), Ok(Look::WaitsToAsk { question: 1, for_ms: 996 }));
    let later = Look::WaitsToAsk { question: 1, for_ms: 1 };
    assert_eq!(begin(&state, 1_000, Some(1)), Ok(later));
    assert_eq!(effects(&state), (vec![], vec![], 0, 0));
    let by_other = state.begin_look(1_001, Some(other), &file(1), None);
    assert_eq!((by_other, effects(&state).0), (Ok(Look::Waits(1)), vec![1]));
    // These come when it was asked: all wait for one more question.
    assert_eq!(begin(&state, 1_001, None), Ok(Look::Waits(2)));
    assert_eq!(begin(&state, 1_500, None), Ok(Look::Waits(2)));
    assert_eq!(begin(&state, 1_500, Some(1)), Ok(Look::Waits(1)));
    assert_eq!(effects(&state), (vec![], vec![], 0, 0));
    assert!(!says(&state, 1_600, &id, 2, SAME), "not asked yet");
    assert!(says(&state, 1_600, &id, 1, SAME) && !says(&state, 1_600, &id, 1, SAME));
    assert_eq!(effects(&state), (vec![2], vec![1], 0, 0));
    assert_eq!(judged(&state, 1_600, 1, STORED), Ok(true));
    assert_eq!(begin(&state, 1_600, Some(2)), Ok(Look::Waits(2)));
    // A look of now has nothing of either.
    assert_eq!(begin(&state, 1_600, None), Ok(Look::Waits(3)));
    assert!(says(&state, 1_700, &id, 2, SAME));
    assert_eq!(effects(&state), (vec![3], vec![2], 0, 0));
    assert_eq!([1, 2].map(|it| judged(&state, 1_700, it, STORED)), [Ok(true); 2]);
    // It writes at the server; then it tells what it was given, or what there is.
    assert!(says(&state, 1_800, &id, 3, SAME));
    drop(state.begin_change(1_900, Some(holder), &file(1)).expect("own"));
    let written = StoredLook { change: 300, size: 9 };
    assert_eq!(begin(&state, 1_900, None), Ok(Look::Waits(4)));
    assert!(says(&state, 1_901, &id, 4, HolderSays { change: GIVEN, size: 9 }));
    assert_eq!(judged(&state, 1_901, 4, written), Ok(true));
    assert_eq!(begin(&state, 1_902, None), Ok(Look::Waits(5)));
    assert!(says(&state, 1_903, &id, 5, HolderSays { change: 300, size: 9 }));
    assert_eq!(judged(&state, 1_903, 5, written), Ok(true));
    state.return_delegation(holder, &id, None).expect("held");
    assert_eq!(begin(&state, 2_009, Some(5)), Ok(Look::Stored));
    assert_eq!(effects(&state), (vec![4, 5], vec![3, 4, 5], 0, 0));
    let counts = state.delegation_counts();
    assert_eq!((counts.asked, counts.unasked, counts.recalled), (5, 0, 0));
}

#[test]
fn whatever_else_it_says_has_the_delegation_recalled() {
    for (change, size) in [(GIVEN + 1, 7), (GIVEN - 1, 7), (GIVEN, 8), (GIVEN, 6)] {
        let state = state();
        let holder = client(&state, "a");
        let id = granted(&state, holder.client());
        assert_eq!(begin(&state, 2_000, None), Ok(Look::Waits(1)));
        assert!(says(&state, 2_001, &id, 1, HolderSays { change, size }));
        // Another is asked already: who waits for it waits for the return.
        assert_eq!(begin(&state, 2_001, None), Ok(Look::Waits(2)));
        assert_eq!(effects(&state), (vec![1, 2], vec![1], 0, 0));
        assert_eq!(judged(&state, 2_001, 1, STORED), Err(StateError::Recalling));
        assert_eq!(effects(&state), (vec![], vec![2], 1, 0), "{change} {size}");
        assert!(!says(&state, 2_002, &id, 2, SAME));
        for waited in [None, Some(1), Some(2)] {
            assert_eq!(begin(&state, 2_002, waited), Err(StateError::Recalling));
        }
        state.return_delegation(holder.client(), &id, None).expect("held");
        assert_eq!(effects(&state), (vec![], vec![], 0, 1));
        assert_eq!(begin(&state, 2_003, Some(2)), Ok(Look::Stored));
    }
}

#[test]
fn who_does_not_answer_has_it_recalled() {
    // In time; or what it has answered is nonsense; or the question could not be sent.
    for case in 0..3 {
        let state = state();
        let holder = client(&state, "a");
        let id = granted(&state, holder.client());
        assert_eq!(begin(&state, 2_000, None), Ok(Look::Waits(1)));
        assert_eq!(begin(&state, 2_000, None), Ok(Look::Waits(2)));
        let at = (&file(1), &id);
        match case {
            0 => {
                assert_eq!(begin(&state, 2_999, Some(1)), Ok(Look::Waits(1)));
                assert_eq!(begin(&state, 3_000, Some(1)), Err(StateError::Recalling));
            }
            1 => {
                assert!(!state.holder_says(2_001, at, 2, None), "not asked yet");
                assert!(state.holder_says(2_001, at, 1, None));
            }
            _ => {
                state.cannot_ask(2_001, at, 7);
                state.cannot_ask(2_001, at, 1);
            }
        }
        assert_eq!(effects(&state), (vec![1], vec![1, 2], 1, 0));
        assert_eq!(state.delegation_counts().unasked, u64::from(case == 2));
        // Too late, and not asked again.
        assert!(!says(&state, 3_001, &id, 1, SAME));
        assert!(!state.holder_says(3_001, at, 1, None));
        assert_eq!(begin(&state, 3_001, None), Err(StateError::Recalling));
        assert_eq!(effects(&state), (vec![], vec![], 0, 0));
    }
}

#[test]
fn a_holder_that_goes_on_writing_is_asked_twice_and_no_more() {
    let state = state();
    let holder = client(&state, "a");
    let holder = holder.client();
    let id = granted(&state, holder);
    let writes = |now_ms| state.begin_change(now_ms, Some(holder), &file(1)).expect("own");
    // From before the question on.
    let under_way = writes(1_999);
    assert_eq!(begin(&state, 2_000, None), Ok(Look::Waits(1)));
    drop(under_way);
    assert!(says(&state, 2_100, &id, 1, SAME));
    assert_eq!(judged(&state, 2_100, 1, STORED), Ok(false));
    // It begins later; or what was stored is of before.
    assert_eq!(begin(&state, 2_100, Some(1)), Ok(Look::Waits(2)));
    assert!(says(&state, 2_200, &id, 2, SAME));
    let Ok(Look::Answered(at)) = begin(&state, 2_200, Some(2)) else { panic!("not answered") };
    drop(writes(2_300));
    assert_eq!(state.end_look(2_300, &at, STORED), Err(StateError::Recalling));
    assert_eq!(effects(&state), (vec![1, 2], vec![1, 2], 1, 0));
}

#[test]
fn who_waits_for_an_answer_is_woken_by_the_return_and_by_a_recall() {
    for is_recall in [false, true] {
        let state = state();
        let (holder, other) = (client(&state, "a"), client(&state, "b"));
        let id = granted(&state, holder.client());
        assert_eq!(begin(&state, 2_000, None), Ok(Look::Waits(1)));
        assert_eq!(begin(&state, 2_000, None), Ok(Look::Waits(2)));
        assert_eq!(effects(&state), (vec![1], vec![], 0, 0));
        if is_recall {
            let opened = open(&state, other.client(), BOTH, DENY_NONE);
            assert_eq!(opened, Err(StateError::Recalling));
            assert_eq!(begin(&state, 2_001, Some(1)), Err(StateError::Recalling));
        } else {
            state.return_delegation(holder.client(), &id, None).expect("held");
            assert_eq!(begin(&state, 2_001, Some(1)), Ok(Look::Stored));
        }
        assert_eq!(effects(&state), (vec![], vec![1, 2], usize::from(is_recall), 0));
        assert!(!says(&state, 2_002, &id, 1, SAME));
    }
}

#[test]
fn the_delegation_may_be_gone_while_the_storage_is_read() {
    let state = state();
    let holder = client(&state, "a");
    let id = granted(&state, holder.client());
    assert_eq!(begin(&state, 2_000, None), Ok(Look::Waits(1)));
    assert!(says(&state, 2_001, &id, 1, SAME));
    let Ok(Look::Answered(at)) = begin(&state, 2_001, Some(1)) else { panic!("not answered") };
    state.return_delegation(holder.client(), &id, None).expect("held");
    assert_eq!(state.end_look(2_001, &at, STORED), Ok(false));
    assert_eq!(begin(&state, 2_001, Some(1)), Ok(Look::Stored));
}

#[test]
fn who_cannot_be_asked_is_not() {
    // One without a connection.
    let state = state();
    let holder = client(&state, "a");
    granted(&state, holder.client());
    holder.unbind_back(1);
    assert_eq!(begin(&state, 5, None), Err(StateError::Recalling));
    assert_eq!(effects(&state), (vec![], vec![], 1, 0));
    assert_eq!(state.delegation_counts().unasked, 1);
    // For one that cannot wait.
    let state = self::state();
    let holder = client(&state, "a");
    granted(&state, holder.client());
    assert_eq!(begin(&state, 2_000, None), Ok(Look::Waits(1)));
    assert_eq!(state.look_cannot_wait(2_000, None, &file(1)), Err(StateError::Recalling));
    assert_eq!(effects(&state), (vec![1], vec![1], 1, 0));
    assert_eq!(state.delegation_counts().unasked, 1);
    // Nor another one: what is recalled already is not counted.
    assert_eq!(state.look_cannot_wait(2_001, None, &file(1)), Err(StateError::Recalling));
    assert_eq!(state.look_cannot_wait(2_001, Some(holder.client()), &file(1)), Ok(()));
    assert_eq!((state.delegation_counts().unasked, state.delegation_counts().recalled), (1, 1));
    // One that is dead: it loses all that it has.
    let state = self::state();
    let holder = client(&state, "a");
    granted(&state, holder.client());
    assert_eq!(begin(&state, LEASE_MS + 2, None), Ok(Look::Stored));
    assert_eq!(state.delegations(), 0);
    // One to read is in nobody's way.
    let state = self::state();
    let holder = client(&state, "a");
    delegate(&state, 1, holder.client(), DelegationKind::Read).expect("alone");
    assert_eq!(begin(&state, 5, None), Ok(Look::Stored));
    assert_eq!(effects(&state), (vec![], vec![], 0, 0));
}

#[test]
fn what_is_told_beside_something_else_nobody_has_written_unseen() {
    let state = state();
    let (one, two) = (client(&state, "a"), client(&state, "b"));
    let may_tell = |since, number| state.may_tell(since, || file(number));
    let first = state.begin_telling();
    assert!(may_tell(first, 1));
    let id = delegate(&state, 1, one.client(), DelegationKind::Read).expect("alone");
    assert!(may_tell(first, 1), "to read");
    state.return_delegation(one.client(), &id, None).expect("held");
    assert!(!may_tell(first, 1), "who knows what that was");
    let second = state.begin_telling();
    assert!(may_tell(second, 1));
    let id = granted(&state, one.client());
    assert!(!may_tell(second, 1) && !may_tell(state.begin_telling(), 1) && may_tell(second, 2));
    assert_eq!(open(&state, two.client(), BOTH, DENY_NONE), Err(StateError::Recalling));
    assert!(!may_tell(state.begin_telling(), 1), "it is recalled, and not returned");
    let third = state.begin_telling();
    state.return_delegation(one.client(), &id, None).expect("held");
    // What was read before that may be of before what the holder has returned with it.
    assert!(!may_tell(third, 1) && !may_tell(third, 2) && may_tell(state.begin_telling(), 1));
}

/// A question.
#[derive(Debug)]
struct Question {
    number: u64,
    /// In which step it was sent.
    sent: usize,
    /// Whether there was a moment since when the server had all that the holder has.
    was_clean: bool,
    /// What there was of that when the answer came.
    answered: Option<bool>,
}

/// A look that has not ended.
#[derive(Debug)]
struct Looking {
    /// In which step it began.
    began: usize,
    waited: Option<u64>,
    /// The answer that it may use, of which question, and what it has read since.
    at: Option<(HolderAnswered, u64, Option<StoredLook>)>,
}

/// A holder, its file, its replies under way, and who looks at the file.
struct Model<'s> {
    state: &'s State,
    holder: Arc<Client>,
    other: Arc<Client>,
    now_ms: u64,
    step: usize,
    delegation: Option<StateId>,
    is_recalled: bool,
    given: u64,
    disk: StoredLook,
    size: u64,
    is_dirty: bool,
    /// A WRITE that is on its way: the holder takes it for written.
    under_way: Option<(Change<'s>, u64)>,
    open: Option<u64>,
    questions: Vec<Question>,
    replies: Vec<(StateId, u64, HolderSays)>,
    answered: Option<u64>,
    /// Those that nobody need wait for any more.
    woken: BTreeSet<u64>,
    looks: Vec<Looking>,
    /// Looks that ended by an answer, and without a recall.
    right: usize,
}

impl<'s> Model<'s> {
    fn new(state: &'s State, holder: &Arc<Client>, other: &Arc<Client>) -> Self {
        Self {
            state,
            holder: Arc::clone(holder),
            other: Arc::clone(other),
            now_ms: 2_000,
            step: 0,
            delegation: Some(granted(state, holder)),
            is_recalled: false,
            given: GIVEN,
            disk: STORED,
            size: STORED.size,
            is_dirty: false,
            under_way: None,
            open: None,
            questions: Vec::new(),
            replies: Vec::new(),
            answered: None,
            woken: BTreeSet::new(),
            looks: Vec::new(),
            right: 0,
        }
    }

    fn is_clean(&self) -> bool {
        !self.is_dirty && self.under_way.is_none()
    }

    /// What the state wants done, and what the holder is like after this step.
    fn note(&mut self) {
        for effect in self.state.take_effects() {
            match effect {
                Effect::AskHolder { question: number, .. } => {
                    assert!(self.open.replace(number).is_none(), "one at a time");
                    let (sent, was_clean, answered) = (self.step, false, None);
                    self.questions.push(Question { number, sent, was_clean, answered });
                }
                Effect::Answered { question, .. } => {
                    self.open.take_if(|open| *open == question);
                    self.woken.insert(question);
                }
                Effect::Recall { .. } => self.is_recalled = true,
                _ => {}
            }
        }
        let is_clean = self.is_clean();
        for question in &mut self.questions {
            question.was_clean |= is_clean;
        }
    }

    fn holder_acts(&mut self, step: u8, by: u64) {
        match step {
            0 => (self.is_dirty, self.size) = (true, self.size + by % 2),
            1 if self.is_dirty && self.under_way.is_none() => {
                let change = self.state.begin_change(self.now_ms, Some(&self.holder), &file(1));
                self.under_way = Some((change.expect("its own"), self.size));
                self.is_dirty = false;
            }
            2 => {
                if let Some((change, size)) = self.under_way.take() {
                    self.disk = StoredLook { change: self.now_ms * 1_000, size };
                    drop(change);
                }
            }
            // It returns what it has, all being written, and gets it again.
            _ if by == 0 && self.is_clean() => {
                let Some(id) = self.delegation.take() else { return };
                self.state.return_delegation(&self.holder, &id, None).expect("held");
                let (state, holder) = (self.state, &self.holder);
                let again = delegate(state, self.now_ms, holder, DelegationKind::Write);
                assert_eq!(again.is_ok(), !self.is_recalled);
                if let Ok(id) = again {
                    self.state.change_is_given(&file(1), &id, self.disk.change);
                    (self.delegation, self.given) = (Some(id), self.disk.change);
                }
            }
            _ => {}
        }
    }

    /// The holder reads a question, perhaps again, and answers.
    fn answers(&mut self, by: u64) {
        let Some(id) = self.delegation else { return };
        let last = self.questions.len();
        // Mostly the last one.
        if let Some(at) = last.checked_sub(1 + (by as usize % 5).saturating_sub(2)) {
            let change = self.given + u64::from(self.is_dirty);
            let says = HolderSays { change, size: self.size };
            self.replies.push((id, self.questions[at].number, says));
        }
    }

    /// An answer comes: late, and perhaps not for the first time.
    fn takes_answer(&mut self, by: u64) {
        let Some(last) = self.replies.len().checked_sub(1) else { return };
        let (id, number, told) = self.replies[last - by as usize % (last + 1).min(4)];
        if says(self.state, self.now_ms, &id, number, told) {
            assert_eq!(self.open, Some(number), "nobody has asked");
            let question = self.questions.iter_mut().find(|it| it.number == number).expect("sent");
            assert_eq!(question.answered, None, "twice");
            question.answered = Some(question.was_clean);
            self.answered = Some(number);
        }
    }

    /// What is no answer comes, a question cannot be sent, or another opens the file: the delegation is recalled.
    fn is_disturbed(&mut self, by: u64) {
        let Some(id) = self.delegation else { return };
        let at = (&file(1), &id);
        let number = self.open.unwrap_or(7) + u64::from(by == 3);
        let is_open = self.open == Some(number);
        match by % 3 {
            0 => {
                let is_heard = self.state.holder_says(self.now_ms, at, number, None);
                assert_eq!(is_heard, is_open);
            }
            1 => {
                let before = self.state.delegation_counts().unasked;
                self.state.cannot_ask(self.now_ms, at, number);
                let counted = self.state.delegation_counts().unasked - before;
                assert_eq!(counted, u64::from(is_open));
            }
            _ => {
                let opened = open(self.state, &self.other, BOTH, DENY_NONE);
                assert_eq!(opened, Err(StateError::Recalling));
            }
        }
        let is_recalled = self.is_recalled || is_open || by % 3 == 2;
        self.note();
        assert_eq!(self.is_recalled, is_recalled);
    }

    /// A look goes on by one step.
    fn looks(&mut self, by: u64) {
        if self.looks.is_empty() {
            return;
        }
        let place = by as usize % self.looks.len();
        let look = &mut self.looks[place];
        let is_over = match &mut look.at {
            None => match begin(self.state, self.now_ms, look.waited) {
                Ok(Look::Stored) => {
                    assert!(!self.state.is_delegated(&file(1)));
                    true
                }
                Ok(Look::Waits(question) | Look::WaitsToAsk { question, .. }) => {
                    assert!(!self.woken.contains(&question), "nobody wakes it");
                    look.waited = Some(question);
                    false
                }
                Ok(Look::Answered(at)) => {
                    look.at = Some((at, self.answered.expect("an answer"), None));
                    false
                }
                Err(error) => {
                    assert_eq!(error, StateError::Recalling);
                    false
                }
            },
            Some((_, _, stored @ None)) => {
                *stored = Some(self.disk);
                false
            }
            Some((at, number, Some(stored))) => {
                let judged = self.state.end_look(self.now_ms, at, *stored);
                let question = self.questions.iter().find(|it| it.number == *number).expect("sent");
                if judged == Ok(true) {
                    assert!(question.sent >= look.began, "{look:?} {question:?}");
                    assert_eq!(question.answered, Some(true), "{look:?} {question:?}");
                    self.right += 1;
                }
                look.at = None;
                judged == Ok(true)
            }
        };
        if is_over {
            self.looks.remove(place);
        }
    }
}

/// Answers, changes at the server and elsewhere, returns and looks, in any order: a look ends by an answer only if
/// its question was sent after the look began, and the server had all of the file at some moment between question
/// and answer. Nobody waits for what does not come, and nothing is left. And looks do end so.
#[test]
fn nobody_is_told_what_is_behind() {
    const CASES: u32 = 256;
    let steps = proptest::collection::vec((0..24_u8, 0..40_u64), 1..300);
    let with_right = Cell::new(0);
    let config = Config { cases: CASES, source_file: Some(file!()), ..Config::default() };
    let done = TestRunner::new(config).run(&steps, |steps| {
        let right = run(steps)?;
        with_right.set(with_right.get() + u32::from(right > 0));
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
    assert!(with_right.get() > CASES / 6, "{}", with_right.get());
}

/// How many looks have ended by an answer.
fn run(steps: Vec<(u8, u64)>) -> Result<usize, TestCaseError> {
    let state = state();
    let (holder, other) = (client(&state, "a"), client(&state, "b"));
    let mut model = Model::new(&state, holder.client(), other.client());
    for (step, (kind, by)) in steps.into_iter().enumerate() {
        model.now_ms += by;
        model.step = step;
        match kind {
            // Seldom enough that looks end before, too: nothing is delegated after a recall.
            0 if by < 4 => model.is_disturbed(by),
            0 | 1 if by < 30 => {}
            0..=7 => model.holder_acts(kind / 2, by),
            8..=11 => model.answers(by),
            12..=15 => model.takes_answer(by),
            16 | 17 if model.looks.len() < 6 => {
                model.looks.push(Looking { began: step, waited: None, at: None });
                model.looks(model.looks.len() as u64 - 1);
            }
            _ => model.looks(by),
        }
        model.note();
    }
    model.under_way = None;
    if let Some(id) = model.delegation {
        state.return_delegation(&model.holder, &id, None).expect("held");
    }
    model.note();
    prop_assert_eq!(model.open, None);
    for (id, number, told) in &model.replies {
        prop_assert!(!says(&state, model.now_ms, id, *number, *told));
    }
    for look in &model.looks {
        let is_woken = look.waited.is_none_or(|waited| model.woken.contains(&waited));
        prop_assert!(is_woken, "{:?}", look);
        prop_assert_eq!(begin(&state, model.now_ms, look.waited), Ok(Look::Stored));
    }
    prop_assert!(state.take_effects().is_empty());
    prop_assert_eq!(state.delegations(), 0);
    Ok(model.right)
}
