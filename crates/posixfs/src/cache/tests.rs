use std::sync::atomic::AtomicBool;

use steadfast_vfs::{
    Caller, CreateHow, Cred, Durable, FileSystem, FlushTarget, FlushWhat, Name, Obligation,
    ReadPlace, ReplyBarrier, SetAttr, Waiting, WriteHow,
};

use super::*;
use crate::budget::Descriptor;
use crate::pins::{Call, Flush, Guard, Root, Sent, WriteBack};
use crate::storage::{Storage, StorageOptions};
use crate::tree::{Tree, TreeOptions};

const FILES: usize = 200;

fn value<T>(durable: Durable<T>) -> T {
    durable.release(&ReplyBarrier::for_engine()).0
}

/// Takes room until a number of objects are let go; tells how many were looked at for that.
fn evict(storage: &Storage, objects: usize) -> usize {
    let stays = storage.objects() - objects;
    let (mut taken, mut looked_at) = (Vec::new(), 0);
    while storage.objects() > stays {
        let null = std::fs::File::open("/dev/null").unwrap().into();
        taken.push(Descriptor::new(null, &storage.budget));
        looked_at += storage.cache.make_room();
    }
    looked_at
}

fn own() -> Cred {
    Cred {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: smallvec::SmallVec::new(),
    }
}

/// A tree of an empty directory.
struct Place {
    tree: Tree,
    storage: Arc<Storage>,
    _directory: tempfile::TempDir,
}

impl Place {
    fn new(descriptors_max: usize) -> Self {
        let place = tempfile::tempdir().unwrap();
        let storage = Storage::new(StorageOptions { descriptors_max });
        let share = place.path().join("share");
        std::fs::create_dir(&share).unwrap();
        let state_directory = Some(place.path().join("state"));
        let options = TreeOptions { state_directory, ..TreeOptions::default() };
        let tree = Tree::open(&share, &options, &storage).unwrap();
        Self { tree, storage, _directory: place }
    }

    /// Makes a file; with what has to be done before that is told.
    fn make(&self, name: &str) -> (StorageHandle, Option<Obligation>) {
        let cred = own();
        let caller = Caller::new(&cred, Waiting::Allowed);
        let root = self.tree.root().unwrap().handle;
        let how =
            CreateHow::Guarded(SetAttr { mode: Some(0o600), size: None, ..SetAttr::default() });
        let name = Name::new(name.as_bytes()).unwrap();
        let (made, obligation) =
            self.tree.create(&caller, &root, name, &how).release(&ReplyBarrier::for_engine());
        (made.result.unwrap().handle, obligation)
    }

    fn find(&self, file: &StorageHandle) -> Option<NodePin<Look>> {
        let hash = hash_of_handle(self.tree.id, file);
        let shard = self.storage.cache.handle_shard(hash).lock();
        shard.find(hash, self.tree.id, file).map(NodePin::pin)
    }

    /// Whether a file is open still, when there is no room for anything and nothing was used for long.
    fn stays(&self, file: &StorageHandle) -> bool {
        let null = || std::fs::File::open("/dev/null").unwrap().into();
        let most = self.storage.descriptors() + 10;
        let _crowd: Vec<_> =
            (0..most.max(20)).map(|_| Descriptor::new(null(), &self.storage.budget)).collect();
        // Once a shard is visited marks of use are cleared.
        for _ in 0..4 {
            self.storage.cache.make_room();
        }
        (0..40 * SHARDS / SHARDS_A_SWEEP).for_each(|_| self.storage.sweep());
        self.find(file).is_some()
    }

    fn tree_stays(&self) -> bool {
        self.storage.cache.trees_that_must_stay().contains(&self.tree.id)
    }
}

/// An object that has a pin for a reason stays open, and so does its tree; without it they need not.
fn stays_by<R: Reason>(place: &Place, reason: &str, count: impl Fn(OpenObjects) -> u64) {
    let (file, _) = place.make(reason);
    let before = count(place.storage.open_objects());
    let pin: NodePin<R> = place.find(&file).unwrap().now_for();
    assert_eq!(count(place.storage.open_objects()), before + 1, "{reason}");
    assert!(place.stays(&file), "{reason}");
    assert!(place.tree_stays() || reason == "root", "{reason}");
    let other = pin.clone();
    drop(pin);
    assert!(place.stays(&file), "{reason}");
    drop(other);
    assert!(!place.tree_stays(), "{reason}");
    assert!(!place.stays(&file), "{reason}");
    assert_eq!(count(place.storage.open_objects()), before, "{reason}");
}

#[test]
fn what_is_pinned_stays_open_and_so_does_its_tree() {
    let place = Place::new(10);
    stays_by::<Call>(&place, "call", |objects| objects.in_calls);
    stays_by::<Flush>(&place, "flush", |objects| objects.in_flushes);
    stays_by::<Sent>(&place, "sent", |objects| objects.sent);
    stays_by::<Guard>(&place, "guard", |objects| objects.guarded);
    stays_by::<WriteBack>(&place, "write back", |objects| objects.written_back);
    stays_by::<Root>(&place, "root", |objects| objects.roots);
    // The tree's own root is the one that is left.
    let expected = OpenObjects { open: 1, roots: 1, ..OpenObjects::default() };
    assert_eq!(place.storage.open_objects(), expected);
}

#[test]
fn what_waits_for_its_flush_and_what_is_sent_is_pinned() {
    let place = Place::new(10);
    let cred = own();
    let caller = Caller::new(&cred, Waiting::Allowed);
    let (file, obligation) = place.make("file");
    let data = vec![7; 128 << 10];
    let written = place.tree.write(&caller, &file, 0, &data, WriteHow::FileSync);
    drop(obligation);
    let (_, obligation) = written.release(&ReplyBarrier::for_engine());
    if obligation.is_none() {
        println!("skipped in part: a file system in memory is not flushed");
    } else {
        assert_eq!(place.storage.open_objects().in_flushes, 1);
        assert!(place.stays(&file) && place.tree_stays());
    }
    drop(obligation);
    assert_eq!(place.storage.open_objects().in_flushes, 0);
    let mut into = Vec::new();
    let read = place.tree.read(&caller, &file, 0, 128 << 10, true, &mut into).unwrap();
    if matches!(read.place, ReadPlace::File(_)) {
        assert_eq!(place.storage.open_objects().sent, 1);
        assert!(place.stays(&file) && place.tree_stays());
    }
    drop(read);
    assert_eq!(place.storage.open_objects().sent, 0);
    assert!(!place.stays(&file) && !place.tree_stays());
}

/// A share that is removed while it is used: each object is closed when nobody has a pin of it.
#[test]
fn what_is_pinned_outlives_a_tree_that_is_closed() {
    let place = Place::new(10);
    let (file, obligation) = place.make("file");
    drop(obligation);
    let Place { tree, storage, _directory } = place;
    let node = tree.node(&file, Waiting::Allowed).unwrap();
    let waiting = crate::node::flush_target(node.now_for());
    drop(tree);
    assert_eq!(storage.objects(), 0);
    assert!(storage.descriptors() > 0);
    waiting.flush(FlushWhat::Everything).unwrap();
    drop(waiting);
    assert_eq!(storage.descriptors(), 0);
}

#[test]
fn what_is_not_flushed_is_evicted_but_its_tree_stays() {
    let place = Place::new(10);
    let cred = own();
    let (file, _) = place.make("file");
    let caller = Caller::new(&cred, Waiting::Allowed);
    value(place.tree.write(&caller, &file, 0, b"text", WriteHow::Unstable)).result.unwrap();
    assert!(place.tree_stays());
    assert_eq!(place.storage.open_objects().unflushed, 1);
    assert!(!place.stays(&file));
}

#[test]
fn who_has_the_only_pin_lets_it_go() {
    let place = Place::new(10);
    let (file, _) = place.make("file");
    let node = place.tree.node(&file, Waiting::Allowed).unwrap();
    let other: NodePin<Sent> = node.pin();
    assert!(!place.storage.cache.let_go_if_idle(&node) && place.find(&file).is_some());
    drop(other);
    assert!(place.storage.cache.let_go_if_idle(&node) && place.find(&file).is_none());
    // The next one is another, and this one is nobody's.
    let again = place.tree.node(&file, Waiting::Allowed).unwrap();
    assert!(!again.is_same(&node) && !place.storage.cache.let_go_if_idle(&node));
}

/// There is one node an object, whoever evicts: its order lock would mean nothing otherwise.
#[test]
fn an_object_has_one_node_while_somebody_has_a_pin_of_it() {
    const ROUNDS: usize = 3_000;
    let place = Place::new(0);
    let files: Vec<StorageHandle> =
        (0..3).map(|number| place.make(&number.to_string()).0).collect();
    let is_over = AtomicBool::new(false);
    let evicted = std::thread::scope(|scope| {
        let users: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut opened = 0;
                    for round in 0..ROUNDS {
                        for file in &files {
                            let weak = place.find(file).map(|node| node.downgrade());
                            let node = place.tree.node(file, Waiting::Allowed).unwrap();
                            opened += usize::from(weak.is_none());
                            let kept: NodePin<Sent> = node.pin();
                            drop(node);
                            if round % 7 == 0 {
                                std::thread::yield_now();
                            }
                            let again = place.tree.node(file, Waiting::Allowed).unwrap();
                            assert!(again.is_same(&kept) && !kept.has_ended());
                        }
                    }
                    opened
                })
            })
            .collect();
        scope.spawn(|| {
            // All that nobody has a pin of is too much.
            while !is_over.load(Ordering::Relaxed) {
                place.storage.cache.make_room();
                place.storage.sweep();
            }
        });
        let ended: Vec<_> = users.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        ended.into_iter().map(Result::unwrap).sum::<usize>()
    });
    assert!(evicted > 0, "nothing was evicted meanwhile");
    assert_eq!(place.storage.open_objects().in_calls, 0);
}

#[test]
fn what_is_not_flushed_does_not_stand_in_the_way() {
    let place = Place::new(2 * FILES);
    let Place { tree, storage, .. } = &place;
    let cred = own();
    let caller = Caller::new(&cred, Waiting::Allowed);
    let root = tree.root().unwrap().handle;
    let mut files = Vec::new();
    while storage.descriptors() + 2 < 2 * FILES {
        let name = format!("f{}", files.len());
        let name = Name::new(name.as_bytes()).unwrap();
        let how = CreateHow::Guarded(SetAttr::default());
        let file = value(tree.create(&caller, &root, name, &how)).result.unwrap().handle;
        value(tree.write(&caller, &file, 0, b"text", WriteHow::Unstable)).result.unwrap();
        files.push(file);
    }
    let found = |file: &StorageHandle| place.find(file);
    let is_here = |file: &&StorageHandle| found(file).is_some();
    assert!(files.iter().all(|file| is_here(&file)));
    // Whoever lets one go: the next COMMIT is told that there was something.
    let node = found(&files[0]).unwrap();
    assert!(node.is_dirty() && node.mount.let_go() == 0 && storage.cache.claim_idle(&node));
    assert!(node.mount.let_go() > 0);
    storage.cache.remove(&node);
    drop(node);
    // None of them is gone past again and again.
    let gone = files.len() / 4;
    let looked_at = evict(storage, gone);
    assert!(looked_at < 40 * gone, "{looked_at} for {gone}");
    // What was flushed meanwhile goes first, as far as it is found soon.
    let rest: Vec<&StorageHandle> = files.iter().filter(is_here).collect();
    let (flushed, unflushed) = rest.split_at(rest.len() / 2);
    for file in flushed {
        found(file).unwrap().flush(FlushWhat::Data).unwrap();
    }
    if flushed.iter().any(|file| found(file).unwrap().is_dirty()) {
        println!("skipped in part: a file system in memory is not flushed");
        return;
    }
    evict(storage, flushed.len() / 2);
    let stay = |files: &[&StorageHandle]| files.iter().copied().filter(is_here).count();
    let (flushed_stay, unflushed_stay) = (stay(flushed), stay(unflushed));
    assert!(flushed_stay < unflushed_stay * 3 / 4, "{flushed_stay}, {unflushed_stay}");
}
