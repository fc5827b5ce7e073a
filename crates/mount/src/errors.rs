//! What a failed call means to a program: in one place.

use steadfast_client::{ClientError, NfsStat3};

/// An error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const EINTR: Self = Self(4);
    pub(crate) const EIO: Self = Self(5);
    pub(crate) const EBADF: Self = Self(9);
    pub(crate) const EAGAIN: Self = Self(11);
    pub(crate) const EACCES: Self = Self(13);
    pub(crate) const EINVAL: Self = Self(22);
    pub(crate) const EROFS: Self = Self(30);
    pub(crate) const EDEADLK: Self = Self(35);
    pub(crate) const ENAMETOOLONG: Self = Self(36);
    pub(crate) const ENOLCK: Self = Self(37);
    pub(crate) const ENOTEMPTY: Self = Self(39);
    pub(crate) const EREMOTE: Self = Self(66);
    pub(crate) const EOVERFLOW: Self = Self(75);
    pub(crate) const EOPNOTSUPP: Self = Self(95);
    pub(crate) const ESTALE: Self = Self(116);
    pub(crate) const EREMOTEIO: Self = Self(121);
    pub(crate) const EDQUOT: Self = Self(122);
}

impl From<Errno> for fuser::Errno {
    fn from(errno: Errno) -> Self {
        Self::from_i32(errno.0)
    }
}

impl From<ClientError> for Errno {
    fn from(error: ClientError) -> Self {
        Self::from(&error)
    }
}

impl From<&ClientError> for Errno {
    fn from(error: &ClientError) -> Self {
        match error {
            ClientError::Failed(failure) => of_status(failure.status),
            ClientError::Io(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                Self::EINTR
            }
            ClientError::TimedOut { .. } | ClientError::Closed => Self::EIO,
            ClientError::Denied(_) => Self::EACCES,
            error => {
                tracing::warn!(%error, "a call failed");
                Self::EIO
            }
        }
    }
}

/// The numbers of NFS are Linux' up to 31 (RFC 1813 §2.6).
fn of_status(status: NfsStat3) -> Errno {
    match status {
        NfsStat3::NameTooLong => Errno::ENAMETOOLONG,
        NfsStat3::NotEmpty => Errno::ENOTEMPTY,
        NfsStat3::DQuot => Errno::EDQUOT,
        NfsStat3::Stale | NfsStat3::BadHandle => Errno::ESTALE,
        NfsStat3::Remote => Errno::EREMOTE,
        NfsStat3::NotSupp => Errno::EOPNOTSUPP,
        NfsStat3::ServerFault => Errno::EREMOTEIO,
        NfsStat3::Jukebox => Errno::EAGAIN,
        NfsStat3::NotSync | NfsStat3::BadCookie | NfsStat3::TooSmall | NfsStat3::BadType => {
            Errno::EINVAL
        }
        other => Errno(other as i32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_numbers_of_linux() {
        assert_eq!(of_status(NfsStat3::NoEnt), Errno(2));
        assert_eq!(of_status(NfsStat3::NoSpc), Errno(28));
        assert_eq!(of_status(NfsStat3::RoFs), Errno(30));
        assert_eq!(of_status(NfsStat3::NotEmpty), Errno(39));
        assert_eq!(of_status(NfsStat3::Stale), Errno(116));
    }
}
