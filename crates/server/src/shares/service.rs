//! The shares of a running server by its interface.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use steadfast_access::{LookUp, State as Standing, Subject as Name};
use steadfast_catalog::manage::Batch;
use steadfast_catalog::{Edit, Item, ShareChange, ShareView, exports, planned};
use steadfast_control::api::{
    self, AcceptRequest, Applied, Event, ExplainRequest, Explanation, GroupStatus, History,
    HistoryEntry, Mistake, Mounting, MountingRequest, Plan, ShareFilter, SharePage, ShareStatus,
    Who, Wish,
};
use steadfast_control::explain::{self, Asked, User, explain, innermost};
use steadfast_control::plugins::Plugins;
use steadfast_control::store::{self, ApplyError, Done};
use steadfast_control::{Refusal, RefusalKind, ShareService};
use steadfast_shares::{ClientPattern, Flavor, Groups, HostName, Share};
use tokio::sync::broadcast;

use super::ShareManager;
use super::comes_to::ComesTo;
use super::state::State;
use super::told::has_own_clients;
use crate::exports::Fault;
use crate::mounting::mounting;

/// How long an answer waits for plug-ins at the most, if it is to.
const PLUGINS_PATIENCE: Duration = Duration::from_secs(120);
/// How long an answer waits until limits are taken away.
const LIFTS_PATIENCE: Duration = Duration::from_secs(10);
/// Shares that were added whose mount lines are told.
const MOUNTED_MAX: usize = 4;
/// The first port from which every user of a client may call.
const PORTS_OF_ANYBODY: u16 = 1024;
/// Shares that are told of as faulty in one answer.
const WARNINGS_MAX: usize = 100;

/// The manager as the interface asks it.
pub(crate) struct ManagedShares(pub(crate) Arc<ShareManager>);

impl ManagedShares {
    fn told(&self, state: &State, view: &ShareView) -> ShareStatus {
        let mut status = state.status(view, &self.0.plugins);
        state.add_size(view, &mut status);
        status
    }

    fn applied(&self, done: Done, faults: Vec<Fault>, waits: bool) -> Applied {
        let mut applied = Applied {
            sequence: done.sequence,
            changes: planned(&done.edits),
            mistakes: done.left_out,
            warnings: [done.notes, warnings(faults)].concat(),
            ..Applied::default()
        };
        if waits {
            let ticket = self.0.plugins.last_told();
            applied.plugin_faults = self.0.plugins.wait(ticket, PLUGINS_PATIENCE);
        }
        applied
    }
}

fn warnings(faults: Vec<Fault>) -> Vec<Mistake> {
    let told = faults.into_iter().take(WARNINGS_MAX).map(|fault| Mistake {
        place: (*fault.path).into(),
        what: fault.what,
        ..Mistake::default()
    });
    told.collect()
}

/// What shares would be faulty by after changes.
fn faults_to_come(state: &State, changes: &[ShareChange]) -> Vec<Fault> {
    let fault = |share: &Share, what| Fault { id: share.id, path: Arc::clone(&share.path), what };
    let new = changes.iter().filter_map(|change| change.new.as_ref());
    let faults = new.filter_map(|share| Some(fault(share, state.exports.problem_of(share)?)));
    let sizes = size_problems(state, changes).map(|(share, what)| fault(&share, what));
    faults.chain(sizes).take(WARNINGS_MAX).collect()
}

/// Protocols that a batch names and no plug-in has. NFS serves such shares all the same, and a plug-in may be
/// configured after them.
fn unknown_plugins(batch: &Batch, plugins: &Plugins) -> Vec<Mistake> {
    let named = batch.protocols().into_iter().filter_map(|(place, protocol)| {
        let what = plugins.why_missing(protocol)?;
        Some(Mistake { place, what, ..Mistake::default() })
    });
    named.take(WARNINGS_MAX).collect()
}

/// Refuses a batch that gives shares sizes which cannot be enforced: they would not be served.
fn refuse_sizes(state: &mut State, batch: &Batch) -> Result<(), Refusal> {
    let may_have = || {
        let catalog = state.store.catalog();
        let names = |words: &[String]| words.iter().any(|word| word.starts_with("size="));
        state.exports.sizes.has_any()
            || names(&catalog.defaults().options)
            || catalog.groups().any(|view| names(&view.spec.options))
    };
    if batch.partial || !(batch.names_option("size=") || may_have()) {
        return Ok(());
    }
    // Mistakes are told by who applies it.
    let Ok(tried) = state.store.try_out(batch) else { return Ok(()) };
    let refused: Vec<Mistake> = size_problems(state, &tried.changes)
        .take(WARNINGS_MAX)
        .map(|(share, what)| Mistake { place: share.path.to_string(), what, ..Mistake::default() })
        .collect();
    if refused.is_empty() { Ok(()) } else { Err(Refusal::mistaken(refused)) }
}

/// Why sizes cannot be enforced that shares have after changes.
fn size_problems(
    state: &State,
    changes: &[ShareChange],
) -> impl Iterator<Item = (Arc<Share>, String)> {
    // What is wrong already keeps nobody from changing something else.
    let is_new = |new: &Share, old: Option<&Arc<Share>>| {
        old.is_none_or(|old| old.size != new.size || old.directory() != new.directory())
    };
    let new = changes
        .iter()
        .filter_map(|change| change.new.clone().filter(|new| is_new(new, change.old.as_ref())));
    let removed = changes.iter().filter_map(|change| change.old.as_ref().map(|old| old.id));
    state.exports.size_problems(new, removed).into_iter()
}

/// What is to be said of the sizes of shares that were changed.
fn size_warnings(state: &State, done: &Done) -> Vec<Mistake> {
    let new = done.changes.iter().filter_map(|change| change.new.as_ref());
    let told = new.filter(|share| share.size.is_some()).filter_map(|share| {
        let what = state.exports.sizes.warning(share.id)?;
        Some(Mistake { place: share.path.to_string(), what, ..Mistake::default() })
    });
    told.take(WARNINGS_MAX).collect()
}

impl ShareService for ManagedShares {
    fn list(&self, filter: &ShareFilter) -> SharePage {
        let state = self.0.lock();
        let catalog = state.store.catalog();
        let mut views: Vec<ShareView> = catalog.shares().collect();
        views.sort_by(|a, b| a.spec.path.cmp(&b.spec.path));
        let mut page =
            SharePage { sequence: state.store.sequence(), total: views.len(), ..<_>::default() };
        let is_asked_for = |view: &&ShareView| {
            let has_size = || view.share.as_ref().is_some_and(|share| share.size.is_some());
            filter.after.as_ref().is_none_or(|after| view.spec.path > *after)
                && (filter.filled.is_none() || has_size())
        };
        for view in views.iter().filter(is_asked_for) {
            // Before what takes more to find out.
            if filter.prefix.is_some() || filter.group.is_some() {
                let group = view.group.as_deref();
                let any = filter.state.unwrap_or(api::ShareState::Enabled);
                if !filter.has(&view.spec.path, group, any) {
                    continue;
                }
            }
            let mut status = state.status(view, &self.0.plugins);
            if !filter.has(&status.path, status.group.as_deref(), status.state) {
                continue;
            }
            state.add_size(view, &mut status);
            if !filter.has_filled(&status) {
                continue;
            }
            if page.shares.len() == filter.page() {
                page.next = page.shares.last().map(|share| share.path.clone());
                break;
            }
            page.shares.push(status);
        }
        page
    }

    fn share(&self, path: &str) -> Option<ShareStatus> {
        let state = self.0.lock();
        let views = state.store.catalog().shares_at(path);
        views.first().map(|view| self.told(&state, view))
    }

    fn groups(&self) -> Vec<GroupStatus> {
        let state = self.0.lock();
        let catalog = state.store.catalog();
        let mut groups: Vec<GroupStatus> =
            catalog.groups().map(|view| state.group_status(&view)).collect();
        for view in catalog.shares() {
            let status = state.status(&view, &self.0.plugins);
            let group = groups.iter_mut().find(|group| Some(&group.name) == status.group.as_ref());
            if let Some(group) = group {
                group.count(status.state);
            }
        }
        groups
    }

    fn plan(&self, wish: &Wish) -> Result<Plan, Refusal> {
        let mut state = self.0.lock();
        let mut comes = ComesTo::of(&mut state, wish)?;
        let tried = state.store.try_out(&comes.batch);
        let sequence = state.store.sequence();
        let changes = tried.as_ref().map_or(&[][..], |applied| &applied.changes);
        let faults = faults_to_come(&state, changes);
        // Where mistakes are is looked for while others go on.
        drop(state);
        let applied = tried.map_err(|mistakes| Refusal::mistaken(comes.placed(mistakes)))?;
        let mistakes = comes.left_out(applied.left_out);
        let plugins = unknown_plugins(&comes.batch, &self.0.plugins);
        let warnings = [comes.warnings, applied.notes, plugins, warnings(faults)].concat();
        Ok(Plan { sequence, changes: planned(&applied.edits), mistakes, warnings })
    }

    fn apply(&self, wish: &Wish, who: &Who, waits: bool) -> Result<Applied, Refusal> {
        let mut state = self.0.lock();
        let mut comes = ComesTo::of(&mut state, wish)?;
        refuse_sizes(&mut state, &comes.batch)?;
        let had_patterns = state.parents();
        let mut done = match state.store.apply(&comes.batch, &who.to_string()) {
            Ok(done) => done,
            Err(error) => {
                // Where mistakes are is looked for while others go on.
                drop(state);
                let refusal = refused(error);
                if refusal.mistakes.is_empty() {
                    return Err(refusal);
                }
                return Err(Refusal::mistaken(comes.placed(refusal.mistakes)));
            }
        };
        // Who adds a share means what its directory is on now.
        let is_added = |edit: &&Edit| edit.before.is_none() && edit.after.is_some();
        let added = done.edits.iter().filter(is_added).filter_map(|edit| match &edit.item {
            Item::Share(path) => state.store.catalog().served(path).map(|share| share.id),
            _ => None,
        });
        let added: Vec<_> = added.collect();
        state.exports.backings.forget(added.iter().copied());
        let faults = self.0.publish(&mut state, &done);
        let mut size_warnings = size_warnings(&state, &done);
        let has_lifts = state.exports.sizes.has_lifts();
        let served = added.iter().filter_map(|id| state.exports.served(*id)).map(Arc::clone);
        let served: Vec<_> = served.take(MOUNTED_MAX).collect();
        let has_other_patterns = state.parents() != had_patterns || has_patterns(&done.edits);
        drop(state);
        if has_lifts && !self.0.settler.wait(LIFTS_PATIENCE) {
            let what = "limits of subvolumes whose shares have no size any more are not taken away yet: a \
                        disk takes long (is it frozen?)";
            size_warnings.push(Mistake { what: what.to_owned(), ..Mistake::default() });
        }
        if has_other_patterns {
            self.0.watch_directories();
        }
        done.left_out = comes.left_out(std::mem::take(&mut done.left_out));
        let mut applied = self.applied(done, faults, waits);
        applied.warnings.splice(..0, comes.warnings);
        applied.warnings.extend(unknown_plugins(&comes.batch, &self.0.plugins));
        applied.warnings.extend(size_warnings);
        if let Some(mount_by) = self.0.mount_by.get().filter(|_| !served.is_empty()) {
            applied.mount_lines = mount_by.lines(served.iter().map(|share| &**share));
        }
        Ok(applied)
    }

    fn rollback(&self, to: Option<u64>, who: &Who) -> Result<Applied, Refusal> {
        let mut state = self.0.lock();
        let to = to.unwrap_or_else(|| state.store.sequence().saturating_sub(1));
        let done = state.store.rollback(to, &who.to_string()).map_err(refused)?;
        let faults = self.0.publish(&mut state, &done);
        drop(state);
        if has_patterns(&done.edits) {
            self.0.watch_directories();
        }
        Ok(self.applied(done, faults, false))
    }

    fn plan_rollback(&self, to: Option<u64>) -> Result<Plan, Refusal> {
        let mut state = self.0.lock();
        let to = to.unwrap_or_else(|| state.store.sequence().saturating_sub(1));
        let done = state.store.try_rollback(to).map_err(refused)?;
        let faults = faults_to_come(&state, &done.changes);
        drop(state);
        let (changes, warnings) = (planned(&done.edits), warnings(faults));
        Ok(Plan { sequence: done.sequence, changes, mistakes: done.left_out, warnings })
    }

    fn history(&self) -> History {
        let state = self.0.lock();
        let entries = state.store.states().iter().rev().map(|known| HistoryEntry {
            sequence: known.sequence,
            unix_ms: known.time_ms,
            who: known.who.clone(),
            comment: known.comment.clone(),
            summary: summary(known),
            can_return: true,
        });
        History { sequence: state.store.sequence(), entries: entries.collect() }
    }

    fn reload(&self, who: &Who) -> Result<Applied, Refusal> {
        let read = self.0.read_again(&who.to_string());
        // What has none is read all the same, so that it is no refusal.
        let mut applied = self.applied(read.done, read.faults, false);
        applied.mistakes.splice(..0, read.mistakes);
        applied.warnings.splice(..0, read.warnings);
        applied.served_again = read.served_again;
        Ok(applied)
    }

    fn accept(&self, wish: &AcceptRequest, who: &Who) -> Result<Applied, Refusal> {
        let mut state = self.0.lock();
        let catalog = state.store.catalog();
        let mut shares = Vec::new();
        for path in &wish.paths {
            let Some(share) = catalog.served(path) else {
                let why =
                    format!("{path:?} is no share that is to be served: see steadfast share list");
                return Err(Refusal::new(RefusalKind::NotFound, why));
            };
            shares.push(Arc::clone(share));
        }
        if wish.all {
            let all = catalog.all_served();
            let faulty = all.filter(|share| state.faults.contains_key(&share.id));
            shares.extend(faulty.map(Arc::clone));
        }
        state.exports.backings.forget(shares.iter().map(|share| share.id));
        state.exports.sizes.accept(shares.iter().map(|share| share.id));
        let change = |share: Arc<Share>| ShareChange {
            path: Arc::clone(&share.path),
            old: Some(Arc::clone(&share)),
            new: Some(share),
        };
        tracing::info!("{who} accepts what {} shares are on now", shares.len());
        let changes = shares.into_iter().map(change).collect();
        let done = Done { sequence: state.store.sequence(), changes, ..Done::default() };
        let faults = self.0.publish(&mut state, &done);
        drop(state);
        Ok(self.applied(done, faults, false))
    }

    fn export(&self, group: Option<&str>) -> Result<String, Refusal> {
        let state = self.0.lock();
        let catalog = state.store.catalog();
        if let Some(group) = group.filter(|group| catalog.file(group).is_none()) {
            let why = format!("there is no group {group:?}: see steadfast group list");
            return Err(Refusal::new(RefusalKind::NotFound, why));
        }
        let views = catalog.shares();
        let wanted = views.filter(|view| group.is_none() || view.group.as_deref() == group);
        let shares: Vec<_> = wanted.filter_map(|view| view.share).collect();
        let text = exports::export(shares.iter().map(|share| &**share)).text;
        Ok(if text.is_empty() { text } else { format!("{}{text}", exports::HEAD) })
    }

    fn mounting(&self, request: &MountingRequest) -> Result<Mounting, Refusal> {
        let state = self.0.lock();
        let views = state.store.catalog().shares_at(&request.path);
        drop(state);
        let path = &request.path;
        let refusal = if views.is_empty() {
            Refusal::new(RefusalKind::NotFound, format!("there is no share {path:?}"))
        } else {
            let what = format!("share {path:?} has mistakes: see `share show`");
            Refusal::new(RefusalKind::Mistaken, what)
        };
        let share = views.into_iter().next().and_then(|view| view.share).ok_or(refusal)?;
        let Some(by) = self.0.mount_by.get() else {
            let why = "the server starts, and does not know yet where clients find it";
            return Err(Refusal::new(RefusalKind::Busy, why));
        };
        mounting(&share, by, request).map_err(|what| Refusal::new(RefusalKind::Mistaken, what))
    }

    fn explain(&self, request: &ExplainRequest) -> Result<Explanation, Refusal> {
        let mistaken = |what: String| Refusal::new(RefusalKind::Mistaken, what);
        // The log names clients with their ports.
        let caller = request.client.parse::<SocketAddr>().ok();
        let client = caller.map_or_else(|| request.client.clone(), |it| it.ip().to_string());
        let is_from_high_port = caller.is_some_and(|it| it.port() >= PORTS_OF_ANYBODY);
        let address = self.address_of(&client).map_err(mistaken)?;
        let flavor = match request.flavor.as_deref() {
            None => Flavor::Sys,
            Some(word) => Flavor::ALL
                .into_iter()
                .find(|flavor| flavor.word() == word)
                .ok_or_else(|| mistaken(format!("{word:?} is no flavour: none, sys, krb5…")))?,
        };
        let user = match &request.user {
            None => None,
            Some(name) => Some(self.user(name).map_err(mistaken)?),
        };
        let state = self.0.lock();
        let catalog = state.store.catalog();
        let path = innermost(&request.path, |path| catalog.state_at(path).is_some());
        let view = path.and_then(|path| catalog.shares_at(path).into_iter().next());
        let mut told = view.as_ref().map(|view| self.told(&state, view));
        let share = view.as_ref().and_then(|view| view.share.clone());
        // Who may read there still may.
        if let (Some(told), Some(view), Some(share)) = (&mut told, &view, &share)
            && state.exports.is_served_without_changes(share.id)
        {
            told.state = view.state;
        }
        let outer = told.as_ref().filter(|told| !told.state.is_served());
        let outer = outer.and_then(|told| self.served_above(&state, &told.path));
        drop(state);
        let asked = Asked {
            client: &client,
            address,
            path: &request.path,
            share: share.as_deref().zip(told.as_ref()),
            has_own_clients: view.as_ref().is_some_and(has_own_clients),
            flavor,
            from_privileged_port: !(request.high_port || is_from_high_port),
            user: user.as_ref(),
            fits_nfs2: share.as_ref().and_then(|share| self.0.engine.fits_nfs2(share.id)),
        };
        let names = self.0.access.book().at_present();
        let look_ups = |pattern: &ClientPattern, client: IpAddr| self.look_ups(pattern, client);
        let explained = explain(&asked, &names, &look_ups);
        let Some((outer, told, has_own_clients)) = outer else { return Ok(explained) };
        let fits_nfs2 = self.0.engine.fits_nfs2(outer.id);
        let share = Some((&*outer, &told));
        let outer = Asked { share, has_own_clients, fits_nfs2, ..asked };
        Ok(explained.with_outer(explain(&outer, &names, &look_ups)))
    }

    fn subscribe(&self) -> broadcast::Receiver<Arc<[Event]>> {
        self.0.news.subscribe()
    }
}

/// What a refused batch is told with.
fn refused(error: ApplyError) -> Refusal {
    match error {
        ApplyError::Mistakes(mistakes) => Refusal::mistaken(mistakes),
        ApplyError::NoState { .. } => Refusal::new(RefusalKind::NotFound, error.to_string()),
        ApplyError::ReadOnly(_) => Refusal::new(RefusalKind::Conflict, error.to_string()),
        ApplyError::History(_) => Refusal::new(RefusalKind::Failed, error.to_string()),
    }
}

/// Whether edits may have changed which directories become shares.
fn has_patterns(edits: &[Edit]) -> bool {
    edits.iter().any(|edit| matches!(edit.item, Item::Pattern(_) | Item::File | Item::Group))
}

/// What made a state, in a few words.
fn summary(state: &store::State) -> String {
    let counts = state.counts.text();
    let counts = if counts.is_empty() { "nothing but remarks changed".to_owned() } else { counts };
    match state.rolled_back_to {
        Some(to) => format!("back to state {to}: {counts}"),
        None if state.by_hand => format!("edited by hand: {counts}"),
        None => counts,
    }
}

impl ManagedShares {
    /// The share above a path of which it is a part while it is none of its own; what is told of it, and whether it
    /// has clients of its own.
    fn served_above(&self, state: &State, path: &str) -> Option<(Arc<Share>, ShareStatus, bool)> {
        let catalog = state.store.catalog();
        let (above, _) = path.rsplit_once('/')?;
        let is_served = |path: &str| {
            catalog.served(path).is_some_and(|share| state.exports.served(share.id).is_some())
        };
        let outer = innermost(above, is_served)?;
        let share = state.exports.served(catalog.served(outer)?.id)?;
        let view = catalog.share_at(outer)?;
        Some((Arc::clone(share), self.told(state, &view), has_own_clients(&view)))
    }

    /// The address of a client that is an address or a name.
    fn address_of(&self, client: &str) -> Result<IpAddr, String> {
        if let Ok(address) = client.parse() {
            return Ok(address);
        }
        let host = HostName::new(client)
            .ok_or_else(|| format!("{client:?} is neither an address nor a host's name"))?;
        let known = self.0.access.look_up(&Name::Host(host));
        let known = known.and_then(|look_up| look_up.answers.first()?.parse().ok());
        known.map_or_else(
            || {
                // Nobody has asked for it yet; a tool may wait.
                let found = (client, 0).to_socket_addrs().map_err(|error| {
                    format!("no address is known of {client:?}: {error}; give the address")
                })?;
                let first = found.into_iter().next();
                first.map(|found| found.ip()).ok_or_else(|| format!("{client:?} has no address"))
            },
            Ok,
        )
    }

    fn user(&self, name: &str) -> Result<User, String> {
        use steadfast_shares::Authority;
        let uid = name.parse().ok().or_else(|| uid_of(name)).ok_or_else(|| {
            format!("{name:?} is neither a number nor a user in /etc/passwd; give the number")
        })?;
        let groups = match self.0.access.groups(uid) {
            Groups::Known(groups) => Some(groups.to_vec()),
            Groups::NoUser | Groups::NotYet => None,
        };
        Ok(User { name: name.to_owned(), uid, groups })
    }

    /// What is known about the name in a pattern.
    fn look_ups(&self, pattern: &ClientPattern, client: IpAddr) -> Vec<explain::LookUp> {
        let name = match pattern {
            ClientPattern::Any | ClientPattern::Network { .. } => return Vec::new(),
            ClientPattern::Host(host) => Name::Host(host.clone()),
            ClientPattern::Domain(_) => Name::Client(client),
            ClientPattern::Netgroup(netgroup) => Name::Netgroup(netgroup.clone()),
        };
        self.0.access.look_up(&name).map(look_up).into_iter().collect()
    }
}

fn look_up(known: LookUp) -> explain::LookUp {
    let state = match known.state {
        Standing::Fresh => "fresh",
        Standing::Stale => "stale: the name service does not answer",
        Standing::NotYet => "being looked up",
        Standing::Unreachable => "unknown: the name service does not answer",
    };
    explain::LookUp {
        name: known.name,
        answers: known.answers,
        age_s: known.age_s,
        source: known.source.map(|source| source.to_string()),
        state: state.to_owned(),
    }
}

/// A user's number by `/etc/passwd`.
fn uid_of(name: &str) -> Option<u32> {
    let text = std::fs::read_to_string("/etc/passwd").ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}
