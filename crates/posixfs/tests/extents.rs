//! Unit ring, on real file systems. What files have of the disk, on every file system that can be had here.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::os::unix::fs::MetadataExt;

use steadfast_vfs::{
    Extents, FilePlace, FileSystem, FsError, SeekFor, Sought, StorageHandle, Waiting,
};
use support::{User, places, settle, settle_counting};

const BLOCK: u64 = 64 << 10;

fn on_all(test: impl Fn(&User<'_>, &support::Place)) {
    for place in places() {
        println!("on {}", place.name);
        let tree = support::open(&place.directory);
        let user = User::new(&tree, 0, 0);
        test(&user, &place);
    }
}

/// Data, a hole, data, a hole up to the end.
fn sparse(user: &User<'_>, text: &str) -> StorageHandle {
    let file = user.create(&user.root(), text, 0o600).unwrap().handle;
    for (block, byte) in [(0, 1), (2, 2)] {
        user.write(&file, block * BLOCK, &vec![byte; BLOCK as usize]).unwrap();
    }
    let size = steadfast_vfs::SetAttr { size: Some(4 * BLOCK), ..Default::default() };
    user.set(&file, &size).result.unwrap();
    file
}

#[test]
fn holes_are_found() {
    on_all(|user, place| {
        let file = sparse(user, "sparse");
        let stat = std::fs::metadata(place.directory.join("sparse")).unwrap();
        assert!(stat.blocks() * 512 < 4 * BLOCK, "no holes here");
        let seek = |offset, what| user.tree.seek(&user.caller(), &file, offset, what);
        let at = |offset| Ok(Sought { offset, is_end: false });
        let end = Ok(Sought { offset: 4 * BLOCK, is_end: true });
        assert_eq!(seek(0, SeekFor::Data), at(0));
        assert_eq!(seek(5, SeekFor::Hole), at(BLOCK));
        assert_eq!(seek(BLOCK + 5, SeekFor::Hole), at(BLOCK + 5));
        assert_eq!(seek(BLOCK, SeekFor::Data), at(2 * BLOCK));
        assert_eq!(seek(2 * BLOCK, SeekFor::Hole), at(3 * BLOCK));
        assert_eq!(seek(3 * BLOCK, SeekFor::Data), end);
        assert_eq!(seek(4 * BLOCK, SeekFor::Data), Err(FsError::NoDevice));
        assert_eq!(seek(u64::MAX, SeekFor::Hole), Err(FsError::NoDevice));
        let extents = |offset, count| user.tree.extents(&user.caller(), &file, offset, count);
        let parts = |hole_bytes, data_bytes, is_end| Ok(Extents { hole_bytes, data_bytes, is_end });
        assert_eq!(extents(0, 10), parts(0, 10, false));
        assert_eq!(extents(0, u32::MAX), parts(0, BLOCK, false));
        assert_eq!(extents(BLOCK, 10), parts(10, 0, false));
        assert_eq!(extents(BLOCK, u32::MAX), parts(BLOCK, BLOCK, false));
        assert_eq!(extents(3 * BLOCK, u32::MAX), parts(BLOCK, 0, true));
        assert_eq!(extents(4 * BLOCK, 1), parts(0, 0, true));
        assert_eq!(extents(0, 0), parts(0, 0, false));
        let root = user.root();
        let of_root = user.tree.seek(&user.caller(), &root, 0, SeekFor::Data);
        assert_eq!(of_root, Err(FsError::IsDirectory));
        let other = User::new(user.tree, 1000, 1000);
        let of_other = other.tree.extents(&other.caller(), &file, 0, 1);
        assert_eq!(of_other, Err(FsError::AccessDenied));
    });
}

#[test]
fn what_may_have_to_be_read_from_the_disk_waits_for_it() {
    on_all(|user, place| {
        let file = sparse(user, "sparse");
        let caller = steadfast_vfs::Caller::new(&user.cred, Waiting::Never);
        let sought = user.tree.seek(&caller, &file, 0, SeekFor::Data);
        let extents = user.tree.extents(&caller, &file, 0, 10);
        if place.name == "tmpfs" {
            assert!(sought.is_ok() && extents.is_ok());
        } else {
            assert_eq!(sought, Err(FsError::WouldBlock));
            assert_eq!(extents, Err(FsError::WouldBlock));
        }
        // A file without holes is not searched for them.
        let dense = user.create(&user.root(), "dense", 0o600).unwrap().handle;
        user.write(&dense, 0, &[1; 8192]).unwrap();
        let all = Extents { hole_bytes: 0, data_bytes: 8192, is_end: true };
        assert_eq!(user.tree.extents(&caller, &dense, 0, u32::MAX), Ok(all));
    });
}

#[test]
fn ranges_are_allocated_and_made_holes() {
    on_all(|user, place| {
        let file = user.create(&user.root(), "f", 0o644).unwrap().handle;
        user.write(&file, 0, &vec![1; 2 * BLOCK as usize]).unwrap();
        let path = place.directory.join("f");
        let allocate = |user: &User<'_>, offset, length| {
            settle_counting(user.tree.allocate(&user.caller(), &file, offset, length))
        };
        let (changed, flushes) = allocate(user, 2 * BLOCK, 2 * BLOCK);
        changed.result.unwrap();
        assert_eq!(flushes, usize::from(place.name != "tmpfs"));
        let after = changed.wcc.after.unwrap();
        assert_eq!((changed.wcc.before.unwrap().size, after.size), (2 * BLOCK, 4 * BLOCK));
        let blocks = || std::fs::metadata(&path).unwrap().blocks() * 512;
        assert!(blocks() >= 4 * BLOCK);
        let punched = settle(user.tree.deallocate(&user.caller(), &file, BLOCK, 100 * BLOCK));
        punched.result.unwrap();
        assert_eq!(punched.wcc.after.unwrap().size, 4 * BLOCK, "it stays as long as it is");
        let read = std::fs::read(&path).unwrap();
        assert!(read[..BLOCK as usize].iter().all(|byte| *byte == 1));
        assert!(read[BLOCK as usize..].iter().all(|byte| *byte == 0));
        assert!(blocks() < 4 * BLOCK);
        assert_eq!(allocate(user, 0, 0).0.result, Err(FsError::Invalid));
        for (offset, length) in [(u64::MAX, 1), (1, u64::MAX), (i64::MAX as u64, 1)] {
            assert_eq!(allocate(user, offset, length).0.result, Err(FsError::FileTooLarge));
        }
        let (refused, flushes) = allocate(&User::new(user.tree, 1000, 1000), 0, 1);
        assert_eq!((refused.result, flushes), (Err(FsError::AccessDenied), 0));
        let root = user.root();
        let of_root = settle(user.tree.deallocate(&user.caller(), &root, 0, 1));
        assert_eq!(of_root.result, Err(FsError::IsDirectory));
    });
}

#[test]
fn files_are_copied_without_their_data_leaving_the_server() {
    on_all(|user, place| {
        let root = user.root();
        let source = sparse(user, "source");
        let target = user.create(&root, "target", 0o644).unwrap().handle;
        let copy = |from: (&StorageHandle, u64), to: (&StorageHandle, u64), count| {
            let place = |(file, offset)| FilePlace { file, offset };
            settle_counting(user.tree.copy(&user.caller(), place(from), place(to), count))
        };
        let (copied, flushes) = copy((&source, 0), (&target, 0), 0);
        assert_eq!(copied.result, Ok(4 * BLOCK));
        assert_eq!(flushes, usize::from(place.name != "tmpfs"));
        let read = |text| std::fs::read(place.directory.join(text)).unwrap();
        assert_eq!(read("source"), read("target"));
        assert_eq!(copy((&source, 2 * BLOCK - 1), (&target, 3), 3).0.result, Ok(3));
        assert_eq!(read("target")[3..6], [0, 2, 2]);
        // To the end of the source, and no further.
        let (copied, _) = copy((&source, 4 * BLOCK - 5), (&target, 8 * BLOCK), u64::MAX);
        assert_eq!((copied.result, copied.wcc.after.unwrap().size), (Ok(5), 8 * BLOCK + 5));
        assert_eq!(copy((&source, 4 * BLOCK), (&target, 0), 0).0.result, Ok(0));
        let refused = copy((&source, 4 * BLOCK + 1), (&target, 0), 0).0.result;
        assert_eq!(refused, Err(FsError::Invalid));
        // Within one file, unless the ranges overlap.
        assert_eq!(copy((&target, 0), (&target, 10), 10).0.result, Ok(10));
        assert_eq!(copy((&target, 0), (&target, 9), 10).0.result, Err(FsError::Invalid));
        assert_eq!(copy((&target, 9), (&target, 0), 10).0.result, Err(FsError::Invalid));
        assert_eq!(copy((&root, 0), (&target, 0), 1).0.result, Err(FsError::IsDirectory));
        assert_eq!(copy((&source, 0), (&root, 0), 1).0.result, Err(FsError::IsDirectory));
        let large = copy((&source, 0), (&target, i64::MAX as u64), 1).0.result;
        assert_eq!(large, Err(FsError::FileTooLarge));
        let other = User::new(user.tree, 1000, 1000);
        let place = |file, offset| FilePlace { file, offset };
        let of_other =
            settle(other.tree.copy(&other.caller(), place(&source, 0), place(&target, 0), 1));
        assert_eq!(of_other.result, Err(FsError::AccessDenied));
    });
}

/// One call does not copy for ever: the client asks for the rest.
#[test]
fn large_files_are_copied_piece_by_piece() {
    let place = support::plain();
    let tree = support::open(&place.directory);
    let user = User::new(&tree, 0, 0);
    let source = user.create(&user.root(), "source", 0o600).unwrap().handle;
    let bytes = 40 << 20;
    let pattern: Vec<u8> = (0..1 << 20).map(|at: u32| (at >> 7) as u8).collect();
    for at in 0..40 {
        user.write(&source, at << 20, &pattern).unwrap();
    }
    let target = user.create(&user.root(), "target", 0o600).unwrap().handle;
    let (mut copied, mut calls) = (0, 0);
    while copied < bytes {
        let place = |file| FilePlace { file, offset: copied };
        let done = settle(user.tree.copy(&user.caller(), place(&source), place(&target), 0));
        copied += done.result.unwrap();
        calls += 1;
    }
    assert_eq!(copied, bytes);
    println!("{calls} calls");
    let read = |text| std::fs::read(place.directory.join(text)).unwrap();
    assert!(read("source") == read("target"));
}

#[test]
fn blocks_are_shared_where_they_can_be() {
    on_all(|user, place| {
        let root = user.root();
        let source = sparse(user, "source");
        let target = user.create(&root, "target", 0o600).unwrap().handle;
        let clone = |from: u64, to: u64, count| {
            let place = |file, offset| FilePlace { file, offset };
            let (source, target) = (place(&source, from), place(&target, to));
            settle(user.tree.clone_range(&user.caller(), source, target, count)).result
        };
        let unit = user.tree.info(&source).unwrap().clone_block_bytes;
        println!("blocks of {unit}");
        if unit == 0 {
            let refused = clone(0, 0, 0);
            assert!(
                matches!(refused, Err(FsError::NotSupported | FsError::Invalid)),
                "{refused:?}"
            );
            return;
        }
        clone(0, 0, 0).unwrap();
        let read = |text| std::fs::read(place.directory.join(text)).unwrap();
        assert_eq!(read("source"), read("target"));
        clone(2 * BLOCK, 0, BLOCK).unwrap();
        assert_eq!(read("target")[..BLOCK as usize], vec![2; BLOCK as usize]);
        for (from, to, count) in [(1, 0, BLOCK), (0, 1, BLOCK), (0, 0, 5 * BLOCK)] {
            assert_eq!(clone(from, to, count), Err(FsError::Invalid));
        }
    });
}
