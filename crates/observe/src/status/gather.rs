//! Asks a server for all that its status is made of, side by side, and waits for [`PATIENCE`] in all.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use steadfast_control::api::{SharePage, ShareStatus};
use steadfast_control::clients::ClientsReport;
use steadfast_control::intent_log::LogReport;
use steadfast_control::statistics::Statistics;
use steadfast_control::{AskError, Client, Patience};

use super::disks::{Disk, Mounts, Used};
use super::names;
use crate::doctor::facts::NameServer;
use crate::doctor::resolving;
use crate::machine::Machine;

/// How long the server has for all its answers. Its control interface answers within milliseconds unless
/// a disk or a change of shares holds it up.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Most faulty shares that are told by name.
const FAULTY_MAX: usize = 20;

/// Hundredths of its size that a share has to have for being told.
pub(super) const FILLING_PERCENT: u64 = 90;

/// Shares whose directories say which disks are looked at.
const SHARES_OF_DISKS: usize = 2000;

/// What became of a question.
#[derive(Debug)]
pub enum Answer<T> {
    /// It came.
    Told(T),
    /// There was none within [`PATIENCE`].
    Late,
    /// It was refused, or nobody is there.
    Failed(AskError),
}

impl<T> Answer<T> {
    /// What was told, if it was.
    pub fn told(&self) -> Option<&T> {
        match self {
            Self::Told(value) => Some(value),
            Self::Late | Self::Failed(_) => None,
        }
    }
}

/// All that was found out.
#[derive(Debug)]
pub struct Gathered {
    /// Its statistics. Without them it does not serve, or it is not known whether it does: the error says which.
    pub statistics: Answer<Statistics>,
    /// Its intent log.
    pub log: Answer<LogReport>,
    /// Who has state there.
    pub clients: Answer<ClientsReport>,
    /// The first of its faulty shares.
    pub faulty: Answer<SharePage>,
    /// The first of the shares that have most of their size, or a size that is not enforced.
    pub filling: Answer<SharePage>,
    /// The text that monitoring gets.
    pub metrics: Answer<String>,
    /// What the name servers of this host answer, if the server runs here and asks them for names of clients.
    pub name_servers: Vec<NameServer>,
    /// What plug-ins could not do, each once, with a share that it is about.
    pub plugin_faults: Vec<PluginTrouble>,
    /// The disks of shares and of what is logged, if it runs on this host.
    pub disks: Vec<Disk>,
    /// Where the file system of the log is mounted, if nothing can be written there.
    pub log_read_only_at: Option<String>,
    /// Without an answer: the process that has the state directory all the same.
    pub owner: Option<u32>,
    /// What is wrong with the configuration, one line a mistake.
    pub mistakes: Vec<String>,
    /// Where it keeps its state.
    pub state_directory: String,
    /// Nobody has named a server, and this user's own was looked for.
    pub is_guessed: bool,
}

/// What a plug-in could not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginTrouble {
    /// It.
    pub plugin: String,
    /// What is in the way.
    pub why: String,
    /// A share that is not served by it.
    pub path: String,
    /// How many others there are, of those that were asked about.
    pub others: usize,
}

/// Who is asked.
#[derive(Debug)]
pub struct Asked {
    /// Asks it.
    pub client: Client,
    /// It runs on this host, so its disks can be looked at.
    pub is_here: bool,
    /// Where it keeps its state.
    pub state_directory: PathBuf,
    /// What is wrong with the configuration, one line a mistake.
    pub mistakes: Vec<String>,
    /// Nobody has named a server, and this user's own is looked for.
    pub is_guessed: bool,
}

/// Asks.
pub fn gather(asked: Asked) -> Gathered {
    let Asked { client, is_here, state_directory, mistakes, is_guessed } = asked;
    let deadline = Instant::now() + PATIENCE;
    let statistics = ask::<Statistics>(&client, "/v1/statistics");
    let log = ask::<LogReport>(&client, "/v1/log");
    let clients = ask::<ClientsReport>(&client, "/v1/clients");
    let faulty = ask::<SharePage>(&client, &format!("/v1/shares?state=faulty&limit={FAULTY_MAX}"));
    let filling = format!("/v1/shares?filled={FILLING_PERCENT}&limit={FAULTY_MAX}");
    let filling = ask::<SharePage>(&client, &filling);
    let shares = ask::<SharePage>(&client, &format!("/v1/shares?limit={SHARES_OF_DISKS}"));
    let metrics = {
        let client = client.clone();
        begin(move || {
            let bytes = client.ask("GET", "/metrics?format=prometheus", Patience::Short)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        })
    };
    let statistics = within(&statistics, deadline);
    let log = within(&log, deadline);
    let shares = within(&shares, deadline);
    // The server's disks are not this host's if it is asked by TCP.
    let (disks, log_read_only_at) = if is_here && statistics.told().is_some() {
        let mounts = Mounts::now();
        let logged = log.told().into_iter().flat_map(|log| &log.figures.file_systems);
        let logged = logged.map(|one| Used { directory: &one.path, is_writable: false });
        let served = shares.told().into_iter().flat_map(|page| &page.shares);
        let served = served
            .map(|share| Used { directory: &share.directory, is_writable: share.is_writable() });
        let log_read_only_at = log.told().and_then(|log| mounts.read_only_at(Path::new(&log.path)));
        (mounts.usage(logged.chain(served)), log_read_only_at)
    } else {
        (Vec::new(), None)
    };
    let owner = match &statistics {
        Answer::Failed(error) if error.is_without_server() => owner(&state_directory),
        _ => None,
    };
    let clients = within(&clients, deadline);
    let (faulty, filling) = (within(&faulty, deadline), within(&filling, deadline));
    let metrics = within(&metrics, deadline);
    let asks_names = is_here && metrics.told().is_some_and(|text| names::are_asked(text));
    let has_time = deadline.saturating_duration_since(Instant::now()) > resolving::PATIENCE;
    let name_servers = if asks_names && has_time {
        resolving::ask(&Machine::default(), &mut Vec::new())
    } else {
        Vec::new()
    };
    let plugin_faults = plugin_faults(shares.told().map_or(&[][..], |page| &page.shares));
    Gathered {
        statistics,
        log,
        clients,
        faulty,
        filling,
        metrics,
        name_servers,
        plugin_faults,
        disks,
        log_read_only_at,
        owner,
        mistakes,
        state_directory: state_directory.display().to_string(),
        is_guessed,
    }
}

/// What plug-ins could not do for shares.
fn plugin_faults(shares: &[ShareStatus]) -> Vec<PluginTrouble> {
    let mut all: Vec<PluginTrouble> = Vec::new();
    for share in shares {
        for fault in &share.plugin_faults {
            let is_known =
                |known: &&mut PluginTrouble| known.plugin == fault.plugin && known.why == fault.why;
            if let Some(known) = all.iter_mut().find(is_known) {
                known.others += 1;
            } else if all.len() < FAULTY_MAX {
                let (plugin, why) = (fault.plugin.clone(), fault.why.clone());
                all.push(PluginTrouble { plugin, why, path: share.path.clone(), others: 0 });
            }
        }
    }
    all
}

type Pending<T> = Receiver<Result<T, AskError>>;

fn ask<T: DeserializeOwned + Send + 'static>(client: &Client, route: &str) -> Pending<T> {
    let (client, route) = (client.clone(), route.to_owned());
    begin(move || client.get(&route))
}

/// Asks on a thread, which ends with the process: it sleeps at a socket.
fn begin<T: Send + 'static>(
    ask: impl FnOnce() -> Result<T, AskError> + Send + 'static,
) -> Pending<T> {
    let (sender, receiver) = channel();
    // If there is no thread, the channel is closed, and there is no answer.
    let _ = std::thread::Builder::new().spawn(move || {
        // Nobody may be waiting any more.
        let _ = sender.send(ask());
    });
    receiver
}

fn within<T>(pending: &Pending<T>, deadline: Instant) -> Answer<T> {
    match pending.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(Ok(value)) => Answer::Told(value),
        Ok(Err(error)) => Answer::Failed(error),
        Err(_) => Answer::Late,
    }
}

/// The process that has locked a state directory, as the kernel tells: a server that starts or stops has no
/// socket. The lock is looked up, not tried: a server that starts just now must get it.
fn owner(state_directory: &Path) -> Option<u32> {
    let path = state_directory.join("lock");
    let inode = path.metadata().ok()?.ino();
    // The server writes its process id into the file that it has locked.
    let process = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    has_lock(process, inode, &locks).then_some(process)
}

/// Whether `/proc/locks` has a lock of this process on a file of this number. The device is not compared: the
/// kernel tells another one here than stat(2) does on btrfs.
fn has_lock(process: u32, inode: u64, locks: &str) -> bool {
    let (process, inode) = (process.to_string(), format!(":{inode}"));
    locks.lines().any(|line| {
        // `1: FLOCK  ADVISORY  WRITE 812 fe:00:1234 0 EOF`; one that waits has `->` before its kind.
        let words: Vec<&str> = line.split_whitespace().collect();
        matches!(words.as_slice(), [_, "FLOCK", _, _, owner, file, ..]
            if *owner == process && file.ends_with(&inode))
    })
}

#[cfg(test)]
mod tests {
    use steadfast_control::api::PluginFault;

    use super::*;

    #[test]
    fn what_a_plug_in_cannot_do_is_told_once() {
        let share = |path: &str, faults: &[(&str, &str)]| -> ShareStatus {
            let faults = faults.iter().map(|(plugin, why)| PluginFault {
                plugin: (*plugin).to_owned(),
                why: (*why).to_owned(),
            });
            serde_json::from_value(serde_json::json!({
                "path": path, "directory": path, "state": "enabled", "id": 1,
                "plugin_faults": faults.collect::<Vec<_>>(),
            }))
            .expect("a status")
        };
        let shares = [
            share("/a", &[("smb", "none"), ("list", "it failed")]),
            share("/b", &[("smb", "none")]),
            share("/c", &[]),
        ];
        let told = |plugin: &str, why: &str, others| PluginTrouble {
            plugin: plugin.to_owned(),
            why: why.to_owned(),
            path: "/a".to_owned(),
            others,
        };
        assert_eq!(plugin_faults(&shares), [told("smb", "none", 1), told("list", "it failed", 0)]);
    }

    #[test]
    fn who_has_a_lock_is_found_and_who_waits_for_it_is_not() {
        let line = "1: FLOCK  ADVISORY  WRITE 812 fe:00:1234 0 EOF\n";
        assert!(has_lock(812, 1234, line));
        assert!(!has_lock(812, 234, line));
        assert!(!has_lock(81, 1234, line));
        assert!(!has_lock(812, 1234, &line.replace("FLOCK", "-> FLOCK")));
        assert!(!has_lock(812, 1234, &line.replace("FLOCK", "POSIX")));
        assert!(!has_lock(812, 1234, "broken\n\n"));
    }
}
