//! Process ring: the real program's calls are slow, each time for another reason, and `steadfast slow` says
//! for which.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::time::{Duration, Instant};

use common::{PATIENCE, Place, output, stderr, utf8};
use intent_log_support::disk::Disk;
use intent_log_support::site::Site;
use intent_log_support::{create, stop};
use serde_json::Value;
use steadfast_client::{Identity, StableHow, arguments, procedure};

/// Longer than anything else that a call does here.
const FROZEN: Duration = Duration::from_millis(800);

fn slow(place: &Place, more: &[&str]) -> String {
    let words = [&["slow", "--state-directory", utf8(&place.state)], more].concat();
    let told = output(&words);
    assert_eq!(told.status.code(), Some(0), "{}", stderr(&told));
    String::from_utf8(told.stdout).unwrap()
}

/// The slowest WRITE, once it is told.
fn slowest(place: &Place) -> Value {
    let begun = Instant::now();
    loop {
        let text = slow(place, &["--json", "--operation", "write", "--client", "127.0.0.1"]);
        let report: Value = serde_json::from_str(&text).unwrap();
        let first = report["calls"][0].clone();
        if first["latency_ns"].as_u64().is_some_and(|ns| u128::from(ns) >= FROZEN.as_nanos()) {
            return first;
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
    let call = slowest(&site.place);
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

#[test]
fn what_is_typed_wrong_is_told() {
    for words in [&["--count", "0"][..], &["--operation", "a&b"], &["--client", "host"]] {
        let told = output(&[&["slow"], words].concat());
        assert_eq!(told.status.code(), Some(2), "{words:?}");
    }
}
