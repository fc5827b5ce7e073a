//! The command line of `steadfast capture`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use steadfast_control::capture::{
    CaptureFilter, SNAP_BYTES_LEAST, SNAP_BYTES_MAX, SNAP_BYTES_USUAL, network,
};

use crate::capture::is_operation;

/// Exit status: 0 captured, 1 the server cannot be asked or the file not be written to its end, 2 wrong usage.
#[derive(Clone, Debug, Args)]
pub struct CaptureArguments {
    /// The pcapng file to make, for its owner alone; `-` for standard output, which is the default unless that is a
    /// terminal.
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Replace a file that is there, or write to a pipe of that name.
    #[arg(long)]
    pub force: bool,
    /// Only messages of this client, or of the clients of this network.
    #[arg(long, value_name = "ADDRESS|NETWORK", value_parser = client)]
    pub client: Option<String>,
    /// Only calls of these procedures and COMPOUNDs with these operations, and their replies: `read,write`. Operations
    /// behind the bytes that are kept are not seen.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = operation)]
    pub operation: Vec<String>,
    /// Bytes kept of a message (default: 1024, with --contents all).
    #[arg(long, value_name = "BYTES",
        value_parser = clap::value_parser!(u32).range(i64::from(SNAP_BYTES_LEAST)..=i64::from(SNAP_BYTES_MAX)))]
    pub snaplen: Option<u32>,
    /// Keep what is read and written, too, and values of extended attributes.
    #[arg(long)]
    pub contents: bool,
    /// End after so many messages.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// End after so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<Duration>,
    /// End before the file is larger than so many MiB.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..1 << 40))]
    pub max_mib: Option<u64>,
}

impl CaptureArguments {
    /// What the server is asked for.
    pub(super) fn filter(&self) -> CaptureFilter {
        let usual = if self.contents { SNAP_BYTES_MAX } else { SNAP_BYTES_USUAL };
        CaptureFilter {
            client: self.client.clone(),
            snap_bytes: Some(self.snaplen.unwrap_or(usual)),
            contents: self.contents,
        }
    }
}

fn client(text: &str) -> Result<String, String> {
    network(text).map(|_| text.to_owned())
}

fn operation(text: &str) -> Result<String, String> {
    if is_operation(text) {
        return Ok(text.to_owned());
    }
    Err("there is no such procedure or operation: write names as getattr, read or open_confirm"
        .to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=31_536_000.0).contains(seconds));
    let seconds = seconds.ok_or_else(|| "write seconds, from 0.1 to 31536000".to_owned())?;
    Ok(Duration::from_secs_f64(seconds))
}
