//! Process ring: a process that appends and syncs is killed, again and again, and what it was told
//! to be stable is there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use steadfast_journal::{Change, Journal, Options, Sequence};

const KILLS: u64 = 30;
const DIRECTORY: &str = "STEADFAST_TEST_JOURNAL";
const KEPT: usize = 40;
/// Records that are stable before the process is killed.
const STABLE_MIN: usize = 20;

fn options() -> Options {
    Options { ring_bytes: 2 << 20, compress: true, ..common::options() }
}

fn data(number: u64) -> Vec<u8> {
    let bytes = 1 + (number * 7919 % 6000) as usize;
    (0..bytes).map(|at| (number as usize * 31 + at / 3) as u8).collect()
}

fn say(line: &str) {
    // One write: the parent may see a last line that is cut off, and ignores it.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

/// Appends and syncs for ever, and says so: `s SEQUENCE NUMBER` after the sync, `l SEQUENCE` before
/// a record leaves.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let (journal, _) = Journal::open(Path::new(&directory), &options()).unwrap();
    let old = common::pending(&journal);
    for sequence in &old {
        say(&format!("l {}\n", sequence.0));
    }
    journal.stable(old);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let journal = &journal;
            scope.spawn(move || {
                let mut kept = std::collections::VecDeque::new();
                for round in 0.. {
                    let number = 2 * round + thread;
                    let data = data(number);
                    let record = common::write(b"file", number * 10_000, &data);
                    let sequence = journal.append(&record).unwrap();
                    journal.sync(sequence).unwrap();
                    say(&format!("s {} {number}\n", sequence.0));
                    kept.push_back(sequence);
                    if kept.len() > KEPT {
                        let sequence: Sequence = kept.pop_front().unwrap();
                        say(&format!("l {}\n", sequence.0));
                        journal.stable([sequence]);
                    }
                    if round % 64 == 0 {
                        journal.maintain().unwrap();
                    }
                }
            });
        }
    });
}

#[test]
fn what_a_killed_process_was_told_to_be_stable_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let mut highest = 0;
    for round in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let (tell, told) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            let mut acknowledged = BTreeMap::new();
            for line in &mut lines {
                let words: Vec<&str> = line.split(' ').collect();
                match words.as_slice() {
                    ["s", sequence, number] => {
                        acknowledged.insert(
                            sequence.parse::<u64>().unwrap(),
                            number.parse::<u64>().unwrap(),
                        );
                        // Nobody listens any more when it is being killed.
                        let _ = tell.send(());
                    }
                    ["l", sequence] => {
                        acknowledged.remove(&sequence.parse().unwrap());
                    }
                    _ => {}
                }
            }
            acknowledged
        });
        // However slow the machine is, it has something to lose.
        for _ in 0..STABLE_MIN {
            told.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(round * 37 % 100));
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged = reader.join().unwrap();

        let (journal, recovered) = Journal::open(directory.path(), &options()).unwrap();
        assert!(recovered.damage.iter().all(|damage| !damage.was_stable), "{recovered:?}");
        journal.acknowledge_damage();
        let found = common::pending(&journal);
        for (sequence, number) in acknowledged {
            assert!(found.contains(&Sequence(sequence)), "{sequence} is lost");
            let stored = journal.read(Sequence(sequence)).unwrap().unwrap();
            let Change::Write { offset, data: stored, .. } = stored.record().change else {
                panic!("a write")
            };
            assert_eq!((offset, stored), (number * 10_000, data(number).as_slice()));
            assert!(sequence > highest, "sequences only grow");
        }
        highest = journal.status().last.0;
    }
}
