//! The records of one file system, wherever they are kept, and why they may not be replayed.

use steadfast_intent_log::{Extent, Medium, Reader};
use steadfast_vfs::FsError;

/// Why replay did not come to its end. It can be tried again.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The storage failed.
    #[error("{step} failed: {}", words(*source))]
    Storage {
        /// What was done, on which object.
        step: String,
        /// Why.
        source: FsError,
    },
    /// A record is there, but is none that this program writes.
    #[error("record {0} of the intent log is not one that this version understands")]
    Record(u64),
    /// The state directory failed.
    #[error("the state directory failed: {0}")]
    StateDirectory(#[from] std::io::Error),
    /// What was replayed could not be made stable.
    #[error("what was replayed cannot be made stable: {0}")]
    NotStable(String),
    /// The records could not be read to where they were read before.
    #[error("the records cannot be read any more: {0}")]
    Log(String),
}

/// What is the matter, for one who can do something about it.
fn words(error: FsError) -> String {
    match error {
        // Clients are told so; an administrator is not one.
        FsError::TryLater => "memory or file descriptors are short, or the object is in use by \
                              another process, for now"
            .to_owned(),
        FsError::Stale | FsError::BadHandle => {
            format!("{error}: an object that the operation needs is not there")
        }
        error => error.to_string(),
    }
}

impl ReplayError {
    /// Whether the file system is at fault, and not the log or what is kept beside it.
    pub(super) fn is_of_storage(&self) -> bool {
        matches!(self, Self::Storage { .. } | Self::NotStable(_))
    }
}

/// Who takes a record's LSN and payload.
pub(super) type TakeRecord<'t> = dyn FnMut(u64, &[u8]) -> Result<(), ReplayError> + 't;

/// The records of one file system.
pub(super) trait Records {
    /// Gives each live record, in order; returns how many there were.
    fn each(&self, take: &mut TakeRecord<'_>) -> Result<u64, ReplayError>;
}

/// Records in the ring.
pub(super) struct RingRecords<'a> {
    pub(super) medium: &'a dyn Medium,
    pub(super) extent: Extent,
    pub(super) file_system: u32,
}

impl Records for RingRecords<'_> {
    fn each(&self, take: &mut TakeRecord<'_>) -> Result<u64, ReplayError> {
        let mut records = 0;
        for record in Reader::new(self.medium, self.extent.clone()) {
            if record.file_system == self.file_system && record.is_live {
                take(record.lsn.0, &record.payload)?;
                records += 1;
            }
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client is told is of no use to an administrator.
    #[test]
    fn no_failure_is_told_in_words_for_clients() {
        for source in [
            FsError::TryLater,
            FsError::Stale,
            FsError::BadHandle,
            FsError::NoSpace,
            FsError::Io,
            FsError::AccessDenied,
            FsError::NotSupported,
        ] {
            let told = ReplayError::Storage { step: "WRITE".to_owned(), source }.to_string();
            assert!(told.starts_with("WRITE failed: "), "{told}");
            assert!(!told.contains("try again") && !told.contains("resources"), "{told}");
        }
    }
}
