//! COMPOUNDs as clients send and read them.

use steadfast_wire::nfs4::{ChannelAttributes4, Op4, PutFh4Args, StateId4};
use steadfast_xdr::{Encode, Reader, Writer};

use crate::Checked;
use crate::message::{Request, unreadable};

/// What a client wants of either channel of a session.
pub(crate) fn channel() -> ChannelAttributes4 {
    ChannelAttributes4 {
        headerpadsize: 0,
        maxrequestsize: 1 << 16,
        maxresponsesize: 1 << 16,
        maxresponsesize_cached: 1 << 12,
        maxoperations: 16,
        maxrequests: 4,
        rdma_ird: Vec::new(),
    }
}

/// The operations of a COMPOUND.
#[derive(Default)]
pub(crate) struct Ops {
    bytes: Vec<u8>,
    count: u32,
}

impl Ops {
    pub(crate) fn op(mut self, op: Op4, arguments: &impl Encode) -> Self {
        let mut w = Writer::new(&mut self.bytes);
        w.u32(op as u32);
        arguments.encode(&mut w);
        self.count += 1;
        self
    }

    pub(crate) fn put(self, handle: &[u8]) -> Self {
        self.op(Op4::PutFh, &PutFh4Args { object: handle })
    }

    /// Of minor version 1.
    pub(crate) fn request(self, what: String) -> Request {
        self.request_of(1, what)
    }

    pub(crate) fn request_of(self, minor_version: u32, what: String) -> Request {
        let mut arguments = Vec::new();
        let mut w = Writer::new(&mut arguments);
        let count = self.count;
        w.opaque(b"");
        w.u32(minor_version);
        w.u32(count);
        arguments.extend_from_slice(&self.bytes);
        Request { program: 100_003, version: 4, procedure: 1, arguments, what }
    }
}

/// Nothing behind the operation's number.
pub(crate) struct Nothing;

impl Encode for Nothing {
    fn encode(&self, _: &mut Writer<'_>) {}
}

/// A stateid of a result.
pub(crate) fn stateid(r: &mut Reader<'_>) -> Checked<StateId4> {
    let (seqid, other) = (r.u32().map_err(unreadable)?, r.array().map_err(unreadable)?);
    Ok(StateId4 { seqid, other })
}
