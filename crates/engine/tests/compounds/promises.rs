//! What a COMPOUND promises, and what becomes of it if that cannot be kept.

use steadfast_engine::{ReplyBuffer, Verdict};
use steadfast_wire::nfs4::{NfsStat4, Op4};
use steadfast_xdr::Reader;

use crate::bench::{Bench, Client, Free, Result4, done, failed};

#[test]
fn a_reply_waits_for_all_that_it_promises() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "all");
    let dir = client.handle(&["srv", "a"]);
    let before = bench.flushes.flushes();
    let ops = client.next(true).put(&dir).open(b"o", "one").write(b"1");
    let ops = ops.put(&dir).open(b"o", "two").write(b"2");
    assert_eq!(client.send(&ops).ended(), done(7));
    let flushed = bench.flushes.flushes() - before;
    assert!(flushed >= 3, "both files and their directory: {flushed}");
    let nothing = client.next(true).put(&dir).lookup("one").plain(Op4::GetFh);
    let before = bench.flushes.flushes();
    assert_eq!(client.send(&nothing).ended(), done(4));
    assert_eq!(bench.flushes.flushes(), before);
}

#[test]
fn a_reply_to_an_async_caller_waits_for_nothing() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "async");
    let dir = client.handle(&["srv", "a"]);
    crate::asynchronous::set_async(&bench.engine, true);
    let before = bench.flushes.flushes();
    let ops = client.next(true).put(&dir).open(b"o", "one").write(b"1");
    let message = bench.message(&ops.compound());
    let mut reply = ReplyBuffer::default();
    let verdict = bench.engine.call(&mut Free::default(), &client.peer, 0, &message, &mut reply);
    assert!(matches!(verdict, Verdict::Replied), "{verdict:?}");
    let result = Result4::of(&bench.settled(verdict, reply).unwrap());
    assert_eq!(result.ended(), done(4));
    assert_eq!(bench.flushes.flushes(), before);
    assert_eq!(client.send(&ops), result, "a retransmission gets the same");
    crate::asynchronous::set_async(&bench.engine, false);
    let ops = client.next(true).put(&dir).open(b"o", "two").write(b"2");
    assert_eq!(client.send(&ops).ended(), done(4));
    assert!(bench.flushes.flushes() > before);
}

#[test]
fn a_broken_promise_cuts_the_reply_at_the_operation_that_made_it() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "broken");
    let dir = client.handle(&["srv", "a"]);
    let ops = client.next(false).put(&dir).open(b"o", "file");
    assert_eq!(client.send(&ops).ended(), done(3));
    let ops = client.next(false).put(&dir).plain(Op4::GetFh).lookup("file");
    let ops = ops.op(Op4::SetAttr, |w| {
        w.zeros(16);
        let (words, mode) = (2, 1 << (33 - 32));
        for word in [words, 0, mode] {
            w.u32(word);
        }
        w.opaque(&0o640_u32.to_be_bytes());
    });
    let ops = ops.plain(Op4::GetFh);
    let message = bench.message(&ops.compound());
    bench.flushes.set_failing(true);
    let mut reply = ReplyBuffer::default();
    let verdict = bench.engine.call(&mut Free::default(), &client.peer, 0, &message, &mut reply);
    assert!(matches!(verdict, Verdict::Parked(_)), "{verdict:?}");
    let result = Result4::of(&bench.settled(verdict, reply).unwrap());
    bench.flushes.set_failing(false);
    assert_eq!(result.ended(), failed(NfsStat4::Io, 5));
    let at = result.bytes.len() - 12;
    let mut r = Reader::new(&result.bytes[at..]);
    let told = (r.u32(), r.u32(), r.u32());
    assert_eq!(told, (Ok(Op4::SetAttr as u32), Ok(NfsStat4::Io as u32), Ok(0)), "nothing was set");
    assert_eq!(client.send(&ops), result, "a retransmission gets the same");
}
