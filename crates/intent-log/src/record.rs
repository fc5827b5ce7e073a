//! A record: header, payload, zeros up to a multiple of 8.
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | magic |
//! | 4..8 | payload length |
//! | 8..16 | LSN |
//! | 16..24 | epoch |
//! | 24..32 | log id: the low 8 bytes of the log's uuid |
//! | 32..40 | the LSN that was stable when the record was laid out |
//! | 40..44 | file system |
//! | 44..48 | CRC-32C of the payload, then of bytes 0..44 |
//!
//! The checksum runs over the payload first, so that most of it can be computed before the LSN is
//! known, by the thread that made the payload.
//!
//! # Why stale bytes are never taken for a record
//!
//! Where the reader looks for a record there may be whatever was written there before: a record,
//! or the middle of one, of an earlier lap, of an earlier epoch, of another log. It takes what it
//! finds only if the magic, the log id, the epoch, exactly the LSN expected and the checksum fit.
//!
//! - *Another log's records* (the file or device was one before) have another log id: it is random.
//! - *Earlier epochs'* have another epoch. Both copies of the superblock say the epoch before its
//!   first record is written ([`crate::IntentLog::take_batch`] sees to it), so that however the log
//!   was left, and even if the newer copy is damaged, the next epoch is above all that were used.
//! - *Earlier laps'* have lower LSNs, since LSNs only grow, and so has all that a payload may hold a
//!   copy of (somebody backs up the log into a directory that it logs for): it was in the ring
//!   before it was in the payload.
//! - *Later records*, those of batches that reached the medium while one before them did not, have
//!   LSNs above that of the gap. The scan ends at the gap; and then there is a new epoch.
//! - *Forged ones* would have to be in a payload, by a client that knows the log id. It is told to
//!   nobody: it must not be shown to clients, nor be derived from anything that is.

use crate::format::{Lsn, PAYLOAD_BYTES_MAX};

/// Bytes of a record's header.
pub const HEADER_BYTES: usize = 48;
const CHECKED_BYTES: usize = HEADER_BYTES - 4;
/// Records begin at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;
const MAGIC: u32 = u32::from_le_bytes(*b"SfRc");

/// A record as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub lsn: Lsn,
    /// The index of its file system in the superblock's table.
    pub file_system: u32,
    /// Whether the file system needs it: it was not checkpointed beyond, and there is a payload.
    pub is_live: bool,
    /// What it tells. Empty if nothing: the operation failed after its LSN was reserved.
    pub payload: Vec<u8>,
}

/// Bytes of a record with so large a payload.
pub(crate) const fn record_bytes(payload_bytes: usize) -> usize {
    (HEADER_BYTES + payload_bytes).next_multiple_of(ALIGNMENT)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) payload_bytes: u32,
    pub(crate) lsn: Lsn,
    pub(crate) epoch: u64,
    pub(crate) log_id: u64,
    pub(crate) stable: Lsn,
    pub(crate) file_system: u32,
}

/// Why there is no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHeader {
    Zeros,
    OtherBytes,
    /// The length cannot be.
    Length,
}

impl Header {
    /// The bytes, with the checksum of a payload that has this one.
    pub(crate) fn encode(&self, payload_crc: u32) -> [u8; HEADER_BYTES] {
        assert!(self.payload_bytes as usize <= PAYLOAD_BYTES_MAX, "a payload beyond its bound");
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.lsn.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.log_id.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.stable.0.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.file_system.to_le_bytes());
        let crc = crc32c::crc32c_append(payload_crc, &bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header. Its checksum can only be checked together with the payload:
    /// [`is_intact`].
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, NoHeader> {
        let mut fields = Fields(bytes);
        if fields.u32() != MAGIC {
            let is_zero = bytes.iter().all(|byte| *byte == 0);
            return Err(if is_zero { NoHeader::Zeros } else { NoHeader::OtherBytes });
        }
        let header = Self {
            payload_bytes: fields.u32(),
            lsn: Lsn(fields.u64()),
            epoch: fields.u64(),
            log_id: fields.u64(),
            stable: Lsn(fields.u64()),
            file_system: fields.u32(),
        };
        if header.payload_bytes as usize > PAYLOAD_BYTES_MAX {
            return Err(NoHeader::Length);
        }
        Ok(header)
    }

    /// Bytes of the record.
    pub(crate) fn record_bytes(&self) -> usize {
        record_bytes(self.payload_bytes as usize)
    }
}

/// Whether the checksum in the header is that of the header and the payload.
pub(crate) fn is_intact(header: &[u8; HEADER_BYTES], payload: &[u8]) -> bool {
    let (checked, stored) = header.split_at(CHECKED_BYTES);
    crc32c::crc32c_append(crc32c::crc32c(payload), checked).to_le_bytes() == stored
}

/// Writes the right checksums into records that begin a block, and those that follow them: see
/// [`crate::testing::seal`].
pub(crate) fn seal(ring: &mut [u8]) {
    for block in (0..ring.len()).step_by(crate::medium::BLOCK_BYTES) {
        let mut at = block;
        while let Some(rest) = ring.get_mut(at..)
            && let Some((head, rest)) = rest.split_first_chunk_mut::<HEADER_BYTES>()
            && let Ok(header) = Header::decode(head)
            && let Some(payload) = rest.get(..header.payload_bytes as usize)
        {
            *head = header.encode(crc32c::crc32c(payload));
            at += header.record_bytes();
        }
    }
}

/// The next fields of bytes; zeros when there are no more.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let Some((first, rest)) = self.0.split_first_chunk::<N>() else {
            self.0 = &[];
            return [0; N];
        };
        self.0 = rest;
        *first
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// So many bytes; `None` if there are fewer.
    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::{HEADER_BYTES, Header, MAGIC, NoHeader, is_intact, record_bytes};
    use crate::format::{Lsn, PAYLOAD_BYTES_MAX};

    const HEADER: Header = Header {
        payload_bytes: 3,
        lsn: Lsn(0x0102),
        epoch: 3,
        log_id: 4,
        stable: Lsn(5),
        file_system: 6,
    };

    #[test]
    fn headers_are_read_as_they_were_written() {
        let bytes = HEADER.encode(crc32c::crc32c(b"abc"));
        assert_eq!(Header::decode(&bytes), Ok(HEADER));
        assert!(is_intact(&bytes, b"abc"));
        assert!(!is_intact(&bytes, b"abd"));
        // The format itself: little-endian, and a checksum that other implementations compute.
        assert_eq!(&bytes[..12], b"SfRc\x03\0\0\0\x02\x01\0\0");
        let whole = [&b"abc"[..], &bytes[..44]].concat();
        assert_eq!(bytes[44..], crc32c::crc32c(&whole).to_le_bytes());
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn every_bit_counts() {
        let bytes = HEADER.encode(crc32c::crc32c(b"abc"));
        for bit in 0..8 * HEADER_BYTES {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&damaged).is_err() || !is_intact(&damaged, b"abc"), "{bit}");
        }
    }

    #[test]
    fn what_is_no_header_says_why() {
        assert_eq!(Header::decode(&[0; HEADER_BYTES]), Err(NoHeader::Zeros));
        assert_eq!(Header::decode(&[1; HEADER_BYTES]), Err(NoHeader::OtherBytes));
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&(PAYLOAD_BYTES_MAX as u32 + 1).to_le_bytes());
        assert_eq!(Header::decode(&bytes), Err(NoHeader::Length));
    }

    #[test]
    fn records_are_padded() {
        assert_eq!(record_bytes(0), 48);
        assert_eq!(record_bytes(1), 56);
        assert_eq!(record_bytes(8), 56);
    }
}
