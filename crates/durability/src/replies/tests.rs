use super::*;

const MIB: u64 = 1 << 20;

/// What stands behind a change: a call of this number, and its reply.
fn behind(call: u64, reply: &[u8]) -> Vec<u8> {
    let mut behind = vec![1];
    behind.extend_from_slice(&call.to_be_bytes());
    behind.resize(41, 0);
    behind.extend_from_slice(reply);
    behind
}

fn gather(store: &ReplyStore, all: &[Vec<u8>]) {
    store.gather(all.iter().map(Vec::as_slice));
}

fn read(place: &Path) -> Vec<Vec<u8>> {
    ReplyStore::open(place, MIB).unwrap().replies.into_newest()
}

#[test]
fn what_was_flushed_is_read_however_often_the_store_is_opened() {
    let place = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for round in 0..5 {
        let opened = ReplyStore::open(place.path(), MIB).unwrap();
        let (store, replies) = (opened.store, opened.replies.into_newest());
        assert_eq!(replies, all);
        let more: Vec<_> = (0..20).map(|call| behind(round * 20 + call, b"reply")).collect();
        gather(&store, &more);
        store.flush().unwrap();
        all.extend(more);
        // Not flushed, and the server is killed. What is no call is never kept.
        gather(&store, &[behind(1000 + round, b"lost"), vec![0], Vec::new()]);
    }
    assert_eq!(read(place.path()), all);
}

#[test]
fn of_a_call_that_is_there_twice_the_last_counts() {
    let place = tempfile::tempdir().unwrap();
    let OpenedReplies { store, mut replies } = ReplyStore::open(place.path(), MIB).unwrap();
    gather(&store, &[behind(1, b"one"), behind(2, b"two")]);
    store.flush().unwrap();
    store.add(vec![behind(2, b"two"), behind(1, b"again")], &mut replies).unwrap();
    let expected = [behind(2, b"two"), behind(1, b"again")];
    assert_eq!(replies.into_newest(), expected);
    assert_eq!(read(place.path()), expected);
    // What it had is not written again.
    let OpenedReplies { store, mut replies } = ReplyStore::open(place.path(), MIB).unwrap();
    let before = store.kept().bytes;
    store.add(expected.to_vec(), &mut replies).unwrap();
    assert_eq!(store.kept().bytes, before);
}

#[test]
fn of_a_compound_each_operation_is_kept() {
    let place = tempfile::tempdir().unwrap();
    let store = ReplyStore::open(place.path(), MIB).unwrap().store;
    // An outcome, behind the name of a call without a session and the operation's number.
    let outcome = |operation: u32| {
        let mut behind = vec![3, 44];
        behind.resize(2 + 40, 7);
        behind.extend_from_slice(&operation.to_le_bytes());
        behind.push(2);
        behind
    };
    gather(&store, &[outcome(1), outcome(3), outcome(1)]);
    store.flush().unwrap();
    assert_eq!(read(place.path()), [outcome(3), outcome(1)]);
}

#[test]
fn the_oldest_leave_at_the_bound() {
    let place = tempfile::tempdir().unwrap();
    let store = ReplyStore::open(place.path(), MIB).unwrap().store;
    for round in 0..200 {
        let more: Vec<_> = (0..100).map(|call| behind(round * 100 + call, &[7; 200])).collect();
        gather(&store, &more);
        store.flush().unwrap();
        let kept = store.kept();
        assert!(kept.bytes <= MIB && kept.gathered_bytes == 0, "{kept:?}");
    }
    let kept = read(place.path());
    assert_eq!(kept.last(), Some(&behind(19_999, &[7; 200])));
    assert!((2_500..4_200).contains(&kept.len()), "{}", kept.len());
    assert_eq!(kept.first(), Some(&behind(20_000 - kept.len() as u64, &[7; 200])));
}

#[test]
fn the_old_leave_by_the_time_for_which_servers_ran() {
    let place = tempfile::tempdir().unwrap();
    let at = |uptime_ms| {
        let store = ReplyStore::open(place.path(), MIB).unwrap().store;
        ReplyStore { uptime_before_ms: store.uptime_before_ms + uptime_ms, ..store }
    };
    let stay_ms = REPLIES_STAY.as_millis() as u64;
    for (call, later_ms) in [(1, 0), (2, stay_ms - 10_000)] {
        let store = at(later_ms);
        gather(&store, &[behind(call, b"reply")]);
        store.flush().unwrap();
    }
    let store = at(9_000);
    store.flush().unwrap();
    assert_eq!(read(place.path()).len(), 2);
    assert!(store.kept().reach_ms >= stay_ms - 1_000, "{:?}", store.kept());
    at(11_000).flush().unwrap();
    assert_eq!(read(place.path()), [behind(2, b"reply")]);
}

#[test]
fn torn_foreign_and_other_segments_do_no_harm() {
    let place = tempfile::tempdir().unwrap();
    let files = place.path().join(DIRECTORY);
    let store = ReplyStore::open(place.path(), MIB).unwrap().store;
    gather(&store, &[behind(1, b"one"), behind(2, b"two"), behind(3, b"three")]);
    store.flush().unwrap();
    let name = |number: u64| files.join(format!("{number:020}.{SUFFIX}"));
    let bytes = std::fs::read(name(0)).unwrap();
    let length = bytes.len();
    std::fs::write(name(0), &bytes[..length - 20]).unwrap();
    std::fs::write(name(1), b"").unwrap();
    std::fs::write(name(2), vec![0; 5000]).unwrap();
    std::fs::write(name(3), b"something else").unwrap();
    let mut other = bytes.clone();
    other[8] = 9;
    std::fs::write(name(4), other).unwrap();
    std::fs::write(files.join("README"), b"not ours").unwrap();
    assert_eq!(read(place.path()), [behind(1, b"one"), behind(2, b"two")]);
    let mut damaged = bytes;
    damaged[50] ^= 1;
    std::fs::write(name(0), damaged).unwrap();
    assert_eq!(read(place.path()), [behind(2, b"two"), behind(3, b"three")]);
    let mut left: Vec<_> =
        std::fs::read_dir(&files).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn on_a_full_disk_the_oldest_make_room() {
    let place = tempfile::tempdir().unwrap();
    for call in 0..3 {
        // Each start begins a segment.
        let store = ReplyStore::open(place.path(), MIB).unwrap().store;
        gather(&store, &[behind(call, b"reply")]);
        store.flush().unwrap();
    }
    let store = ReplyStore::open(place.path(), MIB).unwrap().store;
    let fill_disk = || {
        let full = File::options().write(true).open("/dev/full").unwrap();
        store.segments.lock().open = Some(full);
    };
    fill_disk();
    gather(&store, &[behind(3, b"reply")]);
    store.flush().unwrap();
    assert_eq!(store.kept().gathered_bytes, 0);
    let files = || std::fs::read_dir(place.path().join(DIRECTORY)).unwrap().count();
    assert_eq!(files(), 3);
    let calls = [1, 2, 3].map(|call| behind(call, b"reply"));
    assert_eq!(read(place.path()), calls);
    // What has the newest goes last.
    for call in 4..7 {
        fill_disk();
        gather(&store, &[behind(call, b"reply")]);
        store.flush().unwrap();
        assert_eq!(files(), 3);
    }
    assert_eq!(read(place.path()), [4, 5, 6].map(|call| behind(call, b"reply")));
}

/// A small file system, for as long as it is there.
struct Small(tempfile::TempDir);

impl Small {
    /// `None` for who may not mount.
    fn new(kib: u64) -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let size = format!("size={kib}k");
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(place.path());
        mount.status().unwrap().success().then_some(Self(place))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_disk_that_is_too_small_has_the_newest() {
    let Some(small) = Small::new(1024) else { return };
    let place = small.0.path();
    for bytes_max in [64 * MIB, 2 * MIB] {
        let mut next = 0;
        let store = ReplyStore::open(place, bytes_max).unwrap().store;
        for _ in 0..40 {
            let more: Vec<_> = (next..next + 300).map(|call| behind(call, &[7; 200])).collect();
            next += 300;
            gather(&store, &more);
            store.flush().unwrap();
            let kept = store.kept();
            assert!(kept.gathered_bytes == 0 && kept.bytes < MIB, "{kept:?}");
            assert!(!store.is_room_scarce(0).unwrap());
        }
        let segments = std::fs::read_dir(place.join(DIRECTORY)).unwrap();
        for entry in segments.map(|entry| entry.unwrap().path()) {
            let bytes = std::fs::read(&entry).unwrap();
            let mut segment = Segment::new(&bytes).unwrap();
            assert!(segment.by_ref().count() > 0 && segment.damaged_bytes() == 0, "{entry:?}");
        }
        let kept = read(place);
        let first = next - kept.len() as u64;
        let expected: Vec<_> = (first..next).map(|call| behind(call, &[7; 200])).collect();
        assert!(kept == expected && kept.len() >= 300, "{} from {first}", kept.len());
        std::fs::remove_dir_all(place.join(DIRECTORY)).unwrap();
    }
}

#[test]
fn what_has_no_room_at_all_stays_in_memory() {
    let Some(small) = Small::new(1024) else { return };
    let place = small.0.path();
    let store = ReplyStore::open(place, MIB).unwrap().store;
    let all: Vec<_> = (0..1200).map(|call| behind(call, &[7; 200])).collect();
    gather(&store, &all[..100]);
    store.flush().unwrap();
    let mut filler = File::create(place.join("filler")).unwrap();
    while filler.write(&[1; 512]).is_ok() {}
    gather(&store, &all[100..]);
    // The others make too little room for these.
    let gathered = store.kept().gathered_bytes;
    for _ in 0..3 {
        let full = store.flush().map_err(|error| error.kind());
        assert_eq!(full, Err(io::ErrorKind::StorageFull));
        let kept = store.kept();
        assert_eq!((kept.bytes, kept.gathered_bytes), (0, gathered));
        let files = std::fs::read_dir(place.join(DIRECTORY)).unwrap();
        assert_eq!(files.count(), 0, "nothing is left of what was tried");
    }
    drop(filler);
    std::fs::remove_file(place.join("filler")).unwrap();
    store.flush().unwrap();
    assert_eq!(read(place), all[100..]);
}

#[test]
fn a_segment_that_is_left_is_flushed_with_the_next() {
    let place = tempfile::tempdir().unwrap();
    let store = ReplyStore::open(place.path(), MIB).unwrap().store;
    gather(&store, &[behind(1, b"reply")]);
    store.write(&mut store.segments.lock()).unwrap();
    store.segments.lock().leave();
    gather(&store, &[behind(2, b"reply")]);
    store.write(&mut store.segments.lock()).unwrap();
    let unflushed = |segments: &Segments| (segments.left.len(), segments.is_dirty);
    assert_eq!(unflushed(&store.segments.lock()), (1, true));
    store.flush().unwrap();
    assert_eq!(unflushed(&store.segments.lock()), (0, false));
    // What is flushed need not be again.
    store.segments.lock().leave();
    assert_eq!(unflushed(&store.segments.lock()), (0, false));
}

#[test]
fn a_store_that_cannot_be_written_keeps_what_it_has_for_later() {
    let place = tempfile::tempdir().unwrap();
    let store = ReplyStore::open(place.path(), MIB).unwrap().store;
    let files = place.path().join(DIRECTORY);
    std::fs::remove_dir(&files).unwrap();
    gather(&store, &[behind(1, b"one")]);
    store.flush().unwrap_err();
    assert!(store.kept().gathered_bytes > 0);
    std::fs::create_dir(&files).unwrap();
    gather(&store, &[behind(2, b"two")]);
    store.flush().unwrap();
    assert_eq!(read(place.path()), [behind(1, b"one"), behind(2, b"two")]);
}
