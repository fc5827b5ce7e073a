//! What is told about shares and groups.

use std::sync::Arc;

use steadfast_shares::Share;

use super::{Catalog, Claim, Group};
use crate::configuration::ConfigurationError;
use crate::group::{Content, NodeId, Outcome};
use crate::manage::{GroupSpec, Mistake, ShareSpec, ShareState};

/// A share as it is told.
#[derive(Clone, Debug)]
pub struct ShareView {
    /// Its group; `None` for those of `steadfast.toml` and of the command line.
    pub group: Option<Arc<str>>,
    /// The pattern that made it.
    pub pattern: Option<Box<str>>,
    /// As it is written; of one that a pattern made, what the pattern says.
    pub spec: ShareSpec,
    /// Plug-ins that serve it, its group's if it names none; none for NFS alone.
    pub protocols: Vec<String>,
    /// With its rules; `None` if it is not written right.
    pub share: Option<Arc<Share>>,
    /// Whether it is served, as far as the files tell.
    pub state: ShareState,
    /// What is wrong, if it is faulty.
    pub why: Vec<Mistake>,
    /// `FILE:LINE`
    pub source: String,
}

/// A group as it is told.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// As it is written.
    pub spec: GroupSpec,
    /// How many shares it has, those that patterns made among them.
    pub shares: usize,
    /// How many of these are served.
    pub served: usize,
    /// How many are faulty.
    pub faulty: usize,
    /// What is wrong with the group itself and its patterns.
    pub why: Vec<Mistake>,
    /// Its file.
    pub source: String,
}

impl Catalog {
    /// All shares: those of `steadfast.toml` first, then by group, in the order of its file.
    pub fn shares(&self) -> impl Iterator<Item = ShareView> {
        let fixed = (0..self.fixed.len() as u32).map(|index| (Claim::Fixed(index), 0));
        let groups = self.names.values().filter_map(|index| Some((*index, self.group(*index)?)));
        let claims = fixed.chain(groups.flat_map(|(index, group)| {
            let mut lines = newlines(group.file.preamble());
            let written = group.file.nodes().filter_map(move |(id, node)| {
                let before = lines;
                lines += newlines(group.file.text_of(id).unwrap_or_default());
                let is_share = matches!(node.content, Content::Share(_));
                is_share.then_some((Claim::Written(index, id), before))
            });
            let made = group.made.iter().enumerate().filter(|(_, made)| made.is_some());
            written.chain(made.map(move |(number, _)| (Claim::Made(index, number as u32), 0)))
        }));
        claims.filter_map(|(claim, lines)| self.view(claim, Some(lines)))
    }

    /// The shares of a path: the one that has it first, then those that came later.
    pub fn shares_at(&self, path: &str) -> Vec<ShareView> {
        let all = self.first(path).into_iter().chain(self.paths.later(path).iter().copied());
        all.filter_map(|claim| self.view(claim, None)).collect()
    }

    /// All groups by name.
    pub fn groups(&self) -> impl Iterator<Item = GroupView> {
        self.names.keys().filter_map(|name| self.group_view(name))
    }

    /// A group.
    pub fn group_view(&self, name: &str) -> Option<GroupView> {
        let index = self.group_index(name)?;
        let group = self.group(index)?;
        let mut view = GroupView {
            spec: group.file.spec(),
            shares: 0,
            served: 0,
            faulty: 0,
            why: self.group_mistakes(group),
            source: self.file_of(group),
        };
        let written = group.file.nodes().filter_map(|(id, node)| {
            matches!(node.content, Content::Share(_)).then_some(Claim::Written(index, id))
        });
        let made = group.made.iter().enumerate().filter(|(_, made)| made.is_some());
        for claim in written.chain(made.map(|(number, _)| Claim::Made(index, number as u32))) {
            view.shares += 1;
            view.served += usize::from(self.is_served(claim));
            view.faulty += usize::from(self.state(claim) == ShareState::Faulty);
        }
        Some(view)
    }

    /// Everything that is wrong with the files, by group and place.
    pub fn mistakes(&self) -> Vec<Mistake> {
        let mut all = Vec::new();
        for name in self.names.keys() {
            all.extend(self.mistakes_in(name));
        }
        all
    }

    /// Everything that is wrong with a group's file, by place.
    pub fn mistakes_in(&self, name: &str) -> Vec<Mistake> {
        let Some(index) = self.group_index(name) else { return Vec::new() };
        let Some(group) = self.group(index) else { return Vec::new() };
        let mut all = self.group_mistakes(group);
        let mut lines = newlines(group.file.preamble());
        for (id, node) in group.file.nodes() {
            let claim = Claim::Written(index, id);
            if matches!(node.content, Content::Share(_)) && self.state(claim) == ShareState::Faulty
            {
                all.extend(self.why(claim, Some(lines)));
            }
            lines += newlines(group.file.text_of(id).unwrap_or_default());
        }
        all
    }

    fn file_of(&self, group: &Group) -> String {
        format!("{}/{}.toml", self.directory, group.name)
    }

    fn placed(&self, group: &Group, errors: Vec<ConfigurationError>) -> Vec<Mistake> {
        let file = self.file_of(group);
        let told = errors.into_iter().map(|error| Mistake {
            operation: None,
            place: format!("{file}:{}", error.place),
            what: error.what,
            suggestion: error.suggestion,
        });
        told.collect()
    }

    /// What is wrong with a group's own keys, with its patterns, and with what is nothing known.
    fn group_mistakes(&self, group: &Group) -> Vec<Mistake> {
        let mut errors = group.file.group_mistakes().to_vec();
        errors.extend(group.file.placed_in_group(&group.mistakes));
        for (id, node) in group.file.nodes() {
            if matches!(node.content, Content::Pattern(_) | Content::Other(_)) {
                let has_any = match &node.content {
                    Content::Pattern(pattern) => {
                        !pattern.is_well_written() || pattern.word_mistakes.is_some()
                    }
                    _ => true,
                };
                if has_any {
                    errors.extend(group.file.mistakes_of(id, group.file.lines_before(id)));
                }
            }
        }
        self.placed(group, errors)
    }

    pub(super) fn state(&self, claim: Claim) -> ShareState {
        let share = self.share_of(claim);
        let Some(share) = share else { return ShareState::Faulty };
        if !self.has_place(claim, share) {
            ShareState::Faulty
        } else if !self.is_enabled(claim) {
            ShareState::Disabled
        } else if share.is_draining {
            ShareState::Draining
        } else {
            ShareState::Enabled
        }
    }

    /// What is told of a share, in whose file so many lines are before it if that is known.
    pub(super) fn view(&self, claim: Claim, lines: Option<usize>) -> Option<ShareView> {
        let state = self.state(claim);
        let why = if state == ShareState::Faulty { self.why(claim, lines) } else { Vec::new() };
        let share = self.share_of(claim).cloned();
        match claim {
            Claim::Fixed(index) => {
                let fixed = self.fixed.get(index as usize)?;
                Some(ShareView {
                    group: None,
                    pattern: None,
                    protocols: fixed.spec.protocols.clone(),
                    spec: fixed.spec.clone(),
                    share,
                    state,
                    why,
                    source: fixed.source.clone(),
                })
            }
            Claim::Written(index, node) => {
                let group = self.group(index)?;
                let spec = group.file.share(node)?.kept.spec();
                Some(ShareView {
                    group: Some(Arc::clone(&group.name)),
                    pattern: None,
                    protocols: protocols(&spec, group),
                    spec,
                    share,
                    state,
                    why,
                    source: self.source(group, node, lines),
                })
            }
            Claim::Made(index, number) => {
                let group = self.group(index)?;
                let made = group.made.get(number as usize)?.as_ref()?;
                let name = made.path.rsplit('/').next().unwrap_or_default();
                let spec = group.pattern(&made.pattern)?.share(name);
                let node = *group.patterns.get(&*made.pattern)?;
                Some(ShareView {
                    group: Some(Arc::clone(&group.name)),
                    pattern: Some((*made.pattern).into()),
                    protocols: protocols(&spec, group),
                    spec,
                    share,
                    state,
                    why,
                    source: self.source(group, node, None),
                })
            }
        }
    }

    /// `FILE:LINE` of a segment.
    fn source(&self, group: &Group, node: NodeId, lines: Option<usize>) -> String {
        let lines = lines.unwrap_or_else(|| group.file.lines_before(node));
        format!("{}:{}", self.file_of(group), group.file.header_line(node, lines))
    }

    /// Where a claim was written.
    fn source_of(&self, claim: Claim) -> String {
        match claim {
            Claim::Fixed(index) => {
                self.fixed.get(index as usize).map_or_else(String::new, |f| f.source.clone())
            }
            Claim::Written(index, node) => {
                self.group(index).map_or_else(String::new, |g| self.source(g, node, None))
            }
            Claim::Made(index, number) => self
                .group(index)
                .and_then(|group| {
                    let made = group.made.get(number as usize)?.as_ref()?;
                    Some(self.source(group, *group.patterns.get(&*made.pattern)?, None))
                })
                .unwrap_or_default(),
        }
    }

    /// What is wrong with a faulty share.
    pub(super) fn why(&self, claim: Claim, lines: Option<usize>) -> Vec<Mistake> {
        let mut why = Vec::new();
        let place = |lines: Option<usize>| match claim {
            Claim::Written(index, node) => {
                self.group(index).map_or_else(String::new, |g| self.source(g, node, lines))
            }
            other => self.source_of(other),
        };
        let said = |what| Mistake { place: place(lines), what, ..Mistake::default() };
        if let Claim::Written(index, node) = claim
            && let Some(group) = self.group(index)
        {
            let lines = lines.unwrap_or_else(|| group.file.lines_before(node));
            why.extend(self.placed(group, group.file.mistakes_of(node, lines)));
            let is_well_written =
                group.file.share(node).is_some_and(crate::group::ShareNode::is_well_written);
            if is_well_written && !group.is_well_written() {
                why.push(said(format!("its group {} has a mistake", group.name)));
            }
        }
        if let Claim::Made(index, number) = claim
            && let Some(group) = self.group(index)
            && let Some(Some(made)) = group.made.get(number as usize)
        {
            if let Some(node) = group.patterns.get(&*made.pattern)
                && let Outcome::Misworded(_) = made.outcome
            {
                let lines = group.file.lines_before(*node);
                why.extend(self.placed(group, group.file.mistakes_of(*node, lines)));
            } else if !group.is_well_written() {
                why.push(said(format!("its group {} has a mistake", group.name)));
            }
        }
        let path = self.path_of(claim);
        match self.first(path) {
            Some(first) if first != claim => {
                let source = self.source_of(first);
                why.push(said(format!("the path {path:?} is shared twice, first in {source}")));
            }
            _ => {
                if let Some(share) = self.share_of(claim)
                    && let Some(first) = self.ids.first(share.id.0)
                    && first != claim
                {
                    let other = self.path_of(first);
                    let source = self.source_of(first);
                    why.push(said(format!(
                        "the share {path:?} has the same id as {other:?} in {source}: write \
                         another `id = NUMBER`"
                    )));
                }
            }
        }
        why
    }
}

fn protocols(spec: &ShareSpec, group: &Group) -> Vec<String> {
    if spec.protocols.is_empty() {
        group.inherited.protocols.clone()
    } else {
        spec.protocols.clone()
    }
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}
