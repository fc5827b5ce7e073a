//! `steadfast log`: asks the server that runs, or looks at a log that none uses.

mod probe_report;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use steadfast_control::intent_log::{FlushReport, LogReport};
use steadfast_control::plain;
use steadfast_control::statistics::{Statistics, unix_time};
use steadfast_control::{AskError, Client, Patience};
use steadfast_durability::{LogCare, LogFound, probe};
use steadfast_observe::text::log as text;
use steadfast_server::StateDirectory;
use steadfast_server::intent_log::{care, forget_what_was_mounted, log_path};

use crate::arguments::{LogAction, LogArguments};
use crate::output::print_plain;
use crate::server_place::ServerPlace;
use probe_report::ProbeReport;

/// Does what was asked for.
///
/// # Errors
/// What is in the way.
pub(crate) fn run(arguments: &LogArguments) -> Result<()> {
    let place = Place::of(arguments)?;
    match &arguments.action {
        LogAction::Status { json } => status(&place, *json),
        LogAction::Flush { json } => flush(&place, *json),
        LogAction::Enable => {
            let report = place.ask::<LogReport>("POST", "/v1/log/enable")?;
            let before = if report.is_unchanged { "unchanged: " } else { "" };
            print_plain(&format!("{before}the intent log is on\n"))
        }
        LogAction::Disable => {
            let report = place.ask::<LogReport>("POST", "/v1/log/disable")?;
            if report.is_unchanged {
                return print_plain("unchanged: the intent log is off\n");
            }
            print_plain(
                "the intent log is off, and empty: changes are flushed one by one, which is slower \
                 and as safe; until `steadfast log enable`, or the next start of the server, which \
                 does as the configuration says\n",
            )
        }
        LogAction::Probe { path, overwrite, json } => {
            let path = path.clone().unwrap_or_else(|| place.probed());
            let probed = probe(&path, *overwrite)?;
            let report = ProbeReport::of(&probed);
            print_plain(&if *json { line(&report)? } else { report.text() })
        }
        LogAction::Verify => print_plain(&format!("{}\n", place.care()?.0.verify()?)),
        LogAction::Adopt { up_to_damage, replay_old_records, file_system } => {
            let (care, state) = place.care()?;
            forget_what_was_mounted(&state)?;
            let told = match file_system {
                Some(file_system) => care.adopt_file_system(file_system)?,
                None if *up_to_damage => care.adopt_up_to_damage()?,
                None if *replay_old_records => care.adopt_old_records()?,
                None => care.adopt()?,
            };
            print_plain(&format!("{told}\n"))
        }
        LogAction::Discard { file_system, yes_lose } => {
            let (care, _state) = place.care()?;
            let told = match file_system {
                Some(file_system) => care.discard_file_system(file_system, *yes_lose)?,
                None => care.discard(*yes_lose)?,
            };
            print_plain(&format!("{told}\n"))
        }
    }
}

fn line(document: &impl Serialize) -> Result<String> {
    Ok(plain::json(document)? + "\n")
}

/// Where the log and the server's state are.
struct Place {
    state_directory: PathBuf,
    /// If it is configured.
    log: Option<PathBuf>,
}

impl Place {
    fn of(arguments: &LogArguments) -> Result<Self> {
        let (config, named) = (&arguments.config, &arguments.state_directory);
        let server = ServerPlace::find(config.as_deref(), named.as_deref())?;
        if matches!(arguments.action, LogAction::Adopt { .. } | LogAction::Discard { .. }) {
            server.require_no_mistakes()?;
        }
        Ok(Self { state_directory: server.state_directory, log: server.log })
    }

    fn log(&self) -> PathBuf {
        log_path(self.log.as_deref(), &self.state_directory)
    }

    /// What is probed when nobody says what: the log, or where it would be.
    fn probed(&self) -> PathBuf {
        let log = self.log();
        if log.exists() { log } else { log.parent().map_or(log.clone(), Path::to_owned) }
    }

    fn ask<T: DeserializeOwned>(&self, method: &str, route: &str) -> Result<T> {
        read(&Client::connect(&self.state_directory).ask(method, route, Patience::Endless)?)
    }

    /// The log, which nobody else may use meanwhile.
    fn care(&self) -> Result<(LogCare, StateDirectory)> {
        let state = StateDirectory::open(&self.state_directory)?;
        let care = care(self.log.as_deref(), &state)?;
        Ok((care, state))
    }
}

fn read<T: DeserializeOwned>(answer: &[u8]) -> Result<T> {
    serde_json::from_slice(answer)
        .context("what the server tells is not understood: use the program that it runs")
}

fn status(place: &Place, json: bool) -> Result<()> {
    let client = Client::connect(&place.state_directory);
    match client.ask("GET", "/v1/log", Patience::Short) {
        Ok(answer) => {
            let report: LogReport = read(&answer)?;
            if json {
                return print_plain(&line(&report)?);
            }
            let report = plain::document(&report)?;
            let statistics = client.ask("GET", "/v1/statistics", Patience::Short)?;
            let seconds = Statistics::read(&statistics)?.seconds();
            print_plain(&text::report(&report, seconds, unix_time().as_millis() as u64))
        }
        Err(error) if error.is_without_server() => status_without_server(place, &error, json),
        Err(error) => Err(error.into()),
    }
}

/// What can be told of a log that nobody uses.
#[derive(Serialize)]
struct Unused {
    version: u32,
    phase: &'static str,
    path: String,
    /// Whether it was closed; `null` without a superblock.
    is_clean: Option<bool>,
    epoch: Option<u64>,
    ring_bytes: Option<u64>,
    records: u64,
    /// Operations that are not on their file systems; `null` without a superblock.
    operations: Option<u64>,
    file_systems: Vec<UnusedFileSystem>,
}

#[derive(Serialize)]
struct UnusedFileSystem {
    path: String,
    records: u64,
    bytes: u64,
}

impl Unused {
    fn of(found: &LogFound) -> Self {
        let superblock = found.superblock.as_ref();
        let file_systems = superblock.into_iter().flat_map(|one| &one.by_file_system);
        Self {
            version: 1,
            phase: "unused",
            path: found.path.display().to_string(),
            is_clean: superblock.map(|one| one.is_clean),
            epoch: superblock.map(|one| one.epoch),
            ring_bytes: superblock.map(|one| one.ring_bytes),
            records: found.records,
            operations: superblock.map(|one| one.operations),
            file_systems: file_systems
                .map(|one| UnusedFileSystem {
                    path: one.path.clone(),
                    records: one.operations,
                    bytes: one.bytes,
                })
                .collect(),
        }
    }
}

fn status_without_server(place: &Place, why: &AskError, json: bool) -> Result<()> {
    // To look makes nothing: no state directory either.
    if !place.state_directory.is_dir() || !place.log().exists() {
        bail!("{why}; nor is there an intent log at {}", place.log().display());
    }
    let found = place.care()?.0.look()?;
    if json {
        return print_plain(&line(&Unused::of(&found))?);
    }
    print_plain(&format!("no server runs; {found}\n"))
}

fn flush(place: &Place, json: bool) -> Result<()> {
    let report: FlushReport = place.ask("POST", "/v1/log/flush")?;
    print_plain(&if json { line(&report)? } else { text::flushed(&plain::document(&report)?) })?;
    if !report.faulty.is_empty() {
        bail!("not all file systems are flushed; what they lack is kept in the log");
    }
    Ok(())
}
