//! What the engine asks and tells whoever runs it while a call is executed.

use std::task::Waker;

use steadfast_vfs::FlushDomain;

use crate::compound_operation::CompoundOperation;
use crate::reply::ReplySink;
use crate::verdict::SuspendedCall;

/// What a call waits for when it waits for storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StorageId(pub u64);

impl StorageId {
    /// All storage of which it is not known yet, or not any more, which it is.
    pub const UNKNOWN: Self = Self(1 << 63);
}

impl From<FlushDomain> for StorageId {
    fn from(domain: FlushDomain) -> Self {
        Self(u64::from(domain.0))
    }
}

/// Whether a call may wait for its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It may.
    Free,
    /// So many calls do that nobody would be left for calls to other storage: this one is to be
    /// executed again later, from its beginning ([`crate::Verdict::Suspended`]).
    Later,
    /// It has found no place for a while, or none of those has come back meanwhile: its client is
    /// to try later (JUKEBOX).
    None,
}

/// What the engine tells its host while a call runs.
pub trait CallHost {
    /// The call is about to wait for this storage, or might: whether it may. Asked before the host
    /// is told so; what the call changes has not been begun.
    fn room_to_wait(&mut self, _storage: StorageId) -> Room {
        Room::Free
    }

    /// The call is about to be suspended though it may wait for its storage: it cannot be executed now, and must not be
    /// refused.
    fn will_suspend(&mut self) {}

    /// Gives back what became of the call when it was suspended ([`crate::Verdict::Suspended`]), if it was: it is
    /// executed again, or goes on.
    fn take_suspended(&mut self) -> Option<SuspendedCall> {
        None
    }

    /// The call has to wait for a client, or for a name service. What executes it again, if it is suspended
    /// after this ([`SuspendedCall::waits_for_client`]); `None` if the host does not keep it, or it has waited
    /// for so long already: its client is told to try later then.
    ///
    /// The waker may be woken on any thread, with locks held, and before the host has been given the call
    /// to keep: also then the call is executed again. When the patience is over the host executes the call
    /// again too, and gives no waker.
    fn waker(&mut self, _patience_ms: u64) -> Option<Waker> {
        None
    }

    /// The call is about to do something that may put the thread to sleep (a change, a cold
    /// read): let others take over the connection's further calls should it last. Cheap; may be
    /// called more than once.
    fn may_block(&mut self);

    /// As [`CallHost::may_block`], for what the kernel most likely has in memory (names, objects):
    /// the thread sleeps so seldom that replies to others may wait for this call.
    fn seldom_blocks(&mut self) {
        self.may_block();
    }

    /// An object is being opened: as [`CallHost::seldom_blocks`], or, while the host finds that
    /// this takes long, as [`CallHost::will_block`].
    fn opens(&mut self) {
        self.will_block();
    }

    /// That object is open, or cannot be opened.
    fn has_opened(&mut self) {}

    /// The call is certain to wait for the disk: others must take over now.
    fn will_block(&mut self);

    /// Where the call's reply can be sent later. Asked for when it is a duplicate of a call that
    /// is being executed; `None`: it gets no reply.
    fn reply_sink(&mut self) -> Option<Box<dyn ReplySink>> {
        None
    }

    /// Seconds since 1970, for who asks what time it is; `None` if the host has no clock.
    fn unix_time_s(&self) -> Option<u32> {
        None
    }

    /// Whether a connection of the same client address is gone, so that the client of this call may
    /// have been the one that used it (the table in `reply_cache` says what that means). May wait
    /// for the peer of that connection. Seldom asked: both have sent the same call.
    fn is_gone(&mut self, _connection: u64) -> bool {
        true
    }

    /// Whether the peer of the call's own connection has closed it, so that nobody waits for a reply there.
    /// Seldom asked: when the same call came before by another connection, which is alive. Never waits.
    fn has_left(&mut self) -> bool {
        false
    }

    /// The call's time is spent on this from here on. The engine has no clock: whoever wants to
    /// know how long a stage lasts looks at one here. Called for every call, so a host that does
    /// not measure this one must return at once.
    fn stage(&mut self, _stage: Stage) {}

    /// The operations of a COMPOUND follow, one after another. Called for every COMPOUND; see
    /// [`CallHost::stage`].
    fn operations_begin(&mut self) {}

    /// An operation of the COMPOUND has ended; one that will be executed again has not. Called for every
    /// operation.
    fn operation_ended(&mut self, _operation: CompoundOperation, _is_error: bool) {}
}

/// What the time of a call that is being executed is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// RPC header, credentials, duplicate request cache, arguments. Every call begins with it.
    Decode,
    /// The handle's MAC, the share's rights, the caller's identity; for a change also lending
    /// the seat.
    Access,
    /// The storage's operation, and the encoding of its result.
    Storage,
}
