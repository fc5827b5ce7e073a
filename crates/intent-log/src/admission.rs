//! What an operation gets before it is applied: room for its record, or the reason why not.

use thiserror::Error;

/// Room in the ring for one record. To be given to [`crate::IntentLog::reserve`] or
/// [`crate::IntentLog::cancel`]: one that is lost keeps its room for as long as the log runs.
#[must_use = "its room is to be used or given back"]
#[derive(Debug)]
pub struct Admission {
    pub(crate) payload_bytes_max: u32,
    pub(crate) room_bytes: u64,
}

/// Why an operation is not admitted. It is to be made stable without the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// The ring has no room now: checkpoint.
    #[error("the intent log is full: {wanted_bytes} bytes wanted, {free_bytes} free")]
    Full {
        /// Room for the record at the worst.
        wanted_bytes: u64,
        /// What there is.
        free_bytes: u64,
    },
    /// The ring will never have room for it.
    #[error("a record of {payload_bytes} bytes is too large for the intent log")]
    TooLarge {
        /// The payload's bound.
        payload_bytes: usize,
    },
    /// A write failed, or the log was given up.
    #[error("the intent log has failed and is not used any more")]
    Failed,
    /// The log is being closed.
    #[error("the intent log is closed")]
    Closed,
}
