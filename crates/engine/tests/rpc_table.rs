//! Unit ring: what RFC 5531 and RFC 1833 allow a client to send, clause by clause, and what it gets.
//!
//! Fragments of records (RFC 5531 §11) are the runtime's: see the tests of its `framing`.
#![allow(clippy::unwrap_used)]

mod common;

use std::net::SocketAddr;

use steadfast_engine::{
    CallHost, Complaint, Engine, EngineConfig, ExportTable, HangUp, Peer, ReplyBuffer, Transport,
    Transports, Verdict,
};
use steadfast_xdr::{Reader, Writer};

const RPCBIND: u32 = 100_000;
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const NFSACL: u32 = 100_227;
const RECOVERY: u32 = 0x2053_4a52;
const QUOTAS: u32 = 100_011;

const NOW_S: u32 = 1_700_000_000;

struct Host;

impl CallHost for Host {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}

    fn unix_time_s(&self) -> Option<u32> {
        Some(NOW_S)
    }
}

/// What a client gets.
#[derive(Debug, PartialEq, Eq)]
enum Got {
    /// `SUCCESS`, with results.
    Results(Vec<u8>),
    /// `PROG_UNAVAIL`, `PROC_UNAVAIL`, `GARBAGE_ARGS`.
    ProgramUnavailable,
    ProcedureUnavailable,
    Garbage,
    /// `PROG_MISMATCH` and `RPC_MISMATCH`, with the lowest and highest version.
    ProgramMismatch(u32, u32),
    RpcMismatch(u32, u32),
    /// `AUTH_ERROR`.
    AuthError(u32),
    /// No reply, the connection stays.
    Nothing,
    /// The connection is closed.
    HangUp,
}

use Got::{
    AuthError, Garbage, Nothing, ProcedureUnavailable, ProgramMismatch, ProgramUnavailable,
    Results, RpcMismatch,
};

const BAD_CRED: Got = AuthError(1);
const REJECTED_CRED: Got = AuthError(2);
const BAD_VERF: Got = AuthError(3);

/// A call, of which each part may be odd.
#[derive(Clone)]
struct Call {
    xid: u32,
    message_type: u32,
    rpc_version: u32,
    procedure: (u32, u32, u32),
    credentials: (u32, Vec<u8>),
    verifier: (u32, Vec<u8>),
    arguments: Vec<u8>,
}

fn null() -> Call {
    Call {
        xid: 7,
        message_type: 0,
        rpc_version: 2,
        procedure: (NFS, 3, 0),
        credentials: (0, vec![]),
        verifier: (0, vec![]),
        arguments: vec![],
    }
}

/// A call that asks who the client is.
fn mnt() -> Call {
    Call {
        procedure: (MOUNT, 3, 1),
        credentials: (1, sys(b"c", 5, 6, 0)),
        arguments: opaque(b"/a"),
        ..null()
    }
}

fn sys(machine: &[u8], uid: u32, gid: u32, groups: u32) -> Vec<u8> {
    let mut body = Vec::new();
    let mut w = Writer::new(&mut body);
    w.u32(0xdead_beef);
    w.opaque(machine);
    for word in [uid, gid, groups].into_iter().chain(0..groups) {
        w.u32(word);
    }
    body
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn opaque(data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).opaque(data);
    bytes
}

impl Call {
    fn bytes(&self) -> Vec<u8> {
        let (program, version, procedure) = self.procedure;
        let mut bytes =
            words(&[self.xid, self.message_type, self.rpc_version, program, version, procedure]);
        for (flavour, body) in [&self.credentials, &self.verifier] {
            bytes.extend(flavour.to_be_bytes());
            bytes.extend(opaque(body));
        }
        bytes.extend_from_slice(&self.arguments);
        bytes
    }
}

fn got(engine: &Engine, peer: &Peer, message: &[u8]) -> Got {
    let mut reply = ReplyBuffer::default();
    match engine.call(&mut Host, peer, 0, message, &mut reply) {
        Verdict::Silent => {
            assert!(reply.bytes.is_empty());
            return Nothing;
        }
        Verdict::HangUp(HangUp::NotACall) => return Got::HangUp,
        Verdict::Replied => {}
        other => panic!("{other:?}"),
    }
    let mut r = Reader::new(&reply.bytes);
    let mut word = || r.u32().unwrap();
    assert_eq!((word(), word()), (7, 1), "xid and REPLY");
    if word() == 1 {
        return match word() {
            0 => RpcMismatch(word(), word()),
            _ => AuthError(word()),
        };
    }
    assert_eq!((word(), word()), (0, 0), "a verifier of AUTH_NONE, which is empty");
    match word() {
        0 => Results(reply.bytes[24..].to_vec()),
        1 => ProgramUnavailable,
        2 => ProgramMismatch(word(), word()),
        3 => ProcedureUnavailable,
        4 => Garbage,
        other => panic!("accept_stat {other}"),
    }
}

fn peer(transport: Transport) -> Peer {
    Peer::new("127.0.0.1:700".parse().unwrap(), "127.0.0.1:2049".parse().unwrap(), transport)
}

/// §8.1, §9: who is called.
fn calls_of_procedures() -> Vec<(&'static str, Call, Got)> {
    let nothing = || Results(vec![]);
    vec![
        ("NULL of each program", null(), nothing()),
        ("", Call { procedure: (NFSACL, 3, 0), ..null() }, nothing()),
        ("", Call { procedure: (MOUNT, 1, 0), ..null() }, nothing()),
        ("", Call { procedure: (MOUNT, 2, 0), ..null() }, nothing()),
        ("", Call { procedure: (MOUNT, 3, 0), ..null() }, nothing()),
        ("", Call { procedure: (RPCBIND, 2, 0), ..null() }, nothing()),
        ("", Call { procedure: (RECOVERY, 1, 0), ..null() }, nothing()),
        ("PROG_UNAVAIL", Call { procedure: (QUOTAS, 4, 0), ..null() }, ProgramUnavailable),
        ("", Call { procedure: (0, 0, 0), ..null() }, ProgramUnavailable),
        ("", Call { procedure: (u32::MAX, 3, 0), ..null() }, ProgramUnavailable),
        (
            "PROG_MISMATCH and its bounds",
            Call { procedure: (NFS, 1, 0), ..null() },
            ProgramMismatch(2, 3),
        ),
        ("", Call { procedure: (NFS, 4, 0), ..null() }, ProgramMismatch(2, 3)),
        ("", Call { procedure: (NFS, 0, 0), ..null() }, ProgramMismatch(2, 3)),
        ("", Call { procedure: (NFS, u32::MAX, 0), ..null() }, ProgramMismatch(2, 3)),
        ("", Call { procedure: (NFSACL, 2, 0), ..null() }, ProgramMismatch(3, 3)),
        ("", Call { procedure: (RECOVERY, 0, 0), ..null() }, ProgramMismatch(1, 1)),
        ("", Call { procedure: (RECOVERY, 2, 1), ..null() }, ProgramMismatch(1, 1)),
        ("", Call { procedure: (MOUNT, 0, 0), ..null() }, ProgramMismatch(1, 3)),
        ("", Call { procedure: (MOUNT, 4, 0), ..null() }, ProgramMismatch(1, 3)),
        ("", Call { procedure: (RPCBIND, 1, 0), ..null() }, ProgramMismatch(2, 4)),
        ("", Call { procedure: (RPCBIND, 5, 0), ..null() }, ProgramMismatch(2, 4)),
        ("PROC_UNAVAIL", Call { procedure: (NFS, 3, 22), ..null() }, ProcedureUnavailable),
        ("", Call { procedure: (NFS, 3, u32::MAX), ..null() }, ProcedureUnavailable),
        ("", Call { procedure: (NFSACL, 3, 5), ..null() }, ProcedureUnavailable),
        ("", Call { procedure: (RECOVERY, 1, 8), ..null() }, ProcedureUnavailable),
        ("", Call { procedure: (MOUNT, 3, 6), ..null() }, ProcedureUnavailable),
        ("", Call { procedure: (MOUNT, 1, 7), ..null() }, ProcedureUnavailable),
        ("GARBAGE_ARGS", Call { arguments: vec![], ..mnt() }, Garbage),
        ("", Call { arguments: words(&[u32::MAX]), ..mnt() }, Garbage),
        ("", Call { arguments: words(&[1025]), ..mnt() }, Garbage),
        ("arguments of what has none", Call { arguments: vec![9; 100], ..null() }, nothing()),
    ]
}

/// §9: the version of RPC.
fn calls_of_rpc_versions() -> Vec<(&'static str, Call, Got)> {
    vec![
        ("RPC_MISMATCH", Call { rpc_version: 0, ..null() }, RpcMismatch(2, 2)),
        ("", Call { rpc_version: 1, ..null() }, RpcMismatch(2, 2)),
        ("", Call { rpc_version: 3, ..null() }, RpcMismatch(2, 2)),
        ("", Call { rpc_version: u32::MAX, ..null() }, RpcMismatch(2, 2)),
        (
            "comes before everything else",
            Call { rpc_version: 3, credentials: (9, vec![1; 401]), procedure: (1, 1, 1), ..null() },
            RpcMismatch(2, 2),
        ),
    ]
}

/// §8.2: credentials have up to 400 bytes, of whatever flavour.
fn calls_with_credentials() -> Vec<(&'static str, Call, Got)> {
    let nothing = || Results(vec![]);
    vec![
        ("AUTH_NONE may have a body", Call { credentials: (0, vec![7; 400]), ..null() }, nothing()),
        (
            "400 bytes",
            Call { credentials: (0, vec![7; 400]), verifier: (9, vec![7; 400]), ..null() },
            nothing(),
        ),
        ("401 bytes", Call { credentials: (0, vec![7; 401]), ..null() }, BAD_CRED),
        ("", Call { verifier: (0, vec![7; 401]), ..null() }, BAD_VERF),
        ("", Call { verifier: (0, vec![7; 4000]), ..mnt() }, BAD_VERF),
        ("NULL asks for none", Call { credentials: (1, vec![]), ..null() }, nothing()),
        ("", Call { credentials: (77, vec![1; 40]), ..null() }, nothing()),
        // RFC 2203 §5.2.2: success would be taken for a context.
        ("but not of RPCSEC_GSS", Call { credentials: (6, vec![0; 20]), ..null() }, REJECTED_CRED),
        // §8.2, §14: flavours that are not served.
        (
            "AUTH_SHORT was given to nobody",
            Call { credentials: (2, vec![0; 8]), ..mnt() },
            REJECTED_CRED,
        ),
        ("AUTH_DH", Call { credentials: (3, vec![0; 8]), ..mnt() }, REJECTED_CRED),
        ("RPCSEC_GSS", Call { credentials: (6, vec![0; 20]), ..mnt() }, REJECTED_CRED),
        ("one that there is not", Call { credentials: (u32::MAX, vec![]), ..mnt() }, REJECTED_CRED),
        // Appendix A: AUTH_SYS.
        ("17 groups", Call { credentials: (1, sys(b"c", 5, 6, 17)), ..mnt() }, BAD_CRED),
        (
            "a name of 256 bytes",
            Call { credentials: (1, sys(&[b'c'; 256], 5, 6, 0)), ..mnt() },
            BAD_CRED,
        ),
        ("no body", Call { credentials: (1, vec![]), ..mnt() }, BAD_CRED),
        ("half a body", Call { credentials: (1, vec![0; 8]), ..mnt() }, BAD_CRED),
        (
            "groups that are not there",
            Call { credentials: (1, words(&[0, 0, 1, 1, 16])), ..mnt() },
            BAD_CRED,
        ),
    ]
}

/// Calls of MNT that mount.
fn calls_that_are_good() -> Vec<(&'static str, Call)> {
    vec![
        ("AUTH_SYS", mnt()),
        (
            "the largest there is",
            Call { credentials: (1, sys(&[b'c'; 255], u32::MAX, u32::MAX, 16)), ..mnt() },
        ),
        ("a name of bytes", Call { credentials: (1, sys(b"\xff\0/\n", 0, 0, 0)), ..mnt() }),
        ("no name", Call { credentials: (1, sys(b"", 0, 0, 0)), ..mnt() }),
        (
            "more than there should be",
            Call { credentials: (1, [sys(b"c", 5, 6, 0), vec![9; 40]].concat()), ..mnt() },
        ),
        ("AUTH_NONE", Call { credentials: (0, vec![]), ..mnt() }),
        ("AUTH_NONE with a body", Call { credentials: (0, vec![1; 13]), ..mnt() }),
        ("a verifier that is not AUTH_NONE's", Call { verifier: (1, vec![1; 20]), ..mnt() }),
        ("a verifier of AUTH_NONE with a body", Call { verifier: (0, vec![1; 399]), ..mnt() }),
        (
            "arguments with more behind",
            Call { arguments: [opaque(b"/a"), vec![1; 99]].concat(), ..mnt() },
        ),
    ]
}

#[test]
fn calls_as_rfc_5531_has_them() {
    let mounted = |got: &Got| matches!(got, Results(results) if results[..4] == [0; 4]);
    let engine = common::engine();
    let peer = peer(Transport::Tcp);
    for calls in [calls_of_procedures(), calls_of_rpc_versions(), calls_with_credentials()] {
        for (clause, call, expected) in calls {
            let procedure = call.procedure;
            assert_eq!(got(&engine, &peer, &call.bytes()), expected, "{clause} {procedure:?}");
        }
    }
    for (clause, call) in calls_that_are_good() {
        let got = got(&engine, &peer, &call.bytes());
        assert!(mounted(&got), "{clause}: {got:?}");
    }
}

#[test]
fn what_is_no_call_ends_the_connection() {
    let engine = common::engine();
    let peer = peer(Transport::Tcp);
    let whole = null().bytes();
    // A reply, and what is neither.
    for message_type in [1, 2, u32::MAX] {
        let message = Call { message_type, ..null() }.bytes();
        assert_eq!(got(&engine, &peer, &message), Got::HangUp);
    }
    // A header that ends early: as soon as it says that it is one of RPC's second version, whatever
    // is missing is missed; nobody waits for more, the record has its end.
    for length in 0..whole.len() {
        let expected = match length {
            0..12 => Got::HangUp,
            12..32 => BAD_CRED,
            _ => BAD_VERF,
        };
        assert_eq!(got(&engine, &peer, &whole[..length]), expected, "{length} bytes");
    }
    // Lengths that are not there.
    for at in [28, 36] {
        for length in [1, 400, 401, u32::MAX] {
            let mut message = whole.clone();
            message[at..at + 4].copy_from_slice(&u32::to_be_bytes(length));
            // Credentials of one byte are there: what is behind them is the verifier.
            let expected = if at == 28 && length > 1 { BAD_CRED } else { BAD_VERF };
            assert_eq!(got(&engine, &peer, &message), expected, "{length} at {at}");
        }
    }
}

#[test]
fn complaints_name_what_was_wrong() {
    let engine = common::engine();
    let mut reply = ReplyBuffer::default();
    let message = Call { verifier: (5, vec![0; 401]), ..mnt() }.bytes();
    let verdict = engine.call(&mut Host, &peer(Transport::Tcp), 0, &message, &mut reply);
    assert!(matches!(verdict, Verdict::Replied));
    assert_eq!(reply.complaint, Some(Complaint::BadCredentials { flavour: 1 }));
}

/// An engine that answers as rpcbind at port 111.
fn rpcbind(transports: Transports) -> Engine {
    let config = EngineConfig {
        instance: 1,
        nfs2: false,
        delegations: steadfast_engine::Delegations::None,
        local_guard: steadfast_engine::LocalGuard::None,
        idmapping: steadfast_engine::IdMapping::default(),
        nfs4: false,
        handle_key: [9; 16],
        write_verifier: 77,
        transfer_bytes_max: 1 << 20,
        reply_cache_bytes_max: 1 << 20,
        reply_cache_history_ms: 65_000,
        nfs_port: 2049,
        transports,
    };
    Engine::new(config, ExportTable::default())
}

const ALL: Transports = Transports { udp: true, ipv4: true, ipv6: true };

fn binding(program: u32, version: u32, netid: &[u8], address: &[u8], owner: &[u8]) -> Vec<u8> {
    [words(&[program, version]), opaque(netid), opaque(address), opaque(owner)].concat()
}

fn remote(program: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    [words(&[program, version, procedure]), opaque(arguments)].concat()
}

#[test]
fn rpcbind_as_rfc_1833_has_it() {
    let engine = rpcbind(ALL);
    let no = || Results(words(&[0]));
    let text = |text: &str| Results(opaque(text.as_bytes()));
    let port = |port| Results(words(&[port]));
    let nfs = "127.0.0.1.8.1";
    let told = |address: &str| Results([opaque(address.as_bytes()), opaque(b"")].concat());
    let sockaddr = [2, 0, 8, 1, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let netbuf = |bytes: &[u8]| [words(&[bytes.len() as u32]), opaque(bytes)].concat();
    let nfs_by = |netid: &[u8]| binding(NFS, 3, netid, b"", b"");
    let long = vec![b'x'; 1025];
    for (clause, version, procedure, arguments, expected) in [
        // §3.2: version 2.
        ("SET and UNSET register nothing", 2, 1, words(&[QUOTAS, 4, 6, 4045]), no()),
        ("nor do they for what is served", 2, 1, words(&[NFS, 3, 6, 2049]), no()),
        ("", 2, 2, words(&[NFS, 3, 6, 2049]), no()),
        ("", 2, 1, words(&[NFS, 3, 6]), Garbage),
        ("GETPORT", 2, 3, words(&[NFS, 3, 6, 0]), port(2049)),
        ("whose port is ignored", 2, 3, words(&[NFS, 3, 17, 99]), port(2049)),
        ("of any version of a program", 2, 3, words(&[NFS, 2, 6, 0]), port(2049)),
        ("0 for what is not registered", 2, 3, words(&[QUOTAS, 4, 6, 0]), port(0)),
        ("nor by this protocol", 2, 3, words(&[NFS, 3, 132, 0]), port(0)),
        ("itself", 2, 3, words(&[RPCBIND, 2, 17, 0]), port(111)),
        (
            "CALLIT tells the port and what came of it",
            2,
            5,
            remote(NFS, 3, 0, b""),
            Results(words(&[2049, 0])),
        ),
        ("with arguments, too", 2, 5, remote(MOUNT, 1, 0, &[1; 99]), Results(words(&[2049, 0]))),
        ("and is silent otherwise: no such program", 2, 5, remote(QUOTAS, 4, 0, b""), Nothing),
        ("no such version", 2, 5, remote(NFS, 4, 0, b""), Nothing),
        ("what is not to be called so", 2, 5, remote(MOUNT, 3, 5, b""), Nothing),
        ("", 2, 5, remote(NFS, 3, 1, b""), Nothing),
        ("what cannot be decoded", 2, 5, words(&[NFS, 3]), Nothing),
        ("", 2, 5, words(&[NFS, 3, 0, 99]), Nothing),
        ("there are no more", 2, 6, vec![], ProcedureUnavailable),
        // §2.2.1: version 3, and §2.2.2: version 4.
        ("SET and UNSET", 3, 1, nfs_by(b"tcp"), no()),
        ("whoever owns it", 4, 1, binding(QUOTAS, 4, b"udp", b"1.2.3.4.1.1", b"superuser"), no()),
        ("", 4, 2, binding(NFS, 3, b"", b"", b"0"), no()),
        ("strings are bounded", 4, 1, binding(NFS, 3, &long, b"", b""), Garbage),
        ("", 4, 1, binding(NFS, 3, b"", &long, b""), Garbage),
        ("", 4, 1, binding(NFS, 3, b"", b"", &long), Garbage),
        ("GETADDR", 3, 3, nfs_by(b""), text(nfs)),
        ("whose netid is that of the transport", 3, 3, nfs_by(b"tcp"), text(nfs)),
        ("whatever it says", 3, 3, nfs_by(b"ticlts"), text(nfs)),
        ("", 4, 3, nfs_by(b"\xff\0"), text(nfs)),
        ("of any version", 3, 3, binding(NFS, 2, b"tcp", b"", b""), text(nfs)),
        (
            "empty for what rpcbind does not tell",
            4,
            3,
            binding(RECOVERY, 1, b"tcp", b"", b""),
            text(""),
        ),
        ("empty for what is not registered", 4, 3, binding(QUOTAS, 4, b"tcp", b"", b""), text("")),
        ("CALLIT", 3, 5, remote(NFS, 3, 0, b""), told(nfs)),
        ("BCAST", 4, 5, remote(NFSACL, 3, 0, b"args"), told(nfs)),
        ("itself", 4, 5, remote(RPCBIND, 4, 0, b""), told("127.0.0.1.0.111")),
        ("silent", 3, 5, remote(QUOTAS, 4, 0, b""), Nothing),
        ("", 4, 5, remote(MOUNT, 3, 5, b""), Nothing),
        ("", 4, 5, vec![1, 2, 3], Nothing),
        ("GETTIME", 3, 6, vec![], port(NOW_S)),
        ("", 4, 6, vec![9; 9], port(NOW_S)),
        ("", 2, 7, vec![], ProcedureUnavailable),
        ("UADDR2TADDR", 3, 7, opaque(nfs.as_bytes()), Results(netbuf(&sockaddr))),
        ("of what is none", 4, 7, opaque(b"none"), Results(netbuf(b""))),
        ("", 4, 7, opaque(&long), Garbage),
        ("TADDR2UADDR", 4, 8, netbuf(&sockaddr), text(nfs)),
        (
            "whose maxlen is nobody's business",
            3,
            8,
            [words(&[0]), opaque(&sockaddr)].concat(),
            text(nfs),
        ),
        ("of what is none", 4, 8, netbuf(b"abc"), text("")),
        ("", 4, 8, words(&[9]), Garbage),
        ("version 3 has no more", 3, 9, nfs_by(b""), ProcedureUnavailable),
        ("", 3, 10, remote(NFS, 3, 0, b""), ProcedureUnavailable),
        ("", 3, 12, vec![], ProcedureUnavailable),
        ("GETVERSADDR is of one version", 4, 9, nfs_by(b""), text(nfs)),
        ("", 4, 9, binding(NFS, 2, b"", b"", b""), text("")),
        ("INDIRECT", 4, 10, remote(MOUNT, 3, 0, b""), told(nfs)),
        ("tells errors", 4, 10, remote(QUOTAS, 4, 0, b""), ProgramUnavailable),
        ("", 4, 10, remote(NFS, 2, 0, b""), ProgramUnavailable),
        ("", 4, 10, remote(NFS, 3, 6, b""), ProcedureUnavailable),
        ("", 4, 10, words(&[NFS]), Garbage),
        ("GETADDRLIST of what is not registered", 4, 11, binding(NFS, 2, b"", b"", b""), no()),
        ("", 4, 13, vec![], ProcedureUnavailable),
    ] {
        let arguments: Vec<u8> = arguments;
        let call = Call { procedure: (RPCBIND, version, procedure), arguments, ..null() };
        let got = got(&engine, &peer(Transport::Tcp), &call.bytes());
        assert_eq!(got, expected, "{clause}: version {version}, procedure {procedure}");
    }
}

#[test]
fn a_call_that_is_passed_on_never_makes_more_of_it() {
    let engine = rpcbind(ALL);
    for version in 2..=4 {
        for procedure in [5, 10] {
            for (program, wanted) in [(NFS, 3), (MOUNT, 3), (RPCBIND, 4), (QUOTAS, 4)] {
                let arguments = remote(program, wanted, 0, b"");
                let call = Call { procedure: (RPCBIND, version, procedure), arguments, ..null() };
                let mut reply = ReplyBuffer::default();
                let _ = engine.call(&mut Host, &peer(Transport::Udp), 0, &call.bytes(), &mut reply);
                assert!(reply.bytes.len() <= call.bytes().len());
            }
        }
    }
}

#[test]
fn nobody_is_sent_to_where_nobody_answers() {
    for (transports, transport, local, by_version_2, by_version_4) in [
        (ALL, Transport::Udp, "127.0.0.1:111", true, true),
        (Transports { udp: false, ..ALL }, Transport::Tcp, "127.0.0.1:111", false, true),
        (Transports { ipv6: false, ..ALL }, Transport::Udp, "[::1]:111", false, false),
        (Transports { ipv4: false, ..ALL }, Transport::Udp, "[::1]:111", true, true),
    ] {
        let engine = rpcbind(transports);
        let local: SocketAddr = local.parse().unwrap();
        let peer = Peer::new(SocketAddr::new(local.ip(), 700), local, transport);
        for (version, is_told) in [(2, by_version_2), (4, by_version_4)] {
            let arguments = remote(NFS, 3, 0, b"");
            let call = Call { procedure: (RPCBIND, version, 5), arguments, ..null() };
            let got = got(&engine, &peer, &call.bytes());
            assert_eq!(got != Nothing, is_told, "{transports:?} {local} {version}: {got:?}");
        }
    }
}

#[test]
fn calls_are_counted_by_version_and_procedure() {
    let engine = rpcbind(ALL);
    let peer = peer(Transport::Tcp);
    let call = |version, procedure, arguments: Vec<u8>| {
        let call = Call { procedure: (RPCBIND, version, procedure), arguments, ..null() };
        got(&engine, &peer, &call.bytes())
    };
    for _ in 0..3 {
        call(2, 3, words(&[NFS, 3, 6, 0]));
    }
    call(3, 6, vec![]);
    call(4, 0, vec![]);
    call(4, 99, vec![]);
    // Also what cannot be decoded.
    call(4, 3, vec![]);
    let Results(results) = call(4, 12, vec![]) else { panic!("no statistics") };
    let mut r = Reader::new(&results);
    let mut seen = Vec::new();
    for version in 2..=4_u32 {
        for procedure in 0..13_u32 {
            match r.u32().unwrap() {
                0 => {}
                count => seen.push((version, procedure, count)),
            }
        }
        // Set, unset, addresses asked for, calls passed on.
        assert_eq!([0; 4].map(|_: u32| r.u32().unwrap()), [0; 4]);
    }
    assert!(r.is_empty());
    assert_eq!(seen, [(2, 3, 3), (3, 6, 1), (4, 0, 1), (4, 3, 1), (4, 12, 1)]);
}
