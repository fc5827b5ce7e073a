//! What is done to one owner's locks of one file, from the request to its answer. When it is done: see `queue`.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast_client::nlm::NlmStat;
use steadfast_client::{ClientError, Identity};

use super::lockd::{Remote, Told, Unanswered};
use super::queue::{AFTERMATH, Again, End};
use super::table::{Held, Kind, Owner, Span};
use super::{Locks, State, refusal, refused};
use crate::errors::Errno;
use crate::node::Node;

/// How soon a lock is asked for again that another client has: at first, and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How soon the server is asked again that is in its grace period, or cannot be reached.
pub(super) const LATER: Duration = Duration::from_secs(1);
/// How soon a lock is asked for again that another owner of this mount has. It is woken before, when that one is done:
/// those who ask by themselves would not stand in order.
const LOCAL: Duration = Duration::from_secs(60);
/// How soon it is looked again whether a file's data is at the server.
const DATA: Duration = Duration::from_millis(50);
/// A server that has just started may refuse everything for so long.
pub(super) const STARTING: Duration = Duration::from_secs(60);

type Outcome = Result<(), Errno>;
type Answer = Box<dyn FnOnce(Outcome) + Send>;

/// Somebody who waits for an answer.
pub(crate) struct Ticket {
    /// The thread that waits; 0 if it is not known.
    pub(super) pid: u32,
    pub(super) since: Instant,
    /// It closes a file: signals do not end that, but death does after a while.
    pub(super) is_close: bool,
    answer: Mutex<Option<Answer>>,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl Ticket {
    pub(crate) fn new(
        pid: u32,
        is_close: bool,
        answer: impl FnOnce(Outcome) + Send + 'static,
    ) -> Arc<Self> {
        let answer: Answer = Box::new(answer);
        Arc::new(Self { pid, since: Instant::now(), is_close, answer: Mutex::new(Some(answer)) })
    }

    /// Nobody waits.
    pub(crate) fn of_nobody() -> Arc<Self> {
        Arc::new(Self { pid: 0, since: Instant::now(), is_close: true, answer: Mutex::new(None) })
    }

    /// Answers, if nobody has. False: it was answered before.
    pub(crate) fn finish(&self, outcome: Outcome) -> bool {
        let answer = self.answer.lock().take();
        answer.is_some_and(|answer| {
            answer(outcome);
            true
        })
    }

    pub(super) fn is_open(&self) -> bool {
        self.answer.lock().is_some()
    }
}

/// What is to be done.
pub(crate) enum What {
    /// The owner is to have this lock.
    Lock {
        kind: Kind,
        /// It waits for other owners.
        waits: bool,
        /// What is done before the program knows that it has the lock.
        granted: Arc<dyn Fn() + Send + Sync>,
    },
    /// The owner is to have nothing there.
    Unlock {
        /// Whether what was written is safe, if that has to come before. It is told how long the unlock has waited.
        is_safe: Option<Arc<dyn Fn(Duration) -> bool + Send + Sync>>,
    },
    /// The server is to have what the table has, where that has been in doubt since then.
    Mend { since: Instant },
    /// The server may have restarted: it is to be told what the table has, or to say that it knows.
    Reclaim,
}

/// One owner's request, or what follows from it.
pub(crate) struct Task {
    pub(crate) node: Arc<Node>,
    pub(crate) owner: Owner,
    pub(crate) span: Span,
    pub(crate) what: What,
    /// Who opened the file.
    pub(crate) identity: Identity,
    /// The open file.
    pub(crate) file: u64,
    pub(crate) ticket: Arc<Ticket>,
    /// How long it was parked last since another client has the lock.
    pub(crate) pause: Duration,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("span", &self.span).finish_non_exhaustive()
    }
}

impl Task {
    pub(super) fn waits(&self) -> bool {
        matches!(self.what, What::Lock { waits: true, .. })
    }

    /// The numbers of its file and of its owner.
    pub(super) fn key(&self) -> (u64, Owner) {
        (self.node.number, self.owner)
    }
}

impl Locks {
    pub(super) fn run(self: &Arc<Self>, task: Task) {
        match &task.what {
            What::Lock { kind, waits, granted } => {
                let (kind, waits, granted) = (*kind, *waits, Arc::clone(granted));
                self.run_lock(task, kind, waits, &*granted);
            }
            What::Unlock { is_safe } => {
                let is_safe = is_safe.clone();
                self.run_unlock(task, is_safe.as_deref());
            }
            What::Mend { since } => {
                let since = *since;
                self.run_mend(&task, since);
            }
            What::Reclaim => self.run_reclaim(&task),
        }
    }

    /// Whether a `soft` mount waits no longer.
    fn has_no_patience(&self, task: &Task) -> bool {
        self.soft_after.is_some_and(|after| task.ticket.since.elapsed() >= after)
    }

    /// The owner as the server is to know it. It is noted before the server is asked for a lock.
    pub(super) fn remote(&self, state: &mut State, task: &Task, is_noted: bool) -> Option<Remote> {
        let of = state.owner(task.key())?;
        // A recovery may have given the file another handle.
        let handle = task.node.handle();
        let is_other = of.remote.handle != handle;
        of.remote.handle = handle;
        match of.place {
            Some(place) if is_other => self.lockd.note_again(place, &of.remote),
            None if is_noted => of.place = self.lockd.note(&of.remote),
            _ => {}
        }
        Some(of.remote.clone())
    }

    /// Ends a task's turn, and answers whoever waits for it.
    fn finish(self: &Arc<Self>, task: &Task, end: End, outcome: Outcome) {
        self.end(task.key(), end);
        task.ticket.finish(outcome);
    }

    fn run_lock(
        self: &Arc<Self>,
        mut task: Task,
        kind: Kind,
        waits: bool,
        granted: &(dyn Fn() + Send + Sync),
    ) {
        let key = task.key();
        if !task.ticket.is_open() {
            return self.end(key, End::default());
        }
        let remote = {
            let mut state = self.state.lock();
            let file = state.files.get(&task.node.number);
            if file.is_some_and(|file| file.table.conflict(task.owner, task.span, kind).is_some()) {
                if waits {
                    // Whoever unlocks next finds it there.
                    let again = Again::Parked { task, pause: LOCAL, is_local: true };
                    self.end_in(&mut state, key, End::again(again));
                    drop(state);
                    self.changed.notify_all();
                    return;
                }
                drop(state);
                return self.finish(&task, End::default(), Err(Errno::EAGAIN));
            }
            self.begin_lock(&mut state, &task)
        };
        let Some(remote) = remote else {
            return self.finish(&task, End::default(), Err(Errno::EIO));
        };
        self.look_for_restart();
        self.lockd.learn_verifier(&remote, kind);
        let told = self.lockd.lock(&remote, task.span, kind, false);
        let span = task.span;
        let park = |task, pause| {
            let again = Again::Parked { task, pause, is_local: false };
            End::again(again).with_doubt_if(told.is_in_doubt(), span)
        };
        let end = End::default().with_doubt_if(told.is_in_doubt(), span);
        match &told.stat {
            Ok(NlmStat::Granted) => {
                granted();
                self.take(task, kind, &remote, &told);
            }
            Ok(NlmStat::Denied | NlmStat::Blocked) if waits => {
                task.pause = (task.pause * 2).clamp(AGAIN.0, AGAIN.1);
                let pause = task.pause;
                self.end(key, park(task, pause));
            }
            // In the last of these cases the lock manager is elsewhere now. Asking again does no harm: an owner keeps
            // itself out never, and has the same number as long as something is in doubt.
            Ok(NlmStat::DeniedGracePeriod)
            | Err(Unanswered::NotSent(_) | Unanswered::InDoubt(ClientError::Closed)) => {
                if self.has_no_patience(&task) {
                    self.finish(&task, end, Err(Errno::EIO));
                } else {
                    self.end(key, park(task, LATER));
                }
            }
            Ok(stat) => self.finish(&task, end, Err(refusal(*stat))),
            Err(error @ Unanswered::NotServed) => {
                tracing::warn!(%error, "a lock is refused: mount with nolock if locks need not be seen by other hosts");
                self.finish(&task, end, Err(Errno::ENOLCK));
            }
            Err(Unanswered::Refused(error)) => self.finish(&task, end, Err(refused(error))),
            Err(Unanswered::InDoubt(error)) => self.finish(&task, end, Err(Errno::from(error))),
        }
    }

    fn begin_lock(&self, state: &mut State, task: &Task) -> Option<Remote> {
        let remote = self.remote(state, task, true)?;
        let of = state.owner(task.key())?;
        of.pid = task.ticket.pid;
        if !of.files.contains(&task.file) {
            of.files.push(task.file);
        }
        Some(remote)
    }

    /// The server has granted a lock: the program has it now, unless it does not wait any more, or the server has lost
    /// it meanwhile. It was not in the table then, and so it was not reclaimed: it is asked for again.
    fn take(self: &Arc<Self>, task: Task, kind: Kind, remote: &Remote, told: &Told) {
        let mut state = self.state.lock();
        // When the mount ends, whoever looks after it frees this.
        if state.is_closed {
            return;
        }
        if !self.lockd.has_still(remote, told) {
            let (key, span) = (task.key(), task.span);
            let again = Again::Parked { task, pause: AGAIN.0, is_local: false };
            // In doubt, so that the owner keeps its number.
            self.end_in(&mut state, key, End::again(again).with_doubt_if(true, span));
            drop(state);
            self.changed.notify_all();
            return;
        }
        let end = End::default().with_doubt_if(told.is_in_doubt(), task.span);
        // With the lock of the state: whoever unlocks next finds it in the table.
        if task.ticket.finish(Ok(())) {
            // What was locked before the connection was made again is marked before there is more.
            state.note_generation(told.generation);
            let is_old = told.generation < state.generation;
            state.is_unjudged |= is_old;
            let file = state.file(&task.node);
            file.table.set(task.owner, task.span, Some(kind));
            let was_unsure = file.unsure.has(task.owner, task.span);
            if is_old {
                file.unsure.set(task.owner, task.span, Some(kind));
            }
            if was_unsure && let Some(of) = file.owners.get_mut(&task.owner) {
                of.is_remade = true;
            }
            self.end_in(&mut state, task.key(), end);
        } else {
            let doubt = end.doubt.unwrap_or((task.span, Duration::ZERO));
            self.end_in(&mut state, task.key(), End { doubt: Some(doubt), again: None });
        }
        drop(state);
        self.changed.notify_all();
    }

    fn run_unlock(
        self: &Arc<Self>,
        task: Task,
        is_safe: Option<&(dyn Fn(Duration) -> bool + Send + Sync)>,
    ) {
        let remote = {
            let mut state = self.state.lock();
            let file = state.files.get(&task.node.number);
            let has = file.is_some_and(|file| file.table.has(task.owner, task.span));
            if has { self.remote(&mut state, &task, false) } else { None }
        };
        // What is in doubt is freed by its own task.
        let Some(remote) = remote else { return self.finish(&task, End::default(), Ok(())) };
        if is_safe.is_some_and(|is_safe| !is_safe(task.ticket.since.elapsed())) {
            let key = task.key();
            return self.end(key, End::again(Again::Stalled { task, pause: DATA }));
        }
        let told = self.lockd.unlock(&remote, task.span, None);
        let (key, span) = (task.key(), task.span);
        let end = |is_failed| End::default().with_doubt_if(is_failed || told.is_in_doubt(), span);
        let (outcome, end) = match &told.stat {
            Ok(NlmStat::DeniedGracePeriod)
            | Err(Unanswered::NotSent(_) | Unanswered::InDoubt(ClientError::Closed)) => {
                if !self.has_no_patience(&task) {
                    let again = Some(Again::Stalled { task, pause: LATER });
                    return self.end(key, End { again, ..end(false) });
                }
                (Err(Errno::EIO), end(true))
            }
            // What the server does not know it does not hold.
            Ok(_) | Err(Unanswered::NotServed) => (Ok(()), end(false)),
            Err(Unanswered::Refused(error)) => (Err(refused(error)), end(true)),
            Err(Unanswered::InDoubt(error)) => (Err(Errno::from(error)), end(true)),
        };
        {
            let mut state = self.state.lock();
            // Until now the table has it: a server that was told again since then has it, too.
            let end = end.with_doubt_if(self.lockd.is_retold(&told), span);
            if let Some(file) = state.files.get_mut(&task.node.number) {
                file.table.set(task.owner, span, None);
                file.unsure.set(task.owner, span, None);
            }
            self.end_in(&mut state, key, end);
        }
        self.changed.notify_all();
        task.ticket.finish(outcome);
    }

    /// Brings the server back to what the table says: an owner that has a lock keeps it throughout.
    fn run_mend(self: &Arc<Self>, task: &Task, since: Instant) {
        let (remote, parts, unsure, generation) = {
            let mut state = self.state.lock();
            let remote = self.remote(&mut state, task, true);
            let file = state.files.get(&task.node.number);
            let parts = file.map(|file| {
                // Those that are to be reclaimed are not to be had in another way.
                let is_unsure = |(span, kind): &(Span, Option<Kind>)| {
                    kind.is_some() && file.unsure.has(task.owner, *span)
                };
                let parts = file.table.parts(task.owner, task.span).into_iter();
                parts.partition::<Vec<_>, _>(is_unsure)
            });
            let (unsure, parts) = parts.unwrap_or_default();
            (remote, parts, unsure, state.generation)
        };
        let Some(remote) = remote else { return };
        let (mut pause, mut lost) = (None, Vec::new());
        let (mut is_remade, mut is_given_up, mut is_unanswered) = (false, false, false);
        for (span, kind) in parts {
            let told = match kind {
                Some(kind) => self.lockd.lock(&remote, span, kind, false),
                None => self.lockd.unlock(&remote, span, None),
            };
            is_remade |= kind.is_some() && (told.is_repeated || told.generation != generation);
            let is_starting = since.elapsed() < STARTING;
            match (&told.stat, kind) {
                (Err(Unanswered::InDoubt(error)), _) if is_nonsense(error) => is_given_up = true,
                (
                    Ok(NlmStat::DeniedGracePeriod)
                    | Err(Unanswered::NotSent(_) | Unanswered::InDoubt(_)),
                    _,
                ) => is_unanswered = true,
                (Ok(NlmStat::DeniedNoLocks) | Err(Unanswered::NotServed), _) if is_starting => {
                    is_unanswered = true;
                }
                (Err(Unanswered::Refused(_) | Unanswered::NotServed), None)
                | (Err(Unanswered::Refused(_)), Some(_)) => is_given_up = true,
                (Ok(NlmStat::Granted), _) | (Ok(_), None) => {}
                (_, Some(kind)) => lost.push(Held { owner: task.owner, span, kind }),
            }
            if told.is_repeated || (is_unanswered && told.is_in_doubt()) {
                pause = Some(AFTERMATH);
            }
            if is_unanswered {
                pause = pause.max(Some(LATER));
                break;
            }
        }
        if !unsure.is_empty() && !is_given_up {
            // If they need not be reclaimed after all, they are to be mended then.
            pause = pause.max(Some(LATER));
        }
        self.lose(task, &lost);
        let mut state = self.state.lock();
        if let Some(of) = state.owner(task.key()) {
            of.is_remade |= is_remade;
            if is_given_up && of.place.take().is_some() {
                // It stays noted, for whoever looks after the mount.
                tracing::warn!(
                    file = task.node.number,
                    "the server may have a lock that nobody has: it refuses to free it"
                );
                state.given_up += 1;
            }
        }
        let doubt = pause.map(|pause| (task.span, pause));
        self.end_in(&mut state, task.key(), End { doubt, again: None });
        if is_unanswered && let Some(of) = state.owner(task.key()) {
            of.keep_doubt(since);
        }
        drop(state);
        self.changed.notify_all();
    }
}

/// An answer that cannot be understood: the next one cannot either.
fn is_nonsense(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Malformed { .. }
            | ClientError::TrailingBytes { .. }
            | ClientError::Contradiction { .. }
    )
}
