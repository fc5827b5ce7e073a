//! Looks at the directories of shares, of which there may be a hundred thousand.

use std::path::Path;
use std::sync::Arc;

use steadfast_posixfs::{LookedAt, OpenError, Qgroup, TreeOpener};
use steadfast_shares::Share;

use crate::configuration::{WantedShare, missing_directory};

/// Shares that a thread looks at, at the least: fewer are not worth one.
const SHARES_A_THREAD: usize = 256;

/// Looks at shares' directories, which may take as long as a disk hangs.
pub(crate) struct Looker(Arc<TreeOpener>);

impl Looker {
    pub(crate) fn new(opener: Arc<TreeOpener>) -> Self {
        Self(opener)
    }

    /// Looks at shares, by several threads if there are many.
    pub(crate) fn look_at_all(&self, wanted: &[WantedShare]) -> Vec<Result<LookedAt, String>> {
        // How many processors there are is asked for only if it matters: it takes reading files.
        let threads = match wanted.len() {
            0..=SHARES_A_THREAD => 1,
            _ => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let share = wanted.len().div_ceil(threads).max(SHARES_A_THREAD);
        let look = |part: &[WantedShare]| -> Vec<_> {
            part.iter().map(|wanted| self.look(&wanted.share)).collect()
        };
        std::thread::scope(|scope| {
            let mut parts = wanted.chunks(share);
            let first = parts.next().unwrap_or_default();
            let others: Vec<_> = parts
                .map(|part| {
                    let thread = std::thread::Builder::new().name("look".to_owned());
                    (part, thread.spawn_scoped(scope, move || look(part)))
                })
                .collect();
            let mut all = look(first);
            for (part, other) in others {
                // A thread that could not be had, or not finish, is made up for.
                let seen = other.ok().and_then(|other| other.join().ok());
                all.extend(seen.unwrap_or_else(|| look(part)));
            }
            all
        })
    }

    /// Looks at a share's directory, and at what is to enforce its size if it has one.
    pub(crate) fn look(&self, share: &Share) -> Result<LookedAt, String> {
        let mut seen = self.look_at(share.directory())?;
        let qgroup = || Qgroup::of(&seen.directory).map_err(|why| why.to_string());
        seen.qgroup = share.size.map(|_| qgroup());
        Ok(seen)
    }

    fn look_at(&self, directory: &Path) -> Result<LookedAt, String> {
        self.0.look(directory).map_err(|error| match error {
            OpenError::Open { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                missing_directory(directory)
            }
            OpenError::NotDirectory(directory) => format!("{directory:?} is not a directory"),
            OpenError::Open { source, .. } => {
                format!("the directory {directory:?} cannot be opened: {source}")
            }
            error => error.to_string(),
        })
    }
}
