//! What is told about one share at a cost that does not grow with its file.

use std::sync::Arc;

use steadfast_shares::Share;

use super::{Catalog, Claim, ShareView};
use crate::manage::{DefaultsSpec, ShareState};

/// What other programs are told of a share that is served.
#[derive(Clone, Copy, Debug)]
pub struct ShareNotice<'a> {
    /// With its rules.
    pub share: &'a Arc<Share>,
    /// Its name where protocols want one.
    pub resource: Option<&'a str>,
    /// For people.
    pub description: Option<&'a str>,
    /// Plug-ins that serve it, its group's if it names none; none for NFS alone.
    pub protocols: &'a [String],
}

impl Catalog {
    /// The share that is served at a path, as other programs are told of it.
    pub fn notice_at(&self, path: &str) -> Option<ShareNotice<'_>> {
        let claim = self.first(path).filter(|claim| self.is_served(*claim))?;
        let share = self.share_of(claim)?;
        let notice = ShareNotice { share, resource: None, description: None, protocols: &[] };
        Some(match claim {
            Claim::Fixed(index) => {
                let spec = &self.fixed.get(index as usize)?.spec;
                ShareNotice {
                    resource: spec.resource.as_deref(),
                    description: spec.description.as_deref(),
                    protocols: &spec.protocols,
                    ..notice
                }
            }
            Claim::Written(group, node) => {
                let group = self.group(group)?;
                let kept = &group.file.share(node)?.kept;
                let (own, of_group) = (kept.protocols(), &group.inherited.protocols);
                ShareNotice {
                    resource: kept.resource(),
                    description: kept.description(),
                    protocols: if own.is_empty() { of_group } else { own },
                    ..notice
                }
            }
            // Patterns say none of these.
            Claim::Made(group, _) => {
                ShareNotice { protocols: &self.group(group)?.inherited.protocols, ..notice }
            }
        })
    }

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
    pub fn paths_of(&self, group: &str) -> impl Iterator<Item = &Arc<str>> {
        let group = self.group_index(group).and_then(|index| self.group(index));
        let written = group.into_iter().flat_map(|group| group.file.paths());
        let made = group.into_iter().flat_map(|group| group.made.iter().flatten());
        written.chain(made.map(|made| &made.path))
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
