//! Processes that change files on mounts while servers die, and know what has to be there.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{PATIENCE, utf8};

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everything. Nothing of it may fail.
    Everything,
    /// The same, where a server may have forgotten what it has executed: then MKDIR that is sent again is refused,
    /// since the directory is there, and nobody can tell whose it is.
    Forgotten,
    /// Writes to files that are there.
    Data,
}

/// A process that changes its own directory, and knows what has to be there.
struct Worker {
    /// The directory by each of the mounts.
    ways: Vec<PathBuf>,
    random: u64,
    kind: Kind,
    files: BTreeMap<String, Vec<u8>>,
    directories: Vec<String>,
}

impl Worker {
    fn new(ways: Vec<PathBuf>, seed: u64, kind: Kind) -> Self {
        fs::create_dir(&ways[0]).unwrap();
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut files = BTreeMap::new();
        if kind == Kind::Data {
            for number in 0..6 {
                let name = format!("f{number}");
                fs::write(ways[0].join(&name), "").unwrap();
                files.insert(name, Vec::new());
            }
        }
        Self { ways, random, kind, files, directories: Vec::new() }
    }

    fn choose(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// What has this name, by any of the mounts.
    fn at(&mut self, name: &str) -> PathBuf {
        let way = self.choose(self.ways.len() as u64) as usize;
        self.ways[way].join(name)
    }

    /// What one mount has written another one sees when the server has it.
    fn end(&mut self, file: &File) {
        if self.ways.len() > 1 || self.choose(3) == 0 {
            file.sync_all().unwrap();
        }
    }

    fn name(&mut self) -> String {
        format!("f{}", self.choose(12))
    }

    fn known(&mut self) -> Option<String> {
        let index = self.choose(self.files.len().max(1) as u64) as usize;
        self.files.keys().nth(index).cloned()
    }

    fn data(&mut self) -> Vec<u8> {
        let (bytes, first) = (1 + self.choose(20_000) as usize, self.choose(256) as u8);
        (0..bytes).map(|at| first.wrapping_add((at / 7) as u8)).collect()
    }

    /// One change. Nothing of it may fail, whatever becomes of the server.
    fn step(&mut self) {
        let choice = if self.kind == Kind::Data { 25 } else { self.choose(100) };
        match choice {
            0..25 => {
                let (name, data) = (self.name(), self.data());
                let mut file = File::create(self.at(&name)).unwrap();
                file.write_all(&data).unwrap();
                self.end(&file);
                self.files.insert(name, data);
            }
            25..50 => {
                let Some(name) = self.known() else { return };
                let (offset, data) = (self.choose(20_000) as usize, self.data());
                let file = OpenOptions::new().write(true).open(self.at(&name)).unwrap();
                file.write_all_at(&data, offset as u64).unwrap();
                self.end(&file);
                let known = self.files.get_mut(&name).unwrap();
                known.resize(known.len().max(offset + data.len()), 0);
                known[offset..offset + data.len()].copy_from_slice(&data);
            }
            50..65 => {
                let (Some(from), to) = (self.known(), self.name()) else { return };
                let way = self.at("");
                fs::rename(way.join(&from), way.join(&to)).unwrap();
                let data = self.files.remove(&from).unwrap();
                self.files.insert(to, data);
            }
            65..75 => {
                let Some(name) = self.known() else { return };
                fs::remove_file(self.at(&name)).unwrap();
                self.files.remove(&name);
            }
            75..83 => {
                let name = self.name();
                let made = OpenOptions::new().write(true).create_new(true).open(self.at(&name));
                let is_known = self.files.contains_key(&name);
                assert_eq!(made.is_err(), is_known, "{name}: {made:?}");
                self.files.entry(name).or_default();
            }
            83..90 => {
                let Some(name) = self.known() else { return };
                let size = self.choose(20_000);
                let file = OpenOptions::new().write(true).open(self.at(&name)).unwrap();
                file.set_len(size).unwrap();
                self.files.get_mut(&name).unwrap().resize(size as usize, 0);
            }
            90..95 => {
                let name = format!("d{}", self.choose(1 << 40));
                match fs::create_dir(self.at(&name)) {
                    Err(error)
                        if self.kind == Kind::Forgotten
                            && error.kind() == ErrorKind::AlreadyExists => {}
                    made => made.unwrap(),
                }
                self.directories.push(name);
            }
            _ => {
                let Some(name) = self.directories.pop() else { return };
                fs::remove_dir(self.at(&name)).unwrap();
            }
        }
    }

    /// What has to be there is, and nothing else.
    fn check(&self, at: &Path) {
        let mut found: Vec<_> = fs::read_dir(at)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort_unstable();
        let mut wanted: Vec<_> = self.files.keys().chain(&self.directories).cloned().collect();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "names in {}", at.display());
        for (name, data) in &self.files {
            let is = fs::read(at.join(name)).unwrap();
            let differs = is.iter().zip(data).position(|(one, other)| one != other);
            let sizes = (is.len(), data.len());
            if is != *data {
                for way in &self.ways {
                    let other = fs::read(way.join(name)).map(|it| it == *data);
                    eprintln!("by {}: {other:?}", way.display());
                }
                eprintln!(
                    "to have {:?}, has {:?}",
                    &data[..data.len().min(4)],
                    &is[..is.len().min(4)]
                );
            }
            assert!(is == *data, "{name} in {}: {sizes:?}, from {differs:?}", at.display());
        }
    }
}

/// What a process of this program is told that is a worker. It is one of its own, since what this process
/// starts would close the worker's files, and wait for the server that is being started.
const WORKER: &str = "STEADFAST_TEST_WORKER";

/// The work of such a process: changes, until a file says that it is enough. What has to be there then is
/// in a directory of its own.
pub fn work() {
    let Some(told) = std::env::var_os(WORKER) else { return };
    let told = told.into_string().unwrap();
    let mut told = told.split('|');
    let mut next = || told.next().unwrap();
    let [ideal, progress, enough] = [next(), next(), next()].map(PathBuf::from);
    let seed: u64 = next().parse().unwrap();
    let kinds = [Kind::Everything, Kind::Forgotten, Kind::Data];
    let kind = next();
    let kind = kinds.into_iter().find(|it| format!("{it:?}") == kind).unwrap();
    let mut worker = Worker::new(told.map(PathBuf::from).collect(), seed, kind);
    let progress = File::create(progress).unwrap();
    let mut steps: u64 = 0;
    while !enough.exists() {
        worker.step();
        steps += 1;
        progress.write_all_at(&steps.to_le_bytes(), 0).unwrap();
    }
    for way in &worker.ways {
        worker.check(way);
    }
    fs::create_dir(&ideal).unwrap();
    for (name, data) in &worker.files {
        fs::write(ideal.join(name), data).unwrap();
    }
    for name in &worker.directories {
        fs::create_dir(ideal.join(name)).unwrap();
    }
}

/// Names and contents below a directory.
pub fn contents(at: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let entries = fs::read_dir(at).unwrap().map(Result::unwrap);
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, entry.file_type().unwrap().is_file().then(|| fs::read(entry.path()).unwrap()))
    };
    entries.map(read).collect()
}

/// Where the contents of directories differ.
pub fn differences(is: &Path, wanted: &Path) -> Vec<String> {
    let (is, wanted) = (contents(is), contents(wanted));
    let names: std::collections::BTreeSet<_> = is.keys().chain(wanted.keys()).collect();
    let differs = |name: &&String| is.get(*name) != wanted.get(*name);
    let describe = |name: &String| {
        let empty = Vec::new();
        let bytes = |of: &BTreeMap<String, Option<Vec<u8>>>| of.get(name).cloned().flatten();
        let (is, wanted) = (bytes(&is), bytes(&wanted));
        let pairs = is.as_ref().unwrap_or(&empty).iter().zip(wanted.as_ref().unwrap_or(&empty));
        let different: Vec<usize> =
            pairs.enumerate().filter(|(_, (one, other))| one != other).map(|(at, _)| at).collect();
        format!(
            "{name}: {:?} instead of {:?} bytes, {} differ, from {:?} to {:?}",
            is.map(|it| it.len()),
            wanted.map(|it| it.len()),
            different.len(),
            different.first(),
            different.last()
        )
    };
    names.into_iter().filter(differs).map(describe).collect()
}

pub struct Workers {
    at: PathBuf,
    children: Vec<(Child, PathBuf, PathBuf)>,
}

impl Workers {
    /// Starts some, each in a directory of its own, which it reaches by all of these mounts.
    pub fn start(local: &Path, mounts: &[&Path], count: u64) -> Self {
        Self::start_as(local, mounts, count, Kind::Everything)
    }

    pub fn start_as(local: &Path, mounts: &[&Path], count: u64, kind: Kind) -> Self {
        let start = |number: u64| {
            let name = format!("worker{number}");
            let (ideal, progress) = (local.join(&name), local.join(format!("{name}.steps")));
            let mut told =
                [&ideal, &progress, &local.join("enough")].map(|it| utf8(it).to_owned()).to_vec();
            told.extend([(number + 1).to_string(), format!("{kind:?}")]);
            told.extend(mounts.iter().map(|mount| utf8(&mount.join(&name)).to_owned()));
            let told = told.join("|");
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "worker", "--nocapture"]).env(WORKER, told);
            (command.stdout(Stdio::null()).spawn().unwrap(), ideal, progress)
        };
        Self { at: local.to_owned(), children: (0..count).map(start).collect() }
    }

    pub fn steps(&self) -> u64 {
        let read = |progress: &PathBuf| {
            let bytes = fs::read(progress).unwrap_or_default();
            bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        self.children.iter().map(|(_, _, progress)| read(progress)).sum()
    }

    /// Waits for as many steps more.
    pub fn await_steps(&mut self, more: u64, what: &str) {
        let (begun, wanted) = (Instant::now(), self.steps() + more);
        while self.steps() < wanted {
            assert!(begun.elapsed() < PATIENCE, "nothing goes on: {what}");
            for (child, ..) in &mut self.children {
                assert_eq!(child.try_wait().unwrap(), None, "a worker has ended: {what}");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends them; returns where each has left what has to be there.
    pub fn finish(mut self) -> Vec<PathBuf> {
        fs::write(self.at.join("enough"), "").unwrap();
        let wait = |(mut child, ideal, _): (Child, PathBuf, PathBuf)| {
            assert!(child.wait().unwrap().success(), "a worker has found something else");
            ideal
        };
        std::mem::take(&mut self.children).into_iter().map(wait).collect()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for (child, ..) in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
