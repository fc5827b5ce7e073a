//! The recovery program: what a client that keeps a journal is told of stability.

use std::sync::Arc;

use steadfast_engine::{Awaited, Export, ExportTable, ReplyBuffer, Verdict};
use steadfast_vfs::FsError;
use steadfast_vfs::model::ModelFs;
use steadfast_wire::nfs3::{NfsFh3, NfsStat3};
use steadfast_wire::recovery::{
    COMPRESSION, PROGRAM, StatusArgs, StatusOk, StatusRes, SyncArgs, SyncOk, SyncRes,
};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

use super::{Bench, Host, NFS, asynchronous, status, xdr};

fn read<'a, T: Decode<'a>>(results: &'a [u8]) -> T {
    let mut r = Reader::new(results);
    let value = T::decode(&mut r).unwrap();
    assert!(r.is_empty());
    value
}

fn written(value: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut Writer::new(&mut bytes));
    bytes
}

impl Bench {
    fn recovery_status(&mut self, object: &[u8]) -> StatusRes {
        let arguments = written(&StatusArgs { object: NfsFh3(object) });
        read(&self.call(PROGRAM, 1, 1, &arguments))
    }

    fn sync(&mut self, object: &[u8]) -> SyncRes {
        let arguments = written(&SyncArgs { object: NfsFh3(object) });
        read(&self.call(PROGRAM, 1, 2, &arguments))
    }

    fn verifier(&self) -> [u8; 8] {
        self.engine.write_verifier().to_be_bytes()
    }
}

#[test]
fn status_tells_whether_the_caller_is_async_and_the_verifier_of_his_writes() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let file = bench.create(&root, b"f").unwrap();
    let told = bench.write(&file, 0, b"x");
    let verifier = *told.last_chunk::<8>().unwrap();
    for is_async in [false, true, false] {
        asynchronous::set_async(&bench.engine, is_async);
        let expected = StatusRes::Ok(StatusOk { is_async, verifier, flags: COMPRESSION });
        assert_eq!(bench.recovery_status(&root), expected);
        assert_eq!(bench.recovery_status(&file), expected);
    }
    bench.engine.flush_failed();
    let StatusRes::Ok(later) = bench.recovery_status(&root) else { panic!("it is served") };
    assert_ne!(later.verifier, verifier);
}

#[test]
fn sync_flushes_the_file_system_also_for_an_async_caller() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    asynchronous::set_async(&bench.engine, true);
    let file = bench.create(&root, b"f").unwrap();
    assert_eq!(status(&bench.write(&file, 2, b"x")), 0);
    let commit = xdr(|w| {
        w.opaque(&file);
        w.u64(0);
        w.u32(0);
    });
    assert_eq!(status(&bench.call(NFS, 3, 21, &commit)), 0);
    assert_eq!((bench.flushes.flushes(), bench.flushes.whole_flushes()), (0, 0), "from memory");
    let verifier = bench.verifier();
    for (object, is_async, flushes) in [(&file, true, 1), (&root, true, 2), (&root, false, 3)] {
        asynchronous::set_async(&bench.engine, is_async);
        assert_eq!(bench.sync(object), SyncRes::Ok(SyncOk { verifier }));
        assert_eq!(bench.flushes.whole_flushes(), flushes);
    }
    // Of whom there is nothing to be written, on a share that is not to be written: it is allowed.
    bench.uid = 1000;
    let read_only = bench.mount("/ro").unwrap();
    assert_eq!(bench.sync(&read_only), SyncRes::Ok(SyncOk { verifier }));
}

#[test]
fn a_sync_whose_flush_failed_is_not_acknowledged() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    asynchronous::set_async(&bench.engine, true);
    bench.create(&root, b"f").unwrap();
    let before = bench.verifier();
    bench.flushes.set_failing(true);
    assert_eq!(bench.sync(&root), SyncRes::Failed(NfsStat3::Io));
    bench.flushes.set_failing(false);
    assert_ne!(bench.verifier(), before);
    let verifier = bench.verifier();
    assert_eq!(bench.sync(&root), SyncRes::Ok(SyncOk { verifier }));
}

#[test]
fn a_sync_tells_the_verifier_of_its_end() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let arguments = written(&SyncArgs { object: NfsFh3(&root) });
    let message = bench.message(PROGRAM, 1, 2, &arguments);
    let mut reply = ReplyBuffer::default();
    let Verdict::Parked(parked) =
        bench.engine.call(&mut Host, &bench.peer, 0, &message, &mut reply)
    else {
        panic!("SYNC must wait")
    };
    assert!(matches!(&parked.awaited, Awaited::Flush(flush) if flush.targets.len() == 1));
    bench.engine.flush_failed();
    let mut settled = Vec::new();
    bench.engine.settle(parked, Ok(()), 0, &mut settled);
    let verifier = bench.verifier();
    assert_eq!(read::<SyncRes>(&settled[24..]), SyncRes::Ok(SyncOk { verifier }));
    // And if it failed itself, whatever the reason, it is not told to come again.
    let Verdict::Parked(parked) =
        bench.engine.call(&mut Host, &bench.peer, 0, &message, &mut reply)
    else {
        panic!("a repetition is executed")
    };
    let mut settled = Vec::new();
    bench.engine.settle(parked, Err(FsError::TryLater), 0, &mut settled);
    assert_eq!(read::<SyncRes>(&settled[24..]), SyncRes::Failed(NfsStat3::Io));
}

#[test]
fn handles_and_access_are_judged_as_for_nfs() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let check = |bench: &mut Bench, object: &[u8], expected: NfsStat3| {
        assert_eq!(bench.recovery_status(object), StatusRes::Failed(expected));
        assert_eq!(bench.sync(object), SyncRes::Failed(expected));
        let getattr = bench.nfs(1, |w| w.opaque(object));
        assert_eq!(status(&getattr), expected as u32);
    };
    check(&mut bench, b"forged", NfsStat3::BadHandle);
    let removed = bench.create(&root, b"gone").unwrap();
    let results = bench.nfs(12, |w| {
        w.opaque(&root);
        w.opaque(b"gone");
    });
    assert_eq!(status(&results), 0);
    check(&mut bench, &removed, NfsStat3::Stale);
    // Who has no rights on the share.
    let known = bench.peer.address;
    bench.come_from("10.0.0.1:700".parse().unwrap());
    check(&mut bench, &root, NfsStat3::Acces);
    bench.come_from(known);
    let share = super::share(9, "/other", steadfast_shares::Rights::default());
    let other = Export { share, storage: Arc::new(ModelFs::new(9, 0o777)) };
    bench.engine.set_exports(ExportTable::new(vec![other]));
    check(&mut bench, &root, NfsStat3::Stale);
    assert_eq!(bench.flushes.whole_flushes(), 0);
}
