//! Process ring: `steadfast journal replay` against the real server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod nfs3_support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use common::{output, utf8};
use nfs3_support::Fixture;
use steadfast_journal::{Attributes, Change, Journal, Options, Record, Sequence};

fn open(directory: &Path, f: &Fixture) -> Journal {
    let options =
        Options { ring_bytes: 1 << 20, ..Options::new("127.0.0.1", utf8(&f.place.share)) };
    Journal::open(directory, &options).unwrap().0
}

fn append(journal: &Journal, path: &[u8], change: Change<'_>) {
    let record = Record { time_ns: 0, uid: 0, gid: 0, groups: &[], order: None, path, change };
    journal.append(&record).unwrap();
    journal.sync(Sequence(u64::MAX)).unwrap();
}

fn replay(directory: &Path, f: &Fixture) -> Output {
    let port = f.address().port();
    let options = format!("port={port},mountport={port}");
    output(&["journal", "replay", utf8(directory), "-o", &options])
}

#[test]
fn a_journal_is_replayed_and_conflicts_are_kept() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let (there, gone) = (f.file("there"), f.file("gone"));
    f.client.remove(&root, b"gone").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path(), &f);
    let attributes = Attributes { mode: Some(0o640), ..Attributes::default() };
    let parent = root.as_bytes();
    let verifier = *b"verifier";
    append(&journal, b"/new", Change::Create { parent, name: b"new", verifier, attributes });
    let write = |file, offset, data| Change::Write { file, offset, data };
    append(&journal, b"/there", write(there.as_bytes(), 0, b"hello "));
    append(&journal, b"/there", write(there.as_bytes(), 6, b"world"));
    append(&journal, b"/gone", write(gone.as_bytes(), 2, b"kept"));

    let refused = replay(directory.path(), &f);
    assert_eq!(refused.status.code(), Some(1), "in use: {refused:?}");
    journal.close().unwrap();
    let done = replay(directory.path(), &f);
    let told = String::from_utf8(done.stdout.clone()).unwrap();
    assert_eq!(done.status.code(), Some(3), "{done:?}");
    assert!(told.contains("4 changes: 3 sent (11 bytes of data)"), "{told}");
    assert!(told.contains("/gone") && told.contains("removed by others"), "{told}");
    assert_eq!(fs::read(f.on_disk("there")).unwrap(), b"hello world");
    let mode = fs::metadata(f.on_disk("new")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    let kept: Vec<_> = fs::read_dir(directory.path().join("conflicts"))
        .unwrap()
        .map(|one| one.unwrap().path())
        .collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
    let data = kept.iter().find(|path| path.extension().is_none_or(|end| end != "txt")).unwrap();
    assert_eq!(fs::read(data).unwrap(), b"\0\0kept");

    let again = replay(directory.path(), &f);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert!(String::from_utf8(again.stdout).unwrap().starts_with("0 changes"));
}
