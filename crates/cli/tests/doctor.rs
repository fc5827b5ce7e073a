//! Process ring: `steadfast doctor` finds what a test makes wrong with real interfaces, sockets, disks and
//! clients, and no longer finds it when it is right again. `steadfast tune` mends what it can.
//!
//! Most need root and namespaces. Where those are missing they do nothing, and fail with `CI=true`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod nfs3_support;

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{PATIENCE, Place, Running, steadfast, utf8};
use nfs3_support::Fixture;
use rustix::thread::UnshareFlags;
use serde_json::Value;
use steadfast_client::{
    CreateHow3, Identity, Nfs3Client, Settings, append_call, arguments, procedure, reserved,
};

/// What a run of doctor says.
struct Said {
    report: Value,
    status: i32,
}

impl Said {
    fn finding(&self, id: &str) -> Option<&Value> {
        self.report["findings"].as_array().unwrap().iter().find(|one| one["id"] == id)
    }

    #[track_caller]
    fn must(&self, id: &str) -> &Value {
        self.finding(id).unwrap_or_else(|| panic!("no {id} in {:#}", self.report["findings"]))
    }
}

/// Has doctor look for so long, at the server of this state directory; it may begin a moment before what it is to see.
fn doctor(state: &Path, seconds: &str, more: &[&str]) -> Said {
    let words = ["doctor", "--json", "--seconds", seconds, "--state-directory", utf8(state)];
    let output = steadfast(&words).args(more).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}: {}", common::stderr(&output)));
    Said { report, status: output.status.code().unwrap() }
}

fn run(words: &[&str]) -> bool {
    let output = Command::new(words[0]).args(&words[1..]).output();
    output.is_ok_and(|output| output.status.success())
}

/// Does work on a thread with a network of its own, of loopback alone, and mounts of its own. `None` where that cannot
/// be had.
fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    let done = thread::scope(|scope| scope.spawn(|| is_apart().then(work)).join().unwrap());
    let must = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(done.is_some() || !must, "CI must be able to make namespaces");
    if done.is_none() {
        println!("skipped: needs root, namespaces and ip");
    }
    done
}

#[allow(deprecated, reason = "what is not safe of it is sharing files, which stay shared here")]
fn is_apart() -> bool {
    rustix::process::geteuid().is_root()
        && rustix::thread::unshare(UnshareFlags::NEWNET | UnshareFlags::NEWNS).is_ok()
        && run(&["mount", "--make-rprivate", "/"])
        // Interfaces of this network.
        && run(&["mount", "-t", "sysfs", "sysfs", "/sys"])
        && run(&["ip", "link", "set", "lo", "up"])
}

fn nowhere() -> PathBuf {
    PathBuf::from("/nonexistent/state")
}

/// Binds the port of NFS as soon as it is free: a process that another test starts holds a copy of a socket that was
/// closed until it has become its program.
fn at_port_of_nfs<T>(bind: impl Fn(&'static str) -> io::Result<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match bind("127.0.0.1:2049") {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(1));
            }
            bound => return bound.unwrap(),
        }
    }
}

/// Sends as many datagrams as it can to a socket that is not read from.
fn flood(socket: &UdpSocket, datagrams: usize) {
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..datagrams {
        let _ = sender.send_to(&[0; 1000], socket.local_addr().unwrap());
    }
}

/// Set also when a look fails, so that nobody waits for ever.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does something for as long as doctor looks.
fn during(what: impl Fn() + Sync, look: impl FnOnce() -> Said) -> Said {
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = End(&ends);
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                what();
            }
        });
        look()
    })
}

#[test]
fn a_mix_that_only_reads_will_not_gain_by_a_log_and_one_that_changes_does() {
    let mut fixture = Fixture::new();
    let file = fixture.file("file");
    let state = fixture.place.state.clone();
    let (mut client, root) = fixture.mount();
    let client = std::sync::Mutex::new(&mut client);
    let read = || {
        client.lock().unwrap().getattr(&root).unwrap();
    };
    let said = during(read, || doctor(&state, "3", &["--no-names"]));
    let found = said.must("log-will-not-help");
    assert_eq!(
        (found["severity"].as_str(), found["subject"].as_str()),
        (Some("info"), Some("Steadfast"))
    );
    assert!(found["evidence"].as_str().unwrap().starts_with("0 of "), "{found}");
    assert!(said.finding("log-helps").is_none() && said.finding("log-would-help").is_none());

    let has_log = {
        let words = ["statistics", "--json", "--state-directory", utf8(&state)];
        let text = steadfast(&words).output().unwrap().stdout;
        let document: Value = serde_json::from_slice(&text).unwrap();
        document["log"]["phase"] == "on"
    };
    let change = || {
        let mut client = client.lock().unwrap();
        client.getattr(&file).unwrap();
        client.setattr(&file, &Settings::mode(0o640), None).unwrap();
    };
    let said = during(change, || doctor(&state, "3", &["--no-names"]));
    assert!(said.finding("log-will-not-help").is_none(), "{:#}", said.report);
    let gain = if has_log { "log-helps" } else { "log-would-help" };
    let measured = said.must(gain)["measured"].as_f64().unwrap();
    assert!((0.4..0.6).contains(&measured), "half of the calls change something: {measured}");
}

#[test]
fn a_client_that_sends_its_calls_again_is_found() {
    let fixture = Fixture::new();
    let state = fixture.place.state.clone();
    let stream = reserved::stream(fixture.address(), PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let number = AtomicU32::new(1);
    // Makes a file, by a call that is sent so often. A copy of one that is being executed gets no reply.
    let create = |times: u32| {
        let number = number.fetch_add(1, Ordering::Relaxed);
        let how = CreateHow3::Guarded(Settings::mode(0o644).0);
        let arguments = arguments::create(&fixture.root, format!("f{number}").as_bytes(), &how);
        let mut call = Vec::new();
        append_call(&mut call, number, procedure::CREATE, &Identity::root(), &arguments);
        let mark = 0x8000_0000 | call.len() as u32;
        for _ in 0..times {
            (&stream).write_all(&[&mark.to_be_bytes()[..], &call].concat()).unwrap();
            let mut mark = [0; 4];
            (&stream).read_exact(&mut mark).unwrap();
            let length = u32::from_be_bytes(mark) & 0x7fff_ffff;
            (&stream).read_exact(&mut vec![0; length as usize]).unwrap();
        }
    };
    let said = during(|| create(2), || doctor(&state, "3", &["--no-names"]));
    let found = said.must("repeated-calls");
    assert!((0.4..=0.6).contains(&found["measured"].as_f64().unwrap()), "{found}");
    assert!(said.status >= 2, "{}", said.status);
    let said = during(|| create(1), || doctor(&state, "3", &["--no-names"]));
    assert!(said.finding("repeated-calls").is_none(), "{:#}", said.report);
}

/// A cache of 1 MiB has room for some thousand replies, and each must stay for 65 s.
#[test]
fn a_duplicate_request_cache_that_is_full_is_found() {
    let place = Place::new();
    fs::create_dir(&place.share).unwrap();
    let text = |server: &str| {
        format!(
            "[server]\n{server}[log]\nenabled = false\n[[share]]\npath = {:?}\nclients = [\"*\"]\n\
             options = [\"no_root_squash\"]\n",
            utf8(&place.share)
        )
    };
    for (server, is_full) in [("reply_cache_bytes_max = 1048576\n", true), ("", false)] {
        let configuration = place.write("steadfast.toml", &text(server));
        let running = Running::start(&place, 0, &["--config", utf8(&configuration)]);
        let path = utf8(&place.share).as_bytes();
        let address = running.address;
        let (mut client, root) =
            Nfs3Client::mount(address, address, path, Identity::root(), PATIENCE).unwrap();
        let mut change = |times: u32| {
            for _ in 0..times {
                client.setattr(&root, &Settings::mode(0o755), None).unwrap();
            }
        };
        change(10);
        let said = doctor(&place.state, "0.5", &["--no-names"]);
        assert!(said.finding("reply-cache-full").is_none(), "{:#}", said.report);
        change(12_000);
        let client = std::sync::Mutex::new(change);
        let said =
            during(|| client.lock().unwrap()(10), || doctor(&place.state, "1", &["--no-names"]));
        let found = said.finding("reply-cache-full");
        let severity = found.map(|one| one["severity"].as_str().unwrap());
        assert_eq!(severity, is_full.then_some("warning"), "{:#}", said.report);
        running.signal(rustix::process::Signal::TERM);
        assert!(running.wait().success());
    }
}

/// A directory that stands for this machine, so that settings are changed for real, and what is kept of them is
/// kept there.
fn stand_in() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    symlink("/proc", root.path().join("proc")).unwrap();
    symlink("/sys", root.path().join("sys")).unwrap();
    root
}

#[test]
fn datagrams_that_find_no_room_are_found() {
    apart(|| {
        let socket = at_port_of_nfs(UdpSocket::bind);
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
        let said = during(|| flood(&socket, 100), || doctor(&nowhere(), "1", &["--no-names"]));
        assert_eq!(said.must("udp-receive-drops")["severity"], "critical");
        assert_eq!(said.must("nfs-socket-drops")["severity"], "warning");
        assert_eq!(said.status, 3);
        drop(socket);
        // With the usual buffer the same burst has room.
        let socket = at_port_of_nfs(UdpSocket::bind);
        socket.set_nonblocking(true).unwrap();
        let burst = || {
            flood(&socket, 40);
            while socket.recv(&mut [0; 2000]).is_ok() {}
            thread::sleep(Duration::from_millis(5));
        };
        let said = during(burst, || doctor(&nowhere(), "1", &["--no-names"]));
        for id in ["udp-receive-drops", "nfs-socket-drops"] {
            assert!(said.finding(id).is_none(), "{:#}", said.report);
        }
        // A setting that is not this network's to change is refused, and stays.
        let root = stand_in();
        let before = fs::read_to_string("/proc/sys/net/core/rmem_default").unwrap();
        let words = ["tune", "--root", utf8(root.path()), "net.core.rmem_default"];
        let refused = steadfast(&words).output().unwrap();
        assert_eq!(refused.status.code(), Some(1));
        let told = String::from_utf8(refused.stdout).unwrap();
        assert!(told.contains("FAILED: no permission"), "{told}");
        assert_eq!(fs::read_to_string("/proc/sys/net/core/rmem_default").unwrap(), before);
        assert!(!root.path().join("var/lib/steadfast-tune.json").exists());
    });
}

#[test]
fn connections_that_nobody_accepts_are_found_and_tune_makes_room_for_them() {
    apart(|| {
        const SETTING: &str = "/proc/sys/net/core/somaxconn";
        fs::write(SETTING, "1").unwrap();
        // Two have room; the others are told nothing.
        let listener = at_port_of_nfs(TcpListener::bind);
        let storm = || {
            let address = listener.local_addr().unwrap();
            let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(100));
            let connections: Vec<_> = (0..8).map(connect).collect();
            connections.iter().filter(|one| one.is_err()).count()
        };
        let refused = std::sync::atomic::AtomicUsize::new(0);
        let count = || {
            refused.fetch_add(storm(), Ordering::Relaxed);
        };
        let said = during(count, || doctor(&nowhere(), "1", &["--no-names"]));
        assert!(refused.load(Ordering::Relaxed) > 0);
        assert_eq!(said.must("listen-overflows")["severity"], "warning");

        let root = stand_in();
        let tune = |words: &[&str]| {
            let done =
                steadfast(&["tune", "--root", utf8(root.path())]).args(words).output().unwrap();
            assert!(done.status.success(), "{}", common::stderr(&done));
        };
        let settings = said.must("listen-overflows")["settings"].as_array().unwrap().clone();
        tune(&settings.iter().filter_map(Value::as_str).collect::<Vec<_>>());
        assert_eq!(fs::read_to_string(SETTING).unwrap(), "4096\n");
        let file = root.path().join("etc/sysctl.d/60-steadfast.conf");
        let lines = fs::read_to_string(&file).unwrap();
        assert!(lines.contains("# was 1\nnet.core.somaxconn = 4096\n"), "{lines}");
        drop(listener);
        let listener = at_port_of_nfs(TcpListener::bind);
        let address = listener.local_addr().unwrap();
        let connect = || {
            let all: Vec<TcpStream> =
                (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
            for _ in all {
                listener.accept().unwrap();
            }
            thread::sleep(Duration::from_millis(20));
        };
        let said = during(connect, || doctor(&nowhere(), "1", &["--no-names"]));
        assert!(said.finding("listen-overflows").is_none_or(|one| one["severity"] == "advice"));
        tune(&["--undo"]);
        assert_eq!(fs::read_to_string(SETTING).unwrap(), "1\n");
        assert!(!file.exists());
    });
}

#[test]
fn a_dead_name_server_is_found_and_nobody_waits_for_it_for_long() {
    apart(|| {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in
            [("resolv.conf", "nameserver 127.0.0.1\n"), ("nsswitch.conf", "hosts: files dns\n")]
        {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            assert!(run(&["mount", "--bind", utf8(&path), &format!("/etc/{name}")]));
        }
        // It has the port, and says nothing.
        let server = UdpSocket::bind("127.0.0.1:53").unwrap();
        let began = Instant::now();
        let said = doctor(&nowhere(), "0.5", &[]);
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        let found = said.must("name-server-dead");
        assert_eq!(
            (found["severity"].as_str(), found["subject"].as_str()),
            (Some("critical"), Some("127.0.0.1"))
        );
        assert_eq!(said.status, 3);
        // It is alive again.
        server.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let answer = || {
            let mut question = [0; 512];
            if let Ok((length, peer)) = server.recv_from(&mut question) {
                server.send_to(&question[..length], peer).unwrap();
            }
        };
        let said = during(answer, || doctor(&nowhere(), "0.5", &[]));
        assert!(said.finding("name-server-dead").is_none(), "{:#}", said.report);
    });
}

#[test]
fn status_warns_while_no_name_server_says_who_clients_are() {
    apart(|| {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in
            [("resolv.conf", "nameserver 127.0.0.1\n"), ("nsswitch.conf", "hosts: files dns\n")]
        {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            assert!(run(&["mount", "--bind", utf8(&path), &format!("/etc/{name}")]));
        }
        // It has the port, and says nothing.
        let _silent = UdpSocket::bind("127.0.0.1:53").unwrap();
        let place = Place::new();
        fs::create_dir(&place.share).unwrap();
        let serve = |clients: &str| {
            let share = utf8(&place.share);
            let text = format!(
                "[log]\nenabled = false\n[[share]]\npath = \"{share}\"\nclients = {clients}\n"
            );
            let file = place.write("steadfast.toml", &text);
            Running::start(&place, 0, &["--config", utf8(&file)])
        };
        let told = || {
            let mut done =
                steadfast(&["status", "--json", "--state-directory", utf8(&place.state)]);
            let document: Value = serde_json::from_slice(&done.output().unwrap().stdout).unwrap();
            let all = document["warnings"].as_array().unwrap().clone();
            all.into_iter().find(|one| one["what"].as_str().unwrap().contains("no name server"))
        };
        {
            let _running = serve("[\"host.example\", \"127.0.0.1\"]");
            let begun = Instant::now();
            let warning = loop {
                if let Some(warning) = told() {
                    break warning;
                }
                assert!(begun.elapsed() < Duration::from_secs(60), "no warning");
            };
            assert_eq!(warning["severity"], "critical");
            assert!(warning["what"].as_str().unwrap().contains("(127.0.0.1)"), "{warning}");
            assert!(warning["next"].as_str().unwrap().starts_with("steadfast doctor"), "{warning}");
        }
        // Where no rule needs names, nobody asks for them.
        let _running = serve("[\"127.0.0.1\"]");
        assert!(told().is_none());
    });
}

/// A process in the namespace of its maker; killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn packets_that_a_queue_drops_are_found_with_the_client_that_misses_them() {
    apart(|| {
        // The client's side of the cable is in a network of its own, held by a process.
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up; echo; exec sleep 600"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        holder.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        let holder = Process(holder);
        let id = holder.0.id().to_string();
        assert!(run(&[
            "ip", "link", "add", "here", "type", "veth", "peer", "name", "there", "netns", &id
        ]));
        assert!(run(&["ip", "addr", "add", "10.99.0.1/24", "dev", "here"]));
        assert!(run(&["ip", "link", "set", "here", "up"]));
        let there = |words: &[&str]| {
            let mut all = vec!["nsenter", "--net", "--target", &id];
            all.extend(words);
            all.into_iter().map(str::to_owned).collect::<Vec<String>>()
        };
        let run_there = |words: &[&str]| {
            let words = there(words);
            run(&words.iter().map(String::as_str).collect::<Vec<_>>())
        };
        assert!(run_there(&["ip", "addr", "add", "10.99.0.2/24", "dev", "there"]));
        assert!(run_there(&["ip", "link", "set", "there", "up"]));

        let place = Place::new();
        let more = ["--listen", "10.99.0.1", "--no-root-squash", utf8(&place.share)];
        let running = Running::start(&place, 2049, &more);
        // What is read goes through a queue that holds two packets more than it may send.
        let shape = ["root", "tbf", "rate", "20mbit", "burst", "4000", "limit", "20000"];
        assert!(run(&[&["tc", "qdisc", "add", "dev", "here"][..], &shape].concat()));
        let load = || {
            let bench = ["bench", "op", "10.99.0.1:2049", utf8(&place.share), "read:65536"];
            let words = there(&[&[env!("CARGO_BIN_EXE_steadfast")][..], &bench].concat());
            let more = ["--connections", "4", "--depth", "8", "--seconds", "6", "--warm-up", "0"];
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).args(more).stdout(Stdio::null()).stderr(Stdio::null());
            Process(command.spawn().unwrap())
        };
        let look = || {
            let process = load();
            // Until it reads: it makes its files first.
            thread::sleep(Duration::from_millis(1500));
            let said = doctor(&place.state, "3", &["--no-names"]);
            drop(process);
            said
        };
        // A busy machine may need longer until it reads.
        let is_seen = |said: &Said| {
            ["queue-drops", "tcp-retransmissions", "peer-loss"]
                .iter()
                .all(|id| said.finding(id).is_some())
        };
        let mut said = look();
        for _ in 0..4 {
            if !is_seen(&said) {
                said = look();
            }
        }
        assert_eq!(said.must("queue-drops")["subject"], "here");
        assert!(said.must("queue-drops")["evidence"].as_str().unwrap().contains("tbf"));
        said.must("tcp-retransmissions");
        let lossy = said.must("peer-loss");
        assert!(lossy["evidence"].as_str().unwrap().starts_with("client 10.99.0.2"), "{lossy}");
        // The queue is taken away.
        assert!(run(&["tc", "qdisc", "del", "dev", "here", "root"]));
        let said = look();
        for id in ["queue-drops", "peer-loss"] {
            assert!(said.finding(id).is_none(), "{:#}", said.report);
        }
        drop(running);
    });
}

#[test]
fn a_full_run_queue_is_found() {
    let state = nowhere();
    let cpus = thread::available_parallelism().unwrap().get();
    let ends = AtomicBool::new(false);
    let said = thread::scope(|scope| {
        for _ in 0..cpus * 5 {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let said = doctor(&state, "2", &["--no-names"]);
        ends.store(true, Ordering::Relaxed);
        said
    });
    assert_eq!(said.must("run-queue")["severity"], "warning");
    said.must("cpu-busy");
}

/// A file system on a disk that makes few writes a second, taken away when dropped.
struct SlowDisk {
    directory: tempfile::TempDir,
    loops: Vec<String>,
    throttled: String,
    name: String,
}

const THROTTLE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device";

impl SlowDisk {
    /// `None` where it cannot be had. It has the speed of any disk until it is made slow.
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut disk =
            Self { directory, loops: Vec::new(), throttled: String::new(), name: String::new() };
        let at = disk.directory.path().canonicalize().unwrap();
        let mut below = at.clone();
        for (name, mib) in [("inner", 400), ("outer", 200)] {
            let image = below.join(format!("{name}.image"));
            fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
            let made =
                Command::new("losetup").args(["--find", "--show", utf8(&image)]).output().ok()?;
            let device = String::from_utf8(made.stdout).ok()?.trim().to_owned();
            if device.is_empty() {
                return None;
            }
            disk.loops.push(device.clone());
            below = at.join(name);
            fs::create_dir(&below).unwrap();
            let is_made = run(&["mkfs.ext4", "-q", "-m", "0", &device])
                && run(&["mount", &device, utf8(&below)]);
            if !is_made {
                return None;
            }
        }
        // Only what is below is slowed down, so that the upper disk's own counters have the wait.
        let inner = disk.loops[0].trim_start_matches("/dev/").to_owned();
        let number = fs::read_to_string(format!("/sys/block/{inner}/dev")).ok()?;
        number.trim().clone_into(&mut disk.throttled);
        disk.name = disk.loops[1].trim_start_matches("/dev/").to_owned();
        Path::new(THROTTLE).exists().then_some(disk)
    }

    fn at(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join("outer")
    }

    /// So many writes a second; 0 for any number. It is the disk below that is limited, which nobody else has.
    fn limit(&self, writes_a_second: u32) -> bool {
        fs::write(THROTTLE, format!("{} {writes_a_second}", self.throttled)).is_ok()
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // What waits must not wait for ever.
        self.limit(0);
        for (name, device) in ["outer", "inner"].iter().zip(self.loops.iter().rev()) {
            let at = self.directory.path().join(name);
            let _ = run(&["umount", "-l", utf8(&at)]);
            let _ = run(&["losetup", "--detach", device]);
        }
    }
}

#[test]
fn a_throttled_disk_and_the_log_on_it_are_found() {
    let is_root = rustix::process::geteuid().is_root();
    let disk = if is_root { SlowDisk::new() } else { None };
    let must = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(disk.is_some() || !must, "CI must be able to make a slow disk");
    let Some(disk) = disk else {
        println!("skipped: needs root, loop devices, ext4 and control groups of block devices");
        return;
    };
    let mut place = Place::new();
    place.state = disk.at().join("state");
    place.share = disk.at().join("share");
    let running = Running::start(&place, 0, &["--no-root-squash", utf8(&place.share)]);
    let mount = || {
        let path = utf8(&place.share).as_bytes();
        let identity = Identity::root();
        let address = running.address;
        Nfs3Client::mount(address, address, path, identity, PATIENCE).unwrap()
    };
    let (client, root) = mount();
    let client = std::sync::Mutex::new(client);
    let change = || {
        client.lock().unwrap().setattr(&root, &Settings::mode(0o777), None).unwrap();
    };
    // Twenty writes a second: each waits for 50 ms and more.
    assert!(disk.limit(20));
    let said = during(change, || doctor(&place.state, "8", &["--no-names"]));
    assert!(disk.limit(0));
    let slow = said.report["findings"].as_array().unwrap().iter();
    let slow: Vec<&Value> = slow
        .filter(|one| one["id"] == "disk-slow" && one["subject"] == disk.name.as_str())
        .collect();
    assert!(!slow.is_empty(), "{:#}", said.report);
    assert!(said.status >= 2);
    let log = said.must("log-slow");
    assert!(log["measured"].as_f64().unwrap() >= 5.0, "{log}");
    // As fast as any: what waits in the queue comes first.
    change();
    let said = during(change, || doctor(&place.state, "3", &["--no-names"]));
    let again =
        said.finding("log-slow").filter(|found| found["measured"].as_f64().unwrap() >= 50.0);
    assert!(again.is_none(), "{:#}", said.report);
    drop(running);
}

#[test]
fn what_is_not_there_is_told_and_a_list_looks_at_nothing() {
    let said = doctor(&nowhere(), "0.5", &["--no-names"]);
    assert_eq!(said.report["version"], 1);
    assert!(said.report["seconds"].as_f64().unwrap() >= 0.4);
    let list = steadfast(&["doctor", "--list"]).output().unwrap();
    let text = String::from_utf8(list.stdout).unwrap();
    assert!(list.status.success() && text.contains("### `nfs-retransmissions`"), "{text}");
    let text = steadfast(&[
        "doctor",
        "--seconds",
        "0.5",
        "--no-names",
        "--state-directory",
        "/nonexistent",
    ])
    .output()
    .unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with("Looked for ") && text.contains(" to know\n"), "{text}");
    assert_eq!(steadfast(&["doctor", "--seconds", "0"]).output().unwrap().status.code(), Some(2));
}
