//! Replies to callbacks, as an engine takes them. An input is a row of steps, each after two bytes:
//! what it is, and how many words belong to it. A lock goes to a client that waits for it, which is
//! called; what the input has is its reply. Callbacks are well-formed, and the client's requests go
//! on, whatever it answers.
#![no_main]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use libfuzzer_sys::fuzz_target;
use steadfast_client::nfs4::{ClientSettings, Compound, LockIsFree4, Nfs4Client};
use steadfast_client::{
    ClientError, FileHandle, Identity, Procedure, Reply, RpcTransport, append_call, parse_reply,
};
use steadfast_engine::{
    CallHost, CallbackSender, Engine, EngineConfig, Export, ExportTable, Peer, ReplyBuffer,
    Transport, Transports, Verdict,
};
use steadfast_shares::{
    ClientPattern, ClientRule, Flavors, Rights, RuleSet, Share, ShareId, Squash,
};
use steadfast_vfs::model::ModelFs;
use steadfast_wire::nfs4::{
    BindConnToSession4Args, Bitmap4, Fattr4, Lock4Args, LockOwner4, LockType4, LockU4Args, Locker4,
    Op4, Open4Args, OpenClaim4, OpenHow4, StateId4,
};

const STEPS_MAX: usize = 64;

struct Host;

impl CallHost for Host {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}
}

#[derive(Default)]
struct Sent(Mutex<Vec<Vec<u8>>>);

impl CallbackSender for Sent {
    fn send(&self, _: u64, message: &[u8]) -> bool {
        let mut sent = self.0.lock().expect("one thread");
        // As if the connection went now and then.
        sent.push(message.to_vec());
        !sent.len().is_multiple_of(7)
    }
}

/// A connection to the engine.
struct Wire {
    engine: Rc<Engine>,
    peer: Peer,
    xid: u32,
    now_ms: Rc<Cell<u64>>,
}

impl Wire {
    fn new(engine: &Rc<Engine>, now_ms: &Rc<Cell<u64>>, number: u64) -> Self {
        let address = |port| ([127, 0, 0, 1], port).into();
        let peer = Peer::new(address(1), address(2049), Transport::Tcp).on_connection(number);
        Self { engine: Rc::clone(engine), peer, xid: 0, now_ms: Rc::clone(now_ms) }
    }
}

impl RpcTransport for Wire {
    fn exchange(
        &mut self,
        procedure: Procedure,
        identity: &Identity,
        arguments: &[u8],
    ) -> Result<Reply, ClientError> {
        self.xid += 1;
        let (mut message, mut reply) = (Vec::new(), ReplyBuffer::default());
        append_call(&mut message, self.xid, procedure, identity, arguments);
        let now_ms = self.now_ms.get();
        match self.engine.call(&mut Host, &self.peer, now_ms, &message, &mut reply) {
            Verdict::Replied => {}
            Verdict::Parked(call) => self.engine.settle(call, Ok(()), now_ms, &mut reply.bytes),
            _ => panic!("a request without a reply"),
        }
        let (xid, body) = parse_reply(&reply.bytes).expect("a reply");
        Ok(Reply { xid, body, message: reply.bytes })
    }
}

fn engine() -> Engine {
    let flavors = Flavors::NONE | Flavors::SYS;
    let rights = Rights { flavors, squash: Squash::None, ..Rights::default() };
    let rule = ClientRule { pattern: ClientPattern::Any, grants: Arc::new([rights]) };
    let share = Share {
        id: ShareId(1),
        path: "/a".into(),
        elsewhere: None,
        crosses_mounts: false,
        without_log: false,
        is_draining: false,
        required_mounts: Arc::new([]),
        size: None,
        rules: Arc::new(RuleSet::new(vec![rule])),
    };
    let export = Export { share: Arc::new(share), storage: Arc::new(ModelFs::new(1, 0o777)) };
    let config = EngineConfig {
        instance: 1,
        nfs2: false,
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
    Engine::new(config, ExportTable::new(vec![export]))
}

struct Locker {
    client: Nfs4Client<Wire>,
    file: FileHandle,
    open: StateId4,
    lock: Option<StateId4>,
}

impl Locker {
    fn new(engine: &Rc<Engine>, now_ms: &Rc<Cell<u64>>, number: u64) -> Self {
        let settings = ClientSettings {
            owner: vec![number as u8],
            wants_callbacks: number == 2,
            ..ClientSettings::default()
        };
        let wire = Wire::new(engine, now_ms, number);
        let mut client = Nfs4Client::connect(wire, Identity::root(), &settings).expect("a session");
        let share = client.lookup_path(b"a").expect("the share");
        let nothing = Fattr4 { attrmask: Bitmap4::EMPTY, attr_vals: &[] };
        let open = Open4Args {
            seqid: 0,
            share_access: 3,
            share_deny: 0,
            clientid: 0,
            owner: b"opener",
            openhow: OpenHow4::Unchecked(nothing),
            claim: OpenClaim4::Null(b"f"),
        };
        let (open, file) = client
            .request(
                |compound| compound.put(&share).op(Op4::Open, &open).handle(),
                |reply| {
                    reply.done(Op4::PutFh)?;
                    Ok((reply.open()?.stateid, reply.handle()?))
                },
            )
            .expect("opened");
        Self { client, file, open, lock: None }
    }

    /// Asks for the lock, or gives it back.
    fn turns(&mut self) {
        let (file, taken) = (&self.file, self.lock.take());
        let lock_owner = LockOwner4 { clientid: 0, owner: b"locker" };
        let locker =
            Locker4::Open { open_seqid: 0, open_stateid: self.open, lock_seqid: 0, lock_owner };
        let (locktype, length) = (LockType4::WriteWaiting, u64::MAX);
        let turned = self.client.request(
            |compound| match taken {
                Some(lock_stateid) => compound.put(file).op(
                    Op4::LockU,
                    &LockU4Args { locktype, seqid: 0, lock_stateid, offset: 0, length },
                ),
                None => compound.put(file).op(
                    Op4::Lock,
                    &Lock4Args { locktype, reclaim: false, offset: 0, length, locker },
                ),
            },
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.stateid(if taken.is_some() { Op4::LockU } else { Op4::Lock })
            },
        );
        match turned {
            Ok(lock) if taken.is_none() => self.lock = Some(lock),
            Ok(_) => {}
            Err(error) => assert!(error.status4().is_some(), "{error}"),
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let (engine, now_ms, sent) = (Rc::new(engine()), Rc::new(Cell::new(1)), Arc::<Sent>::default());
    engine.set_callback_sender(Arc::clone(&sent) as _);
    let mut holder = Locker::new(&engine, &now_ms, 1);
    let mut waiter = Locker::new(&engine, &now_ms, 2);
    let (mut rest, mut last_xid) = (input, [0; 4]);
    for _ in 0..STEPS_MAX {
        let Some(([kind, words], later)) = rest.split_first_chunk::<2>() else { break };
        let (reply, later) = later.split_at(later.len().min(usize::from(*words) * 4));
        rest = later;
        match kind % 8 {
            0 | 1 => holder.turns(),
            2 | 3 => waiter.turns(),
            4 => {
                now_ms.set(now_ms.get() + 1_000 * u64::from(kind / 32 + 1));
                engine.tick(now_ms.get());
            }
            5 => {
                let sessionid = waiter.client.session().slots.session();
                let bind =
                    BindConnToSession4Args { sessionid, dir: 7, use_conn_in_rdma_mode: false };
                let compound = Compound::new().op(Op4::BindConnToSession, &bind);
                waiter.client.send(&compound).expect("a reply");
            }
            _ => {
                let message = [&last_xid, &[0, 0, 0, 1][..], reply].concat();
                let (mut buffer, peer) = (ReplyBuffer::default(), &waiter.client.transport().peer);
                let verdict = engine.call(&mut Host, peer, now_ms.get(), &message, &mut buffer);
                assert!(matches!(verdict, Verdict::Silent), "the connection is bound");
            }
        }
        for message in std::mem::take(&mut *sent.0.lock().expect("one thread")) {
            let told = LockIsFree4::parse(&message).expect("a callback");
            assert_eq!(told.sequence.sessionid, waiter.client.session().slots.session());
            assert_eq!((told.object, &*told.owner), (waiter.file.0.clone(), &b"locker"[..]));
            last_xid = told.xid.to_be_bytes();
        }
    }
    for Locker { client, file, open, .. } in [&mut holder, &mut waiter] {
        let open = StateId4 { seqid: 0, ..*open };
        client.close(file, open).expect("its requests go on");
    }
});
