//! Where operations may stand, and what is no COMPOUND.

use proptest::prelude::*;
use steadfast_engine::{ReplyBuffer, Verdict};
use steadfast_wire::nfs4::{NfsStat4, Op4};

use crate::bench::{Bench, Client, Free, HEADER_BYTES, Ops, Result4, done, failed, peer};

fn send(bench: &Bench, compound: &[u8]) -> Result4 {
    Result4::of(&bench.send(&peer(1), &bench.message(compound)))
}

#[test]
fn other_minor_versions_are_refused() {
    let bench = Bench::new();
    let ops = Ops::default().plain(Op4::PutRootFh);
    for minor in [3, 4, u32::MAX] {
        let result = send(&bench, &ops.compound_of(minor, b"a tag"));
        assert_eq!(result.ended(), failed(NfsStat4::MinorVersMismatch, 0));
        assert_eq!((result.tag, result.bytes), (b"a tag".to_vec(), Vec::new()));
    }
    assert_eq!(send(&bench, &Ops::default().compound()).ended(), done(0));
    let megabyte = vec![b'x'; 1 << 20];
    let result = send(&bench, &ops.compound_of(1, &megabyte));
    assert_eq!((result.ended(), result.tag.len()), (failed(NfsStat4::Inval, 0), 0));
}

#[test]
fn operations_stand_where_they_may() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "positions");
    let alone = |op| send(&bench, &Ops::default().plain(op).compound());
    for op in [Op4::PutRootFh, Op4::GetAttr, Op4::ReclaimComplete, Op4::TestStateId, Op4::Lock] {
        let result = alone(op);
        assert_eq!(result.ended(), failed(NfsStat4::OpNotInSession, 1), "{op:?}");
    }
    let exchange_first = Ops::default().plain(Op4::ExchangeId).plain(Op4::PutRootFh);
    assert_eq!(send(&bench, &exchange_first.compound()).ended(), failed(NfsStat4::NotOnlyOp, 1));
    let twice = client.next(false);
    let twice = twice.op(Op4::Sequence, |w| w.zeros(32));
    assert_eq!(client.send(&twice).ended(), failed(NfsStat4::SequencePos, 2));
    let bind = client.next(false).op(Op4::BindConnToSession, |w| w.zeros(24));
    assert_eq!(client.send(&bind).ended(), failed(NfsStat4::NotOnlyOp, 2));
    let lost = Ops::default().op(Op4::Sequence, |w| w.zeros(32));
    assert_eq!(send(&bench, &lost.compound()).ended(), failed(NfsStat4::BadSession, 1));
}

#[test]
fn what_is_no_operation_is_illegal() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "illegal");
    for number in [0_u32, 1, 2, 59, 10_044, 1 << 31] {
        let ops = client.next(false);
        let mut compound = ops.clone().plain(Op4::PutRootFh).compound();
        let at = compound.len() - 4;
        compound[at..].copy_from_slice(&number.to_be_bytes());
        let result = send(&bench, &compound);
        assert_eq!(result.ended(), failed(NfsStat4::OpIllegal, 2));
        assert_eq!(result.last(), (10_044, NfsStat4::OpIllegal as u32));
    }
    let mut more = client.next(false).compound();
    let count = more.len() - 36 - 4;
    more[count..count + 4].copy_from_slice(&2_u32.to_be_bytes());
    assert_eq!(send(&bench, &more).ended(), failed(NfsStat4::BadXdr, 2), "fewer than it says");
}

/// COMPOUNDs of all kinds of operations.
fn everything(client: &mut Client<'_>) -> Ops {
    let ops = client.next(true).plain(Op4::PutRootFh).lookup("srv").lookup("a");
    let ops = ops.open(b"owner", "file").write(b"data").plain(Op4::SaveFh);
    let ops = ops.op(Op4::GetAttr, |w| {
        w.u32(2);
        w.u32(u32::MAX);
        let all_that_can_be_read = 0x003e_ffff;
        w.u32(all_that_can_be_read);
    });
    let ops = ops.op(Op4::Read, |w| {
        w.u32(1);
        w.zeros(12);
        w.u64(0);
        w.u32(4096);
    });
    ops.plain(Op4::PutRootFh).op(Op4::ReadDir, |w| {
        w.u64(0);
        w.u64(0);
        for word in [4096, 4096, 1, 0x0010_0012] {
            w.u32(word);
        }
    })
}

#[test]
fn arguments_that_end_too_early_are_refused() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "cut");
    let whole = everything(&mut client).compound();
    assert_eq!(send(&bench, &whole).status, NfsStat4::Ok as u32);
    for cut in (8..whole.len()).step_by(4) {
        client.sequence += 1;
        let mut compound = everything(&mut client).compound();
        compound.truncate(cut);
        let mut reply = ReplyBuffer::default();
        let message = bench.message(&compound);
        let verdict =
            bench.engine.call(&mut Free::default(), &client.peer, 0, &message, &mut reply);
        assert!(matches!(verdict, Verdict::Replied | Verdict::Parked(_)), "{cut}");
        drop(verdict);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever comes behind the head of a COMPOUND, nobody panics, and the result is one.
    #[test]
    fn no_bytes_make_it_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        tail in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let bench = Bench::new();
        let mut client = Client::new(&bench, "mutated");
        let mut compound = everything(&mut client).compound();
        for (at, byte) in changes {
            let at = at.index(compound.len());
            compound[at] = byte;
        }
        compound.extend(tail);
        let message = bench.message(&compound);
        let mut reply = ReplyBuffer::default();
        let verdict =
            bench.engine.call(&mut Free::default(), &client.peer, 0, &message, &mut reply);
        if let Some(result) = bench.settled(verdict, reply)
            && result.len() > HEADER_BYTES
        {
            let result = Result4::of(&result);
            prop_assert!(result.count <= 64 || result.status != 0);
        }
    }
}
