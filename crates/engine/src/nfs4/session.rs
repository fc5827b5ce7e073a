//! SEQUENCE (RFC 8881 §18.46).

use steadfast_state::{Replayed, SequenceTold, Sequenced, SessionId, SlotInUse};
use steadfast_wire::nfs4::{NfsStat4, Sequence4Args};
use steadfast_xdr::{Decode, Reader, Writer};

use super::status::OrStatus;
use crate::compound::Run;
use crate::reply_cache::digest;

/// Bytes of SEQUENCE's result behind its status.
pub(crate) const TOLD_BYTES: usize = 36;

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

/// Decodes the arguments, and asks the session for the slot. The reply has this many bytes at least.
pub(crate) fn sequence(
    run: &Run<'_, '_>,
    r: &mut Reader<'_>,
    reply_bytes: usize,
) -> Result<Begun, NfsStat4> {
    let arguments = Sequence4Args::decode(r).map_err(|_| NfsStat4::BadXdr)?;
    let id = SessionId(arguments.sessionid);
    let session = run.nfs4.state.session(&id).ok_or(NfsStat4::BadSession)?;
    // What fails must not have changed anything of its slot.
    let fore = session.fore();
    if reply_bytes > fore.response_bytes_max as usize {
        return Err(NfsStat4::RepTooBig);
    }
    if arguments.cachethis && reply_bytes > fore.response_bytes_cached_max as usize {
        return Err(NfsStat4::RepTooBigToCache);
    }
    let message = run.call.message.bytes;
    let request = steadfast_state::Sequence {
        slot: arguments.slotid,
        sequence: arguments.sequenceid,
        highest_slot: arguments.highest_slotid,
        is_kept: arguments.cachethis,
        request_bytes: u32::try_from(message.len()).unwrap_or(u32::MAX),
        operations: run.count,
        digest: digest(message),
    };
    let begun = session.begin(run.call.now_ms, &request).or_status()?;
    let told = Told { arguments, told: session.told() };
    Ok(match begun {
        Sequenced::New(slot) => Begun::New(slot, told),
        Sequenced::Replay(replayed) => Begun::Replay(replayed, told),
        Sequenced::InProgress => Begun::InProgress,
    })
}
