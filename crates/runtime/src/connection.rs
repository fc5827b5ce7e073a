//! A TCP connection as everybody shares it: who the peer is, and the way replies go out.
//!
//! What is being received belongs to the seat ([`crate::seat`]); replies may be sent by any
//! thread: a worker, one that lost its seat meanwhile, or a flusher.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use steadfast_engine::Peer;
use steadfast_sys::net;

use crate::mailbox::{Mailbox, Message};
use crate::send_queue::{SendQueue, Sent, SpareBuffers};

/// Bytes and connections that wait for peers, over the whole server. Touched only when a socket
/// takes no more.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) bytes: AtomicUsize,
    pub(crate) connections: AtomicUsize,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Peer,
    /// What its seat knows it by.
    pub(crate) token: AtomicU64,
    mailbox: Arc<Mailbox>,
    waiting: Arc<Waiting>,
    /// Replies that the socket did not take. Held for non-blocking sends only.
    backlog: Mutex<SendQueue>,
    backlog_bytes: AtomicUsize,
    /// When the peer last made room, in ms.
    progress_ms: AtomicU64,
    /// Calls parked, or being executed by a worker that offered its seat.
    in_flight: AtomicUsize,
    /// The seat waits for `in_flight` to fall.
    is_watched: AtomicBool,
    is_closed: AtomicBool,
}

impl Connection {
    pub(crate) fn new(
        socket: OwnedFd,
        peer: Peer,
        mailbox: Arc<Mailbox>,
        waiting: Arc<Waiting>,
    ) -> Self {
        Self {
            socket,
            peer,
            token: AtomicU64::new(u64::MAX),
            mailbox,
            waiting,
            backlog: Mutex::default(),
            backlog_bytes: AtomicUsize::new(0),
            progress_ms: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            is_watched: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Sends replies, keeping what the socket does not take. `replies` is empty afterwards. A
    /// connection that fails is closed.
    pub(crate) fn send(&self, replies: &mut SendQueue, spare: &mut SpareBuffers, now_ms: u64) {
        if replies.is_empty() {
            return;
        }
        let mut backlog = self.backlog.lock();
        if self.is_closed() {
            *replies = SendQueue::default();
            return;
        }
        if backlog.is_empty() {
            match replies.send_to(self.socket.as_fd(), spare) {
                Ok(Sent::All) => return,
                Ok(Sent::Part) => {
                    self.progress_ms.store(now_ms, Ordering::Relaxed);
                    self.waiting.connections.fetch_add(1, Ordering::SeqCst);
                }
                Err(_) => {
                    *replies = SendQueue::default();
                    drop(backlog);
                    self.close();
                    return;
                }
            }
        }
        let before = backlog.bytes();
        backlog.append(replies, spare);
        self.note_backlog(before, backlog.bytes());
    }

    /// Sends what the socket did not take before.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn drain(&self, spare: &mut SpareBuffers, now_ms: u64) -> io::Result<()> {
        if self.backlog_bytes.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let mut backlog = self.backlog.lock();
        let before = backlog.bytes();
        if before == 0 {
            return Ok(());
        }
        let result = backlog.send_to(self.socket.as_fd(), spare);
        if result.is_err() {
            *backlog = SendQueue::default();
        }
        let after = backlog.bytes();
        self.note_backlog(before, after);
        if after < before {
            self.progress_ms.store(now_ms, Ordering::Relaxed);
        }
        if after == 0 {
            self.waiting.connections.fetch_sub(1, Ordering::SeqCst);
        }
        result.map(|_| ())
    }

    fn note_backlog(&self, before: usize, after: usize) {
        self.backlog_bytes.store(after, Ordering::Release);
        if after >= before {
            self.waiting.bytes.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.waiting.bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    /// Whether draining may have to read files.
    pub(crate) fn backlog_has_files(&self) -> bool {
        self.backlog_bytes() > 0 && self.backlog.lock().has_files()
    }

    /// Bytes that wait for the peer to read.
    pub(crate) fn backlog_bytes(&self) -> usize {
        self.backlog_bytes.load(Ordering::Acquire)
    }

    /// When the peer last made room, while there is a backlog.
    pub(crate) fn progress_ms(&self) -> u64 {
        self.progress_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// One more call whose reply comes from elsewhere.
    pub(crate) fn enter(&self) {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
    }

    /// So many of them have been answered.
    pub(crate) fn leave(&self, count: usize) {
        self.in_flight.fetch_sub(count, Ordering::SeqCst);
        // Pairs with `watch`: either the seat sees the lower number, or we see that it watches.
        if self.is_watched.load(Ordering::SeqCst) && self.is_watched.swap(false, Ordering::SeqCst) {
            self.mailbox.post(Message::Look(self.token.load(Ordering::Relaxed)));
        }
    }

    /// From now on a fall of `in_flight` brings a message to the seat. Look at the number again
    /// after this.
    pub(crate) fn watch(&self) {
        self.is_watched.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Ends the connection; its seat notices by the event that this causes. The descriptor is
    /// closed when the last call that knows the connection has ended.
    pub(crate) fn close(&self) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        net::shut_down(&self.socket);
        let mut backlog = self.backlog.lock();
        let before = backlog.bytes();
        if before > 0 {
            *backlog = SendQueue::default();
            self.note_backlog(before, 0);
            self.waiting.connections.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}
