//! What clients have opened and locked, in a file that outlives the process.
//!
//! A process that is killed or replaced leaves the file, and the next one goes on with it: no client
//! notices. The file is never flushed, and is of use to the same run of the machine only
//! (`outliving` says where it is).
//!
//! The file is a head and frames of events, in the order in which they were kept. It only grows,
//! and is written again when half of it is out of date. While that is done both files get all
//! events, so that one of them is whole at any time.
//!
//! | bytes of the head | |
//! |---|---|
//! | 8 | `SFSTATE` and the version |
//! | 36 | the run of the machine |
//! | 4 | the instance whose state it is |
//!
//! A frame is a length, a checksum, and the events. The first frame that is not whole ends the file:
//! the process was killed while it wrote it, and nobody was told of what is in it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use steadfast_engine::{StateImage, StateKeeper};
use steadfast_sys::process::{BOOT_ID_BYTES, boot_id};
use steadfast_sys::{durable_file, identity};

use super::outliving::{is_own, make_place, places};

const NAME: &str = "state";
const MAGIC: [u8; 8] = *b"SFSTATE\x01";
const HEAD_BYTES: usize = MAGIC.len() + BOOT_ID_BYTES + 4;
const FRAME_HEAD_BYTES: usize = 8;
/// A file is not written again before it has so many bytes.
const RENEWED_FROM: u64 = 4 << 20;
/// Seconds after which it is tried again to keep what could not be kept.
const RETRY_SECONDS: u32 = 60;

/// What a process before this one has left.
pub struct FoundState {
    /// The instance that it was.
    pub instance: u32,
    /// What its clients had opened and locked.
    pub image: StateImage,
}

impl FoundState {
    /// What a killed or stopped process of this state directory has left since the machine was
    /// started; `None` if there is nothing, or nothing that this version understands.
    ///
    /// # Errors
    /// When the files cannot be read, or the kernel does not tell which run of the machine this is.
    pub fn find(state_directory: &Path) -> io::Result<Option<Self>> {
        let boot = boot_id()?;
        for place in places(state_directory, NAME)?.into_iter().filter(|place| is_own(place)) {
            let bytes = match std::fs::read(place.join(NAME)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                bytes => bytes?,
            };
            return Ok(read(&bytes, &boot));
        }
        Ok(None)
    }
}

fn read(bytes: &[u8], boot: &[u8; BOOT_ID_BYTES]) -> Option<FoundState> {
    let (head, mut frames) = bytes.split_at_checked(HEAD_BYTES)?;
    let (magic, head) = head.split_at_checked(MAGIC.len())?;
    let (run, instance) = head.split_at_checked(BOOT_ID_BYTES)?;
    if magic != MAGIC || run != boot {
        return None;
    }
    let instance = u32::from_le_bytes(instance.try_into().ok()?);
    let mut image = StateImage::default();
    while let Some((events, rest)) = frame(frames) {
        image.add(events).ok()?;
        frames = rest;
    }
    Some(FoundState { instance, image })
}

/// The events of the first frame, if it is whole, and what follows it.
fn frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (events, rest) = rest.split_at_checked(length)?;
    (crc32c::crc32c(events) == u32::from_le_bytes(*sum)).then_some((events, rest))
}

/// Where the state of this process is kept.
pub struct StateImageFile {
    place: PathBuf,
    head: Vec<u8>,
    writing: Mutex<Writing>,
}

#[derive(Default)]
struct Writing {
    /// What the next process would find.
    kept: Option<Written>,
    /// Takes its place when it has the whole state.
    next: Option<Written>,
    /// Bytes of the file when it was written again last.
    renewed_bytes: u64,
    /// Head of a frame, and events.
    frame: Vec<u8>,
    /// Calls of `renew` that do not try again.
    resting: u32,
}

struct Written {
    file: File,
    bytes: u64,
}

impl Written {
    fn create(path: &Path, head: &[u8]) -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = identity::as_server(|| options.open(path))??;
        file.write_all_at(head, 0)?;
        Ok(Self { file, bytes: head.len() as u64 })
    }

    fn append(&mut self, frame: &[u8]) -> io::Result<()> {
        self.file.write_all_at(frame, self.bytes)?;
        self.bytes += frame.len() as u64;
        Ok(())
    }
}

impl StateImageFile {
    /// A place for the state of this instance. What another process has left there is in its place
    /// until the state is kept for the first time ([`StateKeeper::renew`]).
    ///
    /// # Errors
    /// The state directory's, or when the kernel does not tell which run of the machine this is.
    pub fn create(state_directory: &Path, instance: u32) -> io::Result<Self> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(&MAGIC);
        head.extend_from_slice(&boot_id()?);
        head.extend_from_slice(&instance.to_le_bytes());
        let place = make_place(state_directory, NAME)?;
        for other in places(state_directory, NAME)?.into_iter().filter(|other| is_own(other)) {
            if other != place {
                remove(&other)?;
            }
        }
        Ok(Self { place, head, writing: Mutex::default() })
    }

    fn path(&self) -> PathBuf {
        self.place.join(NAME)
    }

    fn next_path(&self) -> PathBuf {
        self.place.join("next")
    }

    /// Takes events and appends them to the files.
    fn append(&self, writing: &mut Writing, take: &dyn Fn(&mut Vec<u8>)) {
        let frame = &mut writing.frame;
        frame.clear();
        frame.resize(FRAME_HEAD_BYTES, 0);
        take(frame);
        let events = frame.get(FRAME_HEAD_BYTES..).unwrap_or(&[]);
        if events.is_empty() {
            return;
        }
        let result = u32::try_from(events.len()).map_err(|_| io::ErrorKind::FileTooLarge.into());
        let sum = crc32c::crc32c(events);
        let result = result.and_then(|length: u32| {
            if let Some(head) = frame.first_chunk_mut::<FRAME_HEAD_BYTES>() {
                *head = (u64::from(sum) << 32 | u64::from(length)).to_le_bytes();
            }
            if let Some(next) = &mut writing.next
                && let Err(error) = next.append(frame)
            {
                self.give_up_next(&mut writing.next, &mut writing.resting, &error);
            }
            writing.kept.as_mut().map_or(Ok(()), |kept| kept.append(frame))
        });
        if writing.frame.capacity() > 1 << 20 {
            writing.frame = Vec::new();
        }
        if let Err(error) = result {
            self.give_up(writing, &error);
        }
    }

    /// The file cannot be written again now: what is kept goes on.
    fn give_up_next(&self, next: &mut Option<Written>, resting: &mut u32, error: &io::Error) {
        tracing::warn!(
            "{}: cannot write anew what clients have opened and locked: {error}; what is kept stays, \
             and grows",
            self.place.display()
        );
        *next = None;
        *resting = RETRY_SECONDS;
        let _ = durable_file::remove(&self.next_path());
    }

    /// Nothing is kept until it is tried again. What was kept is out of date, and must not be found.
    fn give_up(&self, writing: &mut Writing, error: &io::Error) {
        if writing.resting == 0 {
            tracing::warn!(
                "{}: cannot keep what clients have opened and locked: {error}; if the server ends now, \
                 they lose their locks. It is tried again each minute",
                self.place.display()
            );
        }
        let Writing { kept, next, resting, .. } = writing;
        if let Some(kept) = kept.take() {
            // A name may fail to go where there is no room for anything else.
            let _ = kept.file.set_len(0);
        }
        *next = None;
        *resting = RETRY_SECONDS;
        if let Err(error) = remove(&self.place) {
            tracing::warn!("{}: {error}", self.place.display());
        }
    }

    /// Writes the file again.
    fn write_again(
        &self,
        note_all: &dyn Fn(),
        take: &dyn Fn(&mut Vec<u8>),
    ) -> Result<(), io::Error> {
        let made = Written::create(&self.next_path(), &self.head)?;
        {
            let mut writing = self.writing.lock();
            // What nobody took yet may be older than what is noted now.
            self.append(&mut writing, take);
            writing.next = Some(made);
        }
        // Without the lock: whoever notes something may hold another that this needs.
        note_all();
        let mut writing = self.writing.lock();
        self.append(&mut writing, take);
        if let Some(next) = writing.next.take() {
            identity::as_server(|| std::fs::rename(self.next_path(), self.path()))??;
            writing.renewed_bytes = next.bytes;
            writing.kept = Some(next);
            writing.resting = 0;
        }
        Ok(())
    }
}

impl StateKeeper for StateImageFile {
    fn keep(&self, take: &dyn Fn(&mut Vec<u8>)) {
        self.append(&mut self.writing.lock(), take);
    }

    fn renew(&self, note_all: &dyn Fn(), take: &dyn Fn(&mut Vec<u8>)) {
        let is_due = {
            let mut writing = self.writing.lock();
            self.append(&mut writing, take);
            writing.resting = writing.resting.saturating_sub(1);
            let limit = RENEWED_FROM.max(2 * writing.renewed_bytes);
            match &writing.kept {
                None => writing.resting == 0,
                Some(kept) => writing.resting == 0 && kept.bytes > limit,
            }
        };
        if is_due && let Err(error) = self.write_again(note_all, take) {
            let mut writing = self.writing.lock();
            if writing.kept.is_none() {
                self.give_up(&mut writing, &error);
            } else {
                let Writing { next, resting, .. } = &mut *writing;
                self.give_up_next(next, resting, &error);
            }
        }
    }
}

fn remove(place: &Path) -> io::Result<()> {
    [NAME, "next"].iter().try_for_each(|name| durable_file::remove(&place.join(name)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use steadfast_engine::StateKeeper;

    use super::*;

    /// Events that do no harm, so many bytes of them: a client that was never there is gone.
    fn gone(number: u64) -> Vec<u8> {
        let mut event = vec![2];
        event.extend_from_slice(&number.to_le_bytes());
        event
    }

    fn image(events: &[u8]) -> StateImage {
        let mut image = StateImage::default();
        image.add(events).expect("events");
        image
    }

    fn found(directory: &Path) -> Option<(u32, StateImage)> {
        let found = FoundState::find(directory).expect("readable");
        found.map(|found| (found.instance, found.image))
    }

    #[test]
    fn what_was_kept_is_found() {
        let directory = tempfile::tempdir().expect("directory");
        assert!(found(directory.path()).is_none());
        let file = StateImageFile::create(directory.path(), 7).expect("created");
        file.renew(&|| {}, &|events| events.extend(gone(1)));
        file.keep(&|events| events.extend(gone(2)));
        file.keep(&|_| {});
        assert!(found(directory.path()) == Some((7, image(&[gone(1), gone(2)].concat()))));
        // The next process has not begun to keep anything when it is killed.
        let next = StateImageFile::create(directory.path(), 7).expect("created");
        assert!(found(directory.path()) == Some((7, image(&[gone(1), gone(2)].concat()))));
        next.renew(&|| {}, &|events| events.extend(gone(3)));
        assert!(found(directory.path()) == Some((7, image(&gone(3)))));
        remove(&next.place).expect("removed");
    }

    #[test]
    fn a_frame_that_is_cut_or_changed_ends_the_file() {
        let directory = tempfile::tempdir().expect("directory");
        let file = StateImageFile::create(directory.path(), 7).expect("created");
        file.renew(&|| {}, &|events| events.extend(gone(1)));
        file.keep(&|events| events.extend(gone(2)));
        let whole = std::fs::read(file.path()).expect("read");
        let boot = boot_id().expect("known");
        let first = HEAD_BYTES + FRAME_HEAD_BYTES + gone(1).len();
        for length in 0..=whole.len() {
            let events = [gone(1), gone(2)].concat();
            let kept = if length == whole.len() { events.len() } else { gone(1).len() };
            let kept = events.get(..if length < first { 0 } else { kept }).expect("within");
            let found = read(&whole[..length], &boot);
            match found {
                None => assert!(length < HEAD_BYTES, "{length}"),
                Some(found) => assert!(found.image == image(kept), "{length}"),
            }
        }
        for at in first..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(read(&changed, &boot).is_some_and(|found| found.image == image(&gone(1))));
        }
        let mut elsewhere = boot;
        elsewhere[0] ^= 1;
        assert!(read(&whole, &elsewhere).is_none(), "the machine was started again");
        remove(&file.place).expect("removed");
    }

    #[test]
    fn a_file_that_is_out_of_date_is_written_again() {
        let directory = tempfile::tempdir().expect("directory");
        let file = StateImageFile::create(directory.path(), 7).expect("created");
        let renewed = AtomicUsize::new(0);
        let note_all = || {
            renewed.fetch_add(1, Ordering::Relaxed);
        };
        file.renew(&note_all, &|_| {});
        let many: Vec<u8> = (0..100_000).flat_map(gone).collect();
        for _ in 0..5 {
            file.keep(&|events| events.extend_from_slice(&many));
        }
        assert_eq!(renewed.load(Ordering::Relaxed), 1);
        file.renew(&note_all, &|events| events.extend(gone(9)));
        assert_eq!(renewed.load(Ordering::Relaxed), 2);
        assert!(found(directory.path()) == Some((7, image(&gone(9)))));
        remove(&file.place).expect("removed");
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing_that_could_be_believed() {
        let directory = tempfile::tempdir().expect("directory");
        let file = StateImageFile::create(directory.path(), 7).expect("created");
        file.renew(&|| {}, &|events| events.extend(gone(1)));
        file.give_up(&mut file.writing.lock(), &io::ErrorKind::StorageFull.into());
        assert!(found(directory.path()).is_none());
        for _ in 1..RETRY_SECONDS {
            file.renew(&|| panic!("too early"), &|_| {});
        }
        file.renew(&|| {}, &|events| events.extend(gone(2)));
        assert!(found(directory.path()).is_some());
        remove(&file.place).expect("removed");
    }
}
