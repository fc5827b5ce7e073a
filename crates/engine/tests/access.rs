//! Unit ring. Who is let in: decisions that wait for a name, flavours, ports, groups, shares that drain.
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Wake, Waker};

use parking_lot::Mutex;
use steadfast_engine::{
    CallHost, Engine, EngineConfig, Export, ExportTable, Peer, ReplyBuffer, SuspendedCall,
    Transport, Transports, Verdict,
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

/// Keeps calls that wait for so long, in ms, since they came.
struct Host<'b> {
    bench: &'b Bench,
    since_ms: u64,
    suspended: Option<SuspendedCall>,
    woken: Option<Arc<Woken>>,
}

impl CallHost for Host<'_> {
    fn may_block(&mut self) {}

    fn will_block(&mut self) {}

    fn take_suspended(&mut self) -> Option<SuspendedCall> {
        self.suspended.take()
    }

    fn waker(&mut self, patience_ms: u64) -> Option<Waker> {
        if self.bench.is_full || self.bench.now_ms >= self.since_ms + patience_ms {
            return None;
        }
        let woken = self.woken.insert(Arc::default());
        if self.bench.wakes_early {
            // Just before it is registered.
            self.bench.told.tell(Known::Yes);
        }
        Some(Waker::from(Arc::clone(woken)))
    }
}

/// Whether a call was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A call that waits.
struct Waiting {
    message: Vec<u8>,
    since_ms: u64,
    call: SuspendedCall,
    woken: Arc<Woken>,
}

struct Bench {
    engine: Engine,
    told: Arc<Told>,
    waiting: Mutex<Vec<Waiting>>,
    /// The host keeps no call that waits.
    is_full: bool,
    /// The name becomes known when a call has been judged, and before it is registered.
    wakes_early: bool,
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
        size: None,
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
            local_guard: steadfast_engine::LocalGuard::None,
            idmapping: steadfast_engine::IdMapping::default(),
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
            waiting: Mutex::default(),
            is_full: false,
            wakes_early: false,
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
        self.execute(message, self.now_ms, None)
    }

    /// Executes a call that has come at a time, and may have waited since.
    fn execute(
        &self,
        message: Vec<u8>,
        since_ms: u64,
        suspended: Option<SuspendedCall>,
    ) -> Option<Vec<u8>> {
        let mut reply = ReplyBuffer::default();
        let mut host = Host { bench: self, since_ms, suspended, woken: None };
        match self.engine.call(&mut host, &self.peer, self.now_ms, &message, &mut reply) {
            Verdict::Replied => Some(results(&reply.bytes)),
            Verdict::Parked(call) => {
                let mut bytes = Vec::new();
                self.engine.settle(call, Ok(()), self.now_ms, &mut bytes);
                Some(results(&bytes))
            }
            Verdict::Suspended(call) => {
                assert!(call.waits_for_client() && reply.bytes.is_empty());
                let woken = host.woken.expect("it has a waker");
                self.waiting.lock().push(Waiting { message, since_ms, call, woken });
                None
            }
            Verdict::Silent => None,
            Verdict::HangUp(why) => panic!("{why}"),
        }
    }

    /// Executes the calls again that were woken, and those that have waited for so long. The results of
    /// those that are answered.
    fn go_on(&self, patience_ms: u64) -> Vec<Vec<u8>> {
        let is_due = |call: &mut Waiting| {
            call.woken.0.load(Ordering::SeqCst) || self.now_ms >= call.since_ms + patience_ms
        };
        let due: Vec<Waiting> = self.waiting.lock().extract_if(.., is_due).collect();
        let executed = due.into_iter().map(|Waiting { message, since_ms, call, .. }| {
            self.execute(message, since_ms, Some(call))
        });
        executed.flatten().collect()
    }

    fn mnt_status(&self, path: &str) -> Option<u32> {
        self.mnt(path).map(|results| mounted(&results).err().unwrap_or(0))
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

const NAME: &str = "host.example";
const MOUNT_PATIENCE_MS: u64 = 8_000;

#[test]
fn a_mount_waits_for_a_name_without_a_thread() {
    let mut bench = Bench::new(vec![export(1, "/a", NAME, &[Rights::default()])]);
    assert_eq!(bench.mnt("/a"), None);
    assert_eq!(bench.engine.waiting_calls(), 1);
    // Nothing is known yet.
    bench.now_ms += 1000;
    bench.engine.tick(bench.now_ms);
    assert!(bench.go_on(MOUNT_PATIENCE_MS).is_empty());
    assert_eq!(bench.engine.waiting_calls(), 1);
    assert!(bench.go_on(MOUNT_PATIENCE_MS).is_empty(), "it was woken by the tick alone");
    bench.told.tell(Known::Yes);
    bench.engine.names_are_known();
    let answered = bench.go_on(MOUNT_PATIENCE_MS);
    assert_eq!(mounted(&answered[0]).expect("mounted").1, [1]);
    assert_eq!(bench.engine.waiting_calls(), 0);
}

#[test]
fn what_becomes_known_before_a_call_is_registered_is_not_missed() {
    let mut bench = Bench::new(vec![export(1, "/a", NAME, &[Rights::default()])]);
    bench.wakes_early = true;
    assert_eq!(bench.mnt_status("/a"), Some(0));
    assert_eq!(bench.engine.waiting_calls(), 0);
}

#[test]
fn a_mount_that_nothing_decides_fails_before_its_client_gives_up() {
    let mut bench = Bench::new(vec![export(1, "/a", NAME, &[Rights::default()])]);
    assert_eq!(bench.mnt("/a"), None);
    bench.now_ms += MOUNT_PATIENCE_MS - 1;
    bench.engine.names_are_known();
    assert!(bench.go_on(MOUNT_PATIENCE_MS).is_empty());
    bench.now_ms += 1;
    let answered = bench.go_on(MOUNT_PATIENCE_MS);
    assert!(mounted(&answered[0]).is_err());
    assert_eq!(bench.engine.waiting_calls(), 0);
    // Nobody knows the name: it is refused at once.
    bench.told.tell(Known::Unreachable);
    assert_eq!(bench.mnt_status("/a"), Some(ACCES));
}

#[test]
fn one_client_does_not_take_all_places_to_wait_in() {
    let rights = [Rights::default()];
    let shares = [export(1, "/a", "a.example", &rights), export(2, "/b", "b.example", &rights)];
    let mut bench = Bench::new(shares.into());
    for _ in 0..500 {
        assert_eq!(bench.mnt("/a"), None);
    }
    assert_eq!(bench.engine.waiting_calls(), 500);
    assert!(bench.mnt_status("/a").expect("told to fail") > 0);
    // Those that wait go on waiting: their places are their own.
    bench.engine.names_are_known();
    assert!(bench.go_on(MOUNT_PATIENCE_MS).is_empty());
    assert_eq!(bench.engine.waiting_calls(), 500);
    // Another one has his.
    bench.peer = Peer::new(([127, 0, 0, 2], 700).into(), bench.peer.local, Transport::Tcp);
    assert_eq!(bench.mnt("/b"), None);
    bench.told.tell(Known::Yes);
    bench.engine.names_are_known();
    assert_eq!((bench.go_on(MOUNT_PATIENCE_MS).len(), bench.engine.waiting_calls()), (501, 0));
}

#[test]
fn a_call_that_is_longer_than_a_mount_does_not_wait() {
    let bench = Bench::new(vec![export(1, "/a", NAME, &[Rights::default()])]);
    let mut arguments = opaque(b"/a");
    arguments.extend([0; 4096]);
    let results = bench.call(1, (MOUNT, 3, 1), &arguments).expect("told to fail");
    assert!(mounted(&results).is_err());
    assert_eq!(bench.engine.waiting_calls(), 0);
}

#[test]
fn what_its_host_does_not_keep_leaves_nothing() {
    let bench = Bench::new(vec![export(1, "/a", NAME, &[Rights::default()])]);
    assert_eq!(bench.mnt("/a"), None);
    // Its connection was closed.
    bench.waiting.lock().clear();
    assert_eq!(bench.engine.waiting_calls(), 0);
    assert_eq!(bench.mnt("/a"), None);
    let call = bench.waiting.lock().pop().expect("it waits").call;
    let mut refusal = Vec::new();
    bench.engine.refuse(call, &mut refusal);
    assert!(mounted(&results(&refusal)).is_err());
    assert_eq!(bench.engine.waiting_calls(), 0);
}

#[test]
fn calls_wait_while_a_name_is_looked_up() {
    let mut bench = Bench::new(vec![export(1, "/a", NAME, &[Rights::default()])]);
    bench.told.tell(Known::Yes);
    let handle = bench.handle("/a");
    assert_eq!(bench.getattr(1, &handle), 0);
    bench.told.tell(Known::NotYet);
    bench.is_full = true;
    assert_eq!(bench.getattr(1, &handle), JUKEBOX, "whom nobody keeps is told to come again");
    bench.is_full = false;
    let getattr = || bench.call(1, (NFS, 3, 1), &opaque(&handle));
    assert_eq!(getattr(), None);
    // Decided as soon as it is known, and no more than once.
    bench.told.tell(Known::No);
    bench.engine.names_are_known();
    let answered = bench.go_on(MOUNT_PATIENCE_MS);
    assert_eq!(Reader::new(&answered[0]).u32(), Ok(ACCES));
    let asked = bench.told.asked.load(Ordering::SeqCst);
    assert_eq!(bench.getattr(1, &handle), ACCES);
    assert_eq!(bench.told.asked.load(Ordering::SeqCst), asked);
}

#[test]
fn a_duplicate_of_a_call_that_waits_finds_it_in_progress() {
    let bench = Bench::new(vec![export(1, "/a", NAME, &[Rights::default()])]);
    bench.told.tell(Known::Yes);
    let handle = bench.handle("/a");
    bench.told.tell(Known::NotYet);
    let mut make = opaque(&handle);
    make.extend(opaque(b"d"));
    make.extend([0; 24]);
    assert_eq!(bench.call(1, (NFS, 3, 9), &make), None);
    let message = bench.waiting.lock()[0].message.clone();
    assert_eq!(bench.execute(message.clone(), bench.now_ms, None), None);
    assert_eq!(bench.engine.waiting_calls(), 1, "it does not wait itself");
    bench.told.tell(Known::Yes);
    bench.engine.names_are_known();
    let made = bench.go_on(MOUNT_PATIENCE_MS);
    assert_eq!((made.len(), Reader::new(&made[0]).u32()), (1, Ok(0)));
    let again = bench.execute(message, bench.now_ms, None).expect("remembered");
    assert_eq!(again, made[0]);
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
    let mut bench = Bench::new(vec![of_group_0(1, "/a", &rights)]);
    bench.is_full = true;
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
