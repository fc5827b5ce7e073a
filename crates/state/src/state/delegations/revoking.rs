//! How a delegation is revoked, and how its client says that it knows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::client::Recorded;
use crate::client::opens::ClientOpens;
use crate::ids::DelegationNumber;
use crate::image::{Event, RecordEvent};
use crate::{Client, FileKey, State, StateError, StateId};

impl State {
    /// `FREE_STATEID` of a delegation: of one that was revoked.
    pub(crate) fn free_delegation(&self, client: &Client, id: &StateId) -> Result<(), StateError> {
        let mut opens = client.opens.lock();
        match opens.named_delegation(self.settings.instance, id) {
            Ok(_) => return Err(StateError::LocksHeld),
            Err(StateError::DelegationRevoked) => {}
            Err(error) => return Err(error),
        }
        let number = id.delegation_number(self.settings.instance);
        let freed = number.and_then(|number| Some((number, opens.delegations.remove(&number)?)));
        let Some((number, record)) = freed else { return Ok(()) };
        self.delegation_gone(client, number);
        client.revoked.fetch_sub(1, Ordering::Relaxed);
        let is_last = opens.lost.remove(record.file, &record.handle);
        if client.recorded() > Recorded::Not {
            let (id, records) = (client.id(), &self.journal.records);
            if opens.lost.is_empty() {
                records.note(&RecordEvent::AllAcknowledged(id));
            } else if is_last {
                records.note(&RecordEvent::Acknowledged(id, record.handle.as_ref().into()));
            }
        }
        Ok(())
    }

    pub(super) fn revoke(&self, client: &Arc<Client>, file: &FileKey, number: DelegationNumber) {
        let mut opens = client.opens.lock();
        let Some(record) = opens.delegations.get_mut(&number) else { return };
        if std::mem::replace(&mut record.is_revoked, true) {
            return;
        }
        let handle = Arc::clone(&record.handle);
        opens.lost.add(*file, &handle);
        // Before others get what it kept from them.
        self.journal.note(&Event::DelegationRevoked { client: client.id(), number });
        self.journal.takes_away();
        self.note_lost(client, &mut opens, file, true);
        let noted = self.journal.records.noted();
        client.revoked.fetch_add(1, Ordering::Relaxed);
        self.delegations.counters.revoked.fetch_add(1, Ordering::Relaxed);
        self.awaits_record_of(client, file, noted);
        self.release_delegation(file, number);
    }

    /// A client opens a file, of which it may have lost a delegation: so much of it the client may take back after a loss
    /// of all.
    pub(crate) fn note_open_of_lost(
        &self,
        client: &Arc<Client>,
        opens: &mut ClientOpens,
        file: &FileKey,
    ) {
        self.note_lost(client, opens, file, false);
    }

    /// Records that a client has lost delegations of a file, if that is new or if the client has more of the file open than
    /// is recorded.
    fn note_lost(
        &self,
        client: &Arc<Client>,
        opens: &mut ClientOpens,
        file: &FileKey,
        is_new: bool,
    ) {
        let Some(lost) = opens.lost.of(file) else { return };
        if client.recorded() == Recorded::Not {
            return;
        }
        let share = self.files.share_of(client, file);
        if !is_new && lost.share.contains(share) {
            return;
        }
        lost.share = lost.share.union(share);
        for handle in &lost.handles {
            let event = RecordEvent::Revoked(client.id(), handle.as_ref().into(), lost.share);
            self.journal.records.note(&event);
        }
    }

    /// What a client had of a file is about to be no more, and so many records will have to be stable before others change
    /// the file.
    pub(crate) fn awaits_record_of(&self, client: &Client, file: &FileKey, noted: u64) {
        if client.recorded() == Recorded::Not || self.journal.records.has_kept(noted) {
            return;
        }
        let mut unrecorded = self.delegations.unrecorded.lock();
        let awaited = unrecorded.entry(*file).or_default();
        *awaited = noted.max(*awaited);
        // It may have become stable before it was there.
        if self.journal.records.has_kept(*awaited) {
            unrecorded.remove(file);
        }
        self.delegations.has_unrecorded.store(!unrecorded.is_empty(), Ordering::Release);
    }

    /// Whether somebody has lost a delegation of this file, and the record of that is not stable yet: after a loss of all
    /// its client could have it again, and others may not change the file before.
    pub fn awaits_record(&self, file: &FileKey) -> bool {
        self.delegations.has_unrecorded.load(Ordering::Acquire)
            && self.delegations.unrecorded.lock().contains_key(file)
    }

    /// The records are stable by now that were noted first.
    pub(crate) fn records_of_lost_are_kept(&self) {
        if self.delegations.has_unrecorded.load(Ordering::Acquire) {
            let mut unrecorded = self.delegations.unrecorded.lock();
            unrecorded.retain(|_, noted| !self.journal.records.has_kept(*noted));
            self.delegations.has_unrecorded.store(!unrecorded.is_empty(), Ordering::Release);
        }
    }
}
