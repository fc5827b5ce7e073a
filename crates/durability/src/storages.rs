//! File systems that the log's operations are replayed to, and how they are opened.

use steadfast_intent_log::FileSystemEntry;
use steadfast_recovery::Recoverable;

/// Finds the file system of a directory, to replay what the log has of it.
pub type OpenStorage =
    dyn Fn(&FileSystemEntry) -> Result<Option<Box<dyn Recoverable>>, String> + Send + Sync;

/// File systems that are open.
pub(super) type Storages = Vec<(FileSystemEntry, Box<dyn Recoverable>)>;
