//! Starts the intent log as the configuration wants it, and closes it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use steadfast_catalog::configuration::{LOG_MIB, LogSettings};
use steadfast_durability::{
    IntentLogKeeper, IntentLogOptions, LogCare, LogHandle, MountedNow, OpenStorage, Phase,
    StartIntentLog, StartedIntentLog, forget_begun, forget_under_way, is_any_open,
    is_anything_set_aside, kept_replies,
};
use steadfast_posixfs::{
    RecoveringFileSystem, assume_server_powers, can_log_changes, marked_file_systems,
    restore_limits,
};
use steadfast_recovery::{ChangeLog, Recoverable};
use steadfast_shares::Share;
use steadfast_sys::{durable_file, process};

use crate::error::{StartError, Tried};
use crate::state_directory::StateDirectory;

/// In the state directory, unless another place is configured.
const FILE_NAME: &str = "intent.log";
const FILE_MIB: u64 = 256;
/// Of what is free, a log whose size nobody has chosen takes no more than one in so many parts.
const FREE_PART: u64 = 8;
/// What systems call themselves by, and what we call a host by that has none.
const MACHINE_ID_FILE: &str = "/etc/machine-id";
const HOST_FILE: &str = "host.id";

/// How long a server that stops serves on while disks are flushed.
pub(crate) const FLUSH_PATIENCE: Duration = Duration::from_secs(10);
/// How often it flushes in this time, unless a flush was so short that it has left little to the next.
const FLUSHES_MAX: u32 = 3;
const SHORT_FLUSH: Duration = Duration::from_millis(50);

/// Whether there is to be a log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Now,
    /// From the first share on whose changes can be logged.
    WhenNeeded,
    No,
}

/// The log of a server, or that there is none. To drop it is to close it.
pub(crate) struct OpenedLog {
    /// If changes are logged.
    keeper: Option<Arc<IntentLogKeeper>>,
    /// What clients are told from here on.
    pub(crate) write_verifier: u64,
    /// Replies that clients may ask for again.
    replies: Vec<Vec<u8>>,
    /// How long the last flush may take while calls are served.
    flush_patience: Duration,
}

impl OpenedLog {
    /// The log's keeper, if changes are logged.
    pub(crate) fn keeper(&self) -> Option<&Arc<IntentLogKeeper>> {
        self.keeper.as_ref()
    }

    /// Where storage logs its changes, if they are logged.
    pub(crate) fn change_log(&self) -> Option<Arc<dyn ChangeLog>> {
        self.keeper.as_ref().map(|keeper| Arc::new(LogHandle::new(keeper)) as Arc<dyn ChangeLog>)
    }

    /// Takes the replies that clients may ask for again.
    pub(crate) fn take_replies(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.replies)
    }

    /// One that tests start, with a patience of their own.
    #[cfg(test)]
    pub(crate) fn of(started: StartedIntentLog, flush_patience: Duration) -> Self {
        let StartedIntentLog { keeper, write_verifier, replies } = started;
        Self { keeper: Some(keeper), write_verifier, replies, flush_patience }
    }

    /// Flushes the disks while calls are still served, so that little is left for the end, when nobody is. After
    /// [`FLUSH_PATIENCE`] it goes on without those that are slow, or hang.
    pub(crate) fn flush_while_serving(&self) {
        let Some(keeper) = self.keeper.clone() else { return };
        let flush = move || {
            let begun = Instant::now();
            keeper.flush();
            begun.elapsed()
        };
        if !flush_within(self.flush_patience, flush) {
            tracing::warn!(
                "the disks are not flushed after {} s; calls are not served any more",
                self.flush_patience.as_secs()
            );
        }
    }

    /// Closes the log when no call can come any more; `verifier` is what clients were told last.
    pub(crate) fn close(&mut self, verifier: u64) {
        if let Some(keeper) = self.keeper.take() {
            close(&keeper, verifier);
        }
    }
}

impl Drop for OpenedLog {
    fn drop(&mut self) {
        self.close(self.write_verifier);
    }
}

/// Flushes, and says how long that took, until a flush was short or there were enough; `false` if that
/// takes longer than somebody has patience. Then no other flush is begun, and nobody waits for this one.
fn flush_within(patience: Duration, mut flush: impl FnMut() -> Duration + Send + 'static) -> bool {
    let (ended, end) = mpsc::channel();
    let is_over = Arc::new(AtomicBool::new(false));
    let flushes = {
        let is_over = Arc::clone(&is_over);
        move || {
            for _ in 0..FLUSHES_MAX {
                // While one flushes much, much comes.
                if flush() < SHORT_FLUSH || is_over.load(Ordering::SeqCst) {
                    break;
                }
            }
            // After the patience nobody hears it.
            let _ = ended.send(());
        }
    };
    // Without a thread, all is flushed when the log is closed.
    let started = thread::Builder::new().name("last flush".to_owned()).spawn(flushes);
    let is_done = started.is_err() || end.recv_timeout(patience).is_ok();
    is_over.store(!is_done, Ordering::SeqCst);
    is_done
}

/// Opens the log, if there is to be one, and replays what is in it.
///
/// # Errors
/// Why it cannot be used, and what to do.
pub(crate) fn open(
    settings: &LogSettings,
    state: &StateDirectory,
    may_log: bool,
    is_useful: impl Fn() -> bool,
) -> Result<OpenedLog, StartError> {
    let verifier = u64::from_be_bytes(random()?);
    let started = start(settings, &state.path, state.handle_key, verifier, may_log, is_useful)?;
    // By a replay of before that was cut short, and to which this start has added nothing.
    restore_limits(&state.path);
    Ok(match started {
        Some(started) => OpenedLog {
            keeper: Some(started.keeper),
            write_verifier: started.write_verifier,
            replies: started.replies,
            flush_patience: FLUSH_PATIENCE,
        },
        None => OpenedLog {
            keeper: None,
            write_verifier: verifier,
            replies: kept_replies(&state.path)
                .tried("cannot read the replies that are kept in the state directory")?,
            flush_patience: FLUSH_PATIENCE,
        },
    })
}

/// Opens the log and replays what is in it. `None` if there is to be none.
fn start(
    settings: &LogSettings,
    state_directory: &Path,
    handle_key: [u8; 16],
    new_write_verifier: u64,
    may_log: bool,
    is_useful: impl Fn() -> bool,
) -> Result<Option<StartedIntentLog>, StartError> {
    let path = log_path(settings.path.as_ref().map(|path| &*path.value), state_directory);
    let is_there = path.exists();
    // Who says where it is to be wants one.
    let enabled = settings.enabled.or(settings.path.as_ref().map(|_| true));
    let another_is_open = is_any_open(state_directory).tried("cannot read the state directory")?;
    let sized = || settings.size_mib.map_or_else(|| fitting_mib(state_directory), Ok);
    let (use_of_it, file_mib) = match enabled {
        Some(is_wanted) => {
            let use_of_it = if is_wanted { Use::Now } else { Use::No };
            (use_of_it, settings.size_mib.unwrap_or(FILE_MIB))
        }
        // Once made, it is used: it may have changes of file systems that are not there now.
        None if is_there => (Use::Now, FILE_MIB),
        None if !may_log => {
            tracing::info!(
                "no intent log: the server does not run as root, and flushes every change"
            );
            (Use::No, FILE_MIB)
        }
        None if !is_useful() && !another_is_open => {
            tracing::info!(
                "no intent log yet: no share is on a file system whose changes can be logged (ext4 \
                 with a journal, XFS, btrfs); it is made when the first such share is added"
            );
            // Whether there is room is seen again when it is made.
            (Use::WhenNeeded, sized().unwrap_or(LOG_MIB.0))
        }
        None => match sized() {
            Ok(mib) => (Use::Now, mib),
            Err(why) => {
                tracing::warn!("no intent log is made: {why}; changes are flushed");
                (Use::No, FILE_MIB)
            }
        },
    };
    let is_wanted = use_of_it != Use::No;
    if !is_wanted {
        refuse_what_is_set_aside(state_directory)?;
        // One that was not closed has to be found and emptied first, wherever it is.
        if !another_is_open {
            // Whatever comes after it is not undone by a later start with a log.
            forget_under_way(state_directory)
                .and_then(|()| forget_begun(state_directory))
                .tried("cannot write the state directory")?;
            return Ok(None);
        }
    }
    assume_server_powers().tried("cannot act with the server's own powers")?;
    let default = IntentLogOptions::default();
    let untold_write_verifier = u64::from_be_bytes(random()?);
    let directory = state_directory.to_owned();
    let start = StartIntentLog {
        path,
        file_bytes: file_mib << 20,
        state_directory: state_directory.to_owned(),
        host: host(state_directory)?,
        new_uuid: random()?,
        new_write_verifier,
        untold_write_verifier,
        handle_key,
        options: IntentLogOptions {
            stable_write_bytes_max: settings
                .stable_write_bytes_max
                .unwrap_or(default.stable_write_bytes_max),
            unstable_write_bytes_max: settings
                .unstable_write_bytes_max
                .unwrap_or(default.unstable_write_bytes_max),
            checkpoint_interval: settings
                .checkpoint_interval_ms
                .map_or(default.checkpoint_interval, Duration::from_millis),
            checkpoint_fill_percent: settings
                .checkpoint_fill_percent
                .unwrap_or(default.checkpoint_fill_percent),
            device_retry_interval: settings
                .device_retry_interval_s
                .map_or(default.device_retry_interval, Duration::from_secs),
            replies_bytes_max: settings
                .replies_mib
                .map_or(default.replies_bytes_max, |mib| mib << 20),
        },
        open_storage: open_storage(directory),
        look_around: Box::new(look_around),
    };
    if use_of_it == Use::WhenNeeded {
        return Ok(Some(start.start_unmade()?));
    }
    let started = start.start()?;
    if is_wanted {
        return Ok(Some(started));
    }
    // Switched off by the administrator: what it held is on the file systems now.
    // Clients are told a verifier by a server without a log from here on.
    if !started.keeper.close(untold_write_verifier) {
        return Err(StartError::IntentLog(
            "the intent log is switched off, but cannot be emptied: see the messages before"
                .to_owned(),
        ));
    }
    refuse_what_is_set_aside(state_directory)?;
    tracing::info!("the intent log is switched off; it is empty");
    Ok(None)
}

/// Where the log is.
pub fn log_path(configured: Option<&Path>, state_directory: &Path) -> PathBuf {
    configured.map_or_else(|| state_directory.join(FILE_NAME), Path::to_owned)
}

/// The log of a server that does not run, for an administrator who looks after it; `configured` is
/// its place, if the configuration has one. The state directory is kept locked meanwhile by who has
/// opened it.
///
/// # Errors
/// When it is not known which host this is.
pub fn care(configured: Option<&Path>, state: &StateDirectory) -> Result<LogCare, StartError> {
    Ok(LogCare {
        path: log_path(configured, &state.path),
        state_directory: state.path.clone(),
        host: host(&state.path)?,
        new_uuid: random()?,
        open_storage: open_storage(state.path.clone()),
        look_around: Box::new(look_around),
    })
}

/// Forgets what was mounted when the server of this state directory ran last, before a log is
/// adopted: another machine's changes are not in effect here because a server of this one was ended.
///
/// # Errors
/// When the state directory cannot be written.
pub fn forget_what_was_mounted(state: &StateDirectory) -> Result<(), StartError> {
    steadfast_posixfs::forget_what_was_mounted(&state.path)
        .tried("cannot forget in the state directory what was mounted")
}

/// Finds the file system of an entry of the log, wherever it is mounted.
fn open_storage(state_directory: PathBuf) -> Box<OpenStorage> {
    Box::new(move |entry| {
        assume_server_powers().map_err(|error| error.to_string())?;
        let known = Path::new(OsStr::from_bytes(&entry.path));
        let found = RecoveringFileSystem::find(known, &entry.identity.uuid, &state_directory);
        let storage = found.map_err(|error| error.to_string())?;
        Ok(storage.map(|storage| Box::new(storage) as Box<dyn Recoverable>))
    })
}

/// The file systems that are mounted now.
fn look_around() -> Vec<MountedNow> {
    let mounted = marked_file_systems().into_iter();
    mounted
        .map(|(path, identity, mark)| {
            MountedNow::new(path.into_os_string().into_vec(), identity.uuid, identity.kind, mark)
        })
        .collect()
}

/// Operations of a file system that is not there cannot be replayed without the log when it is.
fn refuse_what_is_set_aside(state_directory: &Path) -> Result<(), StartError> {
    if is_anything_set_aside(state_directory).tried("cannot read the state directory")? {
        return Err(StartError::IntentLog(format!(
            "the intent log is switched off, but the state directory {} has files of operations \
             that were set aside (*.aside): start with the log and the file systems that they are \
             of, or remove the files, and the operations in them are lost",
            state_directory.display()
        )));
    }
    Ok(())
}

/// Whether there is anything to be logged.
pub(crate) fn is_useful<'s>(mut shares: impl Iterator<Item = &'s Share>) -> bool {
    // Thousands of shares may be on one file system, which need not be looked at again.
    let mut seen = HashSet::new();
    shares.any(|share| {
        if share.without_log {
            return false;
        }
        let Ok(metadata) = share.directory().metadata() else { return false };
        let is_new = share.crosses_mounts || seen.insert(metadata.dev());
        let directory = || share.directory().canonicalize();
        is_new && directory().is_ok_and(|path| can_log_changes(&path, share.crosses_mounts))
    })
}

/// How large a log is made where nobody has said it: as large as is usual, but not more than a
/// part of what is free.
fn fitting_mib(state_directory: &Path) -> Result<u64, StartError> {
    let facts = rustix::fs::statvfs(state_directory)
        .tried_with(|| format!("cannot look at {}", state_directory.display()))?;
    let free_mib = facts.f_bavail.saturating_mul(facts.f_frsize) >> 20;
    let mib = FILE_MIB.min(free_mib / FREE_PART);
    if mib < LOG_MIB.0 {
        return Err(StartError::IntentLog(format!(
            "{} has {free_mib} MiB free, too little; put the log elsewhere ([log] path), or say \
             how large it is to be ([log] size_mib)",
            state_directory.display()
        )));
    }
    Ok(mib)
}

/// What this host is known by, so that a log that was moved is noticed.
fn host(state_directory: &Path) -> Result<[u8; 16], StartError> {
    let parse = |text: &str| u128::from_str_radix(text.trim(), 16).ok().map(u128::to_be_bytes);
    let read = |path: &Path| match std::fs::read_to_string(path) {
        Ok(text) => Ok(parse(&text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).tried_with(|| format!("cannot read {}", path.display())),
    };
    if let Some(host) = read(MACHINE_ID_FILE.as_ref())? {
        return Ok(host);
    }
    let path = state_directory.join(HOST_FILE);
    if let Some(host) = read(&path)? {
        return Ok(host);
    }
    let host = random()?;
    let text = format!("{:032x}\n", u128::from_be_bytes(host));
    durable_file::replace(&path, text.as_bytes())
        .tried_with(|| format!("cannot write {}", path.display()))?;
    Ok(host)
}

/// Bytes that nobody can guess, and that are nowhere else.
fn random<const BYTES: usize>() -> Result<[u8; BYTES], StartError> {
    let mut bytes = [0; BYTES];
    process::random_bytes(&mut bytes).tried("cannot get randomness from the kernel")?;
    Ok(bytes)
}

fn close(keeper: &Arc<IntentLogKeeper>, verifier: u64) {
    let was_off = keeper.phase() == Phase::Off;
    if keeper.is_unmade() {
        keeper.close(verifier);
    } else if keeper.close(verifier) {
        tracing::info!("the intent log is empty and closed");
    } else if was_off {
        tracing::warn!(
            "the intent log was off, and is not closed: the next start finds nothing to replay in it"
        );
    } else {
        tracing::warn!("the intent log is left as after a crash: the next start replays it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than anything here takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Flushes that take so long; how many there were.
    fn flushes(times_ms: &'static [u64]) -> usize {
        let (note, noted) = mpsc::channel();
        let mut times = times_ms.iter();
        let flush = move || {
            let _ = note.send(());
            times.next().map_or(Duration::ZERO, |ms| Duration::from_millis(*ms))
        };
        assert!(flush_within(PATIENCE, flush));
        noted.into_iter().count()
    }

    #[test]
    fn the_last_flush_is_repeated_while_it_takes_long_and_there_were_few() {
        assert_eq!(flushes(&[49]), 1);
        assert_eq!(flushes(&[50, 1]), 2);
        assert_eq!(flushes(&[10_000; 9]), 3);
    }

    #[test]
    fn a_disk_that_hangs_is_not_waited_for_and_not_flushed_again() {
        let (free, hangs) = mpsc::channel::<()>();
        let (note, noted) = mpsc::channel();
        let flush = move || {
            let _ = note.send(());
            // Until the other end is dropped.
            let _ = hangs.recv();
            Duration::from_secs(3600)
        };
        let begun = Instant::now();
        assert!(!flush_within(Duration::from_millis(10), flush));
        assert!(begun.elapsed() < PATIENCE);
        drop(free);
        // Its thread ends.
        assert_eq!(noted.into_iter().count(), 1);
    }
}
