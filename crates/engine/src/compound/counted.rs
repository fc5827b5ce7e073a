//! Operations of a COMPOUND, numbered for statistics.

use std::fmt;

use steadfast_wire::nfs4::Op4;

use crate::nfs4;

/// The number before that of the first operation.
const BEFORE_FIRST: u32 = Op4::Access as u32 - 1;
/// Operations that the table has.
const KNOWN: u8 = nfs4::OPERATION_COUNT as u8;

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

    /// Its name in the RFC.
    pub fn name(self) -> &'static str {
        nfs4::row(self.number()).map_or("ILLEGAL", |row| row.operation.name)
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

impl fmt::Display for CompoundOperations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, operation) in self.iter().enumerate() {
            let space = if place == 0 { "" } else { " " };
            write!(f, "{space}{}", operation.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_an_index_and_its_name() {
        assert_eq!(CompoundOperation::all().count(), CompoundOperation::COUNT);
        for (index, operation) in CompoundOperation::all().enumerate() {
            assert_eq!(operation.index(), index);
            assert_eq!(operation.name() == "ILLEGAL", operation == CompoundOperation::ILLEGAL);
        }
        assert_eq!(CompoundOperation::of(Op4::Access).name(), "ACCESS");
        assert_eq!(CompoundOperation::of(Op4::RemoveXattr).name(), "REMOVEXATTR");
        assert_eq!(CompoundOperation::of(Op4::Illegal), CompoundOperation::ILLEGAL);
        assert_eq!(CompoundOperation::of(Op4::Sequence).number(), 53);
    }

    #[test]
    fn the_first_eight_operations_are_kept_in_their_order() {
        let mut operations = CompoundOperations::default();
        assert_eq!(operations.to_string(), "");
        for number in [Op4::Sequence, Op4::PutFh, Op4::Illegal, Op4::GetAttr] {
            operations.push(CompoundOperation::of(number));
        }
        assert_eq!(operations.to_string(), "SEQUENCE PUTFH ILLEGAL GETATTR");
        for _ in 0..10 {
            operations.push(CompoundOperation::of(Op4::Read));
        }
        let again = CompoundOperations::from_word(operations.to_word());
        assert_eq!(again.to_string(), "SEQUENCE PUTFH ILLEGAL GETATTR READ READ READ READ");
        assert_eq!(again.iter().count(), CompoundOperations::KEPT);
        assert_eq!(CompoundOperations::from_word(u64::MAX).iter().count(), 8);
    }
}
