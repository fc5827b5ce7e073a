//! Process ring: what becomes of limits for sizes of shares when the power fails, or a replay is cut short.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;
mod nfs4_support;
mod share_sizes_support;

use common::utf8;
use intent_log_support::{create, kill, run, stop};
use share_sizes_support::*;
use steadfast_client::NfsStat3;

/// The limit comes back from the crash as it was before it was raised twice, and replay has to write what was
/// acknowledged under the highest one.
#[test]
fn replay_of_a_full_share_loses_nothing() {
    until_the_disk_lags(replay_of_a_full_share);
}

fn replay_of_a_full_share(sized: &Sized) -> Result<(), CommittedByOthers> {
    sized.enable_quotas();
    let one = sized.subvolume("one");
    let running = sized.start();
    sized.add(&one, "5M");
    let (mut client, root) = mount(&running, &one);
    let file = create(&mut client, &root, "file");
    sized.disk.await_mark();
    assert!(run(&["btrfs", "filesystem", "sync", utf8(&one)]));
    sized.hold_settling();
    sized.resize(&one, "10M");
    sized.resize(&one, "20M");
    // Nearer to its limit the kernel would commit to find room, and have the disk know of the last limit.
    let (written, why) = fill(&mut client, &file, chunks(14 * MIB));
    assert_eq!(why, None);
    kill(running);
    sized.lose_power();
    has_lagged(&[(&one, 5 * MIB)])?;
    let running = sized.start();
    let (mut client, root) = mount(&running, &one);
    let file = client.lookup(&root, b"file").unwrap().handle;
    has_chunks(&mut client, &file, written);
    // And the size holds again.
    eventually("the size is in effect", || limit(&one) == Some(20 * MIB));
    assert_eq!(fill(&mut client, &file, chunks(24 * MIB)).1, Some(NfsStat3::DQuot));
    stop(running);
    Ok(())
}

/// The limit of a size that was taken out comes back from the crash: it is still known for the server's own.
fn a_limit_that_was_taken_away_comes_back(
    sized: &Sized,
    has_log: bool,
) -> Result<(), CommittedByOthers> {
    sized.enable_quotas();
    if !has_log {
        sized.without_log();
    }
    let (one, two) = (sized.subvolume("one"), sized.subvolume("two"));
    let running = sized.start();
    sized.add(&one, "5M");
    sized.add(&two, "6M");
    let (mut client, root) = mount(&running, &one);
    let file = create(&mut client, &root, "file");
    sized.disk.await_mark();
    assert!(run(&["btrfs", "filesystem", "sync", utf8(&one)]));
    sized.hold_settling();
    sized.told(&["share", "set", utf8(&one), "--remove-option", "size=5M"]);
    sized.told(&["share", "remove", utf8(&two)]);
    assert_eq!((limit_now(&one), limit_now(&two)), (None, None));
    let written = if has_log { fill(&mut client, &file, chunks(8 * MIB)).0 } else { 0 };
    kill(running);
    sized.lose_power();
    has_lagged(&[(&one, 5 * MIB), (&two, 6 * MIB)])?;
    let running = sized.start();
    let (mut client, root) = mount(&running, &one);
    eventually("it has no limit", || limit_now(&one).is_none());
    eventually("the other one has no limit", || limit_now(&two).is_none());
    let file = client.lookup(&root, b"file").unwrap().handle;
    has_chunks(&mut client, &file, written);
    assert_eq!(fill(&mut client, &file, chunks(12 * MIB)).1, None);
    // Once the disk knows that there is none, it is forgotten.
    let ledger = sized.place.state.join("shares.sizes");
    eventually("they are forgotten", || {
        let told = std::fs::read_to_string(&ledger).unwrap();
        told.matches("\nforget ").count() == 2
    });
    stop(running);
    Ok(())
}

#[test]
fn a_limit_that_was_taken_away_comes_back_and_is_lifted_for_replay() {
    until_the_disk_lags(|sized| a_limit_that_was_taken_away_comes_back(sized, true));
}

#[test]
fn a_limit_that_was_taken_away_comes_back_without_a_log() {
    until_the_disk_lags(|sized| a_limit_that_was_taken_away_comes_back(sized, false));
}

/// Somebody else's limit that was replaced comes back after a power cut: the share is served all the same, with its size.
#[test]
fn a_limit_that_was_replaced_comes_back() {
    let Some((sized, one, running)) = Sized::with_another_limit() else { return };
    sized.hold_settling();
    sized.told(&["share", "accept", utf8(&one)]);
    assert_eq!(limit_now(&one), Some(20 * MIB));
    kill(running);
    std::fs::remove_file(sized.note_of_lifted()).unwrap();
    // As the disk has it if the power fails before the next commit.
    set_limit(&one, "7M");
    let running = sized.start();
    eventually("the size is in effect", || limit_now(&one) == Some(20 * MIB));
    eventually("it is served", || sized.show(&one)["state"] == "enabled");
    stop(running);
}

/// A limit that is not the server's own is in the way of replay, too, and is what it was afterwards.
#[test]
fn an_administrators_limit_is_lifted_for_replay_and_set_again() {
    until_the_disk_lags(an_administrators_limit_is_lifted);
}

fn an_administrators_limit_is_lifted(sized: &Sized) -> Result<(), CommittedByOthers> {
    sized.enable_quotas();
    let one = sized.subvolume("one");
    let running = sized.start();
    sized.told(&["share", "add", utf8(&one), "--client", "*", "-o", "no_root_squash"]);
    let (mut client, root) = mount(&running, &one);
    let file = create(&mut client, &root, "file");
    set_limit(&one, "5M");
    sized.disk.await_mark();
    assert!(run(&["btrfs", "filesystem", "sync", utf8(&one)]));
    set_limit(&one, "20M");
    let (written, why) = fill(&mut client, &file, chunks(12 * MIB));
    assert_eq!(why, None);
    kill(running);
    sized.lose_power();
    has_lagged(&[(&one, 5 * MIB)])?;
    let running = sized.start();
    assert_eq!(limit(&one), Some(5 * MIB));
    let (mut client, root) = mount(&running, &one);
    let file = client.lookup(&root, b"file").unwrap().handle;
    has_chunks(&mut client, &file, written);
    assert_eq!(fill(&mut client, &file, 1).1, Some(NfsStat3::DQuot));
    stop(running);
    Ok(())
}

/// A replay that was killed has left a limit lifted, with a note of it.
#[test]
fn what_a_replay_that_was_cut_short_has_lifted_is_set_again() {
    let Some(sized) = Sized::new() else { return };
    sized.enable_quotas();
    let one = sized.subvolume("one");
    let number = run_told(&["btrfs", "inspect-internal", "rootid", utf8(&one)]);
    let note = sized.note_of_lifted();
    stop(sized.start());
    std::fs::write(&note, format!("{} {}\n", number.trim(), 7 * MIB)).unwrap();
    let running = sized.start();
    assert_eq!((limit(&one), note.exists()), (Some(7 * MIB), false));
    stop(running);
    // What somebody has set meanwhile stays.
    set_limit(&one, "8M");
    std::fs::write(&note, format!("{} {}\n", number.trim(), 7 * MIB)).unwrap();
    let running = sized.start();
    assert_eq!((limit(&one), note.exists()), (Some(8 * MIB), false));
    stop(running);
}
