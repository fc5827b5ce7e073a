//! Process ring: `steadfast journal` against the real program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use steadfast_journal::{Change, Journal, Options, Record};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_steadfast"))
        .arg("journal")
        .args(arguments)
        .output()
        .expect("it runs")
}

fn told(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn open(directory: &Path) -> Journal {
    let options = Options { ring_bytes: 1 << 20, ..Options::new("server", "/share") };
    Journal::open(directory, &options).unwrap().0
}

fn append(journal: &Journal, path: &[u8], data: &[u8]) {
    let change = Change::Write { file: path, offset: 10, data };
    let record = Record { time_ns: 0, uid: 1, gid: 2, groups: &[], order: None, path, change };
    let sequence = journal.append(&record).unwrap();
    journal.sync(sequence).unwrap();
}

#[test]
fn a_journal_is_listed_verified_and_discarded() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap();
    let error = refused(&["list", place]);
    assert!(error.contains("there is no journal in"), "{error}");

    let journal = open(directory.path());
    append(&journal, b"/a\x1b[31m", b"hello");
    append(&journal, b"/b", b"world");
    // While it is in use.
    let list = told(&["list", place]);
    let owner = format!("in use by process {} (", std::process::id());
    assert!(list.contains("of /share on server, ") && list.contains(&owner), "{list}");
    assert!(list.contains("2 changes not stable") && list.contains("  5 bytes at 10\n"), "{list}");
    assert!(list.contains("/a\\x1b[31m"), "{list}");
    for command in ["verify", "discard"] {
        let mut arguments = vec![command, place];
        arguments.extend((command == "discard").then_some("--yes"));
        let error = refused(&arguments);
        assert!(error.contains("is in use by process"), "{error}");
    }
    journal.close().unwrap();

    let list: Value = serde_json::from_str(&told(&["list", place, "--json"])).unwrap();
    assert_eq!(list["changes"][1]["path"], "/b", "{list}");
    assert_eq!((&list["is_clean"], &list["in_use_by"]), (&true.into(), &Value::Null));
    let verified = told(&["verify", place]);
    assert!(verified.contains("2 changes read, and 2 of them"), "{verified}");
    assert!(verified.contains("the manifest is whole"), "{verified}");

    let error = refused(&["discard", place]);
    assert!(error.contains("2 changes") && error.contains("--yes"), "{error}");
    assert_eq!(told(&["discard", place, "--file", "/b", "--yes"]), "discarded 1 change\n");
    // As it is shown.
    let error = refused(&["discard", place, "--file", "/a\\x1b[31m"]);
    assert!(error.contains("1 change in"), "{error}");
    let error = refused(&["discard", place, "--file", "/b", "--yes"]);
    assert!(error.contains("no changes of /b"), "{error}");

    let ring = directory.path().join("ring");
    let mut bytes = std::fs::read(&ring).unwrap();
    bytes[4096 + 100] ^= 1;
    std::fs::write(&ring, bytes).unwrap();
    let output = run(&["verify", place]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("record 1 is missing: the ring is damaged"), "{text}");
    assert!(text.contains("lost, as the manifest says: 1  "), "{text}");

    assert_eq!(told(&["discard", place, "--yes"]), "discarded 0 changes\n");
    assert!(told(&["list", place]).contains("0 changes not stable"));
    assert_eq!(run(&["discard"]).status.code(), Some(2));
}
