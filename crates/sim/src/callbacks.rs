//! A client's side of a session's back channel (RFC 8881 §2.10.6, §20).

use std::collections::BTreeMap;

use steadfast_wire::nfs4::{
    CallbackCompoundHead4, CallbackGetAttr4Args, CallbackNotifyLock4Args, CallbackOp4,
    CallbackRecall4Args, CallbackSequence4Args, CallbackSequence4Result, NfsStat4, StateId4,
};
use steadfast_wire::rpc::CallHeader;
use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use crate::Checked;
use crate::message::unreadable;

/// The program by which a client is called.
pub(crate) const PROGRAM: u32 = 0x4000_0001;
/// `CREATE_SESSION4_FLAG_CONN_BACK_CHAN`.
pub(crate) const HAS_BACK_CHANNEL: u32 = 0x2;
/// `SEQ4_STATUS_CB_PATH_DOWN`, `SEQ4_STATUS_CB_PATH_DOWN_SESSION`.
pub(crate) const PATH_DOWN: u32 = 0x1 | 0x200;
/// `SEQ4_STATUS_BACKCHANNEL_FAULT`.
pub(crate) const BACK_FAULT: u32 = 0x400;
const HIGHEST_SLOT: u32 = 3;

/// What the server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// A delegation is to be returned.
    Recall(StateId4),
    /// An owner may ask for a lock again.
    LockIsFree(Vec<u8>),
    /// How is a file that is delegated to write?
    Asked,
}

/// A slot: the sequence id of its last callback, and the reply without its xid.
type Slot = (u32, Vec<u8>);

/// The back channel of the client's session.
#[derive(Default)]
pub(crate) struct BackChannel {
    session: [u8; 16],
    slots: BTreeMap<u32, Slot>,
}

fn encoded(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut Writer::new(&mut bytes));
    bytes
}

/// A reply that was accepted: the COMPOUND's status, no tag, and so many results.
fn head(w: &mut Writer<'_>, status: NfsStat4, results: u32) {
    for word in [1, 0, 0, 0, 0, status as u32, 0, results] {
        w.u32(word);
    }
}

impl BackChannel {
    /// The client has made a session.
    pub(crate) fn begin(&mut self, session: [u8; 16]) {
        *self = Self { session, slots: BTreeMap::new() };
    }

    /// Takes a callback: `take` says what becomes of it, once for each that is no repetition. The reply.
    pub(crate) fn called(
        &mut self,
        message: &[u8],
        take: impl FnOnce(&Told) -> NfsStat4,
    ) -> Checked<Vec<u8>> {
        let (xid, sequence, told) = read(message).map_err(unreadable)?;
        let (op, its_slot) = (CallbackOp4::Sequence as u32, sequence.slotid);
        let fails = |status: NfsStat4| {
            encoded(|w| {
                head(w, status, 1);
                w.u32(op);
                w.u32(status as u32);
            })
        };
        let last = self.slots.get(&its_slot).map_or(0, |(last, _)| *last);
        let body = if sequence.sessionid != self.session {
            // One of before, which the server has not heard the end of.
            fails(NfsStat4::BadSession)
        } else if its_slot > HIGHEST_SLOT {
            fails(NfsStat4::BadSlot)
        } else if sequence.sequenceid == last && last > 0 {
            self.slots.get(&its_slot).map(|(_, body)| body.clone()).unwrap_or_default()
        } else if sequence.sequenceid != last.wrapping_add(1) {
            fails(NfsStat4::SeqMisordered)
        } else {
            // It does not say: the delegation is recalled.
            let status = if told == Told::Asked { NfsStat4::NotSupp } else { take(&told) };
            let result = CallbackSequence4Result {
                sessionid: self.session,
                sequenceid: sequence.sequenceid,
                slotid: its_slot,
                highest_slotid: HIGHEST_SLOT,
                target_highest_slotid: HIGHEST_SLOT,
            };
            let body = encoded(|w| {
                head(w, status, 2);
                w.u32(op);
                w.u32(NfsStat4::Ok as u32);
                result.encode(w);
                let what = match told {
                    Told::Recall(_) => CallbackOp4::Recall,
                    Told::LockIsFree(_) => CallbackOp4::NotifyLock,
                    Told::Asked => CallbackOp4::GetAttr,
                };
                w.u32(what as u32);
                w.u32(status as u32);
            });
            self.slots.insert(its_slot, (sequence.sequenceid, body.clone()));
            body
        };
        let mut reply = xid.to_be_bytes().to_vec();
        reply.extend(body);
        Ok(reply)
    }
}

/// A callback: its xid, `CB_SEQUENCE`, and what it says.
fn read(message: &[u8]) -> Result<(u32, CallbackSequence4Args, Told), XdrError> {
    let mut r = Reader::new(message);
    let header = CallHeader::decode(&mut r)?;
    let head = CallbackCompoundHead4::decode(&mut r)?;
    let wrong = |value| XdrError::BadValue { what: "callback", value };
    if header.prog != PROGRAM || head.operations != 2 {
        return Err(wrong(header.prog));
    }
    if CallbackOp4::decode(&mut r)? != CallbackOp4::Sequence {
        return Err(wrong(0));
    }
    let sequence = CallbackSequence4Args::decode(&mut r)?;
    let told = match CallbackOp4::decode(&mut r)? {
        CallbackOp4::Recall => Told::Recall(CallbackRecall4Args::decode(&mut r)?.stateid),
        CallbackOp4::NotifyLock => {
            let notice = CallbackNotifyLock4Args::decode(&mut r)?;
            Told::LockIsFree(notice.lock_owner.owner.to_vec())
        }
        CallbackOp4::GetAttr => {
            CallbackGetAttr4Args::decode(&mut r)?;
            Told::Asked
        }
        other => return Err(wrong(other as u32)),
    };
    Ok((header.xid, sequence, told))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(session: u8, sequence: u32) -> Vec<u8> {
        encoded(|w| {
            for word in [9, 0, 2, PROGRAM, 1, 1, 0, 0, 0, 0, 0, 1, 0, 2, 11] {
                w.u32(word);
            }
            let sequence = CallbackSequence4Args {
                sessionid: [session; 16],
                sequenceid: sequence,
                slotid: 0,
                highest_slotid: 0,
                cachethis: false,
                referring: Vec::new(),
            };
            sequence.encode(w);
            w.u32(4);
            let stateid = StateId4 { seqid: 1, other: [7; 12] };
            CallbackRecall4Args { stateid, truncate: false, fh: b"f" }.encode(w);
        })
    }

    #[test]
    fn a_repetition_is_answered_as_it_was_and_not_taken() {
        let mut channel = BackChannel::default();
        channel.begin([1; 16]);
        let mut taken = 0;
        let mut called = |message: &[u8]| {
            let reply = channel.called(message, |_| {
                taken += 1;
                NfsStat4::Ok
            });
            let reply = reply.expect("it can be read");
            (reply, taken)
        };
        let status = |reply: &[u8]| Reader::new(reply.get(24..).unwrap_or(&[])).u32();
        let (first, taken) = called(&call(1, 1));
        assert_eq!((status(&first), taken), (Ok(0), 1));
        assert_eq!(called(&call(1, 1)), (first, 1));
        for (session, sequence, expected) in
            [(1, 3, NfsStat4::SeqMisordered), (2, 2, NfsStat4::BadSession)]
        {
            let (reply, taken) = called(&call(session, sequence));
            assert_eq!((status(&reply), taken), (Ok(expected as u32), 1));
        }
        let (second, taken) = called(&call(1, 2));
        assert_eq!((status(&second), taken), (Ok(0), 2));
    }
}
