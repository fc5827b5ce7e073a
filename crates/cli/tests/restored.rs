//! Process ring: logs and disks that come back from older copies, against the real program: what is
//! newer is never overwritten before the administrator has decided. `docs/durability.md` has the table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::fmt::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Running, output, stderr, utf8};
use intent_log_support::site::{Site, write};
use intent_log_support::{Logged, create, kill, stop};
use steadfast_client::{NfsStat3, Settings, StableHow};

fn told(site: &Site, words: &[&str]) -> String {
    let output = site.care(words);
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(site: &Site, words: &[&str]) -> String {
    let output = site.care(words);
    assert!(!output.status.success(), "{words:?}: {output:?}");
    stderr(&output)
}

fn on_disk(site: &Site, disk: usize, name: &str) -> String {
    std::fs::read_to_string(site.disks[disk].share.join(name)).unwrap_or_default()
}

/// A site whose state directory is an older copy, taken while the server ran, with two operations of
/// `a` that were not on the disk then.
fn restored() -> Option<Site> {
    let site = Site::new(&["disk"])?;
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let file = create(&mut client, &root, "a");
    write(&mut client, &file, b"older");
    let copy = site.back_up("copy");
    site.flush();
    write(&mut client, &file, b"newer");
    client.rename(&root, b"a", &root, b"b").unwrap();
    site.flush();
    stop(running);
    site.restore(&copy);
    Some(site)
}

#[test]
fn an_older_copy_of_the_state_directory_is_refused_and_nothing_is_overwritten() {
    let Some(site) = restored() else { return };
    // As often as it is started.
    for _ in 0..2 {
        let told = site.refused();
        assert!(told.contains("the intent log is older than its file systems"), "{told}");
        assert!(
            told.contains(utf8(&site.disks[0].share)) && told.contains("Z, by this log"),
            "{told}"
        );
        assert!(told.contains("log discard --yes-lose 2-operations"), "{told}");
        assert!(told.contains("log adopt --replay-old-records"), "{told}");
        assert_eq!((&*on_disk(&site, 0, "b"), &*on_disk(&site, 0, "a")), ("newer", ""));
    }
    let listed = told(&site, &["verify"]);
    assert!(listed.contains("2 operations (1 created, 1 written)"), "{listed}");
    assert!(listed.contains("share/a"), "{listed}");
    told(&site, &["discard", "--yes-lose", "2-operations"]);
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    assert_eq!(client.lookup(&root, b"a").unwrap_err().status(), Some(NfsStat3::NoEnt));
    let file = client.lookup(&root, b"b").unwrap().handle;
    assert_eq!(client.read(&file, 0, 99).unwrap().data, b"newer");
    // Another log's mark was there; a crash right after is replayed by this one's.
    site.disks[0].keep();
    write(&mut client, &file, b"newest");
    kill(running);
    site.disks[0].lose();
    site.disks[0].mount("rw");
    let running = site.start();
    let (mut client, _) = site.mount(&running, 0);
    assert_eq!(client.read(&file, 0, 99).unwrap().data, b"newest");
    stop(running);
}

#[test]
fn an_older_copy_is_replayed_when_the_administrator_wants_it() {
    let Some(site) = restored() else { return };
    let adopted = told(&site, &["adopt", "--replay-old-records"]);
    assert!(adopted.contains("2 operations"), "{adopted}");
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    // Both versions are there. The file has the name that it got since.
    let file = client.lookup(&root, b"b").unwrap().handle;
    assert_eq!(client.read(&file, 0, 99).unwrap().data, b"older");
    let listed = client.readdir(&root, 0, [0; 8], 65_536).unwrap();
    let names: Vec<_> = listed.entries.iter().map(|entry| entry.name.clone()).collect();
    let kept = names.iter().find(|name| name.starts_with(b".steadfast-replay-found-"));
    let kept = client.lookup(&root, kept.expect("kept")).unwrap().handle;
    assert_eq!(client.read(&kept, 0, 99).unwrap().data, b"newer");
    assert!(site.said().contains("as the administrator has decided"), "{}", site.said());
    stop(running);
    // That was for once.
    let running = site.start();
    assert!(!site.said().contains("older"), "{}", site.said());
    stop(running);
}

#[test]
fn an_older_copy_of_a_log_that_was_closed_has_nothing_to_replay_and_goes_on() {
    let Some(site) = Site::new(&["disk"]) else { return };
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let file = create(&mut client, &root, "a");
    stop(running);
    let copy = site.back_up("copy");
    for text in [&b"one"[..], b"two"] {
        let running = site.start();
        let (mut client, _) = site.mount(&running, 0);
        write(&mut client, &file, text);
        stop(running);
    }
    site.restore(&copy);
    let running = site.start();
    assert!(site.said().contains("the log is an older copy"), "{}", site.said());
    let (mut client, _) = site.mount(&running, 0);
    assert_eq!(client.read(&file, 0, 99).unwrap().data, b"two");
    // A crash afterwards is as any other, though the same log once was further.
    site.disks[0].keep();
    write(&mut client, &file, b"after");
    kill(running);
    site.disks[0].lose();
    site.disks[0].mount("rw");
    let running = site.start();
    let (mut client, _) = site.mount(&running, 0);
    assert_eq!(client.read(&file, 0, 99).unwrap().data, b"after");
    let number = site.disks[0].share.join("a").metadata().unwrap().ino();
    let said = site.said();
    // The kernel may not know the path of a file that it has only seen by its handle.
    let named = [
        format!("1 files: {}", utf8(&site.disks[0].share.join("a"))),
        format!("1 files: (file number {number})"),
    ];
    assert!(named.iter().any(|name| said.contains(name)), "{said}");
    stop(running);
}

/// What the page about backups tells tar to leave out.
fn left_out() -> Vec<String> {
    let page = include_str!("../../../docs/howto-backup.md");
    let command = page.split("tar --create").nth(1).and_then(|it| it.split("```").next());
    let mut words = command.expect("a command").split_whitespace();
    let mut excluded = Vec::new();
    while let Some(word) = words.next() {
        if word == "--exclude" {
            excluded.push(format!("--exclude={}", words.next().unwrap().trim_matches('\'')));
        }
    }
    assert!(excluded.len() > 5, "{excluded:?}");
    excluded
}

/// Backs the state directory up, as the page tells to.
fn back_up(site: &Site) -> PathBuf {
    let archive = site.place.directory.path().join("backup.tar");
    let mut tar = Command::new("tar");
    tar.args(["--create", "--file", utf8(&archive), "--directory", utf8(&site.place.state)]);
    let ended = tar.args(left_out()).arg(".").output().unwrap();
    // 1: a file changed meanwhile.
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{}", stderr(&ended));
    archive
}

fn extract(site: &Site, archive: &Path) {
    std::fs::create_dir_all(&site.place.state).unwrap();
    let words = ["--extract", "--file", utf8(archive), "--directory", utf8(&site.place.state)];
    assert!(Command::new("tar").args(words).status().unwrap().success());
}

/// What the documents say that a backup may contain.
#[test]
fn a_backup_without_the_log_serves_the_same_handles() {
    let Some(site) = Site::new(&["disk"]) else { return };
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let file = create(&mut client, &root, "a");
    write(&mut client, &file, b"older");
    let archive = back_up(&site);
    site.flush();
    write(&mut client, &file, b"newer");
    stop(running);
    std::fs::remove_dir_all(&site.place.state).unwrap();
    extract(&site, &archive);
    let running = site.start();
    let (mut client, _) = site.mount(&running, 0);
    assert_eq!(client.read(&file, 0, 99).unwrap().data, b"newer");
    assert!(site.said().contains("was served with another intent log"), "{}", site.said());
    stop(running);
}

/// A log on a device of its own is still there when the state directory comes back: what it has is not
/// lost by that.
#[test]
fn a_backup_that_is_restored_beside_a_log_that_survived_lets_it_be_replayed() {
    let Some(mut site) = Site::new(&["disk"]) else { return };
    let log = site.place.directory.path().join("own.log");
    writeln!(site.log, "path = {:?}", utf8(&log)).unwrap();
    let mut running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let file = create(&mut client, &root, "a");
    let archive = back_up(&site);
    for (data, is_state_lost) in [(b"one", false), (b"two", true)] {
        site.flush();
        site.disks[0].keep();
        write(&mut client, &file, data);
        kill(running);
        site.disks[0].lose();
        site.disks[0].mount("rw");
        if is_state_lost {
            std::fs::remove_dir_all(&site.place.state).unwrap();
        }
        extract(&site, &archive);
        if is_state_lost {
            // Whether disks were served meanwhile without this log is nowhere.
            let said = site.refused();
            assert!(said.contains("log adopt"), "{said}");
            told(&site, &["adopt"]);
        }
        running = site.start();
        client = site.mount(&running, 0).0;
        assert_eq!(client.read(&file, 0, 99).unwrap().data, data);
    }
    stop(running);
}

/// Two disks, of which the second was rolled back to before its last checkpoint, after a crash with one
/// operation more in the log for each.
fn rolled_back() -> Option<Site> {
    let site = Site::new(&["good", "old"])?;
    let running = site.start();
    let (mut good, good_root) = site.mount(&running, 0);
    let (mut old, old_root) = site.mount(&running, 1);
    let file = create(&mut old, &old_root, "a");
    write(&mut old, &file, b"first");
    site.flush();
    site.disks[1].keep();
    write(&mut old, &file, b"second");
    site.flush();
    write(&mut old, &file, b"third!");
    create(&mut good, &good_root, "also");
    // The log is told of the mark by the next superblock.
    site.flush();
    write(&mut old, &file, b"fourth");
    create(&mut good, &good_root, "too");
    kill(running);
    site.disks[1].lose();
    site.disks[1].mount("rw");
    Some(site)
}

#[test]
fn a_disk_that_was_rolled_back_is_refused_alone() {
    let Some(site) = rolled_back() else { return };
    for _ in 0..2 {
        let running = site.start();
        let (mut good, root) = site.mount(&running, 0);
        good.lookup(&root, b"too").unwrap();
        assert!(site.try_mount(&running, 1).is_err(), "{}", site.said());
        let said = site.said();
        assert!(said.contains("is older than the intent log"), "{said}");
        assert_eq!(on_disk(&site, 1, "a"), "first");
        stop(running);
        assert_eq!(site.asides(), 1);
    }
    let share = utf8(&site.disks[1].share);
    let listed = told(&site, &["verify"]);
    assert!(listed.contains("1 operations") && listed.contains("log discard"), "{listed}");
    let wrong = refused(&site, &["discard", "--file-system", share, "--yes-lose", "2-operations"]);
    assert!(wrong.contains("1 operations of"), "{wrong}");
    told(&site, &["discard", "--file-system", share, "--yes-lose", "1-operations"]);
    let running = site.start();
    let (mut old, root) = site.mount(&running, 1);
    let file = old.lookup(&root, b"a").unwrap().handle;
    assert_eq!(old.read(&file, 0, 99).unwrap().data, b"first");
    stop(running);
}

#[test]
fn the_operations_of_a_disk_that_was_rolled_back_are_replayed_if_wanted() {
    let Some(site) = rolled_back() else { return };
    let running = site.start();
    assert!(site.try_mount(&running, 1).is_err());
    stop(running);
    told(&site, &["adopt", "--file-system", utf8(&site.disks[1].share)]);
    let running = site.start();
    let (mut old, root) = site.mount(&running, 1);
    let file = old.lookup(&root, b"a").unwrap().handle;
    assert_eq!(old.read(&file, 0, 99).unwrap().data, b"fourth");
    stop(running);
    assert_eq!(site.asides(), 0);
}

/// It had nothing in the log, so that it is served as it is. A crash right after that is as any other.
#[test]
fn what_is_acknowledged_on_a_disk_that_was_rolled_back_is_replayed() {
    let Some(site) = Site::new(&["old"]) else { return };
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let file = create(&mut client, &root, "a");
    write(&mut client, &file, b"first");
    site.flush();
    site.disks[0].keep();
    write(&mut client, &file, b"second");
    site.flush();
    stop(running);
    site.disks[0].lose();
    site.disks[0].mount("rw");
    let running = site.start();
    assert!(site.said().contains("is older than the intent log"), "{}", site.said());
    let (mut client, _) = site.try_mount(&running, 0).unwrap();
    site.disks[0].keep();
    write(&mut client, &file, b"third!");
    kill(running);
    site.disks[0].lose();
    site.disks[0].mount("rw");
    let running = site.start();
    let (mut client, _) = site.mount(&running, 0);
    assert_eq!(client.read(&file, 0, 99).unwrap().data, b"third!");
    stop(running);
}

#[test]
fn a_disk_that_another_log_has_served_is_refused_alone() {
    let Some(site) = Site::new(&["good", "lent"]) else { return };
    let running = site.start();
    let (mut good, good_root) = site.mount(&running, 0);
    let (mut lent, root) = site.mount(&running, 1);
    let file = create(&mut lent, &root, "a");
    site.flush();
    write(&mut lent, &file, b"first");
    create(&mut good, &good_root, "also");
    kill(running);
    // Another server takes it, without this one's state.
    let ours = site.back_up("ours");
    std::fs::remove_dir_all(&site.place.state).unwrap();
    let all = site.configure(&[1]);
    let running = Running::start(&site.place, 0, &["--config", utf8(&all), "-v"]);
    let (mut lent, root) = site.mount(&running, 1);
    let file = lent.lookup(&root, b"a").unwrap().handle;
    write(&mut lent, &file, b"their own");
    stop(running);
    site.restore(&ours);
    let running = site.start();
    let (mut good, root) = site.mount(&running, 0);
    good.lookup(&root, b"also").unwrap();
    assert!(site.said().contains("was served with another intent log"), "{}", site.said());
    assert!(site.try_mount(&running, 1).is_err());
    assert_eq!(on_disk(&site, 1, "a"), "their own");
    stop(running);
}

#[test]
fn operations_that_were_set_aside_and_replayed_are_not_replayed_again() {
    let Some((site, file)) = intent_log_support::site::lost("a", b"older") else { return };
    let running = site.start();
    stop(running);
    assert_eq!(site.asides(), 1);
    let copy = site.back_up("copy");
    site.disks[1].mount("rw");
    let running = site.start();
    let (mut bad, _) = site.mount(&running, 1);
    write(&mut bad, &file, b"newer");
    stop(running);
    site.restore(&copy);
    let running = site.start();
    assert!(site.try_mount(&running, 1).is_err());
    let said = site.said();
    assert!(said.contains("are older than its file system"), "{said}");
    assert_eq!(on_disk(&site, 1, "a"), "newer");
    stop(running);
}

#[test]
fn a_file_system_whose_uuid_changed_is_adopted() {
    let Some(site) = Site::new(&["disk"]) else { return };
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    site.flush();
    site.disks[0].keep();
    let file = create(&mut client, &root, "a");
    write(&mut client, &file, b"acknowledged");
    kill(running);
    site.disks[0].lose();
    site.disks[0].change_uuid();
    site.disks[0].mount("rw");
    let said = site.refused();
    assert!(said.contains("none of their file systems is mounted"), "{said}");
    let command = said.split("log adopt --file-system ").nth(1).expect(&said);
    let pair = command.split('`').next().unwrap();
    assert!(said.contains("has the mark of this log"), "{said}");
    let other = pair.replace(|letter: char| letter.is_ascii_digit(), "f");
    refused(&site, &["adopt", "--file-system", &other]);
    let adopted = told(&site, &["adopt", "--file-system", pair]);
    assert!(adopted.contains("steadfast share accept"), "{adopted}");
    let running = site.start();
    let share = utf8(&site.disks[0].share);
    let state = ["--state-directory", utf8(&site.place.state)];
    let accepted = output(&[&["share", "accept", share][..], &state].concat());
    assert!(accepted.status.success(), "{}", stderr(&accepted));
    stop(running);
    let running = site.start();
    let (mut client, _) = site.mount(&running, 0);
    assert_eq!(client.read(&file, 0, 99).unwrap().data, b"acknowledged");
    stop(running);
}

#[test]
fn clients_neither_see_nor_change_the_mark() {
    let Some(logged) = Logged::new() else { return };
    let running = logged.start();
    let (mut client, root) = logged.mount(&running);
    let file = create(&mut client, &root, "a");
    logged.told(&["flush"]);
    let mark = logged.place.share.join(".steadfast-mark");
    let found = mark.metadata().unwrap();
    assert_eq!((found.permissions().mode() & 0o7777, found.uid(), found.len()), (0o600, 0, 8192));
    let name = &b".steadfast-mark"[..];
    assert_eq!(client.lookup(&root, name).unwrap_err().status(), Some(NfsStat3::NoEnt));
    assert_eq!(client.remove(&root, name).unwrap_err().status(), Some(NfsStat3::NoEnt));
    let renamed = client.rename(&root, name, &root, b"taken").unwrap_err();
    assert_eq!(renamed.status(), Some(NfsStat3::NoEnt));
    let renamed = client.rename(&root, b"a", &root, name).unwrap_err();
    assert_eq!(renamed.status(), Some(NfsStat3::Acces));
    let how = steadfast_client::CreateHow3::Unchecked(Settings::mode(0o644).0);
    assert_eq!(client.create(&root, name, &how).unwrap_err().status(), Some(NfsStat3::Acces));
    let listed = client.readdir(&root, 0, [0; 8], 65_536).unwrap();
    let names: Vec<_> = listed.entries.iter().map(|entry| entry.name.clone()).collect();
    assert!(names.iter().any(|name| name == b"a") && !names.iter().any(|it| it == name));
    // Further checkpoints change no directory.
    let times = |path: &Path| {
        let found = path.metadata().unwrap();
        (found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec())
    };
    let before = times(&logged.place.share);
    let bytes = std::fs::read(&mark).unwrap();
    client.write(&file, 0, &[7; 10], StableHow::FileSync).unwrap();
    logged.told(&["flush"]);
    assert_ne!(std::fs::read(&mark).unwrap(), bytes);
    assert_eq!(times(&logged.place.share), before);
    stop(running);
}

/// A share below the root, on each kind of file system: the mark is at the root, and says the same.
#[test]
fn the_mark_is_at_the_root_whatever_is_shared() {
    for site in [Site::new(&["disk"]), Site::with_xfs(), Site::with_btrfs(30)] {
        let Some(site) = site else { continue };
        let running = site.start();
        let (mut client, root) = site.mount(&running, 0);
        create(&mut client, &root, "a");
        site.flush();
        let mark = std::fs::read(site.disks[0].mark()).unwrap();
        assert!(mark.windows(8).any(|it| it == b"SfFsMark"), "{}", site.disks[0].at().display());
        assert!(!site.disks[0].share.join(".steadfast-mark").exists());
        stop(running);
    }
}
