//! Files of messages and packets: names, and what files have, are nobody else's than the file's owner's.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Directories of the kernel, in which nobody but root makes links.
const TRUSTED: [&str; 3] = ["/dev", "/dev/fd", "/proc/self/fd"];

/// Makes a file that its owner alone may read. One that is there is replaced if it may be, and not written over: it may be
/// another user's, or another user may have opened it.
///
/// # Errors
/// When it cannot be made, or something else than a file is there, as a symbolic link.
pub(crate) fn create(path: &Path, replaces: bool) -> io::Result<File> {
    // Whoever makes another one meanwhile does not have this one's bytes.
    let new = |path: &Path| OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let found = std::fs::symlink_metadata(path).ok().filter(|_| replaces);
    let Some(found) = found else { return new(path) };
    if !found.is_file() {
        return Err(io::Error::other("it is no regular file, which alone could be replaced"));
    }
    // The old one is there until there is another.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let besides = path.with_file_name(name);
    let file = new(&besides)?;
    if let Err(error) = std::fs::rename(&besides, path) {
        let _ = std::fs::remove_file(&besides);
        return Err(error);
    }
    Ok(file)
}

/// Opens what is there and no regular file, as a pipe or a device, without waits; `None` if it is a regular file, a
/// directory, or nothing. Until somebody reads a pipe, `waits` is asked whether to wait on.
///
/// Links are not followed but those of [`TRUSTED`] directories. A pipe or terminal elsewhere must be this user's or
/// root's: another user may have put his own there, to read what is written.
///
/// # Errors
/// When it cannot be opened, or is another user's.
pub(crate) fn open_special(
    path: &Path,
    mut waits: impl FnMut() -> io::Result<bool>,
) -> io::Result<Option<File>> {
    let is_trusted =
        path.parent().is_some_and(|parent| TRUSTED.iter().any(|one| parent == Path::new(one)));
    let found = if is_trusted { path.metadata() } else { path.symlink_metadata() };
    match found {
        Ok(found) if found.is_symlink() => {
            return Err(io::Error::other("it is a symbolic link, which is not followed"));
        }
        Ok(found) if !found.is_file() && !found.is_dir() => {}
        _ => return Ok(None),
    }
    let nofollow = if is_trusted { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = nofollow | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(flags.bits().cast_signed());
    loop {
        match options.open(path) {
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) && waits()? => {}
            Err(error) => return Err(error),
            Ok(file) => {
                // Another thing may be there by now.
                let found = file.metadata()?;
                if found.is_file() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                let may_be_read = found.file_type().is_fifo() || file.is_terminal();
                let user = rustix::process::geteuid().as_raw();
                if may_be_read && !is_trusted && !is_own(found.uid(), user) {
                    return Err(io::Error::other("it is a pipe or terminal of another user"));
                }
                return Ok(Some(file));
            }
        }
    }
}

fn is_own(owner: u32, user: u32) -> bool {
    owner == user || owner == 0
}

#[cfg(test)]
mod tests {
    //! Unit ring.
    use std::io::{Read, Write};
    use std::os::unix::fs::{PermissionsExt, symlink};

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
        // What could not be made leaves what was there, and nothing else.
        let names = std::fs::read_dir(directory.path())?.count();
        assert_eq!(names, 2);
        let beside = directory.path().join(format!("day.pcapng.new-{}", std::process::id()));
        std::fs::create_dir(&beside)?;
        assert!(create(&path, true).is_err());
        assert_eq!(std::fs::read(&link)?, b"new");
        Ok(())
    }

    #[test]
    fn pipes_and_devices_are_opened_if_no_other_user_can_read_them() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let at = |name: &str| directory.path().join(name);
        let pipe = at("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )?;
        let mut looks = 0;
        let nobody = open_special(&pipe, || {
            looks += 1;
            Ok(looks < 3)
        });
        assert_eq!((nobody.is_err(), looks), (true, 3));
        let reader = OpenOptions::new().read(true).write(true).open(&pipe)?;
        assert!(open_special(&pipe, || Ok(false))?.is_some());
        for (link, to) in [("to-pipe", &pipe), ("to-null", &"/dev/null".into())] {
            symlink(to, at(link))?;
            assert!(open_special(&at(link), || Ok(false)).is_err(), "{link}");
        }
        // As root alone it can be another's.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&pipe, Some(4242), None)?;
            assert!(open_special(&pipe, || Ok(false)).is_err());
        }
        drop(reader);
        assert!(is_own(7, 7) && is_own(0, 7) && !is_own(7, 0) && !is_own(8, 7));
        assert!(open_special(Path::new("/dev/null"), || Ok(false))?.is_some());
        std::fs::write(at("file"), "old")?;
        for name in ["file", "nothing", "."] {
            assert!(open_special(&at(name), || Ok(false))?.is_none(), "{name}");
        }
        Ok(())
    }
}
