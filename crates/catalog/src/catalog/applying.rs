//! Batches: all of it or nothing.

use std::collections::{BTreeMap, HashSet};

use steadfast_shares::{nearest, shown};

use super::{Catalog, Claim, Edit, ShareChange};
use crate::group::{self, Content, GroupFile, Item, NodeId, Outcome};
use crate::manage::{
    Batch, ChangeMistake, Changes, DEFAULT_GROUP, GroupSpec, Mistake, Operation, PatternSpec,
    ShareSpec, ShareState, check_group_name,
};

/// How many mistakes of a batch are told.
const MISTAKES_MAX: usize = 200;
/// How many mistakes of what a partial batch leaves out are told.
const LEFT_OUT_MAX: usize = 1000;
/// For how many mistakes of a batch the nearest of all paths or groups is looked for.
const NEIGHBOURS_MAX: usize = 8;

/// What a batch did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// The texts that it changed, in their order.
    pub edits: Vec<Edit>,
    /// The shares that are served otherwise, by path.
    pub changes: Vec<ShareChange>,
    /// What was left out of a partial batch, and why: the first thousand, and one more that says
    /// so if there are others.
    pub left_out: Vec<Mistake>,
    /// What was so already, and may be a slip of the pen: shares to be removed that are not there.
    pub notes: Vec<Mistake>,
}

/// A batch as it is done.
#[derive(Default)]
struct Doing {
    edits: Vec<Edit>,
    mistakes: Vec<Mistake>,
    notes: Vec<Mistake>,
    /// Shares and patterns that were named, with the operation and with what was wrong before.
    named: Vec<(usize, Box<str>, Vec<String>)>,
    /// Groups whose own keys are others, with the operation and the shares that were right.
    inheriting: BTreeMap<Box<str>, (usize, Vec<NodeId>)>,
    /// How often the nearest path or group was looked for: each goes through many names.
    neighbours: usize,
}

impl Doing {
    /// Whether the nearest path or group may be looked for once more.
    fn may_look_for_neighbour(&mut self) -> bool {
        self.neighbours += 1;
        self.neighbours <= NEIGHBOURS_MAX
    }
}

/// Mistakes of one operation: where and what.
type Refused = Vec<ChangeMistake>;

fn refused(field: impl Into<String>, what: impl Into<String>) -> Refused {
    vec![ChangeMistake { field: field.into(), what: what.into(), suggestion: None }]
}

impl Catalog {
    /// Does a batch. On an error nothing has changed; all mistakes are told, up to some number.
    /// With `partial` each operation is done that has no mistakes by itself and after those
    /// before it.
    ///
    /// # Errors
    /// What is wrong with the batch.
    pub fn apply(&mut self, batch: &Batch) -> Result<Applied, Vec<Mistake>> {
        // Whatever was left to be told belongs to something else.
        self.touched.clear();
        self.ousted.clear();
        self.forget_lost();
        let mut doing = Doing::default();
        let mut left_out = Vec::new();
        let mut untold = 0;
        for (index, operation) in batch.operations.iter().enumerate() {
            let done = doing.edits.len();
            if let Err(refused) = self.perform(index, operation, &mut doing) {
                doing.mistakes.extend(refused.into_iter().map(|mistake| Mistake {
                    operation: Some(index),
                    place: place(operation, &mistake.field),
                    what: mistake.what,
                    suggestion: mistake.suggestion,
                }));
            }
            if batch.partial {
                self.check(&mut doing);
                if !doing.mistakes.is_empty() {
                    let undone = doing.edits.split_off(done);
                    self.undo(&undone);
                    self.ousted.clear();
                    let room = LEFT_OUT_MAX.saturating_sub(left_out.len());
                    untold += doing.mistakes.len().saturating_sub(room);
                    left_out.extend(doing.mistakes.drain(..).take(room));
                }
                doing.named.clear();
                doing.inheriting.clear();
            } else if doing.mistakes.len() >= MISTAKES_MAX {
                break;
            }
        }
        self.check(&mut doing);
        if !doing.mistakes.is_empty() {
            self.undo(&doing.edits);
            self.touched.clear();
            doing.mistakes.truncate(MISTAKES_MAX);
            return Err(doing.mistakes);
        }
        if untold > 0 {
            let what = format!("{untold} more mistakes are not told: correct these first");
            left_out.push(Mistake { what, ..Mistake::default() });
        }
        let changes = self.take_changes();
        Ok(Applied { edits: doing.edits, changes, left_out, notes: doing.notes })
    }

    /// What a batch would do; nothing has changed afterwards.
    ///
    /// # Errors
    /// What is wrong with the batch.
    pub fn try_out(&mut self, batch: &Batch) -> Result<Applied, Vec<Mistake>> {
        let applied = self.apply(batch)?;
        self.undo(&applied.edits);
        self.touched.clear();
        Ok(applied)
    }

    fn edit(&mut self, doing: &mut Doing, edit: Edit) {
        if edit.before != edit.after {
            self.put(&edit);
            doing.edits.push(edit);
        }
    }

    fn perform(
        &mut self,
        index: usize,
        operation: &Operation,
        doing: &mut Doing,
    ) -> Result<(), Refused> {
        match operation {
            Operation::CreateGroup { group } => self.create_group(index, group, doing),
            Operation::DeleteGroup { name, with_shares } => {
                self.delete_group(name, *with_shares, doing)
            }
            Operation::SetGroup { name, changes } => self.set_group(index, name, changes, doing),
            Operation::AddShare { group, share } => self.add_share(index, group, share, doing),
            // Who asks twice for it has it, as of one that is added. What a file has that cannot be read is not known.
            Operation::RemoveShare { path }
                if self.claim_to_check(path).is_none() && !self.may_be_written(path) =>
            {
                if doing.notes.len() < MISTAKES_MAX {
                    let may_look = doing.may_look_for_neighbour();
                    doing.notes.push(Mistake {
                        operation: Some(index),
                        place: place(operation, ""),
                        what: "there is no such share, so there is nothing to remove".to_owned(),
                        suggestion: may_look.then(|| self.neighbour(path)).flatten(),
                    });
                }
                Ok(())
            }
            Operation::RemoveShare { path } => {
                let (group, node) = self.written(path, doing)?;
                let edit = self.removal(group, node, Item::Share(path.as_str().into()));
                self.edit(doing, edit);
                Ok(())
            }
            Operation::SetShare { path, changes } => self.set_share(index, path, changes, doing),
            Operation::MoveShare { path, group } => self.move_share(index, path, group, doing),
        }
    }

    fn known_group(&self, name: &str, doing: &mut Doing) -> Result<u32, Refused> {
        self.group_index(name).ok_or_else(|| {
            if self.unreadable.contains(name) {
                return refused("group", self.unreadable_file(name));
            }
            let may_look = doing.may_look_for_neighbour();
            let neighbour = may_look.then(|| nearest(name, self.group_names())).flatten();
            vec![ChangeMistake {
                field: "group".to_owned(),
                what: format!("there is no group {}", shown(name)),
                suggestion: neighbour.map(String::from),
            }]
        })
    }

    fn name_of(&self, group: u32) -> Box<str> {
        self.group(group).map_or_else(Box::default, |group| (*group.name).into())
    }

    /// The segment of a share that tools may change: of several with one path the one that came
    /// last, which is not the one that is served.
    fn written(&self, path: &str, doing: &mut Doing) -> Result<(u32, NodeId), Refused> {
        let all = self.first(path).into_iter().chain(self.paths.later(path).iter().copied());
        let mut refusal = None;
        for claim in all.collect::<Vec<_>>().into_iter().rev() {
            match claim {
                Claim::Written(group, node) => return Ok((group, node)),
                Claim::Made(group, number) => {
                    let group = self.group(group);
                    let made = group.and_then(|g| g.made.get(number as usize)?.as_ref());
                    let pattern = made.map_or("", |made| &made.pattern);
                    refusal.get_or_insert(format!(
                        "{} is made by the pattern {}: change that, or add a share of this path, \
                         which outweighs it",
                        shown(path),
                        shown(pattern)
                    ));
                }
                Claim::Fixed(index) => {
                    let source = self.fixed.get(index as usize).map_or("", |f| &f.source);
                    refusal = Some(format!(
                        "{} is written in {source}: it is changed there by hand",
                        shown(path)
                    ));
                }
            }
        }
        let suggestion = match &refusal {
            None if doing.may_look_for_neighbour() => self.neighbour(path),
            _ => None,
        };
        let what = refusal.unwrap_or_else(|| format!("there is no share {}", shown(path)));
        Err(vec![ChangeMistake { field: "path".to_owned(), what, suggestion }])
    }

    /// The path nearest to one that is not there.
    fn neighbour(&self, path: &str) -> Option<String> {
        /// Paths that are looked through.
        const PATHS_MAX: usize = 1000;
        let paths = self.claims().take(PATHS_MAX).map(|claim| self.path_of(claim));
        nearest(path, paths).map(String::from)
    }

    fn removal(&self, group: u32, node: NodeId, item: Item) -> Edit {
        let file = self.group(group).map(|group| &group.file);
        Edit {
            group: self.name_of(group),
            occurrence: self.occurrence(group, &item, node),
            item,
            before: file.and_then(|file| file.text_of(node)).map(Into::into),
            after: None,
            cuts: Vec::new(),
            position: self.position_of(group, node),
        }
    }

    /// What stood wrong with a share before it was changed.
    fn wrong(&self, path: &str) -> Vec<String> {
        let Some(claim) = self.claim_to_check(path) else { return Vec::new() };
        if self.state(claim) != ShareState::Faulty {
            return Vec::new();
        }
        self.why(claim, None).into_iter().map(|mistake| mistake.what).collect()
    }

    /// Whether a share that has no claim is in a file nevertheless: in one that cannot be read, or by a mistake.
    fn may_be_written(&self, path: &str) -> bool {
        let mut files = self.groups.iter().flatten().map(|group| &group.file);
        !self.unreadable.is_empty() || files.any(|file| file.paths().any(|known| &**known == path))
    }

    fn claim_to_check(&self, path: &str) -> Option<Claim> {
        self.paths.later(path).last().copied().or_else(|| self.first(path))
    }

    fn create_group(
        &mut self,
        index: usize,
        spec: &GroupSpec,
        doing: &mut Doing,
    ) -> Result<(), Refused> {
        if let Some(known) = self.group_index(&spec.name).and_then(|index| self.group(index)) {
            if known.file.group_mistakes().is_empty() && known.file.spec() == *spec {
                return Ok(());
            }
            return Err(refused("name", format!("there is a group {} already", shown(&spec.name))));
        }
        if self.unreadable.contains(&*spec.name) {
            return Err(refused("name", self.unreadable_file(&spec.name)));
        }
        let mut mistakes = told(&spec.check());
        let mut file = GroupFile::new(&spec.name);
        file.put_preamble(&group::new_group(spec));
        mistakes.extend(written_twice(&spec.patterns));
        for (number, pattern) in spec.patterns.iter().enumerate() {
            mistakes.extend(add_pattern(&mut file, number, pattern));
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let edit = Edit {
            group: spec.name.as_str().into(),
            item: Item::File,
            occurrence: 0,
            before: None,
            after: Some(file.text().into()),
            cuts: Vec::new(),
            position: None,
        };
        self.edit(doing, edit);
        doing.inheriting.insert(spec.name.as_str().into(), (index, Vec::new()));
        Ok(())
    }

    fn delete_group(
        &mut self,
        name: &str,
        with_shares: bool,
        doing: &mut Doing,
    ) -> Result<(), Refused> {
        let index = self.known_group(name, doing)?;
        let Some(group) = self.group(index) else { return Ok(()) };
        let shares = group.file.paths().count();
        if shares > 0 && !with_shares {
            let what = format!(
                "the group {} has {shares} shares: they have to go too (--with-shares)",
                shown(name)
            );
            return Err(refused("with_shares", what));
        }
        let edit = Edit {
            group: name.into(),
            item: Item::File,
            occurrence: 0,
            before: Some(group.file.text().into()),
            after: None,
            cuts: group.file.cuts(),
            position: None,
        };
        self.edit(doing, edit);
        doing.inheriting.remove(name);
        Ok(())
    }

    fn set_group(
        &mut self,
        operation: usize,
        name: &str,
        changes: &Changes,
        doing: &mut Doing,
    ) -> Result<(), Refused> {
        let index = self.known_group(name, doing)?;
        let clients = self.defaults.clients.clone();
        let Some(group) = self.group(index) else { return Ok(()) };
        if !group.file.group_mistakes().is_empty() {
            return Err(refused("", self.correct_first(name)));
        }
        let old = group.file.spec();
        let new = old.changed(changes, &clients)?;
        let mistakes = told(&new.check());
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let preamble = group.file.preamble();
        let text = group::changed_group(preamble, group.file.group(), &new);
        let right: Vec<NodeId> = group
            .file
            .nodes()
            .filter(|(_, node)| {
                let Content::Share(share) = &node.content else { return false };
                matches!(share.outcome, Outcome::Share(_))
            })
            .map(|(id, _)| id)
            .collect();
        let edit = Edit {
            group: name.into(),
            item: Item::Group,
            occurrence: 0,
            before: Some(preamble.into()),
            after: Some(text.into()),
            cuts: Vec::new(),
            position: None,
        };
        doing.inheriting.entry(name.into()).or_insert((operation, right));
        self.edit(doing, edit);
        self.set_patterns(index, &old.patterns, &new.patterns, doing)
    }

    fn set_patterns(
        &mut self,
        index: u32,
        old: &[PatternSpec],
        new: &[PatternSpec],
        doing: &mut Doing,
    ) -> Result<(), Refused> {
        // Others than people have written so.
        let twice = if new == old { Vec::new() } else { written_twice(new) };
        if !twice.is_empty() {
            return Err(twice);
        }
        let is_same = |a: &PatternSpec, b: &PatternSpec| a.directories == b.directories;
        for gone in old.iter().filter(|old| !new.iter().any(|new| is_same(old, new))) {
            let item = Item::Pattern(gone.directories.as_str().into());
            let mut last = None;
            for occurrence in 0..u32::MAX {
                let Some(node) = self.find(index, &item, occurrence) else { break };
                last = Some(node);
            }
            if let Some(node) = last {
                let edit = self.removal(index, node, item);
                self.edit(doing, edit);
            }
        }
        for (number, pattern) in new.iter().enumerate() {
            let mut pattern = pattern.clone();
            let mistakes = told_in(&format!("pattern[{number}]"), &pattern.check());
            if !mistakes.is_empty() {
                return Err(mistakes);
            }
            let before = old.iter().find(|old| is_same(old, &pattern));
            if before == Some(&pattern) {
                continue;
            }
            let item = Item::Pattern(pattern.directories.as_str().into());
            let node = self.find(index, &item, 0);
            let Some(group) = self.group(index) else { continue };
            let text = node.and_then(|node| group.file.text_of(node));
            let after = match (text, before) {
                (Some(text), Some(before)) => group::changed_pattern(text, before, &pattern),
                _ => group.file.text_for_pattern(&pattern),
            };
            let edit = Edit {
                group: self.name_of(index),
                item,
                occurrence: 0,
                before: text.map(Into::into),
                after: Some(after.into()),
                cuts: Vec::new(),
                position: None,
            };
            self.edit(doing, edit);
        }
        Ok(())
    }

    fn add_share(
        &mut self,
        operation: usize,
        group: &str,
        share: &ShareSpec,
        doing: &mut Doing,
    ) -> Result<(), Refused> {
        let mut share = share.clone();
        let mistakes = told(&share.check());
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        self.make_group(operation, group, doing)?;
        let index = self.known_group(group, doing)?;
        if let Some(claim @ (Claim::Written(..) | Claim::Fixed(_))) = self.first(&share.path) {
            if self.is_written_so(claim, index, &share) {
                return Ok(());
            }
            let view = self.shares_at(&share.path);
            let source = view.first().map_or("", |view| &view.source);
            let suffix = if matches!(claim, Claim::Fixed(_)) { "" } else { ": set it instead" };
            let what = format!("{} is shared already, in {source}{suffix}", shown(&share.path));
            return Err(refused("path", what));
        }
        let Some(known) = self.group(index) else { return Ok(()) };
        let text = known.file.text_for_share(&share);
        doing.named.push((operation, share.path.as_str().into(), Vec::new()));
        let edit = Edit {
            group: group.into(),
            occurrence: self.written_at(index, &share.path).count() as u32,
            item: Item::Share(share.path.into()),
            before: None,
            after: Some(text.into()),
            cuts: Vec::new(),
            position: None,
        };
        self.edit(doing, edit);
        Ok(())
    }

    /// Whether a share stands in a group as it is to be added: who asks twice for the same has it.
    fn is_written_so(&self, claim: Claim, group: u32, wanted: &ShareSpec) -> bool {
        let Claim::Written(of, node) = claim else { return false };
        let share = self.group(of).and_then(|it| it.file.share(node));
        let is_so =
            |share: &group::ShareNode| share.is_well_written() && share.kept.spec() == *wanted;
        of == group && self.paths.later(&wanted.path).is_empty() && share.is_some_and(is_so)
    }

    /// Makes the group of those who name none.
    fn make_group(
        &mut self,
        operation: usize,
        name: &str,
        doing: &mut Doing,
    ) -> Result<(), Refused> {
        if name != DEFAULT_GROUP || self.group_index(name).is_some() {
            check_group_name(name).map_err(|what| refused("group", what))?;
            return Ok(());
        }
        let group = GroupSpec { name: name.to_owned(), ..GroupSpec::default() };
        self.create_group(operation, &group, doing)
    }

    fn set_share(
        &mut self,
        operation: usize,
        path: &str,
        changes: &Changes,
        doing: &mut Doing,
    ) -> Result<(), Refused> {
        let (index, node) = self.written(path, doing)?;
        let before = self.wrong(path);
        let Some(group) = self.group(index) else { return Ok(()) };
        let Some(share) = group.file.share(node) else { return Ok(()) };
        if !share.is_well_written() {
            return Err(refused("", self.correct_first(&group.name)));
        }
        let old = share.kept.spec();
        let mut new = old.changed(changes, &group.inherited.client_words)?;
        let mistakes = told(&new.check());
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let text = group.file.text_of(node).unwrap_or_default();
        let edit = Edit {
            group: (*group.name).into(),
            item: Item::Share(path.into()),
            occurrence: self.occurrence(index, &Item::Share(path.into()), node),
            before: Some(text.into()),
            after: Some(group::changed_share(text, &old, &new).into()),
            cuts: Vec::new(),
            position: None,
        };
        doing.named.push((operation, path.into(), before));
        self.edit(doing, edit);
        Ok(())
    }

    fn move_share(
        &mut self,
        operation: usize,
        path: &str,
        group: &str,
        doing: &mut Doing,
    ) -> Result<(), Refused> {
        let (from, node) = self.written(path, doing)?;
        self.make_group(operation, group, doing)?;
        let to = self.known_group(group, doing)?;
        if from == to {
            return Ok(());
        }
        if let Some(share) = self.group(from)
            && !share.file.share(node).is_some_and(group::ShareNode::is_well_written)
        {
            return Err(refused("", self.correct_first(&share.name)));
        }
        let before = self.wrong(path);
        let removal = self.removal(from, node, Item::Share(path.into()));
        let mut text = removal.before.clone();
        // Where it is the first, no empty line is before it; and there is one where it is not.
        let is_first = self.group(to).is_some_and(|group| group.file.text().is_empty());
        if !is_first && let Some(plain) = text.as_deref().filter(|text| !text.starts_with('\n')) {
            text = Some(format!("\n{plain}").into());
        }
        let edit = Edit {
            group: group.into(),
            item: removal.item.clone(),
            occurrence: self.written_at(to, path).count() as u32,
            before: None,
            after: text,
            cuts: Vec::new(),
            position: None,
        };
        self.edit(doing, removal);
        doing.named.push((operation, path.into(), before));
        self.edit(doing, edit);
        Ok(())
    }

    fn unreadable_file(&self, group: &str) -> String {
        let file = format!("{}/{group}.toml", self.directory);
        format!("{file} cannot be read: correct that, and have it read with `steadfast reload`")
    }

    fn correct_first(&self, group: &str) -> String {
        let file = format!("{}/{group}.toml", self.directory);
        format!("there is a mistake in how it is written in {file}: correct that by hand first")
    }

    /// Whether what was named is right now that everything is done.
    fn check(&mut self, doing: &mut Doing) {
        for (operation, path, before) in &doing.named {
            let Some(claim) = self.claim_to_check(path) else { continue };
            if self.state(claim) != ShareState::Faulty {
                continue;
            }
            for mistake in self.faults_of(claim) {
                if !before.contains(&mistake.what) {
                    let place = in_share(path, &mistake.place);
                    doing.mistakes.push(Mistake { operation: Some(*operation), place, ..mistake });
                }
            }
        }
        self.check_ousted(doing);
        for (name, (operation, right)) in &doing.inheriting {
            let Some(index) = self.group_index(name) else { continue };
            let Some(group) = self.group(index) else { continue };
            for mistake in &group.mistakes {
                doing.mistakes.push(Mistake {
                    operation: Some(*operation),
                    place: in_group(name, &mistake.field.to_string()),
                    what: mistake.what.told(|field| field.to_string()),
                    suggestion: mistake.suggestion.clone(),
                });
            }
            if !group.mistakes.is_empty() {
                continue;
            }
            for node in right {
                let claim = Claim::Written(index, *node);
                if self.share_of(claim).is_none()
                    && let Some(share) = group.file.share(*node)
                {
                    for mistake in self.faults_of(claim).into_iter().take(1) {
                        let place = in_share(&share.kept.path, &mistake.place);
                        let operation = Some(*operation);
                        doing.mistakes.push(Mistake { operation, place, ..mistake });
                    }
                }
                if doing.mistakes.len() >= MISTAKES_MAX {
                    return;
                }
            }
            for id in group.patterns.values() {
                let Some(Content::Pattern(pattern)) =
                    group.file.node(*id).map(|node| &node.content)
                else {
                    continue;
                };
                for mistake in pattern.word_mistakes.iter().flat_map(|all| all.iter()) {
                    let place = format!("pattern {}", shown(&pattern.spec.directories));
                    doing.mistakes.push(Mistake {
                        operation: Some(*operation),
                        place: in_group(name, &place),
                        what: mistake.what.told(|field| field.to_string()),
                        suggestion: mistake.suggestion.clone(),
                    });
                }
            }
        }
    }

    /// Whether a share that nobody named is served no more, since one that was named has its id
    /// now.
    fn check_ousted(&mut self, doing: &mut Doing) {
        for path in std::mem::take(&mut self.ousted) {
            let was_served = matches!(self.touched.get(&*path), Some(Some(_)));
            let is_named = doing.named.iter().any(|(_, named, _)| *named == path);
            let Some(loser) = self.first(&path).filter(|_| was_served && !is_named) else {
                continue;
            };
            let Some(id) = self.share_of(loser).map(|share| share.id.0) else { continue };
            let Some(winner) = self.ids.first(id).filter(|winner| *winner != loser) else {
                continue;
            };
            let winner = self.path_of(winner);
            let operation = doing.named.iter().find(|(_, named, _)| **named == *winner);
            let source = self.shares_at(&path).first().map(|view| view.source.clone());
            doing.mistakes.push(Mistake {
                operation: operation.map(|(operation, ..)| *operation),
                place: in_share(winner, "id"),
                what: format!(
                    "{id} is the id of the share {} in {} already, which would not be served any \
                     more: write another `id = NUMBER`",
                    shown(&path),
                    source.unwrap_or_default()
                ),
                suggestion: None,
            });
            if doing.mistakes.len() >= MISTAKES_MAX {
                return;
            }
        }
    }

    /// What is wrong with a share, by field.
    fn faults_of(&self, claim: Claim) -> Vec<Mistake> {
        if let Claim::Written(group, node) = claim
            && let Some(share) = self.group(group).and_then(|group| group.file.share(node))
            && let Outcome::Misworded(mistakes) = &share.outcome
        {
            let told = mistakes.iter().map(|mistake| Mistake {
                operation: None,
                place: mistake.field.to_string(),
                what: mistake.what.told(|field| field.to_string()),
                suggestion: mistake.suggestion.clone(),
            });
            return told.collect();
        }
        let why = self.why(claim, None);
        why.into_iter().map(|mistake| Mistake { place: String::new(), ..mistake }).collect()
    }
}

/// The first pattern that has the directories of one before it.
fn written_twice(patterns: &[PatternSpec]) -> Refused {
    let mut known = HashSet::new();
    for (number, pattern) in patterns.iter().enumerate() {
        let mut pattern = pattern.clone();
        // Makes the path plain.
        let _ = pattern.check();
        if !known.insert(pattern.directories.clone()) {
            let what = format!("the pattern {} is there twice", shown(&pattern.directories));
            return refused(format!("pattern[{number}].directories"), what);
        }
    }
    Vec::new()
}

fn add_pattern(file: &mut GroupFile, number: usize, pattern: &PatternSpec) -> Refused {
    let mut pattern = pattern.clone();
    let mistakes = told_in(&format!("pattern[{number}]"), &pattern.check());
    let item = Item::Pattern(pattern.directories.as_str().into());
    let text = file.text_for_pattern(&pattern);
    file.insert_item(file.last(), &item, &text);
    mistakes
}

fn told(mistakes: &[steadfast_shares::FieldMistake]) -> Refused {
    told_in("", mistakes)
}

fn told_in(whose: &str, mistakes: &[steadfast_shares::FieldMistake]) -> Refused {
    let told = mistakes.iter().map(|mistake| {
        let field = mistake.field.to_string();
        let dot = if whose.is_empty() || field.is_empty() { "" } else { "." };
        ChangeMistake {
            field: format!("{whose}{dot}{field}"),
            what: mistake.what.told(|field| field.to_string()),
            suggestion: mistake.suggestion.clone(),
        }
    });
    told.collect()
}

fn in_share(path: &str, field: &str) -> String {
    let colon = if field.is_empty() { "" } else { ": " };
    format!("share {}{colon}{field}", shown(path))
}

fn in_group(name: &str, field: &str) -> String {
    let colon = if field.is_empty() { "" } else { ": " };
    format!("group {}{colon}{field}", shown(name))
}

/// The place of a mistake in an operation.
fn place(operation: &Operation, field: &str) -> String {
    match operation {
        Operation::CreateGroup { group } => in_group(&group.name, field),
        Operation::DeleteGroup { name, .. } | Operation::SetGroup { name, .. } => {
            in_group(name, field)
        }
        Operation::AddShare { share, .. } => in_share(&share.path, field),
        Operation::RemoveShare { path }
        | Operation::SetShare { path, .. }
        | Operation::MoveShare { path, .. } => in_share(path, field),
    }
}
