//! What each procedure does.

use steadfast_wire::nfs2::{
    DirOpArgs2, Link2Args, NfsFh2, NfsTime2, Rename2Args, Sattr2, Symlink2Args,
};
use steadfast_wire::nlm::{self, v1};
use steadfast_xdr::Reader;

use super::harness::{Bench, Handle, Host, NFS, UNCHANGED, xdr};

fn place<'a>(dir: &'a Handle, name: &'a [u8]) -> DirOpArgs2<'a> {
    DirOpArgs2 { dir: NfsFh2(dir), name }
}

#[test]
fn null_root_and_writecache_say_nothing() {
    let mut bench = Bench::new();
    for procedure in [0, 3, 7] {
        assert_eq!(bench.call(procedure, b""), []);
    }
}

#[test]
fn files_are_made_written_and_read() {
    let mut bench = Bench::new();
    let root = bench.mount("/a");
    let (file, made) = bench.create(&root, b"f", &Sattr2 { mode: 0o644, ..UNCHANGED }).unwrap();
    assert_eq!((made.kind, made.mode, made.size, made.rdev), (1, 0o100_644, 0, u32::MAX));
    let attr = bench.write(&file, 3, b"hello").unwrap();
    assert_eq!(attr.size, 8);
    let (attr, data) = bench.read(&file, 0, 8192).unwrap();
    assert_eq!((attr.size, &data[..]), (8, &b"\0\0\0hello"[..]));
    assert_eq!(bench.read(&file, 4, 2).unwrap().1, b"el");
    assert_eq!(bench.read(&file, 8, 2).unwrap().1, b"");
    assert_eq!(bench.lookup(&root, b"f").unwrap().0, file);
    assert_eq!(bench.lookup(&root, b".").unwrap().0, root);
    assert_eq!(bench.lookup(&root, b"..").unwrap().0, root);
    // At most 8 KiB, whatever is asked for.
    bench.write(&file, 0, &[7; 8192]).unwrap();
    bench.write(&file, 8192, &[8; 100]).unwrap();
    assert_eq!(bench.read(&file, 0, u32::MAX).unwrap().1, [7; 8192]);
    assert_eq!(bench.read(&file, 8192, u32::MAX).unwrap().1, [8; 100]);
}

/// `creat` again: only the size counts, and only if it is told.
#[test]
fn create_of_what_is_there_cuts_it() {
    let mut bench = Bench::new();
    let root = bench.mount("/a");
    let (file, _) = bench.create(&root, b"f", &Sattr2 { mode: 0o640, ..UNCHANGED }).unwrap();
    bench.write(&file, 0, b"hello").unwrap();
    let again = Sattr2 { mode: 0o666, ..UNCHANGED };
    let (same, attr) = bench.create(&root, b"f", &again).unwrap();
    assert_eq!((same, attr.size, attr.mode), (file, 5, 0o100_640));
    let (same, attr) = bench.create(&root, b"f", &Sattr2 { size: 0, ..again }).unwrap();
    assert_eq!((same, attr.size, attr.mode), (file, 0, 0o100_640));
    bench.mkdir(&root, b"d", &UNCHANGED).unwrap();
    assert_eq!(bench.create(&root, b"d", &again), Err(17));
}

#[test]
fn create_makes_devices_and_pipes_too() {
    let mut bench = Bench::new();
    let root = bench.mount("/a");
    let number = 4 << 8 | 64;
    let terminal = Sattr2 { mode: 0o020_600, size: number, ..UNCHANGED };
    let (handle, attr) = bench.create(&root, b"tty", &terminal).unwrap();
    assert_eq!((attr.kind, attr.mode, attr.rdev), (4, 0o020_600, number));
    // Again it is there, if it is the same.
    assert_eq!(bench.create(&root, b"tty", &terminal).unwrap().0, handle);
    assert_eq!(bench.create(&root, b"tty", &Sattr2 { size: 5, ..terminal }), Err(17));
    // `echo > tty` of some clients: a file is asked for, and the device is meant.
    let any = Sattr2 { mode: 0o644, size: 0, ..UNCHANGED };
    assert_eq!(bench.create(&root, b"tty", &any).unwrap().0, handle);
    assert_eq!(bench.create(&root, b"tty", &Sattr2 { mode: 0o100_644, ..any }), Err(17));
    bench.uid = 5;
    assert_eq!(bench.create(&root, b"tty", &any), Err(13));
    bench.uid = 0;
    let disk = Sattr2 { mode: 0o060_600, size: 8 << 8, ..UNCHANGED };
    let (_, attr) = bench.create(&root, b"disk", &disk).unwrap();
    assert_eq!((attr.kind, attr.mode, attr.rdev), (3, 0o060_600, 8 << 8));
    // A character device without a number is a pipe, and is shown so.
    let pipe = Sattr2 { mode: 0o020_600, ..UNCHANGED };
    let (_, attr) = bench.create(&root, b"pipe", &pipe).unwrap();
    assert_eq!((attr.kind, attr.mode, attr.rdev), (4, 0o020_600, u32::MAX));
    let explicit = Sattr2 { mode: 0o010_600, ..UNCHANGED };
    assert_eq!(bench.create(&root, b"pipe", &explicit).unwrap().1.kind, 4);
    let (_, attr) = bench.create(&root, b"s", &Sattr2 { mode: 0o140_600, ..UNCHANGED }).unwrap();
    assert_eq!((attr.kind, attr.mode), (0, 0o140_600));
}

#[test]
fn names_are_moved_linked_and_removed() {
    let mut bench = Bench::new();
    let root = bench.mount("/a");
    let (file, _) = bench.create(&root, b"f", &UNCHANGED).unwrap();
    let (dir, attr) = bench.mkdir(&root, b"d", &Sattr2 { mode: 0o750, ..UNCHANGED }).unwrap();
    assert_eq!((attr.kind, attr.mode), (2, 0o040_750));
    let rename = Rename2Args { from: place(&root, b"f"), to: place(&dir, b"g") };
    assert_eq!(bench.status(11, &rename), 0);
    assert_eq!(bench.lookup(&root, b"f"), Err(2));
    let link = Link2Args { from: NfsFh2(&file), to: place(&root, b"l") };
    assert_eq!(bench.status(12, &link), 0);
    assert_eq!(bench.lookup(&root, b"l").unwrap().1.links, 2);
    assert_eq!(bench.status(10, &place(&dir, b"g")), 0);
    assert_eq!(bench.status(15, &place(&root, b"d")), 0);
    assert_eq!(bench.getattr(&file).links, 1);
}

#[test]
fn symbolic_links_are_made_and_read() {
    let mut bench = Bench::new();
    let root = bench.mount("/a");
    let set = Sattr2 { mode: 0o777, size: 0, ..UNCHANGED };
    let symlink = Symlink2Args { from: place(&root, b"s"), to: b"../target", attributes: set };
    assert_eq!(bench.status(13, &symlink), 0);
    let (link, attr) = bench.lookup(&root, b"s").unwrap();
    assert_eq!((attr.kind, attr.mode & 0o170_000), (5, 0o120_000));
    let result = bench.call(5, &link);
    assert_eq!(Reader::new(&result[4..]).opaque(1024).unwrap(), b"../target");
}

#[test]
fn times_are_set_in_microseconds_or_to_the_servers() {
    let mut bench = Bench::new();
    let root = bench.mount("/a");
    let (file, _) = bench.create(&root, b"f", &UNCHANGED).unwrap();
    let set = Sattr2 {
        atime: NfsTime2 { seconds: 5, useconds: 6 },
        mtime: NfsTime2 { seconds: 7, useconds: 999_999 },
        ..UNCHANGED
    };
    let attr = bench.setattr(&file, &set).unwrap();
    assert_eq!((attr.atime, attr.mtime), ((5, 6), (7, 999_999)));
    let server = NfsTime2 { seconds: 5, useconds: 1_000_000 };
    let attr = bench.setattr(&file, &Sattr2 { mtime: server, ..UNCHANGED }).unwrap();
    assert!(attr.atime != (5, 6) && attr.mtime != (7, 999_999) && attr.mtime.1 < 1_000_000);
    let attr = bench.setattr(&file, &set).unwrap();
    assert_eq!(attr.mtime, (7, 999_999));
}

#[test]
fn directories_are_listed_in_pages() {
    let mut bench = Bench::new();
    let root = bench.mount("/a");
    let mut expected = vec![b".".to_vec(), b"..".to_vec()];
    for number in 0..100 {
        let name = format!("name {number:03}").into_bytes();
        bench.create(&root, &name, &UNCHANGED).unwrap();
        expected.push(name);
    }
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let (entries, is_end) = bench.readdir(&root, cookie, 512).unwrap();
        for (name, fileid, after) in entries {
            assert_eq!(bench.lookup(&root, &name).unwrap().1.fileid, fileid);
            cookie = after;
            names.push(name);
        }
        if is_end {
            break;
        }
    }
    assert_eq!(names, expected);
    assert!(bench.readdir(&root, 0, 8192).unwrap().1);
}

#[test]
fn statfs_counts_in_blocks() {
    let mut bench = Bench::new();
    let root = bench.mount("/a");
    let result = bench.call(17, &root);
    let words: Vec<u32> =
        result.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words, [0, 8192, 4096, 1 << 28, 1 << 27, 1 << 27]);
}

/// A call that comes again is not executed again.
#[test]
fn repeated_changes_are_made_once() {
    let mut bench = Bench::new();
    let root = bench.mount("/a");
    bench.create(&root, b"f", &UNCHANGED).unwrap();
    let remove = bench.message((NFS, 2, 10), &xdr(&place(&root, b"f")));
    for _ in 0..3 {
        assert_eq!(bench.exchange(&mut Host, &remove).unwrap(), [0; 4]);
    }
    let make =
        steadfast_wire::nfs2::Create2Args { where_: place(&root, b"d"), attributes: UNCHANGED };
    let make = bench.message((NFS, 2, 14), &xdr(&make));
    let made = bench.exchange(&mut Host, &make).unwrap();
    assert_eq!(made[..4], [0; 4]);
    assert_eq!(bench.exchange(&mut Host, &make).unwrap(), made);
    assert_eq!(bench.status(10, &place(&root, b"f")), 2);
}

/// NLM 1 and 3 lock what NFSv2 knows.
#[test]
fn locks_are_by_the_same_handles() {
    let mut bench = Bench::new();
    for share in ["/a", "/fifteen"] {
        let root = bench.mount(share);
        let (file, _) = bench.create(&root, b"f", &UNCHANGED).unwrap();
        let lock = |svid| v1::LockArgs {
            cookie: b"c",
            block: false,
            exclusive: true,
            lock: v1::Lock {
                caller_name: b"old",
                fh: &file,
                oh: b"owner",
                svid,
                offset: 0,
                length: 0,
            },
            reclaim: false,
            state: 1,
        };
        let stat = |result: &[u8]| result[result.len() - 1];
        assert_eq!(stat(&bench.ask(nlm::PROGRAM, 1, 2, &xdr(&lock(1)))), 0, "{share}");
        assert_eq!(stat(&bench.ask(nlm::PROGRAM, 3, 2, &xdr(&lock(2)))), 1, "{share}");
    }
}
