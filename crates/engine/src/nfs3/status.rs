//! The one place where NFSv3's status codes are made (RFC 1813 §2.6), and so the rows of its
//! operations, which know how a failure is told.

use steadfast_vfs::FsError;
use steadfast_wire::nfs3::NfsStat3;

use crate::operation::Operation;

/// An operation that changes nothing; `failure_words` follow the status of a failure.
pub(crate) const fn reads(name: &'static str, failure_words: usize) -> Operation {
    Operation::reads(name, number, failure_words)
}

/// An operation that changes something.
pub(crate) const fn changes(name: &'static str, failure_words: usize) -> Operation {
    Operation::changes(name, number, failure_words)
}

fn number(error: FsError) -> u32 {
    status(error) as u32
}

/// The status that tells a client of an error.
pub(crate) fn status(error: FsError) -> NfsStat3 {
    match error {
        FsError::NotPermitted => NfsStat3::Perm,
        FsError::NotFound => NfsStat3::NoEnt,
        FsError::Io => NfsStat3::Io,
        FsError::NoDevice => NfsStat3::NxIo,
        FsError::AccessDenied => NfsStat3::Acces,
        FsError::Exists => NfsStat3::Exist,
        FsError::CrossDevice => NfsStat3::XDev,
        FsError::NotDirectory => NfsStat3::NotDir,
        FsError::IsDirectory => NfsStat3::IsDir,
        FsError::Invalid => NfsStat3::Inval,
        FsError::FileTooLarge => NfsStat3::FBig,
        FsError::NoSpace => NfsStat3::NoSpc,
        FsError::ReadOnly => NfsStat3::RoFs,
        FsError::TooManyLinks => NfsStat3::MLink,
        FsError::NameTooLong => NfsStat3::NameTooLong,
        FsError::NotEmpty => NfsStat3::NotEmpty,
        FsError::QuotaExceeded => NfsStat3::DQuot,
        FsError::Stale => NfsStat3::Stale,
        FsError::BadHandle => NfsStat3::BadHandle,
        FsError::NotSync => NfsStat3::NotSync,
        FsError::BadCookie => NfsStat3::BadCookie,
        FsError::NotSupported => NfsStat3::NotSupp,
        FsError::TooSmall => NfsStat3::TooSmall,
        FsError::BadType => NfsStat3::BadType,
        // Resources are short, or (never meant to get here) an operation that was told not to
        // wait was not asked again: the client tries later.
        FsError::TryLater | FsError::WouldBlock | FsError::WouldOpen => NfsStat3::Jukebox,
    }
}
