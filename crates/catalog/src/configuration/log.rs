//! `[log]`: the intent log.

use std::path::PathBuf;

use super::Placed;
use super::document::{Document, Table};

pub(super) const KEYS: [&str; 9] = [
    "enabled",
    "path",
    "size_mib",
    "stable_write_bytes_max",
    "unstable_write_bytes_max",
    "checkpoint_interval_ms",
    "checkpoint_fill_percent",
    "device_retry_interval_s",
    "replies_mib",
];

/// The smallest and the largest log that is made, in MiB.
pub const LOG_MIB: (u64, u64) = (16, 1 << 20);
/// The least and the most MiB of replies that are kept.
const REPLIES_MIB: (u64, u64) = (1, 4096);
/// Largest WRITE that can be logged, in bytes: a record's bound, and some less.
const WRITE_BYTES_MAX: u64 = 1 << 20;

/// `[log]`; what is `None` was not said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSettings {
    /// Whether changes are logged.
    pub enabled: Option<bool>,
    /// The file or block device.
    pub path: Option<Placed<PathBuf>>,
    /// How large a file is made if there is none.
    pub size_mib: Option<u64>,
    /// Largest WRITE that must be stable and is logged.
    pub stable_write_bytes_max: Option<usize>,
    /// Largest WRITE that need not be stable and is logged.
    pub unstable_write_bytes_max: Option<usize>,
    /// Time between checkpoints.
    pub checkpoint_interval_ms: Option<u64>,
    /// How full the log may be before a checkpoint comes early.
    pub checkpoint_fill_percent: Option<u64>,
    /// After its device has failed, time between two looks at whether it is well again.
    pub device_retry_interval_s: Option<u64>,
    /// How many MiB of replies outlive the server.
    pub replies_mib: Option<u64>,
}

pub(super) fn read(document: &mut Document<'_>, root: Table<'_>) -> LogSettings {
    let Some(table) = document.table(root, "log") else {
        return LogSettings::default();
    };
    document.known_keys(table, "[log]", &KEYS);
    let mut number =
        |key, least, most| document.integer(table, key, least, most).map(|number| number.value);
    let bytes = |number: Option<u64>| number.and_then(|n| usize::try_from(n).ok());
    LogSettings {
        size_mib: number("size_mib", LOG_MIB.0, LOG_MIB.1),
        stable_write_bytes_max: bytes(number("stable_write_bytes_max", 0, WRITE_BYTES_MAX)),
        unstable_write_bytes_max: bytes(number("unstable_write_bytes_max", 0, WRITE_BYTES_MAX)),
        checkpoint_interval_ms: number("checkpoint_interval_ms", 10, 3_600_000),
        checkpoint_fill_percent: number("checkpoint_fill_percent", 1, 90),
        device_retry_interval_s: number("device_retry_interval_s", 1, 86_400),
        replies_mib: number("replies_mib", REPLIES_MIB.0, REPLIES_MIB.1),
        enabled: document.boolean(table, "enabled"),
        path: document
            .string(table, "path")
            .and_then(|path| super::absolute_path(document, "path", &path)),
    }
}
