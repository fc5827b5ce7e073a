//! Random numbers from a printed seed (splitmix64), so that choices can be repeated.

/// A generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Equal seeds give equal numbers.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator for a part of what this seed is for.
    pub(crate) fn of(seed: u64, part: u64) -> Self {
        let mut random = Self(seed ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self(random.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True so many times in a hundred.
    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of these.
    pub(crate) fn choose<T: Copy>(&mut self, among: &[T]) -> Option<T> {
        among.get(self.below(among.len() as u64) as usize).copied()
    }
}

/// The bytes that a seed stands for.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(length);
    // Zero is what a hole reads as: data never looks like one.
    for byte in &mut bytes {
        *byte |= 1;
    }
    bytes
}
