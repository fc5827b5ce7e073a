//! Process ring: `steadfast status` and its exit status, against the real program: healthy, with a faulty share,
//! with a log that is off, while it hangs, and without a server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::path::Path;
use std::process::Output;
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
    let next = format!("steadfast share show {}", utf8(&place.share));
    assert_eq!(document["warnings"][0]["next"], next, "{document}");
    // What is told to be typed next works.
    let words: Vec<&str> = next.split(' ').skip(1).collect();
    let shown = output(&[&words[..], &["--state-directory", utf8(&place.state)]].concat());
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
    assert_eq!(warning["next"], "steadfast log enable");
    logged.told(&["enable"]);
    status_becomes(state, 0);
}

/// The server answers though changes wait for a disk, and the command asks that disk for its size.
#[test]
fn a_disk_that_hangs_does_not_keep_the_answer() {
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

#[test]
fn wrong_usage_is_not_taken_for_a_server_that_does_not_serve() {
    assert_eq!(output(&["status", "--what"]).status.code(), Some(3));
    assert_eq!(output(&["statistics", "--what"]).status.code(), Some(2));
    assert_eq!(output(&["status", "--help"]).status.code(), Some(0));
    let unknown = output(&["status", "--config", "/nonexistent/steadfast.toml"]);
    assert_eq!(unknown.status.code(), Some(3), "{}", stderr(&unknown));
}
