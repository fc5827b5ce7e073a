//! What a disk may hold after the power failed.
//!
//! A write that a later flush followed is there. Of the others each sector independently holds
//! what some unflushed write put there, or what was there before: a disk with a volatile cache
//! destages sectors in any order, and forgets the rest. Writes to one sector never come to be
//! *older* than the last flush left them.

use crate::image::Image;
use crate::random::Random;

/// What becomes of writes that no flush followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survival {
    /// All are lost: the cache was never destaged.
    None,
    /// All are there: the cache was destaged in time.
    All,
    /// Those up to some moment are there, the last of them torn.
    Prefix,
    /// Each is there or not, as chance has it: reordered.
    Some,
    /// Each sector of each write is there or not: reordered and torn.
    Torn,
}

impl Survival {
    /// The kinds, by how often they are chosen: what loses most finds most.
    const CHOICE: [Self; 10] = [
        Self::None,
        Self::None,
        Self::None,
        Self::All,
        Self::Prefix,
        Self::Prefix,
        Self::Some,
        Self::Some,
        Self::Torn,
        Self::Torn,
    ];

    /// A random one.
    pub(crate) fn random(random: &mut Random) -> Self {
        random.choose(&Self::CHOICE).unwrap_or(Self::None)
    }
}

/// A disk during a run: what is stable, and what is not yet.
#[derive(Debug)]
pub(crate) struct Disk {
    stable: Image,
    unflushed: Vec<(u64, Vec<u8>)>,
    /// What is written whole or not at all.
    sector_bytes: usize,
}

impl Disk {
    /// A disk with these contents, all stable.
    pub(crate) fn new(stable: Image, sector_bytes: usize) -> Self {
        Self { stable, unflushed: Vec::new(), sector_bytes }
    }

    /// It is written.
    pub(crate) fn write(&mut self, offset: u64, data: Vec<u8>) {
        self.unflushed.push((offset, data));
    }

    /// It is flushed.
    pub(crate) fn flush(&mut self) {
        for (offset, data) in self.unflushed.drain(..) {
            self.stable.write(offset, &data);
        }
    }

    /// How many writes are not stable.
    pub(crate) fn unflushed(&self) -> usize {
        self.unflushed.len()
    }

    /// What it holds if the power fails now.
    pub(crate) fn crashed(&self, survival: Survival, random: &mut Random) -> Image {
        let mut image = self.stable.clone();
        let count = self.unflushed.len() as u64;
        let end = if survival == Survival::Prefix { random.below(count + 1) } else { count };
        // One chance for the whole crash, so that there are those that lose little and much.
        let chance = [5, 20, 50, 80, 95][random.below(5) as usize % 5];
        for (index, (offset, data)) in self.unflushed.iter().enumerate() {
            let is_last = index as u64 + 1 == end;
            match survival {
                Survival::None => break,
                Survival::Prefix if index as u64 >= end => break,
                Survival::Some if !random.percent(chance) => {}
                Survival::All | Survival::Some => image.write(*offset, data),
                Survival::Prefix if !is_last => image.write(*offset, data),
                Survival::Prefix | Survival::Torn => {
                    for (number, sector) in data.chunks(self.sector_bytes).enumerate() {
                        if random.percent(chance) {
                            image.write(offset + (number * self.sector_bytes) as u64, sector);
                        }
                    }
                }
            }
        }
        image
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Two flushed writes, then three that are not: one over the first, one over it again.
    fn disk() -> Disk {
        let mut disk = Disk::new(Image::empty(1 << 16), 512);
        disk.write(0, vec![1; 1024]);
        disk.write(8192, vec![2; 512]);
        disk.flush();
        disk.write(512, vec![3; 1024]);
        disk.write(512, vec![4; 512]);
        disk.write(16384, vec![5; 512]);
        disk
    }

    fn outcome(disk: &Disk, survival: Survival, seed: u64) -> [u8; 5] {
        let image = disk.crashed(survival, &mut Random::new(seed));
        for sector in 0..64 {
            // No sector is torn.
            let first = image.byte(sector * 512);
            assert!((1..512).all(|at| image.byte(sector * 512 + at) == first));
        }
        [0, 512, 1024, 8192, 16384].map(|at| image.byte(at))
    }

    fn outcomes(survival: Survival) -> BTreeSet<[u8; 5]> {
        let disk = disk();
        (0..2000).map(|seed| outcome(&disk, survival, seed)).collect()
    }

    #[test]
    fn what_was_flushed_stays_and_the_rest_may_go() {
        assert_eq!(outcomes(Survival::None), [[1, 1, 0, 2, 0]].into());
        assert_eq!(outcomes(Survival::All), [[1, 4, 3, 2, 5]].into());
    }

    #[test]
    fn whole_writes_survive_in_any_combination() {
        let some = outcomes(Survival::Some);
        assert_eq!(some.len(), 8, "{some:?}");
        assert!(some.contains(&[1, 3, 3, 2, 0]), "the newer write may be lost alone");
        assert!(some.contains(&[1, 1, 0, 2, 5]), "the last may be there alone");
        assert!(!some.contains(&[1, 1, 3, 2, 0]), "none is torn");
    }

    #[test]
    fn torn_writes_survive_by_sector() {
        let torn = outcomes(Survival::Torn);
        // Sector 1: old, 3 or 4; sector 2: old or 3; the last: old or 5.
        assert_eq!(torn.len(), 12, "{torn:?}");
    }

    #[test]
    fn a_prefix_has_no_gap_before_its_last_write() {
        let prefix = outcomes(Survival::Prefix);
        assert!(prefix.contains(&[1, 1, 0, 2, 0]) && prefix.contains(&[1, 4, 3, 2, 5]));
        assert!(prefix.iter().all(|seen| seen[4] == 0 || seen[1..3] == [4, 3]), "{prefix:?}");
    }

    #[test]
    fn the_same_seed_is_the_same_crash() {
        let disk = disk();
        let choice = |seed| outcome(&disk, Survival::Torn, seed);
        assert!((0..100).all(|seed| choice(seed) == choice(seed)));
    }
}
