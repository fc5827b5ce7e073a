//! What a logged change is, and its replay: what the log's records say, brought into effect on one file
//! system after a crash.
//!
//! - [`Change`] tells what was done. Storage puts it into a place of the log ([`ChangeLog`],
//!   [`LogPlace`]) under the lock that orders the object. [`BegunCall`] and [`AttributesUnderWay`] are
//!   noted before a change, for a start after a kill.
//! - [`Recoverable`] is a file system as replay finds it.
//! - [`Replay`] brings all changes of one file system into effect.
//!
//! This crate knows nothing of what stands behind a change in its record, which is the engine's, nor where
//! records are kept. It must never do I/O: it changes file systems through [`Recoverable`] alone.
//!
//! # Replay
//!
//! What a crash leaves is what the file system's own journal had, up to some change of each
//! directory and each inode: perhaps less than was acknowledged, perhaps more. Replay does not do
//! all changes again one after the other, since what follows them may be there already. It finds
//! out where the changes lead to, and what of that is missing:
//!
//! 1. [`Replay::read`] takes all records in order ([`history`]). For each name that was changed
//!    it keeps what the name must be bound to in the end and by which change; for each object
//!    what it was made as, its last attributes, and from where on its data counts.
//! 2. [`Replay::observe`] looks at every object that is mentioned. A change of a directory and
//!    the directory's ctime reach the disk together, and every change has a ctime of its own, so
//!    a ctime on the disk that is later than that of a change says that the change is there. What
//!    is observed must be kept until replay is done, since replay changes it: a crash in between
//!    is followed by another replay, of the same records, that must decide alike.
//!    (Of the names of new directories on btrfs this is not true: they are judged by what they are bound
//!    to. So are those of a directory that a local process has changed since the crash. Where nothing but
//!    the server was ended, every change is there: [`Replay::be_of_what_is_in_effect`].) A ctime that
//!    no record has is of a change that the log does not know. If a time mark follows, which says up to
//!    when all changes of the server have records, a local process made it.
//! 3. [`Replay::bind_names`] brings the names whose last change is missing to where they belong:
//!    first all that is in the way or in the wrong place is put aside within its directory, then
//!    each name gets its object, then what nobody claims is removed. So cycles of renamings need
//!    no care, and directories never meet their own descendants. Lost objects are made again.
//! 4. [`Replay::write_data`] takes all records again and writes data and sizes, in order.
//! 5. [`Replay::set_attributes`] sets attributes where the disk has older ones.
//!
//! Every step can be repeated. What is neither in the log nor explained by it is a change that a
//! local process made, or an operation that was not acknowledged: it stays, and is reported if
//! it is in the way ([`Conflict`]).
#![forbid(unsafe_code)]

mod attributes_under_way;
mod begun;
mod begun_call;
mod change;
mod change_log;
mod file_system;
mod history;
mod identity;
mod names;
mod own_failures;
mod recoverable;
#[cfg(test)]
mod tests;
mod under_way;
mod versions;

use std::collections::{HashMap, HashSet};

use steadfast_vfs::{Attr, FileKind, FsError, Time};

use history::{History, Index, LastAcl, Object};
use identity::SinceCrash;
use versions::Version;

pub use attributes_under_way::AttributesUnderWay;
pub use begun::{BegunOutcome, outcome_of};
pub use begun_call::{AskedAttributes, BegunCall, BegunCalls, BegunMark, BeingMade};
pub use change::{
    ACL_BYTES_MAX, AFTER_MAX, Action, Before, Change, LINK_TARGET_BYTES_MAX, MADE_ACL_BYTES, Made,
    MadeAcls, NotAChange, ObjectKey, Ownership, Place, Settled, Unlinked, change_bytes_max,
};
pub use change_log::{ChangeLog, LogPlace};
pub use file_system::{FileSystemIdentity, LoggedFileSystem};
pub use own_failures::NotReplayed;
pub use recoverable::{AclsToSet, KeptFile, Recoverable};
pub use under_way::{finish_cut, undo};

/// Names that replay makes begin so; `/` cannot be in them, so a client could make one too, but
/// has no reason to.
const ASIDE_PREFIX: &[u8] = b".steadfast-replay-";

/// Something that replay found and cannot be explained by the log alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The directory it is in.
    pub dir: ObjectKey,
    /// The name.
    pub name: Vec<u8>,
    /// If the log knows no name that the object has now: the object, and the name is that of what is kept of it.
    pub kept_of: Option<ObjectKey>,
    /// What is the matter.
    pub kind: ConflictKind,
}

/// How what is there and what the log says do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConflictKind {
    /// Something that no acknowledged operation put there was in the way.
    #[error(
        "something that the log does not know was in the way: it is kept under a name that begins \
         with .steadfast-replay-"
    )]
    InTheWay,
    /// The object was removed or renamed by a local process, or by an operation whose reply was
    /// never sent.
    #[error("the object is gone, removed by something that the log does not know")]
    Gone,
    /// A directory that was removed has names that the log does not know.
    #[error("the directory was removed, but has names that the log does not know: it is kept")]
    NotEmpty,
    /// A file that was removed has data of which the log does not know: it was written to since, by a
    /// local process that found it under its old name after the crash.
    #[error(
        "it was removed, but something that the log does not know has changed its data since: it is kept \
         under a name that begins with .steadfast-replay-"
    )]
    RemovedKept,
    /// Data that a local process has changed stays; what was acknowledged is kept beside it.
    #[error(
        "its data was changed by a local process after the last operations: that version stays, and what \
         was acknowledged is kept beside it, under a name that begins with \
         .steadfast-replay-acknowledged-"
    )]
    AcknowledgedKept,
    /// Data that something unknown has changed is what was acknowledged; what was found is kept beside it.
    #[error(
        "its data was changed by something that the log does not know: it is as it was acknowledged, and \
         what was found is kept beside it, under a name that begins with .steadfast-replay-found-"
    )]
    FoundKept,
    /// Owner or mode are not what was acknowledged last, since something else has set them since.
    #[error("its owner or mode was set by something that the log does not know, and stays so")]
    AttributesStay,
    /// Something has changed the object after the crash, and owner, mode or access list were what they
    /// had been before the last acknowledged change.
    #[error(
        "it was changed by something that the log does not know, which found it with an earlier owner, \
         mode or access list, or set that: it has those that were acknowledged last"
    )]
    AttributesBack,
    /// The object had to be made again, and it is not known which access list it had.
    #[error(
        "it was made again, and the log does not tell its access list: its group, and whom the list \
         named, may not use it until its mode is set again"
    )]
    AccessUnknown,
}

/// What replay did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Names that were given or taken.
    pub names: u64,
    /// Objects that were made again.
    pub objects_made: u64,
    /// Bytes of data that were written.
    pub data_bytes: u64,
    /// The objects that were made again, and the files that were written to.
    pub files: HashSet<ObjectKey>,
    /// What did not fit.
    pub conflicts: Vec<Conflict>,
    /// The same of objects of which no record tells a name.
    pub unnamed: Vec<(ObjectKey, ConflictKind)>,
    /// Objects that could not be brought to where they belong, each for a reason of its own.
    pub not_replayed: Vec<NotReplayed>,
}

/// What was there before replay changed anything.
pub type Observed = HashMap<ObjectKey, Option<Attr>>;

/// The replay of one file system's records.
#[derive(Debug, Default)]
pub struct Replay {
    history: History,
    /// Of the history, once it is whole.
    index: Index,
    observed: Observed,
    /// Ctimes before this are of before the crash, for certain; others may be of local processes after it,
    /// or of the file system's own recovery.
    crashed_after: Option<Time>,
    names_follow_ctimes: bool,
    /// When this run of the machine began, if it has crashed.
    machine_started: Option<Time>,
    /// When it is replayed.
    now: Option<Time>,
    /// Only processes were ended.
    is_all_in_effect: bool,
    /// Their data, too, is certainly there.
    has_all_data: bool,
    /// Files that may have been written to.
    written: HashSet<ObjectKey>,
    /// Objects of which something could not be replayed.
    failed: HashSet<ObjectKey>,
    /// Removed files that are kept for what was written to them since: nothing else is.
    kept_removed: HashSet<ObjectKey>,
    /// Files of which there are two versions.
    versions: HashMap<ObjectKey, Version>,
    report: Report,
}

impl Replay {
    /// Of changes that are all in effect, since only the server was ended: names and attributes are
    /// what was made of them later, and stay. So does data if it is certain that all is there; otherwise it
    /// is written again, should the disk have failed unheard, unless something has changed it later.
    pub fn be_of_what_is_in_effect(&mut self, has_all_data: bool) {
        self.is_all_in_effect = true;
        self.has_all_data = has_all_data;
    }

    /// Whether every change that was read is on a file system, as far as its objects tell: then those that
    /// it has at most lost is data.
    ///
    /// # Errors
    /// The storage's.
    pub fn is_all_there(&self, storage: &mut dyn Recoverable) -> Result<bool, FsError> {
        for (object, known) in &self.history.objects {
            let is_there = match storage.look(object)? {
                Some(found) => {
                    known.gone.is_none()
                        && known.last_ctime().is_none_or(|last| found.ctime >= last)
                }
                None => known.gone.is_some() || self.was_removed_later(object, storage)?,
            };
            if !is_there {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether something may have changed the directory of an object that is gone after the log's last change
    /// of the directory.
    fn was_removed_later(
        &self,
        object: &ObjectKey,
        storage: &mut dyn Recoverable,
    ) -> Result<bool, FsError> {
        for (place, _) in self.history.entries.iter().filter(|(_, it)| it.wanted == Some(*object)) {
            let Some(dir) = storage.look(&place.dir)? else { continue };
            let known = self.history.objects.get(&place.dir);
            let last = known.and_then(Object::last_ctime);
            // In the same tick it may have been.
            if last.is_some_and(|last| dir.ctime < last) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Tells when this run of the machine began, if it is another than that of the changes: what was
    /// changed before it was not changed after the crash. Not to be told where that is not known.
    #[must_use]
    pub fn on_machine_started(self, at: Option<Time>) -> Self {
        Self { machine_started: at, ..self }
    }

    /// Tells what time it is: nothing was made later.
    #[must_use]
    pub fn at(self, now: Option<Time>) -> Self {
        Self { now, ..self }
    }

    /// Takes one record's change; all of them must come, in order.
    pub fn read(&mut self, lsn: u64, change: &Change<'_>) {
        self.history.read(lsn, change);
    }

    /// Looks at every object that the records mention, unless an earlier replay of the same records
    /// did, which did not come to its end.
    ///
    /// # Errors
    /// The storage's.
    pub fn observe(
        &mut self,
        storage: &mut dyn Recoverable,
        earlier: Option<Observed>,
    ) -> Result<&Observed, FsError> {
        if let Some(earlier) = earlier {
            self.observed = earlier;
        } else {
            let since = SinceCrash { began: self.trusted_start(), now: self.now };
            let is_in_effect = self.is_all_in_effect;
            for (object, known) in &self.history.objects {
                let found = match storage.look(object) {
                    Err(error) if own_failures::is_own(error) => None,
                    found => found?,
                };
                let is_it = match &found {
                    Some(attr) if !is_in_effect => {
                        known.looks.fit(attr, storage.born(object)?, since)
                    }
                    _ => true,
                };
                self.observed.insert(*object, found.filter(|_| is_it));
            }
        }
        self.crashed_after = self.trusted_start().max(self.history.moment);
        self.names_follow_ctimes = storage.names_follow_ctimes();
        if !self.is_all_in_effect {
            let lost = self.observed.iter().filter(|(_, attr)| attr.is_none());
            let lost: Vec<ObjectKey> = lost.map(|(object, _)| *object).collect();
            storage.set_lost(&lost);
        }
        Ok(&self.observed)
    }

    /// When this run of the machine began, unless changes of the one before seem to be later: then the
    /// clock was set meanwhile, and says nothing.
    fn trusted_start(&self) -> Option<Time> {
        self.machine_started
            .filter(|began| self.history.latest.is_none_or(|latest| latest < *began))
    }

    /// The attributes that an object had when replay began.
    fn before(&self, object: &ObjectKey) -> Option<&Attr> {
        self.observed.get(object)?.as_ref()
    }

    /// Up to which change an object was on the disk when replay began.
    fn on_disk(&self, object: &ObjectKey) -> u64 {
        if self.is_all_in_effect {
            return u64::MAX;
        }
        match (self.before(object), self.history.objects.get(object)) {
            (Some(before), Some(known)) if self.ctime_tells(before, known) => {
                known.on_disk(before.ctime)
            }
            _ => 0,
        }
    }

    /// Whether an object's ctime tells what of it is on the disk. Where mounting sets ctimes too
    /// (btrfs) not all do: it takes names away, and so gives directories and those that had the names
    /// the time of the mount, which may be a moment after the crash. One that a record has, or that
    /// is certainly of before the crash, tells.
    fn ctime_tells(&self, before: &Attr, known: &Object) -> bool {
        self.names_follow_ctimes || known.had(before.ctime) || !self.may_be_of_later(before.ctime)
    }

    /// Up to which change the names of a directory were on the disk when replay began. Of one that
    /// may have been changed after the crash, its ctime does not say: no matter how soon that was. Nor
    /// does that of a new one, where a flush of one file brings its directory without its neighbours
    /// (btrfs).
    fn names_on_disk(&self, dir: &ObjectKey) -> u64 {
        if self.tells_no_names(dir) { 0 } else { self.on_disk(dir) }
    }

    /// Whether the ctime of a directory does not say which names were there when replay began.
    fn tells_no_names(&self, dir: &ObjectKey) -> bool {
        let (before, known) = (self.before(dir), self.history.objects.get(dir));
        let says_nothing = before.zip(known).is_some_and(|(before, known)| {
            let may_be_of_later = !known.had(before.ctime) && self.may_be_of_later(before.ctime);
            may_be_of_later || (!self.names_follow_ctimes && known.made.is_some())
        });
        says_nothing && !self.is_all_in_effect
    }

    /// Whether a ctime that no record tells may be of after the crash.
    fn may_be_of_later(&self, ctime: Time) -> bool {
        self.crashed_after.is_none_or(|after| ctime >= after)
    }

    /// Whether something that is not in the log has changed an object after its last record, or after this one, though only the server
    /// was ended: what is there then is what was made of it.
    fn was_changed_after_a_kill(&self, object: &ObjectKey, lsn: u64) -> bool {
        let known = self.history.objects.get(object).filter(|_| self.is_all_in_effect);
        let (Some(before), Some(known)) = (self.before(object), known) else { return false };
        // What came of changes before one that is not in the log is not known.
        lsn < known.unlogged_lsn
            || known.last_times().is_some_and(|last| (before.ctime, before.mtime) != last)
            || known.before_foreign_of_any(before.ctime).is_some_and(|last| lsn <= last)
    }

    /// Writes the data that one record has, and sets the sizes, if it still counts. All records
    /// must come again, in order, after [`Replay::bind_names`].
    ///
    /// # Errors
    /// The storage's.
    pub fn write_data(
        &mut self,
        storage: &mut dyn Recoverable,
        lsn: u64,
        change: &Change<'_>,
    ) -> Result<(), FsError> {
        if self.has_all_data {
            return Ok(());
        }
        let counts = |replay: &Self, object: &ObjectKey| {
            replay.history.data_counts(object, lsn)
                && !replay.failed.contains(object)
                && !replay.kept_removed.contains(object)
                && !replay.was_changed_after_a_kill(object, lsn)
        };
        let done = match &change.action {
            Action::Write { object, data, .. } if counts(self, object) => {
                self.report.data_bytes += data.len() as u64;
                self.report.files.insert(*object);
                self.write_version(storage, lsn, object, change)
            }
            Action::Attributes { object, size: Some(_), .. } if counts(self, object) => {
                self.write_version(storage, lsn, object, change)
            }
            Action::Make { object, .. }
                if counts(self, object) && self.versions.contains_key(object) =>
            {
                let size = change.attr_of(object).map_or(0, |made| made.size);
                self.make_version(storage, object, size)
            }
            // A file may have a size from the start. What is longer by now was written since.
            Action::Make { object, .. } if counts(self, object) => match change.attr_of(object) {
                Some(made) if made.kind == FileKind::Regular && made.size > 0 => {
                    match storage.look(object)? {
                        Some(now) if now.size < made.size => storage.truncate(object, made.size),
                        _ => Ok(()),
                    }
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        };
        match (done, &change.action) {
            // What is stale was removed later, and nothing of it needs to be there.
            (Ok(()) | Err(FsError::Stale), _) => {}
            (
                Err(error),
                Action::Write { object, .. }
                | Action::Attributes { object, .. }
                | Action::Make { object, .. },
            ) => return self.note_own(*object, None, error),
            (Err(error), _) => return Err(error),
        }
        let written = match &change.action {
            Action::Write { object, .. } | Action::Attributes { object, size: Some(_), .. } => {
                object
            }
            Action::Make { object, .. }
                if change
                    .attr_of(object)
                    .is_some_and(|made| made.kind == FileKind::Regular && made.size > 0) =>
            {
                object
            }
            _ => return Ok(()),
        };
        if self.history.data_counts(written, lsn) && !self.was_changed_after_a_kill(written, lsn) {
            self.written.insert(*written);
        }
        Ok(())
    }

    /// Sets owners, modes and times where the disk has older ones, or replay has changed them.
    /// The last step.
    ///
    /// # Errors
    /// The storage's.
    pub fn set_attributes(&mut self, storage: &mut dyn Recoverable) -> Result<Report, FsError> {
        if self.is_all_in_effect {
            self.bring_times_back(storage)?;
            return Ok(std::mem::take(&mut self.report));
        }
        self.tell_versions(storage)?;
        let mut failed = Vec::new();
        let (mut narrowed, mut stay, mut came_back) = (Vec::new(), Vec::new(), Vec::new());
        for (object, known) in &self.history.objects {
            let Some(logged) = &known.attr else { continue };
            let (before, on_disk) = (self.before(object), self.on_disk(object));
            let mut attr = match before {
                // What there was is newer; only the times that replay has changed are
                // brought back.
                Some(before) if on_disk >= known.attr_lsn => {
                    if !known.had(before.ctime)
                        && !self.may_be_of_later(before.ctime)
                        && Ownership::of(before) != Ownership::of(logged)
                    {
                        stay.push(*object);
                    }
                    *before
                }
                _ => *logged,
            };
            let mut acls = AclsToSet {
                access: acl_to_set(&known.access, before.is_some(), on_disk),
                default: acl_to_set(&known.default, before.is_some(), on_disk),
            };
            if let Some(before) = before
                && !known.had(before.ctime)
                && self.may_be_of_later(before.ctime)
            {
                // Who wrote to it after the crash gave it a ctime that does not tell what of it is on the
                // disk. An access list counts with the mode, which is the most that it grants.
                acls = AclsToSet {
                    access: acl_to_set(&known.access, false, 0),
                    default: acl_to_set(&known.default, false, 0),
                };
                let (found, last) = (Ownership::of(before), Ownership::of(logged));
                let has_lists = match storage.has_acls(object, &acls) {
                    Ok(has_lists) => has_lists,
                    Err(FsError::Stale) => continue,
                    Err(error) => {
                        failed.push((*object, error));
                        continue;
                    }
                };
                let among = known.ownership_among(found, last);
                let owned = if has_lists { among } else { last };
                Ownership { mode: attr.mode, uid: attr.uid, gid: attr.gid } = owned;
                let is_back = on_disk >= known.attr_lsn && (found != last || !has_lists);
                if owned != last {
                    stay.push(*object);
                } else if is_back || among != last {
                    // The latter is a local process's doing also where mounting sets ctimes.
                    came_back.push(*object);
                }
            }
            let is_unknown = |acl: &LastAcl| matches!(acl, Some((_, None)));
            if before.is_none() && attr.kind != FileKind::Symlink && is_unknown(&known.access) {
                // With a list, the bits of the group are the most that it grants to anybody it names.
                acls.access = Some(&[]);
                if attr.mode & GROUP_CLASS != 0 {
                    attr.mode &= !GROUP_CLASS;
                    narrowed.push(*object);
                }
            }
            match storage.set_attributes(object, &attr, &acls) {
                Ok(()) => {}
                // It was removed later.
                Err(FsError::Stale) => {
                    for told in [&mut narrowed, &mut stay, &mut came_back] {
                        told.retain(|told| told != object);
                    }
                }
                Err(error) => failed.push((*object, error)),
            }
        }
        for (object, error) in failed {
            self.note_own(object, None, error)?;
        }
        let narrowed = narrowed.into_iter().map(|object| (object, ConflictKind::AccessUnknown));
        let stay = stay.into_iter().map(|object| (object, ConflictKind::AttributesStay));
        let came_back = came_back.into_iter().map(|object| (object, ConflictKind::AttributesBack));
        for (object, kind) in narrowed.chain(stay).chain(came_back) {
            self.conflict_of(storage, object, kind);
        }
        Ok(std::mem::take(&mut self.report))
    }

    /// Of what data was written to again.
    fn bring_times_back(&mut self, storage: &mut dyn Recoverable) -> Result<(), FsError> {
        for object in &std::mem::take(&mut self.written) {
            let Some(before) = self.before(object).copied() else { continue };
            let Some(now) = storage.look(object)? else { continue };
            let attr = Attr { atime: before.atime, mtime: before.mtime, ..now };
            match storage.set_attributes(object, &attr, &AclsToSet::default()) {
                Ok(()) | Err(FsError::Stale) => {}
                Err(error) => self.note_own(*object, None, error)?,
            }
        }
        Ok(())
    }
}

/// What the group may do, and all whom an access list names.
const GROUP_CLASS: u32 = 0o070;

/// What an access list is to be set to, of an object that is there up to a change, or was lost.
fn acl_to_set(last: &LastAcl, is_there: bool, on_disk: u64) -> Option<&[u8]> {
    let (lsn, acl) = last.as_ref()?;
    if is_there && *lsn <= on_disk { None } else { acl.as_deref() }
}
