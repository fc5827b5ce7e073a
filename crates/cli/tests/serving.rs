//! Process ring: the real program serves, reloads, stops and is killed; seen by a client.

#![allow(clippy::expect_used)] // A failure here is a failure of the test.

mod common;

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;

use common::{PATIENCE, Place, Running, stderr, steadfast, utf8};
use rustix::process::Signal;
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
fn without_nfs4_the_printed_line_mounts_by_nfs3() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share), "--no-nfs4"]);
    let (port, shared) = (running.address.port(), utf8(&place.share));
    assert_eq!(
        running.mount_line,
        format!(
            "mount -t nfs -o vers=3,nolock,port={port},mountport={port},proto=tcp,mountproto=tcp \
             127.0.0.1:{shared} /mnt"
        )
    );
}

/// As a container gives it (docs/containers.md).
#[test]
fn options_come_from_the_environment_too() {
    let place = Place::new();
    let other = place.directory.path().join("other");
    let both = std::env::join_paths([&place.share, &other]).expect("a list");
    let running = Running::start_with(&place, 0, &[], |command| {
        command.env("STEADFAST_SERVE_DIRECTORIES", both);
        command.env("STEADFAST_SERVE_NO_NFS4", "yes").env("STEADFAST_SERVE_RO", "0");
        // The command line outweighs it.
        command.env("STEADFAST_SERVE_LISTEN", "127.0.0.2,127.0.0.3");
    });
    assert!(running.mount_line.contains("vers=3"), "{}", running.mount_line);
    mount(&running, utf8(&other)).expect("mounted");
    let (mut client, root) = mount(&running, utf8(&place.share)).expect("mounted");
    create(&mut client, &root, "file", b"written");
    let elsewhere = ([127, 0, 0, 2], running.address.port()).into();
    std::net::TcpStream::connect_timeout(&elsewhere, PATIENCE).expect_err("nobody listens there");
    drop(running);
    // What is typed outweighs what it excludes, and a directory that is typed is the only one.
    let running = Running::start_with(&place, 0, &[utf8(&place.share), "--rw"], |command| {
        command.env("STEADFAST_SERVE_RO", "true").env("STEADFAST_SERVE_NO_INTENT_LOG", "off");
        command.env("STEADFAST_SERVE_DIRECTORIES", &other);
    });
    let (mut client, root) = mount(&running, utf8(&place.share)).expect("mounted");
    create(&mut client, &root, "another", b"written");
    mount(&running, utf8(&other)).map(|_| ()).expect_err("it is not served");
    drop(running);
    let wrong = [
        ("PORT", "tcp://10.0.0.1:2049"),
        ("NO_UDP", "maybe"),
        ("CLIENTS", "a b"),
        ("CLIENT", "10.0.0.0/8"),
    ];
    for (name, value) in wrong {
        let name = format!("STEADFAST_SERVE_{name}");
        let failed = steadfast(&["serve"]).env(&name, value).output().expect("the program runs");
        let why = stderr(&failed);
        assert_eq!(failed.status.code(), Some(2), "{why}");
        assert!(why.contains(value) || why.contains(&name), "{why}");
    }
}

#[test]
fn a_directory_is_made_served_and_the_server_stops_cleanly() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share)]);
    assert!(place.share.is_dir());
    let port = running.address.port();
    let shared = utf8(&place.share);
    assert_eq!(running.mount_line, format!("mount -t nfs -o port={port} 127.0.0.1:{shared} /mnt"));
    let (mut client, root) = mount(&running, utf8(&place.share)).expect("mounted");
    let file = create(&mut client, &root, "file", b"steadfast");
    assert_eq!(client.read(&file, 0, 100).expect("read").data, b"steadfast");
    assert_eq!(std::fs::read(place.share.join("file")).expect("read"), b"steadfast");
    running.signal(Signal::TERM);
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
    running.signal(Signal::KILL);
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
    let share = |path: &str, directory: &str| {
        format!("[[share]]\npath = {path:?}\ndirectory = {directory:?}\nclients = [\"*\"]\n")
    };
    let file = place.write("steadfast.toml", "");
    let running = Running::start(&place, 0, &[utf8(&place.share), "--config", utf8(&file)]);
    assert!(mount(&running, "/new").is_err());
    let (mut client, root) = mount(&running, utf8(&place.share)).expect("mounted");

    let reload = |text: &str| {
        place.write("steadfast.toml", text);
        running.signal(Signal::HUP);
        let reloading = running.message();
        assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
        running.message()
    };
    assert_eq!(reload(&share("/new", utf8(&other))), "READY=1\nSTATUS=serving 2 shares");
    mount(&running, "/new").expect("mounted");

    assert_eq!(reload("nonsense"), "READY=1\nSTATUS=serving 2 shares");
    mount(&running, "/new").expect("still there");

    // Of a share that is new the directory is missing: no other share suffers.
    let text = share("/newer", "/nonexistent/newer") + &share("/new", utf8(&other));
    assert_eq!(reload(&text), "READY=1\nSTATUS=serving 2 shares");
    assert!(mount(&running, "/newer").is_err());
    mount(&running, "/new").expect("still there");

    // Of one that is open the directory is gone: clients keep what they have.
    std::fs::rename(&other, other.with_file_name("renamed")).expect("renamed");
    assert_eq!(reload(&share("/new", utf8(&other))), "READY=1\nSTATUS=serving 2 shares");
    mount(&running, "/new").expect("still there");
    client.getattr(&root).expect("the other share serves on");
    let log = Running::log(&place);
    let file = utf8(&file);
    for fault in ["\"/newer\" is not served", "\"/new\" cannot be opened again"] {
        assert!(log.contains(&format!("{file}:3:13: share {fault}: the directory")), "{log}");
    }
}

#[test]
fn a_configuration_without_any_share_takes_none_away() {
    let place = Place::new();
    std::fs::create_dir(&place.share).expect("made");
    let share = utf8(&place.share);
    let file =
        place.write("steadfast.toml", &format!("[[share]]\npath = {share:?}\nclients = [\"*\"]\n"));
    let running = Running::start(&place, 0, &["--config", utf8(&file)]);
    let reload = || {
        running.signal(Signal::HUP);
        assert!(running.message().starts_with("RELOADING=1\n"));
        running.message()
    };
    place.write("steadfast.toml", "");
    assert_eq!(reload(), "READY=1\nSTATUS=serving 1 share");
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(reload(), "READY=1\nSTATUS=serving 1 share");
    mount(&running, share).expect("still there");
    let log = Running::log(&place);
    assert!(
        log.contains(&format!("{}: has no share any more: the shares stay", utf8(&file))),
        "{log}"
    );
    assert!(log.contains(&format!("{}: cannot be read: ", utf8(&file))), "{log}");
}

#[test]
fn the_manager_hears_of_a_server_that_reloads_again_and_again() {
    let place = Place::new();
    // The interval itself never ends.
    let running = Running::start_with(&place, 0, &[utf8(&place.share)], |command| {
        command.env("WATCHDOG_USEC", "7200000000");
    });
    for _ in 0..3 {
        running.signal(Signal::HUP);
        assert_eq!(running.message(), "WATCHDOG=1");
        assert!(running.message().starts_with("RELOADING=1\n"));
        assert!(running.message().starts_with("READY=1\n"));
        assert_eq!(running.message(), "WATCHDOG=1");
    }
}

#[test]
fn a_share_with_stored_handles_serves_on_when_it_cannot_be_opened_otherwise() {
    const USER: u32 = 1000;
    let mut place = Place::new();
    let other = place.share.with_file_name("other");
    let is_root = steadfast_sys::process::effective_ids().0 == 0;
    for directory in [&place.share, &other] {
        std::fs::create_dir(directory).expect("made");
    }
    if is_root {
        place.copy_program();
        for directory in [place.directory.path(), &place.share, &other] {
            std::os::unix::fs::chown(directory, Some(USER), Some(USER)).expect("given away");
        }
    }
    let write = |directory: &Path, options: &str| {
        let text = format!(
            "[[share]]\npath = \"/data\"\ndirectory = {:?}\nclients = [\"*\"]\n\
             options = [{options}]\n",
            utf8(directory)
        );
        place.write("steadfast.toml", &text)
    };
    let file = write(&place.share, "");
    let running = Running::start_with(&place, 0, &["--config", utf8(&file)], |command| {
        if is_root {
            command.uid(USER).gid(USER);
        }
    });
    let (mut client, root) = mount(&running, "/data").expect("mounted");
    create(&mut client, &root, "file", b"here");
    let reload = || {
        running.signal(Signal::HUP);
        assert!(running.message().starts_with("RELOADING=1\n"));
        assert_eq!(running.message(), "READY=1\nSTATUS=serving 1 share");
        Running::log(&place).matches("restart the server to have the change").count()
    };

    write(&place.share, "\"crossmnt\", \"ro\"");
    assert_eq!(reload(), 1, "{}", Running::log(&place));
    let found = client.lookup(&root, b"file").expect("the tree is the same");
    let error = client.write(&found.handle, 0, b"more", StableHow::FileSync);
    assert_eq!(error.expect_err("the rules are new").status(), Some(NfsStat3::RoFs));

    write(&other, "");
    assert_eq!(reload(), 2, "{}", Running::log(&place));
    client.lookup(&root, b"file").expect("the tree is the same");

    write(&place.share, "");
    assert_eq!(reload(), 2, "{}", Running::log(&place));
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
