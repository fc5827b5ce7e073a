//! Unit ring: single cases, and many records.

use std::time::{Duration, Instant};

use steadfast_journal::Change;

use super::client::{medium, open, record};
use super::model::{Content, Model, ROOT, handle};
use super::{Carried, Memory, replay};
use crate::replay::share::{Making, Share, Who};

fn file(model: &mut Model, name: &[u8]) -> Vec<u8> {
    let what = Making::File { verifier: [1; 8] };
    model.make(&Who::default(), &handle(ROOT), name, &what).unwrap().0
}

fn content(model: &Model, file: &[u8]) -> Vec<u8> {
    let number = u64::from_be_bytes(file.try_into().unwrap());
    match &model.inodes[&number].content {
        Content::File(data) => data.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ten_thousand_writes_are_replayed_quickly() {
    let mut model = Model::new(false);
    model.is_plain = true;
    let handles: Vec<_> = (0..10).map(|name| file(&mut model, &[b'0' + name])).collect();
    let medium = medium(4096);
    let (journal, _) = open(&medium);
    for count in 0..10_000_u64 {
        let change = Change::Write {
            file: &handles[count as usize % 10],
            offset: count * 8,
            data: b"12345678",
        };
        journal.append(&record(b"/f", change)).unwrap();
    }
    let since = Instant::now();
    let report =
        replay(&journal, &mut model, &mut Memory::default(), &mut Carried::default()).unwrap();
    let took = since.elapsed();
    println!("{took:?}\n{report}");
    assert_eq!((report.records, report.sent_records), (10_000, 10_000));
    assert!(report.is_complete() && journal.pending().is_empty());
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_file_that_others_removed_goes_to_a_conflict_file() {
    let mut model = Model::new(false);
    let gone = file(&mut model, b"a");
    model.remove(&Who::default(), &handle(ROOT), b"a").unwrap();
    let medium = medium(16);
    let (journal, _) = open(&medium);
    let change = Change::Write { file: &gone, offset: 3, data: b"mine" };
    journal.append(&record(b"/a", change)).unwrap();
    let mut keeper = Memory::default();
    let report = replay(&journal, &mut model, &mut keeper, &mut Carried::default()).unwrap();
    assert!(keeper.has(3, b"mine") && journal.pending().is_empty());
    assert_eq!(report.conflicts.len(), 1);
    assert!(report.to_string().contains("removed by others"), "{report}");
}

#[test]
fn bytes_of_others_stay() {
    let mut model = Model::new(false);
    let theirs = file(&mut model, b"a");
    model.write(&Who::default(), &theirs, 0, b"theirs").unwrap();
    let medium = medium(16);
    let (journal, _) = open(&medium);
    for (offset, data) in [(0, b"ours".as_slice()), (6, b"more")] {
        let change = Change::Write { file: &theirs, offset, data };
        journal.append(&record(b"/a", change)).unwrap();
    }
    let mut keeper = Memory::default();
    let report = replay(&journal, &mut model, &mut keeper, &mut Carried::default()).unwrap();
    assert_eq!(content(&model, &theirs), b"theirsmore");
    assert!(keeper.has(0, b"ours") && !keeper.has(6, b"more"));
    assert_eq!((report.sent_records, report.conflicts.len()), (1, 1));
}
