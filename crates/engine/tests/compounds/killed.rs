//! A process that is killed between a change and its reply: the next one goes on with the request when it
//! comes again, and does nothing of it twice.
//!
//! The host drops what is parked, as a kill does. What the process has kept of the state is what it had
//! written by then; what begun marks tell, the test says.

use steadfast_engine::{
    BegunReplies, ReplyBuffer, SuspendedCall, Verdict, call_of, may_be_under_way,
};
use steadfast_recovery::{
    Action, BegunCall, BegunOutcome, FileSystemIdentity, ObjectKey, Place, Unlinked,
};
use steadfast_vfs::{Attr, CallName, DeviceNumber, FileKind, StorageHandle, Time};
use steadfast_wire::nfs4::{NfsStat4, Op4};
use steadfast_xdr::Reader;
use twox_hash::XxHash3_128;

use crate::bench::{Bench, Client, Free, Hangs, Ops, Result4, done, failed, peer};

/// Executes a request up to its promises, which are not kept, and returns its message.
fn cut_off(client: &Client<'_>, ops: &Ops) -> Vec<u8> {
    let message = client.bench.message(&ops.compound());
    let (mut host, mut reply) = (Free::default(), ReplyBuffer::default());
    let verdict = client.bench.engine.call(&mut host, &client.peer, 0, &message, &mut reply);
    assert!(matches!(verdict, Verdict::Parked(_)), "{verdict:?}");
    message
}

/// Somebody else's request writes all events.
fn others_keep(bench: &Bench, who: &str) {
    let mut other = Client::new(bench, who);
    let dir = other.handle(&["srv", "a"]);
    let ops = other.next(false).put(&dir).open(b"s", "of somebody else");
    assert_eq!(other.send(&ops).ended(), done(3));
}

fn send(bench: &Bench, client: &Client<'_>, message: &[u8]) -> Result4 {
    Result4::of(&bench.send(&client.peer, message))
}

/// The name of a request's marks (session, slot, sequence id, digest, operation).
fn name_of_mark(client: &Client<'_>, message: &[u8], operation: u32) -> Vec<u8> {
    // Flavour and length of the credential, its stamp, the rest.
    let head = u64::from_be_bytes(message[24..32].try_into().unwrap());
    let digest = XxHash3_128::oneshot(&message[36..]) as u64 ^ head;
    let digest = (digest ^ digest >> 32) as u32 & 0x1fff_ffff;
    let mut name = client.session.to_vec();
    for number in [0, client.sequence, digest, operation] {
        name.extend_from_slice(&number.to_le_bytes());
    }
    name
}

fn object(number: u64) -> ObjectKey {
    ObjectKey(StorageHandle::new(&number.to_be_bytes()).unwrap())
}

/// What a start finds by a mark.
fn told(name: &[u8], outcome: BegunOutcome) -> Vec<u8> {
    let place = Place { dir: object(1), name: b"name" };
    let action = match outcome {
        BegunOutcome::Made { .. } => Action::Make { place, object: object(1), target: &[] },
        BegunOutcome::Changed => {
            let unlinked = Unlinked { object: object(2), is_directory: false, is_left: false };
            Action::Remove { place, unlinked }
        }
    };
    let call = BegunCall {
        call: CallName { key: name, share: 1 },
        file_system: FileSystemIdentity { uuid: [1; 16], kind: 2 },
        at: Time::default(),
        dir: object(1).0,
        fsid: 1,
        made: None,
        action,
    };
    let reply = BegunReplies::new(&[9; 16]).reply(&call, || Ok::<_, ()>(Some(outcome)));
    reply.unwrap().unwrap()
}

fn made(number: u64) -> BegunOutcome {
    let attr = Attr {
        kind: FileKind::Directory,
        mode: 0o755,
        links: 2,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        device: DeviceNumber::default(),
        fsid: 1,
        fileid: number,
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
    };
    BegunOutcome::Made { handle: object(number).0, attr }
}

fn make_directory(ops: Ops, name: &str) -> Ops {
    ops.op(Op4::Create, |w| {
        let directory = 2;
        w.u32(directory);
        w.opaque(name.as_bytes());
        w.u32(0);
        w.opaque(&[]);
    })
}

fn remove(ops: Ops, name: &str) -> Ops {
    ops.op(Op4::Remove, |w| w.opaque(name.as_bytes()))
}

/// OPEN that fails if the file is there.
fn open_new(ops: Ops, owner: &[u8], name: &str) -> Ops {
    ops.op(Op4::Open, |w| {
        for word in [0, 3, 0] {
            w.u32(word);
        }
        w.u64(0);
        w.opaque(owner);
        let (creates, guarded, words, values) = (1, 1, 0, 0);
        for word in [creates, guarded, words, values] {
            w.u32(word);
        }
        w.u32(0);
        w.opaque(name.as_bytes());
    })
}

fn set_mode(ops: Ops) -> Ops {
    ops.op(Op4::SetAttr, |w| {
        w.zeros(16);
        for word in [2, 0, 1 << (33 - 32)] {
            w.u32(word);
        }
        w.opaque(&0o640_u32.to_be_bytes());
    })
}

/// The sequence id of the stateid that the operation tells whose result begins there.
pub(crate) fn seqid(result: &Result4, op: Op4) -> u32 {
    let head = [op as u32, 0].map(u32::to_be_bytes).concat();
    let at = result.bytes.windows(8).position(|it| it == head).unwrap();
    Reader::new(&result.bytes[at + 8..]).u32().unwrap()
}

#[test]
fn what_a_mark_tells_is_not_done_again() {
    type Make = fn(Ops) -> Ops;
    let cases: [(&str, Make, u32, Option<&str>, NfsStat4); 4] = [
        (
            "directory",
            |ops| make_directory(ops, "new").plain(Op4::GetFh),
            2,
            Some("new"),
            NfsStat4::Exist,
        ),
        (
            "open",
            |ops| open_new(ops, b"o", "new").plain(Op4::GetFh),
            2,
            Some("new"),
            NfsStat4::Exist,
        ),
        ("remove", |ops| remove(ops, "old"), 2, None, NfsStat4::NoEnt),
        (
            "rename",
            |ops| {
                ops.plain(Op4::SaveFh).op(Op4::Rename, |w| {
                    w.opaque(b"old");
                    w.opaque(b"new");
                })
            },
            3,
            None,
            NfsStat4::NoEnt,
        ),
    ];
    for (what, make, operation, name, without) in cases {
        for is_told in [false, true] {
            let bench = Bench::new();
            let mut client = Client::new(&bench, "killed");
            let dir = client.handle(&["srv", "a"]);
            let ops = client.next(false).put(&dir).open(b"o", "old");
            assert_eq!(client.send(&ops).ended(), done(3));
            let ops = make(client.next(false).put(&dir));
            let message = cut_off(&client, &ops);
            let bench = bench.restarted();
            let mut client = client.at(&bench);
            if is_told {
                let mark = name_of_mark(&client, &message, operation);
                let outcome = match name {
                    // Of the root, and the file that was there, it is the third.
                    Some(_) => made(3),
                    None => BegunOutcome::Changed,
                };
                bench.engine.remember_replayed(&told(&mark, outcome), 0);
            }
            let said = send(&bench, &client, &message);
            if is_told {
                assert_eq!(said.status, 0, "{what}: {said:?}");
                assert_eq!(send(&bench, &client, &message), said, "{what}");
                if let Some(name) = name {
                    let handle = client.handle(&["srv", "a", name]);
                    let is_told = said.bytes.windows(handle.len()).any(|it| *it == *handle);
                    assert!(is_told, "{what}");
                }
            } else {
                assert_eq!(
                    said.status, without as u32,
                    "{what}: without marks it is executed again"
                );
            }
        }
    }
}

#[test]
fn what_was_done_is_told_in_the_grace_period_too() {
    for removes in [true, false] {
        let bench = Bench::new();
        let mut client = Client::new(&bench, "killed");
        let dir = client.handle(&["srv", "a"]);
        let ops = client.next(false).put(&dir).open(b"o", "old");
        assert_eq!(client.send(&ops).ended(), done(3));
        let ops = client.next(false).put(&dir);
        let ops = if removes { remove(ops, "old") } else { open_new(ops, b"o", "new") };
        let message = cut_off(&client, &ops);
        let bench = bench.restarted();
        let mut client = client.at(&bench);
        bench.engine.begin_grace(90_000);
        let mark = name_of_mark(&client, &message, 2);
        let outcome = if removes { BegunOutcome::Changed } else { made(3) };
        bench.engine.remember_replayed(&told(&mark, outcome), 0);
        let said = send(&bench, &client, &message);
        assert_eq!(said.ended(), done(3), "{removes}");
        assert_eq!(send(&bench, &client, &message), said);
        // What was not done before waits.
        let ops = client.next(false).put(&dir);
        let ops = if removes { remove(ops, "x") } else { open_new(ops, b"o", "x") };
        assert_eq!(client.send(&ops).ended(), failed(NfsStat4::Grace, 3));
    }
}

#[test]
fn a_mark_of_another_request_says_nothing() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "other");
    let dir = client.handle(&["srv", "a"]);
    let ops = make_directory(client.next(false).put(&dir), "new");
    let message = cut_off(&client, &ops);
    let bench = bench.restarted();
    let mut client = client.at(&bench);
    let mark = name_of_mark(&client, &message, 2);
    bench.engine.remember_replayed(&told(&mark, made(2)), 0);
    // The client has given it up, and sends something else in the slot.
    let other = make_directory(client.again(false).put(&dir), "something else");
    assert_eq!(client.send(&other).ended(), done(3));
    let next = make_directory(client.next(false).put(&dir), "new");
    assert_eq!(client.send(&next).ended(), failed(NfsStat4::Exist, 3));
}

#[test]
fn what_was_opened_locked_and_closed_is_so_once() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "state");
    let dir = client.handle(&["srv", "a"]);
    assert_eq!(
        client.send(&client.sequence_of(1, 1, false).put(&dir).open(b"x", "file")).ended(),
        done(3)
    );
    // An open and a lock, and then a change that has to be flushed.
    let ops = client.next(false).put(&dir).open(b"o", "file").lock_by_open(b"l");
    let message = cut_off(&client, &set_mode(ops));
    others_keep(&bench, "first");
    let bench = bench.restarted();
    let mut client = client.at(&bench);
    let said = send(&bench, &client, &message);
    assert_eq!(said.ended(), done(5));
    assert_eq!((seqid(&said, Op4::Open), seqid(&said, Op4::Lock)), (1, 1));
    assert_eq!(send(&bench, &client, &message), said);

    // It is closed, and something else has to be flushed: by the stateid that OPEN has told.
    let head = [Op4::Open as u32, 0].map(u32::to_be_bytes).concat();
    let at = 8 + said.bytes.windows(8).position(|it| it == head).unwrap();
    let stateid = said.bytes[at..at + 16].to_vec();
    let ops = client.next(false).put(&dir).lookup("file").op(Op4::Close, |w| {
        w.u32(0);
        w.fixed_opaque(&stateid);
    });
    let message = cut_off(&client, &set_mode(ops));
    others_keep(&bench, "second");
    for _ in 0..2 {
        // Killed again before it comes again.
        let bench = bench.restarted().restarted();
        let client = client.at(&bench);
        assert_eq!(send(&bench, &client, &message).ended(), done(5));
        assert_eq!(send(&bench, &client, &message).ended(), done(5));
    }
}

#[test]
fn a_file_that_was_opened_to_be_cut_is_opened_once() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "cut");
    let dir = client.handle(&["srv", "a"]);
    let ops = client.next(false).put(&dir).open(b"x", "file").write(b"data");
    assert_eq!(client.send(&ops).ended(), done(4));
    let ops = client.next(false).put(&dir).open_cut(b"o", "file");
    let message = cut_off(&client, &ops);
    others_keep(&bench, "third");
    let bench = bench.restarted();
    let client = client.at(&bench);
    let said = send(&bench, &client, &message);
    assert_eq!((said.ended(), seqid(&said, Op4::Open)), (done(3), 1));
    assert_eq!(send(&bench, &client, &message), said);
}

#[test]
fn of_several_changes_none_is_made_again() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "several");
    let dir = client.handle(&["srv", "a"]);
    // The second change begins when the first is done, and finds what the first has made.
    let ops = make_directory(client.next(false).put(&dir), "one").put(&dir).lookup("one");
    let ops = make_directory(ops.put(&dir), "two").plain(Op4::GetFh);
    let message = cut_off(&client, &ops);
    let bench = bench.restarted();
    let client = client.at(&bench);
    let mark = name_of_mark(&client, &message, 6);
    bench.engine.remember_replayed(&told(&mark, made(3)), 0);
    let said = send(&bench, &client, &message);
    assert_eq!(said.ended(), done(8));
    assert_eq!(send(&bench, &client, &message), said);

    // What is removed was looked up by the same request.
    let mut client = client;
    let ops = client.next(false).put(&dir).lookup("two").plain(Op4::GetFh).put(&dir);
    let message = cut_off(&client, &remove(ops, "two"));
    let bench = bench.restarted();
    let client = client.at(&bench);
    let mark = name_of_mark(&client, &message, 5);
    bench.engine.remember_replayed(&told(&mark, BegunOutcome::Changed), 0);
    assert_eq!(send(&bench, &client, &message).ended(), done(6));
}

#[test]
fn what_was_done_behind_a_long_reply_is_not_done_again() {
    let bench = Bench::new();
    // Replies of 300 bytes are kept.
    let mut client = Client::with_kept_bytes(&bench, "long", 300);
    let dir = client.handle(&["srv", "a"]);
    let ops = client.next(false).put(&dir).open(b"o", "file").write(&[7; 400]);
    let said = client.send(&ops);
    assert_eq!(said.ended(), done(4));
    let head = [Op4::Open as u32, 0].map(u32::to_be_bytes).concat();
    let at = 8 + said.bytes.windows(8).position(|it| it == head).unwrap();
    let stateid = said.bytes[at..at + 16].to_vec();
    let read = |ops: Ops| {
        ops.op(Op4::Read, |w| {
            w.fixed_opaque(&stateid);
            w.u64(0);
            w.u32(400);
        })
    };
    let ops = read(client.next(false).put(&dir).lookup("file")).op(Op4::Close, |w| {
        w.u32(0);
        w.fixed_opaque(&stateid);
    });
    let message = cut_off(&client, &set_mode(ops));
    others_keep(&bench, "first");
    let bench = bench.restarted();
    let mut client = client.at(&bench);
    for _ in 0..2 {
        let said = send(&bench, &client, &message);
        assert_eq!(said.ended(), failed(NfsStat4::RetryUncachedRep, 2));
        assert_eq!(said.last(), (Op4::PutFh as u32, NfsStat4::RetryUncachedRep as u32));
    }
    // It was closed once, and the slot goes on.
    let ops = client.next(false).put(&dir).lookup("file");
    assert_eq!(client.send(&read(ops)).ended(), failed(NfsStat4::BadStateId, 4));
}

/// Executes a message while its storage hangs.
pub(crate) fn while_it_hangs(
    bench: &Bench,
    now_ms: u64,
    message: &[u8],
    suspended: Option<SuspendedCall>,
) -> Result<SuspendedCall, Result4> {
    let (mut host, mut reply) = (Hangs { suspended, is_suspended: false }, ReplyBuffer::default());
    let verdict = bench.engine.call(&mut host, &peer(101), now_ms, message, &mut reply);
    match verdict {
        Verdict::Suspended(call) => {
            assert!(host.is_suspended);
            Ok(call)
        }
        verdict => Err(Result4::of(&bench.settled(verdict, reply).unwrap())),
    }
}

/// Executes the rest of it when the storage is well again.
fn when_it_is_well(bench: &Bench, message: &[u8], suspended: SuspendedCall) -> Result4 {
    let mut host = Free { suspended: Some(suspended), ..Free::default() };
    let mut reply = ReplyBuffer::default();
    let verdict = bench.engine.call(&mut host, &peer(101), 100, message, &mut reply);
    Result4::of(&bench.settled(verdict, reply).unwrap())
}

#[test]
fn who_has_to_try_later_would_do_it_again_and_so_waits() {
    // What a mark tells.
    let bench = Bench::new();
    let mut client = Client::new(&bench, "mark");
    let dir = client.handle(&["srv", "a"]);
    let ops = client.next(false).put(&dir).open(b"o", "old");
    assert_eq!(client.send(&ops).ended(), done(3));
    let ops = client.next(false).put(&dir);
    let message = cut_off(&client, &remove(ops, "old"));
    for is_well_again in [true, false] {
        let bench = bench.restarted();
        let client = client.at(&bench);
        let mark = name_of_mark(&client, &message, 2);
        bench.engine.remember_replayed(&told(&mark, BegunOutcome::Changed), 0);
        let mut call = while_it_hangs(&bench, 7, &message, None).unwrap();
        call = while_it_hangs(&bench, 60_006, &message, Some(call)).unwrap();
        if is_well_again {
            let said = when_it_is_well(&bench, &message, call);
            assert_eq!(said.ended(), done(3));
            assert_eq!(send(&bench, &client, &message), said);
        } else {
            let said = while_it_hangs(&bench, 60_007, &message, Some(call)).unwrap_err();
            assert_eq!(said.ended(), failed(NfsStat4::Delay, 3), "not for ever");
        }
    }
    // Nobody waits who has done nothing.
    let ops = client.next(false).put(&dir);
    let other = bench.message(&remove(ops, "old").compound());
    let said = while_it_hangs(&bench, 7, &other, None).unwrap_err();
    assert_eq!(said.ended(), failed(NfsStat4::Delay, 3));

    // A change of the state that was told by halves.
    let bench = Bench::new();
    let mut client = Client::new(&bench, "cut");
    let dir = client.handle(&["srv", "a"]);
    let ops = client.next(false).put(&dir).open(b"x", "file").write(b"data");
    assert_eq!(client.send(&ops).ended(), done(4));
    let message =
        cut_off(&client, &client.sequence_of(1, 1, false).put(&dir).open_cut(b"o", "file"));
    others_keep(&bench, "third");
    let bench = bench.restarted();
    let call = while_it_hangs(&bench, 7, &message, None).unwrap();
    let said = when_it_is_well(&bench, &message, call);
    assert_eq!((said.ended(), seqid(&said, Op4::Open)), (done(3), 1));
}

/// Executes a request of minor version 0 up to its promises; its message, and the name of its marks
/// without the operation.
fn cut_off_0(bench: &Bench, ops: &Ops) -> (Vec<u8>, Vec<u8>) {
    let message = bench.message(&ops.compound_of(0, b"tag"));
    let mut reply = ReplyBuffer::default();
    let verdict = bench.engine.call(&mut Free::default(), &peer(101), 0, &message, &mut reply);
    let Verdict::Parked(call) = verdict else { panic!("{verdict:?}") };
    let behind = call.behind_change().unwrap();
    (message, call_of(&behind).unwrap().to_vec())
}

fn operation_of(call: &[u8], operation: u32) -> Vec<u8> {
    [call, &operation.to_le_bytes()].concat()
}

#[test]
fn what_a_request_has_gone_beyond_is_not_looked_at() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "beyond");
    let dir = client.handle(&["srv", "a"]);
    // The directory is not as CREATE has made it.
    let ops = set_mode(make_directory(client.next(false).put(&dir), "new"));
    let message = cut_off(&client, &ops);
    let image = bench.image();
    let may_be =
        |operation| may_be_under_way(&name_of_mark(&client, &message, operation), Some(&image));
    assert!(!may_be(2) && may_be(3));
}

#[test]
fn without_a_session_all_of_several_changes_are_known() {
    let bench = Bench::new();
    let dir = Client::new(&bench, "handle").handle(&["srv", "a"]);
    let ops = make_directory(Ops::default().put(&dir), "one").put(&dir);
    let (message, call) = cut_off_0(&bench, &make_directory(ops, "two").plain(Op4::GetFh));
    let bench = bench.restarted();
    for (operation, number) in [(1, 2), (3, 3)] {
        let mark = operation_of(&call, operation);
        bench.engine.remember_replayed(&told(&mark, made(number)), 0);
    }
    let said = Result4::of(&bench.send(&peer(101), &message));
    assert_eq!(said.ended(), done(5));
    assert_eq!(Result4::of(&bench.send(&peer(101), &message)), said);
}

#[test]
fn without_a_session_it_waits_too() {
    let bench = Bench::new();
    let dir = Client::new(&bench, "handle").handle(&["srv", "a"]);
    let (_, _) = cut_off_0(&bench, &make_directory(Ops::default().put(&dir), "old"));
    // LOOKUP comes before the duplicate request cache is asked.
    let ops = Ops::default().put(&dir).lookup("old").put(&dir);
    let (message, call) = cut_off_0(&bench, &remove(ops, "old"));
    let bench = bench.restarted();
    let mark = operation_of(&call, 3);
    bench.engine.remember_replayed(&told(&mark, BegunOutcome::Changed), 0);
    let ops = Ops::default().put(&dir);
    let message_without = bench.message(&remove(ops, "other").compound_of(0, b"tag"));
    let said = while_it_hangs(&bench, 7, &message_without, None).unwrap_err();
    assert_eq!(said.ended(), failed(NfsStat4::Delay, 2));
    assert!(while_it_hangs(&bench, 7, &message, None).is_ok());
}
