//! Reading what a running server counts.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::capture::{Capture, CaptureOptions, CaptureRuns};
use crate::pool::Pool;
use crate::shared::Shared;
use crate::statistics::{
    CompoundStatistics, OperationStatistics, RecordedCall, SlowCall, Statistics, TopWindow,
    take_top,
};

/// Reads a server's statistics, from any thread; nobody who serves calls waits for it. It keeps
/// nothing running: of a server that was stopped it tells the last state.
#[derive(Clone)]
pub struct Observer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pools: Vec<Arc<Pool>>,
}

impl Observer {
    /// What has been done so far, over all workers.
    pub fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        for pool in &self.pools {
            pool.counters.add_to(&mut sum);
            sum.connections += pool.connections.load(Ordering::Relaxed) as u64;
            sum.workers += pool.worker_count() as u64;
        }
        self.shared.flushers.add_to(&mut sum);
        sum.waiting_bytes = self.shared.waiting.reply_bytes.load(Ordering::Relaxed) as u64;
        sum
    }

    /// What became of the calls so far, by operation; those that nobody called are left out.
    pub fn operation_statistics(&self) -> Vec<OperationStatistics> {
        let mut sums = OperationStatistics::of_all();
        for set in self.pools.iter().flat_map(|pool| pool.counters.all()) {
            set.operations.add_to(&mut sums, false);
        }
        for set in self.shared.flushers.counters.all() {
            set.operations.add_to(&mut sums, true);
        }
        sums.retain(|sum| sum.calls > 0);
        for sum in &mut sums {
            sum.at_once.drop_empty_buckets();
            sum.stable.drop_empty_buckets();
        }
        sums
    }

    /// What became of the operations of COMPOUNDs so far; those that nobody asked for are left out.
    pub fn compound_statistics(&self) -> Vec<CompoundStatistics> {
        let mut sums = CompoundStatistics::of_all();
        for set in self.pools.iter().flat_map(|pool| pool.counters.all()) {
            set.operations.add_parts_to(&mut sums);
        }
        sums.retain(|sum| sum.calls > 0);
        for sum in &mut sums {
            sum.times.drop_empty_buckets();
        }
        sums
    }

    /// The last calls of the flight recorder, at most so many, in the order in which they came:
    /// one in [`crate::ServerOptions::sample_one_in`], and those that took
    /// [`crate::ServerOptions::slow_call_ms`] or longer.
    pub fn recorded_calls(&self, count_max: usize) -> Vec<RecordedCall> {
        let workers = self.pools.iter().flat_map(|pool| pool.counters.all());
        let sets = workers.chain(self.shared.flushers.counters.all());
        let mut records: Vec<_> = sets.flat_map(|set| set.operations.recorded()).collect();
        records.sort_by_key(|record| record.begun_ns);
        let start_unix_ns = self.start_unix_ns();
        let surplus = records.len().saturating_sub(count_max);
        records
            .iter()
            .skip(surplus)
            .map(|record| RecordedCall::new(record, start_unix_ns))
            .collect()
    }

    /// The slowest calls of each operation, slowest first: of each minute and pool 16, for 10 minutes. None of
    /// them took less than 1 ms.
    pub fn slow_calls(&self) -> Vec<SlowCall> {
        let now_ns = self.shared.stamp_ns();
        let pools = self.pools.iter().map(|pool| &pool.counters.slowest);
        let all = pools.chain(std::iter::once(&self.shared.flushers.counters.slowest));
        let start_unix_ns = self.start_unix_ns();
        let records = all.flat_map(|slowest| slowest.read(now_ns));
        let mut calls: Vec<_> = records.map(|call| SlowCall::new(&call, start_unix_ns)).collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.latency_ns));
        calls
    }

    /// What was called since the last time that this was asked, and counts on for so long: nothing is counted
    /// unless somebody has asked. At most [`crate::TOP_FOCUS_MAX`] clients have tables of their own from now on.
    pub fn take_top(&self, focus: &[IpAddr], counts_for: Duration) -> TopWindow {
        let until_ns = self.shared.stamp_ns().saturating_add(counts_for.as_nanos() as u64);
        let counters = || {
            let workers = self.pools.iter().flat_map(|pool| pool.counters.all());
            workers.chain(self.shared.flushers.counters.all())
        };
        take_top(counters, focus, until_ns, &self.shared.top_room)
    }

    /// Captures messages from now on, as they are read and written.
    ///
    /// # Errors
    /// When another capture has not ended.
    pub fn capture(&self, options: CaptureOptions) -> Result<Capture, CaptureRuns> {
        Capture::begin(&self.shared, self.pools.len(), options, self.start_unix_ns())
    }

    /// When the stamps' clock began. It is not kept to the time of day: this is good for the time since then.
    fn start_unix_ns(&self) -> u64 {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (since_1970.as_nanos() as u64).saturating_sub(self.shared.stamp_ns())
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").field("pools", &self.pools.len()).finish_non_exhaustive()
    }
}
