//! `CREATE_SESSION`: what is asked, and the result (RFC 8881 §18.36).

use crate::channel::Channel;
use crate::ids::{ClientId, Principal, SessionId};

/// A `CREATE_SESSION` operation.
#[derive(Clone, Copy, Debug)]
pub struct CreateSession<'a> {
    /// Whose session.
    pub client: ClientId,
    /// Sequence id (`csa_sequence`).
    pub sequence: u32,
    /// Who asks.
    pub principal: &'a Principal,
    /// Bounds of requests.
    pub fore: Channel,
    /// Bounds of callbacks.
    pub back: Channel,
    /// `CREATE_SESSION4_FLAG_*`, as they are to be answered.
    pub flags: u32,
    /// The connection that the session is bound to.
    pub connection: u64,
}

/// The result of a `CREATE_SESSION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreatedSession {
    /// The new session.
    pub session: SessionId,
    /// Sequence id of the request.
    pub sequence: u32,
    /// `CREATE_SESSION4_FLAG_*`.
    pub flags: u32,
    /// Bounds of requests, as granted.
    pub fore: Channel,
    /// Bounds of callbacks, as granted.
    pub back: Channel,
}
