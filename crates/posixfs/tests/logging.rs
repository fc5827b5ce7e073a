//! Unit ring, on real file systems. What storage tells the intent log of each operation, on every file system that can be had.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use steadfast_posixfs::{Storage, StorageOptions, Tree, TreeOptions};
use steadfast_recovery::{
    Action, AttributesUnderWay, Change, ChangeLog, FileSystemIdentity, LogPlace, LoggedFileSystem,
    Settled,
};
use steadfast_vfs::{
    CreateHow, Durable, FilePlace, FileSystem, FileSystemSync, FsError, LogRecord, LoggedChange,
    Name, SetAttr, SetTime, SetXattrHow, Time, WriteHow,
};
use support::{Place, User, mounted, name, settle, settle_counting, with_mode};

/// A log that keeps all it is told, in the order in which places were taken.
#[derive(Default)]
struct Told {
    next: AtomicU64,
    records: Mutex<Vec<(u64, usize, Vec<u8>)>>,
    is_refusing: std::sync::atomic::AtomicBool,
    users: AtomicU64,
    /// Done when the last LSN is asked for next.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// What was noted to be under way.
    under_way: Mutex<Vec<String>>,
    sync: Mutex<Option<Arc<dyn FileSystemSync>>>,
}

struct TellingPlace {
    told: Arc<Told>,
    bytes_max: usize,
    lsn: u64,
    record: Vec<u8>,
}

impl LogPlace for TellingPlace {
    fn note_under_way(&mut self, _: &FileSystemIdentity, under_way: &AttributesUnderWay) {
        assert_eq!(self.lsn, 0, "too late");
        let AttributesUnderWay { before, wanted, size, is_permitted, .. } = under_way;
        self.told.under_way.lock().unwrap().push(format!(
            "size {} to {size:?}, owner {} to {}, mode {:o} to {:o}, permitted {is_permitted}",
            before.size, before.uid, wanted.uid, before.mode, wanted.mode
        ));
    }

    fn take(&mut self) {
        assert_eq!(self.lsn, 0, "taken twice");
        self.lsn = self.told.next.fetch_add(1, Ordering::SeqCst) + 1;
    }

    fn put(mut self: Box<Self>, change: Vec<u8>) -> LoggedChange {
        assert_ne!(self.lsn, 0, "filled before it was taken");
        self.record = change;
        LoggedChange::new(self)
    }
}

impl LogRecord for TellingPlace {
    fn fill(mut self: Box<Self>, append: &mut dyn FnMut(&mut Vec<u8>)) -> u64 {
        append(&mut self.record);
        self.told.records.lock().unwrap().push((self.lsn, self.bytes_max, self.record));
        self.lsn
    }
}

struct Log(Arc<Told>);

impl ChangeLog for Log {
    fn prepare(&self, _identity: &FileSystemIdentity, _path: &[u8]) -> Result<bool, FsError> {
        Ok(false)
    }

    fn register(
        &self,
        _identity: &FileSystemIdentity,
        _path: &[u8],
        _mount: u64,
        sync: Arc<dyn FileSystemSync>,
    ) -> Result<Option<LoggedFileSystem>, FsError> {
        sync.sync()?;
        *self.0.sync.lock().unwrap() = Some(sync);
        self.0.users.fetch_add(1, Ordering::SeqCst);
        Ok(Some(LoggedFileSystem(3)))
    }

    fn leave(&self, file_system: LoggedFileSystem, _mount: u64) {
        assert_eq!(file_system, LoggedFileSystem(3));
        self.0.users.fetch_sub(1, Ordering::SeqCst);
    }

    fn admit(
        &self,
        file_system: LoggedFileSystem,
        bytes_max: usize,
    ) -> Result<Option<Box<dyn LogPlace>>, FsError> {
        assert_eq!(file_system, LoggedFileSystem(3));
        if self.0.is_refusing.load(Ordering::SeqCst) {
            return Err(FsError::TryLater);
        }
        let told = Arc::clone(&self.0);
        Ok(Some(Box::new(TellingPlace { told, bytes_max, lsn: 0, record: Vec::new() })))
    }

    fn takes_write(&self, bytes: usize, is_stable: bool) -> bool {
        bytes <= if is_stable { 100_000 } else { 1000 }
    }

    fn is_in_use(&self) -> bool {
        true
    }

    fn last(&self) -> u64 {
        let last = self.0.next.load(Ordering::SeqCst);
        let meanwhile = self.0.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        last
    }

    fn fault(&self, _file_system: LoggedFileSystem) -> Option<String> {
        None
    }

    fn has_failed(&self, _identity: &FileSystemIdentity) -> bool {
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

fn places() -> Vec<Place> {
    let places = [("ext4", 64), ("xfs", 320), ("btrfs", 128)];
    places.into_iter().filter_map(|(name, size)| mounted(name, size)).collect()
}

fn open(place: &Place, without_log: bool) -> (Tree, Arc<Told>) {
    let told = Arc::new(Told::default());
    let log = Arc::new(Log(Arc::clone(&told)));
    let options = StorageOptions { descriptors_max: 1000 };
    let storage = Storage::with_log(options, Some(log), None);
    let options = TreeOptions { share_id: 7, without_log, ..TreeOptions::default() };
    (Tree::open(&place.directory, &options, &storage).unwrap(), told)
}

impl Told {
    /// The records since last asked, each shown without keys; that no record is larger than was
    /// admitted is checked.
    fn take(&self) -> Vec<String> {
        let mut records = std::mem::take(&mut *self.records.lock().unwrap());
        records.sort_by_key(|(lsn, ..)| *lsn);
        let show = |(_, bytes_max, record): &(u64, usize, Vec<u8>)| {
            let (change, rest) = Change::decode(record).unwrap();
            assert!(rest.is_empty() || rest == b"reply");
            assert!(record.len() - rest.len() <= *bytes_max);
            let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
            let behind = |gap: Option<u64>| gap.map_or(String::new(), |at| format!(" behind {at}"));
            let before = if change.before.is_some() { ", before told" } else { "" };
            let what = match change.action {
                Action::Nothing => "nothing".to_owned(),
                Action::Write { offset, data, gap, .. } => {
                    format!("write {} at {offset}{}", data.len(), behind(gap))
                }
                Action::Attributes { size, gap, .. } => {
                    format!("attributes, size {size:?}{}", behind(gap))
                }
                Action::Acls { .. } => "acls".to_owned(),
                Action::Make { place, target, object } => {
                    let attr = change.attr_of(&object).unwrap();
                    let target = text(target);
                    format!("make {:?} {} {:o} {target:?}", attr.kind, text(place.name), attr.mode)
                }
                Action::Remove { place, unlinked } => {
                    format!("remove {}, left {}{before}", text(place.name), unlinked.is_left)
                }
                Action::Rename { from, to, victim, .. } => {
                    let (from, to) = (text(from.name), text(to.name));
                    format!("rename {from} {to}, victim {:?}{before}", victim.map(|v| v.is_left))
                }
                Action::Link { place, .. } => format!("link {}{before}", text(place.name)),
                Action::Settled { what: Settled::Data(_), up_to } => format!("data to {up_to}"),
                Action::Settled { what: Settled::Object(_), up_to } => format!("all to {up_to}"),
                Action::Settled { what: Settled::FileSystem, up_to } => format!("fs to {up_to}"),
                Action::Touched { .. } => "touched".to_owned(),
                Action::Moment { .. } => "moment".to_owned(),
            };
            format!("{what}; after {}", change.after.len())
        };
        records.iter().map(show).collect()
    }
}

#[test]
fn every_change_is_told_as_it_came_out() {
    for place in places() {
        let (tree, told) = open(&place, false);
        let user = User::new(&tree, 0, 0);
        let root = user.root();
        let caller = user.caller();
        let file = user.create(&root, "a", 0o640).unwrap().handle;
        assert_eq!(told.take(), ["make Regular a 640 \"\"; after 2"], "{}", place.name);
        // A failure is kept for its reply.
        user.create(&root, "a", 0o640).unwrap_err();
        assert_eq!(told.take(), ["nothing; after 0"]);
        let unchecked = CreateHow::Unchecked(SetAttr { size: Some(0), ..with_mode(0o600) });
        settle(tree.create(&caller, &root, name("a"), &unchecked)).result.unwrap();
        assert_eq!(told.take(), ["attributes, size Some(0); after 2"]);
        let dir = user.mkdir(&root, "d", 0o755).unwrap().handle;
        let set = SetAttr::default();
        settle(tree.make_symlink(&caller, &dir, name("s"), b"target", &set)).result.unwrap();
        let [made, linked] = told.take().try_into().unwrap();
        assert_eq!(made, "make Directory d 755 \"\"; after 2");
        assert_eq!(linked, "make Symlink s 777 \"target\"; after 2");
        user.write(&file, 5, b"hello").unwrap();
        user.set(&file, &with_mode(0o600)).result.unwrap();
        user.set(&file, &SetAttr { size: Some(3), ..SetAttr::default() }).result.unwrap();
        assert_eq!(
            told.take(),
            [
                "write 5 at 5 behind 0; after 1",
                "attributes, size None; after 1",
                "attributes, size Some(3); after 1"
            ]
        );
        user.write(&file, 3, b"hello").unwrap();
        user.set(&file, &SetAttr { size: Some(9), ..SetAttr::default() }).result.unwrap();
        let unchecked = CreateHow::Unchecked(SetAttr { size: Some(10), ..with_mode(0o600) });
        settle(tree.create(&caller, &root, name("a"), &unchecked)).result.unwrap();
        assert_eq!(
            told.take(),
            [
                "write 5 at 3; after 1",
                "attributes, size Some(9) behind 8; after 1",
                "attributes, size Some(10) behind 9; after 2"
            ]
        );
        settle(tree.link(&caller, &file, &dir, name("b"))).1.result.unwrap();
        let rename = |from: &str, to: &str| {
            let (from, to) = (from.to_owned(), to.to_owned());
            let names = [&from, &to].map(|name| Name::new(name.as_bytes()).unwrap());
            settle(tree.rename(&caller, &root, names[0], &dir, names[1])).result
        };
        assert_eq!(told.take(), ["link b, before told; after 2"]);
        // Unknown to the server as yet.
        std::fs::write(place.directory.join("c"), "").unwrap();
        rename("c", "s").unwrap();
        // Two names of one file: nothing happens (rename(2)).
        rename("a", "b").unwrap();
        rename("none", "b").unwrap_err();
        let [renamed, same, none] = told.take().try_into().unwrap();
        assert_eq!(renamed, "rename c s, victim Some(false), before told; after 3");
        assert_eq!([same, none], ["nothing; after 2", "nothing; after 0"]);
        user.remove(&dir, "b").unwrap();
        user.remove(&root, "a").unwrap();
        user.rmdir(&root, "d").unwrap_err();
        user.remove(&dir, "s").unwrap();
        user.rmdir(&root, "d").unwrap();
        assert_eq!(
            told.take(),
            [
                "remove b, left true, before told; after 2",
                "remove a, left false; after 1",
                "nothing; after 0",
                "remove s, left false; after 1",
                "remove d, left false; after 1"
            ]
        );
    }
}

#[test]
fn writes_are_logged_or_flushed_and_that_is_told() {
    for place in places() {
        let (tree, told) = open(&place, false);
        let user = User::new(&tree, 0, 0);
        let file = user.create(&user.root(), "a", 0o640).unwrap().handle;
        told.take();
        let write = |bytes: usize, how| {
            let written = settle(tree.write(&user.caller(), &file, 0, &vec![7; bytes], how));
            written.result.unwrap().committed
        };
        let commit = || settle(tree.commit(&user.caller(), &file, 0, 0)).result.unwrap();
        // Small ones need no COMMIT.
        assert_eq!(write(1000, WriteHow::Unstable), WriteHow::FileSync);
        commit();
        assert_eq!(told.take(), ["write 1000 at 0; after 1"]);
        // What is not logged is told to have been done.
        assert_eq!(write(1001, WriteHow::Unstable), WriteHow::Unstable);
        assert_eq!(told.take(), ["touched; after 0"]);
        commit();
        // What has no record is told to be newer than what has.
        assert_eq!(told.take(), ["data to 3; after 0"]);
        commit();
        assert!(told.take().is_empty());
        assert_eq!(write(100_001, WriteHow::FileSync), WriteHow::FileSync);
        assert_eq!(told.take(), ["touched; after 0", "all to 5; after 0"]);
        // Many small ones are a stream.
        let logged = (0..1000).filter(|_| write(1000, WriteHow::Unstable) == WriteHow::FileSync);
        assert_eq!(logged.count(), (256 << 10) / 1000 + 1);
        commit();
        assert_eq!(write(1000, WriteHow::Unstable), WriteHow::FileSync);
    }
}

#[test]
fn a_checkpoint_has_what_was_written_since_the_last_one_written_in_pieces() {
    for place in places() {
        let (tree, told) = open(&place, false);
        let user = User::new(&tree, 0, 0);
        let files =
            ["a", "b", "c"].map(|file| user.create(&user.root(), file, 0o640).unwrap().handle);
        let write = |file, offset, bytes: usize| {
            let how = WriteHow::Unstable;
            settle(tree.write(&user.caller(), file, offset, &vec![7; bytes], how)).result.unwrap();
        };
        let sync = told.sync.lock().unwrap().clone().unwrap();
        let write_back = |pieces_max: usize| {
            let mut pieces = Vec::new();
            sync.write_back(&mut |bytes| {
                pieces.push(bytes);
                pieces.len() < pieces_max
            });
            pieces.sort_unstable();
            pieces
        };
        assert_eq!(write_back(99), [0; 0], "a name is no data");
        // Logged or not, more than a piece, and twice.
        write(&files[0], 5, 500);
        write(&files[1], 1 << 20, 3 << 20);
        write(&files[2], 0, 1000);
        write(&files[2], 0, 1000);
        assert_eq!(write_back(99), [500, 2000, 1 << 20, 1 << 20, 1 << 20]);
        assert_eq!(write_back(99), [0; 0]);
        write(&files[1], 0, 3 << 20);
        assert_eq!(write_back(2).len(), 2, "it stops when it is to");
        // What it left is the flush's; what comes later is written again.
        write(&files[1], 0, 100);
        assert_eq!(write_back(99), [100]);
    }
}

#[test]
fn attributes_that_are_set_in_steps_and_cuts_are_noted_first() {
    for place in places() {
        let (tree, told) = open(&place, false);
        let [user, other] = [0, 50].map(|uid| User::new(&tree, uid, uid));
        let root = user.root();
        let file = user.create(&root, "a", 0o644).unwrap().handle;
        user.write(&file, 0, b"some data").unwrap();
        let under_way = || std::mem::take(&mut *told.under_way.lock().unwrap());
        let nothing = SetAttr::default();
        let time = SetTime::To(Time { seconds: 5, nanoseconds: 0 });
        for one_step in [
            with_mode(0o666),
            SetAttr { uid: Some(60), gid: Some(61), ..nothing },
            SetAttr { size: Some(10), ..nothing },
            SetAttr { size: Some(11), mtime: SetTime::ServerTime, ..nothing },
            SetAttr { atime: time, mtime: time, ..nothing },
        ] {
            user.set(&file, &one_step).result.unwrap();
            assert_eq!(under_way(), [""; 0], "{one_step:?}");
        }
        user.set(&file, &SetAttr { uid: Some(50), ..with_mode(0o640) }).result.unwrap();
        user.set(&file, &SetAttr { size: Some(7), ..nothing }).result.unwrap();
        assert_eq!(
            under_way(),
            [
                "size 11 to None, owner 60 to 50, mode 666 to 640, permitted true",
                "size 11 to Some(7), owner 50 to 50, mode 640 to 640, permitted true"
            ]
        );
        // The owner may not give it away, and may do all else but keep set-id bits.
        other.set(&file, &SetAttr { uid: Some(51), ..with_mode(0o600) }).result.unwrap_err();
        other.set(&file, &SetAttr { mtime: time, ..with_mode(0o600) }).result.unwrap();
        other.set(&file, &SetAttr { mtime: time, ..with_mode(0o4600) }).result.unwrap();
        other.set(&file, &with_mode(0o600)).result.unwrap();
        assert_eq!(
            under_way(),
            [
                "size 7 to None, owner 50 to 51, mode 640 to 600, permitted false",
                "size 7 to None, owner 50 to 50, mode 640 to 600, permitted true",
                "size 7 to None, owner 50 to 50, mode 600 to 4600, permitted false"
            ]
        );
        let unchecked = CreateHow::Unchecked(SetAttr { size: Some(0), ..with_mode(0o600) });
        settle(tree.create(&user.caller(), &root, name("a"), &unchecked)).result.unwrap();
        assert_eq!(
            under_way(),
            ["size 7 to Some(0), owner 50 to 50, mode 600 to 600, permitted true"]
        );
        drop(tree);
        let (tree, told) = open(&place, true);
        let user = User::new(&tree, 0, 0);
        let file = user.lookup(&user.root(), "a").unwrap().handle;
        user.set(&file, &SetAttr { uid: Some(60), ..with_mode(0o640) }).result.unwrap();
        assert_eq!(*told.under_way.lock().unwrap(), [""; 0], "{}: it is not logged", place.name);
    }
}

/// Replay would cut the file as a change says that is later than what was settled, and with it what
/// was written after that.
#[test]
fn what_is_written_while_a_flush_begins_is_left_to_the_next() {
    for place in places() {
        let (tree, told) = open(&place, false);
        let tree = Arc::new(tree);
        let user = User::new(&tree, 0, 0);
        let file = user.create(&user.root(), "a", 0o640).unwrap().handle;
        let write = |tree: &Tree| {
            let user = User::new(tree, 0, 0);
            let how = WriteHow::Unstable;
            let written = settle(tree.write(&user.caller(), &file, 0, &[7; 5000], how));
            assert_eq!(written.result.unwrap().committed, WriteHow::Unstable);
        };
        write(&tree);
        told.take();
        let others = Arc::clone(&tree);
        *told.meanwhile.lock().unwrap() = Some(Box::new(move || {
            let user = User::new(&others, 0, 0);
            let cut = SetAttr { size: Some(100), ..SetAttr::default() };
            user.set(&file, &cut).result.unwrap();
            let data = [8; 5000];
            settle(others.write(&user.caller(), &file, 0, &data, WriteHow::Unstable))
                .result
                .unwrap();
        }));
        let commit = || settle(tree.commit(&user.caller(), &file, 0, 0)).result.unwrap();
        commit();
        assert_eq!(
            told.take(),
            ["attributes, size Some(100); after 1", "touched; after 0", "data to 2; after 0"]
        );
        commit();
        assert_eq!(told.take(), ["data to 5; after 0"], "{}", place.name);
        commit();
        assert!(told.take().is_empty());
    }
}

#[test]
fn commit_flushes_what_another_tree_has_written() {
    for place in places() {
        let told = Arc::new(Told::default());
        let log = Arc::new(Log(Arc::clone(&told)));
        let storage = Storage::with_log(StorageOptions { descriptors_max: 1000 }, Some(log), None);
        let [one, other] = [7, 8].map(|share_id| {
            let options = TreeOptions { share_id, ..TreeOptions::default() };
            Tree::open(&place.directory, &options, &storage).unwrap()
        });
        assert_eq!(told.users.load(Ordering::SeqCst), 2);
        let (user, reader) = (User::new(&one, 0, 0), User::new(&other, 0, 0));
        let file = user.create(&user.root(), "a", 0o640).unwrap().handle;
        let same = reader.lookup(&reader.root(), "a").unwrap().handle;
        let commit = || settle(other.commit(&reader.caller(), &same, 0, 0)).result.unwrap();
        told.take();
        let unstable = one.write(&user.caller(), &file, 0, &[7; 5000], WriteHow::Unstable);
        settle(unstable).result.unwrap();
        assert_eq!(told.take(), ["touched; after 0"], "too large to be logged");
        commit();
        assert!(matches!(&told.take()[..], [flushed] if flushed.starts_with("data to ")));
        drop((user, reader));
        drop(one);
        assert_eq!(told.users.load(Ordering::SeqCst), 1);
        drop(other);
        assert_eq!(told.users.load(Ordering::SeqCst), 0, "a tree that is closed leaves the log");
    }
}

#[test]
fn a_share_without_the_log_tells_it_what_it_flushes() {
    for place in places() {
        let (tree, told) = open(&place, true);
        let user = User::new(&tree, 0, 0);
        let file = user.create(&user.root(), "a", 0o640).unwrap().handle;
        user.write(&file, 0, b"hello").unwrap();
        let records = told.take();
        assert!(!records.is_empty() && records.iter().all(|record| record.contains("all to ")));
    }
}

#[test]
fn nothing_is_changed_while_the_log_refuses() {
    for place in places() {
        let (tree, told) = open(&place, false);
        let user = User::new(&tree, 0, 0);
        let root = user.root();
        let file = user.create(&root, "a", 0o640).unwrap().handle;
        told.take();
        told.is_refusing.store(true, Ordering::SeqCst);
        assert_eq!(user.create(&root, "b", 0o640).unwrap_err(), FsError::TryLater);
        assert_eq!(user.write(&file, 0, b"x").unwrap_err(), FsError::TryLater);
        assert_eq!(user.remove(&root, "a").unwrap_err(), FsError::TryLater);
        assert_eq!(user.set(&file, &with_mode(0)).result, Err(FsError::TryLater));
        assert_eq!(user.attr(&file).unwrap().size, 0);
        assert_eq!(user.lookup(&root, "b").unwrap_err(), FsError::NotFound);
        assert!(told.take().is_empty());
    }
}

/// What NFSv4.2 changes has no record of its own: the log is told that it was done, and, when it is on the
/// disk, that what came before is not to be done again.
#[test]
fn what_is_done_beside_the_log_is_told_before_and_behind_its_flush() {
    for place in places() {
        let (tree, told) = open(&place, false);
        let user = User::new(&tree, 0, 0);
        let root = user.root();
        let file = user.create(&root, "a", 0o640).unwrap().handle;
        let other = user.create(&root, "b", 0o640).unwrap().handle;
        user.write(&file, 0, &[7; 900]).unwrap();
        let check = |what: &str, durable: Durable<Result<(), FsError>>| {
            let (result, flushes) = settle_counting(durable);
            assert_eq!(flushes, usize::from(result.is_ok()), "{what} {result:?}");
            let done = told.take();
            assert_eq!(done.len(), flushes, "{what} {done:?}");
            assert!(done.iter().all(|it| it.starts_with("all to ")), "{what} {done:?}");
        };
        let caller = user.caller();
        let at = |file, offset| FilePlace { file, offset };
        told.take();
        let allocated = tree.allocate(&caller, &file, 0, 10_000).map(|it| it.result);
        assert_eq!(told.take(), ["touched; after 0"]);
        check("allocate", allocated);
        let hole = tree.deallocate(&caller, &file, 0, 500).map(|it| it.result);
        assert_eq!(told.take(), ["touched; after 0"]);
        check("deallocate", hole);
        let copied = tree.copy(&caller, at(&file, 0), at(&other, 0), 0);
        assert_eq!(told.take(), ["touched; after 0"]);
        check("copy", copied.map(|it| it.result.map(drop)));
        let set = tree.set_xattr(&caller, &root, b"x", b"1", SetXattrHow::Either);
        assert_eq!(told.take(), ["touched; after 0"]);
        check("set an attribute", set.map(|it| it.result));
        let removed = tree.remove_xattr(&caller, &root, b"x").map(|it| it.result);
        assert_eq!(told.take(), ["touched; after 0"]);
        check("remove an attribute", removed);
        // What fails and changes nothing leaves nothing behind.
        let missing = tree.remove_xattr(&caller, &root, b"x").map(|it| it.result);
        check("remove what is not there", missing);
        let refused = tree.allocate(&caller, &file, 0, 0).map(|it| it.result);
        check("allocate nothing", refused);
        let cloned = tree.clone_range(&caller, at(&file, 0), at(&other, 0), 0);
        let cloned = cloned.map(|it| it.result);
        drop(told.take());
        check("clone", cloned);
    }
}
