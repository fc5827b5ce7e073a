//! `CB_COMPOUND`: what a server asks of its clients (RFC 8881 §20).

use steadfast_wire::nfs4::{
    Bitmap4, CallbackCompoundHead4, CallbackNotifyLock4Args, CallbackRecall4Args,
    CallbackSequence4Args, CallbackSequence4Result, Fattr4, HANDLE_BYTES_MAX, TAG_BYTES_MAX,
};
use steadfast_xdr::{Decode, Reader, XdrError};

use super::{Executed, OPERATIONS_MAX};
use crate::capture::handle::{Handle, Names};

const GETATTR: u32 = 3;
const RECALL: u32 = 4;
const RECALL_ANY: u32 = 8;
const RECALL_SLOT: u32 = 10;
const SEQUENCE: u32 = 11;
const NOTIFY_LOCK: u32 = 13;

/// A callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallbackCall {
    pub(crate) minor: u32,
    /// Numbers of operations, and the file that each is about.
    parts: Vec<(u32, Option<Handle>)>,
}

impl CallbackCall {
    /// Reads a callback, as far as it is there and understood.
    pub(crate) fn decode(r: &mut Reader<'_>, names: &mut Names) -> Result<Self, XdrError> {
        let head = CallbackCompoundHead4::decode(r)?;
        let mut parts = Vec::new();
        for _ in 0..head.operations.min(OPERATIONS_MAX) {
            let Ok(number) = r.u32() else { break };
            let Ok(bytes) = arguments(number, r) else {
                parts.push((number, None));
                break;
            };
            let handle = bytes.map(|bytes| {
                let handle = Handle::of(bytes);
                names.note_handle(handle, bytes);
                handle
            });
            parts.push((number, handle));
        }
        Ok(Self { minor: head.minorversion, parts })
    }

    /// Bytes of memory that it takes, beside its own.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.parts.len() * size_of::<(u32, Option<Handle>)>()
    }

    /// Reads the results. Returns the status of the whole and whether all of it was understood.
    pub(crate) fn executed(
        &self,
        r: &mut Reader<'_>,
        take: &mut dyn FnMut(&Executed<'_>),
    ) -> Result<(u32, bool), XdrError> {
        let status = r.u32()?;
        let _tag = r.opaque(TAG_BYTES_MAX)?;
        let count = r.u32()?;
        for index in 0..count.min(OPERATIONS_MAX) {
            let (Ok(number), Ok(status_of_part)) = (r.u32(), r.u32()) else {
                return Ok((status, false));
            };
            let part = self.parts.get(index as usize).filter(|(called, _)| *called == number);
            take(&Executed {
                number,
                status: status_of_part,
                handle: part.and_then(|(_, handle)| *handle),
                name: None,
                read_bytes: 0,
                written_bytes: 0,
            });
            let walked = match (number, status_of_part) {
                (SEQUENCE, 0) => CallbackSequence4Result::decode(r).map(|_| ()),
                (GETATTR, 0) => Fattr4::decode(r).map(|_| ()),
                _ => Ok(()),
            };
            if walked.is_err() {
                return Ok((status, false));
            }
        }
        Ok((status, count <= OPERATIONS_MAX))
    }
}

/// Walks over arguments; returns the handle that is among them.
fn arguments<'a>(number: u32, r: &mut Reader<'a>) -> Result<Option<&'a [u8]>, XdrError> {
    match number {
        GETATTR => {
            let handle = r.opaque(HANDLE_BYTES_MAX)?;
            Bitmap4::decode(r)?;
            Ok(Some(handle))
        }
        RECALL => CallbackRecall4Args::decode(r).map(|args| Some(args.fh)),
        RECALL_ANY => {
            r.u32()?;
            Bitmap4::decode(r).map(|_| None)
        }
        RECALL_SLOT => r.u32().map(|_| None),
        SEQUENCE => CallbackSequence4Args::decode(r).map(|_| None),
        NOTIFY_LOCK => CallbackNotifyLock4Args::decode(r).map(|args| Some(args.object)),
        value => Err(XdrError::BadValue { what: "nfs_cb_opnum4", value }),
    }
}
