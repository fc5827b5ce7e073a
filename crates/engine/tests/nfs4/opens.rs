//! OPEN, CLOSE, `OPEN_DOWNGRADE`, and stateids.

use std::sync::Arc;

use steadfast_engine::Export;
use steadfast_shares::Rights;
use steadfast_wire::nfs3::StableHow;
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, ChannelAttributes4, Close4Args, Commit4Args, Fattr4, FreeStateId4Args,
    NfsStat4, Op4, Open4Args, OpenClaim4, OpenDowngrade4Args, OpenHow4, Read4Args,
    ReclaimComplete4Args, SetAttr4Args, StateId4, TestStateId4Args, Write4Args,
};

use crate::compounds::{Ops, Reply, stateid};
use crate::harness::{Client, Server, channel, everything, export, rule, sender, share};

const ANONYMOUS: StateId4 = StateId4 { seqid: 0, other: [0; 12] };
const BYPASS: StateId4 = StateId4 { seqid: u32::MAX, other: [0xff; 12] };
/// Of making something in the pseudo root, a share for reading, a share for changes.
const NEW: [NfsStat4; 3] = [NfsStat4::RoFs, NfsStat4::RoFs, NfsStat4::Ok];
const CURRENT: StateId4 = StateId4 { seqid: 1, other: [0; 12] };

fn arguments<'a>(owner: &'a [u8], access: u32, deny: u32, claim: OpenClaim4<'a>) -> Open4Args<'a> {
    Open4Args {
        seqid: 0,
        share_access: access,
        share_deny: deny,
        clientid: 0,
        owner,
        openhow: OpenHow4::NoCreate,
        claim,
    }
}

/// OPEN of a name in the current directory.
pub(crate) fn open(name: &[u8], owner: &[u8], access: u32, deny: u32) -> Ops {
    Ops::new().op(Op4::Open, &arguments(owner, access, deny, OpenClaim4::Null(name)))
}

fn read(stateid: StateId4) -> Ops {
    Ops::new().op(Op4::Read, &Read4Args { stateid, offset: 0, count: 10 })
}

fn close(open_stateid: StateId4) -> Ops {
    Ops::new().op(Op4::Close, &Close4Args { seqid: 0, open_stateid })
}

/// Opens the current file; the stateid, or the status.
fn opened(client: &Client<'_>, file: &[u8], owner: &[u8], deny: u32) -> Result<StateId4, u32> {
    let ops = Ops::put(file).op(Op4::Open, &arguments(owner, 1, deny, OpenClaim4::Fh));
    let mut reply = client.run(&ops);
    if reply.status != 0 {
        return Err(reply.failure().1);
    }
    reply.ok(Op4::PutFh);
    reply.ok(Op4::Open);
    Ok(reply.take(stateid))
}

fn with_file(server: &Server) -> (Client<'_>, Vec<u8>, Vec<u8>) {
    let client = Client::new(server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o644);
    (client, root, file)
}

#[test]
fn opens_deny_to_others_what_they_say() {
    let server = Server::new();
    let (one, _, file) = with_file(&server);
    let two = Client::new(&server, b"d", sender(2));
    // Owners: two of each client. What each denies, as long as it has the file open.
    let who: [(&Client<'_>, &[u8]); 4] = [(&one, b"x"), (&one, b"y"), (&two, b"x"), (&two, b"y")];
    let mut held: [Option<(u32, StateId4)>; 4] = [None; 4];
    let mut random = 1_u32;
    for _ in 0..400 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let index = (random >> 24) as usize % 4;
        let deny = random >> 20 & 3;
        let (client, owner) = who[index];
        if (random >> 18).is_multiple_of(4) {
            if let Some((_, id)) = held[index].take() {
                client.run(&Ops::put(&file).then(&close(id))).succeeds();
                client.run(&Ops::put(&file).then(&read(id))).fails(Op4::Read, NfsStat4::BadStateId);
            }
            continue;
        }
        // What the owner has itself is in its way as well.
        let all: Vec<_> = held.iter().flatten().collect();
        let is_denied =
            all.iter().any(|(denied, _)| denied & 1 != 0) || (deny & 1 != 0 && !all.is_empty());
        match opened(client, &file, owner, deny) {
            Ok(id) => {
                assert!(!is_denied);
                let before = held[index].replace((deny | held[index].map_or(0, |it| it.0), id));
                let seqid = before.map_or(1, |(_, before)| {
                    assert_eq!(before.other, id.other, "an owner has one open of a file");
                    before.seqid + 1
                });
                assert_eq!(id.seqid, seqid);
            }
            Err(status) => {
                assert!(is_denied);
                assert_eq!(status, NfsStat4::ShareDenied as u32);
            }
        }
    }
}

#[test]
fn reads_are_judged_by_their_stateid() {
    let server = Server::new();
    let (one, root, file) = with_file(&server);
    let two = Client::new(&server, b"d", sender(2));
    let at = |id| Ops::put(&file).then(&read(id));
    let id = opened(&one, &file, b"x", 0).unwrap();
    for good in [id, StateId4 { seqid: 0, ..id }, ANONYMOUS, BYPASS] {
        one.run(&at(good)).succeeds();
    }
    let future = StateId4 { seqid: id.seqid + 1, ..id };
    one.run(&at(future)).fails(Op4::Read, NfsStat4::BadStateId);
    two.run(&at(id)).fails(Op4::Read, NfsStat4::BadStateId);
    one.run(&at(CURRENT)).fails(Op4::Read, NfsStat4::BadStateId);
    for bad in [
        StateId4 { seqid: u32::MAX, other: [0; 12] },
        StateId4 { seqid: 2, other: [0; 12] },
        StateId4 { seqid: 0, other: [0xff; 12] },
        StateId4 { seqid: 1, other: [0x55; 12] },
    ] {
        one.run(&at(bad)).fails(Op4::Read, NfsStat4::BadStateId);
    }
    let newer = opened(&one, &file, b"x", 0).unwrap();
    one.run(&at(id)).fails(Op4::Read, NfsStat4::OldStateId);
    let another = server.make_file(&root, b"g", 0o644);
    let ops = Ops::put(&another).then(&read(newer));
    one.run(&ops).fails(Op4::Read, NfsStat4::BadStateId);
    // What is denied to others is so to those without an open, but not to who bypasses it.
    one.run(&Ops::put(&file).then(&close(newer))).succeeds();
    opened(&one, &file, b"x", 1).unwrap();
    two.run(&at(ANONYMOUS)).fails(Op4::Read, NfsStat4::Locked);
    two.run(&at(BYPASS)).succeeds();
}

#[test]
fn the_current_stateid_goes_with_its_handle() {
    let server = Server::new();
    let (client, root, _) = with_file(&server);
    let opening = Ops::put(&root).then(&open(b"f", b"x", 1, 0));
    client.run(&opening.clone().then(&read(CURRENT))).succeeds();
    let kept = opening.clone().bare(Op4::SaveFh).bare(Op4::PutRootFh).bare(Op4::RestoreFh);
    client.run(&kept.then(&read(CURRENT))).succeeds();
    let lost = opening.clone().bare(Op4::SaveFh).bare(Op4::PutRootFh).then(&read(CURRENT));
    let reply = client.run(&lost);
    assert_eq!(reply.failure().0, Op4::Read as u32);
    let again = opening.clone().bare(Op4::GetFh);
    let file = client.run(&again).succeeds().handle();
    let put = opening.clone().then(&Ops::put(&file)).then(&read(CURRENT));
    client.run(&put).fails(Op4::Read, NfsStat4::BadStateId);
    let closed = opening.then(&close(CURRENT)).then(&close(CURRENT));
    client.run(&closed).fails(Op4::Close, NfsStat4::BadStateId);
}

#[test]
fn only_files_are_opened_and_read() {
    let server = Server::new();
    let (client, root, _) = with_file(&server);
    server.make_directory(&root, b"d");
    server.make_symlink(&root, b"l");
    server.make_fifo(&root, b"p");
    server.make_file(&root, b"secret", 0o000);
    let cases =
        [(&b"d"[..], NfsStat4::IsDir), (b"l", NfsStat4::SymLink), (b"p", NfsStat4::WrongType)];
    for (name, status) in cases {
        client.run(&Ops::put(&root).then(&open(name, b"x", 1, 0))).fails(Op4::Open, status);
        let handle = client.handle(&[b"a", name]);
        assert_eq!(opened(&client, &handle, b"x", 0), Err(status as u32));
        let ops = Ops::put(&handle).then(&read(ANONYMOUS));
        client.run(&ops).fails(Op4::Read, status);
        let written =
            Write4Args { stateid: ANONYMOUS, offset: 0, stable: StableHow::FileSync, data: b"x" };
        let ops = Ops::put(&handle).op(Op4::Write, &written);
        client.run(&ops).fails(Op4::Write, status);
        let ops = Ops::put(&handle).op(Op4::Commit, &Commit4Args { offset: 0, count: 0 });
        client.run(&ops).fails(Op4::Commit, status);
        let status = if name == b"l" { continue } else { NfsStat4::WrongType };
        let ops = Ops::put(&handle).bare(Op4::ReadLink);
        client.run(&ops).fails(Op4::ReadLink, status);
    }
    // SETATTR has no status for directories.
    let size = 0_u64.to_be_bytes();
    let attributes = Fattr4 { attrmask: Bitmap4::of(&[Attribute4::Size]), attr_vals: &size };
    let cut = SetAttr4Args { stateid: ANONYMOUS, obj_attributes: attributes };
    let ops = Ops::put(&client.handle(&[b"a", b"d"])).op(Op4::SetAttr, &cut);
    assert_eq!(client.run(&ops).status, NfsStat4::WrongType as u32);
    // Nothing is made in the pseudo root.
    let make = Open4Args {
        openhow: OpenHow4::Unchecked(Fattr4 { attrmask: Bitmap4::EMPTY, attr_vals: &[] }),
        ..arguments(b"x", 3, 0, OpenClaim4::Null(b"new"))
    };
    client.run(&Ops::at(&[]).op(Op4::Open, &make)).fails(Op4::Open, NfsStat4::RoFs);
    let mut from = sender(3);
    from.uid = 1000;
    let user = Client::new(&server, b"u", from);
    let ops = Ops::put(&root).then(&open(b"secret", b"x", 1, 0));
    user.run(&ops).fails(Op4::Open, NfsStat4::Access);
    client.run(&Ops::at(&[]).then(&open(b"a", b"x", 1, 0))).fails(Op4::Open, NfsStat4::IsDir);
}

/// A name that is there is told before anything that keeps a file from being made: in the pseudo root, in a share
/// for reading, and elsewhere.
#[test]
fn what_is_there_is_told_alike_everywhere() {
    let read_only = Rights { is_read_only: true, ..everything() };
    let writable = export(share(1, "/a", vec![rule("127.0.0.0", everything())]));
    let read_only = Arc::new(share(2, "/ro", vec![rule("127.0.0.0", read_only)]));
    let read_only = Export { share: read_only, storage: Arc::clone(&writable.storage) };
    let server = Server::of(vec![writable, read_only]);
    let client = Client::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    server.make_directory(&root, b"a");
    let nothing = Fattr4 { attrmask: Bitmap4::EMPTY, attr_vals: &[] };
    let places: [&[&[u8]]; 3] = [&[], &[b"ro"], &[b"a"]];
    let rows = [
        (OpenHow4::NoCreate, NfsStat4::IsDir, [NfsStat4::NoEnt; 3]),
        (OpenHow4::Unchecked(nothing), NfsStat4::IsDir, NEW),
        (OpenHow4::Guarded(nothing), NfsStat4::Exist, NEW),
        (OpenHow4::Exclusive([1; 8]), NfsStat4::Exist, NEW),
        (OpenHow4::Exclusive41([2; 8], nothing), NfsStat4::Exist, NEW),
    ];
    for (number, (openhow, of_old, of_new)) in (0..).zip(rows) {
        let new = [b'n', b'0' + number];
        for (names, of_new) in places.into_iter().zip(of_new) {
            for (name, status) in [(&b"a"[..], of_old), (&new, of_new)] {
                let claim = OpenClaim4::Null(name);
                let arguments = Open4Args { openhow, ..arguments(b"x", 1, 0, claim) };
                let said = client.run(&Ops::at(names).op(Op4::Open, &arguments));
                assert_eq!(said.status, status as u32, "{openhow:?} of {name:?} in {names:?}");
            }
        }
    }
}

#[test]
fn claims_that_nothing_stands_behind_are_refused() {
    let server = Server::new();
    let (client, _, file) = with_file(&server);
    let cases = [
        (OpenClaim4::Previous(0), NfsStat4::NoGrace),
        (OpenClaim4::DelegatePrev(b"f"), NfsStat4::NotSupp),
        (OpenClaim4::DelegPrevFh, NfsStat4::NotSupp),
    ];
    for (claim, status) in cases {
        let ops = Ops::put(&file).op(Op4::Open, &arguments(b"x", 1, 0, claim));
        client.run(&ops).fails(Op4::Open, status);
    }
    for (access, deny) in [(0, 0), (4, 0), (1, 4), (1, u32::MAX), (1 << 31 | 1, 0)] {
        let ops = Ops::put(&file).op(Op4::Open, &arguments(b"x", access, deny, OpenClaim4::Fh));
        client.run(&ops).fails(Op4::Open, NfsStat4::Inval);
    }
}

#[test]
fn a_downgrade_takes_away_only_what_is_there() {
    let server = Server::new();
    let (one, _, file) = with_file(&server);
    let two = Client::new(&server, b"d", sender(2));
    opened(&one, &file, b"x", 0).unwrap();
    let id = opened(&one, &file, b"x", 2).unwrap();
    let writing = Ops::put(&file).op(Op4::Open, &arguments(b"x", 2, 0, OpenClaim4::Fh));
    two.run(&writing).fails(Op4::Open, NfsStat4::ShareDenied);
    let down = |open_stateid, share_access, share_deny| {
        let how = OpenDowngrade4Args { open_stateid, seqid: 0, share_access, share_deny };
        Ops::put(&file).op(Op4::OpenDowngrade, &how)
    };
    for (access, deny) in [(1, 1), (3, 0), (2, 0), (0, 0), (1, 3)] {
        one.run(&down(id, access, deny)).fails(Op4::OpenDowngrade, NfsStat4::Inval);
    }
    let mut reply = one.run(&down(id, 1, 0)).succeeds();
    reply.ok(Op4::PutFh);
    reply.ok(Op4::OpenDowngrade);
    let lower = reply.take(stateid);
    assert_eq!((lower.seqid, lower.other), (id.seqid + 1, id.other));
    two.run(&writing).succeeds();
}

#[test]
fn stateids_are_tested_and_opens_are_not_freed() {
    let server = Server::new();
    let (client, _, file) = with_file(&server);
    let id = opened(&client, &file, b"x", 0).unwrap();
    let newer = opened(&client, &file, b"x", 0).unwrap();
    let stateids = vec![newer, id, ANONYMOUS, BYPASS, CURRENT];
    let ops = Ops::new().op(Op4::TestStateId, &TestStateId4Args { stateids });
    let mut reply = client.run(&ops).succeeds();
    reply.ok(Op4::TestStateId);
    let told = reply.take(|r| (0..6).map(|_| r.u32().unwrap()).collect::<Vec<_>>());
    let bad = NfsStat4::BadStateId as u32;
    assert_eq!(told, [5, 0, NfsStat4::OldStateId as u32, bad, bad, bad]);
    let free = |stateid| Ops::new().op(Op4::FreeStateId, &FreeStateId4Args { stateid });
    client.run(&free(newer)).fails(Op4::FreeStateId, NfsStat4::LocksHeld);
    client.run(&Ops::put(&file).then(&close(newer))).succeeds();
    client.run(&free(newer)).fails(Op4::FreeStateId, NfsStat4::BadStateId);
    client.run(&free(ANONYMOUS)).fails(Op4::FreeStateId, NfsStat4::BadStateId);
}

#[test]
fn reclaiming_is_completed_once_and_before_anything_new_is_opened() {
    let server = Server::new();
    let (_, root, file) = with_file(&server);
    let client = Client::with(&server, b"new", sender(3), channel());
    let complete = |one_fs| Ops::new().op(Op4::ReclaimComplete, &ReclaimComplete4Args { one_fs });
    client.run(&complete(true)).fails(Op4::ReclaimComplete, NfsStat4::NoFileHandle);
    let opening = Ops::put(&root).then(&open(b"f", b"x", 1, 0));
    client.run(&opening).fails(Op4::Open, NfsStat4::Grace);
    client.run(&Ops::put(&file).then(&read(ANONYMOUS))).succeeds();
    client.run(&complete(false)).succeeds();
    client.run(&complete(false)).fails(Op4::ReclaimComplete, NfsStat4::CompleteAlready);
    client.run(&opening).succeeds();
}

#[test]
fn nothing_is_opened_whose_stateid_could_not_be_told() {
    let server = Server::new();
    let (other, _, file) = with_file(&server);
    let fore = ChannelAttributes4 { maxresponsesize_cached: 140, ..channel() };
    let client = Client::with(&server, b"new", sender(3), fore);
    let complete = ReclaimComplete4Args { one_fs: false };
    client.run(&Ops::new().op(Op4::ReclaimComplete, &complete)).succeeds();
    let ops = Ops::put(&file).op(Op4::Open, &arguments(b"x", 1, 1, OpenClaim4::Fh));
    let kept = client.next(true, &ops);
    let reply = Reply::read(&server.send(&client.from, &kept).unwrap());
    reply.fails(Op4::Open, NfsStat4::RepTooBigToCache);
    opened(&other, &file, b"x", 0).unwrap();
}
