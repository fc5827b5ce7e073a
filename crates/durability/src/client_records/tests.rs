use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// The event that records a client by this owner; nothing else of it matters.
fn recorded(id: u64, owner: &[u8]) -> Vec<u8> {
    let mut event = vec![1];
    event.extend_from_slice(&id.to_le_bytes());
    event.extend_from_slice(&[0, 1]);
    event.extend_from_slice(&(owner.len() as u32).to_le_bytes());
    event.extend_from_slice(owner);
    event.extend_from_slice(&[7; 8]);
    event.extend_from_slice(&0_u32.to_le_bytes());
    let address = std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped();
    event.push(1);
    event.extend_from_slice(&address.octets());
    event
}

fn struck(id: u64) -> Vec<u8> {
    [&[3][..], &id.to_le_bytes()].concat()
}

fn keep(file: &ClientRecordFile, events: &[u8]) -> bool {
    let events = RefCell::new(events.to_vec());
    file.keep(&|taken| taken.append(&mut events.borrow_mut()))
}

fn owners(place: &Path) -> Vec<String> {
    let (_, records) = ClientRecordFile::open(place, 0);
    records.iter().map(|(_, record)| String::from_utf8_lossy(&record.owner).into_owned()).collect()
}

#[test]
fn wherever_the_file_is_cut_off_what_came_before_counts() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join(NAME);
    let (file, records) = ClientRecordFile::open(place.path(), 0);
    assert!(records.is_empty() && !path.exists());
    // After each: the file's length, and who is recorded.
    let mut steps = Vec::new();
    for (events, now) in [
        (recorded(1, b"one"), vec!["one"]),
        ([recorded(2, b"two"), recorded(3, b"three")].concat(), vec!["one", "two", "three"]),
        (struck(2), vec!["one", "three"]),
        (recorded(4, b"four"), vec!["one", "three", "four"]),
    ] {
        assert!(keep(&file, &events));
        steps.push((path.metadata().expect("a file").len() as usize, now));
    }
    let whole = std::fs::read(&path).expect("read");
    for cut in 0..=whole.len() {
        std::fs::write(&path, &whole[..cut]).expect("written");
        let found = owners(place.path());
        let expected = steps.iter().rev().find(|(length, _)| *length <= cut);
        assert_eq!(found, expected.map_or(vec![], |(_, now)| now.clone()), "cut at {cut}");
        // The rest of what was begun may have become any bytes.
        let filled = [&whole[..cut], &vec![0; whole.len() - cut]].concat();
        std::fs::write(&path, &filled).expect("written");
        let last = cut >= steps[2].0;
        if last {
            let expected = &steps[if cut == whole.len() { 3 } else { 2 }].1;
            assert_eq!(&owners(place.path()), expected, "filled from {cut}");
        }
    }
}

#[test]
fn of_a_damaged_file_nobody_is_recorded() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join(NAME);
    let (file, _) = ClientRecordFile::open(place.path(), 0);
    let mut last_at = 0;
    for event in [recorded(1, b"one"), recorded(2, b"two"), struck(1), recorded(3, b"three")] {
        last_at = path.metadata().map_or(0, |metadata| metadata.len() as usize);
        assert!(keep(&file, &event));
    }
    let whole = std::fs::read(&path).expect("read");
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&path, &damaged).expect("written");
        // The last one may be one that nobody was told of.
        let expected = if at < last_at { vec![] } else { vec!["two"] };
        assert_eq!(owners(place.path()), expected, "damaged at {at}");
    }
    std::fs::remove_file(&path).expect("removed");
    std::fs::create_dir(&path).expect("made");
    assert!(owners(place.path()).is_empty(), "it cannot be read");
}

#[test]
fn what_cannot_be_written_is_tried_again_and_nothing_of_it_is_lost() {
    let place = tempfile::tempdir().expect("a directory");
    let (file, _) = ClientRecordFile::open(place.path(), 0);
    let in_the_way = place.path().join(format!("{NAME}.new"));
    std::fs::create_dir(&in_the_way).expect("made");
    assert!(!keep(&file, &recorded(1, b"one")));
    assert!(!keep(&file, &[]), "who waits for it has to wait on");
    assert!(owners(place.path()).is_empty());
    std::fs::remove_dir(&in_the_way).expect("removed");
    assert!(keep(&file, &recorded(2, b"two")));
    assert_eq!(owners(place.path()), ["one", "two"]);
    // An append that fails: the file is open for reading only.
    let read_only = File::open(place.path().join(NAME)).expect("opened");
    if let Some(written) = &mut file.writing.lock().written {
        written.file = read_only;
    }
    assert!(keep(&file, &struck(1)));
    assert_eq!(owners(place.path()), ["two"]);
}

#[test]
fn a_file_that_is_out_of_date_is_replaced() {
    let place = tempfile::tempdir().expect("a directory");
    let (file, _) = ClientRecordFile::open(place.path(), 0);
    assert!(keep(&file, &recorded(1, b"one")));
    let mut longest = 0;
    for number in 2..1000 {
        assert!(keep(&file, &[recorded(number, &[b'x'; 200]), struck(number)].concat()));
        longest = longest.max(place.path().join(NAME).metadata().expect("a file").len());
    }
    assert!(longest < 2 * RENEWED_FROM, "{longest}");
    assert_eq!(owners(place.path()), ["one"]);
}

#[test]
fn those_who_come_at_once_are_all_on_the_disk() {
    let place = tempfile::tempdir().expect("a directory");
    let (file, _) = ClientRecordFile::open(place.path(), 0);
    let taken = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let is_kept = file.keep(&|events| {
                    let number = taken.fetch_add(1, Ordering::Relaxed) as u64;
                    events.extend(recorded(number, b"x"));
                });
                assert!(is_kept);
            });
        }
    });
    assert_eq!(owners(place.path()).len(), 8);
}

#[test]
fn an_old_copy_records_nobody() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join(NAME);
    let owners_at = |last| {
        let (_, records) = ClientRecordFile::open(place.path(), last);
        records.len()
    };
    let (file, _) = ClientRecordFile::open(place.path(), 0);
    // As older versions leave it.
    assert!(keep(&file, &recorded(1, b"one")));
    assert_eq!(owners_at(9), 1);
    assert!(file.begin_instance(3));
    let copy = std::fs::read(&path).expect("read");
    assert_eq!((owners_at(2), owners_at(3), owners_at(4)), (1, 1, 0));
    // Also when the file was replaced since; and once it is used again.
    let (file, _) = ClientRecordFile::open(place.path(), 3);
    assert!(keep(&file, &recorded(2, b"two")));
    assert_eq!((owners_at(3), owners_at(4)), (2, 0));
    assert!(file.begin_instance(4));
    assert_eq!(owners_at(4), 2);
    std::fs::write(&path, copy).expect("written");
    let (file, records) = ClientRecordFile::open(place.path(), 4);
    assert!(records.is_empty());
    assert!(file.begin_instance(5) && keep(&file, &recorded(3, b"three")));
    assert_eq!(owners_at(5), 1);
}
