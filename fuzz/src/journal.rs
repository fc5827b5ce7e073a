//! Media of a journal as short inputs: flags, blocks of the ring, then pieces: block (one byte),
//! length (two bytes), bytes. The first and the last block are the superblocks; what is
//! not said is zeros.

use std::sync::Arc;

use steadfast_intent_log::testing::MemoryMedium;
use steadfast_journal::testing::seal;
use steadfast_journal::{Attributes, Change, Journal, Options, Outcome, Record, Settled, Stamp};

const BLOCK_BYTES: usize = 4096;
/// Blocks of the ring, at the most.
const BLOCKS_MAX: usize = 24;
/// The checksums are made right.
const IS_SEALED: u8 = 1;

/// The superblocks are those of the input. Else they are those of a new journal that was not closed.
const HAS_SUPERBLOCKS: u8 = 2;
const UUID: [u8; 16] = [1; 16];

/// The medium of an input, and whether its superblocks may be forged.
pub fn expand(input: &[u8]) -> Option<(Vec<u8>, bool)> {
    let ([flags, blocks], mut rest) = input.split_first_chunk::<2>()?;
    let blocks = 2 + usize::from(*blocks) % (BLOCKS_MAX + 1);
    let mut image = vec![0; blocks * BLOCK_BYTES];
    while let Some(([block, low, high], after)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (bytes, after) = after.split_at(length);
        let start = usize::from(*block) % blocks * BLOCK_BYTES;
        let end = (start + length).min(image.len());
        image[start..end].copy_from_slice(&bytes[..end - start]);
        rest = after;
    }
    if flags & IS_SEALED != 0 {
        seal(&mut image);
    }
    let is_forged = flags & HAS_SUPERBLOCKS != 0;
    if !is_forged {
        let medium = Arc::new(MemoryMedium::new(image.len()));
        let opened = Journal::on_medium(Arc::clone(&medium) as _, &options(), UUID).ok()?;
        let of_new = medium.image();
        drop(opened);
        for block in [0, image.len() - BLOCK_BYTES] {
            image[block..block + BLOCK_BYTES].copy_from_slice(&of_new[block..block + BLOCK_BYTES]);
        }
    }
    Some((image, is_forged))
}

/// The options of the journals here.
pub fn options() -> Options {
    Options::new("server", "/share")
}

/// The input of a journal with some records.
pub fn sample(is_closed: bool) -> Vec<u8> {
    let ring_blocks = 10;
    let medium = Arc::new(MemoryMedium::new((2 + ring_blocks) * BLOCK_BYTES));
    let (journal, _) =
        Journal::on_medium(Arc::clone(&medium) as _, &options(), UUID).expect("it is empty");
    let attributes = Attributes { size: Some(9), mode: Some(0o644), ..Attributes::default() };
    let changes = [
        Change::Write { file: b"f", offset: 5, data: b"hello" },
        Change::Write { file: b"f", offset: 7, data: b"world" },
        Change::SetAttr { object: b"f", attributes },
        Change::Create { parent: b"d", name: b"n", verifier: [1; 8], attributes },
        Change::Remove { parent: b"d", name: b"n", object: b"f" },
        Change::Rename {
            from_parent: b"d",
            from_name: b"n",
            to_parent: b"e",
            to_name: b"m",
            to_path: b"/e/m",
            object: b"f",
            replaced: b"",
        },
    ];
    for (number, change) in (0..).zip(changes) {
        let record =
            Record { time_ns: 1, uid: 0, gid: 0, groups: &[4], order: None, path: b"/d/n", change };
        let sequence = journal.append(&record).expect("there is room");
        if number == 1 {
            journal.stable([sequence]);
        }
        if number == 2 {
            let after = Some(Stamp { size: 9, ..Stamp::default() });
            let outcome = Outcome { handle: b"h".to_vec(), after, ..Outcome::default() };
            journal.note_outcome(sequence, outcome).expect("there is room");
            journal.bypass(b"f").expect("memory");
        }
        if number == 4 {
            journal.settled([sequence], Settled::Refused);
        }
        if number % 2 == 1 {
            journal.sync(sequence).expect("memory");
        }
    }
    let cut_off = medium.image();
    journal.close().expect("memory");
    let image = if is_closed { medium.image() } else { cut_off };
    let flags = if is_closed { IS_SEALED | HAS_SUPERBLOCKS } else { IS_SEALED };
    let mut input = vec![flags, ring_blocks as u8];
    for (block, bytes) in image.chunks(BLOCK_BYTES).enumerate() {
        let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        // Of a superblock the checksum is made right again.
        let is_superblock = block == 0 || block == 1 + ring_blocks;
        let length = if is_superblock { length.min(200) } else { length };
        if length > 0 {
            input.push(block as u8);
            input.extend_from_slice(&(length as u16).to_le_bytes());
            input.extend_from_slice(&bytes[..length]);
        }
    }
    input
}
