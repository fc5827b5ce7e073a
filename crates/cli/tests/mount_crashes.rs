//! Process ring: what fsync, close and `O_SYNC` writes have promised on a mount with a journal (docs/mount.md) is
//! there after crashes of server and client, and when the journal's ring or its disk is full.
//!
//! `STEADFAST_CRASHES=N` is how often.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::async_share::{Async, Disk, crashes, run};
use common::mounts::{Mount, stop, turn};
use common::promises::{self, Writer, kept};
use common::{PATIENCE, ended, utf8};

/// A process of this program that writes.
#[test]
fn promised_writer() {
    promises::write();
}

/// Clients, each with a mount, a journal, and a directory of its own at the server.
struct Clients {
    names: Vec<String>,
    notes: tempfile::TempDir,
}

impl Clients {
    /// Their directories are made, and stay.
    fn new(this: &Async, count: usize) -> Self {
        let names: Vec<_> = (0..count).map(|number| format!("mount{number}")).collect();
        for name in &names {
            fs::create_dir(this.place.share.join(name)).unwrap();
        }
        run("sync", &["--file-system", utf8(&this.place.share)]);
        Self { names, notes: tempfile::tempdir().unwrap() }
    }

    fn notes(&self, name: &str) -> PathBuf {
        self.notes.path().join(name)
    }

    fn write(&self, mounts: &[Mount]) -> Vec<Writer> {
        let of =
            |(name, mount): (&String, &Mount)| Writer::start(&mount.path(name), &self.notes(name));
        self.names.iter().zip(mounts).map(of).collect()
    }

    /// What was promised, and what of it is not below this directory.
    fn lost(&self, at: impl Fn(&str) -> PathBuf) -> (usize, Vec<String>) {
        let mut all = (0, Vec::new());
        for name in &self.names {
            let kept = kept(&at(name), &self.notes(name));
            all.0 += kept.promises;
            all.1.extend(kept.lost.into_iter().map(|it| format!("{name}: {it}")));
        }
        all
    }
}

fn log(this: &Async, name: &str) -> String {
    fs::read_to_string(this.place.directory.path().join(format!("{name}.log"))).unwrap()
}

/// Power cuts of the server and of all its clients, at the same time.
fn all_crash_together(count: usize) {
    let Some(_turn) = turn() else { return };
    let mut this = Async::new();
    let clients = Clients::new(&this, count);
    // The journals are on a disk that can lose something, too.
    let at = this.place.directory.path().canonicalize().unwrap().join("journals");
    let mut disk = Disk::new(&this.place, "journals", &at);
    let mount = |this: &Async, name: &str| {
        let options = format!("journal={},journal_size=64M", utf8(&at.join(name)));
        Mount::new(&this.place, this.server.as_ref().unwrap(), name, &options)
    };
    let (mut lost_by_the_server, mut promises) = (0, 0);
    for crash in 0..crashes() {
        let mounts: Vec<Mount> = clients.names.iter().map(|name| mount(&this, name)).collect();
        let mut writers = clients.write(&mounts);
        for writer in &mut writers {
            writer.await_promises(30 + 13 * (crash as usize % 7));
        }
        if crash % 2 == 0 {
            this.die();
        }
        for mount in mounts {
            mount.kill();
        }
        disk.cut();
        if crash % 2 == 1 {
            this.die();
        }
        writers.into_iter().for_each(Writer::end);
        this.come(true);
        lost_by_the_server += clients.lost(|name| this.place.share.join(name)).1.len();
        let mounts: Vec<Mount> = clients.names.iter().map(|name| mount(&this, name)).collect();
        let lost;
        (promises, lost) = clients.lost(|name| this.place.directory.path().join(name).join(name));
        assert!(lost.is_empty(), "crash {crash}: {lost:#?}\n{}", log(&this, &clients.names[0]));
        mounts.into_iter().for_each(Mount::unmount);
        // All of it is stable.
        this.crash(true);
        let (_, lost) = clients.lost(|name| this.place.share.join(name));
        assert!(lost.is_empty(), "after crash {crash}, at the server: {lost:#?}");
    }
    assert!(lost_by_the_server > 0, "the server's disk is to lose something");
    println!(
        "{} crashes of a server and {count} clients, {promises} promises: the server alone would have broken \
         {lost_by_the_server}, with the journals 0 were broken",
        crashes()
    );
}

#[test]
fn nothing_promised_is_lost_when_server_and_client_crash_together() {
    all_crash_together(1);
}

#[test]
fn nothing_promised_is_lost_when_a_server_and_two_clients_crash_together() {
    all_crash_together(2);
}

/// So what the tests above see is no accident.
#[test]
fn without_a_journal_promises_are_broken() {
    let Some(_turn) = turn() else { return };
    let mut this = Async::new();
    let clients = Clients::new(&this, 1);
    let mount = || Mount::new(&this.place, this.server.as_ref().unwrap(), "mount0", "");
    let mounts = [mount()];
    let mut writers = clients.write(&mounts);
    writers[0].await_promises(50);
    this.die();
    let [mount] = mounts;
    mount.kill();
    writers.into_iter().for_each(Writer::end);
    this.come(true);
    let (promises, lost) = clients.lost(|name| this.place.share.join(name));
    assert!(!lost.is_empty(), "{promises} promises, and none was broken");
    println!("without a journal {} of {promises} promises were broken", lost.len());
}

/// A process that has a file open, and writes 4 MB to it when it is told to.
struct Filling(Child);

impl Filling {
    fn new(this: &Async, mount: &Mount) -> Self {
        let line = "exec >\"$0\"; read go; exec dd if=/dev/zero bs=4k count=1000 status=none";
        let mut command = Command::new("sh");
        command.args(["-c", line, utf8(&mount.path("filling"))]).stdin(Stdio::piped());
        let filling = Self(command.spawn().unwrap());
        wait_until("the file is not there", || this.place.share.join("filling").exists());
        filling
    }

    fn begin(&mut self) {
        self.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }

    fn end(mut self) -> bool {
        ended(&mut self.0, "dd").success()
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_full_ring_loses_nothing_in_a_crash() {
    let Some(_turn) = turn() else { return };
    for client_crashes in [false, true] {
        let mut this = Async::new();
        let clients = Clients::new(&this, 1);
        let mounts = [this.mount_as("mount0", ",journal_size=1M")];
        let mut writers = clients.write(&mounts);
        for _ in 0..crashes() {
            writers[0].await_promises(40);
            this.crash(true);
        }
        writers[0].await_promises(40);
        // From now on the server makes no room.
        let mut filling = Filling::new(&this, &mounts[0]);
        let times_full = || log(&this, "mount0").matches("the journal is full").count();
        let before = times_full();
        stop(this.server.as_ref().unwrap());
        filling.begin();
        wait_until("the journal is not full", || times_full() > before);
        let [mount] = mounts;
        if client_crashes {
            this.die();
            mount.kill();
            writers.into_iter().for_each(Writer::end);
            assert!(!filling.end());
            this.come(true);
        } else {
            this.crash(true);
            assert!(filling.end());
            writers[0].await_promises(40);
            writers.into_iter().for_each(Writer::end);
            assert_eq!(fs::metadata(mount.path("filling")).unwrap().len(), 1000 * 4096);
            mount.unmount();
        }
        let mount = this.mount_as("mount0", "");
        let (promises, lost) = clients.lost(|name| mount.path(name));
        assert!(lost.is_empty(), "{lost:#?}\n{}", log(&this, "mount0"));
        mount.unmount();
        this.crash(true);
        let (_, lost) = clients.lost(|name| this.place.share.join(name));
        assert!(lost.is_empty(), "at the server: {lost:#?}");
        println!("{promises} promises with a ring that was full, 0 broken");
    }
}

/// Writes until there is no room left.
fn fill(directory: &Path) {
    let file = directory.join("filling");
    let mut file = fs::File::create(file).unwrap();
    for chunk in [1 << 16, 4096, 1] {
        while file.write_all(&vec![1; chunk]).is_ok() {}
    }
}

/// A file system in memory, of so many MiB.
struct Memory(PathBuf);

impl Memory {
    fn new(at: PathBuf, mib: u32) -> Self {
        fs::create_dir_all(&at).unwrap();
        run("mount", &["-t", "tmpfs", "-o", &format!("size={mib}M"), "tmpfs", utf8(&at)]);
        Self(at)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_journal_whose_disk_is_full_loses_nothing_in_a_crash() {
    let Some(_turn) = turn() else { return };
    let mut this = Async::new();
    let clients = Clients::new(&this, 1);
    let place = this.place.directory.path().canonicalize().unwrap();
    let memory = Memory::new(place.join("memory"), 8);
    let options =
        |size: u32| format!("journal={},journal_size={size}M", utf8(&memory.0.join("journal")));
    // There is no room for such a ring: that is said before anything is written.
    let at = place.join("refused");
    fs::create_dir(&at).unwrap();
    let port = this.server.as_ref().unwrap().address.port();
    let source = format!("127.0.0.1:{}", utf8(&this.place.share));
    let all = format!("port={port},mountport={port},nolock,{}", options(64));
    let refused = common::output(&["mount", "-o", &all, &source, utf8(&at)]);
    assert_eq!(refused.status.code(), Some(32), "{refused:?}");
    assert!(common::stderr(&refused).contains("space"), "{}", common::stderr(&refused));

    let server = this.server.as_ref().unwrap();
    let mount = Mount::new(&this.place, server, "mount0", &options(2));
    fill(&memory.0);
    let mounts = [mount];
    let mut writers = clients.write(&mounts);
    for _ in 0..crashes() {
        writers[0].await_promises(60);
        this.crash(true);
    }
    writers[0].await_promises(60);
    this.die();
    let [mount] = mounts;
    mount.kill();
    writers.into_iter().for_each(Writer::end);
    this.come(true);
    let before = clients.lost(|name| this.place.share.join(name)).1.len();
    let mount = Mount::new(&this.place, this.server.as_ref().unwrap(), "mount0", &options(2));
    let (promises, lost) = clients.lost(|name| mount.path(name));
    assert!(lost.is_empty(), "{lost:#?}\n{}", log(&this, "mount0"));
    mount.unmount();
    println!("{promises} promises, {before} of them in the journal alone: 0 broken");
}

/// From then on the server keeps what is promised.
#[test]
fn a_journal_whose_disk_fails_loses_nothing_in_a_crash() {
    let Some(_turn) = turn() else { return };
    let mut this = Async::new();
    let clients = Clients::new(&this, 1);
    let at = this.place.directory.path().canonicalize().unwrap().join("journals");
    let disk = Disk::new(&this.place, "journals", &at);
    let options = format!("journal={},journal_size=64M", utf8(&at.join("journal")));
    let mounts = [Mount::new(&this.place, this.server.as_ref().unwrap(), "mount0", &options)];
    let mut writers = clients.write(&mounts);
    writers[0].await_promises(100);
    disk.fail();
    wait_until("nobody says that the journal has failed", || {
        log(&this, "mount0").contains("the journal is not used any more")
    });
    let status = common::output(&["mount", "status", utf8(&mounts[0].at)]);
    let status = String::from_utf8_lossy(&status.stdout);
    assert!(status.contains("FAILED, each write waits for the server"), "{status}");
    for _ in 0..crashes() {
        writers[0].await_promises(40);
        this.crash(true);
        assert!(!writers[0].has_ended());
    }
    writers[0].await_promises(40);
    // What is promised now is so by the server.
    this.die();
    let [mount] = mounts;
    mount.kill();
    writers.into_iter().for_each(Writer::end);
    this.come(true);
    let (promises, lost) = clients.lost(|name| this.place.share.join(name));
    assert!(lost.is_empty(), "{lost:#?}\n{}", log(&this, "mount0"));
    println!("{promises} promises with a journal whose disk has failed, 0 broken");
}
