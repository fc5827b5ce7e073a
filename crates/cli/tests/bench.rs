//! Process ring: `steadfast bench` against `steadfast serve`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::{Place, Running, output, stderr, steadfast, utf8};
use rustix::process::{Pid, Signal};
use serde_json::Value;

/// SIGHUP, SIGINT and SIGTERM, as `/proc/PID/status` has them.
const BLOCKED: u64 = 1 << 0 | 1 << 1 | 1 << 14;

#[test]
fn an_interrupt_ends_a_load_with_what_there_is_and_leaves_nothing() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share), "--no-root-squash"]);
    let (server, pid) = (running.address.to_string(), running.id().to_string());
    let mut bench = steadfast(&["bench", "nhfsstone", &server, utf8(&place.share)])
        .args(["--without-stable", "--load-of-max", "300", "--seconds", "3600"])
        .args(["--warm-up", "0", "--threads", "2", "--pid", &pid, "--json", "--progress"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(bench.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("measuring")), "it never measured");
    // Were one thread to take them, the whole program would end without a report.
    let threads: Vec<_> =
        std::fs::read_dir(format!("/proc/{}/task", bench.id())).unwrap().flatten().collect();
    assert!(threads.len() > 3);
    for thread in threads {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
        assert_eq!(blocked & BLOCKED, BLOCKED, "{status}");
    }
    rustix::process::kill_process(Pid::from_child(&bench), Signal::INT).unwrap();
    let output = bench.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let level = &report["levels"][0];
    assert_eq!(level["was_interrupted"], Value::Bool(true));
    assert!(level["calls"].as_u64().unwrap() > 0);
    assert!(level["server_cpu_us_per_call"].as_f64().unwrap() > 0.0);
    assert_eq!(std::fs::read_dir(&place.share).unwrap().count(), 0);
}

#[test]
fn loads_that_take_a_version_are_put_on_over_nfs4_and_leave_nothing() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share), "--no-root-squash"]);
    let server = running.address.to_string();
    let measure = |words: &[&str]| -> Value {
        let (load, options) = words.split_first().unwrap();
        let measured = steadfast(&["bench", load, &server, utf8(&place.share)])
            .args(options)
            .args(["--nfs", "4.2", "--seconds", "0.5", "--warm-up", "0.1", "--json"])
            .output()
            .unwrap();
        assert!(measured.status.success(), "{words:?}: {}", stderr(&measured));
        serde_json::from_slice(&measured.stdout).unwrap()
    };
    let op = measure(&["op", "create", "write+commit:8192"]);
    assert_eq!(op["reports"].as_array().unwrap().len(), 2);
    let mix = measure(&["nhfsstone", "--files", "300", "--clients", "4"]);
    assert!(mix["levels"][0]["checks"]["looked_at_afterwards"].as_u64().unwrap() > 0, "{mix}");
    for direction in
        [&["stream", "--file-size", "8M"][..], &["stream", "--file-size", "8M", "--write"]]
    {
        assert_eq!(measure(direction)["nfs"], "4.2");
    }
    for pattern in ["redundant", "plus"] {
        let walk = ["walk", "--pattern", pattern, "--clients", "4", "--inodes", "200", "--remove"];
        let point = &measure(&walk)["points"][0];
        assert!(point["whole_walks"].as_u64().unwrap() > 0, "{point}");
        assert_eq!(point["mounts"]["failed"], 0, "{point}");
    }
    assert_eq!(std::fs::read_dir(&place.share).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_measured_is_told() {
    let refused = output(&["bench", "nhfsstone", "127.0.0.1:1", "/nowhere"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).starts_with("steadfast: mounting the share: "), "{refused:?}");
    assert_eq!(output(&["bench", "nhfsstone"]).status.code(), Some(2));
    let help = output(&["bench", "--help"]);
    assert!(help.status.success());
    for load in
        ["op", "stream", "nhfsstone", "walk", "mountstorm", "clients", "locks", "null-server"]
    {
        let is_it = |line: &str| line.split_whitespace().next() == Some(load);
        assert!(String::from_utf8_lossy(&help.stdout).lines().any(is_it), "{load}");
    }
}
