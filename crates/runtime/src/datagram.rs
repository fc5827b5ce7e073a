//! UDP: datagrams in batches, replies from the address that was asked.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use steadfast_engine::{Peer, Transport};
use steadfast_sys::net::{
    self, DATAGRAM_BYTES_MAX, DATAGRAMS_MAX, LocalAddress, Outgoing, Received,
};

use crate::log_limit::{LogKind, LogLimits, limited};

/// Room for one datagram, in bytes: more than UDP can carry.
pub(crate) const SLOT_BYTES: usize = 64 << 10;
/// Room for one receive, in bytes.
pub(crate) const BUFFER_BYTES: usize = SLOT_BYTES * DATAGRAMS_MAX;

/// A seat's UDP socket.
#[derive(Debug)]
pub(crate) struct DatagramSocket {
    pub(crate) socket: OwnedFd,
    /// What it is bound to.
    pub(crate) local: SocketAddr,
}

/// Where a reply to a datagram goes.
#[derive(Clone, Debug)]
pub(crate) struct ReplyAddress {
    pub(crate) socket: Arc<DatagramSocket>,
    pub(crate) to: SocketAddr,
    pub(crate) from: Option<LocalAddress>,
}

impl ReplyAddress {
    pub(crate) fn new(socket: &Arc<DatagramSocket>, received: &Received) -> Self {
        Self { socket: Arc::clone(socket), to: received.from, from: received.to }
    }

    pub(crate) fn peer(&self) -> Peer {
        let local_ip = self.from.map_or(self.socket.local.ip(), |from| from.ip.to_canonical());
        let local = SocketAddr::new(local_ip, self.socket.local.port());
        Peer::new(net::canonical(self.to), local, Transport::Udp)
    }
}

/// Replies gathered to be sent in one system call.
#[derive(Debug, Default)]
pub(crate) struct DatagramReplies {
    bytes: Vec<u8>,
    replies: Vec<(Range<usize>, ReplyAddress)>,
}

impl DatagramReplies {
    pub(crate) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn push(&mut self, reply: &[u8], address: ReplyAddress, log: &LogLimits) {
        if reply.len() > DATAGRAM_BYTES_MAX {
            limited!(
                log,
                LogKind::Datagram,
                warn,
                "a reply of {} bytes to {} does not fit a datagram and was dropped; mount with \
                 a smaller rsize or proto=tcp",
                reply.len(),
                address.to
            );
            return;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(reply);
        self.replies.push((start..self.bytes.len(), address));
    }

    pub(crate) fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        let shift = self.bytes.len();
        self.bytes.append(&mut other.bytes);
        self.replies.extend(
            other
                .replies
                .drain(..)
                .map(|(range, address)| (range.start + shift..range.end + shift, address)),
        );
    }

    /// Sends all. What the kernel does not take is lost, as datagrams are: clients ask again.
    pub(crate) fn send(&mut self, log: &LogLimits) {
        let mut rest = self.replies.as_slice();
        while let Some((_, first)) = rest.first() {
            // Replies of one send go out by one socket.
            let count = rest
                .iter()
                .take(DATAGRAMS_MAX)
                .take_while(|(_, address)| Arc::ptr_eq(&address.socket, &first.socket))
                .count();
            let (now, later) = rest.split_at(count);
            let outgoing: Vec<Outgoing<'_>> = now
                .iter()
                .map(|(range, address)| Outgoing {
                    bytes: self.bytes.get(range.clone()).unwrap_or(&[]),
                    to: address.to,
                    from: address.from,
                })
                .collect();
            let sent = match net::send_datagrams(&first.socket.socket, &outgoing) {
                Ok(sent) => sent.max(1),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(error) => {
                    limited!(
                        log,
                        LogKind::Datagram,
                        debug,
                        "cannot send a reply to {}: {error}",
                        first.to
                    );
                    1
                }
            };
            rest = if sent < now.len() { rest.split_at(sent).1 } else { later };
        }
        self.replies.clear();
        self.bytes.clear();
        if self.bytes.capacity() > 4 * BUFFER_BYTES {
            self.bytes = Vec::new();
        }
    }
}
