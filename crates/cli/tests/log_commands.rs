//! Process ring: `steadfast log` against the real program: switching the log off and on, with a
//! crash in each state, by command and by a device that fails and is well again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{PATIENCE, Place, Running, output, stderr, utf8};
use intent_log_support::{Logged, LoopDevice, create, ext4, kill, run, stop, tmpfs, verifier};
use serde_json::Value;
use steadfast_client::{FileHandle, Identity, Nfs3Client, NfsStat3, StableHow};

fn records_held(status: &Value) -> u64 {
    status["file_systems"][0]["records"].as_u64().unwrap()
}

fn phase_becomes(logged: &Logged, phase: &str) -> Value {
    let begun = Instant::now();
    loop {
        let status = logged.status();
        if status["phase"] == phase {
            return status;
        }
        assert!(begun.elapsed() < PATIENCE, "{status}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_log_tells_what_it_holds_and_is_flushed_by_command() {
    let Some(mut logged) = Logged::new() else { return };
    // No checkpoint by itself.
    logged.configure("enabled = true\nsize_mib = 16\ncheckpoint_interval_ms = 3600000\n");
    let running = logged.start();
    assert!(Running::log(&logged.place).contains("a stable write takes"));
    let (mut client, root) = logged.mount(&running);
    let file = create(&mut client, &root, "a");
    client.write(&file, 0, &[7; 5000], StableHow::FileSync).unwrap();
    let status = logged.status();
    // The two operations, and a time mark after each if one was due.
    assert!((2..=4).contains(&records_held(&status)) && status["phase"] == "on", "{status}");
    assert_eq!(status["file_systems"][0]["path"], utf8(&logged.place.share));
    // A mark need not be stable yet.
    assert!(status["stable"].as_u64() >= status["last"].as_u64().map(|last| last - 1), "{status}");
    assert!(status["used_bytes"].as_u64() > Some(5000) && status["write_p50_ns"] != 0, "{status}");
    let told = logged.told(&["status"]);
    let tells_records = |count| told.contains(&format!("{count} records"));
    assert!(told.contains("intent log: on") && (2..=4).any(tells_records), "{told}");
    let flushed = logged.told(&["flush"]);
    assert_eq!(flushed, format!("{}: flushed\n", utf8(&logged.place.share)));
    let status = logged.status();
    assert_eq!((records_held(&status), &status["checkpoints"]), (0, &1.into()), "{status}");
    let statistics =
        output(&["statistics", "--json", "--state-directory", utf8(&logged.place.state)]);
    let statistics: Value = serde_json::from_slice(&statistics.stdout).unwrap();
    let records = statistics["log"]["records"].as_u64();
    assert!(records.is_some_and(|count| (2..=4).contains(&count)), "{statistics}");
    let statistics = output(&["statistics", "--state-directory", utf8(&logged.place.state)]);
    assert!(String::from_utf8(statistics.stdout).unwrap().contains("intent log: on"));
    let refused = logged.refused(&["verify"]);
    assert!(refused.contains("in use"), "{refused}");
    stop(running);

    // Without a server, the log itself is looked at.
    let told = logged.told(&["status"]);
    assert!(told.contains("no server runs") && told.contains("closed"), "{told}");
    let status = logged.status();
    assert_eq!((&status["phase"], &status["is_clean"]), (&"unused".into(), &true.into()));
    let refused = logged.refused(&["flush"]);
    assert!(refused.contains("no server runs"), "{refused}");
}

#[test]
fn what_was_not_logged_is_not_undone_after_a_crash() {
    let Some(logged) = Logged::new() else { return };
    let running = logged.start();
    let (mut client, root) = logged.mount(&running);
    let file = create(&mut client, &root, "a");
    let told = logged.told(&["disable"]);
    assert!(told.contains("as safe") && told.contains("next start"), "{told}");
    assert_eq!(logged.told(&["disable"]), "unchanged: the intent log is off\n");
    let status = logged.status();
    assert_eq!((&status["phase"], &status["used_bytes"]), (&"off".into(), &0.into()), "{status}");
    client.remove(&root, b"a").unwrap();
    let b = create(&mut client, &root, "b");
    let unstable = client.write(&b, 0, &[1; 10], StableHow::Unstable);
    assert_eq!(unstable.unwrap().committed, StableHow::Unstable, "not logged");
    let first = verifier(&mut client, &b);
    kill(running);

    let running = logged.start();
    assert!(!Running::log(&logged.place).contains("replayed"), "it was closed");
    assert_eq!(logged.status()["phase"], "on", "as configured");
    let (mut client, root) = logged.mount(&running);
    let gone = client.lookup(&root, b"a").unwrap_err();
    assert_eq!(gone.status(), Some(NfsStat3::NoEnt));
    assert_eq!(file_of(&mut client, &root, "b"), b);
    let second = verifier(&mut client, &b);
    assert_ne!(first, second, "unstable data may be lost");
    assert_eq!(
        client.getattr(&file).unwrap_err().status(),
        Some(NfsStat3::Stale),
        "handles do not come back"
    );

    // Off and on again, and a crash.
    logged.told(&["disable"]);
    client.rename(&root, b"b", &root, b"unlogged").unwrap();
    logged.told(&["enable"]);
    assert_eq!(logged.told(&["enable"]), "unchanged: the intent log is on\n");
    let status = logged.status();
    assert_eq!((&status["phase"], records_held(&status)), (&"on".into(), 0), "{status}");
    client.rename(&root, b"unlogged", &root, b"logged").unwrap();
    let stable = client.write(&b, 0, &[2; 100], StableHow::Unstable).unwrap();
    assert_eq!(stable.committed, StableHow::FileSync, "logged");
    kill(running);
    let running = logged.start();
    assert!(Running::log(&logged.place).contains("replayed"));
    let (mut client, root) = logged.mount(&running);
    assert_eq!(file_of(&mut client, &root, "logged"), b);
    assert_eq!(client.read(&b, 0, 999).unwrap().data, [2; 100]);
    for gone in [&b"b"[..], b"unlogged"] {
        let gone = client.lookup(&root, gone).unwrap_err();
        assert_eq!(gone.status(), Some(NfsStat3::NoEnt));
    }

    // Stopped while it is off: nothing is lost, and so the verifier stays.
    let third = verifier(&mut client, &b);
    logged.told(&["disable"]);
    stop(running);
    let running = logged.start();
    let (mut client, _) = logged.mount(&running);
    assert_eq!(verifier(&mut client, &b), third);
    stop(running);
}

fn file_of(client: &mut Nfs3Client, root: &FileHandle, name: &str) -> FileHandle {
    client.lookup(root, name.as_bytes()).unwrap().handle
}

#[test]
fn the_log_is_switched_under_load_and_nothing_is_lost() {
    let Some(logged) = Logged::new() else { return };
    let running = logged.start();
    let is_done = AtomicBool::new(false);
    let acknowledged = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|client| {
                let (logged, running, is_done) = (&logged, &running, &is_done);
                scope.spawn(move || {
                    let (mut nfs, root) = logged.mount(running);
                    let mut count = 0;
                    while !is_done.load(Ordering::SeqCst) {
                        let file = create(&mut nfs, &root, &format!("{client}-{count}-new"));
                        let data = vec![count as u8; 3000];
                        nfs.write(&file, 0, &data, StableHow::FileSync).unwrap();
                        let from = format!("{client}-{count}-new");
                        let to = format!("{client}-{count}");
                        nfs.rename(&root, from.as_bytes(), &root, to.as_bytes()).unwrap();
                        if count % 3 == 2 {
                            let gone = format!("{client}-{}", count - 1);
                            nfs.remove(&root, gone.as_bytes()).unwrap();
                        }
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        for _ in 0..10 {
            logged.told(&["disable"]);
            logged.told(&["enable"]);
        }
        is_done.store(true, Ordering::SeqCst);
        clients.into_iter().map(|client| client.join().unwrap()).collect::<Vec<u32>>()
    });
    kill(running);
    let running = logged.start();
    let (mut client, root) = logged.mount(&running);
    for (number, count) in acknowledged.into_iter().enumerate() {
        assert!(count > 0);
        for file in 0..count {
            let name = format!("{number}-{file}");
            let found = client.lookup(&root, name.as_bytes());
            if file % 3 == 1 && file + 1 < count {
                assert_eq!(found.unwrap_err().status(), Some(NfsStat3::NoEnt), "{name}");
                continue;
            }
            let data = client.read(&found.expect(&name).handle, 0, 9999).unwrap().data;
            assert_eq!(data, vec![file as u8; 3000], "{name}");
        }
    }
    stop(running);
}

#[test]
fn a_log_device_that_is_well_again_is_used_again() {
    let Some(mut logged) = Logged::new() else { return };
    // A device that has less room than it says.
    let small = logged.place.directory.path().join("small");
    let small = tmpfs(&small, 6);
    let image = small.at.join("image");
    std::fs::File::create(&image).unwrap().set_len(20 << 20).unwrap();
    let Some(device) = LoopDevice::of(&image) else { return };
    logged.configure(&format!(
        "enabled = true\npath = {:?}\ndevice_retry_interval_s = 1\n",
        device.0
    ));
    let running = logged.start();
    assert!(Running::log(&logged.place).contains("memory: what is written is lost"));
    let (mut client, root) = logged.mount(&running);
    let file = create(&mut client, &root, "a");
    for index in 0..100_u64 {
        let data = vec![index as u8 + 1; 1 << 17];
        client.write(&file, index << 17, &data, StableHow::FileSync).unwrap();
    }
    phase_becomes(&logged, "off");
    let between = create(&mut client, &root, "between");
    let log = || Running::log(&logged.place);
    let begun = Instant::now();
    while !log().contains("not well") {
        assert!(begun.elapsed() < PATIENCE, "{}", log());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(logged.status()["phase"], "off", "it is tried, and not trusted yet");

    assert!(run(&["mount", "-o", "remount,size=64m", utf8(&small.at)]));
    phase_becomes(&logged, "on");
    let records = logged.status()["records"].as_u64();
    client.rename(&root, b"between", &root, b"after").unwrap();
    let written = client.write(&file, 0, b"newer", StableHow::Unstable).unwrap();
    assert_eq!(written.committed, StableHow::FileSync, "logged again");
    assert!(logged.status()["records"].as_u64() > records);
    kill(running);
    let running = logged.start();
    assert!(Running::log(&logged.place).contains("replayed"));
    let (mut client, root) = logged.mount(&running);
    assert_eq!(file_of(&mut client, &root, "after"), between);
    assert_eq!(client.read(&file, 0, 5).unwrap().data, b"newer");
    for index in 1..100_u64 {
        let data = client.read(&file, index << 17, 5).unwrap().data;
        assert_eq!(data, [index as u8 + 1; 5], "{index}");
    }
    stop(running);
}

#[test]
fn a_server_without_a_log_says_so() {
    let place = Place::new();
    let running = Running::start(&place, 0, &[utf8(&place.share), "--no-intent-log"]);
    let disabled = output(&["log", "disable", "--state-directory", utf8(&place.state)]);
    assert!(disabled.status.success(), "{}", stderr(&disabled));
    assert_eq!(disabled.stdout, b"unchanged: the intent log is off\n");
    for action in ["status", "flush", "enable"] {
        let refused = output(&["log", action, "--state-directory", utf8(&place.state)]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(stderr(&refused).contains("without an intent log"), "{}", stderr(&refused));
    }
    stop(running);
    let refused = output(&["log", "status", "--state-directory", utf8(&place.state)]);
    assert!(stderr(&refused).contains("nor is there an intent log"), "{}", stderr(&refused));
}

/// As the package starts it: without a share, or with none that can be logged.
#[test]
fn the_first_share_that_can_be_logged_has_a_log_made_while_the_server_runs() {
    let place = Place::new();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let memory = tmpfs(&place.share, 4);
    let path = place.directory.path().canonicalize().unwrap().join("disk");
    let Some(_disk) = ext4(&place.directory.path().join("image"), &path, 64) else { return };
    let text = format!(
        "[log]\nsize_mib = 16\n[[share]]\npath = {:?}\nclients = [\"*\"]\n",
        utf8(&memory.at)
    );
    let configuration = place.write("steadfast.toml", &text);
    let start = || Running::start(&place, 0, &["--config", utf8(&configuration), "-v"]);
    let ask = |words: &[&str]| {
        let configuration = ["--config", utf8(&configuration)];
        let state = ["--state-directory", utf8(&place.state)];
        output(&[words, &configuration, &state].concat())
    };
    let status =
        || -> Value { serde_json::from_slice(&ask(&["log", "status", "--json"]).stdout).unwrap() };
    let running = start();
    let file = place.state.join("intent.log");
    assert_eq!(status()["phase"], "off");
    assert!(status()["why"].as_str().unwrap().contains("first such share"), "{}", status());
    let refused = ask(&["log", "enable"]);
    assert!(stderr(&refused).contains("no share is on a file system"), "{}", stderr(&refused));
    assert!(!file.exists(), "16 MiB that nobody needs");
    let add = ["share", "add", utf8(&path), "--client", "*", "-o", "rw,no_root_squash"];
    assert!(ask(&add).status.success());
    let begun = Instant::now();
    while status()["phase"] != "on" {
        assert!(begun.elapsed() < PATIENCE, "{}: {}", status(), Running::log(&place));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Running::log(&place).contains("making the intent log"), "{}", Running::log(&place));
    let mount = |running: &Running| {
        let (address, path) = (running.address, utf8(&path).as_bytes());
        Nfs3Client::mount(address, address, path, Identity::root(), PATIENCE).unwrap()
    };
    let (mut client, root) = mount(&running);
    let made = create(&mut client, &root, "a");
    let written = client.write(&made, 0, b"logged", StableHow::Unstable).unwrap();
    assert_eq!(written.committed, StableHow::FileSync, "only the log makes that stable at once");
    assert!(status()["records"].as_u64() >= Some(2), "{}", status());
    kill(running);
    let running = start();
    assert!(Running::log(&place).contains("replayed"), "{}", Running::log(&place));
    let (mut client, root) = mount(&running);
    assert_eq!(file_of(&mut client, &root, "a"), made);
    assert_eq!(client.read(&made, 0, 9).unwrap().data, b"logged");
    stop(running);
}

#[test]
fn a_device_is_probed_and_what_it_has_is_spared() {
    let place = Place::new();
    std::fs::create_dir(&place.share).unwrap();
    let probed = output(&["log", "probe", utf8(&place.share), "--json"]);
    let probed: Value = serde_json::from_slice(&probed.stdout).unwrap();
    assert_eq!(probed["sizes"].as_array().map(Vec::len), Some(4), "{probed}");
    assert!(probed["sizes"][1]["stable_p50_ns"].as_u64() > Some(0), "{probed}");
    assert_eq!(std::fs::read_dir(&place.share).unwrap().count(), 0);
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let memory = tmpfs(&place.directory.path().join("memory"), 40);
    let image = memory.at.join("image");
    std::fs::write(&image, vec![0x55; 32 << 20]).unwrap();
    let Some(device) = LoopDevice::of(&image) else { return };
    let refused = output(&["log", "probe", &device.0]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("no intent log"), "{}", stderr(&refused));
    assert!(std::fs::read(&image).unwrap().iter().all(|byte| *byte == 0x55));
    let told = output(&["log", "probe", &device.0, "--overwrite"]);
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains("memory: what is written is lost"), "{told}");
}
