//! What was gathered, judged: the document of `steadfast status --json`. A function of its input.

use serde::{Deserialize, Serialize};
use steadfast_control::AskError;
use steadfast_control::clients::ClientsReport;
use steadfast_control::intent_log::LogReport;
use steadfast_control::statistics::{NEW_HANDLE_KEY, Statistics};

use super::disks::Disk;
use super::gather::{Answer, Gathered, PATIENCE, PluginTrouble};
use super::samples::{count, sample};
use super::{names, sizes};

/// Of the document's form. A field may be added without another version.
const VERSION: u32 = 1;
/// Above this the log is nearly full, as the alert `SteadfastLogNearlyFull` has it.
const LOG_FULL_PERCENT: u64 = 85;
/// Above this a disk is nearly full.
const DISK_FULL_PERCENT: u64 = 95;
/// A change of shares that goes on for longer does not end, as the alert `SteadfastSharesStuck` has it.
const SHARES_CHANGE_S: f64 = 60.0;
/// Above this descriptors are nearly used up, as the alert `SteadfastDescriptorsNearlyUsedUp` has it.
const DESCRIPTORS_PERCENT: f64 = 90.0;

/// For so long after its start a new handle key is told, in milliseconds.
const NEW_KEY_TOLD_MS: u64 = 24 * 3600 * 1000;

/// Says what has become of a disk.
const NEXT_OF_DISK: &str = "dmesg -T | tail";

/// The worst of all warnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing is to be done.
    Fine,
    /// Something is to be done; all that is promised is kept.
    Warning,
    /// Some clients are not served, or something is lost if nobody acts.
    Critical,
    /// It could not be found out.
    Unknown,
}

impl Verdict {
    /// What the program ends with: 0 to 3, as monitoring wants it.
    pub const fn exit_status(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Warning => 1,
            Self::Critical => 2,
            Self::Unknown => 3,
        }
    }
}

/// Whether a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Serving {
    /// It answers.
    Yes,
    /// There is none.
    NotRunning,
    /// A process has the state directory, and cannot be asked yet or any more.
    StartingOrStopping,
    /// It is there, or should be, and does not answer.
    NotAnswering,
    /// It could not be found out.
    Unknown,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// How bad it is.
    pub severity: Verdict,
    /// What is wrong, for people.
    pub what: String,
    /// The command to type next.
    pub next: String,
}

/// How many shares there are, by state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// Served.
    pub enabled: u64,
    /// Known, and not served.
    pub disabled: u64,
    /// Served to those who use them already.
    pub draining: u64,
    /// Wanted, and not served.
    pub faulty: u64,
    /// The first of them, with the reason.
    pub faults: Vec<Fault>,
}

/// Something that does not work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Of a share or of a file system.
    pub path: String,
    /// What is in the way.
    pub why: String,
}

/// How many clients there are, by what they do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clients {
    /// Those that have files open or locked, or a session.
    pub with_state: u64,
    /// Of these, those whose lease has expired.
    pub silent: u64,
    /// Connections of clients of any kind.
    pub connections: u64,
    /// Clients reclaim what a restart took from them, and new opens and locks wait.
    pub is_in_grace: bool,
    /// Clients with a journal of what async shares acknowledge to them.
    pub journaling: u64,
    /// Of these, those that have not come since a crash.
    pub awaited: u64,
    /// Of these, those that bring back what the server had lost.
    pub recovering: u64,
    /// Of these, those that did not come in time.
    pub missed: u64,
}

/// The intent log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// `on`, `closing`, `off`, or `unmade`: no share needs one yet.
    pub phase: String,
    /// Why it is in this phase, if that is not what is usual.
    pub why: Option<String>,
    /// Where it is.
    pub path: String,
    /// Its size.
    pub ring_bytes: u64,
    /// What is not let go yet.
    pub used_bytes: u64,
    /// Replies that wait for it.
    pub waiting_replies: u64,
    /// File systems that take no changes.
    pub faults: Vec<Fault>,
    /// Files of changes for file systems that are not there.
    pub set_aside_files: u64,
}

/// Everything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Of the form of this document.
    pub version: u32,
    /// The worst of the warnings.
    pub verdict: Verdict,
    /// Whether it serves.
    pub serving: Serving,
    /// Why it does not serve.
    pub why: Option<String>,
    /// Of the server, not of who asks.
    pub program_version: Option<String>,
    /// Its process, on the host that it runs on.
    pub process: Option<u32>,
    /// When it was started, in milliseconds of Unix time.
    pub started_unix_ms: Option<u64>,
    /// `None`, like the following: not known.
    pub shares: Option<Shares>,
    /// Who uses it.
    pub clients: Option<Clients>,
    /// `None` also for a server without a log.
    pub log: Option<Log>,
    /// The disks of shares and of what is logged.
    pub disks: Vec<Disk>,
    /// The worst first.
    pub warnings: Vec<Warning>,
}

impl Report {
    /// Judges what was gathered.
    pub fn of(gathered: &Gathered) -> Self {
        let mut warnings = Warnings::default();
        let (serving, why) = serving(gathered, &mut warnings);
        let statistics = gathered.statistics.told();
        let is_asked = serving == Serving::Yes;
        let report = Self {
            version: VERSION,
            verdict: Verdict::Fine,
            serving,
            why,
            program_version: statistics.map(|told| told.program_version.clone()),
            process: statistics.map(|told| told.process).or(gathered.owner),
            started_unix_ms: statistics.map(|told| told.started_unix_ms),
            shares: is_asked.then(|| shares(gathered, &mut warnings)).flatten(),
            clients: is_asked.then(|| clients(gathered, &mut warnings)).flatten(),
            log: is_asked.then(|| log(gathered, &mut warnings)).flatten(),
            disks: gathered.disks.clone(),
            warnings: Vec::new(),
        };
        disks(&gathered.disks, &mut warnings);
        if let Some(told) = statistics {
            handle_key(told, &mut warnings);
        }
        if let Some((is_any_alive, what)) = names::warning(&gathered.name_servers) {
            let severity = if is_any_alive { Verdict::Warning } else { Verdict::Critical };
            warnings.add(severity, what, "steadfast doctor");
        }
        if let Some(mistake) = gathered.mistakes.first() {
            let what = format!("the configuration has a mistake: {mistake}");
            warnings.add(Verdict::Warning, what, "steadfast check-config");
        }
        let mut warnings = warnings.0;
        warnings.sort_by_key(|warning| std::cmp::Reverse(warning.severity));
        let verdict = warnings.first().map_or(Verdict::Fine, |worst| worst.severity);
        Self { verdict, warnings, ..report }
    }

    /// Of what could not be found out at all.
    pub fn unknown(why: &str) -> Self {
        let next = "steadfast check-config".to_owned();
        let warning = Warning { severity: Verdict::Unknown, what: why.to_owned(), next };
        Self {
            version: VERSION,
            verdict: Verdict::Unknown,
            serving: Serving::Unknown,
            why: Some(why.to_owned()),
            program_version: None,
            process: None,
            started_unix_ms: None,
            shares: None,
            clients: None,
            log: None,
            disks: Vec::new(),
            warnings: vec![warning],
        }
    }
}

#[derive(Default)]
struct Warnings(Vec<Warning>);

impl Warnings {
    fn add(&mut self, severity: Verdict, what: impl Into<String>, next: impl Into<String>) {
        self.0.push(Warning { severity, what: what.into(), next: next.into() });
    }

    /// For an answer that is missing.
    fn missing<T>(&mut self, answer: &Answer<T>, of: &str, next: &str) {
        let what = match answer {
            Answer::Told(_) => return,
            Answer::Late => format!(
                "the server tells nothing of its {of} within {} s: a disk may hang",
                PATIENCE.as_secs()
            ),
            Answer::Failed(error) => format!("the server tells nothing of its {of}: {error}"),
        };
        self.add(Verdict::Warning, what, next);
    }
}

/// A key that is new makes handles of before strange: for a day it is worth a look at the backups.
fn handle_key(told: &Statistics, warnings: &mut Warnings) {
    let is_new = told.server.get(NEW_HANDLE_KEY).is_some_and(|value| *value > 0);
    if is_new && told.taken_unix_ms.saturating_sub(told.started_unix_ms) < NEW_KEY_TOLD_MS {
        let what = "the server has made a new handle key at its start: clients that mounted before must mount again. If a \
                    backup has the old handle.key, stop the server, put it back, and start it";
        warnings.add(Verdict::Warning, what, "man steadfast   # BACKUP");
    }
}

fn serving(gathered: &Gathered, warnings: &mut Warnings) -> (Serving, Option<String>) {
    let (serving, severity, why, next) = match &gathered.statistics {
        Answer::Told(_) => return (Serving::Yes, None),
        Answer::Late => (
            Serving::NotAnswering,
            Verdict::Critical,
            format!("the server has not answered within {} s", PATIENCE.as_secs()),
            "journalctl -u steadfast -n 50",
        ),
        // A server that root has started is at another place.
        Answer::Failed(AskError::NoServer(_))
            if gathered.is_guessed && gathered.owner.is_none() =>
        {
            (
                Serving::Unknown,
                Verdict::Unknown,
                format!(
                    "no server of this user runs (state directory {})",
                    gathered.state_directory
                ),
                "sudo steadfast status",
            )
        }
        Answer::Failed(error) if error.is_without_server() => match gathered.owner {
            Some(process) => (
                Serving::StartingOrStopping,
                Verdict::Critical,
                format!(
                    "process {process} has the state directory {} and no control socket: it starts, which \
                     includes the recovery after a crash, or stops",
                    gathered.state_directory
                ),
                "journalctl -u steadfast -n 50",
            ),
            None => (
                Serving::NotRunning,
                Verdict::Critical,
                error.to_string(),
                "systemctl status steadfast",
            ),
        },
        // It was there, or is to be: whoever monitors it asks by its address.
        Answer::Failed(error @ (AskError::Connect { .. } | AskError::NoAnswer { .. })) => (
            Serving::NotAnswering,
            Verdict::Critical,
            error.to_string(),
            "journalctl -u steadfast -n 50",
        ),
        Answer::Failed(error @ AskError::NotPermitted(_)) => {
            (Serving::Unknown, Verdict::Unknown, error.to_string(), "sudo steadfast status")
        }
        Answer::Failed(error) => {
            (Serving::Unknown, Verdict::Unknown, error.to_string(), "journalctl -u steadfast -n 50")
        }
    };
    warnings.add(severity, why.clone(), next);
    (serving, Some(why))
}

fn shares(gathered: &Gathered, warnings: &mut Warnings) -> Option<Shares> {
    warnings.missing(&gathered.faulty, "faulty shares", "steadfast share list --state faulty");
    warnings.missing(&gathered.metrics, "counts", "steadfast statistics --prometheus");
    let metrics = gathered.metrics.told()?;
    let changing = sample(metrics, "steadfast_shares_change_seconds");
    if changing.is_some_and(|seconds| seconds > SHARES_CHANGE_S) {
        let what = "a change of shares does not end: it waits for a disk that hangs";
        warnings.add(Verdict::Warning, what, "journalctl -u steadfast -n 50");
    }
    descriptors(metrics, warnings);
    // None of them before the first count.
    let of = |state: &str| count(metrics, &format!("steadfast_shares{{state=\"{state}\"}}"));
    let faulty = gathered.faulty.told().into_iter().flat_map(|page| &page.shares);
    let shares = Shares {
        enabled: of("enabled")?,
        disabled: of("disabled")?,
        draining: of("draining")?,
        faulty: of("faulty")?,
        faults: faulty
            .map(|share| Fault {
                path: share.path.clone(),
                why: share.why.clone().unwrap_or_default(),
            })
            .collect(),
    };
    for share in &shares.faults {
        let what = format!("the share {} is not served: {}", share.path, share.why);
        warnings.add(
            Verdict::Critical,
            what,
            format!("steadfast share show {}", word(&share.path)),
        );
    }
    let filling = "shares that have most of their size";
    warnings.missing(&gathered.filling, filling, &sizes::list_command());
    let filling = gathered.filling.told().map_or(&[][..], |page| &page.shares);
    let size_faults = count(metrics, "steadfast_share_size_faults").unwrap_or(0);
    for (what, next) in sizes::warnings(filling, size_faults) {
        warnings.add(Verdict::Warning, what, next);
    }
    for trouble in &gathered.plugin_faults {
        let others = match trouble.others {
            0 => String::new(),
            others => format!(" and {others} others"),
        };
        let PluginTrouble { plugin, why, path, .. } = trouble;
        let what = format!("the plug-in {plugin} does not serve {path}{others}: {why}");
        let next = format!("steadfast share show {}", word(path));
        warnings.add(Verdict::Warning, what, next);
    }
    let more = shares.faulty.saturating_sub(shares.faults.len() as u64);
    if more > 0 {
        let what = format!("{more} other shares are faulty");
        warnings.add(Verdict::Critical, what, "steadfast share list --state faulty");
    }
    // Counts are of a second ago: who has just shared something is not told that nothing is.
    if gathered.faulty.told().is_some_and(|page| page.total == 0) {
        let what = "nothing is shared";
        warnings.add(Verdict::Warning, what, "steadfast share add DIR --client 10.0.0.0/8");
    }
    Some(shares)
}

fn descriptors(metrics: &str, warnings: &mut Warnings) {
    let open = sample(metrics, "steadfast_process_open_fds");
    let most = sample(metrics, "steadfast_process_max_fds");
    if let (Some(open), Some(most)) = (open, most)
        && open > most * DESCRIPTORS_PERCENT / 100.0
    {
        let what = format!("{open} of {most} descriptors are used");
        warnings.add(Verdict::Warning, what, "systemctl edit steadfast   # raise LimitNOFILE");
    }
}

/// A path as a word of a shell.
pub fn word(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%=".contains(c);
    if !path.is_empty() && path.chars().all(is_plain) {
        return path.to_owned();
    }
    format!("'{}'", path.replace('\'', "'\\''"))
}

fn clients(gathered: &Gathered, warnings: &mut Warnings) -> Option<Clients> {
    warnings.missing(&gathered.clients, "clients", "steadfast clients");
    let told: &ClientsReport = gathered.clients.told()?;
    let metrics = gathered.metrics.told()?;
    let statistics = gathered.statistics.told()?;
    let of = |name: &str| count(metrics, name).unwrap_or(0);
    let clients = Clients {
        with_state: told.total as u64,
        silent: told.clients.iter().filter(|one| one.state == "courteous").count() as u64,
        connections: statistics.server.get("connections").copied().unwrap_or(0),
        is_in_grace: told.is_in_grace,
        journaling: of("steadfast_journaling_clients"),
        awaited: of("steadfast_journaling_clients_awaited"),
        recovering: of("steadfast_journaling_clients_recovering"),
        missed: of("steadfast_journaling_clients_missed"),
    };
    if clients.is_in_grace {
        let what = "after a restart clients reclaim what they had: new opens and locks wait, 90 s as a rule";
        warnings.add(Verdict::Warning, what, "steadfast clients");
    }
    let coming = clients.awaited.saturating_add(clients.recovering);
    if coming > 0 {
        let what = format!(
            "{coming} clients with a journal have not brought back yet what a crash took: nobody else is \
             served on their shares"
        );
        warnings.add(Verdict::Warning, what, "journalctl -u steadfast -n 50");
    }
    if clients.missed > 0 {
        let what = format!(
            "{} clients with a journal did not come in time after a crash: what they were promised is missing",
            clients.missed
        );
        warnings.add(Verdict::Critical, what, "steadfast journal replay DIR   # on the client");
    }
    Some(clients)
}

fn log(gathered: &Gathered, warnings: &mut Warnings) -> Option<Log> {
    const NEXT: &str = "steadfast log status";
    let told: &LogReport = match &gathered.log {
        Answer::Told(told) => told,
        // It was configured so.
        Answer::Failed(AskError::Refused { status: 409, .. }) => return None,
        answer => {
            warnings.missing(answer, "log", NEXT);
            return None;
        }
    };
    let is_unmade = gathered
        .metrics
        .told()
        .and_then(|metrics| sample(metrics, "steadfast_log_phase{phase=\"unmade\"}"))
        .is_some_and(|value| value > 0.0);
    let figures = &told.figures;
    let faulty = figures
        .file_systems
        .iter()
        .filter_map(|one| Some(Fault { path: one.path.clone(), why: one.fault.clone()? }));
    let log = Log {
        phase: if is_unmade { "unmade".to_owned() } else { figures.phase.clone() },
        why: figures.why.clone(),
        path: told.path.clone(),
        ring_bytes: figures.ring_bytes,
        used_bytes: figures.used_bytes,
        waiting_replies: figures.parked,
        faults: faulty.collect(),
        set_aside_files: told.set_aside.len() as u64,
    };
    let why = log.why.as_deref().unwrap_or("it is being emptied");
    match log.phase.as_str() {
        // It was left since it must be, and cannot be emptied: changes wait.
        "closing" if log.why.is_some() => {
            warnings.add(Verdict::Critical, format!("changes wait for the log: {why}"), NEXT);
        }
        "closing" | "off" => {
            let what = format!("the log is not used, which is slower and as safe: {why}");
            warnings.add(Verdict::Warning, what, "steadfast log enable");
        }
        _ => {}
    }
    for fault in &log.faults {
        let what = format!("the file system of {} takes no changes: {}", fault.path, fault.why);
        warnings.add(Verdict::Critical, what, NEXT);
    }
    if log.set_aside_files > 0 {
        let what = format!(
            "{} files of changes wait for file systems that are not there or could not be recovered",
            log.set_aside_files
        );
        warnings.add(Verdict::Critical, what, NEXT);
    }
    if let Some(why) = &told.set_aside_fault {
        let what = format!("it is not known which changes are set aside: {why}");
        warnings.add(Verdict::Warning, what, NEXT);
    }
    if let Some(at) = &gathered.log_read_only_at {
        let what = format!("the file system of the log, at {at}, is read-only");
        warnings.add(Verdict::Warning, what, NEXT_OF_DISK);
    }
    if log.ring_bytes > 0 && percent(log.used_bytes, log.ring_bytes) > LOG_FULL_PERCENT {
        let what = format!("the log is {} % full", percent(log.used_bytes, log.ring_bytes));
        warnings.add(Verdict::Warning, what, "steadfast doctor");
    }
    Some(log)
}

fn disks(disks: &[Disk], warnings: &mut Warnings) {
    for disk in disks {
        let next = format!("df -h {}", word(&disk.path));
        if disk.changes_fail {
            let what = format!(
                "the file system at {} is read-only, as after an error of its disk, and a share on it is writable",
                disk.path
            );
            warnings.add(Verdict::Warning, what, NEXT_OF_DISK);
        }
        if let Some(why) = &disk.why {
            let what = format!("the disk at {}: {why}", disk.path);
            if disk.hangs {
                // df would hang, too.
                warnings.add(Verdict::Critical, what, NEXT_OF_DISK);
            } else {
                warnings.add(Verdict::Warning, what, next);
            }
        } else if disk.is_read_only {
            // Its fill level means nothing: what is on a read-only medium fills it.
        } else if disk.total_bytes > 0 && disk.available_bytes == 0 {
            warnings.add(Verdict::Critical, format!("the disk at {} is full", disk.path), next);
        } else if disk.used_percent() > DISK_FULL_PERCENT {
            let what = format!("the disk at {} is {} % full", disk.path, disk.used_percent());
            warnings.add(Verdict::Warning, what, next);
        }
    }
}

impl Disk {
    /// As df(1) has it: of what is used and what users may still write.
    pub fn used_percent(&self) -> u64 {
        percent(self.used_bytes, self.used_bytes.saturating_add(self.available_bytes))
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 100 / u128::from(whole.max(1))) as u64
}

#[cfg(test)]
mod tests;
