//! What NLM asks of the state: locks, waits and share reservations of hosts.
//!
//! A host's locks of a file belong to an open of its own, which shares and denies nothing. The open
//! begins with the first lock or wait, and ends with the last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use thiserror::Error;

use super::attempt::Stopped;
use crate::client::lock_owner::LockOwner;
use crate::client::opens::ClientOpens;
use crate::file_locks::{Asking, FileLocks, GrantAnswer, Refused, Tells};
use crate::host::{LOCKS, OWNER_BYTES_MAX};
use crate::ids::OpenNumber;
use crate::image::Event;
use crate::ranges::{LockKind, Range, Span};
use crate::share::Share;
use crate::{
    Client, FileKey, Host, LockRange, NlmOwner, ShareAccess, ShareDeny, State, StateError,
};

/// Begins the owner of an open that is a share reservation.
const SHARE: &[u8] = b"s";

/// What is asked of a LOCK.
#[derive(Clone, Copy, Debug)]
pub struct NlmLock<'a> {
    /// The file.
    pub file: FileKey,
    /// Who asks.
    pub owner: &'a NlmOwner,
    /// The bytes.
    pub range: LockRange,
    /// The kind.
    pub kind: LockKind,
    /// What the host is to be told when it is granted the lock, if it waits for it
    /// ([`crate::Effect::Granted`]).
    pub waits: Option<&'a Arc<[u8]>>,
}

/// A lock that is in the way of a host's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NlmHolder {
    /// Whose it is; nobody's name if it is a client's of NFSv4.
    pub owner: NlmOwner,
    /// Its bytes.
    pub range: LockRange,
    /// Its kind.
    pub kind: LockKind,
}

impl From<&Range<LockOwner>> for NlmHolder {
    fn from(range: &Range<LockOwner>) -> Self {
        let owner = match range.owner.client.host() {
            Some(_) => NlmOwner::of_name(&range.owner.name),
            None => NlmOwner { svid: 0, oh: Box::default() },
        };
        Self { owner, range: range.span.into(), kind: range.kind }
    }
}

/// Why a host did not get a lock.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NlmError {
    /// `NLM4_DENIED`.
    #[error("another owner has a lock that conflicts, or waits for one")]
    Denied(NlmHolder),
    /// `NLM4_BLOCKED`: the host is told when it has the lock.
    #[error("the lock is waited for")]
    Blocked,
    /// The host would wait, but it waits for as many locks as it may, or as many wait for the file:
    /// it is to ask again.
    #[error("too many locks are waited for")]
    Crowded,
    /// Anything else.
    #[error(transparent)]
    State(#[from] StateError),
}

/// For whom a host waits that asks for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    /// Clients that have a lease, and hosts. Others are expired.
    Living,
    /// Others too.
    All,
}

/// What a host was granted.
#[derive(Clone, Copy, Debug)]
pub enum NlmTaken<'a> {
    /// A share of this owner.
    Share(&'a [u8]),
    /// A lock of this range.
    Lock(&'a NlmOwner, LockRange),
}

/// What an owner had before ([`State::nlm_before`]).
#[derive(Clone, Debug)]
pub struct NlmBefore {
    share: Option<Share>,
    ranges: Vec<(Span, LockKind, OpenNumber)>,
    /// How often it was granted something of the file.
    grants: u32,
}

impl State {
    /// LOCK: gives an owner a range, and replaces what it had of it; or lets it wait. Clients of
    /// NFSv4 whose lease has expired lose all that they have, if they alone are in the way.
    ///
    /// A host that waits keeps its place before those who ask later, for a lease. It need not ask
    /// again; if it does, it keeps its place.
    ///
    /// # Errors
    /// [`NlmError::Denied`] if it does not wait, [`NlmError::Blocked`] if it does,
    /// [`NlmError::Crowded`] if it cannot;
    /// [`StateError::Invalid`] for a range that ends behind the last byte, or an owner of more than
    /// 1,024 bytes; [`StateError::TryLater`]; [`StateError::Expired`] if the host has left since
    /// [`State::host`] found it.
    pub fn nlm_lock(&self, host: &Host, request: &NlmLock<'_>) -> Result<(), NlmError> {
        let span = request.range.span()?;
        let name = request.owner.name()?;
        let owner = LockOwner { client: Arc::clone(&host.client), name };
        let attempt = |waits_for| {
            self.repeated(&host.client, || {
                self.try_nlm_lock(host, request, &owner, span, waits_for)
            })
        };
        match attempt(WaitsFor::Living) {
            // Who is in the way has no lease, and cannot be expired as long as a request of it is under
            // way.
            Err(NlmError::Denied(_)) if request.waits.is_some() => attempt(WaitsFor::All),
            done => done,
        }
    }

    /// UNLOCK: an owner gives up a range, whatever it has of it or waits for there.
    ///
    /// # Errors
    /// [`StateError::Invalid`] as of [`State::nlm_lock`]; [`StateError::TryLater`] if what is left
    /// would be too many ranges.
    pub fn nlm_unlock(
        &self,
        host: &Host,
        file: &FileKey,
        owner: &NlmOwner,
        range: LockRange,
    ) -> Result<(), StateError> {
        let (span, owner) = (range.span()?, owner_of(host, owner)?);
        let mut opens = host.client.opens.lock();
        let room = if self.has_room_for_locks() { self.host_room(host) } else { 0 };
        let time = self.time(&host.client);
        let unlocked = self.files.with_locks(file, |locks| locks.unlock(&owner, span, room, time));
        let growth = unlocked.unwrap_or(Some(0)).ok_or(StateError::TryLater)?;
        self.count_host_ranges(host, growth);
        self.end_unused(host, &mut opens, file);
        Ok(())
    }

    /// CANCEL: an owner does not wait any more. If it was granted the lock meanwhile and has not
    /// acknowledged it, it has what it had before. Whether there was such a wait or grant.
    ///
    /// # Errors
    /// [`StateError::Invalid`] as of [`State::nlm_lock`].
    pub fn nlm_cancel(
        &self,
        host: &Host,
        file: &FileKey,
        owner: &NlmOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Result<bool, StateError> {
        let (span, owner) = (range.span()?, owner_of(host, owner)?);
        let mut opens = host.client.opens.lock();
        let time = self.time(&host.client);
        let cancelled =
            self.files.with_locks(file, |locks| locks.cancel(&owner, span, kind, time)).flatten();
        self.count_host_ranges(host, cancelled.unwrap_or(0));
        self.end_unused(host, &mut opens, file);
        Ok(cancelled.is_some())
    }

    /// TEST: whether an owner could have a lock. Its own locks do not count, nor do those of clients
    /// whose lease has expired, nor who waits.
    ///
    /// # Errors
    /// [`NlmError::Denied`]; [`StateError::Invalid`] as of [`State::nlm_lock`].
    pub fn nlm_test(
        &self,
        host: &Host,
        file: &FileKey,
        owner: &NlmOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Result<(), NlmError> {
        let (span, owner) = (range.span()?, owner_of(host, owner)?);
        let time = self.time(&host.client);
        let found = self.files.with_locks(file, |locks| {
            locks.test(&owner, span, kind, time).map(|range| NlmHolder::from(&range.cloned()))
        });
        found.flatten().map_or(Ok(()), |holder| Err(NlmError::Denied(holder)))
    }

    /// Whether a host was granted a lock, has not acknowledged it, and still has it.
    pub fn is_grant_unanswered(
        &self,
        host: &Host,
        file: &FileKey,
        owner: &NlmOwner,
        range: LockRange,
        kind: LockKind,
    ) -> bool {
        self.with_grant(host, file, owner, range, |locks, owner, span| {
            locks.is_unanswered(owner, span, kind)
        })
    }

    /// Notes that a call about a grant is about to be sent, if it has to be as [`State::is_grant_unanswered`] says; whether
    /// it has.
    pub fn begin_call_about_grant(
        &self,
        host: &Host,
        file: &FileKey,
        owner: &NlmOwner,
        range: LockRange,
        kind: LockKind,
    ) -> bool {
        self.with_grant(host, file, owner, range, |locks, owner, span| {
            locks.begin_call(owner, span, kind)
        })
    }

    /// Asks a file's locks about a grant; `false` where there can be none.
    fn with_grant(
        &self,
        host: &Host,
        file: &FileKey,
        owner: &NlmOwner,
        range: LockRange,
        ask: impl FnOnce(&mut FileLocks, &LockOwner, Span) -> bool,
    ) -> bool {
        let (Ok(span), Ok(owner)) = (range.span(), owner_of(host, owner)) else { return false };
        self.files.with_locks(file, |locks| ask(locks, &owner, span)).unwrap_or(false)
    }

    /// What becomes of a grant. If the host refuses the lock, and was called once ([`State::begin_call_about_grant`]), it has
    /// what it had before. If it was called more than once it has the lock until it cancels or unlocks: it may have taken it
    /// by an answer that was lost, and refuse it for that. A refusal of what it was not called about changes nothing.
    ///
    /// # Errors
    /// [`StateError::Invalid`] as of [`State::nlm_lock`].
    pub fn answer_grant(
        &self,
        host: &Host,
        file: &FileKey,
        owner: &NlmOwner,
        range: LockRange,
        kind: LockKind,
        answer: GrantAnswer,
    ) -> Result<(), StateError> {
        let (span, owner) = (range.span()?, owner_of(host, owner)?);
        let mut opens = host.client.opens.lock();
        let time = self.time(&host.client);
        let refused =
            self.files.with_locks(file, |locks| locks.answer((&owner, span, kind), answer, time));
        self.count_host_ranges(host, refused.flatten().unwrap_or(0));
        self.end_unused(host, &mut opens, file);
        Ok(())
    }

    /// SHARE: reserves a file for an owner, instead of what the owner had reserved of it. It is judged
    /// by the opens of all other clients and owners.
    ///
    /// # Errors
    /// [`StateError::ShareDenied`]; [`StateError::Invalid`] for an owner of more than 1,024 bytes;
    /// [`StateError::TryLater`]; [`StateError::Expired`] as of [`State::nlm_lock`].
    pub fn nlm_share(
        &self,
        host: &Host,
        file: &FileKey,
        owner: &[u8],
        access: ShareAccess,
        deny: ShareDeny,
    ) -> Result<(), StateError> {
        if owner.len() > OWNER_BYTES_MAX {
            return Err(StateError::Invalid);
        }
        let owner = [SHARE, owner].concat();
        let share = Share { access, deny };
        self.repeated(&host.client, || self.try_share_of_host(host, file, &owner, share))
    }

    /// UNSHARE: gives up what [`State::nlm_share`] has reserved.
    pub fn nlm_unshare(&self, host: &Host, file: &FileKey, owner: &[u8]) {
        let mut opens = host.client.opens.lock();
        if let Some(number) = opens.find(&[SHARE, owner].concat(), file) {
            self.end_open_of_host(&host.client, &mut opens, number, file);
        }
    }

    /// What an owner has reserved of a file, and what it has locked of a range: to be asked before
    /// [`State::nlm_share`] or [`State::nlm_lock`], for [`State::nlm_take_back`].
    ///
    /// # Errors
    /// [`StateError::Invalid`] for a range or an owner that is none.
    pub fn nlm_before(
        &self,
        host: &Host,
        file: &FileKey,
        what: &NlmTaken<'_>,
    ) -> Result<NlmBefore, StateError> {
        let opens = host.client.opens.lock();
        let grants = grants(host, file, what)?.load(Ordering::Relaxed);
        let mut before = NlmBefore { share: None, ranges: Vec::new(), grants };
        match *what {
            NlmTaken::Share(owner) => {
                let number = opens.find(&[SHARE, owner].concat(), file);
                before.share = number.and_then(|it| opens.get(it)).map(|record| record.share);
            }
            NlmTaken::Lock(owner, range) => {
                let (owner, span) = (owner_of(host, owner)?, range.span()?);
                let ranges = self.files.with_locks(file, |locks| locks.within(&owner, span));
                before.ranges = ranges.unwrap_or_default();
            }
        }
        Ok(before)
    }

    /// Takes back a share or a lock that a host was granted and not told of. Its owner has what it had before,
    /// but nothing more than it has now.
    ///
    /// It stays if the owner was granted something else of the file since [`State::nlm_before`]: that it may
    /// have been told.
    ///
    /// # Errors
    /// Those of [`State::nlm_before`].
    pub fn nlm_take_back(
        &self,
        host: &Host,
        file: &FileKey,
        what: &NlmTaken<'_>,
        before: &NlmBefore,
    ) -> Result<(), StateError> {
        let mut opens = host.client.opens.lock();
        let grants_now = grants(host, file, what)?.load(Ordering::Relaxed);
        if grants_now != before.grants.wrapping_add(1) {
            return Ok(());
        }
        match *what {
            NlmTaken::Share(owner) => {
                let Some(number) = opens.find(&[SHARE, owner].concat(), file) else {
                    return Ok(());
                };
                let Some(had) = before.share else {
                    self.end_open_of_host(&host.client, &mut opens, number, file);
                    return Ok(());
                };
                let Some(record) = opens.get_mut(number) else { return Ok(()) };
                record.share = record.share.common(had);
                self.note_open(&host.client, number, record);
                self.files.lessen(number, file, record.share);
            }
            NlmTaken::Lock(owner, range) => {
                let (owner, span) = (owner_of(host, owner)?, range.span()?);
                let time = self.time(&host.client);
                let ranges = before.ranges.iter().copied();
                let ranges: Vec<_> = ranges.filter(|(.., by)| opens.get(*by).is_some()).collect();
                let growth = self
                    .files
                    .with_locks(file, |locks| locks.take_back(&owner, span, &ranges, time));
                self.count_host_ranges(host, growth.unwrap_or(0));
                self.end_unused(host, &mut opens, file);
            }
        }
        Ok(())
    }

    /// Frees all that a host has and waits for.
    pub(crate) fn release_host(&self, client: &Arc<Client>, opens: &mut ClientOpens) {
        let time = self.time(client);
        let files: Vec<(OpenNumber, FileKey)> = opens.files().collect();
        // Before others are granted what became free.
        for (number, _) in &files {
            self.journal.note(&Event::OpenGone { client: client.id(), number: *number });
        }
        for (number, file) in files {
            let ended = self.files.with_locks(&file, |locks| locks.end_host(client, time));
            if let Some(host) = Host::of(client) {
                self.count_host_ranges(&host, -ended.unwrap_or(0).cast_signed());
            }
            self.end_open_of_host(client, opens, number, &file);
        }
    }

    /// A host has no record any more.
    pub(crate) fn end_host(&self, client: &Arc<Client>) {
        let mut opens = client.opens.lock();
        self.release_host(client, &mut opens);
        opens.is_ended = true;
    }

    fn try_nlm_lock(
        &self,
        host: &Host,
        request: &NlmLock<'_>,
        owner: &LockOwner,
        span: Span,
        waits_for: WaitsFor,
    ) -> Result<(), Stopped<NlmError>> {
        let (file, kind) = (&request.file, request.kind);
        let mut opens = host.client.opens.lock();
        if opens.is_ended {
            return Err(StateError::Expired.into());
        }
        if !self.has_room_for_locks() {
            return Err(Stopped::ForRoom);
        }
        // As an open that does what the lock is for.
        let access = match kind {
            LockKind::Read => ShareAccess::READ,
            LockKind::Write => ShareAccess::WRITE,
        };
        let share = Share { access, deny: ShareDeny::empty() };
        let _delegations = self.admit_open(&host.client, file, share).map_err(Stopped::of_state)?;
        let open = match opens.find(LOCKS, file) {
            Some(open) => open,
            None => self.open_of_host(host, &mut opens, LOCKS, file, Share::NONE)?,
        };
        let asking = Asking {
            owner,
            open,
            span,
            kind,
            is_waited_for: request.waits.is_some(),
            tells: request.waits.map(Tells::Granted),
            room: self.host_room(host),
            time: self.time(&host.client),
        };
        let locked = self.files.lock(file, |locks| {
            let locked = locks.lock(&asking);
            let waits_for_all = asking.is_waited_for && waits_for == WaitsFor::All;
            if waits_for_all && matches!(locked, Err(Refused::Expired(..))) {
                locks.remember(&asking);
            }
            (locked, locks.is_waited_for_by(&asking))
        });
        let result = match locked {
            None => Err(StateError::TryLater.into()),
            Some((Ok(growth), _)) => {
                self.count_host_ranges(host, growth);
                Ok(())
            }
            Some((Err(Refused::Expired(..)), true)) if waits_for == WaitsFor::All => {
                self.hosts.note_waited_for(file);
                Err(Stopped::Failed(NlmError::Blocked))
            }
            Some((Err(Refused::Living(_)), is_remembered)) if request.waits.is_some() => {
                if is_remembered {
                    self.hosts.note_waited_for(file);
                    Err(Stopped::Failed(NlmError::Blocked))
                } else {
                    Err(Stopped::Failed(NlmError::Crowded))
                }
            }
            Some((Err(refused), _)) => Err(refused.into()),
        };
        self.end_unused(host, &mut opens, file);
        result
    }

    fn try_share_of_host(
        &self,
        host: &Host,
        file: &FileKey,
        owner: &[u8],
        share: Share,
    ) -> Result<(), Stopped<StateError>> {
        let mut opens = host.client.opens.lock();
        if opens.is_ended {
            return Err(StateError::Expired.into());
        }
        let own = opens.find(owner, file);
        let own_share = own.and_then(|number| opens.get(number)).map(|record| record.share);
        let asking = self.asking(&host.client, own.zip(own_share));
        let denied = |conflict| Stopped::by(conflict, StateError::ShareDenied);
        if self.has_delegations() {
            // What is denied anyhow must not have delegations recalled.
            self.files.judge(&asking, file, share).map_err(denied)?;
        }
        let _delegations = self.admit_open(&host.client, file, share)?;
        let grants = host.data.grants(owner, file);
        let Some(number) = own else {
            self.open_of_host::<StateError>(host, &mut opens, owner, file, share)?;
            grants.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        let record = opens.get_mut(number).ok_or(StateError::BadStateId)?;
        self.files.take(&asking, number, file, share).map_err(denied)?;
        record.share = share;
        grants.fetch_add(1, Ordering::Relaxed);
        self.note_open(&host.client, number, record);
        Ok(())
    }

    /// Adds an open of a host that it does not have.
    pub(crate) fn open_of_host<E: From<StateError>>(
        &self,
        host: &Host,
        opens: &mut ClientOpens,
        owner: &[u8],
        file: &FileKey,
        share: Share,
    ) -> Result<OpenNumber, Stopped<E>> {
        let client = &host.client;
        let limits = &self.settings.limits;
        if opens.count() >= usize::try_from(limits.opens_a_client_max).unwrap_or(usize::MAX) {
            return Err(StateError::TryLater.into());
        }
        if self.opens.fetch_add(1, Ordering::Relaxed) >= limits.opens_max {
            self.opens.fetch_sub(1, Ordering::Relaxed);
            return Err(Stopped::ForRoom);
        }
        let number = OpenNumber::new(client.id(), self.serial.fetch_add(1, Ordering::Relaxed));
        if let Err(conflict) = self.files.take(&self.asking(client, None), number, file, share) {
            self.opens.fetch_sub(1, Ordering::Relaxed);
            return Err(Stopped::by(conflict, StateError::ShareDenied.into()));
        }
        opens.add(number, owner, *file, share);
        if let Some(record) = opens.get(number) {
            self.note_open(client, number, record);
        }
        Ok(number)
    }

    /// Ends the open of a host's locks, if it has none there any more and waits for none.
    pub(crate) fn end_unused(&self, host: &Host, opens: &mut ClientOpens, file: &FileKey) {
        let Some(number) = opens.find(LOCKS, file) else { return };
        let used = self.files.with_locks(file, |locks| locks.is_used_by(&host.client));
        if used != Some(true) {
            self.end_open_of_host(&host.client, opens, number, file);
        }
    }

    fn end_open_of_host(
        &self,
        client: &Client,
        opens: &mut ClientOpens,
        number: OpenNumber,
        file: &FileKey,
    ) {
        if opens.remove(number).is_some() {
            self.journal.note(&Event::OpenGone { client: client.id(), number });
            self.files.release(number, file);
            self.opens.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Ranges that a host may still make.
    fn host_room(&self, host: &Host) -> usize {
        self.ranges_a_client_max().saturating_sub(host.data.ranges())
    }

    /// A host has so many more ranges.
    fn count_host_ranges(&self, host: &Host, growth: isize) {
        host.data.add_ranges(growth);
        // A negative number wraps, and so does the sum.
        self.locks.fetch_add(growth.cast_unsigned(), Ordering::Relaxed);
    }
}

/// How often an owner was granted what this is.
fn grants<'a>(
    host: &'a Host,
    file: &FileKey,
    what: &NlmTaken<'_>,
) -> Result<&'a AtomicU32, StateError> {
    Ok(match *what {
        NlmTaken::Share(owner) => host.data.grants(&[SHARE, owner].concat(), file),
        NlmTaken::Lock(owner, _) => host.data.grants(&owner.name()?, file),
    })
}

fn owner_of(host: &Host, owner: &NlmOwner) -> Result<LockOwner, StateError> {
    Ok(LockOwner { client: Arc::clone(&host.client), name: owner.name()? })
}

impl From<Refused> for Stopped<NlmError> {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Living(range) => Self::Failed(NlmError::Denied((&range).into())),
            Refused::Expired(clients, range) => {
                Self::ByExpired(clients, NlmError::Denied((&range).into()))
            }
            Refused::NoRoom => StateError::TryLater.into(),
        }
    }
}
