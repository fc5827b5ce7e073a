//! Property ring: credentials of any bytes, and reply heads as RFC 5531 §9 has them.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use steadfast_rpc::{
    Credentials, accepted_success, auth_error, garbage_args, proc_unavail, prog_mismatch,
    prog_unavail, rpc_mismatch, system_err,
};
use steadfast_wire::rpc::{AUTH_NONE, AUTH_SYS, AuthStat, OpaqueAuth};
use steadfast_xdr::Writer;

/// A body of `AUTH_SYS` credentials (RFC 5531 appendix A).
fn sys_body(machine: &[u8], uid: u32, gid: u32, gids: &[u32]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut w = Writer::new(&mut body);
    w.u32(7);
    w.opaque(machine);
    for word in [uid, gid, gids.len() as u32] {
        w.u32(word);
    }
    for group in gids {
        w.u32(*group);
    }
    body
}

fn decode(flavor: u32, body: &[u8]) -> Result<Credentials<'_>, AuthStat> {
    Credentials::decode(&OpaqueAuth { flavor, body })
}

fn words(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u32> {
    let mut bytes = Vec::new();
    write(&mut Writer::new(&mut bytes));
    let (words, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    words.iter().map(|word| u32::from_be_bytes(*word)).collect()
}

proptest! {
    #[test]
    fn identities_come_back_and_cut_off_ones_do_not(
        machine in prop::collection::vec(any::<u8>(), 0..=255),
        (uid, gid) in any::<(u32, u32)>(),
        gids in prop::collection::vec(any::<u32>(), 0..=16),
    ) {
        let body = sys_body(&machine, uid, gid, &gids);
        let Ok(Credentials::Sys(identity)) = decode(AUTH_SYS, &body) else {
            return Err(TestCaseError::fail("refused"));
        };
        prop_assert_eq!(identity.machinename, &machine[..]);
        prop_assert_eq!((identity.uid, identity.gid), (uid, gid));
        prop_assert_eq!(&identity.gids[..], &gids[..]);
        for cut in 0..body.len() {
            prop_assert_eq!(decode(AUTH_SYS, &body[..cut]), Err(AuthStat::BadCred));
        }
    }

    #[test]
    fn any_bytes_are_credentials_or_refused(
        flavor in prop_oneof![Just(AUTH_NONE), Just(AUTH_SYS), any::<u32>()],
        body in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 0..400),
    ) {
        match decode(flavor, &body) {
            Ok(Credentials::None) => prop_assert_eq!(flavor, AUTH_NONE),
            Ok(Credentials::Sys(identity)) => {
                prop_assert_eq!(flavor, AUTH_SYS);
                prop_assert!(identity.gids.len() <= 16);
                prop_assert!(identity.machinename.len() <= 255);
            }
            Err(AuthStat::BadCred) => prop_assert_eq!(flavor, AUTH_SYS),
            Err(why) => {
                prop_assert_eq!(why, AuthStat::RejectedCred);
                prop_assert!(flavor > AUTH_SYS);
            }
        }
    }

    #[test]
    fn reply_heads_are_as_the_rfc_has_them(xid: u32, low: u32, high: u32) {
        prop_assert_eq!(words(|w| accepted_success(w, xid)), [xid, 1, 0, 0, 0, 0]);
        prop_assert_eq!(words(|w| prog_unavail(w, xid)), [xid, 1, 0, 0, 0, 1]);
        prop_assert_eq!(
            words(|w| prog_mismatch(w, xid, low, high)),
            [xid, 1, 0, 0, 0, 2, low, high]
        );
        prop_assert_eq!(words(|w| proc_unavail(w, xid)), [xid, 1, 0, 0, 0, 3]);
        prop_assert_eq!(words(|w| garbage_args(w, xid)), [xid, 1, 0, 0, 0, 4]);
        prop_assert_eq!(words(|w| system_err(w, xid)), [xid, 1, 0, 0, 0, 5]);
        prop_assert_eq!(words(|w| rpc_mismatch(w, xid, low, high)), [xid, 1, 1, 0, low, high]);
        for why in AuthStat::ALL {
            prop_assert_eq!(words(|w| auth_error(w, xid, *why)), [xid, 1, 1, 1, *why as u32]);
        }
    }
}

#[test]
fn too_many_groups_or_too_long_a_name_are_refused() {
    assert!(decode(AUTH_SYS, &sys_body(b"m", 1, 1, &[0; 16])).is_ok());
    assert_eq!(decode(AUTH_SYS, &sys_body(b"m", 1, 1, &[0; 17])), Err(AuthStat::BadCred));
    assert_eq!(decode(AUTH_SYS, &sys_body(&[b'm'; 256], 1, 1, &[])), Err(AuthStat::BadCred));
}
