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
    assert_eq!(held.weight().bytes, 4);
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
    assert_eq!((held.end(), held.weight().bytes), (None, 10));
    held.trust_acknowledged(false);
    assert_eq!((bytes(&held, 9, 10), held.end()), (vec![Some(b'j')], Some(10)));
}

/// A recovery brings it back from the journal, and nothing else does.
#[test]
fn what_only_a_journal_has_is_neither_read_nor_sent_again() {
    let mut held = Held::default();
    held.insert(0, b"abcd", GATHER);
    let run = held.depart(8).unwrap();
    held.acknowledge_keeping(&run, 4, Some([1; 8]), false);
    held.insert(2, b"x", GATHER);
    assert_eq!(bytes(&held, 0, 4), [None, None, Some(b'x'), None]);
    assert_eq!(held.weight(), Weight { bytes: 4, waiting: 1, acknowledged: 0 });
    let mark = held.mark();
    held.resend_unstable(mark);
    assert!(held.committed(mark, [2; 8]), "the server is another one");
    assert_eq!((held.dirty_bytes(), held.unstable_bytes()), (1, 3));
    held.made_stable(mark, [2; 8]);
    assert_eq!(held.unstable_bytes(), 3, "it was acknowledged under another verifier");
    held.forget_elsewhere();
    assert_eq!(held.weight(), Weight { bytes: 1, waiting: 1, acknowledged: 0 });
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

    /// What tells its lives apart.
    fn verifier(&self) -> [u8; 8] {
        [self.boots; 8]
    }

    fn commit(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        self.disk.extend(memory);
    }

    fn cut(&mut self, size: u64) {
        self.disk.retain(|at, _| *at < size);
        self.memory.retain(|at, _| *at < size);
    }
}

/// What is held, the server, and what was written.
#[derive(Default)]
struct World {
    held: Held,
    server: Server,
    model: BTreeMap<u64, u8>,
    /// Bytes of refused writes are nobody's.
    given_up: BTreeSet<u64>,
    flights: Vec<Run>,
}

impl World {
    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Write(offset, data) => self.write(offset, &data),
            Step::Depart(bytes_max) => self.depart(bytes_max)?,
            Step::Arrive { which, count, stable } if !self.flights.is_empty() => {
                let run = self.flights.swap_remove(which % self.flights.len());
                self.arrive(&run, count.min(run.bytes().len() as u64), stable);
            }
            Step::Refuse { which } if !self.flights.is_empty() => {
                let run = self.flights.swap_remove(which % self.flights.len());
                self.refuse(&run);
            }
            Step::Commit { restarted } => {
                if restarted {
                    self.server.memory.clear();
                    self.server.boots += 1;
                }
                let mark = self.held.mark();
                self.server.commit();
                self.held.committed(mark, self.server.verifier());
            }
            // As the write-back does it: nothing is in flight then.
            Step::Truncate(size) if self.flights.is_empty() => {
                self.server.cut(size);
                self.held.truncate(size);
                self.model.retain(|at, _| *at < size);
            }
            Step::Arrive { .. } | Step::Refuse { .. } | Step::Truncate(_) => {}
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        self.held.insert(offset, data, GATHER);
        for (at, byte) in (offset..).zip(data) {
            self.model.insert(at, *byte);
            self.given_up.remove(&at);
        }
    }

    /// A WRITE is sent: of bytes of which none is in flight.
    fn depart(&mut self, bytes_max: usize) -> Result<(), TestCaseError> {
        let Some(run) = self.held.depart(bytes_max) else { return Ok(()) };
        prop_assert!(!run.bytes().is_empty() && run.bytes().len() <= bytes_max);
        let end = run.offset + run.bytes().len() as u64;
        for other in &self.flights {
            let other_end = other.offset + other.bytes().len() as u64;
            prop_assert!(end <= other.offset || other_end <= run.offset);
        }
        self.flights.push(run);
        Ok(())
    }

    /// The server does a WRITE up to a count, and answers.
    fn arrive(&mut self, run: &Run, count: u64, is_stable: bool) {
        for (at, byte) in (run.offset..).zip(run.bytes()).take(count as usize) {
            if is_stable {
                self.server.memory.remove(&at);
                self.server.disk.insert(at, *byte);
            } else {
                self.server.memory.insert(at, *byte);
            }
        }
        self.held.acknowledge(run, count, (!is_stable).then_some(self.server.verifier()));
    }

    /// The server refuses a WRITE. What was written over meanwhile is held all the same.
    fn refuse(&mut self, run: &Run) {
        let end = run.offset + run.bytes().len() as u64;
        let before = bytes(&self.held, run.offset, end);
        self.held.give_up(run);
        let after = bytes(&self.held, run.offset, end);
        for (at, (was, is)) in (run.offset..).zip(before.iter().zip(after)) {
            if was.is_some() && is.is_none() {
                self.given_up.insert(at);
            }
        }
    }

    /// What is held, laid over what the server has, is what was written.
    fn check(&self) -> Result<(), TestCaseError> {
        let overlay = bytes(&self.held, 0, 64);
        for at in (0..64).filter(|at| !self.given_up.contains(at)) {
            let seen = overlay[at as usize].or_else(|| self.server.seen(at));
            prop_assert_eq!(seen, self.model.get(&at).copied(), "byte {}", at);
        }
        prop_assert_eq!(self.held.weight().bytes, overlay.iter().flatten().count());
        Ok(())
    }

    /// Nothing more is written, and all that is held becomes stable; but what is in flight never arrives.
    fn end(&mut self) {
        for run in std::mem::take(&mut self.flights) {
            self.held.give_up(&run);
            self.given_up.extend(run.offset..run.offset + run.bytes().len() as u64);
        }
        while let Some(run) = self.held.depart(7) {
            self.arrive(&run, run.bytes().len() as u64, false);
        }
        self.server.commit();
        // What was acknowledged before a restart is written again.
        while self.held.committed(self.held.mark(), self.server.verifier()) {
            while let Some(run) = self.held.depart(64) {
                self.arrive(&run, run.bytes().len() as u64, true);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Whatever is held, laid over what the server has, is what was written, at each moment; and
    /// once nothing is held the server's disk has it.
    #[test]
    fn held_and_stable_bytes_are_what_was_written(steps in proptest::collection::vec(step(), 1..80)) {
        let mut world = World::default();
        for step in steps {
            world.step(step)?;
            world.check()?;
        }
        world.end();
        prop_assert!(world.held.is_empty());
        for at in (0..64).filter(|at| !world.given_up.contains(at)) {
            prop_assert_eq!(world.server.disk.get(&at), world.model.get(&at));
        }
    }
}
