//! Which shares are mounted on this host, and where the process of each listens.
//!
//! Both are known without a look at a mount point, which would wait for the mount: the kernel lists mounts in
//! `/proc/self/mountinfo` (proc(5)), and the number of a mount's device is the name of its socket.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// As it stands in mountinfo.
const FILE_SYSTEM_TYPE: &[u8] = b"fuse.steadfast";
/// Nobody else may look into the sockets' directory.
const DIRECTORY_MODE: u32 = 0o700;

/// A share that is mounted on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    /// The kernel's number of the mount.
    pub number: u64,
    /// Its device: major and minor number.
    pub device: (u32, u32),
    /// Where it is mounted.
    pub directory: PathBuf,
    /// `SERVER:/SHARE`.
    pub source: String,
    /// The user who has mounted it.
    pub user: u32,
}

/// All that are mounted, in the order of the kernel's list: a mount before those on top of it.
///
/// # Errors
/// When the kernel's list cannot be read.
pub fn mount_points() -> io::Result<Vec<MountPoint>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// The lines of mountinfo that are of Steadfast.
pub(super) fn parse(mounts: &[u8]) -> Vec<MountPoint> {
    mounts.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// `40 22 0:50 / /mnt rw shared:1 - fuse.steadfast host:/share rw,user_id=0,group_id=0`.
fn parse_line(line: &[u8]) -> Option<MountPoint> {
    let mut fields = line.split(|byte| *byte == b' ');
    let number = number(fields.next()?)?;
    let device = fields.nth(1)?;
    let colon = device.iter().position(|byte| *byte == b':')?;
    let (major, minor) = (device.get(..colon)?, device.get(colon + 1..)?);
    let device = (number_32(major)?, number_32(minor)?);
    let directory = PathBuf::from(OsString::from_vec(unescaped(fields.nth(1)?)));
    // Further fields end with a dash.
    fields.by_ref().skip(1).find(|field| *field == b"-")?;
    if fields.next()? != FILE_SYSTEM_TYPE {
        return None;
    }
    let source = String::from_utf8_lossy(&unescaped(fields.next()?)).into_owned();
    let mut options = fields.next()?.split(|byte| *byte == b',');
    let user = options.find_map(|option| number_32(option.strip_prefix(b"user_id=")?))?;
    Some(MountPoint { number, device, directory, source, user })
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn number_32(text: &[u8]) -> Option<u32> {
    number(text)?.try_into().ok()
}

/// The kernel writes some bytes as a backslash and three octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            plain.push(byte);
            rest = after.get(3..).unwrap_or_default();
        } else {
            plain.push(*first);
            rest = after;
        }
    }
    plain
}

/// The one that is meant by a directory, which is not looked at: a mount point, as the kernel has it or by
/// symbolic links above it. `None`: nothing of Steadfast's is mounted there.
///
/// # Errors
/// When the directory of this process is not known.
pub fn find(mounts: &[MountPoint], directory: &Path) -> io::Result<Option<MountPoint>> {
    let lexical = without_dots(&std::path::absolute(directory)?);
    if let Some(found) = at(mounts, &lexical) {
        return Ok(Some(found));
    }
    // Only what is above is looked at.
    let (Some(above), Some(name)) = (lexical.parent(), lexical.file_name()) else {
        return Ok(None);
    };
    if mounts.iter().any(|mount| above.starts_with(&mount.directory)) {
        return Ok(None);
    }
    let above = above.canonicalize();
    Ok(above.ok().and_then(|above| at(mounts, &above.join(name))))
}

/// The last one is on top.
fn at(mounts: &[MountPoint], directory: &Path) -> Option<MountPoint> {
    mounts.iter().rev().find(|mount| mount.directory == directory).cloned()
}

fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            component => plain.push(component),
        }
    }
    plain
}

/// Where the process of a user's mount may listen: the first place that can be used.
pub(super) fn socket_directories(user: u32) -> [PathBuf; 2] {
    // Whoever may write to /tmp may be first there; that is noticed by whose the directory is.
    let beside = PathBuf::from(format!("/tmp/steadfast-mount-{user}"));
    if user == 0 {
        [PathBuf::from("/run/steadfast-mount"), beside]
    } else {
        [PathBuf::from(format!("/run/user/{user}/steadfast-mount")), beside]
    }
}

/// The name of a mount's socket.
pub(super) fn socket_name((major, minor): (u32, u32)) -> String {
    format!("{major}:{minor}")
}

/// Makes the directory if it is not there, and checks that it is this user's alone.
pub(super) fn prepare_directory(directory: &Path, user: u32) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let metadata = std::fs::symlink_metadata(directory)?;
    let is_ours = metadata.is_dir() && metadata.uid() == user && metadata.mode() & 0o777 == 0o700;
    if is_ours {
        return Ok(());
    }
    let directory = directory.display();
    Err(io::Error::other(format!("{directory} is not a directory of user {user} alone")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const MOUNTS: &[u8] = b"22 1 0:20 / / rw - ext4 /dev/a rw\n\
        40 22 0:50 / /mnt rw shared:1 - fuse.steadfast h:/s rw,user_id=0,group_id=0,allow_other\n\
        41 22 0:51 / /a\\040b\\134 rw shared:1 master:2 - fuse.steadfast [::1]:/s\\040t rw,user_id=7,group_id=0\n\
        42 40 0:52 / /mnt rw - fuse.sshfs h:/s rw,user_id=0,group_id=0\n\
        43 22 0:53 / /strange rw - fuse.steadfast h:/s rw\n\
        44 22 4294967296:1 / /huge rw - fuse.steadfast h:/s rw,user_id=0\n\
        45 22 0:54\n\
        - - -\n\
        46 22 0:55 / /mnt rw - fuse.steadfast h:/second rw,user_id=0,group_id=0\n";

    #[test]
    fn mounts_of_steadfast_are_found() {
        let found = parse(MOUNTS);
        let numbers: Vec<u64> = found.iter().map(|mount| mount.number).collect();
        assert_eq!(numbers, [40, 41, 46]);
        let second = &found[1];
        assert_eq!(second.device, (0, 51));
        assert_eq!(second.directory, Path::new("/a b\\"));
        assert_eq!((second.source.as_str(), second.user), ("[::1]:/s t", 7));
    }

    #[test]
    fn whatever_stands_there_is_no_harm() {
        for end in 0..MOUNTS.len() {
            for line in parse(&MOUNTS[..end]) {
                assert!(line.directory.is_absolute());
            }
        }
        assert_eq!(unescaped(b"\\"), b"\\");
        assert_eq!(unescaped(b"\\04"), b"\\04");
        assert_eq!(unescaped(b"\\777\\04x"), b"\\777\\04x");
        assert_eq!(unescaped(b"a\\011b"), b"a\tb");
    }

    #[test]
    fn a_mount_is_found_by_its_directory_however_it_is_written() {
        let mounts = parse(MOUNTS);
        let number = |text: &str| find(&mounts, Path::new(text)).unwrap().map(|it| it.number);
        for text in ["/mnt", "/mnt/", "/./mnt/.", "/usr/../mnt", "/mnt/below/.."] {
            assert_eq!(number(text), Some(46), "{text}");
        }
        assert_eq!(number("/mnt/below"), None);
        assert_eq!(number("/"), None);
    }

    #[test]
    fn a_mount_is_found_behind_a_symbolic_link() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().canonicalize().unwrap();
        std::fs::create_dir(at.join("real")).unwrap();
        std::os::unix::fs::symlink("real", at.join("link")).unwrap();
        let directory = at.join("real/mnt");
        let mount = MountPoint { directory, ..parse(MOUNTS)[0].clone() };
        let found = find(std::slice::from_ref(&mount), &at.join("link/mnt")).unwrap();
        assert_eq!(found, Some(mount));
    }

    #[test]
    fn a_directory_of_others_is_not_used() {
        let place = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let directory = place.path().join("sockets");
        prepare_directory(&directory, user).unwrap();
        assert_eq!(std::fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
        prepare_directory(&directory, user).unwrap();
        assert!(prepare_directory(&directory, user + 1).is_err());
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o750)).unwrap();
        assert!(prepare_directory(&directory, user).is_err());
        std::os::unix::fs::symlink("sockets", place.path().join("link")).unwrap();
        assert!(prepare_directory(&place.path().join("link"), user).is_err());
        std::fs::write(place.path().join("file"), "").unwrap();
        assert!(prepare_directory(&place.path().join("file"), user).is_err());
    }
}
