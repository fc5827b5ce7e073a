//! What the book has done.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::{NameBook, Queue};
use crate::entry::Standing;
use crate::facts::{Fact, Kind, Source};
use crate::service::{Failure, Outcome};

/// Upper bounds of the classes of the name service's latency, in ms; a last class has the rest.
pub const LATENCY_CLASSES_MS: [u64; 11] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000];

#[derive(Debug, Default)]
pub(super) struct Counters {
    kinds: [KindCounters; Kind::COUNT],
    pub(super) stale: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) let_go: AtomicU64,
    pub(super) rolls: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct KindCounters {
    pub(super) sent: AtomicU64,
    found: AtomicU64,
    absent: AtomicU64,
    timed_out: AtomicU64,
    failed: AtomicU64,
    /// Answers that did not come from a file at once.
    latency: [AtomicU64; LATENCY_CLASSES_MS.len() + 1],
    latency_sum_ms: AtomicU64,
}

impl Counters {
    #[allow(clippy::indexing_slicing, reason = "there is one for each kind")]
    pub(super) fn of(&self, kind: Kind) -> &KindCounters {
        &self.kinds[kind.index()]
    }

    pub(super) fn count(&self, kind: Kind, outcome: &Outcome) {
        let kind = self.of(kind);
        let counter = match outcome {
            Outcome::Found { .. } => &kind.found,
            Outcome::Absent { .. } | Outcome::Missing { .. } => &kind.absent,
            Outcome::Failed(Failure::TimedOut) => &kind.timed_out,
            Outcome::Failed(Failure::Failed | Failure::NotAsked) => &kind.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn took(&self, kind: Kind, took_ms: u64) {
        let kind = self.of(kind);
        let class = LATENCY_CLASSES_MS.partition_point(|bound_ms| *bound_ms < took_ms);
        if let Some(counter) = kind.latency.get(class) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        kind.latency_sum_ms.fetch_add(took_ms, Ordering::Relaxed);
    }
}

/// What the book has and has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NameStatistics {
    /// Hosts by name.
    pub hosts: KindStatistics,
    /// Clients' names.
    pub clients: KindStatistics,
    /// Netgroups.
    pub netgroups: KindStatistics,
    /// Users' groups.
    pub users: KindStatistics,
    /// Numbers of owners, by their names.
    pub owner_numbers: KindStatistics,
    /// Names of owners, by their numbers.
    pub owner_names: KindStatistics,
    /// How often an answer was used beyond its life.
    pub stale_uses: u64,
    /// Questions that were not taken since too many names were known or waited for.
    pub refused: u64,
    /// Names that were let go.
    pub let_go: u64,
    /// How often who remembers decisions was made to ask again, to see which names are in use.
    pub rolls: u64,
    /// How often an answer changed, from 1.
    pub epoch: u64,
}

/// Of one kind of names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KindStatistics {
    /// Names there are.
    pub names: u64,
    /// Those of them that rules or netgroups have.
    pub watched: u64,
    /// Those with an answer that is not too old.
    pub fresh: u64,
    /// Those with an answer that is used only since there is no newer.
    pub stale: u64,
    /// Those that do not exist.
    pub absent: u64,
    /// Questions sent to the name service.
    pub sent: u64,
    /// Those answered with something.
    pub found: u64,
    /// Those answered with nothing.
    pub answered_absent: u64,
    /// Those not answered in time.
    pub timed_out: u64,
    /// Those that failed otherwise.
    pub failed: u64,
    /// Those sent and not answered yet.
    pub in_flight: u64,
    /// Those not sent yet.
    pub waiting: u64,
    /// How long answers took: how many fell into each of the classes of [`LATENCY_CLASSES_MS`].
    pub latency: Vec<u64>,
    /// All of them together, in ms.
    pub latency_sum_ms: u64,
}

impl NameBook {
    /// What the book has and has done. Goes through all names.
    pub fn statistics(&self) -> NameStatistics {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let now_ms = self.clock.monotonic_ms();
        let mut kinds: [KindStatistics; Kind::COUNT] = Default::default();
        for (kind, statistics) in Kind::ALL.into_iter().zip(&mut kinds) {
            let counters = self.counters.of(kind);
            statistics.sent = load(&counters.sent);
            statistics.found = load(&counters.found);
            statistics.answered_absent = load(&counters.absent);
            statistics.timed_out = load(&counters.timed_out);
            statistics.failed = load(&counters.failed);
            statistics.latency = counters.latency.iter().map(load).collect();
            statistics.latency_sum_ms = load(&counters.latency_sum_ms);
        }
        for (queue, statistics) in self.tray.lock().queues.iter().zip(&mut kinds) {
            let Queue { urgent, bulk, in_flight } = queue;
            statistics.in_flight = *in_flight as u64;
            statistics.waiting = (urgent.len() + bulk.len()) as u64;
        }
        self.table.for_each(|subject, slot| {
            let Some(statistics) = kinds.get_mut(subject.kind().index()) else { return };
            statistics.names += 1;
            statistics.watched += u64::from(slot.entry.watchers > 0);
            match slot.entry.standing(now_ms, true, &self.bounds) {
                Standing::Fresh(Fact::Absent) | Standing::Stale(Fact::Absent) => {
                    statistics.absent += 1;
                }
                Standing::Fresh(_) => statistics.fresh += 1,
                Standing::Stale(_) => statistics.stale += 1,
                Standing::NotYet | Standing::Unreachable => {}
            }
        });
        let [hosts, clients, netgroups, users, owner_numbers, owner_names] = kinds;
        NameStatistics {
            hosts,
            clients,
            netgroups,
            users,
            owner_numbers,
            owner_names,
            stale_uses: load(&self.counters.stale),
            refused: load(&self.counters.refused),
            let_go: load(&self.counters.let_go),
            rolls: load(&self.counters.rolls),
            epoch: self.epoch(),
        }
    }
}

/// Whether an answer says how fast a name service is: one from a file does not.
pub(super) fn is_timed(outcome: &Outcome) -> bool {
    let source = match outcome {
        Outcome::Found { source, .. }
        | Outcome::Absent { source, .. }
        | Outcome::Missing { source } => *source,
        Outcome::Failed(_) => return false,
    };
    matches!(source, Source::Dns | Source::System)
}
