//! What is known of a file that a client has a delegation to write of (RFC 8881 §10.4.3): the holder may have changed
//! it without the server, and is asked (`CB_GETATTR`) when somebody looks at the file.
//!
//! Only one answer is of use: that the holder has changed nothing. Then what the storage has is right. So its change
//! attribute has to be the one that it was given with the delegation, or the one that the storage has now, and its
//! size the one that the storage has now. Whatever else it says, the delegation is recalled.
//!
//! An answer counts for the question that was asked last, and only if the holder was changing nothing at the server
//! from the question on: a WRITE that is on its way the holder may take for written. An answer that a change has made
//! void is asked for again, within the patience of the first question.

/// An answer is used for so long, in ms. Calls that wait for it come again within this time, and many that look
/// at a file ask its holder once a second. Clients use attributes for 3 s at least without asking (Linux, `acregmin`).
const ANSWER_MS: u64 = 1_000;
/// A holder that was asked so long ago, in ms, and has not answered, has its delegation recalled. So long calls
/// wait for it, too.
pub const HOLDER_PATIENCE_MS: u64 = 2_000;
/// What was asked so long ago, in ms, counts as never asked: nobody waits for it any more, and it may have been lost.
const FORGOTTEN_MS: u64 = 5_000;

/// What the holder of a delegation to write says of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderSays {
    /// Its change attribute.
    pub change: u64,
    /// Its length in bytes.
    pub size: u64,
}

/// What the storage has of a file, read after its holder has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredLook {
    /// The change attribute.
    pub change: u64,
    /// Length in bytes.
    pub size: u64,
}

/// What becomes of a look at the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    /// The holder has answered a moment ago.
    IsAnswered,
    /// It was asked by another look.
    UnderWay,
    /// It is to be asked now, by a question of this number.
    Begins(u64),
    /// It was asked, and does not answer.
    IsOverdue,
}

/// What an answer says of what the storage has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is all that there is.
    Right,
    /// The holder has more.
    Behind,
    /// There is no answer any more.
    Unknown,
}

/// The change attribute that the holder was given with its delegation.
#[derive(Clone, Copy, Debug)]
enum Given {
    /// It was not noted yet.
    NotNoted,
    /// The holder has changed the file before it was noted.
    NotKnown,
    Is(u64),
}

/// What is asked, or was.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// When the holder is told of the first question since its last answer, in ms.
    since_ms: u64,
    /// The question that has no answer yet. `None` if the last answer was void.
    open: Option<u64>,
    /// Whether the holder has changed the file at the server since the open question, or while that was asked.
    is_void: bool,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    says: HolderSays,
    since_ms: u64,
}

/// What is known of a delegated file beside what its storage knows.
#[derive(Debug)]
pub(crate) struct WrittenUnseen {
    given: Given,
    /// The number of the last question.
    last: u64,
    asked: Option<Asked>,
    answer: Option<Answer>,
}

impl WrittenUnseen {
    pub(crate) fn new() -> Self {
        Self { given: Given::NotNoted, last: 0, asked: None, answer: None }
    }

    /// The storage's change attribute, read after the grant: the holder was given this, if it has changed nothing since.
    pub(crate) fn note_given(&mut self, change: u64) {
        if matches!(self.given, Given::NotNoted) {
            self.given = Given::Is(change);
        }
    }

    /// Somebody looks at the file. The holder can be asked from `not_before_ms` on. `is_changing`: whether it may be
    /// changing the file at the server now.
    pub(crate) fn look(&mut self, now_ms: u64, not_before_ms: u64, is_changing: bool) -> Asking {
        if self.has_answer(now_ms) {
            return Asking::IsAnswered;
        }
        let is_of_use = |asked: &Asked| now_ms <= asked.since_ms.saturating_add(FORGOTTEN_MS);
        let since_ms = match self.asked.filter(is_of_use) {
            Some(asked) if now_ms >= asked.since_ms.saturating_add(HOLDER_PATIENCE_MS) => {
                self.asked = None;
                return Asking::IsOverdue;
            }
            Some(Asked { open: Some(_), .. }) => return Asking::UnderWay,
            Some(asked) => asked.since_ms,
            None => now_ms.max(not_before_ms),
        };
        self.last = self.last.wrapping_add(1);
        self.asked = Some(Asked { since_ms, open: Some(self.last), is_void: is_changing });
        Asking::Begins(self.last)
    }

    /// Whether an answer of the holder is still good.
    pub(crate) fn has_answer(&self, now_ms: u64) -> bool {
        self.answer.is_some_and(|answer| now_ms.saturating_sub(answer.since_ms) <= ANSWER_MS)
    }

    /// Whether somebody may wait for an answer.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether a question has no answer yet.
    pub(crate) fn is_open(&self, question: u64) -> bool {
        self.asked.is_some_and(|asked| asked.open == Some(question))
    }

    /// The holder has answered a question. Whether that had no answer yet.
    pub(crate) fn take_answer(&mut self, now_ms: u64, question: u64, says: HolderSays) -> bool {
        let Some(asked) = self.asked.filter(|asked| asked.open == Some(question)) else {
            return false;
        };
        if asked.is_void {
            self.asked = Some(Asked { open: None, ..asked });
        } else {
            self.asked = None;
            self.answer = Some(Answer { says, since_ms: now_ms });
        }
        true
    }

    /// The holder has not answered a question, or not what it was asked. Whether that had no answer yet.
    pub(crate) fn fail(&mut self, question: u64) -> bool {
        let is_open = self.is_open(question);
        if is_open {
            self.asked = None;
        }
        is_open
    }

    /// The holder changes the file at the server: what it said before, or says to what it was asked before, may not be
    /// so any more.
    pub(crate) fn is_written(&mut self) {
        self.answer = None;
        if let Some(asked) = &mut self.asked {
            asked.is_void = true;
        }
        if matches!(self.given, Given::NotNoted) {
            self.given = Given::NotKnown;
        }
    }

    /// Judges what the storage has, read after the answer. An answer that says something else is used up.
    pub(crate) fn judge(&mut self, stored: StoredLook) -> Verdict {
        let Some(Answer { says, .. }) = self.answer else { return Verdict::Unknown };
        let was_given = matches!(self.given, Given::Is(given) if given == says.change);
        if says.size == stored.size && (was_given || says.change == stored.change) {
            return Verdict::Right;
        }
        self.answer = None;
        Verdict::Behind
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring. The property test is `tests/state/looks.rs`.
    use super::*;

    const GIVEN: u64 = 100;

    fn unseen() -> WrittenUnseen {
        let mut unseen = WrittenUnseen::new();
        unseen.note_given(GIVEN);
        unseen
    }

    fn verdict(mut unseen: WrittenUnseen, says: (u64, u64), stored: (u64, u64)) -> Verdict {
        let Asking::Begins(question) = unseen.look(5, 0, false) else { panic!("not asked") };
        let (change, size) = says;
        assert!(unseen.take_answer(5, question, HolderSays { change, size }));
        assert_eq!(unseen.look(5, 0, false), Asking::IsAnswered);
        let (change, size) = stored;
        unseen.judge(StoredLook { change, size })
    }

    #[test]
    fn only_a_holder_that_has_changed_nothing_is_right() {
        for (says, stored, right) in [
            ((GIVEN, 7), (GIVEN, 7), Verdict::Right),
            // It has written all that it has changed, and tells what it was given, or what there is.
            ((GIVEN, 8), (300, 8), Verdict::Right),
            ((300, 8), (300, 8), Verdict::Right),
            ((GIVEN, 8), (GIVEN, 7), Verdict::Behind),
            ((GIVEN, 6), (GIVEN, 7), Verdict::Behind),
            ((GIVEN + 1, 7), (GIVEN, 7), Verdict::Behind),
            ((GIVEN - 1, 7), (GIVEN, 7), Verdict::Behind),
            ((299, 8), (300, 8), Verdict::Behind),
        ] {
            assert_eq!(verdict(unseen(), says, stored), right, "{says:?} {stored:?}");
        }
    }

    #[test]
    fn what_was_given_is_not_known_once_the_holder_has_changed_the_file() {
        let mut late = WrittenUnseen::new();
        late.is_written();
        late.note_given(GIVEN);
        assert_eq!(verdict(late, (GIVEN, 7), (300, 7)), Verdict::Behind);
        let mut in_time = unseen();
        in_time.is_written();
        in_time.note_given(300);
        assert_eq!(verdict(in_time, (GIVEN, 7), (300, 7)), Verdict::Right);
        // Without it the storage's own number is still good.
        assert_eq!(verdict(WrittenUnseen::new(), (300, 7), (300, 7)), Verdict::Right);
    }

    #[test]
    fn a_holder_is_asked_once_and_in_time() {
        let mut unseen = unseen();
        let says = HolderSays { change: GIVEN, size: 1 };
        assert!(!unseen.take_answer(0, 0, says), "nobody has asked");
        // It does not know of the delegation yet: its time begins later.
        assert_eq!(unseen.look(10, 1_000, false), Asking::Begins(1));
        for now_ms in [10, 2_010, 2_999] {
            assert_eq!(unseen.look(now_ms, 0, false), Asking::UnderWay);
        }
        assert_eq!(unseen.look(3_000, 0, false), Asking::IsOverdue);
        assert!(!unseen.fail(1) && !unseen.take_answer(3_000, 1, says), "too late");
        assert_eq!(unseen.look(3_000, 0, false), Asking::Begins(2));
        assert!(!unseen.take_answer(3_001, 1, says), "of an old question");
        assert!(unseen.take_answer(3_100, 2, says) && !unseen.take_answer(3_100, 2, says));
        assert_eq!(unseen.look(4_100, 0, false), Asking::IsAnswered);
        assert_eq!(unseen.look(4_101, 0, false), Asking::Begins(3));
        assert!(!unseen.fail(2) && unseen.fail(3) && !unseen.is_asked());
    }

    #[test]
    fn what_was_lost_long_ago_counts_as_never_asked() {
        let mut unseen = unseen();
        assert_eq!(unseen.look(10, 0, false), Asking::Begins(1));
        assert_eq!(unseen.look(3_600_000, 0, false), Asking::Begins(2));
        assert_eq!(unseen.look(3_601_000, 0, false), Asking::UnderWay);
        assert_eq!(unseen.look(3_602_000, 0, false), Asking::IsOverdue);
    }

    #[test]
    fn a_void_answer_is_asked_for_again_as_long_as_patience_lasts() {
        let mut unseen = unseen();
        let says = HolderSays { change: GIVEN, size: 1 };
        // A change is under way; then one begins.
        assert_eq!(unseen.look(10, 0, true), Asking::Begins(1));
        assert!(unseen.take_answer(500, 1, says));
        assert_eq!(unseen.look(500, 0, false), Asking::Begins(2));
        unseen.is_written();
        assert!(unseen.take_answer(1_000, 2, says) && unseen.is_asked());
        assert_eq!(unseen.look(1_000, 0, false), Asking::Begins(3));
        assert_eq!(unseen.look(2_009, 0, false), Asking::UnderWay);
        assert_eq!(unseen.look(2_010, 0, false), Asking::IsOverdue);
        // A good answer is of no use after a change.
        assert_eq!(unseen.look(2_010, 0, false), Asking::Begins(4));
        assert!(unseen.take_answer(2_011, 4, says));
        unseen.is_written();
        assert_eq!(unseen.judge(StoredLook { change: GIVEN, size: 1 }), Verdict::Unknown);
        assert_eq!(unseen.look(2_012, 0, false), Asking::Begins(5));
    }
}
