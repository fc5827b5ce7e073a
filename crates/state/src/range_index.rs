//! Ranges of many owners, which may overlap, in the order of their first bytes.
//!
//! They are kept in blocks, each with the last byte that one of its ranges reaches. So what
//! overlaps a span is found by a look at the blocks, and into few of them.

use crate::ranges::Span;

/// Ranges of a block. A full one is split.
const BLOCK_MAX: usize = 128;

#[derive(Clone, Debug)]
struct Entry<O> {
    span: Span,
    owner: O,
}

/// Never empty.
#[derive(Clone, Debug)]
struct Block<O> {
    end_max: u64,
    entries: Vec<Entry<O>>,
}

impl<O: Ord> Block<O> {
    fn new(entries: Vec<Entry<O>>) -> Self {
        let end_max = entries.iter().map(|entry| entry.span.end).max().unwrap_or(0);
        Self { end_max, entries }
    }

    fn start(&self) -> u64 {
        self.entries.first().map_or(0, |entry| entry.span.start)
    }

    /// Whether its first range is not behind the one that an owner has or gets at `start`.
    fn begins_until(&self, start: u64, owner: &O) -> bool {
        let first = self.entries.first();
        first.is_none_or(|entry| (entry.span.start, &entry.owner) <= (start, owner))
    }

    fn search(&self, start: u64, owner: &O) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| (entry.span.start, &entry.owner).cmp(&(start, owner)))
    }
}

/// Ranges of one file and kind. An owner has one at most that begins at a byte.
#[derive(Clone, Debug)]
pub(crate) struct RangeIndex<O> {
    blocks: Vec<Block<O>>,
}

impl<O> Default for RangeIndex<O> {
    fn default() -> Self {
        Self { blocks: Vec::new() }
    }
}

impl<O: Ord + Clone> RangeIndex<O> {
    /// Adds a range, or gives the one that begins there another end.
    pub(crate) fn add(&mut self, owner: &O, span: Span) {
        let place = self.place(span.start, owner);
        let Some(block) = self.blocks.get_mut(place) else {
            self.blocks.push(Block::new(vec![Entry { span, owner: owner.clone() }]));
            return;
        };
        match block.search(span.start, owner) {
            Ok(at) => {
                if let Some(entry) = block.entries.get_mut(at) {
                    entry.span = span;
                }
                *block = Block::new(std::mem::take(&mut block.entries));
            }
            Err(at) => {
                block.entries.insert(at, Entry { span, owner: owner.clone() });
                block.end_max = block.end_max.max(span.end);
            }
        }
        if block.entries.len() > BLOCK_MAX {
            let second = block.entries.split_off(BLOCK_MAX / 2);
            *block = Block::new(std::mem::take(&mut block.entries));
            self.blocks.insert(place + 1, Block::new(second));
        }
    }

    /// Takes out the range of an owner that begins at `start`.
    pub(crate) fn remove(&mut self, owner: &O, start: u64) {
        let place = self.place(start, owner);
        let Some(block) = self.blocks.get_mut(place) else { return };
        let Ok(at) = block.search(start, owner) else { return };
        block.entries.remove(at);
        if block.entries.is_empty() {
            self.blocks.remove(place);
        } else {
            *block = Block::new(std::mem::take(&mut block.entries));
            self.join(place);
        }
        if let Some(before) = place.checked_sub(1) {
            self.join(before);
        }
    }

    /// All that overlap a span, in order.
    pub(crate) fn overlapping(&self, span: Span) -> impl Iterator<Item = (&O, Span)> {
        let blocks = self.blocks.iter().take_while(move |block| block.start() <= span.end);
        blocks
            .filter(move |block| block.end_max >= span.start)
            .flat_map(|block| &block.entries)
            .filter(move |entry| entry.span.overlaps(span))
            .map(|entry| (&entry.owner, entry.span))
    }

    /// Joins a block with the next one, if both are small.
    fn join(&mut self, place: usize) {
        let lengths: Vec<usize> =
            self.blocks.iter().skip(place).take(2).map(|block| block.entries.len()).collect();
        if lengths.len() == 2 && lengths.iter().sum::<usize>() <= BLOCK_MAX / 2 {
            let mut next = self.blocks.remove(place + 1);
            if let Some(block) = self.blocks.get_mut(place) {
                block.entries.append(&mut next.entries);
                block.end_max = block.end_max.max(next.end_max);
            }
        }
    }

    /// The block where a range is or belongs.
    fn place(&self, start: u64, owner: &O) -> usize {
        let behind = self.blocks.partition_point(|block| block.begins_until(start, owner));
        behind.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{BLOCK_MAX, RangeIndex};
    use crate::ranges::Span;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn an_index_finds_what_a_walk_finds(
            phases in proptest::collection::vec((0..4_u8, 0..800_usize), 1..6),
            seed in any::<u64>(),
        ) {
            let mut index: RangeIndex<u8> = RangeIndex::default();
            let mut model: BTreeMap<(u64, u8), u64> = BTreeMap::new();
            let mut random = seed | 1;
            let mut next = |below: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % below
            };
            for (removals, steps) in phases {
                for step in 0..steps {
                    let (start, owner) = (next(300), next(5) as u8);
                    if next(4) < u64::from(removals) {
                        // Mostly one that there is.
                        let known = model.range((start, owner)..).next().map(|(key, _)| *key);
                        let (start, owner) = known.unwrap_or((start, owner));
                        index.remove(&owner, start);
                        model.remove(&(start, owner));
                    } else {
                        let length = if next(20) == 0 { 200 } else { next(5) };
                        index.add(&owner, Span { start, end: start + length });
                        model.insert((start, owner), start + length);
                    }
                    if step % 16 > 0 {
                        continue;
                    }
                    let start = next(320);
                    let span = Span { start, end: start + next(30) };
                    let found: Vec<_> = index.overlapping(span).collect();
                    let found: Vec<_> =
                        found.iter().map(|(owner, span)| (span.start, **owner, span.end)).collect();
                    let expected: Vec<_> = model
                        .iter()
                        .filter(|((first, _), end)| *first <= span.end && **end >= span.start)
                        .map(|((first, owner), end)| (*first, *owner, *end))
                        .collect();
                    prop_assert_eq!(found, expected);
                    // Few blocks, none of them empty or too large.
                    let lengths: Vec<usize> =
                        index.blocks.iter().map(|block| block.entries.len()).collect();
                    prop_assert!(lengths.iter().all(|length| (1..=BLOCK_MAX).contains(length)));
                    let is_small = |pair: &[usize]| pair[0] + pair[1] <= BLOCK_MAX / 2;
                    prop_assert!(!lengths.windows(2).any(is_small), "{:?}", lengths);
                }
            }
        }
    }
}
