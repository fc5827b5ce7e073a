//! What became of calls that were not recorded when the process was killed.
//!
//! A call that changes names, or attributes with a guard, writes a mark just before it does
//! ([`crate::BegunCall`]), under the locks of the directories: from the mark until the change is
//! done, or until the kill, no other call changes these names. So the names tell what became of it:
//!
//! | the mark | it was done if |
//! |---|---|
//! | CREATE, MKDIR, SYMLINK, MKNOD | the name has an object of its kind and owner, born after the mark, with all attributes that were asked for |
//! | LINK | the name has the object, which was changed after the mark |
//! | REMOVE, RMDIR | the name has not the object that it had |
//! | RENAME | the new name has the object, the old one has not |
//! | SETATTR with a guard | the object has another ctime than before, and what was asked for |
//!
//! A new object that lacks attributes is one whose making was cut short. It is removed, if it is not an
//! ordinary file (these get their names when they are whole); its call is then executed again.
//!
//! Calls that take a name write a mark only if nothing has the name. So the table could do without times;
//! they tell what a local process has put there since.

use steadfast_vfs::{Attr, FileKind, FsError, StorageHandle, Time};

use crate::{Action, BegunCall, BeingMade, Place, Recoverable};

/// Times of files are at most so much older than the clock (a tick of 10 ms is the longest that Linux
/// has).
const TICK_NS: i128 = 10_000_000;
/// Permission bits with set-user-id, set-group-id and sticky.
const MODE_BITS: u32 = 0o7777;

fn nanoseconds(time: &Time) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}

/// What a call has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BegunOutcome {
    /// It made an object, which clients see so.
    Made {
        /// Its handle.
        handle: StorageHandle,
        /// Its attributes as they are now.
        attr: Attr,
    },
    /// Any other change.
    Changed,
}

/// What a call has done; `None` if it was not done, or that cannot be told. An object whose making was cut
/// short is removed. What is found has yet to be made stable.
///
/// # Errors
/// The storage's.
pub fn outcome_of(
    storage: &mut dyn Recoverable,
    call: &BegunCall<'_>,
) -> Result<Option<BegunOutcome>, FsError> {
    let is_changed = match (call.action, &call.made) {
        (Action::Make { place, target, .. }, Some(made)) => {
            return made_object(storage, call, &place, made, target);
        }
        (Action::Link { place, object }, None) => {
            storage.bound(&place)?.is_some_and(|(bound, _)| bound == object)
                && storage.look(&object)?.is_some_and(|attr| is_after(&attr.ctime, &call.at))
        }
        (Action::Remove { place, unlinked }, None) => {
            storage.bound(&place)?.is_none_or(|(bound, _)| bound != unlinked.object)
        }
        (Action::Rename { from, to, object, .. }, None) => {
            storage.bound(&to)?.is_some_and(|(bound, _)| bound == object)
                && storage.bound(&from)?.is_none_or(|(bound, _)| bound != object)
        }
        (Action::Touched { object, ctime, .. }, Some(made)) => {
            let asked = &made.asked;
            storage.look(&object)?.is_some_and(|attr| {
                let has_mode =
                    asked.mode.is_none_or(|mode| mode & MODE_BITS == attr.mode & MODE_BITS);
                attr.ctime != ctime && has_mode && asked.are_of(&attr)
            })
        }
        _ => false,
    };
    Ok(is_changed.then_some(BegunOutcome::Changed))
}

/// Whether a file got a time by what came after a moment.
fn is_after(time: &Time, moment: &Time) -> bool {
    nanoseconds(time) >= nanoseconds(moment) - TICK_NS
}

/// The object that a call made, as clients see it.
fn made_object(
    storage: &mut dyn Recoverable,
    call: &BegunCall<'_>,
    place: &Place<'_>,
    made: &BeingMade,
    target: &[u8],
) -> Result<Option<BegunOutcome>, FsError> {
    let Some((object, kind)) = storage.bound(place)? else { return Ok(None) };
    let Some(attr) = storage.look(&object)? else { return Ok(None) };
    let born = storage.born(&object)?.unwrap_or(attr.ctime);
    let is_of_owner = attr.uid == made.uid || Some(attr.uid) == made.asked.uid;
    if kind != made.kind || !is_of_owner || !is_after(&born, &call.at) {
        return Ok(None);
    }
    if kind == FileKind::Symlink && attr.size != target.len() as u64 {
        return Ok(None);
    }
    if !made.asked.are_of(&attr) {
        if kind != FileKind::Regular {
            match storage.remove(place, kind == FileKind::Directory) {
                // Others have used it since.
                Err(FsError::NotEmpty | FsError::NotFound) => {}
                removed => removed?,
            }
        }
        return Ok(None);
    }
    let handle = storage.handle(&call.dir, &object);
    Ok(Some(BegunOutcome::Made { handle, attr: Attr { fsid: call.fsid, ..attr } }))
}
