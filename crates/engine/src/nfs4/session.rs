//! SEQUENCE (RFC 8881 §18.46).

use std::sync::Arc;

use steadfast_state::{Replayed, SequenceTold, Sequenced, Session, SessionId, SlotInUse};
use steadfast_wire::nfs4::{NfsStat4, Sequence4Args};
use steadfast_xdr::{Decode, Reader, Writer};

use super::status::OrStatus;
use crate::compound::Run;
use crate::reply_cache::digest;

/// Bytes of SEQUENCE's result behind its status.
pub(crate) const TOLD_BYTES: usize = 36;

/// `SEQ4_STATUS_RESTART_RECLAIM_NEEDED` (§18.46.3).
const RESTART_RECLAIM_NEEDED: u32 = 0x100;

/// What came of SEQUENCE.
pub(crate) enum Begun {
    /// The request is new: it uses this slot until it ends.
    New(SlotInUse, Told),
    /// It is a retransmission.
    Replay(Replayed, Told),
    /// It is a retransmission of a request that is being executed.
    InProgress,
}

/// The result of SEQUENCE.
pub(crate) struct Told {
    arguments: Sequence4Args,
    told: SequenceTold,
}

impl Told {
    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        let Sequence4Args { sessionid, sequenceid, slotid, .. } = &self.arguments;
        w.fixed_opaque(sessionid);
        w.u32(*sequenceid);
        w.u32(*slotid);
        w.u32(self.told.highest_slot);
        w.u32(self.told.target_highest_slot);
        w.u32(self.told.status_flags);
    }
}

/// A request of a slot.
pub(crate) struct Request {
    arguments: Sequence4Args,
    session: Arc<Session>,
    sequence: steadfast_state::Sequence,
}

impl Request {
    /// Decodes the arguments, and finds the session.
    pub(crate) fn decode(run: &Run<'_, '_>, r: &mut Reader<'_>) -> Result<Self, NfsStat4> {
        let arguments = Sequence4Args::decode(r).map_err(|_| NfsStat4::BadXdr)?;
        let id = SessionId(arguments.sessionid);
        let session = run.nfs4.state.session(&id).ok_or(NfsStat4::BadSession)?;
        let message = run.call.message.bytes;
        let sequence = steadfast_state::Sequence {
            slot: arguments.slotid,
            sequence: arguments.sequenceid,
            highest_slot: arguments.highest_slotid,
            is_kept: arguments.cachethis,
            request_bytes: u32::try_from(message.len()).unwrap_or(u32::MAX),
            operations: run.count,
            digest: digest(message),
        };
        Ok(Self { arguments, session, sequence })
    }

    /// Whether the session takes a reply of so many bytes. What fails must not have changed anything
    /// of its slot.
    pub(crate) fn require_room(&self, reply_bytes: usize) -> Result<(), NfsStat4> {
        let fore = self.session.fore();
        if reply_bytes > fore.response_bytes_max as usize {
            return Err(NfsStat4::RepTooBig);
        }
        if self.arguments.cachethis && reply_bytes > fore.response_bytes_cached_max as usize {
            return Err(NfsStat4::RepTooBigToCache);
        }
        Ok(())
    }

    /// Asks for the slot.
    pub(crate) fn begin(&self, run: &Run<'_, '_>) -> Result<Begun, NfsStat4> {
        let begun = self.session.begin(run.call.now_ms, &self.sequence).or_status()?;
        let mut told = Told { arguments: self.arguments, told: self.session.told() };
        let client = self.session.client();
        if !client.has_completed_reclaim()
            && run.nfs4.state.may_reclaim(run.call.now_ms, client).is_ok()
        {
            told.told.status_flags |= RESTART_RECLAIM_NEEDED;
        }
        Ok(match begun {
            Sequenced::New(slot) => Begun::New(slot, told),
            Sequenced::Replay(replayed) => Begun::Replay(replayed, told),
            Sequenced::InProgress => Begun::InProgress,
        })
    }

    /// Session and number of the slot.
    pub(crate) fn slot(&self) -> (SessionId, u32) {
        (*self.session.id(), self.sequence.slot)
    }
}
