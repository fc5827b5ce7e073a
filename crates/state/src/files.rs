//! Which files are open, and what their opens share and deny: the one conflict matrix.
//!
//! A file counts each access and deny bit of its opens, so an open that conflicts with nobody is
//! judged by four numbers. Only a conflict leads to the single opens.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::Mutex;

use crate::changed_locks::ChangedLocks;
use crate::effects::Effects;
use crate::file_locks::FileLocks;
use crate::gate::Gate;
use crate::ids::{ByNumber, OpenNumber};
use crate::ranges::LockKind;
use crate::share::Share;
use crate::{Client, DelegationKind, FileKey, ShareAccess, ShareDeny};

const SHARDS: usize = 64;
/// A shard keeps the memory for so many files.
const CAPACITY_KEPT: usize = 1024;
/// Clients with expired leases that one judgement names: the caller expires them and asks again.
const EXPIRED_MAX: usize = 64;

/// How many opens have each bit of [`Share::bits`].
#[derive(Clone, Copy, Debug, Default)]
struct Counts([u32; 4]);

impl Counts {
    fn add(&mut self, share: Share) {
        for (count, has) in self.0.iter_mut().zip(share.bits()) {
            *count = count.saturating_add(u32::from(has));
        }
    }

    fn subtract(&mut self, share: Share) {
        for (count, has) in self.0.iter_mut().zip(share.bits()) {
            *count = count.saturating_sub(u32::from(has));
        }
    }

    /// The union of the shares that are counted.
    fn union(self) -> Share {
        let [reads, writes, deny_reads, deny_writes] = self.0.map(|count| count > 0);
        let mut share = Share::NONE;
        share.access.set(ShareAccess::READ, reads);
        share.access.set(ShareAccess::WRITE, writes);
        share.deny.set(ShareDeny::READ, deny_reads);
        share.deny.set(ShareDeny::WRITE, deny_writes);
        share
    }
}

/// An open as its file knows it.
#[derive(Debug)]
struct Holder {
    client: Arc<Client>,
    share: Share,
}

/// Most files have one open.
#[derive(Debug)]
enum Holders {
    One(OpenNumber, Holder),
    /// Any number of them.
    Many(ByNumber<Holder>),
}

impl Holders {
    fn iter(&self) -> impl Iterator<Item = &Holder> {
        let (one, many) = match self {
            Self::One(_, holder) => (Some(holder), None),
            Self::Many(holders) => (None, Some(holders)),
        };
        one.into_iter().chain(many.into_iter().flat_map(ByNumber::values))
    }

    fn get_mut(&mut self, number: OpenNumber) -> Option<&mut Holder> {
        match self {
            Self::One(one, holder) => (*one == number).then_some(holder),
            Self::Many(holders) => holders.get_mut(&number),
        }
    }

    fn add(&mut self, number: OpenNumber, holder: Holder) {
        if let Self::Many(holders) = self {
            holders.insert(number, holder);
            return;
        }
        let many = ByNumber::from_iter([(number, holder)]);
        if let Self::One(number, holder) = std::mem::replace(self, Self::Many(many))
            && let Self::Many(holders) = self
        {
            holders.insert(number, holder);
        }
    }

    /// Takes one out; and whether there is none any more.
    fn remove(&mut self, number: OpenNumber) -> (Option<Share>, bool) {
        match self {
            Self::One(one, holder) if *one == number => (Some(holder.share), true),
            Self::One(..) => (None, false),
            Self::Many(holders) => {
                let removed = holders.remove(&number);
                (removed.map(|holder| holder.share), holders.is_empty())
            }
        }
    }

    /// Those whose share conflicts with `share`, without one.
    fn conflicting(
        &self,
        share: Share,
        but: Option<OpenNumber>,
    ) -> impl Iterator<Item = &Arc<Client>> {
        let (one, many) = match self {
            Self::One(number, holder) => (Some((number, holder)), None),
            Self::Many(holders) => (None, Some(holders)),
        };
        one.into_iter()
            .chain(many.into_iter().flatten())
            .filter(move |(number, holder)| Some(**number) != but && holder.share.conflicts(share))
            .map(|(_, holder)| &holder.client)
    }
}

#[derive(Debug)]
struct File {
    key: FileKey,
    counts: Counts,
    holders: Holders,
    /// `None` if nobody has a lock or waits for one.
    locks: Option<Box<FileLocks>>,
}

/// Why a share cannot be had.
#[derive(Debug)]
pub(crate) enum Conflict {
    /// A client with a good lease has an open that conflicts.
    Living,
    /// All that conflict are clients with expired leases: these, or these among others.
    Expired(Vec<Arc<Client>>),
}

/// Who wants a share, and how expired leases are told.
pub(crate) struct Asking<'a> {
    pub(crate) client: &'a Arc<Client>,
    /// Its open, with the share that it has; `None` for a new one, or access without an open.
    pub(crate) own: Option<(OpenNumber, Share)>,
    /// Where it comes from, if it is no client: what hosts that speak NLM there have reserved is its
    /// own.
    pub(crate) address: Option<IpAddr>,
    pub(crate) now_ms: u64,
    pub(crate) lease_ms: u64,
}

impl Asking<'_> {
    /// Judges `wanted` by all opens of the file but the own one.
    fn judge(&self, file: &File, wanted: Share) -> Result<(), Conflict> {
        let mut others = file.counts;
        if let Some((_, share)) = self.own {
            others.subtract(share);
        }
        if !others.union().conflicts(wanted) {
            return Ok(());
        }
        let mut expired: Vec<Arc<Client>> = Vec::new();
        let conflicting = file.holders.conflicting(wanted, self.own.map(|(number, _)| number));
        for client in conflicting.filter(|client| !self.is_at(client)) {
            // The client that asks is alive, however long its request was under way.
            if Arc::ptr_eq(client, self.client) || client.silent_ms(self.now_ms) <= self.lease_ms {
                return Err(Conflict::Living);
            }
            if expired.len() < EXPIRED_MAX
                && !expired.iter().any(|known| Arc::ptr_eq(known, client))
            {
                expired.push(Arc::clone(client));
            }
        }
        // Nobody is left if the asking host's own reservations alone conflict.
        if expired.is_empty() { Ok(()) } else { Err(Conflict::Expired(expired)) }
    }

    /// Whether this is the host that asks.
    fn is_at(&self, client: &Client) -> bool {
        self.address.is_some() && client.host().map(|host| host.address()) == self.address
    }
}

/// The open files. A file without opens is not here.
pub(crate) struct Files {
    shards: Box<[Mutex<HashTable<File>>]>,
    hasher: RandomState,
    gate: Gate,
    pub(crate) effects: Effects,
    pub(crate) changed: ChangedLocks,
}

impl Files {
    pub(crate) fn new(effects: Effects) -> Self {
        Self {
            effects,
            shards: (0..SHARDS).map(|_| Mutex::new(HashTable::new())).collect(),
            hasher: RandomState::new(),
            gate: Gate::new(),
            changed: ChangedLocks::default(),
        }
    }

    /// Which files may be denied to somebody. To ask it takes no lock.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Judges `wanted` and gives it to the open `number`, which is new or [`Asking::own`].
    pub(crate) fn take(
        &self,
        asking: &Asking<'_>,
        number: OpenNumber,
        key: &FileKey,
        wanted: Share,
    ) -> Result<(), Conflict> {
        let Some((mut shard, hash)) = self.shard(key) else { return Err(Conflict::Living) };
        let holder = || Holder { client: Arc::clone(asking.client), share: wanted };
        match shard.entry(hash, |file| file.key == *key, |file| self.hasher.hash_one(file.key)) {
            Entry::Vacant(vacant) => {
                self.gate.enter(key, wanted);
                let mut counts = Counts::default();
                counts.add(wanted);
                let holders = Holders::One(number, holder());
                vacant.insert(File { key: *key, counts, holders, locks: None });
            }
            Entry::Occupied(mut occupied) => {
                let file = occupied.get_mut();
                asking.judge(file, wanted)?;
                self.gate.enter(key, wanted);
                if let Some(own) = file.holders.get_mut(number) {
                    file.counts.subtract(own.share);
                    self.gate.leave(key, own.share);
                    own.share = wanted;
                } else {
                    file.holders.add(number, holder());
                }
                file.counts.add(wanted);
            }
        }
        Ok(())
    }

    /// Gives an open that nobody contests its share.
    pub(crate) fn restore(
        &self,
        client: &Arc<Client>,
        number: OpenNumber,
        key: &FileKey,
        share: Share,
    ) {
        let Some((mut shard, hash)) = self.shard(key) else { return };
        self.gate.enter(key, share);
        let holder = Holder { client: Arc::clone(client), share };
        match shard.entry(hash, |file| file.key == *key, |file| self.hasher.hash_one(file.key)) {
            Entry::Vacant(vacant) => {
                let mut counts = Counts::default();
                counts.add(share);
                let holders = Holders::One(number, holder);
                vacant.insert(File { key: *key, counts, holders, locks: None });
            }
            Entry::Occupied(mut occupied) => {
                let file = occupied.get_mut();
                file.holders.add(number, holder);
                file.counts.add(share);
            }
        }
    }

    /// Judges an access without taking anything.
    pub(crate) fn judge(
        &self,
        asking: &Asking<'_>,
        key: &FileKey,
        wanted: Share,
    ) -> Result<(), Conflict> {
        let Some((shard, hash)) = self.shard(key) else { return Err(Conflict::Living) };
        shard.find(hash, |file| file.key == *key).map_or(Ok(()), |file| asking.judge(file, wanted))
    }

    /// What all owners of a client together have a file open for.
    pub(crate) fn share_of(&self, client: &Arc<Client>, key: &FileKey) -> Share {
        let Some((shard, hash)) = self.shard(key) else { return Share::NONE };
        let Some(file) = shard.find(hash, |file| file.key == *key) else { return Share::NONE };
        let own = file.holders.iter().filter(|holder| Arc::ptr_eq(&holder.client, client));
        own.fold(Share::NONE, |all, holder| all.union(holder.share))
    }

    /// Whether nothing that others have opened or locked, or wait for, conflicts with a delegation: one
    /// that the client had before the server lost it (`is_reclaim`), or a new one.
    pub(crate) fn may_delegate(
        &self,
        client: &Arc<Client>,
        key: &FileKey,
        (kind, is_reclaim): (DelegationKind, bool),
    ) -> bool {
        let Some((shard, hash)) = self.shard(key) else { return false };
        let Some(file) = shard.find(hash, |file| file.key == *key) else { return true };
        let is_other = |other: &Arc<Client>| !Arc::ptr_eq(other, client);
        let conflicts = |share: Share| {
            kind == DelegationKind::Write
                || share.access.contains(ShareAccess::WRITE)
                || share.deny.contains(ShareDeny::READ)
        };
        let mut holders = file.holders.iter();
        // A client that has the file open to write too would take each lock of it by a delegation to read.
        // But it keeps one that it had before it opened the file so.
        let is_open = holders.any(|holder| {
            let is_writing = holder.share.access.contains(ShareAccess::WRITE);
            let is_own_conflict = kind == DelegationKind::Read && is_writing && !is_reclaim;
            if is_other(&holder.client) { conflicts(holder.share) } else { is_own_conflict }
        });
        let locks = file.locks.as_ref();
        let is_locked = locks.is_some_and(|locks| {
            let mut writing = locks.held().chain(locks.waited_for());
            writing.any(|range| range.kind == LockKind::Write && is_other(&range.owner.client))
        });
        !is_open && !is_locked
    }

    /// An open has a lesser share from now on.
    pub(crate) fn lessen(&self, number: OpenNumber, key: &FileKey, share: Share) {
        let Some((mut shard, hash)) = self.shard(key) else { return };
        if let Some(file) = shard.find_mut(hash, |file| file.key == *key)
            && let Some(holder) = file.holders.get_mut(number)
        {
            file.counts.subtract(holder.share);
            self.gate.enter(key, share);
            self.gate.leave(key, holder.share);
            holder.share = share;
            file.counts.add(share);
        }
    }

    /// An open is no more; nor is the file here, if that was its last.
    pub(crate) fn release(&self, number: OpenNumber, key: &FileKey) {
        if let Some(share) = self.release_behind_gate(number, key) {
            self.gate.leave(key, share);
        }
    }

    /// The same, but the gate counts it still: its share.
    pub(crate) fn release_behind_gate(&self, number: OpenNumber, key: &FileKey) -> Option<Share> {
        let (mut shard, hash) = self.shard(key)?;
        let mut entry = shard.find_entry(hash, |file| file.key == *key).ok()?;
        let file = entry.get_mut();
        let (removed, is_last) = file.holders.remove(number);
        if let Some(share) = removed {
            file.counts.subtract(share);
        }
        if is_last {
            entry.remove();
            // What many open files took is given back, seldom enough to cost little a file.
            if shard.capacity() > CAPACITY_KEPT && shard.len() < shard.capacity() / 8 {
                let capacity = shard.capacity() / 4;
                shard.shrink_to(capacity, |file| self.hasher.hash_one(file.key));
            }
        }
        removed
    }

    /// Calls `take` with the locks of an open file.
    pub(crate) fn lock<T>(
        &self,
        key: &FileKey,
        take: impl FnOnce(&mut FileLocks) -> T,
    ) -> Option<T> {
        let (mut shard, hash) = self.shard(key)?;
        let file = shard.find_mut(hash, |file| file.key == *key)?;
        let locks = file.locks.get_or_insert_with(|| Box::new(FileLocks::new(*key)));
        let taken = take(locks);
        self.effects.collect(key, locks);
        self.changed.collect(key, locks);
        if file.locks.take_if(|locks| locks.is_empty()).is_some() {
            // Also if it was somebody's wait that has ended: whoever shows locks may let go of the file.
            self.changed.note_empty(key);
        }
        Some(taken)
    }

    /// Calls `change` with the locks of a file, if it has any.
    pub(crate) fn with_locks<T>(
        &self,
        key: &FileKey,
        change: impl FnOnce(&mut FileLocks) -> T,
    ) -> Option<T> {
        let (mut shard, hash) = self.shard(key)?;
        let file = shard.find_mut(hash, |file| file.key == *key)?;
        let locks = file.locks.as_mut()?;
        let changed = change(locks);
        self.effects.collect(key, locks);
        self.changed.collect(key, locks);
        if file.locks.take_if(|locks| locks.is_empty()).is_some() {
            // Also if it was somebody's wait that has ended: whoever shows locks may let go of the file.
            self.changed.note_empty(key);
        }
        Some(changed)
    }

    /// Whether the gate counts the opens that deny something, and nothing else.
    #[cfg(test)]
    pub(crate) fn is_gate_right(&self) -> bool {
        let right = Gate::new();
        for shard in &self.shards {
            for file in shard.lock().iter() {
                let share = |holder: &Holder| right.enter(&file.key, holder.share);
                match &file.holders {
                    Holders::One(_, holder) => share(holder),
                    Holders::Many(holders) => holders.values().for_each(share),
                }
            }
        }
        right.is_same(&self.gate)
    }

    /// How many files are open.
    pub(crate) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn shard(&self, key: &FileKey) -> Option<(parking_lot::MutexGuard<'_, HashTable<File>>, u64)> {
        let hash = self.hasher.hash_one(key);
        // The tables use the low bits and the highest seven.
        let shard = self.shards.get((hash >> 40) as usize % SHARDS)?;
        Some((shard.lock(), hash))
    }
}
