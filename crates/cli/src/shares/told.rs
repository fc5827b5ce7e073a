//! What is told of shares: to tools, to those who watch, to other programs, to plug-ins.

use std::sync::Arc;

use steadfast_control::api::{Event, GroupStatus, ShareState, ShareStatus, Subject};
use steadfast_control::plugins::Plugins;
use steadfast_control::sharetab::Entry;
use steadfast_control::store::Done;
use steadfast_shares::manage::RuleSpec;
use steadfast_shares::{Edit, GroupView, Item, ShareChange, ShareView};

use super::{State, is_about_shares, subject_of};
use crate::configuration::COMMAND_LINE;

/// The first list that has something in it.
fn first_said(lists: [&[String]; 3]) -> Vec<String> {
    lists.into_iter().find(|list| !list.is_empty()).unwrap_or_default().to_vec()
}

impl State {
    /// A share as it is told, with what the disk says about it.
    pub(super) fn status(&self, view: &ShareView, plugins: &Plugins) -> ShareStatus {
        let catalog = self.store.catalog();
        let defaults = catalog.defaults();
        let file = view.group.as_deref().and_then(|group| catalog.file(group));
        let (group_options, group_clients) = file.map_or((&[][..], &[][..]), |file| {
            (file.group().options.as_slice(), file.group().clients.as_slice())
        });
        // What is of the command line has all of its own.
        let inherits = view.source != COMMAND_LINE;
        let default_options = if inherits { defaults.options.as_slice() } else { &[] };
        let options = [default_options, group_options, &view.spec.options].concat();
        let rules = view.spec.rules.iter().map(|rule| RuleSpec {
            clients: rule.clients.clone(),
            options: [options.as_slice(), &rule.options].concat(),
        });
        let has_own_clients = !view.spec.clients.is_empty() || !view.spec.rules.is_empty();
        let clients = if has_own_clients {
            view.spec.clients.clone()
        } else {
            first_said([&[], group_clients, &defaults.clients])
        };
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
            plugin_faults: Vec::new(),
        };
        if let Some(first) = view.why.first() {
            status.why = Some(first.what.clone());
        } else if let Some(share) = view.share.as_ref().filter(|_| status.state.is_served()) {
            let (is_served, problem) = self.exports.is_served(share.id);
            status.why = self.faults.get(&share.id).map(ToString::to_string).or(problem);
            if !is_served {
                status.state = ShareState::Faulty;
            }
        }
        status.plugin_faults = plugins.faults(&status);
        status
    }

    /// A group as it is told.
    pub(super) fn group_status(view: &GroupView) -> GroupStatus {
        GroupStatus {
            name: view.spec.name.clone(),
            description: view.spec.description.clone(),
            enabled: view.spec.enabled != Some(false),
            why: view.why.first().map(|mistake| mistake.what.clone()),
            source: Some(view.source.clone()),
            options: view.spec.options.clone(),
            clients: view.spec.clients.clone(),
            protocols: view.spec.protocols.clone(),
            patterns: view.spec.patterns.iter().map(|p| p.directories.clone()).collect(),
            ..GroupStatus::default()
        }
    }

    /// How a share is doing that has its path first; `None` if nothing is written about it.
    pub(super) fn state_of(&self, path: &str) -> Option<ShareState> {
        let catalog = self.store.catalog();
        let state = catalog.state_at(path)?;
        let share = catalog.served(path);
        let is_served = share.is_none_or(|share| self.exports.is_served(share.id).0);
        Some(if state.is_served() && !is_served { ShareState::Faulty } else { state })
    }

    /// How a share was doing before a change that is not served yet; `None`: it was not served.
    pub(super) fn state_before(&self, change: &ShareChange) -> Option<ShareState> {
        let old = change.old.as_ref()?;
        Some(match (self.exports.is_served(old.id).0, old.is_draining) {
            (false, _) => ShareState::Faulty,
            (true, true) => ShareState::Draining,
            (true, false) => ShareState::Enabled,
        })
    }

    /// What those who watch are told of what was done; `before` are the states of its changes.
    pub(super) fn events(&self, done: &Done, before: &[Option<ShareState>]) -> Vec<Event> {
        let existed = |path: &str| {
            done.edits.iter().any(|edit| {
                matches!(&edit.item, Item::Share(of) if **of == *path) && edit.before.is_some()
            })
        };
        let sequence = done.sequence;
        let mut events = Vec::new();
        // Few batches edit many shares one by one; those that do are told from their edits alone.
        let edited: std::collections::HashMap<&str, &Edit> = done
            .edits
            .iter()
            .filter_map(|edit| match &edit.item {
                Item::Share(path) => Some((&**path, edit)),
                _ => None,
            })
            .collect();
        let mut told = std::collections::HashSet::new();
        for (change, before) in done.changes.iter().zip(before) {
            let path = &*change.path;
            told.insert(path);
            let was_written = edited.get(path).is_none_or(|_| existed(path));
            let old = before.or_else(|| was_written.then_some(ShareState::Disabled));
            events.push(self.share_event(sequence, path, old));
        }
        for edit in done.edits.iter().filter(|edit| is_about_shares(edit)) {
            match &edit.item {
                Item::Share(path) if !told.contains(&**path) => {
                    let old = edit.before.as_ref().map(|_| ShareState::Disabled);
                    events.push(self.share_event(sequence, path, old));
                }
                Item::Share(_) | Item::File => {}
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
        let why = share.and_then(|share| self.faults.get(&share.id)).map(ToString::to_string);
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

    /// Tells plug-ins' shares among these paths, with those that have gone.
    pub(super) fn statuses_for_plugins<'p>(
        &self,
        plugins: &Plugins,
        paths: impl Iterator<Item = &'p str>,
    ) -> Vec<(String, Option<Arc<ShareStatus>>)> {
        if plugins.names().is_empty() {
            return Vec::new();
        }
        let catalog = self.store.catalog();
        let told = paths.map(|path| {
            let status = catalog.share_at(path).map(|view| Arc::new(self.status(&view, plugins)));
            (path.to_owned(), status)
        });
        told.collect()
    }

    /// Brings the sharetab up to date about these paths.
    pub(super) fn tell_sharetab<'p>(&mut self, paths: impl Iterator<Item = &'p str>) {
        let Some(mut sharetab) = self.sharetab.take() else { return };
        for path in paths {
            let is_served = self.state_of(path).is_some_and(ShareState::is_served);
            match self.store.catalog().share_at(path).filter(|_| is_served) {
                Some(view) => {
                    let options = self.sharetab_options(&view);
                    let others = view.protocols.iter().map(String::as_str);
                    let types: Vec<&str> =
                        std::iter::once("nfs").chain(others.filter(|p| *p != "nfs")).collect();
                    sharetab.set(&Entry {
                        path,
                        resource: view.spec.resource.as_deref(),
                        types: &types,
                        options: &options,
                        description: view.spec.description.as_deref(),
                    });
                }
                None => sharetab.remove(path),
            }
        }
        if let Err(error) = sharetab.publish() {
            tracing::error!(
                "{}: cannot be written ({error}): other programs are told what was shared before",
                sharetab.path().display()
            );
        }
        self.sharetab = Some(sharetab);
    }

    /// Options as `share_nfs(1M)` has them: `rw=` and `ro=` with their clients, then the rest.
    fn sharetab_options(&self, view: &ShareView) -> String {
        let catalog = self.store.catalog();
        let file = view.group.as_deref().and_then(|group| catalog.file(group));
        let group = file.map(steadfast_shares::GroupFile::group);
        let words = [
            catalog.defaults().options.as_slice(),
            group.map_or(&[], |group| &group.options),
            &view.spec.options,
        ]
        .concat();
        let has_own = !view.spec.clients.is_empty() || !view.spec.rules.is_empty();
        let clients = if has_own {
            view.spec.clients.clone()
        } else {
            let group = group.map_or(&[][..], |group| &group.clients);
            first_said([&[], group, &catalog.defaults().clients])
        };
        let mut parts = Vec::new();
        for rule in &view.spec.rules {
            parts.push(access_part(&[words.as_slice(), &rule.options].concat(), &rule.clients));
        }
        parts.push(access_part(&words, &clients));
        let is_other = |word: &&String| *word != "rw" && *word != "ro";
        parts.extend(words.iter().filter(is_other).cloned());
        parts.retain(|part| !part.is_empty());
        parts.dedup();
        parts.join(",")
    }
}

/// `rw`, `ro`, or one of them with clients; nothing for nobody.
fn access_part(words: &[String], clients: &[String]) -> String {
    let is_access = |word: &&String| *word == "rw" || *word == "ro";
    let access = words.iter().rev().find(is_access).map_or("rw", String::as_str);
    match clients {
        [] => String::new(),
        all if all.iter().any(|client| client == "*") => access.to_owned(),
        some => {
            // Colons part clients, so that addresses of IPv6 are in brackets.
            let shown = some.iter().map(|client| {
                if client.contains(':') { format!("[{client}]") } else { client.clone() }
            });
            format!("{access}={}", shown.collect::<Vec<_>>().join(":"))
        }
    }
}
