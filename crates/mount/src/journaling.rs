//! The journal of a mount: what is written goes into a ring on this host's disk before it is
//! acknowledged, and leaves it when the server has it on stable storage.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{io, thread};

use parking_lot::Mutex;
use steadfast_client::{Attributes, FileHandle, Identity, Wcc};
use steadfast_journal::{
    AppendError, Change, DATA_BYTES_MAX, Journal, JournalId, Load, OpenError,
    Options as RingOptions, Outcome, Record, Recovered, Sequence, Settled, Stamp, Status, Time,
};

use crate::connect::{Connected, Specification};
use crate::counters::Waits;
use crate::document::{JournalStatus, RecoveriesStatus, milliseconds, shown, unix_ms};
use crate::options::{JournalSync, Options};
use crate::replay::{Carried, ReplayError, Replayed, Replaying, Report, replay, replay_again};
use crate::server::Server;
use crate::transport::Patience;

/// How often the journal gives room back, and is made stable if its owner wants that by time.
const TICK: Duration = Duration::from_millis(500);
/// How often the thread that writes ahead looks whether the mount has ended.
const AHEAD_TICK: Duration = Duration::from_millis(100);
/// How full the ring is when everything is sent and committed, in percent.
const PRESSED_FROM: u64 = 50;
/// How often it is told how far a replay is.
const PROGRESS: Duration = Duration::from_secs(2);
/// How often writers are reported to wait for room.
const REPORT: Duration = Duration::from_secs(10);

/// A mount's journal.
#[derive(Debug)]
pub(crate) struct Journaling {
    journal: Journal,
    /// What it is of, and where it is.
    what: Specification,
    directory: PathBuf,
    root: FileHandle,
    write_bytes: u32,
    sync: JournalSync,
    /// The ring's disk has failed: everything is written synchronously.
    has_failed: AtomicBool,
    /// Why.
    failure: OnceLock<String>,
    /// Writers that have found no room.
    full_waits: AtomicU64,
    /// Those that wait for it.
    waits: Waits,
    /// What was brought back to the server.
    history: Mutex<RecoveriesStatus>,
    began: Instant,
    /// What leaves when everything that was appended before is on the disk.
    leaving: Mutex<Vec<Sequence>>,
    /// Held by a replay: a record that leaves while the pending ones are read takes a later change out of the
    /// plan, and leaves an earlier one of the same object in it.
    is_replaying: Mutex<()>,
    /// Writes what was appended before anybody waits for it, until the mount ends.
    writer: Mutex<Option<JoinHandle<()>>>,
    has_ended: AtomicBool,
    last_name: AtomicU64,
    /// When it was reported last that writers wait, in ms since the beginning, and 1.
    reported_ms: AtomicU64,
}

/// Why something is not in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// There is no room now.
    Full,
    /// The journal is not used any more: what it has, and what comes, is written synchronously.
    Failed,
}

impl Journaling {
    /// Opens the journal that the options name; `None`: they name none.
    pub(crate) fn open(
        what: Specification,
        connected: &Connected,
        options: &Options,
    ) -> Result<Option<(Self, Recovered)>, OpenError> {
        let Some(directory) = &options.journal else { return Ok(None) };
        let mut ring = RingOptions::new(&what.server, &what.path);
        ring.ring_bytes = options.journal_bytes;
        ring.compress = options.compresses;
        ring.mount_options = options.for_replay().into_bytes();
        let (journal, recovered) = Journal::open(directory, &ring)?;
        let journaling = Self {
            journal,
            what,
            directory: directory.clone(),
            root: connected.root.clone(),
            write_bytes: connected.write_bytes.min(connected.read_bytes),
            sync: options.journal_sync,
            has_failed: AtomicBool::new(false),
            failure: OnceLock::new(),
            full_waits: AtomicU64::new(0),
            waits: Waits::default(),
            history: Mutex::new(RecoveriesStatus {
                conflicts_directory: shown(&directory.join("conflicts")),
                ..RecoveriesStatus::default()
            }),
            began: Instant::now(),
            leaving: Mutex::default(),
            is_replaying: Mutex::default(),
            writer: Mutex::default(),
            has_ended: AtomicBool::new(false),
            last_name: AtomicU64::new(0),
            reported_ms: AtomicU64::new(0),
        };
        Ok(Some((journaling, recovered)))
    }

    /// Sends what an earlier mount has left in the journal, and tells what became of it.
    pub(crate) fn replay(&self, server: &Server, recovered: &Recovered) -> Result<(), ReplayError> {
        let lost = recovered.damage.iter().filter(|damage| damage.was_stable);
        for damage in lost {
            tracing::error!(?damage, "changes that were in the journal are lost: it was damaged");
        }
        if recovered.pending_records > 0 {
            tracing::info!(records = recovered.pending_records, "the journal is replayed");
            let mut replay =
                |carried: &mut Carried| self.replay_now(server, &HashSet::new(), carried);
            let replayed = replay_again(&mut replay)?.report;
            report(&replayed);
            let mut history = self.history.lock();
            history.records_sent_at_mount = replayed.sent_records;
            history.conflicts_at_mount = replayed.conflicts.len() as u64;
        }
        self.journal.acknowledge_damage();
        Ok(())
    }

    fn replay_now(
        &self,
        server: &Server,
        unanswered: &HashSet<Sequence>,
        carried: &mut Carried,
    ) -> Result<Replayed, ReplayError> {
        let replaying = Replaying {
            write_bytes: self.write_bytes,
            directory: &self.directory,
            share: (self.what.server.as_bytes(), self.what.path.as_bytes()),
            root: &self.root,
            unanswered,
            patience: Patience::default(),
        };
        let mut told = Instant::now();
        let mut progress = |done, all| {
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                tracing::info!(done, all, "the journal is replayed");
            }
        };
        replay(&self.journal, server, &replaying, carried, &mut progress)
    }

    /// Sends what the server has lost while the share is mounted. Whoever makes the changes of `in_flight`
    /// is told of them otherwise. What is carried is that of all attempts of this recovery.
    pub(crate) fn recover(
        &self,
        server: &Server,
        unanswered: &HashSet<Sequence>,
        in_flight: &HashSet<Sequence>,
        carried: &mut Carried,
    ) -> Result<Replayed, ReplayError> {
        let _replaying = self.is_replaying.lock();
        // All that is appended is to be there, too, if this host crashes now.
        self.make_stable(self.journal.status().last);
        let leaving = std::mem::take(&mut *self.leaving.lock());
        self.settle(leaving, Settled::Stable);
        let mut replayed = self.replay_now(server, unanswered, carried)?;
        replayed.report.conflicts.retain(|conflict| !in_flight.contains(&conflict.sequence));
        report(&replayed.report);
        let mut history = self.history.lock();
        history.records_made_again += replayed.report.sent_records;
        history.conflicts += replayed.report.conflicts.len() as u64;
        Ok(replayed)
    }

    /// The journal's name.
    pub(crate) fn id(&self) -> JournalId {
        self.journal.id()
    }

    /// Whether nothing is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.settle_now();
        self.journal.status().pending_records == 0
    }

    /// The server has lost something, which is brought back now.
    pub(crate) fn note_recovery_begun(&self) {
        self.history.lock().under_way_since_unix_ms = Some(unix_ms(SystemTime::now()));
    }

    /// What the server had lost is there again.
    pub(crate) fn note_recovered(&self) {
        let now_ms = unix_ms(SystemTime::now());
        let mut history = self.history.lock();
        history.count += 1;
        history.last_unix_ms = Some(now_ms);
        let begun_ms = history.under_way_since_unix_ms.take();
        history.last_took_ms = begun_ms.map(|begun_ms| now_ms.saturating_sub(begun_ms));
    }

    /// Changes that others had made, or that the server had refused, when what it had lost was brought back.
    pub(crate) fn conflicts(&self) -> u64 {
        self.history.lock().conflicts
    }

    /// What the ring holds. Waits for no disk.
    pub(crate) fn load(&self) -> Load {
        self.journal.load()
    }

    /// What the mount tells of it. Waits for no disk.
    pub(crate) fn told(&self) -> JournalStatus {
        let load = self.load();
        JournalStatus {
            directory: shown(&self.directory),
            ring_bytes: load.ring_bytes,
            used_bytes: load.used_bytes,
            commits_from_bytes: pressed_from(load.ring_bytes),
            pending_records: load.pending_records,
            pending_bytes: load.pending_bytes,
            oldest_unix_ms: load.oldest.map(|(_, time_ns)| time_ns / 1_000_000),
            oldest_sequence: load.oldest.map(|(sequence, _)| sequence.0),
            last_sequence: load.last.0,
            stable_sequence: load.stable.0,
            flushes: load.statistics.flushes,
            sync: match self.sync {
                JournalSync::Always => "always".to_owned(),
                JournalSync::Fsync => "fsync".to_owned(),
                JournalSync::Every(time) => time.as_secs().to_string(),
            },
            failed: self.failure.get().cloned().or(load.failed),
            writers_waiting: self.waits.now(),
            writers_waited_ms: milliseconds(self.waits.waited()),
            recoveries: self.history.lock().clone(),
        }
    }

    /// The last record.
    pub(crate) fn last(&self) -> Sequence {
        self.journal.status().last
    }

    /// The last record of a change of names or attributes, of whatever object, since the journal was opened.
    pub(crate) fn last_name(&self) -> Sequence {
        Sequence(self.last_name.load(Ordering::Acquire))
    }

    /// Somebody waits for room.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waits.now() > 0
    }

    /// Whether what is written is kept by the journal.
    pub(crate) fn is_kept(&self) -> bool {
        !self.has_failed.load(Ordering::Acquire)
    }

    /// Appends data that is written to a file. It is in the ring's order from now on, and stable after
    /// [`Journaling::make_stable`].
    pub(crate) fn append_write(
        &self,
        file: &FileHandle,
        path: &[u8],
        identity: &Identity,
        offset: u64,
        data: &[u8],
    ) -> Result<Vec<Sequence>, NotTaken> {
        if !self.is_kept() {
            return Err(NotTaken::Failed);
        }
        let mut sequences = Vec::with_capacity(1);
        let mut at = offset;
        for data in data.chunks(DATA_BYTES_MAX) {
            let change = Change::Write { file: file.as_bytes(), offset: at, data };
            match self.journal.append_growing(&record(path, identity, change)) {
                Ok(sequence) => sequences.push(sequence),
                Err(error) => {
                    // What is there of it is sent with the rest.
                    self.settle(sequences, Settled::Refused);
                    return Err(self.not_taken(&error));
                }
            }
            at += data.len() as u64;
        }
        if self.sync == JournalSync::Always
            && let Some(last) = sequences.last()
        {
            self.make_stable(*last);
        }
        Ok(sequences)
    }

    /// Adds what is written behind the newest record to that record, without waiting for anything. False: it needs a
    /// record of its own. The caller sees to it that the record is not settled meanwhile.
    pub(crate) fn grow(
        &self,
        newest: Sequence,
        file: &FileHandle,
        identity: &Identity,
        offset: u64,
        data: &[u8],
    ) -> bool {
        let change = Change::Write { file: file.as_bytes(), offset, data };
        self.is_kept()
            && self.sync != JournalSync::Always
            && self.journal.grow(newest, &record(b"", identity, change))
    }

    /// Appends a change of names or attributes. As [`Journaling::append_write`].
    pub(crate) fn append_change(
        &self,
        path: &[u8],
        identity: &Identity,
        change: Change<'_>,
    ) -> Result<Sequence, NotTaken> {
        if !self.is_kept() {
            return Err(NotTaken::Failed);
        }
        let appended = self.journal.append(&record(path, identity, change));
        let sequence = appended.map_err(|error| self.not_taken(&error))?;
        self.last_name.fetch_max(sequence.0, Ordering::AcqRel);
        if self.sync == JournalSync::Always {
            self.make_stable(sequence);
        }
        Ok(sequence)
    }

    /// Notes what the server has answered to a change.
    pub(crate) fn note_answer(&self, record: Sequence, outcome: Outcome) {
        // Without it a replay finds out by looking.
        let _ = self.journal.note_outcome(record, outcome);
    }

    /// Notes what is known of an object before its first change, so that a replay can tell what others do.
    pub(crate) fn note_known(&self, record: Sequence, object: &FileHandle, known: &Attributes) {
        if self.journal.last_stamp(object.as_bytes()).is_none() {
            let after = Some(stamp_of(known));
            self.note_answer(record, Outcome { after, ..Outcome::default() });
        }
    }

    fn not_taken(&self, error: &AppendError) -> NotTaken {
        match error {
            AppendError::Unfit(why) => {
                tracing::error!(%why, "a change does not fit into the journal, and is made without it");
                NotTaken::Failed
            }
            AppendError::Full { .. } => {
                self.report_full();
                NotTaken::Full
            }
            error => {
                self.fail(error);
                NotTaken::Failed
            }
        }
    }

    /// The ring's disk has failed.
    pub(crate) fn fail(&self, why: &dyn std::fmt::Display) {
        if !self.has_failed.swap(true, Ordering::AcqRel) {
            // The first reason counts.
            let _ = self.failure.set(why.to_string());
            tracing::error!(
                "the journal is not used any more: {why}; from now on each write waits until the \
                 server has it on stable storage"
            );
        }
    }

    /// Whoever writes waits for the server, and its user is to know why.
    fn report_full(&self) {
        let waits = self.full_waits.fetch_add(1, Ordering::Relaxed) + 1;
        let now_ms = self.began.elapsed().as_millis() as u64 + 1;
        let last_ms = self.reported_ms.load(Ordering::Relaxed);
        let is_due = last_ms == 0 || now_ms.saturating_sub(last_ms) >= REPORT.as_millis() as u64;
        let taken = |last| {
            let (kept, ordering) = (&self.reported_ms, Ordering::Relaxed);
            kept.compare_exchange(last, now_ms, ordering, ordering).is_ok()
        };
        if is_due && taken(last_ms) {
            let Status { ring_bytes, pending_records, .. } = self.journal.status();
            tracing::warn!(
                waits,
                ring_bytes,
                pending_records,
                "the journal is full: writers wait until the server has made older data stable \
                 (a larger journal_size= makes that rarer)"
            );
        }
    }

    /// Waits a while for room for so much data.
    pub(crate) fn wait_for_room(&self, bytes: usize, at_most: Duration) {
        let _waiting = self.waits.begin();
        self.settle_now();
        self.journal.wait_for_room(bytes.min(DATA_BYTES_MAX), at_most);
    }

    /// Makes everything up to this sequence survive a crash of this host. False: the ring's disk has
    /// failed, so that nothing but the server keeps it.
    pub(crate) fn make_stable(&self, up_to: Sequence) -> bool {
        match self.journal.sync(up_to) {
            Ok(()) => true,
            Err(failed) => {
                self.fail(&failed);
                false
            }
        }
    }

    /// The server has these on stable storage, or has refused them and the writer is told.
    pub(crate) fn settle(&self, sequences: Vec<Sequence>, how: Settled) {
        if !sequences.is_empty() {
            self.journal.settled(sequences, how);
        }
    }

    /// The server has these on stable storage. They leave once newer records are on the disk: else a
    /// crash of this host could leave older ones of the same bytes, which would be sent again.
    pub(crate) fn settle_later(&self, sequences: Vec<Sequence>) {
        if !sequences.is_empty() {
            self.leaving.lock().extend(sequences);
        }
    }

    fn settle_now(&self) {
        // Those that leave during a replay leave after it.
        let Some(_replaying) = self.is_replaying.try_lock() else { return };
        let leaving = std::mem::take(&mut *self.leaving.lock());
        if leaving.is_empty() {
            return;
        }
        // If the disk has failed, nothing of it is sent again but after a look at the server.
        self.make_stable(self.journal.status().last);
        self.settle(leaving, Settled::Stable);
    }

    /// Notes what the server has said of a file with a record, so that a replay knows a change of
    /// somebody else's.
    pub(crate) fn note_attributes(&self, record: Sequence, wcc: &Wcc, verifier: Option<[u8; 8]>) {
        if wcc.after.is_some() {
            self.note_answer(record, Outcome { verifier, ..outcome_of(wcc) });
        }
    }

    /// A change of an object is about to be sent around the journal.
    pub(crate) fn note_bypass(&self, object: &[u8]) {
        if let Err(failed) = self.journal.bypass(object) {
            tracing::error!(
                "{failed}; if this host crashes now, a replay of the journal may undo what is written"
            );
        }
    }

    /// Whether everything should be committed, as there is little room, or nothing but the server keeps it.
    pub(crate) fn is_pressed(&self) -> bool {
        let status = self.journal.status();
        !self.is_kept() || status.used_bytes > pressed_from(status.ring_bytes)
    }

    /// Looks after the journal until its mount ends.
    pub(crate) fn start_care(self: &Arc<Self>) -> io::Result<()> {
        let weak = Arc::downgrade(self);
        let mut synced = Instant::now();
        let care = move || {
            while let Some(this) = weak.upgrade() {
                this.settle_now();
                if let Err(failed) = this.journal.maintain() {
                    this.fail(&failed);
                    return;
                }
                if let JournalSync::Every(time) = this.sync
                    && synced.elapsed() >= time
                {
                    synced = Instant::now();
                    this.make_stable(this.journal.status().last);
                }
                drop(this);
                thread::sleep(TICK);
            }
        };
        thread::Builder::new().name("journal".to_owned()).spawn(care)?;
        let weak = Arc::downgrade(self);
        let write = move || {
            while let Some(this) = weak.upgrade() {
                if this.has_ended.load(Ordering::Relaxed) {
                    return;
                }
                if let Err(failed) = this.journal.write_ahead(AHEAD_TICK) {
                    this.fail(&failed);
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("journal-write".to_owned()).spawn(write)?;
        *self.writer.lock() = Some(thread);
        Ok(())
    }

    /// The mount ends, and nothing is written any more. What is left stays in the ring.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            // It would keep the journal from being closed.
            let _ = writer.join();
        }
        self.settle_now();
        let status = self.journal.status();
        if status.pending_records > 0 {
            let (records, files) = (status.pending_records, status.pending_objects);
            tracing::error!(
                records,
                files,
                "changes that the server does not have stay in the journal: the next mount with it \
                 sends them"
            );
        }
        if let Err(failed) = self.journal.sync(status.last).and_then(|()| self.journal.maintain()) {
            tracing::error!("the journal could not be closed: {failed}");
        }
    }
}

/// When so much of a ring is used, everything is committed, in bytes.
fn pressed_from(ring_bytes: u64) -> u64 {
    ring_bytes / 100 * PRESSED_FROM
}

/// What tells whether somebody has changed an object.
pub(crate) fn stamp_of(attributes: &Attributes) -> Stamp {
    stamp(attributes.size, attributes.mtime, attributes.ctime)
}

/// The stamps of an answer.
pub(crate) fn outcome_of(wcc: &Wcc) -> Outcome {
    Outcome {
        before: wcc.before.as_ref().map(|it| stamp(it.size, it.mtime, it.ctime)),
        after: wcc.after.as_ref().map(stamp_of),
        ..Outcome::default()
    }
}

fn record<'a>(path: &'a [u8], identity: &'a Identity, change: Change<'a>) -> Record<'a> {
    let (uid, gid, groups) = match identity {
        Identity::Sys { uid, gid, gids } => (*uid, *gid, gids.as_slice()),
        _ => (u32::MAX, u32::MAX, [].as_slice()),
    };
    Record { time_ns: now_ns(), uid, gid, groups, order: None, path, change }
}

/// Tells what became of a replay.
fn report(report: &Report) {
    for line in report.to_string().lines() {
        if report.is_complete() {
            tracing::info!("replay of the journal: {line}");
        } else {
            tracing::error!("replay of the journal: {line}");
        }
    }
}

fn stamp(size: u64, modified: steadfast_client::Time, changed: steadfast_client::Time) -> Stamp {
    let time = |it: steadfast_client::Time| Time {
        seconds: i64::from(it.seconds),
        nanoseconds: it.nanoseconds,
    };
    Stamp { size, modified: time(modified), changed: time(changed) }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
