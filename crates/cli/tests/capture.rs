//! Process ring: `steadfast capture` beside a real server. What is in its files is what the server says that it has
//! done, and tshark reads them, where it is installed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod nfs4_support;

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{PATIENCE, Place, Running, ended, output, stderr, steadfast, utf8};
use nfs4_support::Wire;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use steadfast_client::nfs4::{COMPOUND, Compound};
use steadfast_client::{CreateHow3, Identity, Nfs3Client, Settings, StableHow, append_call};
use steadfast_wire::nfs4::Bitmap4;

/// What files have, and nothing else.
const CONTENTS: &[u8] = b"<contents of a file>";

/// A `steadfast capture` that has begun.
struct Capturing(Child);

impl Capturing {
    fn start(place: &Place, file: &Path, arguments: &[&str]) -> Self {
        let words = ["capture", "--state-directory", utf8(&place.state), "--write", utf8(file)];
        let mut command = steadfast(&words);
        let child = command.args(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let begun = Instant::now();
        while !file.exists() {
            assert!(begun.elapsed() < PATIENCE, "it has not begun");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// What it says at its end.
    fn end(self) -> String {
        let done = self.0.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", stderr(&done));
        stderr(&done)
    }

    /// Interrupts it, when it has had the time to take what was sent before.
    fn interrupt(self) -> String {
        std::thread::sleep(Duration::from_millis(500));
        self.signal(Signal::INT);
        self.end()
    }
}

/// What the log says when a capture of all clients begins.
const BEGUN: &str = " captures the first 1024 bytes of each message of all clients, ";

/// Captures to a pipe, and has begun.
fn piped(place: &Place) -> Child {
    let mut command = steadfast(&["capture", "--state-directory", utf8(&place.state)]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    Running::log_with(place, BEGUN);
    child
}

/// Ends a capture by a signal, and tells what it says. It ends soon, or is killed.
fn end_soon(mut child: Child, signal: Signal) -> String {
    rustix::process::kill_process(Pid::from_child(&child), signal).unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(8) {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let took = begun.elapsed();
    let mut told = String::new();
    child.stderr.unwrap().read_to_string(&mut told).unwrap();
    assert!(took < Duration::from_secs(8), "it did not end: {told}");
    told
}

/// The number before a word.
fn number(text: &str, word: &str) -> u64 {
    let before = text.split(word).next().unwrap_or_else(|| panic!("no {word:?}: {text}"));
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty());
    digits.unwrap_or_else(|| panic!("no number before {word:?}: {text}")).parse().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let found = output(arguments);
    assert!(found.status.success(), "{}", stderr(&found));
    serde_json::from_slice(&found.stdout).unwrap()
}

fn statistics(place: &Place) -> Value {
    json(&["statistics", "--json", "--state-directory", utf8(&place.state)])
}

/// Calls by program, version and procedure, or by operation in COMPOUNDs, with the number of failures.
type Calls = BTreeMap<(u64, u64, u64, bool), (u64, u64)>;

fn served(document: &Value) -> Calls {
    let number = |value: &Value, name: &str| value[name].as_u64().unwrap();
    let of_all = document["operations"].as_array().unwrap().iter().map(|row| {
        let key = (number(row, "program"), number(row, "version"), number(row, "procedure"), false);
        (key, (number(row, "calls"), number(row, "errors")))
    });
    let parts = document["compound_operations"].as_array().unwrap().iter().map(|row| {
        let key = (100_003, 4, number(row, "number"), true);
        (key, (number(row, "calls"), number(row, "errors")))
    });
    of_all.chain(parts).collect()
}

/// What `steadfast watch` finds in a file.
fn captured(file: &Path, port: u16) -> (Calls, Value) {
    let total = json(&["watch", "--replay", utf8(file), "--json", "--port", &port.to_string()]);
    let mut calls = Calls::new();
    for row in total["rows"].as_array().unwrap() {
        let number = |name: &str| row[name].as_u64().unwrap();
        let is_part = row["in_compound"].as_bool().unwrap();
        let key = (number("program"), number("version"), number("number"), is_part);
        let sum = calls.entry(key).or_default();
        *sum = (sum.0 + number("calls"), sum.1 + number("errors"));
    }
    (calls, total)
}

fn mount(place: &Place, running: &Running) -> (Nfs3Client, steadfast_client::FileHandle) {
    let (server, path) = (running.address, utf8(&place.share).as_bytes());
    Nfs3Client::mount(server, server, path, Identity::root(), PATIENCE).unwrap()
}

/// Files with contents, read and written in pieces of several sizes; and calls that fail.
fn files(place: &Place, running: &Running) {
    let (client, root) = &mut mount(place, running);
    let how = CreateHow3::Guarded(Settings::mode(0o644).0);
    let file = client.create(root, b"a-file", &how).unwrap().handle.unwrap();
    for size in [20, 1000, 4096, 1 << 16, 1 << 20] {
        let data = CONTENTS.repeat(size / 20 + 1)[..size].to_vec();
        client.write(&file, 0, &data, StableHow::FileSync).unwrap();
        assert_eq!(client.read(&file, 0, size as u32).unwrap().count, size as u32);
    }
    for _ in 0..20 {
        client.getattr(root).unwrap();
        assert!(client.lookup(root, b"is not there").is_err());
    }
}

/// The same over NFSv4.1.
fn files4(place: &Place, running: &Running) {
    let mut client = nfs4_support::connect(running.address, 4);
    let root = client.lookup_path(utf8(&place.share).as_bytes()).unwrap();
    let opened = client.open_for_all(&root, b"a-file").unwrap();
    for size in [20, 300, 4096] {
        let data = CONTENTS.repeat(size / 20 + 1)[..size].to_vec();
        let (file, stateid) = (&opened.handle, opened.stateid);
        client.write(file, stateid, 0, &data, StableHow::Unstable).unwrap();
        let read = client.read(file, stateid, 0, size as u32).unwrap();
        assert_eq!(read.data, data);
    }
    client.close(&opened.handle, opened.stateid).unwrap();
}

/// A COMPOUND of NFSv4.0.
fn oldest_compound(running: &Running) {
    let compound = Compound::new().of_minor_version(0).put_root();
    let compound = compound.attributes(Bitmap4::from_words([1 << 1, 0, 0])).handle();
    let mut call = Vec::new();
    append_call(&mut call, 77, COMPOUND, &Identity::root(), &compound.arguments());
    let reply = Wire::connect(running.address).unwrap().ask(&call);
    assert_eq!(reply[24..28], [0; 4], "{reply:?}");
}

/// All versions and transports.
fn load(place: &Place, running: &Running) {
    files(place, running);
    files4(place, running);
    oldest_compound(running);
    let (server, path) = (running.address.to_string(), utf8(&place.share));
    let paced = ["--rate", "500", "--seconds", "0.3", "--warm-up", "0", "--names", "50"];
    for (options, operations) in [
        (&["--nfs", "3"][..], &["getattr", "lookup", "create", "remove", "readdir"][..]),
        (&["--nfs", "3", "--udp"], &["getattr", "lookup"]),
        (&["--nfs", "4.1"], &["getattr", "create", "lookup", "readdir"]),
        (&["--nfs", "4.2"], &["getattr"]),
    ] {
        let mut command = steadfast(&["bench", "op", &server, path]);
        command.args(operations).args(options).args(["--connections", "2", "--depth", "4"]);
        let done = command.args(paced).output().unwrap();
        assert!(done.status.success(), "{options:?}: {}", stderr(&done));
    }
}

/// What tshark tells of each packet, by these fields. `None` without tshark.
fn tshark<const N: usize>(file: &Path, port: u16, fields: [&str; N]) -> Option<Vec<[String; N]>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", utf8(file), "-T", "fields", "-E", "separator=|"]);
    command.args(["-d", &format!("tcp.port=={port},rpc"), "-d", &format!("udp.port=={port},rpc")]);
    for field in fields {
        command.args(["-e", field]);
    }
    let done = match command.output() {
        Ok(done) => done,
        Err(error) => {
            let must = std::env::var_os("CI").is_some_and(|ci| ci == "true");
            assert!(!must, "CI must have tshark: {error}");
            eprintln!("skipped: no tshark: {error}");
            return None;
        }
    };
    assert!(done.status.success(), "{}", stderr(&done));
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let packet = |line: &str| {
        let mut fields = line.split('|').map(str::to_owned);
        std::array::from_fn(|_| fields.next().unwrap_or_default())
    };
    Some(text.lines().map(packet).collect())
}

/// tshark decodes all that is in a file, and finds the call of each reply.
fn agrees_with_tshark(file: &Path, port: u16, calls: u64, replies: u64) {
    let fields = [
        "rpc.msgtyp",
        "_ws.malformed",
        "tcp.analysis.flags",
        "nfs.procedure_v3",
        "nfs.minorversion",
        "frame.comment",
        "_ws.col.Info",
    ];
    let Some(packets) = tshark(file, port, fields) else { return };
    let (mut of_calls, mut of_replies, mut getattrs, mut comments) = (0, 0, 0, 0);
    let mut minors = BTreeMap::new();
    for packet in &packets {
        let [kind, malformed, flags, nfs3, minor, comment, told] = packet;
        assert!(malformed.is_empty() && flags.is_empty(), "{packet:?}");
        // Long messages have packets that are only parts.
        match kind.as_str() {
            "0" => of_calls += 1,
            "1" => {
                of_replies += 1;
                assert!(told.contains("(Call In "), "a reply without its call: {packet:?}");
                assert!(comment.starts_with("executed in "), "{packet:?}");
                comments += 1;
                getattrs += u64::from(nfs3 == "1");
            }
            "" => {}
            other => panic!("{other}: {packet:?}"),
        }
        if !minor.is_empty() {
            *minors.entry(minor.clone()).or_insert(0) += 1;
        }
    }
    assert_eq!((of_calls, of_replies, comments), (calls, replies, replies));
    assert!(getattrs >= 20, "{getattrs}");
    assert!(minors["0"] >= 1 && minors["1"] > 100 && minors["2"] > 10, "{minors:?}");
}

#[test]
fn what_is_captured_is_what_the_server_has_done() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share), "--no-root-squash"]);
    let port = running.address.port();
    let file = place.directory.path().join("all.pcapng");
    // What went before is no part of it.
    let before = served(&statistics(&place));
    assert!(before.is_empty(), "{before:?}");
    let capturing = Capturing::start(&place, &file, &["--contents"]);
    load(&place, &running);
    let told = capturing.interrupt();
    let document = statistics(&place);
    let (calls, total) = captured(&file, port);
    assert_eq!(calls, served(&document), "{told}");
    assert!(calls.len() > 20, "{calls:?}");
    let capture = &total["capture"];
    for name in ["gaps", "waiting", "unanswered", "not_followed", "unreadable_messages"] {
        assert_eq!(capture[name], 0, "{name}: {capture}");
    }
    assert_eq!(total["kernel"]["dropped"], 0);
    assert_eq!(number(&told, " dropped"), 0, "{told}");
    let all = total["all"]["calls"].as_u64().unwrap();
    assert_eq!((number(&told, " calls"), number(&told, " replies")), (all, all), "{told}");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let bytes = std::fs::read(&file).unwrap();
    assert!(bytes.windows(CONTENTS.len()).any(|window| window == CONTENTS));
    agrees_with_tshark(&file, port, all, all);
}

#[test]
fn contents_are_left_out_and_so_is_what_was_not_asked_for() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share), "--no-root-squash"]);
    let port = running.address.port();
    let file = place.directory.path().join("usual.pcapng");
    let capturing = Capturing::start(&place, &file, &[]);
    load(&place, &running);
    let told = capturing.interrupt();
    let bytes = std::fs::read(&file).unwrap();
    let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    assert!(has(b"a-file") && !has(&CONTENTS[..8]), "{told}");
    // What a load writes is no text.
    let (calls, replies) = (number(&told, " calls"), number(&told, " replies"));
    assert_eq!(calls, replies);
    agrees_with_tshark(&file, port, calls, replies);

    // Only some, over a file that is there, and not more than so many.
    // The server is not asked, which says who captures, and when that has ended.
    let log = Running::log_with(&place, " has ended: ");
    let who = format!("user {} (\"steadfast\", process ", rustix::process::getuid().as_raw());
    assert!(log.contains(BEGUN) && log.contains(&format!("the capture by {who}")), "{log}");
    let exists = output(&["capture", "--state-directory", utf8(&place.state), "-w", utf8(&file)]);
    assert_eq!(Running::log(&place).matches(BEGUN).count(), 1);
    assert_eq!(exists.status.code(), Some(1));
    assert!(stderr(&exists).contains("--force"), "{}", stderr(&exists));
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let some =
        ["--force", "--operation", "WRITE,lookup", "--count", "30", "--client", "127.0.0.0/8"];
    let capturing = Capturing::start(&place, &file, &some);
    std::thread::sleep(Duration::from_millis(300));
    let (client, root) = &mut mount(&place, &running);
    for _ in 0..20 {
        client.getattr(root).unwrap();
        assert!(client.lookup(root, b"is not there").is_err());
    }
    let told = capturing.end();
    assert!(told.starts_with("30 messages (15 calls, 15 replies), "), "{told}");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let (calls, _) = captured(&file, port);
    assert_eq!(calls, Calls::from([((100_003, 3, 3, false), (15, 15))]));

    // Of another client there is nothing.
    let other = place.directory.path().join("other.pcapng");
    let capturing =
        Capturing::start(&place, &other, &["--client", "192.0.2.1", "--seconds", "0.5"]);
    client.getattr(root).unwrap();
    let told = capturing.end();
    assert!(told.starts_with("0 messages (0 calls, 0 replies), "), "{told}");

    // And never more than was said, nor behind the server's end.
    let small = place.directory.path().join("small.pcapng");
    let capturing = Capturing::start(&place, &small, &["--contents", "--max-mib", "1"]);
    let how = CreateHow3::Unchecked(Settings::mode(0o644).0);
    let handle = client.create(root, b"long", &how).unwrap().handle.unwrap();
    for _ in 0..8 {
        client.write(&handle, 0, &vec![1; 1 << 18], StableHow::Unstable).unwrap();
    }
    capturing.end();
    let length = small.metadata().unwrap().len();
    assert!(((1 << 19)..=(1 << 20)).contains(&length), "{length}");
    let last = place.directory.path().join("last.pcapng");
    let capturing = Capturing::start(&place, &last, &[]);
    running.signal(Signal::TERM);
    let told = capturing.end();
    assert!(told.starts_with("the connection to the server has ended: "), "{told}");
}

#[test]
fn a_reader_that_stands_still_holds_up_nobody() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share), "--no-root-squash"]);
    let file = place.directory.path().join("some.pcapng");
    let capturing = Capturing::start(&place, &file, &["--contents"]);
    let another = output(&["capture", "--state-directory", utf8(&place.state), "-w", "/dev/null"]);
    assert_eq!(another.status.code(), Some(1));
    assert!(stderr(&another).contains("a capture runs already"), "{}", stderr(&another));
    capturing.signal(Signal::STOP);
    let (client, root) = &mut mount(&place, &running);
    let how = CreateHow3::Guarded(Settings::mode(0o644).0);
    let handle = client.create(root, b"long", &how).unwrap().handle.unwrap();
    let data = vec![1; 1 << 20];
    for _ in 0..100 {
        client.write(&handle, 0, &data, StableHow::Unstable).unwrap();
    }
    capturing.signal(Signal::CONT);
    // The last ones are there again, behind what waited.
    std::thread::sleep(Duration::from_millis(1500));
    for _ in 0..7 {
        client.getattr(root).unwrap();
    }
    let told = capturing.interrupt();
    let dropped = number(&told, " dropped");
    assert!((20..=200).contains(&dropped) && told.contains("--snaplen"), "{told}");
    let (calls, total) = captured(&file, running.address.port());
    assert_eq!(calls[&(100_003, 3, 1, false)], (7, 0), "{calls:?}");
    assert_eq!(total["kernel"]["dropped"], dropped);
    // Each was written or dropped.
    let served = served(&statistics(&place));
    let sent: u64 = served.values().map(|(calls, _)| 2 * calls).sum();
    assert_eq!(number(&told, " messages") + dropped, sent, "{told} {served:?}");
}

#[test]
fn a_signal_ends_it_though_nobody_reads_its_output() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share)]);
    let mut capturing = piped(&place);
    let (client, root) = &mut mount(&place, &running);
    // More than a pipe and what is buffered before it.
    for _ in 0..3000 {
        client.getattr(root).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    let mut reader = capturing.stdout.take().unwrap();
    let told = end_soon(capturing, Signal::TERM);
    assert!(told.contains("nobody reads the output, which lacks the last of "), "{told}");
    assert!(!told.starts_with("nobody"), "it is an error: {told}");
    assert_eq!(reader.read(&mut [0]).unwrap(), 1);

    // A pipe in a directory, which is somebody's.
    let pipe = place.directory.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let words = ["capture", "--state-directory", utf8(&place.state), "-w", utf8(&pipe)];
    let refused = output(&words);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    let mut command = steadfast(&words);
    let waiting = command.arg("--force").stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let told = end_soon(waiting, Signal::TERM);
    assert!(told.contains("is a pipe that nobody has opened to read"), "{told}");
    assert_eq!(Running::log(&place).matches(BEGUN).count(), 1, "it began for nothing");
    let waiting = command.args(["--seconds", "0.5"]).spawn().unwrap();
    let bytes = std::fs::read(&pipe).unwrap();
    assert!(bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]), "{bytes:?}");
    let done = waiting.wait_with_output().unwrap();
    assert!(done.status.success() && stderr(&done).starts_with("0 messages"), "{}", stderr(&done));
}

/// The last block of a file: two numbers and their time.
const STATISTICS_BYTES: u64 = 52;

#[test]
fn who_reads_slowly_gets_the_end() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share)]);
    for ends in [&["--seconds", "1.5"][..], &[]] {
        let before = Running::log(&place).matches(" captures the first ").count();
        let mut command =
            steadfast(&["capture", "--contents", "--state-directory", utf8(&place.state)]);
        command.args(ends).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut capturing = command.spawn().unwrap();
        let begun = Instant::now();
        while Running::log(&place).matches(" captures the first ").count() == before {
            assert!(begun.elapsed() < PATIENCE, "it has not begun");
            std::thread::sleep(Duration::from_millis(5));
        }
        let (client, root) = &mut mount(&place, &running);
        let name = format!("file-{before}");
        let how = CreateHow3::Guarded(Settings::mode(0o644).0);
        let handle = client.create(root, name.as_bytes(), &how).unwrap().handle.unwrap();
        client.write(&handle, 0, &vec![1; 1 << 20], StableHow::Unstable).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        if ends.is_empty() {
            rustix::process::kill_process(Pid::from_child(&capturing), Signal::INT).unwrap();
        }
        let mut output = capturing.stdout.take().unwrap();
        let (mut all, mut piece) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            let length = output.read(&mut piece).unwrap();
            if length == 0 {
                break;
            }
            all.extend_from_slice(&piece[..length]);
            std::thread::sleep(Duration::from_millis(200));
        }
        let done = capturing.wait_with_output().unwrap();
        assert!(done.status.success(), "{ends:?}: {}", stderr(&done));
        // What is told is without the block of statistics, which is the end.
        let told = number(&stderr(&done), " bytes") + STATISTICS_BYTES;
        assert_eq!(told, all.len() as u64, "{}", stderr(&done));
        let file = place.directory.path().join("slow.pcapng");
        std::fs::write(&file, &all).unwrap();
        // It ends with the statistics.
        let (_, total) = captured(&file, running.address.port());
        assert_eq!(total["kernel"]["dropped"], 0, "{ends:?}: {total}");
        assert!(all.len() > 1 << 20, "{ends:?}");
    }
}

#[test]
fn what_trickles_in_is_seen_soon_and_so_is_an_interrupt() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share)]);
    let mut capturing = piped(&place);
    let mut output = capturing.stdout.take().unwrap();
    let (seen, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut piece = [0; 4096];
            loop {
                let length = output.read(&mut piece).unwrap();
                seen.fetch_add(length, Ordering::SeqCst);
                if length == 0 {
                    break;
                }
            }
        });
        scope.spawn(|| {
            let (client, root) = &mut mount(&place, &running);
            while !is_over.load(Ordering::SeqCst) {
                client.getattr(root).unwrap();
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        // Some 30 calls.
        let begun = Instant::now();
        while seen.load(Ordering::SeqCst) < 10_000 && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let (seen, took) = (seen.load(Ordering::SeqCst), begun.elapsed());
        let begun = Instant::now();
        let told = end_soon(capturing, Signal::INT);
        is_over.store(true, Ordering::SeqCst);
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}: {told}", begun.elapsed());
        assert!(seen >= 10_000, "{seen} bytes in {took:?}");
    });
}

#[test]
fn a_full_disk_is_told_with_what_there_was() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share)]);
    let words = ["capture", "--state-directory", utf8(&place.state), "-w", "/dev/full"];
    let mut capturing = steadfast(&words).stderr(Stdio::piped()).spawn().unwrap();
    ended(&mut capturing, "the device is full");
    let done = capturing.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    let told = stderr(&done);
    assert!(told.contains("No space left on device"), "{told}");
    assert!(told.contains("; there were 0 messages (0 calls, 0 replies)"), "{told}");
    drop(running);
}

#[test]
fn what_cannot_be_captured_is_told() {
    let place = Place::new();
    let nobody = output(&["capture", "--state-directory", utf8(&place.state), "-w", "-"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(stderr(&nobody).contains("no server runs"), "{}", stderr(&nobody));
    for wrong in [
        &["--client", "host"][..],
        &["--operation", "nothing"],
        &["--snaplen", "10"],
        &["--count", "0"],
        &["--seconds", "0"],
    ] {
        let words = [&["capture", "-w", "-"], wrong].concat();
        assert_eq!(output(&words).status.code(), Some(2), "{wrong:?}");
    }
    let running = Running::start(&place, 0, &[utf8(&place.share)]);
    let missing = place.directory.path().join("missing/file");
    let refused =
        output(&["capture", "--state-directory", utf8(&place.state), "-w", utf8(&missing)]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("cannot be written"), "{}", stderr(&refused));
    // A pipe whose reader has gone ends it, and well.
    let mut command = steadfast(&["capture", "--state-directory", utf8(&place.state)]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < PATIENCE, "it has not ended");
        let _ = Wire::connect(running.address);
        oldest_compound(&running);
    }
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success() && stderr(&done).contains("nobody reads"), "{}", stderr(&done));
}
