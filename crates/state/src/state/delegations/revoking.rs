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
        self.note_lost(client, &opens, file);
        self.journal.records.takes_away();
        client.revoked.fetch_add(1, Ordering::Relaxed);
        self.delegations.counters.revoked.fetch_add(1, Ordering::Relaxed);
        self.release_delegation(file, number);
    }

    /// Records what the client has a file open for of which it has lost a delegation: so much of it the client may take
    /// back after a loss of all.
    pub(crate) fn note_lost(&self, client: &Client, opens: &ClientOpens, file: &FileKey) {
        let handles = opens.lost.of(file);
        if handles.is_empty() || client.recorded() == Recorded::Not {
            return;
        }
        let share = opens.share_of(file);
        for handle in handles {
            let handle = handle.as_ref().into();
            self.journal.records.note(&RecordEvent::Revoked(client.id(), handle, share));
        }
    }
}
