//! Process tests: the real program serves, reloads, stops and is killed; seen by a client.

#![allow(clippy::expect_used)] // A failure here is a failure of the test.

mod common;

use std::os::unix::process::ExitStatusExt;

use common::{PATIENCE, Place, Running, utf8};
use steadfast_client::{CreateHow3, FileHandle, Identity, Nfs3Client, NfsStat3, StableHow};

fn mount(running: &Running, path: &str) -> Result<(Nfs3Client, FileHandle), String> {
    let (at, identity) = (running.address, Identity::user(1000, 1000));
    Nfs3Client::mount(at, at, path.as_bytes(), identity, PATIENCE).map_err(|e| e.to_string())
}

fn create(client: &mut Nfs3Client, root: &FileHandle, name: &str, data: &[u8]) -> FileHandle {
    let how = CreateHow3::Guarded(steadfast_client::Settings::default().0);
    let made = client.create(root, name.as_bytes(), &how).expect("created");
    let handle = made.handle.expect("a handle");
    client.write(&handle, 0, data, StableHow::FileSync).expect("written");
    handle
}

#[test]
fn a_directory_is_made_served_and_the_server_stops_cleanly() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share)]);
    assert!(place.share.is_dir());
    let port = running.address.port();
    assert_eq!(
        running.mount_line,
        format!(
            "mount -t nfs -o vers=3,nolock,port={port},mountport={port} 127.0.0.1:{} /mnt",
            utf8(&place.share)
        )
    );
    let (mut client, root) = mount(&running, utf8(&place.share)).expect("mounted");
    let file = create(&mut client, &root, "file", b"steadfast");
    assert_eq!(client.read(&file, 0, 100).expect("read").data, b"steadfast");
    assert_eq!(std::fs::read(place.share.join("file")).expect("read"), b"steadfast");
    running.signal("TERM");
    assert!(running.message().starts_with("STOPPING=1"));
    let status = running.wait();
    assert_eq!(status.code(), Some(0), "{}", Running::log(&place));
}

#[test]
fn handles_outlive_a_killed_server() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share)]);
    let port = running.address.port();
    let (mut client, root) = mount(&running, utf8(&place.share)).expect("mounted");
    let file = create(&mut client, &root, "file", b"before");
    running.signal("KILL");
    assert_eq!(running.wait().signal(), Some(9));

    let running = Running::start(&place, port, &[utf8(&place.share)]);
    let (mut client, same_root) = mount(&running, utf8(&place.share)).expect("mounted");
    assert_eq!(same_root, root);
    assert_eq!(client.read(&file, 0, 100).expect("read").data, b"before");
    assert_eq!(client.lookup(&root, b"file").expect("found").handle, file);
}

#[test]
fn a_reload_changes_shares_and_a_bad_one_changes_nothing() {
    let place = Place::new();
    let other = place.share.with_file_name("other");
    std::fs::create_dir(&other).expect("made");
    let share = |directory: &str| {
        format!("[[share]]\npath = \"/new\"\ndirectory = {directory:?}\nclients = [\"*\"]\n")
    };
    let file = place.write("steadfast.toml", "");
    let running = Running::start(&place, 0, &[utf8(&place.share), "--config", utf8(&file)]);
    assert!(mount(&running, "/new").is_err());
    let (mut client, root) = mount(&running, utf8(&place.share)).expect("mounted");

    let reload = |text: &str| {
        place.write("steadfast.toml", text);
        running.signal("HUP");
        let reloading = running.message();
        assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
        running.message()
    };
    assert_eq!(reload(&share(utf8(&other))), "READY=1\nSTATUS=serving 2 shares");
    mount(&running, "/new").expect("mounted");

    assert_eq!(reload("nonsense"), "READY=1\nSTATUS=serving 2 shares");
    mount(&running, "/new").expect("still there");

    // A directory that is missing takes its own share away, and no other.
    assert_eq!(reload(&share("/nonexistent/directory")), "READY=1\nSTATUS=serving 1 share");
    assert!(mount(&running, "/new").is_err());
    client.getattr(&root).expect("the other share serves on");
    let log = Running::log(&place);
    assert!(log.contains(&format!("{}:3:13: share \"/new\" is not served", utf8(&file))), "{log}");
}

#[test]
fn a_read_only_share_is_read_only() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share), "--ro"]);
    let (mut client, root) = mount(&running, utf8(&place.share)).expect("mounted");
    let how = CreateHow3::Guarded(steadfast_client::Settings::default().0);
    let error = client.create(&root, b"file", &how).expect_err("read-only");
    assert_eq!(error.status(), Some(NfsStat3::RoFs));
    assert!(!place.share.join("file").exists());
}

#[test]
fn clients_that_are_not_meant_cannot_mount() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share), "--clients", "192.0.2.0/24"]);
    assert!(mount(&running, utf8(&place.share)).is_err());
}

#[test]
fn the_largest_transfer_that_can_be_configured_works() {
    let place = Place::new();
    let file = place.write("steadfast.toml", "[server]\ntransfer_bytes_max = 4194304\n");
    let running = Running::start(&place, 0, &[utf8(&place.share), "--config", utf8(&file)]);
    let (mut client, root) = mount(&running, utf8(&place.share)).expect("mounted");
    let data: Vec<u8> = (0..4 << 20).map(|n: u32| (n % 251) as u8).collect();
    let file = create(&mut client, &root, "file", &data);
    let read = client.read(&file, 0, 4 << 20).expect("read");
    assert!(read.eof && read.data == data);
}
