//! The *open* batches of a seat: those whose worker has lent the seat, for a call that may last. Whoever occupies the
//! seat meanwhile executes their further calls and sends the replies that they have gathered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::batch::{Batch, Outbox};
use crate::send_queue::SpareBuffers;

#[derive(Debug)]
pub(crate) struct OpenBatch {
    batch: Arc<Batch>,
    gathered: Outbox,
}

impl OpenBatch {
    fn is_finished(&self) -> bool {
        self.gathered.is_empty() && self.batch.is_exhausted()
    }
}

/// Those of one seat.
#[derive(Debug, Default)]
pub(crate) struct OpenBatches {
    batches: Mutex<Vec<OpenBatch>>,
    /// Of them, to be looked at without the lock.
    count: AtomicUsize,
}

impl OpenBatches {
    /// Whether there are any, by what was known a moment ago.
    pub(crate) fn are_any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Opens a batch, with what its calls have gathered, or adds to that if it is open. `false` if there is
    /// nothing to do for anybody.
    pub(crate) fn open(
        &self,
        batch: &Arc<Batch>,
        gathered: &mut Outbox,
        spare: &mut SpareBuffers,
    ) -> bool {
        if gathered.is_empty() && batch.is_exhausted() {
            return false;
        }
        let mut batches = self.batches.lock();
        if let Some(known) = batches.iter_mut().find(|open| Arc::ptr_eq(&open.batch, batch)) {
            known.gathered.absorb(gathered, spare);
        } else {
            let (batch, gathered) = (Arc::clone(batch), std::mem::take(gathered));
            batches.push(OpenBatch { batch, gathered });
        }
        self.note_count(&batches);
        true
    }

    /// Gives what a batch has gathered to who opened it, or to another worker that executes its calls.
    pub(crate) fn take_gathered(
        &self,
        batch: &Arc<Batch>,
        into: &mut Outbox,
        spare: &mut SpareBuffers,
    ) {
        let mut batches = self.batches.lock();
        if let Some(open) = batches.iter_mut().find(|open| Arc::ptr_eq(&open.batch, batch)) {
            into.absorb(&mut open.gathered, spare);
        }
        self.forget_finished(&mut batches);
    }

    /// Closes a batch, if it is open: nobody else takes further calls of it.
    pub(crate) fn close(&self, batch: &Arc<Batch>, into: &mut Outbox, spare: &mut SpareBuffers) {
        let mut batches = self.batches.lock();
        if let Some(at) = batches.iter().position(|open| Arc::ptr_eq(&open.batch, batch)) {
            let mut open = batches.swap_remove(at);
            into.absorb(&mut open.gathered, spare);
        }
        self.note_count(&batches);
    }

    /// A batch that is not finished, and what it has gathered.
    pub(crate) fn take_next(&self) -> Option<(Arc<Batch>, Outbox)> {
        let mut batches = self.batches.lock();
        let open = batches.iter_mut().find(|open| !open.is_finished());
        let next = open.map(|open| (Arc::clone(&open.batch), std::mem::take(&mut open.gathered)));
        self.forget_finished(&mut batches);
        next
    }

    /// Forgets batches of which nothing is left.
    pub(crate) fn close_finished(&self) {
        self.forget_finished(&mut self.batches.lock());
    }

    /// While it is locked, nothing is opened and nothing taken.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<OpenBatch>> {
        self.batches.lock()
    }

    fn forget_finished(&self, batches: &mut Vec<OpenBatch>) {
        batches.retain(|open| !open.is_finished());
        self.note_count(batches);
    }

    fn note_count(&self, batches: &[OpenBatch]) {
        self.count.store(batches.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.
    use super::*;
    use crate::framing::RecordPlace;
    use crate::statistics::{Answered, Executed};

    /// A batch of so many calls.
    fn batch(calls: usize) -> Arc<Batch> {
        let mut batch = Batch::new(0);
        batch.records.places = vec![RecordPlace::Buffer(0..0); calls];
        Arc::new(batch)
    }

    /// What a call leaves.
    fn gathered(index: usize) -> Outbox {
        let answered = vec![Answered { index, executed: Executed::default() }];
        Outbox { answered, ..Outbox::default() }
    }

    fn indices(outbox: &Outbox) -> Vec<usize> {
        outbox.answered.iter().map(|answered| answered.index).collect()
    }

    #[test]
    fn a_batch_is_open_while_something_of_it_is_left() {
        let (open, mut spare) = (OpenBatches::default(), SpareBuffers::default());
        let batch = batch(1);
        assert!(open.open(&batch, &mut gathered(7), &mut spare));
        assert!(open.open(&batch, &mut gathered(8), &mut spare), "one batch, opened twice");
        let (taken, outbox) = open.take_next().unwrap();
        assert!(Arc::ptr_eq(&taken, &batch) && open.lock().len() == 1);
        assert_eq!(indices(&outbox), [7, 8]);
        taken.take_next().unwrap();
        assert!(open.take_next().is_none(), "nothing is left of it");
        assert!(!open.are_any() && open.lock().is_empty());
        assert!(!open.open(&batch, &mut Outbox::default(), &mut spare), "nor is there to be");
    }

    #[test]
    fn what_others_have_gathered_comes_back_to_who_opened_the_batch() {
        let (open, mut spare) = (OpenBatches::default(), SpareBuffers::default());
        let (one, other) = (batch(1), batch(1));
        open.open(&other, &mut gathered(1), &mut spare);
        open.open(&one, &mut Outbox::default(), &mut spare);
        open.open(&one, &mut gathered(2), &mut spare);
        let mut own = gathered(3);
        open.take_gathered(&one, &mut own, &mut spare);
        assert_eq!((indices(&own), open.lock().len()), (vec![3, 2], 2), "it has a call still");
        let mut own = Outbox::default();
        open.close(&other, &mut own, &mut spare);
        assert_eq!((indices(&own), open.lock().len()), (vec![1], 1));
        one.give_up();
        open.close_finished();
        assert!(!open.are_any());
    }
}
