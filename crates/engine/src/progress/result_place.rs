//! Where the parts of a COMPOUND's result lie: status, tag, count, results.

use steadfast_wire::nfs4::NfsStat4;
use steadfast_xdr::Writer;

/// Bytes of an operation's number and status.
pub(crate) const OP_HEAD_BYTES: usize = 8;

/// A result that is being made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResultPlace {
    /// Where the status is.
    status_at: usize,
    /// Where the count of results is.
    count_at: usize,
}

impl ResultPlace {
    /// Begins a result without operations.
    pub(crate) fn begin(reply: &mut Vec<u8>, tag: &[u8]) -> Self {
        let status_at = reply.len();
        let mut w = Writer::new(reply);
        w.u32(NfsStat4::Ok as u32);
        w.opaque(tag);
        let count_at = reply.len();
        Writer::new(reply).u32(0);
        Self { status_at, count_at }
    }

    /// Of a result that was made before, which begins with it.
    pub(crate) fn in_result(result: &[u8]) -> Self {
        let tag_bytes = (word(result, 4) as usize).next_multiple_of(4);
        Self { status_at: 0, count_at: 8 + tag_bytes }
    }

    /// Status and count of a result.
    pub(crate) fn ended(self, reply: &[u8]) -> (u32, u32) {
        (word(reply, self.status_at), word(reply, self.count_at))
    }

    /// Where its operations begin.
    pub(crate) fn operations_at(self) -> usize {
        self.count_at + 4
    }

    /// Sets status and count.
    pub(crate) fn end(self, reply: &mut [u8], status: u32, count: u32) {
        set(reply, self.status_at, status);
        set(reply, self.count_at, count);
    }
}

/// Overwrites a word.
pub(crate) fn set(reply: &mut [u8], at: usize, word: u32) {
    if let Some(place) = reply.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>) {
        *place = word.to_be_bytes();
    }
}

/// Reads a word.
pub(crate) fn word(reply: &[u8], at: usize) -> u32 {
    let place = reply.get(at..).and_then(<[u8]>::first_chunk::<4>);
    place.map_or(0, |word| u32::from_be_bytes(*word))
}
