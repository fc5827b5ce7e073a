//! The shares of a running server, kept ([`steadfast_control::store`]), served ([`Exports`]) and
//! told to whoever wants to know: tools, other programs ([`Sharetab`]), plug-ins.
//!
//! One change at a time: a batch is checked and written into the history, and only then served and
//! answered. What takes longer, and of what nothing depends, is done after that by other threads:
//! the files of groups are written ([`writing`]), plug-ins called.

mod comes_to;
mod idle;
mod returning;
mod service;
mod stopping;
mod told;
mod watching;
mod writing;

pub(crate) use comes_to::planned_alone;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::{Mutex, MutexGuard};
use steadfast_access::Access;
use steadfast_catalog::manage::{DefaultsSpec, Mistake};
use steadfast_catalog::{FixedShare, Item, ShareChange, ShareView};
use steadfast_control::api::{Event, Subject};
use steadfast_control::plugins::Plugins;
use steadfast_control::service::EVENTS_BEHIND_MAX;
use steadfast_control::sharetab::Sharetab;
use steadfast_control::store::{ApplyError, Done, Store, StoreOptions};
use steadfast_durability::IntentLogKeeper;
use steadfast_engine::{Engine, ExportTable};
use steadfast_posixfs::LookedAt;
use steadfast_shares::{RuleSet, Share, ShareId};
use steadfast_sys::process;
use tokio::sync::broadcast;

use crate::configuration::{COMMAND_LINE, WantedShare};
use crate::exports::{Built, Exports, Fault, is_single_user};
use crate::mount_lines::MountBy;
use idle::IdleShares;
use returning::Returning;
pub(crate) use service::ManagedShares;
use told::{StatesBefore, each_once, state_served};
use watching::{DirectoryWatch, Subdirectories, subdirectories};
use writing::Writer;

/// What is of `steadfast.toml` and of the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Base {
    pub(crate) defaults: DefaultsSpec,
    pub(crate) shares: Vec<FixedShare>,
    /// What else has changed there, and is not taken.
    pub(crate) warnings: Vec<String>,
}

/// What came of reading everything again.
pub(crate) struct ReadAgain {
    pub(crate) done: Done,
    /// What has mistakes and stays as it is.
    pub(crate) mistakes: Vec<Mistake>,
    /// What is not taken though nothing is wrong with it.
    pub(crate) warnings: Vec<Mistake>,
    /// What the disk says against it.
    pub(crate) faults: Vec<Fault>,
}

/// Reads what is of `steadfast.toml` again; one line a mistake.
pub(crate) type ReadBase = Box<dyn Fn() -> Result<Base, Vec<String>> + Send + Sync>;

/// Where shares are kept and told.
pub(crate) struct Places {
    pub(crate) shares_directory: PathBuf,
    pub(crate) state_directory: PathBuf,
    /// `None`: other programs are told nothing.
    pub(crate) sharetab: Option<PathBuf>,
}

/// Shares that are kept; nobody has looked at their directories yet.
pub(crate) struct KeptShares {
    store: Store,
    left_out: LeftOut,
    sharetab: Option<PathBuf>,
}

/// Shares that can be served. Those of groups' files are looked at when the server serves.
pub(crate) struct ReadyShares {
    state: State,
    /// What is to be served.
    pub(crate) table: ExportTable,
    not_looked_at: Vec<WantedShare>,
}

/// Shares that are served, and at whose directories nobody has looked.
pub(crate) struct NotLookedAt(Vec<WantedShare>);

/// Shares that are looked at together when the server starts.
const LOOKED_AT_ONCE: usize = 2048;
/// How long what is to be kept waits, when the server stops, for somebody whom a disk holds up.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Directories below patterns that no share can be made of, by group and pattern.
type LeftOut = BTreeMap<(String, String), Vec<OsString>>;
/// So many of them are told by name.
const LEFT_OUT_TOLD: usize = 10;

/// What changes together.
struct State {
    store: Store,
    left_out: LeftOut,
    exports: Exports,
    /// What the disk says about shares that are to be served, by their ids.
    faults: HashMap<ShareId, Box<str>>,
    sharetab: Option<Sharetab>,
    /// Whether others have been told of all shares. Before that they are not told of some: they
    /// would take these for all.
    has_told_all: bool,
}

impl KeptShares {
    /// Reads what is kept.
    ///
    /// # Errors
    /// When another server keeps shares there, or nothing can be read.
    pub(crate) fn open(places: &Places, base: Base) -> Result<Self> {
        let options = StoreOptions {
            shares_directory: places.shares_directory.clone(),
            state_directory: places.state_directory.clone(),
            defaults: base.defaults,
            fixed: base.shares,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        };
        let (mut store, mistakes) = Store::open(options)?;
        let mut left_out = LeftOut::default();
        look_at_patterns(&mut store, &mut left_out, None);
        for mistake in mistakes.into_iter().chain(store.catalog().mistakes()) {
            tracing::error!("{mistake}");
        }
        Ok(Self { store, left_out, sharetab: places.sharetab.clone() })
    }

    /// Whether tools keep some.
    pub(crate) fn has_groups(&self) -> bool {
        self.store.catalog().group_names().next().is_some()
    }

    /// All shares that are to be served.
    pub(crate) fn shares(&self) -> impl Iterator<Item = &Share> {
        self.store.catalog().all_served().map(|share| &**share)
    }

    /// Makes ready to serve: looks at the directories of the command line and the configuration
    /// file, but not yet at those that groups' files name, of which there may be a hundred
    /// thousand. What patterns made is looked at: users who may rename their directories must not
    /// have links to others served instead.
    pub(crate) fn make_ready(self, exports: Exports) -> ReadyShares {
        let sharetab = self.sharetab.as_deref().and_then(open_sharetab);
        let mut state = State {
            store: self.store,
            left_out: self.left_out,
            exports,
            faults: HashMap::new(),
            sharetab,
            has_told_all: false,
        };
        let catalog = state.store.catalog();
        let is_for_now = |wanted: &WantedShare| {
            let path = &wanted.share.path;
            catalog.fixed_source(path).is_some() || catalog.is_made(path)
        };
        let (mut now, later): (Vec<_>, Vec<_>) =
            state.all_wanted().into_iter().partition(is_for_now);
        let count = now.len() + later.len();
        state.exports.backings.forget_gone(
            || {
                let id = |view: ShareView| match (view.share, view.spec.id) {
                    (Some(share), _) => share.id,
                    (None, Some(id)) => ShareId(id),
                    (None, None) => ShareId::of_path(&view.spec.path),
                };
                catalog.shares().map(id).collect()
            },
            count,
        );
        let not_looked_at = later.clone();
        let (table, not_begun) = state.exports.begin(later);
        now.extend(not_begun);
        let (table, built) = state.exports.change(&Arc::new(table), &[], &now);
        state.note_faults(&now, built.faults);
        tell_of_single_users(&built.changed);
        ReadyShares { state, table, not_looked_at }
    }
}

impl ReadyShares {
    /// The rules of each share that is served.
    pub(crate) fn rules(&self) -> impl Iterator<Item = Arc<RuleSet>> {
        self.state.exports.all_rules()
    }

    /// Whether a share is on something else than before, which an administrator may accept.
    pub(crate) fn has_elsewhere(&self) -> bool {
        self.state.exports.has_elsewhere()
    }

    /// Why shares are not served.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.state.faults.values().map(ToString::to_string).collect()
    }
}

fn open_sharetab(path: &Path) -> Option<Sharetab> {
    Sharetab::open(path)
        .inspect_err(|error| {
            tracing::warn!(
                "{}: cannot be written ({error}): other programs are not told what is shared; name \
                 another place with sharetab in [server]",
                path.display()
            );
        })
        .ok()
}

/// The shares of a running server.
pub(crate) struct ShareManager {
    state: Mutex<State>,
    engine: Arc<Engine>,
    access: Arc<Access>,
    read_base: ReadBase,
    news: broadcast::Sender<Arc<[Event]>>,
    plugins: Plugins,
    writer: Writer,
    returning: Returning,
    idle: IdleShares,
    /// Unless the kernel has none.
    watch: Mutex<Option<DirectoryWatch>>,
    is_start_ended: AtomicBool,
    /// What clients mount by, once the server listens.
    mount_by: OnceLock<MountBy>,
}

impl ShareManager {
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
        read_base: ReadBase,
        intent_log: Option<&Arc<IntentLogKeeper>>,
        share_idle: Option<Duration>,
    ) -> Result<(Arc<Self>, NotLookedAt)> {
        let manager = Arc::new(Self {
            state: Mutex::new(ready.state),
            engine,
            access,
            read_base,
            news: broadcast::Sender::new(EVENTS_BEHIND_MAX),
            plugins,
            writer: Writer::default(),
            returning: Returning::default(),
            idle: IdleShares::default(),
            watch: Mutex::new(None),
            is_start_ended: AtomicBool::new(false),
            mount_by: OnceLock::new(),
        });
        manager.writer.start(&manager).context("cannot start a thread")?;
        if let Some(intent_log) = intent_log {
            manager.returning.start(&manager, intent_log).context("cannot start a thread")?;
        }
        if let Some(after) = share_idle {
            manager.idle.start(&manager, after).context("cannot start a thread")?;
        }
        Ok((manager, NotLookedAt(ready.not_looked_at)))
    }

    /// Looks at the directories of shares that are served already, and begins to tell others of
    /// what is shared. A share that cannot be served is found out now: whoever wanted to use it
    /// before was told to come again. May take as long as a disk hangs.
    pub(crate) fn finish_start(self: &Arc<Self>, not_looked_at: NotLookedAt) {
        let NotLookedAt(mut left) = not_looked_at;
        let looker = self.lock().exports.looker();
        while !left.is_empty() && !self.is_start_ended.load(Ordering::Relaxed) {
            let wanted: Vec<_> = left.drain(..left.len().min(LOOKED_AT_ONCE)).collect();
            let seen = looker.look_at_all(&wanted);
            self.change_to_seen(wanted, seen);
        }
        if self.is_start_ended.load(Ordering::Relaxed) {
            return;
        }
        drop(left);
        self.watch_directories();
        let mut state = self.lock();
        self.engine.set_exports(self.engine.exports().seen());
        let all = state.told_paths();
        state.has_told_all = true;
        self.tell_others(&mut state, &all);
        drop(state);
        // What was needed to read everything.
        drop(all);
        process::release_free_memory();
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
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
        // Before clients are asked about: their look-ups may begin.
        self.access.change_rules(built.added_rules(), built.removed_rules.iter().cloned());
        if built.is_change() {
            self.engine.set_exports(table);
        }
        state.note_faults(wanted, built.faults.clone());
        built.faults
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
        let mut state = self.lock();
        // Not before: of two who read it the later has to have the later one.
        let base = (self.read_base)();
        let mut told = state.told_paths();
        let served_before = state.served_states();
        let told_as = |what| Mistake { what, ..Mistake::default() };
        let mut mistakes = Vec::new();
        let mut warnings = Vec::new();
        let mut done = Done { sequence: state.store.sequence(), ..Done::default() };
        match base {
            Ok(base) => {
                done.changes = state.store.set_base(base.defaults, base.shares);
                warnings.extend(base.warnings.into_iter().map(told_as));
            }
            Err(lines) => mistakes.extend(lines.into_iter().map(told_as)),
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
        told.append(&mut state.told_paths());
        told = each_once(told);
        self.tell_others(&mut state, &told);
        drop(state);
        self.watch_directories();
        drop((told, before));
        process::release_free_memory();
        ReadAgain { done, mistakes, warnings, faults }
    }

    /// Writes what is not in the groups' files yet, and stops telling anybody.
    pub(crate) fn stop(&self) {
        drop(self.watch.lock().take());
        self.idle.stop();
        self.returning.stop(STOP_PATIENCE);
        self.writer.stop();
        let Some(mut state) = self.state.try_lock_for(STOP_PATIENCE) else {
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

/// The changes of two steps as those of one.
fn joined(first: Vec<ShareChange>, second: Vec<ShareChange>) -> Vec<ShareChange> {
    let mut by_path: HashMap<Arc<str>, ShareChange> =
        first.into_iter().map(|change| (change.path.clone(), change)).collect();
    for change in second {
        match by_path.get_mut(&change.path) {
            Some(known) => known.new = change.new,
            None => drop(by_path.insert(change.path.clone(), change)),
        }
    }
    let mut all: Vec<_> = by_path.into_values().filter(|change| change.old != change.new).collect();
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

impl State {
    /// All shares that are to be served, with their places where those are at hand.
    fn all_wanted(&self) -> Vec<WantedShare> {
        let catalog = self.store.catalog();
        let all = catalog.all_served().map(|share| {
            let source = catalog.fixed_source(&share.path).filter(|source| *source != COMMAND_LINE);
            WantedShare { share: Arc::clone(share), place: source.map(str::to_owned) }
        });
        all.collect()
    }

    fn note_faults(&mut self, wanted: &[WantedShare], faults: Vec<Fault>) {
        for wanted in wanted {
            self.faults.remove(&wanted.share.id);
        }
        for Fault { id, path, what } in faults {
            if what.contains(&format!("{path:?}")) {
                tracing::error!("{what}");
            } else {
                tracing::error!("share {path:?} is not served: {what}");
            }
            self.faults.insert(id, what.into());
        }
    }

    /// Directories of which patterns make shares.
    fn parents(&self) -> BTreeSet<PathBuf> {
        let patterns = self.store.catalog().patterns();
        patterns
            .filter_map(|(_, pattern)| Some(Path::new(&pattern.directories).parent()?.to_owned()))
            .collect()
    }
}

/// Tells the store which directories there are below patterns: all, or those with these parents.
/// One that cannot be read now has what it had.
fn look_at_patterns(
    store: &mut Store,
    left_out: &mut LeftOut,
    parents: Option<&BTreeSet<PathBuf>>,
) -> Vec<ShareChange> {
    let patterns = store.catalog().patterns().map(|(group, pattern)| {
        (group.to_owned(), pattern.directories.clone(), pattern.mounted == Some(true))
    });
    let patterns: Vec<(String, String, bool)> = patterns.collect();
    left_out.retain(|(group, directories), _| {
        patterns.iter().any(|pattern| pattern.0 == *group && pattern.1 == *directories)
    });
    let mut changes = Vec::new();
    for (group, directories, is_mounted) in patterns {
        let Some(parent) = Path::new(&directories).parent() else { continue };
        if parents.is_some_and(|parents| !parents.contains(parent)) {
            continue;
        }
        match subdirectories(parent, is_mounted) {
            Ok(Subdirectories { names, left_out: mut bad }) => {
                let names = names.iter().map(String::as_str);
                changes = joined(changes, store.set_directories(&group, &directories, names));
                bad.sort();
                let place = (group, directories);
                if left_out.get(&place).map_or(&[][..], Vec::as_slice) == bad {
                    continue;
                }
                if let Some(told) = not_shared(&bad) {
                    tracing::warn!("group {:?}, pattern {:?}: {told}", place.0, place.1);
                }
                left_out.insert(place, bad);
            }
            Err(error) => tracing::error!(
                "group {group:?}, pattern {directories:?}: {} cannot be read: {error}",
                parent.display()
            ),
        }
    }
    changes
}

/// That directories below a pattern are not shared, and which; `None` without any.
fn not_shared(left_out: &[OsString]) -> Option<String> {
    if left_out.is_empty() {
        return None;
    }
    let told: Vec<_> =
        left_out.iter().take(LEFT_OUT_TOLD).map(|name| format!("{name:?}")).collect();
    let more = left_out.len().saturating_sub(LEFT_OUT_TOLD);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!(
        "not shared, since their names are not UTF-8: {}{more}; rename them",
        told.join(", ")
    ))
}

fn tell_of_single_users(served: &[Arc<Share>]) {
    let (uid, gid) = process::effective_ids();
    for share in served.iter().filter(|share| uid != 0 && is_single_user(share)) {
        tracing::warn!(
            "{:?}: every user of every client acts as user {uid}, group {gid}, since this server \
             does not run as root",
            share.path
        );
    }
}

/// What an event is about.
fn subject_of(item: &Item) -> Subject {
    match item {
        Item::Share(_) => Subject::Share,
        Item::File | Item::Group | Item::Pattern(_) => Subject::Group,
    }
}

/// What a refused batch is told with.
fn refused(error: ApplyError) -> steadfast_control::Refusal {
    use steadfast_control::{Refusal, RefusalKind};
    match error {
        ApplyError::Mistakes(mistakes) => Refusal::mistaken(mistakes),
        ApplyError::NoState { .. } => Refusal::new(RefusalKind::NotFound, error.to_string()),
        ApplyError::ReadOnly(_) => Refusal::new(RefusalKind::Conflict, error.to_string()),
        ApplyError::History(_) => Refusal::new(RefusalKind::Failed, error.to_string()),
    }
}
