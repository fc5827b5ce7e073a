//! All shares that are wanted: those of `steadfast.toml` and the command line, those of the groups'
//! files, and those that patterns make; with what became of each.
//!
//! A change costs what it changes: one share among fifteen thousand is read, compiled and claimed
//! anew, the others are not looked at. [`Catalog::apply`] does a batch or nothing of it, and says
//! which shares are served otherwise than before, and which segments of which files it changed
//! ([`Edit`]): done again, these bring a file up to date, done backwards they take a batch back.

mod applying;
mod claims;
mod edits;
mod listing;
mod states;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

pub use applying::Applied;
pub use edits::Edit;
use indexmap::IndexMap;
pub use listing::{GroupView, ShareView};
pub use states::ShareNotice;

use steadfast_shares::{FieldMistake, Inherited, RuleBook, Share};

use crate::group::{Content, GroupFile, KeptShare, NodeId, Outcome, PatternNode};
use crate::manage::{DefaultsSpec, PatternSpec, ShareSpec};

use claims::{Claim, Ids, Paths, Rank, Ranking, Standing};

/// Borrows the claimants alone, so that the claims can be changed meanwhile.
macro_rules! claimants {
    ($catalog:expr) => {
        &Claimants { fixed: &$catalog.fixed, groups: &$catalog.groups }
    };
}
use claimants;

/// A share that is not of a group's file: of `steadfast.toml` or of the command line.
#[derive(Clone, Debug)]
pub struct FixedShare {
    /// As it is served.
    pub share: Arc<Share>,
    /// As it was written.
    pub spec: ShareSpec,
    /// Where: `FILE:LINE:COLUMN`, or the command line.
    pub source: String,
}

/// A share that is served otherwise than before.
#[derive(Clone, Debug, PartialEq)]
pub struct ShareChange {
    /// The path that clients mount.
    pub path: Arc<str>,
    /// As it was served; `None` if it was not.
    pub old: Option<Arc<Share>>,
    /// As it is to be served; `None` if it is not.
    pub new: Option<Arc<Share>>,
}

/// All shares that are wanted.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// Where the groups' files are; for messages alone.
    directory: Box<str>,
    defaults: DefaultsSpec,
    inherited: Arc<Inherited>,
    fixed: Vec<FixedShare>,
    groups: Vec<Option<Group>>,
    names: BTreeMap<Box<str>, u32>,
    book: RuleBook,
    paths: Paths,
    ids: Ids,
    /// How shares were served before what is being done now.
    touched: IndexMap<Arc<str>, Option<Arc<Share>>>,
    /// Groups whose files cannot be read: nothing of them is served, and nothing is put in their
    /// place, where it would inherit less than they say.
    unreadable: BTreeSet<Box<str>>,
    /// Shares that lost their id to another in what is being done now.
    ousted: BTreeSet<Box<str>>,
    /// Which directories were seen below the parents of patterns: by group, then by pattern. It
    /// outlasts both, so that a deletion that is taken back gives the same shares again.
    seen: HashMap<Box<str>, SeenDirectories>,
    /// Groups of which patterns went in what was done last: what was seen for these is forgotten
    /// when the next thing is done.
    lost: BTreeSet<Box<str>>,
}

/// Names of directories that were seen, by pattern.
type SeenDirectories = BTreeMap<Box<str>, BTreeSet<Box<str>>>;

/// A group.
#[derive(Clone, Debug)]
struct Group {
    name: Arc<str>,
    file: GroupFile,
    inherited: Arc<Inherited>,
    /// Mistakes in the group's own words.
    mistakes: Vec<FieldMistake>,
    patterns: BTreeMap<Box<str>, NodeId>,
    made: Vec<Option<Made>>,
    free: Vec<u32>,
}

/// A share that a pattern made.
#[derive(Clone, Debug)]
struct Made {
    /// One for all of it.
    pattern: Arc<str>,
    path: Arc<str>,
    outcome: Outcome,
}

impl Group {
    fn new(file: GroupFile, base: &Inherited) -> Self {
        let (inherited, mistakes) = file.group().inherited(base);
        let patterns = patterns(&file);
        Self {
            name: file.group().name.as_str().into(),
            file,
            inherited: Arc::new(inherited),
            mistakes,
            patterns,
            made: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Whether its own keys have no mistakes. If they have, none of its shares is served: they
    /// would be with other rights than were meant.
    fn is_well_written(&self) -> bool {
        self.mistakes.is_empty() && self.file.group_mistakes().is_empty()
    }

    fn is_enabled(&self) -> bool {
        self.file.group().enabled != Some(false)
    }

    fn pattern(&self, directories: &str) -> Option<&PatternSpec> {
        self.pattern_node(directories).map(|pattern| &pattern.spec)
    }

    fn pattern_node(&self, directories: &str) -> Option<&PatternNode> {
        let node = self.file.node(*self.patterns.get(directories)?)?;
        match &node.content {
            Content::Pattern(pattern) => Some(pattern),
            _ => None,
        }
    }
}

/// The patterns of a file; of two alike the first.
fn patterns(file: &GroupFile) -> BTreeMap<Box<str>, NodeId> {
    let mut patterns = BTreeMap::new();
    for (id, node) in file.nodes() {
        if let Content::Pattern(pattern) = &node.content {
            patterns.entry(pattern.spec.directories.as_str().into()).or_insert(id);
        }
    }
    patterns
}

impl Catalog {
    /// Without groups. `directory` is where their files are, for messages.
    pub fn new(directory: &str, defaults: DefaultsSpec, fixed: Vec<FixedShare>) -> Self {
        let mut catalog = Self {
            directory: directory.into(),
            defaults: DefaultsSpec::default(),
            inherited: Arc::default(),
            fixed: Vec::new(),
            groups: Vec::new(),
            names: BTreeMap::new(),
            book: RuleBook::default(),
            paths: Paths::default(),
            ids: Ids::default(),
            touched: IndexMap::new(),
            unreadable: BTreeSet::new(),
            ousted: BTreeSet::new(),
            seen: HashMap::new(),
            lost: BTreeSet::new(),
        };
        catalog.set_base(defaults, fixed);
        catalog
    }

    /// Replaces what is of `steadfast.toml` and of the command line.
    pub fn set_base(&mut self, defaults: DefaultsSpec, fixed: Vec<FixedShare>) -> Vec<ShareChange> {
        for index in 0..self.fixed.len() as u32 {
            self.release(Claim::Fixed(index));
        }
        self.fixed = fixed;
        for index in 0..self.fixed.len() as u32 {
            self.claim(Claim::Fixed(index));
        }
        let (inherited, _) = Inherited::default().with(&defaults.options, &defaults.clients, &[]);
        self.defaults = defaults;
        if inherited != *self.inherited {
            self.inherited = Arc::new(inherited);
            for index in 0..self.groups.len() as u32 {
                self.change_group(index, |_| {});
            }
        }
        self.take_changes()
    }

    /// Adds a group's file, or puts it in the place of the one that there is.
    pub fn insert(&mut self, file: GroupFile) -> Vec<ShareChange> {
        self.put_file(file);
        self.take_changes()
    }

    /// Tells whether the file of a group cannot be read. If so, the group is to be neither made nor
    /// changed, and edits of it are left out. Returns what was told before.
    pub fn set_unreadable(&mut self, group: &str, is_unreadable: bool) -> bool {
        if is_unreadable {
            !self.unreadable.insert(group.into())
        } else {
            self.unreadable.remove(group)
        }
    }

    /// The file of a group.
    pub fn file(&self, group: &str) -> Option<&GroupFile> {
        self.group_index(group).and_then(|index| self.group(index)).map(|group| &group.file)
    }

    /// The names of all groups, in their order.
    pub fn group_names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(|name| &**name)
    }

    /// The patterns that are written right, each with its group's name: who watches their parent
    /// directories tells [`Catalog::set_directories`] what is there.
    pub fn patterns(&self) -> impl Iterator<Item = (&str, &PatternSpec)> {
        self.groups.iter().flatten().flat_map(|group| {
            let ids = group.patterns.values();
            ids.filter_map(|id| match &group.file.node(*id)?.content {
                Content::Pattern(pattern) if pattern.is_well_written() => {
                    Some((&*group.name, &pattern.spec))
                }
                _ => None,
            })
        })
    }

    /// Tells which directories are below the parent of a pattern, by their names. Those that the
    /// pattern matches are its shares from now on.
    pub fn set_directories<'a>(
        &mut self,
        group: &str,
        pattern: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Vec<ShareChange> {
        let Some(index) = self.group_index(group) else { return Vec::new() };
        if self.group(index).and_then(|group| group.pattern(pattern)).is_none() {
            return Vec::new();
        }
        let seen = self.seen.entry(group.into()).or_default().entry(pattern.into()).or_default();
        *seen = names.into_iter().map(Into::into).collect();
        self.make_of_directories(index, pattern);
        self.take_changes()
    }

    /// The share that is served at a path.
    pub fn served(&self, path: &str) -> Option<&Arc<Share>> {
        let claim = self.first(path)?;
        self.share_of(claim).filter(|_| self.is_served(claim))
    }

    /// All shares that are served.
    pub fn all_served(&self) -> impl Iterator<Item = &Arc<Share>> {
        let claims = self.claims();
        claims.filter(|claim| self.is_served(*claim)).filter_map(|claim| self.share_of(claim))
    }

    /// How many different sets of rules there are.
    pub fn rule_sets(&self) -> usize {
        self.book.sets()
    }

    fn claims(&self) -> impl Iterator<Item = Claim> {
        let fixed = (0..self.fixed.len() as u32).map(Claim::Fixed);
        let groups = self.names.values().filter_map(|index| Some((*index, self.group(*index)?)));
        fixed.chain(groups.flat_map(|(index, group)| {
            let written = group.file.nodes().filter_map(move |(id, node)| {
                matches!(node.content, Content::Share(_)).then_some(Claim::Written(index, id))
            });
            let made = group.made.iter().enumerate().filter(|(_, made)| made.is_some());
            written.chain(made.map(move |(number, _)| Claim::Made(index, number as u32)))
        }))
    }

    fn group_index(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }

    fn group(&self, index: u32) -> Option<&Group> {
        self.groups.get(index as usize)?.as_ref()
    }

    fn group_mut(&mut self, index: u32) -> Option<&mut Group> {
        self.groups.get_mut(index as usize)?.as_mut()
    }

    fn made_by<'a>(
        &'a self,
        index: u32,
        pattern: &'a str,
    ) -> impl Iterator<Item = (u32, &'a Made)> {
        let made = self.group(index).map_or(&[][..], |group| &group.made);
        let all = made.iter().enumerate();
        all.filter_map(|(number, made)| Some((number as u32, made.as_ref()?)))
            .filter(move |(_, made)| *made.pattern == *pattern)
    }

    /// Makes what a pattern makes of the directories that were seen, and takes the rest of its
    /// shares away. Those that stay are as they were.
    fn make_of_directories(&mut self, index: u32, pattern: &str) {
        let Some(group) = self.group(index) else { return };
        let names = self.seen.get(&*group.name).and_then(|seen| seen.get(pattern));
        // One with a mistake might take in more than was meant.
        let node = group.pattern_node(pattern).filter(|node| node.is_well_written());
        let spec = node.map(|node| &node.spec);
        let mut missing: BTreeMap<String, ShareSpec> = names
            .into_iter()
            .flatten()
            .filter_map(|name| Some(spec.filter(|spec| spec.matches(name))?.share(name)))
            .map(|share| (share.path.clone(), share))
            .collect();
        let known: Vec<(u32, Arc<str>)> = self
            .made_by(index, pattern)
            .map(|(number, made)| (number, made.path.clone()))
            .collect();
        let one_for_all = self.made_by(index, pattern).next().map(|(_, made)| &made.pattern);
        let one_for_all = one_for_all.map_or_else(|| pattern.into(), Arc::clone);
        for (number, path) in known {
            if missing.remove(&*path).is_none() {
                self.remove_made(index, number);
            }
        }
        for spec in missing.into_values() {
            self.make(index, Arc::clone(&one_for_all), spec);
        }
    }

    /// Forgets which directories were seen for patterns that are gone for good: what took them
    /// away can be taken back no more but by a change of its own, after which is looked again.
    fn forget_lost(&mut self) {
        for name in std::mem::take(&mut self.lost) {
            let patterns = self
                .group_index(&name)
                .and_then(|index| self.group(index))
                .map(|group| group.patterns.keys().cloned().collect::<BTreeSet<_>>())
                .unwrap_or_default();
            if let Some(seen) = self.seen.get_mut(&name) {
                seen.retain(|pattern, _| patterns.contains(pattern));
                if seen.is_empty() {
                    self.seen.remove(&name);
                }
            }
        }
    }

    fn make(&mut self, index: u32, pattern: Arc<str>, spec: ShareSpec) {
        let mut share = KeptShare::from(spec);
        let outcome = self.resolved(index, &mut share, true);
        let Some(group) = self.group_mut(index) else { return };
        let made = Some(Made { pattern, path: share.path, outcome });
        let number = group.free.pop().unwrap_or(group.made.len() as u32);
        match group.made.get_mut(number as usize) {
            Some(place) => *place = made,
            None => group.made.push(made),
        }
        self.claim(Claim::Made(index, number));
    }

    fn remove_made(&mut self, index: u32, number: u32) {
        self.release(Claim::Made(index, number));
        if let Some(group) = self.group_mut(index)
            && let Some(made) = group.made.get_mut(number as usize)
        {
            *made = None;
            group.free.push(number);
        }
    }

    fn first(&self, path: &str) -> Option<Claim> {
        self.paths.first(path, claimants!(self))
    }

    fn path_of(&self, claim: Claim) -> &str {
        self.shared_path_of(claim).map_or("", |path| path)
    }

    fn shared_path_of(&self, claim: Claim) -> Option<&Arc<str>> {
        path_of(&self.fixed, &self.groups, claim)
    }

    fn share_of(&self, claim: Claim) -> Option<&Arc<Share>> {
        let outcome = match claim {
            Claim::Fixed(index) => return self.fixed.get(index as usize).map(|fixed| &fixed.share),
            Claim::Written(group, node) => &self.group(group)?.file.share(node)?.outcome,
            Claim::Made(group, number) => {
                &self.group(group)?.made.get(number as usize)?.as_ref()?.outcome
            }
        };
        match outcome {
            Outcome::Share(share) => Some(share),
            _ => None,
        }
    }

    fn is_enabled(&self, claim: Claim) -> bool {
        match claim {
            Claim::Fixed(index) => {
                self.fixed.get(index as usize).is_some_and(|f| f.spec.enabled != Some(false))
            }
            Claim::Written(group, node) => self.group(group).is_some_and(|group| {
                let share = group.file.share(node);
                group.is_enabled() && share.is_none_or(|share| share.kept.is_enabled())
            }),
            Claim::Made(group, _) => self.group(group).is_some_and(Group::is_enabled),
        }
    }

    /// Whether a share is served, as far as its files tell: it has its path and its id, nothing
    /// is wrong with it, and it is not switched off.
    fn is_served(&self, claim: Claim) -> bool {
        let Some(share) = self.share_of(claim) else { return false };
        self.is_enabled(claim) && self.has_place(claim, share)
    }

    /// Whether a claim's share has its path and its id.
    fn has_place(&self, claim: Claim, share: &Share) -> bool {
        self.paths.has(&share.path, claim, claimants!(self)) && self.ids.has(share.id.0, claim)
    }

    /// What becomes of a share of a group.
    fn resolved(&mut self, group: u32, share: &mut KeptShare, is_well_written: bool) -> Outcome {
        let Some(Some(group)) = self.groups.get(group as usize) else { return Outcome::Open };
        if !(is_well_written && group.is_well_written()) {
            return Outcome::Miswritten;
        }
        let (compiled, words) = self.book.compile_kept(&group.inherited, share.words());
        share.share_words(words);
        match compiled {
            Ok(compiled) => Outcome::Share(Arc::new(share.share(&compiled))),
            Err(mistakes) => Outcome::Misworded(mistakes),
        }
    }

    /// Looks anew at what becomes of a written share, and has it claim its path.
    fn settle(&mut self, group: u32, node: NodeId) {
        let Some(share) = self.group(group).and_then(|group| group.file.share(node)) else {
            return;
        };
        let (mut kept, is_well_written) = (share.kept.clone(), share.is_well_written());
        let outcome = self.resolved(group, &mut kept, is_well_written);
        if let Some(place) = share_mut(&mut self.groups, group, node) {
            place.kept = kept;
            let is_same = match (&place.outcome, &outcome) {
                (Outcome::Share(old), Outcome::Share(new)) => old == new,
                _ => false,
            };
            if !is_same {
                place.outcome = outcome;
            }
        }
        self.claim(Claim::Written(group, node));
    }

    /// Has a claim enter for its path, and for its id if it gets that.
    fn claim(&mut self, claim: Claim) {
        let Some(path) = self.claimed_path(claim) else { return };
        self.touch(&path);
        match self.paths.claim(&path, claim, claimants!(self)) {
            Standing::First => self.claim_id(claim),
            Standing::Took(loser) => {
                self.release_id(loser);
                self.claim_id(claim);
            }
            Standing::Later => {}
        }
    }

    /// Has a claim withdrawn; then its share may be changed.
    fn release(&mut self, claim: Claim) {
        let Some(path) = self.claimed_path(claim) else { return };
        self.touch(&path);
        let (was_first, next) = self.paths.release(&path, claim, claimants!(self));
        if was_first {
            self.release_id(claim);
        }
        if let Some(next) = next {
            self.claim_id(next);
        }
    }

    /// The path that a claim enters for, if it names one.
    fn claimed_path(&self, claim: Claim) -> Option<Arc<str>> {
        self.shared_path_of(claim).filter(|path| !path.is_empty()).map(Arc::clone)
    }

    fn claim_id(&mut self, claim: Claim) {
        let Some(id) = self.share_of(claim).map(|share| share.id.0) else { return };
        let before = self.ids.first(id);
        if let Some(first) = before {
            self.touch_claim(first);
        }
        self.ids.claim(id, claim, claimants!(self));
        if let Some(loser) = before.filter(|loser| self.ids.first(id) != Some(*loser)) {
            self.ousted.insert(self.path_of(loser).into());
        }
    }

    fn release_id(&mut self, claim: Claim) {
        let Some(id) = self.share_of(claim).map(|share| share.id.0) else { return };
        if let Some(path) = self.ids.release(id, claim).and_then(|next| self.claimed_path(next)) {
            // It was not served before: another had its id.
            self.touched.entry(path).or_insert(None);
        }
    }

    fn touch_claim(&mut self, claim: Claim) {
        if let Some(path) = self.claimed_path(claim) {
            self.touch(&path);
        }
    }

    /// Notes how a path is served before that may change.
    fn touch(&mut self, path: &Arc<str>) {
        if !self.touched.contains_key(path) {
            let served = self.served(path).cloned();
            self.touched.insert(Arc::clone(path), served);
        }
    }

    /// The shares that are served otherwise than when this was asked before.
    fn take_changes(&mut self) -> Vec<ShareChange> {
        self.ousted.clear();
        let touched = std::mem::take(&mut self.touched);
        let mut changes = Vec::new();
        for (path, old) in touched {
            match (old, self.served(&path).cloned()) {
                (Some(old), Some(new)) if old == new => self.keep(&path, old),
                (None, None) => {}
                (old, new) => changes.push(ShareChange { path, old, new }),
            }
        }
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        changes
    }

    /// Goes on with a share that others have, as the one that is served by now is the same: so that
    /// there is one of it.
    fn keep(&mut self, path: &str, share: Arc<Share>) {
        let (kept, outcome) = match self.first(path) {
            Some(Claim::Written(group, node)) => {
                let Some(node) = share_mut(&mut self.groups, group, node) else { return };
                (&mut node.kept.path, &mut node.outcome)
            }
            Some(Claim::Made(group, number)) => {
                let made = self.group_mut(group).and_then(|g| g.made.get_mut(number as usize));
                let Some(made) = made.and_then(Option::as_mut) else { return };
                (&mut made.path, &mut made.outcome)
            }
            Some(Claim::Fixed(_)) | None => return,
        };
        *kept = Arc::clone(&share.path);
        *outcome = Outcome::Share(share);
    }
}

fn share_mut(
    groups: &mut [Option<Group>],
    group: u32,
    node: NodeId,
) -> Option<&mut crate::group::ShareNode> {
    match &mut groups.get_mut(group as usize)?.as_mut()?.file.node_mut(node)?.content {
        Content::Share(share) => Some(share),
        _ => None,
    }
}

/// What claims are about.
struct Claimants<'a> {
    fixed: &'a [FixedShare],
    groups: &'a [Option<Group>],
}

impl Claimants<'_> {
    fn group(&self, index: u32) -> Option<&Group> {
        self.groups.get(index as usize)?.as_ref()
    }

    fn made(&self, group: u32, number: u32) -> Option<&Made> {
        self.group(group)?.made.get(number as usize)?.as_ref()
    }
}

/// The path of a claim.
fn path_of<'a>(
    fixed: &'a [FixedShare],
    groups: &'a [Option<Group>],
    claim: Claim,
) -> Option<&'a Arc<str>> {
    let group = |index: u32| groups.get(index as usize)?.as_ref();
    match claim {
        Claim::Fixed(index) => fixed.get(index as usize).map(|fixed| &fixed.share.path),
        Claim::Written(index, node) => {
            group(index).and_then(|group| group.file.share(node)).map(|share| &share.kept.path)
        }
        Claim::Made(index, number) => group(index)
            .and_then(|group| group.made.get(number as usize)?.as_ref())
            .map(|made| &made.path),
    }
}

impl Ranking for Claimants<'_> {
    fn path(&self, claim: Claim) -> &str {
        path_of(self.fixed, self.groups, claim).map_or("", |path| path)
    }

    fn rank(&self, claim: Claim) -> Rank<'_> {
        let name = |group| self.group(group).map_or("", |group| &*group.name);
        match claim {
            Claim::Fixed(index) => (0, "", u64::from(index), ""),
            Claim::Written(group, node) => {
                let order = self.group(group).map_or(0, |group| group.file.order(node));
                (1, name(group), order, "")
            }
            Claim::Made(group, number) => {
                (2, name(group), 0, self.made(group, number).map_or("", |made| &made.pattern))
            }
        }
    }
}
