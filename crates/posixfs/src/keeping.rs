//! Copies of files that replay keeps, since both versions of their data may be wanted.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, Gid, Mode as Permissions, OFlags, RenameFlags, SeekFrom, Uid};
use rustix::io::Errno;

use steadfast_sys::file;
use steadfast_vfs::FsError;

use crate::attributes;
use crate::error::from_errno;

/// Files up to this size are copied where they cannot share their blocks with the copy.
const COPIED_BYTES_MAX: u64 = 64 << 20;
/// Of a file that is larger only what is about to be written over is kept, in pieces of this size.
const PIECE_BYTES: u64 = 4096;
/// What is read at a time.
const BUFFER_BYTES: usize = 1 << 20;
/// What the copy's owner may do.
const OWNER_MODE: u32 = 0o600;

fn failed(error: &io::Error) -> FsError {
    from_errno(Errno::from_io_error(error).unwrap_or(Errno::IO))
}

/// Copies a file to a name of a directory, of the file system that `mount` is on; whether it has all of the
/// file. What has the name is removed first, if it is to be made `anew`; otherwise it is the copy. On return
/// it is on the disk.
pub(crate) fn keep(
    mount: &OwnedFd,
    file: &OwnedFd,
    dir: &OwnedFd,
    name: &[u8],
    anew: bool,
) -> Result<bool, FsError> {
    let size = attributes::stat(file)?.stx_size;
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, name, flags, Permissions::empty()) {
        Ok(_) if anew => {
            rustix::fs::unlinkat(dir, name, AtFlags::empty()).map_err(from_errno)?;
        }
        // One that has nothing yet, or parts, is known by its holes.
        Ok(copy) => return is_whole(&copy),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(from_errno(errno)),
    }
    let unfinished = [name, b".new"].concat();
    let _ = rustix::fs::unlinkat(dir, &unfinished[..], AtFlags::empty());
    let flags = flags | OFlags::CREATE | OFlags::EXCL;
    let copy = rustix::fs::openat(dir, &unfinished[..], flags, Permissions::empty())
        .map_err(from_errno)?;
    crate::restoring::strip(copy.as_fd())?;
    let is_copied = match rustix::fs::ioctl_ficlone(&copy, file) {
        Ok(()) => true,
        Err(_) if size <= COPIED_BYTES_MAX => {
            copy_all(file, &copy)?;
            true
        }
        Err(_) => {
            rustix::fs::ftruncate(&copy, size).map_err(from_errno)?;
            false
        }
    };
    let attr = attributes::attr(&attributes::stat(file)?, 0);
    let owner = (Some(Uid::from_raw(attr.uid)), Some(Gid::from_raw(attr.gid)));
    rustix::fs::fchown(&copy, owner.0, owner.1).map_err(from_errno)?;
    file::change_mode(&copy, attr.mode & OWNER_MODE).map_err(from_errno)?;
    // A flush of one file may lose others on btrfs; and the name must be there before the file is written to.
    rustix::fs::syncfs(mount).map_err(from_errno)?;
    let renamed =
        rustix::fs::renameat_with(dir, &unfinished[..], dir, name, RenameFlags::NOREPLACE);
    renamed.map_err(from_errno)?;
    rustix::fs::syncfs(mount).map_err(from_errno)?;
    Ok(is_copied)
}

/// Whether a copy of an earlier attempt has all of its file: that one is too large which has holes.
fn is_whole(copy: &OwnedFd) -> Result<bool, FsError> {
    let size = attributes::stat(copy)?.stx_size;
    if size <= COPIED_BYTES_MAX {
        return Ok(true);
    }
    match rustix::fs::seek(copy, SeekFrom::Hole(0)) {
        Ok(hole) => Ok(hole >= size),
        Err(_) => Ok(false),
    }
}

fn copy_all(from: &OwnedFd, to: &OwnedFd) -> Result<(), FsError> {
    let (from, to) = (as_file(from)?, as_file(to)?);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut at = 0;
    loop {
        let count = from.read_at(&mut buffer, at).map_err(|error| failed(&error))?;
        let Some(read) = buffer.get(..count).filter(|read| !read.is_empty()) else { return Ok(()) };
        to.write_all_at(read, at).map_err(|error| failed(&error))?;
        at += count as u64;
    }
}

fn as_file(file: &OwnedFd) -> Result<File, FsError> {
    file.try_clone().map(File::from).map_err(|error| failed(&error))
}

/// Copies what a part of a file has to its copy, unless that has something there. On return it is on the
/// disk.
pub(crate) fn keep_part(
    file: &OwnedFd,
    copy: &OwnedFd,
    offset: u64,
    bytes: u64,
) -> Result<(), FsError> {
    let end = offset.saturating_add(bytes).min(attributes::stat(file)?.stx_size);
    let (from, to) = (as_file(file)?, as_file(copy)?);
    let mut piece = vec![0; PIECE_BYTES as usize];
    let mut at = offset - offset % PIECE_BYTES;
    let mut is_changed = false;
    while at < end {
        let is_hole = match rustix::fs::seek(copy, SeekFrom::Data(at)) {
            Ok(data) => data >= at + PIECE_BYTES,
            Err(Errno::NXIO) => true,
            Err(errno) => return Err(from_errno(errno)),
        };
        if is_hole {
            let count = from.read_at(&mut piece, at).map_err(|error| failed(&error))?;
            let read = piece.get(..count).unwrap_or_default();
            to.write_all_at(read, at).map_err(|error| failed(&error))?;
            is_changed = true;
        }
        at += PIECE_BYTES;
    }
    // A flush of one file may lose others on btrfs.
    if is_changed { rustix::fs::syncfs(copy).map_err(from_errno) } else { Ok(()) }
}

/// Whether a file has the data of its copy: all of it, or the parts that the copy has.
pub(crate) fn has_same_data(file: OwnedFd, copy: OwnedFd, is_whole: bool) -> Result<bool, FsError> {
    if attributes::stat(&file)?.stx_size != attributes::stat(&copy)?.stx_size {
        return Ok(false);
    }
    let files = [File::from(file), File::from(copy)];
    let mut buffers = [vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]];
    let mut at = 0;
    loop {
        if !is_whole {
            at = match rustix::fs::seek(&files[1], SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(Errno::NXIO) => return Ok(true),
                Err(errno) => return Err(from_errno(errno)),
            };
            let hole = rustix::fs::seek(&files[1], SeekFrom::Hole(at)).map_err(from_errno)?;
            let bytes = usize::try_from(hole - at).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES);
            for buffer in &mut buffers {
                buffer.resize(bytes, 0);
            }
        }
        let mut counts = [0; 2];
        for ((file, buffer), count) in files.iter().zip(&mut buffers).zip(&mut counts) {
            *count = read_full(file, buffer, at)?;
        }
        let [one, other] = &buffers;
        if counts[0] != counts[1] || one.get(..counts[0]) != other.get(..counts[1]) {
            return Ok(false);
        }
        if counts[0] == 0 {
            return Ok(true);
        }
        at += counts[0] as u64;
    }
}

/// Reads until the buffer is full or the file ends.
fn read_full(file: &File, buffer: &mut [u8], at: u64) -> Result<usize, FsError> {
    let mut read = 0;
    while let Some(rest) = buffer.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_all_or_the_parts_that_are_asked_for() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let mut data: Vec<u8> = (0..3_000_000_u32).map(|number| (number / 7) as u8).collect();
        std::fs::write(&path, &data).unwrap();
        let open = || OwnedFd::from(File::options().read(true).write(true).open(&path).unwrap());
        let dir = OwnedFd::from(File::open(place.path()).unwrap());
        let copy = place.path().join("kept");
        assert!(keep(&dir, &open(), &dir, b"kept", false).unwrap());
        assert_eq!(std::fs::read(&copy).unwrap(), data);
        let opened = || OwnedFd::from(File::options().read(true).write(true).open(&copy).unwrap());
        assert!(has_same_data(open(), opened(), true).unwrap());
        data[2_999_999] ^= 1;
        std::fs::write(&path, &data).unwrap();
        assert!(!has_same_data(open(), opened(), true).unwrap());
        // What an earlier attempt has kept stays, unless another is asked for.
        assert!(keep(&dir, &open(), &dir, b"kept", false).unwrap());
        assert!(!has_same_data(open(), opened(), true).unwrap());
        assert!(keep(&dir, &open(), &dir, b"kept", true).unwrap());
        assert!(has_same_data(open(), opened(), true).unwrap());
        // Of a large one, parts.
        File::create(&copy).unwrap().set_len(3_000_000).unwrap();
        keep_part(&open(), &opened(), 5000, 10).unwrap();
        keep_part(&open(), &opened(), 2_999_990, u64::MAX - 2_999_990).unwrap();
        assert!(has_same_data(open(), opened(), false).unwrap());
        std::fs::write(&path, vec![1; 3_000_000]).unwrap();
        assert!(!has_same_data(open(), opened(), false).unwrap());
        keep_part(&open(), &opened(), 4096, 1).unwrap();
        let kept = std::fs::read(&copy).unwrap();
        assert_eq!(kept[4096..8192], data[4096..8192]);
        assert_eq!(kept[2_999_990..], data[2_999_990..]);
        assert!(kept[..4096].iter().all(|byte| *byte == 0));
    }
}
