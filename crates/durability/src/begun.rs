//! Begun marks: which calls were about to change names when the server was killed.
//!
//! A call that changes names writes a mark just before it does, without flushing it: what it is for is a
//! process that is killed while the machine goes on. The next start (`start/begun_calls.rs`) looks at the marks whose calls have
//! no reply in the log or the reply store. Where the file system shows that the call was done, its reply
//! is made and kept like all others ([`steadfast_engine::BegunReplies`]). Nothing is written when a
//! call ends: its mark is written over later.
//!
//! Marks are in files that are rings ([`steadfast_intent_log::begun`]). Each thread uses one of them, so
//! that threads seldom wait for the same file. Where they are:
//!
//! | place | when | a mark costs |
//! |---|---|---|
//! | a directory of `/run`, else of `/dev/shm`, named by the state directory's numbers | it is a tmpfs, and the process is not in a container, whose end would take it along | 0.6 µs |
//! | `begun/` of the state directory | else | 2 µs on ext4 |

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rustix::time::ClockId;
use steadfast_intent_log::begun::{
    BEGUN_HEAD_BYTES, BegunFile, TAG_BYTES, Tag, begin_mark, end_mark, write_begun_head,
};
use steadfast_recovery::{BegunCall, BegunCalls, BegunMark};
use steadfast_sys::durable_file;
use steadfast_sys::process::{boot_id, random_bytes};
use steadfast_vfs::Time;

use super::outliving::{is_own, make_place, places};

/// Of the directory with the marks.
const NAME: &str = "begun";
/// Files that threads are spread over.
const LANES: usize = 8;
/// Of each file. Some 5,000 marks: many times the calls that are in flight.
const RING_BYTES: u64 = 1 << 20;

/// Marks are written here.
#[derive(Debug)]
pub(super) struct BegunRings {
    lanes: Vec<Lane>,
    place: PathBuf,
    tag: Tag,
    has_failed: AtomicBool,
}

#[derive(Debug)]
struct Lane {
    file: File,
    /// Bytes that were taken since the file was made.
    taken: AtomicU64,
}

/// Marks take no room that the state directory needs for what a start cannot do without.
fn leave_room(place: &Path) -> io::Result<()> {
    let facts = rustix::fs::statvfs(place)?;
    let free = facts.f_bavail.saturating_mul(facts.f_frsize);
    if facts.f_blocks > 0 && free < 2 * LANES as u64 * RING_BYTES {
        let why = format!("it has {} KiB free, too little for marks", free >> 10);
        return Err(io::Error::new(io::ErrorKind::StorageFull, why));
    }
    Ok(())
}

static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: (usize, RefCell<Vec<u8>>) =
        (NEXT_THREAD.fetch_add(1, Ordering::Relaxed), RefCell::default());
}

/// The clock that is never before the times that files get, but for a tick.
fn now() -> Time {
    let now = rustix::time::clock_gettime(ClockId::Realtime);
    Time { seconds: now.tv_sec, nanoseconds: now.tv_nsec as u32 }
}

impl BegunRings {
    /// Rings with nothing in them.
    ///
    /// # Errors
    /// The state directory's, or when the kernel does not tell which run of the machine this is.
    pub(super) fn create(directory: &Path) -> io::Result<Self> {
        let boot = boot_id()?;
        let mut tag = [0; TAG_BYTES];
        while tag == [0; TAG_BYTES] {
            random_bytes(&mut tag)?;
        }
        forget_begun(directory)?;
        let place = make_place(directory, NAME)?;
        let is_on_disk = place.starts_with(directory);
        if is_on_disk {
            leave_room(&place)?;
        }
        let lanes = (0..LANES).map(|lane| {
            let mut options = File::options();
            options.write(true).create(true).truncate(true).mode(0o600);
            let file = options.open(place.join(lane.to_string()))?;
            let mut bytes = Vec::new();
            write_begun_head(&mut bytes, &boot, tag);
            if is_on_disk {
                // What is written later finds room.
                bytes.resize(BEGUN_HEAD_BYTES + RING_BYTES as usize, 0);
            }
            file.write_all_at(&bytes, 0)?;
            Ok(Lane { file, taken: AtomicU64::new(0) })
        });
        let lanes = lanes.collect::<io::Result<_>>().inspect_err(|_| {
            // Half of them would only take room.
            let _ = remove(&place);
        })?;
        Ok(Self { lanes, place, tag, has_failed: AtomicBool::new(false) })
    }

    /// Removes the marks, when all calls have their replies.
    pub(super) fn remove(&self) {
        if let Err(error) = remove(&self.place) {
            tracing::debug!("{}: {error}", self.place.display());
        }
    }

    fn write(&self, call: &BegunCall<'_>) -> Option<BegunMark> {
        THREAD.with(|(thread, buffer)| {
            let mut entry = buffer.borrow_mut();
            begin_mark(&mut entry);
            BegunCall { at: now(), ..*call }.encode(&mut entry);
            if !end_mark(&mut entry, self.tag) {
                return None;
            }
            let number = thread % LANES;
            let lane = self.lanes.get(number)?;
            let bytes = entry.len() as u64;
            let at = loop {
                let at = lane.taken.fetch_add(bytes, Ordering::Relaxed) % RING_BYTES;
                // An entry does not go round.
                if at + bytes <= RING_BYTES {
                    break BEGUN_HEAD_BYTES as u64 + at;
                }
            };
            if let Err(error) = lane.file.write_all_at(&entry, at) {
                self.tell(&error);
                return None;
            }
            Some(BegunMark(at * LANES as u64 + number as u64))
        })
    }

    fn tell(&self, error: &io::Error) {
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "{}: cannot write which calls have begun: {error}; if the server is killed, calls in \
                 flight that are sent again may get EXIST or NOENT for their own success",
                self.place.display()
            );
        }
    }
}

impl BegunCalls for BegunRings {
    fn begin(&self, call: &BegunCall<'_>) -> Option<BegunMark> {
        self.write(call)
    }

    fn take_back(&self, mark: BegunMark) {
        let (at, number) = (mark.0 / LANES as u64, mark.0 % LANES as u64);
        let Some(lane) = self.lanes.get(number as usize) else { return };
        if let Err(error) = lane.file.write_all_at(&[0; TAG_BYTES], at) {
            self.tell(&error);
        }
    }
}

/// The marks that a server has left which was killed since the machine was started.
///
/// # Errors
/// The state directory's, or when the kernel does not tell which run of the machine this is.
pub(super) fn found(directory: &Path) -> io::Result<Vec<Vec<u8>>> {
    let boot = boot_id()?;
    let mut all = Vec::new();
    for place in places(directory, NAME)?.into_iter().filter(|place| is_own(place)) {
        for lane in 0..LANES {
            let bytes = match std::fs::read(place.join(lane.to_string())) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                bytes => bytes?,
            };
            let marks = BegunFile::new(&bytes).filter(|file| file.run == boot);
            all.extend(marks.into_iter().flatten().map(<[u8]>::to_vec));
        }
    }
    Ok(all)
}

/// Nothing is marked any more.
///
/// # Errors
/// The state directory's.
pub fn forget_begun(directory: &Path) -> io::Result<()> {
    let own = places(directory, NAME)?.into_iter().filter(|place| is_own(place));
    own.into_iter().try_for_each(|place| remove(&place))
}

fn remove(place: &Path) -> io::Result<()> {
    for lane in 0..LANES {
        durable_file::remove(&place.join(lane.to_string()))?;
    }
    // Something else may be in it.
    let _ = std::fs::remove_dir(place);
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Unit ring.
    use std::os::unix::fs::PermissionsExt;

    use steadfast_recovery::{Action, FileSystemIdentity, ObjectKey, Place, Unlinked};
    use steadfast_vfs::{CallName, StorageHandle};

    use super::*;

    fn key(number: u32) -> [u8; 40] {
        let mut key = [0; 40];
        key[..4].copy_from_slice(&number.to_be_bytes());
        key
    }

    fn begin(rings: &BegunRings, number: u32) -> Option<BegunMark> {
        let dir = StorageHandle::new(&[7; 11]).unwrap();
        let object = ObjectKey(dir);
        let unlinked = Unlinked { object, is_directory: false, is_left: false };
        rings.begin(&BegunCall {
            call: CallName { key: &key(number), share: 1 },
            file_system: FileSystemIdentity { uuid: [5; 16], kind: 6 },
            at: Time::default(),
            dir,
            fsid: 3,
            made: None,
            action: Action::Remove { place: Place { dir: object, name: b"a name" }, unlinked },
        })
    }

    fn found_keys(directory: &Path) -> Vec<u32> {
        let payloads = found(directory).unwrap();
        let mut keys: Vec<_> = payloads
            .iter()
            .map(|payload| BegunCall::decode(payload).expect("a mark"))
            .map(|call| u32::from_be_bytes(*call.call.key.first_chunk().unwrap()))
            .collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn marks_are_found_until_the_next_start_has_used_them() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path();
        assert_eq!(found_keys(directory), [0; 0]);
        let rings = BegunRings::create(directory).unwrap();
        let before = now();
        let marks: Vec<_> = (0..10).map(|number| begin(&rings, number).expect("room")).collect();
        rings.take_back(marks[3]);
        rings.take_back(marks[9]);
        assert_eq!(found_keys(directory), [0, 1, 2, 4, 5, 6, 7, 8]);
        let payloads = found(directory).unwrap();
        let times = payloads.iter().map(|payload| BegunCall::decode(payload).unwrap().at);
        assert!(times.into_iter().all(|at| at >= before && at <= now()));
        // Not all had their replies; then all had.
        drop(rings);
        assert_eq!(found_keys(directory).len(), 8);
        let rings = BegunRings::create(directory).unwrap();
        assert_eq!(found_keys(directory), [0; 0]);
        begin(&rings, 1).unwrap();
        rings.remove();
        assert_eq!(found_keys(directory), [0; 0]);
        begin(&rings, 2).expect("nobody knows them any more");
        assert_eq!(found_keys(directory), [0; 0]);
        let left =
            places(directory, NAME).unwrap().into_iter().filter(|place| place.exists()).count();
        assert_eq!(left, 0);
    }

    #[test]
    fn threads_write_over_the_oldest_marks_only() {
        let place = tempfile::tempdir().unwrap();
        let rings = BegunRings::create(place.path()).unwrap();
        // Each goes round twice.
        let each = 2 * RING_BYTES as u32 / 192;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let rings = &rings;
                scope.spawn(move || {
                    for number in thread * each..(thread + 1) * each {
                        begin(rings, number).expect("room");
                    }
                });
            }
        });
        let found = found_keys(place.path());
        for thread in 1..=4 {
            // The newest of each, however many shared a ring.
            let newest = thread * each - 1000..thread * each;
            assert!(newest.into_iter().all(|number| found.binary_search(&number).is_ok()));
        }
        rings.remove();
    }

    #[test]
    fn what_another_run_of_the_machine_marked_says_nothing() {
        let place = tempfile::tempdir().unwrap();
        let rings = BegunRings::create(place.path()).unwrap();
        begin(&rings, 1).unwrap();
        assert_eq!(found_keys(place.path()), [1]);
        for lane in 0..LANES {
            let file = rings.place.join(lane.to_string());
            let bytes = std::fs::read(&file).unwrap();
            let mut other = Vec::new();
            write_begun_head(&mut other, &[b'x'; 36], rings.tag);
            other.extend_from_slice(&bytes[BEGUN_HEAD_BYTES..]);
            std::fs::write(&file, other).unwrap();
        }
        assert_eq!(found_keys(place.path()), [0; 0]);
        rings.remove();
    }

    #[test]
    fn what_others_can_change_is_not_used() {
        let place = tempfile::tempdir().unwrap();
        let rings = BegunRings::create(place.path()).unwrap();
        begin(&rings, 1).unwrap();
        assert_eq!(found_keys(place.path()), [1]);
        std::fs::set_permissions(&rings.place, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(found_keys(place.path()), [0; 0]);
        let other = BegunRings::create(place.path());
        assert!(other.is_err() || other.is_ok_and(|other| other.place != rings.place));
        std::fs::set_permissions(&rings.place, std::fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(found_keys(place.path()), [1]);
        // A link may lead anywhere.
        let moved = place.path().join("moved");
        std::fs::create_dir(&moved).unwrap();
        forget_begun(place.path()).unwrap();
        std::os::unix::fs::symlink(&moved, &rings.place).unwrap();
        assert!(super::super::outliving::make_own(&rings.place).is_err());
        std::fs::remove_file(&rings.place).unwrap();
    }
}
