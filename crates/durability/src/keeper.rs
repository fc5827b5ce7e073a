//! The running log: takes changes, writes them, sends the replies that wait for them, and empties
//! itself by checkpoints.
//!
//! Committers (two threads, so that the device has the next write when one is done) write whatever
//! is complete; a worker that parks the replies of its calls wakes one if it sleeps, or, if it is
//! alone, writes their records itself: group commit without waiting for company. The checkpointer
//! flushes file systems by time and by fill level.
//!
//! What it does is in modules below this one: `place` has the way of a change into the log, `committer` writes,
//! `checkpoint` and `marks` flush, `switch` and `unmade` leave the log and come back to it, `faulty` has the
//! file systems that cannot be flushed.
//!
//! A *gate* stands before the log: every change passes it before it is applied. Closed, changes
//! wait; so the log can be left or entered at a moment when no change is half in it.

mod checkpoint;
mod committer;
pub(super) mod faulty;
mod for_server;
mod keeping;
mod marks;
mod moments;
mod pace;
mod parked;
pub(super) mod place;
mod room_wait;
mod served;
pub(super) mod status;
pub(super) mod switch;
#[cfg(test)]
pub(super) mod switch_tests;
mod unmade;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use steadfast_intent_log::{Batch, IntentLog, Lsn};
use steadfast_runtime::ServerLink;

use super::begun::BegunRings;
use super::known::note_known;
use super::medium::FileMedium;
use super::replies::{REPLIES_BYTES_MAX, ReplyStore};
use super::storages::OpenStorage;
use super::under_way::{Noted, UnderWayFile};
use faulty::Faults;
use marks::FileSystemMarks;
use moments::Marks;
use pace::Pace;
use parked::Parked;
use served::Served;
use status::LastCheckpoint;
use switch::Switch;

/// Threads that write.
const COMMITTERS: usize = 2;
/// Writes that take longer than this, in ns, are left to committers.
const INLINE_WRITE_NS_MAX: u64 = 1_000_000;
/// Between two looks at whether a full log has room again.
const FULL_WAIT: Duration = Duration::from_millis(100);
/// Between two attempts to note that the log was given up.
const RETRY: Duration = Duration::from_secs(10);
/// A device or a file system that fails again so soon is tried less often…
const RELAPSE: Duration = Duration::from_secs(600);
/// … at the least as often as this.
const RETRY_MAX: Duration = Duration::from_secs(3600);
/// For the threads' end.
const CLOSE_TIME: Duration = Duration::from_secs(10);
/// For the end of what has passed the gate.
const DRAIN_POLL: Duration = Duration::from_millis(1);

/// How the log is used.
#[derive(Clone, Debug)]
pub struct IntentLogOptions {
    /// WRITEs that must be stable are logged up to this size, in bytes; larger ones are flushed.
    pub stable_write_bytes_max: usize,
    /// WRITEs that need not be stable are logged up to this size, in bytes: the client then needs
    /// no COMMIT.
    pub unstable_write_bytes_max: usize,
    /// Between two checkpoints.
    pub checkpoint_interval: Duration,
    /// Checkpoints come earlier when the log is as full as this, in percent.
    pub checkpoint_fill_percent: u64,
    /// After the device has failed, or a file system could not be flushed, between two looks at
    /// whether it is well again.
    pub device_retry_interval: Duration,
    /// The most bytes of replies that are kept in the state directory.
    pub replies_bytes_max: u64,
}

impl Default for IntentLogOptions {
    fn default() -> Self {
        Self {
            stable_write_bytes_max: 256 << 10,
            unstable_write_bytes_max: 256 << 10,
            checkpoint_interval: Duration::from_secs(5),
            checkpoint_fill_percent: 40,
            device_retry_interval: Duration::from_secs(30),
            replies_bytes_max: REPLIES_BYTES_MAX,
        }
    }
}

/// Whether changes are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// They are.
    On = 0,
    /// They wait: the log is being left.
    Closing = 1,
    /// They are flushed instead.
    Off = 2,
}

/// What the keeper was made with.
pub(super) struct Parts {
    pub(super) uuid: [u8; 16],
    pub(super) log: IntentLog,
    pub(super) medium: Arc<FileMedium>,
    pub(super) options: IntentLogOptions,
    pub(super) state_directory: PathBuf,
    pub(super) open_storage: Box<OpenStorage>,
    pub(super) untold_write_verifier: u64,
    pub(super) under_way: Option<Arc<UnderWayFile>>,
    pub(super) begun: Option<BegunRings>,
    pub(super) replies: ReplyStore,
}

#[derive(Default)]
struct Checkpointing {
    is_wanted: bool,
    is_stopping: bool,
    /// Whether file systems have begun to be used that are to be marked.
    are_marks_due: bool,
    /// Checkpoints begun and ended, so that who asks for one can wait for it.
    begun: u64,
    ended: u64,
    /// The last one that somebody waits for, and whether somebody waits for the one that runs or for its
    /// end.
    waited_for: u64,
    is_waited_for: bool,
    /// The one that ended last, and how many did anything.
    last: Option<LastCheckpoint>,
    count: u64,
}

/// The log at work. One a server, shared by all its threads.
pub struct IntentLogKeeper {
    uuid: [u8; 16],
    pub(super) log: IntentLog,
    untold_write_verifier: u64,
    /// Held from a flush until what it has told is noted: the kernel tells of lost data once.
    flushing: Mutex<()>,
    open_storage: Box<OpenStorage>,
    /// Without it a kill leaves attributes by halves.
    under_way: Option<Arc<UnderWayFile>>,
    /// Without it the repetition of a call that a kill has left without a reply is executed again.
    begun: Option<BegunRings>,
    /// What is noted there and has a record that may not be stable, and whether there is any.
    pub(super) noted: Mutex<Vec<(Lsn, Noted)>>,
    has_noted: AtomicBool,
    pub(super) medium: Arc<FileMedium>,
    options: IntentLogOptions,
    state_directory: PathBuf,
    phase: AtomicU8,
    /// Why it is not on, and who switches it.
    switch: Switch,
    /// Changes that have passed the gate and whose records are not complete; those that are not
    /// logged, until they have been applied.
    passed: AtomicUsize,
    gate: Mutex<()>,
    gate_opens: Condvar,
    /// Committers that sleep, and whether there may be something for them.
    sleeping: AtomicUsize,
    has_work: AtomicBool,
    /// Whether that is to be written now, and workers that would rather have more written with it.
    is_wanted: AtomicBool,
    holders: AtomicUsize,
    work: Mutex<bool>,
    wake: Condvar,
    parked: Mutex<Parked>,
    stable_grew: Condvar,
    stable_lock: Mutex<()>,
    checkpointing: Mutex<Checkpointing>,
    checkpoint_wanted: Condvar,
    checkpoint_ended: Condvar,
    space: Mutex<()>,
    space_grew: Condvar,
    /// Held by who writes superblocks.
    superblocks: Mutex<()>,
    /// Why one could not be written, until a committer has seen it.
    superblock_fault: Mutex<Option<String>>,
    /// Held by who registers a file system.
    registering: Mutex<()>,
    /// Threads that send replies.
    settling: AtomicUsize,
    served: Mutex<Served>,
    faults: Mutex<Faults>,
    /// What the file systems' marks say.
    file_system_marks: FileSystemMarks,
    /// Where clients were told why something is not served, and when it was told last.
    not_served: Mutex<HashMap<Vec<u8>, (String, Instant)>>,
    has_faulty: AtomicBool,
    is_closing: AtomicBool,
    server: OnceLock<ServerLink>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    writing: AtomicUsize,
    /// Those that workers have used, for the next: their memory is large.
    spare_batches: Mutex<Vec<Batch>>,
    /// How long a write has taken of late.
    recent_write_ns: AtomicU64,
    /// How fast checkpoints have data written.
    pace: Mutex<Pace>,
    /// Where replies are kept when the log's tail passes them.
    replies: ReplyStore,
    /// Which time marks were written.
    marks: Mutex<Marks>,
}

impl std::fmt::Debug for IntentLogKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IntentLogKeeper").field("phase", &self.phase()).finish_non_exhaustive()
    }
}

impl IntentLogKeeper {
    pub(super) fn new(parts: Parts) -> Arc<Self> {
        let Parts {
            uuid,
            log,
            medium,
            options,
            state_directory,
            open_storage,
            untold_write_verifier,
            under_way,
            begun,
            replies,
        } = parts;
        // Replies stay in the ring until the store has them.
        log.retain(Some(log.last().next()));
        Arc::new(Self {
            uuid,
            log,
            untold_write_verifier,
            flushing: Mutex::default(),
            open_storage,
            under_way,
            begun,
            noted: Mutex::default(),
            has_noted: AtomicBool::new(false),
            medium,
            options,
            state_directory,
            phase: AtomicU8::new(Phase::On as u8),
            switch: Switch::default(),
            passed: AtomicUsize::new(0),
            gate: Mutex::default(),
            gate_opens: Condvar::new(),
            sleeping: AtomicUsize::new(0),
            has_work: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            holders: AtomicUsize::new(0),
            work: Mutex::new(false),
            wake: Condvar::new(),
            parked: Mutex::default(),
            stable_grew: Condvar::new(),
            stable_lock: Mutex::default(),
            checkpointing: Mutex::default(),
            checkpoint_wanted: Condvar::new(),
            checkpoint_ended: Condvar::new(),
            space: Mutex::default(),
            space_grew: Condvar::new(),
            superblocks: Mutex::default(),
            superblock_fault: Mutex::default(),
            registering: Mutex::default(),
            settling: AtomicUsize::new(0),
            served: Mutex::default(),
            faults: Mutex::default(),
            file_system_marks: FileSystemMarks::default(),
            not_served: Mutex::default(),
            has_faulty: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            server: OnceLock::new(),
            threads: Mutex::default(),
            writing: AtomicUsize::new(0),
            spare_batches: Mutex::default(),
            recent_write_ns: AtomicU64::new(0),
            pace: Mutex::default(),
            replies,
            marks: Mutex::default(),
        })
    }

    /// Whether changes are logged.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            0 => Phase::On,
            1 => Phase::Closing,
            _ => Phase::Off,
        }
    }

    /// Starts the threads. Replies that wait are sent by them.
    pub(super) fn start(self: &Arc<Self>, server: ServerLink) -> std::io::Result<()> {
        let _ = self.server.set(server);
        let mut threads = self.threads.lock();
        for number in 0..COMMITTERS {
            let keeper = Arc::clone(self);
            let name = format!("log-{number}");
            let commit = move || {
                if let Err(error) = Self::go_before_workers()
                    && number == 0
                {
                    tracing::info!(
                        "the intent log's threads cannot have the CPU before others ({error}): \
                         CAP_SYS_NICE or a limit (LimitNICE=-10) would allow it"
                    );
                }
                keeper.commit_all();
            };
            threads.push(std::thread::Builder::new().name(name).spawn(commit)?);
        }
        let keeper = Arc::clone(self);
        let name = "checkpoint".to_owned();
        threads
            .push(std::thread::Builder::new().name(name).spawn(move || keeper.checkpoint_all())?);
        Ok(())
    }

    /// Whether no reply waits.
    pub(super) fn is_idle(&self) -> bool {
        self.passed.load(Ordering::SeqCst) == 0
            && self.parked.lock().len() == 0
            && self.settling.load(Ordering::SeqCst) == 0
    }

    /// Makes all file systems stable and closes the log clean, once no change can come any more.
    /// The next start goes on with this write verifier. `false` if something had to be left in it.
    pub fn close(&self, write_verifier: u64) -> bool {
        self.log.set_write_verifier(write_verifier);
        self.is_closing.store(true, Ordering::SeqCst);
        self.end_marks();
        // Who is switching it on or off sees that it is closing, unless its device hangs.
        let switching = self.switch.switching.try_lock_for(CLOSE_TIME);
        let is_empty = switching.is_some()
            && match self.phase() {
                Phase::On => self.checkpoint_now(),
                Phase::Closing => false,
                Phase::Off => self.is_off_by_administrator() && self.switch.is_all_flushed(),
            };
        // A failure of a flush is told once: neither may be missed.
        let is_flushed = is_empty && self.mark_all_flushed().is_ok() && self.is_all_flushed();
        // One that was never made has nothing, and nothing is written to it.
        let is_clean = !self.is_unmade() && is_flushed && self.write_clean();
        {
            let mut checkpointing = self.checkpointing.lock();
            checkpointing.is_stopping = true;
            self.checkpoint_wanted.notify_all();
        }
        *self.work.lock() = true;
        self.wake.notify_all();
        let deadline = Instant::now() + CLOSE_TIME;
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // One that hangs in storage cannot be ended; the process's end is its end.
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(DRAIN_POLL);
            }
            if thread.is_finished() {
                // A panic of a thread has been reported when it happened.
                let _ = thread.join();
            }
        }
        // Whoever flushes something from here on has nothing to tell the log.
        self.phase.store(Phase::Off as u8, Ordering::SeqCst);
        drop(self.gate.lock());
        self.gate_opens.notify_all();
        // Of a log that was off, or whose device hangs.
        let is_kept = self.replies.flush().is_ok();
        if let Some(begun) = self.begun.as_ref().filter(|_| is_clean && is_kept) {
            begun.remove();
        }
        is_clean
    }

    /// Data that was never logged too: clients that have written it are told the same verifier
    /// after the next start.
    fn is_all_flushed(&self) -> bool {
        let syncs = self.served.lock().syncs();
        let is_flushed = syncs.iter().all(|one| one.sync().is_ok());
        // Those that are not logged.
        rustix::fs::sync();
        is_flushed
    }

    fn write_clean(&self) -> bool {
        let _one = self.superblocks.lock();
        let written = self.log.write_superblocks(&*self.medium, true);
        let is_clean = written.unwrap_or_else(|error| {
            tracing::error!("the intent log cannot be marked as closed: {error}; the next start replays what is in it");
            false
        });
        if is_clean && let Err(error) = note_known(&self.state_directory, &self.uuid, false) {
            tracing::error!(
                "the state directory cannot be written: {error}; the intent log is closed, but that is \
                 not noted there"
            );
        }
        is_clean
    }
}
