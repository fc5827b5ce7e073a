//! Files of messages and packets: names, and what files have, are nobody else's than the file's owner's.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Makes a file that its owner alone may read. One that is there is replaced if it may be, and not written over: it may be
/// another user's, or another user may have opened it.
///
/// # Errors
/// When it cannot be made, or something else than a file is there, as a symbolic link.
pub(crate) fn create(path: &Path, replaces: bool) -> io::Result<File> {
    if replaces && let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.is_file() {
            return Err(io::Error::other("it is no regular file, which alone could be replaced"));
        }
        std::fs::remove_file(path)?;
    }
    // Whoever makes another one meanwhile does not have this one's bytes.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    //! Unit ring.
    use std::io::{Read, Write};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_was_there_does_not_get_what_is_written() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("day.pcapng");
        std::fs::write(&path, "old")?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644))?;
        let mut opened = File::open(&path)?;
        let before = path.metadata()?.ino();
        let kind = create(&path, false).map_err(|error| error.kind()).err();
        assert_eq!(kind, Some(io::ErrorKind::AlreadyExists));
        create(&path, true)?.write_all(b"new")?;
        assert_eq!(std::fs::read(&path)?, b"new");
        assert_eq!(path.metadata()?.permissions().mode() & 0o777, 0o600);
        assert_ne!(path.metadata()?.ino(), before);
        let mut seen = String::new();
        opened.read_to_string(&mut seen)?;
        assert_eq!(seen, "old");
        // Nor does a file that a link leads to.
        let link = directory.path().join("link");
        symlink(&path, &link)?;
        for replaces in [false, true] {
            assert!(create(&link, replaces).is_err());
        }
        assert!(create(directory.path(), true).is_err());
        assert_eq!(std::fs::read(&link)?, b"new");
        Ok(())
    }
}
