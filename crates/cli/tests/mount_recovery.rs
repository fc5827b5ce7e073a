//! Process ring: mounts with a journal of `async` shares (docs/mount.md), whose server dies, and whose
//! server's disk loses all that was not made stable.
//!
//! `STEADFAST_CRASHES=N` is how often, where that matters; with it the server also crashes while what was lost is
//! brought back, and a small journal is full most of the time. What that still finds is in docs/journal.md (*Not
//! there yet*).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::async_share::{Async, crashes, run, wanted_crashes};
use common::mounts::{Mount, turn};
use common::workers::{self, Workers, contents};
use common::{PATIENCE, utf8};
use rustix::process::Signal;

/// What is in a tree, by path.
fn tree(at: &Path) -> BTreeMap<String, String> {
    let mut tree = BTreeMap::new();
    let mut directories = vec![at.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(at).unwrap().to_string_lossy().into_owned();
            let mode = metadata.mode() & 0o7777;
            let what = if metadata.is_dir() {
                directories.push(path);
                format!("directory {mode:o}")
            } else if metadata.is_symlink() {
                format!("to {}", fs::read_link(&path).unwrap().display())
            } else if !metadata.is_file() {
                format!("{:o}", metadata.mode())
            } else {
                let data = fs::read(&path).unwrap();
                let modified = metadata.mtime().min(2_000_000);
                format!(
                    "{mode:o} {modified} {} {}",
                    metadata.nlink(),
                    String::from_utf8_lossy(&data)
                )
            };
            // The server's own.
            if !["lost+found", ".steadfast-mark"].contains(&name.as_str()) {
                tree.insert(name, what);
            }
        }
    }
    tree
}

/// Changes of every kind. The same on a mount and on an ordinary directory.
fn change_everything(at: &Path) {
    let path = |name: &str| at.join(name);
    fs::create_dir_all(path("directory/deep")).unwrap();
    fs::write(path("directory/deep/new"), "a new file").unwrap();
    fs::rename(path("directory/deep"), path("directory/deeper")).unwrap();
    fs::write(path("directory/second"), "second").unwrap();
    fs::rename(path("old"), path("older")).unwrap();
    fs::set_permissions(path("older"), Permissions::from_mode(0o640)).unwrap();
    symlink("older", path("link")).unwrap();
    fs::hard_link(path("older"), path("directory/hard")).unwrap();
    fs::remove_file(path("gone")).unwrap();
    fs::remove_dir(path("empty")).unwrap();
    let overwritten = OpenOptions::new().write(true).open(path("overwritten")).unwrap();
    overwritten.write_all_at(b"ABC", 2).unwrap();
    overwritten.sync_all().unwrap();
    OpenOptions::new().append(true).open(path("appended")).unwrap().write_all(b" more").unwrap();
    OpenOptions::new().write(true).open(path("cut")).unwrap().set_len(3).unwrap();
    // What is replaced, and what replaces it.
    fs::write(path("temporary"), "the new content").unwrap();
    fs::rename(path("temporary"), path("replaced")).unwrap();
    let exclusive = OpenOptions::new().write(true).create_new(true).open(path("exclusive"));
    exclusive.unwrap().write_all(b"mine").unwrap();
    let again = OpenOptions::new().write(true).create_new(true).open(path("exclusive"));
    assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
    fs::create_dir(path("passing")).unwrap();
    fs::write(path("passing/file"), "x").unwrap();
    fs::remove_file(path("passing/file")).unwrap();
    fs::remove_dir(path("passing")).unwrap();
    let time = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000);
    File::open(path("timed")).unwrap().set_modified(time).unwrap();
    run("mkfifo", &[utf8(&path("pipe"))]);
}

fn begin(at: &Path) {
    for name in ["old", "gone", "overwritten", "appended", "cut", "replaced", "timed"] {
        fs::write(at.join(name), format!("the old content of {name}")).unwrap();
    }
    fs::create_dir(at.join("empty")).unwrap();
}

fn same(one: &Path, other: &Path) {
    let (one, other) = (tree(one), tree(other));
    assert!(one == other, "{one:#?}\n{other:#?}");
}

#[test]
fn what_a_server_has_lost_is_there_again_while_the_share_is_mounted() {
    let Some(_turn) = turn() else { return };
    for loses in [true, false] {
        let mut this = Async::new();
        let ideal = tempfile::tempdir().unwrap();
        begin(ideal.path());
        begin(&this.place.share);
        rustix::fs::sync();
        let mount = this.mount("");
        change_everything(ideal.path());
        change_everything(&mount.at);
        let held = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(mount.path("held"))
            .unwrap();
        held.write_all_at(b"synced", 0).unwrap();
        // What this process starts closes the file, and must not wait for the server that it starts.
        held.sync_all().unwrap();
        fs::write(ideal.path().join("held"), "synced, and more").unwrap();
        assert!(this.pending() > 10, "the journal has the changes");
        this.crash(loses);
        held.write_all_at(b", and more", 6).unwrap();
        drop(held);
        same(&mount.at, ideal.path());
        mount.unmount();
        this.has_no_conflict();
        assert_eq!(this.pending(), 0);
        // All of it is stable.
        this.crash(true);
        same(&this.place.share, ideal.path());
    }
}

#[test]
fn what_server_and_client_have_lost_together_is_sent_by_the_next_mount() {
    let Some(_turn) = turn() else { return };
    let mut this = Async::new();
    let ideal = tempfile::tempdir().unwrap();
    begin(ideal.path());
    begin(&this.place.share);
    rustix::fs::sync();
    let mount = this.mount("");
    change_everything(ideal.path());
    change_everything(&mount.at);
    // Of a directory: names and attributes.
    File::open(&mount.at).unwrap().sync_all().unwrap();
    mount.kill();
    this.crash(true);
    let mount = this.mount("");
    same(&mount.at, ideal.path());
    mount.unmount();
    this.has_no_conflict();
    assert_eq!(this.pending(), 0);
    this.crash(true);
    same(&this.place.share, ideal.path());
}

/// A program that somebody else runs on a mount, and what it has said.
fn run_beside(program: &str, arguments: &[&str]) -> Child {
    Command::new(program).args(arguments).stdout(Stdio::piped()).spawn().unwrap()
}

fn signal(mount: &Mount, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(mount.child.id() as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn nobody_sees_a_file_before_all_that_was_acknowledged_of_it_is_there_again() {
    let Some(_turn) = turn() else { return };
    let mut this = Async::new();
    fs::write(this.place.share.join("file"), "old").unwrap();
    rustix::fs::sync();
    let mount = this.mount("");
    let other = Mount::new(&this.place, this.server.as_ref().unwrap(), "other", "actimeo=0");
    let write = |text: &str| {
        let file = OpenOptions::new().write(true).truncate(true).open(mount.path("file")).unwrap();
        (&file).write_all(text.as_bytes()).unwrap();
        file.sync_all().unwrap();
    };
    write("acknowledged");
    fs::write(mount.path("new"), "new").unwrap();
    assert_eq!(fs::read_to_string(other.path("file")).unwrap(), "acknowledged");
    // The client with the journal does not come for a while.
    signal(&mount, Signal::STOP);
    this.crash(true);
    assert_eq!(fs::read_to_string(this.place.share.join("file")).unwrap(), "old", "it was lost");
    let reader = run_beside("cat", &[utf8(&other.path("file")), utf8(&other.path("new"))]);
    // It has to ask the server. What it would see now is not what was acknowledged.
    std::thread::sleep(Duration::from_secs(4));
    signal(&mount, Signal::CONT);
    let read = reader.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&read.stdout), "acknowledgednew");
    drop(other);
    mount.unmount();
    this.has_no_conflict();
    // Who has ended is not waited for.
    let recorded = || fs::read_to_string(this.place.state.join("journaling-clients")).unwrap();
    let begun = Instant::now();
    while recorded().lines().count() > 1 {
        assert!(begun.elapsed() < PATIENCE, "{}", recorded());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn who_does_not_come_is_waited_for_no_longer_than_was_said() {
    let Some(_turn) = turn() else { return };
    let mut this = Async::new();
    this.wait_s = 4;
    this.crash(false);
    let mount = this.mount("");
    fs::write(mount.path("file"), "acknowledged").unwrap();
    File::open(&mount.at).unwrap().sync_all().unwrap();
    mount.kill();
    this.crash(true);
    let begun = Instant::now();
    let other = Mount::new(&this.place, this.server.as_ref().unwrap(), "other", "");
    let gone = fs::read(other.path("file")).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    assert!(begun.elapsed() >= Duration::from_secs(2), "it was waited for: {:?}", begun.elapsed());
    // What it has comes when it comes; nobody is in its way.
    let mount = this.mount("");
    assert_eq!(fs::read_to_string(other.path("file")).unwrap(), "acknowledged");
    drop(other);
    mount.unmount();
    this.has_no_conflict();
}

/// Without a journal the same loses: so what the tests above see is no accident.
#[test]
fn without_a_journal_an_async_share_loses() {
    let Some(_turn) = turn() else { return };
    let mut this = Async::new();
    let server = this.server.as_ref().unwrap();
    let mount = Mount::new(&this.place, server, "mount", "");
    // Once in a while the server has written its log when it is killed, though nobody has waited for that.
    let loses = |name: String| {
        fs::write(mount.path(&name), "synced").unwrap();
        File::open(mount.path(&name)).unwrap().sync_all().unwrap();
        this.crash(true);
        !this.place.share.join(&name).exists()
    };
    assert!((0..20).map(|attempt| format!("file{attempt}")).any(loses), "nothing was ever lost");
    drop(mount);
}

/// A process of this program that is a worker.
#[test]
fn worker() {
    workers::work();
}

fn changes_go_on_while_the_server_crashes(loses: bool, more: &str) {
    let Some(_turn) = turn() else { return };
    let mut this = Async::new();
    let mount = this.mount(more);
    let local = tempfile::tempdir().unwrap();
    let mut workers = Workers::start(local.path(), &[&mount.at], 3);
    for crash in 0..crashes() {
        // So many changes are between two crashes that the journal has some of each kind.
        workers.await_steps(40 + 7 * (crash % 13), &format!("crash {crash}"));
        this.crash(loses);
        if wanted_crashes().is_some() && crash % 2 == 1 {
            // While what was lost is brought back.
            std::thread::sleep(Duration::from_millis(crash * 11 % 64));
            this.crash(loses);
        }
    }
    workers.await_steps(40, "after the last crash");
    let steps = workers.steps();
    let ideals = workers.finish();
    mount.unmount();
    this.has_no_conflict();
    assert_eq!(this.pending(), 0);
    this.crash(true);
    for ideal in &ideals {
        let name = ideal.file_name().unwrap();
        let (is, wanted) = (contents(&this.place.share.join(name)), contents(ideal));
        assert!(is == wanted, "{}: {:?} {:?}", name.display(), is.keys(), wanted.keys());
    }
    println!("{steps} changes, {} crashes", crashes());
}

#[test]
fn changes_go_on_while_the_server_loses_what_is_not_stable() {
    changes_go_on_while_the_server_crashes(true, ",nconnect=2");
}

#[test]
fn changes_go_on_while_the_server_is_killed() {
    let small = if wanted_crashes().is_some() { ",journal_size=1M" } else { "" };
    changes_go_on_while_the_server_crashes(false, &format!(",nconnect=3,wsize=4096{small}"));
}
