//! Local changes of a file of which changes of its names tell, and by which name they are told.

use super::local::{FILE, Shared, data_of, kept};
use super::*;

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
