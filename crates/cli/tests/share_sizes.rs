//! Process ring: sizes of shares on a btrfs with quotas: what clients see of them, what they are refused,
//! and what becomes of limits when sizes change, the server is restarted, or the power fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;
mod nfs4_support;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{PATIENCE, Place, Running, output, stderr, utf8};
use intent_log_support::disk::Disk;
use intent_log_support::{create, kill, run, stop};
use serde_json::Value;
use steadfast_client::nfs4::Attributes4;
use steadfast_client::{ClientError, FileHandle, Identity, Nfs3Client, NfsStat3, StableHow};

const MIB: u64 = 1 << 20;
const CHUNK: usize = 256 << 10;

/// A server with a share of its own, and a btrfs for more.
struct Sized {
    disk: Disk,
    place: Place,
    configuration: PathBuf,
}

impl Sized {
    /// `None` where there can be no btrfs with quotas.
    fn new() -> Option<Self> {
        let place = Place::new();
        let directory = place.directory.path().canonicalize().unwrap();
        let disk = Disk::with_btrfs(&directory, "disk", 300)?;
        std::fs::create_dir(&place.share).unwrap();
        let text = format!(
            "[log]\nenabled = true\nsize_mib = 64\ncheckpoint_interval_ms = 3600000\n\
             [[share]]\npath = {:?}\nclients = [\"*\"]\n",
            utf8(&place.share)
        );
        let configuration = place.write("steadfast.toml", &text);
        Some(Self { disk, place, configuration })
    }

    fn start(&self) -> Running {
        Running::start(&self.place, 0, &["--config", utf8(&self.configuration), "-v"])
    }

    fn enable_quotas(&self) {
        assert!(run(&["btrfs", "quota", "enable", utf8(self.disk.at())]));
        assert!(run(&["btrfs", "quota", "rescan", "-w", utf8(self.disk.at())]));
    }

    fn subvolume(&self, name: &str) -> PathBuf {
        let path = self.disk.at().join(name);
        assert!(run(&["btrfs", "subvolume", "create", utf8(&path)]));
        path
    }

    fn ask(&self, words: &[&str]) -> std::process::Output {
        output(&[words, &["--state-directory", utf8(&self.place.state)]].concat())
    }

    /// What a command that must succeed tells.
    #[track_caller]
    fn told(&self, words: &[&str]) -> String {
        let done = self.ask(words);
        assert!(done.status.success(), "{words:?}: {}", stderr(&done));
        String::from_utf8(done.stdout).unwrap() + &String::from_utf8(done.stderr).unwrap()
    }

    /// Why a command was not done.
    #[track_caller]
    fn refused(&self, words: &[&str]) -> String {
        let done = self.ask(words);
        assert!(!done.status.success(), "{words:?}");
        stderr(&done)
    }

    fn add(&self, path: &Path, size: &str) -> String {
        let options = format!("no_root_squash,size={size}");
        self.told(&["share", "add", utf8(path), "--client", "*", "-o", &options])
    }

    fn resize(&self, path: &Path, size: &str) -> String {
        self.told(&["share", "set", utf8(path), "--add-option", &format!("size={size}")])
    }

    fn show(&self, path: &Path) -> Value {
        serde_json::from_str(&self.told(&["share", "show", utf8(path), "--json"])).unwrap()
    }
}

fn mount(running: &Running, path: &Path) -> (Nfs3Client, FileHandle) {
    let address = running.address;
    let path = utf8(path).as_bytes();
    Nfs3Client::mount(address, address, path, Identity::root(), PATIENCE).unwrap()
}

/// The limit of a subvolume, as the kernel has it.
fn limit(path: &Path) -> Option<u64> {
    let words = ["qgroup", "show", "-r", "-f", "--raw", "--sync", utf8(path)];
    let shown = Command::new("btrfs").args(words).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let line =
        shown.lines().find(|line| line.starts_with("0/")).unwrap_or_else(|| panic!("{shown}"));
    line.split_whitespace().nth(3).unwrap().parse().ok()
}

fn set_limit(path: &Path, to: &str) {
    assert!(run(&["btrfs", "qgroup", "limit", to, utf8(path)]));
}

/// Writes chunks of a file, which differ, until one is refused; how many were not, and why that one was.
fn fill(client: &mut Nfs3Client, file: &FileHandle, most: u64) -> (u64, Option<NfsStat3>) {
    for number in 0..most {
        let (data, mut done) = (chunk(number), 0);
        // What there is room for of the last one is written.
        while done < CHUNK {
            let offset = number * CHUNK as u64 + done as u64;
            match client.write(file, offset, &data[done..], StableHow::FileSync) {
                Ok(written) => done += written.count as usize,
                Err(ClientError::Failed(failure)) => return (number, Some(failure.status)),
                Err(error) => panic!("{error}"),
            }
        }
    }
    (most, None)
}

/// Whether a quota was the reason.
fn is_refused(error: &ClientError) -> bool {
    matches!(error, ClientError::Failed(failure) if failure.status == NfsStat3::DQuot)
}

/// What does not become less by compression.
fn chunk(number: u64) -> Vec<u8> {
    let mut state = number + 1;
    let words = std::iter::repeat_with(|| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    });
    words.take(CHUNK / 4).flat_map(u32::to_le_bytes).collect()
}

fn chunks(bytes: u64) -> u64 {
    bytes / CHUNK as u64
}

#[test]
fn a_size_is_enforced_shown_to_clients_and_changed_while_they_work() {
    let Some(sized) = Sized::new() else { return };
    sized.enable_quotas();
    let one = sized.subvolume("one");
    let running = sized.start();
    sized.add(&one, "20M");
    assert_eq!(limit(&one), Some(20 * MIB));

    let (mut client, root) = mount(&running, &one);
    let empty = client.fsstat(&root).unwrap();
    assert_eq!(empty.total_bytes, 20 * MIB);
    assert!(empty.available_bytes > 19 * MIB && empty.available_bytes < 20 * MIB, "{empty:?}");
    let mut client4 = nfs4_support::connect(running.address, 2);
    let root4 = client4.lookup_path(utf8(&one).as_bytes()).unwrap();
    let told = client4.attributes(&root4, Attributes4::READABLE).unwrap();
    assert_eq!(told.total_bytes, Some(20 * MIB), "{told:?}");
    assert!(told.available_bytes.is_some_and(|bytes| bytes < 20 * MIB), "{told:?}");

    let file = create(&mut client, &root, "file");
    let (written, why) = fill(&mut client, &file, chunks(24 * MIB));
    assert_eq!(why, Some(NfsStat3::DQuot));
    assert!(written > chunks(18 * MIB) && written <= chunks(21 * MIB), "{written}");
    let full = client.fsstat(&root).unwrap();
    assert!(full.available_bytes < 2 * MIB && full.free_bytes < 2 * MIB, "{full:?}");
    let shown = sized.show(&one);
    assert_eq!(shown["size_bytes"], 20 * MIB);
    assert!(shown["used_bytes"].as_u64().unwrap() > 18 * MIB, "{shown}");
    assert!(sized.told(&["share", "list"]).contains("of 20.0M"));
    let status = sized.ask(&["status"]);
    let status =
        String::from_utf8(status.stdout).unwrap() + &String::from_utf8(status.stderr).unwrap();
    assert!(status.contains(" of 20.0M"), "{status}");

    // More, to who is at work.
    sized.resize(&one, "40M");
    assert_eq!(client.fsstat(&root).unwrap().total_bytes, 40 * MIB);
    assert_eq!(fill(&mut client, &file, chunks(30 * MIB)).1, None);

    // Less than it has: that is told, and nothing can be added, but removed.
    let told = sized.resize(&one, "10M");
    assert!(told.contains("nothing can be added"), "{told}");
    let over = client.fsstat(&root).unwrap();
    assert_eq!((over.total_bytes, over.free_bytes, over.available_bytes), (10 * MIB, 0, 0));
    let shown = sized.show(&one);
    assert_eq!(shown["state"], "enabled");
    assert!(shown["why"].as_str().unwrap().contains("of 10M"), "{shown}");
    let refused = client.write(&file, 40 * MIB, &chunk(0), StableHow::FileSync);
    assert!(refused.as_ref().is_err_and(is_refused), "{refused:?}");
    client.remove(&root, b"file").unwrap();
    // The kernel counts with each commit.
    assert!(run(&["btrfs", "filesystem", "sync", utf8(&one)]));
    let again = create(&mut client, &root, "again");
    assert_eq!(fill(&mut client, &again, chunks(4 * MIB)).1, None);

    // Without a size it is as the file system.
    sized.told(&["share", "set", utf8(&one), "--remove-option", "size=10M"]);
    assert_eq!(limit(&one), None);
    assert!(client.fsstat(&root).unwrap().total_bytes > 100 * MIB);
    assert_eq!(fill(&mut client, &again, chunks(50 * MIB)).1, None);
    stop(running);
}

#[test]
fn what_cannot_be_enforced_is_refused_with_the_reason() {
    let Some(sized) = Sized::new() else { return };
    let (one, two) = (sized.subvolume("one"), sized.subvolume("two"));
    let running = sized.start();
    let add = |path: &Path, more: &[&str], size: &str| {
        let option = format!("size={size}");
        let words = ["share", "add", utf8(path), "--client", "*", "-o", &option];
        sized.refused(&[&words, more].concat())
    };
    let told = add(&one, &[], "20M");
    assert!(told.contains("btrfs quota enable"), "{told}");
    assert!(
        sized.refused(&["share", "show", utf8(&one)]).contains("no share"),
        "nothing was added"
    );
    sized.enable_quotas();
    let told = add(&one, &[], "20MB");
    assert!(told.contains("no unit") && told.contains("size=20M"), "{told}");
    let inside = one.join("inside");
    std::fs::create_dir(&inside).unwrap();
    let told = add(&inside, &[], "20M");
    assert!(told.contains("directory within a subvolume"), "{told}");
    let elsewhere = sized.place.directory.path().canonicalize().unwrap().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let told = add(&elsewhere, &[], "20M");
    assert!(told.contains("enforced on btrfs only"), "{told}");

    // A limit of somebody else stays, and is not taken for ours later.
    set_limit(&two, "30M");
    let told = add(&two, &[], "20M");
    assert!(told.contains("has a limit of 30M already"), "{told}");
    sized.add(&two, "30M");
    sized.told(&["share", "remove", utf8(&two)]);
    assert_eq!(limit(&two), Some(30 * MIB));

    // Two sizes of one subvolume.
    sized.add(&one, "20M");
    let told = add(Path::new("/other"), &["--directory", utf8(&one)], "21M");
    assert!(told.contains("has the size 20M"), "{told}");
    let words = ["share", "add", "/other", "--directory", utf8(&one), "--client", "*"];
    sized.told(&[&words[..], &["-o", "size=20M"]].concat());
    sized.told(&["share", "remove", "/other"]);
    assert_eq!(limit(&one), Some(20 * MIB), "the other one has it yet");

    // Somebody changes the limit, or switches quotas off: that is told, and clients keep what they have.
    let (mut client, root) = mount(&running, &one);
    client.getattr(&root).unwrap();
    set_limit(&one, "25M");
    let shown = sized.show(&one);
    assert_eq!(shown["state"], "faulty");
    assert!(shown["why"].as_str().unwrap().contains("somebody has set the limit"), "{shown}");
    set_limit(&one, "none");
    sized.told(&["reload"]);
    assert_eq!((limit(&one), &sized.show(&one)["state"]), (Some(20 * MIB), &"enabled".into()));
    assert!(run(&["btrfs", "quota", "disable", utf8(sized.disk.at())]));
    let shown = sized.show(&one);
    assert_eq!(shown["state"], "faulty");
    assert!(
        shown["why"].as_str().unwrap().contains("quotas of its btrfs were switched off"),
        "{shown}"
    );
    client.getattr(&root).unwrap();
    sized.ask(&["reload"]);
    assert!(sized.show(&one)["why"].as_str().unwrap().contains("btrfs quota enable"));
    client.getattr(&root).unwrap();
    stop(running);
    // At the next start it is not served.
    let running = sized.start();
    assert_eq!(sized.show(&one)["state"], "faulty");
    let address = running.address;
    let path = utf8(&one).as_bytes();
    assert!(Nfs3Client::mount(address, address, path, Identity::root(), PATIENCE).is_err());
    stop(running);

    let text = format!(
        "[[share]]\npath = {:?}\nclients = [\"*\"]\noptions = [\"size=5G\"]\n",
        utf8(&elsewhere)
    );
    let file = sized.place.write("other.toml", &text);
    let checked = output(&["check-config", utf8(&file)]);
    assert!(!checked.status.success());
    let told = stderr(&checked);
    assert!(told.contains("other.toml:2:8: ") && told.contains("enforced on btrfs only"), "{told}");
}

#[test]
fn limits_outlive_the_server_and_those_that_are_not_wanted_go() {
    let Some(sized) = Sized::new() else { return };
    sized.enable_quotas();
    let (one, two) = (sized.subvolume("one"), sized.subvolume("two"));
    let running = sized.start();
    sized.add(&one, "20M");
    sized.add(&two, "21M");
    let file = sized.place.state.join("shares.d/default.toml");
    let text = || std::fs::read_to_string(&file).unwrap_or_default();
    // It follows what is served.
    let begun = std::time::Instant::now();
    while !text().contains("size=21M") {
        assert!(begun.elapsed() < PATIENCE, "{}", text());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    kill(running);
    assert_eq!((limit(&one), limit(&two)), (Some(20 * MIB), Some(21 * MIB)));
    // One changes, one goes while no server runs.
    let text = text();
    let changed = text.replace("size=20M", "size=22M").replace(", \"size=21M\"", "");
    assert_ne!(changed.len(), text.len());
    std::fs::write(&file, changed).unwrap();
    let running = sized.start();
    assert_eq!((limit(&one), limit(&two)), (Some(22 * MIB), None));
    let (mut client, root) = mount(&running, &one);
    assert_eq!(client.fsstat(&root).unwrap().total_bytes, 22 * MIB);
    sized.told(&["share", "remove", utf8(&one)]);
    assert_eq!(limit(&one), None);
    stop(running);
}

/// The limit comes back from the crash as it was before it was raised, and replay has to write what was
/// acknowledged under the higher one.
#[test]
fn replay_of_a_full_share_loses_nothing() {
    let Some(sized) = Sized::new() else { return };
    sized.enable_quotas();
    let one = sized.subvolume("one");
    let running = sized.start();
    sized.add(&one, "5M");
    let (mut client, root) = mount(&running, &one);
    let file = create(&mut client, &root, "file");
    sized.disk.await_mark();
    sized.disk.keep();
    sized.resize(&one, "20M");
    let (written, why) = fill(&mut client, &file, chunks(24 * MIB));
    assert_eq!(why, Some(NfsStat3::DQuot));
    assert!(written > chunks(16 * MIB), "{written}");
    kill(running);
    sized.disk.lose();
    sized.disk.mount("rw");
    assert_eq!(limit(&one), Some(5 * MIB));
    let running = sized.start();
    let (mut client, root) = mount(&running, &one);
    let file = client.lookup(&root, b"file").unwrap().handle;
    for number in 0..written {
        let offset = number * CHUNK as u64;
        let mut read = Vec::new();
        while read.len() < CHUNK {
            let part = client.read(&file, offset + read.len() as u64, (CHUNK - read.len()) as u32);
            let part = part.unwrap().data;
            assert!(!part.is_empty(), "{number} of {written}");
            read.extend_from_slice(&part);
        }
        assert!(read == chunk(number), "{number}");
    }
    // And the size holds again.
    assert_eq!(limit(&one), Some(20 * MIB));
    let more = client.write(&file, 40 * MIB, &chunk(0), StableHow::FileSync);
    assert!(more.as_ref().is_err_and(is_refused), "{more:?}");
    stop(running);
}
