//! Shares become exports: each with its open tree.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use steadfast_engine::{Export, ExportTable};
use steadfast_posixfs::{Mode, Storage, Tree, TreeOptions};
use steadfast_shares::{ClientRule, Rights, Share, ShareId, Squash};
use steadfast_sys::process;

use crate::configuration::{WantedShare, directory_problem};

/// What exports have in common.
pub(crate) struct Exports {
    pub(crate) storage: Arc<Storage>,
    pub(crate) state_directory: PathBuf,
    /// Whether the process may act under the identities of its callers.
    pub(crate) serves_all_users: bool,
    open: HashMap<ShareId, OpenTree>,
}

/// A tree and what it was opened for.
#[derive(Clone)]
struct OpenTree {
    crosses_mounts: bool,
    without_log: bool,
    /// The directory as it was written.
    written: PathBuf,
    /// The directory without symbolic links.
    directory: PathBuf,
    /// Device and inode number of the directory.
    identity: (u64, u64),
    tree: Arc<Tree>,
    /// The share as it is served.
    share: Arc<Share>,
}

/// A table, and what was wanted that is not in it.
pub(crate) struct Built {
    pub(crate) table: ExportTable,
    /// The shares that are served.
    pub(crate) served: Vec<Arc<Share>>,
    /// The shares that are not served, or not as they are wanted, with the reason.
    pub(crate) faults: Vec<String>,
}

impl Exports {
    pub(crate) fn new(
        storage: Arc<Storage>,
        state_directory: PathBuf,
        serves_all_users: bool,
    ) -> Self {
        Self { storage, state_directory, serves_all_users, open: HashMap::new() }
    }

    /// Opens what is not open yet and makes a table. A share that cannot be opened is left out;
    /// one that is open and cannot be opened again stays, since its clients are at work on it
    /// and what they work on is still there.
    pub(crate) fn build(&mut self, wanted: &[WantedShare]) -> Built {
        let mut open = HashMap::new();
        let mut exports = Vec::new();
        let mut faults = Vec::new();
        for WantedShare { share, place } in wanted {
            let at = place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
            let opened = self.open(share).or_else(|problem| {
                let (kept, with) = self.keep(share).ok_or(problem.clone())?;
                faults.push(format!(
                    "{at}share {:?} cannot be opened again: {problem}; its clients keep what was \
                     open, {:?} {with}, until a restart: restart the server to have the change",
                    share.path, kept.directory
                ));
                Ok(kept)
            });
            let ruled = opened.and_then(|opened| {
                let rules = self.rules(&opened.share, opened.tree.mode())?;
                let share = Arc::new(Share { rules, ..Share::clone(&opened.share) });
                Ok(OpenTree { share, ..opened })
            });
            match ruled {
                Ok(opened) => {
                    let storage = Arc::clone(&opened.tree) as _;
                    exports.push(Export { share: Arc::clone(&opened.share), storage });
                    open.insert(share.id, opened);
                }
                Err(problem) if place.is_none() => faults.push(problem),
                Err(problem) => {
                    faults.push(format!("{at}share {:?} is not served: {problem}", share.path));
                }
            }
        }
        // The trees that nobody wants any more are closed here, as far as no call uses them.
        self.open = open;
        let served = exports.iter().map(|export| Arc::clone(&export.share)).collect();
        Built { table: ExportTable::new(exports), served, faults }
    }

    /// The share's tree, opened now or before.
    fn open(&self, share: &Share) -> Result<OpenTree, String> {
        if let Some(problem) = directory_problem(&share.directory) {
            return Err(problem);
        }
        let directory = share
            .directory
            .canonicalize()
            .map_err(|error| format!("{:?} cannot be opened: {error}", share.directory))?;
        let metadata = directory
            .metadata()
            .map_err(|error| format!("{directory:?} cannot be opened: {error}"))?;
        let identity = (metadata.dev(), metadata.ino());
        let reusable = self.open.get(&share.id).filter(|open| {
            open.crosses_mounts == share.crosses_mounts
                && open.without_log == share.without_log
                && open.directory == directory
                && open.identity == identity
        });
        let tree = match reusable {
            Some(open) => Arc::clone(&open.tree),
            None => Arc::new(self.open_tree(share, &directory)?),
        };
        Ok(OpenTree {
            crosses_mounts: share.crosses_mounts,
            without_log: share.without_log,
            written: share.directory.clone(),
            identity,
            tree,
            share: Arc::new(Share { directory: directory.clone(), ..share.clone() }),
            directory,
        })
    }

    /// The tree that is open for a share which cannot be opened as it is wanted now, and with
    /// which rules it is kept. Those of now, if they are meant for this directory. If another
    /// one is wanted they may let in who was never to see this one, so the old ones stay.
    fn keep(&self, wanted: &Share) -> Option<(OpenTree, &'static str)> {
        let open = self.open.get(&wanted.id)?;
        let (rules, with) = if open.written == wanted.directory {
            (&wanted.rules, "with the rules as they are now")
        } else {
            (&open.share.rules, "with the rules as they were")
        };
        let share = Share {
            rules: rules.clone(),
            directory: open.directory.clone(),
            crosses_mounts: open.crosses_mounts,
            without_log: open.without_log,
            ..wanted.clone()
        };
        Some((OpenTree { share: Arc::new(share), ..open.clone() }, with))
    }

    fn open_tree(&self, share: &Share, directory: &Path) -> Result<Tree, String> {
        let options = TreeOptions {
            share_id: share.id.0,
            crosses_mounts: share.crosses_mounts,
            without_log: share.without_log,
            state_directory: Some(self.state_directory.clone()),
        };
        if self.state_directory.starts_with(directory) {
            tracing::warn!(
                "the share {:?} contains the state directory {}: a client that may read the key \
                 there can forge handles; keep it elsewhere with --state-directory",
                share.path,
                self.state_directory.display()
            );
        }
        Tree::open(directory, &options, &self.storage).map_err(|error| error.to_string())
    }

    /// The rules as they can be kept. Where the server cannot act as its callers, every call acts
    /// as the server's own user; that must not be root by accident.
    fn rules(&self, share: &Share, mode: Mode) -> Result<Vec<ClientRule>, String> {
        if mode == Mode::KernelHandles && self.serves_all_users {
            return Ok(share.rules.clone());
        }
        let (uid, gid) = process::effective_ids();
        let as_us = |rights: &Rights| Rights {
            squash: Squash::All,
            anonymous_uid: uid,
            anonymous_gid: gid,
            ..rights.clone()
        };
        let is_meant = share.rules.iter().all(|rule| rule.rights == as_us(&rule.rights));
        if uid == 0 && !is_meant {
            return Err(format!(
                "{:?} can only be served for one user, and this server runs as root: every \
                 client's user would be root. Run it as the user who owns the files, or on a \
                 file system with file handles and with the capabilities of root (in a \
                 container: a volume, and CAP_DAC_READ_SEARCH); if all are to be root, say so: \
                 all_squash, anonuid=0, anongid=0 (--all-squash --anonuid 0 --anongid 0)",
                share.directory
            ));
        }
        let rules = share.rules.iter();
        Ok(rules
            .map(|rule| ClientRule { pattern: rule.pattern.clone(), rights: as_us(&rule.rights) })
            .collect())
    }
}

/// Whether every call to the share acts as one user.
pub(crate) fn is_single_user(share: &Share) -> bool {
    let (uid, _) = process::effective_ids();
    !share.rules.is_empty()
        && share
            .rules
            .iter()
            .all(|rule| rule.rights.squash == Squash::All && rule.rights.anonymous_uid == uid)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use steadfast_posixfs::StorageOptions;
    use steadfast_shares::ClientPattern;

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    struct Place {
        directory: tempfile::TempDir,
        exports: Exports,
    }

    impl Place {
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            std::fs::create_dir(directory.path().join("first")).expect("made");
            let storage = Storage::new(StorageOptions::default());
            let exports = Exports::new(storage, directory.path().join("state"), false);
            Self { directory, exports }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        /// Builds one share, for everybody as the user who runs the tests, so that it is served
        /// whatever he may do.
        fn build(&mut self, name: &str, is_read_only: bool) -> Built {
            let (anonymous_uid, anonymous_gid) = process::effective_ids();
            let rights = Rights { is_read_only, squash: Squash::All, anonymous_uid, anonymous_gid };
            let share = Share {
                id: ShareId(1),
                path: "/share".to_owned(),
                directory: self.path(name),
                crosses_mounts: false,
                without_log: false,
                rules: vec![ClientRule { pattern: ClientPattern::Any, rights }],
            };
            let place = Some("file:1:2".to_owned());
            self.exports.build(&[WantedShare { share: Arc::new(share), place }])
        }
    }

    /// The inode number that clients see as the share's root, and whether it is read-only.
    fn served(built: &Built) -> (u64, bool) {
        let export = built.table.by_id(ShareId(1)).expect("served");
        let root = export.storage.root().expect("a root");
        let rights = export.share.rights(CLIENT).expect("rights");
        (root.attr.fileid, rights.is_read_only)
    }

    fn inode(path: &Path) -> u64 {
        path.metadata().expect("metadata").ino()
    }

    #[test]
    fn an_open_tree_is_used_again() {
        let mut place = Place::new();
        place.build("first", false);
        let tree = Arc::clone(&place.exports.open[&ShareId(1)].tree);
        let built = place.build("first", true);
        assert!(built.faults.is_empty(), "{:?}", built.faults);
        assert!(Arc::ptr_eq(&tree, &place.exports.open[&ShareId(1)].tree));
        assert!(served(&built).1);
    }

    #[test]
    fn a_share_whose_directory_is_gone_serves_on_by_the_new_rules() {
        let mut place = Place::new();
        let number = inode(&place.path("first"));
        assert_eq!(served(&place.build("first", false)), (number, false));
        std::fs::rename(place.path("first"), place.path("elsewhere")).expect("renamed");
        for _ in 0..2 {
            let built = place.build("first", true);
            assert_eq!(served(&built), (number, true));
            let [fault] = built.faults.as_slice() else { panic!("{:?}", built.faults) };
            assert!(
                fault.starts_with("file:1:2: share \"/share\" cannot be opened again"),
                "{fault}"
            );
            assert!(fault.contains("does not exist") && fault.contains("restart"), "{fault}");
        }
        // It is back: nothing to complain about.
        std::fs::rename(place.path("elsewhere"), place.path("first")).expect("renamed");
        let built = place.build("first", false);
        assert_eq!((served(&built), built.faults), ((number, false), Vec::new()));
    }

    #[test]
    fn rules_meant_for_another_directory_do_not_open_this_one() {
        let mut place = Place::new();
        let number = inode(&place.path("first"));
        place.build("first", true);
        let built = place.build("missing", false);
        assert_eq!(served(&built), (number, true));
        assert!(built.faults[0].contains("with the rules as they were"), "{:?}", built.faults);
        // Once it is there it is served.
        std::fs::create_dir(place.path("missing")).expect("made");
        let built = place.build("missing", false);
        let kept = place.exports.open[&ShareId(1)].tree.mode();
        // A store of handles cannot be opened twice, so then it does take a restart.
        if kept == Mode::KernelHandles {
            assert_eq!(served(&built), (inode(&place.path("missing")), false));
        }
    }

    #[test]
    fn a_share_that_never_was_open_is_left_out() {
        let mut place = Place::new();
        let built = place.build("missing", false);
        assert_eq!(built.table.iter().count(), 0);
        assert!(built.faults[0].starts_with("file:1:2: share \"/share\" is not served: "));
    }
}
