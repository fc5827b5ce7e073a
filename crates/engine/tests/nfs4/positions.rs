//! Where operations may stand, heads of COMPOUNDs, sizes, and arguments that end early.

use steadfast_wire::nfs4::{
    Access4Args, Attribute4, BackchannelCtl4Args, BindConnToSession4Args, Bitmap4, CallbackSec4,
    ChannelAttributes4, Close4Args, CreateSession4Args, DestroyClientId4Args, DestroySession4Args,
    Fattr4, FreeStateId4Args, GetAttr4Args, Lookup4Args, NfsStat4, Op4, Open4Args, OpenClaim4,
    OpenDowngrade4Args, OpenHow4, PutFh4Args, Read4Args, ReadDir4Args, ReclaimComplete4Args,
    SecInfo4Args, SecInfoNoName4Args, StateId4, TestStateId4Args, Verify4Args,
};
use steadfast_wire::rpc::AuthSys;

use crate::compounds::{Ops, Reply, words, xdr};
use crate::harness::{Client, Server, channel, create_session, exchange_id, sender};

const NO_STATE: StateId4 = StateId4 { seqid: 0, other: [0; 12] };

fn of(op: Op4, arguments: &impl steadfast_xdr::Encode) -> (Op4, Vec<u8>) {
    (op, xdr(|w| arguments.encode(w)))
}

/// Every operation that has arguments, with some.
pub(crate) fn with_arguments() -> Vec<(Op4, Vec<u8>)> {
    let attr_request = Bitmap4::of(&[Attribute4::Size, Attribute4::Mode]);
    let obj_attributes = Fattr4 { attrmask: attr_request, attr_vals: &[0; 12] };
    let verify = Verify4Args { obj_attributes };
    let open = Open4Args {
        seqid: 0,
        share_access: 1,
        share_deny: 0,
        clientid: 0,
        owner: b"owner",
        openhow: OpenHow4::NoCreate,
        claim: OpenClaim4::Null(b"name"),
    };
    let sec_parms = vec![CallbackSec4::None, CallbackSec4::Sys(AuthSys::new(b"m", 1, 1, &[1, 2]))];
    let session = CreateSession4Args { sec_parms: sec_parms.clone(), ..create_session(1, 1) };
    let list =
        ReadDir4Args { cookie: 0, cookieverf: [0; 8], dircount: 100, maxcount: 1000, attr_request };
    let downgrade =
        OpenDowngrade4Args { open_stateid: NO_STATE, seqid: 0, share_access: 1, share_deny: 0 };
    let bind = BindConnToSession4Args { sessionid: [0; 16], dir: 1, use_conn_in_rdma_mode: false };
    vec![
        of(Op4::Access, &Access4Args { access: 1 }),
        of(Op4::Close, &Close4Args { seqid: 0, open_stateid: NO_STATE }),
        of(Op4::GetAttr, &GetAttr4Args { attr_request }),
        of(Op4::Lookup, &Lookup4Args { objname: b"name" }),
        of(Op4::Verify, &verify),
        of(Op4::NVerify, &verify),
        of(Op4::Open, &open),
        of(Op4::OpenDowngrade, &downgrade),
        of(Op4::PutFh, &PutFh4Args { object: &[1; 28] }),
        of(Op4::Read, &Read4Args { stateid: NO_STATE, offset: 0, count: 1 }),
        of(Op4::ReadDir, &list),
        of(Op4::SecInfo, &SecInfo4Args { name: b"name" }),
        of(Op4::SecInfoNoName, &SecInfoNoName4Args { style: 0 }),
        of(Op4::BackchannelCtl, &BackchannelCtl4Args { cb_program: 1, sec_parms }),
        of(Op4::BindConnToSession, &bind),
        of(Op4::ExchangeId, &exchange_id(b"another")),
        of(Op4::CreateSession, &session),
        of(Op4::DestroySession, &DestroySession4Args { sessionid: [0; 16] }),
        of(Op4::DestroyClientId, &DestroyClientId4Args { clientid: 0 }),
        of(Op4::ReclaimComplete, &ReclaimComplete4Args { one_fs: false }),
        of(Op4::FreeStateId, &FreeStateId4Args { stateid: NO_STATE }),
        of(Op4::TestStateId, &TestStateId4Args { stateids: vec![NO_STATE; 2] }),
    ]
}

const ALONE: [Op4; 5] = [
    Op4::ExchangeId,
    Op4::CreateSession,
    Op4::DestroySession,
    Op4::DestroyClientId,
    Op4::BindConnToSession,
];

#[test]
fn without_sequence_only_what_makes_sessions_is_served_and_only_alone() {
    let server = Server::new();
    for op in [Op4::PutRootFh, Op4::GetFh, Op4::LookupP, Op4::SaveFh, Op4::Remove, Op4::Lock] {
        server.run(&sender(1), &Ops::new().bare(op)).fails(op, NfsStat4::OpNotInSession);
    }
    for (op, arguments) in with_arguments() {
        let ops = Ops::new().raw(op as u32, &arguments);
        if !ALONE.contains(&op) {
            server.run(&sender(1), &ops).fails(op, NfsStat4::OpNotInSession);
            continue;
        }
        let reply = server.run(&sender(1), &ops.bare(Op4::PutRootFh));
        reply.fails(op, NfsStat4::NotOnlyOp);
        assert_eq!(reply.count, 1);
    }
}

#[test]
fn sequence_stands_first_and_binding_a_connection_never_behind_it() {
    let server = Server::new();
    let client = Client::new(&server, b"c", sender(1));
    let again = client.sequence(1, 1, false);
    let reply = client.run(&Ops::new().bare(Op4::PutRootFh).op(Op4::Sequence, &again));
    reply.fails(Op4::Sequence, NfsStat4::SequencePos);
    assert_eq!(reply.count, 3);
    let bind =
        BindConnToSession4Args { sessionid: client.session, dir: 3, use_conn_in_rdma_mode: false };
    let ops = Ops::new().op(Op4::BindConnToSession, &bind);
    client.run(&ops).fails(Op4::BindConnToSession, NfsStat4::NotOnlyOp);
    server.run(&client.from, &ops).succeeds();
}

#[test]
fn other_minor_versions_get_no_results_whatever_they_ask() {
    let server = Server::new();
    let from = sender(1);
    for minor in [3, 4, u32::MAX] {
        for ops in [Ops::new(), Ops::new().bare(Op4::PutRootFh), Ops::new().raw(77, &[])] {
            let message = server.compound(&from, b"tag", minor, &ops);
            let reply = Reply::read(&server.send(&from, &message).unwrap());
            let expected = (NfsStat4::MinorVersMismatch as u32, 0, &b"tag"[..]);
            assert_eq!((reply.status, reply.count, &reply.tag[..]), expected);
            assert!(reply.body.is_empty());
        }
    }
}

#[test]
fn an_empty_compound_succeeds_and_tags_come_back() {
    let server = Server::new();
    let from = sender(1);
    for tag in [&b""[..], "ταγ".as_bytes(), &[b't'; 1023], &[b't'; 1024], b"\xff\xfe"] {
        let message = server.compound(&from, tag, 1, &Ops::new());
        let reply = Reply::read(&server.send(&from, &message).unwrap()).succeeds();
        assert_eq!((reply.count, &reply.tag[..]), (0, tag));
    }
    let message = server.compound(&from, &vec![b't'; 1 << 20], 1, &Ops::new());
    let reply = Reply::read(&server.send(&from, &message).unwrap());
    assert_eq!((reply.status, reply.count), (NfsStat4::Inval as u32, 0));
    // No tag at all: RPC cannot decode it.
    let message = server.message(&from, 4, 1, &words(&[100, 0]));
    let reply = server.send(&from, &message).unwrap();
    assert_eq!(reply[20..24], [0, 0, 0, 4], "GARBAGE_ARGS");
}

#[test]
fn what_is_no_operation_is_told_so_by_the_number_of_none() {
    let server = Server::new();
    let client = Client::new(&server, b"c", sender(1));
    for number in [0, 1, 2, 59, 60, 71, 72, 75, 76, 10_044, 1 << 31, u32::MAX] {
        let ops = Ops::new().bare(Op4::PutRootFh).raw(number, &[]).bare(Op4::GetFh);
        let reply = client.run(&ops);
        reply.fails(Op4::Illegal, NfsStat4::OpIllegal);
        assert_eq!(reply.count, 3);
        let alone = Ops::new().raw(number, &[]);
        server.run(&sender(1), &alone).fails(Op4::Illegal, NfsStat4::OpIllegal);
    }
}

#[test]
fn a_minor_version_has_no_operations_of_later_ones() {
    let server = Server::new();
    let mut client = Client::new(&server, b"c", sender(1));
    for number in 59..=75 {
        client.minor = 1;
        client.run(&Ops::new().raw(number, &[])).fails(Op4::Illegal, NfsStat4::OpIllegal);
        client.minor = 2;
        let reply = client.run(&Ops::new().raw(number, &[]));
        assert_ne!(reply.status, NfsStat4::OpIllegal as u32, "{number}");
        assert_eq!(reply.count, 2);
    }
    // What sessions replaced is known, and not served.
    for op in [Op4::OpenConfirm, Op4::Renew, Op4::SetClientId, Op4::ReleaseLockOwner] {
        client.run(&Ops::new().bare(op)).fails(op, NfsStat4::NotSupp);
    }
}

#[test]
fn arguments_that_end_early_are_told_by_their_operations_number() {
    let server = Server::new();
    let client = Client::new(&server, b"c", sender(1));
    for (op, arguments) in with_arguments() {
        for length in (0..arguments.len()).step_by(4) {
            let ops = Ops::new().raw(op as u32, &arguments[..length]);
            if ALONE.contains(&op) {
                server.run(&sender(1), &ops).fails(op, NfsStat4::BadXdr);
            }
            if op != Op4::BindConnToSession {
                let root = Ops::at(&[b"a"]).then(&ops);
                client.run(&root).fails(op, NfsStat4::BadXdr);
            }
        }
        for length in (0..arguments.len()).filter(|length| length % 4 != 0) {
            let ops = Ops::at(&[b"a"]).raw(op as u32, &arguments[..length]);
            assert_ne!(client.run(&ops).status, 0);
        }
    }
    let message = xdr(|w| steadfast_xdr::Encode::encode(&client.sequence(0, 99, false), w));
    for length in 0..message.len() {
        let ops = Ops::new().raw(Op4::Sequence as u32, &message[..length]);
        server.run(&client.from, &ops).fails(Op4::Sequence, NfsStat4::BadXdr);
    }
}

#[test]
fn bitmaps_of_any_length_are_read() {
    let server = Server::new();
    let client = Client::new(&server, b"c", sender(1));
    let mut bitmap = words(&[1000]);
    bitmap.extend([0xff; 4000]);
    // All attributes, also those that can only be set.
    let ops = Ops::at(&[b"a"]).raw(Op4::GetAttr as u32, &bitmap);
    client.run(&ops).fails(Op4::GetAttr, NfsStat4::Inval);
    bitmap[4..4000].fill(0);
    client.run(&Ops::at(&[b"a"]).raw(Op4::GetAttr as u32, &bitmap)).succeeds();
    bitmap.truncate(4000);
    let ops = Ops::at(&[b"a"]).raw(Op4::GetAttr as u32, &bitmap);
    client.run(&ops).fails(Op4::GetAttr, NfsStat4::BadXdr);
}

fn small() -> ChannelAttributes4 {
    ChannelAttributes4 {
        maxrequestsize: 1024,
        maxresponsesize: 512,
        maxresponsesize_cached: 200,
        maxoperations: 4,
        ..channel()
    }
}

#[test]
fn what_is_too_large_is_refused_and_only_what_lies_before_it_is_executed() {
    let server = Server::new();
    let client = Client::with(&server, b"c", sender(1), small());
    let four = Ops::new().bare(Op4::PutRootFh).bare(Op4::GetFh).bare(Op4::GetFh);
    client.run(&four).succeeds();
    client.run(&four.clone().bare(Op4::GetFh)).fails(Op4::Sequence, NfsStat4::TooManyOps);
    client.sequence.set(client.sequence.get() - 1);
    let large = Ops::new().bare(Op4::PutRootFh).look_up(&[b'n'; 1000]);
    client.run(&large).fails(Op4::Sequence, NfsStat4::ReqTooBig);
    client.sequence.set(client.sequence.get() - 1);
    client.run(&four).succeeds();

    let attr_request = Bitmap4::from_words([!(0b111 << 11), 0x00b8_be3b, 0]);
    let attributes = GetAttr4Args { attr_request };
    let ops = Ops::at(&[b"a"]).op(Op4::GetAttr, &attributes);
    let kept = client.next(true, &ops);
    let reply = Reply::read(&server.send(&client.from, &kept).unwrap());
    reply.fails(Op4::GetAttr, NfsStat4::RepTooBigToCache);
    let reply = Reply::read(&server.send(&client.from, &kept).unwrap());
    reply.fails(Op4::GetAttr, NfsStat4::RepTooBigToCache);
    client.run(&ops).succeeds();
    let twice = Ops::at(&[]).op(Op4::GetAttr, &attributes).op(Op4::GetAttr, &attributes);
    client.run(&twice).fails(Op4::GetAttr, NfsStat4::RepTooBig);
}

#[test]
fn a_sequence_whose_reply_would_be_too_large_changes_nothing_of_its_slot() {
    let server = Server::new();
    let client = Client::with(&server, b"c", sender(1), small());
    for (tag_bytes, is_kept, status) in
        [(600, false, NfsStat4::RepTooBig), (200, true, NfsStat4::RepTooBigToCache)]
    {
        let ops = Ops::new().op(Op4::Sequence, &client.sequence(3, 1, is_kept));
        let message = server.compound(&client.from, &vec![b't'; tag_bytes], 1, &ops);
        for _ in 0..2 {
            let reply = Reply::read(&server.send(&client.from, &message).unwrap());
            reply.fails(Op4::Sequence, status);
        }
    }
    let ops = Ops::new().op(Op4::Sequence, &client.sequence(3, 1, false));
    server.run(&client.from, &ops).succeeds();
}
