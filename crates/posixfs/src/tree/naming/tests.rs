//! What an operation on names does when something comes between its steps.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::fs::OFlags;
use rustix::thread::{CapabilitySet, CapabilitySets};
use steadfast_vfs::{CreateHow, Cred, FileSystem, ReplyBarrier, SetTime, Time};

use super::*;
use crate::storage::{Storage, StorageOptions};
use crate::tree::TreeOptions;

fn open(directory: &Path) -> Tree {
    let storage = Storage::new(StorageOptions { descriptors_max: 1000 });
    Tree::open(directory, &TreeOptions::default(), &storage).unwrap()
}

/// The process's own user, whoever runs the test.
fn cred() -> Cred {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    Cred { uid, gid, groups: SmallVec::new() }
}

fn value<T>(durable: Durable<T>) -> T {
    durable.release(&ReplyBarrier::for_engine()).0
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

/// A link that is there is not taken back because the store, which only has to know its new
/// name, cannot be written.
#[test]
fn a_link_is_made_though_the_store_fails() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("share");
    std::fs::create_dir(&directory).unwrap();
    let options =
        TreeOptions { state_directory: Some(place.path().join("state")), ..TreeOptions::default() };
    let test = || {
        // Without capabilities, so that there are no kernel handles.
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, sets).unwrap();
        let storage = Storage::new(StorageOptions { descriptors_max: 1000 });
        let tree = Tree::open(&directory, &options, &storage).unwrap();
        let cred = cred();
        let caller = Caller::new(&cred, Waiting::Allowed);
        let root = tree.root().unwrap().handle;
        let how = CreateHow::Guarded(SetAttr::default());
        let file = value(tree.create(&caller, &root, name("one"), &how)).result.unwrap().handle;
        tree.store().unwrap().is_failing.store(true, Ordering::Relaxed);
        let (attr, changed) = value(tree.link(&caller, &file, &root, name("two")));
        assert_eq!(changed.result, Ok(()));
        assert_eq!(attr.unwrap().links, 2);
    };
    std::thread::scope(|scope| scope.spawn(test).join()).unwrap();
}

#[test]
fn links_are_made_by_descriptor() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("file"), b"text").unwrap();
    std::os::unix::fs::symlink("file", place.path().join("link")).unwrap();
    let open = |path: &Path| {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Permissions::empty()).unwrap()
    };
    let dir = open(place.path());
    let number = |text: &str| std::fs::symlink_metadata(place.path().join(text)).unwrap().ino();
    for (from, to) in [("file", "file2"), ("link", "link2")] {
        let object = open(&place.path().join(from));
        link_by_descriptor(&object, &dir, to.as_bytes()).unwrap();
        assert_eq!(number(from), number(to));
        assert_eq!(link_by_descriptor(&object, &dir, to.as_bytes()), Err(Errno::EXIST));
    }
}

/// A local process puts its own object in the place of one just made: it is not taken away when
/// the making fails, and gets none of the new object's attributes.
#[test]
fn what_took_the_place_of_a_new_object_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let tree = open(place.path());
    let cred = cred();
    let caller = Caller::new(&cred, Waiting::Allowed);
    let root = tree.root_node();
    let past = SetAttr { mtime: SetTime::To(Time::default()), ..SetAttr::default() };
    let finish = |made| tree.finish(&caller, made, &past, &mut Effects::of_flush());
    let path = |text: &str| place.path().join(text);
    let attributes = |text: &str| std::fs::symlink_metadata(path(text)).unwrap();
    let create = |name: &str| {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(&root.path, name, flags, Permissions::RUSR).unwrap();
        Some(MadeFile { descriptor, was_named: true })
    };

    let new = create("a");
    std::fs::write(path("other"), b"precious").unwrap();
    let other = attributes("other");
    std::fs::rename(path("other"), path("a")).unwrap();
    let made = Made { dir: root, name: b"a", kind: FileKind::Regular, file: new, target: &[] };
    assert_eq!(finish(made).unwrap_err(), FsError::TryLater);
    assert_eq!(attributes("a").ino(), other.ino());
    assert_eq!(attributes("a").mtime(), other.mtime());

    // What was made has another name by now: it is what was made.
    let new = create("here");
    std::fs::rename(path("here"), path("there")).unwrap();
    std::fs::write(path("here"), b"precious").unwrap();
    let made = Made { dir: root, name: b"here", kind: FileKind::Regular, file: new, target: &[] };
    assert_eq!(finish(made).unwrap().attr.fileid, attributes("there").ino());
    assert_ne!(attributes("here").mtime(), 0);

    // Of another kind.
    let made = Made { dir: root, name: b"a", kind: FileKind::Fifo, file: None, target: &[] };
    assert_eq!(finish(made).unwrap_err(), FsError::TryLater);
    assert_eq!(attributes("a").mtime(), other.mtime());

    // Of another owner, on a file system that has such.
    if cred.uid == 0 && root.volume.kind != VolumeKind::Other {
        std::os::unix::fs::chown(path("a"), Some(1000), None).unwrap();
        let made = Made { dir: root, name: b"a", kind: FileKind::Regular, file: None, target: &[] };
        assert_eq!(finish(made).unwrap_err(), FsError::TryLater);
        assert_eq!(attributes("a").mtime(), other.mtime());
    }

    // Nothing came between: what cannot be finished goes again.
    let new = create("b");
    let made = Made { dir: root, name: b"b", kind: FileKind::Regular, file: new, target: &[] };
    let bad = SetAttr { size: Some(u64::MAX), ..SetAttr::default() };
    let finished = tree.finish(&caller, made, &bad, &mut Effects::of_flush());
    assert_eq!(finished.unwrap_err(), FsError::FileTooLarge);
    assert!(!path("b").exists());
    std::fs::create_dir(path("d")).unwrap();
    let made = Made { dir: root, name: b"d", kind: FileKind::Directory, file: None, target: &[] };
    assert_eq!(
        tree.finish(&caller, made, &bad, &mut Effects::of_flush()).unwrap_err(),
        FsError::IsDirectory
    );
    assert!(!path("d").exists());
}

/// LINK, REMOVE and RENAME change the ctime of a file, so they wait for a change of the file that
/// has looked at it already.
#[test]
fn names_are_changed_in_the_order_of_their_files() {
    let place = tempfile::tempdir().unwrap();
    let tree = open(place.path());
    let cred = cred();
    let caller = Caller::new(&cred, Waiting::Allowed);
    let root = tree.root().unwrap().handle;
    let how = CreateHow::Guarded(SetAttr::default());
    let create = |text| value(tree.create(&caller, &root, name(text), &how)).result.unwrap().handle;
    let file = create("one");
    create("mover");
    let rename = |from, to| value(tree.rename(&caller, &root, name(from), &root, name(to))).result;
    let link = || value(tree.link(&caller, &file, &root, name("two"))).1.result;
    let remove = || value(tree.remove(&caller, &root, name("two"))).result;
    let moved = || rename("one", "three");
    let over = || rename("mover", "three");
    let changes: [&(dyn Fn() -> Result<(), FsError> + Sync); 4] = [&link, &remove, &moved, &over];
    let node = tree.node(&file, Waiting::Allowed).unwrap();
    for change in changes {
        let before = node.attr().unwrap();
        std::thread::scope(|scope| {
            let order = node.order.lock();
            let changing = scope.spawn(change);
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert_eq!(node.attr().unwrap(), before);
            drop(order);
            assert_eq!(changing.join().unwrap(), Ok(()));
        });
    }
    // Two names of one file are one file.
    let file = create("one");
    value(tree.link(&caller, &file, &root, name("two"))).1.result.unwrap();
    rename("one", "two").unwrap();
}

/// Files are moved over each other both ways, and linked, at the same time, and nobody waits for
/// ever.
#[test]
fn files_are_moved_over_each_other_by_many() {
    let place = tempfile::tempdir().unwrap();
    let tree = open(place.path());
    let root = tree.root().unwrap().handle;
    let cred = cred();
    let caller = Caller::new(&cred, Waiting::Allowed);
    let how = CreateHow::Unchecked(SetAttr { size: Some(0), ..SetAttr::default() });
    let dirs = ["d", "e"].map(|text| {
        value(tree.make_directory(&caller, &root, name(text), &SetAttr::default()))
            .result
            .unwrap()
            .handle
    });
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (tree, dirs, how) = (&tree, &dirs, &how);
            scope.spawn(move || {
                let cred = self::cred();
                let caller = Caller::new(&cred, Waiting::Allowed);
                let [from, to] = [&dirs[thread % 2], &dirs[(thread + 1) % 2]];
                for round in 0..200 {
                    let made = value(tree.create(&caller, from, name("a"), how)).result;
                    let _ = value(tree.rename(&caller, from, name("a"), to, name("a")));
                    if let Ok(made) = made {
                        let _ = value(tree.link(&caller, &made.handle, from, name("b")));
                    }
                    let _ = value(tree.rename(&caller, from, name("b"), to, name("a")));
                    if round % 3 == 0 {
                        let _ = value(tree.remove(&caller, to, name("a")));
                    }
                }
            });
        }
    });
}
