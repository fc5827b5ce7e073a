//! The slowest calls of each operation, minute by minute: who called, for what, and where the time went.
//!
//! A pool has one [`Slowest`], the flushers have another: no pool takes a lock of another one. A call that is
//! not slow costs one comparison of its latency. A call that is slow is compared with the fastest one kept of
//! its operation and minute, without a lock; only who is slower takes the lock.
//!
//! Memory: at most [`CALLS_A_MINUTE`] calls of at most [`RECORD_BYTES_MAX`] for each operation and minute, for
//! [`MINUTES`] minutes: 50 KiB for an operation whose calls are slow all the time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use steadfast_engine::{CallFacts, CallSubject, CompoundOperation, OperationId, Transport};

use super::client::Client;
use super::surroundings::CallSurroundings;
use super::timing::{Arrival, Executed};

/// A faster call is not kept, however few there are: what takes less than 1 ms waited for nothing.
pub(crate) const FLOOR_NS: u64 = 1_000_000;
/// Calls that are kept of each operation and minute.
pub(crate) const CALLS_A_MINUTE: usize = 16;
/// Minutes that they are kept for.
pub(crate) const MINUTES: u64 = 10;
/// By the stamps' clock.
const MINUTE_NS: u64 = 60_000_000_000;
/// Of a threshold, the bits of the latency in ns: 18 minutes, as long as which any longer one counts. Above them is
/// the minute, in 24 bits: 31 years after the start.
const LATENCY_BITS: u32 = 40;
const LATENCY_MASK: u64 = (1 << LATENCY_BITS) - 1;

/// What the time of a call is spent on, in the order of its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallStage {
    /// It was received and waited for its turn: for others of its batch or client, or for a worker.
    Turn,
    /// It was suspended until a name service answered.
    Names,
    /// It was suspended until another client gave something back: a delegation, or a file that it had open.
    Clients,
    /// It was suspended since too many calls waited for the same storage.
    Storage,
    /// Decoding, access, and what the storage did without waiting.
    Work,
    /// The storage's operation, from where it might wait: the file system or its disk.
    FileSystem,
    /// There, it waited until the intent log took its change: the log was full, or was being closed.
    LogRoom,
    /// Executed, it waited until its file system was flushed.
    Flush,
    /// Executed, it waited until the intent log was written.
    Log,
    /// Its reply waited for those that go out with it, and for the socket.
    Send,
}

impl CallStage {
    /// How many there are.
    pub const COUNT: usize = 10;
    /// All, in the order of a call's way.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Turn,
        Self::Names,
        Self::Clients,
        Self::Storage,
        Self::Work,
        Self::FileSystem,
        Self::LogRoom,
        Self::Flush,
        Self::Log,
        Self::Send,
    ];

    /// Its name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Names => "names",
            Self::Clients => "clients",
            Self::Storage => "storage",
            Self::Work => "work",
            Self::FileSystem => "file-system",
            Self::LogRoom => "log-room",
            Self::Flush => "flush",
            Self::Log => "log",
            Self::Send => "send",
        }
    }
}

/// When the parts of an executed call's way ended, by the stamps' clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// When what it waited for was stable; `None` if it did not wait.
    pub(crate) stable_ns: Option<u64>,
    /// Whether it waited for the log last.
    pub(crate) is_logged: bool,
    pub(crate) sent_ns: u64,
}

/// How long a call was in each stage, in ns, in the order of [`CallStage::ALL`]. The sum is its latency.
pub(crate) fn stages(arrival: Arrival, executed: &Executed, ends: Ends) -> [u64; CallStage::COUNT] {
    let waited = executed.waited.as_deref().copied().unwrap_or_default();
    let before_ns = executed.begun_ns.saturating_sub(arrival.received_ns);
    // Executions that ended with the call being suspended are no waiting for its turn.
    let executed_in_all = waited.with(&executed.spent());
    let settled_ns = ends.stable_ns.unwrap_or(executed.ended_ns);
    let flushed_ns = match (ends.is_logged, executed.flushed_ns) {
        (true, 0) => executed.ended_ns,
        (true, flushed_ns) => {
            flushed_ns.clamp(executed.ended_ns, settled_ns.max(executed.ended_ns))
        }
        (false, _) => settled_ns,
    };
    [
        before_ns.saturating_sub(waited.sum()),
        waited.names,
        waited.clients,
        waited.storage,
        executed_in_all.work,
        executed_in_all.file_system,
        executed_in_all.log_room,
        flushed_ns.saturating_sub(executed.ended_ns),
        settled_ns.saturating_sub(flushed_ns.max(executed.ended_ns)),
        ends.sent_ns.saturating_sub(settled_ns),
    ]
}

/// One slow call, times in ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowRecord {
    pub(crate) facts: CallFacts,
    pub(crate) subject: CallSubject,
    /// Of a COMPOUND that came to where it might wait: the operation that took longest from there on.
    pub(crate) waited_in: Option<CompoundOperation>,
    pub(crate) client: Client,
    /// By the stamps' clock.
    pub(crate) received_ns: u64,
    pub(crate) latency_ns: u64,
    pub(crate) stages_ns: [u64; CallStage::COUNT],
    pub(crate) surroundings: CallSurroundings,
}

impl SlowRecord {
    pub(crate) fn transport(&self) -> Transport {
        self.client.transport
    }
}

/// A record is no larger.
const RECORD_BYTES_MAX: usize = 320;
const _: () = assert!(size_of::<SlowRecord>() <= RECORD_BYTES_MAX);

#[derive(Debug)]
struct Minute {
    number: u64,
    calls: Vec<SlowRecord>,
}

/// The slowest calls of each operation.
#[derive(Debug)]
pub(crate) struct Slowest {
    /// By operation: a minute, and above which latency a call of it is kept.
    thresholds: [AtomicU64; OperationId::COUNT],
    /// By operation: what is kept, the oldest minute first. Who reads copies one operation at a time.
    minutes: [Mutex<VecDeque<Minute>>; OperationId::COUNT],
}

impl Default for Slowest {
    fn default() -> Self {
        Self {
            thresholds: [const { AtomicU64::new(0) }; OperationId::COUNT],
            minutes: [const { Mutex::new(VecDeque::new()) }; OperationId::COUNT],
        }
    }
}

fn minute_of(at_ns: u64) -> u64 {
    at_ns / MINUTE_NS
}

fn threshold(minute: u64, latency_ns: u64) -> u64 {
    (minute << LATENCY_BITS) | latency_ns.min(LATENCY_MASK)
}

impl Slowest {
    /// Whether a call whose reply was sent at this time is among the slowest of its operation.
    #[inline]
    pub(crate) fn would_keep(&self, operation: OperationId, latency_ns: u64, at_ns: u64) -> bool {
        latency_ns >= FLOOR_NS && self.is_among(operation, latency_ns, at_ns)
    }

    #[cold]
    fn is_among(&self, operation: OperationId, latency_ns: u64, at_ns: u64) -> bool {
        let Some(known) = self.thresholds.get(operation.index()) else { return false };
        // A later minute makes the number greater, whatever the latency.
        threshold(minute_of(at_ns), latency_ns) > known.load(Ordering::Relaxed)
    }

    /// Keeps a call in place of the fastest one.
    #[cold]
    pub(crate) fn keep(&self, record: &SlowRecord, at_ns: u64) {
        let index = record.facts.operation.index();
        let number = minute_of(at_ns);
        let Some(of_operation) = self.minutes.get(index) else { return };
        let mut of_operation = of_operation.lock();
        while of_operation.front().is_some_and(|minute| minute.number + MINUTES <= number) {
            of_operation.pop_front();
        }
        // Threads look at their clocks before they take the lock: a minute may have begun meanwhile.
        if of_operation.back().is_none_or(|minute| minute.number < number) {
            of_operation.push_back(Minute { number, calls: Vec::new() });
        }
        let Some(minute) = of_operation.back_mut() else { return };
        let fastest = |calls: &[SlowRecord]| {
            let latencies = calls.iter().enumerate().map(|(at, call)| (call.latency_ns, at));
            latencies.min()
        };
        if minute.calls.len() < CALLS_A_MINUTE {
            minute.calls.push(*record);
        } else if let Some((latency_ns, at)) = fastest(&minute.calls)
            && latency_ns < record.latency_ns
            && let Some(place) = minute.calls.get_mut(at)
        {
            *place = *record;
        }
        if minute.calls.len() == CALLS_A_MINUTE
            && let Some((latency_ns, _)) = fastest(&minute.calls)
            && let Some(known) = self.thresholds.get(index)
        {
            known.store(threshold(minute.number, latency_ns), Ordering::Relaxed);
        }
    }

    /// What is kept of the last minutes.
    pub(crate) fn read(&self, now_ns: u64) -> Vec<SlowRecord> {
        let now = minute_of(now_ns);
        let mut records = Vec::new();
        for of_operation in &self.minutes {
            let minutes = of_operation.lock();
            let recent = minutes.iter().filter(|minute| minute.number + MINUTES > now);
            records.extend(recent.flat_map(|minute| minute.calls.iter().copied()));
        }
        records
    }
}

#[cfg(test)]
mod tests {
    //! Unit and property rings.

    use std::net::{Ipv4Addr, SocketAddr};

    use proptest::prelude::*;

    use super::super::timing::{Spent, Waited};
    use super::*;

    fn operation(index: usize) -> OperationId {
        OperationId::from_index(index).unwrap()
    }

    fn record(operation: OperationId, latency_ns: u64) -> SlowRecord {
        SlowRecord {
            facts: CallFacts { operation, ..CallFacts::default() },
            subject: CallSubject::default(),
            waited_in: None,
            client: Client {
                address: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1),
                transport: Transport::Tcp,
            },
            received_ns: 0,
            latency_ns,
            stages_ns: [0; CallStage::COUNT],
            surroundings: CallSurroundings::default(),
        }
    }

    /// As its callers do.
    fn note(slowest: &Slowest, operation: OperationId, latency_ns: u64, at_ns: u64) {
        if slowest.would_keep(operation, latency_ns, at_ns) {
            slowest.keep(&record(operation, latency_ns), at_ns);
        }
    }

    #[test]
    fn calls_are_kept_for_ten_minutes() {
        let slowest = Slowest::default();
        note(&slowest, operation(1), FLOOR_NS - 1, 0);
        assert!(slowest.read(0).is_empty(), "it is not slow");
        for minute in 0..30 {
            note(&slowest, operation(1), FLOOR_NS + minute, minute * MINUTE_NS);
        }
        let kept = slowest.read(29 * MINUTE_NS);
        assert_eq!(kept.len() as u64, MINUTES);
        assert!(kept.iter().all(|call| call.latency_ns >= FLOOR_NS + 20));
        assert!(slowest.read(39 * MINUTE_NS).is_empty());
    }

    #[test]
    fn many_fast_calls_drive_no_slow_one_out_and_are_not_looked_at_for_long() {
        let slowest = Slowest::default();
        note(&slowest, operation(2), 9 * FLOOR_NS, 5);
        for _ in 0..100 {
            note(&slowest, operation(2), 2 * FLOOR_NS, 5);
        }
        assert!(!slowest.would_keep(operation(2), 2 * FLOOR_NS, 5));
        assert!(slowest.would_keep(operation(3), 2 * FLOOR_NS, 5), "another operation");
        assert!(slowest.would_keep(operation(2), 2 * FLOOR_NS, MINUTE_NS), "another minute");
        let kept = slowest.read(5);
        assert_eq!(kept.len(), CALLS_A_MINUTE);
        assert!(kept.iter().any(|call| call.latency_ns == 9 * FLOOR_NS));
    }

    #[test]
    fn a_server_that_has_run_for_years_keeps_the_slowest_of_each_minute() {
        let slowest = Slowest::default();
        // 728 days are 2^20 minutes.
        for minute in [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 1 << 23] {
            for _ in 0..CALLS_A_MINUTE + 5 {
                note(&slowest, operation(2), 2 * FLOOR_NS, minute * MINUTE_NS);
            }
            note(&slowest, operation(2), 3 * FLOOR_NS, minute * MINUTE_NS + 1);
            let kept = slowest.read(minute * MINUTE_NS);
            let of_minute: Vec<_> = kept.iter().rev().take(CALLS_A_MINUTE).collect();
            assert!(of_minute.iter().any(|call| call.latency_ns == 3 * FLOOR_NS), "{minute}");
            assert!(!slowest.would_keep(operation(2), 2 * FLOOR_NS, minute * MINUTE_NS));
            assert!(slowest.would_keep(operation(2), 2 * FLOOR_NS, (minute + 1) * MINUTE_NS));
        }
    }

    proptest! {
        /// In one minute: exactly the slowest of each operation.
        #[test]
        fn the_slowest_of_each_operation_are_kept(
            calls in proptest::collection::vec((0..3_usize, 0..5_000_000_u64), 0..300),
        ) {
            let slowest = Slowest::default();
            let mut all = vec![Vec::new(); 3];
            for (index, latency_ns) in calls {
                note(&slowest, operation(index), latency_ns, 7);
                if latency_ns >= FLOOR_NS {
                    all[index].push(latency_ns);
                }
            }
            let kept = slowest.read(7);
            for (index, latencies) in all.iter_mut().enumerate() {
                latencies.sort_unstable_by(|one, other| other.cmp(one));
                latencies.truncate(CALLS_A_MINUTE);
                let of_it = kept.iter().filter(|call| call.facts.operation.index() == index);
                let mut found: Vec<u64> = of_it.map(|call| call.latency_ns).collect();
                found.sort_unstable_by(|one, other| other.cmp(one));
                prop_assert_eq!(&found, latencies);
            }
        }

        /// Whatever a call waited for, and in whatever order its stamps are: no time is lost or told twice.
        #[test]
        fn stages_sum_to_the_latency(
            steps in proptest::array::uniform10(0..1_000_000_u64),
            (was_lent, was_parked, was_flushed, is_logged) in any::<(bool, bool, bool, bool)>(),
        ) {
            let [received_ns, names, clients, turn, work, blocked, flush, log, earlier, room] = steps;
            // It was executed before, and suspended.
            let waited = Waited { names, clients, ..Waited::default() };
            let waited = waited.with(&Spent { work: earlier, file_system: 7, log_room: 3 });
            let begun_ns = received_ns + waited.sum() + turn;
            let lent_ns = if was_lent { begun_ns + work } else { 0 };
            let ended_ns = begun_ns + work + blocked + 1;
            let executed = Executed {
                waited: Some(Box::new(waited)),
                log_room_ns: room,
                begun_ns,
                lent_ns,
                ended_ns,
                flushed_ns: if was_flushed { ended_ns + flush } else { 0 },
                ..Executed::default()
            };
            let stable_ns = was_parked.then_some(ended_ns + flush + log);
            let sent_ns = stable_ns.unwrap_or(ended_ns) + 5;
            let arrival = Arrival { begun_ns: 0, received_ns };
            let is_logged = is_logged && was_parked;
            let ends = Ends { stable_ns, is_logged, sent_ns };
            let told = stages(arrival, &executed, ends);
            prop_assert_eq!(told.iter().sum::<u64>(), sent_ns - received_ns);
            let room_ns = if was_lent { room.min(blocked + 1) } else { 0 };
            let blocked_ns = if was_lent { blocked + 1 - room_ns } else { 0 };
            prop_assert_eq!((told[5], told[6]), (7 + blocked_ns, 3 + room_ns));
            let worked_ns = if was_lent { work } else { work + blocked + 1 };
            prop_assert_eq!(told[4], earlier + worked_ns);
            prop_assert_eq!((told[0], told[9]), (turn, 5));
            let log_ns = if was_flushed { log } else { flush + log };
            prop_assert_eq!(told[8], if is_logged { log_ns } else { 0 });
        }
    }
}
