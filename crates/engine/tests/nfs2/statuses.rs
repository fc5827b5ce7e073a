//! How failures are told: the statuses of RFC 1094 §2.3.1 and no others.

use steadfast_wire::nfs2::{
    Create2Args, DirOpArgs2, Link2Args, NfsFh2, NfsTime2, Rename2Args, Sattr2, Setattr2Args,
    Symlink2Args,
};

use super::harness::{Bench, UNCHANGED, xdr};

#[test]
fn every_failure_has_a_status_of_the_protocol() {
    let mut bench = Bench::new();
    let root = bench.mount("/a");
    let other = bench.mount("/squashed");
    let (file, _) = bench.create(&root, b"f", &Sattr2 { mode: 0o644, ..UNCHANGED }).unwrap();
    let (dir, _) = bench.mkdir(&root, b"d", &Sattr2 { mode: 0o700, ..UNCHANGED }).unwrap();
    bench.create(&dir, b"inside", &UNCHANGED).unwrap();
    let place = |name| DirOpArgs2 { dir: NfsFh2(&root), name };
    let long = [b'n'; 256];
    assert_eq!(bench.status(4, &place(b"none")), 2, "NOENT");
    assert_eq!(bench.status(4, &place(&long)), 63, "NAMETOOLONG");
    assert_eq!(bench.status(4, &place(b"a/b")), 13, "no name");
    assert_eq!(bench.status(4, &DirOpArgs2 { dir: NfsFh2(&file), name: b"x" }), 20, "NOTDIR");
    assert_eq!(bench.status(15, &place(b"d")), 66, "NOTEMPTY");
    assert_eq!(bench.status(15, &place(b"f")), 20, "NOTDIR");
    assert_eq!(bench.status(10, &place(b"d")), 21, "ISDIR");
    assert_eq!(bench.status(10, &place(b".")), 13, "a dot");
    assert_eq!(bench.status(15, &place(b"..")), 13, "two dots");
    assert_eq!(bench.mkdir(&root, b"d", &UNCHANGED), Err(17), "EXIST");
    let link = Link2Args { from: NfsFh2(&file), to: place(b"d") };
    assert_eq!(bench.status(12, &link), 17, "EXIST");
    let rename =
        Rename2Args { from: place(b"f"), to: DirOpArgs2 { dir: NfsFh2(&other), name: b"f" } };
    assert_eq!(bench.status(11, &rename), 5, "across shares");
    let symlink = |to| Symlink2Args { from: place(b"s"), to, attributes: UNCHANGED };
    assert_eq!(bench.status(13, &symlink(b"")), 5, "no target");
    assert_eq!(bench.status(13, &symlink(&[b't'; 1025])), 63, "NAMETOOLONG");
    let none = NfsTime2 { seconds: 1, useconds: 1_000_001 };
    assert_eq!(bench.setattr(&file, &Sattr2 { mtime: none, ..UNCHANGED }), Err(5), "no time");
    let kind = Sattr2 { mode: 0o040_755, ..UNCHANGED };
    assert_eq!(bench.create(&root, b"kind", &kind), Err(5), "made by MKDIR");
    assert_eq!(bench.call(5, &file)[..4], [0, 0, 0, 5], "no symbolic link");
    assert_eq!(bench.readdir(&file, 0, 4096), Err(20), "NOTDIR");
    assert_eq!(bench.readdir(&root, 0, 16), Err(5), "no room for a name");

    bench.uid = 5;
    assert_eq!(bench.setattr(&file, &Sattr2 { mode: 0o777, ..UNCHANGED }), Err(1), "PERM");
    assert_eq!(bench.write(&file, 0, b"x"), Err(13), "ACCES");
    assert_eq!(bench.lookup(&dir, b"inside"), Err(13), "ACCES");
    bench.uid = 0;
    assert_eq!(bench.status(10, &place(b"f")), 0);
    assert_eq!(bench.call(1, &file), [0, 0, 0, 70], "STALE");
    assert_eq!(bench.call(1, &[7; 32]), [0, 0, 0, 70], "forged");
}

#[test]
fn a_read_only_share_takes_no_change() {
    let mut bench = Bench::new();
    let root = bench.mount("/a");
    bench.create(&root, b"f", &UNCHANGED).unwrap();
    let read_only = bench.mount("/ro");
    let (file, _) = bench.lookup(&read_only, b"f").unwrap();
    let place = |name| DirOpArgs2 { dir: NfsFh2(&read_only), name };
    let make = Create2Args { where_: place(b"new"), attributes: UNCHANGED };
    let symlink = Symlink2Args { from: place(b"s"), to: b"t", attributes: UNCHANGED };
    let set = Setattr2Args { file: NfsFh2(&file), attributes: UNCHANGED };
    assert_eq!(bench.status(2, &set), 30);
    assert_eq!(bench.write(&file, 0, b"x"), Err(30));
    assert_eq!(bench.status(9, &make), 30);
    assert_eq!(bench.status(10, &place(b"f")), 30);
    assert_eq!(bench.status(11, &Rename2Args { from: place(b"f"), to: place(b"g") }), 30);
    assert_eq!(bench.status(12, &Link2Args { from: NfsFh2(&file), to: place(b"l") }), 30);
    assert_eq!(bench.status(13, &symlink), 30);
    assert_eq!(bench.status(14, &make), 30);
    assert_eq!(bench.status(15, &place(b"f")), 30);
    assert_eq!(bench.read(&file, 0, 10).unwrap().1, b"");
}

#[test]
fn root_is_squashed() {
    let mut bench = Bench::new();
    let root = bench.mount("/squashed");
    let (_, attr) = bench.create(&root, b"f", &Sattr2 { mode: 0o644, ..UNCHANGED }).unwrap();
    assert_eq!((attr.uid, attr.gid), (65_534, 65_534));
}

#[test]
fn arguments_that_are_none_are_garbage() {
    let mut bench = Bench::new();
    let root = bench.mount("/a");
    let whole = xdr(&DirOpArgs2 { dir: NfsFh2(&root), name: b"name" });
    for cut in 0..whole.len() {
        let message = bench.message((super::harness::NFS, 2, 4), &whole[..cut]);
        let mut reply = steadfast_engine::ReplyBuffer::default();
        let peer = &bench.peer;
        let verdict = bench.engine.call(&mut super::harness::Host, peer, 0, &message, &mut reply);
        assert!(matches!(verdict, steadfast_engine::Verdict::Replied));
        assert_eq!(reply.bytes[20..], [0, 0, 0, 4], "GARBAGE_ARGS");
    }
}
