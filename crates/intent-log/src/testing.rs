//! A medium in memory that fails as devices do. For tests of this crate and of those that use it.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::medium::{Block, Medium, MediumError};

/// What a device writes wholly or not at all.
pub const SECTOR_BYTES: usize = 512;

/// What happens to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails, and these of its sectors are written all the same: sector `n` is if bit `n % 64`
    /// is set.
    Fail(u64),
    /// The device says that it was written, and only these sectors were.
    Lie(u64),
}

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    writes: u64,
    faults: BTreeMap<u64, Fault>,
    unreadable: Vec<u64>,
}

/// The medium.
#[derive(Debug, Default)]
pub struct MemoryMedium(Mutex<State>);

impl MemoryMedium {
    /// One with so many bytes of zeros.
    pub fn new(bytes: usize) -> Self {
        Self::from_image(vec![0; bytes])
    }

    /// One with these bytes.
    pub fn from_image(bytes: Vec<u8>) -> Self {
        Self(Mutex::new(State { bytes, ..State::default() }))
    }

    /// The bytes.
    pub fn image(&self) -> Vec<u8> {
        self.0.lock().bytes.clone()
    }

    /// How many writes there were.
    pub fn writes(&self) -> u64 {
        self.0.lock().writes
    }

    /// What happens to the `number`th write from the next one on; the next one is 0.
    pub fn fault_at(&self, number: u64, fault: Fault) {
        let mut state = self.0.lock();
        let number = state.writes + number;
        state.faults.insert(number, fault);
    }

    /// The block at this offset cannot be read from now on.
    pub fn lose_block(&self, offset: u64) {
        self.0.lock().unreadable.push(offset);
    }

    /// Turns a bit over.
    pub fn flip(&self, bit: u64) {
        if let Some(byte) = self.0.lock().bytes.get_mut((bit / 8) as usize) {
            *byte ^= 1 << (bit % 8);
        }
    }

    /// Writes only these sectors, as power may fail during a write.
    pub fn write_torn(&self, offset: u64, from: &[Block], sectors: u64) {
        let mut state = self.0.lock();
        for (number, sector) in Block::bytes_of(from).chunks(SECTOR_BYTES).enumerate() {
            let at = offset as usize + number * SECTOR_BYTES;
            if sectors >> (number % 64) & 1 == 1
                && let Some(place) = state.bytes.get_mut(at..at + sector.len())
            {
                place.copy_from_slice(sector);
            }
        }
    }
}

impl Medium for MemoryMedium {
    fn bytes(&self) -> u64 {
        self.0.lock().bytes.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [Block]) -> Result<(), MediumError> {
        let state = self.0.lock();
        let into = Block::bytes_of_mut(into);
        let bytes = into.len() as u64;
        let end = offset.saturating_add(bytes);
        if state.unreadable.iter().any(|lost| (offset..end).contains(lost)) {
            return Err(MediumError::Io(std::io::Error::other("a lost block")));
        }
        let beyond = MediumError::Beyond { offset, bytes };
        let from = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
        let from = from.and_then(|(start, end)| state.bytes.get(start..end)).ok_or(beyond)?;
        into.copy_from_slice(from);
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[Block]) -> Result<(), MediumError> {
        let bytes = Block::bytes_of(from).len() as u64;
        let fault = {
            let mut state = self.0.lock();
            if offset.saturating_add(bytes) > state.bytes.len() as u64 {
                return Err(MediumError::Beyond { offset, bytes });
            }
            let number = state.writes;
            state.writes += 1;
            state.faults.remove(&number)
        };
        let (sectors, fails) = match fault {
            None => (u64::MAX, false),
            Some(Fault::Lie(sectors)) => (sectors, false),
            Some(Fault::Fail(sectors)) => (sectors, true),
        };
        self.write_torn(offset, from, sectors);
        if fails {
            return Err(MediumError::Io(std::io::Error::other("a write that was to fail")));
        }
        Ok(())
    }
}

/// Writes the right checksums into the bytes of a superblock, and of the record at the beginning of
/// each block from `ring` on. For fuzzing, which would never guess them.
pub fn seal(superblocks: [&mut [u8]; 2], ring: &mut [u8]) {
    for superblock in superblocks {
        crate::superblock::seal(superblock);
    }
    crate::record::seal(ring);
}
