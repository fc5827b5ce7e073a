//! Callers to whom nothing is promised of stability (`async` of exports(5)).

use steadfast_engine::{ReplyBuffer, Verdict};

use super::{Bench, Host, NFS, asynchronous, status, xdr};

#[test]
fn changes_of_an_async_caller_are_acknowledged_at_once() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let file = bench.create(&root, b"f").unwrap();
    let of_name = |name: &[u8]| {
        xdr(|w| {
            w.opaque(&root);
            w.opaque(name);
        })
    };
    let write = |stable: u32| {
        xdr(|w| {
            w.opaque(&file);
            w.u64(0);
            w.u32(1);
            w.u32(stable);
            w.opaque(b"x");
        })
    };
    let attributes = xdr(|w| w.zeros(24));
    let commit = xdr(|w| {
        w.opaque(&file);
        w.u64(0);
        w.u32(0);
    });
    let calls = [
        (9, [of_name(b"d"), attributes].concat()),
        (7, write(0)),
        (7, write(1)),
        (7, write(2)),
        (21, commit),
        (13, of_name(b"d")),
    ];
    asynchronous::set_async(&bench.engine, true);
    let before = bench.flushes.flushes();
    for (procedure, arguments) in &calls {
        let message = bench.message(NFS, 3, *procedure, arguments);
        let mut reply = ReplyBuffer::default();
        let verdict = bench.engine.call(&mut Host, &bench.peer, 0, &message, &mut reply);
        assert!(matches!(verdict, Verdict::Replied), "{procedure}: {verdict:?}");
        assert_eq!(status(&reply.bytes[24..]), 0, "{procedure}");
        if *procedure == 7 {
            // How stable it is is told as it was asked for, with the verifier behind it.
            let told = reply.bytes.len() - 12;
            assert_eq!(reply.bytes[told..told + 4], arguments[arguments.len() - 12..][..4]);
        }
        // The same call again gets the same reply.
        let mut again = ReplyBuffer::default();
        if matches!(procedure, 9 | 13) {
            let _ = bench.engine.call(&mut Host, &bench.peer, 0, &message, &mut again);
            assert_eq!(again.bytes, reply.bytes);
        }
    }
    assert_eq!(bench.flushes.flushes(), before);
    asynchronous::set_async(&bench.engine, false);
    for (procedure, arguments) in calls.iter().filter(|(_, arguments)| *arguments != write(0)) {
        let message = bench.message(NFS, 3, *procedure, arguments);
        let mut reply = ReplyBuffer::default();
        let verdict = bench.engine.call(&mut Host, &bench.peer, 0, &message, &mut reply);
        assert!(matches!(verdict, Verdict::Parked(_)), "{procedure}: {verdict:?}");
    }
}
