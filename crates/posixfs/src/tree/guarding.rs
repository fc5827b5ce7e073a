//! How an object of a tree gets a guard.
//!
//! A lease belongs to an open file description. A guard for reading uses the one that the node reads
//! through. One for writing wants that nobody has the file open in any other way, nor the server itself:
//! so it uses the one that the node writes through, and the node reads through the same.
//!
//! The kernel takes the server's own opens for those of anybody. [`Node`] knows its guard, and ends it before
//! it opens the file in a way that would break it.

use std::sync::Arc;

use rustix::fs::OFlags;
use steadfast_vfs::{FileKind, FsError, Guard, GuardKind, GuardListener, StorageHandle, Waiting};

use super::Tree;
use crate::budget::{Descriptor, RoomToGuard};
use crate::error::from_errno;
use crate::guards::{GuardTable, Guarded};
use crate::node::{Node, NodePin};
use crate::pins;

/// One guard, as its owner has it.
struct Held {
    guarded: Arc<Guarded>,
    node: NodePin<pins::Guard>,
    /// Of all guards.
    table: GuardTable,
    _room: RoomToGuard,
}

impl Guard for Held {
    fn kind(&self) -> GuardKind {
        self.guarded.kind()
    }

    fn is_broken(&self) -> bool {
        self.guarded.is_broken()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.node.unguard(&self.guarded, &self.table);
    }
}

impl Tree {
    /// See [`FileSystem::guard`](steadfast_vfs::FileSystem::guard). Leaves the thread with the server's
    /// identity.
    pub(crate) fn do_guard(
        &self,
        object: &StorageHandle,
        kind: GuardKind,
        listener: &Arc<dyn GuardListener>,
    ) -> Result<Box<dyn Guard>, FsError> {
        let mut node = self.node(object, Waiting::Allowed)?;
        if node.kind != FileKind::Regular {
            return Err(FsError::Invalid);
        }
        let guards = &self.storage.guards;
        let watch = guards.watch()?;
        let room = self.storage.budget.room_to_guard().ok_or(FsError::TryLater)?;
        self.assume_server()?;
        if kind == GuardKind::Read && node.is_open_for_writing_as_long_as_kept() {
            if node.must_stay() {
                return Err(FsError::TryLater);
            }
            // It was made by us, and is open for writing as long as the node is.
            if !self.storage.cache.let_go_if_idle(&node) {
                return Err(FsError::TryLater);
            }
            drop(node);
            node = self.node(object, Waiting::Allowed)?;
        }
        let named = self.identity(object);
        let take = |file: Arc<Descriptor>| Guarded::take(kind, file, named, listener, watch);
        let guarded = match kind {
            GuardKind::Read => node.guard_for_reading(take),
            GuardKind::Write => node.guard_for_writing(take),
        };
        self.storage.cache.make_room();
        let guarded = guarded?;
        let table = guards.add(&guarded);
        // What came before it was there to be found.
        guarded.look();
        Ok(Box::new(Held { guarded, node: node.now_for(), table, _room: room }))
    }
}

impl Node {
    /// Guards the file by what it is read through.
    fn guard_for_reading(
        &self,
        take: impl FnOnce(Arc<Descriptor>) -> Result<Arc<Guarded>, FsError>,
    ) -> Result<Arc<Guarded>, FsError> {
        self.guard_by(|| {
            self.close_writer();
            take(self.reader()?)
        })
    }

    /// Guards the file by what it is written through, and reads through the same meanwhile.
    fn guard_for_writing(
        &self,
        take: impl FnOnce(Arc<Descriptor>) -> Result<Arc<Guarded>, FsError>,
    ) -> Result<Arc<Guarded>, FsError> {
        self.guard_by(|| {
            let writer = self.writer()?;
            let flags = rustix::fs::fcntl_getfl(&*writer).map_err(from_errno)?;
            if flags & OFlags::RWMODE != OFlags::RDWR {
                return Err(FsError::NotSupported);
            }
            let before = self.read_through(&writer)?;
            // Not open in any other way.
            drop(before);
            take(writer).inspect_err(|_| self.read_apart())
        })
    }
}
