//! What loads over NFSv4.1 and 4.2 have in common: each connection is a client with a session of its own, each call in
//! flight has a slot.
//!
//! [`sessions`] makes the sessions and sends in their slots, [`requests`] has the requests that Linux sends, [`judging`] what
//! replies must say, [`pipeline`] many requests at a time for preparations.

pub(crate) mod judging;
pub(crate) mod pipeline;
pub(crate) mod requests;
pub(crate) mod sessions;

use std::net::TcpStream;

use steadfast_client::nfs4::LINUX_ATTRIBUTES;
use steadfast_wire::nfs4::{Attribute4, Bitmap4};

use crate::error::BenchError;

/// Rights that Linux asks for of a file: reading, changing, extending, executing.
pub(crate) const FILE_RIGHTS: u32 = 0x2d;
/// And of a directory: reading, looking up, changing, extending, deleting.
pub(crate) const DIRECTORY_RIGHTS: u32 = 0x1f;
/// What READDIR asks for when it does not ask for everything.
const NAMES_ONLY: Bitmap4 = Bitmap4::of(&[Attribute4::RdattrError, Attribute4::MountedOnFileId]);
/// What Linux asks for behind changes (`nfs4_cache_consistency_bitmap`).
pub(crate) const CONSISTENCY: Bitmap4 = Bitmap4::of(&[
    Attribute4::Change,
    Attribute4::Size,
    Attribute4::SpaceUsed,
    Attribute4::TimeMetadata,
    Attribute4::TimeModify,
]);
/// What Linux asks for in the places of FSSTAT, FSINFO and PATHCONF.
pub(crate) const SPACE: Bitmap4 = Bitmap4::of(&[
    Attribute4::FilesAvail,
    Attribute4::FilesFree,
    Attribute4::FilesTotal,
    Attribute4::SpaceAvail,
    Attribute4::SpaceFree,
    Attribute4::SpaceTotal,
]);
pub(crate) const LIMITS: Bitmap4 = Bitmap4::of(&[
    Attribute4::LeaseTime,
    Attribute4::MaxFileSize,
    Attribute4::MaxRead,
    Attribute4::MaxWrite,
    Attribute4::TimeDelta,
]);
pub(crate) const NAMES: Bitmap4 = Bitmap4::of(&[Attribute4::MaxLink, Attribute4::MaxName]);

/// What READDIR asks for of each entry: as Linux does, with all attributes (`is_plus`) or without.
pub(crate) fn listed_attributes(is_plus: bool) -> Bitmap4 {
    if is_plus {
        NAMES_ONLY.or(&LINUX_ATTRIBUTES).or(&Bitmap4::of(&[Attribute4::FileHandle]))
    } else {
        NAMES_ONLY
    }
}

/// Does something over a socket that otherwise does not block.
pub(crate) fn blocking<R>(
    stream: &TcpStream,
    work: impl FnOnce(&TcpStream) -> Result<R, BenchError>,
) -> Result<R, BenchError> {
    stream.set_nonblocking(false)?;
    let outcome = work(stream);
    stream.set_nonblocking(true)?;
    outcome
}
