//! Where attributes that are being set are noted, for the start after a kill.
//!
//! A file in the state directory with a slot for each change from before its first step until its record
//! is stable, written without being flushed: what it is for is a process that is killed while the machine
//! goes on. After the machine was started again it says nothing any more.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_intent_log::Identity;
use steadfast_recovery::{AttributesUnderWay, FileSystemIdentity};
use steadfast_sys::durable_file;
use steadfast_sys::process::{BOOT_ID_BYTES, boot_id};

const FILE_NAME: &str = "attributes-under-way";
/// How many can be noted at a time.
const SLOTS: usize = 64;
/// None crosses a page, so that a kill leaves one as it was or as it is.
const SLOT_BYTES: usize = 1024;
/// Begins a slot in which something is noted.
const MAGIC: [u8; 8] = *b"SFUWAY\x00\x01";
/// The file.
#[derive(Debug)]
pub(super) struct UnderWayFile {
    file: File,
    boot: [u8; BOOT_ID_BYTES],
    is_taken: [AtomicBool; SLOTS],
}

/// What was found in a slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    slot: usize,
    /// Of its record, once all its steps are done; else 0.
    pub(super) lsn: u64,
    pub(super) file_system: Identity,
    pub(super) under_way: AttributesUnderWay,
}

fn path(directory: &Path) -> PathBuf {
    directory.join(FILE_NAME)
}

/// What was under way when the server that used the directory before was killed.
///
/// # Errors
/// The state directory's, or when the kernel does not tell which run of the machine this is.
pub(super) fn found(directory: &Path) -> io::Result<Vec<Found>> {
    let bytes = match std::fs::read(path(directory)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        bytes => bytes?,
    };
    let boot = boot_id()?;
    let slots = bytes.chunks(SLOT_BYTES).take(SLOTS).enumerate();
    Ok(slots.filter_map(|(slot, bytes)| read_slot(slot, bytes, &boot)).collect())
}

fn read_slot(slot: usize, bytes: &[u8], boot: &[u8; BOOT_ID_BYTES]) -> Option<Found> {
    let rest = bytes.strip_prefix(&MAGIC)?.strip_prefix(boot)?;
    let (lsn, rest) = rest.split_first_chunk()?;
    let (uuid, rest) = rest.split_first_chunk::<16>()?;
    let (kind, rest) = rest.split_first_chunk()?;
    let file_system = Identity { uuid: *uuid, kind: u32::from_le_bytes(*kind) };
    let (lsn, under_way) = (u64::from_le_bytes(*lsn), AttributesUnderWay::decode(rest)?);
    Some(Found { slot, lsn, file_system, under_way })
}

/// Nothing is noted any more.
///
/// # Errors
/// The state directory's.
pub fn forget_under_way(directory: &Path) -> io::Result<()> {
    durable_file::remove(&path(directory))
}

/// Notes that a file was found cut, should what comes now be killed too.
pub(super) fn note_cut(directory: &Path, found: &Found) -> io::Result<()> {
    let file = File::options().write(true).open(path(directory))?;
    let bytes = slot(&boot_id()?, found.lsn, found.file_system, &found.under_way);
    file.write_all_at(&bytes, (found.slot * SLOT_BYTES) as u64)
}

/// Where a slot has the LSN.
const LSN_OFFSET: u64 = (MAGIC.len() + BOOT_ID_BYTES) as u64;

fn slot(
    boot: &[u8; BOOT_ID_BYTES],
    lsn: u64,
    file_system: Identity,
    under_way: &AttributesUnderWay,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SLOT_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(boot);
    bytes.extend_from_slice(&lsn.to_le_bytes());
    bytes.extend_from_slice(&file_system.uuid);
    bytes.extend_from_slice(&file_system.kind.to_le_bytes());
    under_way.encode(&mut bytes);
    debug_assert!(bytes.len() <= SLOT_BYTES, "{} bytes", bytes.len());
    bytes
}

impl UnderWayFile {
    /// The file, with nothing in it.
    pub(super) fn create(directory: &Path) -> io::Result<Arc<Self>> {
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(path(directory))?;
        // What it is asked for later finds room.
        file.write_all_at(&vec![0; SLOTS * SLOT_BYTES], 0)?;
        let is_taken = std::array::from_fn(|_| AtomicBool::new(false));
        Ok(Arc::new(Self { file, boot: boot_id()?, is_taken }))
    }

    /// Notes a change until what this returns is dropped. `None` if that cannot be done: then it may be
    /// there by halves.
    pub(super) fn note(
        self: &Arc<Self>,
        file_system: &FileSystemIdentity,
        under_way: &AttributesUnderWay,
    ) -> Option<Noted> {
        let take = |is_taken: &AtomicBool| !is_taken.swap(true, Ordering::Acquire);
        let number = self.is_taken.iter().position(take)?;
        let noted = Noted { file: Arc::clone(self), slot: number };
        let identity = Identity { uuid: file_system.uuid, kind: file_system.kind };
        let bytes = slot(&self.boot, 0, identity, under_way);
        self.file.write_all_at(&bytes, noted.offset()).ok()?;
        Some(noted)
    }
}

/// A change that is noted.
pub(super) struct Noted {
    file: Arc<UnderWayFile>,
    slot: usize,
}

impl Noted {
    fn offset(&self) -> u64 {
        (self.slot * SLOT_BYTES) as u64
    }

    /// All its steps are done, and this is what its record is known by.
    pub(super) fn note_lsn(&self, lsn: u64) {
        // Without it the next start takes the change for one that is half done.
        let _ = self.file.file.write_all_at(&lsn.to_le_bytes(), self.offset() + LSN_OFFSET);
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let cleared = self.file.file.write_all_at(&[0; MAGIC.len()], self.offset());
        if let Err(error) = cleared {
            tracing::error!(
                "cannot write to {FILE_NAME} in the state directory: {error}; remove it before the next \
                 start if the server is killed: that may undo a change of attributes"
            );
        } else if let Some(is_taken) = self.file.is_taken.get(self.slot) {
            is_taken.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use parking_lot::Mutex;
    use steadfast_recovery::{Action, Change, ChangeLog, LogPlace, ObjectKey, Place, Recoverable};
    use steadfast_vfs::{
        Attr, DeviceNumber, FileKind, FileSystemSync, FsError, StorageHandle, Time,
    };

    use super::*;
    use crate::LogHandle;
    use crate::keeper::switch_tests::{start, start_with, write_all};

    pub(crate) const FILE_SYSTEM: FileSystemIdentity =
        FileSystemIdentity { uuid: [5; 16], kind: 6 };

    pub(crate) fn under_way(uid: u32) -> AttributesUnderWay {
        let time = Time { seconds: 5, nanoseconds: 6 };
        let before = Attr {
            kind: FileKind::Regular,
            mode: 0o644,
            links: 1,
            uid,
            gid: 3,
            size: 4,
            used: 5,
            device: DeviceNumber::default(),
            fsid: 6,
            fileid: 7,
            atime: time,
            mtime: time,
            ctime: time,
        };
        AttributesUnderWay {
            object: ObjectKey(StorageHandle::new(&[9; 44]).unwrap()),
            before,
            wanted: Attr { uid: uid + 1, ..before },
            size: Some(2),
            is_permitted: true,
            was_cut: false,
        }
    }

    fn uids(directory: &Path) -> Vec<u32> {
        found(directory).unwrap().iter().map(|found| found.under_way.before.uid).collect()
    }

    #[test]
    fn what_is_under_way_is_found_until_it_is_done() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path();
        assert_eq!(uids(directory), [0; 0]);
        let file = UnderWayFile::create(directory).unwrap();
        let mut noted: Vec<_> = (0..SLOTS as u32)
            .map(|uid| file.note(&FILE_SYSTEM, &under_way(uid)).expect("room"))
            .collect();
        assert!(file.note(&FILE_SYSTEM, &under_way(100)).is_none(), "there is no more room");
        assert_eq!(uids(directory), (0..SLOTS as u32).collect::<Vec<_>>());
        noted.drain(1..SLOTS - 1);
        let again = file.note(&FILE_SYSTEM, &under_way(100)).expect("room");
        assert_eq!(uids(directory), [0, 100, SLOTS as u32 - 1]);
        drop((again, noted.pop()));
        // As if it were killed.
        std::mem::forget(noted);
        let mut left = found(directory).unwrap();
        assert_eq!(left.len(), 1);
        let mut left = left.remove(0);
        assert_eq!(left.file_system, Identity { uuid: [5; 16], kind: 6 });
        assert_eq!(left.under_way, under_way(0));
        left.under_way.was_cut = true;
        note_cut(directory, &left).unwrap();
        assert_eq!(found(directory).unwrap(), [left]);
        UnderWayFile::create(directory).unwrap();
        assert_eq!(uids(directory), [0; 0]);
        forget_under_way(directory).unwrap();
        forget_under_way(directory).unwrap();
    }

    #[test]
    fn what_another_run_of_the_machine_noted_says_nothing() {
        let place = tempfile::tempdir().unwrap();
        let file = UnderWayFile::create(place.path()).unwrap();
        std::mem::forget(file.note(&FILE_SYSTEM, &under_way(1)));
        assert_eq!(uids(place.path()), [1]);
        file.file.write_all_at(b"0", MAGIC.len() as u64).unwrap();
        file.file.write_all_at(b"x", MAGIC.len() as u64 + 1).unwrap();
        assert_eq!(uids(place.path()), [0; 0]);
        std::fs::write(path(place.path()), &MAGIC[..3]).unwrap();
        assert_eq!(uids(place.path()), [0; 0]);
    }

    /// A file system with one file, which tells what was done to it.
    struct OneFile {
        attr: Attr,
        done: Arc<Mutex<Vec<String>>>,
    }

    impl OneFile {
        fn note(&self, what: impl Into<String>) {
            self.done.lock().push(what.into());
        }
    }

    impl Recoverable for OneFile {
        fn names_follow_ctimes(&self) -> bool {
            true
        }
        fn still_mounted(&self) -> Option<&str> {
            None
        }
        fn set_lost(&mut self, _: &[ObjectKey]) {}
        fn look(&mut self, _: &ObjectKey) -> Result<Option<Attr>, FsError> {
            Ok(Some(self.attr))
        }
        fn bound(&mut self, _: &Place<'_>) -> Result<Option<(ObjectKey, FileKind)>, FsError> {
            Ok(None)
        }
        fn names(&mut self, _: &ObjectKey, _: &[u8]) -> Result<Vec<Vec<u8>>, FsError> {
            Ok(Vec::new())
        }
        fn make(
            &mut self,
            _: &Place<'_>,
            _: &ObjectKey,
            _: &Attr,
            _: &[u8],
        ) -> Result<(), FsError> {
            Err(FsError::Io)
        }
        fn link(&mut self, _: &ObjectKey, _: &Place<'_>) -> Result<(), FsError> {
            Err(FsError::Io)
        }
        fn rename(&mut self, _: &Place<'_>, _: &Place<'_>) -> Result<(), FsError> {
            Err(FsError::Io)
        }
        fn remove(&mut self, _: &Place<'_>, _: bool) -> Result<(), FsError> {
            Err(FsError::Io)
        }
        fn write(&mut self, _: &ObjectKey, offset: u64, data: &[u8]) -> Result<(), FsError> {
            self.note(format!("write {} at {offset}", data.len()));
            Ok(())
        }
        fn truncate(&mut self, _: &ObjectKey, size: u64) -> Result<(), FsError> {
            self.attr.size = size;
            self.note(format!("cut to {size}"));
            Ok(())
        }
        fn zero(&mut self, _: &ObjectKey, _: u64, _: u64) -> Result<(), FsError> {
            Err(FsError::Io)
        }
        fn set_attributes(
            &mut self,
            _: &ObjectKey,
            attr: &Attr,
            _: &steadfast_recovery::AclsToSet<'_>,
        ) -> Result<(), FsError> {
            self.attr.uid = attr.uid;
            self.note(format!("owner {}", attr.uid));
            Ok(())
        }
        fn make_stable(&mut self) -> Result<(), String> {
            self.note("stable");
            Ok(())
        }
    }

    struct NeverFlushed;

    impl FileSystemSync for NeverFlushed {
        fn sync(&self) -> Result<(), FsError> {
            Err(FsError::Io)
        }
        fn try_writing(&self) -> Result<(), FsError> {
            Err(FsError::Io)
        }
    }

    /// How far a change had come when the server was killed.
    #[derive(Clone, Copy, PartialEq)]
    enum Reached {
        Begun,
        Done,
        Logged,
    }

    fn admitted(log: &LogHandle) -> Box<dyn LogPlace> {
        let sync = Arc::new(NeverFlushed);
        let file_system = log.register(&FILE_SYSTEM, b"/srv", 1, sync).unwrap().unwrap();
        log.admit(file_system, 200).unwrap().unwrap()
    }

    fn record(action: Action<'_>, object: ObjectKey, attr: Attr) -> Vec<u8> {
        let mut change = Change::new(action);
        change.after.push((object, attr));
        let mut record = Vec::new();
        change.encode(&mut record);
        record
    }

    /// Logs a WRITE of four bytes, and is killed while attributes are being set.
    fn log_a_write_and_be_killed(
        directory: &Path,
        under_way: &AttributesUnderWay,
        reached: Reached,
    ) {
        let keeper = start(directory).keeper;
        let (log, object) = (LogHandle::new(&keeper), under_way.object);
        let mut place = admitted(&log);
        place.take();
        let action = Action::Write { object, offset: 0, data: b"data", gap: None };
        drop(place.put(record(action, object, under_way.before)));
        write_all(&keeper);
        let (mut place, mut kept) = (admitted(&log), None);
        place.note_under_way(&FILE_SYSTEM, under_way);
        if reached != Reached::Begun {
            place.take();
        }
        if reached == Reached::Logged {
            let action = Action::Attributes { object, size: under_way.size, gap: None };
            drop(place.put(record(action, object, under_way.wanted)));
            write_all(&keeper);
        } else {
            kept = Some(place);
        }
        // What comes now is more than a kill does.
        let noted = std::fs::read(path(directory)).unwrap();
        drop((kept, log, keeper));
        std::fs::write(path(directory), noted).unwrap();
    }

    #[test]
    fn a_start_undoes_what_was_under_way_and_cuts_again_what_was_cut() {
        let later = |attr: Attr| Attr { ctime: Time { seconds: 6, ..attr.ctime }, ..attr };
        let begun = under_way(1);
        let before = begun.before;
        let cases = [
            // What a step has left, and what is done at the start: before, in, and after replay.
            (Reached::Begun, before, vec!["write 4 at 0", "owner 1", "stable"]),
            (
                Reached::Begun,
                later(Attr { uid: 2, ..before }),
                vec!["owner 1", "write 4 at 0", "owner 1", "stable"],
            ),
            (
                Reached::Begun,
                later(Attr { size: 2, ..before }),
                vec!["write 4 at 0", "owner 1", "stable", "cut to 2", "owner 2", "stable"],
            ),
            // Another has given it away since.
            (
                Reached::Done,
                later(Attr { size: 2, uid: 7, ..before }),
                vec!["write 4 at 0", "owner 7", "stable", "cut to 2", "owner 7", "stable"],
            ),
            (
                Reached::Logged,
                later(Attr { size: 2, uid: 2, ..before }),
                vec!["write 4 at 0", "cut to 2", "owner 2", "stable"],
            ),
        ];
        for (reached, attr, expected) in cases {
            let place = tempfile::tempdir().unwrap();
            log_a_write_and_be_killed(place.path(), &begun, reached);
            let done = Arc::new(Mutex::new(Vec::new()));
            let of_disk = Arc::clone(&done);
            let open = move |_: &_| {
                let storage = OneFile { attr, done: Arc::clone(&of_disk) };
                Ok(Some(Box::new(storage) as Box<dyn Recoverable>))
            };
            start_with(place.path(), Box::new(open));
            assert_eq!(*done.lock(), expected);
            assert_eq!(uids(place.path()), [0; 0], "it is over");
        }
    }
}
