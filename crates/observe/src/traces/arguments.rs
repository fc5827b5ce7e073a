//! The command line of `steadfast traces`.

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;

/// The flight recorder keeps so few calls that a longer interval would lose most.
const INTERVAL_MOST: Duration = Duration::from_secs(60);
/// Ten years.
const SECONDS_MOST: u64 = 315_360_000;
const INTERVAL_LEAST: Duration = Duration::from_millis(100);

/// Exit status: 0 sent, 1 not, 2 wrong usage.
#[derive(Clone, Debug, Args)]
pub struct TracesArguments {
    /// Where a collector listens for OTLP by HTTP: `http://127.0.0.1:4318`. Without a path it is `/v1/traces`.
    #[arg(long, value_name = "URL", required_unless_present = "print")]
    pub to: Option<String>,
    /// Print what would be sent, a line of JSON for each request, and send nothing.
    #[arg(long, conflicts_with = "to")]
    pub print: bool,
    /// Send this header too, such as a key of a hosted service. May be given several times.
    #[arg(long = "header", value_name = "NAME=VALUE")]
    pub headers: Vec<String>,
    /// The service's name in the traces.
    #[arg(long, value_name = "NAME", default_value = "steadfast")]
    pub service: String,
    /// Send so many calls a second at most.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rate: u32,
    /// Only calls of this client.
    #[arg(long, value_name = "ADDRESS")]
    pub client: Option<IpAddr>,
    /// Only calls of this procedure, or COMPOUNDs with this operation among their first eight: `WRITE`, in any case.
    #[arg(long, value_name = "NAME")]
    pub operation: Option<String>,
    /// Only calls that took so many microseconds or more.
    #[arg(long, value_name = "MICROSECONDS")]
    pub slower_than: Option<u64>,
    /// Ask the server every so many seconds, from 0.1 to 60.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: Duration,
    /// End after so many seconds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=SECONDS_MOST))]
    pub seconds: Option<u64>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().map(Duration::try_from_secs_f64).and_then(Result::ok);
    let seconds = seconds.filter(|seconds| (INTERVAL_LEAST..=INTERVAL_MOST).contains(seconds));
    seconds.ok_or_else(|| "write a number of seconds from 0.1 to 60".to_owned())
}
