//! The queue of each owner of a file: what is asked for it is done in order, one thing at a time. So an unlock that had to
//! be sent again frees nothing that was locked after it.
//!
//! A request for a lock that cannot be had now leaves its place, since another thread of the program may free what it
//! waits for. An unlock keeps its place until the server has answered it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::table::{Kind, Owner, Span};
use super::task::{Task, Ticket, What};
use super::{Doubt, Later, LockedFile, Locks, OwnerOfFile, Parked, State};
use crate::errors::Errno;
use crate::node::Node;

/// When the server is told what the table says, after a call that may be executed late.
pub(super) const AFTERMATH: Duration = Duration::from_secs(3);

/// What becomes of a task that has not done what it was to do.
pub(super) enum Again {
    /// It goes to the end of its owner's queue after this pause.
    Parked { task: Task, pause: Duration, is_local: bool },
    /// It stays the first one, and goes on after this pause.
    Stalled { task: Task, pause: Duration },
}

/// How a task's turn has ended.
#[derive(Default)]
pub(super) struct End {
    pub(super) again: Option<Again>,
    /// Where the server may differ from the table, and when it is told.
    pub(super) doubt: Option<(Span, Duration)>,
}

impl End {
    pub(super) fn again(again: Again) -> Self {
        Self { again: Some(again), doubt: None }
    }

    /// Something is in doubt if this is so.
    pub(super) fn with_doubt_if(self, is_so: bool, span: Span) -> Self {
        if is_so { Self { doubt: Some((span, AFTERMATH)), ..self } } else { self }
    }
}

impl Locks {
    /// Puts a task into its owner's queue.
    pub(super) fn enqueue(self: &Arc<Self>, state: &mut State, task: Task) {
        let (number, owner) = task.key();
        if matches!(task.what, What::Unlock { .. }) && state.owner((number, owner)).is_none() {
            task.ticket.finish(Ok(()));
            return;
        }
        let fresh = state.number();
        let file = state.file(&task.node);
        let of = file.owners.entry(owner).or_insert_with(|| OwnerOfFile::new(&task, fresh));
        of.queue.push_back(task);
        self.dispatch(state, (number, owner));
    }

    /// Has the next thing done for an owner, or forgets it.
    pub(super) fn dispatch(self: &Arc<Self>, state: &mut State, key: (u64, Owner)) {
        let (number, owner) = key;
        let Some(file) = state.files.get_mut(&number) else { return };
        let Some(of) = file.owners.get_mut(&owner) else { return };
        if of.is_busy {
            return;
        }
        if let Some(task) = of.next(&file.node, owner) {
            of.is_busy = true;
            let this = Arc::clone(self);
            self.calls.run(0, move || this.run(task));
            return;
        }
        if of.is_idle()
            && file.table.of(owner).next().is_none()
            && let Some(of) = file.owners.remove(&owner)
            && let Some(place) = of.place
        {
            self.lockd.ledger.lock().clear(place);
        }
        if file.owners.is_empty() {
            state.files.remove(&number);
        }
    }

    /// A task's turn has ended.
    pub(super) fn end(self: &Arc<Self>, key: (u64, Owner), end: End) {
        self.end_in(&mut self.state.lock(), key, end);
        self.changed.notify_all();
    }

    pub(super) fn end_in(self: &Arc<Self>, state: &mut State, key: (u64, Owner), end: End) {
        let now = Instant::now();
        let Some(of) = state.owner(key) else {
            // The mount has ended.
            if let Some(Again::Parked { task, .. } | Again::Stalled { task, .. }) = end.again {
                task.ticket.finish(Err(Errno::EIO));
            }
            return;
        };
        of.is_busy = false;
        let mut looks = Vec::new();
        if let Some((span, after)) = end.doubt {
            looks.push(of.doubt(span, now, now + after));
        }
        let mut parked = None;
        match end.again {
            Some(Again::Parked { task, pause, is_local }) => {
                parked = Some(Parked { due: now + pause, what: Later::Lock { is_local, task } });
            }
            Some(Again::Stalled { task, pause }) => {
                of.queue.push_front(task);
                of.stalled = Some(now + pause);
                looks.push(now + pause);
            }
            None => {}
        }
        looks.extend(of.reclaim.map(|reclaim| reclaim.due).filter(|due| *due > now));
        state.parked.extend(parked);
        let looks = looks.into_iter().filter(|due| *due > now);
        state.parked.extend(looks.map(|due| Parked { due, what: Later::Look(key.0, key.1) }));
        wake(state, key.0);
        self.dispatch(state, key);
    }

    /// What was parked goes on.
    pub(super) fn go_on(self: &Arc<Self>, state: &mut State, later: Later) {
        match later {
            Later::Lock { task, .. } => self.enqueue(state, task),
            Later::Look(number, owner) => self.dispatch(state, (number, owner)),
        }
    }
}

impl OwnerOfFile {
    fn new(task: &Task, number: u32) -> Self {
        let remote =
            super::Remote { identity: task.identity.clone(), handle: task.node.handle(), number };
        Self {
            remote,
            place: None,
            pid: 0,
            files: Vec::new(),
            queue: std::collections::VecDeque::new(),
            is_busy: false,
            stalled: None,
            doubt: None,
            reclaim: None,
            is_remade: false,
        }
    }

    /// Nothing is to be done for it.
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.doubt.is_none() && self.reclaim.is_none()
    }

    /// What is done next, if it is time.
    fn next(&mut self, node: &Arc<Node>, owner: Owner) -> Option<Task> {
        let now = Instant::now();
        let of_mount = |span, what| Task {
            node: Arc::clone(node),
            owner,
            span,
            what,
            identity: self.remote.identity.clone(),
            file: 0,
            ticket: Ticket::of_nobody(),
            pause: Duration::ZERO,
        };
        if self.reclaim.is_some_and(|reclaim| reclaim.due <= now) {
            return Some(of_mount(Span::ALL, What::Reclaim));
        }
        if let Some(doubt) = self.doubt.filter(|doubt| doubt.due <= now) {
            let task = of_mount(doubt.span, What::Mend { since: doubt.since });
            self.doubt = None;
            return Some(task);
        }
        if self.stalled.is_some_and(|until| until > now) {
            return None;
        }
        self.stalled = None;
        self.queue.pop_front()
    }

    /// Adds to what is in doubt; when the server is told.
    fn doubt(&mut self, span: Span, since: Instant, due: Instant) -> Instant {
        let new = Doubt { span, since, due };
        let doubt = self.doubt.map_or(new, |old| Doubt {
            span: old.span.hull(span),
            since: old.since.min(since),
            due: old.due.max(due),
        });
        self.doubt = Some(doubt);
        doubt.due
    }

    /// What was in doubt still is, since it began.
    pub(super) fn keep_doubt(&mut self, since: Instant) {
        if let Some(doubt) = &mut self.doubt {
            doubt.since = doubt.since.min(since);
        }
    }
}

impl State {
    /// The connection was made again so often: what was locked before is unsure.
    pub(super) fn note_generation(&mut self, generation: u64) {
        if generation <= self.generation {
            return;
        }
        self.generation = generation;
        self.is_unjudged = true;
        for LockedFile { table, unsure, .. } in self.files.values_mut() {
            unsure.clone_from(table);
        }
    }
}

/// Has requests that wait for owners of this mount ask again, in their order, and as many as can have their locks beside
/// each other.
fn wake(state: &mut State, number: u64) {
    let now = Instant::now();
    let mut woken: Vec<(Owner, Span, Kind)> = Vec::new();
    let State { files, parked, .. } = state;
    let table = files.get(&number).map(|file| &file.table);
    let waiting = parked.iter_mut().filter_map(|Parked { due, what }| match what {
        Later::Lock { is_local: true, task } if task.node.number == number => Some((due, &*task)),
        _ => None,
    });
    let mut waiting: Vec<_> = waiting.filter(|(_, task)| task.ticket.is_open()).collect();
    waiting.sort_by_key(|(_, task)| task.ticket.since);
    for (due, task) in waiting {
        let What::Lock { kind, .. } = task.what else { continue };
        let is_held =
            table.is_some_and(|table| table.conflict(task.owner, task.span, kind).is_some());
        let is_claimed = woken.iter().any(|(owner, span, other)| {
            let is_strong = *other == Kind::Write || kind == Kind::Write;
            *owner != task.owner && is_strong && span.meets(task.span)
        });
        if !is_held && !is_claimed {
            woken.push((task.owner, task.span, kind));
            *due = now;
        }
    }
}
