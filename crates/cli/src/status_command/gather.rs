//! Asks a server for all that its status is made of, side by side, and waits for [`PATIENCE`] in all.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::de::DeserializeOwned;
use steadfast_control::api::{SharePage, ShareState, ShareStatus};
use steadfast_control::clients::ClientsReport;
use steadfast_control::intent_log::LogReport;
use steadfast_control::statistics::Statistics;
use steadfast_control::{AskError, Client, Patience};
use steadfast_shares::ShareOptions;

use super::disks::{Disk, Mounts, Used};
use crate::server_place::ServerPlace;
use crate::share_commands::arguments::ServerChoice;

/// How long the server has for all its answers. Its control interface answers within milliseconds unless
/// a disk or a change of shares holds it up.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Most faulty shares that are told by name.
pub(super) const FAULTY_MAX: usize = 20;

/// Shares whose directories say which disks are looked at.
const SHARES_OF_DISKS: usize = 2000;

/// What became of a question.
#[derive(Debug)]
pub(super) enum Answer<T> {
    Told(T),
    /// There was none within [`PATIENCE`].
    Late,
    Failed(AskError),
}

impl<T> Answer<T> {
    pub(super) fn told(&self) -> Option<&T> {
        match self {
            Self::Told(value) => Some(value),
            Self::Late | Self::Failed(_) => None,
        }
    }
}

/// All that was found out.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) statistics: Answer<Statistics>,
    pub(super) log: Answer<LogReport>,
    pub(super) clients: Answer<ClientsReport>,
    pub(super) faulty: Answer<SharePage>,
    /// The text that monitoring gets.
    pub(super) metrics: Answer<String>,
    pub(super) disks: Vec<Disk>,
    /// Where the file system of the log is mounted, if nothing can be written there.
    pub(super) log_read_only_at: Option<String>,
    /// Who was asked.
    pub(super) choice: ServerChoice,
    /// Without an answer: the process that has the state directory all the same.
    pub(super) owner: Option<u32>,
    /// What is wrong with the configuration, one line a mistake.
    pub(super) mistakes: Vec<String>,
    pub(super) state_directory: String,
    /// Nobody has named a server, and this user's own was looked for.
    pub(super) is_guessed: bool,
}

/// Asks.
///
/// # Errors
/// When it is not known which server is meant, or there is no token to ask it with.
pub(super) fn gather(choice: &ServerChoice) -> Result<Gathered> {
    let place = ServerPlace::find(choice.config.as_deref(), choice.state_directory.as_deref())?;
    let client = match choice.connect {
        Some(address) => Client::connect_tcp(address, &place.state_directory)?,
        None => Client::connect(&place.state_directory).or_at(place.control_socket.clone()),
    };
    let deadline = Instant::now() + PATIENCE;
    let statistics = ask::<Statistics>(&client, "/v1/statistics");
    let log = ask::<LogReport>(&client, "/v1/log");
    let clients = ask::<ClientsReport>(&client, "/v1/clients");
    let faulty = ask::<SharePage>(&client, &format!("/v1/shares?state=faulty&limit={FAULTY_MAX}"));
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
    let (disks, log_read_only_at) = if choice.connect.is_none() && statistics.told().is_some() {
        let mounts = Mounts::now();
        let logged = log.told().into_iter().flat_map(|log| &log.figures.file_systems);
        let logged = logged.map(|one| Used { directory: &one.path, is_writable: false });
        let served = shares.told().into_iter().flat_map(|page| &page.shares);
        let served = served
            .map(|share| Used { directory: &share.directory, is_writable: is_writable(share) });
        let log_read_only_at = log.told().and_then(|log| mounts.read_only_at(Path::new(&log.path)));
        (mounts.usage(logged.chain(served)), log_read_only_at)
    } else {
        (Vec::new(), None)
    };
    let owner = match &statistics {
        Answer::Failed(error) if error.is_without_server() => owner(&place.state_directory),
        _ => None,
    };
    Ok(Gathered {
        statistics,
        log,
        clients: within(&clients, deadline),
        faulty: within(&faulty, deadline),
        metrics: within(&metrics, deadline),
        disks,
        log_read_only_at,
        choice: choice.clone(),
        owner,
        mistakes: place.mistakes,
        state_directory: place.state_directory.display().to_string(),
        is_guessed: choice.connect.is_none()
            && choice.state_directory.is_none()
            && place.control_socket.is_none()
            && !rustix::process::geteuid().is_root(),
    })
}

/// Whether some client may change what is shared there.
fn is_writable(share: &ShareStatus) -> bool {
    let may_change = |words: &[String]| {
        let (options, _) = ShareOptions::default().with(words);
        options.grants().iter().any(|rights| !rights.is_read_only)
            || options.lists.access.iter().any(|(_, is_read_only)| !is_read_only)
    };
    let mut rules = share.rules.iter().map(|rule| &rule.options);
    share.state != ShareState::Disabled
        && (may_change(&share.options) || rules.any(|words| may_change(words)))
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
    use super::*;

    #[test]
    fn a_share_is_writable_if_somebody_may_change_it() {
        let share = |options: &[&str], rule: &[&str], state: &str| -> ShareStatus {
            serde_json::from_value(serde_json::json!({
                "path": "/a", "directory": "/a", "state": state, "id": 1, "options": options,
                "clients": ["*"], "rules": [{"clients": ["*"], "options": rule}],
            }))
            .unwrap()
        };
        for options in [&["rw"][..], &["ro", "rw=10.0.0.1"], &["sec=sys", "ro", "sec=none", "rw"]] {
            assert!(is_writable(&share(options, &["ro"], "enabled")), "{options:?}");
            assert!(is_writable(&share(&["ro"], options, "faulty")), "{options:?}");
            assert!(!is_writable(&share(options, options, "disabled")), "{options:?}");
        }
        for options in [&["ro"][..], &["none"], &["ro", "root=10.0.0.1"]] {
            assert!(!is_writable(&share(options, &["ro"], "enabled")), "{options:?}");
        }
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
