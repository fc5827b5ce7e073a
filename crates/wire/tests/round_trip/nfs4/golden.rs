//! Messages of NFSv4 byte by byte, put together by hand from RFC 7530, RFC 7531, RFC 8881, RFC 5662,
//! RFC 7863 and RFC 8276.

use steadfast_wire::nfs3::StableHow;
use steadfast_wire::nfs4::{
    Ace4, Allocate4Args, Attribute4, BindConnToSession4Result, Bitmap4, CallbackClient4,
    CallbackCompoundHead4, CallbackGetAttr4Args, CallbackGetAttr4Result, CallbackNotifyLock4Args,
    CallbackOp4, CallbackSec4, CallbackSequence4Args, CallbackSequence4Result, ChangeInfo4,
    ChannelAttributes4, ClientInUse4, Clone4Args, Close4Args, Content4, Copy4Args, Copy4Result,
    CopyRequirements4, Create4Args, CreateSession4Args, CreateSession4Result, CreateType4,
    ExchangeId4Args, ExchangeId4Result, Fattr4, GetXattr4Result, ImplementationId4, IoAdvise4Args,
    ListXattrs4Args, ListXattrs4Result, Lock4Args, LockDenied4, LockOwner4, LockType4, LockU4Args,
    Locker4, NetLoc4, NfsStat4, Op4, Open4Args, Open4Result, OpenArguments4, OpenClaim4,
    OpenConfirm4Args, OpenDelegation4, OpenDowngrade4Args, OpenHow4, Read4Args, Read4Result,
    ReadPlus4Args, ReadPlus4Result, ReferringCall4, ReferringCallList4, ReleaseLockOwner4Args,
    Renew4Args, SecFlavour4, SecInfo4Result, Seek4Args, Seek4Result, SetClientId4Args,
    SetClientId4Result, SetClientIdConfirm4Args, SetXattr4Args, SetXattrOption4, SpaceLimit4,
    StateId4, StateProtect4, StateProtectResult4, TestStateId4Result, Write4Args, XattrName4Args,
};
use steadfast_wire::rpc::AuthSys;
use steadfast_xdr::{Decode, Encode, Reader};

fn check<'a, T>(value: &T, bytes: &'a [u8])
where
    T: Encode + Decode<'a> + PartialEq + std::fmt::Debug,
{
    assert_eq!(super::super::written(value), bytes);
    let mut r = Reader::new(bytes);
    assert_eq!(T::decode(&mut r).as_ref(), Ok(value));
    assert!(r.is_empty());
}

/// SEQUENCE, PUTFH, READDIR of type and fileid, as minor version 1 has them.
pub(super) const COMPOUND: &[u8] = b"\0\0\0\x02ls\0\0\0\0\0\x01\0\0\0\x03\
    \0\0\0\x35sessionsessionid\0\0\0\x07\0\0\0\x02\0\0\0\x03\0\0\0\0\
    \0\0\0\x16\0\0\0\x03dir\0\
    \0\0\0\x1a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0\x20\0\0\0\0\x01\0\x10\0\x02";

const STATEID: StateId4 = StateId4 { seqid: 1, other: *b"other-of-12b" };

#[test]
fn sets_of_attributes() {
    check(&Bitmap4::EMPTY, b"\0\0\0\0");
    let linux = Bitmap4::of(&[
        Attribute4::Type,
        Attribute4::Change,
        Attribute4::Size,
        Attribute4::FsId,
        Attribute4::FileId,
        Attribute4::Mode,
        Attribute4::NumLinks,
        Attribute4::Owner,
        Attribute4::OwnerGroup,
        Attribute4::RawDev,
        Attribute4::SpaceUsed,
        Attribute4::TimeAccess,
        Attribute4::TimeMetadata,
        Attribute4::TimeModify,
        Attribute4::MountedOnFileId,
    ]);
    // As a trace of the kernel's client has it.
    check(&linux, b"\0\0\0\x02\0\x10\x01\x1a\0\xb0\xa2\x3a");
    check(&Bitmap4::of(&[Attribute4::SuppAttrExclCreat]), b"\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\x08\0");
}

#[test]
fn an_open_that_makes_a_file() {
    let mode = Fattr4 { attrmask: Bitmap4::of(&[Attribute4::Mode]), attr_vals: b"\0\0\x01\xa4" };
    let open = Open4Args {
        seqid: 0,
        share_access: 0x403,
        share_deny: 2,
        clientid: 9,
        owner: b"me",
        openhow: OpenHow4::Exclusive41(*b"verifier", mode),
        claim: OpenClaim4::Null(b"name"),
    };
    check(
        &open,
        b"\0\0\0\0\0\0\x04\x03\0\0\0\x02\0\0\0\0\0\0\0\x09\0\0\0\x02me\0\0\
          \0\0\0\x01\0\0\0\x03verifier\0\0\0\x02\0\0\0\0\0\0\0\x02\0\0\0\x04\0\0\x01\xa4\
          \0\0\0\0\0\0\0\x04name",
    );
    let again =
        Open4Args { openhow: OpenHow4::NoCreate, claim: OpenClaim4::DelegCurFh(STATEID), ..open };
    check(
        &again,
        b"\0\0\0\0\0\0\x04\x03\0\0\0\x02\0\0\0\0\0\0\0\x09\0\0\0\x02me\0\0\
          \0\0\0\0\0\0\0\x05\0\0\0\x01other-of-12b",
    );
}

#[test]
fn what_open_brings() {
    let opened = Open4Result {
        stateid: STATEID,
        cinfo: ChangeInfo4 { atomic: true, before: 4, after: 5 },
        rflags: 4,
        attrset: Bitmap4::of(&[Attribute4::Mode]),
        delegation: OpenDelegation4::NoneButTells(1, true),
    };
    check(
        &opened,
        b"\0\0\0\x01other-of-12b\0\0\0\x01\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x05\0\0\0\x04\
          \0\0\0\x02\0\0\0\0\0\0\0\x02\0\0\0\x03\0\0\0\x01\0\0\0\x01",
    );
    let everybody = Ace4 { kind: 0, flag: 0, access_mask: 1, who: b"EVERYONE@" };
    check(
        &OpenDelegation4::Write {
            stateid: STATEID,
            recall: false,
            space_limit: SpaceLimit4::Blocks(2, 512),
            permissions: everybody,
        },
        b"\0\0\0\x02\0\0\0\x01other-of-12b\0\0\0\0\0\0\0\x02\0\0\0\x02\0\0\x02\0\
          \0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x09EVERYONE@\0\0\0",
    );
    check(&OpenDelegation4::NoneSince(0), b"\0\0\0\x03\0\0\0\0");
    check(&OpenDelegation4::None, b"\0\0\0\0");
}

#[test]
fn reading_and_writing() {
    let read = Read4Args { stateid: STATEID, offset: 1 << 32, count: 5 };
    check(&read, b"\0\0\0\x01other-of-12b\0\0\0\x01\0\0\0\0\0\0\0\x05");
    check(&Read4Result { eof: true, data: b"12345" }, b"\0\0\0\x01\0\0\0\x0512345\0\0\0");
    let write =
        Write4Args { stateid: STATEID, offset: 1, stable: StableHow::DataSync, data: b"ab" };
    check(&write, b"\0\0\0\x01other-of-12b\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x02ab\0\0");
}

#[test]
fn locks() {
    let lock_owner = LockOwner4 { clientid: 3, owner: b"who" };
    let first = Lock4Args {
        locktype: LockType4::WriteWaiting,
        reclaim: false,
        offset: 1,
        length: u64::MAX,
        locker: Locker4::Open { open_seqid: 0, open_stateid: STATEID, lock_seqid: 0, lock_owner },
    };
    check(
        &first,
        b"\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xff\
          \0\0\0\x01\0\0\0\0\0\0\0\x01other-of-12b\0\0\0\0\0\0\0\0\0\0\0\x03\0\0\0\x03who\0",
    );
    let unlock = LockU4Args {
        locktype: LockType4::Read,
        seqid: 0,
        lock_stateid: STATEID,
        offset: 0,
        length: 1,
    };
    check(&unlock, b"\0\0\0\x01\0\0\0\0\0\0\0\x01other-of-12b\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01");
    let denied =
        LockDenied4 { offset: 2, length: 3, locktype: LockType4::Write, owner: lock_owner };
    check(
        &denied,
        b"\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\x03who\0",
    );
}

#[test]
fn making_a_device() {
    let create = Create4Args {
        objtype: CreateType4::CharacterDevice(1, 3),
        objname: b"null",
        createattrs: Fattr4 { attrmask: Bitmap4::EMPTY, attr_vals: b"" },
    };
    check(&create, b"\0\0\0\x04\0\0\0\x01\0\0\0\x03\0\0\0\x04null\0\0\0\0\0\0\0\0");
}

#[test]
fn a_client_makes_itself_known() {
    let id = ImplementationId4 { domain: b"org", name: b"c", date_seconds: -2, date_nseconds: 3 };
    let arguments = ExchangeId4Args {
        verifier: *b"verifier",
        ownerid: b"me",
        flags: 0x103,
        state_protect: StateProtect4::None,
        client_impl_id: vec![id],
    };
    check(
        &arguments,
        b"verifier\0\0\0\x02me\0\0\0\0\x01\x03\0\0\0\0\
          \0\0\0\x01\0\0\0\x03org\0\0\0\0\x01c\0\0\0\xff\xff\xff\xff\xff\xff\xff\xfe\0\0\0\x03",
    );
    let result = ExchangeId4Result {
        clientid: 0x0102_0304_0506_0708,
        sequenceid: 1,
        flags: 0x8001_0000,
        state_protect: StateProtectResult4::None,
        server_minor_id: 5,
        server_major_id: b"srv",
        server_scope: b"here",
        server_impl_id: Vec::new(),
    };
    check(
        &result,
        b"\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x01\x80\x01\0\0\0\0\0\0\
          \0\0\0\0\0\0\0\x05\0\0\0\x03srv\0\0\0\0\x04here\0\0\0\0",
    );
}

fn channel(rdma_ird: Vec<u32>) -> ChannelAttributes4 {
    ChannelAttributes4 {
        headerpadsize: 0,
        maxrequestsize: 0x0010_0400,
        maxresponsesize: 0x0010_0200,
        maxresponsesize_cached: 0x800,
        maxoperations: 8,
        maxrequests: 64,
        rdma_ird,
    }
}

#[test]
fn a_session_is_made() {
    let arguments = CreateSession4Args {
        clientid: 9,
        sequence: 2,
        flags: 3,
        fore: channel(Vec::new()),
        back: channel(vec![6]),
        cb_program: 0x4000_0000,
        sec_parms: vec![
            CallbackSec4::Sys(AuthSys { stamp: 1, ..AuthSys::new(b"host", 2, 3, &[4]) }),
            CallbackSec4::None,
        ],
    };
    check(
        &arguments,
        b"\0\0\0\0\0\0\0\x09\0\0\0\x02\0\0\0\x03\
          \0\0\0\0\0\x10\x04\0\0\x10\x02\0\0\0\x08\0\0\0\0\x08\0\0\0\x40\0\0\0\0\
          \0\0\0\0\0\x10\x04\0\0\x10\x02\0\0\0\x08\0\0\0\0\x08\0\0\0\x40\0\0\0\x01\0\0\0\x06\
          \x40\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\0\0\x04host\0\0\0\x02\0\0\0\x03\
          \0\0\0\x01\0\0\0\x04\0\0\0\0",
    );
    let result = CreateSession4Result {
        sessionid: *b"sessionsessionid",
        sequence: 2,
        flags: 2,
        fore: channel(Vec::new()),
        back: channel(Vec::new()),
    };
    check(
        &result,
        b"sessionsessionid\0\0\0\x02\0\0\0\x02\
          \0\0\0\0\0\x10\x04\0\0\x10\x02\0\0\0\x08\0\0\0\0\x08\0\0\0\x40\0\0\0\0\
          \0\0\0\0\0\x10\x04\0\0\x10\x02\0\0\0\x08\0\0\0\0\x08\0\0\0\x40\0\0\0\0",
    );
    let bound = BindConnToSession4Result {
        sessionid: *b"sessionsessionid",
        dir: 3,
        use_conn_in_rdma_mode: false,
    };
    check(&bound, b"sessionsessionid\0\0\0\x03\0\0\0\0");
}

#[test]
fn flavours_and_states() {
    let flavours = vec![SecFlavour4::Gss(b"\x2a\x86", 0, 2), SecFlavour4::Other(1)];
    check(
        &SecInfo4Result { flavours },
        b"\0\0\0\x02\0\0\0\x06\0\0\0\x02\x2a\x86\0\0\0\0\0\0\0\0\0\x02\0\0\0\x01",
    );
    let status_codes = vec![NfsStat4::Ok, NfsStat4::BadStateId];
    check(&TestStateId4Result { status_codes }, b"\0\0\0\x02\0\0\0\0\0\0\x27\x29");
}

#[test]
fn a_client_of_minor_version_0_makes_itself_known() {
    let callback =
        CallbackClient4 { program: 0x4000_0000, netid: b"tcp", address: b"10.0.0.2.3.4" };
    let arguments =
        SetClientId4Args { verifier: *b"verifier", id: b"Linux", callback, callback_ident: 7 };
    check(
        &arguments,
        b"verifier\0\0\0\x05Linux\0\0\0\x40\0\0\0\0\0\0\x03tcp\0\0\0\0\x0c10.0.0.2.3.4\0\0\0\x07",
    );
    let result = SetClientId4Result { clientid: 0x0102_0304_0506_0708, confirm: *b"confirm!" };
    check(&result, b"\x01\x02\x03\x04\x05\x06\x07\x08confirm!");
    let confirm = SetClientIdConfirm4Args { clientid: 9, confirm: *b"confirm!" };
    check(&confirm, b"\0\0\0\0\0\0\0\x09confirm!");
    let in_use = ClientInUse4 { netid: b"tcp", address: b"::1.8.1" };
    check(&in_use, b"\0\0\0\x03tcp\0\0\0\0\x07::1.8.1\0");
    check(&Renew4Args { clientid: 1 << 32 }, b"\0\0\0\x01\0\0\0\0");
}

#[test]
fn sequence_ids_of_owners() {
    let confirm = OpenConfirm4Args { open_stateid: STATEID, seqid: 2 };
    check(&confirm, b"\0\0\0\x01other-of-12b\0\0\0\x02");
    let close = Close4Args { seqid: 3, open_stateid: STATEID };
    check(&close, b"\0\0\0\x03\0\0\0\x01other-of-12b");
    let downgrade =
        OpenDowngrade4Args { open_stateid: STATEID, seqid: 4, share_access: 1, share_deny: 2 };
    check(&downgrade, b"\0\0\0\x01other-of-12b\0\0\0\x04\0\0\0\x01\0\0\0\x02");
    let lock_owner = LockOwner4 { clientid: 3, owner: b"who" };
    check(&ReleaseLockOwner4Args { lock_owner }, b"\0\0\0\0\0\0\0\x03\0\0\0\x03who\0");
    let by_open = Locker4::Open { open_seqid: 5, open_stateid: STATEID, lock_seqid: 6, lock_owner };
    check(
        &by_open,
        b"\0\0\0\x01\0\0\0\x05\0\0\0\x01other-of-12b\0\0\0\x06\0\0\0\0\0\0\0\x03\0\0\0\x03who\0",
    );
    let by_lock = Locker4::Lock { lock_stateid: STATEID, lock_seqid: 7 };
    check(&by_lock, b"\0\0\0\0\0\0\0\x01other-of-12b\0\0\0\x07");
}

#[test]
fn extents_of_minor_version_2() {
    check(&Op4::Allocate, b"\0\0\0\x3b");
    check(&Op4::Clone, b"\0\0\0\x47");
    check(&Op4::RemoveXattr, b"\0\0\0\x4b");
    let allocate = Allocate4Args { stateid: STATEID, offset: 2, length: 1 << 32 };
    check(&allocate, b"\0\0\0\x01other-of-12b\0\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0\0");
    let copy = Copy4Args {
        src_stateid: STATEID,
        dst_stateid: StateId4 { seqid: 2, ..STATEID },
        src_offset: 3,
        dst_offset: 4,
        count: 5,
        consecutive: true,
        synchronous: false,
        source_server: vec![NetLoc4::Name(b"host"), NetLoc4::Address(b"tcp", b"::1.8.1")],
    };
    check(
        &copy,
        b"\0\0\0\x01other-of-12b\0\0\0\x02other-of-12b\
          \0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x05\0\0\0\x01\0\0\0\0\
          \0\0\0\x02\0\0\0\x01\0\0\0\x04host\0\0\0\x03\0\0\0\x03tcp\0\0\0\0\x07::1.8.1\0",
    );
    let copied = Copy4Result {
        callback_id: None,
        count: 9,
        committed: StableHow::FileSync,
        verifier: *b"verifier",
        requirements: CopyRequirements4 { consecutive: true, synchronous: true },
    };
    check(&copied, b"\0\0\0\0\0\0\0\0\0\0\0\x09\0\0\0\x02verifier\0\0\0\x01\0\0\0\x01");
    let clone = Clone4Args {
        src_stateid: STATEID,
        dst_stateid: STATEID,
        src_offset: 1,
        dst_offset: 2,
        count: 0,
    };
    check(
        &clone,
        b"\0\0\0\x01other-of-12b\0\0\0\x01other-of-12b\
          \0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0",
    );
    let hints = Bitmap4::from_words([1 << 4, 0, 0]);
    check(
        &IoAdvise4Args { stateid: STATEID, offset: 1, count: 2, hints },
        b"\0\0\0\x01other-of-12b\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0\x10",
    );
    let seek = Seek4Args { stateid: STATEID, offset: 1, what: 1 };
    check(&seek, b"\0\0\0\x01other-of-12b\0\0\0\0\0\0\0\x01\0\0\0\x01");
    check(&Seek4Result { eof: true, offset: 5 }, b"\0\0\0\x01\0\0\0\0\0\0\0\x05");
    let read = ReadPlus4Args { stateid: STATEID, offset: 1, count: 2 };
    check(&read, b"\0\0\0\x01other-of-12b\0\0\0\0\0\0\0\x01\0\0\0\x02");
    let contents = vec![
        Content4::Hole { offset: 1, length: 4096 },
        Content4::Data { offset: 4097, data: b"data!" },
    ];
    check(
        &ReadPlus4Result { eof: true, contents },
        b"\0\0\0\x01\0\0\0\x02\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\x10\0\
          \0\0\0\0\0\0\0\0\0\0\x10\x01\0\0\0\x05data!\0\0\0",
    );
}

#[test]
fn extended_attributes() {
    check(&XattrName4Args { name: b"colour" }, b"\0\0\0\x06colour\0\0");
    check(&GetXattr4Result { value: b"red" }, b"\0\0\0\x03red\0");
    let set = SetXattr4Args { option: SetXattrOption4::Create, name: b"c", value: b"" };
    check(&set, b"\0\0\0\x01\0\0\0\x01c\0\0\0\0\0\0\0");
    let list = ListXattrs4Args { cookie: 1 << 32, maxcount: 4096 };
    check(&list, b"\0\0\0\x01\0\0\0\0\0\0\x10\0");
    check(
        &ListXattrs4Result { cookie: 2, names: vec![b"a", b"bcd"], eof: true },
        b"\0\0\0\0\0\0\0\x02\0\0\0\x02\0\0\0\x01a\0\0\0\0\0\0\x03bcd\0\0\0\0\x01",
    );
    for (status, number) in [
        (NfsStat4::PartnerNotSupp, 10088),
        (NfsStat4::UnionNotSupp, 10090),
        (NfsStat4::OffloadNoReqs, 10094),
        (NfsStat4::NoXattr, 10095),
        (NfsStat4::Xattr2Big, 10096),
    ] {
        assert_eq!(status as u32, number);
    }
    let of = [Attribute4::CloneBlkSize, Attribute4::ModeUmask, Attribute4::XattrSupport];
    check(&Bitmap4::of(&of), b"\0\0\0\x03\0\0\0\0\0\0\0\0\0\x06\x20\0");
}

#[test]
fn what_open_takes() {
    let told = OpenArguments4 {
        share_access: 14,
        share_deny: 15,
        share_access_want: 1 << 21 | 8,
        open_claim: 0,
        create_mode: 1,
    };
    check(
        &told,
        b"\0\0\0\x01\0\0\0\x0e\0\0\0\x01\0\0\0\x0f\0\0\0\x01\0\x20\0\x08\0\0\0\0\0\0\0\x01\0\0\0\x01",
    );
    check(&Bitmap4::of(&[Attribute4::OpenArguments]), b"\0\0\0\x03\0\0\0\0\0\0\0\0\0\x40\0\0");
    // Longer than is needed.
    let long = b"\0\0\0\x02\0\0\0\x0e\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let read = OpenArguments4::decode(&mut Reader::new(long)).unwrap();
    assert_eq!(read, OpenArguments4 { share_access: 14, ..OpenArguments4::default() });
}

#[test]
fn callbacks() {
    let head =
        CallbackCompoundHead4 { tag: b"t", minorversion: 1, callback_ident: 0, operations: 2 };
    check(&head, b"\0\0\0\x01t\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02");
    check(&CallbackOp4::Sequence, b"\0\0\0\x0b");
    check(&CallbackOp4::NotifyLock, b"\0\0\0\x0d");
    let after = ReferringCall4 { sequenceid: 5, slotid: 6 };
    let sequence = CallbackSequence4Args {
        sessionid: *b"sessionsessionid",
        sequenceid: 7,
        slotid: 2,
        highest_slotid: 3,
        cachethis: false,
        referring: vec![ReferringCallList4 { sessionid: *b"sessionsessionid", calls: vec![after] }],
    };
    check(
        &sequence,
        b"sessionsessionid\0\0\0\x07\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0\x01\
          sessionsessionid\0\0\0\x01\0\0\0\x05\0\0\0\x06",
    );
    let result = CallbackSequence4Result {
        sessionid: *b"sessionsessionid",
        sequenceid: 7,
        slotid: 2,
        highest_slotid: 3,
        target_highest_slotid: 1,
    };
    check(&result, b"sessionsessionid\0\0\0\x07\0\0\0\x02\0\0\0\x03\0\0\0\x01");
    let free = CallbackNotifyLock4Args {
        object: b"file",
        lock_owner: LockOwner4 { clientid: 9, owner: b"me" },
    };
    check(&free, b"\0\0\0\x04file\0\0\0\0\0\0\0\x09\0\0\0\x02me\0\0");
    check(&CallbackOp4::GetAttr, b"\0\0\0\x03");
    let attr_request = Bitmap4::of(&[Attribute4::Change, Attribute4::Size]);
    let asks = CallbackGetAttr4Args { fh: b"file", attr_request };
    check(&asks, b"\0\0\0\x04file\0\0\0\x01\0\0\0\x18");
    let attr_vals = b"\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06";
    let told = Fattr4 { attrmask: attr_request, attr_vals };
    check(
        &CallbackGetAttr4Result { obj_attributes: told },
        b"\0\0\0\x01\0\0\0\x18\0\0\0\x10\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06",
    );
    // Some clients send all words that they know, though nothing is in them.
    for (words, has_more) in
        [(2_u8, false), (3, false), (4, false), (5, false), (4, true), (5, true)]
    {
        let mut bytes = vec![0, 0, 0, words, 0, 0, 0, 0x18];
        bytes.resize(4 + 4 * usize::from(words), 0);
        *bytes.last_mut().unwrap() = u8::from(has_more);
        bytes.extend(*b"\0\0\0\x10\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06");
        let mut r = Reader::new(&bytes);
        let read = CallbackGetAttr4Result::decode(&mut r).unwrap().obj_attributes;
        assert_eq!((read == told, r.is_empty()), (!has_more, true), "{words}");
    }
}
