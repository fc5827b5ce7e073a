//! Minor version 2: SEEK, `READ_PLUS`, `IO_ADVISE`, ALLOCATE, DEALLOCATE, COPY, CLONE.

use steadfast_wire::nfs3::StableHow;
use steadfast_wire::nfs4::{
    Allocate4Args, Attribute4, Bitmap4, CONTENT_DATA, CONTENT_HOLE, Clone4Args, Content4,
    Copy4Args, Copy4Result, GetAttr4Args, IoAdvise4Args, NetLoc4, NfsStat4, Op4, Open4Args,
    OpenClaim4, OpenHow4, Read4Args, ReadPlus4Args, ReadPlus4Result, Seek4Args, Seek4Result,
    StateId4, Write4Args,
};
use steadfast_xdr::{Decode, Encode};

use crate::compounds::{Ops, Reply, stateid};
use crate::harness::{Client, Server, everything, export, rule, sender, share};

const ANONYMOUS: StateId4 = StateId4 { seqid: 0, other: [0; 12] };
const CURRENT: StateId4 = StateId4 { seqid: 1, other: [0; 12] };
const BLOCK: u64 = 4096;

struct Place<'s> {
    client: Client<'s>,
    root: Vec<u8>,
    file: Vec<u8>,
}

impl<'s> Place<'s> {
    /// A file of four blocks: data, a hole, data, a hole; and one byte of data behind.
    fn new(server: &'s Server) -> Self {
        let mut client = Client::new(server, b"c", sender(1));
        client.minor = 2;
        let root = client.handle(&[b"a"]);
        let file = server.make_file(&root, b"f", 0o644);
        let place = Self { client, root, file };
        for (offset, data) in [(0, &[1; 4096][..]), (2 * BLOCK, &[2; 4096]), (4 * BLOCK, &[3])] {
            place.write(&place.file, offset, data);
        }
        place
    }

    fn write(&self, file: &[u8], offset: u64, data: &[u8]) {
        let stable = StableHow::FileSync;
        let write = Write4Args { stateid: ANONYMOUS, offset, stable, data };
        self.client.run(&Ops::put(file).op(Op4::Write, &write)).succeeds();
    }

    fn read(&self, file: &[u8]) -> Vec<u8> {
        let read = Read4Args { stateid: ANONYMOUS, offset: 0, count: 1 << 20 };
        let mut reply = self.at(file, Op4::Read, &read).succeeds();
        reply.ok(Op4::Read);
        reply.take(|r| {
            assert!(r.bool().unwrap());
            r.opaque(1 << 20).unwrap().to_vec()
        })
    }

    /// An operation on an object; what follows the result of PUTFH.
    fn at(&self, object: &[u8], op: Op4, arguments: &impl Encode) -> Reply {
        let mut reply = self.client.run(&Ops::put(object).op(op, arguments));
        reply.ok(Op4::PutFh);
        reply
    }

    /// An operation that has two files.
    fn between(&self, source: &[u8], target: &[u8], op: Op4, arguments: &impl Encode) -> Reply {
        let ops = Ops::put(source).bare(Op4::SaveFh).then(&Ops::put(target)).op(op, arguments);
        let mut reply = self.client.run(&ops);
        for op in [Op4::PutFh, Op4::SaveFh, Op4::PutFh] {
            reply.ok(op);
        }
        reply
    }

    fn open(&self, file: &[u8], access: u32) -> StateId4 {
        let open = Open4Args {
            seqid: 0,
            share_access: access,
            share_deny: 0,
            clientid: 0,
            owner: b"o",
            openhow: OpenHow4::NoCreate,
            claim: OpenClaim4::Fh,
        };
        let mut reply = self.at(file, Op4::Open, &open).succeeds();
        reply.ok(Op4::Open);
        reply.take(stateid)
    }
}

fn seek(offset: u64, what: u32) -> Seek4Args {
    Seek4Args { stateid: ANONYMOUS, offset, what }
}

#[test]
fn data_and_holes_are_found_from_an_offset_on() {
    let server = Server::new();
    let place = Place::new(&server);
    for (offset, what, found, eof) in [
        (0, CONTENT_DATA, 0, false),
        (0, CONTENT_HOLE, BLOCK, false),
        (BLOCK + 1, CONTENT_HOLE, BLOCK + 1, false),
        (BLOCK + 1, CONTENT_DATA, 2 * BLOCK, false),
        (2 * BLOCK, CONTENT_HOLE, 3 * BLOCK, false),
        (4 * BLOCK, CONTENT_DATA, 4 * BLOCK, false),
        // The end of the file.
        (4 * BLOCK, CONTENT_HOLE, 4 * BLOCK + 1, true),
    ] {
        let mut reply = place.at(&place.file, Op4::Seek, &seek(offset, what)).succeeds();
        reply.ok(Op4::Seek);
        let told = reply.take(|r| Seek4Result::decode(r).unwrap());
        assert_eq!(told, Seek4Result { eof, offset: found }, "{offset} {what}");
    }
    for (object, arguments, status) in [
        (&place.file, seek(4 * BLOCK + 1, CONTENT_HOLE), NfsStat4::NxIo),
        (&place.file, seek(u64::MAX, CONTENT_DATA), NfsStat4::NxIo),
        (&place.file, seek(0, 2), NfsStat4::UnionNotSupp),
        (&place.root, seek(0, CONTENT_DATA), NfsStat4::IsDir),
        (&server.make_symlink(&place.root, b"l"), seek(0, CONTENT_DATA), NfsStat4::SymLink),
        (&server.make_fifo(&place.root, b"p"), seek(0, CONTENT_DATA), NfsStat4::WrongType),
    ] {
        place.at(object, Op4::Seek, &arguments).fails(Op4::Seek, status);
    }
    let nowhere = Ops::new().op(Op4::Seek, &seek(0, 0));
    place.client.run(&nowhere).fails(Op4::Seek, NfsStat4::NoFileHandle);
    let pseudo = Ops::new().bare(Op4::PutRootFh).op(Op4::Seek, &seek(0, 0));
    place.client.run(&pseudo).fails(Op4::Seek, NfsStat4::IsDir);
}

#[test]
fn reading_tells_a_hole_and_the_data_behind_it() {
    let server = Server::new();
    let place = Place::new(&server);
    let data = |offset, data| Content4::Data { offset, data };
    let hole = |offset, length| Content4::Hole { offset, length };
    let (ones, twos) = ([1; 4096], [2; 4096]);
    for (offset, count, contents, eof) in [
        (0, 1 << 20, vec![data(0, &ones[..])], false),
        (BLOCK, 1 << 20, vec![hole(BLOCK, BLOCK), data(2 * BLOCK, &twos)], false),
        (BLOCK - 1, 100, vec![data(BLOCK - 1, &ones[..1])], false),
        (BLOCK, 100, vec![hole(BLOCK, 100)], false),
        (2 * BLOCK - 10, 13, vec![hole(2 * BLOCK - 10, 10), data(2 * BLOCK, &twos[..3])], false),
        (3 * BLOCK, 1 << 20, vec![hole(3 * BLOCK, BLOCK), data(4 * BLOCK, &[3])], true),
        (4 * BLOCK + 1, 10, vec![], true),
        (u64::MAX, u32::MAX, vec![], true),
        (0, 0, vec![], false),
    ] {
        let read = ReadPlus4Args { stateid: ANONYMOUS, offset, count };
        let mut reply = place.at(&place.file, Op4::ReadPlus, &read).succeeds();
        reply.ok(Op4::ReadPlus);
        reply.take(|r| {
            let told = ReadPlus4Result::decode(r).unwrap();
            assert_eq!(told, ReadPlus4Result { eof, contents }, "{offset} {count}");
            assert!(r.is_empty());
        });
    }
    let read = ReadPlus4Args { stateid: ANONYMOUS, offset: 0, count: 1 };
    place.at(&place.root, Op4::ReadPlus, &read).fails(Op4::ReadPlus, NfsStat4::IsDir);
    // A client may ask for more than its session has room for.
    let all = ReadPlus4Args { stateid: ANONYMOUS, offset: 0, count: u32::MAX };
    place.at(&place.file, Op4::ReadPlus, &all).succeeds();
}

#[test]
fn hints_are_taken_and_none_is_promised() {
    let server = Server::new();
    let place = Place::new(&server);
    let hints = Bitmap4::from_words([0xff, 0, 0]);
    let advise = IoAdvise4Args { stateid: ANONYMOUS, offset: 0, count: 0, hints };
    let mut reply = place.at(&place.file, Op4::IoAdvise, &advise).succeeds();
    reply.ok(Op4::IoAdvise);
    assert_eq!(reply.take(|r| Bitmap4::decode(r).unwrap()), Bitmap4::EMPTY);
    let bad = IoAdvise4Args { stateid: StateId4 { seqid: 1, other: [7; 12] }, ..advise };
    place.at(&place.file, Op4::IoAdvise, &bad).fails(Op4::IoAdvise, NfsStat4::BadStateId);
}

#[test]
fn ranges_are_allocated_and_made_holes() {
    let server = Server::new();
    let place = Place::new(&server);
    let range = |offset, length| Allocate4Args { stateid: ANONYMOUS, offset, length };
    place.at(&place.file, Op4::Allocate, &range(5 * BLOCK, BLOCK)).succeeds();
    assert_eq!(place.read(&place.file).len() as u64, 6 * BLOCK);
    place.at(&place.file, Op4::Deallocate, &range(1, 1 << 40)).succeeds();
    let read = place.read(&place.file);
    assert_eq!((read.len() as u64, &read[..3]), (6 * BLOCK, &[1, 0, 0][..]));
    assert!(read[1..].iter().all(|byte| *byte == 0));
    for op in [Op4::Allocate, Op4::Deallocate] {
        place.at(&place.file, op, &range(0, 0)).fails(op, NfsStat4::Inval);
        place.at(&place.file, op, &range(u64::MAX, 2)).fails(op, NfsStat4::FBig);
        place.at(&place.root, op, &range(0, 1)).fails(op, NfsStat4::IsDir);
        let pseudo = Ops::new().bare(Op4::PutRootFh).op(op, &range(0, 1));
        place.client.run(&pseudo).fails(op, NfsStat4::IsDir);
        // Of a file that is open for reading alone.
        let only_read = Allocate4Args { stateid: place.open(&place.file, 1), ..range(0, 1) };
        place.at(&place.file, op, &only_read).fails(op, NfsStat4::OpenMode);
    }
}

fn copy(source: u64, target: u64, count: u64) -> Copy4Args<'static> {
    Copy4Args {
        src_stateid: ANONYMOUS,
        dst_stateid: ANONYMOUS,
        src_offset: source,
        dst_offset: target,
        count,
        consecutive: true,
        synchronous: true,
        source_server: Vec::new(),
    }
}

#[test]
fn ranges_are_copied_from_the_saved_file_to_the_current_one() {
    let server = Server::new();
    let place = Place::new(&server);
    let target = server.make_file(&place.root, b"t", 0o644);
    for (arguments, count) in [
        (copy(0, 0, 10), 10),
        (copy(BLOCK - 2, 10, 4), 4),
        // To the end, and no further.
        (copy(4 * BLOCK, 20, 0), 1),
        (copy(4 * BLOCK, 21, 1 << 40), 1),
        (copy(4 * BLOCK + 1, 0, 5), 0),
        (Copy4Args { synchronous: false, consecutive: false, ..copy(0, 30, 1) }, 1),
    ] {
        let mut reply = place.between(&place.file, &target, Op4::Copy, &arguments).succeeds();
        reply.ok(Op4::Copy);
        let copied = reply.take(|r| {
            let copied = Copy4Result::decode(r).unwrap();
            assert!(r.is_empty());
            copied
        });
        assert_eq!((copied.count, copied.callback_id), (count, None));
        assert_eq!(
            (copied.committed, copied.verifier),
            (StableHow::FileSync, 77_u64.to_be_bytes())
        );
        assert!(copied.requirements.synchronous && copied.requirements.consecutive);
    }
    let mut expected = vec![1; 12];
    expected.extend([0; 8]);
    expected.extend([3, 3]);
    expected.extend([0; 8]);
    expected.push(1);
    assert_eq!(place.read(&target), expected);
    // Within one file.
    place.between(&target, &target, Op4::Copy, &copy(0, 100, 5)).succeeds();
    let refused = |source: &[u8], target: &[u8], arguments: &Copy4Args<'_>, status| {
        place.between(source, target, Op4::Copy, arguments).fails(Op4::Copy, status);
    };
    refused(&target, &target, &copy(0, 4, 5), NfsStat4::Inval);
    refused(&place.file, &target, &copy(4 * BLOCK + 2, 0, 1), NfsStat4::Inval);
    refused(&place.root, &target, &copy(0, 0, 1), NfsStat4::IsDir);
    refused(&place.file, &place.root, &copy(0, 0, 1), NfsStat4::IsDir);
    refused(&place.file, &target, &copy(0, u64::MAX, 1), NfsStat4::FBig);
    let elsewhere = Copy4Args { source_server: vec![NetLoc4::Name(b"other")], ..copy(0, 0, 1) };
    refused(&place.file, &target, &elsewhere, NfsStat4::NotSupp);
    let alone = Ops::put(&target).op(Op4::Copy, &copy(0, 0, 1));
    place.client.run(&alone).fails(Op4::Copy, NfsStat4::NoFileHandle);
}

#[test]
fn each_file_of_a_copy_has_its_own_stateid() {
    let server = Server::new();
    let place = Place::new(&server);
    let target = server.make_file(&place.root, b"t", 0o644);
    let (reads, writes) = (place.open(&place.file, 1), place.open(&target, 2));
    let with = |src_stateid, dst_stateid| Copy4Args { src_stateid, dst_stateid, ..copy(0, 0, 1) };
    place.between(&place.file, &target, Op4::Copy, &with(reads, writes)).succeeds();
    for (source, target_id, status) in [
        (writes, writes, NfsStat4::BadStateId),
        (reads, reads, NfsStat4::BadStateId),
        (ANONYMOUS, StateId4 { seqid: 9, ..writes }, NfsStat4::BadStateId),
        // Nothing was opened in this COMPOUND.
        (CURRENT, writes, NfsStat4::BadStateId),
    ] {
        let arguments = with(source, target_id);
        place.between(&place.file, &target, Op4::Copy, &arguments).fails(Op4::Copy, status);
    }
    // What is open for reading alone is not written to.
    place
        .between(&target, &place.file, Op4::Copy, &with(ANONYMOUS, reads))
        .fails(Op4::Copy, NfsStat4::OpenMode);
}

#[test]
fn whole_blocks_are_cloned_all_or_nothing() {
    let server = Server::new();
    let place = Place::new(&server);
    let target = server.make_file(&place.root, b"t", 0o644);
    let clone = |src_offset, dst_offset, count| Clone4Args {
        src_stateid: ANONYMOUS,
        dst_stateid: ANONYMOUS,
        src_offset,
        dst_offset,
        count,
    };
    place.between(&place.file, &target, Op4::Clone, &clone(0, 0, 0)).succeeds();
    assert_eq!(place.read(&target), place.read(&place.file));
    place.between(&place.file, &target, Op4::Clone, &clone(2 * BLOCK, 0, BLOCK)).succeeds();
    assert_eq!(place.read(&target)[..4096], [2; 4096]);
    for arguments in [clone(1, 0, BLOCK), clone(0, 1, BLOCK), clone(4 * BLOCK, 0, BLOCK)] {
        let reply = place.between(&place.file, &target, Op4::Clone, &arguments);
        reply.fails(Op4::Clone, NfsStat4::Inval);
    }
    let directory = place.between(&place.root, &target, Op4::Clone, &clone(0, 0, 0));
    directory.fails(Op4::Clone, NfsStat4::IsDir);
}

#[test]
fn nothing_is_copied_from_share_to_share_or_onto_what_may_only_be_read() {
    let mut read_only = everything();
    read_only.is_read_only = true;
    let server = Server::of(vec![
        export(share(1, "/a", vec![rule("127.0.0.0", everything())])),
        export(share(2, "/b", vec![rule("127.0.0.0", everything())])),
        export(share(3, "/ro", vec![rule("127.0.0.0", read_only)])),
    ]);
    let place = Place::new(&server);
    let other = place.client.handle(&[b"b"]);
    let other = server.make_file(&other, b"f", 0o644);
    let reply = place.between(&place.file, &other, Op4::Copy, &copy(0, 0, 1));
    reply.fails(Op4::Copy, NfsStat4::XDev);
    let root = place.client.handle(&[b"ro"]);
    let reply =
        place.at(&root, Op4::Allocate, &Allocate4Args { stateid: ANONYMOUS, offset: 0, length: 1 });
    reply.fails(Op4::Allocate, NfsStat4::IsDir);
}

#[test]
fn attributes_of_minor_version_2_are_told_in_it_alone() {
    let server = Server::new();
    let mut place = Place::new(&server);
    let asked = [
        Attribute4::CloneBlkSize,
        Attribute4::SpaceFreed,
        Attribute4::ChangeAttrType,
        Attribute4::SecLabel,
        Attribute4::XattrSupport,
    ];
    let request = GetAttr4Args { attr_request: Bitmap4::of(&asked) };
    let ask = |place: &Place<'_>, object: &[u8]| {
        let mut reply = place.at(object, Op4::GetAttr, &request).succeeds();
        reply.ok(Op4::GetAttr);
        reply.take(|r| (Bitmap4::decode(r).unwrap(), r.opaque(1000).unwrap().to_vec()))
    };
    let (told, values) = ask(&place, &place.file);
    assert_eq!(told, Bitmap4::of(&[asked[0], asked[1], asked[2], asked[4]]));
    let expected = [&4096_u32.to_be_bytes()[..], &(4 * BLOCK + 1).to_be_bytes()];
    let expected = [&expected.concat()[..], &4_u32.to_be_bytes(), &1_u32.to_be_bytes()].concat();
    assert_eq!(values, expected);
    let only_set = GetAttr4Args { attr_request: Bitmap4::of(&[Attribute4::ModeUmask]) };
    place.at(&place.file, Op4::GetAttr, &only_set).fails(Op4::GetAttr, NfsStat4::Inval);
    place.client.minor = 1;
    assert_eq!(ask(&place, &place.file), (Bitmap4::EMPTY, Vec::new()));
    place.at(&place.file, Op4::GetAttr, &only_set).succeeds();
}
