//! What operations are called, for who counts them.

use std::fmt;

use super::row;
use crate::compound_operation::{CompoundOperation, CompoundOperations};

impl CompoundOperation {
    /// Its name in the RFC.
    pub fn name(self) -> &'static str {
        row(self.number()).map_or("ILLEGAL", |row| row.operation.name)
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
    use steadfast_wire::nfs4::Op4;

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
