//! `bench nhfsstone`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use steadfast_client::StableHow;

use super::common::{
    OutputArguments, ServerArguments, VersionArguments, call_size, seconds, size, stability,
    wait_for_line,
};
use crate::drive::{Arrivals, Control};
use crate::error::BenchError;
use crate::mix::{MIX_BYTES_MAX, Mix, MixError};
use crate::nhfsstone::{Level, Nhfsstone, Report, run_when};

/// The options.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    version: VersionArguments,
    /// Shares, all loaded alike.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<String>,
    /// A preset mix: legato or oleinick (their mixes are the same).
    #[arg(long, value_name = "NAME", default_value = "legato")]
    mix: String,
    /// A file with lines of an operation and its weight, or what `nfsstat -s` or `steadfast
    /// statistics --json` prints; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "mix")]
    mix_file: Option<PathBuf>,
    /// Leave these operations out of the mix.
    #[arg(long, value_name = "OPERATION", value_delimiter = ',')]
    without: Vec<String>,
    /// Leave out operations whose reply waits for a disk, and write unstable.
    #[arg(long, conflicts_with = "stable")]
    without_stable: bool,
    /// So many percent of the calls change something; the mix decides what.
    #[arg(long, value_name = "PERCENT", conflicts_with = "without_stable")]
    changes: Option<f64>,
    /// Load levels in calls a second, or max.
    #[arg(long, value_name = "RATE", value_delimiter = ',', default_value = "max")]
    load: Vec<Level>,
    /// How scheduled calls follow each other: exponential or even.
    #[arg(long, value_name = "HOW", default_value = "exponential")]
    arrivals: Arrivals,
    /// Virtual clients.
    #[arg(long, value_name = "N", default_value_t = 16)]
    clients: usize,
    /// Calls in flight of a client, at most.
    #[arg(long, value_name = "N", default_value_t = 8)]
    depth: usize,
    /// Client threads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// How long each level is measured.
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    seconds: Duration,
    /// Not measured, before each level.
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    warm_up: Duration,
    /// Files of the working set for each call a second.
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    files_per_call: f64,
    /// The load in calls a second that max is taken for when the working set is sized.
    #[arg(long, value_name = "RATE", default_value_t = 10_000.0)]
    load_of_max: f64,
    /// Files of the working set, whatever the load.
    #[arg(long, value_name = "N", conflicts_with_all = ["files_per_call", "load_of_max"])]
    files: Option<usize>,
    /// Size of each file.
    #[arg(long, value_name = "SIZE", default_value = "32k", value_parser = size)]
    file_size: u64,
    /// Bytes of a READ or WRITE.
    #[arg(long, value_name = "SIZE", default_value = "8k", value_parser = call_size)]
    transfer: u32,
    /// How stable WRITEs are to be: unstable, `data_sync` or `file_sync`.
    #[arg(long, value_name = "HOW", default_value = "file_sync", value_parser = stability)]
    stable: StableHow,
    /// Leave what was made in the share.
    #[arg(long)]
    keep: bool,
    /// Say "prepared" on standard error when all is, and begin when a line comes on standard
    /// input.
    #[arg(long)]
    paused: bool,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

impl Arguments {
    /// What is meant.
    fn load(&self) -> Result<Nhfsstone, BenchError> {
        let (mut mix, place) = self.mix()?;
        let faulty = |error: MixError| BenchError::Mix { place: place.clone(), error };
        if !self.without.is_empty() {
            mix = mix.without(&self.without).map_err(faulty)?;
        }
        if self.without_stable {
            mix = mix.without_changes().map_err(faulty)?;
        }
        if let Some(percent) = self.changes {
            mix = mix.with_changes(percent).map_err(faulty)?;
        }
        Ok(Nhfsstone {
            target: self.server.target(),
            paths: self.paths.clone(),
            nfs: self.version.nfs,
            mix,
            levels: self.load.clone(),
            arrivals: self.arrivals,
            clients: self.clients,
            depth: self.depth,
            threads: self.threads,
            warm_up: self.warm_up,
            duration: self.seconds,
            files_per_call: self.files_per_call,
            load_of_most: self.load_of_max,
            files: self.files,
            file_bytes: self.file_size,
            transfer_bytes: self.transfer,
            stable: if self.without_stable { StableHow::Unstable } else { self.stable },
            server_pid: self.server.pid,
            cleans_up: !self.keep,
        })
    }

    /// Measures.
    pub(super) fn run(&self, control: &Control) -> Result<Report, BenchError> {
        run_when(&self.load()?, control, || {
            if self.paused {
                wait_for_line();
            }
        })
    }

    /// The mix, and where it comes from.
    fn mix(&self) -> Result<(Mix, String), BenchError> {
        let Some(path) = &self.mix_file else {
            let unknown = || {
                let what = format!("there is no mix called {:?}: legato, oleinick", self.mix);
                BenchError::Usage(what)
            };
            return Ok((Mix::preset(&self.mix).ok_or_else(unknown)?, self.mix.clone()));
        };
        let failed = |error| BenchError::File { path: path.clone(), error };
        let mut text = String::new();
        // One more than is taken, so that what is too long is noticed.
        let limit = MIX_BYTES_MAX as u64 + 1;
        let mut input: Box<dyn std::io::Read> = if path.as_os_str() == "-" {
            Box::new(std::io::stdin())
        } else {
            Box::new(std::fs::File::open(path).map_err(failed)?)
        };
        std::io::Read::read_to_string(&mut std::io::Read::take(&mut input, limit), &mut text)
            .map_err(failed)?;
        let place = path.display().to_string();
        match Mix::parse(&text) {
            Ok(mix) => Ok((mix, place)),
            Err(error) => Err(BenchError::Mix { place, error }),
        }
    }
}
