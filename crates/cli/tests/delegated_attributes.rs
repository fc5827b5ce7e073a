//! Process ring: what others are told of a file that a client has to write by a delegation, over real sockets. The
//! holder is asked by a callback, and keeps its delegation if it has changed nothing. docs/nfsv4.md (Delegations) says what is promised.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod nfs3_support;

use std::time::Duration;

use common::utf8;
use nfs3_support::{Fixture, PATIENCE};
use steadfast_client::nfs4::{
    ACCESS_BOTH, Attributes4, ClientSettings, Nfs4Client, Opened4, Opening4, patiently4,
};
use steadfast_client::{FileHandle, Identity, RpcConnection, StableHow};
use steadfast_wire::nfs4::{Attribute4, Bitmap4, DelegReturn4Args, Fattr4, Op4, OpenClaim4};

const ASKED: Bitmap4 = Bitmap4::of(&[Attribute4::Change, Attribute4::Size]);
const LOOK: Bitmap4 = Bitmap4::of(&[
    Attribute4::Change,
    Attribute4::Size,
    Attribute4::TimeMetadata,
    Attribute4::TimeModify,
]);
/// No callback about a delegation goes out earlier after its grant.
const GRANTED: Duration = Duration::from_millis(1_100);

fn connect(fixture: &Fixture) -> (Nfs4Client<RpcConnection>, FileHandle) {
    let connection = RpcConnection::connect(fixture.running.address, PATIENCE).unwrap();
    let settings = ClientSettings { wants_callbacks: true, ..ClientSettings::default() };
    let mut client = Nfs4Client::connect(connection, Identity::root(), &settings).unwrap();
    let directory = client.lookup_path(utf8(&fixture.place.share).as_bytes()).unwrap();
    (client, directory)
}

fn returns(holder: &mut Nfs4Client<RpcConnection>, opened: &Opened4) {
    let arguments = DelegReturn4Args { stateid: opened.delegation.unwrap() };
    holder
        .request(
            |compound| compound.put(&opened.handle).op(Op4::DelegReturn, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.done(Op4::DelegReturn)
            },
        )
        .unwrap();
}

/// Another client looks at the file while the holder is asked, and tells these.
fn look(
    fixture: &Fixture,
    holder: &mut Nfs4Client<RpcConnection>,
    file: &FileHandle,
    (change, size): (u64, u64),
) -> Attributes4 {
    let values = [change.to_be_bytes(), size.to_be_bytes()].concat();
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let (mut other, _) = connect(fixture);
            other.attributes(file, LOOK).unwrap()
        });
        let told = Fattr4 { attrmask: ASKED, attr_vals: &values };
        let question = holder.next_question(told).expect("a question");
        assert_eq!((question.wanted, &question.object), (ASKED, &file.0));
        looks.join().unwrap()
    })
}

/// A server, a file with six bytes in it, its holder, and what the holder was told of it.
fn held() -> (Fixture, Nfs4Client<RpcConnection>, Opened4, Attributes4) {
    let fixture = Fixture::with(&["--no-root-squash", "--delegations", "write"]);
    std::fs::write(fixture.on_disk("f"), "before").unwrap();
    let (mut holder, directory) = connect(&fixture);
    let opening =
        Opening4 { share_access: ACCESS_BOTH, ..Opening4::with_claim(OpenClaim4::Null(b"f")) };
    let opened = holder.open(&directory, &opening).unwrap();
    assert!(opened.delegation.is_some());
    let stored = holder.attributes(&opened.handle, LOOK).unwrap();
    std::thread::sleep(GRANTED);
    (fixture, holder, opened, stored)
}

#[test]
fn a_look_at_a_delegated_file_asks_its_holder_first() {
    let (mut fixture, mut holder, opened, stored) = held();
    let given = stored.change.unwrap();
    // Nothing was changed: the same is told. Each look has a question of its own.
    for _ in 0..3 {
        assert_eq!(look(&fixture, &mut holder, &opened.handle, (given, 6)), stored);
    }
    // What it has written, and not kept back, is told too. It goes on telling what it was given.
    holder.write(&opened.handle, opened.stateid, 0, b"afterward", StableHow::FileSync).unwrap();
    let written = holder.attributes(&opened.handle, LOOK).unwrap();
    assert_eq!(look(&fixture, &mut holder, &opened.handle, (given, 9)), written);
    // By NFSv3 the same.
    let root = fixture.root.clone();
    let file = fixture.client.lookup(&root, b"f").unwrap().handle;
    let size = std::thread::scope(|scope| {
        let looks = scope.spawn(|| fixture.client.getattr(&file).unwrap().size);
        let values = [given.to_be_bytes(), 9_u64.to_be_bytes()].concat();
        holder.next_question(Fattr4 { attrmask: ASKED, attr_vals: &values }).expect("a question");
        looks.join().unwrap()
    });
    assert_eq!(size, 9);
}

/// What the holder writes by itself after it was asked, whoever looks later sees, by whatever protocol: it is recalled.
#[test]
fn what_is_written_after_an_answer_is_seen_by_the_next_look() {
    for by_nfs3 in [false, true] {
        let (mut fixture, mut holder, opened, stored) = held();
        let given = stored.change.unwrap();
        let root = fixture.root.clone();
        // Of this, and of that it may be used, nothing is told with it that a client would take for the newest.
        let found = fixture.client.lookup(&root, b"f").unwrap();
        let file = found.handle;
        let access = fixture.client.access(&file, 1).unwrap();
        assert_eq!((found.attributes, access.attributes, access.granted), (None, None, 1));
        assert_eq!(look(&fixture, &mut holder, &opened.handle, (given, 6)), stored);
        let last = std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                if by_nfs3 {
                    return Some(fixture.client.getattr(&file).unwrap().size);
                }
                let (mut other, _) = connect(&fixture);
                let seen = patiently4(PATIENCE, || other.attributes(&opened.handle, LOOK));
                let seen = seen.unwrap();
                assert!(seen.change > stored.change, "{seen:?}, {stored:?}");
                seen.size
            });
            let values = [(given + 1).to_be_bytes(), 9_u64.to_be_bytes()].concat();
            let told = Fattr4 { attrmask: ASKED, attr_vals: &values };
            holder.next_question(told).expect("a question");
            let recall = holder.next_recall().expect("a recall");
            assert_eq!(Some(recall.stateid), opened.delegation);
            let file = &opened.handle;
            holder.write(file, opened.stateid, 0, b"afterward", StableHow::FileSync).unwrap();
            returns(&mut holder, &opened);
            looks.join().unwrap()
        });
        assert_eq!(last, Some(9), "{by_nfs3}");
    }
}
