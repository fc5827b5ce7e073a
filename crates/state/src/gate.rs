//! Which files may be denied to somebody, for the price of a look.
//!
//! NFSv2 and NFSv3 have no opens, and NFSv4 reads and writes without one too. All of them must
//! respect what opens deny, and nearly no open denies anything. So the denies of all files are
//! counted in cells, by a hash of the file. A cell of 0 says that nobody denies anything there; any
//! other leads to the table of open files, which knows.
//!
//! A deny is counted before the table has it, and for as long as the table has it. So whoever reads
//! 0 has looked before the OPEN that denies has returned: its change came first. Changes are not
//! counted themselves while they run: an OPEN with a deny does not wait for those under way.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::FileKey;
use crate::share::Share;

/// Cells: 256 KiB of memory. Two files share one now and then, which costs a look at the table.
const CELLS: usize = 1 << 16;

/// How many opens deny something, by a hash of their file.
pub(crate) struct Gate {
    cells: Box<[AtomicU32]>,
    /// Of all cells.
    total: AtomicU32,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let cells = (0..CELLS).map(|_| AtomicU32::new(0)).collect();
        Self { cells, total: AtomicU32::new(0) }
    }

    /// Whether an open of this file may deny something. `false` is certain.
    pub(crate) fn may_deny(&self, file: &FileKey) -> bool {
        self.cell(file).is_none_or(|cell| cell.load(Ordering::Acquire) != 0)
    }

    /// Whether any open denies anything.
    pub(crate) fn has_some(&self) -> bool {
        self.total.load(Ordering::Acquire) != 0
    }

    /// An open of this file is about to have this share.
    pub(crate) fn enter(&self, file: &FileKey, share: Share) {
        if !share.deny.is_empty()
            && let Some(cell) = self.cell(file)
        {
            self.total.fetch_add(1, Ordering::AcqRel);
            cell.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// An open of this file does not have this share any more.
    pub(crate) fn leave(&self, file: &FileKey, share: Share) {
        if !share.deny.is_empty()
            && let Some(cell) = self.cell(file)
        {
            cell.fetch_sub(1, Ordering::AcqRel);
            self.total.fetch_sub(1, Ordering::AcqRel);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let counts = |gate: &Self| -> Vec<u32> {
            gate.cells.iter().map(|cell| cell.load(Ordering::Acquire)).collect()
        };
        counts(self) == counts(other) && self.has_some() == other.has_some()
    }

    /// Never `None`: the place is below [`CELLS`].
    fn cell(&self, file: &FileKey) -> Option<&AtomicU32> {
        self.cells.get(place(file))
    }
}

/// Clients may find files that share a cell: they gain nothing by it.
pub(crate) fn place(file: &FileKey) -> usize {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = file.file_system.wrapping_mul(FACTOR);
    for chunk in file.object.as_bytes().chunks(8) {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        hash = (hash.rotate_left(23) ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
    }
    // The highest bits depend on all others.
    (hash >> 48) as usize % CELLS
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use steadfast_vfs::StorageHandle;

    use super::{CELLS, Gate, place};
    use crate::share::Share;
    use crate::{FileKey, ShareAccess, ShareDeny};

    fn file(number: u32) -> FileKey {
        let mut bytes = [7; 20];
        bytes[8..12].copy_from_slice(&number.to_le_bytes());
        FileKey { file_system: 3, object: StorageHandle::new(&bytes).unwrap_or_else(|| panic!()) }
    }

    #[test]
    fn files_are_spread_over_the_cells() {
        let places: HashSet<usize> = (0..10_000).map(|number| place(&file(number))).collect();
        // Of a random function: 10,000 - 10,000² / 2 / 65,536 = 9,237 or so.
        assert!(places.len() > 8_500, "{}", places.len());
        assert!(places.iter().all(|place| *place < CELLS));
    }

    #[test]
    fn only_denies_are_counted() {
        let gate = Gate::new();
        let share = |deny| Share { access: ShareAccess::all(), deny };
        gate.enter(&file(1), share(ShareDeny::empty()));
        assert!(!gate.may_deny(&file(1)));
        gate.enter(&file(1), share(ShareDeny::READ));
        gate.enter(&file(1), share(ShareDeny::WRITE));
        gate.leave(&file(1), share(ShareDeny::WRITE));
        assert!(gate.may_deny(&file(1)) && !gate.may_deny(&file(2)));
        gate.leave(&file(1), share(ShareDeny::empty()));
        assert!(gate.may_deny(&file(1)));
        gate.leave(&file(1), share(ShareDeny::READ));
        assert!(!gate.may_deny(&file(1)));
    }
}
