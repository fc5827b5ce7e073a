//! File data that was written and is not known to be stable on the server: which bytes, and how far
//! each of them got. It does no I/O.
//!
//! A byte is *dirty* (not sent), *sent* (a WRITE is in flight) or *unstable* (acknowledged, not
//! committed). A newer write replaces an older byte in any of these states. Dirty bytes are not sent
//! while a WRITE that overlaps them is in flight: the server could execute the two in either order.
//!
//! Of what is unstable the bytes need not be in memory, if a journal has them ([`Held::acknowledge_keeping`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A write verifier (RFC 1813 §3.3.7).
pub(crate) type Verifier = [u8; 8];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Dirty,
    Sent { flight: u64 },
    Unstable { verifier: Verifier, acknowledged: u64 },
}

/// Bytes of a buffer that several extents may share.
#[derive(Clone, Debug)]
struct Extent {
    buffer: Arc<Vec<u8>>,
    start: usize,
    length: usize,
    stage: Stage,
}

impl Extent {
    fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..self.start + self.length).unwrap_or(&[])
    }

    /// Its bytes from `from` to `to`.
    fn part(&self, from: usize, to: usize) -> Self {
        Self { start: self.start + from, length: to - from, ..self.clone() }
    }

    /// Its bytes are not in memory any more.
    fn is_elsewhere(&self) -> bool {
        self.buffer.is_empty()
    }
}

/// How much is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// All of it, wherever its bytes are.
    pub(crate) bytes: usize,
    /// What the server was not sent, or has not acknowledged.
    pub(crate) waiting: usize,
    /// What it has acknowledged, as far as that is in memory.
    pub(crate) acknowledged: usize,
}

/// What one WRITE carries.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) flight: u64,
    pub(crate) offset: u64,
    buffer: Arc<Vec<u8>>,
    start: usize,
    length: usize,
}

impl Run {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..self.start + self.length).unwrap_or(&[])
    }
}

/// The held data of one file. Extents do not overlap.
#[derive(Debug, Default)]
pub(crate) struct Held {
    extents: BTreeMap<u64, Extent>,
    /// Where dirty extents begin.
    dirty: BTreeSet<u64>,
    dirty_bytes: usize,
    unstable_bytes: usize,
    /// Those of them that are not in memory.
    elsewhere_bytes: usize,
    bytes: usize,
    /// Ranges of the WRITEs in flight, by number.
    flights: BTreeMap<u64, (u64, u64)>,
    last_flight: u64,
    acknowledgements: u64,
    /// What was acknowledged is asked of the server ([`Held::trust_acknowledged`]).
    is_acknowledged_trusted: bool,
}

impl Held {
    /// How much is held.
    pub(crate) fn weight(&self) -> Weight {
        Weight {
            bytes: self.bytes,
            waiting: self.bytes - self.unstable_bytes,
            acknowledged: self.unstable_bytes - self.elsewhere_bytes,
        }
    }

    /// Whether everything was sent, and acknowledged.
    pub(crate) fn is_sent(&self) -> bool {
        self.dirty_bytes == 0 && self.flights.is_empty()
    }

    /// Bytes that were not sent.
    pub(crate) fn dirty_bytes(&self) -> usize {
        self.dirty_bytes
    }

    /// Bytes that were acknowledged, and not committed.
    pub(crate) fn unstable_bytes(&self) -> usize {
        self.unstable_bytes
    }

    /// WRITEs in flight.
    pub(crate) fn flights(&self) -> usize {
        self.flights.len()
    }

    /// Nothing is held or in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.extents.is_empty() && self.flights.is_empty()
    }

    /// Whether there is something to commit.
    pub(crate) fn has_unstable(&self) -> bool {
        self.unstable_bytes > 0
    }

    /// Whether a byte of a range is held.
    pub(crate) fn has_some(&self, from: u64, to: u64) -> bool {
        let last = self.extents.range(..to.max(from)).next_back();
        last.is_some_and(|(start, extent)| start + extent.length as u64 > from)
    }

    /// Whether a byte of a range is in a journal alone.
    pub(crate) fn has_elsewhere(&self, from: u64, to: u64) -> bool {
        let is_elsewhere = |start: &u64| self.extents.get(start).is_some_and(Extent::is_elsewhere);
        self.starts(from, to).iter().any(is_elsewhere)
    }

    /// Whether a byte of a range was not sent.
    pub(crate) fn has_dirty(&self, from: u64, to: u64) -> bool {
        let is_dirty = |start: &u64| {
            self.extents.get(start).is_some_and(|extent| extent.stage == Stage::Dirty)
        };
        self.starts(from, to).iter().any(is_dirty)
    }

    /// No call reaches a server that has lost what it had acknowledged: so it has all of that, and what others
    /// have written since.
    pub(crate) fn trust_acknowledged(&mut self, is_trusted: bool) {
        self.is_acknowledged_trusted = is_trusted;
    }

    /// The end of the last byte that outweighs what the server has.
    pub(crate) fn end(&self) -> Option<u64> {
        let end = |(offset, extent): (&u64, &Extent)| offset + extent.length as u64;
        if !self.is_acknowledged_trusted {
            return self.extents.last_key_value().map(end);
        }
        let dirty = self.dirty.last().and_then(|start| self.extents.get_key_value(start)).map(end);
        dirty.max(self.flights.values().map(|(_, to)| *to).max())
    }

    fn put(&mut self, offset: u64, extent: Extent) {
        if extent.length == 0 {
            return;
        }
        self.bytes += extent.length;
        if extent.is_elsewhere() {
            self.elsewhere_bytes += extent.length;
        }
        match extent.stage {
            Stage::Dirty => {
                self.dirty.insert(offset);
                self.dirty_bytes += extent.length;
            }
            Stage::Unstable { .. } => self.unstable_bytes += extent.length,
            Stage::Sent { .. } => {}
        }
        self.extents.insert(offset, extent);
    }

    fn take(&mut self, offset: u64) -> Option<Extent> {
        let extent = self.extents.remove(&offset)?;
        self.bytes -= extent.length;
        if extent.is_elsewhere() {
            self.elsewhere_bytes -= extent.length;
        }
        match extent.stage {
            Stage::Dirty => {
                self.dirty.remove(&offset);
                self.dirty_bytes -= extent.length;
            }
            Stage::Unstable { .. } => self.unstable_bytes -= extent.length,
            Stage::Sent { .. } => {}
        }
        Some(extent)
    }

    /// Where the extents begin that have bytes in a range.
    fn starts(&self, from: u64, to: u64) -> Vec<u64> {
        let before = self.extents.range(..from).next_back();
        let before = before
            .filter(|(offset, extent)| **offset + extent.length as u64 > from)
            .map(|(o, _)| *o);
        before.into_iter().chain(self.extents.range(from..to.max(from)).map(|(o, _)| *o)).collect()
    }

    /// Forgets a range.
    fn cut(&mut self, from: u64, to: u64) {
        for start in self.starts(from, to) {
            let Some(extent) = self.take(start) else { continue };
            let end = start + extent.length as u64;
            if start < from {
                self.put(start, extent.part(0, (from - start) as usize));
            }
            if end > to {
                self.put(to, extent.part((to - start) as usize, extent.length));
            }
        }
    }

    /// Takes what was written. Short writes that follow each other share a buffer, up to
    /// `gather_bytes`.
    pub(crate) fn insert(&mut self, offset: u64, data: &[u8], gather_bytes: usize) {
        self.cut(offset, offset.saturating_add(data.len() as u64));
        let before = self.extents.range(..offset).next_back();
        let before = before.filter(|(start, extent)| {
            extent.stage == Stage::Dirty
                && **start + extent.length as u64 == offset
                && extent.length + data.len() <= gather_bytes
        });
        if let Some(start) = before.map(|(start, _)| *start)
            && let Some(mut extent) = self.take(start)
        {
            let end = extent.start + extent.length;
            if let Some(buffer) = Arc::get_mut(&mut extent.buffer)
                && buffer.len() == end
            {
                buffer.extend_from_slice(data);
                extent.length += data.len();
                self.put(start, extent);
                return;
            }
            self.put(start, extent);
        }
        let extent = Extent {
            buffer: Arc::new(data.to_vec()),
            start: 0,
            length: data.len(),
            stage: Stage::Dirty,
        };
        self.put(offset, extent);
    }

    /// The next WRITE of at most `bytes_max`, which is in flight from now on.
    pub(crate) fn depart(&mut self, bytes_max: usize) -> Option<Run> {
        let first = self.dirty.iter().copied().find_map(|start| {
            let extent = self.extents.get(&start)?;
            let room = self.room(start, start + (extent.length.min(bytes_max)) as u64);
            (room > start).then_some(start)
        })?;
        let mut end = first;
        let limit = first.saturating_add(bytes_max as u64);
        while let Some(extent) = self.extents.get(&end).filter(|one| one.stage == Stage::Dirty) {
            let wanted = (end + extent.length as u64).min(limit);
            let room = self.room(end, wanted);
            let is_cut = room < end + extent.length as u64;
            end = room;
            if is_cut {
                break;
            }
        }
        Some(self.send(first, end))
    }

    /// How far from `from` towards `to` no WRITE is in flight.
    fn room(&self, from: u64, to: u64) -> u64 {
        let overlapping = self.flights.values().filter(|(start, end)| *start < to && from < *end);
        overlapping.map(|(start, _)| (*start).max(from)).min().unwrap_or(to)
    }

    fn send(&mut self, from: u64, to: u64) -> Run {
        self.last_flight += 1;
        let flight = self.last_flight;
        let mut parts = Vec::new();
        for start in self.starts(from, to) {
            let Some(mut extent) = self.take(start) else { continue };
            let sent = ((to - start) as usize).min(extent.length);
            if sent < extent.length {
                self.put(to, extent.part(sent, extent.length));
                extent = extent.part(0, sent);
            }
            extent.stage = Stage::Sent { flight };
            parts.push(extent.clone());
            self.put(start, extent);
        }
        self.flights.insert(flight, (from, to));
        let length = (to - from) as usize;
        let (buffer, start) = if let [one] = parts.as_slice() {
            (Arc::clone(&one.buffer), one.start)
        } else {
            let all = parts.iter().flat_map(|part| part.bytes().iter().copied()).collect();
            (Arc::new(all), 0)
        };
        Run { flight, offset: from, buffer, start, length }
    }

    fn arrive(&mut self, flight: u64, mut then: impl FnMut(&mut Self, u64, Extent)) {
        let Some((from, to)) = self.flights.remove(&flight) else { return };
        for start in self.starts(from, to) {
            let is_of_it =
                self.extents.get(&start).is_some_and(|one| one.stage == Stage::Sent { flight });
            if is_of_it && let Some(extent) = self.take(start) {
                then(self, start, extent);
            }
        }
    }

    /// The server has the first `count` bytes of a WRITE: stable, or under this verifier. The rest is
    /// dirty again.
    pub(crate) fn acknowledge(&mut self, run: &Run, count: u64, unstable: Option<Verifier>) {
        self.acknowledge_keeping(run, count, unstable, true);
    }

    /// As [`Held::acknowledge`]. Unless `keeps_bytes`, what is unstable has its bytes in a journal alone: a server that
    /// loses it gets it from there.
    pub(crate) fn acknowledge_keeping(
        &mut self,
        run: &Run,
        count: u64,
        unstable: Option<Verifier>,
        keeps_bytes: bool,
    ) {
        self.acknowledgements += 1;
        let acknowledged = self.acknowledgements;
        let reached = run.offset.saturating_add(count);
        self.arrive(run.flight, |held, start, mut extent| {
            let done = (reached.saturating_sub(start) as usize).min(extent.length);
            if done < extent.length {
                let mut rest = extent.part(done, extent.length);
                rest.stage = Stage::Dirty;
                held.put(start + done as u64, rest);
                extent = extent.part(0, done);
            }
            if let Some(verifier) = unstable {
                extent.stage = Stage::Unstable { verifier, acknowledged };
                if !keeps_bytes {
                    (extent.buffer, extent.start) = (Arc::default(), 0);
                }
                held.put(start, extent);
            }
        });
    }

    /// The server has refused a WRITE: its bytes are given up.
    pub(crate) fn give_up(&mut self, run: &Run) {
        self.arrive(run.flight, |_, _, _| {});
    }

    /// To be taken before a COMMIT is sent, for [`Held::committed`].
    pub(crate) fn mark(&self) -> u64 {
        self.acknowledgements
    }

    /// A COMMIT that was sent at `mark` was answered with this verifier. What was acknowledged before
    /// under the same one is stable; what was under another one is dirty again, or stays as it is if its
    /// bytes are in a journal alone. Returns whether there was any of the latter.
    pub(crate) fn committed(&mut self, mark: u64, verifier: Verifier) -> bool {
        self.made_stable(mark, verifier);
        let has_lost = !self.unstable_starts(mark).is_empty();
        self.resend_unstable(mark);
        has_lost
    }

    /// As [`Held::committed`]; but what was acknowledged under another verifier stays as it is.
    pub(crate) fn made_stable(&mut self, mark: u64, verifier: Verifier) {
        for start in self.unstable_starts(mark) {
            let is_under = self.extents.get(&start).is_some_and(
                |one| matches!(one.stage, Stage::Unstable { verifier: own, .. } if own == verifier),
            );
            if is_under {
                self.take(start);
            }
        }
    }

    /// Forgets what has its bytes in a journal alone: the server has got it from there.
    pub(crate) fn forget_elsewhere(&mut self) {
        let is_elsewhere = |(start, one): (&u64, &Extent)| one.is_elsewhere().then_some(*start);
        let starts: Vec<u64> = self.extents.iter().filter_map(is_elsewhere).collect();
        for start in starts {
            self.take(start);
        }
    }

    /// Whether all that a COMMIT sent at `mark` was for was acknowledged under this verifier.
    pub(crate) fn is_acknowledged_under(&self, mark: u64, verifier: Verifier) -> bool {
        self.extents.values().all(|extent| match extent.stage {
            Stage::Unstable { verifier: own, acknowledged } => {
                acknowledged > mark || own == verifier
            }
            Stage::Dirty | Stage::Sent { .. } => true,
        })
    }

    /// A COMMIT that was sent at `mark` has failed: what it was for is given up.
    pub(crate) fn give_up_unstable(&mut self, mark: u64) {
        for start in self.unstable_starts(mark) {
            self.take(start);
        }
    }

    /// A COMMIT that was sent at `mark` has failed: what it was for is dirty again, but for what has its bytes in a
    /// journal alone.
    pub(crate) fn resend_unstable(&mut self, mark: u64) {
        for start in self.unstable_starts(mark) {
            if let Some(mut extent) = self.take(start) {
                if !extent.is_elsewhere() {
                    extent.stage = Stage::Dirty;
                }
                self.put(start, extent);
            }
        }
    }

    /// Where that begins which was acknowledged until `mark`.
    fn unstable_starts(&self, mark: u64) -> Vec<u64> {
        let of_before = |extent: &Extent| match extent.stage {
            Stage::Unstable { acknowledged, .. } => acknowledged <= mark,
            _ => false,
        };
        let extents = self.extents.iter();
        extents.filter(|(_, one)| of_before(one)).map(|(start, _)| *start).collect()
    }

    /// Forgets what is beyond a size.
    pub(crate) fn truncate(&mut self, size: u64) {
        self.cut(size, u64::MAX);
    }

    /// The bytes of a range that outweigh what the server has, as pieces with their places.
    pub(crate) fn pieces(&self, from: u64, to: u64) -> Vec<Piece> {
        let starts = self.starts(from, to);
        let pieces = starts.into_iter().filter_map(|start| {
            let extent = self.extents.get(&start)?;
            let is_acknowledged = matches!(extent.stage, Stage::Unstable { .. });
            if is_acknowledged && (self.is_acknowledged_trusted || extent.is_elsewhere()) {
                return None;
            }
            let skipped = from.saturating_sub(start) as usize;
            let length = extent.length.min((to - start) as usize);
            Some(Piece { offset: start + skipped as u64, extent: extent.part(skipped, length) })
        });
        pieces.collect()
    }
}

/// Held bytes, as they were when they were asked for.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    extent: Extent,
}

impl Piece {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.extent.bytes()
    }
}

#[cfg(test)]
mod tests;
