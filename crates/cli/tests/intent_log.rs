//! Process ring: the intent log of the real program, over crashes, failing devices and mistakes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;
mod nlm_support;

use std::time::{Duration, Instant};

use common::{PATIENCE, Place, Running, output, stderr, utf8};
use intent_log_support::{Logged, LoopDevice, create, ext4, kill, run, stop, tmpfs, verifier};
use nlm_support::{GRANTED, Nlm};
use rustix::process::Signal;
use steadfast_client::{Identity, Nfs3Client, NfsStat3, Settings, StableHow};

#[test]
fn what_was_acknowledged_is_there_after_a_crash_and_the_log_is_clean_after_a_stop() {
    let Some(logged) = Logged::new() else { return };
    let running = logged.start();
    let (mut client, root) = logged.mount(&running);
    let file = create(&mut client, &root, "a");
    let written = client.write(&file, 0, &[7; 5000], StableHow::Unstable).unwrap();
    assert_eq!(written.committed, StableHow::FileSync, "small writes are logged");
    client.rename(&root, b"a", &root, b"b").unwrap();
    let first = verifier(&mut client, &file);
    kill(running);

    let running = logged.start();
    assert!(Running::log(&logged.place).contains("replayed the intent log"));
    let (mut client, root) = logged.mount(&running);
    assert_eq!(client.lookup(&root, b"b").unwrap().handle, file);
    assert_eq!(client.read(&file, 0, 9999).unwrap().data, [7; 5000]);
    let second = verifier(&mut client, &file);
    assert_ne!(first, second, "unstable data may have been lost");
    stop(running);

    let running = logged.start();
    let log = Running::log(&logged.place);
    assert!(log.contains("intent log: clean") && !log.contains("replayed"), "{log}");
    let (mut client, _) = logged.mount(&running);
    assert_eq!(verifier(&mut client, &file), second, "nothing was lost");
    stop(running);
}

#[test]
fn more_than_the_log_holds_is_written_without_loss() {
    let Some(logged) = Logged::new() else { return };
    let running = logged.start();
    let (mut client, root) = logged.mount(&running);
    let file = create(&mut client, &root, "a");
    // Three times the log.
    for index in 0..192_u64 {
        let data = vec![index as u8; 256 << 10];
        let offset = (index % 64) * data.len() as u64;
        client.write(&file, offset, &data, StableHow::FileSync).unwrap();
    }
    kill(running);
    let running = logged.start();
    let (mut client, _) = logged.mount(&running);
    for index in 128..192_u64 {
        let offset = (index % 64) * (256 << 10);
        assert_eq!(client.read(&file, offset, 10).unwrap().data, [index as u8; 10]);
    }
    stop(running);
}

#[test]
fn unless_told_otherwise_a_log_is_used_where_changes_can_be_logged_and_there_is_room() {
    let place = Place::new();
    let Some(_disk) = ext4(&place.directory.path().join("image"), &place.share, 64) else { return };
    let file = place.state.join("intent.log");
    let started = |arguments: &[&str]| {
        let running = Running::start(&place, 0, &[&[utf8(&place.share)], arguments].concat());
        stop(running);
        Running::log(&place)
    };
    let none = place.write("none.toml", "");
    let default = ["--config", utf8(&none)];
    let state = tmpfs(&place.state, 100);
    let log = started(&default);
    assert!(log.contains("MiB free, too little"), "{log}");
    assert!(!file.exists());
    // Who says how large it is to be, decides.
    let log = started(&["--intent-log-mib", "16"]);
    assert!(log.contains("the intent log is empty and closed"), "{log}");
    assert_eq!(file.metadata().unwrap().len(), 16 << 20);
    // It is there, so it is used.
    let log = started(&default);
    assert!(log.contains("the intent log is empty and closed"), "{log}");
    let log = started(&["--no-intent-log"]);
    assert!(!log.contains("is empty and closed"), "{log}");

    drop(state);
    let _state = tmpfs(&place.state, 200);
    let log = started(&default);
    assert!(log.contains("the intent log is empty and closed"), "{log}");
    let mib = file.metadata().unwrap().len() >> 20;
    assert!((20..=25).contains(&mib), "{mib}");
}

#[test]
fn where_no_change_can_be_logged_there_is_no_log() {
    let place = Place::new();
    let _share = tmpfs(&place.share, 10);
    let none = place.write("none.toml", "");
    let arguments = [utf8(&place.share), "--config", utf8(&none), "-v"];
    let running = Running::start(&place, 0, &arguments);
    let log = Running::log(&place);
    assert!(log.contains("no share is on a file system whose changes can be logged"), "{log}");
    assert!(!place.state.join("intent.log").exists());
    stop(running);
}

#[test]
fn a_log_that_is_switched_off_is_emptied_first() {
    let Some(mut logged) = Logged::new() else { return };
    let running = logged.start();
    let (mut client, root) = logged.mount(&running);
    let file = create(&mut client, &root, "a");
    kill(running);
    logged.configure("enabled = false\n");
    let running = logged.start();
    let log = Running::log(&logged.place);
    assert!(log.contains("replayed") && log.contains("switched off; it is empty"), "{log}");
    let (mut client, root) = logged.mount(&running);
    assert_eq!(client.lookup(&root, b"a").unwrap().handle, file);
    let first = verifier(&mut client, &file);
    // From here on it is not logged, and must not be undone when the log is on again.
    client.remove(&root, b"a").unwrap();
    kill(running);
    logged.configure("enabled = true\n");
    let running = logged.start();
    let (mut client, root) = logged.mount(&running);
    let gone = client.lookup(&root, b"a").unwrap_err();
    assert_eq!(gone.status(), Some(NfsStat3::NoEnt));
    let other = create(&mut client, &root, "b");
    assert_ne!(verifier(&mut client, &other), first, "what was not stable may be lost");
    stop(running);
}

#[test]
fn a_log_that_this_server_does_not_know_is_refused_until_it_is_adopted_or_discarded() {
    let Some(logged) = Logged::new() else { return };
    let running = logged.start();
    let (mut client, root) = logged.mount(&running);
    create(&mut client, &root, "a");
    create(&mut client, &root, "b");
    kill(running);
    let state = &logged.place.state;
    let known = state.join("intent-log.known");
    std::fs::remove_file(&known).unwrap();
    let configuration = utf8(&logged.configuration);
    let directory = utf8(state);
    let refused = output(&[
        "serve",
        "--config",
        configuration,
        "--state-directory",
        directory,
        "--port",
        "0",
        "--no-rpcbind",
    ]);
    assert!(!refused.status.success());
    let told = stderr(&refused);
    assert!(told.contains("has 2 operations") && told.contains("steadfast log adopt"), "{told}");
    // A wrong number loses nothing.
    let log = |words: &[&str]| {
        let common = ["--config", configuration, "--state-directory", directory];
        output(&[&["log"], words, &common].concat())
    };
    let wrong = log(&["discard", "--yes-lose", "3-operations"]);
    assert!(!wrong.status.success() && stderr(&wrong).contains("2-operations"), "{wrong:?}");
    let adopted = log(&["adopt"]);
    assert!(adopted.status.success(), "{}", stderr(&adopted));
    let running = logged.start();
    assert!(Running::log(&logged.place).contains("replayed"));
    let (mut client, root) = logged.mount(&running);
    create(&mut client, &root, "c");
    let in_use = log(&["discard", "--yes-lose", "1-operations"]);
    assert!(!in_use.status.success() && stderr(&in_use).contains("in use"), "{in_use:?}");
    kill(running);
    std::fs::remove_file(&known).unwrap();
    let discarded = log(&["discard", "--yes-lose", "1-operations"]);
    assert!(discarded.status.success(), "{}", stderr(&discarded));
    let running = logged.start();
    assert!(!Running::log(&logged.place).contains("replayed"));
    stop(running);
}

#[test]
fn a_log_device_that_fails_is_left_and_nothing_is_lost() {
    let Some(mut logged) = Logged::new() else { return };
    // A device that has less room than it says.
    let small = logged.place.directory.path().join("small");
    let _small = tmpfs(&small, 6);
    let image = small.join("image");
    std::fs::File::create(&image).unwrap().set_len(20 << 20).unwrap();
    let Some(device) = LoopDevice::of(&image) else { return };
    logged.configure(&format!("enabled = true\npath = {:?}\n", device.0));
    let running = logged.start();
    let (mut client, root) = logged.mount(&running);
    let file = create(&mut client, &root, "a");
    for index in 0..100_u64 {
        let data = vec![index as u8 + 1; 1 << 17];
        client.write(&file, index << 17, &data, StableHow::FileSync).unwrap();
    }
    let log = Running::log_with(&logged.place, "flushing all");
    assert!(log.contains("cannot be written"), "{log}");
    let status = logged.status();
    assert_eq!(status["phase"], "off");
    assert!(status["why"].as_str().unwrap().contains("cannot be written"), "{status}");
    let refused = logged.refused(&["enable"]);
    assert!(refused.contains("stays off") && refused.contains("not well"), "{refused}");
    let first = verifier(&mut client, &file);
    let later = create(&mut client, &root, "later");
    client.write(&file, 0, b"newer than the log", StableHow::FileSync).unwrap();
    kill(running);
    // Whatever can be read of it, it is not replayed.
    let running = logged.start();
    let (mut client, root) = logged.mount(&running);
    assert_eq!(client.lookup(&root, b"later").unwrap().handle, later);
    assert_eq!(client.read(&file, 0, 18).unwrap().data, b"newer than the log");
    assert_eq!(client.read(&file, 99 << 17, 5).unwrap().data, [100; 5]);
    assert_ne!(verifier(&mut client, &file), first, "what was not stable may be lost");
    kill(running);
}

#[test]
fn a_disk_that_fails_keeps_its_operations_in_the_log_and_stops_no_other() {
    let Some(logged) = Logged::new() else { return };
    let small = logged.place.directory.path().join("small");
    let small = tmpfs(&small, 8);
    let device = small.at.join("device");
    let disk = logged.place.directory.path().join("disk");
    let Some(_disk) = ext4(&device, &disk, 40) else { return };
    let text = std::fs::read_to_string(&logged.configuration).unwrap();
    let share = utf8(&disk);
    let more =
        format!("[[share]]\npath = {share:?}\nclients = [\"*\"]\noptions = [\"no_root_squash\"]\n");
    let text = text.replace("size_mib = 16", "size_mib = 64\ncheckpoint_interval_ms = 200") + &more;
    std::fs::write(&logged.configuration, text).unwrap();
    let running = logged.start();
    let (mut good, good_root) = logged.mount(&running);
    let mount = |running: &Running| {
        let address = running.address;
        Nfs3Client::mount(address, address, share.as_bytes(), Identity::root(), PATIENCE).unwrap()
    };
    let (mut bad, bad_root) = mount(&running);
    let file = create(&mut bad, &bad_root, "a");
    let mut acknowledged = 0;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE && acknowledged < 24 << 4 {
        let data = vec![(acknowledged % 250) as u8 + 1; 1 << 16];
        match bad.write(&file, acknowledged << 16, &data, StableHow::FileSync) {
            Ok(_) => acknowledged += 1,
            Err(error) => {
                // The file system refuses it, or the server, once it knows.
                let status = error.status();
                let refused = [NfsStat3::Jukebox, NfsStat3::RoFs, NfsStat3::Io, NfsStat3::NoSpc];
                assert!(status.is_some_and(|status| refused.contains(&status)), "{error}");
                break;
            }
        }
    }
    // At the next checkpoint it is known, and from then on changes wait.
    let settings = Settings::mode(0o600);
    while bad.setattr(&file, &settings, None).err().and_then(|error| error.status())
        != Some(NfsStat3::Jukebox)
    {
        assert!(begun.elapsed() < PATIENCE, "{}", Running::log(&logged.place));
        std::thread::sleep(Duration::from_millis(20));
    }
    Running::log_with(&logged.place, "cannot be flushed");
    create(&mut good, &good_root, "others go on");
    Running::log_with(&logged.place, "are kept in");
    let asides = || {
        let files = std::fs::read_dir(&logged.place.state).unwrap();
        files
            .filter(|f| f.as_ref().unwrap().path().extension().is_some_and(|e| e == "aside"))
            .count()
    };
    assert_ne!(asides(), 0);
    let refused = logged.refused(&["disable"]);
    assert!(refused.contains("stays on") && refused.contains(share), "{refused}");
    let flushed = logged.log(&["flush"]);
    assert_eq!(flushed.status.code(), Some(1), "{flushed:?}");
    let told = String::from_utf8(flushed.stdout).unwrap();
    assert!(told.contains(&format!("{share}: NOT flushed")), "{told}");
    assert!(told.contains(&format!("{}: flushed", utf8(&logged.place.share))), "{told}");
    let told = logged.told(&["status"]);
    assert!(told.contains("FAULTY") && told.contains(&format!("set aside for {share}")), "{told}");
    create(&mut good, &good_root, "others still go on");
    kill(running);
    // Repaired.
    assert!(run(&["mount", "-o", "remount,size=64m", utf8(&small.at)]));
    assert!(run(&["umount", share]) && run(&["mount", "-o", "loop", utf8(&device), share]));
    let running = logged.start();
    let (mut bad, _) = mount(&running);
    for index in 0..acknowledged {
        assert_eq!(
            bad.read(&file, index << 16, 3).unwrap().data,
            [(index % 250) as u8 + 1; 3],
            "{index}"
        );
    }
    assert_eq!(asides(), 0, "replayed");
    stop(running);
}

#[test]
fn a_share_that_is_taken_out_is_flushed_and_its_file_system_let_go() {
    let Some(logged) = Logged::new() else { return };
    let disk = logged.place.directory.path().join("disk");
    let Some(_disk) = ext4(&logged.place.directory.path().join("other"), &disk, 40) else { return };
    let without = std::fs::read_to_string(&logged.configuration).unwrap();
    // No checkpoint comes by itself.
    let without =
        without.replace("size_mib = 16", "size_mib = 16\ncheckpoint_interval_ms = 3600000");
    let share = utf8(&disk);
    let with = format!(
        "{without}[[share]]\npath = {share:?}\nclients = [\"*\"]\noptions = [\"no_root_squash\"]\n"
    );
    std::fs::write(&logged.configuration, with).unwrap();
    let running = logged.start();
    let address = running.address;
    let mut client =
        Nfs3Client::mount(address, address, share.as_bytes(), Identity::root(), PATIENCE).unwrap();
    let (client, root) = (&mut client.0, client.1.clone());
    let file = create(client, &root, "a");
    client.write(&file, 0, &[7; 5000], StableHow::FileSync).unwrap();
    assert!(!run(&["umount", share]), "it is in use");
    // What a client has locked is held open for local processes to see.
    assert_eq!(Nlm::new(&running).writes(&file), GRANTED);

    std::fs::write(&logged.configuration, without).unwrap();
    running.signal(Signal::HUP);
    Running::log_with(&logged.place, "can be unmounted");
    assert!(run(&["umount", share]), "it was let go");
    kill(running);
    // It was flushed, and the log has nothing of it to look for, nor of any other.
    let running = logged.start();
    let log = Running::log(&logged.place);
    assert!(!log.contains(share), "{log}");
    let image = logged.place.directory.path().join("other");
    assert!(run(&["mount", "-o", "loop", utf8(&image), share]));
    assert_eq!(std::fs::read(disk.join("a")).unwrap(), [7; 5000]);
    stop(running);
}
