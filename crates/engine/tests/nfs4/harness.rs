//! Clients that speak NFSv4.1 or 4.2 to an engine over the in-memory model, one COMPOUND at a time.

use std::cell::Cell;
use std::sync::Arc;

use steadfast_engine::{
    CallHost, Delegations, Engine, EngineConfig, Export, ExportTable, IdMapping, LocalGuard, Peer,
    ReplyBuffer, Room, StorageId, SuspendedCall, Transport, Transports, Verdict,
};
use steadfast_shares::{
    Authority, ClientPattern, ClientRule, Flavor, Rights, RulesOnly, Share, ShareId, Squash,
};
use steadfast_vfs::model::ModelFs;
use steadfast_wire::nfs4::{
    ChannelAttributes4, CreateSession4Args, ExchangeId4Args, Op4, ReclaimComplete4Args,
    Sequence4Args, StateProtect4,
};
use steadfast_xdr::Reader;

use crate::compounds::{HEADER_BYTES, Ops, Reply, words, xdr};

const NFS: u32 = 100_003;

/// Lets calls wait so often, then puts them off.
pub(crate) struct Host {
    pub(crate) waits: usize,
    pub(crate) suspended: Option<SuspendedCall>,
}

impl Host {
    pub(crate) fn free() -> Self {
        Self { waits: usize::MAX, suspended: None }
    }
}

impl CallHost for Host {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}

    fn room_to_wait(&mut self, _: StorageId) -> Room {
        match self.waits.checked_sub(1) {
            Some(rest) => {
                self.waits = rest;
                Room::Free
            }
            None => Room::Later,
        }
    }

    fn take_suspended(&mut self) -> Option<SuspendedCall> {
        self.suspended.take()
    }
}

pub(crate) struct Server {
    pub(crate) engine: Engine,
    xid: Cell<u32>,
    pub(crate) now_ms: Cell<u64>,
}

/// Who sends a message, and as whom.
pub(crate) struct Sender {
    pub(crate) peer: Peer,
    pub(crate) uid: u32,
    pub(crate) flavor: Flavor,
}

pub(crate) fn sender(connection: u64) -> Sender {
    let local = "127.0.0.1:2049".parse().unwrap();
    let peer = Peer::new("127.0.0.1:700".parse().unwrap(), local, Transport::Tcp);
    Sender { peer: peer.on_connection(connection), uid: 0, flavor: Flavor::Sys }
}

/// A rule for these clients.
pub(crate) fn rule(network: &str, rights: Rights) -> ClientRule {
    let pattern = ClientPattern::Network { network: network.parse().unwrap(), prefix_bits: 8 };
    ClientRule { pattern, grants: Arc::new([rights]) }
}

pub(crate) fn everything() -> Rights {
    Rights { squash: Squash::None, ..Rights::default() }
}

pub(crate) fn share(id: u64, path: &str, rules: Vec<ClientRule>) -> Share {
    Share {
        id: ShareId(id),
        path: path.into(),
        elsewhere: None,
        crosses_mounts: false,
        required_mounts: Arc::default(),
        size: None,
        without_log: false,
        is_draining: false,
        rules: Arc::new(rules.into()),
    }
}

pub(crate) fn export(share: Share) -> Export {
    let fsid = share.id.0;
    Export { share: Arc::new(share), storage: Arc::new(ModelFs::new(fsid, 0o777)) }
}

impl Server {
    /// One share, `/a`.
    pub(crate) fn new() -> Self {
        let all = vec![rule("127.0.0.0", everything())];
        Self::of(vec![export(share(1, "/a", all))])
    }

    pub(crate) fn of(exports: Vec<Export>) -> Self {
        Self::of_instance(7, exports)
    }

    pub(crate) fn of_instance(instance: u32, exports: Vec<Export>) -> Self {
        Self::delegating(instance, exports, Delegations::None)
    }

    pub(crate) fn delegating(
        instance: u32,
        exports: Vec<Export>,
        delegations: Delegations,
    ) -> Self {
        Self::guarding(instance, exports, delegations, LocalGuard::None)
    }

    pub(crate) fn guarding(
        instance: u32,
        exports: Vec<Export>,
        delegations: Delegations,
        local_guard: LocalGuard,
    ) -> Self {
        let names = (IdMapping::default(), Arc::new(RulesOnly) as _);
        Self::with(instance, exports, (delegations, local_guard), names)
    }

    /// With owners by name, as who is asked knows them.
    pub(crate) fn naming(
        exports: Vec<Export>,
        idmapping: IdMapping,
        authority: Arc<dyn Authority>,
    ) -> Self {
        Self::with(7, exports, (Delegations::None, LocalGuard::None), (idmapping, authority))
    }

    fn with(
        instance: u32,
        exports: Vec<Export>,
        (delegations, local_guard): (Delegations, LocalGuard),
        (idmapping, authority): (IdMapping, Arc<dyn Authority>),
    ) -> Self {
        let config = EngineConfig {
            instance,
            nfs2: true,
            delegations,
            local_guard,
            idmapping,
            nfs4: true,
            handle_key: [9; 16],
            write_verifier: 77,
            transfer_bytes_max: 1 << 20,
            reply_cache_bytes_max: 1 << 20,
            reply_cache_history_ms: 65_000,
            nfs_port: 2049,
            transports: Transports { udp: true, ipv4: true, ipv6: true },
        };
        let engine = Engine::with_authority(config, ExportTable::new(exports), authority);
        Self { engine, xid: Cell::new(1), now_ms: Cell::new(0) }
    }

    pub(crate) fn message(
        &self,
        from: &Sender,
        version: u32,
        procedure: u32,
        body: &[u8],
    ) -> Vec<u8> {
        self.xid.set(self.xid.get() + 1);
        let mut message = xdr(|w| {
            for word in [self.xid.get(), 0, 2, NFS, version, procedure] {
                w.u32(word);
            }
            let cred = xdr(|w| {
                w.u32(0);
                w.opaque(b"client");
                for word in [from.uid, from.uid, 0] {
                    w.u32(word);
                }
            });
            let is_sys = from.flavor == Flavor::Sys;
            w.u32(u32::from(is_sys));
            w.opaque(if is_sys { &cred } else { &[] });
            w.u32(0);
            w.u32(0);
        });
        message.extend_from_slice(body);
        message
    }

    /// Executes a message; `None` if there is no reply.
    pub(crate) fn send(&self, from: &Sender, message: &[u8]) -> Option<Vec<u8>> {
        match self.send_by(&mut Host::free(), from, message) {
            Ok(reply) => reply,
            Err(suspended) => panic!("{suspended:?}"),
        }
    }

    pub(crate) fn send_by(
        &self,
        host: &mut Host,
        from: &Sender,
        message: &[u8],
    ) -> Result<Option<Vec<u8>>, SuspendedCall> {
        let mut reply = ReplyBuffer::default();
        match self.engine.call(host, &from.peer, self.now_ms.get(), message, &mut reply) {
            Verdict::Replied => Ok(Some(reply.bytes)),
            Verdict::Parked(call) => {
                self.engine.settle(call, Ok(()), 0, &mut reply.bytes);
                Ok(Some(reply.bytes))
            }
            Verdict::Suspended(call) => {
                assert!(reply.bytes.is_empty());
                Err(call)
            }
            Verdict::Silent | Verdict::HangUp(_) => Ok(None),
        }
    }

    /// A COMPOUND as it is sent.
    pub(crate) fn compound(&self, from: &Sender, tag: &[u8], minor: u32, ops: &Ops) -> Vec<u8> {
        let mut body = xdr(|w| {
            w.opaque(tag);
            w.u32(minor);
            w.u32(ops.count);
        });
        body.extend_from_slice(&ops.bytes);
        self.message(from, 4, 1, &body)
    }

    /// A COMPOUND of no session.
    pub(crate) fn run(&self, from: &Sender, ops: &Ops) -> Reply {
        let message = self.compound(from, b"", 1, ops);
        Reply::read(&self.send(from, &message).unwrap())
    }

    /// Makes an object by NFSv3 in a directory; its handle.
    pub(crate) fn make(&self, dir: &[u8], name: &[u8], procedure: u32, how: &[u8]) -> Vec<u8> {
        let from = sender(0);
        let mut body = xdr(|w| {
            w.opaque(dir);
            w.opaque(name);
        });
        body.extend_from_slice(how);
        let reply = self.send(&from, &self.message(&from, 3, procedure, &body)).unwrap();
        let mut r = Reader::new(&reply[HEADER_BYTES..]);
        assert_eq!(r.u32().unwrap(), 0);
        assert!(r.bool().unwrap());
        r.opaque(64).unwrap().to_vec()
    }

    pub(crate) fn make_file(&self, dir: &[u8], name: &[u8], mode: u32) -> Vec<u8> {
        self.make(dir, name, 8, &words(&[1, 1, mode, 0, 0, 0, 0, 0]))
    }

    pub(crate) fn make_directory(&self, dir: &[u8], name: &[u8]) -> Vec<u8> {
        self.make(dir, name, 9, &words(&[1, 0o777, 0, 0, 0, 0, 0]))
    }

    pub(crate) fn make_symlink(&self, dir: &[u8], name: &[u8]) -> Vec<u8> {
        let mut how = words(&[0; 6]);
        how.extend(xdr(|w| w.opaque(b"target")));
        self.make(dir, name, 10, &how)
    }

    pub(crate) fn make_fifo(&self, dir: &[u8], name: &[u8]) -> Vec<u8> {
        self.make(dir, name, 11, &words(&[7, 0, 0, 0, 0, 0, 0]))
    }
}

/// A client with a session.
pub(crate) struct Client<'s> {
    pub(crate) server: &'s Server,
    pub(crate) from: Sender,
    pub(crate) id: u64,
    pub(crate) session: [u8; 16],
    pub(crate) sequence: Cell<u32>,
    /// The minor version that it speaks.
    pub(crate) minor: u32,
}

pub(crate) fn exchange_id(owner: &[u8]) -> ExchangeId4Args<'_> {
    ExchangeId4Args {
        verifier: [1; 8],
        ownerid: owner,
        flags: 0,
        state_protect: StateProtect4::None,
        client_impl_id: Vec::new(),
    }
}

pub(crate) fn channel() -> ChannelAttributes4 {
    ChannelAttributes4 {
        headerpadsize: 0,
        maxrequestsize: 1 << 20,
        maxresponsesize: 1 << 20,
        maxresponsesize_cached: 1 << 20,
        maxoperations: 64,
        maxrequests: 8,
        rdma_ird: Vec::new(),
    }
}

pub(crate) fn create_session(client: u64, sequence: u32) -> CreateSession4Args<'static> {
    CreateSession4Args {
        clientid: client,
        sequence,
        flags: 0,
        fore: channel(),
        back: channel(),
        cb_program: 0,
        sec_parms: Vec::new(),
    }
}

impl<'s> Client<'s> {
    /// A client that has nothing to reclaim.
    pub(crate) fn new(server: &'s Server, owner: &[u8], from: Sender) -> Self {
        let client = Self::with(server, owner, from, channel());
        let last_slot = channel().maxrequests - 1;
        let ops = Ops::new()
            .op(Op4::Sequence, &client.sequence(last_slot, 1, false))
            .op(Op4::ReclaimComplete, &ReclaimComplete4Args { one_fs: false });
        server.run(&client.from, &ops).succeeds();
        client
    }

    pub(crate) fn with(
        server: &'s Server,
        owner: &[u8],
        from: Sender,
        fore: ChannelAttributes4,
    ) -> Self {
        let (id, sequence) = exchange(server, owner, &from);
        let arguments = CreateSession4Args { fore, ..create_session(id, sequence) };
        let mut created =
            server.run(&from, &Ops::new().op(Op4::CreateSession, &arguments)).succeeds();
        created.ok(Op4::CreateSession);
        let session = created.take(|r| r.array().unwrap());
        Self { server, from, id, session, sequence: Cell::new(0), minor: 1 }
    }

    /// SEQUENCE in a slot.
    pub(crate) fn sequence(&self, slot: u32, sequence: u32, is_kept: bool) -> Sequence4Args {
        Sequence4Args {
            sessionid: self.session,
            sequenceid: sequence,
            slotid: slot,
            highest_slotid: slot,
            cachethis: is_kept,
        }
    }

    /// The next request of slot 0.
    pub(crate) fn next(&self, is_kept: bool, ops: &Ops) -> Vec<u8> {
        self.sequence.set(self.sequence.get() + 1);
        let sequence = self.sequence(0, self.sequence.get(), is_kept);
        let ops = Ops::new().op(Op4::Sequence, &sequence).then(ops);
        self.server.compound(&self.from, b"", self.minor, &ops)
    }

    /// Executes operations; what follows SEQUENCE's result.
    #[track_caller]
    pub(crate) fn run(&self, ops: &Ops) -> Reply {
        let message = self.next(false, ops);
        let mut reply = Reply::read(&self.server.send(&self.from, &message).unwrap());
        if reply.count > 1 || reply.status == 0 {
            reply.ok(Op4::Sequence);
            reply.take(|r| r.fixed_opaque(36).map(drop)).unwrap();
        }
        reply
    }

    pub(crate) fn handle(&self, names: &[&[u8]]) -> Vec<u8> {
        self.run(&Ops::at(names).bare(Op4::GetFh)).succeeds().handle()
    }
}

/// The client id that `EXCHANGE_ID` tells, and the sequence id.
pub(crate) fn exchange(server: &Server, owner: &[u8], from: &Sender) -> (u64, u32) {
    let ops = Ops::new().op(Op4::ExchangeId, &exchange_id(owner));
    let mut reply = server.run(from, &ops).succeeds();
    reply.ok(Op4::ExchangeId);
    reply.take(|r| (r.u64().unwrap(), r.u32().unwrap()))
}
