//! `steadfast serve`: start, wait for signals, stop.

use std::io::Write;
use std::net::{Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use parking_lot::Mutex;
use steadfast_access::Access;
use steadfast_catalog::configuration::{LogSettings, LogTarget, Placed, ServerSettings};
use steadfast_control::{Control, router};
use steadfast_durability::{IntentLogKeeper, LogHandle};
use steadfast_engine::{Engine, EngineConfig, ExportTable, Transports};
use steadfast_posixfs::{ProcessPowers, Storage, StorageOptions, prepare_process};
use steadfast_recovery::ChangeLog;
use steadfast_runtime::{ReplyLog, Server, ServerOptions, StartError};
use steadfast_sys::process::{self, Signal, Signals};

use crate::arguments::{CONFIGURATION_FILE, ServeArguments};
use crate::configuration::{self, AtStart, Wanted};
use crate::control;
use crate::descriptors;
use crate::exports::Exports;
use crate::intent_log;
use crate::logging;
use crate::memory;
use crate::mount_lines::{MountBy, PortLookup};
use crate::names::{self, Names};
use crate::notify::Notifier;
use crate::own_files::{OwnFile, OwnFiles};
use crate::plugins;
use crate::registration::{self, Found, Netid, RPCBIND_PORT};
use crate::shares::{Base, KeptShares, ManagedShares, NotLookedAt, Places, ReadBase, ShareManager};
use crate::state_directory::{self, StateDirectory};
use crate::statistics::{Document, unix_time};

/// How long calls under way may take when the server stops.
const GRACE: Duration = Duration::from_secs(20);
/// Between two looks at whether to stop before the start is finished.
const START_PAUSE: Duration = Duration::from_millis(20);
/// How often the service manager hears that the start goes on.
const START_TOLD_EVERY: Duration = Duration::from_secs(10);
/// How long what is under way is waited for, when a signal ends the start.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at whether to go on, when nothing else asks for it.
const IDLE_WAIT: Duration = Duration::from_secs(3600);
/// How long a share is unused until what it has open is closed.
const SHARE_IDLE: Duration = Duration::from_secs(900);
/// What clients have to be told that cannot ask port 111.
const PORTS_TOLD: &str = "port=, mountport=, proto= and mountproto=";
const TRANSFER_BYTES: u32 = 1 << 20;
/// Of a record: what surrounds the data of a WRITE, generously.
const RECORD_HEAD_BYTES: usize = 64 << 10;
const REPLY_CACHE_BYTES: usize = 60_000_000;
/// In s: Linux's time-out over TCP, and some more.
const REPLY_CACHE_HISTORY_S: u64 = 65;
/// Where other programs read what is shared.
const SHARETAB: &str = "/run/steadfast/sharetab";
/// Beside the usual configuration file, else in the state directory: the groups' files.
const SHARES_DIRECTORY: &str = "shares.d";
/// Beside those: programs that serve shares by other protocols.
const PLUGINS_DIRECTORY: &str = "plugins.d";
/// Most shares whose mount lines are printed at the start.
const SHARES_TOLD_MAX: usize = 20;
/// Attempts to find a port that is free for every address, for port 0.
const PORT_ATTEMPTS: usize = 32;

/// Where shares come from.
#[derive(Clone)]
struct Sources {
    /// The configuration file that was read, if one was.
    file: Option<PathBuf>,
    /// The directories of the command line.
    directories: Vec<PathBuf>,
}

/// A server and what surrounds it.
struct Running {
    server: Server,
    engine: Arc<Engine>,
    shares: Arc<ShareManager>,
    listen: Vec<SocketAddr>,
    udp: bool,
    lookup: PortLookup,
    /// What the host's rpcbind knows of us.
    registered: Vec<Netid>,
    /// If changes are logged.
    intent_log: Option<Arc<IntentLogKeeper>>,
    names: Names,
    /// Unless it could not be had.
    control: Option<Control>,
    /// Kept locked as long as we run.
    _state: StateDirectory,
}

/// Serves until a signal says to stop.
///
/// # Errors
/// Why the server could not start.
pub(crate) fn run(arguments: &ServeArguments, signals: &Signals) -> Result<()> {
    let powers = prepare_process().context("cannot prepare the process")?;
    let directories = command_line_directories(arguments)?;
    let file = configuration::file_to_read(arguments, None, CONFIGURATION_FILE.as_ref());
    let wanted = configuration::wanted(arguments, file.as_deref(), &directories)
        .map_err(|mistakes| anyhow!("mistakes in the configuration:\n{}", mistakes.join("\n")))?;
    if wanted.shares.is_empty() && file.is_none() {
        bail!(
            "nothing to serve: name a directory (steadfast serve DIR), or write a [[share]] into \
             a configuration file (--config FILE)"
        );
    }
    let log = arguments.log.or(wanted.server.log).unwrap_or(LogTarget::Stderr);
    let filter = wanted.server.log_filter.as_ref().map(|filter| filter.value.as_str());
    logging::start(log, filter, arguments.verbose)?;
    #[cfg(feature = "unsafe-async")]
    refuse_unless_unsafe(arguments, &wanted)?;
    let notifier = Notifier::from_environment();
    let (running, not_looked_at) = start(arguments, wanted, Sources { file, directories }, powers)?;
    if finish_start(signals, &notifier, &running, not_looked_at)? {
        announce(&running);
        notifier.ready(&running.status());
        serve_until_stopped(signals, &notifier, &running)?;
    }
    notifier.stopping();
    stop(running, signals)
}

/// This program was built to be measured, and not to keep anybody's data.
#[cfg(feature = "unsafe-async")]
fn refuse_unless_unsafe(arguments: &ServeArguments, wanted: &Wanted) -> Result<()> {
    if !arguments.unsafe_async {
        bail!(
            "this steadfast was built with the feature unsafe-async, for measurements only: build \
             it without to serve, or say --unsafe-async to measure a server that loses data"
        );
    }
    if !arguments.server.no_intent_log && wanted.log.enabled != Some(false) {
        bail!("--unsafe-async measures a server without an intent log: set [log] enabled = false");
    }
    tracing::warn!("--unsafe-async: what this server acknowledges is lost with the power");
    Ok(())
}

fn command_line_directories(arguments: &ServeArguments) -> Result<Vec<PathBuf>> {
    let mut directories = Vec::new();
    for directory in &arguments.directories {
        let (path, is_made) =
            configuration::directory_of_command_line(directory).map_err(anyhow::Error::msg)?;
        if is_made {
            let who = if process::effective_ids().0 == 0 {
                " (mode 1777: every user of every client may write there)"
            } else {
                ""
            };
            // Nobody may be reading.
            let _ = writeln!(std::io::stdout(), "Created {}{who}.", path.display());
        }
        if !directories.contains(&path) {
            directories.push(path);
        }
    }
    Ok(directories)
}

fn start(
    arguments: &ServeArguments,
    wanted: Wanted,
    sources: Sources,
    powers: ProcessPowers,
) -> Result<(Running, NotLookedAt)> {
    let at_start = AtStart::of(&wanted);
    let settings = wanted.server;
    let state_path = match (&arguments.server.state_directory, &settings.state_directory) {
        (Some(path), _) => path.clone(),
        (None, Some(path)) => path.value.clone(),
        (None, None) => StateDirectory::default_path()?,
    };
    let state = StateDirectory::open_with(&state_path, arguments.server.new_handle_key)?;
    let (mut listen, is_default) =
        configuration::listen_addresses(&arguments.server, settings.listen.as_ref())?;
    if is_default {
        // Before the engine is made, which tells clients what is served.
        leave_out_missing_ipv6(&mut listen, |address| TcpListener::bind(address).map(drop));
    }
    let udp = !arguments.server.no_udp && settings.udp.unwrap_or(true);
    choose_port(&mut listen, udp)?;

    let places = places(&settings, &sources, &state.path);
    let base = Base { defaults: wanted.defaults, shares: wanted.shares, ..Base::default() };
    let has_base_shares = !base.shares.is_empty();
    let kept = KeptShares::open(&places, base)?;
    let has_groups = kept.has_groups();
    if state.is_key_new && (has_groups || arguments.server.new_handle_key) {
        tracing::warn!(
            "{} has a new handle key: clients that have mounted these shares from an earlier server \
             must mount again",
            state.path.display()
        );
    }
    let uses_rpcbind = !arguments.server.no_rpcbind && settings.rpcbind.unwrap_or(true);
    let options = ServerOptions { udp, ..server_options(arguments, &settings) };
    let uses = descriptors::Uses {
        shares: kept.shares().count(),
        // With port 111 beside each, should we serve it.
        addresses: if uses_rpcbind { 2 * listen.len() } else { listen.len() },
        seats_by_pool: descriptors::seats_by_pool(&options)
            .context("cannot find out about CPUs")?,
        udp,
    };
    let (descriptors_max, connections_max) =
        descriptors::budgets(&settings, powers.descriptors_max, &uses)?;
    let mut verifier = [0; 8];
    process::random_bytes(&mut verifier).context("cannot get randomness from the kernel")?;
    let verifier = u64::from_be_bytes(verifier);
    // Before anything is served, or even looked at.
    let log_settings = LogSettings {
        enabled: if arguments.server.no_intent_log { Some(false) } else { wanted.log.enabled },
        size_mib: arguments.server.intent_log_mib.or(wanted.log.size_mib),
        ..wanted.log
    };
    let may_log = powers.serves_all_users();
    let is_useful = || intent_log::is_useful(kept.shares());
    let log = intent_log::start(
        &log_settings,
        &state.path,
        state.handle_key,
        verifier,
        may_log,
        is_useful,
    )?;
    let (intent_log, write_verifier, replies) = match log {
        Some(started) => (Some(started.keeper), started.write_verifier, started.replies),
        None => (None, verifier, intent_log::kept_replies(&state.path)?),
    };
    let change_log =
        intent_log.as_ref().map(|keeper| Arc::new(LogHandle::new(keeper)) as Arc<dyn ChangeLog>);
    let storage =
        Storage::with_log(StorageOptions { descriptors_max }, change_log, Some(state.path.clone()));
    let own_files = own_files(arguments, &settings, &places, log_settings.path.as_ref());
    let exports =
        Exports::new(Arc::clone(&storage), &state.path, powers.serves_all_users(), own_files);
    let ready = kept.make_ready(exports);
    if ready.table.is_empty() && ready.faults().is_empty() {
        tracing::warn!("nothing is shared yet: steadfast share add DIRECTORY");
    }
    let is_hopeless = sources.file.is_none() && !has_groups && !ready.has_elsewhere();
    if ready.table.is_empty() && !ready.faults().is_empty() && is_hopeless {
        bail!("none of the shares can be served:\n{}", ready.faults().join("\n"));
    }

    let transfer_bytes_max = settings.transfer_bytes_max.unwrap_or(TRANSFER_BYTES);
    let access = names::start(&wanted.names, &state.path)?;
    access.change_rules(ready.rules(), []);
    let engine = Arc::new(Engine::with_authority(
        EngineConfig {
            handle_key: state.handle_key,
            write_verifier,
            transfer_bytes_max,
            reply_cache_bytes_max: settings.reply_cache_bytes_max.unwrap_or(REPLY_CACHE_BYTES),
            reply_cache_history_ms: 1000
                * settings.reply_cache_history_s.unwrap_or(REPLY_CACHE_HISTORY_S),
            nfs_port: listen.first().map_or(0, SocketAddr::port),
            transports: transports(&listen, udp),
        },
        ready.table.clone(),
        Arc::clone(&access) as _,
    ));
    let names = Names::start(access, &engine)?;
    let (shares, not_looked_at) = ShareManager::start(
        ready,
        Arc::clone(&engine),
        Arc::clone(names.access()),
        plugins::start(
            &wanted.plugins,
            &places.shares_directory.with_file_name(PLUGINS_DIRECTORY),
        )?,
        read_base(arguments, sources, has_base_shares, at_start),
        intent_log.as_ref(),
        share_idle(&settings),
    )?;
    for reply in &replies {
        engine.remember_replayed(reply, 0);
    }
    drop(replies);
    let mut options = ServerOptions {
        connections_max,
        record_bytes_max: transfer_bytes_max as usize + RECORD_HEAD_BYTES,
        ..options
    };
    let found = if uses_rpcbind {
        registration::find()
    } else {
        Found::Unusable("rpcbind is switched off".to_owned())
    };
    let (server, listen, serves_rpcbind) =
        start_server(&mut options, &listen, &found, &engine, intent_log.as_ref())?;
    let told =
        Told { engine: &engine, storage: &storage, log: intent_log.as_ref(), shares: &shares };
    let control = start_control(&state, &server, &told, names.access(), &settings);
    server.every_second(Box::new(move || storage.sweep()));
    server.every_second(memory::watch(&engine, names.access()));

    let mut registered = Vec::new();
    let lookup = match found {
        Found::Running(mut rpcbind) => {
            let netids = registration::netids(&listen, udp);
            match rpcbind.set(&netids) {
                Ok(()) => {
                    registered = netids;
                    tracing::info!("registered with the rpcbind of this host");
                    PortLookup::Rpcbind
                }
                Err(why) => {
                    tracing::warn!("{why}: mounts need {PORTS_TOLD}");
                    PortLookup::Told
                }
            }
        }
        Found::Free if serves_rpcbind => {
            tracing::info!("no rpcbind runs here: serving port {RPCBIND_PORT} too");
            PortLookup::Rpcbind
        }
        Found::Free => PortLookup::Told,
        Found::Unusable(why) => {
            tracing::info!("{why}: mounts need {PORTS_TOLD}");
            PortLookup::Told
        }
    };
    let running = Running {
        server,
        engine,
        shares,
        listen,
        udp,
        lookup,
        registered,
        intent_log,
        names,
        control,
        _state: state,
    };
    running.shares.set_mount_by(running.mount_by());
    Ok((running, not_looked_at))
}

/// Has the rest of the shares looked at, which are served already. That may take as long as a disk
/// hangs, so a signal to stop ends it early; returns whether there was none.
fn finish_start(
    signals: &Signals,
    notifier: &Notifier,
    running: &Running,
    not_looked_at: NotLookedAt,
) -> Result<bool> {
    let (sender, receiver) = mpsc::channel::<()>();
    let shares = Arc::clone(&running.shares);
    let looking = move || {
        let _ends_with_the_thread = sender;
        shares.finish_start(not_looked_at);
    };
    let thread = std::thread::Builder::new().name("start".to_owned()).spawn(looking);
    let thread = thread.context("cannot start a thread")?;
    let mut is_to_reload = false;
    let mut told = Instant::now();
    while let Err(mpsc::RecvTimeoutError::Timeout) = receiver.recv_timeout(START_PAUSE) {
        match signals.wait(Duration::ZERO).context("cannot wait for signals")? {
            None => {}
            Some(Signal::HangUp) => is_to_reload = true,
            Some(signal) => {
                tracing::info!("{signal}: finishing the calls under way");
                running.shares.end_start();
                // What is under way may have a file system join the intent log.
                let _ = receiver.recv_timeout(START_PATIENCE);
                return Ok(false);
            }
        }
        if told.elapsed() >= START_TOLD_EVERY {
            told = Instant::now();
            notifier.starting("looking at shares that are served already", 3 * START_TOLD_EVERY);
        }
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
    if running.engine.exports().is_empty() && running.shares.faults() > 0 {
        // They are mended by tools, and by disks that come later.
        tracing::warn!("none of the shares can be served now: steadfast share list says why");
    }
    if is_to_reload {
        reload(running, notifier, notifier.watchdog_interval().unwrap_or(IDLE_WAIT));
    }
    Ok(true)
}

/// What the server can be asked about.
struct Told<'a> {
    engine: &'a Arc<Engine>,
    storage: &'a Arc<Storage>,
    log: Option<&'a Arc<IntentLogKeeper>>,
    shares: &'a Arc<ShareManager>,
}

/// Lets the server be asked. It serves as well without.
fn start_control(
    state: &StateDirectory,
    server: &Server,
    told: &Told<'_>,
    access: &Arc<Access>,
    settings: &ServerSettings,
) -> Option<Control> {
    let (engine, storage) = (Arc::clone(told.engine), Arc::clone(told.storage));
    let observer = server.observer();
    let started_unix_ms = unix_time().as_millis() as u64;
    let keeper = told.log.cloned();
    let statistics =
        move || Document::of(&observer, &engine, &storage, keeper.as_deref(), started_unix_ms);
    let shares = Arc::new(ManagedShares(Arc::clone(told.shares)));
    let services = control::services(statistics, Arc::clone(access), told.log.cloned(), shares);
    let options = control::options(settings);
    Control::start(&state.path, &options, router(services))
        .inspect_err(|error| {
            tracing::warn!(
                "cannot make a control socket in {}: {error}; `steadfast statistics`, `steadfast \
                 log` and `steadfast share` cannot ask this server",
                state.path.display()
            );
        })
        .ok()
}

/// Where shares are kept and told.
fn places(settings: &ServerSettings, sources: &Sources, state_directory: &Path) -> Places {
    let usual = Path::new(CONFIGURATION_FILE);
    let shares_directory = match &settings.shares_directory {
        Some(directory) => directory.value.clone(),
        None if sources.file.as_deref() == Some(usual) => usual.with_file_name(SHARES_DIRECTORY),
        None => state_directory.join(SHARES_DIRECTORY),
    };
    let usual_state = state_directory == Path::new(state_directory::DEFAULT_PATH);
    let sharetab = match &settings.sharetab {
        Some(path) => path.value.clone(),
        None if usual_state => SHARETAB.into(),
        None => state_directory.join("sharetab"),
    };
    Places {
        shares_directory,
        state_directory: state_directory.to_owned(),
        sharetab: Some(sharetab),
    }
}

/// What no share may contain, unless it was said twice.
fn own_files(
    arguments: &ServeArguments,
    settings: &ServerSettings,
    places: &Places,
    log: Option<&Placed<PathBuf>>,
) -> OwnFiles {
    if arguments.server.share_own_files || settings.share_own_files == Some(true) {
        return OwnFiles::default();
    }
    let own = |what, path: &Path| OwnFile { what, path: path.to_owned() };
    let mut files = vec![
        own("the state directory", &places.state_directory),
        own("the directory of the groups' files", &places.shares_directory),
    ];
    files.extend(log.map(|path| own("the intent log", &path.value)));
    let socket = settings.control_socket.as_ref();
    files.extend(socket.map(|path| own("the control socket", &path.value)));
    OwnFiles::new(files)
}

/// Reads the shares of the configuration file and of the command line again.
/// A file whose shares have all gone is most likely one that is just being replaced.
fn read_base(
    arguments: &ServeArguments,
    sources: Sources,
    had_shares: bool,
    at_start: AtStart,
) -> ReadBase {
    let arguments = arguments.clone();
    let Sources { file, directories } = sources;
    // One that was read once is missed when it is gone, also if it came after the start.
    let read_before = Mutex::new(file);
    Box::new(move || {
        let usual = CONFIGURATION_FILE.as_ref();
        let mut read_before = read_before.lock();
        let file = configuration::file_to_read(&arguments, read_before.as_deref(), usual);
        let wanted = configuration::wanted(&arguments, file.as_deref(), &directories)?;
        read_before.clone_from(&file);
        if had_shares && wanted.shares.is_empty() {
            return Err(vec![format!(
                "{}: has no share any more: the shares stay as they are; write a [[share]], or \
                 stop the server if nothing is to be served",
                file.unwrap_or_default().display()
            )]);
        }
        let warnings = at_start.differences(&wanted);
        Ok(Base { defaults: wanted.defaults, shares: wanted.shares, warnings })
    })
}

/// A machine without IPv6 is none of the operator's mistakes. The port tried is any that is free:
/// one that is in use, or not for us, is still told when it is listened on.
fn leave_out_missing_ipv6(
    listen: &mut Vec<SocketAddr>,
    bind: impl Fn(SocketAddr) -> std::io::Result<()>,
) {
    if let Err(error) = bind(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0)) {
        tracing::info!("IPv6 is not served: {error}");
        listen.retain(SocketAddr::is_ipv4);
    }
}

/// What clients who ask our own rpcbind are told.
fn transports(listen: &[SocketAddr], udp: bool) -> Transports {
    Transports {
        udp,
        ipv4: listen.iter().any(SocketAddr::is_ipv4),
        ipv6: listen.iter().any(SocketAddr::is_ipv6),
    }
}

/// Starts the runtime. Returns the addresses that clients are to use, and whether port 111 is
/// served too.
fn start_server(
    options: &mut ServerOptions,
    listen: &[SocketAddr],
    found: &Found,
    engine: &Arc<Engine>,
    intent_log: Option<&Arc<IntentLogKeeper>>,
) -> Result<(Server, Vec<SocketAddr>, bool)> {
    let mut serves_rpcbind = matches!(found, Found::Free);
    loop {
        options.listen = listen.to_vec();
        options.extra_listen.clear();
        if serves_rpcbind {
            let same = listen.iter().map(|address| with_port(*address, RPCBIND_PORT));
            options.extra_listen.extend(same.filter(|address| !listen.contains(address)));
        }
        let service = Arc::clone(engine) as _;
        let log = intent_log.map(|keeper| Arc::clone(keeper) as Arc<dyn ReplyLog>);
        match Server::start_with_log(options.clone(), service, log) {
            Ok(server) => {
                let listen = server.local_addresses().into_iter().take(listen.len()).collect();
                return Ok((server, listen, serves_rpcbind));
            }
            Err(StartError::Listen { address, source, .. })
                if options.extra_listen.contains(&address) && serves_rpcbind =>
            {
                tracing::warn!("cannot serve {address}: {source}; mounts need {PORTS_TOLD}");
                serves_rpcbind = false;
            }
            // Its text has its cause in it already.
            Err(error) => bail!("{error}"),
        }
    }
}

/// After which time without a call a share is idle, if ever.
fn share_idle(settings: &ServerSettings) -> Option<Duration> {
    let idle = settings.share_idle_s.map_or(SHARE_IDLE, Duration::from_secs);
    (!idle.is_zero()).then_some(idle)
}

fn server_options(arguments: &ServeArguments, settings: &ServerSettings) -> ServerOptions {
    let default = ServerOptions::default();
    ServerOptions {
        pools: arguments.server.pools.map(usize::from).or(settings.pools).unwrap_or(default.pools),
        pool_cpus: settings.pool_cpus.clone().unwrap_or_default(),
        seats_per_pool: settings.seats_per_pool.unwrap_or(default.seats_per_pool),
        busy_poll_us: settings.busy_poll_us.unwrap_or(default.busy_poll_us),
        congestion_control: settings.congestion_control.clone(),
        workers_max: settings.workers_max.unwrap_or(default.workers_max),
        idle_timeout_s: settings.idle_timeout_s.unwrap_or(default.idle_timeout_s),
        #[cfg(feature = "unsafe-async")]
        acknowledges_unflushed: arguments.unsafe_async,
        ..default
    }
}

fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// Replaces port 0 by one port that is free on all addresses, since clients are told one.
fn choose_port(listen: &mut [SocketAddr], udp: bool) -> Result<()> {
    if listen.iter().all(|address| address.port() != 0) {
        return Ok(());
    }
    for _ in 0..PORT_ATTEMPTS {
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        let first = listen.first().map_or(any, |address| with_port(*address, 0));
        let first = TcpListener::bind(first).context("no port is free")?;
        let port = first.local_addr()?.port();
        drop(first);
        let is_free = listen.iter().filter(|address| address.port() == 0).all(|address| {
            let address = with_port(*address, port);
            let is_taken = |error: std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
            let tcp_is_taken = TcpListener::bind(address).is_err_and(is_taken);
            let udp_is_taken = udp && UdpSocket::bind(address).is_err_and(is_taken);
            !tcp_is_taken && !udp_is_taken
        });
        if is_free {
            for address in listen.iter_mut().filter(|address| address.port() == 0) {
                address.set_port(port);
            }
            return Ok(());
        }
    }
    bail!("no port is free on all addresses: name one with --port")
}

/// Prints what an administrator needs on a client.
fn announce(running: &Running) {
    if running.engine.exports().is_empty() {
        return;
    }
    let mut text = String::from(
        "Mount on a client, as root (nolock: locks over the network are not served yet):\n",
    );
    let exports = running.engine.exports();
    let sorted = exports.sorted();
    for line in running.mount_by().lines(sorted.iter().take(SHARES_TOLD_MAX).map(|it| &*it.share)) {
        text = [text.as_str(), "  ", &line, "\n"].concat();
    }
    if let Some(more) = exports.len().checked_sub(SHARES_TOLD_MAX).filter(|more| *more > 0) {
        let more = format!("  … and {more} more shares: showmount -e tells all\n");
        text.push_str(&more);
    }
    // Nobody may be reading.
    let _ = std::io::stdout().write_all(text.as_bytes());
    let _ = std::io::stdout().flush();
    for address in &running.listen {
        tracing::info!(
            "serving at {address}{}",
            if running.udp { ", TCP and UDP" } else { ", TCP" }
        );
    }
}

impl Running {
    fn mount_by(&self) -> MountBy {
        MountBy { listen: self.listen.clone(), lookup: self.lookup, udp: self.udp }
    }

    fn status(&self) -> String {
        let count = self.engine.exports().len();
        format!("serving {count} {}", if count == 1 { "share" } else { "shares" })
    }
}

fn serve_until_stopped(signals: &Signals, notifier: &Notifier, running: &Running) -> Result<()> {
    let wait = notifier.watchdog_interval().unwrap_or(IDLE_WAIT);
    loop {
        let signal = signals.wait(wait).context("cannot wait for signals")?;
        // Whatever ended the wait: signals that come again and again would else keep it from
        // ever timing out, and the manager from ever hearing that we live.
        notifier.alive();
        match signal {
            None => {}
            Some(Signal::HangUp) => {
                notifier.reloading();
                reload(running, notifier, wait);
                notifier.ready(&running.status());
                notifier.alive();
            }
            Some(signal) => {
                tracing::info!("{signal}: finishing the calls under way");
                return Ok(());
            }
        }
    }
}

/// Reads the shares again and serves them. With a mistake in the configuration, or without its
/// file, what it has stays as it is: a file that is just being replaced must not take the shares
/// away. A share that cannot be opened costs no other its place: see [`Exports::build`].
///
/// The service manager hears every so often that the server lives, however long it takes.
fn reload(running: &Running, notifier: &Notifier, every: Duration) {
    let shares = &running.shares;
    let read = std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel::<()>();
        let reading = scope.spawn(move || {
            let _ends_with_the_thread = sender;
            shares.read_again("the server")
        });
        let is_reading = |received| matches!(received, Err(mpsc::RecvTimeoutError::Timeout));
        while is_reading(receiver.recv_timeout(every)) {
            notifier.alive();
        }
        reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    for warning in read.warnings.iter().chain(&read.done.left_out) {
        tracing::warn!("{warning}");
    }
    for mistake in &read.mistakes {
        tracing::error!("{mistake}");
    }
    if !read.mistakes.is_empty() {
        tracing::error!("the configuration has mistakes: what has them stays as it is");
    }
    tracing::info!("reloaded: {}", running.status());
}

/// Finishes calls under way, flushes, and leaves nothing behind. A second signal ends it at once.
fn stop(running: Running, signals: &Signals) -> Result<()> {
    let Running { server, engine, registered, shares, control, intent_log, names, .. } = running;
    drop(control);
    let is_finished = std::thread::scope(|scope| {
        let stopping = scope.spawn(|| {
            if !registered.is_empty() {
                registration::withdraw(&registered);
            }
            let is_finished = server.shutdown(GRACE);
            shares.stop();
            names.stop();
            if let Some(intent_log) = &intent_log {
                intent_log::close(intent_log, engine.write_verifier());
            }
            // Closes the trees.
            engine.set_exports(ExportTable::default());
            drop(shares);
            is_finished
        });
        while !stopping.is_finished() {
            if let Ok(Some(signal @ (Signal::Terminate | Signal::Interrupt))) =
                signals.wait(Duration::from_millis(20))
            {
                tracing::warn!("second {signal}: stopping at once");
                process::exit_at_once(1);
            }
        }
        stopping.join().unwrap_or(false)
    });
    if !is_finished {
        bail!("not all calls were finished within {} s; they are abandoned", GRACE.as_secs());
    }
    tracing::info!("stopped");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_of_ipv6_only_where_there_is_some() {
        let configured = |bind: fn(SocketAddr) -> std::io::Result<()>| {
            let mut listen = ["0.0.0.0:2049", "[::]:2049"].map(|a| a.parse().expect("one")).into();
            leave_out_missing_ipv6(&mut listen, bind);
            transports(&listen, true)
        };
        let all = Transports { udp: true, ipv4: true, ipv6: true };
        assert_eq!(configured(|_| Ok(())), all);
        let without = configured(|_| Err(std::io::ErrorKind::Unsupported.into()));
        assert_eq!(without, Transports { ipv6: false, ..all });
    }

    #[test]
    fn a_free_port_is_one_for_all_addresses() {
        let mut listen: Vec<SocketAddr> =
            ["127.0.0.1:0", "127.0.0.2:0"].map(|text| text.parse().expect("an address")).into();
        choose_port(&mut listen, true).expect("a port");
        assert!(listen.iter().all(|address| address.port() == listen[0].port()));
        assert_ne!(listen[0].port(), 0);
    }
}
