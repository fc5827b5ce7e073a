//! A client of NFSv3 that locks ranges of the same files as others, by NLM.
//!
//! It has no lease: what it holds it holds until it gives it up, or restarts: then it tells the server so, by
//! NSM. After a loss of the server's state it takes its locks again while only that is possible, and must
//! get them. That the server has started it knows at once.
//!
//! Some locks it waits for, if others have them: the server calls it when it has them. It asks again
//! now and then, or gives up, which the call may cross. Of what it does not hold nor ask for nothing may be left
//! in the server ([`crate::leftovers`]).

use steadfast_wire::nlm::{NlmStat, PROGRAM, v4};
use steadfast_wire::nsm::{self, StateChange};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

use crate::Checked;
use crate::client::{Client, Context, Then};
use crate::held::Lock;
use crate::message::{Request, encoded, unreadable};

/// Blocks of a file that are locked.
const BLOCKS: u64 = 12;
/// For so long after a start that follows a loss only what was held may be locked, in ms.
const GRACE_MS: u64 = 90_000;
/// A client without a lease counts on its locks for ever.
const FOR_EVER_MS: u64 = u64::MAX / 2;
const LOCK: u32 = 2;
const CANCEL: u32 = 3;
const UNLOCK: u32 = 4;
const NOTIFY: u32 = 6;
/// Who waits asks again after so long, in ms.
const ASK_AGAIN_MS: u64 = 30_000;

#[derive(Clone, Debug)]
enum Call {
    Lock(Lock),
    Reclaim(Lock),
    Unlock(Lock),
    /// A lock that it waits for.
    Wait(Lock),
    /// It does not wait any more.
    Cancel(Lock),
    /// The host has restarted.
    Notify,
}

impl Call {
    fn lock(&self) -> Option<&Lock> {
        match self {
            Self::Lock(lock)
            | Self::Reclaim(lock)
            | Self::Unlock(lock)
            | Self::Wait(lock)
            | Self::Cancel(lock) => Some(lock),
            Self::Notify => None,
        }
    }
}

#[derive(Default)]
struct Worker {
    call: Option<Call>,
    next: Option<Call>,
    to_reclaim: Vec<Lock>,
    /// What it waits for, and when it asked last.
    waits: Option<(Lock, u64)>,
    /// It was called that it has the lock, before it was told that it waits.
    was_called: bool,
}

/// The client.
pub(crate) struct HostClient {
    number: u64,
    files: Vec<Vec<u8>>,
    workers: Vec<Worker>,
    /// The start after a loss that it knows of.
    found_lost_ms: u64,
    /// Its NSM's state number: odd while it is up.
    state: u32,
    /// It has restarted, and the server has not heard so.
    is_telling: bool,
}

impl HostClient {
    /// A client that locks these files.
    pub(crate) fn new(number: u64, workers: usize, files: Vec<Vec<u8>>) -> Self {
        let workers = std::iter::repeat_with(Worker::default).take(workers).collect();
        Self { number, files, workers, found_lost_ms: 0, state: 1, is_telling: false }
    }

    fn choose(&self, index: usize, cx: &mut Context<'_>) -> Call {
        let (client, owner) = (self.number, index as u64);
        let held: Vec<Lock> = cx.held.of(client, owner).cloned().collect();
        let random = &mut *cx.random;
        match held.get(random.below(held.len() as u64) as usize) {
            Some(held) if random.chance(450) => Call::Unlock(held.clone()),
            _ => {
                let (file, first) = (random.below(self.files.len() as u64), random.below(BLOCKS));
                let (end, is_write) = (first + random.between(1, 4), random.chance(600));
                let lock = Lock { client, owner, file, first, end, is_write };
                match random.below(10) {
                    0 => Call::Unlock(lock),
                    1..6 => Call::Lock(lock),
                    _ => Call::Wait(lock),
                }
            }
        }
    }

    fn request(&self, call: &Call) -> Request {
        let name = format!("host {}", self.number);
        let (version, what) = (4, format!("{call:?}"));
        let Some(lock) = call.lock() else {
            let arguments = encoded(&StateChange { mon_name: name.as_bytes(), state: self.state });
            let (program, version, procedure) = (nsm::PROGRAM, 1, NOTIFY);
            return Request { program, version, procedure, arguments, what };
        };
        let owner = lock.owner.to_be_bytes();
        let wire = v4::Lock {
            caller_name: name.as_bytes(),
            fh: self.files.get(lock.file as usize).map_or(&[], Vec::as_slice),
            oh: &owner,
            svid: lock.owner as u32,
            offset: lock.first,
            length: lock.end - lock.first,
        };
        let cookie = &owner;
        let (exclusive, state) = (lock.is_write, self.state);
        let lock = wire;
        let (procedure, arguments) = match call {
            Call::Unlock(_) => (UNLOCK, encoded(&v4::UnlockArgs { cookie, lock })),
            Call::Cancel(_) => {
                let block = true;
                (CANCEL, encoded(&v4::CancelArgs { cookie, block, exclusive, lock }))
            }
            _ => {
                let block = matches!(call, Call::Wait(_));
                let reclaim = matches!(call, Call::Reclaim(_));
                (LOCK, encoded(&v4::LockArgs { cookie, block, exclusive, lock, reclaim, state }))
            }
        };
        Request { program: PROGRAM, version, procedure, arguments, what }
    }
}

impl Client for HostClient {
    fn absent_max_ms(&self) -> u64 {
        // Less than the grace period, or its locks are others' without its knowing.
        30_000
    }

    fn workers(&self) -> usize {
        self.workers.len()
    }

    fn think(&mut self, index: usize, cx: &mut Context<'_>) -> Checked<Option<Request>> {
        cx.held.renew(self.number, FOR_EVER_MS, cx.now_ms)?;
        if cx.found_lost_ms != self.found_lost_ms {
            self.found_lost_ms = cx.found_lost_ms;
            for (owner, worker) in self.workers.iter_mut().enumerate() {
                worker.to_reclaim = cx.held.of(self.number, owner as u64).cloned().collect();
            }
        }
        if self.is_telling && index != 0 {
            return Ok(None);
        }
        let worker = self.workers.get_mut(index).ok_or("no such worker")?;
        let call = match (worker.to_reclaim.pop(), worker.next.take()) {
            _ if self.is_telling => Call::Notify,
            (Some(lock), next) => {
                worker.next = next;
                Call::Reclaim(lock)
            }
            (None, Some(call)) => call,
            (None, None) if let Some((lock, asked_ms)) = &worker.waits => {
                let lock = lock.clone();
                if cx.random.chance(20) {
                    worker.waits = None;
                    Call::Cancel(lock)
                } else if cx.now_ms > asked_ms + ASK_AGAIN_MS {
                    Call::Wait(lock)
                } else {
                    return Ok(None);
                }
            }
            (None, None) => self.choose(index, cx),
        };
        match &call {
            Call::Unlock(lock) => cx.held.unlock(lock),
            Call::Lock(lock) | Call::Wait(lock) => cx.held.asks(lock),
            Call::Reclaim(_) | Call::Cancel(_) | Call::Notify => {}
        }
        if let Some(worker) = self.workers.get_mut(index) {
            worker.was_called = false;
        }
        cx.held.claim(self.number, index as u64, call.lock().cloned(), cx.now_ms);
        let request = self.request(&call);
        if let Some(worker) = self.workers.get_mut(index) {
            worker.call = Some(call);
        }
        Ok(Some(request))
    }

    fn granted(&mut self, arguments: &[u8], cx: &mut Context<'_>) -> Checked<Option<Vec<u8>>> {
        let stat = self.take_grant(arguments, cx)?;
        let mut result = Vec::new();
        v4::Res { cookie: b"", stat }.encode(&mut Writer::new(&mut result));
        Ok(Some(result))
    }

    fn reply(&mut self, index: usize, results: &[u8], cx: &mut Context<'_>) -> Checked<Then> {
        let worker = self.workers.get_mut(index).ok_or("no such worker")?;
        let call = worker.call.take().ok_or("a reply to no call")?;
        if let Call::Notify = call {
            self.is_telling = false;
            cx.held.tells(self.number, false, cx.now_ms);
            return Ok(Then { has_told: true, ..Then::after(1) });
        }
        if cx.random.chance(2) {
            return Ok(self.restart(cx));
        }
        let told = v4::Res::decode(&mut Reader::new(results)).map_err(unreadable)?;
        match (&call, told.stat) {
            (Call::Lock(lock), NlmStat::Granted) => cx.held.lock(cx.now_ms, lock.clone())?,
            (Call::Reclaim(lock), NlmStat::Granted) => cx.held.reclaim(cx.now_ms, lock.clone())?,
            (Call::Wait(lock), NlmStat::Granted) => {
                worker.waits = None;
                cx.held.lock(cx.now_ms, lock.clone())?;
            }
            (Call::Wait(lock), NlmStat::Blocked) => {
                cx.held.denied(lock, cx.sent_ms)?;
                worker.waits = (!worker.was_called).then(|| (lock.clone(), cx.now_ms));
            }
            // The server does not know that it waits: it may have the lock, and gives it up, as Linux does.
            (Call::Cancel(lock), NlmStat::Denied) => {
                worker.next = Some(Call::Unlock(lock.clone()));
                cx.held.claim(self.number, index as u64, Some(lock.clone()), cx.now_ms);
                return Ok(Then::after(cx.random.between(1, 120)));
            }
            (Call::Lock(lock), NlmStat::Denied) => cx.held.denied(lock, cx.sent_ms)?,
            (Call::Cancel(_) | Call::Unlock(_), NlmStat::Granted) => {}
            (
                Call::Lock(_) | Call::Unlock(_) | Call::Wait(_) | Call::Cancel(_),
                NlmStat::DeniedGracePeriod,
            ) => {
                worker.waits = None;
                worker.next = Some(call);
                // A repetition of a lock that was given up since would be a lock of nobody.
                return Ok(Then { purges: true, ..Then::after(cx.random.between(500, 5000)) });
            }
            (Call::Reclaim(_), _) if cx.now_ms >= cx.found_lost_ms + GRACE_MS => {
                return Err("a client was away for longer than is simulated".into());
            }
            (call, stat) => {
                return Err(format!("{call:?} of client {} got {stat:?}", self.number));
            }
        }
        let waits = worker.waits.as_ref().map(|(lock, _)| lock.clone());
        cx.held.claim(self.number, index as u64, waits, cx.now_ms);
        Ok(Then::after(cx.random.between(1, 120)))
    }
}

impl HostClient {
    /// The host restarts: it has nothing any more, and nothing of it comes any more.
    fn restart(&mut self, cx: &mut Context<'_>) -> Then {
        self.state += 2;
        self.is_telling = true;
        self.workers.fill_with(Worker::default);
        cx.held.take(self.number, cx.now_ms);
        cx.held.restarts += 1;
        cx.held.tells(self.number, true, cx.now_ms);
        Then { purges: true, forgets: true, ..Then::after(cx.random.between(1, 3_000)) }
    }

    /// The server says that the host has a lock that it waits for. What it answers.
    fn take_grant(&mut self, arguments: &[u8], cx: &mut Context<'_>) -> Checked<NlmStat> {
        let told = v4::TestArgs::decode(&mut Reader::new(arguments)).map_err(unreadable)?;
        let wire = told.lock;
        let file = self.files.iter().position(|handle| handle == wire.fh);
        let (owner, file) = (u64::from(wire.svid), file.ok_or("a grant of no file")? as u64);
        let (first, end) = (wire.offset, wire.offset + wire.length);
        let lock = Lock { client: self.number, owner, file, first, end, is_write: told.exclusive };
        let Some(worker) = self.workers.get_mut(owner as usize) else {
            return Ok(NlmStat::Denied);
        };
        // Also if it is to ask once more, since the server had no time.
        let mut calls = worker.call.iter().chain(&worker.next);
        let asks = calls.any(|call| matches!(call, Call::Wait(asked) if *asked == lock));
        let waits = worker.waits.as_ref().is_some_and(|(waited, _)| *waited == lock);
        if asks || waits {
            (worker.waits, worker.was_called) = (None, true);
            cx.held.grants_by_call += 1;
            cx.held.lock(cx.now_ms, lock)?;
            if waits {
                cx.held.claim(self.number, owner, None, cx.now_ms);
            }
            return Ok(NlmStat::Granted);
        }
        // As Linux: what it has taken already it does not wait for.
        Ok(NlmStat::Denied)
    }
}
