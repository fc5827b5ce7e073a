//! How NFSv2 results are written: the common parts.

use steadfast_shares::Share;
use steadfast_vfs::{Attr, DeviceNumber, Entry, FileKind, FsError, Time};
use steadfast_wire::nfs2::NfsStat2;
use steadfast_xdr::Writer;

use super::FILE_BYTES_MAX;
use super::decode::kind_bits;
use super::status::number;
use crate::call::Call;
use crate::wire_handle::FIXED_HANDLE_BYTES;

/// Encoded size of `fattr` in bytes.
pub(super) const FATTR_BYTES: usize = 68;
/// What a file's blocks are counted in: the preferred size of a transfer, as `fattr` has it.
const BLOCK_BYTES: u32 = 4096;
/// `blocks` of `fattr` counts these.
const SECTOR_BYTES: u64 = 512;
/// The device number of what is no device. With a character device's type it is a named pipe's, by a
/// convention that is older than RFC 1094 and not in it.
const NO_DEVICE: u32 = u32::MAX;

pub(crate) fn ok(w: &mut Writer<'_>) {
    w.u32(NfsStat2::Ok as u32);
}

/// 1970 to 2106; what lies outside is shown as the nearest time there is.
fn time(w: &mut Writer<'_>, time: Time) {
    w.u32(u32::try_from(time.seconds.max(0)).unwrap_or(u32::MAX));
    w.u32(time.nanoseconds / 1000);
}

/// A number that is as great as can be told.
pub(super) fn at_most(value: u64, max: u32) -> u32 {
    u32::try_from(value).unwrap_or(max).min(max)
}

/// A number of 64 bits in 32: itself where that can be, and never 0, which clients take for a name
/// that was removed.
pub(super) fn folded(number: u64) -> u32 {
    let folded = (number ^ (number >> 32)) as u32;
    if folded == 0 { 1 } else { folded }
}

/// As Linux's `new_encode_dev`: what older systems have for small numbers, with the rest above it.
fn device(DeviceNumber { major, minor }: DeviceNumber) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// `ftype` (RFC 1094 §2.3.2). A socket is what it says in the table of modes (§2.3.5): no file.
fn kind(kind: FileKind) -> u32 {
    match kind {
        FileKind::Socket => 0,
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::BlockDevice => 3,
        FileKind::CharacterDevice | FileKind::Fifo => 4,
        FileKind::Symlink => 5,
    }
}

pub(super) fn fattr(w: &mut Writer<'_>, attr: &Attr) {
    let told = if attr.kind == FileKind::Fifo { FileKind::CharacterDevice } else { attr.kind };
    w.u32(kind(attr.kind));
    w.u32(kind_bits(told) | attr.mode & 0o7777);
    w.u32(attr.links);
    w.u32(attr.uid);
    w.u32(attr.gid);
    w.u32(at_most(attr.size, FILE_BYTES_MAX));
    w.u32(BLOCK_BYTES);
    w.u32(match attr.kind {
        FileKind::BlockDevice | FileKind::CharacterDevice => device(attr.device),
        _ => NO_DEVICE,
    });
    w.u32(at_most(attr.used.div_ceil(SECTOR_BYTES), FILE_BYTES_MAX));
    w.u32(folded(attr.fsid));
    w.u32(folded(attr.fileid));
    time(w, attr.atime);
    time(w, attr.mtime);
    time(w, attr.ctime);
}

/// `attrstat`: attributes, or why there are none.
pub(super) fn attrstat(w: &mut Writer<'_>, attr: Result<Attr, FsError>) {
    match attr {
        Ok(attr) => {
            ok(w);
            fattr(w, &attr);
        }
        Err(error) => w.u32(number(error)),
    }
}

/// `diropres`: handle and attributes, or why there are none.
pub(super) fn diropres(
    w: &mut Writer<'_>,
    call: &Call<'_>,
    share: &Share,
    found: Result<Entry, FsError>,
) {
    let found = found.and_then(|entry| {
        // What has no handle here may be used by a later version of the protocol only.
        let handle = call.seal_fixed(share, &entry.handle);
        Ok((handle.map_err(|_| FsError::AccessDenied)?, entry.attr))
    });
    match found {
        Ok((handle, attr)) => made(w, &handle, &attr),
        Err(error) => w.u32(number(error)),
    }
}

/// `diropres` of what was made.
pub(crate) fn made(w: &mut Writer<'_>, handle: &[u8; FIXED_HANDLE_BYTES], attr: &Attr) {
    ok(w);
    w.fixed_opaque(handle);
    fattr(w, attr);
}

/// `stat` alone.
pub(super) fn stat(w: &mut Writer<'_>, result: Result<(), FsError>) {
    match result {
        Ok(()) => ok(w),
        Err(error) => w.u32(number(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode::device as decoded;
    use super::*;

    #[test]
    fn devices_are_told_and_made_alike() {
        for (major, minor) in [(0, 0), (4, 64), (8, 255), (8, 256), (4095, 0xf_ffff)] {
            let number = DeviceNumber { major, minor };
            assert_eq!(decoded(device(number)), number);
        }
        // What a client of 1989 has for a terminal.
        assert_eq!(device(DeviceNumber { major: 4, minor: 64 }), 4 << 8 | 64);
    }

    #[test]
    fn long_numbers_are_folded_and_never_0() {
        assert_eq!([0, 5, 1 << 32, 1 << 32 | 1, u64::MAX].map(folded), [1, 5, 1, 1, 1]);
        assert_eq!(at_most(1 << 31, FILE_BYTES_MAX), FILE_BYTES_MAX);
        assert_eq!(at_most(7, FILE_BYTES_MAX), 7);
    }
}
