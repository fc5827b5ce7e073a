//! What others are to do after a change of the state: whoever made it does not do it itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::client::lock_owner::LockOwner;
use crate::file_locks::{FileLocks, Freed};
use crate::host::{Host, NlmOwner};
use crate::ranges::{LockKind, LockRange};
use crate::{Client, FileKey, StateId};

/// What somebody else is to do after a change of the state.
#[derive(Clone, Debug)]
pub enum Effect {
    /// A host was granted the lock that it waited for, and is to be told.
    Granted {
        /// The host.
        host: Host,
        /// The file.
        file: FileKey,
        /// The owner.
        owner: NlmOwner,
        /// The bytes.
        range: LockRange,
        /// The kind.
        kind: LockKind,
        /// What was given with the request.
        note: Arc<[u8]>,
    },
    /// A client waits for a lock and may ask for it again, which it is to be told.
    Free {
        /// The client.
        client: Arc<Client>,
        /// The lock-owner.
        owner: Arc<[u8]>,
        /// The file's handle, as it was given with the request.
        handle: Arc<[u8]>,
    },
    /// A client is to return a delegation, and to be told so.
    Recall {
        /// The client.
        client: Arc<Client>,
        /// The delegation.
        id: StateId,
        /// The file.
        file: FileKey,
        /// The file's handle, as it was given with the request.
        handle: Arc<[u8]>,
        /// Not before this time, in ms: the client may not have been told yet that it has it.
        not_before_ms: u64,
    },
    /// The holder of a delegation to write is to be asked whether it has changed anything (`CB_GETATTR`), now.
    AskHolder {
        /// The client.
        client: Arc<Client>,
        /// The delegation.
        id: StateId,
        /// The file.
        file: FileKey,
        /// The file's handle, as it was given with the request.
        handle: Arc<[u8]>,
        /// The number of the question: an answer counts for this one only.
        question: u64,
    },
    /// A question has an answer, or is given up: who waits for it goes on
    /// ([`Look::Waits`](crate::Look::Waits)).
    Answered {
        /// The file that it is about.
        file: FileKey,
        /// Its number.
        question: u64,
    },
    /// Nobody has a delegation of this file any more ([`State::watch_delegations`](crate::State::watch_delegations)).
    Undelegated {
        /// The file.
        file: FileKey,
    },
    /// No delegation of this file is being recalled any more: who was told
    /// [`StateError::Recalling`](crate::StateError::Recalling) may ask again with success.
    Returned {
        /// The file.
        file: FileKey,
    },
}

/// The effects that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct Effects {
    list: Mutex<Vec<Effect>>,
    has_some: AtomicBool,
    /// The state's: ranges and lock stateids of all clients.
    locks: Arc<AtomicUsize>,
}

impl Effects {
    pub(crate) fn new(locks: Arc<AtomicUsize>) -> Self {
        Self { list: Mutex::default(), has_some: AtomicBool::new(false), locks }
    }

    /// Whether there may be any.
    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Acquire)
    }

    pub(crate) fn push(&self, effect: Effect) {
        let mut list = self.list.lock();
        list.push(effect);
        self.has_some.store(true, Ordering::Release);
    }

    /// Takes up what a change of a file's locks has brought about.
    pub(crate) fn collect(&self, file: &FileKey, locks: &mut FileLocks) {
        let (granted, freed) = (locks.take_granted(), locks.take_freed());
        if granted.is_empty() && freed.is_empty() {
            return;
        }
        let mut list = self.list.lock();
        list.extend(freed.into_iter().map(|Freed { owner, handle }| {
            let LockOwner { client, name } = owner;
            Effect::Free { client, owner: name, handle }
        }));
        for grant in granted {
            // A negative number wraps, and so does the sum.
            self.locks.fetch_add(grant.growth.cast_unsigned(), Ordering::Relaxed);
            list.extend(Host::of(&grant.owner.client).map(|host| Effect::Granted {
                host,
                file: *file,
                owner: NlmOwner::of_name(&grant.owner.name),
                range: grant.span.into(),
                kind: grant.kind,
                note: grant.note,
            }));
        }
        self.has_some.store(true, Ordering::Release);
    }

    /// All effects so far.
    pub(crate) fn take(&self) -> Vec<Effect> {
        if !self.has_some() {
            return Vec::new();
        }
        let mut list = self.list.lock();
        self.has_some.store(false, Ordering::Relaxed);
        std::mem::take(&mut *list)
    }

    /// Takes back what could not be done now. Nobody gets it before [`Effects::offer`].
    pub(crate) fn put_back(&self, effects: Vec<Effect>) {
        let mut list = self.list.lock();
        let later = std::mem::replace(&mut *list, effects);
        list.extend(later);
    }

    /// Whoever asks next gets what was put back.
    pub(crate) fn offer(&self) {
        if !self.list.lock().is_empty() {
            self.has_some.store(true, Ordering::Release);
        }
    }
}
