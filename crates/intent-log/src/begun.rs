//! The format of files of *begun marks*: which calls were about to change something when the process
//! was killed. A file is a head and a ring of entries; new entries are written over the oldest ones.
//! Nothing in it is ever flushed: it is for a process that ends while the machine goes on.
//!
//! All integers are little-endian.
//!
//! | bytes of the head | |
//! |---|---|
//! | 8 | magic |
//! | 4 | version |
//! | 4 | CRC-32C of what follows |
//! | 36 | which run of the machine it is of |
//! | 8 | the tag: random, another one in each file |
//! | 4 | zeros |
//!
//! An entry begins at a multiple of [`UNIT_BYTES`].
//!
//! | bytes of an entry | |
//! |---|---|
//! | 8 | the file's tag; zeros once the mark was taken back |
//! | 4 | length of the payload, 1 to [`MARK_BYTES_MAX`] |
//! | 4 | CRC-32C of the length and the payload |
//! | | the payload, and zeros up to a multiple of [`UNIT_BYTES`] |
//!
//! Payloads have bytes that clients choose. The tag, which no client knows, keeps what is left of an old
//! payload from being read as an entry.

const MAGIC: [u8; 8] = *b"SfBegun\0";
/// The version of this format.
pub const BEGUN_VERSION: u32 = 1;
/// Bytes of the head.
pub const BEGUN_HEAD_BYTES: usize = 64;
/// Entries begin at multiples of this.
pub const UNIT_BYTES: usize = 64;
/// The largest payload, in bytes: a symbolic link's target, two names, handles, a call's key.
pub const MARK_BYTES_MAX: usize = 6144;
/// Bytes of a tag.
pub const TAG_BYTES: usize = 8;
/// Bytes that name a run of the machine.
pub const RUN_BYTES: usize = 36;
const ENTRY_HEAD_BYTES: usize = 16;
const _: () = assert!(ENTRY_HEAD_BYTES + MARK_BYTES_MAX < 1 << 16);
const _: () = assert!(8 + 4 + 4 + RUN_BYTES + TAG_BYTES < BEGUN_HEAD_BYTES);

/// Tells the entries of one file from anything else.
pub type Tag = [u8; TAG_BYTES];

/// Appends the head of a file.
pub fn write_begun_head(into: &mut Vec<u8>, run: &[u8; RUN_BYTES], tag: Tag) {
    let mut rest = run.to_vec();
    rest.extend_from_slice(&tag);
    rest.extend_from_slice(&[0; 4]);
    into.extend_from_slice(&MAGIC);
    into.extend_from_slice(&BEGUN_VERSION.to_le_bytes());
    into.extend_from_slice(&crc32c::crc32c(&rest).to_le_bytes());
    into.extend_from_slice(&rest);
}

/// Makes an entry of a payload that is in `entry` behind [`begin_mark`]'s bytes. `false` if it is empty
/// or too large.
pub fn end_mark(entry: &mut Vec<u8>, tag: Tag) -> bool {
    let Some((head, payload)) = entry.split_first_chunk_mut::<ENTRY_HEAD_BYTES>() else {
        return false;
    };
    if payload.is_empty() || payload.len() > MARK_BYTES_MAX {
        return false;
    }
    let length = (payload.len() as u32).to_le_bytes();
    let crc = checksum(length, payload).to_le_bytes();
    let fields = tag.iter().chain(&length).chain(&crc);
    for (place, byte) in head.iter_mut().zip(fields) {
        *place = *byte;
    }
    entry.resize(entry.len().next_multiple_of(UNIT_BYTES), 0);
    true
}

/// Begins an entry in an empty buffer: the payload is to be appended, then [`end_mark`] called.
pub fn begin_mark(entry: &mut Vec<u8>) {
    entry.clear();
    entry.resize(ENTRY_HEAD_BYTES, 0);
}

fn checksum(length: [u8; 4], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&length), payload)
}

/// A file of marks, as it was found.
#[derive(Clone, Debug)]
pub struct BegunFile<'f> {
    /// Which run of the machine it is of.
    pub run: [u8; RUN_BYTES],
    tag: Tag,
    rest: &'f [u8],
}

impl<'f> BegunFile<'f> {
    /// A file by its bytes; `None` if it is none, or of another version.
    pub fn new(bytes: &'f [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<BEGUN_HEAD_BYTES>()?;
        let fields = head.strip_prefix(&MAGIC)?.strip_prefix(&BEGUN_VERSION.to_le_bytes())?;
        let (crc, fields) = fields.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*crc) != crc32c::crc32c(fields) {
            return None;
        }
        let (run, fields) = fields.split_first_chunk()?;
        let (tag, zeros) = fields.split_first_chunk()?;
        (zeros == [0; 4] && *tag != [0; TAG_BYTES]).then_some(Self { run: *run, tag: *tag, rest })
    }

    /// What tells its entries.
    pub fn tag(&self) -> Tag {
        self.tag
    }
}

impl<'f> Iterator for BegunFile<'f> {
    type Item = &'f [u8];

    /// The payloads of whole entries, in the order of their places: not of their times.
    fn next(&mut self) -> Option<&'f [u8]> {
        while !self.rest.is_empty() {
            let found = first_mark(self.rest, self.tag);
            let bytes = found.map_or(UNIT_BYTES, |payload| ENTRY_HEAD_BYTES + payload.len());
            self.rest = self.rest.get(bytes.next_multiple_of(UNIT_BYTES)..).unwrap_or(&[]);
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

fn first_mark(bytes: &[u8], tag: Tag) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(&tag)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (crc, rest) = rest.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*length) as usize;
    let payload = rest.get(..count).filter(|_| (1..=MARK_BYTES_MAX).contains(&count))?;
    (u32::from_le_bytes(*crc) == checksum(*length, payload)).then_some(payload)
}

#[cfg(test)]
mod tests {
    //! Unit and property ring.
    use proptest::prelude::*;

    use super::*;

    const TAG: Tag = *b"12345678";
    const RUN: [u8; RUN_BYTES] = [b'r'; RUN_BYTES];

    fn entry(payload: &[u8]) -> Vec<u8> {
        let mut entry = vec![9; 5];
        begin_mark(&mut entry);
        entry.extend_from_slice(payload);
        assert!(end_mark(&mut entry, TAG));
        entry
    }

    fn file(ring: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        write_begun_head(&mut file, &RUN, TAG);
        assert_eq!(file.len(), BEGUN_HEAD_BYTES);
        file.extend_from_slice(ring);
        file
    }

    fn read(file: &[u8]) -> Vec<Vec<u8>> {
        let found = BegunFile::new(file).expect("a head");
        assert_eq!((found.run, found.tag()), (RUN, TAG));
        found.map(<[u8]>::to_vec).collect()
    }

    proptest! {
        /// A ring that went round: what is read are the newest entries, whole.
        #[test]
        fn the_newest_entries_are_read(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 1..60),
            units in 8_usize..40,
            torn in prop::option::of(0_usize..64),
        ) {
            let mut ring = vec![0; units * UNIT_BYTES];
            let (mut at, mut written) = (0, Vec::new());
            for payload in &payloads {
                let entry = entry(payload);
                if at + entry.len() > ring.len() {
                    at = 0;
                }
                ring[at..at + entry.len()].copy_from_slice(&entry);
                written.retain(|(from, to, _): &(usize, usize, Vec<u8>)| *to <= at || *from >= at + entry.len());
                written.push((at, at + entry.len(), payload.clone()));
                at += entry.len();
            }
            if let (Some(torn), Some((from, to, payload))) = (torn, written.last().cloned())
                && from + torn < to.min(from + ENTRY_HEAD_BYTES + payload.len())
            {
                ring[from + torn] ^= 1;
                written.pop();
            }
            written.sort();
            let expected: Vec<_> = written.into_iter().map(|(_, _, payload)| payload).collect();
            prop_assert_eq!(read(&file(&ring)), expected);
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            prop_assert!(BegunFile::new(&bytes).is_none());
            for payload in read(&file(&bytes)) {
                prop_assert!(!payload.is_empty());
            }
        }
    }

    #[test]
    fn what_was_taken_back_is_not_read() {
        let mut ring = [entry(b"one"), entry(b"two")].concat();
        ring[..TAG_BYTES].fill(0);
        assert_eq!(read(&file(&ring)), [b"two"]);
    }

    #[test]
    fn what_a_client_wrote_is_no_entry() {
        // It does not know the tag.
        let mut forged = Vec::new();
        begin_mark(&mut forged);
        forged.extend_from_slice(b"forged");
        assert!(end_mark(&mut forged, *b"guessed!"));
        let mut padded = vec![0; UNIT_BYTES - ENTRY_HEAD_BYTES];
        padded.extend_from_slice(&forged);
        let mut ring = entry(&padded);
        assert_eq!(read(&file(&ring)), [padded]);
        ring[0] ^= 1;
        assert_eq!(read(&file(&ring)), [[0; 0]; 0]);
    }

    #[test]
    fn heads_are_checked() {
        let whole = file(&entry(b"one"));
        for at in 0..BEGUN_HEAD_BYTES {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(BegunFile::new(&damaged).is_none(), "{at}");
        }
        for length in 0..BEGUN_HEAD_BYTES {
            assert!(BegunFile::new(&whole[..length]).is_none(), "{length}");
        }
        let mut without_tag = Vec::new();
        write_begun_head(&mut without_tag, &RUN, [0; TAG_BYTES]);
        assert!(BegunFile::new(&without_tag).is_none());
    }

    #[test]
    fn payloads_are_bounded() {
        for (bytes, expected) in
            [(0, false), (1, true), (MARK_BYTES_MAX, true), (MARK_BYTES_MAX + 1, false)]
        {
            let mut entry = Vec::new();
            begin_mark(&mut entry);
            entry.resize(entry.len() + bytes, 7);
            assert_eq!(end_mark(&mut entry, TAG), expected, "{bytes}");
        }
        assert!(!end_mark(&mut Vec::new(), TAG));
    }
}
