//! The file systems of a running log, and what of theirs is live: in a batch, and not yet
//! checkpointed.

use std::collections::VecDeque;

use crate::format::{Lsn, NO_FILE_SYSTEM, SUPERBLOCK_BYTES};
use crate::mark::MarkPlace;
use crate::superblock::{
    FILE_SYSTEMS_MAX, FileSystemEntry, Identity, PATH_BYTES_MAX, TableFull, encoded_bytes,
};

/// Live records of one file system that follow each other.
#[derive(Debug)]
struct Chunk {
    first: Lsn,
    last: Lsn,
    records: u64,
    bytes: u64,
}

#[derive(Debug)]
struct FileSystem {
    entry: FileSystemEntry,
    /// The LSN reserved for it last.
    last: Lsn,
    chunks: VecDeque<Chunk>,
}

impl FileSystem {
    fn first_live(&self) -> Option<Lsn> {
        self.chunks.front().map(|chunk| chunk.first.max(self.entry.tail.next()))
    }
}

/// What a log has of one file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemUsage {
    /// The file system, with its tail.
    pub entry: FileSystemEntry,
    /// The LSN reserved for it last, or its tail.
    pub last: Lsn,
    /// The first record in the ring that it needs.
    pub first_live: Option<Lsn>,
    /// Such records. Of a ring of more than 64 MiB this may be a few too many, as records leave in
    /// parts of a 16384th of the ring.
    pub live_records: u64,
    /// Their bytes in the ring.
    pub live_bytes: u64,
}

/// The table, by index.
#[derive(Debug, Default)]
pub(crate) struct FileSystems {
    by_index: Vec<Option<FileSystem>>,
    /// Counts the changes after which no record may be written until superblocks have the table.
    generation: u64,
    grain_bytes: u64,
}

impl FileSystems {
    pub(crate) fn new(entries: Vec<FileSystemEntry>, grain_bytes: u64) -> Self {
        let mut table = Self { grain_bytes, ..Self::default() };
        for entry in entries {
            table.insert(entry);
        }
        table
    }

    fn insert(&mut self, entry: FileSystemEntry) {
        let index = entry.index as usize;
        if self.by_index.len() <= index {
            self.by_index.resize_with(index + 1, || None);
        }
        if let Some(place) = self.by_index.get_mut(index) {
            *place = Some(FileSystem { last: entry.tail, entry, chunks: VecDeque::new() });
        }
    }

    fn all(&self) -> impl Iterator<Item = &FileSystem> {
        self.by_index.iter().flatten()
    }

    fn of(&mut self, index: u32) -> Option<&mut FileSystem> {
        self.by_index.get_mut(index as usize)?.as_mut()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn entries(&self) -> Vec<FileSystemEntry> {
        self.all().map(|file_system| file_system.entry.clone()).collect()
    }

    /// The index of a file system, which is entered if it is not in the table; `last` is the LSN
    /// reserved last, with which an older file system of the index may have had to do.
    pub(crate) fn register(
        &mut self,
        identity: Identity,
        path: &[u8],
        last: Lsn,
    ) -> Result<u32, TableFull> {
        let entries = self.all().count();
        let known = self.all().find(|known| known.entry.identity == identity);
        let known = known.map(|known| (known.entry.index, known.entry.path == path));
        if let Some((index, true)) = known {
            return Ok(index);
        }
        let index = known.map_or_else(|| self.vacant_index(), |(index, _)| index);
        let others = self.all().filter(|other| other.entry.index != index);
        let lengths = others.map(|other| other.entry.path.len()).chain([path.len()]);
        if path.len() > PATH_BYTES_MAX
            || index >= FILE_SYSTEMS_MAX
            || encoded_bytes(lengths) > SUPERBLOCK_BYTES
        {
            return Err(TableFull { entries });
        }
        if let Some(known) = self.of(index) {
            // It was mounted elsewhere before. Nothing depends on the path but messages.
            known.entry.path = path.to_vec();
        } else {
            self.insert(FileSystemEntry {
                index,
                identity,
                path: path.to_vec(),
                tail: last,
                mark: None,
            });
            self.generation += 1;
        }
        Ok(index)
    }

    fn vacant_index(&self) -> u32 {
        let vacant = self.by_index.iter().position(Option::is_none);
        vacant.unwrap_or(self.by_index.len()) as u32
    }

    /// Takes a file system out of the table, if nothing of it is live; whether it did.
    pub(crate) fn forget(&mut self, index: u32) -> bool {
        let is_idle = self
            .of(index)
            .is_some_and(|known| known.chunks.is_empty() && known.last <= known.entry.tail);
        if is_idle && let Some(place) = self.by_index.get_mut(index as usize) {
            *place = None;
            self.generation += 1;
        }
        is_idle
    }

    /// An LSN was reserved for the file system, which must be in the table, or for none.
    pub(crate) fn note_reserved(&mut self, index: u32, lsn: Lsn) {
        if index == NO_FILE_SYSTEM {
            return;
        }
        let known = self.of(index);
        assert!(known.is_some(), "file system {index} is not registered with the intent log");
        if let Some(known) = known {
            known.last = lsn;
        }
    }

    /// A record was taken into a batch.
    pub(crate) fn note_taken(&mut self, index: u32, lsn: Lsn, bytes: u64) {
        let grain_bytes = self.grain_bytes;
        let Some(known) = self.of(index) else { return };
        if lsn <= known.entry.tail {
            return;
        }
        match known.chunks.back_mut() {
            Some(chunk) if chunk.bytes < grain_bytes => {
                chunk.last = lsn;
                chunk.records += 1;
                chunk.bytes += bytes;
            }
            _ => known.chunks.push_back(Chunk { first: lsn, last: lsn, records: 1, bytes }),
        }
    }

    /// The file system needs no record up to this one.
    pub(crate) fn checkpointed(&mut self, index: u32, up_to: Lsn) {
        let Some(known) = self.of(index) else { return };
        known.entry.tail = known.entry.tail.max(up_to);
        while known.chunks.front().is_some_and(|chunk| chunk.last <= known.entry.tail) {
            known.chunks.pop_front();
        }
    }

    /// A mark is stable on the file system.
    pub(crate) fn marked(&mut self, index: u32, mark: MarkPlace) {
        if let Some(known) = self.of(index) {
            known.entry.mark = Some(mark);
        }
    }

    pub(crate) fn unmarked(&mut self, index: u32) {
        if let Some(known) = self.of(index)
            && known.entry.mark.take().is_some()
        {
            self.generation += 1;
        }
    }

    /// Another epoch begins after this LSN: nothing of any of them is live.
    pub(crate) fn begin_epoch(&mut self, last: Lsn) {
        for known in self.by_index.iter_mut().flatten() {
            known.entry.tail = last;
            known.last = last;
            known.chunks.clear();
        }
    }

    /// The first record in the ring that any of them needs.
    pub(crate) fn first_live(&self) -> Option<Lsn> {
        self.all().filter_map(FileSystem::first_live).min()
    }

    pub(crate) fn usage(&self) -> Vec<FileSystemUsage> {
        let usage = |known: &FileSystem| FileSystemUsage {
            entry: known.entry.clone(),
            last: known.last.max(known.entry.tail),
            first_live: known.first_live(),
            live_records: known.chunks.iter().map(|chunk| chunk.records).sum(),
            live_bytes: known.chunks.iter().map(|chunk| chunk.bytes).sum(),
        };
        self.all().map(usage).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::FileSystems;
    use crate::format::Lsn;
    use crate::superblock::Identity;

    fn identity(number: u8) -> Identity {
        Identity { uuid: [number; 16], kind: 1 }
    }

    #[test]
    fn a_file_system_keeps_its_index_wherever_it_is() {
        let mut table = FileSystems::default();
        assert_eq!(table.register(identity(1), b"/a", Lsn(0)), Ok(0));
        assert_eq!(table.register(identity(2), b"/b", Lsn(0)), Ok(1));
        let generation = table.generation();
        assert_eq!(table.register(identity(1), b"/c", Lsn(9)), Ok(0));
        assert_eq!(table.generation(), generation);
        assert_eq!(table.entries()[0].path, b"/c");
        assert_eq!(table.entries()[0].tail, Lsn(0));
        // An index that is used again has nothing to do with what it was before.
        assert!(table.forget(0));
        assert_eq!(table.register(identity(3), b"/d", Lsn(9)), Ok(0));
        assert_eq!(table.entries()[0].tail, Lsn(9));
        assert!(table.generation() > generation);
    }

    #[test]
    fn the_table_is_bounded() {
        let mut table = FileSystems::default();
        let path = [b'a'; 4096];
        for number in 0..15 {
            assert!(table.register(identity(number), &path, Lsn(0)).is_ok());
        }
        assert!(table.register(identity(15), &path, Lsn(0)).is_err());
        assert!(table.register(identity(15), &[b'a'; 5000], Lsn(0)).is_err());
        assert!(table.register(identity(15), b"/short", Lsn(0)).is_ok());
    }

    #[test]
    fn live_is_what_was_taken_and_not_checkpointed() {
        let mut table = FileSystems::default();
        table.register(identity(1), b"", Lsn(0)).expect("room");
        table.register(identity(2), b"", Lsn(0)).expect("room");
        for (index, lsn) in [(0, 1), (1, 2), (0, 3)] {
            table.note_reserved(index, Lsn(lsn));
            table.note_taken(index, Lsn(lsn), 100);
        }
        assert_eq!(table.first_live(), Some(Lsn(1)));
        assert!(!table.forget(0));
        table.checkpointed(0, Lsn(2));
        assert_eq!(table.first_live(), Some(Lsn(2)));
        assert_eq!((table.usage()[0].live_records, table.usage()[0].live_bytes), (1, 100));
        table.checkpointed(1, Lsn(2));
        assert_eq!(table.first_live(), Some(Lsn(3)));
        table.checkpointed(0, Lsn(4));
        table.note_reserved(0, Lsn(4));
        table.note_taken(0, Lsn(4), 100);
        assert_eq!(table.first_live(), None);
        assert!(table.forget(0));
    }
}
