//! Handles kept in a store, for where the kernel gives none: a process without
//! `CAP_DAC_READ_SEARCH`, or a file system without file handles.
//!
//! A handle is the store's own number and a number in it. For each number the store knows what
//! the object is (inode number and time of birth, without which a number that is given to
//! another file would bring the handle with it), and one or two places where it was last
//! known: the directory's number and a name. An object is found by walking there from the
//! root; if something else is there, the handle is stale until the object is looked up again
//! where it is now.
//!
//! On overlayfs the time of birth is the one of the layer's inode that the object has at the
//! moment, and changes when the object is copied up by its first change, while the inode number
//! stays. There the kind of the object takes its place, and only what we remove ourselves is sure
//! never to come back as another object.
//!
//! A handle is given out only after its record is on disk. Records are written in groups: who
//! comes while a group is being written goes with the next. Before an object is renamed by us
//! its new place is recorded beside the old, so that it is found after a crash at any point.

use std::path::Path;

use parking_lot::Mutex;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use rustix::fs::{Statx, StatxFlags};
use smallvec::SmallVec;
use steadfast_vfs::{FsError, NAME_BYTES_MAX, StorageHandle};

/// The form of handles that name a store's record; [`crate::handle_form`] has the others.
const STORED_FORM: u8 = 2;
/// The number of the tree's root, in every store.
pub(crate) const ROOT: u64 = 1;
/// Numbers taken at a time, so that one that was given out is never given to another object.
const NUMBERS_A_BLOCK: u64 = 4096;
/// Changes that nobody waits for, before somebody must write them.
const QUEUE_MAX: usize = 4096;
const CACHE_BYTES: usize = 16 << 20;

const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("records");
const NUMBERS: TableDefinition<'_, &[u8], u64> = TableDefinition::new("numbers");
const FACTS: TableDefinition<'_, &str, u64> = TableDefinition::new("facts");
const STORE_ID: &str = "store";
const NEXT_NUMBER: &str = "next";

/// What an object is, whatever its name: inode number, and time of birth or kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint([u8; FINGERPRINT_BYTES]);

const FINGERPRINT_BYTES: usize = 20;

impl Fingerprint {
    fn new(inode: u64, seconds: i64, nanoseconds: u32) -> Self {
        let mut bytes = [0; FINGERPRINT_BYTES];
        let parts = inode
            .to_le_bytes()
            .into_iter()
            .chain(seconds.to_le_bytes())
            .chain(nanoseconds.to_le_bytes());
        bytes.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
        Self(bytes)
    }
}

/// In the place of a birth's nanoseconds, of which there are never so many.
const NO_BIRTH: u32 = u32::MAX;

/// Whether there was a time of birth to be had.
pub(crate) fn has_birth(stat: &Statx) -> bool {
    StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME)
}

/// Where an object is: a directory's number and a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) parent: u64,
    pub(crate) name: Vec<u8>,
}

/// What is known of a number. The place to look at first comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) locations: SmallVec<[Location; 2]>,
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.fingerprint.0.to_vec();
        for location in &self.locations {
            bytes.extend_from_slice(&location.parent.to_le_bytes());
            // At most 255.
            bytes.push(location.name.len() as u8);
            bytes.extend_from_slice(&location.name);
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (fingerprint, mut rest) = bytes.split_first_chunk::<FINGERPRINT_BYTES>()?;
        let mut locations = SmallVec::new();
        while !rest.is_empty() {
            let (parent, behind) = rest.split_first_chunk::<8>()?;
            let (length, behind) = behind.split_first()?;
            let (name, behind) = behind.split_at_checked(usize::from(*length))?;
            rest = behind;
            locations.push(Location { parent: u64::from_le_bytes(*parent), name: name.to_vec() });
        }
        Some(Self { fingerprint: Fingerprint(*fingerprint), locations })
    }

    /// Puts a place first, and keeps the one that was first second.
    fn found_at(&mut self, location: Location) {
        self.locations.retain(|known| *known != location);
        self.locations.truncate(1);
        self.locations.insert(0, location);
    }
}

/// A change of the store.
enum Change {
    /// The object is at this place; it gets a number if it has none.
    At(Fingerprint, Location),
    /// The object has no name left.
    Gone(Fingerprint),
}

#[derive(Default)]
struct Queue {
    changes: Vec<Change>,
    /// How many groups were taken from the queue.
    taken: u64,
    /// The last group that could not be written.
    failed: Option<u64>,
}

/// One share's handles.
pub(crate) struct Store {
    database: Database,
    id: u64,
    queue: Mutex<Queue>,
    /// Held by who writes a group. The next number to be given, and where the block of numbers
    /// ends that the database knows to be taken.
    writer: Mutex<(u64, u64)>,
    /// The kernel's number of the mount on which times of birth do not last.
    overlay: Option<u64>,
    /// Makes writing fail, as a full disk would.
    #[cfg(test)]
    pub(crate) is_failing: std::sync::atomic::AtomicBool,
}

impl Store {
    /// Opens a share's store, or makes it.
    pub(crate) fn open(state_directory: &Path, share_id: u64) -> Result<Self, redb::Error> {
        let path = state_directory.join(format!("handles-{share_id:016x}.redb"));
        std::fs::create_dir_all(state_directory).map_err(redb::Error::Io)?;
        let database = Database::builder().set_cache_size(CACHE_BYTES).create(path)?;
        let transaction = database.begin_write()?;
        let (id, next) = {
            transaction.open_table(RECORDS)?;
            transaction.open_table(NUMBERS)?;
            let mut facts = transaction.open_table(FACTS)?;
            let known = facts.get(STORE_ID)?.map(|id| id.value());
            let id = match known {
                Some(id) => id,
                None => random()?,
            };
            facts.insert(STORE_ID, id)?;
            let next = facts.get(NEXT_NUMBER)?.map_or(ROOT + 1, |next| next.value());
            (id, next)
        };
        transaction.commit()?;
        let writer = Mutex::new((next, next));
        Ok(Self {
            database,
            id,
            queue: Mutex::default(),
            writer,
            overlay: None,
            #[cfg(test)]
            is_failing: false.into(),
        })
    }

    /// With objects on this mount known by inode number and kind alone.
    pub(crate) fn with_overlay(self, overlay: Option<u64>) -> Self {
        Self { overlay, ..self }
    }

    /// What is an object of a `statx` that asked for the time of birth; `None` if it has none, so
    /// that it could not be told from a later one.
    pub(crate) fn fingerprint(&self, stat: &Statx) -> Option<Fingerprint> {
        if self.overlay == Some(stat.stx_mnt_id) {
            let kind = i64::from(stat.stx_mode & 0o170_000);
            return Some(Fingerprint::new(stat.stx_ino, kind, NO_BIRTH));
        }
        let birth = &stat.stx_btime;
        has_birth(stat).then(|| Fingerprint::new(stat.stx_ino, birth.tv_sec, birth.tv_nsec))
    }

    /// The handle of a number.
    pub(crate) fn handle(&self, number: u64) -> Option<StorageHandle> {
        let mut bytes = [STORED_FORM; 17];
        let parts = self.id.to_le_bytes().into_iter().chain(number.to_le_bytes());
        bytes.iter_mut().skip(1).zip(parts).for_each(|(to, from)| *to = from);
        StorageHandle::new(&bytes)
    }

    /// The number of a handle of this store.
    ///
    /// # Errors
    /// [`FsError::BadHandle`] for what is no such handle, [`FsError::Stale`] for one of a store
    /// that was lost.
    pub(crate) fn number(&self, handle: &StorageHandle) -> Result<u64, FsError> {
        let (form, rest) = handle.as_bytes().split_first().ok_or(FsError::BadHandle)?;
        let (id, rest) = rest.split_first_chunk::<8>().ok_or(FsError::BadHandle)?;
        let number: [u8; 8] = rest.try_into().map_err(|_| FsError::BadHandle)?;
        if *form != STORED_FORM {
            return Err(FsError::BadHandle);
        }
        if u64::from_le_bytes(*id) != self.id {
            return Err(FsError::Stale);
        }
        Ok(u64::from_le_bytes(number))
    }

    /// What is known of a number.
    pub(crate) fn record(&self, number: u64) -> Result<Option<Record>, FsError> {
        let read = || -> Result<_, redb::Error> {
            let table = self.database.begin_read()?.open_table(RECORDS)?;
            Ok(table.get(number)?.and_then(|bytes| Record::decode(bytes.value())))
        };
        read().map_err(failed)
    }

    /// The number of an object, if it has one.
    pub(crate) fn known(&self, fingerprint: Fingerprint) -> Result<Option<u64>, FsError> {
        let read = || -> Result<_, redb::Error> {
            let table = self.database.begin_read()?.open_table(NUMBERS)?;
            Ok(table.get(&fingerprint.0[..])?.map(|number| number.value()))
        };
        read().map_err(failed)
    }

    /// Records where objects are, in one group. On return the records are on disk.
    pub(crate) fn locate(
        &self,
        objects: impl IntoIterator<Item = (Fingerprint, Location)>,
    ) -> Result<(), FsError> {
        let changes: Vec<Change> = objects
            .into_iter()
            .filter(|(_, location)| location.name.len() <= NAME_BYTES_MAX)
            .map(|(fingerprint, location)| Change::At(fingerprint, location))
            .collect();
        if changes.is_empty() { Ok(()) } else { self.apply(changes) }
    }

    /// Notes that an object has no name left; written with the next group.
    pub(crate) fn forget(&self, fingerprint: Fingerprint) {
        let is_full = {
            let mut queue = self.queue.lock();
            queue.changes.push(Change::Gone(fingerprint));
            queue.changes.len() >= QUEUE_MAX
        };
        if is_full {
            // A failure was logged; that the records stay does no harm.
            let _ = self.apply(Vec::new());
        }
    }

    fn apply(&self, changes: Vec<Change>) -> Result<(), FsError> {
        let group = {
            let mut queue = self.queue.lock();
            queue.changes.extend(changes);
            queue.taken + 1
        };
        let mut numbers = self.writer.lock();
        let (changes, group) = {
            let mut queue = self.queue.lock();
            if queue.taken >= group {
                // Another thread has written ours with its own.
                return if queue.failed >= Some(group) { Err(FsError::Io) } else { Ok(()) };
            }
            queue.taken += 1;
            (std::mem::take(&mut queue.changes), queue.taken)
        };
        self.write(&mut numbers, &changes).map_err(|error| {
            self.queue.lock().failed = Some(group);
            failed(error)
        })
    }

    fn write(&self, numbers: &mut (u64, u64), changes: &[Change]) -> Result<(), redb::Error> {
        #[cfg(test)]
        if self.is_failing.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(redb::Error::Io(std::io::ErrorKind::StorageFull.into()));
        }
        let (mut next, mut end) = *numbers;
        let transaction = self.database.begin_write()?;
        {
            let mut records = transaction.open_table(RECORDS)?;
            let mut known = transaction.open_table(NUMBERS)?;
            for change in changes {
                match change {
                    Change::At(fingerprint, location) => {
                        let number = known.get(&fingerprint.0[..])?.map(|number| number.value());
                        let number = if let Some(number) = number {
                            number
                        } else {
                            next += 1;
                            known.insert(&fingerprint.0[..], next - 1)?;
                            next - 1
                        };
                        let record = records
                            .get(number)?
                            .and_then(|bytes| Record::decode(bytes.value()))
                            .filter(|record| record.fingerprint == *fingerprint);
                        let mut record = record.unwrap_or(Record {
                            fingerprint: *fingerprint,
                            locations: SmallVec::new(),
                        });
                        record.found_at(location.clone());
                        records.insert(number, &record.encode()[..])?;
                    }
                    Change::Gone(fingerprint) => {
                        let number = known.remove(&fingerprint.0[..])?.map(|n| n.value());
                        if let Some(number) = number {
                            records.remove(number)?;
                        }
                    }
                }
            }
            if next > end {
                end = next + NUMBERS_A_BLOCK;
                transaction.open_table(FACTS)?.insert(NEXT_NUMBER, end)?;
            }
        }
        transaction.commit()?;
        *numbers = (next, end);
        Ok(())
    }
}

fn random() -> Result<u64, redb::Error> {
    use std::io::Read;
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(redb::Error::Io)?;
    Ok(u64::from_le_bytes(bytes))
}

fn failed(error: redb::Error) -> FsError {
    tracing::error!("the handle store failed: {error}");
    match error {
        redb::Error::Io(error) if error.kind() == std::io::ErrorKind::StorageFull => {
            FsError::TryLater
        }
        _ => FsError::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(byte: u8) -> Fingerprint {
        Fingerprint([byte; FINGERPRINT_BYTES])
    }

    fn at(parent: u64, name: &str) -> Location {
        Location { parent, name: name.as_bytes().to_vec() }
    }

    #[test]
    fn numbers_survive_and_are_never_given_twice() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), 5).unwrap();
        store.locate([(print(1), at(ROOT, "a")), (print(2), at(ROOT, "b"))]).unwrap();
        let [one, two] = [1, 2].map(|byte| store.known(print(byte)).unwrap().unwrap());
        assert!(one != two && one > ROOT && two > ROOT);
        let handle = store.handle(two).unwrap();
        store.forget(print(2));
        store.locate([(print(1), at(7, "moved"))]).unwrap();
        assert_eq!(store.known(print(2)).unwrap(), None);
        drop(store);
        let store = Store::open(directory.path(), 5).unwrap();
        assert_eq!(store.known(print(1)).unwrap(), Some(one));
        let record = store.record(one).unwrap().unwrap();
        assert_eq!(record.locations[..], [at(7, "moved"), at(ROOT, "a")]);
        assert_eq!(store.number(&handle), Ok(two));
        assert_eq!(store.record(two).unwrap(), None);
        store.locate([(print(3), at(ROOT, "c"))]).unwrap();
        assert!(store.known(print(3)).unwrap().unwrap() > two);
        let other = Store::open(directory.path(), 6).unwrap();
        assert_eq!(other.number(&handle), Err(FsError::Stale));
        for bytes in [&[][..], &[2], &[2; 16], &[2; 18], &[0; 17]] {
            assert_eq!(store.number(&StorageHandle::new(bytes).unwrap()), Err(FsError::BadHandle));
        }
    }

    /// What is on disk while the store is open is what a killed process leaves.
    #[test]
    fn records_are_on_disk_before_they_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), 5).unwrap();
        store.locate([(print(1), at(ROOT, "a"))]).unwrap();
        let number = store.known(print(1)).unwrap();
        let left = tempfile::tempdir().unwrap();
        let file = "handles-0000000000000005.redb";
        std::fs::copy(directory.path().join(file), left.path().join(file)).unwrap();
        store.locate([(print(2), at(ROOT, "b"))]).unwrap();
        let later = store.known(print(2)).unwrap();
        let recovered = Store::open(left.path(), 5).unwrap();
        assert_eq!(recovered.known(print(1)).unwrap(), number);
        assert_eq!(recovered.known(print(2)).unwrap(), None);
        // The number the lost process may have been about to give is not given again.
        recovered.locate([(print(3), at(ROOT, "c"))]).unwrap();
        assert!(recovered.known(print(3)).unwrap() > later);
    }

    #[test]
    fn many_threads_write_in_groups() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), 5).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8_u8 {
                let store = &store;
                scope.spawn(move || {
                    for round in 0..10_u8 {
                        let object = print(thread * 16 + round);
                        store.locate([(object, at(ROOT, "x"))]).unwrap();
                        assert!(store.known(object).unwrap().is_some());
                    }
                });
            }
        });
        assert!(store.queue.lock().taken <= 80);
    }

    #[test]
    fn records_that_make_no_sense_are_none() {
        for bytes in [&[][..], &[0; 19], &[0; 25], &[9; 30]] {
            assert_eq!(Record::decode(bytes), None);
        }
    }
}
