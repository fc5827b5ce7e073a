//! Unit ring: what a mount finds out of a foreign server, over TCP.

use std::time::Duration;

use super::fake::{COMMIT, Fake, GETATTR, until};
use super::*;

const JOURNAL: JournalId = [7; 16];
const USER: Identity = Identity::None;

fn handle(name: &str) -> FileHandle {
    FileHandle(name.as_bytes().to_vec())
}

/// A mount that has written to these files, so that the server has told its verifier.
fn mounted(fake: &Fake, files: &[&str]) -> Arc<Recovery> {
    let recovery = Recovery::begin_foreign(&fake.server, &handle("root"), JOURNAL);
    for file in files {
        recovery.saw((&handle(file), &USER), [1; 8], 0);
    }
    recovery
}

fn asked_for_root(fake: &Fake) -> usize {
    fake.take_calls().iter().filter(|call| **call == (GETATTR, handle("root"))).count()
}

/// It answers before its disk is mounted: all handles are unknown, and nothing is lost.
#[test]
fn a_server_that_does_not_know_the_root_is_not_back_yet() {
    for (says_of_files, verifier) in [(NfsStat3::Stale, [1; 8]), (NfsStat3::Acces, [2; 8])] {
        let fake = Fake::start([1; 8]);
        let recovery = mounted(&fake, &["a", "b"]);
        for (name, status) in
            [("root", NfsStat3::Stale), ("a", says_of_files), ("b", says_of_files)]
        {
            fake.says(&handle(name), status);
        }
        fake.restart(verifier);
        let seen = std::cell::Cell::new(0);
        until("it is asked again and again", || {
            seen.set(seen.get() + asked_for_root(&fake));
            seen.get() >= 3
        });
        assert!(!recovery.has_lost() && !fake.is_up() && fake.times_made() == 1);
        // Its disk is mounted now.
        for name in ["root", "a", "b"] {
            fake.says(&handle(name), NfsStat3::Ok);
        }
        until("it is used", || fake.times_made() == 2);
        assert_eq!(recovery.has_lost(), verifier != [1; 8]);
    }
}

#[test]
fn a_server_that_knows_the_root_and_no_file_has_lost_them() {
    let fake = Fake::start([1; 8]);
    let recovery = mounted(&fake, &["a", "b"]);
    fake.says(&handle("a"), NfsStat3::Stale);
    fake.says(&handle("b"), NfsStat3::BadHandle);
    fake.restart([1; 8]);
    until("it has lost them", || recovery.has_lost());
    let call = |nfs: &mut Calls| nfs.getattr(&handle("root"));
    let called = fake.server.call_once(&USER, Patience::default(), call);
    assert!(called.is_err_and(|error| is_lost(&error)), "calls of others are held");
    until("the connection is there", || fake.times_made() == 2);
    fake.take_calls();
    // Its disk goes away while it is recovered.
    fake.says(&handle("root"), NfsStat3::Stale);
    assert!(recovery.ask_anew(&fake.server).is_err());
    assert!(asked_for_root(&fake) == 1 && recovery.state.lock().witnesses.all().len() == 2);
    fake.says(&handle("root"), NfsStat3::Ok);
    assert!(recovery.ask_anew(&fake.server).is_ok());
    assert_eq!(recovery.verifier(), None, "the first file that is made again tells it");
    assert!(recovery.state.lock().witnesses.all().is_empty());
    assert!(recovery.finish(Some([2; 8]), |_| Fate::NotMade));
    assert!(fake.server.call_once(&USER, Patience::default(), call).is_ok());
}

#[test]
fn a_file_that_is_there_tells_that_nothing_is_lost() {
    let fake = Fake::start([1; 8]);
    let recovery = mounted(&fake, &["a", "b"]);
    fake.says(&handle("b"), NfsStat3::Stale);
    fake.restart([1; 8]);
    until("it is used", || fake.times_made() == 2);
    assert!(!recovery.has_lost() && asked_for_root(&fake) == 0);
    fake.restart([2; 8]);
    until("it has lost something", || recovery.has_lost());
    assert!(recovery.ask_anew(&fake.server).is_ok());
    assert_eq!(recovery.verifier(), Some([2; 8]));
}

/// COMMIT has to wait for its disk.
#[test]
fn a_server_that_is_slow_to_commit_is_waited_for() {
    let fake = Fake::start([1; 8]);
    let recovery = mounted(&fake, &["a"]);
    fake.commit_takes(Duration::from_secs(6));
    fake.restart([2; 8]);
    until("it has lost something", || recovery.has_lost());
    assert_eq!(fake.take_calls(), [(COMMIT, handle("a"))], "it is asked once");
}

/// A file that is being recalled from a tape, say.
#[test]
fn a_file_of_which_the_server_says_later_for_ever_is_passed_over() {
    let fake = Fake::start([1; 8]);
    let recovery = mounted(&fake, &["a", "b"]);
    fake.says(&handle("b"), NfsStat3::Jukebox);
    fake.restart([1; 8]);
    until("it is used", || fake.times_made() == 2);
    let soon = || Patience { pid: 0, until: Some(Instant::now() + Duration::from_secs(5)) };
    assert!(recovery.commit_newest(&fake.server, soon(), std::iter::empty()).unwrap());
    // The answer about `a` does not make it the one that was changed last.
    let files = recovery.state.lock().witnesses.all().into_iter().map(|one| one.file);
    assert_eq!(files.collect::<Vec<_>>(), [handle("b"), handle("a")]);
    // It is asked again while no other one tells anything.
    fake.says(&handle("a"), NfsStat3::Stale);
    fake.take_calls();
    let soon = Patience { until: Some(Instant::now() + Duration::from_secs(1)), ..soon() };
    assert!(recovery.commit_newest(&fake.server, soon, std::iter::empty()).is_err());
    assert!(fake.take_calls().iter().filter(|(_, file)| *file == handle("b")).count() > 1);
    fake.says(&handle("a"), NfsStat3::Ok);
    fake.restart([2; 8]);
    until("it has lost something", || recovery.has_lost());
    assert!(recovery.ask_anew(&fake.server).is_ok());
    assert_eq!(recovery.verifier(), Some([2; 8]));
}

#[test]
fn only_a_server_that_is_asked_by_commit_has_time_to_write_to_its_disk() {
    let fake = Fake::start([1; 8]);
    let root = handle("root");
    let foreign = Recovery::begin_foreign(&fake.server, &root, JOURNAL);
    let own = Recovery::of_own(&fake.server, &root, JOURNAL);
    let seconds = Duration::from_secs;
    assert_eq!(
        (foreign.patience(seconds(60)), own.patience(seconds(60))),
        (seconds(60), seconds(5))
    );
    assert_eq!((foreign.patience(seconds(1)), own.patience(seconds(1))), (seconds(5), seconds(5)));
}
