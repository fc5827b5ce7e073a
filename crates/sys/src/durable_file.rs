//! Small files that are there completely or not at all, also after power loss.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::identity;

/// `O_DSYNC`: when a write returns, its data is stored, and what is needed to read it. (What `rustix`
/// calls so is `O_SYNC`: the time of the change is stored too, which has ext4 commit its journal for
/// each write.)
pub const DATA_SYNC: OFlags = OFlags::from_bits_retain(libc::O_DSYNC as u32);

/// Makes the file at `path`, readable by its owner only, or puts it in the place of the one that
/// is there. On return it is on disk. The thread may act for a caller: the file is the server's.
///
/// # Errors
/// When it cannot be written; the one that was there before is then still there.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    identity::as_server(|| replace_as_server(path, contents))?
}

fn replace_as_server(path: &Path, contents: &[u8]) -> io::Result<()> {
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

/// Removes the file at `path`, if it is there; not stable yet. The thread may act for a caller.
///
/// # Errors
/// When it is still there.
pub fn remove(path: &Path) -> io::Result<()> {
    match identity::as_server(|| std::fs::remove_file(path))? {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
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

    /// A server writes what is its own while it does what a user asks for.
    #[test]
    fn a_thread_that_acts_for_a_caller_writes_the_servers_files() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root");
            return;
        }
        let directory =
            std::env::temp_dir().join(format!("steadfast-sys-own-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("file");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                identity::assume(1234, 1234, &[]).unwrap();
                replace(&path, b"first").unwrap();
                replace(&path, b"second").unwrap();
                std::fs::remove_file(&path).unwrap_err();
                assert_eq!(std::os::unix::fs::MetadataExt::uid(&path.metadata().unwrap()), 0);
                remove(&path).unwrap();
                remove(&path).unwrap();
            });
        });
        assert!(!path.exists());
        std::fs::remove_dir(&directory).unwrap();
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
