//! The session of a mount, and requests by it (RFC 8881 §2.10).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use steadfast_client::nfs4::{
    COMPOUND, ClientSettings, Compound, CompoundReply, NfsStat4, Session4, Slot,
};
use steadfast_client::{AcceptedError, ClientError, Identity, Procedure, RpcTransport};
use steadfast_wire::nfs4::{Sequence4Args, Sequence4Result};

use super::held_locks::Holder4;
use super::opens::Opens;
use crate::options::TRANSFER_BYTES_MAX;
use crate::pool::Pool;
use crate::transport::{Caller, Link, Patience, Repeats};

/// Requests in flight at one time.
const SLOTS: u32 = 64;
/// Most operations of one request.
const OPERATIONS_MAX: u32 = 16;
/// Threads that close files.
const CLOSERS: usize = 8;
/// How soon a request is sent again that the server is busy with: at first, and at most.
const BUSY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// `SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED`, `…SOME…`, `SEQ4_STATUS_ADMIN_STATE_REVOKED` and
/// `SEQ4_STATUS_RECALLABLE_STATE_REVOKED`.
const STATE_REVOKED: u32 = 0x8 | 0x10 | 0x20 | 0x40;
/// `SEQ4_STATUS_RESTART_RECLAIM_NEEDED`.
const RECLAIM_NEEDED: u32 = 0x100;

pub(super) type Outcome<T> = Result<T, ClientError>;

/// A client of NFSv4, as the server knows it: one for each mount.
#[derive(Debug)]
pub(crate) struct Client4 {
    pub(super) link: Arc<Link>,
    pub(super) settings: ClientSettings,
    /// Who mounts: the session is theirs.
    pub(super) machine: Identity,
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
    /// For who waits for a slot: the keeper waits for the other one.
    pub(super) freed: Condvar,
    pub(super) opens: Opens,
    pub(super) closers: Pool,
    /// Whoever knows what is locked.
    pub(super) holder: Mutex<Option<Arc<dyn Holder4>>>,
    /// How often the server has lost, or may have lost, what was open: stateids of before are worth nothing.
    pub(super) epoch: AtomicU64,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) session: Option<Session4>,
    /// Sessions that the server may have still, and nobody uses.
    pub(super) left: Vec<[u8; 16]>,
    /// The server has said that it has lost what is open, since the session was made.
    pub(super) is_reclaim_needed: bool,
    /// The client's id, as the server has told it last.
    pub(super) clientid: Option<u64>,
    /// In which epoch what is open was reclaimed last.
    pub(super) reclaimed: u64,
    /// How many sessions there were.
    pub(super) number: u64,
    /// Requests may be sent by it: what is to be reclaimed is.
    pub(super) is_ready: bool,
    pub(super) is_closed: bool,
    /// The server has taken opens or locks away, and says so with each reply.
    pub(super) is_revoked: bool,
    /// When the last reply came: the server's lease runs from then.
    pub(super) last_reply: Instant,
    pub(super) lease: Duration,
}

impl State {
    /// Nobody uses the session any more; the server may have it.
    pub(super) fn leave_session(&mut self) {
        let session = self.session.take();
        self.left.extend(session.map(|session| session.slots.session()));
    }
}

/// A slot in the hands of a request.
#[derive(Debug)]
pub(super) struct Taken {
    slot: Slot,
    sequence: Sequence4Args,
    minor_version: u32,
    /// Of which session it is.
    number: u64,
    pub(super) epoch: u64,
}

/// What a request's reply says.
enum Reply<R> {
    Told(R),
    /// The session is lost, or the reply: it is to be sent anew.
    Lost,
}

impl Client4 {
    pub(super) fn new(link: Arc<Link>, machine: Identity, minor_version: u32) -> Outcome<Self> {
        let mut random = [0; 24];
        steadfast_sys::process::random_bytes(&mut random)?;
        let tail: [u8; 16] = random.last_chunk().copied().unwrap_or_default();
        let number = u128::from_be_bytes(tail);
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let owner = format!("steadfast mount {host} {number:032x}").into_bytes();
        let settings = ClientSettings {
            owner,
            verifier: random.first_chunk().copied().unwrap_or_default(),
            slots: SLOTS,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            operations_max: OPERATIONS_MAX,
            minor_version,
            ..ClientSettings::default()
        };
        let state = State {
            session: None,
            left: Vec::new(),
            is_reclaim_needed: false,
            clientid: None,
            reclaimed: 0,
            number: 0,
            is_ready: false,
            is_closed: false,
            is_revoked: false,
            last_reply: Instant::now(),
            lease: Duration::from_secs(90),
        };
        Ok(Self {
            link,
            settings,
            machine,
            state: Mutex::new(state),
            changed: Condvar::new(),
            freed: Condvar::new(),
            opens: Opens::default(),
            closers: Pool::new(CLOSERS),
            holder: Mutex::new(None),
            epoch: AtomicU64::new(0),
        })
    }

    /// The version, as `4.1`.
    pub(crate) fn version(&self) -> String {
        format!("4.{}", self.settings.minor_version)
    }

    /// The largest request, and the largest reply, in bytes.
    pub(super) fn bytes_max(&self) -> (u32, u32) {
        let state = self.state.lock();
        let fore = state.session.as_ref().map(|session| &session.fore);
        fore.map_or((TRANSFER_BYTES_MAX, TRANSFER_BYTES_MAX), |fore| {
            (fore.maxrequestsize, fore.maxresponsesize)
        })
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Whoever sends, with this patience.
    pub(super) fn caller(&self, patience: Patience) -> Caller {
        Caller {
            link: Arc::clone(&self.link),
            patience,
            losses: self.link.losses(),
            is_of_recovery: false,
            repeats: Repeats::default(),
        }
    }

    /// Waits for a session and a free slot of it; who recovers the session does not wait for that.
    pub(super) fn take(
        &self,
        patience: Patience,
        is_keeper: bool,
        since: Instant,
    ) -> Outcome<Taken> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed && !is_keeper || self.link.is_closed() {
                return Err(ClientError::Closed);
            }
            let number = state.number;
            let is_open = state.is_ready || is_keeper;
            if let Some(session) = state.session.as_mut().filter(|_| is_open)
                && let Some(slot) = session.slots.take()
            {
                // Whether the reply is to be kept is said later.
                let sequence = session.slots.arguments(&slot, false);
                let minor_version = session.minor_version;
                return Ok(Taken { slot, sequence, minor_version, number, epoch: self.epoch() });
            }
            if is_keeper && state.session.is_none() {
                return Err(ClientError::NoFreeSlot);
            }
            if self.freed.wait_for(&mut state, patience.nap()).timed_out()
                && let Some(error) = patience.end(since)
            {
                return Err(error);
            }
        }
    }

    /// Waits until what the server has lost is reclaimed.
    pub(super) fn await_session(&self, patience: Patience, since: Instant) -> Outcome<()> {
        let mut state = self.state.lock();
        while !state.is_ready {
            if state.is_closed || self.link.is_closed() {
                return Err(ClientError::Closed);
            }
            if self.changed.wait_for(&mut state, patience.nap()).timed_out()
                && let Some(error) = patience.end(since)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives a slot back; if the server has answered its request, the next one has the next number.
    pub(super) fn give_back(&self, taken: Taken, told: Option<&Sequence4Result>, is_over: bool) {
        let mut state = self.state.lock();
        if state.number != taken.number {
            return;
        }
        if let Some(told) = told {
            state.last_reply = Instant::now();
            state.is_revoked |= told.status_flags & STATE_REVOKED != 0;
            state.is_reclaim_needed |= told.status_flags & RECLAIM_NEEDED != 0;
            if state.is_reclaim_needed && state.is_ready {
                tracing::info!("the server has lost what is open, and asks for it");
                self.epoch.fetch_add(1, Ordering::AcqRel);
                state.is_ready = false;
            }
        }
        let Some(session) = state.session.as_mut() else { return };
        if let Some(told) = told {
            session.slots.heed(told);
        }
        let mut slot = taken.slot;
        if is_over {
            slot.advance();
        }
        session.slots.give_back(slot);
        let is_news = state.is_revoked || !state.is_ready;
        drop(state);
        self.freed.notify_one();
        if is_news {
            self.changed.notify_all();
        }
    }

    /// A session is lost; the keeper makes another one.
    pub(super) fn lose(&self, number: u64, why: &dyn std::fmt::Display) {
        let mut state = self.state.lock();
        if state.number == number && state.session.is_some() {
            tracing::info!(%why, "the session is lost: another one is made");
            state.leave_session();
            state.is_ready = false;
        }
        drop(state);
        self.wake_all();
    }

    /// Something has changed for whoever waits.
    pub(super) fn wake_all(&self) {
        self.changed.notify_all();
        self.freed.notify_all();
    }

    /// A request was given up, and may be executed at any time, or never. Its slot is taken by a request that does
    /// nothing: when the server has answered that, it does not execute the other one any more.
    fn leave(self: &Arc<Self>, taken: Taken, identity: Identity) {
        let client = Arc::clone(self);
        let number = taken.number;
        let left = thread::Builder::new().name("nfs-slot".to_owned()).spawn(move || {
            client.settle(taken, &identity);
        });
        if let Err(error) = left {
            tracing::warn!(%error, "cannot start a thread");
            self.lose(number, &"a slot cannot be settled");
        }
    }

    fn settle(&self, taken: Taken, identity: &Identity) {
        let compound = Compound::new().of_minor_version(taken.minor_version);
        let arguments = compound.sequence(&taken.sequence).arguments();
        let mut pause = BUSY.0;
        loop {
            let mut caller = self.caller(Patience::default());
            let procedure = Procedure { name: "SEQUENCE", ..COMPOUND };
            let results = match caller.call(procedure, identity, &arguments) {
                Ok(results) => results,
                Err(ClientError::Accepted(_) | ClientError::Denied(_)) => {
                    return self.lose(taken.number, &"the server refuses a request");
                }
                Err(error) => return self.lose(taken.number, &error),
            };
            match CompoundReply::parse(&results).and_then(|mut reply| reply.sequence()) {
                Ok(told) => return self.give_back(taken, Some(&told), true),
                Err(error) => match error.status4() {
                    Some(NfsStat4::Delay) => {}
                    Some(NfsStat4::SeqFalseRetry | NfsStat4::RetryUncachedRep) => {
                        return self.give_back(taken, None, true);
                    }
                    _ => return self.lose(taken.number, &error),
                },
            }
            thread::sleep(pause);
            pause = (pause * 2).min(BUSY.1);
        }
    }
}

/// How a request is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// As what it is counted.
    name: &'static str,
    /// The server keeps its reply: it is not to be executed twice.
    is_kept: bool,
}

impl Manner {
    pub(super) fn asking(name: &'static str) -> Self {
        Self { name, is_kept: false }
    }

    pub(super) fn changing(name: &'static str) -> Self {
        Self { name, is_kept: true }
    }
}

/// One user's requests.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(super) client: Arc<Client4>,
    pub(super) caller: Caller,
    pub(super) identity: Identity,
    /// They are part of a recovery: they wait for none, and fail when the session is lost.
    pub(super) is_keeper: bool,
}

impl Requests {
    /// Sends a request: SEQUENCE, then what `build` appends. `read` reads the results after that of SEQUENCE, all of
    /// them. Returns what that returns, with the epoch in which the request was executed.
    ///
    /// # Errors
    /// Those of the call and of its operations.
    pub(super) fn request<R>(
        &mut self,
        manner: Manner,
        build: impl Fn(Compound) -> Compound,
        read: impl Fn(&mut CompoundReply<'_>) -> Outcome<R>,
    ) -> Outcome<(R, u64)> {
        let since = Instant::now();
        loop {
            let mut taken = self.client.take(self.caller.patience, self.is_keeper, since)?;
            let epoch = taken.epoch;
            taken.sequence.cachethis = manner.is_kept;
            match self.send(manner.name, taken, since, &build, &read)? {
                Reply::Told(told) => return Ok((told, epoch)),
                Reply::Lost if self.is_keeper => return Err(ClientError::NoFreeSlot),
                Reply::Lost => {}
            }
        }
    }

    /// Sends a request in a slot until it is answered.
    fn send<R>(
        &mut self,
        name: &'static str,
        taken: Taken,
        since: Instant,
        build: &impl Fn(Compound) -> Compound,
        read: &impl Fn(&mut CompoundReply<'_>) -> Outcome<R>,
    ) -> Outcome<Reply<R>> {
        let start = Compound::new().of_minor_version(taken.minor_version);
        let arguments = build(start.sequence(&taken.sequence)).arguments();
        let repeats = Repeats::default();
        let mut pause = BUSY.0;
        loop {
            let mut caller = Caller { repeats: repeats.clone(), ..self.caller.clone() };
            let procedure = Procedure { name, ..COMPOUND };
            let results = match caller.call(procedure, &self.identity, &arguments) {
                Ok(results) => results,
                Err(error @ (ClientError::Accepted(_) | ClientError::Denied(_))) => {
                    let is_unsure =
                        matches!(error, ClientError::Accepted(AcceptedError::SystemError));
                    self.refused(taken, is_unsure || repeats.is_noted());
                    return Err(error);
                }
                Err(error) => {
                    self.refused(taken, true);
                    return Err(error);
                }
            };
            let reply = CompoundReply::parse(&results);
            let told = reply.and_then(|mut reply| reply.sequence().map(|told| (reply, told)));
            let (mut reply, told) = match told {
                Ok(told) => told,
                Err(error) if error.status4() == Some(NfsStat4::Delay) => {
                    // It may be the answer to a second sending while the first one is executed: the slot is not
                    // another request's before that.
                    if let Some(end) = self.caller.patience.end(since) {
                        self.caller.repeats.note();
                        self.client.leave(taken, self.identity.clone());
                        return Err(end);
                    }
                    thread::sleep(self.caller.patience.nap().min(pause));
                    pause = (pause * 2).min(BUSY.1);
                    repeats.note();
                    continue;
                }
                Err(error) => return self.without_session(taken, &repeats, error),
            };
            let sent = &taken.sequence;
            if (told.sessionid, told.slotid, told.sequenceid)
                != (sent.sessionid, sent.slotid, sent.sequenceid)
            {
                self.client.lose(taken.number, &"a reply is of another request");
                self.caller.repeats.note();
                return Ok(Reply::Lost);
            }
            self.client.give_back(taken, Some(&told), true);
            if repeats.is_noted() {
                // The slot may have the reply to the first sending. But a server that was restarted may have kept the
                // session without its replies.
                self.caller.repeats.note();
            }
            let result = read(&mut reply)?;
            reply.end()?;
            return Ok(Reply::Told(result));
        }
    }

    /// SEQUENCE has failed.
    fn without_session<R>(
        &mut self,
        taken: Taken,
        repeats: &Repeats,
        error: ClientError,
    ) -> Outcome<Reply<R>> {
        use NfsStat4::{
            BadHighSlot, BadSession, BadSlot, ConnNotBoundToSession, DeadSession, Expired,
            RetryUncachedRep, SeqFalseRetry, SeqMisordered, StaleClientId,
        };
        match error.status4() {
            Some(RetryUncachedRep) => {
                // It was executed, and what came of it is not known.
                self.caller.repeats.note();
                self.client.give_back(taken, None, true);
                Ok(Reply::Lost)
            }
            Some(
                BadHighSlot
                | BadSession
                | BadSlot
                | ConnNotBoundToSession
                | DeadSession
                | Expired
                | SeqFalseRetry
                | SeqMisordered
                | StaleClientId,
            ) => {
                if repeats.is_noted() {
                    self.caller.repeats.note();
                }
                self.client.lose(taken.number, &error);
                Ok(Reply::Lost)
            }
            status => {
                self.refused(taken, status.is_none() || repeats.is_noted());
                Err(error)
            }
        }
    }

    /// A request was refused whole, or given up. If a sending of it may have been executed, its slot is not another
    /// request's before that is settled: the server would answer that one with the reply to this one.
    fn refused(&self, taken: Taken, is_unsure: bool) {
        if is_unsure {
            self.caller.repeats.note();
            self.client.leave(taken, self.identity.clone());
        } else {
            self.client.give_back(taken, None, false);
        }
    }
}
