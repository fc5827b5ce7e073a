//! Process ring: sizes of shares on a btrfs with quotas: what clients see of them, what they are refused,
//! and what becomes of limits when sizes change and the server is restarted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;
mod nfs4_support;
mod share_sizes_support;

use std::path::Path;

use common::{PATIENCE, output, stderr, utf8};
use intent_log_support::{create, kill, run, stop};
use serde_json::Value;
use share_sizes_support::*;
use steadfast_client::nfs4::Attributes4;
use steadfast_client::{CreateHow3, Identity, Nfs3Client, NfsStat3, Settings, StableHow};

#[test]
fn a_size_is_enforced_shown_to_clients_and_changed_while_they_work() {
    let Some(sized) = Sized::new() else { return };
    sized.enable_quotas();
    let one = sized.subvolume("one");
    let running = sized.start();
    sized.add(&one, "20M");
    assert_eq!(limit(&one), Some(20 * MIB));

    let (mut client, root) = mount(&running, &one);
    let empty = client.fsstat(&root).unwrap();
    assert_eq!(empty.total_bytes, 20 * MIB);
    assert!(empty.available_bytes > 19 * MIB && empty.available_bytes < 20 * MIB, "{empty:?}");
    let mut client4 = nfs4_support::connect(running.address, 2);
    let root4 = client4.lookup_path(utf8(&one).as_bytes()).unwrap();
    let told = client4.attributes(&root4, Attributes4::READABLE).unwrap();
    assert_eq!(told.total_bytes, Some(20 * MIB), "{told:?}");
    assert!(told.available_bytes.is_some_and(|bytes| bytes < 20 * MIB), "{told:?}");

    let file = create(&mut client, &root, "file");
    let (written, why) = fill(&mut client, &file, chunks(24 * MIB));
    assert_eq!(why, Some(NfsStat3::DQuot));
    assert!(written > chunks(18 * MIB) && written <= chunks(21 * MIB), "{written}");
    let full = client.fsstat(&root).unwrap();
    assert!(full.available_bytes < 2 * MIB && full.free_bytes < 2 * MIB, "{full:?}");
    let shown = sized.show(&one);
    assert_eq!(shown["size_bytes"], 20 * MIB);
    assert!(shown["used_bytes"].as_u64().unwrap() > 18 * MIB, "{shown}");
    assert!(sized.told(&["share", "list"]).contains("of 20.0M"));
    let status = sized.status();
    assert!(status.contains(" of 20.0M"), "{status}");

    // More, to who is at work.
    sized.resize(&one, "40M");
    assert_eq!(client.fsstat(&root).unwrap().total_bytes, 40 * MIB);
    assert_eq!(fill(&mut client, &file, chunks(30 * MIB)).1, None);

    // Less than it has: that is told, and nothing can be added, but removed.
    let told = sized.resize(&one, "10M");
    assert!(told.contains("nothing can be added"), "{told}");
    let over = client.fsstat(&root).unwrap();
    assert_eq!((over.total_bytes, over.free_bytes, over.available_bytes), (10 * MIB, 0, 0));
    let shown = sized.show(&one);
    assert_eq!((&shown["state"], &shown["size_fault"]), (&"enabled".into(), &Value::Null));
    assert!(shown["why"].as_str().unwrap().contains("of 10M"), "{shown}");
    let refused = client.write(&file, 40 * MIB, &chunk(0), StableHow::FileSync);
    assert!(refused.as_ref().is_err_and(is_refused), "{refused:?}");
    // It can be raised and taken out all the same, and lowered again.
    sized.resize(&one, "11M");
    assert_eq!(limit(&one), Some(11 * MIB));
    sized.told(&["share", "set", utf8(&one), "--remove-option", "size=11M"]);
    assert_eq!(limit(&one), None);
    sized.resize(&one, "10M");
    assert_eq!(limit(&one), Some(10 * MIB));
    client.remove(&root, b"file").unwrap();
    // The kernel counts with each commit.
    assert!(run(&["btrfs", "filesystem", "sync", utf8(&one)]));
    let again = create(&mut client, &root, "again");
    assert_eq!(fill(&mut client, &again, chunks(4 * MIB)).1, None);

    // Without a size it is as the file system.
    sized.told(&["share", "set", utf8(&one), "--remove-option", "size=10M"]);
    assert_eq!(limit(&one), None);
    assert!(client.fsstat(&root).unwrap().total_bytes > 100 * MIB);
    assert_eq!(fill(&mut client, &again, chunks(50 * MIB)).1, None);
    stop(running);
}

#[test]
fn what_cannot_be_enforced_is_refused_with_the_reason() {
    let Some(sized) = Sized::new() else { return };
    let (one, two) = (sized.subvolume("one"), sized.subvolume("two"));
    let running = sized.start();
    let add = |path: &Path, more: &[&str], size: &str| {
        let option = format!("size={size}");
        let words = ["share", "add", utf8(path), "--client", "*", "-o", &option];
        sized.refused(&[&words, more].concat())
    };
    let told = add(&one, &[], "20M");
    assert!(told.contains("btrfs quota enable"), "{told}");
    assert!(
        sized.refused(&["share", "show", utf8(&one)]).contains("no share"),
        "nothing was added"
    );
    sized.enable_quotas();
    let told = add(&one, &[], "20MB");
    assert!(told.contains("no unit") && told.contains("size=20M"), "{told}");
    let told = add(sized.disk.at(), &[], "20M");
    assert!(told.contains("top-level subvolume"), "{told}");
    let inside = one.join("inside");
    std::fs::create_dir(&inside).unwrap();
    let told = add(&inside, &[], "20M");
    assert!(told.contains("directory within a subvolume"), "{told}");
    let elsewhere = sized.place.directory.path().canonicalize().unwrap().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let told = add(&elsewhere, &[], "20M");
    assert!(told.contains("enforced on btrfs only"), "{told}");

    // A limit of somebody else stays, unless it is the size that is wanted.
    set_limit(&two, "30M");
    let told = add(&two, &[], "20M");
    assert!(told.contains("has a limit of 30M already"), "{told}");
    assert_eq!(limit(&two), Some(30 * MIB));
    sized.add(&two, "30M");
    sized.told(&["share", "remove", utf8(&two)]);
    assert_eq!(limit(&two), None);

    // Two sizes of one subvolume.
    sized.add(&one, "20M");
    let told = add(Path::new("/other"), &["--directory", utf8(&one)], "21M");
    assert!(told.contains("has the size 20M"), "{told}");
    let words = ["share", "add", "/other", "--directory", utf8(&one), "--client", "*"];
    sized.told(&[&words[..], &["-o", "size=20M"]].concat());
    sized.told(&["share", "remove", "/other"]);
    assert_eq!(limit(&one), Some(20 * MIB), "the other one has it yet");

    // Somebody changes the limit, or switches quotas off: that is told, and clients keep what they have.
    let (mut client, root) = mount(&running, &one);
    client.getattr(&root).unwrap();
    set_limit(&one, "25M");
    let unsure = |part: &str| {
        let shown = sized.show(&one);
        assert_eq!((&shown["state"], &shown["size_bytes"]), (&"enabled".into(), &Value::Null));
        assert!(shown["size_fault"].as_str().unwrap().contains(part), "{shown}");
        assert!(sized.told(&["share", "list"]).contains("not enforced"));
        let status = sized.status();
        let line = format!("{} is served, and its size may not hold", utf8(&one));
        assert!(status.contains(&line) && !status.contains("is not served"), "{status}");
        sized.await_size_faults(1);
        let told = sized.ask(&["explain", "10.0.0.1", utf8(&one)]);
        let told = String::from_utf8(told.stdout).unwrap();
        assert!(!told.contains("nobody is served"), "{told}");
    };
    unsure("somebody has set the limit");
    set_limit(&one, "none");
    sized.told(&["reload"]);
    let shown = sized.show(&one);
    assert_eq!((limit(&one), &shown["size_fault"]), (Some(20 * MIB), &Value::Null));
    sized.await_size_faults(0);
    assert!(run(&["btrfs", "quota", "disable", utf8(sized.disk.at())]));
    unsure("quotas of its btrfs were switched off");
    client.getattr(&root).unwrap();
    sized.ask(&["reload"]);
    unsure("btrfs quota enable");
    client.getattr(&root).unwrap();
    stop(running);
    // At the next start it is not served, not even to a client that is there from the first moment on.
    let running = sized.start();
    let address = running.address;
    let path = utf8(&one).as_bytes();
    eventually("the share is looked at", || {
        let mounted = Nfs3Client::mount(address, address, path, Identity::root(), PATIENCE);
        assert!(mounted.is_err(), "served without its size");
        sized.show(&one)["state"] == "faulty" && sized.show(&one)["why"] != Value::Null
    });
    stop(running);

    let text = format!(
        "[[share]]\npath = {:?}\nclients = [\"*\"]\noptions = [\"size=5G\"]\n",
        utf8(&elsewhere)
    );
    let file = sized.place.write("other.toml", &text);
    let checked = output(&["check-config", utf8(&file)]);
    assert!(!checked.status.success());
    let told = stderr(&checked);
    assert!(told.contains("other.toml:2:8: ") && told.contains("enforced on btrfs only"), "{told}");
}

#[test]
fn limits_outlive_the_server_and_those_that_are_not_wanted_go() {
    let Some(sized) = Sized::new() else { return };
    sized.enable_quotas();
    let (one, two) = (sized.subvolume("one"), sized.subvolume("two"));
    let running = sized.start();
    sized.add(&one, "20M");
    sized.add(&two, "21M");
    let file = sized.place.state.join("shares.d/default.toml");
    let text = || std::fs::read_to_string(&file).unwrap_or_default();
    // It follows what is served.
    let begun = std::time::Instant::now();
    while !text().contains("size=21M") {
        assert!(begun.elapsed() < PATIENCE, "{}", text());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    kill(running);
    assert_eq!((limit(&one), limit(&two)), (Some(20 * MIB), Some(21 * MIB)));
    // One changes, one goes while no server runs.
    let text = text();
    let changed = text.replace("size=20M", "size=22M").replace(", \"size=21M\"", "");
    assert_ne!(changed.len(), text.len());
    std::fs::write(&file, changed).unwrap();
    let running = sized.start();
    eventually("it has the new size", || limit(&one) == Some(22 * MIB));
    eventually("its size is gone", || limit(&two).is_none());
    let (mut client, root) = mount(&running, &one);
    assert_eq!(client.fsstat(&root).unwrap().total_bytes, 22 * MIB);
    sized.told(&["share", "remove", utf8(&one)]);
    eventually("it has no limit", || limit(&one).is_none());
    stop(running);
}

/// Eight clients write at once, with and without COMMIT, and make files, until nothing is left of a size.
#[test]
fn many_clients_do_not_get_beyond_a_size() {
    let Some(sized) = Sized::new() else { return };
    sized.enable_quotas();
    let one = sized.subvolume("one");
    let running = sized.start();
    sized.add(&one, "40M");
    let begin = std::sync::Barrier::new(8);
    let full = |number: usize| {
        let (mut client, root) = mount(&running, &one);
        let file = create(&mut client, &root, &format!("file{number}"));
        let stable = [StableHow::FileSync, StableHow::Unstable][number % 2];
        begin.wait();
        let mut written = 0;
        let why = loop {
            match client.write(&file, written, &chunk(written), stable) {
                Ok(done) => written += u64::from(done.count),
                Err(error) => break error,
            }
        };
        assert!(is_refused(&why), "{why:?}");
        let names = (0..100_000).map(|name| format!("{number}-{name}"));
        let mut made = 0;
        for name in names {
            let how = CreateHow3::Guarded(Settings::mode(0o644).0);
            match client.create(&root, name.as_bytes(), &how) {
                Ok(_) => made += 1,
                Err(error) if is_refused(&error) => break,
                Err(error) => panic!("{error}"),
            }
        }
        (written, made)
    };
    let done: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let full = &full;
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || full(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (written, made) = done.iter().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    let used = used(&one);
    println!("{written} bytes and {made} files: {used} bytes of {}", 40 * MIB);
    assert!(written > 30 * MIB && used > 35 * MIB && used <= 40 * MIB, "{written}, {made}: {used}");
    stop(running);
}
