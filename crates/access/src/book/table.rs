//! The names by subject, in shards, so that who writes one holds up few who read.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::RwLock;

use crate::entry::Entry;
use crate::facts::{Asked, Subject};
use crate::group::Group;

/// Enough that two of a few hundred threads rarely meet, and few enough to go through.
const SHARDS: usize = 64;

/// A name with what is made of it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) entry: Entry,
    /// Of a netgroup that is known.
    pub(super) group: Option<Arc<Group>>,
}

type Shard = RwLock<HashTable<(Subject, Slot)>>;

#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[Shard]>,
    hasher: DefaultHashBuilder,
}

impl Default for Table {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Self { shards, hasher: DefaultHashBuilder::default() }
    }
}

impl Table {
    /// The hash of a subject and its shard. The bits that choose the shard are not those that
    /// choose the place in it, nor those that the table keeps beside it.
    fn shard(&self, asked: Asked<'_>) -> (u64, &Shard) {
        let hash = self.hasher.hash_one(asked);
        let index = (hash >> 40) as usize % SHARDS;
        #[allow(clippy::indexing_slicing, reason = "there are as many shards as it is taken of")]
        (hash, &self.shards[index])
    }

    /// A number that is always the same for one subject while the program runs.
    pub(super) fn spread(&self, asked: Asked<'_>) -> u8 {
        (self.hasher.hash_one(asked) >> 24) as u8
    }

    pub(super) fn read<R>(&self, asked: Asked<'_>, look: impl FnOnce(Option<&Slot>) -> R) -> R {
        let (hash, shard) = self.shard(asked);
        let shard = shard.read();
        look(shard.find(hash, |(key, _)| asked == key.asked()).map(|(_, slot)| slot))
    }

    /// `None` if there is no such name.
    pub(super) fn write<R>(
        &self,
        asked: Asked<'_>,
        change: impl FnOnce(&mut Slot) -> R,
    ) -> Option<R> {
        let (hash, shard) = self.shard(asked);
        let mut shard = shard.write();
        shard.find_mut(hash, |(key, _)| asked == key.asked()).map(|(_, slot)| change(slot))
    }

    /// As [`Self::write`]; the name is made if there is none. Also tells whether it was.
    pub(super) fn enter<R>(
        &self,
        asked: Asked<'_>,
        now_ms: u64,
        change: impl FnOnce(&mut Slot) -> R,
    ) -> (R, bool) {
        let (hash, shard) = self.shard(asked);
        let mut shard = shard.write();
        let rehash = |(key, _): &(Subject, Slot)| self.hasher.hash_one(key.asked());
        match shard.entry(hash, |(key, _)| asked == key.asked(), rehash) {
            hashbrown::hash_table::Entry::Occupied(mut found) => {
                (change(&mut found.get_mut().1), false)
            }
            hashbrown::hash_table::Entry::Vacant(place) => {
                let slot = Slot { entry: Entry::new(now_ms), group: None };
                let mut made = place.insert((asked.to_subject(), slot));
                (change(&mut made.get_mut().1), true)
            }
        }
    }

    pub(super) fn remove(&self, asked: Asked<'_>) -> Option<Slot> {
        let (hash, shard) = self.shard(asked);
        let mut shard = shard.write();
        let found = shard.find_entry(hash, |(key, _)| asked == key.asked()).ok()?;
        Some(found.remove().0.1)
    }

    /// Goes through all names, a shard at a time.
    pub(super) fn for_each(&self, mut look: impl FnMut(&Subject, &Slot)) {
        for shard in &*self.shards {
            for (subject, slot) in shard.read().iter() {
                look(subject, slot);
            }
        }
    }
}
