//! What is on a file system, as a local process sees it: to tell whether something changed, and to find
//! what is kept aside.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::check::ASIDE;

/// Of one object what may be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) inode: u64,
    pub(crate) mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    /// The bytes of a file.
    pub(crate) bytes: Option<Vec<u8>>,
    pub(crate) is_directory: bool,
}

/// Objects by their paths below the share.
pub(crate) type Snapshot = BTreeMap<PathBuf, Seen>;

/// Everything below a directory.
pub(crate) fn take(directory: &Path) -> Result<Snapshot> {
    let mut snapshot = Snapshot::new();
    add(directory, directory, &mut snapshot)?;
    Ok(snapshot)
}

fn add(top: &Path, directory: &Path, snapshot: &mut Snapshot) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let (it, path) = (entry.metadata()?, entry.path());
        let bytes = if it.is_file() { Some(std::fs::read(&path)?) } else { None };
        let below = path.strip_prefix(top)?.to_owned();
        let is_directory = it.is_dir();
        snapshot.insert(
            below,
            Seen {
                inode: it.ino(),
                mode: it.mode(),
                owner: (it.uid(), it.gid()),
                // A directory's changes with the names in it, which are compared.
                mtime: if is_directory { (0, 0) } else { (it.mtime(), it.mtime_nsec()) },
                bytes,
                is_directory,
            },
        );
        if is_directory {
            add(top, &path, snapshot)?;
        }
    }
    Ok(())
}

/// Whether the last name of a path is one that replay gives to what it keeps.
pub(crate) fn is_aside(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(ASIDE))
}

/// What became another, each as a line.
pub(crate) fn differences(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let digest = |seen: &Seen| {
        let mut hasher = DefaultHasher::new();
        seen.bytes.hash(&mut hasher);
        let bytes = seen.bytes.as_ref().map_or(0, Vec::len);
        let hash = hasher.finish() >> 40;
        let (uid, gid) = seen.owner;
        let (mode, (seconds, nanoseconds)) = (seen.mode, seen.mtime);
        format!("{mode:o} {uid}:{gid}, {bytes} bytes ({hash:06x}), of {seconds}.{nanoseconds:09}")
    };
    let mut lines = Vec::new();
    for (path, seen) in before {
        let path_shown = path.display();
        match after.get(path) {
            None => lines.push(format!("{path_shown} is gone")),
            Some(now) if now != seen => {
                lines.push(format!("{path_shown}: {} became {}", digest(seen), digest(now)));
            }
            Some(_) => {}
        }
    }
    let is_new = |path: &&PathBuf| !before.contains_key(*path);
    lines.extend(after.keys().filter(is_new).map(|path| format!("{} came", path.display())));
    lines
}

/// Removes what replay kept aside, so that directories are as clients know them. How many.
pub(crate) fn remove_asides(share: &Path) -> Result<usize> {
    let found: Vec<_> = take(share)?.into_iter().filter(|(path, _)| is_aside(path)).collect();
    let mut removed = 0;
    for (path, seen) in found {
        let path = share.join(path);
        // One that was in another is gone with it.
        let outcome = if seen.is_directory {
            std::fs::remove_dir_all(&path)
        } else {
            std::fs::remove_file(&path)
        };
        removed += usize::from(outcome.is_ok());
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_came_or_went_is_told() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let top = directory.path();
        std::fs::write(top.join("same"), "a")?;
        std::fs::write(top.join("other"), "a")?;
        std::fs::create_dir(top.join("gone"))?;
        let before = take(top)?;
        assert!(differences(&before, &take(top)?).is_empty());
        std::fs::write(top.join("other"), "b")?;
        std::fs::remove_dir(top.join("gone"))?;
        std::fs::write(top.join(".steadfast-replay-1"), "c")?;
        let lines = differences(&before, &take(top)?);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].starts_with("gone is gone") && lines[1].starts_with("other: "));
        assert_eq!(remove_asides(top)?, 1);
        assert_eq!(remove_asides(top)?, 0);
        Ok(())
    }
}
