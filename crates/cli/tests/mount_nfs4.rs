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
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use common::model::{Random, operate, see_what_the_other_has_closed, tree};
use common::mounts::{Mount, serve, stop, turn};
use common::{PATIENCE, Place, Running, ended, stderr, utf8};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
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

/// Tells a process of this program where to operate, and where in an ordinary directory beside.
const OPERATOR: &str = "STEADFAST_OPERATOR";
/// Tells a process of this program in which file to add to a number.
const ADDER: &str = "STEADFAST_ADDER";

/// A process of this program: its open files keep no other one from starting a server.
fn start(test: &str, variable: &str, told: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(variable, told).spawn().unwrap()
}

/// Operates until the third file is there.
#[test]
fn operator() {
    let Ok(told) = std::env::var(OPERATOR) else { return };
    let parts: Vec<&Path> = told.split('|').map(Path::new).collect();
    let [ours, model, end] = parts[..] else { panic!("{told}") };
    let number = told.len() as u64 + u64::from(std::process::id());
    let mut random = Random(number);
    let mut count = 0;
    while !end.exists() {
        let seed = random.next();
        assert_eq!(operate(ours, seed), operate(model, seed), "{told}: seed {seed}");
        count += 1;
        if count % 200 == 0 {
            assert_eq!(tree(ours), tree(model), "{told}");
        }
    }
    assert_eq!(tree(ours), tree(model), "{told}");
    println!("{told}: {count} operations");
}

/// Several processes operate, each in a directory of its own, and in an ordinary one beside, while something is done.
fn operate_both<T>(mounts: &[&Mount], models: &Path, meanwhile: impl FnOnce() -> T) -> T {
    let end = models.with_extension("end");
    let _ = fs::remove_file(&end);
    let operators = mounts.iter().enumerate().map(|(number, mount)| {
        let name = format!("t{number}");
        let (ours, model) = (mount.path(&name), models.join(&name));
        fs::create_dir(&ours).unwrap();
        fs::create_dir_all(&model).unwrap();
        start("operator", OPERATOR, &[utf8(&ours), utf8(&model), utf8(&end)].join("|"))
    });
    let operators: Vec<Child> = operators.collect();
    let done = meanwhile();
    fs::write(&end, "").unwrap();
    for mut operator in operators {
        assert!(ended(&mut operator, "a process that operates").success());
    }
    done
}

#[test]
fn random_operations_are_those_of_an_ordinary_directory() {
    let Some(_turn) = turn() else { return };
    for options in ["nfsvers=4.1,wsize=4096,rsize=4096,nconnect=3", "nfsvers=4.2,actimeo=3"] {
        let place = Place::new();
        let server = serve(&place, 0);
        let mount = Mount::new(&place, &server, "mount", options);
        let models = place.directory.path().join("models");
        operate_both(&[&mount, &mount, &mount], &models, || thread::sleep(OPERATING));
        mount.unmount();
        assert_eq!(tree(&place.share), tree(&models), "at the server");
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
    let servers = operate_both(&[&one, &two, &one], &models, || {
        for _ in 0..KILLS {
            thread::sleep(Duration::from_millis(700));
            let server = restart(&place, servers.remove(0));
            servers.push(server);
        }
        thread::sleep(Duration::from_millis(500));
        servers
    });
    one.unmount();
    two.unmount();
    assert_eq!(tree(&place.share), tree(&models), "at the server");
    drop(servers);
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
    // Starting a program waits for data of open files that is not at the server.
    for file in [&removed, &kept] {
        file.sync_all().unwrap();
    }
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
    let mounts =
        ["one", "two"].map(|name| Mount::new(&place, &servers[0], name, "nfsvers=4.1,timeo=20"));
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
    mounts.into_iter().for_each(Mount::unmount);
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
    see_what_the_other_has_closed(&one.path("."), &two.path("."));
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

/// Locks the whole file, by fcntl(2) or flock(2); false if another has it.
fn lock(file: &File, way: &str, how: FlockOperation) -> bool {
    let locked = match way {
        "fcntl" => rustix::fs::fcntl_lock(file, how),
        _ => rustix::fs::flock(file, how),
    };
    match locked {
        Ok(()) => true,
        Err(Errno::AGAIN | Errno::ACCESS) => false,
        Err(error) => panic!("{error}"),
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn locks_keep_other_mounts_out_whatever_they_speak() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    fs::write(place.share.join("file"), "0000").unwrap();
    let versions = ["4.1", "4.2", "3"];
    let mounts = versions
        .map(|version| Mount::new(&place, &server, version, &format!("lock,nfsvers={version}")));
    let files: Vec<File> = mounts.iter().map(|mount| open(&mount.path("file"))).collect();
    let (exclusive, shared) =
        (FlockOperation::NonBlockingLockExclusive, FlockOperation::NonBlockingLockShared);
    for holder in 0..3 {
        for way in ["fcntl", "flock"] {
            assert!(lock(&files[holder], way, exclusive), "{holder} {way}");
            for other in (0..3).filter(|other| *other != holder) {
                assert!(!lock(&files[other], way, exclusive), "{holder} {other} {way}");
                assert!(!lock(&files[other], "flock", shared), "{holder} {other} {way}");
            }
            assert!(lock(&files[holder], way, shared));
            for other in (0..3).filter(|other| *other != holder) {
                assert!(lock(&files[other], way, shared), "{holder} {other} {way}");
                assert!(!lock(&files[holder], way, exclusive), "{holder} {other} {way}");
                lock(&files[other], way, FlockOperation::Unlock);
            }
            lock(&files[holder], way, FlockOperation::Unlock);
        }
    }
    // The last close ends a lock, and each close of the process with fcntl.
    for way in ["fcntl", "flock"] {
        let again = open(&mounts[0].path("file"));
        assert!(lock(&again, way, exclusive));
        drop(again);
        let begun = Instant::now();
        while !lock(&files[1], way, exclusive) {
            assert!(begun.elapsed() < PATIENCE, "{way}: the lock is not freed");
            thread::sleep(Duration::from_millis(10));
        }
        lock(&files[1], way, FlockOperation::Unlock);
    }
    drop(files);
    mounts.into_iter().for_each(Mount::unmount);
}

/// How often each process adds.
const TIMES: u64 = 60;

#[test]
fn adder() {
    let Ok(told) = std::env::var(ADDER) else { return };
    let file = open(Path::new(&told));
    for _ in 0..TIMES {
        assert!(lock(&file, "fcntl", FlockOperation::LockExclusive));
        let mut text = [0; 4];
        file.read_exact_at(&mut text, 0).unwrap();
        let number: u64 = std::str::from_utf8(&text).unwrap().parse().unwrap();
        thread::sleep(Duration::from_millis(3));
        file.write_all_at(format!("{:04}", number + 1).as_bytes(), 0).unwrap();
        assert!(lock(&file, "fcntl", FlockOperation::Unlock));
    }
}

/// Each adds to a number in the file, which stays open, as often; the server is killed meanwhile.
#[test]
fn locks_are_held_over_kills_of_the_server() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let mut servers = vec![serve(&place, 0)];
    fs::write(place.share.join("file"), "0000").unwrap();
    fs::write(place.share.join("held"), "").unwrap();
    let mounts = ["one", "two"]
        .map(|name| Mount::new(&place, &servers[0], name, "lock,nfsvers=4.2,timeo=20"));
    let held = open(&mounts[0].path("held"));
    assert!(lock(&held, "fcntl", FlockOperation::NonBlockingLockExclusive));
    let adders =
        [0, 0, 1, 1].map(|mount: usize| start("adder", ADDER, utf8(&mounts[mount].path("file"))));
    for _ in 0..KILLS {
        thread::sleep(Duration::from_millis(500));
        let server = restart(&place, servers.remove(0));
        servers.push(server);
    }
    for mut adder in adders {
        assert!(ended(&mut adder, "a process that adds").success());
    }
    let number = fs::read_to_string(place.share.join("file")).unwrap();
    assert_eq!(number.parse(), Ok(4 * TIMES));
    let other = open(&mounts[1].path("held"));
    assert!(!lock(&other, "fcntl", FlockOperation::NonBlockingLockShared));
    held.write_all_at(b"mine", 0).unwrap();
    assert!(lock(&held, "fcntl", FlockOperation::Unlock));
    assert!(lock(&other, "fcntl", FlockOperation::NonBlockingLockShared));
    assert_eq!(fs::read(mounts[1].path("held")).unwrap(), b"mine");
    drop((held, other));
    mounts.into_iter().for_each(Mount::unmount);
}
