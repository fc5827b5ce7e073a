//! What is done to one owner's locks of one file, from the request to its answer.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast_client::nlm::NlmStat;
use steadfast_client::{ClientError, Identity};

use super::lockd::{Remote, Unanswered};
use super::table::{Held, Kind, Owner, Span};
use super::{Locks, OwnerOfFile, Parked, State, refusal};
use crate::errors::Errno;
use crate::node::Node;

/// How soon a lock is asked for again that another client has: at first, and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How soon a task looks again whether another one of its owner is done.
const BUSY: Duration = Duration::from_millis(5);
/// How soon the server is asked again that is in its grace period, or cannot be reached.
const LATER: Duration = Duration::from_secs(1);

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
    Unlock,
    /// The server is to have what the table has.
    Mend,
    /// The server has restarted: it is to be told what the table has, or to say that it knows.
    Reclaim {
        /// The server has restarted; `None`: nobody knows.
        has_restarted: Option<bool>,
    },
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

    /// What is left to be done when nobody waits for it any more.
    pub(super) fn followed_by(&self, what: What) -> Self {
        Self {
            node: Arc::clone(&self.node),
            owner: self.owner,
            span: self.span,
            what,
            identity: self.identity.clone(),
            file: self.file,
            ticket: Ticket::of_nobody(),
            pause: Duration::ZERO,
        }
    }
}

impl Locks {
    pub(super) fn run(self: &Arc<Self>, task: Task) {
        match &task.what {
            What::Lock { kind, waits, granted } => {
                let (kind, waits, granted) = (*kind, *waits, Arc::clone(granted));
                self.run_lock(task, kind, waits, &*granted);
            }
            What::Unlock => self.run_unlock(task),
            What::Mend => self.run_mend(task),
            What::Reclaim { has_restarted } => {
                let has_restarted = *has_restarted;
                self.run_reclaim(task, has_restarted);
            }
        }
    }

    fn park_in(state: &mut State, task: Task, pause: Duration, is_local: bool) {
        if state.is_closed {
            task.ticket.finish(Err(Errno::EIO));
            return;
        }
        state.parked.push(Parked { due: Instant::now() + pause, is_local, task });
    }

    pub(super) fn park(&self, task: Task, pause: Duration) {
        Self::park_in(&mut self.state.lock(), task, pause, false);
        self.changed.notify_all();
    }

    pub(super) fn park_busy(&self, task: Task) {
        self.park(task, BUSY);
    }

    pub(super) fn park_for_later(&self, task: Task) {
        self.park(task, LATER);
    }

    /// Whether a `soft` mount waits no longer.
    fn has_no_patience(&self, task: &Task) -> bool {
        self.soft_after.is_some_and(|after| task.ticket.since.elapsed() >= after)
    }

    /// Begins to talk to the server for an owner that is known; `None` if another task does.
    pub(super) fn begin(&self, task: &Task) -> Option<Remote> {
        let mut state = self.state.lock();
        let file = state.files.get_mut(&task.node.number)?;
        let of = file.owners.get_mut(&task.owner)?;
        if std::mem::replace(&mut of.is_busy, true) {
            return None;
        }
        // A recovery may have given the file another handle.
        of.remote.handle = task.node.handle();
        Some(of.remote.clone())
    }

    /// Ends that.
    pub(super) fn end(&self, task: &Task) {
        self.end_with(&mut self.state.lock(), task);
        self.changed.notify_all();
    }

    /// An owner without locks is forgotten, and whoever waits for it asks again.
    pub(super) fn end_with(&self, state: &mut State, task: &Task) {
        let Some(file) = state.files.get_mut(&task.node.number) else { return };
        if let Some(of) = file.owners.get_mut(&task.owner) {
            of.is_busy = false;
            if of.mends == 0
                && file.table.of(task.owner).next().is_none()
                && let Some(of) = file.owners.remove(&task.owner)
                && let Some(place) = of.place
            {
                self.lockd.ledger.lock().clear(place);
            }
        }
        wake(state, task.node.number);
        if state.files.get(&task.node.number).is_some_and(|file| file.owners.is_empty()) {
            state.files.remove(&task.node.number);
        }
    }

    fn run_lock(
        self: &Arc<Self>,
        mut task: Task,
        kind: Kind,
        waits: bool,
        granted: &(dyn Fn() + Send + Sync),
    ) {
        if !task.ticket.is_open() {
            return;
        }
        let remote = {
            let mut state = self.state.lock();
            let file = state.files.get(&task.node.number);
            if file.is_some_and(|file| file.table.conflict(task.owner, task.span, kind).is_some()) {
                if waits {
                    Self::park_in(&mut state, task, AGAIN.1, true);
                    drop(state);
                    self.changed.notify_all();
                } else {
                    drop(state);
                    task.ticket.finish(Err(Errno::EAGAIN));
                }
                return;
            }
            self.begin_lock(&mut state, &task)
        };
        let Some(remote) = remote else { return self.park_busy(task) };
        // What a restart has taken is known before there is more that it has not.
        self.look_for_restart();
        self.lockd.learn_verifier(&remote);
        match self.lockd.lock(&remote, task.span, kind, false) {
            Ok(NlmStat::Granted) => {
                granted();
                self.take(&task, kind, &remote);
            }
            Ok(NlmStat::Denied | NlmStat::Blocked) if waits => {
                self.end(&task);
                task.pause = (task.pause * 2).clamp(AGAIN.0, AGAIN.1);
                let pause = task.pause;
                self.park(task, pause);
            }
            Ok(NlmStat::DeniedGracePeriod) | Err(Unanswered::NotSent(_)) => {
                self.end(&task);
                if self.has_no_patience(&task) {
                    task.ticket.finish(Err(Errno::EIO));
                } else {
                    self.park_for_later(task);
                }
            }
            Ok(stat) => {
                self.end(&task);
                task.ticket.finish(Err(refusal(stat)));
            }
            Err(error @ Unanswered::NotServed) => {
                self.end(&task);
                tracing::warn!(%error, "a lock is refused: mount with nolock if locks need not be seen by other hosts");
                task.ticket.finish(Err(Errno::ENOLCK));
            }
            Err(Unanswered::InDoubt(ClientError::Closed)) => {
                // The lock manager is elsewhere now. Asking again does no harm: an owner keeps itself out never.
                self.end(&task);
                self.park_for_later(task);
            }
            Err(Unanswered::InDoubt(error)) => {
                task.ticket.finish(Err(Errno::from(&error)));
                self.end_in_doubt(&task);
            }
        }
    }

    /// Begins to talk to the server for an owner that may be new. It is noted before the server is asked.
    fn begin_lock(&self, state: &mut State, task: &Task) -> Option<Remote> {
        let number = state.number();
        let file = state.file(&task.node);
        let of = file.owners.entry(task.owner).or_insert_with(|| {
            let handle = task.node.handle();
            let remote = Remote { identity: task.identity.clone(), handle, number };
            let place = self.lockd.note(&remote);
            OwnerOfFile { remote, place, pid: 0, files: Vec::new(), is_busy: false, mends: 0 }
        });
        if std::mem::replace(&mut of.is_busy, true) {
            return None;
        }
        of.remote.handle = task.node.handle();
        of.pid = task.ticket.pid;
        if !of.files.contains(&task.file) {
            of.files.push(task.file);
        }
        Some(of.remote.clone())
    }

    /// The server has granted a lock: the program has it now, unless it does not wait any more.
    fn take(self: &Arc<Self>, task: &Task, kind: Kind, remote: &Remote) {
        let mut state = self.state.lock();
        if state.is_closed {
            drop(state);
            // The mount ends: what it holds is freed.
            let until = Some(Instant::now() + LATER);
            let _ = self.lockd.unlock(remote, task.span, until);
            return;
        }
        // With the lock of the state: whoever unlocks next finds it in the table.
        if task.ticket.finish(Ok(())) {
            state.file(&task.node).table.set(task.owner, task.span, Some(kind));
            self.end_with(&mut state, task);
            drop(state);
            self.changed.notify_all();
        } else {
            drop(state);
            self.end_in_doubt(task);
        }
    }

    /// The server may have what the table has not.
    pub(super) fn end_in_doubt(self: &Arc<Self>, task: &Task) {
        {
            let mut state = self.state.lock();
            let of = state.files.get_mut(&task.node.number);
            if let Some(of) = of.and_then(|file| file.owners.get_mut(&task.owner)) {
                of.mends += 1;
            }
            self.end_with(&mut state, task);
        }
        self.call(task.followed_by(What::Mend));
    }

    fn run_unlock(self: &Arc<Self>, task: Task) {
        let is_known = {
            let state = self.state.lock();
            let file = state.files.get(&task.node.number);
            file.is_some_and(|file| {
                let is_busy = file.owners.get(&task.owner).is_some_and(|of| of.is_busy);
                is_busy || file.table.has(task.owner, task.span)
            })
        };
        if !is_known {
            task.ticket.finish(Ok(()));
            return;
        }
        let Some(remote) = self.begin(&task) else { return self.park_busy(task) };
        let (outcome, is_done) = match self.lockd.unlock(&remote, task.span, None) {
            Ok(NlmStat::DeniedGracePeriod)
            | Err(Unanswered::NotSent(_) | Unanswered::InDoubt(ClientError::Closed)) => {
                if !self.has_no_patience(&task) {
                    self.end(&task);
                    return self.park_for_later(task);
                }
                (Err(Errno::EIO), false)
            }
            // What the server does not know it does not hold.
            Ok(_) | Err(Unanswered::NotServed) => (Ok(()), true),
            Err(Unanswered::InDoubt(error)) => (Err(Errno::from(&error)), false),
        };
        {
            let mut state = self.state.lock();
            if let Some(file) = state.files.get_mut(&task.node.number) {
                file.table.set(task.owner, task.span, None);
            }
            if is_done {
                self.end_with(&mut state, &task);
            }
        }
        if is_done {
            self.changed.notify_all();
        } else {
            self.end_in_doubt(&task);
        }
        task.ticket.finish(outcome);
    }

    /// Brings the server back to what the table says: an owner that has a lock keeps it throughout.
    fn run_mend(self: &Arc<Self>, task: Task) {
        let Some(remote) = self.begin(&task) else {
            // An owner that is not known any more has nothing at the server: all have ended.
            if self.has(&task.node, task.owner) {
                self.park_busy(task);
            }
            return;
        };
        let parts = {
            let state = self.state.lock();
            let file = state.files.get(&task.node.number);
            file.map(|file| file.table.parts(task.owner, task.span)).unwrap_or_default()
        };
        for (span, kind) in parts {
            let done = match kind {
                Some(kind) => self.lockd.lock(&remote, span, kind, false),
                None => self.lockd.unlock(&remote, span, None),
            };
            match (done, kind) {
                (
                    Ok(NlmStat::DeniedGracePeriod)
                    | Err(Unanswered::NotSent(_) | Unanswered::InDoubt(_)),
                    _,
                ) => {
                    self.end(&task);
                    return self.park_for_later(task);
                }
                (Ok(NlmStat::Granted), _) | (_, None) => {}
                (_, Some(kind)) => self.lose(&task, &[Held { owner: task.owner, span, kind }]),
            }
        }
        let mut state = self.state.lock();
        let of = state.files.get_mut(&task.node.number);
        if let Some(of) = of.and_then(|file| file.owners.get_mut(&task.owner)) {
            of.mends = of.mends.saturating_sub(1);
        }
        self.end_with(&mut state, &task);
        drop(state);
        self.changed.notify_all();
    }
}

/// Has tasks that wait for owners of this mount ask again, in their order, and as many as can have their locks beside
/// each other.
fn wake(state: &mut State, number: u64) {
    let now = Instant::now();
    let mut woken: Vec<(Owner, Span, Kind)> = Vec::new();
    let State { files, parked, .. } = state;
    let table = files.get(&number).map(|file| &file.table);
    for parked in parked.iter_mut().filter(|parked| parked.is_local) {
        let task = &parked.task;
        let What::Lock { kind, .. } = task.what else { continue };
        if task.node.number != number || !task.ticket.is_open() {
            continue;
        }
        let is_held =
            table.is_some_and(|table| table.conflict(task.owner, task.span, kind).is_some());
        let is_claimed = woken.iter().any(|(owner, span, other)| {
            let is_strong = *other == Kind::Write || kind == Kind::Write;
            *owner != task.owner && is_strong && span.meets(task.span)
        });
        if !is_held && !is_claimed {
            woken.push((task.owner, task.span, kind));
            parked.due = now;
        }
    }
}
