//! Random reads, writes, truncations, mappings and direct I/O by several processes, each
//! checked against a model in memory.
//!
//! Each process has a file of its own, on which it does everything, and every n-th page of a
//! file that all share, on which it does what leaves the size alone. Ownership is by page
//! because a mapping writes back whole pages.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{Advice, OFlags};
use steadfast_sys::mapping::SharedMapping;

use crate::cases::expect_bytes;
use crate::children;
use crate::context::Context;
use crate::random::Random;

const PAGE: usize = 4096;
const LARGEST_FILE: usize = 768 * 1024;
const LARGEST_TRANSFER: usize = 96 * 1024;
/// Pages of the shared file that each process owns.
const SHARED_PAGES: usize = 40;
const KEPT_LOG: usize = 30;
/// Rounds of one run that the guest's kernel may spoil.
const SPOILT_ROUNDS_MAX: u64 = 20;

/// 20 seconds in the short version, ten minutes of such rounds in the long one; half of the
/// processes through a second mount with small transfers.
pub(crate) fn case(context: &Context) -> Result<()> {
    let (rounds, seconds) = (context.by_version(1, 30), 20);
    let mut spoilt = 0;
    let mut verified = 0;
    while verified < rounds {
        let (mount, directory) = context.mount_main("")?;
        let other = context.mount("main", "nosharecache,rsize=16384,wsize=8192")?;
        let elsewhere = other.path().join(context.case_name());
        let never = Path::new("/run/never");
        let seed = context.seed().wrapping_add((verified + spoilt) * 1000);
        let kills_before = kills_by_guest_kernel()?;
        let run = Run::start(context, seed, &directory, &elsewhere, 4, seconds, never)?;
        if let Err(error) = run.finish() {
            let kills = kills_by_guest_kernel()? - kills_before;
            if kills == 0 || kills < error.killed || error.failed > error.killed {
                return Err(error.into());
            }
            spoilt += 1;
            context.note(&format!("the guest's kernel killed {kills} processes: once more"))?;
            ensure!(spoilt < SPOILT_ROUNDS_MAX, "the guest's kernel spoilt {spoilt} rounds");
            continue;
        }
        mount.again()?;
        run.verify()?;
        verified += 1;
    }
    context.note(&format!("{verified} rounds of {seconds} s verified, {spoilt} spoilt"))
}

/// User-mode Linux kills a process when it does not find the page table of a mapping that it
/// should flush, which happens now and then where mappings and direct I/O meet. It says so.
fn kills_by_guest_kernel() -> Result<u64> {
    let messages = crate::mount::run("dmesg", &[])?;
    Ok(messages.lines().filter(|line| line.contains("Failed to flush page")).count() as u64)
}

/// Processes that work on one set of files.
pub(crate) struct Run {
    directory: PathBuf,
    models: PathBuf,
    count: usize,
    children: std::cell::RefCell<Vec<Child>>,
}

impl Run {
    /// Starts `count` processes that work for `seconds`, or for ever when that is 0, or until
    /// `stop` exists. Every second one uses its own file through `elsewhere`.
    pub(crate) fn start(
        context: &Context,
        seed: u64,
        directory: &Path,
        elsewhere: &Path,
        count: usize,
        seconds: u64,
        stop: &Path,
    ) -> Result<Self> {
        let models = context.scratch()?;
        File::create(directory.join("shared"))?.set_len((count * SHARED_PAGES * PAGE) as u64)?;
        let mut children = Vec::new();
        for index in 0..count {
            let own = if index % 2 == 0 { directory } else { elsewhere };
            children.push(children::start(&[
                "model",
                &own.join(format!("own-{index}")).to_string_lossy(),
                &directory.join("shared").to_string_lossy(),
                &models.to_string_lossy(),
                &format!("{index}/{count}"),
                &seed.to_string(),
                &seconds.to_string(),
                &stop.to_string_lossy(),
            ])?);
        }
        let directory = directory.to_owned();
        Ok(Self { directory, models, count, children: children.into() })
    }

    /// Waits for the processes.
    pub(crate) fn finish(&self) -> Result<(), children::Failures> {
        children::finish(self.children.take())
    }

    /// Compares the files with the models that the processes left; after a fresh mount these
    /// are the server's bytes.
    pub(crate) fn verify(&self) -> Result<()> {
        let shared = std::fs::read(self.directory.join("shared"))?;
        for index in 0..self.count {
            let own = format!("own-{index}");
            let expected = std::fs::read(self.models.join(&own))?;
            let found = std::fs::read(self.directory.join(&own))?;
            expect_bytes(&found, &expected, &format!("{own} from the server"))?;
            let stripes = std::fs::read(self.models.join(format!("shared-{index}")))?;
            for (number, page) in stripes.chunks(PAGE).enumerate() {
                let at = shared_offset(number, index, self.count);
                let found = shared.get(at..at + PAGE).context("the shared file is too short")?;
                expect_bytes(found, page, &format!("page at {at} of the shared file"))?;
            }
        }
        Ok(())
    }
}

fn shared_offset(page: usize, index: usize, count: usize) -> usize {
    (page * count + index) * PAGE
}

/// A process that did fewer has shown nothing. On a busy machine, with the server killed again and
/// again, it goes on until it has done as many, whatever the time.
const OPERATIONS_MIN: u64 = 20;

/// `model OWN SHARED MODELS INDEX/COUNT SEED SECONDS STOP`.
pub(crate) fn child(words: &[&str]) -> Result<()> {
    let [own, shared, models, place, seed, seconds, stop] = words else {
        bail!("model OWN SHARED MODELS INDEX/COUNT SEED SECONDS STOP")
    };
    let (index, count) = place.split_once('/').context("INDEX/COUNT")?;
    let (index, count): (usize, usize) = (index.parse()?, count.parse()?);
    let seed = seed.parse::<u64>()?.wrapping_add(index as u64);
    let seconds: u64 = seconds.parse()?;
    let end = (seconds > 0).then(|| Instant::now() + Duration::from_secs(seconds));
    let mut process = Process {
        own: Target::open(Path::new(own))?,
        shared: Target::open(Path::new(shared))?,
        model: Vec::new(),
        stripes: vec![0; SHARED_PAGES * PAGE],
        index,
        count,
        random: Random::new(seed),
        log: VecDeque::new(),
    };
    let mut done: u64 = 0;
    while done < OPERATIONS_MIN
        || end.is_none_or(|end| Instant::now() < end) && !Path::new(stop).exists()
    {
        if let Err(error) = process.step() {
            let log: Vec<String> = process.log.into_iter().collect();
            bail!(
                "process {index}, seed {seed}, operation {done}: {error:#}; the last ones: {}",
                log.join("; ")
            );
        }
        done += 1;
    }
    process.own.cached.sync_all()?;
    process.shared.cached.sync_all()?;
    std::fs::write(Path::new(models).join(format!("own-{index}")), &process.model)?;
    std::fs::write(Path::new(models).join(format!("shared-{index}")), &process.stripes)?;
    Ok(())
}

/// A file, opened through the page cache and past it.
struct Target {
    path: PathBuf,
    cached: File,
    direct: File,
    /// Written through a mapping and not flushed since. Linux does not flush such pages before
    /// direct I/O that follows direct I/O (open(2) asks programs not to mix the two), so it is
    /// done here.
    has_mapped_writes: std::cell::Cell<bool>,
}

impl Target {
    fn open(path: &Path) -> Result<Self> {
        let open = |flags: OFlags| {
            File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .custom_flags(flags.bits().cast_signed())
                .open(path)
        };
        let (cached, direct) = (open(OFlags::empty())?, open(OFlags::DIRECT)?);
        let has_mapped_writes = std::cell::Cell::new(false);
        Ok(Self { path: path.to_owned(), cached, direct, has_mapped_writes })
    }

    fn flush_before(&self, way: Way) -> Result<()> {
        if matches!(way, Way::Direct) && self.has_mapped_writes.replace(false) {
            self.cached.sync_data()?;
        }
        Ok(())
    }

    fn write(&self, way: Way, at: usize, bytes: &[u8], size: usize) -> Result<()> {
        self.flush_before(way)?;
        match way {
            Way::Cached => self.cached.write_all_at(bytes, at as u64)?,
            Way::Direct => self.direct.write_all_at(bytes, at as u64)?,
            Way::Mapped => {
                let mut mapping = SharedMapping::new(&self.cached, size)?;
                mapping.write(at, bytes)?;
                self.has_mapped_writes.set(true);
                if bytes.first().is_some_and(|byte| byte % 4 == 0) {
                    mapping.sync()?;
                }
            }
        }
        Ok(())
    }

    fn read(&self, way: Way, at: usize, bytes: &mut [u8], size: usize) -> Result<()> {
        self.flush_before(way)?;
        match way {
            Way::Cached => self.cached.read_exact_at(bytes, at as u64)?,
            Way::Direct => self.direct.read_exact_at(bytes, at as u64)?,
            Way::Mapped => SharedMapping::new(&self.cached, size)?.read(at, bytes)?,
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Cached,
    Direct,
    Mapped,
}

struct Process {
    own: Target,
    shared: Target,
    /// What the own file has to hold.
    model: Vec<u8>,
    /// What this process's pages of the shared file have to hold, one after the other.
    stripes: Vec<u8>,
    index: usize,
    count: usize,
    random: Random,
    log: VecDeque<String>,
}

impl Process {
    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    fn way(&mut self) -> Way {
        match self.below(4) {
            0 => Way::Direct,
            1 => Way::Mapped,
            _ => Way::Cached,
        }
    }

    fn note(&mut self, text: String) {
        if self.log.len() == KEPT_LOG {
            self.log.pop_front();
        }
        self.log.push_back(text);
    }

    fn step(&mut self) -> Result<()> {
        match self.below(100) {
            0..28 => self.write_own(),
            28..56 => self.read_own(),
            56..64 => self.resize(),
            64..69 => {
                self.note("fsync".to_owned());
                Ok(self.own.cached.sync_all()?)
            }
            69..72 => {
                self.note("reopen".to_owned());
                let opened = Target::open(&self.own.path)?;
                opened.has_mapped_writes.set(self.own.has_mapped_writes.get());
                self.own = opened;
                Ok(())
            }
            72..75 => {
                self.note("forget the cache".to_owned());
                Ok(rustix::fs::fadvise(&self.own.cached, 0, None, Advice::DontNeed)?)
            }
            75..77 => self.read_all(),
            77..88 => self.write_shared(),
            _ => self.read_shared(),
        }
    }

    fn write_own(&mut self) -> Result<()> {
        let mut way = self.way();
        let length = 1 + self.below(LARGEST_TRANSFER);
        // Sometimes beyond the end, which leaves a hole.
        let at = self.below((self.model.len() + PAGE).min(LARGEST_FILE - length));
        if matches!(way, Way::Mapped) && at + length > self.model.len() {
            way = Way::Cached;
        }
        self.note(format!("{way:?} write {at}+{length}"));
        let bytes = self.random.bytes(length);
        self.own.write(way, at, &bytes, self.model.len())?;
        if self.model.len() < at + length {
            self.model.resize(at + length, 0);
        }
        self.model[at..at + length].copy_from_slice(&bytes);
        Ok(())
    }

    fn read_own(&mut self) -> Result<()> {
        if self.model.is_empty() {
            return Ok(());
        }
        let way = self.way();
        let at = self.below(self.model.len());
        let length = 1 + self.below(LARGEST_TRANSFER.min(self.model.len() - at));
        self.note(format!("{way:?} read {at}+{length}"));
        let mut bytes = vec![0; length];
        self.own.read(way, at, &mut bytes, self.model.len())?;
        expect_bytes(&bytes, &self.model[at..at + length], &format!("{way:?} read at {at}"))
    }

    fn resize(&mut self) -> Result<()> {
        let size = self.below(LARGEST_FILE);
        self.note(format!("truncate {} to {size}", self.model.len()));
        self.own.cached.set_len(size as u64)?;
        self.model.resize(size, 0);
        Ok(())
    }

    fn read_all(&mut self) -> Result<()> {
        self.note("read all".to_owned());
        let bytes = std::fs::read(&self.own.path)?;
        expect_bytes(&bytes, &self.model, "the whole file")
    }

    fn shared_range(&mut self) -> (usize, usize, std::ops::Range<usize>) {
        let page = self.below(SHARED_PAGES);
        let start = self.below(PAGE);
        let length = 1 + self.below(PAGE - start);
        let at = shared_offset(page, self.index, self.count) + start;
        let in_stripes = page * PAGE + start;
        (at, length, in_stripes..in_stripes + length)
    }

    fn write_shared(&mut self) -> Result<()> {
        let way = self.way();
        let (at, length, range) = self.shared_range();
        self.note(format!("{way:?} write shared {at}+{length}"));
        let bytes = self.random.bytes(length);
        let size = self.count * SHARED_PAGES * PAGE;
        self.shared.write(way, at, &bytes, size)?;
        self.stripes[range].copy_from_slice(&bytes);
        Ok(())
    }

    fn read_shared(&mut self) -> Result<()> {
        let way = self.way();
        let (at, length, range) = self.shared_range();
        self.note(format!("{way:?} read shared {at}+{length}"));
        let mut bytes = vec![0; length];
        let size = self.count * SHARED_PAGES * PAGE;
        self.shared.read(way, at, &mut bytes, size)?;
        expect_bytes(&bytes, &self.stripes[range], &format!("{way:?} read of shared at {at}"))
    }
}
