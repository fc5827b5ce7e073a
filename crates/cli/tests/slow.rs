//! Process ring: the real program's calls are slow, each time for another reason, and `steadfast slow` says
//! for which.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::{PATIENCE, Place, output, stderr, utf8};
use intent_log_support::disk::Disk;
use intent_log_support::site::Site;
use intent_log_support::{create, stop};
use serde_json::Value;
use steadfast_client::{Identity, Settings, StableHow, arguments, procedure};

/// Longer than anything else that a call does here.
const FROZEN: Duration = Duration::from_millis(800);

fn slow(place: &Place, more: &[&str]) -> String {
    let words = [&["slow", "--state-directory", utf8(&place.state)], more].concat();
    let told = output(&words);
    assert_eq!(told.status.code(), Some(0), "{}", stderr(&told));
    String::from_utf8(told.stdout).unwrap()
}

/// The WRITE of this number, once it is told: what it waited for has lasted long enough to be kept. How long exactly
/// depends on when the server came to receive it.
fn told_of(place: &Place, xid: u32) -> Value {
    let begun = Instant::now();
    loop {
        // The address as a socket of both families has it.
        let words =
            ["--json", "--operation", "write", "--client", "::ffff:127.0.0.1", "--count", "1000"];
        let report: Value = serde_json::from_str(&slow(place, &words)).unwrap();
        let calls = report["calls"].as_array().unwrap();
        if let Some(found) = calls.iter().find(|call| call["xid"] == xid) {
            return found.clone();
        }
        assert!(begun.elapsed() < PATIENCE, "{report}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
fn assert_slow(call: &Value, stages: &[&str]) {
    let all = call["stages"].as_array().unwrap();
    let ns = |stage: &Value| stage["ns"].as_u64().unwrap();
    let sum: u64 = all.iter().map(ns).sum();
    let latency = call["latency_ns"].as_u64().unwrap();
    assert!(sum.abs_diff(latency) <= latency / 20, "{call:#}");
    let longest = all.iter().max_by_key(|stage| ns(stage)).unwrap();
    assert!(stages.contains(&longest["stage"].as_str().unwrap()), "{call:#}");
}

/// A stable WRITE while a disk is frozen; what is told of it then, and in which words.
fn written_while_frozen(site: &Site, disk: &Disk) -> (Value, String) {
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let file = create(&mut client, &root, "slow-file");
    let frozen = disk.freeze();
    let data = arguments::write(&file, 0, b"data", StableHow::FileSync);
    let xid = client.transport().send(procedure::WRITE, &Identity::root(), &data).unwrap();
    std::thread::sleep(FROZEN);
    drop(frozen);
    client.transport().receive(xid).unwrap();
    let call = told_of(&site.place, xid);
    let text = slow(&site.place, &["--operation", "WRITE"]);
    assert_eq!(call["client"], "127.0.0.1");
    assert_eq!(call["uid"], 0);
    let path = utf8(&site.disks[0].share.join("slow-file")).to_owned();
    assert_eq!(call["path"], path.as_str(), "{call:#}");
    assert!(text.contains(&format!("WRITE {path}  client 127.0.0.1 uid 0, ")), "{text}");
    // Others are not told.
    assert!(slow(&site.place, &["--operation", "MKNOD"]).starts_with("no such call"));
    assert!(slow(&site.place, &["--client", "192.0.2.1"]).starts_with("no such call"));
    stop(running);
    (call, text)
}

#[test]
fn the_disk_of_the_log_is_named() {
    let place = Place::new();
    let directory = place.directory.path().canonicalize().unwrap();
    let Some(data) = Disk::new(&directory, "data", 48) else { return };
    let Some(log) = Disk::new(&directory, "log-disk", 48) else { return };
    let path = log.share.join("intent.log");
    let mut site = Site::of(vec![data], place);
    site.log = format!("{}path = {:?}\n", site.log, utf8(&path));
    let (call, text) = written_while_frozen(&site, &log);
    assert_slow(&call, &["log"]);
    assert!(text.contains("waiting for the log's disk"), "{text}");
}

#[test]
fn the_disk_of_the_share_is_named() {
    let Some(mut site) = Site::new(&["data"]) else { return };
    site.log = "enabled = false\n".to_owned();
    let (call, text) = written_while_frozen(&site, &site.disks[0]);
    // Frozen, a file system takes no change: the WRITE itself waits, and not its flush.
    assert_slow(&call, &["file-system"]);
    assert!(text.contains("in the file system or waiting for its disk"), "{text}");
}

/// What `steadfast log status` asks for, without a process for each question.
fn log_status(place: &Place) -> Value {
    let mut stream = UnixStream::connect(place.state.join("control.sock")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /v1/log HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
    serde_json::from_str(body).unwrap()
}

/// The log has no room, and cannot be given any: changes wait for that, and not for a disk of a share.
#[test]
fn a_log_without_room_is_named() {
    let place = Place::new();
    let directory = place.directory.path().canonicalize().unwrap();
    let Some(data) = Disk::new(&directory, "data", 48) else { return };
    let Some(log) = Disk::new(&directory, "log-disk", 48) else { return };
    let path = log.share.join("intent.log");
    let mut site = Site::of(vec![data], place);
    site.log = format!("{}path = {:?}\n", site.log, utf8(&path));
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let file = create(&mut client, &root, "slow-file");
    let frozen = log.freeze();
    // Each takes room until it is written, which it is not, until the first finds none.
    let waits_for_room = || log_status(&site.place)["waits_for_room"].as_u64().unwrap();
    let bytes = vec![7; 32 << 10];
    let mut xids = Vec::new();
    let before = waits_for_room();
    while waits_for_room() == before {
        assert!(xids.len() < 1000, "the log has 16 MiB");
        // A quarter of what it has room for, then one by one.
        for _ in 0..if xids.len() < 384 { 128 } else { 1 } {
            let at = xids.len() as u64 % 64 * bytes.len() as u64;
            let data = arguments::write(&file, at, &bytes, StableHow::FileSync);
            xids.push(client.transport().send(procedure::WRITE, &Identity::root(), &data).unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // What is left is enough for some of these.
    for number in 0..16 {
        let name = format!("made-{number}");
        let data = arguments::mkdir(&root, name.as_bytes(), &Settings::default());
        xids.push(client.transport().send(procedure::MKDIR, &Identity::root(), &data).unwrap());
    }
    std::thread::sleep(FROZEN);
    drop(frozen);
    for xid in &xids {
        client.transport().receive(*xid).unwrap();
    }
    let waited = |call: &Value| {
        let stages = call["stages"].as_array().unwrap().iter();
        let longest = stages.max_by_key(|stage| stage["ns"].as_u64()).unwrap();
        longest["stage"] == "log-room"
            && longest["ns"].as_u64() >= Some(FROZEN.as_nanos() as u64 / 4)
    };
    // Others could not wait there, since too many did.
    let begun = Instant::now();
    loop {
        let report: Value =
            serde_json::from_str(&slow(&site.place, &["--json", "--operation", "mkdir"])).unwrap();
        if report["calls"].as_array().unwrap().iter().any(waited) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{report:#}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let text = slow(&site.place, &["--operation", "MKDIR"]);
    assert!(text.contains("waiting until the log took the change"), "{text}");
    stop(running);
}

#[test]
fn what_is_typed_wrong_is_told() {
    for words in [&["--count", "0"][..], &["--operation", "a&b"], &["--client", "host"]] {
        let told = output(&[&["slow"], words].concat());
        assert_eq!(told.status.code(), Some(2), "{words:?}");
    }
}
