//! The shares of a running server, kept ([`steadfast_control::store`]), served
//! ([`Exports`](crate::exports::Exports)) and told to whoever wants to know: tools, other programs
//! ([`steadfast_control::sharetab`]), plug-ins.
//!
//! One change at a time: a batch is checked and written into the history, and only then served and
//! answered. What changes together is [`state`]. What takes longer, and of what nothing depends, is
//! done after that by other threads: the files of groups are written ([`writing`]), plug-ins called.

mod comes_to;
mod held;
mod idle;
mod kept;
mod returning;
mod service;
mod settling;
mod state;
mod stopping;
mod told;
mod watching;
mod writing;

pub use comes_to::planned_alone;
pub(crate) use kept::{KeptShares, ReadyShares};

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use steadfast_access::Access;
use steadfast_catalog::ShareChange;
use steadfast_catalog::manage::Mistake;
use steadfast_control::api::{Event, ShareState};
use steadfast_control::metrics::ShareCounts;
use steadfast_control::plugins::Plugins;
use steadfast_control::service::EVENTS_BEHIND_MAX;
use steadfast_control::store::Done;
use steadfast_durability::IntentLogKeeper;
use steadfast_engine::{Engine, ExportTable};
use steadfast_posixfs::LookedAt;
use steadfast_sys::process;
use tokio::sync::broadcast;

use crate::configuration::{ReadBase, WantedShare};
use crate::error::{StartError, Tried};
use crate::exports::{Built, Fault};
use crate::mount_lines::MountBy;
use held::{Held, HeldSince};
use idle::IdleShares;
use returning::Returning;
pub(crate) use service::ManagedShares;
use settling::Settler;
use state::{State, joined, look_at_patterns, tell_of_async, tell_of_single_users};
use told::{StatesBefore, each_once, state_served};
use watching::DirectoryWatch;
use writing::Writer;

/// What came of reading everything again.
pub(crate) struct ReadAgain {
    pub(crate) done: Done,
    /// What has mistakes and stays as it is.
    pub(crate) mistakes: Vec<Mistake>,
    /// What is not taken though nothing is wrong with it.
    pub(crate) warnings: Vec<Mistake>,
    /// What the disk says against it.
    pub(crate) faults: Vec<Fault>,
    /// The paths of shares that were faulty, and are served now.
    pub(crate) served_again: Vec<String>,
}

/// Shares that are served, and at whose directories nobody has looked.
pub(crate) struct NotLookedAt(Vec<WantedShare>);

/// Shares that are looked at together when the server starts.
const LOOKED_AT_ONCE: usize = 2048;
/// How long what is to be kept waits, when the server stops, for somebody whom a disk holds up.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Reads again what is no share, and says what is wrong with it.
pub(crate) type ReadBeside = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// The shares of a running server.
pub(crate) struct ShareManager {
    state: Mutex<State>,
    held_since: HeldSince,
    engine: Arc<Engine>,
    access: Arc<Access>,
    /// Without it the shares of the configuration stay.
    read_base: Option<ReadBase>,
    /// Beside the shares: what the server's other parts read again with them.
    read_beside: OnceLock<ReadBeside>,
    news: broadcast::Sender<Arc<[Event]>>,
    plugins: Plugins,
    writer: Writer,
    settler: Settler,
    returning: Returning,
    idle: IdleShares,
    /// Unless the kernel has none.
    watch: Mutex<Option<DirectoryWatch>>,
    is_start_ended: AtomicBool,
    /// What clients mount by, once the server listens.
    mount_by: OnceLock<MountBy>,
}

impl ShareManager {
    /// Notes what else is read when the configuration is read again.
    pub(crate) fn set_read_beside(&self, read: ReadBeside) {
        let _ = self.read_beside.set(read);
    }

    /// Notes what clients mount by.
    pub(crate) fn set_mount_by(&self, mount_by: MountBy) {
        let _ = self.mount_by.set(mount_by);
    }

    /// Manages what the engine serves, its table being that of `ready`. Then the server may serve,
    /// and after that [`ShareManager::finish_start`] is due, with what is left to do.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(crate) fn start(
        ready: ReadyShares,
        engine: Arc<Engine>,
        access: Arc<Access>,
        plugins: Plugins,
        read_base: Option<ReadBase>,
        intent_log: Option<&Arc<IntentLogKeeper>>,
        share_idle: Option<Duration>,
    ) -> Result<(Arc<Self>, NotLookedAt), StartError> {
        let manager = Arc::new(Self {
            state: Mutex::new(ready.state),
            held_since: HeldSince::default(),
            engine,
            access,
            read_base,
            read_beside: OnceLock::new(),
            news: broadcast::Sender::new(EVENTS_BEHIND_MAX),
            plugins,
            writer: Writer::default(),
            settler: Settler::default(),
            returning: Returning::default(),
            idle: IdleShares::default(),
            watch: Mutex::new(None),
            is_start_ended: AtomicBool::new(false),
            mount_by: OnceLock::new(),
        });
        manager.writer.start(&manager).tried("cannot start a thread")?;
        manager.settler.start(&manager).tried("cannot start a thread")?;
        if let Some(intent_log) = intent_log {
            manager.returning.start(&manager, intent_log).tried("cannot start a thread")?;
        }
        if let Some(after) = share_idle {
            manager.idle.start(&manager, after).tried("cannot start a thread")?;
        }
        Ok((manager, NotLookedAt(ready.not_looked_at)))
    }

    /// Looks at the directories of shares that are served already, and begins to tell others of
    /// what is shared. A share that cannot be served is found out now: whoever wanted to use it
    /// before was told to come again. May take as long as a disk hangs. `false` if it was ended
    /// before it was done.
    pub(crate) fn finish_start(self: &Arc<Self>, not_looked_at: NotLookedAt) -> bool {
        let NotLookedAt(mut left) = not_looked_at;
        let looker = self.lock().exports.looker();
        while !left.is_empty() && !self.is_start_ended.load(Ordering::Relaxed) {
            let wanted: Vec<_> = left.drain(..left.len().min(LOOKED_AT_ONCE)).collect();
            let seen = looker.look_at_all(&wanted);
            self.change_to_seen(wanted, seen);
        }
        if self.is_start_ended.load(Ordering::Relaxed) {
            return false;
        }
        drop(left);
        self.watch_directories();
        let mut state = self.lock();
        self.engine.set_exports(self.engine.exports().seen());
        let wanted = state.all_wanted();
        state.exports.sizes.lift_unwanted(&wanted);
        self.settle_sizes(&state);
        let all = state.told_paths();
        state.has_told_all = true;
        self.tell_others(&mut state, &all);
        drop(state);
        // What was needed to read everything.
        drop(all);
        process::release_free_memory();
        true
    }

    /// Takes what was seen of shares that are served already.
    fn change_to_seen(&self, wanted: Vec<WantedShare>, seen: Vec<Result<LookedAt, String>>) {
        let mut state = self.lock();
        // Somebody may have changed a share meanwhile, and looked at it.
        let still = wanted
            .into_iter()
            .zip(seen)
            .filter(|(wanted, _)| state.exports.is_to_be_looked_at(&wanted.share));
        let (wanted, seen): (Vec<_>, Vec<_>) = still.unzip();
        let (table, built) =
            state.exports.change_to_seen(&self.engine.exports(), &[], &wanted, seen);
        let faults = self.serve_built(&mut state, &wanted, table, built);
        let before = faults.iter().filter_map(|fault| {
            let wanted = wanted.iter().find(|wanted| wanted.share.id == fault.id)?;
            Some((Arc::clone(&fault.path), Some(state_served(wanted.share.is_draining))))
        });
        let before: StatesBefore = before.collect();
        let done = Done { sequence: state.store.sequence(), ..Done::default() };
        self.tell_watchers(&state, &done, &before);
    }

    /// The server stops before it has finished its start.
    pub(crate) fn end_start(&self) {
        self.is_start_ended.store(true, Ordering::Relaxed);
    }

    /// How many shares cannot be served.
    pub(crate) fn faults(&self) -> usize {
        self.lock().faults.len()
    }

    /// How many shares are in which state.
    ///
    /// # Errors
    /// For how long they have been changed by somebody, if that goes on for `patience`, as is the case while a disk
    /// hangs that has to be looked at.
    pub(crate) fn counts(&self, patience: Duration) -> Result<ShareCounts, Duration> {
        let held = self.try_lock(patience).map(|state| {
            let sizes = state.exports.sizes.expected(state.exports.all_served());
            (state.counts(), sizes)
        });
        let (mut counts, sizes) = held.ok_or_else(|| self.held_since.age())?;
        counts.size_faults = sizes.faults();
        Ok(counts)
    }

    fn lock(&self) -> Held<'_> {
        self.hold(self.state.lock())
    }

    /// `None` if somebody has them for longer than `patience`.
    fn try_lock(&self, patience: Duration) -> Option<Held<'_>> {
        self.state.try_lock_for(patience).map(|state| self.hold(state))
    }

    fn hold<'m>(&'m self, state: MutexGuard<'m, State>) -> Held<'m> {
        self.held_since.begin();
        Held { state, since: &self.held_since }
    }

    /// Serves what was done, and tells of it. Returns what the disk says against it.
    fn publish(&self, state: &mut State, done: &Done) -> Vec<Fault> {
        // Who begins to watch meanwhile sees what has become of it.
        let before = self.is_watched().then(|| state.states_before(&done.changes));
        let faults = self.serve(state, &done.changes);
        if let Some(before) = before {
            self.tell_watchers(state, done, &before);
        }
        let paths = state.paths_of(done);
        self.tell_others(state, &paths);
        faults
    }

    fn is_watched(&self) -> bool {
        self.news.receiver_count() > 0
    }

    /// Tells those who watch of what is served now; `before` are the states of what is told to
    /// have changed.
    fn tell_watchers(&self, state: &State, done: &Done, before: &StatesBefore) {
        let events = state.events(done, before);
        if !events.is_empty() {
            // Nobody may be watching.
            let _ = self.news.send(events.into());
        }
    }

    /// Tells other programs and plug-ins how the shares of these paths are now. What is as they
    /// know it is no news to them.
    fn tell_others(&self, state: &mut State, paths: &[Arc<str>]) {
        if state.has_told_all {
            state.tell_sharetab(paths);
            let shares = state.shares_for_plugins(&self.plugins, paths);
            self.plugins.publish(shares);
        }
        // Also what was left over from before a crash.
        if state.store.has_writes() {
            self.writer.ring();
        }
    }

    /// Has the engine serve what changed.
    fn serve(&self, state: &mut State, changes: &[ShareChange]) -> Vec<Fault> {
        if changes.is_empty() {
            return Vec::new();
        }
        let gone = |change: &ShareChange| {
            let old = change.old.as_ref()?;
            (change.new.as_ref().map(|new| new.id) != Some(old.id)).then_some(old.id)
        };
        let removed: Vec<_> = changes.iter().filter_map(gone).collect();
        for id in &removed {
            state.faults.remove(id);
        }
        let wanted: Vec<_> = changes
            .iter()
            .filter_map(|change| change.new.clone())
            .map(|share| WantedShare { share, place: None })
            .collect();
        let (table, built) = state.exports.change(&self.engine.exports(), &removed, &wanted);
        self.serve_built(state, &wanted, table, built)
    }

    /// Has the engine serve what was built of shares that are wanted. Returns what the disk says
    /// against them.
    fn serve_built(
        &self,
        state: &mut State,
        wanted: &[WantedShare],
        table: ExportTable,
        built: Built,
    ) -> Vec<Fault> {
        tell_of_single_users(&built.changed);
        tell_of_async(&built.changed);
        // Before clients are asked about: their look-ups may begin.
        self.access.change_rules(built.added_rules(), built.removed_rules.iter().cloned());
        if built.is_change() {
            self.engine.set_exports(table);
        }
        state.note_faults(wanted, built.faults.clone());
        self.settle_sizes(state);
        built.faults
    }

    /// Has done what is left to be done about sizes.
    fn settle_sizes(&self, state: &State) {
        if state.exports.sizes.has_work() {
            self.settler.ring();
        }
    }

    /// Looks again at directories of which shares are made.
    fn look_at(&self, parents: &BTreeSet<PathBuf>) {
        let mut state = self.lock();
        let State { store, left_out, .. } = &mut *state;
        let changes = look_at_patterns(store, left_out, Some(parents));
        let sequence = state.store.sequence();
        let done = Done { sequence, changes, ..Done::default() };
        if !done.changes.is_empty() {
            self.publish(&mut state, &done);
            tracing::info!("{} shares came or went with their directories", done.changes.len());
        }
    }

    /// Watches what patterns make shares of, if there are any.
    fn watch_directories(self: &Arc<Self>) {
        // Of two that do this at once, the later one has to have the later directories.
        let mut watch = self.watch.lock();
        let parents = self.lock().parents();
        if watch.is_none() && !parents.is_empty() {
            let manager: Weak<Self> = Arc::downgrade(self);
            let started = DirectoryWatch::start(Box::new(move |parents| {
                if let Some(manager) = manager.upgrade() {
                    manager.look_at(parents);
                }
            }));
            match started {
                Ok(started) => *watch = Some(started),
                Err(error) => tracing::error!(
                    "directories cannot be watched: {error}; those that appear below a pattern are \
                     served after `steadfast reload`"
                ),
            }
        }
        if let Some(watch) = &*watch {
            watch.set(parents.clone());
        }
        drop(watch);
        // What came before it was watched.
        if !parents.is_empty() {
            self.look_at(&parents);
        }
    }

    /// Reads everything again. What has mistakes stays as it is; they are returned.
    pub(crate) fn read_again(self: &Arc<Self>, who: &str) -> ReadAgain {
        let told_as = |what| Mistake { what, ..Mistake::default() };
        let beside = self.read_beside.get().and_then(|read| read());
        let mut mistakes: Vec<Mistake> = beside.into_iter().map(told_as).collect();
        let mut state = self.lock();
        // Not before: of two who read it the later has to have the later one.
        let base = self.read_base.as_ref().map(|read| read());
        let mut told = state.told_paths();
        let served_before = state.served_states();
        let mut warnings = Vec::new();
        let mut done = Done { sequence: state.store.sequence(), ..Done::default() };
        match base {
            Some(Ok(base)) => {
                done.changes = state.store.set_base(base.defaults, base.shares);
                warnings.extend(base.warnings.into_iter().map(told_as));
            }
            Some(Err(lines)) => mistakes.extend(lines.into_iter().map(told_as)),
            None => {}
        }
        match state.store.reload(who) {
            Ok((read, more)) => {
                done.sequence = read.sequence;
                done.edits = read.edits;
                done.left_out = read.left_out;
                done.changes = joined(std::mem::take(&mut done.changes), read.changes);
                mistakes.extend(more);
            }
            Err(error) => {
                mistakes.push(Mistake { what: error.to_string(), ..Mistake::default() });
            }
        }
        let mut before = state.states_before(&done.changes);
        // All: those that could not be served before may be now, and the other way round.
        let all = state.all_wanted();
        state.faults.clear();
        let (table, built) = state.exports.build(&self.engine.exports(), &all);
        let faults = self.serve_built(&mut state, &all, table, built);
        drop(all);
        // Also what no text has changed: a directory came or went, or was changed by what was read
        // before an error.
        for (path, old) in state.differences(served_before) {
            before.entry(path).or_insert(old);
        }
        self.tell_watchers(&state, &done, &before);
        let was_faulty = before.iter().filter(|(_, old)| **old == Some(ShareState::Faulty));
        let served_again = was_faulty
            .filter(|(path, _)| state.state_of(path).is_some_and(ShareState::is_served))
            .map(|(path, _)| path.to_string())
            .collect();
        told.append(&mut state.told_paths());
        told = each_once(told);
        self.tell_others(&mut state, &told);
        drop(state);
        self.watch_directories();
        drop((told, before));
        process::release_free_memory();
        ReadAgain { done, mistakes, warnings, faults, served_again }
    }

    /// Writes what is not in the groups' files yet, and stops telling anybody.
    pub(crate) fn stop(&self) {
        drop(self.watch.lock().take());
        self.idle.stop();
        self.returning.stop(STOP_PATIENCE);
        self.writer.stop();
        self.settler.stop(STOP_PATIENCE);
        let Some(mut state) = self.try_lock(STOP_PATIENCE) else {
            tracing::warn!(
                "a disk holds up who changes shares: what is not in the groups' files yet is \
                 written there after the next start"
            );
            return;
        };
        for mistake in state.store.write_files() {
            tracing::warn!("{mistake}");
        }
        if let Some(sharetab) = &mut state.sharetab {
            sharetab.clear();
            if let Err(error) = sharetab.publish() {
                tracing::warn!("{}: {error}", sharetab.path().display());
            }
        }
    }
}
