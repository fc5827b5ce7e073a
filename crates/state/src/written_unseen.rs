//! What is known of a file that a client has a delegation to write of (RFC 8881 §10.4.3): the holder may have changed
//! it without the server, and is asked (`CB_GETATTR`) when somebody looks at the file.
//!
//! Only one answer is of use: that the holder has changed nothing. Then what the storage has is right. So its change
//! attribute has to be the one that it was given with the delegation, or the one that the storage has now, and its
//! size the one that the storage has now. Whatever else it says, the delegation is recalled.
//!
//! An answer counts for looks that began before its question was sent, and for no others: who looks later must see what
//! the holder has changed since. One question is under way at a time; all who come meanwhile wait for the next one. Its
//! number is known before it is sent, so a look knows by the number that it waits for which answers are its own: that
//! one and later ones.
//!
//! An answer is void if the holder was changing the file at the server at any time from the question on: a WRITE that
//! is on its way the holder may take for written. Then it is asked once more.

/// A holder that was asked so long ago, in ms, and has not answered, has its delegation recalled.
pub const HOLDER_PATIENCE_MS: u64 = 1_000;

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

/// What an answer says of what the storage has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is all that there is.
    Right,
    /// The holder has more, or nobody can find out.
    Behind,
    /// This answer does not say.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Question {
    number: u64,
    sent_ms: u64,
    /// Whether the holder was changing the file at the server when this was sent, or has since.
    is_void: bool,
    /// Whether this is asked since the answer before it was void.
    is_again: bool,
}

/// What is known of a delegated file beside what its storage knows.
#[derive(Debug, Default)]
pub(crate) struct WrittenUnseen {
    /// The change attribute that the holder was given with its delegation, if that is known.
    given: Option<u64>,
    /// Whether it is too late to find that out.
    is_noted: bool,
    /// The question that has no answer yet.
    open: Option<Question>,
    /// The number of the next one, if somebody waits for its answer.
    next: Option<u64>,
    /// The last one that has an answer.
    answered: Option<(Question, HolderSays)>,
    /// Whether the answer before the next question was void.
    is_next_again: bool,
}

impl WrittenUnseen {
    /// The storage's change attribute, read after the grant: the holder was given this, if it has changed nothing since.
    pub(crate) fn note_given(&mut self, change: u64) {
        if !std::mem::replace(&mut self.is_noted, true) {
            self.given = Some(change);
        }
    }

    /// The holder begins to change the file at the server.
    pub(crate) fn is_written(&mut self) {
        self.is_noted = true;
        let answered = self.answered.as_mut().map(|(question, _)| question);
        for question in self.open.as_mut().into_iter().chain(answered) {
            question.is_void = true;
        }
    }

    /// Whether the open question has had no answer for too long.
    pub(crate) fn is_overdue(&self, now_ms: u64) -> bool {
        self.open.is_some_and(|it| now_ms.saturating_sub(it.sent_ms) >= HOLDER_PATIENCE_MS)
    }

    /// The question whose answer a look may use that has waited for one of this number.
    pub(crate) fn answer_for(&self, waited: Option<u64>) -> Option<u64> {
        let number = self.answered?.0.number;
        (waited? <= number).then_some(number)
    }

    /// A look waits for an answer: of which question. `number`: for the next one, if it has none.
    pub(crate) fn join(&mut self, waited: Option<u64>, number: impl FnOnce() -> u64) -> u64 {
        let began_before = |it: &Question| waited.is_some_and(|waited| waited <= it.number);
        match self.open.filter(began_before) {
            Some(open) => open.number,
            None => *self.next.get_or_insert_with(number),
        }
    }

    /// Sends the next question, if somebody waits for it and no other is open: its number. `is_changing`: whether the
    /// holder may be changing the file at the server now.
    pub(crate) fn send(&mut self, now_ms: u64, is_changing: bool) -> Option<u64> {
        if self.open.is_some() {
            return None;
        }
        let number = self.next.take()?;
        let is_again = std::mem::take(&mut self.is_next_again);
        self.open = Some(Question { number, sent_ms: now_ms, is_void: is_changing, is_again });
        Some(number)
    }

    /// Whether a question has no answer yet.
    pub(crate) fn is_open(&self, question: u64) -> bool {
        self.open.is_some_and(|open| open.number == question)
    }

    /// The holder has answered a question. Whether that was open.
    pub(crate) fn take_answer(&mut self, question: u64, says: HolderSays) -> bool {
        let open = self.open.take_if(|open| open.number == question);
        self.answered = open.map(|open| (open, says)).or(self.answered);
        open.is_some()
    }

    /// Judges what the storage has, which was read after this question had its answer.
    pub(crate) fn judge(&mut self, question: u64, stored: StoredLook) -> Verdict {
        let Some((asked, says)) = self.answered.filter(|(asked, _)| asked.number == question)
        else {
            return Verdict::Unknown;
        };
        let is_known = self.given == Some(says.change) || says.change == stored.change;
        match (is_known && says.size == stored.size, asked.is_void, asked.is_again) {
            (true, false, _) => Verdict::Right,
            (true, true, false) => {
                self.answered = None;
                match &mut self.open {
                    Some(open) => open.is_again = true,
                    None => self.is_next_again = true,
                }
                Verdict::Unknown
            }
            _ => Verdict::Behind,
        }
    }

    /// Nobody is asked any more: the questions that somebody may wait for.
    pub(crate) fn give_up(&mut self) -> impl Iterator<Item = u64> + use<> {
        self.answered = None;
        self.open.take().map(|open| open.number).into_iter().chain(self.next.take())
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring. The property test is `tests/state/looks.rs`.
    use super::*;

    const GIVEN: u64 = 100;
    const SAYS: HolderSays = HolderSays { change: GIVEN, size: 7 };
    const STORED: StoredLook = StoredLook { change: GIVEN, size: 7 };

    fn unseen() -> WrittenUnseen {
        let mut unseen = WrittenUnseen::default();
        unseen.note_given(GIVEN);
        unseen
    }

    fn ask(unseen: &mut WrittenUnseen, number: u64, is_changing: bool) {
        assert_eq!(unseen.join(None, || number), number);
        assert_eq!(unseen.send(5, is_changing), Some(number));
    }

    fn verdict(mut unseen: WrittenUnseen, says: (u64, u64), stored: (u64, u64)) -> Verdict {
        ask(&mut unseen, 1, false);
        let (change, size) = says;
        assert!(unseen.take_answer(1, HolderSays { change, size }));
        let (change, size) = stored;
        unseen.judge(1, StoredLook { change, size })
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
        let mut late = WrittenUnseen::default();
        late.is_written();
        late.note_given(GIVEN);
        assert_eq!(verdict(late, (GIVEN, 7), (300, 7)), Verdict::Behind);
        let mut in_time = unseen();
        in_time.is_written();
        in_time.note_given(300);
        assert_eq!(verdict(in_time, (GIVEN, 7), (300, 7)), Verdict::Right);
        // Without it the storage's own number is still good.
        assert_eq!(verdict(WrittenUnseen::default(), (300, 7), (300, 7)), Verdict::Right);
    }

    #[test]
    fn an_answer_is_for_who_came_before_its_question() {
        let mut unseen = unseen();
        assert!(unseen.send(5, false).is_none() && !unseen.take_answer(0, SAYS), "nobody looks");
        // Two look before it is sent, two afterwards.
        assert_eq!(unseen.join(None, || 3), 3);
        assert_eq!(unseen.join(None, || unreachable!()), 3);
        assert_eq!(unseen.send(5, false), Some(3));
        assert_eq!(unseen.join(None, || 7), 7);
        assert_eq!(unseen.join(None, || unreachable!()), 7);
        assert_eq!(unseen.join(Some(3), || unreachable!()), 3);
        assert_eq!(unseen.send(6, false), None, "one at a time");
        assert!(!unseen.take_answer(7, SAYS) && unseen.take_answer(3, SAYS));
        assert!(!unseen.take_answer(3, SAYS), "twice");
        assert_eq!([Some(3), Some(7), None].map(|it| unseen.answer_for(it)), [Some(3), None, None]);
        assert_eq!(unseen.send(8, false), Some(7));
        // Who was slow may use the later one.
        assert_eq!(unseen.join(Some(3), || unreachable!()), 7);
        assert!(unseen.take_answer(7, SAYS));
        assert_eq!(unseen.answer_for(Some(3)), Some(7));
        assert_eq!(unseen.judge(3, STORED), Verdict::Unknown, "read before that answer");
        assert_eq!(unseen.judge(7, STORED), Verdict::Right);
    }

    #[test]
    fn a_void_answer_is_asked_for_once_more() {
        type Changes = fn(&mut WrittenUnseen, u64);
        let during: Changes = |unseen, number| {
            ask(unseen, number, true);
            assert!(unseen.take_answer(number, SAYS));
        };
        let between: Changes = |unseen, number| {
            ask(unseen, number, false);
            unseen.is_written();
            assert!(unseen.take_answer(number, SAYS));
        };
        let after: Changes = |unseen, number| {
            ask(unseen, number, false);
            assert!(unseen.take_answer(number, SAYS));
            unseen.is_written();
        };
        for voids in [during, between, after] {
            let mut unseen = unseen();
            voids(&mut unseen, 1);
            assert_eq!(unseen.judge(1, STORED), Verdict::Unknown);
            assert_eq!(unseen.answer_for(Some(1)), None, "it is used up");
            voids(&mut unseen, 2);
            assert_eq!(unseen.judge(2, STORED), Verdict::Behind);
            // Whatever is changed, one that says so is right.
            let mut unseen = self::unseen();
            voids(&mut unseen, 1);
            assert_eq!(unseen.judge(1, StoredLook { size: 8, ..STORED }), Verdict::Behind);
            // A good one between them.
            let mut unseen = self::unseen();
            voids(&mut unseen, 1);
            assert_eq!(unseen.judge(1, STORED), Verdict::Unknown);
            ask(&mut unseen, 2, false);
            assert!(unseen.take_answer(2, SAYS));
            assert_eq!(unseen.judge(2, STORED), Verdict::Right);
            voids(&mut unseen, 3);
            assert_eq!(unseen.judge(3, STORED), Verdict::Unknown, "that is long ago");
        }
        // The next one is on its way already.
        let mut unseen = unseen();
        ask(&mut unseen, 1, true);
        assert!(unseen.take_answer(1, SAYS));
        ask(&mut unseen, 2, true);
        assert_eq!(unseen.judge(1, STORED), Verdict::Unknown);
        assert_eq!(unseen.join(Some(1), || unreachable!()), 2);
        assert!(unseen.take_answer(2, SAYS));
        assert_eq!(unseen.judge(2, STORED), Verdict::Behind);
    }

    #[test]
    fn who_is_given_up_is_told() {
        let mut unseen = unseen();
        ask(&mut unseen, 1, false);
        assert_eq!(unseen.join(None, || 2), 2);
        assert!(!unseen.is_overdue(1_004) && unseen.is_overdue(1_005));
        assert_eq!(unseen.give_up().collect::<Vec<_>>(), [1, 2]);
        assert!(!unseen.is_overdue(1_005) && !unseen.take_answer(1, SAYS));
        assert_eq!((unseen.answer_for(Some(1)), unseen.send(9, false)), (None, None));
    }
}
