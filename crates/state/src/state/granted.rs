//! What an OPEN or a LOCK was granted, as long as its request may still fail: then it is taken back, so that
//! nobody is kept out by what its client was never told of. Where that cannot be told apart from what the
//! client was told, it stays.
//!
//! An open is all that OPENs of one owner have asked of a file. So while one OPEN is not settled, others may
//! ask the same, or more, and be answered. Each OPEN that adds a share is listed (`client/unsettled.rs`) until
//! it is settled. A share goes with the last OPEN that asked for it, if none of them was settled.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::client::lock_owner::LockOwner;
use crate::client::opens::ClientOpens;
use crate::ids::{LockNumber, OpenNumber, lowered_seqid};
use crate::image::Event;
use crate::ranges::{LockKind, Span};
use crate::share::Share;
use crate::{Client, FileKey, State, StateError, StateId};

/// Which OPENs may ask again for what their owner has, though it denies that to itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeats {
    /// None.
    #[default]
    None,
    /// Any: its client reclaims, and may not know what it has reclaimed.
    Reclaim,
    /// One whose owner has had no OPEN of the file executed since the server was started: the process before
    /// this one may have executed it, and was killed before it could keep the reply (minor version 0).
    AfterRestart,
}

/// What was granted. Dropped, it is settled: the client keeps it. [`State::take_back`] is the other way.
#[must_use = "to drop it is to leave it with the client"]
pub struct Granted {
    client: Arc<Client>,
    id: StateId,
    what: What,
}

enum What {
    Open(GrantedOpen),
    Lock(Box<GrantedLock>),
    Delegation,
    Nothing,
}

struct GrantedOpen {
    number: OpenNumber,
    /// `None` if it was new.
    seqid_before: Option<u32>,
    /// Whether the process before this one had noted it last ([`Repeats::AfterRestart`]).
    was_of_before: bool,
    /// Whether another OPEN had asked for the share before: that one may have been answered since.
    was_asked: bool,
    /// What it has added to what was settled: its number among `Unsettled`, and the share.
    added: Option<(u64, Share)>,
}

pub(crate) struct GrantedLock {
    pub(crate) owner: LockOwner,
    pub(crate) number: LockNumber,
    /// `None` if the lock stateid was new.
    pub(crate) seqid_before: Option<u32>,
    pub(crate) open: OpenNumber,
    pub(crate) file: FileKey,
    pub(crate) span: Span,
    /// What its owner had of the span, and by which open.
    pub(crate) before: Vec<(Span, LockKind, OpenNumber)>,
    /// The owner's lock stateids of the file, with their seqids, once it had the lock.
    pub(crate) stateids: Vec<(LockNumber, u32)>,
}

impl fmt::Debug for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Granted({:?})", self.id)
    }
}

impl Granted {
    pub(crate) fn open(
        client: &Arc<Client>,
        id: StateId,
        (number, seqid_before): (OpenNumber, Option<u32>),
        added: Option<(u64, Share)>,
    ) -> Self {
        let (was_of_before, was_asked) = (false, false);
        let what =
            What::Open(GrantedOpen { number, seqid_before, was_of_before, was_asked, added });
        Self { client: Arc::clone(client), id, what }
    }

    /// The open was there already: as the process before this one had noted it, or with the same share.
    pub(crate) fn further(mut self, was_of_before: bool, was_asked: bool) -> Self {
        if let What::Open(open) = &mut self.what {
            (open.was_of_before, open.was_asked) = (was_of_before, was_asked);
        }
        self
    }

    pub(crate) fn lock(client: &Arc<Client>, id: StateId, lock: GrantedLock) -> Self {
        Self { client: Arc::clone(client), id, what: What::Lock(Box::new(lock)) }
    }

    pub(crate) fn delegation(client: &Arc<Client>, id: StateId) -> Self {
        Self { client: Arc::clone(client), id, what: What::Delegation }
    }

    /// Its stateid.
    pub fn id(&self) -> StateId {
        self.id
    }

    /// Whether an open is meant that was not there before.
    pub fn is_new_open(&self) -> bool {
        matches!(&self.what, What::Open(open) if open.seqid_before.is_none())
    }

    /// The open has another seqid since then, by the same request.
    pub fn follow(&mut self, id: StateId) {
        self.id = id;
    }

    /// Its number among `Unsettled`.
    pub(super) fn serial(&self) -> Option<u64> {
        match &self.what {
            What::Open(GrantedOpen { added: Some((serial, _)), .. }) => Some(*serial),
            _ => None,
        }
    }

    /// What an OPEN has added, for [`State::granted_before`]: nothing if another OPEN had asked for it, of which the
    /// process after this one cannot know whether it was answered.
    pub fn added(&self) -> u32 {
        match &self.what {
            What::Open(GrantedOpen { added: Some((_, share)), was_asked: false, .. }) => {
                share.number() + 1
            }
            _ => 0,
        }
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if let What::Open(GrantedOpen { added: Some((serial, _)), .. }) = self.what {
            self.client.opens.lock().unsettled.settle(serial);
        }
    }
}

impl State {
    /// Takes back what a request was granted that has failed. What other requests were granted meanwhile
    /// stays.
    ///
    /// Of an OPEN that is what it has added to the open: its share, if no other OPEN asked for the same; the
    /// open itself, with its locks, if nothing is left of it.
    pub fn take_back(&self, mut granted: Granted) {
        let what = std::mem::replace(&mut granted.what, What::Nothing);
        match what {
            What::Open(open) => self.take_back_open(&granted.client, granted.id, &open),
            What::Lock(lock) => self.take_back_lock(&granted.client, granted.id, &lock),
            What::Delegation => {
                // It may have ended with its client. Of a revoked one its client would be told for ever, and
                // does not know which it is.
                if self.return_delegation(&granted.client, &granted.id, None)
                    == Err(StateError::DelegationRevoked)
                {
                    let _ = self.free_delegation(&granted.client, &granted.id);
                }
            }
            What::Nothing => {}
        }
    }

    /// Ends a new open for which a delegation stands (RFC 9754 §4). If another OPEN of its owner has asked for it
    /// meanwhile, it stays, and is given back: whoever is told of the later seqid waits for the one before.
    pub fn leave_out(&self, granted: Granted) -> Option<Granted> {
        let client = Arc::clone(&granted.client);
        let What::Open(GrantedOpen { number, seqid_before: None, .. }) = granted.what else {
            return Some(granted);
        };
        {
            let mut owners = client.owners.lock();
            let mut opens = client.opens.lock();
            let record = opens.get(number).map(|record| (record.seqid, record.file));
            if let Some((seqid, file)) = record {
                if seqid != granted.id.seqid {
                    drop((opens, owners));
                    return Some(granted);
                }
                self.end_open(&client, &mut opens, number, &file);
                owners.taken_back(&client, number);
            }
        }
        // What it has added is settled: nothing is left of it.
        drop(granted);
        None
    }

    /// What the process before this one has granted an OPEN that is still to be settled, by
    /// [`Granted::added`]; `None` if it is not there.
    pub fn granted_before(&self, client: &Arc<Client>, id: StateId, added: u32) -> Option<Granted> {
        let mut opens = client.opens.lock();
        let (number, record) =
            opens.named(self.settings.instance, &StateId { seqid: 0, ..id }).ok()?;
        let share = Share::all().find(|share| share.number() + 1 == added);
        // An OPEN after it may have asked for the same, and was answered.
        let is_last = record.seqid == id.seqid;
        let share = share.filter(|share| is_last && record.asked.has(*share));
        let added = share.and_then(|share| opens.unsettled.add(number, share, false));
        Some(Granted::open(client, id, (number, Some(lowered_seqid(id.seqid))), added))
    }

    /// The same of the delegation that was granted with it.
    pub fn delegated_before(&self, client: &Arc<Client>, id: StateId) -> Option<Granted> {
        let opens = client.opens.lock();
        match opens.named_delegation(self.settings.instance, &id) {
            Ok(_) | Err(StateError::DelegationRevoked) => Some(Granted::delegation(client, id)),
            Err(_) => None,
        }
    }

    fn take_back_open(&self, client: &Arc<Client>, id: StateId, open: &GrantedOpen) {
        let &GrantedOpen { number, seqid_before, was_of_before, added, .. } = open;
        let mut owners = client.owners.lock();
        let mut opens = client.opens.lock();
        let is_added = match added {
            Some((serial, _)) => opens.unsettled.take(serial) == Some(true),
            None => false,
        };
        let is_last = opens.get(number).is_some_and(|record| record.seqid == id.seqid);
        let before = match seqid_before {
            Some(before) if is_last => Some(opens.unsettled.failed.lowest(number, before)),
            Some(before) => {
                opens.unsettled.failed.add(number, id.seqid, before);
                None
            }
            None => None,
        };
        let Some(record) = opens.get_mut(number) else {
            return opens.unsettled.failed.forget(number);
        };
        let file = record.file;
        // The client has never heard of the seqid, and would be told that its own is old.
        if let Some(before) = before {
            record.seqid = before;
            // Its owner may ask for it again, as if it had not.
            record.is_of_before = was_of_before;
        }
        if let Some((_, share)) = added.filter(|_| is_added) {
            let left = record.asked.remove(share);
            if record.asked.is_empty() {
                self.end_open(client, &mut opens, number, &file);
                return owners.taken_back(client, number);
            }
            record.share = left;
            // Before others get what it gives up.
            self.note_open(client, number, record);
            self.files.lessen(number, &file, left);
        } else {
            self.note_open(client, number, record);
        }
    }

    /// Ends an open with its locks.
    pub(crate) fn end_open(
        &self,
        client: &Client,
        opens: &mut ClientOpens,
        number: OpenNumber,
        file: &FileKey,
    ) {
        self.release_locks(client, opens, number, file);
        if opens.remove(number).is_some() {
            self.files.release(number, file);
            self.opens.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn take_back_lock(&self, client: &Arc<Client>, id: StateId, lock: &GrantedLock) {
        let GrantedLock { owner, number, seqid_before, open, file, span, before, stateids } = lock;
        let mut owners = client.owners.lock();
        let mut opens = client.opens.lock();
        // A LOCK or LOCKU since then was answered, of perhaps the same bytes. Better that the owner keeps too
        // much than that it loses what it was told it has.
        if opens.locks.of_owner_and_file(&owner.name, file) != *stateids {
            if let Some(before) = seqid_before {
                opens.locks.lower_seqid(*number, id.seqid, *before);
            }
            return self.note_lock(client, &opens, *number);
        }
        // By what was locked before may be closed by now.
        let before: Vec<_> =
            before.iter().copied().filter(|(.., by)| opens.get(*by).is_some()).collect();
        let time = self.time(client);
        let taken = self.files.with_locks(file, |locks| {
            let growth = locks.take_back(owner, *span, &before, time);
            (growth, locks.has(owner, *open))
        });
        let (growth, has_more) = taken.unwrap_or((0, false));
        self.count_locks(&mut opens, growth, 0);
        match seqid_before {
            None if !has_more => {
                opens.locks.remove(*number);
                self.journal.note(&Event::LockGone { client: client.id(), number: *number });
                self.count_locks(&mut opens, 0, -1);
                if !opens.locks.has_owner(&owner.name) {
                    owners.forget_locker(&owner.name);
                }
            }
            _ => {
                if let Some(before) = seqid_before {
                    opens.locks.lower_seqid(*number, id.seqid, *before);
                }
                self.note_lock(client, &opens, *number);
            }
        }
    }
}
