//! What a client does when it or the server has lost the connection, the session, or all state
//! (RFC 8881 §2.10.13, §8.4.2, §18.46.3).
//!
//! [`Lost4`] says what a failure means, [`SteadyClient4`] acts on it: it knows what it has open and locked,
//! and its requests are made again once that is reclaimed.

use std::time::{Duration, Instant};

use steadfast_wire::nfs4::{
    Lock4Args, LockOwner4, LockType4, Locker4, NfsStat4, Op4, OpenClaim4, StateId4,
};

use super::changing::Opening4;
use super::client::Nfs4Client;
use super::connect::establish4;
use super::session::ClientSettings;
use crate::call::Identity;
use crate::error::ClientError;
use crate::object::FileHandle;
use crate::transport::RpcTransport;

/// How long to wait before a server that says "later" is asked again.
const TRY_LATER: Duration = Duration::from_millis(20);
/// Most files that one client keeps open.
const HELD_MAX: usize = 1 << 20;
/// `OPEN_DELEGATE_NONE`.
const DELEGATE_NONE: u32 = 0;

type Outcome<T> = Result<T, ClientError>;

/// What is lost, as a failure tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost4 {
    /// The connection: the session goes on by another one.
    Connection,
    /// The session: the client makes another one, and has what it had.
    Session,
    /// The client: the server has lost all state, or has ended this client.
    Client,
    /// The stateid that the request had: others may have got what it was for.
    State,
}

impl Lost4 {
    /// What a failure tells; `None` if nothing is lost.
    pub fn of(error: &ClientError) -> Option<Self> {
        match error {
            ClientError::Io(_) | ClientError::Closed | ClientError::TimedOut { .. } => {
                Some(Self::Connection)
            }
            ClientError::NoFreeSlot => Some(Self::Session),
            _ => match error.status4()? {
                NfsStat4::BadSession | NfsStat4::DeadSession | NfsStat4::SeqMisordered => {
                    Some(Self::Session)
                }
                NfsStat4::StaleClientId | NfsStat4::StaleStateId => Some(Self::Client),
                NfsStat4::Expired | NfsStat4::AdminRevoked | NfsStat4::BadStateId => {
                    Some(Self::State)
                }
                _ => None,
            },
        }
    }
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock4 {
    /// Whose.
    pub owner: Vec<u8>,
    /// For reading or for writing.
    pub kind: LockType4,
    /// From where on, and how many bytes.
    pub range: (u64, u64),
    /// By which it is unlocked.
    pub stateid: StateId4,
}

/// A file that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held4 {
    /// The file.
    pub handle: FileHandle,
    /// The open.
    pub stateid: StateId4,
    /// What for.
    pub share_access: u32,
    /// What others may not do meanwhile.
    pub share_deny: u32,
    /// For whom.
    pub owner: Vec<u8>,
    /// What is locked by it.
    pub locks: Vec<HeldLock4>,
    /// The server has not given it back: others may have changed the file meanwhile.
    pub is_lost: bool,
}

/// What came of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered4 {
    /// New connections.
    pub connections: u64,
    /// New sessions.
    pub sessions: u64,
    /// Opens that were reclaimed.
    pub opens: u64,
    /// Locks that were reclaimed.
    pub locks: u64,
    /// Opens that were not given back, or not with all their locks.
    pub lost: u64,
}

/// A client that goes on after restarts of the server, as mounts do.
///
/// A request whose connection broke is sent again in its slot, so that the server executes it once. If
/// its session is lost too, nobody knows whether it was executed: it is made again.
pub struct SteadyClient4<T, C> {
    client: Nfs4Client<T>,
    identity: Identity,
    settings: ClientSettings,
    connect: C,
    held: Vec<Option<Held4>>,
    recovered: Recovered4,
    patience: Duration,
}

impl<T: RpcTransport, C: FnMut() -> Outcome<T>> SteadyClient4<T, C> {
    /// Connects. `patience`: how long a request may take with all that is recovered for it.
    ///
    /// # Errors
    /// As [`Nfs4Client::connect`].
    pub fn connect(
        mut connect: C,
        identity: Identity,
        settings: ClientSettings,
        patience: Duration,
    ) -> Outcome<Self> {
        let client = Nfs4Client::connect(connect()?, identity.clone(), &settings)?;
        let (held, recovered) = (Vec::new(), Recovered4::default());
        Ok(Self { client, identity, settings, connect, held, recovered, patience })
    }

    /// What was recovered so far.
    pub fn recovered(&self) -> Recovered4 {
        self.recovered
    }

    /// What is open under a number of [`SteadyClient4::open`]'s.
    pub fn held(&self, number: usize) -> Option<&Held4> {
        self.held.get(number)?.as_ref()
    }

    /// Makes a request, and again after whatever was lost is recovered. It gets the client and what is
    /// open under the number, if that is one of [`SteadyClient4::open`]'s.
    ///
    /// # Errors
    /// Those of the request that are no loss; any when patience ends; `NFS4ERR_EXPIRED` and the like
    /// if what is open was lost for good.
    pub fn perform<R>(
        &mut self,
        number: Option<usize>,
        mut request: impl FnMut(&mut Nfs4Client<T>, Option<&Held4>) -> Outcome<R>,
    ) -> Outcome<R> {
        let deadline = Instant::now() + self.patience;
        loop {
            let held = number.and_then(|number| self.held.get(number)?.as_ref());
            let error = match request(&mut self.client, held) {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            if Instant::now() >= deadline {
                return Err(error);
            }
            match Lost4::of(&error) {
                Some(Lost4::State) => return Err(error),
                Some(lost) => self.recover(lost, deadline)?,
                None if is_later(&error) => std::thread::sleep(TRY_LATER),
                None => return Err(error),
            }
        }
    }

    /// Opens; what is given back names the open from then on.
    ///
    /// # Errors
    /// As [`SteadyClient4::perform`].
    pub fn open(&mut self, object: &FileHandle, opening: &Opening4<'_>) -> Outcome<usize> {
        if self.held.len() >= HELD_MAX {
            return Err(ClientError::ListTooLong { procedure: "OPEN", max: HELD_MAX });
        }
        let opened = self.perform(None, |client, _| client.open(object, opening))?;
        let held = Held4 {
            handle: opened.handle,
            stateid: opened.stateid,
            share_access: opening.share_access,
            share_deny: opening.share_deny,
            owner: opening.owner.to_vec(),
            locks: Vec::new(),
            is_lost: false,
        };
        let free = self.held.iter().position(Option::is_none);
        let number = free.unwrap_or(self.held.len());
        if free.is_none() {
            self.held.push(None);
        }
        if let Some(place) = self.held.get_mut(number) {
            *place = Some(held);
        }
        Ok(number)
    }

    /// Closes; locks must be unlocked.
    ///
    /// # Errors
    /// As [`SteadyClient4::perform`].
    pub fn close(&mut self, number: usize) -> Outcome<()> {
        self.perform(Some(number), |client, held| match held {
            Some(held) => client.close(&held.handle, held.stateid),
            None => Ok(()),
        })?;
        if let Some(place) = self.held.get_mut(number) {
            *place = None;
        }
        Ok(())
    }

    /// Locks bytes for an owner that has no lock of this file yet.
    ///
    /// # Errors
    /// As [`SteadyClient4::perform`].
    pub fn lock(
        &mut self,
        number: usize,
        owner: &[u8],
        kind: LockType4,
        range: (u64, u64),
    ) -> Outcome<()> {
        let stateid = self.perform(Some(number), |client, held| {
            let Some(held) = held else { return Err(ClientError::NoFreeSlot) };
            client.lock_by(&held.handle, kind, range, first_lock(held.stateid, owner))
        })?;
        if let Some(Some(held)) = self.held.get_mut(number) {
            held.locks.push(HeldLock4 { owner: owner.to_vec(), kind, range, stateid });
        }
        Ok(())
    }

    /// Unlocks what an owner has locked.
    ///
    /// # Errors
    /// As [`SteadyClient4::perform`].
    pub fn unlock(&mut self, number: usize, owner: &[u8]) -> Outcome<()> {
        let of = |held: &Held4| held.locks.iter().position(|lock| lock.owner == owner);
        while let Some(place) = self.held(number).and_then(of) {
            // One request each: what is sent again must be what was sent.
            self.perform(Some(number), |client, held| {
                let Some(held) = held else { return Ok(()) };
                let Some(lock) = held.locks.get(place) else { return Ok(()) };
                client.unlock(&held.handle, lock.stateid, lock.range).map(drop)
            })?;
            if let Some(Some(held)) = self.held.get_mut(number) {
                held.locks.remove(place);
            }
        }
        Ok(())
    }

    /// Recovers what is lost, and whatever turns out to be lost on the way.
    fn recover(&mut self, mut lost: Lost4, deadline: Instant) -> Outcome<()> {
        loop {
            let error = match self.recover_once(lost) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if Instant::now() >= deadline {
                return Err(error);
            }
            match Lost4::of(&error) {
                Some(Lost4::State) => return Err(error),
                // What was lost before is lost still.
                Some(Lost4::Connection) => {
                    std::thread::sleep(TRY_LATER);
                    self.reconnect(lost == Lost4::Connection).or_else(|error| {
                        if Lost4::of(&error).is_some() { Ok(()) } else { Err(error) }
                    })?;
                }
                Some(worse) => lost = worse,
                None if is_later(&error) => std::thread::sleep(TRY_LATER),
                None => return Err(error),
            }
        }
    }

    fn recover_once(&mut self, lost: Lost4) -> Outcome<()> {
        if lost == Lost4::Connection {
            return self.reconnect(true);
        }
        let before = self.client.session.clientid;
        let session = establish4(&mut self.client.transport, &self.identity, &self.settings)?;
        let is_known = session.clientid == before && lost == Lost4::Session;
        self.client.session = session;
        self.client.unanswered = None;
        self.client.resumes = false;
        self.recovered.sessions += 1;
        if is_known {
            return Ok(());
        }
        for number in 0..self.held.len() {
            self.reclaim(number)?;
        }
        self.client.complete_reclaim()
    }

    /// Another connection, by which the request that got no reply is sent again.
    fn reconnect(&mut self, resumes: bool) -> Outcome<()> {
        let transport = (self.connect)()?;
        if resumes {
            self.client.resume(transport);
        } else {
            self.client.transport = transport;
        }
        self.recovered.connections += 1;
        Ok(())
    }

    /// Reclaims one open with its locks.
    fn reclaim(&mut self, number: usize) -> Outcome<()> {
        let Some(Some(held)) = self.held.get_mut(number) else { return Ok(()) };
        let opening = Opening4 {
            share_access: held.share_access,
            share_deny: held.share_deny,
            owner: &held.owner,
            ..Opening4::with_claim(OpenClaim4::Previous(DELEGATE_NONE))
        };
        match self.client.open(&held.handle, &opening) {
            Ok(opened) => held.stateid = opened.stateid,
            Err(error) if is_refused(&error) => {
                held.is_lost = true;
                held.locks.clear();
                self.recovered.lost += 1;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.recovered.opens += 1;
        let mut locks = std::mem::take(&mut held.locks);
        let mut has_lost = false;
        let (handle, open) = (held.handle.clone(), held.stateid);
        for lock in &mut locks {
            let (offset, length) = lock.range;
            let locker = first_lock(open, &lock.owner);
            let arguments =
                Lock4Args { locktype: lock.kind, reclaim: true, offset, length, locker };
            let locked = self.client.request(
                |compound| compound.put(&handle).op(Op4::Lock, &arguments),
                |reply| {
                    reply.done(Op4::PutFh)?;
                    reply.stateid(Op4::Lock)
                },
            );
            match locked {
                Ok(stateid) => {
                    lock.stateid = stateid;
                    self.recovered.locks += 1;
                }
                Err(error) if is_refused(&error) => has_lost = true,
                Err(error) => return Err(error),
            }
        }
        held.locks = locks;
        held.is_lost = has_lost;
        self.recovered.lost += u64::from(has_lost);
        Ok(())
    }
}

fn first_lock(open_stateid: StateId4, owner: &[u8]) -> Locker4<'_> {
    let lock_owner = LockOwner4 { clientid: 0, owner };
    Locker4::Open { open_seqid: 0, open_stateid, lock_seqid: 0, lock_owner }
}

/// Whether the server only says that the request is to be made again later.
fn is_later(error: &ClientError) -> bool {
    matches!(error.status4(), Some(NfsStat4::Delay | NfsStat4::Grace))
}

/// Whether the server does not give back what is reclaimed.
fn is_refused(error: &ClientError) -> bool {
    matches!(
        error.status4(),
        Some(
            NfsStat4::NoGrace
                | NfsStat4::ReclaimBad
                | NfsStat4::ReclaimConflict
                | NfsStat4::Stale
                | NfsStat4::FhExpired
                | NfsStat4::Denied
                | NfsStat4::ShareDenied
        )
    )
}
