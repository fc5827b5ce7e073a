//! Unit ring, on real file systems. What clients are told of file systems is what they have, and what
//! they ask a new object to have it has, or they are told that it cannot. Most need root.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::os::unix::fs::MetadataExt;

use steadfast_vfs::{
    Acl, AclEntry, AclTag, Attr, CreateHow, FileSystem, FsError, Name, NodeKind, SetAttr, SetTime,
    StorageHandle, Time,
};
use support::{Place, User, cred, is_root, mounted_with, name, places, settle, with_mode};

fn all() -> Vec<Place> {
    let mut all = places();
    // Whose inodes keep seconds.
    all.extend(mounted_with("ext4 of 128 bytes an inode", "ext4", 64, &["-q", "-I", "128"]));
    all.extend(mounted_with("ext4 that folds case", "ext4", 64, &["-q", "-O", "casefold"]));
    all.extend(mounted_with("xfs that folds case", "xfs", 320, &["-q", "-n", "version=ci"]));
    all.extend(mounted_with("vfat", "vfat", 64, &[]));
    all
}

/// RFC 1813 §3.3.19: times that are set are kept to `time_delta`, and no better.
#[test]
fn times_are_kept_to_what_is_told() {
    for place in all() {
        let tree = support::open(&place.directory);
        let user = User::new(&tree, 0, 0);
        let file = user.create(&user.root(), "a", 0o600).unwrap().handle;
        let granularity_ns = i64::from(tree.info(&file).unwrap().time_granularity_ns);
        // vfat keeps local time, and of the last access the day.
        let seconds = 1_000_000_000;
        let to = Time { seconds, nanoseconds: 987_654_321 };
        let set = SetAttr { mtime: SetTime::To(to), ..SetAttr::default() };
        user.set(&file, &set).result.unwrap();
        let kept = user.attr(&file).unwrap().mtime;
        let wanted_ns = seconds * 1_000_000_000 + 987_654_321;
        let kept_ns = kept.seconds * 1_000_000_000 + i64::from(kept.nanoseconds);
        let rounded_ns = wanted_ns / granularity_ns * granularity_ns;
        assert_eq!(kept_ns, rounded_ns, "{}: {granularity_ns} ns", place.name);
        // By the directory too, which is what clients ask about.
        assert_eq!(tree.info(&user.root()).unwrap(), tree.info(&file).unwrap(), "{}", place.name);
    }
}

#[test]
fn limits_of_names_and_links_are_what_is_told() {
    for place in all() {
        let tree = support::open(&place.directory);
        let user = User::new(&tree, 0, 0);
        let root = user.root();
        let directory = user.mkdir(&root, "Dir", 0o755).unwrap().handle;
        if place.name == "ext4 that folds case" {
            assert!(
                std::process::Command::new("chattr")
                    .args(["+F", place.directory.join("Dir").to_str().unwrap()])
                    .status()
                    .is_ok_and(|status| status.success())
            );
        }
        let limits = tree.path_limits(&directory).unwrap();
        let longest = "N".repeat(limits.name_bytes_max as usize);
        let kept = user.create(&directory, &longest, 0o600).unwrap();
        let longer = longest.clone() + "N";
        let refused = Name::new(longer.as_bytes()).map(|longer| {
            let how = CreateHow::Guarded(with_mode(0o600));
            settle(tree.create(&user.caller(), &directory, longer, &how)).result.map(drop)
        });
        assert!(matches!(refused, Err(FsError::NameTooLong) | Ok(Err(FsError::NameTooLong))));
        let other_case = user.lookup(&directory, &longest.to_lowercase());
        assert_eq!(
            limits.is_case_insensitive,
            other_case.is_ok_and(|found| found.attr.fileid == kept.attr.fileid),
            "{}",
            place.name
        );
        let names: Vec<_> = user.list(&directory, 100).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(limits.preserves_case, names.contains(&longest.into_bytes()), "{}", place.name);
        let info = tree.info(&directory).unwrap();
        // What is so in one directory alone is not so in all.
        let of_root = tree.path_limits(&root).unwrap();
        assert!(of_root == limits || !info.is_homogeneous, "{}", place.name);
        let linked = settle(tree.link(&user.caller(), &kept.handle, &root, name("link"))).1.result;
        assert_eq!(info.has_links, linked.is_ok(), "{}", place.name);
        let set = SetAttr::default();
        let made = settle(tree.make_symlink(&user.caller(), &root, name("sym"), b"to", &set));
        assert_eq!(info.has_symlinks, made.result.is_ok(), "{}", place.name);
    }
}

fn set_acl_of(user: &User<'_>, object: &StorageHandle, default: &Acl) -> Result<(), FsError> {
    settle(user.tree.set_acls(&user.caller(), object, None, Some(default))).result
}

#[test]
fn only_directories_take_default_acls() {
    for place in places() {
        let tree = support::open(&place.directory);
        let user = User::new(&tree, 0, 0);
        let root = user.root();
        let file = user.create(&root, "file", 0o600).unwrap().handle;
        if !tree.info(&root).unwrap().has_acls {
            continue;
        }
        let entry = |tag, permissions| AclEntry { tag, permissions };
        let list = Acl {
            entries: vec![
                entry(AclTag::UserObject, 7),
                entry(AclTag::GroupObject, 5),
                entry(AclTag::Other, 0),
            ],
        };
        assert_eq!(set_acl_of(&user, &file, &list), Err(FsError::AccessDenied), "{}", place.name);
        // There is none, so it can be taken away.
        set_acl_of(&user, &file, &Acl::default()).unwrap();
        set_acl_of(&user, &root, &list).unwrap();
        set_acl_of(&user, &root, &Acl::default()).unwrap();
    }
}

fn owner(uid: Option<u32>, gid: Option<u32>, mode: u32) -> SetAttr {
    SetAttr { uid, gid, ..with_mode(mode) }
}

/// An object of each kind, made with these attributes.
fn make_each(user: &User<'_>, dir: &StorageHandle, set: &SetAttr) -> Vec<(&'static str, Attr)> {
    let (tree, caller) = (user.tree, user.caller());
    let file = settle(tree.create(&caller, dir, name("guarded"), &CreateHow::Guarded(*set)));
    let other = settle(tree.create(&caller, dir, name("unchecked"), &CreateHow::Unchecked(*set)));
    let directory = settle(tree.make_directory(&caller, dir, name("dir"), set));
    let link = settle(tree.make_symlink(&caller, dir, name("link"), b"to", set));
    let fifo = settle(tree.make_node(&caller, dir, name("fifo"), NodeKind::Fifo, set));
    let made = [
        ("guarded", file),
        ("unchecked", other),
        ("dir", directory),
        ("link", link),
        ("fifo", fifo),
    ];
    made.map(|(kind, made)| (kind, made.result.expect(kind).attr)).to_vec()
}

fn clear(user: &User<'_>, dir: &StorageHandle) {
    for name in ["guarded", "unchecked", "link", "fifo"] {
        user.remove(dir, name).unwrap();
    }
    user.rmdir(dir, "dir").unwrap();
}

/// chown(2) lets nobody but root give objects away, and others to groups that they are in only. Who
/// asks for more of a new object gets it as it would be otherwise, like from the kernel's server.
#[test]
fn a_new_object_is_given_to_whom_it_may_be_given() {
    if !is_root() {
        return;
    }
    for place in places() {
        let tree = support::open(&place.directory);
        let root = tree.root().unwrap().handle;
        let server = User::new(&tree, 0, 0);
        server.set(&root, &with_mode(0o1777)).result.unwrap();
        for (who, set, expected) in [
            ((1000, 1000), owner(Some(1000), Some(1000), 0o640), (1000, 1000)),
            ((1000, 1000), owner(Some(0), Some(0), 0o640), (1000, 1000)),
            ((1000, 1000), owner(Some(1001), None, 0o640), (1000, 1000)),
            ((1000, 1000), owner(None, Some(1001), 0o640), (1000, 1000)),
            // In which he is.
            ((1000, 1000), owner(None, Some(2000), 0o640), (1000, 2000)),
            ((1000, 1000), owner(Some(1001), Some(2000), 0o640), (1000, 2000)),
            ((1000, 1000), owner(Some(1000), Some(9), 0o640), (1000, 1000)),
            ((1000, 1000), owner(Some(u32::MAX), Some(u32::MAX), 0o640), (1000, 1000)),
            ((0, 0), owner(Some(1001), Some(1002), 0o640), (1001, 1002)),
            ((0, 0), owner(None, Some(u32::MAX), 0o640), (0, 0)),
        ] {
            let user = User { tree: &tree, cred: cred(who.0, who.1, &[2000]) };
            for (kind, attr) in make_each(&user, &root, &set) {
                assert_eq!((attr.uid, attr.gid), expected, "{} {kind} {set:?}", place.name);
                if kind != "link" {
                    assert_eq!(attr.mode, 0o640, "{} {kind} {set:?}", place.name);
                }
            }
            clear(&server, &root);
        }
        // In a directory that gives its group away, that is the group.
        server.set(&root, &owner(None, Some(3000), 0o3777)).result.unwrap();
        let user = User { tree: &tree, cred: cred(1000, 1000, &[2000]) };
        for (kind, attr) in make_each(&user, &root, &owner(Some(0), Some(3000), 0o640)) {
            assert_eq!((attr.uid, attr.gid), (1000, 3000), "{} {kind}", place.name);
        }
        clear(&server, &root);
    }
}

/// mkdir(2) drops these, and a change of owner takes them away.
#[test]
fn set_id_bits_of_new_objects_are_kept() {
    if !is_root() {
        return;
    }
    for place in places() {
        let tree = support::open(&place.directory);
        let root = tree.root().unwrap().handle;
        let user = User::new(&tree, 0, 0);
        for set in [owner(None, None, 0o6751), owner(Some(1000), Some(1000), 0o6751)] {
            for (kind, attr) in make_each(&user, &root, &set) {
                if kind != "link" {
                    assert_eq!(attr.mode, 0o6751, "{} {kind} {set:?}", place.name);
                    let there = std::fs::symlink_metadata(place.directory.join(kind)).unwrap();
                    assert_eq!(there.mode() & 0o7777, 0o6751);
                }
            }
            clear(&user, &root);
        }
    }
}
