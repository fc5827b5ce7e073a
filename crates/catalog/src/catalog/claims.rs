//! Who has a path, and who has an id: of several the first, and the others are told so.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use crate::group::NodeId;

/// One that wants a path and an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Claim {
    /// A directory that became a share by a pattern: group and number in it.
    Made(u32, u32),
    /// A share of a group's file: group and segment.
    Written(u32, NodeId),
    /// A share of the configuration file or the command line.
    Fixed(u32),
}

/// Which of several claims counts: the least. What is written by hand in the configuration
/// outweighs the rest, and what is written in a file what a pattern makes; then it goes by the
/// name of the group, and by the place in its file.
pub(super) type Rank<'a> = (u8, &'a str, u64, &'a str);

/// What is asked about claims.
pub(super) trait Ranking {
    fn path(&self, claim: Claim) -> &str;
    fn rank(&self, claim: Claim) -> Rank<'_>;
}

/// What came of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has it.
    First,
    /// It has it, and took it from this one.
    Took(Claim),
    /// Another has it.
    Later,
}

/// Puts a claim among those that have to wait, in their order.
fn queue(waiting: &mut Vec<Claim>, claim: Claim, ranking: &impl Ranking) {
    let place = waiting.partition_point(|other| ranking.rank(*other) < ranking.rank(claim));
    waiting.insert(place, claim);
}

/// Who has each path.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    hasher: RandomState,
    first: HashTable<Claim>,
    later: HashMap<Box<str>, Vec<Claim>>,
}

impl Paths {
    /// Who has the path.
    pub(super) fn first(&self, path: &str, ranking: &impl Ranking) -> Option<Claim> {
        let hash = self.hasher.hash_one(path);
        self.first.find(hash, |claim| ranking.path(*claim) == path).copied()
    }

    /// Whether this claim, which was entered, has its path.
    pub(super) fn has(&self, path: &str, claim: Claim, ranking: &impl Ranking) -> bool {
        // Mostly nobody waits for any.
        !self.later.contains_key(path) || self.first(path, ranking) == Some(claim)
    }

    /// Those that came later.
    pub(super) fn later(&self, path: &str) -> &[Claim] {
        self.later.get(path).map_or(&[], Vec::as_slice)
    }

    pub(super) fn claim(&mut self, path: &str, claim: Claim, ranking: &impl Ranking) -> Standing {
        let hash = self.hasher.hash_one(path);
        let Some(first) = self.first.find_mut(hash, |claim| ranking.path(*claim) == path) else {
            let hasher = &self.hasher;
            self.first.insert_unique(hash, claim, |claim| hasher.hash_one(ranking.path(*claim)));
            return Standing::First;
        };
        let (loser, standing) = if ranking.rank(claim) < ranking.rank(*first) {
            let loser = std::mem::replace(first, claim);
            (loser, Standing::Took(loser))
        } else {
            (claim, Standing::Later)
        };
        queue(self.later.entry(path.into()).or_default(), loser, ranking);
        standing
    }

    /// Gives a path up. Returns whether it was had, and who has it now.
    pub(super) fn release(
        &mut self,
        path: &str,
        claim: Claim,
        ranking: &impl Ranking,
    ) -> (bool, Option<Claim>) {
        let hash = self.hasher.hash_one(path);
        let waiting = self.later.get_mut(path);
        let Ok(entry) = self.first.find_entry(hash, |other| *other == claim) else {
            if let Some(waiting) = waiting {
                waiting.retain(|other| *other != claim);
                if waiting.is_empty() {
                    self.later.remove(path);
                }
            }
            return (false, None);
        };
        entry.remove();
        let Some(waiting) = waiting.filter(|waiting| !waiting.is_empty()) else {
            return (true, None);
        };
        let next = waiting.remove(0);
        if waiting.is_empty() {
            self.later.remove(path);
        }
        let hasher = &self.hasher;
        self.first.insert_unique(hash, next, |claim| hasher.hash_one(ranking.path(*claim)));
        (true, Some(next))
    }

    pub(super) fn reserve(&mut self, more: usize, ranking: &impl Ranking) {
        let hasher = &self.hasher;
        self.first.reserve(more, |claim| hasher.hash_one(ranking.path(*claim)));
    }
}

/// Who has each id, of those that have their paths.
#[derive(Clone, Debug, Default)]
pub(super) struct Ids {
    first: HashMap<u64, Claim>,
    later: HashMap<u64, Vec<Claim>>,
}

impl Ids {
    pub(super) fn first(&self, id: u64) -> Option<Claim> {
        self.first.get(&id).copied()
    }

    /// Whether this claim, which was entered, has its id.
    pub(super) fn has(&self, id: u64, claim: Claim) -> bool {
        !self.later.contains_key(&id) || self.first(id) == Some(claim)
    }

    /// Claims an id.
    pub(super) fn claim(&mut self, id: u64, claim: Claim, ranking: &impl Ranking) {
        let Some(first) = self.first.get_mut(&id) else {
            self.first.insert(id, claim);
            return;
        };
        let comes_first = ranking.rank(claim) < ranking.rank(*first);
        let loser = if comes_first { std::mem::replace(first, claim) } else { claim };
        queue(self.later.entry(id).or_default(), loser, ranking);
    }

    /// Gives an id up. Returns who has it now, if it was had.
    pub(super) fn release(&mut self, id: u64, claim: Claim) -> Option<Claim> {
        let waiting = self.later.get_mut(&id);
        if self.first.get(&id) != Some(&claim) {
            if let Some(waiting) = waiting {
                waiting.retain(|other| *other != claim);
                if waiting.is_empty() {
                    self.later.remove(&id);
                }
            }
            return None;
        }
        self.first.remove(&id);
        let waiting = waiting?;
        if waiting.is_empty() {
            return None;
        }
        let next = waiting.remove(0);
        if waiting.is_empty() {
            self.later.remove(&id);
        }
        self.first.insert(id, next);
        Some(next)
    }
}
