//! The reply store: replies in files of the state directory, so that a call that comes again gets its
//! reply, however often the server was killed or restarted since.
//!
//! Committers gather in memory what stands behind the changes that they have written to the log
//! ([`ReplyStore::gather`]). Before the log's tail passes these records, so that the ring may be
//! written over, all of it is written to the store and flushed ([`ReplyStore::flush`]). So each
//! reply is in the ring or in the store, or in both.
//!
//! | what | bound |
//! |---|---|
//! | the store | `replies_mib` of `[log]`, and half of the room that there is for it; the oldest segment is removed first, as a whole |
//! | age | [`REPLIES_STAY`], in time for which servers ran: a client that is to wait until its server is back sends its calls again however late that is |
//! | memory | [`GATHERED_BYTES_MAX`]; beyond it the committer writes it to the store (not flushed) |
//!
//! The format is the log's crate's ([`steadfast_intent_log::replies`]), what an entry means the
//! engine's.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast_engine::{call_of, kept_as};
use steadfast_intent_log::replies::{
    REPLIES_HEAD_BYTES, Segment, SegmentError, entry_bytes, write_entry, write_segment_head,
};
use steadfast_sys::{durable_file, identity};

const DIRECTORY: &str = "replies";
const SUFFIX: &str = "replies";
/// Bytes of a store, where nothing else is configured.
pub(super) const REPLIES_BYTES_MAX: u64 = 64 << 20;
/// A segment is left when it is as large as this, or a part of the store.
const SEGMENT_BYTES: u64 = 4 << 20;
const SEGMENTS_MIN: u64 = 8;
/// Bytes that a store may have (unless it is configured to have fewer), however full its file system is.
const BYTES_MIN: u64 = 1 << 20;
/// However small they are: each start begins one.
const SEGMENTS_MAX: usize = 1024;
const CHUNK_BYTES: usize = 256 << 10;
const GATHERED_BYTES_MAX: usize = 16 << 20;
/// Replies are kept for as long as a client may ask for them again: Linux's time-out over TCP, and
/// some more.
pub(super) const REPLIES_STAY: Duration = Duration::from_secs(65);
/// Between two messages that the store cannot be written.
const TELL_AGAIN: Duration = Duration::from_secs(30);
/// Between two messages that it has little room.
const TELL_OF_SCARCITY_AGAIN: Duration = Duration::from_secs(3600);
/// For so long after a failure a committer does not try it again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Gathered {
    /// The last one is not full.
    chunks: VecDeque<Vec<u8>>,
    bytes: usize,
}

#[derive(Debug)]
struct SegmentFile {
    path: PathBuf,
    bytes: u64,
    /// When its newest reply came.
    newest_ms: u64,
    oldest_ms: u64,
}

#[derive(Debug, Default)]
struct Segments {
    /// The oldest first.
    files: VecDeque<SegmentFile>,
    /// The last of them, if it takes more.
    open: Option<File>,
    next_sequence: u64,
    bytes: u64,
    /// What the open one may not have on disk, since it was not flushed after it.
    unflushed: VecDeque<Vec<u8>>,
    told: Option<Instant>,
    failed: Option<Instant>,
    /// That they may have fewer bytes than is configured.
    told_of_scarcity: Option<Instant>,
}

impl Segments {
    /// # Errors
    /// The file's. Nobody knows then what of the unflushed is on disk: [`Segments::give_up_open`].
    fn flush(&mut self) -> io::Result<()> {
        if let Some(open) = self.open.as_ref().filter(|_| !self.unflushed.is_empty()) {
            open.sync_data()?;
        }
        self.unflushed.clear();
        Ok(())
    }

    /// The open one takes no more. What it may lack, and what is to be written again.
    fn give_up_open(&mut self) -> VecDeque<Vec<u8>> {
        let unflushed = std::mem::take(&mut self.unflushed);
        let surplus: u64 = unflushed.iter().map(|chunk| chunk.len() as u64).sum();
        if let (Some(open), Some(file)) = (self.open.take(), self.files.back_mut())
            // A full disk gets the room back. Otherwise it is there twice, which does no harm.
            && open.set_len(file.bytes - surplus).is_ok()
        {
            file.bytes -= surplus;
            self.bytes -= surplus;
            if file.bytes <= REPLIES_HEAD_BYTES as u64 && durable_file::remove(&file.path).is_ok() {
                self.bytes -= file.bytes;
                self.files.pop_back();
            }
        }
        unflushed
    }
}

/// What the store has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepliesKept {
    /// Bytes of its files.
    pub bytes: u64,
    /// The most that they may have.
    pub bytes_max: u64,
    /// How long ago the oldest reply came, in ms for which a server ran.
    pub reach_ms: u64,
    /// Bytes in memory that are in the ring and not in the files.
    pub gathered_bytes: u64,
}

/// The store.
#[derive(Debug)]
pub(super) struct ReplyStore {
    directory: PathBuf,
    bytes_max: u64,
    began: Instant,
    /// For how long servers had run when this one began.
    uptime_before_ms: u64,
    gathered: Mutex<Gathered>,
    /// Held by who writes; taken before `gathered`.
    segments: Mutex<Segments>,
}

/// A store and what was in it.
pub(super) struct OpenedReplies {
    pub(super) store: ReplyStore,
    /// The oldest first; of a call that was kept twice, the last.
    pub(super) replies: Replies,
}

/// Replies as they stand behind changes, of each call one; of a COMPOUND that was cut off, of each
/// operation one.
#[derive(Debug, Default)]
pub(super) struct Replies {
    all: VecDeque<Option<Vec<u8>>>,
    bytes: usize,
}

impl Replies {
    fn push(&mut self, behind: Vec<u8>, bytes_max: usize) {
        self.bytes += behind.len();
        self.all.push_back(Some(behind));
        while self.bytes > bytes_max
            && let Some(oldest) = self.all.pop_front()
        {
            self.bytes -= oldest.map_or(0, |oldest| oldest.len());
        }
    }

    /// All of them, as they stand behind changes.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.all.iter().flatten().map(Vec::as_slice)
    }

    /// The oldest first, of each call the newest.
    pub(super) fn into_newest(self) -> Vec<Vec<u8>> {
        let mut seen = HashSet::new();
        let newest = self.all.into_iter().flatten().rev();
        let mut newest: Vec<Vec<u8>> = newest
            .filter(|behind| kept_as(behind).is_some_and(|one| seen.insert(one.to_vec())))
            .collect();
        newest.reverse();
        newest
    }
}

impl ReplyStore {
    /// Opens the store of a state directory, makes it if there is none, and reads what is in it.
    ///
    /// # Errors
    /// The state directory's.
    pub(super) fn open(state_directory: &Path, bytes_max: u64) -> io::Result<OpenedReplies> {
        let directory = state_directory.join(DIRECTORY);
        if !directory.exists() {
            std::fs::create_dir(&directory)?;
            durable_file::sync_directory_of(&directory)?;
        }
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            if let Some(sequence) = sequence_of(&path) {
                paths.push((sequence, path));
            }
        }
        paths.sort();
        let mut segments = Segments::default();
        let (mut replies, mut newest_ms) = (Replies::default(), 0);
        for (sequence, path) in paths {
            segments.next_sequence = segments.next_sequence.max(sequence.saturating_add(1));
            let bytes = std::fs::read(&path)?;
            match read_segment(&path, &bytes, &mut replies, bytes_max) {
                Ok(file) => {
                    newest_ms = file.newest_ms.max(newest_ms);
                    segments.bytes += file.bytes;
                    segments.files.push_back(file);
                }
                Err(error) => {
                    // A crash may leave one that was being begun.
                    if error != SegmentError::Head {
                        tracing::warn!(
                            "{}: {error}; it is removed: calls that it has replies of are executed \
                             again if they are sent again",
                            path.display()
                        );
                    }
                    std::fs::remove_file(&path)?;
                }
            }
        }
        let store = Self {
            directory,
            bytes_max,
            began: Instant::now(),
            uptime_before_ms: newest_ms,
            gathered: Mutex::default(),
            segments: Mutex::new(segments),
        };
        Ok(OpenedReplies { store, replies })
    }

    /// For how long servers have run on it.
    fn uptime_ms(&self) -> u64 {
        self.uptime_before_ms.saturating_add(self.began.elapsed().as_millis() as u64)
    }

    /// Keeps in memory what stands behind changes. Not on disk before [`ReplyStore::flush`].
    pub(super) fn gather<'b>(&self, behind: impl Iterator<Item = &'b [u8]>) {
        let uptime_ms = self.uptime_ms();
        let bytes = {
            let mut gathered = self.gathered.lock();
            for behind in behind.filter(|behind| call_of(behind).is_some()) {
                if gathered.chunks.back().is_none_or(|chunk| chunk.len() >= CHUNK_BYTES) {
                    gathered.chunks.push_back(Vec::with_capacity(CHUNK_BYTES + 4096));
                }
                let Some(chunk) = gathered.chunks.back_mut() else { return };
                let before = chunk.len();
                write_entry(chunk, uptime_ms, behind);
                let more = chunk.len() - before;
                gathered.bytes += more;
            }
            gathered.bytes
        };
        if bytes > GATHERED_BYTES_MAX
            && let Some(mut segments) = self.segments.try_lock()
            && segments.failed.is_none_or(|failed| failed.elapsed() > TRY_AGAIN)
            && let Err(error) = self.write(&mut segments)
        {
            tell_of_failure(&mut segments, &error);
        }
    }

    /// Has all that was gathered before on disk, and removes what is too old or too much.
    ///
    /// # Errors
    /// The state directory's. What was gathered stays in memory.
    pub(super) fn flush(&self) -> io::Result<()> {
        let mut segments = self.segments.lock();
        let flushed = self.write(&mut segments).and_then(|()| {
            if let Err(error) = segments.flush() {
                self.take_back(&mut segments, VecDeque::new());
                return Err(error);
            }
            let bytes_max = self.bytes_max_now(&segments);
            self.tell_of_scarcity(&mut segments, bytes_max);
            self.remove_old(&mut segments, bytes_max)
        });
        match &flushed {
            Ok(()) => (segments.told, segments.failed) = (None, None),
            Err(error) => tell_of_failure(&mut segments, error),
        }
        flushed
    }

    fn write(&self, segments: &mut Segments) -> io::Result<()> {
        let mut chunks = std::mem::take(&mut *self.gathered.lock()).chunks;
        let now_ms = self.uptime_ms();
        while let Some(chunk) = chunks.pop_front() {
            let written = self.write_chunk(segments, &chunk, now_ms);
            if let Err(error) = written {
                chunks.push_front(chunk);
                self.take_back(segments, chunks);
                return Err(error);
            }
            segments.unflushed.push_back(chunk);
        }
        Ok(())
    }

    /// Has in memory again what a segment that failed may lack, and these that come after it.
    fn take_back(&self, segments: &mut Segments, after: VecDeque<Vec<u8>>) {
        let mut chunks = segments.give_up_open();
        chunks.extend(after);
        let mut gathered = self.gathered.lock();
        while let Some(mut chunk) = chunks.pop_back() {
            chunk.shrink_to_fit();
            gathered.bytes += chunk.len();
            gathered.chunks.push_front(chunk);
        }
        // What leaves here would leave the store as well.
        let most = (2 * GATHERED_BYTES_MAX).max(self.bytes_max as usize);
        while gathered.bytes > most
            && let Some(oldest) = gathered.chunks.pop_front()
        {
            gathered.bytes -= oldest.len();
        }
    }

    fn write_chunk(&self, segments: &mut Segments, chunk: &[u8], now_ms: u64) -> io::Result<()> {
        if let (Some(_), Some(file)) = (&segments.open, segments.files.back())
            && file.bytes >= segment_bytes(self.bytes_max_now(segments))
        {
            segments.flush()?;
            segments.open = None;
        }
        if segments.open.is_none() {
            self.begin_segment(segments, now_ms)?;
        }
        let Segments { files, open: Some(open), bytes, .. } = segments else {
            return Ok(());
        };
        open.write_all(chunk)?;
        *bytes += chunk.len() as u64;
        if let Some(file) = files.back_mut() {
            file.bytes += chunk.len() as u64;
            file.newest_ms = now_ms;
        }
        Ok(())
    }

    /// How many bytes the store may have now: with what its file system has left it shares alike, so that it
    /// never is what fills it.
    fn bytes_max_now(&self, segments: &Segments) -> u64 {
        match rustix::fs::statvfs(&self.directory) {
            // Some tell nothing.
            Ok(told) if told.f_blocks > 0 => {
                let left = told.f_bavail.saturating_mul(told.f_frsize);
                bytes_max_beside(left, segments.bytes, self.bytes_max)
            }
            _ => self.bytes_max,
        }
    }

    fn begin_segment(&self, segments: &mut Segments, now_ms: u64) -> io::Result<()> {
        let bytes_max = self.bytes_max_now(segments);
        self.remove_old(segments, bytes_max.saturating_sub(segment_bytes(bytes_max)))?;
        let sequence = segments.next_sequence;
        segments.next_sequence = sequence.saturating_add(1);
        let path = self.directory.join(format!("{sequence:020}.{SUFFIX}"));
        let mut options = File::options();
        options.append(true).create_new(true).mode(0o600);
        let mut file = identity::as_server(|| options.open(&path))??;
        let mut head = Vec::new();
        write_segment_head(&mut head, sequence);
        let begun = file.write_all(&head).and_then(|()| durable_file::sync_directory_of(&path));
        if let Err(error) = begun {
            // If that fails, too, the next start does it.
            let _ = durable_file::remove(&path);
            return Err(error);
        }
        let bytes = head.len() as u64;
        segments.open = Some(file);
        segments.bytes += bytes;
        segments.files.push_back(SegmentFile { path, bytes, newest_ms: now_ms, oldest_ms: now_ms });
        Ok(())
    }

    /// Removes the oldest while they are too many or too old. The one that is written to stays.
    fn remove_old(&self, segments: &mut Segments, bytes_max: u64) -> io::Result<()> {
        let now_ms = self.uptime_ms();
        let stay_ms = REPLIES_STAY.as_millis() as u64;
        while segments.files.len() > usize::from(segments.open.is_some())
            && let Some(oldest) = segments.files.front()
        {
            let is_old = oldest.newest_ms.saturating_add(stay_ms) < now_ms;
            let is_much = segments.bytes > bytes_max || segments.files.len() > SEGMENTS_MAX;
            if !is_old && !is_much {
                break;
            }
            durable_file::remove(&oldest.path)?;
            segments.bytes -= oldest.bytes;
            segments.files.pop_front();
        }
        Ok(())
    }

    fn tell_of_scarcity(&self, segments: &mut Segments, bytes_max: u64) {
        let is_due =
            segments.told_of_scarcity.is_none_or(|at| at.elapsed() > TELL_OF_SCARCITY_AGAIN);
        if bytes_max < self.bytes_max && is_due {
            segments.told_of_scarcity = Some(Instant::now());
            tracing::warn!(
                "{}: its file system has little room: {} KiB of replies to calls are kept instead of {} \
                 (replies_mib), which is half of the room that there is for them; a call whose reply has left is \
                 executed again if it is sent again after a crash",
                self.directory.display(),
                bytes_max >> 10,
                self.bytes_max >> 10
            );
        }
    }

    /// Keeps further replies in a store that nobody else uses yet: those of the ring that it
    /// may not have. Adds them to `replies`. On return they are on disk.
    ///
    /// # Errors
    /// The state directory's.
    pub(super) fn add(&self, ring: Vec<Vec<u8>>, replies: &mut Replies) -> io::Result<()> {
        {
            let known: HashSet<&[u8]> = replies.all.iter().flatten().map(Vec::as_slice).collect();
            let is_lacking = |behind: &&[u8]| !known.contains(behind);
            let first_known = ring.iter().position(|behind| known.contains(behind.as_slice()));
            let (older, newer) = ring.split_at(first_known.unwrap_or(0));
            let newer: Vec<&[u8]> = newer.iter().map(Vec::as_slice).filter(is_lacking).collect();
            let older = self.that_find_room(older, &newer, replies);
            self.gather(older.into_iter().chain(newer));
        }
        for behind in ring {
            replies.push(behind, self.bytes_max as usize);
        }
        self.flush()
    }

    /// Of replies that are older than all that the store has, those that it may have dropped at its bound must not come
    /// back as the newest: the newest of them that find room, and no reply that a call has a newer one of.
    fn that_find_room<'b>(
        &self,
        older: &'b [Vec<u8>],
        newer: &[&[u8]],
        replies: &Replies,
    ) -> Vec<&'b [u8]> {
        let calls: HashSet<&[u8]> =
            replies.iter().chain(newer.iter().copied()).filter_map(kept_as).collect();
        let segments = self.segments.lock();
        let bytes_max = self.bytes_max_now(&segments);
        let taken: usize = newer.iter().map(|behind| entry_bytes(behind.len())).sum();
        // One that is half empty has dropped nothing at its bound, unless there was less room before.
        let mut room = if segments.bytes > bytes_max / 2 {
            0
        } else {
            bytes_max
                .saturating_sub(segment_bytes(bytes_max) + segments.bytes)
                .saturating_sub(taken as u64)
        };
        let mut found: Vec<&[u8]> = Vec::new();
        for behind in older.iter().rev().map(Vec::as_slice) {
            let bytes = entry_bytes(behind.len()) as u64;
            if bytes > room {
                break;
            }
            if kept_as(behind).is_some_and(|call| !calls.contains(call)) {
                room -= bytes;
                found.push(behind);
            }
        }
        found.reverse();
        found
    }

    /// What it has.
    pub(super) fn kept(&self) -> RepliesKept {
        let gathered_bytes = self.gathered.lock().bytes as u64;
        let segments = self.segments.lock();
        let oldest_ms = segments.files.front().map(|file| file.oldest_ms);
        RepliesKept {
            bytes: segments.bytes,
            bytes_max: self.bytes_max_now(&segments),
            reach_ms: oldest_ms.map_or(0, |oldest_ms| self.uptime_ms().saturating_sub(oldest_ms)),
            gathered_bytes,
        }
    }
}

/// Replies that a server kept, for one that has no log.
///
/// # Errors
/// The state directory's.
pub fn kept_replies(state_directory: &Path) -> io::Result<Vec<Vec<u8>>> {
    if !state_directory.join(DIRECTORY).exists() {
        return Ok(Vec::new());
    }
    Ok(ReplyStore::open(state_directory, REPLIES_BYTES_MAX)?.replies.into_newest())
}

fn tell_of_failure(segments: &mut Segments, error: &io::Error) {
    segments.failed = Some(Instant::now());
    if segments.told.is_none_or(|told| told.elapsed() > TELL_AGAIN) {
        segments.told = Some(Instant::now());
        tracing::error!(
            "the replies to calls cannot be kept in the state directory: {error}; they stay in the \
             intent log while it has room; make room in the state directory, or calls that are sent \
             again after a crash may be executed again"
        );
    }
}

/// How many bytes a store of so many may have, where a file system has so many left and so many are configured.
fn bytes_max_beside(left: u64, own: u64, configured: u64) -> u64 {
    (left.saturating_add(own) / 2).max(BYTES_MIN).min(configured)
}

fn segment_bytes(bytes_max: u64) -> u64 {
    SEGMENT_BYTES.min(bytes_max / SEGMENTS_MIN)
}

fn sequence_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.strip_suffix(SUFFIX)?.strip_suffix('.')?.parse().ok()
}

fn read_segment(
    path: &Path,
    bytes: &[u8],
    replies: &mut Replies,
    bytes_max: u64,
) -> Result<SegmentFile, SegmentError> {
    let mut segment = Segment::new(bytes)?;
    let (mut oldest_ms, mut newest_ms) = (u64::MAX, 0);
    for entry in segment.by_ref() {
        oldest_ms = entry.uptime_ms.min(oldest_ms);
        newest_ms = entry.uptime_ms.max(newest_ms);
        replies.push(entry.payload.to_vec(), bytes_max as usize);
    }
    if segment.damaged_bytes() > 0 {
        tracing::warn!(
            "{}: {} bytes are damaged; calls that they have replies of are executed again if they \
             are sent again",
            path.display(),
            segment.damaged_bytes()
        );
    }
    let oldest_ms = oldest_ms.min(newest_ms);
    Ok(SegmentFile { path: path.to_owned(), bytes: bytes.len() as u64, newest_ms, oldest_ms })
}

#[cfg(test)]
mod tests;
