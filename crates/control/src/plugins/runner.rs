//! The threads of plug-ins, and what they could not do.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Fault, Plugin, PluginShare, Task};
use crate::api::{PluginFault, ShareStatus};

/// After the first failure; then twice as long each time.
const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_LAST: Duration = Duration::from_secs(300);
/// How long a server that stops waits for plug-ins that have something to do then, and how often it looks.
const END_PATIENCE: Duration = Duration::from_millis(300);
const END_LOOK: Duration = Duration::from_millis(1);

/// The protocol that the server serves itself.
const NFS: &str = "nfs";

/// What is said where no plug-in has a protocol.
fn missing(protocol: &str) -> String {
    format!(
        "there is no plug-in {protocol:?}, so NFS alone serves it: configure [plugin.{protocol}] in steadfast.toml \
         (steadfast.toml(5)), and restart the server"
    )
}

/// What all plug-ins are to have made of the shares.
#[derive(Debug, Default)]
struct Wanted {
    sequence: u64,
    shares: BTreeMap<Box<str>, Arc<PluginShare>>,
}

/// How far a plug-in is.
#[derive(Debug)]
struct Progress {
    name: String,
    /// Paths whose change it has not been told of with success; `None`: of all of them.
    changed: Option<BTreeSet<String>>,
    /// The last state that it was called for.
    tried: u64,
    faults: Vec<Fault>,
    /// When it is called again though nothing changes.
    retry: Option<(Instant, Duration)>,
}

#[derive(Debug, Default)]
struct State {
    wanted: Wanted,
    plugins: Vec<Progress>,
    is_stopping: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Something is wanted.
    news: Condvar,
    /// Something was tried.
    done: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All plug-ins of a server.
#[derive(Debug)]
pub struct Plugins {
    shared: Arc<Shared>,
    /// Threads that have something to do at the end.
    ends: Vec<JoinHandle<()>>,
}

/// A state that plug-ins were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

impl Plugins {
    /// Starts a thread for each.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(plugins: Vec<Box<dyn Plugin>>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut this = Self { shared: Arc::clone(&shared), ends: Vec::new() };
        for (index, plugin) in plugins.into_iter().enumerate() {
            shared.lock().plugins.push(Progress {
                name: plugin.name().to_owned(),
                changed: None,
                tried: 0,
                faults: Vec::new(),
                retry: None,
            });
            let shared = Arc::clone(&shared);
            let has_an_end = plugin.has_an_end();
            let thread = std::thread::Builder::new()
                .name(format!("plugin-{}", plugin.name()))
                .spawn(move || serve(&shared, index, plugin))?;
            if has_an_end {
                this.ends.push(thread);
            }
        }
        Ok(this)
    }

    /// Whether there is one of this name.
    pub fn has(&self, name: &str) -> bool {
        self.shared.lock().plugins.iter().any(|plugin| plugin.name == name)
    }

    /// What is said of a protocol that none of them has; NFS is no plug-in's.
    pub fn why_missing(&self, protocol: &str) -> Option<String> {
        (protocol != NFS && !self.has(protocol)).then(|| missing(protocol))
    }

    /// Their names.
    pub fn names(&self) -> Vec<String> {
        self.shared.lock().plugins.iter().map(|plugin| plugin.name.clone()).collect()
    }

    /// Tells what changed: each path with its share, `None` if it is not to be served any more.
    /// Returns at once. Shares without protocols of plug-ins cost nothing but a look.
    pub fn publish(
        &self,
        changes: impl IntoIterator<Item = (String, Option<Arc<PluginShare>>)>,
    ) -> Ticket {
        let mut state = self.shared.lock();
        let State { wanted, plugins, .. } = &mut *state;
        let mut is_news = wanted.sequence == 0;
        for (path, share) in changes {
            let is_shared = |share: &Arc<PluginShare>| {
                !share.status.protocols.is_empty() && share.status.state.is_served()
            };
            let share = share.filter(is_shared);
            let before = match &share {
                Some(share) => wanted.shares.insert(path.as_str().into(), Arc::clone(share)),
                None => wanted.shares.remove(path.as_str()),
            };
            for plugin in plugins.iter_mut() {
                let is_for = |share: &Option<Arc<PluginShare>>| {
                    share.as_ref().is_some_and(|share| share.is_for(&plugin.name))
                };
                if before != share && (is_for(&before) || is_for(&share)) {
                    is_news = true;
                    if let Some(changed) = &mut plugin.changed {
                        changed.insert(path.clone());
                    }
                }
            }
        }
        if is_news {
            wanted.sequence += 1;
            self.shared.news.notify_all();
        }
        Ticket(state.wanted.sequence)
    }

    /// A ticket for what was told last.
    pub fn last_told(&self) -> Ticket {
        Ticket(self.shared.lock().wanted.sequence)
    }

    /// Waits until every plug-in has tried what a ticket is for, at most so long.
    pub fn wait(&self, ticket: Ticket, patience: Duration) -> Vec<PluginFault> {
        let state = self.shared.lock();
        let is_behind = |state: &mut State| {
            !state.is_stopping && state.plugins.iter().any(|plugin| plugin.tried < ticket.0)
        };
        let (state, _) = self
            .shared
            .done
            .wait_timeout_while(state, patience, is_behind)
            .unwrap_or_else(PoisonError::into_inner);
        let mut faults = Vec::new();
        for plugin in &state.plugins {
            let mut tell =
                |why: String| faults.push(PluginFault { plugin: plugin.name.clone(), why });
            if plugin.tried < ticket.0 {
                tell("it is at work still".to_owned());
            }
            for fault in &plugin.faults {
                tell(match fault.paths.as_slice() {
                    [] => fault.why.clone(),
                    paths => format!("{}: {}", paths.join(", "), fault.why),
                });
            }
        }
        faults
    }

    /// What plug-ins could not do for a share.
    pub fn faults(&self, share: &ShareStatus) -> Vec<PluginFault> {
        if share.protocols.is_empty() {
            return Vec::new();
        }
        let state = self.shared.lock();
        let mut faults = Vec::new();
        for protocol in share.protocols.iter().filter(|protocol| *protocol != NFS) {
            let plugin = state.plugins.iter().find(|plugin| plugin.name == *protocol);
            let mut tell = |why: String| faults.push(PluginFault { plugin: protocol.clone(), why });
            let Some(plugin) = plugin else {
                tell(missing(protocol));
                continue;
            };
            for fault in &plugin.faults {
                if fault.paths.is_empty() || fault.paths.contains(&share.path) {
                    tell(fault.why.clone());
                }
            }
        }
        faults
    }
}

impl Drop for Plugins {
    /// Their threads end when they are done with what they do; only for those that have something to do at the end
    /// one waits, and not for long.
    fn drop(&mut self) {
        self.shared.lock().is_stopping = true;
        self.shared.news.notify_all();
        self.shared.done.notify_all();
        let until = Instant::now() + END_PATIENCE;
        while self.ends.iter().any(|thread| !thread.is_finished()) && Instant::now() < until {
            std::thread::sleep(END_LOOK);
        }
    }
}

/// What a plug-in is called with.
struct Call {
    sequence: u64,
    shares: Vec<Arc<PluginShare>>,
    changed: Option<BTreeSet<String>>,
}

fn serve(shared: &Shared, index: usize, mut plugin: Box<dyn Plugin>) {
    while let Some(call) = next(shared, index) {
        let changed: Option<Vec<String>> =
            call.changed.as_ref().map(|changed| changed.iter().cloned().collect());
        let task =
            Task { sequence: call.sequence, shares: &call.shares, changed: changed.as_deref() };
        // A bug in it is a failure like others.
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| plugin.publish(&task)))
            .unwrap_or_else(|_| Err(vec![Fault::new("it failed by a bug, see the messages")]));
        note(shared, index, call, result);
    }
    plugin.end();
}

/// Waits for something to do; `None` when the server stops.
fn next(shared: &Shared, index: usize) -> Option<Call> {
    let mut state = shared.lock();
    loop {
        if state.is_stopping {
            return None;
        }
        let sequence = state.wanted.sequence;
        let progress = state.plugins.get(index)?;
        let now = Instant::now();
        let retry = progress.retry.map(|(at, _)| at);
        let is_touched = progress.changed.as_ref().is_none_or(|changed| !changed.is_empty());
        if sequence > 0 && (progress.tried < sequence || retry.is_some_and(|at| at <= now)) {
            if is_touched {
                break;
            }
            // The news were for others.
            state.plugins.get_mut(index)?.tried = sequence;
            shared.done.notify_all();
            continue;
        }
        state = match retry {
            None => shared.news.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(at) => {
                let wait = at.saturating_duration_since(now);
                shared.news.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
    let State { wanted, plugins, .. } = &mut *state;
    let progress = plugins.get_mut(index)?;
    let is_for = |share: &&Arc<PluginShare>| share.is_for(&progress.name);
    let shares = wanted.shares.values().filter(is_for).cloned().collect();
    let changed = progress.changed.replace(BTreeSet::new());
    Some(Call { sequence: wanted.sequence, shares, changed })
}

/// Notes what came of a call.
fn note(shared: &Shared, index: usize, call: Call, result: Result<(), Vec<Fault>>) {
    let mut state = shared.lock();
    let Some(progress) = state.plugins.get_mut(index) else { return };
    progress.tried = call.sequence;
    match result {
        Ok(()) => {
            if !progress.faults.is_empty() {
                tracing::info!("plug-in {}: it works again", progress.name);
            }
            progress.faults.clear();
            progress.retry = None;
        }
        Err(faults) => {
            let wait = progress.retry.map_or(RETRY_FIRST, |(_, last)| (2 * last).min(RETRY_LAST));
            if progress.faults != faults {
                for fault in &faults {
                    let about = match fault.paths.as_slice() {
                        [] => String::new(),
                        paths => format!("{}: ", paths.join(", ")),
                    };
                    let name = &progress.name;
                    tracing::error!("plug-in {name}: {about}{}; it is tried again", fault.why);
                }
            }
            progress.faults = faults;
            progress.retry = Some((Instant::now() + wait, wait));
            // What it was told, it has not done.
            progress.changed = match (progress.changed.take(), call.changed) {
                (Some(mut later), Some(told)) => {
                    later.extend(told);
                    Some(later)
                }
                _ => None,
            };
        }
    }
    shared.done.notify_all();
}
