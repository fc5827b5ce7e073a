//! The channels of a session: the bounds of requests and of callbacks, and whom callbacks are addressed to.

use std::sync::Arc;

/// Bounds of one direction of a session (RFC 8881 §18.36, `channel_attrs4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Largest request, in bytes.
    pub request_bytes_max: u32,
    /// Largest reply, in bytes.
    pub response_bytes_max: u32,
    /// Largest reply that is kept for a retransmission, in bytes.
    pub response_bytes_cached_max: u32,
    /// Most operations of a request.
    pub operations_max: u32,
    /// Most requests at once: the slots.
    pub requests_max: u32,
}

/// Whom callbacks are addressed to, and by which credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackTarget {
    /// Minor version that the session was made in.
    pub minor_version: u32,
    /// RPC program.
    pub program: u32,
    /// RPC credential, as it is sent. The state does not read it.
    pub credential: Arc<[u8]>,
}

/// What outlives the process of a back channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BackChannelImage {
    pub(crate) target: Option<CallbackTarget>,
    /// Whether a connection was ever bound.
    pub(crate) is_wanted: bool,
    /// By slot: the sequence id of the last callback.
    pub(crate) sequences: Vec<u32>,
}
