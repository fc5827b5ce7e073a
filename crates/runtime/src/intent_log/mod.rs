//! The intent log at work: its medium, its threads, its start after a crash.
//!
//! - [`StartIntentLog`]: opens the log, or makes it, and replays what a crash has left;
//! - [`IntentLogKeeper`]: takes changes, writes them, sends the replies that wait for them, and
//!   empties the log by checkpoints;
//! - [`LogHandle`]: the log as storage sees it ([`steadfast_vfs::ChangeLog`]).
//!
//! Bytes and their order are the crate `steadfast-intent-log`'s, what a record means the engine's.

mod aside;
mod care;
mod checkpoint;
mod committer;
mod keeper;
mod medium;
mod observed;
mod place;
mod replay;
mod served;
mod start;

/// Bytes as people write them.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub use care::LogCare;
pub use keeper::{IntentLogKeeper, IntentLogOptions, IntentLogStatus, Phase};
pub use medium::FileMedium;
pub use place::LogHandle;
pub use replay::ReplayError;
pub use start::{
    OpenStorage, StartIntentLog, StartIntentLogError, StartedIntentLog, is_any_open,
    is_anything_set_aside,
};
