//! Requests as Linux makes them, and how they go on the wire.

use steadfast_client::nfs4::{Compound, LINUX_ATTRIBUTES, Opening4, Settings4, StateId4};
use steadfast_client::{FileHandle, StableHow};
use steadfast_wire::nfs4::{
    Close4Args, Commit4Args, Create4Args, CreateType4, Link4Args, Op4, ReadDir4Args, Remove4Args,
    Rename4Args,
};

use super::{CONSISTENCY, FILE_RIGHTS, listed_attributes};
use crate::records::Outbox;

/// File data longer than this is sent from the pattern itself instead of being copied.
const COPY_BYTES_MAX: usize = 8 << 10;

/// A request's operations, and the data that goes in between.
pub(crate) struct Request {
    compound: Compound,
    /// Follows what the compound has so far.
    data: &'static [u8],
    /// Follows the data.
    tail: Compound,
}

impl From<Compound> for Request {
    fn from(compound: Compound) -> Self {
        Self { compound, data: &[], tail: Compound::new() }
    }
}

impl Request {
    /// WRITE of the data by an open, with what Linux asks for behind it.
    pub(crate) fn write(
        start: Compound,
        (file, stateid): &(FileHandle, StateId4),
        offset: u64,
        data: &'static [u8],
        stable: StableHow,
    ) -> Self {
        let compound = start.put(file).write_head(*stateid, offset, stable, data.len() as u32);
        Self { compound, data, tail: Compound::new().attributes(CONSISTENCY) }
    }

    /// Appends it. `head`: record mark and RPC header of a COMPOUND.
    pub(crate) fn append(self, head: &[u8], xid: u32, out: &mut Outbox) {
        let Self { compound, data, tail } = self;
        let count = compound.count() + tail.count();
        let arguments = compound.announcing(count).arguments();
        let padded = data.len().next_multiple_of(4);
        out.push_head(head, xid, arguments.len() + padded + tail.operations().len());
        let bytes = out.bytes();
        bytes.extend_from_slice(&arguments);
        if data.len() <= COPY_BYTES_MAX {
            bytes.extend_from_slice(data);
        } else {
            out.push_static(data);
        }
        let bytes = out.bytes();
        bytes.extend(std::iter::repeat_n(0, padded - data.len()));
        bytes.extend_from_slice(tail.operations());
    }
}

/// LOOKUP.
pub(crate) fn lookup(start: Compound, directory: &FileHandle, name: &[u8]) -> Compound {
    start.put(directory).lookup(name).handle().attributes(LINUX_ATTRIBUTES)
}

/// OPEN with what Linux asks for behind it.
pub(crate) fn open(start: Compound, directory: &FileHandle, opening: &Opening4<'_>) -> Compound {
    start
        .put(directory)
        .op(Op4::Open, &opening.arguments())
        .handle()
        .access(FILE_RIGHTS)
        .attributes(LINUX_ATTRIBUTES)
}

/// CLOSE.
pub(crate) fn close(start: Compound, (file, open_stateid): &(FileHandle, StateId4)) -> Compound {
    let close = Close4Args { seqid: 0, open_stateid: *open_stateid };
    start.put(file).attributes(CONSISTENCY).op(Op4::Close, &close)
}

/// CREATE: what is no file.
pub(crate) fn make(
    start: Compound,
    directory: &FileHandle,
    objname: &[u8],
    objtype: CreateType4<'_>,
    mode: u32,
) -> Compound {
    let mode = Settings4::mode(mode).encode();
    let create = Create4Args { objtype, objname, createattrs: mode.fattr() };
    start.put(directory).op(Op4::Create, &create).handle().attributes(LINUX_ATTRIBUTES)
}

/// REMOVE.
pub(crate) fn remove(start: Compound, directory: &FileHandle, target: &[u8]) -> Compound {
    start.put(directory).op(Op4::Remove, &Remove4Args { target })
}

/// RENAME.
pub(crate) fn rename(
    start: Compound,
    (from, oldname): (&FileHandle, &[u8]),
    (to, newname): (&FileHandle, &[u8]),
) -> Compound {
    let rename = Rename4Args { oldname, newname };
    start.put(from).plain(Op4::SaveFh).put(to).op(Op4::Rename, &rename)
}

/// LINK.
pub(crate) fn link(
    start: Compound,
    file: &FileHandle,
    directory: &FileHandle,
    newname: &[u8],
) -> Compound {
    start
        .put(file)
        .plain(Op4::SaveFh)
        .put(directory)
        .op(Op4::Link, &Link4Args { newname })
        .plain(Op4::RestoreFh)
        .attributes(LINUX_ATTRIBUTES)
}

/// COMMIT.
pub(crate) fn commit(start: Compound, file: &FileHandle, offset: u64, count: u32) -> Compound {
    start.put(file).op(Op4::Commit, &Commit4Args { offset, count })
}

/// READDIR.
pub(crate) fn list(
    start: Compound,
    directory: &FileHandle,
    (cookie, cookieverf): (u64, [u8; 8]),
    bytes: u32,
    is_plus: bool,
) -> Compound {
    let arguments = ReadDir4Args {
        cookie,
        cookieverf,
        dircount: bytes,
        maxcount: bytes,
        attr_request: listed_attributes(is_plus),
    };
    start.put(directory).op(Op4::ReadDir, &arguments)
}
