//! Who made a call.

use std::net::SocketAddr;

use steadfast_engine::{Peer, Transport};

/// Who is told of a reply that went out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) transport: Transport,
}

impl Client {
    pub(crate) fn of(peer: &Peer) -> Self {
        Self { address: peer.address, transport: peer.transport }
    }
}
