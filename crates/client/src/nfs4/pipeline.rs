//! Several requests in flight, each in a slot of its own.

use super::COMPOUND;
use super::client::Nfs4Client;
use super::compound::Compound;
use super::reply::CompoundReply;
use super::slots::Slot;
use crate::error::ClientError;
use crate::reply::ReplyBody;
use crate::stream::RpcConnection;

type Outcome<T> = Result<T, ClientError>;

/// A request whose reply was not received yet.
#[derive(Debug)]
#[must_use = "its slot comes back with the reply"]
pub struct Sent4 {
    xid: u32,
    slot: Slot,
}

impl Nfs4Client<RpcConnection> {
    /// Sends a request in a free slot, and does not wait. `is_kept`: the server is to keep its reply.
    ///
    /// # Errors
    /// [`ClientError::NoFreeSlot`] if all slots are in use: receive a reply first. The socket's.
    pub fn begin(
        &mut self,
        is_kept: bool,
        build: impl FnOnce(Compound) -> Compound,
    ) -> Outcome<Sent4> {
        let Some(slot) = self.session.slots.take() else { return Err(ClientError::NoFreeSlot) };
        let sequence = self.session.slots.arguments(&slot, is_kept);
        let compound = build(self.session.compound().sequence(&sequence));
        let xid = self.transport.send(COMPOUND, &self.identity, &compound.arguments())?;
        Ok(Sent4 { xid, slot })
    }

    /// Waits for a request's reply; `read` reads the results after that of SEQUENCE, all of them.
    /// Replies to others are kept for their turn.
    ///
    /// # Errors
    /// See [`ClientError`]. Without a reply the slot is lost.
    pub fn receive<R>(
        &mut self,
        sent: Sent4,
        read: impl FnOnce(&mut CompoundReply<'_>) -> Outcome<R>,
    ) -> Outcome<R> {
        let Sent4 { xid, slot } = sent;
        let reply = self.transport.receive(xid)?;
        let refused = match reply.body {
            ReplyBody::Success { results_at } => {
                let results = reply.message.get(results_at..).unwrap_or(&[]);
                return self.conclude(slot, results, read);
            }
            ReplyBody::Accepted(error) => ClientError::Accepted(error),
            ReplyBody::Denied(denial) => ClientError::Denied(denial),
        };
        // It was not executed: its slot has not moved.
        self.session.slots.give_back(slot);
        Err(refused)
    }
}
