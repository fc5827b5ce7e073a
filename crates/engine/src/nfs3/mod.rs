//! NFS version 3 (RFC 1813): one function a procedure.
//!
//! Each decodes its arguments, asks the storage, and appends its result to the reply; it returns
//! whether that may go out or what it waits for. Status codes are made in [`status`] alone.

mod attributes;
mod data;
mod decode;
mod directory;
pub(crate) mod encode;
mod filesystem;
mod names;
pub(crate) mod status;

use steadfast_xdr::{Reader, XdrError};

use crate::call::ReplyBuffer;
use crate::session::{Outcome, Session};

/// Runs a procedure; `None` for a number that does not exist.
pub(crate) fn execute(
    procedure: u32,
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut ReplyBuffer,
) -> Option<Result<Outcome, XdrError>> {
    let out = &mut reply.bytes;
    Some(match procedure {
        0 => Ok(Outcome::Done),
        1 => attributes::getattr(session, arguments, out),
        2 => attributes::setattr(session, arguments, out),
        3 => names::lookup(session, arguments, out),
        4 => attributes::access(session, arguments, out),
        5 => data::readlink(session, arguments, out),
        6 => data::read(session, arguments, reply),
        7 => data::write(session, arguments, out),
        8 => names::create(session, arguments, out),
        9 => names::mkdir(session, arguments, out),
        10 => names::symlink(session, arguments, out),
        11 => names::mknod(session, arguments, out),
        12 => names::remove(session, arguments, out),
        13 => names::rmdir(session, arguments, out),
        14 => names::rename(session, arguments, out),
        15 => names::link(session, arguments, out),
        16 => directory::readdir(session, arguments, out),
        17 => directory::readdirplus(session, arguments, out),
        18 => filesystem::fsstat(session, arguments, out),
        19 => filesystem::fsinfo(session, arguments, out),
        20 => filesystem::pathconf(session, arguments, out),
        21 => data::commit(session, arguments, out),
        _ => return None,
    })
}
