//! Processes that write until what they write to is gone, and note on this host's own disk what was promised to
//! them: what fsync, close or an `O_SYNC` write has returned for.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{PATIENCE, utf8};

const BLOCK_BYTES: usize = 3000;
/// With the files it has no divisor in common with how a block is written: each is written in every way.
const BLOCKS: u64 = 41;
const FILES: u64 = 4;

/// What such a process is told: its directory, its notes, the number with which it begins.
const WRITER: &str = "STEADFAST_TEST_PROMISED";

/// The content of a block in its n-th version.
fn block(version: u64) -> Vec<u8> {
    version.to_le_bytes().into_iter().cycle().take(BLOCK_BYTES).collect()
}

/// The work of such a process.
pub fn write() {
    let Some(told) = std::env::var_os(WRITER) else { return };
    let told = told.into_string().unwrap();
    let mut told = told.split('|');
    let mut next = || told.next().unwrap();
    let (at, notes) = (PathBuf::from(next()), next());
    let mut version: u64 = next().parse().unwrap();
    let mut notes = OpenOptions::new().create(true).append(true).open(notes).unwrap();
    // One line each, written at once: whoever kills this process finds whole lines.
    let mut note = |line: String| notes.write_all(line.as_bytes()).unwrap();
    let mut held: Vec<Option<File>> = (0..FILES).map(|_| None).collect();
    // Ends when the mount does.
    let mut step = || -> std::io::Result<()> {
        version += 1;
        let (file, number) = (version % FILES, version / FILES % BLOCKS);
        let path = at.join(format!("file{file}"));
        if version.is_multiple_of(7) {
            // A name, by way of another one.
            let (from, to) = (at.join("new"), at.join(format!("name{version}")));
            fs::write(&from, block(version))?;
            File::open(&from)?.sync_all()?;
            fs::rename(&from, &to)?;
            File::open(&at)?.sync_all()?;
            note(format!("name {version}\n"));
            return Ok(());
        }
        note(format!("try {file} {number} {version}\n"));
        let how = version % 5;
        if how == 0 {
            // Of this nothing is promised.
            let held = &mut held[file as usize];
            if held.is_none() {
                *held =
                    Some(OpenOptions::new().write(true).create(true).truncate(false).open(path)?);
            }
            let held = held.as_ref().unwrap();
            return held.write_all_at(&block(version), number * BLOCK_BYTES as u64);
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        if how == 1 {
            options.custom_flags(rustix::fs::OFlags::SYNC.bits() as i32);
        }
        let opened = options.open(path)?;
        opened.write_all_at(&block(version), number * BLOCK_BYTES as u64)?;
        if how == 2 {
            drop(opened);
            // The standard library does not tell what close says. Were the mount gone, this would fail as well.
            fs::metadata(&at)?;
        } else if how != 1 {
            opened.sync_all()?;
        }
        note(format!("done {file} {number} {version}\n"));
        Ok(())
    };
    let error = loop {
        if let Err(error) = step() {
            break error;
        }
    };
    eprintln!("a writer ends: {error}");
}

/// A process that writes.
pub struct Writer {
    child: Child,
    notes: File,
    promises: usize,
    /// The beginning of a line of the notes, whose end is not there yet.
    rest: Vec<u8>,
}

impl Writer {
    /// Starts one in a directory that is there. Its notes are those of earlier ones, too.
    pub fn start(at: &Path, notes: &Path) -> Self {
        let begin = Notes::read(notes).last;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "promised_writer", "--nocapture"]);
        command.env(WRITER, format!("{}|{}|{begin}", utf8(at), utf8(notes)));
        command.stdout(Stdio::null());
        let mut options = OpenOptions::new();
        let noted = options.read(true).append(true).create(true).open(notes).unwrap();
        Self { child: command.spawn().unwrap(), notes: noted, promises: 0, rest: Vec::new() }
    }

    /// How many promises were made, by it and earlier ones.
    fn promises(&mut self) -> usize {
        // What was read before is not read again.
        self.notes.read_to_end(&mut self.rest).unwrap();
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let rest = self.rest.split_off(whole);
        let lines = self.rest.split_inclusive(|byte| *byte == b'\n');
        self.promises += lines.filter(|line| !line.starts_with(b"try ")).count();
        self.rest = rest;
        self.promises
    }

    /// Waits until so many more promises were made.
    pub fn await_promises(&mut self, more: usize) {
        let (begun, wanted) = (Instant::now(), self.promises() + more);
        while self.promises() < wanted {
            assert!(begun.elapsed() < PATIENCE, "nothing goes on");
            assert!(self.child.try_wait().unwrap().is_none(), "the writer has ended");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether it has ended by itself, since a write has failed.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn end(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What was promised, and what was tried.
#[derive(Default)]
struct Notes {
    /// By file and block: the newest version that was promised, and the newest that was tried.
    blocks: BTreeMap<(u64, u64), (u64, u64)>,
    names: Vec<u64>,
    promises: usize,
    last: u64,
}

impl Notes {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut notes = Self::default();
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let mut words = line.split(' ');
            let what = words.next().unwrap();
            let numbers: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
            notes.last = notes.last.max(*numbers.last().unwrap());
            if what == "name" {
                notes.names.push(numbers[0]);
            } else {
                let block = notes.blocks.entry((numbers[0], numbers[1])).or_default();
                let version = if what == "done" { &mut block.0 } else { &mut block.1 };
                *version = numbers[2];
            }
            notes.promises += usize::from(what != "try");
        }
        notes
    }
}

/// What is not there that was promised.
pub struct Kept {
    pub promises: usize,
    pub lost: Vec<String>,
}

/// Compares what is in a directory with what was promised.
pub fn kept(at: &Path, notes: &Path) -> Kept {
    let notes = Notes::read(notes);
    let mut lost = Vec::new();
    for ((file, number), (promised, tried)) in &notes.blocks {
        let data = fs::read(at.join(format!("file{file}"))).unwrap_or_default();
        let start = *number as usize * BLOCK_BYTES;
        // What was under way when something died may be there in part: each word is of a version.
        let words = (start..start + BLOCK_BYTES).step_by(8).map(|at| {
            let word = data.get(at..at + 8).and_then(|word| word.first_chunk());
            word.map_or(0, |word| u64::from_le_bytes(*word))
        });
        if let Some(version) = words.into_iter().find(|it| it < promised || it > tried) {
            lost.push(format!(
                "block {number} of file{file}: {version} instead of {promised} to {tried}"
            ));
        }
    }
    for name in &notes.names {
        let data = fs::read(at.join(format!("name{name}")));
        if data.as_ref().ok() != Some(&block(*name)) {
            lost.push(format!("name{name}: {:?}", data.map(|data| data.len())));
        }
    }
    Kept { promises: notes.promises, lost }
}
