//! The running log: takes changes, writes them, sends the replies that wait for them, and empties
//! itself by checkpoints.
//!
//! Committers (two threads, so that the device has the next write when one is done) write whatever
//! is complete; a worker that parks the replies of its calls wakes one if it sleeps, or, if it is
//! alone, writes their records itself: group commit without waiting for company. The checkpointer
//! flushes file systems by time and by fill level.
//!
//! The keeper consists of parts. Each has one reason and private fields, and does not know the keeper:
//!
//! | part | reason |
//! |---|---|
//! | `gate` | The server leaves and enters the log when no change is half in it |
//! | `left` | One thread at a time switches the log; a failed device is tried again, at growing intervals |
//! | `wakeup` | Committers sleep while there is nothing to write, and miss no work |
//! | `writes` | Nothing is switched while a write is under way; only committers wait for a slow device |
//! | `superblocks` | One thread at a time writes superblocks; a failure makes a committer leave the log |
//! | `waiting`, `parked` | Replies are sent, and threads go on, once their records are stable |
//! | `requests` | A thread that asks for a checkpoint waits for one that begins later |
//! | `pace` | A checkpoint does not slow down the log's own writes |
//! | `file_systems`, `served` | A file system keeps its index while it is registered, flushed or removed |
//! | `faults` | Changes of a file system that cannot be flushed wait; others do not |
//! | `known_marks` | A file system always has a whole mark |
//! | `time_marks` | A time mark is due while operations come that no checkpoint has covered; marks call for no others |
//! | `state_files`, `noted` | The state directory has what the next start needs besides the log |
//! | `running` | The threads end with the server |
//!
//! The other modules work with all parts: `place` takes changes into the log, `committer` writes, `keeping`
//! stores replies, `moments` writes time marks, `checkpoint` and `marks` flush, `switch` and `unmade` leave the log and enter it again,
//! `faulty` tries file systems that could not be flushed, `status` and `for_server` report.

mod checkpoint;
mod committer;
pub(super) mod faults;
mod faulty;
mod file_systems;
mod for_server;
mod gate;
mod keeping;
mod known_marks;
pub(super) mod left;
mod marks;
mod moments;
mod noted;
mod pace;
mod parked;
pub(super) mod place;
pub(super) mod requests;
mod room_wait;
mod running;
mod served;
mod state_files;
pub(super) mod status;
mod superblocks;
pub(super) mod switch;
#[cfg(test)]
pub(super) mod switch_tests;
mod time_marks;
mod unmade;
mod waiting;
mod wakeup;
mod writes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use steadfast_intent_log::IntentLog;
use steadfast_runtime::ServerLink;

use super::begun::BegunRings;
use super::medium::FileMedium;
use super::replies::{REPLIES_BYTES_MAX, ReplyStore};
use super::storages::OpenStorage;
use super::under_way::UnderWayFile;
use faults::Faulty;
use file_systems::FileSystems;
use gate::Gate;
pub use gate::Phase;
use known_marks::KnownMarks;
use left::Switch;
use noted::NotedUntilStable;
use pace::Pace;
use requests::Requests;
use running::Running;
use state_files::StateFiles;
use superblocks::Superblocks;
use time_marks::TimeMarks;
use waiting::Waiting;
use wakeup::{COMMITTERS, Wakeup};
use writes::Writes;

/// Between two looks at whether a full log has room again.
const FULL_WAIT: Duration = Duration::from_millis(100);
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

/// How the log is used, for as long as it is.
struct Settings {
    options: IntentLogOptions,
    open_storage: Box<OpenStorage>,
    /// Given to the log when it is left while the server goes on telling its own.
    untold_write_verifier: u64,
}

/// The log at work. One a server, shared by all its threads.
pub struct IntentLogKeeper {
    settings: Settings,
    log: IntentLog,
    medium: Arc<FileMedium>,
    superblocks: Superblocks,
    state_files: StateFiles,
    gate: Gate,
    switch: Switch,
    wakeup: Wakeup,
    writes: Writes,
    waiting: Waiting,
    requests: Requests,
    pace: Mutex<Pace>,
    file_systems: FileSystems,
    faulty: Faulty,
    marks: KnownMarks,
    time_marks: Mutex<TimeMarks>,
    running: Running,
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
        let noted = NotedUntilStable::new(under_way);
        Arc::new(Self {
            settings: Settings { options, open_storage, untold_write_verifier },
            log,
            medium,
            superblocks: Superblocks::default(),
            state_files: StateFiles::new(state_directory, uuid, replies, begun, noted),
            gate: Gate::new(),
            switch: Switch::default(),
            wakeup: Wakeup::default(),
            writes: Writes::default(),
            waiting: Waiting::default(),
            requests: Requests::default(),
            pace: Mutex::default(),
            file_systems: FileSystems::default(),
            faulty: Faulty::default(),
            marks: KnownMarks::default(),
            time_marks: Mutex::default(),
            running: Running::default(),
        })
    }

    /// Whether changes are logged.
    pub fn phase(&self) -> Phase {
        self.gate.phase()
    }

    /// Starts the threads. Replies that wait are sent by them.
    pub(super) fn start(self: &Arc<Self>, server: ServerLink) -> std::io::Result<()> {
        self.running.begin_for(server);
        let committers = (0..COMMITTERS).map(|number| {
            let keeper = Arc::clone(self);
            let commit: Box<dyn FnOnce() + Send> = Box::new(move || {
                if let Err(error) = Self::go_before_workers()
                    && number == 0
                {
                    tracing::info!(
                        "the intent log's threads cannot have the CPU before others ({error}): \
                         CAP_SYS_NICE or a limit (LimitNICE=-10) would allow it"
                    );
                }
                keeper.commit_all();
            });
            (format!("log-{number}"), commit)
        });
        let keeper = Arc::clone(self);
        let checkpoint: Box<dyn FnOnce() + Send> = Box::new(move || keeper.checkpoint_all());
        self.running.spawn(committers.chain([("checkpoint".to_owned(), checkpoint)]))
    }

    /// Whether no reply waits.
    pub(super) fn is_idle(&self) -> bool {
        self.gate.is_empty() && self.waiting.is_empty()
    }

    /// Makes all file systems stable and closes the log clean, once no change can come any more.
    /// The next start goes on with this write verifier. `false` if something had to be left in it.
    pub fn close(&self, write_verifier: u64) -> bool {
        self.log.set_write_verifier(write_verifier);
        self.running.begin_closing();
        self.end_marks();
        // Who is switching it on or off sees that it is closing, unless its device hangs.
        let switching = self.switch.switching_within(CLOSE_TIME);
        let is_empty = switching.is_some()
            && match self.phase() {
                Phase::On => self.checkpoint_now(),
                Phase::Closing => false,
                Phase::Off => self.is_off_by_administrator() && self.switch.not_flushed().is_none(),
            };
        // A failure of a flush is told once: neither may be missed.
        let is_flushed = is_empty && self.mark_all_flushed().is_ok() && self.is_all_flushed();
        // One that was never made has nothing, and nothing is written to it.
        let is_clean = !self.is_unmade() && is_flushed && self.write_clean();
        self.requests.stop();
        self.wakeup.stop();
        self.running.join(CLOSE_TIME);
        // Whoever flushes something from here on has nothing to tell the log.
        self.gate.open(Phase::Off);
        // Of a log that was off, or whose device hangs.
        let is_kept = self.state_files.replies().flush().is_ok();
        if let Some(begun) = self.state_files.begun().filter(|_| is_clean && is_kept) {
            begun.remove();
        }
        is_clean
    }

    /// Data that was never logged too: clients that have written it are told the same verifier
    /// after the next start.
    fn is_all_flushed(&self) -> bool {
        let syncs = self.file_systems.syncs();
        let is_flushed = syncs.iter().all(|one| one.sync().is_ok());
        // Those that are not logged.
        rustix::fs::sync();
        is_flushed
    }

    fn write_clean(&self) -> bool {
        let writing = self.superblocks.lock(&self.log, &self.medium);
        let is_clean = writing.close().unwrap_or_else(|error| {
            tracing::error!("the intent log cannot be marked as closed: {error}; the next start replays what is in it");
            false
        });
        if is_clean && let Err(error) = self.state_files.note_closed() {
            tracing::error!(
                "the state directory cannot be written: {error}; the intent log is closed, but that is \
                 not noted there"
            );
        }
        is_clean
    }
}
