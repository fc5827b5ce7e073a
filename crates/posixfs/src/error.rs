//! From the kernel's error numbers to [`FsError`]: the only place.

use rustix::io::Errno;
use steadfast_vfs::FsError;

/// What an error number means to a caller. A number that is not known here becomes
/// [`FsError::Io`] and is logged.
pub(crate) fn from_errno(errno: Errno) -> FsError {
    match errno {
        Errno::PERM => FsError::NotPermitted,
        Errno::NOENT => FsError::NotFound,
        Errno::IO => FsError::Io,
        Errno::NXIO | Errno::NODEV => FsError::NoDevice,
        // ETXTBSY: a program that runs on the server cannot be written, and trying again for as
        // long as it runs would hang the client.
        Errno::ACCESS | Errno::TXTBSY => FsError::AccessDenied,
        Errno::EXIST => FsError::Exists,
        Errno::XDEV => FsError::CrossDevice,
        Errno::NOTDIR => FsError::NotDirectory,
        Errno::ISDIR => FsError::IsDirectory,
        // ELOOP: where the last name would have to be followed; nothing here follows links.
        Errno::INVAL | Errno::LOOP => FsError::Invalid,
        Errno::FBIG | Errno::OVERFLOW => FsError::FileTooLarge,
        Errno::NOSPC => FsError::NoSpace,
        Errno::ROFS => FsError::ReadOnly,
        Errno::MLINK => FsError::TooManyLinks,
        Errno::NAMETOOLONG => FsError::NameTooLong,
        Errno::NOTEMPTY => FsError::NotEmpty,
        Errno::DQUOT => FsError::QuotaExceeded,
        Errno::STALE => FsError::Stale,
        Errno::OPNOTSUPP | Errno::NOSYS => FsError::NotSupported,
        // A lease in use, or the server short of something: the client is to come again.
        Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::BUSY | Errno::INTR => {
            FsError::TryLater
        }
        other => {
            tracing::error!(
                errno = other.raw_os_error(),
                "error number without a meaning here: {other}"
            );
            FsError::Io
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_numbers_are_input_output_errors() {
        assert_eq!(from_errno(Errno::BADF), FsError::Io);
        assert_eq!(from_errno(Errno::NOSPC), FsError::NoSpace);
        assert_eq!(from_errno(Errno::DQUOT), FsError::QuotaExceeded);
    }
}
