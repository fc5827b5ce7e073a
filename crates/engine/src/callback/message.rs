//! Callbacks as bytes, and what their replies say (RFC 8881 §20, RFC 5531 §9).

use std::sync::Arc;

use steadfast_state::{CallbackSlot, CallbackTarget, FileKey, SessionId, StateId};
use steadfast_wire::nfs4::{
    CALLBACK_COMPOUND, CALLBACK_VERSION, CallbackCompoundHead4, CallbackNotifyLock4Args,
    CallbackOp4, CallbackRecall4Args, CallbackSec4, CallbackSequence4Args, CallbackSequence4Result,
    CompoundReplyHead4, LockOwner4, NfsStat4, StateId4,
};
use steadfast_wire::rpc::{
    AUTH_SYS, AcceptStat, CallHeader, OpaqueAuth, RPC_VERSION, ReplyHeader, ReplyStatus,
};
use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

/// `CB_SEQUENCE` and what is asked.
const OPERATIONS: u32 = 2;

/// What a callback asks for, behind `CB_SEQUENCE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// `CB_NOTIFY_LOCK`: a lock that is waited for may be asked for again.
    LockIsFree { handle: Arc<[u8]>, client: u64, owner: Arc<[u8]> },
    /// `CB_RECALL`: a delegation is to be returned.
    Recall { id: StateId, file: FileKey, handle: Arc<[u8]> },
}

impl Asked {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::LockIsFree { handle, client, owner } => {
                CallbackOp4::NotifyLock.encode(w);
                let lock_owner = LockOwner4 { clientid: *client, owner };
                CallbackNotifyLock4Args { object: handle, lock_owner }.encode(w);
            }
            Self::Recall { id, handle, .. } => {
                CallbackOp4::Recall.encode(w);
                let stateid = StateId4 { seqid: id.seqid, other: id.other };
                CallbackRecall4Args { stateid, truncate: false, fh: handle }.encode(w);
            }
        }
    }
}

/// The credential by which a client is to be called, as it is sent: `AUTH_SYS` if the client takes
/// that, else none; `None` if it takes neither.
pub(crate) fn credential(offered: &[CallbackSec4<'_>]) -> Option<Vec<u8>> {
    let sys = offered.iter().find(|each| matches!(each, CallbackSec4::Sys(_)));
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    if let Some(CallbackSec4::Sys(sys)) = sys {
        let mut body = Vec::new();
        sys.encode(&mut Writer::new(&mut body));
        OpaqueAuth { flavor: AUTH_SYS, body: &body }.encode(&mut w);
    } else if offered.is_empty() || offered.contains(&CallbackSec4::None) {
        OpaqueAuth::NONE.encode(&mut w);
    } else {
        return None;
    }
    Some(bytes)
}

/// The message of a callback.
pub(super) fn call(
    xid: u32,
    target: &CallbackTarget,
    session: SessionId,
    slot: CallbackSlot,
    asked: &Asked,
) -> Vec<u8> {
    let header = CallHeader {
        xid,
        rpcvers: RPC_VERSION,
        prog: target.program,
        vers: CALLBACK_VERSION,
        proc_: CALLBACK_COMPOUND,
        cred: OpaqueAuth::decode(&mut Reader::new(&target.credential)).unwrap_or(OpaqueAuth::NONE),
        verf: OpaqueAuth::NONE,
    };
    let head = CallbackCompoundHead4 {
        tag: &[],
        minorversion: target.minor_version,
        callback_ident: 0,
        operations: OPERATIONS,
    };
    let sequence = CallbackSequence4Args {
        sessionid: session.0,
        sequenceid: slot.sequence,
        slotid: slot.slot,
        highest_slotid: slot.highest_slot,
        cachethis: false,
        referring: Vec::new(),
    };
    let mut message = Vec::with_capacity(256);
    let mut w = Writer::new(&mut message);
    header.encode(&mut w);
    head.encode(&mut w);
    CallbackOp4::Sequence.encode(&mut w);
    sequence.encode(&mut w);
    asked.encode(&mut w);
    message
}

/// What the reply to a callback says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// `CB_SEQUENCE` succeeded; and what became of the operation behind it.
    Sequenced { target_highest_slot: u32, status: NfsStat4 },
    /// It was executed before, and the client has not kept what it said.
    Repeated,
    /// `CB_SEQUENCE` failed with this.
    NotSequenced(NfsStat4),
    /// RPC: the client takes no such callbacks.
    Refused,
    /// RPC: this one was not executed.
    NotExecuted,
}

/// Reads a reply behind its RPC header. `sent` is what it must be of.
///
/// # Errors
/// When it is no reply to that.
pub(super) fn answer(
    header: ReplyHeader<'_>,
    r: &mut Reader<'_>,
    session: SessionId,
    sent: CallbackSlot,
) -> Result<Answer, XdrError> {
    match header.status {
        ReplyStatus::Accepted { stat, .. } => match stat {
            AcceptStat::Success => {}
            // The client has no such program, version or procedure.
            AcceptStat::ProgUnavail | AcceptStat::ProgMismatch { .. } | AcceptStat::ProcUnavail => {
                return Ok(Answer::Refused);
            }
            _ => return Ok(Answer::NotExecuted),
        },
        ReplyStatus::Denied(_) => return Ok(Answer::Refused),
    }
    let head = CompoundReplyHead4::decode(r)?;
    if head.operations == 0 {
        return Ok(Answer::NotSequenced(head.status));
    }
    let other = |value| Err(XdrError::BadValue { what: "CB_SEQUENCE", value });
    if CallbackOp4::decode(r)? != CallbackOp4::Sequence {
        return other(CallbackOp4::Illegal as u32);
    }
    match NfsStat4::decode(r)? {
        NfsStat4::Ok => {}
        NfsStat4::RetryUncachedRep => return Ok(Answer::Repeated),
        status => return Ok(Answer::NotSequenced(status)),
    }
    let told = CallbackSequence4Result::decode(r)?;
    let of = (told.sessionid, told.slotid, told.sequenceid);
    if of != (session.0, sent.slot, sent.sequence) {
        return other(told.sequenceid);
    }
    // The status of the last operation is that of all.
    let (target_highest_slot, status) = (told.target_highest_slotid, head.status);
    Ok(Answer::Sequenced { target_highest_slot, status })
}

#[cfg(test)]
mod tests {
    use steadfast_wire::rpc::AuthSys;

    use super::*;

    const SESSION: SessionId = SessionId(*b"sessionsessionid");
    const SLOT: CallbackSlot = CallbackSlot { slot: 2, sequence: 7, highest_slot: 3 };

    #[test]
    fn a_callback_is_encoded_as_the_rfcs_say() {
        let sys = CallbackSec4::Sys(AuthSys { stamp: 1, ..AuthSys::new(b"m", 2, 3, &[4]) });
        let target = CallbackTarget {
            minor_version: 2,
            program: 0x4000_0000,
            credential: credential(&[CallbackSec4::None, sys]).expect("usable").into(),
        };
        let asked =
            Asked::LockIsFree { handle: b"file"[..].into(), client: 9, owner: b"me"[..].into() };
        assert_eq!(
            call(5, &target, SESSION, SLOT, &asked),
            b"\0\0\0\x05\0\0\0\0\0\0\0\x02\x40\0\0\0\0\0\0\x01\0\0\0\x01\
              \0\0\0\x01\0\0\0\x1c\0\0\0\x01\0\0\0\x01m\0\0\0\0\0\0\x02\0\0\0\x03\0\0\0\x01\0\0\0\x04\
              \0\0\0\0\0\0\0\0\
              \0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x02\
              \0\0\0\x0bsessionsessionid\0\0\0\x07\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0\0\
              \0\0\0\x0d\0\0\0\x04file\0\0\0\0\0\0\0\x09\0\0\0\x02me\0\0"
        );
    }

    #[test]
    fn a_client_that_takes_only_gss_is_not_called() {
        let gss = CallbackSec4::Gss(1, b"a", b"b");
        assert_eq!(credential(std::slice::from_ref(&gss)), None);
        assert_eq!(credential(&[gss, CallbackSec4::None]), Some(vec![0; 8]));
        assert_eq!(credential(&[]), Some(vec![0; 8]));
    }

    fn read(bytes: &[u8]) -> Result<Answer, XdrError> {
        let mut r = Reader::new(bytes);
        let header = ReplyHeader::decode(&mut r)?;
        answer(header, &mut r, SESSION, SLOT)
    }

    const ACCEPTED: &[u8] = b"\0\0\0\x05\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

    #[test]
    fn every_answer_is_told_apart() {
        let of = |rest: &[u8]| read(&[ACCEPTED, rest].concat());
        let sequenced = b"\0\0\x27\x18\0\0\0\0\0\0\0\x02\
            \0\0\0\x0b\0\0\0\0sessionsessionid\0\0\0\x07\0\0\0\x02\0\0\0\x07\0\0\0\x01\
            \0\0\0\x0d\0\0\x27\x18";
        let status = NfsStat4::Delay;
        assert_eq!(of(sequenced), Ok(Answer::Sequenced { target_highest_slot: 1, status }));
        let mut of_another = sequenced.to_vec();
        of_another[39] = 8;
        assert!(of(&of_another).is_err());
        let failed = b"\0\0\x27\x18\0\0\0\0\0\0\0\x01\0\0\0\x0b\0\0\x27\x18";
        assert_eq!(of(failed), Ok(Answer::NotSequenced(NfsStat4::Delay)));
        let version = b"\0\0\x27\x25\0\0\0\0\0\0\0\0";
        assert_eq!(of(version), Ok(Answer::NotSequenced(NfsStat4::MinorVersMismatch)));
        let repeated = b"\0\0\x27\x54\0\0\0\0\0\0\0\x01\0\0\0\x0b\0\0\x27\x54";
        assert_eq!(of(repeated), Ok(Answer::Repeated));
        assert!(of(b"\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x0d\0\0\0\0").is_err());
        assert!(of(b"\0\0\0\0").is_err());
        let mut not_served = ACCEPTED.to_vec();
        not_served[23] = 1;
        assert_eq!(read(&not_served), Ok(Answer::Refused));
        not_served[23] = 5;
        assert_eq!(read(&not_served), Ok(Answer::NotExecuted));
        let denied = b"\0\0\0\x05\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x05";
        assert_eq!(read(denied), Ok(Answer::Refused));
        assert!(read(&denied[..16]).is_err(), "without the reason it is no reply");
    }
}
