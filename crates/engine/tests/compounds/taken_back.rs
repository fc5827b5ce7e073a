//! A process that is killed while an OPEN has been granted and its file is to be cut: the next one finishes it
//! when it comes again, or takes it back. Nobody is kept out by an OPEN that was never answered.

use std::cell::RefCell;

use steadfast_engine::{CallHost, ReplyBuffer, StateImage, SuspendedCall, Verdict};
use steadfast_wire::nfs4::{NfsStat4, Op4};
use steadfast_xdr::Reader;

use crate::bench::{Bench, Client, Ops, Result4, done, failed, peer};
use crate::killed::{seqid, while_it_hangs};

/// OPEN of `file` for both, which denies both to all and cuts the file. Client and sequence id are of minor
/// version 0.
fn open_alone(ops: Ops, (client, seqid): (u64, u32)) -> Ops {
    ops.op(Op4::Open, |w| {
        for word in [seqid, 3, 3] {
            w.u32(word);
        }
        w.u64(client);
        w.opaque(b"o");
        let (creates, unchecked, words, size) = (1, 0, 1, 1 << 4);
        for word in [creates, unchecked, words, size] {
            w.u32(word);
        }
        w.opaque(&[0; 8]);
        w.u32(0);
        w.opaque(b"file");
    })
}

/// CLOSE by the current stateid, or by this one.
fn close(ops: Ops, stateid: Option<&[u8]>, seqid: u32) -> Ops {
    ops.op(Op4::Close, |w| {
        w.u32(seqid);
        if let Some(stateid) = stateid {
            w.fixed_opaque(stateid);
        } else {
            w.u32(1);
            w.zeros(12);
        }
    })
}

/// A client and the directory, in which nobody has the file open.
fn with_file<'b>(bench: &'b Bench, who: &str) -> (Client<'b>, Vec<u8>) {
    let mut client = Client::new(bench, who);
    let dir = client.handle(&["srv", "a"]);
    let ops = client.next(false).put(&dir).open(b"x", "file").write(b"data");
    assert_eq!(client.send(&close(ops, None, 0)).ended(), done(5));
    (client, dir)
}

/// Whoever waits, somebody else's request writes all events before: what the next process would have then.
struct KilledWhenever<'b> {
    bench: &'b Bench,
    other: RefCell<Client<'b>>,
    dir: Vec<u8>,
    images: Vec<StateImage>,
    suspended: Option<SuspendedCall>,
}

impl<'b> KilledWhenever<'b> {
    fn new(bench: &'b Bench) -> Self {
        let mut other = Client::new(bench, "other");
        let dir = other.handle(&["srv", "a"]);
        Self { bench, other: RefCell::new(other), dir, images: Vec::new(), suspended: None }
    }
}

impl CallHost for KilledWhenever<'_> {
    fn may_block(&mut self) {
        let mut other = self.other.borrow_mut();
        let ops = other.next(true).put(&self.dir).open(b"s", "of somebody else");
        assert_eq!(other.send(&close(ops, None, 0)).ended(), done(4));
        self.images.push(self.bench.image());
    }

    fn will_block(&mut self) {}

    fn take_suspended(&mut self) -> Option<SuspendedCall> {
        self.suspended.take()
    }
}

/// Executes a message up to its promises; what the next process has after a kill at any time before.
fn killed_whenever(bench: &Bench, message: &[u8]) -> Vec<StateImage> {
    let (mut host, mut reply) = (KilledWhenever::new(bench), ReplyBuffer::default());
    let verdict = bench.engine.call(&mut host, &peer(1), 0, message, &mut reply);
    assert!(matches!(verdict, Verdict::Parked(_)), "{verdict:?}");
    assert!(host.images.len() > 1, "it asks before the file is cut");
    host.images
}

fn send(bench: &Bench, message: &[u8]) -> Result4 {
    Result4::of(&bench.send(&peer(101), message))
}

#[test]
fn what_the_process_before_has_opened_is_finished_or_taken_back() {
    let bench = Bench::new();
    let (mut client, dir) = with_file(&bench, "cut");
    let ops = open_alone(client.next(false).put(&dir), (0, 0));
    let message = bench.message(&ops.compound());
    for image in killed_whenever(&bench, &message) {
        let next = || {
            let bench = bench.restarted_with(image.clone());
            (
                bench.message(
                    &open_alone(client.sequence_of(1, 1, false).put(&dir), (0, 0)).compound(),
                ),
                bench,
            )
        };
        let (another, bench) = next();
        let said = send(&bench, &message);
        assert_eq!((said.ended(), seqid(&said, Op4::Open)), (done(3), 1));
        assert_eq!(send(&bench, &another).ended(), failed(NfsStat4::ShareDenied, 3));

        // It cannot be finished.
        let (another, bench) = next();
        bench.flushes.set_failing(true);
        let said = send(&bench, &message);
        bench.flushes.set_failing(false);
        assert_eq!(said.ended(), failed(NfsStat4::Io, 3));
        // Killed again before another request comes.
        let bench = bench.restarted();
        assert_eq!(send(&bench, &message), said);
        assert_eq!(send(&bench, &another).ended(), done(3));

        // Its storage hangs, and its client is told to try later.
        let (another, bench) = next();
        match while_it_hangs(&bench, 7, &message, None) {
            Ok(suspended) => bench.engine.refuse(suspended, &mut Vec::new()),
            Err(said) => assert_eq!(said.ended(), failed(NfsStat4::Delay, 3)),
        }
        assert_eq!(send(&bench, &another).ended(), done(3));
    }
}

/// Client id of minor version 0.
fn set_client(bench: &Bench) -> u64 {
    let said = |ops: &Ops| send(bench, &bench.message(&ops.compound_of(0, b"tag")));
    let set = said(&Ops::default().op(Op4::SetClientId, |w| {
        w.fixed_opaque(&[7; 8]);
        w.opaque(b"name");
        w.u32(1);
        w.opaque(b"tcp");
        w.opaque(b"127.0.0.1.8.1");
        w.u32(1);
    }));
    let mut r = Reader::new(&set.bytes[8..]);
    let (client, confirm): (u64, [u8; 8]) = (r.u64().unwrap(), r.array().unwrap());
    let confirmed = said(&Ops::default().op(Op4::SetClientIdConfirm, |w| {
        w.u64(client);
        w.fixed_opaque(&confirm);
    }));
    assert_eq!(confirmed.ended(), done(1));
    client
}

/// The stateid that an operation tells.
fn stateid(result: &Result4, op: Op4) -> Vec<u8> {
    let head = [op as u32, 0].map(u32::to_be_bytes).concat();
    let at = result.bytes.windows(8).position(|it| it == head).unwrap();
    result.bytes[at + 8..at + 24].to_vec()
}

/// Minor version 0: the OPEN is kept before the reply of its owner is.
#[test]
fn an_owner_whose_open_was_granted_before_a_kill_is_not_in_its_own_way() {
    for is_confirmed in [false, true] {
        let bench = Bench::new();
        let (mut by_session, dir) = with_file(&bench, "maker");
        let file = by_session.handle(&["srv", "a", "file"]);
        let client = set_client(&bench);
        let in_0 =
            |bench: &Bench, ops: &Ops| send(bench, &bench.message(&ops.compound_of(0, b"tag")));
        let confirm = |bench: &Bench, said: &Result4, seqid| {
            let id = stateid(said, Op4::Open);
            let confirm = Ops::default().put(&file).op(Op4::OpenConfirm, |w| {
                w.fixed_opaque(&id);
                w.u32(seqid);
            });
            let said = in_0(bench, &confirm);
            assert_eq!(said.ended(), done(2));
            stateid(&said, Op4::OpenConfirm)
        };
        let mut next = 1;
        if is_confirmed {
            let said = in_0(&bench, &open_alone(Ops::default().put(&dir), (client, 1)));
            let id = confirm(&bench, &said, 2);
            let said = in_0(&bench, &close(Ops::default().put(&file), Some(&id), 3));
            assert_eq!(said.ended(), done(2));
            next = 4;
        }
        let open = |seqid| open_alone(Ops::default().put(&dir), (client, seqid));
        let message = bench.message(&open(next).compound_of(0, b"tag"));
        for image in killed_whenever(&bench, &message) {
            if is_confirmed {
                // It fails when it comes again, or has to wait too long: its owner may ask once more.
                let failing = bench.restarted_with(image.clone());
                failing.flushes.set_failing(true);
                assert_eq!(send(&failing, &message).ended(), failed(NfsStat4::Io, 2));
                failing.flushes.set_failing(false);
                assert_eq!(in_0(&failing, &open(next + 1)).ended(), done(2));
                let hangs = bench.restarted_with(image.clone());
                match while_it_hangs(&hangs, 7, &message, None) {
                    Ok(suspended) => hangs.engine.refuse(suspended, &mut Vec::new()),
                    Err(said) => assert_eq!(said.ended(), failed(NfsStat4::Delay, 2)),
                }
                assert_eq!(in_0(&hangs, &open(next + 1)).ended(), done(2));
            }
            let bench = bench.restarted_with(image);
            let said = send(&bench, &message);
            assert_eq!(said.ended(), done(2));
            // In another message it is the same request of the owner.
            assert_eq!(in_0(&bench, &open(next)).bytes, said.bytes);
            if !is_confirmed {
                confirm(&bench, &said, next + 1);
            }
            let seqid = next + if is_confirmed { 1 } else { 2 };
            // Another one is in its way, as ever.
            assert_eq!(in_0(&bench, &open(seqid)).ended(), failed(NfsStat4::ShareDenied, 2));
        }
    }
}
