//! A load that writes down what it was promised, and the check that the promises were kept.
//!
//! A ledger is a text file outside NFS. Before an operation the worker writes `? OPERATION`,
//! after it was acknowledged (data: after `fsync`) it writes `!`. So at any moment at most the
//! last operation of a ledger is undecided: it may be in effect or not, or partly; all others
//! have to be in effect.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;

use crate::cases::expect_bytes;
use crate::random::Random;

/// A file that stays open from start to end, so that its handle has to survive restarts.
const HELD: &str = "held";

#[derive(Debug, Clone)]
enum Operation {
    Create { name: String, seed: u64, length: u64 },
    Append { name: String, length: u64 },
    Rename { from: String, to: String },
    Link { from: String, to: String },
    Unlink { name: String },
    MakeDirectory { name: String },
    RemoveDirectory { name: String },
    Symlink { name: String },
}

impl Operation {
    fn to_line(&self) -> String {
        match self {
            Self::Create { name, seed, length } => format!("create {name} {seed} {length}"),
            Self::Append { name, length } => format!("append {name} {length}"),
            Self::Rename { from, to } => format!("rename {from} {to}"),
            Self::Link { from, to } => format!("link {from} {to}"),
            Self::Unlink { name } => format!("unlink {name}"),
            Self::MakeDirectory { name } => format!("mkdir {name}"),
            Self::RemoveDirectory { name } => format!("rmdir {name}"),
            Self::Symlink { name } => format!("symlink {name}"),
        }
    }

    fn parse(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let name = |word: &&str| (*word).to_owned();
        Ok(match words.as_slice() {
            ["create", n, seed, length] => {
                Self::Create { name: name(n), seed: seed.parse()?, length: length.parse()? }
            }
            ["append", n, length] => Self::Append { name: name(n), length: length.parse()? },
            ["rename", from, to] => Self::Rename { from: name(from), to: name(to) },
            ["link", from, to] => Self::Link { from: name(from), to: name(to) },
            ["unlink", n] => Self::Unlink { name: name(n) },
            ["mkdir", n] => Self::MakeDirectory { name: name(n) },
            ["rmdir", n] => Self::RemoveDirectory { name: name(n) },
            ["symlink", n] => Self::Symlink { name: name(n) },
            _ => bail!("the ledger has the line {line:?}"),
        })
    }

    fn names(&self) -> Vec<&str> {
        match self {
            Self::Rename { from, to } | Self::Link { from, to } => vec![from, to],
            Self::Create { name, .. }
            | Self::Append { name, .. }
            | Self::Unlink { name }
            | Self::MakeDirectory { name }
            | Self::RemoveDirectory { name }
            | Self::Symlink { name } => vec![name],
        }
    }

    /// A server that was killed between doing this and answering gets it again, and without a
    /// memory of replies across the crash its answer is this one.
    fn answer_of_repetition(&self) -> Option<Errno> {
        match self {
            // An exclusive CREATE carries a verifier, by which the server knows its own.
            Self::Create { .. } | Self::Append { .. } => None,
            Self::Link { .. } | Self::MakeDirectory { .. } | Self::Symlink { .. } => {
                Some(Errno::EXIST)
            }
            Self::Rename { .. } | Self::Unlink { .. } | Self::RemoveDirectory { .. } => {
                Some(Errno::NOENT)
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    /// Contents are shared by hard links: an index into [`State::contents`].
    File(usize),
    Directory,
    Symlink,
}

/// What a directory has to hold.
#[derive(Debug, Default)]
struct State {
    names: BTreeMap<String, Entry>,
    /// Seed and length of each file made.
    contents: Vec<(u64, u64)>,
}

impl State {
    fn apply(&mut self, operation: &Operation) -> Result<()> {
        let missing = || format!("{operation:?} of a name that is not there");
        match operation.clone() {
            Operation::Create { name, seed, length } => {
                self.contents.push((seed, length));
                self.names.insert(name, Entry::File(self.contents.len() - 1));
            }
            Operation::Append { name, length } => match self.names.get(&name) {
                Some(Entry::File(index)) => self.contents[*index].1 += length,
                _ => bail!(missing()),
            },
            Operation::Rename { from, to } => {
                let entry = self.names.remove(&from).with_context(missing)?;
                self.names.insert(to, entry);
            }
            Operation::Link { from, to } => {
                let entry = self.names.get(&from).with_context(missing)?.clone();
                self.names.insert(to, entry);
            }
            Operation::Unlink { name } | Operation::RemoveDirectory { name } => {
                self.names.remove(&name).with_context(missing)?;
            }
            Operation::MakeDirectory { name } => drop(self.names.insert(name, Entry::Directory)),
            Operation::Symlink { name } => drop(self.names.insert(name, Entry::Symlink)),
        }
        Ok(())
    }
}

/// `length` bytes at `offset` of the endless file of a seed.
fn pattern(seed: u64, offset: u64, length: u64) -> Vec<u8> {
    let first = offset / 8;
    let words = (offset + length).div_ceil(8) - first;
    let bytes: Vec<u8> = (first..first + words)
        .flat_map(|index| {
            (index ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).to_le_bytes()
        })
        .collect();
    let skip = (offset - first * 8) as usize;
    bytes[skip..skip + length as usize].to_vec()
}

/// Works until the stop file is there: `load DIRECTORY LEDGER SEED STOP`.
pub(crate) fn child(words: &[&str]) -> Result<()> {
    let [directory, ledger, seed, stop] = words else { bail!("load DIRECTORY LEDGER SEED STOP") };
    let mut worker = Worker {
        directory: PathBuf::from(directory),
        ledger: File::options().append(true).open(ledger)?,
        random: Random::new(seed.parse()?),
        state: State::default(),
        held: None,
        next_name: 0,
    };
    let seed = worker.random.next();
    worker.perform(&Operation::Create { name: HELD.to_owned(), seed, length: 10_000 })?;
    while !Path::new(stop).exists() {
        let operation = worker.choose();
        worker.perform(&operation).with_context(|| operation.to_line())?;
    }
    Ok(())
}

struct Worker {
    directory: PathBuf,
    ledger: File,
    random: Random,
    state: State,
    held: Option<File>,
    next_name: u64,
}

impl Worker {
    fn choose(&mut self) -> Operation {
        self.next_name += 1;
        let name = format!("name-{}", self.next_name);
        // Mostly a few KiB; sometimes more than one WRITE of the largest size.
        let length = match self.random.below(10) {
            0 => 1_000_000 + self.random.below(2_000_000),
            _ => 1 + self.random.below(40_000),
        };
        let seed = self.random.next();
        let pick = |random: &mut Random, state: &State, is_file: bool, is_directory: bool| {
            let fitting: Vec<&String> = state
                .names
                .iter()
                .filter(|(name, entry)| {
                    *name != HELD
                        && (!is_file || matches!(entry, Entry::File(_)))
                        && is_directory == (**entry == Entry::Directory)
                })
                .map(|(name, _)| name)
                .collect();
            let index = random.below(fitting.len() as u64) as usize;
            fitting.get(index).map(|name| (*name).clone())
        };
        let file = pick(&mut self.random, &self.state, true, false);
        let any = pick(&mut self.random, &self.state, false, false);
        let folder = pick(&mut self.random, &self.state, false, true);
        match (self.random.below(10), file, any, folder) {
            (0 | 1, ..) => Operation::Append { name: HELD.to_owned(), length },
            (2, Some(name), ..) => Operation::Append { name, length },
            (3, Some(from), ..) => Operation::Link { from, to: name },
            (4, _, Some(from), _) => Operation::Rename { from, to: name },
            (5, _, Some(name), _) => Operation::Unlink { name },
            (6, _, _, Some(name)) => Operation::RemoveDirectory { name },
            (7, ..) => Operation::MakeDirectory { name },
            (8, ..) => Operation::Symlink { name },
            _ => Operation::Create { name, seed, length },
        }
    }

    fn perform(&mut self, operation: &Operation) -> Result<()> {
        self.note(&format!("? {}\n", operation.to_line()))?;
        match self.attempt(operation) {
            Ok(()) => {}
            Err(error)
                if error.raw_os_error().map(Errno::from_raw_os_error)
                    == operation.answer_of_repetition()
                    && operation.answer_of_repetition().is_some() => {}
            Err(error) => return Err(error.into()),
        }
        self.state.apply(operation)?;
        self.note("!\n")?;
        // The open file has to be readable through its old handle at any time.
        if self.random.below(8) == 0 {
            self.read_held()?;
        }
        Ok(())
    }

    fn attempt(&mut self, operation: &Operation) -> io::Result<()> {
        let at = |name: &str| self.directory.join(name);
        match operation {
            Operation::Create { name, seed, length } => {
                let mut file =
                    File::options().read(true).write(true).create_new(true).open(at(name))?;
                file.write_all(&pattern(*seed, 0, *length))?;
                file.sync_all()?;
                if name == HELD {
                    self.held = Some(file);
                }
                Ok(())
            }
            Operation::Append { name, length } => {
                let Some(Entry::File(index)) = self.state.names.get(name) else {
                    return Err(io::Error::other("not a file"));
                };
                let (seed, old_length) = self.state.contents[*index];
                let bytes = pattern(seed, old_length, *length);
                let opened;
                let file = match &self.held {
                    Some(file) if name == HELD => file,
                    _ => {
                        opened = File::options().write(true).open(at(name))?;
                        &opened
                    }
                };
                // In two writes, so that one COMMIT covers several.
                let (left, right) = bytes.split_at(bytes.len() / 2);
                file.write_all_at(left, old_length)?;
                file.write_all_at(right, old_length + left.len() as u64)?;
                file.sync_all()
            }
            Operation::Rename { from, to } => std::fs::rename(at(from), at(to)),
            Operation::Link { from, to } => std::fs::hard_link(at(from), at(to)),
            Operation::Unlink { name } => std::fs::remove_file(at(name)),
            Operation::MakeDirectory { name } => std::fs::create_dir(at(name)),
            Operation::RemoveDirectory { name } => std::fs::remove_dir(at(name)),
            Operation::Symlink { name } => std::os::unix::fs::symlink("target", at(name)),
        }
    }

    fn read_held(&mut self) -> Result<()> {
        let (Some(file), Some(Entry::File(index))) = (&self.held, self.state.names.get(HELD))
        else {
            return Ok(());
        };
        let (seed, length) = self.state.contents[*index];
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
        let offset = self.random.below(length);
        let count = (length - offset).min(50_000);
        let mut bytes = vec![0; count as usize];
        file.read_exact_at(&mut bytes, offset).context("read of the held file")?;
        expect_bytes(&bytes, &pattern(seed, offset, count), "the held file")
    }

    fn note(&mut self, line: &str) -> Result<()> {
        self.ledger.write_all(line.as_bytes())?;
        self.ledger.sync_data()?;
        Ok(())
    }
}

/// How many operations a ledger says were acknowledged so far.
pub(crate) fn acknowledged(ledger: &Path) -> Result<usize> {
    Ok(std::fs::read_to_string(ledger)?.lines().filter(|line| *line == "!").count())
}

/// Compares a directory with its ledger; the number of operations that were acknowledged.
pub(crate) fn verify(directory: &Path, ledger: &Path) -> Result<usize> {
    let text = std::fs::read_to_string(ledger)?;
    let mut state = State::default();
    let mut undecided: Option<Operation> = None;
    let mut acknowledged = 0;
    for line in text.split_inclusive('\n') {
        // A line that the kill cut short was an intent at most: its operation never began.
        let Some(line) = line.strip_suffix('\n') else { break };
        match (line.strip_prefix("? "), undecided.take()) {
            (Some(intent), None) => undecided = Some(Operation::parse(intent)?),
            (None, Some(operation)) if line == "!" => {
                state.apply(&operation)?;
                acknowledged += 1;
            }
            _ => bail!("the ledger is out of order at {line:?}"),
        }
    }
    let loose: BTreeSet<&str> = undecided.iter().flat_map(|operation| operation.names()).collect();

    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        ensure!(found.insert(name.clone()), "{name} is listed twice");
        // What a killed client had renamed instead of unlinking stays, by the protocol.
        let is_known = state.names.contains_key(&name) || name.starts_with(".nfs");
        ensure!(is_known || loose.contains(name.as_str()), "{name} was removed or never made");
    }
    // Whatever is undecided, a file appended to keeps what it had, and a file renamed is
    // under one name or the other.
    let in_append = matches!(undecided, Some(Operation::Append { .. }));
    let in_link = matches!(undecided, Some(Operation::Link { .. }));
    for (name, entry) in &state.names {
        if loose.contains(name.as_str()) && !in_append && !in_link {
            continue;
        }
        ensure!(found.contains(name), "{name} is not listed");
        let path = directory.join(name);
        let status = std::fs::symlink_metadata(&path).with_context(|| name.clone())?;
        match entry {
            Entry::Directory => ensure!(status.is_dir(), "{name} is no directory"),
            Entry::Symlink => ensure!(status.is_symlink(), "{name} is no symbolic link"),
            Entry::File(index) => {
                let (seed, length) = state.contents[*index];
                let bytes = std::fs::read(&path).with_context(|| name.clone())?;
                ensure!(bytes.len() as u64 >= length, "{name}: {} of {length} bytes", bytes.len());
                let is_exact = bytes.len() as u64 == length || in_append;
                ensure!(is_exact, "{name}: {} bytes instead of {length}", bytes.len());
                let kept = &bytes[..length as usize];
                expect_bytes(kept, &pattern(seed, 0, length), name)?;
            }
        }
    }
    if let Some(Operation::Rename { from, to }) = &undecided {
        ensure!(
            found.contains(from) != found.contains(to),
            "the undecided rename of {from} to {to} left both names or none"
        );
    }
    Ok(acknowledged)
}
