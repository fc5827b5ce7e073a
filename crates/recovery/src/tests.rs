//! Property tests: random histories on a model of a file system, crashes that leave any prefix of
//! them with any part of the data, and parts beyond the prefix; replay, itself cut short anywhere,
//! brings back what was acknowledged.

mod after_crash;
mod begun;
mod disk;
mod histories;
mod local;
mod local_names;
mod strangers;
mod under_way;

use proptest::prelude::*;
use steadfast_vfs::{DeviceNumber, FileKind, StorageHandle, Time};

use super::*;
use crate::{Before, KeptFile, Made, MadeAcls, Ownership, Place, Settled, Unlinked};

use disk::*;
use histories::*;

/// A replay after a kill, of which it is not known whether the disk has failed.
fn in_effect() -> Replay {
    let mut replay = Replay::default();
    replay.be_of_what_is_in_effect(false);
    replay
}

/// Replays after a crash; `observed` is what an earlier attempt has seen.
fn replay(
    disk: &mut Disk,
    records: &[Vec<u8>],
    observed: &mut Option<Observed>,
) -> Result<Report, FsError> {
    replay_by(Replay::default(), disk, records, observed)
}

fn replay_by(
    mut replay: Replay,
    disk: &mut Disk,
    records: &[Vec<u8>],
    observed: &mut Option<Observed>,
) -> Result<Report, FsError> {
    let changes: Vec<Change<'_>> =
        records.iter().map(|record| Change::decode(record).unwrap().0).collect();
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

/// What clients can see of an object: its data or names, mode, time, and access lists.
type Seen = (Body, u32, Time, MadeAcls);

/// What clients can see, but for ctimes.
fn seen(disk: &Disk) -> std::collections::BTreeMap<ObjectKey, Seen> {
    let reachable = |key: &ObjectKey| *key < self::key(DIRS as u64) || disk.links(key) > 0;
    let nodes = disk.nodes.iter().filter(|(key, _)| reachable(key));
    let looks =
        |node: &Node| (node.body.clone(), node.attr.mode, node.attr.mtime, node.acls.clone());
    nodes.map(|(key, node)| (*key, looks(node))).collect()
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
            // directories: their ctimes do not tell what of them is there.
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
        let mut conflicts = report.conflicts;
        // Of what a local process has touched.
        conflicts.retain(|conflict| conflict.kind != ConflictKind::AttributesBack);
        prop_assert_eq!(&conflicts, &[], "prefix {} of {:#?}", prefix, told);
        let wanted = seen(run.states.last().unwrap());
        let told: Vec<_> = run.records.iter().map(|r| Change::decode(r).unwrap().0.action).collect();
        let mut found = seen(&disk);
        for object in local {
            // Times may be what the local process has set: they stay.
            if let (Some(found), Some(wanted)) = (found.get_mut(&object), wanted.get(&object)) {
                found.2 = wanted.2;
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
        let by = Replay::default().on_machine_started(Some(time(disk.clock)));
        replay_by(by, &mut disk, &run.records[..logged], &mut None).unwrap();
        // Of what was under way nothing is lost: it may have been a local process's.
        for node in disk.nodes.values_mut() {
            if let Body::Names(names) = &mut node.body {
                names.retain(|name, _| !name.starts_with(b".steadfast-replay-found-"));
            }
        }
        prop_assert_eq!(names(&disk), names(&run.states[prefix]));
        // Files that nothing else has changed are as the log says.
        let touched = touched(&run.records[logged..prefix]);
        let wanted = seen(&run.states[logged]);
        for (object, found) in seen(&disk) {
            if let (Body::Data(_), Some(wanted), false) =
                (&found.0, wanted.get(&object), touched.contains(&object))
            {
                prop_assert_eq!(&found, wanted);
            }
        }
    }

    /// Where only the server was ended, what came after the last that was logged stays, whatever ctimes
    /// tell: also what local processes did, however much later.
    #[test]
    fn what_is_in_effect_is_left_alone(
        steps in steps(),
        ended: proptest::sample::Index,
        logged: proptest::sample::Index,
        sets_ctimes: bool,
        every in 1..4_usize,
        cuts in proptest::collection::vec(0..30_usize, 0..3),
    ) {
        let run = run(&steps, 1);
        let ended = ended.index(run.states.len());
        let records = &run.records[..logged.index(ended + 1)];
        let mut disk = run.states[ended].clone();
        disk.sets_ctimes = sets_ctimes;
        disk.clock = 1_000_000;
        let objects: Vec<ObjectKey> = disk.nodes.keys().copied().collect();
        for object in objects.iter().step_by(every) {
            disk.touch(object, false);
        }
        let mut left = disk.clone();
        let mut observed = None;
        for cut in cuts {
            disk.budget = Some(cut);
            let _ = replay_by(in_effect(), &mut disk, records, &mut observed);
            // Somebody goes on between one attempt and the next.
            for object in objects.iter().step_by(1 + every) {
                for disk in [&mut disk, &mut left] {
                    disk.nodes.get_mut(object).unwrap().attr.mode ^= 0o100;
                }
            }
        }
        disk.budget = None;
        let report =
            replay_by(in_effect(), &mut disk, records, &mut observed).unwrap();
        prop_assert_eq!((report.names, report.objects_made, report.conflicts), (0, 0, vec![]));
        prop_assert_eq!(names(&disk), names(&left));
        // Directories are not touched at all.
        for (key, node) in left.nodes.iter().filter(|(_, it)| matches!(it.body, Body::Names(_))) {
            prop_assert_eq!(disk.nodes[key].attr.ctime, node.attr.ctime);
        }
        let touched = touched(&run.records[records.len()..ended]);
        let left = seen(&left);
        for (object, found) in seen(&disk) {
            let left = &left[&object];
            prop_assert_eq!((found.1, found.2), (left.1, left.2));
            if !touched.contains(&object) {
                prop_assert_eq!(&found.0, &left.0);
            }
        }
    }
}

/// The names of all directories.
fn names(disk: &Disk) -> std::collections::BTreeMap<ObjectKey, Body> {
    let dirs = disk.nodes.iter().filter(|(_, node)| matches!(node.body, Body::Names(_)));
    dirs.map(|(key, node)| (*key, node.body.clone())).collect()
}

/// What records tell attributes of.
fn touched(records: &[Vec<u8>]) -> Vec<ObjectKey> {
    let changes = records.iter().map(|record| Change::decode(record).unwrap().0);
    changes.flat_map(|change| change.after.into_iter().map(|(key, _)| key)).collect()
}

/// What is told of an object that inherited no access list.
#[expect(clippy::unnecessary_wraps, reason = "it stands where a change has one or none")]
fn plain() -> Option<Box<Made>> {
    Some(Box::new(Made { born: None, acls: Some(MadeAcls::default()) }))
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
    for is_left in [true, false] {
        replaced_for_good(is_left);
    }
}

/// `is_left`: whether the former has another name. If it has none it is gone for its clients, and does not
/// come back, whatever became of what replaced it.
fn replaced_for_good(is_left: bool) {
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
        victim: Some(Unlinked { object: there, is_directory: false, is_left }),
    }));
    let report = replay(&mut disk, &[rename], &mut None).unwrap();
    let names = disk.names_of(&key(0)).unwrap();
    let names: Vec<_> = names.iter().map(|(name, object)| (&name[..], *object)).collect();
    let kinds: Vec<_> = report.conflicts.iter().map(|conflict| conflict.kind).collect();
    if is_left {
        assert_eq!((names, report.names), (vec![(&b"x"[..], there)], 0));
    } else {
        assert_eq!((names, kinds), (vec![], vec![ConflictKind::Gone]));
    }
}

/// Where ctimes of directories do not tell, an operation that was not acknowledged and has replaced what
/// the log wants is not undone by halves: what took the name would have none, as only the disk knew its
/// old one.
#[test]
fn what_took_a_name_while_the_machine_crashed_keeps_it() {
    let (replaced, moved) = (key(1000), key(2000));
    let mut live = Disk::new();
    live.clock = 20;
    live.add(moved, FileKind::Regular);
    live.clock = 30;
    live.add(replaced, FileKind::Regular);
    live.change_names(&key(0), |names| {
        names.insert(b"x".to_vec(), replaced);
    });
    let mut change = Change::new(Action::Make {
        place: Place { dir: key(0), name: b"x" },
        object: replaced,
        target: &[],
    });
    change.made = plain();
    change.after.extend([replaced, key(0)].map(|object| (object, live.nodes[&object].attr)));
    let mut also = Change::new(Action::Attributes { object: moved, size: None, gap: None });
    also.after.push((moved, live.nodes[&moved].attr));
    let records = [record(&change), record(&also)];
    // Before the crash for certain, or perhaps after it; and wherever an earlier attempt was cut short.
    let cases = [(31, Some(500_000), true), (1_000_000, Some(500_000), false), (31, None, false)];
    for ((clock, started, is_of_under_way), cut) in
        cases.iter().flat_map(|one| (0..9).map(|cut| (*one, cut)))
    {
        let by = || Replay::default().on_machine_started(started.map(time));
        let mut disk = live.clone();
        disk.sets_ctimes = true;
        disk.clock = clock;
        disk.change_names(&key(0), |names| {
            names.insert(b"x".to_vec(), moved);
        });
        disk.touch(&moved, false);
        disk.nodes.remove(&replaced);
        disk.clock = 2_000_000;
        let mut observed = None;
        disk.budget = Some(cut);
        let conflicts =
            replay_by(by(), &mut disk, &records, &mut observed).map(|report| report.conflicts);
        disk.budget = None;
        if let Ok(conflicts) = conflicts {
            assert_eq!(conflicts.is_empty(), is_of_under_way, "{conflicts:?}");
        }
        replay_by(by(), &mut disk, &records, &mut observed).unwrap();
        let names = disk.names_of(&key(0)).unwrap();
        let wanted = if is_of_under_way { moved } else { replaced };
        assert_eq!(names[&b"x"[..]], wanted);
        assert_eq!(names.len(), if is_of_under_way { 1 } else { 2 });
    }
}

/// An operation that was not acknowledged gave a name back to what had it before the log's changes, and took
/// from it the last other one that it had: it is not removed as if it had lost that.
#[test]
fn what_has_other_names_by_the_log_is_not_removed_with_its_last() {
    for is_left in [true, false] {
        let mut disk = Disk::new();
        disk.sets_ctimes = true;
        let (made, former) = (key(1000), key(2000));
        disk.add(former, FileKind::Regular);
        disk.put(&former, 0, b"acknowledged");
        disk.change_names(&key(0), |names| {
            names.insert(b"x".to_vec(), former);
        });
        let mut live = disk.clone();
        live.add(made, FileKind::Regular);
        let name = |name: &'static [u8]| Place { dir: key(0), name };
        let mut make = Change::new(Action::Make { place: name(b"new"), object: made, target: &[] });
        make.made = plain();
        make.after.push((made, live.nodes[&made].attr));
        let victim = Some(Unlinked { object: former, is_directory: false, is_left });
        let rename = Change::new(Action::Rename {
            from: name(b"new"),
            to: name(b"x"),
            object: made,
            is_directory: false,
            victim,
        });
        let report = replay(&mut disk, &[record(&make), record(&rename)], &mut None).unwrap();
        let names = disk.names_of(&key(0)).unwrap();
        assert_eq!(names[&b"x"[..]], made);
        let kept = names.iter().find(|(_, object)| **object == former);
        assert_eq!(kept.is_some_and(|(name, _)| name.starts_with(ASIDE_PREFIX)), is_left);
        assert_eq!(report.conflicts.len(), usize::from(is_left));
    }
}

/// A local process moved a file, a client removed it under the new name, and the crash brought back the old
/// one: the file is gone all the same.
#[test]
fn what_was_removed_is_gone_under_the_name_that_it_had_before_a_local_process_moved_it() {
    let mut disk = Disk::new();
    disk.sets_ctimes = true;
    let file = key(1000);
    disk.add(file, FileKind::Regular);
    disk.change_names(&key(0), |names| {
        names.insert(b"old".to_vec(), file);
    });
    let name = |name: &'static [u8]| Place { dir: key(0), name };
    let mut make = Change::new(Action::Make { place: name(b"old"), object: file, target: &[] });
    make.made = plain();
    make.after.extend([file, key(0)].map(|object| (object, disk.nodes[&object].attr)));
    let unlinked = Unlinked { object: file, is_directory: false, is_left: false };
    let mut remove = Change::new(Action::Remove { place: name(b"new"), unlinked });
    let later = time(disk.clock + 10);
    remove.after.push((key(0), Attr { ctime: later, mtime: later, ..disk.nodes[&key(0)].attr }));
    let report = replay(&mut disk, &[record(&make), record(&remove)], &mut None).unwrap();
    assert!(disk.names_of(&key(0)).unwrap().is_empty(), "{report:?}");
    assert_eq!(report.conflicts, []);
}

/// A local process moved a file from one of its names to another, which the log does not know: a name that it
/// was given later is given to it all the same.
#[test]
fn a_name_is_not_taken_for_moved_since_another_one_was() {
    let mut disk = Disk::new();
    let (file, other) = (key(1000), key(500));
    disk.add(other, FileKind::Directory);
    disk.add(file, FileKind::Regular);
    let name = |name: &'static [u8]| Place { dir: key(0), name };
    let mut make = Change::new(Action::Make { place: name(b"old"), object: file, target: &[] });
    make.made = plain();
    disk.change_names(&key(0), |names| {
        names.insert(b"old".to_vec(), file);
    });
    make.after.extend([file, key(0)].map(|object| (object, disk.nodes[&object].attr)));
    disk.clock += 5;
    disk.change_names(&key(0), |names| {
        names.remove(&b"old"[..]);
        names.insert(b"moved".to_vec(), file);
    });
    disk.touch(&key(0), true);
    // The last record, of another directory, is what the crash took.
    let later = time(disk.clock + 10);
    let place = Place { dir: other, name: b"link" };
    let mut link = Change::new(Action::Link { place, object: file });
    link.after.push((file, Attr { links: 2, ctime: later, ..disk.nodes[&file].attr }));
    link.after.push((other, Attr { ctime: later, mtime: later, ..disk.nodes[&other].attr }));
    let mark = Change::new(Action::Moment { before: later });
    let report =
        replay(&mut disk, &[record(&make), record(&link), record(&mark)], &mut None).unwrap();
    assert_eq!(disk.names_of(&other).unwrap().get(&b"link"[..]), Some(&file), "{report:?}");
    let names = disk.names_of(&key(0)).unwrap();
    assert_eq!(names.keys().collect::<Vec<_>>(), [b"moved"]);
}

/// What was changed before the machine was started was not changed after a crash, however late it was.
#[test]
fn what_was_changed_before_the_machine_started_is_of_under_way() {
    let mut disk = Disk::new();
    let mut live = disk.clone();
    let (replaced, moved) = (key(1000), key(2000));
    live.add(replaced, FileKind::Regular);
    let place = Place { dir: key(0), name: b"x" };
    let mut change = Change::new(Action::Make { place, object: replaced, target: &[] });
    live.change_names(&key(0), |names| {
        names.insert(b"x".to_vec(), replaced);
    });
    change.made = plain();
    change.after.extend([replaced, key(0)].map(|object| (object, live.nodes[&object].attr)));
    disk.clock = live.clock + 100_000;
    disk.add(moved, FileKind::Regular);
    disk.change_names(&key(0), |names| {
        names.insert(b"x".to_vec(), moved);
    });
    for (started, wanted) in [(None, replaced), (Some(time(disk.clock + 1)), moved)] {
        let mut disk = disk.clone();
        let by = Replay::default().on_machine_started(started);
        replay_by(by, &mut disk, &[record(&change)], &mut None).unwrap();
        assert_eq!(disk.names_of(&key(0)).unwrap()[&b"x"[..]], wanted);
    }
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
    change.made = plain();
    change.after.push((ours, live.nodes[&ours].attr));
    change.after.push((key(0), dir));
    disk.add(theirs, FileKind::Regular);
    disk.change_names(&key(0), |names| {
        names.insert(b"a".to_vec(), theirs);
    });
    let report = replay(&mut disk, &[record(&change)], &mut None).unwrap();
    let conflict =
        Conflict { dir: key(0), name: b"a".to_vec(), kept_of: None, kind: ConflictKind::InTheWay };
    assert_eq!(report.conflicts, std::slice::from_ref(&conflict));
    let names = disk.names_of(&key(0)).unwrap();
    assert_eq!(names[&b"a".to_vec()], ours);
    assert!(names.iter().any(|(name, to)| *to == theirs && name.starts_with(ASIDE_PREFIX)));

    // The same if it was put there after the crash, or may have been. But what is certainly of before,
    // and later than all that the log knows, came from a client, and is the truth.
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
    for (started, wanted) in [(None, ours), (Some(time(41)), theirs)] {
        let mut disk = disk.clone();
        let by = Replay::default().on_machine_started(started);
        let report = replay_by(by, &mut disk, &[record(&change)], &mut None).unwrap();
        assert_eq!(report.conflicts.len(), usize::from(wanted == ours));
        let names = disk.names_of(&key(0)).unwrap();
        assert_eq!(names[&b"a".to_vec()], wanted);
        assert!(names.values().any(|object| *object == theirs));
    }
}
