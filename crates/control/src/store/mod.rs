//! The shares that are kept: the files of `shares.d`, and the history of what tools did to them.
//!
//! [`Store::apply`] changes the texts in memory, writes one record into the history, which makes
//! the batch durable, and answers. The files themselves are written soon after, by whoever calls
//! [`Store::take_writes`], [`FileWrite::perform`] (without holding a lock) and
//! [`Store::note_writes`]. When the server starts, records that the files do not have yet are put
//! into them: each says what a segment of a file is to be, so doing it twice changes nothing. A
//! crash at any point loses no batch that was answered, and leaves no file half written.
//!
//! People edit the files meanwhile. An edited file is never written over: [`Store::reload`] takes
//! it, with what tools did since it was written put into it.

mod files;
mod history;
mod log;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub use files::{FileWrite, FileWritten};
pub use history::{Found, Line, OPERATIONS_KEPT, Record, Scanned, scan};
pub use log::{STATES_KEPT, State};

use files::{Fingerprint, WriteProblem};
use log::HistoryFile;
use steadfast_catalog::manage::{Batch, DefaultsSpec, Mistake};
use steadfast_catalog::{Applied, Catalog, Edit, FixedShare, GroupFile, Item, ShareChange};
use steadfast_sys::process;

/// The history's file in the state directory.
pub const HISTORY_NAME: &str = "shares.history";

/// What a store is opened with.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The directory of the groups' files. It is made if it is missing.
    pub shares_directory: PathBuf,
    /// The directory of the history; it is this server's alone.
    pub state_directory: PathBuf,
    /// `[defaults]` of `steadfast.toml`.
    pub defaults: DefaultsSpec,
    /// Shares of `steadfast.toml` and of the command line.
    pub fixed: Vec<FixedShare>,
    /// By how many threads files are read.
    pub threads: usize,
}

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another server keeps its shares in the same directory.
    #[error(
        "the directory of shares {0} is in use by another server: give this one its own with shares_directory in [server]"
    )]
    InUse(PathBuf),
    /// A directory or the history cannot be used.
    #[error("{path}: {error}")]
    Unusable {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

/// Why a batch was not done.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// There is something wrong with it.
    #[error("{} mistakes", .0.len())]
    Mistakes(Vec<Mistake>),
    /// There is no such state in the history.
    #[error("the history has no state {wanted}: it goes from {oldest} to {newest}")]
    NoState {
        /// The one asked for.
        wanted: u64,
        /// The oldest that can be gone back to.
        oldest: u64,
        /// The one that is.
        newest: u64,
    },
    /// The files cannot be changed.
    #[error("shares cannot be changed: {0}")]
    ReadOnly(String),
    /// The batch could not be made durable, so it was not done.
    #[error("the history of shares cannot be written: {0}")]
    History(io::Error),
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// The number of the state that is now.
    pub sequence: u64,
    /// The texts that were changed; empty if nothing was, and then there is no new state.
    pub edits: Vec<Edit>,
    /// The shares that are served otherwise, by path.
    pub changes: Vec<ShareChange>,
    /// What was left out, and why: of a partial batch, or since its group is gone.
    pub left_out: Vec<Mistake>,
    /// What was so already, and may be a slip of the pen.
    pub notes: Vec<Mistake>,
}

/// The shares that are kept.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    catalog: Catalog,
    history: HistoryFile,
    /// What the files were when they were read or written last.
    prints: BTreeMap<String, Fingerprint>,
    /// Edits that the files do not have, by group, with their record.
    unwritten: BTreeMap<String, Vec<(u64, Edit)>>,
    /// Up to which record the files of groups have everything, where others have less.
    written: BTreeMap<String, u64>,
    /// Files that somebody edited, and that are not written until they are read again.
    edited: BTreeSet<String>,
    /// Why nothing can be changed.
    read_only: Option<String>,
    _lock: Option<File>,
}

impl Store {
    /// Opens the store: reads the files, and puts into them what the history has beyond them. The
    /// second value is what is wrong with some of it; the rest is served.
    ///
    /// # Errors
    /// When the directory is in use by another server, or the history cannot be read.
    pub fn open(options: StoreOptions) -> Result<(Self, Vec<Mistake>), StoreError> {
        let directory = options.shares_directory;
        let unusable = |path: &Path| {
            let path = path.to_owned();
            move |error| StoreError::Unusable { path, error }
        };
        let mut read_only = None;
        if let Err(error) = std::fs::create_dir_all(&directory) {
            read_only = Some(format!("{} cannot be made: {error}", directory.display()));
        } else if let Err(error) = rustix::fs::access(&directory, rustix::fs::Access::WRITE_OK) {
            let error = io::Error::from(error);
            read_only = Some(format!("{} cannot be written: {error}", directory.display()));
        }
        let lock = match File::open(&directory) {
            Ok(file) => {
                if !process::lock_exclusively(&file).map_err(unusable(&directory))? {
                    return Err(StoreError::InUse(directory));
                }
                Some(file)
            }
            Err(error) if read_only.is_some() && error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(unusable(&directory)(error)),
        };
        let history_path = options.state_directory.join(HISTORY_NAME);
        let opened = HistoryFile::open(history_path.clone()).map_err(unusable(&history_path))?;
        let mut mistakes: Vec<Mistake> = opened
            .damaged
            .into_iter()
            .map(|(line, what)| Mistake {
                place: format!("{}:{line}", history_path.display()),
                what: format!("{what}: what it says is lost"),
                ..Mistake::default()
            })
            .collect();
        let (entries, strangers) = files::list(&directory).map_err(unusable(&directory))?;
        mistakes.extend(strangers);
        let shown = directory.display().to_string();
        let mut store = Self {
            catalog: Catalog::new(&shown, options.defaults, options.fixed),
            directory,
            history: opened.history,
            prints: BTreeMap::new(),
            unwritten: BTreeMap::new(),
            written: opened.written_groups,
            edited: BTreeSet::new(),
            read_only,
            _lock: lock,
        };
        let read = files::read_all(&entries, options.threads.max(1));
        for (entry, read) in entries.into_iter().zip(read) {
            match read {
                Ok((file, print)) => {
                    store.catalog.insert(file);
                    store.prints.insert(entry.group, print);
                }
                Err(mistake) => {
                    // Not written over, whatever the history has for it; and its shares are not
                    // served without what they inherit.
                    store.catalog.set_unreadable(&entry.group, true);
                    store.edited.insert(entry.group);
                    mistakes.push(mistake);
                }
            }
        }
        let mut gone = BTreeSet::new();
        for record in opened.pending {
            for edit in record.edits.iter().filter(|edit| edit.item == Item::File) {
                gone.remove(&edit.group);
            }
            gone.extend(store.catalog.merge_all(&record.edits));
            store.note_unwritten(record.sequence, &record.edits);
        }
        for group in gone {
            mistakes.push(store.went_with_file(&group));
            mistakes.extend(store.note_gone(&group));
        }
        Ok((store, mistakes))
    }

    /// All shares and groups, and what became of them.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The number of the state that is.
    pub fn sequence(&self) -> u64 {
        self.history.last()
    }

    /// The states of the history, oldest first. One can go back to each of them, and to the one
    /// before the first.
    pub fn states(&self) -> &[State] {
        self.history.states()
    }

    /// What made a state.
    ///
    /// # Errors
    /// When there is no such state, or it cannot be read.
    pub fn record(&self, sequence: u64) -> Result<Record, ApplyError> {
        let state = self.states().iter().find(|state| state.sequence == sequence);
        let state = state.ok_or_else(|| self.no_state(sequence))?;
        self.history.record(state).map_err(ApplyError::History)
    }

    /// Why nothing can be changed, if so.
    pub fn read_only(&self) -> Option<&str> {
        self.read_only.as_deref()
    }

    /// Tells which directories are below the parent of a pattern
    /// ([`Catalog::set_directories`]).
    pub fn set_directories<'a>(
        &mut self,
        group: &str,
        pattern: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Vec<ShareChange> {
        self.catalog.set_directories(group, pattern, names)
    }

    /// Replaces what is of `steadfast.toml` and of the command line.
    pub fn set_base(&mut self, defaults: DefaultsSpec, fixed: Vec<FixedShare>) -> Vec<ShareChange> {
        self.catalog.set_base(defaults, fixed)
    }

    /// What a batch would do.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn try_out(&mut self, batch: &Batch) -> Result<Applied, Vec<Mistake>> {
        self.catalog.try_out(batch)
    }

    /// Does a batch; on return it is durable. `who` is for the history.
    ///
    /// # Errors
    /// Why it was not done; nothing has changed then.
    pub fn apply(&mut self, batch: &Batch, who: &str) -> Result<Done, ApplyError> {
        self.refuse_read_only()?;
        let applied = self.catalog.apply(batch).map_err(ApplyError::Mistakes)?;
        let operations = batch.operations.iter().take(OPERATIONS_KEPT).cloned().collect();
        let record = Record {
            who: who.to_owned(),
            comment: batch.comment.clone(),
            operations,
            operations_total: batch.operations.len(),
            edits: applied.edits,
            ..Record::default()
        };
        let done = self.commit(record, applied.changes, applied.left_out)?;
        Ok(Done { notes: applied.notes, ..done })
    }

    /// What going back to a state would change, in the order in which it is put in.
    ///
    /// # Errors
    /// When there is no such state, or the history cannot be read.
    pub fn way_back(&self, to: u64) -> Result<Vec<Edit>, ApplyError> {
        let newest = self.sequence();
        let oldest = self.states().first().map_or(newest, |state| state.sequence - 1);
        if !(oldest..=newest).contains(&to) {
            return Err(self.no_state(to));
        }
        let mut edits = Vec::new();
        for state in self.states().iter().rev().take_while(|state| state.sequence > to) {
            let record = self.history.record(state).map_err(ApplyError::History)?;
            edits.extend(record.edits.iter().rev().map(Edit::inverse));
        }
        Ok(edits)
    }

    /// Goes back to a state, as a new one.
    ///
    /// # Errors
    /// Why not; nothing has changed then.
    pub fn rollback(&mut self, to: u64, who: &str) -> Result<Done, ApplyError> {
        self.refuse_read_only()?;
        let before = self.catalog.clone();
        let Done { edits, changes, left_out, .. } = self.put_back(to)?;
        let record =
            Record { who: who.to_owned(), rolled_back_to: Some(to), edits, ..Record::default() };
        let done = self.commit(record, changes, left_out);
        if done.is_err() {
            self.catalog = before;
        }
        done
    }

    /// What going back to a state would do; nothing has changed afterwards.
    ///
    /// # Errors
    /// When there is no such state, or the history cannot be read.
    pub fn try_rollback(&mut self, to: u64) -> Result<Done, ApplyError> {
        // The edits say what was there at their time, which may be something else now: their inverse would bring back
        // what somebody has taken out of a file by hand.
        let before = self.catalog.clone();
        let done = self.put_back(to);
        self.catalog = before;
        Ok(Done { sequence: self.sequence(), ..done? })
    }

    /// Has the catalogue as it was in a state, and tells what that changed.
    fn put_back(&mut self, to: u64) -> Result<Done, ApplyError> {
        let mut edits = self.way_back(to)?;
        let (changes, gone) = self.catalog.put_back(&mut edits);
        let what = "not all of that state came back: it has shares of this group, whose file was \
                    removed; create the group, or write the file, and go back again";
        let place = |group: &str| files::path_of(&self.directory, group);
        let left_out = gone.iter().map(|group| files::mistake(&place(group), what)).collect();
        Ok(Done { edits, changes, left_out, ..Done::default() })
    }

    /// Makes what was done to the catalogue durable, or takes it back.
    fn commit(
        &mut self,
        mut record: Record,
        changes: Vec<ShareChange>,
        left_out: Vec<Mistake>,
    ) -> Result<Done, ApplyError> {
        if record.edits.is_empty() {
            let sequence = self.sequence();
            return Ok(Done { sequence, left_out, ..Done::default() });
        }
        record.sequence = self.sequence() + 1;
        record.time_ms = now_ms();
        if let Err(error) = self.history.append(&record) {
            self.catalog.take_back(&record.edits);
            return Err(ApplyError::History(error));
        }
        if !record.by_hand {
            self.note_unwritten(record.sequence, &record.edits);
        }
        let (sequence, edits) = (record.sequence, record.edits);
        Ok(Done { sequence, edits, changes, left_out, ..Done::default() })
    }

    fn refuse_read_only(&self) -> Result<(), ApplyError> {
        self.read_only.clone().map_or(Ok(()), |why| Err(ApplyError::ReadOnly(why)))
    }

    fn no_state(&self, wanted: u64) -> ApplyError {
        let newest = self.sequence();
        let oldest = self.states().first().map_or(newest, |state| state.sequence - 1);
        ApplyError::NoState { wanted, oldest, newest }
    }

    fn note_unwritten(&mut self, sequence: u64, edits: &[Edit]) {
        for edit in edits {
            let group = self.unwritten.entry(edit.group.to_string()).or_default();
            group.push((sequence, edit.clone()));
        }
    }

    /// Whether there are files to be written.
    pub fn has_writes(&self) -> bool {
        self.unwritten.keys().any(|group| !self.edited.contains(group))
    }

    /// The files that have to be written, with their texts as they are now.
    pub fn take_writes(&self) -> Vec<FileWrite> {
        let groups = self.unwritten.keys().filter(|group| !self.edited.contains(*group));
        groups
            .map(|group| FileWrite {
                group: group.clone(),
                path: files::path_of(&self.directory, group),
                text: self.catalog.file(group).map(GroupFile::text),
                expected: self.prints.get(group).copied(),
                sequence: self.sequence(),
            })
            .collect()
    }

    /// Notes what came of writing. Returns what went wrong; a file that somebody else edited is
    /// written after [`Store::reload`].
    pub fn note_writes(&mut self, written: Vec<FileWritten>) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        for file in written {
            let path = files::path_of(&self.directory, &file.group);
            match file.result {
                Ok(print) => {
                    match print {
                        Some(print) => self.prints.insert(file.group.clone(), print),
                        None => self.prints.remove(&file.group),
                    };
                    self.written.insert(file.group.clone(), file.sequence);
                    if let Some(edits) = self.unwritten.get_mut(&file.group) {
                        edits.retain(|(sequence, _)| *sequence > file.sequence);
                        if edits.is_empty() {
                            self.unwritten.remove(&file.group);
                        }
                    }
                }
                Err(WriteProblem::Edited) => {
                    self.edited.insert(file.group);
                    let what = "was edited: it is written when it has been read again";
                    mistakes.push(files::mistake(&path, what));
                }
                Err(WriteProblem::Failed(error)) => {
                    mistakes.push(files::mistake(&path, format!("cannot be written: {error}")));
                }
            }
        }
        let first =
            self.unwritten.values().filter_map(|edits| edits.first()).map(|(n, _)| *n).min();
        let written = first.map_or(self.sequence(), |first| first - 1);
        self.written.retain(|_, sequence| *sequence > written);
        let mut noted = self.history.note_written(written, &self.written);
        if noted.is_ok() && self.history.is_long() {
            let unwritten = self.unwritten.values().flatten();
            noted = self.history.shorten(&unwritten.map(|(sequence, _)| *sequence).collect());
        }
        if let Err(error) = noted {
            let path = Path::new(HISTORY_NAME);
            mistakes.push(files::mistake(path, format!("cannot be written: {error}")));
        }
        mistakes
    }

    /// Writes all files that have to be; for stopping, and where nobody waits.
    pub fn write_files(&mut self) -> Vec<Mistake> {
        let written = self.take_writes().into_iter().map(FileWrite::perform).collect();
        self.note_writes(written)
    }

    /// Reads files that somebody edited, made or removed. One with mistakes that were not there
    /// before is not taken: the shares stay as they were, and the file is not written over. What
    /// tools did since a file was written is put into it; if it was removed, that is left out. The
    /// second value is what is wrong.
    ///
    /// # Errors
    /// When the directory cannot be read, or the history cannot be written.
    pub fn reload(&mut self, who: &str) -> Result<(Done, Vec<Mistake>), ApplyError> {
        let unreadable = |error: io::Error| {
            ApplyError::ReadOnly(format!("{} cannot be read: {error}", self.directory.display()))
        };
        let (entries, mut mistakes) = files::list(&self.directory).map_err(unreadable)?;
        let mut done = Done { sequence: self.sequence(), ..Done::default() };
        let mut gone: BTreeSet<String> = self.prints.keys().chain(&self.edited).cloned().collect();
        for entry in entries {
            gone.remove(&entry.group);
            let known = self.prints.get(&entry.group).copied();
            let now = Fingerprint::at(&entry.path).ok().flatten();
            if known.is_some() && known == now && !self.edited.contains(&entry.group) {
                continue;
            }
            match files::read(&entry.path) {
                Ok((text, print)) => {
                    self.take(&entry.group, Some((&text, print)), who, &mut done, &mut mistakes)?;
                }
                Err(mistake) => {
                    self.edited.insert(entry.group);
                    mistakes.push(mistake);
                }
            }
        }
        for group in gone {
            self.take(&group, None, who, &mut done, &mut mistakes)?;
        }
        Ok((done, mistakes))
    }

    /// Takes a file as somebody left it.
    fn take(
        &mut self,
        group: &str,
        found: Option<(&str, Fingerprint)>,
        who: &str,
        done: &mut Done,
        mistakes: &mut Vec<Mistake>,
    ) -> Result<(), ApplyError> {
        let before = self.catalog.file(group).map(GroupFile::text);
        let wrong_before: BTreeSet<String> =
            self.catalog.mistakes_in(group).into_iter().map(|mistake| mistake.what).collect();
        let pending: Vec<Edit> = self
            .unwritten
            .get(group)
            .map(|edits| edits.iter().map(|(_, edit)| edit.clone()).collect())
            .unwrap_or_default();
        // What tools did is put into the text of people.
        let (merged, gone) = {
            let mut alone = Catalog::new("", DefaultsSpec::default(), Vec::new());
            if let Some((text, _)) = found {
                alone.insert(GroupFile::parse(group, text));
            }
            let gone = alone.merge_all(&pending);
            (alone.file(group).map(GroupFile::text), gone)
        };
        let is_gone = found.is_none() && merged.is_none();
        let edit = Edit::of_file(group, before.as_deref(), merged.as_deref());
        if edit.before == edit.after {
            self.note_taken(group, found.map(|(_, print)| print));
            if is_gone {
                mistakes.extend(self.note_gone(group));
            }
            return Ok(());
        }
        let edits = vec![edit];
        let was_unreadable = self.catalog.set_unreadable(group, false);
        let changes = self.catalog.put_all(&edits);
        let wrong: Vec<Mistake> = self
            .catalog
            .mistakes_in(group)
            .into_iter()
            .filter(|mistake| !wrong_before.contains(&mistake.what))
            .collect();
        if !wrong.is_empty() {
            self.catalog.take_back(&edits);
            self.catalog.set_unreadable(group, was_unreadable);
            self.edited.insert(group.to_owned());
            mistakes.extend(wrong);
            return Ok(());
        }
        let record = Record { who: who.to_owned(), by_hand: true, edits, ..Record::default() };
        let taken = self.commit(record, changes, Vec::new());
        if taken.is_err() {
            // It is not taken now, and nothing may be put in its place.
            self.catalog.set_unreadable(group, was_unreadable);
        }
        let taken = taken?;
        self.note_taken(group, found.map(|(_, print)| print));
        if is_gone {
            mistakes.extend(self.note_gone(group));
        }
        done.left_out.extend(gone.iter().map(|group| self.went_with_file(group)));
        done.sequence = taken.sequence;
        done.edits.extend(taken.edits);
        done.changes.extend(taken.changes);
        Ok(())
    }

    /// Notes that a group's file was removed by somebody and has everything all the same: what
    /// tools did to it before is not to be done to a later file of this name.
    fn note_gone(&mut self, group: &str) -> Vec<Mistake> {
        if !self.unwritten.contains_key(group) {
            return Vec::new();
        }
        let written =
            FileWritten { group: group.to_owned(), sequence: self.sequence(), result: Ok(None) };
        self.note_writes(vec![written])
    }

    fn went_with_file(&self, group: &str) -> Mistake {
        let what = "the file was removed, and what tools had changed in it since it was written \
                    went with it";
        files::mistake(&files::path_of(&self.directory, group), what)
    }

    fn note_taken(&mut self, group: &str, print: Option<Fingerprint>) {
        match print {
            Some(print) => self.prints.insert(group.to_owned(), print),
            None => self.prints.remove(group),
        };
        self.edited.remove(group);
        self.catalog.set_unreadable(group, false);
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
