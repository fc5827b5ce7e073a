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

/// The server had executed some of the WRITEs that a record went in when the client died.
#[test]
fn a_record_of_which_the_server_has_a_part_is_no_conflict() {
    let ours: Vec<u8> = (0..20_000).map(|at| 1 + (at % 250) as u8).collect();
    for there in [100..9_000, 9_000..20_100, 5_000..5_010, 100..20_100] {
        let mut model = Model::new(false);
        let file = file(&mut model, b"a");
        let medium = medium(64);
        let (journal, _) = open(&medium);
        let change = Change::Write { file: &file, offset: 100, data: &ours };
        journal.append(&record(b"/a", change)).unwrap();
        let data = &ours[there.start - 100..there.end - 100];
        model.write(&Who::default(), &file, there.start as u64, data).unwrap();
        let mut keeper = Memory::default();
        let report = replay(&journal, &mut model, &mut keeper, &mut Carried::default()).unwrap();
        assert!(report.is_complete() && journal.pending().is_empty(), "{there:?} {report}");
        assert_eq!(content(&model, &file)[100..], ours, "{there:?}");
    }
}

/// What somebody has set to zero since is theirs: a WRITE of ours leaves more out than a few bytes.
#[test]
fn a_few_zeros_within_a_record_are_others() {
    for (at, zeros) in [(5_000, 1), (0, 1), (19_999, 1), (3, 4_000)] {
        let mut model = Model::new(false);
        let file = file(&mut model, b"a");
        let medium = medium(64);
        let (journal, _) = open(&medium);
        let ours = vec![7; 20_000];
        let change = Change::Write { file: &file, offset: 0, data: &ours };
        journal.append(&record(b"/a", change)).unwrap();
        let mut theirs = ours.clone();
        theirs[at..at + zeros].fill(0);
        model.write(&Who::default(), &file, 0, &theirs).unwrap();
        let mut keeper = Memory::default();
        let report = replay(&journal, &mut model, &mut keeper, &mut Carried::default()).unwrap();
        assert_eq!(report.conflicts.len(), 1, "{at}");
        assert_eq!(content(&model, &file), theirs, "{at}");
    }
}

#[test]
fn others_bytes_within_a_record_leave_the_rest_of_it_alone() {
    let mut model = Model::new(false);
    let theirs = file(&mut model, b"a");
    model.write(&Who::default(), &theirs, 9_000, b"theirs").unwrap();
    let medium = medium(64);
    let (journal, _) = open(&medium);
    let ours = vec![1; 16_384];
    let change = Change::Write { file: &theirs, offset: 0, data: &ours };
    journal.append(&record(b"/a", change)).unwrap();
    let mut keeper = Memory::default();
    let report = replay(&journal, &mut model, &mut keeper, &mut Carried::default()).unwrap();
    assert_eq!((report.conflicts.len(), report.conflicts[0].kept_bytes), (1, 4096));
    assert!(keeper.has(8192, &ours[..4096]));
    let there = content(&model, &theirs);
    assert_eq!((&there[..8192], &there[9000..9006]), (&ours[..8192], b"theirs".as_slice()));
    assert_eq!(there[12_288..], ours[..4096]);
}
