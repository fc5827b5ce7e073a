//! One object that cannot be replayed keeps no other from it.
//!
//! A local process may have made it immutable, mounted something on its name, or run it as a program. What
//! is missing of it is told, and its records are kept; the rest of its file system is replayed and served.
//! Where the disk is at fault (full, read-only, broken) all of it waits.

use steadfast_vfs::FsError;

use super::Replay;
use super::history::OwnedPlace;
use crate::ObjectKey;

/// An object of which something could not be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReplayed {
    /// The object.
    pub object: ObjectKey,
    /// The directory and the name that it has, or should have, if one is known.
    pub place: Option<(ObjectKey, Vec<u8>)>,
    /// Why.
    pub why: FsError,
}

/// Whether an error is of one object, and not of the disk or the server.
pub(super) fn is_own(error: FsError) -> bool {
    match error {
        FsError::Io
        | FsError::NoDevice
        | FsError::NoSpace
        | FsError::QuotaExceeded
        | FsError::ReadOnly
        | FsError::TryLater
        | FsError::WouldBlock
        | FsError::WouldOpen => false,
        FsError::NotPermitted
        | FsError::NotFound
        | FsError::AccessDenied
        | FsError::Exists
        | FsError::CrossDevice
        | FsError::NotDirectory
        | FsError::IsDirectory
        | FsError::Invalid
        | FsError::FileTooLarge
        | FsError::TooManyLinks
        | FsError::NameTooLong
        | FsError::NotEmpty
        | FsError::Stale
        | FsError::BadHandle
        | FsError::NotSync
        | FsError::BadCookie
        | FsError::NotSupported
        | FsError::TooSmall
        | FsError::BadType => true,
    }
}

impl Replay {
    /// Notes that something of an object could not be replayed.
    ///
    /// # Errors
    /// The error, if it is none of the object's own.
    pub(super) fn note_own(
        &mut self,
        object: ObjectKey,
        place: Option<&OwnedPlace>,
        why: FsError,
    ) -> Result<(), FsError> {
        if !is_own(why) {
            return Err(why);
        }
        if self.failed.insert(object) {
            let place = place.or_else(|| self.index.wanting(&object).first());
            let place = place.map(|place| (place.dir, place.name.clone()));
            self.report.not_replayed.push(NotReplayed { object, place, why });
        }
        Ok(())
    }
}
