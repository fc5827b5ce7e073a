//! Process ring: what the real program tells of itself, by its control socket and by
//! `steadfast statistics`.

#![allow(clippy::expect_used, clippy::unwrap_used)] // A failure here is a failure of the test.

mod common;
mod nfs3_support;

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{PATIENCE, Place, Running, output, stderr, steadfast, utf8};
use nfs3_support::Fixture;
use rustix::process::Signal;
use serde_json::Value;
use steadfast_bench::mix::Mix;
use steadfast_client::{Settings, StableHow};

/// The document of statistics, as any HTTP client gets it.
fn document(place: &Place) -> Value {
    let mut stream = UnixStream::connect(place.state.join("control.sock")).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    stream.write_all(b"GET /v1/statistics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("asked");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a document");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    serde_json::from_str(body).expect("JSON")
}

fn operation<'d>(document: &'d Value, protocol: &str, name: &str) -> Option<&'d Value> {
    let operations = document["operations"].as_array().expect("operations");
    operations.iter().find(|found| found["protocol"] == protocol && found["name"] == name)
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

/// A reply may be here before it is counted there.
fn document_when(place: &Place, is_complete: impl Fn(&Value) -> bool) -> Value {
    let started = Instant::now();
    loop {
        let document = document(place);
        if is_complete(&document) {
            return document;
        }
        assert!(started.elapsed() < PATIENCE, "never complete: {document}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether so many replies to this operation are counted.
fn has(document: &Value, name: &str, count: u64) -> bool {
    operation(document, "nfs", name)
        .is_some_and(|found| number(&found["latency"]["replies"]) == count)
}

fn statistics<'a>(place: &'a Place, arguments: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["statistics", "--state-directory", utf8(&place.state)];
    all.extend(arguments);
    all
}

fn printed(place: &Place, arguments: &[&str]) -> String {
    let output = output(&statistics(place, arguments));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn every_call_is_counted_and_every_stable_one_with_its_wait() {
    let mut fixture = Fixture::new();
    let file = fixture.file("file");
    for _ in 0..200 {
        fixture.client.getattr(&file).unwrap();
    }
    for name in [&b"file"[..], b"missing", b"missing"] {
        let _ = fixture.client.lookup(&fixture.root, name);
    }
    // One of 127 is sampled at the latest, by each of the workers.
    for size in 0..600 {
        fixture.client.setattr(&file, &Settings::size(size), None).unwrap();
    }
    fixture.client.write(&file, 0, &[7; 1000], StableHow::Unstable).unwrap();
    fixture.client.commit(&file, 0, 0).unwrap();

    let document = document_when(&fixture.place, |document| {
        has(document, "COMMIT", 1) && has(document, "SETATTR", 600) && has(document, "LOOKUP", 3)
    });
    assert_eq!(document["version"], 1);
    assert_eq!(document["process"], fixture.running.id());
    let of = |protocol, name| operation(&document, protocol, name).expect("counted").clone();
    let calls = |protocol, name| {
        let operation = of(protocol, name);
        (number(&operation["calls"]), number(&operation["errors"]))
    };
    assert_eq!(calls("mount", "MNT"), (1, 0));
    assert_eq!(calls("nfs", "GETATTR"), (200, 0));
    assert_eq!(calls("nfs", "LOOKUP"), (3, 2));
    assert_eq!(calls("nfs", "CREATE"), (1, 0));
    assert_eq!(calls("nfs", "SETATTR"), (600, 0));
    assert_eq!(calls("nfs", "WRITE"), (1, 0));
    assert_eq!(calls("nfs", "COMMIT"), (1, 0));
    assert!(operation(&document, "nfs", "READ").is_none(), "nobody read");
    assert_eq!(number(&document["server"]["calls"]), 807);
    assert!(number(&of("nfs", "WRITE")["bytes_in"]) > 1000);
    // 112 bytes are the reply of a GETATTR: header, status, attributes.
    assert_eq!(number(&of("nfs", "GETATTR")["bytes_out"]), 200 * 112);

    for (name, stable) in [("GETATTR", 0), ("WRITE", 0), ("SETATTR", 600), ("CREATE", 1)] {
        assert_eq!(number(&of("nfs", name)["stable"]["replies"]), stable, "{name}");
    }
    let setattr = of("nfs", "SETATTR");
    let latency = &setattr["latency"];
    let in_buckets: u64 =
        latency["buckets"].as_array().unwrap().iter().map(|bucket| number(&bucket[2])).sum();
    assert_eq!(in_buckets, 600);
    let percentiles: Vec<u64> = ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"]
        .iter()
        .map(|name| number(&latency[*name]))
        .collect();
    assert!(percentiles.is_sorted() && percentiles[0] > 0, "{percentiles:?}");
    assert!(number(&setattr["sampled_calls"]) > 0);
    assert!(number(&setattr["stages"]["stable_ns"]) > 0, "{setattr}");
    assert!(number(&setattr["stages"]["storage_ns"]) > 0, "{setattr}");

    let recent = document["recent"].as_array().unwrap();
    let recorded =
        recent.iter().find(|call| call["name"] == "SETATTR" && call["is_sampled"] == true);
    let recorded = recorded.expect("a recorded call");
    assert_eq!(recorded["was_parked"], true);
    assert!(number(&recorded["stages"]["stable_ns"]) > 0, "{recorded}");
    assert!(recorded["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{recorded}");
    let stages = &recorded["stages"];
    let sum: u64 = ["queue_ns", "decode_ns", "access_ns", "storage_ns", "stable_ns", "send_ns"]
        .iter()
        .map(|stage| number(&stages[*stage]))
        .sum();
    assert_eq!(sum, number(&recorded["latency_ns"]), "{recorded}");
}

#[test]
fn the_command_prints_a_table_the_recorder_and_a_mix() {
    let mut fixture = Fixture::new();
    for _ in 0..300 {
        fixture.client.getattr(&fixture.root).unwrap();
    }
    for _ in 0..100 {
        fixture.client.access(&fixture.root, 1).unwrap();
    }
    document_when(&fixture.place, |document| has(document, "ACCESS", 100));

    let table = printed(&fixture.place, &[]);
    let line = |first: &str| -> Vec<String> {
        let mut lines = table.lines().map(|line| line.split_whitespace().map(str::to_owned));
        lines.find_map(|mut words| (words.next()? == first).then(|| words.collect())).expect("one")
    };
    assert_eq!(line("getattr")[..2], ["300", "74.81"], "{table}");
    assert_eq!(line("access")[..2], ["100", "24.94"], "{table}");
    assert_eq!(line("mount3")[..2], ["mnt", "1"], "{table}");
    assert!(table.contains("401 calls, "), "{table}");

    let recent = printed(&fixture.place, &["--recent", "2"]);
    assert_eq!(recent.lines().count(), 3, "{recent}");
    assert!(recent.lines().skip(1).all(|line| line.contains(" 127.0.0.1:")), "{recent}");

    let json = printed(&fixture.place, &["--json"]);
    let document: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(document["recent"], serde_json::json!([]));
    let mix = Mix::parse(&json).expect("a mix");
    assert!((mix.percent(1) - 75.0).abs() < 1e-9 && (mix.percent(4) - 25.0).abs() < 1e-9);
    let json = printed(&fixture.place, &["--json", "--recent", "3"]);
    let document: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(document["recent"].as_array().map(Vec::len), Some(3));
}

#[test]
fn watching_tells_what_happened_in_between() {
    let mut fixture = Fixture::new();
    for _ in 0..50 {
        fixture.client.getattr(&fixture.root).unwrap();
    }
    document_when(&fixture.place, |document| has(document, "GETATTR", 50));
    let arguments = statistics(&fixture.place, &["--watch", "0.2", "--json"]);
    let mut command = steadfast(&arguments);
    let mut watch = command.stdout(Stdio::piped()).spawn().expect("started");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(watch.stdout.take().unwrap()));
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = next();
    assert_eq!(operation(&first, "nfs", "GETATTR").expect("counted")["calls"], 50);
    for _ in 0..30 {
        fixture.client.getattr(&fixture.root).unwrap();
    }
    // In one interval or two.
    let mut calls = 0;
    while calls < 30 {
        let interval = next();
        calls += operation(&interval, "nfs", "GETATTR").map_or(0, |found| number(&found["calls"]));
    }
    assert_eq!(calls, 30);
    watch.kill().expect("killed");
    watch.wait().expect("ended");
}

#[test]
fn the_socket_is_its_owners_and_goes_with_the_server() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share)]);
    let socket = place.state.join("control.sock");
    assert_eq!(socket.metadata().expect("metadata").mode() & 0o777, 0o600);
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), Some(0));
    assert!(!socket.exists());
    let failed = output(&statistics(&place, &[]));
    assert_eq!(failed.status.code(), Some(1));
    let told = stderr(&failed);
    assert!(told.contains("no server runs with the state directory"), "{told}");
    assert!(told.contains(utf8(&place.state)) && told.contains("--state-directory"), "{told}");

    // A killed server leaves its socket, which the next one replaces.
    let running = Running::start(&place, 0, &[utf8(&place.share)]);
    running.signal(Signal::KILL);
    running.wait();
    assert!(socket.exists());
    let failed = output(&statistics(&place, &[]));
    assert_eq!(failed.status.code(), Some(1));
    assert!(stderr(&failed).contains("has ended"), "{}", stderr(&failed));
    let _running = Running::start(&place, 0, &[utf8(&place.share)]);
    assert_eq!(document(&place)["operations"], serde_json::json!([]));
}

#[test]
fn a_server_whose_socket_has_no_room_for_its_name_serves_all_the_same() {
    let mut place = Place::new();
    // sun_path has 108 bytes (unix(7)).
    place.state = place.state.join("s".repeat(108));
    let _running = Running::start(&place, 0, &[utf8(&place.share)]);
    let log = Running::log(&place);
    assert!(log.contains("cannot make a control socket"), "{log}");
    let failed = output(&statistics(&place, &[]));
    assert_eq!(failed.status.code(), Some(1));
    assert!(Path::new(&place.state).is_dir());
}
