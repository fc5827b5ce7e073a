//! What is done when the connection to the lock manager was made again: the server may have restarted, and lost all
//! locks. For a while after that it takes only locks that were held before (its grace period).
//!
//! What was locked before is marked as unsure, before there is more ([`super::State::note_generation`]). One thread asks
//! then whether the server has restarted, and each owner takes its unsure locks again, one after the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use steadfast_client::nlm::NlmStat;

use super::lockd::{Remote, Restart, Told, Unanswered};
use super::queue::{AFTERMATH, End};
use super::table::Held;
use super::task::{LATER, STARTING};
use super::{Locks, Reclaim, Task};

/// How a lock fared.
enum Fate {
    /// The server has it, at this connection or at a later one.
    Held(u64),
    Lost,
    /// It is to be asked for again.
    Unknown,
}

/// What came of asking for a lock again.
struct Reclaimed {
    fate: Fate,
    /// The server may differ from the table, now or later: when it is to be told. Whatever the fate is, a call that was
    /// sent more than once, or not answered, may be executed after the owner has unlocked.
    doubt: Option<Duration>,
}

/// When the server is told what the table says, if it may execute this call later.
fn aftermath(told: &Told) -> Option<Duration> {
    told.is_in_doubt().then_some(AFTERMATH)
}

impl Locks {
    /// If the connection was made again, has the server told of all locks that are held.
    pub(super) fn look_for_restart(self: &Arc<Self>) {
        let (remotes, generation) = {
            let mut state = self.state.lock();
            state.note_generation(self.lockd.generation());
            if !std::mem::take(&mut state.is_unjudged) || state.is_closed {
                return;
            }
            if state.files.is_empty() {
                self.lockd.forget_verifier();
                return;
            }
            let mut remotes = Vec::new();
            for file in state.files.values() {
                for (owner, of) in &file.owners {
                    let is_unsure = file.unsure.of(*owner).next().is_some();
                    remotes.push((!is_unsure, of.remote.clone()));
                }
            }
            remotes.sort_by_key(|(is_sure, _)| *is_sure);
            (remotes, state.generation)
        };
        let restart = self.lockd.has_restarted(remotes.iter().map(|(_, remote)| remote));
        self.judge(restart, generation);
    }

    /// The server has restarted or not, as it was asked after the connection was made again so often.
    fn judge(self: &Arc<Self>, restart: Restart, generation: u64) {
        let mut state = self.state.lock();
        let has_restarted = match restart {
            Restart::Unanswered => {
                // The scheduler asks again.
                state.is_unjudged = true;
                return;
            }
            // The next look tells.
            Restart::No if state.generation != generation => return,
            Restart::No => Some(false),
            Restart::Yes => Some(true),
            Restart::Unknown => None,
        };
        let mut keys = Vec::new();
        let now = Instant::now();
        for (number, file) in &mut state.files {
            for (owner, of) in &mut file.owners {
                let unsure: Vec<Held> = file.unsure.of(*owner).collect();
                if unsure.is_empty() {
                    continue;
                }
                // What an earlier restart has taken has still to be reclaimed.
                let known = of.reclaim.and_then(|reclaim| reclaim.has_restarted);
                if has_restarted == Some(false) && of.reclaim.is_none() {
                    for held in &unsure {
                        file.unsure.set(*owner, held.span, None);
                    }
                } else if has_restarted != Some(false) {
                    let has_restarted = if known == Some(true) { known } else { has_restarted };
                    of.reclaim = Some(Reclaim { has_restarted, since: now, due: now });
                    keys.push((*number, *owner));
                }
            }
        }
        if !keys.is_empty() {
            tracing::info!(
                owners = keys.len(),
                "the connection to the server's lock manager was made again: locks are reclaimed"
            );
        }
        for key in keys {
            self.dispatch(&mut state, key);
        }
    }

    /// Takes the unsure locks of an owner again. What is reclaimed is noted at once: it is not asked for twice.
    pub(super) fn run_reclaim(self: &Arc<Self>, task: &Task) {
        let (number, owner) = task.key();
        let begun = {
            let mut state = self.state.lock();
            let remote = self.remote(&mut state, task, true);
            let reclaim = state.owner(task.key()).and_then(|of| of.reclaim);
            let held = state.files.get(&number).map(|file| {
                let spans = file.unsure.of(owner).map(|held| held.span);
                let parts = spans.flat_map(|span| file.table.parts(owner, span));
                let held = parts.filter_map(|(span, kind)| Some(Held { owner, span, kind: kind? }));
                held.collect::<Vec<_>>()
            });
            remote.zip(reclaim).zip(held)
        };
        let Some(((remote, reclaim), all_held)) = begun else {
            return self.end(task.key(), End::default());
        };
        let (mut lost, mut end, mut is_later) = (Vec::new(), End::default(), false);
        for held in all_held {
            let Reclaimed { fate, doubt } = self.reclaim(task, &remote, held, reclaim);
            if let Some(after) = doubt {
                let (span, before) = end.doubt.unwrap_or((held.span, after));
                end.doubt = Some((span.hull(held.span), before.max(after)));
            }
            match fate {
                Fate::Held(generation) => {
                    let mut state = self.state.lock();
                    // If it was made again meanwhile, it is unsure again.
                    if generation >= state.generation
                        && let Some(file) = state.files.get_mut(&number)
                    {
                        file.unsure.set(owner, held.span, None);
                    }
                }
                Fate::Lost => lost.push(held),
                Fate::Unknown => {
                    is_later = true;
                    break;
                }
            }
        }
        self.lose(task, &lost);
        {
            let mut state = self.state.lock();
            let is_unsure =
                state.files.get(&number).is_some_and(|file| file.unsure.of(owner).next().is_some());
            let mut is_left_out = false;
            if let Some(of) = state.owner(task.key()) {
                let later = Reclaim { due: Instant::now() + LATER, ..reclaim };
                // Another restart may have been noticed meanwhile.
                of.reclaim = match of.reclaim {
                    Some(newer) if newer.since != reclaim.since && is_unsure => Some(newer),
                    _ => is_later.then_some(later),
                };
                is_left_out = of.reclaim.is_none() && is_unsure;
                of.is_remade &= is_unsure;
            }
            // The connection was made again meanwhile. Who was being reclaimed then was not judged.
            state.is_unjudged |= is_left_out;
            self.end_in(&mut state, task.key(), end);
        }
        self.changed.notify_all();
    }

    /// A lock that nobody has taken meanwhile is had again. But if the server has restarted, and its grace period is
    /// over, another client may have had it, and have changed the file.
    fn reclaim(&self, task: &Task, remote: &Remote, held: Held, reclaim: Reclaim) -> Reclaimed {
        let Reclaim { has_restarted, since, .. } = reclaim;
        let sure = |fate| Reclaimed { fate, doubt: None };
        let (is_free_lost, generation) = match has_restarted {
            Some(true) => match self.lockd.is_steadfast() {
                None => return sure(Fate::Unknown),
                Some(is_steadfast) => (!is_steadfast, self.lockd.generation()),
            },
            _ => (false, 0),
        };
        // Some servers change their verifier when a write has failed, and have all locks.
        let is_remade = self.state.lock().owner(task.key()).is_none_or(|of| of.is_remade);
        if is_free_lost && !is_remade && self.lockd.has(remote, held.span) {
            return sure(Fate::Held(generation));
        }
        if let Some(of) = self.state.lock().owner(task.key()) {
            of.is_remade = true;
        }
        let mut told = self.lockd.lock(remote, held.span, held.kind, false);
        let mut doubt = aftermath(&told);
        let is_reclaim = matches!(told.stat, Ok(NlmStat::DeniedGracePeriod));
        if is_reclaim {
            told = self.lockd.lock(remote, held.span, held.kind, true);
            doubt = doubt.max(aftermath(&told));
        }
        let fate = match told.stat {
            Ok(NlmStat::Granted) if !is_free_lost || is_reclaim => Fate::Held(told.generation),
            Ok(NlmStat::Granted) => {
                // What is lost is not to keep others out.
                let freed = self.lockd.unlock(remote, held.span, None);
                doubt = doubt.max(aftermath(&freed));
                if freed.stat.ok() != Some(NlmStat::Granted) {
                    doubt = doubt.max(Some(LATER));
                }
                Fate::Lost
            }
            Ok(NlmStat::DeniedGracePeriod)
            | Err(Unanswered::NotSent(_) | Unanswered::InDoubt(_)) => Fate::Unknown,
            // A server that has just started may not be able to tell.
            Ok(NlmStat::DeniedNoLocks) | Err(Unanswered::NotServed | Unanswered::Refused(_))
                if since.elapsed() < STARTING =>
            {
                Fate::Unknown
            }
            // Whoever may ask for locks may ask for those that he had.
            Err(Unanswered::Refused(_)) if is_reclaim => Fate::Unknown,
            Ok(_) | Err(Unanswered::NotServed | Unanswered::Refused(_)) => Fate::Lost,
        };
        Reclaimed { fate, doubt }
    }

    pub(super) fn lose(&self, task: &Task, lost: &[Held]) {
        if lost.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let Some(file) = state.files.get_mut(&task.node.number) else { return };
        for held in lost {
            file.table.set(task.owner, held.span, None);
            file.unsure.set(task.owner, held.span, None);
        }
        if let Some(of) = file.owners.get(&task.owner) {
            self.note_lost(&task.node, of, lost);
        }
    }
}
