//! Unit ring, on real file systems. What replay does to them, beyond what the model of one in the engine's
//! tests can show.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::os::unix::fs::MetadataExt;

use steadfast_posixfs::RecoveringFileSystem;
use steadfast_recovery::{ObjectKey, Place, Recoverable};
use steadfast_vfs::FileSystem;
use support::mounted;

/// So often a file is made until one gets the inode number of a file that is gone.
const ATTEMPTS: usize = 64;

/// A file keeps its number for life: also one that got the inode number of a file that a crash has lost
/// and that was made again, and also when that file is removed.
#[test]
fn who_got_the_number_of_a_lost_file_is_told_under_another_for_life() {
    // Others give a number again late, or never.
    let Some(place) = mounted("ext4", 64) else { return };
    let share = place.directory.join("share");
    std::fs::create_dir(&share).unwrap();
    let root = ObjectKey(support::open(&share).root().unwrap().handle);
    let state = tempfile::tempdir().unwrap();
    let open = || RecoveringFileSystem::open(&share, state.path()).unwrap();
    std::fs::write(share.join("lost"), "a").unwrap();
    let lost = Place { dir: root, name: b"lost" };
    let (key, _) = open().bound(&lost).unwrap().unwrap();
    let attr = open().look(&key).unwrap().unwrap();
    std::fs::remove_file(share.join("lost")).unwrap();
    let names = (0..ATTEMPTS).map(|number| format!("other-{number}"));
    let same = names.into_iter().find(|name| {
        let path = share.join(name);
        std::fs::write(&path, "b").unwrap();
        path.metadata().unwrap().ino() == attr.fileid
    });
    let other = same.expect("a file with the number of one that is gone");
    let other = Place { dir: root, name: other.as_bytes() };
    let mut recovering = open();
    recovering.set_lost(&[key]);
    recovering.make(&lost, &key, &attr, &[]).unwrap();
    recovering.make_stable().unwrap();
    let number_of = |recovering: &mut RecoveringFileSystem, place: &Place<'_>| {
        let (key, _) = recovering.bound(place).unwrap().unwrap();
        recovering.look(&key).unwrap().unwrap().fileid
    };
    assert_eq!(number_of(&mut recovering, &lost), attr.fileid);
    let told = number_of(&mut recovering, &other);
    assert_eq!(told, attr.fileid | 1 << 63);
    for removed in [false, true] {
        if removed {
            std::fs::remove_file(share.join("lost")).unwrap();
        }
        let mut recovering = open();
        assert_eq!(number_of(&mut recovering, &other), told);
        recovering.make_stable().unwrap();
    }
    assert_eq!(number_of(&mut open(), &other), told, "made stable without the lost one");
}

/// What a file has behind where it once ended is what it had before it was made shorter, if the disk knows nothing of
/// that: it becomes zeros, up to the file's end at most.
#[test]
fn a_gap_has_zeros_whatever_was_there() {
    const SIZE: usize = 3 << 20;
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(place) = mounted(kind, 512) else { continue };
        let share = place.directory.join("share");
        std::fs::create_dir(&share).unwrap();
        let root = ObjectKey(support::open(&share).root().unwrap().handle);
        let state = tempfile::tempdir().unwrap();
        let mut recovering = RecoveringFileSystem::open(&share, state.path()).unwrap();
        let path = share.join("file");
        // Long gaps become holes.
        for (from, to, zeros) in [
            (7175, 21048, 7175..21048),
            (5, 2_000_003, 5..2_000_003),
            (SIZE - 10, SIZE + 10_000, SIZE - 10..SIZE),
            (SIZE, SIZE + 1, 0..0),
        ] {
            std::fs::write(&path, vec![7; SIZE]).unwrap();
            let (key, _) = recovering.bound(&Place { dir: root, name: b"file" }).unwrap().unwrap();
            recovering.zero(&key, from as u64, to as u64).unwrap();
            let mut expected = vec![7; SIZE];
            expected[zeros].fill(0);
            assert!(std::fs::read(&path).unwrap() == expected, "{kind}: {from} to {to}");
        }
    }
}
