//! Whether new clients can still mount while others keep the server busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Walk;
use crate::drive::Transport;
use crate::preparing::Preparer;
use crate::setup::Target;
use crate::version::NfsVersion;

/// Mounts that were tried while a load ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Mounts {
    /// That succeeded: connect, MNT, connect, FSINFO, GETATTR; over NFSv4 connect, `EXCHANGE_ID`,
    /// `CREATE_SESSION`, `RECLAIM_COMPLETE`, the LOOKUPs of the path, GETATTR.
    pub succeeded: u64,
    /// That failed.
    pub failed: u64,
    /// The mean of those that succeeded, in milliseconds.
    pub mean_ms: f64,
    /// The slowest of all.
    pub max_ms: f64,
}

/// A thread that mounts the share again and again.
pub(super) struct Probe {
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<Mounts>>,
}

impl Probe {
    pub(super) fn start(walk: &Walk) -> Self {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (target, nfs) = (walk.target.clone(), walk.nfs);
        let (path, every) = (walk.path.clone(), walk.mount_every);
        let stopping = Arc::clone(&is_stopping);
        let thread = (!every.is_zero()).then(|| {
            std::thread::spawn(move || {
                let (mut mounts, mut sum_ms) = (Mounts::default(), 0.0);
                let mut next = Instant::now() + every;
                while !stopping.load(Ordering::Relaxed) {
                    if Instant::now() < next {
                        std::thread::sleep(Duration::from_millis(5));
                        continue;
                    }
                    next = Instant::now() + every;
                    let (has_succeeded, took) = mount(&target, nfs, &path);
                    let took_ms = took.as_secs_f64() * 1e3;
                    mounts.max_ms = mounts.max_ms.max(took_ms);
                    if has_succeeded {
                        mounts.succeeded += 1;
                        sum_ms += took_ms;
                    } else {
                        mounts.failed += 1;
                    }
                }
                mounts.mean_ms = sum_ms / mounts.succeeded.max(1) as f64;
                mounts
            })
        });
        Self { is_stopping, thread }
    }

    /// Ends it; what a thread that panicked saw is not known.
    pub(super) fn stop(self) -> Mounts {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

/// Mounts once: whether that succeeded, and how long it took, without what ends a client of NFSv4.
fn mount(target: &Target, nfs: NfsVersion, path: &str) -> (bool, Duration) {
    let started = Instant::now();
    if nfs.is_4() {
        let Ok((mut client, share)) = Preparer::mount(target, nfs, path) else {
            return (false, started.elapsed());
        };
        let has_succeeded = client.limits(&share, Transport::Tcp).is_ok();
        let took = started.elapsed();
        return (client.end().is_ok() && has_succeeded, took);
    }
    let has_succeeded = target.mount(path).is_ok_and(|(mut client, root)| {
        client.fsinfo(&root).is_ok() && client.getattr(&root).is_ok()
    });
    (has_succeeded, started.elapsed())
}
