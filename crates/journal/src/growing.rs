//! A write that has a sequence and is in no frame yet, so that the one that follows it in the same file makes it
//! longer: many short writes become one record. Pure.
//!
//! It is the newest record of all. Whatever else is done with the journal closes it first, and what has left for the
//! medium never grows.

use crate::errors::Failed;
use crate::format::{HEADER_BYTES, Header, Sequence, block_after};
use crate::index::Entry;
use crate::record::{self, Change, Kind, Record};
use crate::state::{State, UNWRITTEN_BYTES_MAX};

/// A longer write has a record of its own at once.
const SHORT_BYTES: usize = 16 << 10;
/// A record does not grow beyond so much data.
pub(crate) const GROWN_BYTES_MAX: usize = 256 << 10;
/// What a frame has beside paths, groups, handles and data, at most.
const FIXED_BYTES: usize = HEADER_BYTES + 128;

/// A record that may grow.
#[derive(Debug)]
pub(crate) struct Growing {
    pub(crate) sequence: Sequence,
    time_ns: u64,
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    order: Option<u64>,
    path: Vec<u8>,
    file: Vec<u8>,
    offset: u64,
    data: Vec<u8>,
    compress: bool,
    /// Its frame, as long as it has not grown.
    frame: Option<(Vec<u8>, u8)>,
}

impl Growing {
    fn new(
        sequence: Sequence,
        (file, offset, data): (&[u8], u64, &[u8]),
        record: &Record<'_>,
        (frame, flags, compress): (Vec<u8>, u8, bool),
    ) -> Self {
        Self {
            sequence,
            time_ns: record.time_ns,
            uid: record.uid,
            gid: record.gid,
            groups: record.groups.to_vec(),
            order: record.order,
            path: record.path.to_vec(),
            file: file.to_vec(),
            offset,
            data: data.to_vec(),
            compress,
            frame: Some((frame, flags)),
        }
    }

    /// Makes it one that gets no frame.
    #[cfg(test)]
    pub(crate) fn spoil(&mut self) {
        self.frame = None;
        self.data.resize(crate::DATA_BYTES_MAX + 1, 0);
    }

    fn record(&self) -> Record<'_> {
        Record {
            time_ns: self.time_ns,
            uid: self.uid,
            gid: self.gid,
            groups: &self.groups,
            order: self.order,
            path: &self.path,
            change: Change::Write { file: &self.file, offset: self.offset, data: &self.data },
        }
    }

    /// So large is its frame at the most, with so much more data.
    fn frame_bytes_max(&self, more: usize) -> usize {
        let variable = self.path.len() + self.file.len() + 4 * self.groups.len();
        (FIXED_BYTES + variable + self.data.len() + more).next_multiple_of(8)
    }

    /// Whether this is by the same user, and of the bytes that follow.
    fn goes_on_with(&self, record: &Record<'_>) -> bool {
        let Change::Write { file, offset, data } = record.change else { return false };
        let end = self.offset.saturating_add(self.data.len() as u64);
        file == self.file
            && offset == end
            && (record.uid, record.gid, record.groups) == (self.uid, self.gid, &self.groups)
            && self.data.len() + data.len() <= GROWN_BYTES_MAX
            && end.checked_add(data.len() as u64).is_some_and(|end| i64::try_from(end).is_ok())
    }
}

impl State {
    /// Appends a record, for the frame of which there is room; a short write so that it may grow.
    pub(crate) fn add_growing(
        &mut self,
        record: &Record<'_>,
        (frame, flags): (Vec<u8>, u8),
        compress: bool,
    ) -> Result<Sequence, Failed> {
        self.issued = self.issued.next();
        let sequence = self.issued;
        match record.change {
            Change::Write { file, offset, data } if data.len() < SHORT_BYTES => {
                let write = (file, offset, data);
                self.growing =
                    Some(Growing::new(sequence, write, record, (frame, flags, compress)));
            }
            _ => {
                self.add_record(sequence, record.kind(), frame, flags)?;
            }
        }
        Ok(sequence)
    }

    /// Makes the record of this sequence longer, if it may still grow and there is room. `reserve` is what it leaves.
    pub(crate) fn grow(&mut self, sequence: Sequence, more: &Record<'_>, reserve: u64) -> bool {
        let Change::Write { data, .. } = more.change else { return false };
        let (head, freed, queue_bytes) = (self.head, self.freed, self.queue_bytes);
        let is_failed = self.failed.is_some();
        let Some(growing) = &mut self.growing else { return false };
        let bytes = growing.frame_bytes_max(data.len());
        let end = block_after(head + bytes as u64) + reserve;
        if is_failed
            || growing.sequence != sequence
            || !growing.goes_on_with(more)
            || end - freed > self.ring_bytes
            || queue_bytes + bytes > UNWRITTEN_BYTES_MAX
        {
            return false;
        }
        growing.data.extend_from_slice(data);
        growing.frame = None;
        true
    }

    /// Gives the record that grows its frame, if there is one.
    pub(crate) fn close_growing(&mut self) {
        let Some(mut growing) = self.growing.take() else { return };
        let frame = growing.frame.take();
        let encode = || {
            let encoded = growing.record().encode(HEADER_BYTES, growing.compress);
            encoded.map(|(frame, flags, _)| (frame, flags))
        };
        let Ok((frame, flags)) = frame.map_or_else(encode, Ok) else {
            // It was fit when it began, and has grown within the bounds.
            return self.fail("a record that has grown cannot be written");
        };
        if let Err(Failed { why }) = self.add_record(growing.sequence, Kind::Write, frame, flags) {
            self.fail(&why);
        }
    }

    /// Gives a record its frame, and adds it to those that have not left.
    pub(crate) fn add_record(
        &mut self,
        sequence: Sequence,
        kind: Kind,
        frame: Vec<u8>,
        flags: u8,
    ) -> Result<Header, Failed> {
        let decoded = record::decode(kind, flags, frame.get(HEADER_BYTES..).unwrap_or_default());
        let Some(decoded) = decoded else {
            return Err(Failed { why: "a record cannot be read as it was written".to_owned() });
        };
        let mut entry = Entry::new(kind, &decoded);
        self.statistics.records += 1;
        self.statistics.data_bytes += u64::from(decoded.data_bytes);
        let header = self.place_as(sequence, frame, kind as u8, flags);
        entry.stands_at(&header);
        self.index.insert(header.sequence, entry);
        self.version += 1;
        Ok(header)
    }
}
