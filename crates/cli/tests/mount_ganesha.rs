//! Process ring: mounts with a journal of another server, nfs-ganesha, which has no recovery program: what it has
//! lost in a crash its write verifier tells (docs/mount.md).
//!
//! `STEADFAST_CRASHES=N` is how often. They need nfs-ganesha and rpcbind, and tell so where those are missing; with
//! `CI=true` they fail then.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::async_share::{Disk, crashes};
use common::ganesha::{self, Ganesha, MOUNT_PORT, PORT};
use common::mounts::{Mount, turn};
use common::network::Network;
use common::workers::{self, Kind, Workers};
use common::{Place, utf8};

/// A mount has what it has sent committed after 5 s, so it has not within this time.
const COMMITTED_AFTER: Duration = Duration::from_secs(4);

/// A process of this program that is a worker.
#[test]
fn worker() {
    workers::work();
}

/// nfs-ganesha on a disk of its own.
struct Site {
    ganesha: Option<Ganesha>,
    network: Network,
    disk: Disk,
    /// Last: what is in it is used by the others.
    place: Place,
}

impl Site {
    fn new() -> Self {
        let place = Place::new();
        let disk = Disk::new(&place, "share", &place.share);
        let mut site = Self { place, disk, network: Network::new(), ganesha: None };
        site.serve();
        site
    }

    fn serve(&mut self) {
        let directory = self.place.directory.path().canonicalize().unwrap();
        self.ganesha = Some(Ganesha::start(&self.network, &directory, &self.place.share));
    }

    /// It is killed, its disk loses what is not stable, and it comes again. Returns how many names the disk has lost.
    fn crash(&mut self, loses: bool) -> usize {
        self.crash_before(loses, || {})
    }

    /// The same, and others do something before it comes again.
    fn crash_before(&mut self, loses: bool, others: impl FnOnce()) -> usize {
        self.ganesha.take().unwrap().kill();
        let before = names_in(&self.place.share);
        if loses {
            self.disk.cut();
        }
        let lost = before.difference(&names_in(&self.place.share)).count();
        others();
        self.serve();
        lost
    }

    fn journal(&self) -> PathBuf {
        self.place.directory.path().canonicalize().unwrap().join("journal")
    }

    fn mount(&self, options: &str) -> Mount {
        let program = self.network.command(env!("CARGO_BIN_EXE_steadfast"));
        let source = format!("127.0.0.1:{}", utf8(&self.place.share));
        let options = format!("port={PORT},mountport={MOUNT_PORT},{options}");
        Mount::of(&self.place, program, "mount", &source, &options)
    }

    fn with_journal(&self, more: &str) -> Mount {
        self.mount(&format!("journal={}{more}", utf8(&self.journal())))
    }

    fn pending(&self) -> usize {
        steadfast_journal::care::look(&self.journal()).expect("a journal").pending.len()
    }
}

/// The paths in a directory, at any depth.
fn names_in(directory: &Path) -> BTreeSet<PathBuf> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap()) {
        if entry.file_type().unwrap().is_dir() {
            names.extend(names_in(&entry.path()));
        }
        names.insert(entry.path());
    }
    names
}

fn changes_go_on(kind: Kind, loses: bool) {
    let Some(_turn) = turn() else { return };
    if !ganesha::is_there() {
        return;
    }
    let mut site = Site::new();
    let mount = site.with_journal(",nconnect=2,timeo=50");
    let local = tempfile::tempdir().unwrap();
    let mut workers = Workers::start_as(local.path(), &[&mount.at], 3, kind);
    workers.await_steps(3, "at the beginning");
    let (mut pending, mut lost_names) = (0, 0);
    for crash in 0..crashes() {
        workers.await_steps(40 + 7 * (crash % 13), &format!("crash {crash}"));
        pending += site.pending();
        lost_names += site.crash(loses);
    }
    // Otherwise nothing is seen of names that are made again.
    let loses_names = loses && matches!(kind, Kind::Forgotten);
    assert!(lost_names > 0 || !loses_names, "the disk has lost no name");
    workers.await_steps(40, "after the last crash");
    let steps = workers.steps();
    let ideals = workers.finish();
    mount.unmount();
    assert_eq!(site.pending(), 0);
    assert!(!site.journal().join("conflicts").exists(), "nobody else has changed anything");
    // All data is stable.
    if loses {
        site.crash(true);
    }
    for ideal in &ideals {
        let name = ideal.file_name().unwrap();
        let differences = workers::differences(&site.place.share.join(name), ideal);
        assert!(differences.is_empty(), "{}: {differences:#?}", name.display());
    }
    println!(
        "{} crashes of nfs-ganesha{}: {steps} changes, {pending} of them in the journal at a crash; the server has lost \
         {lost_names} names, the mount 0",
        crashes(),
        if loses { ", with its disk" } else { "" }
    );
}

#[test]
fn changes_go_on_while_ganesha_is_killed() {
    changes_go_on(Kind::Forgotten, false);
}

#[test]
fn data_is_written_while_ganesha_loses_what_is_not_stable() {
    changes_go_on(Kind::Data, true);
}

/// nfs-ganesha acknowledges names before they are stable, and its disk never writes them by itself here.
#[test]
fn names_are_made_again_that_ganesha_has_lost() {
    changes_go_on(Kind::Forgotten, true);
}

/// Has files open, which were made just now, and goes on with them when it is told so. What it starts has the files,
/// too, so it is no thread of the test.
const HOLDER: &str = r#"
set -e
: > "$0/asked-for-the-verifier"
mkdir "$0/d"
exec 3> "$0/d/kept" 4> "$0/taken"
printf mine >&3
printf mine >&4
sync "$0/d/kept" "$0/taken"
echo ready
read -r go
printf more >&3
sync "$0/d/kept"
"#;

/// What was open goes on with the file that was made again, and what others have made meanwhile is theirs.
#[test]
fn a_file_that_is_open_is_made_again_and_one_whose_name_is_taken_goes_to_a_conflict_file() {
    let Some(_turn) = turn() else { return };
    if !ganesha::is_there() {
        return;
    }
    let mut site = Site::new();
    let mount = site.with_journal("");
    let begun = Instant::now();
    let mut holder = Command::new("sh")
        .args(["-c", HOLDER, utf8(&mount.at)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let share = site.place.share.clone();
    let mut has_lost = false;
    site.crash_before(true, || {
        has_lost = !share.join("d").exists() && !share.join("taken").exists();
        let mut taken = fs::File::create(share.join("taken")).unwrap();
        taken.write_all(b"theirs").unwrap();
        taken.sync_all().unwrap();
    });
    assert!(has_lost || begun.elapsed() >= COMMITTED_AFTER, "ganesha has made names stable");
    holder.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(holder.wait().unwrap().success());
    assert_eq!(fs::read(mount.path("d/kept")).unwrap(), b"minemore");
    assert_eq!(fs::read(mount.path("taken")).unwrap(), b"theirs");
    mount.unmount();
    site.crash(true);
    assert_eq!(fs::read(share.join("d/kept")).unwrap(), b"minemore");
    assert_eq!(fs::read(share.join("taken")).unwrap(), b"theirs");
    if has_lost {
        let kept = fs::read_dir(site.journal().join("conflicts")).unwrap().map(|one| one.unwrap());
        let kept: Vec<_> = kept.map(|one| fs::read(one.path()).unwrap()).collect();
        assert!(kept.len() == 2 && kept.iter().any(|data| data == b"mine"), "{kept:?}");
    }
}

fn write_and_sync(from: &Path, to: &Path) {
    let words = ["bs=64k", "conv=notrunc,fsync", "status=none"];
    let (from, to) = (format!("if={}", utf8(from)), format!("of={}", utf8(to)));
    let output = Command::new("dd").args(words).args([from, to]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// What fsync has promised is the file with its name and its directory, too.
#[test]
fn a_new_file_is_there_though_client_and_ganesha_crash_together() {
    let Some(_turn) = turn() else { return };
    if !ganesha::is_there() {
        return;
    }
    let mut site = Site::new();
    let data = site.place.directory.path().join("data");
    fs::write(&data, vec![b'n'; 200_000]).unwrap();
    let mount = site.with_journal("");
    let begun = Instant::now();
    fs::write(mount.path("asked-for-the-verifier"), "").unwrap();
    fs::create_dir(mount.path("d")).unwrap();
    write_and_sync(&data, &mount.path("d/new"));
    mount.kill();
    site.crash(true);
    let has_lost = !site.place.share.join("d").exists();
    assert!(has_lost || begun.elapsed() >= COMMITTED_AFTER, "ganesha has made names stable");
    let mount = site.with_journal("");
    assert!(fs::read(mount.path("d/new")).unwrap() == fs::read(&data).unwrap());
    mount.unmount();
    assert_eq!(site.pending(), 0);
    site.crash(true);
    assert!(fs::read(site.place.share.join("d/new")).unwrap() == fs::read(&data).unwrap());
}

/// The next mount sends what fsync has promised. Without its journal the promise is broken: so what the tests
/// above see is no accident.
#[test]
fn what_fsync_has_promised_is_there_though_client_and_ganesha_crash_together() {
    let Some(_turn) = turn() else { return };
    if !ganesha::is_there() {
        return;
    }
    let mut site = Site::new();
    let data = site.place.directory.path().join("data");
    let file = site.place.share.join("file");
    fs::write(&file, vec![b'o'; 200_000]).unwrap();
    site.disk.flush();
    let mut seen = 0;
    for crash in 0..crashes() {
        let old = fs::read(&file).unwrap();
        let new = vec![b'A' + (crash % 26) as u8; 200_000];
        fs::write(&data, &new).unwrap();
        let mount = site.with_journal("");
        let begun = Instant::now();
        write_and_sync(&data, &mount.path("file"));
        let pending = site.pending();
        mount.kill();
        // Later the mount commits by itself.
        let is_early = begun.elapsed() < COMMITTED_AFTER;
        site.crash(true);
        if is_early {
            seen += 1;
            assert!(pending > 0, "fsync has not waited for the server's disk");
            assert!(fs::read(&file).unwrap() == old, "the server has lost it");
            let mount = site.mount("");
            assert!(fs::read(mount.path("file")).unwrap() == old, "without the journal it is lost");
            mount.unmount();
        }
        let mount = site.with_journal("");
        assert!(fs::read(mount.path("file")).unwrap() == new, "crash {crash}");
        mount.unmount();
        assert_eq!(site.pending(), 0);
        site.crash(true);
        assert!(fs::read(&file).unwrap() == new, "at the server, after crash {crash}");
    }
    println!(
        "{} crashes of nfs-ganesha and its client, {seen} early enough that the server had lost something: nothing \
         promised is lost",
        crashes()
    );
}

#[test]
fn nothing_is_compressed_on_its_way_to_it_and_the_mount_says_so() {
    let Some(_turn) = turn() else { return };
    if !ganesha::is_there() {
        return;
    }
    let site = Site::new();
    let mount = site.mount("compress");
    let text = b"the same line again and again\n".repeat(50_000);
    fs::write(mount.path("text"), &text).unwrap();
    assert!(fs::read(site.place.share.join("text")).unwrap() == text);
    let told = common::output(&["mount", "status", utf8(&mount.at), "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let status = &told[0]["status"];
    assert_eq!(status["compression"]["is_used"], false, "{told}");
    assert!(status["sent_bytes"].as_u64().unwrap() >= text.len() as u64, "{told}");
    let page = common::output(&["mount", "status", utf8(&mount.at)]);
    let page = String::from_utf8_lossy(&page.stdout).into_owned();
    assert!(page.contains("NOTHING IS COMPRESSED: the server has no recovery program"), "{page}");
    mount.unmount();
    let log = fs::read_to_string(site.place.directory.path().join("mount.log")).unwrap();
    assert!(log.contains("nothing is compressed on its way"), "{log}");
}
