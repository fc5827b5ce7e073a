//! Local changes of a file of which changes of its names tell, and by which name they are told.

use super::local::{FILE, Shared, data_of, kept};
use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Local processes change names, too, and what they did is on the disk: whatever of the later operations a
    /// crash leaves, and wherever replay is cut short, the names are those of the end.
    #[test]
    fn names_that_local_processes_changed_are_no_more_and_no_fewer(
        steps in proptest::collection::vec((any::<Step>(), 0..4_u8), 1..40),
        prefix: proptest::sample::Index,
        brought: Option<(proptest::sample::Index, usize)>,
        cuts in proptest::collection::vec(0..30_usize, 0..3),
    ) {
        let mut disk = Disk::new();
        let mut next = 0;
        for number in 0..6 {
            step(&mut disk, &mut next, (1, [number, number / 2, 0, 0], 5));
        }
        let mut states = vec![disk.clone()];
        let mut records = Vec::new();
        let prefix = prefix.index(steps.len() + 1);
        for (index, ((what, choices, number), who)) in steps.iter().enumerate() {
            disk.clock = 1000 + index as i64;
            let is_local = *who == 0 && index < prefix;
            // To make, remove, rename and link.
            let of_clients = [0, 1, 3, 5, 6, 7];
            let what =
                if is_local { 3 + what % 5 } else { of_clients[usize::from(*what) % of_clients.len()] };
            if let Some(record) = step(&mut disk, &mut next, (what, *choices, *number))
                && !is_local
            {
                records.push(record);
            }
            states.push(disk.clone());
        }
        let mut disk = states[prefix].clone();
        let last = states.last().unwrap();
        if let Some((later, choice)) = brought {
            // Where a flush of one file brings its names alone, names may come back, but no file is gone.
            disk.sets_ctimes = true;
            bring_forward(&mut disk, &states[prefix + later.index(states.len() - prefix)], choice);
        }
        disk.clock = 1_000_000;
        let by = || Replay::default().on_machine_started(Some(time(900_000)));
        let mut observed = None;
        for cut in cuts {
            disk.budget = Some(cut);
            let _ = replay_by(by(), &mut disk, &records, &mut observed);
        }
        disk.budget = None;
        replay_by(by(), &mut disk, &records, &mut observed).unwrap();
        let told: Vec<_> = records.iter().map(|r| Change::decode(r).unwrap().0.action).collect();
        if brought.is_none() {
            prop_assert_eq!(names(&disk), names(last), "{} {:?}", prefix, told);
        }
        for object in last.nodes.keys().filter(|object| last.links(object) > 0) {
            prop_assert!(disk.links(object) > 0, "{} {:?} {:?}", prefix, object, told);
        }
    }
}

/// Who writes to a file and sets its mtime back is seen by what the next change of its names tells of before, also
/// where another change of names came before.
#[test]
fn what_was_written_with_the_old_mtime_is_kept_where_a_name_was_changed_after_it() {
    for is_told in [true, false] {
        let mut shared = Shared::new();
        shared.write(0, b'a');
        let object = key(FILE);
        let rename = |shared: &mut Shared, is_told: bool| {
            let before = shared.disk.attr(&object).unwrap();
            shared.disk.clock += 1;
            shared.disk.touch(&object, false);
            let [from, to] = [b"file".as_slice(), b"moved"].map(|name| Place { dir: key(0), name });
            let action = Action::Rename { from, to, object, is_directory: false, victim: None };
            let mut change = Change::new(action);
            if is_told {
                let Attr { ctime, mtime, .. } = before;
                change.before = Some(Before { ctime, mtime, ownership: None });
                change.after.push((object, shared.disk.attr(&object).unwrap()));
            }
            shared.records.push(record(&change));
        };
        rename(&mut shared, is_told);
        shared.write_locally(0, b'l');
        rename(&mut shared, is_told);
        shared.mark();
        let report = shared.replay(None, &[]);
        assert!(data_of(&shared.disk, &object).starts_with(b"aaa"));
        let kinds: Vec<_> = report.conflicts.iter().map(|conflict| conflict.kind).collect();
        assert_eq!(kinds, if is_told { vec![ConflictKind::FoundKept] } else { vec![] });
        assert_eq!(kept(&shared.disk).len(), kinds.len());
    }
}

/// A client links a file and removes its old name, of which the crash has taken the latter; `take` is what somebody
/// else did to the new one. What is left of the file's names, and what is told.
fn names_after_a_removal(
    is_elsewhere: bool,
    is_touched_since: bool,
    take: impl FnOnce(&mut Disk),
) -> (Vec<Vec<u8>>, Report) {
    let mut disk = Disk::new();
    let object = key(FILE);
    disk.add(object, FileKind::Regular);
    disk.put(&object, 0, b"data");
    let name = |disk: &mut Disk, dir: u64, name: &[u8]| {
        disk.clock += 1;
        disk.change_names(&key(dir), |names| {
            names.insert(name.to_vec(), object);
        });
        disk.touch(&object, false);
    };
    name(&mut disk, 0, b"old");
    if is_elsewhere {
        name(&mut disk, 2, b"elsewhere");
    }
    let log = |disk: &Disk, action: Action<'_>, dir: u64| {
        let mut change = Change::new(action);
        let told = [key(dir), object];
        change.after.extend(told.iter().filter_map(|it| Some((*it, disk.attr(it)?))));
        record(&change)
    };
    name(&mut disk, 1, b"new");
    let linked = Action::Link { place: Place { dir: key(1), name: b"new" }, object };
    let mut records = vec![log(&disk, linked, 1)];
    disk.clock += 1;
    take(&mut disk);
    // What the crash takes.
    let mut later = disk.clone();
    later.clock += 1;
    later.change_names(&key(0), |names| {
        names.remove(b"old".as_slice());
    });
    later.touch(&object, false);
    let unlinked = Unlinked { object, is_directory: false, is_left: true };
    let removed = Action::Remove { place: Place { dir: key(0), name: b"old" }, unlinked };
    records.push(log(&later, removed, 0));
    if is_touched_since {
        disk.clock = 950_000;
        disk.change_names(&key(0), |_| {});
    }
    disk.clock = 1_000_000;
    let by = Replay::default().on_machine_started(Some(time(900_000)));
    let report = replay_by(by, &mut disk, &records, &mut None).unwrap();
    let names = (0..DIRS as u64).filter_map(|dir| disk.names_of(&key(dir)));
    let its = names.flat_map(|names| names.iter().filter(|(_, to)| **to == object));
    (its.map(|(name, _)| name.clone()).collect(), report)
}

/// Where a local process had moved a file from its new name, its old one goes, as the client wanted. Not so where it
/// would be gone for good by that, nor where what became of the new name is not known.
#[test]
fn a_removed_name_goes_though_another_was_moved_unless_it_is_the_last() {
    let is_aside = |name: &Vec<u8>| name.starts_with(ASIDE_PREFIX);
    let rename = |disk: &mut Disk| {
        disk.change_names(&key(1), |names| {
            let moved = names.remove(b"new".as_slice()).unwrap();
            names.insert(b"local".to_vec(), moved);
        });
    };
    let (names, report) = names_after_a_removal(false, false, rename);
    assert_eq!((names, report.conflicts), (vec![b"local".to_vec()], vec![]));
    // The old name may be one that somebody made after the crash.
    let (names, report) = names_after_a_removal(false, true, rename);
    assert!(matches!(&names[..], [name, _] if is_aside(name)), "{names:?}");
    assert!(matches!(&report.conflicts[..], [it] if it.kind == ConflictKind::Gone));
    let unlink = |disk: &mut Disk| {
        disk.change_names(&key(1), |names| {
            names.remove(b"new".as_slice());
        });
    };
    let (names, report) = names_after_a_removal(true, false, unlink);
    assert_eq!((names, report.conflicts), (vec![b"elsewhere".to_vec()], vec![]));
    let (names, report) = names_after_a_removal(false, false, unlink);
    assert!(matches!(&names[..], [name] if is_aside(name)), "{names:?}");
    assert!(matches!(&report.conflicts[..], [it] if it.kind == ConflictKind::Gone));
    // The directory is gone.
    let take = |disk: &mut Disk| {
        disk.nodes.remove(&key(1));
    };
    let (names, report) = names_after_a_removal(true, false, take);
    assert!(matches!(&names[..], [name, _] if is_aside(name)), "{names:?}");
    assert!(report.conflicts.iter().all(|it| it.kind == ConflictKind::Gone));
}

/// A client links a file and renames it by its first name, and the crash takes the RENAME. If it takes the LINK as well, both
/// names are made again. If a local process had renamed the link, and nothing tells whether that came before, the
/// acknowledged name is there, and the local one stays.
#[test]
fn a_renamed_file_has_its_new_name_whatever_became_of_another() {
    for is_moved in [false, true] {
        let mut disk = Disk::new();
        let object = key(FILE);
        disk.add(object, FileKind::Regular);
        let log = |disk: &Disk, action: Action<'_>, dir: u64| {
            let mut change = Change::new(action);
            let told = [key(dir), object];
            change.after.extend(told.iter().filter_map(|it| Some((*it, disk.attr(it)?))));
            record(&change)
        };
        let name = |disk: &mut Disk, dir: u64, from: Option<&[u8]>, to: Option<&[u8]>| {
            disk.clock += 1;
            disk.change_names(&key(dir), |names| {
                from.map(|from| names.remove(from));
                to.map(|to| names.insert(to.to_vec(), object));
            });
            disk.touch(&object, false);
        };
        name(&mut disk, 0, None, Some(b"made"));
        let mut later = disk.clone();
        name(&mut later, 2, None, Some(b"linked"));
        let linked = Action::Link { place: Place { dir: key(2), name: b"linked" }, object };
        let mut records = vec![log(&later, linked, 2)];
        if is_moved {
            name(&mut later, 2, Some(b"linked"), Some(b"local"));
            disk = later.clone();
        }
        name(&mut later, 0, Some(b"made"), None);
        name(&mut later, 1, None, Some(b"renamed"));
        let [from, to] = [(0, b"made".as_slice()), (1, b"renamed")];
        let [from, to] = [from, to].map(|(dir, name)| Place { dir: key(dir), name });
        let renamed = Action::Rename { from, to, object, is_directory: false, victim: None };
        records.push(log(&later, renamed, 1));
        let report = replay_by(Replay::default(), &mut disk, &records, &mut None).unwrap();
        let has =
            |dir: u64, name: &[u8]| disk.names_of(&key(dir)).unwrap().get(name) == Some(&object);
        let other: &[u8] = if is_moved { b"local" } else { b"linked" };
        assert!(has(1, b"renamed") && has(2, other), "{:?}", names(&disk));
        assert!(!has(0, b"made"), "{:?}", names(&disk));
        assert_eq!(disk.links(&object), 2 + usize::from(has(2, b"linked") && is_moved));
        assert!(is_moved || report.conflicts.is_empty(), "{:?}", report.conflicts);
        let is_aside = |name: &Vec<u8>| name.starts_with(ASIDE_PREFIX);
        assert!((0..3).all(|dir| !disk.names_of(&key(dir)).unwrap().keys().any(is_aside)));
    }
}

/// A file that a local process has renamed is not told by the name that it had.
#[test]
fn what_differs_is_told_by_a_name_that_is_there() {
    let mut shared = Shared::new();
    let object = key(FILE);
    let rename = |shared: &mut Shared, from: &[u8], to: &[u8]| {
        shared.disk.clock += 1;
        shared.disk.change_names(&key(0), |names| {
            names.remove(from);
            names.insert(to.to_vec(), object);
        });
    };
    rename(&mut shared, b"file", b"moved");
    let [from, to] = [b"file".as_slice(), b"moved"].map(|name| Place { dir: key(0), name });
    let action = Action::Rename { from, to, object, is_directory: false, victim: None };
    let mut change = Change::new(action);
    change.after.push((key(0), shared.disk.nodes[&key(0)].attr));
    shared.records.push(record(&change));
    shared.write(0, b'a');
    shared.change_locally(0, b'l');
    rename(&mut shared, b"moved", b"mine");
    shared.mark();
    let report = shared.replay(None, &[]);
    assert_eq!(shared.disk.names_of(&key(0)).unwrap().get(b"mine".as_slice()), Some(&object));
    let told: Vec<_> = report.conflicts.iter().map(|conflict| conflict.name.as_slice()).collect();
    assert!(matches!(told[..], [name] if name.starts_with(ASIDE_PREFIX)), "{told:?}");
    assert_eq!(report.conflicts[0].kept_of, Some(object));
}

/// A file that is too large to be copied is made longer by a client, and a local process writes into what is new of
/// it: what replay makes zeros of is kept.
#[test]
fn what_a_gap_had_is_kept_before_it_becomes_zeros() {
    for (how, copies_nothing) in [(0, true), (0, false), (1, true), (1, false)] {
        let mut shared = Shared::new();
        shared.disk.copies_nothing = copies_nothing;
        let object = key(FILE);
        let Attr { ctime, mtime, .. } = shared.disk.attr(&object).unwrap();
        let before = Some(Before { ctime, mtime, ownership: None });
        shared.disk.clock += 1;
        shared.disk.cut(&object, 30);
        let data = b"zzz";
        let action = if how == 0 {
            Action::Attributes { object, size: Some(30), gap: Some(12) }
        } else {
            shared.disk.put(&object, 27, data);
            Action::Write { object, offset: 27, data, gap: Some(12) }
        };
        shared.disk.touch(&object, true);
        shared.log(action, before);
        shared.disk.clock += 1;
        shared.disk.put(&object, 20, b"local");
        shared.disk.touch(&object, true);
        let report = shared.replay(None, &[]);
        let kinds: Vec<_> = report.conflicts.iter().map(|conflict| conflict.kind).collect();
        assert_eq!(kinds, [ConflictKind::FoundKept]);
        assert_eq!(data_of(&shared.disk, &object)[12..27], [0; 15]);
        let kept = kept(&shared.disk);
        assert_eq!(kept[0].1[20..25], *b"local", "{how} {copies_nothing}");
    }
}

/// After a kill too, what a local process wrote between two operations stays, also where a change of names came
/// between of which the log does not tell the file's times.
#[test]
fn what_was_written_locally_before_a_kill_stays_behind_a_name_that_tells_no_times() {
    let mut shared = Shared::new();
    shared.write(0, b'a');
    let object = key(FILE);
    shared.disk.clock += 1;
    shared.disk.touch(&object, false);
    let [from, to] = [b"file".as_slice(), b"moved"].map(|name| Place { dir: key(0), name });
    let action = Action::Rename { from, to, object, is_directory: false, victim: None };
    shared.records.push(record(&Change::new(action)));
    shared.change_locally(0, b'l');
    shared.write(6, b'b');
    let mut by = Replay::default();
    by.be_of_what_is_in_effect(false);
    replay_by(by, &mut shared.disk, &shared.records, &mut None).unwrap();
    assert!(data_of(&shared.disk, &object).starts_with(b"ll"));
}
