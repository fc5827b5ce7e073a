//! Unit ring: the operations of COMPOUNDs.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use steadfast_wire::nfs4::{
    Bitmap4, Fattr4, GetAttr4Args, Lookup4Args, Op4, Read4Args, Sequence4Result, StateId4,
};
use steadfast_xdr::Reader;

use super::{CompoundCall, Executed};
use crate::capture::handle::{Handle, Names};
use crate::capture::testing::{compound, words, written};

const STATE: StateId4 = StateId4 { seqid: 1, other: [2; 12] };

type Seen = (u32, u32, Option<Handle>, Option<Vec<u8>>, u64);

fn executed(call: &CompoundCall, reply: &[u8], names: &mut Names) -> (Vec<Seen>, (u32, bool)) {
    let mut seen = Vec::new();
    let mut take = |part: &Executed<'_>| {
        let name = part.name.map(<[u8]>::to_vec);
        seen.push((part.number, part.status, part.handle, name, part.read_bytes));
    };
    let end = call.executed(&mut Reader::new(reply), names, &mut take).unwrap();
    (seen, end)
}

fn sequence_result() -> Vec<u8> {
    let result = Sequence4Result {
        sessionid: [1; 16],
        sequenceid: 1,
        slotid: 0,
        highest_slotid: 0,
        target_highest_slotid: 0,
        status_flags: 0,
    };
    [words(&[Op4::Sequence as u32, 0]), written(&result)].concat()
}

fn head(status: u32, operations: u32) -> Vec<u8> {
    words(&[status, 0, operations])
}

#[test]
fn each_operation_has_its_status_its_file_and_its_bytes() {
    let mut call = compound(7, b"directory");
    call.extend(words(&[Op4::Lookup as u32]));
    call.extend(written(&Lookup4Args { objname: b"name" }));
    call.extend(words(&[Op4::GetFh as u32, Op4::GetAttr as u32]));
    call.extend(written(&GetAttr4Args { attr_request: Bitmap4::EMPTY }));
    call.extend(words(&[Op4::Read as u32]));
    call.extend(written(&Read4Args { stateid: STATE, offset: 0, count: 10 }));
    call.extend(words(&[Op4::Access as u32, 1]));
    let mut names = Names::default();
    let call = CompoundCall::decode(&mut Reader::new(&call), &mut names).unwrap();
    assert_eq!((call.minor, call.parts.len()), (1, 7));
    assert_eq!(call.first_handle(), Some(Handle::of(b"directory")));

    let mut reply = head(13, 7);
    reply.extend(sequence_result());
    reply.extend(words(&[Op4::PutFh as u32, 0, Op4::Lookup as u32, 0, Op4::GetFh as u32, 0]));
    reply.extend(written(&steadfast_wire::nfs4::GetFh4Result { object: b"file" }));
    reply.extend(words(&[Op4::GetAttr as u32, 0]));
    reply.extend(written(&Fattr4 { attrmask: Bitmap4::EMPTY, attr_vals: &[] }));
    reply.extend(words(&[Op4::Read as u32, 0]));
    reply.extend(written(&steadfast_wire::nfs4::Read4Result { eof: true, data: b"hello" }));
    reply.extend(words(&[Op4::Access as u32, 13]));
    let (seen, end) = executed(&call, &reply, &mut names);
    let (directory, file) = (Some(Handle::of(b"directory")), Some(Handle::of(b"file")));
    assert_eq!(end, (13, true));
    assert_eq!(
        seen,
        [
            (Op4::Sequence as u32, 0, None, None, 0),
            (Op4::PutFh as u32, 0, directory, None, 0),
            (Op4::Lookup as u32, 0, directory, Some(b"name".to_vec()), 0),
            (Op4::GetFh as u32, 0, None, None, 0),
            (Op4::GetAttr as u32, 0, file, None, 0),
            (Op4::Read as u32, 0, file, None, 5),
            (Op4::Access as u32, 13, file, None, 0),
        ]
    );
    assert_eq!(names.file(Handle::of(b"file").file), Some("name"));

    // The data was not captured: its length is told all the same.
    let cut = reply.len() - 16;
    let (seen, end) = executed(&call, &reply[..cut], &mut names);
    assert_eq!(end, (13, false));
    assert_eq!(seen.last().unwrap(), &(Op4::Read as u32, 0, file, None, 5));
    for cut in 0..reply.len() {
        let _ = call.executed(&mut Reader::new(&reply[..cut]), &mut names, &mut |_| {});
    }
}

#[test]
fn what_is_not_executed_is_not_told_and_the_unknown_ends_it() {
    let mut call = compound(4, b"directory");
    call.extend(words(&[Op4::GetFh as u32, 9999]));
    let mut names = Names::default();
    let call = CompoundCall::decode(&mut Reader::new(&call), &mut names).unwrap();
    assert_eq!(call.parts.len(), 4);
    let reply = [head(70, 2), sequence_result(), words(&[Op4::PutFh as u32, 70])].concat();
    let (seen, end) = executed(&call, &reply, &mut names);
    assert_eq!((seen.len(), end), (2, (70, true)));
    let reply = [head(0, 3), sequence_result(), words(&[9999, 0, Op4::PutFh as u32, 0])].concat();
    let (seen, end) = executed(&call, &reply, &mut names);
    assert_eq!((seen.len(), end), (2, (0, false)));
}

#[test]
fn an_open_is_read_whatever_is_delegated() {
    let stateid = words(&[1, 2, 3, 4]);
    let who = words(&[0, 0, 1, 0]);
    let delegated = [
        words(&[0]),
        [words(&[1]), stateid.clone(), words(&[0]), who.clone()].concat(),
        [words(&[2]), stateid.clone(), words(&[0, 1, 0, 9]), who.clone()].concat(),
        words(&[3, 1, 1]),
        words(&[3, 0]),
        // RFC 9754: delegations of attributes.
        [words(&[4]), stateid.clone(), words(&[0]), who.clone()].concat(),
        [words(&[5]), stateid.clone(), words(&[0, 1, 0, 9]), who].concat(),
    ];
    let mut call = compound(4, b"directory");
    call.extend(words(&[Op4::Open as u32, 0, 1, 0, 0, 0, 4, 0x6161_6161, 0, 0, 4, 0x6262_6262]));
    call.extend(words(&[Op4::GetFh as u32]));
    let mut names = Names::default();
    let call = CompoundCall::decode(&mut Reader::new(&call), &mut names).unwrap();
    for delegated in delegated {
        let mut reply = [head(0, 4), sequence_result(), words(&[Op4::PutFh as u32, 0])].concat();
        reply.extend(words(&[Op4::Open as u32, 0]));
        reply.extend([stateid.clone(), words(&[1, 0, 1, 0, 2, 0, 0])].concat());
        reply.extend(&delegated);
        reply.extend(words(&[Op4::GetFh as u32, 0, 4, 0x6363_6363]));
        let (seen, end) = executed(&call, &reply, &mut names);
        assert_eq!((seen.len(), end), (4, (0, true)), "{delegated:?}");
        assert_eq!(names.file(Handle::of(b"cccc").file), Some("bbbb"));
    }
}

/// Operations for which `wire` has no type, with arguments as the RFCs have them.
#[test]
fn operations_without_a_type_are_walked_over() {
    let stateid = words(&[1, 2, 3, 4]);
    let device = words(&[1, 2, 3, 4]);
    let rows: Vec<(Op4, Vec<u8>, Vec<u8>)> = vec![
        (Op4::DelegPurge, words(&[0, 1]), vec![]),
        (Op4::OpenAttr, words(&[1]), vec![]),
        (
            Op4::GetDirDelegation,
            words(&[0, 1, 5, 0, 1, 2, 0, 1, 2, 0, 1, 6]),
            [words(&[0, 1, 1]), stateid.clone(), words(&[0, 0, 1, 1])].concat(),
        ),
        (
            Op4::GetDeviceInfo,
            [device.clone(), words(&[1, 4096, 0])].concat(),
            words(&[1, 4, 0xffff_ffff, 0]),
        ),
        (
            Op4::GetDeviceList,
            words(&[1, 5, 0, 0, 0, 0]),
            [words(&[0, 0, 0, 0, 1]), device.clone(), words(&[1])].concat(),
        ),
        (
            Op4::LayoutCommit,
            [words(&[0, 0, 0, 9, 0]), stateid.clone(), words(&[1, 0, 9, 1, 0, 1, 2, 1, 0])]
                .concat(),
            words(&[1, 0, 9]),
        ),
        (
            Op4::LayoutGet,
            [words(&[0, 1, 1, 0, 0, 0, 9, 0, 1]), stateid.clone(), words(&[99])].concat(),
            [words(&[1]), stateid.clone(), words(&[1, 0, 0, 0, 9, 1, 1, 4, 7])].concat(),
        ),
        (
            Op4::LayoutReturn,
            [words(&[0, 1, 1, 1, 0, 0, 0, 9]), stateid.clone(), words(&[0])].concat(),
            [words(&[1]), stateid.clone()].concat(),
        ),
        (Op4::SetSsv, words(&[4, 1, 4, 2]), words(&[4, 1])),
        (Op4::WantDelegation, words(&[1, 1, 1]), words(&[0])),
        (
            Op4::CopyNotify,
            [stateid.clone(), words(&[1, 4, 0x6161_6161])].concat(),
            [words(&[0, 1, 2]), stateid.clone(), words(&[1, 1, 4, 0x6161_6161])].concat(),
        ),
        (
            Op4::LayoutError,
            [words(&[0, 0, 0, 9]), stateid.clone(), words(&[1]), device.clone(), words(&[5, 25])]
                .concat(),
            vec![],
        ),
        (
            Op4::LayoutStats,
            [
                words(&[0, 0, 0, 9]),
                stateid.clone(),
                words(&[0, 1, 0, 5, 0, 1, 0, 5]),
                device,
                words(&[1, 0]),
            ]
            .concat(),
            vec![],
        ),
        (Op4::OffloadStatus, stateid.clone(), words(&[0, 9, 1, 0])),
        (Op4::OffloadCancel, stateid.clone(), vec![]),
        (
            Op4::WriteSame,
            [stateid.clone(), words(&[2, 0, 0, 0, 4096, 0, 1, 0, 0, 0, 0, 0, 4, 7])].concat(),
            [words(&[1]), stateid, words(&[0, 9, 2, 1, 1])].concat(),
        ),
    ];
    for (operation, arguments, results) in rows {
        let mut call = compound(4, b"file");
        call.extend(words(&[operation as u32]));
        call.extend(arguments);
        call.extend(words(&[Op4::PutFh as u32, 4, 7]));
        let mut names = Names::default();
        let mut r = Reader::new(&call);
        let call = CompoundCall::decode(&mut r, &mut names).unwrap();
        assert!(call.parts.len() == 4 && r.is_empty(), "{operation:?}: {}", r.remaining());
        let mut reply = [head(0, 4), sequence_result(), words(&[Op4::PutFh as u32, 0])].concat();
        reply.extend(words(&[operation as u32, 0]));
        reply.extend(results);
        reply.extend(words(&[Op4::PutFh as u32, 0]));
        let (seen, end) = executed(&call, &reply, &mut names);
        assert_eq!((seen.len(), end), (4, (0, true)), "{operation:?}");
        assert_eq!(seen[3].2, Some(Handle::of(&words(&[7]))), "{operation:?}");
    }
}
