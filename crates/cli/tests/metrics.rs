//! Process ring: the real program's metrics by its socket, by TCP and in a file, as Prometheus' own tools
//! read them. Without `promtool` (Debian: prometheus) its tests tell so and pass, but not with `CI=true`.

#![allow(clippy::expect_used, clippy::unwrap_used)] // A failure here is a failure of the test.

mod common;
mod nfs3_support;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{PATIENCE, Place, Running, output, stderr, steadfast, utf8};
use nfs3_support::Fixture;
use serde_json::Value;
use steadfast_control::metrics::total_names;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn printed(place: &Place, arguments: &[&str]) -> String {
    let mut all = vec!["statistics", "--state-directory", utf8(&place.state)];
    all.extend(arguments);
    let output = output(&all);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The value of a sample with these words in its labels.
fn value(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let line = text.lines().find(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    })?;
    line.rsplit_once(' ').expect("a value").1.parse().ok()
}

/// The metrics, as soon as so many GETATTRs are counted: a reply may be here before it is counted there.
fn with_getattrs(place: &Place, count: f64) -> String {
    let begun = Instant::now();
    loop {
        let text = printed(place, &["--prometheus"]);
        let name = "steadfast_call_latency_seconds_count";
        if value(&text, name, &["version=\"3\"", "\"GETATTR\""]) == Some(count) {
            return text;
        }
        assert!(begun.elapsed() < PATIENCE, "never counted: {text}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn what_clients_did_is_in_the_metrics() {
    let mut fixture = Fixture::new();
    let file = fixture.file("file");
    for _ in 0..200 {
        fixture.client.getattr(&file).unwrap();
    }
    for _ in 0..3 {
        let _ = fixture.client.lookup(&fixture.root, b"missing");
    }
    let text = with_getattrs(&fixture.place, 200.0);
    let of = |name, procedure: &str| {
        let labels = ["program=\"nfs\"", "version=\"3\"", &format!("procedure=\"{procedure}\"")];
        value(&text, name, &labels)
    };
    assert_eq!(of("steadfast_calls_total", "GETATTR"), Some(200.0), "{text}");
    assert_eq!(of("steadfast_call_errors_total", "GETATTR"), Some(0.0));
    assert_eq!(of("steadfast_calls_total", "LOOKUP"), Some(3.0));
    assert_eq!(of("steadfast_call_errors_total", "LOOKUP"), Some(3.0));
    // 112 bytes are the reply of a GETATTR.
    assert_eq!(of("steadfast_call_sent_bytes_total", "GETATTR"), Some(200.0 * 112.0));
    assert!(of("steadfast_call_latency_seconds_sum", "GETATTR") > Some(0.0));
    assert_eq!(value(&text, "steadfast_shares", &["\"enabled\""]), Some(1.0));
    assert_eq!(value(&text, "steadfast_shares", &["\"faulty\""]), Some(0.0));
    assert_eq!(value(&text, "steadfast_connections", &[]), Some(1.0));
    assert!(value(&text, "steadfast_process_resident_memory_bytes", &[]) > Some(1e6));
    assert!(value(&text, "steadfast_process_cpu_seconds_total", &[]) > Some(0.0));
    // Nothing that is counted is left out.
    let json: Value = serde_json::from_str(&printed(&fixture.place, &["--json"])).expect("JSON");
    let counted = json["server"].as_object().expect("totals").keys().map(String::as_str);
    let known: BTreeSet<&str> = total_names().collect();
    assert_eq!(counted.collect::<BTreeSet<_>>(), known);
    let open = printed(&fixture.place, &["--openmetrics"]);
    assert!(open.contains("# UNIT steadfast_received_bytes bytes\n"), "{open}");
    assert!(open.ends_with("# EOF\n"), "{open}");
}

#[test]
fn a_file_for_the_collector_is_written_once_or_again_and_again() {
    let fixture = Fixture::new();
    let file = fixture.place.directory.path().join("steadfast.prom");
    printed(&fixture.place, &["--textfile", utf8(&file)]);
    let text = std::fs::read_to_string(&file).expect("the file");
    assert!(text.contains("\nsteadfast_build_info{version=") && !text.contains("# EOF"), "{text}");
    assert_eq!(file.metadata().expect("metadata").permissions().mode() & 0o777, 0o644);
    let mut child = steadfast(&["statistics", "--state-directory", utf8(&fixture.place.state)])
        .args(["--textfile", utf8(&file), "--watch", "0.1"])
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    let begun = Instant::now();
    for _ in 0..2 {
        std::fs::remove_file(&file).expect("removed");
        while !file.exists() {
            assert!(begun.elapsed() < PATIENCE, "it is not written again");
            std::thread::sleep(Duration::from_millis(20));
        }
        // Never a part of it.
        let text = std::fs::read_to_string(&file).expect("the file");
        assert!(text.contains("\nsteadfast_process_max_fds "), "{text}");
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    // Without a server the file stays, and its age tells.
    let nowhere = fixture.place.directory.path().join("nowhere");
    let arguments = ["statistics", "--state-directory", utf8(&nowhere), "--textfile", utf8(&file)];
    let refused = output(&arguments);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("no server runs"), "{}", stderr(&refused));
    assert!(file.exists());
    let refused = output(&["statistics", "--textfile", "/tmp/x.prom", "--json"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// The status and the body of an answer.
fn ask(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    write!(stream, "{request}\r\nhost: x\r\n\r\n").expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.get(9..12).expect("a status").to_owned(), body.to_owned())
}

/// A configuration with monitoring at a port that is free now.
fn configuration(place: &Place) -> (PathBuf, PathBuf, SocketAddr) {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    std::fs::create_dir_all(&place.share).expect("a directory");
    let token = place.write("token", &format!("{TOKEN}\n"));
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o640)).expect("a mode");
    let text = format!(
        "[metrics]\nlisten = \"{free}\"\ntoken_file = {:?}\n[log]\nenabled = false\n\
         [[share]]\npath = {:?}\nclients = [\"*\"]\n",
        utf8(&token),
        utf8(&place.share)
    );
    (place.write("steadfast.toml", &text), token, free)
}

#[test]
fn monitoring_asks_by_tcp_with_the_token() {
    let place = Place::new();
    let (file, token, address) = configuration(&place);
    let checked = output(&["check-config", utf8(&file)]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    let running = Running::start(&place, 0, &["--config", utf8(&file)]);
    let authorized =
        |token: &str| format!("GET /metrics HTTP/1.1\r\nauthorization: Bearer {token}");
    assert_eq!(ask(address, "GET /metrics HTTP/1.1").0, "401");
    assert_eq!(ask(address, &authorized(&TOKEN.replace('0', "1"))).0, "401");
    let (status, body) = ask(address, &authorized(TOKEN));
    assert_eq!(status, "200");
    assert!(body.contains("steadfast_shares{state=\"enabled\"} 1\n"), "{body}");
    assert_eq!(ask(address, &authorized(TOKEN).replace("/metrics", "/v1/statistics")).0, "404");

    // A reload takes another token, and none that cannot be one.
    let (second, third) = (TOKEN.replace('0', "2"), TOKEN.replace('0', "3"));
    std::fs::write(&token, &second).expect("written");
    let reloaded = output(&["reload", "--state-directory", utf8(&place.state)]);
    assert_eq!(reloaded.status.code(), Some(0), "{}", stderr(&reloaded));
    assert_eq!(ask(address, &authorized(TOKEN)).0, "401");
    assert_eq!(ask(address, &authorized(&second)).0, "200");
    std::fs::write(&token, "short").expect("written");
    let reloaded = output(&["reload", "--state-directory", utf8(&place.state)]);
    assert_eq!(reloaded.status.code(), Some(1), "{}", stderr(&reloaded));
    let told = [reloaded.stdout, reloaded.stderr].concat();
    let told = String::from_utf8(told).expect("text");
    assert!(told.contains("the previous token stays valid"), "{told}");
    assert_eq!(ask(address, &authorized(&second)).0, "200");
    running.signal(rustix::process::Signal::HUP);
    Running::log_with(&place, "the previous token stays valid");
    assert_eq!(ask(address, &authorized(&second)).0, "200");
    std::fs::write(&token, &third).expect("written");
    running.signal(rustix::process::Signal::HUP);
    let begun = Instant::now();
    while ask(address, &authorized(&third)).0 != "200" {
        assert!(begun.elapsed() < PATIENCE, "{}", Running::log(&place));
    }
    let log = Running::log(&place);
    assert!(!log.contains(TOKEN) && !log.contains(&second), "{log}");
    drop(running);

    // A token that everybody may read is told before the start, with its place, and shown to nobody.
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).expect("a mode");
    let checked = output(&["check-config", utf8(&file)]);
    assert_eq!(checked.status.code(), Some(1));
    let told = stderr(&checked);
    assert!(told.contains("steadfast.toml:3:14: token_file: "), "{told}");
    assert!(told.contains("chmod 0640") && !told.contains(TOKEN), "{told}");
    let running = Running::start(&place, 0, &["--config", utf8(&file)]);
    Running::log_with(&place, "[metrics]: nobody can ask at");
    assert!(TcpStream::connect(address).is_err(), "nothing is told without the token");
    drop(running);
}

/// Whether Prometheus' tools are here.
fn has_tools() -> bool {
    let found = Command::new("promtool").arg("--version").output().is_ok();
    let must = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(found || !must, "CI must have promtool: install the package prometheus");
    if !found {
        println!("skipped: promtool is not here (package prometheus)");
    }
    found
}

fn promtool(arguments: &[&str], directory: &Path, input: &str) -> Output {
    let mut child = Command::new("promtool")
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("written");
    child.wait_with_output().expect("promtool ends")
}

fn accepts(output: &Output) -> bool {
    println!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(output));
    output.status.success()
}

#[test]
fn promtool_finds_nothing_wrong_with_the_metrics() {
    if !has_tools() {
        return;
    }
    let mut fixture = Fixture::new();
    let file = fixture.file("file");
    fixture.client.getattr(&file).unwrap();
    let text = with_getattrs(&fixture.place, 1.0);
    let check = |text: &str| promtool(&["check", "metrics"], fixture.place.directory.path(), text);
    let good = check(&text);
    assert!(accepts(&good) && good.stdout.is_empty() && good.stderr.is_empty());
    // It can find something.
    assert!(!accepts(&check(&text.replace("# HELP steadfast_grace ", "# "))));
}

#[test]
fn promtool_finds_nothing_wrong_with_the_alerts() {
    if !has_tools() {
        return;
    }
    let rules = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/prometheus"));
    assert!(accepts(&promtool(&["check", "rules", "steadfast.rules.yml"], rules, "")));
    assert!(accepts(&promtool(&["test", "rules", "steadfast.test.yml"], rules, "")));
    // It can find something: an alert that comes a tenth too late.
    let place = tempfile::tempdir().expect("a directory");
    for name in ["steadfast.rules.yml", "steadfast.test.yml"] {
        let text = std::fs::read_to_string(rules.join(name)).expect("rules");
        let broken = text.replace("> 0.85", "> 0.935").replace("> 0.02", "> 0.026");
        assert!(name == "steadfast.test.yml" || broken != text);
        std::fs::write(place.path().join(name), broken).expect("written");
    }
    assert!(!accepts(&promtool(&["test", "rules", "steadfast.test.yml"], place.path(), "")));
}
