//! Process ring: mounts whose network is pulled, or whose process stands still for a while (docs/mount.md).
//!
//! `STEADFAST_CRASHES=N` is how often, `STEADFAST_PULLED_S` for how many seconds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::async_share::{Async, crashes, wanted_crashes};
use common::mounts::{Mount, turn};
use common::network::{Cable, FAR};
use common::workers::{self, Workers, contents};
use common::{PATIENCE, Place, Running, ended, utf8};
use rustix::process::{Pid, Signal};

/// `df` and `umount` answer within a second (docs/mount.md). Without a wanted number of crashes the machine may be
/// busy.
fn prompt() -> Duration {
    Duration::from_secs(if wanted_crashes().is_some() { 1 } else { 5 })
}
/// As much passes before a `soft` mount gives up: `timeo` × `retrans`, and some for a busy machine.
const SOFT: (Duration, Duration) = (Duration::from_millis(900), Duration::from_secs(15));

/// For how long the network is away, in seconds.
fn pulled() -> Duration {
    let told = std::env::var("STEADFAST_PULLED_S").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(told.unwrap_or(3))
}

/// A process of this program that is a worker.
#[test]
fn worker() {
    workers::work();
}

/// A server at the far end of a cable, with mounts at the near one.
struct Site {
    _server: Running,
    cable: Cable,
    /// Last: what is in it is used by the others.
    place: Place,
}

impl Site {
    fn new() -> Self {
        let mut place = Place::new();
        let cable = Cable::new();
        let program = place.write("server", &cable.far.script(utf8(&place.program)));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        place.program = program;
        fs::create_dir_all(&place.share).unwrap();
        let arguments = ["--listen", FAR, "--no-root-squash", utf8(&place.share)];
        let server = Running::start(&place, 2049, &arguments);
        Self { place, cable, _server: server }
    }

    fn mount(&self, name: &str, options: &str) -> Mount {
        let program = self.cable.near.command(env!("CARGO_BIN_EXE_steadfast"));
        let source = format!("{FAR}:{}", utf8(&self.place.share));
        let options = format!("port=2049,mountport=2049,{options}");
        Mount::of(&self.place, program, name, &source, &options)
    }
}

/// How long a program takes, and how it ends.
fn timed(program: &str, arguments: &[&str]) -> (Duration, bool) {
    let begun = Instant::now();
    let mut command = Command::new(program);
    let status = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    (begun.elapsed(), status.unwrap().success())
}

/// A program that writes to a file and syncs it, and when it ended with which message.
fn write_and_sync(file: &str) -> (Duration, String) {
    let begun = Instant::now();
    let words = ["if=/dev/zero", "bs=4k", "count=4", "conv=fsync", "status=none"];
    let output = Command::new("dd")
        .env("LC_ALL", "C")
        .args(words)
        .arg(format!("of={file}"))
        .output()
        .unwrap();
    (begun.elapsed(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A program that opens a file and says so, writes to it when it is told to, and says then that it has.
fn waiting_writer(text: &str, file: &Path) -> Child {
    // Not by a shell: to say so it would close a duplicate of the file's descriptor.
    let lines = "open my $file, '>', $ARGV[1] or die; print STDERR \"open\\n\"; <STDIN>; syswrite $file, $ARGV[0]; print STDERR \"written\\n\"";
    let mut command = Command::new("perl");
    command.args(["-e", lines, text, utf8(file)]).stdin(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn until(since: Instant, is_so: impl Fn() -> bool) -> bool {
    while !is_so() && since.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    is_so()
}

#[test]
fn a_network_that_is_pulled_is_an_error_for_soft_mounts_alone() {
    let Some(_turn) = turn() else { return };
    let site = Site::new();
    let journal = site.place.directory.path().canonicalize().unwrap().join("journal");
    let hard = site.mount("hard", &format!("hard,timeo=30,journal={}", utf8(&journal)));
    let plain = site.mount("plain", "hard,timeo=30");
    let soft = site.mount("soft", "soft,timeo=5,retrans=2,actimeo=0");
    fs::write(soft.path("soft"), "there").unwrap();
    let local = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut workers = Workers::start(local[0].path(), &[&hard.at], 2);
    fs::create_dir(plain.path("plain")).unwrap();
    let beside = plain.path("plain");
    let mut others = Workers::start(local[1].path(), &[&beside], 1);
    let mut slowest =
        [("df", Duration::ZERO), ("umount -f", Duration::ZERO), ("EIO", Duration::ZERO)];
    let mut note = |index: usize, took: Duration| slowest[index].1 = slowest[index].1.max(took);
    for pull in 0..crashes() {
        let what = format!("pull {pull}");
        workers.await_steps(30, &what);
        others.await_steps(10, &what);
        let mut passing = site.mount("passing", "hard,timeo=30");
        let name = format!("passing{pull}");
        let (text, file) = (format!("unsent {pull}\n"), passing.path(&name));
        let mut writer = waiting_writer(&text, &file);
        let mut writer_says = BufReader::new(writer.stderr.take().unwrap());
        let mut told = String::new();
        // Not before it has the answer: it would wait for that until the network is there again.
        writer_says.read_line(&mut told).unwrap();
        assert_eq!(told, "open\n", "{what}");
        let begun = Instant::now();
        site.cable.pull(pull % 2 == 1);
        writer.stdin.take().unwrap().write_all(b"go\n").unwrap();
        told.clear();
        writer_says.read_line(&mut told).unwrap();
        assert_eq!(told, "written\n", "{what}");
        for mount in [&hard, &plain, &soft, &passing] {
            let (took, is_good) = timed("df", &[utf8(&mount.at)]);
            assert!(is_good && took < prompt(), "{what}: df took {took:?}");
            note(0, took);
        }
        // It waits in close(2), which sends what was written.
        writer.kill().unwrap();
        ended(&mut writer, "a writer that is killed");
        let (took, is_good) = timed("umount", &["-f", utf8(&passing.at)]);
        assert!(is_good && took < prompt(), "{what}: umount -f took {took:?}");
        note(1, took);
        let (took, told) = write_and_sync(utf8(&soft.path("soft")));
        assert!(told.contains("Input/output error"), "{what}: {told:?} after {took:?}");
        assert!(took >= SOFT.0 && took < SOFT.1, "{what}: EIO after {took:?}");
        note(2, took);
        std::thread::sleep(pulled().saturating_sub(begun.elapsed()));
        site.cable.plug();
        // The process of what was unmounted sends what it has, and ends.
        let status = ended(&mut passing.child, "the process of a mount that is gone");
        let sent = fs::read_to_string(site.place.share.join(&name)).unwrap();
        assert_eq!(sent, text, "{what}: {status}");
    }
    workers.await_steps(30, "after the last pull");
    others.await_steps(10, "after the last pull");
    // It connects again within 2 s, and gives up within 1 s.
    let works = || write_and_sync(utf8(&soft.path("soft"))).1.is_empty();
    assert!(until(Instant::now(), works), "the soft mount does not work again");
    let (steps, beside_steps) = (workers.steps(), others.steps());
    let ideals = [workers.finish(), others.finish()];
    drop(soft);
    hard.unmount();
    plain.unmount();
    assert!(!journal.join("conflicts").exists(), "nobody else has changed anything");
    for (ideals, below) in ideals.iter().zip(["", "plain"]) {
        for ideal in ideals {
            let at = site.place.share.join(below).join(ideal.file_name().unwrap());
            let (is, wanted) = (contents(&at), contents(ideal));
            assert!(is == wanted, "{}: {:?} {:?}", at.display(), is.keys(), wanted.keys());
        }
    }
    println!(
        "pulled {} times for {:?}: {steps} changes with a journal and {beside_steps} without, no error; at most {slowest:?}",
        crashes(),
        pulled()
    );
}

#[test]
fn a_mount_whose_process_stands_still_goes_on_afterwards() {
    let Some(_turn) = turn() else { return };
    let mut this = Async::new();
    let mount = this.mount(",nconnect=2,timeo=20");
    let local = tempfile::tempdir().unwrap();
    let mut workers = Workers::start(local.path(), &[&mount.at], 2);
    let pid = Pid::from_child(&mount.child);
    let signal = |signal| rustix::process::kill_process(pid, signal).unwrap();
    let mut slowest = Duration::ZERO;
    for stop in 0..crashes() {
        let what = format!("stop {stop}");
        workers.await_steps(40, &what);
        signal(Signal::STOP);
        let begun = Instant::now();
        // As after a suspend: the server was there all the time, was restarted, or has lost something.
        match stop % 3 {
            0 => this.crash(true),
            1 => this.crash(false),
            _ => {}
        }
        std::thread::sleep(pulled().saturating_sub(begun.elapsed()));
        signal(Signal::CONT);
        let begun = Instant::now();
        workers.await_steps(40, &what);
        slowest = slowest.max(begun.elapsed());
    }
    assert!(slowest < PATIENCE);
    let steps = workers.steps();
    let ideals = workers.finish();
    mount.unmount();
    this.has_no_conflict();
    assert_eq!(this.pending(), 0);
    this.crash(true);
    for ideal in &ideals {
        let name = ideal.file_name().unwrap();
        let (is, wanted) = (contents(&this.place.share.join(name)), contents(ideal));
        assert!(is == wanted, "{}: {:?} {:?}", name.display(), is.keys(), wanted.keys());
    }
    println!(
        "stopped {} times for {:?}: {steps} changes, on after {slowest:?}",
        crashes(),
        pulled()
    );
}
