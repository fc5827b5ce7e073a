//! Process ring: `steadfast mount` through the kernel's FUSE, against a real server on loopback.
//!
//! They mount, so they need root and /dev/fuse. Where those are missing they do nothing, and fail with
//! `CI=true`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::model::{Random, operate, see_what_the_other_has_closed, tree};
use common::mounts::{Mount, serve, stop, turn};
use common::{PATIENCE, Place, steadfast, utf8};
use rustix::fs::FlockOperation;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};

/// `df` and `umount` answer within this though the server is gone (docs/mount.md), and some for a busy
/// machine.
const PROMPT: Duration = Duration::from_secs(3);

#[test]
fn random_operations_are_those_of_an_ordinary_directory() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    for (name, options) in [("small", "wsize=4096,rsize=4096,nconnect=3"), ("large", "actimeo=3")] {
        let mount = Mount::new(&place, &server, name, options);
        let (ours, model) =
            (mount.path(name), place.directory.path().join(format!("model-{name}")));
        fs::create_dir(&ours).unwrap();
        fs::create_dir(&model).unwrap();
        let begun = Instant::now();
        let mut random = Random(0x5eed);
        let mut count = 0;
        while begun.elapsed() < Duration::from_secs(5) {
            let seed = random.next();
            assert_eq!(
                operate(&ours, seed),
                operate(&model, seed),
                "{name}: operation {count}, seed {seed}"
            );
            count += 1;
            if count % 200 == 0 {
                assert_eq!(tree(&ours), tree(&model), "{name}: after {count} operations");
            }
        }
        assert_eq!(tree(&ours), tree(&model), "{name}");
        mount.unmount();
        assert_eq!(tree(&place.share.join(name)), tree(&model), "{name}: at the server");
        println!("{name}: {count} operations");
    }
}

#[test]
fn git_works_on_a_mount() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let mount = Mount::new(&place, &server, "mount", "");
    let work = mount.path("work");
    fs::create_dir(&work).unwrap();
    for number in 0..50 {
        fs::write(work.join(format!("file{number}")), vec![number; 1000 * usize::from(number)])
            .unwrap();
    }
    for words in [
        &["init", "-q"][..],
        &["add", "."],
        &["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "first"],
        &["fsck", "--full", "--strict"],
        &["gc", "-q"],
        &["fsck", "--full", "--strict"],
        &["diff", "--exit-code"],
    ] {
        let mut git = Command::new("git");
        git.args(["-c", "safe.directory=*"]).args(words).current_dir(&work);
        let output = git.env("HOME", place.directory.path()).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
    mount.unmount();
}

#[test]
fn open_files_outlive_their_names() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let mount = Mount::new(&place, &server, "mount", "");
    for replaces in [false, true] {
        let (path, other) = (mount.path("open"), mount.path("other"));
        let mut file =
            OpenOptions::new().create_new(true).read(true).write(true).open(&path).unwrap();
        file.write_all(b"before ").unwrap();
        fs::write(&other, b"new").unwrap();
        if replaces {
            fs::rename(&other, &path).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"new");
        } else {
            fs::remove_file(&path).unwrap();
            assert!(!path.exists());
        }
        file.write_all(b"after").unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        assert_eq!((content.as_str(), file.metadata().unwrap().nlink()), ("before after", 0));
        drop(file);
        let _ = fs::remove_file(&path);
        let _ = fs::remove_file(&other);
        let begun = Instant::now();
        // RELEASE is answered after close(2) has returned.
        while fs::read_dir(&place.share).unwrap().count() > 0 {
            assert!(begun.elapsed() < PATIENCE, "the hidden file stays");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    mount.unmount();
}

#[test]
fn two_mounts_see_what_the_other_has_closed() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let (one, two) =
        (Mount::new(&place, &server, "one", ""), Mount::new(&place, &server, "two", ""));
    see_what_the_other_has_closed(&one.path("."), &two.path("."));
    one.unmount();
    two.unmount();
}

#[test]
fn a_large_directory_is_listed_once() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let mount = Mount::new(&place, &server, "mount", "");
    let directory = place.share.join("many");
    fs::create_dir(&directory).unwrap();
    for number in 0..5000 {
        fs::write(directory.join(format!("a-name-of-some-length-{number}")), b"").unwrap();
    }
    let mut names: Vec<_> =
        fs::read_dir(mount.path("many")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 5000);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 5000);
    fs::remove_dir_all(mount.path("many")).unwrap();
    assert!(!directory.exists());
    mount.unmount();
}

/// Stops all of a server's threads: the signal itself does not wait until they have.
#[test]
fn a_server_that_is_gone_blocks_neither_df_nor_umount_nor_kill() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let mount = Mount::new(&place, &server, "mount", "hard,actimeo=0");
    fs::write(mount.path("file"), b"content").unwrap();
    let known = rustix::fs::statvfs(&mount.at).unwrap();
    stop(&server);
    // A reader that waits for the server, and is killed.
    let mut reader =
        Command::new("cat").arg(mount.path("file")).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(reader.try_wait().unwrap().is_none(), "hard waits");
    let begun = Instant::now();
    let told = rustix::fs::statvfs(&mount.at).unwrap();
    assert!(begun.elapsed() < PROMPT, "statfs took {:?}", begun.elapsed());
    assert_eq!(told.f_blocks, known.f_blocks);
    let begun = Instant::now();
    fs::metadata(&mount.at).unwrap();
    assert!(begun.elapsed() < PROMPT, "stat of the root took {:?}", begun.elapsed());
    let begun = Instant::now();
    reader.kill().unwrap();
    reader.wait().unwrap();
    assert!(begun.elapsed() < PROMPT, "kill took {:?}", begun.elapsed());
    let begun = Instant::now();
    rustix::mount::unmount(&mount.at, UnmountFlags::empty()).expect("unmounted");
    assert!(begun.elapsed() < PROMPT, "umount took {:?}", begun.elapsed());
    server.signal(Signal::CONT);
}

#[test]
fn a_soft_mount_gives_up() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let mount = Mount::new(&place, &server, "mount", "soft,timeo=5,retrans=2,actimeo=0");
    let file = File::create(mount.path("file")).unwrap();
    stop(&server);
    let begun = Instant::now();
    let error = fs::read(mount.path("other")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    assert!(
        begun.elapsed() >= Duration::from_millis(900) && begun.elapsed() < Duration::from_secs(10)
    );
    (&file).write_all(b"lost").unwrap();
    // Closing a copy, as a child process does, takes nothing from fsync.
    drop(file.try_clone().unwrap());
    let error = file.sync_all().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    file.sync_all().expect("an error is told once");
    server.signal(Signal::CONT);
    drop(file);
    mount.unmount();
}

#[test]
fn locks_are_local_or_the_servers() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let local = Mount::new(&place, &server, "local", "");
    let remote = Mount::new(&place, &server, "remote", "lock");
    let file = File::create(local.path("file")).unwrap();
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
        .expect("a lock of this host");
    let second = File::open(local.path("file")).unwrap();
    assert!(rustix::fs::flock(&second, FlockOperation::NonBlockingLockExclusive).is_err());
    // The server does not know of it, and gives the same lock to others.
    let options = OpenOptions::new().read(true).write(true).clone();
    let of_server = options.open(remote.path("file")).unwrap();
    rustix::fs::flock(&of_server, FlockOperation::NonBlockingLockExclusive).unwrap();
    let at_server = options.open(place.share.join("file")).unwrap();
    let tried = || rustix::fs::fcntl_lock(&at_server, FlockOperation::NonBlockingLockExclusive);
    assert!(tried().is_err());
    rustix::fs::flock(&of_server, FlockOperation::Unlock).unwrap();
    tried().unwrap();
}

#[test]
fn rights_are_the_servers() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let mount = Mount::new(&place, &server, "mount", "");
    fs::set_permissions(place.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(mount.path("shut")).unwrap();
    fs::write(mount.path("shut/secret"), b"secret").unwrap();
    fs::set_permissions(mount.path("shut"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(mount.path("team"), b"team").unwrap();
    fs::set_permissions(mount.path("team"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::chown(mount.path("team"), None, Some(7777)).unwrap();
    // Root's look-ups are in the caches.
    assert_eq!(fs::read(mount.path("shut/secret")).unwrap(), b"secret");
    let cat = |name: &str, groups: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "1234", "--regid", "1234", "--groups", groups]);
        command.arg("cat").arg(mount.path(name)).output().unwrap().status.success()
    };
    assert!(!cat("shut/secret", "1234"), "a directory that is shut");
    assert!(!cat("team", "1234"));
    assert!(cat("team", "1234,7777"), "a supplementary group counts");
    // The kernel asks by itself whether a program may be executed by anybody at all.
    let program = mount.path("program");
    fs::write(&program, fs::read("/bin/true").unwrap()).unwrap();
    std::os::unix::fs::chown(&program, None, Some(7777)).unwrap();
    let executes = |mode: u32, groups: &str| {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "1234", "--regid", "1234", "--groups", groups]);
        command.arg(&program).output().unwrap().status.success()
    };
    assert!(!executes(0o754, "1234"), "read, but not executed");
    assert!(executes(0o754, "1234,7777"));
    assert!(executes(0o711, "1234"), "executed, but not read");
    mount.unmount();
}

#[test]
fn in_the_background_errors_are_told_first() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let at = place.directory.path().join("at");
    fs::create_dir(&at).unwrap();
    let port = server.address.port();
    let options = format!("port={port},mountport={port},nolock");
    let refused =
        steadfast(&["mount", "-o", &options, "127.0.0.1:/absent", utf8(&at)]).output().unwrap();
    assert_eq!(refused.status.code(), Some(32), "{refused:?}");
    assert!(common::stderr(&refused).contains("refuses to mount \"/absent\""), "{refused:?}");
    let wrong = steadfast(&["mount", "-o", "fast", "127.0.0.1:/x", utf8(&at)]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
    // As mount(8) calls it.
    let helper = place.directory.path().join("mount.steadfast");
    fs::hard_link(env!("CARGO_BIN_EXE_steadfast"), &helper)
        .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_steadfast"), &helper).map(drop))
        .unwrap();
    let source = format!("127.0.0.1:{}", utf8(&place.share));
    let mounted =
        Command::new(&helper).args([&source, utf8(&at), "-v", "-o", &options]).output().unwrap();
    assert!(mounted.status.success(), "{mounted:?}");
    fs::write(at.join("file"), b"content").unwrap();
    rustix::mount::unmount(&at, UnmountFlags::empty()).unwrap();
    assert_eq!(fs::read(place.share.join("file")).unwrap(), b"content");
    assert!(!at.join("file").exists());
}

#[test]
fn a_signal_unmounts() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let mut mount = Mount::new(&place, &server, "mount", "");
    fs::write(mount.path("file"), b"content").unwrap();
    rustix::process::kill_process(Pid::from_child(&mount.child), Signal::TERM).unwrap();
    assert!(mount.child.wait().unwrap().success());
    assert!(!mount.path("file").exists());
    assert_eq!(fs::read(place.share.join("file")).unwrap(), b"content");
}

/// The environment variable that makes [`a_writer_for_another_test`] one.
const WRITER: &str = "STEADFAST_TEST_WRITER";
/// A record is its number, this often.
const RECORD_NUMBERS: usize = 4096;
const RECORDS: u64 = 600;

fn record(number: u64) -> Vec<u8> {
    number.to_be_bytes().repeat(RECORD_NUMBERS)
}

/// Not a test by itself: a process that writes, and tells what is synced.
#[test]
fn a_writer_for_another_test() {
    let Some(path) = std::env::var_os(WRITER) else { return };
    let mut file = File::create(path).unwrap();
    for number in 0..RECORDS {
        file.write_all(&record(number)).unwrap();
        if number % 5 == 4 {
            file.sync_all().unwrap();
            println!("synced {}", number + 1);
        }
    }
}

#[test]
fn a_server_that_is_killed_loses_nothing() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let mut server = serve(&place, 0);
    let port = server.address.port();
    let mount = Mount::new(&place, &server, "mount", "wsize=16384");
    // A process of its own: this one starts servers, and would wait for its own data meanwhile.
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_writer_for_another_test", "--nocapture"])
        .env(WRITER, mount.path("file"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    let (mut kills, mut synced) = (0, 0);
    for line in lines.map(Result::unwrap) {
        let Some(count) = line.strip_prefix("synced ") else { continue };
        synced = count.parse::<u64>().unwrap();
        if synced % 100 != 0 || synced == RECORDS {
            continue;
        }
        // In the middle of what is written next.
        std::thread::sleep(Duration::from_millis(20 * kills));
        server.signal(Signal::KILL);
        server.wait();
        // What was acknowledged may be in the intent log until then.
        server = serve(&place, port);
        let at_server = fs::read(place.share.join("file")).unwrap();
        for number in 0..synced {
            let wanted = record(number);
            let at = number as usize * wanted.len();
            assert!(at_server.get(at..at + wanted.len()) == Some(&wanted), "{number} of {synced}");
        }
        kills += 1;
    }
    assert!(writer.wait().unwrap().success());
    assert_eq!((synced, kills), (RECORDS, RECORDS / 100 - 1));
    mount.unmount();
    let all: Vec<u8> = (0..RECORDS).flat_map(record).collect();
    assert!(fs::read(place.share.join("file")).unwrap() == all, "after all");
}

#[test]
fn what_another_writes_meanwhile_is_seen_through_an_open_file() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let mount = Mount::new(&place, &server, "mount", "acregmin=1,acregmax=1");
    let path = mount.path("file");
    fs::write(&path, b"before").unwrap();
    let file = File::open(&path).unwrap();
    let read = || {
        let mut content = [0; 6];
        file.read_exact_at(&mut content, 0).unwrap();
        content
    };
    assert_eq!(&read(), b"before");
    let at_server = OpenOptions::new().write(true).open(place.share.join("file")).unwrap();
    at_server.write_all_at(b"after!", 0).unwrap();
    let begun = Instant::now();
    while &read() != b"after!" {
        assert!(begun.elapsed() < PATIENCE, "old pages");
        std::thread::sleep(Duration::from_millis(50));
    }
    // Replaced at the server: the first attempt to open it finds the new one.
    fs::write(place.share.join("new"), b"third!").unwrap();
    drop(file);
    fs::rename(place.share.join("new"), place.share.join("file")).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"third!");
    mount.unmount();
}

#[test]
fn a_replacement_that_fails_leaves_the_open_file_its_name() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let mount = Mount::new(&place, &server, "mount", "actimeo=60");
    let (old, new) = (mount.path("old"), mount.path("new"));
    fs::write(&old, b"old").unwrap();
    fs::write(&new, b"new").unwrap();
    let file = File::open(&old).unwrap();
    // The mount does not know yet that it is gone.
    fs::remove_file(place.share.join("new")).unwrap();
    assert!(fs::rename(&new, &old).is_err());
    assert_eq!(fs::read(&old).unwrap(), b"old");
    drop(file);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(fs::read(place.share.join("old")).unwrap(), b"old");
    assert_eq!(fs::read_dir(&place.share).unwrap().count(), 1);
    mount.unmount();
}

#[test]
fn ftruncate_is_the_right_of_whoever_opened_the_file() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let mount = Mount::new(&place, &server, "mount", "");
    let path = mount.path("file");
    fs::write(&path, b"content").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let nobody = rustix::process::Uid::from_raw(1234);
            // Of this thread alone.
            rustix::thread::set_thread_res_uid(None, Some(nobody), None).unwrap();
            file.set_len(3)
        });
        other.join().unwrap().expect("root's right");
    });
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"con");
    mount.unmount();
}

#[test]
fn in_the_background_mounting_is_tried_again() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let port = server.address.port();
    let at = place.directory.path().join("at");
    fs::create_dir(&at).unwrap();
    server.signal(Signal::KILL);
    server.wait();
    let options = format!("port={port},mountport={port},nolock,bg,retry=1");
    let source = format!("127.0.0.1:{}", utf8(&place.share));
    let begun = steadfast(&["mount", "-o", &options, &source, utf8(&at)]).output().unwrap();
    assert_eq!(begun.status.code(), Some(0), "{begun:?}");
    assert!(common::stderr(&begun).contains("trying again in the background"), "{begun:?}");
    fs::write(place.share.join("file"), b"content").unwrap();
    let _server = serve(&place, port);
    let begun = Instant::now();
    while fs::read(at.join("file")).is_err() {
        assert!(begun.elapsed() < PATIENCE, "not mounted");
        std::thread::sleep(Duration::from_millis(50));
    }
    rustix::mount::unmount(&at, UnmountFlags::empty()).unwrap();
}

#[test]
fn stat_does_not_wait_for_data_without_end() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let mount = Mount::new(&place, &server, "mount", "actimeo=60");
    let path = mount.path("file");
    let file = File::create(&path).unwrap();
    stop(&server);
    let before = std::time::SystemTime::now();
    file.write_all_at(b"content", 0).unwrap();
    let begun = Instant::now();
    // By its descriptor: a name may have to be looked up.
    let told = file.metadata().unwrap();
    assert!(begun.elapsed() < PROMPT, "stat took {:?}", begun.elapsed());
    assert_eq!(told.len(), 7);
    assert!(told.modified().unwrap() >= before, "the time of the write");
    server.signal(Signal::CONT);
    drop(file);
    assert_eq!(fs::read(place.share.join("file")).unwrap(), b"content");
    mount.unmount();
}
