//! The intent log at work: its medium, its threads, its start after a crash.
//!
//! - [`StartIntentLog`]: opens the log, or makes it, and replays what a crash has left;
//! - [`IntentLogKeeper`]: takes changes, writes them, sends the replies that wait for them, and
//!   empties the log by checkpoints;
//! - [`LogHandle`]: the log as storage sees it ([`steadfast_recovery::ChangeLog`]).
//!
//! Modules in the order of their use, each uses only those below it: `care` and `choices` (of `start` they use only
//! its errors), `start`, `keeper` (its head names its parts), all others.
//!
//! Bytes and their order are the crate `steadfast-intent-log`'s, what a record means is `steadfast-recovery`'s.
#![forbid(unsafe_code)]

mod adopting;
mod aside;
mod begun;
mod care;
mod choices;
mod client_records;
mod compared;
mod device;
mod device_flush;
mod keeper;
mod known;
mod listing;
mod medium;
mod mutation;
mod observed;
mod outliving;
mod probe;
mod records;
mod refused;
mod replay;
mod replies;
mod start;
mod state_image;
mod storages;
mod told;
mod under_way;

/// Bytes as people write them.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

use steadfast_intent_log::{Superblock, Survey, survey_operations};

pub use adopting::{LookAround, MountedNow};
pub use aside::SetAside;
pub use begun::forget_begun;
pub use care::{LogCare, LogFound, OperationsFound, SuperblockFound};
pub use client_records::ClientRecordFile;
pub use device::{BlockDevice, DeviceWrites, Medium as DeviceMedium};
pub use keeper::faults::FaultySince;
pub use keeper::left::Left;
pub use keeper::place::LogHandle;
pub use keeper::requests::LastCheckpoint;
pub use keeper::status::{FileSystemStatus, IntentLogStatus};
pub use keeper::switch::{Flushed, SwitchError};
pub use keeper::{IntentLogKeeper, IntentLogOptions, Phase};
pub use known::is_any_open;
pub use medium::FileMedium;
pub use probe::{Probe, ProbeError, SizeProbe, Times, Verdict, probe};
pub use records::ReplayError;
pub use replies::{RepliesKept, kept_replies};
pub use start::{StartIntentLog, StartIntentLogError, StartedIntentLog, is_anything_set_aside};
pub use state_image::{FoundState, StateImageFile};
pub use storages::OpenStorage;
pub use under_way::forget_under_way;

/// What is in a log; notes for replay are no operations.
fn survey(medium: &FileMedium, superblock: &Superblock) -> Survey {
    survey_operations(medium, superblock, &listing::is_operation)
}
