//! The opens of one client, by number and by (open-owner, file); with what they locked; and the
//! client's delegations.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;

use crate::client_locks::{ClientLocks, LockRecord};
use crate::delegations::DelegationRecord;
use crate::files::Share;
use crate::granted::Unsettled;
use crate::ids::{DelegationNumber, LockNumber, OpenNumber, judge_seqid, raised_seqid};
use crate::{FileKey, StateError, StateId};

/// A client without opens keeps the memory of so many.
const CAPACITY_WITHOUT_OPENS_MAX: usize = 256;

/// Hashes an [`OpenNumber`] or [`LockNumber`]. The server makes the numbers, so clients cannot make them collide.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // Serial numbers differ in the low bits. The product differs in the high bits too, which
        // the table compares first.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

pub(crate) type ByNumber<T> = HashMap<OpenNumber, T, BuildHasherDefault<NumberHasher>>;

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

/// A set of shares, a bit for each pair of access and deny.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AskedShares(pub(crate) u16);

impl AskedShares {
    pub(crate) fn add(&mut self, share: Share) {
        self.0 |= 1 << share.number();
    }

    pub(crate) fn has(self, share: Share) -> bool {
        self.0 >> share.number() & 1 == 1
    }

    /// Takes a share out; what the others are together.
    pub(crate) fn remove(&mut self, share: Share) -> Share {
        self.0 &= !(1 << share.number());
        self.iter().fold(Share::NONE, Share::union)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn iter(self) -> impl Iterator<Item = Share> {
        Share::all().filter(move |share| self.has(*share))
    }

    /// Those that stay if the open is downgraded to `to`; `None` if they are not `to` together.
    ///
    /// `OPEN_DOWNGRADE` must name the union of some of the OPENs in effect (RFC 8881 §18.18.3).
    pub(crate) fn within(self, to: Share) -> Option<Self> {
        let mut stay = Self::default();
        let mut union = Share::NONE;
        for share in self.iter() {
            if to.contains(share) {
                stay.add(share);
                union = union.union(share);
            }
        }
        (union == to).then_some(stay)
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
            *self = Self { is_ended: self.is_ended, delegations, unsettled, ..Self::default() };
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

    use super::{AskedShares, ClientOpens};
    use crate::files::Share;
    use crate::ids::OpenNumber;
    use crate::{ClientId, FileKey, ShareAccess, ShareDeny, StateError};

    type Shares<'a> = &'a [(u8, u8)];

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
    fn a_downgrade_has_to_be_the_union_of_some_opens() {
        let asked = |shares: &[(u8, u8)]| {
            let mut asked = AskedShares::default();
            for (access, deny) in shares {
                asked.add(share(*access, *deny));
            }
            asked
        };
        let rows: [(Shares<'_>, (u8, u8), Option<Shares<'_>>); 7] = [
            (&[(3, 0)], (3, 0), Some(&[(3, 0)])),
            (&[(3, 0)], (1, 0), None),
            (&[(3, 0), (1, 0)], (1, 0), Some(&[(1, 0)])),
            (&[(2, 0), (1, 0)], (3, 0), Some(&[(1, 0), (2, 0)])),
            (&[(2, 0), (1, 1)], (3, 0), None),
            (&[(2, 2), (1, 1)], (3, 3), Some(&[(2, 2), (1, 1)])),
            (&[(1, 0)], (3, 0), None),
        ];
        for (opens, to, expected) in rows {
            let found = asked(opens).within(share(to.0, to.1));
            assert_eq!(found, expected.map(asked), "{opens:?} to {to:?}");
        }
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
