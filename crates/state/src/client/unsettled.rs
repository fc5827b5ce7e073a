//! What a request has changed of opens and lock stateids, and may still be taken back if it fails.

use crate::ids::OpenNumber;
use crate::share::{AskedShares, Share};

/// Seqids of a client that may still go back further. The oldest is forgotten.
const FAILED_SEQIDS_MAX: usize = 64;

/// Seqids that a request was the last to raise, and that failed when another one had raised them since: by
/// number, from which, and to which they go back, once that one has failed too.
#[derive(Debug)]
pub(crate) struct FailedSeqids<N>(Vec<(N, u32, u32)>);

impl<N> Default for FailedSeqids<N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<N: Copy + PartialEq> FailedSeqids<N> {
    pub(crate) fn add(&mut self, number: N, from: u32, to: u32) {
        if self.0.len() >= FAILED_SEQIDS_MAX {
            self.0.remove(0);
        }
        self.0.push((number, from, to));
    }

    /// To which a seqid goes back that goes back to this.
    pub(crate) fn lowest(&mut self, number: N, mut seqid: u32) -> u32 {
        while let Some(place) =
            self.0.iter().position(|(of, from, _)| (*of, *from) == (number, seqid))
        {
            (_, _, seqid) = self.0.swap_remove(place);
        }
        seqid
    }

    pub(crate) fn forget(&mut self, number: N) {
        self.0.retain(|(of, ..)| *of != number);
    }
}

/// The OPENs of a client that have added something and are not settled. There are as many as OPENs of requests
/// under way at most: a COMPOUND has up to 64 operations, or 128 in minor version 0.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    serial_next: u64,
    pub(crate) failed: FailedSeqids<OpenNumber>,
    opens: Vec<(u64, OpenNumber, Share)>,
}

impl Unsettled {
    /// An OPEN has asked for a share, which was asked for before or not. Its serial number, if it is to be
    /// taken back.
    pub(crate) fn add(
        &mut self,
        number: OpenNumber,
        share: Share,
        was_asked: bool,
    ) -> Option<(u64, Share)> {
        if was_asked && !self.has(number, share) {
            return None;
        }
        let serial = self.serial_next;
        self.serial_next += 1;
        self.opens.push((serial, number, share));
        Some((serial, share))
    }

    /// Takes one out. Whether nobody else has asked for the share; `None` if it is settled.
    pub(crate) fn take(&mut self, serial: u64) -> Option<bool> {
        let place = self.opens.iter().position(|(it, ..)| *it == serial)?;
        let (_, number, share) = self.opens.swap_remove(place);
        Some(!self.has(number, share))
    }

    /// One stays, and what others have asked for that is the same.
    pub(crate) fn settle(&mut self, serial: u64) {
        if let Some(&(_, number, share)) = self.opens.iter().find(|(it, ..)| *it == serial) {
            self.opens.retain(|(_, of, asked)| (*of, *asked) != (number, share));
        }
    }

    /// An open is as it is now by the will of its owner, or is no more.
    pub(crate) fn settle_all(&mut self, number: OpenNumber) {
        if !self.opens.is_empty() {
            self.opens.retain(|(_, of, _)| *of != number);
        }
    }

    /// An open was downgraded to these by a request whose own serial numbers are told. What others have asked for is
    /// settled: the client is told that it has it.
    pub(crate) fn settle_others(
        &mut self,
        number: OpenNumber,
        asked: AskedShares,
        is_its: impl Fn(u64) -> bool,
    ) {
        let others = self.opens.iter().filter(|(serial, of, _)| *of == number && !is_its(*serial));
        let others: Vec<Share> = others.map(|(.., share)| *share).collect();
        self.opens.retain(|(_, of, share)| {
            *of != number || (asked.has(*share) && !others.contains(share))
        });
    }

    fn has(&self, number: OpenNumber, share: Share) -> bool {
        self.opens.iter().any(|(_, of, asked)| (*of, *asked) == (number, share))
    }
}
