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

fn call_number(behind: &[u8]) -> u64 {
    u64::from_be_bytes(behind[1..9].try_into().unwrap())
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

/// What a power cut may leave of a segment that nobody flushed: its head.
fn cut_power(place: &Path, sequence: u64) {
    let path = place.join(DIRECTORY).join(format!("{sequence:020}.{SUFFIX}"));
    let mut head = Vec::new();
    write_segment_head(&mut head, sequence);
    File::options().write(true).open(path).unwrap().set_len(head.len() as u64).unwrap();
}

fn write(store: &ReplyStore, all: &[Vec<u8>]) -> io::Result<()> {
    gather(store, all);
    store.write(&mut store.segments.lock())
}

fn fail_by(store: &ReplyStore, device: &str) {
    let device = File::options().append(true).open(device).unwrap();
    store.segments.lock().open = Some(device);
}

#[test]
fn what_was_written_and_not_flushed_before_a_write_fails_is_written_again() {
    let place = tempfile::tempdir().unwrap();
    let store = ReplyStore::open(place.path(), MIB).unwrap().store;
    write(&store, &[behind(1, b"one")]).unwrap();
    fail_by(&store, "/dev/full");
    write(&store, &[behind(2, b"two")]).unwrap_err();
    store.flush().unwrap();
    cut_power(place.path(), 0);
    assert_eq!(read(place.path()), [behind(1, b"one"), behind(2, b"two")]);
}

#[test]
fn what_could_not_be_flushed_is_written_again() {
    let place = tempfile::tempdir().unwrap();
    let store = ReplyStore::open(place.path(), MIB).unwrap().store;
    write(&store, &[behind(1, b"one")]).unwrap();
    // It takes all, and cannot be flushed.
    fail_by(&store, "/dev/null");
    gather(&store, &[behind(2, b"two")]);
    store.flush().unwrap_err();
    store.flush().unwrap();
    cut_power(place.path(), 0);
    assert_eq!(read(place.path()), [behind(1, b"one"), behind(2, b"two")]);
}

#[test]
fn a_full_segment_that_cannot_be_flushed_is_written_again() {
    let place = tempfile::tempdir().unwrap();
    let store = ReplyStore::open(place.path(), MIB).unwrap().store;
    let most: Vec<_> = (0..700).map(|call| behind(call, &[7; 200])).collect();
    write(&store, &most).unwrap();
    fail_by(&store, "/dev/null");
    let last = behind(700, b"last");
    write(&store, std::slice::from_ref(&last)).unwrap_err();
    store.flush().unwrap();
    cut_power(place.path(), 0);
    let kept = read(place.path());
    assert_eq!((kept.len(), kept.first(), kept.last()), (701, most.first(), Some(&last)));
}

#[test]
fn a_failed_write_leaves_nothing_behind_that_takes_room() {
    let place = tempfile::tempdir().unwrap();
    let store = ReplyStore::open(place.path(), MIB).unwrap().store;
    write(&store, &[behind(1, &[1; 1000])]).unwrap();
    let before = store.kept().bytes;
    let path = store.segments.lock().files[0].path.clone();
    assert_eq!(path.metadata().unwrap().len(), before);
    let again = store.segments.lock().give_up_open();
    assert_eq!(again.len(), 1);
    assert!(!path.exists());
    assert_eq!(store.kept().bytes, 0);
    assert!(store.segments.lock().files.is_empty());
    // What was flushed stays.
    write(&store, &[behind(2, b"two")]).unwrap();
    store.flush().unwrap();
    write(&store, &[behind(3, b"three")]).unwrap();
    store.segments.lock().give_up_open();
    assert_eq!(read(place.path()), [behind(2, b"two")]);
}

#[test]
fn as_much_as_the_store_may_have_waits_until_it_can_be_written() {
    let place = tempfile::tempdir().unwrap();
    let store = ReplyStore::open(place.path(), 64 * MIB).unwrap().store;
    let files = place.path().join(DIRECTORY);
    std::fs::remove_dir(&files).unwrap();
    let all: Vec<_> = (0..10_000).map(|call| behind(call, &[7; 4_000])).collect();
    for some in all.chunks(100) {
        gather(&store, some);
    }
    store.flush().unwrap_err();
    std::fs::create_dir(&files).unwrap();
    store.flush().unwrap();
    let kept = ReplyStore::open(place.path(), 64 * MIB).unwrap().replies.into_newest();
    let kept: Vec<_> = kept.iter().map(|one| call_number(one)).collect();
    assert_eq!(kept, (0..10_000).collect::<Vec<_>>());
}

#[test]
fn what_left_at_the_bound_does_not_come_back_as_the_newest() {
    let place = tempfile::tempdir().unwrap();
    let reply = |call| behind(call, &[7; 200]);
    let store = ReplyStore::open(place.path(), MIB).unwrap().store;
    for round in 0..200 {
        let more: Vec<_> = (0..100).map(|call| reply(round * 100 + call)).collect();
        gather(&store, &more);
        store.flush().unwrap();
    }
    // The ring has half of them still, and what was not flushed.
    for _ in 0..3 {
        let OpenedReplies { store, mut replies } = ReplyStore::open(place.path(), MIB).unwrap();
        store.add((10_000..20_010).map(reply).collect(), &mut replies).unwrap();
        let kept: Vec<_> = read(place.path()).iter().map(|one| call_number(one)).collect();
        assert!(kept.len() > 2_500, "{}", kept.len());
        assert!(kept.is_sorted(), "from {:?} to {:?}", kept.first(), kept.last());
        assert_eq!((kept.last(), kept.len()), (Some(&20_009), 20_010 - kept[0] as usize));
    }
}

#[test]
fn what_the_store_never_had_comes_from_the_ring_wherever_it_is() {
    let place = tempfile::tempdir().unwrap();
    let OpenedReplies { store, mut replies } = ReplyStore::open(place.path(), MIB).unwrap();
    store.add(vec![behind(2, b"two")], &mut replies).unwrap();
    let ring = [(1, &b"one"[..]), (2, b"before"), (2, b"two"), (3, b"three")];
    let ring = ring.map(|(call, reply)| behind(call, reply)).to_vec();
    store.add(ring, &mut replies).unwrap();
    let expected = [behind(2, b"two"), behind(1, b"one"), behind(3, b"three")];
    assert_eq!(read(place.path()), expected);
}

#[test]
fn a_store_has_at_most_half_of_the_room_that_there_is_for_it() {
    let configured = 64 * MIB;
    for (left, own, expected) in [
        (u64::MAX, 0, configured),
        (200 * MIB, 0, configured),
        (128 * MIB, 0, configured),
        (64 * MIB, 64 * MIB, configured),
        (100 * MIB, 0, 50 * MIB),
        (50 * MIB, 50 * MIB, 50 * MIB),
        // Others fill the disk: half of it makes room, once.
        (0, 50 * MIB, 25 * MIB),
        (25 * MIB, 25 * MIB, 25 * MIB),
        (0, 0, MIB),
        (0, MIB, MIB),
    ] {
        assert_eq!(bytes_max_beside(left, own, configured), expected, "{left} {own}");
    }
    assert_eq!(bytes_max_beside(0, 0, MIB / 2), MIB / 2);
}
