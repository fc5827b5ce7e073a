//! Making the session, renewing the lease, and recovering what the server has lost (RFC 8881 §8.3, §8.4).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use steadfast_client::nfs4::{
    COMPOUND, Compound, CompoundReply, NfsStat4, Opening4, WANT_NO_DELEGATION, establish4,
};
use steadfast_client::{ClientError, FileHandle, Identity, Procedure, RpcTransport};
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, DestroyClientId4Args, DestroySession4Args, LockType4, LockU4Args, Op4,
    OpenClaim4, ReclaimComplete4Args, StateId4, TestStateId4Args, TestStateId4Result,
};

use super::opens::Open4;
use super::session::{Client4, Manner, Outcome, Requests};
use crate::transport::{Link, Patience};

/// How long is waited before a session is asked for again: at first, and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Stateids that are asked about at one time.
const TESTED_MAX: usize = 64;
/// How soon it is looked again what the server has taken away.
const LOOKED_AT_AGAIN: Duration = Duration::from_secs(1);
/// How long the server may take to hear of the end.
const LAST_WORD: Duration = Duration::from_secs(2);
/// `OPEN_DELEGATE_NONE`.
const DELEGATE_NONE: u32 = 0;
/// Most LOOKUPs of one request.
const LOOKUPS_MAX: usize = 8;

impl Client4 {
    /// Makes this client known to a server, and starts the thread that keeps it so.
    pub(crate) fn connect(
        link: Arc<Link>,
        machine: Identity,
        minor_version: u32,
        patience: Patience,
    ) -> Outcome<Arc<Self>> {
        let client = Arc::new(Self::new(link, machine, minor_version)?);
        let begun = client.begin(patience).and_then(|()| {
            let kept = Arc::clone(&client);
            thread::Builder::new().name("nfs-session".to_owned()).spawn(move || kept.keep())?;
            Ok(())
        });
        match begun {
            Ok(()) => Ok(client),
            Err(error) => {
                client.end();
                Err(error)
            }
        }
    }

    fn begin(self: &Arc<Self>, patience: Patience) -> Outcome<()> {
        self.patiently(patience, || self.establish(patience))?;
        self.patiently(patience, || self.complete_reclaim(patience))?;
        let lease = self.patiently(patience, || self.ask_lease(patience))?;
        let mut state = self.state.lock();
        state.lease = lease;
        state.is_ready = true;
        Ok(())
    }

    fn requests(self: &Arc<Self>, patience: Patience, identity: &Identity) -> Requests {
        let client = Arc::clone(self);
        let (caller, identity) = (self.caller(patience), identity.clone());
        Requests { client, caller, identity, is_keeper: true }
    }

    /// Makes a session; the epoch ends if the server has forgotten the client meanwhile.
    fn establish(&self, patience: Patience) -> Outcome<()> {
        self.destroy_left(patience);
        let session = establish4(&mut self.caller(patience), &self.machine, &self.settings)?;
        let mut state = self.state.lock();
        let known = state.clientid.replace(session.clientid);
        if known.is_some_and(|known| known != session.clientid) {
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
        state.session = Some(session);
        state.is_reclaim_needed = false;
        state.number += 1;
        state.last_reply = Instant::now();
        Ok(())
    }

    /// A server lets a client have so many sessions, and may execute by each what is still on its way.
    fn destroy_left(&self, patience: Patience) {
        let left = {
            let mut state = self.state.lock();
            state.leave_session();
            std::mem::take(&mut state.left)
        };
        for sessionid in left {
            let destroyed = self.alone(patience, Op4::DestroySession, |compound| {
                compound.op(Op4::DestroySession, &DestroySession4Args { sessionid })
            });
            if let Err(error) = destroyed {
                tracing::debug!(%error, "a session of before was not destroyed");
                if error.status4() == Some(NfsStat4::Delay) {
                    // With the next one.
                    self.state.lock().left.push(sessionid);
                }
            }
        }
    }

    /// A request of this one operation, by no session.
    fn alone(
        &self,
        patience: Patience,
        op: Op4,
        build: impl FnOnce(Compound) -> Compound,
    ) -> Outcome<()> {
        let compound = build(Compound::new().of_minor_version(self.settings.minor_version));
        let procedure = Procedure { name: "DESTROY", ..COMPOUND };
        let results =
            self.caller(patience).call(procedure, &self.machine, &compound.arguments())?;
        CompoundReply::parse(&results).and_then(|mut reply| reply.done(op))
    }

    fn complete_reclaim(self: &Arc<Self>, patience: Patience) -> Outcome<()> {
        let of_all = ReclaimComplete4Args { one_fs: false };
        let completed = self.requests(patience, &self.machine).request(
            Manner::changing("RECLAIM_COMPLETE"),
            |compound| compound.op(Op4::ReclaimComplete, &of_all),
            |reply| reply.done(Op4::ReclaimComplete),
        );
        match completed {
            Err(error) if error.status4() == Some(NfsStat4::CompleteAlready) => Ok(()),
            completed => completed.map(drop),
        }
    }

    fn ask_lease(self: &Arc<Self>, patience: Patience) -> Outcome<Duration> {
        let wanted = Bitmap4::of(&[Attribute4::LeaseTime]);
        let (told, _) = self.requests(patience, &self.machine).request(
            Manner::asking("GETATTR"),
            |compound| compound.put_root().attributes(wanted),
            |reply| {
                reply.done(Op4::PutRootFh)?;
                reply.attributes()
            },
        )?;
        let seconds = told.lease_seconds.unwrap_or(90).clamp(3, 3600);
        Ok(Duration::from_secs(u64::from(seconds)))
    }

    fn keep(self: Arc<Self>) {
        loop {
            let (is_lost, is_revoked) = {
                let mut state = self.state.lock();
                loop {
                    if state.is_closed || self.link.is_closed() {
                        return;
                    }
                    let due = state.last_reply + state.lease / 3;
                    let left = due.saturating_duration_since(Instant::now());
                    if !state.is_ready || state.is_revoked || left.is_zero() {
                        break;
                    }
                    self.changed.wait_for(&mut state, left);
                }
                (!state.is_ready, std::mem::take(&mut state.is_revoked))
            };
            self.close_unclaimed();
            if is_lost {
                self.recover();
            } else if is_revoked {
                self.look_at_opens();
            } else {
                self.renew();
            }
        }
    }

    /// A request that does nothing renews the lease.
    fn renew(self: &Arc<Self>) {
        let mut requests = self.requests(Patience::default(), &self.machine);
        if let Err(error) =
            requests.request(Manner::asking("SEQUENCE"), |compound| compound, |_| Ok(()))
        {
            tracing::debug!(%error, "the lease was not renewed");
            // Once more, and not at once.
            thread::sleep(AGAIN.0);
        }
    }

    fn is_ending(&self) -> bool {
        self.state.lock().is_closed || self.link.is_closed()
    }

    /// Makes a session, and reclaims what the server has lost, however long that takes.
    fn recover(self: &Arc<Self>) {
        let mut pause = AGAIN.0;
        let mut is_told = false;
        while !self.is_ending() {
            match self.try_recovery() {
                Ok(()) => {
                    self.state.lock().is_ready = true;
                    self.wake_all();
                    if is_told {
                        tracing::info!("there is a session again");
                    }
                    // A server that loses each session at once is not to be asked without a pause.
                    thread::sleep(AGAIN.0);
                    return;
                }
                Err(error) => {
                    if pause == AGAIN.1 && !is_told {
                        tracing::warn!(%error, "the server gives no session; trying again");
                        is_told = true;
                    }
                }
            }
            thread::sleep(pause);
            pause = (pause * 2).min(AGAIN.1);
        }
    }

    fn try_recovery(self: &Arc<Self>) -> Outcome<()> {
        let patience = Patience::default();
        self.establish(patience)?;
        // It may have lost what is open and not who has it: it says so with any reply.
        self.requests(patience, &self.machine).request(
            Manner::asking("SEQUENCE"),
            |compound| compound,
            |_| Ok(()),
        )?;
        if self.state.lock().is_reclaim_needed {
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
        let epoch = self.epoch();
        if self.state.lock().reclaimed != epoch {
            let (mut reclaimed, mut lost) = (0, 0);
            for open in self.opens.all() {
                if self.reclaim(&open, epoch)? { reclaimed += 1 } else { lost += 1 }
            }
            let (locks, lost_locks) = self.reclaim_locks(epoch)?;
            tracing::info!(
                reclaimed,
                lost,
                locks,
                lost_locks,
                "the server has lost what is open and locked: it was told again"
            );
        }
        self.patiently(patience, || self.complete_reclaim(patience))?;
        // Another start of the server may have another one.
        let lease = self.patiently(patience, || self.ask_lease(patience));
        let mut state = self.state.lock();
        (state.reclaimed, state.is_reclaim_needed) = (epoch, false);
        match lease {
            Ok(lease) => state.lease = lease,
            Err(error) if error.status4().is_some() => {
                tracing::debug!(%error, "the lease is not told");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Tells a server that has lost it of a file that is open. False if it does not take it: it is opened anew then
    /// when it is used.
    fn reclaim(self: &Arc<Self>, open: &Open4, epoch: u64) -> Outcome<bool> {
        match open.stateid() {
            // Of an earlier try.
            Some((_, of)) if of == epoch => return Ok(true),
            Some(_) => {}
            None => return Ok(false),
        }
        let share_access = open.access() | WANT_NO_DELEGATION;
        let claim = Opening4::with_claim(OpenClaim4::Previous(DELEGATE_NONE));
        let arguments = Opening4 { share_access, owner: &open.owner, ..claim }.arguments();
        let reclaimed = self.patiently(Patience::default(), || {
            self.requests(Patience::default(), &open.identity).request(
                Manner::changing("OPEN"),
                |compound| compound.put(&open.handle).op(Op4::Open, &arguments),
                |reply| {
                    reply.done(Op4::PutFh)?;
                    reply.open().map(|opened| opened.stateid)
                },
            )
        });
        match reclaimed {
            Ok((stateid, _)) => {
                open.reclaimed(Some(stateid), epoch);
                Ok(true)
            }
            Err(error) if error.status4().is_some() => {
                tracing::debug!(%error, "an open file is not reclaimed");
                open.reclaimed(None, epoch);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Tells a server that has lost them of all locks that are held. Returns how many owners have theirs again, and how
    /// many have lost theirs.
    fn reclaim_locks(self: &Arc<Self>, epoch: u64) -> Outcome<(u32, u32)> {
        let holder = self.holder.lock().clone();
        let Some(holder) = holder else { return Ok((0, 0)) };
        let (mut reclaimed, mut lost) = (0, 0);
        for holding in holder.held() {
            let open = self.opens.find(&holding.handle, &holding.identity);
            let open = open.and_then(|open| {
                let (stateid, of) = open.stateid()?;
                (of == epoch).then_some((open, stateid))
            });
            let mut has_all = open.is_some();
            if let Some((open, stateid)) = &open {
                for range in &holding.ranges {
                    let locked = self.patiently(Patience::default(), || {
                        let mut requests = self.requests(Patience::default(), &open.identity);
                        requests.lock_by(open, *stateid, holding.number, *range, true)
                    });
                    match locked {
                        Ok(_) => {}
                        Err(error) if error.status4().is_some() => {
                            tracing::debug!(%error, "a lock is not reclaimed");
                            has_all = false;
                            break;
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            if has_all {
                reclaimed += 1;
                continue;
            }
            lost += 1;
            // What is lost is not to keep others out.
            if let Some((open, _)) = &open {
                self.free_lock(open, holding.number);
            }
            holder.lost(holding.number);
        }
        // What nobody holds any more was not reclaimed.
        for open in self.opens.all() {
            open.locks.lock().retain(|_, lock| lock.is_of(epoch));
        }
        Ok((reclaimed, lost))
    }

    /// Gives up what an owner of locks has got back in part.
    fn free_lock(self: &Arc<Self>, open: &Open4, number: u32) {
        let Some((stateid, _)) = open.lock_of(number).stateid else { return };
        let lock_stateid = StateId4 { seqid: 0, ..stateid };
        let (locktype, offset, length) = (LockType4::Write, 0, u64::MAX);
        let arguments = LockU4Args { locktype, seqid: 0, lock_stateid, offset, length };
        let freed = self.requests(Patience::default(), &open.identity).request(
            Manner::changing("LOCKU"),
            |compound| compound.put(&open.handle).op(Op4::LockU, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.stateid(Op4::LockU).map(drop)
            },
        );
        if let Err(error) = freed {
            tracing::debug!(%error, "a lock that is lost was not freed");
        }
        open.locks.lock().remove(&number);
    }

    /// Asks again while the server says "later".
    pub(super) fn patiently<R>(
        &self,
        patience: Patience,
        mut ask: impl FnMut() -> Outcome<R>,
    ) -> Outcome<R> {
        let since = Instant::now();
        let mut pause = AGAIN.0;
        loop {
            match ask() {
                Err(error)
                    if matches!(error.status4(), Some(NfsStat4::Delay | NfsStat4::Grace))
                        && !self.is_ending() =>
                {
                    if let Some(end) = patience.end(since) {
                        return Err(end);
                    }
                    thread::sleep(patience.nap().min(pause));
                    pause = (pause * 2).min(AGAIN.1);
                }
                outcome => return outcome,
            }
        }
    }

    /// The server has taken something away: it is asked what.
    fn look_at_opens(self: &Arc<Self>) {
        if let Err(error) = self.test_opens() {
            tracing::debug!(%error, "the server does not tell what it has taken away");
        }
        // It says so until it is told that this was seen: not more often than that is looked for.
        thread::sleep(LOOKED_AT_AGAIN);
        self.state.lock().is_revoked = false;
    }

    fn test_opens(self: &Arc<Self>) -> Outcome<()> {
        let epoch = self.epoch();
        let opens = self.opens.all();
        let mut held: Vec<(&Arc<Open4>, Option<u32>, StateId4)> = Vec::new();
        for open in &opens {
            let of_epoch = |(stateid, of): (StateId4, u64)| (of == epoch).then_some(stateid);
            held.extend(open.stateid().and_then(of_epoch).map(|stateid| (open, None, stateid)));
            for (number, lock) in &*open.locks.lock() {
                let stateid = lock.stateid.and_then(of_epoch);
                held.extend(stateid.map(|stateid| (open, Some(*number), stateid)));
            }
        }
        for part in held.chunks(TESTED_MAX) {
            let stateids: Vec<StateId4> = part.iter().map(|(.., stateid)| *stateid).collect();
            let arguments = TestStateId4Args { stateids };
            let tested = self.requests(Patience::default(), &self.machine).request(
                Manner::asking("TEST_STATEID"),
                |compound| compound.op(Op4::TestStateId, &arguments),
                |reply| reply.result::<TestStateId4Result>(Op4::TestStateId),
            );
            let (tested, _) = tested?;
            for ((open, number, stateid), status) in part.iter().zip(tested.status_codes) {
                if status == NfsStat4::Ok || status == NfsStat4::OldStateId {
                    continue;
                }
                tracing::warn!(?status, "the server has taken away what was open or locked");
                match number {
                    Some(number) => self.lose_lock(open, *number),
                    None => self.lose_open(open, *stateid),
                }
                self.requests(Patience::default(), &open.identity).free(*stateid);
            }
        }
        Ok(())
    }

    /// Closes everything, and says goodbye, as far as the server answers soon; for the end of a mount.
    pub(crate) fn end(self: &Arc<Self>) {
        let until = Some(Instant::now() + LAST_WORD);
        let patience = Patience { pid: 0, until };
        for open in self.opens.all() {
            if until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
            open.abandon();
            self.close_now(&open, patience);
        }
        let clientid = {
            let mut state = self.state.lock();
            state.is_closed = true;
            state.clientid
        };
        self.wake_all();
        self.destroy_left(patience);
        let Some(clientid) = clientid else { return };
        let ended = self.alone(patience, Op4::DestroyClientId, |compound| {
            compound.op(Op4::DestroyClientId, &DestroyClientId4Args { clientid })
        });
        if let Err(error) = ended {
            tracing::debug!(%error, "the server was not told of the end");
        }
    }
}

/// The object at a path from the root of what the server shows, name by name; asked for again while the server says that
/// it has no time.
pub(crate) fn walk(client: &Arc<Client4>, path: &[u8], patience: Patience) -> Outcome<FileHandle> {
    client.patiently(patience, || walk_once(client, path, patience))
}

fn walk_once(client: &Arc<Client4>, path: &[u8], patience: Patience) -> Outcome<FileHandle> {
    let names: Vec<&[u8]> =
        path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
    let mut requests = client.requests(patience, &client.machine);
    let (mut handle, _) = requests.request(
        Manner::asking("LOOKUP"),
        |compound| compound.put_root().handle(),
        |reply| {
            reply.done(Op4::PutRootFh)?;
            reply.handle()
        },
    )?;
    for names in names.chunks(LOOKUPS_MAX) {
        let (found, _) = requests.request(
            Manner::asking("LOOKUP"),
            |compound| {
                let start = compound.put(&handle);
                names.iter().fold(start, |compound, name| compound.lookup(name)).handle()
            },
            |reply| {
                reply.done(Op4::PutFh)?;
                names.iter().try_for_each(|_| reply.done(Op4::Lookup))?;
                reply.handle()
            },
        )?;
        handle = found;
    }
    Ok(handle)
}

/// Whether a failure of [`Client4::connect`] says that the server has not this minor version.
pub(crate) fn is_other_version(error: &ClientError) -> bool {
    error.status4() == Some(NfsStat4::MinorVersMismatch)
}
