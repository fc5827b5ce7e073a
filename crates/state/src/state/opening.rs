//! The operations on opens: OPEN, CLOSE, `OPEN_DOWNGRADE`, and what judges a stateid.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::attempt::Stopped;
use super::granted::Repeats;
use crate::client::lost_delegations::LostDelegations;
use crate::client::opens::OpenRecord;
use crate::files::{Asking, Conflict};
use crate::ids::OpenNumber;
use crate::image::Event;
use crate::settings::OWNER_BYTES_MAX;
use crate::share::Share;
use crate::{Client, FileKey, Granted, ShareAccess, ShareDeny, State, StateError, StateId};

/// What is asked of an OPEN, once its file is found.
#[derive(Clone, Copy, Debug)]
pub struct Open<'a> {
    /// The open-owner, without the client id.
    pub owner: &'a [u8],
    /// The file.
    pub file: FileKey,
    /// What the open is for. Not empty.
    pub access: ShareAccess,
    /// What it forbids further opens, also of its own owner, and others.
    pub deny: ShareDeny,
}

impl State {
    /// OPEN: a new open, or more of what the owner has of the file. What the owner has is in its way as
    /// that of others is (RFC 8881 §18.16, RFC 7530 §16.16).
    /// Clients whose lease has expired lose all that they have, if they alone are in the way.
    ///
    /// # Errors
    /// [`StateError::ShareDenied`]; [`StateError::Recalling`]; [`StateError::Invalid`] for an empty access or an owner of more
    /// than 1,024 bytes; [`StateError::Expired`] if the client is gone; [`StateError::TryLater`].
    pub fn open(&self, client: &Arc<Client>, request: &Open<'_>) -> Result<StateId, StateError> {
        self.grant_open(client, request, Repeats::None).map(|granted| granted.id())
    }

    /// [`State::open`], of a request that may fail after it; or that may come again.
    ///
    /// # Errors
    /// Those of [`State::open`].
    pub fn grant_open(
        &self,
        client: &Arc<Client>,
        request: &Open<'_>,
        repeats: Repeats,
    ) -> Result<Granted, StateError> {
        if request.access.is_empty() || request.owner.len() > OWNER_BYTES_MAX {
            return Err(StateError::Invalid);
        }
        self.repeated(client, || self.try_open(client, request, repeats))
    }

    /// Whether an OPEN would be denied by what living clients have reserved, its own among them. It changes
    /// nothing.
    ///
    /// # Errors
    /// [`StateError::ShareDenied`].
    pub fn judge_open(
        &self,
        client: &Arc<Client>,
        request: &Open<'_>,
        repeats: Repeats,
    ) -> Result<(), StateError> {
        let asked = Share { access: request.access, deny: request.deny };
        let opens = client.opens.lock();
        let own = opens.find(request.owner, &request.file);
        let own = own.and_then(|number| opens.get(number).map(|record| (number, record)));
        if let Some((_, record)) = own {
            require_no_own_conflict(record, asked, repeats)?;
        }
        let asking = self.asking(client, own.map(|(number, record)| (number, record.share)));
        match self.files.judge(&asking, &request.file, asked) {
            Err(Conflict::Living) => Err(StateError::ShareDenied),
            Ok(()) | Err(Conflict::Expired(_)) => Ok(()),
        }
    }

    /// CLOSE: the stateid's `other` is never valid again, nor are the lock stateids by this open,
    /// whose locks are released. `file`: where the stateid has to belong.
    ///
    /// # Errors
    /// [`StateError::BadStateId`], [`StateError::OldStateId`], [`StateError::Expired`].
    pub fn close(
        &self,
        client: &Arc<Client>,
        id: &StateId,
        file: Option<&FileKey>,
    ) -> Result<(), StateError> {
        let mut opens = client.opens.lock();
        let (number, record) = opens.named(self.settings.instance, id)?;
        if file.is_some_and(|file| record.file != *file) {
            return Err(StateError::BadStateId);
        }
        let file = record.file;
        self.end_open(client, &mut opens, number, &file);
        Ok(())
    }

    /// `OPEN_DOWNGRADE`: to the union of some of the OPENs in effect.
    ///
    /// # Errors
    /// [`StateError::Invalid`] for any other share; and those of [`State::close`].
    pub fn downgrade(
        &self,
        client: &Arc<Client>,
        id: &StateId,
        file: &FileKey,
        access: ShareAccess,
        deny: ShareDeny,
    ) -> Result<StateId, StateError> {
        self.downgrade_granted(client, id, file, (access, deny), &[])
    }

    /// [`State::downgrade`], of a request that was granted this and may fail after it.
    ///
    /// # Errors
    /// Those of [`State::downgrade`].
    pub fn downgrade_granted(
        &self,
        client: &Arc<Client>,
        id: &StateId,
        file: &FileKey,
        (access, deny): (ShareAccess, ShareDeny),
        granted: &[&Granted],
    ) -> Result<StateId, StateError> {
        let mut opens = client.opens.lock();
        let (number, record) = opens.named(self.settings.instance, id)?;
        if record.file != *file {
            return Err(StateError::BadStateId);
        }
        let share = Share { access, deny };
        let stay = record.asked.within(share).filter(|_| !access.is_empty());
        let asked = stay.ok_or(StateError::Invalid)?;
        let is_its = |serial| granted.iter().any(|granted| granted.serial() == Some(serial));
        opens.unsettled.settle_others(number, asked, is_its);
        let record = opens.get_mut(number).ok_or(StateError::BadStateId)?;
        record.is_of_before = false;
        record.asked = asked;
        record.share = share;
        let seqid = record.raise_seqid();
        // Before others get what it gives up.
        self.note_open(client, number, record);
        self.files.lessen(number, file, share);
        Ok(StateId::of_open(self.settings.instance, number, seqid))
    }

    /// Notes an open as it is now.
    pub(crate) fn note_open(&self, client: &Client, number: OpenNumber, record: &OpenRecord) {
        let OpenRecord { owner, file, seqid, share, asked, .. } = record;
        self.journal.note(&Event::Open {
            client: client.id(),
            number,
            owner,
            file: *file,
            seqid: *seqid,
            share: *share,
            asked: asked.0,
        });
    }

    /// Judges a READ, a WRITE, or a SETATTR of the size, by its stateid; a lock stateid as its
    /// open; a delegation by its kind. Clients whose lease has
    /// expired lose all that they have, if they alone are in the way.
    ///
    /// [`StateId::ANONYMOUS`] is judged by what all opens deny. So is [`StateId::READ_BYPASS`], but
    /// it reads whatever they deny (RFC 8881 §8.2.3). An open for writing only may read what
    /// nobody else denies, since clients fill up their pages (§9.1.2 permits it).
    ///
    /// # Errors
    /// [`StateError::OpenMode`]; [`StateError::DelegationRevoked`]; [`StateError::Locked`] if another open denies the access;
    /// [`StateError::TryLater`] as long as the record is not stable of who has lost such an open;
    /// [`StateError::Grace`] for [`StateId::ANONYMOUS`] in the grace period; and
    /// those of [`State::close`].
    pub fn judge(
        &self,
        client: &Arc<Client>,
        id: &StateId,
        file: &FileKey,
        wanted: ShareAccess,
    ) -> Result<(), StateError> {
        match *id {
            StateId::READ_BYPASS if wanted == ShareAccess::READ => Ok(()),
            // What an open denies may not have been reclaimed yet (RFC 8881 §8.4.2.1).
            StateId::ANONYMOUS if self.is_in_grace(client.now_ms()) => Err(StateError::Grace),
            StateId::ANONYMOUS | StateId::READ_BYPASS => {
                self.repeated(client, || self.try_share(client, None, file, wanted))
            }
            id if id.delegation_number(self.settings.instance).is_some() => {
                self.judge_by_delegation(client, &id, file, wanted)
            }
            _ => {
                let own = {
                    let opens = client.opens.lock();
                    let (number, record) = opens.named_by_any(self.settings.instance, id)?;
                    if record.file != *file {
                        return Err(StateError::BadStateId);
                    }
                    if record.share.access.contains(wanted) {
                        return Ok(());
                    }
                    (number, record.share)
                };
                if wanted != ShareAccess::READ {
                    return Err(StateError::OpenMode);
                }
                self.repeated(client, || self.try_share(client, Some(own), file, wanted))
            }
        }
    }

    /// `TEST_STATEID`, for one stateid.
    ///
    /// # Errors
    /// [`StateError::BadStateId`], [`StateError::OldStateId`], [`StateError::Expired`],
    /// [`StateError::DelegationRevoked`].
    pub fn test(&self, client: &Arc<Client>, id: &StateId) -> Result<(), StateError> {
        if id.delegation_number(self.settings.instance).is_some() {
            let opens = client.opens.lock();
            return opens.named_delegation(self.settings.instance, id).map(|_| ());
        }
        client.opens.lock().named_by_any(self.settings.instance, id).map(|_| ())
    }

    /// `FREE_STATEID`.
    ///
    /// # Errors
    /// [`StateError::LocksHeld`] for an open, which CLOSE ends, for a lock stateid with locks, and for a
    /// delegation that was not revoked;
    /// and those of [`State::test`].
    pub fn free(&self, client: &Arc<Client>, id: &StateId) -> Result<(), StateError> {
        if id.lock_number(self.settings.instance).is_some() {
            return self.free_lock(client, id);
        }
        if id.delegation_number(self.settings.instance).is_some() {
            return self.free_delegation(client, id);
        }
        self.test(client, id)?;
        Err(StateError::LocksHeld)
    }

    /// Ends all opens and locks of a client. When this returns it has none, even if another thread ends them.
    pub(crate) fn end_opens(&self, client: &Arc<Client>) {
        if client.host().is_some() {
            return self.end_host(client);
        }
        self.journal.takes_away();
        let mut opens = client.opens.lock();
        if opens.locks.count() > 0 || client.waits.load(Ordering::Relaxed) > 0 {
            let files: Vec<(OpenNumber, FileKey)> = opens.files().collect();
            for (number, file) in files {
                self.release_locks(client, &mut opens, number, &file);
            }
        }
        opens.lost = LostDelegations::default();
        let noted = self.journal.records.noted();
        for (number, record) in std::mem::take(&mut opens.delegations) {
            if !record.is_revoked {
                self.awaits_record_of(client, &record.file, noted);
                self.release_delegation(&record.file, number);
            }
        }
        client.revoked.store(0, Ordering::Relaxed);
        let mut ended = 0;
        let struck = self.struck(client);
        for (number, file) in opens.end() {
            match struck {
                Some(noted) => self.free_when_kept(noted, number, &file),
                None => self.files.release(number, &file),
            }
            ended += 1;
        }
        self.opens.fetch_sub(ended, Ordering::Relaxed);
    }

    fn try_open(
        &self,
        client: &Arc<Client>,
        request: &Open<'_>,
        repeats: Repeats,
    ) -> Result<Granted, Stopped<StateError>> {
        let asked = Share { access: request.access, deny: request.deny };
        let mut opens = client.opens.lock();
        if opens.is_ended {
            return Err(StateError::Expired.into());
        }
        let own = opens.find(request.owner, &request.file);
        let own_share = own.and_then(|number| opens.get(number)).map(|record| {
            // Its client is alive: there is nobody to expire.
            require_no_own_conflict(record, asked, repeats).map(|()| record.share)
        });
        let own_share = own_share.transpose()?;
        let asking = self.asking(client, own.zip(own_share));
        let denied = |conflict| Stopped::by(conflict, StateError::ShareDenied);
        if self.has_delegations() {
            // What is denied anyhow must not have delegations recalled.
            self.files.judge(&asking, &request.file, asked).map_err(denied)?;
        }
        // Held until the open is counted: no delegation is granted in between that conflicts.
        let _delegations = self.admit_open(client, &request.file, asked)?;
        if let Some(number) = own
            && let Some(record) = opens.get_mut(number)
        {
            let wanted = record.share.union(asked);
            self.files.take(&asking, number, &request.file, wanted).map_err(denied)?;
            record.share = wanted;
            let was_of_before = std::mem::replace(&mut record.is_of_before, false);
            let was_asked = record.asked.has(asked);
            record.asked.add(asked);
            let before = record.seqid;
            let seqid = record.raise_seqid();
            self.note_open(client, number, record);
            self.note_open_of_lost(client, &mut opens, &request.file);
            let added = opens.unsettled.add(number, asked, was_asked);
            let id = StateId::of_open(self.settings.instance, number, seqid);
            let granted = Granted::open(client, id, (number, Some(before)), added);
            return Ok(granted.further(was_of_before, was_asked));
        }
        let limits = &self.settings.limits;
        if opens.count() >= usize::try_from(limits.opens_a_client_max).unwrap_or(usize::MAX) {
            return Err(StateError::TryLater.into());
        }
        if self.opens.fetch_add(1, Ordering::Relaxed) >= limits.opens_max {
            self.opens.fetch_sub(1, Ordering::Relaxed);
            return Err(Stopped::ForRoom);
        }
        let number = OpenNumber::new(client.id(), self.serial.fetch_add(1, Ordering::Relaxed));
        if let Err(conflict) = self.files.take(&asking, number, &request.file, asked) {
            self.opens.fetch_sub(1, Ordering::Relaxed);
            return Err(denied(conflict));
        }
        opens.add(number, request.owner, request.file, asked);
        if let Some(record) = opens.get(number) {
            self.note_open(client, number, record);
        }
        self.note_open_of_lost(client, &mut opens, &request.file);
        let added = opens.unsettled.add(number, asked, false);
        let id = StateId::of_open(self.settings.instance, number, 1);
        Ok(Granted::open(client, id, (number, None), added))
    }

    fn try_share(
        &self,
        client: &Arc<Client>,
        own: Option<(OpenNumber, Share)>,
        file: &FileKey,
        access: ShareAccess,
    ) -> Result<(), Stopped<StateError>> {
        // Nearly no file is denied to anybody.
        if !self.files.gate().may_deny(file) {
            return Ok(());
        }
        let wanted = Share { access, deny: ShareDeny::empty() };
        let judged = self.files.judge(&self.asking(client, own), file, wanted);
        judged.map_err(|conflict| Stopped::by(conflict, StateError::Locked))?;
        self.require_freed(file).map_err(Stopped::Failed)
    }

    pub(crate) fn asking<'a>(
        &self,
        client: &'a Arc<Client>,
        own: Option<(OpenNumber, Share)>,
    ) -> Asking<'a> {
        let (now_ms, lease_ms) = (client.now_ms(), self.settings.lease_ms);
        Asking { client, own, address: None, now_ms, lease_ms }
    }
}

/// Whether an OPEN may be in spite of what its owner has: that is in its way, unless the OPEN comes again.
fn require_no_own_conflict(
    own: &OpenRecord,
    asked: Share,
    repeats: Repeats,
) -> Result<(), StateError> {
    let may_repeat = match repeats {
        Repeats::None => false,
        Repeats::Reclaim => true,
        Repeats::AfterRestart => own.is_of_before,
    };
    let is_repeated = may_repeat && own.share.contains(asked);
    if own.share.conflicts(asked) && !is_repeated { Err(StateError::ShareDenied) } else { Ok(()) }
}
