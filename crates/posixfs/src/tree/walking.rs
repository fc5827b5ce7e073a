//! Trees whose handles are kept in a store: from a number to an object by walking to where it
//! was last known, and from an object met to its number.

use std::sync::Arc;

use rustix::fs::Statx;
use steadfast_sys::directory;
use steadfast_vfs::{FsError, StorageHandle};

use super::Tree;
use crate::attributes::{self, Identity};
use crate::error::from_errno;
use crate::node::{Node, NodeParts, NodePin};
use crate::stored::{Location, ROOT, Store};

/// Directories between the root and an object that is found by its number. Deeper ones are
/// found by look-up, and as long as they are held open.
const DEPTH_MAX: u32 = 256;
/// Directories looked at for one handle, whatever the store says.
const STEPS_MAX: u32 = 4096;

impl Tree {
    /// The node of a handle of the store.
    pub(crate) fn stored_node(
        &self,
        store: &Store,
        handle: &StorageHandle,
    ) -> Result<NodePin, FsError> {
        let number = store.number(handle)?;
        let mut steps = STEPS_MAX;
        self.walk_to(store, number, DEPTH_MAX, &mut steps)
    }

    fn walk_to(
        &self,
        store: &Store,
        number: u64,
        depth: u32,
        steps: &mut u32,
    ) -> Result<NodePin, FsError> {
        if number == ROOT {
            return Ok(self.root_node().pin());
        }
        let handle = store.handle(number).ok_or(FsError::Stale)?;
        if let Some(node) = self.storage.cache.find(self.id, &handle) {
            return Ok(node);
        }
        let record = store.record(number)?.ok_or(FsError::Stale)?;
        let depth = depth.checked_sub(1).ok_or(FsError::Stale)?;
        for location in &record.locations {
            *steps = steps.checked_sub(1).ok_or(FsError::Stale)?;
            let dir = match self.walk_to(store, location.parent, depth, steps) {
                Ok(dir) => dir,
                Err(FsError::Stale) => continue,
                Err(error) => return Err(error),
            };
            let path = match self.open_name(&dir, &location.name) {
                Ok(path) => path,
                Err(FsError::NotFound | FsError::NotDirectory | FsError::AccessDenied) => continue,
                Err(error) => return Err(error),
            };
            let stat = attributes::stat_with_mount(&path)?;
            if stat.stx_nlink == 0 || store.fingerprint(&stat) != Some(record.fingerprint) {
                continue;
            }
            let identity = attributes::identity(&stat);
            let mount = self.mount_of(&stat, &dir)?;
            let volume = self.volume(&path, identity.device, &mount)?;
            return Ok(self.storage.cache.insert(Node::new(NodeParts {
                tree: self.id,
                handle,
                identity,
                kind: attributes::kind(&stat),
                order: self.storage.order(&volume, identity),
                volume,
                mount,
                path: self.counted(path),
                opens_all: self.opens_all,
                budget: Arc::clone(&self.storage.budget),
            })));
        }
        Err(FsError::Stale)
    }

    /// Records that what is `from_name` in `from` is about to be, or also is, `to_name` in `to`.
    pub(crate) fn note_place(
        &self,
        (from, from_name): (&Node, &[u8]),
        (to, to_name): (&Node, &[u8]),
    ) -> Result<(), FsError> {
        let Some(store) = self.store() else { return Ok(()) };
        let stat = attributes::stat_name(&from.path, from_name).map_err(from_errno)?;
        let Some(fingerprint) = store.fingerprint(&stat) else { return Ok(()) };
        if store.known(fingerprint)?.is_none() {
            return Ok(());
        }
        let location = Location { parent: store.number(&to.handle)?, name: to_name.to_vec() };
        store.locate([(fingerprint, location)])
    }

    /// The directory above `dir`, by the store's record of it, which must agree with `above`.
    pub(crate) fn stored_parent(
        &self,
        store: &Store,
        dir: &Node,
        above: Identity,
    ) -> Result<NodePin, FsError> {
        let number = store.number(&dir.handle)?;
        let record = store.record(number)?.ok_or(FsError::Stale)?;
        let mut steps = STEPS_MAX;
        for location in &record.locations {
            let parent = self.walk_to(store, location.parent, DEPTH_MAX, &mut steps);
            if let Ok(parent) = parent
                && parent.identity == above
            {
                return Ok(parent);
            }
        }
        Err(FsError::Stale)
    }
}

/// The handle of an object met as `name` in `dir`, whose record is on disk on return.
pub(crate) fn stored_handle(
    store: &Store,
    stat: &Statx,
    dir: &Node,
    name: &[u8],
) -> Result<StorageHandle, FsError> {
    let fingerprint = store.fingerprint(stat).ok_or(FsError::NotSupported)?;
    let location = Location { parent: store.number(&dir.handle)?, name: name.to_vec() };
    let mut number = store.known(fingerprint)?;
    let is_there = match number {
        Some(known) => {
            store.record(known)?.is_some_and(|record| record.locations.contains(&location))
        }
        None => false,
    };
    if !is_there {
        store.locate([(fingerprint, location)])?;
        number = store.known(fingerprint)?;
    }
    number.and_then(|number| store.handle(number)).ok_or(FsError::Io)
}

/// Makes records, in one group, of the objects that a directory's records name.
pub(crate) fn prepare_handles(
    store: &Store,
    dir: &Node,
    mut records: &[u8],
) -> Result<(), FsError> {
    let parent = store.number(&dir.handle)?;
    let mut unknown = Vec::new();
    while let Some(raw) = directory::first_record(records) {
        records = records.get(raw.record_bytes..).unwrap_or(&[]);
        if raw.name == b"." || raw.name == b".." {
            continue;
        }
        let Ok(stat) = attributes::stat_name(&dir.path, raw.name) else { continue };
        let Some(fingerprint) = store.fingerprint(&stat) else { continue };
        if store.known(fingerprint)?.is_none() {
            unknown.push((fingerprint, Location { parent, name: raw.name.to_vec() }));
        }
    }
    store.locate(unknown)
}
