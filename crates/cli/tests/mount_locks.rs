//! Process ring: locks of fcntl(2) and flock(2) on mounts are the server's (docs/mount.md): they exclude other mounts and
//! the server's own processes, end with whoever had them, and outlive the server's restart.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::mounts::{Mount, serve, turn};
use common::{PATIENCE, Place, Running, ended, utf8};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};

/// Tells a process of this program what to lock: how, and which file.
const LOCKER: &str = "STEADFAST_LOCKER";
const LOCKED: &str = "locked";
/// How often each of two processes adds to a file.
const TIMES: u64 = 100;
/// Who waits for a lock beside a READ.
const WAITERS: usize = 200;
/// Rows that each of two mounts puts into a database.
const ROWS: usize = 40;

/// A server with two mounts of one share, and a file there. Whoever takes it apart names the place first, which is
/// dropped last then: its directory may be removed only when nothing is mounted there.
struct Site {
    one: Mount,
    two: Mount,
    server: Running,
    place: Place,
}

impl Site {
    fn new() -> Self {
        let place = Place::new();
        let server = serve(&place, 0);
        fs::write(place.share.join("file"), "0000").unwrap();
        let one = mount(&place, &server, "one");
        let two = mount(&place, &server, "two");
        Self { one, two, server, place }
    }

    fn local(&self) -> File {
        open(&self.place.share.join("file"))
    }
}

fn mount(place: &Place, server: &Running, name: &str) -> Mount {
    Mount::new(place, server, name, "lock")
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Locks the whole file, by fcntl(2) or flock(2).
fn lock(file: &File, way: &str, how: FlockOperation) -> Result<(), Errno> {
    match way {
        "fcntl" => rustix::fs::fcntl_lock(file, how),
        _ => rustix::fs::flock(file, how),
    }
}

fn is_refused(outcome: Result<(), Errno>) -> bool {
    match outcome {
        Ok(()) => false,
        Err(Errno::AGAIN | Errno::ACCESS) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Tries until it succeeds.
fn lock_soon(file: &File, way: &str) {
    let begun = Instant::now();
    while is_refused(lock(file, way, FlockOperation::NonBlockingLockExclusive)) {
        assert!(begun.elapsed() < PATIENCE, "the lock is not freed");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn unlock(file: &File, way: &str) {
    lock(file, way, FlockOperation::Unlock).unwrap();
}

/// A process of this program that locks a file, waits as long as it takes, and keeps the lock until it is told to end.
#[test]
fn locker() {
    let Ok(told) = std::env::var(LOCKER) else { return };
    let (way, path) = told.split_once('|').unwrap();
    let file = open(Path::new(path));
    lock(&file, way, FlockOperation::LockExclusive).unwrap();
    println!("{LOCKED}");
    let _ = std::io::stdin().read(&mut [0]);
}

struct Locker(Child);

impl Locker {
    fn start(way: &str, path: &Path) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "locker", "--nocapture"])
            .env(LOCKER, format!("{way}|{}", utf8(path)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    fn await_lock(&mut self) {
        let lines = BufReader::new(self.0.stdout.as_mut().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains(LOCKED)), "no lock");
    }

    /// It sleeps in the kernel, waiting for the mount's answer.
    fn await_waiting(&self) {
        let begun = Instant::now();
        while !self.is_waiting() {
            assert!(begun.elapsed() < PATIENCE, "it does not wait for a lock");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_waiting(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
        let waits = |task: fs::DirEntry| {
            let at = fs::read_to_string(task.path().join("wchan")).unwrap_or_default();
            at.contains("request_wait_answer") || at.contains("fuse")
        };
        // A kernel may not tell where: then it had time enough.
        tasks.flatten().any(waits) || {
            std::thread::sleep(Duration::from_secs(1));
            true
        }
    }

    fn kill(mut self) {
        let begun = Instant::now();
        self.0.kill().unwrap();
        ended(&mut self.0, "a process that is killed");
        assert!(begun.elapsed() < Duration::from_secs(5), "it was killed late");
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        ended(&mut self.0, "a process that has locked");
    }
}

#[test]
fn mounts_and_local_processes_keep_each_other_out() {
    let Some(_turn) = turn() else { return };
    let site = Site::new();
    let (one, two) = (open(&site.one.path("file")), open(&site.two.path("file")));
    let local = site.local();
    for (way, other) in [("fcntl", "fcntl"), ("flock", "flock"), ("fcntl", "flock")] {
        lock(&one, way, FlockOperation::NonBlockingLockExclusive).unwrap();
        for how in [FlockOperation::NonBlockingLockExclusive, FlockOperation::NonBlockingLockShared]
        {
            assert!(is_refused(lock(&two, other, how)), "{way} {other}");
            assert!(is_refused(lock(&local, "fcntl", how)), "{way}");
        }
        lock(&one, way, FlockOperation::NonBlockingLockShared).unwrap();
        lock(&two, other, FlockOperation::NonBlockingLockShared).unwrap();
        assert!(is_refused(lock(&one, way, FlockOperation::NonBlockingLockExclusive)));
        unlock(&two, other);
        lock(&one, way, FlockOperation::NonBlockingLockExclusive).unwrap();
        unlock(&one, way);
        lock(&local, "fcntl", FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(is_refused(lock(&two, other, FlockOperation::NonBlockingLockShared)));
        unlock(&local, "fcntl");
    }
    // The last close ends a lock, and so does each close of the process with fcntl.
    lock(&one, "flock", FlockOperation::NonBlockingLockExclusive).unwrap();
    drop(one);
    lock_soon(&two, "flock");
    unlock(&two, "flock");
    let [first, second] = [(); 2].map(|()| open(&site.one.path("file")));
    lock(&first, "fcntl", FlockOperation::NonBlockingLockExclusive).unwrap();
    drop(second);
    lock(&two, "fcntl", FlockOperation::NonBlockingLockExclusive).unwrap();
}

/// Each adds to a number in the file, which stays open, as often.
#[test]
fn what_was_written_under_a_lock_is_seen_by_the_next_one() {
    let Some(_turn) = turn() else { return };
    let site = Site::new();
    let add = |at: PathBuf| {
        let file = open(&at);
        for _ in 0..TIMES {
            lock(&file, "flock", FlockOperation::LockExclusive).unwrap();
            let mut text = [0; 4];
            file.read_exact_at(&mut text, 0).unwrap();
            let number: u64 = std::str::from_utf8(&text).unwrap().parse().unwrap();
            file.write_all_at(format!("{:04}", number + 1).as_bytes(), 0).unwrap();
            unlock(&file, "flock");
        }
    };
    let add = &add;
    std::thread::scope(|scope| {
        for at in [&site.one, &site.one, &site.two] {
            scope.spawn(move || add(at.path("file")));
        }
    });
    assert_eq!(fs::read_to_string(site.place.share.join("file")).unwrap(), "0300");
    // The file has grown elsewhere: an append goes behind that.
    let mut ends = [&site.one, &site.two]
        .map(|mount| OpenOptions::new().append(true).open(mount.path("file")).unwrap());
    for number in 0..20 {
        let file = &mut ends[number % 2];
        lock(file, "fcntl", FlockOperation::LockExclusive).unwrap();
        writeln!(file, "line {number}").unwrap();
        unlock(file, "fcntl");
    }
    let text = fs::read_to_string(site.place.share.join("file")).unwrap();
    assert_eq!(text.lines().count(), 20, "{text}");
}

/// A lock ends with a descriptor that cannot write, and another one of the process has written.
#[test]
fn what_another_descriptor_has_written_is_sent_before_a_lock_ends() {
    let Some(_turn) = turn() else { return };
    let site = Site::new();
    let path = site.one.path("file");
    let two = open(&site.two.path("file"));
    let at_server = || fs::read_to_string(site.place.share.join("file")).unwrap();
    let writer = open(&path);
    lock(&writer, "fcntl", FlockOperation::NonBlockingLockExclusive).unwrap();
    writer.write_all_at(b"1111", 0).unwrap();
    drop(File::open(&path).unwrap());
    lock_soon(&two, "fcntl");
    assert_eq!(at_server(), "1111");
    unlock(&two, "fcntl");
    let reader = File::open(&path).unwrap();
    lock(&reader, "flock", FlockOperation::NonBlockingLockExclusive).unwrap();
    writer.write_all_at(b"2222", 0).unwrap();
    drop(reader);
    lock_soon(&two, "flock");
    assert_eq!(at_server(), "2222");
}

#[test]
fn who_is_killed_leaves_no_lock() {
    let Some(_turn) = turn() else { return };
    let site = Site::new();
    let two = open(&site.two.path("file"));
    for way in ["fcntl", "flock"] {
        lock(&two, way, FlockOperation::NonBlockingLockExclusive).unwrap();
        let waiter = Locker::start(way, &site.one.path("file"));
        waiter.await_waiting();
        waiter.kill();
        unlock(&two, way);
        // A lock that the waiter had been given would keep this one out.
        lock_soon(&two, way);
        unlock(&two, way);
        let mut holder = Locker::start(way, &site.one.path("file"));
        holder.await_lock();
        assert!(is_refused(lock(&two, way, FlockOperation::NonBlockingLockShared)));
        holder.kill();
        lock_soon(&two, way);
        // A signal that a program handles ends its wait, too.
        let mut waiter = Command::new("flock")
            .args(["-w", "1", utf8(&site.one.path("file")), "true"])
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let status = ended(&mut waiter, "flock -w 1");
        assert!(!status.success() && begun.elapsed() < Duration::from_secs(20));
        unlock(&two, way);
        let mut next = Locker::start(way, &site.one.path("file"));
        next.await_lock();
        next.end();
    }
}

#[test]
fn a_killed_mount_leaves_no_lock() {
    let Some(_turn) = turn() else { return };
    let site = Site::new();
    let Site { place, server, two, one } = site;
    let two_file = open(&two.path("file"));
    let mut holder = Locker::start("fcntl", &one.path("file"));
    holder.await_lock();
    assert!(is_refused(lock(&two_file, "fcntl", FlockOperation::NonBlockingLockShared)));
    one.kill();
    // Its guard frees them.
    lock_soon(&two_file, "fcntl");
    holder.kill();
    unlock(&two_file, "fcntl");
    // Nobody is left who could free them, but the next mount.
    let three = mount(&place, &server, "three");
    let mut holder = Locker::start("fcntl", &three.path("file"));
    holder.await_lock();
    for guard in children(three.child.id()) {
        rustix::process::kill_process(guard, Signal::KILL).unwrap();
    }
    three.kill();
    holder.kill();
    assert!(is_refused(lock(&two_file, "fcntl", FlockOperation::NonBlockingLockShared)));
    let four = mount(&place, &server, "four");
    lock_soon(&two_file, "fcntl");
    drop(two_file);
    two.unmount();
    four.unmount();
}

/// Processes that a process has started.
fn children(of: u32) -> Vec<Pid> {
    let parent_of = |pid: i32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let found = numbers.filter(|pid| parent_of(*pid) == Some(of)).filter_map(Pid::from_raw);
    let found: Vec<_> = found.collect();
    assert!(!found.is_empty(), "the mount has no guard");
    found
}

#[test]
fn locks_outlive_the_servers_restart() {
    let Some(_turn) = turn() else { return };
    let Site { place, server, two, one } = Site::new();
    let mut servers = vec![server];
    // Closed before the server ends.
    let (one_file, two_file) = (open(&one.path("file")), open(&two.path("file")));
    lock(&one_file, "fcntl", FlockOperation::NonBlockingLockExclusive).unwrap();
    let mut waiter = Locker::start("fcntl", &two.path("file"));
    waiter.await_waiting();
    let killed = servers.remove(0);
    let port = killed.address.port();
    killed.signal(Signal::KILL);
    killed.wait();
    servers.push(serve(&place, port));
    assert!(is_refused(lock(&two_file, "flock", FlockOperation::NonBlockingLockExclusive)));
    one_file.write_all_at(b"1111", 0).unwrap();
    unlock(&one_file, "fcntl");
    waiter.await_lock();
    waiter.end();
    // The same process has no other lock that would keep it out.
    lock_soon(&two_file, "flock");
}

#[test]
fn waiters_hold_up_nobody() {
    let Some(_turn) = turn() else { return };
    let site = Site::new();
    fs::write(site.place.share.join("other"), "data").unwrap();
    let two = open(&site.two.path("file"));
    lock(&two, "flock", FlockOperation::NonBlockingLockExclusive).unwrap();
    let at = site.one.path("file");
    std::thread::scope(|scope| {
        let got: Vec<_> = (0..WAITERS)
            .map(|_| {
                let file = open(&at);
                scope.spawn(move || lock(&file, "flock", FlockOperation::LockShared))
            })
            .collect();
        let begun = Instant::now();
        while waiting(&site.one) < WAITERS as u64 {
            assert!(begun.elapsed() < PATIENCE, "{} wait", waiting(&site.one));
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(fs::read(site.one.path("other")).unwrap(), b"data");
        fs::write(site.one.path("new"), "data").unwrap();
        assert!(got.iter().all(|thread| !thread.is_finished()));
        unlock(&two, "flock");
        for thread in got {
            thread.join().unwrap().unwrap();
        }
    });
    // Those who wait when the mount is taken away get an error.
    let Site { place, server, two: mount_two, one } = site;
    lock_soon(&two, "flock");
    let waiter = Locker::start("flock", &one.path("file"));
    waiter.await_waiting();
    rustix::mount::unmount(&one.at, UnmountFlags::FORCE | UnmountFlags::DETACH).unwrap();
    let Locker(mut child) = waiter;
    assert!(!ended(&mut child, "a waiter whose mount is gone").success());
    // Its lock is given up while there is a server.
    drop(two);
    drop((one, mount_two, server, place));
}

/// How many wait for locks.
fn waiting(mount: &Mount) -> u64 {
    let output = common::steadfast(&["mount", "status", "--json", utf8(&mount.at)]).output();
    let told: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    told[0]["status"]["locks"]["waiting"].as_u64().unwrap()
}

#[test]
fn two_mounts_use_one_database() {
    let Some(_turn) = turn() else { return };
    let has_sqlite = Command::new("python3").args(["-c", "import sqlite3"]).status();
    if !has_sqlite.is_ok_and(|status| status.success()) {
        let must = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        assert!(!must, "CI must have python3 with sqlite3");
        println!("skipped: needs python3 with sqlite3");
        return;
    }
    let site = Site::new();
    let script = "import sqlite3, sys\n\
        db = sqlite3.connect(sys.argv[1], timeout=120, isolation_level=None)\n\
        db.execute('create table if not exists t (who, n)')\n\
        for n in range(int(sys.argv[3])):\n    \
            db.execute('begin immediate')\n    \
            db.execute('insert into t values (?, ?)', (sys.argv[2], n))\n    \
            db.execute('commit')\n";
    let start = |mount: &Mount, who: &str| {
        let mut python = Command::new("python3");
        let rows = ROWS.to_string();
        python.args(["-c", script, utf8(&mount.path("db")), who, &rows]).spawn().unwrap()
    };
    start(&site.one, "first").wait().unwrap();
    let writers = [(&site.one, "a"), (&site.two, "b"), (&site.two, "c")];
    for mut writer in writers.map(|(mount, who)| start(mount, who)) {
        assert!(writer.wait().unwrap().success());
    }
    let count = "import sqlite3, sys\n\
        db = sqlite3.connect(sys.argv[1])\n\
        print(db.execute('pragma integrity_check').fetchone()[0], \
        db.execute('select count(*) from t').fetchone()[0])";
    for at in [site.one.path("db"), site.place.share.join("db")] {
        let output = Command::new("python3").args(["-c", count, utf8(&at)]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert_eq!(told, format!("ok {}", 4 * ROWS), "{output:?}");
    }
}
