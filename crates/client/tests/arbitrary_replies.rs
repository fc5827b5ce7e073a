//! Property ring: whatever a server answers, the client reads it or refuses it, and takes no more
//! memory than what was sent justifies.
#![allow(clippy::unwrap_used)]

mod canned;

use canned::Key;
use proptest::prelude::*;
use steadfast_client::{AcceptedError, ClientError, Denial, NFS3, ReplyBody, parse_reply};
use steadfast_client::{mount, nfsacl, recovery, rpcbind};
use steadfast_wire::rpc::AuthStat;
use steadfast_xdr::Writer;

/// Bytes that look like XDR often enough to get somewhere: small numbers, and noise.
fn likely_bytes() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        6 => (0_u32..2).prop_map(u32::to_be_bytes),
        3 => (0_u32..9).prop_map(u32::to_be_bytes),
        1 => any::<u32>().prop_map(u32::to_be_bytes),
    ];
    (prop::collection::vec(word, 0..120), prop::collection::vec(any::<u8>(), 0..4))
        .prop_map(|(words, tail)| [words.concat(), tail].concat())
}

fn procedures() -> impl Iterator<Item = Key> {
    let of = |program, version| move |number| (program, version, number);
    (0..22)
        .map(of(NFS3, 3))
        .chain((0..3).map(of(nfsacl::NFSACL, 3)))
        .chain(recovery::ALL.iter().map(|one| one.number).map(of(recovery::RECOVERY, 1)))
        .chain((1..6).map(of(mount::MOUNT, 3)))
        .chain((0..5).map(of(rpcbind::RPCBIND, 2)))
        .chain([(rpcbind::RPCBIND, 3, 3)])
        .chain([1, 2, 4].map(of(rpcbind::RPCBIND, 4)))
}

fn check(key: Key, results: &[u8]) -> Result<bool, TestCaseError> {
    let Ok(room) = canned::read_results(key, results).unwrap() else {
        return Ok(false);
    };
    for (capacity, wire_bytes) in room {
        // A vector begins with room for up to eight elements and doubles.
        let justified = results.len() / wire_bytes * 2;
        prop_assert!(capacity <= justified.max(8), "room for {} of {}", capacity, justified);
    }
    Ok(true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn any_results_are_read_or_refused(bytes in likely_bytes()) {
        for key in procedures() {
            check(key, &bytes)?;
        }
    }

    #[test]
    fn any_reply_is_read_or_refused(mut bytes in likely_bytes(), is_reply in any::<bool>()) {
        if is_reply && bytes.len() >= 8 {
            bytes[4..8].copy_from_slice(&[0, 0, 0, 1]);
        }
        if let Ok((xid, body)) = parse_reply(&bytes) {
            prop_assert_eq!(&bytes[..4], &xid.to_be_bytes());
            if let ReplyBody::Success { results_at } = body {
                prop_assert!(results_at <= bytes.len());
            }
        }
    }

    #[test]
    fn reply_heads_are_read_as_they_are_written_and_not_if_cut_off(
        (xid, low, high) in any::<(u32, u32, u32)>(),
    ) {
        let check = |write: &dyn Fn(&mut Writer<'_>), expected: ReplyBody| {
            let mut bytes = Vec::new();
            write(&mut Writer::new(&mut bytes));
            prop_assert_eq!(parse_reply(&bytes), Ok((xid, expected)));
            for cut in 0..bytes.len() {
                prop_assert!(parse_reply(&bytes[..cut]).is_err());
            }
            Ok(())
        };
        let accepted = ReplyBody::Accepted;
        let success = ReplyBody::Success { results_at: 24 };
        check(&|w| steadfast_rpc::accepted_success(w, xid), success)?;
        check(
            &|w| steadfast_rpc::prog_unavail(w, xid),
            accepted(AcceptedError::ProgramUnavailable),
        )?;
        check(
            &|w| steadfast_rpc::prog_mismatch(w, xid, low, high),
            accepted(AcceptedError::ProgramMismatch { low, high }),
        )?;
        check(
            &|w| steadfast_rpc::proc_unavail(w, xid),
            accepted(AcceptedError::ProcedureUnavailable),
        )?;
        check(
            &|w| steadfast_rpc::garbage_args(w, xid),
            accepted(AcceptedError::GarbageArguments),
        )?;
        check(&|w| steadfast_rpc::system_err(w, xid), accepted(AcceptedError::SystemError))?;
        check(
            &|w| steadfast_rpc::rpc_mismatch(w, xid, low, high),
            ReplyBody::Denied(Denial::RpcMismatch { low, high }),
        )?;
        for why in AuthStat::ALL {
            check(
                &|w| steadfast_rpc::auth_error(w, xid, *why),
                ReplyBody::Denied(Denial::Auth(*why as u32)),
            )?;
        }
    }
}

/// Lists whose length is announced, and never comes.
#[test]
fn announced_lengths_take_no_memory() {
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_be_bytes()).collect() };
    let cases = [
        // rpcbind's DUMP of version 4: an entry whose owner has a thousand bytes.
        (rpcbind::RPCBIND, 4, 4, words(&[1, 1, 1, 0, 0, 1000, 1])),
        // MNT: a handle of no bytes, four thousand million flavours.
        (mount::MOUNT, 3, 1, words(&[0, 0, u32::MAX, 1])),
        // READ: 16 MiB of data.
        (NFS3, 3, 6, words(&[0, 0, 16 << 20, 1, 16 << 20, 5])),
        // GETACL: 1024 entries.
        (nfsacl::NFSACL, 3, 1, words(&[0, 0, 15, 1024, 1024, 1])),
    ];
    for (program, version, procedure, bytes) in cases {
        let result = canned::read_results((program, version, procedure), &bytes).unwrap();
        assert!(matches!(result, Err(ClientError::Malformed { .. })), "{result:?}");
    }
}

/// The property above would hold of readers that refuse everything.
#[test]
fn results_of_every_kind_are_read() {
    let none = |count: usize| vec![0_u8; count * 4];
    let list = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_be_bytes()).collect() };
    let attributes = [vec![0, 0, 0, 1], none(20)].concat();
    let cases = [
        (NFS3, 3, 1, [none(1), attributes].concat()),
        (NFS3, 3, 6, none(5)),
        (NFS3, 3, 8, none(5)),
        (
            NFS3,
            3,
            16,
            [none(4), list(&[1, 0, 7, 1, u32::from_be_bytes(*b"a\0\0\0"), 0, 1, 0, 1])].concat(),
        ),
        (NFS3, 3, 17, none(6)),
        (NFS3, 3, 19, none(14)),
        (nfsacl::NFSACL, 3, 1, none(7)),
        (recovery::RECOVERY, 1, 1, none(5)),
        (recovery::RECOVERY, 1, 2, none(3)),
        (recovery::RECOVERY, 1, 3, none(5)),
        (recovery::RECOVERY, 1, 4, none(3)),
        (recovery::RECOVERY, 1, 5, none(3)),
        (mount::MOUNT, 3, 1, list(&[0, 4, 9, 2, 0, 1])),
        (mount::MOUNT, 3, 5, list(&[1, 0, 1, 0, 0, 0])),
        (rpcbind::RPCBIND, 2, 0, none(0)),
        (rpcbind::RPCBIND, 2, 1, list(&[1])),
        (rpcbind::RPCBIND, 2, 2, none(1)),
        (rpcbind::RPCBIND, 2, 3, list(&[2049])),
        (rpcbind::RPCBIND, 2, 4, list(&[1, NFS3, 3, 6, 2049, 1, NFS3, 3, 17, 70_000, 0])),
        (rpcbind::RPCBIND, 3, 3, list(&[6, u32::from_be_bytes(*b"::.8"), 0x2e31_0000])),
        (rpcbind::RPCBIND, 3, 3, none(1)),
        (rpcbind::RPCBIND, 4, 1, list(&[1])),
        (rpcbind::RPCBIND, 4, 2, none(1)),
        (rpcbind::RPCBIND, 4, 4, list(&[1, NFS3, 3, 0, 4, 0x2e38_2e31, 0, 1, 1, 1, 0, 0, 0, 0])),
    ];
    for (program, version, procedure, bytes) in cases {
        let key = (program, version, procedure);
        assert!(check(key, &bytes).unwrap(), "{key:?}");
    }
}
