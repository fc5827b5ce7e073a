//! How the kernel is made to read ahead, and asked what it has.
//!
//! The kernel's own read-ahead is led on, rather than told what to read: a byte is read without
//! waiting at each step of the range, on a descriptor used for nothing else. Where the kernel has
//! left a mark it begins with the next piece, as it would for a reader who got there. Measured on
//! ext4 with Linux 6.18, this costs 50 to 130 µs of CPU a MiB and fills the page cache with large
//! folios; `posix_fadvise(WILLNEED)` costs 340 µs and fills it with single pages, which every
//! later read pays for (a fifth more CPU for sendfile). Where the kernel cannot be led, because it
//! is older or the file system does without `RWF_NOWAIT`, advice is given.

use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsFd;

use rustix::fs::Advice;
use rustix::io::Errno;
use steadfast_sys::block_device::sysfs_of;
use steadfast_sys::file;

use super::streams::Read;

/// What a disk reads at once where that is not known, and the most that makes a difference.
const REQUEST_BYTES_USUAL: u64 = 128 << 10;
const REQUEST_BYTES_MIN: u64 = 64 << 10;
const REQUEST_BYTES_MAX: u64 = 2 << 20;
/// What is read ahead from disks, and from btrfs, unless the administrator says otherwise.
const AHEAD_BYTES_USUAL: u64 = 128 << 10;
const AHEAD_BYTES_BTRFS: u64 = 4 << 20;
/// Of this much, one page tells whether all has been read from the disk.
const PIECE_BYTES: u64 = 128 << 10;
/// The read that begins a stream of the kernel's, so large that the kernel begins with all that
/// it may read ahead.
const BEGIN_BYTES: usize = 128 << 10;
/// The kernel's marks are no closer than this once it reads ahead all it may.
const STEP_BYTES: usize = 64 << 10;

/// For a descriptor that [`nudge`] is to use: doubles what the kernel reads ahead.
pub(super) fn double_ahead(file: impl AsFd) {
    // Without it there are only more and smaller pieces.
    let _ = rustix::fs::fadvise(file, 0, None, Advice::Sequential);
}

/// Leads the kernel's read-ahead through a range.
pub(super) fn nudge(file: impl AsFd, range: &Range<u64>) {
    let mut scratch = Vec::new();
    // What is there, what is on its way and what is not there at all are the same here.
    let mut touch = |at: u64, bytes: usize| {
        scratch.clear();
        let _ = file::append_read(&file, &mut scratch, bytes, at, false);
    };
    for at in range.clone().step_by(STEP_BYTES) {
        let here = Read { offset: at, length: 1, file_bytes: range.end };
        if presence(&file, here) == Presence::Whole {
            touch(at, 1);
            continue;
        }
        // Nothing leads here. A reader who was just before it is what the kernel takes for a
        // sequential one; from a single byte it would make a single page.
        if let Some(last) = at.checked_sub(1) {
            touch(last, 1);
        }
        touch(at, BEGIN_BYTES);
    }
}

/// Advises the kernel that a range will be read. It takes no more than one request of the disk
/// at a time and forgets the rest.
pub(super) fn advise(file: impl AsFd, range: Range<u64>, request_bytes: u64) {
    let mut from = range.start;
    while from < range.end {
        let length = (range.end - from).min(request_bytes.max(REQUEST_BYTES_MIN));
        let Some(length) = NonZeroU64::new(length) else { return };
        // Advice may be refused; the reads themselves will tell what is wrong.
        if rustix::fs::fadvise(&file, from, Some(length), Advice::WillNeed).is_err() {
            return;
        }
        from += length.get();
    }
}

/// How much of a range is in the page cache, or on its way into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Whole,
    /// Not all of it.
    Partial,
    /// Only who may write the file is told (since Linux 6.14), and the thread is somebody else.
    Forbidden,
    /// The kernel cannot tell (before Linux 6.5).
    Unknown,
}

/// Asks the kernel.
pub(crate) fn presence(file: impl AsFd, read: Read) -> Presence {
    let page_bytes = rustix::param::page_size() as u64;
    let pages = read.end().div_ceil(page_bytes) - read.offset / page_bytes;
    match file::cached_pages(file, read.offset, read.length) {
        Ok(cached) if cached >= pages => Presence::Whole,
        Ok(_) => Presence::Partial,
        Err(Errno::PERM) => Presence::Forbidden,
        Err(_) => Presence::Unknown,
    }
}

/// Whether data whose pages are in the page cache has arrived there from the disk: pages are
/// there as soon as they are asked for, and to send them would be to wait for the disk. One page of
/// each piece tells: a disk need not deliver in order.
pub(crate) fn is_filled(
    file: impl AsFd,
    scratch: &mut Vec<u8>,
    read: Read,
    may_wait: bool,
) -> bool {
    let before = scratch.len();
    let behind = read.end();
    let mut at = read.offset;
    loop {
        let end = (at / PIECE_BYTES).saturating_add(1).saturating_mul(PIECE_BYTES).min(behind);
        let got = file::append_read(&file, scratch, 1, end.saturating_sub(1), may_wait);
        scratch.truncate(before);
        match got {
            // Where that cannot be told, the page cache has to be believed.
            Ok(1) | Err(Errno::OPNOTSUPP) if end >= behind => return true,
            Ok(1) | Err(Errno::OPNOTSUPP) => at = end,
            _ => return false,
        }
    }
}

/// How the kernel reads from a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// How much it asks of the device at once.
    pub(crate) request_bytes: u64,
    /// How much it reads ahead by itself.
    pub(crate) ahead_bytes: u64,
}

impl Habits {
    /// What sysfs says of a device.
    pub(crate) fn of_device(device: u64) -> Self {
        let (major, minor) = ((device >> 32) as u32, device as u32);
        let block = sysfs_of(rustix::fs::makedev(major, minor));
        // A partition has the limits of its disk, which is the directory above.
        let bytes = |name: &str| {
            let text = [&block, &block.join("..")]
                .iter()
                .find_map(|place| std::fs::read_to_string(place.join("queue").join(name)).ok())?;
            text.trim().parse::<u64>().ok().map(|kib| kib.saturating_mul(1024))
        };
        let ahead_bytes = bytes("read_ahead_kb").unwrap_or(AHEAD_BYTES_USUAL);
        let request_bytes = bytes("max_sectors_kb").unwrap_or(REQUEST_BYTES_USUAL).max(ahead_bytes);
        let request_bytes = request_bytes.clamp(REQUEST_BYTES_MIN, REQUEST_BYTES_MAX);
        Self { request_bytes: request_bytes - request_bytes % REQUEST_BYTES_MIN, ahead_bytes }
    }

    /// What btrfs does, whatever its devices say.
    pub(crate) fn of_btrfs() -> Self {
        Self { request_bytes: REQUEST_BYTES_MAX, ahead_bytes: AHEAD_BYTES_BTRFS }
    }
}
