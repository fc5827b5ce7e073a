//! Who is let in: decisions that wait for a name, flavours, ports, groups, shares that drain.
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;
use steadfast_engine::{
    CallHost, Engine, EngineConfig, Export, ExportTable, Peer, ReplyBuffer, ReplySink, Transport,
    Transports, Verdict,
};
use steadfast_shares::{
    Authority, ClientRule, Decision, DomainPattern, Flavors, Groups, HostName, Known, Names,
    NetgroupName, Question, Rights, RuleSet, Share, ShareId, Squash,
};
use steadfast_vfs::model::ModelFs;
use steadfast_xdr::{Reader, Writer};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const JUKEBOX: u32 = 10_008;
const ACCES: u32 = 13;
const ROFS: u32 = 30;

/// Knows of all hosts what it is told to know.
struct Told {
    known: Mutex<Known>,
    groups: Mutex<Groups>,
    epoch: AtomicU64,
    asked: AtomicU64,
}

impl Told {
    fn tell(&self, known: Known) {
        *self.known.lock() = known;
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }
}

impl Names for Told {
    fn is_host(&self, _: &HostName, _: IpAddr) -> Known {
        *self.known.lock()
    }

    fn is_in_domain(&self, _: &DomainPattern, _: IpAddr) -> Known {
        *self.known.lock()
    }

    fn is_in_netgroup(&self, _: &NetgroupName, _: IpAddr) -> Known {
        *self.known.lock()
    }
}

impl Authority for Told {
    fn decide(&self, rules: &Arc<RuleSet>, question: &Question) -> Decision {
        self.asked.fetch_add(1, Ordering::SeqCst);
        rules.decide(question, self)
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    fn groups(&self, _: u32) -> Groups {
        self.groups.lock().clone()
    }
}

struct Host(Sender<Vec<u8>>);

impl CallHost for Host {
    fn may_block(&mut self) {}

    fn will_block(&mut self) {}

    fn reply_sink(&mut self) -> Option<Box<dyn ReplySink>> {
        Some(Box::new(Sink(self.0.clone())))
    }
}

struct Sink(Sender<Vec<u8>>);

impl ReplySink for Sink {
    fn send(self: Box<Self>, reply: &[u8]) {
        let _ = self.0.send(reply.to_vec());
    }
}

struct Bench {
    engine: Engine,
    told: Arc<Told>,
    later: (Sender<Vec<u8>>, Receiver<Vec<u8>>),
    peer: Peer,
    now_ms: u64,
    next_xid: AtomicU64,
}

fn export(id: u64, path: &str, pattern: &str, grants: &[Rights]) -> Export {
    let rule = ClientRule { pattern: pattern.parse().expect("a pattern"), grants: grants.into() };
    let share = Share {
        id: ShareId(id),
        path: path.into(),
        elsewhere: None,
        crosses_mounts: false,
        required_mounts: Arc::default(),
        without_log: false,
        is_draining: path.ends_with("draining"),
        rules: Arc::new(RuleSet::new(vec![rule])),
    };
    Export { share: Arc::new(share), storage: Arc::new(ModelFs::new(1, 0o777)) }
}

impl Bench {
    fn new(exports: Vec<Export>) -> Self {
        let told = Arc::new(Told {
            known: Mutex::new(Known::NotYet),
            groups: Mutex::new(Groups::NotYet),
            epoch: AtomicU64::new(1),
            asked: AtomicU64::new(0),
        });
        let config = EngineConfig {
            instance: 1,
            nfs2: false,
            delegations: steadfast_engine::Delegations::None,
            nfs4: false,
            handle_key: [9; 16],
            write_verifier: 77,
            transfer_bytes_max: 1 << 20,
            reply_cache_bytes_max: 1 << 20,
            reply_cache_history_ms: 65_000,
            nfs_port: 2049,
            transports: Transports { udp: true, ipv4: true, ipv6: true },
        };
        let authority = Arc::clone(&told) as _;
        let engine = Engine::with_authority(config, ExportTable::new(exports), authority);
        Self {
            engine,
            told,
            later: channel(),
            peer: peer(700),
            now_ms: 1000,
            next_xid: AtomicU64::new(1),
        }
    }

    /// The results of a call, if it is answered now.
    fn call(&self, flavor: u32, number: (u32, u32, u32), arguments: &[u8]) -> Option<Vec<u8>> {
        let (program, version, procedure) = number;
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        let xid = self.next_xid.fetch_add(1, Ordering::SeqCst) as u32;
        for word in [xid, 0, 2, program, version, procedure, flavor] {
            w.u32(word);
        }
        let mut body = Vec::new();
        if flavor == 1 {
            let mut cred = Writer::new(&mut body);
            cred.u32(0);
            cred.opaque(b"client");
            for word in [7, 7, 1, 7] {
                cred.u32(word);
            }
        }
        w.opaque(&body);
        w.u32(0);
        w.u32(0);
        message.extend_from_slice(arguments);
        let mut reply = ReplyBuffer::default();
        let mut host = Host(self.later.0.clone());
        match self.engine.call(&mut host, &self.peer, self.now_ms, &message, &mut reply) {
            Verdict::Replied => Some(results(&reply.bytes)),
            Verdict::Parked(call) => {
                let mut bytes = Vec::new();
                self.engine.settle(call, Ok(()), self.now_ms, &mut bytes);
                Some(results(&bytes))
            }
            Verdict::Silent | Verdict::PutOff(_) => None,
            Verdict::HangUp(why) => panic!("{why}"),
        }
    }

    fn mnt(&self, path: &str) -> Option<Vec<u8>> {
        self.call(1, (MOUNT, 3, 1), &opaque(path.as_bytes()))
    }

    fn handle(&self, path: &str) -> Vec<u8> {
        let results = self.mnt(path).expect("answered");
        mounted(&results).expect("mounted").0
    }

    /// The status of GETATTR.
    fn getattr(&self, flavor: u32, handle: &[u8]) -> u32 {
        let results = self.call(flavor, (NFS, 3, 1), &opaque(handle)).expect("answered");
        Reader::new(&results).u32().expect("a status")
    }
}

fn peer(port: u16) -> Peer {
    let local = "127.0.0.1:2049".parse().expect("an address");
    Peer::new(([127, 0, 0, 1], port).into(), local, Transport::Tcp)
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut arguments = Vec::new();
    Writer::new(&mut arguments).opaque(bytes);
    arguments
}

/// What follows the head of an accepted reply.
fn results(reply: &[u8]) -> Vec<u8> {
    let mut accepted = [0; 20];
    accepted[3] = 1;
    assert_eq!(reply[4..24], accepted);
    reply[24..].to_vec()
}

/// The handle and flavours of a successful MNT, or its status.
fn mounted(results: &[u8]) -> Result<(Vec<u8>, Vec<u32>), u32> {
    let mut r = Reader::new(results);
    match r.u32().expect("a status") {
        0 => {
            let handle = r.opaque(64).expect("a handle").to_vec();
            let count = r.u32().expect("a count");
            Ok((handle, (0..count).map(|_| r.u32().expect("a flavour")).collect()))
        }
        status => Err(status),
    }
}

#[test]
fn a_mount_waits_for_a_name_without_a_thread() {
    let bench = Bench::new(vec![export(1, "/a", "host.example", &[Rights::default()])]);
    assert_eq!(bench.mnt("/a"), None);
    assert_eq!(bench.engine.waiting_mounts(), 1);
    // Nothing is known yet.
    bench.engine.tick(bench.now_ms + 1000);
    bench.engine.retry_waiting_mounts();
    assert_eq!(bench.engine.waiting_mounts(), 1);
    assert!(bench.later.1.try_recv().is_err());
    bench.told.tell(Known::Yes);
    bench.engine.tick(bench.now_ms + 1001);
    bench.engine.retry_waiting_mounts();
    let reply = bench.later.1.try_recv().expect("answered");
    assert_eq!(mounted(&results(&reply)).expect("mounted").1, [1]);
    assert_eq!(bench.engine.waiting_mounts(), 0);
}

#[test]
fn a_mount_that_nothing_decides_fails_before_its_client_gives_up() {
    let bench = Bench::new(vec![export(1, "/a", "host.example", &[Rights::default()])]);
    assert_eq!(bench.mnt("/a"), None);
    bench.engine.tick(bench.now_ms + 7999);
    bench.engine.retry_waiting_mounts();
    assert!(bench.later.1.try_recv().is_err());
    bench.engine.tick(bench.now_ms + 8000);
    bench.engine.retry_waiting_mounts();
    let reply = bench.later.1.try_recv().expect("answered");
    assert!(mounted(&results(&reply)).is_err());
    // Nobody knows the name: it is refused at once.
    bench.told.tell(Known::Unreachable);
    assert_eq!(mounted(&bench.mnt("/a").expect("answered")), Err(ACCES));
}

#[test]
fn one_client_does_not_take_all_places_to_wait_in() {
    let rights = [Rights::default()];
    let shares = [export(1, "/a", "a.example", &rights), export(2, "/b", "b.example", &rights)];
    let mut bench = Bench::new(shares.into());
    for _ in 0..500 {
        assert_eq!(bench.mnt("/a"), None);
    }
    assert_eq!(bench.engine.waiting_mounts(), 500);
    assert!(mounted(&bench.mnt("/a").expect("told to fail")).is_err());
    // Another one has his.
    bench.peer = Peer::new(([127, 0, 0, 2], 700).into(), bench.peer.local, Transport::Tcp);
    assert_eq!(bench.mnt("/b"), None);
    let mut shares = bench.engine.shares_with_waiting_mounts();
    shares.sort_unstable();
    assert_eq!(shares, [ShareId(1), ShareId(2)]);
    // Those of each share are executed apart.
    bench.told.tell(Known::Yes);
    bench.engine.retry_waiting_mounts_to(ShareId(2));
    assert_eq!(bench.later.1.try_iter().count(), 1);
    assert_eq!(bench.engine.waiting_mounts(), 500);
    bench.engine.retry_waiting_mounts_to(ShareId(1));
    assert_eq!((bench.later.1.try_iter().count(), bench.engine.waiting_mounts()), (500, 0));
}

#[test]
fn a_call_that_is_longer_than_a_mount_does_not_wait() {
    let bench = Bench::new(vec![export(1, "/a", "host.example", &[Rights::default()])]);
    let mut arguments = opaque(b"/a");
    arguments.extend([0; 4096]);
    let results = bench.call(1, (MOUNT, 3, 1), &arguments).expect("told to fail");
    assert!(mounted(&results).is_err());
    assert_eq!(bench.engine.waiting_mounts(), 0);
}

#[test]
fn calls_are_told_to_come_again_while_a_name_is_looked_up() {
    let bench = Bench::new(vec![export(1, "/a", "host.example", &[Rights::default()])]);
    bench.told.tell(Known::Yes);
    let handle = bench.handle("/a");
    assert_eq!(bench.getattr(1, &handle), 0);
    bench.told.tell(Known::NotYet);
    assert_eq!(bench.getattr(1, &handle), JUKEBOX);
    // Decided as soon as it is known, and no more than once.
    bench.told.tell(Known::No);
    assert_eq!(bench.getattr(1, &handle), ACCES);
    let asked = bench.told.asked.load(Ordering::SeqCst);
    assert_eq!(bench.getattr(1, &handle), ACCES);
    assert_eq!(bench.told.asked.load(Ordering::SeqCst), asked);
}

#[test]
fn a_change_of_a_share_is_seen_by_the_next_call_and_disturbs_no_other() {
    let rights = [Rights::default()];
    let bench =
        Bench::new(vec![export(1, "/a", "127.0.0.0/8", &rights), export(2, "/b", "*", &rights)]);
    let (a, b) = (bench.handle("/a"), bench.handle("/b"));
    assert_eq!((bench.getattr(1, &a), bench.getattr(1, &b)), (0, 0));
    let asked = bench.told.asked.load(Ordering::SeqCst);
    // This client is let in no more: on its open connection, with its old handle.
    let changed = export(1, "/a", "10.0.0.0/8", &rights);
    bench.engine.set_exports(bench.engine.exports().changed(&[ShareId(1)], vec![changed]));
    assert_eq!(bench.getattr(1, &b), 0);
    assert_eq!(bench.told.asked.load(Ordering::SeqCst), asked, "the other was not asked about");
    assert_eq!(bench.getattr(1, &a), ACCES);
}

#[test]
fn flavours_have_rights_of_their_own() {
    let rights = |flavors, is_read_only| Rights { flavors, is_read_only, ..Rights::default() };
    let grants = [rights(Flavors::SYS, false), rights(Flavors::NONE | Flavors::KRB5P, true)];
    let bench = Bench::new(vec![
        export(1, "/both", "*", &grants),
        export(2, "/none", "*", &grants[1..]),
        export(3, "/sys", "*", &grants[..1]),
        export(4, "/any", "*", &[Rights::default()]),
    ]);
    let flavors = |path| mounted(&bench.mnt(path).expect("answered")).map(|(_, flavors)| flavors);
    // Kerberos is not served, so a client must not be led to it.
    assert_eq!(flavors("/both"), Ok(vec![1, 0]));
    assert_eq!(flavors("/none"), Ok(vec![0]));
    assert_eq!(flavors("/sys"), Ok(vec![1]));
    assert_eq!(flavors("/any"), Ok(vec![1]));
    let (none, sys) = (bench.handle("/none"), bench.handle("/sys"));
    assert_eq!((bench.getattr(0, &none), bench.getattr(1, &none)), (0, ACCES));
    assert_eq!((bench.getattr(0, &sys), bench.getattr(1, &sys)), (ACCES, 0));
    // By one connection, one after the other.
    let both = bench.handle("/both");
    let mut setattr = opaque(&both);
    setattr.extend([0; 28]);
    let set = |flavor| {
        let results = bench.call(flavor, (NFS, 3, 2), &setattr).expect("answered");
        Reader::new(&results).u32().expect("a status")
    };
    assert_eq!(set(0), ROFS);
    assert_ne!(set(1), ROFS);
    assert_eq!(set(0), ROFS);
}

#[test]
fn a_share_may_want_privileged_ports() {
    let rights = Rights { needs_privileged_port: true, ..Rights::default() };
    let mut bench = Bench::new(vec![export(1, "/a", "*", &[rights])]);
    let handle = bench.handle("/a");
    assert_eq!(bench.getattr(1, &handle), 0);
    bench.peer = peer(1024);
    assert_eq!(bench.getattr(1, &handle), ACCES);
    assert_eq!(mounted(&bench.mnt("/a").expect("answered")), Err(ACCES));
    bench.peer = peer(1023);
    assert_eq!(bench.getattr(1, &handle), 0);
}

/// A share whose directory only group 0 may read, which the caller does not claim to be in.
fn of_group_0(id: u64, path: &str, rights: &Rights) -> Export {
    let storage = Arc::new(ModelFs::new(1, 0o070));
    Export {
        storage,
        ..export(id, path, "*", &[Rights { looks_up_groups: true, ..rights.clone() }])
    }
}

/// Whether ACCESS (RFC 1813 §3.3.4) grants READ; its status otherwise.
fn may_read(bench: &Bench, handle: &[u8]) -> Result<bool, u32> {
    let mut arguments = opaque(handle);
    arguments.extend(1_u32.to_be_bytes());
    let results = bench.call(1, (NFS, 3, 4), &arguments).expect("answered");
    let mut reader = Reader::new(&results);
    match reader.u32().expect("a status") {
        0 => Ok(results.ends_with(&1_u32.to_be_bytes())),
        status => Err(status),
    }
}

#[test]
fn groups_of_this_host_count_where_that_is_asked_for() {
    let rights = Rights { squash: Squash::None, ..Rights::default() };
    let bench = Bench::new(vec![of_group_0(1, "/a", &rights)]);
    let handle = bench.handle("/a");
    assert_eq!(may_read(&bench, &handle), Err(JUKEBOX));
    let groups = [
        (Groups::NoUser, false),
        (Groups::Known(Arc::new([9; 100])), false),
        (Groups::Known(Arc::new([9, 0])), true),
    ];
    for (groups, is_allowed) in groups {
        *bench.told.groups.lock() = groups;
        assert_eq!(may_read(&bench, &handle), Ok(is_allowed));
    }
}

#[test]
fn who_is_squashed_to_his_own_number_does_not_get_his_groups() {
    // The caller claims to be user 7.
    let rights =
        Rights { squash: Squash::All, anonymous_uid: 7, anonymous_gid: 7, ..Rights::default() };
    let bench = Bench::new(vec![of_group_0(1, "/a", &rights)]);
    let handle = bench.handle("/a");
    // Nor is his groups' name service asked.
    assert_eq!(may_read(&bench, &handle), Ok(false));
    *bench.told.groups.lock() = Groups::Known(Arc::new([0]));
    assert_eq!(may_read(&bench, &handle), Ok(false));
}

#[test]
fn a_share_that_drains_serves_those_it_has() {
    let rights = [Rights::default()];
    let bench = Bench::new(vec![export(1, "/a", "*", &rights)]);
    let handle = bench.handle("/a");
    let table = bench.engine.exports();
    let mut share = Share::clone(&table.by_id(ShareId(1)).expect("there").share);
    share.is_draining = true;
    let draining =
        Export { share: Arc::new(share), ..table.by_id(ShareId(1)).expect("there").clone() };
    bench.engine.set_exports(table.changed(&[ShareId(1)], vec![draining]));
    assert_eq!(mounted(&bench.mnt("/a").expect("answered")), Err(ACCES));
    assert_eq!(bench.getattr(1, &handle), 0);
    assert_eq!(bench.call(1, (MOUNT, 3, 5), &[]).expect("answered"), [0; 4], "none is told");
}
