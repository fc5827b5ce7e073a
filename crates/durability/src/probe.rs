//! How long a device takes to make a write stable, and what that says about it.
//!
//! Measured as the log writes (on ext4 without a journal it does with less, `device_flush.rs`): around the page cache (`O_DIRECT`), stable when the write returns
//! (`O_DSYNC`), to places that were written before; beside the same writes that need not be
//! stable. What a device promises cannot be measured, only what it cannot have done: nothing that
//! keeps data without power answers faster than a few microseconds, and a volatile cache that is
//! flushed costs something. So a good result says "looks".

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use steadfast_intent_log::{BLOCK_BYTES, Block, IntentLog, Medium, format, inspect};
use steadfast_sys::durable_file::DATA_SYNC;
use steadfast_sys::process;

use super::device::{self, flushes_of, look_at, needs_flushes};
use super::medium::FileMedium;

/// What is written at a time, in bytes.
const SIZES: [usize; 4] = [4 << 10, 8 << 10, 64 << 10, 1 << 20];
/// Writes of each size, at the most…
const WRITES_MAX: usize = 256;
/// … and for how long.
const TIME_MAX: Duration = Duration::from_secs(1);
/// A scratch file's bytes, and of a log's ring what is used at the most.
const SCRATCH_BYTES: u64 = 16 << 20;
/// Faster than this, flash cannot have written anything: it takes tens of microseconds, and the
/// fastest disks with a protected cache around ten.
const TOO_FAST: Duration = Duration::from_micros(20);
/// Faster than this, a rotating disk cannot have: half a turn takes 2 ms at 15,000 a minute.
const TOO_FAST_FOR_ROTATION: Duration = Duration::from_millis(1);
/// A flush that costs less than this beside the write, in percent, does not show.
const FLUSH_SHOWS_PERCENT: u32 = 30;

/// Superblocks written at the start to time them, and for how long.
const START_WRITES_MAX: usize = 16;
const START_TIME_MAX: Duration = Duration::from_millis(50);

/// What a device looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is memory.
    Memory,
    /// It answers faster than what keeps data can.
    TooFast,
    /// It says that it has a volatile cache, and flushes of it do not show.
    FlushesDoNotShow,
    /// It flushes its cache, as is to be seen.
    FlushesShow,
    /// It says that it has no volatile cache.
    NoVolatileCache,
    /// Nothing is known of its cache.
    Unknown,
}

impl Verdict {
    /// Whether there is no sign that stable writes are lost with the power.
    pub fn looks_power_safe(self) -> bool {
        matches!(self, Self::FlushesShow | Self::NoVolatileCache)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory: what is written is lost with the power; for experiments only",
            Self::TooFast => {
                "does not look power-safe: it answers faster than flash or disks can write, like a \
                 volatile cache that does not honour flushes, or memory (battery-backed memory is \
                 as fast: its maker must say so)"
            }
            Self::FlushesDoNotShow => {
                "may not be power-safe: it says that it has a volatile cache, and a stable write \
                 costs no more than another; either the cache is protected by capacitors or a \
                 battery (its maker must say so), or flushes are not honoured"
            }
            Self::FlushesShow => {
                "looks power-safe: it has a volatile cache, and stable writes take the time of \
                 flushing it"
            }
            Self::NoVolatileCache => "looks power-safe: it says that it has no volatile cache",
            Self::Unknown => {
                "says nothing of its cache: its maker must say whether it is power-safe"
            }
        })
    }
}

/// What stable and other writes of the same size take says about a device. `plain` is not always
/// measured.
pub(super) fn judge(medium: &device::Medium, stable: Duration, plain: Option<Duration>) -> Verdict {
    if medium.memory.is_some() {
        return Verdict::Memory;
    }
    let too_fast = if medium.is_rotational() { TOO_FAST_FOR_ROTATION } else { TOO_FAST };
    if stable < too_fast {
        return Verdict::TooFast;
    }
    match (medium.has_volatile_cache(), plain) {
        (Some(false), _) => Verdict::NoVolatileCache,
        (Some(true), Some(plain)) if stable * 100 >= plain * (100 + FLUSH_SHOWS_PERCENT) => {
            Verdict::FlushesShow
        }
        (Some(true), Some(_)) => Verdict::FlushesDoNotShow,
        (Some(true), None) | (None, _) => Verdict::Unknown,
    }
}

/// The times of writes, to ask for percentiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times(Vec<Duration>);

impl Times {
    fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The time that so many percent of the writes took at the most; zero without writes.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    /// How many writes there were.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Writes of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeProbe {
    /// Of each write.
    pub bytes: usize,
    /// Those that are stable when they return.
    pub stable: Times,
    /// Those that need not be.
    pub plain: Times,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What was written to.
    pub path: PathBuf,
    /// What that is kept on.
    pub medium: device::Medium,
    /// Whether it was written around the page cache. If not, plain writes are those of the cache.
    pub is_direct: bool,
    /// By size.
    pub sizes: Vec<SizeProbe>,
    /// What it looks like.
    pub verdict: Verdict,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// It cannot be opened or written.
    #[error("cannot probe {}: {source}", path.display())]
    Io {
        /// What was to be written to.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is a device that has something.
    #[error(
        "{} is not written to: {why}; `--overwrite` destroys what it has", path.display()
    )]
    HasSomething {
        /// The device.
        path: PathBuf,
        /// What it has.
        why: &'static str,
    },
}

/// Where to write.
struct Target {
    path: PathBuf,
    /// Opened so that a write is stable when it returns, and otherwise.
    stable: File,
    plain: File,
    offset: u64,
    bytes: u64,
    is_direct: bool,
}

/// Measures the device of `path`: a file's or a directory's by a scratch file beside or in it, a
/// block device in the ring of the closed log that it has, or anywhere with `overwrite`.
///
/// # Errors
/// When it cannot be written, is in use, or has something else.
pub fn probe(path: &Path, overwrite: bool) -> Result<Probe, ProbeError> {
    let failed = |source| ProbeError::Io { path: path.to_owned(), source };
    let medium = look_at(path).map_err(failed)?;
    let metadata = path.metadata().map_err(failed)?;
    if metadata.file_type().is_block_device() {
        // Held while it is written to, so that no server begins to use it.
        let log = FileMedium::open(path).map_err(failed)?;
        let has = |why| ProbeError::HasSomething { path: path.to_owned(), why };
        match inspect(&log).superblock() {
            _ if overwrite => {}
            Some(superblock) if superblock.is_clean => {}
            Some(_) => return Err(has("it has an intent log that was not closed")),
            None => return Err(has("it has no intent log")),
        }
        let offset = if overwrite { 0 } else { format::RING_OFFSET };
        let bytes = log.bytes().saturating_sub(offset).min(SCRATCH_BYTES);
        let target = open_both(path, OFlags::EXCL).map_err(failed)?;
        let probed = measure(&Target { offset, bytes, ..target }, medium);
        drop(log);
        return probed.map_err(failed);
    }
    let directory = if metadata.is_dir() { path } else { path.parent().unwrap_or(path) };
    let scratch = Scratch::new(directory).map_err(failed)?;
    let target = open_both(&scratch.0, OFlags::empty()).map_err(failed)?;
    let target = Target { path: path.to_owned(), ..target };
    measure(&target, medium).map_err(failed)
}

/// A file that is gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(directory: &Path) -> io::Result<Self> {
        let mut chance = [0; 8];
        process::random_bytes(&mut chance)?;
        let path = directory.join(format!(".steadfast-probe-{}", super::hex(&chance)));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let scratch = Self(path);
        file.set_len(SCRATCH_BYTES)?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is a file of ours with nothing in it.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn open_both(path: &Path, also: OFlags) -> io::Result<Target> {
    let open = |flags: OFlags| {
        let flags = flags | also | OFlags::CLOEXEC;
        OpenOptions::new().write(true).custom_flags(flags.bits() as i32).open(path)
    };
    let both = |direct: OFlags| -> io::Result<Target> {
        // A device is opened exclusively once, so what is written to it twice is one open file.
        let stable = open(direct | DATA_SYNC)?;
        let plain = match open(direct) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => OpenOptions::new()
                .write(true)
                .custom_flags((direct | OFlags::CLOEXEC).bits() as i32)
                .open(path)?,
            plain => plain?,
        };
        let is_direct = !direct.is_empty();
        let path = path.to_owned();
        Ok(Target { path, stable, plain, offset: 0, bytes: SCRATCH_BYTES, is_direct })
    };
    match both(OFlags::DIRECT) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => both(OFlags::empty()),
        opened => opened,
    }
}

fn measure(target: &Target, medium: device::Medium) -> io::Result<Probe> {
    let mut room = vec![Block::ZERO; SIZES.iter().max().map_or(1, |bytes| bytes / BLOCK_BYTES)];
    let data = Block::bytes_of_mut(&mut room);
    // Not zeros, which some devices do not write.
    data.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
    let data = &*data;
    let mut at = 0;
    while at + data.len() as u64 <= target.bytes {
        target.plain.write_all_at(data, target.offset + at)?;
        at += data.len() as u64;
    }
    target.plain.sync_all()?;
    let mut sizes = Vec::new();
    for bytes in SIZES {
        let data = data.get(..bytes).unwrap_or(data);
        let stable = times(&target.stable, data, target)?;
        let plain = times(&target.plain, data, target)?;
        target.plain.sync_data()?;
        sizes.push(SizeProbe { bytes, stable, plain });
    }
    let smallest = sizes.first();
    let median = |of: fn(&SizeProbe) -> &Times| smallest.map(|size| of(size).percentile(50));
    let stable = median(|size| &size.stable).unwrap_or_default();
    // Those of the page cache tell nothing of the device.
    let plain = median(|size| &size.plain).filter(|_| target.is_direct);
    let verdict = judge(&medium, stable, plain);
    Ok(Probe { path: target.path.clone(), medium, is_direct: target.is_direct, sizes, verdict })
}

fn times(file: &File, data: &[u8], target: &Target) -> io::Result<Times> {
    let (mut times, mut at) = (Vec::with_capacity(WRITES_MAX), 0);
    let begun = Instant::now();
    while times.len() < WRITES_MAX && begun.elapsed() < TIME_MAX {
        if at + data.len() as u64 > target.bytes {
            at = 0;
        }
        let write = Instant::now();
        file.write_all_at(data, target.offset + at)?;
        times.push(write.elapsed());
        at += data.len() as u64;
    }
    Ok(Times::new(times))
}

/// Times a few superblocks of a log that was just begun, and tells what that says of its device.
///
/// # Errors
/// The device's.
pub(super) fn time_superblocks(
    log: &IntentLog,
    medium: &FileMedium,
) -> Result<(), steadfast_intent_log::WriteSuperblockError> {
    // Of its own device, or its file system's.
    let metadata = medium.path().metadata().ok();
    let number = metadata.map(|metadata| {
        let is_device = metadata.file_type().is_block_device();
        if is_device { metadata.rdev() } else { metadata.dev() }
    });
    let flushes = || number.filter(|number| needs_flushes(*number)).and_then(flushes_of);
    let flushes_before = flushes();
    let mut times = Vec::with_capacity(START_WRITES_MAX);
    let begun = Instant::now();
    while times.len() < START_WRITES_MAX && begun.elapsed() < START_TIME_MAX {
        let pair = Instant::now();
        log.write_superblocks(medium, false)?;
        times.extend([pair.elapsed() / 2; 2]);
    }
    if flushes_before.is_some() && flushes() == flushes_before {
        tracing::warn!(
            "the intent log {}: its device has a volatile cache, which stable writes do not flush \
             (before Linux 6.5 they do not on ext4 without a journal; and not where barriers are \
             switched off): what is in it is lost with the power",
            medium.path().display()
        );
    }
    let median = Times::new(times).percentile(50);
    let path = medium.path().display();
    let us = median.as_micros();
    let how = if medium.flushes_device() { ", with a flush of its device" } else { "" };
    let verdict = look_at(medium.path()).map_or(Verdict::Unknown, |on| judge(&on, median, None));
    match verdict {
        Verdict::Memory | Verdict::TooFast => tracing::warn!(
            "the intent log {path}: a stable write takes {us} µs{how}; its device {verdict}; see \
             `steadfast log probe`"
        ),
        _ => tracing::info!(
            "the intent log {path}: a stable write takes {us} µs{how} (what its device looks like: \
             `steadfast log probe`)"
        ),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::device::{BlockDevice, Medium};
    use super::*;

    fn disk(has_volatile_cache: Option<bool>, is_rotational: bool) -> Medium {
        let device = BlockDevice {
            has_volatile_cache,
            is_rotational: Some(is_rotational),
            ..BlockDevice::default()
        };
        Medium { devices: vec![device], memory: None }
    }

    #[test]
    fn a_device_is_judged_by_what_it_says_and_what_it_takes() {
        let us = Duration::from_micros;
        let flash = |cache| disk(cache, false);
        for (medium, stable, plain, expected) in [
            (flash(Some(false)), us(80), Some(us(80)), Verdict::NoVolatileCache),
            (flash(Some(true)), us(900), Some(us(30)), Verdict::FlushesShow),
            (flash(Some(true)), us(31), Some(us(30)), Verdict::FlushesDoNotShow),
            (flash(Some(false)), us(2), Some(us(2)), Verdict::TooFast),
            (flash(None), us(80), Some(us(30)), Verdict::Unknown),
            (flash(Some(true)), us(80), None, Verdict::Unknown),
            (disk(Some(true), true), us(200), Some(us(100)), Verdict::TooFast),
            (disk(Some(true), true), us(6000), Some(us(100)), Verdict::FlushesShow),
            (Medium { memory: Some(String::new()), ..flash(None) }, us(80), None, Verdict::Memory),
        ] {
            assert_eq!(judge(&medium, stable, plain), expected, "{medium:?} {stable:?}");
        }
        assert!(Verdict::NoVolatileCache.looks_power_safe());
        assert!(!Verdict::FlushesDoNotShow.looks_power_safe());
    }

    #[test]
    fn percentiles_are_of_the_times() {
        let times = Times::new((1..=200).rev().map(Duration::from_millis).collect());
        assert_eq!(times.percentile(50), Duration::from_millis(100));
        assert_eq!(times.percentile(99), Duration::from_millis(198));
        assert_eq!(Times::default().percentile(50), Duration::ZERO);
    }

    #[test]
    fn a_directory_is_probed_and_nothing_is_left_in_it() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("intent.log");
        std::fs::write(&file, b"precious").expect("written");
        for path in [place.path(), &file] {
            let probed = probe(path, false).expect("probed");
            let sizes: Vec<usize> = probed.sizes.iter().map(|size| size.bytes).collect();
            assert_eq!(sizes, SIZES);
            assert!(probed.sizes.iter().all(|size| size.stable.count() > 0));
        }
        assert_eq!(std::fs::read(&file).expect("read"), b"precious");
        assert_eq!(std::fs::read_dir(place.path()).expect("read").count(), 1);
        assert!(probe(&place.path().join("missing"), false).is_err());
    }
}
