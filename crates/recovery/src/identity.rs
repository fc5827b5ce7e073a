//! Which object is meant.
//!
//! XFS and btrfs give an inode that they make anew the number and the generation of one that a crash
//! has lost. What is found by a key is the object of the records only if it looks as that does;
//! otherwise ours is lost, and what is there is a stranger: of a local process, that made it between
//! the crash and the replay.

use steadfast_vfs::{Attr, FileKind, Time};

use super::history::Looks;

/// In which times a stranger can have been made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SinceCrash {
    /// The machine was started then, or later.
    pub(super) began: Option<Time>,
    /// This is being replayed.
    pub(super) now: Option<Time>,
}

impl Looks {
    /// Whether what was found by the key of an object is that object. `born`: when what was found was
    /// made, if its file system tells and replay has not made it.
    pub(super) fn fit(&self, found: &Attr, born: Option<Time>, since: SinceCrash) -> bool {
        let is_of_kind = if let Some(kind) = self.kind {
            kind == found.kind
        } else {
            let is_directory = found.kind == FileKind::Directory;
            self.is_directory.is_none_or(|wanted| wanted == is_directory)
        };
        if !is_of_kind {
            return false;
        }
        match (self.born, born) {
            (Some(recorded), Some(born)) => recorded == born,
            // It was there before the first change that tells of it. The clock may have been set back
            // since it was made: then it was made in what is the future, or before the machine started.
            (None, Some(born)) => {
                !(self.first.is_some_and(|first| born > first)
                    && since.began.is_none_or(|began| born >= began)
                    && since.now.is_none_or(|now| born <= now))
            }
            (_, None) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use steadfast_vfs::DeviceNumber;

    use super::*;

    fn time(seconds: i64) -> Time {
        Time { seconds, nanoseconds: 7 }
    }

    fn attr(kind: FileKind) -> Attr {
        Attr {
            kind,
            mode: 0,
            links: 1,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            device: DeviceNumber::default(),
            fsid: 0,
            fileid: 0,
            atime: time(0),
            mtime: time(0),
            ctime: time(0),
        }
    }

    #[test]
    fn another_kind_or_birth_is_of_a_stranger() {
        use FileKind::{Directory, Fifo, Regular};
        let since = SinceCrash { began: Some(time(100)), now: Some(time(200)) };
        let made =
            |born| Looks { kind: Some(Regular), born, first: Some(time(50)), ..Looks::default() };
        let there = made(None);
        let dir = Looks { is_directory: Some(true), ..Looks::default() };
        for (looks, kind, born, expected) in [
            (&made(Some(time(50))), Regular, Some(time(50)), true),
            (&made(Some(time(50))), Regular, None, true),
            (&made(Some(time(50))), Directory, Some(time(50)), false),
            // Nothing is left to guess where both tell.
            (&made(Some(time(50))), Regular, Some(time(49)), false),
            (&there, Regular, Some(time(50)), true),
            (&there, Regular, Some(time(101)), false),
            // The clock was set back after it was made.
            (&there, Regular, Some(time(99)), true),
            (&there, Regular, Some(time(201)), true),
            (&there, Fifo, None, false),
            (&dir, Regular, None, false),
            (&dir, Directory, Some(time(150)), true),
        ] {
            assert_eq!(
                looks.fit(&attr(kind), born, since),
                expected,
                "{looks:?} {kind:?} {born:?}"
            );
        }
        assert!(!there.fit(&attr(Regular), Some(time(51)), SinceCrash::default()));
    }
}
