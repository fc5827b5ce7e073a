//! A delegation as its client knows it.

use std::sync::Arc;

use crate::ids::FileKey;

/// What a delegation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DelegationKind {
    /// `OPEN_DELEGATE_READ`: nobody else writes.
    Read,
    /// `OPEN_DELEGATE_WRITE`: nobody else has the file open.
    Write,
}

/// A delegation as its client knows it.
#[derive(Clone, Debug)]
pub(crate) struct DelegationRecord {
    pub(crate) file: FileKey,
    pub(crate) kind: DelegationKind,
    pub(crate) handle: Arc<[u8]>,
    /// Nobody else heeds it any more; its client has not acknowledged that.
    pub(crate) is_revoked: bool,
}
