//! Where data goes that the server cannot have: conflict files in the journal's directory.

use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use steadfast_journal::Sequence;
use steadfast_journal::manifest::{escape, utc};
use steadfast_sys::durable_file;

/// The directory's name.
const DIRECTORY: &str = "conflicts";
/// Of a path, as much is in a file's name.
const NAME_BYTES_MAX: usize = 120;

/// What is kept of one file.
#[derive(Clone, Debug)]
pub(crate) struct Kept<'a> {
    pub(crate) sequence: Sequence,
    pub(crate) path: &'a [u8],
    pub(crate) time_ns: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) why: &'a str,
    /// Offsets and lengths.
    pub(crate) ranges: &'a [(u64, u64)],
}

/// Keeps data. What is kept under the same sequence again replaces what was.
pub(crate) trait Keeper {
    /// Gets the pieces one by one, in the order of the ranges, and returns the file's name once all
    /// of it is stable.
    fn keep(
        &mut self,
        kept: &Kept<'_>,
        pieces: &mut dyn Iterator<Item = (u64, Vec<u8>)>,
    ) -> io::Result<String>;
}

/// Conflict files: the data at its offsets, and beside it a text that says what it is.
#[derive(Debug)]
pub(crate) struct Files {
    journal: PathBuf,
    share: String,
}

impl Files {
    /// In the directory of a journal; the share is for the text.
    pub(crate) fn new(journal: &Path, server: &[u8], share: &[u8]) -> Self {
        let share = format!("{}:{}", escape(server), escape(share));
        Self { journal: journal.to_owned(), share }
    }
}

fn file_name(path: &[u8], sequence: Sequence) -> String {
    let safe = |byte: &u8| {
        if byte.is_ascii_alphanumeric() || b".-_".contains(byte) { char::from(*byte) } else { '_' }
    };
    let from = path.len().saturating_sub(NAME_BYTES_MAX);
    let name: String = path.get(from..).unwrap_or_default().iter().map(safe).collect();
    format!("{}.{}", name.trim_start_matches(['_', '.']), sequence.0)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl Keeper for Files {
    fn keep(
        &mut self,
        kept: &Kept<'_>,
        pieces: &mut dyn Iterator<Item = (u64, Vec<u8>)>,
    ) -> io::Result<String> {
        let directory = self.journal.join(DIRECTORY);
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        File::open(&self.journal)?.sync_all()?;
        let path = directory.join(file_name(kept.path, kept.sequence));
        let temporary = with_suffix(&path, ".new");
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&temporary)?;
        for (offset, data) in pieces {
            file.write_all_at(&data, offset)?;
        }
        file.sync_all()?;
        drop(file);
        std::fs::rename(&temporary, &path)?;
        let text = with_suffix(&path, ".txt");
        durable_file::replace(&text, self.text(kept).as_bytes())?;
        durable_file::sync_directory_of(&path)?;
        Ok(path.display().to_string())
    }
}

impl Files {
    fn text(&self, kept: &Kept<'_>) -> String {
        let mut text = format!(
            "share: {}\npath: {}\ntime: {}\nuser: {}\ngroup: {}\nrecord: {}\nwhy: {}\n",
            self.share,
            escape(kept.path),
            utc(kept.time_ns),
            kept.uid,
            kept.gid,
            kept.sequence,
            kept.why
        );
        for (offset, bytes) in kept.ranges {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "data: {bytes} bytes at {offset}");
        }
        text
    }
}
