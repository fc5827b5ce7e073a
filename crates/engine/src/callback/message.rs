//! Callbacks as bytes, and what their replies say (RFC 8881 §20, RFC 5531 §9).

use std::sync::Arc;

use steadfast_state::{CallbackSlot, CallbackTarget, FileKey, HolderSays, SessionId, StateId};
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, CALLBACK_COMPOUND, CALLBACK_VERSION, CallbackCompoundHead4,
    CallbackGetAttr4Args, CallbackGetAttr4Result, CallbackNotifyLock4Args, CallbackOp4,
    CallbackRecall4Args, CallbackSec4, CallbackSequence4Args, CallbackSequence4Result,
    CompoundReplyHead4, Fattr4, LockOwner4, NfsStat4, StateId4,
};
use steadfast_wire::rpc::{
    AUTH_SYS, AcceptStat, CallHeader, OpaqueAuth, RPC_VERSION, ReplyHeader, ReplyStatus,
};
use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

/// `CB_SEQUENCE` and what is asked.
const OPERATIONS: u32 = 2;

/// What a callback asks for, behind `CB_SEQUENCE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// `CB_NOTIFY_LOCK`: a lock that is waited for may be asked for again.
    LockIsFree { handle: Arc<[u8]>, client: u64, owner: Arc<[u8]> },
    /// `CB_RECALL`: a delegation is to be returned.
    Recall { id: StateId, file: FileKey, handle: Arc<[u8]> },
    /// `CB_GETATTR`: the holder of a delegation to write is asked how the file is, by the question of this number.
    Attributes { id: StateId, file: FileKey, handle: Arc<[u8]>, question: u64 },
}

/// What a holder is asked for.
const OF_HOLDER: Bitmap4 = Bitmap4::of(&[Attribute4::Change, Attribute4::Size]);
/// No file is longer: local processes know sizes of 63 bits.
const FILE_BYTES_MAX: u64 = i64::MAX.cast_unsigned();

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
            Self::Attributes { handle, .. } => {
                CallbackOp4::GetAttr.encode(w);
                CallbackGetAttr4Args { fh: handle, attr_request: OF_HOLDER }.encode(w);
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
    /// `CB_SEQUENCE` succeeded; what became of the operation behind it; and what a holder says of its file,
    /// if it was asked that and has answered nothing else.
    Sequenced { target_highest_slot: u32, status: NfsStat4, says: Option<HolderSays> },
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
    let says = holder_says(r).ok().flatten();
    Ok(Answer::Sequenced { target_highest_slot, status, says })
}

/// Reads what is behind the result of `CB_SEQUENCE`. `None` if it is no answer to the question, or nonsense.
///
/// # Errors
/// When it ends too soon.
fn holder_says(r: &mut Reader<'_>) -> Result<Option<HolderSays>, XdrError> {
    let operation = CallbackOp4::decode(r)?;
    if operation != CallbackOp4::GetAttr || NfsStat4::decode(r)? != NfsStat4::Ok {
        return Ok(None);
    }
    let Fattr4 { attrmask, attr_vals } = CallbackGetAttr4Result::decode(r)?.obj_attributes;
    let mut values = Reader::new(attr_vals);
    if attrmask != OF_HOLDER || !r.is_empty() {
        return Ok(None);
    }
    let says = HolderSays { change: values.u64()?, size: values.u64()? };
    Ok(Some(says).filter(|says| values.is_empty() && says.size <= FILE_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use steadfast_vfs::StorageHandle;
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
        let target_highest_slot = 1;
        let told = Answer::Sequenced { target_highest_slot, status, says: None };
        assert_eq!(of(sequenced), Ok(told));
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

    #[test]
    fn only_what_was_asked_for_is_an_answer_of_a_holder() {
        let asked = Asked::Attributes {
            id: StateId { seqid: 1, other: [2; 12] },
            file: FileKey { file_system: 1, object: StorageHandle::new(&[3]).expect("short") },
            handle: b"file"[..].into(),
            question: 1,
        };
        let mut question = Vec::new();
        asked.encode(&mut Writer::new(&mut question));
        assert_eq!(question, b"\0\0\0\x03\0\0\0\x04file\0\0\0\x01\0\0\0\x18");

        let sequenced = b"\0\0\0\0\0\0\0\0\0\0\0\x02\
            \0\0\0\x0b\0\0\0\0sessionsessionid\0\0\0\x07\0\0\0\x02\0\0\0\x07\0\0\0\x01";
        let says = |rest: &[u8]| match read(&[ACCEPTED, sequenced, rest].concat()) {
            Ok(Answer::Sequenced { says, .. }) => says,
            other => panic!("{other:?}"),
        };
        let head = b"\0\0\0\x03\0\0\0\0";
        let with = |rest: &[u8]| says(&[head, rest].concat());
        let right = b"\0\0\0\x01\0\0\0\x18\0\0\0\x10\
            \xff\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06";
        let known = HolderSays { change: 0xff00_0000_0000_0005, size: 6 };
        assert_eq!(with(right), Some(known));
        // Linux sends all words that it knows, though nothing is in them.
        for words in 2..6_u8 {
            let mut longer = vec![0, 0, 0, words, 0, 0, 0, 0x18];
            longer.resize(4 + 4 * usize::from(words), 0);
            let with_values = |bitmap: &[u8]| with(&[bitmap, &right[8..]].concat());
            assert_eq!(with_values(&longer), Some(known), "{words}");
            *longer.last_mut().expect("words") = 1;
            assert_eq!(with_values(&longer), None, "{words}");
        }
        // One word of it is another one, or something is missing or too much.
        for at in (0..12).chain([20]) {
            let mut wrong = right.to_vec();
            wrong[at] |= 0x80;
            assert_eq!(with(&wrong), None, "{at}");
        }
        for at in 0..right.len() {
            assert_eq!(with(&right[..at]), None, "{at}");
        }
        assert_eq!(with(&[&right[..], &[0; 4]].concat()), None);
        let less = b"\0\0\0\x01\0\0\0\x10\0\0\0\x08\0\0\0\0\0\0\0\x06";
        let more = b"\0\0\0\x01\0\0\0\x1a\0\0\0\x14\
            \0\0\0\x02\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06";
        let longer = b"\0\0\0\x01\0\0\0\x18\0\0\0\x14\
            \0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0\0";
        for wrong in [&less[..], &more[..], &longer[..]] {
            assert_eq!(with(wrong), None);
        }
        assert_eq!(says(b"\0\0\0\x03\0\0\x27\x11"), None, "an error");
        assert_eq!(
            says(&[b"\0\0\0\x04\0\0\0\0", &right[..]].concat()),
            None,
            "of another operation"
        );
        assert_eq!(says(b""), None);
    }
}
