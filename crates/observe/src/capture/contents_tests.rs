//! Unit and property rings: no byte of a file is left.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use proptest::prelude::*;
use steadfast_wire::nfs3;
use steadfast_wire::nfs4::Op4;
use steadfast_wire::rpc::OpaqueAuth;

use super::*;
use crate::capture::testing::{call, call_by, compound, getattr, reply, words, written};

/// What stands for the contents of a file, and nowhere else.
const CONTENTS: [u8; 64] = [0xc7; 64];

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut all = words(&[bytes.len() as u32]);
    all.extend(bytes);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

fn of_operation(operation: Op4, arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = words(&[operation as u32]);
    bytes.extend(arguments.concat());
    bytes
}

/// A call with contents, and a name or nothing behind them.
fn writes(which: usize) -> (Vec<u8>, (u32, u32, u32)) {
    let data = opaque(&CONTENTS);
    let handle = written(&NfsFh3(b"some handle"));
    let attributes = of_operation(Op4::GetAttr, &[&words(&[1, 2])]);
    let in_compound =
        |operation| [compound(4, b"a handle"), operation, attributes.clone()].concat();
    let v4 = (nfs3::PROGRAM, 4, 1);
    match which {
        0 => ([&[5; 32][..], &words(&[0, 0, 64]), &data].concat(), (nfs3::PROGRAM, 2, 8)),
        1 => ([handle, words(&[0, 0, 64, 2]), data].concat(), (nfs3::PROGRAM, 3, 7)),
        4 => ([handle, words(&[0, 0, 900, 2]), data].concat(), (recovery::PROGRAM, 1, WRITEZ)),
        2 => (in_compound(of_operation(Op4::Write, &[&[1; 16], &words(&[0, 0, 2]), &data])), v4),
        _ => {
            let name = opaque(b"user.name");
            (in_compound(of_operation(Op4::SetXattr, &[&words(&[0]), &name, &data])), v4)
        }
    }
}

/// A call whose results have contents, and these.
fn reads(which: usize) -> ((u32, u32, u32), Vec<u8>, Vec<u8>) {
    let data = opaque(&CONTENTS);
    let sequence =
        [&words(&[Op4::Sequence as u32, 0])[..], &[1; 16], &words(&[1, 0, 0, 0, 0])].concat();
    let found = words(&[Op4::PutFh as u32, 0]);
    let results = |result: &[&[u8]]| {
        [words(&[0, 0, 4]), sequence.clone(), found.clone(), result.concat(), words(&[9, 0, 0, 0])]
            .concat()
    };
    let call = |operation: Vec<u8>| [compound(3, b"a handle"), operation].concat();
    let v4 = (nfs3::PROGRAM, 4, 1);
    match which {
        0 => ((nfs3::PROGRAM, 2, 6), vec![5; 44], [words(&[0]), vec![0; 68], data].concat()),
        1 => {
            let handle = [written(&NfsFh3(b"some handle")), words(&[0, 0, 64])].concat();
            let results = [words(&[0, 1]), vec![0; 84], words(&[64, 1]), data].concat();
            ((nfs3::PROGRAM, 3, 6), handle, results)
        }
        2 => {
            let handle = [written(&NfsFh3(b"some handle")), words(&[0, 0, 64])].concat();
            ((nfs3::PROGRAM, 3, 6), handle, [words(&[0, 0, 64, 1]), data].concat())
        }
        3 => {
            let read = of_operation(Op4::Read, &[&[1; 16], &words(&[0, 0, 64])]);
            let head = words(&[Op4::Read as u32, 0, 1]);
            (v4, call(read), results(&[&head, &data]))
        }
        4 => {
            let read = of_operation(Op4::ReadPlus, &[&[1; 16], &words(&[0, 0, 64])]);
            let head = words(&[Op4::ReadPlus as u32, 0, 1, 1, 0, 0, 0]);
            (v4, call(read), results(&[&head, &data]))
        }
        6 => {
            let handle = [written(&NfsFh3(b"some handle")), words(&[0, 0, 900])].concat();
            let results = [words(&[0, 1]), vec![0; 84], words(&[900, 1, 1]), data].concat();
            ((recovery::PROGRAM, 1, READZ), handle, results)
        }
        _ => {
            let get = of_operation(Op4::GetXattr, &[&opaque(b"user.name")]);
            (v4, call(get), results(&[&words(&[Op4::GetXattr as u32, 0]), &data]))
        }
    }
}

fn message(bytes: &[u8], kept: usize, is_sent: bool) -> Message<'_> {
    let client = ([192, 0, 2, 1], 700).into();
    let server = ([192, 0, 2, 2], 2049).into();
    let kept = bytes.get(..kept).unwrap_or(bytes);
    Message { client, server, is_sent, length: bytes.len(), executed: None, bytes: kept }
}

/// A reply of the server, which says what it has executed.
fn answer(
    bytes: &[u8],
    kept: usize,
    (program, version, procedure): (u32, u32, u32),
) -> Message<'_> {
    let executed = Some(Executed { program, version, procedure });
    Message { executed, ..message(bytes, kept, true) }
}

const GETATTR: (u32, u32, u32) = (nfs3::PROGRAM, 3, 1);

/// Bytes that may be contents are nowhere in what is kept; so many bytes of it there were before.
fn assert_without(limiter: &mut Limiter, message: &Message<'_>) -> usize {
    let limited = limiter.limit(message);
    let kept = &message.bytes[..limited.head_bytes];
    assert!(!kept.contains(&CONTENTS[0]), "{kept:?}");
    limited.head_bytes
}

#[test]
fn contents_are_left_out_and_all_before_them_is_kept() {
    let mut limiter = Limiter::default();
    for which in 0..5 {
        let (arguments, program) = writes(which);
        let bytes = call(7, program, &arguments);
        let kept = assert_without(&mut limiter, &message(&bytes, usize::MAX, false));
        let begin = bytes.iter().position(|byte| *byte == CONTENTS[0]).unwrap();
        assert_eq!(kept, begin, "{which}");
    }
    for which in 0..7 {
        let (program, arguments, results) = reads(which);
        limiter.limit(&message(&call(7, program, &arguments), usize::MAX, false));
        let bytes = reply(7, &results);
        let kept = assert_without(&mut limiter, &answer(&bytes, usize::MAX, program));
        let begin = bytes.iter().position(|byte| *byte == CONTENTS[0]).unwrap();
        // READ_PLUS tells where its pieces are, which is left out with them.
        let behind = if which == 4 { 16 } else { 0 };
        assert_eq!(kept + behind, begin, "{which}");
    }
}

#[test]
fn what_has_no_contents_is_kept() {
    let mut limiter = Limiter::default();
    let bytes = getattr(3);
    let asked = limiter.limit(&message(&bytes, usize::MAX, false));
    assert_eq!(asked, Limited { head_bytes: bytes.len(), is_call: true, is_wanted: true });
    let bytes = reply(3, &words(&[0; 22]));
    let answered = limiter.limit(&answer(&bytes, usize::MAX, GETATTR));
    assert_eq!(answered, Limited { head_bytes: bytes.len(), is_call: false, is_wanted: true });
    // Nobody says what was executed, or it is nothing that is known; nor is anything known under Kerberos, yet.
    limiter.limit(&message(&getattr(3), usize::MAX, false));
    assert_eq!(limiter.limit(&message(&bytes, usize::MAX, true)).head_bytes, 24);
    assert_eq!(limiter.limit(&answer(&bytes, usize::MAX, (400_000, 1, 1))).head_bytes, 24);
    let gss = [&bytes[..12], &words(&[RPCSEC_GSS, 0]), &bytes[20..]].concat();
    assert_eq!(limiter.limit(&answer(&gss, usize::MAX, GETATTR)).head_bytes, 24);
    // A client answers the server, which calls it by programs without contents.
    let recall = call(9, (0x4000_0000, 1, 1), &words(&[0; 9]));
    assert_eq!(limiter.limit(&message(&reply(9, &[0; 40]), usize::MAX, false)).head_bytes, 24);
    limiter.limit(&message(&recall, usize::MAX, true));
    assert_eq!(limiter.limit(&message(&reply(9, &[0; 40]), usize::MAX, false)).head_bytes, 64);
    let gss = OpaqueAuth { flavor: RPCSEC_GSS, body: &[0; 20] };
    let (arguments, program) = writes(1);
    let bytes = call_by(4, program, gss, &arguments);
    assert_eq!(assert_without(&mut limiter, &message(&bytes, usize::MAX, false)), 60);
    let failed = words(&[70, 0]);
    let (program, arguments, _) = reads(1);
    limiter.limit(&message(&call(5, program, &arguments), usize::MAX, false));
    let bytes = reply(5, &failed);
    assert_eq!(limiter.limit(&answer(&bytes, usize::MAX, program)).head_bytes, bytes.len());
}

#[test]
fn operations_are_found_in_compounds_too() {
    let mut limiter = Limiter::new(vec!["WRITE".to_owned(), "lookup".to_owned()]);
    for which in 0..4 {
        let (arguments, program) = writes(which);
        let asked = limiter.limit(&message(&call(which as u32, program, &arguments), 200, false));
        // The last one sets an attribute.
        assert_eq!(asked.is_wanted, which != 3, "{which}");
        let answered = limiter.limit(&message(&reply(which as u32, &[0; 8]), 200, true));
        assert_eq!(answered.is_wanted, which != 3, "{which}");
    }
    assert!(!limiter.limit(&message(&reply(99, &[0; 8]), 200, true)).is_wanted);
}

#[test]
fn behind_what_no_server_understands_nothing_is_kept() {
    let mut limiter = Limiter::default();
    let data = opaque(&CONTENTS);
    let write = of_operation(Op4::Write, &[&[1; 16], &words(&[0, 0, 2]), &data]);
    // A name that is too long, and neither true nor false.
    for (operation, arguments) in
        [(Op4::Lookup, vec![5000, 0, 0]), (Op4::Lock, vec![1, 7, 0, 0, 0, 0])]
    {
        let wrong = of_operation(operation, &[&words(&arguments)]);
        let bytes = [compound(4, b"a handle"), wrong, write.clone()].concat();
        let bytes = call(7, (nfs3::PROGRAM, 4, 1), &bytes);
        let begin = bytes.iter().position(|byte| *byte == CONTENTS[0]).unwrap();
        for kept in [begin + 8, usize::MAX] {
            let kept = assert_without(&mut limiter, &message(&bytes, kept, false));
            assert!(kept > 100, "{kept}");
        }
        let answered = [words(&[0, 0, 2, Op4::LayoutCommit as u32, 0, 5]), data.clone()].concat();
        let bytes = reply(7, &answered);
        let begin = bytes.iter().position(|byte| *byte == CONTENTS[0]).unwrap();
        assert_without(&mut limiter, &answer(&bytes, begin + 8, (nfs3::PROGRAM, 4, 1)));
    }
}

#[test]
fn a_reply_to_another_call_of_the_same_number_has_its_own_results() {
    let (program, arguments, results) = reads(1);
    let (read, answered) = (call(7, program, &arguments), reply(7, &results));
    // The call that was executed was dropped, or came before another one that waits.
    for calls in [&[getattr(7)][..], &[read.clone(), getattr(7)], &[getattr(7), read.clone()]] {
        let mut limiter = Limiter::default();
        for call in calls {
            limiter.limit(&message(call, usize::MAX, false));
        }
        assert_without(&mut limiter, &answer(&answered, usize::MAX, program));
        let attributes = reply(7, &words(&[0; 22]));
        let limited = limiter.limit(&answer(&attributes, usize::MAX, GETATTR));
        assert_eq!(limited.head_bytes, attributes.len());
    }
}

/// A call, its reply, and what is executed.
fn exchange(which: usize, xid: u32) -> (Vec<u8>, Vec<u8>, (u32, u32, u32)) {
    match which {
        0 => (getattr(xid), reply(xid, &words(&[0; 22])), GETATTR),
        1..=5 => {
            let (arguments, program) = writes(which - 1);
            (call(xid, program, &arguments), reply(xid, &words(&[0; 30])), program)
        }
        _ => {
            let (program, arguments, results) = reads(which - 6);
            (call(xid, program, &arguments), reply(xid, &results), program)
        }
    }
}

proptest! {
    /// Any message may be missing, replies come in any order and perhaps without what was executed, and numbers of
    /// calls come again while others wait.
    #[test]
    fn contents_are_left_out_whatever_is_dropped(
        messages in proptest::collection::vec(
            (
                0..13_usize,
                7..9_u32,
                any::<[bool; 2]>(),
                prop_oneof![Just(usize::MAX), 0..400_usize],
            ),
            1..24,
        ),
    ) {
        let mut limiter = Limiter::default();
        for (which, xid, [is_reply, is_told], kept) in messages {
            let (asked, answered, program) = exchange(which, xid);
            let message = match (is_reply, is_told) {
                (false, _) => message(&asked, kept, false),
                (true, true) => answer(&answered, kept, program),
                (true, false) => message(&answered, kept, true),
            };
            assert_without(&mut limiter, &message);
        }
    }

    #[test]
    fn contents_are_left_out_however_messages_are_cut_and_damaged(
        which in 0..5_usize,
        read in 0..7_usize,
        kept in 0..400_usize,
        kept_of_reply in 0..400_usize,
        damage in proptest::option::of((any::<u16>(), 0..0xc7_u8)),
    ) {
        let mut limiter = Limiter::default();
        let (arguments, program) = writes(which);
        let bytes = call(7, program, &arguments);
        assert_without(&mut limiter, &message(&bytes, kept, false));
        let (program, arguments, results) = reads(read);
        let mut bytes = call(7, program, &arguments);
        // It may be another procedure's then, but for who executes it.
        if let Some((place, value)) = damage {
            let place = usize::from(place) % bytes.len();
            bytes[place] = value;
        }
        limiter.limit(&message(&bytes, kept, false));
        assert_without(&mut limiter, &answer(&reply(7, &results), kept_of_reply, program));
    }
}
