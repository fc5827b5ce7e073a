//! Process ring: `steadfast mount status` and `steadfast mount flush` (docs/mount.md).
//!
//! They mount, so they need root and /dev/fuse. Where those are missing they do nothing, and fail with
//! `CI=true`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::mounts::{Mount, serve, stop, turn};
use common::{PATIENCE, Place, Running, output, stderr, utf8};
use rustix::process::{Pid, Signal};
use serde_json::Value;

/// A mount that hangs is told of within a second (docs/mount.md), and some for a busy machine.
const PROMPT: Duration = Duration::from_secs(5);
const NOBODY: u32 = 65_534;

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn with_journal(place: &Place) -> String {
    let at = place.directory.path().canonicalize().unwrap().join("journal");
    format!("journal={}", utf8(&at))
}

/// What a mount says of itself.
fn status(mount: &Mount) -> Value {
    let told = output(&["mount", "status", utf8(&mount.at), "--json"]);
    assert!(told.status.success(), "{told:?}");
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    let [one] = told.as_array().expect("a list").as_slice() else { panic!("{told}") };
    assert_eq!(one["mount_point"], utf8(&mount.at));
    one["status"].clone()
}

fn calls(status: &Value, procedure: &str) -> u64 {
    let all = status["procedures"].as_array().unwrap();
    let found = all.iter().find(|one| one["name"] == procedure);
    found.map_or(0, |one| one["calls"].as_u64().unwrap())
}

fn flush(mount: &Mount, seconds: &str) -> Output {
    output(&["mount", "flush", utf8(&mount.at), "--timeout", seconds])
}

/// What tells a process to be a writer: its file.
const WRITER: &str = "STEADFAST_TEST_WRITER";

/// A process that has a file open. This one has none on a mount whose server is stopped: whatever it starts
/// would close it, and wait.
struct Writer {
    child: Child,
}

impl Writer {
    fn new(file: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer", "--nocapture"])
            .env(WRITER, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self::await_line(&mut child, "open\n");
        Self { child }
    }

    fn await_line(child: &mut Child, wanted: &str) {
        let mut line = vec![0; wanted.len()];
        child.stderr.as_mut().unwrap().read_exact(&mut line).unwrap();
        assert_eq!(line, wanted.as_bytes());
    }

    fn write(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{text}\n").as_bytes()).unwrap();
        Self::await_line(&mut self.child, "written\n");
    }

    /// Closes the file.
    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// What a writer does.
#[test]
fn writer() {
    let Some(path) = std::env::var_os(WRITER) else { return };
    let mut file = fs::File::create(path).unwrap();
    eprintln!("open");
    let mut text = String::new();
    while std::io::stdin().read_line(&mut text).unwrap() > 0 {
        file.write_all(text.trim_end().as_bytes()).unwrap();
        eprintln!("written");
        text.clear();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The samples of a page, by name with labels. Fails if the page is not what the text format wants.
fn samples(page: &str) -> BTreeMap<String, f64> {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    assert!(page.ends_with('\n'), "{page:?}");
    let (mut families, mut found) = (BTreeSet::new(), BTreeMap::new());
    let (mut helped, mut family, mut kind) = (None, "", "");
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect("a text");
            assert!(is_name(name) && !text.is_empty() && helped.is_none(), "{line}");
            assert!(families.insert(name), "{name} comes twice");
            helped = Some(name);
            continue;
        }
        if let Some(of) = line.strip_prefix("# TYPE ") {
            (family, kind) = of.split_once(' ').expect("a type");
            assert_eq!(helped.take(), Some(family), "{line}");
            assert!(["gauge", "counter", "summary"].contains(&kind), "{line}");
            assert!(family.starts_with("steadfast_mount_"), "{line}");
            assert_eq!(family.ends_with("_total"), kind == "counter", "{line}");
            continue;
        }
        assert!(!line.starts_with('#') && helped.is_none(), "{line}");
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let value: f64 = value.parse().expect("a number");
        assert!(value.is_finite() && value >= 0.0, "{line}");
        let (name, labels) = series.split_once('{').expect("labels");
        let labels = labels.strip_suffix('}').expect("a brace");
        let part = name.strip_prefix(family).unwrap_or_else(|| panic!("{line} is not of {family}"));
        let is_quantile = labels.contains(",quantile=\"");
        match (kind, part) {
            ("summary", "") => assert!(is_quantile, "{line}"),
            ("summary", "_sum" | "_count") | (_, "") => assert!(!is_quantile, "{line}"),
            _ => panic!("{line} is not of {family}"),
        }
        let mut names = BTreeSet::new();
        let mut rest = labels;
        while !rest.is_empty() {
            let (label, after) = rest.split_once("=\"").expect("a value in quotes");
            assert!(is_name(label) && names.insert(label), "{line}");
            let mut characters = after.char_indices();
            let end = loop {
                match characters.next().expect("an end") {
                    (at, '"') => break at,
                    (_, '\\') => {
                        let (_, escaped) = characters.next().expect("an escaped character");
                        assert!(['\\', '"', 'n'].contains(&escaped), "{line}");
                    }
                    _ => {}
                }
            };
            rest = &after[end + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        assert!(names.contains("mount"), "{line}");
        assert!(found.insert(series.to_owned(), value).is_none(), "{line} comes twice");
    }
    assert!(helped.is_none());
    found
}

#[test]
fn numbers_are_those_of_what_was_done() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let mount = Mount::new(&place, &server, "mount", &with_journal(&place));
    let before = status(&mount);
    assert_eq!((calls(&before, "CREATE"), before["written_bytes"].as_u64()), (0, Some(0)));
    for number in 0..7 {
        fs::write(mount.path(&format!("file{number}")), [number; 1000]).unwrap();
    }
    fs::create_dir(mount.path("directory")).unwrap();
    assert!(fs::create_dir(mount.path("directory")).is_err());
    fs::remove_file(mount.path("file0")).unwrap();
    let flushed = flush(&mount, "60");
    assert!(flushed.status.success() && flushed.stderr.is_empty(), "{flushed:?}");
    let after = status(&mount);
    assert_eq!((calls(&after, "CREATE"), calls(&after, "REMOVE")), (7, 1), "{after}");
    assert_eq!((calls(&after, "MKDIR"), calls(&after, "RENAME")), (1, 0), "{after}");
    assert_eq!(after["written_bytes"], 7000);
    assert_eq!(after["share"], utf8(&place.share));
    assert_eq!((&after["server"], &after["nfs_version"]), (&"127.0.0.1".into(), &"3".into()));
    assert_eq!(after["pid"], mount.child.id());
    assert_eq!((&after["has_recovery_program"], &after["is_async"]), (&true.into(), &false.into()));
    assert_eq!(after["oldest_call_ms"], Value::Null);
    for what in ["dirty_bytes", "in_flight_bytes", "unstable_bytes", "refused_writes"] {
        assert_eq!(after["data"][what], 0, "{what}");
    }
    assert!(
        after["sent_bytes"].as_u64() > Some(7000) && after["received_bytes"].as_u64() > Some(0)
    );
    let connections = after["connections"].as_array().unwrap();
    assert_eq!(connections.len(), 1);
    assert_eq!(
        (&connections[0]["is_up"], &connections[0]["times_made"]),
        (&true.into(), &1.into())
    );
    let create = after["procedures"].as_array().unwrap();
    let create = create.iter().find(|one| one["name"] == "CREATE").unwrap();
    assert_eq!((&create["errors"], &create["retries"]), (&0.into(), &0.into()));
    let (sum, p99) = (create["latency_us"].as_u64().unwrap(), create["p99_us"].as_u64().unwrap());
    assert!(sum > 0 && p99 > 0 && p99 <= sum + sum / 8 + 1, "{create}");
    let journal = &after["journal"];
    assert_eq!((&journal["pending_records"], &journal["pending_bytes"]), (&0.into(), &0.into()));
    assert_eq!((&journal["oldest_sequence"], &journal["failed"]), (&Value::Null, &Value::Null));
    assert_eq!((&journal["sync"], &journal["recoveries"]["count"]), (&"fsync".into(), &0.into()));
    assert!(journal["last_sequence"].as_u64() >= Some(15), "{journal}");
    mount.unmount();
}

#[test]
fn people_and_prometheus_are_told_the_same() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let mount = Mount::new(&place, &server, "a \"mount\"", "nconnect=2,adaptive_depth");
    for number in 0..3 {
        fs::write(mount.path(&format!("file{number}")), [number; 1000]).unwrap();
    }
    assert!(fs::metadata(mount.path("absent")).is_err());
    let told = output(&["mount", "status", utf8(&mount.at)]);
    assert!(told.status.success(), "{told:?}");
    let text = stdout(&told);
    let source = format!("127.0.0.1:{} on {}", utf8(&place.share), utf8(&mount.at));
    assert!(text.starts_with(&source), "{text}");
    for part in [
        "connection 0: up for",
        "connection 1: up for",
        "written 2.9 KiB",
        "CREATE",
        "in flight: 0 bytes of at most",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Of all mounts.
    assert!(stdout(&output(&["mount", "status"])).contains(&source));
    let page = output(&["mount", "status", utf8(&mount.at), "--prometheus"]);
    assert!(page.status.success(), "{page:?}");
    let samples = samples(&stdout(&page));
    let label = format!("mount=\"{}\"", utf8(&mount.at).replace('"', "\\\""));
    let value = |name: &str, more: &str| {
        let series = format!("steadfast_mount_{name}{{{label}{more}}}");
        *samples.get(&series).unwrap_or_else(|| panic!("no {series}: {samples:#?}"))
    };
    let create = ",program=\"nfs\",procedure=\"CREATE\"";
    assert_eq!(value("calls_total", create) as u64, 3);
    assert_eq!(value("call_duration_seconds_count", create) as u64, 3);
    assert!(value("call_duration_seconds_sum", create) > 0.0);
    assert!(value("call_errors_total", ",program=\"nfs\",procedure=\"LOOKUP\"") >= 1.0);
    assert_eq!(value("written_bytes_total", "") as u64, 3000);
    assert_eq!(value("up", "") as u64, 1);
    assert_eq!(value("connection_up", ",connection=\"1\"") as u64, 1);
    assert_eq!(value("dirty_bytes", "") as u64, 0);
    assert!(value("write_window_bytes", "") >= 16384.0);
    assert_eq!(value("write_window_used_bytes", "") as u64, 0);
    // The kernel has measured the connections.
    let (now, lowest) = (value("round_trip_seconds", ""), value("lowest_round_trip_seconds", ""));
    assert!(lowest > 0.0 && lowest < 1.0 && now > 0.0, "{now} {lowest}");
    assert!(!samples.keys().any(|series| series.contains("journal")), "it has none");
    // The server was asked in the background.
    let begun = Instant::now();
    while status(&mount)["is_async"] != false {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    mount.unmount();
}

#[test]
fn a_stopped_server_is_told_of_and_a_flush_says_what_is_pending() {
    let Some(_turn) = turn() else { return };
    for has_journal in [false, true] {
        let place = Place::new();
        let server = serve(&place, 0);
        let options = if has_journal { with_journal(&place) } else { String::new() };
        let mount = Mount::new(&place, &server, "mount", &options);
        let mut writer = Writer::new(&mount.path("file"));
        assert!(flush(&mount, "60").status.success());
        stop(&server);
        writer.write("eleven byte");
        let begun = Instant::now();
        let refused = flush(&mount, "2.5");
        assert!(begun.elapsed() >= Duration::from_millis(2500));
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let why = stderr(&refused);
        for part in ["the server does not answer", "11 bytes in flight", "nothing is lost"] {
            assert!(why.contains(part), "{part}: {why}");
        }
        assert_eq!(why.contains(", 1 records in the journal"), has_journal, "{why}");
        let begun = Instant::now();
        let told = status(&mount);
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        assert!(told["oldest_call_ms"].as_u64() >= Some(1000), "{told}");
        assert_eq!(told["data"]["in_flight_bytes"], 11, "{told}");
        if has_journal {
            assert_eq!(told["journal"]["pending_bytes"], 11, "{told}");
            assert!(told["journal"]["oldest_unix_ms"].as_u64() > Some(0), "{told}");
        }
        let text = stdout(&output(&["mount", "status", utf8(&mount.at)]));
        assert!(text.contains("SERVER DOES NOT ANSWER"), "{text}");
        server.signal(Signal::CONT);
        let done = flush(&mount, "60");
        assert!(done.status.success(), "{done:?}");
        assert_eq!(fs::read(place.share.join("file")).unwrap(), b"eleven byte");
        let told = status(&mount);
        assert_eq!(told["data"]["files"], 0, "{told}");
        assert!(!has_journal || told["journal"]["pending_records"] == 0, "{told}");
        writer.end();
        mount.unmount();
    }
}

#[test]
fn a_server_that_is_gone_is_told_of() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let port = server.address.port();
    let mount = Mount::new(&place, &server, "mount", "");
    let mut writer = Writer::new(&mount.path("file"));
    server.signal(Signal::KILL);
    server.wait();
    writer.write("text");
    let refused = flush(&mount, "2");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(stderr(&refused).contains("there is no connection to the server"), "{refused:?}");
    let told = status(&mount);
    let connection = &told["connections"][0];
    assert_eq!(connection["is_up"], false, "{told}");
    assert!(connection["last_error"].is_string() && connection["since_unix_s"].as_u64() > Some(0));
    let _server = serve(&place, port);
    assert!(flush(&mount, "60").status.success());
    let told = status(&mount);
    assert_eq!(
        (&told["connections"][0]["is_up"], &told["data"]["files"]),
        (&true.into(), &0.into())
    );
    assert_eq!(told["connections"][0]["times_made"], 2, "{told}");
    writer.end();
    mount.unmount();
}

/// Serves a share that acknowledges from memory.
fn serve_async(place: &Place, port: u16) -> Running {
    let configuration = place.write(
        "steadfast.toml",
        &format!(
            "[log]\nsize_mib = 16\n[[share]]\npath = {:?}\nclients = [\"*\"]\n\
             options = [\"no_root_squash\", \"async\"]\n",
            utf8(&place.share)
        ),
    );
    Running::start(place, port, &["--config", utf8(&configuration)])
}

#[test]
fn a_recovery_is_told_of() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    fs::create_dir_all(&place.share).unwrap();
    let server = serve_async(&place, 0);
    let port = server.address.port();
    let mount = Mount::new(&place, &server, "mount", &with_journal(&place));
    assert_eq!(status(&mount)["is_async"], true);
    fs::write(mount.path("lost"), "data").unwrap();
    server.signal(Signal::KILL);
    server.wait();
    // What a crash of its disk would do.
    fs::remove_file(place.share.join("lost")).unwrap();
    let _server = serve_async(&place, port);
    assert_eq!(fs::read(mount.path("lost")).unwrap(), b"data");
    let told = status(&mount);
    let recoveries = &told["journal"]["recoveries"];
    assert_eq!((&recoveries["count"], &recoveries["conflicts"]), (&1.into(), &0.into()), "{told}");
    assert!(recoveries["records_made_again"].as_u64() >= Some(1), "{told}");
    assert!(recoveries["last_took_ms"].is_u64() && recoveries["last_unix_ms"].is_u64(), "{told}");
    assert_eq!(recoveries["under_way_since_unix_ms"], Value::Null);
    let text = stdout(&output(&["mount", "status", utf8(&mount.at)]));
    assert!(text.contains("recoveries: 1, the last") && text.contains("share is async"), "{text}");
    let page = stdout(&output(&["mount", "status", utf8(&mount.at), "--prometheus"]));
    let samples = samples(&page);
    let series = format!("steadfast_mount_recoveries_total{{mount=\"{}\"}}", utf8(&mount.at));
    assert_eq!(samples.get(&series).copied(), Some(1.0), "{page}");
    assert!(flush(&mount, "60").status.success());
    assert_eq!(status(&mount)["journal"]["pending_records"], 0);
    mount.unmount();
}

/// Where the process of a mount listens.
fn socket(mount: &Mount) -> PathBuf {
    let device = fs::metadata(&mount.at).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = PathBuf::from(format!("/run/steadfast-mount/{major}:{minor}"));
    assert!(path.exists(), "{}", path.display());
    path
}

#[test]
fn a_process_that_hangs_or_is_dead_is_told_of() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let mut mount = Mount::new(&place, &server, "mount", "");
    let socket = socket(&mount);
    let pid = Pid::from_child(&mount.child);
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    let begun = Instant::now();
    let told = output(&["mount", "status", utf8(&mount.at)]);
    let took = begun.elapsed();
    let page = output(&["mount", "status", utf8(&mount.at), "--prometheus"]);
    let flushed = flush(&mount, "60");
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    assert!(stdout(&told).contains("does not answer") && took < PROMPT, "{took:?} {told:?}");
    let samples = samples(&stdout(&page));
    assert_eq!(samples.values().collect::<Vec<_>>(), [&0.0], "{samples:?}");
    assert_eq!(flushed.status.code(), Some(1), "{flushed:?}");
    assert!(stderr(&flushed).contains("does not answer"), "{flushed:?}");
    mount.child.kill().unwrap();
    mount.child.wait().unwrap();
    // The mount stands, and nobody answers the kernel.
    let told = output(&["mount", "status", utf8(&mount.at)]);
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    assert!(stdout(&told).contains("its process has ended"), "{told:?}");
    assert!(socket.exists(), "nobody has removed it");
    drop(mount);
    let absent = place.directory.path().join("mount");
    let told = output(&["mount", "status", utf8(&absent)]);
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    assert!(stderr(&told).contains("is not the mount point"), "{told:?}");
    // What the dead process has left is in nobody's way.
    let mounts: Vec<Mount> =
        (0..3).map(|number| Mount::new(&place, &server, &format!("mount{number}"), "")).collect();
    for mount in mounts {
        assert_eq!(status(&mount)["pid"], mount.child.id());
        let socket = self::socket(&mount);
        mount.unmount();
        assert!(!socket.exists(), "{}", socket.display());
    }
}

#[test]
fn strangers_and_nonsense_are_refused() {
    let Some(_turn) = turn() else { return };
    let mut place = Place::new();
    place.copy_program();
    fs::set_permissions(place.directory.path(), Permissions::from_mode(0o755)).unwrap();
    let server = serve(&place, 0);
    let mount = Mount::new(&place, &server, "mount", "");
    for action in ["status", "flush"] {
        let mut command = Command::new(&place.program);
        command.args(["mount", action, utf8(&mount.at)]).uid(NOBODY).gid(NOBODY);
        let told = command.output().unwrap();
        assert_eq!(told.status.code(), Some(1), "{told:?}");
        let all = stdout(&told) + &stderr(&told);
        assert!(all.contains("only that user and root may ask"), "{told:?}");
    }
    let path = socket(&mount);
    for (at, mode) in [(path.parent().unwrap(), 0o700), (&path, 0o600)] {
        let metadata = fs::metadata(at).unwrap();
        assert_eq!((metadata.mode() & 0o777, metadata.uid()), (mode, 0), "{}", at.display());
    }
    // A stranger who gets as far as the socket, by whatever mistake, is refused there too.
    let directory = path.parent().unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(directory, Permissions::from_mode(0o711)).unwrap();
    let mut command = Command::new(&place.program);
    command.args(["mount", "status", utf8(&mount.at)]).uid(NOBODY).gid(NOBODY);
    let told = command.output().unwrap();
    fs::set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    let all = stdout(&told) + &stderr(&told);
    assert!(all.contains("only root and the user who has mounted it may ask"), "{told:?}");
    for nonsense in [&b"\n"[..], b"status\n", b"{\"flush\":{}}\n", &[b'x'; 4096]] {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // It may be refused before all of it is read.
        let _ = stream.write_all(nonsense);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("{\"refused\":"), "{answer}");
    }
    // Those who say nothing hold up nobody for long, and who comes meanwhile is told why not now.
    let silent: Vec<_> = (0..100).filter_map(|_| UnixStream::connect(&path).ok()).collect();
    let begun = Instant::now();
    loop {
        let told = output(&["mount", "status", utf8(&mount.at), "--json"]);
        if told.status.success() {
            break;
        }
        let why = stderr(&told);
        assert!(["too many ask", "does not answer"].iter().any(|word| why.contains(word)), "{why}");
        assert!(begun.elapsed() < PATIENCE, "{why}");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(status(&mount)["pid"], mount.child.id());
    drop(silent);
    mount.unmount();
}
