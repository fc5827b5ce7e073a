//! The file systems that are served with a log, and what flushes each of them.

use std::collections::HashMap;
use std::sync::Arc;

use steadfast_vfs::FileSystemSync;

/// One mount of a file system.
struct Mount {
    number: u64,
    /// How many shares' parts use it.
    users: usize,
    sync: Arc<dyn FileSystemSync>,
}

/// By the log's index.
#[derive(Default)]
pub(super) struct Served(HashMap<u32, Vec<Mount>>);

impl Served {
    /// Another user of a mount.
    pub(super) fn join(&mut self, index: u32, number: u64, sync: Arc<dyn FileSystemSync>) {
        let mounts = self.0.entry(index).or_default();
        match mounts.iter_mut().find(|mount| mount.number == number) {
            Some(mount) => mount.users += 1,
            None => mounts.push(Mount { number, users: 1, sync }),
        }
        // One that was kept for a last flush is not needed for it now.
        mounts.retain(|mount| mount.users > 0);
    }

    /// A user less. `true` if nobody uses the file system any more: then its last mount is kept,
    /// since it is yet to be flushed.
    pub(super) fn leave(&mut self, index: u32, number: u64) -> bool {
        let Some(mounts) = self.0.get_mut(&index) else { return false };
        if let Some(mount) = mounts.iter_mut().find(|mount| mount.number == number) {
            mount.users = mount.users.saturating_sub(1);
        }
        if mounts.iter().all(|mount| mount.users == 0) {
            mounts.truncate(1);
            return true;
        }
        mounts.retain(|mount| mount.users > 0);
        false
    }

    /// What flushes a file system, whichever of its mounts was changed through.
    pub(super) fn sync_of(&self, index: u32) -> Option<Arc<dyn FileSystemSync>> {
        self.0.get(&index).and_then(|mounts| mounts.first()).map(|mount| Arc::clone(&mount.sync))
    }

    /// What flushes a file system through each of its mounts.
    pub(super) fn all_syncs_of(&self, index: u32) -> Vec<Arc<dyn FileSystemSync>> {
        let mounts = self.0.get(&index).map(Vec::as_slice).unwrap_or_default();
        mounts.iter().map(|mount| Arc::clone(&mount.sync)).collect()
    }

    /// What flushes all of them.
    pub(super) fn syncs(&self) -> Vec<Arc<dyn FileSystemSync>> {
        self.0.keys().filter_map(|index| self.sync_of(*index)).collect()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Which they are.
    pub(super) fn indices(&self) -> Vec<u32> {
        self.0.keys().copied().collect()
    }

    /// Those that nobody uses.
    pub(super) fn left(&self) -> Vec<u32> {
        let is_left = |mounts: &[Mount]| mounts.iter().all(|mount| mount.users == 0);
        self.0.iter().filter(|(_, mounts)| is_left(mounts)).map(|(index, _)| *index).collect()
    }

    /// Lets go of one.
    pub(super) fn remove(&mut self, index: u32) {
        self.0.remove(&index);
    }
}

#[cfg(test)]
mod tests {
    use steadfast_vfs::FsError;

    use super::*;

    struct Nothing;

    impl FileSystemSync for Nothing {
        fn sync(&self) -> Result<(), FsError> {
            Ok(())
        }

        fn try_writing(&self) -> Result<(), FsError> {
            Ok(())
        }
    }

    #[test]
    fn a_mount_is_held_while_it_is_used_and_the_last_one_until_it_is_flushed() {
        let mut served = Served::default();
        let syncs: Vec<Arc<dyn FileSystemSync>> =
            (0..3).map(|_| Arc::new(Nothing) as Arc<dyn FileSystemSync>).collect();
        let is_held = |at: usize| Arc::strong_count(&syncs[at]) > 1;
        served.join(0, 10, Arc::clone(&syncs[0]));
        served.join(0, 10, Arc::clone(&syncs[1]));
        assert!(is_held(0) && !is_held(1), "one a mount is enough");
        served.join(0, 11, Arc::clone(&syncs[2]));
        assert!(!served.leave(0, 10) && is_held(0));
        assert!(!served.leave(0, 10) && !is_held(0), "another mount flushes it");
        assert!(Arc::ptr_eq(&served.sync_of(0).unwrap(), &syncs[2]));
        assert!(served.left().is_empty());
        assert!(served.leave(0, 11) && is_held(2));
        assert_eq!(served.left(), [0]);
        assert_eq!(served.syncs().len(), 1);
        // Back before it was flushed.
        served.join(0, 10, Arc::clone(&syncs[0]));
        assert!(served.left().is_empty() && is_held(0) && !is_held(2));
        assert!(served.leave(0, 10));
        served.remove(0);
        assert!(!is_held(0) && served.sync_of(0).is_none());
        assert!(!served.leave(0, 10));
    }
}
