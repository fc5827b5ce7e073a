//! Shares joined with their storage.

use std::sync::Arc;

use steadfast_shares::{Share, ShareId};
use steadfast_vfs::FileSystem;

/// A share and the storage behind it.
#[derive(Clone)]
pub struct Export {
    /// The share.
    pub share: Arc<Share>,
    /// Its storage; its root is the share's directory.
    pub storage: Arc<dyn FileSystem>,
}

/// An immutable set of exports, swapped as a whole.
#[derive(Clone, Default)]
pub struct ExportTable {
    exports: Vec<Export>,
}

impl ExportTable {
    /// A table of these; of two exports with one id or path the first stays.
    pub fn new(exports: Vec<Export>) -> Self {
        Self { exports }
    }

    /// All exports, sorted by path.
    pub fn iter(&self) -> impl Iterator<Item = &Export> {
        self.exports.iter()
    }

    /// The export of this id.
    pub fn by_id(&self, id: ShareId) -> Option<&Export> {
        self.exports.iter().find(|export| export.share.id == id)
    }
}
