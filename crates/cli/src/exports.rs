//! Shares become exports: each with its open tree.

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
    open: Vec<OpenTree>,
}

/// A tree and what it was opened for.
#[derive(Clone)]
struct OpenTree {
    id: ShareId,
    crosses_mounts: bool,
    directory: PathBuf,
    /// Device and inode number of the directory.
    identity: (u64, u64),
    tree: Arc<Tree>,
}

/// A table, and the shares that are not in it with the reason.
pub(crate) struct Built {
    pub(crate) table: ExportTable,
    /// The shares that are served.
    pub(crate) served: Vec<Arc<Share>>,
    pub(crate) faults: Vec<String>,
}

impl Exports {
    pub(crate) fn new(
        storage: Arc<Storage>,
        state_directory: PathBuf,
        serves_all_users: bool,
    ) -> Self {
        Self { storage, state_directory, serves_all_users, open: Vec::new() }
    }

    /// Opens what is not open yet and makes a table. A share that cannot be opened is left out.
    pub(crate) fn build(&mut self, wanted: &[WantedShare]) -> Built {
        let mut open = Vec::new();
        let mut exports = Vec::new();
        let mut faults = Vec::new();
        for WantedShare { share, place } in wanted {
            match self.open(share) {
                Ok((opened, share)) => {
                    exports.push(Export {
                        share: Arc::new(share),
                        storage: Arc::clone(&opened.tree) as _,
                    });
                    open.push(opened);
                }
                Err(problem) => faults.push(match place {
                    Some(place) => {
                        format!("{place}: share {:?} is not served: {problem}", share.path)
                    }
                    None => problem,
                }),
            }
        }
        // The trees that nobody wants any more are closed here, as far as no call uses them.
        self.open = open;
        let served = exports.iter().map(|export| Arc::clone(&export.share)).collect();
        Built { table: ExportTable::new(exports), served, faults }
    }

    fn open(&self, share: &Share) -> Result<(OpenTree, Share), String> {
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
        let reusable = self.open.iter().find(|open| {
            open.id == share.id
                && open.crosses_mounts == share.crosses_mounts
                && open.directory == directory
                && open.identity == identity
        });
        let opened = match reusable {
            Some(open) => open.clone(),
            None => OpenTree {
                id: share.id,
                crosses_mounts: share.crosses_mounts,
                tree: Arc::new(self.open_tree(share, &directory)?),
                directory,
                identity,
            },
        };
        let rules = self.rules(share, opened.tree.mode())?;
        let directory = opened.directory.clone();
        Ok((opened, Share { rules, directory, ..share.clone() }))
    }

    fn open_tree(&self, share: &Share, directory: &Path) -> Result<Tree, String> {
        let options = TreeOptions {
            share_id: share.id.0,
            crosses_mounts: share.crosses_mounts,
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
