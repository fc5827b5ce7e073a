//! A client of NFSv4.1 that locks ranges of files which it shares with other clients.
//!
//! Each worker has a slot of the session, an open-owner and a lock-owner. What it holds is told to
//! [`crate::held::Held`], which compares it with what others hold. After a loss of the server's state the client
//! reclaims its locks, and must get them. For some locks it waits: it asks now and then, and is told by the server when
//! it may ask again, if it has a back channel. That is lost now and then, late, or doubled. Beside that, workers make and remove a directory of their own
//! in sessions: each once. Some replies are asked for again, and must be the same.

mod waiting;

use steadfast_wire::nfs4::{
    BindConnToSession4Args, Bitmap4, CallbackSec4, Close4Args, Create4Args, CreateSession4Args,
    CreateType4, ExchangeId4Args, Fattr4, Lock4Args, LockDenied4, LockOwner4, LockType4,
    LockU4Args, Locker4, NfsStat4, Op4, Open4Args, OpenClaim4, OpenHow4, ReclaimComplete4Args,
    Remove4Args, Sequence4Args, StateId4, StateProtect4,
};
use steadfast_wire::rpc::AuthSys;
use steadfast_xdr::{Decode, Reader};

use crate::Checked;
use crate::callbacks::{BACK_FAULT, BackChannel, HAS_BACK_CHANNEL, PATH_DOWN, PROGRAM, Told};
use crate::client::{Client, Context, Then};
use crate::compound::{Nothing, Ops, channel, stateid};
use crate::held::{LEASE_MS, Lock};
use crate::message::{Request, unreadable};

/// Blocks of a file that are locked.
const BLOCKS: u64 = 12;
/// A grace period lasts for two leases at most, and a tick.
const GRACE_MS: u64 = 2 * LEASE_MS + 5_000;
/// `SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED`, `…_SOME_…`, `SEQ4_STATUS_ADMIN_STATE_REVOKED`.
const REVOKED: u32 = 0x8 | 0x10 | 0x20;
const RESTART_RECLAIM_NEEDED: u32 = 0x100;
/// `EXCHGID4_FLAG_CONFIRMED_R`.
const CONFIRMED: u32 = 0x8000_0000;

/// What a client is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Exchange,
    Create,
    Reclaim,
    Ready,
}

#[derive(Clone, Debug)]
enum Call {
    Exchange,
    Create,
    Bind,
    ReclaimOpen(Lock),
    Reclaim(Lock),
    Complete,
    Open(u64),
    Close,
    Lock(Lock),
    /// A lock that it waits for.
    Wait(Lock),
    Unlock(Lock),
    Make,
    Remove,
    Look,
    /// The request of before once more.
    Repeat {
        request: Request,
        told: Vec<u8>,
    },
}

impl Call {
    /// What it may change of the locks of an owner.
    fn lock(&self) -> Option<&Lock> {
        match self {
            Self::Lock(lock) | Self::Wait(lock) | Self::Unlock(lock) | Self::Reclaim(lock) => {
                Some(lock)
            }
            _ => None,
        }
    }
}

/// A wait for a lock.
struct Waiting {
    lock: Lock,
    /// When it was denied last.
    denied_ms: u64,
    /// When it asks again.
    ask_ms: u64,
    /// The server has said that it may.
    is_told: bool,
}

/// A file that is open.
#[derive(Clone, Debug)]
struct Opened {
    file: u64,
    stateid: StateId4,
    /// Of the lock-owner.
    locks: Option<StateId4>,
}

#[derive(Default)]
struct Worker {
    /// Of the last request that the server has executed.
    sequence: u32,
    call: Option<(Call, Request)>,
    next: Option<Call>,
    opened: Option<Opened>,
    waits: Option<Waiting>,
    /// It was told that it may ask before it was told that it has to wait.
    was_told: bool,
    /// Whether its directory is there; `None` if a loss of the session has left that open.
    has_directory: Option<bool>,
}

/// The client.
pub(crate) struct LocksClient {
    number: u64,
    incarnation: u64,
    phase: Phase,
    id: Option<u64>,
    /// What was told of another client id.
    new_id: (u64, u32),
    session: [u8; 16],
    /// `None`: it finds out itself when locks are free.
    back: Option<BackChannel>,
    /// The server has told that it cannot call.
    is_path_down: bool,
    /// The server has told that its calls by this session lead to nothing: the client needs another one.
    needs_session: bool,
    /// When the session was made.
    made_ms: u64,
    /// When a call of the server's may have been lost last.
    deaf_ms: u64,
    workers: Vec<Worker>,
    directory: Vec<u8>,
    files: Vec<Vec<u8>>,
    /// Locks to reclaim, and until when the server must give them.
    to_reclaim: Vec<(Lock, u64)>,
    /// It says nothing until then.
    silent_until_ms: u64,
    /// The last power cut that it knows of.
    lost_ms: u64,
}

impl LocksClient {
    /// A client that locks these files, and makes directories in `directory`.
    pub(crate) fn new(
        number: u64,
        workers: usize,
        has_back_channel: bool,
        directory: Vec<u8>,
        files: Vec<Vec<u8>>,
    ) -> Self {
        let worker = || Worker { has_directory: Some(false), ..Worker::default() };
        Self {
            number,
            incarnation: 1,
            phase: Phase::Exchange,
            id: None,
            new_id: (0, 0),
            session: [0; 16],
            back: has_back_channel.then(BackChannel::default),
            is_path_down: false,
            needs_session: false,
            made_ms: 0,
            deaf_ms: 0,
            workers: std::iter::repeat_with(worker).take(workers).collect(),
            directory,
            files,
            to_reclaim: Vec::new(),
            silent_until_ms: 0,
            lost_ms: 0,
        }
    }

    /// The session is gone: a new one is made, and what was held is reclaimed if the server has lost
    /// it. That it is gone is right only if the server has lost its state or the lease is over.
    fn start_over(&mut self, why: &str, cx: &mut Context<'_>) -> Checked<Then> {
        if cx.held.is_valid(self.number, cx.now_ms) && !self.has_server_lost(cx) {
            return Err(format!("client {} has lost its session in time: {why}", self.number));
        }
        self.phase = Phase::Exchange;
        for worker in &mut self.workers {
            let pending = worker.call.take().map(|(call, _)| call).or(worker.next.take());
            if matches!(pending, Some(Call::Make | Call::Remove | Call::Repeat { .. })) {
                worker.has_directory = None;
            }
            if let Some(lock) = pending.as_ref().and_then(Call::lock) {
                cx.held.may_have(lock.clone());
            }
            worker.next = None;
        }
        Ok(Then { forgets: true, ..Then::after(10) })
    }

    /// Whether the server has lost what the client had since it knows its id.
    fn has_server_lost(&self, cx: &Context<'_>) -> bool {
        cx.lost_ms > self.lost_ms
    }

    /// The client has lost all that it held: it starts as another incarnation.
    fn reboot(&mut self, cx: &mut Context<'_>) -> Then {
        self.incarnation += 1;
        self.phase = Phase::Exchange;
        self.to_reclaim.clear();
        cx.held.take(self.number, cx.now_ms);
        cx.held.forget(self.number);
        cx.held.tells(self.number, true, cx.now_ms);
        for worker in &mut self.workers {
            let has_directory = match worker.call.take() {
                Some((Call::Make | Call::Remove, _)) => None,
                _ if matches!(worker.next, Some(Call::Make | Call::Remove)) => None,
                _ => worker.has_directory,
            };
            *worker = Worker { has_directory, ..Worker::default() };
        }
        Then { forgets: true, ..Then::after(10) }
    }

    fn choose(&mut self, index: usize, cx: &mut Context<'_>) -> Call {
        let random = &mut *cx.random;
        let Some(worker) = self.workers.get(index) else { return Call::Look };
        let owner = index as u64;
        if random.chance(200) {
            return match worker.has_directory {
                Some(true) => Call::Remove,
                _ => Call::Make,
            };
        }
        let Some(opened) = &worker.opened else {
            return Call::Open(random.below(self.files.len() as u64));
        };
        let held: Vec<&Lock> = cx.held.of(self.number, owner).collect();
        let first = random.below(BLOCKS);
        let (client, file) = (self.number, opened.file);
        let end = first + random.between(1, 4);
        let lock = Lock { client, owner, file, first, end, is_write: random.chance(600) };
        match random.below(10) {
            0..2 if held.len() < 4 => Call::Wait(lock),
            2..5 if held.len() < 4 => Call::Lock(lock),
            0..9 => match held.get(random.below(held.len() as u64) as usize) {
                Some(held) if random.chance(700) => Call::Unlock(Lock::clone(held)),
                Some(_) if opened.locks.is_some() => Call::Unlock(lock),
                _ => Call::Look,
            },
            _ if held.is_empty() => Call::Close,
            _ => Call::Look,
        }
    }

    /// A call in a slot, for the owners of a worker.
    fn request(
        &self,
        slot: usize,
        owner: usize,
        call: &Call,
        cx: &mut Context<'_>,
    ) -> Checked<Request> {
        let what = format!("{call:?}");
        let kind = if self.back.is_some() { "client" } else { "poller" };
        let name = format!("{kind} {}", self.number);
        match call {
            Call::Exchange => {
                let arguments = ExchangeId4Args {
                    verifier: self.incarnation.to_be_bytes(),
                    ownerid: name.as_bytes(),
                    flags: 0,
                    state_protect: StateProtect4::None,
                    client_impl_id: Vec::new(),
                };
                return Ok(Ops::default().op(Op4::ExchangeId, &arguments).request(what));
            }
            Call::Create => {
                let (clientid, sequence) = self.new_id;
                let arguments = CreateSession4Args {
                    clientid,
                    sequence,
                    flags: if self.back.is_some() { HAS_BACK_CHANNEL } else { 0 },
                    fore: channel(),
                    back: channel(),
                    cb_program: PROGRAM,
                    sec_parms: vec![CallbackSec4::Sys(AuthSys::new(b"server", 0, 0, &[]))],
                };
                return Ok(Ops::default().op(Op4::CreateSession, &arguments).request(what));
            }
            Call::Bind => {
                let (sessionid, dir, use_conn_in_rdma_mode) = (self.session, 3, false);
                let arguments = BindConnToSession4Args { sessionid, dir, use_conn_in_rdma_mode };
                return Ok(Ops::default().op(Op4::BindConnToSession, &arguments).request(what));
            }
            Call::Repeat { request, .. } => {
                return Ok(Request { what: format!("Repeat {}", request.what), ..request.clone() });
            }
            _ => {}
        }
        let worker = self.workers.get(owner).ok_or("no such worker")?;
        let sequence = Sequence4Args {
            sessionid: self.session,
            sequenceid: self.workers.get(slot).map_or(0, |worker| worker.sequence) + 1,
            slotid: slot as u32,
            highest_slotid: slot as u32,
            cachethis: cx.random.chance(500),
        };
        let ops = Ops::default().op(Op4::Sequence, &sequence);
        let name = format!("d{}.{owner}", self.number);
        let ops = match call {
            Call::Complete => ops.op(Op4::ReclaimComplete, &ReclaimComplete4Args { one_fs: false }),
            Call::Open(file) => self.open(ops, owner, *file, OpenClaim4::Fh),
            Call::ReclaimOpen(lock) => self.open(ops, owner, lock.file, OpenClaim4::Previous(0)),
            Call::Close => {
                let opened = worker.opened.as_ref().ok_or("nothing is open")?;
                let arguments = Close4Args { seqid: 0, open_stateid: opened.stateid };
                ops.put(self.file(opened.file)).op(Op4::Close, &arguments)
            }
            Call::Lock(lock) | Call::Wait(lock) | Call::Reclaim(lock) => {
                let opened = worker.opened.as_ref().ok_or("nothing is open")?;
                cx.held.asks(lock);
                lock_op(ops.put(self.file(lock.file)), opened, lock, call)
            }
            Call::Unlock(lock) => {
                let opened = worker.opened.as_ref().ok_or("nothing is open")?;
                let arguments = LockU4Args {
                    locktype: LockType4::Write,
                    seqid: 0,
                    lock_stateid: opened.locks.ok_or("nothing is locked")?,
                    offset: lock.first,
                    length: lock.end - lock.first,
                };
                // From here on it does not count on it.
                cx.held.unlock(lock);
                ops.put(self.file(lock.file)).op(Op4::LockU, &arguments)
            }
            Call::Make => {
                let createattrs = Fattr4 { attrmask: Bitmap4::EMPTY, attr_vals: &[] };
                let (objtype, objname) = (CreateType4::Directory, name.as_bytes());
                let arguments = Create4Args { objtype, objname, createattrs };
                ops.put(&self.directory).op(Op4::Create, &arguments)
            }
            Call::Remove => {
                let arguments = Remove4Args { target: name.as_bytes() };
                ops.put(&self.directory).op(Op4::Remove, &arguments)
            }
            _ => ops.put(&self.directory).op(Op4::GetFh, &Nothing),
        };
        Ok(ops.request(what))
    }

    fn file(&self, file: u64) -> &[u8] {
        self.files.get(file as usize).map_or(&[], Vec::as_slice)
    }

    fn open(&self, ops: Ops, index: usize, file: u64, claim: OpenClaim4<'_>) -> Ops {
        let owner = format!("o{index}");
        let arguments = Open4Args {
            seqid: 0,
            share_access: 3,
            share_deny: 0,
            clientid: 0,
            owner: owner.as_bytes(),
            openhow: OpenHow4::NoCreate,
            claim,
        };
        ops.put(self.file(file)).op(Op4::Open, &arguments)
    }

    /// The next call of the only worker that speaks while there is no session.
    fn next_of_phase(&mut self) -> Call {
        match self.phase {
            Phase::Exchange => Call::Exchange,
            Phase::Create => Call::Create,
            Phase::Reclaim => match self.to_reclaim.first() {
                Some((lock, _)) => {
                    let opened = self.workers.get(lock.owner as usize);
                    let is_open = opened.is_some_and(|worker| worker.opened.is_some());
                    if is_open {
                        Call::Reclaim(lock.clone())
                    } else {
                        Call::ReclaimOpen(lock.clone())
                    }
                }
                None => Call::Complete,
            },
            Phase::Ready => Call::Look,
        }
    }
}

fn lock_op(ops: Ops, opened: &Opened, lock: &Lock, call: &Call) -> Ops {
    let reclaim = matches!(call, Call::Reclaim(_));
    let owner = format!("l{}", lock.owner);
    let locker = match opened.locks {
        Some(lock_stateid) => Locker4::Lock { lock_stateid, lock_seqid: 0 },
        None => Locker4::Open {
            open_seqid: 0,
            open_stateid: opened.stateid,
            lock_seqid: 0,
            lock_owner: LockOwner4 { clientid: 0, owner: owner.as_bytes() },
        },
    };
    let locktype = match (lock.is_write, matches!(call, Call::Wait(_))) {
        (false, false) => LockType4::Read,
        (true, false) => LockType4::Write,
        (false, true) => LockType4::ReadWaiting,
        (true, true) => LockType4::WriteWaiting,
    };
    let (offset, length) = (lock.first, lock.end - lock.first);
    ops.op(Op4::Lock, &Lock4Args { locktype, reclaim, offset, length, locker })
}

impl Client for LocksClient {
    fn absent_max_ms(&self) -> u64 {
        // Leases may end meanwhile, and grace periods.
        250_000
    }

    fn workers(&self) -> usize {
        self.workers.len()
    }

    fn think(&mut self, index: usize, cx: &mut Context<'_>) -> Checked<Option<Request>> {
        if cx.now_ms < self.silent_until_ms {
            return Ok(None);
        }
        if self.needs_session && self.phase == Phase::Ready {
            if self.workers.iter().any(|worker| worker.call.is_some()) {
                return Ok(None);
            }
            self.phase = Phase::Exchange;
            for worker in &mut self.workers {
                // That was of the session of before.
                worker.next.take_if(|next| matches!(next, Call::Repeat { .. }));
            }
        }
        let call = if self.phase == Phase::Ready {
            if cx.random.chance(3) {
                self.silent_until_ms = cx.now_ms + cx.random.between(60_000, 200_000);
                return Ok(None);
            }
            if std::mem::take(&mut self.is_path_down) {
                Call::Bind
            } else {
                let next = self.workers.get_mut(index).and_then(|worker| worker.next.take());
                match (next, self.is_to_wait(index, cx)) {
                    (Some(call), _) | (None, Some(call)) => call,
                    (None, None) if self.waits(index) => return Ok(None),
                    (None, None) => self.choose(index, cx),
                }
            }
        } else if index == 0 {
            self.next_of_phase()
        } else {
            return Ok(None);
        };
        // What is reclaimed for a worker goes through the slot of the first one.
        let owner = match &call {
            Call::Reclaim(lock) | Call::ReclaimOpen(lock) => lock.owner as usize,
            _ => index,
        };
        if let Some(lock) = call.lock() {
            cx.held.claim(self.number, owner as u64, Some(lock.clone()), cx.now_ms);
        }
        let request = self.request(index, owner, &call, cx)?;
        if let Some(worker) = self.workers.get_mut(index) {
            worker.was_told = false;
            worker.call = Some((call, request.clone()));
        }
        Ok(Some(request))
    }

    fn reply(&mut self, index: usize, results: &[u8], cx: &mut Context<'_>) -> Checked<Then> {
        let worker = self.workers.get_mut(index).ok_or("no such worker")?;
        let (call, request) = worker.call.take().ok_or("a reply to no call")?;
        let mut r = Reader::new(results);
        let head = (r.u32(), r.opaque(16).map(drop), r.u32(), r.u32(), r.u32());
        let (Ok(status), Ok(()), Ok(count), Ok(_), Ok(first_status)) = head else {
            return Err("a COMPOUND's result that cannot be read".into());
        };
        if matches!(call, Call::Exchange | Call::Create) {
            return self.made_client(&call, status, &mut r, cx);
        }
        if first_status != 0 {
            return match first_status {
                it if it == NfsStat4::Delay as u32 => Ok(self.again(index, call, cx)),
                it if it == NfsStat4::BadSession as u32 || it == NfsStat4::DeadSession as u32 => {
                    self.lose(index, call, cx);
                    self.start_over("BADSESSION", cx)
                }
                it => Err(format!("SEQUENCE of {call:?} got {it}")),
            };
        }
        if matches!(call, Call::Bind) {
            self.deaf_ms = cx.now_ms;
            return Ok(Then::after(1));
        }
        let _session_to_target = r.fixed_opaque(32).map_err(unreadable)?;
        let flags = r.u32().map_err(unreadable)?;
        if !matches!(call, Call::Repeat { .. }) {
            worker.sequence += 1;
        }
        if flags & RESTART_RECLAIM_NEEDED != 0 && self.phase == Phase::Ready {
            self.lose(index, call, cx);
            return self.start_over("RESTART_RECLAIM_NEEDED", cx);
        }
        if flags & REVOKED != 0 {
            if cx.held.is_valid(self.number, cx.now_ms) {
                return Err(format!(
                    "client {} lost what it held, in time: {flags:#x}",
                    self.number
                ));
            }
            self.lose(index, call, cx);
            return Ok(self.reboot(cx));
        }
        cx.held.renew(self.number, cx.sent_ms, cx.now_ms)?;
        if flags & PATH_DOWN != 0 && self.back.is_some() {
            (self.is_path_down, self.deaf_ms) = (true, cx.now_ms);
        }
        if flags & BACK_FAULT != 0 {
            if self.made_ms > cx.started_ms {
                let number = self.number;
                return Err(format!("the server finds fault with client {number}'s replies"));
            }
            // Two processes have not heard of their last callbacks.
            (self.needs_session, self.deaf_ms) = (true, cx.now_ms);
        }
        let told = r.fixed_opaque(r.remaining()).map_err(unreadable)?.to_vec();
        if let Call::Repeat { told: before, request } = &call {
            if *before != told {
                let what = &request.what;
                return Err(format!("{what} was answered by {before:02x?}, then by {told:02x?}"));
            }
            return Ok(Then::after(cx.random.between(1, 300)));
        }
        let has_changed = status == 0
            && matches!(
                call,
                Call::Make | Call::Remove | Call::Lock(_) | Call::Wait(_) | Call::Open(_)
            );
        let is_repeated = has_changed && self.phase == Phase::Ready && cx.random.chance(150);
        // Of the last operation: what precedes it is PUTFH, which tells nothing.
        let result = if count > 2 { told.get(16..) } else { told.get(8..) }.unwrap_or(&[]);
        let owner = call.lock().map(|lock| lock.owner);
        // The denial was not kept: the server has it wait, until it has not asked again for long.
        let is_left_waiting =
            status == NfsStat4::RetryUncachedRep as u32 && matches!(call, Call::Wait(_));
        let then = self.judge(index, call, status, &mut Reader::new(result), cx)?;
        if let Some(owner) = owner {
            if is_left_waiting {
                cx.held.ends_wait(self.number, owner, cx.now_ms);
            }
            let waits = self.workers.get(owner as usize).and_then(|worker| worker.waits.as_ref());
            let waits = waits.map(|waits| waits.lock.clone());
            cx.held.claim(self.number, owner, waits, cx.now_ms);
        }
        if is_repeated
            && !then.forgets
            && let Some(worker) = self.workers.get_mut(index)
        {
            worker.next = Some(Call::Repeat { request, told });
        }
        Ok(then)
    }

    fn called(&mut self, message: &[u8], cx: &mut Context<'_>) -> Checked<Option<Vec<u8>>> {
        let Self { back: Some(back), workers, deaf_ms, number, .. } = self else {
            return Err(format!("client {} is called, and has no back channel", self.number));
        };
        if cx.now_ms < self.silent_until_ms || cx.random.chance(100) {
            // It was lost on its way, or in the client.
            *deaf_ms = cx.now_ms;
            return Ok(None);
        }
        let reply = back.called(message, |told| {
            let Told::LockIsFree(owner) = told else { return NfsStat4::Inval };
            let name = |index| format!("l{index}").into_bytes();
            let its = (0..workers.len()).find(|index| name(*index) == *owner);
            let Some(worker) = its.and_then(|index| workers.get_mut(index)) else {
                return NfsStat4::BadStateId;
            };
            if cx.random.chance(50) {
                return NfsStat4::Delay;
            }
            worker.was_told |= matches!(worker.call, Some((Call::Wait(_), _)));
            if let Some(waits) = &mut worker.waits {
                cx.held.notices += 1;
                let late_ms = if cx.random.chance(100) { cx.random.below(5_000) } else { 0 };
                (waits.is_told, waits.ask_ms) = (true, cx.now_ms + late_ms);
            }
            NfsStat4::Ok
        });
        let reply = reply.map_err(|why| format!("client {number}: {why}"))?;
        // The answer may be lost: then it is told again.
        Ok((!cx.random.chance(50)).then_some(reply))
    }
}

impl LocksClient {
    /// What becomes of a call whose session is gone is not known.
    fn lose(&mut self, index: usize, call: Call, cx: &mut Context<'_>) {
        if let Some(lock) = call.lock() {
            cx.held.may_have(lock.clone());
        }
        if let (Call::Make | Call::Remove, Some(worker)) = (call, self.workers.get_mut(index)) {
            worker.has_directory = None;
        }
    }

    /// The call is made again later.
    fn again(&mut self, index: usize, call: Call, cx: &mut Context<'_>) -> Then {
        if self.phase == Phase::Ready
            && let Some(worker) = self.workers.get_mut(index)
        {
            worker.next = Some(call);
        }
        Then::after(cx.random.between(100, 3000))
    }

    /// `EXCHANGE_ID` or `CREATE_SESSION` was answered.
    fn made_client(
        &mut self,
        call: &Call,
        status: u32,
        r: &mut Reader<'_>,
        cx: &mut Context<'_>,
    ) -> Checked<Then> {
        if status == NfsStat4::Delay as u32 {
            return Ok(Then::after(cx.random.between(100, 3000)));
        }
        if matches!(call, Call::Create) && status == NfsStat4::StaleClientId as u32 {
            self.phase = Phase::Exchange;
            return Ok(Then::after(10));
        }
        if status != 0 {
            return Err(format!("{call:?} of client {} got {status}", self.number));
        }
        if matches!(call, Call::Exchange) {
            let told = (r.u64(), r.u32(), r.u32());
            let (Ok(id), Ok(sequence), Ok(flags)) = told else {
                return Err("EXCHANGE_ID's result cannot be read".into());
            };
            let is_known = self.id == Some(id) && flags & CONFIRMED != 0;
            if self.id.is_some_and(|known| known != id) || !is_known {
                self.lost_id(cx)?;
            }
            self.new_id = (id, sequence);
            self.phase = Phase::Create;
            return Ok(Then::after(1));
        }
        self.session = r.array().map_err(unreadable)?;
        if let Some(back) = &mut self.back {
            back.begin(self.session);
        }
        (self.is_path_down, self.needs_session) = (false, false);
        (self.deaf_ms, self.made_ms) = (cx.now_ms, cx.now_ms);
        cx.held.tells(self.number, false, cx.now_ms);
        let is_new = self.id != Some(self.new_id.0);
        self.id = Some(self.new_id.0);
        self.lost_ms = cx.lost_ms;
        for worker in &mut self.workers {
            worker.sequence = 0;
        }
        self.phase = if is_new { Phase::Reclaim } else { Phase::Ready };
        Ok(Then::after(1))
    }

    /// The server does not know the client any more.
    fn lost_id(&mut self, cx: &mut Context<'_>) -> Checked {
        let has_lost = self.has_server_lost(cx);
        if !has_lost && self.id.is_some() && cx.held.is_valid(self.number, cx.now_ms) {
            return Err(format!("the server has forgotten client {} in time", self.number));
        }
        let must_until_ms = cx.found_lost_ms + LEASE_MS;
        let was_valid = cx.held.is_valid(self.number, cx.lost_ms);
        let held = cx.held.take(self.number, cx.now_ms);
        // What was to be reclaimed before has its own limit, which another loss does not move.
        if has_lost {
            // Who was not heard of in time may try, and gets what nobody else has got.
            let until_ms = if was_valid { must_until_ms } else { 0 };
            self.to_reclaim.extend(held.into_iter().map(|lock| (lock, until_ms)));
        } else {
            self.to_reclaim.clear();
        }
        for worker in &mut self.workers {
            (worker.opened, worker.waits) = (None, None);
        }
        Ok(())
    }

    fn judge(
        &mut self,
        index: usize,
        call: Call,
        status: u32,
        r: &mut Reader<'_>,
        cx: &mut Context<'_>,
    ) -> Checked<Then> {
        let is = |expected: NfsStat4| status == expected as u32;
        // Whose reply was not kept has changed nothing: if it has, the next try is told so.
        if is(NfsStat4::Delay) || is(NfsStat4::RetryUncachedRep) {
            return Ok(self.again(index, call, cx));
        }
        if is(NfsStat4::Grace)
            && matches!(call, Call::Open(_) | Call::Lock(_) | Call::Wait(_) | Call::Remove)
        {
            if cx.sent_ms > cx.started_ms + GRACE_MS {
                return Err("the grace period does not end".into());
            }
            return Ok(self.again(index, call, cx));
        }
        let then = Then::after(cx.random.between(1, 80));
        let refused = || format!("{call:?} of client {} got {status}", self.number);
        match &call {
            Call::Complete if status == 0 || is(NfsStat4::CompleteAlready) => {
                self.phase = Phase::Ready;
                cx.held.knows(self.number);
            }
            Call::ReclaimOpen(lock) | Call::Reclaim(lock) if status != 0 => {
                let is_due = |(_, until_ms): &(Lock, u64)| cx.now_ms < *until_ms;
                if self.to_reclaim.first().is_some_and(is_due) {
                    return Err(format!("a lock is lost in a restart: {}", refused()));
                }
                let lock = lock.clone();
                self.to_reclaim.retain(|(other, _)| *other != lock);
            }
            Call::ReclaimOpen(Lock { owner, file, .. }) => {
                let opened = opened(*file, r)?;
                if let Some(worker) = self.workers.get_mut(*owner as usize) {
                    worker.opened = Some(opened);
                }
            }
            Call::Reclaim(lock) => {
                cx.held.reclaim(cx.now_ms, lock.clone())?;
                self.to_reclaim.remove(0);
                self.has_locked(lock.owner as usize, r)?;
            }
            Call::Lock(lock) if status == 0 => {
                cx.held.lock(cx.now_ms, lock.clone())?;
                self.has_locked(index, r)?;
            }
            Call::Lock(lock) | Call::Wait(lock) if is(NfsStat4::Denied) => {
                let told = LockDenied4::decode(r).map_err(unreadable)?;
                let judged = cx.held.denied(lock, cx.sent_ms);
                judged.map_err(|why| format!("{why}; the server says: {told:?}"))?;
                if matches!(call, Call::Wait(_)) {
                    self.is_denied(index, lock, cx)?;
                }
            }
            Call::Wait(lock) if status == 0 => {
                self.has_waited(index, lock, cx)?;
                cx.held.lock(cx.now_ms, lock.clone())?;
                self.has_locked(index, r)?;
            }
            Call::Open(file) if status == 0 => {
                let opened = opened(*file, r)?;
                if let Some(worker) = self.workers.get_mut(index) {
                    worker.opened = Some(opened);
                }
            }
            Call::Unlock(_) if status == 0 => self.has_locked(index, r)?,
            Call::Close if status == 0 => {
                if let Some(worker) = self.workers.get_mut(index) {
                    worker.opened = None;
                }
            }
            Call::Look if status == 0 => {}
            Call::Make | Call::Remove => {
                let makes = matches!(call, Call::Make);
                let refusal = if makes { NfsStat4::Exist } else { NfsStat4::NoEnt };
                let worker = self.workers.get_mut(index).ok_or("no such worker")?;
                let is_expected = match worker.has_directory {
                    Some(has) if has != makes => status == 0,
                    Some(_) => is(refusal),
                    None => status == 0 || is(refusal),
                };
                if !is_expected {
                    return Err(format!(
                        "{}, while its directory was there: {:?}",
                        refused(),
                        worker.has_directory
                    ));
                }
                worker.has_directory = Some(makes);
            }
            _ => return Err(refused()),
        }
        Ok(then)
    }

    fn has_locked(&mut self, index: usize, r: &mut Reader<'_>) -> Checked {
        let stateid = stateid(r)?;
        let opened = self.workers.get_mut(index).and_then(|worker| worker.opened.as_mut());
        opened.ok_or("nothing is open")?.locks = Some(stateid);
        Ok(())
    }
}

fn opened(file: u64, r: &mut Reader<'_>) -> Checked<Opened> {
    Ok(Opened { file, stateid: stateid(r)?, locks: None })
}
