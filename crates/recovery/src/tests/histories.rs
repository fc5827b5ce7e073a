//! Random histories of a file system, and what a crash leaves of them.

use super::disk::*;
use super::*;

/// A run of a file system: the record of every change, and what there was after each.
pub(super) struct Run {
    pub(super) records: Vec<Vec<u8>>,
    pub(super) states: Vec<Disk>,
}

/// One random step: what, and with which directories, names and numbers.
pub(super) type Step = (u8, [u8; 4], u16);

/// Directories that exist: those that always do, and those that were made.
pub(super) fn directory(disk: &Disk, choice: u8) -> ObjectKey {
    let mut dirs: Vec<_> =
        disk.nodes.iter().filter(|(_, node)| matches!(node.body, Body::Names(_))).collect();
    dirs.sort_by_key(|(key, _)| **key);
    *dirs[usize::from(choice) % dirs.len()].0
}

pub(super) fn name(choice: u8) -> Vec<u8> {
    format!("n{}", u64::from(choice) % NAMES).into_bytes()
}

/// What a step may use.
struct Chosen<'a> {
    what: u8,
    number: u16,
    place: Place<'a>,
    to: Place<'a>,
    /// What has the name of `place`.
    bound: Option<(ObjectKey, FileKind)>,
    data: &'a [u8],
    access: &'a [u8],
    default: &'a [u8],
}

/// What a step did, and the objects that it changed.
type Done<'a> = (Action<'a>, Vec<ObjectKey>);

/// Does a step if it can be done; `None` if it would fail.
pub(super) fn step(
    disk: &mut Disk,
    next: &mut u64,
    (what, choices, number): Step,
) -> Option<Vec<u8>> {
    let [dir, first, other, second] = choices;
    let (dir, first) = (directory(disk, dir), name(first));
    let (other, second) = (directory(disk, other), name(second));
    let place = Place { dir, name: &first };
    let bound = disk.bound(&place).unwrap();
    let was = bound.and_then(|(object, _)| disk.attr(&object));
    let chosen = Chosen {
        what,
        number,
        place,
        to: Place { dir: other, name: &second },
        bound,
        data: &[what.wrapping_add(number as u8) | 1; 7],
        access: &number.to_le_bytes(),
        default: &[what],
    };
    let (action, mut changed) = match what % 13 {
        0..=2 if bound.is_none() => Some(make(disk, next, &chosen)),
        3 | 4 => remove(disk, &chosen),
        5 | 6 => rename(disk, &chosen),
        7 => link(disk, &chosen),
        8 | 9 => write(disk, &chosen),
        10 => set_size(disk, &chosen),
        11 => set_mode(disk, &chosen),
        12 => set_acls(disk, &chosen),
        _ => None,
    }?;
    let mut change = Change::new(action);
    if let Action::Make { object, .. } = change.action {
        let node = &disk.nodes[&object];
        change.made = Some(Box::new(Made { born: Some(node.born), acls: Some(node.acls.clone()) }));
    }
    if matches!(change.action, Action::Attributes { .. } | Action::Acls { .. }) {
        change.before = was.map(|was| before(&was));
    }
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

/// Makes a file; a directory now and then.
fn make<'a>(disk: &mut Disk, next: &mut u64, chosen: &Chosen<'a>) -> Done<'a> {
    let Chosen { what, number, place, .. } = *chosen;
    let object = key(1000 + *next);
    *next += 1;
    let kind = if what % 13 == 0 { FileKind::Directory } else { FileKind::Regular };
    disk.add(object, kind);
    disk.inherit(&object, &place.dir);
    if what % 13 == 2 {
        disk.cut(&object, usize::from(number % 9));
    }
    disk.change_names(&place.dir, |names| {
        names.insert(place.name.to_vec(), object);
    });
    (Action::Make { place, object, target: &[] }, vec![object, place.dir])
}

fn remove<'a>(disk: &mut Disk, chosen: &Chosen<'a>) -> Option<Done<'a>> {
    let place = chosen.place;
    let (object, kind) = chosen.bound?;
    if disk.names_of(&object).is_some_and(|names| !names.is_empty()) {
        return None;
    }
    disk.change_names(&place.dir, |names| {
        names.remove(place.name);
    });
    disk.touch(&object, false);
    disk.reap(&object);
    let is_directory = kind == FileKind::Directory;
    let is_left = disk.nodes.contains_key(&object);
    let unlinked = Unlinked { object, is_directory, is_left };
    Some((Action::Remove { place, unlinked }, vec![place.dir]))
}

fn rename<'a>(disk: &mut Disk, chosen: &Chosen<'a>) -> Option<Done<'a>> {
    let Chosen { place, to, .. } = *chosen;
    let (object, kind) = chosen.bound?;
    let victim = disk.bound(&to).unwrap();
    let is_directory = kind == FileKind::Directory;
    if let Some((victim, kind)) = victim {
        let is_full = disk.names_of(&victim).is_some_and(|names| !names.is_empty());
        if victim == object || is_full || is_directory != (kind == FileKind::Directory) {
            return None;
        }
    }
    if is_directory && disk.is_beneath(&to.dir, &object) {
        return None;
    }
    disk.change_names(&place.dir, |names| {
        names.remove(place.name);
    });
    disk.change_names(&to.dir, |names| {
        names.insert(to.name.to_vec(), object);
    });
    disk.touch(&object, false);
    let victim = victim.map(|(victim, _)| {
        disk.touch(&victim, false);
        disk.reap(&victim);
        let is_left = disk.nodes.contains_key(&victim);
        Unlinked { object: victim, is_directory, is_left }
    });
    let action = Action::Rename { from: place, to, object, is_directory, victim };
    Some((action, vec![place.dir, to.dir, object]))
}

fn link<'a>(disk: &mut Disk, chosen: &Chosen<'a>) -> Option<Done<'a>> {
    let to = chosen.to;
    let (object, kind) = chosen.bound?;
    if kind == FileKind::Directory || disk.bound(&to).unwrap().is_some() {
        return None;
    }
    disk.change_names(&to.dir, |names| {
        names.insert(to.name.to_vec(), object);
    });
    disk.touch(&object, false);
    Some((Action::Link { place: to, object }, vec![to.dir, object]))
}

fn write<'a>(disk: &mut Disk, chosen: &Chosen<'a>) -> Option<Done<'a>> {
    let (object, kind) = chosen.bound?;
    if kind == FileKind::Directory {
        return None;
    }
    let offset = u64::from(chosen.number % 20);
    let gap = disk.attr(&object).map(|attr| attr.size).filter(|size| *size < offset);
    disk.put(&object, offset as usize, chosen.data);
    disk.touch(&object, true);
    Some((Action::Write { object, offset, data: chosen.data, gap }, vec![object]))
}

fn set_size<'a>(disk: &mut Disk, chosen: &Chosen<'a>) -> Option<Done<'a>> {
    let (object, kind) = chosen.bound?;
    if kind == FileKind::Directory {
        return None;
    }
    let size = u64::from(chosen.number % 25);
    let gap = disk.attr(&object).map(|attr| attr.size).filter(|old| *old < size);
    disk.cut(&object, size as usize);
    disk.touch(&object, true);
    Some((Action::Attributes { object, size: Some(size), gap }, vec![object]))
}

fn set_mode<'a>(disk: &mut Disk, chosen: &Chosen<'a>) -> Option<Done<'a>> {
    let (object, _) = chosen.bound?;
    disk.nodes.get_mut(&object)?.attr.mode = u32::from(chosen.number) & 0o777;
    disk.touch(&object, false);
    Some((Action::Attributes { object, size: None, gap: None }, vec![object]))
}

fn set_acls<'a>(disk: &mut Disk, chosen: &Chosen<'a>) -> Option<Done<'a>> {
    let Chosen { access, default, .. } = *chosen;
    let (object, kind) = chosen.bound?;
    let acls = &mut disk.nodes.get_mut(&object)?.acls;
    acls.access = access.to_vec();
    let default = (kind == FileKind::Directory).then_some(default);
    if let Some(default) = default {
        acls.default = default.to_vec();
    }
    disk.touch(&object, false);
    Some((Action::Acls { object, access: Some(access), default }, vec![object]))
}

/// What a record of a change of attributes tells of before.
pub(super) fn before(was: &Attr) -> Before {
    let Attr { ctime, mtime, .. } = *was;
    Before { ctime, mtime, ownership: Some(Ownership::of(was)) }
}

/// Runs steps; `tick` of them share a time.
pub(super) fn run(steps: &[Step], tick: i64) -> Run {
    let mut disk = Disk::new();
    let mut next = 0;
    // Some things are there before the log begins.
    for number in 0..6 {
        step(&mut disk, &mut next, (1 + number % 2 * 10, [number, number / 2, 0, 0], 5));
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
pub(super) fn crash(run: &Run, prefix: usize, luck: &[bool]) -> Disk {
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
pub(super) fn bring_forward(disk: &mut Disk, later: &Disk, choice: usize) {
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
