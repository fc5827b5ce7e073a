//! What is done when the connection to the lock manager was made again: the server may have restarted, and lost all
//! locks. For a while after that it takes only locks that were held before (its grace period).

use std::sync::Arc;
use std::time::Duration;

use steadfast_client::nlm::NlmStat;

use super::lockd::{Remote, Unanswered};
use super::table::{Held, Span};
use super::{Locks, Task, Ticket, What};

/// How a lock fared.
enum Fate {
    Held,
    Lost,
    /// It is to be asked for again.
    Unknown,
}

impl Locks {
    /// If the connection was made again, has the server told of all locks that are held.
    pub(super) fn look_for_restart(self: &Arc<Self>) {
        if self.lockd.take_reconnection() {
            self.reclaim_all();
        }
    }

    fn reclaim_all(self: &Arc<Self>) {
        let of_all = || -> Vec<(Task, Remote)> {
            let state = self.state.lock();
            let files = state.files.values().filter(|file| file.table.count() > 0);
            let all = files.flat_map(|file| {
                file.owners.iter().map(move |(owner, of)| {
                    let task = Task {
                        node: Arc::clone(&file.node),
                        owner: *owner,
                        span: Span::ALL,
                        what: What::Reclaim { has_restarted: None },
                        identity: of.remote.identity.clone(),
                        file: 0,
                        ticket: Ticket::of_nobody(),
                        pause: Duration::ZERO,
                    };
                    (task, of.remote.clone())
                })
            });
            all.collect()
        };
        let tasks = of_all();
        if tasks.is_empty() {
            self.lockd.forget_verifier();
            return;
        }
        let has_restarted = self.lockd.has_restarted(tasks.iter().map(|(_, remote)| remote));
        if has_restarted == Some(false) {
            return;
        }
        tracing::info!(
            owners = tasks.len(),
            "the connection to the server's lock manager was made again: locks are reclaimed"
        );
        for (task, _) in tasks {
            self.call(Task { what: What::Reclaim { has_restarted }, ..task });
        }
    }

    pub(super) fn run_reclaim(self: &Arc<Self>, task: Task, has_restarted: Option<bool>) {
        let Some(remote) = self.begin(&task) else {
            if self.has(&task.node, task.owner) {
                self.park_busy(task);
            }
            return;
        };
        let held: Vec<Held> = {
            let state = self.state.lock();
            let file = state.files.get(&task.node.number);
            file.map(|file| file.table.of(task.owner).collect()).unwrap_or_default()
        };
        let mut lost = Vec::new();
        for held in held {
            match self.reclaim(&remote, held, has_restarted) {
                Fate::Held => {}
                Fate::Lost => lost.push(held),
                Fate::Unknown => {
                    self.lose(&task, &lost);
                    self.end(&task);
                    return self.park_for_later(task);
                }
            }
        }
        self.lose(&task, &lost);
        self.end(&task);
    }

    /// A lock that nobody has taken meanwhile is had again. But if the server has restarted, and its grace period is
    /// over, another client may have had it, and have changed the file.
    fn reclaim(&self, remote: &Remote, held: Held, has_restarted: Option<bool>) -> Fate {
        let first = self.lockd.lock(remote, held.span, held.kind, false);
        match first {
            Ok(NlmStat::Granted) => {
                if has_restarted != Some(true) || self.lockd.keeps_locks() {
                    return Fate::Held;
                }
                // What is lost is not to keep others out.
                let _ = self.lockd.unlock(remote, held.span, None);
                Fate::Lost
            }
            Ok(NlmStat::DeniedGracePeriod) => {
                match self.lockd.lock(remote, held.span, held.kind, true) {
                    Ok(NlmStat::Granted) => Fate::Held,
                    Ok(NlmStat::DeniedGracePeriod) => Fate::Unknown,
                    Ok(_) | Err(Unanswered::NotServed) => Fate::Lost,
                    Err(_) => Fate::Unknown,
                }
            }
            Ok(_) | Err(Unanswered::NotServed) => Fate::Lost,
            Err(_) => Fate::Unknown,
        }
    }

    pub(super) fn lose(&self, task: &Task, lost: &[Held]) {
        if lost.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let Some(file) = state.files.get_mut(&task.node.number) else { return };
        for held in lost {
            file.table.set(task.owner, held.span, None);
        }
        if let Some(of) = file.owners.get(&task.owner) {
            self.note_lost(&task.node, of, lost);
        }
    }
}
