//! Operations of a COMPOUND, numbered for statistics.

use steadfast_wire::nfs4::Op4;

/// The number before that of the first operation.
const BEFORE_FIRST: u32 = Op4::Access as u32 - 1;
/// Operations that the minor versions have.
const KNOWN: u8 = (Op4::RemoveXattr as u32 - BEFORE_FIRST) as u8;

/// An operation of NFSv4, numbered without gaps: who counts them needs an array and no map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompoundOperation(u8);

impl CompoundOperation {
    /// What no minor version has.
    pub const ILLEGAL: Self = Self(0);

    /// How many there are, [`CompoundOperation::ILLEGAL`] included.
    pub const COUNT: usize = KNOWN as usize + 1;

    /// That of a row of the table.
    pub(crate) fn of(number: Op4) -> Self {
        let index = (number as u32).saturating_sub(BEFORE_FIRST);
        Self(if index <= u32::from(KNOWN) { index as u8 } else { 0 })
    }

    /// All, by index.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=KNOWN).map(Self)
    }

    /// Less than [`CompoundOperation::COUNT`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Its number in the protocol (`nfs_opnum4`).
    pub fn number(self) -> u32 {
        match self {
            Self::ILLEGAL => Op4::Illegal as u32,
            Self(index) => BEFORE_FIRST + u32::from(index),
        }
    }
}

/// The first operations of a COMPOUND, [`CompoundOperations::KEPT`] at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompoundOperations(u64);

impl CompoundOperations {
    /// So many are kept.
    pub const KEPT: usize = 8;

    /// One more has ended.
    #[inline]
    pub(crate) fn push(&mut self, operation: CompoundOperation) {
        // Those that came before lie higher; 0 is none, so that numbers begin with 1.
        if self.0 >> (u64::BITS - 8) == 0 {
            self.0 = (self.0 << 8) | (u64::from(operation.0) + 1);
        }
    }

    /// As one word, for who keeps it.
    pub fn to_word(self) -> u64 {
        self.0
    }

    /// From [`CompoundOperations::to_word`].
    pub fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// They, in their order.
    pub fn iter(self) -> impl Iterator<Item = CompoundOperation> + Clone {
        self.0
            .to_be_bytes()
            .into_iter()
            .filter_map(|byte| byte.checked_sub(1))
            .map(|index| CompoundOperation(if index <= KNOWN { index } else { 0 }))
    }
}
