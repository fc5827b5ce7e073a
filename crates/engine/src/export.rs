//! Shares joined with their storage.

use std::collections::HashMap;
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
    by_id: HashMap<ShareId, usize>,
}

impl ExportTable {
    /// A table of these; of two exports with one id or path the first stays.
    pub fn new(exports: Vec<Export>) -> Self {
        let mut table = Self::default();
        for export in exports {
            let path_is_taken = table.exports.iter().any(|e| e.share.path == export.share.path);
            if !path_is_taken && !table.by_id.contains_key(&export.share.id) {
                table.by_id.insert(export.share.id, table.exports.len());
                table.exports.push(export);
            }
        }
        table.exports.sort_by(|a, b| a.share.path.cmp(&b.share.path));
        for (index, export) in table.exports.iter().enumerate() {
            table.by_id.insert(export.share.id, index);
        }
        table
    }

    /// All exports, sorted by path.
    pub fn iter(&self) -> impl Iterator<Item = &Export> {
        self.exports.iter()
    }

    /// The export of this id.
    pub fn by_id(&self, id: ShareId) -> Option<&Export> {
        self.by_id.get(&id).and_then(|index| self.exports.get(*index))
    }

    /// The export whose path contains `path` most closely, and the rest of `path` below it.
    pub fn by_path<'a>(&self, path: &'a [u8]) -> Option<(&Export, &'a [u8])> {
        self.exports
            .iter()
            .filter_map(|export| Some((export, below(path, export.share.path.as_bytes())?)))
            .max_by_key(|(export, _)| export.share.path.len())
    }
}

/// What of `path` lies below `directory`; `None` if it is not below it.
fn below<'a>(path: &'a [u8], directory: &[u8]) -> Option<&'a [u8]> {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    match path.strip_prefix(directory)? {
        rest @ ([] | [b'/', ..]) => Some(rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::below;

    #[test]
    fn a_path_is_below_whole_components_only() {
        assert_eq!(below(b"/srv/a/b", b"/srv/a"), Some(&b"/b"[..]));
        assert_eq!(below(b"/srv/a", b"/srv/a"), Some(&b""[..]));
        assert_eq!(below(b"/srv/ab", b"/srv/a"), None);
        assert_eq!(below(b"/srv", b"/"), Some(&b"/srv"[..]));
    }
}
