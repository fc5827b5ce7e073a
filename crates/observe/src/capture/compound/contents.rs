//! Where the contents of files begin in a COMPOUND.

use steadfast_wire::nfs4::{CompoundHead4, NAME_BYTES_MAX, Op4, TAG_BYTES_MAX};
use steadfast_xdr::{Decode, Reader, XdrError};

use super::{Executed, OPERATIONS_MAX, arguments, results};
use crate::capture::handle::Names;

const READ: u32 = Op4::Read as u32;
const READ_PLUS: u32 = Op4::ReadPlus as u32;
const WRITE: u32 = Op4::Write as u32;
const WRITE_SAME: u32 = Op4::WriteSame as u32;
const GET_XATTR: u32 = Op4::GetXattr as u32;
const SET_XATTR: u32 = Op4::SetXattr as u32;
const OK: u32 = 0;

/// Whether a message that cannot be read on, for this reason, goes on behind what is there of it.
pub(crate) fn goes_on(is_cut: bool, error: XdrError) -> bool {
    is_cut && error == XdrError::Truncated
}

/// Where in a call contents begin, or what may be such; `None` if nowhere. `is_cut`: the message goes on
/// behind what is there.
pub(crate) fn of_call(r: &mut Reader<'_>, names: &mut Names, is_cut: bool) -> Option<usize> {
    let begin = r.position();
    let head = match CompoundHead4::decode(r) {
        Ok(head) => head,
        Err(error) => return (!goes_on(is_cut, error)).then_some(begin),
    };
    for _ in 0..head.operations.min(OPERATIONS_MAX) {
        let Ok(number) = r.u32() else { return None };
        let begin = r.position();
        match number {
            // State, offset, stability and the length of the data (RFC 8881 §18.32.1).
            WRITE => return Some(begin + 16 + 8 + 4 + 4),
            // State and stability; the block that is repeated comes later (RFC 7862 §15.12.1).
            WRITE_SAME => return Some(begin + 16 + 4),
            // How, the name, and the length of the value (RFC 8276 §8.4.2.1).
            SET_XATTR => {
                let name = r.u32().and_then(|_| r.opaque(NAME_BYTES_MAX));
                return Some(name.map_or(begin + 4, |_| r.position() + 4));
            }
            _ => {}
        }
        if let Err(error) = arguments::read(number, r, names) {
            // What a server would not understand it does not execute either, nor what is behind it.
            return (!goes_on(is_cut, error)).then_some(begin);
        }
    }
    // Nothing belongs here.
    Some(r.position())
}

/// The same of a reply, behind the head of RPC.
pub(crate) fn of_reply(r: &mut Reader<'_>, is_cut: bool) -> Option<usize> {
    let begin = r.position();
    let head = r.u32().and_then(|_| r.opaque(TAG_BYTES_MAX)).and_then(|_| r.u32());
    let count = match head {
        Ok(count) => count,
        Err(error) => return (!goes_on(is_cut, error)).then_some(begin + 4),
    };
    for _ in 0..count.min(OPERATIONS_MAX) {
        let (Ok(number), Ok(status)) = (r.u32(), r.u32()) else { return None };
        let begin = r.position();
        match (number, status) {
            // Whether it is the end, and the length or the number of pieces.
            (READ | READ_PLUS, OK) => return Some(begin + 4 + 4),
            (GET_XATTR, OK) => return Some(begin + 4),
            _ => {}
        }
        let mut executed =
            Executed { number, status, handle: None, name: None, read_bytes: 0, written_bytes: 0 };
        if let Err(error) = results::read(number, status, r, &mut executed) {
            return (!goes_on(is_cut, error)).then_some(begin);
        }
    }
    Some(r.position())
}
