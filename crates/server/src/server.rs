//! A server, and what surrounds it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use steadfast_access::Access;
use steadfast_catalog::configuration::{Delegations, LocalGuard, NamesSettings, ServerSettings};
use steadfast_control::{Control, Health};
use steadfast_engine::{Engine, EngineConfig, ExportTable, JournalingClient, OptionalVersions};
use steadfast_posixfs::{ProcessPowers, Storage, StorageOptions};
use steadfast_runtime::{self as runtime, ServerOptions};

use crate::client_records;
use crate::client_state::ClientState;
use crate::configuration::{Base, Configuration, Settings, StartOptions};
use crate::control::{self, AskedAbout};
use crate::descriptors;
use crate::error::{StartError, Tried};
use crate::exports::Exports;
use crate::idmapping;
use crate::intent_log::{self, OpenedLog};
use crate::journaling_clients::{JournalingClients, Recorded};
use crate::listening::Addresses;
use crate::local_locks;
use crate::memory;
use crate::mount_lines::MountBy;
use crate::names::{self, Names};
use crate::nsm::Nsm;
use crate::outbound::Sender;
use crate::own_files::OwnFiles;
use crate::places::Places;
use crate::plugins;
use crate::registration::{self, Endpoint, RPCBIND_PORT};
use crate::shares::{KeptShares, NotLookedAt, ReadyShares, ShareManager};
use crate::starting::Starting;
use crate::state_directory::StateDirectory;

/// Calls that compress what they read, for each CPU: as many as a mount or two have under way when they read ahead. None
/// of them has a CPU for itself.
const COMPRESSIONS_PER_CPU: usize = 8;
/// How long calls under way may take when the server stops.
const GRACE: Duration = Duration::from_secs(20);
/// How long what is under way is waited for, when the server stops before its start is finished.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// How long a share is unused until what it has open is closed.
const SHARE_IDLE: Duration = Duration::from_secs(900);
const TRANSFER_BYTES: u32 = 1 << 20;
/// Of a record: what surrounds the data of a WRITE, generously.
const RECORD_HEAD_BYTES: usize = 64 << 10;
/// How long hosts may take again what they had locked before the server restarted, in ms: a lease.
const LOCK_GRACE_MS: u64 = 90_000;
const REPLY_CACHE_BYTES: usize = 60_000_000;
/// In s: Linux's time-out over TCP, and some more.
const REPLY_CACHE_HISTORY_S: u64 = 65;
/// How long clients that keep a journal are waited for after a crash, in s: as long as for locks.
const RECOVERY_WAIT_S: u64 = 90;
/// Beside the directory of the groups' files: programs that serve shares by other protocols.
const PLUGINS_DIRECTORY: &str = "plugins.d";

/// A running server.
///
/// Who calls what, in which order, on which thread:
///
/// 1. The program calls [`prepare_process`](crate::prepare_process) once, on its first thread, before
///    it starts others: threads inherit capabilities. A program that waits for signals blocks them
///    before that, too. The server handles none.
/// 2. The program calls [`Server::start`] on any thread. Clients are served when it returns.
/// 3. The program may call [`Server::reload`] and the methods that describe the server on any thread,
///    several at a time. It needs none of them to serve: the server runs the calls of clients, the
///    requests of tools and the changes of shares on threads of its own.
/// 4. The program calls [`Server::stop`] on a thread that can wait: 10 s for disks to be flushed while
///    clients are served, 20 s for calls under way, and as long as the disks take for the rest.
///    Dropping the server stops it, too.
///
/// One process can have several servers, each with its own state directory and addresses. A server
/// reports with `tracing`; it prints nothing and never ends the process.
pub struct Server {
    /// Serves clients: not before all else has started, and not after the server has stopped.
    runtime: Option<runtime::Server>,
    /// Unless it could not be had.
    control: Option<Control>,
    engine: Arc<Engine>,
    shares: Arc<ShareManager>,
    names: Names,
    /// Calls clients back.
    outbound: Sender,
    journaling_clients: Arc<JournalingClients>,
    log: OpenedLog,
    mount_by: MountBy,
    /// What the host's rpcbind knows of us.
    registered: Vec<Endpoint>,
    starting: Starting,
    health: Arc<Health>,
    has_ended: bool,
    /// Kept locked as long as we run.
    state: StateDirectory,
}

/// Calls were under way when the server stopped, and did not end.
#[derive(Debug, thiserror::Error)]
#[error("not all calls were finished within {} s; they are abandoned", GRACE.as_secs())]
pub struct Unfinished;

impl Server {
    /// Starts a server; it serves from here on. Shares of groups are served before anybody has
    /// looked at their directories, which a thread of the server's does now
    /// ([`Server::wait_started`]). If a log was left by a crash, it is replayed first.
    ///
    /// # Errors
    /// Why it cannot start, and what to do. What was begun is ended again, as [`Server::stop`] does.
    pub fn start(
        configuration: Configuration,
        mut options: StartOptions,
        powers: &ProcessPowers,
    ) -> Result<Self, StartError> {
        let Configuration { settings, defaults, shares } = configuration;
        let mut state = open_state(&settings.server, &options)?;
        let addresses = Addresses::of(&settings.server, options.port)?;
        let places = Places::of(&settings.server, options.shares_directory.take(), &state.path);
        let kept = KeptShares::open(&places, Base { defaults, shares, ..Base::default() })?;
        // Before a first start nobody has mounted anything.
        state.is_key_new &= kept.has_groups() || options.makes_handle_key;
        warn_of_new_key(&state);
        let runtime_options = runtime_options(&settings.server, &options, addresses.udp);
        let budgets =
            budgets(&settings.server, &runtime_options, &addresses, kept.shares().count(), powers)?;
        // Before anything is served, or even looked at.
        let is_useful = || intent_log::is_useful(kept.shares());
        let mut log =
            intent_log::open(&settings.log, &state, powers.serves_all_users(), is_useful)?;
        let storage = Storage::with_log(
            StorageOptions { descriptors_max: budgets.files },
            log.change_log(),
            Some(state.path.clone()),
        );
        let serves_all_users = powers.serves_all_users();
        let own_files = OwnFiles::of(&settings, &places);
        let exports = Exports::new(Arc::clone(&storage), &state.path, serves_all_users, own_files);
        let starts_anyway = options.starts_without_shares || kept.has_groups();
        let ready = kept.make_ready(exports);
        refuse_without_shares(&ready, starts_anyway)?;
        let helper = options.names_helper.take();
        let access = start_names(&settings.names, helper, &state, &ready)?;
        let (engine, nsm) = engine(&settings.server, &state, &addresses, &log, &ready, &access)?;
        let journaling_clients = start_journaling_clients(&engine, &settings.server, &state)?;
        let names = Names::start(access, &engine);
        let outbound = start_outbound(&engine, nsm);
        let (shares, not_looked_at) =
            start_shares(ready, &engine, &names, &settings, &places, options, &log)?;
        for reply in log.take_replies() {
            engine.remember_replayed(&reply, 0);
        }
        // From here on what was begun is ended when this is dropped.
        let mut server = Self {
            runtime: None,
            control: None,
            engine,
            shares,
            names,
            outbound,
            journaling_clients,
            log,
            mount_by: MountBy::nowhere(),
            registered: Vec::new(),
            starting: Starting::default(),
            health: Arc::default(),
            has_ended: false,
            state,
        };
        let runtime_options = ServerOptions {
            connections_max: budgets.connections,
            record_bytes_max: transfer_bytes(&settings.server) as usize + RECORD_HEAD_BYTES,
            ..runtime_options
        };
        server.serve(addresses, runtime_options, &settings, &storage)?;
        server.begin_to_finish(not_looked_at)?;
        Ok(server)
    }

    /// Serves clients, lets the server be asked, and tells the host's rpcbind.
    fn serve(
        &mut self,
        addresses: Addresses,
        options: ServerOptions,
        settings: &Settings,
        storage: &Arc<Storage>,
    ) -> Result<(), StartError> {
        let log = self.log.keeper();
        let listening = addresses.serve(options, &self.engine, log)?;
        let about = AskedAbout {
            health: &self.health,
            observer: listening.server.observer(),
            engine: &self.engine,
            storage,
            access: self.names.access(),
            log,
            shares: &self.shares,
            has_new_key: self.state.is_key_new,
        };
        self.control = control::start(about, settings, &self.state.path);
        let swept = Arc::clone(storage);
        listening.server.every_second(Box::new(move || swept.sweep()));
        listening.server.every_second(memory::watch(&self.engine, self.names.access()));
        let (engine, outbound) = (Arc::clone(&self.engine), self.outbound.clone());
        listening.server.every_second(Box::new(move || {
            if !engine.is_in_grace() {
                outbound.forget_former();
            }
        }));
        let (engine, record) = (Arc::clone(&self.engine), Arc::clone(&self.journaling_clients));
        listening.server.every_second(Box::new(move || {
            for client in engine.miss_journaling_clients() {
                tell_missed(&engine, &client);
            }
            record.write();
        }));
        let (runtime, mount_by, registered) = listening.register(asked_for(&settings.server));
        self.shares.set_mount_by(mount_by.clone());
        self.outbound.notify_former();
        local_locks::take_again(&self.engine);
        (self.runtime, self.mount_by, self.registered) = (Some(runtime), mount_by, registered);
        Ok(())
    }

    /// Has the rest of the shares looked at, which are served already. That may take as long as a
    /// disk hangs.
    fn begin_to_finish(&mut self, not_looked_at: NotLookedAt) -> Result<(), StartError> {
        let (engine, shares) = (Arc::clone(&self.engine), Arc::clone(&self.shares));
        let health = Arc::clone(&self.health);
        let looking = move || {
            if shares.finish_start(not_looked_at)
                && engine.exports().is_empty()
                && shares.faults() > 0
            {
                // They are mended by tools, and by disks that come later.
                tracing::warn!(
                    "none of the shares can be served now: steadfast share list says why"
                );
            }
            health.note_started();
        };
        self.starting.begin(looking).tried("cannot start a thread")
    }

    /// Waits until the start is finished: until the directories of all shares were looked at, and
    /// other programs were told what is shared. `false` if that takes longer.
    pub fn wait_started(&self, time: Duration) -> bool {
        let is_finished = self.starting.wait(time);
        if is_finished {
            self.starting.join();
        }
        is_finished
    }

    /// Reads the shares of the configuration and the groups' files again, and serves them. What has
    /// mistakes stays as it is, and is logged: a file that is just being replaced must not take the
    /// shares away. A share that cannot be opened costs no other its place.
    ///
    /// May take as long as a disk hangs.
    pub fn reload(&self) {
        let read = self.shares.read_again("the server");
        for warning in read.warnings.iter().chain(&read.done.left_out) {
            tracing::warn!("{warning}");
        }
        for mistake in &read.mistakes {
            tracing::error!("{mistake}");
        }
        if !read.mistakes.is_empty() {
            tracing::error!("the configuration has mistakes: what has them stays as it is");
        }
        tracing::info!("reloaded: {}", self.status());
    }

    /// How many shares are served.
    pub fn shares(&self) -> usize {
        self.engine.exports().len()
    }

    /// How the server is doing, in a few words.
    pub fn status(&self) -> String {
        let count = self.shares();
        format!("serving {count} {}", if count == 1 { "share" } else { "shares" })
    }

    /// Where clients are served: NFS and MOUNT have one port.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.mount_by.listen
    }

    /// Whether clients are served over UDP too.
    pub fn serves_udp(&self) -> bool {
        self.mount_by.udp
    }

    /// Whether NFSv4 is served too: the mount lines are for it then.
    pub fn serves_nfs4(&self) -> bool {
        self.mount_by.nfs4
    }

    /// What an administrator types on a client, one line for each address that may be the right one:
    /// of the first shares by their paths, so many.
    pub fn mount_lines(&self, shares_max: usize) -> Vec<String> {
        let exports = self.engine.exports();
        let sorted = exports.sorted();
        self.mount_by.lines(sorted.iter().take(shares_max).map(|export| &*export.share))
    }

    /// Flushes the disks while it still serves, finishes calls under way, makes everything stable, and leaves
    /// nothing behind: the log is empty and closed, unless a disk has failed.
    ///
    /// # Errors
    /// When calls did not end in time. What they were promised is in the log, or was not promised.
    pub fn stop(mut self) -> Result<(), Unfinished> {
        if self.end() { Ok(()) } else { Err(Unfinished) }
    }

    /// Stops what runs; `false` if not all calls were finished.
    fn end(&mut self) -> bool {
        if std::mem::replace(&mut self.has_ended, true) {
            return true;
        }
        self.health.note_stopping();
        if self.starting.is_under_way() {
            self.shares.end_start();
            // What is under way may have a file system join the intent log.
            self.starting.wait(START_PATIENCE);
        }
        self.log.flush_while_serving();
        self.control = None;
        if !self.registered.is_empty() {
            registration::withdraw(&self.registered);
        }
        let is_finished = self.runtime.take().is_none_or(|runtime| runtime.shutdown(GRACE));
        self.outbound.end(self.engine.hosts_with_locks());
        self.journaling_clients.close(self.engine.write_verifier());
        self.shares.stop();
        self.names.stop();
        self.log.close(self.engine.write_verifier());
        // Closes the trees.
        self.engine.set_exports(ExportTable::default());
        is_finished
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn open_state(
    settings: &ServerSettings,
    options: &StartOptions,
) -> Result<StateDirectory, StartError> {
    let path = match (&options.state_directory, &settings.state_directory) {
        (Some(path), _) => path.clone(),
        (None, Some(path)) => path.value.clone(),
        (None, None) => StateDirectory::default_path()?,
    };
    StateDirectory::open_with(&path, options.makes_handle_key)
}

fn warn_of_new_key(state: &StateDirectory) {
    if state.is_key_new {
        tracing::warn!(
            "{} has a new handle key: clients that have mounted these shares from an earlier server \
             must mount again",
            state.path.display()
        );
    }
}

/// What the descriptors of the process are for.
struct Budgets {
    files: usize,
    connections: usize,
}

fn budgets(
    settings: &ServerSettings,
    options: &ServerOptions,
    addresses: &Addresses,
    shares: usize,
    powers: &ProcessPowers,
) -> Result<Budgets, StartError> {
    let uses = descriptors::Uses {
        shares,
        addresses: addresses.count(),
        seats_by_pool: descriptors::seats_by_pool(options).tried("cannot find out about CPUs")?,
        udp: addresses.udp,
    };
    let (files, connections) = descriptors::budgets(settings, powers.descriptors_max, &uses)?;
    Ok(Budgets { files, connections })
}

/// A server without any share is started to have some added. One none of whose shares can be served
/// is a mistake, unless somebody can mend them while it runs.
fn refuse_without_shares(ready: &ReadyShares, starts_anyway: bool) -> Result<(), StartError> {
    if !ready.table.is_empty() {
        return Ok(());
    }
    let faults = ready.faults();
    if faults.is_empty() {
        tracing::warn!("nothing is shared yet: steadfast share add DIRECTORY");
    } else if !starts_anyway && !ready.has_elsewhere() {
        return Err(StartError::NoShare(faults));
    }
    Ok(())
}

fn start_names(
    settings: &NamesSettings,
    helper: Option<Vec<std::ffi::OsString>>,
    state: &StateDirectory,
    ready: &ReadyShares,
) -> Result<Arc<Access>, StartError> {
    let access = names::start(settings, helper, &state.path)?;
    access.change_rules(ready.rules(), []);
    Ok(access)
}

/// The engine, and which hosts have locks or have lost them.
fn engine(
    settings: &ServerSettings,
    state: &StateDirectory,
    addresses: &Addresses,
    log: &OpenedLog,
    ready: &ReadyShares,
    access: &Arc<Access>,
) -> Result<(Arc<Engine>, Nsm), StartError> {
    let history_s = settings.reply_cache_history_s.unwrap_or(REPLY_CACHE_HISTORY_S);
    let records = client_records::Records::open(state)?;
    let clients = ClientState::find(state, &records)?;
    let mut engine = Engine::with_authority(
        EngineConfig {
            instance: clients.instance,
            nfs2: asked_for(settings).nfs2,
            nfs4: asked_for(settings).nfs4,
            delegations: delegations(settings),
            local_guard: local_guard(settings),
            idmapping: idmapping::of(settings),
            handle_key: state.handle_key,
            write_verifier: log.write_verifier,
            transfer_bytes_max: transfer_bytes(settings),
            reply_cache_bytes_max: settings.reply_cache_bytes_max.unwrap_or(REPLY_CACHE_BYTES),
            reply_cache_history_ms: 1000 * history_s,
            nfs_port: addresses.listen.first().map_or(0, SocketAddr::port),
            transports: addresses.transports(),
        },
        ready.table.clone(),
        Arc::clone(access) as _,
    );
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    engine.set_compressions_max(COMPRESSIONS_PER_CPU * cpus);
    // Once the new state is kept, no later start knows that there was another before.
    let nsm = Nsm::open(&state.path, clients.is_lost)?;
    clients.keep(&mut engine);
    records.keep(&mut engine)?;
    Ok((Arc::new(engine), nsm))
}

/// Hosts that have lost their locks may take them again before anybody else gets one. It is one grace
/// period with that of clients of NFSv4.
fn start_outbound(engine: &Arc<Engine>, nsm: Nsm) -> Sender {
    let former = nsm.former().len();
    if former > 0 {
        tracing::info!(
            "clients that have lost their locks over NFSv3: {former}; for {} s only they may lock",
            LOCK_GRACE_MS / 1000
        );
        engine.begin_grace(LOCK_GRACE_MS);
    }
    let outbound = Sender::new(engine, nsm, RPCBIND_PORT);
    engine.set_outbound(Arc::new(outbound.clone()));
    outbound
}

/// Clients that keep a journal of what an `async` share has acknowledged to them may bring back what was lost,
/// before anybody else is served there.
fn start_journaling_clients(
    engine: &Engine,
    settings: &ServerSettings,
    state: &StateDirectory,
) -> Result<Arc<JournalingClients>, StartError> {
    let (record, recorded) = JournalingClients::open(&state.path, engine.write_verifier())?;
    let wait_s = settings.recovery_wait_s.unwrap_or(RECOVERY_WAIT_S);

    let Recorded { clients, is_lost } = recorded;
    let kept = Arc::clone(&record) as _;
    let awaited = engine.keep_journaling_clients(clients, kept, is_lost, 1000 * wait_s);
    if awaited > 0 {
        tracing::warn!(
            "what async shares had acknowledged may be lost: clients that have it in a journal are waited for \
             for {wait_s} s ({awaited}); nobody else is served on these shares meanwhile"
        );
    }
    Ok(record)
}

fn tell_missed(engine: &Engine, client: &JournalingClient) {
    let exports = engine.exports();
    let share = exports.sorted().into_iter().find(|export| export.share.id == client.share);
    let share = share.map(|export| export.share.path.to_string()).unwrap_or_default();
    tracing::error!(
        share,
        client = %client.address,
        name = %String::from_utf8_lossy(&client.name).escape_debug(),
        "a client with a journal did not come, or did not finish, and is not waited for any longer: what it was \
         promised before the crash is missing until it comes"
    );
}

/// Which delegations are granted: none where the settings say nothing.
fn delegations(settings: &ServerSettings) -> steadfast_engine::Delegations {
    match settings.delegations {
        None | Some(Delegations::None) => steadfast_engine::Delegations::None,
        Some(Delegations::Read) => steadfast_engine::Delegations::Read,
        Some(Delegations::Write) => steadfast_engine::Delegations::Write,
    }
}

/// Whether files are delegated that cannot be guarded from local processes: not unless the settings say so.
fn local_guard(settings: &ServerSettings) -> steadfast_engine::LocalGuard {
    match settings.local_guard {
        Some(LocalGuard::None) => steadfast_engine::LocalGuard::None,
        None | Some(LocalGuard::Required) => {
            let patience_ms = steadfast_sys::lease::break_time().as_millis();
            // Revoked before the kernel lets the local process go on: times are known by the second.
            let patience_ms = u64::try_from(patience_ms).unwrap_or(u64::MAX).saturating_sub(2_000);
            steadfast_engine::LocalGuard::Required { patience_ms }
        }
    }
}

/// The versions beside NFSv3: NFSv4 unless the settings say no, NFSv2 where they say so.
fn asked_for(settings: &ServerSettings) -> OptionalVersions {
    OptionalVersions { nfs2: settings.nfs2.unwrap_or(false), nfs4: settings.nfs4.unwrap_or(true) }
}

fn start_shares(
    ready: ReadyShares,
    engine: &Arc<Engine>,
    names: &Names,
    settings: &Settings,
    places: &Places,
    options: StartOptions,
    log: &OpenedLog,
) -> Result<(Arc<ShareManager>, NotLookedAt), StartError> {
    let plugins_directory = places.shares_directory.with_file_name(PLUGINS_DIRECTORY);
    let whose =
        plugins::Whose { state_directory: &places.state_directory, port: engine.nfs_port() };
    ShareManager::start(
        ready,
        Arc::clone(engine),
        Arc::clone(names.access()),
        plugins::start(&settings.plugins, &plugins_directory, whose)?,
        options.read_base,
        log.keeper(),
        share_idle(&settings.server),
    )
}

/// After which time without a call a share is idle, if ever.
fn share_idle(settings: &ServerSettings) -> Option<Duration> {
    let idle = settings.share_idle_s.map_or(SHARE_IDLE, Duration::from_secs);
    (!idle.is_zero()).then_some(idle)
}

fn transfer_bytes(settings: &ServerSettings) -> u32 {
    settings.transfer_bytes_max.unwrap_or(TRANSFER_BYTES)
}

fn runtime_options(settings: &ServerSettings, options: &StartOptions, udp: bool) -> ServerOptions {
    let default = ServerOptions::default();
    #[cfg(not(feature = "unsafe-async"))]
    let _ = options;
    ServerOptions {
        udp,
        pools: settings.pools.unwrap_or(default.pools),
        pool_cpus: settings.pool_cpus.clone().unwrap_or_default(),
        seats_per_pool: settings.seats_per_pool.unwrap_or(default.seats_per_pool),
        busy_poll_us: settings.busy_poll_us.unwrap_or(default.busy_poll_us),
        congestion_control: settings.congestion_control.clone(),
        workers_max: settings.workers_max.unwrap_or(default.workers_max),
        idle_timeout_s: settings.idle_timeout_s.unwrap_or(default.idle_timeout_s),
        #[cfg(feature = "unsafe-async")]
        acknowledges_unflushed: options.acknowledges_unflushed,
        ..default
    }
}

#[cfg(test)]
mod tests;
