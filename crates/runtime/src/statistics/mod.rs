//! What is counted: by each thread for itself, summed by the reader.
//!
//! [`Counters`] is one thread's set: totals, and by operation ([`operations`]) counts, latencies
//! ([`histogram`]) and the last calls that were looked at closely ([`recorder`], [`timing`]).
//! Only its thread writes to it; a reader ([`reading`]) never makes it wait. Sets are padded, so
//! that no two threads write to one cache line.

mod client;
mod histogram;
mod operations;
mod reading;
mod recorder;
mod slowest;
mod surroundings;
mod timing;
mod top;

pub(crate) use client::Client;
pub(crate) use operations::OperationCounters;
pub use reading::{
    CompoundStatistics, Latencies, LatencyBucket, OperationStatistics, RecordedCall, SlowCall,
    StageTimes,
};
pub use slowest::CallStage;
pub(crate) use slowest::{Ends, Slowest};
pub(crate) use surroundings::Surroundings;
pub use surroundings::{CallSurroundings, LogActivity};
pub(crate) use timing::{Answered, Arrival, Executed, Sampler, Spent, StageClock, Waited};

pub(crate) use top::{AsTop, TopCounters, TopRoom, take as take_top};
pub use top::{TOP_FOCUS_MAX, TopOperation, TopRow, TopTable, TopTables, TopWindow};

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
            pub(crate) operations: OperationCounters,
        }

        impl Statistics {
            /// Each number with its name, in the order above.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![
                    $((stringify!($name), self.$name),)+
                    ("connections", self.connections),
                    ("workers", self.workers),
                    ("parked_now", self.parked_now),
                    ("flushes", self.flushes),
                    ("flush_failures", self.flush_failures),
                    ("waiting_bytes", self.waiting_bytes),
                ]
            }
        }

        impl Counters {
            fn add_to(&self, sum: &mut Statistics) {
                $(sum.$name += self.$name.value();)+
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
    /// Times a worker lent its seat before a call that might block.
    lends,
    /// Times another worker took it.
    takeovers,
    /// Batches of calls whose replies were batched for a moment, to go out with those to others. Named as the
    /// public metric is.
    held_back,
    /// Times a call was suspended, since too many workers waited for its storage, or since it waits for a client
    /// or a name service. Named as the public metric is.
    put_off,
    /// Calls that could not wait for their storage: their clients were told to try later, or their
    /// datagrams dropped.
    told_later,
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
        self.0.store(self.value() + count, Ordering::Relaxed);
    }

    /// For a maximum.
    pub(crate) fn raise(&self, value: u64) {
        if value > self.value() {
            self.0.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl AsTop for Arc<CachePadded<Counters>> {
    fn top(&self) -> &TopCounters {
        &self.operations.top
    }
}

/// The counters of a pool's workers, or of all flushers' threads. Those of a thread that ended go
/// to the next one.
#[derive(Debug, Default)]
pub(crate) struct CounterSets {
    /// Of all of them.
    pub(crate) slowest: Arc<Slowest>,
    sets: Mutex<Sets>,
}

#[derive(Debug, Default)]
struct Sets {
    all: Vec<Arc<CachePadded<Counters>>>,
    unused: Vec<Arc<CachePadded<Counters>>>,
}

impl CounterSets {
    /// Counters for a thread that starts. It counts for who looks at `steadfast top` just now, too.
    pub(crate) fn join(&self, now_ns: u64, top_room: &TopRoom) -> Arc<CachePadded<Counters>> {
        let set = self.unused_or_new();
        // After whoever looks next finds it.
        set.operations.top.join(now_ns, top_room);
        set
    }

    fn unused_or_new(&self) -> Arc<CachePadded<Counters>> {
        let mut sets = self.sets.lock();
        if let Some(set) = sets.unused.pop() {
            return set;
        }
        let operations = OperationCounters::with(Arc::clone(&self.slowest));
        let counters = Counters { operations, ..Counters::default() };
        let set = Arc::new(CachePadded::new(counters));
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

    /// All sets, those of threads that ended too.
    pub(crate) fn all(&self) -> Vec<Arc<CachePadded<Counters>>> {
        self.sets.lock().all.clone()
    }

    pub(crate) fn is_any_busy(&self) -> bool {
        self.sets.lock().all.iter().any(|set| set.is_busy.load(Ordering::SeqCst))
    }
}
