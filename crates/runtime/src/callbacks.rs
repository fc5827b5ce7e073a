//! Calls that the server makes by connections which clients have made.

use std::sync::{Arc, Weak};

use steadfast_engine::{CallbackSender, ReplyBuffer};

use crate::send_queue::{SendQueue, SpareBuffers};
use crate::shared::Shared;

/// Sends by the connections of a server, as long as that lives.
pub(crate) struct Sender(Weak<Shared>);

impl Sender {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self(Arc::downgrade(shared))
    }
}

impl CallbackSender for Sender {
    fn send(&self, connection: u64, message: &[u8]) -> bool {
        let Some(shared) = self.0.upgrade() else { return false };
        let found = shared.living.find(connection).filter(|connection| !connection.is_closed());
        let Some(connection) = found else { return false };
        if shared.capture.wants().is_any() {
            shared.capture.sent(&connection.peer, shared.stamp_ns(), message);
        }
        let mut spare = SpareBuffers::default();
        let mut queue = SendQueue::default();
        let mut message = ReplyBuffer { bytes: message.to_vec(), ..ReplyBuffer::default() };
        queue.push_record(&mut message, &mut spare);
        connection.send(&mut queue, &mut spare, shared.now_ms());
        !connection.is_closed()
    }
}
