//! Unit tests of switching: what waits for what, over a log in a file and file systems that only
//! note that they were flushed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use steadfast_intent_log::Batch;
use steadfast_recovery::{ChangeLog, FileSystemIdentity};
use steadfast_vfs::{FileSystemSync, FsError};

use crate::{
    IntentLogKeeper, IntentLogOptions, Left, LogHandle, OpenStorage, Phase, StartIntentLog,
    StartedIntentLog, SwitchError,
};

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Disk {
    syncs: AtomicUsize,
    fails: AtomicBool,
    /// As the kernel tells of what it could not write: to who asks first.
    fails_once: AtomicBool,
    takes_nothing: AtomicBool,
}

impl FileSystemSync for Disk {
    fn sync(&self) -> Result<(), FsError> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        let fails = self.fails_once.swap(false, Ordering::SeqCst);
        if fails || self.fails.load(Ordering::SeqCst) { Err(FsError::Io) } else { Ok(()) }
    }

    fn try_writing(&self) -> Result<(), FsError> {
        if self.takes_nothing.load(Ordering::SeqCst) { Err(FsError::ReadOnly) } else { Ok(()) }
    }
}

pub(crate) fn start(place: &std::path::Path) -> StartedIntentLog {
    start_with(place, Box::new(|_| Ok(None)))
}

pub(crate) fn start_with(
    place: &std::path::Path,
    open_storage: Box<OpenStorage>,
) -> StartedIntentLog {
    parts(place, open_storage).start().expect("started")
}

pub(crate) fn parts(place: &std::path::Path, open_storage: Box<OpenStorage>) -> StartIntentLog {
    StartIntentLog {
        path: place.join("intent.log"),
        file_bytes: 16 << 20,
        state_directory: place.to_owned(),
        host: [1; 16],
        new_uuid: [2; 16],
        new_write_verifier: 3,
        untold_write_verifier: 4,
        handle_key: [6; 16],
        options: IntentLogOptions {
            device_retry_interval: Duration::ZERO,
            ..IntentLogOptions::default()
        },
        open_storage,
        look_around: Box::new(Vec::new),
    }
}

pub(crate) fn join(
    keeper: &Arc<IntentLogKeeper>,
) -> (LogHandle, Arc<Disk>, steadfast_recovery::LoggedFileSystem) {
    let (log, disk) = (LogHandle::new(keeper), Arc::new(Disk::default()));
    let identity = FileSystemIdentity { uuid: [5; 16], kind: 6 };
    let sync = Arc::clone(&disk) as Arc<dyn FileSystemSync>;
    let file_system = log.register(&identity, b"/srv", 1, sync).expect("served").expect("logged");
    (log, disk, file_system)
}

/// Writes all complete records, as a committer does.
pub(crate) fn write_all(keeper: &IntentLogKeeper) {
    let mut batch = Batch::default();
    assert!(keeper.log.take_batch(&mut batch));
    batch.write_to(&*keeper.medium).expect("written");
    keeper.log.written(&batch);
}

fn wait_for(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < PATIENCE, "it never happens");
        std::thread::yield_now();
    }
}

#[test]
fn a_change_that_is_half_done_is_waited_for_and_flushed_before_the_log_is_on() {
    let place = tempfile::tempdir().expect("a directory");
    let keeper = start(place.path()).keeper;
    let (log, disk, file_system) = join(&keeper);
    let epoch = keeper.status().epoch;
    keeper.disable().expect("off");
    assert_eq!((keeper.phase(), keeper.status().left), (Phase::Off, Some(Left::ByAdministrator)));
    let half_done = log.admit(file_system, 100).expect("admitted").expect("a pass");
    assert!(!half_done.is_logged());
    std::thread::scope(|scope| {
        let enabling = scope.spawn(|| keeper.enable());
        wait_for(|| keeper.phase() == Phase::Closing);
        // Others wait at the gate meanwhile.
        let waiting = scope.spawn(|| {
            let admitted = log.admit(file_system, 100).expect("admitted").expect("a place");
            (admitted.is_logged(), keeper.phase())
        });
        assert!(!enabling.is_finished() && !waiting.is_finished());
        let before = disk.syncs.load(Ordering::SeqCst);
        drop(half_done);
        enabling.join().expect("no panic").expect("on");
        assert!(disk.syncs.load(Ordering::SeqCst) > before, "flushed after it was done");
        assert_eq!(waiting.join().expect("no panic"), (true, Phase::On));
    });
    assert_eq!(keeper.status().epoch, epoch + 1);
    assert_eq!(keeper.enable(), Err(SwitchError::IsOn));
    assert!(keeper.close(7));
    // What the state directory says of the epochs before does not concern this one.
    drop((log, keeper));
    assert_eq!(start(place.path()).write_verifier, 7, "it was closed, and is known");
}

#[test]
fn the_log_stays_off_when_what_was_not_logged_cannot_be_flushed() {
    let place = tempfile::tempdir().expect("a directory");
    let keeper = start(place.path()).keeper;
    let (_, disk, _) = join(&keeper);
    keeper.disable().expect("off");
    disk.fails.store(true, Ordering::SeqCst);
    assert!(matches!(keeper.enable(), Err(SwitchError::NotFlushed(_))));
    assert_eq!(keeper.phase(), Phase::Off);
    // The kernel tells of lost data once.
    disk.fails.store(false, Ordering::SeqCst);
    assert!(matches!(keeper.enable(), Err(SwitchError::NotFlushed(_))));
}

/// Nothing of it is in the log, so that no checkpoint flushes it.
#[test]
fn a_failure_that_is_told_once_keeps_the_log_from_being_closed() {
    for is_stopped in [true, false] {
        let place = tempfile::tempdir().expect("a directory");
        let keeper = start(place.path()).keeper;
        let (_, disk, _) = join(&keeper);
        keeper.flush();
        disk.fails_once.store(true, Ordering::SeqCst);
        if is_stopped {
            assert!(!keeper.close(7), "what may be lost is not told to be stable");
        } else {
            let refused = keeper.disable().expect_err("refused");
            assert!(matches!(refused, SwitchError::Faulty { .. }), "{refused}");
        }
    }
}

#[test]
fn the_log_stays_on_when_a_file_system_cannot_be_flushed() {
    let place = tempfile::tempdir().expect("a directory");
    let keeper = start(place.path()).keeper;
    let (log, disk, file_system) = join(&keeper);
    disk.fails.store(true, Ordering::SeqCst);
    let flushed = keeper.flush();
    assert_eq!(flushed.faulty.len(), 1);
    let refused = keeper.disable().expect_err("refused");
    assert!(matches!(&refused, SwitchError::Faulty { path, .. } if path == "/srv"), "{refused}");
    assert_eq!(keeper.phase(), Phase::On);
    assert_eq!(log.admit(file_system, 10).err(), Some(FsError::TryLater), "changes wait");
    assert!(log.fault(file_system).is_some());
    let [since] = keeper.faulty_to_try()[..] else { panic!("{:?}", keeper.faulty()) };
    // It is well when it can be flushed, and takes something new.
    assert!(!keeper.is_well_again(since));
    disk.fails.store(false, Ordering::SeqCst);
    disk.takes_nothing.store(true, Ordering::SeqCst);
    assert!(!keeper.is_well_again(since));
    disk.takes_nothing.store(false, Ordering::SeqCst);
    assert!(keeper.is_well_again(since));
    // Until it is let go its changes wait, and nobody else may use it: what it has lost is not
    // there yet.
    assert_eq!(log.admit(file_system, 10).err(), Some(FsError::TryLater));
    let identity = FileSystemIdentity { uuid: [5; 16], kind: 6 };
    assert_eq!(log.prepare(&identity, b"/srv"), Err(FsError::TryLater));
    let sync = Arc::clone(&disk) as Arc<dyn FileSystemSync>;
    assert_eq!(log.register(&identity, b"/srv", 2, sync).err(), Some(FsError::TryLater));
    assert!(keeper.is_still_faulty(since));
    log.leave(file_system, 1);
    keeper.let_file_systems_go();
    assert!(!keeper.is_still_faulty(since) && keeper.faulty().is_empty());
    assert_eq!(log.prepare(&identity, b"/srv"), Ok(true), "files may tell of what is past");
}

#[test]
fn a_medium_that_is_not_ours_any_more_is_not_used() {
    let place = tempfile::tempdir().expect("a directory");
    let keeper = start(place.path()).keeper;
    join(&keeper);
    keeper.disable().expect("off");
    let path = place.path().join("intent.log");
    let bytes = std::fs::read(&path).expect("read");
    // Somebody's file system, say.
    std::fs::write(&path, vec![0x55; bytes.len()]).expect("written");
    let refused = keeper.enable().expect_err("refused").to_string();
    assert!(refused.contains("not well") && refused.contains("superblocks"), "{refused}");
    assert!(std::fs::read(&path).expect("read").iter().all(|byte| *byte == 0x55), "spared");
    // Gone, and back under its name.
    std::fs::remove_file(&path).expect("removed");
    std::fs::write(&path, &bytes).expect("written");
    keeper.enable().expect("on");
    assert!(std::fs::read(&path).expect("read") != bytes, "the one that is there now is used");
    assert!(keeper.close(7));
}
