//! `--textfile`: metrics in a file for the textfile collector of `node_exporter`. It reads whatever is
//! there whenever it is asked, so the file is replaced as a whole.

use std::ffi::OsString;
use std::fs::{OpenOptions, Permissions, remove_file, rename};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Other names are not read by the collector.
const EXTENSION: &str = "prom";
/// The collector is another user.
const MODE: u32 = 0o644;

/// Writes the file, again each interval if there is one. Then it goes on whatever happens: the server may
/// be restarted, and the disk may be full for a while. The file keeps what it had meanwhile, and its age
/// tells.
///
/// # Errors
/// When it cannot be written, or the server does not tell; with an interval only if the name is wrong.
pub(super) fn keep(
    file: &Path,
    interval: Option<Duration>,
    metrics: impl Fn() -> Result<Vec<u8>>,
) -> Result<()> {
    if file.extension().is_none_or(|extension| extension != EXTENSION) {
        bail!("{}: the collector reads only files that end with .{EXTENSION}", file.display());
    }
    let once = || {
        let text = metrics()?;
        replace(file, &text).with_context(|| format!("cannot write {}", file.display()))
    };
    let Some(interval) = interval else { return once() };
    loop {
        if let Err(error) = once() {
            // Nobody may read it any more.
            let _ = writeln!(io::stderr(), "{error:#}");
        }
        std::thread::sleep(interval);
    }
}

/// Puts a file in the place of another one. Nobody sees a part of it. It is not flushed: after a power
/// failure it is written anew.
fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut temporary = OsString::from(path);
    temporary.push(format!(".{}", std::process::id()));
    let written = write_new(temporary.as_ref(), contents).and_then(|()| rename(&temporary, path));
    if written.is_err() {
        // What is there is no use to anybody.
        let _ = remove_file(&temporary);
    }
    written
}

/// Makes a file, in place of what a process of this number has left. In a directory of others it follows no
/// link that they made.
fn write_new(path: &Path, contents: &[u8]) -> io::Result<()> {
    match remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.write_all(contents)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn names(directory: &Path) -> Vec<OsString> {
        let entries = std::fs::read_dir(directory).expect("a directory");
        entries.map(|entry| entry.expect("an entry").file_name()).collect()
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_nothing_is_left_beside_it() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("steadfast.prom");
        keep(&file, None, || Ok(b"one".to_vec())).expect("written");
        let first = std::fs::File::open(&file).expect("opened");
        // As a process of our number has left it.
        std::fs::write(format!("{}.{}", file.display(), std::process::id()), "rest").expect("left");
        keep(&file, None, || Ok(b"second".to_vec())).expect("written");
        assert_eq!(std::fs::read(&file).expect("read"), b"second");
        assert_eq!(file.metadata().expect("metadata").mode() & 0o777, MODE);
        assert_eq!(io::read_to_string(first).expect("read"), "one", "it was not changed in place");
        assert_eq!(names(place.path()), ["steadfast.prom"]);
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was_there() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("steadfast.prom");
        keep(&file, None, || Ok(b"one".to_vec())).expect("written");
        let error = keep(&file, None, || bail!("no server")).expect_err("no server");
        assert_eq!(error.to_string(), "no server");
        assert_eq!(std::fs::read(&file).expect("read"), b"one");
        // A directory is in the way.
        let taken = place.path().join("taken.prom");
        std::fs::create_dir(&taken).expect("made");
        let error = keep(&taken, None, || Ok(b"one".to_vec())).expect_err("taken");
        assert!(format!("{error:#}").contains("cannot write"), "{error:#}");
        assert_eq!(names(place.path()).len(), 2, "{:?}", names(place.path()));
        let error = keep(&place.path().join("x.txt"), None, || Ok(Vec::new())).expect_err("a name");
        assert!(error.to_string().contains(".prom"), "{error}");
    }
}
