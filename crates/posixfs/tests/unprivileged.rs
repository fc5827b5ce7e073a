//! Unit ring, on real file systems. Handles kept in a store: one user without capabilities. Each runs in a
//! thread that gave its capabilities up, or as it is where there are none.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::os::unix::fs::chown;
use std::path::Path;

use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use steadfast_posixfs::{Mode, OpenError, Tree, TreeOptions};
use steadfast_vfs::{FileKind, FileSystem, FsError, SetAttr};
use support::{User, is_root, name, plain, settle};

const USER: u32 = 1000;

fn unprivileged(test: impl FnOnce(&Path, u32) + Send) {
    with_capabilities(CapabilitySet::empty(), test);
}

/// Runs a test in a thread of one user that kept no capabilities but these.
fn with_capabilities(kept: CapabilitySet, test: impl FnOnce(&Path, u32) + Send) {
    let place = plain();
    let uid = if is_root() { USER } else { rustix::process::geteuid().as_raw() };
    if is_root() {
        chown(place.directory.parent().unwrap(), Some(USER), Some(USER)).unwrap();
        chown(&place.directory, Some(USER), Some(USER)).unwrap();
    }
    let outcome = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                if is_root() {
                    let (user, group) = (Uid::from_raw(USER), Gid::from_raw(USER));
                    rustix::thread::set_keep_capabilities(true).unwrap();
                    rustix::thread::set_thread_groups(&[]).unwrap();
                    rustix::thread::set_thread_res_gid(group, group, group).unwrap();
                    rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                    let inheritable = CapabilitySet::empty();
                    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable };
                    rustix::thread::set_capabilities(None, sets).unwrap();
                }
                test(&place.directory, uid);
            })
            .join()
    });
    outcome.unwrap();
}

fn open(directory: &Path) -> Tree {
    let options = TreeOptions {
        share_id: 9,
        state_directory: Some(directory.with_file_name("state")),
        ..TreeOptions::default()
    };
    let tree = Tree::open(directory, &options, &support::storage()).unwrap();
    assert_eq!(tree.mode(), Mode::StoredHandles);
    tree
}

#[test]
fn without_a_state_directory_it_says_what_is_missing() {
    unprivileged(|directory, _| {
        let error =
            Tree::open(directory, &TreeOptions::default(), &support::storage()).unwrap_err();
        assert!(matches!(error, OpenError::NoHandles { .. }));
        assert!(error.to_string().contains("CAP_DAC_READ_SEARCH"), "{error}");
    });
}

#[test]
fn stored_handles_survive_restart_rename_and_removal() {
    unprivileged(|directory, uid| {
        let tree = open(directory);
        let user = User::new(&tree, uid, uid);
        let root = user.root();
        let dir = user.mkdir(&root, "d", 0o755).unwrap().handle;
        let deep = user.mkdir(&dir, "deep", 0o755).unwrap().handle;
        let file = user.create(&deep, "file", 0o600).unwrap();
        user.write(&file.handle, 0, b"text").unwrap();
        let moved = user.create(&dir, "before", 0o600).unwrap().handle;
        let gone = user.create(&dir, "gone", 0o600).unwrap().handle;
        settle(tree.rename(&user.caller(), &dir, name("before"), &dir, name("before")))
            .result
            .unwrap();
        let linked = user.create(&dir, "one", 0o600).unwrap().handle;
        let caller = user.caller();
        settle(tree.rename(&caller, &dir, name("before"), &root, name("after"))).result.unwrap();
        settle(tree.rename(&caller, &root, name("d"), &root, name("e"))).result.unwrap();
        settle(tree.link(&caller, &linked, &root, name("two"))).1.result.unwrap();
        user.remove(&dir, "one").unwrap();
        user.remove(&dir, "gone").unwrap();
        assert_eq!(user.attr(&gone).unwrap_err(), FsError::Stale);
        drop(tree);

        let tree = open(directory);
        let user = User::new(&tree, uid, uid);
        assert_eq!(user.root(), root);
        assert_eq!(user.read(&file.handle, 0, 9).unwrap().0, b"text");
        assert_eq!(user.attr(&file.handle).unwrap().fsid, file.attr.fsid);
        assert_eq!(user.attr(&dir).unwrap().kind, FileKind::Directory);
        user.attr(&moved).unwrap();
        user.attr(&linked).unwrap();
        assert_eq!(user.attr(&gone).unwrap_err(), FsError::Stale);
        assert_eq!(user.lookup(&deep, "file").unwrap().handle, file.handle);
        let up = tree.lookup_parent(&user.caller(), &deep).result.unwrap();
        assert_eq!(up.handle, dir);
        let up = tree.lookup_parent(&user.caller(), &dir).result.unwrap();
        assert_eq!(up.handle, root);
    });
}

#[test]
fn handles_survive_renaming_that_fails() {
    unprivileged(|directory, uid| {
        let tree = open(directory);
        let user = User::new(&tree, uid, uid);
        let root = user.root();
        let file = user.create(&root, "file", 0o600).unwrap().handle;
        for text in ["one", "two", "three"] {
            user.mkdir(&root, text, 0o755).unwrap();
            let moved = settle(tree.rename(&user.caller(), &root, name("file"), &root, name(text)));
            assert_eq!(moved.result.unwrap_err(), FsError::IsDirectory);
        }
        drop(tree);
        let tree = open(directory);
        User::new(&tree, uid, uid).attr(&file).unwrap();
    });
}

#[test]
fn what_local_processes_do_is_found_or_stale() {
    unprivileged(|directory, uid| {
        let tree = open(directory);
        let user = User::new(&tree, uid, uid);
        let root = user.root();
        let file = user.create(&root, "file", 0o600).unwrap().handle;
        let other = user.create(&root, "other", 0o600).unwrap().handle;
        drop(tree);
        std::fs::rename(directory.join("file"), directory.join("elsewhere")).unwrap();
        // Another file under the old name.
        std::fs::remove_file(directory.join("other")).unwrap();
        std::fs::write(directory.join("other"), b"new").unwrap();
        let tree = open(directory);
        let user = User::new(&tree, uid, uid);
        assert_eq!(user.attr(&file).unwrap_err(), FsError::Stale);
        assert_eq!(user.attr(&other).unwrap_err(), FsError::Stale);
        assert_ne!(user.lookup(&root, "other").unwrap().handle, other);
        // Looked up where it is now, it is itself again.
        assert_eq!(user.lookup(&root, "elsewhere").unwrap().handle, file);
        drop(tree);
        let tree = open(directory);
        User::new(&tree, uid, uid).attr(&file).unwrap();
    });
}

#[test]
fn listings_give_handles_that_last() {
    unprivileged(|directory, uid| {
        for index in 0..2000 {
            std::fs::write(directory.join(format!("f{index}")), b"").unwrap();
        }
        let tree = open(directory);
        let user = User::new(&tree, uid, uid);
        let listed = user.list(&user.root(), 100);
        assert_eq!(listed.len(), 2002);
        drop(tree);
        let tree = open(directory);
        let user = User::new(&tree, uid, uid);
        for (text, fileid, entry) in &listed {
            if text != b".." {
                assert_eq!(user.attr(&entry.unwrap().handle).unwrap().fileid, *fileid);
            }
        }
    });
}

#[test]
fn nothing_is_done_that_the_user_may_not() {
    unprivileged(|directory, uid| {
        let tree = open(directory);
        let user = User::new(&tree, uid, uid);
        let root = user.root();
        let file = user.create(&root, "file", 0o600).unwrap().handle;
        let give = SetAttr { uid: Some(0), ..SetAttr::default() };
        assert_eq!(user.set(&file, &give).result.unwrap_err(), FsError::NotPermitted);
        std::os::unix::fs::symlink("/etc", directory.join("link")).unwrap();
        let link = user.lookup(&root, "link").unwrap();
        assert_eq!(link.attr.kind, FileKind::Symlink);
        assert_eq!(user.lookup(&link.handle, "passwd").unwrap_err(), FsError::NotDirectory);
        std::fs::create_dir(directory.join("out")).unwrap();
        let out = user.lookup(&root, "out").unwrap().handle;
        std::fs::rename(directory.join("out"), directory.with_file_name("out")).unwrap();
        let up = tree.lookup_parent(&user.caller(), &out);
        assert_eq!(up.result.unwrap_err(), FsError::Stale);
    });
}

/// The kernel's handles and one user: who may read everything, and be nobody else.
#[test]
fn with_kernel_handles_alone_the_servers_own_user_is_served() {
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    with_capabilities(CapabilitySet::DAC_READ_SEARCH, |directory, uid| {
        let options = TreeOptions { share_id: 9, ..TreeOptions::default() };
        let open = || Tree::open(directory, &options, &support::storage()).unwrap();
        let tree = open();
        assert_eq!(tree.mode(), Mode::KernelHandles);
        let user = User::new(&tree, uid, uid);
        let dir = user.mkdir(&user.root(), "d", 0o755).unwrap().handle;
        let file = user.create(&dir, "file", 0o644).unwrap().handle;
        drop(tree);
        let tree = open();
        let user = User::new(&tree, uid, uid);
        assert_eq!(user.write(&file, 0, b"text"), Ok(4));
        user.set(&file, &support::with_mode(0o600)).result.unwrap();
        assert_eq!(user.read(&file, 0, 9).unwrap().0, b"text");
        let other = User::new(&tree, uid + 1, uid);
        assert_eq!(other.create(&dir, "other", 0o600).unwrap_err(), FsError::NotPermitted);
        user.remove(&dir, "file").unwrap();
    });
}

/// A client that created a file its owner may not open writes it for as long as it has it open,
/// which the server cannot see.
#[test]
fn files_that_their_owner_may_not_open_stay_writable() {
    unprivileged(|directory, uid| {
        let storage = support::storage();
        let options = TreeOptions {
            share_id: 9,
            state_directory: Some(directory.with_file_name("state")),
            ..TreeOptions::default()
        };
        let tree = Tree::open(directory, &options, &storage).unwrap();
        let user = User::new(&tree, uid, uid);
        let root = user.root();
        let [closed, blind, program] = [("closed", 0o444), ("blind", 0o200), ("program", 0o555)]
            .map(|(text, mode)| user.create(&root, text, mode).unwrap().handle);
        let plain = user.create(&root, "plain", 0o644).unwrap().handle;
        user.write(&plain, 0, b"x").unwrap();
        let sweep = |rounds: usize| (0..rounds * 8).for_each(|_| storage.sweep());
        sweep(3);
        for file in [&closed, &blind, &program, &plain] {
            assert_eq!(user.write(file, 0, b"text"), Ok(4));
        }
        sweep(40);
        assert_eq!(user.write(&closed, 4, b"more"), Ok(4));
        // A program is not kept from being executed for ever.
        assert_eq!(user.write(&program, 4, b"more"), Err(FsError::AccessDenied));
        drop(tree);
        // What may be written and not read is opened for writing.
        let tree = Tree::open(directory, &options, &storage).unwrap();
        let user = User::new(&tree, uid, uid);
        let cut = SetAttr { size: Some(2), ..SetAttr::default() };
        let changed = tree.set_attributes(&user.caller(), &blind, &cut, None);
        settle(changed).result.unwrap();
        assert_eq!(user.write(&blind, 2, b"xt"), Ok(2));
        assert_eq!(user.attr(&blind).unwrap().size, 4);
    });
}

/// A directory served from an overlay's upper layer, with a file `d/below` in the lower one.
fn on_overlay(test: impl FnOnce(&Path) + std::panic::UnwindSafe) {
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    let place = plain();
    let above = place.directory.parent().unwrap();
    for layer in ["lower", "upper", "work"] {
        std::fs::create_dir(above.join(layer)).unwrap();
    }
    std::fs::create_dir(above.join("lower/d")).unwrap();
    std::fs::write(above.join("lower/d/below"), b"below").unwrap();
    let options =
        format!("lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work", above.display());
    let mounted = std::process::Command::new("mount")
        .args(["-t", "overlay", "-o", &options, "overlay"])
        .arg(&place.directory)
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("skipped: cannot mount an overlay");
        return;
    }
    let directory = place.directory.clone();
    let outcome = std::panic::catch_unwind(move || test(&directory));
    let unmounted = std::process::Command::new("umount").arg("-l").arg(&place.directory).status();
    assert!(unmounted.unwrap().success());
    outcome.unwrap();
}

#[test]
fn what_may_not_be_read_can_be_made_stable() {
    unprivileged(|directory, uid| {
        let tree = open(directory);
        let user = User::new(&tree, uid, uid);
        let drop_box = user.mkdir(&user.root(), "drop-box", 0o700).unwrap().handle;
        let closed = SetAttr { mode: Some(0o300), ..SetAttr::default() };
        user.set(&drop_box, &closed).result.unwrap();
        drop(tree);
        // Another server, which has nothing of it open.
        let tree = open(directory);
        let user = User::new(&tree, uid, uid);
        user.create(&drop_box, "letter", 0o600).unwrap();
    });
}

#[test]
fn a_file_system_without_handles_is_served_from_a_store() {
    on_overlay(|directory| {
        let tree = open(directory);
        let user = User::new(&tree, 0, 0);
        let root = user.root();
        let made = user.create(&root, "made", 0o644).unwrap().handle;
        user.write(&made, 0, b"made").unwrap();
        // The thread served somebody else, in a tree where users are told apart.
        steadfast_sys::identity::assume(USER, USER, &[]).unwrap();
        user.create(&root, "also", 0o600).unwrap();
        let dir = user.lookup(&root, "d").unwrap().handle;
        let below = user.lookup(&dir, "below").unwrap().handle;
        assert_eq!(user.read(&below, 0, 9).unwrap().0, b"below");
        drop(tree);
        let tree = open(directory);
        let user = User::new(&tree, 0, 0);
        assert_eq!(user.read(&made, 0, 9).unwrap().0, b"made");
        assert_eq!(user.read(&below, 0, 9).unwrap().0, b"below");
    });
}

#[test]
fn handles_outlive_a_copy_to_the_upper_layer() {
    on_overlay(|directory| {
        let tree = open(directory);
        let user = User::new(&tree, 0, 0);
        let dir = user.lookup(&user.root(), "d").unwrap().handle;
        let below = user.lookup(&dir, "below").unwrap().handle;
        assert_eq!(user.read(&below, 0, 9).unwrap().0, b"below");
        user.write(&below, 0, b"above").unwrap();
        assert_eq!(user.read(&below, 0, 9).unwrap().0, b"above");
        drop(tree);
        let tree = open(directory);
        let user = User::new(&tree, 0, 0);
        assert_eq!(user.attr(&dir).unwrap().kind, FileKind::Directory);
        assert_eq!(user.read(&below, 0, 9).unwrap().0, b"above");
        assert_eq!(user.lookup(&dir, "below").unwrap().handle, below);
    });
}

/// A number given to another file would bring the old file's handle with it.
#[test]
fn a_file_system_without_times_of_birth_is_refused() {
    unprivileged(|directory, _| {
        let options = TreeOptions {
            state_directory: Some(directory.with_file_name("state")),
            ..TreeOptions::default()
        };
        let refused = Tree::open(Path::new("/proc"), &options, &support::storage());
        let error = refused.unwrap_err();
        assert!(matches!(error, OpenError::NoBirths { .. }), "{error}");
    });
}
