//! The file systems that are served with the log, and the locks of registering and flushing them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use steadfast_vfs::FileSystemSync;

use super::served::Served;

/// Between two messages of the same.
const TELL_AGAIN: Duration = Duration::from_secs(30);

/// File systems by the log's numbers (`index`).
///
/// An index stands for the same file system as long as the caller holds [`FileSystems::registering`] or
/// [`FileSystems::flushing`]: a file system gets its index with the first held, and loses it with both
/// held. `registering` is taken before `flushing`.
#[derive(Default)]
pub(super) struct FileSystems {
    served: Mutex<Served>,
    /// Held while a file system is registered or removed.
    registering: Mutex<()>,
    /// Held from a flush until its outcome is noted: the kernel reports lost data once.
    flushing: Mutex<()>,
    /// Why a path is not served, and when that was logged last.
    refusals: Mutex<HashMap<Vec<u8>, (String, Instant)>>,
}

impl FileSystems {
    /// Waits until no other thread registers or removes a file system.
    pub(super) fn registering(&self) -> MutexGuard<'_, ()> {
        self.registering.lock()
    }

    /// The same, if that is so now.
    pub(super) fn try_registering(&self) -> Option<MutexGuard<'_, ()>> {
        self.registering.try_lock()
    }

    /// Waits until no other thread flushes a file system. To be held until the flush's outcome is noted.
    pub(super) fn flushing(&self) -> MutexGuard<'_, ()> {
        self.flushing.lock()
    }

    /// Another user of a mount.
    pub(super) fn join(&self, index: u32, mount: u64, sync: Arc<dyn FileSystemSync>) {
        self.served.lock().join(index, mount, sync);
    }

    /// One user less. `true` if the file system has no user any more: it is removed soon.
    pub(super) fn leave(&self, index: u32, mount: u64) -> bool {
        self.served.lock().leave(index, mount)
    }

    /// Those without a user.
    pub(super) fn left(&self) -> Vec<u32> {
        self.served.lock().left()
    }

    /// Removes one. The caller holds `registering` and `flushing`.
    pub(super) fn remove(&self, index: u32) {
        self.served.lock().remove(index);
    }

    /// Which they are.
    pub(super) fn indices(&self) -> Vec<u32> {
        self.served.lock().indices()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.served.lock().is_empty()
    }

    /// Flushes this file system; `None` if it is not served.
    pub(super) fn sync_of(&self, index: u32) -> Option<Arc<dyn FileSystemSync>> {
        self.served.lock().sync_of(index)
    }

    /// One for each mount of this file system.
    pub(super) fn all_syncs_of(&self, index: u32) -> Vec<Arc<dyn FileSystemSync>> {
        self.served.lock().all_syncs_of(index)
    }

    /// One for each file system.
    pub(super) fn syncs(&self) -> Vec<Arc<dyn FileSystemSync>> {
        self.served.lock().syncs()
    }

    /// Notes why a path is not served. `true` if the caller has to log it: the same reason is logged only
    /// every 30 s, since every client that wants the path asks.
    pub(super) fn is_refusal_news(&self, path: &[u8], why: &str, now: Instant) -> bool {
        let mut told = self.refusals.lock();
        told.retain(|_, (_, moment)| now.duration_since(*moment) < TELL_AGAIN);
        let is_news = told.get(path).is_none_or(|(known, _)| *known != why);
        if is_news {
            told.insert(path.to_vec(), (why.to_owned(), now));
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use super::*;

    #[test]
    fn why_a_path_is_not_served_is_told_once_in_a_while() {
        let (file_systems, now) = (FileSystems::default(), Instant::now());
        let is_news =
            |path: &str, why, now| file_systems.is_refusal_news(path.as_bytes(), why, now);
        assert!(is_news("/a", "full", now) && !is_news("/a", "full", now));
        assert!(is_news("/b", "full", now) && is_news("/a", "gone", now));
        assert!(!is_news("/a", "gone", now + TELL_AGAIN / 2));
        assert!(is_news("/a", "gone", now + TELL_AGAIN));
    }
}
