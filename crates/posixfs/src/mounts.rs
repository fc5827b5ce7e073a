//! The mounts of a tree that crosses mount points.
//!
//! A handle names the mount it is in by a number made of the mount point's path beneath the
//! share, which is the same after a restart. What is mounted where is asked of the kernel
//! (`/proc/self/mountinfo`) only when a mount is met, or a handle of one, that is not known yet.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustix::fs::{Mode as Permissions, OFlags};
use steadfast_recovery::LoggedFileSystem;
use steadfast_vfs::{FsError, Waiting};

use crate::aliases::AliasStore;
use crate::attributes;
use crate::error::from_errno;
use crate::mount_lines::{MountLine, mount_lines};
use crate::volume::{Mount, stable_hash};

/// Mounts beneath one share, so that nothing grows without bound.
const MOUNTS_MAX: usize = 10_000;

pub(crate) struct Mounts {
    /// The share's directory as the kernel names it.
    share: Arc<Path>,
    /// Read with calls, and seldom changed.
    table: ArcSwap<Vec<Known>>,
    changing: Mutex<()>,
    aliases: Arc<AliasStore>,
    /// Makes the numbers; another one in tests.
    hash: fn(&[&[u8]]) -> u64,
}

/// A mount that was met, and where it is mounted.
#[derive(Clone)]
struct Known {
    point: Arc<Path>,
    mount: Arc<Mount>,
    /// Of it, and of those passed on the way from the share's directory to it.
    points: Arc<[PathBuf]>,
}

impl Mounts {
    pub(crate) fn new(share: &Path, root: Arc<Mount>, aliases: Arc<AliasStore>) -> Self {
        let share: Arc<Path> = share.into();
        let root = Known { point: Arc::clone(&share), mount: root, points: Arc::default() };
        let table = ArcSwap::from_pointee(vec![root]);
        Self { share, table, changing: Mutex::default(), aliases, hash: stable_hash }
    }

    /// Whether one of them is of the file system that the log knows by this number, though nothing of
    /// it may have been used yet.
    pub(crate) fn reach(&self, file_system: LoggedFileSystem) -> bool {
        self.table.load().iter().any(|known| known.mount.aliases.is_of(file_system))
    }

    /// Whether objects of their file systems were let go with data not flushed.
    pub(crate) fn have_let_go(&self) -> bool {
        self.table.load().iter().any(|known| known.mount.let_go() > 0)
    }

    /// The share's directory.
    pub(crate) fn share(&self) -> &Path {
        &self.share
    }

    /// Where the mount with this number in handles is, and those on the way to it are.
    pub(crate) fn look_at_points(
        &self,
        id: u32,
        crosses: bool,
        waiting: Waiting,
        look: &mut dyn FnMut(&[PathBuf]),
    ) -> Result<(), FsError> {
        let mut look_if_known = || {
            let table = self.table.load();
            let known = table.iter().find(|known| known.mount.id == id);
            known.map(|known| look(&known.points))
        };
        if look_if_known().is_some() {
            return Ok(());
        }
        if waiting == Waiting::Never {
            return Err(FsError::WouldOpen);
        }
        self.numbered(id, crosses)?;
        look_if_known().ok_or(FsError::Stale)
    }

    /// The mount with this number in handles.
    pub(crate) fn numbered(&self, id: u32, crosses: bool) -> Result<Arc<Mount>, FsError> {
        if let Some(known) = self.table.load().iter().find(|known| known.mount.id == id) {
            return Ok(Arc::clone(&known.mount));
        }
        if !crosses {
            return Err(FsError::Stale);
        }
        let lines = mount_lines()?;
        // The last one mounted on a point is the one that is seen.
        let line = lines.iter().rfind(|line| self.number(&line.point) == Some(id));
        self.add(line.ok_or(FsError::Stale)?, &lines)
    }

    /// The mount with this number in the kernel.
    pub(crate) fn of_kernel(&self, kernel_id: u64) -> Result<Arc<Mount>, FsError> {
        let is_it = |known: &&Known| known.mount.kernel_id == kernel_id;
        if let Some(known) = self.table.load().iter().find(is_it) {
            return Ok(Arc::clone(&known.mount));
        }
        let lines = mount_lines()?;
        let line = lines.iter().find(|line| line.kernel_id == kernel_id);
        self.add(line.ok_or(FsError::AccessDenied)?, &lines)
    }

    /// The number of a mount point beneath the share; 0 is the share's own.
    fn number(&self, point: &Path) -> Option<u32> {
        let beneath = point.strip_prefix(&self.share).ok()?;
        if beneath.as_os_str().is_empty() {
            return None;
        }
        Some(((self.hash)(&[b"mount", beneath.as_os_str().as_bytes()]) as u32).max(1))
    }

    /// The mount points on the way from the share's directory to this one, which is the first of them.
    fn passed(&self, point: &Path, lines: &[MountLine]) -> Arc<[PathBuf]> {
        let is_mounted = |path: &&Path| lines.iter().any(|line| line.point == *path);
        let way = point.ancestors().take_while(|path| **path != *self.share);
        way.filter(is_mounted).map(Path::to_path_buf).collect()
    }

    /// Refuses a number that belongs to two mount points: it does not tell whose handle it is in.
    fn require_unique(&self, id: u32, point: &Path, lines: &[MountLine]) -> Result<(), FsError> {
        let table = self.table.load();
        let known = table.iter().filter(|known| known.mount.id == id).map(|known| &*known.point);
        let mounted =
            lines.iter().map(|line| &*line.point).filter(|point| self.number(point) == Some(id));
        let Some(other) = known.chain(mounted).find(|other| *other != point) else {
            return Ok(());
        };
        tracing::error!(
            "{} and {} cannot be told apart in handles: one must be mounted elsewhere, or not be \
             shared",
            point.display(),
            other.display()
        );
        Err(FsError::TryLater)
    }

    /// Adds the mount of a line, one of `lines`.
    fn add(&self, line: &MountLine, lines: &[MountLine]) -> Result<Arc<Mount>, FsError> {
        let id = self.number(&line.point).ok_or(FsError::AccessDenied)?;
        self.require_unique(id, &line.point, lines)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path =
            rustix::fs::open(&line.point, flags, Permissions::empty()).map_err(from_errno)?;
        if attributes::stat_with_mount(&path)?.stx_mnt_id != line.kernel_id {
            // Something else was mounted over it meanwhile.
            return Err(FsError::TryLater);
        }
        let mount = Arc::new(Mount::new(id, line.kernel_id, &path, &self.aliases, &line.point)?);
        let _alone = self.changing.lock();
        let mut table = Vec::clone(&self.table.load());
        if let Some(known) = table.iter().find(|known| known.mount.kernel_id == mount.kernel_id) {
            return Ok(Arc::clone(&known.mount));
        }
        // Another thread may have met the other of two that cannot be told apart.
        if table.iter().any(|known| known.mount.id == id && *known.point != *line.point) {
            return Err(FsError::TryLater);
        }
        // What was mounted on the same point before has gone.
        table.retain(|known| known.mount.id != id);
        if table.len() >= MOUNTS_MAX {
            return Err(FsError::TryLater);
        }
        let point = line.point.as_path().into();
        let points = self.passed(&line.point, lines);
        table.push(Known { point, mount: Arc::clone(&mount), points });
        self.table.store(Arc::new(table));
        Ok(mount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two mount points whose numbers are the same are not served, in whatever order they are
    /// met: the number in a handle would not tell which of them it is of.
    #[test]
    fn mounts_with_the_same_number_are_refused() {
        let open = |point: &str| {
            rustix::fs::open(point, OFlags::PATH | OFlags::CLOEXEC, Permissions::empty()).unwrap()
        };
        let mounts = |hash| {
            let root = open("/");
            let kernel_id = attributes::stat_with_mount(&root).unwrap().stx_mnt_id;
            let aliases = Arc::new(AliasStore::default());
            let root = Arc::new(Mount::new(0, kernel_id, &root, &aliases, "/".as_ref()).unwrap());
            Mounts { hash, ..Mounts::new(Path::new("/"), root, aliases) }
        };
        let [one, other] =
            ["/proc", "/sys"].map(|at| attributes::stat_with_mount(open(at)).unwrap().stx_mnt_id);
        let apart = mounts(stable_hash);
        if apart.of_kernel(one).is_err() || apart.of_kernel(other).is_err() {
            println!("skipped: no mounts to look at");
            return;
        }
        let id = apart.of_kernel(one).unwrap().id;
        assert_eq!(mounts(stable_hash).numbered(id, true).unwrap().kernel_id, one);
        let together = mounts(|_| 7);
        assert_eq!(together.of_kernel(one).err(), Some(FsError::TryLater));
        assert_eq!(together.of_kernel(other).err(), Some(FsError::TryLater));
        assert_eq!(together.numbered(7, true).err(), Some(FsError::TryLater));
        // One that is known already keeps the number, and the other does not get it.
        let together = mounts(|_| 7);
        let lines = mount_lines().unwrap();
        let line = |id| lines.iter().find(|line| line.kernel_id == id).unwrap();
        together.add(line(one), &[]).unwrap();
        assert_eq!(together.add(line(other), &[]).err(), Some(FsError::TryLater));
        assert_eq!(together.numbered(7, true).unwrap().kernel_id, one);
    }
}
