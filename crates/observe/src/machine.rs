//! Where the files of a machine are: below `/`, or below a directory that stands for it in a test.

use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Longest file of `/proc` that is read, in bytes: mountstats of 10,000 mounts has some 50 MB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A machine to look at, and to tune.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self::at(Path::new("/"))
    }
}

impl Machine {
    /// The machine whose `/proc`, `/sys`, `/etc` and `/var` are below `root`.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Whether it is the one that this program runs on.
    pub fn is_this(&self) -> bool {
        self.root == Path::new("/")
    }

    /// A path of it. `path` is absolute there.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file of it, as text; what is not UTF-8 is replaced.
    ///
    /// # Errors
    /// When it is not there, or cannot be read.
    pub fn read(&self, path: &str) -> io::Result<String> {
        let mut bytes = Vec::new();
        std::fs::File::open(self.path(path))?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A file with one word or line, without white space around it.
    pub fn word(&self, path: &str) -> Option<String> {
        self.read(path).ok().map(|text| text.trim().to_owned())
    }

    /// A file with one number.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.word(path)?.parse().ok()
    }

    /// Names in a directory, sorted; at most `most`.
    pub fn names(&self, path: &str, most: usize) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(path)) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.take(most).collect();
        names.sort();
        names
    }
}

/// Why a file was not read, in an administrator's words.
pub(crate) fn why(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "not there".to_owned(),
        ErrorKind::PermissionDenied => "no permission; run as root".to_owned(),
        _ => error.to_string(),
    }
}
