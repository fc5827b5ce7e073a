//! The sharetab: a file that tells other programs what is shared, in the format of Solaris'
//! sharetab(4). A line a share, of five fields with tabs between them:
//!
//! `PATH RESOURCE TYPE OPTIONS DESCRIPTION`
//!
//! An empty field is `-`. Blanks, tabs, newlines and backslashes within a field are written in
//! octal (`\040`), as in fstab(5); a share that is served by several protocols has a line for
//! each. The order of shares says nothing. It is always true and complete: whoever opens it reads one
//! state, from before a batch or after it, never a part.

mod lines;
mod options;

use std::fmt::Write as _;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::iter;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use steadfast_sys::lease;

use lines::{Changes, Lines};
pub use options::options;

/// So many places where a file lacks something are told apart.
const PLACES_BEHIND_MAX: usize = 64;

/// What is written at once: while the kernel copies that, nobody else may have the processor.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// A share as it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What clients mount.
    pub path: &'a str,
    /// Its name where protocols want one.
    pub resource: Option<&'a str>,
    /// `nfs`, and others that it is served by.
    pub types: &'a [&'a str],
    /// Who may do what: see [`mod@options`].
    pub options: &'a str,
    /// For people.
    pub description: Option<&'a str>,
}

/// The file, and what is in it. Nobody else writes there.
///
/// A change of one share among fifteen thousand costs a few lines, not a new file: there are two, of
/// which one is the sharetab and the other is brought up to date and put in its place.
#[derive(Debug)]
pub struct Sharetab {
    path: PathBuf,
    /// Where the other one is.
    spare_path: PathBuf,
    lines: Lines,
    /// What is not in the lines yet.
    changes: Changes,
    /// The file that is the sharetab; `None` before the first time.
    shown: Option<Copy>,
    /// The one that was before that.
    spare: Option<Copy>,
    /// Whether the file lacks something of the lines.
    is_behind: bool,
}

/// A file of our own that has the text, or had it.
#[derive(Debug)]
struct Copy {
    file: File,
    /// Where it lacks the text, beside its length.
    behind: Vec<Range<usize>>,
}

impl Copy {
    /// Makes one that has no text. A link or a file that somebody put there is not followed, nor
    /// written.
    fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o400);
        let file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                std::fs::remove_file(path)?;
                options.open(path)?
            }
            opened => opened?,
        };
        // Whatever the process's mask says; and nobody is to write to it.
        file.set_permissions(Permissions::from_mode(0o444))?;
        Ok(Self { file, behind: iter::once(0..usize::MAX).collect() })
    }

    /// Whether it is what is at a path, and nowhere else.
    fn is_at(&self, path: &Path) -> bool {
        let (Ok(ours), Ok(there)) = (self.file.metadata(), path.symlink_metadata()) else {
            return false;
        };
        (ours.dev(), ours.ino(), ours.nlink()) == (there.dev(), there.ino(), 1)
    }

    /// Notes where the text is another one than it was.
    fn note(&mut self, different: &[Range<usize>]) {
        self.behind.extend_from_slice(different);
        self.behind.sort_unstable_by_key(|range| range.start);
        self.behind.dedup_by(|next, range| {
            let is_joined = next.start <= range.end;
            if is_joined {
                range.end = range.end.max(next.end);
            }
            is_joined
        });
        if self.behind.len() > PLACES_BEHIND_MAX {
            let start = self.behind.first().map_or(0, |range| range.start);
            self.behind = iter::once(start..usize::MAX).collect();
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        for range in &self.behind {
            let rest = text.as_bytes().get(range.start..).unwrap_or_default();
            let part = rest.get(..range.len()).unwrap_or(rest);
            for (number, piece) in part.chunks(PIECE_BYTES).enumerate() {
                self.file.write_all_at(piece, (range.start + number * PIECE_BYTES) as u64)?;
            }
        }
        self.file.set_len(text.len() as u64)?;
        self.behind.clear();
        Ok(())
    }

    /// Writes the text if nobody reads the file; whether that was so.
    fn write_alone(&mut self, text: &str) -> io::Result<bool> {
        let file = self.file.try_clone()?;
        // Where there are no leases it cannot be known.
        let Ok(Some(_lease)) = lease::take(&file) else { return Ok(false) };
        self.write(text)?;
        Ok(true)
    }
}

impl Sharetab {
    /// One that is empty, whatever is in the file, until the first [`Sharetab::publish`].
    ///
    /// # Errors
    /// When its directory can neither be found nor made.
    pub fn open(path: &Path) -> io::Result<Self> {
        let directory = path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(directory)?;
        let mut spare_path = path.as_os_str().to_owned();
        spare_path.push(".new");
        Ok(Self {
            path: path.to_owned(),
            spare_path: spare_path.into(),
            lines: Lines::default(),
            changes: Changes::new(),
            shown: None,
            spare: None,
            is_behind: true,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells of a share, in the place of what was told of its path. It is in the file after the
    /// next [`Sharetab::publish`].
    pub fn set(&mut self, entry: &Entry<'_>) {
        self.changes.insert(first_field(entry.path), Some(lines(entry).into()));
    }

    /// Tells of no share of this path any more.
    pub fn remove(&mut self, path: &str) {
        self.changes.insert(first_field(path), None);
    }

    /// Tells of no share any more.
    pub fn clear(&mut self) {
        self.is_behind |= !self.lines.text().is_empty();
        self.lines.clear();
        self.changes.clear();
    }

    /// Puts what was told into the file, at one moment. It need not survive a crash: it is of no
    /// use to anybody when no server runs.
    ///
    /// # Errors
    /// When it cannot be written; the file is then as it was, and the next time tries again.
    pub fn publish(&mut self) -> io::Result<()> {
        self.put_changes();
        if !self.is_behind {
            return Ok(());
        }
        let new = self.bring_up_to_date()?;
        let is_ours = self.shown.as_ref().is_some_and(|shown| shown.is_at(&self.path));
        let exchange = || {
            let (spare, path) = (&self.spare_path, &self.path);
            renameat_with(CWD, spare, CWD, path, RenameFlags::EXCHANGE).is_ok()
        };
        if is_ours && exchange() {
            self.spare = self.shown.replace(new);
        } else {
            std::fs::rename(&self.spare_path, &self.path)?;
            self.shown = Some(new);
        }
        self.is_behind = false;
        Ok(())
    }

    /// A file at the spare's path that has the text.
    fn bring_up_to_date(&mut self) -> io::Result<Copy> {
        // One that may have half a text afterwards is not kept, nor one that somebody reads.
        let spare = self.spare.take().filter(|spare| spare.is_at(&self.spare_path));
        if let Some(mut spare) = spare
            && spare.write_alone(self.lines.text())?
        {
            return Ok(spare);
        }
        let mut new = Copy::create(&self.spare_path)?;
        new.write(self.lines.text())?;
        Ok(new)
    }

    /// Puts what was told into the text.
    fn put_changes(&mut self) {
        let different = self.lines.put(std::mem::take(&mut self.changes));
        self.is_behind |= !different.is_empty();
        for copy in self.shown.iter_mut().chain(&mut self.spare) {
            copy.note(&different);
        }
    }
}

impl Drop for Sharetab {
    /// Nothing is shared by a server that ends.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        if self.spare.is_some() {
            let _ = std::fs::remove_file(&self.spare_path);
        }
    }
}

/// A path as lines have it.
fn first_field(path: &str) -> Box<str> {
    let mut text = String::with_capacity(path.len() + 1);
    field(&mut text, Some(path), '\t');
    text.pop();
    text.into()
}

fn lines(entry: &Entry<'_>) -> String {
    let mut text = String::with_capacity(entry.path.len() + entry.options.len() + 32);
    for kind in entry.types {
        field(&mut text, Some(entry.path), '\t');
        field(&mut text, entry.resource, '\t');
        field(&mut text, Some(kind), '\t');
        field(&mut text, Some(entry.options), '\t');
        field(&mut text, entry.description, '\n');
    }
    text
}

fn field(text: &mut String, value: Option<&str>, end: char) {
    match value {
        None | Some("") => text.push('-'),
        // Else it would be read as none.
        Some("-") => text.push_str("\\055"),
        Some(value) => {
            for character in value.chars() {
                if character.is_ascii_control() || matches!(character, ' ' | '\\') {
                    // Writing to a string does not fail.
                    let _ = write!(text, "\\{:03o}", u32::from(character));
                } else {
                    text.push(character);
                }
            }
        }
    }
    text.push(end);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};

    use proptest::prelude::*;

    use super::*;

    fn entry<'a>(path: &'a str, options: &'a str) -> Entry<'a> {
        Entry { path, resource: None, types: &["nfs"], options, description: None }
    }

    fn read(tab: &Sharetab) -> String {
        std::fs::read_to_string(tab.path()).expect("readable")
    }

    #[test]
    fn lines_are_those_of_sharetab_4() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("run/sharetab");
        let mut tab = Sharetab::open(&path).expect("opened");
        tab.set(&entry("/b c", "rw"));
        tab.set(&Entry {
            resource: Some("home"),
            types: &["nfs", "smb"],
            description: Some("of\tall\nusers \\ é"),
            ..entry("/a", "ro=10.0.0.0/8")
        });
        tab.set(&entry("/gone", "rw"));
        tab.remove("/gone");
        tab.set(&Entry { description: Some("-"), ..entry("/z", "") });
        tab.publish().expect("written");
        assert_eq!(
            read(&tab),
            "/a\thome\tnfs\tro=10.0.0.0/8\tof\\011all\\012users\\040\\134\\040é\n\
             /a\thome\tsmb\tro=10.0.0.0/8\tof\\011all\\012users\\040\\134\\040é\n\
             /b\\040c\t-\tnfs\trw\t-\n\
             /z\t-\tnfs\t-\t\\055\n"
        );
        assert_eq!(path.metadata().expect("metadata").permissions().mode() & 0o777, 0o444);
        // What another left in the way, or put there, is neither followed nor kept.
        let other = place.path().join("other");
        std::fs::write(&other, "theirs").expect("written");
        std::os::unix::fs::symlink(&other, &tab.spare_path).expect("a link");
        tab.clear();
        tab.publish().expect("written");
        assert_eq!((read(&tab).as_str(), tab.lines.text().len()), ("", 0));
        assert_eq!(std::fs::read_to_string(&other).expect("readable"), "theirs");
        drop(tab);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_file_lacks_is_noted_once() {
        let place = tempfile::tempdir().expect("a directory");
        let mut copy = Copy::create(&place.path().join("file")).expect("made");
        copy.write("").expect("written");
        copy.note(&[50..60, 10..20]);
        copy.note(&[15..30, 60..70, 90..95]);
        assert_eq!(copy.behind, [10..30, 50..70, 90..95]);
        let apart: Vec<_> = (0..PLACES_BEHIND_MAX).map(|n| 100 * n..100 * n + 1).collect();
        copy.note(&apart);
        assert_eq!(copy.behind, [Range { start: 0, end: usize::MAX }]);
    }

    #[test]
    fn what_does_not_change_is_not_written_and_what_failed_is() {
        let place = tempfile::tempdir().expect("a directory");
        let mut tab = Sharetab::open(&place.path().join("sharetab")).expect("opened");
        tab.set(&entry("/a", "rw"));
        tab.publish().expect("written");
        std::fs::remove_file(tab.path()).expect("removed");
        tab.set(&entry("/a", "rw"));
        tab.publish().expect("nothing to do");
        assert!(!tab.path().exists());
        std::fs::create_dir_all(tab.spare_path.join("in the way")).expect("made");
        tab.set(&entry("/a", "ro"));
        tab.publish().expect_err("something is in the way");
        std::fs::remove_dir_all(&tab.spare_path).expect("removed");
        tab.publish().expect("written");
        assert_eq!(read(&tab), "/a\t-\tnfs\tro\t-\n");
    }

    proptest! {
        /// The file is what a map says, whatever changes at once; and whoever has it open goes on
        /// reading the state that it was when he opened it.
        #[test]
        fn the_file_says_what_a_map_says(
            batches in prop::collection::vec(
                prop::collection::vec((0..30_u8, prop::option::of("[a-c]{0,9}")), 0..20), 1..12),
        ) {
            let place = tempfile::tempdir().expect("a directory");
            let mut tab = Sharetab::open(&place.path().join("sharetab")).expect("opened");
            let mut model = BTreeMap::new();
            let mut readers: Vec<(File, String)> = Vec::new();
            for (number, batch) in batches.into_iter().enumerate() {
                for (share, options) in batch {
                    let path = format!("/s {share}");
                    if let Some(options) = options {
                        let types = if share % 3 == 0 { &["nfs", "smb"][..] } else { &["nfs"] };
                        let entry = Entry { types, ..entry(&path, &options) };
                        tab.set(&entry);
                        model.insert(path.clone(), lines(&entry));
                    } else {
                        tab.remove(&path);
                        model.remove(&path);
                    }
                }
                tab.publish().expect("written");
                let expected = read(&tab);
                let mut has: Vec<&str> = expected.lines().collect();
                has.sort_unstable();
                let lines = model.values().flat_map(|lines: &String| lines.lines());
                prop_assert_eq!(has, lines.collect::<Vec<_>>());
                if number % 3 == 0 {
                    readers.push((File::open(tab.path()).expect("opened"), expected));
                }
                for (reader, expected) in &readers {
                    let mut bytes = vec![0; expected.len() + 1];
                    let got = reader.read_at(&mut bytes, 0).expect("read");
                    prop_assert_eq!(&bytes[..got], expected.as_bytes());
                }
            }
        }
    }

    #[test]
    fn a_reader_never_sees_a_part() {
        let place = tempfile::tempdir().expect("a directory");
        let mut tab = Sharetab::open(&place.path().join("sharetab")).expect("opened");
        let count = 2000;
        let paths: Vec<String> = (0..count).map(|n| format!("/share/{n:05}")).collect();
        let fill = |tab: &mut Sharetab, options: &str| {
            for path in &paths {
                tab.set(&entry(path, options));
            }
            tab.publish().expect("written");
        };
        fill(&mut tab, "0");
        let path = tab.path().to_owned();
        let (has_ended, is_reading) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut states = std::collections::HashSet::new();
                while !has_ended.load(Ordering::Acquire) {
                    let text = std::fs::read_to_string(&path).expect("it is always there");
                    assert_eq!(text.lines().count(), count);
                    let state = |line: &str| line.split('\t').nth(3).map(str::to_owned);
                    let first = text.lines().next().and_then(state).expect("a state");
                    assert!(text.lines().all(|line| state(line).as_deref() == Some(&first)));
                    states.insert(first);
                    is_reading.store(true, Ordering::Release);
                }
                states.len()
            });
            let mut round = 0;
            // Until the reader has been between two of them for sure.
            while round < 50 || !is_reading.load(Ordering::Acquire) {
                fill(&mut tab, &round.to_string());
                round += 1;
            }
            has_ended.store(true, Ordering::Release);
            assert!(reader.join().expect("no mistake") >= 1);
        });
    }
}
