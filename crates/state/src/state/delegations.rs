//! Delegations (RFC 8881 §10.4): a client may act on a file as if nobody else did, until it is asked to
//! give that back.
//!
//! A delegation to read says that nobody else writes the file, and no one changes its attributes or
//! names; one to write says that nobody else has the file open. Whoever is about to do otherwise asks
//! here first. That begins a *recall*: the holder is told ([`Effect::Recall`]), and who asked is told to
//! ask again ([`StateError::Recalling`]) until the delegation is returned. If it is not returned within a lease
//! of being recalled it is *revoked*.
//!
//! A change of a file counts itself in a cell while it runs, by a hash of the file; each delegation
//! counts there too. So a change that finds no delegation is one atomic operation at its begin and one at
//! its end, and no delegation is granted while a change is under way: who grants counts first, and
//! gives up if a change is counted. An OPEN is judged and counted under the lock of the file's
//! delegations, and so is a grant by the opens of others.
//!
//! Locks: one client's opens, then one shard of the delegations, then one shard of the files.

mod counts;
mod guarded;
mod looks;
mod revoking;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::attempt::Stopped;
use crate::delegation_record::{DelegationKind, DelegationRecord};
use crate::gate::place;
use crate::ids::DelegationNumber;
use crate::image::Event;
use crate::settings::Delegations as Given;
use crate::share::Share;
use crate::written_unseen::WrittenUnseen;
use crate::{Client, Effect, FileKey, Granted, ShareAccess, ShareDeny, State, StateError, StateId};

const SHARDS: usize = 64;
/// Cells: 512 KiB of memory.
const CELLS: usize = 1 << 16;
/// A delegation counts so much in a cell; a change under way counts 1.
const MARK: u64 = 1 << 32;
/// After a recall nobody gets a delegation of the file for so long, in ms: it is in use by several.
const QUIET_MS: u64 = 30_000;
/// Files of one shard that are quiet. One more, and the whole shard is.
const QUIET_FILES_MAX: usize = 1024;
/// A holder that has not answered is asked again after this time, in ms.
const ASKED_AGAIN_MS: u64 = 10_000;
/// A delegation is not recalled before this time has passed since it was granted, in ms: the reply that
/// grants it has to come first.
const REPLIED_MS: u64 = 1_000;
/// Leases for which a delegation is kept whose holder could not be told of the recall yet, though it has
/// connections for that.
const UNSENT_LEASES: u64 = 5;
/// Clients with expired leases that one judgement names.
const EXPIRED_MAX: usize = 64;

/// What is asked of a delegation.
#[derive(Clone, Copy, Debug)]
pub struct Delegate<'a> {
    /// The file. The client has it open.
    pub file: FileKey,
    /// The kind.
    pub kind: DelegationKind,
    /// The file's handle, by which it will be recalled.
    pub handle: &'a [u8],
    /// Whether the client had it before the server lost it (`CLAIM_PREVIOUS`).
    pub is_reclaim: bool,
}

/// Why no delegation was granted (RFC 8881 §18.16.3, `why_no_delegation4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDelegated {
    /// Others use the file, or did a moment ago.
    Contention,
    /// A limit is reached, or the client cannot be called.
    Resource,
    /// The client has one to read and wants one to write.
    Upgrade,
    /// The client has one already that is enough.
    HasOne,
    /// The server grants none of this kind.
    NotGiven,
}

/// A recall that is under way.
#[derive(Clone, Copy, Debug, Default)]
struct Recall {
    since_ms: u64,
    /// When the holder was first told.
    sent_ms: Option<u64>,
    /// When telling it was last tried.
    tried_ms: u64,
    is_answered: bool,
    /// It is revoked at this time, if it was not returned by then, however long the holder has known.
    until_ms: Option<u64>,
}

/// A delegation as its file knows it.
#[derive(Debug)]
struct Held {
    number: DelegationNumber,
    client: Arc<Client>,
    kind: DelegationKind,
    handle: Arc<[u8]>,
    granted_ms: u64,
    recall: Option<Recall>,
    /// Of one to write.
    unseen: Option<Box<WrittenUnseen>>,
}

impl Held {
    fn effect(&self, instance: u32, file: &FileKey) -> Effect {
        Effect::Recall {
            client: Arc::clone(&self.client),
            id: StateId::of_delegation(instance, self.number),
            file: *file,
            handle: Arc::clone(&self.handle),
            not_before_ms: self.granted_ms.saturating_add(REPLIED_MS),
        }
    }
}

/// What a shard of the delegations has.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    files: HashMap<FileKey, Vec<Held>>,
    /// Until when nobody gets a delegation of a file.
    quiet: HashMap<FileKey, u64>,
    all_quiet_until_ms: u64,
}

impl Shard {
    fn find(&self, file: &FileKey, number: DelegationNumber) -> Option<&Held> {
        self.files.get(file)?.iter().find(|held| held.number == number)
    }

    fn find_mut(&mut self, file: &FileKey, number: DelegationNumber) -> Option<&mut Held> {
        self.files.get_mut(file)?.iter_mut().find(|held| held.number == number)
    }

    fn is_quiet(&self, file: &FileKey, now_ms: u64) -> bool {
        let until_ms = self.quiet.get(file).copied().unwrap_or(0);
        until_ms.max(self.all_quiet_until_ms) > now_ms
    }

    fn quieten(&mut self, file: &FileKey, now_ms: u64) {
        let until_ms = now_ms.saturating_add(QUIET_MS);
        if self.quiet.len() >= QUIET_FILES_MAX {
            self.quiet.retain(|_, until_ms| *until_ms > now_ms);
        }
        if self.quiet.len() >= QUIET_FILES_MAX {
            self.quiet.clear();
            self.all_quiet_until_ms = until_ms;
        }
        self.quiet.insert(*file, until_ms);
    }
}

use self::counts::Counters;
pub use self::counts::DelegationCounts;
pub use self::looks::{HolderAnswered, Look, Telling};

/// Who is about to do something with a file.
#[derive(Clone, Copy)]
pub(crate) struct Toucher<'a> {
    /// `None` if it is no client of NFSv4.
    pub(crate) client: Option<&'a Arc<Client>>,
    pub(crate) now_ms: u64,
    pub(crate) lease_ms: u64,
}

/// A change of a file that is under way: until this is dropped nobody gets a delegation of it.
#[derive(Debug)]
#[must_use = "the change ends with this"]
pub struct Change<'s>(Option<&'s AtomicU64>);

impl Change<'_> {
    /// Of a server without delegations.
    pub fn of_nothing() -> Self {
        Self(None)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if let Some(cell) = self.0 {
            cell.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The delegations of all clients.
pub(crate) struct DelegationTable {
    /// Whether there may be delegations at all. It is never unset.
    is_on: AtomicBool,
    /// Whether somebody wants to know when a file has none any more.
    is_watched: AtomicBool,
    cells: Box<[AtomicU64]>,
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    /// How many there are.
    total: AtomicU64,
    /// Those that are recalled, and some that were.
    recalls: Mutex<Vec<(FileKey, DelegationNumber)>>,
    counters: Counters,
    /// How many are gone that were there.
    released: AtomicU64,
    /// The number of the next question to a holder.
    questions: AtomicU64,
    /// Files of which somebody has lost a delegation, and how many records have to be stable before others change
    /// them.
    unrecorded: Mutex<HashMap<FileKey, u64>>,
    /// Whether there are some.
    has_unrecorded: AtomicBool,
}

impl DelegationTable {
    pub(crate) fn new(given: Given) -> Self {
        Self {
            is_on: AtomicBool::new(given != Given::None),
            is_watched: AtomicBool::new(false),
            cells: (0..CELLS).map(|_| AtomicU64::new(0)).collect(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            total: AtomicU64::new(0),
            recalls: Mutex::default(),
            counters: Counters::default(),
            released: AtomicU64::new(0),
            questions: AtomicU64::new(1),
            unrecorded: Mutex::default(),
            has_unrecorded: AtomicBool::new(false),
        }
    }

    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    fn cell(&self, file: &FileKey) -> Option<&AtomicU64> {
        self.cells.get(place(file))
    }

    fn shard(&self, file: &FileKey) -> Option<MutexGuard<'_, Shard>> {
        let hash = self.hasher.hash_one(file);
        Some(self.shards.get((hash >> 40) as usize % SHARDS)?.lock())
    }

    fn mark(&self, file: &FileKey) -> bool {
        let before = self.cell(file).map_or(0, |cell| cell.fetch_add(MARK, Ordering::SeqCst));
        // The low half counts the changes under way.
        before.is_multiple_of(MARK)
    }

    fn unmark(&self, file: &FileKey) {
        if let Some(cell) = self.cell(file) {
            cell.fetch_sub(MARK, Ordering::SeqCst);
        }
    }

    /// Whether the cells count the delegations that there are, and no change.
    #[cfg(test)]
    pub(crate) fn is_gate_right(&self) -> bool {
        let mut right = vec![0; CELLS];
        let mut total = 0;
        for shard in &self.shards {
            for (file, held) in &shard.lock().files {
                right[place(file)] += held.len() as u64 * MARK;
                total += held.len() as u64;
            }
        }
        let cells = self.cells.iter().map(|cell| cell.load(Ordering::SeqCst));
        cells.eq(right) && self.total.load(Ordering::SeqCst) == total
    }
}

impl State {
    /// Whether delegations are granted, or there may be some.
    pub fn has_delegations(&self) -> bool {
        self.delegations.is_on()
    }

    /// A file is about to be changed: its data, its attributes, or a name of it. By a client of NFSv4
    /// from minor version 1 on, whose own delegation is not in its way, or by somebody else. To be held
    /// until the change is applied.
    ///
    /// # Errors
    /// [`StateError::Recalling`] if somebody else has a delegation; [`StateError::TryLater`] if very
    /// many clients have to expire.
    pub fn begin_change(
        &self,
        now_ms: u64,
        by: Option<&Arc<Client>>,
        file: &FileKey,
    ) -> Result<Change<'_>, StateError> {
        if !self.delegations.is_on() {
            return Ok(Change(None));
        }
        let Some(cell) = self.delegations.cell(file) else { return Ok(Change(None)) };
        let before = cell.fetch_add(1, Ordering::SeqCst);
        let change = Change(Some(cell));
        if before >= MARK {
            self.touch(now_ms, by, file, true)?;
        }
        Ok(change)
    }

    /// The data or the attributes of a file are about to be read, by whoever has not opened it.
    ///
    /// # Errors
    /// [`StateError::Recalling`] if somebody else has a delegation to write; as of
    /// [`State::begin_change`].
    pub fn begin_read(
        &self,
        now_ms: u64,
        by: Option<&Arc<Client>>,
        file: &FileKey,
    ) -> Result<(), StateError> {
        if !self.delegations.is_on() {
            return Ok(());
        }
        let is_free = self.delegations.cell(file).is_none_or(|cell| {
            // Who reads at the time of a grant has read before the holder could write.
            cell.load(Ordering::Acquire) < MARK
        });
        if is_free {
            return Ok(());
        }
        self.touch(now_ms, by, file, false)
    }

    fn touch(
        &self,
        now_ms: u64,
        by: Option<&Arc<Client>>,
        file: &FileKey,
        is_change: bool,
    ) -> Result<(), StateError> {
        self.advance(now_ms);
        let asking = by.unwrap_or(&self.nobody);
        self.repeated(asking, || {
            let now_ms = asking.now_ms();
            let toucher = Toucher { client: by, now_ms, lease_ms: self.settings.lease_ms };
            let Some(mut shard) = self.delegations.shard(file) else { return Ok(()) };
            let conflicts = |kind| is_change || kind == DelegationKind::Write;
            self.recall_conflicting(&mut shard, toucher, file, &conflicts)?;
            // What is left is the client's own.
            let own = shard.files.get_mut(file).into_iter().flatten().filter(|_| is_change);
            own.filter_map(|held| held.unseen.as_mut()).for_each(|unseen| unseen.is_written());
            Ok(())
        })
    }

    /// An open of this share is about to be added. What this returns is held until it is.
    pub(crate) fn admit_open(
        &self,
        client: &Arc<Client>,
        file: &FileKey,
        share: Share,
    ) -> Result<Option<MutexGuard<'_, Shard>>, Stopped<StateError>> {
        if !self.delegations.is_on() {
            return Ok(None);
        }
        let Some(mut shard) = self.delegations.shard(file) else { return Ok(None) };
        let (now_ms, lease_ms) = (client.now_ms(), self.settings.lease_ms);
        let toucher = Toucher { client: Some(client), now_ms, lease_ms };
        let disturbs_reading =
            share.access.contains(ShareAccess::WRITE) || share.deny.contains(ShareDeny::READ);
        self.recall_conflicting(&mut shard, toucher, file, &|kind| match kind {
            DelegationKind::Read => disturbs_reading,
            DelegationKind::Write => true,
        })?;
        Ok(Some(shard))
    }

    /// Begins to recall what others have that conflicts.
    fn recall_conflicting(
        &self,
        shard: &mut Shard,
        toucher: Toucher<'_>,
        file: &FileKey,
        conflicts: &impl Fn(DelegationKind) -> bool,
    ) -> Result<(), Stopped<StateError>> {
        let Some(all) = shard.files.get_mut(file) else { return Ok(()) };
        let is_own =
            |held: &Held| toucher.client.is_some_and(|client| Arc::ptr_eq(client, &held.client));
        let (mut is_held, mut expired) = (false, Vec::new());
        for held in all.iter_mut().filter(|held| !is_own(held) && conflicts(held.kind)) {
            if held.client.silent_ms(toucher.now_ms) > toucher.lease_ms {
                if expired.len() < EXPIRED_MAX {
                    expired.push(Arc::clone(&held.client));
                }
            } else {
                is_held = true;
            }
            // Also of one that expires: it may not be able to, while it has a request under way.
            self.begin_recall(held, file, toucher.now_ms);
        }
        if is_held || !expired.is_empty() {
            shard.quieten(file, toucher.now_ms);
        }
        match (is_held, expired.is_empty()) {
            (true, _) => Err(StateError::Recalling.into()),
            (false, true) => Ok(()),
            (false, false) => Err(Stopped::ByExpired(expired, StateError::Recalling)),
        }
    }

    fn begin_recall(&self, held: &mut Held, file: &FileKey, now_ms: u64) {
        if held.recall.is_some() {
            return;
        }
        let (since_ms, tried_ms) = (now_ms, now_ms);
        held.recall = Some(Recall { since_ms, tried_ms, ..Recall::default() });
        let (client, number) = (held.client.id(), held.number);
        self.journal.note(&Event::DelegationRecalled { client, number });
        self.give_up_questions(held, file);
        self.delegations.recalls.lock().push((*file, number));
        self.delegations.counters.recalled.fetch_add(1, Ordering::Relaxed);
        self.files.effects.push(held.effect(self.settings.instance, file));
    }

    /// Grants a delegation to a client that has just opened the file by minor version 1 or later.
    ///
    /// # Errors
    /// Why it is not granted.
    pub fn delegate(
        &self,
        now_ms: u64,
        client: &Arc<Client>,
        request: &Delegate<'_>,
    ) -> Result<StateId, NotDelegated> {
        self.grant_delegation(now_ms, client, request).map(|granted| granted.id())
    }

    /// [`State::delegate`], of a request that may fail after it.
    ///
    /// # Errors
    /// Those of [`State::delegate`].
    pub fn grant_delegation(
        &self,
        now_ms: u64,
        client: &Arc<Client>,
        request: &Delegate<'_>,
    ) -> Result<Granted, NotDelegated> {
        let Delegate { file, kind, handle, is_reclaim } = *request;
        if !self.settings.delegations.gives(kind) {
            return Err(NotDelegated::NotGiven);
        }
        let may_have = is_reclaim || client.has_callback_path() && !self.is_in_grace(now_ms);
        let limits = &self.settings.limits;
        let has_room =
            self.delegations.total.load(Ordering::Relaxed) < u64::from(limits.delegations_max);
        if !may_have || !has_room {
            return Err(NotDelegated::Resource);
        }
        let mut opens = client.opens.lock();
        let count_max = usize::try_from(limits.delegations_a_client_max).unwrap_or(usize::MAX);
        if opens.is_ended || opens.delegations.len() >= count_max {
            return Err(NotDelegated::Resource);
        }
        // After a loss of all nobody could tell the new one from that of which it may not have heard.
        if opens.lost.has(&file) {
            return Err(NotDelegated::Contention);
        }
        let mut shard = self.delegations.shard(&file).ok_or(NotDelegated::Resource)?;
        let own = shard.files.get(&file).and_then(|all| {
            all.iter().find(|held| Arc::ptr_eq(&held.client, client)).map(|held| held.kind)
        });
        match own {
            Some(own) if own < kind => return Err(NotDelegated::Upgrade),
            Some(_) => return Err(NotDelegated::HasOne),
            None => {}
        }
        if shard.is_quiet(&file, now_ms) {
            return Err(NotDelegated::Contention);
        }
        let is_alone = self.delegations.mark(&file);
        let conflicts = |held: &Held| {
            kind == DelegationKind::Write
                || held.kind == DelegationKind::Write
                || held.recall.is_some()
        };
        let is_contended = shard.files.get(&file).is_some_and(|all| all.iter().any(conflicts));
        let may_have = self.files.may_delegate(client, &file, (kind, is_reclaim));
        if !is_alone || is_contended || !may_have {
            self.delegations.unmark(&file);
            return Err(NotDelegated::Contention);
        }
        let number =
            DelegationNumber::new(client.id(), self.serial.fetch_add(1, Ordering::Relaxed));
        let record = DelegationRecord { file, kind, handle: handle.into(), is_revoked: false };
        self.hold(&mut shard, client, number, &record, (now_ms, None));
        self.note_delegation(client, number, &record, false);
        opens.delegations.insert(number, record);
        let counters = &self.delegations.counters;
        let counter = match kind {
            DelegationKind::Read => &counters.granted_read,
            DelegationKind::Write => &counters.granted_write,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let id = StateId::of_delegation(self.settings.instance, number);
        Ok(Granted::delegation(client, id))
    }

    /// Gives a file a delegation, which is counted in its cell already.
    fn hold(
        &self,
        shard: &mut Shard,
        client: &Arc<Client>,
        number: DelegationNumber,
        record: &DelegationRecord,
        (granted_ms, recall): (u64, Option<Recall>),
    ) {
        let (client, handle) = (Arc::clone(client), Arc::clone(&record.handle));
        let kind = record.kind;
        let unseen = (kind == DelegationKind::Write).then(Box::default);
        let held = Held { number, client, kind, handle, granted_ms, recall, unseen };
        shard.files.entry(record.file).or_default().push(held);
        self.delegations.total.fetch_add(1, Ordering::Relaxed);
    }

    fn note_delegation(
        &self,
        client: &Client,
        number: DelegationNumber,
        record: &DelegationRecord,
        is_recalled: bool,
    ) {
        let DelegationRecord { file, kind, ref handle, is_revoked } = *record;
        let client = client.id();
        self.journal.note(&Event::Delegation {
            client,
            number,
            file,
            kind,
            handle,
            is_recalled,
            is_revoked,
        });
    }

    /// Notes all delegations of a client.
    pub(crate) fn note_delegations(
        &self,
        client: &Client,
        opens: &crate::client::opens::ClientOpens,
    ) {
        for (number, record) in &opens.delegations {
            // Others may begin a recall at this time: they note it before this or after.
            let shard = self.delegations.shard(&record.file);
            let held = shard.as_ref().and_then(|shard| shard.find(&record.file, *number));
            let is_recalled = held.is_some_and(|held| held.recall.is_some());
            self.note_delegation(client, *number, record, is_recalled);
        }
    }

    /// Makes a delegation again that another process has granted. If it was recalled, it is recalled
    /// again; and so it is if none are granted any more.
    pub(crate) fn restore_delegation(
        &self,
        client: &Arc<Client>,
        opens: &mut crate::client::opens::ClientOpens,
        number: DelegationNumber,
        record: DelegationRecord,
        is_recalled: bool,
    ) {
        let (file, now_ms) = (record.file, client.now_ms());
        if record.is_revoked {
            client.revoked.fetch_add(1, Ordering::Relaxed);
            opens.lost.add(file, &record.handle);
        } else if let Some(mut shard) = self.delegations.shard(&file) {
            self.delegations.is_on.store(true, Ordering::Relaxed);
            self.delegations.mark(&file);
            let is_recalled = is_recalled
                || self.settings.recalls_restored
                || !self.settings.delegations.gives(record.kind);
            let recall = is_recalled.then(|| {
                self.delegations.recalls.lock().push((file, number));
                shard.quieten(&file, now_ms);
                // It is sent at once when there is a path.
                Recall { since_ms: now_ms, ..Recall::default() }
            });
            self.hold(&mut shard, client, number, &record, (now_ms, recall));
        }
        opens.delegations.insert(number, record);
    }

    /// DELEGRETURN. `file`: where the stateid has to belong.
    ///
    /// # Errors
    /// [`StateError::BadStateId`], [`StateError::OldStateId`], [`StateError::Expired`];
    /// [`StateError::DelegationRevoked`].
    pub fn return_delegation(
        &self,
        client: &Arc<Client>,
        id: &StateId,
        file: Option<&FileKey>,
    ) -> Result<(), StateError> {
        let mut opens = client.opens.lock();
        let (number, record) = opens.named_delegation(self.settings.instance, id)?;
        if file.is_some_and(|file| record.file != *file) {
            return Err(StateError::BadStateId);
        }
        let file = record.file;
        self.delegation_gone(client, number);
        opens.delegations.remove(&number);
        self.release_delegation(&file, number);
        self.delegations.counters.returned.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Judges an access by a delegation: to read by either kind, to write by one to write.
    ///
    /// # Errors
    /// [`StateError::OpenMode`], and those of [`State::return_delegation`].
    pub fn judge_by_delegation(
        &self,
        client: &Client,
        id: &StateId,
        file: &FileKey,
        access: ShareAccess,
    ) -> Result<(), StateError> {
        let opens = client.opens.lock();
        let (_, record) = opens.named_delegation(self.settings.instance, id)?;
        if record.file != *file {
            return Err(StateError::BadStateId);
        }
        let is_enough = access == ShareAccess::READ || record.kind == DelegationKind::Write;
        if is_enough { Ok(()) } else { Err(StateError::OpenMode) }
    }

    fn delegation_gone(&self, client: &Client, number: DelegationNumber) {
        self.journal.note(&Event::DelegationGone { client: client.id(), number });
    }

    /// Nobody heeds a delegation any more.
    pub(crate) fn release_delegation(&self, file: &FileKey, number: DelegationNumber) {
        let Some(mut shard) = self.delegations.shard(file) else { return };
        let Some(all) = shard.files.get_mut(file) else { return };
        let Some(place) = all.iter().position(|held| held.number == number) else { return };
        let mut held = all.swap_remove(place);
        self.give_up_questions(&mut held, file);
        let is_waited_for = held.recall.is_some();
        let is_free = is_waited_for && all.iter().all(|held| held.recall.is_none());
        if all.is_empty() {
            shard.files.remove(file);
            if self.delegations.is_watched.load(Ordering::Relaxed) {
                self.files.effects.push(Effect::Undelegated { file: *file });
            }
        }
        // Before it is no longer counted: who finds none finds that one is gone.
        self.delegations.released.fetch_add(1, Ordering::Release);
        self.delegations.total.fetch_sub(1, Ordering::Release);
        self.delegations.unmark(file);
        if is_free {
            self.files.effects.push(Effect::Returned { file: *file });
        }
    }

    /// Looks after the recalls under way; to be called about once a second. What was not returned for a
    /// lease is revoked, and holders whose lease has expired lose all that they have.
    pub(crate) fn judge_recalls(&self, now_ms: u64) {
        let recalls = std::mem::take(&mut *self.delegations.recalls.lock());
        let lease_ms = self.settings.lease_ms;
        let mut left = Vec::with_capacity(recalls.len());
        for (file, number) in recalls {
            let (client, is_expired) = {
                let Some(mut shard) = self.delegations.shard(&file) else { continue };
                let Some(held) = shard.find_mut(&file, number) else { continue };
                let Some(recall) = &mut held.recall else { continue };
                let is_expired = held.client.silent_ms(now_ms) > lease_ms;
                // A client that could be told, and was not yet, keeps it for longer.
                let (from_ms, leases) = match recall.sent_ms {
                    Some(sent_ms) => (sent_ms, 1),
                    None if held.client.has_callback_path() => (recall.since_ms, UNSENT_LEASES),
                    None => (recall.since_ms, 1),
                };
                let is_over = now_ms.saturating_sub(from_ms) > lease_ms.saturating_mul(leases)
                    || recall.until_ms.is_some_and(|until_ms| now_ms >= until_ms);
                if !is_expired && !is_over {
                    left.push((file, number));
                    if recall.is_answered || now_ms < recall.tried_ms + ASKED_AGAIN_MS {
                        continue;
                    }
                    recall.tried_ms = now_ms;
                    let effect = held.effect(self.settings.instance, &file);
                    self.files.effects.push(effect);
                    continue;
                }
                (Arc::clone(&held.client), is_expired)
            };
            if !is_expired || !self.expire(now_ms, &client) {
                self.revoke(&client, &file, number);
            }
        }
        self.delegations.recalls.lock().append(&mut left);
    }

    /// Whether a delegation is recalled and its holder has not said that it has heard so.
    pub fn is_recall_unanswered(&self, file: &FileKey, id: &StateId) -> bool {
        self.with_recall(file, id, |recall| !recall.is_answered) == Some(true)
    }

    /// The holder was told of a recall. From the first time on it has a lease to return the delegation.
    pub fn recall_is_sent(&self, now_ms: u64, file: &FileKey, id: &StateId) {
        self.with_recall(file, id, |recall| {
            recall.sent_ms = recall.sent_ms.or(Some(now_ms));
            recall.tried_ms = now_ms;
        });
    }

    /// The holder has said that it will return a delegation.
    pub fn recall_is_answered(&self, file: &FileKey, id: &StateId) {
        self.with_recall(file, id, |recall| recall.is_answered = true);
    }

    fn with_recall<T>(
        &self,
        file: &FileKey,
        id: &StateId,
        change: impl FnOnce(&mut Recall) -> T,
    ) -> Option<T> {
        let number = id.delegation_number(self.settings.instance)?;
        let mut shard = self.delegations.shard(file)?;
        shard.find_mut(file, number)?.recall.as_mut().map(change)
    }

    /// Whether a delegation is recalled.
    pub(crate) fn is_recalled(&self, file: &FileKey, number: DelegationNumber) -> bool {
        let shard = self.delegations.shard(file);
        let held = shard.as_ref().and_then(|shard| shard.find(file, number));
        held.is_some_and(|held| held.recall.is_some())
    }
}
