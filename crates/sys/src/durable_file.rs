//! Small files that are there completely or not at all, also after power loss.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// `O_DSYNC`: when a write returns, its data is stored, and what is needed to read it. (What `rustix`
/// calls so is `O_SYNC`: the time of the change is stored too, which has ext4 commit its journal for
/// each write.)
pub const DATA_SYNC: OFlags = OFlags::from_bits_retain(libc::O_DSYNC as u32);

/// Makes the file at `path`, readable by its owner only, or puts it in the place of the one that
/// is there. On return it is on disk.
///
/// # Errors
/// When it cannot be written; the one that was there before is then still there.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(contents)?;
    file.sync_all()?;
    drop(file);
    std::fs::rename(&temporary, path)?;
    sync_directory_of(path)
}

/// Makes a change of the name at `path` stable: that it was made, renamed or removed.
///
/// # Errors
/// When the directory cannot be flushed.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_open_for_stable_data_only() {
        let path =
            std::env::temp_dir().join(format!("steadfast-sys-data-sync-{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create(true).custom_flags(DATA_SYNC.bits() as i32);
        let file = options.open(&path).unwrap();
        let flags = rustix::fs::fcntl_getfl(&file).unwrap().bits() as libc::c_int;
        assert_eq!(flags & libc::O_SYNC, libc::O_DSYNC);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_is_replaced_whole_and_is_its_owners() {
        let directory =
            std::env::temp_dir().join(format!("steadfast-sys-durable-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("name.known");
        for contents in [&b"first, which is longer"[..], b"second"] {
            replace(&path, contents).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), contents);
        }
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "nothing else is left");
        // What cannot be written leaves what is there: a directory is in the way of the new one.
        std::fs::create_dir(directory.join("name.known.new")).unwrap();
        replace(&path, b"third").unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
