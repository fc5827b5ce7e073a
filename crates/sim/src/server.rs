//! A server: the engine, what drives it, and what outlives its process and its machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use parking_lot::Mutex;
use steadfast_engine::clients::{Held, Holding};
use steadfast_engine::{
    Awaited, BegunReplies, CallHost, CallbackSender, ClientRecords, Delegations, Engine,
    EngineConfig, Export, ExportTable, Grant, Outbound, OutboundCall, ParkedCall, Peer,
    RecordKeeper, ReplyBuffer, ReplySink, Room, StateImage, StateKeeper, StorageId, SuspendedCall,
    Transport, Transports, Verdict, call_of_mark, kept_as, may_be_under_way,
};
use steadfast_recovery::{
    Action, BegunCall, BegunOutcome, FileSystemIdentity, ObjectKey, Place, Unlinked,
};
use steadfast_shares::{ClientPattern, ClientRule, Rights, Share, ShareId, Squash};
use steadfast_vfs::{CallName, StorageHandle, Time};

use crate::disk::{Did, Disk, Found, Killed, Log, Mark};
use crate::held::Lock;
use crate::locals::Locals;
use crate::message::xid;
use crate::random::Random;
use crate::{Checked, Mutation};

/// How long hosts may take their locks again, in ms: as the server has it.
const LOCK_GRACE_MS: u64 = 90_000;
const HANDLE_KEY: [u8; 16] = [9; 16];
/// Calls that wait for storage are refused after so long, in ms, as the runtime does.
const STORAGE_PATIENCE_MS: u64 = 2_000;

/// What a killed process leaves of the state: the events that it has kept.
#[derive(Default)]
struct KeptState {
    events: Mutex<Vec<u8>>,
    /// The process is dead, and keeps nothing more.
    is_dead: AtomicBool,
    loses: bool,
    /// What comes last is kept with what comes next.
    late: Option<Mutex<Vec<u8>>>,
}

impl StateKeeper for KeptState {
    fn keep(&self, take: &dyn Fn(&mut Vec<u8>)) {
        let mut events = Vec::new();
        take(&mut events);
        if let Some(late) = &self.late {
            std::mem::swap(&mut *late.lock(), &mut events);
        }
        if !self.is_dead.load(Ordering::Relaxed) && !self.loses {
            self.events.lock().extend_from_slice(&events);
        }
    }

    fn renew(&self, note_all: &dyn Fn(), take: &dyn Fn(&mut Vec<u8>)) {
        let is_due = self.events.lock().is_empty();
        if is_due {
            note_all();
        }
        self.keep(take);
    }
}

/// What a machine leaves: which clients had state.
#[derive(Default)]
struct KeptRecords {
    records: Mutex<ClientRecords>,
    is_dead: AtomicBool,
    loses: bool,
    loses_strikes: bool,
}

impl RecordKeeper for KeptRecords {
    fn keep(&self, take: &dyn Fn(&mut Vec<u8>)) -> bool {
        let mut events = Vec::new();
        take(&mut events);
        if self.is_dead.load(Ordering::Relaxed) {
            return false;
        }
        if !self.loses {
            let mut records = self.records.lock();
            let mut before = Vec::new();
            records.append(&mut before);
            records.add(&events).expect("they are the state's own");
            if self.loses_strikes {
                // Whoever was struck off is there again.
                records.add(&before).expect("they were records");
            }
        }
        true
    }
}

/// Which hosts have locks, as NSM records it, and what they are to be told. That the server has restarted
/// they know.
#[derive(Default)]
struct Hosts {
    recorded: Mutex<BTreeSet<Vec<u8>>>,
    calls: Mutex<Vec<OutboundCall>>,
    loses: bool,
}

impl Outbound for Hosts {
    fn send(&self, call: OutboundCall) {
        self.calls.lock().push(call);
    }

    fn record(&self, name: &[u8], _: IpAddr) -> bool {
        if !self.loses {
            self.recorded.lock().insert(name.to_vec());
        }
        true
    }

    fn own_name(&self) -> &'static str {
        "server"
    }

    fn state_number(&self) -> u32 {
        1
    }
}

/// Messages on their way out: the connection, and the bytes.
type Outbox = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

struct Sink {
    outbox: Outbox,
    connection: u64,
}

impl ReplySink for Sink {
    fn send(self: Box<Self>, reply: &[u8]) {
        self.outbox.lock().push((self.connection, reply.to_vec()));
    }
}

struct Callbacks(Outbox);

impl CallbackSender for Callbacks {
    fn send(&self, connection: u64, message: &[u8]) -> bool {
        self.0.lock().push((connection, message.to_vec()));
        true
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a call meets while it is executed.
struct Host<'a> {
    room: Room,
    suspended: Option<SuspendedCall>,
    may_wait: bool,
    woken: Option<Arc<Woken>>,
    patience_ms: u64,
    sink: Option<Box<dyn ReplySink>>,
    gone: &'a BTreeSet<u64>,
    connection: u64,
}

impl CallHost for Host<'_> {
    fn room_to_wait(&mut self, _: StorageId) -> Room {
        self.room
    }

    fn take_suspended(&mut self) -> Option<SuspendedCall> {
        self.suspended.take()
    }

    fn waker(&mut self, patience_ms: u64) -> Option<Waker> {
        if !self.may_wait {
            return None;
        }
        self.patience_ms = patience_ms;
        Some(Waker::from(Arc::clone(self.woken.get_or_insert_default())))
    }

    fn may_block(&mut self) {}

    fn will_block(&mut self) {}

    fn reply_sink(&mut self) -> Option<Box<dyn ReplySink>> {
        self.sink.take()
    }

    fn is_gone(&mut self, connection: u64) -> bool {
        self.gone.contains(&connection)
    }

    fn has_left(&mut self) -> bool {
        self.gone.contains(&self.connection)
    }
}

struct Suspended {
    call: SuspendedCall,
    connection: u64,
    message: Vec<u8>,
    woken: Option<Arc<Woken>>,
    until_ms: u64,
}

/// A lock that a client has at the server, or a wait for one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfClient {
    pub(crate) client: u64,
    /// It has no lease.
    pub(crate) is_host: bool,
    pub(crate) owner: u64,
    pub(crate) file: u64,
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// Whether it waits for it.
    pub(crate) waits: bool,
    /// It waits, though nobody is in its way.
    pub(crate) is_stuck: bool,
}

/// How a call ended for whoever delivered it.
pub(crate) enum Delivered {
    Done,
    /// The process was killed in the middle of it.
    Killed,
}

/// The server.
pub(crate) struct Server {
    engine: Option<Engine>,
    disk: Arc<Disk>,
    log: Arc<Mutex<Log>>,
    state: Arc<KeptState>,
    records: Arc<KeptRecords>,
    hosts: Arc<Hosts>,
    /// Hosts have lost locks, and may take them again.
    hosts_have_lost: bool,
    instance: u32,
    starts: u64,
    mutation: Mutation,
    peers: BTreeMap<u64, Arc<Peer>>,
    /// Connections that their clients have closed.
    gone: BTreeSet<u64>,
    parked: Vec<(u64, Box<ParkedCall>)>,
    suspended: Vec<Suspended>,
    outbox: Outbox,
    /// The files that are locked.
    files: Vec<StorageHandle>,
    locals: Locals,
}

impl Server {
    /// A server on an empty disk, not started yet.
    pub(crate) fn new(mutation: Mutation) -> Self {
        let (disk, log) = Disk::new();
        let loses_records = mutation == Mutation::NoClientRecord;
        let loses_state = mutation == Mutation::NoStateImage;
        Self {
            engine: None,
            disk: Arc::new(disk),
            log,
            state: Arc::new(KeptState { loses: loses_state, ..KeptState::default() }),
            records: Arc::new(KeptRecords {
                loses: loses_records,
                loses_strikes: mutation == Mutation::NoRevocationRecord,
                ..KeptRecords::default()
            }),
            hosts: Arc::new(Hosts { loses: loses_records, ..Hosts::default() }),
            hosts_have_lost: false,
            instance: 0,
            starts: 0,
            mutation,
            peers: BTreeMap::new(),
            gone: BTreeSet::new(),
            parked: Vec::new(),
            suspended: Vec::new(),
            outbox: Outbox::default(),
            files: Vec::new(),
            locals: Locals::default(),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.engine.is_some()
    }

    fn note_time(&self, now_ms: u64) {
        self.log.lock().now_ms = now_ms;
    }

    /// Starts a process.
    fn start(&mut self, now_ms: u64, replies: &[Vec<u8>]) -> Checked {
        self.starts += 1;
        self.disk = Arc::new(Disk::found(&self.log));
        self.locals.go_on(&self.disk, &self.files)?;
        let rights = Rights { squash: Squash::None, ..Rights::default() };
        let rule = ClientRule { pattern: ClientPattern::Any, grants: Arc::new([rights]) };
        let share = Share {
            id: ShareId(1),
            path: "/a".into(),
            elsewhere: None,
            crosses_mounts: false,
            required_mounts: Arc::default(),
            size: None,
            without_log: false,
            is_draining: false,
            rules: Arc::new(vec![rule].into()),
        };
        let export = Export { share: Arc::new(share), storage: Arc::clone(&self.disk) as _ };
        let keeps = self.mutation != Mutation::NoReplyCache;
        // Never so few that it forgets within its history.
        let reply_cache_bytes_max = if keeps { 256 << 20 } else { 0 };
        let config = EngineConfig {
            instance: self.instance,
            nfs2: false,
            nfs4: true,
            delegations: Delegations::Write,
            local_guard: steadfast_engine::LocalGuard::None,
            idmapping: steadfast_engine::IdMapping::default(),
            handle_key: HANDLE_KEY,
            write_verifier: self.starts,
            transfer_bytes_max: 1 << 20,
            reply_cache_bytes_max,
            reply_cache_history_ms: 65_000,
            nfs_port: 2049,
            transports: Transports { udp: true, ipv4: true, ipv6: false },
        };
        let mut engine = Engine::new(config, ExportTable::new(vec![export]));
        let events = std::mem::take(&mut *self.state.events.lock());
        let mut image = StateImage::default();
        image.add(&events).map_err(|_| "the state's events cannot be read".to_owned())?;
        let late = (self.mutation == Mutation::StateImageLate).then(Mutex::default);
        let loses = self.state.loses;
        self.state = Arc::new(KeptState { loses, late, ..KeptState::default() });
        let records = self.records.records.lock().clone();
        self.records = Arc::new(KeptRecords {
            records: Mutex::new(records.clone()),
            loses: self.records.loses,
            loses_strikes: self.records.loses_strikes,
            ..KeptRecords::default()
        });
        engine.keep_state(now_ms, image, Arc::clone(&self.state) as _);
        if !engine.keep_records(now_ms, &records, Arc::clone(&self.records) as _) {
            return Err("client records are not kept".into());
        }
        engine.tick(now_ms);
        if self.hosts_have_lost {
            engine.begin_grace(LOCK_GRACE_MS);
        }
        engine.set_outbound(Arc::clone(&self.hosts) as _);
        engine.set_callback_sender(Arc::new(Callbacks(Arc::clone(&self.outbox))));
        if self.mutation != Mutation::NoReplyAfterRestart {
            for behind in replies {
                engine.remember_replayed(behind, now_ms);
            }
        }
        let taken = engine.take_locks_again();
        if taken.contested + taken.failed + taken.left > 0 {
            return Err(format!("locks of clients are not taken again: {taken:?}"));
        }
        self.engine = Some(engine);
        Ok(())
    }

    /// The first start.
    pub(crate) fn begin(&mut self) -> Checked {
        self.instance = 1;
        self.start(0, &[])
    }

    /// The process ends without a word.
    fn die(&mut self) {
        self.state.is_dead.store(true, Ordering::Relaxed);
        self.records.is_dead.store(true, Ordering::Relaxed);
        self.parked.clear();
        self.suspended.clear();
        self.engine = None;
        self.peers.clear();
        self.gone.clear();
        self.outbox.lock().clear();
        self.hosts.calls.lock().clear();
    }

    /// Kills the process; a start follows.
    pub(crate) fn kill(&mut self) {
        self.die();
    }

    /// Has the process killed within a change that comes.
    pub(crate) fn kill_at(&mut self, change: u64) {
        self.disk.kill_at(change);
    }

    /// The next process of a machine that went on.
    pub(crate) fn restart(&mut self, now_ms: u64, random: &mut Random) -> Checked {
        self.note_time(now_ms);
        let Found { mut replies, marks } = self.log.lock().kill(random);
        let mut image = StateImage::default();
        image
            .add(&self.state.events.lock())
            .map_err(|_| "the state's events cannot be read".to_owned())?;
        let maker = BegunReplies::new(&HANDLE_KEY);
        let known: BTreeSet<Vec<u8>> =
            replies.iter().filter_map(|behind| kept_as(behind)).map(<[u8]>::to_vec).collect();
        let lacks = |key: &[u8]| !known.contains(key) && !known.contains(call_of_mark(key));
        let is_under_way = |mark: &&Mark| may_be_under_way(&mark.key, Some(&image));
        for mark in marks.iter().filter(is_under_way).filter(|mark| lacks(&mark.key)) {
            if let Some(behind) = reply_of(&maker, mark) {
                self.log.lock().keep_reply(behind.clone());
                replies.push(behind);
            }
        }
        self.start(now_ms, &replies)
    }

    /// The first process after a power cut, whose machine has lost the state.
    pub(crate) fn power_on(&mut self, now_ms: u64, random: &mut Random) -> Checked {
        self.note_time(now_ms);
        let Found { replies, .. } = self.log.lock().cut_power(random);
        self.state.events.lock().clear();
        self.locals.end();
        self.hosts_have_lost |= !self.hosts.recorded.lock().is_empty();
        self.instance += 1;
        let mut events = Vec::new();
        ClientRecords::append_instance(self.instance, &mut events);
        let added = self.records.records.lock().add(&events);
        added.map_err(|_| "an instance is no record".to_owned())?;
        self.start(now_ms, &replies)
    }

    pub(crate) fn accept(&mut self, connection: u64, from: SocketAddr, transport: Transport) {
        let local = SocketAddr::from(([10, 0, 0, 1], 2049));
        let peer = Peer::new(from, local, transport);
        let is_datagram = transport == Transport::Udp;
        let peer = if is_datagram { peer } else { peer.on_connection(connection) };
        self.peers.insert(connection, Arc::new(peer));
    }

    /// The client has closed a connection. What it sent may still come.
    pub(crate) fn is_closed_by_peer(&mut self, connection: u64) {
        self.gone.insert(connection);
    }

    /// The server sees that a connection is closed: nothing comes from it any more.
    pub(crate) fn notices_closed(&mut self, connection: u64) {
        if let (Some(peer), Some(engine)) = (self.peers.remove(&connection), &self.engine) {
            engine.closed(&peer);
        }
    }

    /// Calls to hosts.
    pub(crate) fn take_calls(&self) -> Vec<OutboundCall> {
        std::mem::take(&mut *self.hosts.calls.lock())
    }

    /// Whether a host is to be told of a grant still; then it is.
    pub(crate) fn begin_call_about_grant(&self, grant: &Grant) -> bool {
        self.engine.as_ref().is_some_and(|engine| engine.begin_call_about_grant(grant))
    }

    /// A host has answered.
    pub(crate) fn answer_grant(&self, now_ms: u64, grant: &Grant, result: &[u8]) -> Checked {
        self.note_time(now_ms);
        let Some(engine) = &self.engine else { return Ok(()) };
        engine.answer_grant(grant, result).map_err(|_| "an answer cannot be read".to_owned())
    }

    /// What clients have locked and wait for, for who compares it with what they know.
    ///
    /// # Errors
    /// Of what nobody can have.
    pub(crate) fn of_clients(&self) -> Checked<Vec<OfClient>> {
        let mut all = Vec::new();
        let Some(engine) = &self.engine else { return Ok(all) };
        for client in engine.clients() {
            let name = std::str::from_utf8(&client.owner).unwrap_or_default();
            let Some((kind, number)) = name.split_once(' ') else { continue };
            let (Ok(number), "host" | "client" | "poller" | "old") = (number.parse(), kind) else {
                continue;
            };
            let Ok((holdings, _)) = engine.holdings(client.id, usize::MAX) else { continue };
            for Holding { held, file, owner } in holdings {
                let (range, waits, is_stuck) = match held {
                    Held::Lock { range, .. } => (range, false, false),
                    // Who is not told when it may ask is forgotten when another asks.
                    Held::Wait { .. } if kind == "poller" || kind == "old" => continue,
                    Held::Wait { range, behind, .. } => (range, true, behind.is_empty()),
                    _ => continue,
                };
                let is_its = |handle: &StorageHandle| *handle == file.object;
                let file = self.files.iter().position(is_its).ok_or("a lock of no file")? as u64;
                all.push(OfClient {
                    client: number,
                    is_host: kind == "host",
                    owner: owner_number(&owner).ok_or("a lock of no owner")?,
                    file,
                    first: range.offset,
                    end: range.offset + range.length,
                    waits,
                    is_stuck,
                });
            }
        }
        Ok(all)
    }

    /// Whether local processes may do anything.
    pub(crate) fn may_act_locally(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| !engine.is_in_grace())
    }

    /// A local process locks a range; whether it got it.
    pub(crate) fn lock_locally(&mut self, lock: &Lock) -> Checked<bool> {
        self.locals.lock(&self.disk, &self.files, lock)
    }

    /// A local process gives up a range.
    pub(crate) fn unlock_locally(&mut self, range: &Lock) -> Checked {
        self.locals.unlock(&self.disk, &self.files, range)
    }

    /// The files that are locked: their numbers are their places.
    pub(crate) fn note_files(&mut self, count: u64) -> Checked {
        let names = (0..count).map(|number| format!("f{number}"));
        let found = names.map(|name| self.disk.find(name.as_bytes()));
        self.files = found.collect::<Option<_>>().ok_or("a file is not there")?;
        Ok(())
    }

    pub(crate) fn take_outbox(&mut self) -> Vec<(u64, Vec<u8>)> {
        std::mem::take(&mut *self.outbox.lock())
    }

    /// A message arrives.
    pub(crate) fn deliver(
        &mut self,
        now_ms: u64,
        connection: u64,
        message: Vec<u8>,
        random: &mut Random,
    ) -> Checked<Delivered> {
        let room = match random.below(200) {
            0..6 => Room::Later,
            6 => Room::None,
            _ => Room::Free,
        };
        self.execute(now_ms, connection, message, None, room, true)
    }

    fn execute(
        &mut self,
        now_ms: u64,
        connection: u64,
        message: Vec<u8>,
        suspended: Option<SuspendedCall>,
        room: Room,
        may_wait: bool,
    ) -> Checked<Delivered> {
        self.note_time(now_ms);
        let (Some(engine), Some(peer)) = (&self.engine, self.peers.get(&connection)) else {
            return Ok(Delivered::Done);
        };
        let (sink, woken) = (Sink { outbox: Arc::clone(&self.outbox), connection }, None);
        let gone = &self.gone;
        let sink = Some(Box::new(sink) as Box<dyn ReplySink>);
        let mut host =
            Host { room, suspended, may_wait, woken, patience_ms: 0, sink, gone, connection };
        let mut reply = ReplyBuffer::default();
        let called = catch_unwind(AssertUnwindSafe(|| {
            engine.call(&mut host, peer, now_ms, &message, &mut reply)
        }));
        let verdict = match called {
            Ok(verdict) => verdict,
            Err(payload) if payload.is::<Killed>() => return Ok(Delivered::Killed),
            Err(payload) => resume_unwind(payload),
        };
        let (woken, patience_ms) = (host.woken.take(), host.patience_ms);
        match verdict {
            Verdict::Replied => self.outbox.lock().push((connection, reply.bytes)),
            Verdict::Parked(call) => {
                if !reply.bytes.is_empty() {
                    return Err("a reply was told before it was stable".into());
                }
                self.parked.push((connection, call));
                if self.mutation == Mutation::RepliesBeforeStable {
                    self.settle(now_ms, true);
                }
            }
            Verdict::Suspended(call) => {
                let waits = call.waits_for_client();
                let patience_ms = if waits { patience_ms } else { STORAGE_PATIENCE_MS };
                let woken = woken.filter(|_| waits);
                let until_ms = now_ms + patience_ms;
                self.suspended.push(Suspended { call, connection, message, woken, until_ms });
            }
            Verdict::Silent => {}
            Verdict::HangUp(why) => return Err(format!("a good client was hung up on: {why:?}")),
        }
        let log = self.log.lock();
        if log.filled() != log.last() {
            return Err("a place in the log stays unfilled after a call".into());
        }
        Ok(Delivered::Done)
    }

    /// Calls that were suspended come again, or are refused.
    pub(crate) fn go_on(&mut self, now_ms: u64, random: &mut Random) -> Checked<Delivered> {
        for suspended in std::mem::take(&mut self.suspended) {
            let Suspended { call, connection, message, woken, until_ms } = suspended;
            let is_over = until_ms <= now_ms;
            let is_woken = match &woken {
                Some(woken) => woken.0.load(Ordering::Relaxed) || is_over,
                None => !is_over && random.chance(600),
            };
            if is_woken {
                let room = if random.chance(200) { Room::Later } else { Room::Free };
                let room = if woken.is_some() { Room::Free } else { room };
                let call = Some(call);
                match self.execute(now_ms, connection, message, call, room, !is_over)? {
                    Delivered::Done => {}
                    Delivered::Killed => return Ok(Delivered::Killed),
                }
            } else if is_over {
                let mut reply = Vec::new();
                if let Some(engine) = &self.engine {
                    engine.refuse(call, &mut reply);
                }
                if !reply.is_empty() {
                    self.outbox.lock().push((connection, reply));
                }
            } else {
                self.suspended.push(Suspended { call, connection, message, woken, until_ms });
            }
        }
        Ok(Delivered::Done)
    }

    /// A call that was suspended is not executed any more.
    pub(crate) fn refuse(&mut self, address: IpAddr, xid_of_call: u32) {
        let Self { engine: Some(engine), peers, suspended, .. } = self else { return };
        let is_of = |suspended: &mut Suspended| {
            let peer = peers.get(&suspended.connection);
            xid(&suspended.message) == xid_of_call
                && peer.is_some_and(|peer| peer.address.ip() == address)
        };
        for Suspended { call, .. } in suspended.extract_if(.., is_of) {
            // Nobody waits for the reply.
            engine.refuse(call.of_nobody(), &mut Vec::new());
        }
    }

    /// The disk has written something: replies that waited for it leave.
    pub(crate) fn disk_writes(&mut self, now_ms: u64, random: &mut Random) {
        if self.engine.is_none() {
            return;
        }
        self.note_time(now_ms);
        {
            let mut log = self.log.lock();
            let up_to = random.between(log.stable(), log.filled());
            log.make_stable(up_to);
        }
        for at in (1..self.parked.len()).rev() {
            self.parked.swap(at, random.below(at as u64 + 1) as usize);
        }
        self.settle(now_ms, false);
    }

    fn settle(&mut self, now_ms: u64, is_early: bool) {
        let Some(engine) = &self.engine else { return };
        for (connection, mut call) in std::mem::take(&mut self.parked) {
            let is_done = loop {
                match &call.awaited {
                    Awaited::Lsn(lsn) if *lsn > self.log.lock().stable() && !is_early => {
                        break false;
                    }
                    Awaited::Lsn(_) => {}
                    Awaited::Flush(flush) => {
                        for (target, what) in &flush.targets {
                            // This disk does not fail.
                            let _ = target.flush(*what);
                        }
                    }
                }
                if !call.go_on() {
                    break true;
                }
            };
            if is_done {
                let mut reply = Vec::new();
                engine.settle(call, Ok(()), now_ms, &mut reply);
                self.outbox.lock().push((connection, reply));
            } else {
                self.parked.push((connection, call));
            }
        }
    }

    /// A second has passed.
    pub(crate) fn tick(&mut self, now_ms: u64) {
        if let Some(engine) = &self.engine {
            engine.tick(now_ms);
            self.hosts_have_lost &= engine.is_in_grace();
        }
    }

    /// Whether replies wait for the disk.
    pub(crate) fn waits_for_disk(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Whether calls are to be executed later.
    pub(crate) fn has_suspended(&self) -> bool {
        !self.suspended.is_empty()
    }
}

/// Which worker a lock-owner is: of a client of NFSv4 it is a name, of a host its number stands at the end.
fn owner_number(name: &[u8]) -> Option<u64> {
    match name.strip_prefix(b"l") {
        Some(number) => {
            let number = number.split(|byte| *byte == b'.').next()?;
            std::str::from_utf8(number).ok()?.parse().ok()
        }
        None => name.last_chunk().map(|number| u64::from_be_bytes(*number)),
    }
}

/// What stands behind a change that was made, and not logged.
fn reply_of(maker: &BegunReplies, mark: &Mark) -> Option<Vec<u8>> {
    let place = Place { dir: ObjectKey(mark.dir), name: b"name" };
    let unlinked = Unlinked { object: ObjectKey(mark.dir), is_directory: false, is_left: false };
    // Of the action, only its kind is looked at.
    let (action, outcome) = match mark.did {
        Did::Made(handle, attr) => (
            Action::Make { place, object: ObjectKey(handle), target: &[] },
            BegunOutcome::Made { handle, attr },
        ),
        Did::Removed => (Action::Remove { place, unlinked }, BegunOutcome::Changed),
        Did::Renamed => {
            let object = ObjectKey(mark.dir);
            let (from, to, victim) = (place, place, None);
            let action = Action::Rename { from, to, object, is_directory: false, victim };
            (action, BegunOutcome::Changed)
        }
    };
    let call = BegunCall {
        call: CallName { key: &mark.key, share: mark.share },
        file_system: FileSystemIdentity { uuid: [1; 16], kind: 2 },
        at: Time::default(),
        dir: mark.dir,
        fsid: 1,
        made: None,
        action,
    };
    let Ok(behind) = maker.reply(&call, || Ok::<_, std::convert::Infallible>(Some(outcome)));
    behind
}
