//! Where things are in the ring file, and the header of a frame.
//!
//! ```text
//! 0              4 KiB                                         4 KiB + ring bytes
//! | superblock A | ring: batch batch batch … (round and round) | superblock B |
//! ```
//!
//! All integers are little-endian. A batch begins at a block boundary and is frames one after the
//! other, each padded with zeros to a multiple of 8 bytes. The header of a frame:
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | magic |
//! | 4..8 | length of the payload |
//! | 8..16 | sequence |
//! | 16..24 | the sequence of the frame before |
//! | 24..32 | position: bytes written into the ring since it was made |
//! | 32..40 | epoch: one each time the journal is opened for writing |
//! | 40..48 | id of the journal: the low 8 bytes of its uuid |
//! | 48..56 | the sequence up to which everything was on the medium when this was appended |
//! | 56..60 | kind of the payload, flags, zeros |
//! | 60..64 | CRC-32C of the payload |
//! | 64..68 | zeros |
//! | 68..72 | CRC-32C of bytes 0..68 |
//!
//! The position in the header is the reason why a scan can start anywhere: a frame of an earlier
//! lap has a lower one, and a copy of the ring in the data of a record stands elsewhere. The
//! sequence of the frame before is the reason why every gap is noticed, though sequences jump after a
//! crash.

use steadfast_intent_log::BLOCK_BYTES;

/// Bytes of one copy of the superblock.
pub const SUPERBLOCK_BYTES: usize = BLOCK_BYTES;
/// Where the ring begins in the file.
pub const RING_OFFSET: u64 = SUPERBLOCK_BYTES as u64;
/// The smallest ring. Tests and fuzzing like it small; a mount asks for far more.
pub const RING_BYTES_MIN: u64 = 4 * BLOCK_BYTES as u64;
/// The largest ring: a superblock that says more is not believed.
pub const RING_BYTES_MAX: u64 = 64 << 30;
/// The most data that one record may have: the largest WRITE of NFS in use (1 MiB), twice.
pub const DATA_BYTES_MAX: usize = 2 << 20;
/// Bytes of a file handle at the most (RFC 8881 §3.1: `NFS4_FHSIZE`).
pub const HANDLE_BYTES_MAX: usize = 128;
/// Groups of a record at the most, beside its gid (RFC 5531 §14: those of `AUTH_SYS`).
pub const GROUPS_MAX: usize = 16;
/// Bytes of a path, or of the target of a symbolic link, at the most (`PATH_MAX`).
pub const PATH_BYTES_MAX: usize = 4096;
/// Bytes of a name at the most (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a payload at the most: data, two paths, two names, handles, groups, attributes.
pub(crate) const PAYLOAD_BYTES_MAX: usize =
    DATA_BYTES_MAX + 2 * PATH_BYTES_MAX + 2 * NAME_BYTES_MAX + 4 * HANDLE_BYTES_MAX + 512;
/// Numbers are below this, so that sums of them do not overflow.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;
/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 72;
const CHECKED_BYTES: usize = HEADER_BYTES - 4;
/// Frames begin at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;
pub(crate) const MAGIC: [u8; 4] = *b"SfJr";

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The number of a record. It only grows, and is never used twice in the life of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The next one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl std::fmt::Display for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Bytes of a frame with so large a payload, with its padding.
pub(crate) const fn frame_bytes(payload_bytes: usize) -> usize {
    (HEADER_BYTES + payload_bytes).next_multiple_of(ALIGNMENT)
}

/// The position itself, or the next block boundary.
pub(crate) fn block_after(position: u64) -> u64 {
    position.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX)
}

/// The position itself, or the block boundary before it.
pub(crate) fn block_before(position: u64) -> u64 {
    position - position % BLOCK
}

/// How large the file of a ring is.
pub(crate) const fn file_bytes(ring_bytes: u64) -> u64 {
    RING_OFFSET + ring_bytes + SUPERBLOCK_BYTES as u64
}

/// How large a ring a file of this size has room for; `None` if it is too small.
pub(crate) fn ring_bytes_of(medium_bytes: u64) -> Option<u64> {
    let bytes = medium_bytes.checked_sub(file_bytes(0))?;
    let bytes = (bytes - bytes % BLOCK).min(NUMBER_MAX);
    (bytes >= RING_BYTES_MIN).then_some(bytes)
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) payload_bytes: u32,
    pub(crate) sequence: Sequence,
    pub(crate) previous: Sequence,
    pub(crate) position: u64,
    pub(crate) epoch: u64,
    pub(crate) journal_id: u64,
    pub(crate) stable: Sequence,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) payload_crc: u32,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.previous.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.position.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.journal_id.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.stable.0.to_le_bytes());
        bytes[56] = self.kind;
        bytes[57] = self.flags;
        bytes[60..64].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The fields, whether or not they are right.
    pub(crate) fn fields(bytes: &[u8; HEADER_BYTES]) -> Self {
        let mut fields = Fields::new(bytes.get(4..).unwrap_or_default());
        Self {
            payload_bytes: fields.u32().unwrap_or_default(),
            sequence: Sequence(fields.u64().unwrap_or_default()),
            previous: Sequence(fields.u64().unwrap_or_default()),
            position: fields.u64().unwrap_or_default(),
            epoch: fields.u64().unwrap_or_default(),
            journal_id: fields.u64().unwrap_or_default(),
            stable: Sequence(fields.u64().unwrap_or_default()),
            kind: fields.u8().unwrap_or_default(),
            flags: fields.u8().unwrap_or_default(),
            payload_crc: {
                let _ = fields.take(2);
                fields.u32().unwrap_or_default()
            },
        }
    }

    /// Reads a header whose checksum is right, and whose numbers can be.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let (checked, crc) = bytes.split_at(CHECKED_BYTES);
        if !bytes.starts_with(&MAGIC) || crc32c::crc32c(checked).to_le_bytes() != crc {
            return None;
        }
        let header = Self::fields(bytes);
        let can_be = header.payload_bytes as usize <= PAYLOAD_BYTES_MAX
            && header.previous < header.sequence
            && header.sequence.0 < NUMBER_MAX / 16
            && header.position < NUMBER_MAX
            && header.epoch < NUMBER_MAX;
        can_be.then_some(header)
    }

    pub(crate) fn frame_bytes(&self) -> u64 {
        frame_bytes(self.payload_bytes as usize) as u64
    }
}

/// A reader of bytes from outside. Every answer is `None` where they end too early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Bytes behind their length, which is at most so much.
    pub(crate) fn bytes(&mut self, max: usize) -> Option<&'a [u8]> {
        let length = usize::from(self.u16()?);
        if length > max {
            return None;
        }
        self.take(length)
    }
}
