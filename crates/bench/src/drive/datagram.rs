//! Calls over UDP: kept until their reply comes, and sent again when none does.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::AsFd;

/// How long the first reply is waited for: 0.7 s, as NFS clients of all times (`timeo=7`).
const FIRST_WAIT_NS: u64 = 700_000_000;
/// Each further wait is twice as long, up to this.
const WAIT_NS_MAX: u64 = 11_200_000_000;
/// How often it is looked whose reply is overdue.
const LOOK_EVERY_NS: u64 = 20_000_000;

#[derive(Debug, Default)]
struct Kept {
    message: Vec<u8>,
    /// When it is to be sent again; `None` when it was answered.
    due_ns: Option<u64>,
    wait_ns: u64,
}

/// The calls of a thread's lanes.
#[derive(Debug)]
pub(super) struct Resender {
    lanes: Vec<Kept>,
    next_look_ns: u64,
}

impl Resender {
    pub(super) fn new(lanes: usize) -> Self {
        Self { lanes: (0..lanes).map(|_| Kept::default()).collect(), next_look_ns: 0 }
    }

    /// Room for the call that a lane makes now.
    pub(super) fn keep(&mut self, lane: usize, now_ns: u64) -> Option<&mut Vec<u8>> {
        let kept = self.lanes.get_mut(lane)?;
        kept.message.clear();
        kept.wait_ns = FIRST_WAIT_NS;
        kept.due_ns = Some(now_ns + FIRST_WAIT_NS);
        Some(&mut kept.message)
    }

    /// The lane's call was answered.
    pub(super) fn forget(&mut self, lane: usize) {
        if let Some(kept) = self.lanes.get_mut(lane) {
            kept.due_ns = None;
        }
    }

    /// A lane whose call has to be sent again, and the call; to be asked until there is none.
    pub(super) fn next_overdue(&mut self, now_ns: u64) -> Option<(usize, &[u8])> {
        if now_ns < self.next_look_ns {
            return None;
        }
        let is_overdue = |kept: &Kept| kept.due_ns.is_some_and(|due| due <= now_ns);
        let Some(lane) = self.lanes.iter().position(is_overdue) else {
            self.next_look_ns = now_ns + LOOK_EVERY_NS;
            return None;
        };
        let kept = self.lanes.get_mut(lane)?;
        kept.wait_ns = (kept.wait_ns * 2).min(WAIT_NS_MAX);
        kept.due_ns = Some(now_ns + kept.wait_ns);
        Some((lane, &kept.message))
    }
}

/// Sends a datagram. One that the socket does not take is lost, as on the way, and sent again
/// when its reply does not come.
pub(super) fn send(socket: impl AsFd, message: &[u8]) -> io::Result<()> {
    match steadfast_sys::net::send(socket, &[IoSlice::new(message)], false) {
        Ok(_) => Ok(()),
        Err(error) if is_passing(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether a socket's error is nothing but a loss: refused tells of an earlier datagram, which
/// came when the server's port was closed.
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_sent_again_at_growing_distances_until_they_are_answered() {
        let mut resender = Resender::new(3);
        resender.keep(1, 0).unwrap().extend_from_slice(b"call");
        let mut sent_again = Vec::new();
        for now_ns in (0..60_000_000_000_u64).step_by(LOOK_EVERY_NS as usize) {
            while let Some((lane, message)) = resender.next_overdue(now_ns) {
                assert_eq!((lane, message), (1, &b"call"[..]));
                sent_again.push(now_ns / 100_000_000);
            }
        }
        assert_eq!(sent_again, [7, 21, 49, 105, 217, 329, 441, 553]);
        resender.forget(1);
        assert!(resender.next_overdue(600_000_000_000).is_none());
    }
}
