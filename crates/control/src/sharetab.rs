//! The sharetab: a file that tells other programs what is shared, in the format of Solaris'
//! sharetab(4). A line a share, of five fields with tabs between them:
//!
//! `PATH RESOURCE TYPE OPTIONS DESCRIPTION`
//!
//! An empty field is `-`. Blanks, tabs, newlines and backslashes within a field are written in
//! octal (`\040`), as in fstab(5); a share that is served by several protocols has a line for
//! each. It is always true and complete: whoever opens it reads one state, from before a batch or
//! after it, never a part.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A share as it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What clients mount.
    pub path: &'a str,
    /// Its name where protocols want one.
    pub resource: Option<&'a str>,
    /// `nfs`, and others that it is served by.
    pub types: &'a [&'a str],
    /// Option words, with clients as `rw=`, `ro=` has them.
    pub options: &'a str,
    /// For people.
    pub description: Option<&'a str>,
}

/// The file, and what is in it. Nobody else writes there.
#[derive(Debug)]
pub struct Sharetab {
    path: PathBuf,
    /// A new file is made under this name, so that it can take the other's place at once.
    new_path: PathBuf,
    /// The lines of each share.
    lines: BTreeMap<Box<str>, Box<str>>,
    bytes: usize,
    /// Whether the file lacks something of `lines`.
    is_behind: bool,
}

impl Sharetab {
    /// One that is empty, whatever is in the file, until the first [`Sharetab::publish`].
    ///
    /// # Errors
    /// When its directory can neither be found nor made.
    pub fn open(path: &Path) -> io::Result<Self> {
        let directory = path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(directory)?;
        let mut new_path = path.as_os_str().to_owned();
        new_path.push(".new");
        Ok(Self {
            path: path.to_owned(),
            new_path: new_path.into(),
            lines: BTreeMap::new(),
            bytes: 0,
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
        let lines = lines(entry);
        if self.lines.get(entry.path).is_some_and(|known| **known == *lines) {
            return;
        }
        self.bytes += lines.len();
        let before = self.lines.insert(entry.path.into(), lines.into());
        self.bytes -= before.map_or(0, |before| before.len());
        self.is_behind = true;
    }

    /// Tells of no share of this path any more.
    pub fn remove(&mut self, path: &str) {
        if let Some(before) = self.lines.remove(path) {
            self.bytes -= before.len();
            self.is_behind = true;
        }
    }

    /// Tells of no share any more.
    pub fn clear(&mut self) {
        self.is_behind |= !self.lines.is_empty();
        self.lines.clear();
        self.bytes = 0;
    }

    /// Puts what was told into the file, at one moment. It need not survive a crash: it is of no
    /// use to anybody when no server runs.
    ///
    /// # Errors
    /// When it cannot be written; the file is then as it was, and the next time tries again.
    pub fn publish(&mut self) -> io::Result<()> {
        if !self.is_behind {
            return Ok(());
        }
        let mut text = String::with_capacity(self.bytes);
        text.extend(self.lines.values().map(|line| &**line));
        let mut file = self.new_file()?;
        file.write_all(text.as_bytes())?;
        // Whatever the process's mask says; and nobody is to write to it.
        file.set_permissions(Permissions::from_mode(0o444))?;
        drop(file);
        std::fs::rename(&self.new_path, &self.path)?;
        self.is_behind = false;
        Ok(())
    }

    /// A file of our own: a link or a file that somebody put there is not followed, nor written.
    fn new_file(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o400);
        match options.open(&self.new_path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                std::fs::remove_file(&self.new_path)?;
                options.open(&self.new_path)
            }
            opened => opened,
        }
    }
}

impl Drop for Sharetab {
    /// Nothing is shared by a server that ends.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
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
    use std::sync::atomic::{AtomicBool, Ordering};

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
        std::os::unix::fs::symlink(&other, &tab.new_path).expect("a link");
        tab.clear();
        tab.publish().expect("written");
        assert_eq!((read(&tab).as_str(), tab.bytes), ("", 0));
        assert_eq!(std::fs::read_to_string(&other).expect("readable"), "theirs");
        drop(tab);
        assert!(!path.exists());
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
        std::fs::create_dir_all(tab.new_path.join("in the way")).expect("made");
        tab.set(&entry("/a", "ro"));
        tab.publish().expect_err("something is in the way");
        std::fs::remove_dir_all(&tab.new_path).expect("removed");
        tab.publish().expect("written");
        assert_eq!(read(&tab), "/a\t-\tnfs\tro\t-\n");
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
