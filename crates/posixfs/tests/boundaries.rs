//! Unit ring, on real file systems. What must not be possible, and what must survive: escapes from the share, other users'
//! files, full disks, handles after a restart. Most need root.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use steadfast_posixfs::{Mode, OpenError, Tree, TreeOptions};
use steadfast_vfs::{
    Acl, AclEntry, AclTag, Attr, Caller, CreateHow, FileSystem, FsError, SetAttr, SetTime, Time,
    Waiting, WriteHow, permission,
};
use support::{User, as_user, cred, is_root, mounted, name, places, plain, settle, with_mode};

#[test]
fn handles_survive_the_tree() {
    for place in places() {
        println!("on {}", place.name);
        let tree = support::open(&place.directory);
        let user = User::new(&tree, 0, 0);
        let root = user.root();
        let dir = user.mkdir(&root, "d", 0o755).unwrap();
        let kept = user.create(&dir.handle, "kept", 0o600).unwrap();
        let removed = user.create(&dir.handle, "removed", 0o600).unwrap();
        let link =
            settle(tree.make_symlink(&user.caller(), &root, name("l"), b"to", &SetAttr::default()));
        let link = link.result.unwrap();
        user.write(&kept.handle, 0, b"kept").unwrap();
        drop(tree);
        std::fs::remove_file(place.directory.join("d/removed")).unwrap();
        std::fs::rename(place.directory.join("d/kept"), place.directory.join("moved")).unwrap();
        // The number may be given to another file at once; the handle must not be.
        for index in 0..20 {
            std::fs::write(place.directory.join(format!("new-{index}")), b"").unwrap();
        }
        let tree = support::open(&place.directory);
        assert_eq!(tree.mode(), Mode::KernelHandles);
        let user = User::new(&tree, 0, 0);
        assert_eq!(user.root(), root);
        assert_eq!(user.read(&kept.handle, 0, 9).unwrap().0, b"kept");
        let attr = user.attr(&kept.handle).unwrap();
        assert_eq!((attr.fsid, attr.fileid), (kept.attr.fsid, kept.attr.fileid));
        assert_eq!(user.attr(&dir.handle).unwrap().fileid, dir.attr.fileid);
        assert_eq!(user.attr(&removed.handle).unwrap_err(), FsError::Stale);
        let mut target = Vec::new();
        tree.read_link(&user.caller(), &link.handle, &mut target).unwrap();
        assert_eq!(target, b"to");
        // What nobody made is refused, whatever it says.
        for bytes in
            [&[][..], &[0], &[7; 20], &[1, 1, 2, 3, 4, 1, 0, 9, 9, 9, 9, 9, 9, 9, 9], &[0; 44]]
        {
            let forged = steadfast_vfs::StorageHandle::new(bytes).unwrap();
            let error = user.attr(&forged).unwrap_err();
            assert!(matches!(error, FsError::BadHandle | FsError::Stale), "{bytes:?}: {error:?}");
        }
    }
}

#[test]
fn calls_that_may_not_wait_say_so() {
    let place = plain();
    let tree = support::open(&place.directory);
    let user = User::new(&tree, 0, 0);
    let root = user.root();
    let file = user.create(&root, "a", 0o600).unwrap().handle;
    drop(tree);
    let tree = support::open(&place.directory);
    let user = User::new(&tree, 0, 0);
    let never = Caller::new(&user.cred, Waiting::Never);
    assert_eq!(tree.attributes(&never, &file), Err(FsError::WouldOpen));
    tree.attributes(&Caller { waiting: Waiting::ToOpen, ..never }, &file).unwrap();
    tree.attributes(&never, &file).unwrap();
}

#[test]
fn nothing_outside_the_share_is_reached() {
    let place = plain();
    let above = place.directory.parent().unwrap();
    std::fs::write(above.join("secret"), b"secret").unwrap();
    symlink("/", place.directory.join("link")).unwrap();
    std::fs::create_dir_all(place.directory.join("a/b")).unwrap();
    std::fs::create_dir(above.join("outside")).unwrap();
    let tree = support::open(&place.directory);
    let user = User::new(&tree, 0, 0);
    let root = user.root();
    let link = user.lookup(&root, "link").unwrap();
    assert_eq!(user.lookup(&link.handle, "etc").unwrap_err(), FsError::NotDirectory);
    let up = tree.lookup_parent(&user.caller(), &root).result.unwrap();
    assert_eq!(up.handle, root);
    let a = user.lookup(&root, "a").unwrap();
    let b = user.lookup(&a.handle, "b").unwrap();
    // A local process takes a directory out of the share.
    std::fs::rename(place.directory.join("a"), above.join("outside/a")).unwrap();
    let up = tree.lookup_parent(&user.caller(), &a.handle);
    assert_eq!(up.result.unwrap_err(), FsError::Stale);
    let up = tree.lookup_parent(&user.caller(), &b.handle);
    assert_eq!(up.result.unwrap_err(), FsError::Stale);
    drop(tree);
    let tree = support::open(&place.directory);
    let user = User::new(&tree, 0, 0);
    assert_eq!(user.attr(&a.handle).unwrap_err(), FsError::Stale);
    assert_eq!(user.attr(&b.handle).unwrap_err(), FsError::Stale);
}

#[test]
fn mounts_beneath_are_not_crossed_unless_asked() {
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    let place = plain();
    let beneath = place.directory.join("m");
    std::fs::create_dir(&beneath).unwrap();
    std::fs::write(beneath.join("hidden"), b"").unwrap();
    let other = mounted("tmpfs", 8).unwrap();
    std::fs::write(other.directory.join("inner"), b"inner").unwrap();
    std::fs::create_dir(other.directory.join("dir")).unwrap();
    let bound = Command::new("mount").arg("--bind").args([&other.directory, &beneath]).status();
    assert!(bound.unwrap().success());
    let outcome = std::panic::catch_unwind(|| {
        let tree = support::open(&place.directory);
        let user = User::new(&tree, 0, 0);
        let m = user.lookup(&user.root(), "m").unwrap();
        assert_eq!(user.lookup(&m.handle, "inner").unwrap_err(), FsError::NotFound);
        user.lookup(&m.handle, "hidden").unwrap();
        drop(tree);

        let options = TreeOptions { share_id: 7, crosses_mounts: true, ..TreeOptions::default() };
        let open = || Tree::open(&place.directory, &options, &support::storage()).unwrap();
        let tree = open();
        let user = User::new(&tree, 0, 0);
        let root = tree.root().unwrap();
        let m = user.lookup(&root.handle, "m").unwrap();
        assert_ne!(m.attr.fsid, root.attr.fsid);
        let inner = user.lookup(&m.handle, "inner").unwrap();
        let dir = user.lookup(&m.handle, "dir").unwrap();
        assert_eq!(inner.attr.fsid, m.attr.fsid);
        let listed = user.list(&root.handle, 9);
        assert_eq!(
            listed.iter().find(|entry| entry.0 == b"m").unwrap().2.unwrap().handle,
            m.handle
        );
        let up = tree.lookup_parent(&user.caller(), &m.handle).result.unwrap();
        assert_eq!(up.handle, root.handle);
        drop(tree);
        let tree = open();
        let user = User::new(&tree, 0, 0);
        assert_eq!(user.read(&inner.handle, 0, 9).unwrap().0, b"inner");
        assert_eq!(user.attr(&inner.handle).unwrap().fsid, inner.attr.fsid);
        let up = tree.lookup_parent(&user.caller(), &dir.handle).result.unwrap();
        assert_eq!(up.handle, m.handle);
        user.create(&m.handle, "new", 0o600).unwrap();
        let across =
            settle(tree.rename(&user.caller(), &m.handle, name("new"), &root.handle, name("new")));
        assert_eq!(across.result.unwrap_err(), FsError::CrossDevice);
    });
    assert!(Command::new("umount").arg("-l").arg(&beneath).status().unwrap().success());
    outcome.unwrap();
}

#[test]
fn the_kernel_decides_about_names() {
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    let place = plain();
    let tree = support::open(&place.directory);
    let server = User::new(&tree, 0, 0);
    let root = server.root();
    server.set(&root, &with_mode(0o755));
    let user = User::new(&tree, 1000, 1000);
    assert_eq!(user.create(&root, "a", 0o600).unwrap_err(), FsError::AccessDenied);
    assert_eq!(user.mkdir(&root, "a", 0o700).unwrap_err(), FsError::AccessDenied);
    // Write without search: the capability kept for handles must not open this door.
    let dir = server.mkdir(&root, "w", 0o777).unwrap().handle;
    let file = server.create(&dir, "there", 0o666).unwrap().handle;
    server.set(&dir, &with_mode(0o722));
    for result in [
        user.create(&dir, "a", 0o600).map(drop),
        user.mkdir(&dir, "a", 0o700).map(drop),
        user.remove(&dir, "there"),
        user.create(&dir, "there", 0o600).map(drop),
        user.lookup(&dir, "there").map(drop),
        settle(tree.link(&user.caller(), &file, &dir, name("b"))).1.result,
        settle(tree.rename(&user.caller(), &dir, name("there"), &dir, name("b"))).result,
    ] {
        assert_eq!(result.unwrap_err(), FsError::AccessDenied);
    }
    // The sticky bit: only one's own.
    server.set(&dir, &with_mode(0o1777));
    assert_eq!(user.remove(&dir, "there").unwrap_err(), FsError::NotPermitted);
    let own = user.create(&dir, "own", 0o444).unwrap();
    assert_eq!((own.attr.uid, own.attr.gid), (1000, 1000));
    // The owner may write what its mode forbids, nobody else may.
    user.write(&own.handle, 0, b"mine").unwrap();
    let other = User::new(&tree, 1001, 1001);
    assert_eq!(other.write(&own.handle, 0, b"x").unwrap_err(), FsError::AccessDenied);
    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
    assert_eq!(other.set(&own.handle, &cut).result.unwrap_err(), FsError::AccessDenied);
    user.set(&own.handle, &cut).result.unwrap();
    assert_eq!(
        other.set(&own.handle, &with_mode(0o777)).result.unwrap_err(),
        FsError::NotPermitted
    );
    let give = SetAttr { uid: Some(1001), ..SetAttr::default() };
    assert_eq!(user.set(&own.handle, &give).result.unwrap_err(), FsError::NotPermitted);
    // Files made to belong to another belong to whom they would belong otherwise.
    let how = CreateHow::Guarded(SetAttr { uid: Some(0), ..with_mode(0o600) });
    let made = settle(tree.create(&user.caller(), &dir, name("given"), &how));
    assert_eq!(made.result.unwrap().attr.uid, 1000);
    // Times to the present for those who may write; to others for the owner.
    let shared = server.create(&dir, "shared", 0o666).unwrap().handle;
    let now =
        SetAttr { atime: SetTime::ServerTime, mtime: SetTime::ServerTime, ..SetAttr::default() };
    user.set(&shared, &now).result.unwrap();
    let past = SetAttr { mtime: SetTime::To(Time::default()), ..SetAttr::default() };
    assert_eq!(user.set(&shared, &past).result.unwrap_err(), FsError::NotPermitted);
    // An owner's ACL.
    let acl = Acl::from_mode(0o640);
    settle(tree.set_acls(&user.caller(), &own.handle, Some(&acl), None)).result.unwrap();
    // The group that a directory gives on.
    let given = server.mkdir(&root, "g", 0o755).unwrap().handle;
    server.set(&given, &SetAttr { gid: Some(2000), mode: Some(0o2777), ..SetAttr::default() });
    assert_eq!(user.create(&given, "a", 0o600).unwrap().attr.gid, 2000);
}

#[test]
fn anothers_write_clears_set_id_bits() {
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    let place = plain();
    let tree = support::open(&place.directory);
    let server = User::new(&tree, 0, 0);
    let file = server.create(&server.root(), "a", 0o6777).unwrap().handle;
    assert_eq!(server.attr(&file).unwrap().mode, 0o6777);
    let user = User::new(&tree, 1000, 1000);
    user.write(&file, 0, b"x").unwrap();
    assert_eq!(server.attr(&file).unwrap().mode & 0o6000, 0);
}

#[test]
fn who_may_write_may_cut_and_set_one_time_to_now() {
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    let place = plain();
    let tree = support::open(&place.directory);
    let server = User::new(&tree, 0, 0);
    let writable = server.create(&server.root(), "writable", 0o666).unwrap().handle;
    let readable = server.create(&server.root(), "readable", 0o644).unwrap().handle;
    let user = User::new(&tree, 1000, 1000);
    // What a Linux client sends for O_TRUNC.
    let cut = SetAttr { size: Some(0), mtime: SetTime::ServerTime, ..SetAttr::default() };
    let touch = SetAttr { mtime: SetTime::ServerTime, ..SetAttr::default() };
    let exact =
        SetAttr { mtime: SetTime::To(Time { seconds: 1, nanoseconds: 0 }), ..SetAttr::default() };
    let old =
        SetAttr { mtime: SetTime::To(Time { seconds: 2, nanoseconds: 0 }), ..SetAttr::default() };
    for set in [cut, touch] {
        server.set(&writable, &old).result.unwrap();
        user.set(&writable, &set).result.unwrap();
        assert!(server.attr(&writable).unwrap().mtime.seconds > 2);
        assert_eq!(user.set(&readable, &set).result.unwrap_err(), FsError::AccessDenied);
    }
    assert_eq!(user.set(&writable, &exact).result.unwrap_err(), FsError::NotPermitted);
}

#[test]
fn a_full_disk_is_told() {
    let Some(place) = mounted("ext4", 16) else { return };
    let tree = support::open(&place.directory);
    let server = User::new(&tree, 0, 0);
    let root = server.root();
    server.set(&root, &with_mode(0o777));
    let user = User::new(&tree, 1000, 1000);
    let file = user.create(&root, "a", 0o644).unwrap().handle;
    let data = vec![1; 1 << 20];
    let mut offset = 0;
    let error = loop {
        match user.write(&file, offset, &data) {
            Ok(count) => offset += u64::from(count),
            Err(error) => break error,
        }
        assert!(offset < 64 << 20);
    };
    assert_eq!(error, FsError::NoSpace);
    // The reserve is the superuser's.
    assert_eq!(server.write(&file, offset, &data[..4096]), Ok(4096));
    let (statistics, _) = tree.statistics(&user.caller(), &root).unwrap();
    assert!(statistics.available_bytes < statistics.free_bytes || statistics.free_bytes == 0);
    user.remove(&root, "a").unwrap();
    // A process that another test is just starting has a copy of our descriptors for a moment.
    let is_freed = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        tree.statistics(&user.caller(), &root).unwrap().0.free_bytes > statistics.free_bytes
    });
    assert!(is_freed, "removal frees the space of a file that was held open");
}

#[test]
fn local_changes_are_seen_and_sweeps_let_go() {
    let place = plain();
    let storage = support::storage();
    let tree = Tree::open(&place.directory, &TreeOptions::default(), &storage).unwrap();
    let user = User::new(&tree, 0, 0);
    let root = user.root();
    let file = user.create(&root, "a", 0o600).unwrap().handle;
    user.write(&file, 0, b"abc").unwrap();
    let path = place.directory.join("a");
    std::fs::write(&path, b"changed").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o751)).unwrap();
    let attr = user.attr(&file).unwrap();
    assert_eq!(
        (attr.size, attr.mode, attr.fileid),
        (7, 0o751, std::fs::metadata(&path).unwrap().ino())
    );
    assert_eq!(user.read(&file, 0, 9).unwrap().0, b"changed");
    let held = storage.descriptors();
    std::fs::remove_file(&path).unwrap();
    for _ in 0..8 {
        storage.sweep();
    }
    assert!(storage.descriptors() < held);
    // While another test mounts or unmounts, the table of mounts may be in between.
    let error = (0..1000).find_map(|_| match user.attr(&file) {
        Err(FsError::TryLater) => {
            std::thread::sleep(std::time::Duration::from_millis(10));
            None
        }
        other => Some(other.unwrap_err()),
    });
    assert_eq!(error, Some(FsError::Stale));
    drop(tree);
    assert_eq!((storage.descriptors(), storage.objects()), (0, 0));
}

#[test]
fn a_file_just_written_can_soon_be_executed() {
    let place = plain();
    let storage = support::storage();
    let tree = Tree::open(&place.directory, &TreeOptions::default(), &storage).unwrap();
    let user = User::new(&tree, 0, 0);
    let program = std::fs::read("/bin/true").unwrap();
    for (run, is_flushed_alone) in [("alone", true), ("with-all", false)] {
        let file = user.create(&user.root(), run, 0o755).unwrap().handle;
        let written = tree.write(&user.caller(), &file, 0, &program, WriteHow::FileSync);
        let settle = if is_flushed_alone { settle } else { support::settle_with_all };
        settle(written).result.unwrap();
        for _ in 0..24 {
            storage.sweep();
        }
        // A process that another test is just starting has a copy of our descriptors for a moment.
        let status =
            (0..1000).find_map(|_| match Command::new(place.directory.join(run)).status() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    None
                }
                other => Some(other.unwrap()),
            });
        assert!(status.is_some_and(|status| status.success()), "{run}");
    }
}

#[test]
fn what_was_made_through_us_is_let_go_when_it_is_idle_and_flushed() {
    let place = plain();
    let storage = support::storage();
    let tree = Tree::open(&place.directory, &TreeOptions::default(), &storage).unwrap();
    let user = User::new(&tree, 0, 0);
    let [flushed, unflushed] =
        ["flushed", "unflushed"].map(|name| user.create(&user.root(), name, 0o644).unwrap().handle);
    settle(tree.write(&user.caller(), &unflushed, 0, b"x", WriteHow::Unstable)).result.unwrap();
    let held = (storage.objects(), storage.descriptors());
    for _ in 0..24 {
        storage.sweep();
    }
    // One each: what it was made with.
    assert_eq!((storage.objects(), storage.descriptors()), (held.0 - 1, held.1 - 1));
    assert_eq!(user.attr(&flushed).unwrap().size, 0);
    settle(tree.commit(&user.caller(), &unflushed, 0, 0)).result.unwrap();
    for _ in 0..24 {
        storage.sweep();
    }
    assert_eq!(storage.objects(), held.0 - 1);
}

#[test]
fn descriptors_stay_within_their_budget() {
    let place = plain();
    let storage =
        steadfast_posixfs::Storage::new(steadfast_posixfs::StorageOptions { descriptors_max: 50 });
    let tree = Tree::open(&place.directory, &TreeOptions::default(), &storage).unwrap();
    let user = User::new(&tree, 0, 0);
    let root = user.root();
    let mut files = Vec::new();
    for index in 0..300 {
        let file = user.create(&root, &format!("f{index}"), 0o600).unwrap().handle;
        let text = index.to_string();
        settle(tree.write(&user.caller(), &file, 0, text.as_bytes(), WriteHow::Unstable))
            .result
            .unwrap();
        files.push((file, text));
        assert!(storage.descriptors() < 60, "{}", storage.descriptors());
    }
    for (file, text) in &files {
        assert_eq!(user.read(file, 0, 9).unwrap().0, text.as_bytes());
        assert!(storage.descriptors() < 60, "{} {storage:?}", storage.descriptors());
    }
}

#[test]
fn listing_while_names_come_and_go() {
    for place in places() {
        println!("on {}", place.name);
        {
            let tree = support::open(&place.directory);
            let user = User::new(&tree, 0, 0);
            let root = user.root();
            for index in 0..4000 {
                std::fs::write(place.directory.join(format!("stay-{index}")), b"").unwrap();
                std::fs::write(place.directory.join(format!("go-{index}")), b"").unwrap();
            }
            let mut seen = std::collections::HashMap::<Vec<u8>, u32>::new();
            let (mut cookie, mut page) = (0, 0);
            loop {
                let mut told = 0;
                let done = tree
                    .read_directory(&user.caller(), &root, cookie, page % 3 == 0, &mut |entry| {
                        told += 1;
                        if told > 40 {
                            return false;
                        }
                        cookie = entry.cookie;
                        *seen.entry(entry.name.to_vec()).or_default() += 1;
                        true
                    })
                    .unwrap();
                if done.is_end {
                    break;
                }
                for index in page * 30..page * 30 + 30 {
                    let _ = std::fs::remove_file(place.directory.join(format!("go-{index}")));
                    if index < 4000 {
                        std::fs::write(place.directory.join(format!("come-{index}")), b"").unwrap();
                    }
                }
                page += 1;
            }
            assert!(page > 100);
            for index in 0..4000 {
                assert_eq!(seen.get(format!("stay-{index}").as_bytes()), Some(&1), "stay-{index}");
            }
            assert!(seen.iter().all(|(_, count)| *count == 1));
        }
        let tree = support::open(&place.directory);
        let bad = tree.read_directory(
            &as_user(&cred(0, 0, &[])),
            &tree.root().unwrap().handle,
            u64::MAX,
            false,
            &mut |_| true,
        );
        assert_eq!(bad.unwrap_err(), FsError::BadCookie);
    }
}

#[test]
fn what_cannot_be_a_tree_is_refused_clearly() {
    let place = plain();
    std::fs::write(place.directory.join("file"), b"").unwrap();
    let open = |path: &str| {
        Tree::open(&place.directory.join(path), &TreeOptions::default(), &support::storage())
    };
    assert!(matches!(open("none"), Err(OpenError::Open { .. })));
    assert!(matches!(open("file"), Err(OpenError::NotDirectory(_))));
}

/// The checks made here against what the kernel says to a thread of that identity.
#[test]
fn permissions_agree_with_the_kernel() {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};

    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    let place = plain();
    std::fs::set_permissions(&place.directory, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(place.directory.parent().unwrap(), PermissionsExt::from_mode(0o755))
        .unwrap();
    let tree = support::open(&place.directory);
    let server = User::new(&tree, 0, 0);
    let root = server.root();
    let file = server.create(&root, "f", 0o600).unwrap().handle;
    let dir = server.mkdir(&root, "d", 0o700).unwrap().handle;
    let tag = prop_oneof![(0_u32..4).prop_map(AclTag::User), (0_u32..4).prop_map(AclTag::Group)];
    let acl = proptest::option::of((
        proptest::collection::btree_map(tag, 0_u8..8, 0..4),
        [0_u8..8, 0_u8..8, 0_u8..8, 0_u8..8],
    ));
    let strategy = (
        (0_u32..0o1000, 0_u32..4, 0_u32..4, any::<bool>()),
        (0_u32..4, 0_u32..4, proptest::collection::vec(0_u32..4, 0..3)),
        acl,
    );
    let mut runner =
        TestRunner::new(Config { cases: 600, failure_persistence: None, ..Config::default() });
    runner
        .run(&strategy, |((mode, owner, group, is_dir), (uid, gid, groups), acl)| {
            let (object, text) = if is_dir { (&dir, "d") } else { (&file, "f") };
            let set = SetAttr {
                mode: Some(mode),
                uid: Some(owner),
                gid: Some(group),
                ..SetAttr::default()
            };
            server.set(object, &set).result.unwrap();
            let list = acl.map_or_else(
                || Acl::from_mode(mode),
                |(named, [user, group, mask, other])| {
                    let entry = |tag, permissions| AclEntry { tag, permissions };
                    let mut entries = vec![
                        entry(AclTag::UserObject, user),
                        entry(AclTag::GroupObject, group),
                        entry(AclTag::Other, other),
                        entry(AclTag::Mask, mask),
                    ];
                    entries.extend(named.into_iter().map(|(tag, bits)| entry(tag, bits)));
                    entries.sort_by_key(|entry| entry.tag);
                    Acl { entries }
                },
            );
            settle(tree.set_acls(&server.caller(), object, Some(&list), None)).result.unwrap();
            let who = cred(uid, gid, &groups);
            let attr: Attr = server.attr(object).unwrap();
            let kernel = kernel_rights(&place.directory.join(text), uid, gid, &groups);
            let (kept, _, _) = tree.acls(&server.caller(), object).unwrap();
            let (granted, _) =
                tree.access(&as_user(&who), object, steadfast_vfs::AccessMask::all()).unwrap();
            for wanted in 1..8 {
                // As the kernel: the list is asked only when its mask grants something.
                let asked = (attr.mode & 0o070 != 0).then_some(&kept);
                let ours = permission::is_allowed(&attr, asked, &who, wanted);
                prop_assert_eq!(
                    ours,
                    kernel & (1 << wanted) != 0,
                    "{} {:?} {:?}",
                    wanted,
                    attr,
                    kept
                );
            }
            let may = |right| granted.contains(right);
            prop_assert_eq!(may(steadfast_vfs::AccessMask::READ), kernel & (1 << 4) != 0);
            let search = if is_dir {
                steadfast_vfs::AccessMask::LOOKUP
            } else {
                steadfast_vfs::AccessMask::EXECUTE
            };
            prop_assert_eq!(may(search), kernel & (1 << 1) != 0);
            let change = if is_dir { 3 } else { 2 };
            prop_assert_eq!(may(steadfast_vfs::AccessMask::MODIFY), kernel & (1 << change) != 0);
            Ok(())
        })
        .unwrap();
}

/// Bit `n` is set if the kernel grants the permissions `n` to a thread of that identity without
/// any capability to override (but the superuser's own).
fn kernel_rights(path: &std::path::Path, uid: u32, gid: u32, groups: &[u32]) -> u32 {
    use steadfast_sys::identity::{self, Capability};
    std::thread::scope(|scope| {
        let rights = scope.spawn(|| {
            identity::assume(uid, gid, groups).unwrap();
            let (effective, _) = identity::capabilities().unwrap();
            if uid != 0 {
                identity::set_effective(effective.without(Capability::DAC_READ_SEARCH)).unwrap();
            }
            (1..8).fold(0, |rights, wanted| {
                let access = rustix::fs::Access::from_bits_retain(wanted);
                let flags = rustix::fs::AtFlags::EACCESS;
                let granted = rustix::fs::accessat(rustix::fs::CWD, path, access, flags);
                rights | u32::from(granted.is_ok()) << wanted
            })
        });
        rights.join().unwrap()
    })
}

#[test]
fn a_quota_is_told() {
    let Some(place) = mounted("btrfs", 128) else { return };
    let volume = place.directory.join("v");
    let btrfs = |args: &[&str]| {
        let done = Command::new("btrfs").args(args).arg(&volume).output();
        done.is_ok_and(|output| output.status.success())
    };
    let quota = Command::new("btrfs").args(["quota", "enable"]).arg(&place.directory).output();
    let ready = quota.is_ok_and(|output| output.status.success())
        && btrfs(&["subvolume", "create"])
        && btrfs(&["qgroup", "limit", "4M"]);
    if !ready {
        println!("skipped: no quota groups here");
        return;
    }
    let tree = support::open(&place.directory);
    let server = User::new(&tree, 0, 0);
    let volume = server.lookup(&server.root(), "v").unwrap();
    // A subvolume is a file system of its own: its root has the number that every root has.
    assert_ne!(volume.attr.fsid, server.attr(&server.root()).unwrap().fsid);
    server.set(&volume.handle, &with_mode(0o777)).result.unwrap();
    let user = User::new(&tree, 1000, 1000);
    let file = user.create(&volume.handle, "a", 0o600).unwrap().handle;
    let data = vec![1; 256 << 10];
    let error = (0..64_u64).find_map(|index| user.write(&file, index << 18, &data).err());
    assert_eq!(error, Some(FsError::QuotaExceeded));
    drop(tree);
    let tree = support::open(&place.directory);
    let user = User::new(&tree, 1000, 1000);
    assert_eq!(user.attr(&file).unwrap().fsid, volume.attr.fsid);
}

/// `wcc` of one object, from many threads, makes one chain: nothing of ours came between the
/// attributes before a change and those after it, whatever the cache evicted meanwhile.
#[test]
fn changes_of_one_object_have_one_order() {
    let place = plain();
    let storage =
        steadfast_posixfs::Storage::new(steadfast_posixfs::StorageOptions { descriptors_max: 8 });
    let tree = Tree::open(&place.directory, &TreeOptions::default(), &storage).unwrap();
    let user = User::new(&tree, 0, 0);
    let root = user.root();
    let dir = user.mkdir(&root, "d", 0o755).unwrap().handle;
    let file = user.create(&dir, "f", 0o600).unwrap().handle;
    let steps: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u32)
            .map(|thread| {
                let (tree, root, file) = (&tree, &root, &file);
                scope.spawn(move || {
                    let user = User::new(tree, 0, 0);
                    let mut steps = Vec::new();
                    for round in 0..200 {
                        // Other objects, so that this one is evicted now and then.
                        let text = format!("t{thread}-{round}");
                        user.create(root, &text, 0o600).unwrap();
                        let durable = tree.set_attributes(
                            &user.caller(),
                            file,
                            &with_mode(0o600 + round % 8),
                            None,
                        );
                        let changed = durable.release(&steadfast_vfs::ReplyBarrier::for_engine()).0;
                        changed.result.unwrap();
                        let wcc = changed.wcc;
                        steps.push((wcc.before.unwrap().ctime, wcc.after.unwrap().ctime));
                        user.remove(root, &text).unwrap();
                    }
                    steps
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut steps = steps;
    steps.sort_unstable();
    for pair in steps.windows(2) {
        assert_eq!(pair[0].1, pair[1].0, "a change began before the one before it had ended");
    }
}

#[test]
fn names_are_moved_by_many_at_once() {
    let place = plain();
    let tree = support::open(&place.directory);
    let user = User::new(&tree, 0, 0);
    let root = user.root();
    let dirs: Vec<_> =
        (0..3).map(|n| user.mkdir(&root, &format!("d{n}"), 0o755).unwrap().handle).collect();
    for thread in 0..4 {
        user.create(&dirs[0], &format!("f{thread}"), 0o600).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (tree, dirs) = (&tree, &dirs);
            scope.spawn(move || {
                let user = User::new(tree, 1000 * thread as u32, 0);
                let server = User::new(tree, 0, 0);
                let text = format!("f{thread}");
                for round in 0..300 {
                    let from = &dirs[(round * (thread + 1)) % 3];
                    let to = &dirs[((round + 1) * (thread + 1)) % 3];
                    let moved = tree.rename(&server.caller(), from, name(&text), to, name(&text));
                    let moved = moved.release(&steadfast_vfs::ReplyBarrier::for_engine()).0;
                    assert_eq!(moved.result, Ok(()));
                    // Another identity on the same thread, in turn.
                    let refused = user.create(&dirs[0], "refused", 0o600);
                    assert_eq!(refused.is_err(), thread != 0 || round != 0);
                }
            });
        }
    });
    let mut left: Vec<_> = dirs
        .iter()
        .flat_map(|dir| user.list(dir, 50))
        .map(|entry| entry.0)
        .filter(|name| name[0] == b'f')
        .collect();
    left.sort();
    assert_eq!(left, [b"f0", b"f1", b"f2", b"f3"]);
}
