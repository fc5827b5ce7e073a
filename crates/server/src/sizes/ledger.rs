//! Which limits of subvolumes this server has set: in the state directory.
//!
//! A limit is written down before the kernel gets it, and every value that it has had stays known until the
//! disk is known to have a later one: a power cut brings back what btrfs committed last, which may be any of
//! them. The file grows by a line a limit that is set or settled, and is written anew when most of its lines
//! are old. Lost, limits are taken for somebody else's: those with the size that is wanted are taken
//! over, others are told.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use steadfast_posixfs::Qgroup;
use steadfast_sys::{durable_file, identity};

/// In the state directory.
const FILE_NAME: &str = "shares.sizes";
/// The first line.
const HEAD: &str = "limits that were set for sizes of shares, version 1\n";
/// Old lines that are kept, at the least.
const OLD_LINES_MIN: usize = if cfg!(test) { 20 } else { 10_000 };
/// Of one limit so many values are known at the most: the oldest are forgotten. The disk is asked to have the
/// last one after each change, so that there are as many only where it has not answered for that long.
const VALUES_MAX: usize = 256;

/// A limit that was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OurLimit {
    /// In bytes, the last one last; never empty. After a crash the disk may have any of them, or none.
    values: Vec<u64>,
    /// Its subvolume, when it was set.
    pub(super) directory: PathBuf,
}

impl OurLimit {
    pub(super) fn is_ours(&self, bytes: u64) -> bool {
        self.values.contains(&bytes)
    }

    pub(super) fn values(&self) -> &[u64] {
        &self.values
    }
}

/// What the disk is known to have of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// This value.
    Has(u64),
    /// None, or somebody else's.
    NotOurs,
}

/// The limits that were set.
pub(super) struct Ledger {
    path: PathBuf,
    ours: HashMap<Qgroup, OurLimit>,
    lines: usize,
    /// Whether the file ends within a line, or has a line that is not understood.
    is_torn: bool,
}

impl Ledger {
    /// Reads which limits were set. A line that is not understood is ignored: a crash may have cut it.
    pub(super) fn open(state_directory: &Path) -> Self {
        let mut ledger = Self {
            path: state_directory.join(FILE_NAME),
            ours: HashMap::new(),
            lines: 0,
            is_torn: false,
        };
        match std::fs::read(&ledger.path) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                ledger.is_torn = !text.ends_with('\n') || !text.starts_with(HEAD);
                text.lines().skip(1).for_each(|line| ledger.read(line));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::error!(
                "{}: cannot be read ({error}): which limits of subvolumes were set for sizes of shares \
                 is not known",
                ledger.path.display()
            ),
        }
        ledger
    }

    fn read(&mut self, line: &str) {
        self.lines += 1;
        let words: Vec<&str> = line.split(' ').collect();
        let read = match *words {
            ["limit", uuid, subvolume, bytes, directory, "."] => {
                let read = || {
                    let bytes = bytes.parse().ok()?;
                    Some((qgroup(uuid, subvolume)?, bytes, unescaped(directory)?))
                };
                read().map(|(qgroup, bytes, directory)| self.remember(qgroup, bytes, &directory))
            }
            ["settled", uuid, subvolume, bytes, "."] => qgroup(uuid, subvolume)
                .zip(bytes.parse().ok())
                .map(|(qgroup, bytes)| self.note(qgroup, Settled::Has(bytes))),
            ["forget", uuid, subvolume, "."] => {
                qgroup(uuid, subvolume).map(|qgroup| self.note(qgroup, Settled::NotOurs))
            }
            _ => None,
        };
        self.is_torn |= read.is_none();
    }

    fn remember(&mut self, qgroup: Qgroup, bytes: u64, directory: &Path) {
        let known = self
            .ours
            .entry(qgroup)
            .or_insert_with(|| OurLimit { values: Vec::new(), directory: directory.to_owned() });
        known.values.retain(|value| *value != bytes);
        known.values.push(bytes);
        if known.values.len() > VALUES_MAX {
            known.values.remove(0);
        }
        if known.directory != directory {
            directory.clone_into(&mut known.directory);
        }
    }

    fn note(&mut self, qgroup: Qgroup, settled: Settled) {
        match settled {
            Settled::NotOurs => drop(self.ours.remove(&qgroup)),
            Settled::Has(bytes) => {
                if let Some(known) = self.ours.get_mut(&qgroup) {
                    known.values = vec![bytes];
                }
            }
        }
    }

    pub(super) fn limit(&self, qgroup: &Qgroup) -> Option<&OurLimit> {
        self.ours.get(qgroup)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&Qgroup, &OurLimit)> {
        self.ours.iter()
    }

    /// Writes down limits that are to be set, durably: by what, how many bytes, of which directory.
    pub(super) fn add(&mut self, limits: &[(Qgroup, u64, &Path)]) -> Result<(), String> {
        let is_new = |(qgroup, bytes, directory): &&(Qgroup, u64, &Path)| {
            let known = self.ours.get(qgroup);
            known.is_none_or(|known| {
                known.values.last() != Some(bytes) || known.directory != *directory
            })
        };
        let new: Vec<_> = limits.iter().filter(is_new).collect();
        let lines = new.iter().map(|(qgroup, bytes, at)| limit_line(qgroup, *bytes, at));
        self.write(&lines.collect::<Vec<_>>())?;
        for (qgroup, bytes, directory) in new {
            self.remember(*qgroup, *bytes, directory);
        }
        Ok(())
    }

    /// Notes what the disk is known to have, durably.
    pub(super) fn settle(&mut self, settled: &[(Qgroup, Settled)]) -> Result<(), String> {
        let is_news = |(qgroup, settled): &&(Qgroup, Settled)| {
            let known = self.ours.get(qgroup);
            known.is_some_and(|known| match settled {
                Settled::NotOurs => true,
                Settled::Has(bytes) => known.values != [*bytes],
            })
        };
        let news: Vec<_> = settled.iter().filter(is_news).copied().collect();
        let lines = news.iter().map(|(qgroup, settled)| settled_line(qgroup, *settled));
        self.write(&lines.collect::<Vec<_>>())?;
        for (qgroup, settled) in news {
            self.note(qgroup, settled);
        }
        Ok(())
    }

    /// Writes lines, durably.
    fn write(&mut self, lines: &[String]) -> Result<(), String> {
        if lines.is_empty() {
            return Ok(());
        }
        self.lines += lines.len();
        let text = lines.concat();
        let is_mostly_old = self.lines > 2 * self.ours.len() + OLD_LINES_MIN;
        let is_whole = self.is_torn || is_mostly_old || !self.path.exists();
        let written = if is_whole { self.write_anew(&text) } else { self.append(&text) };
        // How far a write came that failed is not known.
        self.is_torn = written.is_err();
        written.map_err(|error| format!("{}: cannot be written: {error}", self.path.display()))
    }

    fn append(&self, text: &str) -> io::Result<()> {
        let mut file = identity::as_server(|| File::options().append(true).open(&self.path))??;
        file.write_all(text.as_bytes())?;
        file.sync_data()
    }

    fn write_anew(&mut self, new: &str) -> io::Result<()> {
        let mut text = HEAD.to_owned();
        for (qgroup, known) in &self.ours {
            for bytes in &known.values {
                text += &limit_line(qgroup, *bytes, &known.directory);
            }
        }
        text += new;
        self.lines = text.lines().count() - 1;
        durable_file::replace(&self.path, text.as_bytes())
    }
}

fn qgroup(uuid: &str, subvolume: &str) -> Option<Qgroup> {
    let uuid = u128::from_str_radix(uuid, 16).ok()?.to_be_bytes();
    Some(Qgroup { uuid, subvolume: subvolume.parse().ok()? })
}

fn limit_line(qgroup: &Qgroup, bytes: u64, directory: &Path) -> String {
    let Qgroup { uuid, subvolume } = qgroup;
    let uuid = u128::from_be_bytes(*uuid);
    format!("limit {uuid:032x} {subvolume} {bytes} {} .\n", escaped(directory))
}

fn settled_line(qgroup: &Qgroup, settled: Settled) -> String {
    let (uuid, subvolume) = (u128::from_be_bytes(qgroup.uuid), qgroup.subvolume);
    match settled {
        Settled::Has(bytes) => format!("settled {uuid:032x} {subvolume} {bytes} .\n"),
        Settled::NotOurs => format!("forget {uuid:032x} {subvolume} .\n"),
    }
}

/// A path as one word of a line.
pub(crate) fn escaped(path: &Path) -> String {
    let mut word = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'!'..=b'~' if *byte != b'%' => word.push(char::from(*byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(word, "%{byte:02x}")),
        }
    }
    word
}

/// The path of a word that [`escaped`] has made.
pub(crate) fn unescaped(word: &str) -> Option<PathBuf> {
    let mut parts = word.split('%');
    let mut path = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        path.push(u8::from_str_radix(digits, 16).ok()?);
        path.extend_from_slice(rest.as_bytes());
    }
    Some(OsString::from_vec(path).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(subvolume: u64) -> Qgroup {
        Qgroup { uuid: [7; 16], subvolume }
    }

    fn set(ledger: &mut Ledger, subvolume: u64, bytes: u64, directory: &str) {
        ledger.add(&[(group(subvolume), bytes, Path::new(directory))]).expect("written");
    }

    #[test]
    fn every_value_is_ours_until_the_disk_has_a_later_one() {
        let place = tempfile::tempdir().expect("a directory");
        let mut ledger = Ledger::open(place.path());
        set(&mut ledger, 257, 6, "/srv/b");
        // The one before the last may be what the disk has, however often the last one was tried.
        for bytes in [5, 8, 10, 10, 10] {
            set(&mut ledger, 256, bytes, "/srv/a b%");
        }
        let again = Ledger::open(place.path());
        assert_eq!((&again.ours, again.is_torn), (&ledger.ours, false));
        let known = &again.ours[&group(256)];
        let expected = OurLimit { values: vec![5, 8, 10], directory: "/srv/a b%".into() };
        assert_eq!(*known, expected);
        assert!(known.is_ours(5) && known.is_ours(8) && !known.is_ours(6));

        // What was set before is the last one again.
        set(&mut ledger, 256, 5, "/srv/a");
        assert_eq!(Ledger::open(place.path()).ours[&group(256)].values, [8, 10, 5]);
        let settled = [(group(256), Settled::Has(5)), (group(257), Settled::NotOurs)];
        ledger.settle(&settled).expect("written");
        let again = Ledger::open(place.path());
        assert_eq!(again.ours, ledger.ours);
        let expected = OurLimit { values: vec![5], directory: "/srv/a".into() };
        assert_eq!(again.ours, HashMap::from([(group(256), expected)]));
        // No news, no line.
        let length = std::fs::metadata(&ledger.path).expect("written").len();
        ledger.settle(&settled).expect("written");
        set(&mut ledger, 256, 5, "/srv/a");
        assert_eq!(std::fs::metadata(&ledger.path).expect("written").len(), length);
    }

    #[test]
    fn a_line_that_was_cut_or_damaged_is_none_and_what_comes_next_is_read() {
        let place = tempfile::tempdir().expect("a directory");
        let mut ledger = Ledger::open(place.path());
        set(&mut ledger, 255, 77, "/srv/z");
        let good = std::fs::read(&ledger.path).expect("written").len();
        set(&mut ledger, 256, 1234, "/srv/a");
        let text = std::fs::read(&ledger.path).expect("written");
        let read_with = |bytes: &[u8], what: &str| {
            std::fs::write(&ledger.path, bytes).expect("written");
            let mut read = Ledger::open(place.path());
            let value = |number| read.ours.get(&group(number)).map(|known| known.values.clone());
            assert!(value(256).is_none_or(|values| values == [1234]), "{what}");
            let has_first = value(255) == Some(vec![77]);
            set(&mut read, 300, 9, "/srv/c");
            let again = Ledger::open(place.path());
            assert!(again.ours.contains_key(&group(300)) && !again.is_torn, "{what}");
            assert_eq!(again.ours, read.ours, "{what}");
            has_first
        };
        for cut in 0..text.len() {
            let has_first = read_with(&text[..cut], &format!("cut at {cut}"));
            assert_eq!(has_first, cut >= good - 1, "{cut}");
        }
        for place in good..text.len() {
            let mut damaged = text.clone();
            // No UTF-8.
            damaged[place] = 0xff;
            assert!(read_with(&damaged, &format!("damaged at {place}")), "{place}");
        }
    }

    #[test]
    fn old_lines_go_and_values_are_not_kept_without_end() {
        let place = tempfile::tempdir().expect("a directory");
        let mut ledger = Ledger::open(place.path());
        for round in 0..3 * OLD_LINES_MIN as u64 {
            set(&mut ledger, 256, round, "/srv/a");
            ledger.settle(&[(group(256), Settled::Has(round))]).expect("written");
        }
        let lines = || std::fs::read_to_string(place.path().join(FILE_NAME)).expect("written");
        assert!(lines().lines().count() <= OLD_LINES_MIN + 10);
        let last = 3 * OLD_LINES_MIN as u64 - 1;
        assert_eq!(Ledger::open(place.path()).ours[&group(256)].values, [last]);
        for round in 0..3 * VALUES_MAX as u64 {
            set(&mut ledger, 256, round, "/srv/a");
        }
        let known = &Ledger::open(place.path()).ours[&group(256)];
        assert_eq!(known.values.len(), VALUES_MAX);
        assert_eq!(known.values.last(), Some(&(3 * VALUES_MAX as u64 - 1)));
    }
}
