//! Calls that have stopped and go on later, as their seat keeps them: no thread waits with them. When one may go on, it is
//! executed again in its client's turn.

pub(crate) mod for_another;
pub(crate) mod for_storage;

use std::sync::Arc;

use crate::batch::Batch;
use crate::datagram::DatagramSocket;

use for_another::ForAnother;
use for_storage::ForStorage;

/// A suspended call.
#[derive(Debug)]
pub(crate) struct KeptCall {
    pub(crate) origin: KeptOrigin,
    /// Of this call alone.
    pub(crate) batch: Arc<Batch>,
}

/// How a suspended call came.
#[derive(Clone, Debug)]
pub(crate) enum KeptOrigin {
    /// By the connection of this token.
    Connection(u64),
    /// By a UDP socket.
    Datagrams(Arc<DatagramSocket>),
}

impl KeptCall {
    /// Whether it came by the connection of this token.
    fn is_of(&self, token: u64) -> bool {
        matches!(self.origin, KeptOrigin::Connection(of) if of == token)
    }
}

/// The suspended calls of one seat.
#[derive(Debug, Default)]
pub(crate) struct Suspended {
    pub(crate) for_storage: ForStorage,
    pub(crate) for_another: ForAnother,
}

impl Suspended {
    /// When some may have to go on though nobody wakes them, in ms.
    pub(crate) fn next_look_ms(&self) -> Option<u64> {
        let looks = [self.for_storage.next_look_ms(), self.for_another.next_end_ms()];
        looks.into_iter().flatten().min()
    }

    /// Takes out the calls of a connection.
    pub(crate) fn take_of(&mut self, token: u64) -> Vec<KeptCall> {
        let mut calls = self.for_storage.take_of(token);
        calls.extend(self.for_another.take_of(token));
        calls
    }
}
