//! Process ring: sizes of shares where groups, subvolumes, the kernel's counts or the state directory change, and
//! sizes of a thousand shares.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;
mod nfs4_support;
mod share_sizes_support;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{stderr, utf8};
use intent_log_support::{create, run, stop};
use serde_json::Value;
use share_sizes_support::*;
use steadfast_client::NfsStat3;

/// A share in use gets a size that cannot be enforced: it is served on, and everybody tells the truth.
#[test]
fn a_size_that_is_not_in_effect_is_not_told_as_if_it_were() {
    let Some(sized) = Sized::new() else { return };
    sized.enable_quotas();
    let plain = sized.disk.share.clone();
    let running = sized.start();
    sized.told(&["group", "create", "all", "--client", "*", "-o", "no_root_squash"]);
    sized.told(&["share", "add", utf8(&plain), "--group", "all"]);
    let (mut client, root) = mount(&running, &plain);
    let file = create(&mut client, &root, "file");

    // The command refuses it, also where the share only inherits it.
    let told = sized.refused(&["group", "set", "all", "--add-option", "size=10M"]);
    assert!(told.contains("directory within a subvolume"), "{told}");
    let group = sized.place.state.join("shares.d/all.toml");
    eventually("the group's file is written", || group.exists());
    let text = std::fs::read_to_string(&group).unwrap();
    let with_size = text.replace("\"no_root_squash\"", "\"no_root_squash\", \"size=10M\"");
    assert_ne!(text, with_size);
    std::fs::write(&group, &with_size).unwrap();
    sized.ask(&["reload"]);
    let shown = sized.show(&plain);
    assert_eq!((&shown["state"], &shown["size_bytes"]), (&"enabled".into(), &Value::Null));
    let fault = shown["size_fault"].as_str().unwrap();
    assert!(fault.contains("its size 10M is not enforced"), "{shown}");
    assert!(fault.contains("directory within a subvolume"), "{shown}");
    let list = sized.told(&["share", "list"]);
    assert!(list.contains("not enforced") && !list.contains("10.0M"), "{list}");
    assert!(sized.status().contains("and its size may not hold"));
    sized.await_size_faults(1);
    assert!(client.fsstat(&root).unwrap().total_bytes > 100 * MIB);
    assert_eq!(fill(&mut client, &file, chunks(12 * MIB)).1, None);
    let filled = sized.told(&["share", "list", "--filled", "90", "--paths"]);
    assert_eq!(filled.trim(), utf8(&plain));

    // A share that is added to a group with a size.
    std::fs::create_dir(sized.disk.at().join("another")).unwrap();
    let another = sized.disk.at().join("another");
    let told = sized.refused(&["share", "add", utf8(&another), "--group", "all"]);
    assert!(told.contains("directory within a subvolume"), "{told}");
    stop(running);
}

/// Shares of one subvolume are resized together, and only together.
#[test]
fn shares_of_one_subvolume_change_together() {
    let Some(sized) = Sized::new() else { return };
    sized.enable_quotas();
    let (one, two) = (sized.subvolume("one"), sized.subvolume("two"));
    let running = sized.start();
    sized.told(&["group", "create", "all", "--client", "*", "-o", "size=20M"]);
    for path in ["/one", "/other"] {
        sized.told(&["share", "add", path, "--directory", utf8(&one), "--group", "all"]);
    }
    assert_eq!(limit(&one), Some(20 * MIB));
    let told = sized.refused(&["share", "set", "/one", "--add-option", "size=30M"]);
    assert!(told.contains("has the size 20M"), "{told}");
    sized.told(&["group", "set", "all", "--add-option", "size=30M"]);
    assert_eq!(limit(&one), Some(30 * MIB));

    // Two sizes of one subvolume in one batch.
    let file = sized.place.directory.path().join("wanted.toml");
    let share = |path: &str, size: &str| {
        format!(
            "[[share]]\npath = {path:?}\ndirectory = {:?}\nclients = [\"*\"]\noptions = [{size:?}]\n",
            utf8(&two)
        )
    };
    let text = |second| {
        format!("[[group]]\nname = \"new\"\n{}{}", share("/a", "size=10M"), share("/b", second))
    };
    std::fs::write(&file, text("size=11M")).unwrap();
    let told = sized.refused(&["apply", utf8(&file)]);
    assert!(told.contains("has the size 10M"), "{told}");
    assert!(sized.ask(&["share", "show", "/a"]).stdout.is_empty(), "nothing was added");
    std::fs::write(&file, text("size=10M")).unwrap();
    sized.told(&["apply", utf8(&file)]);
    assert_eq!(limit(&two), Some(10 * MIB));
    sized.await_size_faults(0);
    stop(running);
}

/// A limit is taken away by the number of its subvolume, whatever is at its path by then.
#[test]
fn limits_go_wherever_their_subvolumes_are() {
    let Some(sized) = Sized::new() else { return };
    sized.enable_quotas();
    let inside = sized.disk.at().join("p");
    std::fs::create_dir(&inside).unwrap();
    let (one, within) = (sized.subvolume("one"), sized.subvolume("p/b"));
    let running = sized.start();
    sized.add(&one, "20M");
    sized.add(&within, "21M");

    // The subvolume is replaced by a snapshot of it, which has a number of its own.
    let old = sized.disk.at().join("old");
    std::fs::rename(&one, &old).unwrap();
    assert!(run(&["btrfs", "subvolume", "snapshot", utf8(&old), utf8(&one)]));
    sized.told(&["reload"]);
    eventually("the old one has no limit", || limit(&old).is_none());
    assert_eq!(limit(&one), Some(20 * MIB));

    // A client with access to what is above it has moved it, and there is something now that hangs whoever
    // opens it.
    let moved = sized.disk.at().join("moved");
    std::fs::rename(&inside, &moved).unwrap();
    std::fs::create_dir(&inside).unwrap();
    assert!(run(&["mkfifo", utf8(&within)]));
    let begun = Instant::now();
    sized.told(&["share", "remove", utf8(&within)]);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert_eq!(limit(&moved.join("b")), None);
    stop(running);
}

/// While the disk is frozen a share is removed at once, and its limit when it thaws.
#[test]
fn a_frozen_disk_holds_up_nobody_who_removes_a_share() {
    let Some(sized) = Sized::new() else { return };
    sized.enable_quotas();
    let one = sized.subvolume("one");
    let running = sized.start();
    sized.add(&one, "20M");
    let frozen = sized.disk.freeze();
    let told = sized.told(&["share", "remove", utf8(&one)]);
    assert!(told.contains("not taken away yet"), "{told}");
    // The lock of the shares is free.
    let begun = Instant::now();
    sized.told(&["share", "list"]);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(limit_now(&one), Some(20 * MIB));
    // Whether it could be added again is told at once: its limit is on its way out.
    let begun = Instant::now();
    let options = "no_root_squash,size=20M";
    let told = sized.refused(&["share", "add", utf8(&one), "--client", "*", "-o", options]);
    assert!(told.contains("is being taken away"), "{told}");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    drop(frozen);
    eventually("it has no limit", || limit_now(&one).is_none());
    stop(running);
}

/// The kernel loses count of what subvolumes have, and does not enforce limits until it has counted anew.
#[test]
fn a_size_that_the_kernel_has_lost_count_for_is_told() {
    let Some(sized) = Sized::new() else { return };
    sized.enable_quotas();
    let one = sized.subvolume("one");
    let running = sized.start();
    sized.add(&one, "20M");
    std::fs::write(one.join("file"), chunk(1)).unwrap();
    assert!(run(&["btrfs", "filesystem", "sync", utf8(&one)]));
    let snapshot = sized.disk.at().join("snapshot");
    assert!(run(&["btrfs", "subvolume", "snapshot", utf8(&one), utf8(&snapshot)]));
    std::fs::write(snapshot.join("more"), chunk(2)).unwrap();
    assert!(run(&["btrfs", "filesystem", "sync", utf8(&one)]));
    let number = run_told(&["btrfs", "inspect-internal", "rootid", utf8(&snapshot)]);
    let group = format!("0/{}", number.trim());
    let at = utf8(sized.disk.at()).to_owned();
    assert!(run(&["btrfs", "qgroup", "create", "1/1", &at]));
    // It says so by its exit status.
    run(&["btrfs", "qgroup", "assign", "--no-rescan", &group, "1/1", &at]);
    // It is asked of the kernel now and then.
    eventually("the fault is seen", || sized.show(&one)["size_fault"].is_string());
    let shown = sized.show(&one);
    let fault = shown["size_fault"].as_str().unwrap();
    assert!(fault.contains("lost count") && fault.contains("btrfs quota rescan"), "{shown}");
    assert_eq!(shown["state"], "enabled");
    sized.await_size_faults(1);
    assert!(sized.status().contains("lost count"));
    assert!(run(&["btrfs", "quota", "rescan", "-w", &at]));
    eventually("its end is seen", || sized.show(&one)["size_fault"].is_null());
    sized.await_size_faults(0);
    stop(running);
}

/// The state directory is lost, or is one of before: limits are taken over.
#[test]
fn limits_are_taken_over_by_a_server_that_does_not_know_of_them() {
    let Some(sized) = Sized::new() else { return };
    sized.enable_quotas();
    let one = sized.subvolume("one");
    let running = sized.start();
    sized.add(&one, "20M");
    sized.await_file_with("size=20M");
    stop(running);
    let ledger = sized.place.state.join("shares.sizes");
    std::fs::remove_file(&ledger).unwrap();
    let running = sized.start();
    eventually("it is served", || sized.show(&one)["size_bytes"] == 20 * MIB);
    sized.resize(&one, "30M");
    assert_eq!(limit(&one), Some(30 * MIB));
    stop(running);

    // Of yesterday, when it had another size.
    std::fs::remove_file(&ledger).unwrap();
    set_limit(&one, "25M");
    let running = sized.start();
    eventually("it is not served", || sized.show(&one)["state"] == "faulty");
    let why = sized.show(&one)["why"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("has a limit of 25M") && why.contains("share accept"), "{why}");
    sized.told(&["share", "accept", utf8(&one)]);
    assert_eq!((limit(&one), &sized.show(&one)["state"]), (Some(30 * MIB), &"enabled".into()));
    sized.told(&["share", "remove", utf8(&one)]);
    assert_eq!(limit(&one), None);
    stop(running);
}

/// A share that could not be served any more goes with its line in the file: so does its limit, and nobody is told of a share
/// that is not there.
#[test]
fn the_limit_of_a_faulty_share_goes_with_its_line() {
    let Some(sized) = Sized::new() else { return };
    sized.enable_quotas();
    let one = sized.subvolume("one");
    let running = sized.start();
    sized.add(&one, "20M");
    let group = sized.await_file_with("size=20M");
    let away = sized.disk.at().join("away");
    stop(running);
    std::fs::rename(&one, &away).unwrap();
    let running = sized.start();
    eventually("it is not served", || sized.show(&one)["state"] == "faulty");
    assert_eq!(limit_now(&away), Some(20 * MIB), "it may come back");
    std::fs::remove_file(&group).unwrap();
    sized.told(&["reload"]);
    eventually("it has no limit", || limit_now(&away).is_none());
    sized.add(&away, "30M");
    assert_eq!(limit(&away), Some(30 * MIB));
    stop(running);
}

/// Somebody else's limit that could not be replaced stays his: it is not taken away later, as if it were the server's.
#[test]
fn a_limit_that_could_not_be_replaced_stays() {
    let Some((sized, one, running)) = Sized::with_another_limit() else { return };
    let at = utf8(sized.disk.at());
    assert!(run(&["mount", "-o", "remount,ro", at]));
    sized.ask(&["share", "accept", utf8(&one)]);
    assert_eq!(sized.show(&one)["state"], "faulty");
    assert!(run(&["mount", "-o", "remount,rw", at]));
    sized.ask(&["reload"]);
    // Longer than the server gathers what it does to limits.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(limit(&one), Some(7 * MIB));
    let ledger = std::fs::read_to_string(sized.place.state.join("shares.sizes")).unwrap();
    assert!(ledger.contains("\nforget "), "{ledger}");
    sized.told(&["share", "accept", utf8(&one)]);
    assert_eq!((limit(&one), &sized.show(&one)["state"]), (Some(20 * MIB), &"enabled".into()));
    stop(running);
}

/// A thousand shares have sizes: each is enforced, told and shown to clients, and changed while they work.
#[test]
fn a_thousand_shares_have_sizes() {
    const SHARES: usize = 1000;
    let Some(sized) = Sized::new() else { return };
    sized.enable_quotas();
    let parent = sized.disk.at().join("all");
    std::fs::create_dir(&parent).unwrap();
    let paths: Vec<_> = (0..SHARES).map(|number| parent.join(format!("s{number}"))).collect();
    let each = "for path; do btrfs subvolume create \"$path\" || exit 1; done";
    let words = ["sh", "-c", each, "sh"].into_iter();
    assert!(run(&words.chain(paths.iter().map(|path| utf8(path))).collect::<Vec<_>>()));
    let running = sized.start();
    let pattern = format!("{}/*", utf8(&parent));
    let words = ["group", "create", "all", "--client", "*", "-o", "no_root_squash,size=3M"];
    sized.told(&[&words[..], &["--pattern", &pattern]].concat());
    let counted = |size: &str| {
        let list = sized.told(&["share", "list", "--group", "all"]);
        list.lines().filter(|line| line.ends_with(size)).count()
    };
    assert_eq!(counted(" of 3.0M"), SHARES);
    sized.await_size_faults(0);
    let limits = || {
        let shown = run_told(&["btrfs", "qgroup", "show", "-r", "--raw", utf8(&parent)]);
        let of = |bytes: u64| shown.matches(&format!(" {bytes} ")).count();
        (of(3 * MIB), of(4 * MIB))
    };
    assert_eq!(limits(), (SHARES, 0));

    let (mut client, root) = mount(&running, &paths[500]);
    assert_eq!(client.fsstat(&root).unwrap().total_bytes, 3 * MIB);
    let file = create(&mut client, &root, "file");
    let (written, why) = fill(&mut client, &file, chunks(8 * MIB));
    assert_eq!(why, Some(NfsStat3::DQuot));
    // Nothing beyond the size: the kernel has room reserved before a write is done.
    let used = used(&paths[500]);
    assert!(written > chunks(2 * MIB) && used <= 3 * MIB, "{written}: {used}");
    let status = sized.status();
    assert!(status.contains(&format!("the share {} has ", utf8(&paths[500]))), "{status}");
    let filled = sized.told(&["share", "list", "--filled", "80", "--paths"]);
    assert_eq!(filled.trim(), utf8(&paths[500]));

    // All at once, to who is at work.
    sized.told(&["group", "set", "all", "--add-option", "size=4M"]);
    assert_eq!((counted(" of 4.0M"), limits()), (SHARES, (0, SHARES)));
    assert_eq!(client.fsstat(&root).unwrap().total_bytes, 4 * MIB);
    let more = create(&mut client, &root, "more");
    let (written, why) = fill(&mut client, &more, chunks(8 * MIB));
    assert!(written > 0 && why == Some(NfsStat3::DQuot), "{written}: {why:?}");

    // A start has them hold before it serves them, and needs to set none of them.
    stop(running);
    let ledger = sized.place.state.join("shares.sizes");
    let before = std::fs::read_to_string(&ledger).unwrap();
    let running = sized.start();
    eventually("all are looked at", || counted(" of 4.0M") == SHARES);
    sized.await_size_faults(0);
    assert_eq!(std::fs::read_to_string(&ledger).unwrap(), before);
    let (mut client, root) = mount(&running, &paths[999]);
    assert_eq!(client.fsstat(&root).unwrap().total_bytes, 4 * MIB);
    sized.told(&["group", "set", "all", "--remove-option", "size=4M"]);
    assert_eq!(limits(), (0, 0));
    stop(running);
}

/// `check-config` looks at the directories of the file, also by way of a symbolic link.
#[test]
fn a_link_to_a_subvolume_is_checked_as_that() {
    let Some(sized) = Sized::new() else { return };
    sized.enable_quotas();
    let one = sized.subvolume("one");
    let link = sized.place.directory.path().canonicalize().unwrap().join("link");
    std::os::unix::fs::symlink(&one, &link).unwrap();
    let file = |path: &Path| {
        let text = format!(
            "[[share]]\npath = {:?}\nclients = [\"*\"]\noptions = [\"size=5M\"]\n",
            utf8(path)
        );
        sized.place.write("other.toml", &text)
    };
    let checked = common::output(&["check-config", utf8(&file(&link))]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    let running = sized.start();
    sized.add(&link, "5M");
    assert_eq!(limit(&one), Some(5 * MIB));
    stop(running);
    let running = sized.start();
    eventually("it is served", || sized.show(&link)["size_bytes"] == 5 * MIB);
    sized.told(&["share", "remove", utf8(&link)]);
    assert_eq!(limit(&one), None);
    stop(running);
}
