//! Process tests: mounts with a journal of `async` shares (docs/mount.md), whose server dies, and whose
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
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::mounts::{Mount, turn};
use common::{PATIENCE, Place, Running, utf8};
use rustix::mount::UnmountFlags;
use rustix::process::Signal;

/// How often the server crashes, if that was said.
fn wanted_crashes() -> Option<u64> {
    std::env::var("STEADFAST_CRASHES").ok().and_then(|text| text.parse().ok())
}

fn crashes() -> u64 {
    wanted_crashes().unwrap_or(3)
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect(program);
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}

/// An ext4 file system of its own, which can lose all that is not stable on it.
struct Disk {
    image: PathBuf,
    at: PathBuf,
}

impl Disk {
    fn new(place: &Place) -> Self {
        let image = place.directory.path().canonicalize().unwrap().join("image");
        File::create(&image).unwrap().set_len(256 << 20).unwrap();
        run("mkfs.ext4", &["-q", utf8(&image)]);
        let disk = Self { image, at: place.share.clone() };
        fs::create_dir_all(&disk.at).unwrap();
        disk.mount();
        fs::set_permissions(&disk.at, Permissions::from_mode(0o777)).unwrap();
        rustix::fs::sync();
        disk
    }

    fn mount(&self) {
        // Nothing is made stable by the passing of time.
        run("mount", &["-o", "loop,commit=1000", utf8(&self.image), utf8(&self.at)]);
    }

    /// Everything since the last flush is lost, as in a power cut.
    fn cut(&self) {
        run("xfs_io", &["-x", "-c", "shutdown", utf8(&self.at)]);
        let begun = Instant::now();
        while let Err(error) = rustix::mount::unmount(&self.at, UnmountFlags::empty()) {
            assert!(begun.elapsed() < PATIENCE, "{error}");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.mount();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.at, UnmountFlags::DETACH);
    }
}

/// A place whose share is an `async` one, on a disk of its own.
struct Async {
    place: Place,
    disk: Disk,
    server: Option<Running>,
    port: u16,
    /// How long clients are waited for, in seconds.
    wait_s: u64,
}

impl Async {
    fn new() -> Self {
        let place = Place::new();
        let disk = Disk::new(&place);
        let mut this = Self { place, disk, server: None, port: 0, wait_s: 90 };
        this.serve();
        this
    }

    fn serve(&mut self) {
        let configuration = self.place.write(
            "steadfast.toml",
            &format!(
                "[server]\nrecovery_wait_s = {}\n[log]\nsize_mib = 16\n[[share]]\npath = {:?}\nclients = [\"*\"]\n\
                 options = [\"no_root_squash\", \"async\"]\n",
                self.wait_s,
                utf8(&self.place.share)
            ),
        );
        let server = Running::start(&self.place, self.port, &["--config", utf8(&configuration)]);
        self.port = server.address.port();
        self.server = Some(server);
    }

    /// The server dies, its disk loses what is not stable, and it comes again.
    fn crash(&mut self, loses: bool) {
        let server = self.server.take().unwrap();
        server.signal(Signal::KILL);
        server.wait();
        if loses {
            self.disk.cut();
        }
        self.serve();
    }

    fn journal(&self) -> PathBuf {
        self.place.directory.path().canonicalize().unwrap().join("journal")
    }

    fn mount(&self, more: &str) -> Mount {
        let options = format!("journal={}{more}", utf8(&self.journal()));
        Mount::new(&self.place, self.server.as_ref().unwrap(), "mount", &options)
    }

    fn pending(&self) -> usize {
        steadfast_journal::care::look(&self.journal()).expect("a journal").pending.len()
    }

    /// Nobody else has changed anything.
    fn has_no_conflict(&self) {
        let log = fs::read_to_string(self.place.directory.path().join("mount.log")).unwrap();
        assert!(!self.journal().join("conflicts").exists(), "{log}");
        assert!(!log.contains("conflict"), "{log}");
    }
}

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
    fs::write(mount.path("file"), "synced").unwrap();
    let file = File::open(mount.path("file")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    this.crash(true);
    let lost = fs::read(this.place.share.join("file")).unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::NotFound);
    drop(mount);
}

/// A process that changes its own directory, and knows what has to be there.
struct Worker {
    at: PathBuf,
    random: u64,
    files: BTreeMap<String, Vec<u8>>,
    directories: Vec<String>,
}

impl Worker {
    fn new(at: PathBuf, seed: u64) -> Self {
        fs::create_dir(&at).unwrap();
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { at, random, files: BTreeMap::new(), directories: Vec::new() }
    }

    fn choose(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn name(&mut self) -> String {
        format!("f{}", self.choose(12))
    }

    fn known(&mut self) -> Option<String> {
        let index = self.choose(self.files.len().max(1) as u64) as usize;
        self.files.keys().nth(index).cloned()
    }

    fn data(&mut self) -> Vec<u8> {
        let (bytes, first) = (1 + self.choose(20_000) as usize, self.choose(256) as u8);
        (0..bytes).map(|at| first.wrapping_add((at / 7) as u8)).collect()
    }

    /// One change. Nothing of it may fail, whatever becomes of the server.
    fn step(&mut self) {
        match self.choose(100) {
            0..25 => {
                let (name, data) = (self.name(), self.data());
                fs::write(self.at.join(&name), &data).unwrap();
                self.files.insert(name, data);
            }
            25..50 => {
                let Some(name) = self.known() else { return };
                let (offset, data) = (self.choose(20_000) as usize, self.data());
                let file = OpenOptions::new().write(true).open(self.at.join(&name)).unwrap();
                file.write_all_at(&data, offset as u64).unwrap();
                if self.choose(3) == 0 {
                    file.sync_all().unwrap();
                }
                let known = self.files.get_mut(&name).unwrap();
                known.resize(known.len().max(offset + data.len()), 0);
                known[offset..offset + data.len()].copy_from_slice(&data);
            }
            50..65 => {
                let (Some(from), to) = (self.known(), self.name()) else { return };
                fs::rename(self.at.join(&from), self.at.join(&to)).unwrap();
                let data = self.files.remove(&from).unwrap();
                self.files.insert(to, data);
            }
            65..75 => {
                let Some(name) = self.known() else { return };
                fs::remove_file(self.at.join(&name)).unwrap();
                self.files.remove(&name);
            }
            75..83 => {
                let name = self.name();
                let made =
                    OpenOptions::new().write(true).create_new(true).open(self.at.join(&name));
                assert_eq!(made.is_err(), self.files.contains_key(&name), "{name}: {made:?}");
                self.files.entry(name).or_default();
            }
            83..90 => {
                let Some(name) = self.known() else { return };
                let size = self.choose(20_000);
                let file = OpenOptions::new().write(true).open(self.at.join(&name)).unwrap();
                file.set_len(size).unwrap();
                self.files.get_mut(&name).unwrap().resize(size as usize, 0);
            }
            90..95 => {
                let name = format!("d{}", self.choose(1 << 40));
                fs::create_dir(self.at.join(&name)).unwrap();
                self.directories.push(name);
            }
            _ => {
                let Some(name) = self.directories.pop() else { return };
                fs::remove_dir(self.at.join(&name)).unwrap();
            }
        }
    }

    /// What has to be there is, and nothing else.
    fn check(&self, at: &Path) {
        let mut found: Vec<_> = fs::read_dir(at)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort_unstable();
        let mut wanted: Vec<_> = self.files.keys().chain(&self.directories).cloned().collect();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "names in {}", at.display());
        for (name, data) in &self.files {
            let is = fs::read(at.join(name)).unwrap();
            let differs = is.iter().zip(data).position(|(one, other)| one != other);
            let sizes = (is.len(), data.len());
            assert!(is == *data, "{name} in {}: {sizes:?}, from {differs:?}", at.display());
        }
    }
}

/// What a process of this program is told that is a worker. It is one of its own, since what this process
/// starts would close the worker's files, and wait for the server that is being started.
const WORKER: &str = "STEADFAST_TEST_WORKER";

/// The work of such a process: changes, until a file says that it is enough. What has to be there then is
/// in a directory of its own.
#[test]
fn worker() {
    let Some(told) = std::env::var_os(WORKER) else { return };
    let told = told.into_string().unwrap();
    let mut told = told.split('|');
    let mut next = || PathBuf::from(told.next().unwrap());
    let (at, ideal, progress, enough) = (next(), next(), next(), next());
    let seed: u64 = next().to_str().unwrap().parse().unwrap();
    let mut worker = Worker::new(at, seed);
    let progress = File::create(progress).unwrap();
    let mut steps: u64 = 0;
    while !enough.exists() {
        worker.step();
        steps += 1;
        progress.write_all_at(&steps.to_le_bytes(), 0).unwrap();
    }
    worker.check(&worker.at);
    fs::create_dir(&ideal).unwrap();
    for (name, data) in &worker.files {
        fs::write(ideal.join(name), data).unwrap();
    }
    for name in &worker.directories {
        fs::create_dir(ideal.join(name)).unwrap();
    }
}

/// Names and contents below a directory.
fn contents(at: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let entries = fs::read_dir(at).unwrap().map(Result::unwrap);
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, entry.file_type().unwrap().is_file().then(|| fs::read(entry.path()).unwrap()))
    };
    entries.map(read).collect()
}

struct Workers {
    at: PathBuf,
    children: Vec<(Child, PathBuf, PathBuf)>,
}

impl Workers {
    fn start(local: &Path, mount: &Path, count: u64) -> Self {
        let start = |number: u64| {
            let name = format!("worker{number}");
            let (ideal, progress) = (local.join(&name), local.join(format!("{name}.steps")));
            let told = [
                utf8(&mount.join(&name)),
                utf8(&ideal),
                utf8(&progress),
                utf8(&local.join("enough")),
                &(number + 1).to_string(),
            ]
            .join("|");
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "worker", "--nocapture"]).env(WORKER, told);
            (command.spawn().unwrap(), ideal, progress)
        };
        Self { at: local.to_owned(), children: (0..count).map(start).collect() }
    }

    fn steps(&self) -> u64 {
        let read = |progress: &PathBuf| {
            let bytes = fs::read(progress).unwrap_or_default();
            bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        self.children.iter().map(|(_, _, progress)| read(progress)).sum()
    }

    /// Waits for as many steps more.
    fn await_steps(&mut self, more: u64, what: &str) {
        let (begun, wanted) = (Instant::now(), self.steps() + more);
        while self.steps() < wanted {
            assert!(begun.elapsed() < PATIENCE, "nothing goes on: {what}");
            for (child, ..) in &mut self.children {
                assert_eq!(child.try_wait().unwrap(), None, "a worker has ended: {what}");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends them; returns where each has left what has to be there.
    fn finish(mut self) -> Vec<PathBuf> {
        fs::write(self.at.join("enough"), "").unwrap();
        let wait = |(mut child, ideal, _): (Child, PathBuf, PathBuf)| {
            assert!(child.wait().unwrap().success(), "a worker has found something else");
            ideal
        };
        std::mem::take(&mut self.children).into_iter().map(wait).collect()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for (child, ..) in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn changes_go_on_while_the_server_crashes(loses: bool, more: &str) {
    let Some(_turn) = turn() else { return };
    let mut this = Async::new();
    let mount = this.mount(more);
    let local = tempfile::tempdir().unwrap();
    let mut workers = Workers::start(local.path(), &mount.at, 3);
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
