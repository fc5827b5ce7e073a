//! Recognises sequential reads of one file from their offsets and lengths alone. No I/O and no
//! clock: reads are told in the order in which they came, and out comes what to ask for.
//!
//! Clients have many READs in flight and these arrive in any order, so a read belongs to a
//! stream when it is near its head, before or behind; and a stream is sequential when nearly all
//! that lies between its lowest and its highest byte was read. A read that skips makes a hole,
//! which the late ones fill; strides and random reads leave theirs open.

use std::ops::Range;

use super::budget::WindowBudget;

/// What is asked ahead of a stream at first: twice what the kernel would by itself.
pub(crate) const WINDOW_BYTES_MIN: u64 = 256 << 10;
/// To this it grows in any case, and to so many reads: asking costs a hand-over each time.
const WINDOW_BYTES_USUAL: u64 = 1 << 20;
const WINDOW_READS_USUAL: u64 = 4;
/// And to this if reads have to wait for what was asked: what 1 GB/s deliver in 4 ms. More would
/// only be in the way of others.
pub(crate) const WINDOW_BYTES_MAX: u64 = 4 << 20;
/// A stream of which something was lost may have more again after its window was extended so often
/// without another loss.
const EXTENDED_BEFORE_MORE: u32 = 16;
/// How far from a stream's head a read may be that belongs to it, in reads of its size; at least
/// and at most in bytes. Clients have 8 to 16 in flight.
const SLACK_READS: u64 = 16;
const SLACK_BYTES_MIN: u64 = 2 << 20;
const SLACK_BYTES_MAX: u64 = 32 << 20;
/// After this many bytes what a stream did long ago counts half.
const HORIZON_BYTES: u64 = 64 << 20;
/// What is asked for ends where requests to disks like to end.
const ALIGNMENT_BYTES: u64 = 128 << 10;
/// Most that is asked for at once.
const ASK_BYTES_MAX: u64 = 4 * WINDOW_BYTES_MAX;
/// Streams of one file that are told apart.
pub(super) const STREAMS_MAX: usize = 8;
/// A stream for which something was asked keeps its place for this many reads without its own.
const KEPT_READS: u64 = 1024;
/// After this many reads in a row that found their data in memory, it is no longer of interest
/// who read what was not there.
const QUIET_READS: u32 = 256;

/// A READ of what a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) file_bytes: u64,
}

impl Read {
    pub(crate) fn end(self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    fn slack(self) -> u64 {
        self.length.saturating_mul(SLACK_READS).clamp(SLACK_BYTES_MIN, SLACK_BYTES_MAX)
    }
}

/// What follows from a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// To be asked for now.
    pub(crate) ask: Option<Range<u64>>,
    /// All of it was asked for earlier, before the last time that something was.
    pub(crate) was_asked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Lowest byte that was read, and the one behind the highest.
    low: u64,
    head: u64,
    /// What was asked for: from, to before the last time, to.
    asked_from: u64,
    asked_before: u64,
    asked: u64,
    /// How far reads reached, and how much of that they covered; halved at the horizon.
    extent: u64,
    covered: u64,
    /// Whether any read was beyond the first.
    has_advanced: bool,
    /// What is asked ahead of the head, granted by the budget; 0 as long as nothing was.
    window: u64,
    window_max: u64,
    /// How often it was extended since something was lost.
    extended: u32,
    /// Whether a read had to wait for what was asked, since the window was last extended.
    is_late: bool,
    used_at: u64,
    /// How much of what was to be asked for was in memory, since something was not.
    found: u64,
    /// What lies ahead is in memory.
    is_warm: bool,
}

impl Stream {
    fn new(read: Read, now: u64) -> Self {
        let end = read.end();
        Self {
            low: read.offset,
            head: end,
            asked_from: end,
            asked_before: end,
            asked: end,
            extent: read.length,
            covered: read.length,
            has_advanced: false,
            window: 0,
            window_max: WINDOW_BYTES_MAX,
            extended: 0,
            is_late: false,
            used_at: now,
            found: 0,
            is_warm: false,
        }
    }

    fn add(&mut self, read: Read) {
        let ahead = read.end().saturating_sub(self.head);
        let below = self.low.saturating_sub(read.offset);
        self.head = self.head.saturating_add(ahead);
        self.low = self.low.saturating_sub(below);
        self.extent = self.extent.saturating_add(ahead).saturating_add(below);
        // What is read twice must not make up for holes to come.
        self.covered = self.covered.saturating_add(read.length).min(self.extent);
        self.has_advanced |= ahead > 0;
        if self.extent > HORIZON_BYTES {
            self.extent /= 2;
            self.covered /= 2;
        }
    }

    fn is_sequential(&self) -> bool {
        let hole = self.extent - self.covered.min(self.extent);
        self.has_advanced && hole <= self.extent / 4
    }

    /// Whether less than half a window lies ahead that was asked for.
    fn is_due(&self, file_bytes: u64) -> bool {
        let enough = self.head.saturating_add(self.window / 2);
        !self.is_warm
            && self.asked < file_bytes
            && (self.window == 0 || self.asked < enough)
            && self.is_sequential()
    }

    /// Asks for what is missing of a window, which grows.
    fn extend(&mut self, head: u64, read: Read, budget: &WindowBudget) -> Option<Range<u64>> {
        let usual = read.length.saturating_mul(WINDOW_READS_USUAL).max(WINDOW_BYTES_USUAL);
        let wanted = match self.window {
            0 => read.length.saturating_mul(2).max(WINDOW_BYTES_MIN),
            window if window < usual || self.is_late => window.saturating_mul(2),
            window => window,
        };
        self.is_late = false;
        self.extended += 1;
        if self.extended >= EXTENDED_BEFORE_MORE {
            // What was in the way has perhaps gone.
            self.extended = 0;
            self.window_max = self.window_max.saturating_mul(2).min(WINDOW_BYTES_MAX);
        }
        self.window = budget.change(self.window, wanted.min(self.window_max));
        if self.window == 0 {
            return None;
        }
        // What is below is on its way: those who read it asked for it.
        let target = self.head.saturating_add(self.window);
        let from = self.asked.max(head).max(target.saturating_sub(ASK_BYTES_MAX));
        let aligned = target - target % ALIGNMENT_BYTES;
        let to = if aligned > from { aligned } else { target };
        let to = to.min(read.file_bytes);
        if from >= to {
            return None;
        }
        if self.asked < from || self.asked_from == self.asked {
            self.asked_from = from;
        }
        self.asked_before = from;
        self.asked = to;
        Some(from..to)
    }

    fn rest(&mut self, budget: &WindowBudget) {
        budget.give_back(self.window);
        self.window = 0;
        self.found = 0;
        self.is_warm = true;
    }

    /// Nothing is left to ask for: others may have the window.
    fn rest_at_end(&mut self, read: Read, budget: &WindowBudget) {
        if self.head >= read.file_bytes {
            self.rest(budget);
        }
    }
}

/// The streams of one file.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    all: Vec<Stream>,
    /// Reads told so far.
    now: u64,
    swept_at: u64,
    quiet: u32,
}

impl Streams {
    /// Whether a hit must be told: without streams that are not warm nothing is asked for.
    pub(super) fn is_cold(&self) -> bool {
        self.all.iter().any(|stream| !stream.is_warm)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether [`Streams::note`] would ask for something at this read.
    pub(super) fn wants(&self, read: Read, budget: &WindowBudget) -> bool {
        let Some(mut stream) = self.find(read).and_then(|index| self.all.get(index).copied())
        else {
            return false;
        };
        stream.add(read);
        stream.is_due(read.file_bytes) && (stream.window > 0 || budget.has_room())
    }

    /// Takes note of a read that found its data in memory.
    pub(super) fn note_hit(&mut self, read: Read, budget: &WindowBudget) {
        self.now += 1;
        self.quiet = self.quiet.saturating_add(1);
        if self.quiet > QUIET_READS {
            self.retain(budget, |stream| stream.window > 0 || stream.is_warm);
        }
        let now = self.now;
        if let Some(stream) = self.find(read).and_then(|index| self.all.get_mut(index)) {
            stream.add(read);
            stream.used_at = now;
            stream.rest_at_end(read, budget);
        }
    }

    /// Takes note of a read that may wait, and says what to ask for.
    pub(super) fn note(&mut self, read: Read, budget: &WindowBudget) -> Noted {
        self.now += 1;
        self.quiet = 0;
        let now = self.now;
        let Some(stream) = self.find(read).and_then(|index| self.all.get_mut(index)) else {
            self.begin(read, budget);
            return Noted::default();
        };
        let was_asked = read.offset >= stream.asked_from && read.end() <= stream.asked_before;
        let head = stream.head;
        stream.add(read);
        stream.used_at = now;
        stream.is_warm = false;
        let is_due = stream.is_due(read.file_bytes);
        let ask = if is_due { stream.extend(head, read, budget) } else { None };
        stream.rest_at_end(read, budget);
        Noted { ask, was_asked }
    }

    /// What was to be asked for is in memory already. If that is so for more than `enough` bytes
    /// in a row, which is what the kernel may have read beyond what it was asked for, the rest
    /// will be too.
    pub(super) fn note_found(&mut self, range: &Range<u64>, enough: u64, budget: &WindowBudget) {
        for stream in self.all.iter_mut().filter(|stream| stream.asked == range.end) {
            let bytes = range.end.saturating_sub(range.start);
            stream.found = stream.found.saturating_add(bytes);
            if stream.found > enough {
                stream.rest(budget);
            }
        }
    }

    /// What was to be asked for is not in memory.
    pub(super) fn note_absent(&mut self, range: &Range<u64>) {
        for stream in self.all.iter_mut().filter(|stream| stream.asked == range.end) {
            stream.found = 0;
        }
    }

    /// A read for which nothing was to be asked had to wait: what was asked came too late, or it was
    /// of something else.
    pub(super) fn note_late(&mut self, read: Read) {
        if let Some(stream) = self.find(read).and_then(|index| self.all.get_mut(index)) {
            stream.is_late = true;
        }
    }

    /// What had been asked for was gone before it was read: less is to be asked for.
    pub(super) fn note_lost(&mut self, read: Read) {
        if let Some(stream) = self.find(read).and_then(|index| self.all.get_mut(index)) {
            stream.window_max = (stream.window / 2).max(WINDOW_BYTES_MIN);
            stream.extended = 0;
        }
    }

    /// Forgets the streams that had no read since this was last called.
    pub(super) fn forget_idle(&mut self, budget: &WindowBudget) {
        let since = self.swept_at;
        self.swept_at = self.now;
        self.retain(budget, |stream| stream.used_at > since);
    }

    /// Forgets all.
    pub(super) fn clear(&mut self, budget: &WindowBudget) {
        self.retain(budget, |_| false);
    }

    /// The stream whose head is nearest, if one is near enough.
    fn find(&self, read: Read) -> Option<usize> {
        self.all
            .iter()
            .enumerate()
            .map(|(index, stream)| (stream.head.abs_diff(read.offset), index))
            .filter(|(distance, _)| *distance <= read.slack())
            .min()
            .map(|(_, index)| index)
    }

    /// A new stream, in the place of the least used one if there are many. Random reads, each
    /// of which begins one, do not displace those that are sequential.
    fn begin(&mut self, read: Read, budget: &WindowBudget) {
        let now = self.now;
        if self.all.len() >= STREAMS_MAX {
            let victim = self
                .all
                .iter()
                .enumerate()
                .filter(|(_, stream)| {
                    stream.window == 0 || now.saturating_sub(stream.used_at) > KEPT_READS
                })
                .min_by_key(|(_, stream)| stream.used_at);
            let Some((index, _)) = victim else { return };
            budget.give_back(self.all.swap_remove(index).window);
        }
        self.all.push(Stream::new(read, now));
    }

    fn retain(&mut self, budget: &WindowBudget, stays: impl Fn(&Stream) -> bool) {
        self.all.retain(|stream| {
            let stays = stays(stream);
            if !stays {
                budget.give_back(stream.window);
            }
            stays
        });
    }
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
