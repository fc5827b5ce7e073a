//! The opens of one client, by number and by (open-owner, file); with what they locked; and the
//! client's delegations.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;

use super::locks::{ClientLocks, LockRecord};
use super::lost_delegations::LostDelegations;
use super::unsettled::Unsettled;
use crate::delegation_record::DelegationRecord;
use crate::ids::{
    ByNumber, DelegationNumber, LockNumber, NumberHasher, OpenNumber, judge_seqid, raised_seqid,
};
use crate::share::{AskedShares, Share};
use crate::{FileKey, StateError, StateId};

/// A client without opens keeps the memory of so many.
const CAPACITY_WITHOUT_OPENS_MAX: usize = 256;

/// One open: what all OPENs of one owner for one file have made.
#[derive(Clone, Debug)]
pub(crate) struct OpenRecord {
    pub(crate) owner: Arc<[u8]>,
    pub(crate) file: FileKey,
    pub(crate) seqid: u32,
    pub(crate) share: Share,
    /// The shares that OPENs asked for and that are still in effect.
    pub(crate) asked: AskedShares,
    /// Whether the process before this one has noted it last.
    pub(crate) is_of_before: bool,
}

impl OpenRecord {
    pub(crate) fn judge_seqid(&self, seqid: u32) -> Result<(), StateError> {
        judge_seqid(self.seqid, seqid)
    }

    pub(crate) fn raise_seqid(&mut self) -> u32 {
        self.seqid = raised_seqid(self.seqid);
        self.seqid
    }
}

/// The opens of one client.
#[derive(Default)]
pub(crate) struct ClientOpens {
    /// The client is gone: nothing is opened any more.
    pub(crate) is_ended: bool,
    by_number: ByNumber<OpenRecord>,
    by_key: HashTable<(u64, OpenNumber)>,
    hasher: RandomState,
    owners: HashSet<Arc<[u8]>>,
    pub(crate) locks: ClientLocks,
    /// What OPENs have added that may still be taken back.
    pub(crate) unsettled: Unsettled,
    pub(crate) delegations:
        HashMap<DelegationNumber, DelegationRecord, BuildHasherDefault<NumberHasher>>,
    pub(crate) lost: LostDelegations,
}

impl ClientOpens {
    /// Whether the client has opens, or delegations without.
    pub(crate) fn has_some(&self) -> bool {
        !self.by_number.is_empty() || !self.delegations.is_empty()
    }

    pub(crate) fn count(&self) -> usize {
        self.by_number.len()
    }

    pub(crate) fn get(&self, number: OpenNumber) -> Option<&OpenRecord> {
        self.by_number.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: OpenNumber) -> Option<&mut OpenRecord> {
        self.by_number.get_mut(&number)
    }

    /// The open of an owner for a file.
    pub(crate) fn find(&self, owner: &[u8], file: &FileKey) -> Option<OpenNumber> {
        let is_it = |(_, number): &(u64, OpenNumber)| {
            let record = self.by_number.get(number);
            record.is_some_and(|record| record.file == *file && *record.owner == *owner)
        };
        self.by_key.find(self.hash(owner, file), is_it).map(|(_, number)| *number)
    }

    /// Adds an open that [`ClientOpens::find`] does not find.
    pub(crate) fn add(&mut self, number: OpenNumber, owner: &[u8], file: FileKey, share: Share) {
        let mut asked = AskedShares::default();
        asked.add(share);
        let is_of_before = false;
        let record = OpenRecord { owner: [].into(), file, seqid: 1, share, asked, is_of_before };
        self.restore(number, owner, &record);
    }

    /// Adds an open as it is described, but for its owner, which is this one.
    pub(crate) fn restore(&mut self, number: OpenNumber, owner: &[u8], open: &OpenRecord) {
        let hash = self.hash(owner, &open.file);
        let owner = self.owners.get(owner).cloned().unwrap_or_else(|| {
            let owner: Arc<[u8]> = owner.into();
            self.owners.insert(Arc::clone(&owner));
            owner
        });
        self.by_number.insert(number, OpenRecord { owner, ..*open });
        self.by_key.insert_unique(hash, (hash, number), |(hash, _)| *hash);
    }

    pub(crate) fn remove(&mut self, number: OpenNumber) -> Option<OpenRecord> {
        let record = self.by_number.remove(&number)?;
        self.unsettled.settle_all(number);
        self.unsettled.failed.forget(number);
        let hash = self.hash(&record.owner, &record.file);
        if let Ok(entry) = self.by_key.find_entry(hash, |(_, other)| *other == number) {
            entry.remove();
        }
        // The set's and the record's.
        if Arc::strong_count(&record.owner) <= 2 {
            self.owners.remove(&record.owner);
        }
        if self.by_number.is_empty() && self.by_number.capacity() > CAPACITY_WITHOUT_OPENS_MAX {
            // What many opens took is given back.
            let delegations = std::mem::take(&mut self.delegations);
            let unsettled = std::mem::take(&mut self.unsettled);
            let lost = std::mem::take(&mut self.lost);
            let is_ended = self.is_ended;
            *self = Self { is_ended, unsettled, delegations, lost, ..Self::default() };
        }
        Some(record)
    }

    /// Takes out all opens, and lets no more come.
    pub(crate) fn end(&mut self) -> impl Iterator<Item = (OpenNumber, FileKey)> + use<> {
        let ended = std::mem::replace(self, Self { is_ended: true, ..Self::default() });
        ended.by_number.into_iter().map(|(number, record)| (number, record.file))
    }

    /// The open that a stateid names.
    ///
    /// # Errors
    /// [`StateError::Expired`], [`StateError::BadStateId`], [`StateError::OldStateId`].
    pub(crate) fn named(
        &self,
        instance: u32,
        id: &StateId,
    ) -> Result<(OpenNumber, &OpenRecord), StateError> {
        if self.is_ended {
            return Err(StateError::Expired);
        }
        let number = id.open_number(instance).ok_or(StateError::BadStateId)?;
        let record = self.get(number).ok_or(StateError::BadStateId)?;
        record.judge_seqid(id.seqid)?;
        Ok((number, record))
    }

    /// The lock stateid that a stateid names.
    ///
    /// # Errors
    /// Those of [`ClientOpens::named`].
    pub(crate) fn named_lock(
        &self,
        instance: u32,
        id: &StateId,
    ) -> Result<(LockNumber, &LockRecord), StateError> {
        if self.is_ended {
            return Err(StateError::Expired);
        }
        self.locks.named(instance, id)
    }

    /// The delegation that a stateid names.
    ///
    /// # Errors
    /// [`StateError::DelegationRevoked`], and those of [`ClientOpens::named`].
    pub(crate) fn named_delegation(
        &self,
        instance: u32,
        id: &StateId,
    ) -> Result<(DelegationNumber, &DelegationRecord), StateError> {
        if self.is_ended {
            return Err(StateError::Expired);
        }
        let number = id.delegation_number(instance).ok_or(StateError::BadStateId)?;
        let record = self.delegations.get(&number).ok_or(StateError::BadStateId)?;
        judge_seqid(1, id.seqid)?;
        if record.is_revoked {
            return Err(StateError::DelegationRevoked);
        }
        Ok((number, record))
    }

    /// The open that a stateid names, itself or by its locks.
    ///
    /// # Errors
    /// Those of [`ClientOpens::named`].
    pub(crate) fn named_by_any(
        &self,
        instance: u32,
        id: &StateId,
    ) -> Result<(OpenNumber, &OpenRecord), StateError> {
        if id.lock_number(instance).is_none() {
            return self.named(instance, id);
        }
        let (_, lock) = self.named_lock(instance, id)?;
        let record = self.get(lock.open).ok_or(StateError::BadStateId)?;
        Ok((lock.open, record))
    }

    /// All opens.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (OpenNumber, &OpenRecord)> {
        self.by_number.iter().map(|(number, record)| (*number, record))
    }

    /// Whether an owner has opens.
    pub(crate) fn has_owner(&self, owner: &[u8]) -> bool {
        self.owners.contains(owner)
    }

    /// All opens, with their files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (OpenNumber, FileKey)> {
        self.by_number.iter().map(|(number, record)| (*number, record.file))
    }

    fn hash(&self, owner: &[u8], file: &FileKey) -> u64 {
        self.hasher.hash_one((owner, file))
    }
}

#[cfg(test)]
mod tests {
    use steadfast_vfs::StorageHandle;

    use super::ClientOpens;
    use crate::ids::OpenNumber;
    use crate::share::Share;
    use crate::{ClientId, FileKey, ShareAccess, ShareDeny, StateError};

    fn share(access: u8, deny: u8) -> Share {
        Share {
            access: ShareAccess::from_bits_truncate(access),
            deny: ShareDeny::from_bits_truncate(deny),
        }
    }

    fn file(number: u8) -> FileKey {
        FileKey { file_system: 0, object: StorageHandle::new(&[number]).expect("short") }
    }

    #[test]
    fn seqids_wrap_and_skip_zero() {
        let mut opens = ClientOpens::default();
        let number = OpenNumber::new(ClientId::new(1, 1, 1), 1);
        opens.add(number, b"owner", file(1), share(1, 0));
        let record = opens.get_mut(number).expect("added");
        assert_eq!(record.judge_seqid(2), Err(StateError::BadStateId));
        record.seqid = u32::MAX;
        assert_eq!(record.judge_seqid(u32::MAX - 1), Err(StateError::OldStateId));
        assert_eq!(record.judge_seqid(1), Err(StateError::BadStateId));
        assert_eq!(record.raise_seqid(), 1);
        assert_eq!(record.judge_seqid(u32::MAX), Err(StateError::OldStateId));
        assert_eq!(record.judge_seqid(0), Ok(()));
        assert_eq!(record.judge_seqid(1), Ok(()));
    }

    #[test]
    fn an_owner_is_forgotten_with_its_last_open() {
        let mut opens = ClientOpens::default();
        let client = ClientId::new(1, 1, 1);
        let numbers = [1, 2, 3].map(|serial| OpenNumber::new(client, serial));
        opens.add(numbers[0], b"one", file(1), share(1, 0));
        opens.add(numbers[1], b"one", file(2), share(1, 0));
        opens.add(numbers[2], b"two", file(1), share(1, 0));
        assert_eq!(opens.owners.len(), 2);
        assert_eq!(opens.find(b"one", &file(2)), Some(numbers[1]));
        assert!(opens.remove(numbers[0]).is_some());
        assert!(opens.remove(numbers[0]).is_none());
        assert_eq!(opens.find(b"one", &file(1)), None);
        assert_eq!(opens.owners.len(), 2);
        assert!(opens.remove(numbers[1]).is_some());
        assert_eq!(opens.owners.len(), 1);
        assert!(opens.remove(numbers[2]).is_some());
        assert_eq!((opens.owners.len(), opens.by_key.len(), opens.count()), (0, 0, 0));
    }
}
