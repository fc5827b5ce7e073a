//! Process ring: faults of the disks that are served, which the intent log has to survive: those that
//! are not there, full, read-only, or fail for a while, and what a crash and their file systems make
//! of what was flushed by itself. `docs/durability.md` has the table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use common::{PATIENCE, Place, Running, output, utf8};
use intent_log_support::disk::Disk;
use intent_log_support::site::{Site, lost, reload, write};
use intent_log_support::{create, kill, run, stop, tmpfs};
use steadfast_client::{
    ClientError, FileHandle, Identity, Nfs3Client, NfsStat3, Settings, StableHow,
};
use steadfast_control::api::{Event, ShareState};

#[test]
fn a_disk_that_is_not_mounted_gets_its_operations_when_it_is_back() {
    let Some((site, file)) = lost("a", b"acknowledged") else { return };
    let running = site.start();
    assert!(
        site.said().contains("its file system is not mounted. They are kept in"),
        "{}",
        site.said()
    );
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

/// What a kill leaves is what there is: names have not to be brought back, and what others have made of
/// them since, be it an operation whose reply was never sent, stays.
#[test]
fn after_a_kill_names_are_left_as_they_are() {
    let sites = [Site::new(&["disk"]), Site::with_xfs(), Site::with_btrfs(300)];
    for site in sites.into_iter().flatten() {
        let running = site.start();
        let (mut client, root) = site.mount(&running, 0);
        let [replaced, moved] = ["a", "b"].map(|name| create(&mut client, &root, name));
        // Later than operations are that were under way when a machine crashed.
        std::thread::sleep(Duration::from_millis(2500));
        let share = &site.disks[0].share;
        std::fs::rename(share.join("b"), share.join("a")).unwrap();
        std::fs::set_permissions(share.join("a"), Permissions::from_mode(0o4711)).unwrap();
        kill(running);
        let running = site.start();
        assert!(!site.said().contains("in the way"), "{}", site.said());
        let (mut client, root) = site.mount(&running, 0);
        assert_eq!(client.lookup(&root, b"a").unwrap().handle, moved);
        assert_eq!(client.getattr(&moved).unwrap().mode, 0o4711);
        assert_eq!(client.lookup(&root, b"b").unwrap_err().status(), Some(NfsStat3::NoEnt));
        assert_eq!(client.getattr(&replaced).unwrap_err().status(), Some(NfsStat3::Stale));
        let names = std::fs::read_dir(share).unwrap().count();
        assert_eq!(names, 1);
        stop(running);
    }
}

/// What a replay after a kill has seen was in memory. If the power fails before it comes to its end, the
/// next one must not take it for what is on the disk.
#[test]
fn what_was_seen_after_a_kill_is_forgotten_when_the_power_fails() {
    let Some(site) = Site::new(&["good", "bad"]) else { return };
    let running = site.start();
    let (mut good, good_root) = site.mount(&running, 0);
    create(&mut good, &good_root, "also");
    site.disks[1].keep();
    let (mut bad, root) = site.mount(&running, 1);
    let file = create(&mut bad, &root, "a");
    write(&mut bad, &file, b"acknowledged");
    kill(running);
    assert!(site.disks[1].remount("ro"));
    site.note_failed_flushes();
    let running = site.start();
    assert!(site.said().contains("cannot be replayed"), "{}", site.said());
    kill(running);
    site.disks[1].lose();
    site.disks[1].mount("rw");
    let running = site.start();
    let (mut bad, root) = site.mount(&running, 1);
    assert_eq!(bad.lookup(&root, b"a").unwrap().handle, file);
    assert_eq!(bad.read(&file, 0, 99).unwrap().data, b"acknowledged");
    stop(running);
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

/// Without the log too: what btrfs keeps of a flush of one directory has halves of what others are about to change.
#[test]
fn a_flush_without_the_log_leaves_no_half_of_a_rename() {
    let Some(mut site) = Site::with_btrfs(300) else { return };
    "enabled = false\n".clone_into(&mut site.log);
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let [here, there] = ["here", "there"].map(|name| {
        client.mkdir(&root, name.as_bytes(), &Settings::default()).unwrap().handle.unwrap()
    });
    create(&mut client, &here, "old");
    let file = create(&mut client, &there, "new");
    run(&["sync", "--file-system", utf8(site.disks[0].at())]);
    // A RENAME that nobody was told of yet.
    let share = &site.disks[0].share;
    std::fs::rename(share.join("there/new"), share.join("here/old")).unwrap();
    create(&mut client, &here, "other");
    site.disks[0].keep_unflushed();
    let running = fail_power(&site, running);
    let (mut client, _) = site.mount(&running, 0);
    client.lookup(&here, b"other").unwrap();
    assert_eq!(client.lookup(&here, b"old").unwrap().handle, file);
    let gone = client.lookup(&there, b"new");
    assert_eq!(gone.unwrap_err().status(), Some(NfsStat3::NoEnt));
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

/// Each chunk that [`write_until_faulty`] has written and that was acknowledged is there.
fn assert_written(client: &mut Nfs3Client, file: &FileHandle, acknowledged: u64) {
    for index in 0..acknowledged {
        let data = client.read(file, index * CHUNK as u64, 3).unwrap().data;
        assert_eq!(data, [(index % 250) as u8 + 1; 3], "{index}");
    }
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
    let answer = |error: ClientError| error.status();
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

/// ext4 tells once that its journal could not be written, whoever flushes just then. From then on a
/// flush succeeds, and what was changed is lost: the log must keep it.
#[test]
fn a_flush_that_only_seems_to_succeed_leaves_the_log_what_it_has() {
    let Some(mut site) = Site::new(&[]) else { return };
    let directory = site.place.directory.path().canonicalize().unwrap();
    let room = tmpfs(&directory.join("room"), 8);
    let Some(disk) = Disk::on(&room.at, &directory, "bad", 40) else { return };
    site.disks.push(disk);
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    // Without data, of which the kernel remembers that it could not be written.
    let file = create(&mut client, &root, "a");
    // The image gets no room any more for a journal.
    let mut filling = std::fs::File::create(room.at.join("filling")).unwrap();
    while std::io::Write::write_all(&mut filling, &[1; 4096]).is_ok() {}
    // The one who is told.
    run(&["sync", "--file-system", utf8(&site.disks[0].share)]);
    let flushed = site.care(&["flush"]);
    assert_eq!(flushed.status.code(), Some(1), "{flushed:?}");
    kill(running);
    drop(filling);
    assert!(run(&["mount", "-o", "remount,size=64m", utf8(&room.at)]));
    site.disks[0].unmount();
    site.disks[0].mount("rw");
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    assert_eq!(client.lookup(&root, b"a").unwrap().handle, file);
    stop(running);
}

/// A btrfs that could not commit is read-only, and `syncfs` of that always succeeds.
#[test]
fn a_btrfs_that_gave_up_makes_nothing_stable() {
    let Some(mut site) = Site::new(&[]) else { return };
    let directory = site.place.directory.path().canonicalize().unwrap();
    let room = tmpfs(&directory.join("room"), 16);
    let Some(disk) = Disk::with_btrfs_on(&room.at, &directory, "bad") else { return };
    site.disks.push(disk);
    "enabled = false\n".clone_into(&mut site.log);
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let file = create(&mut client, &root, "a");
    client.write(&file, 0, b"not stable", StableHow::Unstable).unwrap();
    let sync = ["sync", "--file-system", utf8(&site.disks[0].share)];
    assert!(run(&sync));
    // Without data, of which the kernel remembers that it could not be written.
    std::fs::File::create(site.disks[0].share.join("local")).unwrap();
    let mut filling = std::fs::File::create(room.at.join("filling")).unwrap();
    while std::io::Write::write_all(&mut filling, &[1; 4096]).is_ok() {}
    // The one who is told.
    assert!(!run(&sync));
    // The first is told of an error, as the kernel tells each descriptor of it once.
    for _ in 0..2 {
        let committed = client.commit(&file, 0, 0);
        assert!(committed.is_err(), "{committed:?}");
    }
    kill(running);
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
    assert_written(&mut bad, &found, acknowledged);
    // It takes changes again.
    create(&mut bad, &root, "b");
    assert_ne!(bad.commit(&found, 0, 0).unwrap().verifier, first, "unstable data may be lost");
    stop(running);
    let running = site.start();
    let (mut bad, _) = site.mount(&running, 1);
    assert_eq!(bad.read(&file, 0, 3).unwrap().data, [1; 3], "the handle that clients have");
    stop(running);
}

/// The configuration of a share with a plug-in, which writes down what it is told.
fn plug_in_of(share: &Path, calls: &Path) -> String {
    let program = calls.with_file_name("plug-in");
    std::fs::write(&program, format!("#!/bin/sh\ncat >> {}\n", utf8(calls))).unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    format!(
        "[[share]]\npath = {:?}\nclients = [\"*\"]\nprotocols = [\"list\"]\n\
         [plugin.list]\ncommand = [{:?}]\n",
        utf8(share),
        utf8(&program)
    )
}

/// What becomes of shares from now on, as who watches is told.
fn watch_shares(site: &Site) -> Receiver<Event> {
    let watch = steadfast_control::Client::connect(&site.place.state).watch().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        watch.map_while(Result::ok).for_each(|event| drop(tell.send(event)));
    });
    told
}

#[test]
fn a_disk_that_is_well_again_comes_back_by_itself() {
    let Some(mut site) = Site::new(&["good"]) else { return };
    let directory = site.place.directory.path().canonicalize().unwrap();
    // A disk with less room than it says.
    let room = tmpfs(&directory.join("room"), 64);
    let Some(disk) = Disk::on(&room.at, &directory, "bad", 40) else { return };
    let unused = disk.share.with_file_name("unused");
    std::fs::create_dir(&unused).unwrap();
    disk.without_room_of(&["a", "quiet", "local"], 2);
    let size = format!("remount,size={}m", disk.image_mib());
    assert!(run(&["mount", "-o", &size, utf8(&room.at)]));
    site.disks.push(disk);
    site.log = "enabled = true\nsize_mib = 64\ncheckpoint_interval_ms = 200\n\
                device_retry_interval_s = 3\n"
        .to_owned();
    // A share of it that no client uses, and a plug-in that has its shares.
    let calls = directory.join("calls");
    site.more = plug_in_of(&unused, &calls);
    let running = site.start();
    let told = watch_shares(&site);
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
    // What it has can be read, and others go on.
    assert_eq!(bad.read(&file, 0, 3).unwrap().data, [1; 3]);
    let (mut good, good_root) = site.mount(&running, 0);
    let other = create(&mut good, &good_root, "others go on");
    let between = good.write(&other, 0, b"other", StableHow::Unstable).unwrap().verifier;
    // What would not be logged has to wait, too: it would be replayed over.
    let refused = bad.write(&quiet, 0, &vec![3; 1 << 20], StableHow::Unstable).unwrap_err();
    assert_eq!(refused.status(), Some(NfsStat3::Jukebox), "{refused}");
    let listed = || {
        let words = ["share", "list", "--state-directory", utf8(&site.place.state)];
        String::from_utf8(output(&words).stdout).unwrap()
    };
    let faulty = || listed().lines().filter(|line| line.contains("faulty")).count();
    assert_eq!(faulty(), 2, "{}", listed());
    // Whoever is told of all is told of them as before.
    reload(&running);
    assert_eq!(faulty(), 2, "{}", listed());
    // It takes something, and is tried again: but not yet all that was acknowledged.
    site.await_words("takes changes again");
    site.await_words("cannot be replayed");
    assert_ne!(site.asides(), 0);
    assert_eq!(faulty(), 2, "{}", listed());
    assert!(run(&["mount", "-o", "remount,size=64m", utf8(&room.at)]));
    // The same client, by the handles that it has.
    let end = acknowledged * CHUNK as u64;
    let later = until_done(&site, || bad.write(&file, end, b"later", StableHow::FileSync));
    let verifiers = [first.verifier, between, later.verifier];
    assert!(verifiers[0] != verifiers[1] && verifiers[1] != verifiers[2], "data may be lost");
    assert_eq!(site.asides(), 0, "{}", site.said());
    let begun = Instant::now();
    while faulty() > 0 {
        assert!(begun.elapsed() < PATIENCE, "{}", listed());
        std::thread::sleep(Duration::from_millis(20));
    }
    // What was lost of these is of the past, also where the kernel has told nobody yet.
    let local = bad.lookup(&root, b"local").unwrap().handle;
    for handle in [&quiet, &local] {
        bad.write(handle, 0, &vec![2; 1 << 20], StableHow::Unstable).unwrap();
        bad.commit(handle, 0, 0).unwrap();
    }
    create(&mut bad, &root, "b");
    // Who watches is told of both shares; plug-ins of neither.
    let mut events: Vec<_> = (0..4).map(|_| told.recv_timeout(PATIENCE).unwrap()).collect();
    let (enabled, faulty) = (Some(ShareState::Enabled), Some(ShareState::Faulty));
    for (old, new) in [(enabled, faulty), (faulty, enabled)] {
        for share in [&site.disks[1].share, &unused] {
            let is_told =
                |event: &Event| event.name == utf8(share) && (event.old, event.new) == (old, new);
            let place = events.iter().take(2).position(is_told);
            events.remove(place.unwrap_or_else(|| panic!("{share:?}: {events:?}")));
        }
    }
    reload(&running);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(std::fs::read_to_string(&calls).unwrap().matches("\"version\"").count(), 1);
    kill(running);
    site.disks[1].unmount();
    site.disks[1].mount("rw");
    let running = site.start();
    let (mut bad, root) = site.mount(&running, 1);
    assert_written(&mut bad, &file, acknowledged);
    let data = bad.read(&file, acknowledged * CHUNK as u64, 5).unwrap().data;
    assert_eq!(data, b"later");
    bad.lookup(&root, b"b").unwrap();
    assert_eq!(bad.read(&quiet, (1 << 20) - 2, 2).unwrap().data, [2, 2]);
    stop(running);
}

#[test]
fn a_share_that_reaches_a_failed_disk_from_above_does_not_keep_it_from_coming_back() {
    let place = Place::new();
    let directory = place.directory.path().canonicalize().unwrap();
    let above = directory.join("above");
    std::fs::create_dir(&above).unwrap();
    let room = tmpfs(&directory.join("room"), 64);
    let Some(disk) = Disk::on(&room.at, &above, "bad", 40) else { return };
    disk.without_room_of(&["a"], 2);
    let size = format!("remount,size={}m", disk.image_mib());
    assert!(run(&["mount", "-o", &size, utf8(&room.at)]));
    let mut site = Site::of(vec![disk], place);
    site.log = "enabled = true\nsize_mib = 64\ncheckpoint_interval_ms = 200\n\
                device_retry_interval_s = 2\n"
        .to_owned();
    let own = std::fs::read_to_string(site.configure(&[0])).unwrap();
    let both = format!(
        "{own}\n[[share]]\npath = {:?}\nclients = [\"*\"]\n\
         options = [\"no_root_squash\", \"crossmnt\"]\n",
        utf8(&above)
    );
    let configuration = site.place.write("steadfast.toml", &both);
    let running = Running::start(&site.place, 0, &["--config", utf8(&configuration), "-v"]);
    let (mut bad, root) = site.mount(&running, 0);
    let file = bad.lookup(&root, b"a").unwrap().handle;
    write_until_faulty(&site, &mut bad, &file);
    // It has the disk's mount by now, and nothing of it.
    let (address, path) = (running.address, utf8(&above).as_bytes());
    let (mut outer, top) =
        Nfs3Client::mount(address, address, path, Identity::root(), PATIENCE).unwrap();
    let refused = outer.lookup(&top, b"bad").unwrap_err();
    assert_eq!(refused.status(), Some(NfsStat3::Jukebox), "{refused}");
    assert!(run(&["mount", "-o", "remount,size=64m", utf8(&room.at)]));
    until_done(&site, || bad.write(&file, 0, b"later", StableHow::FileSync));
    until_done(&site, || bad.commit(&file, 0, 0));
    let within = until_done(&site, || outer.lookup(&top, b"bad")).handle;
    let share = outer.lookup(&within, b"share").unwrap().handle;
    let found = outer.lookup(&share, b"a").unwrap().handle;
    assert_eq!(outer.read(&found, 0, 5).unwrap().data, b"later");
    stop(running);
}

/// What comes of a call that may be told to come again.
fn until_done<T>(site: &Site, mut call: impl FnMut() -> Result<T, ClientError>) -> T {
    let begun = Instant::now();
    loop {
        match call() {
            Ok(done) => return done,
            Err(error) => assert_eq!(error.status(), Some(NfsStat3::Jukebox), "{error}"),
        }
        assert!(begun.elapsed() < PATIENCE, "{}", site.said());
        std::thread::sleep(Duration::from_millis(20));
    }
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

/// Whoever waits for a disk that hangs holds a thread of the server; those who do not need that disk
/// must find one. Clients hear that it hangs; when it does not any more, all that they asked is done.
#[test]
fn a_disk_that_hangs_keeps_no_call_from_the_others() {
    let Some(mut site) = Site::new(&["good", "bad"]) else { return };
    site.more = "[server]\nworkers_max = 12\nseats_per_pool = 2\n".to_owned();
    let running = site.start();
    let (mut good, good_root) = site.mount(&running, 0);
    let made = create(&mut good, &good_root, "made");
    let clients: Vec<_> = (0..30).map(|_| site.mount(&running, 1)).collect();
    let frozen = site.disks[1].freeze();
    let (refused, refusals) = std::sync::mpsc::channel();
    let changes: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(number, (mut client, root))| {
            let refused = refused.clone();
            std::thread::spawn(move || {
                let name = format!("d{number}");
                let try_once = |client: &mut Nfs3Client| {
                    client.mkdir(&root, name.as_bytes(), &Settings::default())
                };
                while let Err(error) = try_once(&mut client) {
                    assert_eq!(error.status(), Some(NfsStat3::Jukebox), "{error}");
                    let _ = refused.send(());
                    std::thread::sleep(Duration::from_millis(100));
                }
            })
        })
        .collect();
    // More than there are threads to wait.
    for _ in 0..12 {
        refusals.recv_timeout(PATIENCE).expect("clients are told to try later");
    }
    let begun = Instant::now();
    for number in 0..50 {
        create(&mut good, &good_root, &format!("meanwhile {number}"));
        assert_eq!(good.lookup(&good_root, b"made").unwrap().handle, made);
        site.mount(&running, 0).0.getattr(&made).unwrap();
    }
    let took = begun.elapsed();
    drop(frozen);
    for change in changes {
        change.join().expect("each directory is made once");
    }
    assert!(took < PATIENCE, "{took:?}");
    let names = std::fs::read_dir(&site.disks[1].share).unwrap().count();
    assert_eq!(names, 30);
    assert!(site.said().contains("look whether its disk, or another, hangs"), "{}", site.said());
    stop(running);
}
