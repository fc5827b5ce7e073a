//! Process ring: `steadfast status` and its exit status, against the real program: healthy, with a faulty share,
//! with a log that is off, while it hangs, and without a server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{PATIENCE, Place, Running, output, stderr, utf8};
use intent_log_support::site::Site;
use intent_log_support::{Logged, stop};
use rustix::process::Signal;
use serde_json::Value;
use steadfast_client::{NfsStat3, Settings};

fn ask(state: &Path, more: &[&str]) -> Output {
    output(&[&["status", "--state-directory", utf8(state)], more].concat())
}

/// The document, and the exit status, which says the same.
#[track_caller]
fn status(state: &Path) -> (Value, i32) {
    let done = ask(state, &["--json"]);
    let document: Value = serde_json::from_slice(&done.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&done)));
    let code = done.status.code().unwrap();
    let verdicts = ["fine", "warning", "critical", "unknown"];
    assert_eq!(document["verdict"], verdicts[code as usize], "{document}");
    (document, code)
}

/// What is told but of this machine's own disks, which may be nearly full.
fn warnings(document: &Value) -> Vec<&Value> {
    let all = document["warnings"].as_array().unwrap().iter();
    all.filter(|one| !one["what"].as_str().unwrap().starts_with("the disk at ")).collect()
}

/// As soon as the verdict is this one: numbers of shares are collected once a second.
#[track_caller]
fn status_becomes(state: &Path, wanted: i32) -> Value {
    let begun = Instant::now();
    loop {
        let (document, code) = status(state);
        if code == wanted || wanted == 0 && code == 1 && warnings(&document).is_empty() {
            return document;
        }
        assert!(begun.elapsed() < PATIENCE, "{document}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A server with one share, that is or is not there, and no log.
fn start(place: &Place) -> Running {
    let text = format!(
        "[log]\nenabled = false\n[[share]]\npath = \"{}\"\nclients = [\"*\"]\n",
        utf8(&place.share)
    );
    let configuration = place.write("steadfast.toml", &text);
    Running::start(place, 0, &["--config", utf8(&configuration)])
}

#[test]
fn a_healthy_server_is_fine_and_a_stopped_one_does_not_serve() {
    let place = Place::new();
    std::fs::create_dir(&place.share).unwrap();
    let running = start(&place);
    // After a first start nobody reclaims anything.
    let document = status_becomes(&place.state, 0);
    assert_eq!((&document["serving"], &document["version"]), (&"yes".into(), &1.into()));
    assert_eq!(document["process"], running.id(), "{document}");
    assert_eq!(document["shares"]["enabled"], 1, "{document}");
    assert!(warnings(&document).is_empty(), "{document}");
    let disk = &document["disks"][0];
    assert!(disk["total_bytes"].as_u64() > Some(0) && disk["path"].is_string(), "{document}");
    let screen = ask(&place.state, &[]);
    let text = String::from_utf8(screen.stdout).unwrap();
    assert!(text.contains("serves: process") && text.contains("shares   1 served"), "{text}");

    running.signal(Signal::TERM);
    running.wait();
    let (document, code) = status(&place.state);
    assert_eq!((code, &document["serving"]), (2, &"not_running".into()), "{document}");
    assert_eq!(document["warnings"][0]["next"], "systemctl status steadfast");
    let text = String::from_utf8(ask(&place.state, &[]).stdout).unwrap();
    assert!(text.contains("does NOT serve") && text.contains("next: systemctl"), "{text}");
}

#[test]
fn a_faulty_share_is_told_by_name_with_its_reason() {
    let place = Place::new();
    let _running = start(&place);
    let document = status_becomes(&place.state, 2);
    assert_eq!(document["serving"], "yes", "{document}");
    let faulty = &document["shares"]["faults"][0];
    assert_eq!(faulty["path"], utf8(&place.share), "{document}");
    assert!(faulty["why"].as_str().unwrap().contains("does not exist"), "{document}");
    let state = utf8(&place.state);
    let next = format!("steadfast share show {} --state-directory {state}", utf8(&place.share));
    assert_eq!(document["warnings"][0]["next"], next, "{document}");
    // What is told to be typed next works.
    let words: Vec<&str> = next.split(' ').skip(1).collect();
    let shown = output(&words);
    assert!(shown.status.success(), "{}", stderr(&shown));
}

#[test]
fn a_server_that_does_not_answer_is_not_waited_for() {
    let place = Place::new();
    std::fs::create_dir(&place.share).unwrap();
    let running = start(&place);
    running.signal(Signal::STOP);
    let (document, code) = status(&place.state);
    running.signal(Signal::CONT);
    assert_eq!((code, &document["serving"]), (2, &"not_answering".into()), "{document}");
    status_becomes(&place.state, 0);
}

#[test]
fn a_server_that_has_no_socket_yet_is_not_taken_for_none() {
    let place = Place::new();
    std::fs::create_dir(&place.share).unwrap();
    let running = start(&place);
    std::fs::remove_file(place.state.join("control.sock")).unwrap();
    let (document, code) = status(&place.state);
    assert_eq!((code, &document["serving"]), (2, &"starting_or_stopping".into()), "{document}");
    assert_eq!(document["process"], running.id(), "{document}");
}

#[test]
fn a_log_that_is_off_is_a_warning() {
    let Some(logged) = Logged::new() else { return };
    let _running = logged.start();
    let state = &logged.place.state;
    let document = status_becomes(state, 0);
    assert_eq!(document["log"]["phase"], "on", "{document}");
    logged.told(&["disable"]);
    let (document, code) = status(state);
    assert_eq!((code, &document["log"]["phase"]), (1, &"off".into()), "{document}");
    let warning = &document["warnings"][0];
    assert!(warning["what"].as_str().unwrap().contains("administrator"), "{document}");
    let next = format!("steadfast log enable --state-directory {}", utf8(state));
    assert_eq!(warning["next"], next.as_str());
    let words: Vec<&str> = next.split(' ').skip(1).collect();
    let enabled = output(&words);
    assert!(enabled.status.success(), "{}", stderr(&enabled));
    status_becomes(state, 0);
}

/// Over the directory of a share, of which the server has a mount of its own, a file system that never answers:
/// whoever asks it hangs, as with a disk that does.
struct Hanging {
    at: PathBuf,
    /// Nobody reads what it is asked.
    _unread: File,
}

impl Hanging {
    /// `None` where it cannot be had.
    fn over(at: &Path) -> Option<Self> {
        let skip = |why: &str| {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
            println!("skipped: {why}");
            None
        };
        let Ok(unread) = File::options().read(true).write(true).open("/dev/fuse") else {
            return skip("there is no FUSE");
        };
        // mount(8) gets it as its input, and what other tests start does not: whoever has it keeps it mounted.
        let input = unread.try_clone().unwrap();
        let options = "fd=0,rootmode=40000,user_id=0,group_id=0";
        let words = ["-i", "-t", "fuse", "-o", options, "hanging", utf8(at)];
        let mounted = Command::new("mount").args(words).stdin(input).status();
        if !mounted.is_ok_and(|done| done.success()) {
            return skip("nothing can be mounted: this takes root");
        }
        Some(Self { at: at.to_owned(), _unread: unread })
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        // What waits for it ends when the last descriptor is closed.
        let _ = Command::new("umount").args(["--lazy", utf8(&self.at)]).status();
    }
}

/// A process of this group that has not ended.
fn alive(group: u32) -> Option<String> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
        // `812 (steadfast) S 1 811 …`: behind the name are the state, the parent and the group.
        let (_, rest) = stat.rsplit_once(") ")?;
        let words: Vec<&str> = rest.split(' ').take(3).collect();
        let is_of_it = words.get(2)?.parse() == Ok(group);
        (is_of_it && !matches!(words[0], "Z" | "X")).then_some(stat)
    });
    processes.into_iter().next()
}

/// A share's disk hangs for whoever asks it: the command answers, says which, and leaves nobody behind.
#[test]
fn a_disk_that_hangs_does_not_keep_the_answer() {
    let place = Place::new();
    std::fs::create_dir(&place.share).unwrap();
    let _running = start(&place);
    status_becomes(&place.state, 0);
    let at = place.share.canonicalize().unwrap();
    let Some(hanging) = Hanging::over(&at) else { return };
    // It does hang.
    let mut asking = Command::new("stat").args(["--file-system", utf8(&at)]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(asking.try_wait().unwrap().is_none(), "the file system answers");
    for _ in 0..2 {
        let words = ["status", "--json", "--state-directory", utf8(&place.state)];
        let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let asking = command.spawn().unwrap();
        let group = asking.id();
        let done = asking.wait_with_output().unwrap();
        let document: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!((done.status.code(), &document["serving"]), (Some(2), &"yes".into()));
        // Who asked the disk was killed, though it still hangs.
        let begun = Instant::now();
        while let Some(left) = alive(group) {
            assert!(begun.elapsed() < PATIENCE, "{left} is left behind");
            std::thread::sleep(Duration::from_millis(10));
        }
        let disks = document["disks"].as_array().unwrap();
        let disk = disks.iter().find(|disk| disk["path"] == utf8(&at)).unwrap();
        assert_eq!(disk["hangs"], true, "{document}");
        assert!(disk["why"].as_str().unwrap().contains("no answer within"), "{document}");
        assert_eq!(document["warnings"][0]["severity"], "critical", "{document}");
    }
    asking.kill().unwrap();
    asking.wait().unwrap();
    drop(hanging);
    status_becomes(&place.state, 0);
}

/// The server answers though changes wait for a disk.
#[test]
fn a_disk_that_takes_no_changes_for_a_while_does_not_keep_the_answer() {
    let Some(site) = Site::new(&["good", "bad"]) else { return };
    let running = site.start();
    let document = status_becomes(&site.place.state, 0);
    let paths: Vec<_> =
        document["disks"].as_array().unwrap().iter().map(|disk| &disk["path"]).collect();
    let wanted: Vec<_> = site.disks.iter().map(|disk| utf8(disk.at())).collect();
    assert!(wanted.iter().all(|path| paths.iter().any(|one| one == path)), "{document}");
    let (mut client, root) = site.mount(&running, 1);
    let frozen = site.disks[1].freeze();
    let change = std::thread::spawn(move || {
        while let Err(error) = client.mkdir(&root, b"made", &Settings::default()) {
            assert_eq!(error.status(), Some(NfsStat3::Jukebox), "{error}");
        }
    });
    for _ in 0..3 {
        let (document, _) = status(&site.place.state);
        assert_eq!(document["serving"], "yes", "{document}");
        assert_eq!(document["disks"].as_array().unwrap().len(), paths.len(), "{document}");
    }
    drop(frozen);
    change.join().unwrap();
    status_becomes(&site.place.state, 0);
    stop(running);
}

/// After an error of its disk an ext4 takes no changes, while its mount stays read-write.
#[test]
fn a_file_system_that_has_become_read_only_is_a_warning() {
    let Some(site) = Site::new(&["good", "bad"]) else { return };
    let bad = &site.disks[1];
    assert!(bad.remount("errors=remount-ro"));
    let running = site.start();
    status_becomes(&site.place.state, 0);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = format!(" {} ", utf8(bad.at()));
    let mount = mounts.lines().find(|line| line.contains(&at)).unwrap();
    let device = mount.split(" - ext4 /dev/").nth(1).unwrap().split(' ').next().unwrap();
    if let Err(error) = std::fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "trial") {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{error}");
        println!("skipped: no error can be had: {error}");
        return;
    }
    let (document, code) = status(&site.place.state);
    assert!(code > 0, "{document}");
    let what = format!("the file system at {} is read-only", utf8(bad.at()));
    let told = |one: &&Value| one["what"].as_str().unwrap().starts_with(&what);
    let found: Vec<_> = warnings(&document).into_iter().filter(told).collect();
    assert_eq!(found.len(), 1, "{document}");
    assert_eq!(found[0]["severity"], "warning", "{document}");
    let disks = document["disks"].as_array().unwrap().iter();
    let failing: Vec<_> = disks.filter(|disk| disk["changes_fail"] == true).collect();
    assert_eq!((failing.len(), &failing[0]["path"]), (1, &utf8(bad.at()).into()), "{document}");
    drop(running);
}

#[test]
fn wrong_usage_is_not_taken_for_a_server_that_does_not_serve() {
    assert_eq!(output(&["status", "--what"]).status.code(), Some(3));
    assert_eq!(output(&["statistics", "--what"]).status.code(), Some(2));
    assert_eq!(output(&["status", "--help"]).status.code(), Some(0));
    let words = ["status", "--config", "/nonexistent/steadfast.toml"];
    let unknown = output(&words);
    assert_eq!(unknown.status.code(), Some(3), "{}", stderr(&unknown));
    // Programs get a document all the same.
    let told = output(&[&words[..], &["--json"]].concat());
    assert_eq!(told.status.code(), Some(3), "{}", stderr(&told));
    let document: Value = serde_json::from_slice(&told.stdout).unwrap();
    let (verdict, serving) = (&document["verdict"], &document["serving"]);
    assert_eq!(
        (verdict, serving, &document["version"]),
        (&"unknown".into(), &"unknown".into(), &1.into())
    );
    let why = document["why"].as_str().unwrap();
    assert!(why.contains("/nonexistent/steadfast.toml"), "{document}");
    assert_eq!(document["warnings"][0]["what"], why);
}
