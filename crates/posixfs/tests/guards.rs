//! Unit ring, on real file systems. Local processes and guarded files. Most need root.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use steadfast_posixfs::Tree;
use steadfast_vfs::{
    FileSystem, FsError, Guard, GuardKind, GuardListener, RangeLock, SetAttr, StorageHandle,
};
use support::{Place, User, is_root, mounted, places, plain};

const BREAK_TIME: &str = "/proc/sys/fs/lease-break-time";
/// Longer than anything takes that is to happen, and as long as it is looked whether nothing does.
const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(300);

/// The time in which leases are broken is all of the system's.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

struct Listener(Mutex<Sender<(u64, StorageHandle)>>);

impl GuardListener for Listener {
    fn guard_broken(&self, file_system: u64, object: &StorageHandle) {
        let _ = self.0.lock().unwrap().send((file_system, *object));
    }
}

/// A share with one file in it.
struct Share {
    tree: Tree,
    file: StorageHandle,
    listener: Arc<dyn GuardListener>,
    told: Receiver<(u64, StorageHandle)>,
}

impl Share {
    fn on(place: &Place) -> Self {
        std::fs::write(place.directory.join("f"), b"data").unwrap();
        let tree = support::open(&place.directory);
        let user = User::new(&tree, 0, 0);
        let file = user.lookup(&user.root(), "f").unwrap().handle;
        let (tells, told) = channel();
        Self { tree, file, listener: Arc::new(Listener(Mutex::new(tells))), told }
    }

    fn user(&self) -> User<'_> {
        User::new(&self.tree, 0, 0)
    }

    fn guard(&self, kind: GuardKind) -> Result<Box<dyn Guard>, FsError> {
        self.tree.guard(&self.file, kind, &self.listener)
    }

    fn is_told(&self) {
        assert_eq!(self.told.recv_timeout(LONG), Ok(self.tree.object(&self.file)));
    }

    fn is_not_told(&self) {
        assert_eq!(self.told.try_recv().ok(), None);
    }
}

/// A local process that does something to a file, which may wait.
struct Process {
    done: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Process {
    fn new(path: &Path, does: impl FnOnce(&Path) + Send + 'static) -> Self {
        let (ends, done) = channel();
        let path = path.to_owned();
        let thread = std::thread::spawn(move || {
            does(&path);
            let _ = ends.send(());
        });
        Self { done, thread }
    }

    fn waits(&self) {
        assert_eq!(self.done.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout));
    }

    fn goes_on(self) {
        assert_eq!(self.done.recv_timeout(LONG), Ok(()));
        self.thread.join().unwrap();
    }
}

fn writes(path: &Path) {
    OpenOptions::new().write(true).open(path).unwrap();
}

fn cuts(path: &Path) {
    OpenOptions::new().write(true).truncate(true).open(path).unwrap();
}

fn reads(path: &Path) {
    File::open(path).unwrap();
}

#[test]
fn who_writes_waits_until_the_guard_is_dropped() {
    let _turn = turn();
    for place in places() {
        println!("on {}", place.name);
        let share = Share::on(&place);
        let path = place.directory.join("f");
        for does in [writes as fn(&Path), cuts] {
            let guard = share.guard(GuardKind::Read).unwrap();
            assert_eq!(guard.kind(), GuardKind::Read);
            reads(&path);
            assert_eq!(share.user().read(&share.file, 0, 2).unwrap().0, b"da");
            assert!(!guard.is_broken());
            share.is_not_told();
            let process = Process::new(&path, does);
            share.is_told();
            assert!(guard.is_broken());
            process.waits();
            drop(guard);
            process.goes_on();
        }
        assert_eq!(share.user().attr(&share.file).unwrap().size, 0);
        share.is_not_told();
    }
}

#[test]
fn who_reads_waits_for_a_guard_of_a_file_that_is_written() {
    let _turn = turn();
    for place in places() {
        println!("on {}", place.name);
        let share = Share::on(&place);
        let path = place.directory.join("f");
        // Whatever the server had it open for.
        assert_eq!(share.user().read(&share.file, 0, 9).unwrap().0, b"data");
        let guard = share.guard(GuardKind::Write).unwrap();
        // The server itself reads and writes.
        assert_eq!(share.user().write(&share.file, 4, b" more"), Ok(5));
        assert_eq!(share.user().read(&share.file, 0, 99).unwrap().0, b"data more");
        assert!(!guard.is_broken());
        share.is_not_told();
        let process = Process::new(&path, reads);
        share.is_told();
        assert!(guard.is_broken());
        process.waits();
        assert_eq!(share.user().read(&share.file, 0, 99).unwrap().0, b"data more");
        drop(guard);
        process.goes_on();
        assert_eq!(share.user().read(&share.file, 0, 99).unwrap().0, b"data more");
        // Nothing of it is left: it may be executed, or guarded for reading.
        share.guard(GuardKind::Read).unwrap();
        share.is_not_told();
    }
}

#[test]
fn a_guard_is_not_to_be_had_while_somebody_has_the_file_open() {
    let _turn = turn();
    let place = plain();
    let share = Share::on(&place);
    let path = place.directory.join("f");
    let later = |kind| assert_eq!(share.guard(kind).err(), Some(FsError::TryLater));
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    later(GuardKind::Read);
    later(GuardKind::Write);
    drop(writer);
    let reader = File::open(&path).unwrap();
    later(GuardKind::Write);
    drop(share.guard(GuardKind::Read).unwrap());
    drop(reader);
    let guard = share.guard(GuardKind::Write).unwrap();
    later(GuardKind::Read);
    assert!(!guard.is_broken(), "one guard a file");
    drop(guard);
    let user = share.user();
    assert_eq!(
        share.tree.guard(&user.root(), GuardKind::Read, &share.listener).err(),
        Some(FsError::Invalid)
    );
    share.is_not_told();
}

#[test]
fn what_the_server_made_or_wrote_can_be_guarded() {
    let _turn = turn();
    let place = plain();
    let share = Share::on(&place);
    let user = share.user();
    let made = user.create(&user.root(), "made", 0o644).unwrap().handle;
    user.write(&made, 0, b"made").unwrap();
    let guard = share.tree.guard(&made, GuardKind::Read, &share.listener).unwrap();
    assert_eq!(user.read(&made, 0, 9).unwrap().0, b"made");
    assert!(!guard.is_broken());
    drop(guard);
    user.write(&share.file, 0, b"DATA").unwrap();
    assert!(!share.guard(GuardKind::Read).unwrap().is_broken());
    share.is_not_told();
}

/// What the server does to the file; whether it could.
type Does = fn(&Share) -> bool;

#[test]
fn a_guard_ends_before_the_server_itself_breaks_it() {
    let _turn = turn();
    let place = plain();
    let share = Share::on(&place);
    let user = share.user();
    let ways: [(GuardKind, Does); 4] = [
        (GuardKind::Read, |share| share.user().write(&share.file, 0, b"x") == Ok(1)),
        (GuardKind::Read, |share| {
            let set = SetAttr { size: Some(3), ..SetAttr::default() };
            share.user().set(&share.file, &set).result.is_ok()
        }),
        (GuardKind::Read, |share| share.tree.open_to_lock(&share.file, RangeLock::Write).is_ok()),
        (GuardKind::Write, |share| share.tree.open_to_lock(&share.file, RangeLock::Read).is_ok()),
    ];
    for (index, (kind, does)) in ways.into_iter().enumerate() {
        let guard = share.guard(kind).unwrap();
        assert!(does(&share), "way {index}");
        share.is_told();
        assert!(guard.is_broken(), "way {index}");
        drop(guard);
        // After a drop nobody is told.
        let guard = share.guard(kind).unwrap();
        drop(guard);
        assert!(does(&share), "way {index}");
        share.is_not_told();
    }
    assert_eq!(user.attr(&share.file).unwrap().size, 3);
}

#[test]
fn who_removes_or_renames_is_not_noticed() {
    let _turn = turn();
    let place = plain();
    let share = Share::on(&place);
    let guard = share.guard(GuardKind::Write).unwrap();
    let [path, moved] = ["f", "g"].map(|name| place.directory.join(name));
    std::fs::rename(&path, &moved).unwrap();
    std::fs::remove_file(&moved).unwrap();
    assert!(!guard.is_broken());
    share.is_not_told();
}

#[test]
fn who_waits_goes_on_when_the_time_is_over() {
    let _turn = turn();
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    let before = std::fs::read_to_string(BREAK_TIME).unwrap();
    std::fs::write(BREAK_TIME, "1").unwrap();
    let place = plain();
    let share = Share::on(&place);
    let guard = share.guard(GuardKind::Read).unwrap();
    let begun = Instant::now();
    let process = Process::new(&place.directory.join("f"), writes);
    share.is_told();
    process.goes_on();
    let took = begun.elapsed();
    std::fs::write(BREAK_TIME, before).unwrap();
    assert!(took >= Duration::from_millis(900), "{took:?}");
    assert!(guard.is_broken());
    drop(guard);
    drop(share.guard(GuardKind::Read).unwrap());
    share.is_not_told();
}

/// The objects of a share that is taken away are found by nobody, and would not know of their guards.
#[test]
fn a_guard_ends_with_its_tree_and_is_told() {
    let _turn = turn();
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    for kind in [GuardKind::Read, GuardKind::Write] {
        let place = plain();
        let Share { tree, file, listener, told } = Share::on(&place);
        let guard = tree.guard(&file, kind, &listener).unwrap();
        let object = tree.object(&file);
        drop(tree);
        assert_eq!(told.recv_timeout(LONG), Ok(object));
        assert!(guard.is_broken());
        Process::new(&place.directory.join("f"), writes).goes_on();
        drop(guard);
    }
}

#[test]
fn many_guards_are_told_each_of_its_own_file() {
    const FILES: usize = 100;
    let _turn = turn();
    let Some(place) = mounted("tmpfs", 64) else { return };
    let share = Share::on(&place);
    let user = share.user();
    let path = |index: usize| place.directory.join(format!("many-{index}"));
    let mut guards = Vec::new();
    for index in 0..FILES {
        std::fs::write(path(index), b"").unwrap();
        let file = user.lookup(&user.root(), &format!("many-{index}")).unwrap().handle;
        let guard = share.tree.guard(&file, GuardKind::Read, &share.listener).unwrap();
        guards.push((share.tree.object(&file), guard));
    }
    let processes: Vec<Process> =
        (0..FILES).step_by(2).map(|index| Process::new(&path(index), writes)).collect();
    for _ in &processes {
        let told = share.told.recv_timeout(LONG).unwrap();
        let at = guards.iter().position(|(object, _)| *object == told).unwrap();
        drop(guards.swap_remove(at));
    }
    for process in processes {
        process.goes_on();
    }
    assert!(guards.iter().all(|(_, guard)| !guard.is_broken()));
    share.is_not_told();
}
