//! A pool: seats, the workers that serve them, and the monitor that sends a worker to a seat
//! whose occupant is blocked.
//!
//! A pool has as many seats as CPUs and therefore about as many runnable workers, however many
//! wait for storage. Workers without a seat stand by; when none does, one more is started, up
//! to a bound. Nothing here is shared between pools.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use steadfast_engine::StorageId;
use steadfast_sys::scheduling;

use crate::ServerOptions;
use crate::blocked::{Blocked, Uncounted};
use crate::log_limit::{LogKind, limited};
use crate::seat::{Lent, Seat, SeatGuard};
use crate::shared::{Phase, Shared};
use crate::statistics::CounterSets;

/// A seat that was lent for this long gets another worker. A hand-over costs some 10 µs, and a
/// read from a fast disk 100 µs: so the disk must be slow, or the call long, to be worth one.
const PATIENCE: Duration = Duration::from_millis(1);
/// The monitor sleeps after this many rounds in which no seat was lent.
const QUIET_ROUNDS: u32 = 20;
/// Workers standing by that are kept for ever.
const STANDBYS_KEPT: usize = 2;
/// Others end after this time.
const STANDBY_LIFE: Duration = Duration::from_secs(30);
/// How long a worker has a CPU at a time while others want it.
const SLICE: Duration = Duration::from_micros(200);
const STACK_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
struct Staff {
    /// Seats that need a worker.
    wanted: VecDeque<usize>,
    idle: usize,
    workers: usize,
    /// The last that was to be started could not be.
    cannot_start: bool,
    threads: Vec<JoinHandle<()>>,
}

/// What a worker's thread does until it ends: it serves the seats that [`Pool::stand_by`] sends it to.
pub(crate) type WorkersLife = fn(&Arc<Pool>);

pub(crate) struct Pool {
    pub(crate) index: usize,
    pub(crate) seats: Vec<Seat>,
    pub(crate) counters: CounterSets,
    pub(crate) shared: Arc<Shared>,
    /// Connections of all seats, and how many there may be.
    pub(crate) connections: AtomicUsize,
    pub(crate) connections_max: usize,
    /// Connections accepted so far.
    connections_ever: AtomicU64,
    cpus: Vec<usize>,
    life: WorkersLife,
    pub(crate) blocked: Blocked,
    staff: Mutex<Staff>,
    /// Of the staff, to be looked at without the lock.
    has_stand_ins: AtomicBool,
    standby: Condvar,
    is_monitor_asleep: AtomicBool,
    monitor_wake: Mutex<()>,
    monitor_sleep: Condvar,
}

/// So many workers a seat there may be, however few are configured: some can stand in for those that
/// wait for one storage, and some of these for those that wait for another.
const WORKERS_OF_SEAT_LEAST: usize = 4;

fn workers_max(options: &ServerOptions, seats: usize) -> usize {
    options.workers_max.max(seats * WORKERS_OF_SEAT_LEAST)
}

impl Pool {
    pub(crate) fn new(
        index: usize,
        seats: Vec<Seat>,
        cpus: Vec<usize>,
        connections_max: usize,
        shared: Arc<Shared>,
        life: WorkersLife,
    ) -> Self {
        let beyond_seats = workers_max(&shared.options, seats.len()) - seats.len();
        let blocked = Blocked::new(beyond_seats, seats.len(), shared.options.storage_patience_ms);
        Self {
            index,
            seats,
            counters: CounterSets::default(),
            shared,
            connections: AtomicUsize::new(0),
            connections_max,
            connections_ever: AtomicU64::new(0),
            cpus,
            life,
            blocked,
            staff: Mutex::default(),
            has_stand_ins: AtomicBool::new(false),
            standby: Condvar::new(),
            is_monitor_asleep: AtomicBool::new(false),
            monitor_wake: Mutex::new(()),
            monitor_sleep: Condvar::new(),
        }
    }

    /// A number that no other connection of the server has.
    pub(crate) fn next_connection_number(&self) -> u64 {
        let number = self.connections_ever.fetch_add(1, Ordering::Relaxed) + 1;
        ((self.index as u64) << 48) | number
    }

    /// Starts a worker for each seat, and the monitor.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let mut staff = self.staff.lock();
        for seat in 0..self.seats.len() {
            staff.wanted.push_back(seat);
            self.start_worker(&mut staff)?;
        }
        let pool = Arc::clone(self);
        let monitor = std::thread::Builder::new()
            .name(format!("monitor-{}", self.index))
            .stack_size(STACK_BYTES)
            .spawn(move || pool.monitor())?;
        staff.threads.push(monitor);
        Ok(())
    }

    fn start_worker(self: &Arc<Self>, staff: &mut Staff) -> std::io::Result<()> {
        let pool = Arc::clone(self);
        let thread = std::thread::Builder::new()
            .name(format!("worker-{}", self.index))
            .stack_size(STACK_BYTES)
            .spawn(move || {
                // A pool whose CPUs have gone runs where it can.
                let _ = scheduling::pin_current_thread(&pool.cpus);
                // Calls are short: who serves one need not wait until who writes a file, or another
                // program, has had its milliseconds.
                let _ = scheduling::set_slice(SLICE);
                (pool.life)(&pool);
            })?;
        staff.workers += 1;
        staff.cannot_start = false;
        staff.threads.retain(|thread| !thread.is_finished());
        staff.threads.push(thread);
        Ok(())
    }

    /// Takes a seat if it is free. Who had lent it, if not the one who asks (by `own`), is blocked
    /// from now on; and who asks is no more, if somebody had taken what he had lent. Who does not get
    /// the seat and does not wait any more tells so ([`Pool::has_come_back`]).
    pub(crate) fn occupy<'s>(&self, seat: &'s Seat, own: Option<Lent>) -> Option<SeatGuard<'s>> {
        let (guard, lent) = seat.occupy()?;
        if own != lent {
            if let Some(storage) = lent.and_then(|lent| lent.storage) {
                self.blocked.enter(storage, self.shared.now_ms());
            }
            if let Some(own) = own {
                self.has_come_back(own);
            }
        }
        Some(guard)
    }

    /// Workers that may be waiting and are not counted, since their seats have not been taken.
    pub(crate) fn uncounted(&self, storage: StorageId) -> Uncounted {
        let mut uncounted = Uncounted::default();
        for lent_for in self.seats.iter().filter_map(Seat::lent_for) {
            uncounted.all += 1;
            uncounted.for_this += i64::from(lent_for == storage);
        }
        uncounted
    }

    /// A worker whose seat was taken waits no more.
    pub(crate) fn has_come_back(&self, own: Lent) {
        if let Some(storage) = own.storage {
            self.blocked.leave(storage, self.shared.now_ms());
        }
    }

    /// Waits for a seat to serve; `None`: the worker is to end.
    pub(crate) fn stand_by(&self) -> Option<usize> {
        let mut staff = self.staff.lock();
        loop {
            if self.shared.phase() == Phase::Stopped {
                staff.workers -= 1;
                return None;
            }
            if let Some(seat) = staff.wanted.pop_front() {
                self.note_stand_ins(&staff);
                return Some(seat);
            }
            staff.idle += 1;
            self.note_stand_ins(&staff);
            let timed_out = self.standby.wait_for(&mut staff, STANDBY_LIFE).timed_out();
            staff.idle -= 1;
            if timed_out && staff.wanted.is_empty() && staff.idle >= STANDBYS_KEPT {
                staff.workers -= 1;
                self.note_stand_ins(&staff);
                return None;
            }
        }
    }

    /// Whether somebody could be sent to each seat if all their workers slept, by what was known a
    /// moment ago.
    pub(crate) fn has_stand_ins(&self) -> bool {
        self.has_stand_ins.load(Ordering::Relaxed)
    }

    fn note_stand_ins(&self, staff: &Staff) {
        let idle = staff.idle.saturating_sub(staff.wanted.len());
        let more = self.workers_max().saturating_sub(staff.workers);
        let more = if staff.cannot_start { 0 } else { more };
        self.has_stand_ins.store(idle + more >= self.seats.len(), Ordering::Relaxed);
    }

    /// Sends a worker to a seat, unless all there may be are blocked.
    pub(crate) fn summon(self: &Arc<Self>, seat: usize) {
        let mut staff = self.staff.lock();
        if staff.wanted.contains(&seat) {
            return;
        }
        if staff.idle > staff.wanted.len() {
            staff.wanted.push_back(seat);
            self.standby.notify_one();
        } else if staff.workers < self.workers_max() {
            staff.wanted.push_back(seat);
            if let Err(error) = self.start_worker(&mut staff) {
                // Tried again when somebody next asks.
                staff.wanted.pop_back();
                staff.cannot_start = true;
                limited!(
                    self.shared.log,
                    LogKind::Workers,
                    error,
                    "cannot start a worker: {error}; calls wait until one is free"
                );
            }
        } else {
            limited!(
                self.shared.log,
                LogKind::Workers,
                warn,
                "all {} workers of pool {} wait for storage; further calls wait for them",
                staff.workers,
                self.index
            );
        }
        self.note_stand_ins(&staff);
    }

    fn workers_max(&self) -> usize {
        workers_max(&self.shared.options, self.seats.len())
    }

    /// To be called after a seat was lent.
    pub(crate) fn note_lent(&self) {
        if self.is_monitor_asleep.load(Ordering::SeqCst) {
            self.wake_monitor();
        }
    }

    fn wake_monitor(&self) {
        let _lock = self.monitor_wake.lock();
        self.is_monitor_asleep.store(false, Ordering::SeqCst);
        self.monitor_sleep.notify_one();
    }

    fn monitor(self: Arc<Self>) {
        let mut seen: Vec<Option<u64>> = vec![None; self.seats.len()];
        let mut quiet = 0;
        while self.shared.phase() != Phase::Stopped {
            let mut is_any_lent = false;
            for (seat, seen) in self.seats.iter().zip(&mut seen) {
                let lent = seat.lent_since();
                is_any_lent |= lent.is_some();
                if lent.is_some() && lent == *seen {
                    self.summon(seat.index);
                    // Who lent it may have held what calls before had logged.
                    if let Some(intent_log) = &self.shared.intent_log {
                        intent_log.rouse();
                    }
                }
                *seen = lent;
            }
            quiet = if is_any_lent { 0 } else { quiet + 1 };
            if quiet < QUIET_ROUNDS {
                std::thread::sleep(PATIENCE);
                continue;
            }
            let mut lock = self.monitor_wake.lock();
            self.is_monitor_asleep.store(true, Ordering::SeqCst);
            // Pairs with `note_lent`: it sees that we sleep, or we see what it lent.
            while self.is_monitor_asleep.load(Ordering::SeqCst)
                && self.shared.phase() != Phase::Stopped
                && self.seats.iter().all(|seat| seat.lent_since().is_none())
            {
                self.monitor_sleep.wait(&mut lock);
            }
            self.is_monitor_asleep.store(false, Ordering::SeqCst);
            quiet = 0;
        }
    }

    pub(crate) fn worker_count(&self) -> usize {
        self.staff.lock().workers
    }

    /// Whether no call is being executed and no executed call's reply is left behind.
    pub(crate) fn is_quiet(&self) -> bool {
        // While all of these are locked no work moves between what is left and who is busy.
        let open: Vec<_> = self.seats.iter().map(|seat| seat.open_batches.lock()).collect();
        open.iter().all(|batches| batches.is_empty()) && !self.counters.is_any_busy()
    }

    /// Lets everybody look at the phase.
    pub(crate) fn wake_all(&self) {
        for seat in &self.seats {
            seat.mailbox.wake.notify();
        }
        self.wake_monitor();
        let _staff = self.staff.lock();
        self.standby.notify_all();
    }

    pub(crate) fn take_threads(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut self.staff.lock().threads)
    }
}
