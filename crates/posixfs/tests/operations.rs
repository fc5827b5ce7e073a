//! Unit ring, on real file systems. Every operation, on every file system that can be had here. Root sees all.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::os::unix::fs::MetadataExt;

use steadfast_vfs::{
    AccessMask, Acl, AclEntry, AclTag, CreateHow, FileKind, FileSystem, FsError, NodeKind,
    ReadPlace, SetAttr, SetTime, Time, WriteHow,
};
use support::{User, as_user, cred, name, places, settle, settle_counting, with_mode};

fn on_all(test: impl Fn(&User<'_>, &support::Place)) {
    for place in places() {
        println!("on {}", place.name);
        let tree = support::open(&place.directory);
        let user = User::new(&tree, 0, 0);
        test(&user, &place);
    }
}

#[test]
fn what_is_no_directory_says_what_it_is_instead() {
    on_all(|user, place| {
        std::os::unix::fs::symlink("nowhere", place.directory.join("link")).unwrap();
        std::fs::write(place.directory.join("file"), b"").unwrap();
        for (text, kind) in [("link", FileKind::Symlink), ("file", FileKind::Regular)] {
            let object = user.lookup(&user.root(), text).unwrap().handle;
            let below = user.tree.lookup(&user.caller(), &object, name("x"));
            let above = user.tree.lookup_parent(&user.caller(), &object);
            for looked in [below, above] {
                assert_eq!(looked.result.unwrap_err(), FsError::NotDirectory, "{text}");
                assert_eq!(looked.dir_attr.map(|attr| attr.kind), Some(kind), "{text}");
            }
        }
    });
}

#[test]
fn files_are_made_written_read_and_removed() {
    on_all(|user, place| {
        let root = user.root();
        let made = user.create(&root, "a", 0o640).unwrap();
        assert_eq!((made.attr.kind, made.attr.mode, made.attr.size), (FileKind::Regular, 0o640, 0));
        assert_eq!(user.create(&root, "a", 0o640).unwrap_err(), FsError::Exists);
        assert_eq!(user.write(&made.handle, 3, b"hello").unwrap(), 5);
        assert_eq!(user.read(&made.handle, 0, 100).unwrap(), (b"\0\0\0hello".to_vec(), true));
        assert_eq!(user.read(&made.handle, 0, 4).unwrap(), (b"\0\0\0h".to_vec(), false));
        assert_eq!(user.read(&made.handle, 8, 4).unwrap(), (Vec::new(), true));
        assert_eq!(user.read(&made.handle, u64::MAX, 4).unwrap(), (Vec::new(), true));
        assert_eq!(user.read(&made.handle, 0, 0).unwrap(), (Vec::new(), false));
        let found = user.lookup(&root, "a").unwrap();
        assert_eq!(found.handle, made.handle);
        assert_eq!(found.attr.size, 8);
        assert_eq!(std::fs::read(place.directory.join("a")).unwrap(), b"\0\0\0hello");
        for (offset, data) in
            [(u64::MAX, &b"x"[..]), (i64::MAX as u64, b"x"), (u64::MAX - 1, b"xx")]
        {
            assert_eq!(user.write(&made.handle, offset, data).unwrap_err(), FsError::FileTooLarge);
        }
        assert_eq!(user.read(&root, 0, 1).unwrap_err(), FsError::IsDirectory);
        assert_eq!(user.write(&root, 0, b"x").unwrap_err(), FsError::IsDirectory);
        user.remove(&root, "a").unwrap();
        assert_eq!(user.remove(&root, "a").unwrap_err(), FsError::NotFound);
        assert_eq!(user.lookup(&root, "a").unwrap_err(), FsError::NotFound);
        assert_eq!(user.attr(&made.handle).unwrap_err(), FsError::Stale);
        assert_eq!(user.read(&made.handle, 0, 1).unwrap_err(), FsError::Stale);
    });
}

#[test]
fn directories_are_made_listed_and_removed() {
    on_all(|user, _| {
        let root = user.root();
        let dir = user.mkdir(&root, "d", 0o755).unwrap();
        assert_eq!(dir.attr.kind, FileKind::Directory);
        let file = user.create(&dir.handle, "x", 0o600).unwrap();
        assert_eq!(user.rmdir(&root, "d").unwrap_err(), FsError::NotEmpty);
        assert_eq!(user.remove(&root, "d").unwrap_err(), FsError::IsDirectory);
        assert_eq!(user.rmdir(&dir.handle, "x").unwrap_err(), FsError::NotDirectory);
        for page in [1, 2, 100] {
            let mut names = user.list(&dir.handle, page);
            names.sort_by(|a, b| a.0.cmp(&b.0));
            assert_eq!(
                names.iter().map(|n| &n.0[..]).collect::<Vec<_>>(),
                [&b"."[..], b"..", b"x"]
            );
            assert_eq!(names[0].1, dir.attr.fileid);
            assert_eq!(names[1].1, user.attr(&root).unwrap().fileid);
            assert_eq!(names[2].2.unwrap().handle, file.handle);
        }
        let names = user.list(&root, 10);
        let above = names.iter().find(|n| n.0 == b"..").unwrap();
        assert_eq!(above.1, user.attr(&root).unwrap().fileid);
        let up = user.tree.lookup_parent(&user.caller(), &dir.handle);
        assert_eq!(up.result.unwrap().handle, root);
        let up = user.tree.lookup_parent(&user.caller(), &root);
        assert_eq!(up.result.unwrap().handle, root);
        user.remove(&dir.handle, "x").unwrap();
        user.rmdir(&root, "d").unwrap();
        assert_eq!(user.attr(&dir.handle).unwrap_err(), FsError::Stale);
        assert_eq!(user.create(&dir.handle, "y", 0o600).unwrap_err(), FsError::Stale);
        assert_eq!(user.lookup(&dir.handle, "y").unwrap_err(), FsError::Stale);
    });
}

#[test]
fn links_and_special_files() {
    on_all(|user, _| {
        let root = user.root();
        let caller = user.caller();
        let link = settle(user.tree.make_symlink(
            &caller,
            &root,
            name("l"),
            b"/etc/passwd",
            &SetAttr::default(),
        ))
        .result
        .unwrap();
        assert_eq!(link.attr.kind, FileKind::Symlink);
        let mut target = b"before ".to_vec();
        user.tree.read_link(&caller, &link.handle, &mut target).unwrap();
        assert_eq!(target, b"before /etc/passwd");
        assert_eq!(user.lookup(&link.handle, "x").unwrap_err(), FsError::NotDirectory);
        assert_eq!(user.read(&link.handle, 0, 1).unwrap_err(), FsError::Invalid);
        assert!(user.set(&link.handle, &with_mode(0o600)).result.is_ok());
        let own = SetAttr { uid: Some(5), ..SetAttr::default() };
        user.set(&link.handle, &own).result.unwrap();
        assert_eq!(user.attr(&link.handle).unwrap().uid, 5);
        let fifo = settle(user.tree.make_node(
            &caller,
            &root,
            name("f"),
            NodeKind::Fifo,
            &with_mode(0o622),
        ))
        .result
        .unwrap();
        assert_eq!((fifo.attr.kind, fifo.attr.mode), (FileKind::Fifo, 0o622));
        let device = steadfast_vfs::DeviceNumber { major: 1, minor: 3 };
        let null = settle(user.tree.make_node(
            &caller,
            &root,
            name("null"),
            NodeKind::CharacterDevice(device),
            &with_mode(0o666),
        ))
        .result
        .unwrap();
        assert_eq!((null.attr.kind, null.attr.device), (FileKind::CharacterDevice, device));
        let nobody = cred(1000, 1000, &[]);
        let refused = settle(user.tree.make_node(
            &as_user(&nobody),
            &root,
            name("null2"),
            NodeKind::CharacterDevice(device),
            &with_mode(0o666),
        ));
        assert!(refused.result.is_err());
        let socket = settle(user.tree.make_node(
            &caller,
            &root,
            name("s"),
            NodeKind::Socket,
            &with_mode(0o700),
        ));
        assert_eq!(socket.result.unwrap().attr.kind, FileKind::Socket);

        let file = user.create(&root, "a", 0o600).unwrap();
        let (attr, changed) = settle(user.tree.link(&caller, &file.handle, &root, name("b")));
        changed.result.unwrap();
        assert_eq!(attr.unwrap().links, 2);
        assert_eq!(user.lookup(&root, "b").unwrap().handle, file.handle);
        user.remove(&root, "a").unwrap();
        assert_eq!(user.attr(&file.handle).unwrap().links, 1);
        let (_, refused) = settle(user.tree.link(&caller, &root, &root, name("c")));
        assert_eq!(refused.result.unwrap_err(), FsError::IsDirectory);
        let (_, refused) = settle(user.tree.link(&caller, &file.handle, &root, name("b")));
        assert_eq!(refused.result.unwrap_err(), FsError::Exists);
    });
}

#[test]
fn names_move() {
    on_all(|user, _| {
        let root = user.root();
        let [one, two] = ["one", "two"].map(|text| user.mkdir(&root, text, 0o755).unwrap().handle);
        let file = user.create(&one, "a", 0o600).unwrap();
        let rename = |from, from_name, to, to_name| {
            settle(user.tree.rename(&user.caller(), from, name(from_name), to, name(to_name)))
                .result
        };
        rename(&one, "a", &two, "b").unwrap();
        assert_eq!(user.lookup(&two, "b").unwrap().handle, file.handle);
        assert_eq!(rename(&one, "a", &two, "b").unwrap_err(), FsError::NotFound);
        let victim = user.create(&one, "v", 0o600).unwrap();
        rename(&two, "b", &one, "v").unwrap();
        assert_eq!(user.attr(&victim.handle).unwrap_err(), FsError::Stale);
        assert_eq!(user.attr(&file.handle).unwrap().links, 1);
        // A directory into itself, over a full one, over a file; a file over a directory.
        assert_eq!(rename(&root, "one", &one, "x").unwrap_err(), FsError::Invalid);
        assert_eq!(rename(&root, "two", &root, "one").unwrap_err(), FsError::NotEmpty);
        assert_eq!(rename(&root, "two", &one, "v").unwrap_err(), FsError::NotDirectory);
        assert_eq!(rename(&one, "v", &root, "two").unwrap_err(), FsError::IsDirectory);
        rename(&root, "two", &one, "two").unwrap();
        let up = user.tree.lookup_parent(&user.caller(), &two);
        assert_eq!(up.result.unwrap().handle, one);
    });
}

#[test]
fn attributes_are_set() {
    on_all(|user, _| {
        let root = user.root();
        let file = user.create(&root, "a", 0o600).unwrap().handle;
        user.write(&file, 0, b"0123456789").unwrap();
        let time = Time { seconds: 1_000_000_000, nanoseconds: 123_456_789 };
        let set = SetAttr {
            umask: 0,
            mode: Some(0o4755),
            uid: Some(1000),
            gid: Some(2000),
            size: Some(4),
            atime: SetTime::To(Time { seconds: 5, nanoseconds: 0 }),
            mtime: SetTime::To(time),
        };
        let changed = user.set(&file, &set);
        changed.result.unwrap();
        let attr = changed.wcc.after.unwrap();
        assert_eq!(changed.wcc.before.unwrap().size, 10);
        assert_eq!((attr.mode, attr.uid, attr.gid, attr.size), (0o4755, 1000, 2000, 4));
        assert_eq!((attr.mtime, attr.atime.seconds), (time, 5));
        let ctime = attr.ctime;
        let guarded = |ctime| {
            settle(user.tree.set_attributes(&user.caller(), &file, &with_mode(0o600), Some(ctime)))
                .result
        };
        assert_eq!(guarded(time).unwrap_err(), FsError::NotSync);
        guarded(ctime).unwrap();
        for bad in [
            SetAttr { uid: Some(u32::MAX), ..SetAttr::default() },
            SetAttr {
                mtime: SetTime::To(Time { seconds: 0, nanoseconds: 1_000_000_000 }),
                ..SetAttr::default()
            },
        ] {
            assert_eq!(user.set(&file, &bad).result.unwrap_err(), FsError::Invalid);
        }
        for size in [u64::MAX, i64::MAX as u64 + 1] {
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            assert_eq!(user.set(&file, &set).result.unwrap_err(), FsError::FileTooLarge);
        }
        let set = SetAttr { size: Some(1), ..SetAttr::default() };
        assert_eq!(user.set(&root, &set).result.unwrap_err(), FsError::IsDirectory);
    });
}

#[test]
fn creation_by_verifier_is_repeatable() {
    on_all(|user, _| {
        let root = user.root();
        let exclusive = |text, verifier| {
            settle(user.tree.create(
                &user.caller(),
                &root,
                name(text),
                &CreateHow::Exclusive { verifier, mode: 0, umask: 0 },
            ))
            .result
        };
        let first = exclusive("a", [0xff, 2, 3, 4, 0xfe, 6, 7, 8]).unwrap();
        let again = exclusive("a", [0xff, 2, 3, 4, 0xfe, 6, 7, 8]).unwrap();
        assert_eq!(first.handle, again.handle);
        assert_eq!(exclusive("a", [1, 2, 3, 4, 5, 6, 7, 9]).unwrap_err(), FsError::Exists);
        user.write(&first.handle, 0, b"keep").unwrap();
        let unchecked = |text, size| {
            let set = SetAttr { size, ..with_mode(0o640) };
            settle(user.tree.create(&user.caller(), &root, name(text), &CreateHow::Unchecked(set)))
                .result
        };
        assert_eq!(unchecked("a", None).unwrap().attr.size, 4);
        assert_eq!(unchecked("a", Some(2)).unwrap().attr.size, 2);
        user.mkdir(&root, "d", 0o755).unwrap();
        assert_eq!(unchecked("d", None).unwrap_err(), FsError::Exists);
        assert_eq!(unchecked("new", Some(9)).unwrap().attr.size, 9);
    });
}

#[test]
fn acls_are_kept_and_decide() {
    on_all(|user, _| {
        let root = user.root();
        user.set(&root, &with_mode(0o755));
        let file = user.create(&root, "a", 0o640).unwrap().handle;
        user.write(&file, 0, b"secret").unwrap();
        let caller = user.caller();
        let (access, default, _) = match user.tree.acls(&caller, &file) {
            Err(FsError::NotSupported) => {
                println!("skipped: no ACLs here");
                return;
            }
            acls => acls.unwrap(),
        };
        assert_eq!((access, default), (Acl::from_mode(0o640), None));
        let other = cred(1000, 1000, &[]);
        let other = as_user(&other);
        let read = |caller| {
            user.tree.read(caller, &file, 0, 9, false, &mut Vec::new()).map(|done| done.count)
        };
        assert_eq!(read(&other).unwrap_err(), FsError::AccessDenied);
        let entry = |tag, permissions| AclEntry { tag, permissions };
        let acl = Acl {
            entries: vec![
                entry(AclTag::UserObject, 6),
                entry(AclTag::User(1000), 4),
                entry(AclTag::GroupObject, 0),
                entry(AclTag::Mask, 4),
                entry(AclTag::Other, 0),
            ],
        };
        settle(user.tree.set_acls(&caller, &file, Some(&acl), None)).result.unwrap();
        assert_eq!(user.tree.acls(&caller, &file).unwrap().0, acl);
        assert_eq!(read(&other).unwrap(), 6);
        // Only the owner may change it.
        let refused = settle(user.tree.set_acls(&other, &file, Some(&Acl::from_mode(0o777)), None));
        assert_eq!(refused.result.unwrap_err(), FsError::NotPermitted);
        settle(user.tree.set_acls(&caller, &file, Some(&Acl::from_mode(0o600)), None))
            .result
            .unwrap();
        assert_eq!(user.tree.acls(&caller, &file).unwrap().0, Acl::from_mode(0o600));
        assert_eq!(read(&other).unwrap_err(), FsError::AccessDenied);
        let dir = user.mkdir(&root, "d", 0o755).unwrap().handle;
        settle(user.tree.set_acls(&caller, &dir, None, Some(&acl))).result.unwrap();
        assert_eq!(user.tree.acls(&caller, &dir).unwrap().1, Some(acl.clone()));
        settle(user.tree.set_acls(&caller, &dir, None, Some(&Acl::default()))).result.unwrap();
        assert_eq!(user.tree.acls(&caller, &dir).unwrap().1, None);
        let refused = settle(user.tree.set_acls(&caller, &file, None, Some(&acl)));
        assert_eq!(refused.result.unwrap_err(), FsError::AccessDenied);
    });
}

#[test]
fn limits_statistics_and_access() {
    on_all(|user, _| {
        let root = user.root();
        let caller = user.caller();
        let (statistics, _) = user.tree.statistics(&caller, &root).unwrap();
        assert!(
            statistics.total_bytes > 1 << 20 && statistics.free_bytes <= statistics.total_bytes
        );
        assert!(user.tree.info(&root).unwrap().file_bytes_max > 1 << 40);
        assert!(user.tree.path_limits(&root).unwrap().links_max > 1000);
        user.set(&root, &with_mode(0o755));
        let file = user.create(&root, "a", 0o644).unwrap().handle;
        let other = cred(1000, 1000, &[]);
        let asked = AccessMask::all() - AccessMask::XATTRS;
        let (granted, _) = user.tree.access(&as_user(&other), &file, asked).unwrap();
        assert_eq!(granted, AccessMask::READ);
        let (granted, _) = user.tree.access(&as_user(&other), &root, asked).unwrap();
        assert_eq!(granted, AccessMask::READ | AccessMask::LOOKUP);
        let (granted, _) = user.tree.access(&caller, &root, AccessMask::all()).unwrap();
        assert_eq!(granted, AccessMask::all() - AccessMask::EXECUTE);
    });
}

#[test]
fn promises_name_what_must_be_flushed() {
    on_all(|user, place| {
        // Of what kind the directory for temporary files is, is not known.
        if place.name == "plain" {
            return;
        }
        let root = user.root();
        let caller = user.caller();
        let is_memory = place.name == "tmpfs";
        let expect = |count: usize| if is_memory { 0 } else { count };
        // What one system call did goes with the directory where one journal orders all.
        let has_one_journal = !["btrfs", support::WITHOUT_JOURNAL].contains(&place.name);
        let expect_names = |count: usize| if has_one_journal { expect(1) } else { count };
        let how = CreateHow::Guarded(with_mode(0o644));
        let (made, count) = settle_counting(user.tree.create(&caller, &root, name("a"), &how));
        let expect_made = if place.name == "xfs" { 2 } else { expect_names(2) };
        assert_eq!(count, expect_made);
        let file = made.result.unwrap().handle;
        let (failed, count) = settle_counting(user.tree.create(&caller, &root, name("a"), &how));
        assert!(failed.result.is_err());
        assert_eq!(count, 0);
        let write = |how| settle_counting(user.tree.write(&caller, &file, 0, b"data", how));
        let (written, count) = write(WriteHow::Unstable);
        assert_eq!(count, 0);
        assert_eq!(written.result.unwrap().committed == WriteHow::FileSync, is_memory);
        assert_eq!(settle_counting(user.tree.commit(&caller, &file, 0, 0)).1, expect(1));
        let (written, count) = write(WriteHow::FileSync);
        assert_eq!((written.result.unwrap().committed, count), (WriteHow::FileSync, expect(1)));
        let (written, count) = write(WriteHow::DataSync);
        assert!(written.result.unwrap().committed >= WriteHow::DataSync);
        assert_eq!(count, expect(1));
        assert_eq!(
            settle_counting(user.tree.set_attributes(&caller, &file, &with_mode(0o600), None)).1,
            expect(1)
        );
        let dir =
            settle_counting(user.tree.make_directory(&caller, &root, name("d"), &with_mode(0o755)));
        assert_eq!(dir.1, expect_made);
        let dir = dir.0.result.unwrap().handle;
        assert_eq!(
            settle_counting(user.tree.link(&caller, &file, &dir, name("b"))).1,
            expect_names(2)
        );
        assert_eq!(settle_counting(user.tree.remove(&caller, &root, name("a"))).1, expect_names(2));
        assert_eq!(
            settle_counting(user.tree.rename(&caller, &dir, name("b"), &root, name("c"))).1,
            expect_names(3)
        );
        assert_eq!(settle_counting(user.tree.remove(&caller, &root, name("c"))).1, expect(1));
        let link = settle_counting(user.tree.make_symlink(
            &caller,
            &root,
            name("l"),
            b"x",
            &SetAttr::default(),
        ));
        assert!(link.1 >= expect(1));
        // A link cannot be flushed by itself: its file system is.
        let link = link.0.result.unwrap().handle;
        let own = SetAttr { uid: Some(3), ..SetAttr::default() };
        assert_eq!(
            settle_counting(user.tree.set_attributes(&caller, &link, &own, None)).1,
            expect(1)
        );
        assert_eq!(
            settle_counting(user.tree.remove_directory(&caller, &root, name("d"))).1,
            expect(1)
        );
    });
}

#[test]
fn large_cached_reads_are_places() {
    on_all(|user, place| {
        let root = user.root();
        let file = user.create(&root, "a", 0o644).unwrap().handle;
        let data: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        user.write(&file, 0, &data).unwrap();
        let mut into = Vec::new();
        let done = user.tree.read(&user.caller(), &file, 4096, 131_072, true, &mut into).unwrap();
        assert_eq!((done.count, done.is_end), (131_072, false));
        if let ReadPlace::File(range) = done.place {
            assert!(into.is_empty());
            let mut sent = vec![0; range.length as usize];
            rustix::io::pread(range.file.as_fd(), &mut sent[..], range.offset).unwrap();
            assert_eq!(sent, data[4096..4096 + 131_072]);
        } else {
            println!("{}: not a place", place.name);
            assert_eq!(into, data[4096..4096 + 131_072]);
        }
        let small = user.tree.read(&user.caller(), &file, 0, 100, true, &mut into).unwrap();
        assert!(matches!(small.place, ReadPlace::Appended));
    });
}

/// Whoever finds a file finds all of it, and so does a crash.
#[test]
fn a_file_has_its_attributes_when_it_gets_its_name() {
    on_all(|user, place| {
        let tree = user.tree;
        let root = user.root();
        let time = Time { seconds: 1_000_000_000, nanoseconds: 5 };
        let set = SetAttr {
            size: Some(5000),
            uid: Some(70),
            gid: Some(71),
            mtime: SetTime::To(time),
            ..with_mode(0o640)
        };
        let files = 200;
        let path = |number: usize| place.directory.join(format!("whole-{number}"));
        let seen = |number: usize| {
            let found = std::fs::metadata(path(number)).ok()?;
            Some((found.size(), found.uid(), found.gid(), found.mtime(), found.mode() & 0o7777))
        };
        let expected = (5000, 70, 71, time.seconds, 0o640);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..files {
                    let found = std::iter::from_fn(|| Some(seen(number))).flatten().next();
                    assert_eq!(found, Some(expected), "{}", place.name);
                }
            });
            for number in 0..files {
                let text = format!("whole-{number}");
                let how = CreateHow::Guarded(set);
                settle(tree.create(&user.caller(), &root, name(&text), &how)).result.unwrap();
            }
        });
        // What is there stays as it is.
        let guarded = CreateHow::Guarded(SetAttr { size: Some(9), ..set });
        let existing = settle(tree.create(&user.caller(), &root, name("whole-0"), &guarded));
        assert_eq!(existing.result.unwrap_err(), FsError::Exists);
        assert_eq!(seen(0), Some(expected));
        let unchecked = CreateHow::Unchecked(SetAttr { size: Some(9), ..set });
        settle(tree.create(&user.caller(), &root, name("whole-0"), &unchecked)).result.unwrap();
        assert_eq!(seen(0).map(|(size, ..)| size), Some(9));
        // Set-id bits stay, though a file that is given away loses them.
        let owned = CreateHow::Guarded(SetAttr { uid: Some(70), ..with_mode(0o4755) });
        let made = settle(tree.create(&user.caller(), &root, name("set-id"), &owned)).result;
        let made = made.unwrap().attr;
        assert_eq!((made.uid, made.mode), (70, 0o4755));
        // What is there comes before what may not be made.
        let other = User::new(tree, 50, 50);
        user.set(&root, &with_mode(0o755)).result.unwrap();
        for how in [CreateHow::Exclusive { verifier: [7; 8], mode: 0, umask: 0 }, guarded] {
            let refused = settle(tree.create(&other.caller(), &root, name("whole-0"), &how));
            assert_eq!(refused.result.unwrap_err(), FsError::Exists);
            let refused = settle(tree.create(&other.caller(), &root, name("refused"), &how));
            assert_eq!(refused.result.unwrap_err(), FsError::AccessDenied);
        }
        // Who may not give it away makes it for himself.
        user.set(&root, &with_mode(0o777)).result.unwrap();
        let how = CreateHow::Guarded(set);
        let made = settle(tree.create(&other.caller(), &root, name("kept"), &how));
        assert_eq!(made.result.unwrap().attr.uid, 50);
    });
}
