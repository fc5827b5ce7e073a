//! A file that is read again when it has changed.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// What tells one state of a file from another. A file that is not there has none.
type Stamp = Option<(u64, u64, i64, i64)>;

/// A file and what it says.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    path: PathBuf,
    parse: fn(&str) -> T,
    value: Arc<T>,
    /// The state that was read, and that which was there at the last look.
    read: Stamp,
    seen: Stamp,
    /// What was complained about, once.
    problem: Option<String>,
}

impl<T: Default> Watched<T> {
    /// Reads a file; one that is not there is empty.
    pub(crate) fn new(path: PathBuf, parse: fn(&str) -> T) -> Self {
        let mut watched = Self {
            seen: stamp(&path),
            path,
            parse,
            value: Arc::default(),
            read: None,
            problem: None,
        };
        watched.load();
        watched
    }

    /// What it says.
    pub(crate) fn value(&self) -> Arc<T> {
        Arc::clone(&self.value)
    }

    /// Reads it again if it has changed and nobody is writing it, as far as can be seen: it is the
    /// same in two looks. Returns what it said before.
    pub(crate) fn look(&mut self) -> Option<Arc<T>> {
        let stamp = stamp(&self.path);
        let is_settled = stamp == self.seen;
        self.seen = stamp;
        if !is_settled || stamp == self.read {
            return None;
        }
        let before = self.value();
        self.load().then_some(before)
    }

    fn load(&mut self) -> bool {
        match read(&self.path) {
            Ok(text) => {
                self.value = Arc::new((self.parse)(&text));
                self.read = self.seen;
                self.problem = None;
                true
            }
            // What it said before is better than nothing.
            Err(error) => {
                let problem = error.to_string();
                if self.problem.as_ref() != Some(&problem) {
                    tracing::warn!(
                        "{} cannot be read, what it said before goes on: {problem}",
                        self.path.display()
                    );
                    self.problem = Some(problem);
                }
                false
            }
        }
    }
}

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}

fn read(path: &Path) -> std::io::Result<String> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(std::io::Error::other(format!("it is longer than {FILE_BYTES_MAX} bytes")));
    }
    // Names are ASCII; comments may be anything.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_when_it_has_changed_and_is_at_rest() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("hosts");
        let mut watched = Watched::new(path.clone(), str::to_owned);
        assert_eq!((watched.look(), &**watched.value()), (None, ""));
        std::fs::write(&path, "one").expect("written");
        assert_eq!(watched.look(), None, "perhaps somebody writes it");
        assert_eq!(watched.look().as_deref().map(String::as_str), Some(""));
        assert_eq!((watched.look(), &**watched.value()), (None, "one"));
        // Something that cannot be read changes nothing.
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("a directory");
        assert_eq!((watched.look(), watched.look()), (None, None));
        assert_eq!(&**watched.value(), "one");
        std::fs::remove_dir(&path).expect("removed");
        watched.look();
        watched.look();
        assert_eq!(&**watched.value(), "");
    }
}
