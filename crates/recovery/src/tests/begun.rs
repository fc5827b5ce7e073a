//! Calls that had begun when the process was killed.

use steadfast_vfs::CallName;

use super::super::begun::{BegunOutcome, outcome_of};
use super::*;
use crate::{AskedAttributes, BegunCall, BeingMade, FileSystemIdentity};

const OWNER: u32 = 1;

fn place(dir: u64, name: &[u8]) -> Place<'_> {
    Place { dir: key(dir), name }
}

/// What became of a call that began at a time.
fn outcome(
    disk: &mut Disk,
    at: Time,
    made: Option<BeingMade>,
    action: Action<'_>,
) -> Option<BegunOutcome> {
    let call = BegunCall {
        call: CallName { key: b"", share: 9 },
        file_system: FileSystemIdentity { uuid: [1; 16], kind: 2 },
        at,
        dir: key(0).0,
        fsid: 77,
        made,
        action,
    };
    outcome_of(disk, &call).unwrap()
}

fn file(asked: AskedAttributes) -> BeingMade {
    BeingMade { kind: FileKind::Regular, uid: OWNER, asked }
}

fn make(disk: &mut Disk, number: u64, kind: FileKind, dir: u64, name: &[u8]) {
    disk.add(key(number), kind);
    disk.change_names(&key(dir), |names| {
        names.insert(name.to_vec(), key(number));
    });
}

fn make_action(name: &[u8]) -> Action<'_> {
    Action::Make { place: place(0, name), object: key(0), target: &[] }
}

#[test]
fn what_was_made_is_told_with_its_handle_and_attributes() {
    let mut disk = Disk::new();
    disk.clock = 1_000;
    let at = time(disk.clock);
    let nothing = AskedAttributes::default();
    let ask = |disk: &mut Disk, made| outcome(disk, at, made, make_action(b"new"));
    assert_eq!(ask(&mut disk, Some(file(nothing))), None, "it is not there");
    make(&mut disk, 10, FileKind::Regular, 0, b"new");
    let made = ask(&mut disk, Some(file(nothing))).expect("done");
    let attr = Attr { fsid: 77, ..disk.attr(&key(10)).unwrap() };
    assert_eq!(made, BegunOutcome::Made { handle: key(10).0, attr });
    // Of another kind, of somebody else, without what was asked for.
    let others = [
        BeingMade { kind: FileKind::Fifo, uid: OWNER, asked: nothing },
        BeingMade { kind: FileKind::Regular, uid: 5, asked: nothing },
        file(AskedAttributes { mtime: Some(time(5)), ..nothing }),
    ];
    for other in others {
        assert_eq!(ask(&mut disk, Some(other)), None, "{other:?}");
    }
    assert!(disk.names_of(&key(0)).unwrap().contains_key(&b"new"[..]), "files stay");
    let given = AskedAttributes { uid: Some(OWNER), ..nothing };
    let given = BeingMade { kind: FileKind::Regular, uid: 0, asked: given };
    assert!(ask(&mut disk, Some(given)).is_some(), "it was given away");
    // A local process has put something there that is older.
    let node = disk.nodes.get_mut(&key(10)).unwrap();
    node.born = time(989);
    assert_eq!(ask(&mut disk, Some(file(nothing))), None);
    disk.nodes.get_mut(&key(10)).unwrap().born = time(990);
    assert!(ask(&mut disk, Some(file(nothing))).is_some(), "a tick before the clock");
}

#[test]
fn a_directory_that_was_made_by_halves_goes_unless_something_is_in_it() {
    let asked = AskedAttributes { gid: Some(50), ..AskedAttributes::default() };
    let made = Some(BeingMade { kind: FileKind::Directory, uid: OWNER, asked });
    let mut disk = Disk::new();
    make(&mut disk, 10, FileKind::Directory, 0, b"new");
    make(&mut disk, 11, FileKind::Regular, 10, b"inside");
    let at = time(disk.clock);
    assert_eq!(outcome(&mut disk, at, made, make_action(b"new")), None);
    assert!(disk.nodes.contains_key(&key(10)), "it is in use");
    disk.change_names(&key(10), std::collections::BTreeMap::clear);
    assert_eq!(outcome(&mut disk, at, made, make_action(b"new")), None);
    assert!(!disk.nodes.contains_key(&key(10)), "its call makes it again");
    make(&mut disk, 12, FileKind::Directory, 0, b"new");
    disk.nodes.get_mut(&key(12)).unwrap().attr.gid = 50;
    assert!(outcome(&mut disk, at, made, make_action(b"new")).is_some());
}

/// A call that changes names, in the order of the numbers that it is made of.
type Chosen = (u8, [u8; 4], u8);

/// Does what a call does, if it can be done. Tells the mark that it writes before, if it writes one.
fn execute<'n>(
    disk: &mut Disk,
    number: u64,
    (what, [a, b, c, d], _): Chosen,
    is_executed: bool,
    names: &'n [Vec<u8>],
) -> Option<(Option<BeingMade>, Action<'n>)> {
    let at = |dir: u8, name: u8| Place {
        dir: key(u64::from(dir) % DIRS as u64),
        name: &names[usize::from(name) % names.len()],
    };
    let (one, other) = (at(a, b), at(c, d));
    let mut bound = |place: &Place<'_>| disk.bound(place).unwrap();
    let (here, there) = (bound(&one), bound(&other));
    let mark = match what % 4 {
        0 if here.is_none() => {
            let action = Action::Make { place: one, object: one.dir, target: &[] };
            (Some(file(AskedAttributes::default())), action)
        }
        1 => {
            let unlinked = Unlinked { object: here?.0, is_directory: false, is_left: false };
            (None, Action::Remove { place: one, unlinked })
        }
        2 if there.is_none_or(|there| Some(there) != here) => {
            let object = here?.0;
            let action =
                Action::Rename { from: one, to: other, object, is_directory: false, victim: None };
            (None, action)
        }
        3 if there.is_none() => (None, Action::Link { place: other, object: here?.0 }),
        _ => return None,
    };
    if is_executed {
        let bind = |disk: &mut Disk, place: Place<'_>, object| {
            disk.change_names(&place.dir, |names| {
                names.insert(place.name.to_vec(), object);
            });
            disk.touch(&object, false);
        };
        let unbind = |disk: &mut Disk, place: Place<'_>| {
            disk.change_names(&place.dir, |names| {
                names.remove(place.name);
            });
        };
        match mark.1 {
            Action::Make { place, .. } => {
                disk.add(key(number), FileKind::Regular);
                bind(disk, place, key(number));
            }
            Action::Remove { place, .. } => unbind(disk, place),
            Action::Rename { from, to, object, .. } => {
                unbind(disk, from);
                bind(disk, to, object);
            }
            Action::Link { place, object } => bind(disk, place, object),
            _ => {}
        }
        disk.clock += 1;
    }
    Some(mark)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Calls that nobody has a record of, the last of which was done or not when the process was
    /// killed: of the last one it is told whether it was done.
    #[test]
    fn only_what_was_done_is_told(
        chosen in proptest::collection::vec((any::<u8>(), any::<[u8; 4]>(), 0..15_u8), 1..30),
        was_last_done: bool,
    ) {
        let names: Vec<Vec<u8>> = (0..NAMES).map(|name| vec![b'a' + name as u8]).collect();
        let mut disk = Disk::new();
        let mut marks = Vec::new();
        let last = chosen.len() - 1;
        for (index, call) in chosen.into_iter().enumerate() {
            disk.clock += i64::from(call.2);
            let at = time(disk.clock);
            let is_done = index < last || was_last_done;
            let mark = execute(&mut disk, 100 + index as u64, call, is_done, &names);
            marks.extend(mark.map(|mark| (index, is_done, at, mark)));
        }
        for (index, is_done, at, (made, action)) in marks {
            let found = outcome(&mut disk, at, made, action);
            if index == last {
                prop_assert_eq!(found.is_some(), is_done, "{:?}", action);
            }
        }
    }
}

#[test]
fn attributes_with_a_guard_were_set_if_the_object_has_them_and_another_ctime() {
    let mut disk = Disk::new();
    make(&mut disk, 10, FileKind::Regular, 0, b"file");
    let before = disk.attr(&key(10)).unwrap();
    let asked = AskedAttributes { mode: Some(0o600), ..AskedAttributes::default() };
    let action = Action::Touched { object: key(10), ctime: before.ctime, mtime: before.mtime };
    let ask = |disk: &mut Disk| outcome(disk, before.ctime, Some(file(asked)), action);
    assert_eq!(ask(&mut disk), None);
    disk.clock += 1;
    disk.touch(&key(10), false);
    assert_eq!(ask(&mut disk), None, "somebody has changed something else");
    disk.nodes.get_mut(&key(10)).unwrap().attr.mode = 0o600;
    assert!(ask(&mut disk).is_some());
    // It had them before.
    disk.nodes.get_mut(&key(10)).unwrap().attr.ctime = before.ctime;
    assert_eq!(ask(&mut disk), None);
    disk.nodes.remove(&key(10));
    assert_eq!(ask(&mut disk), None);
}
