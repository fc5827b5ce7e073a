//! What a mount counts while it works. Each mount has its own; a count is one relaxed addition.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use steadfast_client::recovery;
use steadfast_client::{NFS3, Procedure, procedure};

/// The last row: procedures that have no row of their own.
const OTHER: &str = "OTHER";

/// A histogram has so many buckets for each doubling of the latency.
const BUCKETS_PER_OCTAVE: u64 = 8;
/// Latencies up to 2^37 µs, which is 38 hours.
const BUCKETS: usize = 280;

/// Counts one kind of things. Nobody orders anything by it.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many wait now, and for how long all have waited together.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    now: AtomicU64,
    waited_us: Count,
}

impl Waits {
    /// Counts whoever waits until the guard is dropped.
    pub(crate) fn begin(&self) -> Waiting<'_> {
        self.now.fetch_add(1, Ordering::Relaxed);
        Waiting { waits: self, since: Instant::now() }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(crate) fn waited(&self) -> Duration {
        Duration::from_micros(self.waited_us.value())
    }
}

/// Somebody who waits.
#[derive(Debug)]
pub(crate) struct Waiting<'w> {
    waits: &'w Waits,
    since: Instant,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waits.now.fetch_sub(1, Ordering::Relaxed);
        self.waits.waited_us.add(microseconds(self.since.elapsed()));
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Latencies, at most an eighth too high.
#[derive(Debug)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS] }
    }
}

fn bucket_of(us: u64) -> usize {
    let bucket = match us.checked_ilog2() {
        Some(octave @ 3..) => {
            let within = (us >> (octave - 3)) & (BUCKETS_PER_OCTAVE - 1);
            (u64::from(octave) - 2) * BUCKETS_PER_OCTAVE + within
        }
        _ => us,
    };
    usize::try_from(bucket).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// What every latency of a bucket is below, in µs.
fn end_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < BUCKETS_PER_OCTAVE {
        return bucket + 1;
    }
    let (octave, within) = (bucket / BUCKETS_PER_OCTAVE - 1, bucket % BUCKETS_PER_OCTAVE);
    (BUCKETS_PER_OCTAVE + within + 1) << octave
}

impl Histogram {
    fn note(&self, us: u64) {
        if let Some(bucket) = self.buckets.get(bucket_of(us)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What this many of 100 latencies are below, in µs.
    fn percentile(&self, percent: u64) -> u64 {
        let counts: Vec<u64> =
            self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let all: u64 = counts.iter().sum();
        let wanted = (all * percent).div_ceil(100);
        let mut seen = 0;
        for (bucket, count) in counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return end_of(bucket);
            }
        }
        0
    }
}

/// The counts of one procedure.
#[derive(Debug, Default)]
struct Row {
    calls: Count,
    errors: Count,
    retries: Count,
    latency_us: Count,
    latencies: Histogram,
}

/// The counts of one procedure, as they were at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) program: &'static str,
    pub(crate) name: &'static str,
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) retries: u64,
    pub(crate) latency_us: u64,
    pub(crate) p99_us: u64,
}

/// Everything that a mount counts.
#[derive(Debug)]
pub(crate) struct Counters {
    /// By [`index_of`].
    rows: Vec<Row>,
    /// Data that programs have read from the mount, beside what the kernel had in its pages.
    pub(crate) read_bytes: Count,
    /// Data that programs have written.
    pub(crate) written_bytes: Count,
    /// RPC messages with their record marks, each time that they are sent.
    pub(crate) sent_bytes: Count,
    pub(crate) received_bytes: Count,
    /// Look-ups and questions for attributes that needed no call.
    pub(crate) cache_hits: Count,
    pub(crate) cache_misses: Count,
    /// WRITEs and COMMITs that the server has refused, so that their data was given up.
    pub(crate) refused_writes: Count,
    /// Writers that wait since too much is in memory.
    pub(crate) memory_waits: Waits,
}

/// Where a procedure is counted.
pub(crate) fn index_of(procedure: Procedure) -> usize {
    let nfs = procedure::ALL.len();
    let number = procedure.number as usize;
    if procedure.version == 4 && procedure.program == NFS3 {
        // What a COMPOUND is for is counted as the call of NFSv3 for that.
        let of_name = procedure::ALL.iter().position(|one| one.name == procedure.name);
        return of_name.unwrap_or(nfs + recovery::ALL.len());
    }
    match procedure.program {
        NFS3 if number < nfs => number,
        recovery::RECOVERY if number < recovery::ALL.len() => nfs + number,
        _ => nfs + recovery::ALL.len(),
    }
}

impl Default for Counters {
    fn default() -> Self {
        let rows = procedure::ALL.len() + recovery::ALL.len() + 1;
        Self {
            rows: (0..rows).map(|_| Row::default()).collect(),
            read_bytes: Count::default(),
            written_bytes: Count::default(),
            sent_bytes: Count::default(),
            received_bytes: Count::default(),
            cache_hits: Count::default(),
            cache_misses: Count::default(),
            refused_writes: Count::default(),
            memory_waits: Waits::default(),
        }
    }
}

impl Counters {
    /// A call has ended.
    pub(crate) fn note_call(&self, index: usize, took: Duration, has_failed: bool) {
        let Some(row) = self.rows.get(index) else { return };
        let us = microseconds(took);
        row.calls.add(1);
        row.errors.add(u64::from(has_failed));
        row.latency_us.add(us);
        row.latencies.note(us);
    }

    /// A call was sent again.
    pub(crate) fn note_retry(&self, index: usize) {
        if let Some(row) = self.rows.get(index) {
            row.retries.add(1);
        }
    }

    /// The procedures that were called.
    pub(crate) fn procedures(&self) -> Vec<Counted> {
        let nfs = procedure::ALL.iter().map(|one| ("nfs", one.name));
        let names = nfs
            .chain(recovery::ALL.iter().map(|one| ("recovery", one.name)))
            .chain([("other", OTHER)]);
        let counted = |((program, name), row): ((&'static str, &'static str), &Row)| Counted {
            program,
            name,
            calls: row.calls.value(),
            errors: row.errors.value(),
            retries: row.retries.value(),
            latency_us: row.latency_us.value(),
            p99_us: row.latencies.percentile(99),
        };
        names
            .zip(&self.rows)
            .map(counted)
            .filter(|counted| counted.calls > 0 || counted.retries > 0)
            .collect()
    }

    /// Whether something was answered without a call.
    pub(crate) fn note_cache(&self, is_hit: bool) {
        if is_hit { self.cache_hits.add(1) } else { self.cache_misses.add(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_latency_is_in_its_bucket() {
        let mut last = 0;
        for us in (0..5000).chain((0..37).flat_map(|bits| [(1 << bits) - 1, 1 << bits])) {
            let bucket = bucket_of(us);
            assert!(us < end_of(bucket), "{us}");
            assert!(bucket == 0 || us >= end_of(bucket - 1), "{us}");
            assert!(us < 8 || end_of(bucket) - us <= us / 8 + 1, "{us}");
            last = last.max(bucket);
        }
        assert!(last < BUCKETS);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_99th_percentile_is_above_99_of_100() {
        let counters = Counters::default();
        let index = index_of(procedure::READ);
        for us in 1..=1000 {
            counters.note_call(index, Duration::from_micros(us), us % 10 == 0);
        }
        counters.note_retry(index);
        let counted = counters.procedures();
        assert_eq!(counted.len(), 1);
        let read = counted[0];
        assert_eq!((read.name, read.calls, read.errors, read.retries), ("READ", 1000, 100, 1));
        assert_eq!(read.latency_us, 500_500);
        assert!((990..=1120).contains(&read.p99_us), "{}", read.p99_us);
        assert_eq!(Histogram::default().percentile(99), 0);
    }

    #[test]
    fn each_procedure_has_its_row() {
        let all = procedure::ALL.iter().chain(&recovery::ALL);
        let mut indices: Vec<usize> = all.map(|one| index_of(*one)).collect();
        let strange = Procedure { program: NFS3, version: 3, number: 99, name: "STRANGE" };
        indices.push(index_of(strange));
        assert_eq!(indices, (0..indices.len()).collect::<Vec<_>>());
        assert_eq!(Counters::default().rows.len(), indices.len());
        let compound = |name| Procedure { name, ..steadfast_client::nfs4::COMPOUND };
        assert_eq!(index_of(compound("READ")), index_of(procedure::READ));
        assert_eq!(index_of(compound("OPEN")), index_of(strange));
    }

    #[test]
    fn who_waits_is_counted_while_it_waits() {
        let waits = Waits::default();
        let waiting = waits.begin();
        assert_eq!((waits.now(), waits.waited()), (1, Duration::ZERO));
        std::thread::sleep(Duration::from_millis(2));
        drop(waiting);
        assert_eq!(waits.now(), 0);
        assert!(waits.waited() >= Duration::from_millis(2));
    }
}
