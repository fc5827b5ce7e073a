//! Callbacks as a client takes them (RFC 8881 §20).

use steadfast_wire::nfs4::{
    Bitmap4, CallbackCompoundHead4, CallbackGetAttr4Args, CallbackGetAttr4Result,
    CallbackNotifyLock4Args, CallbackOp4, CallbackRecall4Args, CallbackSequence4Args,
    CallbackSequence4Result, Fattr4, NfsStat4, StateId4,
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

/// `CB_RECALL`: a delegation is to be returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recall4 {
    /// Of the call.
    pub xid: u32,
    /// Its `CB_SEQUENCE`.
    pub sequence: CallbackSequence4Args,
    /// The delegation.
    pub stateid: StateId4,
    /// The file.
    pub object: Vec<u8>,
}

/// `CB_GETATTR`: the client is asked how a file is that was delegated to it to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributesAsked4 {
    /// Of the call.
    pub xid: u32,
    /// Its `CB_SEQUENCE`.
    pub sequence: CallbackSequence4Args,
    /// The file.
    pub object: Vec<u8>,
    /// Which attributes are asked for.
    pub wanted: Bitmap4,
}

impl AttributesAsked4 {
    /// Reads a call.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn parse(message: &[u8]) -> Result<Self, XdrError> {
        let mut r = Reader::new(message);
        let (xid, sequence) = begin(&mut r, CallbackOp4::GetAttr)?;
        let CallbackGetAttr4Args { fh, attr_request } = Decode::decode(&mut r)?;
        Ok(Self { xid, sequence, object: fh.to_vec(), wanted: attr_request })
    }

    /// The reply that tells these attributes.
    pub fn reply(&self, obj_attributes: Fattr4<'_>) -> Vec<u8> {
        let mut reply = taken(self.xid, &self.sequence, CallbackOp4::GetAttr);
        CallbackGetAttr4Result { obj_attributes }.encode(&mut Writer::new(&mut reply));
        reply
    }
}

impl LockIsFree4 {
    /// Reads a call.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn parse(message: &[u8]) -> Result<Self, XdrError> {
        let mut r = Reader::new(message);
        let (xid, sequence) = begin(&mut r, CallbackOp4::NotifyLock)?;
        let notify = CallbackNotifyLock4Args::decode(&mut r)?;
        let (object, owner) = (notify.object.to_vec(), notify.lock_owner.owner.to_vec());
        Ok(Self { xid, sequence, object, owner })
    }

    /// The reply by which it is taken.
    pub fn reply(&self) -> Vec<u8> {
        taken(self.xid, &self.sequence, CallbackOp4::NotifyLock)
    }
}

impl Recall4 {
    /// Reads a call.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn parse(message: &[u8]) -> Result<Self, XdrError> {
        let mut r = Reader::new(message);
        let (xid, sequence) = begin(&mut r, CallbackOp4::Recall)?;
        let CallbackRecall4Args { stateid, fh, .. } = Decode::decode(&mut r)?;
        Ok(Self { xid, sequence, stateid, object: fh.to_vec() })
    }

    /// The reply by which it is taken.
    pub fn reply(&self) -> Vec<u8> {
        taken(self.xid, &self.sequence, CallbackOp4::Recall)
    }
}

/// Reads what is before the arguments of the operation after `CB_SEQUENCE`, which is the last.
fn begin(
    r: &mut Reader<'_>,
    operation: CallbackOp4,
) -> Result<(u32, CallbackSequence4Args), XdrError> {
    let header = CallHeader::decode(r)?;
    let head = CallbackCompoundHead4::decode(r)?;
    let expect = |is_so, what, value| {
        if is_so { Ok(()) } else { Err(XdrError::BadValue { what, value }) }
    };
    expect(head.operations == 2, "operations", head.operations)?;
    let first = CallbackOp4::decode(r)?;
    expect(first == CallbackOp4::Sequence, "nfs_cb_opnum4", first as u32)?;
    let sequence = CallbackSequence4Args::decode(r)?;
    let second = CallbackOp4::decode(r)?;
    expect(second == operation, "nfs_cb_opnum4", second as u32)?;
    Ok((header.xid, sequence))
}

fn taken(xid: u32, sequence: &CallbackSequence4Args, operation: CallbackOp4) -> Vec<u8> {
    let mut reply = Vec::new();
    let mut w = Writer::new(&mut reply);
    ReplyHeader::accepted(xid, AcceptStat::Success).encode(&mut w);
    NfsStat4::Ok.encode(&mut w);
    w.opaque(&[]);
    w.u32(2);
    CallbackOp4::Sequence.encode(&mut w);
    NfsStat4::Ok.encode(&mut w);
    let CallbackSequence4Args { sessionid, sequenceid, slotid, highest_slotid, .. } = *sequence;
    let target_highest_slotid = highest_slotid;
    CallbackSequence4Result {
        sessionid,
        sequenceid,
        slotid,
        highest_slotid,
        target_highest_slotid,
    }
    .encode(&mut w);
    operation.encode(&mut w);
    NfsStat4::Ok.encode(&mut w);
    reply
}

impl Nfs4Client<RpcConnection> {
    /// Waits for a callback by the connection that tells of a lock, and takes it.
    ///
    /// # Errors
    /// When none comes in time, or one that is not understood.
    pub fn next_callback(&mut self) -> Result<LockIsFree4, ClientError> {
        let message = self.transport.receive_call()?;
        let told = LockIsFree4::parse(&message).map_err(not_understood)?;
        self.transport.send_message(&told.reply())?;
        Ok(told)
    }

    /// The same for one that recalls a delegation.
    ///
    /// # Errors
    /// As [`Nfs4Client::next_callback`].
    pub fn next_recall(&mut self) -> Result<Recall4, ClientError> {
        let message = self.transport.receive_call()?;
        let told = Recall4::parse(&message).map_err(not_understood)?;
        self.transport.send_message(&told.reply())?;
        Ok(told)
    }

    /// Waits for a callback by the connection that asks for attributes, and tells these, whatever is asked for.
    ///
    /// # Errors
    /// As [`Nfs4Client::next_callback`].
    pub fn next_question(
        &mut self,
        attributes: Fattr4<'_>,
    ) -> Result<AttributesAsked4, ClientError> {
        let message = self.transport.receive_call()?;
        let asked = AttributesAsked4::parse(&message).map_err(not_understood)?;
        self.transport.send_message(&asked.reply(attributes))?;
        Ok(asked)
    }
}

fn not_understood(error: XdrError) -> ClientError {
    ClientError::Malformed { procedure: "CB_COMPOUND", error }
}
