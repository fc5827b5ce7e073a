//! NFS version 2 (RFC 1094): a type for each procedure.
//!
//! Each asks the storage as its counterpart in [`crate::nfs3`] does, and says the result in what this
//! version has: 32 bits, 8 KiB, 32-byte handles, [`status`] codes, no attributes with a failure. Every
//! change is stable before its reply. A call that is to come again later gets no reply
//! ([`crate::operation::Failure::is_silent_for_now`]).

mod attributes;
mod data;
mod decode;
mod directory;
pub(crate) mod encode;
mod listing;
mod names;
mod status;

use crate::call::{Call, Outcome};
use crate::operation::Operation;
use crate::program::{Ignored, Null, Procedure, Row};
use crate::reply::ReplyBuffer;

/// The largest file that is told of, and the first byte that cannot be reached: clients have sizes and
/// offsets of 32 bits, many of them with a sign.
const FILE_BYTES_MAX: u32 = 0x7fff_ffff;

/// Its procedures by number (RFC 1094 §2.2).
pub(crate) const PROCEDURES: &[Row] = &[
    Row::of::<Null>(),
    Row::of::<attributes::Getattr>(),
    Row::of::<attributes::Setattr>(),
    Row::of::<Root>(),
    Row::of::<names::Lookup>(),
    Row::of::<data::Readlink>(),
    Row::of::<data::Read>(),
    Row::of::<Writecache>(),
    Row::of::<data::Write>(),
    Row::of::<names::Create>(),
    Row::of::<names::Remove>(),
    Row::of::<names::Rename>(),
    Row::of::<names::Link>(),
    Row::of::<names::Symlink>(),
    Row::of::<names::Mkdir>(),
    Row::of::<names::Rmdir>(),
    Row::of::<directory::Readdir>(),
    Row::of::<attributes::Statfs>(),
];

/// Obsolete (RFC 1094 §2.2.4): has no arguments and no result. MOUNT tells roots.
struct Root;

impl Procedure for Root {
    const OPERATION: Operation = Operation::answers("ROOT");
    type Arguments<'a> = Ignored;

    fn run(_: &mut Call<'_>, _: &Ignored, _: &mut ReplyBuffer) -> Outcome {
        Outcome::Done
    }
}

/// Never used (RFC 1094 §2.2.8): has no arguments and no result.
struct Writecache;

impl Procedure for Writecache {
    const OPERATION: Operation = Operation::answers("WRITECACHE");
    type Arguments<'a> = Ignored;

    fn run(_: &mut Call<'_>, _: &Ignored, _: &mut ReplyBuffer) -> Outcome {
        Outcome::Done
    }
}
