//! What becomes of attributes that were being set when the process was killed.
//!
//! The machine went on, so what was done of it is there, and nobody was told of it. What can be undone
//! is undone before replay. Data that was cut off cannot be brought back, and replay, which knows nothing
//! of the cut, writes what the file had before: it is cut once more afterwards, and what else was to be
//! set with it is set.

use steadfast_vfs::{Attr, AttributesUnderWay, FsError, Recoverable};

/// A step that began before the process was killed has a ctime no later than this after the first one
/// began.
const STEPS_TAKE_S_MAX: i64 = 10;
/// Mode bits that a change of owner takes away, the second of them not always.
const SET_ID: u32 = 0o6000;
const SET_USER_ID: u32 = 0o4000;

/// Before replay: undoes what is there of it. Returns it if the file was cut: to be kept, should replay be
/// cut short itself, and to be [finished](finish_cut) when replay is done.
///
/// # Errors
/// The storage's.
pub fn undo(
    storage: &mut dyn Recoverable,
    under_way: AttributesUnderWay,
) -> Result<Option<AttributesUnderWay>, FsError> {
    if under_way.was_cut {
        return Ok(Some(under_way));
    }
    let AttributesUnderWay { object, before, size, .. } = under_way;
    let Some(now) = storage.look(&object)? else { return Ok(None) };
    if !is_of_it(&under_way, &now) {
        return Ok(None);
    }
    if under_way.cuts() && size == Some(now.size) {
        let wanted = if under_way.is_permitted { under_way.wanted } else { now };
        return Ok(Some(AttributesUnderWay { wanted, was_cut: true, ..under_way }));
    }
    if now.size != before.size {
        storage.truncate(&object, before.size)?;
    }
    storage.set_attributes(&object, &before)?;
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
    let finished =
        storage.truncate(object, *size).and_then(|()| storage.set_attributes(object, wanted));
    match finished {
        // Replay has removed it.
        Err(FsError::Stale) => Ok(()),
        finished => finished,
    }
}

/// Whether an object is as one of the steps may have left it; a local process may have changed it since.
fn is_of_it(under_way: &AttributesUnderWay, now: &Attr) -> bool {
    let AttributesUnderWay { before, wanted, size, begun, .. } = under_way;
    let latest = begun.seconds.saturating_add(STEPS_TAKE_S_MAX);
    let modes = [before.mode, before.mode & !SET_ID, before.mode & !SET_USER_ID, wanted.mode];
    let seen = |attr: &Attr| (attr.uid, attr.gid, attr.mode, attr.size, attr.mtime);
    seen(now) != seen(before)
        && now.ctime >= before.ctime
        && now.ctime.seconds <= latest
        && (now.size == before.size || Some(now.size) == *size)
        && (now.uid == before.uid || now.uid == wanted.uid)
        && (now.gid == before.gid || now.gid == wanted.gid)
        && modes.contains(&now.mode)
}
