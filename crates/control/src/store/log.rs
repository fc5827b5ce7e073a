//! The file of the history.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use steadfast_catalog::{Edit, Item};
use steadfast_sys::durable_file;

use super::history::{Found, Line, Record, scan};

/// States that are kept at least.
pub const STATES_KEPT: usize = 32;
/// Records after which the file is made shorter, if it can be.
const RECORDS_MAX: usize = 256;
/// How much the file may have grown since then before that, in bytes.
const GROWTH_BYTES_MAX: u64 = 32 << 20;
/// Room that is made for lines to come, in bytes: a line that overwrites zeros is on the disk
/// without the file system's journal being written, which may take milliseconds.
const ROOM_BYTES: u64 = 1 << 20;
/// Room that is left when more is made before it is needed, in bytes.
const ROOM_BYTES_MIN: u64 = 1 << 18;
/// Longest file that is read, in bytes.
const BYTES_MAX: u64 = 4 << 30;

/// How many shares and groups a record added, removed and changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Shares added, removed, changed.
    pub shares: [usize; 3],
    /// Groups added, removed, changed.
    pub groups: [usize; 3],
}

impl Counts {
    fn of(edits: &[Edit]) -> Self {
        let mut counts = Self::default();
        let mut changed_groups = BTreeSet::new();
        for edit in edits {
            let kind = match (&edit.before, &edit.after) {
                (None, _) => 0,
                (Some(_), None) => 1,
                (Some(_), Some(_)) => 2,
            };
            match &edit.item {
                Item::Share(_) => count(&mut counts.shares, kind, 1),
                Item::File => {
                    if kind == 2 {
                        changed_groups.insert(&*edit.group);
                    } else {
                        count(&mut counts.groups, kind, 1);
                    }
                    let shares = |text: &Option<Box<str>>| {
                        text.as_ref().map_or(0, |text| {
                            text.lines()
                                .filter(|line| line.trim_start().starts_with("[[share]]"))
                                .count()
                        })
                    };
                    let (before, after) = (shares(&edit.before), shares(&edit.after));
                    count(&mut counts.shares, 0, after.saturating_sub(before));
                    count(&mut counts.shares, 1, before.saturating_sub(after));
                }
                Item::Group | Item::Pattern(_) => drop(changed_groups.insert(&*edit.group)),
            }
        }
        counts.groups[2] = changed_groups.len();
        counts
    }

    /// For people: `2 shares added, 1 group changed`; nothing if only remarks changed.
    pub fn text(&self) -> String {
        let kinds = ["added", "removed", "changed"];
        let words = |subject: &'static str, counts: [usize; 3]| {
            let counted = counts.into_iter().zip(kinds).filter(|(count, _)| *count > 0);
            counted.map(move |(count, kind)| {
                format!("{count} {subject}{} {kind}", if count == 1 { "" } else { "s" })
            })
        };
        let all = words("share", self.shares).chain(words("group", self.groups));
        all.collect::<Vec<_>>().join(", ")
    }
}

fn count(counts: &mut [usize; 3], kind: usize, more: usize) {
    if let Some(count) = counts.get_mut(kind) {
        *count += more;
    }
}

/// A record without what it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Counts the states, from 1.
    pub sequence: u64,
    /// When it came to be, in milliseconds since 1970.
    pub time_ms: u64,
    /// Who made it.
    pub who: String,
    /// Why.
    pub comment: Option<String>,
    /// The state that was gone back to.
    pub rolled_back_to: Option<u64>,
    /// Whether somebody edited the files.
    pub by_hand: bool,
    /// How many operations made it.
    pub operations_total: usize,
    /// How many segments of files it changed.
    pub edits: usize,
    /// What became of shares and groups.
    pub counts: Counts,
    /// Where its line is.
    offset: u64,
    bytes: u64,
}

impl State {
    fn new(record: &Record, offset: u64, bytes: u64) -> Self {
        Self {
            sequence: record.sequence,
            time_ms: record.time_ms,
            who: record.who.clone(),
            comment: record.comment.clone(),
            rolled_back_to: record.rolled_back_to,
            by_hand: record.by_hand,
            operations_total: record.operations_total,
            edits: record.edits.len(),
            counts: Counts::of(&record.edits),
            offset,
            bytes,
        }
    }
}

/// The open file.
#[derive(Debug)]
pub(super) struct HistoryFile {
    path: PathBuf,
    file: File,
    end: u64,
    /// Up to where there are zeros.
    room_end: u64,
    /// Its length when it was made last, in bytes; 0 if that was not by this server.
    began_at: u64,
    /// How many states it had then.
    began_with: usize,
    states: Vec<State>,
    /// Of these, how many are before a gap: what was damaged or is not needed any more. They
    /// cannot be gone back to, nor beyond them.
    before_gap: usize,
    /// Up to which record all groups' files have everything.
    written: u64,
    /// And those of groups that have more.
    written_groups: BTreeMap<String, u64>,
    /// A line could neither be written nor taken back: nothing more may follow it.
    is_broken: bool,
    /// Tests have the next line fail.
    #[cfg(test)]
    pub(super) fails: bool,
    /// Tests have the file fail just after it was put in the place of another.
    #[cfg(test)]
    pub(super) fails_in_place: bool,
}

/// What is found in a history that is opened.
pub(super) struct Opened {
    pub(super) history: HistoryFile,
    /// Records that the groups' files may not have.
    pub(super) pending: Vec<Record>,
    /// Up to which record the files of groups have everything, where others have less.
    pub(super) written_groups: BTreeMap<String, u64>,
    /// What is damaged, by line.
    pub(super) damaged: Vec<(usize, String)>,
}

impl HistoryFile {
    pub(super) fn open(path: PathBuf) -> io::Result<Opened> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)?;
        if file.metadata()?.len() > BYTES_MAX {
            let what = format!("longer than {BYTES_MAX} bytes: set it aside");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let bytes = std::fs::read(&path)?;
        let scanned = scan(&bytes);
        if scanned.valid_bytes < bytes.len() as u64 {
            file.set_len(scanned.valid_bytes)?;
            file.sync_all()?;
        }
        durable_file::sync_directory_of(&path)?;
        let end = scanned.valid_bytes;
        let mut history = Self {
            path,
            file,
            end,
            room_end: end,
            began_at: 0,
            began_with: 0,
            states: Vec::new(),
            before_gap: 0,
            written: 0,
            written_groups: BTreeMap::new(),
            is_broken: false,
            #[cfg(test)]
            fails: false,
            #[cfg(test)]
            fails_in_place: false,
        };
        let mut pending = Vec::new();
        for Found { offset, bytes, line } in scanned.lines {
            match line {
                Line::Record(record) => {
                    history.states.push(State::new(&record, offset, bytes));
                    pending.push(record);
                }
                Line::Written(sequence) => history.written = history.written.max(sequence),
                Line::WrittenGroups(groups) => history.written_groups.extend(groups),
            }
        }
        history.before_gap = before_gap(&history.states);
        // What people wrote was in their files before it was here. What a file has is not put into
        // it again: it may have been edited since then.
        pending.retain_mut(|record| {
            let written = &history.written_groups;
            record.edits.retain(|edit| {
                written.get(&*edit.group).is_none_or(|written| record.sequence > *written)
            });
            record.sequence > history.written && !record.by_hand && !record.edits.is_empty()
        });
        history.make_room(0)?;
        let written_groups = history.written_groups.clone();
        Ok(Opened { history, pending, written_groups, damaged: scanned.damaged })
    }

    /// The states that can be gone back to, and the one that is, oldest first.
    pub(super) fn states(&self) -> &[State] {
        self.states.get(self.before_gap..).unwrap_or_default()
    }

    /// The number of the state that is.
    pub(super) fn last(&self) -> u64 {
        let last = self.states.last().map_or(0, |state| state.sequence);
        last.max(self.written)
    }

    /// Adds a record; on return it is on the disk. On failure there is nothing of it.
    pub(super) fn append(&mut self, record: &Record) -> io::Result<()> {
        let (offset, bytes) = self.append_line(&Line::Record(record.clone()))?;
        self.states.push(State::new(record, offset, bytes));
        Ok(())
    }

    /// Notes up to which record all groups' files have everything, and those of groups that have
    /// more.
    pub(super) fn note_written(
        &mut self,
        sequence: u64,
        groups: &BTreeMap<String, u64>,
    ) -> io::Result<()> {
        if sequence > self.written {
            self.append_line(&Line::Written(sequence))?;
            self.written = sequence;
        }
        let new: BTreeMap<String, u64> = groups
            .iter()
            .filter(|(group, written)| self.written_groups.get(*group) != Some(*written))
            .map(|(group, written)| (group.clone(), *written))
            .collect();
        if !new.is_empty() {
            self.append_line(&Line::WrittenGroups(new))?;
        }
        self.written_groups.clone_from(groups);
        self.make_room(ROOM_BYTES_MIN)
    }

    fn append_line(&mut self, line: &Line) -> io::Result<(u64, u64)> {
        if self.is_broken {
            let what = "an earlier line could not be written, nor taken back: restart the server";
            return Err(io::Error::other(what));
        }
        let bytes = line.encode()?;
        let offset = self.end;
        let result = self.write(&bytes, offset);
        if let Err(error) = result {
            let is_back = self.file.set_len(offset).and_then(|()| self.file.sync_data());
            self.is_broken = is_back.is_err();
            self.room_end = offset;
            return Err(error);
        }
        self.end = offset + bytes.len() as u64;
        Ok((offset, bytes.len() as u64))
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        #[cfg(test)]
        if self.fails {
            let half = bytes.get(..bytes.len() / 2).unwrap_or_default();
            self.file.write_all_at(half, offset)?;
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.file.write_all_at(bytes, offset)?;
        self.file.sync_data()
    }

    /// Makes room for lines to come, if there is less than `least`.
    fn make_room(&mut self, least: u64) -> io::Result<()> {
        if self.room_end > self.end + least {
            return Ok(());
        }
        let start = self.room_end.max(self.end);
        let zeros = vec![0; usize::try_from(self.end + ROOM_BYTES - start).unwrap_or(0)];
        self.file.write_all_at(&zeros, start)?;
        self.file.sync_all()?;
        self.room_end = start + zeros.len() as u64;
        Ok(())
    }

    /// Reads a state's record again.
    pub(super) fn record(&self, state: &State) -> io::Result<Record> {
        let mut bytes = vec![0; usize::try_from(state.bytes).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, state.offset)?;
        let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        match Line::decode(line) {
            Ok(Line::Record(record)) => Ok(record),
            Ok(Line::Written(_) | Line::WrittenGroups(_)) => Err(io::Error::other("not a record")),
            Err(what) => Err(io::Error::new(io::ErrorKind::InvalidData, what)),
        }
    }

    /// Whether there may be many records that nobody needs. If most of them were needed when the
    /// file was made last, it waits until there are as many again.
    pub(super) fn is_long(&self) -> bool {
        let growth = GROWTH_BYTES_MAX.max(self.began_at);
        self.states.len() > RECORDS_MAX.max(2 * self.began_with)
            || (self.end > self.began_at + growth && self.states.len() > STATES_KEPT)
    }

    /// Makes the file anew with the last states, and with the records of these numbers: those that
    /// are not in the groups' files.
    pub(super) fn shorten(&mut self, needed: &BTreeSet<u64>) -> io::Result<()> {
        let spare = self.states.len().saturating_sub(STATES_KEPT);
        let mut states = Vec::new();
        let mut contents = Vec::new();
        for (index, state) in self.states.iter().enumerate() {
            if index < spare && !needed.contains(&state.sequence) {
                continue;
            }
            let mut line = vec![0; usize::try_from(state.bytes).unwrap_or(0)];
            self.file.read_exact_at(&mut line, state.offset)?;
            states.push(State { offset: contents.len() as u64, ..state.clone() });
            contents.extend_from_slice(&line);
        }
        contents.extend(Line::Written(self.written).encode()?);
        if !self.written_groups.is_empty() {
            contents.extend(Line::WrittenGroups(self.written_groups.clone()).encode()?);
        }
        match self.put_in_place(&contents) {
            Ok(file) => self.file = file,
            Err(error) => {
                // Lines that go on into a file without a name would be lost.
                self.is_broken = !self.is_in_place();
                return Err(error);
            }
        }
        self.end = contents.len() as u64;
        self.room_end = self.end;
        self.began_at = self.end;
        self.began_with = states.len();
        self.before_gap = before_gap(&states);
        self.states = states;
        self.make_room(0)
    }

    /// Puts another file in the place of this one.
    fn put_in_place(&self, contents: &[u8]) -> io::Result<File> {
        durable_file::replace(&self.path, contents)?;
        #[cfg(test)]
        if self.fails_in_place {
            return Err(io::Error::from(io::ErrorKind::Other));
        }
        OpenOptions::new().read(true).write(true).open(&self.path)
    }

    /// Whether the open file is the one that has the name.
    fn is_in_place(&self) -> bool {
        match (self.file.metadata(), self.path.metadata()) {
            (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
            _ => false,
        }
    }
}

/// How many states are before the last gap in their numbers.
fn before_gap(states: &[State]) -> usize {
    let gap = states.windows(2).rposition(|pair| match pair {
        [before, after] => before.sequence + 1 != after.sequence,
        _ => false,
    });
    gap.map_or(0, |gap| gap + 1)
}
