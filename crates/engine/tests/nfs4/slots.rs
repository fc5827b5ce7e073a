//! Slots: each request takes effect at most once (RFC 8881 §2.10.6).

use steadfast_wire::nfs4::{Attribute4, Bitmap4, DestroySession4Args, NfsStat4, Op4, ReadDir4Args};

use crate::compounds::{Ops, Reply};
use crate::harness::{Client, Host, Sender, Server, sender};
use crate::opens::open;

fn send(server: &Server, from: &Sender, message: &[u8]) -> Reply {
    Reply::read(&server.send(from, message).unwrap())
}

fn single(client: &Client<'_>, slot: u32, sequence: u32) -> Reply {
    let ops = Ops::new().op(Op4::Sequence, &client.sequence(slot, sequence, false));
    client.server.run(&client.from, &ops)
}

#[test]
fn a_retransmission_gets_what_was_kept_also_over_another_connection() {
    let server = Server::new();
    let client = Client::new(&server, b"c", sender(1));
    let ops = Ops::at(&[b"a"]).bare(Op4::GetFh);
    let kept = client.next(true, &ops);
    let first = send(&server, &client.from, &kept).succeeds();
    assert_eq!(send(&server, &client.from, &kept), first);
    assert_eq!(send(&server, &sender(2), &kept), first);
    let forgotten = client.next(false, &ops);
    send(&server, &client.from, &forgotten).succeeds();
    let reply = send(&server, &client.from, &forgotten);
    reply.fails(Op4::PutRootFh, NfsStat4::RetryUncachedRep);
    assert_eq!(reply.count, 2);
    send(&server, &client.from, &kept).fails(Op4::Sequence, NfsStat4::SeqMisordered);
}

#[test]
fn a_failure_is_kept_as_it_was() {
    let server = Server::new();
    let client = Client::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let kept = client.next(true, &Ops::at(&[b"a", b"none"]).bare(Op4::GetFh));
    let first = send(&server, &client.from, &kept);
    first.fails(Op4::Lookup, NfsStat4::NoEnt);
    server.make_file(&root, b"none", 0o644);
    assert_eq!(send(&server, &client.from, &kept), first);
}

#[test]
fn slots_refuse_what_is_not_their_next_request_and_stay_as_they_are() {
    let server = Server::new();
    let client = Client::new(&server, b"c", sender(1));
    let other = Client::new(&server, b"d", sender(2));
    single(&client, 2, 1).succeeds();
    single(&client, 2, 1).succeeds();
    for sequence in [0, 3, 1000, u32::MAX] {
        single(&client, 2, sequence).fails(Op4::Sequence, NfsStat4::SeqMisordered);
    }
    let ops = Ops::new().op(Op4::Sequence, &client.sequence(2, 1, false)).bare(Op4::PutRootFh);
    server.run(&client.from, &ops).fails(Op4::Sequence, NfsStat4::SeqFalseRetry);
    for slot in [8, 9, u32::MAX] {
        single(&client, slot, 1).fails(Op4::Sequence, NfsStat4::BadSlot);
    }
    let mut high = client.sequence(2, 2, false);
    high.highest_slotid = 8;
    let ops = Ops::new().op(Op4::Sequence, &high);
    server.run(&client.from, &ops).fails(Op4::Sequence, NfsStat4::BadHighSlot);
    let mut unknown = client.sequence(2, 2, false);
    unknown.sessionid[15] ^= 0x40;
    let ops = Ops::new().op(Op4::Sequence, &unknown);
    server.run(&client.from, &ops).fails(Op4::Sequence, NfsStat4::BadSession);
    single(&client, 2, 2).succeeds();
    single(&other, 2, 1).succeeds();
}

#[test]
fn a_destroyed_session_is_none_and_destroys_itself_only_at_the_end() {
    let server = Server::new();
    let client = Client::new(&server, b"c", sender(1));
    let destroy = DestroySession4Args { sessionid: client.session };
    let ops = Ops::new().op(Op4::DestroySession, &destroy);
    client.run(&ops.clone().bare(Op4::PutRootFh)).fails(Op4::DestroySession, NfsStat4::NotOnlyOp);
    client.run(&ops).succeeds();
    single(&client, 0, 3).fails(Op4::Sequence, NfsStat4::BadSession);
    server.run(&client.from, &ops).fails(Op4::DestroySession, NfsStat4::BadSession);
}

/// OPEN, then a listing that has to wait.
fn opening_and_listing() -> Ops {
    let arguments = ReadDir4Args {
        cookie: 0,
        cookieverf: [0; 8],
        dircount: 0,
        maxcount: 10_000,
        attr_request: Bitmap4::of(&[Attribute4::FileId, Attribute4::Size]),
    };
    Ops::at(&[b"a"])
        .bare(Op4::SaveFh)
        .then(&open(b"f", b"owner", 1, 0))
        .bare(Op4::GetFh)
        .bare(Op4::RestoreFh)
        .op(Op4::ReadDir, &arguments)
}

fn with_file(server: &Server) -> Client<'_> {
    let client = Client::new(server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    server.make_file(&root, b"f", 0o644);
    client
}

#[test]
fn a_run_that_was_suspended_anywhere_goes_on_and_opens_once() {
    let reference = Server::new();
    let client = with_file(&reference);
    let message = client.next(false, &opening_and_listing());
    let expected = send(&reference, &client.from, &message).succeeds();
    let mut stops = 0;
    loop {
        let server = Server::new();
        let client = with_file(&server);
        let message = client.next(false, &opening_and_listing());
        let mut host = Host { waits: stops, suspended: None };
        let suspended = match server.send_by(&mut host, &client.from, &message) {
            Ok(reply) => {
                assert_eq!(Reply::read(&reply.unwrap()), expected);
                break;
            }
            Err(suspended) => suspended,
        };
        stops += 1;
        assert_eq!(server.send(&client.from, &message), None, "it is in progress");
        // It is suspended once more, then goes on, over whatever connection.
        let mut host = Host { waits: 0, suspended: Some(suspended) };
        let suspended = server.send_by(&mut host, &client.from, &message).unwrap_err();
        let mut host = Host { suspended: Some(suspended), ..Host::free() };
        let reply = server.send_by(&mut host, &client.from, &message).unwrap().unwrap();
        assert_eq!(Reply::read(&reply), expected, "after {stops} waits");
        assert_eq!(Reply::read(&server.send(&client.from, &message).unwrap()), expected);
        client.run(&Ops::new()).succeeds();
    }
    assert!(stops > 2, "{stops}");
}

#[test]
fn a_run_that_is_refused_or_dropped_frees_its_slot() {
    for is_refused in [true, false] {
        let server = Server::new();
        let client = with_file(&server);
        let message = client.next(true, &opening_and_listing());
        let mut host = Host { waits: 2, suspended: None };
        let suspended = server.send_by(&mut host, &client.from, &message).unwrap_err();
        if is_refused {
            let mut reply = Vec::new();
            server.engine.refuse(suspended, &mut reply);
            let reply = Reply::read(&reply);
            assert_eq!(reply.failure().1, NfsStat4::Delay as u32);
            assert_eq!(send(&server, &client.from, &message), reply, "it is kept");
        } else {
            drop(suspended);
        }
        client.run(&Ops::new()).succeeds();
    }
}
