//! NFSv4.1 and 4.2: the calls of a mount as COMPOUNDs of one session, which all threads share.
//!
//! [`Client4`] has the session, and what is open by it. [`session::Requests`] sends one user's requests, each in a slot of its
//! own: what is sent again over a new connection is executed once, since the server knows the slot's last request. A
//! request that nobody waits for any more leaves its slot to [`session`], which makes sure that the slot is known
//! again before another one has it. [`Calls4`] makes the calls that [`crate::calls::Calls`] has.
//!
//! When the server has lost the session, or all that it knew, [`keeper`]'s thread makes another one and reclaims; calls
//! wait until then. A change that was sent more than once is judged as NFSv3's are ([`crate::transport::Repeats`]): a
//! restart may have taken the session, or the replies that it knew.

mod calls;
mod convert;
mod data;
mod held_locks;
mod keeper;
mod locks;
mod names;
mod opens;
mod session;

pub(crate) use calls::Calls4;
pub(crate) use held_locks::{Holder4, Holding};
pub(crate) use keeper::{is_other_version, walk};
pub(crate) use locks::LockAsker;
pub(crate) use session::Client4;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
