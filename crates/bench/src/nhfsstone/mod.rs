//! nhfsstone: a mix of operations at a held rate, after Legato's and Oleinick's papers.
//!
//! [`Nhfsstone`] says which mix at which load levels, [`run`] does it and returns a [`Report`]:
//! for each level Oleinick's Table 1 (mix, ms/call, percent of time), and over all levels the
//! curve of Legato's Figure 2. Inside: `tree` makes the working set, sized by the load,
//! `script` draws operations, builds calls and checks replies, `check` looks at what they left.

mod check;
mod report;
mod script;
mod tree;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use steadfast_client::StableHow;

use crate::drive::{self, Arrivals, Control, Pace, Plan, Transport};
use crate::error::BenchError;
use crate::mix::Mix;
use crate::pattern;
use crate::setup::Target;
use crate::version::NfsVersion;
pub use report::{LevelReport, Report};
use script::Mixed;
use tree::WorkingSet;

/// Most files of a working set.
pub const FILES_MAX: usize = 2_000_000;
/// The largest READ and WRITE: replies are kept whole.
pub const TRANSFER_BYTES_MAX: u32 = 30 << 10;

/// How much load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Level {
    /// So many calls a second, whatever the server does (an open loop).
    Rate(f64),
    /// As many as the server answers (a closed loop).
    Most,
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "max" => Ok(Self::Most),
            Ok(rate) if (0.01..=1e8_f64).contains(&rate) => Ok(Self::Rate(rate)),
            _ => Err("write calls per second, or max".to_owned()),
        }
    }
}

/// What to do to which server.
#[derive(Clone, Debug)]
pub struct Nhfsstone {
    /// The server.
    pub target: Target,
    /// Its shares, all loaded alike.
    pub paths: Vec<String>,
    /// Over which version of NFS all is done.
    pub nfs: NfsVersion,
    /// Which operations.
    pub mix: Mix,
    /// Load levels, one after the other.
    pub levels: Vec<Level>,
    /// How scheduled calls follow each other.
    pub arrivals: Arrivals,
    /// Virtual clients.
    pub clients: usize,
    /// Calls in flight of a client, at most.
    pub depth: usize,
    /// Client threads.
    pub threads: usize,
    /// Not measured, before each level.
    pub warm_up: Duration,
    /// How long each level is measured.
    pub duration: Duration,
    /// Files of the working set for each call a second.
    pub files_per_call: f64,
    /// The load that a level without a rate is taken for when the working set is sized.
    pub load_of_most: f64,
    /// Files of the working set, if they do not go by the load.
    pub files: Option<usize>,
    /// Bytes of each file.
    pub file_bytes: u64,
    /// Bytes of a READ or WRITE.
    pub transfer_bytes: u32,
    /// How stable WRITEs are to be.
    pub stable: StableHow,
    /// The server's process, if it runs here.
    pub server_pid: Option<u32>,
    /// Removes the working set at the end.
    pub cleans_up: bool,
}

impl Nhfsstone {
    /// The preset mix at one level, as fast as the server can, on 16 clients × 8.
    pub fn new(target: Target, path: &str) -> Self {
        Self {
            target,
            paths: vec![path.to_owned()],
            nfs: NfsVersion::V3,
            mix: Mix::legato(),
            levels: vec![Level::Most],
            arrivals: Arrivals::default(),
            clients: 16,
            depth: 8,
            threads: 1,
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(10),
            files_per_call: 1.0,
            load_of_most: 10_000.0,
            files: None,
            file_bytes: 32 << 10,
            transfer_bytes: 8 << 10,
            stable: StableHow::FileSync,
            server_pid: None,
            cleans_up: true,
        }
    }

    /// The load that a level is taken for.
    fn load(&self, level: Level) -> f64 {
        match level {
            Level::Rate(rate) => rate,
            Level::Most => self.load_of_most,
        }
    }

    /// How many files the working set of a level has.
    fn files(&self, level: Level) -> usize {
        let by_load = (self.load(level) * self.files_per_call).ceil() as usize;
        self.files.unwrap_or(by_load).clamp(tree::FILES_MIN, FILES_MAX)
    }

    fn check(&self) -> Result<(), BenchError> {
        let usage = |what: &str| Err(BenchError::Usage(what.to_owned()));
        if self.paths.is_empty() || self.levels.is_empty() {
            return usage("at least one share and one load level are needed");
        }
        if self.transfer_bytes == 0 || self.transfer_bytes > TRANSFER_BYTES_MAX {
            return usage("a READ or WRITE must have between 1 and 30720 bytes");
        }
        let transfer = u64::from(self.transfer_bytes);
        if self.file_bytes < transfer || !self.file_bytes.is_multiple_of(transfer) {
            return usage("the size of files must be a multiple of that of READs and WRITEs");
        }
        if !self.files_per_call.is_finite() || self.files_per_call < 0.0 {
            return usage("the files for each call a second must be a number");
        }
        if self.files.is_some_and(|files| !(tree::FILES_MIN..=FILES_MAX).contains(&files)) {
            let what = format!("--files must be from {} to {FILES_MAX}", tree::FILES_MIN);
            return usage(&what);
        }
        Ok(())
    }
}

/// Where written contents lie in the pattern, beside those that the files were filled with.
const WRITTEN: usize = 512;

/// Whether data read from a file is what it was filled with, or what was written there later. A READ may meet
/// a WRITE, and on ext4 find some of a page written and some not: so each place that is looked at counts for itself.
fn is_plausible(file: usize, offset: u64, data: &[u8]) -> bool {
    const STEP: usize = 1024;
    const WORD: usize = 8;
    let tail = data.len().saturating_sub(WORD);
    (0..data.len()).step_by(STEP).chain(std::iter::once(tail)).all(|at| {
        let word = data.get(at..data.len().min(at + WORD)).unwrap_or(&[]);
        [file, file + WRITTEN]
            .iter()
            .any(|file| pattern::slice(*file, offset + at as u64, word.len()) == word)
    })
}

/// Makes the working set, puts each level's load on the server, and reports.
///
/// # Errors
/// When the server cannot be reached, fails a call, or breaks a promise.
pub fn run(load: &Nhfsstone, control: &Control) -> Result<Report, BenchError> {
    run_when(load, control, || {})
}

/// As [`run`]; calls `is_prepared` between making the working set and putting the first load on, so
/// that somebody else can make the disk what it is to be, or begin to watch.
///
/// # Errors
/// As [`run`].
pub fn run_when(
    load: &Nhfsstone,
    control: &Control,
    is_prepared: impl FnOnce(),
) -> Result<Report, BenchError> {
    load.check()?;
    let places = tree::begin(load)?;
    let files = load.levels.iter().map(|level| load.files(*level)).max().unwrap_or(0);
    let outcome = WorkingSet::make(load, &places, files, control).and_then(|set| {
        control.clear();
        is_prepared();
        levels(load, &Arc::new(set), control)
    });
    let removed = if load.cleans_up {
        control.show("nhfsstone: removing the working set");
        tree::remove(load, &places)
    } else {
        Ok(())
    };
    control.clear();
    let report = outcome?;
    removed?;
    Ok(report)
}

fn levels(
    load: &Nhfsstone,
    set: &Arc<WorkingSet>,
    control: &Control,
) -> Result<Report, BenchError> {
    let mut report = Report::new(load);
    for (number, level) in load.levels.iter().enumerate() {
        if control.is_interrupted() {
            break;
        }
        let pace = match level {
            Level::Most => Pace::Closed,
            Level::Rate(rate) => Pace::Open { calls_per_second: *rate, arrivals: load.arrivals },
        };
        let title = match level {
            Level::Most => "nhfsstone max".to_owned(),
            Level::Rate(rate) => format!("nhfsstone {rate:.0} calls/s"),
        };
        let plan = Plan {
            server: load.target.server,
            clients: load.clients,
            transport: Transport::Tcp,
            first_address: Some(0),
            depth: load.depth,
            threads: load.threads,
            pace,
            warm_up: load.warm_up,
            duration: load.duration,
            server_pid: load.server_pid,
            kinds: script::kinds(load.nfs).len(),
            title,
        };
        let files = load.files(*level);
        let scripts = (0..plan.threads)
            .map(|thread| Mixed::new(load, set, files, number, &plan.clients_of(thread)))
            .collect();
        let outcome = drive::run(&plan, scripts, control)?;
        let looked_at = check::names_and_data(load, set, &outcome.scripts)?;
        report.levels.push(LevelReport::new(load.nfs, *level, files, &outcome, looked_at)?);
    }
    if report.levels.is_empty() { Err(BenchError::Interrupted) } else { Ok(report) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_rates_or_the_most() {
        assert_eq!("max".parse(), Ok(Level::Most));
        assert_eq!("1000".parse(), Ok(Level::Rate(1000.0)));
        for text in ["", "0", "-1", "nan", "inf", "much"] {
            assert!(text.parse::<Level>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_working_set_goes_by_the_load_and_not_by_the_clients() {
        let mut load = Nhfsstone::new(Target::new("127.0.0.1:1".parse().unwrap()), "/");
        load.files_per_call = 2.0;
        let files = load.files(Level::Rate(1000.0));
        load.clients = 5000;
        assert_eq!((files, load.files(Level::Rate(1000.0))), (2000, 2000));
        assert_eq!(load.files(Level::Rate(1e8)), FILES_MAX);
        assert_eq!(load.files(Level::Rate(1.0)), tree::FILES_MIN);
        for files in [0, tree::FILES_MIN - 1, FILES_MAX + 1] {
            load.files = Some(files);
            assert!(load.check().unwrap_err().to_string().contains("--files"), "{files}");
        }
        load.files = Some(700);
        load.check().unwrap();
        assert_eq!((load.files(Level::Rate(1000.0)), load.files(Level::Most)), (700, 700));
    }

    #[test]
    fn data_is_what_was_there_or_what_was_written() {
        let old = pattern::slice(7, 8192, 8192);
        let new = pattern::slice(7 + WRITTEN, 8192, 8192);
        let mut mixed = old[..4096].to_vec();
        mixed.extend_from_slice(&new[4096..]);
        // The WRITE has come to the middle of the first page.
        let torn = [&new[..1304], &old[1304..]].concat();
        for data in [old, new, &mixed, &torn] {
            assert!(is_plausible(7, 8192, data));
        }
        assert!(!is_plausible(8, 8192, old));
        mixed[5000..].fill(0);
        assert!(!is_plausible(7, 8192, &mixed));
        assert!(is_plausible(7, 8192, &[]) && is_plausible(7, 8192, &old[..5]));
    }
}
