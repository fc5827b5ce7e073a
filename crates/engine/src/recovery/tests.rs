//! Property tests: random histories on a model of a file system, crashes that leave any prefix of
//! them with any part of the data, and parts beyond the prefix; replay, itself cut short anywhere,
//! brings back what was acknowledged.

use proptest::prelude::*;
use steadfast_vfs::{DeviceNumber, FileKind, Place, Settled, StorageHandle, Time, Unlinked};

use super::*;

const DIRS: usize = 3;
const NAMES: u64 = 4;

#[derive(Clone, Debug, PartialEq)]
enum Body {
    Names(std::collections::BTreeMap<Vec<u8>, ObjectKey>),
    Data(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq)]
struct Node {
    attr: Attr,
    body: Body,
}

/// A file system in memory.
#[derive(Clone, Debug, Default)]
struct Disk {
    nodes: HashMap<ObjectKey, Node>,
    clock: i64,
    /// How many further changes succeed.
    budget: Option<usize>,
    lost: Vec<ObjectKey>,
    sets_ctimes: bool,
}

/// Bytes of a block.
const BLOCK: u64 = 8;

fn key(number: u64) -> ObjectKey {
    // So that keys are in the order of their numbers.
    ObjectKey(StorageHandle::new(&number.to_be_bytes()).unwrap())
}

/// A tick is a millisecond: what is under way at a crash is not much later than what was logged.
fn time(clock: i64) -> Time {
    Time { seconds: clock / 1000, nanoseconds: (clock % 1000) as u32 * 1_000_000 }
}

impl Disk {
    fn new() -> Self {
        let mut disk = Self { clock: 10, ..Self::default() };
        for number in 0..DIRS as u64 {
            disk.add(key(number), FileKind::Directory);
        }
        disk
    }

    fn add(&mut self, object: ObjectKey, kind: FileKind) {
        let now = time(self.clock);
        let body = match kind {
            FileKind::Directory => Body::Names(std::collections::BTreeMap::new()),
            _ => Body::Data(Vec::new()),
        };
        let attr = Attr {
            kind,
            mode: 0o644,
            links: 1,
            uid: 1,
            gid: 2,
            size: 0,
            used: 0,
            device: DeviceNumber::default(),
            fsid: 0,
            fileid: 0,
            atime: now,
            mtime: now,
            ctime: now,
        };
        self.nodes.insert(object, Node { attr, body });
    }

    fn names_of(&self, dir: &ObjectKey) -> Option<&std::collections::BTreeMap<Vec<u8>, ObjectKey>> {
        match &self.nodes.get(dir)?.body {
            Body::Names(names) => Some(names),
            Body::Data(_) => None,
        }
    }

    fn change_names(
        &mut self,
        dir: &ObjectKey,
        change: impl FnOnce(&mut std::collections::BTreeMap<Vec<u8>, ObjectKey>),
    ) {
        let now = time(self.clock);
        let node = self.nodes.get_mut(dir).unwrap();
        (node.attr.mtime, node.attr.ctime) = (now, now);
        let Body::Names(names) = &mut node.body else { panic!("not a directory") };
        change(names);
    }

    fn links(&self, object: &ObjectKey) -> usize {
        let names = self.nodes.values().filter_map(|node| match &node.body {
            Body::Names(names) => Some(names),
            Body::Data(_) => None,
        });
        names.flat_map(|names| names.values()).filter(|bound| *bound == object).count()
    }

    fn attr(&self, object: &ObjectKey) -> Option<Attr> {
        let attr = self.nodes.get(object)?.attr;
        Some(Attr { links: self.links(object) as u32, ..attr })
    }

    /// Frees an object without names.
    fn reap(&mut self, object: &ObjectKey) {
        if self.links(object) == 0 && *object >= key(DIRS as u64) {
            self.nodes.remove(object);
        }
    }

    fn is_beneath(&self, dir: &ObjectKey, above: &ObjectKey) -> bool {
        if dir == above {
            return true;
        }
        let children = self.names_of(above).into_iter().flat_map(|names| names.values());
        children
            .filter(|child| self.names_of(child).is_some())
            .any(|child| self.is_beneath(dir, child))
    }

    fn touch(&mut self, object: &ObjectKey, is_data: bool) {
        let now = time(self.clock);
        if let Some(node) = self.nodes.get_mut(object) {
            node.attr.ctime = now;
            if is_data {
                node.attr.mtime = now;
            }
        }
    }

    fn put(&mut self, object: &ObjectKey, offset: usize, data: &[u8]) {
        let Some(Node { body: Body::Data(old), attr }) = self.nodes.get_mut(object) else { return };
        if old.len() < offset + data.len() {
            old.resize(offset + data.len(), 0);
        }
        old[offset..offset + data.len()].copy_from_slice(data);
        attr.size = old.len() as u64;
    }

    fn cut(&mut self, object: &ObjectKey, size: usize) {
        let Some(Node { body: Body::Data(old), attr }) = self.nodes.get_mut(object) else { return };
        old.resize(size, 0);
        attr.size = size as u64;
    }

    /// The first bytes of a gap, to the end of their block, are what was there before.
    fn show_old(&mut self, object: &ObjectKey, gap: Option<u64>, to: u64) {
        let Some(gap) = gap else { return };
        let end = gap.next_multiple_of(BLOCK).min(to);
        self.put(object, gap as usize, &vec![0xee; (end - gap) as usize]);
    }

    fn spend(&mut self) -> Result<(), FsError> {
        self.clock += 1;
        match &mut self.budget {
            Some(0) => Err(FsError::Io),
            Some(budget) => {
                *budget -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Recoverable for Disk {
    fn names_follow_ctimes(&self) -> bool {
        !self.sets_ctimes
    }

    fn set_lost(&mut self, lost: &[ObjectKey]) {
        self.lost = lost.to_vec();
    }

    fn look(&mut self, object: &ObjectKey) -> Result<Option<Attr>, FsError> {
        Ok(self.attr(object))
    }

    fn bound(&mut self, place: &Place<'_>) -> Result<Option<(ObjectKey, FileKind)>, FsError> {
        let object = self.names_of(&place.dir).and_then(|names| names.get(place.name));
        Ok(object.map(|object| (*object, self.nodes[object].attr.kind)))
    }

    fn names(&mut self, dir: &ObjectKey, prefix: &[u8]) -> Result<Vec<Vec<u8>>, FsError> {
        let names = self.names_of(dir).into_iter().flat_map(|names| names.keys());
        Ok(names.filter(|name| name.starts_with(prefix)).cloned().collect())
    }

    fn make(
        &mut self,
        place: &Place<'_>,
        object: &ObjectKey,
        attr: &Attr,
        target: &[u8],
    ) -> Result<(), FsError> {
        self.spend()?;
        assert!(!self.nodes.contains_key(object), "made though it is there");
        assert!(self.lost.contains(object), "made though it was not lost");
        assert_eq!(self.bound(place)?, None, "made in place of something");
        self.add(*object, attr.kind);
        self.put(object, 0, target);
        self.change_names(&place.dir, |names| {
            names.insert(place.name.to_vec(), *object);
        });
        Ok(())
    }

    fn link(&mut self, object: &ObjectKey, place: &Place<'_>) -> Result<(), FsError> {
        self.spend()?;
        assert_eq!(self.bound(place)?, None, "linked in place of something");
        assert!(self.nodes.contains_key(object));
        self.change_names(&place.dir, |names| {
            names.insert(place.name.to_vec(), *object);
        });
        self.touch(object, false);
        Ok(())
    }

    fn rename(&mut self, from: &Place<'_>, to: &Place<'_>) -> Result<(), FsError> {
        self.spend()?;
        let (object, _) = self.bound(from)?.ok_or(FsError::NotFound)?;
        assert_eq!(self.bound(to)?, None, "renamed over something");
        if self.names_of(&object).is_some() && self.is_beneath(&to.dir, &object) {
            return Err(FsError::Invalid);
        }
        self.change_names(&from.dir, |names| {
            names.remove(from.name);
        });
        self.change_names(&to.dir, |names| {
            names.insert(to.name.to_vec(), object);
        });
        self.touch(&object, false);
        Ok(())
    }

    fn remove(&mut self, place: &Place<'_>, is_directory: bool) -> Result<(), FsError> {
        self.spend()?;
        let (object, kind) = self.bound(place)?.ok_or(FsError::NotFound)?;
        assert_eq!(kind == FileKind::Directory, is_directory);
        if self.names_of(&object).is_some_and(|names| !names.is_empty()) {
            return Err(FsError::NotEmpty);
        }
        self.change_names(&place.dir, |names| {
            names.remove(place.name);
        });
        self.reap(&object);
        Ok(())
    }

    fn write(&mut self, object: &ObjectKey, offset: u64, data: &[u8]) -> Result<(), FsError> {
        self.spend()?;
        if !self.nodes.contains_key(object) {
            return Err(FsError::Stale);
        }
        self.put(object, offset as usize, data);
        self.touch(object, true);
        Ok(())
    }

    fn truncate(&mut self, object: &ObjectKey, size: u64) -> Result<(), FsError> {
        self.spend()?;
        if !self.nodes.contains_key(object) {
            return Err(FsError::Stale);
        }
        self.cut(object, size as usize);
        self.touch(object, true);
        Ok(())
    }

    fn zero(&mut self, object: &ObjectKey, from: u64, to: u64) -> Result<(), FsError> {
        let end = from.next_multiple_of(BLOCK).min(to);
        self.write(object, from, &vec![0; (end - from) as usize])
    }

    fn set_acls(
        &mut self,
        _object: &ObjectKey,
        _access: Option<&[u8]>,
        _default: Option<&[u8]>,
    ) -> Result<(), FsError> {
        self.spend()
    }

    fn set_attributes(&mut self, object: &ObjectKey, attr: &Attr) -> Result<(), FsError> {
        self.spend()?;
        let node = self.nodes.get_mut(object).ok_or(FsError::Stale)?;
        (node.attr.mode, node.attr.mtime) = (attr.mode, attr.mtime);
        self.touch(object, false);
        Ok(())
    }

    fn make_stable(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// A run of a file system: the record of every change, and what there was after each.
struct Run {
    records: Vec<Vec<u8>>,
    states: Vec<Disk>,
}

/// One random step: what, and with which directories, names and numbers.
type Step = (u8, [u8; 4], u16);

/// Directories that exist: those that always do, and those that were made.
fn directory(disk: &Disk, choice: u8) -> ObjectKey {
    let mut dirs: Vec<_> =
        disk.nodes.iter().filter(|(_, node)| matches!(node.body, Body::Names(_))).collect();
    dirs.sort_by_key(|(key, _)| **key);
    *dirs[usize::from(choice) % dirs.len()].0
}

fn name(choice: u8) -> Vec<u8> {
    format!("n{}", u64::from(choice) % NAMES).into_bytes()
}

/// Does a step if it can be done; `None` if it would fail.
fn step(disk: &mut Disk, next: &mut u64, (what, choices, number): Step) -> Option<Vec<u8>> {
    let [dir, first, other, second] = choices;
    let (dir, first) = (directory(disk, dir), name(first));
    let (other, second) = (directory(disk, other), name(second));
    let place = Place { dir, name: &first };
    let to = Place { dir: other, name: &second };
    let bound = disk.bound(&place).unwrap();
    let data = [what.wrapping_add(number as u8) | 1; 7];
    let mut changed = vec![];
    let action = match what % 12 {
        // Make, a directory now and then.
        0..=2 if bound.is_none() => {
            let object = key(1000 + *next);
            *next += 1;
            let kind = if what % 12 == 0 { FileKind::Directory } else { FileKind::Regular };
            disk.add(object, kind);
            if what % 12 == 2 {
                disk.cut(&object, usize::from(number % 9));
            }
            disk.change_names(&dir, |names| {
                names.insert(first.clone(), object);
            });
            changed.extend([object, dir]);
            Action::Make { place, object, target: &[] }
        }
        3 | 4 => {
            let (object, kind) = bound?;
            if disk.names_of(&object).is_some_and(|names| !names.is_empty()) {
                return None;
            }
            disk.change_names(&dir, |names| {
                names.remove(&first);
            });
            disk.touch(&object, false);
            disk.reap(&object);
            changed.push(dir);
            let is_directory = kind == FileKind::Directory;
            let is_left = disk.nodes.contains_key(&object);
            Action::Remove { place, unlinked: Unlinked { object, is_directory, is_left } }
        }
        5 | 6 => {
            let (object, kind) = bound?;
            let victim = disk.bound(&to).unwrap();
            let is_directory = kind == FileKind::Directory;
            if let Some((victim, kind)) = victim {
                let is_full = disk.names_of(&victim).is_some_and(|names| !names.is_empty());
                if victim == object || is_full || is_directory != (kind == FileKind::Directory) {
                    return None;
                }
            }
            if is_directory && disk.is_beneath(&other, &object) {
                return None;
            }
            disk.change_names(&dir, |names| {
                names.remove(&first);
            });
            disk.change_names(&other, |names| {
                names.insert(second.clone(), object);
            });
            disk.touch(&object, false);
            let victim = victim.map(|(victim, _)| {
                disk.touch(&victim, false);
                disk.reap(&victim);
                let is_left = disk.nodes.contains_key(&victim);
                Unlinked { object: victim, is_directory, is_left }
            });
            changed.extend([dir, other, object]);
            Action::Rename { from: place, to, object, is_directory, victim }
        }
        7 => {
            let (object, kind) = bound?;
            if kind == FileKind::Directory || disk.bound(&to).unwrap().is_some() {
                return None;
            }
            disk.change_names(&other, |names| {
                names.insert(second.clone(), object);
            });
            disk.touch(&object, false);
            changed.extend([other, object]);
            Action::Link { place: to, object }
        }
        8 | 9 => {
            let (object, kind) = bound?;
            if kind == FileKind::Directory {
                return None;
            }
            let offset = u64::from(number % 20);
            let gap = disk.attr(&object).map(|attr| attr.size).filter(|size| *size < offset);
            disk.put(&object, offset as usize, &data);
            disk.touch(&object, true);
            changed.push(object);
            Action::Write { object, offset, data: &data, gap }
        }
        10 => {
            let (object, kind) = bound?;
            if kind == FileKind::Directory {
                return None;
            }
            let size = u64::from(number % 25);
            let gap = disk.attr(&object).map(|attr| attr.size).filter(|old| *old < size);
            disk.cut(&object, size as usize);
            disk.touch(&object, true);
            changed.push(object);
            Action::Attributes { object, size: Some(size), gap }
        }
        11 => {
            let (object, _) = bound?;
            disk.nodes.get_mut(&object)?.attr.mode = u32::from(number) & 0o777;
            disk.touch(&object, false);
            changed.push(object);
            Action::Attributes { object, size: None, gap: None }
        }
        _ => return None,
    };
    let mut change = Change::new(action);
    changed.dedup();
    for object in changed {
        if let Some(attr) = disk.attr(&object) {
            change.after.push((object, attr));
        }
    }
    let mut record = Vec::new();
    change.encode(&mut record);
    Some(record)
}

/// Runs steps; `tick` of them share a time.
fn run(steps: &[Step], tick: i64) -> Run {
    let mut disk = Disk::new();
    let mut next = 0;
    // Some things are there before the log begins.
    for number in 0..6 {
        step(&mut disk, &mut next, (1 + number % 2 * 11, [number, number / 2, 0, 0], 5));
        step(&mut disk, &mut next, (8, [number, number / 2, 0, 0], 5));
    }
    let mut run = Run { records: vec![], states: vec![disk.clone()] };
    for (index, one) in steps.iter().enumerate() {
        disk.clock = 1000 + index as i64 / tick;
        if let Some(record) = step(&mut disk, &mut next, *one) {
            run.records.push(record);
            run.states.push(disk.clone());
        }
    }
    run
}

/// What a crash leaves: names and attributes after `prefix` changes, of the data that was written
/// since a file was last cut only what `luck` says. What is behind the end of a file that grew may be
/// what it had there once.
fn crash(run: &Run, prefix: usize, luck: &[bool]) -> Disk {
    let mut disk = run.states[prefix].clone();
    let mut luck = luck.iter().cycle();
    let objects: Vec<ObjectKey> = disk.nodes.keys().copied().collect();
    for object in objects {
        if !matches!(disk.nodes[&object].body, Body::Data(_)) {
            continue;
        }
        let changes =
            || run.records[..prefix].iter().map(|record| Change::decode(record).unwrap().0);
        let is_start = |change: &Change<'_>| match change.action {
            Action::Attributes { object: cut, size: Some(_), .. } => cut == object,
            Action::Make { object: made, .. } => made == object,
            _ => false,
        };
        let start = changes().collect::<Vec<_>>().iter().rposition(is_start).map_or(0, |at| at + 1);
        let body = run.states[start].nodes[&object].body.clone();
        let Body::Data(data) = body else { panic!("a file") };
        disk.cut(&object, 0);
        disk.put(&object, 0, &data);
        for (index, change) in changes().enumerate() {
            match change.action {
                Action::Write { object: written, offset, data, gap }
                    if written == object && index >= start && *luck.next().unwrap() =>
                {
                    disk.put(&object, offset as usize, data);
                    if *luck.next().unwrap() {
                        disk.show_old(&object, gap, offset);
                    }
                }
                Action::Attributes { object: cut, size: Some(size), gap }
                    if cut == object && index + 1 == start && *luck.next().unwrap() =>
                {
                    disk.show_old(&object, gap, size);
                }
                _ => {}
            }
        }
    }
    disk
}

/// Brings one file forward to a later state, as a flush of that file alone does on btrfs: with
/// its names, but without the directories' times.
fn bring_forward(disk: &mut Disk, later: &Disk, choice: usize) {
    let mut files: Vec<_> =
        later.nodes.iter().filter(|(_, node)| matches!(node.body, Body::Data(_))).collect();
    files.sort_by_key(|(key, _)| **key);
    if files.is_empty() {
        return;
    }
    let (object, node) = files[choice % files.len()];
    let mut names: Vec<(ObjectKey, Vec<u8>)> = vec![];
    for (dir, place) in &later.nodes {
        if let Body::Names(bound) = &place.body {
            names.extend(
                bound.iter().filter(|(_, to)| *to == object).map(|(n, _)| (*dir, n.clone())),
            );
        }
    }
    // Only where all of its names have room.
    let has_room = names.iter().all(|(dir, name)| {
        disk.names_of(dir).is_some_and(|bound| bound.get(name).is_none_or(|to| to == object))
    });
    if !has_room || names.is_empty() {
        return;
    }
    for node in disk.nodes.values_mut() {
        if let Body::Names(bound) = &mut node.body {
            bound.retain(|_, to| to != object);
        }
    }
    for (dir, name) in names {
        if let Some(Node { body: Body::Names(bound), .. }) = disk.nodes.get_mut(&dir) {
            bound.insert(name, *object);
        }
    }
    disk.nodes.insert(*object, node.clone());
}

/// Replays; `observed` is what an earlier attempt has seen.
fn replay(
    disk: &mut Disk,
    records: &[Vec<u8>],
    observed: &mut Option<Observed>,
) -> Result<Report, FsError> {
    let changes: Vec<Change<'_>> =
        records.iter().map(|record| Change::decode(record).unwrap().0).collect();
    let mut replay = Replay::default();
    for (index, change) in changes.iter().enumerate() {
        replay.read(index as u64 + 1, change);
    }
    *observed = Some(replay.observe(disk, observed.take())?.clone());
    replay.bind_names(disk)?;
    for (index, change) in changes.iter().enumerate() {
        replay.write_data(disk, index as u64 + 1, change)?;
    }
    replay.set_attributes(disk)
}

/// What clients can see, but for ctimes.
fn seen(disk: &Disk) -> std::collections::BTreeMap<ObjectKey, (Body, u32, Time)> {
    let reachable = |key: &ObjectKey| *key < self::key(DIRS as u64) || disk.links(key) > 0;
    let nodes = disk.nodes.iter().filter(|(key, _)| reachable(key));
    nodes.map(|(key, node)| (*key, (node.body.clone(), node.attr.mode, node.attr.mtime))).collect()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec((any::<u8>(), any::<[u8; 4]>(), any::<u16>()), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever prefix a crash leaves, with whatever parts beyond it, and wherever replay itself is
    /// cut short, all that was logged is in effect.
    #[test]
    fn what_was_logged_is_in_effect(
        steps in steps(),
        tick in 1..4_i64,
        prefix: proptest::sample::Index,
        beyond: Option<(proptest::sample::Index, usize)>,
        luck in proptest::collection::vec(any::<bool>(), 1..40),
        recovered in proptest::option::of(0..3_usize),
        soon: bool,
        cuts in proptest::collection::vec(0..30_usize, 0..3),
    ) {
        let run = run(&steps, tick);
        let prefix = prefix.index(run.states.len());
        let mut disk = crash(&run, prefix, &luck);
        if let Some((later, choice)) = beyond {
            let later = prefix + later.index(run.states.len() - prefix);
            bring_forward(&mut disk, &run.states[later], choice);
            // What was not brought forward with its names is gone.
            let all: Vec<ObjectKey> = disk.nodes.keys().copied().collect();
            for object in &all {
                disk.reap(object);
            }
        }
        disk.clock = 1_000_000;
        let mut local = Vec::new();
        if let Some(every) = recovered {
            // The file system's own recovery has touched some objects, or a local process some
            // directories.
            disk.sets_ctimes = every % 2 == 0;
            if disk.sets_ctimes && soon {
                // A moment after the last change.
                disk.clock = 1_500;
            }
            let is_touched = |key: &ObjectKey| disk.sets_ctimes || disk.names_of(key).is_some();
            let mut objects: Vec<ObjectKey> = disk.nodes.keys().copied().collect();
            objects.retain(is_touched);
            objects.sort();
            for object in objects.into_iter().step_by(1 + every) {
                disk.touch(&object, false);
                local.extend((!disk.sets_ctimes).then_some(object));
            }
        }
        let mut observed = None;
        for cut in cuts {
            disk.budget = Some(cut);
            let _ = replay(&mut disk, &run.records, &mut observed);
        }
        disk.budget = None;
        let report = replay(&mut disk, &run.records, &mut observed).unwrap();
        let told: Vec<_> = run.records.iter().map(|r| Change::decode(r).unwrap().0.action).collect();
        prop_assert_eq!(&report.conflicts, &[], "prefix {} of {:#?}", prefix, told);
        let wanted = seen(run.states.last().unwrap());
        let told: Vec<_> = run.records.iter().map(|r| Change::decode(r).unwrap().0.action).collect();
        let mut found = seen(&disk);
        for dir in local {
            // Mode and times may be what the local process has set: they stay.
            if let (Some(found), Some(wanted)) = (found.get_mut(&dir), wanted.get(&dir)) {
                (found.1, found.2) = (wanted.1, wanted.2);
            }
        }
        prop_assert_eq!(found, wanted, "prefix {} of {:?}", prefix, told);
    }

    /// What the disk has beyond the log, of operations that were not acknowledged, stays as it is.
    #[test]
    fn what_was_not_acknowledged_is_whole_or_absent(
        steps in steps(),
        prefix: proptest::sample::Index,
        logged: proptest::sample::Index,
        luck in proptest::collection::vec(any::<bool>(), 1..40),
    ) {
        let run = run(&steps, 1);
        let prefix = prefix.index(run.states.len());
        let logged = logged.index(prefix + 1);
        let mut disk = crash(&run, prefix, &luck);
        disk.clock = 1_000_000;
        replay(&mut disk, &run.records[..logged], &mut None).unwrap();
        let names = |disk: &Disk| -> std::collections::BTreeMap<_, _> {
            let dirs = disk.nodes.iter().filter(|(_, node)| matches!(node.body, Body::Names(_)));
            dirs.map(|(key, node)| (*key, node.body.clone())).collect()
        };
        prop_assert_eq!(names(&disk), names(&run.states[prefix]));
        // Files that nothing else has changed are as the log says.
        let touched: Vec<ObjectKey> = run.records[logged..prefix].iter().flat_map(|record| {
            let change = Change::decode(record).unwrap().0;
            change.after.iter().map(|(key, _)| *key).collect::<Vec<_>>()
        }).collect();
        let wanted = seen(&run.states[logged]);
        for (object, found) in seen(&disk) {
            if let (Body::Data(_), Some(wanted), false) =
                (&found.0, wanted.get(&object), touched.contains(&object))
            {
                prop_assert_eq!(&found, wanted);
            }
        }
    }
}

fn record(change: &Change<'_>) -> Vec<u8> {
    let mut record = Vec::new();
    change.encode(&mut record);
    record
}

/// Data that was flushed by itself is not written over by what the log has of before.
#[test]
fn what_was_settled_is_left_alone() {
    let mut disk = Disk::new();
    let file = key(1000);
    disk.add(file, FileKind::Regular);
    disk.change_names(&key(0), |names| {
        names.insert(b"a".to_vec(), file);
    });
    let write = |data: &'static [u8]| {
        record(&Change::new(Action::Write { object: file, offset: 0, data, gap: None }))
    };
    let settled = |what, up_to| record(&Change::new(Action::Settled { what, up_to }));
    for (what, found) in [
        (Settled::Data(file), &b"fresh"[..]),
        (Settled::Object(file), b"fresh"),
        (Settled::FileSystem, b"fresh"),
        (Settled::Data(key(1001)), b"older"),
    ] {
        let mut disk = disk.clone();
        disk.put(&file, 0, b"fresh");
        replay(&mut disk, &[write(b"older"), settled(what, 1)], &mut None).unwrap();
        assert_eq!(disk.nodes[&file].body, Body::Data(found.to_vec()));
        let records = [write(b"older"), settled(what, 1), write(b"NEW")];
        replay(&mut disk, &records, &mut None).unwrap();
        let Body::Data(data) = &disk.nodes[&file].body else { panic!("a file") };
        assert_eq!(&data[..3], b"NEW");
        assert_eq!(&data[3..], &found[3..]);
    }
}

/// An operation that was not acknowledged gave a name back to what had it before, and so did away
/// with what the log wants there: that had been settled, and cannot be made again.
#[test]
fn what_was_replaced_for_good_leaves_its_name_to_what_has_it() {
    let mut disk = Disk::new();
    disk.sets_ctimes = true;
    let (gone, there) = (key(1000), key(2000));
    disk.add(there, FileKind::Regular);
    disk.change_names(&key(0), |names| {
        names.insert(b"x".to_vec(), there);
    });
    let name = |name: &'static [u8]| Place { dir: key(0), name };
    let rename = record(&Change::new(Action::Rename {
        from: name(b"p"),
        to: name(b"x"),
        object: gone,
        is_directory: false,
        victim: Some(Unlinked { object: there, is_directory: false, is_left: true }),
    }));
    let report = replay(&mut disk, &[rename], &mut None).unwrap();
    assert_eq!(report.names, 0);
    let names = disk.names_of(&key(0)).unwrap();
    assert_eq!(names.iter().map(|(n, o)| (&n[..], *o)).collect::<Vec<_>>(), [(&b"x"[..], there)]);
}

/// What a local process put where the log wants something else is kept, and told.
#[test]
fn what_is_in_the_way_is_kept_and_reported() {
    let mut disk = Disk::new();
    disk.clock = 20;
    let (ours, theirs) = (key(1000), key(2000));
    let mut live = disk.clone();
    live.add(ours, FileKind::Regular);
    let dir = Attr { ctime: time(30), mtime: time(30), ..live.nodes[&key(0)].attr };
    let mut change = Change::new(Action::Make {
        place: Place { dir: key(0), name: b"a" },
        object: ours,
        target: &[],
    });
    change.after.push((ours, live.nodes[&ours].attr));
    change.after.push((key(0), dir));
    disk.add(theirs, FileKind::Regular);
    disk.change_names(&key(0), |names| {
        names.insert(b"a".to_vec(), theirs);
    });
    let report = replay(&mut disk, &[record(&change)], &mut None).unwrap();
    let conflict = Conflict { dir: key(0), name: b"a".to_vec(), kind: ConflictKind::InTheWay };
    assert_eq!(report.conflicts, std::slice::from_ref(&conflict));
    let names = disk.names_of(&key(0)).unwrap();
    assert_eq!(names[&b"a".to_vec()], ours);
    assert!(names.iter().any(|(name, to)| *to == theirs && name.starts_with(ASIDE_PREFIX)));

    // The same if it was put there after the crash. But a little later than all that the log knows
    // it came from a client, and is the truth.
    let mut later = Disk::new();
    later.clock = 1_000_000;
    later.add(theirs, FileKind::Regular);
    later.change_names(&key(0), |names| {
        names.insert(b"a".to_vec(), theirs);
    });
    let report = replay(&mut later, &[record(&change)], &mut None).unwrap();
    assert_eq!(report.conflicts, [conflict]);
    assert_eq!(later.names_of(&key(0)).unwrap()[&b"a".to_vec()], ours);
    let mut disk = Disk::new();
    disk.clock = 40;
    disk.add(theirs, FileKind::Regular);
    disk.change_names(&key(0), |names| {
        names.insert(b"a".to_vec(), theirs);
    });
    let report = replay(&mut disk, &[record(&change)], &mut None).unwrap();
    assert_eq!((report.names, report.conflicts), (0, vec![]));
    assert_eq!(disk.names_of(&key(0)).unwrap()[&b"a".to_vec()], theirs);
}
