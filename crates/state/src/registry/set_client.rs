//! `SETCLIENTID` and `SETCLIENTID_CONFIRM` on the records.

use std::sync::Arc;

use super::{Asked, Record, Registry};
use crate::set_client::{
    Asking, Confirming, Named, SetCase, SetClientRecord, judge_confirm, judge_set,
};
use crate::settings::OWNER_BYTES_MAX;
use crate::{
    Callback, Client, ClientId, Principal, SetClient, SetClientError, SetClientId, Settings,
    StateError,
};

impl Registry {
    /// `SETCLIENTID` (RFC 7530 §16.33.5).
    pub(crate) fn set_client(
        &mut self,
        now_ms: u64,
        settings: &Settings,
        request: &SetClient<'_>,
        left: &mut Vec<Record>,
    ) -> Result<SetClientId, SetClientError> {
        if request.owner.len() > OWNER_BYTES_MAX {
            return Err(StateError::Invalid.into());
        }
        let of_owner = self.set_owners.get(request.owner).copied().unwrap_or_default();
        let record = of_owner.confirmed.and_then(|index| self.at(index));
        let case = judge_set(record.map(|record| Asking {
            has_same_verifier: record.verifier == request.verifier,
            has_same_principal: record.principal == *request.principal,
            is_in_use: record.has_state() && !record.is_expired(now_ms, settings),
        }));
        let known = record.map(|record| (record.client.id(), record.address));
        let confirm = self.next_confirm();
        match (case, known) {
            (SetCase::InUse, Some((_, address))) => Err(SetClientError::InUse(address)),
            (SetCase::Update, Some((id, _))) => {
                left.extend(self.remove_at(of_owner.unconfirmed));
                if let Some(set) = self.find_mut(id).and_then(|record| record.set.as_mut()) {
                    set.update = Some((confirm, request.callback.clone()));
                }
                self.note(id);
                Ok(SetClientId { client: id, confirm })
            }
            _ => {
                let callback = request.callback.clone();
                let asked = Asked {
                    owner: request.owner,
                    verifier: request.verifier,
                    principal: request.principal,
                    implementation: &[],
                    address: request.address,
                    set: Some(Box::new(SetClientRecord { confirm, callback, update: None })),
                };
                let record = self.add(now_ms, asked, left)?;
                Ok(SetClientId { client: record.client.id(), confirm })
            }
        }
    }

    /// `SETCLIENTID_CONFIRM` (RFC 7530 §16.34.5).
    pub(crate) fn confirm_set_client(
        &mut self,
        now_ms: u64,
        settings: &Settings,
        id: ClientId,
        confirm: [u8; 8],
        principal: &Principal,
        left: &mut Vec<Record>,
    ) -> Result<(), StateError> {
        let record = self.find(id);
        let named = record.and_then(|record| {
            let set = record.set.as_ref()?;
            Some(Named {
                is_confirmed: record.is_confirmed(),
                has_same_principal: record.principal == *principal,
                is_confirm: set.confirm == confirm,
                is_update: set.update.as_ref().is_some_and(|(update, _)| *update == confirm),
            })
        });
        match judge_confirm(named)? {
            Confirming::Again => {}
            Confirming::Update => {
                let set = self.find_mut(id).and_then(|record| record.set.as_mut());
                if let Some(set) = set
                    && let Some((confirm, callback)) = set.update.take()
                {
                    (set.confirm, set.callback) = (confirm, callback);
                }
            }
            Confirming::New => {
                self.make_room_for_set(now_ms, settings, id, principal, left)?;
                left.extend(self.confirm(id));
            }
        }
        let record = self.find(id).ok_or(StateError::StaleClientId)?;
        record.client.renew(now_ms);
        self.note(id);
        Ok(())
    }

    /// The client's former life makes room, else the client that was silent for longest.
    fn make_room_for_set(
        &mut self,
        now_ms: u64,
        settings: &Settings,
        id: ClientId,
        principal: &Principal,
        left: &mut Vec<Record>,
    ) -> Result<(), StateError> {
        let owner = self.find(id).map(|record| Arc::clone(&record.owner));
        let of_owner = owner.and_then(|owner| self.set_owners.get(&owner)).copied();
        let before = of_owner.and_then(|of_owner| self.at(of_owner.confirmed?));
        if let Some(before) = before {
            let is_in_use = before.has_state() && !before.is_expired(now_ms, settings);
            // It came between SETCLIENTID and this.
            let is_others = before.principal != *principal;
            return if is_others && is_in_use { Err(StateError::ClientInUse) } else { Ok(()) };
        }
        while self.confirmed_count() >= self.confirmed_max {
            let leaving = self.longest_courteous(now_ms, settings, |_| true);
            left.push(leaving.and_then(|id| self.remove(id)).ok_or(StateError::TryLater)?);
        }
        Ok(())
    }

    /// A confirmed client of minor version 0.
    ///
    /// # Errors
    /// [`StateError::Expired`] if it was one; [`StateError::StaleClientId`] if there was none.
    pub(crate) fn find_set(&self, id: ClientId) -> Result<Arc<Client>, StateError> {
        let place = self.places.get(usize::from(id.index()));
        let place = place.filter(|_| id.instance() == self.instance);
        let place = place.ok_or(StateError::StaleClientId)?;
        match self.find(id) {
            Some(record) if record.set.is_some() && record.is_confirmed() => {
                Ok(Arc::clone(&record.client))
            }
            // Another record has its place, or had it.
            None if place.generation.wrapping_sub(id.generation()) < 1 << 15 => {
                Err(StateError::Expired)
            }
            Some(_) | None => Err(StateError::StaleClientId),
        }
    }

    /// The confirmed client of minor version 0 whose stateids have this index.
    ///
    /// # Errors
    /// [`StateError::Expired`] if nobody has it, [`StateError::BadStateId`] if somebody else has it, or
    /// nobody ever had.
    pub(crate) fn find_set_at(&self, index: u16) -> Result<Arc<Client>, StateError> {
        let place = self.places.get(usize::from(index)).ok_or(StateError::BadStateId)?;
        match &place.record {
            None => Err(StateError::Expired),
            Some(record) if record.set.is_some() && record.is_confirmed() => {
                Ok(Arc::clone(&record.client))
            }
            Some(_) => Err(StateError::BadStateId),
        }
    }

    /// All clients of minor version 0.
    pub(crate) fn set_clients(&self) -> Vec<Arc<Client>> {
        let set = self.records().filter(|record| record.set.is_some());
        set.map(|record| Arc::clone(&record.client)).collect()
    }

    /// Where a client of minor version 0 wants to be called back.
    pub(crate) fn callback(&self, id: ClientId) -> Option<Callback> {
        self.find(id)?.set.as_ref().map(|set| set.callback.clone())
    }

    /// Differs from all others of this instance, and from those of other instances.
    fn next_confirm(&mut self) -> [u8; 8] {
        let number = self.order_next;
        self.order_next += 1;
        (u64::from(self.instance) << 32 | number & u64::from(u32::MAX)).to_be_bytes()
    }
}
