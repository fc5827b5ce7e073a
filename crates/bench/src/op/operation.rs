//! Kinds of calls, as they are written on the command line.

use std::str::FromStr;

use steadfast_client::StableHow;

use crate::error::BenchError;
use crate::pattern;
use crate::version::NfsVersion;

/// Bytes of a READ or WRITE, unless told.
const SIZE_BYTES: u32 = 4096;
/// Bytes of a listing, unless told: holds all names of a directory that is listed.
const LISTING_BYTES: u32 = 30 << 10;
/// Least and most bytes of a listing: replies are kept whole.
const LISTING_BYTES_RANGE: std::ops::RangeInclusive<u32> = 1024..=30 << 10;

/// How kinds of calls are written.
pub const OPERATIONS_HELP: &str = "\
    null, getattr, setattr, lookup, access, readlink, read[:SIZE], write[:SIZE[:STABLE]], \
    write+commit[:SIZE], create, mkdir, symlink, mknod, link, remove, rmdir, rename, \
    readdir[:SIZE], readdirplus[:SIZE], fsstat, fsinfo, pathconf, commit, and over NFSv4 \
    open+close, lock+unlock. SIZE in bytes: 4096 \
    unless told, at most 4 MiB; of listings 30720 unless told, 1024 at least. STABLE: unstable \
    unless told, data_sync, file_sync";

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// NULL.
    Null,
    /// GETATTR of many files.
    Getattr,
    /// SETATTR of many files' modes.
    Setattr,
    /// LOOKUP of many names in one directory.
    Lookup,
    /// ACCESS of many files.
    Access,
    /// READLINK of many symbolic links.
    Readlink,
    /// READ at random offsets of files in the server's cache.
    Read {
        /// Bytes a call.
        size: u32,
    },
    /// WRITE over and over the same few MiB a file.
    Write {
        /// Bytes a call.
        size: u32,
        /// What the server must promise.
        stable: StableHow,
    },
    /// Unstable WRITE, then COMMIT of the same bytes: two calls.
    WriteCommit {
        /// Bytes a WRITE.
        size: u32,
    },
    /// CREATE (GUARDED) of new names, in one directory a connection.
    Create,
    /// MKDIR of new names, likewise.
    Mkdir,
    /// SYMLINK of new names, likewise.
    Symlink,
    /// MKNOD (a FIFO) of new names, likewise.
    Mknod,
    /// LINK of new names, likewise, to a few files.
    Link,
    /// REMOVE of names made before.
    Remove,
    /// RMDIR of directories made before.
    Rmdir,
    /// RENAME to a new name, of one file a call in flight.
    Rename,
    /// READDIR from the beginning of directories of 64 names.
    Readdir {
        /// Most bytes of a reply.
        size: u32,
    },
    /// READDIRPLUS, likewise.
    Readdirplus {
        /// Most bytes of a reply.
        size: u32,
    },
    /// FSSTAT.
    Fsstat,
    /// FSINFO.
    Fsinfo,
    /// PATHCONF of many files.
    Pathconf,
    /// COMMIT of many files that have nothing to be committed.
    Commit,
    /// OPEN of many files that are there, then CLOSE: two calls, of NFSv4 alone.
    OpenClose,
    /// LOCK of bytes that nobody else wants, then LOCKU: two calls, of NFSv4 alone.
    LockUnlock,
}

/// Those without a size, by name.
const PLAIN: [(&str, Operation); 20] = [
    ("null", Operation::Null),
    ("getattr", Operation::Getattr),
    ("setattr", Operation::Setattr),
    ("lookup", Operation::Lookup),
    ("access", Operation::Access),
    ("readlink", Operation::Readlink),
    ("create", Operation::Create),
    ("mkdir", Operation::Mkdir),
    ("symlink", Operation::Symlink),
    ("mknod", Operation::Mknod),
    ("link", Operation::Link),
    ("remove", Operation::Remove),
    ("rmdir", Operation::Rmdir),
    ("rename", Operation::Rename),
    ("fsstat", Operation::Fsstat),
    ("fsinfo", Operation::Fsinfo),
    ("pathconf", Operation::Pathconf),
    ("commit", Operation::Commit),
    ("open+close", Operation::OpenClose),
    ("lock+unlock", Operation::LockUnlock),
];

impl Operation {
    /// Its name, without size and stability.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::Write { .. } => "write",
            Self::WriteCommit { .. } => "write+commit",
            Self::Readdir { .. } => "readdir",
            Self::Readdirplus { .. } => "readdirplus",
            _ => PLAIN.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name),
        }
    }

    /// Names of the calls that it makes: one or two, one after the other.
    pub(super) fn kinds(self, nfs: NfsVersion) -> Vec<&'static str> {
        match self {
            Self::WriteCommit { .. } => vec!["write", "commit"],
            Self::OpenClose => vec!["open", "close"],
            Self::Create if nfs.is_4() => vec!["open", "close"],
            Self::LockUnlock => vec!["lock", "unlock"],
            _ => vec![self.name()],
        }
    }

    /// Whether it changes nothing, and opens and locks nothing that it closes or unlocks.
    pub(super) fn only_reads(self) -> bool {
        matches!(
            self,
            Self::Null
                | Self::Getattr
                | Self::Lookup
                | Self::Access
                | Self::Readlink
                | Self::Read { .. }
                | Self::Readdir { .. }
                | Self::Readdirplus { .. }
                | Self::Fsstat
                | Self::Fsinfo
                | Self::Pathconf
        )
    }

    /// Whether it lists a directory with attributes and handles.
    pub(super) fn is_plus(self) -> bool {
        matches!(self, Self::Readdirplus { .. })
    }

    /// Whether NFSv3 has no such calls.
    pub(super) fn is_of_4_alone(self) -> bool {
        matches!(self, Self::OpenClose | Self::LockUnlock)
    }

    /// Makes sure that it can be done over a version of NFS.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check(self, nfs: NfsVersion) -> Result<(), BenchError> {
        if nfs.is_4() || !self.is_of_4_alone() {
            return Ok(());
        }
        let name = self.name();
        Err(BenchError::Usage(format!("NFSv3 has no {name}: measure it with --nfs 4.1")))
    }

    /// Bytes of file data a call carries.
    pub fn payload_bytes(self) -> u32 {
        match self {
            Self::Read { size } | Self::Write { size, .. } | Self::WriteCommit { size } => size,
            _ => 0,
        }
    }

    /// Whether it makes new names.
    pub(super) fn makes_names(self) -> bool {
        matches!(self, Self::Create | Self::Mkdir | Self::Symlink | Self::Mknod | Self::Link)
    }

    /// Whether it takes names away.
    pub(super) fn removes_names(self) -> bool {
        matches!(self, Self::Remove | Self::Rmdir)
    }

    /// What it asks WRITE to promise, if it writes.
    pub(super) fn stability(self) -> Option<StableHow> {
        match self {
            Self::Write { stable, .. } => Some(stable),
            Self::WriteCommit { .. } => Some(StableHow::Unstable),
            _ => None,
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stability = |stable: &StableHow| match stable {
            StableHow::Unstable => "unstable",
            StableHow::DataSync => "data_sync",
            StableHow::FileSync => "file_sync",
        };
        let name = self.name();
        match self {
            Self::Write { size, stable } => write!(f, "{name}:{size}:{}", stability(stable)),
            Self::Read { size }
            | Self::WriteCommit { size }
            | Self::Readdir { size }
            | Self::Readdirplus { size } => write!(f, "{name}:{size}"),
            _ => f.write_str(name),
        }
    }
}

impl FromStr for Operation {
    type Err = BenchError;

    /// `read:4096`, `write:4096:file_sync`, `write+commit:4096`, `getattr`, …; sizes default to
    /// 4096 (of listings to 30720), stability to `unstable`.
    fn from_str(text: &str) -> Result<Self, BenchError> {
        let unknown = || BenchError::Unknown { asked: text.to_owned(), kinds: OPERATIONS_HELP };
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or("");
        let (size, stable) = (parts.next(), parts.next());
        if parts.next().is_some() || stable.is_some() && name != "write" {
            return Err(unknown());
        }
        if let Some((_, plain)) = PLAIN.iter().find(|(known, _)| *known == name) {
            return if size.is_none() { Ok(*plain) } else { Err(unknown()) };
        }
        let is_listing = name.starts_with("readdir");
        let size = match size {
            Some(size) => size.parse().map_err(|_| unknown())?,
            None if is_listing => LISTING_BYTES,
            None => SIZE_BYTES,
        };
        let is_possible = if is_listing {
            LISTING_BYTES_RANGE.contains(&size)
        } else {
            (1..=pattern::SLICE_BYTES_MAX).contains(&(size as usize))
        };
        let stable = match stable {
            None | Some("unstable") => StableHow::Unstable,
            Some("data_sync") => StableHow::DataSync,
            Some("file_sync") => StableHow::FileSync,
            Some(_) => return Err(unknown()),
        };
        match name {
            _ if !is_possible => Err(unknown()),
            "read" => Ok(Self::Read { size }),
            "write" => Ok(Self::Write { size, stable }),
            "write+commit" => Ok(Self::WriteCommit { size }),
            "readdir" => Ok(Self::Readdir { size }),
            "readdirplus" => Ok(Self::Readdirplus { size }),
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_know_the_versions_that_have_them() {
        for nfs in [NfsVersion::V3, NfsVersion::V4_1, NfsVersion::V4_2] {
            "write".parse::<Operation>().unwrap().check(nfs).unwrap();
            assert_eq!(Operation::OpenClose.check(nfs).is_ok(), nfs.is_4());
        }
    }

    #[test]
    fn operations_are_read_as_they_are_printed() {
        let with_sizes = [
            "read:1048576",
            "write:512:unstable",
            "write:4096:data_sync",
            "write:4096:file_sync",
            "write+commit:4096",
            "readdir:1024",
            "readdirplus:30720",
        ];
        for text in PLAIN.iter().map(|(name, _)| *name).chain(with_sizes) {
            assert_eq!(text.parse::<Operation>().unwrap().to_string(), text);
        }
        for (name, _) in PLAIN {
            assert!(OPERATIONS_HELP.contains(name), "{name}");
        }
        assert_eq!("read".parse::<Operation>().unwrap(), Operation::Read { size: 4096 });
        assert_eq!("readdir".parse::<Operation>().unwrap().to_string(), "readdir:30720");
        for text in [
            "",
            "reed",
            "read:0",
            "read:x",
            "read:1:unstable",
            "getattr:1",
            "write:1:soon",
            "write:1:unstable:1",
            "read:9999999",
            "readdir:100",
            "readdirplus:99999",
        ] {
            assert!(text.parse::<Operation>().is_err(), "{text}");
        }
    }
}
