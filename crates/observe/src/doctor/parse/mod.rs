//! Readers of what the kernel and others tell as text. Each is a function of the text alone.
//!
//! Kernels add columns and lines, and containers hide some: what is missing or odd is left out, never an
//! error. A reader takes memory in proportion to the text, and [`LINES_MAX`] lines at the most.

pub mod host;
pub mod mountstats;
pub mod network;
pub mod rpc;
pub mod system;

use std::collections::BTreeMap;

/// Lines of one text that are read: 100,000 sockets or mounts are more than a report can use.
pub const LINES_MAX: usize = 100_000;

/// Counters by name.
pub type Counters = BTreeMap<String, u64>;

/// The lines of a text, bounded.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take(LINES_MAX)
}

/// The next word as a number.
pub(crate) fn number<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<u64> {
    words.next()?.parse().ok()
}

/// The next word as a number, or 0.
pub(crate) fn number_or_zero<'a>(words: &mut impl Iterator<Item = &'a str>) -> u64 {
    number(words).unwrap_or(0)
}
