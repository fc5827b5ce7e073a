//! A lock-owner of a client.

use std::cmp::Ordering;
use std::sync::Arc;

use super::Client;

/// Who holds ranges of a file: a lock-owner of a client.
#[derive(Clone, Debug)]
pub(crate) struct LockOwner {
    pub(crate) client: Arc<Client>,
    pub(crate) name: Arc<[u8]>,
}

impl LockOwner {
    /// What is before all others of a client.
    pub(crate) fn first(client: &Arc<Client>) -> Self {
        Self { client: Arc::clone(client), name: Arc::from(&[][..]) }
    }
}

impl Ord for LockOwner {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_client = self.client.id().cmp(&other.client.id());
        by_client.then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for LockOwner {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for LockOwner {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for LockOwner {}
