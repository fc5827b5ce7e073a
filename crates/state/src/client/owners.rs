//! The owners of one client of minor version 0. An open-owner is known from its first OPEN until it
//! has had nothing open for a lease; a lock-owner while it has lock stateids.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::Client;
use crate::StateError;
use crate::ids::OpenNumber;
use crate::image::Event;
use crate::owner_sequence::{Judged, OwnerImage, OwnerReply, OwnerRequest, Sequence};

/// Owners of a client that have failed to open anything, and of which the last reply is kept all the
/// same. Whoever has no right to any file could make any number of them.
const FAILED_MAX: usize = 64;

/// Which of a client's owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnerName {
    Open(Arc<[u8]>),
    Lock(Arc<[u8]>),
}

#[derive(Debug)]
pub(crate) struct OpenOwner {
    sequence: Sequence,
    is_confirmed: bool,
    /// What it has opened before it was confirmed.
    unconfirmed: Option<OpenNumber>,
    /// What it closed by its last request: CLOSE may come again.
    closed: Option<OpenNumber>,
    /// When it was heard last.
    used_ms: u64,
}

impl OpenOwner {
    /// Whether it is not confirmed, and has opened nothing that could be.
    fn has_nothing(&self) -> bool {
        !self.is_confirmed && self.unconfirmed.is_none()
    }
}

/// All owners of a client.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    open: HashMap<Arc<[u8]>, OpenOwner>,
    lock: HashMap<Arc<[u8]>, Sequence>,
    /// Opens whose owners are not confirmed.
    unconfirmed: HashMap<OpenNumber, Arc<[u8]>>,
    /// Opens whose CLOSE may come again.
    closed: HashMap<OpenNumber, Arc<[u8]>>,
    /// Open-owners that had nothing when their requests ended, in that order; [`FAILED_MAX`].
    failed: VecDeque<Arc<[u8]>>,
}

/// What a request of an owner is.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It is being executed from now on. What the owner had opened and not confirmed is to be closed.
    New(OwnerName, Option<OpenNumber>),
    Again(OwnerReply),
}

impl Owners {
    /// OPEN. Owners that may be forgotten make room for a new one.
    pub(crate) fn begin_open(
        &mut self,
        name: &[u8],
        request: &OwnerRequest,
        owners_max: usize,
        has_opens: impl Fn(&[u8]) -> bool,
    ) -> Result<Begun, StateError> {
        if let Some((known, owner)) = self.open.get_key_value(name) {
            let known = Arc::clone(known);
            match owner.sequence.judge(request) {
                Ok(Judged::Again(reply)) => return Ok(Begun::Again(reply)),
                Ok(Judged::Next) if owner.is_confirmed => {
                    self.begin(&OwnerName::Open(Arc::clone(&known)));
                    return Ok(Begun::New(OwnerName::Open(known), None));
                }
                // Who has not confirmed may begin anew, by any sequence id (RFC 7530 §16.18.5).
                Err(StateError::BadSequence) | Ok(Judged::Next) if !owner.is_confirmed => {}
                Err(error) => return Err(error),
                Ok(Judged::Next) => return Err(StateError::BadSequence),
            }
            let replaced = self.forget_open(&known).and_then(|owner| owner.unconfirmed);
            self.add_open(Arc::clone(&known), request);
            return Ok(Begun::New(OwnerName::Open(known), replaced));
        }
        if self.open.len() >= owners_max {
            self.forget_idle(u64::MAX, has_opens);
        }
        if self.open.len() >= owners_max {
            return Err(StateError::TryLater);
        }
        let name: Arc<[u8]> = name.into();
        self.add_open(Arc::clone(&name), request);
        Ok(Begun::New(OwnerName::Open(name), None))
    }

    fn add_open(&mut self, name: Arc<[u8]>, request: &OwnerRequest) {
        let owner = OpenOwner {
            sequence: Sequence::begun_by(request),
            is_confirmed: false,
            unconfirmed: None,
            closed: None,
            used_ms: 0,
        };
        self.open.insert(name, owner);
    }

    fn forget_open(&mut self, name: &[u8]) -> Option<OpenOwner> {
        let owner = self.open.remove(name)?;
        if let Some(number) = owner.unconfirmed {
            self.unconfirmed.remove(&number);
        }
        if let Some(number) = owner.closed {
            self.closed.remove(&number);
        }
        Some(owner)
    }

    /// A request by an open of this owner; `None` if nothing is open by that number.
    pub(crate) fn begin_by_open(
        &mut self,
        number: OpenNumber,
        owner: Option<&[u8]>,
        request: &OwnerRequest,
        confirms: bool,
    ) -> Result<Begun, StateError> {
        let is_open = owner.is_some();
        let name = owner.or_else(|| self.closed.get(&number).map(|name| &**name));
        // Nobody else's copy of the name is kept: by their copies others see that they need it.
        let known = name.and_then(|name| self.open.get_key_value(name));
        let (name, owner) = known.ok_or(StateError::BadStateId)?;
        let name = Arc::clone(name);
        match owner.sequence.judge(request) {
            Ok(Judged::Again(reply)) => Ok(Begun::Again(reply)),
            _ if !is_open || owner.is_confirmed == confirms => Err(StateError::BadStateId),
            Err(error) => Err(error),
            Ok(Judged::Next) => {
                let name = OwnerName::Open(name);
                self.begin(&name);
                Ok(Begun::New(name, None))
            }
        }
    }

    /// A request by a lock stateid of this owner.
    pub(crate) fn begin_by_lock(
        &mut self,
        name: &[u8],
        request: &OwnerRequest,
    ) -> Result<Begun, StateError> {
        let (name, sequence) = self.lock.get_key_value(name).ok_or(StateError::BadStateId)?;
        match sequence.judge(request)? {
            Judged::Again(reply) => Ok(Begun::Again(reply)),
            Judged::Next => {
                let name = OwnerName::Lock(Arc::clone(name));
                self.begin(&name);
                Ok(Begun::New(name, None))
            }
        }
    }

    fn begin(&mut self, name: &OwnerName) {
        if let Some(sequence) = self.sequence_mut(name) {
            sequence.begin();
        }
        if let OwnerName::Open(name) = name
            && let Some(number) = self.open.get_mut(name).and_then(|owner| owner.closed.take())
        {
            self.closed.remove(&number);
        }
    }

    fn sequence_mut(&mut self, name: &OwnerName) -> Option<&mut Sequence> {
        match name {
            OwnerName::Open(name) => self.open.get_mut(name).map(|owner| &mut owner.sequence),
            OwnerName::Lock(name) => self.lock.get_mut(name),
        }
    }

    /// A request ends, and has used its sequence id.
    pub(crate) fn finish(
        &mut self,
        name: &OwnerName,
        request: &OwnerRequest,
        reply: OwnerReply,
        now_ms: u64,
    ) {
        if let Some(sequence) = self.sequence_mut(name) {
            sequence.finish(request, reply);
        }
        if let OwnerName::Open(name) = name
            && let Some(owner) = self.open.get_mut(name)
        {
            owner.used_ms = now_ms;
            if owner.has_nothing() {
                self.failed.push_back(Arc::clone(name));
            }
        }
        if self.failed.len() > FAILED_MAX
            && let Some(name) = self.failed.pop_front()
        {
            self.forget_failed(&name);
        }
    }

    /// Forgets an owner that has nothing.
    fn forget_failed(&mut self, name: &[u8]) {
        if self.open.get(name).is_some_and(|owner| owner.has_nothing() && !owner.sequence.is_busy())
        {
            self.forget_open(name);
        }
    }

    /// A request ends that has not used its sequence id. An owner of which nothing else is known is
    /// forgotten.
    pub(crate) fn give_up(&mut self, name: &OwnerName) {
        if let Some(sequence) = self.sequence_mut(name) {
            sequence.give_up();
        }
        if let OwnerName::Open(name) = name {
            self.forget_failed(name);
        }
    }

    /// An owner has opened a file; whether it has to confirm that.
    pub(crate) fn opened(&mut self, name: &OwnerName, number: OpenNumber) -> bool {
        let OwnerName::Open(name) = name else { return false };
        let Some(owner) = self.open.get_mut(name) else { return false };
        if owner.is_confirmed {
            return false;
        }
        owner.unconfirmed = Some(number);
        self.unconfirmed.insert(number, Arc::clone(name));
        true
    }

    /// What an owner has opened is taken back: if it was to be confirmed, that is no more.
    pub(crate) fn taken_back(&mut self, client: &Client, number: OpenNumber) {
        let Some(name) = self.unconfirmed.remove(&number) else { return };
        if let Some(owner) = self.open.get_mut(&name) {
            owner.unconfirmed = None;
        }
        self.note(client, &OwnerName::Open(name));
    }

    /// The last request of an owner has failed after all. Whether it was this one.
    pub(crate) fn answer_otherwise(
        &mut self,
        name: &OwnerName,
        request: &OwnerRequest,
        reply: OwnerReply,
    ) -> bool {
        self.sequence_mut(name).is_some_and(|sequence| sequence.answer_otherwise(request, reply))
    }

    /// The last request of an owner was not executed after all. Whether it was this one.
    pub(crate) fn unuse(&mut self, name: &OwnerName, request: &OwnerRequest) -> bool {
        self.sequence_mut(name).is_some_and(|sequence| sequence.unuse(request))
    }

    /// An owner is confirmed.
    pub(crate) fn confirmed(&mut self, name: &OwnerName) {
        let OwnerName::Open(name) = name else { return };
        let Some(owner) = self.open.get_mut(name) else { return };
        owner.is_confirmed = true;
        if let Some(number) = owner.unconfirmed.take() {
            self.unconfirmed.remove(&number);
        }
    }

    /// An owner has closed a file.
    pub(crate) fn closed(&mut self, name: &OwnerName, number: OpenNumber) {
        let OwnerName::Open(name) = name else { return };
        let Some(owner) = self.open.get_mut(name) else { return };
        owner.closed = Some(number);
        self.closed.insert(number, Arc::clone(name));
    }

    /// Whether an open may be used: its owner is confirmed.
    pub(crate) fn may_use(&self, number: OpenNumber) -> bool {
        self.unconfirmed.is_empty() || !self.unconfirmed.contains_key(&number)
    }

    /// Judges the first sequence id that a lock-owner sends with an open: any, if it has no locks.
    pub(crate) fn judge_locker(
        &self,
        name: &[u8],
        seqid: u32,
        has_locks: bool,
    ) -> Result<(), StateError> {
        match self.lock.get(name).filter(|_| has_locks) {
            Some(sequence) if sequence.is_busy() => Err(StateError::OwnerBusy),
            Some(sequence) => sequence.require_next(seqid),
            None => Ok(()),
        }
    }

    /// A LOCK by an open has used the sequence id of a lock-owner, which has lock stateids.
    pub(crate) fn locked(&mut self, name: &[u8], seqid: u32) {
        match self.lock.get_mut(name) {
            Some(sequence) => sequence.advance(seqid),
            None => {
                self.lock.insert(name.into(), Sequence::at(seqid));
            }
        }
    }

    pub(crate) fn forget_locker(&mut self, name: &[u8]) {
        self.lock.remove(name);
    }

    /// Forgets the open-owners that have nothing open and were not heard since `before_ms`.
    pub(crate) fn forget_idle(&mut self, before_ms: u64, has_opens: impl Fn(&[u8]) -> bool) {
        let Self { open, closed, .. } = self;
        open.retain(|name, owner| {
            let is_idle = !owner.sequence.is_busy() && owner.used_ms < before_ms;
            let is_kept = !is_idle || has_opens(name);
            if !is_kept && let Some(number) = owner.closed {
                closed.remove(&number);
            }
            is_kept
        });
    }

    /// Forgets the open-owners that were not heard since `before_ms` and never confirmed what they opened,
    /// which is to be closed.
    pub(crate) fn take_unconfirmed(&mut self, before_ms: u64) -> Vec<OpenNumber> {
        let Self { open, unconfirmed, .. } = self;
        let is_late = |name: &Arc<[u8]>| {
            let owner = open.get(name);
            owner.is_none_or(|it| !it.sequence.is_busy() && it.used_ms < before_ms)
        };
        let mut late: Vec<_> = unconfirmed.extract_if(|_, name| is_late(name)).collect();
        // They are closed in an order that is the same in each run.
        late.sort_unstable_by_key(|(number, _)| *number);
        for (_, name) in &late {
            open.remove(name);
        }
        late.into_iter().map(|(number, _)| number).collect()
    }

    /// Forgets the lock-owners that have no lock stateids.
    pub(crate) fn forget_lockers(&mut self, has_locks: impl Fn(&[u8]) -> bool) {
        self.lock.retain(|name, sequence| sequence.is_busy() || has_locks(name));
    }

    /// Notes where an owner is in its sequence.
    pub(crate) fn note(&self, client: &Client, name: &OwnerName) {
        let (name, image) = match name {
            OwnerName::Open(name) => {
                let Some(owner) = self.open.get(name) else { return };
                let &OpenOwner { is_confirmed, unconfirmed, closed, .. } = owner;
                let (seqid, last) = owner.sequence.executed();
                let is_lock = false;
                (name, OwnerImage { is_lock, seqid, last, is_confirmed, unconfirmed, closed })
            }
            OwnerName::Lock(name) => {
                let Some(sequence) = self.lock.get(name) else { return };
                let (seqid, last) = sequence.executed();
                let (is_lock, is_confirmed, unconfirmed, closed) = (true, true, None, None);
                (name, OwnerImage { is_lock, seqid, last, is_confirmed, unconfirmed, closed })
            }
        };
        let client_id = client.id();
        let owner = Cow::Owned(image);
        client.journal.note(&Event::Owner { client: client_id, name, owner });
    }

    /// Notes all owners.
    pub(crate) fn note_all(&self, client: &Client) {
        let open = self.open.keys().cloned().map(OwnerName::Open);
        let lock = self.lock.keys().cloned().map(OwnerName::Lock);
        for name in open.chain(lock) {
            self.note(client, &name);
        }
    }

    /// Owners as they were, heard now.
    pub(crate) fn restore(
        &mut self,
        owners: &BTreeMap<(bool, Arc<[u8]>), OwnerImage>,
        now_ms: u64,
    ) {
        for ((is_lock, name), image) in owners {
            let sequence = Sequence::restored(image.seqid, image.last.clone());
            if *is_lock {
                self.lock.insert(Arc::clone(name), sequence);
                continue;
            }
            let &OwnerImage { is_confirmed, unconfirmed, closed, .. } = image;
            self.unconfirmed.extend(unconfirmed.map(|number| (number, Arc::clone(name))));
            self.closed.extend(closed.map(|number| (number, Arc::clone(name))));
            let owner = OpenOwner { sequence, is_confirmed, unconfirmed, closed, used_ms: now_ms };
            self.open.insert(Arc::clone(name), owner);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.lock.is_empty()
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.open.len(), self.lock.len())
    }
}
