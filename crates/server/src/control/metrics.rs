//! The numbers for monitoring.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast_access::{Access, KindStatistics, LATENCY_CLASSES_MS};
use steadfast_control::intent_log::CheckpointReport;
use steadfast_control::metrics::{
    COMPOUND_OPERATIONS_MAX, ClientCounts, DecisionCounts, Figures, NameCounts, OPERATIONS_MAX,
    ProcessFigures, SetAsideCounts, ShareCounts,
};
use steadfast_durability::IntentLogKeeper;
use steadfast_engine::clients::ClientReport;
use steadfast_engine::{CompoundOperation, Engine, OperationId};
use steadfast_posixfs::Storage;
use steadfast_runtime::Observer;

use super::clients::{protocol_of, state_of};
use super::statistics::statistics;
use crate::shares::ShareManager;

// The bound of the number of series is tested with so many.
const _: () = assert!(OperationId::COUNT <= OPERATIONS_MAX);
const _: () = assert!(CompoundOperation::COUNT <= COMPOUND_OPERATIONS_MAX);

/// How long a scrape waits for a change of shares: less than scrapers wait (Prometheus: 10 s).
const SHARES_PATIENCE: Duration = Duration::from_secs(1);

/// Whom a scrape asks.
pub(super) struct Scraped {
    pub(super) observer: Observer,
    pub(super) engine: Arc<Engine>,
    pub(super) storage: Arc<Storage>,
    pub(super) access: Arc<Access>,
    pub(super) log: Option<Arc<IntentLogKeeper>>,
    pub(super) shares: Arc<ShareManager>,
    pub(super) counted: CountedShares,
    pub(super) started_unix_ms: u64,
}

impl Scraped {
    /// All numbers of now.
    pub(super) fn figures(&self) -> Figures {
        let log = self.log.as_deref();
        let log_status = log.map(IntentLogKeeper::status);
        let counts = self.shares.counts(SHARES_PATIENCE);
        let shares_change = counts.err().unwrap_or_default();
        let counted = self.counted.with(counts.ok(), Instant::now());
        let engine = &self.engine;
        let access = self.access.statistics();
        let (decisions, names) = (access.decisions, access.names);
        let clients = engine.clients();
        Figures {
            statistics: statistics(
                &self.observer,
                engine,
                &self.storage,
                log_status.as_ref(),
                self.started_unix_ms,
            ),
            shares: counted.map(|(counts, _)| counts),
            shares_age: counted.map(|(_, age)| age).unwrap_or_default(),
            shares_change,
            reclaiming: clients.iter().filter(|client| client.is_reclaiming).count() as u64,
            clients: client_counts(&clients),
            is_in_grace: engine.is_in_grace(),
            waiting_calls: engine.waiting_calls() as u64,
            calls_in_progress: engine.statistics().reply_cache.in_progress as u64,
            log_is_unmade: log.is_some_and(IntentLogKeeper::is_unmade),
            last_checkpoint: log_status.and_then(|status| status.last_checkpoint).map(|last| {
                CheckpointReport {
                    ended_unix_ms: last.ended.as_millis() as u64,
                    took_us: last.took.as_micros() as u64,
                }
            }),
            set_aside: log.and_then(|log| log.set_aside_files().ok()).map(|files| SetAsideCounts {
                files: files.len() as u64,
                bytes: files.iter().map(|file| file.bytes).sum(),
            }),
            decisions: DecisionCounts {
                entries: decisions.entries,
                entries_max: decisions.entries_max,
                bytes: decisions.bytes,
                hits: decisions.hits,
                misses: decisions.misses,
                pending: decisions.pending,
                evicted: decisions.evicted,
            },
            stale_name_uses: names.stale_uses,
            refused_names: names.refused,
            names: vec![
                name_counts("hosts", &names.hosts),
                name_counts("clients", &names.clients),
                name_counts("netgroups", &names.netgroups),
                name_counts("users", &names.users),
                name_counts("owner_numbers", &names.owner_numbers),
                name_counts("owner_names", &names.owner_names),
            ],
            process: ProcessFigures::own(),
            ..Figures::default()
        }
    }
}

/// The shares as they were counted last. A disk that hangs must not keep the other numbers from who looks
/// after it.
#[derive(Default)]
pub(super) struct CountedShares(Mutex<Option<(Instant, ShareCounts)>>);

impl CountedShares {
    /// The counts of `now`, or else the last ones, with their age. Before the first there are none.
    fn with(&self, counts: Option<ShareCounts>, now: Instant) -> Option<(ShareCounts, Duration)> {
        let mut last = self.0.lock();
        if let Some(counts) = counts {
            *last = Some((now, counts));
        }
        last.map(|(when, counts)| (counts, now.saturating_duration_since(when)))
    }
}

/// By protocol and state.
fn client_counts(clients: &[ClientReport]) -> Vec<ClientCounts> {
    let mut all: BTreeMap<(&str, &str), ClientCounts> = BTreeMap::new();
    for client in clients {
        let (protocol, state) = (protocol_of(client), state_of(client));
        let counts = all.entry((protocol, state)).or_insert(ClientCounts {
            protocol,
            state,
            ..ClientCounts::default()
        });
        counts.clients += 1;
        counts.sessions += client.sessions as u64;
        counts.opens += client.opens as u64;
        counts.locks += client.locks as u64;
        counts.delegations += client.delegations as u64;
    }
    all.into_values().collect()
}

fn name_counts(kind: &'static str, counted: &KindStatistics) -> NameCounts {
    let bounds = LATENCY_CLASSES_MS.into_iter().map(Some).chain([None]);
    NameCounts {
        kind,
        fresh: counted.fresh,
        stale: counted.stale,
        absent: counted.absent,
        sent: counted.sent,
        found: counted.found,
        answered_absent: counted.answered_absent,
        timed_out: counted.timed_out,
        failed: counted.failed,
        in_flight: counted.in_flight,
        waiting: counted.waiting,
        latency: bounds.zip(counted.latency.iter().copied()).collect(),
        latency_sum_ms: counted.latency_sum_ms,
    }
}

#[cfg(test)]
mod tests {
    use steadfast_engine::clients::{ClientId, Protocol};

    use super::*;

    #[test]
    fn shares_that_cannot_be_counted_now_are_as_old_as_they_are() {
        let counted = CountedShares::default();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let three = ShareCounts { enabled: 3, ..ShareCounts::default() };
        assert_eq!(counted.with(None, start), None, "nothing is told, and not 0");
        assert_eq!(counted.with(Some(three), after(8)), Some((three, Duration::ZERO)));
        assert_eq!(counted.with(None, after(10)), Some((three, Duration::from_secs(2))));
    }

    #[test]
    fn clients_are_counted_by_protocol_and_state() {
        let client = |protocol, is_courteous| ClientReport {
            id: ClientId(1),
            owner: Box::default(),
            address: std::net::Ipv4Addr::LOCALHOST.into(),
            implementation: Box::default(),
            is_confirmed: true,
            since_renewal_ms: 0,
            is_courteous,
            sessions: 1,
            opens: 2,
            locks: 3,
            delegations: 4,
            protocol,
            is_recorded: true,
            is_reclaiming: false,
        };
        let counts = client_counts(&[
            client(Protocol::Nfs41, false),
            client(Protocol::Nlm, true),
            client(Protocol::Nfs41, false),
        ]);
        let counted: Vec<_> =
            counts.iter().map(|one| (one.protocol, one.state, one.clients, one.opens)).collect();
        assert_eq!(counted, [("NFSv4.1+", "active", 2, 4), ("NLM", "courteous", 1, 2)]);
        assert_eq!((counts[0].sessions, counts[0].locks, counts[0].delegations), (2, 6, 8));
    }
}
