//! Unit ring, on real file systems. Changes of `async` callers: nobody waits for them, and what
//! others are promised holds in spite of that.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use steadfast_posixfs::{Storage, StorageOptions, Tree, TreeOptions};
use steadfast_recovery::{
    Action, AttributesUnderWay, Change, ChangeLog, FileSystemIdentity, LogPlace, LoggedFileSystem,
};
use steadfast_vfs::{
    Caller, CreateHow, Durable, FileSystem, FileSystemSync, Flush, FsError, LogRecord,
    LoggedChange, Obligation, ReplyBarrier, SetAttr, StorageHandle, WriteHow,
};
use support::{Place, User, mounted, name, with_mode};

/// A log that keeps what its records are about.
#[derive(Default)]
struct Told {
    next: AtomicU64,
    records: Mutex<Vec<&'static str>>,
}

struct TellingPlace(Arc<Told>, u64, &'static str);

impl LogPlace for TellingPlace {
    fn note_under_way(&mut self, _: &FileSystemIdentity, _: &AttributesUnderWay) {}

    fn take(&mut self) {
        self.1 = self.0.next.fetch_add(1, Ordering::SeqCst) + 1;
    }

    fn put(mut self: Box<Self>, change: Vec<u8>) -> LoggedChange {
        self.2 = match Change::decode(&change).unwrap().0.action {
            Action::Make { .. } => "make",
            Action::Write { .. } => "write",
            Action::Touched { .. } => "touched",
            Action::Settled { .. } => "settled",
            Action::Attributes { .. } => "attributes",
            _ => "other",
        };
        LoggedChange::new(self)
    }
}

impl LogRecord for TellingPlace {
    fn fill(self: Box<Self>, append: &mut dyn FnMut(&mut Vec<u8>)) -> u64 {
        append(&mut Vec::new());
        self.0.records.lock().unwrap().push(self.2);
        self.1
    }
}

struct Log(Arc<Told>);

impl ChangeLog for Log {
    fn prepare(&self, _: &FileSystemIdentity, _: &[u8]) -> Result<bool, FsError> {
        Ok(false)
    }

    fn register(
        &self,
        _: &FileSystemIdentity,
        _: &[u8],
        _: u64,
        _: Arc<dyn FileSystemSync>,
    ) -> Result<Option<LoggedFileSystem>, FsError> {
        Ok(Some(LoggedFileSystem(3)))
    }

    fn leave(&self, _: LoggedFileSystem, _: u64) {}

    fn admit(&self, _: LoggedFileSystem, _: usize) -> Result<Option<Box<dyn LogPlace>>, FsError> {
        Ok(Some(Box::new(TellingPlace(Arc::clone(&self.0), 0, ""))))
    }

    fn takes_write(&self, bytes: usize, _: bool) -> bool {
        bytes <= 1000
    }

    fn is_in_use(&self) -> bool {
        true
    }

    fn last(&self) -> u64 {
        self.0.next.load(Ordering::SeqCst)
    }

    fn fault(&self, _: LoggedFileSystem) -> Option<String> {
        None
    }

    fn has_failed(&self, _: &FileSystemIdentity) -> bool {
        false
    }

    fn note_loss(&self) {}

    fn note(&self, place: Box<dyn LogPlace>, change: &Change<'_>) -> Result<(), FsError> {
        let mut record = Vec::new();
        change.encode(&mut record);
        drop(place.put(record));
        Ok(())
    }
}

impl Told {
    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.records.lock().unwrap())
    }
}

fn places() -> Vec<Place> {
    let places = [("ext4", 64), ("xfs", 320), ("btrfs", 128)];
    places.into_iter().filter_map(|(name, size)| mounted(name, size)).collect()
}

fn storage(is_logged: bool) -> (Arc<Storage>, Arc<Told>) {
    let told = Arc::new(Told::default());
    let log = Arc::new(Log(Arc::clone(&told))) as Arc<dyn ChangeLog>;
    let options = StorageOptions { descriptors_max: 1000 };
    (Storage::with_log(options, is_logged.then_some(log), None), told)
}

fn open(place: &Place, storage: &Arc<Storage>, share_id: u64) -> Tree {
    let options = TreeOptions { share_id, ..TreeOptions::default() };
    Tree::open(&place.directory, &options, storage).unwrap()
}

/// How a change becomes stable.
#[derive(Debug, PartialEq, Eq)]
enum Awaited {
    Nothing,
    Log,
    /// A flush of that many objects.
    Objects(usize),
    /// A flush of the whole file system.
    All,
}

fn settle<T>(durable: Durable<T>) -> (T, Awaited) {
    let (value, obligation) = durable.release(&ReplyBarrier::for_engine());
    let awaited = match obligation {
        None => Awaited::Nothing,
        Some(Obligation::Flush(Flush { targets, .. })) => {
            targets.iter().for_each(|(target, what)| target.flush(*what).unwrap());
            match targets.as_slice() {
                [(target, _)] if target.flush_key() == u64::MAX => Awaited::All,
                targets => Awaited::Objects(targets.len()),
            }
        }
        Some(Obligation::Log(logged)) => {
            logged.fill(|_| {});
            Awaited::Log
        }
    };
    (value, awaited)
}

fn make_directory(tree: &Tree, caller: &Caller<'_>, text: &str) -> (StorageHandle, Awaited) {
    let root = tree.root().unwrap().handle;
    let made = tree.make_directory(caller, &root, name(text), &with_mode(0o755));
    let (made, awaited) = settle(made);
    (made.result.unwrap().handle, awaited)
}

fn create(
    tree: &Tree,
    caller: &Caller<'_>,
    dir: &StorageHandle,
    text: &str,
) -> (StorageHandle, Awaited) {
    let how = CreateHow::Guarded(with_mode(0o644));
    let (made, awaited) = settle(tree.create(caller, dir, name(text), &how));
    (made.result.unwrap().handle, awaited)
}

fn write(
    tree: &Tree,
    caller: &Caller<'_>,
    file: &StorageHandle,
    bytes: usize,
    how: WriteHow,
) -> (WriteHow, Awaited) {
    let (written, awaited) = settle(tree.write(caller, file, 0, &vec![7; bytes], how));
    (written.result.unwrap().committed, awaited)
}

#[test]
fn nothing_of_an_async_caller_is_logged_or_waited_for() {
    for (place, is_logged) in places().iter().flat_map(|place| [(place, true), (place, false)]) {
        let (storage, told) = storage(is_logged);
        let tree = open(place, &storage, 7);
        let user = User::new(&tree, 0, 0);
        let caller = Caller { is_async: true, ..user.caller() };
        let suffix = if is_logged { "logged" } else { "flushed" };
        let (dir, awaited) = make_directory(&tree, &caller, &format!("d-{suffix}"));
        assert_eq!(awaited, Awaited::Nothing, "{}", place.name);
        let (file, awaited) = create(&tree, &caller, &dir, "f");
        assert_eq!(awaited, Awaited::Nothing);
        for (bytes, how) in [
            (10, WriteHow::FileSync),
            (100_000, WriteHow::DataSync),
            (10, WriteHow::Unstable),
            (100_000, WriteHow::FileSync),
        ] {
            // As the kernel's server: what was asked for is told.
            assert_eq!(write(&tree, &caller, &file, bytes, how), (how, Awaited::Nothing));
        }
        let nothing = |awaited: Awaited| assert_eq!(awaited, Awaited::Nothing);
        nothing(settle(tree.commit(&caller, &file, 0, 0)).1);
        let size = SetAttr { size: Some(3), ..SetAttr::default() };
        nothing(settle(tree.set_attributes(&caller, &file, &size, None)).1);
        nothing(settle(tree.link(&caller, &file, &dir, name("g"))).1);
        nothing(settle(tree.make_symlink(&caller, &dir, name("s"), b"t", &SetAttr::default())).1);
        nothing(settle(tree.rename(&caller, &dir, name("g"), &dir, name("h"))).1);
        nothing(settle(tree.remove(&caller, &dir, name("h"))).1);
        nothing(settle(tree.remove(&caller, &dir, name("none"))).1);
        nothing(settle(tree.allocate(&caller, &file, 0, 8192)).1);
        nothing(settle(tree.remove(&caller, &dir, name("s"))).1);
        assert!(told.take().is_empty());
        assert_eq!(user.attr(&file).unwrap().size, 8192);
    }
}

#[test]
fn what_is_promised_has_what_it_depends_on_flushed() {
    for place in places() {
        let (storage, told) = storage(true);
        // Two shares of one file system.
        let (tree, other) = (open(&place, &storage, 7), open(&place, &storage, 8));
        let user = User::new(&tree, 0, 0);
        let caller = user.caller();
        let lax = Caller { is_async: true, ..caller };
        let (dir, awaited) = make_directory(&other, &lax, "d");
        assert_eq!(awaited, Awaited::Nothing);
        let dir = tree
            .lookup(&caller, &tree.root().unwrap().handle, name("d"))
            .result
            .map_or(dir, |e| e.handle);
        let (file, awaited) = create(&tree, &caller, &dir, "f");
        assert_eq!(awaited, Awaited::All, "{}", place.name);
        assert_eq!(told.take(), ["settled"]);
        // Then all is stable.
        let (_, awaited) = create(&tree, &caller, &dir, "g");
        assert_eq!((awaited, told.take()), (Awaited::Log, vec!["make"]));
        // Where there are records, others follow them, and nobody waits.
        let sync = WriteHow::FileSync;
        assert_eq!(write(&tree, &lax, &file, 10, sync), (sync, Awaited::Nothing));
        assert_eq!(told.take(), ["write"]);
        let (_, awaited) = create(&tree, &lax, &dir, "h");
        assert_eq!((awaited, told.take()), (Awaited::Nothing, vec!["make"]));
        let (_, awaited) = create(&tree, &caller, &dir, "i");
        assert_eq!((awaited, told.take()), (Awaited::Log, vec!["make"]), "it is behind them");
        // Not what the log does not take: it is told of it, and the next promise flushes all.
        assert_eq!(write(&tree, &lax, &file, 100_000, sync), (sync, Awaited::Nothing));
        assert_eq!(told.take(), ["touched"]);
        let unstable = WriteHow::Unstable;
        assert_eq!(write(&tree, &caller, &file, 10, unstable), (unstable, Awaited::Nothing));
        assert_eq!(told.take(), ["touched"], "records of the file are in the log");
        let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
        assert_eq!(settle(tree.set_attributes(&caller, &file, &set, None)).1, Awaited::All);
        assert_eq!(told.take(), ["touched", "settled"]);
        // Logged, and nobody waits, but who commits.
        let (_, awaited) = create(&tree, &caller, &dir, "j");
        assert_eq!((awaited, told.take()), (Awaited::Log, vec!["make"]));
        assert_eq!(write(&tree, &lax, &file, 10, sync), (sync, Awaited::Nothing));
        assert_eq!(told.take(), ["write"]);
        assert_ne!(settle(tree.commit(&caller, &file, 0, 0)).1, Awaited::Nothing);
        told.take();
        assert_eq!(write(&tree, &lax, &file, 100_000, sync), (sync, Awaited::Nothing));
        assert_eq!(told.take(), ["touched"]);
        assert_eq!(settle(tree.commit(&caller, &file, 0, 0)).1, Awaited::All);
        assert_eq!(told.take(), ["settled"]);
        // All records are settled: nothing is to be followed.
        let (_, awaited) = create(&tree, &lax, &dir, "k");
        assert_eq!((awaited, told.take()), (Awaited::Nothing, vec![]));
        assert_eq!(write(&tree, &caller, &file, 100_000, sync), (sync, Awaited::All));
    }
}

#[test]
fn without_a_log_the_whole_is_flushed_once() {
    for place in places() {
        let (storage, _) = storage(false);
        let tree = open(&place, &storage, 7);
        let user = User::new(&tree, 0, 0);
        let caller = user.caller();
        let lax = Caller { is_async: true, ..caller };
        let (dir, _) = make_directory(&tree, &lax, "d");
        assert_eq!(create(&tree, &caller, &dir, "f").1, Awaited::All, "{}", place.name);
        assert!(matches!(create(&tree, &caller, &dir, "g").1, Awaited::Objects(_)));
    }
}

/// What a power cut would leave of a file system now: its disk, mounted elsewhere.
fn after_power_cut(place: &Place, look: impl FnOnce(&std::path::Path)) {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    std::fs::copy(place.directory.with_file_name("image"), &image).unwrap();
    let point = directory.path().join("mounted");
    std::fs::create_dir(&point).unwrap();
    // XFS refuses the UUID of what is mounted.
    let options = if place.name == "xfs" { "loop,nouuid" } else { "loop" };
    let mounted = Command::new("mount").args(["-o", options]).arg(&image).arg(&point).status();
    assert!(mounted.unwrap().success());
    look(&point);
    assert!(Command::new("umount").arg(&point).status().unwrap().success());
}

/// A file that a client was promised is there after a power cut, though the directory is one that an
/// `async` client made just before, which has no record.
#[test]
fn what_was_promised_is_there_after_a_power_cut() {
    // Two of one btrfs cannot be mounted at once.
    for place in [mounted("ext4", 64), mounted("xfs", 320)].into_iter().flatten() {
        let (storage, told) = storage(true);
        let tree = open(&place, &storage, 7);
        let user = User::new(&tree, 0, 0);
        let caller = user.caller();
        let lax = Caller { is_async: true, ..caller };
        let (first, _) = make_directory(&tree, &lax, "first");
        after_power_cut(&place, |left| {
            assert!(
                !left.join("first").exists(),
                "{}: nothing sees what is not stable",
                place.name
            );
        });
        let (file, _) = create(&tree, &lax, &first, "moved");
        assert_eq!(write(&tree, &lax, &file, 10, WriteHow::FileSync).1, Awaited::Nothing);
        let (_, awaited) = create(&tree, &caller, &first, "promised");
        assert_eq!(awaited, Awaited::All);
        let root = tree.root().unwrap().handle;
        settle(tree.rename(&lax, &root, name("first"), &root, name("second")));
        let (_, awaited) = settle(tree.rename(&caller, &first, name("moved"), &root, name("kept")));
        assert_eq!(awaited, Awaited::All);
        after_power_cut(&place, |left| {
            assert!(left.join("second/promised").exists());
            assert_eq!(std::fs::read(left.join("kept")).unwrap(), [7; 10]);
        });
        assert!(told.take().iter().all(|record| *record == "settled"));
    }
}

/// Whoever made it, and however it was acknowledged.
#[test]
fn all_that_was_acknowledged_is_there_after_a_sync() {
    for (is_logged, kind, size) in
        [(true, "ext4", 64), (false, "ext4", 64), (true, "xfs", 320), (false, "xfs", 320)]
    {
        let Some(place) = mounted(kind, size) else { continue };
        let (storage, told) = storage(is_logged);
        // Two shares of one file system.
        let (tree, other) = (open(&place, &storage, 7), open(&place, &storage, 8));
        let user = User::new(&tree, 0, 0);
        let caller = user.caller();
        let lax = Caller { is_async: true, ..caller };
        let (dir, _) = make_directory(&tree, &lax, "d");
        let (file, _) = create(&tree, &lax, &dir, "lax");
        assert_eq!(write(&tree, &lax, &file, 10, WriteHow::FileSync).1, Awaited::Nothing);
        let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
        assert_eq!(settle(tree.set_attributes(&lax, &file, &set, None)).1, Awaited::Nothing);
        let root = other.root().unwrap().handle;
        let (found, _) = create(&other, &lax, &root, "unstable");
        let unstable = write(&other, &caller, &found, 100_000, WriteHow::Unstable);
        assert_eq!(unstable, (WriteHow::Unstable, Awaited::Nothing));
        after_power_cut(&place, |left| {
            assert!(!left.join("d").exists() && !left.join("unstable").exists(), "{kind}");
        });
        told.take();
        let (result, awaited) = settle(other.sync(&lax, &root));
        assert_eq!((result, awaited), (Ok(()), Awaited::All), "{kind}");
        assert_eq!(told.take(), if is_logged { vec!["settled"] } else { vec![] });
        after_power_cut(&place, |left| {
            assert_eq!(std::fs::read(left.join("d/lax")).unwrap(), [7; 10]);
            let mode = std::fs::metadata(left.join("d/lax")).unwrap().permissions();
            assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o640);
            assert_eq!(std::fs::read(left.join("unstable")).unwrap(), vec![7; 100_000]);
        });
        // It ends the state in which promises need a flush of the whole.
        assert_ne!(create(&tree, &caller, &dir, "promised").1, Awaited::All);
        // Though nothing is known that is dirty.
        assert_eq!(settle(tree.sync(&caller, &dir)), (Ok(()), Awaited::All));
        settle(tree.remove(&caller, &root, name("unstable")));
        assert_eq!(settle(other.sync(&caller, &found)), (Err(FsError::Stale), Awaited::Nothing));
    }
}
