//! The operations on byte-range locks: LOCK, LOCKU, LOCKT, and `FREE_STATEID` of a lock stateid.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use thiserror::Error;

use super::attempt::Stopped;
use super::granted::GrantedLock;
use crate::client::lock_owner::LockOwner;
use crate::client::locks::LockRecord;
use crate::client::opens::ClientOpens;
use crate::file_locks::{Asking, Refused, Tells, Time};
use crate::ids::{LockNumber, OpenNumber};
use crate::image::Event;
use crate::ranges::{LockKind, Range, Span};
use crate::settings::OWNER_BYTES_MAX;
use crate::{
    Client, ClientId, FileKey, Granted, LockRange, ShareAccess, State, StateError, StateId,
};

/// By what a lock is asked for (RFC 8881 §18.10.1, `locker4`).
#[derive(Clone, Copy, Debug)]
pub enum LockBy<'a> {
    /// By an open: for a lock-owner that may be new at this file.
    Open {
        /// The open's stateid.
        open: StateId,
        /// The lock-owner, without the client id.
        owner: &'a [u8],
    },
    /// By the lock stateid that the lock-owner has.
    Lock(StateId),
}

/// What is asked of a LOCK.
#[derive(Clone, Copy, Debug)]
pub struct Lock<'a> {
    /// The file.
    pub file: FileKey,
    /// The kind.
    pub kind: LockKind,
    /// The bytes.
    pub range: LockRange,
    /// Who asks.
    pub by: LockBy<'a>,
    /// Whether the client asks until it gets the lock (`READW_LT`, `WRITEW_LT`). Then it keeps its
    /// place before those who ask later.
    pub is_waited_for: bool,
}

/// A lock that keeps another from being granted, as `LOCK4denied` has it; or one that comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Its first byte.
    pub offset: u64,
    /// How many bytes. [`u64::MAX`] stands for all that follow.
    pub length: u64,
    /// Its kind.
    pub kind: LockKind,
    /// Whose lock it is.
    pub client: ClientId,
    /// The lock-owner.
    pub owner: Box<[u8]>,
}

impl From<&Range<LockOwner>> for Conflict {
    fn from(range: &Range<LockOwner>) -> Self {
        let LockRange { offset, length } = range.span.into();
        let client = range.owner.client.id();
        Self { offset, length, kind: range.kind, client, owner: (*range.owner.name).into() }
    }
}

/// A lock of a file, for listings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockReport {
    /// Its bytes.
    pub range: LockRange,
    /// Its kind.
    pub kind: LockKind,
    /// Whose lock it is.
    pub client: ClientId,
    /// The lock-owner.
    pub owner: Box<[u8]>,
    /// Whether it is only waited for.
    pub is_waiting: bool,
}

impl LockReport {
    fn new(range: Range<&LockOwner>, is_waiting: bool) -> Self {
        Self {
            range: range.span.into(),
            kind: range.kind,
            client: range.owner.client.id(),
            owner: (*range.owner.name).into(),
            is_waiting,
        }
    }
}

/// Why a lock was not granted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LockError {
    /// `NFS4ERR_DENIED`.
    #[error("another owner has a lock that conflicts, or waits for one")]
    Denied(Conflict),
    /// Anything else.
    #[error(transparent)]
    State(#[from] StateError),
}

/// A LOCK whose stateid is known.
struct Locker {
    owner: LockOwner,
    open: OpenNumber,
    access: ShareAccess,
    /// The owner's lock stateid, if it has one.
    lock: Option<LockNumber>,
}

impl State {
    /// LOCK: gives an owner a range, and replaces what it had of it. Clients whose lease has
    /// expired lose all that they have, if they alone are in the way.
    ///
    /// It returns the lock stateid of the owner at this open. Who waits for a lock comes before
    /// those who ask later, but for a lease at most, and if it asks each 40 s; what became free is
    /// kept for it for 2 s.
    ///
    /// # Errors
    /// [`LockError::Denied`]; [`StateError::Invalid`] for an empty range, one that ends behind the
    /// last byte, or an owner of more than 1,024 bytes; [`StateError::OpenMode`] if the open lacks
    /// the access that the kind needs; [`StateError::BadStateId`], [`StateError::OldStateId`],
    /// [`StateError::Expired`] as of the stateid given; [`StateError::TryLater`].
    pub fn lock(&self, client: &Arc<Client>, request: &Lock<'_>) -> Result<StateId, LockError> {
        self.lock_or_tell(client, request, None)
    }

    /// [`State::lock`]; if the client has to wait, it is told when it may ask again with success
    /// ([`crate::Effect::Free`]), by this handle.
    ///
    /// # Errors
    /// Those of [`State::lock`].
    pub fn lock_or_tell(
        &self,
        client: &Arc<Client>,
        request: &Lock<'_>,
        handle: Option<&Arc<[u8]>>,
    ) -> Result<StateId, LockError> {
        self.grant_lock(client, request, handle).map(|granted| granted.id())
    }

    /// [`State::lock_or_tell`], of a request that may fail after it.
    ///
    /// # Errors
    /// Those of [`State::lock`].
    pub fn grant_lock(
        &self,
        client: &Arc<Client>,
        request: &Lock<'_>,
        handle: Option<&Arc<[u8]>>,
    ) -> Result<Granted, LockError> {
        let span = request.range.span()?;
        let locked = self.repeated(client, || self.try_lock(client, request, handle, span));
        if let (Err(LockError::Denied(_)), true, Some(_)) = (&locked, request.is_waited_for, handle)
        {
            self.hosts.note_waited_for(&request.file);
        }
        locked
    }

    /// LOCKU: the owner of a lock stateid gives up a range, whatever it has of it.
    ///
    /// # Errors
    /// [`StateError::Invalid`] as of [`State::lock`]; [`StateError::BadStateId`],
    /// [`StateError::OldStateId`], [`StateError::Expired`]; [`StateError::TryLater`] if what is
    /// left would be too many ranges.
    pub fn unlock(
        &self,
        client: &Arc<Client>,
        id: &StateId,
        file: &FileKey,
        range: LockRange,
    ) -> Result<StateId, StateError> {
        let span = range.span()?;
        let mut opens = client.opens.lock();
        let (number, record) = opens.named_lock(self.settings.instance, id)?;
        if record.file != *file {
            return Err(StateError::BadStateId);
        }
        let room = if self.has_room_for_locks() { self.room(&opens) } else { 0 };
        let owner = &record.owner;
        let time = self.time(client);
        let unlocked = self.files.with_locks(file, |locks| locks.unlock(owner, span, room, time));
        let growth = unlocked.unwrap_or(Some(0)).ok_or(StateError::TryLater)?;
        self.count_locks(&mut opens, growth, 0);
        let seqid = opens.locks.raise_seqid(number).ok_or(StateError::BadStateId)?;
        self.note_lock(client, &opens, number);
        Ok(StateId::of_lock(self.settings.instance, number, seqid))
    }

    /// LOCKT: whether an owner could have a lock. Its own locks do not count, nor do those of
    /// clients whose lease has expired, nor who waits.
    ///
    /// # Errors
    /// [`LockError::Denied`]; [`StateError::Invalid`] as of [`State::lock`];
    /// [`StateError::Expired`] if the client is gone.
    pub fn test_lock(
        &self,
        client: &Arc<Client>,
        file: &FileKey,
        kind: LockKind,
        range: LockRange,
        owner: &[u8],
    ) -> Result<(), LockError> {
        let span = range.span()?;
        if owner.len() > OWNER_BYTES_MAX {
            return Err(StateError::Invalid.into());
        }
        if client.opens.lock().is_ended {
            return Err(StateError::Expired.into());
        }
        let owner = LockOwner { client: Arc::clone(client), name: owner.into() };
        let time = self.time(client);
        let found = self.files.with_locks(file, |locks| {
            locks.test(&owner, span, kind, time).map(|range| Conflict::from(&range.cloned()))
        });
        found.flatten().map_or(Ok(()), |conflict| Err(LockError::Denied(conflict)))
    }

    /// Who holds which locks of a file, by owner; then who waits for which, in order.
    pub fn locks(&self, file: &FileKey) -> Vec<LockReport> {
        let reports = self.files.with_locks(file, |locks| {
            let held = locks.held().map(|range| LockReport::new(range, false));
            held.chain(locks.waited_for().map(|range| LockReport::new(range, true))).collect()
        });
        reports.unwrap_or_default()
    }

    fn try_lock(
        &self,
        client: &Arc<Client>,
        request: &Lock<'_>,
        handle: Option<&Arc<[u8]>>,
        span: Span,
    ) -> Result<Granted, Stopped<LockError>> {
        let (file, kind, instance) = (&request.file, request.kind, self.settings.instance);
        let mut opens = client.opens.lock();
        let Locker { owner, open, access, lock } = self.locker(client, &opens, request)?;
        let needed = match kind {
            LockKind::Read => ShareAccess::READ,
            LockKind::Write => ShareAccess::WRITE,
        };
        if !access.contains(needed) {
            return Err(StateError::OpenMode.into());
        }
        if lock.is_none() && opens.locks.count() >= self.ranges_a_client_max() {
            return Err(StateError::TryLater.into());
        }
        if !self.has_room_for_locks() {
            return Err(Stopped::ForRoom);
        }
        let (is_waited_for, room) = (request.is_waited_for, self.room(&opens));
        let time = self.time(client);
        let tells = handle.map(Tells::Free);
        let asking = Asking { owner: &owner, open, span, kind, is_waited_for, tells, room, time };
        let locked = self.files.lock(file, |locks| {
            let before = locks.within(&owner, span);
            locks.lock(&asking).map(|growth| (growth, before))
        });
        let (growth, before) = locked.ok_or(StateError::BadStateId)?.map_err(Stopped::from)?;
        self.count_locks(&mut opens, growth, isize::from(lock.is_none()));
        let seqid_before = lock.and_then(|number| opens.locks.get(number).map(|lock| lock.seqid));
        let (number, seqid) = if let Some(number) = lock {
            (number, opens.locks.raise_seqid(number).ok_or(StateError::BadStateId)?)
        } else {
            let number = LockNumber::new(client.id(), self.serial.fetch_add(1, Ordering::Relaxed));
            opens.locks.add(number, owner.clone(), open, *file);
            (number, 1)
        };
        self.note_lock(client, &opens, number);
        let id = StateId::of_lock(instance, number, seqid);
        let file = *file;
        let stateids = opens.locks.of_owner_and_file(&owner.name, &file);
        let lock = GrantedLock { owner, number, seqid_before, open, file, span, before, stateids };
        Ok(Granted::lock(client, id, lock))
    }

    /// Notes a lock stateid as it is now.
    pub(crate) fn note_lock(&self, client: &Client, opens: &ClientOpens, number: LockNumber) {
        if let Some(LockRecord { owner, open, seqid, .. }) = opens.locks.get(number) {
            self.journal.note(&Event::Lock {
                client: client.id(),
                number,
                open: *open,
                owner: &owner.name,
                seqid: *seqid,
            });
        }
    }

    /// Who asks for a lock.
    fn locker(
        &self,
        client: &Arc<Client>,
        opens: &ClientOpens,
        request: &Lock<'_>,
    ) -> Result<Locker, StateError> {
        let instance = self.settings.instance;
        let (open, known, name) = match request.by {
            LockBy::Open { owner, .. } if owner.len() > OWNER_BYTES_MAX => {
                return Err(StateError::Invalid);
            }
            LockBy::Open { open, owner } => {
                let (open, _) = opens.named(instance, &open)?;
                (open, opens.locks.find(open, owner), owner)
            }
            LockBy::Lock(id) => {
                let (number, record) = opens.named_lock(instance, &id)?;
                (record.open, Some((number, record)), &*record.owner.name)
            }
        };
        let record = opens.get(open).ok_or(StateError::BadStateId)?;
        if record.file != request.file {
            return Err(StateError::BadStateId);
        }
        let owner = known.map_or_else(
            || LockOwner { client: Arc::clone(client), name: name.into() },
            |(_, known)| known.owner.clone(),
        );
        let lock = known.map(|(number, _)| number);
        Ok(Locker { owner, open, access: record.share.access, lock })
    }

    /// `FREE_STATEID` of a lock stateid.
    pub(crate) fn free_lock(&self, client: &Client, id: &StateId) -> Result<(), StateError> {
        let mut opens = client.opens.lock();
        let (number, record) = opens.named_lock(self.settings.instance, id)?;
        let has =
            self.files.with_locks(&record.file, |locks| locks.has(&record.owner, record.open));
        if has == Some(true) {
            return Err(StateError::LocksHeld);
        }
        opens.locks.remove(number);
        self.journal.note(&Event::LockGone { client: client.id(), number });
        self.count_locks(&mut opens, 0, -1);
        Ok(())
    }

    /// Ends what was locked by an open, and what is waited for by it. The caller ends the open, of
    /// which this notes that it is gone: before others get what it had locked.
    pub(crate) fn release_locks(
        &self,
        client: &Client,
        opens: &mut ClientOpens,
        open: OpenNumber,
        file: &FileKey,
    ) {
        self.journal.note(&Event::OpenGone { client: client.id(), number: open });
        let owners = opens.locks.remove_open(open);
        if owners.is_empty() && client.waits.load(Ordering::Relaxed) == 0 {
            return;
        }
        let time = self.time(client);
        let ended = self.files.with_locks(file, |locks| locks.end_open(open, &owners, time));
        let (ranges, stateids) = (ended.unwrap_or(0).cast_signed(), owners.len().cast_signed());
        self.count_locks(opens, -ranges, -stateids);
    }

    /// A client has so many more ranges and lock stateids.
    pub(crate) fn count_locks(&self, opens: &mut ClientOpens, ranges: isize, stateids: isize) {
        opens.locks.add_ranges(ranges);
        // A negative number wraps, and so does the sum.
        self.locks.fetch_add((ranges + stateids).cast_unsigned(), Ordering::Relaxed);
    }

    pub(crate) fn ranges_a_client_max(&self) -> usize {
        usize::try_from(self.settings.limits.ranges_a_client_max).unwrap_or(usize::MAX)
    }

    /// Whether the locks of all clients may become more. Each thread that is told so at the same
    /// time may add up to three.
    pub(crate) fn has_room_for_locks(&self) -> bool {
        let count_max = usize::try_from(self.settings.limits.locks_max).unwrap_or(usize::MAX);
        self.locks.load(Ordering::Relaxed) < count_max
    }

    /// Ranges that a client may still make.
    fn room(&self, opens: &ClientOpens) -> usize {
        self.ranges_a_client_max().saturating_sub(opens.locks.ranges())
    }

    pub(crate) fn time(&self, client: &Client) -> Time {
        Time { now_ms: client.now_ms(), lease_ms: self.settings.lease_ms }
    }
}

impl From<Refused> for Stopped<LockError> {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Living(range) => Self::Failed(LockError::Denied((&range).into())),
            Refused::Expired(clients, range) => {
                Self::ByExpired(clients, LockError::Denied((&range).into()))
            }
            Refused::NoRoom => StateError::TryLater.into(),
        }
    }
}
