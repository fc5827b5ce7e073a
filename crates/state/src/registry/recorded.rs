//! Which clients are recorded on stable storage ([`ClientRecord`]).

use std::collections::BTreeMap;

use super::{Record, Registry};
use crate::ClientId;
use crate::client::Recorded;
use crate::files::Files;
use crate::image::lost::Lost;
use crate::image::{ClientRecord, RecordEvent};

/// By what a client is found again after the server has lost its state.
pub(crate) struct Identity {
    pub(crate) is_set: bool,
    pub(crate) owner: Box<[u8]>,
    pub(crate) verifier: [u8; 8],
    pub(crate) principal: Box<[u8]>,
}

/// Whether `SETCLIENTID` named an owner, and its name; and a principal.
pub(crate) type OwnerAndPrincipal = ((bool, Box<[u8]>), Box<[u8]>);

impl Record {
    fn of_nfs4(&self) -> Option<&Self> {
        Some(self).filter(|record| record.is_confirmed() && record.client.host().is_none())
    }
}

impl Registry {
    /// Who a confirmed client is.
    pub(crate) fn identity(&self, id: ClientId) -> Option<Identity> {
        let record = self.find(id)?.of_nfs4()?;
        Some(Identity {
            is_set: record.set.is_some(),
            owner: record.owner.as_ref().into(),
            verifier: record.verifier,
            principal: record.principal.0.clone(),
        })
    }

    /// Notes that a client is recorded, as far as that is new.
    pub(crate) fn record(&self, id: ClientId, wanted: Recorded) {
        let Some(record) = self.find(id).and_then(Record::of_nfs4) else { return };
        let known = record.client.recorded();
        if known >= wanted {
            return;
        }
        let event = if known == Recorded::Not {
            RecordEvent::Recorded(
                id,
                ClientRecord {
                    is_set: record.set.is_some(),
                    is_complete: wanted == Recorded::Whole,
                    owner: record.owner.as_ref().into(),
                    verifier: record.verifier,
                    principal: record.principal.0.clone(),
                    address: record.address,
                },
            )
        } else {
            RecordEvent::Complete(id)
        };
        self.journal.records.note(&event);
        record.client.set_recorded(wanted);
    }

    /// A client that left is struck off, before anybody can get what it had.
    pub(super) fn strike(&self, record: &Record) {
        if record.client.recorded() > Recorded::Not {
            self.journal.records.note(&RecordEvent::Struck(record.client.id()));
        }
    }

    /// A client was recorded before the process began. If it is gone, it left since.
    pub(crate) fn restore_recorded(&self, id: ClientId, is_complete: bool) {
        match self.find(id) {
            Some(record) => record.client.set_recorded(if is_complete {
                Recorded::Whole
            } else {
                Recorded::InPart
            }),
            None => self.journal.records.note(&RecordEvent::Struck(id)),
        }
    }

    /// Records all clients with opens that are not, since their records were lost.
    pub(crate) fn record_all_with_opens(&self) {
        for record in self.records().filter_map(Record::of_nfs4) {
            let has_all = record.client.has_completed_reclaim();
            let wanted = if has_all { Recorded::Whole } else { Recorded::InPart };
            let recorded = record.client.recorded();
            // Who has said that it has all was recorded before as having a part.
            let has_state = recorded > Recorded::Not || record.client.opens.lock().has_some();
            if recorded < wanted && has_state {
                self.record(record.client.id(), wanted);
            }
        }
    }

    /// Records which delegations clients have lost, as far as these records of this instance say otherwise, since the
    /// process before was killed.
    pub(crate) fn record_lost(&self, files: &Files, recorded: &BTreeMap<ClientId, &Lost>) {
        let clients = self.records().filter_map(Record::of_nfs4).map(|record| &record.client);
        for client in clients.filter(|client| client.recorded() > Recorded::Not) {
            let (id, mut opens) = (client.id(), client.opens.lock());
            let mut lost = BTreeMap::new();
            for (file, of) in opens.lost.iter_mut() {
                of.share = files.share_of(client, file);
                lost.extend(of.handles.iter().map(|handle| (handle.as_ref().into(), of.share)));
            }
            let known = match recorded.get(&id) {
                Some(_) if lost.is_empty() => {
                    self.journal.records.note(&RecordEvent::AllAcknowledged(id));
                    continue;
                }
                Some(Lost::Many) => continue,
                Some(Lost::These(known)) => known.clone(),
                None => BTreeMap::new(),
            };
            for handle in known.keys().filter(|handle| !lost.contains_key(*handle)) {
                self.journal.records.note(&RecordEvent::Acknowledged(id, handle.clone()));
            }
            for (handle, share) in lost {
                if known.get(&handle) != Some(&share) {
                    self.journal.records.note(&RecordEvent::Revoked(id, handle, share));
                }
            }
        }
    }

    /// Owners whose clients have sent `RECLAIM_COMPLETE`, with their principals; by `SETCLIENTID` there are
    /// none.
    pub(crate) fn owners_without_more_to_reclaim(&self) -> impl Iterator<Item = OwnerAndPrincipal> {
        let records = self.records().filter_map(Record::of_nfs4);
        let have_all = records.filter(|record| record.client.has_completed_reclaim());
        have_all.map(|record| {
            let owner = (record.set.is_some(), record.owner.as_ref().into());
            (owner, record.principal.0.clone())
        })
    }
}
