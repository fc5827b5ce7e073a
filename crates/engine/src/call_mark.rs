//! By which name a call's begun marks are kept ([`steadfast_vfs::CallName`]): a start after a kill finds by it
//! whose change a mark tells of.
//!
//! | bytes | of |
//! |---|---|
//! | 40 | a call of NFSv3: its key in the duplicate request cache |
//! | 40, 4 | a COMPOUND of minor version 0: the same, and which of its operations it is |
//! | 16, 4, 4, 4, 4 | a COMPOUND of a session: session, slot, sequence id, digest, which operation |
//!
//! Numbers are little endian. What comes before the operation's number names the call.

use steadfast_state::{SessionId, SlotInUse};
use steadfast_vfs::CALL_KEY_BYTES_MAX;

use crate::reply_cache::{CallKey, KEY_BYTES};

const OPERATION_BYTES: usize = 4;
const SESSION_BYTES: usize = 16;
const REQUEST_BYTES: usize = SESSION_BYTES + 4 + 4 + 4;
const MARK_BYTES_MAX: usize = KEY_BYTES + OPERATION_BYTES;
const _: () = assert!(MARK_BYTES_MAX <= CALL_KEY_BYTES_MAX);
const _: () = assert!(KEY_BYTES != REQUEST_BYTES + OPERATION_BYTES);

/// The name by which a call's marks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallMark {
    bytes: [u8; MARK_BYTES_MAX],
    length: u8,
}

impl CallMark {
    fn new() -> Self {
        Self { bytes: [0; MARK_BYTES_MAX], length: 0 }
    }

    fn with(mut self, more: &[u8]) -> Self {
        let from = usize::from(self.length);
        if let Some(place) = self.bytes.get_mut(from..from + more.len()) {
            place.copy_from_slice(more);
            self.length += more.len() as u8;
        }
        self
    }

    /// Of a call that is one operation.
    pub(crate) fn of_call(key: CallKey) -> Self {
        Self::new().with(&key.to_bytes())
    }

    /// Of an operation of a COMPOUND that the duplicate request cache knows.
    pub(crate) fn of_compound(key: CallKey, operation: u32) -> Self {
        Self::of_call(key).with(&operation.to_le_bytes())
    }

    /// Of an operation of a request of a session.
    pub(crate) fn of_request(slot: &SlotInUse, operation: u32) -> Self {
        Self::new()
            .with(&slot.session().id().0)
            .with(&slot.slot().to_le_bytes())
            .with(&slot.sequence().to_le_bytes())
            .with(&slot.digest().to_le_bytes())
            .with(&operation.to_le_bytes())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&[])
    }
}

/// Which call and operation a mark's name tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named<'a> {
    /// One of NFSv3.
    Call(CallKey),
    /// A COMPOUND, by the bytes that name it, and an operation of it.
    Operation { call: &'a [u8], operation: u32 },
}

/// Reads a mark's name; `None` if it is none of this version.
pub(crate) fn named(name: &[u8]) -> Option<Named<'_>> {
    if let Ok(key) = <&[u8; KEY_BYTES]>::try_from(name) {
        return Some(Named::Call(CallKey::from_bytes(key)));
    }
    let (call, operation) = name.split_last_chunk::<OPERATION_BYTES>()?;
    let is_known = matches!(call.len(), KEY_BYTES | REQUEST_BYTES);
    is_known.then_some(Named::Operation { call, operation: u32::from_le_bytes(*operation) })
}

/// The call that a begun mark's name is of, as [`crate::call_of`] names calls.
pub fn call_of_mark(name: &[u8]) -> &[u8] {
    match named(name) {
        Some(Named::Operation { call, .. }) => call,
        _ => name,
    }
}

/// Whether what names a call names a request of a session.
pub(crate) fn is_of_request(call: &[u8]) -> bool {
    call.len() == REQUEST_BYTES
}

/// What names a request of a session.
pub(crate) struct Request {
    pub(crate) session: SessionId,
    pub(crate) slot: u32,
    pub(crate) sequence: u32,
    pub(crate) digest: u32,
}

/// The request that what names a call names; `None` if the call is of no session.
pub(crate) fn request(call: &[u8]) -> Option<Request> {
    let call: &[u8; REQUEST_BYTES] = call.try_into().ok()?;
    let (session, rest) = call.split_first_chunk::<SESSION_BYTES>()?;
    let mut numbers = rest.chunks(4).filter_map(|number| number.try_into().ok());
    let mut number = || numbers.next().map(u32::from_le_bytes);
    let (slot, sequence, digest) = (number()?, number()?, number()?);
    Some(Request { session: SessionId(*session), slot, sequence, digest })
}
