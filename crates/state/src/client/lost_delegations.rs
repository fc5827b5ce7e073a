//! Which of a client's delegations were revoked without its having said that it knows.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::FileKey;
use crate::share::Share;

/// What was revoked of one file.
pub(crate) struct LostOfFile {
    /// The handles by which the client had the file delegated: mostly one.
    pub(crate) handles: Vec<Arc<[u8]>>,
    /// What is recorded that the client has the file open for.
    pub(crate) share: Share,
}

/// Which of a client's delegations were revoked without its having said that it knows.
#[derive(Default)]
pub(crate) struct LostDelegations {
    of: HashMap<FileKey, LostOfFile>,
}

impl LostDelegations {
    pub(crate) fn add(&mut self, file: FileKey, handle: &Arc<[u8]>) {
        let none = || LostOfFile { handles: Vec::new(), share: Share::NONE };
        self.of.entry(file).or_insert_with(none).handles.push(Arc::clone(handle));
    }

    /// The client knows so of one; whether there is no other one by this handle.
    pub(crate) fn remove(&mut self, file: FileKey, handle: &[u8]) -> bool {
        let Entry::Occupied(mut all) = self.of.entry(file) else { return true };
        let handles = &mut all.get_mut().handles;
        if let Some(place) = handles.iter().position(|other| **other == *handle) {
            handles.swap_remove(place);
        }
        let is_last = handles.iter().all(|other| **other != *handle);
        if handles.is_empty() {
            all.remove();
        }
        is_last
    }

    /// What was revoked of a file.
    pub(crate) fn of(&mut self, file: &FileKey) -> Option<&mut LostOfFile> {
        self.of.get_mut(file)
    }

    pub(crate) fn has(&self, file: &FileKey) -> bool {
        self.of.contains_key(file)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// All, in no order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&FileKey, &mut LostOfFile)> {
        self.of.iter_mut()
    }
}
