//! Process ring: `steadfast mount` with NFSv4.1 and 4.2 (docs/mount.md): files as in an ordinary directory, and what
//! is open outlives restarts of the server.
//!
//! They mount, so they need root and /dev/fuse. Where those are missing they do nothing, and fail with `CI=true`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::model::{Random, operate, tree};
use common::mounts::{Mount, serve, stop, turn};
use common::{PATIENCE, Place, Running, stderr, utf8};
use rustix::process::Signal;

/// How long random operations go on.
const OPERATING: Duration = Duration::from_secs(4);
/// How often the server is killed.
const KILLS: usize = 3;

/// Kills a server, and starts it again at its port.
fn restart(place: &Place, server: Running) -> Running {
    let port = server.address.port();
    server.signal(Signal::KILL);
    server.wait();
    serve(place, port)
}

/// Operations of several threads, each in a directory of its own, and in an ordinary one beside.
fn operate_both(mounts: &[&Mount], models: &Path, stops: &AtomicBool) -> usize {
    let count = AtomicUsize::new(0);
    thread::scope(|scope| {
        for (number, mount) in mounts.iter().enumerate() {
            let (count, name) = (&count, format!("t{number}"));
            let (ours, model) = (mount.path(&name), models.join(&name));
            fs::create_dir(&ours).unwrap();
            fs::create_dir_all(&model).unwrap();
            scope.spawn(move || {
                let mut random = Random(0x5eed + number as u64);
                while !stops.load(Ordering::Relaxed) {
                    let seed = random.next();
                    let told = operate(&ours, seed);
                    assert_eq!(told, operate(&model, seed), "{name}: seed {seed}");
                    if count.fetch_add(1, Ordering::Relaxed) % 500 == 499 {
                        assert_eq!(tree(&ours), tree(&model), "{name}");
                    }
                }
                assert_eq!(tree(&ours), tree(&model), "{name}");
            });
        }
    });
    count.into_inner()
}

#[test]
fn random_operations_are_those_of_an_ordinary_directory() {
    let Some(_turn) = turn() else { return };
    for options in ["nfsvers=4.1,wsize=4096,rsize=4096,nconnect=3", "nfsvers=4.2,actimeo=3"] {
        let place = Place::new();
        let server = serve(&place, 0);
        let mount = Mount::new(&place, &server, "mount", options);
        let models = place.directory.path().join("models");
        let stops = AtomicBool::new(false);
        let count = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(OPERATING);
                stops.store(true, Ordering::Relaxed);
            });
            operate_both(&[&mount, &mount, &mount], &models, &stops)
        });
        mount.unmount();
        assert_eq!(tree(&place.share), tree(&models), "at the server");
        println!("{options}: {count} operations");
    }
}

#[test]
fn operations_go_on_over_kills_of_the_server() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let mut servers = vec![serve(&place, 0)];
    let one = Mount::new(&place, &servers[0], "one", "nfsvers=4.2,timeo=20");
    let two = Mount::new(&place, &servers[0], "two", "nfsvers=4.1,timeo=20");
    let models = place.directory.path().join("models");
    let stops = AtomicBool::new(false);
    let count = thread::scope(|scope| {
        let (place, stops_then) = (&place, &stops);
        let killer = scope.spawn(move || {
            for _ in 0..KILLS {
                thread::sleep(Duration::from_millis(700));
                let server = restart(place, servers.remove(0));
                servers.push(server);
            }
            thread::sleep(Duration::from_millis(500));
            stops_then.store(true, Ordering::Relaxed);
            servers
        });
        let count = operate_both(&[&one, &two, &one], &models, &stops);
        let servers = killer.join().unwrap();
        one.unmount();
        two.unmount();
        drop(servers);
        count
    });
    assert_eq!(tree(&place.share), tree(&models), "at the server");
    println!("{count} operations over {KILLS} kills");
}

#[test]
fn what_is_open_outlives_its_name_and_the_server() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let mount = Mount::new(&place, &server, "mount", "nfsvers=4.2,timeo=20");
    let make = |name: &str, mode| {
        let mut options = OpenOptions::new();
        options.create_new(true).read(true).write(true).mode(mode);
        options.open(mount.path(name)).unwrap()
    };
    // Nobody may open it for writing but who has made it.
    let (mut removed, mut kept) = (make("removed", 0o644), make("kept", 0o400));
    for file in [&mut removed, &mut kept] {
        file.write_all(b"before ").unwrap();
    }
    fs::remove_file(mount.path("removed")).unwrap();
    assert!(!mount.path("removed").exists());
    let server = restart(&place, server);
    for file in [&mut removed, &mut kept] {
        file.write_all(b"after").unwrap();
        file.sync_all().unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "before after");
    }
    assert_eq!(removed.metadata().unwrap().nlink(), 0);
    drop((removed, kept));
    let begun = Instant::now();
    while fs::read_dir(&place.share).unwrap().count() > 1 {
        assert!(begun.elapsed() < PATIENCE, "the hidden file stays");
        thread::sleep(Duration::from_millis(10));
    }
    let kept = place.share.join("kept");
    assert_eq!(fs::read(&kept).unwrap(), b"before after");
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o7777, 0o400);
    mount.unmount();
    drop(server);
}

/// Two mounts make the same names, while the server is killed: each name is one's.
#[test]
fn a_name_is_made_exclusively_once_over_kills() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let mut servers = vec![serve(&place, 0)];
    let mounts = ["one", "two"]
        .map(|name| Mount::new(&place, &servers[0], name, "nfsvers=4.1,timeo=20"));
    let made = thread::scope(|scope| {
        let makers: Vec<_> = mounts
            .iter()
            .map(|mount| {
                scope.spawn(move || {
                    let mut made = Vec::new();
                    for number in 0..300 {
                        let path = mount.path(&format!("n{number}"));
                        let mut options = OpenOptions::new();
                        match options.create_new(true).write(true).open(path) {
                            Ok(_) => made.push(number),
                            Err(error) => assert_eq!(error.raw_os_error(), Some(17), "{error}"),
                        }
                        thread::sleep(Duration::from_millis(5));
                    }
                    made
                })
            })
            .collect();
        for _ in 0..KILLS {
            thread::sleep(Duration::from_millis(400));
            let server = restart(&place, servers.remove(0));
            servers.push(server);
        }
        makers.into_iter().flat_map(|maker| maker.join().unwrap()).collect::<Vec<u32>>()
    });
    let mut made = made;
    made.sort_unstable();
    assert_eq!(made, (0..300).collect::<Vec<_>>());
    mounts.map(Mount::unmount);
}

#[test]
fn users_act_as_themselves() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let mount = Mount::new(&place, &server, "mount", "nfsvers=4.2");
    fs::set_permissions(&place.share, fs::Permissions::from_mode(0o777)).unwrap();
    // The way there is of the one who runs the test.
    fs::set_permissions(place.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let run = |uid: u32, script: &str| {
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", script]).current_dir(&mount.at).uid(uid).gid(uid).output();
        output.unwrap().status.success()
    };
    assert!(run(1000, "umask 077; echo secret > mine"));
    let metadata = fs::metadata(place.share.join("mine")).unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o777), (1000, 1000, 0o600));
    assert!(run(1000, "test \"$(cat mine)\" = secret && echo more >> mine"));
    let reader = File::open(mount.path("mine")).unwrap();
    assert!(!run(1001, "cat mine || echo other >> mine || : > mine"));
    assert!(!run(1001, "chmod 777 mine"));
    let mut content = vec![0; 12];
    reader.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(content, b"secret\nmore\n");
    assert!(run(0, "chown 1001:1002 mine"));
    let metadata = fs::metadata(place.share.join("mine")).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (1001, 1002));
    drop(reader);
    mount.unmount();
}

#[test]
fn two_mounts_see_what_the_other_has_closed() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let one = Mount::new(&place, &server, "one", "nfsvers=4.2");
    let two = Mount::new(&place, &server, "two", "nfsvers=3");
    for round in 0_u32..40 {
        let (writer, reader) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let content = vec![round as u8; 1 + (round as usize * 977) % 20_000];
        fs::write(writer.path("file"), &content).unwrap();
        assert_eq!(fs::read(reader.path("file")).unwrap(), content, "round {round}");
        let mut log =
            OpenOptions::new().create(true).append(true).open(writer.path("log")).unwrap();
        writeln!(log, "{round}").unwrap();
    }
    let lines: Vec<String> = (0..40).map(|round: u32| round.to_string()).collect();
    assert_eq!(fs::read_to_string(one.path("log")).unwrap().lines().collect::<Vec<_>>(), lines);
    one.unmount();
    two.unmount();
}

/// `soft` gives up, and what it has given up is no other request's afterwards.
#[test]
fn a_soft_mount_gives_up_and_goes_on() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let options = "nfsvers=4.1,soft,timeo=5,retrans=2,actimeo=0";
    let mount = Mount::new(&place, &server, "mount", options);
    for number in 0..100 {
        fs::write(mount.path(&format!("f{number}")), number.to_string()).unwrap();
    }
    stop(&server);
    let begun = Instant::now();
    thread::scope(|scope| {
        for number in 0..100 {
            let path = mount.path(&format!("f{number}"));
            scope.spawn(move || {
                let error = fs::read(path).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(5), "{error}");
            });
        }
    });
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(900) && took < Duration::from_secs(20), "{took:?}");
    server.signal(Signal::CONT);
    let begun = Instant::now();
    while fs::read(mount.path("f0")).is_err() {
        assert!(begun.elapsed() < PATIENCE, "it does not go on");
    }
    for number in 0..100 {
        let content = fs::read_to_string(mount.path(&format!("f{number}"))).unwrap();
        assert_eq!(content, number.to_string());
    }
    mount.unmount();
}

#[test]
fn versions_are_named_and_refused() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    for (options, version) in [
        ("nfsvers=4.1", "4.1"),
        ("vers=4.2", "4.2"),
        ("nfsvers=4", "4.2"),
        ("nfsvers=4,minorversion=1", "4.1"),
        ("nfsvers=3", "3"),
    ] {
        let mount = Mount::new(&place, &server, "mount", options);
        let told = common::output(&["mount", "status", "--json", utf8(&mount.at)]);
        let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        assert_eq!(told[0]["status"]["nfs_version"], version, "{options}");
        mount.unmount();
    }
    let at = place.directory.path().join("mount");
    let port = server.address.port();
    for (path, options, part) in [
        (utf8(&place.share), "nfsvers=4.2,journal=/j", "a journal needs nfsvers=3"),
        (utf8(&place.share), "nfsvers=4.0", "nfsvers=3, 4.1 and 4.2 are"),
        ("/no/such/share", "nfsvers=4.2", "there is no such share"),
    ] {
        let options = format!("nolock,port={port},{options}");
        let source = format!("127.0.0.1:{path}");
        let told = common::output(&["mount", "-o", &options, &source, utf8(&at)]);
        assert!(!told.status.success() && stderr(&told).contains(part), "{}", stderr(&told));
    }
}
