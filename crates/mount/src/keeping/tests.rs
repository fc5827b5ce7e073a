//! Unit ring: when records of names leave the journal, on a server that is a fake.

use std::sync::mpsc::sync_channel;

use steadfast_client::{Attributes, FileType, Time};
use steadfast_journal::{Attributes as Settings, JournalId};
use tempfile::TempDir;

use super::*;
use crate::connect::{Connected, Specification};
use crate::options::{CacheTimes, Options};
use crate::recovery::fake::{COMMIT, Fake, SYNC, WRITE, until};
use crate::transport::Link;
use crate::write_back::Wanted;

/// The file system at the fake.
const FILE_SYSTEM: u64 = 1;
const USER: Identity = Identity::None;

fn handle(name: &str) -> FileHandle {
    FileHandle(name.as_bytes().to_vec())
}

fn attributes(file_type: FileType) -> Attributes {
    let time = Time { seconds: 1, nanoseconds: 0 };
    Attributes {
        file_type,
        mode: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        rdev: (0, 0),
        fsid: FILE_SYSTEM,
        fileid: 2,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

struct Scene {
    fake: Fake,
    keeping: Arc<Keeping>,
    _directory: TempDir,
}

impl Scene {
    fn new() -> Self {
        Self::with(Recovery::begin_foreign)
    }

    fn with(recovery: fn(&Server, &FileHandle, JournalId) -> Arc<Recovery>) -> Self {
        Self::sized(recovery, 1 << 20)
    }

    fn sized(
        recovery: fn(&Server, &FileHandle, JournalId) -> Arc<Recovery>,
        ring_bytes: u64,
    ) -> Self {
        let fake = Fake::start([1; 8]);
        let server = Arc::clone(&fake.server);
        let directory = tempfile::tempdir().unwrap();
        let connected = Connected {
            server: Arc::clone(&server),
            root: handle("root"),
            attributes: attributes(FileType::Directory),
            statistics: None,
            read_bytes: 4096,
            write_bytes: 4096,
            listing_bytes: 4096,
            file_bytes_max: 1 << 40,
            name_bytes_max: 255,
        };
        let options = Options {
            journal: Some(directory.path().join("journal")),
            journal_bytes: ring_bytes,
            ..Options::default()
        };
        let what = Specification { server: "server".to_owned(), path: "/share".to_owned() };
        let (journaling, _) = Journaling::open(what, &connected, &options).unwrap().unwrap();
        let recovery = recovery(&server, &connected.root, journaling.id());
        let journaling = Arc::new(journaling);
        let times = CacheTimes::default();
        let (stale, _) = sync_channel(8);
        let nodes = Arc::new(Nodes::new(connected.root, &connected.attributes, times, stale));
        let write_back = WriteBack::start(
            Arc::clone(&server),
            Arc::clone(&nodes),
            times,
            64 << 10,
            1 << 40,
            Some(Arc::clone(&journaling)),
            Some(Arc::clone(&recovery)),
        );
        let keeping = Keeping::new(journaling, recovery, server, write_back.unwrap(), nodes);
        Self { fake, keeping, _directory: directory }
    }

    /// A file is made, and its record is this old.
    fn make(&self, name: &str, age: Duration) {
        self.make_while(name, age, || {});
    }

    fn make_while(&self, name: &str, age: Duration, other: impl FnOnce()) {
        let parent = handle("root");
        let describe: Describe<'_> = &|append| {
            append(Change::Create {
                parent: parent.as_bytes(),
                name: name.as_bytes(),
                verifier: [1; 8],
                attributes: Settings::default(),
            });
        };
        let waiting = (Patience::default(), Instant::now());
        let begun = self.keeping.begin(b"/path", &USER, describe, waiting).unwrap().unwrap();
        other();
        let root = self.keeping.nodes.by_number(ROOT).unwrap();
        let outcome = Outcome { handle: handle(name).0, ..Outcome::default() };
        assert!(self.keeping.answered(&begun, (&root, &USER), outcome).unwrap());
        let mut unstable = self.keeping.unstable.lock();
        let record = unstable.get_mut(&FILE_SYSTEM).unwrap().records.last_mut().unwrap();
        record.at = record.at.checked_sub(age).unwrap();
    }

    fn settle(&self, is_urgent: bool) -> Result<bool, ClientError> {
        self.keeping.settle(is_urgent, (Patience::default(), Instant::now()))
    }

    /// How many records are left.
    fn left(&self) -> usize {
        self.keeping.unstable.lock().values().map(|one| one.records.len()).sum()
    }

    fn committed(&self) -> Vec<FileHandle> {
        let calls = self.fake.take_calls().into_iter();
        calls.filter(|(procedure, _)| *procedure == COMMIT).map(|(_, file)| file).collect()
    }
}

/// A mount of an `async` share of our own server.
fn asynchronous(sync_takes: Duration, ring_bytes: u64) -> Scene {
    let scene = Scene::sized(Recovery::of_own, ring_bytes);
    scene.fake.serve_async(sync_takes);
    let status = RecoveryStatus {
        is_async: true,
        verifier: [1; 8],
        is_recorded: true,
        is_waiting: false,
        is_waited_for: false,
        has_compression: false,
    };
    scene.keeping.recovery.told(status);
    scene
}

impl Scene {
    /// A file of the fake's, which the mount knows.
    fn file(&self, name: &str) -> Arc<Node> {
        let mut known = attributes(FileType::Regular);
        known.fileid = 10 + self.keeping.nodes.count() as u64;
        self.keeping.nodes.enter(&handle(name), &known, Instant::now())
    }

    fn write(&self, file: &Arc<Node>, offset: u64, data: &[u8]) {
        let patience = Patience::default();
        self.keeping.write_back.write(file, &USER, offset, data, patience).unwrap();
    }

    /// The server has all of it in memory.
    fn send(&self, file: &Arc<Node>) {
        self.keeping.write_back.flush(file, Patience::default(), Wanted::Sent).unwrap();
    }

    fn pending(&self) -> u64 {
        self.keeping.journaling.is_empty();
        self.keeping.journaling.load().pending_records
    }
}

#[test]
fn data_leaves_by_a_sync_that_was_sent_after_the_server_had_it() {
    let scene = asynchronous(Duration::from_millis(500), 1 << 20);
    let (early, late) = (scene.file("early"), scene.file("late"));
    scene.write(&early, 0, b"early");
    scene.send(&early);
    thread::scope(|scope| {
        let sync = scope.spawn(|| scene.keeping.write_back.sync_data(Instant::now()));
        until("SYNC is sent", || scene.fake.calls(SYNC) == 1);
        // The server answers these while it flushes; nobody knows whether that covers them.
        scene.write(&late, 0, b"late");
        scene.write(&early, 100, b"more");
        scene.send(&late);
        scene.send(&early);
        sync.join().unwrap().unwrap();
    });
    assert_eq!((scene.pending(), scene.fake.calls(SYNC)), (2, 1));
    assert!(!late.data.is_empty() && !early.data.is_empty());
    scene.keeping.write_back.sync_data(Instant::now()).unwrap();
    assert_eq!((scene.pending(), scene.fake.calls(SYNC)), (0, 2));
    assert!(late.data.is_empty() && early.data.is_empty());
}

#[test]
fn nobody_who_sends_waits_for_the_servers_disk() {
    let scene = asynchronous(Duration::from_secs(20), 128 << 20);
    Keeping::run(&scene.keeping).unwrap();
    let first = scene.file("first");
    scene.write(&first, 0, b"data");
    scene.send(&first);
    scene.keeping.hurry();
    until("SYNC is sent", || scene.fake.calls(SYNC) == 1);
    let since = Instant::now();
    // More files than threads that send, each of which is to be made stable soon, and more data than is kept in memory.
    for number in 0..40 {
        let file = scene.file(&number.to_string());
        for block in 0..8 {
            scene.write(&file, block << 20, &vec![1; 256 << 10]);
        }
        scene.keeping.write_back.press(&file);
        scene.keeping.write_back.make_safe(&file, Patience::default()).unwrap();
    }
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
    assert_eq!((scene.fake.calls(SYNC), scene.fake.calls(COMMIT)), (1, 0));
}

#[test]
fn what_is_closed_is_in_the_ring_and_others_are_not_waited_for() {
    let scene = asynchronous(Duration::ZERO, 1 << 20);
    let (file, other) = (scene.file("file"), scene.file("other"));
    let is_stable = |up_to| scene.keeping.journaling.load().stable >= up_to;
    scene.write(&file, 0, b"data");
    let data = scene.keeping.journaling.last();
    scene.write(&other, 0, b"data");
    let of_other = scene.keeping.journaling.last();
    assert!(!is_stable(data));
    scene.keeping.write_back.make_safe(&file, Patience::default()).unwrap();
    assert!(is_stable(data) && !file.data.is_unsent());
    // Here one flush has taken all that was there.
    scene.write(&other, 4, b"more");
    let more = scene.keeping.journaling.last();
    scene.keeping.write_back.make_safe(&file, Patience::default()).unwrap();
    assert!(is_stable(of_other) && !is_stable(more));
    // Its name may be that one.
    scene.make("name", Duration::ZERO);
    let name = scene.keeping.journaling.last_name();
    assert!(!is_stable(name));
    scene.keeping.write_back.make_safe(&file, Patience::default()).unwrap();
    assert!(is_stable(name));
}

#[test]
fn names_and_data_share_a_sync() {
    let scene = asynchronous(Duration::ZERO, 1 << 20);
    let file = scene.file("file");
    scene.write(&file, 0, b"data");
    scene.send(&file);
    scene.make("name", Duration::ZERO);
    let looked = Instant::now();
    assert!(scene.settle(true).unwrap());
    // Whoever writes on waits for the next one.
    scene.write(&file, 4, b"more");
    scene.send(&file);
    scene.keeping.write_back.sync_data(looked).unwrap();
    assert_eq!((scene.left(), scene.pending(), scene.fake.calls(SYNC)), (0, 1, 1));
    scene.keeping.write_back.sync_data(Instant::now()).unwrap();
    assert_eq!((scene.pending(), scene.fake.calls(SYNC)), (0, 2));
}

#[test]
fn what_is_written_behind_a_record_becomes_a_part_of_it_until_that_is_promised() {
    let scene = asynchronous(Duration::ZERO, 1 << 20);
    let file = scene.file("file");
    for block in 0..50 {
        scene.write(&file, block * 1024, &[1; 1024]);
    }
    // What was known of the file before is noted behind the first one.
    assert_eq!(scene.pending(), 2);
    scene.keeping.write_back.make_safe(&file, Patience::default()).unwrap();
    let begun = scene.fake.calls(WRITE);
    scene.write(&file, 50 * 1024, &[1; 1024]);
    scene.send(&file);
    assert_eq!(scene.pending(), 3);
    assert!(scene.fake.calls(WRITE) > begun);
    scene.keeping.write_back.sync_data(Instant::now()).unwrap();
    assert_eq!(scene.pending(), 0);
}

#[test]
fn what_a_sync_was_to_make_stable_is_committed_when_none_does_that_any_more() {
    for is_unflushable in [true, false] {
        let scene = asynchronous(Duration::ZERO, 1 << 20);
        let file = scene.file("file");
        scene.write(&file, 0, b"data");
        scene.send(&file);
        if is_unflushable {
            scene.fake.says(&handle("root"), NfsStat3::NotSupp);
            assert!(scene.keeping.write_back.sync_data(Instant::now()).is_err());
        } else {
            scene.fake.turns_synchronous();
            scene.keeping.recovery.note_synchronous();
        }
        assert!(!file.data.is_empty() && scene.fake.calls(COMMIT) == 0);
        until("it is committed", || file.data.is_empty());
        assert_eq!((scene.fake.calls(COMMIT), scene.pending()), (1, 0));
    }
}

#[test]
fn another_user_of_a_file_does_not_wait_for_the_servers_disk() {
    let scene = asynchronous(Duration::ZERO, 1 << 20);
    let file = scene.file("file");
    scene.write(&file, 0, b"data");
    let (other, patience) = (Identity::user(1, 1), Patience::default());
    scene.keeping.write_back.write(&file, &other, 4, b"more", patience).unwrap();
    // Sent by the first one, and by the other one.
    scene.send(&file);
    assert_eq!(scene.fake.calls(WRITE), 2);
    assert_eq!((scene.fake.calls(SYNC), scene.fake.calls(COMMIT)), (0, 0));
}

#[test]
fn what_only_waits_for_a_sync_is_not_pressed() {
    let scene = asynchronous(Duration::ZERO, 1 << 20);
    let file = scene.file("file");
    scene.write(&file, 0, b"data");
    assert!(scene.keeping.write_back.press(&file));
    scene.send(&file);
    assert!(!file.data.is_empty() && !scene.keeping.write_back.press(&file));
}

/// Of what the server has acknowledged the ring alone has the bytes.
fn without_bytes() -> Scene {
    let scene = asynchronous(Duration::ZERO, 1 << 20);
    scene.keeping.write_back.keep_at_most(0);
    scene
}

#[test]
fn what_the_ring_alone_has_comes_back_to_a_server_that_has_lost_it() {
    for is_seen in [true, false] {
        let scene = without_bytes();
        let Keeping { recovery, server, journaling, write_back, nodes, .. } = &*scene.keeping;
        let recoverer = crate::recoverer::Recoverer {
            recovery: Arc::clone(recovery),
            server: Arc::clone(server),
            journaling: Arc::clone(journaling),
            write_back: Arc::clone(write_back),
            nodes: Arc::clone(nodes),
        };
        recoverer.start().unwrap();
        server.link.greet_with(Arc::clone(recovery) as _);
        let _ = server.recovery.set(Arc::clone(recovery));
        let file = scene.file("file");
        scene.write(&file, 0, b"data");
        scene.send(&file);
        assert!(write_back.has_bytes_elsewhere());
        if is_seen {
            scene.fake.restart([2; 8]);
        } else {
            scene.fake.tells([2; 8]);
            write_back.sync_data(Instant::now()).unwrap();
        }
        until("it is recovered", || recovery.finished() == 1);
        assert_eq!(scene.fake.content(&handle("file")), b"data");
        assert!(file.data.is_empty() && file.data.errors() == 0);
        assert_eq!((scene.pending(), recovery.verifier()), (0, Some([2; 8])));
        // The reply to a call of before that.
        recovery.told_verifier([1; 8], 0);
        assert!(!recovery.has_lost());
        recovery.close();
    }
}

#[test]
fn a_sync_of_another_server_process_makes_nothing_stable() {
    let scene = without_bytes();
    let file = scene.file("file");
    scene.write(&file, 0, b"data");
    scene.send(&file);
    scene.fake.tells([2; 8]);
    scene.keeping.write_back.sync_data(Instant::now()).unwrap();
    assert!(scene.keeping.recovery.has_lost() && !file.data.is_empty());
    assert_eq!(scene.pending(), 1);
}

#[test]
fn what_the_failed_ring_alone_had_and_no_replay_could_make_fails() {
    let scene = without_bytes();
    let Keeping { journaling, write_back, .. } = &*scene.keeping;
    let (lost, made) = (scene.file("lost"), scene.file("made"));
    let record = journaling.last().next();
    for file in [&lost, &made] {
        scene.write(file, 0, b"data");
        scene.send(file);
    }
    let seen = std::sync::atomic::AtomicU64::new(0);
    journaling.fail(&"its disk is gone");
    write_back.recovered(&HashSet::from([record]));
    assert!(lost.data.is_empty() && made.data.is_empty());
    assert_eq!((lost.data.errors(), made.data.errors()), (1, 0));
    assert_eq!(lost.data.error_since(&seen), Err(crate::errors::Errno::EIO));
    // The next mount may be able to.
    assert_eq!(scene.pending(), 1);
}

#[test]
fn a_share_is_not_synchronous_while_only_the_ring_has_bytes_of_what_is_not_stable() {
    let scene = asynchronous(Duration::from_millis(500), 1 << 20);
    scene.keeping.write_back.keep_at_most(0);
    let file = scene.file("file");
    scene.make("name", Duration::ZERO);
    scene.fake.turns_synchronous();
    thread::scope(|scope| {
        let settled = scope.spawn(|| scene.settle(true));
        until("SYNC is sent", || scene.fake.calls(SYNC) == 1);
        scene.write(&file, 0, b"data");
        scene.send(&file);
        assert!(settled.join().unwrap().unwrap());
    });
    let recovery = &scene.keeping.recovery;
    assert!(scene.keeping.write_back.has_bytes_elsewhere() && recovery.is_async());
    // It restarts while that is found out.
    let known = recovery.note_synchronous();
    recovery.told_verifier([2; 8], 0);
    assert!(!recovery.has_lost());
    recovery.note_asynchronous(known);
    assert!(recovery.has_lost());
}

const OLD: Duration = Duration::from_secs(50);

#[test]
fn old_records_leave_once_the_server_answers() {
    let scene = Scene::new();
    scene.make("a", OLD);
    scene.make("b", Duration::ZERO);
    assert!(scene.settle(false).unwrap());
    assert_eq!(scene.left(), 1);
}

#[test]
fn nothing_ages_while_nobody_knows_whether_the_server_is_another_one() {
    let scene = Scene::new();
    scene.make("a", OLD);
    // The file can be asked about no more.
    scene.fake.says(&handle("a"), NfsStat3::Acces);
    scene.fake.restart([1; 8]);
    until("it is connected again", || scene.fake.times_made() == 2);
    assert!(scene.settle(false).unwrap());
    assert_eq!(scene.left(), 1);
    // A file tells that it is the same.
    scene.make("b", Duration::ZERO);
    assert!(scene.settle(false).unwrap());
    assert_eq!(scene.left(), 1);
}

#[test]
fn records_that_have_to_leave_leave_after_commit_of_what_was_changed_last() {
    let scene = Scene::new();
    for name in ["a", "b", "c"] {
        scene.make(name, Duration::ZERO);
    }
    let losses = scene.fake.server.link.losses();
    scene.keeping.recovery.saw((&handle("b"), &USER), [1; 8], losses);
    scene.committed();
    assert!(scene.settle(true).unwrap());
    assert_eq!((scene.left(), scene.committed()), (0, vec![handle("b")]));
}

/// Others have removed all files that are asked about.
#[test]
fn the_file_of_another_record_is_committed_if_those_that_are_asked_about_are_gone() {
    let scene = Scene::new();
    let names: Vec<_> = (0..30).map(|number| format!("{number}")).collect();
    for name in &names {
        scene.make(name, Duration::ZERO);
    }
    for number in (0..30).filter(|number| *number != 15) {
        scene.fake.says(&handle(&names[number]), NfsStat3::Stale);
    }
    assert!(
        scene
            .keeping
            .recovery
            .commit_newest(&scene.fake.server, Patience::default(), std::iter::empty())
            .is_ok_and(|is_there| !is_there)
    );
    scene.committed();
    assert!(scene.settle(true).unwrap());
    assert_eq!((scene.left(), scene.committed().last()), (0, Some(&handle("15"))));
}

/// The server has lost something while it was asked: the records are those of a journal that was replayed.
#[test]
fn records_stay_if_the_server_dies_while_it_is_asked() {
    let scene = Scene::new();
    scene.make("a", OLD);
    let recovery = Arc::clone(&scene.keeping.recovery);
    let recover = thread::spawn(move || {
        assert!(recovery.await_loss());
        assert!(recovery.finish(None, |_| Fate::NotMade));
    });
    scene.fake.commit_takes(Duration::from_millis(300));
    scene.fake.restart([2; 8]);
    assert!(!scene.settle(false).unwrap());
    recover.join().unwrap();
    assert_eq!(scene.left(), 1);
}

/// What another file has told, perhaps after a crash, says nothing of this one.
#[test]
fn a_record_has_the_verifier_that_its_own_file_has_told() {
    for (status, known) in [(NfsStat3::Acces, None), (NfsStat3::Ok, Some([1; 8]))] {
        let scene = Scene::new();
        scene.fake.says(&handle("a"), status);
        scene.make_while("a", Duration::ZERO, || {
            scene.keeping.recovery.saw((&handle("other"), &USER), [1; 8], 0);
        });
        assert_eq!(scene.keeping.recovery.verifier(), Some([1; 8]));
        assert_eq!(scene.keeping.unstable.lock()[&FILE_SYSTEM].records[0].sent_under, known);
    }
}

#[test]
fn records_leave_at_once_for_whoever_waits_for_room() {
    let scene = Scene::new();
    scene.make("a", Duration::ZERO);
    assert!(!scene.keeping.journaling.is_pressed());
    Keeping::run(&scene.keeping).unwrap();
    let journaling = Arc::clone(&scene.keeping.journaling);
    // More than the ring has.
    let waiting = thread::spawn(move || journaling.wait_for_room(2 << 20, Duration::from_secs(3)));
    until("it has left", || scene.left() == 0);
    waiting.join().unwrap();
}

/// Each look would be a SYNC of the whole file system at the server.
#[test]
fn our_own_server_is_not_asked_again_and_again_while_somebody_waits_for_room() {
    for (scene, is_hurried) in [(Scene::new(), true), (Scene::with(Recovery::of_own), false)] {
        let journaling = Arc::clone(&scene.keeping.journaling);
        // More than the ring has.
        let wait = move || journaling.wait_for_room(2 << 20, Duration::from_secs(1));
        let waiting = thread::spawn(wait);
        until("somebody waits", || scene.keeping.journaling.is_waited_for());
        assert_eq!(scene.keeping.is_waited_for(), is_hurried);
        waiting.join().unwrap();
    }
}

#[test]
fn what_is_too_much_leaves_after_commit_also_while_the_server_may_be_another_one() {
    for is_in_doubt in [false, true] {
        let scene = Scene::new();
        scene.make("a", Duration::ZERO);
        let record = scene.keeping.unstable.lock()[&FILE_SYSTEM].records[0].record;
        let young = || Answered { record, sent_under: None, at: Instant::now(), file: None };
        let more = std::iter::repeat_with(young).take(aging::NAMES_MAX);
        scene.keeping.unstable.lock().get_mut(&FILE_SYSTEM).unwrap().records.extend(more);
        if is_in_doubt {
            scene.fake.says(&handle("a"), NfsStat3::Acces);
            scene.fake.restart([1; 8]);
            until("it is connected again", || scene.fake.times_made() == 2);
        }
        assert_eq!(scene.keeping.recovery.is_in_doubt(), is_in_doubt);
        scene.committed();
        assert!(scene.settle(false).unwrap());
        assert_eq!(scene.left(), aging::NAMES_MAX);
        assert_eq!(scene.committed().first(), Some(&handle("a")));
        // One less is not too much.
        assert!(scene.settle(false).unwrap());
        assert_eq!((scene.left(), scene.committed()), (aging::NAMES_MAX, vec![]));
    }
}

#[test]
fn a_short_file_does_not_wait_until_long_ones_are_sent_if_writes_wait_for_a_window() {
    let scene = asynchronous(Duration::ZERO, 32 << 20);
    let link = &scene.fake.server.link;
    Link::adapt_depth(link).unwrap();
    // Nothing takes off until that ends.
    let alone = link.take_off(64 << 20, false, Patience::default()).unwrap();
    let long: Vec<_> = (0..8).map(|number| scene.file(&format!("long{number}"))).collect();
    for file in &long {
        scene.write(file, 0, &vec![1; 2 << 20]);
    }
    let short = scene.file("short");
    scene.write(&short, 0, b"short");
    until("all threads wait", || link.flow().is_some_and(|flow| flow.waiting == 16));
    assert!(scene.keeping.write_back.press(&short));
    drop(alone);
    scene.send(&short);
    for file in &long {
        scene.send(file);
    }
    let calls = scene.fake.take_calls().into_iter();
    let written: Vec<_> =
        calls.filter(|(procedure, _)| *procedure == WRITE).map(|(_, file)| file).collect();
    let at = written.iter().position(|file| *file == handle("short")).unwrap();
    // Of each long file there are 32 at the least, and at the most 8 threads are to send it.
    assert!(at < written.len() / 2, "{at} of {}", written.len());
}
