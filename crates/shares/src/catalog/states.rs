//! What is told about one share at a cost that does not grow with its file.

use super::{Catalog, Claim, ShareView};
use crate::manage::{DefaultsSpec, ShareState};

impl Catalog {
    /// How the share that has a path first is doing; `None` if nothing is written about it.
    pub fn state_at(&self, path: &str) -> Option<ShareState> {
        self.first(path).map(|claim| self.state(claim))
    }

    /// The share that has a path first. Its line is counted from the beginning of its segment, not
    /// of its file: who shows it asks [`Catalog::shares_at`].
    pub fn share_at(&self, path: &str) -> Option<ShareView> {
        self.view(self.first(path)?, Some(0))
    }

    /// All shares of a path: the one that has it first, then those that came later. Their lines are
    /// counted as those of [`Catalog::share_at`] are.
    pub fn claimed_at(&self, path: &str) -> Vec<ShareView> {
        let all = self.first(path).into_iter().chain(self.paths.later(path).iter().copied());
        all.filter_map(|claim| self.view(claim, Some(0))).collect()
    }

    /// The paths of a group's shares, those that patterns made among them.
    pub fn paths_of(&self, group: &str) -> Vec<&str> {
        let Some(group) = self.group_index(group).and_then(|index| self.group(index)) else {
            return Vec::new();
        };
        let written = group.file.paths();
        written.chain(group.made.iter().flatten().map(|made| &*made.path)).collect()
    }

    /// Whether the share that has a path first was made by a pattern.
    pub fn is_made(&self, path: &str) -> bool {
        matches!(self.first(path), Some(Claim::Made(..)))
    }

    /// The group of the share that has a path first.
    pub fn group_at(&self, path: &str) -> Option<&str> {
        match self.first(path)? {
            Claim::Fixed(_) => None,
            Claim::Written(group, _) | Claim::Made(group, _) => Some(&self.group(group)?.name),
        }
    }

    /// Where a share of `steadfast.toml` or of the command line is written that has this path
    /// first.
    pub fn fixed_source(&self, path: &str) -> Option<&str> {
        match self.first(path)? {
            Claim::Fixed(index) => Some(&self.fixed.get(index as usize)?.source),
            _ => None,
        }
    }

    /// `[defaults]` of `steadfast.toml`.
    pub fn defaults(&self) -> &DefaultsSpec {
        &self.defaults
    }
}
