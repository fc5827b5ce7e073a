//! Process ring: faults that the intent log has to survive, beside those in `intent_log.rs`: disks
//! that are not there, full or read-only when it is replayed, logs that are damaged, removed, or not
//! this server's, and devices that are gone. `docs/durability.md` has the table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::{PATIENCE, Place, Running, output, stderr, steadfast, utf8};
use intent_log_support::disk::Disk;
use intent_log_support::{LoopDevice, Mounted, create, kill, run, stop, tmpfs};
use rustix::process::Signal;
use steadfast_client::{FileHandle, Identity, Nfs3Client, NfsStat3, Settings, StableHow};

/// A server with a log, and shares that are each on a disk of their own.
struct Site {
    disks: Vec<Disk>,
    log: String,
    place: Place,
}

impl Site {
    /// `None` where disks cannot be had.
    fn new(names: &[&str]) -> Option<Self> {
        let place = Place::new();
        let directory = place.directory.path().canonicalize().unwrap();
        let disks =
            names.iter().map(|name| Disk::new(&directory, name, 48)).collect::<Option<_>>()?;
        Some(Self::of(disks, place))
    }

    /// With a btrfs, whose metadata goes to the disk every so many seconds.
    fn with_btrfs(seconds: u32) -> Option<Self> {
        let place = Place::new();
        let directory = place.directory.path().canonicalize().unwrap();
        Some(Self::of(vec![Disk::with_btrfs(&directory, "disk", seconds)?], place))
    }

    fn of(disks: Vec<Disk>, place: Place) -> Self {
        // Checkpoints only when a test wants one.
        let log = "enabled = true\nsize_mib = 16\ncheckpoint_interval_ms = 3600000\n".to_owned();
        Self { disks, log, place }
    }

    /// Writes a configuration that serves these of the disks.
    fn configure(&self, served: &[usize]) -> PathBuf {
        let shares = served.iter().map(|disk| {
            let path = utf8(&self.disks[*disk].share);
            format!(
                "[[share]]\npath = {path:?}\nclients = [\"*\"]\noptions = [\"no_root_squash\"]\n"
            )
        });
        let text = format!("[log]\n{}\n{}", self.log, shares.collect::<String>());
        self.place.write("steadfast.toml", &text)
    }

    fn start(&self) -> Running {
        let all: Vec<usize> = (0..self.disks.len()).collect();
        Running::start(&self.place, 0, &["--config", utf8(&self.configure(&all)), "-v"])
    }

    /// Starts a server that must refuse; what it says.
    fn refused(&self) -> String {
        let all: Vec<usize> = (0..self.disks.len()).collect();
        let ended = server_output(steadfast(&self.words(&self.configure(&all))));
        assert!(!ended.status.success(), "{}", stderr(&ended));
        stderr(&ended)
    }

    fn words<'a>(&'a self, configuration: &'a Path) -> [&'a str; 8] {
        let state = utf8(&self.place.state);
        let (configuration, port) = (utf8(configuration), "0");
        [
            "serve",
            "--config",
            configuration,
            "--state-directory",
            state,
            "--port",
            port,
            "--no-rpcbind",
        ]
    }

    fn mount(&self, running: &Running, disk: usize) -> (Nfs3Client, FileHandle) {
        let path = utf8(&self.disks[disk].share).as_bytes();
        let address = running.address;
        Nfs3Client::mount(address, address, path, Identity::root(), PATIENCE).unwrap()
    }

    fn care(&self, words: &[&str]) -> Output {
        let configuration = self.place.directory.path().join("steadfast.toml");
        let common =
            ["--config", utf8(&configuration), "--state-directory", utf8(&self.place.state)];
        output(&[&["log"], words, &common].concat())
    }

    fn log_file(&self) -> PathBuf {
        self.place.state.join("intent.log")
    }

    fn said(&self) -> String {
        Running::log(&self.place)
    }

    /// Waits until the server has said this.
    fn await_words(&self, words: &str) {
        let begun = Instant::now();
        while !self.said().contains(words) {
            assert!(begun.elapsed() < PATIENCE, "{words:?} is not said: {}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Files with operations that were set aside.
    fn asides(&self) -> usize {
        let files = std::fs::read_dir(&self.place.state).unwrap();
        let is_aside = |path: PathBuf| path.extension().is_some_and(|end| end == "aside");
        files.filter(|file| is_aside(file.as_ref().unwrap().path())).count()
    }
}

/// The end of a server that is to refuse to start: ended, should it not.
fn server_output(mut command: Command) -> Output {
    use std::process::Stdio;
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs");
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn write(client: &mut Nfs3Client, file: &FileHandle, data: &[u8]) {
    let written = client.write(file, 0, data, StableHow::FileSync).unwrap();
    assert_eq!(written.count as usize, data.len());
}

/// Has the server read its configuration again.
fn reload(running: &Running) {
    running.signal(Signal::HUP);
    while !running.message().starts_with("READY=1") {}
}

/// Two disks, of which the second loses what was acknowledged last: a file `name` with `data`. The
/// server is gone.
fn lost(name: &str, data: &[u8]) -> Option<(Site, FileHandle)> {
    let site = Site::new(&["good", "bad"])?;
    let running = site.start();
    let (mut client, root) = site.mount(&running, 1);
    site.disks[1].keep();
    let file = create(&mut client, &root, name);
    write(&mut client, &file, data);
    let (mut good, good_root) = site.mount(&running, 0);
    create(&mut good, &good_root, "also");
    kill(running);
    site.disks[1].lose();
    Some((site, file))
}

#[test]
fn a_disk_that_is_not_mounted_gets_its_operations_when_it_is_back() {
    let Some((site, file)) = lost("a", b"acknowledged") else { return };
    let running = site.start();
    assert!(site.said().contains("is not mounted: what was acknowledged"), "{}", site.said());
    let (mut good, good_root) = site.mount(&running, 0);
    good.lookup(&good_root, b"also").unwrap();
    create(&mut good, &good_root, "others go on");
    stop(running);
    assert_eq!(site.asides(), 1);
    // The log itself is closed and empty by now.
    let running = site.start();
    assert!(site.said().contains("intent log: clean"), "{}", site.said());
    site.disks[1].mount("rw");
    reload(&running);
    let (mut bad, root) = site.mount(&running, 1);
    let found = bad.lookup(&root, b"a").unwrap().handle;
    assert_eq!(bad.read(&found, 0, 99).unwrap().data, b"acknowledged");
    assert_eq!(site.asides(), 0);
    stop(running);
    let running = site.start();
    let (mut bad, root) = site.mount(&running, 1);
    assert_eq!(bad.lookup(&root, b"a").unwrap().handle, file, "the handle that clients have");
    assert_eq!(bad.read(&file, 0, 99).unwrap().data, b"acknowledged");
    stop(running);
}

/// The power fails; the only disk has what it was kept with.
fn fail_power(site: &Site, running: Running) -> Running {
    kill(running);
    site.disks[0].lose();
    site.disks[0].mount("rw");
    site.start()
}

/// On btrfs a flush of one file takes directories along. What mounting makes of them after a crash
/// must not delete what has its name elsewhere by now, of which only the log knows.
#[test]
fn a_commit_takes_nothing_away_that_got_another_name() {
    let Some(site) = Site::with_btrfs(300) else { return };
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let directory = |client: &mut Nfs3Client, name: &str| {
        client.mkdir(&root, name.as_bytes(), &Settings::default()).unwrap().handle.unwrap()
    };
    let [here, there, elsewhere] =
        ["here", "there", "elsewhere"].map(|d| directory(&mut client, d));
    let file = create(&mut client, &here, "old");
    // More than is logged.
    write(&mut client, &file, &vec![7; 1 << 20]);
    let other = create(&mut client, &here, "other");
    client.link(&other, &elsewhere, b"other").unwrap();
    assert!(site.care(&["flush"]).status.success());
    // For this, btrfs flushes the directories in which the file has other names.
    client.remove(&elsewhere, b"other").unwrap();
    client.link(&file, &there, b"new").unwrap();
    client.remove(&here, b"old").unwrap();
    client.write(&other, 0, &vec![2; 1 << 20], StableHow::Unstable).unwrap();
    client.commit(&other, 0, 0).unwrap();
    site.disks[0].keep_unflushed();
    let running = fail_power(&site, running);
    let (mut client, _) = site.mount(&running, 0);
    assert_eq!(client.lookup(&there, b"new").unwrap().handle, file);
    assert_eq!(client.read(&file, 0, 9).unwrap().data, [7; 9]);
    assert_eq!(client.getattr(&other).unwrap().size, 1 << 20);
    stop(running);
}

/// btrfs writes a file's new length before the zeros behind its old one.
#[test]
fn a_file_that_was_made_longer_shows_nothing_of_its_past() {
    let Some(site) = Site::with_btrfs(1) else { return };
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let [cut, written] = ["cut", "written"].map(|name| {
        let file = create(&mut client, &root, name);
        write(&mut client, &file, &[7; 16_384]);
        assert!(site.care(&["flush"]).status.success());
        client.setattr(&file, &Settings::size(5000), None).unwrap();
        file
    });
    // More than is logged: all is flushed, and what was logged before is not replayed.
    let other = create(&mut client, &root, "other");
    write(&mut client, &other, &vec![1; 1 << 20]);
    client.setattr(&cut, &Settings::size(60_000), None).unwrap();
    client.write(&written, 59_999, b"x", StableHow::FileSync).unwrap();
    // Until the lengths are on the disk.
    std::thread::sleep(Duration::from_secs(3));
    site.disks[0].keep_unflushed();
    let running = fail_power(&site, running);
    let (mut client, _) = site.mount(&running, 0);
    for file in [cut, written] {
        let data = client.read(&file, 0, 59_999).unwrap().data;
        assert!(data[..5000].iter().all(|byte| *byte == 7));
        let shown = data[5000..].iter().filter(|byte| **byte != 0).count();
        assert_eq!((data.len(), shown), (59_999, 0));
    }
    stop(running);
}

#[test]
fn without_any_of_its_disks_the_log_is_left_alone() {
    let Some((site, _)) = lost("a", b"acknowledged") else { return };
    site.disks[0].unmount();
    let told = site.refused();
    assert!(told.contains("none of their file systems is mounted"), "{told}");
    for disk in &site.disks {
        disk.mount("rw");
    }
    let running = site.start();
    let (mut bad, root) = site.mount(&running, 1);
    bad.lookup(&root, b"a").unwrap();
    stop(running);
}

/// The second disk cannot be replayed at the start; once `repaired`, it can.
fn replayed_when_repaired(site: &Site, file: &FileHandle, data: &[u8], repair: impl FnOnce()) {
    let running = site.start();
    assert!(site.said().contains("cannot be replayed"), "{}", site.said());
    let (mut good, good_root) = site.mount(&running, 0);
    good.lookup(&good_root, b"also").unwrap();
    create(&mut good, &good_root, "others go on");
    // Half replayed is not served.
    let address = running.address;
    let path = utf8(&site.disks[1].share).as_bytes();
    assert!(Nfs3Client::mount(address, address, path, Identity::root(), PATIENCE).is_err());
    kill(running);
    let running = site.start();
    good = site.mount(&running, 0).0;
    good.lookup(&good_root, b"others go on").unwrap();
    stop(running);
    assert_eq!(site.asides(), 1);
    repair();
    let running = site.start();
    let (mut bad, root) = site.mount(&running, 1);
    assert_eq!(bad.lookup(&root, b"a").unwrap().handle, *file);
    assert_eq!(bad.read(file, 0, 1 << 20).unwrap().data, data);
    assert_eq!(site.asides(), 0);
    stop(running);
}

#[test]
fn a_disk_that_is_full_at_replay_gets_its_operations_when_there_is_room() {
    let data = vec![7; 200_000];
    let Some((site, file)) = lost("a", &data) else { return };
    site.disks[1].mount("rw");
    let filling = site.disks[1].fill();
    replayed_when_repaired(&site, &file, &data, || std::fs::remove_file(filling).unwrap());
}

#[test]
fn a_disk_that_is_read_only_at_replay_gets_its_operations_when_it_can_be_written() {
    let Some((site, file)) = lost("a", b"acknowledged") else { return };
    // The kernel writes to it when it is mounted after a crash.
    site.disks[1].mount("rw");
    assert!(site.disks[1].remount("ro"));
    replayed_when_repaired(&site, &file, b"acknowledged", || assert!(site.disks[1].remount("rw")));
}

#[test]
fn a_disk_that_becomes_read_only_loses_nothing_and_stops_no_other() {
    let Some(site) = Site::new(&["good", "bad"]) else { return };
    let running = site.start();
    let (mut bad, root) = site.mount(&running, 1);
    let file = create(&mut bad, &root, "a");
    write(&mut bad, &file, b"acknowledged");
    // The kernel refuses while a file is open for writing.
    let begun = Instant::now();
    while !site.disks[1].remount("ro") {
        assert!(begun.elapsed() < PATIENCE, "it is never read-only");
        std::thread::sleep(Duration::from_millis(50));
    }
    let refused = bad.setattr(&file, &Settings::mode(0o600), None).unwrap_err();
    assert_eq!(refused.status(), Some(NfsStat3::RoFs));
    let (mut good, good_root) = site.mount(&running, 0);
    create(&mut good, &good_root, "others go on");
    assert!(site.disks[1].remount("rw"));
    bad.setattr(&file, &Settings::mode(0o600), None).unwrap();
    kill(running);
    let running = site.start();
    let (mut bad, _) = site.mount(&running, 1);
    assert_eq!(bad.read(&file, 0, 99).unwrap().data, b"acknowledged");
    stop(running);
}

#[test]
fn a_share_that_is_stopped_lets_go_of_its_disk_with_everything_on_it() {
    let Some(site) = Site::new(&["good", "bad"]) else { return };
    let running = site.start();
    let (mut bad, root) = site.mount(&running, 1);
    site.disks[1].keep();
    let file = create(&mut bad, &root, "a");
    write(&mut bad, &file, b"acknowledged");
    drop(bad);
    site.configure(&[0]);
    reload(&running);
    site.await_words("flushed, and can be unmounted");
    // It can be unmounted, and what is done to it elsewhere is not undone by a replay.
    site.disks[1].unmount();
    site.disks[1].mount("rw");
    let path = site.disks[1].share.join("a");
    assert_eq!(std::fs::read(&path).unwrap(), b"acknowledged");
    std::fs::write(&path, "changed elsewhere").unwrap();
    let (mut good, good_root) = site.mount(&running, 0);
    create(&mut good, &good_root, "others go on");
    kill(running);
    let running = site.start();
    let (mut bad, _) = site.mount(&running, 1);
    assert_eq!(bad.read(&file, 0, 99).unwrap().data, b"changed elsewhere");
    stop(running);
}

/// Writes until the disk's failure is known to the server: from then on changes wait. Returns how
/// many chunks were acknowledged.
fn write_until_faulty(site: &Site, client: &mut Nfs3Client, file: &FileHandle) -> u64 {
    let mut acknowledged = 0;
    let begun = Instant::now();
    while acknowledged < 400 {
        let data = vec![(acknowledged % 250) as u8 + 1; CHUNK];
        match client.write(file, acknowledged * CHUNK as u64, &data, StableHow::FileSync) {
            Ok(_) => acknowledged += 1,
            // The file system refuses it, or the server, once it knows.
            Err(error) => {
                let refused = [NfsStat3::Jukebox, NfsStat3::RoFs, NfsStat3::Io, NfsStat3::NoSpc];
                assert!(error.status().is_some_and(|s| refused.contains(&s)), "{error}");
                break;
            }
        }
    }
    let mode = Settings::mode(0o600);
    let answer = |error: steadfast_client::ClientError| error.status();
    while client.setattr(file, &mode, None).err().and_then(answer) != Some(NfsStat3::Jukebox) {
        assert!(begun.elapsed() < PATIENCE, "{}", site.said());
        std::thread::sleep(Duration::from_millis(20));
    }
    acknowledged
}

const CHUNK: usize = 1 << 16;

/// The kernel tells of an error once. A COMMIT that comes later must not say that all is stable that
/// was logged before.
#[test]
fn a_commit_after_one_that_failed_leaves_the_log_what_it_has() {
    let Some(mut site) = Site::new(&[]) else { return };
    let directory = site.place.directory.path().canonicalize().unwrap();
    let room = tmpfs(&directory.join("room"), 8);
    let Some(disk) = Disk::on(&room.at, &directory, "bad", 40) else { return };
    site.disks.push(disk);
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let file = create(&mut client, &root, "a");
    site.disks[0].keep();
    write(&mut client, &file, b"acknowledged");
    // More than the disk has room for, though it says otherwise.
    for chunk in 1..=12 {
        let data = vec![1; 1 << 20];
        client.write(&file, chunk << 20, &data, StableHow::Unstable).unwrap();
    }
    let failed = client.commit(&file, 0, 0).unwrap_err();
    assert!([Some(NfsStat3::NoSpc), Some(NfsStat3::Io)].contains(&failed.status()), "{failed}");
    assert!(run(&["mount", "-o", "remount,size=64m", utf8(&room.at)]));
    let again = client.commit(&file, 0, 0).unwrap_err();
    assert_eq!(again.status(), Some(NfsStat3::Io));
    let running = fail_power(&site, running);
    let (mut client, _) = site.mount(&running, 0);
    assert_eq!(client.read(&file, 0, 99).unwrap().data, b"acknowledged");
    stop(running);
}

#[test]
fn a_disk_that_failed_for_a_while_gets_its_operations_when_its_share_is_started_again() {
    let Some(mut site) = Site::new(&["good"]) else { return };
    let directory = site.place.directory.path().canonicalize().unwrap();
    // A disk with less room than it says.
    let room = tmpfs(&directory.join("room"), 8);
    let Some(disk) = Disk::on(&room.at, &directory, "bad", 40) else { return };
    site.disks.push(disk);
    site.log = "enabled = true\nsize_mib = 64\ncheckpoint_interval_ms = 200\n".to_owned();
    let running = site.start();
    let (mut bad, root) = site.mount(&running, 1);
    let file = create(&mut bad, &root, "a");
    let first = bad.commit(&file, 0, 0).unwrap().verifier;
    let acknowledged = write_until_faulty(&site, &mut bad, &file);
    let (mut good, good_root) = site.mount(&running, 0);
    create(&mut good, &good_root, "others go on");
    drop(bad);
    // Stopped, taken away, repaired, and back, while the others are served.
    site.configure(&[0]);
    reload(&running);
    site.await_words("no share uses its file system any more");
    site.disks[1].unmount();
    assert_ne!(site.asides(), 0, "{}", site.said());
    assert!(run(&["mount", "-o", "remount,size=64m", utf8(&room.at)]));
    site.disks[1].mount("rw");
    site.configure(&[0, 1]);
    reload(&running);
    assert_eq!(site.asides(), 0, "{}", site.said());
    let (mut bad, root) = site.mount(&running, 1);
    let found = bad.lookup(&root, b"a").unwrap().handle;
    for index in 0..acknowledged {
        let data = bad.read(&found, index * CHUNK as u64, 3).unwrap().data;
        assert_eq!(data, [(index % 250) as u8 + 1; 3], "{index}");
    }
    // It takes changes again.
    create(&mut bad, &root, "b");
    assert_ne!(bad.commit(&found, 0, 0).unwrap().verifier, first, "unstable data may be lost");
    stop(running);
    let running = site.start();
    let (mut bad, _) = site.mount(&running, 1);
    assert_eq!(bad.read(&file, 0, 3).unwrap().data, [1; 3], "the handle that clients have");
    stop(running);
}

#[test]
fn a_disk_that_is_well_again_comes_back_by_itself() {
    let Some(mut site) = Site::new(&["good"]) else { return };
    let directory = site.place.directory.path().canonicalize().unwrap();
    // A disk with less room than it says.
    let room = tmpfs(&directory.join("room"), 64);
    let Some(disk) = Disk::on(&room.at, &directory, "bad", 40) else { return };
    disk.without_room_of(&["a", "quiet", "local"], 2);
    let size = format!("remount,size={}m", disk.image_mib());
    assert!(run(&["mount", "-o", &size, utf8(&room.at)]));
    site.disks.push(disk);
    site.log = "enabled = true\nsize_mib = 64\ncheckpoint_interval_ms = 200\n\
                device_retry_interval_s = 1\n"
        .to_owned();
    let running = site.start();
    let (mut bad, root) = site.mount(&running, 1);
    let file = bad.lookup(&root, b"a").unwrap().handle;
    let quiet = bad.lookup(&root, b"quiet").unwrap().handle;
    // So much is not logged.
    let first = bad.write(&quiet, 0, &vec![1; 1 << 20], StableHow::Unstable).unwrap();
    assert_eq!(first.committed, StableHow::Unstable);
    let local = site.disks[1].share.join("local");
    let mut opened = std::fs::File::options().write(true).open(&local).unwrap();
    std::io::Write::write_all(&mut opened, &vec![1; 2 << 20]).unwrap();
    drop(opened);
    let acknowledged = write_until_faulty(&site, &mut bad, &file);
    let listed = || {
        let words = ["share", "list", "--state-directory", utf8(&site.place.state)];
        String::from_utf8(output(&words).stdout).unwrap()
    };
    assert!(listed().contains("faulty"), "{}", listed());
    // It takes something, and is tried again: but not yet all that was acknowledged.
    site.await_words("takes changes again");
    site.await_words("cannot be replayed");
    assert_ne!(site.asides(), 0);
    assert!(listed().contains("faulty"), "{}", listed());
    let (mut good, good_root) = site.mount(&running, 0);
    create(&mut good, &good_root, "others go on");
    assert!(run(&["mount", "-o", "remount,size=64m", utf8(&room.at)]));
    // The same client, by the handles that it has.
    let begun = Instant::now();
    let later = loop {
        match bad.write(&file, acknowledged * CHUNK as u64, b"later", StableHow::FileSync) {
            Ok(written) => break written,
            Err(error) => assert_eq!(error.status(), Some(NfsStat3::Jukebox), "{error}"),
        }
        assert!(begun.elapsed() < PATIENCE, "{}", site.said());
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_ne!(later.verifier, first.verifier, "unstable data may be lost");
    assert_eq!(site.asides(), 0, "{}", site.said());
    assert!(!listed().contains("faulty"), "{}", listed());
    // What was lost of these is of the past, also where the kernel has told nobody yet.
    let local = bad.lookup(&root, b"local").unwrap().handle;
    for handle in [&quiet, &local] {
        bad.write(handle, 0, &vec![2; 1 << 20], StableHow::Unstable).unwrap();
        bad.commit(handle, 0, 0).unwrap();
    }
    create(&mut bad, &root, "b");
    kill(running);
    site.disks[1].unmount();
    site.disks[1].mount("rw");
    let running = site.start();
    let (mut bad, root) = site.mount(&running, 1);
    for index in 0..acknowledged {
        let data = bad.read(&file, index * CHUNK as u64, 3).unwrap().data;
        assert_eq!(data, [(index % 250) as u8 + 1; 3], "{index}");
    }
    let data = bad.read(&file, acknowledged * CHUNK as u64, 5).unwrap().data;
    assert_eq!(data, b"later");
    bad.lookup(&root, b"b").unwrap();
    assert_eq!(bad.read(&quiet, (1 << 20) - 2, 2).unwrap().data, [2, 2]);
    stop(running);
}

#[test]
fn what_a_local_process_has_put_in_the_way_is_kept_and_reported() {
    let Some((site, file)) = lost("a", b"acknowledged") else { return };
    site.disks[1].mount("rw");
    let share = &site.disks[1].share;
    // As much later as a machine takes at least to start again.
    let of_acknowledged = std::fs::metadata(site.log_file()).unwrap().modified().unwrap();
    while of_acknowledged.elapsed().unwrap() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::fs::write(share.join("a"), "of a local process").unwrap();
    let running = site.start();
    assert!(site.said().contains("was in the way: it is kept"), "{}", site.said());
    let (mut bad, root) = site.mount(&running, 1);
    assert_eq!(bad.lookup(&root, b"a").unwrap().handle, file);
    assert_eq!(bad.read(&file, 0, 99).unwrap().data, b"acknowledged");
    let kept = std::fs::read_dir(share)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap().to_string_lossy().starts_with(".steadfast-replay-"));
    assert_eq!(std::fs::read(kept.unwrap()).unwrap(), b"of a local process");
    stop(running);
}

#[test]
fn a_log_that_was_removed_is_missed_only_if_something_was_in_it() {
    let Some((site, _)) = lost("a", b"acknowledged") else { return };
    site.disks[1].mount("rw");
    let (log, away) = (site.log_file(), site.place.state.join("away"));
    std::fs::rename(&log, &away).unwrap();
    let told = site.refused();
    assert!(
        told.contains("operations may be missing") && told.contains("intent-log.known"),
        "{told}"
    );
    assert!(!log.exists(), "none is made in its place");
    std::fs::rename(&away, &log).unwrap();
    let running = site.start();
    let (mut bad, root) = site.mount(&running, 1);
    bad.lookup(&root, b"a").unwrap();
    stop(running);
    std::fs::remove_file(&log).unwrap();
    let running = site.start();
    assert!(site.said().contains("making the intent log"), "{}", site.said());
    stop(running);
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
    })
}

fn positions(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    bytes
        .windows(wanted.len())
        .enumerate()
        .filter(|(_, w)| *w == wanted)
        .map(|(at, _)| at)
        .collect()
}

/// Changes the log's bytes.
fn damage(site: &Site, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(site.log_file()).unwrap();
    change(&mut bytes);
    std::fs::write(site.log_file(), bytes).unwrap();
}

const MAGIC: &[u8] = b"SfIntLog";

#[test]
fn a_log_of_another_version_is_refused() {
    let Some((site, _)) = lost("a", b"acknowledged") else { return };
    site.disks[1].mount("rw");
    let before = std::fs::read(site.log_file()).unwrap();
    damage(&site, |bytes| {
        let at = positions(bytes, MAGIC)[0];
        bytes[at + 8] = 2;
        let crc = crc32c(&bytes[at..at + 12]);
        bytes[at + 12..at + 16].copy_from_slice(&crc.to_le_bytes());
    });
    let told = site.refused();
    assert!(told.contains("has format version 2") && told.contains("newer steadfast"), "{told}");
    std::fs::write(site.log_file(), before).unwrap();
    stop(site.start());
}

#[test]
fn a_log_that_is_something_else_by_now_is_not_written_over() {
    let Some((site, _)) = lost("a", b"acknowledged") else { return };
    site.disks[1].mount("rw");
    let log = site.log_file();
    assert!(run(&["mkfs.ext4", "-q", "-F", utf8(&log)]));
    let before = std::fs::read(&log).unwrap();
    let told = site.refused();
    assert!(told.contains("operations may be missing"), "{told}");
    // Nor by a server that never had a log.
    std::fs::remove_file(site.place.state.join("intent-log.known")).unwrap();
    let told = site.refused();
    assert!(told.contains("holds something else") || told.contains("are in it"), "{told}");
    assert!(std::fs::read(&log).unwrap() == before);
}

#[test]
fn damaged_superblocks_are_refused_and_one_is_enough() {
    let Some((site, file)) = lost("a", b"acknowledged") else { return };
    site.disks[1].mount("rw");
    let before = std::fs::read(site.log_file()).unwrap();
    let copies = positions(&before, MAGIC);
    assert_eq!(copies.len(), 2);
    for (broken, said) in
        [(0_u8, "both superblocks of the intent log are zeros"), (1, "are damaged")]
    {
        damage(&site, |bytes| {
            for at in &copies {
                if broken == 0 {
                    bytes[*at..*at + 4096].fill(0);
                } else {
                    bytes[*at + 100] ^= 1;
                }
            }
        });
        let told = site.refused();
        assert!(told.contains(said) && told.contains("discard --yes-lose"), "{told}");
        std::fs::write(site.log_file(), &before).unwrap();
    }
    // The one that does not count is torn: the other was written before it, and counts.
    damage(&site, |bytes| {
        let sequence = |at: usize| u64::from_le_bytes(bytes[at + 56..at + 64].try_into().unwrap());
        let older = if sequence(copies[0]) < sequence(copies[1]) { copies[0] } else { copies[1] };
        bytes[older + 32..older + 512].fill(0);
    });
    let running = site.start();
    let (mut bad, _) = site.mount(&running, 1);
    assert_eq!(bad.read(&file, 0, 99).unwrap().data, b"acknowledged");
    stop(running);
}

#[test]
fn damage_before_what_was_stable_is_refused_and_a_torn_end_is_left_out() {
    let Some(site) = Site::new(&["disk"]) else { return };
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    site.disks[0].keep();
    for name in ["first", "second", "third"] {
        let file = create(&mut client, &root, name);
        write(&mut client, &file, format!("data of {name}").as_bytes());
    }
    kill(running);
    site.disks[0].lose();
    site.disks[0].mount("rw");
    let before = std::fs::read(site.log_file()).unwrap();
    damage(&site, |bytes| {
        let at = positions(bytes, b"data of second")[0];
        bytes[at] ^= 4;
    });
    let told = site.refused();
    assert!(told.contains("operations that were stable are missing"), "{told}");
    let verified = site.care(&["verify"]);
    assert!(verified.status.success() && !verified.stdout.is_empty(), "{}", stderr(&verified));
    std::fs::write(site.log_file(), &before[..1 << 20]).unwrap();
    let told = site.refused();
    assert!(told.contains("is smaller than the log"), "{told}");
    std::fs::write(site.log_file(), &before).unwrap();
    // What was written last may be torn, as nobody can have been told that it is stable.
    damage(&site, |bytes| {
        let at = positions(bytes, b"data of third")[0];
        bytes[at..at + 5].fill(0);
    });
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    for name in ["first", "second"] {
        let file = client.lookup(&root, name.as_bytes()).unwrap().handle;
        let data = client.read(&file, 0, 99).unwrap().data;
        assert_eq!(data, format!("data of {name}").as_bytes());
    }
    let third = client.lookup(&root, b"third").unwrap().handle;
    assert_eq!(client.read(&third, 0, 99).unwrap().data, b"");
    stop(running);
}

/// Has the command run on another host, as far as the log knows.
fn on_another_host(site: &Site, command: &mut Command) {
    const SCRIPT: &str =
        "printf '%032d\\n' 1 >\"$0\" && mount --bind \"$0\" /etc/machine-id && exec \"$@\"";
    let id = site.place.directory.path().join("machine-id");
    let mut other = Command::new("unshare");
    other.args(["--mount", "sh", "-c", SCRIPT]).arg(&id);
    other.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    *command = other;
}

#[test]
fn a_log_of_another_host_is_refused_until_it_is_adopted() {
    let Some((site, file)) = lost("a", b"acknowledged") else { return };
    site.disks[1].mount("rw");
    let all = site.configure(&[0, 1]);
    let mut command = steadfast(&site.words(&all));
    on_another_host(&site, &mut command);
    let refused = server_output(command);
    let told = stderr(&refused);
    assert!(!refused.status.success(), "{told}");
    assert!(told.contains("belongs to another host") && told.contains("log adopt"), "{told}");
    let state = utf8(&site.place.state);
    let mut adopt =
        steadfast(&["log", "adopt", "--config", utf8(&all), "--state-directory", state]);
    on_another_host(&site, &mut adopt);
    let adopted = adopt.output().unwrap();
    assert!(adopted.status.success(), "{}", stderr(&adopted));
    // Now it is not this host's any more.
    let told = site.refused();
    assert!(told.contains("belongs to another host"), "{told}");
    assert!(site.care(&["adopt"]).status.success());
    let running = site.start();
    let (mut bad, _) = site.mount(&running, 1);
    assert_eq!(bad.read(&file, 0, 99).unwrap().data, b"acknowledged");
    stop(running);
}

/// A log on a device whose every write fails from now on, until it is kept no more.
struct FailingLog {
    _device: LoopDevice,
    image: PathBuf,
    room: Mounted,
}

impl FailingLog {
    fn new(site: &mut Site) -> Option<Self> {
        let room = tmpfs(&site.place.directory.path().join("log-device"), 24);
        let image = room.at.join("image");
        std::fs::write(&image, vec![0; 16 << 20]).unwrap();
        let device = LoopDevice::of(&image)?;
        site.log = format!("{}path = {:?}\n", site.log, device.0);
        Some(Self { _device: device, image, room })
    }

    /// The device loses all that it has and takes nothing any more.
    fn fail(&self) {
        std::fs::File::options().write(true).open(&self.image).unwrap().set_len(0).unwrap();
        let mut filling = std::fs::File::create(self.room.at.join("filling")).unwrap();
        for chunk in [1 << 20, 4096, 1] {
            while std::io::Write::write_all(&mut filling, &vec![1; chunk]).is_ok() {}
        }
    }
}

#[test]
fn a_log_device_that_is_gone_is_left_and_not_replayed_when_it_is_back() {
    let Some(mut site) = Site::new(&["disk"]) else { return };
    let Some(device) = FailingLog::new(&mut site) else { return };
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let file = create(&mut client, &root, "a");
    write(&mut client, &file, b"older");
    let kept = std::fs::read(&device.image).unwrap();
    device.fail();
    write(&mut client, &file, b"newer");
    assert!(site.said().contains("cannot be written"), "{}", site.said());
    assert!(site.said().contains("cannot be marked as empty"), "{}", site.said());
    client.rename(&root, b"a", &root, b"b").unwrap();
    write(&mut client, &file, b"newest");
    kill(running);
    // It is back, with all that was in it before.
    std::fs::remove_file(device.room.at.join("filling")).unwrap();
    std::fs::write(&device.image, kept).unwrap();
    let running = site.start();
    assert!(!site.said().contains("replayed the intent log"), "{}", site.said());
    let (mut client, root) = site.mount(&running, 0);
    assert_eq!(client.lookup(&root, b"b").unwrap().handle, file);
    assert_eq!(client.lookup(&root, b"a").unwrap_err().status(), Some(NfsStat3::NoEnt));
    assert_eq!(client.read(&file, 0, 99).unwrap().data, b"newest");
    stop(running);
}

#[test]
fn a_log_that_cannot_be_given_up_keeps_changes_waiting_until_it_can() {
    let Some(mut site) = Site::new(&["disk"]) else { return };
    let Some(device) = FailingLog::new(&mut site) else { return };
    let _state = tmpfs(&site.place.state, 2);
    std::fs::set_permissions(&site.place.state, std::fs::Permissions::from_mode(0o700)).unwrap();
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let file = create(&mut client, &root, "a");
    write(&mut client, &file, b"older");
    device.fail();
    let filling = site.place.state.join("filling");
    let mut file_that_fills = std::fs::File::create(&filling).unwrap();
    for chunk in [1 << 16, 1] {
        while std::io::Write::write_all(&mut file_that_fills, &vec![1; chunk]).is_ok() {}
    }
    drop(file_that_fills);
    let (done, is_done) = std::sync::mpsc::channel();
    let handle = file.clone();
    let writer = std::thread::spawn(move || {
        write(&mut client, &handle, b"newer");
        done.send(()).unwrap();
        client
    });
    site.await_words("nor can that be noted in the state directory");
    assert!(is_done.try_recv().is_err(), "answered though a crash would undo it");
    std::fs::remove_file(&filling).unwrap();
    is_done.recv_timeout(PATIENCE).unwrap();
    drop(writer.join().unwrap());
    kill(running);
    let known = std::fs::read_to_string(site.place.state.join("intent-log.given-up")).unwrap();
    assert!(!known.trim().is_empty());
}
