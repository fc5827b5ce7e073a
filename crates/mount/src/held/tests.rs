//! Unit and property tests: held data against a model of bytes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const GATHER: usize = 8;

fn bytes(held: &Held, from: u64, to: u64) -> Vec<Option<u8>> {
    let mut found = vec![None; (to - from) as usize];
    for piece in held.pieces(from, to) {
        for (index, byte) in piece.bytes().iter().enumerate() {
            found[(piece.offset - from) as usize + index] = Some(*byte);
        }
    }
    found
}

#[test]
fn short_writes_are_gathered_and_long_ones_cut() {
    let mut held = Held::default();
    for (index, byte) in b"abcdefghij".iter().enumerate() {
        held.insert(index as u64, &[*byte], GATHER);
    }
    let run = held.depart(8).unwrap();
    assert_eq!((run.offset, run.bytes()), (0, &b"abcdefgh"[..]));
    let run = held.depart(8).unwrap();
    assert_eq!((run.offset, run.bytes()), (8, &b"ij"[..]));
    assert!(held.depart(8).is_none());
}

#[test]
fn newer_bytes_wait_for_older_ones_in_flight() {
    let mut held = Held::default();
    held.insert(0, b"old!", GATHER);
    let old = held.depart(8).unwrap();
    held.insert(2, b"new", GATHER);
    assert!(held.depart(2).is_none_or(|run| run.offset >= 4));
    held.acknowledge(&old, 4, Some([1; 8]));
    assert_eq!(bytes(&held, 0, 5), b"olnew".iter().map(|b| Some(*b)).collect::<Vec<_>>());
    assert!(held.depart(8).is_some());
}

#[test]
fn another_verifier_makes_everything_of_the_old_one_dirty() {
    let mut held = Held::default();
    held.insert(0, b"abcd", GATHER);
    let run = held.depart(8).unwrap();
    held.acknowledge(&run, 4, Some([1; 8]));
    let mark = held.mark();
    held.insert(10, b"efgh", GATHER);
    let late = held.depart(8).unwrap();
    held.acknowledge(&late, 4, Some([2; 8]));
    assert!(held.committed(mark, [2; 8]));
    assert_eq!(held.dirty_bytes(), 4);
    assert!(held.has_unstable(), "what came after the mark needs another COMMIT");
    let mark = held.mark();
    assert!(!held.committed(mark, [2; 8]));
    assert_eq!(held.bytes(), 4);
}

#[test]
fn what_is_acknowledged_is_left_to_a_server_that_cannot_lose_it_unseen() {
    let mut held = Held::default();
    held.insert(0, b"abcdefgh", 4);
    held.insert(8, b"ij", GATHER);
    let run = held.depart(8).unwrap();
    held.trust_acknowledged(true);
    assert_eq!((bytes(&held, 0, 1), held.end()), (vec![Some(b'a')], Some(10)), "it is in flight");
    held.acknowledge(&run, 8, Some([1; 8]));
    assert_eq!(bytes(&held, 6, 10), [None, None, Some(b'i'), Some(b'j')]);
    let run = held.depart(8).unwrap();
    assert_eq!(held.end(), Some(10));
    held.acknowledge(&run, 2, Some([1; 8]));
    assert_eq!((held.end(), held.bytes()), (None, 10));
    held.trust_acknowledged(false);
    assert_eq!((bytes(&held, 9, 10), held.end()), (vec![Some(b'j')], Some(10)));
}

#[test]
fn a_short_write_leaves_the_rest_dirty() {
    let mut held = Held::default();
    held.insert(0, b"abcdef", GATHER);
    let run = held.depart(8).unwrap();
    held.acknowledge(&run, 2, None);
    assert_eq!(bytes(&held, 0, 6)[..2], [None, None]);
    let rest = held.depart(8).unwrap();
    assert_eq!((rest.offset, rest.bytes()), (2, &b"cdef"[..]));
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, Vec<u8>),
    Depart(usize),
    Arrive { which: usize, count: u64, stable: bool },
    Refuse { which: usize },
    Commit { restarted: bool },
    Truncate(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u64..48, proptest::collection::vec(any::<u8>(), 1..12)).prop_map(|(o, d)| Step::Write(o, d)),
        3 => (1_usize..16).prop_map(Step::Depart),
        3 => (any::<usize>(), 0_u64..16, any::<bool>())
            .prop_map(|(which, count, stable)| Step::Arrive { which, count, stable }),
        1 => any::<usize>().prop_map(|which| Step::Refuse { which }),
        1 => any::<bool>().prop_map(|restarted| Step::Commit { restarted }),
        1 => (0_u64..60).prop_map(Step::Truncate),
    ]
}

/// The server as a model: what is on its disk, and in its memory.
#[derive(Default)]
struct Server {
    disk: BTreeMap<u64, u8>,
    memory: BTreeMap<u64, u8>,
    boots: u8,
}

impl Server {
    fn seen(&self, at: u64) -> Option<u8> {
        self.memory.get(&at).or_else(|| self.disk.get(&at)).copied()
    }

    fn cut(&mut self, size: u64) {
        self.disk.retain(|at, _| *at < size);
        self.memory.retain(|at, _| *at < size);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Whatever is held, laid over what the server has, is what was written, at each moment; and
    /// once nothing is held the server's disk has it.
    #[test]
    fn held_and_stable_bytes_are_what_was_written(steps in proptest::collection::vec(step(), 1..80)) {
        let mut held = Held::default();
        let mut server = Server::default();
        let mut model: BTreeMap<u64, u8> = BTreeMap::new();
        // Bytes of refused writes are nobody's.
        let mut given_up: BTreeSet<u64> = BTreeSet::new();
        let mut flights: Vec<Run> = Vec::new();
        for step in steps {
            match step {
                Step::Write(offset, data) => {
                    held.insert(offset, &data, GATHER);
                    for (index, byte) in data.iter().enumerate() {
                        model.insert(offset + index as u64, *byte);
                        given_up.remove(&(offset + index as u64));
                    }
                }
                Step::Depart(bytes_max) => {
                    if let Some(run) = held.depart(bytes_max) {
                        prop_assert!(!run.bytes().is_empty() && run.bytes().len() <= bytes_max);
                        let end = run.offset + run.bytes().len() as u64;
                        for other in &flights {
                            let other_end = other.offset + other.bytes().len() as u64;
                            prop_assert!(end <= other.offset || other_end <= run.offset);
                        }
                        flights.push(run);
                    }
                }
                Step::Arrive { which, count, stable } if !flights.is_empty() => {
                    let index = which % flights.len();
                    let run = flights.swap_remove(index);
                    let count = count.min(run.bytes().len() as u64);
                    for (index, byte) in run.bytes().iter().take(count as usize).enumerate() {
                        let at = run.offset + index as u64;
                        if stable {
                            server.memory.remove(&at);
                            server.disk.insert(at, *byte);
                        } else {
                            server.memory.insert(at, *byte);
                        }
                    }
                    held.acknowledge(&run, count, (!stable).then_some([server.boots; 8]));
                }
                Step::Refuse { which } if !flights.is_empty() => {
                    let index = which % flights.len();
                    let run = flights.swap_remove(index);
                    let end = run.offset + run.bytes().len() as u64;
                    let before = bytes(&held, run.offset, end);
                    held.give_up(&run);
                    for (index, (was, is)) in before.iter().zip(bytes(&held, run.offset, end)).enumerate() {
                        if was.is_some() && is.is_none() {
                            given_up.insert(run.offset + index as u64);
                        }
                    }
                }
                Step::Commit { restarted } => {
                    if restarted {
                        server.memory.clear();
                        server.boots += 1;
                    }
                    let mark = held.mark();
                    let memory = std::mem::take(&mut server.memory);
                    server.disk.extend(memory);
                    held.committed(mark, [server.boots; 8]);
                }
                // As the write-back does it: nothing is in flight then.
                Step::Truncate(size) if flights.is_empty() => {
                    server.cut(size);
                    held.truncate(size);
                    model.retain(|at, _| *at < size);
                }
                _ => {}
            }
            let overlay = bytes(&held, 0, 64);
            for at in 0..64 {
                if given_up.contains(&at) {
                    continue;
                }
                let seen = overlay[at as usize].or_else(|| server.seen(at));
                prop_assert_eq!(seen, model.get(&at).copied(), "byte {}", at);
            }
            let total = overlay.iter().flatten().count();
            prop_assert_eq!(held.bytes(), total);
        }
        // Everything arrives.
        for run in flights.drain(..) {
            held.give_up(&run);
            given_up.extend(run.offset..run.offset + run.bytes().len() as u64);
        }
        while let Some(run) = held.depart(7) {
            for (index, byte) in run.bytes().iter().enumerate() {
                server.memory.insert(run.offset + index as u64, *byte);
            }
            held.acknowledge(&run, run.bytes().len() as u64, Some([server.boots; 8]));
        }
        let memory = std::mem::take(&mut server.memory);
        server.disk.extend(memory);
        // What was acknowledged before a restart is written again.
        while held.committed(held.mark(), [server.boots; 8]) {
            while let Some(run) = held.depart(64) {
                for (index, byte) in run.bytes().iter().enumerate() {
                    server.disk.insert(run.offset + index as u64, *byte);
                }
                held.acknowledge(&run, run.bytes().len() as u64, None);
            }
        }
        prop_assert!(held.is_empty());
        for at in (0..64).filter(|at| !given_up.contains(at)) {
            prop_assert_eq!(server.disk.get(&at), model.get(&at));
        }
    }
}
