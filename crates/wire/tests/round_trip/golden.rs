//! Messages byte by byte, put together by hand from the RFCs: what holds reader and writer to
//! the protocol, not only to each other.

use steadfast_wire::List;
use steadfast_wire::mount::{ExportEntry, Group};
use steadfast_wire::nfs3::{
    Create3Args, CreateHow3, DirOpArgs3, NfsFh3, NfsStat3, NfsTime3, Sattr3, SetTime3, StableHow,
    Write3Args,
};
use steadfast_wire::recovery::{StatusArgs, StatusOk, StatusRes, SyncArgs, SyncOk, SyncRes};
use steadfast_wire::rpc::{CallHeader, OpaqueAuth, ReplyHeader, ReplyStatus};
use steadfast_wire::rpcbind::Binding;
use steadfast_xdr::{Decode, Encode, Reader};

fn check<'a, T>(value: &T, bytes: &'a [u8])
where
    T: Encode + Decode<'a> + PartialEq + std::fmt::Debug,
{
    assert_eq!(super::written(value), bytes);
    let mut r = Reader::new(bytes);
    assert_eq!(T::decode(&mut r).as_ref(), Ok(value));
    assert!(r.is_empty());
}

#[test]
fn a_call_with_auth_sys() {
    let cred = b"\0\0\0\0\0\0\0\x02ab\0\0\0\0\x03\xe8\0\0\0\x64\0\0\0\0";
    let call = CallHeader {
        xid: 0xdead_beef,
        rpcvers: 2,
        prog: 100_003,
        vers: 3,
        proc_: 1,
        cred: OpaqueAuth { flavor: 1, body: cred },
        verf: OpaqueAuth { flavor: 0, body: b"" },
    };
    check(
        &call,
        b"\xde\xad\xbe\xef\0\0\0\0\0\0\0\x02\0\x01\x86\xa3\0\0\0\x03\0\0\0\x01\
          \0\0\0\x01\0\0\0\x18\0\0\0\0\0\0\0\x02ab\0\0\0\0\x03\xe8\0\0\0\x64\0\0\0\0\
          \0\0\0\0\0\0\0\0",
    );
}

#[test]
fn what_replies_say() {
    let done = ReplyHeader { xid: 0xdead_beef, status: ReplyStatus::Accepted(0) };
    check(&done, b"\xde\xad\xbe\xef\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    let unknown = ReplyHeader { xid: 1, status: ReplyStatus::Accepted(1) };
    check(&unknown, b"\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01");
    let denied = ReplyHeader { xid: 2, status: ReplyStatus::Denied(1) };
    check(&denied, b"\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\0\0\x01");
    for no_reply in [&b"\0\0\0\x02\0\0\0\0"[..], b"\0\0\0\x02\0\0\0\x01\0\0\0\x02"] {
        assert!(ReplyHeader::decode(&mut Reader::new(no_reply)).is_err());
    }
}

#[test]
fn a_write() {
    let write = Write3Args {
        file: NfsFh3(b"\x01\x02\x03\x04\x05"),
        offset: 0x1_0000_0000,
        count: 3,
        stable: StableHow::FileSync,
        data: b"abc",
    };
    check(
        &write,
        b"\0\0\0\x05\x01\x02\x03\x04\x05\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x03\0\0\0\x02\
          \0\0\0\x03abc\0",
    );
}

#[test]
fn a_guarded_create() {
    let create = Create3Args {
        where_: DirOpArgs3 { dir: NfsFh3(b"root"), name: b"f" },
        how: CreateHow3::Guarded(Sattr3 {
            mode: Some(0o644),
            uid: None,
            gid: None,
            size: Some(0),
            atime: SetTime3::SetToServerTime,
            mtime: SetTime3::SetToClientTime(NfsTime3 { seconds: 5, nseconds: 6 }),
        }),
    };
    check(
        &create,
        b"\0\0\0\x04root\0\0\0\x01f\0\0\0\0\0\0\x01\
          \0\0\0\x01\0\0\x01\xa4\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\
          \0\0\0\x01\0\0\0\x02\0\0\0\x05\0\0\0\x06",
    );
}

#[test]
fn a_list_of_exports() {
    let exports = List(vec![
        ExportEntry { directory: b"/a", groups: List(vec![Group { name: b"*" }]) },
        ExportEntry { directory: b"/bcd", groups: List(vec![]) },
    ]);
    check(
        &exports,
        b"\0\0\0\x01\0\0\0\x02/a\0\0\0\0\0\x01\0\0\0\x01*\0\0\0\0\0\0\0\
          \0\0\0\x01\0\0\0\x04/bcd\0\0\0\0\0\0\0\0",
    );
}

#[test]
fn a_binding() {
    let binding =
        Binding { prog: 100_003, vers: 3, netid: b"tcp", addr: b"0.0.0.0.8.1", owner: b"" };
    check(&binding, b"\0\x01\x86\xa3\0\0\0\x03\0\0\0\x03tcp\0\0\0\0\x0b0.0.0.0.8.1\0\0\0\0\0");
}

/// As docs/recovery.md has it.
#[test]
fn the_recovery_program() {
    let object = NfsFh3(b"\x01\x02\x03\x04\x05");
    let handle = b"\0\0\0\x05\x01\x02\x03\x04\x05\0\0\0";
    check(&StatusArgs { object }, handle);
    check(&SyncArgs { object }, handle);
    let verifier = *b"verifier";
    let status = StatusOk { is_async: true, verifier, flags: 0 };
    check(&StatusRes::Ok(status), b"\0\0\0\0\0\0\0\x01verifier\0\0\0\0");
    let status = StatusOk { is_async: false, verifier, flags: 0x8000_0001 };
    check(&StatusRes::Ok(status), b"\0\0\0\0\0\0\0\0verifier\x80\0\0\x01");
    check(&SyncRes::Ok(SyncOk { verifier }), b"\0\0\0\0verifier");
    check(&StatusRes::Failed(NfsStat3::Stale), b"\0\0\0\x46");
    check(&SyncRes::Failed(NfsStat3::Io), b"\0\0\0\x05");
}
