//! What other threads tell the occupant of a seat.

use parking_lot::Mutex;
use steadfast_sys::epoll::EventFd;

/// A message to a seat. Bounded: a connection has at most one [`Message::Look`] under way, and
/// the number of connections has its limit; of a call that waits for a client there is one
/// [`Message::Wake`] at most, and the engine bounds how many there are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    /// The connection of this token may be read again, or is done.
    Look(u64),
    /// The call with this ticket waits no more.
    Wake(u64),
}

/// Messages, and a descriptor that wakes whoever waits at the seat.
#[derive(Debug)]
pub(crate) struct Mailbox {
    messages: Mutex<Vec<Message>>,
    pub(crate) wake: EventFd,
}

impl Mailbox {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self { messages: Mutex::default(), wake: EventFd::new()? })
    }

    pub(crate) fn post(&self, message: Message) {
        let mut messages = self.messages.lock();
        let is_first = messages.is_empty();
        messages.push(message);
        drop(messages);
        if is_first {
            self.wake.notify();
        }
    }

    pub(crate) fn take(&self) -> Vec<Message> {
        self.wake.reset();
        std::mem::take(&mut *self.messages.lock())
    }
}
