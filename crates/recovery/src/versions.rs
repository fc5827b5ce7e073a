//! Data that something else than the log's operations has changed: both versions are kept.
//!
//! What a change leaves on the disk tells whose it was: its ctime and mtime are in a record, or it is one
//! of which the log does not know. The latter was made by a local process, for certain if a time mark
//! follows its ctime, or if it came after the machine was started: then it is newer than the operations
//! before it, which are not written over it. What they would have made of the file is kept beside it.
//! Otherwise it may be an operation that was under way at the crash, or part of a long one that is not in the
//! log, or a change of attributes alone, which leaves the mtime as it was: then the file becomes what was acknowledged, and what was found is kept
//! beside it.
//!
//! If both have the same data nothing is kept.

use steadfast_vfs::{Attr, FileKind, FsError};

use super::history::{Object, OwnedPlace};
use super::{ASIDE_PREFIX, Conflict, ConflictKind, Replay};
use crate::{Action, Change, KeptFile, ObjectKey, Recoverable};

/// A file that was changed by others than the log's operations.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// By a local process, for certain.
    is_local: bool,
    /// The last operation that came before it.
    up_to: u64,
    kept: Option<(KeptFile, Vec<u8>)>,
}

impl Version {
    fn kind(&self) -> ConflictKind {
        if self.is_local { ConflictKind::AcknowledgedKept } else { ConflictKind::FoundKept }
    }
}

impl Replay {
    /// Whether a file's data was changed by something of which the log does not know.
    fn changed_by_others(&self, object: &ObjectKey, known: &Object) -> Option<Version> {
        let before = self.before(object)?;
        let ctime = before.ctime;
        if before.kind != FileKind::Regular {
            return None;
        }
        let between = known.before_foreign(ctime).map(|up_to| (true, up_to));
        let told = self.changed_last_by_others(before, known).or(between);
        let untold = self.may_be_changed_by_others(before, known).map(|up_to| (false, up_to));
        let (is_local, up_to) = match (told, untold) {
            // What is written after the former would be lost to operations before the latter.
            (Some((_, told)), Some((_, later))) if later > told => untold,
            _ => told.or(untold),
        }?;
        let last = if is_local { up_to } else { u64::MAX };
        let counts = self.history.data_of(object, known).any(|lsn| lsn <= last);
        counts.then_some(Version { is_local, up_to, kept: None })
    }

    /// The same, of the last change that is on the disk: whether it was a local process's for certain, and
    /// the last operation before it.
    pub(super) fn changed_last_by_others(
        &self,
        before: &Attr,
        known: &Object,
    ) -> Option<(bool, u64)> {
        let (ctime, mtime) = (before.ctime, before.mtime);
        if known.had(ctime) {
            return None;
        }
        let is_after_start = self.trusted_start().is_some_and(|began| ctime >= began);
        let up_to = if self.names_follow_ctimes || !self.may_be_of_later(ctime) {
            known.on_disk(ctime)
        } else {
            // The ctime may be that of mounting.
            known.on_disk(mtime)
        };
        let is_explained = if self.names_follow_ctimes {
            known.had_mtime(mtime, Some(up_to))
        } else {
            known.had_mtime(mtime, None) || known.looks.first.is_none_or(|first| mtime < first)
        };
        if up_to == 0 || is_explained || known.may_be_of_a_step(ctime) {
            return None;
        }
        let is_old = self.history.moment.is_some_and(|mark| ctime < mark);
        let is_local = (is_after_start || is_old) && !known.may_be_of_unlogged(ctime);
        Some((is_local, up_to))
    }

    /// The last operation before something else's change of which nothing tells whether it was one of data:
    /// who writes may set the mtime back.
    fn may_be_changed_by_others(&self, before: &Attr, known: &Object) -> Option<u64> {
        let ctime = before.ctime;
        let is_known = self.names_follow_ctimes || known.had(ctime);
        let may_be_of_mounting = !is_known && self.may_be_of_later(ctime);
        if may_be_of_mounting {
            return None;
        }
        let is_later = self.trusted_start().is_some_and(|began| ctime >= began);
        let is_certain = is_later || self.history.moment.is_some_and(|mark| ctime < mark);
        let is_ours = known.has_untold_ctimes || known.had(ctime) || known.may_be_of_a_step(ctime);
        let is_last = is_certain && !is_ours;
        let last = is_last.then(|| known.on_disk(ctime)).filter(|lsn| *lsn > 0);
        last.max(known.before_foreign_of_any(ctime))
    }

    /// Keeps what is needed of files that others have changed, before anything is written to them.
    pub(super) fn keep_versions(&mut self, storage: &mut dyn Recoverable) -> Result<(), FsError> {
        if self.is_all_in_effect {
            return Ok(());
        }
        let objects = self.history.objects.iter();
        let changed = objects.filter(|(object, _)| !self.kept_removed.contains(*object));
        let changed = changed.filter_map(|(object, known)| {
            self.changed_by_others(object, known).map(|version| (*object, version))
        });
        let mut changed: Vec<(ObjectKey, Version)> = changed.collect();
        changed.sort_by_key(|(object, _)| *object);
        for (object, mut version) in changed {
            let name = kept_name(&object, version.is_local);
            let dir = self.index.wanting(&object).first().map(|place| place.dir);
            match storage.keep(&object, dir.as_ref(), &name, version.is_local) {
                Ok(kept) => version.kept = Some((kept, name)),
                // Gone meanwhile, or not to be had: told all the same.
                Err(FsError::Stale) => continue,
                Err(FsError::NotSupported) => {}
                Err(error) => {
                    // It must not be written over.
                    self.note_own(object, None, error)?;
                    continue;
                }
            }
            self.versions.insert(object, version);
        }
        Ok(())
    }

    /// Does a change of data to a file, or to what is kept beside it, as it belongs.
    pub(super) fn write_version(
        &mut self,
        storage: &mut dyn Recoverable,
        lsn: u64,
        object: &ObjectKey,
        change: &Change<'_>,
    ) -> Result<(), FsError> {
        let Some(version) = self.versions.get(object) else {
            return apply(storage, object, change);
        };
        let kept = version.kept.as_ref().map(|(kept, _)| *kept);
        if version.is_local {
            if let Some(kept) = kept {
                apply(storage, &kept.object, change)?;
            }
            return if lsn > version.up_to { apply(storage, object, change) } else { Ok(()) };
        }
        if let Some(kept) = kept.filter(|kept| !kept.is_whole) {
            let (offset, bytes) = match &change.action {
                Action::Write { offset, data, gap, .. } => {
                    let from = gap.unwrap_or(*offset);
                    (from, offset.saturating_add(data.len() as u64).saturating_sub(from))
                }
                Action::Attributes { size: Some(size), gap, .. } => {
                    let from = gap.unwrap_or(*size).min(*size);
                    (from, u64::MAX - from)
                }
                _ => (0, 0),
            };
            storage.keep_part(object, &kept.object, offset, bytes)?;
        }
        apply(storage, object, change)
    }

    /// Begins anew with a file that was made by a change of which no data is on the disk for certain, or
    /// with what is kept beside it, as it belongs: as long as it was made.
    pub(super) fn make_version(
        &self,
        storage: &mut dyn Recoverable,
        object: &ObjectKey,
        size: u64,
    ) -> Result<(), FsError> {
        let Some(version) = self.versions.get(object) else { return Ok(()) };
        let kept = version.kept.as_ref().map(|(kept, _)| *kept);
        let anew = match kept {
            Some(kept) if version.is_local => kept.object,
            None if version.is_local => return Ok(()),
            Some(kept) if !kept.is_whole => {
                storage.keep_part(object, &kept.object, 0, u64::MAX)?;
                *object
            }
            Some(_) => *object,
            // What was found would be nowhere.
            None => return Ok(()),
        };
        storage.truncate(&anew, 0)?;
        storage.truncate(&anew, size)
    }

    /// Tells which files have two versions now, and removes what is kept of others.
    pub(super) fn tell_versions(&mut self, storage: &mut dyn Recoverable) -> Result<(), FsError> {
        let mut versions: Vec<_> = std::mem::take(&mut self.versions).into_iter().collect();
        versions.sort_by_key(|(object, _)| *object);
        for (object, version) in versions {
            let Some((kept, name)) = &version.kept else {
                self.conflict_of(storage, object, version.kind());
                continue;
            };
            let at = OwnedPlace { dir: kept.dir, name: name.clone() };
            let is_of_no_use = match storage.look(&object)? {
                // What removed it came later.
                None => true,
                Some(_) => storage.has_same_data(&object, kept)?,
            };
            if is_of_no_use {
                match storage.remove(&at.borrowed(), false) {
                    Ok(()) | Err(FsError::NotFound | FsError::Stale) => {}
                    Err(error) => self.note_own(kept.object, Some(&at), error)?,
                }
                continue;
            }
            // Without a known name of the file, that of what is kept of it.
            let (place, kept_of) = match self.name_of(storage, &object) {
                Some(place) => (place, None),
                None => (at, Some(object)),
            };
            let OwnedPlace { dir, name } = place;
            self.report.conflicts.push(Conflict { dir, name, kept_of, kind: version.kind() });
        }
        Ok(())
    }
}

/// Does a change of data to a file.
fn apply(
    storage: &mut dyn Recoverable,
    to: &ObjectKey,
    change: &Change<'_>,
) -> Result<(), FsError> {
    match &change.action {
        Action::Write { offset, data, gap, .. } => gap
            .map_or(Ok(()), |gap| storage.zero(to, gap, *offset))
            .and_then(|()| storage.write(to, *offset, data)),
        Action::Attributes { size: Some(size), gap, .. } => storage
            .truncate(to, *size)
            .and_then(|()| gap.map_or(Ok(()), |gap| storage.zero(to, gap, *size))),
        _ => Ok(()),
    }
}

/// The name of what is kept. It tells what it is, for people, and is the same in every attempt.
pub(super) fn kept_name(object: &ObjectKey, is_local: bool) -> Vec<u8> {
    let mut name = ASIDE_PREFIX.to_vec();
    name.extend_from_slice(if is_local { b"acknowledged-" } else { b"found-" });
    for byte in object.0.as_bytes() {
        name.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
    name
}
