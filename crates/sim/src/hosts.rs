//! A client of NFSv3 that locks ranges of the same files as others, by NLM.
//!
//! It has no lease: what it holds it holds until it gives it up. After a loss of the server's state it
//! takes its locks again while only that is possible, and must get them. That the server has started it
//! knows at once: NSM is not simulated.

use steadfast_wire::nlm::{NlmStat, PROGRAM, v4};
use steadfast_xdr::{Decode, Reader};

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
const UNLOCK: u32 = 4;

#[derive(Clone, Debug)]
enum Call {
    Lock(Lock),
    Reclaim(Lock),
    Unlock(Lock),
}

#[derive(Default)]
struct Worker {
    call: Option<Call>,
    next: Option<Call>,
    to_reclaim: Vec<Lock>,
}

/// The client.
pub(crate) struct HostClient {
    number: u64,
    files: Vec<Vec<u8>>,
    workers: Vec<Worker>,
    /// The start after a loss that it knows of.
    found_lost_ms: u64,
}

impl HostClient {
    /// A client that locks these files.
    pub(crate) fn new(number: u64, workers: usize, files: Vec<Vec<u8>>) -> Self {
        let workers = std::iter::repeat_with(Worker::default).take(workers).collect();
        Self { number, files, workers, found_lost_ms: 0 }
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
                if random.chance(100) { Call::Unlock(lock) } else { Call::Lock(lock) }
            }
        }
    }

    fn request(&self, call: &Call) -> Request {
        let (Call::Lock(lock) | Call::Reclaim(lock) | Call::Unlock(lock)) = call;
        let name = format!("host {}", self.number);
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
        let (procedure, arguments) = if let Call::Unlock(_) = call {
            (UNLOCK, encoded(&v4::UnlockArgs { cookie, lock: wire }))
        } else {
            let (block, exclusive, state) = (false, lock.is_write, 1);
            let reclaim = matches!(call, Call::Reclaim(_));
            let lock = wire;
            (LOCK, encoded(&v4::LockArgs { cookie, block, exclusive, lock, reclaim, state }))
        };
        Request { program: PROGRAM, version: 4, procedure, arguments, what: format!("{call:?}") }
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
        let worker = self.workers.get_mut(index).ok_or("no such worker")?;
        let call = match (worker.to_reclaim.pop(), worker.next.take()) {
            (Some(lock), next) => {
                worker.next = next;
                Call::Reclaim(lock)
            }
            (None, Some(call)) => call,
            (None, None) => self.choose(index, cx),
        };
        match &call {
            Call::Unlock(lock) => cx.held.unlock(lock),
            Call::Lock(lock) => cx.held.asks(lock),
            Call::Reclaim(_) => {}
        }
        let request = self.request(&call);
        if let Some(worker) = self.workers.get_mut(index) {
            worker.call = Some(call);
        }
        Ok(Some(request))
    }

    fn reply(&mut self, index: usize, results: &[u8], cx: &mut Context<'_>) -> Checked<Then> {
        let worker = self.workers.get_mut(index).ok_or("no such worker")?;
        let call = worker.call.take().ok_or("a reply to no call")?;
        let told = v4::Res::decode(&mut Reader::new(results)).map_err(unreadable)?;
        match (&call, told.stat) {
            (Call::Lock(lock), NlmStat::Granted) => cx.held.lock(cx.now_ms, lock.clone())?,
            (Call::Reclaim(lock), NlmStat::Granted) => cx.held.reclaim(cx.now_ms, lock.clone())?,
            (Call::Lock(_), NlmStat::Denied) | (Call::Unlock(_), NlmStat::Granted) => {}
            (Call::Lock(_) | Call::Unlock(_), NlmStat::DeniedGracePeriod) => {
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
        Ok(Then::after(cx.random.between(1, 120)))
    }
}
