//! Attributes that were being set when the process was killed.

use crate::AttributesUnderWay;

use super::*;

const FILE: u64 = DIRS as u64;

/// A file with a name and this content, and the records of how it came to be.
fn file(disk: &mut Disk, content: &[u8]) -> Vec<Vec<u8>> {
    let (dir, object) = (key(0), key(FILE));
    disk.clock += 1;
    disk.add(object, FileKind::Regular);
    disk.nodes.get_mut(&object).unwrap().attr.mode = 0o4755;
    disk.change_names(&dir, |names| {
        names.insert(b"file".to_vec(), object);
    });
    let mut records = Vec::new();
    let mut log = |disk: &Disk, action, of: &[ObjectKey]| {
        let mut change = Change::new(action);
        change.after.extend(of.iter().map(|key| (*key, disk.attr(key).unwrap())));
        let mut record = Vec::new();
        change.encode(&mut record);
        records.push(record);
    };
    let place = Place { dir, name: b"file" };
    log(disk, Action::Make { place, object, target: &[] }, &[object, dir]);
    disk.clock += 1;
    disk.put(&object, 0, content);
    disk.touch(&object, true);
    log(disk, Action::Write { object, offset: 0, data: content, gap: None }, &[object]);
    records
}

fn attr(disk: &Disk) -> Attr {
    disk.attr(&key(FILE)).unwrap()
}

/// But for the ctime.
fn shown(disk: &Disk) -> (u32, u32, u32, Time, Body) {
    let Attr { uid, gid, mode, mtime, .. } = attr(disk);
    (uid, gid, mode, mtime, disk.nodes[&key(FILE)].body.clone())
}

/// Sets the size, the owner, the mode, the times: so many of these steps, of those that there are.
fn take_steps(disk: &mut Disk, under_way: &AttributesUnderWay, steps: usize) {
    let wanted = under_way.wanted;
    disk.clock += 1;
    for step in 0..steps {
        match step {
            0 if under_way.size.is_some() => {
                disk.cut(&key(FILE), under_way.size.unwrap() as usize);
                disk.touch(&key(FILE), true);
            }
            1 => {
                let node = disk.nodes.get_mut(&key(FILE)).unwrap();
                (node.attr.uid, node.attr.gid) = (wanted.uid, wanted.gid);
                node.attr.mode &= 0o777;
                disk.touch(&key(FILE), false);
            }
            2 => disk.nodes.get_mut(&key(FILE)).unwrap().attr.mode = wanted.mode,
            3 => disk.nodes.get_mut(&key(FILE)).unwrap().attr.mtime = wanted.mtime,
            _ => {}
        }
    }
}

/// The start after a kill; it may be killed itself.
fn recover(
    disk: &mut Disk,
    records: &[Vec<u8>],
    observed: &mut Option<Observed>,
    noted: &mut AttributesUnderWay,
    is_done: bool,
) -> Result<(), FsError> {
    let cut = undo(disk, *noted, is_done)?;
    if let Some(cut) = &cut {
        *noted = *cut;
    }
    replay(disk, records, observed)?;
    cut.map_or(Ok(()), |cut| finish_cut(disk, &cut))
}

proptest! {
    #[test]
    fn what_was_under_way_is_there_whole_or_not_at_all(
        (length, size) in (1..30_usize, proptest::option::of(0..30_u64)),
        steps in 0..=4_usize,
        is_permitted: bool,
        is_known_to_be_done: bool,
        cuts in proptest::collection::vec(0..12_usize, 0..3),
    ) {
        let mut disk = Disk::new();
        let records = file(&mut disk, &vec![7; length]);
        let before = attr(&disk);
        let unchanged = shown(&disk);
        let mut noted = AttributesUnderWay {
            object: key(FILE),
            before,
            wanted: Attr { uid: 70, gid: 71, mode: 0o600, mtime: time(5), ..before },
            size,
            is_permitted,
            was_cut: false,
        };
        let mut whole = disk.clone();
        take_steps(&mut whole, &noted, 4);
        let whole = shown(&whole);
        take_steps(&mut disk, &noted, steps);
        let refused = shown(&disk);
        let is_done = is_known_to_be_done && steps == 4;
        let mut observed = None;
        for cut in cuts {
            disk.budget = Some(cut);
            let _ = recover(&mut disk, &records, &mut observed, &mut noted, is_done);
        }
        disk.budget = None;
        prop_assert_eq!(recover(&mut disk, &records, &mut observed, &mut noted, is_done), Ok(()));
        let was_cut = steps > 0 && size.is_some_and(|size| size < length as u64);
        let expected = match (was_cut, is_permitted) {
            (false, _) => unchanged,
            (true, true) => whole,
            // What was refused after the cut, or was to be asked for, is not done.
            (true, false) => refused,
        };
        prop_assert_eq!(shown(&disk), expected);
    }
}

#[test]
fn what_somebody_else_has_made_of_it_stays() {
    let mut disk = Disk::new();
    file(&mut disk, b"some data");
    let before = attr(&disk);
    let noted = AttributesUnderWay {
        object: key(FILE),
        before,
        wanted: Attr { uid: 70, mode: 0o600, ..before },
        size: None,
        is_permitted: true,
        was_cut: false,
    };
    let changes: [fn(&mut Attr); 4] =
        [|attr| attr.uid = 5, |attr| attr.mode = 0o640, |attr| attr.size = 3, |_| {}];
    for change in changes {
        let mut disk = disk.clone();
        change(&mut disk.nodes.get_mut(&key(FILE)).unwrap().attr);
        let changed = attr(&disk);
        assert_eq!(undo(&mut disk, noted, false), Ok(None));
        assert_eq!(attr(&disk), changed);
    }
    // It is gone.
    disk.change_names(&key(0), std::collections::BTreeMap::clear);
    disk.nodes.remove(&key(FILE));
    assert_eq!(undo(&mut disk, noted, false), Ok(None));
    assert_eq!(finish_cut(&mut disk, &AttributesUnderWay { size: Some(1), ..noted }), Ok(()));
}
