//! Locks of files at the server (RFC 8881 §9, §18.10 to §18.12). Who holds what is known to [`crate::locks`]; here is
//! by which stateid.

use std::sync::Arc;
use std::time::Instant;

use steadfast_client::nfs4::{ACCESS_READ, ACCESS_WRITE, NfsStat4, StateId4};
use steadfast_client::nlm::{Holder, NlmStat, Tested};
use steadfast_client::{ClientError, FileHandle, Identity};
use steadfast_wire::nfs4::{
    FreeStateId4Args, Lock4Args, LockOwner4, LockT4Args, LockType4, LockU4Args, Locker4, Op4,
};

use super::convert;
use super::held_locks::{Holder4, Lock4, Range};
use super::opens::{Open4, is_of_stateid};
use super::session::{Client4, Manner, Outcome, Requests};
use crate::transport::Patience;

/// How often a stateid that the server does not know is got anew.
const TIMES: usize = 4;

/// Who asks for a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockAsker<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) handle: &'a FileHandle,
    pub(crate) number: u32,
}

fn owner_of(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn kind_of(is_exclusive: bool) -> LockType4 {
    if is_exclusive { LockType4::Write } else { LockType4::Read }
}

/// An error as the lock manager of NFSv3 would tell it; other ones stay errors.
fn stat_of(error: &ClientError) -> Option<NlmStat> {
    Some(match error.status4()? {
        NfsStat4::Denied => NlmStat::Denied,
        NfsStat4::Deadlock => NlmStat::Deadlock,
        NfsStat4::Grace | NfsStat4::Delay => NlmStat::DeniedGracePeriod,
        NfsStat4::Stale | NfsStat4::BadHandle | NfsStat4::FhExpired => NlmStat::StaleHandle,
        NfsStat4::RoFs => NlmStat::ReadOnlyFs,
        NfsStat4::BadRange | NfsStat4::Inval => NlmStat::TooBig,
        _ => return None,
    })
}

fn answered(outcome: Outcome<()>) -> Outcome<NlmStat> {
    match outcome {
        Ok(()) => Ok(NlmStat::Granted),
        Err(error) => match stat_of(&error) {
            Some(stat) => Ok(stat),
            None => Err(convert::failed(error)),
        },
    }
}

impl Open4 {
    pub(super) fn lock_of(&self, number: u32) -> Lock4 {
        self.locks.lock().get(&number).copied().unwrap_or_default()
    }

    fn note_lock(&self, number: u32, stateid: StateId4, epoch: u64) {
        let lock = Lock4 { stateid: Some((stateid, epoch)), is_in_doubt: false };
        self.locks.lock().insert(number, lock);
    }
}

impl Requests {
    /// One LOCK by an open; `is_reclaim`: it was held before the server lost it. Returns the epoch in which the server has
    /// granted it.
    pub(super) fn lock_by(
        &mut self,
        open: &Open4,
        open_stateid: StateId4,
        number: u32,
        (offset, length, is_exclusive): Range,
        is_reclaim: bool,
    ) -> Outcome<u64> {
        let owner = owner_of(number);
        let known = open.lock_of(number).stateid.filter(|(_, epoch)| *epoch == self.client.epoch());
        let locker = match known {
            Some((lock_stateid, _)) => {
                Locker4::Lock { lock_stateid: StateId4 { seqid: 0, ..lock_stateid }, lock_seqid: 0 }
            }
            None => Locker4::Open {
                open_seqid: 0,
                open_stateid: StateId4 { seqid: 0, ..open_stateid },
                lock_seqid: 0,
                lock_owner: LockOwner4 { clientid: 0, owner: &owner },
            },
        };
        let locktype = kind_of(is_exclusive);
        let arguments = Lock4Args { locktype, reclaim: is_reclaim, offset, length, locker };
        let (stateid, epoch) = self.request(
            Manner::changing("LOCK"),
            |compound| compound.put(&open.handle).op(Op4::Lock, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.stateid(Op4::Lock)
            },
        )?;
        open.note_lock(number, stateid, epoch);
        Ok(epoch)
    }

    fn lock(&mut self, handle: &FileHandle, number: u32, range: Range) -> Outcome<u64> {
        let access = if range.2 { ACCESS_WRITE } else { ACCESS_READ };
        let mut times = 0;
        loop {
            let Some(open) = self.client.opens.find(handle, &self.identity) else {
                // Whoever locks has the file open.
                return Err(ClientError::Closed);
            };
            let stateid = self.open_for(&open, access)?;
            let had = open.lock_of(number).stateid;
            match self.lock_by(&open, stateid, number, range, false) {
                Err(error) if is_of_stateid(&error) && times < TIMES => {
                    times += 1;
                    // A lock that it had is lost, and may have been another one's since.
                    if had.is_some_and(|(_, epoch)| epoch == self.client.epoch()) {
                        self.client.lose_lock(&open, number);
                    } else {
                        self.client.lose_open(&open, stateid);
                    }
                }
                Err(error) if error.status4().is_none() => {
                    open.locks.lock().entry(number).or_default().is_in_doubt = true;
                    return Err(error);
                }
                outcome => return outcome,
            }
        }
    }

    fn unlock(
        &mut self,
        handle: &FileHandle,
        number: u32,
        (offset, length): (u64, u64),
    ) -> Outcome<()> {
        let Some(open) = self.client.opens.find(handle, &self.identity) else { return Ok(()) };
        let since = Instant::now();
        let mut times = 0;
        loop {
            let lock = open.lock_of(number);
            if lock.stateid.is_some_and(|(_, epoch)| epoch != self.client.epoch()) && times < TIMES
            {
                // It is reclaimed, or lost; then there is nothing to unlock.
                self.client.await_session(self.caller.patience, since)?;
                times += 1;
                continue;
            }
            let known = lock.stateid.filter(|(_, epoch)| *epoch == self.client.epoch());
            let Some((stateid, _)) = known else {
                if !lock.is_in_doubt {
                    return Ok(());
                }
                // Who has a lock gets it again, with the stateid; who does not get it has none there.
                let Some((open_stateid, _)) = open.stateid() else { return Ok(()) };
                let range = (offset, length, false);
                match self.lock_by(&open, open_stateid, number, range, false) {
                    Ok(_) => continue,
                    Err(error) if error.status4() == Some(NfsStat4::Denied) => return Ok(()),
                    Err(error) if is_of_stateid(&error) => return Ok(()),
                    Err(error) => return Err(error),
                }
            };
            let stateid = StateId4 { seqid: 0, ..stateid };
            let locktype = LockType4::Write;
            let arguments =
                LockU4Args { locktype, seqid: 0, lock_stateid: stateid, offset, length };
            let free = FreeStateId4Args { stateid };
            let unlocked = self.request(
                Manner::changing("LOCKU"),
                // The owner that has no lock any more is forgotten; another one is not.
                |compound| {
                    let unlocked = compound.put(&open.handle).op(Op4::LockU, &arguments);
                    unlocked.op(Op4::FreeStateId, &free)
                },
                |reply| {
                    reply.done(Op4::PutFh)?;
                    reply.stateid(Op4::LockU)?;
                    Ok(reply.done(Op4::FreeStateId).is_ok())
                },
            );
            match unlocked {
                Ok((true, _)) => {
                    open.locks.lock().remove(&number);
                    return Ok(());
                }
                Ok((false, _)) => return Ok(()),
                // After a recovery it has another one.
                Err(error) if is_of_stateid(&error) => {
                    let now = open.lock_of(number).stateid;
                    if now.is_some_and(|(now, _)| now.other != stateid.other) && times < TIMES {
                        times += 1;
                        continue;
                    }
                    open.locks.lock().remove(&number);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn test_lock(&mut self, handle: &FileHandle, number: u32, range: Range) -> Outcome<Tested> {
        let (offset, length, is_exclusive) = range;
        let owner = owner_of(number);
        let owner = LockOwner4 { clientid: 0, owner: &owner };
        let arguments = LockT4Args { locktype: kind_of(is_exclusive), offset, length, owner };
        let tested = self.request(
            Manner::asking("LOCKT"),
            |compound| compound.put(handle).op(Op4::LockT, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.done(Op4::LockT)
            },
        );
        match tested {
            Err(ClientError::Operation(failure)) if failure.denied.is_some() => {
                let Some(denied) = failure.denied else {
                    return Ok(Tested::Other(NlmStat::Denied));
                };
                Ok(Tested::Held(Holder {
                    is_exclusive: matches!(denied.kind, LockType4::Write | LockType4::WriteWaiting),
                    number: 0,
                    owner: denied.owner,
                    offset: denied.offset,
                    length: if denied.length == u64::MAX { 0 } else { denied.length },
                }))
            }
            tested => answered(tested.map(drop)).map(Tested::Other),
        }
    }
}

impl Client4 {
    fn lock_requests(self: &Arc<Self>, identity: &Identity, patience: Patience) -> Requests {
        Requests {
            client: Arc::clone(self),
            caller: self.caller(patience),
            identity: identity.clone(),
            is_keeper: false,
        }
    }

    /// Who is asked what is held when the server has lost it, and told what cannot be had again.
    pub(crate) fn hold_locks_of(&self, holder: Arc<dyn Holder4>) {
        *self.holder.lock() = Some(holder);
    }

    /// Locks a range, and waits for nobody. A granted lock comes with its epoch, for [`Client4::has_lock`].
    ///
    /// # Errors
    /// When nobody knows: the lock may be given at any time, or never.
    pub(crate) fn lock(
        self: &Arc<Self>,
        asker: LockAsker<'_>,
        range: Range,
        patience: Patience,
    ) -> Outcome<(NlmStat, Option<u64>)> {
        let mut requests = self.lock_requests(asker.identity, patience);
        let locked = requests.lock(asker.handle, asker.number, range);
        let epoch = locked.as_ref().ok().copied();
        Ok((answered(locked.map(drop))?, epoch))
    }

    /// Whether the server has lost nothing of an owner's since it granted a lock in this epoch. What it loses from now
    /// on it loses after this: then [`Holder4::held`] is asked, or [`Holder4::lost`] told.
    pub(crate) fn has_lock(&self, asker: LockAsker<'_>, epoch: u64) -> bool {
        let open = self.opens.find(asker.handle, asker.identity);
        self.epoch() == epoch && open.is_some_and(|open| open.lock_of(asker.number).is_of(epoch))
    }

    /// Unlocks a range.
    ///
    /// # Errors
    /// As [`Client4::lock`].
    pub(crate) fn unlock(
        self: &Arc<Self>,
        asker: LockAsker<'_>,
        range: (u64, u64),
        patience: Patience,
    ) -> Outcome<NlmStat> {
        let mut requests = self.lock_requests(asker.identity, patience);
        answered(requests.unlock(asker.handle, asker.number, range))
    }

    /// What is in the way of a lock.
    ///
    /// # Errors
    /// When nobody knows.
    pub(crate) fn test_lock(
        self: &Arc<Self>,
        asker: LockAsker<'_>,
        range: Range,
        patience: Patience,
    ) -> Outcome<Tested> {
        let mut requests = self.lock_requests(asker.identity, patience);
        requests.test_lock(asker.handle, asker.number, range)
    }

    /// An owner has lost its locks.
    pub(super) fn lose_lock(&self, open: &Open4, number: u32) {
        if open.locks.lock().remove(&number).is_some_and(|lock| lock.stateid.is_some()) {
            self.tell_lost(number);
        }
    }

    /// The server does not know an open any more, and none of its locks.
    pub(super) fn lose_open(&self, open: &Open4, stateid: StateId4) {
        if !open.invalidate(stateid, self.epoch()) {
            return;
        }
        let lost: Vec<u32> = open.locks.lock().drain().map(|(number, _)| number).collect();
        for number in lost {
            self.tell_lost(number);
        }
    }

    fn tell_lost(&self, number: u32) {
        let holder = self.holder.lock().clone();
        if let Some(holder) = holder {
            holder.lost(number);
        }
    }
}
