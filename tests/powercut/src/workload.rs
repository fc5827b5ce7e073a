//! Clients that change a share together: many names, few of them private, all changing procedures
//! of NFSv3, some calls pipelined. Everything sent and answered goes into the ledger.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use steadfast_client::{
    ClientError, FileHandle, Identity, NfsStat3, Procedure, Reply, RpcConnection, StableHow, Time,
    append_call,
};

use crate::acl::Acl;
use crate::claims::{Claim, Claims, needed};
use crate::journal::{Event, Journal};
use crate::nfs4::{self, Deeds, Holder};
use crate::operation::{Action, Change, How, Name, Number, Outcome, Place, ROOT};
use crate::random::Random;
use crate::state::{Kind, Object, State};

/// Names in each directory.
pub(crate) const NAMES: u64 = 14;
/// Directories at one time.
pub(crate) const DIRECTORIES_MAX: usize = 8;
/// Directories before anything else is done.
pub(crate) const DIRECTORIES_MIN: usize = 4;
/// Calls that a pipelining client has under way.
const DEPTH_MAX: u64 = 6;
/// How long a reply may take; a disk that records is slow, a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of calls of WRITEs that are kept.
const KEPT_BYTES_MAX: usize = 48 << 20;
/// How many operations of a hundred set ACLs, where any do.
const ACLS_PERCENT: u64 = 8;
/// How far into a file offsets and sizes go, in bytes.
const REACH: u64 = 96 << 10;

/// An operation in the ledger.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// Who.
    pub(crate) client: usize,
    /// What.
    pub(crate) action: Action,
    /// The call as it was sent, where it has to be answered the same way again.
    pub(crate) call: Vec<u8>,
    /// The reply as it came.
    pub(crate) reply: Vec<u8>,
    /// What the reply says; `None` while it is under way.
    pub(crate) outcome: Option<Outcome>,
}

/// Everything that clients did, and what follows from it.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) operations: Vec<Operation>,
    pub(crate) state: State,
    /// Replies that the model did not expect.
    pub(crate) surprises: Vec<String>,
    /// What clients of NFSv4 open and lock.
    pub(crate) deeds: Deeds,
    claims: Claims,
    held: HashMap<Number, Vec<Claim>>,
    verifier: Option<[u8; 8]>,
    /// Operations before this one are of earlier lives of the server, and settled.
    first: Number,
    /// The last that a client did: local processes like to follow.
    pub(crate) recent: Option<Action>,
    /// Calls of WRITEs are kept, of the last that fit.
    keeps_writes: bool,
    kept: VecDeque<Number>,
    kept_bytes: usize,
}

/// What is done beside what every load does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mix {
    /// A process changes the share beside the server.
    pub(crate) local: bool,
    /// ACLs are set and taken away.
    pub(crate) acls: bool,
    /// WRITEs are to be sent again.
    pub(crate) writes: bool,
}

impl Ledger {
    fn new(root: FileHandle) -> Self {
        Self {
            operations: Vec::new(),
            state: State::new(root),
            surprises: Vec::new(),
            deeds: Deeds::default(),
            claims: Claims::default(),
            held: HashMap::new(),
            verifier: None,
            first: 0,
            recent: None,
            keeps_writes: false,
            kept: VecDeque::new(),
            kept_bytes: 0,
        }
    }

    /// The server was started again: what was under way is known to be done or not, by this state.
    pub(crate) fn resume(&mut self, state: State) {
        self.state = state;
        self.claims = Claims::default();
        self.held.clear();
        self.verifier = None;
        self.first = self.operations.len() as Number;
    }

    /// Operations that can be sent again and have to be answered alike, oldest first.
    pub(crate) fn resendable(&self) -> Vec<Number> {
        let is_known = |operation: &Operation| {
            operation.outcome.is_some() && !operation.call.is_empty() && !operation.reply.is_empty()
        };
        let known = self.operations.iter().enumerate().filter(|(_, known)| is_known(known));
        known.map(|(index, _)| index as Number).collect()
    }

    /// Of a WRITE that was answered as stable, the call and reply are kept for as long as there is room.
    fn keep_write(&mut self, number: Number, reply: Vec<u8>, outcome: &Outcome) {
        let is_stable = matches!(outcome, Outcome::Done(done) if done.is_stable);
        let is_kept = self.keeps_writes && is_stable;
        let Some(operation) = self.operations.get_mut(number as usize) else { return };
        if !is_kept || !matches!(operation.action, Action::Write { .. }) {
            operation.call = Vec::new();
            return;
        }
        operation.reply = reply;
        self.kept_bytes += operation.call.len();
        self.kept.push_back(number);
        while self.kept_bytes > KEPT_BYTES_MAX {
            let Some(oldest) = self.kept.pop_front() else { break };
            if let Some(operation) = self.operations.get_mut(oldest as usize) {
                self.kept_bytes = self.kept_bytes.saturating_sub(operation.call.len());
                operation.call = Vec::new();
            }
        }
    }

    /// Operations that were sent and not acknowledged.
    pub(crate) fn under_way(&self) -> Vec<Number> {
        let open = |(index, operation): &(usize, &Operation)| {
            operation.outcome.is_none() && *index >= self.first as usize
        };
        self.operations.iter().enumerate().filter(open).map(|(index, _)| index as Number).collect()
    }

    pub(crate) fn begin(
        &mut self,
        client: usize,
        action: Action,
    ) -> Option<(Number, Procedure, Vec<u8>)> {
        if self.state.touches_held(&action) {
            return None;
        }
        let number = self.reserve(client, action)?;
        let none = FileHandle(Vec::new());
        let handle = |number: Number| {
            self.state.objects.get(&number).and_then(|object| object.handle.as_ref())
        };
        let (procedure, arguments) = action.call(|number| handle(number).unwrap_or(&none));
        Some((number, procedure, arguments))
    }

    /// An operation of any protocol is about to be sent, unless something under way is in its way.
    pub(crate) fn reserve(&mut self, client: usize, action: Action) -> Option<Number> {
        if self.state.is_loose(&action) {
            return None;
        }
        let claims = needed(&self.state, &action);
        if !self.claims.take(&claims) {
            return None;
        }
        let number = self.operations.len() as Number;
        self.held.insert(number, claims);
        let (call, reply) = (Vec::new(), Vec::new());
        self.operations.push(Operation { client, action, call, reply, outcome: None });
        Some(number)
    }

    /// The server was started again, and clients go on: its write verifier is another.
    pub(crate) fn forget_verifier(&mut self) {
        self.verifier = None;
    }

    pub(crate) fn end(&mut self, number: Number, reply: Vec<u8>, outcome: &Outcome) {
        let Some(operation) = self.operations.get_mut(number as usize) else { return };
        let action = operation.action;
        if action.is_replayed() {
            operation.reply = reply;
        } else {
            self.keep_write(number, reply, outcome);
        }
        if !action.is_local() {
            self.recent = Some(action);
        }
        let Some(operation) = self.operations.get_mut(number as usize) else { return };
        operation.outcome = Some(outcome.clone());
        let expected = self.state.expected(&action);
        let is_expected = match outcome {
            Outcome::Done(done) => {
                if matches!(action, Action::Write { .. } | Action::Commit { .. }) {
                    let first = *self.verifier.get_or_insert(done.verifier);
                    if first != done.verifier {
                        self.surprises.push(format!("#{number} {action}: another verifier"));
                    }
                }
                self.state.apply(number, &action, done);
                expected == NfsStat3::Ok
            }
            Outcome::Failed(_) => expected != NfsStat3::Ok,
        };
        if !is_expected {
            let answer = match outcome {
                Outcome::Done(_) => NfsStat3::Ok,
                Outcome::Failed(status) => *status,
            };
            self.surprises.push(format!("#{number} {action}: {answer:?} instead of {expected:?}"));
        }
        if let Some(claims) = self.held.remove(&number) {
            self.claims.release(&claims);
        }
    }
}

/// What the clients of a load share.
#[derive(Debug)]
pub(crate) struct Load {
    ledger: Mutex<Ledger>,
    journal: Option<Arc<Journal>>,
    /// The clients are to finish what they sent, and end.
    stop: AtomicBool,
    operations_max: usize,
    /// What is done besides, on the share that is here.
    mix: Mix,
    share: PathBuf,
    /// Clients of NFSv4 that were there at the end, with their sessions.
    holders: Mutex<Vec<Holder>>,
}

/// A load of several clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) server: SocketAddr,
    pub(crate) clients: usize,
    /// Clients of NFSv4 beside them, each with files of its own.
    pub(crate) holders: usize,
    pub(crate) seed: u64,
    /// Whether the server may go away: clients then end, and leave what they sent open.
    pub(crate) may_be_killed: bool,
}

impl Load {
    /// A load on a share that is empty.
    pub(crate) fn new(root: FileHandle, journal: Option<Arc<Journal>>, operations: usize) -> Self {
        Self {
            ledger: Mutex::new(Ledger::new(root)),
            journal,
            stop: AtomicBool::new(false),
            operations_max: operations,
            mix: Mix::default(),
            share: PathBuf::new(),
            holders: Mutex::default(),
        }
    }

    /// A load that goes on where another ended.
    pub(crate) fn resume(ledger: Ledger, journal: Option<Arc<Journal>>, operations: usize) -> Self {
        let mut load = Self::new(FileHandle(Vec::new()), journal, operations);
        load.ledger = Mutex::new(ledger);
        load
    }

    /// With something besides, on the share that is mounted here.
    #[must_use]
    pub(crate) fn with(self, mix: Mix, share: &Path) -> Self {
        self.ledger().keeps_writes = mix.writes;
        Self { mix, share: share.to_owned(), ..self }
    }

    /// What is known so far.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the ledger when all clients have ended.
    pub(crate) fn into_ledger(self) -> Ledger {
        self.ledger.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the clients.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Clients may go on.
    pub(crate) fn go_on(&self) {
        self.stop.store(false, Ordering::Relaxed);
    }

    /// How many operations were sent.
    pub(crate) fn sent(&self) -> usize {
        self.ledger().operations.len()
    }

    /// Runs the clients to their end.
    pub(crate) fn run(&self, plan: &Plan) -> Result<()> {
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..plan.clients)
                .map(|client| scope.spawn(move || self.client(plan, client)))
                .collect();
            let holders: Vec<_> = (0..plan.holders)
                .map(|holder| scope.spawn(move || self.holder(plan, holder)))
                .collect();
            let actor = self.mix.local.then(|| scope.spawn(move || self.act(plan)));
            let mut outcome = Ok(());
            for client in clients {
                let ended = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                outcome = outcome.and(ended);
            }
            // Whatever ended the clients ends the others too.
            self.stop();
            for holder in holders {
                let ended = holder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                outcome = outcome.and(ended);
            }
            if let Some(actor) = actor {
                actor.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
            outcome
        })
    }

    /// What is done besides, and where.
    pub(crate) fn besides(&self) -> (Mix, &Path) {
        (self.mix, &self.share)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.sent() >= self.operations_max
            || self.journal.as_ref().is_some_and(|journal| journal.is_full())
    }

    pub(crate) fn note(&self, event: Event) {
        if let Some(journal) = &self.journal {
            journal.note(event);
        }
    }

    fn client(&self, plan: &Plan, client: usize) -> Result<()> {
        let outcome = self.converse(plan, client);
        if outcome.is_err() {
            self.stop();
        }
        match outcome {
            Err(error) if plan.may_be_killed && is_death(&error) => Ok(()),
            other => other.with_context(|| format!("client {client}")),
        }
    }

    /// A client of NFSv4, of which a killed server leaves a session.
    fn holder(&self, plan: &Plan, number: usize) -> Result<()> {
        let (left, outcome) = nfs4::hold(self, plan, number, &self.share);
        self.holders.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
        if outcome.is_err() {
            self.stop();
        }
        match outcome {
            Err(error) if plan.may_be_killed && is_death(&error) => Ok(()),
            other => other.with_context(|| format!("client {number} of NFSv4")),
        }
    }

    /// The clients of NFSv4 that were there at the end.
    pub(crate) fn take_holders(&self) -> Vec<Holder> {
        std::mem::take(&mut *self.holders.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn converse(&self, plan: &Plan, client: usize) -> Result<()> {
        let mut random = Random::of(plan.seed, client as u64 + 1);
        let mut connection = RpcConnection::connect(plan.server, PATIENCE)?;
        // Every second client pipelines.
        let depth_max = if client % 2 == 1 { DEPTH_MAX } else { 1 };
        while !self.is_over() {
            let depth = 1 + random.below(depth_max);
            let mut waiting = HashMap::new();
            for _ in 0..depth {
                let Some((number, procedure, arguments)) = self.next(client, &mut random) else {
                    break;
                };
                let xid = connection.take_xid();
                let mut call = Vec::new();
                append_call(&mut call, xid, procedure, &Identity::root(), &arguments);
                if let Some(place) = self.ledger().operations.get_mut(number as usize) {
                    place.call.clone_from(&call);
                }
                self.note(Event::Sent(number));
                waiting.insert(xid, number);
                connection.send_message(&call)?;
            }
            if waiting.is_empty() {
                std::thread::sleep(Duration::from_micros(200));
            }
            while !waiting.is_empty() {
                let reply = connection.receive_any()?;
                let Some(number) = waiting.remove(&reply.xid) else {
                    bail!("a reply to a call that was not sent: xid {}", reply.xid);
                };
                self.note(Event::Acknowledged(number));
                self.finish(number, reply)?;
            }
        }
        Ok(())
    }

    fn finish(&self, number: Number, reply: Reply) -> Result<()> {
        let action = self.ledger().operations.get(number as usize).map(|known| known.action);
        let action = action.context("an operation that is not in the ledger")?;
        let bytes = reply.message.clone();
        let outcome = action.decode(reply).with_context(|| format!("#{number} {action}"))?;
        self.ledger().end(number, bytes, &outcome);
        Ok(())
    }

    fn next(&self, client: usize, random: &mut Random) -> Option<(Number, Procedure, Vec<u8>)> {
        const ATTEMPTS: u32 = 20;
        let mut ledger = self.ledger();
        for _ in 0..ATTEMPTS {
            let is_acl = self.mix.acls && random.percent(ACLS_PERCENT);
            let chosen = if is_acl {
                choose_acl(&ledger.state, random)
            } else {
                choose(&ledger.state, random)
            };
            if let Some(begun) = chosen.and_then(|action| ledger.begin(client, action)) {
                return Some(begun);
            }
        }
        None
    }
}

/// Whether an error is the end of the server.
fn is_death(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(
            cause.downcast_ref::<ClientError>(),
            Some(ClientError::Closed | ClientError::Io(_))
        )
    })
}

fn choose(state: &State, random: &mut Random) -> Option<Action> {
    let directories = of_kind(state, |object| object.kind == Kind::Directory);
    let directory = random.choose(&directories).unwrap_or(ROOT);
    let name = Name(random.below(NAMES) as u16);
    let at = Place { directory, name };
    if directories.len() < DIRECTORIES_MIN {
        return Some(Action::Mkdir { at: Place { directory: ROOT, name }, mode: 0o755 });
    }
    let mode = 0o400 + random.below(0o400) as u32;
    let is_shared = |place: &Place| !state.is_held_place(*place);
    let names: Vec<Place> = state.names.keys().copied().filter(is_shared).collect();
    // Mostly what is there; sometimes what has to fail.
    let known = if random.percent(92) { random.choose(&names) } else { Some(at) };
    let free = if state.at(at).is_none() || random.percent(15) { Some(at) } else { None };
    let is_directory =
        |place: Place| state.at(place).is_some_and(|(_, object)| object.kind == Kind::Directory);
    match random.below(100) {
        0..14 => {
            let how = match random.below(5) {
                0 => How::Exclusive(random.next().to_be_bytes()),
                1 | 2 => How::Guarded,
                _ => How::Unchecked,
            };
            // Over what is no file, servers answer in different ways.
            let is_file = |(_, object): (Number, &Object)| matches!(object.kind, Kind::File(_));
            let at = match how {
                How::Unchecked if state.at(at).is_none_or(is_file) => at,
                How::Unchecked => return None,
                How::Guarded | How::Exclusive(_) => free?,
            };
            let is_new = state.at(at).is_none();
            let size = random.percent(if is_new { 10 } else { 80 }).then(|| random.below(3) * 5000);
            let mode = is_new.then_some(mode);
            Some(Action::Create { at, how, mode, size })
        }
        14..18 if directories.len() < DIRECTORIES_MAX => Some(Action::Mkdir { at: free?, mode }),
        18..22 => Some(Action::Symlink { at: free?, target: random.next() }),
        22..25 => Some(Action::Mknod { at: free?, mode }),
        14..18 | 25..29 => {
            // Empty directories, so that some go.
            let at = known.filter(|place| is_directory(*place) || random.percent(5))?;
            (directories.len() > DIRECTORIES_MIN).then_some(Action::Rmdir { at })
        }
        29..40 => {
            let at = known.filter(|place| !is_directory(*place) || random.percent(5))?;
            Some(Action::Remove { at })
        }
        40..54 => {
            let from = known?;
            let to = if random.percent(50) { random.choose(&names)? } else { at };
            let moved = state.at(from);
            // A directory does not go below itself.
            if let Some((number, object)) = moved
                && object.kind == Kind::Directory
                && state.is_below(to.directory, number)
            {
                return None;
            }
            Some(Action::Rename { from, to })
        }
        54..61 => {
            let files = of_kind(state, |object| object.kind != Kind::Directory);
            Some(Action::Link { object: random.choose(&files)?, at: free? })
        }
        61..73 => {
            let all = of_kind(state, |_| true);
            let number = random.choose(&all).filter(|number| *number != ROOT)?;
            let object = state.objects.get(&number)?;
            Some(Action::Setattr { object: number, change: change(object, mode, random)? })
        }
        other => {
            let files = of_kind(state, |object| matches!(object.kind, Kind::File(_)));
            let object = random.choose(&files)?;
            let Kind::File(content) = &state.objects.get(&object)?.kind else { return None };
            let size = content.size();
            if other >= 94 {
                let is_part = random.percent(25);
                let offset = if is_part { random.below(size.min(REACH)) } else { 0 };
                let count = if is_part { 1 + random.below(20_000) as u32 } else { 0 };
                return Some(Action::Commit { object, offset, count });
            }
            let bytes = match random.below(20) {
                0..6 => 1 + random.below(512),
                6..12 => 1 + random.below(8 << 10),
                12 => 300 << 10,
                13..16 => 4096,
                _ => 1 + random.below(64 << 10),
            } as usize;
            let offset = match random.below(3) {
                0 => 0,
                1 => size.min(REACH),
                _ => random.below(size.clamp(1, REACH)),
            };
            let stable = match random.below(4) {
                0 => StableHow::FileSync,
                1 => StableHow::DataSync,
                _ => StableHow::Unstable,
            };
            Some(Action::Write { object, offset, seed: random.next(), bytes, stable })
        }
    }
}

fn change(object: &Object, mode: u32, random: &mut Random) -> Option<Change> {
    let nothing = Change::default();
    let id = |random: &mut Random| Some(random.below(3000) as u32);
    let is_file = matches!(object.kind, Kind::File(_));
    Some(match random.below(6) {
        // A symbolic link's mode cannot be set.
        _ if matches!(object.kind, Kind::Symlink(_)) => Change { uid: id(random), ..nothing },
        0 => Change { mode: Some(mode), ..nothing },
        1 => Change { uid: id(random), gid: id(random), ..nothing },
        2 => Change { mode: Some(mode), uid: id(random), gid: id(random), ..nothing },
        3 | 4 if is_file => Change { size: Some(random.below(REACH)), ..nothing },
        _ if object.kind != Kind::Directory => {
            let mut time = || Time {
                seconds: 1_000_000_000 + random.below(1_000_000_000) as u32,
                nanoseconds: random.below(1_000_000_000) as u32,
            };
            Change { times: Some((time(), time())), ..nothing }
        }
        _ => return None,
    })
}

/// A SETACL: of access ACLs, and of default ACLs that are set and taken away again.
fn choose_acl(state: &State, random: &mut Random) -> Option<Action> {
    let acl = Some(Acl::random(random));
    if random.percent(35) {
        let files = of_kind(state, |object| matches!(object.kind, Kind::File(_)));
        let object = random.choose(&files)?;
        return Some(Action::Setacl { object, acl, is_default: false });
    }
    let with = of_kind(state, |object| {
        object.kind == Kind::Directory && matches!(object.default_acl, Some(Some(_)))
    });
    if let Some(object) = random.choose(&with).filter(|_| random.percent(55)) {
        return Some(Action::Setacl { object, acl: None, is_default: true });
    }
    let object = random.choose(&of_kind(state, |object| object.kind == Kind::Directory))?;
    Some(Action::Setacl { object, acl, is_default: true })
}

/// What is there for certain, has a handle, and is nobody's own.
pub(crate) fn of_kind(state: &State, is_wanted: impl Fn(&Object) -> bool) -> Vec<Number> {
    let is_wanted = |object: &Object| {
        let is_there = object.handle.is_some() && !object.is_loose;
        is_there && !object.is_held && is_wanted(object)
    };
    let wanted = state.objects.iter().filter(|(_, object)| is_wanted(object));
    wanted.map(|(number, _)| *number).collect()
}
