//! How NFSv3 results are written: the common parts.

use steadfast_state::Telling;
use steadfast_vfs::{Attr, Changed, DeviceNumber, Entry, FileKind, PreAttr, Time, Wcc};
use steadfast_wire::nfs3::NfsStat3;
use steadfast_xdr::Writer;

use super::status::status;
use crate::call::{Call, Target};

/// Encoded size of `fattr3` in bytes.
pub(crate) const FATTR3_BYTES: usize = 84;
/// Encoded size of `post_op_attr` with attributes.
pub(crate) const POST_OP_ATTR_BYTES: usize = 4 + FATTR3_BYTES;

/// RFC 1813 `nfstime3` has unsigned 32-bit seconds (1970 to 2106); what lies outside is shown as
/// the nearest time it has.
fn time(w: &mut Writer<'_>, time: Time) {
    let seconds = u32::try_from(time.seconds.max(0)).unwrap_or(u32::MAX);
    w.u32(seconds);
    w.u32(time.nanoseconds);
}

pub(crate) fn fattr3(w: &mut Writer<'_>, attr: &Attr) {
    w.u32(match attr.kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::BlockDevice => 3,
        FileKind::CharacterDevice => 4,
        FileKind::Symlink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    });
    w.u32(attr.mode & 0o7777);
    w.u32(attr.links);
    w.u32(attr.uid);
    w.u32(attr.gid);
    w.u64(attr.size);
    w.u64(attr.used);
    let DeviceNumber { major, minor } = attr.device;
    w.u32(major);
    w.u32(minor);
    w.u64(attr.fsid);
    w.u64(attr.fileid);
    time(w, attr.atime);
    time(w, attr.mtime);
    time(w, attr.ctime);
}

pub(crate) fn post_op_attr(w: &mut Writer<'_>, attr: Option<&Attr>) {
    w.bool(attr.is_some());
    if let Some(attr) = attr {
        fattr3(w, attr);
    }
}

fn pre_op_attr(w: &mut Writer<'_>, attr: Option<&PreAttr>) {
    w.bool(attr.is_some());
    if let Some(attr) = attr {
        w.u64(attr.size);
        time(w, attr.mtime);
        time(w, attr.ctime);
    }
}

pub(crate) fn wcc_data(w: &mut Writer<'_>, wcc: &Wcc) {
    pre_op_attr(w, wcc.before.as_ref());
    post_op_attr(w, wcc.after.as_ref());
}

pub(crate) fn ok(w: &mut Writer<'_>) {
    w.u32(NfsStat3::Ok as u32);
}

/// Status and `wcc_data`, the whole result of most changing procedures.
pub(crate) fn changed(w: &mut Writer<'_>, changed: &Changed<()>) {
    w.u32(changed.result.map_or_else(status, |()| NfsStat3::Ok) as u32);
    wcc_data(w, &changed.wcc);
}

/// The result of CREATE, MKDIR, SYMLINK and MKNOD, of which something was read since then.
pub(crate) fn created(
    w: &mut Writer<'_>,
    call: &Call<'_>,
    dir: &Target<'_>,
    since: Telling,
    changed: &Changed<Entry>,
) {
    match &changed.result {
        Ok(entry) => {
            ok(w);
            w.bool(true);
            w.opaque(call.seal(dir.share, &entry.handle).as_bytes());
            // It may have been there.
            post_op_attr(w, call.told(since, dir.storage, &entry.handle, &entry.attr));
        }
        Err(error) => w.u32(status(*error) as u32),
    }
    wcc_data(w, &changed.wcc);
}
