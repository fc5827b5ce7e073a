//! Process ring: mounts with a journal (docs/mount.md), against a real server on loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use common::mounts::{Mount, serve, stop, turn};
use common::{PATIENCE, Place, Running, output, stderr, utf8};
use rustix::process::Signal;

/// The options of a mount with a journal beside its own directory.
fn journal(place: &Place, more: &str) -> (String, String) {
    let at = place.directory.path().canonicalize().unwrap().join("journal");
    let at = utf8(&at).to_owned();
    (format!("journal={at},{more}"), at)
}

/// How many changes a journal holds. In this process: another one would close this one's files at its start,
/// and wait for the server.
fn pending(journal: &str) -> usize {
    steadfast_journal::care::look(Path::new(journal)).expect("a journal").pending.len()
}

fn random(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_a_killed_client_has_written_is_sent_by_its_next_mount() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let (options, at) = journal(&place, "journal_sync=always");
    let mount = Mount::new(&place, &server, "mount", &options);
    let file = File::create(mount.path("file")).unwrap();
    file.write_all_at(b"the beginning, and", 0).unwrap();
    file.sync_all().unwrap();
    // From here on the server gets nothing.
    stop(&server);
    file.write_all_at(b" the end", 18).unwrap();
    file.write_all_at(b"The", 0).unwrap();
    assert!(pending(&at) >= 2);
    mount.kill();
    drop(file);
    server.signal(Signal::CONT);
    let at_server = place.share.join("file");
    assert_eq!(fs::read(&at_server).unwrap(), b"the beginning, and");

    let mount = Mount::new(&place, &server, "mount", &options);
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"The beginning, and the end");
    assert_eq!(fs::read(&at_server).unwrap(), b"The beginning, and the end");
    mount.unmount();
    assert_eq!(pending(&at), 0);
    assert!(!Path::new(&at).join("conflicts").exists(), "nobody else has written");
}

#[test]
fn what_others_have_written_meanwhile_is_not_overwritten() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let (options, at) = journal(&place, "journal_sync=always");
    let mount = Mount::new(&place, &server, "mount", &options);
    let file = File::create(mount.path("file")).unwrap();
    file.write_all_at(b"0123456789", 0).unwrap();
    file.sync_all().unwrap();
    stop(&server);
    file.write_all_at(b"MINE", 2).unwrap();
    mount.kill();
    drop(file);
    server.signal(Signal::CONT);
    let at_server = place.share.join("file");
    std::thread::sleep(Duration::from_millis(20));
    OpenOptions::new().write(true).open(&at_server).unwrap().write_all_at(b"their", 3).unwrap();

    let replayed: Output = output(&["journal", "replay", &at]);
    assert_eq!(replayed.status.code(), Some(3), "{}", stderr(&replayed));
    let told = String::from_utf8(replayed.stdout).unwrap();
    assert!(told.contains("conflict: /file"), "{told}");
    assert_eq!(fs::read(&at_server).unwrap(), b"012their89");
    let kept: Vec<_> = fs::read_dir(Path::new(&at).join("conflicts")).unwrap().flatten().collect();
    let has_data = |entry: &&fs::DirEntry| !entry.path().to_string_lossy().ends_with(".txt");
    let data = kept.iter().find(has_data).expect("a conflict file").path();
    assert_eq!(&fs::read(data).unwrap()[2..6], b"MINE");
    assert_eq!(pending(&at), 0);
}

#[test]
fn one_mount_has_a_journal() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let (options, _) = journal(&place, "");
    let mount = Mount::new(&place, &server, "mount", &options);
    let port = server.address.port();
    let second = place.directory.path().join("second");
    fs::create_dir(&second).unwrap();
    let source = format!("127.0.0.1:{}", utf8(&place.share));
    let options = format!("port={port},mountport={port},nolock,{options}");
    let refused = output(&["mount", "-o", &options, &source, utf8(&second)]);
    assert_eq!(refused.status.code(), Some(32));
    assert!(stderr(&refused).contains("process"), "{}", stderr(&refused));
    mount.unmount();
}

#[test]
fn a_small_journal_slows_writers_down_and_loses_nothing() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let (options, at) = journal(&place, "journal_size=1M,wsize=65536,compress");
    let mount = Mount::new(&place, &server, "mount", &options);
    let content = random(12 << 20, 7);
    fs::write(mount.path("file"), &content).unwrap();
    assert!(fs::read(mount.path("file")).unwrap() == content, "through the mount");
    mount.unmount();
    assert!(fs::read(place.share.join("file")).unwrap() == content, "at the server");
    assert_eq!(pending(&at), 0);
}

/// COMMIT says nothing there: what leaves the journal has to be stable by the recovery program.
#[test]
fn data_of_an_async_share_leaves_the_journal_when_it_is_stable() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    fs::create_dir_all(&place.share).unwrap();
    let configuration = place.write(
        "steadfast.toml",
        &format!(
            "[log]\nsize_mib = 16\n[[share]]\npath = {:?}\nclients = [\"*\"]\n\
             options = [\"no_root_squash\", \"async\"]\n",
            utf8(&place.share)
        ),
    );
    let server = Running::start(&place, 0, &["--config", utf8(&configuration)]);
    let (options, at) = journal(&place, "");
    let mount = Mount::new(&place, &server, "mount", &options);
    let content = random(3 << 20, 9);
    let file = File::create(mount.path("file")).unwrap();
    file.write_all_at(&content, 0).unwrap();
    file.sync_all().unwrap();
    assert!(pending(&at) > 0, "fsync does not wait for the server's disk");
    wait_until("the data does not become stable", || pending(&at) == 0);
    drop(file);
    mount.unmount();
    assert!(fs::read(place.share.join("file")).unwrap() == content);
    let state = utf8(&place.state).to_owned();
    let told = output(&["statistics", "--json", "--state-directory", &state]);
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains("SYNC"), "{told}");
}

/// The client sends again what it cannot know to be there. This process has the file open while it starts
/// servers, so that each closes it at its start: that must not wait for itself.
#[test]
fn a_server_that_is_killed_is_sent_what_it_may_have_lost() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let mut server = serve(&place, 0);
    let port = server.address.port();
    let (options, at) = journal(&place, "");
    let mount = Mount::new(&place, &server, "mount", &options);
    let file = File::create(mount.path("file")).unwrap();
    let mut content = Vec::new();
    for round in 0..4 {
        let part = random(300_000, 11 + round);
        file.write_all_at(&part, content.len() as u64).unwrap();
        content.extend_from_slice(&part);
        file.sync_all().unwrap();
        server.signal(Signal::KILL);
        server.wait();
        server = serve(&place, port);
    }
    file.sync_all().unwrap();
    drop(file);
    mount.unmount();
    assert!(fs::read(place.share.join("file")).unwrap() == content);
    assert_eq!(pending(&at), 0);
}
