//! The command line of `steadfast top`.

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;
use steadfast_control::top::{
    COUNTS_FOR_S, ROWS_MAX, ROWS_USUAL, TopBy, TopFilter, TopSort, WINDOW_LEAST_MS,
};

/// A shorter one would tell the same window twice.
pub(super) const INTERVAL_LEAST: Duration = Duration::from_millis(WINDOW_LEAST_MS);
/// A server does not count for much longer.
const INTERVAL_MOST_S: u64 = 10;
const _: () = assert!(INTERVAL_MOST_S < COUNTS_FOR_S);

/// Exit status: 0 shown, 1 no server could be asked, 2 wrong usage.
#[derive(Clone, Debug, Args)]
pub struct TopArguments {
    /// What the table has its rows by: operation, client, user, share or file.
    #[arg(long, value_name = "WHAT", default_value_t = TopBy::Operation)]
    pub by: TopBy,
    /// Which rows come first: those with most calls, latency (of a call on average), slowest (call), time (of all
    /// calls), errors or retransmissions.
    #[arg(long, value_name = "WHAT", default_value_t = TopSort::Calls)]
    pub sort: TopSort,
    /// Only calls of this client.
    #[arg(long, value_name = "ADDRESS")]
    pub client: Option<IpAddr>,
    /// Only rows with this in their names, in any case.
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Seconds between two tables, from 0.5 to 10.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub interval: Duration,
    /// End after so many intervals.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Print one table and end, in a terminal too.
    #[arg(long, conflicts_with = "count")]
    pub once: bool,
    /// Rows of a table of lines.
    #[arg(long, value_name = "N", default_value_t = ROWS_USUAL, value_parser = rows)]
    pub rows: usize,
    /// For programs: one line of JSON for each table.
    #[arg(long)]
    pub json: bool,
}

impl TopArguments {
    /// What is asked for at the beginning.
    pub(super) fn filter(&self, limit: usize) -> TopFilter {
        TopFilter {
            by: self.by,
            sort: self.sort,
            limit: Some(limit),
            client: self.client,
            filter: self.filter.clone(),
        }
    }
}

fn rows(text: &str) -> Result<usize, String> {
    let rows = text.parse().ok().filter(|rows| (1..=ROWS_MAX).contains(rows));
    rows.ok_or_else(|| format!("write a number from 1 to {ROWS_MAX}"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().map(Duration::try_from_secs_f64).and_then(Result::ok);
    let range = INTERVAL_LEAST..=Duration::from_secs(INTERVAL_MOST_S);
    let seconds = seconds.filter(|seconds| range.contains(seconds));
    seconds.ok_or_else(|| format!("write seconds, from 0.5 to {INTERVAL_MOST_S}"))
}
