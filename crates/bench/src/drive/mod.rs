//! Virtual clients: many connections on a few threads, each with a script that says which call
//! comes next and judges the replies.
//!
//! A [`Plan`] says how many and at what [`Pace`], a [`Script`] a thread what they say, and
//! [`run`] does it and counts. Inside: `pace` is the schedule of an open loop, `sockets` makes
//! the connections, `datagram` is what UDP needs beside, `worker` is one thread, `tally` counts,
//! `control` shows progress and stops.

mod alarm;
mod control;
mod datagram;
pub(crate) mod pace;
pub(crate) mod sockets;
pub(crate) mod tally;
mod worker;

use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub use control::Control;
pub use pace::{Arrivals, Pace};
pub use sockets::source_address;
pub use tally::{KindReport, Latency};

use crate::error::BenchError;
use crate::records::Outbox;
use crate::replies::LongData;
use crate::server_cost::{self, Costs, Snapshot};
use tally::Tally;

/// Most virtual clients of one load: as many addresses are to be had, and more descriptors than
/// Linux gives a process by default.
pub const CLIENTS_MAX: usize = 1 << 20;
/// Most calls in flight of one virtual client.
pub const DEPTH_MAX: usize = 256;
/// How often the server's memory and the machine's load are looked at: not in step with what
/// happens every so many milliseconds.
const LOOK_EVERY: Duration = Duration::from_millis(97);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// How calls travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Over a TCP connection a client.
    #[default]
    Tcp,
    /// Over a UDP socket a client; calls without a reply are sent again.
    Udp,
}

/// How many virtual clients do what when.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) server: SocketAddr,
    /// Virtual clients, each with a connection.
    pub(crate) clients: usize,
    pub(crate) transport: Transport,
    /// Whose address the first of them has, since other loads may run beside this one; without,
    /// all have this host's.
    pub(crate) first_address: Option<usize>,
    /// Calls in flight of a client, at most.
    pub(crate) depth: usize,
    pub(crate) threads: usize,
    pub(crate) pace: Pace,
    /// Not measured, before what is.
    pub(crate) warm_up: Duration,
    pub(crate) duration: Duration,
    pub(crate) server_pid: Option<u32>,
    /// How many kinds of calls the scripts tell apart.
    pub(crate) kinds: usize,
    /// What is running, for people.
    pub(crate) title: String,
}

impl Plan {
    /// The clients of a thread.
    pub(crate) fn clients_of(&self, thread: usize) -> Range<usize> {
        self.clients * thread / self.threads..self.clients * (thread + 1) / self.threads
    }

    pub(crate) fn check(&self) -> Result<(), BenchError> {
        let usage = |what: String| Err(BenchError::Usage(what));
        if self.clients == 0 || self.clients > CLIENTS_MAX {
            return usage(format!("the number of clients must be between 1 and {CLIENTS_MAX}"));
        }
        if self.depth == 0 || self.depth > DEPTH_MAX {
            return usage(format!("the depth must be between 1 and {DEPTH_MAX}"));
        }
        if self.threads == 0 || self.threads > self.clients {
            return usage(
                "there must be at least one thread, and not more than clients".to_owned(),
            );
        }
        sockets::reserve_descriptors(self.clients)
    }
}

/// What a reply was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Good; the lane's next call may go.
    Good,
    /// The lane is to make the same call again later (`NFS3ERR_JUKEBOX`).
    TryLater,
}

/// What a thread's virtual clients say. A lane is one of the calls that a client may have in
/// flight: lane `n` belongs to client `n / depth` of the thread.
pub(crate) trait Script: Send {
    /// A client of this thread has connected over TCP: what must be said before any call is said
    /// now. The socket does not block, and must not when this returns.
    fn connected(&mut self, _client: usize, _stream: &TcpStream) -> Result<(), BenchError> {
        Ok(())
    }

    /// All calls of a client have ended, and nothing is measured any more: what must be said at
    /// last is said now.
    fn finished(&mut self, _client: usize, _stream: &TcpStream) -> Result<(), BenchError> {
        Ok(())
    }

    /// Appends the lane's next call; the same again after [`Verdict::TryLater`]. Returns its kind,
    /// or `None` when the lane has no more to do, which ends the measurement of a closed loop.
    fn call(
        &mut self,
        lane: usize,
        xid: u32,
        out: &mut Outbox,
    ) -> Result<Option<usize>, BenchError>;

    /// Judges a reply.
    fn reply(&mut self, lane: usize, message: &[u8]) -> Result<Verdict, BenchError>;

    /// Judges the head of a reply too long to be kept.
    fn long_reply(
        &mut self,
        _lane: usize,
        _head: &[u8],
        _bytes: usize,
    ) -> Result<LongData, BenchError> {
        Err(BenchError::broken("any call", "a reply of unreasonable length"))
    }

    /// The long reply has ended, and was right.
    fn long_reply_ended(&mut self, _lane: usize) {}
}

/// Waiting for all threads to be connected.
const CONNECTING: u8 = 0;
const WARMING_UP: u8 = 1;
const MEASURING: u8 = 2;
const STOPPING: u8 = 3;

/// What all threads see.
#[derive(Debug)]
pub(crate) struct Shared {
    phase: AtomicU8,
    connected: AtomicUsize,
    /// Threads that have ended, or that have no more to do.
    finished: AtomicUsize,
    has_failed: AtomicBool,
    /// A client of a closed loop has no further call: what is measured would not be the same load
    /// any more.
    has_run_out: AtomicBool,
    clock: Instant,
    threads: Vec<Live>,
}

/// What a thread tells while it runs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Live {
    replies: AtomicU64,
    /// How long ago the oldest call that could not be started should have been.
    behind_ns: AtomicU64,
}

impl Shared {
    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Acquire)
    }

    fn replies(&self) -> u64 {
        self.threads.iter().map(|live| live.replies.load(Ordering::Relaxed)).sum()
    }

    fn behind_ns(&self) -> u64 {
        let behind = self.threads.iter().map(|live| live.behind_ns.load(Ordering::Relaxed));
        behind.max().unwrap_or(0)
    }

    fn is_over(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
            || self.has_run_out.load(Ordering::Relaxed)
            || self.finished.load(Ordering::Relaxed) == self.threads.len()
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome<S> {
    pub(crate) scripts: Vec<S>,
    pub(crate) tally: Tally,
    /// How long it was measured.
    pub(crate) seconds: f64,
    pub(crate) costs: Costs,
    /// How late the schedule of an open loop was at the end, in seconds.
    pub(crate) behind_seconds: f64,
    pub(crate) was_interrupted: bool,
}

/// Puts the load on the server.
///
/// # Errors
/// When the server cannot be reached, fails a call, or breaks a promise.
pub(crate) fn run<S: Script + 'static>(
    plan: &Plan,
    scripts: Vec<S>,
    control: &Control,
) -> Result<Outcome<S>, BenchError> {
    plan.check()?;
    let shared = Arc::new(Shared {
        phase: AtomicU8::new(CONNECTING),
        connected: AtomicUsize::new(0),
        finished: AtomicUsize::new(0),
        has_failed: AtomicBool::new(false),
        has_run_out: AtomicBool::new(false),
        clock: Instant::now(),
        threads: (0..plan.threads).map(|_| Live::default()).collect(),
    });
    let mut threads = Vec::new();
    for (thread, script) in scripts.into_iter().enumerate() {
        let (plan, shared) = (plan.clone(), Arc::clone(&shared));
        threads.push(std::thread::spawn(move || {
            let guard = Finish(&shared);
            let outcome = worker::Worker::connect(&plan, script, thread, &shared)
                .and_then(worker::Worker::run);
            shared.has_failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
            drop(guard);
            outcome
        }));
    }
    let measured = watch(plan, &shared, control);
    shared.phase.store(STOPPING, Ordering::Release);
    let mut tally = Tally::new(plan.kinds);
    let (mut scripts, mut outcome) = (Vec::new(), Ok(()));
    for thread in threads {
        match thread.join() {
            Ok(Ok((script, own))) => {
                tally.add(&own);
                scripts.push(script);
            }
            // The first failure is the one to be told.
            Ok(Err(error)) => outcome = outcome.and(Err(error)),
            Err(_) => outcome = outcome.and(Err(BenchError::Panicked)),
        }
    }
    control.clear();
    outcome?;
    let calls = tally.all().len();
    let mut costs = Costs::between(&measured.before, &measured.after, calls);
    costs.server_resident_bytes = measured.seen.resident_bytes;
    costs.running_tasks = measured.seen.running_tasks();
    Ok(Outcome {
        scripts,
        tally,
        seconds: (measured.after.at - measured.before.at).as_secs_f64(),
        costs,
        behind_seconds: measured.behind_ns as f64 / 1e9,
        was_interrupted: control.is_interrupted(),
    })
}

/// Tells that a thread has ended, also when it panicked.
struct Finish<'s>(&'s Shared);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.finished.fetch_add(1, Ordering::Relaxed);
    }
}

struct Measured {
    before: Snapshot,
    after: Snapshot,
    seen: Seen,
    behind_ns: u64,
}

/// What was seen of the machine now and then.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The most memory that the server used.
    resident_bytes: Option<u64>,
    running_tasks: u64,
    samples: u64,
}

impl Seen {
    fn look(&mut self, server_pid: Option<u32>) {
        let resident = server_pid.and_then(|pid| server_cost::resident_bytes(pid).ok());
        self.resident_bytes = self.resident_bytes.max(resident);
        if let Some(running) = server_cost::running_tasks() {
            self.running_tasks += u64::from(running);
            self.samples += 1;
        }
    }

    fn running_tasks(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.running_tasks as f64 / self.samples as f64)
    }
}

/// Leads the threads through the phases, up to the end of what is measured.
fn watch(plan: &Plan, shared: &Shared, control: &Control) -> Measured {
    let mut watcher = Watcher { plan, shared, control, told_at: Instant::now(), told: 0 };
    let is_connected = || shared.connected.load(Ordering::Relaxed) == plan.threads;
    watcher.wait(Duration::MAX, "connecting", is_connected);
    // Without a warm-up the first call counts too, however soon the last one ends.
    if !plan.warm_up.is_zero() {
        shared.phase.store(WARMING_UP, Ordering::Release);
        watcher.wait(plan.warm_up, "warming up", || false);
    }
    let before = Snapshot::take(plan.server_pid);
    shared.phase.store(MEASURING, Ordering::Release);
    let seen = watcher.wait(plan.duration, "measuring", || false);
    let after = Snapshot::take(plan.server_pid);
    Measured { before, after, seen, behind_ns: shared.behind_ns() }
}

struct Watcher<'w> {
    plan: &'w Plan,
    shared: &'w Shared,
    control: &'w Control,
    told_at: Instant,
    told: u64,
}

impl Watcher<'_> {
    /// Waits until the time is over, there is nothing to wait for, or somebody stops it.
    fn wait(&mut self, duration: Duration, doing: &str, is_done: impl Fn() -> bool) -> Seen {
        let started = Instant::now();
        let (mut seen, mut looked_at) = (Seen::default(), None::<Instant>);
        while started.elapsed() < duration
            && !is_done()
            && !self.shared.is_over()
            && !self.control.is_interrupted()
        {
            if looked_at.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
                looked_at = Some(Instant::now());
                seen.look(self.plan.server_pid);
            }
            if self.told_at.elapsed() >= PROGRESS_EVERY {
                self.tell(doing, started.elapsed(), duration);
            }
            let left = duration.saturating_sub(started.elapsed());
            std::thread::sleep(left.min(Duration::from_millis(2)));
        }
        seen
    }

    fn tell(&mut self, doing: &str, elapsed: Duration, of: Duration) {
        let replies = self.shared.replies();
        let rate = (replies - self.told) as f64 / self.told_at.elapsed().as_secs_f64();
        (self.told, self.told_at) = (replies, Instant::now());
        let of = if of == Duration::MAX { String::new() } else { format!("/{}", of.as_secs()) };
        let behind = Duration::from_nanos(self.shared.behind_ns());
        let behind = if behind > Duration::from_millis(100) {
            format!(", the schedule is {:.1} s behind", behind.as_secs_f64())
        } else {
            String::new()
        };
        self.control.show(&format!(
            "{}: {doing} {}{of} s, {rate:.0} calls/s{behind}",
            self.plan.title,
            elapsed.as_secs()
        ));
    }
}
