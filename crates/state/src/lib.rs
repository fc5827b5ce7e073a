//! What NFSv4 clients make at the server, and keep there: client records, sessions, slots, opens,
//! locks, delegations; the owners of minor version 0. And what hosts lock that speak NLM, beside NFSv3: both are
//! locks of the same files.
//!
//! An open is a promise over many requests, so somebody has to remember it; the same is true of a
//! slot's last request. This crate remembers, and judges by what it remembers. It serves many
//! threads at once.
//!
//! The types to know:
//! - [`State`]: everything; its methods are the operations of RFC 8881 and RFC 7530 that make state;
//! - [`Session`]: what a request comes through; [`Session::begin`] is SEQUENCE, and gives a
//!   [`SlotInUse`] to a request that is new;
//! - [`Client`]: whose sessions and opens they are, and when it was last heard;
//! - [`OwnerInUse`]: the sequence of an owner of minor version 0, which has no sessions.
//!
//! Locks are taken in this order: registry (the client records), one client's owners, its opens
//! (with its lock stateids and delegations), one shard of the delegations, one shard of the files. None is held when a method returns. Two
//! clients' opens are never locked together. What opens deny to protocols without opens is found without
//! any of them, in nearly all cases ([`State::judge_stranger`]).
//!
//! The modules are in layers; each names only what is below it:
//! 1. values: ids, ranges, shares, channels, what requests ask and are answered, settings, errors;
//! 2. `image`: each change as an event, and what events come to;
//! 3. `client` with what it has, then `session` with its slots, and the `registry` of all of them;
//! 4. the tables that clients share: `files` with `file_locks`, the `gate`, `effects`;
//! 5. `state`: all of it together, and an operation or a few in each module below it.
//!
//! Everything that clients can make is bounded by [`Limits`]. Nothing here depends on the order in
//! which a hash table is walked.
//!
//! This crate must never do I/O, ask a clock, or make random numbers that show outside; and never
//! panic on what clients send. Time is an argument: ms of any clock that does not go back.
#![forbid(unsafe_code)]

mod changed_locks;
mod channel;
mod client;
mod create_session;
mod delegation_record;
mod effects;
mod error;
mod exchange;
mod file_locks;
mod files;
mod gate;
mod host;
mod ids;
mod image;
mod owner_sequence;
mod range_index;
mod ranges;
mod registry;
mod session;
mod session_table;
mod set_client;
mod settings;
mod share;
mod slot;
mod state;
mod under_way;
mod written_unseen;

pub use channel::{CallbackTarget, Channel};
pub use client::{Client, Protocol};
pub use create_session::{CreateSession, CreatedSession};
pub use delegation_record::DelegationKind;
pub use effects::Effect;
pub use error::StateError;
pub use exchange::{ExchangeId, ExchangedId};
pub use file_locks::GrantAnswer;
pub use host::{Host, HostInUse, NlmOwner};
pub use ids::{ClientId, FileKey, Principal, SessionId, ShareAccess, ShareDeny, StateId};
pub use image::lost::Reclaimable;
pub use image::{ClientRecord, ClientRecords, Image, ImageError, RecordsError};
pub use owner_sequence::{OwnerReply, OwnerRequest};
pub use ranges::{LockKind, LockRange};
pub use registry::ClientReport;
pub use session::{
    CallbackEnd, CallbackSlot, Replayed, Sequence, SequenceTold, Sequenced, Session, SlotInUse,
    UNDER_WAY_BYTES,
};
pub use set_client::{Callback, SetClient, SetClientError, SetClientId};
pub use settings::{Delegations, Limits, Settings};
pub use state::{
    Change, Conflict, Delegate, DelegationCounts, Granted, Held, HolderAnswered, Holding, Lock,
    LockBy, LockError, LockReport, Look, NlmBefore, NlmError, NlmHolder, NlmLock, NlmTaken,
    NotDelegated, Open, OwnerAnswered, OwnerBegun, OwnerInUse, Repeats, State, Telling, Together,
};
pub use written_unseen::{HOLDER_PATIENCE_MS, HolderSays, StoredLook};
