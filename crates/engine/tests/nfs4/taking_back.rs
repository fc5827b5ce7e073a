//! What is granted to a COMPOUND that fails after that: nobody is kept out by it, nor is its own owner.

use std::cell::Cell;

use steadfast_engine::{ReplyBuffer, Verdict};
use steadfast_vfs::FsError;
use steadfast_wire::nfs3::StableHow;
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, Close4Args, Fattr4, Lock4Args, LockOwner4, LockType4, Locker4, NfsStat4,
    Op4, Open4Args, OpenClaim4, OpenDowngrade4Args, OpenHow4, Read4Args, ReclaimComplete4Args,
    StateId4, Write4Args,
};
use steadfast_xdr::Reader;

use crate::compounds::{HEADER_BYTES, Ops, Reply, xdr};
use crate::harness::{Client, Host, Sender, Server, channel, sender};
use crate::reclaim::Machine;
use crate::v40::{self, ANONYMOUS, Client0};
use crate::v40_owners::lock_by_nlm;

const CURRENT: StateId4 = StateId4 { seqid: 1, other: [0; 12] };
const READ: u32 = 1;
const WRITE: u32 = 2;
const BOTH: u32 = 3;

/// Executes a message whose promises cannot be kept.
#[track_caller]
pub(crate) fn without_flush(server: &Server, from: &Sender, message: &[u8]) -> Reply {
    let (mut host, mut reply) = (Host::free(), ReplyBuffer::default());
    let verdict = server.engine.call(&mut host, &from.peer, 0, message, &mut reply);
    let Verdict::Parked(call) = verdict else { panic!("{verdict:?}") };
    server.engine.settle(call, Err(FsError::Io), 0, &mut reply.bytes);
    Reply::read(&reply.bytes)
}

/// Such a message is executed by a client, and sent again.
#[track_caller]
fn fails_by_flush(client: &Client<'_>, ops: &Ops, op: Op4) {
    let message = client.next(false, ops);
    let reply = without_flush(client.server, &client.from, &message);
    reply.fails(op, NfsStat4::Io);
    let again = Reply::read(&client.server.send(&client.from, &message).unwrap());
    assert_eq!(again, reply, "a retransmission gets the same");
}

/// A file is made, or cut if it is there.
fn cutting() -> OpenHow4<'static> {
    let attrmask = Bitmap4::of(&[Attribute4::Size]);
    OpenHow4::Unchecked(Fattr4 { attrmask, attr_vals: &[0; 8] })
}

fn arguments(owner: &[u8], (share_access, share_deny): (u32, u32)) -> Open4Args<'_> {
    Open4Args {
        seqid: 0,
        share_access,
        share_deny,
        clientid: 0,
        owner,
        openhow: OpenHow4::NoCreate,
        claim: OpenClaim4::Null(b"f"),
    }
}

/// OPEN of `f` in the current directory by owner `o`, by which it is made or cut.
fn open_cut(share: (u32, u32)) -> Ops {
    Ops::new().op(Op4::Open, &Open4Args { openhow: cutting(), ..arguments(b"o", share) })
}

/// OPEN of the current file.
fn open_current(owner: &[u8], share: (u32, u32)) -> Ops {
    Ops::new().op(Op4::Open, &Open4Args { claim: OpenClaim4::Fh, ..arguments(owner, share) })
}

#[track_caller]
fn opened(reply: Reply) -> StateId4 {
    v40::opened(reply).0
}

fn close(open_stateid: StateId4) -> Ops {
    Ops::new().op(Op4::Close, &Close4Args { seqid: 0, open_stateid })
}

fn write(stateid: StateId4) -> Ops {
    let stable = StableHow::FileSync;
    Ops::new().op(Op4::Write, &Write4Args { stateid, offset: 0, stable, data: b"x" })
}

fn lock(open_stateid: StateId4, owner: &[u8]) -> Ops {
    let lock_owner = LockOwner4 { clientid: 0, owner };
    let locker = Locker4::Open { open_seqid: 0, open_stateid, lock_seqid: 0, lock_owner };
    let (locktype, reclaim, offset, length) = (LockType4::Write, false, 0, 10);
    Ops::new().op(Op4::Lock, &Lock4Args { locktype, reclaim, offset, length, locker })
}

/// Everybody may open what a failed OPEN of `o` had denied.
#[track_caller]
fn is_free(client: &Client<'_>, other: &Client<'_>, file: &[u8]) {
    for (who, owner) in [(other, b"x"), (client, b"o"), (client, b"x")] {
        let all = Ops::put(file).then(&open_current(owner, (BOTH, BOTH)));
        let id = opened(who.run(&all));
        who.run(&Ops::put(file).then(&close(id))).succeeds();
    }
}

#[test]
fn an_open_whose_file_could_not_be_made_stable_denies_nothing() {
    let server = Server::new();
    let (one, two) = (Client::new(&server, b"c", sender(1)), Client::new(&server, b"d", sender(2)));
    let root = one.handle(&[b"a"]);
    // The first time it is made, then it is cut.
    for _ in 0..2 {
        fails_by_flush(&one, &Ops::put(&root).then(&open_cut((BOTH, BOTH))), Op4::Open);
        let file = one.handle(&[b"a", b"f"]);
        is_free(&one, &two, &file);
        // Its lock goes with it.
        let locking = Ops::put(&root).then(&open_cut((BOTH, BOTH))).then(&lock(CURRENT, b"l"));
        fails_by_flush(&one, &locking, Op4::Open);
        is_free(&one, &two, &file);
    }
}

#[test]
fn an_upgrade_that_failed_leaves_what_was_open() {
    let server = Server::new();
    let (one, two) = (Client::new(&server, b"c", sender(1)), Client::new(&server, b"d", sender(2)));
    let root = one.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o666);
    let id = opened(one.run(&Ops::put(&file).then(&open_current(b"o", (READ, 0)))));
    fails_by_flush(&one, &Ops::put(&root).then(&open_cut((WRITE, WRITE))), Op4::Open);
    // The client knows the stateid of before.
    let read = Read4Args { stateid: id, offset: 0, count: 1 };
    one.run(&Ops::put(&file).op(Op4::Read, &read)).succeeds();
    one.run(&Ops::put(&file).then(&write(id))).fails(Op4::Write, NfsStat4::OpenMode);
    opened(two.run(&Ops::put(&file).then(&open_current(b"x", (WRITE, 0)))));
    one.run(&Ops::put(&file).then(&close(id))).succeeds();
}

#[test]
fn what_stands_behind_the_operation_that_failed_was_not_granted() {
    let server = Server::new();
    let (one, two) = (Client::new(&server, b"c", sender(1)), Client::new(&server, b"d", sender(2)));
    let root = one.handle(&[b"a"]);
    let (file, other) =
        (server.make_file(&root, b"f", 0o666), server.make_file(&root, b"g", 0o666));
    let id = opened(one.run(&Ops::put(&file).then(&open_current(b"o", (BOTH, 0)))));
    let behind =
        |more: &Ops| Ops::put(&other).then(&write(ANONYMOUS)).then(&Ops::put(&file)).then(more);
    fails_by_flush(&one, &behind(&open_current(b"p", (READ, READ))), Op4::Write);
    fails_by_flush(&one, &behind(&lock(id, b"l")), Op4::Write);
    let theirs = opened(two.run(&Ops::put(&file).then(&open_current(b"x", (BOTH, 0)))));
    two.run(&Ops::put(&file).then(&lock(theirs, b"l"))).succeeds();
    two.run(&Ops::put(&file).then(&close(theirs))).succeeds();
    // What stands before it was told, and stays.
    let before =
        Ops::put(&file).then(&lock(id, b"l")).then(&Ops::put(&other)).then(&write(ANONYMOUS));
    fails_by_flush(&one, &before, Op4::Write);
    let theirs = opened(two.run(&Ops::put(&file).then(&open_current(b"x", (BOTH, 0)))));
    let denied = two.run(&Ops::put(&file).then(&lock(theirs, b"l")));
    assert_eq!(denied.status, NfsStat4::Denied as u32);
}

#[test]
fn an_open_that_could_not_wait_to_cut_the_file_denies_nothing() {
    let server = Server::new();
    let (one, two) = (Client::new(&server, b"c", sender(1)), Client::new(&server, b"d", sender(2)));
    let root = one.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o666);
    let mut was_told_later = 0;
    for waits in 0..4 {
        let message = one.next(false, &Ops::put(&root).then(&open_cut((BOTH, BOTH))));
        let mut host = Host { waits, suspended: None };
        match server.send_by(&mut host, &one.from, &message) {
            Ok(reply) => {
                let mut reply = Reply::read(&reply.unwrap()).succeeds();
                reply.ok(Op4::Sequence);
                reply.take(|r| r.fixed_opaque(36).map(drop)).unwrap();
                let id = opened(reply);
                one.run(&Ops::put(&file).then(&close(id))).succeeds();
            }
            Err(suspended) => {
                was_told_later += 1;
                server.engine.refuse(suspended, &mut Vec::new());
            }
        }
        is_free(&one, &two, &file);
    }
    assert!(was_told_later > 0);
}

#[test]
fn what_is_told_to_be_tried_again_since_records_are_not_kept_was_not_granted() {
    let mut machine = Machine::new();
    let server = machine.start_with(steadfast_engine::Delegations::None);
    let clients =
        [b"c", b"d", b"e"].map(|owner| Client::new(&server, owner, sender(u64::from(owner[0]))));
    let [one, two, three] = &clients;
    let root = one.handle(&[b"a"]);
    let files = [b"f", b"g"].map(|name| server.make_file(&root, name, 0o666));
    // All are recorded.
    for client in [two, three] {
        opened(client.run(&Ops::put(&files[1]).then(&open_current(b"o", (BOTH, 0)))));
    }
    opened(one.run(&Ops::put(&files[0]).then(&open_current(b"o", (BOTH, BOTH)))));
    server.now_ms.set(90_001);
    for client in [two, three] {
        client.run(&Ops::put(&root)).succeeds();
    }
    machine.set_full(true);
    // It takes from the first client what that has, and cannot note it.
    let ops = Ops::put(&files[0]).then(&open_current(b"o", (BOTH, BOTH)));
    for _ in 0..2 {
        two.run(&ops).fails(Op4::Open, NfsStat4::Delay);
    }
    machine.set_full(false);
    let id = opened(three.run(&ops));
    three.run(&Ops::put(&files[0]).then(&close(id))).succeeds();
    opened(two.run(&ops));
}

#[test]
fn an_open_that_was_downgraded_in_vain_denies_nothing() {
    let server = Server::new();
    let (one, two) = (Client::new(&server, b"c", sender(1)), Client::new(&server, b"d", sender(2)));
    let root = one.handle(&[b"a"]);
    let [file, other] = [b"f", b"g"].map(|name| server.make_file(&root, name, 0o666));
    let (share_access, share_deny) = (BOTH, WRITE);
    let downgrade =
        OpenDowngrade4Args { open_stateid: CURRENT, seqid: 0, share_access, share_deny };
    let ops = Ops::put(&other)
        .then(&write(ANONYMOUS))
        .then(&Ops::put(&file))
        .then(&open_current(b"o", (BOTH, WRITE)))
        .op(Op4::OpenDowngrade, &downgrade);
    fails_by_flush(&one, &ops, Op4::Write);
    is_free(&one, &two, &file);
}

#[test]
fn a_lock_that_was_answered_survives_one_that_failed_before_it() {
    let server = Server::new();
    let (one, two) = (Client::new(&server, b"c", sender(1)), Client::new(&server, b"d", sender(2)));
    let root = one.handle(&[b"a"]);
    let [file, other] = [b"f", b"g"].map(|name| server.make_file(&root, name, 0o666));
    let [id, theirs] = [&one, &two]
        .map(|client| opened(client.run(&Ops::put(&file).then(&open_current(b"o", (BOTH, 0))))));
    let locking =
        Ops::put(&other).then(&write(ANONYMOUS)).then(&Ops::put(&file)).then(&lock(id, b"l"));
    let message = one.next(false, &locking);
    let (mut host, mut reply) = (Host::free(), ReplyBuffer::default());
    let verdict = server.engine.call(&mut host, &one.from.peer, 0, &message, &mut reply);
    let Verdict::Parked(call) = verdict else { panic!("{verdict:?}") };
    let by_slot = |slot| {
        let ops = Ops::new().op(Op4::Sequence, &one.sequence(slot, 1, false));
        let ops = ops.then(&Ops::put(&file)).then(&lock(id, b"l"));
        let message = server.compound(&one.from, b"", 1, &ops);
        Reply::read(&server.send(&one.from, &message).unwrap())
    };
    by_slot(1).succeeds();
    server.engine.settle(call, Err(FsError::Io), 0, &mut reply.bytes);
    Reply::read(&reply.bytes).fails(Op4::Write, NfsStat4::Io);
    let denied = two.run(&Ops::put(&file).then(&lock(theirs, b"l")));
    assert_eq!(denied.status, NfsStat4::Denied as u32);
}

#[test]
fn an_owner_of_minor_version_0_was_not_told_what_stands_behind_a_failure() {
    let server = Server::new();
    let client = Client0::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let (id, _) = v40::opened(client.run(&cut_by_0(&client, &root, 5)));
    let file = client.handle(&[b"a", b"f"]);
    let other = server.make_file(&root, b"g", 0o666);
    let confirming = Ops::put(&file).then(&v40::confirm_open(id, 6));
    let id = v40::second(client.run(&confirming), Op4::OpenConfirm);
    client.run(&Ops::put(&file).then(&v40::close(id, 7))).succeeds();
    let ops = Ops::put(&other).then(&write(ANONYMOUS)).then(&cut_by_0(&client, &root, 8));
    let message = server.compound(&client.from, b"", 0, &ops);
    without_flush(&server, &client.from, &message).fails(Op4::Write, NfsStat4::Io);
    let (id, _) = v40::opened(client.run(&cut_by_0(&client, &root, 8)));
    client.run(&Ops::put(&file).then(&v40::close(id, 9))).succeeds();
}

/// What an owner of minor version 0 has.
fn cut_by_0(client: &Client0<'_>, root: &[u8], seqid: u32) -> Ops {
    let share = Open4Args {
        share_deny: BOTH,
        openhow: cutting(),
        ..v40::open_arguments(client.id, b"o", seqid, b"f")
    };
    Ops::put(root).op(Op4::Open, &share)
}

#[test]
fn an_owner_of_minor_version_0_is_told_again_that_its_open_failed() {
    let server = Server::new();
    let client = Client0::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let fails = |seqid| {
        let ops = cut_by_0(&client, &root, seqid);
        let message = server.compound(&client.from, b"", 0, &ops);
        without_flush(&server, &client.from, &message).fails(Op4::Open, NfsStat4::Io);
        // In another message it is the same request of the owner.
        client.run(&ops).fails(Op4::Open, NfsStat4::Io);
    };
    // Of an owner that has to confirm it, and may begin anew.
    fails(5);
    let (id, flags) = v40::opened(client.run(&cut_by_0(&client, &root, 6)));
    assert_eq!((id.seqid, flags & 2), (1, 2));
    let file = client.handle(&[b"a", b"f"]);
    let confirming = Ops::put(&file).then(&v40::confirm_open(id, 7));
    let id = v40::second(client.run(&confirming), Op4::OpenConfirm);
    client.run(&Ops::put(&file).then(&v40::close(id, 8))).succeeds();
    // Of one that is confirmed.
    fails(9);
    let (id, flags) = v40::opened(client.run(&cut_by_0(&client, &root, 10)));
    assert_eq!((id.seqid, flags & 2), (1, 0));
    // It is in its own way.
    client.run(&cut_by_0(&client, &root, 11)).fails(Op4::Open, NfsStat4::ShareDenied);
    client.run(&Ops::put(&file).then(&v40::close(id, 12))).succeeds();
}

#[test]
fn an_owner_of_minor_version_0_whose_open_could_not_wait_may_open_it_again() {
    let server = Server::new();
    let client = Client0::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    client.open(&root, b"g");
    let file = server.make_file(&root, b"f", 0o666);
    let was_told_later = Cell::new(0);
    for waits in 0..4 {
        let message =
            server.compound(&client.from, b"", 0, &cut_by_0(&client, &root, client.next()));
        let mut host = Host { waits, suspended: None };
        let reply = match server.send_by(&mut host, &client.from, &message) {
            Ok(reply) => Reply::read(&reply.unwrap()),
            Err(suspended) => {
                was_told_later.set(was_told_later.get() + 1);
                server.engine.refuse(suspended, &mut Vec::new());
                client.run(&cut_by_0(&client, &root, client.next()))
            }
        };
        let (id, _) = v40::opened(reply);
        client.run(&Ops::put(&file).then(&v40::close(id, client.next()))).succeeds();
    }
    assert!(was_told_later.into_inner() > 0);
}

/// The same of hosts that speak NLM: what a silent client denied, they are told to try again for.
#[test]
fn a_host_that_is_told_to_try_again_has_nothing() {
    const LATER: u32 = 4;
    let mut machine = Machine::new();
    let server = machine.start_with(steadfast_engine::Delegations::None);
    let [silent, other] =
        [b"c", b"d"].map(|owner| Client::new(&server, owner, sender(u64::from(owner[0]))));
    let root = silent.handle(&[b"a"]);
    let files = [b"f", b"g", b"h"].map(|name| server.make_file(&root, name, 0o666));
    opened(other.run(&Ops::put(&files[2]).then(&open_current(b"o", (BOTH, 0)))));
    // By each kind of call the silent client loses what it has anew.
    for is_share in [false, true] {
        let silent = Client::with(&server, &[b's', u8::from(is_share)], sender(7), channel());
        let complete = ReclaimComplete4Args { one_fs: false };
        silent.run(&Ops::new().op(Op4::ReclaimComplete, &complete)).succeeds();
        let file = &files[usize::from(is_share)];
        let held = opened(silent.run(&Ops::put(file).then(&open_current(b"o", (BOTH, READ)))));
        silent.run(&Ops::put(file).then(&lock(held, b"l"))).succeeds();
        server.now_ms.set(server.now_ms.get() + 90_001);
        other.run(&Ops::put(&root)).succeeds();
        let taken = || {
            if is_share {
                share_by_nlm(&server, file)
            } else {
                lock_by_nlm(&server, file, b"o", false)
            }
        };
        machine.set_full(true);
        assert_eq!([taken(), taken()], [LATER; 2]);
        machine.set_full(false);
        // Nobody is in its way.
        let id = opened(other.run(&Ops::put(file).then(&open_current(b"o", (BOTH, 0)))));
        other.run(&Ops::put(file).then(&lock(id, b"l"))).succeeds();
        other.run(&Ops::put(file).then(&close(id))).succeeds();
        assert_eq!(taken(), 0);
    }
}

/// The status of a SHARE of all by a host that speaks NLM.
fn share_by_nlm(server: &Server, file: &[u8]) -> u32 {
    const NLM: u32 = 100_021;
    let (version, share) = (4, 20);
    let body = xdr(|w| {
        w.opaque(b"");
        w.opaque(b"host");
        w.opaque(file);
        w.opaque(b"o");
        let (denies_all, for_both, reclaims) = (3, 3, 0);
        for word in [denies_all, for_both, reclaims] {
            w.u32(word);
        }
    });
    let from = sender(2);
    let mut message = server.message(&from, version, share, &body);
    message[12..16].copy_from_slice(&NLM.to_be_bytes());
    let reply = server.send(&from, &message).unwrap();
    let mut r = Reader::new(&reply[HEADER_BYTES..]);
    r.opaque(1024).unwrap();
    r.u32().unwrap()
}
