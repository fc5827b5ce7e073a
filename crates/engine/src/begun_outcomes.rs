//! What operations of COMPOUNDs have done that were under way when the process was killed: when the COMPOUND
//! comes again, such an operation is not executed, and succeeds.
//!
//! They stand behind a change in a record, or in the store of replies, as replies do ([`crate::record`]):
//!
//! | bytes | what |
//! |---|---|
//! | 1 | 3 |
//! | 1 | length of the mark's name |
//! | | the name ([`crate::call_mark`]) |
//! | 1 | 1 if the operation made an object, 2 for any other change |
//! | rest | the object's handle |

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;
use steadfast_vfs::StorageHandle;

use crate::call_mark::{self, CallMark, Named};

/// The form of a record ([`crate::record`]).
pub(crate) const OUTCOME: u8 = 3;
const MADE: u8 = 1;
const CHANGED: u8 = 2;
/// So many are known at once. What was under way at a kill is a few hundred.
const OUTCOMES_MAX: usize = 65_536;

/// What an operation has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpOutcome {
    /// It made an object.
    Made(StorageHandle),
    Changed,
}

/// An operation of a COMPOUND, by its place, and what it has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DoneOp {
    pub(crate) operation: u32,
    pub(crate) outcome: OpOutcome,
}

/// What the operations of one COMPOUND have done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DoneOps(SmallVec<[DoneOp; 1]>);

impl DoneOps {
    /// What an operation has done, which has a mark if it was executed. A later one that was done tells
    /// that of all before it.
    pub(crate) fn of(&self, operation: u32) -> Option<OpOutcome> {
        let known = self.0.iter().find(|done| done.operation == operation);
        let later = || self.0.iter().any(|done| done.operation > operation);
        known.map(|done| done.outcome).or_else(|| later().then_some(OpOutcome::Changed))
    }

    /// Whether something is known of this operation or a later one.
    pub(crate) fn has_from(&self, operation: u32) -> bool {
        self.0.iter().any(|done| done.operation >= operation)
    }
}

/// Appends what an operation has done, by the name of its mark.
pub(crate) fn append(record: &mut Vec<u8>, name: &[u8], outcome: OpOutcome) {
    record.push(OUTCOME);
    record.push(name.len() as u8);
    record.extend_from_slice(name);
    match outcome {
        OpOutcome::Made(handle) => {
            record.push(MADE);
            record.extend_from_slice(handle.as_bytes());
        }
        OpOutcome::Changed => record.push(CHANGED),
    }
}

/// The name of the mark, and what follows it.
pub(crate) fn name_of(behind: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[OUTCOME, length], rest) = behind.split_first_chunk()? else { return None };
    rest.split_at_checked(usize::from(length))
}

/// Reads what [`append`] has written: the bytes that name the call, and what it has done.
fn read(behind: &[u8]) -> Option<(&[u8], DoneOp)> {
    let (name, rest) = name_of(behind)?;
    let Named::Operation { call, operation } = call_mark::named(name)? else { return None };
    let outcome = match rest.split_first()? {
        (&MADE, handle) => OpOutcome::Made(StorageHandle::new(handle)?),
        (&CHANGED, []) => OpOutcome::Changed,
        _ => return None,
    };
    Some((call, DoneOp { operation, outcome }))
}

/// What is known of COMPOUNDs that may come again.
///
/// Requests of sessions are asked for when they are the first of their slots only; all others stay as long
/// as replies do: after that their keys may be those of other calls.
#[derive(Default)]
pub(crate) struct BegunOutcomes {
    /// How many there are of calls without a session, so that nobody takes the lock for none.
    calls: AtomicUsize,
    all: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By what names the call.
    of_calls: HashMap<Box<[u8]>, DoneOps>,
    of_requests: HashMap<Box<[u8]>, DoneOps>,
    /// How many operations were remembered, and not taken out.
    operations: usize,
    /// When the last of a call was remembered.
    remembered_ms: u64,
}

impl Known {
    fn of(&mut self, call: &[u8]) -> &mut HashMap<Box<[u8]>, DoneOps> {
        if call_mark::is_of_request(call) { &mut self.of_requests } else { &mut self.of_calls }
    }

    fn remember(&mut self, call: &[u8], done: DoneOp) {
        let known = self.of(call).entry(call.into()).or_default();
        let before = known.0.iter().position(|before| before.operation == done.operation);
        // What was remembered later is newer.
        if let Some(before) = before.and_then(|place| known.0.get_mut(place)) {
            *before = done;
        } else {
            known.0.push(done);
            self.operations += 1;
        }
    }

    fn take(&mut self, call: &[u8]) -> DoneOps {
        let taken = self.of(call).remove(call).unwrap_or_default();
        self.operations = self.operations.saturating_sub(taken.0.len());
        taken
    }
}

impl BegunOutcomes {
    /// Remembers what stands behind a change. Whether it is an operation's outcome.
    pub(crate) fn remember(&self, behind: &[u8], now_ms: u64) -> bool {
        let Some((call, done)) = read(behind) else { return false };
        let mut all = self.all.lock();
        all.remembered_ms = now_ms;
        if all.operations < OUTCOMES_MAX {
            all.remember(call, done);
        }
        self.calls.store(all.of_calls.len(), Ordering::Release);
        true
    }

    /// Whether something is known that a call without a session has done, by the name of any mark of it.
    pub(crate) fn has(&self, mark: impl FnOnce() -> Option<CallMark>) -> bool {
        self.calls.load(Ordering::Acquire) > 0
            && mark().is_some_and(|mark| {
                let call = call_mark::call_of_mark(mark.as_bytes());
                self.all.lock().of_calls.contains_key(call)
            })
    }

    /// Takes out what a call without a session has done that comes again, by the name of any mark of it.
    pub(crate) fn take(&self, mark: impl FnOnce() -> Option<CallMark>) -> DoneOps {
        if self.calls.load(Ordering::Acquire) == 0 {
            return DoneOps::default();
        }
        let Some(mark) = mark() else { return DoneOps::default() };
        let mut all = self.all.lock();
        let taken = all.take(call_mark::call_of_mark(mark.as_bytes()));
        self.calls.store(all.of_calls.len(), Ordering::Release);
        taken
    }

    /// Takes out what a request has done, which is the first of its slot.
    pub(crate) fn take_of_request(&self, mark: &CallMark) -> DoneOps {
        self.all.lock().take(call_mark::call_of_mark(mark.as_bytes()))
    }

    /// Forgets what calls have done that do not come again: so long after it was remembered.
    pub(crate) fn expire(&self, now_ms: u64, stay_ms: u64) {
        if self.calls.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut all = self.all.lock();
        if now_ms.saturating_sub(all.remembered_ms) > stay_ms {
            let forgotten = std::mem::take(&mut all.of_calls);
            let operations: usize = forgotten.values().map(|done| done.0.len()).sum();
            all.operations = all.operations.saturating_sub(operations);
            self.calls.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Property ring.
    use proptest::prelude::*;

    use super::*;
    use crate::call_mark::call_of_mark;
    use crate::record::call_of;
    use crate::reply_cache::{CallKey, KEY_BYTES};

    fn mark(seed: u8, operation: u32) -> CallMark {
        CallMark::of_compound(CallKey::from_bytes(&[seed; KEY_BYTES]), operation)
    }

    #[test]
    fn of_a_compound_all_operations_are_known_once() {
        let outcomes = BegunOutcomes::default();
        let handle = StorageHandle::new(b"handle").expect("short");
        let both = [(2, OpOutcome::Made(handle)), (5, OpOutcome::Changed)];
        for (operation, outcome) in both {
            let mut record = Vec::new();
            append(&mut record, mark(1, operation).as_bytes(), outcome);
            let call = call_of_mark(mark(1, operation).as_bytes()).to_vec();
            assert_eq!(call_of(&record), Some(&*call));
            assert_eq!(read(&record), Some((&*call, DoneOp { operation, outcome })));
            assert!(outcomes.remember(&record, 0));
        }
        assert_eq!(outcomes.take(|| Some(mark(2, 0))), DoneOps::default());
        assert!(outcomes.has(|| Some(mark(1, 0))) && !outcomes.has(|| Some(mark(2, 0))));
        let taken = outcomes.take(|| Some(mark(1, 0)));
        for (operation, outcome) in both {
            assert_eq!(taken.of(operation), Some(outcome));
        }
        // What came before one that was done was done.
        assert_eq!(taken.of(4), Some(OpOutcome::Changed));
        assert_eq!(taken.of(6), None);
        assert!(taken.has_from(5) && !taken.has_from(6));
        assert_eq!(outcomes.take(|| panic!("nothing is left")), DoneOps::default());
    }

    #[test]
    fn a_call_that_does_not_come_again_is_forgotten() {
        let outcomes = BegunOutcomes::default();
        let mut record = Vec::new();
        append(&mut record, mark(1, 2).as_bytes(), OpOutcome::Changed);
        assert!(outcomes.remember(&record, 1_000));
        outcomes.expire(66_000, 65_000);
        assert!(outcomes.has(|| Some(mark(1, 0))));
        outcomes.expire(66_001, 65_000);
        let taken = outcomes.take(|| panic!("nobody takes the lock any more"));
        assert_eq!(taken, DoneOps::default());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..80),
            length in 30..50_u8,
        ) {
            let outcomes = BegunOutcomes::default();
            outcomes.remember(&bytes, 0);
            bytes.splice(0..0, [OUTCOME, length]);
            let is_known = outcomes.remember(&bytes, 0);
            prop_assert!(!is_known || call_of(&bytes).is_some());
        }
    }
}
