//! Property ring: random histories of a log with crashes at any write, of which any sectors may be
//! on the medium. What was said to be stable is found, in order, byte for byte; what was never
//! completed is not; nor is anything of an epoch before.
#![allow(clippy::expect_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use steadfast_intent_log::testing::MemoryMedium;
use steadfast_intent_log::{
    Batch, End, Extent, Identity, IntentLog, Lsn, Medium, Reader, Refused, Superblock, adopt,
    format, inspect, survey,
};

const HOST: [u8; 16] = [9; 16];
const UUID: [u8; 16] = *b"log-id!!the rest";

#[derive(Clone, Debug)]
enum Step {
    /// Admit and reserve.
    Begin {
        file_system: usize,
        length: usize,
    },
    /// Admit and cancel.
    Cancel {
        length: usize,
    },
    /// One of those reserved is complete (or void).
    Complete {
        which: usize,
        is_void: bool,
    },
    Take,
    /// One of the batches in flight is on the medium.
    Land {
        which: usize,
    },
    /// All that, one record after the other, so that the ring is gone round often.
    Run {
        count: usize,
        length: usize,
    },
    Checkpoint {
        file_system: usize,
        is_stable_only: bool,
    },
    /// Superblocks are written.
    Superblocks,
    /// One copy only.
    Superblock,
    Register {
        number: u8,
    },
    /// Any sectors of all that is in flight are there; perhaps of a superblock too.
    Crash {
        sectors: Vec<u64>,
        superblock: Option<u64>,
        damage: Option<u64>,
    },
    /// Stop: complete, write, checkpoint everything, and close.
    Stop,
}

fn step() -> impl Strategy<Value = Step> {
    use Step as S;
    let length = || prop_oneof![4 => 0_usize..300, 1 => 3000_usize..20_000];
    let words = || prop::collection::vec(any::<u64>(), 8);
    prop_oneof![
        12 => (0_usize..3, length()).prop_map(|(file_system, length)| S::Begin { file_system, length }),
        1 => length().prop_map(|length| S::Cancel { length }),
        12 => (any::<usize>(), prop::bool::weighted(0.1))
            .prop_map(|(which, is_void)| S::Complete { which, is_void }),
        8 => Just(S::Take),
        8 => any::<usize>().prop_map(|which| S::Land { which }),
        6 => (1_usize..20, length()).prop_map(|(count, length)| S::Run { count, length }),
        4 => (0_usize..3, any::<bool>())
            .prop_map(|(file_system, is_stable_only)| S::Checkpoint { file_system, is_stable_only }),
        2 => Just(S::Superblocks),
        3 => Just(S::Superblock),
        1 => (0_u8..6).prop_map(|number| S::Register { number }),
        2 => (words(), any::<Option<u64>>(), any::<Option<u64>>())
            .prop_map(|(sectors, superblock, damage)| S::Crash { sectors, superblock, damage }),
        1 => Just(S::Stop),
    ]
}

/// A server with a log, and what it must hold.
struct Model {
    medium: MemoryMedium,
    log: IntentLog,
    file_systems: Vec<u32>,
    /// Reserved in this epoch: file system, payload if completed.
    records: BTreeMap<Lsn, (u32, Option<Vec<u8>>)>,
    bounds: BTreeMap<Lsn, usize>,
    pending: Vec<Lsn>,
    in_flight: Vec<Batch>,
    stable: Lsn,
    /// By index of the file system, what was checkpointed.
    checkpointed: BTreeMap<u32, Lsn>,
    used: BTreeSet<Lsn>,
    counter: u64,
}

fn identity(number: u8) -> Identity {
    Identity { uuid: [number; 16], kind: 1 }
}

fn resume(medium: &MemoryMedium, superblock: &Superblock) -> (IntentLog, Vec<u32>) {
    let found = survey(medium, superblock);
    let log = IntentLog::resume(superblock, &found, HOST, 1).expect("numbers are left");
    let file_systems = (0..3).map(|n| log.register(identity(n), b"/srv").expect("room")).collect();
    log.write_superblocks(medium, false).expect("written");
    (log, file_systems)
}

impl Model {
    fn new(ring_blocks: usize) -> Self {
        let medium = MemoryMedium::new((128 << 10) + ring_blocks * 4096);
        let superblock = format(&medium, UUID, HOST, 1).expect("written");
        let (log, file_systems) = resume(&medium, &superblock);
        Self {
            medium,
            log,
            file_systems,
            records: BTreeMap::new(),
            bounds: BTreeMap::new(),
            pending: Vec::new(),
            in_flight: Vec::new(),
            stable: Lsn(0),
            checkpointed: BTreeMap::new(),
            used: BTreeSet::new(),
            counter: 0,
        }
    }

    fn payload(&mut self, length: usize) -> Vec<u8> {
        self.counter += 1;
        let seed = self.counter.to_le_bytes();
        seed.iter().copied().cycle().take(length).collect()
    }

    fn begin(&mut self, file_system: usize, length: usize) {
        let file_system = self.file_systems[file_system];
        match self.log.admit(length) {
            Ok(admission) => {
                let lsn = self.log.reserve(admission, file_system);
                assert_eq!(lsn, self.log.last());
                assert!(self.used.insert(lsn), "LSNs are never used again");
                assert!(self.used.last() == Some(&lsn), "they grow");
                self.records.insert(lsn, (file_system, None));
                self.bounds.insert(lsn, length);
                self.pending.push(lsn);
            }
            Err(Refused::Full { wanted_bytes, free_bytes }) => assert!(wanted_bytes > free_bytes),
            Err(Refused::TooLarge { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }

    fn complete(&mut self, which: usize, is_void: bool) {
        if self.pending.is_empty() {
            return;
        }
        let lsn = self.pending.swap_remove(which % self.pending.len());
        let length =
            if is_void { 0 } else { self.bounds[&lsn] - which % 3 % (self.bounds[&lsn] + 1) };
        let payload = self.payload(length);
        if let Some((_, place)) = self.records.get_mut(&lsn) {
            *place = Some(payload.clone());
        }
        if is_void {
            self.log.void(lsn)
        } else {
            self.log.complete(lsn, payload)
        };
    }

    fn take(&mut self) {
        let mut batch = Batch::default();
        if self.log.take_batch(&mut batch) {
            assert_eq!(batch.record_count(), batch.last().0 - batch.first().0 + 1);
            self.in_flight.push(batch);
        }
    }

    fn land(&mut self, which: usize) {
        if self.in_flight.is_empty() {
            return;
        }
        let batch = self.in_flight.swap_remove(which % self.in_flight.len());
        batch.write_to(&self.medium).expect("written");
        let stable = self.log.written(&batch);
        assert!(stable >= self.stable);
        assert_eq!(stable, self.log.stable());
        self.stable = stable;
    }

    fn checkpoint(&mut self, file_system: usize, is_stable_only: bool) {
        let file_system = self.file_systems[file_system];
        let up_to = if is_stable_only { self.log.stable() } else { self.log.last() };
        self.log.checkpointed(file_system, up_to);
        let before = self.checkpointed.entry(file_system).or_default();
        *before = up_to.max(*before);
    }

    /// Records that must be found now.
    fn needed(&self) -> Vec<(Lsn, u32, Vec<u8>)> {
        let needed = self.records.range(..=self.stable).filter_map(|(lsn, (index, payload))| {
            let payload = payload.clone().expect("what is stable was complete");
            let is_needed = !payload.is_empty()
                && *lsn > self.checkpointed.get(index).copied().unwrap_or_default();
            is_needed.then_some((*lsn, *index, payload))
        });
        needed.collect()
    }

    /// Reads, and holds what is found against what must be and what can be.
    fn check(&self, reader: &mut Reader<'_>) {
        let mut found = Vec::new();
        let mut last = None;
        for record in &mut *reader {
            assert!(last.is_none_or(|last| record.lsn > last));
            last = Some(record.lsn);
            let known = self.records.get(&record.lsn);
            let (index, payload) = known.expect("a record of this epoch");
            assert_eq!(Some(&record.payload), payload.as_ref(), "as it was completed");
            assert_eq!(*index, record.file_system);
            if record.is_live {
                found.push((record.lsn, record.file_system, record.payload));
            }
        }
        for needed in self.needed() {
            assert!(
                found.contains(&needed),
                "{} of {:?} is lost: {:?}",
                needed.0,
                self.stable,
                reader.end()
            );
        }
    }

    fn crash(&mut self, sectors: &[u64], superblock: Option<u64>, damage: Option<u64>) {
        for (batch, sectors) in self.in_flight.drain(..).zip(sectors) {
            for (offset, blocks) in batch.writes() {
                self.medium.write_torn(offset, blocks, *sectors);
            }
        }
        match (superblock, damage) {
            (Some(sectors), _) => {
                let next = self.log.superblock(false);
                self.medium.write_torn(next.offset(), &next.encode().expect("fits"), sectors);
            }
            // A copy, whichever, is lost altogether: the other is as good.
            (None, Some(bit)) => {
                let slot = bit % 2;
                let bit = slot * (64 << 13) + 128 + bit / 2 % 800;
                self.medium.flip(bit);
            }
            (None, None) => {}
        }
        self.start();
    }

    fn start(&mut self) {
        let facts = inspect(&self.medium);
        let superblock = facts.superblock().expect("a copy counts").clone();
        let mut reader = Reader::new(&self.medium, Extent::of(&superblock));
        self.check(&mut reader);
        assert!(
            matches!(reader.end(), Some(End::Clean | End::Gap { .. })),
            "a crash is not taken for damage: {:?}",
            reader.end()
        );
        drop(reader);
        // Adopting changes nothing but the host.
        let superblock = if self.counter.is_multiple_of(5) {
            adopt(&self.medium, &superblock, HOST).expect("written")
        } else {
            superblock
        };
        // All that was found is replayed and checkpointed.
        (self.log, self.file_systems) = resume(&self.medium, &superblock);
        let used = self.used.last().copied().unwrap_or_default();
        assert!(self.log.last() >= used, "LSNs go on after those that were reserved");
        self.records.clear();
        self.pending.clear();
        self.bounds.clear();
        self.checkpointed.clear();
        self.stable = self.log.stable();
        let facts = inspect(&self.medium);
        let found = survey(&self.medium, facts.superblock().expect("counts"));
        assert_eq!(found.records, 0, "a new epoch begins with nothing");
    }

    fn stop(&mut self) {
        while !self.pending.is_empty() {
            self.complete(0, false);
        }
        self.log.write_superblocks(&self.medium, false).expect("written");
        loop {
            self.take();
            if self.in_flight.is_empty() {
                break;
            }
            self.land(0);
        }
        assert_eq!(self.log.stable(), self.log.last());
        for usage in self.log.usage().file_systems {
            self.log.checkpointed(usage.entry.index, self.log.stable());
            self.checkpointed.insert(usage.entry.index, self.log.stable());
        }
        assert!(self.log.write_superblocks(&self.medium, true).expect("written"), "it is clean");
        assert!(matches!(self.log.admit(0), Err(Refused::Closed)));
        let facts = inspect(&self.medium);
        let superblock = facts.superblock().expect("counts");
        assert!(superblock.is_clean);
        assert_eq!(survey(&self.medium, superblock).live_records(), 0);
        self.start();
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Begin { file_system, length } => self.begin(file_system, length),
            Step::Cancel { length } => {
                if let Ok(admission) = self.log.admit(length) {
                    self.log.cancel(admission);
                }
            }
            Step::Complete { which, is_void } => self.complete(which, is_void),
            Step::Take => self.take(),
            Step::Land { which } => self.land(which),
            Step::Run { count, length } => {
                for number in 0..count {
                    self.begin(number % 3, length);
                    while !self.pending.is_empty() {
                        self.complete(number, false);
                    }
                    self.take();
                    self.land(number);
                }
            }
            Step::Checkpoint { file_system, is_stable_only } => {
                self.checkpoint(file_system, is_stable_only);
            }
            Step::Superblocks => {
                self.log.write_superblocks(&self.medium, false).expect("written");
            }
            Step::Superblock => {
                let next = self.log.superblock(false);
                self.medium
                    .write_at(next.offset(), &next.encode().expect("fits"))
                    .expect("written");
                self.log.superblock_written(&next);
            }
            Step::Register { number } => {
                self.log.register(identity(number), b"/mnt/other").expect("room");
            }
            Step::Crash { sectors, superblock, damage } => {
                self.crash(&sectors, superblock, damage);
            }
            Step::Stop => self.stop(),
        }
        let usage = self.log.usage();
        assert!(usage.used_bytes + usage.promised_bytes <= usage.ring_bytes);
        let taken = (usage.used_bytes + usage.promised_bytes, usage.ring_bytes);
        assert_eq!(self.log.taken(), taken);
        self.check(&mut Reader::new(&self.medium, self.log.extent()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases, ..ProptestConfig::default() })]

    #[test]
    fn what_is_stable_survives(
        steps in prop::collection::vec(step(), 1..400),
        ring_blocks in 4_usize..40,
    ) {
        let mut model = Model::new(ring_blocks);
        for step in steps {
            model.step(step);
        }
        model.crash(&[u64::MAX; 8], None, None);
    }
}
