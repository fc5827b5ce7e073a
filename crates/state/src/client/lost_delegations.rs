//! Which of a client's delegations were revoked without its having said that it knows.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::FileKey;

/// Which of a client's delegations were revoked without its having said that it knows.
#[derive(Default)]
pub(crate) struct LostDelegations {
    /// The handles by which the client had a file delegated: mostly one.
    of: HashMap<FileKey, Vec<Arc<[u8]>>>,
}

impl LostDelegations {
    pub(crate) fn add(&mut self, file: FileKey, handle: &Arc<[u8]>) {
        self.of.entry(file).or_default().push(Arc::clone(handle));
    }

    /// The client knows so of one; whether there is no other one by this handle.
    pub(crate) fn remove(&mut self, file: FileKey, handle: &[u8]) -> bool {
        let Entry::Occupied(mut all) = self.of.entry(file) else { return true };
        if let Some(place) = all.get().iter().position(|other| **other == *handle) {
            all.get_mut().swap_remove(place);
        }
        let is_last = all.get().iter().all(|other| **other != *handle);
        if all.get().is_empty() {
            all.remove();
        }
        is_last
    }

    /// Those of a file.
    pub(crate) fn of(&self, file: &FileKey) -> &[Arc<[u8]>] {
        self.of.get(file).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// All, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&FileKey, &Arc<[u8]>)> {
        self.of.iter().flat_map(|(file, handles)| handles.iter().map(move |handle| (file, handle)))
    }
}
