//! What is called now, and by whom: `GET /v1/top`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Of the document's form.
pub const VERSION: u32 = 1;
/// Most rows of one answer.
pub const ROWS_MAX: usize = 1000;
/// Rows of an answer if nobody says how many.
pub const ROWS_USUAL: usize = 20;
/// For so long after a question the server counts. Who asks less often gets an empty answer each time.
pub const COUNTS_FOR_S: u64 = 15;
/// A window is at least so long: who asks earlier gets the last one again.
pub const WINDOW_LEAST_MS: u64 = 500;

/// An enumeration with a name for each of its values.
macro_rules! named {
    ($(#[$doc:meta])* $kind:ident { $($(#[$one:meta])* $value:ident = $name:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum $kind { $($(#[$one])* $value,)+ }

        impl $kind {
            /// All, in their order.
            pub const ALL: &'static [Self] = &[$(Self::$value),+];

            /// Its name, in documents too.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$value => $name,)+ }
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $kind {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let found = Self::ALL.iter().find(|one| one.name() == text).copied();
                found.ok_or_else(|| {
                    let names: Vec<&str> = Self::ALL.iter().map(|one| one.name()).collect();
                    format!("write one of {}", names.join(", "))
                })
            }
        }
    };
}

named! {
    /// What rows are by.
    TopBy {
        /// Procedures, and the operations of COMPOUNDs.
        #[default]
        Operation = "operation",
        /// Addresses of clients.
        Client = "client",
        /// Users, after squashing.
        User = "user",
        /// Shares.
        Share = "share",
        /// Files.
        File = "file",
    }
}

named! {
    /// Which rows come first: those with most of this.
    TopSort {
        /// Calls.
        #[default]
        Calls = "calls",
        /// Latency of a call on average.
        Latency = "latency",
        /// Latency of the slowest call.
        Slowest = "slowest",
        /// Latency of all calls together.
        Time = "time",
        /// Calls that failed.
        Errors = "errors",
        /// Repeated calls.
        Retransmissions = "retransmissions",
    }
}

/// Which rows to tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopFilter {
    /// What rows are by.
    #[serde(default)]
    pub by: TopBy,
    /// Which come first.
    #[serde(default)]
    pub sort: TopSort,
    /// At most so many; [`ROWS_USUAL`] if it is not said, [`ROWS_MAX`] at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only calls of this client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<IpAddr>,
    /// Only rows with this in their names, in any case of ASCII letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

/// `GET /v1/top`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TopReport {
    /// [`VERSION`] of who wrote it.
    pub version: u32,
    /// When it was made.
    pub taken_unix_ms: u64,
    /// How long the window is in which calls were counted. 0 if counting has begun with this question: ask again.
    pub window_us: u64,
    /// What rows are by.
    pub by: TopBy,
    /// Whose calls alone are told.
    pub client: Option<IpAddr>,
    /// All calls of the window.
    pub total: TopLine,
    /// The first ones. Their names are those of operations, addresses, user numbers or paths.
    pub rows: Vec<TopLine>,
    /// How many rows there are, told or not, with the name that was asked for.
    pub row_count: usize,
    /// Calls that have no row of their own, as there were too many rows.
    pub others: TopLine,
}

impl TopReport {
    /// So many in the window are how many a second.
    pub fn a_second(&self, count: u64) -> f64 {
        if self.window_us == 0 { 0.0 } else { count as f64 * 1e6 / self.window_us as f64 }
    }
}

/// Calls that were answered in the window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopLine {
    /// Whose they are. White space, control characters, `%` and bytes that are no UTF-8 are written as `%` and two
    /// hexadecimal digits.
    pub name: String,
    /// How many.
    pub calls: u64,
    /// Of which failed.
    pub errors: u64,
    /// Of which repeated a call that the server knew.
    pub retransmissions: u64,
    /// Latency of all together: from the end of the receive until the reply was handed to the socket.
    pub latency_ns: u64,
    /// Latency of the slowest.
    pub latency_max_ns: u64,
}

impl TopLine {
    /// Latency of a call on average, in ns.
    pub fn mean_ns(&self) -> u64 {
        self.latency_ns.checked_div(self.calls).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use super::*;

    #[test]
    fn names_are_those_of_documents() {
        for by in TopBy::ALL {
            assert_eq!(serde_json::to_string(by).unwrap(), format!("{:?}", by.name()));
            assert_eq!(by.name().parse(), Ok(*by));
        }
        for sort in TopSort::ALL {
            assert_eq!(serde_json::to_string(sort).unwrap(), format!("{:?}", sort.name()));
        }
        assert!("fil".parse::<TopBy>().unwrap_err().contains("file"));
    }

    #[test]
    fn a_window_that_is_not_over_has_no_rates() {
        let report = TopReport { window_us: 2_000_000, ..TopReport::default() };
        assert_eq!(report.a_second(5).to_bits(), 2.5_f64.to_bits());
        assert_eq!(TopReport::default().a_second(5).to_bits(), 0.0_f64.to_bits());
        assert_eq!(TopLine::default().mean_ns(), 0);
    }
}
