//! Messages byte by byte, put together by hand from the RFCs: what holds reader and writer to
//! the protocol, not only to each other.

use steadfast_wire::List;
use steadfast_wire::mount::{ExportEntry, FhStatus, Group, MountEntry, MountRes3, Mounted3};
use steadfast_wire::nfs3::{
    Access3Ok, Access3Res, Changed3Res, Commit3Ok, Commit3Res, Create3Args, CreateHow3, DirOpArgs3,
    Entry3, EntryPlus3, Fattr3, FileType3, Fsinfo3Ok, Fsinfo3Res, Fsstat3Ok, Fsstat3Res,
    Getattr3Res, Link3Res, Linked3, Lookup3Ok, Lookup3Res, Made3Ok, Made3Res, NfsFh3, NfsStat3,
    NfsTime3, Nothing3, Pathconf3Ok, Pathconf3Res, Read3Ok, Read3Res, Readdir3Ok, Readdir3Res,
    Readdirplus3Ok, Readdirplus3Res, Readlink3Ok, Readlink3Res, Rename3Res, Renamed3, Res3, Sattr3,
    SetTime3, SpecData3, StableHow, WccAttr3, WccData3, Write3Args, Write3Ok, Write3Res,
};
use steadfast_wire::nfsacl::{AclEntry, AclList, Getacl3Ok, Getacl3Res, SecAttr};
use steadfast_wire::recovery::{
    ReadzOk, ReadzRes, StatusArgs, StatusOk, StatusRes, SyncArgs, SyncOk, SyncRes, WritezArgs,
};
use steadfast_wire::rpc::{
    AcceptStat, AuthStat, AuthSys, CallHeader, OpaqueAuth, RejectStat, ReplyHeader, ReplyStatus,
};
use steadfast_wire::rpcbind::{AddressEntry, Binding, Mapping, VersionStatistics};
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
    check(&AuthSys::new(b"ab", 1000, 100, &[]), cred);
    let call = CallHeader {
        xid: 0xdead_beef,
        rpcvers: 2,
        prog: 100_003,
        vers: 3,
        proc_: 1,
        cred: OpaqueAuth { flavor: 1, body: cred },
        verf: OpaqueAuth::NONE,
    };
    check(
        &call,
        b"\xde\xad\xbe\xef\0\0\0\0\0\0\0\x02\0\x01\x86\xa3\0\0\0\x03\0\0\0\x01\
          \0\0\0\x01\0\0\0\x18\0\0\0\0\0\0\0\x02ab\0\0\0\0\x03\xe8\0\0\0\x64\0\0\0\0\
          \0\0\0\0\0\0\0\0",
    );
    let sys = AuthSys { stamp: 7, ..AuthSys::new(b"m", 1, 2, &[3, 0xffff_ffff]) };
    check(
        &sys,
        b"\0\0\0\x07\0\0\0\x01m\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0\x02\0\0\0\x03\xff\xff\xff\xff",
    );
}

/// RFC 5531 §9, by number.
#[test]
fn what_replies_say() {
    let accepted = |stat, bytes: &[u8]| {
        let head = b"\xde\xad\xbe\xef\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0";
        check(&ReplyHeader::accepted(0xdead_beef, stat), &[&head[..], bytes].concat());
    };
    accepted(AcceptStat::Success, b"\0\0\0\0");
    accepted(AcceptStat::ProgUnavail, b"\0\0\0\x01");
    accepted(AcceptStat::ProgMismatch { low: 3, high: 4 }, b"\0\0\0\x02\0\0\0\x03\0\0\0\x04");
    accepted(AcceptStat::ProcUnavail, b"\0\0\0\x03");
    accepted(AcceptStat::GarbageArgs, b"\0\0\0\x04");
    accepted(AcceptStat::SystemErr, b"\0\0\0\x05");
    accepted(AcceptStat::Other(6), b"\0\0\0\x06");
    let denied = |stat, bytes: &[u8]| {
        let head = b"\0\0\0\x02\0\0\0\x01\0\0\0\x01";
        check(&ReplyHeader::denied(2, stat), &[&head[..], bytes].concat());
    };
    denied(RejectStat::RpcMismatch { low: 2, high: 2 }, b"\0\0\0\0\0\0\0\x02\0\0\0\x02");
    denied(RejectStat::AuthError(AuthStat::BadVerf as u32), b"\0\0\0\x01\0\0\0\x03");
    denied(RejectStat::AuthError(13), b"\0\0\0\x01\0\0\0\x0d");
    denied(RejectStat::Other(2), b"\0\0\0\x02");
    let verf = OpaqueAuth { flavor: 6, body: b"mic" };
    let proven = ReplyStatus::Accepted { verf, stat: AcceptStat::Success };
    check(
        &ReplyHeader { xid: 1, status: proven },
        b"\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\x06\0\0\0\x03mic\0\0\0\0\0",
    );
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
    let writez = WritezArgs {
        file: object,
        offset: 6,
        count: 7,
        stable: StableHow::FileSync,
        frame: b"frame",
    };
    let bytes =
        [&handle[..], b"\0\0\0\0\0\0\0\x06\0\0\0\x07\0\0\0\x02\0\0\0\x05frame\0\0\0"].concat();
    check(&writez, &bytes);
    let readz =
        ReadzOk { file_attributes: None, count: 9, eof: true, is_compressed: true, data: b"abc" };
    let bytes = b"\0\0\0\0\0\0\0\0\0\0\0\x09\0\0\0\x01\0\0\0\x01\0\0\0\x03abc\0";
    check::<ReadzRes<'_>>(&Res3::Ok(readz), bytes);
    check::<ReadzRes<'_>>(&Res3::Failed(NfsStat3::Stale, None), b"\0\0\0\x46\0\0\0\0");
}

const FATTR: Fattr3 = Fattr3 {
    file_type: FileType3::Dir,
    mode: 0o755,
    nlink: 2,
    uid: 3,
    gid: 4,
    size: 5,
    used: 6,
    rdev: SpecData3 { specdata1: 7, specdata2: 8 },
    fsid: 9,
    fileid: 10,
    atime: NfsTime3 { seconds: 11, nseconds: 12 },
    mtime: NfsTime3 { seconds: 13, nseconds: 14 },
    ctime: NfsTime3 { seconds: 15, nseconds: 16 },
};

/// `fattr3`, RFC 1813 §2.6.
const FATTR_BYTES: &[u8; 84] = b"\0\0\0\x02\0\0\x01\xed\0\0\0\x02\0\0\0\x03\0\0\0\x04\
    \0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0\x07\0\0\0\x08\
    \0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x0a\
    \0\0\0\x0b\0\0\0\x0c\0\0\0\x0d\0\0\0\x0e\0\0\0\x0f\0\0\0\x10";

const YES: &[u8] = b"\0\0\0\x01";
const NO: &[u8] = b"\0\0\0\0";

/// RFC 1813 §3.3.1, §3.3.2, §3.3.3, §3.3.6, §3.3.7.
#[test]
fn results_of_nfs3() {
    let all = Some(FATTR);
    check::<Getattr3Res>(&Res3::Ok(FATTR), &[NO, FATTR_BYTES].concat());
    check::<Getattr3Res>(&Res3::Failed(NfsStat3::Stale, Nothing3), b"\0\0\0\x46");

    let (wcc, wcc_bytes) = wcc();
    let failed = [&b"\0\0\x27\x12"[..], &wcc_bytes].concat();
    check::<Changed3Res>(&Res3::Failed(NfsStat3::NotSync, wcc), &failed);

    let found = Lookup3Ok { object: NfsFh3(b"h"), obj_attributes: all, dir_attributes: None };
    let bytes = [NO, b"\0\0\0\x01h\0\0\0", YES, FATTR_BYTES, NO].concat();
    check::<Lookup3Res<'_>>(&Res3::Ok(found), &bytes);
    check::<Lookup3Res<'_>>(&Res3::Failed(NfsStat3::NoEnt, None), b"\0\0\0\x02\0\0\0\0");

    let read = Read3Ok { file_attributes: None, count: 3, eof: true, data: b"abc" };
    let bytes = b"\0\0\0\0\0\0\0\0\0\0\0\x03\0\0\0\x01\0\0\0\x03abc\0";
    check::<Read3Res<'_>>(&Res3::Ok(read), bytes);

    let committed = StableHow::DataSync;
    let written = Write3Ok { file_wcc: wcc, count: 9, committed, verf: *b"verifier" };
    let tail = b"\0\0\0\x09\0\0\0\x01verifier";
    check::<Write3Res>(&Res3::Ok(written), &[NO, &wcc_bytes, tail].concat());
}

/// RFC 1813 §3.3.17.
#[test]
fn a_listing_with_attributes() {
    let entry = EntryPlus3 {
        fileid: 1,
        name: b"ab",
        cookie: 2,
        name_attributes: Some(FATTR),
        name_handle: Some(NfsFh3(b"hand")),
    };
    let bare = EntryPlus3 { name_attributes: None, name_handle: None, ..entry };
    let listing = Readdirplus3Ok {
        dir_attributes: None,
        cookieverf: *b"verifier",
        entries: List(vec![entry, bare]),
        eof: true,
    };
    let named = b"\0\0\0\0\0\0\0\x01\0\0\0\x02ab\0\0\0\0\0\0\0\0\0\x02";
    let handle = b"\0\0\0\x04hand";
    let first = [YES, named, YES, FATTR_BYTES, YES, handle].concat();
    let second = [YES, named, NO, NO].concat();
    let bytes = [NO, NO, b"verifier", &first, &second, NO, YES].concat();
    check::<Readdirplus3Res<'_>>(&Res3::Ok(listing), &bytes);
}

/// `wcc_data` (RFC 1813 §2.6) with both parts, and with none.
fn wcc() -> (WccData3, Vec<u8>) {
    let (mtime, ctime) = (FATTR.mtime, FATTR.ctime);
    let before = Some(WccAttr3 { size: 1, mtime, ctime });
    let bytes = b"\0\0\0\0\0\0\0\x01\0\0\0\x0d\0\0\0\x0e\0\0\0\x0f\0\0\0\x10";
    (WccData3 { before, after: Some(FATTR) }, [YES, bytes, YES, FATTR_BYTES].concat())
}
const NO_WCC: WccData3 = WccData3 { before: None, after: None };

/// RFC 1813 §3.3.4, §3.3.5, §3.3.8 to §3.3.11, §3.3.14, §3.3.15, §3.3.21.
#[test]
fn results_about_names_and_rights() {
    let all = Some(FATTR);
    let attributes = [YES, FATTR_BYTES].concat();
    let (wcc, wcc_bytes) = wcc();

    let access = Access3Ok { obj_attributes: all, access: 0x2f };
    check::<Access3Res>(&Res3::Ok(access), &[NO, &attributes, b"\0\0\0\x2f"].concat());
    let failed = Res3::Failed(NfsStat3::Stale, all);
    check::<Access3Res>(&failed, &[b"\0\0\0\x46", &attributes[..]].concat());

    let link = Readlink3Ok { symlink_attributes: all, data: b"a/b/c" };
    let bytes = [NO, &attributes, b"\0\0\0\x05a/b/c\0\0\0"].concat();
    check::<Readlink3Res<'_>>(&Res3::Ok(link), &bytes);

    let made = Made3Ok { obj: Some(NfsFh3(b"hand")), obj_attributes: all, dir_wcc: wcc };
    let bytes = [NO, YES, b"\0\0\0\x04hand", &attributes, &wcc_bytes].concat();
    check::<Made3Res<'_>>(&Res3::Ok(made), &bytes);
    let made = Made3Ok { obj: None, obj_attributes: None, dir_wcc: wcc };
    check::<Made3Res<'_>>(&Res3::Ok(made), &[NO, NO, NO, &wcc_bytes].concat());

    let from_first = Renamed3 { fromdir_wcc: wcc, todir_wcc: NO_WCC };
    check::<Rename3Res>(&Res3::Ok(from_first), &[NO, &wcc_bytes, NO, NO].concat());
    let to_last = Renamed3 { fromdir_wcc: NO_WCC, todir_wcc: wcc };
    let bytes = [b"\0\0\0\x11", NO, NO, &wcc_bytes].concat();
    check::<Rename3Res>(&Res3::Failed(NfsStat3::Exist, to_last), &bytes);

    let linked = Linked3 { file_attributes: all, linkdir_wcc: wcc };
    check::<Link3Res>(&Res3::Ok(linked), &[NO, &attributes, &wcc_bytes].concat());

    let committed = Commit3Ok { file_wcc: wcc, verf: *b"verifier" };
    check::<Commit3Res>(&Res3::Ok(committed), &[NO, &wcc_bytes, b"verifier"].concat());
}

/// RFC 1813 §3.3.16, §3.3.18 to §3.3.20.
#[test]
fn results_about_directories_and_file_systems() {
    let all = Some(FATTR);
    let attributes = [YES, FATTR_BYTES].concat();

    let entries = List(vec![
        Entry3 { fileid: 1, name: b"ab", cookie: 2 },
        Entry3 { fileid: 3, name: b"cdefg", cookie: 0x1_0000_0004 },
    ]);
    let listing = Readdir3Ok { dir_attributes: all, cookieverf: *b"verifier", entries, eof: true };
    let first = b"\0\0\0\0\0\0\0\x01\0\0\0\x02ab\0\0\0\0\0\0\0\0\0\x02";
    let second = b"\0\0\0\0\0\0\0\x03\0\0\0\x05cdefg\0\0\0\0\0\0\x01\0\0\0\x04";
    let bytes = [NO, &attributes, b"verifier", YES, first, YES, second, NO, YES].concat();
    check::<Readdir3Res<'_>>(&Res3::Ok(listing), &bytes);

    let statistics = Fsstat3Ok {
        obj_attributes: all,
        tbytes: 0x31,
        fbytes: 0x32,
        abytes: 0x33,
        tfiles: 0x34,
        ffiles: 0x35,
        afiles: 0x36,
        invarsec: 0x37,
    };
    let sizes = (0x31..=0x36_u64).flat_map(u64::to_be_bytes).collect::<Vec<_>>();
    let bytes = [NO, &attributes, &sizes, b"\0\0\0\x37"].concat();
    check::<Fsstat3Res>(&Res3::Ok(statistics), &bytes);

    let info = Fsinfo3Ok {
        obj_attributes: all,
        rtmax: 0x41,
        rtpref: 0x42,
        rtmult: 0x43,
        wtmax: 0x44,
        wtpref: 0x45,
        wtmult: 0x46,
        dtpref: 0x47,
        maxfilesize: 0x48,
        time_delta: NfsTime3 { seconds: 0x49, nseconds: 0x4a },
        properties: 0x4b,
    };
    let sizes = (0x41..=0x47_u32).flat_map(u32::to_be_bytes).collect::<Vec<_>>();
    let tail = b"\0\0\0\0\0\0\0\x48\0\0\0\x49\0\0\0\x4a\0\0\0\x4b";
    check::<Fsinfo3Res>(&Res3::Ok(info), &[NO, &attributes, &sizes, tail].concat());

    // One is true in each: two of them cannot change places.
    for place in 0..4 {
        let is = |number| number == place;
        let configuration = Pathconf3Ok {
            obj_attributes: all,
            linkmax: 0x51,
            name_max: 0x52,
            no_trunc: is(0),
            chown_restricted: is(1),
            case_insensitive: is(2),
            case_preserving: is(3),
        };
        let flags = (0..4).flat_map(|number| u32::from(is(number)).to_be_bytes());
        let flags = flags.collect::<Vec<_>>();
        let bytes = [NO, &attributes, b"\0\0\0\x51\0\0\0\x52", &flags].concat();
        check::<Pathconf3Res>(&Res3::Ok(configuration), &bytes);
    }
}

/// As Linux has it: `nfs_acl`, version 3.
#[test]
fn results_of_getacl() {
    let entry = |tag, id, permissions| AclEntry { tag, id, permissions };
    let acls = SecAttr {
        mask: 15,
        access: AclList { count: 5, entries: vec![entry(1, 2, 7), entry(0x20, 3, 4)] },
        default: AclList { count: 6, entries: vec![entry(0x1001, 8, 5)] },
    };
    let attributes = [YES, FATTR_BYTES].concat();
    let words = [15, 5, 2, 1, 2, 7, 0x20, 3, 4, 6, 1, 0x1001, 8, 5];
    let words = words.iter().flat_map(|word: &u32| word.to_be_bytes()).collect::<Vec<_>>();
    let got = Getacl3Ok { obj_attributes: Some(FATTR), acls };
    check::<Getacl3Res>(&Res3::Ok(got), &[NO, &attributes, &words].concat());
}

/// RFC 1813 §5.2.1 and §5.2.2, RFC 1094 appendix A.
#[test]
fn results_of_mount() {
    let mounted =
        Mounted3 { fhandle: NfsFh3(b"abcde"), auth_flavors: [1, 0].into_iter().collect() };
    let bytes = b"\0\0\0\0\0\0\0\x05abcde\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0\0";
    check(&MountRes3::Ok(mounted), bytes);
    check(&MountRes3::Failed(13), b"\0\0\0\x0d");
    check(&FhStatus::Ok([7; 32]), &[NO, &[7; 32]].concat());
    check(&FhStatus::Failed(2), b"\0\0\0\x02");
    let list = List(vec![MountEntry { hostname: b"me", directory: b"/a" }]);
    check(&list, b"\0\0\0\x01\0\0\0\x02me\0\0\0\0\0\x02/a\0\0\0\0\0\0");
}

/// RFC 1833 §2.1 and §3.1.
#[test]
fn results_of_rpcbind() {
    let list = List(vec![Mapping { prog: 100_003, vers: 3, prot: 6, port: 2049 }]);
    let bytes = b"\0\0\0\x01\0\x01\x86\xa3\0\0\0\x03\0\0\0\x06\0\0\x08\x01\0\0\0\0";
    check(&list, bytes);
    let entry = AddressEntry {
        maddr: b"::.8.1",
        nc_netid: b"tcp6",
        nc_semantics: 3,
        nc_protofmly: b"inet6",
        nc_proto: b"tcp",
    };
    let bytes = b"\0\0\0\x01\0\0\0\x06::.8.1\0\0\0\0\0\x04tcp6\0\0\0\x03\
        \0\0\0\x05inet6\0\0\0\0\0\0\x03tcp\0\0\0\0\0";
    check(&List(vec![entry]), bytes);
    let info = std::array::from_fn(|index| index as u32);
    let (addrinfo, rmtinfo) = (List(Vec::new()), List(Vec::new()));
    let statistics = VersionStatistics { info, setinfo: 13, unsetinfo: 14, addrinfo, rmtinfo };
    let words = (0..15_u32).chain([0, 0]);
    check(&statistics, &words.flat_map(u32::to_be_bytes).collect::<Vec<_>>());
}
