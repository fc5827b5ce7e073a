//! All writing of file data: gathered in memory, sent UNSTABLE by several threads, committed by
//! `fsync` and `close`, written again after the server's restart.
//!
//! There is no other way for data to the server. With a journal, what [`WriteBack::write`] takes is in
//! its ring too, in the same order, until the server has it on stable storage. So it is enough for
//! [`WriteBack::make_safe`] that the ring is stable and the server has the data in memory.
//!
//! On an `async` share of our own server, data of all files becomes stable together, by a SYNC that nobody
//! waits for who sends or writes (`stability`).

mod mending;
mod records;
mod stability;
mod worker;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use steadfast_client::Identity;

use crate::errors::Errno;
use crate::held::{Held, Piece, Weight};
use crate::journaling::{Journaling, NotTaken};
use crate::node::{Node, Nodes};
use crate::options::CacheTimes;
use crate::process;
use crate::recovery::Recovery;
use crate::server::Server;
use crate::transport::Patience;
use records::Records;
use stability::Stability;

/// Threads that send. Each has one call in flight.
const WORKERS: usize = 16;
/// Most of them that work on one file.
const WORKERS_PER_FILE: u32 = 8;
/// Data in memory that holds up writers, of all files together, in bytes: what is not stable on the server; or, while a
/// journal keeps what the server has acknowledged, what it has not acknowledged.
const HELD_BYTES_MAX: usize = 64 << 20;
/// What the server has acknowledged is kept in memory up to so many bytes, where a journal has it, too.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// How long data stays in memory before it is sent and committed though nobody asked.
const SENT_AFTER: Duration = Duration::from_secs(5);
/// A process that ends waits this long for what it leaves, if the server does not answer.
const EXITING_WAITS: Duration = Duration::from_secs(1);

/// The part of a file's state that is about data to be written.
#[derive(Debug, Default)]
pub(crate) struct Data {
    state: Mutex<DataState>,
    /// Something has been sent, refused or committed.
    changed: Condvar,
    /// Whoever has it appends to the journal, so that its order is that of the held data.
    order: Mutex<()>,
    /// The file was removed by this mount.
    is_removed: AtomicBool,
}

#[derive(Debug, Default)]
struct DataState {
    held: Held,
    /// Whose data it is.
    identity: Option<Identity>,
    since: Option<Instant>,
    /// When the oldest of what is unstable was written, about.
    unstable_since: Option<Instant>,
    /// Somebody waits until everything is sent.
    flushers: u32,
    /// Somebody waits until everything is stable.
    committers: u32,
    /// A change of attributes is to come after what was written, and before what will be.
    exclusive: u32,
    /// Nothing may be sent now.
    is_gated: bool,
    is_committing: bool,
    /// Everything is to be sent and committed, though nobody waits.
    is_pressed: bool,
    jobs: u32,
    /// How many errors there were, and the last one.
    errors: u64,
    last_error: Option<Errno>,
    /// What the journal has of it.
    records: Records,
}

impl DataState {
    /// Nothing is left to be done for what is held, but the SYNC that makes all files stable together.
    fn is_done(&self, is_synced_together: bool) -> bool {
        self.held.is_empty() || is_synced_together && self.held.is_sent()
    }
}

impl Data {
    /// Where the last byte ends that outweighs what the server has.
    pub(crate) fn end(&self) -> Option<u64> {
        self.state.lock().held.end()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().held.is_empty()
    }

    /// The last name is gone: data that the server refuses now is missed by nobody.
    fn note_removed(&self) {
        self.is_removed.store(true, Ordering::Relaxed);
    }

    fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }

    /// Whether there is data that the server was not sent, or has not acknowledged.
    pub(crate) fn is_unsent(&self) -> bool {
        let state = self.state.lock();
        !state.held.is_sent()
    }

    /// How many errors there were so far: whoever opens the file is told of later ones only.
    pub(crate) fn errors(&self) -> u64 {
        self.state.lock().errors
    }

    /// The error that came after those of `seen`, once.
    pub(crate) fn error_since(&self, seen: &std::sync::atomic::AtomicU64) -> Result<(), Errno> {
        let state = self.state.lock();
        if seen.swap(state.errors, Ordering::Relaxed) == state.errors {
            return Ok(());
        }
        Err(state.last_error.unwrap_or(Errno::EIO))
    }
}

/// The write-back of a mount.
#[derive(Debug)]
pub(crate) struct WriteBack {
    server: Arc<Server>,
    nodes: Arc<Nodes>,
    times: CacheTimes,
    write_bytes: usize,
    file_bytes_max: u64,
    jobs: Mutex<VecDeque<Arc<Node>>>,
    has_job: Condvar,
    /// What the server has not acknowledged, of all files.
    waiting_bytes: AtomicUsize,
    /// What it has acknowledged, and is in memory.
    kept_bytes: AtomicUsize,
    /// [`KEPT_BYTES_MAX`], but in tests.
    kept_bytes_max: AtomicUsize,
    room: Mutex<()>,
    has_room: Condvar,
    /// Files with data.
    holders: Mutex<HashMap<u64, Arc<Node>>>,
    is_closed: AtomicBool,
    journaling: Option<Arc<Journaling>>,
    recovery: Option<Arc<Recovery>>,
    stability: Stability,
}

impl WriteBack {
    pub(crate) fn start(
        server: Arc<Server>,
        nodes: Arc<Nodes>,
        times: CacheTimes,
        write_bytes: u32,
        file_bytes_max: u64,
        journaling: Option<Arc<Journaling>>,
        recovery: Option<Arc<Recovery>>,
    ) -> io::Result<Arc<Self>> {
        let write_back = Arc::new(Self {
            server,
            nodes,
            times,
            write_bytes: write_bytes as usize,
            file_bytes_max,
            jobs: Mutex::default(),
            has_job: Condvar::new(),
            waiting_bytes: AtomicUsize::new(0),
            kept_bytes: AtomicUsize::new(0),
            kept_bytes_max: AtomicUsize::new(KEPT_BYTES_MAX),
            room: Mutex::default(),
            has_room: Condvar::new(),
            holders: Mutex::default(),
            is_closed: AtomicBool::new(false),
            stability: Stability::new(journaling.is_some()),
            journaling,
            recovery,
        });
        for _ in 0..WORKERS {
            let this = Arc::clone(&write_back);
            thread::Builder::new().name("nfs-write".to_owned()).spawn(move || this.run_worker())?;
        }
        let this = Arc::clone(&write_back);
        thread::Builder::new().name("nfs-flush".to_owned()).spawn(move || this.run_clock())?;
        Ok(write_back)
    }

    /// How much is held, by how far it got.
    pub(crate) fn load(&self) -> Load {
        let mut load = Load::default();
        for node in self.holders() {
            let state = node.data.state.lock();
            let (dirty, unstable) = (state.held.dirty_bytes(), state.held.unstable_bytes());
            let in_flight = state.held.weight().waiting.saturating_sub(dirty);
            load.files += u64::from(!state.held.is_empty());
            load.dirty_bytes += dirty as u64;
            load.in_flight_bytes += in_flight as u64;
            load.unstable_bytes += unstable as u64;
        }
        load
    }

    /// Writers wait when so many bytes are held.
    pub(crate) fn held_bytes_max() -> u64 {
        HELD_BYTES_MAX as u64
    }

    /// Files with data.
    pub(crate) fn holders(&self) -> Vec<Arc<Node>> {
        self.holders.lock().values().cloned().collect()
    }

    /// Bytes that hold up writers when they are too many.
    fn held_bytes(&self) -> usize {
        let waiting = self.waiting_bytes.load(Ordering::Relaxed);
        if self.is_synced_together() {
            return waiting;
        }
        waiting + self.kept_bytes.load(Ordering::Relaxed)
    }

    /// Takes data that was written; it is sent later.
    pub(crate) fn write(
        &self,
        node: &Arc<Node>,
        identity: &Identity,
        offset: u64,
        data: &[u8],
        patience: Patience,
    ) -> Result<(), Errno> {
        const EFBIG: Errno = Errno(27);
        let end = offset.checked_add(data.len() as u64).ok_or(EFBIG)?;
        if end > self.file_bytes_max {
            return Err(EFBIG);
        }
        let since = Instant::now();
        self.wait_for_room(node, data.len(), patience)?;
        let Some(journaling) = self.kept_by() else {
            if let Some(journaling) = &self.journaling {
                journaling.note_bypass(node.handle().as_bytes());
            }
            let mut state = self.await_turn(node, identity, patience)?;
            self.take(node, &mut state, identity, offset, data);
            return Ok(());
        };
        let _order = loop {
            if let Some(order) = node.data.order.try_lock_for(patience.nap()) {
                break order;
            }
            if let Some(error) = patience.end(since) {
                return Err(error.into());
            }
        };
        if self.add_to_record(node, identity, offset, data, patience)? {
            return Ok(());
        }
        let (sequences, _entered) = loop {
            let path = self.nodes.path(node.number);
            let entered = match &self.recovery {
                Some(recovery) => {
                    Some(recovery.enter(self.server.patience(patience, since), since)?)
                }
                None => None,
            };
            let handle = node.handle();
            match journaling.append_write(&handle, &path, identity, offset, data) {
                Ok(sequences) => {
                    if let Some(first) = sequences.first() {
                        journaling.note_known(*first, &handle, &node.attributes());
                    }
                    break (sequences, entered);
                }
                Err(NotTaken::Failed) => {
                    journaling.note_bypass(handle.as_bytes());
                    break (Vec::new(), entered);
                }
                Err(NotTaken::Full) => self.press_all(),
            }
            drop(entered);
            journaling.wait_for_room(data.len(), patience.nap());
            if let Some(error) = patience.end(since) {
                return Err(error.into());
            }
        };
        let mut state = node.data.state.lock();
        self.take(node, &mut state, identity, offset, data);
        state.records.add(sequences, offset, data.len());
        Ok(())
    }

    /// What goes on where the file's newest record ends becomes a part of that record, if the journal lets it. To be
    /// called with the file's `order`, when it is this user's turn.
    fn add_to_record(
        &self,
        node: &Arc<Node>,
        identity: &Identity,
        offset: u64,
        data: &[u8],
        patience: Patience,
    ) -> Result<bool, Errno> {
        // Under this lock no record is settled: what is added to one is held before that.
        let mut state = self.await_turn(node, identity, patience)?;
        let (Some(journaling), Some(newest)) = (self.kept_by(), state.records.ends_at(offset))
        else {
            return Ok(false);
        };
        // A recovery waits for locks like this one, so it is not waited for.
        let entered = self.recovery.as_ref().map(|recovery| recovery.try_enter());
        if matches!(entered, Some(None)) {
            return Ok(false);
        }
        let is_added = journaling.grow(newest, &node.handle(), identity, offset, data);
        if is_added {
            self.take(node, &mut state, identity, offset, data);
            state.records.grow(data.len());
        }
        Ok(is_added)
    }

    /// The journal, while it keeps what is written.
    fn kept_by(&self) -> Option<&Arc<Journaling>> {
        self.journaling.as_ref().filter(|journaling| journaling.is_kept())
    }

    /// Waits until data of this user may be added.
    fn await_turn<'n>(
        &self,
        node: &'n Arc<Node>,
        identity: &Identity,
        patience: Patience,
    ) -> Result<MutexGuard<'n, DataState>, Errno> {
        let since = Instant::now();
        let mut state = node.data.state.lock();
        loop {
            // A SYNC is nobody's, and what is lost comes from the journal, where each record has its user.
            let is_synced_together = self.is_synced_together();
            let is_others = !state.is_done(is_synced_together)
                && state.identity.as_ref().is_some_and(|own| own != identity);
            if state.committers == 0 && state.exclusive == 0 && !is_others {
                return Ok(state);
            }
            if is_others {
                // Data of another user is sent under that user's name.
                drop(state);
                let wanted = if is_synced_together { Wanted::Sent } else { Wanted::Stable };
                self.flush(node, patience, wanted)?;
                state = node.data.state.lock();
                continue;
            }
            Self::wait(node, &mut state, patience, since)?;
        }
    }

    fn take(
        &self,
        node: &Arc<Node>,
        state: &mut DataState,
        identity: &Identity,
        offset: u64,
        data: &[u8],
    ) {
        state.identity = Some(identity.clone());
        state.since.get_or_insert_with(Instant::now);
        let before = state.held.weight();
        state.held.insert(offset, data, self.write_bytes);
        self.account(node, before, state);
        if state.held.dirty_bytes() >= self.write_bytes {
            // What is cut small is sent by several threads.
            let is_cut = self.piece_bytes() < self.write_bytes;
            self.enqueue(node, state, if is_cut { self.pieces(state) } else { 1 });
        }
    }

    /// How long a WRITE is at most.
    fn piece_bytes(&self) -> usize {
        self.server.link.piece_bytes(self.write_bytes)
    }

    /// How many WRITEs send what was not sent.
    fn pieces(&self, state: &DataState) -> u32 {
        (state.held.dirty_bytes() / self.piece_bytes().max(1)) as u32
    }

    /// Whether each write is to be stable on the server before it is acknowledged, since the journal
    /// does not keep it.
    pub(crate) fn is_bypassed(&self) -> bool {
        self.journaling.as_ref().is_some_and(|journaling| !journaling.is_kept())
    }

    /// What was written to a file survives a crash of this host or of the server from now on: the
    /// server has it on stable storage; or in memory, and the journal has it.
    ///
    /// # Errors
    /// As [`WriteBack::flush`].
    pub(crate) fn make_safe(&self, node: &Arc<Node>, patience: Patience) -> Result<(), Errno> {
        let Some(journaling) = self.kept_by() else {
            return self.flush(node, patience, Wanted::Stable);
        };
        let last = {
            let mut state = node.data.state.lock();
            // The server works while the journal's disk does.
            state.flushers += 1;
            let runs = self.pieces(&state) + 1;
            self.enqueue(node, &mut state, runs.min(WORKERS_PER_FILE));
            // The file's name and attributes are as good as its data where they may be lost. What others have written
            // is not waited for.
            let keeps_names = self.recovery.as_ref().is_some_and(|it| it.keeps_names());
            keeps_names.then(|| journaling.last_name()).max(state.records.last())
        };
        let is_kept = last.is_none_or(|last| journaling.make_stable(last));
        node.data.state.lock().flushers -= 1;
        self.flush(node, patience, if is_kept { Wanted::Sent } else { Wanted::Stable })?;
        node.data.state.lock().records.promise(last);
        Ok(())
    }

    /// Whether no call reaches a server that has lost what it had acknowledged: the recovery comes first.
    fn has_what_it_acknowledged(&self) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| recovery.is_async())
    }

    /// Bytes of a range that the server may not have. They outweigh what the server has, if they are taken before it is asked.
    pub(crate) fn held(&self, node: &Node, offset: u64, size: u64) -> (Vec<Piece>, Option<u64>) {
        let is_trusted = self.has_what_it_acknowledged();
        let mut state = node.data.state.lock();
        state.held.trust_acknowledged(is_trusted);
        (state.held.pieces(offset, offset.saturating_add(size)), state.held.end())
    }

    /// Waits until everything that was written is sent, or stable. Errors of writes are told by
    /// [`Data::error_since`], not here.
    ///
    /// # Errors
    /// When the waiting process is killed.
    pub(crate) fn flush(
        &self,
        node: &Arc<Node>,
        patience: Patience,
        wanted: Wanted,
    ) -> Result<(), Errno> {
        let since = Instant::now();
        // Threads of a process that ends look as if they were killed; what they close is flushed
        // nevertheless, unless the server is gone.
        let is_exiting = !node.data.is_empty() && process::is_exiting(patience.pid);
        let patience = if is_exiting { Patience { pid: 0, ..patience } } else { patience };
        let mut state = node.data.state.lock();
        state.flushers += 1;
        state.committers += u32::from(wanted == Wanted::Stable);
        let outcome = loop {
            let is_done = match wanted {
                Wanted::Stable => state.held.is_empty(),
                Wanted::Sent => state.held.is_sent(),
            };
            if is_done {
                break Ok(());
            }
            let runs = self.pieces(&state) + 1;
            self.enqueue(node, &mut state, runs.min(WORKERS_PER_FILE));
            if let Err(error) = Self::wait(node, &mut state, patience, since) {
                break Err(error);
            }
            if is_exiting
                && since.elapsed() >= EXITING_WAITS
                && self.server.link.is_silent_for(EXITING_WAITS)
            {
                break Err(Errno::EINTR);
            }
        };
        // What is not waited for any more is written nevertheless.
        state.is_pressed |= outcome.is_err();
        state.flushers -= 1;
        state.committers -= u32::from(wanted == Wanted::Stable);
        drop(state);
        node.data.changed.notify_all();
        outcome
    }

    /// Has everything sent and committed without waiting for it. What is made stable together is only sent:
    /// [`WriteBack::hurry`]. Whether there was something to do.
    pub(crate) fn press(&self, node: &Arc<Node>) -> bool {
        let is_synced_together = self.is_synced_together();
        let mut state = node.data.state.lock();
        let is_done = state.is_done(is_synced_together);
        if !is_done {
            state.is_pressed = true;
            self.enqueue(node, &mut state, 1);
        }
        !is_done
    }

    /// Whether the server answers, as far as that is known.
    pub(crate) fn is_server_there(&self) -> bool {
        !self.server.link.is_silent_for(EXITING_WAITS)
    }

    /// The file is not open any more. What the journal has may become stable on the server later.
    pub(crate) fn let_go(&self, node: &Arc<Node>) {
        if self.kept_by().is_none() || node.data.is_unsent() {
            self.press(node);
        }
    }

    /// Changes attributes after everything that was written is sent, while nothing is. With a size,
    /// data beyond it is forgotten once the server has the size.
    pub(crate) fn change<T>(
        &self,
        node: &Arc<Node>,
        patience: Patience,
        size: Option<u64>,
        change: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let since = Instant::now();
        node.data.state.lock().exclusive += 1;
        let quiet = loop {
            if let Err(error) = self.flush(node, patience, Wanted::Sent) {
                break Err(error);
            }
            let mut state = node.data.state.lock();
            // A commit that ends now may make data dirty again.
            if state.held.is_sent() && !state.is_committing && !state.is_gated {
                state.is_gated = true;
                break Ok(());
            }
            if let Err(error) = Self::wait(node, &mut state, patience, since) {
                break Err(error);
            }
        };
        let outcome = quiet.and_then(|()| {
            let outcome = change();
            let mut state = node.data.state.lock();
            state.is_gated = false;
            if let (Ok(_), Some(size)) = (&outcome, size) {
                let before = state.held.weight();
                state.held.truncate(size);
                self.account(node, before, &state);
                self.leave(&mut state);
            }
            outcome
        });
        let mut state = node.data.state.lock();
        state.exclusive -= 1;
        if state.flushers > 0 || state.is_pressed {
            self.enqueue(node, &mut state, 1);
        }
        drop(state);
        node.data.changed.notify_all();
        outcome
    }

    /// Writes everything back; for the end of a mount. Returns how many bytes are left after this time.
    pub(crate) fn finish(&self, time: Duration) -> usize {
        let since = Instant::now();
        while since.elapsed() < time {
            if self.holders().is_empty() {
                return 0;
            }
            self.press_all();
            thread::sleep(Duration::from_millis(20));
        }
        self.holders().iter().map(|node| node.data.state.lock().held.weight().bytes).sum()
    }

    /// Has everything of all files sent and committed without waiting for it.
    pub(crate) fn press_all(&self) {
        let holders = self.holders();
        for node in &holders {
            self.press(node);
        }
        self.hurry();
    }

    /// Ends the threads.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.has_job.notify_all();
    }

    fn wait(
        node: &Node,
        state: &mut MutexGuard<'_, DataState>,
        patience: Patience,
        since: Instant,
    ) -> Result<(), Errno> {
        let has_timed_out = node.data.changed.wait_for(state, patience.nap()).timed_out();
        match patience.end(since) {
            Some(error) if has_timed_out => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Waits while too much is held.
    fn wait_for_room(
        &self,
        node: &Arc<Node>,
        bytes: usize,
        patience: Patience,
    ) -> Result<(), Errno> {
        let since = Instant::now();
        while self.held_bytes() + bytes > HELD_BYTES_MAX {
            self.press(node);
            // Which file has most is not worth knowing: all have to go.
            let holders = self.holders();
            holders.iter().filter(|node| self.press(node)).take(WORKERS).for_each(drop);
            let _waiting = self.server.link.counters.memory_waits.begin();
            let mut room = self.room.lock();
            let has_timed_out = self.has_room.wait_for(&mut room, patience.nap()).timed_out();
            drop(room);
            if has_timed_out && let Some(error) = patience.end(since) {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Notes how much is held after a change.
    fn account(&self, node: &Arc<Node>, before: Weight, state: &DataState) {
        let after = state.held.weight();
        add(&self.waiting_bytes, before.waiting, after.waiting);
        add(&self.kept_bytes, before.acknowledged, after.acknowledged);
        if after.waiting < before.waiting || after.acknowledged < before.acknowledged {
            self.has_room.notify_all();
        }
        if state.held.is_empty() {
            self.holders.lock().remove(&node.number);
        } else if before.bytes == 0 {
            self.holders.lock().insert(node.number, Arc::clone(node));
        }
    }

    fn enqueue(&self, node: &Arc<Node>, state: &mut DataState, workers: u32) {
        let wanted = workers.min(WORKERS_PER_FILE).saturating_sub(state.jobs);
        if wanted == 0 {
            return;
        }
        state.jobs += wanted;
        let adapts = self.server.link.adapts_depth();
        let mut jobs = self.jobs.lock();
        for _ in 0..wanted {
            // What is left to be done is a COMMIT then, which waits for no window: it comes before WRITEs of others.
            if adapts && state.held.is_sent() {
                jobs.push_front(Arc::clone(node));
            } else {
                jobs.push_back(Arc::clone(node));
            }
        }
        drop(jobs);
        for _ in 0..wanted {
            self.has_job.notify_one();
        }
    }
}

/// What one file has of a sum has changed.
fn add(sum: &AtomicUsize, before: usize, after: usize) {
    if after >= before {
        sum.fetch_add(after - before, Ordering::Relaxed);
    } else {
        sum.fetch_sub(before - after, Ordering::Relaxed);
    }
}

/// How much data is on its way, by how far it got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) files: u64,
    pub(crate) dirty_bytes: u64,
    pub(crate) in_flight_bytes: u64,
    pub(crate) unstable_bytes: u64,
}

/// How far data is to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The server has it.
    Sent,
    /// The server has it on stable storage.
    Stable,
}
