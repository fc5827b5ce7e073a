//! What becomes of attributes that were being set when the process was killed.
//!
//! The machine went on, so what was done is there; if it is not in the log, nobody was told of it. What
//! can be undone is undone before replay. Data that was cut off cannot be brought back, and replay, which
//! knows nothing of the cut, writes what the file had before: it is cut once more afterwards.

use steadfast_vfs::{Attr, FsError};

use crate::{AclsToSet, AttributesUnderWay, Recoverable};

/// Mode bits that a change of owner takes away, the second of them not always.
const SET_ID: u32 = 0o6000;
const SET_USER_ID: u32 = 0o4000;

/// Before replay: undoes what is there of a change that the log does not have; of several to one object,
/// the last comes first. Returns it if the file was cut: to be kept, should replay be cut short itself, and
/// to be [finished](finish_cut) when replay is done. `is_done`: whether no step of it is missing.
///
/// # Errors
/// The storage's.
pub fn undo(
    storage: &mut dyn Recoverable,
    under_way: AttributesUnderWay,
    is_done: bool,
) -> Result<Option<AttributesUnderWay>, FsError> {
    if under_way.was_cut {
        return Ok(Some(under_way));
    }
    let AttributesUnderWay { object, before, .. } = under_way;
    let Some(now) = storage.look(&object)? else { return Ok(None) };
    if under_way.cuts() && (is_done || under_way.size == Some(now.size)) {
        let is_to_go_on = !is_done && under_way.is_permitted;
        let wanted = if is_to_go_on { under_way.wanted } else { now };
        // What came after it may have made the file longer again.
        let size = Some(now.size);
        return Ok(Some(AttributesUnderWay { wanted, size, was_cut: true, ..under_way }));
    }
    if !is_of_it(&under_way, &now) {
        return Ok(None);
    }
    if now.size != before.size {
        storage.truncate(&object, before.size)?;
    }
    storage.set_attributes(&object, &before, &AclsToSet::default())?;
    Ok(None)
}

/// After replay.
///
/// # Errors
/// The storage's.
pub fn finish_cut(
    storage: &mut dyn Recoverable,
    under_way: &AttributesUnderWay,
) -> Result<(), FsError> {
    let AttributesUnderWay { object, wanted, size: Some(size), .. } = under_way else {
        return Ok(());
    };
    let finished = storage
        .truncate(object, *size)
        .and_then(|()| storage.set_attributes(object, wanted, &AclsToSet::default()));
    match finished {
        // Replay has removed it.
        Err(FsError::Stale) => Ok(()),
        finished => finished,
    }
}

/// Whether an object is as steps have left it, of this change or of undoing it; somebody else may have
/// changed it since.
fn is_of_it(under_way: &AttributesUnderWay, now: &Attr) -> bool {
    let AttributesUnderWay { before, wanted, size, .. } = under_way;
    let stripped = |mode: u32| [mode, mode & !SET_ID, mode & !SET_USER_ID];
    let seen = |attr: &Attr| (attr.uid, attr.gid, attr.mode, attr.size, attr.mtime);
    seen(now) != seen(before)
        && now.ctime >= before.ctime
        && (now.size == before.size || Some(now.size) == *size)
        && (now.uid == before.uid || now.uid == wanted.uid)
        && (now.gid == before.gid || now.gid == wanted.gid)
        && (stripped(before.mode).contains(&now.mode) || stripped(wanted.mode).contains(&now.mode))
}
