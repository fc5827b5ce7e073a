//! Objects that are not what they seem, and such as cannot be changed.

use super::*;

fn replay_cut_short(
    disk: &mut Disk,
    records: &[Vec<u8>],
    cuts: &[usize],
) -> Result<Report, FsError> {
    let mut observed = None;
    for cut in cuts {
        disk.budget = Some(*cut);
        let _ = replay(disk, records, &mut observed);
    }
    disk.budget = None;
    replay(disk, records, &mut observed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// What got the handle of a lost object, by a local process after the crash, is not taken for it:
    /// it keeps its data, and the lost one is made again.
    #[test]
    fn what_has_the_handle_of_a_lost_object_is_not_taken_for_it(
        steps in steps(),
        prefix: proptest::sample::Index,
        luck in proptest::collection::vec(any::<bool>(), 1..40),
        sets_ctimes: bool,
        kinds in any::<u64>(),
        cuts in proptest::collection::vec(0..30_usize, 0..3),
    ) {
        let run = run(&steps, 1);
        let prefix = prefix.index(run.states.len());
        let mut disk = crash(&run, prefix, &luck);
        disk.sets_ctimes = sets_ctimes;
        disk.clock = 1_000_000;
        let was_there = |object: &ObjectKey| run.states[..=prefix].iter().any(|it| it.nodes.contains_key(object));
        let mut lost: Vec<ObjectKey> = run.states.iter().flat_map(|it| it.nodes.keys().copied()).collect();
        lost.sort();
        lost.dedup();
        lost.retain(|object| !was_there(object));
        for (index, object) in lost.iter().enumerate() {
            let is_file = kinds >> (index % 64) & 1 == 1;
            let kind = if is_file { FileKind::Regular } else { FileKind::Directory };
            disk.add_stranger(*object, kind, format!("local{index}").into_bytes());
        }
        let left = disk.clone();
        let report = replay_cut_short(&mut disk, &run.records, &cuts).unwrap();
        prop_assert_eq!(&report.not_replayed, &[]);
        let mut found = seen(&disk);
        for (index, object) in lost.iter().enumerate() {
            let stranger = found.remove(&displaced(object));
            prop_assert_eq!(stranger.map(|it| it.0), Some(left.nodes[object].body.clone()));
            if let Body::Names(names) = &mut found.get_mut(&key(0)).unwrap().0 {
                prop_assert_eq!(names.remove(format!("local{index}").as_bytes()), Some(displaced(object)));
            }
        }
        let mut wanted = seen(run.states.last().unwrap());
        if !lost.is_empty() {
            // A local process has changed it.
            for seen in [&mut found, &mut wanted] {
                let dir = seen.get_mut(&key(0)).unwrap();
                (dir.1, dir.2, dir.3) = (0, time(0), MadeAcls::default());
            }
        }
        prop_assert_eq!(found, wanted);
    }

    /// Where something of a file cannot be brought back for a reason of its own, all else is.
    #[test]
    fn what_cannot_be_changed_keeps_nothing_else_from_being_replayed(
        steps in steps(),
        prefix: proptest::sample::Index,
        which: proptest::sample::Index,
        luck in proptest::collection::vec(any::<bool>(), 1..40),
        cuts in proptest::collection::vec(0..30_usize, 0..3),
    ) {
        let run = run(&steps, 1);
        let prefix = prefix.index(run.states.len());
        let mut disk = crash(&run, prefix, &luck);
        disk.clock = 1_000_000;
        let mut files: Vec<ObjectKey> = run.states.last().unwrap().nodes.iter()
            .filter(|(_, node)| matches!(node.body, Body::Data(_))).map(|(key, _)| *key).collect();
        files.sort();
        if files.is_empty() {
            return Ok(());
        }
        let immutable = files[which.index(files.len())];
        disk.immutable = vec![immutable];
        let report = replay_cut_short(&mut disk, &run.records, &cuts).unwrap();
        let mut found = seen(&disk);
        let mut wanted = seen(run.states.last().unwrap());
        let is_mentioned = touched(&run.records).contains(&immutable);
        let told: Vec<ObjectKey> = report.not_replayed.iter().map(|it| it.object).collect();
        prop_assert_eq!(told, if is_mentioned { vec![immutable] } else { vec![] });
        found.remove(&immutable);
        wanted.remove(&immutable);
        prop_assert_eq!(found, wanted);
    }
}

/// A name that cannot be changed stays as it is; what else there is to be done is done.
#[test]
fn a_name_that_cannot_be_changed_keeps_no_other() {
    let mut disk = Disk::new();
    let there = key(2000);
    disk.add(there, FileKind::Directory);
    disk.change_names(&key(0), |names| {
        names.insert(b"point".to_vec(), there);
    });
    let mut live = disk.clone();
    live.clock = 20;
    let record_of = |live: &mut Disk, object: ObjectKey, name: &'static [u8]| {
        live.add(object, FileKind::Regular);
        live.change_names(&key(0), |names| {
            names.insert(name.to_vec(), object);
        });
        let place = Place { dir: key(0), name };
        let mut change = Change::new(Action::Make { place, object, target: &[] });
        change.after.extend([object, key(0)].map(|object| (object, live.nodes[&object].attr)));
        record(&change)
    };
    let records =
        [record_of(&mut live, key(1000), b"point"), record_of(&mut live, key(1001), b"other")];
    disk.mounted_on = vec![b"point".to_vec()];
    let report = replay(&mut disk, &records, &mut None).unwrap();
    let names = disk.names_of(&key(0)).unwrap();
    assert_eq!((names[&b"point"[..]], names[&b"other"[..]]), (there, key(1001)));
    let place = Some((key(0), b"point".to_vec()));
    let why = FsError::AccessDenied;
    assert_eq!(report.not_replayed, [NotReplayed { object: key(1000), place, why }]);
    // A disk that fails is another matter.
    for (error, expected) in
        [(FsError::NoSpace, false), (FsError::Io, false), (FsError::IsDirectory, true)]
    {
        assert_eq!(own_failures::is_own(error), expected, "{error}");
    }
}

/// A log of an earlier version does not tell what a made object inherited: then its group gets nothing.
#[test]
fn where_the_access_list_is_not_known_the_group_gets_nothing() {
    for (is_known, mode, expected) in
        [(true, 0o670, 0o670), (false, 0o670, 0o600), (false, 0o604, 0o604)]
    {
        let mut disk = Disk::new();
        let mut live = disk.clone();
        live.add(key(1000), FileKind::Regular);
        live.nodes.get_mut(&key(1000)).unwrap().attr.mode = mode;
        let place = Place { dir: key(0), name: b"a" };
        let mut change = Change::new(Action::Make { place, object: key(1000), target: &[] });
        change.after.push((key(1000), live.nodes[&key(1000)].attr));
        let access = b"a list".to_vec();
        if is_known {
            let acls = Some(MadeAcls { access: access.clone(), default: vec![] });
            change.made = Some(Box::new(Made { born: None, acls }));
        }
        let report = replay(&mut disk, &[record(&change)], &mut None).unwrap();
        let node = &disk.nodes[&key(1000)];
        assert_eq!((node.attr.mode, node.acls.access == access), (expected, is_known));
        let kinds: Vec<_> = report.conflicts.iter().map(|conflict| conflict.kind).collect();
        let is_told = mode != expected;
        assert_eq!(kinds, if is_told { vec![ConflictKind::AccessUnknown] } else { vec![] });
    }
}
