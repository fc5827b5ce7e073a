//! Decisions, remembered: by client, flavour, kind of port, and set of rules.

use std::hash::{BuildHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::Mutex;
use serde::Serialize;
use steadfast_shares::{Decision, Flavor, Question, RuleSet};

const SHARDS: usize = 64;
/// What is not used for so many seconds is let go.
const UNUSED_MAX_S: u32 = 3600;
/// How many entries are looked at to find one that was not used for long.
const SAMPLES: usize = 8;
/// How far apart these are: neighbours in the table are often neighbours in the network too, and
/// used together. Odd, so that all places of a table, a power of two, have their turn.
const STRIDE: usize = 0x9e37_79b1;

struct Remembered {
    client: IpAddr,
    flavor: Flavor,
    from_privileged_port: bool,
    /// Keeps the place of the rules from being another set's.
    rules: Weak<RuleSet>,
    decision: Decision,
    /// It holds while this is so.
    epoch: u64,
    used_s: u32,
}

#[derive(Default)]
struct Shard {
    table: HashTable<Remembered>,
    hits: u64,
    misses: u64,
    evicted: u64,
    /// Where samples are taken next.
    hand: usize,
}

/// Remembered decisions.
pub(crate) struct Cache {
    shards: Box<[Mutex<Shard>]>,
    hasher: DefaultHashBuilder,
    entries_max: usize,
    /// Seconds, told from time to time.
    now_s: AtomicU32,
    pending: AtomicU64,
    aged: AtomicU64,
    reclaimed: AtomicU64,
}

/// What the cache of decisions has and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheStatistics {
    /// Decisions that are remembered.
    pub entries: u64,
    /// Most that are.
    pub entries_max: u64,
    /// Memory they take, in bytes, about.
    pub bytes: u64,
    /// Questions answered by one.
    pub hits: u64,
    /// Questions for which there was none, or none that still held.
    pub misses: u64,
    /// Decisions that had to wait for a name.
    pub pending: u64,
    /// Entries let go since there were too many.
    pub evicted: u64,
    /// Entries let go since they were not used, or their rules are no more.
    pub aged: u64,
    /// Entries let go since memory was short.
    pub reclaimed: u64,
}

impl Cache {
    pub(crate) fn new(entries_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            entries_max,
            now_s: AtomicU32::new(0),
            pending: AtomicU64::new(0),
            aged: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
        }
    }

    fn hash(&self, rules: *const RuleSet, question: &Question) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        rules.hash(&mut hasher);
        question.hash(&mut hasher);
        hasher.finish()
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        #[allow(clippy::indexing_slicing, reason = "there are as many shards as it is taken of")]
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    /// A decision of this epoch. The client's address must be canonical.
    pub(crate) fn find(
        &self,
        rules: &Arc<RuleSet>,
        question: &Question,
        epoch: u64,
    ) -> Option<Decision> {
        let place = Arc::as_ptr(rules);
        let hash = self.hash(place, question);
        let mut shard = self.shard(hash).lock();
        let found = shard.table.find_mut(hash, |entry| entry.is_about(place, question));
        if let Some(entry) = found.filter(|entry| entry.epoch == epoch) {
            entry.used_s = self.now_s.load(Ordering::Relaxed);
            let decision = entry.decision;
            shard.hits += 1;
            return Some(decision);
        }
        shard.misses += 1;
        None
    }

    /// Remembers a decision, which held at this epoch.
    pub(crate) fn remember(
        &self,
        rules: &Arc<RuleSet>,
        question: &Question,
        decision: Decision,
        epoch: u64,
    ) {
        let place = Arc::as_ptr(rules);
        let hash = self.hash(place, question);
        let entries_max = (self.entries_max / SHARDS).max(1);
        let used_s = self.now_s.load(Ordering::Relaxed);
        let mut shard = self.shard(hash).lock();
        if let Some(entry) = shard.table.find_mut(hash, |entry| entry.is_about(place, question)) {
            // Of two who decide at once, the later may be the one who saw less.
            if entry.epoch <= epoch {
                (entry.decision, entry.epoch, entry.used_s) = (decision, epoch, used_s);
            }
            return;
        }
        while shard.table.len() >= entries_max {
            Self::evict_one(&mut shard);
        }
        let entry = Remembered {
            client: question.client,
            flavor: question.flavor,
            from_privileged_port: question.from_privileged_port,
            rules: Arc::downgrade(rules),
            decision,
            epoch,
            used_s,
        };
        shard.table.insert_unique(hash, entry, |entry| self.hash_of(entry));
    }

    fn hash_of(&self, entry: &Remembered) -> u64 {
        self.hash(entry.rules.as_ptr(), &entry.question())
    }

    /// Lets the longest unused of a few go.
    fn evict_one(shard: &mut Shard) {
        let buckets = shard.table.num_buckets().max(1);
        let (mut oldest, mut seen) = (None, 0);
        for _ in 0..buckets {
            let bucket = shard.hand % buckets;
            shard.hand = shard.hand.wrapping_add(STRIDE);
            let Some(entry) = shard.table.get_bucket(bucket) else { continue };
            if oldest.is_none_or(|(used_s, _)| entry.used_s < used_s) {
                oldest = Some((entry.used_s, bucket));
            }
            seen += 1;
            if seen == SAMPLES {
                break;
            }
        }
        match oldest.and_then(|(_, bucket)| shard.table.get_bucket_entry(bucket).ok()) {
            Some(entry) => {
                entry.remove();
                shard.evicted += 1;
            }
            None => shard.table.clear(),
        }
    }

    pub(crate) fn note_pending(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells the time, and lets go what was not used for long, or whose rules are no more.
    pub(crate) fn age(&self, now_s: u32) {
        self.now_s.store(now_s, Ordering::Relaxed);
        let mut count = 0;
        for shard in &self.shards {
            let mut shard = shard.lock();
            let before = shard.table.len();
            shard.table.retain(|entry| {
                entry.rules.strong_count() > 0 && now_s.saturating_sub(entry.used_s) <= UNUSED_MAX_S
            });
            count += before - shard.table.len();
            if shard.table.len() < shard.table.capacity() / 4 {
                shard.table.shrink_to_fit(|entry| self.hash_of(entry));
            }
        }
        self.aged.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Lets that part of all go, those that were not used for longest first, and gives the memory
    /// back. Tells how many.
    pub(crate) fn reclaim(&self, fraction: f64) -> usize {
        let fraction = fraction.clamp(0.0, 1.0);
        let mut count = 0;
        for shard in &self.shards {
            let mut shard = shard.lock();
            let mut wanted = (shard.table.len() as f64 * fraction).ceil() as usize;
            if wanted == 0 {
                continue;
            }
            let mut used: Vec<u32> = shard.table.iter().map(|entry| entry.used_s).collect();
            let (_, limit, _) = used.select_nth_unstable(wanted - 1);
            let limit = *limit;
            // First those that are older for certain, then of those that are as old.
            let before = shard.table.len();
            shard.table.retain(|entry| entry.used_s >= limit);
            wanted = wanted.saturating_sub(before - shard.table.len());
            shard.table.retain(|entry| {
                let is_kept = wanted == 0 || entry.used_s > limit;
                wanted -= usize::from(!is_kept);
                is_kept
            });
            count += before - shard.table.len();
            shard.table.shrink_to_fit(|entry| self.hash_of(entry));
        }
        self.reclaimed.fetch_add(count as u64, Ordering::Relaxed);
        count
    }

    pub(crate) fn statistics(&self) -> CacheStatistics {
        let mut statistics = CacheStatistics {
            entries_max: self.entries_max as u64,
            pending: self.pending.load(Ordering::Relaxed),
            aged: self.aged.load(Ordering::Relaxed),
            reclaimed: self.reclaimed.load(Ordering::Relaxed),
            ..CacheStatistics::default()
        };
        for shard in &self.shards {
            let shard = shard.lock();
            statistics.entries += shard.table.len() as u64;
            statistics.bytes += shard.table.allocation_size() as u64;
            statistics.hits += shard.hits;
            statistics.misses += shard.misses;
            statistics.evicted += shard.evicted;
        }
        statistics
    }
}

impl Remembered {
    fn is_about(&self, rules: *const RuleSet, question: &Question) -> bool {
        std::ptr::eq(self.rules.as_ptr(), rules) && self.question() == *question
    }

    fn question(&self) -> Question {
        Question {
            client: self.client,
            flavor: self.flavor,
            from_privileged_port: self.from_privileged_port,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(n: u32) -> Question {
        Question { client: n.to_be_bytes().into(), flavor: Flavor::Sys, from_privileged_port: true }
    }

    #[test]
    fn a_decision_holds_for_its_question_rules_and_epoch() {
        let cache = Cache::new(1000);
        let (rules, others) = (Arc::new(RuleSet::default()), Arc::new(RuleSet::default()));
        cache.remember(&rules, &question(1), Decision::Granted(3), 7);
        assert_eq!(cache.find(&rules, &question(1), 7), Some(Decision::Granted(3)));
        assert_eq!(cache.find(&rules, &question(1), 8), None);
        assert_eq!(cache.find(&rules, &question(2), 7), None);
        assert_eq!(cache.find(&others, &question(1), 7), None);
        let other = Question { from_privileged_port: false, ..question(1) };
        assert_eq!(cache.find(&rules, &other, 7), None);
        let other = Question { flavor: Flavor::Krb5, ..question(1) };
        assert_eq!(cache.find(&rules, &other, 7), None);
        // Who is late does not undo what is newer.
        cache.remember(&rules, &question(1), Decision::Granted(4), 8);
        cache.remember(&rules, &question(1), Decision::Granted(3), 7);
        assert_eq!(cache.find(&rules, &question(1), 8), Some(Decision::Granted(4)));
        let statistics = cache.statistics();
        assert_eq!((statistics.entries, statistics.hits, statistics.misses), (1, 2, 5));
    }

    #[test]
    fn there_are_no_more_than_are_wanted_and_the_unused_go_first() {
        let cache = Cache::new(12_800);
        let rules = Arc::new(RuleSet::default());
        for n in 0..5000 {
            cache.remember(&rules, &question(n), Decision::Pending, 1);
        }
        cache.age(100);
        for n in 0..1000 {
            assert!(cache.find(&rules, &question(n), 1).is_some());
        }
        for n in 5000..15_000 {
            cache.remember(&rules, &question(n), Decision::Pending, 1);
        }
        let statistics = cache.statistics();
        assert!(statistics.entries <= 12_800, "{statistics:?}");
        assert!(statistics.evicted >= 2200, "{statistics:?}");
        let kept = (0..1000).filter(|n| cache.find(&rules, &question(*n), 1).is_some()).count();
        assert!(kept > 900, "{kept} of 1000 in use are kept");
    }

    #[test]
    fn what_is_unused_or_without_rules_is_let_go() {
        let cache = Cache::new(1000);
        let (rules, others) = (Arc::new(RuleSet::default()), Arc::new(RuleSet::default()));
        cache.remember(&rules, &question(1), Decision::Pending, 1);
        cache.remember(&rules, &question(2), Decision::Pending, 1);
        cache.remember(&others, &question(1), Decision::Pending, 1);
        drop(others);
        cache.age(3000);
        assert_eq!(cache.statistics().entries, 2);
        cache.find(&rules, &question(1), 1);
        cache.age(3601);
        assert_eq!(cache.statistics().entries, 1);
        assert!(cache.find(&rules, &question(1), 1).is_some());
        assert_eq!(cache.statistics().aged, 2);
    }

    #[test]
    fn a_part_is_reclaimed_the_longest_unused_first() {
        let cache = Cache::new(100_000);
        let rules = Arc::new(RuleSet::default());
        for n in 0..10_000 {
            cache.remember(&rules, &question(n), Decision::Pending, 1);
        }
        cache.age(10);
        for n in 0..5000 {
            cache.find(&rules, &question(n), 1);
        }
        let bytes = cache.statistics().bytes;
        let reclaimed = cache.reclaim(0.5);
        assert!((5000..5100).contains(&reclaimed), "{reclaimed}");
        let kept = (0..5000).filter(|n| cache.find(&rules, &question(*n), 1).is_some()).count();
        assert!(kept > 4000, "{kept}");
        assert!(cache.statistics().bytes < bytes);
        cache.reclaim(1.0);
        assert_eq!(cache.statistics().entries, 0);
        assert_eq!(cache.reclaim(0.5), 0);
    }
}
