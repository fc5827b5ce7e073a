//! Changes of the groups' texts: what a batch comes down to.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use steadfast_shares::Share;

use super::{Catalog, Claim, Claimants, Group, ShareChange, claimants, patterns};
use crate::group::{Content, GroupFile, Item, KeptShare, NodeId, Outcome, Position};

/// A segment of a group's file that becomes another. Idempotent: whatever the segment is, it is
/// `after` then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// The group's name.
    pub group: Box<str>,
    /// Which part of it.
    pub item: Item,
    /// Which of several parts of this name, from 0 (more than one is a mistake, but written).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub occurrence: u32,
    /// Its text before; `None` if it is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Box<str>>,
    /// Its text afterwards; `None` if it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Box<str>>,
    /// Where the segments of a whole file begin, in bytes (default: where they would begin if it
    /// were read). They may be cut otherwise after changes, by empty lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cuts: Vec<u32>,
    /// Where a segment that comes or goes stands (default: at the end).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Edit {
    /// The edit that puts a whole file in the place of another; `None` for no file.
    pub fn of_file(group: &str, before: Option<&str>, after: Option<&str>) -> Self {
        Self {
            group: group.into(),
            item: Item::File,
            occurrence: 0,
            before: before.map(Into::into),
            after: after.map(Into::into),
            cuts: Vec::new(),
            position: None,
        }
    }

    /// The edit that takes this one back.
    #[must_use]
    pub fn inverse(&self) -> Self {
        Self { before: self.after.clone(), after: self.before.clone(), ..self.clone() }
    }
}

impl Catalog {
    /// Does edits that were done before, to these files or to others like them.
    pub fn put_all(&mut self, edits: &[Edit]) -> Vec<ShareChange> {
        self.forget_lost();
        for edit in edits {
            self.put(edit);
        }
        self.take_changes()
    }

    /// Does edits of an earlier time: those of whole files say afterwards what the files were just
    /// before, which may be something else than it was then. Those of parts of groups that are
    /// gone are taken out; the second value names these groups.
    pub fn put_back(&mut self, edits: &mut Vec<Edit>) -> (Vec<ShareChange>, BTreeSet<Box<str>>) {
        self.forget_lost();
        let mut gone = BTreeSet::new();
        edits.retain_mut(|edit| {
            if edit.item == Item::File {
                gone.remove(&edit.group);
            }
            if self.is_of_no_group(edit) {
                if edit.after.is_some() {
                    gone.insert(edit.group.clone());
                }
                return false;
            }
            let now = self.file(&edit.group).filter(|_| edit.item == Item::File);
            let text = now.map(GroupFile::text);
            if edit.item == Item::File && text.as_deref() != edit.before.as_deref() {
                edit.cuts = if edit.after.is_none() { now.map(GroupFile::cuts) } else { None }
                    .unwrap_or_default();
                edit.before = text.map(Into::into);
            }
            self.put(edit);
            true
        });
        (self.take_changes(), gone)
    }

    /// Does edits that were done before, to files that others may have changed meanwhile, or that
    /// have some of them already: what others wrote stays, except in the segments that the edits
    /// are of. Returns the groups that somebody removed, of which edits of parts were left out.
    pub fn merge_all(&mut self, edits: &[Edit]) -> BTreeSet<Box<str>> {
        self.forget_lost();
        let mut gone = BTreeSet::new();
        for edit in edits {
            if edit.item == Item::File {
                // It says what becomes of the group as a whole, whatever was left out before.
                gone.remove(&edit.group);
            } else if edit.after.is_some() && self.is_of_no_group(edit) {
                gone.insert(edit.group.clone());
            }
            let now = self.file(&edit.group).map(GroupFile::text);
            if edit.item != Item::File || now.is_none() || now.as_deref() == edit.before.as_deref()
            {
                self.put(edit);
            } else if now.as_deref() != edit.after.as_deref() {
                self.merge_file(edit);
            }
        }
        self.touched.clear();
        self.ousted.clear();
        gone
    }

    /// Whether an edit is of a part of a group that is not there. Such a part does not come
    /// without its group: it would inherit less than was written for it, and let more people in.
    fn is_of_no_group(&self, edit: &Edit) -> bool {
        edit.item != Item::File
            && self.group_index(&edit.group).is_none()
            && !self.unreadable.contains(&edit.group)
    }

    /// Does to each segment what was done to the whole file.
    fn merge_file(&mut self, edit: &Edit) {
        let read = |text: &Option<Box<str>>| {
            GroupFile::parse_cut(&edit.group, text.as_deref().unwrap_or(""), &[])
        };
        let (before, after) = (read(&edit.before), read(&edit.after));
        let put = |catalog: &mut Self, item: &Item, occurrence: u32, text: Option<&str>| {
            let whole = Edit::of_file(&edit.group, None, text);
            catalog.put(&Edit { item: item.clone(), occurrence, ..whole });
        };
        if edit.after.is_some() && before.preamble() != after.preamble() {
            put(self, &Item::Group, 0, Some(after.preamble()));
        }
        let (old, new) = (before.named_texts(), after.named_texts());
        let is_left: HashSet<_> = new.iter().map(|(name, _)| name).collect();
        // Of several with one name the last goes first: the others keep their numbers.
        for ((item, occurrence), _) in old.iter().rev().filter(|(name, _)| !is_left.contains(name))
        {
            put(self, item, *occurrence, None);
        }
        let old: HashMap<_, _> = old.iter().map(|(name, text)| (name, text)).collect();
        for (name, text) in new.iter().filter(|(name, text)| old.get(name) != Some(&text)) {
            put(self, &name.0, name.1, Some(text));
        }
        let rest = self.file(&edit.group).map(GroupFile::text);
        if edit.after.is_none() && rest.is_some_and(|rest| rest.trim() == before.preamble().trim())
        {
            self.remove_group(&edit.group);
        }
    }

    /// Takes edits back, the last first.
    pub fn take_back(&mut self, edits: &[Edit]) -> Vec<ShareChange> {
        self.undo(edits);
        self.take_changes()
    }

    pub(super) fn undo(&mut self, edits: &[Edit]) {
        for edit in edits.iter().rev() {
            self.put(&edit.inverse());
        }
    }

    pub(super) fn put(&mut self, edit: &Edit) {
        if self.unreadable.contains(&edit.group) || self.is_of_no_group(edit) {
            return;
        }
        match (&edit.item, &edit.after) {
            (Item::File, None) => self.remove_group(&edit.group),
            (Item::File, Some(text)) => {
                self.put_file(GroupFile::parse_cut(&edit.group, text, &edit.cuts));
            }
            (Item::Group, after) => self.put_group(&edit.group, after.as_deref().unwrap_or("")),
            (item, after) => self.put_item(edit, item, after.as_deref()),
        }
    }

    /// Puts another text before a group's shares.
    fn put_group(&mut self, name: &str, text: &str) {
        let Some(index) = self.group_index(name) else { return };
        let Some(group) = self.group(index).filter(|group| group.file.preamble() != text) else {
            return;
        };
        let (spec, is_well_written) = group.file.preamble_of(text);
        let (inherited, mistakes) = spec.inherited(&self.inherited);
        let means_the_same = inherited == *group.inherited
            && mistakes == group.mistakes
            && is_well_written == group.file.group_mistakes().is_empty();
        if means_the_same {
            self.switch_group(index, spec.enabled != Some(false), text);
        } else {
            self.change_group(index, |group| group.file.put_preamble(text));
        }
    }

    /// Puts a text before a group's shares that changes nothing of them but, maybe, whether they
    /// are served. Nobody gets or loses a path or an id by that: of a hundred thousand each is
    /// looked at once.
    fn switch_group(&mut self, index: u32, is_enabled: bool, text: &str) {
        let was_enabled = self.group(index).is_some_and(Group::is_enabled);
        if was_enabled && !is_enabled {
            self.touch_served(index, |share| Some(Arc::clone(share)));
        }
        if let Some(group) = self.group_mut(index) {
            group.file.put_preamble(text);
        }
        if is_enabled && !was_enabled {
            self.touch_served(index, |_| None);
        }
    }

    /// Notes of each share of a group that is served how it was served before.
    fn touch_served(&mut self, index: u32, before: impl Fn(&Arc<Share>) -> Option<Arc<Share>>) {
        let claims = self.claims_of(index);
        self.touched.reserve(claims.len());
        for claim in claims {
            let share = self.share_of(claim).filter(|_| self.is_served(claim));
            let Some((path, before)) = share.map(|share| (Arc::clone(&share.path), before(share)))
            else {
                continue;
            };
            self.touched.entry(path).or_insert(before);
        }
    }

    /// Adds a group's file, or puts it in the place of the one that there is. Its patterns make
    /// shares of the directories that were seen for them last.
    pub(super) fn put_file(&mut self, file: GroupFile) {
        let name = file.group().name.clone();
        self.remove_group(&name);
        let group = Group::new(file, &self.inherited);
        let index = self.groups.iter().position(Option::is_none).unwrap_or(self.groups.len());
        if index == self.groups.len() {
            self.groups.push(None);
        }
        let ids: Vec<NodeId> = group.file.nodes().map(|(id, _)| id).collect();
        if let Some(place) = self.groups.get_mut(index) {
            *place = Some(group);
        }
        let index = index as u32;
        self.names.insert(name.as_str().into(), index);
        self.paths.reserve(ids.len(), claimants!(self));
        for id in ids {
            self.settle(index, id);
        }
        self.settle_patterns(index);
        let patterns: Vec<Box<str>> =
            self.group(index).map(|g| g.patterns.keys().cloned().collect()).unwrap_or_default();
        for pattern in patterns {
            self.make_of_directories(index, &pattern);
        }
    }

    fn remove_group(&mut self, name: &str) {
        let Some(index) = self.group_index(name) else { return };
        for claim in self.claims_of(index) {
            self.release(claim);
        }
        if let Some(place) = self.groups.get_mut(index as usize) {
            *place = None;
        }
        self.names.remove(name);
        if self.seen.contains_key(name) {
            self.lost.insert(name.into());
        }
    }

    /// The claims of a group, made ones last.
    fn claims_of(&self, index: u32) -> Vec<Claim> {
        let Some(group) = self.group(index) else { return Vec::new() };
        let written = group.file.nodes().filter_map(|(id, node)| {
            matches!(node.content, Content::Share(_)).then_some(Claim::Written(index, id))
        });
        let made = group.made.iter().enumerate().filter(|(_, made)| made.is_some());
        written.chain(made.map(|(number, _)| Claim::Made(index, number as u32))).collect()
    }

    /// Changes a group's own keys, and looks anew at all its shares.
    pub(super) fn change_group(&mut self, index: u32, change: impl FnOnce(&mut Group)) {
        let claims = self.claims_of(index);
        for claim in &claims {
            self.release(*claim);
        }
        let base = self.inherited.clone();
        if let Some(group) = self.group_mut(index) {
            change(group);
            let (inherited, mistakes) = group.file.group().inherited(&base);
            group.mistakes = mistakes;
            if *group.inherited != inherited {
                group.inherited = Arc::new(inherited);
            }
        }
        for claim in claims {
            match claim {
                Claim::Written(group, node) => self.settle(group, node),
                Claim::Made(group, number) => self.settle_made(group, number),
                Claim::Fixed(_) => {}
            }
        }
        self.settle_patterns(index);
    }

    fn settle_made(&mut self, index: u32, number: u32) {
        let spec = self.group(index).and_then(|group| {
            let made = group.made.get(number as usize)?.as_ref()?;
            let name = made.path.rsplit('/').next()?;
            Some(group.pattern(&made.pattern)?.share(name))
        });
        let Some(spec) = spec else { return };
        let outcome = self.resolved(index, &mut KeptShare::from(spec), true);
        if let Some(group) = self.group_mut(index)
            && let Some(Some(made)) = group.made.get_mut(number as usize)
        {
            made.outcome = outcome;
        }
        self.claim(Claim::Made(index, number));
    }

    /// Looks at the words of a group's patterns.
    fn settle_patterns(&mut self, index: u32) {
        let Some(group) = self.group(index) else { return };
        let patterns: Vec<_> = group
            .patterns
            .iter()
            .filter_map(|(directories, id)| Some((*id, group.pattern(directories)?.share("x"))))
            .collect();
        for (id, spec) in patterns {
            let outcome = self.resolved(index, &mut KeptShare::from(spec), true);
            let node = self.group_mut(index).and_then(|group| group.file.node_mut(id));
            if let Some(Content::Pattern(pattern)) = node.map(|node| &mut node.content) {
                pattern.word_mistakes = match outcome {
                    Outcome::Misworded(mistakes) => Some(mistakes),
                    _ => None,
                };
            }
        }
    }

    fn put_item(&mut self, edit: &Edit, item: &Item, after: Option<&str>) {
        let Some(index) = self.group_index(&edit.group) else { return };
        let node = self.find(index, item, edit.occurrence);
        if let Some(node) = node {
            if after == self.group(index).and_then(|group| group.file.text_of(node)) {
                return;
            }
            self.release(Claim::Written(index, node));
        }
        let place = self.place(index, edit.position.as_ref());
        let Some(group) = self.group_mut(index) else { return };
        let settled = match (node, after) {
            (Some(node), Some(text)) => {
                group.file.put_text(node, text);
                Some(node)
            }
            (Some(node), None) => {
                group.file.remove(node);
                None
            }
            (None, Some(text)) => Some(group.file.insert_item(place, item, text)),
            (None, None) => None,
        };
        match item {
            Item::Share(_) => {
                if let Some(node) = settled {
                    self.settle(index, node);
                }
            }
            Item::Pattern(directories) => self.pattern_changed(index, directories),
            Item::File | Item::Group => {}
        }
    }

    /// A pattern came, went or is another: so are the shares that it made.
    fn pattern_changed(&mut self, index: u32, directories: &str) {
        if let Some(group) = self.group_mut(index) {
            group.patterns = patterns(&group.file);
        }
        self.settle_patterns(index);
        let made: Vec<_> = self
            .made_by(index, directories)
            .map(|(number, made)| (number, made.path.clone()))
            .collect();
        let spec = self.group(index).and_then(|group| group.pattern(directories)).cloned();
        for (number, path) in made {
            let name = path.rsplit('/').next().unwrap_or_default();
            if spec.as_ref().is_some_and(|spec| spec.matches(name)) {
                self.release(Claim::Made(index, number));
                self.settle_made(index, number);
            }
        }
        self.make_of_directories(index, directories);
        if spec.is_none()
            && let Some(name) = self.group(index).map(|group| (*group.name).into())
        {
            self.lost.insert(name);
        }
    }

    /// Where a segment stands in its group.
    pub(super) fn position_of(&self, index: u32, node: NodeId) -> Option<Position> {
        let file = &self.group(index)?.file;
        Some(file.position_of(node, |item, id| self.find(index, item, 0) == Some(id)))
    }

    /// The segment behind which one of this position belongs.
    fn place(&self, index: u32, position: Option<&Position>) -> NodeId {
        let Some(group) = self.group(index) else { return NodeId::MAX };
        let Some(position) = position else { return group.file.last() };
        let known = self.find(index, &position.behind, 0);
        if known.is_none() && position.behind != Item::Group {
            // What it stood behind is there no more.
            return group.file.last();
        }
        let is_named = |item: &Item, id| self.find(index, item, 0) == Some(id);
        group.file.behind(known, position.skip, is_named)
    }

    /// The segment of an item in a group; of several the one of this number.
    pub(super) fn find(&self, index: u32, item: &Item, occurrence: u32) -> Option<NodeId> {
        let nth = occurrence as usize;
        match item {
            Item::File | Item::Group => None,
            Item::Share(path) => self.written_at(index, path).nth(nth),
            Item::Pattern(directories) => {
                let group = self.group(index)?;
                if nth == 0 {
                    return group.patterns.get(directories).copied();
                }
                let mut all = group.file.nodes().filter(|(_, node)| {
                    let Content::Pattern(pattern) = &node.content else { return false };
                    *pattern.spec.directories == **directories
                });
                all.nth(nth).map(|(id, _)| id)
            }
        }
    }

    /// The segments of a group that share a path, in their order.
    pub(super) fn written_at(&self, index: u32, path: &str) -> impl Iterator<Item = NodeId> {
        let all = self.first(path).into_iter().chain(self.paths.later(path).iter().copied());
        all.filter_map(move |claim| match claim {
            Claim::Written(other, node) if other == index => Some(node),
            _ => None,
        })
    }

    /// Which of the segments of its name one is.
    pub(super) fn occurrence(&self, index: u32, item: &Item, node: NodeId) -> u32 {
        let mut number = 0;
        while let Some(other) = self.find(index, item, number) {
            if other == node {
                return number;
            }
            number += 1;
        }
        0
    }
}
