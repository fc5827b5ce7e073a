//! A TCP connection as everybody shares it: who the peer is, and the way replies go out.
//!
//! What is being received belongs to the seat ([`crate::seat`]); replies may be sent by any
//! thread: a worker, one that lost its seat meanwhile, or a flusher.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use steadfast_engine::Peer;
use steadfast_sys::net;

use crate::living::Living;
use crate::mailbox::{Mailbox, Message};
use crate::options::ServerOptions;
use crate::send_queue::{SendQueue, Sent, SpareBuffers};

/// Bytes and connections that wait for peers, over the whole server. Touched only when a socket
/// takes no more, and when a large call comes in parts.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Of replies.
    pub(crate) reply_bytes: AtomicUsize,
    /// Of calls that are kept: received in part, left to a later turn, or suspended.
    pub(crate) call_bytes: AtomicUsize,
    pub(crate) connections: AtomicUsize,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Peer,
    /// What its seat knows it by.
    pub(crate) token: AtomicU64,
    /// When it was accepted.
    pub(crate) accepted: Instant,
    mailbox: Arc<Mailbox>,
    waiting: Arc<Waiting>,
    living: Arc<Living>,
    /// Replies that the socket did not take. Whoever sends holds it, perhaps for as long as a
    /// disk takes to give what it had in memory before, so nobody waits for it: replies that
    /// come meanwhile are left in `arrived`, the seat's wish to look again in `wants_look`, and
    /// the holder sees to both when it lets go ([`Connection::release`]).
    backlog: Mutex<SendQueue>,
    /// Held for moments only.
    arrived: Mutex<SendQueue>,
    has_arrived: AtomicBool,
    wants_look: AtomicBool,
    /// Of the backlog and what arrived.
    backlog_bytes: AtomicUsize,
    backlog_has_files: AtomicBool,
    /// When the peer last made room, in ms.
    progress_ms: AtomicU64,
    /// Calls parked, suspended, or being executed by a worker that lent its seat; and batches whose
    /// replies are batched.
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
        living: Arc<Living>,
    ) -> Self {
        Self {
            socket,
            peer,
            accepted: Instant::now(),
            living,
            token: AtomicU64::new(u64::MAX),
            mailbox,
            waiting,
            backlog: Mutex::default(),
            arrived: Mutex::default(),
            has_arrived: AtomicBool::new(false),
            wants_look: AtomicBool::new(false),
            backlog_has_files: AtomicBool::new(false),
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
        let backlog = self.backlog.try_lock().or_else(|| {
            let mut arrived = self.arrived.lock();
            self.add_waiting(replies.bytes());
            arrived.append(replies, &mut SpareBuffers::default());
            self.has_arrived.store(true, Ordering::Relaxed);
            drop(arrived);
            // Pairs with `release`: it sees what has arrived, or we see that it has let go.
            fence(Ordering::SeqCst);
            self.backlog.try_lock()
        });
        if let Some(mut backlog) = backlog {
            self.send_all(&mut backlog, replies, spare, now_ms);
            self.release(backlog, spare, now_ms);
        }
    }

    /// Sends what the socket did not take before, unless somebody else does: then the seat is
    /// told to look again.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn drain(&self, spare: &mut SpareBuffers, now_ms: u64) -> io::Result<()> {
        let backlog = self.backlog.try_lock().or_else(|| {
            self.wants_look.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            self.backlog.try_lock()
        });
        let Some(mut backlog) = backlog else { return Ok(()) };
        let before = backlog.bytes();
        let mut result = Ok(());
        if before > 0 {
            result = backlog.send_to(self.socket.as_fd(), spare).map(|_| ());
            if result.is_err() {
                *backlog = SendQueue::default();
            }
            let after = backlog.bytes();
            self.subtract_waiting(before - after);
            if after < before {
                self.progress_ms.store(now_ms, Ordering::Relaxed);
            }
            if after == 0 {
                self.waiting.connections.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.release(backlog, spare, now_ms);
        result
    }

    /// With the backlog held: what has arrived goes with `replies`.
    fn send_all(
        &self,
        backlog: &mut SendQueue,
        replies: &mut SendQueue,
        spare: &mut SpareBuffers,
        now_ms: u64,
    ) {
        if self.has_arrived.load(Ordering::Relaxed) {
            let mut arrived = self.arrived.lock();
            self.has_arrived.store(false, Ordering::Relaxed);
            self.subtract_waiting(arrived.bytes());
            replies.append(&mut arrived, spare);
        }
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
                    self.shut();
                    return;
                }
            }
        }
        self.add_waiting(replies.bytes());
        // Buffers that may be much larger than what is in them must not be kept unseen.
        replies.shrink();
        backlog.append(replies, &mut SpareBuffers::default());
    }

    /// Lets the backlog go, and does what others asked for while it was held.
    fn release<'b>(
        &'b self,
        mut backlog: MutexGuard<'b, SendQueue>,
        spare: &mut SpareBuffers,
        now_ms: u64,
    ) {
        loop {
            if self.is_closed() {
                self.discard(&mut backlog);
            }
            self.backlog_has_files.store(backlog.has_files(), Ordering::Relaxed);
            drop(backlog);
            fence(Ordering::SeqCst);
            if self.wants_look.load(Ordering::Relaxed)
                && self.wants_look.swap(false, Ordering::SeqCst)
            {
                self.mailbox.post(Message::Look(self.token.load(Ordering::Relaxed)));
            }
            let has_more = self.has_arrived.load(Ordering::Relaxed)
                || (self.is_closed() && self.backlog_bytes() > 0);
            // Who holds it now sees to it.
            let Some(next) = has_more.then(|| self.backlog.try_lock()).flatten() else { return };
            backlog = next;
            self.send_all(&mut backlog, &mut SendQueue::default(), spare, now_ms);
        }
    }

    fn discard(&self, backlog: &mut SendQueue) {
        let bytes = backlog.bytes();
        if bytes > 0 {
            *backlog = SendQueue::default();
            self.subtract_waiting(bytes);
            self.waiting.connections.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn add_waiting(&self, bytes: usize) {
        self.backlog_bytes.fetch_add(bytes, Ordering::AcqRel);
        self.waiting.reply_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn subtract_waiting(&self, bytes: usize) {
        self.backlog_bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.waiting.reply_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether draining may have to read files.
    pub(crate) fn backlog_has_files(&self) -> bool {
        self.backlog_has_files.load(Ordering::Relaxed)
    }

    /// Bytes that wait for the peer to read.
    pub(crate) fn backlog_bytes(&self) -> usize {
        self.backlog_bytes.load(Ordering::Acquire)
    }

    /// When the peer last made room, while there is a backlog.
    pub(crate) fn progress_ms(&self) -> u64 {
        self.progress_ms.load(Ordering::Relaxed)
    }

    /// Whether further calls of the peer are to be received and executed: not while it reads
    /// too slowly, or too many of its calls are parked. When all backlogs together are too large
    /// one that has any must wait, however steadily it is read.
    pub(crate) fn may_send_calls(&self, options: &ServerOptions) -> bool {
        let backlog_bytes = self.backlog_bytes();
        let is_crowded =
            || self.waiting.reply_bytes.load(Ordering::Relaxed) > options.waiting_bytes_max;
        backlog_bytes < options.reply_backlog_bytes_max
            && self.in_flight() < options.calls_in_flight_max
            && (backlog_bytes == 0 || !is_crowded())
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// One more call whose reply comes from elsewhere, or later.
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

    /// Whether the peer has closed it, though what it sent before may not be read yet.
    pub(crate) fn is_left(&self) -> bool {
        self.is_closed() || net::peer_life(&self.socket).is_ok_and(|life| !life.is_established)
    }

    /// Ends the connection; its seat notices by the event that this causes. The descriptor is
    /// closed when the last call that knows the connection has ended.
    pub(crate) fn close(&self) {
        self.shut();
        fence(Ordering::SeqCst);
        // Whoever holds the backlog discards it when letting go.
        if let Some(backlog) = self.backlog.try_lock() {
            self.release(backlog, &mut SpareBuffers::default(), 0);
        }
    }

    fn shut(&self) {
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            net::shut_down(&self.socket);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
        self.living.remove(self.peer.connection());
        debug_assert_eq!(self.backlog_bytes(), 0, "bytes that nobody waits for any more");
    }
}
