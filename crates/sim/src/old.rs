//! A client of NFSv4.0 that locks ranges of the same files as others.
//!
//! It has no session. Each worker has an open-owner and a lock-owner, whose requests follow each other by sequence
//! ids: one that comes twice, or late, is executed once, and one that its client repeats is answered as it was. What
//! it waits for it asks for again. An owner that has nothing is given up now and then, and another one takes its
//! place.

use steadfast_wire::nfs4::{
    CallbackClient4, Close4Args, Lock4Args, LockDenied4, LockOwner4, LockType4, LockU4Args,
    Locker4, NfsStat4, Op4, Open4Args, Open4Result, OpenClaim4, OpenConfirm4Args, OpenHow4,
    ReleaseLockOwner4Args, Renew4Args, SetClientId4Args, SetClientId4Result,
    SetClientIdConfirm4Args, StateId4,
};
use steadfast_xdr::{Decode, Reader};

use crate::Checked;
use crate::client::{Client, Context, Then};
use crate::compound::{Ops, stateid};
use crate::held::{LEASE_MS, Lock};
use crate::message::{Request, unreadable};

/// Blocks of a file that are locked.
const BLOCKS: u64 = 12;
/// A grace period lasts for two leases at most, and a tick.
const GRACE_MS: u64 = 2 * LEASE_MS + 5_000;
/// `OPEN4_RESULT_CONFIRM`.
const CONFIRM: u32 = 0x2;

/// What a client is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Set,
    Confirm,
    Reclaim,
    Ready,
}

#[derive(Clone, Debug)]
enum Call {
    Set,
    Confirm,
    Renew,
    ReclaimOpen(u64),
    Reclaim(Lock),
    Open(u64),
    ConfirmOpen,
    Close,
    Lock(Lock),
    /// A lock that it waits for.
    Wait(Lock),
    Unlock(Lock),
    /// The lock-owner locks nothing any more.
    Release,
    /// The request of before once more.
    Repeat {
        request: Request,
        told: Vec<u8>,
        /// Until when the server has to know it.
        until_ms: u64,
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

/// A file that is open.
#[derive(Clone, Debug)]
struct Opened {
    file: u64,
    stateid: StateId4,
    /// Of the lock-owner.
    locks: Option<StateId4>,
    /// When it was opened.
    since_ms: u64,
}

#[derive(Default)]
struct Worker {
    /// Whose owners it is for, what, and how.
    call: Option<(usize, Call, Request)>,
    next: Option<Call>,
    opened: Option<Opened>,
    /// What it waits for, and when it asks again.
    waits: Option<(Lock, u64)>,
    /// The last sequence ids of its owners.
    open_seqid: u32,
    lock_seqid: u32,
    /// Which lock-owner it is.
    generation: u64,
}

/// The client.
pub(crate) struct OldClient {
    number: u64,
    incarnation: u64,
    phase: Phase,
    id: u64,
    confirm: [u8; 8],
    workers: Vec<Worker>,
    root: Vec<u8>,
    files: Vec<Vec<u8>>,
    /// Whose open is to be confirmed before anything else is reclaimed.
    to_confirm: Option<usize>,
    /// Locks to reclaim, and until when the server must give them.
    to_reclaim: Vec<(Lock, u64)>,
    /// It says nothing until then.
    silent_until_ms: u64,
    /// The last power cut that it knows of.
    lost_ms: u64,
}

impl OldClient {
    /// A client that locks these files of a directory.
    pub(crate) fn new(number: u64, workers: usize, root: Vec<u8>, files: Vec<Vec<u8>>) -> Self {
        Self {
            number,
            incarnation: 1,
            phase: Phase::Set,
            id: 0,
            confirm: [0; 8],
            workers: std::iter::repeat_with(Worker::default).take(workers).collect(),
            root,
            files,
            to_confirm: None,
            to_reclaim: Vec::new(),
            silent_until_ms: 0,
            lost_ms: 0,
        }
    }

    fn worker(&mut self, index: usize) -> Checked<&mut Worker> {
        self.workers.get_mut(index).ok_or_else(|| "no such worker".into())
    }

    fn opened_ms(&self, owner: usize) -> u64 {
        let opened = self.workers.get(owner).and_then(|worker| worker.opened.as_ref());
        opened.map_or(u64::MAX / 2, |opened| opened.since_ms)
    }

    fn file(&self, file: u64) -> &[u8] {
        self.files.get(file as usize).map_or(&[], Vec::as_slice)
    }

    /// The client has nothing any more: it is another incarnation, or the server has lost its state.
    fn begin_anew(&mut self, cx: &mut Context<'_>) -> Vec<Lock> {
        self.phase = Phase::Set;
        self.to_confirm = None;
        for worker in &mut self.workers {
            let Worker { open_seqid, lock_seqid, generation, .. } = *worker;
            *worker = Worker { open_seqid, lock_seqid, generation, ..Worker::default() };
        }
        cx.held.take(self.number, cx.now_ms)
    }

    /// The lease is over.
    fn reboot(&mut self, why: &str, cx: &mut Context<'_>) -> Checked<Then> {
        if cx.held.is_valid(self.number, cx.now_ms) {
            return Err(format!("client {} lost what it held, in time: {why}", self.number));
        }
        self.incarnation += 1;
        self.to_reclaim.clear();
        self.begin_anew(cx);
        cx.held.forget(self.number);
        cx.held.tells(self.number, true, cx.now_ms);
        Ok(Then { forgets: true, ..Then::after(10) })
    }

    /// The server does not know the client.
    fn is_stale(&mut self, why: &str, cx: &mut Context<'_>) -> Checked<Then> {
        if cx.lost_ms <= self.lost_ms {
            return self.reboot(why, cx);
        }
        let was_valid = cx.held.is_valid(self.number, cx.lost_ms);
        let until_ms = if was_valid { cx.found_lost_ms + LEASE_MS } else { 0 };
        let held = self.begin_anew(cx);
        // What was to be reclaimed before has its own limit, which another loss does not move.
        self.to_reclaim.extend(held.into_iter().map(|lock| (lock, until_ms)));
        Ok(Then { forgets: true, ..Then::after(10) })
    }

    fn choose(&mut self, index: usize, cx: &mut Context<'_>) -> Call {
        let random = &mut *cx.random;
        let Some(worker) = self.workers.get(index) else { return Call::Renew };
        let owner = index as u64;
        let Some(opened) = &worker.opened else {
            return match random.below(10) {
                0..2 => Call::Renew,
                _ => Call::Open(random.below(self.files.len() as u64)),
            };
        };
        let held: Vec<&Lock> = cx.held.of(self.number, owner).collect();
        let first = random.below(BLOCKS);
        let (client, file) = (self.number, opened.file);
        let end = first + random.between(1, 4);
        let lock = Lock { client, owner, file, first, end, is_write: random.chance(600) };
        match random.below(20) {
            0..6 if held.len() < 4 => Call::Wait(lock),
            6..10 if held.len() < 4 => Call::Lock(lock),
            0..17 => match held.get(random.below(held.len() as u64) as usize) {
                Some(held) if random.chance(700) => Call::Unlock(Lock::clone(held)),
                Some(_) if opened.locks.is_some() => Call::Unlock(lock),
                _ => Call::Renew,
            },
            17 if held.is_empty() && opened.locks.is_some() => Call::Release,
            18.. if held.is_empty() => Call::Close,
            _ => Call::Renew,
        }
    }

    /// What a worker asks for that waits; `None` if it has time, or waits no more.
    fn is_to_wait(&mut self, index: usize, cx: &mut Context<'_>) -> Option<Call> {
        let worker = self.workers.get_mut(index)?;
        let (lock, ask_ms) = worker.waits.as_ref()?;
        if cx.random.chance(5) {
            worker.waits = None;
            cx.held.ends_wait(self.number, index as u64, cx.now_ms);
            return None;
        }
        (cx.now_ms >= *ask_ms).then(|| Call::Wait(lock.clone()))
    }

    /// The next call of the only worker that speaks until all is reclaimed, and for whose owners.
    fn next_of_phase(&self) -> (usize, Call) {
        if let Some(owner) = self.to_confirm {
            return (owner, Call::ConfirmOpen);
        }
        match (self.phase, self.to_reclaim.first()) {
            (Phase::Set, _) => (0, Call::Set),
            (Phase::Confirm, _) => (0, Call::Confirm),
            (Phase::Reclaim, Some((lock, _))) => {
                let owner = lock.owner as usize;
                let is_open = self.workers.get(owner).is_some_and(|of| of.opened.is_some());
                let open = Call::ReclaimOpen(lock.file);
                (owner, if is_open { Call::Reclaim(lock.clone()) } else { open })
            }
            _ => (0, Call::Renew),
        }
    }

    fn request(&self, owner: usize, call: &Call, cx: &mut Context<'_>) -> Checked<Request> {
        let what = format!("{call:?} of owners {owner}");
        let worker = self.workers.get(owner).ok_or("no such worker")?;
        let opened = || worker.opened.as_ref().ok_or("nothing is open");
        let at = |file| Ops::default().put(self.file(file));
        let (open_seqid, lock_seqid) = (worker.open_seqid + 1, worker.lock_seqid + 1);
        let name = format!("l{owner}.{}", worker.generation);
        let lock_owner = LockOwner4 { clientid: self.id, owner: name.as_bytes() };
        let ops = match call {
            Call::Set => {
                let name = format!("old {}", self.number);
                let callback =
                    CallbackClient4 { program: 0, netid: b"tcp", address: b"0.0.0.0.0.0" };
                let (verifier, id) = (self.incarnation.to_be_bytes(), name.as_bytes());
                let arguments = SetClientId4Args { verifier, id, callback, callback_ident: 0 };
                Ops::default().op(Op4::SetClientId, &arguments)
            }
            Call::Confirm => {
                let (clientid, confirm) = (self.id, self.confirm);
                let arguments = SetClientIdConfirm4Args { clientid, confirm };
                Ops::default().op(Op4::SetClientIdConfirm, &arguments)
            }
            Call::Renew => Ops::default().op(Op4::Renew, &Renew4Args { clientid: self.id }),
            Call::Repeat { request, .. } => {
                return Ok(Request { what: format!("Repeat {}", request.what), ..request.clone() });
            }
            Call::Open(file) => {
                let name = format!("f{file}");
                let claim = OpenClaim4::Null(name.as_bytes());
                self.open(Ops::default().put(&self.root), owner, open_seqid, claim)
            }
            Call::ReclaimOpen(file) => {
                self.open(at(*file), owner, open_seqid, OpenClaim4::Previous(0))
            }
            Call::ConfirmOpen => {
                let opened = opened()?;
                let (open_stateid, seqid) = (opened.stateid, open_seqid);
                at(opened.file).op(Op4::OpenConfirm, &OpenConfirm4Args { open_stateid, seqid })
            }
            Call::Close => {
                let opened = opened()?;
                let (open_stateid, seqid) = (opened.stateid, open_seqid);
                at(opened.file).op(Op4::Close, &Close4Args { seqid, open_stateid })
            }
            Call::Lock(lock) | Call::Wait(lock) | Call::Reclaim(lock) => {
                let opened = opened()?;
                cx.held.asks(lock);
                let open_stateid = opened.stateid;
                let locker = match opened.locks {
                    Some(lock_stateid) => Locker4::Lock { lock_stateid, lock_seqid },
                    None => Locker4::Open { open_seqid, open_stateid, lock_seqid, lock_owner },
                };
                let arguments = Lock4Args {
                    locktype: kind(lock, call),
                    reclaim: matches!(call, Call::Reclaim(_)),
                    offset: lock.first,
                    length: lock.end - lock.first,
                    locker,
                };
                at(lock.file).op(Op4::Lock, &arguments)
            }
            Call::Unlock(lock) => {
                let arguments = LockU4Args {
                    locktype: LockType4::Write,
                    seqid: lock_seqid,
                    lock_stateid: opened()?.locks.ok_or("nothing is locked")?,
                    offset: lock.first,
                    length: lock.end - lock.first,
                };
                // From here on it does not count on it.
                cx.held.unlock(lock);
                at(lock.file).op(Op4::LockU, &arguments)
            }
            Call::Release => {
                let arguments = ReleaseLockOwner4Args { lock_owner };
                Ops::default().op(Op4::ReleaseLockOwner, &arguments)
            }
        };
        Ok(ops.request_of(0, what))
    }

    fn open(&self, ops: Ops, owner: usize, seqid: u32, claim: OpenClaim4<'_>) -> Ops {
        let owner = format!("o{owner}");
        let arguments = Open4Args {
            seqid,
            share_access: 3,
            share_deny: 0,
            clientid: self.id,
            owner: owner.as_bytes(),
            openhow: OpenHow4::NoCreate,
            claim,
        };
        ops.op(Op4::Open, &arguments)
    }
}

fn kind(lock: &Lock, call: &Call) -> LockType4 {
    match (lock.is_write, matches!(call, Call::Wait(_))) {
        (false, false) => LockType4::Read,
        (true, false) => LockType4::Write,
        (false, true) => LockType4::ReadWaiting,
        (true, true) => LockType4::WriteWaiting,
    }
}

fn is(status: u32, expected: NfsStat4) -> bool {
    status == expected as u32
}

/// Whether an operation that ended so has used its sequence ids (RFC 7530 §9.1.7).
fn uses_sequence(status: u32) -> bool {
    let exceptions = [
        NfsStat4::StaleClientId,
        NfsStat4::StaleStateId,
        NfsStat4::BadStateId,
        NfsStat4::BadSeqId,
        NfsStat4::BadXdr,
        NfsStat4::Resource,
        NfsStat4::NoFileHandle,
        NfsStat4::Moved,
    ];
    exceptions.into_iter().all(|exception| !is(status, exception))
}

impl Client for OldClient {
    fn absent_max_ms(&self) -> u64 {
        250_000
    }

    fn workers(&self) -> usize {
        self.workers.len()
    }

    fn think(&mut self, index: usize, cx: &mut Context<'_>) -> Checked<Option<Request>> {
        if cx.now_ms < self.silent_until_ms {
            return Ok(None);
        }
        let (owner, call) = if self.phase == Phase::Ready {
            if cx.random.chance(3) {
                self.silent_until_ms = cx.now_ms + cx.random.between(60_000, 200_000);
                return Ok(None);
            }
            let next = self.worker(index)?.next.take();
            match (next, self.is_to_wait(index, cx)) {
                (Some(call), _) | (None, Some(call)) => (index, call),
                (None, None) if self.worker(index)?.waits.is_some() => return Ok(None),
                (None, None) => (index, self.choose(index, cx)),
            }
        } else if index == 0 {
            self.next_of_phase()
        } else {
            return Ok(None);
        };
        if let Some(lock) = call.lock() {
            cx.held.claim(self.number, lock.owner, Some(lock.clone()), cx.now_ms);
        }
        let request = self.request(owner, &call, cx)?;
        self.worker(index)?.call = Some((owner, call, request.clone()));
        Ok(Some(request))
    }

    fn reply(&mut self, index: usize, results: &[u8], cx: &mut Context<'_>) -> Checked<Then> {
        let (owner, call, request) = self.worker(index)?.call.take().ok_or("a reply to no call")?;
        let mut r = Reader::new(results);
        let head = (r.u32(), r.opaque(16).map(drop), r.u32());
        let (Ok(status), Ok(()), Ok(count)) = head else {
            return Err("a COMPOUND's result that cannot be read".into());
        };
        // Its operation stands behind PUTFH, if it has one.
        let has_handle = !matches!(call, Call::Set | Call::Confirm | Call::Renew | Call::Release);
        let is_executed = count == 1 + u32::from(has_handle);
        let told = r.fixed_opaque(r.remaining()).map_err(unreadable)?.to_vec();
        let why = format!("{call:?} of client {} got {status}", self.number);
        for gone in [NfsStat4::StaleClientId, NfsStat4::StaleStateId] {
            if is(status, gone) {
                return self.is_stale(&why, cx);
            }
        }
        if is(status, NfsStat4::Expired)
            || is(status, NfsStat4::BadStateId) && !cx.held.is_valid(self.number, cx.now_ms)
        {
            return self.reboot(&why, cx);
        }
        if let Call::Repeat { told: before, request, until_ms } = &call {
            let is_forgotten = is(status, NfsStat4::BadStateId) && cx.now_ms > *until_ms;
            if is_executed && *before != told && !is_forgotten {
                let what = &request.what;
                return Err(format!("{what} was answered by {before:02x?}, then by {told:02x?}"));
            }
            return Ok(Then::after(cx.random.between(1, 300)));
        }
        if is_executed && uses_sequence(status) {
            self.has_used(owner, &call)?;
        }
        let has_sequence = has_handle && (status == 0 || is(status, NfsStat4::Denied));
        let is_repeated = has_sequence && self.phase == Phase::Ready && cx.random.chance(150);
        if status == 0 && !matches!(call, Call::Set | Call::Confirm | Call::Release)
            || is(status, NfsStat4::Denied)
        {
            cx.held.renew(self.number, cx.sent_ms, cx.now_ms)?;
        }
        let result = if has_handle { told.get(16..) } else { told.get(8..) }.unwrap_or(&[]);
        let then = self.judge((index, owner), &call, status, &mut Reader::new(result), cx)?;
        if call.lock().is_some() {
            let waits = self.worker(owner)?.waits.as_ref().map(|(lock, _)| lock.clone());
            cx.held.claim(self.number, owner as u64, waits, cx.now_ms);
        }
        let worker = self.worker(index)?;
        if is_repeated && worker.next.is_none() {
            // An owner that has nothing open is remembered for a lease.
            let until_ms = match call {
                Call::Close => cx.sent_ms + LEASE_MS,
                _ => u64::MAX,
            };
            worker.next = Some(Call::Repeat { request, told, until_ms });
        }
        Ok(then)
    }
}

impl OldClient {
    /// A call has used the sequence ids that it had.
    fn has_used(&mut self, owner: usize, call: &Call) -> Checked {
        let worker = self.worker(owner)?;
        let has_locks = worker.opened.as_ref().is_some_and(|opened| opened.locks.is_some());
        let (of_open, of_lock) = match call {
            Call::Open(_) | Call::ReclaimOpen(_) | Call::ConfirmOpen | Call::Close => (true, false),
            Call::Lock(_) | Call::Wait(_) | Call::Reclaim(_) => (!has_locks, true),
            Call::Unlock(_) => (false, true),
            _ => (false, false),
        };
        worker.open_seqid += u32::from(of_open);
        worker.lock_seqid += u32::from(of_lock);
        Ok(())
    }

    /// The call is made again later.
    fn again(&mut self, index: usize, call: &Call, cx: &mut Context<'_>) -> Checked<Then> {
        if self.phase == Phase::Ready {
            self.worker(index)?.next = Some(call.clone());
        }
        Ok(Then::after(cx.random.between(100, 3000)))
    }

    fn judge(
        &mut self,
        (index, owner): (usize, usize),
        call: &Call,
        status: u32,
        r: &mut Reader<'_>,
        cx: &mut Context<'_>,
    ) -> Checked<Then> {
        if is(status, NfsStat4::Delay) {
            return self.again(index, call, cx);
        }
        if is(status, NfsStat4::Grace)
            && matches!(call, Call::Open(_) | Call::Lock(_) | Call::Wait(_))
        {
            if cx.sent_ms > cx.started_ms + GRACE_MS {
                return Err("the grace period does not end".into());
            }
            return self.again(index, call, cx);
        }
        let then = Then::after(cx.random.between(1, 80));
        let refused = || format!("{call:?} of client {} got {status}", self.number);
        match call {
            Call::Reclaim(_) | Call::ReclaimOpen(_) if status != 0 => {
                let (lock, until_ms) = self.to_reclaim.first().ok_or("nothing to reclaim")?;
                if cx.now_ms < *until_ms {
                    return Err(format!("{lock:?} is lost in a restart: {}", refused()));
                }
                self.to_reclaim.remove(0);
            }
            Call::Lock(lock) | Call::Wait(lock) if is(status, NfsStat4::Denied) => {
                let told = LockDenied4::decode(r).map_err(unreadable)?;
                let judged = cx.held.denied(lock, cx.sent_ms);
                judged.map_err(|why| format!("{why}; the server says: {told:?}"))?;
                if matches!(call, Call::Wait(_)) {
                    let ask_ms = cx.now_ms + cx.random.between(1_000, 8_000);
                    self.worker(owner)?.waits = Some((lock.clone(), ask_ms));
                }
            }
            // What nobody confirms is closed after a lease.
            Call::ConfirmOpen
                if is(status, NfsStat4::BadStateId)
                    && self.opened_ms(owner) + LEASE_MS < cx.now_ms =>
            {
                self.to_confirm = None;
                self.worker(owner)?.opened = None;
            }
            _ if status != 0 => return Err(refused()),
            Call::Set => {
                let told = SetClientId4Result::decode(r).map_err(unreadable)?;
                (self.id, self.confirm) = (told.clientid, told.confirm);
                self.phase = Phase::Confirm;
            }
            Call::Confirm => {
                (self.lost_ms, self.phase) = (cx.lost_ms, Phase::Reclaim);
                cx.held.tells(self.number, false, cx.now_ms);
            }
            Call::Renew if self.phase == Phase::Reclaim => {
                self.phase = Phase::Ready;
                cx.held.knows(self.number);
            }
            Call::Renew | Call::Repeat { .. } => {}
            Call::Open(file) | Call::ReclaimOpen(file) => {
                let told = Open4Result::decode(r).map_err(unreadable)?;
                let (file, stateid, locks) = (*file, told.stateid, None);
                let (is_ready, since_ms) = (self.phase == Phase::Ready, cx.sent_ms);
                cx.held.has_in_part(self.number, !is_ready);
                let is_unconfirmed = told.rflags & CONFIRM != 0;
                let worker = self.worker(owner)?;
                worker.opened = Some(Opened { file, stateid, locks, since_ms });
                if is_unconfirmed && is_ready {
                    worker.next = Some(Call::ConfirmOpen);
                } else if is_unconfirmed {
                    self.to_confirm = Some(owner);
                }
            }
            Call::ConfirmOpen => {
                self.to_confirm = None;
                let opened = self.worker(owner)?.opened.as_mut();
                opened.ok_or("nothing is open")?.stateid = stateid(r)?;
            }
            Call::Close => {
                let is_other = cx.random.chance(500);
                let worker = self.worker(owner)?;
                worker.opened = None;
                worker.generation += u64::from(is_other);
            }
            Call::Lock(lock) | Call::Wait(lock) | Call::Reclaim(lock) | Call::Unlock(lock) => {
                self.has_locked(owner, call, lock, stateid(r)?, cx)?;
            }
            Call::Release => {
                let worker = self.worker(owner)?;
                worker.generation += 1;
                if let Some(opened) = &mut worker.opened {
                    opened.locks = None;
                }
            }
        }
        Ok(then)
    }

    /// A LOCK or LOCKU has done what it was to do.
    fn has_locked(
        &mut self,
        owner: usize,
        call: &Call,
        lock: &Lock,
        stateid: StateId4,
        cx: &mut Context<'_>,
    ) -> Checked {
        match call {
            Call::Unlock(_) => {}
            Call::Reclaim(_) => {
                cx.held.reclaim(cx.now_ms, lock.clone())?;
                cx.held.has_in_part(self.number, true);
                self.to_reclaim.remove(0);
            }
            _ => {
                cx.held.has_in_part(self.number, false);
                cx.held.lock(cx.now_ms, lock.clone())?;
                let has_waited = self.worker(owner)?.waits.take().is_some();
                cx.held.waited += u64::from(has_waited);
            }
        }
        let opened = self.worker(owner)?.opened.as_mut();
        opened.ok_or("nothing is open")?.locks = Some(stateid);
        Ok(())
    }
}
