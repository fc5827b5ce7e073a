//! An engine over a file system in memory, which takes calls as bytes and checks its replies.

use std::sync::Arc;

use steadfast_client::{NFS3, ReplyBody, mount, nfsacl, parse_reply, recovery, rpcbind};
use steadfast_engine::{
    CallHost, Engine, EngineConfig, Export, ExportTable, Peer, ReplyBuffer, Transport, Transports,
    Verdict,
};
use steadfast_shares::{
    ClientPattern, ClientRule, Flavors, Rights, RuleSet, Share, ShareId, Squash,
};
use steadfast_vfs::FsError;
use steadfast_vfs::model::ModelFs;
use steadfast_wire::mount::{Exports, FhStatus, MountList};
use steadfast_wire::nfs2::NfsStat2;
use steadfast_wire::nfs3::{
    Create3Args, CreateHow3, DirOpArgs3, Mkdir3Args, NfsFh3, Sattr3, SetTime3,
};
use steadfast_wire::nfs4::{
    CallbackClient4, ChannelAttributes4, CompoundHead4, CreateSession4Args, ExchangeId4Args,
    NfsStat4, Op4, ReclaimComplete4Args, Sequence4Args, SetClientId4Args, SetClientIdConfirm4Args,
    StateProtect4,
};
use steadfast_wire::rpc::{CallHeader, OpaqueAuth};
use steadfast_wire::rpcbind::{
    AddressList, BindingList, MappingList, Netbuf, RemoteResult, RemoteResult2, UniversalAddress,
};
use steadfast_xdr::{Decode, Encode, Reader};

use crate::{client_reads, written};

/// Most handles remembered of replies.
const HANDLES_MAX: usize = 16;

/// `AUTH_SYS` of root without further groups.
pub const ROOT: &[u8] = &[0; 20];

/// Attributes that set nothing.
pub const NO_CHANGE: Sattr3 = Sattr3 {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: SetTime3::DontChange,
    mtime: SetTime3::DontChange,
};

struct Host;

impl CallHost for Host {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}
}

/// A server with the shares `/a` and `/b`, in which `/a` has a file `f` and a directory `d`.
pub struct Server {
    engine: Engine,
    peer: Peer,
    handles: Vec<Vec<u8>>,
    now_ms: u64,
    /// Of a client of NFSv4, once there is one, and the sequence id of its slot's last request.
    session: Option<([u8; 16], u32)>,
    /// Of a client of minor version 0, once there is one.
    client0: Option<u64>,
    /// What OPEN of minor version 0 told last, without its seqid.
    stateid0: [u8; 12],
}

impl Default for Server {
    fn default() -> Self {
        let flavors = Flavors::NONE | Flavors::SYS;
        let rights = Rights { flavors, squash: Squash::None, ..Rights::default() };
        let export = |number: u64, path: &str| Export {
            share: Arc::new(Share {
                id: ShareId(number),
                path: path.into(),
                elsewhere: None,
                crosses_mounts: false,
                without_log: false,
                is_draining: false,
                required_mounts: Arc::new([]),
                size: None,
                rules: Arc::new(RuleSet::new(vec![ClientRule {
                    pattern: ClientPattern::Any,
                    grants: Arc::new([rights.clone()]),
                }])),
            }),
            storage: Arc::new(ModelFs::new(number, 0o777)),
        };
        let config = EngineConfig {
            instance: 1,
            nfs2: true,
            delegations: steadfast_engine::Delegations::None,
            local_guard: steadfast_engine::LocalGuard::None,
            idmapping: steadfast_engine::IdMapping::default(),
            nfs4: true,
            handle_key: [3; 16],
            write_verifier: 1,
            transfer_bytes_max: 1 << 20,
            reply_cache_bytes_max: 1 << 16,
            reply_cache_history_ms: 65_000,
            nfs_port: 2049,
            transports: Transports { udp: true, ipv4: true, ipv6: true },
        };
        let exports = ExportTable::new(vec![export(1, "/a"), export(2, "/b")]);
        let mut server = Self {
            engine: Engine::new(config, exports),
            peer: Peer::new(
                ([127, 0, 0, 1], 1).into(),
                ([127, 0, 0, 1], 2049).into(),
                Transport::Tcp,
            ),
            handles: Vec::new(),
            now_ms: 0,
            session: None,
            client0: None,
            stateid0: [0; 12],
        };
        for path in [&b"/a"[..], b"/b"] {
            let argument = written(&steadfast_wire::mount::DirPath { path });
            server.call(&message(mount::MOUNT, 3, 1, &argument), true);
        }
        assert_eq!(server.handles.len(), 2, "both shares can be mounted");
        let root = server.handles[0].clone();
        let place = |name| DirOpArgs3 { dir: NfsFh3(&root), name };
        let file = Create3Args { where_: place(b"f"), how: CreateHow3::Unchecked(NO_CHANGE) };
        server.call(&message(NFS3, 3, 8, &written(&file)), true);
        let directory = Mkdir3Args { where_: place(b"d"), attributes: NO_CHANGE };
        server.call(&message(NFS3, 3, 9, &written(&directory)), true);
        assert_eq!(server.handles.len(), 4, "a file and a directory can be made");
        server
    }
}

/// A call of root.
pub fn message(program: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let mut message = written(&CallHeader {
        xid: 7,
        rpcvers: 2,
        prog: program,
        vers: version,
        proc_: procedure,
        cred: OpaqueAuth { flavor: 1, body: ROOT },
        verf: OpaqueAuth { flavor: 0, body: &[] },
    });
    message.extend_from_slice(arguments);
    message
}

/// A COMPOUND of root.
fn nfs4_message(minorversion: u32, count: u32, operations: &[u8]) -> Vec<u8> {
    let head = written(&CompoundHead4 { tag: b"", minorversion, operations: count });
    message(NFS3, 4, 1, &[&head, operations].concat())
}

/// What stands for the handle of this index in an input: a handle of two bytes.
pub fn stand_in(index: u8) -> [u8; 2] {
    [b'H', index]
}

impl Server {
    /// Sends a COMPOUND of so many operations, these bytes, behind SEQUENCE. Whatever came before, its
    /// slot is free.
    pub fn compound(&mut self, count: u32, operations: &[u8], flush_works: bool) {
        if self.session.is_none() {
            self.session = Some((self.new_session(), 0));
            let nothing_left = written(&ReclaimComplete4Args { one_fs: false });
            self.compound(1, &[written(&Op4::ReclaimComplete), nothing_left].concat(), true);
        }
        let Some((session, sequence)) = &mut self.session else { return };
        *sequence += 1;
        let sequence = Sequence4Args {
            sessionid: *session,
            sequenceid: *sequence,
            slotid: 0,
            highest_slotid: 0,
            cachethis: *sequence % 2 == 0,
        };
        let first = [written(&Op4::Sequence), written(&sequence)].concat();
        let operations = [&first, operations].concat();
        // Both minor versions that have sessions.
        let message = nfs4_message(1 + count % 2, count + 1, &operations);
        let reply = self.call(&message, flush_works);
        // SEQUENCE itself was good, unless this client's state was destroyed by what came before.
        let status = reply.as_deref().and_then(|reply| reply.get(44..48));
        if status == Some(&(NfsStat4::BadSession as u32).to_be_bytes()) {
            self.session = None;
        }
    }

    /// Sends a COMPOUND of minor version 0. In it `CLID` stands for the id of a client that is set and
    /// confirmed, `STID` for a stateid without its seqid.
    pub fn compound_of_minor_0(&mut self, count: u32, operations: &[u8], flush_works: bool) {
        if self.client0.is_none() {
            self.client0 = Some(self.new_client0());
        }
        let reply = self.call(&nfs4_message(0, count, operations), flush_works);
        let words = reply.as_deref().unwrap_or(&[]).as_chunks::<4>().0;
        let opened = words.array_windows().find_map(|window| match window {
            [[0, 0, 0, 18], [0, 0, 0, 0], _seqid, one, two, three] => Some([*one, *two, *three]),
            _ => None,
        });
        if let Some(other) = opened {
            self.stateid0.copy_from_slice(other.as_flattened());
        }
    }

    /// A client of minor version 0.
    fn new_client0(&mut self) -> u64 {
        let callback = CallbackClient4 { program: 1, netid: b"tcp", address: b"127.0.0.1.8.1" };
        let set = SetClientId4Args { verifier: [1; 8], id: b"client", callback, callback_ident: 1 };
        let set = [written(&Op4::SetClientId), written(&set)].concat();
        let reply = self.call(&nfs4_message(0, 1, &set), true).expect("a reply");
        let mut result = Reader::new(reply.get(24 + 20..).expect("a client"));
        let (clientid, confirm) = (result.u64().expect("an id"), result.array().expect("a proof"));
        let confirm = written(&SetClientIdConfirm4Args { clientid, confirm });
        let confirm = [written(&Op4::SetClientIdConfirm), confirm].concat();
        self.call(&nfs4_message(0, 1, &confirm), true);
        clientid
    }

    /// A client that begins anew, with a session.
    fn new_session(&mut self) -> [u8; 16] {
        let exchange = ExchangeId4Args {
            verifier: self.now_ms.to_be_bytes(),
            ownerid: b"client",
            flags: 0,
            state_protect: StateProtect4::None,
            client_impl_id: Vec::new(),
        };
        let exchange = [written(&Op4::ExchangeId), written(&exchange)].concat();
        let reply = self.call(&nfs4_message(1, 1, &exchange), true).expect("a reply");
        let mut result = Reader::new(reply.get(24 + 20..).expect("a client"));
        let (clientid, sequence) = (result.u64().expect("an id"), result.u32().expect("a number"));
        let channel = || ChannelAttributes4 {
            headerpadsize: 0,
            maxrequestsize: 1 << 20,
            maxresponsesize: 1 << 20,
            maxresponsesize_cached: 1 << 12,
            maxoperations: 64,
            maxrequests: 2,
            rdma_ird: Vec::new(),
        };
        let create = CreateSession4Args {
            clientid,
            sequence,
            flags: 0,
            fore: channel(),
            back: channel(),
            cb_program: 0,
            sec_parms: Vec::new(),
        };
        let create = [written(&Op4::CreateSession), written(&create)].concat();
        let reply = self.call(&nfs4_message(1, 1, &create), true).expect("a reply");
        Reader::new(reply.get(24 + 20..).expect("a session")).array().expect("an id")
    }

    /// Puts handles in the place of their stand-ins: `H` and an index is a handle the server
    /// gave, `D` and a number such a handle with one bit turned. The same with what a client of minor
    /// version 0 was given.
    fn with_handles(&self, input: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(input.len() * 2);
        let (words, tail) = input.as_chunks::<4>();
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            match (word, self.client0) {
                (b"CLID", Some(client)) => {
                    message.extend_from_slice(&client.to_be_bytes());
                    continue;
                }
                (b"STID", Some(_)) => {
                    message.extend_from_slice(&self.stateid0);
                    continue;
                }
                ([b'H', b'2', index, bit], _) => {
                    message.extend_from_slice(&self.handle2(*index, *bit));
                    continue;
                }
                _ => {}
            }
            let handle = match (word, words.peek()) {
                ([0, 0, 0, 2], Some([b'H', index, 0, 0])) => {
                    Some(self.handles[usize::from(*index) % self.handles.len()].clone())
                }
                ([0, 0, 0, 2], Some([b'D', bit, 0, 0])) => {
                    let mut damaged = self.handles[usize::from(*bit >> 6)].clone();
                    let length = damaged.len();
                    damaged[usize::from(*bit) / 8 % length] ^= 1 << (bit % 8);
                    Some(damaged)
                }
                _ => None,
            };
            if let Some(handle) = handle {
                words.next();
                NfsFh3(&handle).encode(&mut steadfast_xdr::Writer::new(&mut message));
            } else {
                message.extend_from_slice(word);
            }
        }
        message.extend_from_slice(tail);
        message
    }

    /// A handle as NFSv2 has it, with one bit turned unless that is 0.
    fn handle2(&self, index: u8, bit: u8) -> [u8; 32] {
        let known = &self.handles[usize::from(index) % self.handles.len()];
        let mut handle = [0; 32];
        for (to, from) in handle.iter_mut().zip(known) {
            *to = *from;
        }
        if bit != 0 {
            handle[usize::from(bit) / 8] ^= 1 << (bit % 8);
        }
        handle
    }

    /// Keeps handles that a reply seems to have, for later calls.
    fn learn_handles(&mut self, reply: &[u8]) {
        let (words, _) = reply.as_chunks::<4>();
        for index in 0..words.len() {
            if self.handles.len() >= HANDLES_MAX {
                return;
            }
            let from = reply.get(index * 4..).unwrap_or(&[]);
            if let Ok(NfsFh3(handle @ [1, length, ..])) = NfsFh3::decode(&mut Reader::new(from))
                && usize::from(*length) == handle.len()
                && handle.len() >= 18
                && !self.handles.iter().any(|known| known == handle)
            {
                self.handles.push(handle.to_vec());
            }
        }
    }

    /// Sends a call and checks the reply, which it returns. With `flush_works` false, a flush that the reply waits
    /// for fails.
    pub fn call(&mut self, input: &[u8], flush_works: bool) -> Option<Vec<u8>> {
        let message =
            if self.handles.is_empty() { input.to_vec() } else { self.with_handles(input) };
        self.now_ms += 1000;
        self.engine.tick(self.now_ms);
        let mut reply = ReplyBuffer::default();
        let verdict = self.engine.call(&mut Host, &self.peer, self.now_ms, &message, &mut reply);
        assert!(reply.files.is_empty(), "no file was allowed in the reply");
        let bytes = match verdict {
            Verdict::Replied => reply.bytes,
            Verdict::Parked(mut call) => {
                assert!(reply.bytes.is_empty(), "parked, and yet answered");
                while flush_works && call.go_on() {}
                let outcome = if flush_works { Ok(()) } else { Err(FsError::Io) };
                let mut bytes = Vec::new();
                self.engine.settle(call, outcome, self.now_ms, &mut bytes);
                bytes
            }
            Verdict::Silent | Verdict::Suspended(_) | Verdict::HangUp(_) => {
                assert!(reply.bytes.is_empty(), "no reply was due");
                return None;
            }
        };
        check_reply(&message, &bytes);
        self.learn_handles(&bytes);
        Some(bytes)
    }
}

/// A reply belongs to its call, and its results are of the procedure's type to the last byte.
fn check_reply(message: &[u8], reply: &[u8]) {
    assert_eq!(reply.len() % 4, 0);
    assert_eq!(reply.get(..4), message.get(..4), "the call's xid");
    let Ok((_, body)) = parse_reply(reply) else { panic!("no reply: {reply:?}") };
    let ReplyBody::Success { results_at } = body else { return };
    let Ok(call) = CallHeader::decode(&mut Reader::new(message)) else {
        panic!("success, but no call: {message:?}")
    };
    let results = reply.get(results_at..).unwrap_or(&[]);
    let is_well_formed = match (call.prog, call.vers, call.proc_) {
        (NFS3, 2, procedure) => Some(is_result2(procedure, results)),
        (NFS3, 4, 1) => Some(is_compound(results)),
        (NFS3 | nfsacl::NFSACL, 3, procedure) | (mount::MOUNT, 3, procedure @ 1..) => {
            client_reads((call.prog, call.vers, procedure), results)
        }
        (recovery::RECOVERY, 1, procedure) => {
            client_reads((call.prog, call.vers, procedure), results)
        }
        (mount::MOUNT, _, 1) => Some(whole::<FhStatus>(results)),
        (mount::MOUNT, _, 2) => Some(whole::<MountList<'_>>(results)),
        (mount::MOUNT, _, 5 | 6) => Some(whole::<Exports<'_>>(results)),
        (rpcbind::RPCBIND, _, 1 | 2) => Some(whole::<bool>(results)),
        (rpcbind::RPCBIND, 2, 3) => Some(whole::<u32>(results)),
        (rpcbind::RPCBIND, 2, 4) => Some(whole::<MappingList>(results)),
        (rpcbind::RPCBIND, _, 3 | 9) => Some(whole::<UniversalAddress<'_>>(results)),
        (rpcbind::RPCBIND, _, 4) => Some(whole::<BindingList<'_>>(results)),
        (rpcbind::RPCBIND, 2, 5) => Some(whole::<RemoteResult2<'_>>(results)),
        (rpcbind::RPCBIND, _, 5 | 10) => Some(whole::<RemoteResult<'_>>(results)),
        (rpcbind::RPCBIND, _, 6) => Some(whole::<u32>(results)),
        (rpcbind::RPCBIND, _, 7) => Some(whole::<Netbuf<'_>>(results)),
        (rpcbind::RPCBIND, _, 8) => Some(whole::<UniversalAddress<'_>>(results)),
        // Three times 13 counts of procedures, and four of other things.
        (rpcbind::RPCBIND, _, 12) => Some(results.len() == 3 * 17 * 4),
        (rpcbind::RPCBIND, _, 11) => Some(whole::<AddressList<'_>>(results)),
        _ => Some(results.is_empty()),
    };
    assert_eq!(is_well_formed, Some(true), "results of {call:?}: {results:?}");
}

/// Whether results are those of a procedure of NFSv2: the status is one of the protocol's, and what
/// follows a success is as long as it must be.
fn is_result2(procedure: u32, results: &[u8]) -> bool {
    const HANDLE: usize = 32;
    const ATTRIBUTES: usize = 68;
    if [0, 3, 7].contains(&procedure) {
        return results.is_empty();
    }
    let mut r = Reader::new(results);
    let Ok(status) = NfsStat2::decode(&mut r) else { return false };
    if status != NfsStat2::Ok {
        return r.is_empty();
    }
    let rest = match procedure {
        1 | 2 | 8 => r.fixed_opaque(ATTRIBUTES).is_ok(),
        4 | 9 | 14 => r.fixed_opaque(HANDLE + ATTRIBUTES).is_ok(),
        5 => r.opaque(1024).is_ok(),
        6 => r.fixed_opaque(ATTRIBUTES).is_ok() && r.opaque(8192).is_ok(),
        16 => is_list2(&mut r) && results.len() <= 8192,
        17 => r.fixed_opaque(5 * 4).is_ok(),
        _ => true,
    };
    rest && r.is_empty()
}

fn is_list2(r: &mut Reader<'_>) -> bool {
    loop {
        match r.bool() {
            Ok(true) => {}
            Ok(false) => return r.bool().is_ok(),
            Err(_) => return false,
        }
        if r.u32().is_err() || r.opaque(255).is_err() || r.u32().is_err() {
            return false;
        }
    }
}

/// Whether results begin as those of a COMPOUND do, and have room for as many operations as they say.
fn is_compound(results: &[u8]) -> bool {
    let mut r = Reader::new(results);
    let (Ok(status), Ok(_tag), Ok(count)) = (r.u32(), r.opaque(1024), r.u32()) else {
        return false;
    };
    let is_known = NfsStat4::ALL.iter().any(|known| *known as u32 == status);
    is_known && r.remaining() >= count as usize * 8 && (count == 0) == (r.remaining() == 0)
}

fn whole<'a, T: Decode<'a> + Encode>(results: &'a [u8]) -> bool {
    crate::check::<T>(results) == Some(results.len())
}
