//! Unit tests of the superblock.

use super::{
    CHECKED_FROM, FIXED_BYTES, FORMAT_VERSION, FileSystemEntry, Identity, PATH_BYTES_MAX,
    Superblock, SuperblockFault, seal,
};
use crate::format::{Lsn, Position, SUPERBLOCK_BYTES};
use crate::mark::MarkPlace;
use crate::medium::Block;

fn superblock() -> Superblock {
    let entry = |index, path: &[u8]| FileSystemEntry {
        index,
        identity: Identity { uuid: [index as u8; 16], kind: 0xef53 },
        path: path.to_vec(),
        tail: Lsn(70),
        mark: None,
    };
    Superblock {
        uuid: *b"0123456789abcdef",
        host: [2; 16],
        sequence: 4,
        epoch: 5,
        is_clean: false,
        write_verifier: u64::MAX,
        ring_bytes: 1 << 20,
        tail: Position(8192),
        tail_lsn: Lsn(77),
        stable: Lsn(80),
        file_systems: vec![entry(0, b"/srv"), entry(7, b"")],
        ends_at: None,
    }
}

fn bytes(superblock: &Superblock) -> Vec<u8> {
    Block::bytes_of(&superblock.encode().expect("fits")).to_vec()
}

#[test]
fn it_is_read_as_it_was_written() {
    let written = superblock();
    let bytes = bytes(&written);
    assert_eq!(Superblock::decode(&bytes, 0), Ok(written.clone()));
    // A copy belongs where its number says.
    assert_eq!(Superblock::decode(&bytes, 1), Err(SuperblockFault::Contradictory));
    assert_eq!(&bytes[..12], b"SfIntLog\x01\0\0\0");
    assert_eq!(&bytes[24..40], b"0123456789abcdef");
}

#[test]
fn every_bit_counts() {
    let written = superblock();
    let bytes = bytes(&written);
    let length = FIXED_BYTES + 40 + 40;
    for bit in 0..8 * length {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let found = Superblock::decode(&damaged, 0);
        let is_magic = bit < 64;
        let expected = if is_magic { SuperblockFault::Foreign } else { SuperblockFault::Damaged };
        assert_eq!(found, Err(expected), "{bit}");
    }
    for length in 0..length {
        assert!(Superblock::decode(&bytes[..length], 0).is_err(), "{length}");
    }
}

#[test]
fn another_version_is_told_from_damage() {
    let mut bytes = bytes(&superblock());
    bytes[8] = FORMAT_VERSION as u8 + 1;
    assert_eq!(Superblock::decode(&bytes, 0), Err(SuperblockFault::Damaged));
    seal(&mut bytes);
    assert_eq!(Superblock::decode(&bytes, 0), Err(SuperblockFault::OtherVersion(2)));
    assert_eq!(Superblock::decode(&[0; 4096], 0), Err(SuperblockFault::Zeroed));
}

#[test]
fn contradictions_are_faults() {
    let cases: [fn(&mut Superblock); 8] = [
        |s| s.tail = Position(5),
        |s| s.ring_bytes = 4096,
        |s| s.ring_bytes += 1,
        |s| s.epoch = u64::MAX,
        |s| s.tail_lsn = Lsn(0),
        |s| s.is_clean = true,
        |s| s.stable = Lsn(70),
        |s| s.file_systems[1].index = 0,
    ];
    for (number, change) in cases.into_iter().enumerate() {
        let mut wrong = superblock();
        change(&mut wrong);
        let found = Superblock::decode(&bytes(&wrong), 0);
        assert_eq!(found, Err(SuperblockFault::Contradictory), "{number}");
    }
}

#[test]
fn the_table_is_bounded() {
    let mut large = superblock();
    large.file_systems[0].path = vec![b'a'; PATH_BYTES_MAX + 1];
    assert!(large.encode().is_err());
    large.file_systems[0].path.pop();
    let blocks = large.encode().expect("fits");
    assert_eq!(Superblock::decode(Block::bytes_of(&blocks), 0), Ok(large.clone()));
    let entry = large.file_systems[0].clone();
    large.file_systems.extend((8..22).map(|index| FileSystemEntry { index, ..entry.clone() }));
    assert!(large.encode().expect("fits").len() * 4096 <= SUPERBLOCK_BYTES);
    large.file_systems.push(FileSystemEntry { index: 22, ..entry });
    assert!(large.encode().is_err());
}

/// A superblock as versions before marks wrote it, byte for byte.
#[test]
fn one_of_a_version_without_marks_is_read() {
    let written = superblock();
    let golden = {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(b"SfIntLog\x01\0\0\0");
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&176_u32.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(b"0123456789abcdef");
        bytes.extend_from_slice(&[2; 16]);
        for number in [4, 5, u64::MAX, 1 << 20, 8192, 77, 80] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&[0, 0, 0, 0, 2, 0, 0, 0]);
        bytes.extend_from_slice(b"\0\0\0\0\x53\xef\0\0");
        bytes.extend_from_slice(&[0; 16]);
        bytes.extend_from_slice(b"\x46\0\0\0\0\0\0\0\x04\0\0\0/srv");
        bytes.extend_from_slice(b"\x07\0\0\0\x53\xef\0\0");
        bytes.extend_from_slice(&[7; 16]);
        bytes.extend_from_slice(b"\x46\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        seal(&mut bytes);
        bytes
    };
    assert_eq!(Superblock::decode(&golden, 0), Ok(written.clone()));
    // Without marks nothing else is written, so that such a version reads it.
    assert_eq!(bytes(&written)[..golden.len()], golden[..]);
}

#[test]
fn marks_and_the_end_are_read_as_they_were_written() {
    let mut written = superblock();
    written.file_systems[1].mark = Some(MarkPlace { epoch: 5, applied: Lsn(79) });
    written.ends_at = Some(Lsn(78));
    assert_eq!(Superblock::decode(&bytes(&written), 0), Ok(written.clone()));
    // A section of a kind that is not known is passed over.
    let plain = superblock();
    let mut more = bytes(&plain);
    more.truncate(FIXED_BYTES + 40 + 40);
    more.extend_from_slice(&[9, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0]);
    let length = (more.len() - CHECKED_FROM) as u32;
    more[16..20].copy_from_slice(&length.to_le_bytes());
    seal(&mut more);
    assert_eq!(Superblock::decode(&more, 0), Ok(plain));
}
