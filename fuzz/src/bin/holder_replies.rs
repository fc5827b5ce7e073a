//! What the holder of a delegation answers to CB_GETATTR, as an engine takes it. An input is a row of steps, each
//! after two bytes: what it is, and how many words belong to it. Others look at the file by NFSv3; what the input
//! has is the holder's reply, from its first result on or its attributes alone. Callbacks are well-formed, who looks
//! is told what the storage has or to come later, and everybody's requests go on.
#![no_main]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use libfuzzer_sys::fuzz_target;
use steadfast_client::nfs4::{
    ACCESS_BOTH, AttributesAsked4, ClientSettings, Compound, Nfs4Client, Opening4, Recall4,
};
use steadfast_client::{
    ClientError, Identity, Procedure, Reply, ReplyBody, RpcTransport, append_call, parse_reply,
};
use steadfast_engine::{
    CallHost, CallbackSender, Engine, EngineConfig, Export, ExportTable, Peer, ReplyBuffer,
    SuspendedCall, Transport, Transports, Verdict,
};
use steadfast_shares::{
    ClientPattern, ClientRule, Flavors, Rights, RuleSet, Share, ShareId, Squash,
};
use steadfast_vfs::model::ModelFs;
use steadfast_wire::nfs4::{
    Attribute4, BindConnToSession4Args, Bitmap4, DelegReturn4Args, Fattr4, Op4, OpenClaim4,
    OpenHow4,
};

const STEPS_MAX: usize = 64;
/// So that the holder's lease does not end.
const STEP_MS_MAX: u64 = 1_000;
const LOOK: Bitmap4 = Bitmap4::of(&[Attribute4::Change, Attribute4::Size]);

const LOOKS_MAX: usize = 4;
const GETATTR: Procedure = Procedure { program: 100_003, version: 3, number: 1, name: "GETATTR" };
const JUKEBOX: [u8; 4] = 10_008_u32.to_be_bytes();

/// Keeps a call that waits, if it is patient.
#[derive(Default)]
struct Host {
    is_patient: bool,
    suspended: Option<SuspendedCall>,
}

impl CallHost for Host {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}

    fn take_suspended(&mut self) -> Option<SuspendedCall> {
        self.suspended.take()
    }

    fn waker(&mut self, _: u64) -> Option<Waker> {
        self.is_patient.then(|| Waker::noop().clone())
    }
}

/// A look that waits.
struct Look {
    host: Host,
    message: Vec<u8>,
}

impl Look {
    /// Executes it; what is told, if it waits no more.
    fn go_on(&mut self, wire: &Wire) -> Option<Vec<u8>> {
        let mut reply = ReplyBuffer::default();
        let Wire { engine, peer, now_ms, .. } = wire;
        match engine.call(&mut self.host, peer, now_ms.get(), &self.message, &mut reply) {
            Verdict::Suspended(call) => {
                self.host.suspended = Some(call);
                None
            }
            Verdict::Replied => match parse_reply(&reply.bytes).expect("a reply").1 {
                ReplyBody::Success { results_at } => Some(reply.bytes[results_at..].to_vec()),
                other => panic!("{other:?}"),
            },
            verdict => panic!("{verdict:?}"),
        }
    }
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
        match self.engine.call(&mut Host::default(), &self.peer, now_ms, &message, &mut reply) {
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
        delegations: steadfast_engine::Delegations::Write,
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

fn connect(engine: &Rc<Engine>, now_ms: &Rc<Cell<u64>>, number: u64) -> Nfs4Client<Wire> {
    let settings = ClientSettings {
        owner: vec![number as u8],
        wants_callbacks: true,
        ..ClientSettings::default()
    };
    let wire = Wire::new(engine, now_ms, number);
    Nfs4Client::connect(wire, Identity::root(), &settings).expect("a session")
}

fuzz_target!(|input: &[u8]| {
    let (engine, now_ms, sent) = (Rc::new(engine()), Rc::new(Cell::new(1)), Arc::<Sent>::default());
    engine.set_callback_sender(Arc::clone(&sent) as _);
    let mut holder = connect(&engine, &now_ms, 1);
    let looker = Wire::new(&engine, &now_ms, 2);
    let share = holder.lookup_path(b"a").expect("the share");
    let nothing = Fattr4 { attrmask: Bitmap4::EMPTY, attr_vals: &[] };
    let opening = Opening4 {
        share_access: ACCESS_BOTH,
        how: OpenHow4::Unchecked(nothing),
        ..Opening4::with_claim(OpenClaim4::Null(b"f"))
    };
    let opened = holder.open(&share, &opening).expect("opened");
    let (file, stateid) = (opened.handle, opened.delegation.expect("alone"));
    let mut handle = (file.0.len() as u32).to_be_bytes().to_vec();
    handle.extend_from_slice(&file.0);
    handle.resize(handle.len().next_multiple_of(4), 0);
    let (mut looks, mut told) = (Vec::<Look>::new(), Vec::new());
    let (mut rest, mut last_xid, mut asked) = (input, [0; 4], None);
    for _ in 0..STEPS_MAX {
        let Some(([kind, words], later)) = rest.split_first_chunk::<2>() else { break };
        let (reply, later) = later.split_at(later.len().min(usize::from(*words) * 4));
        rest = later;
        let message = match kind % 6 {
            0 if looks.len() < LOOKS_MAX => {
                let mut message = Vec::new();
                append_call(&mut message, 7, GETATTR, &Identity::root(), &handle);
                let host = Host { is_patient: kind & 64 == 0, suspended: None };
                let mut look = Look { host, message };
                match look.go_on(&looker) {
                    None => looks.push(look),
                    Some(reply) => told.push(reply),
                }
                None
            }
            0 | 5 => {
                looks.retain_mut(|look| {
                    let reply = look.go_on(&looker);
                    let waits = reply.is_none();
                    told.extend(reply);
                    waits
                });
                None
            }
            1 => {
                now_ms.set(now_ms.get() + STEP_MS_MAX * u64::from(*kind) / 255);
                engine.tick(now_ms.get());
                None
            }
            2 => {
                let sessionid = holder.session().slots.session();
                let bind =
                    BindConnToSession4Args { sessionid, dir: 7, use_conn_in_rdma_mode: false };
                let compound = Compound::new().op(Op4::BindConnToSession, &bind);
                holder.send(&compound).expect("a reply");
                None
            }
            3 => Some([&last_xid, &[0, 0, 0, 1][..], reply].concat()),
            _ => asked.as_ref().map(|asked: &AttributesAsked4| {
                asked.reply(Fattr4 { attrmask: LOOK, attr_vals: reply })
            }),
        };
        if let Some(message) = message {
            let (mut buffer, peer) = (ReplyBuffer::default(), &holder.transport().peer);
            let verdict =
                engine.call(&mut Host::default(), peer, now_ms.get(), &message, &mut buffer);
            assert!(matches!(verdict, Verdict::Silent), "the connection is bound");
        }
        for message in std::mem::take(&mut *sent.0.lock().expect("one thread")) {
            let (xid, object) = match AttributesAsked4::parse(&message) {
                Ok(question) => {
                    assert_eq!(question.wanted, LOOK);
                    let (xid, object) = (question.xid, question.object.clone());
                    asked = Some(question);
                    (xid, object)
                }
                Err(_) => {
                    let recall = Recall4::parse(&message).expect("a callback");
                    assert_eq!(recall.stateid, stateid);
                    (recall.xid, recall.object)
                }
            };
            assert_eq!(object, file.0);
            last_xid = xid.to_be_bytes();
        }
    }
    let arguments = DelegReturn4Args { stateid };
    holder
        .request(
            |compound| compound.put(&file).op(Op4::DelegReturn, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.done(Op4::DelegReturn)
            },
        )
        .expect("it has it");
    let mut message = Vec::new();
    append_call(&mut message, 8, GETATTR, &Identity::root(), &handle);
    looks.push(Look { host: Host::default(), message });
    // It has changed nothing: all are told the same.
    let last: Vec<_> =
        looks.iter_mut().map(|look| look.go_on(&looker).expect("nobody has it")).collect();
    for told in last.iter().chain(told.iter().filter(|told| ***told != JUKEBOX)) {
        assert_eq!(Some(told), last.last());
    }
    assert_eq!(last[0][..4], [0; 4]);
});
