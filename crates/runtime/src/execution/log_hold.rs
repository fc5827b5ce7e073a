//! For how long a worker *holds* what calls have logged before somebody writes it: a write of many records costs hardly
//! more than one of few. It decides, and is told the times; the log is the executor's to call.

/// What calls have logged is written when so many were executed since, though others could be first.
const HELD_CALLS: usize = 32;
/// Or after this time, in ns.
const HELD_NS: u64 = 1_000_000;

/// What one worker holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogHold {
    held: Option<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    /// When it held the first of it.
    since_ns: u64,
    /// So many calls were executed since.
    calls: usize,
}

/// A turn that is at its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedTurn {
    pub(super) now_ns: u64,
    /// Calls that were executed.
    pub(super) calls: usize,
    /// Nobody needs this worker before what was logged is stable: it serves but one connection, which has no more
    /// calls.
    pub(super) is_alone: bool,
    /// Others are next, and may log more.
    pub(super) others_are_next: bool,
}

/// What is to become of what was logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// This worker writes it.
    Commit,
    /// A committer writes it as soon as it can.
    Rouse,
    /// The same; and this worker holds nothing any more, which the log has to know.
    RouseAndRelease,
    /// This worker holds it from now on, which the log has to know.
    Hold,
    /// It still does.
    HoldFurther,
}

impl LogHold {
    /// What to do at a turn's end. `is_log_free`: whether nobody writes the log; asked only if it matters.
    pub(super) fn turn_ended(
        &mut self,
        turn: EndedTurn,
        is_log_free: impl FnOnce() -> bool,
    ) -> Step {
        if turn.is_alone && is_log_free() {
            return Step::Commit;
        }
        let is_first = self.held.is_none();
        let Held { since_ns, calls } =
            self.held.unwrap_or(Held { since_ns: turn.now_ns, calls: 0 });
        let calls = calls + turn.calls;
        let may_hold = calls < HELD_CALLS && turn.now_ns < since_ns + HELD_NS;
        if !turn.others_are_next || !may_hold {
            return if self.release() { Step::RouseAndRelease } else { Step::Rouse };
        }
        self.held = Some(Held { since_ns, calls });
        if is_first { Step::Hold } else { Step::HoldFurther }
    }

    /// Nothing is held any more. Whether something was, which the log has to know then.
    pub(super) fn release(&mut self) -> bool {
        self.held.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    //! Unit and property rings, on a virtual clock.
    use proptest::prelude::*;

    use super::*;

    fn turn(now_ns: u64, calls: usize) -> EndedTurn {
        EndedTurn { now_ns, calls, is_alone: false, others_are_next: true }
    }

    fn never() -> bool {
        panic!("it does not matter who writes the log")
    }

    #[test]
    fn what_is_held_is_written_after_so_many_calls() {
        let mut hold = LogHold::default();
        assert_eq!(hold.turn_ended(turn(0, 1), never), Step::Hold);
        assert_eq!(hold.turn_ended(turn(0, HELD_CALLS - 2), never), Step::HoldFurther);
        assert_eq!(hold.turn_ended(turn(0, 1), never), Step::RouseAndRelease);
        assert_eq!(hold.turn_ended(turn(0, HELD_CALLS), never), Step::Rouse, "too many at once");
    }

    #[test]
    fn what_is_held_is_written_in_time() {
        let mut hold = LogHold::default();
        assert_eq!(hold.turn_ended(turn(100, 1), never), Step::Hold);
        assert_eq!(hold.turn_ended(turn(100 + HELD_NS - 1, 1), never), Step::HoldFurther);
        assert_eq!(hold.turn_ended(turn(100 + HELD_NS, 1), never), Step::RouseAndRelease);
        assert_eq!(hold.turn_ended(turn(100 + HELD_NS, 1), never), Step::Hold, "a new one");
    }

    #[test]
    fn who_is_alone_writes_itself_unless_somebody_does() {
        let mut hold = LogHold::default();
        let alone = EndedTurn { is_alone: true, others_are_next: false, ..turn(0, 1) };
        assert_eq!(hold.turn_ended(alone, || true), Step::Commit);
        assert_eq!(hold.turn_ended(alone, || false), Step::Rouse);
    }

    proptest! {
        /// However turns follow each other: the log is told of each hold and of its end, in turn; nothing is held that
        /// nobody adds to, nor for too long, nor too much; and nothing is written earlier than it must be.
        #[test]
        fn nothing_is_held_beyond_its_bounds(
            steps in proptest::collection::vec(
                (0..HELD_NS / 3, 1..20_usize, any::<bool>(), any::<bool>(), any::<bool>(), 0..8_u8),
                0..200,
            ),
        ) {
            let mut hold = LogHold::default();
            let mut now_ns = 0;
            // The turns whose records are not written, as the log sees it, and how often it was told of holds.
            let (mut unwritten, mut holds) = (Vec::<(u64, usize)>::new(), 0);
            for (later_ns, calls, is_alone, others_are_next, is_log_free, what) in steps {
                now_ns += later_ns;
                if what == 0 {
                    prop_assert_eq!(hold.release(), holds == 1);
                    (unwritten, holds) = (Vec::new(), 0);
                    continue;
                }
                // Who is alone has nobody who is next.
                let is_alone = is_alone && !others_are_next;
                let step = hold.turn_ended(
                    EndedTurn { now_ns, calls, is_alone, others_are_next },
                    || is_log_free,
                );
                unwritten.push((now_ns, calls));
                let since_ns = unwritten.first().map_or(now_ns, |(since_ns, _)| *since_ns);
                let sum: usize = unwritten.iter().map(|(_, calls)| calls).sum();
                let fits = sum < HELD_CALLS && now_ns - since_ns < HELD_NS;
                match step {
                    Step::Commit => {
                        prop_assert!(is_alone && is_log_free);
                        // What was held before is still to be released.
                        unwritten.pop();
                    }
                    Step::Rouse | Step::RouseAndRelease => {
                        prop_assert!(!others_are_next || !fits, "it could have been held");
                        prop_assert_eq!(step == Step::RouseAndRelease, holds == 1);
                        (unwritten, holds) = (Vec::new(), 0);
                    }
                    Step::Hold | Step::HoldFurther => {
                        prop_assert!(others_are_next && fits);
                        prop_assert_eq!(step == Step::Hold, holds == 0);
                        holds = 1;
                    }
                }
                prop_assert_eq!(is_alone && is_log_free, step == Step::Commit);
            }
        }
    }
}
