//! What is open at the server: each user has one open of a file, however often it is open here.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use steadfast_client::nfs4::{
    ACCESS_BOTH, ACCESS_READ, ACCESS_WRITE, ANONYMOUS, NfsStat4, Opening4, WANT_NO_DELEGATION,
};
use steadfast_client::{ClientError, FileHandle, Identity};
use steadfast_wire::nfs4::{
    Close4Args, DelegReturn4Args, FreeStateId4Args, Op4, OpenClaim4, OpenDelegation4, StateId4,
};

use super::held_locks::Locks4;
use super::session::{Client4, Manner, Outcome, Requests};
use crate::transport::Patience;

/// Who makes a file opens it within this time, or never.
const CLAIMED_WITHIN: Duration = Duration::from_secs(5);

/// A file that a user has open.
#[derive(Debug)]
pub(super) struct Open4 {
    pub(super) handle: FileHandle,
    pub(super) identity: Identity,
    /// By which the server knows the user.
    pub(super) owner: Vec<u8>,
    /// Held by who opens or closes it at the server.
    turn: Mutex<()>,
    held: Mutex<Held>,
    /// What is locked by it.
    pub(super) locks: Locks4,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// With the epoch that it is of.
    stateid: Option<(StateId4, u64)>,
    /// What the server has it open for.
    access: u32,
    /// What it is wanted for: what is open here, or was last while its data is on the way.
    wanted: u32,
    /// How often it is open here, and of that for reading and for writing.
    count: u32,
    readers: u32,
    writers: u32,
    /// It is closed after a while, unless somebody opens it: its maker, or nobody.
    is_unclaimed: bool,
}

impl Held {
    /// One more has it open for this.
    fn enter(&mut self, access: u32) {
        self.count += 1;
        self.readers += access & ACCESS_READ;
        self.writers += (access & ACCESS_WRITE) / ACCESS_WRITE;
        self.wanted |= access;
        self.is_unclaimed = false;
    }

    /// One less; true if that was the last one.
    fn leave(&mut self, access: u32) -> bool {
        self.count = self.count.saturating_sub(1);
        self.readers = self.readers.saturating_sub(access & ACCESS_READ);
        self.writers = self.writers.saturating_sub((access & ACCESS_WRITE) / ACCESS_WRITE);
        if self.count > 0 {
            let reads = if self.readers > 0 { ACCESS_READ } else { 0 };
            self.wanted = reads | if self.writers > 0 { ACCESS_WRITE } else { 0 };
        }
        self.count == 0
    }

    fn valid(&self, epoch: u64, access: u32) -> Option<StateId4> {
        let (stateid, of) = self.stateid?;
        (of == epoch && self.access & access == access).then_some(stateid)
    }
}

type Key = (FileHandle, Vec<u8>);

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Opens {
    all: Mutex<HashMap<Key, Arc<Open4>>>,
    /// What was made, when, and is perhaps opened by nobody.
    unclaimed: Mutex<VecDeque<(Instant, Arc<Open4>)>>,
}

/// A user as an open-owner.
pub(super) fn owner_of(identity: &Identity) -> Vec<u8> {
    match identity {
        Identity::Sys { uid, gid, gids } => {
            let numbers: Vec<String> =
                [uid, gid].into_iter().chain(gids).map(ToString::to_string).collect();
            numbers.join("/").into_bytes()
        }
        Identity::None | Identity::Raw { .. } => b"nobody".to_vec(),
    }
}

impl Opens {
    pub(super) fn find(&self, handle: &FileHandle, identity: &Identity) -> Option<Arc<Open4>> {
        self.all.lock().get(&(handle.clone(), owner_of(identity))).cloned()
    }

    /// The user's open of a file, after a change of it: nobody forgets it before that.
    fn enter(
        &self,
        handle: &FileHandle,
        identity: &Identity,
        change: impl FnOnce(&mut Held),
    ) -> Arc<Open4> {
        let owner = owner_of(identity);
        let mut all = self.all.lock();
        let open = all.entry((handle.clone(), owner.clone())).or_insert_with(|| {
            Arc::new(Open4 {
                handle: handle.clone(),
                identity: identity.clone(),
                owner,
                turn: Mutex::default(),
                held: Mutex::default(),
                locks: Locks4::default(),
            })
        });
        change(&mut open.held.lock());
        Arc::clone(open)
    }

    /// Counts one less; true if that was the last one.
    fn leave(&self, open: &Open4, access: u32) -> bool {
        let _all = self.all.lock();
        open.held.lock().leave(access)
    }

    /// Forgets what nobody has open; another open of the same file by the same user stays.
    fn forget(&self, open: &Arc<Open4>) {
        let mut all = self.all.lock();
        let held = *open.held.lock();
        if held.count == 0 && held.stateid.is_none() {
            let key = (open.handle.clone(), open.owner.clone());
            if all.get(&key).is_some_and(|known| Arc::ptr_eq(known, open)) {
                all.remove(&key);
            }
        }
    }

    /// As if what was made had been made a while ago.
    #[cfg(test)]
    pub(super) fn age_unclaimed(&self) {
        for (since, _) in &mut *self.unclaimed.lock() {
            *since -= CLAIMED_WITHIN;
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Open4>> {
        self.all.lock().values().cloned().collect()
    }
}

impl Open4 {
    /// The server has given it back after it had lost it; or not, and it is opened anew when it is used.
    pub(super) fn reclaimed(&self, stateid: Option<StateId4>, epoch: u64) {
        self.held.lock().stateid = stateid.map(|stateid| (stateid, epoch));
    }

    /// The stateid, and what it was open for, if the server has it open in this epoch or before.
    pub(super) fn stateid(&self) -> Option<(StateId4, u64)> {
        self.held.lock().stateid
    }

    /// What a server that has lost it is told that it was open for.
    pub(super) fn access(&self) -> u32 {
        self.held.lock().access
    }

    /// Nobody has it open any more.
    pub(super) fn abandon(&self) {
        self.held.lock().count = 0;
    }

    /// The server does not know this stateid any more; whether it is that of now. One of an earlier epoch is
    /// reclaimed.
    pub(super) fn invalidate(&self, stateid: StateId4, epoch: u64) -> bool {
        let mut held = self.held.lock();
        let is_own =
            held.stateid.is_some_and(|(own, of)| own.other == stateid.other && of == epoch);
        if is_own {
            held.stateid = None;
        }
        is_own
    }

    /// Waits for the turn.
    fn turn(&self, patience: Patience) -> Outcome<MutexGuard<'_, ()>> {
        let since = Instant::now();
        loop {
            if let Some(turn) = self.turn.try_lock_for(patience.nap()) {
                return Ok(turn);
            }
            if let Some(error) = patience.end(since) {
                return Err(error);
            }
        }
    }
}

/// Whether the server does not know a stateid, or has taken it away.
pub(super) fn is_of_stateid(error: &ClientError) -> bool {
    use NfsStat4::{
        AdminRevoked, BadStateId, DelegRevoked, Expired, OldStateId, OpenMode, StaleStateId,
    };
    matches!(
        error.status4(),
        Some(
            AdminRevoked
                | BadStateId
                | DelegRevoked
                | Expired
                | OldStateId
                | OpenMode
                | StaleStateId
        )
    )
}

/// Whether the server has taken a stateid away, and keeps it until it is told that this was seen.
fn is_revocation(error: &ClientError) -> bool {
    use NfsStat4::{AdminRevoked, DelegRevoked, Expired};
    matches!(error.status4(), Some(AdminRevoked | DelegRevoked | Expired))
}

/// What a file is opened for.
pub(super) fn access_of(reads: bool, writes: bool) -> u32 {
    let reads = if reads { ACCESS_READ } else { 0 };
    reads | if writes { ACCESS_WRITE } else { 0 }
}

/// A delegation that nobody has asked for.
pub(super) fn unasked_for(delegation: &OpenDelegation4<'_>) -> Option<StateId4> {
    match delegation {
        OpenDelegation4::Read { stateid, .. } | OpenDelegation4::Write { stateid, .. } => {
            Some(*stateid)
        }
        _ => None,
    }
}

impl Requests {
    /// Has a file open for this user for what is asked, until [`Client4::close`].
    ///
    /// # Errors
    /// When the server does not open it.
    pub(super) fn open(&mut self, handle: &FileHandle, access: u32) -> Outcome<()> {
        let client = Arc::clone(&self.client);
        let open = client.opens.enter(handle, &self.identity, |held| held.enter(access));
        let opened = self.open_for(&open, access).map(drop);
        if opened.is_err() && client.opens.leave(&open, access) {
            client.close_later(open);
        }
        opened
    }

    /// The stateid of a file that is open at the server for what is asked, which is opened if it is not.
    pub(super) fn open_for(&mut self, open: &Arc<Open4>, access: u32) -> Outcome<StateId4> {
        let _turn = open.turn(self.caller.patience)?;
        let wanted = {
            let held = open.held.lock();
            if let Some(stateid) = held.valid(self.client.epoch(), access) {
                return Ok(stateid);
            }
            held.wanted | access
        };
        let share_access = wanted | WANT_NO_DELEGATION;
        let claim = Opening4::with_claim(OpenClaim4::Fh);
        let arguments = Opening4 { share_access, owner: &open.owner, ..claim }.arguments();
        let ((stateid, delegation), epoch) = self.request(
            Manner::changing("OPEN"),
            |compound| compound.put(&open.handle).op(Op4::Open, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                let opened = reply.open()?;
                Ok((opened.stateid, unasked_for(&opened.delegation)))
            },
        )?;
        {
            let mut held = open.held.lock();
            (held.stateid, held.access) = (Some((stateid, epoch)), wanted);
        }
        self.return_delegation(&open.handle, delegation);
        Ok(stateid)
    }

    /// Nobody here heeds delegations.
    pub(super) fn return_delegation(&mut self, handle: &FileHandle, delegation: Option<StateId4>) {
        let Some(stateid) = delegation else { return };
        let arguments = DelegReturn4Args { stateid };
        let (client, patience) = (Arc::clone(&self.client), self.caller.patience);
        let returned = client.patiently(patience, || {
            self.request(
                Manner::changing("DELEGRETURN"),
                |compound| compound.put(handle).op(Op4::DelegReturn, &arguments),
                |reply| {
                    reply.done(Op4::PutFh)?;
                    reply.done(Op4::DelegReturn)
                },
            )
        });
        if let Err(error) = returned {
            tracing::debug!(%error, "a delegation was not returned");
        }
    }

    /// The server need not keep what it has taken away any more: that was seen.
    pub(super) fn free(&mut self, stateid: StateId4) {
        let arguments = FreeStateId4Args { stateid };
        let (client, patience) = (Arc::clone(&self.client), self.caller.patience);
        let freed = client.patiently(patience, || {
            self.request(
                Manner::changing("FREE_STATEID"),
                |compound| compound.op(Op4::FreeStateId, &arguments),
                |reply| reply.done(Op4::FreeStateId),
            )
        });
        if let Err(error) = freed {
            tracing::debug!(%error, "a stateid was not freed");
        }
    }

    /// A file was made and is open by that, until its maker opens it here or does not.
    pub(super) fn made_open(&mut self, handle: &FileHandle, stateid: StateId4, epoch: u64) {
        let open = self.client.opens.enter(handle, &self.identity, |held| {
            (held.stateid, held.access) = (Some((stateid, epoch)), ACCESS_BOTH);
            held.is_unclaimed = held.count == 0;
        });
        self.client.opens.unclaimed.lock().push_back((Instant::now(), open));
        self.client.close_unclaimed();
    }

    /// Makes a request by the stateid of this user's open, or by the anonymous one if there is none. A stateid that
    /// the server does not know any more is got anew; if the file's mode does not let its user open it any more, the
    /// anonymous one is used too: by that a file's owner reads and writes whatever the mode is.
    pub(super) fn by_stateid<R>(
        &mut self,
        handle: &FileHandle,
        access: u32,
        request: impl Fn(&mut Self, StateId4) -> Outcome<R>,
    ) -> Outcome<R> {
        /// How often it is got anew.
        const TIMES: usize = 4;
        let mut times = 0;
        loop {
            let open = self.client.opens.find(handle, &self.identity);
            let epoch = self.client.epoch();
            let mut open = open.filter(|open| {
                let held = open.held.lock();
                held.wanted & access == access || held.valid(epoch, access).is_some()
            });
            let stateid = match open.clone() {
                Some(opened) => {
                    let known = opened.held.lock().valid(epoch, access);
                    match known.map_or_else(|| self.open_for(&opened, access), Ok) {
                        Err(error)
                            if matches!(
                                error.status4(),
                                Some(NfsStat4::Access | NfsStat4::Perm)
                            ) =>
                        {
                            tracing::debug!(%error, "the server does not open it anew");
                            open = None;
                            ANONYMOUS
                        }
                        stateid => stateid?,
                    }
                }
                None => ANONYMOUS,
            };
            // Whatever has changed it since, it is meant as it is now.
            let outcome = request(self, StateId4 { seqid: 0, ..stateid });
            let is_unknown = outcome.as_ref().err().is_some_and(is_of_stateid);
            let Some(open) = open.filter(|_| is_unknown && times < TIMES) else { return outcome };
            if let Err(error) = &outcome {
                tracing::info!(%error, "the server does not know what is open: it is opened anew");
            }
            self.client.lose_open(&open, stateid);
            if outcome.as_ref().err().is_some_and(is_revocation) {
                self.free(stateid);
            }
            times += 1;
        }
    }

    /// Closes at the server what nobody has open.
    fn close_at_server(&mut self, open: &Arc<Open4>) -> Outcome<()> {
        let _turn = open.turn(self.caller.patience)?;
        let (stateid, wanted, access) = {
            let mut held = open.held.lock();
            if held.count > 0 {
                return Ok(());
            }
            let (wanted, access) = (held.wanted, held.access);
            held.wanted = 0;
            held.access = 0;
            let stateid = held.stateid.take().filter(|(_, epoch)| *epoch == self.client.epoch());
            (stateid, wanted, access)
        };
        let Some((open_stateid, epoch)) = stateid else { return Ok(()) };
        let arguments = Close4Args { seqid: 0, open_stateid };
        let closed = self.request(
            Manner::changing("CLOSE"),
            |compound| compound.put(&open.handle).op(Op4::Close, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.stateid(Op4::Close).map(drop)
            },
        );
        match closed {
            // Locks end soon: the unlock is on its way.
            Err(error) if error.status4() == Some(NfsStat4::LocksHeld) => {
                let mut held = open.held.lock();
                held.stateid = Some((open_stateid, epoch));
                (held.wanted, held.access) = (held.wanted | wanted, access);
                held.is_unclaimed = held.count == 0;
                self.client.opens.unclaimed.lock().push_back((Instant::now(), Arc::clone(open)));
                Ok(())
            }
            Err(error) if error.status4() == Some(NfsStat4::Delay) => {
                // It has it open still. Whoever opens it meanwhile does not wait.
                let mut held = open.held.lock();
                held.stateid = Some((open_stateid, epoch));
                (held.wanted, held.access) = (held.wanted | wanted, access);
                Err(error)
            }
            closed => {
                open.locks.lock().clear();
                closed.map(drop)
            }
        }
    }
}

impl Client4 {
    /// Somebody has closed a file that was opened for this. True if nobody has it open any more: [`Client4::close_later`] is to be called when
    /// its data is at the server.
    pub(crate) fn close(
        self: &Arc<Self>,
        handle: &FileHandle,
        identity: &Identity,
        (reads, writes): (bool, bool),
    ) -> bool {
        match self.opens.find(handle, identity) {
            Some(open) => self.opens.leave(&open, access_of(reads, writes)),
            None => false,
        }
    }

    /// Closes a file at the server, unless somebody opens it before.
    pub(crate) fn close_unused(self: &Arc<Self>, handle: &FileHandle, identity: &Identity) {
        if let Some(open) = self.opens.find(handle, identity) {
            self.close_later(open);
        }
    }

    /// Closes what was made a while ago and opened by nobody.
    pub(super) fn close_unclaimed(self: &Arc<Self>) {
        loop {
            let open = {
                let mut unclaimed = self.opens.unclaimed.lock();
                match unclaimed.front() {
                    Some((since, _)) if since.elapsed() >= CLAIMED_WITHIN => {}
                    _ => return,
                }
                unclaimed.pop_front()
            };
            let Some((_, open)) = open else { return };
            let is_unclaimed = std::mem::take(&mut open.held.lock().is_unclaimed);
            if is_unclaimed {
                self.close_later(open);
            }
        }
    }

    fn close_later(self: &Arc<Self>, open: Arc<Open4>) {
        let client = Arc::clone(self);
        self.closers.run(0, move || client.close_now(&open, Patience::default()));
    }

    pub(super) fn close_now(self: &Arc<Self>, open: &Arc<Open4>, patience: Patience) {
        let mut requests = Requests {
            client: Arc::clone(self),
            caller: self.caller(patience),
            identity: open.identity.clone(),
            is_keeper: false,
        };
        if let Err(error) = self.patiently(patience, || requests.close_at_server(open)) {
            tracing::debug!(%error, "a file was not closed at the server");
        }
        self.opens.forget(open);
    }
}
