//! The sequence of one owner's requests (RFC 7530 §9.1.7): each is executed once, and the last reply
//! is kept.

use steadfast_vfs::StorageHandle;

use crate::StateError;
use crate::ids::OpenNumber;

/// A request in the sequence of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerRequest {
    /// Its sequence id.
    pub seqid: u32,
    /// Number of the operation.
    pub operation: u32,
    /// Tells its arguments from others.
    pub digest: u64,
    /// What told them in earlier versions, if that was otherwise: the process before this one may have kept its
    /// reply by that. It is not kept itself.
    pub earlier_digest: Option<u64>,
}

impl OwnerRequest {
    /// Whether it is the one again of which a reply is kept.
    fn is_again(&self, kept: &Self) -> bool {
        (self.seqid, self.operation) == (kept.seqid, kept.operation)
            && (self.digest == kept.digest || self.earlier_digest == Some(kept.digest))
    }
}

/// What an operation was answered, for its repetition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerReply {
    /// The status, by its number.
    pub status: u32,
    /// What followed the status.
    pub result: Box<[u8]>,
    /// What became the current object: share, and its handle there.
    pub object: Option<(u64, StorageHandle)>,
}

/// What of an owner outlives the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerImage {
    pub(crate) is_lock: bool,
    pub(crate) seqid: u32,
    pub(crate) last: Option<(OwnerRequest, OwnerReply)>,
    pub(crate) is_confirmed: bool,
    pub(crate) unconfirmed: Option<OpenNumber>,
    pub(crate) closed: Option<OpenNumber>,
}

/// Where an owner is in its sequence.
#[derive(Debug)]
pub(crate) struct Sequence {
    seqid: u32,
    last: Option<(OwnerRequest, OwnerReply)>,
    /// A request is being executed.
    is_busy: bool,
}

/// What a request is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    Next,
    /// The last one again.
    Again(OwnerReply),
}

impl Sequence {
    /// A sequence that begins with this request, which is being executed.
    pub(crate) fn begun_by(request: &OwnerRequest) -> Self {
        Self { seqid: request.seqid.wrapping_sub(1), last: None, is_busy: true }
    }

    /// A sequence whose last request was answered otherwise.
    pub(crate) fn at(seqid: u32) -> Self {
        Self { seqid, last: None, is_busy: false }
    }

    /// A sequence whose last request was answered so.
    pub(crate) fn restored(seqid: u32, last: Option<(OwnerRequest, OwnerReply)>) -> Self {
        Self { seqid, last, is_busy: false }
    }

    /// The last request that was executed.
    pub(crate) fn executed(&self) -> (u32, Option<(OwnerRequest, OwnerReply)>) {
        (self.seqid, self.last.clone())
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Judges a request. The next one is not begun by that.
    pub(crate) fn judge(&self, request: &OwnerRequest) -> Result<Judged, StateError> {
        if self.is_busy {
            return Err(StateError::OwnerBusy);
        }
        if let Some((last, reply)) = self.last.as_ref().filter(|(last, _)| request.is_again(last)) {
            debug_assert_eq!(last.seqid, self.seqid, "what is kept is the last");
            return Ok(Judged::Again(reply.clone()));
        }
        self.require_next(request.seqid).map(|()| Judged::Next)
    }

    /// Whether a sequence id is the next one.
    pub(crate) fn require_next(&self, seqid: u32) -> Result<(), StateError> {
        if seqid == self.seqid.wrapping_add(1) { Ok(()) } else { Err(StateError::BadSequence) }
    }

    pub(crate) fn begin(&mut self) {
        self.is_busy = true;
    }

    /// The request that was begun is answered, and has used its sequence id.
    pub(crate) fn finish(&mut self, request: &OwnerRequest, reply: OwnerReply) {
        *self = Self { seqid: request.seqid, last: Some((*request, reply)), is_busy: false };
    }

    /// The last request gets another reply, if it is this one.
    pub(crate) fn answer_otherwise(&mut self, request: &OwnerRequest, reply: OwnerReply) -> bool {
        match &mut self.last {
            Some((last, kept)) if request.is_again(last) => *kept = reply,
            _ => return false,
        }
        true
    }

    /// The last request, if it is this one, has not used its sequence id after all: it may come again.
    pub(crate) fn unuse(&mut self, request: &OwnerRequest) -> bool {
        let is_last = self.last.as_ref().is_none_or(|(last, _)| request.is_again(last));
        if self.is_busy || self.seqid != request.seqid || !is_last {
            return false;
        }
        *self = Self::at(request.seqid.wrapping_sub(1));
        true
    }

    /// It has not used its sequence id.
    pub(crate) fn give_up(&mut self) {
        self.is_busy = false;
    }

    /// A request that another owner's sequence keeps the reply of has used the next sequence id.
    pub(crate) fn advance(&mut self, seqid: u32) {
        *self = Self { seqid, last: None, is_busy: self.is_busy };
    }
}
