//! Where files are that outlive the process, and not the machine: they are never flushed.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where the first PID namespace is found in `/proc`: a constant of the kernel (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
/// What groups and others may do.
const OTHERS: u32 = 0o077;
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// Directories in memory that outlive a process.
const IN_MEMORY: [&str; 2] = ["/run", "/dev/shm"];

/// All places where the files called `what` of a state directory may be, the best first.
pub(super) fn places(state_directory: &Path, what: &str) -> io::Result<Vec<PathBuf>> {
    let state = std::fs::metadata(state_directory)?;
    let name = format!("steadfast-{what}-{:x}-{:x}", state.dev(), state.ino());
    let in_memory = IN_MEMORY.iter().map(|place| Path::new(place).join(&name));
    Ok(in_memory.chain([state_directory.join(what)]).collect())
}

/// Makes a directory that nobody else can change, or finds that it is one.
pub(super) fn make_own(place: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(place) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if is_own(place) { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Whether it is a directory that nobody else can change. Others may put what they like at its place.
pub(super) fn is_own(place: &Path) -> bool {
    std::fs::symlink_metadata(place).is_ok_and(|found| {
        let is_own = found.uid() == rustix::process::geteuid().as_raw();
        found.is_dir() && is_own && found.mode() & OTHERS == 0
    })
}

/// Makes the best place for files called `what`.
pub(super) fn make_place(state_directory: &Path, what: &str) -> io::Result<PathBuf> {
    let first = std::fs::read_link("/proc/self/ns/pid")
        .is_ok_and(|namespace| namespace.as_os_str() == FIRST_PID_NAMESPACE);
    let is_in_memory = |place: &Path| {
        let kind = rustix::fs::statfs(place).map(|kind| kind.f_type as u64);
        first && kind == Ok(TMPFS_MAGIC)
    };
    let own = state_directory.join(what);
    for place in places(state_directory, what)? {
        if place != own && place.parent().is_some_and(is_in_memory) && make_own(&place).is_ok() {
            return Ok(place);
        }
    }
    make_own(&own)?;
    Ok(own)
}
