//! What is different about hosts that speak NLM: they are granted what they wait for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Asking, FileLocks, Time, Waiter};
use crate::Client;
use crate::client::lock_owner::LockOwner;
use crate::ids::OpenNumber;
use crate::ranges::{LockKind, Span};

/// A lock that a host was granted after it had waited.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) owner: LockOwner,
    pub(crate) span: Span,
    pub(crate) kind: LockKind,
    pub(crate) note: Arc<[u8]>,
    /// By how many ranges the host has more.
    pub(crate) growth: isize,
}

/// A grant that the host has not acknowledged. If it does not want it any more, all is as it was.
#[derive(Debug)]
pub(super) struct Unanswered {
    owner: LockOwner,
    open: OpenNumber,
    span: Span,
    kind: LockKind,
    /// What the owner had of the range.
    before: Vec<(Span, LockKind)>,
    /// How often its host was called since.
    calls: u32,
    /// Whether the host has refused it when it may have taken it already: it is not called any more, and may cancel.
    is_settled: bool,
}

/// What becomes of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantAnswer {
    /// The host has taken it.
    Wanted,
    /// The host says that it does not wait for it.
    Refused,
    /// The server takes it back, before the host is told.
    TakenBack,
}

impl Unanswered {
    pub(super) fn is_within(&self, owner: &LockOwner, span: Span) -> bool {
        self.owner == *owner && span.overlaps(self.span)
    }

    fn is(&self, owner: &LockOwner, span: Span, kind: LockKind) -> bool {
        self.kind == kind && self.span == span && self.owner == *owner
    }
}

impl FileLocks {
    /// Gives a waiter its lock.
    pub(super) fn grant(&mut self, mut waiter: Waiter) {
        let Some(note) = waiter.note.take() else { return };
        let (owner, span, kind, open) = (&waiter.owner, waiter.span, waiter.kind, waiter.open);
        let before = self.ranges.held_by(owner, span);
        let growth = self.ranges.growth_of_set(owner, span, kind, open);
        self.set(owner, span, kind, open);
        self.count_grant(owner);
        if let Some(host) = owner.client.host() {
            host.add_ranges(growth);
        }
        self.unanswered.retain(|grant| !grant.is_within(owner, span));
        self.unanswered.push(Unanswered {
            owner: owner.clone(),
            open,
            span,
            kind,
            before,
            calls: 0,
            is_settled: false,
        });
        self.granted.push(Grant { owner: owner.clone(), span, kind, note, growth });
    }

    /// Takes out what was granted since this was asked last.
    pub(crate) fn take_granted(&mut self) -> Vec<Grant> {
        std::mem::take(&mut self.granted)
    }

    /// Whether somebody stands in order for this lock.
    pub(crate) fn is_waited_for_by(&self, asking: &Asking<'_>) -> bool {
        self.waiters.iter().any(|waiter| waiter.is_of(asking))
    }

    /// Whether a host still has something here, or waits for something.
    pub(crate) fn is_used_by(&self, host: &Arc<Client>) -> bool {
        let is_its = |owner: &LockOwner| Arc::ptr_eq(&owner.client, host);
        self.ranges.owners_from(&LockOwner::first(host)).next().is_some_and(is_its)
            || self.waiters.iter().any(|waiter| is_its(&waiter.owner))
    }

    /// Whether a grant was not acknowledged, and is still in effect.
    pub(crate) fn is_unanswered(&self, owner: &LockOwner, span: Span, kind: LockKind) -> bool {
        self.unanswered.iter().any(|grant| grant.is(owner, span, kind) && !grant.is_settled)
    }

    /// Notes that a call about a grant is about to be sent, if it has to be; whether it has.
    pub(crate) fn begin_call(&mut self, owner: &LockOwner, span: Span, kind: LockKind) -> bool {
        let grant = self.unanswered.iter_mut().find(|grant| grant.is(owner, span, kind));
        let Some(grant) = grant.filter(|grant| !grant.is_settled) else { return false };
        grant.calls += 1;
        true
    }

    /// What becomes of a grant; by how many ranges the host has more, if that has changed.
    ///
    /// A host refuses what it does not wait for, and so also what it has taken already, if its first answer was lost (Linux
    /// does). So who was called more than once keeps the lock: who does not want it any more has cancelled it, or unlocks it.
    pub(crate) fn answer(
        &mut self,
        (owner, span, kind): (&LockOwner, Span, LockKind),
        answer: GrantAnswer,
        time: Time,
    ) -> Option<isize> {
        let place = self.unanswered.iter().position(|grant| grant.is(owner, span, kind))?;
        let calls = self.unanswered.get(place).map_or(0, |grant| grant.calls);
        match (answer, calls) {
            (GrantAnswer::TakenBack, _) | (GrantAnswer::Refused, 1) => {
                return self.refuse(owner, span, kind, time);
            }
            // It is about an earlier grant of the same lock.
            (GrantAnswer::Refused, 0) => {}
            (GrantAnswer::Refused, _) => {
                if let Some(grant) = self.unanswered.get_mut(place) {
                    grant.is_settled = true;
                }
            }
            (GrantAnswer::Wanted, _) => {
                self.unanswered.swap_remove(place);
            }
        }
        None
    }

    /// The host does not want a lock that it was granted: it has what it had before. By how many
    /// ranges it has more; `None` if there is no such grant.
    pub(crate) fn refuse(
        &mut self,
        owner: &LockOwner,
        span: Span,
        kind: LockKind,
        time: Time,
    ) -> Option<isize> {
        let place = self.unanswered.iter().position(|grant| grant.is(owner, span, kind))?;
        let Unanswered { open, before, .. } = self.unanswered.swap_remove(place);
        let mut growth = self.ranges.growth_of_clear(owner, span);
        self.clear(owner, span);
        for (part, kind_before) in before {
            let start = part.start.max(span.start);
            let part = Span { start, end: part.end.min(span.end) };
            // Who had a write lock and was granted a read lock has let others read meanwhile.
            let kind = kind_before.min(kind);
            growth += self.ranges.growth_of_set(owner, part, kind, open);
            self.set(owner, part, kind, open);
        }
        self.refresh(time);
        Some(growth)
    }

    /// The host does not wait any more, or not for what it was granted meanwhile. By how many ranges it
    /// has more; `None` if it neither waited nor was granted anything.
    pub(crate) fn cancel(
        &mut self,
        owner: &LockOwner,
        span: Span,
        kind: LockKind,
        time: Time,
    ) -> Option<isize> {
        let is_it =
            |waiter: &Waiter| waiter.kind == kind && waiter.span == span && waiter.owner == *owner;
        if let Some(place) = self.waiters.iter().position(is_it) {
            self.waiters.remove(place);
            self.refresh(time);
            return Some(0);
        }
        self.refuse(owner, span, kind, time)
    }

    /// A host has nothing here any more, which is noted; how many ranges it had.
    pub(crate) fn end_host(&mut self, host: &Arc<Client>, time: Time) -> usize {
        let is_its = |owner: &&LockOwner| Arc::ptr_eq(&owner.client, host);
        let first = LockOwner::first(host);
        let owners: Vec<LockOwner> =
            self.ranges.owners_from(&first).take_while(is_its).cloned().collect();
        let whole = Span { start: 0, end: u64::MAX };
        self.unanswered.retain(|grant| !Arc::ptr_eq(&grant.owner.client, host));
        if host.waits.load(Ordering::Relaxed) > 0 {
            self.waiters.retain(|waiter| !Arc::ptr_eq(&waiter.owner.client, host));
        }
        let ended: usize = owners.iter().map(|owner| self.ranges.of_owner(owner).count()).sum();
        for owner in &owners {
            self.ranges.clear(owner, whole);
        }
        self.note_change_anywhere(ended);
        self.refresh(time);
        ended
    }

    /// Whether somebody waits here who is told; and the clients with expired leases that alone keep
    /// one waiting.
    pub(crate) fn judge_waiting(&mut self, time: Time) -> (bool, Vec<Arc<Client>>) {
        self.refresh(time);
        let mut has_waiting = false;
        let mut expired: Vec<Arc<Client>> = Vec::new();
        let is_told = |waiter: &&Waiter| waiter.note.is_some() || waiter.handle.is_some();
        for waiter in self.waiters.iter().filter(is_told) {
            has_waiting = true;
            let mut clients = Vec::new();
            for range in self.ranges.conflicts(&waiter.owner, waiter.span, waiter.kind) {
                if time.has_lease(&range.owner.client) {
                    clients.clear();
                    break;
                }
                clients.push(Arc::clone(&range.owner.client));
            }
            expired.extend(clients);
        }
        (has_waiting, expired)
    }
}
