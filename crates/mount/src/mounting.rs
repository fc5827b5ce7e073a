//! Mounting and unmounting: mount(2) for root, fusermount3 for others.
//!
//! fuser can mount too; it is not asked to, since it cannot tell its own mount from another one at
//! the same place when it unmounts.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use crate::options::{Options, TRANSFER_BYTES_MAX};
use crate::status;

const DEVICE: &str = "/dev/fuse";
/// As it stands in /proc/mounts.
const FILE_SYSTEM_TYPE: &str = "fuse.steadfast";
const HELPER: &str = "fusermount3";

/// A place where something is mounted.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    directory: PathBuf,
    by_helper: bool,
    /// The kernel's number of the mount (/proc/self/mountinfo), where that can be read.
    number: Option<u64>,
    /// The number of its device, where that can be read: major and minor.
    pub(crate) device: Option<(u32, u32)>,
}

/// Mounts; returns the connection to the kernel.
pub(crate) fn mount(
    source: &str,
    directory: &Path,
    options: &Options,
) -> io::Result<(OwnedFd, Place)> {
    let directory = directory.canonicalize()?;
    let metadata = std::fs::metadata(&directory)?;
    if !metadata.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let by_helper = !rustix::process::geteuid().is_root();
    let device = if by_helper {
        by_fusermount(source, &directory, options)?
    } else {
        let device = OpenOptions::new().read(true).write(true).open(DEVICE).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot open {DEVICE}: {error} (modprobe fuse)"))
        })?;
        let data = format!(
            "fd={},rootmode={:o},user_id=0,group_id=0,allow_other,max_read={TRANSFER_BYTES_MAX}",
            device.as_raw_fd(),
            metadata.mode() & 0o170_000,
        );
        let data = CString::new(data).map_err(io::Error::other)?;
        rustix::mount::mount(
            source,
            &directory,
            FILE_SYSTEM_TYPE,
            flags(options),
            data.as_c_str(),
        )?;
        device.into()
    };
    let number = mounts().and_then(|mounts| topmost(&mounts, &directory));
    let known = status::mount_points().unwrap_or_default();
    let known = known.iter().find(|mount| Some(mount.number) == number);
    let place = Place { directory, by_helper, number, device: known.map(|mount| mount.device) };
    Ok((device, place))
}

fn flags(options: &Options) -> MountFlags {
    let mut flags = MountFlags::empty();
    for (is_set, flag) in [
        (options.is_read_only, MountFlags::RDONLY),
        (options.no_suid, MountFlags::NOSUID),
        (options.no_dev, MountFlags::NODEV),
        (options.no_exec, MountFlags::NOEXEC),
    ] {
        flags.set(flag, is_set);
    }
    flags
}

/// fusermount3 mounts with its own rights, and sends the connection over a socket that it inherits.
fn by_fusermount(source: &str, directory: &Path, options: &Options) -> io::Result<OwnedFd> {
    let mut words = vec![
        format!("fsname={}", source.replace('\\', "\\\\").replace(',', "\\,")),
        "subtype=steadfast".to_owned(),
        format!("max_read={TRANSFER_BYTES_MAX}"),
        "nosuid,nodev".to_owned(),
        if options.is_read_only { "ro" } else { "rw" }.to_owned(),
    ];
    if options.no_exec {
        words.push("noexec".to_owned());
    }
    if options.allow_other {
        words.push("allow_other".to_owned());
    }
    // Without CLOEXEC, so that it is inherited. There are no other threads yet that start programs.
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)?;
    let mut helper = Command::new(HELPER)
        .arg("-o")
        .arg(words.join(","))
        .arg("--")
        .arg(directory)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("cannot run {HELPER}: {error}")))?;
    drop(theirs);
    let device = receive(&ours);
    // Its own message is on standard error already.
    let status = helper.wait()?;
    match device? {
        Some(device) if status.success() => Ok(device),
        _ => Err(io::Error::other(format!("{HELPER} could not mount ({status})"))),
    }
}

fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let device = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut received) => received.next(),
        _ => None,
    });
    Ok(device)
}

impl Place {
    /// Unmounts, though it is in use; who has files open keeps them until they are closed. What else
    /// is mounted at the same place is not touched.
    pub(crate) fn unmount(&self) -> io::Result<()> {
        if let Some(number) = self.number
            && let Some(mounts) = mounts()
            && topmost(&mounts, &self.directory) != Some(number)
        {
            let directory = self.directory.display();
            return Err(io::Error::other(format!(
                "it is not what is mounted at {directory} on top: unmount that first"
            )));
        }
        if !self.by_helper {
            return Ok(rustix::mount::unmount(&self.directory, UnmountFlags::DETACH)?);
        }
        let status = Command::new(HELPER)
            .args(["-u", "-z", "--"])
            .arg(&self.directory)
            .stdin(Stdio::null())
            .status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("{HELPER}: {status}"))) }
    }
}

fn mounts() -> Option<Vec<u8>> {
    std::fs::read("/proc/self/mountinfo").ok()
}

/// The number of the mount that is seen at a directory (proc(5), mountinfo): later lines are on top.
fn topmost(mounts: &[u8], directory: &Path) -> Option<u64> {
    let directory = escaped(directory);
    mounts
        .split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ');
            let number = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
            (fields.nth(3)? == directory).then_some(number)
        })
        .next_back()
}

/// A path as mountinfo has it.
fn escaped(path: &Path) -> Vec<u8> {
    let mut escaped = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").bytes()),
            byte => escaped.push(*byte),
        }
    }
    escaped
}

/// Lets the kernel read ahead as far as a slow network needs; where that may not be set, the kernel's
/// own measure stays.
pub(crate) fn set_read_ahead(device: u64, kib: u32) {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&path, kib.to_string()) {
        tracing::debug!(path, %error, "read-ahead stays as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_on_top_is_known() {
        let mounts = b"22 1 0:20 / / rw - ext4 /dev/a rw\n\
            40 22 0:50 / /mnt rw shared:1 - fuse.steadfast h:/s rw\n\
            41 22 0:51 / /a\\040b\\134 rw - fuse.steadfast h:/s rw\n\
            42 40 0:52 / /mnt rw - tmpfs none rw\n";
        assert_eq!(topmost(mounts, Path::new("/mnt")), Some(42));
        assert_eq!(topmost(mounts, Path::new("/a b\\")), Some(41));
        assert_eq!(topmost(mounts, Path::new("/absent")), None);
    }
}
