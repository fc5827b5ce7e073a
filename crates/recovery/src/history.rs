//! Where the changes of the log lead to.

use std::collections::{BTreeMap, HashMap, HashSet};

use smallvec::SmallVec;
use steadfast_vfs::{Attr, FileKind, Time};

use crate::{Action, Before, Change, ObjectKey, Ownership, Place, Settled, Unlinked};

/// A name in a directory, owned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OwnedPlace {
    pub(super) dir: ObjectKey,
    pub(super) name: Vec<u8>,
}

impl OwnedPlace {
    pub(super) fn of(place: &Place<'_>) -> Self {
        Self { dir: place.dir, name: place.name.to_vec() }
    }

    pub(super) fn borrowed(&self) -> Place<'_> {
        Place { dir: self.dir, name: &self.name }
    }
}

/// What became of a name.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// What it must be bound to in the end.
    pub(super) wanted: Option<ObjectKey>,
    /// What else it was bound to on the way.
    pub(super) former: SmallVec<[ObjectKey; 2]>,
    /// By which change it came to be bound as it must be.
    pub(super) lsn: u64,
}

/// How an object was made.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) lsn: u64,
    pub(super) attr: Attr,
    pub(super) target: Vec<u8>,
}

/// What the records tell by which an object is known from another that has its handle.
#[derive(Clone, Debug, Default)]
pub(super) struct Looks {
    pub(super) kind: Option<FileKind>,
    /// If its kind is not known.
    pub(super) is_directory: Option<bool>,
    /// When it was made, if that is told.
    pub(super) born: Option<Time>,
    /// Of the first change that mentions it and tells times: it was there by then.
    pub(super) first: Option<Time>,
}

/// The last that is known of an access list: by which change, and the list, if that tells it.
pub(super) type LastAcl = Option<(u64, Option<Box<[u8]>>)>;

/// What became of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Object {
    pub(super) looks: Looks,
    pub(super) access: LastAcl,
    pub(super) default: LastAcl,
    /// If it was made by one of the changes, and was not on the disk since.
    pub(super) made: Option<Made>,
    /// Its attributes after the last change that tells them.
    pub(super) attr: Option<Attr>,
    pub(super) attr_lsn: u64,
    /// Whose it was before, each time that this changed.
    owned: Vec<Ownership>,
    /// The change by which it lost its last name.
    pub(super) gone: Option<u64>,
    /// When that was, if the change tells it: it need not tell the object's own times then.
    gone_at: Option<Time>,
    /// How many names it has after the last change.
    pub(super) links: Option<u32>,
    /// Its ctime after each change.
    ctimes: Vec<(u64, Time)>,
    /// Its mtime then.
    mtimes: Vec<Time>,
    /// The changes of its data.
    data: Vec<u64>,
    /// When something else has changed its data between two of the changes, and the former of these.
    foreign: Vec<(Time, u64)>,
    /// The same, of changes of whatever it is: who writes may have set the mtime back.
    foreign_of_any: Vec<(Time, u64)>,
    /// Whether a change gave it a ctime that no record tells.
    pub(super) has_untold_ctimes: bool,
    /// Whether one did after the last that is told.
    is_untold_since: bool,
    /// Changes of attributes that are in the log, each from the ctime before it to the one after it: they are made in
    /// steps, each of which gives it a ctime, and a crash may leave any of them.
    in_steps: Vec<(Time, Time)>,
    /// Changes that are not in the log, each from the ctime before it to the one after it: what takes long
    /// gives a file more than one ctime.
    unlogged: Vec<(Time, Time)>,
    /// The last change of its data that is not in the log.
    pub(super) unlogged_lsn: u64,
    /// Data of changes up to this LSN is on the disk.
    data_settled: u64,
    last_lsn: u64,
}

/// Of changes, each with the one that it came after, the latest of the latter that is not after a ctime.
fn latest_before(foreign: &[(Time, u64)], ctime: Time) -> Option<u64> {
    foreign.iter().filter(|(at, _)| *at <= ctime).map(|(_, lsn)| *lsn).max()
}

impl Object {
    fn note_times(&mut self, lsn: u64, ctime: Time, mtime: Time) {
        self.is_untold_since = false;
        self.ctimes.push((lsn, ctime));
        self.mtimes.push(mtime);
    }

    /// The last change that something else's change of data came after, of those that are on the disk of
    /// an object that has this ctime there.
    pub(super) fn before_foreign(&self, ctime: Time) -> Option<u64> {
        latest_before(&self.foreign, ctime)
    }

    /// The same, of something else's change of anything.
    pub(super) fn before_foreign_of_any(&self, ctime: Time) -> Option<u64> {
        latest_before(&self.foreign_of_any, ctime)
    }

    /// Notes what an object was before a change of its data, attributes or names.
    fn note_before(&mut self, before: &Before) {
        if let Some(was) = before.ownership
            && self.owned.last() != Some(&was)
        {
            self.owned.push(was);
        }
        self.note_times_before(before.ctime, before.mtime);
    }

    /// Notes what an object's times tell after a change that changes no data.
    fn note_data_kept(&mut self, attr: &Attr) {
        let Some((lsn, last)) = self.ctimes.last().copied() else { return };
        if attr.kind == FileKind::Regular && self.mtimes.last() != Some(&attr.mtime) {
            let at = if attr.mtime > last { attr.mtime } else { attr.ctime };
            self.foreign.push((at, lsn));
            self.foreign_of_any.push((at, lsn));
        }
    }

    fn note_attr(&mut self, lsn: u64, attr: &Attr) {
        let was = self.attr.as_ref().map(Ownership::of);
        self.owned.extend(was.filter(|was| *was != Ownership::of(attr)));
        self.attr = Some(*attr);
        self.attr_lsn = lsn;
        self.note_times(lsn, attr.ctime, attr.mtime);
    }

    /// Whose an object is to be that a crash may have left as it was before any of the changes, or after,
    /// and that something unknown may have changed since: what the log never told was set since, and stays;
    /// for all else what was acknowledged last counts.
    pub(super) fn ownership_among(&self, found: Ownership, last: Ownership) -> Ownership {
        let decide = |part: fn(&Ownership) -> u32| {
            let is_of_before = self.owned.iter().any(|was| part(was) == part(&found));
            if is_of_before { part(&last) } else { part(&found) }
        };
        Ownership { mode: decide(|of| of.mode), uid: decide(|of| of.uid), gid: decide(|of| of.gid) }
    }

    /// Notes what an object's times were before a change.
    fn note_times_before(&mut self, ctime: Time, mtime: Time) {
        let Some((lsn, last)) = self.ctimes.last().copied() else { return };
        // Set back, the clock tells nothing.
        if self.had(ctime) || ctime <= last {
            return;
        }
        let has_other_mtime = self.mtimes.last() != Some(&mtime);
        if has_other_mtime || !self.is_untold_since {
            self.foreign_of_any.push((ctime, lsn));
        }
        if has_other_mtime {
            self.foreign.push((ctime, lsn));
        }
    }

    fn note_untold(&mut self) {
        (self.has_untold_ctimes, self.is_untold_since) = (true, true);
    }

    /// Whether a file that is found was written to after it had lost its last name: then a crash has
    /// brought the name back. A client may have set an mtime that is still to come.
    pub(super) fn was_written_since_gone(&self, found: &Attr) -> bool {
        self.gone_at.is_some_and(|gone| gone < found.mtime && found.mtime <= found.ctime)
    }

    /// The latest ctime that any change gave it.
    pub(super) fn last_ctime(&self) -> Option<Time> {
        self.ctimes.iter().map(|(_, ctime)| *ctime).max()
    }

    /// Its times after the last change that tells them.
    pub(super) fn last_times(&self) -> Option<(Time, Time)> {
        Some((self.ctimes.last()?.1, *self.mtimes.last()?))
    }

    /// Whether it had this mtime after the change of an LSN, or, for all of them, after any.
    pub(super) fn had_mtime(&self, mtime: Time, lsn: Option<u64>) -> bool {
        let all = self.ctimes.iter().zip(&self.mtimes);
        all.into_iter().any(|((of, _), known)| *known == mtime && lsn.is_none_or(|lsn| lsn == *of))
    }

    fn be_directory(&mut self, is_directory: bool) {
        self.looks.is_directory = Some(is_directory);
    }

    /// Whether one of the changes left it with this ctime.
    pub(super) fn had(&self, ctime: Time) -> bool {
        self.ctimes.iter().any(|(_, known)| *known == ctime)
    }

    /// Whether it may have had this ctime in the course of a change that is not in the log.
    pub(super) fn may_be_of_unlogged(&self, ctime: Time) -> bool {
        self.unlogged.iter().any(|(before, after)| *before < ctime && ctime <= *after)
    }

    /// Whether it may have had this ctime in the course of a change of attributes that is in the log. (Of a local
    /// change before that the ctime is the one before it, which is not within.)
    pub(super) fn may_be_of_a_step(&self, ctime: Time) -> bool {
        self.in_steps.iter().any(|(before, after)| *before < ctime && ctime < *after)
    }

    /// Its ctime after a change that tells it.
    pub(super) fn ctime_after(&self, lsn: u64) -> Option<Time> {
        self.ctimes.iter().find(|(known, _)| *known == lsn).map(|(_, ctime)| *ctime)
    }

    /// Up to which change an object is certainly on the disk that has this ctime there: changes of
    /// an inode reach the disk in order. Changes that have just that ctime may be there or not: the
    /// kernel's clock has ticks, and only since Linux 6.13 does every change that is looked at get
    /// a ctime of its own. To bring them into effect once more does no harm.
    pub(super) fn on_disk(&self, ctime: Time) -> u64 {
        let mut before = match self.ctimes.iter().rposition(|(_, known)| *known == ctime) {
            Some(last) => self.ctimes.get(..last).unwrap_or(&[]),
            None => &self.ctimes,
        };
        if before.len() < self.ctimes.len() {
            // The clock may have been set back before.
            while let Some(((_, known), rest)) = before.split_last()
                && *known == ctime
            {
                before = rest;
            }
            return before.last().map_or(0, |(lsn, _)| *lsn);
        }
        // Something else has changed it: after all that is older.
        before.iter().filter(|(_, known)| *known < ctime).map(|(lsn, _)| *lsn).max().unwrap_or(0)
    }
}

/// Entries by objects.
#[derive(Debug, Default)]
pub(super) struct Index {
    wanting: HashMap<ObjectKey, Vec<OwnedPlace>>,
    former: HashSet<(ObjectKey, ObjectKey)>,
}

impl Index {
    /// The names that must be bound to an object.
    pub(super) fn wanting(&self, object: &ObjectKey) -> &[OwnedPlace] {
        self.wanting.get(object).map_or(&[], Vec::as_slice)
    }

    /// Whether an object is known to have had names in a directory that it lost.
    pub(super) fn is_former(&self, dir: ObjectKey, object: ObjectKey) -> bool {
        self.former.contains(&(dir, object))
    }
}

/// All that the changes lead to.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) entries: BTreeMap<OwnedPlace, Entry>,
    pub(super) objects: HashMap<ObjectKey, Object>,
    /// Changes up to this LSN are all on the disk.
    settled: u64,
    /// The latest ctime of any object after any change.
    pub(super) latest: Option<Time>,
    /// The last time mark: what has an earlier ctime that no record tells, is of a local process.
    pub(super) moment: Option<Time>,
    /// The latest ctime that the change tells which is being read.
    told: Option<Time>,
}

impl History {
    pub(super) fn read(&mut self, lsn: u64, change: &Change<'_>) {
        self.note_before(lsn, change);
        self.note_after(lsn, change);
        match &change.action {
            Action::Nothing => {}
            Action::Write { object, .. } => {
                let object = self.object(object, lsn);
                object.be_directory(false);
                object.data.push(lsn);
            }
            Action::Attributes { object, size, .. } => {
                let object = self.object(object, lsn);
                if size.is_some() {
                    object.data.push(lsn);
                }
            }
            Action::Touched { object, ctime, mtime } => {
                let before = change.before.as_ref();
                self.note_unlogged(lsn, object, before, (*ctime, *mtime));
            }
            Action::Acls { object, access, default } => {
                let object = self.object(object, lsn);
                for (last, told) in [(&mut object.access, access), (&mut object.default, default)] {
                    if let Some(told) = told {
                        *last = Some((lsn, Some((*told).into())));
                    }
                }
            }
            Action::Make { place, object, target } => {
                self.note_made(lsn, change, object, target);
                self.bind(place, Some(*object), None, lsn);
            }
            Action::Link { place, object } => {
                let linked = self.object(object, lsn);
                if change.attr_of(object).is_none() {
                    linked.note_untold();
                }
                self.bind(place, Some(*object), None, lsn);
            }
            Action::Remove { place, unlinked } => {
                self.unlink(change, unlinked, lsn);
                self.bind(place, None, Some(unlinked.object), lsn);
            }
            Action::Rename { from, to, object, is_directory, victim } => {
                let moved = self.object(object, lsn);
                moved.be_directory(*is_directory);
                if change.attr_of(object).is_none() {
                    moved.note_untold();
                }
                if let Some(victim) = victim {
                    self.unlink(change, victim, lsn);
                }
                self.bind(from, None, Some(*object), lsn);
                self.bind(to, Some(*object), victim.map(|victim| victim.object), lsn);
            }
            Action::Settled { what, up_to } => self.settle(what, *up_to),
            // The last: the clock may have been set back.
            Action::Moment { before } => self.moment = Some(*before),
        }
    }

    /// Notes what a change tells of its object before it.
    fn note_before(&mut self, lsn: u64, change: &Change<'_>) {
        let (
            Some(before),
            Action::Write { object, .. }
            | Action::Attributes { object, .. }
            | Action::Acls { object, .. }
            | Action::Touched { object, .. }
            | Action::Link { object, .. }
            | Action::Rename { object, .. }
            | Action::Remove { unlinked: Unlinked { object, .. }, .. },
        ) = (&change.before, &change.action)
        else {
            return;
        };
        let after = change.attr_of(object).map(|attr| attr.ctime);
        self.told = after;
        let object = self.object(object, lsn);
        object.note_before(before);
        if matches!(change.action, Action::Attributes { .. }) {
            object.in_steps.extend(after.map(|after| (before.ctime, after)));
        }
    }

    /// Notes the attributes that a change tells of objects after it.
    fn note_after(&mut self, lsn: u64, change: &Change<'_>) {
        let is_of_names = matches!(
            change.action,
            Action::Link { .. } | Action::Rename { .. } | Action::Remove { .. }
        );
        for (key, attr) in &change.after {
            self.told = Some(attr.ctime);
            let object = self.object(key, lsn);
            object.looks.kind = Some(attr.kind);
            object.links = Some(attr.links);
            if is_of_names {
                object.note_data_kept(attr);
            }
            object.note_attr(lsn, attr);
            self.latest = self.latest.max(Some(attr.ctime));
        }
        self.told = change.after.iter().map(|(_, attr)| attr.ctime).max();
    }

    /// Notes a change of a file's data that is not in the log.
    fn note_unlogged(
        &mut self,
        lsn: u64,
        object: &ObjectKey,
        before: Option<&Before>,
        (ctime, mtime): (Time, Time),
    ) {
        self.told = Some(ctime);
        let known = self.object(object, lsn);
        known.note_times(lsn, ctime, mtime);
        known.unlogged.extend(before.map(|before| (before.ctime, ctime)));
        // One that leaves the mtime, in another tick, is of attributes alone.
        let has_data = before.is_none_or(|it| it.mtime != mtime || it.ctime == ctime);
        if has_data {
            known.unlogged_lsn = lsn;
        }
        self.latest = self.latest.max(Some(ctime));
    }

    /// Notes how an object was made.
    fn note_made(&mut self, lsn: u64, change: &Change<'_>, object: &ObjectKey, target: &[u8]) {
        let known = self.object(object, lsn);
        let made = change.made.as_ref();
        let acls = made.and_then(|made| made.acls.as_ref());
        known.access = Some((lsn, acls.map(|acls| acls.access.as_slice().into())));
        known.default = Some((lsn, acls.map(|acls| acls.default.as_slice().into())));
        known.looks.born = made.and_then(|made| made.born);
        if let Some(attr) = change.attr_of(object) {
            if attr.kind == FileKind::Regular && attr.size > 0 {
                known.data.push(lsn);
            }
            known.made = Some(Made { lsn, attr: *attr, target: target.to_vec() });
        }
    }

    /// Whether data of this change may not be on the disk.
    pub(super) fn data_counts(&self, object: &ObjectKey, lsn: u64) -> bool {
        let known = self.objects.get(object);
        lsn > self.settled && known.is_some_and(|known| lsn > known.data_settled)
    }

    /// The changes of an object's data that may not be on the disk.
    pub(super) fn data_of<'a>(
        &'a self,
        object: &'a ObjectKey,
        known: &'a Object,
    ) -> impl Iterator<Item = u64> + 'a {
        known.data.iter().copied().filter(|lsn| self.data_counts(object, *lsn))
    }

    /// Takes away the names of what lost its last name under one that the log did not know: a local
    /// process had moved it there, and the crash may have brought back the name that it had before.
    pub(super) fn take_names_of_what_is_gone(&mut self) {
        for entry in self.entries.values_mut() {
            let Some(object) = entry.wanted else { continue };
            let gone = self.objects.get(&object).and_then(|known| known.gone);
            let Some(lsn) = gone.filter(|lsn| *lsn > entry.lsn) else { continue };
            entry.wanted = None;
            if !entry.former.contains(&object) {
                entry.former.push(object);
            }
            entry.lsn = lsn;
        }
    }

    /// The entries by the objects that they are about.
    pub(super) fn index(&self) -> Index {
        let mut index = Index::default();
        for (place, entry) in &self.entries {
            if let Some(wanted) = entry.wanted {
                index.wanting.entry(wanted).or_default().push(place.clone());
            }
            index.former.extend(entry.former.iter().map(|former| (place.dir, *former)));
        }
        index
    }

    /// An object lost a name, of which its attributes may not tell.
    fn unlink(&mut self, change: &Change<'_>, unlinked: &Unlinked, lsn: u64) {
        let is_told = change.attr_of(&unlinked.object).is_some();
        let told = self.told;
        let object = self.object(&unlinked.object, lsn);
        object.be_directory(unlinked.is_directory);
        object.gone = (!unlinked.is_left).then_some(lsn);
        object.gone_at = told.filter(|_| !unlinked.is_left);
        if !is_told {
            object.note_untold();
            object.links = object.links.map(|links| links.saturating_sub(1));
        }
    }

    fn object(&mut self, key: &ObjectKey, lsn: u64) -> &mut Object {
        let told = self.told;
        let object = self.objects.entry(*key).or_default();
        object.last_lsn = lsn;
        object.looks.first = object.looks.first.or(told);
        object
    }

    fn bind(
        &mut self,
        place: &Place<'_>,
        wanted: Option<ObjectKey>,
        before: Option<ObjectKey>,
        lsn: u64,
    ) {
        self.object(&place.dir, lsn).be_directory(true);
        let entry = self.entries.entry(OwnedPlace::of(place)).or_insert_with(|| Entry {
            wanted: None,
            former: SmallVec::new(),
            lsn,
        });
        for known in [entry.wanted, before].into_iter().flatten() {
            if !entry.former.contains(&known) {
                entry.former.push(known);
            }
        }
        entry.wanted = wanted;
        entry.lsn = lsn;
    }

    /// Changes up to an LSN are on the disk, and what came of them there counts.
    fn settle(&mut self, what: &Settled, up_to: u64) {
        match what {
            Settled::Data(key) => {
                if let Some(object) = self.objects.get_mut(key) {
                    settle_object(object, up_to);
                }
            }
            Settled::Object(key) => {
                if let Some(object) = self.objects.get_mut(key) {
                    settle_object(object, up_to);
                    settle_attributes(object, up_to);
                }
                self.entries.retain(|place, entry| place.dir != *key || entry.lsn > up_to);
            }
            Settled::FileSystem => {
                self.settled = self.settled.max(up_to);
                self.entries.retain(|_, entry| entry.lsn > up_to);
                self.objects.retain(|_, object| object.last_lsn > up_to);
                for object in self.objects.values_mut() {
                    settle_object(object, up_to);
                    settle_attributes(object, up_to);
                }
            }
        }
    }
}

fn settle_object(object: &mut Object, up_to: u64) {
    object.data_settled = object.data_settled.max(up_to);
    // Its data may not be in the log: made again it would be empty.
    if object.made.as_ref().is_some_and(|made| made.lsn <= up_to) {
        object.made = None;
    }
}

fn settle_attributes(object: &mut Object, up_to: u64) {
    if object.attr_lsn <= up_to
        && let Some(last) = object.attr.take()
    {
        object.owned = vec![Ownership::of(&last)];
    }
    for acl in [&mut object.access, &mut object.default] {
        if acl.as_ref().is_some_and(|(lsn, _)| *lsn <= up_to) {
            *acl = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As who writes to a file and sets its mtime back.
    #[test]
    fn a_change_that_keeps_the_mtime_is_seen_by_its_ctime() {
        let time = |seconds| Time { seconds, nanoseconds: 0 };
        let mut file = Object::default();
        file.note_times(5, time(10), time(10));
        file.note_times_before(time(10), time(10));
        assert_eq!(file.before_foreign_of_any(time(99)), None);
        file.note_times_before(time(20), time(10));
        assert_eq!(file.before_foreign(time(99)), None, "it may be of attributes alone");
        assert_eq!(file.before_foreign_of_any(time(99)), Some(5));
        assert_eq!(file.before_foreign_of_any(time(19)), None, "it is not on the disk");
        file.note_times_before(time(30), time(25));
        assert_eq!(file.before_foreign(time(99)), Some(5));
    }
}
