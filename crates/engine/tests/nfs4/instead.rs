//! OPEN that grants a delegation instead of an open (RFC 9754 §4), and what OPEN takes (§3).

use steadfast_engine::Delegations;
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, Close4Args, GetAttr4Args, NfsStat4, Op4, Open4Args, Open4Result,
    OpenArguments4, OpenClaim4, OpenDelegation4, OpenHow4, Read4Args, StateId4,
};
use steadfast_xdr::{Decode, Reader};

use crate::compounds::Ops;
use crate::delegations::{BOTH, Bench, READ, SECOND, WANT_ANY, open_cut, returns};
use crate::gate::by_stateid;
use crate::harness::{Client, sender};
use crate::reclaim::{Machine, reclaiming};
use crate::taking_back::without_flush;

const INSTEAD: u32 = 0x20_0000;
const TIMES: u32 = 0x10_0000;
const WANT_NONE: u32 = 0x400;
const NO_OPEN_STATEID: u32 = 0x10;
const CURRENT: StateId4 = StateId4 { seqid: 1, other: [0; 12] };
const NONE: StateId4 = StateId4 { seqid: 0, other: [0; 12] };
const DELAY: u32 = NfsStat4::Delay as u32;
const DENIED: u32 = NfsStat4::ShareDenied as u32;

fn client<'b>(bench: &'b Bench, owner: &[u8], connection: u64) -> Client<'b> {
    Client { minor: 2, ..bench.client(owner, connection) }
}

fn arguments(access: u32, deny: u32, claim: OpenClaim4<'_>) -> Open4Args<'_> {
    Open4Args {
        seqid: 0,
        share_access: access,
        share_deny: deny,
        clientid: 0,
        owner: b"o",
        openhow: OpenHow4::NoCreate,
        claim,
    }
}

/// What OPEN by the handle tells: its stateid, whether there is none, and the delegation's; or the status.
fn open(
    client: &Client<'_>,
    file: &[u8],
    access: u32,
    deny: u32,
    claim: OpenClaim4<'_>,
) -> Result<(StateId4, bool, Option<StateId4>), u32> {
    let ops = Ops::put(file).op(Op4::Open, &arguments(access, deny, claim));
    let mut reply = client.run(&ops);
    if reply.status != 0 {
        return Err(reply.failure().1);
    }
    reply.ok(Op4::PutFh);
    reply.ok(Op4::Open);
    Ok(reply.take(|r| {
        let result = Open4Result::decode(r).unwrap();
        let delegation = match result.delegation {
            OpenDelegation4::Read { stateid, .. } | OpenDelegation4::Write { stateid, .. } => {
                Some(stateid)
            }
            _ => None,
        };
        (result.stateid, result.rflags & NO_OPEN_STATEID != 0, delegation)
    }))
}

#[test]
fn a_delegation_instead_of_an_open_is_all_that_there_is() {
    for (access, denied) in [(READ, 1), (BOTH, 2)] {
        let bench = Bench::new();
        let (one, two) = (client(&bench, b"one", 1), client(&bench, b"two", 2));
        let wish = access | WANT_ANY | INSTEAD | TIMES;
        let (stateid, is_none, delegation) =
            open(&one, &bench.file, wish, 0, OpenClaim4::Fh).unwrap();
        assert_eq!((stateid, is_none), (NONE, true));
        let delegation = delegation.unwrap();
        let by_it = by_stateid(&one, &bench.file, delegation);
        if access == BOTH {
            assert_eq!(by_it, [0; 3]);
        } else {
            assert_eq!(by_it[0], 0);
        }
        // Who denies what only an open would have has it recalled, and is not denied.
        let denies = |client| open(client, &bench.file, BOTH | WANT_NONE, denied, OpenClaim4::Fh);
        assert_eq!(denies(&two), Err(DELAY));
        assert_eq!(bench.recalled().stateid, delegation);
        // What its programs have open is told then.
        let claim = OpenClaim4::DelegCurFh(delegation);
        let (opened, is_none, more) = open(&one, &bench.file, access | INSTEAD, 0, claim).unwrap();
        assert_eq!((is_none, more), (false, None));
        assert_eq!(returns(&one, &bench.file, delegation), 0);
        assert_eq!(denies(&two), Err(DENIED));
        let close = Close4Args { seqid: 0, open_stateid: opened };
        one.run(&Ops::put(&bench.file).op(Op4::Close, &close)).succeeds();
        assert!(denies(&two).is_ok());
    }
}

/// After a loss of all state.
#[test]
fn an_open_to_write_is_reclaimed_beside_a_delegation_to_read() {
    let mut machine = Machine::new();
    let server = machine.start_with(Delegations::Write);
    let maker = Client::new(&server, b"c", sender(1));
    let file = server.make_file(&maker.handle(&[b"a"]), b"f", 0o666);
    open(&maker, &file, BOTH | WANT_NONE, 0, OpenClaim4::Fh).unwrap();
    let server = machine.start_with(Delegations::Write);
    let one = Client { minor: 2, ..reclaiming(&server, b"c") };
    let wish = BOTH | WANT_ANY | INSTEAD;
    let (stateid, is_none, delegation) =
        open(&one, &file, wish, 0, OpenClaim4::Previous(1)).unwrap();
    assert!(!is_none && delegation.is_some());
    assert_eq!(by_stateid(&one, &file, stateid)[1], 0);
}

#[test]
fn nothing_is_left_of_who_returns_such_a_delegation() {
    let bench = Bench::new();
    let (one, two) = (client(&bench, b"one", 1), client(&bench, b"two", 2));
    let wish = READ | WANT_ANY | INSTEAD;
    let told = open(&one, &bench.file, wish, 0, OpenClaim4::Fh).unwrap();
    assert_eq!(returns(&one, &bench.file, told.2.unwrap()), 0);
    assert!(open(&two, &bench.file, BOTH | WANT_NONE, 3, OpenClaim4::Fh).is_ok());
}

#[test]
fn an_open_is_granted_where_it_is_needed() {
    let bench = Bench::new();
    let one = client(&bench, b"one", 1);
    let ask = |access, deny| open(&one, &bench.file, access, deny, OpenClaim4::Fh).unwrap();
    // There is no delegation.
    let (first, is_none, delegation) = ask(READ | WANT_NONE | INSTEAD, 0);
    assert!(first.seqid == 1 && !is_none && delegation.is_none());
    // Its owner has it open.
    let (second, is_none, delegation) = ask(READ | WANT_ANY | INSTEAD, 0);
    assert_eq!((second.other, second.seqid, is_none), (first.other, 2, false));
    let delegation = delegation.unwrap();
    assert_eq!(returns(&one, &bench.file, delegation), 0);
    let close = Close4Args { seqid: 0, open_stateid: second };
    one.run(&Ops::put(&bench.file).op(Op4::Close, &close)).succeeds();
    // Others are denied something.
    let bench = Bench::new();
    let one = client(&bench, b"one", 1);
    let (stateid, is_none, delegation) =
        open(&one, &bench.file, READ | WANT_ANY | INSTEAD, 2, OpenClaim4::Fh).unwrap();
    assert!(stateid.seqid == 1 && !is_none && delegation.is_some());
}

#[test]
fn what_follows_the_open_uses_the_delegation() {
    let bench = Bench::new();
    let one = client(&bench, b"one", 1);
    let wish = arguments(READ | WANT_ANY | INSTEAD, 0, OpenClaim4::Fh);
    let read = Read4Args { stateid: CURRENT, offset: 0, count: 1 };
    let ops = Ops::put(&bench.file).op(Op4::Open, &wish).op(Op4::Read, &read);
    one.run(&ops).succeeds();
}

#[test]
fn an_open_that_failed_grants_neither() {
    let bench = Bench::new();
    let (one, two) = (client(&bench, b"one", 1), client(&bench, b"two", 2));
    let ops = Ops::put(&bench.root).then(&open_cut(b"new", BOTH | WANT_ANY | INSTEAD));
    let message = one.next(false, &ops);
    without_flush(&bench.server, &one.from, &message).fails(Op4::Open, NfsStat4::Io);
    assert_eq!(bench.server.engine.statistics().delegations.granted_write, 1);
    let file = one.handle(&[b"a", b"new"]);
    assert!(open(&two, &file, BOTH | WANT_NONE, 3, OpenClaim4::Fh).is_ok());
    bench.tick(SECOND);
    assert_eq!(bench.recalls(), []);
}

#[test]
fn minor_version_1_has_no_such_wish() {
    let bench = Bench::new();
    let one = bench.client(b"one", 1);
    let told = open(&one, &bench.file, READ | INSTEAD, 0, OpenClaim4::Fh);
    assert_eq!(told, Err(NfsStat4::Inval as u32));
}

#[test]
fn what_open_takes_is_told() {
    let bench = Bench::new();
    let ask = |client: &Client<'_>| {
        let attr_request = Bitmap4::of(&[Attribute4::OpenArguments]);
        let ops = Ops::put(&bench.file).op(Op4::GetAttr, &GetAttr4Args { attr_request });
        let mut reply = client.run(&ops).succeeds();
        reply.ok(Op4::PutFh);
        reply.ok(Op4::GetAttr);
        reply.take(|r| (Bitmap4::decode(r).unwrap(), r.opaque(1000).unwrap().to_vec()))
    };
    let two = client(&bench, b"two", 2);
    let (_, values) = ask(&two);
    let told = OpenArguments4::decode(&mut Reader::new(&values)).unwrap();
    let expected = OpenArguments4 {
        share_access: 0b1110,
        share_deny: 0b1111,
        share_access_want: 0b11_1000 | 1 << 21,
        open_claim: 0b11_0111,
        create_mode: 0b1111,
    };
    assert_eq!(told, expected);
    assert_eq!(ask(&bench.client(b"one", 1)), (Bitmap4::EMPTY, Vec::new()));
}
