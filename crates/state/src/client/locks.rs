//! The lock stateids of one client, by number and by (open, lock-owner).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use super::lock_owner::LockOwner;
use super::unsettled::FailedSeqids;
use crate::ids::{ByNumber, LockNumber, NumberHasher, OpenNumber, judge_seqid, raised_seqid};
use crate::{FileKey, StateError, StateId};

/// What a lock stateid stands for: all locks of one lock-owner by one open.
#[derive(Clone, Debug)]
pub(crate) struct LockRecord {
    pub(crate) owner: LockOwner,
    pub(crate) open: OpenNumber,
    /// The open's.
    pub(crate) file: FileKey,
    pub(crate) seqid: u32,
}

/// The lock stateids of one client.
#[derive(Default)]
pub(crate) struct ClientLocks {
    by_number: HashMap<LockNumber, LockRecord, BuildHasherDefault<NumberHasher>>,
    /// An open without lock stateids is not here.
    by_open: ByNumber<BTreeMap<Arc<[u8]>, LockNumber>>,
    /// An owner without lock stateids is not here.
    by_owner: HashMap<Arc<[u8]>, BTreeSet<LockNumber>>,
    /// Ranges in all files.
    ranges: usize,
    failed: FailedSeqids<LockNumber>,
}

impl ClientLocks {
    /// How many lock stateids there are.
    pub(crate) fn count(&self) -> usize {
        self.by_number.len()
    }

    /// How many ranges the client holds.
    pub(crate) fn ranges(&self) -> usize {
        self.ranges
    }

    pub(crate) fn add_ranges(&mut self, growth: isize) {
        self.ranges = self.ranges.saturating_add_signed(growth);
    }

    pub(crate) fn get(&self, number: LockNumber) -> Option<&LockRecord> {
        self.by_number.get(&number)
    }

    /// The lock stateid of a lock-owner by an open.
    pub(crate) fn find(&self, open: OpenNumber, owner: &[u8]) -> Option<(LockNumber, &LockRecord)> {
        let number = *self.by_open.get(&open)?.get(owner)?;
        self.by_number.get(&number).map(|record| (number, record))
    }

    /// Adds one that [`ClientLocks::find`] does not find.
    pub(crate) fn add(
        &mut self,
        number: LockNumber,
        owner: LockOwner,
        open: OpenNumber,
        file: FileKey,
    ) {
        self.restore(number, LockRecord { owner, open, file, seqid: 1 });
    }

    pub(crate) fn restore(&mut self, number: LockNumber, record: LockRecord) {
        let of_open = self.by_open.entry(record.open).or_default();
        of_open.insert(Arc::clone(&record.owner.name), number);
        self.by_owner.entry(Arc::clone(&record.owner.name)).or_default().insert(number);
        self.by_number.insert(number, record);
    }

    /// All lock stateids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LockNumber, &LockRecord)> {
        self.by_number.iter().map(|(number, record)| (*number, record))
    }

    pub(crate) fn raise_seqid(&mut self, number: LockNumber) -> Option<u32> {
        let record = self.by_number.get_mut(&number)?;
        record.seqid = raised_seqid(record.seqid);
        Some(record.seqid)
    }

    /// The request has failed that gave one the seqid `from`: it has that of before, now or once the requests
    /// after it have failed too.
    pub(crate) fn lower_seqid(&mut self, number: LockNumber, from: u32, to: u32) {
        match self.by_number.get_mut(&number) {
            Some(record) if record.seqid == from => record.seqid = self.failed.lowest(number, to),
            Some(_) => self.failed.add(number, from, to),
            None => {}
        }
    }

    pub(crate) fn remove(&mut self, number: LockNumber) {
        let Some(record) = self.take(number) else { return };
        if let Some(owners) = self.by_open.get_mut(&record.open) {
            owners.remove(&record.owner.name);
            if owners.is_empty() {
                self.by_open.remove(&record.open);
            }
        }
    }

    /// Takes out all of one open; whose they were.
    pub(crate) fn remove_open(&mut self, open: OpenNumber) -> Vec<LockOwner> {
        let numbers = self.by_open.remove(&open).unwrap_or_default().into_values();
        let records = numbers.filter_map(|number| self.take(number));
        records.map(|record| record.owner).collect()
    }

    fn take(&mut self, number: LockNumber) -> Option<LockRecord> {
        let record = self.by_number.remove(&number)?;
        self.failed.forget(number);
        if let Some(numbers) = self.by_owner.get_mut(&record.owner.name) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_owner.remove(&record.owner.name);
            }
        }
        Some(record)
    }

    /// The lock stateids of an owner, by all opens.
    pub(crate) fn of_owner(&self, owner: &[u8]) -> impl Iterator<Item = (LockNumber, &LockRecord)> {
        let numbers = self.by_owner.get(owner).into_iter().flatten();
        numbers.filter_map(|number| self.by_number.get(number).map(|record| (*number, record)))
    }

    /// The lock stateids of an owner in a file, with their seqids, in order.
    pub(crate) fn of_owner_and_file(&self, owner: &[u8], file: &FileKey) -> Vec<(LockNumber, u32)> {
        let of_file = self.of_owner(owner).filter(|(_, record)| record.file == *file);
        of_file.map(|(number, record)| (number, record.seqid)).collect()
    }

    /// Whether an owner has lock stateids.
    pub(crate) fn has_owner(&self, owner: &[u8]) -> bool {
        self.by_owner.contains_key(owner)
    }

    /// What a stateid of a lock names.
    ///
    /// # Errors
    /// [`StateError::BadStateId`], [`StateError::OldStateId`].
    pub(crate) fn named(
        &self,
        instance: u32,
        id: &StateId,
    ) -> Result<(LockNumber, &LockRecord), StateError> {
        let number = id.lock_number(instance).ok_or(StateError::BadStateId)?;
        let record = self.by_number.get(&number).ok_or(StateError::BadStateId)?;
        judge_seqid(record.seqid, id.seqid)?;
        Ok((number, record))
    }
}
