//! Unit ring: NFSv2 (RFC 1094) by whole RPC calls against an engine over the in-memory model: each
//! procedure, each status that the model can be brought to, and what clients of that time rely on.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

#[path = "../common/asynchronous.rs"]
mod asynchronous;
mod calls;
mod gate;
mod harness;
mod large;
mod statuses;
mod waiting;

use steadfast_wire::mount::{DirPath, FhStatus};
use steadfast_wire::nfs2::UNSET;
use steadfast_xdr::{Decode, Reader};

use harness::{Bench, MOUNT, UNCHANGED, xdr};

#[test]
fn handles_come_from_mount_1_and_2_and_have_32_bytes() {
    let mut bench = Bench::new();
    for version in [1, 2] {
        let result = bench.ask(MOUNT, version, 1, &xdr(&DirPath { path: b"/a" }));
        let FhStatus::Ok(handle) = FhStatus::decode(&mut Reader::new(&result)).unwrap() else {
            panic!("no handle")
        };
        assert_eq!(bench.getattr(&handle).kind, 2);
    }
    // As long as XFS has them: in a form of their own.
    let handle = bench.mount("/fifteen");
    assert_eq!(bench.getattr(&handle).kind, 2);
    let made = bench.create(&handle, b"f", &UNCHANGED).unwrap().0;
    assert_eq!(bench.lookup(&handle, b"f").unwrap().0, made);
    let mut forged = made;
    forged[20] ^= 1;
    assert_eq!(bench.call(1, &forged), [0, 0, 0, 70]);
    // Longer than that.
    let result = bench.ask(MOUNT, 1, 1, &xdr(&DirPath { path: b"/long" }));
    assert_eq!(FhStatus::decode(&mut Reader::new(&result)), Ok(FhStatus::Failed(10_004)));
    let complaint = bench.complaint.take().unwrap().to_string();
    assert!(complaint.contains("NFSv2") && complaint.contains("32 bytes"), "{complaint}");
    let fits = |share| bench.engine.fits_nfs2(steadfast_shares::ShareId(share));
    assert_eq!([1, 4, 5, 99].map(fits), [Some(true), Some(true), Some(false), None]);
    // Version 3 has room for it.
    assert_eq!(bench.ask(MOUNT, 3, 1, &xdr(&DirPath { path: b"/long" }))[..4], [0; 4]);
}

/// A size, a mode or an owner of -1 is not to be set; 0 is.
#[test]
fn minus_one_is_not_set() {
    let mut bench = Bench::new();
    let root = bench.mount("/a");
    let set = steadfast_wire::nfs2::Sattr2 { mode: 0o640, size: 5, ..UNCHANGED };
    let (file, attr) = bench.create(&root, b"f", &set).unwrap();
    assert_eq!((attr.mode, attr.size, attr.kind), (0o100_640, 5, 1));
    let attr = bench.setattr(&file, &UNCHANGED).unwrap();
    assert_eq!((attr.mode, attr.size), (0o100_640, 5));
    let set = steadfast_wire::nfs2::Sattr2 { size: 0, mode: UNSET, ..UNCHANGED };
    assert_eq!(bench.setattr(&file, &set).unwrap().size, 0);
}

#[test]
fn a_write_of_an_async_caller_is_acknowledged_at_once() {
    let mut bench = Bench::new();
    let root = bench.mount("/a");
    let (file, _) = bench.create(&root, b"f", &UNCHANGED).unwrap();
    // Offsets that nobody reads stand around the one that counts, and how much there is before it.
    let mut write = file.to_vec();
    for word in [0_u32, 0, 0, 4] {
        write.extend(word.to_be_bytes());
    }
    write.extend(b"data");
    for is_async in [true, false, true] {
        asynchronous::set_async(&bench.engine, is_async);
        let message = bench.message((harness::NFS, 2, 8), &write);
        let mut reply = steadfast_engine::ReplyBuffer::default();
        let verdict = bench.engine.call(&mut harness::Host, &bench.peer, 0, &message, &mut reply);
        let is_replied = matches!(verdict, steadfast_engine::Verdict::Replied);
        assert_eq!(is_replied, is_async, "{verdict:?}");
    }
    assert_eq!(bench.getattr(&file).size, 4);
}
