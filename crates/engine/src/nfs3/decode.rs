//! How NFSv3 arguments become the storage's words.

use steadfast_vfs::{FsError, SetAttr, SetTime, Time};
use steadfast_wire::nfs3::{NfsTime3, Sattr3, SetTime3};

const NANOSECONDS_MAX: u32 = 999_999_999;

/// A guard's time. One that no object can have is no object's.
pub(crate) fn time(time: NfsTime3) -> Time {
    Time { seconds: i64::from(time.seconds), nanoseconds: time.nseconds }
}

fn set_time(how: &SetTime3) -> Result<SetTime, FsError> {
    match how {
        SetTime3::DontChange => Ok(SetTime::Keep),
        SetTime3::SetToServerTime => Ok(SetTime::ServerTime),
        SetTime3::SetToClientTime(to) if to.nseconds <= NANOSECONDS_MAX => {
            Ok(SetTime::To(time(*to)))
        }
        SetTime3::SetToClientTime(_) => Err(FsError::Invalid),
    }
}

/// What SETATTR is to set. What cannot be is refused before anything is.
///
/// # Errors
/// `Invalid` for a time that is none, and for the number -1, which is nobody's.
pub(crate) fn set_attr(attributes: &Sattr3) -> Result<SetAttr, FsError> {
    if attributes.uid == Some(u32::MAX) || attributes.gid == Some(u32::MAX) {
        return Err(FsError::Invalid);
    }
    initial(attributes)
}

/// What a new object is to have. Whose it is to be is for the storage to look at: what the caller
/// may not give is not given.
///
/// # Errors
/// `Invalid` for a time that is none.
pub(crate) fn initial(attributes: &Sattr3) -> Result<SetAttr, FsError> {
    Ok(SetAttr {
        mode: attributes.mode.map(|mode| mode & 0o7777),
        umask: 0,
        uid: attributes.uid,
        gid: attributes.gid,
        size: attributes.size,
        atime: set_time(&attributes.atime)?,
        mtime: set_time(&attributes.mtime)?,
    })
}

/// As [`initial`], for what has no size of its own: a size other than 0 is refused.
///
/// # Errors
/// `Invalid` for that too.
pub(crate) fn initial_without_size(attributes: &Sattr3) -> Result<SetAttr, FsError> {
    match attributes.size {
        None | Some(0) => Ok(SetAttr { size: None, ..initial(attributes)? }),
        Some(_) => Err(FsError::Invalid),
    }
}
