//! What local processes change after a crash, and before the start, concerns what they changed, and nothing else.

use super::*;

/// What a local process does: what, and two choices.
type LocalStep = (u8, u8, u8);

/// The names of an object, without those that replay has made.
fn names_of(disk: &Disk, object: &ObjectKey) -> Vec<(ObjectKey, Vec<u8>)> {
    let dirs = disk.nodes.keys().filter_map(|dir| Some((*dir, disk.names_of(dir)?)));
    let all = dirs.flat_map(|(dir, names)| names.iter().map(move |(name, to)| (dir, name, to)));
    let its = all.filter(|(_, name, to)| *to == object && !name.starts_with(ASIDE_PREFIX));
    let mut its: Vec<_> = its.map(|(dir, name, _)| (dir, name.clone())).collect();
    its.sort();
    its
}

/// Whether an object is another one, or has a name beneath it.
fn is_beneath(disk: &Disk, object: &ObjectKey, above: &ObjectKey) -> bool {
    object == above || names_of(disk, object).iter().any(|(dir, _)| disk.is_beneath(dir, above))
}

/// Changes what a crash has left. New files get the handles in `lost` first.
struct Locals {
    lost: Vec<ObjectKey>,
    /// What has lost a name, or was changed by what was under way.
    concerned: Vec<ObjectKey>,
    fresh: Vec<Vec<u8>>,
}

impl Locals {
    fn step(&mut self, disk: &mut Disk, (what, one, other): LocalStep) {
        disk.clock += 1;
        let dir = directory(disk, one);
        let bound = disk.names_of(&dir).unwrap();
        let mut files: Vec<(Vec<u8>, ObjectKey)> =
            bound.iter().map(|(name, to)| (name.clone(), *to)).collect();
        files.retain(|(name, to)| {
            disk.names_of(to).is_none_or(std::collections::BTreeMap::is_empty)
                && !self.fresh.contains(name)
        });
        let file = files.get(usize::from(other) % files.len().max(1)).cloned();
        match (what % 4, file) {
            (0, Some((_, file))) if disk.names_of(&file).is_none() => {
                disk.put(&file, usize::from(other % 5), b"local");
                disk.touch(&file, true);
            }
            (what @ (1 | 2), Some((name, file))) => {
                let is_moved = what == 2 && disk.names_of(&file).is_none();
                let moved = format!("moved-{}", self.concerned.len()).into_bytes();
                disk.change_names(&dir, |names| {
                    names.remove(&name);
                    names.extend(is_moved.then_some((moved, file)));
                });
                disk.touch(&file, false);
                disk.reap(&file);
                self.concerned.push(file);
            }
            _ => {
                let name = format!("local-{}", self.fresh.len()).into_bytes();
                let handle = self.lost.pop().unwrap_or(key(5000 + self.fresh.len() as u64));
                disk.add(handle, FileKind::Regular);
                disk.change_names(&dir, |names| {
                    names.insert(name.clone(), handle);
                });
                self.fresh.push(name);
            }
        }
    }
}

/// What records name as changed, but for directories by changes of names in them.
fn changed(records: &[Vec<u8>]) -> Vec<ObjectKey> {
    let of = |record: &Vec<u8>| match Change::decode(record).unwrap().0.action {
        Action::Rename { object, victim, .. } => vec![Some(object), victim.map(|it| it.object)],
        Action::Remove { unlinked, .. } => vec![Some(unlinked.object)],
        Action::Make { object, .. } | Action::Link { object, .. } => vec![Some(object)],
        _ => vec![],
    };
    records.iter().flat_map(of).flatten().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Files that are written to, made, moved or unlinked after a crash take no name from others, and give them none; nor do
    /// empty directories that are removed, but for what belongs beneath them.
    #[test]
    fn what_is_changed_after_a_crash_concerns_nothing_else(
        steps in steps(),
        tick in 1..4_i64,
        begin: proptest::sample::Index,
        prefix: proptest::sample::Index,
        luck in proptest::collection::vec(any::<bool>(), 1..40),
        beyond: Option<(proptest::sample::Index, usize)>,
        under_way in proptest::option::of(0..3_usize),
        locals in proptest::collection::vec(any::<LocalStep>(), 1..5),
        takes_handles: bool,
        sets_ctimes: bool,
        started: bool,
        cuts in proptest::collection::vec(0..30_usize, 0..3),
    ) {
        let run = run(&steps, tick);
        let prefix = prefix.index(run.states.len());
        // What came before a checkpoint is not in the log any more.
        let begin = begin.index(prefix + 1);
        let end = under_way.map_or(run.records.len(), |count| begin.max(prefix.saturating_sub(count)));
        let (records, last) = (&run.records[begin..end], &run.states[end]);
        let mut disk = crash(&run, prefix, &luck);
        disk.sets_ctimes = sets_ctimes;
        if let Some((later, choice)) = beyond.filter(|_| sets_ctimes && under_way.is_none()) {
            bring_forward(&mut disk, &run.states[prefix + later.index(run.states.len() - prefix)], choice);
            let all: Vec<ObjectKey> = disk.nodes.keys().copied().collect();
            for object in &all {
                disk.reap(object);
            }
        }
        let was_there = |object: &ObjectKey| {
            disk.nodes.contains_key(object)
                || run.states[..=prefix].iter().any(|it| it.nodes.contains_key(object))
        };
        let mut lost: Vec<ObjectKey> = last.nodes.keys().copied().collect();
        lost.retain(|object| takes_handles && !was_there(object));
        lost.sort();
        disk.clock = 1_000_000;
        let mut done = Locals { lost, concerned: changed(&run.records[end.min(prefix)..prefix]), fresh: vec![] };
        for local in locals {
            done.step(&mut disk, local);
        }
        let left = names(&disk);
        let started = (started || under_way.is_some()).then_some(time(900_000));
        let by = || Replay::default().on_machine_started(started);
        let mut observed = None;
        disk.clock = 2_000_000;
        for cut in cuts {
            disk.budget = Some(cut);
            let _ = replay_by(by(), &mut disk, records, &mut observed);
        }
        disk.budget = None;
        let report = replay_by(by(), &mut disk, records, &mut observed).unwrap();
        let told = || records.iter().map(|it| Change::decode(it).unwrap().0.action).collect::<Vec<_>>();
        for object in run.states.iter().flat_map(|it| it.nodes.keys()) {
            if !done.concerned.iter().any(|it| is_beneath(last, object, it)) {
                prop_assert_eq!(
                    names_of(&disk, object), names_of(last, object), "{:?} of {:#?} left {:#?} but {:?} {:#?}",
                    object, told(), left, done.concerned, report.conflicts
                );
            }
        }
        for name in &done.fresh {
            let mut dirs = disk.nodes.keys().filter_map(|dir| disk.names_of(dir));
            prop_assert!(dirs.any(|names| names.contains_key(name)), "{:?}", name);
        }
    }
}

/// Two files, of which a client gives the first another name, and the second the one that it had. The crash takes
/// both changes, and the second, which cannot be made again, is unlinked before the start.
struct Successor {
    disk: Disk,
    records: Vec<Vec<u8>>,
}

const MOVED: u64 = 1000;
const OTHER: u64 = 1001;
const NEW_DIR: u64 = 600;

impl Successor {
    /// `is_linked`: the first has another name already, and just loses this one. `ticks` of the clock pass between
    /// one change and the next.
    fn new(sets_ctimes: bool, is_linked: bool, ticks: i64) -> Self {
        let mut disk = Disk::new();
        disk.sets_ctimes = sets_ctimes;
        disk.add(key(NEW_DIR), FileKind::Directory);
        disk.change_names(&key(1), |names| {
            names.insert(b"dir".to_vec(), key(NEW_DIR));
        });
        let mut successor = Self { disk, records: vec![] };
        for (object, name) in [(MOVED, b"old"), (OTHER, b"its")] {
            successor.disk.add(key(object), FileKind::Regular);
            successor.bind(0, name, object);
        }
        if is_linked {
            successor.bind(NEW_DIR, b"new", MOVED);
        }
        let before = successor.disk.clone();
        successor.disk.clock += ticks;
        if !is_linked {
            successor.rename((0, b"old"), (NEW_DIR, b"new"), MOVED, None);
            successor.disk.clock += ticks;
        }
        let victim = Unlinked { object: key(MOVED), is_directory: false, is_left: true };
        successor.rename((0, b"its"), (0, b"old"), OTHER, is_linked.then_some(victim));
        successor.disk = Disk { clock: successor.disk.clock + 1, ..before };
        successor.unbind(0, b"its");
        successor.disk.reap(&key(OTHER));
        successor
    }

    fn bind(&mut self, dir: u64, name: &[u8], object: u64) {
        self.disk.change_names(&key(dir), |names| {
            names.insert(name.to_vec(), key(object));
        });
        self.disk.touch(&key(object), false);
    }

    fn unbind(&mut self, dir: u64, name: &[u8]) {
        self.disk.change_names(&key(dir), |names| {
            names.remove(name);
        });
    }

    fn rename(
        &mut self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        object: u64,
        victim: Option<Unlinked>,
    ) {
        self.unbind(from.0, from.1);
        self.bind(to.0, to.1, object);
        let mut told = vec![key(from.0), key(to.0), key(object)];
        told.dedup();
        let [from, to] = [from, to].map(|(dir, name)| Place { dir: key(dir), name });
        let object = key(object);
        let action = Action::Rename { from, to, object, is_directory: false, victim };
        let mut change = Change::new(action);
        change.after.extend(told.into_iter().map(|it| (it, self.disk.attr(&it).unwrap())));
        self.records.push(record(&change));
    }

    /// The names that the first has after replay, with those that replay has given, and of what it tells that it is gone.
    /// Since the crash somebody was in the directories in `touched`.
    fn replayed(mut self, touched: &[u64]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        self.disk.clock = 1_000_000;
        for dir in touched {
            self.disk.touch(&key(*dir), true);
        }
        let by = Replay::default().on_machine_started(Some(time(900_000)));
        let report = replay_by(by, &mut self.disk, &self.records, &mut None).unwrap();
        let dirs = [0, 1, NEW_DIR].map(key);
        let names = dirs.iter().filter_map(|dir| self.disk.names_of(dir)).flatten();
        let its = names.filter(|(_, object)| **object == key(MOVED));
        let gone = report.conflicts.into_iter().filter(|told| told.kind == ConflictKind::Gone);
        (its.map(|(name, _)| name.clone()).collect(), gone.map(|told| told.name).collect())
    }
}

fn told(name: &[u8], gone: &[u8]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    (vec![name.to_vec()], vec![gone.to_vec()])
}

/// It leaves its old name all the same.
#[test]
fn a_file_leaves_its_old_name_though_what_is_to_have_that_was_unlinked() {
    for which in 0..8 {
        let (sets_ctimes, is_linked) = (which & 1 != 0, which & 2 != 0);
        let ticks = if which & 4 != 0 { 5 } else { 0 };
        let found = Successor::new(sets_ctimes, is_linked, ticks).replayed(&[0, 1, NEW_DIR]);
        assert_eq!(found, told(b"new", b"old"), "{sets_ctimes} {is_linked} {ticks}");
    }
}

/// Not if the directory of its new name is gone.
#[test]
fn a_file_keeps_its_old_name_if_it_cannot_have_the_new_one() {
    let mut successor = Successor::new(true, false, 5);
    successor.unbind(1, b"dir");
    successor.disk.nodes.remove(&key(NEW_DIR));
    assert_eq!(successor.replayed(&[0, 1, NEW_DIR]), told(b"old", b"new"));
}

/// Nor if an operation that was under way has given it the old name again, by which what had it is gone.
#[test]
fn a_file_keeps_its_old_name_if_an_operation_under_way_has_given_it_back() {
    let mut successor = Successor::new(true, false, 5);
    successor.disk.clock += 10;
    successor.disk.touch(&key(MOVED), false);
    assert_eq!(successor.replayed(&[0, 1, NEW_DIR]), told(b"old", b"new"));
}

/// Nor if its new name was taken from it before the crash: nobody would give it one.
#[test]
fn a_file_keeps_its_old_name_if_it_had_the_new_one() {
    let mut successor = Successor::new(true, false, 5);
    successor.disk.clock += 10;
    successor.disk.touch(&key(NEW_DIR), true);
    successor.disk.clock = 1_000_000;
    successor.disk.touch(&key(MOVED), true);
    assert_eq!(successor.replayed(&[0]), (vec![b"old".to_vec()], vec![]));
}
