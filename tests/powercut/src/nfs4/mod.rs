//! Clients of NFSv4.1 that hold files open and ranges locked while the others work (`--nfs 4.1`).
//!
//! Each client has one life after the other ([`holder`]): it makes itself known, makes a directory of its own,
//! and opens, locks, writes, renames and removes files there, with several requests in flight. Then it closes
//! all and leaves, or goes silent, or comes back as another life of the same owner. What it changes is in the
//! ledger as what others change, and compared likewise, by NFSv3. What it opens and locks is a list of its own
//! ([`deeds`]), in the same order of events, from which follows who had what at any moment.
//!
//! What becomes of that when the server is gone is not asked here ([`crate::regain`]).

pub(crate) mod deeds;
pub(crate) mod holder;
pub(crate) mod session;
pub(crate) mod steps;

pub(crate) use deeds::{Deeds, Holdings};
pub(crate) use holder::{Holder, hold};
