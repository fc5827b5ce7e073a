//! The mounts of a tree that crosses mount points.
//!
//! A handle names the mount it is in by a number made of the mount point's path beneath the
//! share, which is the same after a restart. What is mounted where is asked of the kernel
//! (`/proc/self/mountinfo`) only when a mount is met, or a handle of one, that is not known yet.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustix::fs::{Mode as Permissions, OFlags};
use steadfast_vfs::FsError;

use crate::attributes;
use crate::error::from_errno;
use crate::volume::{Mount, stable_hash};

/// Mounts beneath one share, so that nothing grows without bound.
const MOUNTS_MAX: usize = 10_000;

pub(crate) struct Mounts {
    /// The share's directory as the kernel names it.
    share: PathBuf,
    table: RwLock<Vec<Arc<Mount>>>,
}

/// One line of `mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct MountLine {
    kernel_id: u64,
    point: PathBuf,
}

impl Mounts {
    pub(crate) fn new(share: PathBuf, root: Arc<Mount>) -> Self {
        Self { share, table: RwLock::new(vec![root]) }
    }

    /// The mount with this number in handles.
    pub(crate) fn numbered(&self, id: u32, crosses: bool) -> Result<Arc<Mount>, FsError> {
        if let Some(mount) = self.table.read().iter().find(|mount| mount.id == id) {
            return Ok(Arc::clone(mount));
        }
        if !crosses {
            return Err(FsError::Stale);
        }
        let lines = mount_lines()?;
        // The last one mounted on a point is the one that is seen.
        let line = lines.iter().rfind(|line| self.number(&line.point) == Some(id));
        self.add(line.ok_or(FsError::Stale)?)
    }

    /// The mount with this number in the kernel.
    pub(crate) fn of_kernel(&self, kernel_id: u64) -> Result<Arc<Mount>, FsError> {
        if let Some(mount) = self.table.read().iter().find(|mount| mount.kernel_id == kernel_id) {
            return Ok(Arc::clone(mount));
        }
        let lines = mount_lines()?;
        let line = lines.iter().find(|line| line.kernel_id == kernel_id);
        self.add(line.ok_or(FsError::AccessDenied)?)
    }

    /// The number of a mount point beneath the share; 0 is the share's own.
    fn number(&self, point: &Path) -> Option<u32> {
        let beneath = point.strip_prefix(&self.share).ok()?;
        if beneath.as_os_str().is_empty() {
            return None;
        }
        Some((stable_hash(&[b"mount", beneath.as_os_str().as_bytes()]) as u32).max(1))
    }

    fn add(&self, line: &MountLine) -> Result<Arc<Mount>, FsError> {
        let id = self.number(&line.point).ok_or(FsError::AccessDenied)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path =
            rustix::fs::open(&line.point, flags, Permissions::empty()).map_err(from_errno)?;
        if attributes::stat_with_mount(&path)?.stx_mnt_id != line.kernel_id {
            // Something else was mounted over it meanwhile.
            return Err(FsError::TryLater);
        }
        let mount = Arc::new(Mount::new(id, line.kernel_id, path)?);
        let mut table = self.table.write();
        if let Some(known) = table.iter().find(|known| known.kernel_id == mount.kernel_id) {
            return Ok(Arc::clone(known));
        }
        // What was mounted on the same point before has gone.
        table.retain(|known| known.id != id);
        if table.len() >= MOUNTS_MAX {
            return Err(FsError::TryLater);
        }
        table.push(Arc::clone(&mount));
        Ok(mount)
    }
}

fn mount_lines() -> Result<Vec<MountLine>, FsError> {
    let text = std::fs::read("/proc/self/mountinfo").map_err(|error| {
        tracing::error!("cannot read /proc/self/mountinfo: {error}");
        FsError::Io
    })?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

fn parse(line: &[u8]) -> Option<MountLine> {
    let mut fields = line.split(|byte| *byte == b' ');
    let kernel_id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let point = unescape(fields.nth(3)?);
    Some(MountLine { kernel_id, point: OsString::from_vec(point).into() })
}

/// Blanks and the like are written as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        if *first == b'\\'
            && let Some((digits, left)) = behind.split_first_chunk::<3>()
            && let Some(byte) = std::str::from_utf8(digits)
                .ok()
                .and_then(|digits| u8::from_str_radix(digits, 8).ok())
        {
            plain.push(byte);
            rest = left;
        } else {
            plain.push(*first);
            rest = behind;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        let line = br"36 35 98:0 /mnt1 /mnt\0402/a\134b rw,noatime master:1 - ext3 /dev/root rw";
        let point = PathBuf::from(r"/mnt 2/a\b");
        assert_eq!(parse(line), Some(MountLine { kernel_id: 36, point }));
        for bad in [&b""[..], b"36", b"x 35 98:0 / /", b"36 35 98:0 /"] {
            assert_eq!(parse(bad), None);
        }
        assert_eq!(unescape(br"\9x\04"), br"\9x\04");
        assert!(!mount_lines().unwrap().is_empty());
    }
}
