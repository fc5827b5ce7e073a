//! Process ring: `steadfast watch` beside a real server on loopback. What it makes of packets is what the server says
//! that it has done. Capturing needs root; without it the tests tell so and pass, but not with `CI=true`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use common::{PATIENCE, Place, Running, output, stderr, steadfast, utf8};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use steadfast_client::{CreateHow3, Identity, Nfs3Client, Settings, StableHow};

/// Program of callbacks, as clients number it.
const CALLBACKS: u64 = 0x4000_0000;

fn may_capture() -> bool {
    let can = rustix::process::geteuid().is_root();
    let must = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(can || !must, "CI must be able to capture packets: this is not root");
    if !can {
        eprintln!("skipped: capturing packets needs root");
    }
    can
}

/// A `steadfast watch` whose capture has begun.
struct Watching {
    child: Child,
    /// Lines are read as they come: whoever waits to write captures nothing meanwhile.
    lines: Receiver<String>,
}

impl Watching {
    fn start(port: u16, arguments: &[&str]) -> Self {
        let port = port.to_string();
        let mut command = steadfast(&["watch", "-i", "lo", "--port", &port, "--json"]);
        let mut child = command
            .args(["--interval", "0.2"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut watching = Self { child, lines };
        assert_eq!(watching.next().expect("an interval")["kind"], "interval");
        watching
    }

    fn next(&mut self) -> Option<Value> {
        let line = self.lines.recv_timeout(PATIENCE).ok()?;
        Some(serde_json::from_str(&line).unwrap())
    }

    /// Interrupts it; the total.
    fn end(mut self) -> Value {
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let mut last = Value::Null;
        while let Some(next) = self.next() {
            last = next;
        }
        assert!(self.child.wait().unwrap().success());
        assert_eq!(last["kind"], "total");
        last
    }
}

fn statistics(place: &Place) -> Value {
    let found = output(&["statistics", "--json", "--state-directory", utf8(&place.state)]);
    assert!(found.status.success(), "{}", stderr(&found));
    serde_json::from_slice(&found.stdout).unwrap()
}

/// Calls and failures by program, version, number, and whether it is inside COMPOUNDs.
type Calls = BTreeMap<(u64, u64, u64, bool), (u64, u64)>;

/// What the server says that it has done.
fn served(document: &Value) -> Calls {
    let number = |value: &Value, name: &str| value[name].as_u64().unwrap();
    let rows = |name: &str| document[name].as_array().unwrap().clone();
    let mut calls = Calls::new();
    for row in rows("operations") {
        let key =
            (number(&row, "program"), number(&row, "version"), number(&row, "procedure"), false);
        calls.insert(key, (number(&row, "calls"), number(&row, "errors")));
    }
    for row in rows("compound_operations") {
        let key = (100_003, 4, number(&row, "number"), true);
        calls.insert(key, (number(&row, "calls"), number(&row, "errors")));
    }
    calls
}

/// What was watched, whatever the minor version.
fn watched(total: &Value) -> Calls {
    let mut calls = Calls::new();
    for row in total["rows"].as_array().unwrap() {
        let number = |name: &str| row[name].as_u64().unwrap();
        // The server counts the replies to its callbacks, as calls of no program.
        if number("program") == CALLBACKS {
            if !row["in_compound"].as_bool().unwrap() {
                calls.insert((0, 0, 0, false), (number("calls"), 0));
            }
            continue;
        }
        let is_part = row["in_compound"].as_bool().unwrap();
        let key = (number("program"), number("version"), number("number"), is_part);
        let sum = calls.entry(key).or_default();
        *sum = (sum.0 + number("calls"), sum.1 + number("errors"));
    }
    calls
}

/// Puts all kinds of load on a server.
fn load(place: &Place, running: &Running) {
    let server = running.address.to_string();
    let path = utf8(&place.share);
    let mut client = Nfs3Client::mount(
        running.address,
        running.address,
        path.as_bytes(),
        Identity::root(),
        PATIENCE,
    );
    let (client, root) = client.as_mut().unwrap();
    for _ in 0..50 {
        client.getattr(root).unwrap();
        assert!(client.lookup(root, b"is not there").is_err());
    }
    let how = CreateHow3::Guarded(Settings::mode(0o644).0);
    let file = client.create(root, b"file", &how).unwrap().handle.unwrap();
    for index in 0..20_u64 {
        client.write(&file, index << 16, &vec![7; 1 << 16], StableHow::Unstable).unwrap();
        assert_eq!(client.read(&file, index << 16, 1 << 16).unwrap().count, 1 << 16);
    }
    client.commit(&file, 0, 0).unwrap();
    // Slow enough for a machine with much else to do: what the capture loses cannot be compared.
    let paced = ["--rate", "1000", "--seconds", "0.3", "--warm-up", "0", "--names", "200"];
    // Nothing that waits for the disk by UDP: a repeated call is two for the server.
    let of_nfs3 = ["getattr", "lookup", "read", "create", "remove", "readdir"];
    for (options, operations) in [
        (&["--nfs", "3"][..], &of_nfs3[..]),
        (&["--nfs", "3", "--udp"], &["getattr", "lookup", "read"]),
        (&["--nfs", "4.1"], &["getattr", "read"]),
        (&["--nfs", "4.2"], &["getattr"]),
    ] {
        let mut command = steadfast(&["bench", "op", &server, path]);
        command.args(operations).args(options).args(["--connections", "3", "--depth", "4"]);
        let done = command.args(paced).output().unwrap();
        assert!(done.status.success(), "{options:?}: {}", stderr(&done));
    }
    // Opens, locks, and callbacks of those who wait for them.
    let locks = output(&["bench", "locks", &server, path, "--seconds", "1"]);
    assert!(locks.status.success(), "{}", stderr(&locks));
}

#[test]
fn what_is_watched_is_what_the_server_has_done() {
    if !may_capture() {
        return;
    }
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share), "--no-root-squash"]);
    let file = place.directory.path().join("packets.pcapng");
    let watching = Watching::start(running.address.port(), &["--record", utf8(&file)]);
    load(&place, &running);
    // Replies may be here before they are counted there.
    let begun = Instant::now();
    let mut document = statistics(&place);
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let later = statistics(&place);
        if served(&later) == served(&document) || begun.elapsed() > PATIENCE {
            break;
        }
        document = later;
    }
    let total = watching.end();
    assert_eq!(total["kernel"]["dropped"], 0, "{}", total["kernel"]);
    let capture = &total["capture"];
    for name in ["gaps", "waiting", "unanswered", "not_followed", "unreadable_messages"] {
        assert_eq!(capture[name], 0, "{name}: {capture}");
    }
    let (watched_calls, served_calls) = (watched(&total), served(&document));
    assert!(served_calls.len() > 20, "{served_calls:?}");
    assert_eq!(watched_calls, served_calls);
    let all = total["all"]["calls"].as_u64().unwrap();
    assert!(all > 1000, "{all}");

    let replayed = output(&[
        "watch",
        "--replay",
        utf8(&file),
        "--json",
        "--port",
        &running.address.port().to_string(),
    ]);
    assert!(replayed.status.success(), "{}", stderr(&replayed));
    let replayed: Value = serde_json::from_slice(&replayed.stdout).unwrap();
    assert_eq!(replayed["rows"], total["rows"]);
    assert_eq!(replayed["kernel"]["dropped"], 0);
    by_all(&file, running.address.port(), all);
}

/// The other tables of the same packets have as many calls.
fn by_all(file: &Path, port: u16, all: u64) {
    let port = port.to_string();
    for by in ["client", "user", "server", "file"] {
        let arguments = ["watch", "--replay", utf8(file), "--by", by, "--port", &port];
        let json = output(&[&arguments[..], &["--json"]].concat());
        let json: Value = serde_json::from_slice(&json.stdout).unwrap();
        let rows = json["rows"].as_array().unwrap();
        assert!(!rows.is_empty(), "{by}");
        if by != "file" {
            let calls: u64 = rows.iter().map(|row| row["calls"].as_u64().unwrap()).sum();
            assert_eq!(calls, all, "{by}");
        }
        let text = output(&arguments);
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        let first = rows[0]["label"].as_str().unwrap();
        assert!(text.contains(first) && text.contains(&format!("{all} calls, ")), "{text}");
        assert!(text.contains("0 dropped before they were seen"), "{text}");
    }
}

#[test]
fn what_cannot_be_watched_is_told() {
    let place = Place::new();
    let text = place.write("text", "this is no capture, but long enough to be one of pcap");
    let refused = output(&["watch", "--replay", utf8(&text)]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("no pcap or pcapng file"), "{}", stderr(&refused));
    for wrong in [
        &["watch", "--replay", "a", "--record", "b"][..],
        &["watch", "--port", "0"],
        &["watch", "--interval", "0"],
        &["watch", "--by", "nothing"],
    ] {
        assert_eq!(output(wrong).status.code(), Some(2), "{wrong:?}");
    }
    if !may_capture() {
        return;
    }
    let missing = output(&["watch", "-i", "no-such-interface", "--count", "1"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("no network interface"), "{}", stderr(&missing));
    // As a user who may see the program, but no packets.
    let mut place = place;
    place.copy_program();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.directory.path(), open).unwrap();
    let mut command = std::process::Command::new(&place.program);
    let refused = command.args(["watch", "--count", "1"]).uid(65_534).gid(65_534).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("CAP_NET_RAW"), "{}", stderr(&refused));
}
