//! What is told of shares: to tools, to those who watch, to other programs, to plug-ins.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use steadfast_catalog::manage::ShareSpec;
use steadfast_catalog::{Edit, GroupView, Item, ShareChange, ShareView, in_effect};
use steadfast_control::api::{Event, GroupStatus, ShareState, ShareStatus, Subject};
use steadfast_control::metrics::ShareCounts;
use steadfast_control::plugins::{PluginShare, Plugins};
use steadfast_control::sharetab::{self, Entry};
use steadfast_control::store::Done;
use steadfast_shares::{RuleSet, RuleSpec, Share, ShareId, names_clients};

use super::state::{State, not_shared};
use crate::configuration::COMMAND_LINE;
use crate::sizes::INCONSISTENT;

/// How shares were doing before a change, by path; `None`: they were not served.
pub(super) type StatesBefore = BTreeMap<Arc<str>, Option<ShareState>>;

/// Words that hold for a share, as far as they can be told as one list: what its rules make of
/// them is in [`Share::rules`].
#[derive(Default)]
struct HeldWords {
    options: Vec<String>,
    clients: Vec<String>,
}

/// Whether these say who the clients are, so that none come from outside.
fn names_any(options: &[String], clients: &[String], has_rules: bool) -> bool {
    !clients.is_empty() || has_rules || options.iter().any(|word| names_clients(word))
}

/// Whether a share, or the pattern that made it, has clients of its own, and none of its group.
pub(super) fn has_own_clients(view: &ShareView) -> bool {
    let ShareSpec { options, clients, rules, .. } = &view.spec;
    names_any(options, clients, !rules.is_empty())
}

impl HeldWords {
    /// What is said within. Who names clients there, one way or the other, has none from outside.
    fn add(&mut self, options: &[String], clients: &[String], has_rules: bool) {
        if names_any(options, clients, has_rules) {
            self.options.retain(|word| !names_clients(word));
            self.clients = clients.to_vec();
        }
        self.options.extend_from_slice(options);
    }
}

impl State {
    /// A share as it is told, with what the disk says about it.
    pub(super) fn status(&self, view: &ShareView, plugins: &Plugins) -> ShareStatus {
        let catalog = self.store.catalog();
        let defaults = catalog.defaults();
        let file = view.group.as_deref().and_then(|group| catalog.file(group));
        let mut held = HeldWords::default();
        let mut lists: Vec<&[String]> = Vec::new();
        // What is of the command line has all of its own.
        if view.source != COMMAND_LINE {
            held.add(&defaults.options, &defaults.clients, false);
            lists.push(&defaults.options);
        }
        if let Some(file) = file {
            held.add(&file.group().options, &file.group().clients, false);
            lists.push(&file.group().options);
        }
        held.add(&view.spec.options, &view.spec.clients, !view.spec.rules.is_empty());
        lists.push(&view.spec.options);
        let HeldWords { options: written, clients } = held;
        let effective = |more: &[String]| {
            let is_held = |word: &String| {
                let names = word.split_once('=').map_or("", |(name, _)| name);
                !matches!(names, "rw" | "ro" | "root" | "none")
            };
            // Lists of clients are told as they are held, once.
            let plain: Vec<Vec<String>> = lists
                .iter()
                .map(|words| words.iter().filter(|word| is_held(word)).cloned().collect())
                .chain(std::iter::once(more.to_vec()))
                .collect();
            let plain: Vec<&[String]> = plain.iter().map(Vec::as_slice).collect();
            let held_lists = written.iter().filter(|word| !is_held(word) && more.is_empty());
            in_effect(&plain).map(|words| words.into_iter().chain(held_lists.cloned()).collect())
        };
        let options: Vec<String> = effective(&[]).unwrap_or_else(|| written.clone());
        let rules = view.spec.rules.iter().map(|rule| RuleSpec {
            clients: rule.clients.clone(),
            options: effective(&rule.options)
                .unwrap_or_else(|| [written.as_slice(), &rule.options].concat()),
        });
        let path = view.spec.path.clone();
        let directory = view.spec.directory.clone().unwrap_or_else(|| path.clone());
        let mut status = ShareStatus {
            id: view.share.as_ref().map_or(0, |share| share.id.0),
            directory,
            group: view.group.as_deref().map(str::to_owned),
            state: view.state,
            why: None,
            source: Some(view.source.clone()).filter(|source| source != COMMAND_LINE),
            pattern: view.pattern.as_deref().map(str::to_owned),
            description: view.spec.description.clone(),
            resource: view.spec.resource.clone(),
            protocols: view.protocols.clone(),
            rules: rules.collect(),
            options,
            clients,
            path,
            size_bytes: None,
            used_bytes: None,
            size_fault: None,
            plugin_faults: Vec::new(),
        };
        if let Some(first) = view.why.first() {
            status.why = Some(first.what.clone());
        } else if let Some(share) = view.share.as_ref().filter(|_| status.state.is_served()) {
            let problem = self.exports.is_served(share.id).1;
            status.why = self.faults.get(&share.id).map(ToString::to_string).or(problem);
            if self.is_faulty(share.id) {
                status.state = ShareState::Faulty;
            }
        }
        status.plugin_faults = plugins.faults(&status);
        status
    }

    /// What is told of a share's size: what it has of it, or why it is not enforced.
    pub(super) fn add_size(&self, view: &ShareView, status: &mut ShareStatus) {
        let Some(share) = &view.share else { return };
        let Some(size) = share.size.filter(|_| self.exports.served(share.id).is_some()) else {
            return;
        };
        let sizes = &self.exports.sizes;
        let (used, mut fault) = match sizes.usage(share.id) {
            None => (None, Some(format!("its size {size} is not enforced"))),
            Some(Err(why)) => (None, Some(why)),
            Some(Ok(now)) if now.size != size => {
                (Some(now), Some(format!("its size {size} is not enforced, but {}", now.size)))
            }
            Some(Ok(now)) if now.may_be_wrong => (Some(now), Some(INCONSISTENT.to_owned())),
            Some(Ok(now)) => (Some(now), None),
        };
        if let Some(now) = used {
            (status.size_bytes, status.used_bytes) = (Some(now.size.bytes()), Some(now.used_bytes));
        }
        // Why it could not be set is what is wrong with the share.
        if let (Some(fault), Some(why)) = (&mut fault, self.faults.get(&share.id)) {
            *fault = format!("{fault}: {why}");
        }
        let told = || fault.clone().or_else(|| used?.excess());
        status.why = status.why.take().or_else(told);
        status.size_fault = fault;
    }

    /// Whether a share that is to be served cannot be, or has a disk that takes no changes.
    fn is_faulty(&self, id: ShareId) -> bool {
        !self.exports.is_served(id).0 || self.exports.has_failed(id)
    }

    /// How many shares are in which state.
    pub(super) fn counts(&self) -> ShareCounts {
        let mut counts = ShareCounts::default();
        for view in self.store.catalog().shares() {
            let state = match view.share.as_deref() {
                Some(share) if view.state.is_served() && self.is_faulty(share.id) => {
                    ShareState::Faulty
                }
                _ => view.state,
            };
            *match state {
                ShareState::Enabled => &mut counts.enabled,
                ShareState::Disabled => &mut counts.disabled,
                ShareState::Faulty => &mut counts.faulty,
                ShareState::Draining => &mut counts.draining,
            } += 1;
        }
        counts
    }

    /// A group as it is told.
    pub(super) fn group_status(&self, view: &GroupView) -> GroupStatus {
        let left_out = || {
            let of_it = self.left_out.iter().filter(|((group, _), _)| *group == view.spec.name);
            let told = of_it.filter_map(|((_, pattern), names)| {
                Some(format!("{pattern}: {}", not_shared(names)?))
            });
            Some(told.collect::<Vec<_>>().join("; ")).filter(|told| !told.is_empty())
        };
        GroupStatus {
            name: view.spec.name.clone(),
            description: view.spec.description.clone(),
            enabled: view.spec.enabled != Some(false),
            why: view.why.first().map(|mistake| mistake.what.clone()).or_else(left_out),
            source: Some(view.source.clone()),
            options: view.spec.options.clone(),
            clients: view.spec.clients.clone(),
            protocols: view.spec.protocols.clone(),
            patterns: view.spec.patterns.iter().map(|p| p.directories.clone()).collect(),
            ..GroupStatus::default()
        }
    }

    /// Whether a share is served, and its disk takes changes.
    fn is_well(&self, id: ShareId) -> bool {
        self.exports.served(id).is_some() && !self.exports.has_failed(id)
    }

    /// How a share is doing that has its path first; `None` if nothing is written about it.
    pub(super) fn state_of(&self, path: &str) -> Option<ShareState> {
        let catalog = self.store.catalog();
        let state = catalog.state_at(path)?;
        let share = catalog.served(path);
        let is_well = share.is_none_or(|share| self.is_well(share.id));
        Some(if state.is_served() && !is_well { ShareState::Faulty } else { state })
    }

    /// How shares are doing, of which changes are not served yet.
    pub(super) fn states_before(&self, changes: &[ShareChange]) -> StatesBefore {
        let before = |change: &ShareChange| Some(self.state_now(change.old.as_ref()?));
        changes.iter().map(|change| (change.path.clone(), before(change))).collect()
    }

    /// How a share is doing that is to be served so.
    fn state_now(&self, share: &Share) -> ShareState {
        if self.is_well(share.id) { state_served(share.is_draining) } else { ShareState::Faulty }
    }

    /// How all shares that are served are doing.
    pub(super) fn served_states(&self) -> HashMap<Arc<str>, ShareState> {
        let served = self.exports.all_served();
        served.map(|share| (Arc::clone(&share.path), self.state_now(share))).collect()
    }

    /// The shares that were served and are not now, or the other way round, as they were before.
    pub(super) fn differences(&self, mut before: HashMap<Arc<str>, ShareState>) -> StatesBefore {
        let mut differences = StatesBefore::new();
        for share in self.exports.all_served() {
            match before.remove(&share.path) {
                Some(old) if old == self.state_now(share) => {}
                Some(old) => drop(differences.insert(Arc::clone(&share.path), Some(old))),
                // It was to be served, unless it was changed to be.
                None => drop(differences.insert(Arc::clone(&share.path), Some(ShareState::Faulty))),
            }
        }
        differences.extend(before.into_iter().map(|(path, old)| (path, Some(old))));
        differences
    }

    /// The paths of which others are told: of what is served, and of what was to be.
    pub(super) fn told_paths(&self) -> Vec<Arc<str>> {
        let wanted = self.store.catalog().all_served();
        let all = wanted.chain(self.exports.all_served());
        each_once(all.map(|share| Arc::clone(&share.path)).collect())
    }

    /// The paths of the shares that something done is about: also those that are served as before
    /// and told otherwise, as their protocols, names or descriptions are others.
    pub(super) fn paths_of(&self, done: &Done) -> Vec<Arc<str>> {
        let mut paths: Vec<Arc<str>> =
            done.changes.iter().map(|change| Arc::clone(&change.path)).collect();
        let mut groups = BTreeSet::new();
        for edit in &done.edits {
            match &edit.item {
                Item::Share(path) => paths.push((**path).into()),
                Item::File | Item::Group | Item::Pattern(_) => drop(groups.insert(&*edit.group)),
            }
        }
        for group in groups {
            paths.extend(self.store.catalog().paths_of(group).map(Arc::clone));
        }
        each_once(paths)
    }

    /// What those who watch are told of what was done, and of shares that were otherwise `before`.
    pub(super) fn events(&self, done: &Done, before: &StatesBefore) -> Vec<Event> {
        let sequence = done.sequence;
        let mut events = Vec::new();
        // Of several edits of a share the first says whether it was there.
        let mut edited: HashMap<&str, &Edit> = HashMap::new();
        for edit in &done.edits {
            if let Item::Share(path) = &edit.item {
                edited.entry(path).or_insert(edit);
            }
        }
        let mut told: HashSet<&str> = HashSet::new();
        for (path, before) in before {
            told.insert(path);
            let was_written = edited.get(&**path).is_none_or(|edit| edit.before.is_some());
            let old = before.or_else(|| was_written.then_some(ShareState::Disabled));
            events.push(self.share_event(sequence, path, old));
        }
        for edit in &done.edits {
            match &edit.item {
                Item::Share(path) if told.insert(path) => {
                    // It is served as it was, or was not and is not.
                    let now = self.state_of(path).unwrap_or(ShareState::Disabled);
                    let old = edit.before.as_ref().map(|_| now);
                    events.push(self.share_event(sequence, path, old));
                }
                Item::Share(_) => {}
                // The same group, written otherwise: what that means is told of its shares.
                Item::File if edit.before.is_some() && edit.after.is_some() => {}
                item => events.push(Event {
                    sequence,
                    subject: subject_of(item),
                    name: edit.group.to_string(),
                    group: None,
                    old: edit.before.as_ref().map(|_| ShareState::Enabled),
                    new: edit.after.as_ref().map(|_| ShareState::Enabled),
                    why: None,
                }),
            }
        }
        events
    }

    fn share_event(&self, sequence: u64, path: &str, old: Option<ShareState>) -> Event {
        let catalog = self.store.catalog();
        let share = catalog.served(path);
        let why = share.and_then(|share| {
            let fault = self.faults.get(&share.id).map(ToString::to_string);
            fault.or_else(|| self.exports.is_served(share.id).1)
        });
        Event {
            sequence,
            subject: Subject::Share,
            name: path.to_owned(),
            group: catalog.group_at(path).map(str::to_owned),
            old,
            new: self.state_of(path),
            why,
        }
    }

    /// The share of a path as it is served, and what is told of it.
    fn served_at(&self, path: &str) -> Option<(&Arc<Share>, ShareView)> {
        let catalog = self.store.catalog();
        let share = self.exports.served(catalog.served(path)?.id)?;
        Some((share, catalog.share_at(path)?))
    }

    /// The shares of these paths as plug-ins get them, and which are gone.
    pub(super) fn shares_for_plugins(
        &self,
        plugins: &Plugins,
        paths: &[Arc<str>],
    ) -> Vec<(String, Option<Arc<PluginShare>>)> {
        if plugins.names().is_empty() {
            return Vec::new();
        }
        let told = paths.iter().map(|path| {
            let share = self.served_at(path).map(|(share, view)| {
                let mut status = self.status(&view, plugins);
                // Neither says anything about the share, and both change with others.
                (status.source, status.plugin_faults) = (None, Vec::new());
                // Nor does what is told of a size, which NFS alone has asked about.
                if share.size.is_some() {
                    (status.used_bytes, status.state, status.why) = (None, view.state, None);
                }
                // A disk that fails and comes back is not told to them: to take a share away from
                // them for that would help nobody.
                if self.exports.has_failed(share.id) {
                    (status.state, status.why) = (view.state, None);
                }
                Arc::new(PluginShare { status, share: Arc::clone(share) })
            });
            (path.to_string(), share)
        });
        told.collect()
    }

    /// Brings the sharetab up to date about these paths.
    pub(super) fn tell_sharetab(&mut self, paths: &[Arc<str>]) {
        let Some(mut sharetab) = self.sharetab.take() else { return };
        let catalog = self.store.catalog();
        // Many shares have the same rules.
        let mut options: HashMap<(*const RuleSet, bool), String> = HashMap::new();
        let mut types = Vec::new();
        for path in paths {
            let notice = catalog.notice_at(path);
            let served = notice.and_then(|notice| self.exports.served(notice.share.id));
            let (Some(notice), Some(share)) = (notice, served) else {
                sharetab.remove(path);
                continue;
            };
            let others = notice.protocols.iter().map(String::as_str).filter(|p| *p != "nfs");
            types.clear();
            types.extend(std::iter::once("nfs").chain(others));
            let said_by = (Arc::as_ptr(&share.rules), share.crosses_mounts);
            sharetab.set(&Entry {
                path,
                resource: notice.resource,
                types: &types,
                options: options.entry(said_by).or_insert_with(|| sharetab::options(share)),
                description: notice.description,
            });
        }
        if let Err(error) = sharetab.publish() {
            tracing::error!(
                "{}: cannot be written ({error}): other programs are told what was shared before",
                sharetab.path().display()
            );
        }
        self.sharetab = Some(sharetab);
    }
}

/// Sorted; mostly they are, in runs.
pub(super) fn each_once(mut paths: Vec<Arc<str>>) -> Vec<Arc<str>> {
    paths.sort();
    paths.dedup();
    paths
}

pub(super) fn state_served(is_draining: bool) -> ShareState {
    if is_draining { ShareState::Draining } else { ShareState::Enabled }
}

/// What an event is about.
fn subject_of(item: &Item) -> Subject {
    match item {
        Item::Share(_) => Subject::Share,
        Item::File | Item::Group | Item::Pattern(_) => Subject::Group,
    }
}
