//! Trees that are opened when a client first uses them.
//!
//! An open tree costs a handful of descriptors and a mount of its own. Of the thousands of shares
//! of a server most are in nobody's use: those are only looked at, so that a directory that is not
//! there is known at once, and that the one which is opened later is the one that was looked at.
//! When a server starts it serves before it has looked at all of them: then a client may come first.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode as Permissions, OFlags, StatxFlags};
use rustix::io::Errno;
use steadfast_sys::identity;
use steadfast_vfs::{FileKind, FileSystem, FlushDomain, FsError, StorageSource};

use crate::attributes::{self, Identity};
use crate::backing::Backing;
use crate::qgroup::Qgroup;
use crate::storage::Storage;
use crate::tree::{Expected, FoundBy, Mode, OpenError, SizePlace, Tree, TreeOptions};

/// What trees opened on use have in common.
pub struct TreeOpener {
    storage: Arc<Storage>,
    state_directory: PathBuf,
}

/// A directory that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookedAt {
    /// Without symbolic links.
    pub directory: PathBuf,
    /// Whose handles are the kernel's: what is served from it serves all users.
    pub mode: Mode,
    /// What it is on.
    pub backing: Backing,
    /// What can enforce a size of it, or why nothing can, if somebody has looked.
    pub qgroup: Option<Result<Qgroup, String>>,
    identity: Identity,
}

impl LookedAt {
    fn expected(&self) -> Expected {
        Expected { mode: self.mode, identity: self.identity }
    }

    /// Its device's and its own number, as [`directory_number`] has them.
    pub fn number(&self) -> (u64, u64) {
        (self.identity.device, self.identity.inode)
    }

    /// Whether both are one directory, whatever it is called.
    pub fn is_same_directory(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

/// A directory's device's and its own number; `None` if it cannot be looked at.
pub fn directory_number(directory: &Path) -> Option<(u64, u64)> {
    let at = rustix::fs::CWD;
    let stat = rustix::fs::statx(at, directory, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()?;
    let Identity { device, inode, .. } = attributes::identity(&stat);
    Some((device, inode))
}

/// A tree to be opened when it is first used.
pub struct TreeOnUse {
    opener: Arc<TreeOpener>,
    /// Its path, as the share was told to have it.
    directory: Arc<[u8]>,
    seen: OnceLock<Seen>,
    /// What it was on when it was looked at last, before the server was started.
    was_on: Option<Backing>,
    share_id: u64,
    crosses_mounts: bool,
    without_log: bool,
    size: SizePlace,
    tree: OnceLock<Box<Tree>>,
    /// Whether a client has used it since that was asked last.
    was_used: AtomicBool,
    /// Whether it takes the place of one that clients had used, and may again.
    is_after_idleness: bool,
    /// Whether it takes the place of one whose disk has failed.
    is_after_failure: bool,
    /// Held while it is opened, which may take as long as a disk hangs.
    opening: Mutex<()>,
    /// Why it could not be opened the last time. Never held for long: who manages asks for it.
    problem: Mutex<Option<Box<str>>>,
}

/// What was seen when a tree's directory was looked at.
struct Seen {
    /// The directory without symbolic links, if that is another path.
    elsewhere: Option<Box<Path>>,
    /// As the share's rules are for.
    expected: Expected,
}

impl TreeOpener {
    /// Opens trees of this storage. In the state directory handles are kept, where the kernel has
    /// none.
    pub fn new(storage: Arc<Storage>, state_directory: PathBuf) -> Arc<Self> {
        Arc::new(Self { storage, state_directory })
    }

    /// Gives back the memory of what was let go with trees. For after many of them.
    pub fn forget_gone(&self) {
        self.storage.cache.forget_gone();
        self.storage.orders.forget_gone();
    }

    /// Keeps those trees that can be closed and opened again without anybody noticing.
    pub fn retain_idle<K>(&self, trees: &mut Vec<(K, Arc<TreeOnUse>)>) {
        if trees.is_empty() {
            return;
        }
        let staying = self.storage.cache.trees_that_must_stay();
        trees.retain(|(_, tree)| tree.tree().is_some_and(|tree| tree.can_be_let_go(&staying)));
    }

    /// Looks at a directory: is there one, and can it be served?
    ///
    /// # Errors
    /// When it cannot be opened or is none, or when it cannot be told now how its objects could
    /// be found again.
    pub fn look(&self, directory: &Path) -> Result<LookedAt, OpenError> {
        let failed = |errno: Errno| OpenError::Open {
            directory: directory.to_owned(),
            source: errno.into(),
        };
        // Without the means to switch there is no caller's identity to switch back from.
        let _ = identity::assume_server();
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let open = rustix::fs::open(directory, flags, Permissions::empty()).map_err(failed)?;
        let stat = rustix::fs::statx(&open, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
            .map_err(failed)?;
        if attributes::kind(&stat) != FileKind::Directory {
            return Err(OpenError::NotDirectory(directory.to_owned()));
        }
        let identity = attributes::identity(&stat);
        // Asked of each directory: numbers of devices are given again to other file systems.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let readable =
            rustix::fs::openat(&open, c".", flags, Permissions::empty()).map_err(failed)?;
        let mode = FoundBy::of(&open, &readable).map_err(failed)?.mode();
        let directory = path_of(&open, directory)?;
        let backing = Backing::of(&readable, &directory, stat.stx_ino).map_err(failed)?;
        Ok(LookedAt { directory, mode, backing, qgroup: None, identity })
    }

    /// A tree of a directory that was looked at by this path. It is opened now if handles have to be kept in a
    /// store, which takes its time and may fail, else on its first use.
    ///
    /// # Errors
    /// When it was to be opened now and could not be.
    pub fn tree(
        self: &Arc<Self>,
        looked_at: &LookedAt,
        directory: Arc<[u8]>,
        share_id: u64,
        crosses_mounts: bool,
        without_log: bool,
    ) -> Result<TreeOnUse, OpenError> {
        let tree = self.tree_not_looked_at(directory, share_id, crosses_mounts, without_log);
        tree.see(looked_at);
        if looked_at.mode == Mode::StoredHandles {
            let opened = tree.open_now(looked_at.expected())?;
            tree.tree.get_or_init(|| Box::new(opened));
        }
        Ok(tree)
    }

    /// A tree of a directory that nobody has looked at yet: who uses it first does. Only for rules
    /// that are right whoever serves them, and the handles being the kernel's; if they are not, it
    /// is not opened. The directory's path may be kept elsewhere too, of fifteen thousand shares.
    pub fn tree_not_looked_at(
        self: &Arc<Self>,
        directory: Arc<[u8]>,
        share_id: u64,
        crosses_mounts: bool,
        without_log: bool,
    ) -> TreeOnUse {
        TreeOnUse {
            opener: Arc::clone(self),
            directory,
            seen: OnceLock::new(),
            was_on: None,
            share_id,
            crosses_mounts,
            without_log,
            size: SizePlace::default(),
            tree: OnceLock::new(),
            was_used: AtomicBool::new(false),
            is_after_idleness: false,
            is_after_failure: false,
            opening: Mutex::default(),
            problem: Mutex::default(),
        }
    }
}

/// The directory's path without symbolic links: as the kernel names it, which is one question
/// whatever its depth.
fn path_of(open: &OwnedFd, directory: &Path) -> Result<PathBuf, OpenError> {
    let link = format!("/proc/self/fd/{}", open.as_raw_fd());
    let named = rustix::fs::readlink(link, Vec::new()).map(std::ffi::CString::into_bytes);
    match named {
        // It was not removed meanwhile, nor is it above what this process may see.
        Ok(path) if path.starts_with(b"/") && !path.ends_with(b" (deleted)") => {
            Ok(PathBuf::from(std::ffi::OsString::from_vec(path)))
        }
        _ => std::fs::canonicalize(directory)
            .map_err(|source| OpenError::Open { directory: directory.to_owned(), source }),
    }
}

impl TreeOnUse {
    /// Another one of the same directory, in the place of this one whose disk has failed. It is
    /// opened when a client first uses it, if it is still the one that was looked at.
    #[must_use]
    pub fn after_failure(&self) -> Self {
        Self { is_after_failure: true, ..self.anew() }
    }

    /// As [`TreeOnUse::after_failure`], in the place of this one that nobody has used for a while.
    #[must_use]
    pub fn after_idleness(&self) -> Self {
        Self { is_after_idleness: true, ..self.anew() }
    }

    fn anew(&self) -> Self {
        let seen = OnceLock::new();
        if let Some(Seen { elsewhere, expected }) = self.seen.get() {
            let (elsewhere, expected) = (elsewhere.clone(), *expected);
            seen.get_or_init(|| Seen { elsewhere, expected });
        }
        Self {
            opener: Arc::clone(&self.opener),
            directory: Arc::clone(&self.directory),
            seen,
            was_on: self.was_on.clone(),
            share_id: self.share_id,
            crosses_mounts: self.crosses_mounts,
            without_log: self.without_log,
            size: self.size.clone(),
            tree: OnceLock::new(),
            was_used: AtomicBool::new(false),
            is_after_idleness: false,
            is_after_failure: false,
            opening: Mutex::default(),
            problem: Mutex::default(),
        }
    }

    /// The same, to be opened only on what its directory was on before. Who manages the share and
    /// has looked at it decides about that: see [`TreeOnUse::see`].
    #[must_use]
    pub fn expecting(self, was_on: Option<Backing>) -> Self {
        Self { was_on, ..self }
    }

    /// Notes what enforces the share's size from now on, also for who has it open.
    pub fn set_size(&self, qgroup: Option<Qgroup>) {
        self.size.set(qgroup);
    }

    /// Whether clients have used it, and may go on.
    pub fn has_users(&self) -> bool {
        self.is_after_idleness || self.tree().is_some()
    }

    /// Whether a client has used it since this was asked last.
    pub fn take_use(&self) -> bool {
        self.was_used.swap(false, Ordering::Relaxed)
    }

    /// The tree, if a client has used it or it had to be opened at once.
    pub fn tree(&self) -> Option<&Tree> {
        self.tree.get().map(|tree| &**tree)
    }

    /// Why the tree could not be opened when a client wanted to use it, or takes no changes, if so.
    pub fn problem(&self) -> Option<String> {
        let fault = || self.tree()?.fault();
        self.problem.lock().as_deref().map(str::to_owned).or_else(fault)
    }

    /// Whether it takes no changes, since its disk could not be flushed, or has yet to be opened
    /// again after that.
    pub fn has_failed(&self) -> bool {
        self.tree().map_or(self.is_after_failure, |tree| tree.fault().is_some())
    }

    /// The share's directory; without symbolic links, once it was looked at.
    pub fn directory(&self) -> &Path {
        let elsewhere = self.seen.get().and_then(|seen| seen.elsewhere.as_deref());
        elsewhere.unwrap_or(self.asked())
    }

    fn asked(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.directory))
    }

    /// Its file system's device, once it was looked at.
    pub fn device(&self) -> Option<u64> {
        self.seen.get().map(|seen| seen.expected.identity.device)
    }

    /// Whose handles it has, once it was looked at.
    pub fn mode(&self) -> Option<Mode> {
        self.seen.get().map(|seen| seen.expected.mode)
    }

    /// Notes what was seen just now, if nobody had looked at its directory before. Whether it is
    /// the directory that was seen then.
    pub fn see(&self, looked_at: &LookedAt) -> bool {
        let seen = self.seen.get_or_init(|| {
            let is_elsewhere = *looked_at.directory != *self.asked();
            let elsewhere = is_elsewhere.then(|| looked_at.directory.as_path().into());
            Seen { elsewhere, expected: looked_at.expected() }
        });
        seen.expected == looked_at.expected() && *self.directory() == *looked_at.directory
    }

    /// Told once, though every call of its clients tries again.
    fn note(&self, error: &OpenError) {
        let text = error.to_string();
        let mut problem = self.problem.lock();
        if problem.as_deref() != Some(&*text) {
            tracing::error!("a share that clients want to use cannot be: {text}");
            *problem = Some(text.into());
        }
    }

    /// Opens the tree for a client; `None` if it is not to be opened by one.
    fn open_for_client(&self) -> Result<Option<Tree>, OpenError> {
        if self.seen.get().is_none() {
            let looked_at = self.opener.look(self.asked())?;
            if let Some(was) = self.was_on.as_ref().filter(|was| !was.is_still(&looked_at.backing))
            {
                return Err(OpenError::Elsewhere {
                    directory: self.asked().to_owned(),
                    was: was.mount.to_string(),
                    is: looked_at.backing.mount.to_string(),
                });
            }
            self.see(&looked_at);
        }
        let Some(seen) = self.seen.get() else { return Ok(None) };
        // Who manages the share sees it too, and has other rules for it.
        if seen.expected.mode == Mode::StoredHandles {
            return Ok(None);
        }
        self.open_now(seen.expected).map(Some)
    }

    fn open_now(&self, expected: Expected) -> Result<Tree, OpenError> {
        let options = TreeOptions {
            share_id: self.share_id,
            crosses_mounts: self.crosses_mounts,
            without_log: self.without_log,
            state_directory: Some(self.opener.state_directory.clone()),
            size: self.size.clone(),
        };
        Tree::open_as(Some(expected), self.directory(), &options, &self.opener.storage)
    }
}

impl StorageSource for TreeOnUse {
    fn opened(&self) -> Option<&dyn FileSystem> {
        let tree = self.tree.get()?;
        // Not written with every call: others read it.
        if !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
        Some(&**tree)
    }

    fn open(&self) -> Result<&dyn FileSystem, FsError> {
        let _alone = self.opening.lock();
        if self.tree.get().is_none() {
            match self.open_for_client() {
                Ok(Some(tree)) => {
                    self.tree.get_or_init(|| Box::new(tree));
                    *self.problem.lock() = None;
                }
                // Its rules have to be other ones first.
                Ok(None) => {}
                // Who manages the share looks at it next, and tells.
                Err(error) if self.seen.get().is_none() => {
                    *self.problem.lock() = Some(error.to_string().into());
                }
                Err(error) => self.note(&error),
            }
        }
        self.opened().ok_or(FsError::TryLater)
    }

    fn expected_domain(&self) -> Option<FlushDomain> {
        Some(self.opener.storage.domain(self.device()?))
    }

    fn file_system(&self) -> Option<u64> {
        self.device()
    }
}

impl std::fmt::Debug for TreeOnUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TreeOnUse").field("directory", &self.directory()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::StorageOptions;

    fn opener(place: &Path) -> Arc<TreeOpener> {
        TreeOpener::new(Storage::new(StorageOptions::default()), place.join("state"))
    }

    fn bytes(path: &Path) -> Arc<[u8]> {
        path.as_os_str().as_bytes().into()
    }

    #[test]
    fn a_tree_is_opened_by_its_first_use() {
        let place = tempfile::tempdir().expect("a directory");
        let opener = opener(place.path());
        let looked_at = opener.look(place.path()).expect("looked at");
        let tree =
            opener.tree(&looked_at, bytes(&looked_at.directory), 1, false, false).expect("a tree");
        if looked_at.mode == Mode::KernelHandles {
            assert!(tree.opened().is_none() && tree.tree().is_none());
        }
        let inode = std::os::unix::fs::MetadataExt::ino(&place.path().metadata().expect("there"));
        assert_eq!(tree.open().expect("opened").root().expect("a root").attr.fileid, inode);
        assert!(tree.opened().is_some() && tree.problem().is_none());
    }

    #[test]
    fn another_directory_than_was_looked_at_is_not_served() {
        let place = tempfile::tempdir().expect("a directory");
        let (share, elsewhere) = (place.path().join("share"), place.path().join("elsewhere"));
        std::fs::create_dir(&share).expect("made");
        let opener = opener(place.path());
        let looked_at = opener.look(&share).expect("looked at");
        if looked_at.mode == Mode::StoredHandles {
            println!("skipped: needs the kernel's file handles");
            return;
        }
        let tree =
            opener.tree(&looked_at, bytes(&looked_at.directory), 1, false, false).expect("a tree");
        std::fs::rename(&share, &elsewhere).expect("moved");
        assert_eq!(tree.open().err(), Some(FsError::TryLater));
        assert!(tree.problem().expect("told").contains("cannot open"));
        std::fs::create_dir(&share).expect("made");
        assert_eq!(tree.open().err(), Some(FsError::TryLater));
        assert!(tree.problem().expect("told").contains("another directory"));
        // The one that was looked at is back.
        std::fs::remove_dir(&share).expect("removed");
        std::fs::rename(&elsewhere, &share).expect("moved");
        assert!(tree.open().is_ok());
        assert_eq!(tree.problem(), None);
    }

    #[test]
    fn a_directory_is_looked_at_by_who_comes_first() {
        let place = tempfile::tempdir().expect("a directory");
        let (share, link) = (place.path().join("share"), place.path().join("link"));
        std::fs::create_dir(&share).expect("made");
        std::os::unix::fs::symlink(&share, &link).expect("linked");
        let opener = opener(place.path());
        let looked_at = opener.look(&link).expect("looked at");
        if looked_at.mode == Mode::StoredHandles {
            println!("skipped: needs the kernel's file handles");
            return;
        }
        // A client.
        let tree = opener.tree_not_looked_at(bytes(&link), 1, false, false);
        assert_eq!((tree.directory(), tree.device(), tree.mode()), (&*link, None, None));
        assert!(tree.open().is_ok());
        assert_eq!((tree.directory(), tree.mode()), (&*looked_at.directory, Some(looked_at.mode)));
        assert!(tree.see(&looked_at));
        // Who manages it.
        let tree = opener.tree_not_looked_at(bytes(&link), 1, false, false);
        assert!(tree.see(&looked_at) && tree.tree().is_none());
        std::fs::remove_file(&link).expect("removed");
        std::fs::create_dir(&link).expect("made");
        assert!(!tree.see(&opener.look(&link).expect("looked at")));
        // It is the one that was looked at.
        assert!(tree.open().is_ok());
        let number =
            |path: &Path| std::os::unix::fs::MetadataExt::ino(&path.metadata().expect("there"));
        assert_eq!(
            tree.open().expect("opened").root().expect("a root").attr.fileid,
            number(&share)
        );
        // What is not there cannot be used.
        let tree = opener.tree_not_looked_at(bytes(&place.path().join("none")), 1, false, false);
        assert_eq!(tree.open().err(), Some(FsError::TryLater));
        assert!(tree.problem().expect("told").contains("none"));
    }

    #[test]
    fn a_tree_of_another_mode_than_was_looked_at_is_not_served() {
        let place = tempfile::tempdir().expect("a directory");
        let opener = opener(place.path());
        let mut looked_at = opener.look(place.path()).expect("looked at");
        if looked_at.mode == Mode::StoredHandles {
            println!("skipped: needs the kernel's file handles");
            return;
        }
        looked_at.mode = Mode::StoredHandles;
        let refused = opener.tree(&looked_at, bytes(&looked_at.directory), 1, false, false);
        assert!(matches!(refused, Err(OpenError::OtherMode(_))));
        // Its rules might not be for that.
        let tree = opener.tree_not_looked_at(bytes(place.path()), 1, false, false);
        assert!(tree.see(&looked_at));
        assert_eq!(tree.open().err(), Some(FsError::TryLater));
        assert!(tree.tree().is_none());
    }

    #[test]
    fn who_asks_for_the_problem_does_not_wait_for_who_opens() {
        let place = tempfile::tempdir().expect("a directory");
        let opener = opener(place.path());
        let looked_at = opener.look(place.path()).expect("looked at");
        let tree =
            opener.tree(&looked_at, bytes(&looked_at.directory), 1, false, false).expect("a tree");
        let _hangs = tree.opening.lock();
        assert_eq!(tree.problem(), None);
    }

    #[test]
    fn what_is_no_directory_is_told_when_it_is_looked_at() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("file");
        std::fs::write(&file, b"").expect("written");
        let opener = opener(place.path());
        assert!(matches!(opener.look(&file), Err(OpenError::NotDirectory(_))));
        assert!(matches!(opener.look(&place.path().join("none")), Err(OpenError::Open { .. })));
        let link = place.path().join("link");
        std::os::unix::fs::symlink(place.path(), &link).expect("linked");
        let canonical = place.path().canonicalize().expect("canonical");
        assert_eq!(opener.look(&link).expect("looked at").directory, canonical);
    }

    #[test]
    fn a_tree_is_not_closed_under_an_object_that_is_pinned() {
        let place = tempfile::tempdir().expect("a directory");
        let share = place.path().join("share");
        std::fs::create_dir_all(share.join("below")).expect("made");
        let opener = opener(place.path());
        let looked_at = opener.look(&share).expect("looked at");
        if looked_at.mode == Mode::StoredHandles {
            println!("skipped: a tree with a store of handles is not closed");
            return;
        }
        let directory = bytes(&looked_at.directory);
        let tree = Arc::new(opener.tree(&looked_at, directory, 1, false, false).expect("a tree"));
        tree.open().expect("opened");
        let opened = tree.tree().expect("opened");
        let may_be_closed = || {
            let mut trees = vec![((), Arc::clone(&tree))];
            opener.retain_idle(&mut trees);
            trees.len() == 1
        };
        assert!(may_be_closed());
        let pin = opened.child(opened.root_node(), b"below").expect("there").0;
        assert!(!may_be_closed());
        let pin: crate::node::NodePin<crate::pins::Guard> = pin.now_for();
        assert!(!may_be_closed());
        // The root is the tree's own, and may be pinned besides.
        let root: crate::node::NodePin = opened.root_node().pin();
        drop(pin);
        assert!(!may_be_closed());
        drop(root);
        assert!(may_be_closed());
    }
}
