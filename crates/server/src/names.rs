//! The name services of a running server, and the mounts that wait for them.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use steadfast_access::{Access, AccessSettings, Bounds};
use steadfast_catalog::configuration::NamesSettings;
use steadfast_engine::Engine;
use steadfast_shares::ShareId;

use crate::error::{StartError, Tried};

/// Mounts that were refused after a look-up, of a share, that are logged at a time.
const REFUSALS_TOLD_MAX: usize = 10;
/// In the state directory: what is known about names.
const FILE_NAME: &str = "names.json";
/// Between two looks at the mounts that wait, so that their patience ends.
const INTERVAL: Duration = Duration::from_secs(1);
/// Threads that execute them: so many shares may hang with their disks before mounts of others wait
/// for them.
const THREADS: usize = 8;
/// How long they are waited for at the end, and how often it is looked whether they have ended.
const JOIN_TIME: Duration = Duration::from_secs(5);
const JOIN_PAUSE: Duration = Duration::from_millis(2);

/// Starts name services as they are configured; `helper` asks the system's name service switch.
///
/// # Errors
/// When there can be no more threads or descriptors.
pub(crate) fn start(
    settings: &NamesSettings,
    helper: Option<Vec<OsString>>,
    state_directory: &Path,
) -> Result<Arc<Access>, StartError> {
    let settings = AccessSettings {
        helper,
        state_file: Some(state_directory.join(FILE_NAME)),
        ..access_settings(settings)
    };
    Access::start(&settings).tried("cannot start name services")
}

/// What is said of name services in the configuration, and what they do where nothing is said.
fn access_settings(names: &NamesSettings) -> AccessSettings {
    let default = AccessSettings::default();
    let or = |seconds: Option<u64>, default_ms| seconds.map_or(default_ms, |s| s * 1000);
    let ttl_min_ms = or(names.ttl_min_s, default.bounds.ttl_min_ms);
    let bounds = Bounds {
        ttl_min_ms,
        // One of both may be left out: the other is what was meant.
        ttl_max_ms: or(names.ttl_max_s, default.bounds.ttl_max_ms.max(ttl_min_ms)),
        stale_max_ms: or(names.stale_max_s, default.bounds.stale_max_ms),
        negative_ms: or(names.negative_s, default.bounds.negative_ms),
        entries_max: names.cache_entries_max.unwrap_or(default.bounds.entries_max),
        ..default.bounds
    };
    let bounds = Bounds { ttl_min_ms: bounds.ttl_min_ms.min(bounds.ttl_max_ms), ..bounds };
    AccessSettings {
        servers: names.servers.clone().unwrap_or_default(),
        hosts_file: names.hosts_file.as_ref().map_or(default.hosts_file, |path| path.value.clone()),
        netgroup_file: names
            .netgroup_file
            .as_ref()
            .map_or(default.netgroup_file, |path| path.value.clone()),
        timeout_ms: names.timeout_ms.unwrap_or(default.timeout_ms),
        bounds,
        helper: None,
        state_file: None,
    }
}

/// Name services, and the threads that execute mounts again once their names are known.
pub(crate) struct Names {
    access: Arc<Access>,
    retries: Arc<Retries>,
    threads: Vec<JoinHandle<()>>,
}

/// The mounts that are to be executed again. Those to one share are executed by one thread, in
/// their order, so that a share that hangs with its disk holds up one thread only.
#[derive(Default)]
struct Retries {
    state: Mutex<RetriesState>,
    bell: Condvar,
}

#[derive(Default)]
struct RetriesState {
    /// Whether something is known that was not.
    has_news: bool,
    is_stopping: bool,
    /// When the waiting mounts were last gone through.
    begun: Option<Instant>,
    /// Shares to which mounts are to be executed again, and those to which they are being executed.
    due: VecDeque<ShareId>,
    is_due: HashSet<ShareId>,
    busy: HashSet<ShareId>,
}

impl Names {
    /// Executes the engine's waiting mounts again whenever something is known about names.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(crate) fn start(access: Arc<Access>, engine: &Arc<Engine>) -> Result<Self, StartError> {
        let mut names = Self { access, retries: Arc::default(), threads: Vec::new() };
        let told = Arc::clone(&names.retries);
        names.access.on_news(Arc::new(move || {
            told.state.lock().has_news = true;
            told.bell.notify_one();
        }));
        for _ in 0..THREADS {
            let (retries, engine) = (Arc::clone(&names.retries), Arc::clone(engine));
            let retry = move || {
                retries.run(&|| engine.shares_with_waiting_mounts(), &|share| {
                    let complaints = engine.retry_waiting_mounts_to(share);
                    for (client, complaint) in complaints.iter().take(REFUSALS_TOLD_MAX) {
                        tracing::warn!("{client} {complaint}");
                    }
                });
            };
            let thread = std::thread::Builder::new().name("mounts".to_owned()).spawn(retry);
            match thread {
                Ok(thread) => names.threads.push(thread),
                Err(error) => {
                    names.retries.stop();
                    return Err(error).tried("cannot start a thread");
                }
            }
        }
        Ok(names)
    }

    pub(crate) fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// Keeps what is known, and ends. Who opens a share for a mount may still have its file system
    /// join the intent log, so that is waited for, but not for ever: a disk may hang.
    pub(crate) fn stop(&mut self) {
        self.retries.stop();
        self.access.stop();
        let begun = Instant::now();
        while !self.threads.iter().all(JoinHandle::is_finished) && begun.elapsed() < JOIN_TIME {
            std::thread::sleep(JOIN_PAUSE);
        }
        for thread in self.threads.drain(..).filter(JoinHandle::is_finished) {
            // A panic has been reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.stop();
        }
    }
}

impl Retries {
    /// Executes what `waiting` says, until it is to end.
    fn run(&self, waiting: &dyn Fn() -> Vec<ShareId>, retry: &dyn Fn(ShareId)) {
        while let Some(share) = self.next(waiting) {
            // Another thread for the shares that are due after this one.
            self.bell.notify_one();
            let retried = std::panic::catch_unwind(AssertUnwindSafe(|| retry(share)));
            if retried.is_err() {
                tracing::error!("a mount that waited for a name ended by a panic");
            }
            self.state.lock().busy.remove(&share);
        }
    }

    /// The next share to which mounts are to be executed again; `None` at the end.
    fn next(&self, waiting: &dyn Fn() -> Vec<ShareId>) -> Option<ShareId> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopping {
                return None;
            }
            // Also from time to time, so that their patience ends.
            if state.has_news || state.begun.is_none_or(|begun| begun.elapsed() >= INTERVAL) {
                state.has_news = false;
                state.begun = Some(Instant::now());
                for share in waiting() {
                    if state.is_due.insert(share) {
                        state.due.push_back(share);
                    }
                }
            }
            let free = state.due.iter().position(|share| !state.busy.contains(share));
            if let Some(share) = free.and_then(|place| state.due.remove(place)) {
                state.is_due.remove(&share);
                state.busy.insert(share);
                return Some(share);
            }
            self.bell.wait_for(&mut state, INTERVAL);
        }
    }

    fn stop(&self) {
        self.state.lock().is_stopping = true;
        self.bell.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_disk_that_hangs_holds_up_its_own_share_only() {
        let retries = Retries::default();
        let (hanging, other) = (ShareId(1), ShareId(2));
        let (release, hangs) = channel::<()>();
        let (retried, seen) = channel();
        let hangs = Mutex::new(hangs);
        let retry = |share| {
            if share == hanging {
                let _ = hangs.lock().recv();
            }
            let _ = retried.send(share);
            assert_ne!(share, other, "a panic ends no thread");
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| retries.run(&|| vec![hanging, other], &retry));
            }
            for _ in 0..3 {
                assert_eq!(seen.recv(), Ok(other));
                retries.state.lock().has_news = true;
                retries.bell.notify_all();
            }
            drop(release);
            while seen.recv() == Ok(other) {}
            retries.stop();
        });
    }
}
