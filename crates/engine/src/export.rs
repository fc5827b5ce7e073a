//! Shares joined with their storage.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
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
    by_id: HashMap<ShareId, usize, BuildHasherDefault<IdHasher>>,
    /// Tells it from the tables served before; 0 until it is served.
    pub(crate) generation: u64,
}

/// Share ids come from sealed handles or the administrator, never from clients.
#[derive(Clone, Copy, Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

impl ExportTable {
    /// A table of these; of two exports with one id or path the first stays.
    pub fn new(exports: Vec<Export>) -> Self {
        let mut table = Self::default();
        let mut paths = HashSet::new();
        for export in exports {
            if !table.by_id.contains_key(&export.share.id)
                && paths.insert(export.share.path.clone())
            {
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
        self.place(id).map(|(_, export)| export)
    }

    /// The export of this id and its place in the table.
    pub(crate) fn place(&self, id: ShareId) -> Option<(usize, &Export)> {
        let place = *self.by_id.get(&id)?;
        Some((place, self.exports.get(place)?))
    }

    /// The same table, served as this generation.
    pub(crate) fn with_generation(self, generation: u64) -> Self {
        Self { generation, ..self }
    }

    /// The export whose path contains `path` most closely with its place in the table, and the
    /// rest of `path` below it.
    pub(crate) fn by_path<'a>(&self, path: &'a [u8]) -> Option<(usize, &Export, &'a [u8])> {
        ancestors(path).find_map(|(ancestor, rest)| {
            let order = |export: &Export| export.share.path.as_bytes().cmp(ancestor);
            let index = self.exports.binary_search_by(order).ok()?;
            Some((index, self.exports.get(index)?, rest))
        })
    }
}

/// A path and all directories above it, the nearest first, each with the rest of the path.
fn ancestors(path: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let above = |end: &usize| path.get(..*end)?.iter().rposition(|byte| *byte == b'/');
    std::iter::successors(Some(path.len()), above).map(|end| match path.split_at(end) {
        ([], rest) => (&b"/"[..], rest),
        split => split,
    })
}

#[cfg(test)]
mod tests {
    use super::ancestors;

    #[test]
    fn a_path_is_below_whole_components_only() {
        let of = |path: &'static [u8]| ancestors(path).collect::<Vec<_>>();
        assert_eq!(
            of(b"/srv/a/b"),
            [
                (&b"/srv/a/b"[..], &b""[..]),
                (b"/srv/a", b"/b"),
                (b"/srv", b"/a/b"),
                (b"/", b"/srv/a/b"),
            ]
        );
        assert_eq!(of(b"/").first(), Some(&(&b"/"[..], &b""[..])));
        assert_eq!(of(b"srv"), [(&b"srv"[..], &b""[..])]);
    }
}
