//! Writes the seeds of all targets into the folder given, from the encoders: small valid inputs
//! to begin with. `run.sh seeds` runs it.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

// For the coverage functions that the instrumented crates refer to.
use libfuzzer_sys as _;
use steadfast_access::helper::{Answer, Question};
use steadfast_access::testing::{ManualClock, ScriptedService};
use steadfast_access::{Bounds, NameBook};
use steadfast_fuzz::capture;
use steadfast_fuzz::intent_log::compact;
use steadfast_fuzz::server::{NO_CHANGE, ROOT, stand_in};
use steadfast_fuzz::written;
use steadfast_intent_log::aside::{AsideHead, write_aside, write_end, write_head};
use steadfast_intent_log::begun::{begin_mark, end_mark, write_begun_head};
use steadfast_intent_log::testing::MemoryMedium;
use steadfast_intent_log::{
    Batch, Identity, IntentLog, Lsn, MARK_FILE_BYTES, MARK_SLOT_BYTES, Mark, Record, format,
    inspect, survey,
};
use steadfast_recovery::{Action, BegunCall, FileSystemIdentity, ObjectKey, Place};
use steadfast_shares::{ClientPattern, Names};
use steadfast_vfs::{CallName, StorageHandle, Time};
use steadfast_wire::mount::{
    DirPath, ExportEntry, FhStatus, Group, MountEntry, MountRes3, Mounted3,
};
use steadfast_wire::nfs3::{
    Access3Args, Commit3Args, Create3Args, CreateHow3, DeviceData3, DirOpArgs3, Getattr3Args,
    Link3Args, Lookup3Args, Mkdir3Args, Mknod3Args, MknodData3, NfsFh3, NfsStat3, NfsTime3,
    Read3Args, Readdir3Args, Readdirplus3Args, Remove3Args, Rename3Args, Sattr3, SetTime3,
    Setattr3Args, SpecData3, StableHow, Symlink3Args, SymlinkData3, Write3Args,
};
use steadfast_wire::nfs4::{
    Bitmap4, Fattr4, GetAttr4Args, Lock4Args, LockOwner4, LockType4, Locker4, Op4, Open4Args,
    OpenClaim4, OpenHow4, PutFh4Args, Read4Args, ReadDir4Args, StateId4, Write4Args,
};
use steadfast_wire::nfsacl::{AclEntry, AclList, Getacl3Args, SecAttr, Setacl3Args};
use steadfast_wire::recovery::{StatusArgs, SyncArgs, WritezArgs};
use steadfast_wire::rpc::{CallHeader, OpaqueAuth};
use steadfast_wire::rpcbind::{AddressEntry, Binding, Mapping, UniversalAddress};
use steadfast_wire::{List, frame, nfs2, nlm, nsm};
use steadfast_xdr::Encode;

/// Root of `/a`, root of `/b`, the file and the directory in `/a`.
const ROOT_A: u8 = 0;
const ROOT_B: u8 = 1;
const FILE: u8 = 2;
const DIRECTORY: u8 = 3;

struct Seeds<'a> {
    folder: &'a Path,
}

impl Seeds<'_> {
    fn put(&self, target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
        let folder = self.folder.join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), bytes)
    }

    /// A value after the number that picks its type.
    fn picked(&self, target: &str, name: &str, which: u8, value: &impl Encode) -> io::Result<()> {
        self.put(target, name, &[vec![which], written(value)].concat())
    }
}

fn main() -> io::Result<()> {
    let folder = std::env::args_os().nth(1).ok_or(io::ErrorKind::InvalidInput)?;
    let seeds = Seeds { folder: Path::new(&folder) };
    let arguments = nfs3_arguments();
    for (procedure, name, bytes) in &arguments {
        seeds.put("nfs3_arguments", name, &[vec![*procedure], bytes.clone()].concat())?;
    }
    results(&seeds)?;
    envelopes(&seeds)?;
    mount(&seeds)?;
    rpcbind(&seeds)?;
    nfsacl(&seeds)?;
    framing(&seeds)?;
    engine(&seeds, &arguments)?;
    nfs2(&seeds)?;
    nfs4(&seeds)?;
    nlm(&seeds)?;
    configuration(&seeds)?;
    names(&seeds)?;
    shares(&seeds)?;
    intent_log(&seeds)?;
    mark(&seeds)?;
    journal(&seeds)?;
    for (which, text) in steadfast_fuzz::facts::SAMPLES {
        seeds.put("doctor_facts", &which.to_string(), &[&[*which], text.as_bytes()].concat())?;
    }
    begun(&seeds)?;
    for (name, bytes) in capture::packet_seeds() {
        seeds.put("capture_packets", name, &bytes)?;
    }
    for (name, bytes) in capture::file_seeds() {
        seeds.put("capture_file", name, &bytes)?;
    }
    for (name, bytes) in capture::stream_seeds() {
        seeds.put("capture_stream", name, &bytes)?;
    }
    seeds.put("xdr_reader", "every_step", b"\x01\x02\x03\x04\x05\x46\x08\x89\xfd\0\0\0\0\0\x01abc")
}

/// Calls of NFSv2, with stand-ins for handles.
fn nfs2(seeds: &Seeds<'_>) -> io::Result<()> {
    let handle = [7; 32];
    let place = nfs2::DirOpArgs2 { dir: nfs2::NfsFh2(&handle), name: b"name" };
    let unset = nfs2::NfsTime2 { seconds: nfs2::UNSET, useconds: nfs2::UNSET };
    let attributes =
        nfs2::Sattr2 { mode: 0o644, uid: 0, gid: 0, size: 0, atime: unset, mtime: unset };
    let symlink = nfs2::Symlink2Args { from: place, to: b"target", attributes };
    let write = nfs2::Write2Args {
        file: place.dir,
        beginoffset: 0,
        offset: 3,
        totalcount: 0,
        data: b"hello",
    };
    seeds.picked("nfs2_arguments", "symlink", 9, &symlink)?;
    seeds.picked("nfs2_arguments", "write", 5, &write)?;
    let (root, file, set) = (b"H2\0\0", b"H2\x02\0", written(&attributes));
    let name = |name: &[u8]| [&root[..], &[0, 0, 0, 4], name].concat();
    let calls: Vec<(u8, Vec<u8>)> = vec![
        (1, file.to_vec()),
        (2, [&file[..], &set].concat()),
        (4, name(b"name")),
        (9, [name(b"name"), set.clone()].concat()),
        (8, [&file[..], &[0; 12], b"\0\0\0\x04abcd"].concat()),
        (6, [&file[..], &[0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0]].concat()),
        (13, [name(b"link"), name(b"text")[4..].to_vec(), set.clone()].concat()),
        (14, [name(b"dir."), set].concat()),
        (12, [file.to_vec(), name(b"hard")].concat()),
        (11, [name(b"hard"), name(b"move")].concat()),
        (16, [&root[..], &[0, 0, 0, 0, 0, 0, 16, 0]].concat()),
        (17, root.to_vec()),
        (10, name(b"move")),
        (15, name(b"dir.")),
        (1, b"H2\0\x50".to_vec()),
    ];
    let calls: Vec<u8> = (1..)
        .zip(&calls)
        .flat_map(|(xid, (procedure, arguments))| step(1, *procedure, xid, arguments))
        .collect();
    seeds.put("engine_call", "all_of_nfs2", &calls)
}

/// COMPOUNDs that make, write, read and list, with stand-ins for handles.
fn nfs4(seeds: &Seeds<'_>) -> io::Result<()> {
    let (root, file) = (stand_in(ROOT_A), stand_in(FILE));
    let put = |handle| [written(&Op4::PutFh), written(&PutFh4Args { object: handle })].concat();
    let current = StateId4 { seqid: 1, other: [0; 12] };
    let all = Bitmap4::from_words([0x0010_011a, 0x00b0_a23a, 0]);
    let open = Open4Args {
        seqid: 0,
        share_access: 3,
        share_deny: 0,
        clientid: 0,
        owner: b"owner",
        openhow: OpenHow4::Unchecked(Fattr4 { attrmask: Bitmap4::EMPTY, attr_vals: &[] }),
        claim: OpenClaim4::Null(b"new"),
    };
    let write =
        Write4Args { stateid: current, offset: 0, stable: StableHow::FileSync, data: b"abc" };
    let lock = Lock4Args {
        locktype: LockType4::Write,
        reclaim: false,
        offset: 0,
        length: u64::MAX,
        locker: Locker4::Open {
            open_seqid: 0,
            open_stateid: current,
            lock_seqid: 0,
            lock_owner: LockOwner4 { clientid: 0, owner: b"x" },
        },
    };
    let writes = [
        put(&root),
        [written(&Op4::Open), written(&open)].concat(),
        [written(&Op4::Write), written(&write)].concat(),
        [written(&Op4::Lock), written(&lock)].concat(),
    ]
    .concat();
    let read = Read4Args { stateid: StateId4 { seqid: 0, other: [0; 12] }, offset: 0, count: 99 };
    let reads = [
        put(&file),
        [written(&Op4::Read), written(&read)].concat(),
        [written(&Op4::GetAttr), written(&GetAttr4Args { attr_request: all })].concat(),
    ]
    .concat();
    let list = ReadDir4Args {
        cookie: 0,
        cookieverf: [0; 8],
        dircount: 500,
        maxcount: 4096,
        attr_request: all,
    };
    let lists =
        [written(&Op4::PutRootFh), [written(&Op4::ReadDir), written(&list)].concat()].concat();
    let row = |count: u8, operations: &[u8]| {
        [&[count, (operations.len() / 4) as u8], operations].concat()
    };
    let target = "nfs4_compound";
    seeds.put(target, "minor_0", &minor_0(&put(&root), &put(&file)))?;
    seeds.put(target, "writes", &row(4, &writes))?;
    seeds.put(target, "reads", &row(3, &reads))?;
    seeds.put(target, "lists", &row(2, &lists))?;
    seeds.put(target, "all", &[row(4, &writes), row(3, &reads), row(2, &lists)].concat())?;
    seeds.put("callback_replies", "taken", &callback_replies())?;
    seeds.picked("nfs4_arguments", "open", 14, &open)?;
    seeds.picked("nfs4_arguments", "lock", 9, &lock)
}

/// The first client locks, the second one waits, the first unlocks, and the second takes the callback
/// and the lock. The session is the one that the target makes second.
fn callback_replies() -> Vec<u8> {
    let session = [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3];
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
    let reply =
        [words(&[0, 0, 0, 0, 0, 0, 2, 11, 0]), session.to_vec(), words(&[1, 0, 7, 7, 13, 0])]
            .concat();
    let turns = [0, 0, 2, 0, 0, 0];
    [&turns[..], &[6, (reply.len() / 4) as u8], &reply, &[2, 0, 2, 0], &turns].concat()
}

/// COMPOUNDs of minor version 0: a client opens, confirms, writes and closes.
fn minor_0(root: &[u8], file: &[u8]) -> Vec<u8> {
    const MINOR_0: u8 = 0x40;
    let row = |count: u8, operations: &[u8]| {
        [&[MINOR_0 | count, (operations.len() / 4) as u8], operations].concat()
    };
    let stateid = |seqid: u32| [&seqid.to_be_bytes()[..], b"STID"].concat();
    let open = [
        &written(&Op4::Open)[..],
        &[0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0],
        b"CLID",
        &written(&OpaqueAuth { flavor: 0, body: b"owner" })[4..],
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        b"f\0\0\0",
    ]
    .concat();
    let confirm = [&written(&Op4::OpenConfirm)[..], &stateid(1), &[0, 0, 0, 2]].concat();
    let write = [
        &written(&Op4::Write)[..],
        &stateid(2),
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3],
        b"abc\0",
    ]
    .concat();
    let close = [&written(&Op4::Close)[..], &[0, 0, 0, 3], &stateid(2)].concat();
    let renew = [&written(&Op4::Renew)[..], b"CLID"].concat();
    [
        row(2, &[root, &open].concat()),
        row(4, &[file, &confirm, &write, &close].concat()),
        row(1, &renew),
    ]
    .concat()
}

fn nlm(seeds: &Seeds<'_>) -> io::Result<()> {
    let lock = nlm::v4::Lock {
        caller_name: b"client",
        fh: b"handle",
        oh: b"7@client",
        svid: 7,
        offset: 1 << 40,
        length: 0,
    };
    let cookie = b"\0\0\0\x01";
    let (block, exclusive, reclaim, state) = (true, true, false, 3);
    let wide = nlm::v4::LockArgs { cookie, block, exclusive, lock, reclaim, state };
    let narrow = nlm::v1::LockArgs { cookie, block, exclusive, lock: lock.into(), reclaim, state };
    let holder = nlm::v4::Holder { exclusive, svid: 7, oh: b"o", offset: 5, length: 1 };
    seeds.picked("nlm", "lock_1", 1, &narrow)?;
    seeds.picked("nlm", "lock_4", 10, &wide)?;
    seeds.picked("nlm", "test_denied", 13, &nlm::v4::TestRes::Denied { cookie, holder })?;
    seeds.picked("nlm", "notify", 22, &nsm::StateChange { mon_name: b"client", state })
}

fn settings() -> Sattr3 {
    Sattr3 {
        mode: Some(0o640),
        uid: Some(1),
        gid: Some(1),
        size: Some(100),
        atime: SetTime3::SetToServerTime,
        mtime: SetTime3::SetToClientTime(NfsTime3 { seconds: 5, nseconds: 6 }),
    }
}

/// Number, name, and arguments of procedures, with stand-ins for handles.
fn nfs3_arguments() -> Vec<(u8, &'static str, Vec<u8>)> {
    let (root_a, file, directory) = (stand_in(ROOT_A), stand_in(FILE), stand_in(DIRECTORY));
    let root = NfsFh3(&root_a);
    let file = NfsFh3(&file);
    let at = |name| DirOpArgs3 { dir: root, name };
    let device =
        DeviceData3 { dev_attributes: settings(), spec: SpecData3 { specdata1: 1, specdata2: 3 } };
    let symlink_data = SymlinkData3 { symlink_attributes: NO_CHANGE, symlink_data: b"target" };
    let to = DirOpArgs3 { dir: NfsFh3(&directory), name: b"g" };
    let data: &[u8] = b"hello";
    vec![
        (1, "getattr", written(&Getattr3Args { object: root })),
        (
            2,
            "setattr",
            written(&Setattr3Args {
                object: file,
                new_attributes: settings(),
                guard: Some(NfsTime3 { seconds: 0, nseconds: 1 }),
            }),
        ),
        (3, "lookup", written(&Lookup3Args { what: at(b"f") })),
        (4, "access", written(&Access3Args { object: file, access: 63 })),
        (6, "read", written(&Read3Args { file, offset: 0, count: 100 })),
        (
            7,
            "write",
            written(&Write3Args { file, offset: 3, count: 5, stable: StableHow::Unstable, data }),
        ),
        (
            8,
            "create",
            written(&Create3Args { where_: at(b"g"), how: CreateHow3::Exclusive([7; 8]) }),
        ),
        (9, "mkdir", written(&Mkdir3Args { where_: at(b"e"), attributes: settings() })),
        (10, "symlink", written(&Symlink3Args { where_: at(b"s"), symlink: symlink_data })),
        (11, "mknod", written(&Mknod3Args { where_: at(b"n"), what: MknodData3::Chr(device) })),
        (12, "remove", written(&Remove3Args { object: at(b"f") })),
        (14, "rename", written(&Rename3Args { from: at(b"f"), to })),
        (15, "link", written(&Link3Args { file, link: at(b"l") })),
        (
            16,
            "readdir",
            written(&Readdir3Args { dir: root, cookie: 0, cookieverf: [0; 8], count: 4096 }),
        ),
        (
            17,
            "readdirplus",
            written(&Readdirplus3Args {
                dir: root,
                cookie: 0,
                cookieverf: [0; 8],
                dircount: 512,
                maxcount: 4096,
            }),
        ),
        (21, "commit", written(&Commit3Args { file, offset: 0, count: 0 })),
    ]
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A value of which nothing is known but its size: results with their first word given.
fn results(seeds: &Seeds<'_>) -> io::Result<()> {
    let attributes = || [words(&[1, 0o644, 1, 0, 0]), vec![0; 64]].concat();
    let post = || [words(&[1]), attributes()].concat();
    let target = "nfs3_results";
    seeds.put(target, "getattr", &[vec![1], words(&[0]), attributes()].concat())?;
    seeds.put(target, "lookup", &[vec![3], words(&[0, 1, 9]), post(), post()].concat())?;
    seeds.put(
        target,
        "read",
        &[vec![6], words(&[0]), post(), words(&[3, 1, 3]), b"abc\0".to_vec()].concat(),
    )?;
    let failed = words(&[NfsStat3::Acces as u32, 1, 0, 9, 0, 0, 0, 0, 0]);
    seeds.put(target, "create_failed", &[vec![8], failed].concat())?;
    let entry = [words(&[1, 0, 7, 1]), b"a\0\0\0".to_vec(), words(&[0, 1])].concat();
    seeds.put(
        target,
        "readdirplus",
        &[
            vec![17],
            words(&[0, 0, 0, 0]),
            entry.clone(),
            post(),
            words(&[1, 4, 9]),
            entry,
            words(&[0, 0, 0, 1]),
        ]
        .concat(),
    )?;
    seeds.put(target, "fsinfo", &[vec![19], vec![0; 56]].concat())
}

fn call(body: &[u8]) -> Vec<u8> {
    written(&CallHeader {
        xid: 0x0102_0304,
        rpcvers: 2,
        prog: 100_003,
        vers: 3,
        proc_: 0,
        cred: OpaqueAuth { flavor: u32::from(!body.is_empty()), body },
        verf: OpaqueAuth { flavor: 0, body: &[] },
    })
}

fn envelopes(seeds: &Seeds<'_>) -> io::Result<()> {
    let machine = [words(&[7, 4]), b"host".to_vec(), words(&[1000, 100, 3, 1, 2, 3])].concat();
    let target = "rpc_call";
    seeds.put(target, "auth_none", &call(&[]))?;
    seeds.put(target, "auth_sys", &call(&machine))?;
    seeds.put(target, "success", &words(&[7, 1, 0, 0, 0, 0, 5]))?;
    seeds.put(target, "mismatch", &words(&[7, 1, 0, 0, 0, 2, 3, 4]))?;
    seeds.put(target, "denied", &words(&[7, 1, 1, 1, 5]))
}

fn mount(seeds: &Seeds<'_>) -> io::Result<()> {
    let target = "mount";
    let mounted =
        Mounted3 { fhandle: NfsFh3(b"handle"), auth_flavors: [1, 0].into_iter().collect() };
    let entry = MountEntry { hostname: b"host", directory: b"/a" };
    let groups = List(vec![Group { name: b"*" }, Group { name: b"10.0.0.0/8" }]);
    seeds.picked(target, "mnt_argument", 0, &DirPath { path: b"/a/b" })?;
    seeds.picked(target, "mnt", 1, &MountRes3::Ok(mounted))?;
    seeds.picked(target, "mnt_failed", 1, &MountRes3::Failed(13))?;
    seeds.picked(target, "dump", 2, &List(vec![entry, entry]))?;
    seeds.picked(target, "mnt_1", 3, &FhStatus::Ok([5; 32]))?;
    let exports = List(vec![ExportEntry { directory: b"/a", groups }]);
    seeds.picked(target, "export", 4, &exports)?;
    seeds.picked(target, "export_client", 5, &exports)
}

fn rpcbind(seeds: &Seeds<'_>) -> io::Result<()> {
    let target = "rpcbind";
    let mapping = Mapping { prog: 100_003, vers: 3, prot: 6, port: 2049 };
    let binding = Binding {
        prog: 100_003,
        vers: 3,
        netid: b"tcp",
        addr: b"0.0.0.0.8.1",
        owner: b"superuser",
    };
    let entry = AddressEntry {
        maddr: b"127.0.0.1.8.1",
        nc_netid: b"tcp",
        nc_semantics: 3,
        nc_protofmly: b"inet",
        nc_proto: b"tcp",
    };
    seeds.picked(target, "mapping", 0, &mapping)?;
    seeds.picked(target, "dump_2", 1, &List(vec![mapping, mapping]))?;
    seeds.picked(target, "binding", 2, &binding)?;
    seeds.picked(target, "dump_3", 3, &List(vec![binding]))?;
    seeds.picked(target, "address", 4, &UniversalAddress { addr: b"127.0.0.1.8.1" })?;
    seeds.picked(target, "address_list", 5, &List(vec![entry]))
}

fn acls(mask: u32) -> SecAttr {
    let entry = |tag, permissions| AclEntry { tag, id: 0, permissions };
    let access = vec![entry(1, 6), entry(4, 4), entry(0x10, 4), entry(0x20, 0)];
    SecAttr {
        mask,
        access: AclList { count: 4, entries: access },
        default: AclList { count: 0, entries: Vec::new() },
    }
}

fn nfsacl(seeds: &Seeds<'_>) -> io::Result<()> {
    let target = "nfsacl";
    let object = NfsFh3(b"handle");
    seeds.picked(target, "getacl_arguments", 0, &Getacl3Args { object, mask: 15 })?;
    seeds.picked(target, "setacl_arguments", 1, &Setacl3Args { object, acls: acls(3) })?;
    seeds.picked(target, "lists", 2, &acls(15))?;
    let data = b"a line of text\n".repeat(100);
    let frame = frame::compress(&data).unwrap_or_default();
    seeds.put(target, "frame", &[&(data.len() as u16).to_le_bytes()[..], &frame].concat())?;
    let results = [vec![1], words(&[0, 0]), written(&acls(15))].concat();
    seeds.put(target, "getacl", &results)
}

fn framing(seeds: &Seeds<'_>) -> io::Result<()> {
    let record = |payload: &[u8], is_last: bool| {
        let mark = payload.len() as u32 | (u32::from(is_last) << 31);
        [mark.to_be_bytes().to_vec(), payload.to_vec()].concat()
    };
    let head = [10, 2, 30, 6];
    let target = "record_framing";
    let whole = [record(b"abc", true), record(b"d", true)].concat();
    let several = [record(b"abc", false), record(b"de", true), record(b"tail", false)].concat();
    let empty_last = [record(b"tail", false), record(b"", true)].concat();
    let large = [record(&[7; 300], true), record(&[8; 2000], true)].concat();
    for (name, stream) in
        [("whole", whole), ("fragments", several), ("empty_last", empty_last), ("large", large)]
    {
        seeds.put(target, name, &[head.to_vec(), stream].concat())?;
    }
    Ok(())
}

/// A call of [`engine_call`](../engine_call/index.html)'s input: kind, length, body.
fn step(kind: u8, procedure: u8, xid: u8, arguments: &[u8]) -> Vec<u8> {
    let words = (arguments.len() / 4 + 1) as u8;
    [&[kind, words, 0, xid, 0, procedure], arguments].concat()
}

fn engine(seeds: &Seeds<'_>, arguments: &[(u8, &'static str, Vec<u8>)]) -> io::Result<()> {
    let target = "engine_call";
    let mut all = Vec::new();
    for (index, (procedure, _, arguments)) in arguments.iter().enumerate() {
        all.extend(step(0, *procedure, index as u8 + 1, arguments));
    }
    seeds.put(target, "all_of_nfs3", &all)?;
    for (procedure, name, arguments) in arguments {
        seeds.put(target, name, &step(0, *procedure, 1, arguments))?;
    }
    let file = stand_in(FILE);
    let getacl = written(&Getacl3Args { object: NfsFh3(&file), mask: 15 });
    let setacl = written(&Setacl3Args { object: NfsFh3(&file), acls: acls(1) });
    seeds.put(target, "acls", &[step(2, 2, 1, &setacl), step(2, 1, 2, &getacl)].concat())?;
    let status = written(&StatusArgs { object: NfsFh3(&file) });
    let sync = written(&SyncArgs { object: NfsFh3(&file) });
    let failing = [step(0x88, 2, 3, &sync), step(8, 2, 4, &sync)].concat();
    let calls = [step(8, 1, 1, &status), step(8, 2, 2, &sync), failing].concat();
    seeds.put(target, "recovery", &calls)?;
    let data = b"a line of text\n".repeat(100);
    let frame = frame::compress(&data).unwrap_or_default();
    let (file, count, stable) = (NfsFh3(&file), data.len() as u32, StableHow::FileSync);
    let writez = written(&WritezArgs { file, offset: 0, count, stable, frame: &frame });
    let readz = written(&Read3Args { file, offset: 0, count: 4096 });
    let calls = [step(8, 6, 1, &writez), step(8, 7, 2, &readz)].concat();
    seeds.put(target, "compressed", &calls)?;
    let path = written(&DirPath { path: b"/a/d" });
    let mounts: Vec<u8> =
        (0..6).flat_map(|procedure| step(3, procedure, procedure, &path)).collect();
    seeds.put(target, "mount_3", &mounts)?;
    let mounts: Vec<u8> =
        (0..7).flat_map(|procedure| step(4, procedure, procedure, &path)).collect();
    seeds.put(target, "mount_1", &mounts)?;
    let mapping = written(&Mapping { prog: 100_003, vers: 3, prot: 6, port: 0 });
    let binding =
        written(&Binding { prog: 100_003, vers: 3, netid: b"tcp", addr: b"", owner: b"" });
    let ports: Vec<u8> = (0..5).flat_map(|procedure| step(5, procedure, 1, &mapping)).collect();
    seeds.put(target, "rpcbind_2", &ports)?;
    let addresses: Vec<u8> =
        (0..13).flat_map(|procedure| step(7, procedure, 1, &binding)).collect();
    seeds.put(target, "rpcbind_4", &addresses)?;
    // The same xid again, a flush that fails, another share's directory, a damaged handle.
    let root_b = stand_in(ROOT_B);
    let write = |file: &[u8]| {
        written(&Write3Args {
            file: NfsFh3(file),
            offset: 0,
            count: 2,
            stable: StableHow::FileSync,
            data: b"ab",
        })
    };
    let create = written(&Create3Args {
        where_: DirOpArgs3 { dir: NfsFh3(&root_b), name: b"x" },
        how: CreateHow3::Guarded(NO_CHANGE),
    });
    let odd = [
        step(0, 7, 1, &write(&file)),
        step(0, 7, 1, &write(&file)),
        step(0x80, 7, 2, &write(&file)),
        step(0, 8, 3, &create),
        step(0, 7, 4, &write(b"D\x51")),
    ]
    .concat();
    seeds.put(target, "oddities", &odd)?;
    let raw = call(ROOT);
    seeds.put(target, "raw", &[vec![0x40, (raw.len() / 4) as u8], raw].concat())
}

/// Files and lines of the name services.
fn names(seeds: &Seeds<'_>) -> io::Result<()> {
    let hosts = "127.0.0.1\tlocalhost\n# comment\n10.0.0.1 a.example a # more\n\
        ::ffff:10.0.0.2 b\nfd00::1 a.example\n";
    seeds.put("hosts_file", "hosts", hosts.as_bytes())?;
    let netgroups = "staff (a.example,-,example) ( b ,joe,) \\\n\t(10.0.0.1,,) students\n\
        students (-,mary,) staff missing # all\nall (,,)\n";
    seeds.put("netgroup_file", "netgroups", netgroups.as_bytes())?;
    for (name, line) in [
        ("netgroup", Question::Netgroup("staff".to_owned()).to_line()),
        ("user", Question::User(1000).to_line()),
        ("hosts", Answer::Hosts(vec![String::new(), "a.example".to_owned()]).to_line()),
        ("groups", Answer::Groups(vec![100, 27]).to_line()),
        ("missing", Answer::Missing.to_line()),
        ("failed", Answer::Failed("why".to_owned()).to_line()),
    ] {
        seeds.put("names_helper", name, line.trim_ascii_end())?;
    }
    let (service, clock) = (ScriptedService::new(), Arc::new(ManualClock::default()));
    service.set_host("a.example", &["10.0.0.1", "fd00::1"], 60);
    service.set_client("10.0.0.1", &["a.example"], 60);
    service.set_netgroup("staff", &["a.example", "10.0.0.2", ""]);
    service.set_user(7, &[1, 2]);
    let book = NameBook::new(Bounds::default(), service, clock);
    let names = book.at_present();
    let client = IpAddr::from([10, 0, 0, 1]);
    for text in ["a.example", "*.example", "@staff", "@none"] {
        let _known = match text.parse() {
            Ok(ClientPattern::Host(host)) => names.is_host(&host, client),
            Ok(ClientPattern::Domain(domain)) => names.is_in_domain(&domain, client),
            Ok(ClientPattern::Netgroup(netgroup)) => names.is_in_netgroup(&netgroup, client),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
    }
    for uid in [7, 8] {
        names.groups(uid);
    }
    book.turn();
    let bytes = book.kept().to_bytes();
    seeds.put("names_book", "file", &bytes)?;
    let body = bytes.split(|byte| *byte == b'\n').nth(1).unwrap_or_default();
    seeds.put("names_book", "names", body)
}

fn configuration(seeds: &Seeds<'_>) -> io::Result<()> {
    let target = "shares_configuration";
    let share = "[[share]]\npath = \"/a\"\nclients = [\"*\"]\n";
    let server = "[server]\nlisten = [\"0.0.0.0:2049\", \"[::]:2049\"]\nudp = false\n\
        connections_max = 10_000\npool_cpus = [\"0-1,4\"]\nlog = \"journald\"\n";
    let rules = "[defaults]\noptions = [\"ro\", \"anonuid=1\"]\n[[share]]\npath = \"/b\"\nid = 5\n\
        [[share.rule]]\nclients = [\"10.0.0.0/8\", \"fd00::/8\"]\noptions = [\"rw\"]\n";
    let mistakes = "[sever]\n[[share]]\npath = \"a\"\nclients = [\"10.1.0.0/8\", 7]\n\
        [[share]]\npath = \"/b\"\n[[share]]\npath = \"/b\"\n";
    let patterns = "10.0.0.0/255.0.0.0\n::ffff:10.1.0.0/112\n192.168.1.5\n@group\n";
    seeds.put(target, "share", share.as_bytes())?;
    seeds.put(target, "server", [server, share].concat().as_bytes())?;
    seeds.put(target, "rules", rules.as_bytes())?;
    seeds.put(target, "mistakes", mistakes.as_bytes())?;
    seeds.put(target, "patterns", patterns.as_bytes())
}

fn shares(seeds: &Seeds<'_>) -> io::Result<()> {
    let group = "# Homes.\nclients = [\"@staff\"]\noptions = [\"ro\"]\n\n# Alice\n[[share]]\n\
        path = \"/a\" # hers\nclients = [\n  \"10.0.0.1\", # laptop\n  '10.0.0.2',\n]\n\
        [[share.rule]]\nclients = [\"*\"]\noptions = [\"sec=sys\"]\n\n[[share]]\npath = \"/b\"\n\n\
        [[pattern]]\ndirectories = \"/t/*\"\n";
    let operations = r#"[{"op":"set-share","path":"/a","changes":{"set":{"id":5,"rule":[]},
        "add_clients":["::1"],"remove_clients":["10.0.0.1"]}},
        {"op":"move-share","path":"/a","group":"default"},
        {"op":"add-share","group":"g","share":{"path":"/c","clients":["*"]}},
        {"op":"remove-share","path":"/b"},
        {"op":"set-group","name":"g","changes":{"set":{"pattern":[]},"add_options":["rw"]}},
        {"op":"delete-group","name":"g","with_shares":true}]"#;
    let with_zero = |a: &str, b: &str| [a, "\0", b].concat();
    seeds.put("group_file", "file", group.as_bytes())?;
    seeds.put("group_file", "operations", with_zero(group, operations).as_bytes())?;
    let broken =
        "[[share]]\npath = \"/a\nclients = [\"*\",\n[[share]]\npath = \"\"\"\n/b\n[other]\n";
    seeds.put("group_file", "mistakes", broken.as_bytes())?;
    let wanted = "[[group]]\nname = \"g\"\nclients = [\"*\"]\n[[group.pattern]]\n\
        directories = \"/t/*\"\n[[share]]\ngroup = \"g\"\npath = \"/a\"\n[[share]]\npath = \"/b\"\n\
        clients = [\"::1\"]\n";
    seeds.put("wanted_file", "file", with_zero(wanted, group).as_bytes())?;
    let exports = "# data\n\"/my data\" -sync 10.0.0.0/8(rw,no_root_squash) @staff(ro) \\\n \
        *.example(sec=sys:krb5,all_squash,anonuid=-2)\n/b\\040c fd00::/8(crossmnt) *\n/d\n\
        /e host (rw)\n/f gss/krb5(rw) 10.1.2.3/8(async,fsid=0,nohide)\n";
    seeds.put("exports_text", "exports", exports.as_bytes())?;
    let ganesha = "# all\nEXPORT_DEFAULTS { Access_Type = RO; CLIENT { Clients = @staff, 10.0.0.1; } }\n%include \"a\"\n\
        EXPORT { Export_Id = 0x1; Path = \"/my data\"; Pseudo = '/d'; Protocols = 3, 4; Squash = All;\n\
        SecType = none, sys, krb5; Anonymous_Uid = -2; FSAL { Name = NULL; FSAL { Name = VFS; } }\n\
        CLIENT { Clients = *.example, fd00::/8; Access_Type = RW; Disable_ACL = yes; } }\nLOG { A { B = C; } }\n";
    seeds.put("ganesha_text", "file", ganesha.as_bytes())?;
    let record = r#"{"record":{"sequence":1,"time_ms":2,"who":"me","operations_total":1,"edits":[
        {"group":"g","item":"file","after":"\n[[share]]\npath = \"/a\"\n","cuts":[0]},
        {"group":"g","item":{"share":"/a"},"before":"x","after":"[[share]]\npath = \"/a\"\nid = 1\n",
        "position":{"behind":"group"}}]}}"#
        .replace('\n', " ");
    let lines = [&record, "\n{\"written\":1}"].concat();
    seeds.put("shares_history", "lines", with_zero("", &lines).as_bytes())
}

/// A log on this medium with records of these lengths, a batch each; none for a void one.
fn log_records(log: &IntentLog, medium: &MemoryMedium, lengths: &[usize]) -> Option<()> {
    let index = log.register(Identity { uuid: [1; 16], kind: 2 }, b"/srv/disk").ok()?;
    log.write_superblocks(medium, false).ok()?;
    let mut batch = Batch::default();
    for length in lengths {
        for _ in 0..2 {
            let lsn = log.reserve(log.admit(*length).ok()?, index);
            log.complete(lsn, vec![7; *length]);
        }
        log.take_batch(&mut batch);
        batch.write_to(medium).ok()?;
        log.written(&batch);
    }
    Some(())
}

fn journal(seeds: &Seeds<'_>) -> io::Result<()> {
    for (name, is_closed) in [("closed", true), ("cut_off", false)] {
        seeds.put("journal_open", name, &steadfast_fuzz::journal::sample(is_closed))?;
    }
    Ok(())
}

fn intent_log(seeds: &Seeds<'_>) -> io::Result<()> {
    let target = "intent_log";
    let failed = || io::Error::other("no log could be made");
    let medium = MemoryMedium::new((128 << 10) + 8 * 4096);
    let made = format(&medium, *b"log-id!!the rest", [9; 16], 3).map_err(|_| failed())?;
    seeds.put(target, "new", &compact(&medium))?;
    let found = survey(&medium, &made);
    let log = IntentLog::resume(&made, &found, [9; 16], 4).map_err(|_| failed())?;
    log_records(&log, &medium, &[10, 0, 300, 10]).ok_or_else(failed)?;
    seeds.put(target, "live", &compact(&medium))?;
    // Round the end of the ring, with a batch across it.
    log.checkpointed(0, log.stable());
    log_records(&log, &medium, &[100, 2500]).ok_or_else(failed)?;
    log_records(&log, &medium, &[20]).ok_or_else(failed)?;
    seeds.put(target, "wrapped", &compact(&medium))?;
    let torn = MemoryMedium::from_image(medium.image());
    torn.flip(8 * 100);
    let torn = [vec![0], compact(&torn)[1..].to_vec()].concat();
    seeds.put(target, "one_superblock", &torn)?;
    log.checkpointed(0, log.stable());
    log.write_superblocks(&medium, true).map_err(|_| failed())?;
    seeds.put(target, "clean", &compact(&medium))?;
    let facts = inspect(&medium);
    let closed = facts.superblock().ok_or_else(failed)?;
    let next = IntentLog::resume(closed, &survey(&medium, closed), [8; 16], 5);
    log_records(&next.map_err(|_| failed())?, &medium, &[5, 6]).ok_or_else(failed)?;
    seeds.put(target, "next_epoch", &compact(&medium))?;
    let head = AsideHead {
        uuid: [1; 16],
        epoch: 2,
        identity: Identity { uuid: [3; 16], kind: 4 },
        file_system: 5,
        path: b"/srv/disk".to_vec(),
    };
    let mut aside = vec![0, 0];
    write_head(&mut aside, &head);
    let record = Record { lsn: Lsn(7), file_system: 5, is_live: true, payload: vec![1; 9] };
    write_aside(&mut aside, &head, &record);
    write_end(&mut aside, &head, 1, Lsn(7));
    seeds.put(target, "aside", &aside)
}

/// Two slots, of which the second has the later mark; and the same as fields alone.
fn mark(seeds: &Seeds<'_>) -> io::Result<()> {
    let mark = |sequence: u64| Mark {
        log: *b"log-id!!the rest",
        host: [9; 16],
        file_system: Identity { uuid: [3; 16], kind: 4 },
        sequence,
        epoch: 5,
        applied: Lsn(60 + sequence),
        stable: Lsn(50 + sequence),
        flushed: Lsn(40),
        time_ms: 1_800_000_000_000,
    };
    let numbers = [5, 90, 5, 61];
    let mut file = [&numbers[..], &[0; MARK_FILE_BYTES]].concat();
    for slot in 0..2_u8 {
        let encoded = mark(u64::from(slot) + 1).encode();
        let at = numbers.len() + usize::from(slot) * MARK_SLOT_BYTES;
        file[at..at + encoded.len()].copy_from_slice(&encoded);
    }
    seeds.put("mark", "two_slots", &file)?;
    seeds.put("mark", "one_slot", &file[..numbers.len() + MARK_SLOT_BYTES])?;
    let fields = [1_u8, 0, 5, 0, 60, 0, 50, 0, 40, 0, 7, 0, 0, 0, 0, 0];
    seeds.put("mark", "fields", &[&numbers[..], &fields, &mark(2).encode()].concat())
}

/// A file with the marks of two calls, and the payload of one.
fn begun(seeds: &Seeds<'_>) -> io::Result<()> {
    let dir = StorageHandle::new(b"a directory").ok_or(io::ErrorKind::InvalidInput)?;
    let object = ObjectKey(StorageHandle::new(b"a file").ok_or(io::ErrorKind::InvalidInput)?);
    let place = Place { dir: ObjectKey(dir), name: b"name" };
    let call = BegunCall {
        call: CallName { key: b"what tells it from others", share: 7 },
        file_system: FileSystemIdentity { uuid: [3; 16], kind: 4 },
        at: Time { seconds: 1_800_000_000, nanoseconds: 1 },
        dir,
        fsid: 5,
        made: None,
        action: Action::Link { place, object },
    };
    let tag = *b"fuzztag!";
    let mut payload = Vec::new();
    call.encode(&mut payload);
    let mut file = Vec::new();
    write_begun_head(&mut file, &[b'r'; 36], tag);
    let head = file.len();
    for _ in 0..2 {
        let mut entry = Vec::new();
        begin_mark(&mut entry);
        entry.extend_from_slice(&payload);
        if !end_mark(&mut entry, tag) {
            return Err(io::Error::other("a mark of this call is too long"));
        }
        file.extend_from_slice(&entry);
    }
    seeds.put("begun", "call", &payload)?;
    seeds.put("begun", "two_calls", &file)?;
    seeds.put("begun", "behind_a_head", &file[head..])
}
