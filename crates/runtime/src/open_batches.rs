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
