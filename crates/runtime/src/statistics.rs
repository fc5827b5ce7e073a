//! Counters, one set a worker, summed by the reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// What all workers together have done since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Statistics {
            $($(#[$doc])* pub $name: u64,)+
            /// Connections open now.
            pub connections: u64,
            /// Worker threads now.
            pub workers: u64,
            /// Calls that wait for a flush to begin now.
            pub parked_now: u64,
            /// Flushes of objects or whole file systems; each may have served many calls.
            pub flushes: u64,
            /// Flushes that failed.
            pub flush_failures: u64,
            /// Bytes of replies that wait for their peers to read, now.
            pub waiting_bytes: u64,
        }

        /// One worker's counters: written by that worker only.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)+
            /// The worker is about to run calls, or runs some.
            pub(crate) is_busy: AtomicBool,
        }

        impl Counters {
            fn add_to(&self, sum: &mut Statistics) {
                $(sum.$name += self.$name.0.load(Ordering::Relaxed);)+
            }
        }
    };
}

counters! {
    /// Calls executed.
    calls,
    /// Batches of calls received.
    batches,
    /// Bytes received.
    bytes_in,
    /// Bytes of replies handed to the kernel or queued.
    bytes_out,
    /// Calls whose reply waited for stability.
    parked,
    /// Times a worker offered its seat before a call that might block.
    lends,
    /// Times another worker took it.
    takeovers,
    /// Connections accepted.
    accepted,
    /// Connections refused for want of descriptors or by the limit.
    refused,
    /// Datagrams received.
    datagrams,
}

/// A counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        // One writer: no read-modify-write is needed.
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }
}

/// All workers' counters of a pool. Those of a worker that ended go to the next one.
#[derive(Debug, Default)]
pub(crate) struct CounterSets {
    sets: Mutex<Sets>,
}

#[derive(Debug, Default)]
struct Sets {
    all: Vec<Arc<CachePadded<Counters>>>,
    unused: Vec<Arc<CachePadded<Counters>>>,
}

impl CounterSets {
    pub(crate) fn join(&self) -> Arc<CachePadded<Counters>> {
        let mut sets = self.sets.lock();
        if let Some(set) = sets.unused.pop() {
            return set;
        }
        let set = Arc::<CachePadded<Counters>>::default();
        sets.all.push(Arc::clone(&set));
        set
    }

    pub(crate) fn leave(&self, set: &Arc<CachePadded<Counters>>) {
        set.is_busy.store(false, Ordering::SeqCst);
        self.sets.lock().unused.push(Arc::clone(set));
    }

    pub(crate) fn add_to(&self, sum: &mut Statistics) {
        for set in &self.sets.lock().all {
            set.add_to(sum);
        }
    }

    pub(crate) fn is_any_busy(&self) -> bool {
        self.sets.lock().all.iter().any(|set| set.is_busy.load(Ordering::SeqCst))
    }
}
