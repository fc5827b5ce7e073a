//! A persistent map in the order of its keys.

use std::slice::Iter;
use std::sync::Arc;

use smallvec::SmallVec;

/// Entries of a bucket before it becomes a branch. A change copies one bucket.
const BUCKET_MAX: usize = 32;
/// A branch becomes a bucket again at this many entries: fewer than [`BUCKET_MAX`], so that one
/// entry that comes and goes does not make a branch each time.
const MERGED_MAX: usize = BUCKET_MAX / 2;
const DIGIT_BITS: u32 = 4;
const DIGITS: usize = 1 << DIGIT_BITS;
/// Below this no digit of a key is left. A bucket here is as long as its key has entries.
const DEPTH_MAX: u32 = u64::BITS / DIGIT_BITS;

/// Values by keys that are spread evenly, as hashes are. Several values may have one key.
///
/// A clone shares everything. A change then copies one bucket and the branches above it: with
/// 15,000 entries three branches of 256 bytes each.
#[derive(Clone)]
pub(super) struct Ordered<T> {
    top: Part<T>,
    length: usize,
}

/// All entries whose keys begin with the same digits.
#[derive(Clone)]
enum Part<T> {
    Empty,
    /// Never empty, sorted by key.
    Bucket(Arc<Vec<(u64, T)>>),
    /// By the next digit.
    Branch(Arc<[Part<T>; DIGITS]>),
}

fn digit(key: u64, depth: u32) -> usize {
    let shift = u64::BITS.saturating_sub(DIGIT_BITS * (depth + 1));
    (key >> shift) as usize % DIGITS
}

/// Where in a bucket the entries of keys from `key` on begin.
fn start_in<T>(entries: &[(u64, T)], key: u64) -> usize {
    entries.partition_point(|(other, _)| *other < key)
}

fn place_in<T>(entries: &[(u64, T)], key: u64, is_it: impl Fn(&T) -> bool) -> Option<usize> {
    let start = start_in(entries, key);
    let mut of_key = entries.iter().skip(start).take_while(|(other, _)| *other == key);
    of_key.position(|(_, value)| is_it(value)).map(|after| start + after)
}

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self { top: Part::Empty, length: 0 }
    }
}

impl<T> Ordered<T> {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The value of this key that `is_it` says yes to.
    pub(super) fn find(&self, key: u64, is_it: impl Fn(&T) -> bool) -> Option<&T> {
        let (mut part, mut depth) = (&self.top, 0);
        loop {
            match part {
                Part::Empty => return None,
                Part::Bucket(entries) => {
                    let place = place_in(entries, key, is_it)?;
                    return entries.get(place).map(|(_, value)| value);
                }
                Part::Branch(parts) => part = parts.get(digit(key, depth))?,
            }
            depth += 1;
        }
    }

    /// All entries of `start` and the keys after it, in the order of keys.
    pub(super) fn from(&self, start: u64) -> Entries<'_, T> {
        let mut entries = Entries { bucket: [].iter(), later: SmallVec::new() };
        let (mut part, mut depth) = (&self.top, 0);
        loop {
            match part {
                Part::Empty => return entries,
                Part::Bucket(bucket) => {
                    entries.bucket = bucket.get(start_in(bucket, start)..).unwrap_or(&[]).iter();
                    return entries;
                }
                Part::Branch(parts) => {
                    let mut parts = parts.get(digit(start, depth)..).unwrap_or(&[]).iter();
                    let Some(next) = parts.next() else { return entries };
                    entries.later.push(parts);
                    part = next;
                }
            }
            depth += 1;
        }
    }

    /// Addresses and sizes of what clones share: buckets and branches.
    #[cfg(test)]
    pub(super) fn allocations(&self) -> Vec<(usize, usize)> {
        fn add<T>(part: &Part<T>, to: &mut Vec<(usize, usize)>) {
            match part {
                Part::Empty => {}
                Part::Bucket(entries) => to.push((
                    Arc::as_ptr(entries).addr(),
                    size_of::<Vec<(u64, T)>>() + size_of::<(u64, T)>() * entries.capacity(),
                )),
                Part::Branch(parts) => {
                    to.push((Arc::as_ptr(parts).addr(), size_of_val(&**parts)));
                    parts.iter().for_each(|part| add(part, to));
                }
            }
        }
        let mut all = Vec::new();
        add(&self.top, &mut all);
        all
    }
}

impl<T: Clone> Ordered<T> {
    /// As [`Ordered::find`], to change the value.
    pub(super) fn find_mut(&mut self, key: u64, is_it: impl Fn(&T) -> bool) -> Option<&mut T> {
        // Nothing is copied for what is not there.
        self.find(key, &is_it)?;
        let (mut part, mut depth) = (&mut self.top, 0);
        loop {
            match part {
                Part::Empty => return None,
                Part::Bucket(entries) => {
                    let entries = Arc::make_mut(entries);
                    let place = place_in(entries, key, is_it)?;
                    return entries.get_mut(place).map(|(_, value)| value);
                }
                Part::Branch(parts) => {
                    part = Arc::make_mut(parts).get_mut(digit(key, depth))?;
                }
            }
            depth += 1;
        }
    }

    pub(super) fn insert(&mut self, key: u64, value: T) {
        self.top.insert(0, key, value);
        self.length += 1;
    }

    /// Takes out the value of this key that `is_it` says yes to.
    pub(super) fn remove(&mut self, key: u64, is_it: impl Fn(&T) -> bool) -> Option<T> {
        self.find(key, &is_it)?;
        let removed = self.top.remove(0, key, &is_it)?;
        self.length -= 1;
        Some(removed)
    }
}

impl<T: Clone> Part<T> {
    fn insert(&mut self, depth: u32, key: u64, value: T) {
        match self {
            Self::Empty => *self = Self::Bucket(Arc::new(vec![(key, value)])),
            Self::Bucket(entries) => {
                let entries = Arc::make_mut(entries);
                entries.insert(start_in(entries, key), (key, value));
                if entries.len() > BUCKET_MAX && depth < DEPTH_MAX {
                    *self = Self::split(std::mem::take(entries), depth);
                }
            }
            Self::Branch(parts) => {
                if let Some(part) = Arc::make_mut(parts).get_mut(digit(key, depth)) {
                    part.insert(depth + 1, key, value);
                }
            }
        }
    }

    fn split(entries: Vec<(u64, T)>, depth: u32) -> Self {
        let mut buckets: [Vec<_>; DIGITS] = std::array::from_fn(|_| Vec::new());
        for (key, value) in entries {
            if let Some(bucket) = buckets.get_mut(digit(key, depth)) {
                bucket.push((key, value));
            }
        }
        Self::Branch(Arc::new(buckets.map(Self::of)))
    }

    fn of(entries: Vec<(u64, T)>) -> Self {
        if entries.is_empty() { Self::Empty } else { Self::Bucket(Arc::new(entries)) }
    }

    fn remove(&mut self, depth: u32, key: u64, is_it: &impl Fn(&T) -> bool) -> Option<T> {
        match self {
            Self::Empty => None,
            Self::Bucket(entries) => {
                let place = place_in(entries, key, is_it)?;
                let entries = Arc::make_mut(entries);
                let (_, removed) = entries.remove(place);
                if entries.is_empty() {
                    *self = Self::Empty;
                }
                Some(removed)
            }
            Self::Branch(parts) => {
                let parts = Arc::make_mut(parts);
                let removed = parts.get_mut(digit(key, depth))?.remove(depth + 1, key, is_it)?;
                if let Some(merged) = Self::merged(parts) {
                    *self = merged;
                }
                Some(removed)
            }
        }
    }

    /// A branch of few entries as a bucket.
    fn merged(parts: &[Self; DIGITS]) -> Option<Self> {
        let mut length = 0;
        for part in parts {
            match part {
                Self::Empty => {}
                Self::Bucket(entries) => length += entries.len(),
                Self::Branch(_) => return None,
            }
        }
        if length > MERGED_MAX {
            return None;
        }
        let entries = parts.iter().flat_map(|part| match part {
            Self::Bucket(entries) => entries.as_slice(),
            Self::Empty | Self::Branch(_) => &[],
        });
        Some(Self::of(entries.cloned().collect()))
    }
}

/// Some entries in their order.
pub(super) struct Entries<'a, T> {
    bucket: Iter<'a, (u64, T)>,
    /// What comes after the bucket, the nearest last.
    later: SmallVec<[Iter<'a, Part<T>>; 4]>,
}

impl<'a, T> Iterator for Entries<'a, T> {
    type Item = (u64, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.bucket.next() {
                return Some((*key, value));
            }
            match self.later.last_mut()?.next() {
                None => {
                    self.later.pop();
                }
                Some(Part::Empty) => {}
                Some(Part::Bucket(entries)) => self.bucket = entries.iter(),
                Some(Part::Branch(parts)) => self.later.push(parts.iter()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Few at each place, so that keys repeat and lie close together at every depth.
    fn key() -> impl Strategy<Value = u64> {
        prop_oneof![
            4 => 0..90_u64,
            1 => Just(0x77),
            1 => (0..16_u64, 0..16_u32).prop_map(|(digit, depth)| digit << (4 * depth)),
            1 => any::<u64>(),
        ]
    }

    fn all(map: &Ordered<u8>, start: u64) -> Vec<(u64, u8)> {
        map.from(start).map(|(key, value)| (key, *value)).collect()
    }

    proptest! {
        #[test]
        fn it_is_what_a_sorted_set_is(
            changes in prop::collection::vec((any::<bool>(), key(), any::<u8>()), 0..400),
            starts in prop::collection::vec(key(), 4),
        ) {
            let mut map = Ordered::default();
            let mut model = BTreeSet::new();
            let mut old = Vec::new();
            for (index, (is_insert, key, value)) in changes.iter().copied().enumerate() {
                if index % 100 == 50 {
                    old.push((map.clone(), model.clone()));
                }
                let is_it = |other: &u8| *other == value;
                if !is_insert {
                    // Most of what was put in a moment ago goes again.
                    let found = model.range((key, value)..).next().copied();
                    if let Some((key, value)) = found {
                        model.remove(&(key, value));
                        prop_assert_eq!(map.remove(key, |other| *other == value), Some(value));
                    }
                } else if model.insert((key, value)) {
                    prop_assert!(map.find(key, is_it).is_none());
                    prop_assert!(map.find_mut(key, is_it).is_none());
                    prop_assert!(map.remove(key, is_it).is_none());
                    map.insert(key, value);
                    prop_assert_eq!(map.find_mut(key, is_it).copied(), Some(value));
                }
            }
            old.push((map, model));
            for (map, model) in &old {
                prop_assert_eq!(map.len(), model.len());
                prop_assert_eq!(map.is_empty(), model.is_empty());
                for start in &starts {
                    let mut found = all(map, *start);
                    prop_assert!(found.is_sorted_by_key(|(key, _)| *key));
                    // Values of one key have no order.
                    found.sort_unstable();
                    let expected: Vec<_> = model.range((*start, 0)..).copied().collect();
                    prop_assert_eq!(found, expected);
                }
                for (key, value) in model {
                    prop_assert!(map.find(*key, |other| other == value).is_some());
                }
            }
        }
    }

    #[test]
    fn one_key_may_have_more_values_than_a_bucket() {
        let mut map = Ordered::default();
        for value in 0..200_u8 {
            map.insert(0xabcd, value);
        }
        map.insert(0xabce, 0);
        assert_eq!(all(&map, 0xabcd).len(), 201);
        assert_eq!(all(&map, 0xabce), [(0xabce, 0)]);
        for value in 0..200_u8 {
            assert_eq!(map.remove(0xabcd, |other| *other == value), Some(value));
        }
        // What is left has one bucket again.
        assert_eq!(map.allocations().len(), 1);
        assert_eq!(map.remove(0xabce, |_| true), Some(0));
        assert!(map.allocations().is_empty());
    }
}
