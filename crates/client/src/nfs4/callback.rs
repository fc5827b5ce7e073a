//! Callbacks as a client takes them (RFC 8881 §20).

use steadfast_wire::nfs4::{
    CallbackCompoundHead4, CallbackNotifyLock4Args, CallbackOp4, CallbackSequence4Args,
    CallbackSequence4Result, NfsStat4,
};
use steadfast_wire::rpc::{AcceptStat, CallHeader, ReplyHeader};
use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use super::client::Nfs4Client;
use crate::error::ClientError;
use crate::stream::RpcConnection;

/// `CB_NOTIFY_LOCK`: a lock that the client waits for may be asked for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockIsFree4 {
    /// Of the call.
    pub xid: u32,
    /// Its `CB_SEQUENCE`.
    pub sequence: CallbackSequence4Args,
    /// The file.
    pub object: Vec<u8>,
    /// The lock-owner.
    pub owner: Vec<u8>,
}

impl LockIsFree4 {
    /// Reads a call.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn parse(message: &[u8]) -> Result<Self, XdrError> {
        let mut r = Reader::new(message);
        let header = CallHeader::decode(&mut r)?;
        let head = CallbackCompoundHead4::decode(&mut r)?;
        let expect = |is_so, what, value| {
            if is_so { Ok(()) } else { Err(XdrError::BadValue { what, value }) }
        };
        expect(head.operations == 2, "operations", head.operations)?;
        let first = CallbackOp4::decode(&mut r)?;
        expect(first == CallbackOp4::Sequence, "nfs_cb_opnum4", first as u32)?;
        let sequence = CallbackSequence4Args::decode(&mut r)?;
        let second = CallbackOp4::decode(&mut r)?;
        expect(second == CallbackOp4::NotifyLock, "nfs_cb_opnum4", second as u32)?;
        let notify = CallbackNotifyLock4Args::decode(&mut r)?;
        let (object, owner) = (notify.object.to_vec(), notify.lock_owner.owner.to_vec());
        Ok(Self { xid: header.xid, sequence, object, owner })
    }

    /// The reply by which it is taken.
    pub fn reply(&self) -> Vec<u8> {
        let mut reply = Vec::new();
        let mut w = Writer::new(&mut reply);
        ReplyHeader::accepted(self.xid, AcceptStat::Success).encode(&mut w);
        NfsStat4::Ok.encode(&mut w);
        w.opaque(&[]);
        w.u32(2);
        CallbackOp4::Sequence.encode(&mut w);
        NfsStat4::Ok.encode(&mut w);
        let CallbackSequence4Args { sessionid, sequenceid, slotid, highest_slotid, .. } =
            self.sequence;
        let target_highest_slotid = highest_slotid;
        CallbackSequence4Result {
            sessionid,
            sequenceid,
            slotid,
            highest_slotid,
            target_highest_slotid,
        }
        .encode(&mut w);
        CallbackOp4::NotifyLock.encode(&mut w);
        NfsStat4::Ok.encode(&mut w);
        reply
    }
}

impl Nfs4Client<RpcConnection> {
    /// Waits for a callback by the connection, and takes it.
    ///
    /// # Errors
    /// When none comes in time, or one that is not understood.
    pub fn next_callback(&mut self) -> Result<LockIsFree4, ClientError> {
        let message = self.transport.receive_call()?;
        let told = LockIsFree4::parse(&message)
            .map_err(|error| ClientError::Malformed { procedure: "CB_COMPOUND", error })?;
        self.transport.send_message(&told.reply())?;
        Ok(told)
    }
}
