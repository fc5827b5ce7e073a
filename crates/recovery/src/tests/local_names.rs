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
}
