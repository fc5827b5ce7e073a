//! Shares joined with their storage.

use std::hash::{BuildHasherDefault, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;
use steadfast_shares::{Share, ShareId};
use steadfast_vfs::{FsError, StorageSource};

use crate::pseudo::PseudoTree;

/// Parts of a table that are copied apart when it changes. A change of one share copies one of each
/// kind, so that it costs the same at ten shares and at a hundred thousand.
const PARTS: usize = 1024;

/// A share and the storage behind it.
#[derive(Clone)]
pub struct Export {
    /// The share.
    pub share: Arc<Share>,
    /// Its storage; its root is the share's directory.
    pub storage: Arc<dyn StorageSource>,
}

/// An export as it is in tables.
pub(crate) struct Exported {
    pub(crate) export: Export,
    /// Tells it from all others that the engine has served, also from what this share was before
    /// it changed; 0 until it is served.
    version: AtomicU64,
}

impl Exported {
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }
}

/// An immutable set of exports, swapped as a whole. Making another one of it costs what is
/// different.
#[derive(Clone)]
pub struct ExportTable {
    by_id: Parts,
    by_path: Parts,
    /// Those whose directory is not what their path says, by the directory.
    elsewhere: Parts,
    length: usize,
    /// Whether directories may be told by names of which not all symbolic links are resolved.
    has_unseen: bool,
    /// Those that no engine has served yet.
    unserved: Vec<Arc<Exported>>,
    listing: OnceLock<Arc<[u8]>>,
    /// The directories that lead to the shares.
    pseudo: PseudoTree,
}

/// Exports by one of their keys.
#[derive(Clone)]
struct Parts(Box<[Arc<HashTable<Arc<Exported>>>]>);

/// Ids come from sealed handles or the administrator, never from clients; and that a client may
/// ask for a path whose hash is another's costs a comparison.
#[derive(Clone, Copy, Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.write_u64(u64::from_le_bytes(word) ^ chunk.len() as u64);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

fn hash_of(write: impl FnOnce(&mut KeyHasher)) -> u64 {
    let mut hasher =
        std::hash::BuildHasher::build_hasher(&BuildHasherDefault::<KeyHasher>::default());
    write(&mut hasher);
    // The table looks at the highest bits and the lowest, the parts at those between.
    hasher.finish() ^ hasher.finish() >> 32
}

fn id_hash(id: ShareId) -> u64 {
    hash_of(|hasher| hasher.write_u64(id.0))
}

fn path_hash(path: &[u8]) -> u64 {
    hash_of(|hasher| hasher.write(path))
}

impl Default for Parts {
    fn default() -> Self {
        Self((0..PARTS).map(|_| Arc::default()).collect())
    }
}

impl Parts {
    fn place(hash: u64) -> usize {
        (hash >> 16) as usize % PARTS
    }

    fn find(&self, hash: u64, is_it: impl Fn(&Exported) -> bool) -> Option<&Arc<Exported>> {
        self.0.get(Self::place(hash))?.find(hash, |exported| is_it(exported))
    }

    fn add(&mut self, hash: u64, exported: Arc<Exported>, hasher: impl Fn(&Arc<Exported>) -> u64) {
        if let Some(part) = self.0.get_mut(Self::place(hash)) {
            Arc::make_mut(part).insert_unique(hash, exported, hasher);
        }
    }

    fn take(&mut self, hash: u64, is_it: impl Fn(&Exported) -> bool) -> Option<Arc<Exported>> {
        let part = self.0.get_mut(Self::place(hash))?;
        part.find(hash, |exported| is_it(exported))?;
        let found = Arc::make_mut(part).find_entry(hash, |exported| is_it(exported)).ok()?;
        Some(found.remove().0)
    }
}

fn hash_by_id(exported: &Arc<Exported>) -> u64 {
    id_hash(exported.export.share.id)
}

fn hash_by_path(exported: &Arc<Exported>) -> u64 {
    path_hash(exported.export.share.path.as_bytes())
}

fn hash_by_directory(exported: &Arc<Exported>) -> u64 {
    path_hash(directory_of(exported))
}

fn directory_of(exported: &Exported) -> &[u8] {
    exported.export.share.directory().as_os_str().as_bytes()
}

impl Default for ExportTable {
    fn default() -> Self {
        Self {
            by_id: Parts::default(),
            by_path: Parts::default(),
            elsewhere: Parts::default(),
            length: 0,
            has_unseen: false,
            unserved: Vec::new(),
            listing: OnceLock::new(),
            pseudo: PseudoTree::default(),
        }
    }
}

impl ExportTable {
    /// A table of these; of two exports with one id or path the first stays.
    pub fn new(exports: Vec<Export>) -> Self {
        let mut table = Self::default();
        for export in exports {
            table.insert(export);
        }
        table
    }

    /// The same table, of whose shares nobody has looked at the directories yet: where one share could
    /// be in another that crosses mounts, it waits until [`ExportTable::seen`].
    #[must_use]
    pub fn unseen(self) -> Self {
        Self { has_unseen: true, ..self }
    }

    /// This table when all its directories were looked at.
    #[must_use]
    pub fn seen(&self) -> Self {
        Self { has_unseen: false, listing: self.listing.clone(), ..self.clone() }
    }

    /// This table without some shares, and with others. One with the id of a removed share, or its
    /// path, takes its place.
    #[must_use]
    pub fn changed(&self, removed: &[ShareId], added: Vec<Export>) -> Self {
        let mut table = Self { listing: OnceLock::new(), ..self.clone() };
        for id in removed {
            table.remove(*id);
        }
        for export in added {
            table.insert(export);
        }
        table
    }

    /// This table with the same shares, of which these have other storage: what is told of them is
    /// the same.
    #[must_use]
    pub fn with_other_storage(&self, exports: Vec<Export>) -> Self {
        let ids: Vec<_> = exports.iter().map(|export| export.share.id).collect();
        let is_same = |export: &Export| {
            self.by_id(export.share.id).is_some_and(|known| known.share == export.share)
        };
        // Directories above the shares do not change either, for clients that remember them.
        let pseudo = exports.iter().all(is_same).then(|| self.pseudo.clone());
        let table = self.changed(&ids, exports);
        let pseudo = pseudo.unwrap_or_else(|| table.pseudo.clone());
        Self { listing: self.listing.clone(), pseudo, ..table }
    }

    fn insert(&mut self, export: Export) {
        let (id, path) = (export.share.id, export.share.path.as_bytes());
        if self.by_id(id).is_some() || self.at(path).is_some() {
            return;
        }
        let (id_hash, path_hash) = (id_hash(id), path_hash(path));
        let exported = Arc::new(Exported { export, version: AtomicU64::new(0) });
        self.by_id.add(id_hash, Arc::clone(&exported), hash_by_id);
        self.by_path.add(path_hash, Arc::clone(&exported), hash_by_path);
        if exported.export.share.elsewhere.is_some() {
            let hash = hash_by_directory(&exported);
            self.elsewhere.add(hash, Arc::clone(&exported), hash_by_directory);
        }
        let share = &exported.export.share;
        self.pseudo.insert(share.path.as_bytes(), id, &share.rules);
        self.unserved.push(exported);
        self.length += 1;
    }

    fn remove(&mut self, id: ShareId) {
        let is_it = |exported: &Exported| exported.export.share.id == id;
        let Some(exported) = self.by_id.take(id_hash(id), is_it) else { return };
        self.by_path.take(path_hash(exported.export.share.path.as_bytes()), is_it);
        if exported.export.share.elsewhere.is_some() {
            self.elsewhere.take(hash_by_directory(&exported), is_it);
        }
        let share = &exported.export.share;
        self.pseudo.remove(share.path.as_bytes(), id, &share.rules);
        self.length -= 1;
    }

    /// How many exports there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// All exports, sorted by path.
    pub fn sorted(&self) -> Vec<&Export> {
        let all = self.by_id.0.iter().flat_map(|part| part.iter());
        let mut all: Vec<_> = all.map(|exported| &exported.export).collect();
        all.sort_unstable_by(|a, b| a.share.path.cmp(&b.share.path));
        all
    }

    /// The export of this id.
    pub fn by_id(&self, id: ShareId) -> Option<&Export> {
        self.exported(id).map(|exported| &exported.export)
    }

    /// As [`ExportTable::by_id`], with its version.
    pub(crate) fn exported(&self, id: ShareId) -> Option<&Exported> {
        self.by_id
            .find(id_hash(id), |exported| exported.export.share.id == id)
            .map(|found| &**found)
    }

    fn at(&self, path: &[u8]) -> Option<&Exported> {
        let is_it = |exported: &Exported| exported.export.share.path.as_bytes() == path;
        self.by_path.find(path_hash(path), is_it).map(|found| &**found)
    }

    /// The share of a directory; of several the one that has its path, or else the first by path.
    fn of_directory(&self, directory: &[u8]) -> Option<&Exported> {
        let own = self.at(directory).filter(|found| directory_of(found) == directory);
        own.or_else(|| {
            let hash = path_hash(directory);
            let there = self.elsewhere.0.get(Parts::place(hash))?.iter_hash(hash);
            there
                .filter(|found| directory_of(found) == directory)
                .min_by(|a, b| a.export.share.path.cmp(&b.export.share.path))
                .map(|found| &**found)
        })
    }

    /// The share whose rules are those of what is mounted at the first of these points, the others being
    /// passed on the way there from the directory of `outer`: the innermost that has it. That is one of
    /// the mount's own directory, or one around it that crosses mounts (exports(5), `crossmnt`).
    ///
    /// # Errors
    /// `AccessDenied` where the way leads over a share's mount that does not cross further ones;
    /// `TryLater` as long as it is not known where all shares are.
    pub(crate) fn innermost<'a>(
        &'a self,
        outer: &'a Exported,
        points: &[PathBuf],
    ) -> Result<&'a Exported, FsError> {
        let Some(point) = points.first() else { return Ok(outer) };
        let point = point.as_os_str().as_bytes();
        let end = directory_of(outer).len();
        for (directory, _) in ancestors(point).take_while(|(directory, _)| directory.len() > end) {
            let Some(found) = self.of_directory(directory) else { continue };
            if directory == point || found.export.share.crosses_mounts {
                return Ok(found);
            }
            if points.iter().any(|passed| passed.as_os_str().as_bytes() == directory) {
                return Err(FsError::AccessDenied);
            }
        }
        if self.has_unseen { Err(FsError::TryLater) } else { Ok(outer) }
    }

    /// Gives what no engine has served yet versions after this one; the last given is returned.
    pub(crate) fn number(&mut self, mut last: u64) -> u64 {
        for exported in self.unserved.drain(..) {
            last += 1;
            exported.version.store(last, Ordering::Relaxed);
        }
        last
    }

    /// The directories that lead to the shares.
    pub(crate) fn pseudo(&self) -> &PseudoTree {
        &self.pseudo
    }

    /// The reply's part that MOUNT's EXPORT has of this table, if it was made.
    pub(crate) fn listing(&self) -> Option<Arc<[u8]>> {
        self.listing.get().cloned()
    }

    /// As [`ExportTable::listing`]; made if it was not, while others who want it wait.
    pub(crate) fn listing_made_by(&self, make: impl FnOnce(&Self) -> Vec<u8>) -> Arc<[u8]> {
        Arc::clone(self.listing.get_or_init(|| make(self).into()))
    }

    /// The export whose path contains `path` most closely, and the rest of `path` below it.
    pub(crate) fn by_path<'a>(&self, path: &'a [u8]) -> Option<(&Exported, &'a [u8])> {
        ancestors(path).find_map(|(ancestor, rest)| Some((self.at(ancestor)?, rest)))
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
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use steadfast_vfs::model::ModelFs;

    use super::*;

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

    fn export(id: u64, path: u8) -> Export {
        let share = Share {
            id: ShareId(id),
            path: format!("/{path}").into(),
            elsewhere: None,
            crosses_mounts: false,
            required_mounts: Arc::default(),
            size: None,
            without_log: false,
            is_draining: false,
            rules: Arc::default(),
        };
        Export { share: Arc::new(share), storage: Arc::new(ModelFs::new(1, 0o755)) }
    }

    fn ids_and_paths(table: &ExportTable) -> Vec<(u64, String)> {
        table.sorted().iter().map(|e| (e.share.id.0, e.share.path.to_string())).collect()
    }

    #[test]
    fn other_storage_is_another_version_in_the_same_list() {
        let mut table = ExportTable::new(vec![export(1, 1), export(2, 2)]);
        let last = table.number(0);
        table.listing_made_by(|_| vec![7]);
        let mut other = table.with_other_storage(vec![export(2, 2)]);
        assert_eq!(other.listing(), table.listing());
        assert_eq!(ids_and_paths(&other), ids_and_paths(&table));
        assert_eq!(other.number(last), last + 1);
        let version = |table: &ExportTable, id| table.exported(ShareId(id)).map(Exported::version);
        assert_eq!(version(&other, 1), version(&table, 1));
        assert_eq!(version(&other, 2), Some(last + 1));
        // What is listed otherwise is listed anew.
        assert!(table.changed(&[ShareId(1)], Vec::new()).listing().is_none());
    }

    #[test]
    fn directories_of_shares_stay_while_they_change() {
        let table = ExportTable::new(vec![export(1, 1), export(2, 2)]);
        let root = |table: &ExportTable| table.pseudo().root().change();
        let share_at = |table: &ExportTable, path: &str| {
            table.pseudo().at(path.as_bytes()).map(|node| (node.key(), node.share()))
        };
        let first = share_at(&table, "/1").expect("a directory");
        assert_eq!(first.1, Some(ShareId(1)));
        // Of two shares with one path or id the first has its directory too.
        let same = table.changed(&[], vec![export(1, 3), export(3, 1)]);
        assert_eq!((share_at(&same, "/1"), share_at(&same, "/3")), (Some(first), None));
        assert_eq!(root(&same), root(&table));
        // Its place is taken by another share: clients' handles hold.
        let other = table.changed(&[ShareId(1)], vec![export(3, 1)]);
        assert_eq!(share_at(&other, "/1"), Some((first.0, Some(ShareId(3)))));
        assert!(root(&other) > root(&table));
        // Nothing is to be listed anew for other storage, unless the share is another one too.
        let stored = table.with_other_storage(vec![export(2, 2)]);
        assert_eq!(root(&stored), root(&table));
        let moved = table.with_other_storage(vec![export(2, 4)]);
        assert_eq!((share_at(&moved, "/2"), share_at(&moved, "/4").is_some()), (None, true));
        assert_eq!(root(&table.clone().unseen().seen()), root(&table));
        let without = table.changed(&[ShareId(1), ShareId(2), ShareId(9)], Vec::new());
        assert!(!without.pseudo().root().has_children());
        assert_eq!(table.pseudo().root().links(), 4);
    }

    #[test]
    fn the_innermost_share_of_a_mount_decides() {
        let shared = |id, path: &str, directory: &str, crosses_mounts| {
            let share = Share {
                path: path.into(),
                elsewhere: (path != directory).then(|| std::path::Path::new(directory).into()),
                crosses_mounts,
                ..Share::clone(&export(id, 0).share)
            };
            Export { share: Arc::new(share), ..export(id, 0) }
        };
        let mut table = ExportTable::new(vec![
            shared(1, "/p", "/p", true),
            shared(2, "/p/own", "/p/own", false),
            shared(3, "/p/around", "/p/around", true),
            shared(4, "/named", "/p/named", false),
            shared(5, "/a", "/p/both", false),
            shared(6, "/p/both", "/p/both", false),
            shared(7, "/z", "/p/others", false),
            shared(8, "/y", "/p/others", false),
            // Its path is where another directory is.
            shared(9, "/p/not", "/elsewhere", false),
            shared(10, "/p/plain", "/p/plain", false),
        ]);
        let find = |table: &ExportTable, outer, points: &[&str]| {
            let points: Vec<_> = points.iter().map(PathBuf::from).collect();
            let outer = table.exported(ShareId(outer)).expect("an export");
            table.innermost(outer, &points).map(|found| found.export.share.id.0)
        };
        for (outer, points, expected) in [
            (1, &[][..], Ok(1)),
            (1, &["/p/free"], Ok(1)),
            (1, &["/p/own"], Ok(2)),
            (1, &["/p/owner"], Ok(1)),
            (1, &["/p/x/own"], Ok(1)),
            (1, &["/p/own/deep", "/p/own"], Err(FsError::AccessDenied)),
            (1, &["/p/plain/deep"], Ok(1)),
            (1, &["/p/around/deep", "/p/around"], Ok(3)),
            (1, &["/p/around/deep"], Ok(3)),
            (1, &["/p/around/d/e/e/p"], Ok(3)),
            (1, &["/p/named"], Ok(4)),
            (1, &["/p/both"], Ok(6)),
            (1, &["/p/others"], Ok(8)),
            (1, &["/p/not"], Ok(1)),
            (3, &["/p/around/deep"], Ok(3)),
        ] {
            assert_eq!(find(&table, outer, points), expected, "{outer} {points:?}");
        }
        // As long as a share may be there by another name, only what is found decides.
        let unseen = table.clone().unseen();
        assert_eq!(find(&unseen, 1, &["/p/free"]), Err(FsError::TryLater));
        assert_eq!(find(&unseen, 1, &["/p/own"]), Ok(2));
        assert_eq!(
            find(&unseen.changed(&[ShareId(2)], Vec::new()), 1, &["/p/own"]),
            Err(FsError::TryLater)
        );
        assert_eq!(find(&unseen.seen(), 1, &["/p/free"]), Ok(1));
        // What goes takes its rules with it.
        table = table.changed(&[ShareId(4), ShareId(2), ShareId(8)], Vec::new());
        for (point, expected) in [("/p/named", 1), ("/p/own", 1), ("/p/others", 7)] {
            assert_eq!(find(&table, 1, &[point]), Ok(expected), "{point}");
        }
    }

    proptest! {
        /// Tables made of tables are what a map says, the old ones stay what they were, and no two
        /// exports ever served have one version.
        #[test]
        fn changes_make_what_a_map_says(
            changes in prop::collection::vec(
                (
                    prop::collection::vec(0..12_u64, 0..4),
                    prop::collection::vec((0..12_u64, 0..12_u8), 0..4),
                ),
                1..20,
            ),
        ) {
            let mut table = ExportTable::default();
            let mut model: BTreeMap<String, u64> = BTreeMap::new();
            let mut last = 0;
            let mut versions = std::collections::HashSet::new();
            for (removed, added) in changes {
                let before = ids_and_paths(&table);
                let removed_ids: Vec<_> = removed.iter().map(|id| ShareId(*id)).collect();
                let exports = added.iter().map(|(id, path)| export(*id, *path)).collect();
                let mut next = table.changed(&removed_ids, exports);
                prop_assert_eq!(ids_and_paths(&table), before);
                model.retain(|_, id| !removed.contains(id));
                for (id, path) in added {
                    let path = format!("/{path}");
                    if !model.contains_key(&path) && model.values().all(|known| *known != id) {
                        model.insert(path, id);
                        // Each that is new has a version of its own.
                        prop_assert!(next.exported(ShareId(id)).is_some_and(|e| e.version() == 0));
                    }
                }
                last = next.number(last);
                table = next;
                let expected: Vec<_> =
                    model.iter().map(|(path, id)| (*id, path.clone())).collect();
                prop_assert_eq!(ids_and_paths(&table), expected);
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(table.pseudo().root().links() as usize, model.len() + 2);
                let mut now = std::collections::HashSet::new();
                for (path, id) in &model {
                    let by_id = table.exported(ShareId(*id)).expect("by id");
                    let (by_path, rest) = table.by_path(path.as_bytes()).expect("by path");
                    prop_assert!(std::ptr::eq(by_id, by_path) && rest.is_empty());
                    let node = table.pseudo().at(path.as_bytes()).expect("a directory");
                    prop_assert_eq!(node.share(), Some(ShareId(*id)));
                    prop_assert!(by_id.version() > 0 && now.insert(by_id.version()));
                }
                versions.extend(now);
            }
            prop_assert!(versions.len() as u64 <= last);
        }
    }
}
