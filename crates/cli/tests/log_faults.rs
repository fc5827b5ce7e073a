//! Process ring: faults of the intent log itself, beside those in `intent_log.rs`: logs that are
//! damaged, removed, or not this server's, and devices that are gone. `docs/durability.md` has the
//! table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use common::{PATIENCE, stderr, steadfast, utf8};
use intent_log_support::site::{Site, lost, server_output, write};
use intent_log_support::{LoopDevice, Mounted, create, kill, run, stop, tmpfs};
use steadfast_client::NfsStat3;

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

#[test]
fn a_damaged_log_is_kept_up_to_the_damage() {
    let Some(site) = Site::new(&["disk"]) else { return };
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    site.disks[0].keep();
    for name in ["first", "second", "third"] {
        let file = create(&mut client, &root, name);
        write(&mut client, &file, format!("data of {name}").as_bytes());
        // So that there are notes for replay between them, which are no operations.
        std::thread::sleep(std::time::Duration::from_millis(250));
    }
    kill(running);
    site.disks[0].lose();
    site.disks[0].mount("rw");
    let whole = site.care(&["adopt", "--up-to-damage"]);
    assert!(stderr(&whole).contains("it is not damaged"), "{}", stderr(&whole));
    damage(&site, |bytes| {
        let at = positions(bytes, b"data of second")[0];
        bytes[at] ^= 4;
    });
    let told = site.refused();
    assert!(
        told.contains("adopt --up-to-damage") && told.contains("keeps the 3 operations"),
        "{told}"
    );
    assert!(told.contains("gives up all, these 3 too"), "{told}");
    let verified = site.care(&["verify"]);
    let verified = String::from_utf8(verified.stdout).unwrap();
    let (kept, lost) = verified.split_once("behind the damage, which are given up").unwrap();
    assert!(kept.contains("3 operations (2 created, 1 written), 13 bytes"), "{verified}");
    assert!(kept.contains("share/first") && !kept.contains("share/third"), "{verified}");
    assert!(lost.contains("2 operations (1 created, 1 written)"), "{verified}");
    assert!(lost.contains("created: ") && lost.contains("share/third"), "{verified}");
    assert!(lost.contains("the 3 operations are lost as well"), "{verified}");
    let adopted = site.care(&["adopt", "--up-to-damage"]);
    assert!(adopted.status.success(), "{}", stderr(&adopted));
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let read = |client: &mut steadfast_client::Nfs3Client, name: &[u8]| {
        let file = client.lookup(&root, name).map(|found| found.handle)?;
        client.read(&file, 0, 99).map(|read| read.data)
    };
    assert_eq!(read(&mut client, b"first").unwrap(), b"data of first");
    assert_eq!(read(&mut client, b"second").unwrap(), b"");
    assert_eq!(read(&mut client, b"third").unwrap_err().status(), Some(NfsStat3::NoEnt));
    stop(running);
    stop(site.start());
}

#[test]
fn a_clone_of_a_log_that_went_on_is_refused_on_another_host_too() {
    let Some(site) = Site::new(&["disk"]) else { return };
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let file = create(&mut client, &root, "a");
    write(&mut client, &file, b"older");
    let clone = site.back_up("clone");
    site.flush();
    write(&mut client, &file, b"newer");
    site.flush();
    stop(running);
    site.restore(&clone);
    let all = site.configure(&[0]);
    let mut command = steadfast(&site.words(&all));
    on_another_host(&site, &mut command);
    assert!(stderr(&server_output(command)).contains("belongs to another host"));
    let state = utf8(&site.place.state);
    let mut adopt =
        steadfast(&["log", "adopt", "--config", utf8(&all), "--state-directory", state]);
    on_another_host(&site, &mut adopt);
    assert!(adopt.output().unwrap().status.success());
    let mut command = steadfast(&site.words(&all));
    on_another_host(&site, &mut command);
    let refused = server_output(command);
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("older than its file systems"), "{}", stderr(&refused));
    assert_eq!(std::fs::read(site.disks[0].share.join("a")).unwrap(), b"newer");
}

/// Has the command run on another host, as far as the log knows.
fn on_another_host(site: &Site, command: &mut Command) {
    // A machine without a number has no place to mount another one on: it gets another /etc.
    const SCRIPT: &str = "printf '%032d\\n' 1 >\"$0\" && if [ -e /etc/machine-id ]; \
         then mount --bind \"$0\" /etc/machine-id; \
         else cp -a /etc \"$0.etc\" && cp \"$0\" \"$0.etc/machine-id\" && mount --bind \"$0.etc\" /etc; fi \
         && exec \"$@\"";
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
    // What was mounted when another host's server was ended says nothing here.
    let names = std::fs::read_dir(state).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.filter(|name| name.to_string_lossy().starts_with("mounted-")).count(), 0);
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
