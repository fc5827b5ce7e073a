//! Owners of minor version 0: each of their requests takes effect once, and its repetition gets the same
//! reply, in whatever message it comes.

use steadfast_wire::nfs4::{
    Lock4Args, LockDenied4, LockOwner4, LockT4Args, LockType4, LockU4Args, Locker4, NfsStat4, Op4,
    Open4Args, OpenDowngrade4Args, ReleaseLockOwner4Args, StateId4,
};
use steadfast_xdr::{Decode, Reader};

use crate::compounds::{Ops, Reply, xdr};
use crate::harness::{Host, Server, sender};
use crate::v40::{
    ANONYMOUS, Client0, close, confirm_open, created, open_arguments, opened, read, second, write,
};

fn lock_of(kind: LockType4, offset: u64, length: u64, locker: Locker4<'_>) -> Ops {
    let arguments = Lock4Args { locktype: kind, reclaim: false, offset, length, locker };
    Ops::new().op(Op4::Lock, &arguments)
}

fn by_open(client: u64, open: StateId4, open_seqid: u32, owner: &[u8], seqid: u32) -> Locker4<'_> {
    let lock_owner = LockOwner4 { clientid: client, owner };
    Locker4::Open { open_seqid, open_stateid: open, lock_seqid: seqid, lock_owner }
}

fn unlock(lock_stateid: StateId4, seqid: u32, offset: u64, length: u64) -> Ops {
    let locktype = LockType4::Write;
    Ops::new().op(Op4::LockU, &LockU4Args { locktype, seqid, lock_stateid, offset, length })
}

fn release(client: u64, owner: &[u8]) -> Ops {
    let lock_owner = LockOwner4 { clientid: client, owner };
    Ops::new().op(Op4::ReleaseLockOwner, &ReleaseLockOwner4Args { lock_owner })
}

#[test]
fn a_new_owner_confirms_its_first_open() {
    let server = Server::new();
    let client = Client0::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o644);
    let open = |seqid| Ops::put(&root).op(Op4::Open, &open_arguments(client.id, b"o", seqid, b"f"));
    let (first, flags) = opened(client.run(&open(5)));
    assert_eq!((first.seqid, flags), (1, 6));
    // Nothing but OPEN_CONFIRM takes the stateid.
    for (op, ops) in
        [(Op4::Read, read(first)), (Op4::Write, write(first, b"x")), (Op4::Close, close(first, 6))]
    {
        client.run(&Ops::put(&file).then(&ops)).fails(op, NfsStat4::BadStateId);
    }
    // The same OPEN again gets the same; another one takes its place.
    assert_eq!(opened(client.run(&open(5))).0, first);
    let (other, flags) = opened(client.run(&open(17)));
    assert_eq!((other.seqid, flags), (1, 6));
    assert_ne!(other.other, first.other);
    let confirming = |id, seqid| Ops::put(&file).then(&confirm_open(id, seqid));
    client.run(&confirming(first, 18)).fails(Op4::OpenConfirm, NfsStat4::BadStateId);
    client.run(&confirming(other, 19)).fails(Op4::OpenConfirm, NfsStat4::BadSeqId);
    let confirmed = second(client.run(&confirming(other, 18)), Op4::OpenConfirm);
    assert_eq!((confirmed.seqid, confirmed.other), (2, other.other));
    assert_eq!(second(client.run(&confirming(other, 18)), Op4::OpenConfirm), confirmed);
    client.run(&confirming(confirmed, 19)).fails(Op4::OpenConfirm, NfsStat4::BadStateId);
    client.run(&Ops::put(&file).then(&read(confirmed))).succeeds();
    let old = Ops::put(&file).then(&read(other));
    client.run(&old).fails(Op4::Read, NfsStat4::OldStateId);
    let zero = StateId4 { seqid: 0, ..confirmed };
    client.run(&Ops::put(&file).then(&read(zero))).fails(Op4::Read, NfsStat4::OldStateId);
    // A known owner has nothing to confirm.
    assert_eq!(opened(client.run(&open(19))).1, 4);
}

#[test]
fn an_open_in_another_directory_is_no_repetition() {
    let server = Server::new();
    let client = Client0::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    server.make_file(&root, b"f", 0o644);
    let link = server.make_symlink(&root, b"l");
    let open = |dir: &[u8], seqid| {
        client.run(&Ops::put(dir).op(Op4::Open, &open_arguments(client.id, b"o", seqid, b"f")))
    };
    // A client that follows the link does not know that this has used the sequence id.
    for _again in 0..2 {
        open(&link, 5).fails(Op4::Open, NfsStat4::SymLink);
    }
    let (first, flags) = opened(open(&root, 5));
    assert_eq!((first.seqid, flags), (1, 6));
    assert_eq!(opened(open(&root, 5)).0, first);
    let file = client.handle(&[b"a", b"f"]);
    let confirmed = client.run(&Ops::put(&file).then(&confirm_open(first, 6)));
    second(confirmed, Op4::OpenConfirm);
    // A known owner has to go on with the next one.
    let (again, _) = opened(open(&root, 7));
    assert_eq!(opened(open(&root, 7)).0, again);
    open(&link, 7).fails(Op4::Open, NfsStat4::BadSeqId);
    open(&link, 8).fails(Op4::Open, NfsStat4::SymLink);
}

#[test]
fn each_request_of_an_open_owner_takes_effect_once() {
    let server = Server::new();
    let client = Client0::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let id = client.open(&root, b"f");
    let file = client.handle(&[b"a", b"f"]);
    let next = client.next();
    let reading = Open4Args { share_access: 1, ..open_arguments(client.id, b"o", next, b"f") };
    let again = Ops::put(&root).op(Op4::Open, &reading);
    let (upgraded, flags) = opened(client.run(&again));
    assert_eq!((upgraded.seqid, flags), (id.seqid + 1, 4));
    assert_eq!(opened(client.run(&again)).0, upgraded);
    // The replayed OPEN leaves the file as the current object.
    let handle = client.run(&again.clone().bare(Op4::GetFh)).succeeds().handle();
    assert_eq!(handle, file);
    // The same sequence id with other arguments is no repetition; nor is any but the next.
    for seqid in [next, next + 2, 0, u32::MAX] {
        let other = Open4Args { share_access: 2, seqid, ..reading };
        let ops = Ops::put(&root).op(Op4::Open, &other);
        client.run(&ops).fails(Op4::Open, NfsStat4::BadSeqId);
    }
    let seqid = client.next();
    let less = OpenDowngrade4Args { open_stateid: upgraded, seqid, share_access: 1, share_deny: 0 };
    let less = Ops::put(&file).op(Op4::OpenDowngrade, &less);
    let lower = second(client.run(&less), Op4::OpenDowngrade);
    assert_eq!(lower.seqid, upgraded.seqid + 1);
    assert_eq!(second(client.run(&less), Op4::OpenDowngrade), lower);
    client.run(&Ops::put(&file).then(&write(lower, b"x"))).fails(Op4::Write, NfsStat4::OpenMode);
    // A failure uses the sequence id as well, and is told again.
    let missing = open_arguments(client.id, b"o", client.next(), b"missing");
    let missing = Ops::put(&root).op(Op4::Open, &missing);
    for _again in 0..2 {
        client.run(&missing).fails(Op4::Open, NfsStat4::NoEnt);
    }
    server.make_file(&root, b"missing", 0o644);
    client.run(&missing).fails(Op4::Open, NfsStat4::NoEnt);
    // Some do not.
    let seqid = client.next();
    client
        .run(&Ops::put(&file).then(&close(ANONYMOUS, seqid)))
        .fails(Op4::Close, NfsStat4::BadStateId);
    let closing = Ops::put(&file).then(&close(lower, seqid));
    let closed = second(client.run(&closing), Op4::Close);
    assert_eq!((closed.seqid, closed.other), (lower.seqid + 1, lower.other));
    assert_eq!(second(client.run(&closing), Op4::Close), closed);
    let later = Ops::put(&file).then(&close(lower, seqid + 1));
    client.run(&later).fails(Op4::Close, NfsStat4::BadStateId);
    // After the next request of the owner the CLOSE cannot come again.
    client.open(&root, b"g");
    client.run(&closing).fails(Op4::Close, NfsStat4::BadStateId);
}

#[test]
fn lock_owners_have_sequences_of_their_own() {
    let server = Server::new();
    let client = Client0::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let id = client.open(&root, b"f");
    let file = client.handle(&[b"a", b"f"]);
    let seqid = client.next();
    let locker = by_open(client.id, id, seqid, b"l", 70);
    let first = Ops::put(&file).then(&lock_of(LockType4::Write, 0, 10, locker));
    let lock = second(client.run(&first), Op4::Lock);
    assert_eq!(lock.seqid, 1);
    assert_eq!(second(client.run(&first), Op4::Lock), lock);
    let more = |seqid, offset| {
        let locker = Locker4::Lock { lock_stateid: lock, lock_seqid: seqid };
        Ops::put(&file).then(&lock_of(LockType4::Write, offset, 10, locker))
    };
    for seqid in [70, 72, 0] {
        client.run(&more(seqid, 20)).fails(Op4::Lock, NfsStat4::BadSeqId);
    }
    let next = second(client.run(&more(71, 20)), Op4::Lock);
    assert_eq!((next.seqid, next.other), (2, lock.other));
    assert_eq!(second(client.run(&more(71, 20)), Op4::Lock), next);
    client.run(&more(71, 40)).fails(Op4::Lock, NfsStat4::BadSeqId);
    client.run(&Ops::put(&file).then(&write(next, b"locked"))).succeeds();
    // Another file, by an open of which the owner has no locks: its sequence goes on.
    let other = client.open(&root, b"g");
    let other_file = client.handle(&[b"a", b"g"]);
    for (locks, status) in [(99, NfsStat4::BadSeqId), (72, NfsStat4::Ok)] {
        let seqid = client.seqid.get() + 1;
        let locker = by_open(client.id, other, seqid, b"l", locks);
        let ops = Ops::put(&other_file).then(&lock_of(LockType4::Read, 0, 1, locker));
        assert_eq!(client.run(&ops).status, status as u32);
    }
    client.next();
    let unlocking = Ops::put(&file).then(&unlock(next, 73, 0, u64::MAX));
    let unlocked = second(client.run(&unlocking), Op4::LockU);
    assert_eq!(unlocked.seqid, 3);
    assert_eq!(second(client.run(&unlocking), Op4::LockU), unlocked);
    let releasing = release(client.id, b"l");
    client.run(&releasing).fails(Op4::ReleaseLockOwner, NfsStat4::LocksHeld);
    let closing = Ops::put(&other_file).then(&close(other, client.next()));
    client.run(&closing).succeeds();
    client.run(&releasing).succeeds();
    client.run(&unlocking).fails(Op4::LockU, NfsStat4::BadStateId);
    client.run(&release(client.id, b"never known")).succeeds();
    client.run(&release(1, b"l")).fails(Op4::ReleaseLockOwner, NfsStat4::StaleClientId);
}

#[test]
fn a_lock_that_waits_for_too_long_uses_the_sequence_ids_of_both_owners() {
    let server = Server::new();
    let client = Client0::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let id = client.open(&root, b"f");
    let file = client.handle(&[b"a", b"f"]);
    let locker = by_open(client.id, id, client.next(), b"l", 70);
    let first = Ops::put(&file).then(&lock_of(LockType4::Write, 0, 10, locker));
    second(client.run(&first), Op4::Lock);
    let other = client.open(&root, b"g");
    let other_file = client.handle(&[b"a", b"g"]);
    let asking = |seqid, lock_seqid| {
        let locker = by_open(client.id, other, seqid, b"l", lock_seqid);
        Ops::put(&other_file).then(&lock_of(LockType4::Read, 0, 1, locker))
    };
    let message = server.compound(&client.from, b"", 0, &asking(client.next(), 71));
    let mut host = Host { waits: 0, suspended: None };
    let suspended = server.send_by(&mut host, &client.from, &message).unwrap_err();
    server.engine.refuse(suspended, &mut Vec::new());
    second(client.run(&asking(client.next(), 72)), Op4::Lock);
}

/// The status of a LOCK of all bytes by a host that speaks NLM, and waits for it or not.
pub(crate) fn lock_by_nlm(server: &Server, file: &[u8], owner: &[u8], waits: bool) -> u32 {
    const NLM: u32 = 100_021;
    let (version, lock) = (4, 2);
    let body = xdr(|w| {
        w.opaque(b"");
        w.bool(waits);
        w.bool(true);
        w.opaque(b"host");
        w.opaque(file);
        w.opaque(owner);
        w.u32(7);
        w.u64(0);
        w.u64(0);
        w.bool(false);
        w.u32(0);
    });
    let from = sender(2);
    let mut message = server.message(&from, version, lock, &body);
    message[12..16].copy_from_slice(&NLM.to_be_bytes());
    let reply = server.send(&from, &message).unwrap();
    Reader::new(&reply[reply.len() - 4..]).u32().unwrap()
}

#[test]
fn who_is_denied_by_an_owner_with_a_long_name_can_read_that() {
    let server = Server::new();
    let client = Client0::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let id = client.open(&root, b"f");
    let file = client.handle(&[b"a", b"f"]);
    assert_eq!(lock_by_nlm(&server, &file, &[b'o'; 1024], false), 0);
    let locker = by_open(client.id, id, client.next(), b"l", 0);
    let mut reply = client.run(&Ops::put(&file).then(&lock_of(LockType4::Read, 0, 1, locker)));
    assert_eq!(reply.status, NfsStat4::Denied as u32);
    reply.ok(Op4::PutFh);
    let told = reply.take(|r| {
        r.u64().unwrap();
        r.fixed_opaque(r.remaining()).unwrap().to_vec()
    });
    let told = LockDenied4::decode(&mut Reader::new(&told)).expect("as the RFC has it");
    assert_eq!(told.owner.owner.len(), 1024);
}

#[test]
fn a_denied_lock_is_told_again_and_its_owner_is_forgotten() {
    let server = Server::new();
    let one = Client0::new(&server, b"one", sender(1));
    let two = Client0::new(&server, b"two", sender(2));
    let root = one.handle(&[b"a"]);
    let held = one.open(&root, b"f");
    let file = one.handle(&[b"a", b"f"]);
    let locker = by_open(one.id, held, one.next(), b"l", 0);
    let locking = Ops::put(&file).then(&lock_of(LockType4::Write, 5, 10, locker));
    let lock = second(one.run(&locking), Op4::Lock);
    let id = two.open(&root, b"f");
    let denied = |mut reply: Reply| {
        assert_eq!(reply.status, NfsStat4::Denied as u32);
        reply.ok(Op4::PutFh);
        let body = reply.take(|r| {
            r.u64().unwrap();
            r.fixed_opaque(r.remaining()).unwrap().to_vec()
        });
        let told = LockDenied4::decode(&mut Reader::new(&body)).unwrap();
        assert_eq!((told.offset, told.length, told.owner.clientid), (5, 10, one.id));
        assert_eq!(told.owner.owner, b"l");
    };
    let asking = |seqid, lock_seqid| {
        let locker = by_open(two.id, id, seqid, b"m", lock_seqid);
        Ops::put(&file).then(&lock_of(LockType4::Read, 0, 100, locker))
    };
    let seqid = two.next();
    denied(two.run(&asking(seqid, 0)));
    denied(two.run(&asking(seqid, 0)));
    // Linux begins anew with 0 for an owner that never had a lock, or goes on.
    denied(two.run(&asking(two.next(), 0)));
    denied(two.run(&asking(two.next(), 2)));
    let test = LockT4Args {
        locktype: LockType4::Read,
        offset: 0,
        length: 6,
        owner: LockOwner4 { clientid: two.id, owner: b"m" },
    };
    denied(two.run(&Ops::put(&file).op(Op4::LockT, &test)));
    one.run(&Ops::put(&file).then(&unlock(lock, 1, 0, u64::MAX))).succeeds();
    two.run(&Ops::put(&file).op(Op4::LockT, &test)).succeeds();
    second(two.run(&asking(two.next(), 0)), Op4::Lock);
}

#[test]
fn owners_without_opens_are_forgotten_after_a_lease() {
    let server = Server::new();
    let client = Client0::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let id = client.open(&root, b"f");
    let file = client.handle(&[b"a", b"f"]);
    let closing = Ops::put(&file).then(&close(id, client.next()));
    client.run(&closing).succeeds();
    let open = |seqid| {
        let arguments = open_arguments(client.id, b"o", seqid, b"f");
        Ops::put(&root).op(Op4::Open, &Open4Args { openhow: created(), ..arguments })
    };
    server.now_ms.set(80_000);
    server.engine.tick(80_000);
    client.run(&open(100)).fails(Op4::Open, NfsStat4::BadSeqId);
    // The CLOSE is known for as long as its owner is.
    client.run(&closing).succeeds();
    server.now_ms.set(100_000);
    server.engine.tick(100_000);
    client.run(&closing).fails(Op4::Close, NfsStat4::BadStateId);
    let (_, flags) = opened(client.run(&open(100)));
    assert_eq!(flags, 6, "it is new again");
}

/// Whatever stands in a COMPOUND of minor version 0, nobody panics, and what comes after it is served.
#[test]
fn no_bytes_make_it_panic() {
    let server = Server::new();
    let client = Client0::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let id = client.open(&root, b"f");
    let file = client.handle(&[b"a", b"f"]);
    let locker = by_open(client.id, id, 3, b"l", 1);
    let all = Ops::put(&root)
        .op(Op4::Open, &open_arguments(client.id, b"new", 1, b"f"))
        .then(&Ops::put(&file))
        .then(&confirm_open(id, 3))
        .then(&write(id, b"data"))
        .then(&lock_of(LockType4::Write, 0, 10, locker))
        .then(&unlock(id, 1, 0, 10))
        .then(&release(client.id, b"l"))
        .then(&close(id, 4));
    let mut random = 1_u64;
    for _ in 0..6000 {
        let mut ops = all.clone();
        for _ in 0..3 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (random >> 40) as usize % ops.bytes.len();
            ops.bytes[at] ^= 1 << (random >> 36 & 7);
        }
        // Each operation gets its turn to be the first.
        let start = ops.bytes.len() / 4 * (random >> 32 & 3) as usize / 8 * 4;
        let head = Ops::put(&file);
        ops.bytes = [&head.bytes[..], &ops.bytes[start..]].concat();
        let reply = client.run(&ops);
        assert!(reply.count <= ops.count + 1, "{reply:?}");
    }
    client.run(&Ops::put(&root)).succeeds();
}
