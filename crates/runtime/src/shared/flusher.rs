//! Meets the obligations of parked calls, gathered across calls, and sends their replies.
//!
//! One [`Flusher`] a file system, made when the first call is parked for it. Each of its few
//! threads takes everything that waits, flushes each object once, settles all calls and sends
//! the replies of each connection at once: group commit without waiting for company, since what
//! comes during a flush is gathered for the next.
//!
//! The kernel reports a failed write-back once for an open file. Therefore an object is flushed
//! by one thread at a time, and a call that ran while *any* flush of its file system failed is
//! failed too: its own flush may have succeeded only because the other one took the error.
//!
//! Where each flush is one of the whole file system ([`FlushTarget::last_shared_failure`]), threads need not wait for
//! each other: one flush serves them all. A failure is noted, for all domains of the file system, before another flush
//! of it can succeed.

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex, RwLock};
use smallvec::SmallVec;
use steadfast_engine::Awaited;
use steadfast_vfs::{FlushDomain, FlushTarget, FlushWhat, FsError};

use super::Shared;
use super::parked::{ParkedReply, ReplySender};
use crate::log_limit::{LogKind, limited};
use crate::statistics::{CounterSets, Statistics};

/// All file systems' flushers.
#[derive(Debug, Default)]
pub(crate) struct Flushers {
    by_domain: RwLock<HashMap<FlushDomain, Arc<Flusher>>>,
    failures: AtomicU64,
    /// Calls in all queues, told a moment late.
    waiting: AtomicU64,
    /// Of all flushers' threads.
    pub(crate) counters: CounterSets,
}

impl Flushers {
    /// How many flushes have failed, on any file system. To be read before a call begins.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    pub(crate) fn of(&self, domain: FlushDomain, shared: &Arc<Shared>) -> Arc<Flusher> {
        if let Some(flusher) = self.by_domain.read().get(&domain) {
            return Arc::clone(flusher);
        }
        let mut by_domain = self.by_domain.write();
        let flusher = by_domain
            .entry(domain)
            .or_insert_with(|| Arc::new(Flusher::new(domain, Arc::downgrade(shared))));
        Arc::clone(flusher)
    }

    /// Calls that wait for a flush to begin, without a lock of theirs: for who sends replies.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Flushes done, and calls that wait now.
    pub(crate) fn add_to(&self, sum: &mut Statistics) {
        for flusher in self.by_domain.read().values() {
            sum.flushes += flusher.flushes.load(Ordering::Relaxed);
            sum.parked_now += flusher.queue.lock().calls.len() as u64;
        }
        sum.flush_failures = self.failures();
        self.counters.add_to(sum);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.by_domain.read().values().all(|flusher| {
            let queue = flusher.queue.lock();
            queue.calls.is_empty() && queue.idle == queue.threads.len()
        })
    }

    /// Ends the threads as soon as nothing waits; gives them to be joined.
    pub(crate) fn stop(&self) -> Vec<std::thread::JoinHandle<()>> {
        let mut threads = Vec::new();
        for flusher in self.by_domain.read().values() {
            let mut queue = flusher.queue.lock();
            queue.is_stopping = true;
            threads.append(&mut queue.threads);
            flusher.work.notify_all();
            flusher.space.notify_all();
        }
        threads
    }
}

/// The flushers that one worker has met, to be found without a lock.
#[derive(Debug, Default)]
pub(crate) struct KnownFlushers(Vec<(FlushDomain, Arc<Flusher>)>);

impl KnownFlushers {
    pub(crate) fn of(&mut self, domain: FlushDomain, shared: &Arc<Shared>) -> &Arc<Flusher> {
        let at = self.0.iter().position(|(known, _)| *known == domain).unwrap_or_else(|| {
            self.0.push((domain, shared.flushers.of(domain, shared)));
            self.0.len() - 1
        });
        &self.0[at].1
    }
}

#[derive(Debug, Default)]
struct Queue {
    calls: VecDeque<ParkedReply>,
    threads: Vec<std::thread::JoinHandle<()>>,
    idle: usize,
    is_stopping: bool,
}

/// Keys of objects being flushed now, and threads that wait to flush several at once.
#[derive(Debug, Default)]
struct InFlush {
    keys: HashSet<u64>,
    waiting_for_several: usize,
}

/// The flushes of one file system.
#[derive(Debug)]
pub(crate) struct Flusher {
    domain: FlushDomain,
    shared: Weak<Shared>,
    queue: Mutex<Queue>,
    work: Condvar,
    space: Condvar,
    in_flush: Mutex<InFlush>,
    flushed: Condvar,
    /// [`Flushers::failures`] just after the last failure here.
    last_failure: AtomicU64,
    flushes: AtomicU64,
}

impl Flusher {
    fn new(domain: FlushDomain, shared: Weak<Shared>) -> Self {
        Self {
            domain,
            shared,
            queue: Mutex::default(),
            work: Condvar::new(),
            space: Condvar::new(),
            in_flush: Mutex::default(),
            flushed: Condvar::new(),
            last_failure: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
        }
    }

    /// Takes over these calls. Tells whether so many wait that the caller should wait too
    /// ([`Flusher::wait_for_space`]) before it parks more.
    pub(crate) fn submit(
        self: &Arc<Self>,
        calls: impl Iterator<Item = ParkedReply>,
        shared: &Arc<Shared>,
    ) -> bool {
        let mut queue = self.queue.lock();
        let before = queue.calls.len();
        queue.calls.extend(calls);
        let came = queue.calls.len().saturating_sub(before) as u64;
        shared.flushers.waiting.fetch_add(came, Ordering::Relaxed);
        let is_full = queue.calls.len() >= shared.options.parked_calls_max;
        if queue.idle > 0 {
            drop(queue);
            self.work.notify_one();
        } else if queue.threads.len() < shared.options.flush_threads.max(1) && !queue.is_stopping {
            let flusher = Arc::clone(self);
            let name = format!("flush-{}", self.domain.0);
            let thread = std::thread::Builder::new().name(name).spawn(move || flusher.run());
            match thread {
                Ok(thread) => queue.threads.push(thread),
                Err(error) => {
                    limited!(
                        shared.log,
                        LogKind::Workers,
                        error,
                        "cannot start a thread to flush file system {}: {error}; it is slower",
                        self.domain.0
                    );
                    // With one thread at least, the calls are merely late.
                    if queue.threads.is_empty() {
                        let calls = std::mem::take(&mut queue.calls);
                        shared.flushers.waiting.fetch_sub(calls.len() as u64, Ordering::Relaxed);
                        drop(queue);
                        self.settle_all(calls, shared, &mut ReplySender::new(shared));
                        return false;
                    }
                }
            }
        }
        is_full
    }

    pub(crate) fn domain(&self) -> FlushDomain {
        self.domain
    }

    /// Waits until fewer calls wait than may, or the server stops.
    pub(crate) fn wait_for_space(&self, shared: &Shared) {
        let mut queue = self.queue.lock();
        while queue.calls.len() >= shared.options.parked_calls_max && !queue.is_stopping {
            self.space.wait(&mut queue);
        }
    }

    fn run(&self) {
        let Some(mut sender) = self.shared.upgrade().map(|shared| ReplySender::new(&shared)) else {
            return;
        };
        loop {
            let mut queue = self.queue.lock();
            while queue.calls.is_empty() {
                if queue.is_stopping {
                    return;
                }
                queue.idle += 1;
                self.work.wait(&mut queue);
                queue.idle -= 1;
            }
            let calls = std::mem::take(&mut queue.calls);
            self.space.notify_all();
            drop(queue);
            let Some(shared) = self.shared.upgrade() else { return };
            shared.flushers.waiting.fetch_sub(calls.len() as u64, Ordering::Relaxed);
            self.settle_all(calls, &shared, &mut sender);
        }
    }

    fn settle_all(
        &self,
        mut calls: VecDeque<ParkedReply>,
        shared: &Arc<Shared>,
        sender: &mut ReplySender,
    ) {
        let mut targets = Targets::default();
        let wants: Vec<Vec<u64>> = calls
            .iter_mut()
            .map(|parked| {
                let own = match &mut parked.call.awaited {
                    Awaited::Flush(flush) => std::mem::take(&mut flush.targets),
                    Awaited::Lsn(_) => SmallVec::new(),
                };
                own.into_iter()
                    .enumerate()
                    .map(|(rank, (target, what))| targets.add(rank, target, what))
                    .collect()
            })
            .collect();
        let targets = targets.in_order();
        // One whose flush is shared: all are of one file system.
        let mut objects = targets.iter().map(|target| &target.object);
        let sharing = objects.find(|object| object.last_shared_failure().is_some()).cloned();
        let failed = match &sharing {
            Some(sharing) => self.flush_for_all(sharing, &targets, shared),
            None => self.flush(targets, shared),
        };
        let last_shared = sharing.as_deref().and_then(FlushTarget::last_shared_failure);
        let last_shared = last_shared.map_or(0, |number| number.load(Ordering::Acquire));
        let last_failure = self.last_failure.load(Ordering::Acquire).max(last_shared);
        let stable_ns = shared.stamp_ns();
        let mut logged = Vec::new();
        let mut elsewhere = Vec::new();
        for (mut parked, keys) in calls.into_iter().zip(wants) {
            let own = keys.iter().find_map(|key| failed.get(key)).copied();
            let outcome = match own {
                Some(error) => Err(error),
                None if last_failure > parked.failures_before => Err(FsError::Io),
                None => Ok(()),
            };
            if outcome.is_ok() && parked.call.go_on() {
                match &parked.call.awaited {
                    Awaited::Lsn(lsn) => {
                        parked.executed.flushed_ns = stable_ns;
                        logged.push((*lsn, parked));
                    }
                    Awaited::Flush(flush) => elsewhere.push((flush.domain, parked)),
                }
                continue;
            }
            if outcome.is_ok()
                && let Some(keeper) = &shared.intent_log
                && let Some(behind) = parked.call.behind_change()
                && let Some(lsn) = keeper.log_reply(&behind)
            {
                parked.call.awaited = Awaited::Lsn(lsn);
                parked.executed.flushed_ns = stable_ns;
                logged.push((lsn, parked));
                continue;
            }
            sender.settle(parked, outcome, shared);
        }
        sender.send(stable_ns, shared);
        if let Some(keeper) = shared.intent_log.as_ref().filter(|_| !logged.is_empty()) {
            keeper.park(&mut logged.into_iter());
            keeper.rouse();
        }
        for (domain, parked) in elsewhere {
            shared.flushers.of(domain, shared).submit(std::iter::once(parked), shared);
        }
    }

    /// Flushes each object, or the whole file system when they are many; tells what failed.
    fn flush(&self, targets: Vec<Target>, shared: &Shared) -> HashMap<u64, FsError> {
        let mut failed = HashMap::new();
        if targets.len() > shared.options.flush_objects_max
            && let Some(first) = targets.first()
        {
            // All objects at once, so no other thread may be flushing any of them.
            let keys: Vec<u64> = targets.iter().map(|target| target.key).collect();
            self.enter_flush(&keys);
            for target in &targets {
                target.object.flush_begins();
            }
            let result = guarded(|| first.object.flush_file_system());
            for target in &targets {
                target.object.flush_ended(result.is_ok());
            }
            if let Err(error) = result {
                self.note_failure(error, shared);
                failed.extend(keys.iter().map(|key| (*key, error)));
            }
            self.leave_flush(&keys);
            return failed;
        }
        for target in targets {
            self.enter_flush(&[target.key]);
            if let Err(error) = guarded(|| target.object.flush(target.what)) {
                self.note_failure(error, shared);
                failed.insert(target.key, error);
            }
            self.leave_flush(&[target.key]);
        }
        failed
    }

    /// Flushes the whole file system of this one for all of these; tells what failed.
    fn flush_for_all(
        &self,
        sharing: &Arc<dyn FlushTarget>,
        targets: &[Target],
        shared: &Shared,
    ) -> HashMap<u64, FsError> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        for target in targets {
            target.object.flush_begins();
        }
        let is_noted = Cell::new(false);
        let note = |error| {
            let number = self.note_failure(error, shared);
            if let Some(last) = sharing.last_shared_failure() {
                last.fetch_max(number, Ordering::AcqRel);
            }
            is_noted.set(true);
        };
        let result = guarded(|| sharing.flush_for_all(&note));
        for target in targets {
            target.object.flush_ended(result.is_ok());
        }
        let Err(error) = result else { return HashMap::new() };
        if !is_noted.get() {
            // It has panicked.
            note(error);
        }
        targets.iter().map(|target| (target.key, error)).collect()
    }

    /// All keys at once or none, so two threads cannot wait for each other. Who wants several
    /// is let in before those who want one: their turns might leave no moment when all are free.
    fn enter_flush(&self, keys: &[u64]) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        let wants_several = keys.len() > 1;
        let mut in_flush = self.in_flush.lock();
        in_flush.waiting_for_several += usize::from(wants_several);
        while keys.iter().any(|key| in_flush.keys.contains(key))
            || (!wants_several && in_flush.waiting_for_several > 0)
        {
            self.flushed.wait(&mut in_flush);
        }
        in_flush.keys.extend(keys);
        if wants_several {
            in_flush.waiting_for_several -= 1;
            self.flushed.notify_all();
        }
    }

    fn leave_flush(&self, keys: &[u64]) {
        let mut in_flush = self.in_flush.lock();
        for key in keys {
            in_flush.keys.remove(key);
        }
        drop(in_flush);
        self.flushed.notify_all();
    }

    /// To be called while the object's key is still held, or before another flush of the file system can end. The
    /// number of the failure.
    fn note_failure(&self, error: FsError, shared: &Shared) -> u64 {
        // First the verifier, then the count: a call that begins after the count changed is not
        // failed for it, and must find the new verifier.
        shared.service.flush_failed();
        let number = shared.flushers.failures.fetch_add(1, Ordering::AcqRel) + 1;
        self.last_failure.fetch_max(number, Ordering::AcqRel);
        limited!(
            shared.log,
            LogKind::Flush,
            error,
            "a flush of file system {} failed: {error}; calls that waited for it fail",
            self.domain.0
        );
        number
    }
}

/// A flush that panics has failed.
fn guarded(flush: impl FnOnce() -> Result<(), FsError>) -> Result<(), FsError> {
    catch_unwind(AssertUnwindSafe(flush)).unwrap_or(Err(FsError::Io))
}

/// The distinct objects of several obligations.
#[derive(Default)]
struct Targets {
    by_key: HashMap<u64, Target>,
}

struct Target {
    key: u64,
    /// The latest place in any obligation, so that what must precede does.
    rank: usize,
    object: Arc<dyn FlushTarget>,
    what: FlushWhat,
}

impl Targets {
    fn add(&mut self, rank: usize, object: Arc<dyn FlushTarget>, what: FlushWhat) -> u64 {
        let key = object.flush_key();
        match self.by_key.entry(key) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.rank = known.rank.max(rank);
                known.what = known.what.max(what);
            }
            Entry::Vacant(place) => {
                place.insert(Target { key, rank, object, what });
            }
        }
        key
    }

    fn in_order(self) -> Vec<Target> {
        let mut targets: Vec<Target> = self.by_key.into_values().collect();
        targets.sort_by_key(|target| (target.rank, target.key));
        targets
    }
}
