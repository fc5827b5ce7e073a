//! The locks of one file, and who waits for one.
//!
//! Who asks for a lock until it gets it stands in order: nobody who came later gets what conflicts.
//! Otherwise readers that follow each other would keep a writer out for ever. A place in the order
//! lasts for a lease at most, so that a wait for each other in a ring comes to an end; and for 40 s
//! without another request, since nobody says that it has given up.
//!
//! A client of NFSv4.1 can be told when what it waits for is free, so that it asks again at once.
//!
//! A host that speaks NLM is different: it need not ask again, since it is granted what became free
//! for it. It waits until it cancels; after a lease it keeps nobody else out any more.

mod hosts;
mod local;

pub use hosts::GrantAnswer;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::client::lock_owner::LockOwner;
use crate::ids::OpenNumber;
use crate::image::Event;
use crate::ranges::{LockKind, Range, Ranges, Span};
use crate::{Client, FileKey};

/// How long a range that became free is kept for its first waiter, in ms.
const KEPT_MS: u64 = 2_000;
/// Who waits and has not asked for so long has given up, in ms. Linux asks each 30 s at least.
const PATIENCE_MS: u64 = 40_000;
/// Waiters that are remembered, of one file and of one client. Others are denied like those who do
/// not wait.
const WAITERS_MAX: usize = 64;
const WAITS_A_CLIENT_MAX: u32 = 64;
/// Clients with expired leases that one judgement names: the caller expires them and asks again.
const EXPIRED_MAX: usize = 64;

/// What somebody is told once a lock that he waits for is free.
#[derive(Clone, Copy)]
pub(crate) enum Tells<'a> {
    /// That he may ask again; by this handle.
    Free(&'a Arc<[u8]>),
    /// That he has it, since he speaks NLM; with this note.
    Granted(&'a Arc<[u8]>),
}

/// A lock that somebody asks for.
#[derive(Clone, Copy)]
pub(crate) struct Asking<'a> {
    pub(crate) owner: &'a LockOwner,
    /// The open by which it is asked for.
    pub(crate) open: OpenNumber,
    pub(crate) span: Span,
    pub(crate) kind: LockKind,
    pub(crate) is_waited_for: bool,
    /// What is told to who waits, if anything is.
    pub(crate) tells: Option<Tells<'a>>,
    /// Ranges that the client may still make.
    pub(crate) room: usize,
    pub(crate) time: Time,
}

impl Asking<'_> {
    fn note(&self) -> Option<Arc<[u8]>> {
        match self.tells? {
            Tells::Granted(note) => Some(Arc::clone(note)),
            Tells::Free(_) => None,
        }
    }

    fn handle(&self) -> Option<Arc<[u8]>> {
        match self.tells? {
            Tells::Free(handle) => Some(Arc::clone(handle)),
            Tells::Granted(_) => None,
        }
    }
}

/// A waiter of NFSv4.1 that may ask again.
#[derive(Debug)]
pub(crate) struct Freed {
    pub(crate) owner: LockOwner,
    pub(crate) handle: Arc<[u8]>,
}

/// What time it is, and how expired leases are told.
#[derive(Clone, Copy)]
pub(crate) struct Time {
    pub(crate) now_ms: u64,
    pub(crate) lease_ms: u64,
}

impl Time {
    fn has_lease(self, client: &Client) -> bool {
        client.silent_ms(self.now_ms) <= self.lease_ms
    }
}

/// Why a lock cannot be had.
#[derive(Debug)]
pub(crate) enum Refused {
    /// A client with a good lease has this lock, or waits for it.
    Living(Range<LockOwner>),
    /// All that conflict are clients with expired leases, these or these among others; and one
    /// lock of theirs.
    Expired(Vec<Arc<Client>>, Range<LockOwner>),
    /// The client has too many ranges.
    NoRoom,
}

/// Who asked for a lock in vain, and asks again.
#[derive(Debug)]
struct Waiter {
    owner: LockOwner,
    open: OpenNumber,
    span: Span,
    kind: LockKind,
    /// When it asked first.
    since_ms: u64,
    /// When it asked last.
    asked_ms: u64,
    /// Until then a local process keeps it from the lock.
    held_back_until_ms: u64,
    /// From when on nothing keeps it from the lock.
    free_since_ms: Option<u64>,
    /// Of [`Tells::Granted`]: whoever has one is granted the lock.
    note: Option<Arc<[u8]>>,
    /// Of [`Tells::Free`].
    handle: Option<Arc<[u8]>>,
}

impl Waiter {
    fn new(asking: &Asking<'_>) -> Option<Self> {
        let waits = &asking.owner.client.waits;
        if waits.fetch_add(1, Ordering::Relaxed) >= WAITS_A_CLIENT_MAX {
            waits.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self {
            owner: asking.owner.clone(),
            open: asking.open,
            span: asking.span,
            kind: asking.kind,
            since_ms: asking.time.now_ms,
            asked_ms: asking.time.now_ms,
            held_back_until_ms: 0,
            free_since_ms: None,
            note: asking.note(),
            handle: asking.handle(),
        })
    }

    fn is_of(&self, asking: &Asking<'_>) -> bool {
        self.kind == asking.kind && self.span == asking.span && self.owner == *asking.owner
    }

    /// Whether an owner that has got a lock of this kind has what this waits for. What lies beside
    /// it, another thread of the process may still wait for.
    fn is_settled_by(&self, owner: &LockOwner, span: Span, kind: LockKind) -> bool {
        self.owner == *owner && span.contains(self.span) && self.kind <= kind
    }

    /// Whether its lock and another's cannot be had at the same time.
    fn conflicts(&self, owner: &LockOwner, span: Span, kind: LockKind) -> bool {
        self.kind.conflicts(kind) && self.span.overlaps(span) && self.owner != *owner
    }

    /// Whether it comes first, if its lock and another's cannot be had at the same time.
    fn keeps_out(&self, owner: &LockOwner, span: Span, kind: LockKind, time: Time) -> bool {
        self.conflicts(owner, span, kind) && !self.is_old(time)
    }

    /// Whether it has waited for longer than a lease.
    fn is_old(&self, time: Time) -> bool {
        time.now_ms.saturating_sub(self.since_ms) > time.lease_ms
    }

    fn range(&self) -> Range<&LockOwner> {
        Range { owner: &self.owner, span: self.span, kind: self.kind }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.owner.client.waits.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The locks of one file.
#[derive(Debug)]
pub(crate) struct FileLocks {
    file: FileKey,
    ranges: Ranges<LockOwner, OpenNumber>,
    /// In the order in which they came.
    waiters: Vec<Waiter>,
    /// What hosts were granted and have not acknowledged yet.
    unanswered: Vec<hosts::Unanswered>,
    /// What hosts were granted and nobody has told them yet.
    granted: Vec<hosts::Grant>,
    /// From the first to the last byte of what was locked or freed since that was asked.
    changed: Option<Span>,
    /// Who may ask again, and nobody has told them yet.
    freed: Vec<Freed>,
}

impl FileLocks {
    pub(crate) fn new(file: FileKey) -> Self {
        Self {
            file,
            ranges: Ranges::default(),
            waiters: Vec::new(),
            unanswered: Vec::new(),
            granted: Vec::new(),
            changed: None,
            freed: Vec::new(),
        }
    }

    /// Gives an owner a range, and notes that.
    fn set(&mut self, owner: &LockOwner, span: Span, kind: LockKind, open: OpenNumber) {
        let LockOwner { client, name } = owner;
        client.journal.note(&Event::Range { client: client.id(), open, owner: name, span, kind });
        self.ranges.set(owner, span, kind, open);
        self.note_change(span);
    }

    /// An owner was granted a lock, if it is one of a host.
    fn count_grant(&self, owner: &LockOwner) {
        if let Some(host) = owner.client.host() {
            host.grants(&owner.name, &self.file).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes a range from an owner, and notes that.
    fn clear(&mut self, owner: &LockOwner, span: Span) {
        let (LockOwner { client, name }, file) = (owner, self.file);
        client.journal.note(&Event::RangeGone { client: client.id(), owner: name, file, span });
        self.ranges.clear(owner, span);
        self.note_change(span);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.waiters.is_empty()
    }

    /// Judges a lock and takes it; by how many ranges the client has more.
    pub(crate) fn lock(&mut self, asking: &Asking<'_>) -> Result<isize, Refused> {
        let &Asking { owner, span, kind, open, .. } = asking;
        self.refresh(asking.time);
        if let Err(refused) = self.judge(asking) {
            // Who can expire those in the way need not wait.
            if asking.is_waited_for && matches!(refused, Refused::Living(_)) {
                self.remember(asking);
            }
            return Err(refused);
        }
        let growth = self.ranges.growth_of_set(owner, span, kind, open);
        if growth > 0 && growth.unsigned_abs() > asking.room {
            return Err(Refused::NoRoom);
        }
        self.set(owner, span, kind, open);
        self.count_grant(owner);
        self.waiters.retain(|waiter| !waiter.is_settled_by(owner, span, kind));
        self.unanswered.retain(|grant| !grant.is_within(owner, span));
        self.freed.retain(|freed| freed.owner != *owner);
        // A write lock may have become a read lock.
        self.refresh(asking.time);
        Ok(growth)
    }

    /// What an owner has of a range, and by which opens.
    pub(crate) fn within(
        &self,
        owner: &LockOwner,
        span: Span,
    ) -> Vec<(Span, LockKind, OpenNumber)> {
        self.ranges.within(owner, span)
    }

    /// Gives an owner of a range what it had before it locked all of it, where it has not unlocked since then. A
    /// write lock that has become a read lock is one again, unless others read there now. By how many ranges the
    /// client has more.
    pub(crate) fn take_back(
        &mut self,
        owner: &LockOwner,
        span: Span,
        before: &[(Span, LockKind, OpenNumber)],
        time: Time,
    ) -> isize {
        let mut growth = 0;
        for (now, kind, _) in self.ranges.within(owner, span) {
            growth += self.ranges.growth_of_clear(owner, now);
            self.clear(owner, now);
            for (had, had_kind, open) in before {
                let Some(kept) = now.clipped(*had) else { continue };
                let is_free = self.ranges.conflicts(owner, kept, *had_kind).next().is_none();
                let kind = if is_free { *had_kind } else { kind.min(*had_kind) };
                growth += self.ranges.growth_of_set(owner, kept, kind, *open);
                self.set(owner, kept, kind, *open);
            }
        }
        self.refresh(time);
        growth
    }

    /// Takes out who may ask again since this was asked last.
    pub(crate) fn take_freed(&mut self) -> Vec<Freed> {
        std::mem::take(&mut self.freed)
    }

    /// Gives an owner a range that nobody contests.
    pub(crate) fn restore(
        &mut self,
        owner: &LockOwner,
        span: Span,
        kind: LockKind,
        open: OpenNumber,
    ) {
        self.ranges.set(owner, span, kind, open);
        self.note_change(span);
    }

    /// Has `look` see the ranges of a client: owner, bytes, kind, and the open by which they were
    /// locked.
    pub(crate) fn of_client(
        &self,
        client: &Arc<Client>,
        mut look: impl FnMut(&[u8], Span, LockKind, OpenNumber),
    ) {
        let is_its = |owner: &&LockOwner| Arc::ptr_eq(&owner.client, client);
        for owner in self.ranges.owners_from(&LockOwner::first(client)).take_while(is_its) {
            for (span, kind, open) in self.ranges.of_owner(owner) {
                look(&owner.name, span, kind, open);
            }
        }
    }

    /// What of a living client keeps an owner from a range; without regard to who waits.
    pub(crate) fn test<'a>(
        &'a self,
        owner: &'a LockOwner,
        span: Span,
        kind: LockKind,
        time: Time,
    ) -> Option<Range<&'a LockOwner>> {
        let mut conflicts = self.ranges.conflicts(owner, span, kind);
        let own = owner.client.id();
        conflicts.find(move |range| {
            let client = &range.owner.client;
            client.id() == own || time.has_lease(client)
        })
    }

    /// Gives up what an owner has of a range, and what it waits for within; by how many ranges the
    /// client has more. `None` if these are more than `room`.
    pub(crate) fn unlock(
        &mut self,
        owner: &LockOwner,
        span: Span,
        room: usize,
        time: Time,
    ) -> Option<isize> {
        let growth = self.ranges.growth_of_clear(owner, span);
        if growth > 0 && growth.unsigned_abs() > room {
            return None;
        }
        self.clear(owner, span);
        self.waiters.retain(|waiter| !waiter.is_settled_by(owner, span, LockKind::Write));
        self.unanswered.retain(|grant| !grant.is_within(owner, span));
        self.refresh(time);
        Some(growth)
    }

    /// An open is no more, which is noted, by which these owners had locks; how many ranges they were.
    pub(crate) fn end_open(&mut self, open: OpenNumber, owners: &[LockOwner], time: Time) -> usize {
        let ended = owners.iter().map(|owner| self.ranges.clear_tag(owner, open)).sum();
        self.note_change_anywhere(ended);
        self.waiters.retain(|waiter| waiter.open != open);
        self.refresh(time);
        ended
    }

    /// An owner waits for nothing here any more.
    pub(crate) fn end_waits(&mut self, client: &Client, name: &[u8], time: Time) {
        let is_its = |owner: &LockOwner| owner.client.id() == client.id() && *owner.name == *name;
        self.waiters.retain(|waiter| !is_its(&waiter.owner));
        self.freed.retain(|freed| !is_its(&freed.owner));
        self.refresh(time);
    }

    /// Whether an owner has a range that was locked by this open.
    pub(crate) fn has(&self, owner: &LockOwner, open: OpenNumber) -> bool {
        self.ranges.has_tag(owner, open)
    }

    /// All that is held, by owner.
    pub(crate) fn held(&self) -> impl Iterator<Item = Range<&LockOwner>> {
        self.ranges.iter()
    }

    /// All that is waited for, in order.
    pub(crate) fn waited_for(&self) -> impl Iterator<Item = Range<&LockOwner>> {
        self.waiters.iter().map(Waiter::range)
    }

    fn judge(&self, asking: &Asking<'_>) -> Result<(), Refused> {
        let &Asking { owner, span, kind, time, .. } = asking;
        if let Some(living) = self.test(owner, span, kind, time) {
            return Err(Refused::Living(living.cloned()));
        }
        if let Some(waiter) = self.first_waiter(asking) {
            return Err(Refused::Living(waiter.range().cloned()));
        }
        let mut conflicts = self.ranges.conflicts(owner, span, kind);
        let Some(first) = conflicts.next() else { return Ok(()) };
        let mut expired = vec![Arc::clone(&first.owner.client)];
        for range in conflicts {
            let client = &range.owner.client;
            if !expired.iter().any(|known| Arc::ptr_eq(known, client)) {
                expired.push(Arc::clone(client));
            }
            if expired.len() >= EXPIRED_MAX {
                break;
            }
        }
        Err(Refused::Expired(expired, first.cloned()))
    }

    /// Who came before, and would lose by it if the lock were granted.
    fn first_waiter(&self, asking: &Asking<'_>) -> Option<&Waiter> {
        let &Asking { owner, span, kind, time, .. } = asking;
        let mut before = self.waiters.iter().take_while(|waiter| !waiter.is_of(asking));
        before.find(|waiter| self.comes_first(waiter, owner, span, kind, time))
    }

    /// Whether a waiter that came before keeps an owner out. Who waits for the owner itself does not:
    /// neither would go on.
    fn comes_first(
        &self,
        before: &Waiter,
        owner: &LockOwner,
        span: Span,
        kind: LockKind,
        time: Time,
    ) -> bool {
        before.keeps_out(owner, span, kind, time)
            && !self.ranges.keeps(owner, before.span, before.kind)
    }

    /// Takes up who asks among those who wait, if there is room.
    pub(crate) fn remember(&mut self, asking: &Asking<'_>) {
        // Whose place has ended gets another one.
        let is_over = |waiter: &Waiter| waiter.note.is_none() && waiter.is_old(asking.time);
        self.waiters.retain(|waiter| !waiter.is_of(asking) || !is_over(waiter));
        let known = self.waiters.iter_mut().find(|waiter| waiter.is_of(asking));
        if let Some(waiter) = known {
            waiter.asked_ms = asking.time.now_ms;
            waiter.note = asking.note();
            waiter.handle = asking.handle();
        } else if self.waiters.len() < WAITERS_MAX {
            self.waiters.extend(Waiter::new(asking));
        }
    }

    /// Forgets who waits no more, notes what became free for whom, and grants it to hosts.
    fn refresh(&mut self, time: Time) {
        // What a host is granted may replace a write lock of its own, and free others.
        while !self.waiters.is_empty() && self.has_granted(time) {}
    }

    fn has_granted(&mut self, time: Time) -> bool {
        let mut has_granted = false;
        let mut waiters: Vec<Waiter> = Vec::with_capacity(self.waiters.len());
        for mut waiter in std::mem::take(&mut self.waiters) {
            let Waiter { owner, span, kind, .. } = &waiter;
            let is_kept_out = self.ranges.conflicts(owner, *span, *kind).next().is_some()
                || waiters.iter().any(|before| self.comes_first(before, owner, *span, *kind, time));
            if waiter.note.is_some() {
                if is_kept_out || waiter.held_back_until_ms > time.now_ms {
                    waiters.push(waiter);
                } else {
                    has_granted = true;
                    self.grant(waiter);
                }
                continue;
            }
            let free_since_ms = waiter.free_since_ms.unwrap_or(time.now_ms);
            let is_late = !is_kept_out && time.now_ms.saturating_sub(free_since_ms) > KEPT_MS;
            // Who is told asks seldom: without a place it is told still.
            let is_old = (waiter.is_old(time) && waiter.handle.is_none())
                || time.now_ms.saturating_sub(waiter.asked_ms) > PATIENCE_MS;
            if !is_late && !is_old && time.has_lease(&waiter.owner.client) {
                if let (false, None, Some(handle)) =
                    (is_kept_out, waiter.free_since_ms, &waiter.handle)
                {
                    let (owner, handle) = (waiter.owner.clone(), Arc::clone(handle));
                    self.freed.push(Freed { owner, handle });
                }
                waiter.free_since_ms = (!is_kept_out).then_some(free_since_ms);
                waiters.push(waiter);
            }
        }
        self.waiters = waiters;
        has_granted
    }
}
