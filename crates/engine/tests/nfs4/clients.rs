//! Clients and sessions: how they come and go (RFC 8881 §18.34 to §18.37, §18.50).

use steadfast_wire::nfs4::{
    BindConnToSession4Args, Bitmap4, ChannelAttributes4, CreateSession4Args, DestroyClientId4Args,
    DestroySession4Args, ExchangeId4Args, NfsStat4, Op4, StateProtect4,
};

use crate::compounds::{Ops, Reply};
use crate::harness::{
    Client, Sender, Server, channel, create_session, exchange, exchange_id, sender,
};

const UPDATE: u32 = 0x4000_0000;
const IS_CONFIRMED: u32 = 0x8000_0000;

fn user(uid: u32) -> Sender {
    Sender { uid, ..sender(1) }
}

fn ask(server: &Server, from: &Sender, arguments: &ExchangeId4Args<'_>) -> Reply {
    server.run(from, &Ops::new().op(Op4::ExchangeId, arguments))
}

fn create(server: &Server, from: &Sender, arguments: &CreateSession4Args<'_>) -> Reply {
    server.run(from, &Ops::new().op(Op4::CreateSession, arguments))
}

fn destroy_client(clientid: u64) -> Ops {
    Ops::new().op(Op4::DestroyClientId, &DestroyClientId4Args { clientid })
}

/// Id and flags that `EXCHANGE_ID` told.
fn told(reply: Reply) -> (u64, u32) {
    let mut reply = reply.succeeds();
    reply.ok(Op4::ExchangeId);
    reply.take(|r| {
        let id = r.u64().unwrap();
        r.u32().unwrap();
        (id, r.u32().unwrap())
    })
}

#[test]
fn owners_keep_their_id_until_they_begin_anew() {
    let server = Server::new();
    let from = sender(1);
    let (unconfirmed, flags) = told(ask(&server, &from, &exchange_id(b"c")));
    assert_eq!(flags & IS_CONFIRMED, 0);
    let client = Client::new(&server, b"c", sender(1));
    assert_ne!(client.id, unconfirmed, "a record that is not confirmed is replaced");
    let again = told(ask(&server, &from, &exchange_id(b"c")));
    assert_eq!((again.0, again.1 & IS_CONFIRMED), (client.id, IS_CONFIRMED));

    let update = ExchangeId4Args { flags: UPDATE, ..exchange_id(b"c") };
    assert_eq!(told(ask(&server, &from, &update)).0, client.id);
    ask(&server, &user(5), &update).fails(Op4::ExchangeId, NfsStat4::Perm);
    let other = ExchangeId4Args { verifier: [2; 8], ..update.clone() };
    ask(&server, &from, &other).fails(Op4::ExchangeId, NfsStat4::NotSame);
    let nobody = ExchangeId4Args { ownerid: b"nobody", ..update };
    ask(&server, &from, &nobody).fails(Op4::ExchangeId, NfsStat4::NoEnt);
    ask(&server, &user(5), &exchange_id(b"c")).fails(Op4::ExchangeId, NfsStat4::ClIdInUse);

    // It begins anew: what it had goes when the new one is confirmed.
    let anew = ExchangeId4Args { verifier: [2; 8], ..exchange_id(b"c") };
    let (id, flags) = told(ask(&server, &from, &anew));
    assert_eq!(flags & IS_CONFIRMED, 0);
    client.run(&Ops::at(&[])).succeeds();
    create(&server, &from, &create_session(id, 1)).succeeds();
    client.run(&Ops::at(&[])).fails(Op4::Sequence, NfsStat4::BadSession);
    let stale = create_session(client.id, 2);
    create(&server, &from, &stale).fails(Op4::CreateSession, NfsStat4::StaleClientId);
}

#[test]
fn what_is_not_served_of_exchange_id_is_refused() {
    let server = Server::new();
    let from = sender(1);
    for flags in [IS_CONFIRMED, 0x8, 0x1000_0000] {
        let arguments = ExchangeId4Args { flags, ..exchange_id(b"c") };
        ask(&server, &from, &arguments).fails(Op4::ExchangeId, NfsStat4::Inval);
    }
    // It came with minor version 2.
    let can_fence = ExchangeId4Args { flags: 0x4, ..exchange_id(b"c") };
    ask(&server, &from, &can_fence).fails(Op4::ExchangeId, NfsStat4::Inval);
    let ops = Ops::new().op(Op4::ExchangeId, &can_fence);
    let message = server.compound(&from, b"", 2, &ops);
    Reply::read(&server.send(&from, &message).unwrap()).succeeds();
    let by_machine = StateProtect4::MachCred(Bitmap4::EMPTY, Bitmap4::EMPTY);
    let arguments = ExchangeId4Args { state_protect: by_machine, ..exchange_id(b"c") };
    ask(&server, &from, &arguments).fails(Op4::ExchangeId, NfsStat4::Inval);
    let longest = [b'c'; 1024];
    told(ask(&server, &from, &exchange_id(&longest)));
    let longer = [b'c'; 1025];
    ask(&server, &from, &exchange_id(&longer)).fails(Op4::ExchangeId, NfsStat4::BadXdr);
}

#[test]
fn sessions_are_made_in_their_order_and_once() {
    let server = Server::new();
    let from = sender(1);
    let (id, sequence) = exchange(&server, b"c", &from);
    let unknown = create_session(id ^ 1 << 40, sequence);
    create(&server, &from, &unknown).fails(Op4::CreateSession, NfsStat4::StaleClientId);
    for wrong in [sequence + 1, sequence.wrapping_sub(2)] {
        let arguments = create_session(id, wrong);
        create(&server, &from, &arguments).fails(Op4::CreateSession, NfsStat4::SeqMisordered);
    }
    let other = create_session(id, sequence);
    create(&server, &user(5), &other).fails(Op4::CreateSession, NfsStat4::ClIdInUse);
    let flags = CreateSession4Args { flags: 8, ..create_session(id, sequence) };
    create(&server, &from, &flags).fails(Op4::CreateSession, NfsStat4::Inval);
    let fore = ChannelAttributes4 { maxresponsesize: 10, ..channel() };
    let small = CreateSession4Args { fore, ..create_session(id, sequence) };
    create(&server, &from, &small).fails(Op4::CreateSession, NfsStat4::TooSmall);
    // Callbacks would not fit, where requests of a few bytes still do.
    let few = ChannelAttributes4 { maxrequestsize: 300, maxresponsesize: 300, ..channel() };
    let back = CreateSession4Args { back: few.clone(), ..create_session(id, sequence) };
    create(&server, &from, &back).fails(Op4::CreateSession, NfsStat4::TooSmall);
    let (of_few, sequence_of_few) = exchange(&server, b"few", &from);
    let fore = CreateSession4Args { fore: few, ..create_session(of_few, sequence_of_few) };
    create(&server, &from, &fore).succeeds();
    let made = create(&server, &from, &create_session(id, sequence)).succeeds();
    let again = create(&server, &from, &create_session(id, sequence)).succeeds();
    assert_eq!(made, again);
    let more = create(&server, &from, &create_session(id, sequence + 1)).succeeds();
    assert_ne!(made.body, more.body);
    let old = create_session(id, sequence);
    create(&server, &from, &old).fails(Op4::CreateSession, NfsStat4::SeqMisordered);
}

#[test]
fn clients_go_when_they_have_nothing() {
    let server = Server::new();
    let client = Client::new(&server, b"c", sender(1));
    let other = Client::new(&server, b"d", sender(2));
    let destroy = destroy_client(client.id);
    client.run(&destroy).fails(Op4::DestroyClientId, NfsStat4::ClientIdBusy);
    other.run(&destroy).fails(Op4::DestroyClientId, NfsStat4::ClientIdBusy);
    let end = DestroySession4Args { sessionid: client.session };
    let ops = Ops::new().op(Op4::DestroySession, &end);
    other.run(&ops).fails(Op4::DestroySession, NfsStat4::ConnNotBoundToSession);
    client.run(&Ops::at(&[])).succeeds();
    server.run(&client.from, &ops).succeeds();
    server.run(&client.from, &destroy).succeeds();
    server.run(&client.from, &destroy).fails(Op4::DestroyClientId, NfsStat4::StaleClientId);
    other.run(&Ops::at(&[])).succeeds();
}

fn destroy_session(sessionid: [u8; 16]) -> Ops {
    Ops::new().op(Op4::DestroySession, &DestroySession4Args { sessionid })
}

#[test]
fn a_client_destroys_another_session_of_its_own_from_within_one() {
    let server = Server::new();
    let client = Client::new(&server, b"c", sender(1));
    let (id, sequence) = exchange(&server, b"c", &client.from);
    assert_eq!(id, client.id);
    let mut made = create(&server, &client.from, &create_session(id, sequence)).succeeds();
    made.ok(Op4::CreateSession);
    let second = made.take(|r| r.array().unwrap());
    // It need not be the last operation, and what follows it is executed.
    let ops = destroy_session(second).bare(Op4::PutRootFh).bare(Op4::GetFh);
    let message = client.next(true, &ops);
    let said = Reply::read(&server.send(&client.from, &message).unwrap()).succeeds();
    assert_eq!(said.count, 4);
    let again = Reply::read(&server.send(&client.from, &message).unwrap());
    assert_eq!(again, said, "a retransmission gets the same");
    client.run(&destroy_session(second)).fails(Op4::DestroySession, NfsStat4::BadSession);
    // Its own must be.
    let own = destroy_session(client.session);
    let behind = own.clone().bare(Op4::PutRootFh);
    client.run(&behind).fails(Op4::DestroySession, NfsStat4::NotOnlyOp);
    client.run(&own).succeeds();
    let message = client.next(false, &Ops::new().bare(Op4::PutRootFh));
    let gone = Reply::read(&server.send(&client.from, &message).unwrap());
    gone.fails(Op4::Sequence, NfsStat4::BadSession);
}

#[test]
fn connections_are_bound_to_sessions_that_are() {
    let server = Server::new();
    let client = Client::new(&server, b"c", sender(1));
    let bind = |sessionid, dir| {
        let arguments = BindConnToSession4Args { sessionid, dir, use_conn_in_rdma_mode: false };
        server.run(&sender(2), &Ops::new().op(Op4::BindConnToSession, &arguments))
    };
    for (dir, bound) in [(1, 1), (2, 2), (3, 3), (7, 3)] {
        let mut reply = bind(client.session, dir).succeeds();
        reply.ok(Op4::BindConnToSession);
        let told = reply.take(|r| (r.array().unwrap(), r.u32().unwrap(), r.bool().unwrap()));
        assert_eq!(told, (client.session, bound, false));
    }
    bind([1; 16], 1).fails(Op4::BindConnToSession, NfsStat4::BadSession);
    for dir in [0, 4, 8] {
        let (op, status) = bind(client.session, dir).failure();
        assert_eq!(op, Op4::BindConnToSession as u32);
        assert!([NfsStat4::BadXdr as u32, NfsStat4::Inval as u32].contains(&status));
    }
}
