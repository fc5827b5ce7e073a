//! Property ring: a client in memory makes random changes over a model of a server, one or both crash, others
//! change files meanwhile, the replay is cut off, and is repeated.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod client;
mod foreign;
mod model;
mod single;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;

use steadfast_intent_log::testing::MemoryMedium;
use steadfast_journal::Journal;

use super::keeper::{Keeper, Kept};
use super::{Carried, ReplayError, Report, run};
use client::{Client, open};
use model::{Content, Fault, Model, mix};

const TRANSFER_BYTES: usize = 48;

/// Conflict files in memory: by name, what is at which offset.
#[derive(Debug, Default)]
struct Memory(BTreeMap<String, Vec<(u64, Vec<u8>)>>);

impl Keeper for Memory {
    fn keep(
        &mut self,
        kept: &Kept<'_>,
        pieces: &mut dyn Iterator<Item = (u64, Vec<u8>)>,
    ) -> io::Result<String> {
        let name = format!("{}.{}", String::from_utf8_lossy(kept.path), kept.sequence);
        self.0.insert(name.clone(), pieces.collect());
        Ok(name)
    }
}

impl Memory {
    fn has(&self, offset: u64, data: &[u8]) -> bool {
        self.0.values().flatten().any(|(at, kept)| {
            let from = offset.checked_sub(*at).map(|from| from as usize);
            from.and_then(|from| kept.get(from..from + data.len())) == Some(data)
        })
    }
}

fn replay(
    journal: &Journal,
    model: &mut Model,
    keeper: &mut Memory,
    carried: &mut Carried,
) -> Result<Report, ReplayError> {
    let none = HashSet::new();
    let replayed = run(journal, model, keeper, TRANSFER_BYTES, &none, carried, &mut |_, _| {});
    replayed.map(|replayed| replayed.report)
}

/// One history. Everything in it is chosen by the seed.
struct History {
    seed: u64,
    model: Model,
    client: Client,
    medium: Arc<MemoryMedium>,
    /// What others have written: file, offset, bytes.
    foreign: Vec<(u64, u64, Vec<u8>)>,
    keeper: Memory,
    report: Report,
}

impl History {
    fn chance(&mut self, of: u64) -> bool {
        self.seed = mix(self.seed);
        self.seed % 100 < of
    }

    fn choose(&mut self, below: u64) -> u64 {
        self.seed = mix(self.seed);
        self.seed % below.max(1)
    }

    fn run(seed: u64, is_async: bool, has_others: bool) -> Self {
        let mut model = Model::new(is_async);
        model.has_program = seed.is_multiple_of(2);
        let (client, medium) = Client::run(seed, &mut model, is_async, true);
        let (keeper, report) = (Memory::default(), Report::default());
        let mut this = Self { seed, model, client, medium, foreign: Vec::new(), keeper, report };
        if this.chance(60) {
            let how = this.choose(1 << 40);
            this.model.crash(how);
        }
        if has_others {
            this.others();
        }
        this.replay_with_faults(is_async);
        this
    }

    /// What others do while the client is down: bytes that the client never writes.
    fn others(&mut self) {
        for round in 0..=self.choose(3) {
            let files: Vec<u64> = self
                .model
                .inodes
                .iter()
                .filter(|(_, inode)| matches!(inode.content, Content::File(_)))
                .map(|(number, _)| *number)
                .collect();
            self.model.clock += 10;
            if files.is_empty() || self.chance(20) {
                let name = [b'a' + self.choose(3) as u8];
                self.model.others_make(&name);
                continue;
            }
            let file = files[self.choose(files.len() as u64) as usize];
            let (offset, bytes) = (self.choose(60), 1 + self.choose(20) as usize);
            let data = vec![0xe0 + round as u8; bytes];
            // The newer of two writes counts.
            self.foreign.retain(|(other, ..)| *other != file);
            if self.model.others_write(file, offset, &data) {
                self.foreign.push((file, offset, data));
            }
        }
    }

    fn replay_with_faults(&mut self, is_async: bool) {
        let mut medium = Arc::clone(&self.medium);
        for attempt in 0..4 {
            let (journal, _) = open(&medium);
            self.model.faults.clear();
            if attempt < 3 {
                let at = self.model.calls + 1 + self.choose(40);
                let fault = match self.choose(3) {
                    0 => Fault::Lost,
                    1 => Fault::Unanswered,
                    // Changes of names alone have no verifier that tells.
                    _ if !self.client.has_file && !self.model.has_program => Fault::Lost,
                    // The connection tells of it (`Recovery`).
                    _ if is_async && self.model.has_program => {
                        Fault::SeenRestart(self.choose(1 << 40))
                    }
                    _ => Fault::Restart(self.choose(1 << 40)),
                };
                self.model.faults.insert(at, fault);
            }
            let outcome =
                replay(&journal, &mut self.model, &mut self.keeper, &mut Carried::default());
            let is_done = outcome.is_ok();
            match outcome {
                Ok(report) => self.report.conflicts.extend(report.conflicts),
                Err(ReplayError::Unreachable(_) | ReplayError::Restarted) => {}
                Err(error) => panic!("{error}"),
            }
            if is_done {
                assert!(journal.pending().is_empty(), "seed {}", self.client.seed);
            }
            if self.chance(50) {
                // The client crashes: what was not synced is not there.
                medium = Arc::new(MemoryMedium::from_image(medium.image()));
            }
        }
        assert!(open(&medium).0.pending().is_empty());
    }

    /// What was synced is at the server or in a conflict file.
    fn nothing_is_lost(&self) {
        for (file, offset, data) in self.client.due() {
            let from = offset as usize;
            let is_there = self.model.inodes.values().any(|inode| match &inode.content {
                Content::File(bytes) => bytes.get(from..from + data.len()) == Some(&data[..]),
                _ => false,
            });
            assert!(
                is_there || self.keeper.has(offset, &data),
                "seed {}: {data:?} of file {file} at {offset} is lost\n{:#?} {:#?}",
                self.client.seed,
                self.report.conflicts,
                self.client.log
            );
        }
    }

    fn others_keep_theirs(&self) {
        for (file, offset, data) in &self.foreign {
            let Some(inode) = self.model.inodes.get(file) else { continue };
            let Content::File(bytes) = &inode.content else { continue };
            let from = *offset as usize;
            assert_eq!(
                bytes.get(from..from + data.len()),
                Some(&data[..]),
                "seed {}: others' bytes of file {file} at {offset} {:#?}",
                self.client.seed,
                self.client.log
            );
        }
    }
}

#[test]
fn without_others_the_tree_is_that_of_the_changes_in_order() {
    let (mut conflicts, mut count) = (0, 0);
    for seed in 0..400 {
        for is_async in [false, true] {
            let mut history = History::run(seed, is_async, false);
            history.nothing_is_lost();
            count += 1;
            // What was in flight over old bytes when the client died cannot be told from others' changes.
            if !history.report.conflicts.is_empty() {
                conflicts += 1;
                continue;
            }
            if history.client.has_file || history.model.has_program {
                history.model.crash_hard();
            }
            let (is, wanted) = (history.model.tree(), history.client.ideal.tree());
            let log = &history.client.log;
            assert_eq!(is, wanted, "seed {seed} async {is_async} {log:#?}");
        }
    }
    println!("{conflicts} of {count} histories ended with a conflict");
}

/// The client lives on, and so knows what it has changed itself, in attempts that came to no end, too.
#[test]
fn a_server_that_crashes_in_each_attempt_of_a_recovery_makes_no_conflict() {
    for (seed, has_program) in (0..1000).flat_map(|seed| [(seed, true), (seed, false)]) {
        let mut model = Model::new(true);
        model.has_program = has_program;
        let (client, medium) = Client::run(seed, &mut model, true, false);
        // Without a file no foreign server tells of its crash.
        if !has_program && !client.has_file {
            continue;
        }
        let (mut keeper, mut carried) = (Memory::default(), Carried::default());
        let (journal, _) = open(&medium);
        let mut random = seed;
        let mut choose = |below: u64| {
            random = mix(random);
            random % below
        };
        for attempt in 0..6 {
            model.crash(choose(1 << 40));
            model.faults.clear();
            if attempt < 5 {
                let restart = Fault::SeenRestart(choose(1 << 40));
                let fault = [Fault::Lost, Fault::Unanswered, restart][choose(3) as usize];
                model.faults.insert(model.calls + 1 + choose(30), fault);
            }
            match replay(&journal, &mut model, &mut keeper, &mut carried) {
                Ok(report) => assert!(
                    report.conflicts.is_empty(),
                    "seed {seed}: {report:#?} {:#?}",
                    client.log
                ),
                Err(ReplayError::Unreachable(_) | ReplayError::Restarted) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert!(journal.pending().is_empty());
        model.crash_hard();
        assert_eq!(model.tree(), client.ideal.tree(), "seed {seed} {:#?}", client.log);
    }
}

#[test]
fn with_others_nothing_of_anybody_is_lost() {
    for seed in 0..400 {
        for is_async in [false, true] {
            let history = History::run(seed, is_async, true);
            history.nothing_is_lost();
            history.others_keep_theirs();
        }
    }
}
