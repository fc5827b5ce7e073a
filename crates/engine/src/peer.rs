//! Who calls, and by which way.

use std::net::SocketAddr;

use parking_lot::Mutex;
use steadfast_shares::{Flavor, Question};
use steadfast_state::SessionId;

use crate::access_memo::AccessMemo;

/// The first port that everybody may use.
const PRIVILEGED_PORTS_END: u16 = 1024;

/// Sessions whose callbacks may go out by one connection. Usual clients have one.
const BACK_SESSIONS_MAX: usize = 64;

/// How a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A record of a TCP connection.
    Tcp,
    /// A UDP datagram.
    Udp,
}

/// Who calls, as the socket tells it: one a connection, so that what was found out about the
/// client is known at its next call.
#[derive(Debug)]
pub struct Peer {
    /// The client's address and port.
    pub address: SocketAddr,
    /// Our address and port that it spoke to.
    pub local: SocketAddr,
    /// How.
    pub transport: Transport,
    /// Tells connections apart whose ports are the same: a client that connects again may do so
    /// from its old port. 0 for datagrams.
    number: u64,
    pub(crate) memo: AccessMemo,
    back: Mutex<BackSessions>,
}

/// Sessions whose callbacks may go out by a connection, or might before.
#[derive(Debug, Default)]
struct BackSessions {
    all: Vec<SessionId>,
    /// Nothing is bound to the connection any more.
    is_closed: bool,
}

/// By which way a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    address: SocketAddr,
    transport: Transport,
    number: u64,
}

impl Origin {
    /// The connection's number; of all datagrams the same.
    pub(crate) fn connection(&self) -> u64 {
        self.number
    }
}

impl Peer {
    /// A peer about which nothing is known yet.
    pub fn new(address: SocketAddr, local: SocketAddr, transport: Transport) -> Self {
        let (memo, back) = (AccessMemo::default(), Mutex::default());
        Self { address, local, transport, number: 0, memo, back }
    }

    /// The same peer on a connection of this number, which no other living one has.
    #[must_use]
    pub fn on_connection(self, number: u64) -> Self {
        Self { number, ..self }
    }

    /// The number of the connection, 0 for datagrams.
    pub fn connection(&self) -> u64 {
        self.number
    }

    /// Whether only root of the client, or its kernel, can have sent this.
    pub(crate) fn is_privileged(&self) -> bool {
        self.address.port() < PRIVILEGED_PORTS_END
    }

    /// Callbacks of a session may go out by the connection: then `bind` is asked, which says whether they
    /// may. `false` if it is none that can be named, is closed, or has too many sessions. Those that are
    /// gone by `is_gone` do not count.
    pub(crate) fn bind_back(
        &self,
        session: SessionId,
        is_gone: impl Fn(&SessionId) -> bool,
        bind: impl FnOnce() -> bool,
    ) -> bool {
        // Held until it is bound: whoever closes the connection finds the session, or is waited for.
        let mut sessions = self.back.lock();
        if self.number == 0 || sessions.is_closed {
            return false;
        }
        if !sessions.all.contains(&session) {
            if sessions.all.len() >= BACK_SESSIONS_MAX {
                sessions.all.retain(|session| !is_gone(session));
            }
            if sessions.all.len() >= BACK_SESSIONS_MAX {
                return false;
            }
            sessions.all.push(session);
        }
        bind()
    }

    /// Whether replies to callbacks may come by the connection.
    pub fn is_back_bound(&self) -> bool {
        !self.back.lock().all.is_empty()
    }

    /// The connection is closed: the sessions that were bound to it. None is from now on.
    pub(crate) fn take_back_sessions(&self) -> Vec<SessionId> {
        let mut sessions = self.back.lock();
        sessions.is_closed = true;
        std::mem::take(&mut sessions.all)
    }

    /// What rules are asked about him when he says who he is by this flavour.
    pub(crate) fn question(&self, flavor: Flavor) -> Question {
        let from_privileged_port = self.is_privileged();
        Question { client: self.address.ip(), flavor, from_privileged_port }
    }

    pub(crate) fn origin(&self) -> Origin {
        Origin { address: self.address, transport: self.transport, number: self.number }
    }
}
