//! Read-ahead by the server itself.
//!
//! The kernel keeps one state of read-ahead for each open file. Here all clients share one open
//! file, and one client's READs arrive in any order, so that state sees a mixture; and what it
//! asks ahead is 128 KiB, which keeps no disk with a latency busy. So sequential streams are
//! recognised here ([`streams`]), and what lies ahead of them is asked for ([`kernel`]), in
//! windows that grow, bounded over all files ([`budget`]).
//!
//! What is in memory costs nothing: a file has a state only once a read had to wait, and that
//! state is asked only while what lies ahead is not in memory either. To ask may take a while, so
//! it is done by reads that may wait; one that may not, and comes when it is time, gives its
//! seat away (once in half a window).

mod budget;
mod kernel;
mod streams;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use self::budget::WindowBudget;
pub(crate) use self::kernel::{Habits, Presence, is_filled, presence};
use self::streams::Streams;
pub(crate) use self::streams::{Noted, Read};
use crate::budget::Descriptor;

/// The kernel reads smaller files well: most of them are one or two READs.
const FILE_BYTES_MIN: u64 = 1 << 20;
/// The budget of windows: a part of the memory, within these.
const MEMORY_SHARES: u64 = 16;
const BUDGET_BYTES_MIN: u64 = 16 << 20;
const BUDGET_BYTES_MAX: u64 = 1 << 30;

/// A kernel that reads ahead less than this is made to read ahead twice as much: 128 KiB, which is
/// usual, make folios half as large.
const AHEAD_BYTES_ENOUGH: u64 = 512 << 10;
/// So much, and not only what the kernel may have read beyond what it was asked for, must be
/// found in memory before the rest is taken to be there.
const FOUND_BYTES_MIN: u64 = 1 << 20;

/// What was asked ahead since the start, for all files, and what may be asked now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadAheadTotals {
    /// Times that something was asked for.
    pub asks: u64,
    /// How much that was, in bytes.
    pub bytes: u64,
    /// Times that this had to be done by advice, because the kernel's own read-ahead could not be
    /// led.
    pub advised: u64,
    /// Times that what was to be asked for was in memory.
    pub found: u64,
    /// Times that what had been asked for was gone before it was read.
    pub lost: u64,
    /// What is left of the budget of windows now, in bytes.
    pub budget_left_bytes: u64,
}

/// What the files of all trees share.
#[derive(Debug)]
pub(crate) struct ReadAheadShared {
    budget: WindowBudget,
    asks: AtomicU64,
    bytes: AtomicU64,
    advised: AtomicU64,
    found: AtomicU64,
    lost: AtomicU64,
}

impl ReadAheadShared {
    pub(crate) fn new() -> Arc<Self> {
        let bytes = budget::memory_bytes() / MEMORY_SHARES;
        let bytes = bytes.clamp(BUDGET_BYTES_MIN, BUDGET_BYTES_MAX);
        Arc::new(Self {
            budget: WindowBudget::new(bytes),
            asks: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            advised: AtomicU64::new(0),
            found: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        })
    }

    pub(crate) fn totals(&self) -> ReadAheadTotals {
        ReadAheadTotals {
            asks: self.asks.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            advised: self.advised.load(Ordering::Relaxed),
            found: self.found.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            budget_left_bytes: self.budget.left(),
        }
    }
}

/// What is known of the reads of one file, of which one at least had to wait.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// Whether hits must be told too.
    is_cold: AtomicBool,
    /// Never waited for: who finds it locked goes without.
    streams: Mutex<Streams>,
    /// Open as long as there are streams.
    asker: Mutex<Option<Arc<Descriptor>>>,
    shared: Arc<ReadAheadShared>,
}

impl ReadAhead {
    pub(crate) fn new(shared: &Arc<ReadAheadShared>) -> Self {
        Self {
            is_cold: AtomicBool::new(false),
            streams: Mutex::default(),
            asker: Mutex::default(),
            shared: Arc::clone(shared),
        }
    }

    /// Whether it is worth a state.
    pub(crate) fn is_for(read: Read) -> bool {
        read.file_bytes >= FILE_BYTES_MIN
    }

    pub(crate) fn is_cold(&self) -> bool {
        self.is_cold.load(Ordering::Relaxed)
    }

    /// Whether it is time to ask for more, which only a read that may wait does.
    pub(crate) fn wants(&self, read: Read) -> bool {
        self.streams.try_lock().is_some_and(|streams| streams.wants(read, &self.shared.budget))
    }

    /// Takes note of a read that found its data in memory, while the file is cold.
    pub(crate) fn note_hit(&self, read: Read) {
        self.change(|streams| streams.note_hit(read, &self.shared.budget));
    }

    /// To be called before a read that waits: asks for what lies ahead of it, and for its own
    /// data if that is part of it. `open` gives another descriptor of the file.
    pub(crate) fn prepare(
        &self,
        file: impl AsFd,
        read: Read,
        habits: Habits,
        open: impl FnOnce() -> Option<Descriptor>,
    ) {
        let Some(Noted { ask, was_asked }) =
            self.change(|streams| streams.note(read, &self.shared.budget))
        else {
            return;
        };
        if was_asked && presence(&file, read) == Presence::Partial {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            self.change(|streams| streams.note_lost(read));
        }
        let Some(range) = ask else {
            if !is_filled(&file, &mut Vec::new(), read, false) {
                self.change(|streams| streams.note_late(read));
            }
            return;
        };
        let bytes = range.end - range.start;
        let next = Read { offset: range.start, length: bytes, ..read };
        let is_found = presence(&file, next) != Presence::Partial
            && is_filled(&file, &mut Vec::new(), next, false);
        if is_found {
            self.shared.found.fetch_add(1, Ordering::Relaxed);
            let enough = habits.ahead_bytes.saturating_mul(4).max(FOUND_BYTES_MIN);
            self.change(|streams| streams.note_found(&range, enough, &self.shared.budget));
            return;
        }
        self.change(|streams| streams.note_absent(&range));
        self.shared.asks.fetch_add(1, Ordering::Relaxed);
        self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(asker) = self.asker(habits, open) {
            kernel::nudge(&*asker, &range);
            // Where that cannot be told it is not asked for twice.
            if presence(&file, next) != Presence::Partial {
                return;
            }
        }
        self.shared.advised.fetch_add(1, Ordering::Relaxed);
        kernel::advise(&file, range, habits.request_bytes);
    }

    /// The descriptor to ask with, opened when first used.
    fn asker(
        &self,
        habits: Habits,
        open: impl FnOnce() -> Option<Descriptor>,
    ) -> Option<Arc<Descriptor>> {
        if let Some(asker) = &*self.asker.lock() {
            return Some(Arc::clone(asker));
        }
        let asker = Arc::new(open()?);
        if habits.ahead_bytes < AHEAD_BYTES_ENOUGH {
            kernel::double_ahead(&*asker);
        }
        Some(Arc::clone(self.asker.lock().get_or_insert(asker)))
    }

    /// To be called every few seconds: forgets streams that are not read any more.
    pub(crate) fn forget_idle(&self) {
        let is_idle = self.change(|streams| {
            streams.forget_idle(&self.shared.budget);
            streams.is_empty()
        });
        if is_idle == Some(true) {
            let asker = self.asker.lock().take();
            drop(asker);
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Streams) -> T) -> Option<T> {
        let mut streams = self.streams.try_lock()?;
        let result = change(&mut streams);
        let is_cold = streams.is_cold();
        // Looking first keeps the cache line shared between processors.
        if is_cold != self.is_cold() {
            self.is_cold.store(is_cold, Ordering::Relaxed);
        }
        Some(result)
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.streams.get_mut().clear(&self.shared.budget);
    }
}
