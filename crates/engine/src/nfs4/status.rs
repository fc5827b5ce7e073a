//! The one place where NFSv4's status codes are made (RFC 8881 §15).

use steadfast_state::StateError;
use steadfast_vfs::FsError;
use steadfast_wire::nfs4::{NfsStat4, Op4};

/// The highest status that minor version 0 has.
const LAST_OF_MINOR_0: u32 = NfsStat4::CbPathDown as u32;

/// The status that tells a client of an error of the storage, as a number.
pub(crate) fn number(error: FsError) -> u32 {
    status(error) as u32
}

/// The status that tells a client of an error of the storage.
pub(crate) fn status(error: FsError) -> NfsStat4 {
    match error {
        FsError::NotPermitted => NfsStat4::Perm,
        FsError::NotFound => NfsStat4::NoEnt,
        FsError::Io => NfsStat4::Io,
        FsError::NoDevice => NfsStat4::NxIo,
        FsError::AccessDenied => NfsStat4::Access,
        FsError::Exists => NfsStat4::Exist,
        FsError::CrossDevice => NfsStat4::XDev,
        FsError::NotDirectory => NfsStat4::NotDir,
        FsError::IsDirectory => NfsStat4::IsDir,
        // NFSv4 has no guard of a time.
        FsError::Invalid | FsError::NotSync => NfsStat4::Inval,
        FsError::FileTooLarge => NfsStat4::FBig,
        FsError::NoSpace => NfsStat4::NoSpc,
        FsError::ReadOnly => NfsStat4::RoFs,
        FsError::TooManyLinks => NfsStat4::MLink,
        FsError::NameTooLong => NfsStat4::NameTooLong,
        FsError::NotEmpty => NfsStat4::NotEmpty,
        FsError::QuotaExceeded => NfsStat4::DQuot,
        FsError::Stale => NfsStat4::Stale,
        FsError::BadHandle => NfsStat4::BadHandle,
        FsError::BadCookie => NfsStat4::BadCookie,
        FsError::NotSupported => NfsStat4::NotSupp,
        FsError::TooSmall => NfsStat4::TooSmall,
        FsError::BadType => NfsStat4::BadType,
        // Resources are short, or (never meant to get here) an operation that was told not to
        // wait was not asked again: the client tries later.
        FsError::TryLater | FsError::WouldBlock | FsError::WouldOpen => NfsStat4::Delay,
    }
}

/// What minor version 0 says for a status that came later (RFC 7530 §13).
pub(crate) fn of_minor_0(status: NfsStat4) -> NfsStat4 {
    match status {
        NfsStat4::WrongType => NfsStat4::Inval,
        NfsStat4::RepTooBig
        | NfsStat4::RepTooBigToCache
        | NfsStat4::ReqTooBig
        | NfsStat4::TooManyOps => NfsStat4::Resource,
        status if status as u32 > LAST_OF_MINOR_0 => NfsStat4::ServerFault,
        status => status,
    }
}

/// What minor version 0 says of one operation: some may not tell of a symbolic link (RFC 7530 §13.2).
/// OPEN says so of whatever is neither a file nor a directory (§16.16.5).
pub(crate) fn of_minor_0_by(op: Op4, status: NfsStat4) -> NfsStat4 {
    if op == Op4::Open && status == NfsStat4::WrongType {
        return NfsStat4::SymLink;
    }
    match (op, of_minor_0(status)) {
        (Op4::Lock | Op4::LockT | Op4::Read | Op4::Write, NfsStat4::SymLink) => NfsStat4::Inval,
        (Op4::LookupP | Op4::SecInfo, NfsStat4::SymLink) => NfsStat4::NotDir,
        (_, status) => status,
    }
}

/// What one operation says from minor version 1 on: some may not tell what kind of object they met (RFC 8881 §15.2).
pub(crate) fn of_later_by(op: Op4, status: NfsStat4) -> NfsStat4 {
    match (op, status) {
        (Op4::SetAttr, NfsStat4::IsDir) => NfsStat4::WrongType,
        (Op4::SecInfo | Op4::SecInfoNoName, NfsStat4::SymLink) => NfsStat4::NotDir,
        (_, status) => status,
    }
}

/// Lets operations end with the storage's errors.
pub(crate) trait OrStatus<T> {
    /// The same, its error a status.
    fn or_status(self) -> Result<T, NfsStat4>;
}

impl<T> OrStatus<T> for Result<T, FsError> {
    fn or_status(self) -> Result<T, NfsStat4> {
        self.map_err(status)
    }
}

impl<T> OrStatus<T> for Result<T, StateError> {
    fn or_status(self) -> Result<T, NfsStat4> {
        self.map_err(status_of_state)
    }
}

/// The status that tells a client of an error of its state.
pub(super) fn status_of_state(error: StateError) -> NfsStat4 {
    match error {
        StateError::ClientInUse => NfsStat4::ClIdInUse,
        StateError::StaleClientId => NfsStat4::StaleClientId,
        StateError::NoEntry => NfsStat4::NoEnt,
        StateError::NotSame => NfsStat4::NotSame,
        StateError::NotPermitted => NfsStat4::Perm,
        StateError::SequenceMisordered => NfsStat4::SeqMisordered,
        StateError::FalseRetry => NfsStat4::SeqFalseRetry,
        StateError::BadSession => NfsStat4::BadSession,
        StateError::BadSlot => NfsStat4::BadSlot,
        StateError::BadHighSlot => NfsStat4::BadHighSlot,
        StateError::RequestTooBig => NfsStat4::ReqTooBig,
        StateError::TooManyOperations => NfsStat4::TooManyOps,
        StateError::TooSmall => NfsStat4::TooSmall,
        StateError::TryLater | StateError::Recalling => NfsStat4::Delay,
        StateError::ClientIdBusy => NfsStat4::ClientIdBusy,
        StateError::BadStateId => NfsStat4::BadStateId,
        StateError::OldStateId => NfsStat4::OldStateId,
        StateError::StaleStateId => NfsStat4::StaleStateId,
        StateError::BadSequence => NfsStat4::BadSeqId,
        StateError::OwnerBusy => NfsStat4::Resource,
        StateError::Expired => NfsStat4::Expired,
        StateError::Locked => NfsStat4::Locked,
        StateError::LocksHeld => NfsStat4::LocksHeld,
        StateError::ShareDenied => NfsStat4::ShareDenied,
        StateError::DelegationRevoked => NfsStat4::DelegRevoked,
        StateError::OpenMode => NfsStat4::OpenMode,
        StateError::CompleteAlready => NfsStat4::CompleteAlready,
        StateError::Grace => NfsStat4::Grace,
        StateError::NoGrace => NfsStat4::NoGrace,
        StateError::Invalid => NfsStat4::Inval,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minor_version_0_says_nothing_that_came_later() {
        for status in NfsStat4::ALL {
            for op in Op4::ALL {
                let told = of_minor_0_by(*op, *status);
                assert!(told as u32 <= LAST_OF_MINOR_0, "{op:?} {status:?}: {told:?}");
                assert_eq!(of_minor_0_by(*op, told), told, "said again it is the same");
            }
        }
        let rows = [
            (Op4::Open, NfsStat4::WrongType, NfsStat4::SymLink),
            (Op4::Write, NfsStat4::WrongType, NfsStat4::Inval),
            (Op4::Open, NfsStat4::SymLink, NfsStat4::SymLink),
            (Op4::Lookup, NfsStat4::SymLink, NfsStat4::SymLink),
            (Op4::SecInfo, NfsStat4::SymLink, NfsStat4::NotDir),
            (Op4::Lock, NfsStat4::SymLink, NfsStat4::Inval),
            (Op4::GetAttr, NfsStat4::RepTooBig, NfsStat4::Resource),
            (Op4::Close, NfsStat4::LocksHeld, NfsStat4::LocksHeld),
            (Op4::Open, NfsStat4::CompleteAlready, NfsStat4::ServerFault),
        ];
        for (op, status, told) in rows {
            assert_eq!(of_minor_0_by(op, status), told, "{op:?} {status:?}");
        }
    }
}
