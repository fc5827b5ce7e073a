//! Watches the directories whose subdirectories become shares by themselves, so that one that
//! appears is served at once and one that is gone is not.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

/// Between two looks at all of them: for directories that were not there to be watched, and
/// file systems that tell nobody what others do to them.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
const EVENT_BYTES: usize = 16 << 10;
/// What changes which directories there are, and the end of the watched one itself.
const WATCHED: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Called with the directories in which something may have changed.
pub(crate) type OnChange = Box<dyn Fn(&BTreeSet<PathBuf>) + Send>;

/// A thread that watches directories until it is dropped.
pub(crate) struct DirectoryWatch {
    shared: Arc<Watched>,
    thread: Option<JoinHandle<()>>,
}

struct Watched {
    inotify: OwnedFd,
    /// Wakes the thread, to end.
    stop: OwnedFd,
    parents: Mutex<Parents>,
}

#[derive(Default)]
struct Parents {
    wanted: BTreeSet<PathBuf>,
    /// By the kernel's number of the watch.
    watched: HashMap<i32, PathBuf>,
}

impl DirectoryWatch {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// When the kernel has no more of what it takes, or there can be no thread.
    pub(crate) fn start(on_change: OnChange) -> io::Result<Self> {
        let shared = Arc::new(Watched {
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            stop: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            parents: Mutex::default(),
        });
        let watching = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("directories".to_owned())
            .spawn(move || watching.watch(&on_change))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Watches these from now on, and no others. What is in them now is for the caller to see,
    /// after this.
    pub(crate) fn set(&self, wanted: BTreeSet<PathBuf>) {
        let mut parents = self.shared.parents.lock();
        parents.wanted = wanted;
        self.shared.adjust(&mut parents);
    }
}

impl Drop for DirectoryWatch {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.shared.stop, &[1; 8]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Watched {
    /// Makes the kernel's watches those that are wanted. Those whose directory is not there are
    /// tried again later.
    fn adjust(&self, parents: &mut Parents) {
        let Parents { wanted, watched } = parents;
        watched.retain(|number, path| {
            let is_wanted = wanted.contains(path);
            if !is_wanted {
                let _ = inotify::remove_watch(&self.inotify, *number);
            }
            is_wanted
        });
        for path in wanted.iter() {
            match inotify::add_watch(&self.inotify, path, WATCHED) {
                // The number that it has already, if it is watched and still the same directory.
                Ok(number) => {
                    watched.retain(|other, known| known != path || *other == number);
                    watched.insert(number, path.clone());
                }
                Err(Errno::NOENT | Errno::NOTDIR) => watched.retain(|_, known| known != path),
                Err(error) => tracing::warn!(
                    "{}: cannot be watched ({error}): directories that appear there are seen \
                     after {} s",
                    path.display(),
                    LOOK_AGAIN.as_secs()
                ),
            }
        }
    }

    fn watch(&self, on_change: &OnChange) {
        // It becomes ready whenever something is mounted or unmounted (proc(5)).
        let mounts = File::open("/proc/self/mountinfo").ok();
        // Whatever happens meanwhile: what nobody tells of is not put off by what is told.
        let mut look_again_at = Instant::now() + LOOK_AGAIN;
        loop {
            let mut ready = vec![
                PollFd::new(&self.stop, PollFlags::IN),
                PollFd::new(&self.inotify, PollFlags::IN),
            ];
            ready.extend(mounts.as_ref().map(|mounts| PollFd::new(mounts, PollFlags::PRI)));
            let left = look_again_at.saturating_duration_since(Instant::now());
            let time = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut ready, Some(&time)) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!("directories are not watched any more: {error}");
                    return;
                }
            }
            let is_ready =
                |index: usize| ready.get(index).is_some_and(|ready| !ready.revents().is_empty());
            if is_ready(0) {
                return;
            }
            let looks_at_all = is_ready(2) || Instant::now() >= look_again_at;
            drop(ready);
            if looks_at_all {
                look_again_at = Instant::now() + LOOK_AGAIN;
            }
            let changed = self.changed(looks_at_all);
            if !changed.is_empty() {
                on_change(&changed);
            }
        }
    }

    /// The directories in which something has changed, as far as that is known.
    fn changed(&self, looks_at_all: bool) -> BTreeSet<PathBuf> {
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut parents = self.parents.lock();
        let mut changed = BTreeSet::new();
        let mut is_all = looks_at_all;
        while let Ok(event) = reader.next() {
            use inotify::ReadFlags;
            let flags = event.events();
            if flags.intersects(
                ReadFlags::QUEUE_OVERFLOW | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF,
            ) {
                is_all = true;
            }
            if flags.contains(ReadFlags::IGNORED) {
                parents.watched.remove(&event.wd());
            } else if flags.contains(ReadFlags::ISDIR) {
                changed.extend(parents.watched.get(&event.wd()).cloned());
            }
        }
        if is_all {
            self.adjust(&mut parents);
            return parents.wanted.clone();
        }
        changed
    }
}

/// The directories in a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Subdirectories {
    /// Their names.
    pub(crate) names: Vec<String>,
    /// Names that are not UTF-8: no share can be called so.
    pub(crate) left_out: Vec<OsString>,
}

/// The directories in a directory. With `is_mounted`, only those where another file system or subvolume
/// begins. Symbolic links are left out: clients that may write there could make one to anywhere.
///
/// # Errors
/// When the directory cannot be read.
pub(crate) fn subdirectories(parent: &Path, is_mounted: bool) -> io::Result<Subdirectories> {
    use std::os::unix::fs::MetadataExt;
    let device = parent.metadata()?.dev();
    let mut found = Subdirectories::default();
    for entry in parent.read_dir()? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        // One that is just being removed is none.
        if is_mounted && !entry.metadata().is_ok_and(|metadata| metadata.dev() != device) {
            continue;
        }
        match entry.file_name().into_string() {
            Ok(name) => found.names.push(name),
            Err(name) => found.left_out.push(name),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;
    use std::sync::mpsc::channel;

    use super::*;

    /// For what is bound to happen; only a failed test waits for it.
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn directories_that_come_and_go_are_told() {
        let place = tempfile::tempdir().expect("a directory");
        let (home, other) = (place.path().join("home"), place.path().join("other"));
        for directory in [&home, &other] {
            std::fs::create_dir(directory).expect("made");
        }
        let (sender, receiver) = channel();
        let watch = DirectoryWatch::start(Box::new(move |changed| {
            let _ = sender.send(changed.clone());
        }))
        .expect("started");
        watch.set([home.clone(), other.clone()].into());
        let next = || receiver.recv_timeout(LONG).expect("told");
        std::fs::create_dir(home.join("ann")).expect("made");
        assert_eq!(next(), [home.clone()].into());
        std::fs::rename(home.join("ann"), home.join("bob")).expect("renamed");
        assert_eq!(next(), [home.clone()].into());
        // What is no directory is nobody's business.
        std::fs::write(home.join("file"), b"").expect("written");
        std::fs::create_dir(other.join("x")).expect("made");
        let told = next();
        let told = if told == [home.clone()].into() { next() } else { told };
        assert_eq!(told, [other.clone()].into());
        // One that is not wanted any more tells nothing.
        watch.set([home.clone()].into());
        std::fs::create_dir(other.join("y")).expect("made");
        std::fs::remove_dir(home.join("bob")).expect("removed");
        assert_eq!(next(), [home.clone()].into());
        // It is replaced by another one.
        std::fs::rename(&home, place.path().join("old")).expect("renamed");
        std::fs::create_dir(&home).expect("made");
        assert_eq!(next(), [home.clone()].into());
    }

    #[test]
    fn only_directories_are_subdirectories() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path();
        std::fs::create_dir(path.join("a")).expect("made");
        std::fs::write(path.join("file"), b"").expect("written");
        std::os::unix::fs::symlink("a", path.join("link")).expect("linked");
        std::os::unix::fs::symlink("file", path.join("file-link")).expect("linked");
        std::os::unix::fs::symlink("nothing", path.join("dangling")).expect("linked");
        let bad = OsString::from_vec(b"bad\xff".to_vec());
        std::fs::create_dir(path.join(&bad)).expect("made");
        std::fs::write(path.join(OsString::from_vec(b"file\xff".to_vec())), b"").expect("written");
        let found = subdirectories(path, false).expect("read");
        assert_eq!(found.names, ["a"], "a link may lead anywhere");
        assert_eq!(found.left_out, [bad], "told, and not shared");
        assert_eq!(subdirectories(path, true).expect("read"), Subdirectories::default());
        let root = subdirectories(Path::new("/"), true).expect("read");
        assert!(root.names.iter().any(|name| name == "proc"), "{root:?}");
        assert!(subdirectories(&path.join("none"), false).is_err());
    }
}
