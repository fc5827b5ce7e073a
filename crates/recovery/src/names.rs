//! Brings names to where they belong.

use std::collections::{BTreeMap, HashMap};

use steadfast_vfs::{FileKind, FsError, Time};

use super::history::{Object, OwnedPlace};
use super::{ASIDE_PREFIX, Conflict, ConflictKind, Replay, versions};
use crate::{ObjectKey, Place, Recoverable};

/// What was put aside, by object: one that had several names is there as often.
#[derive(Debug, Default)]
struct Asides {
    by_object: HashMap<ObjectKey, Vec<Aside>>,
    count: usize,
}

impl Asides {
    fn add(&mut self, object: ObjectKey, aside: Aside) {
        self.by_object.entry(object).or_default().push(aside);
        self.count += 1;
    }

    fn of(&self, object: &ObjectKey) -> Option<&Aside> {
        self.by_object.get(object)?.last()
    }

    /// How many names of an object are here.
    fn count_of(&self, object: &ObjectKey) -> u32 {
        self.by_object.get(object).map_or(0, Vec::len) as u32
    }

    fn take(&mut self, object: &ObjectKey) {
        if let Some(asides) = self.by_object.get_mut(object) {
            asides.pop();
        }
    }
}

/// Where an object was put aside.
#[derive(Debug)]
struct Aside {
    object: ObjectKey,
    kind: FileKind,
    /// The name it has now.
    at: OwnedPlace,
    /// Whether the log knows that it had the name that it was taken from.
    is_known: bool,
}

impl Replay {
    /// Binds every name whose last change is not on the disk as it must be.
    ///
    /// # Errors
    /// The storage's.
    pub fn bind_names(&mut self, storage: &mut dyn Recoverable) -> Result<(), FsError> {
        self.history.take_names_of_what_is_gone();
        self.index = self.history.index();
        let mut todo = BTreeMap::new();
        for (place, entry) in &self.history.entries {
            if entry.lsn > self.names_on_disk(&place.dir) {
                todo.insert(place.clone(), entry.wanted);
            }
        }
        let mut asides = self.left_aside(&todo, storage)?;
        self.put_aside(&mut todo, &mut asides, storage)?;
        self.place(todo, &mut asides, storage)?;
        self.clear(asides, storage)?;
        self.keep_versions(storage)
    }

    /// What an earlier replay had put aside.
    fn left_aside(
        &mut self,
        todo: &BTreeMap<OwnedPlace, Option<ObjectKey>>,
        storage: &mut dyn Recoverable,
    ) -> Result<Asides, FsError> {
        let mut asides = Asides::default();
        let mut dirs: Vec<ObjectKey> = todo.keys().map(|place| place.dir).collect();
        dirs.dedup();
        for dir in dirs {
            let names = match storage.names(&dir, ASIDE_PREFIX) {
                Ok(names) => names,
                Err(error) => {
                    self.note_own(dir, None, error)?;
                    continue;
                }
            };
            for name in names {
                let at = OwnedPlace { dir, name };
                if let Some((object, kind)) = storage.bound(&at.borrowed())? {
                    let is_known = self.index.is_former(dir, object);
                    asides.add(object, Aside { object, kind, at, is_known });
                }
            }
        }
        Ok(asides)
    }

    /// Puts aside what has a name that belongs to something else, or to nothing. Names that are
    /// bound as they must be are done.
    fn put_aside(
        &mut self,
        todo: &mut BTreeMap<OwnedPlace, Option<ObjectKey>>,
        asides: &mut Asides,
        storage: &mut dyn Recoverable,
    ) -> Result<(), FsError> {
        let mut done = Vec::new();
        let mut number = asides.count;
        for (place, wanted) in todo.iter() {
            let bound = match storage.bound(&place.borrowed()) {
                Ok(bound) => bound,
                Err(error) => {
                    // It stays what it is.
                    self.note_own(wanted.unwrap_or(place.dir), Some(place), error)?;
                    done.push(place.clone());
                    continue;
                }
            };
            if bound.map(|(object, _)| object) == *wanted {
                done.push(place.clone());
                continue;
            }
            let Some((object, kind)) = bound else { continue };
            let entry = self.history.entries.get(place);
            let is_known = entry.is_some_and(|entry| entry.former.contains(&object));
            let can_be_had = match wanted {
                Some(wanted) => self.can_be_had(wanted, storage)?,
                None => false,
            };
            let was_replaced = if can_be_had {
                !is_known && self.is_of_under_way(place, &object, storage)?
            } else {
                // What was removed for good is not to come back by it.
                let known = self.history.objects.get(&object);
                let is_gone = known.is_some_and(|known| known.gone.is_some());
                !is_known
                    || wanted.is_some()
                        && !is_gone
                        && !self.belongs_elsewhere(place, &object, todo, storage)?
            };
            if was_replaced {
                // The name was removed and is in use again, by something the log does not know; or
                // what had it last was replaced for good, be it by something that had it before. Put
                // aside, what has it now would have no name: the log does not know its old one.
                done.push(place.clone());
                continue;
            }
            let at = loop {
                let name = aside_name(number, &object);
                number += 1;
                let at = OwnedPlace { dir: place.dir, name };
                if storage.bound(&at.borrowed())?.is_none() {
                    break at;
                }
            };
            if let Err(error) = storage.rename(&place.borrowed(), &at.borrowed()) {
                // What has the name keeps it, and so has what it belongs to none, if that is lost.
                self.note_own(wanted.unwrap_or(object), Some(place), error)?;
                done.push(place.clone());
                continue;
            }
            asides.add(object, Aside { object, kind, at, is_known });
            if !is_known {
                self.conflict(place, ConflictKind::InTheWay);
            }
        }
        for place in done {
            todo.remove(&place);
        }
        Ok(())
    }

    /// Gives every name its object. A directory that was lost is made before what is in it, so
    /// there are as many rounds as lost directories are deep.
    fn place(
        &mut self,
        todo: BTreeMap<OwnedPlace, Option<ObjectKey>>,
        asides: &mut Asides,
        storage: &mut dyn Recoverable,
    ) -> Result<(), FsError> {
        let mut waiting: Vec<(OwnedPlace, ObjectKey)> = todo
            .into_iter()
            .filter_map(|(place, wanted)| wanted.map(|object| (place, object)))
            .collect();
        // In the order in which they were bound, so that parents come before children mostly.
        let lsn = |place: &OwnedPlace| self.history.entries.get(place).map_or(0, |entry| entry.lsn);
        waiting.sort_by_key(|(place, _)| lsn(place));
        loop {
            let before = waiting.len();
            // What is put aside of an object is for the names that it was given last: one of those before may have been
            // moved by somebody else, and the last is not to be taken for that.
            let mut to_come: HashMap<ObjectKey, u32> = HashMap::new();
            for (_, object) in &waiting {
                *to_come.entry(*object).or_default() += 1;
            }
            let mut left = Vec::new();
            for (place, object) in waiting {
                let to_come = to_come.entry(object).or_default();
                *to_come = to_come.saturating_sub(1);
                let has_aside = *to_come < asides.count_of(&object);
                let is_given = storage.look(&place.dir)?.is_some()
                    && match self.give(&place, &object, (asides, has_aside), storage) {
                        Err(error) => self.note_own(object, Some(&place), error).map(|()| true),
                        given => given,
                    }?;
                if !is_given {
                    left.push((place, object));
                }
            }
            if left.is_empty() || left.len() == before {
                // What is left is in directories that are gone for good.
                for (place, _) in left {
                    self.conflict(&place, ConflictKind::Gone);
                }
                return Ok(());
            }
            waiting = left;
        }
    }

    /// Gives one name its object, where it may be by what is put aside of that; `false` if that cannot be done yet: the
    /// directory that the name is in is beneath the object, but will not stay there.
    fn give(
        &mut self,
        place: &OwnedPlace,
        object: &ObjectKey,
        (asides, has_aside): (&mut Asides, bool),
        storage: &mut dyn Recoverable,
    ) -> Result<bool, FsError> {
        // What an earlier replay has made is only now found, if its directory was made too.
        if storage.bound(&place.borrowed())?.is_some_and(|(bound, _)| bound == *object) {
            return Ok(true);
        }
        if let Some(aside) = asides.of(object).filter(|_| has_aside) {
            match storage.rename(&aside.at.borrowed(), &place.borrowed()) {
                Ok(()) => {}
                Err(FsError::Invalid) => return Ok(false),
                Err(error) => return Err(error),
            }
            asides.take(object);
            self.report.names += 1;
            return Ok(true);
        }
        let put_aside = asides.count_of(object);
        match storage.look(object)? {
            Some(attr)
                if attr.kind != FileKind::Directory
                    && !self.was_moved(
                        place,
                        object,
                        attr.links.saturating_sub(put_aside),
                        storage,
                    )? =>
            {
                storage.link(object, &place.borrowed())?;
                self.report.names += 1;
            }
            // Somebody else has moved it.
            Some(_) => self.conflict(place, ConflictKind::Gone),
            None => {
                let made = self.history.objects.get(object).and_then(|known| known.made.clone());
                match made {
                    Some(made) => {
                        storage.make(&place.borrowed(), object, &made.attr, &made.target)?;
                        self.report.names += 1;
                        self.report.objects_made += 1;
                        self.report.files.insert(*object);
                    }
                    None => self.conflict(place, ConflictKind::Gone),
                }
            }
        }
        Ok(true)
    }

    /// When a name was bound as it must be, if its record tells.
    fn bound_at(&self, place: &OwnedPlace) -> Option<Time> {
        let dir = self.history.objects.get(&place.dir)?;
        dir.ctime_after(self.history.entries.get(place)?.lsn)
    }

    /// Whether what has a name was given it by an operation that was under way when the machine crashed: it
    /// was changed after the name was bound as it must be, and, for certain, before the crash.
    fn is_of_under_way(
        &self,
        place: &OwnedPlace,
        object: &ObjectKey,
        storage: &mut dyn Recoverable,
    ) -> Result<bool, FsError> {
        let Some(logged) = self.bound_at(place) else { return Ok(false) };
        // Replay itself changes what the records mention.
        let before = match self.observed.get(object) {
            Some(before) => *before,
            None => storage.look(object)?,
        };
        Ok(before.is_some_and(|it| it.ctime >= logged && !self.may_be_of_later(it.ctime)))
    }

    /// Of an object that has a name which another one must have, and that one is gone for good: whether this one must go
    /// to another name, or has another. Then a later change has taken this name from it, and a local process has removed
    /// the other one since the crash. Not if an operation that was under way has given it the name back.
    fn belongs_elsewhere(
        &self,
        place: &OwnedPlace,
        object: &ObjectKey,
        todo: &BTreeMap<OwnedPlace, Option<ObjectKey>>,
        storage: &mut dyn Recoverable,
    ) -> Result<bool, FsError> {
        let now = storage.look(object)?;
        let mut is_elsewhere = now.is_some_and(|it| it.kind != FileKind::Directory && it.links > 1);
        for its in self.index.wanting(object).iter().filter(|its| todo.contains_key(its)) {
            is_elsewhere |= self.can_be_had(&its.dir, storage)?;
        }
        let is_of_tick = self.is_of_tick_of(place, object);
        Ok(is_elsewhere && (is_of_tick || !self.is_of_under_way(place, object, storage)?))
    }

    /// Whether an object was changed last in the tick of the clock in which a name was bound as it must be: which of
    /// both was later is not known then.
    fn is_of_tick_of(&self, place: &OwnedPlace, object: &ObjectKey) -> bool {
        let bound = self.bound_at(place);
        bound.is_some() && bound == self.before(object).map(|before| before.ctime)
    }

    /// Whether an object is there, or can be made again.
    fn can_be_had(
        &self,
        object: &ObjectKey,
        storage: &mut dyn Recoverable,
    ) -> Result<bool, FsError> {
        let is_made = |known: &Object| known.made.is_some();
        Ok(self.history.objects.get(object).is_some_and(is_made) || storage.look(object)?.is_some())
    }

    /// Whether a file, with so many names beside those put aside, has one that no change in the log gave it, in place
    /// of one that it must have: then an operation that was not acknowledged, or a local process, has
    /// moved it there. Where it lacks several names, those that it was given first were moved: a crash takes
    /// the last ones.
    fn was_moved(
        &self,
        from: &OwnedPlace,
        object: &ObjectKey,
        links: u32,
        storage: &mut dyn Recoverable,
    ) -> Result<bool, FsError> {
        let lsn = |place| self.history.entries.get(place).map_or(0, |entry| entry.lsn);
        let given = lsn(from);
        let mut explained = 0;
        for place in self.index.wanting(object) {
            let bound = storage.bound(&place.borrowed())?;
            let is_bound = bound.is_some_and(|(bound, _)| bound == *object);
            // One that was on the disk, and is not any more, was moved or removed for itself.
            let was_there = lsn(place) <= self.names_on_disk(&place.dir);
            explained += u32::from(is_bound || was_there || lsn(place) < given);
        }
        let wanting = self.index.wanting(object).len() as u32;
        let links_in_the_end = self.history.objects.get(object).and_then(|known| known.links);
        // Those that no change has touched.
        let untouched = links_in_the_end.map(|links| links.saturating_sub(wanting));
        Ok(untouched.is_some_and(|untouched| links > explained + untouched))
    }

    /// Removes what was put aside and belongs nowhere. A directory may have others in it.
    fn clear(&mut self, asides: Asides, storage: &mut dyn Recoverable) -> Result<(), FsError> {
        let mut removed = Vec::new();
        for (object, asides) in asides.by_object {
            let known: Vec<Aside> = asides.into_iter().filter(|aside| aside.is_known).collect();
            if known.is_empty() {
                continue;
            }
            let is_placed = self.is_placed(&object, storage)?;
            if (is_placed || self.was_moved_on(&object, &known))
                && !self.is_last_of_what_is_left(&object, known.len(), storage)?
            {
                removed.extend(known);
                continue;
            }
            // Where it belongs may be gone, but it was never removed.
            let kind = if is_placed { ConflictKind::InTheWay } else { ConflictKind::Gone };
            for aside in known {
                self.conflict(&aside.at, kind);
            }
        }
        let mut asides = removed;
        loop {
            let before = asides.len();
            let mut left = Vec::new();
            for aside in asides {
                if self.is_last_of_changed(&aside.object, storage)? {
                    let copy = keep_removed(&aside, storage).ok();
                    self.conflict(copy.as_ref().unwrap_or(&aside.at), ConflictKind::RemovedKept);
                    self.kept_removed.insert(aside.object);
                    if copy.is_none() {
                        continue;
                    }
                }
                let is_directory = aside.kind == FileKind::Directory;
                match storage.remove(&aside.at.borrowed(), is_directory) {
                    Ok(()) => self.report.names += 1,
                    Err(FsError::NotFound | FsError::Stale) => {}
                    Err(FsError::NotEmpty) => left.push(aside),
                    Err(error) => self.note_own(aside.object, Some(&aside.at), error)?,
                }
            }
            if left.is_empty() || left.len() == before {
                for aside in left {
                    self.conflict(&aside.at, ConflictKind::NotEmpty);
                }
                return Ok(());
            }
            asides = left;
        }
    }

    /// Whether an object would be gone without what was put aside of it, though no record says that it has
    /// lost its last name: an operation that was under way has taken another one from it, which the log does
    /// not know.
    fn is_last_of_what_is_left(
        &self,
        object: &ObjectKey,
        asides: usize,
        storage: &mut dyn Recoverable,
    ) -> Result<bool, FsError> {
        if self.history.objects.get(object).is_some_and(|known| known.gone.is_some()) {
            return Ok(false);
        }
        let now = storage.look(object)?;
        Ok(now.is_some_and(|it| it.kind == FileKind::Directory || it.links as usize <= asides))
    }

    /// Whether something of which the log does not know has moved or removed the names that an object must have: all
    /// of them were on the disk. What was put aside of it are then old names, if nothing has changed their
    /// directories since the crash.
    fn was_moved_on(&self, object: &ObjectKey, asides: &[Aside]) -> bool {
        if asides.iter().any(|aside| self.tells_no_names(&aside.at.dir)) {
            return false;
        }
        let was_there = |place: &OwnedPlace| {
            let entry = self.history.entries.get(place);
            entry.is_some_and(|entry| entry.lsn <= self.names_on_disk(&place.dir))
        };
        self.index.wanting(object).iter().all(was_there)
    }

    /// Whether a file would be gone with a name that was removed, and something of which the log does not
    /// know has changed its data since, which is nowhere else.
    fn is_last_of_changed(
        &self,
        object: &ObjectKey,
        storage: &mut dyn Recoverable,
    ) -> Result<bool, FsError> {
        let Some((before, known)) = self.before(object).zip(self.history.objects.get(object))
        else {
            return Ok(false);
        };
        let is_changed = before.kind == FileKind::Regular
            && (self.changed_last_by_others(before, known).is_some()
                || known.was_written_since_gone(before));
        Ok(is_changed && storage.look(object)?.is_some_and(|now| now.links == 1))
    }

    /// Whether an object has one of the names that it must have, if it must have any.
    fn is_placed(
        &self,
        object: &ObjectKey,
        storage: &mut dyn Recoverable,
    ) -> Result<bool, FsError> {
        let mut is_wanted = false;
        for place in self.index.wanting(object) {
            is_wanted = true;
            if storage.bound(&place.borrowed())?.is_some_and(|(bound, _)| bound == *object) {
                return Ok(true);
            }
        }
        Ok(!is_wanted)
    }

    /// Of an object, by a name of it if one is known.
    pub(super) fn conflict_of(
        &mut self,
        storage: &mut dyn Recoverable,
        object: ObjectKey,
        kind: ConflictKind,
    ) {
        match self.name_of(storage, &object) {
            Some(place) => self.conflict(&place, kind),
            None => self.report.unnamed.push((object, kind)),
        }
    }

    /// A name that an object has now, if the log knows one: a local process may have renamed it.
    pub(super) fn name_of(
        &self,
        storage: &mut dyn Recoverable,
        object: &ObjectKey,
    ) -> Option<OwnedPlace> {
        let mut names = self.index.wanting(object).iter();
        let is_its = |place: &&OwnedPlace| matches!(storage.bound(&place.borrowed()), Ok(Some((bound, _))) if bound == *object);
        names.find(is_its).cloned()
    }

    pub(super) fn conflict(&mut self, place: &OwnedPlace, kind: ConflictKind) {
        let Place { dir, name } = place.borrowed();
        self.report.conflicts.push(Conflict { dir, name: name.to_vec(), kept_of: None, kind });
    }
}

/// Keeps a copy of a file that is to be removed, so that its handle leads nowhere all the same.
fn keep_removed(aside: &Aside, storage: &mut dyn Recoverable) -> Result<OwnedPlace, FsError> {
    let name = versions::kept_name(&aside.object, false);
    let copy = storage.keep(&aside.object, Some(&aside.at.dir), &name, true)?;
    if !copy.is_whole {
        storage.keep_part(&aside.object, &copy.object, 0, u64::MAX)?;
    }
    Ok(OwnedPlace { dir: copy.dir, name })
}

/// A name for what is put aside. It tells what it is, for people.
fn aside_name(number: usize, object: &ObjectKey) -> Vec<u8> {
    let mut name = ASIDE_PREFIX.to_vec();
    name.extend_from_slice(format!("{number}-").as_bytes());
    for byte in object.0.as_bytes() {
        name.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
    name
}
