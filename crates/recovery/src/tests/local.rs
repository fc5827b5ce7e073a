//! What local processes change beside the server, at any point: it stays, or it is kept.

use super::*;

/// One step: what, and two numbers.
type LocalStep = (u8, u8, u8);

pub(super) const FILE: u64 = 1000;
const NAME: &[u8] = b"file";

/// A file that clients and local processes change, one after the other.
pub(super) struct Shared {
    pub(super) disk: Disk,
    /// With the time marks.
    pub(super) records: Vec<Vec<u8>>,
    /// What the operations have made of it, as if there were no local process.
    acknowledged: Vec<u8>,
}

pub(super) fn data_of(disk: &Disk, object: &ObjectKey) -> Vec<u8> {
    match disk.nodes.get(object).map(|node| &node.body) {
        Some(Body::Data(data)) => data.clone(),
        _ => panic!("no file"),
    }
}

/// What is kept beside the file: the names, and the data.
pub(super) fn kept(disk: &Disk) -> Vec<(String, Vec<u8>)> {
    let names = disk.names_of(&key(0)).unwrap();
    let kept = names.iter().filter(|(name, _)| name.starts_with(ASIDE_PREFIX));
    kept.map(|(name, to)| (String::from_utf8(name.clone()).unwrap(), data_of(disk, to))).collect()
}

impl Shared {
    pub(super) fn new() -> Self {
        let mut disk = Disk::new();
        disk.clock = 1000;
        disk.add(key(FILE), FileKind::Regular);
        disk.put(&key(FILE), 0, &[b'.'; 12]);
        disk.change_names(&key(0), |names| {
            names.insert(NAME.to_vec(), key(FILE));
        });
        Self { disk, records: vec![], acknowledged: vec![b'.'; 12] }
    }

    pub(super) fn write(&mut self, offset: usize, byte: u8) {
        self.disk.clock += 1;
        let Attr { ctime, mtime, .. } = self.disk.attr(&key(FILE)).unwrap();
        let before = Some(Before { ctime, mtime, ownership: None });
        let data = [byte; 3];
        let size = self.disk.nodes[&key(FILE)].attr.size;
        let offset = offset.min(size as usize);
        self.disk.put(&key(FILE), offset, &data);
        self.disk.touch(&key(FILE), true);
        if self.acknowledged.len() < offset + 3 {
            self.acknowledged.resize(offset + 3, 0);
        }
        self.acknowledged[offset..offset + 3].copy_from_slice(&data);
        let object = key(FILE);
        let action = Action::Write { object, offset: offset as u64, data: &data, gap: None };
        self.log(action, before);
    }

    pub(super) fn log(&mut self, action: Action<'_>, before: Option<Before>) {
        let mut change = Change::new(action);
        change.before = before;
        change.after.push((key(FILE), self.disk.attr(&key(FILE)).unwrap()));
        self.records.push(record(&change));
    }

    pub(super) fn mark(&mut self) {
        self.disk.clock += 1;
        let before = time(self.disk.clock);
        self.records.push(record(&Change::new(Action::Moment { before })));
    }

    pub(super) fn change_locally(&mut self, offset: usize, byte: u8) {
        self.write_locally(offset, byte);
        self.disk.touch(&key(FILE), true);
    }

    /// As who sets the mtime back.
    pub(super) fn write_locally(&mut self, offset: usize, byte: u8) {
        self.disk.clock += 1;
        let Attr { size, mtime, .. } = self.disk.nodes[&key(FILE)].attr;
        self.disk.put(&key(FILE), offset.min(size as usize), &[byte; 2]);
        self.disk.touch(&key(FILE), false);
        self.disk.nodes.get_mut(&key(FILE)).unwrap().attr.mtime = mtime;
    }

    /// Replays after a crash that took nothing: all of it had been flushed.
    pub(super) fn replay(&mut self, started: Option<Time>, cuts: &[usize]) -> Report {
        let mut observed = None;
        let by = || Replay::default().on_machine_started(started);
        self.disk.clock = 1_000_000;
        for cut in cuts {
            self.disk.budget = Some(*cut);
            let _ = replay_by(by(), &mut self.disk, &self.records, &mut observed);
        }
        self.disk.budget = None;
        replay_by(by(), &mut self.disk, &self.records, &mut observed).unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// What was flushed stays what it is, if the last who changed it was a local process, and that is certain;
    /// what was acknowledged otherwise. The other version is beside it.
    #[test]
    fn of_two_versions_none_is_lost(
        steps in proptest::collection::vec(any::<LocalStep>(), 1..20),
        is_marked: bool,
        started: bool,
        sets_ctimes: bool,
        copies_nothing: bool,
        cuts in proptest::collection::vec(0..8_usize, 0..4),
    ) {
        let mut shared = Shared::new();
        shared.disk.sets_ctimes = sets_ctimes;
        shared.disk.copies_nothing = copies_nothing;
        let (mut is_last_local, mut has_local, mut has_record) = (false, false, false);
        let mut has_untold = false;
        for (what, offset, byte) in steps {
            let (offset, byte) = (usize::from(offset % 12), byte | 1);
            match what % 4 {
                0 => {
                    shared.change_locally(offset, byte);
                    (is_last_local, has_local) = (true, true);
                }
                1 => {
                    shared.write_locally(offset, byte);
                    (is_last_local, has_local, has_untold) = (true, true, true);
                }
                2 => {
                    shared.write(offset, byte);
                    (is_last_local, has_record) = (false, true);
                }
                _ => shared.mark(),
            }
        }
        if is_marked {
            shared.mark();
        }
        let last = shared.disk.clock;
        let flushed = data_of(&shared.disk, &key(FILE));
        let started = started.then_some(time(last + 1));
        let is_certain = is_marked;
        let report = shared.replay(started, &cuts);
        let found = data_of(&shared.disk, &key(FILE));
        let kept = kept(&shared.disk);
        prop_assert_eq!(report.conflicts.len(), kept.len());
        if !has_record || !has_local {
            prop_assert_eq!((&found, kept.len()), (&flushed, 0));
        } else if !is_last_local && !has_untold {
            // Its last change is in the log: it is on the disk, and all before it.
            prop_assert_eq!(&found, &flushed);
        } else if is_certain && !has_untold {
            prop_assert_eq!(&found, &flushed);
            if let [(name, data)] = &kept[..] {
                prop_assert!(name.contains("acknowledged"));
                if !copies_nothing {
                    prop_assert!(*data != flushed);
                }
            } else {
                prop_assert!(kept.is_empty());
            }
        } else {
            // It may be an operation that was under way, or no change of data. Each byte that is not there any
            // more is kept, if a local process's change is certain or its mtime tells it.
            if has_untold && !is_certain {
                return Ok(());
            }
            let before = kept.first().map_or(&flushed, |(_, data)| data);
            for (at, byte) in flushed.iter().enumerate() {
                prop_assert!(found[at] == *byte || before[at] == *byte, "{at}");
            }
        }
    }
}

/// A name that a local process has taken away, and that is certain, stays away.
#[test]
fn what_a_local_process_has_removed_stays_removed() {
    for (sets_ctimes, marked, stays_away) in
        [(false, true, true), (false, false, false), (true, true, true), (true, false, false)]
    {
        let mut shared = Shared::new();
        shared.disk.sets_ctimes = sets_ctimes;
        shared.disk.clock += 1;
        let made = key(2000);
        shared.disk.add(made, FileKind::Regular);
        shared.disk.change_names(&key(0), |names| {
            names.insert(b"new".to_vec(), made);
        });
        let place = Place { dir: key(0), name: b"new" };
        let mut change = Change::new(Action::Make { place, object: made, target: &[] });
        change.made = plain();
        change.after.extend([made, key(0)].map(|object| (object, shared.disk.nodes[&object].attr)));
        shared.records.push(record(&change));
        shared.disk.clock += 1;
        shared.disk.change_names(&key(0), |names| {
            names.remove(&b"new"[..]);
        });
        shared.disk.reap(&made);
        if marked {
            shared.mark();
        }
        shared.replay(None, &[]);
        let is_there = shared.disk.names_of(&key(0)).unwrap().contains_key(&b"new"[..]);
        assert_eq!(is_there, !stays_away, "{sets_ctimes} {marked}");
    }
}

/// Data that the server has written without the log is not taken for a local process's.
#[test]
fn what_was_written_without_the_log_is_no_conflict() {
    for is_told in [true, false] {
        let mut shared = Shared::new();
        shared.write(0, b'a');
        shared.change_locally(6, b'u');
        let (ctime, mtime) = {
            let attr = shared.disk.attr(&key(FILE)).unwrap();
            (attr.ctime, attr.mtime)
        };
        if is_told {
            let touched = Action::Touched { object: key(FILE), ctime, mtime };
            shared.records.push(record(&Change::new(touched)));
        }
        shared.mark();
        // The log's data had not reached the disk.
        shared.disk.put(&key(FILE), 0, b"...");
        shared.replay(None, &[]);
        let found = data_of(&shared.disk, &key(FILE));
        assert_eq!(found.starts_with(b"aaa"), is_told);
        assert_eq!(kept(&shared.disk).len(), usize::from(!is_told));
    }
}

/// A change that is not in the log and takes long (a copy, say) gives the file one ctime after another, of which
/// its record tells the last. If the power fails when an earlier one is on the disk, what was acknowledged is in
/// the file, not beside it.
#[test]
fn what_a_long_change_without_the_log_has_begun_with_is_no_local_change() {
    for is_told in [true, false] {
        let mut shared = Shared::new();
        shared.write(0, b'a');
        let Attr { ctime, mtime, .. } = shared.disk.attr(&key(FILE)).unwrap();
        let before = Before { ctime, mtime, ownership: None };
        shared.change_locally(6, b'u');
        let reached = shared.disk.clone();
        shared.change_locally(8, b'v');
        let Attr { ctime, mtime, .. } = shared.disk.attr(&key(FILE)).unwrap();
        let mut touched = Change::new(Action::Touched { object: key(FILE), ctime, mtime });
        touched.before = is_told.then_some(before);
        shared.records.push(record(&touched));
        shared.mark();
        // Of the first write the times had reached the disk, and not yet the data.
        shared.disk = reached;
        shared.disk.put(&key(FILE), 0, b"...");
        shared.replay(None, &[]);
        assert_eq!(data_of(&shared.disk, &key(FILE)).starts_with(b"aaa"), is_told);
        let kept = kept(&shared.disk);
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].0.contains("found"), is_told, "{}", kept[0].0);
    }
}

/// A local process's change that data came after which the log does not have is seen by what its record tells
/// of before.
#[test]
fn what_a_local_process_wrote_before_a_write_without_the_log_stays() {
    for is_told in [true, false] {
        let mut shared = Shared::new();
        shared.write(0, b'a');
        shared.change_locally(0, b'l');
        let Attr { ctime, mtime, .. } = shared.disk.attr(&key(FILE)).unwrap();
        let before = Before { ctime, mtime, ownership: None };
        shared.change_locally(6, b'u');
        let Attr { ctime, mtime, .. } = shared.disk.attr(&key(FILE)).unwrap();
        let mut touched = Change::new(Action::Touched { object: key(FILE), ctime, mtime });
        touched.before = is_told.then_some(before);
        shared.records.push(record(&touched));
        shared.mark();
        shared.replay(None, &[]);
        assert_eq!(data_of(&shared.disk, &key(FILE)).starts_with(b"ll"), is_told);
        assert_eq!(kept(&shared.disk).len(), usize::from(is_told));
    }
}

/// A local process wrote, set the mtime back, and a client wrote after it: what the last record tells of before
/// shows that there was something, also where mounting sets ctimes.
#[test]
fn what_was_written_with_the_old_mtime_is_kept_where_a_record_came_after_it() {
    for sets_ctimes in [false, true] {
        let mut shared = Shared::new();
        shared.disk.sets_ctimes = sets_ctimes;
        shared.write(0, b'a');
        shared.write_locally(0, b'l');
        shared.write(6, b'b');
        let flushed = data_of(&shared.disk, &key(FILE));
        shared.replay(None, &[]);
        assert!(data_of(&shared.disk, &key(FILE)).starts_with(b"aaa"), "{sets_ctimes}");
        let kept = kept(&shared.disk);
        assert_eq!(kept.len(), 1, "{sets_ctimes}");
        assert_eq!(kept[0].1, flushed);
    }
}

/// Where a flush of one file brings a new directory without its names (btrfs), only the ctime of one that is
/// not new tells which of its names are there.
#[test]
fn what_was_removed_locally_before_a_later_record_stays_away_if_the_directory_is_not_new() {
    for is_new in [false, true] {
        let mut disk = Disk::new();
        disk.sets_ctimes = true;
        let (dir, file) = (key(500), key(1000));
        let name = |dir, name: &'static [u8]| Place { dir, name };
        let told = |disk: &Disk, change: &mut Change<'_>, of: &[ObjectKey]| {
            change.after.extend(of.iter().map(|object| (*object, disk.nodes[object].attr)));
        };
        disk.add(dir, FileKind::Directory);
        disk.change_names(&key(0), |names| {
            names.insert(b"dir".to_vec(), dir);
        });
        let mut records = Vec::new();
        if is_new {
            let place = name(key(0), b"dir");
            let mut mkdir = Change::new(Action::Make { place, object: dir, target: &[] });
            mkdir.made = plain();
            told(&disk, &mut mkdir, &[dir, key(0)]);
            records.push(record(&mkdir));
        }
        for (object, text) in [(file, &b"removed"[..]), (key(1001), &b"later"[..])] {
            disk.clock += 1;
            disk.add(object, FileKind::Regular);
            disk.change_names(&dir, |names| {
                if object != file {
                    // A local process was there before.
                    names.remove(&b"removed"[..]);
                }
                names.insert(text.to_vec(), object);
            });
            let place = Place { dir, name: text };
            let mut make = Change::new(Action::Make { place, object, target: &[] });
            make.made = plain();
            told(&disk, &mut make, &[object, dir]);
            records.push(record(&make));
        }
        disk.clock += 1;
        let mut last =
            Change::new(Action::Make { place: name(dir, b"last"), object: key(1002), target: &[] });
        last.made = plain();
        let (clock, attr) = (time(disk.clock), disk.nodes[&dir].attr);
        last.after.push((key(1002), disk.nodes[&key(1001)].attr));
        last.after.push((dir, Attr { ctime: clock, mtime: clock, ..attr }));
        records.push(record(&last));
        disk.reap(&file);
        replay(&mut disk, &records, &mut None).unwrap();
        let names = disk.names_of(&dir).unwrap();
        assert!(names.contains_key(&b"later"[..]) && names.contains_key(&b"last"[..]));
        assert_eq!(names.contains_key(&b"removed"[..]), is_new);
    }
}

/// After a kill, what is in memory is what was made of a file last.
#[test]
fn after_a_kill_data_that_was_changed_since_stays() {
    for is_changed in [true, false] {
        let mut shared = Shared::new();
        shared.write(0, b'a');
        if is_changed {
            shared.change_locally(0, b'l');
        } else {
            // The disk has failed unheard.
            shared.disk.put(&key(FILE), 0, b"...");
        }
        let by = in_effect();
        replay_by(by, &mut shared.disk, &shared.records, &mut None).unwrap();
        let found = data_of(&shared.disk, &key(FILE));
        assert_eq!(&found[..3], if is_changed { b"lla" } else { b"aaa" });
    }
}

/// A mode that a local process has set later stays, and is told.
#[test]
fn attributes_that_were_set_later_stay_and_are_told() {
    let mut shared = Shared::new();
    shared.write(0, b'a');
    let name = Place { dir: key(0), name: NAME };
    let link = Action::Link { place: name, object: key(FILE) };
    shared.log(link, None);
    shared.disk.clock += 1;
    shared.disk.nodes.get_mut(&key(FILE)).unwrap().attr.mode = 0o600;
    shared.disk.touch(&key(FILE), false);
    shared.mark();
    let report = shared.replay(None, &[]);
    assert_eq!(shared.disk.nodes[&key(FILE)].attr.mode, 0o600);
    let kinds: Vec<_> = report.conflicts.iter().map(|conflict| conflict.kind).collect();
    assert_eq!(kinds, [ConflictKind::AttributesStay]);
}

/// What a local process finds after the crash, and changes before the start, has a ctime that does not
/// tell whether the last acknowledged mode is there: one that the object had before is not its doing.
#[test]
fn a_mode_that_was_acknowledged_is_not_lost_to_who_changes_the_file_after_the_crash() {
    const BEFORE: u32 = 0o644;
    const ACKNOWLEDGED: u32 = 0o600;
    const OF_A_STRANGER: u32 = 0o640;
    let (back, stays) = (Some(ConflictKind::AttributesBack), Some(ConflictKind::AttributesStay));
    for (is_there, local, expected, told) in [
        (false, None, ACKNOWLEDGED, back),
        (true, None, ACKNOWLEDGED, None),
        (false, Some(OF_A_STRANGER), OF_A_STRANGER, stays),
        (true, Some(OF_A_STRANGER), OF_A_STRANGER, stays),
        // Nobody can tell this from the first.
        (true, Some(BEFORE), ACKNOWLEDGED, back),
    ] {
        for sets_ctimes in [false, true] {
            let mut shared = Shared::new();
            shared.disk.sets_ctimes = sets_ctimes;
            let set_mode = |shared: &mut Shared, mode| {
                shared.disk.clock += 1;
                shared.disk.nodes.get_mut(&key(FILE)).unwrap().attr.mode = mode;
                shared.disk.touch(&key(FILE), false);
            };
            set_mode(&mut shared, BEFORE);
            let name = Place { dir: key(0), name: NAME };
            let was = before(&shared.disk.attr(&key(FILE)).unwrap());
            set_mode(&mut shared, ACKNOWLEDGED);
            let object = key(FILE);
            shared.log(Action::Attributes { object, size: None, gap: None }, Some(was));
            shared.log(Action::Link { place: name, object }, None);
            shared.mark();
            if !is_there {
                set_mode(&mut shared, BEFORE);
            }
            shared.disk.clock += 1000;
            shared.disk.touch(&key(FILE), true);
            if let Some(mode) = local {
                set_mode(&mut shared, mode);
            }
            let report = shared.replay(None, &[]);
            let what = format!("{is_there} {local:?} {sets_ctimes}");
            assert_eq!(shared.disk.nodes[&key(FILE)].attr.mode, expected, "{what}");
            let kinds: Vec<_> = report.conflicts.iter().map(|conflict| conflict.kind).collect();
            // Where mounting sets ctimes it is no sign of a stranger.
            let told = told.filter(|kind| !sets_ctimes || Some(*kind) == stays);
            assert_eq!(kinds, Vec::from_iter(told), "{what}");
        }
    }
}

/// A mode that a local process sets after the crash may have to go, for an access list that was
/// acknowledged and is lost. It is told, whatever the log knows of the file's names, and also where
/// mounting sets ctimes: it does not set modes.
#[test]
fn a_mode_that_goes_with_a_lost_list_is_told() {
    for (sets_ctimes, has_name) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut shared = Shared::new();
        shared.disk.sets_ctimes = sets_ctimes;
        let object = key(FILE);
        let as_it_was = shared.disk.nodes[&object].clone();
        let was = before(&as_it_was.attr);
        shared.disk.clock += 1;
        let list: &[u8] = b"a list";
        let node = shared.disk.nodes.get_mut(&object).unwrap();
        node.attr.mode = 0o754;
        node.acls.access = list.to_vec();
        shared.disk.touch(&object, false);
        let acls = Action::Acls { object, access: Some(list), default: None };
        shared.log(acls, Some(was));
        if has_name {
            shared.log(Action::Link { place: Place { dir: key(0), name: NAME }, object }, None);
        }
        shared.mark();
        *shared.disk.nodes.get_mut(&object).unwrap() = as_it_was;
        shared.disk.clock += 1000;
        shared.disk.nodes.get_mut(&object).unwrap().attr.mode = 0o517;
        shared.disk.touch(&object, false);
        let report = shared.replay(None, &[]);
        let what = format!("{sets_ctimes} {has_name}");
        let node = &shared.disk.nodes[&object];
        assert_eq!((node.attr.mode, &node.acls.access[..]), (0o754, list), "{what}");
        let named: Vec<_> = report.conflicts.iter().map(|conflict| conflict.kind).collect();
        let unnamed: Vec<_> = report.unnamed.iter().map(|(_, kind)| *kind).collect();
        let (told, other) = if has_name { (named, unnamed) } else { (unnamed, named) };
        assert_eq!((told, other), (vec![ConflictKind::AttributesBack], vec![]), "{what}");
    }
}

/// A local process may find a file again that was removed, and write to it: what it wrote is kept, also
/// if the log has no more of the file than that it was removed.
#[test]
fn data_that_is_written_to_a_removed_file_before_the_start_is_kept() {
    let cases = [(true, false), (true, true), (false, false)];
    for ((is_written, has_other_name), is_all_known) in
        cases.into_iter().flat_map(|case| [(case, true), (case, false)])
    {
        let mut shared = Shared::new();
        shared.write(0, b'a');
        if !is_all_known {
            shared.records.clear();
        }
        if !is_written {
            // Set by a client, and still to come.
            shared.disk.nodes.get_mut(&key(FILE)).unwrap().attr.mtime = time(900_000);
        }
        let object = key(FILE);
        let mut removed = shared.disk.clone();
        removed.clock += 1;
        removed.change_names(&key(0), |names| {
            names.remove(NAME);
        });
        let place = Place { dir: key(0), name: NAME };
        let unlinked = Unlinked { object, is_directory: false, is_left: has_other_name };
        let mut change = Change::new(Action::Remove { place, unlinked });
        change.after.push((key(0), removed.nodes[&key(0)].attr));
        shared.records.push(record(&change));
        if has_other_name {
            shared.disk.change_names(&key(0), |names| {
                names.insert(b"other".to_vec(), object);
            });
        }
        shared.disk.clock += 1000;
        if is_written {
            shared.change_locally(0, b'l');
        }
        let report = shared.replay(None, &[]);
        assert!(!shared.disk.names_of(&key(0)).unwrap().contains_key(NAME));
        let kinds: Vec<_> = report.conflicts.iter().map(|conflict| conflict.kind).collect();
        if is_written && !has_other_name {
            assert_eq!(kinds, [ConflictKind::RemovedKept]);
            assert_eq!(&kept(&shared.disk)[0].1[..3], b"lla");
        } else {
            assert!(!kinds.contains(&ConflictKind::RemovedKept), "{kinds:?}");
        }
    }
}

/// After a kill, an older change in the log is not done over data that was written without the log.
#[test]
fn after_a_kill_what_was_written_without_the_log_stays() {
    for is_told in [true, false] {
        let mut shared = Shared::new();
        shared.write(0, b'a');
        shared.disk.clock += 1;
        shared.disk.put(&key(FILE), 0, b"uu");
        shared.disk.touch(&key(FILE), true);
        let Attr { ctime, mtime, .. } = shared.disk.attr(&key(FILE)).unwrap();
        if is_told {
            let touched = Action::Touched { object: key(FILE), ctime, mtime };
            shared.records.push(record(&Change::new(touched)));
        }
        let by = in_effect();
        replay_by(by, &mut shared.disk, &shared.records, &mut None).unwrap();
        assert_eq!(&data_of(&shared.disk, &key(FILE))[..3], b"uua");
        // What comes after it is done.
        shared.write(0, b'b');
        shared.disk.put(&key(FILE), 0, b"...");
        let by = in_effect();
        replay_by(by, &mut shared.disk, &shared.records, &mut None).unwrap();
        assert_eq!(&data_of(&shared.disk, &key(FILE))[..3], b"bbb");
    }
}

/// A file that was made with a size is known from its beginning: what a local process has made of it
/// before the start is not mixed with that.
#[test]
fn a_file_that_was_made_with_a_size_is_not_mixed_with_what_was_found() {
    for is_marked in [true, false] {
        let mut shared = Shared::new();
        shared.disk.clock += 1;
        let made = key(2000);
        shared.disk.add(made, FileKind::Regular);
        shared.disk.cut(&made, 12);
        shared.disk.change_names(&key(0), |names| {
            names.insert(b"new".to_vec(), made);
        });
        let place = Place { dir: key(0), name: b"new" };
        let mut change = Change::new(Action::Make { place, object: made, target: &[] });
        change.made = plain();
        change.after.extend([made, key(0)].map(|object| (object, shared.disk.nodes[&object].attr)));
        shared.records.push(record(&change));
        shared.disk.clock += 1;
        shared.disk.cut(&made, 2);
        shared.disk.put(&made, 0, b"local");
        shared.disk.touch(&made, true);
        if is_marked {
            shared.mark();
        }
        let report = shared.replay(None, &[]);
        let kept = kept(&shared.disk).remove(0).1;
        let found = data_of(&shared.disk, &made);
        let kinds: Vec<_> = report.conflicts.iter().map(|conflict| conflict.kind).collect();
        if is_marked {
            assert_eq!((&found[..], &kept[..]), (&b"local"[..], &[0; 12][..]));
            assert_eq!(kinds, [ConflictKind::AcknowledgedKept]);
        } else {
            assert_eq!((&found[..], &kept[..]), (&[0; 12][..], &b"local"[..]));
            assert_eq!(kinds, [ConflictKind::FoundKept]);
        }
    }
}

/// Where no data can have been lost, a local change in the same tick as the last operation stays too,
/// which no time tells.
#[test]
fn data_is_left_alone_where_none_can_be_lost() {
    for has_all_data in [true, false] {
        let mut shared = Shared::new();
        shared.write(0, b'a');
        shared.disk.put(&key(FILE), 0, b"ll");
        let mut by = Replay::default();
        by.be_of_what_is_in_effect(has_all_data);
        let report = replay_by(by, &mut shared.disk, &shared.records, &mut None).unwrap();
        let expected = if has_all_data { b"lla" } else { b"aaa" };
        assert_eq!(&data_of(&shared.disk, &key(FILE))[..3], expected);
        assert_eq!(report.data_bytes == 0, has_all_data);
    }
}

/// A file system that was only unmounted and mounted again has all changes; one that lacks some was not.
#[test]
fn a_file_system_that_lacks_a_change_has_not_all() {
    let is_all_there = |disk: &Disk, records: &[Vec<u8>]| {
        let mut replay = Replay::default();
        for (index, record) in records.iter().enumerate() {
            replay.read(index as u64 + 1, &Change::decode(record).unwrap().0);
        }
        replay.is_all_there(&mut disk.clone()).unwrap()
    };
    let mut shared = Shared::new();
    shared.write(0, b'a');
    let before = shared.disk.clone();
    shared.write(4, b'b');
    let object = key(FILE);
    let place = Place { dir: key(0), name: NAME };
    shared.disk.touch(&key(0), true);
    let mut change = Change::new(Action::Link { place, object });
    change.after.push((key(0), shared.disk.nodes[&key(0)].attr));
    shared.records.push(record(&change));
    assert!(is_all_there(&shared.disk, &shared.records));
    assert!(!is_all_there(&before, &shared.records));
    // Changed by others later, or removed by them.
    shared.disk.clock += 1;
    shared.disk.touch(&object, true);
    assert!(is_all_there(&shared.disk, &shared.records));
    let mut removed = shared.disk.clone();
    removed.nodes.remove(&object);
    removed.touch(&key(0), true);
    assert!(is_all_there(&removed, &shared.records));
    let mut lost = removed.clone();
    lost.nodes.get_mut(&key(0)).unwrap().attr.ctime = time(1);
    assert!(!is_all_there(&lost, &shared.records), "its directory lacks a change");
    // Removed by a client.
    let unlinked = Unlinked { object, is_directory: false, is_left: false };
    shared.records.push(record(&Change::new(Action::Remove { place, unlinked })));
    assert!(!is_all_there(&shared.disk, &shared.records));
    assert!(is_all_there(&removed, &shared.records));
}

/// A WRITE, or a SETATTR of times, was under way when the power failed. Another flush (of a large WRITE of another
/// file, say) has taken its times to the disk, and perhaps its data; its record is not in the log. A local process
/// leaves the same, so what was found is kept, unless it has the same data; of what is acknowledged nothing is lost.
#[test]
fn what_a_call_under_way_has_left_is_kept_unless_it_is_the_same() {
    #[derive(Clone, Copy, Debug)]
    enum Left {
        /// The times alone: XFS logs them with the call, and the size and data when they are written.
        Times,
        /// Data where there is some that was acknowledged.
        Over,
        /// Data where there is none: it stays in the file.
        Beside,
        /// What had been acknowledged, with new times.
        Same,
        /// A change of attributes, which leaves the mtime.
        Ctime,
    }
    for (left, is_kept) in [
        (Left::Times, true),
        (Left::Over, true),
        (Left::Beside, false),
        (Left::Same, false),
        (Left::Ctime, false),
    ] {
        let mut shared = Shared::new();
        let before = shared.disk.clone();
        shared.write(0, b'a');
        shared.mark();
        shared.disk.clock += 1;
        // Under way: it has no record.
        match left {
            Left::Over => shared.disk.put(&key(FILE), 1, b"uuu"),
            Left::Beside => shared.disk.put(&key(FILE), 6, b"uuu"),
            Left::Times => {
                let found = data_of(&before, &key(FILE));
                shared.disk.put(&key(FILE), 0, &found);
            }
            Left::Same | Left::Ctime => {}
        }
        shared.disk.touch(&key(FILE), !matches!(left, Left::Ctime));
        let found = data_of(&shared.disk, &key(FILE));
        let started = time(shared.disk.clock + 1000);
        let report = shared.replay(Some(started), &[]);
        let kinds: Vec<_> = report.conflicts.iter().map(|conflict| conflict.kind).collect();
        assert_eq!(kinds, if is_kept { vec![ConflictKind::FoundKept] } else { vec![] }, "{left:?}");
        let data: Vec<_> = kept(&shared.disk).into_iter().map(|(_, data)| data).collect();
        assert_eq!(data, if is_kept { vec![found] } else { vec![] }, "{left:?}");
        assert!(data_of(&shared.disk, &key(FILE)).starts_with(b"aaa"), "{left:?}");
    }
}

/// A file that is cut gets two times, one after the other (ext4), and a crash may leave the first. No local process
/// has had a hand in it.
#[test]
fn a_change_in_steps_that_a_crash_cut_short_is_no_local_one() {
    let mut shared = Shared::new();
    shared.write(0, b'a');
    let Attr { ctime, mtime, .. } = shared.disk.attr(&key(FILE)).unwrap();
    let before = Some(Before { ctime, mtime, ownership: None });
    let object = key(FILE);
    shared.disk.clock += 1;
    shared.disk.cut(&object, 5);
    shared.disk.touch(&object, true);
    let nodes = shared.disk.nodes.clone();
    shared.disk.clock += 1;
    shared.disk.touch(&object, true);
    shared.log(Action::Attributes { object, size: Some(5), gap: None }, before);
    shared.acknowledged.truncate(5);
    shared.write(4, b'b');
    shared.mark();
    shared.disk.nodes = nodes;
    // Of the first write the times had reached the disk, and not yet the data.
    shared.disk.put(&object, 0, b"...");
    let report = shared.replay(None, &[]);
    assert_eq!(data_of(&shared.disk, &object), shared.acknowledged);
    assert_eq!((report.conflicts, kept(&shared.disk)), (vec![], vec![]));
}
