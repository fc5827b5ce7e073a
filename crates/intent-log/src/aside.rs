//! Set-aside files: the live records of a file system that was absent at the start, kept outside
//! the ring so that it cannot stop the others, until it is there again and they are replayed.
//!
//! A head (the log, the file system), the same records as in the ring, an end that says how many
//! there were: so that a file that was cut off, or whose writing was not finished, is told from a
//! whole one. The LSNs of one file system's records grow, but not by one.
//!
//! Bytes in, records out: who reads the file gives its bytes to [`AsideReader::push`] in whatever
//! pieces, and takes out with [`AsideReader::next`] what is complete.

use thiserror::Error;

use crate::format::Lsn;
use crate::record::{Fields, HEADER_BYTES, Header, Record, is_intact, record_bytes};
use crate::superblock::{Identity, PATH_BYTES_MAX, log_id};

const MAGIC: [u8; 8] = *b"SfAside\0";
/// The version of this format.
pub const ASIDE_VERSION: u32 = 1;
/// Magic, version, checksum, log's uuid, epoch, kind, uuid of the file system, index, length of the
/// path.
const HEAD_BYTES: usize = 72;
/// The end is a record with this for a file system, and the number of records for a payload.
const END_FILE_SYSTEM: u32 = u32::MAX;

/// What a set-aside file begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsideHead {
    /// The log that the records were in.
    pub uuid: [u8; 16],
    /// Their epoch.
    pub epoch: u64,
    /// The file system that they are of.
    pub identity: Identity,
    /// The index that it had, which its records carry.
    pub file_system: u32,
    /// Where it was mounted.
    pub path: Vec<u8>,
}

/// What is wrong with a set-aside file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AsideError {
    /// It does not begin as one.
    #[error("this is no set-aside file of an intent log")]
    Foreign,
    /// Another version.
    #[error("the set-aside file has format version {0}, this program reads {ASIDE_VERSION}")]
    OtherVersion(u32),
    /// The head is damaged.
    #[error("the head of the set-aside file is damaged")]
    Head,
    /// A record is damaged.
    #[error("the set-aside file is damaged after record {after}")]
    Record {
        /// The last one that is whole.
        after: Lsn,
    },
    /// It ends too early.
    #[error("the set-aside file was cut off after record {after}")]
    CutOff {
        /// The last one that is whole.
        after: Lsn,
    },
    /// There is more after its end.
    #[error("the set-aside file goes on after its end")]
    Trailing,
}

/// What comes next in a set-aside file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aside {
    /// The head, first of all.
    Head(AsideHead),
    /// A record.
    Record(Record),
    /// The end: so many records were there.
    End(u64),
}

/// Appends the head.
///
/// # Panics
/// If the path is longer than the superblock keeps them.
pub fn write_head(into: &mut Vec<u8>, head: &AsideHead) {
    assert!(head.path.len() <= PATH_BYTES_MAX, "paths are bounded");
    let mut bytes = Vec::with_capacity(HEAD_BYTES + head.path.len());
    bytes.extend_from_slice(&head.uuid);
    bytes.extend_from_slice(&head.epoch.to_le_bytes());
    bytes.extend_from_slice(&head.identity.kind.to_le_bytes());
    bytes.extend_from_slice(&head.identity.uuid);
    bytes.extend_from_slice(&head.file_system.to_le_bytes());
    bytes.extend_from_slice(&(head.path.len() as u32).to_le_bytes());
    bytes.resize(HEAD_BYTES - 16, 0);
    bytes.extend_from_slice(&head.path);
    into.extend_from_slice(&MAGIC);
    into.extend_from_slice(&ASIDE_VERSION.to_le_bytes());
    into.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    into.extend_from_slice(&bytes);
}

/// Appends a record.
pub fn write_aside(into: &mut Vec<u8>, head: &AsideHead, record: &Record) {
    write_record(into, head, record.lsn, record.file_system, &record.payload);
}

/// Appends the end, after so many records of which this was the last.
pub fn write_end(into: &mut Vec<u8>, head: &AsideHead, records: u64, last: Lsn) {
    write_record(into, head, last.next(), END_FILE_SYSTEM, &records.to_le_bytes());
}

fn write_record(into: &mut Vec<u8>, head: &AsideHead, lsn: Lsn, file_system: u32, payload: &[u8]) {
    let header = Header {
        payload_bytes: payload.len() as u32,
        lsn,
        epoch: head.epoch,
        log_id: log_id(&head.uuid),
        stable: lsn,
        file_system,
    };
    into.extend_from_slice(&header.encode(crc32c::crc32c(payload)));
    into.extend_from_slice(payload);
    let padding = record_bytes(payload.len()) - HEADER_BYTES - payload.len();
    into.resize(into.len() + padding, 0);
}

/// A reader of a set-aside file. Holds at most one record and what was pushed last.
#[derive(Debug, Default)]
pub struct AsideReader {
    bytes: Vec<u8>,
    /// Of the bytes, those that were taken out.
    taken: usize,
    head: Option<AsideHead>,
    records: u64,
    last: Lsn,
    has_ended: bool,
}

impl AsideReader {
    /// The next bytes of the file. Best pushed when [`AsideReader::next`] has nothing.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// What comes next, if it is there; `None` asks for more bytes, or, after the end, says that
    /// all is well.
    #[allow(clippy::should_implement_trait, reason = "None is not the end")]
    pub fn next(&mut self) -> Result<Option<Aside>, AsideError> {
        let rest = self.bytes.get(self.taken..).unwrap_or_default();
        if self.has_ended {
            return if rest.is_empty() { Ok(None) } else { Err(AsideError::Trailing) };
        }
        let Some(head) = &self.head else {
            let Some((head, bytes)) = decode_head(rest)? else { return Ok(None) };
            self.taken += bytes;
            self.head = Some(head.clone());
            return Ok(Some(Aside::Head(head)));
        };
        let damaged = AsideError::Record { after: self.last };
        let Some(header_bytes) = rest.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::decode(header_bytes).map_err(|_| damaged)?;
        let Some(record) = rest.get(..header.record_bytes()) else { return Ok(None) };
        let payload = record.get(HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize);
        let payload = payload.unwrap_or_default();
        if !is_intact(header_bytes, payload)
            || header.log_id != log_id(&head.uuid)
            || header.epoch != head.epoch
            || header.lsn <= self.last
        {
            return Err(damaged);
        }
        self.taken += header.record_bytes();
        if header.file_system == END_FILE_SYSTEM {
            self.has_ended = true;
            let is_all = Fields(payload).u64() == self.records && payload.len() == 8;
            return if is_all { Ok(Some(Aside::End(self.records))) } else { Err(damaged) };
        }
        if header.file_system != head.file_system {
            return Err(damaged);
        }
        (self.last, self.records) = (header.lsn, self.records + 1);
        let (payload, is_live) = (payload.to_vec(), header.payload_bytes > 0);
        let (lsn, file_system) = (header.lsn, header.file_system);
        Ok(Some(Aside::Record(Record { lsn, file_system, is_live, payload })))
    }

    /// To be asked when there are no more bytes: whether the end was there.
    pub fn finish(&self) -> Result<(), AsideError> {
        if self.has_ended { Ok(()) } else { Err(AsideError::CutOff { after: self.last }) }
    }
}

fn decode_head(bytes: &[u8]) -> Result<Option<(AsideHead, usize)>, AsideError> {
    let known = bytes.len().min(MAGIC.len());
    if bytes.get(..known) != MAGIC.get(..known) {
        return Err(AsideError::Foreign);
    }
    if bytes.len() < HEAD_BYTES {
        return Ok(None);
    }
    let mut fields = Fields(bytes);
    fields.array::<8>();
    let (version, crc) = (fields.u32(), fields.u32());
    if version != ASIDE_VERSION {
        return Err(AsideError::OtherVersion(version));
    }
    let body = fields.0;
    let (uuid, epoch, kind) = (fields.array(), fields.u64(), fields.u32());
    let identity = Identity { uuid: fields.array(), kind };
    let (file_system, path_bytes) = (fields.u32(), fields.u32() as usize);
    if path_bytes > PATH_BYTES_MAX {
        return Err(AsideError::Head);
    }
    let body_bytes = HEAD_BYTES - 16 + path_bytes;
    let Some(body) = body.get(..body_bytes) else { return Ok(None) };
    if crc32c::crc32c(body) != crc {
        return Err(AsideError::Head);
    }
    let path = body.get(HEAD_BYTES - 16..).unwrap_or_default().to_vec();
    Ok(Some((AsideHead { uuid, epoch, identity, file_system, path }, 16 + body_bytes)))
}

#[cfg(test)]
mod tests {
    use super::{Aside, AsideError, AsideHead, AsideReader, write_aside, write_end, write_head};
    use crate::{Identity, Lsn, Record};

    fn head() -> AsideHead {
        AsideHead {
            uuid: [1; 16],
            epoch: 2,
            identity: Identity { uuid: [3; 16], kind: 4 },
            file_system: 5,
            path: b"/srv/disk".to_vec(),
        }
    }

    fn record(lsn: u64, length: usize) -> Record {
        let payload = vec![lsn as u8; length];
        Record { lsn: Lsn(lsn), file_system: 5, is_live: true, payload }
    }

    fn file(records: &[Record]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_head(&mut bytes, &head());
        for record in records {
            write_aside(&mut bytes, &head(), record);
        }
        let last = records.last().map_or(Lsn(0), |record| record.lsn);
        write_end(&mut bytes, &head(), records.len() as u64, last);
        bytes
    }

    fn read(bytes: &[u8], piece: usize) -> Result<Vec<Aside>, AsideError> {
        let mut reader = AsideReader::default();
        let mut found = Vec::new();
        for piece in bytes.chunks(piece.max(1)) {
            reader.push(piece);
            while let Some(next) = reader.next()? {
                found.push(next);
            }
        }
        reader.finish()?;
        Ok(found)
    }

    #[test]
    fn what_was_set_aside_comes_back() {
        let records = [record(7, 1), record(9, 5000), record(10, 8)];
        let bytes = file(&records);
        for piece in [1, 7, 100, usize::MAX] {
            let found = read(&bytes, piece).expect("whole");
            let mut expected = vec![Aside::Head(head())];
            expected.extend(records.iter().cloned().map(Aside::Record));
            expected.push(Aside::End(3));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_file_that_is_not_whole_is_never_taken_for_one() {
        let bytes = file(&[record(7, 1), record(9, 20)]);
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length], 64).is_err(), "{length}");
        }
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if let Ok(found) = read(&damaged, usize::MAX) {
                // Padding is not checked, as it tells nothing.
                assert_eq!(Ok(found), read(&bytes, usize::MAX), "{bit}");
            }
        }
        let more = [bytes.clone(), vec![0]].concat();
        assert_eq!(read(&more, usize::MAX), Err(AsideError::Trailing));
        assert_eq!(read(b"else", 1), Err(AsideError::Foreign));
    }

    #[test]
    fn records_are_in_order_and_of_one_file_system() {
        let after = |lsn| Err(AsideError::Record { after: Lsn(lsn) });
        assert_eq!(read(&file(&[record(9, 1), record(9, 1)]), 64), after(9));
        let other = Record { file_system: 6, ..record(9, 1) };
        assert_eq!(read(&file(&[other]), 64), after(0));
    }
}
