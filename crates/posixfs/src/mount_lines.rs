//! What the kernel tells of all mounts: `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use steadfast_vfs::FsError;

/// One line of `mountinfo`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MountLine {
    /// The kernel's number of the mount.
    pub(crate) kernel_id: u64,
    /// Where it is mounted.
    pub(crate) point: PathBuf,
}

/// All mounts that this process sees.
pub(crate) fn mount_lines() -> Result<Vec<MountLine>, FsError> {
    let text = std::fs::read("/proc/self/mountinfo").map_err(|error| {
        tracing::error!("cannot read /proc/self/mountinfo: {error}");
        FsError::Io
    })?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// Where file systems are mounted whose changes can be logged.
pub(crate) fn loggable_points() -> std::io::Result<Vec<PathBuf>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    let is_loggable = |line: &&[u8]| {
        let mut words = line.split(|byte| *byte == b' ').skip_while(|word| *word != b"-");
        matches!(words.nth(1), Some(b"ext4" | b"xfs" | b"btrfs"))
    };
    let lines = text.split(|byte| *byte == b'\n').filter(is_loggable);
    Ok(lines.filter_map(parse).map(|line| line.point).collect())
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
