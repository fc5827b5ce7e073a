//! The one place where NFSv2's status codes are made (RFC 1094 §2.3.1), and so the rows of its
//! operations, which know how a failure is told.

use steadfast_vfs::FsError;
use steadfast_wire::nfs2::NfsStat2;

use crate::operation::Operation;

/// Stands for "later" inside the server. It is none of the protocol's: a result that begins with it
/// is not sent ([`crate::operation::Failure::is_silent_for_now`]).
const LATER: u32 = 10_008;

/// An operation that changes nothing.
pub(super) const fn reads(name: &'static str) -> Operation {
    Operation::reads(name, number, 0).silent_for_now()
}

/// An operation that changes something.
pub(super) const fn changes(name: &'static str) -> Operation {
    Operation::changes(name, number, 0).silent_for_now()
}

/// What a result that tells of an error begins with.
pub(super) fn number(error: FsError) -> u32 {
    status(error).map_or(LATER, |status| status as u32)
}

/// The status that tells a client of an error; `None` if it is to be told nothing, and to send the
/// call again.
///
/// What the protocol has no number for is `NFSERR_IO`, which its clients know how to report.
fn status(error: FsError) -> Option<NfsStat2> {
    Some(match error {
        FsError::NotPermitted => NfsStat2::Perm,
        FsError::NotFound => NfsStat2::NoEnt,
        FsError::NoDevice => NfsStat2::NxIo,
        FsError::AccessDenied => NfsStat2::Acces,
        FsError::Exists => NfsStat2::Exist,
        FsError::NotDirectory => NfsStat2::NotDir,
        FsError::IsDirectory => NfsStat2::IsDir,
        FsError::FileTooLarge => NfsStat2::FBig,
        FsError::NoSpace => NfsStat2::NoSpc,
        FsError::ReadOnly => NfsStat2::RoFs,
        FsError::NameTooLong => NfsStat2::NameTooLong,
        FsError::NotEmpty => NfsStat2::NotEmpty,
        FsError::QuotaExceeded => NfsStat2::DQuot,
        FsError::Stale | FsError::BadHandle => NfsStat2::Stale,
        FsError::Io
        | FsError::CrossDevice
        | FsError::Invalid
        | FsError::TooManyLinks
        | FsError::NotSync
        | FsError::BadCookie
        | FsError::NotSupported
        | FsError::TooSmall
        | FsError::BadType => NfsStat2::Io,
        FsError::TryLater | FsError::WouldBlock | FsError::WouldOpen => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_status_of_the_protocol_stays_inside() {
        assert!(NfsStat2::ALL.iter().all(|status| *status as u32 != LATER));
        let operation = changes("X");
        for (error, is_told) in
            [(FsError::TryLater, false), (FsError::WouldBlock, false), (FsError::Invalid, true)]
        {
            let mut result = Vec::new();
            operation.fail(&mut steadfast_xdr::Writer::new(&mut result), error);
            assert_eq!(operation.stays_silent(&result), !is_told);
        }
    }
}
