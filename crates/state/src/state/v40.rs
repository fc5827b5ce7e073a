//! What minor version 0 has in the place of sessions (RFC 7530 §9): clients by `SETCLIENTID`, and
//! owners whose requests follow each other by sequence ids.
//!
//! An operation that has a sequence id is begun by one of the `begin_` methods. Its repetition gets
//! the kept reply; else an [`OwnerInUse`] holds the owner's sequence until [`OwnerInUse::finish`].
//! In between no other request of that owner begins.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::client::opens::ClientOpens;
use crate::client::owners::{Begun, OwnerName};
use crate::ids::OpenNumber;
use crate::image::Event;
use crate::settings::OWNER_BYTES_MAX;
use crate::{
    Callback, Client, ClientId, FileKey, OwnerReply, OwnerRequest, Principal, SetClient,
    SetClientError, SetClientId, State, StateError, StateId,
};

/// How an operation with a sequence id begins.
#[derive(Debug)]
pub enum OwnerBegun {
    /// It is to be executed.
    New(OwnerInUse),
    /// It is the owner's last one again, and gets this reply again.
    Again(OwnerReply),
}

/// The sequence of an owner, one of whose operations is being executed. Dropped, the operation has
/// not used its sequence id.
#[derive(Debug)]
pub struct OwnerInUse {
    client: Arc<Client>,
    /// `None` once it is finished.
    name: Option<OwnerName>,
    request: OwnerRequest,
}

impl OwnerInUse {
    /// Whose it is.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The operation has ended and used its sequence id: this is what its repetition gets.
    pub fn finish(mut self, reply: OwnerReply) -> OwnerAnswered {
        let (client, request) = (Arc::clone(&self.client), self.request);
        let name = self.name.take();
        if let Some(name) = &name {
            let now_ms = client.now_ms();
            let mut owners = client.owners.lock();
            owners.finish(name, &request, reply, now_ms);
            owners.note(&client, name);
        }
        OwnerAnswered { client, name, request }
    }
}

/// An operation of an owner that was answered.
#[derive(Debug)]
pub struct OwnerAnswered {
    client: Arc<Client>,
    name: Option<OwnerName>,
    request: OwnerRequest,
}

impl OwnerAnswered {
    /// It has failed after all, before its client was answered: its repetition gets this.
    pub fn answer_otherwise(&self, reply: OwnerReply) {
        let Some(name) = &self.name else { return };
        let mut owners = self.client.owners.lock();
        if owners.answer_otherwise(name, &self.request, reply) {
            owners.note(&self.client, name);
        }
    }

    /// It counts as not executed: its client is told nothing of it, and sends it again, or another one, by the
    /// same sequence id.
    pub fn unuse(&self) {
        let Some(name) = &self.name else { return };
        let mut owners = self.client.owners.lock();
        if owners.unuse(name, &self.request) {
            owners.note(&self.client, name);
        }
    }
}

impl Drop for OwnerInUse {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            self.client.owners.lock().give_up(&name);
        }
    }
}

impl State {
    /// `SETCLIENTID` (RFC 7530 §16.33).
    ///
    /// # Errors
    /// [`SetClientError::InUse`]; [`StateError::Invalid`] for a name of more than 1,024 bytes. There is
    /// always room: the oldest unconfirmed record makes it.
    pub fn set_client(
        &self,
        now_ms: u64,
        request: &SetClient<'_>,
    ) -> Result<SetClientId, SetClientError> {
        self.advance(now_ms);
        let mut left = Vec::new();
        let set = self.registry.lock().set_client(now_ms, &self.settings, request, &mut left);
        self.end_all(left);
        set
    }

    /// `SETCLIENTID_CONFIRM` (RFC 7530 §16.34). Another client of the same name loses its state before
    /// this returns.
    ///
    /// # Errors
    /// [`StateError::StaleClientId`], [`StateError::ClientInUse`]; [`StateError::TryLater`] if there are
    /// too many clients.
    pub fn confirm_set_client(
        &self,
        now_ms: u64,
        client: ClientId,
        confirm: [u8; 8],
        principal: &Principal,
    ) -> Result<(), StateError> {
        self.advance(now_ms);
        let (settings, mut left) = (&self.settings, Vec::new());
        let confirmed = self
            .registry
            .lock()
            .confirm_set_client(now_ms, settings, client, confirm, principal, &mut left);
        self.end_all(left);
        confirmed
    }

    /// The client of minor version 0 that has this id. It was heard: its lease begins anew.
    ///
    /// # Errors
    /// [`StateError::StaleClientId`]; [`StateError::Expired`] for one that was.
    pub fn set_client_of(&self, now_ms: u64, id: ClientId) -> Result<Arc<Client>, StateError> {
        self.advance(now_ms);
        let client = self.registry.lock().find_set(id)?;
        client.renew(now_ms);
        Ok(client)
    }

    /// The client of minor version 0 whose stateid this is. Its lease begins anew if the stateid is good: of
    /// any other nobody knows who has sent it (RFC 7530 §9.5).
    ///
    /// # Errors
    /// [`StateError::StaleStateId`] for one of before the server lost what it knew;
    /// [`StateError::Expired`] if the client is gone; [`StateError::BadStateId`] if there never was
    /// such a stateid.
    pub fn client_of_stateid(&self, now_ms: u64, id: &StateId) -> Result<Arc<Client>, StateError> {
        let Some((instance, index)) = id.origin() else {
            // Another version of the server may have had other kinds.
            let is_of_before = (1..self.settings.instance).contains(&id.instance());
            return Err(if is_of_before {
                StateError::StaleStateId
            } else {
                StateError::BadStateId
            });
        };
        if instance != self.settings.instance {
            return Err(StateError::StaleStateId);
        }
        self.advance(now_ms);
        let client = self.registry.lock().find_set_at(index)?;
        let is_good =
            id.seqid != 0 && client.opens.lock().named_by_any(self.settings.instance, id).is_ok();
        if is_good {
            client.renew(now_ms);
        }
        Ok(client)
    }

    /// Whether a stateid may be used for anything but OPEN, CLOSE, and `OPEN_CONFIRM`: its owner must be
    /// confirmed. A seqid of 0 does not name the latest, as it does from minor version 1 on.
    ///
    /// # Errors
    /// [`StateError::BadStateId`], [`StateError::OldStateId`].
    pub fn require_usable(&self, client: &Client, id: &StateId) -> Result<(), StateError> {
        if id.seqid == 0 {
            let opens = client.opens.lock();
            opens.named_by_any(self.settings.instance, id)?;
            return Err(StateError::OldStateId);
        }
        let number = id.open_number(self.settings.instance);
        let may_use = number.is_none_or(|number| client.owners.lock().may_use(number));
        if may_use { Ok(()) } else { Err(StateError::BadStateId) }
    }

    /// Who has nothing: for I/O by the special stateids, which name no client in minor version 0.
    pub fn nobody(&self) -> &Arc<Client> {
        &self.nobody
    }

    /// Where a client of minor version 0 wants to be called back.
    pub fn callback(&self, client: ClientId) -> Option<Callback> {
        self.registry.lock().callback(client)
    }

    /// Begins an OPEN. An owner that has not confirmed its last one begins anew, and loses what that
    /// had opened.
    ///
    /// # Errors
    /// [`StateError::BadSequence`], [`StateError::OwnerBusy`]; [`StateError::Invalid`] for an owner of
    /// more than 1,024 bytes; [`StateError::TryLater`] if the client has too many.
    pub fn begin_open(
        &self,
        client: &Arc<Client>,
        owner: &[u8],
        request: &OwnerRequest,
    ) -> Result<OwnerBegun, StateError> {
        if owner.len() > OWNER_BYTES_MAX {
            return Err(StateError::Invalid);
        }
        let owners_max = self.settings.limits.opens_a_client_max;
        let owners_max = usize::try_from(owners_max).unwrap_or(usize::MAX);
        let has_opens = |name: &[u8]| client.opens.lock().has_owner(name);
        let begun = client.owners.lock().begin_open(owner, request, owners_max, has_opens)?;
        if let Begun::New(_, Some(number)) = &begun {
            let mut opens = client.opens.lock();
            self.close_number(client, &mut opens, *number);
        }
        Ok(in_use(client, request, begun))
    }

    /// Begins an operation by an open: CLOSE, `OPEN_DOWNGRADE`, a lock-owner's first LOCK; or
    /// `OPEN_CONFIRM`, which `confirms`.
    ///
    /// # Errors
    /// [`StateError::BadStateId`], also if the owner is not confirmed, or is and `confirms`;
    /// [`StateError::BadSequence`], [`StateError::OwnerBusy`], [`StateError::Expired`].
    pub fn begin_by_open(
        &self,
        client: &Arc<Client>,
        id: &StateId,
        request: &OwnerRequest,
        confirms: bool,
    ) -> Result<OwnerBegun, StateError> {
        let number = id.open_number(self.settings.instance).ok_or(StateError::BadStateId)?;
        let owner = {
            let opens = client.opens.lock();
            if opens.is_ended {
                return Err(StateError::Expired);
            }
            opens.get(number).map(|record| Arc::clone(&record.owner))
        };
        let mut owners = client.owners.lock();
        let begun = owners.begin_by_open(number, owner.as_deref(), request, confirms)?;
        Ok(in_use(client, request, begun))
    }

    /// Begins an operation by a lock stateid: LOCK or LOCKU.
    ///
    /// # Errors
    /// [`StateError::BadStateId`], [`StateError::BadSequence`], [`StateError::OwnerBusy`],
    /// [`StateError::Expired`].
    pub fn begin_by_lock(
        &self,
        client: &Arc<Client>,
        id: &StateId,
        request: &OwnerRequest,
    ) -> Result<OwnerBegun, StateError> {
        let number = id.lock_number(self.settings.instance).ok_or(StateError::BadStateId)?;
        let owner = {
            let opens = client.opens.lock();
            if opens.is_ended {
                return Err(StateError::Expired);
            }
            let record = opens.locks.get(number).ok_or(StateError::BadStateId)?;
            Arc::clone(&record.owner.name)
        };
        let begun = client.owners.lock().begin_by_lock(&owner, request)?;
        Ok(in_use(client, request, begun))
    }

    /// An OPEN that was begun has made this stateid; whether its owner has to confirm it.
    pub fn opened(&self, owner: &OwnerInUse, id: &StateId) -> bool {
        let number = id.open_number(self.settings.instance);
        owner
            .name
            .as_ref()
            .zip(number)
            .is_some_and(|(name, number)| owner.client.owners.lock().opened(name, number))
    }

    /// `OPEN_CONFIRM` that was begun.
    ///
    /// # Errors
    /// [`StateError::BadStateId`], [`StateError::OldStateId`], [`StateError::Expired`].
    pub fn confirm_open(
        &self,
        owner: &OwnerInUse,
        id: &StateId,
        file: &FileKey,
    ) -> Result<StateId, StateError> {
        let (number, seqid) = {
            let mut opens = owner.client.opens.lock();
            let (number, record) = opens.named(self.settings.instance, id)?;
            if record.file != *file {
                return Err(StateError::BadStateId);
            }
            let record = opens.get_mut(number).ok_or(StateError::BadStateId)?;
            let seqid = record.raise_seqid();
            self.note_open(&owner.client, number, record);
            (number, seqid)
        };
        if let Some(name) = &owner.name {
            owner.client.owners.lock().confirmed(name);
        }
        Ok(StateId::of_open(self.settings.instance, number, seqid))
    }

    /// A CLOSE that was begun has ended this stateid: the CLOSE may come again.
    pub fn closed(&self, owner: &OwnerInUse, id: &StateId) {
        let number = id.open_number(self.settings.instance);
        if let Some((name, number)) = owner.name.as_ref().zip(number) {
            owner.client.owners.lock().closed(name, number);
        }
    }

    /// Judges the sequence id of a lock-owner that asks for a lock by an open.
    ///
    /// # Errors
    /// [`StateError::BadSequence`], [`StateError::OwnerBusy`].
    pub fn judge_locker(
        &self,
        client: &Client,
        owner: &[u8],
        seqid: u32,
    ) -> Result<(), StateError> {
        let has_locks = client.opens.lock().locks.has_owner(owner);
        client.owners.lock().judge_locker(owner, seqid, has_locks)
    }

    /// A LOCK by an open has ended, and has used the sequence id of its lock-owner. One that got
    /// nothing, and has nothing, is not known after that.
    pub fn locked(&self, client: &Client, owner: &[u8], seqid: u32) {
        let mut owners = client.owners.lock();
        if client.opens.lock().locks.has_owner(owner) {
            owners.locked(owner, seqid);
            owners.note(client, &OwnerName::Lock(owner.into()));
        } else {
            owners.forget_locker(owner);
        }
    }

    /// `RELEASE_LOCKOWNER` (RFC 7530 §16.37). What the owner waits for it does not want any more.
    ///
    /// # Errors
    /// [`StateError::LocksHeld`].
    pub fn release_lock_owner(&self, client: &Client, owner: &[u8]) -> Result<(), StateError> {
        let mut owners = client.owners.lock();
        let mut opens = client.opens.lock();
        let mut numbers = Vec::new();
        for (number, record) in opens.locks.of_owner(owner) {
            let has =
                |locks: &mut crate::file_locks::FileLocks| locks.has(&record.owner, record.open);
            if self.files.with_locks(&record.file, has) == Some(true) {
                return Err(StateError::LocksHeld);
            }
            numbers.push(number);
        }
        for number in numbers {
            opens.locks.remove(number);
            self.journal.note(&Event::LockGone { client: client.id(), number });
            self.count_locks(&mut opens, 0, -1);
        }
        owners.forget_locker(owner);
        if client.waits.load(Ordering::Relaxed) > 0 {
            let files: BTreeSet<FileKey> = opens.iter().map(|(_, record)| record.file).collect();
            let time = self.time(client);
            for file in files {
                self.files.with_locks(&file, |locks| locks.end_waits(client, owner, time));
            }
        }
        Ok(())
    }

    /// Open-owners and lock-owners of a client, for tests and listings.
    pub fn owners(&self, client: &Client) -> (usize, usize) {
        client.owners.lock().counts()
    }

    /// Forgets owners that have nothing, or never confirmed it, a lease after they were heard last.
    pub(crate) fn forget_owners(&self, now_ms: u64) {
        const TIMES_A_LEASE: u64 = 8;
        let lease_ms = self.settings.lease_ms;
        let swept_ms = self.owners_swept_ms.load(Ordering::Relaxed);
        if now_ms < swept_ms.saturating_add(lease_ms / TIMES_A_LEASE) {
            return;
        }
        self.owners_swept_ms.store(now_ms, Ordering::Relaxed);
        let clients = self.registry.lock().set_clients();
        for client in clients {
            let mut owners = client.owners.lock();
            if owners.is_empty() {
                continue;
            }
            let mut opens = client.opens.lock();
            let before_ms = now_ms.saturating_sub(lease_ms);
            for number in owners.take_unconfirmed(before_ms) {
                self.close_number(&client, &mut opens, number);
            }
            owners.forget_idle(before_ms, |name| opens.has_owner(name));
            owners.forget_lockers(|name| opens.locks.has_owner(name));
        }
    }

    fn close_number(&self, client: &Client, opens: &mut ClientOpens, number: OpenNumber) {
        let Some(file) = opens.get(number).map(|record| record.file) else { return };
        self.end_open(client, opens, number, &file);
    }
}

fn in_use(client: &Arc<Client>, request: &OwnerRequest, begun: Begun) -> OwnerBegun {
    match begun {
        Begun::New(name, _) => OwnerBegun::New(OwnerInUse {
            client: Arc::clone(client),
            name: Some(name),
            request: *request,
        }),
        Begun::Again(reply) => OwnerBegun::Again(reply),
    }
}
