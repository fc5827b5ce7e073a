//! `steadfast serve`: start, wait for signals, stop.

pub(crate) mod wanted;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use steadfast_catalog::configuration::LogTarget;
use steadfast_server::{Server, StartOptions, Unfinished, prepare_process};
use steadfast_sys::process::{self, Signal, Signals};

use crate::arguments::ServeArguments;
use crate::configuration_file::CONFIGURATION_FILE;
use crate::logging;
use crate::notify::Notifier;
use wanted::{Sources, directory_of_command_line, file_to_read, read_base, wanted};

/// Between two looks at whether to stop before the start is finished.
const START_PAUSE: Duration = Duration::from_millis(20);
/// How often the service manager hears that the start goes on.
const START_TOLD_EVERY: Duration = Duration::from_secs(10);
/// Between two looks at whether to go on, when nothing else asks for it.
const IDLE_WAIT: Duration = Duration::from_secs(3600);
/// Between two looks at whether the server has stopped.
const STOP_PAUSE: Duration = Duration::from_millis(20);
/// Most shares whose mount lines are printed at the start.
const SHARES_TOLD_MAX: usize = 20;
/// The hidden command that answers what the server asks the system's name service switch.
const NAMES_HELPER: &str = "names-helper";

/// Serves until a signal says to stop.
///
/// # Errors
/// Why the server could not start.
pub(crate) fn run(arguments: &ServeArguments, signals: &Signals) -> Result<()> {
    let powers = prepare_process().context("cannot prepare the process")?;
    let directories = command_line_directories(arguments)?;
    let file = file_to_read(arguments, None, CONFIGURATION_FILE.as_ref());
    let mut wanted = wanted(arguments, file.as_deref(), &directories)
        .map_err(|mistakes| anyhow!("mistakes in the configuration:\n{}", mistakes.join("\n")))?;
    if wanted.shares.is_empty() && file.is_none() {
        bail!(
            "nothing to serve: name a directory (steadfast serve DIR), or write a [[share]] into \
             a configuration file (--config FILE)"
        );
    }
    let settings = &wanted.settings;
    let log = arguments.log.or(settings.server.log).unwrap_or(LogTarget::Stderr);
    let filter = settings.server.log_filter.as_ref().map(|filter| filter.value.as_str());
    logging::start(log, filter, arguments.verbose)?;
    #[cfg(feature = "unsafe-async")]
    refuse_unless_unsafe(arguments, settings)?;
    let notifier = Notifier::from_environment();
    let mut options = StartOptions {
        // Who has a file can write into it what is served.
        starts_without_shares: file.is_some(),
        names_helper: names_helper(),
        #[cfg(feature = "unsafe-async")]
        acknowledges_unflushed: arguments.unsafe_async,
        ..StartOptions::default()
    };
    let (at_start, has_shares) = (settings.clone(), !wanted.shares.is_empty());
    arguments.server.outweigh(&mut wanted.settings, &mut options, file.as_deref());
    let sources = Sources { file, directories };
    options.read_base = Some(read_base(arguments, sources, has_shares, at_start));
    let server = Server::start(wanted, options, &powers)?;
    if finish_start(signals, &notifier, &server)? {
        announce(&server);
        notifier.ready(&server.status());
        serve_until_stopped(signals, &notifier, &server)?;
    }
    notifier.stopping();
    stop(server, signals)
}

/// This program was built to be measured, and not to keep anybody's data.
#[cfg(feature = "unsafe-async")]
fn refuse_unless_unsafe(
    arguments: &ServeArguments,
    settings: &steadfast_server::Settings,
) -> Result<()> {
    if !arguments.unsafe_async {
        bail!(
            "this steadfast was built with the feature unsafe-async, for measurements only: build \
             it without to serve, or say --unsafe-async to measure a server that loses data"
        );
    }
    if !arguments.server.no_intent_log && settings.log.enabled != Some(false) {
        bail!("--unsafe-async measures a server without an intent log: set [log] enabled = false");
    }
    tracing::warn!("--unsafe-async: what this server acknowledges is lost with the power");
    Ok(())
}

fn command_line_directories(arguments: &ServeArguments) -> Result<Vec<PathBuf>> {
    let mut directories = Vec::new();
    for directory in &arguments.directories {
        let (path, is_made) = directory_of_command_line(directory).map_err(anyhow::Error::msg)?;
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

/// This program, as it is started to ask the system's name service switch.
fn names_helper() -> Option<Vec<OsString>> {
    let program = std::env::current_exe();
    if let Err(error) = &program {
        tracing::warn!(
            "cannot find out which program this is: {error}; netgroups and groups of users come \
             from files alone"
        );
    }
    program.ok().map(|program| vec![program.into(), OsString::from(NAMES_HELPER)])
}

/// Waits until the start is finished, or a signal says to stop; returns whether there was none.
fn finish_start(signals: &Signals, notifier: &Notifier, server: &Server) -> Result<bool> {
    let mut is_to_reload = false;
    let mut told = Instant::now();
    while !server.wait_started(START_PAUSE) {
        match signals.wait(Duration::ZERO).context("cannot wait for signals")? {
            None => {}
            Some(Signal::HangUp) => is_to_reload = true,
            Some(signal) => {
                tracing::info!("{signal}: finishing the calls under way");
                return Ok(false);
            }
        }
        if told.elapsed() >= START_TOLD_EVERY {
            told = Instant::now();
            notifier.starting("looking at shares that are served already", 3 * START_TOLD_EVERY);
        }
    }
    if is_to_reload {
        reload(server, notifier, notifier.watchdog_interval().unwrap_or(IDLE_WAIT));
    }
    Ok(true)
}

/// Prints what an administrator needs on a client.
fn announce(server: &Server) {
    if server.shares() == 0 {
        return;
    }
    let lines = server.mount_lines(SHARES_TOLD_MAX);
    let mut text = String::from(if lines.iter().any(|line| line.contains(",nolock,")) {
        "Mount on a client, as root (nolock: clients find locks over NFSv3 by port 111 alone):\n"
    } else {
        "Mount on a client, as root:\n"
    });
    for line in lines {
        text = [text.as_str(), "  ", &line, "\n"].concat();
    }
    if let Some(more) = server.shares().checked_sub(SHARES_TOLD_MAX).filter(|more| *more > 0) {
        let more = format!("  … and {more} more shares: showmount -e tells all\n");
        text.push_str(&more);
    }
    // Nobody may be reading.
    let _ = std::io::stdout().write_all(text.as_bytes());
    let _ = std::io::stdout().flush();
    for address in server.addresses() {
        let transports = if server.serves_udp() { ", TCP and UDP" } else { ", TCP" };
        tracing::info!("serving at {address}{transports}");
    }
}

fn serve_until_stopped(signals: &Signals, notifier: &Notifier, server: &Server) -> Result<()> {
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
                reload(server, notifier, wait);
                notifier.ready(&server.status());
                notifier.alive();
            }
            Some(signal) => {
                tracing::info!("{signal}: finishing the calls under way");
                return Ok(());
            }
        }
    }
}

/// Reloads. The service manager hears every so often that the server lives, however long it takes.
fn reload(server: &Server, notifier: &Notifier, every: Duration) {
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel::<()>();
        let reading = scope.spawn(move || {
            let _ends_with_the_thread = sender;
            server.reload();
        });
        let is_reading = |received| matches!(received, Err(mpsc::RecvTimeoutError::Timeout));
        while is_reading(receiver.recv_timeout(every)) {
            notifier.alive();
        }
        reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Stops the server. A second signal ends it at once.
fn stop(server: Server, signals: &Signals) -> Result<()> {
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| server.stop());
        while !stopping.is_finished() {
            if let Ok(Some(signal @ (Signal::Terminate | Signal::Interrupt))) =
                signals.wait(STOP_PAUSE)
            {
                tracing::warn!("second {signal}: stopping at once");
                process::exit_at_once(1);
            }
        }
        stopping.join().unwrap_or(Err(Unfinished))
    })?;
    tracing::info!("stopped");
    Ok(())
}
