//! How full the disks of shares are.
//!
//! A disk that hangs keeps whoever asks it from ending, so each is asked by a process of its own, which is left
//! alone if it does not answer. Which disk a directory is on is taken from `/proc/self/mountinfo`, without a look
//! at the directory.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The command of the program that looks at disks: it prints what [`usage`] says of a directory.
pub const DISK_USAGE: &str = "disk-usage";
/// How long all disks have for their answers.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks whether one has answered.
const PAUSE: Duration = Duration::from_millis(5);
/// Bytes of what a disk's process says.
const SAID_MAX: u64 = 500;
/// The word for a disk that takes no changes.
const READ_ONLY: &str = "read-only";
/// Words of a file system that takes no changes: the second and the third are what ext4 says after an error (since
/// Linux 6.15, when it no longer said `ro`).
const FAILING: [&str; 3] = ["ro", "emergency_ro", "shutdown"];
/// Most disks that are asked.
const DISKS_MAX: usize = 32;

/// A file system with shares on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Where it is mounted.
    pub path: String,
    /// Its size.
    pub total_bytes: u64,
    /// What is written.
    pub used_bytes: u64,
    /// What users who are not root may still write. The rest is kept for root.
    pub available_bytes: u64,
    /// Mounted read-only; its fill level means nothing.
    #[serde(default)]
    pub is_read_only: bool,
    /// The file system itself is read-only, as after an error of its disk, and a share on it is writable.
    #[serde(default)]
    pub changes_fail: bool,
    /// Why its size is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// It has not answered in time; false: it failed for the reason in `why`.
    #[serde(default)]
    pub hangs: bool,
}

/// A directory that a disk is looked at for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used<'a> {
    pub(super) directory: &'a str,
    /// Clients may change what is in it.
    pub(super) is_writable: bool,
}

/// What is mounted.
#[derive(Debug)]
pub(super) struct Mounts(Vec<Mount>);

impl Mounts {
    /// As this process sees it.
    pub(super) fn now() -> Self {
        Self(mount_points(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()))
    }

    /// Where the file system of a path is mounted, if nothing can be written there.
    pub(super) fn read_only_at(&self, path: &Path) -> Option<String> {
        let mount = mount_of(path, &self.0)?;
        let is_read_only = mount.is_read_only || mount.fails;
        is_read_only.then(|| mount.path.display().to_string())
    }

    /// The disks of these directories, in the order of their paths. One that is mounted at several places is told
    /// once: where it can be written, if there is such a place, since its fill level means nothing at another one.
    fn disks<'a>(&self, used: impl Iterator<Item = Used<'a>>) -> Vec<Asked<'_>> {
        let mut disks: BTreeMap<&str, Asked<'_>> = BTreeMap::new();
        for one in used {
            let Some(mount) = mount_of(Path::new(one.directory), &self.0) else { continue };
            let changes_fail = mount.fails && one.is_writable;
            let disk = disks.entry(&mount.device).or_insert(Asked { mount, changes_fail });
            disk.changes_fail |= changes_fail;
            disk.mount = disk.mount.min(mount);
        }
        let mut disks: Vec<_> = disks.into_values().collect();
        disks.sort_by_key(|disk| &disk.mount.path);
        disks
    }

    /// How full the disks of these directories are, at most [`DISKS_MAX`].
    pub(super) fn usage<'a>(&self, used: impl Iterator<Item = Used<'a>>) -> Vec<Disk> {
        let disks = self.disks(used).into_iter().take(DISKS_MAX);
        let asked: Vec<_> = disks.map(|disk| (begin(&disk.mount.path), disk)).collect();
        let deadline = Instant::now() + PATIENCE;
        let answered = asked.into_iter().map(|(child, Asked { mount, changes_fail })| {
            let disk = answer(mount.path.display().to_string(), child, deadline);
            Disk { changes_fail, ..disk }
        });
        answered.collect()
    }
}

/// A disk to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked<'m> {
    mount: &'m Mount,
    changes_fail: bool,
}

fn begin(path: &Path) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg(DISK_USAGE)
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

fn answer(path: String, child: std::io::Result<Child>, deadline: Instant) -> Disk {
    let unknown = |why: String, hangs: bool| Disk {
        path: path.clone(),
        total_bytes: 0,
        used_bytes: 0,
        available_bytes: 0,
        is_read_only: false,
        changes_fail: false,
        why: Some(why),
        hangs,
    };
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return unknown(format!("cannot be asked: {error}"), false),
    };
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            // It ends when its disk answers, if it cannot be killed before.
            Ok(None) => {
                let _ = child.kill();
                return unknown(format!("no answer within {} s", PATIENCE.as_secs()), true);
            }
            Err(error) => return unknown(format!("cannot be asked: {error}"), false),
        }
    }
    let text = child.stdout.take().map(said).unwrap_or_default();
    let mut words = text.split_whitespace();
    let mut number = || words.next().map(str::parse);
    if let (Some(Ok(total_bytes)), Some(Ok(used_bytes)), Some(Ok(available_bytes)), Some(mode)) =
        (number(), number(), number(), words.next())
    {
        let is_read_only = mode == READ_ONLY;
        return Disk {
            path,
            total_bytes,
            used_bytes,
            available_bytes,
            is_read_only,
            changes_fail: false,
            why: None,
            hangs: false,
        };
    }
    let said = child.stderr.take().map(said).unwrap_or_default();
    let why = said.lines().next().map(|line| line.trim_start_matches("steadfast: "));
    let why = why.filter(|why| !why.is_empty()).unwrap_or("its process has failed");
    unknown(format!("its size cannot be read: {why}"), false)
}

/// What a child that has ended has written.
fn said(output: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = output.take(SAID_MAX).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The other side, in the process that may hang: how many bytes there are, are used and are available.
///
/// # Errors
/// Why they are not known.
pub fn usage(directory: &Path) -> std::io::Result<String> {
    let found = rustix::fs::statvfs(directory)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let used = found.f_blocks.saturating_sub(found.f_bfree);
    let is_read_only = found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY);
    let mode = if is_read_only { READ_ONLY } else { "read-write" };
    Ok(format!("{} {} {} {mode}", bytes(found.f_blocks), bytes(used), bytes(found.f_bavail)))
}

/// Something that is mounted: those that can be written come first, and then by path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mount {
    /// Only this mount of it: others may be read-write.
    is_read_only: bool,
    path: PathBuf,
    /// The same wherever the file system is mounted.
    device: String,
    /// The file system is read-only, wherever it is mounted.
    fails: bool,
}

/// What is mounted, as `/proc/self/mountinfo` tells: what is mounted over something else comes after it.
fn mount_points(text: &str) -> Vec<Mount> {
    let mount = |line: &str| {
        // Behind the dash are its type, where it comes from, and the options that all of its mounts have.
        let (own, common) = line.split_once(" - ")?;
        let mut words = own.split(' ').skip(2);
        let device = words.next()?.to_owned();
        let path = unescaped(words.nth(1)?);
        let has = |options: Option<&str>, wanted: &[&str]| {
            options.is_some_and(|options| options.split(',').any(|word| wanted.contains(&word)))
        };
        let is_read_only = has(words.next(), &["ro"]);
        let fails = has(common.split(' ').nth(2), &FAILING);
        Some(Mount { is_read_only, path, device, fails })
    };
    text.lines().filter_map(mount).collect()
}

/// A path of `mountinfo`, in which blanks and some others are three octal digits.
fn unescaped(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let octal = (byte == b'\\').then(|| after.get(..3)).flatten();
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        let meant = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(meant.unwrap_or(byte));
        rest = if meant.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// The innermost, and of several at one place the last, which is over the others.
fn mount_of<'a>(directory: &Path, mounts: &'a [Mount]) -> Option<&'a Mount> {
    let above = mounts.iter().filter(|mount| directory.starts_with(&mount.path));
    above.max_by_key(|mount| mount.path.components().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_does_not_answer_or_not_as_it_should_has_a_reason() {
        let ask = |words: &[&str], patience| {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).stdout(Stdio::piped()).stderr(Stdio::piped());
            answer("/srv".to_owned(), command.spawn(), Instant::now() + patience)
        };
        let why = |disk: Disk| (disk.why.expect("a reason"), disk.hangs);
        let (late, hangs) = why(ask(&["sleep", "5"], Duration::ZERO));
        assert!(late.contains("no answer within") && hangs, "{late}");
        let patience = Duration::from_secs(60);
        let (short, hangs) = why(ask(&["echo", "12"], patience));
        assert!(short.contains("cannot be read") && !hangs, "{short}");
        let refused = why(ask(&["sh", "-c", "echo steadfast: not allowed >&2; exit 1"], patience));
        assert_eq!(refused, ("its size cannot be read: not allowed".to_owned(), false));
        let (missing, hangs) = why(ask(&["/nonexistent/program"], patience));
        assert!(missing.contains("cannot be asked") && !hangs, "{missing}");
        let told = ask(&["echo", "100 60 30 read-write"], patience);
        assert_eq!((told.total_bytes, told.used_bytes, told.available_bytes), (100, 60, 30));
        assert_eq!((told.why.clone(), told.used_percent(), told.is_read_only), (None, 66, false));
        assert!(ask(&["echo", "100 100 0 read-only"], patience).is_read_only);
    }

    #[test]
    fn a_directory_is_on_the_innermost_mount() {
        let mounts = mount_points(
            "21 1 254:0 / / rw - ext4 /dev/vda rw\n30 21 8:1 / /srv rw - xfs /dev/sda1 rw\n\
             31 30 8:2 / /srv/a\\040b rw - ext4 /dev/sdb rw\nbroken\n",
        );
        let of = |path: &str| {
            mount_of(Path::new(path), &mounts).map(|mount| mount.path.display().to_string())
        };
        assert_eq!(of("/home").as_deref(), Some("/"));
        assert_eq!(of("/srv/x").as_deref(), Some("/srv"));
        assert_eq!(of("/srvx").as_deref(), Some("/"));
        assert_eq!(of("/srv/a b/c").as_deref(), Some("/srv/a b"));
        assert_eq!(of("relative"), None);
        // What is mounted over another one hides it.
        let stacked =
            mount_points("30 21 8:1 / /srv rw - xfs /dev/a rw\n31 30 8:2 / /srv rw - xfs b rw\n");
        let over = mount_of(Path::new("/srv/x"), &stacked).map(|mount| mount.device.as_str());
        assert_eq!(over, Some("8:2"));
        assert_eq!(unescaped("a\\0"), Path::new("a\\0"));
        assert_eq!(unescaped("a\\999"), Path::new("a\\999"));
    }

    fn told(text: &str, used: &[(&str, bool)]) -> Vec<(String, bool)> {
        let mounts = Mounts(mount_points(text));
        let used = used.iter().map(|&(directory, is_writable)| Used { directory, is_writable });
        let path = |disk: Asked<'_>| (disk.mount.path.display().to_string(), disk.changes_fail);
        mounts.disks(used).into_iter().map(path).collect()
    }

    #[test]
    fn a_disk_is_told_once_where_it_can_be_written() {
        let text = "20 1 8:1 /pub /export/pub ro shared:1 - ext4 /dev/a rw\n\
             21 1 8:1 / /srv rw,noatime - ext4 /dev/a rw\n22 1 8:1 / /zz rw - ext4 /dev/a rw\n\
             23 1 11:0 / /cd ro - iso9660 /dev/b ro\n";
        let all = [("/export/pub", true), ("/srv", true), ("/zz", true), ("/cd", false)];
        let wanted = [("/cd".to_owned(), false), ("/srv".to_owned(), false)];
        assert_eq!(told(text, &all), wanted);
        // Where only what is read-only is shared, that is it.
        assert_eq!(told(text, &all[..1]), [("/export/pub".to_owned(), false)]);
    }

    #[test]
    fn a_file_system_that_has_become_read_only_fails_who_may_write() {
        for word in ["ro", "emergency_ro", "shutdown"] {
            let text = format!("21 1 8:1 / /srv rw - ext4 /dev/a {word},errors=remount-ro\n");
            let srv = |fails| [("/srv".to_owned(), fails)];
            assert_eq!(told(&text, &[("/srv/a", false), ("/srv/b", true)]), srv(true));
            assert_eq!(told(&text, &[("/srv/a", false)]), srv(false));
            let mounts = Mounts(mount_points(&text));
            assert_eq!(mounts.read_only_at(Path::new("/srv/log")).as_deref(), Some("/srv"));
            assert_eq!(mounts.read_only_at(Path::new("/log")), None);
        }
        let healthy = "21 1 8:1 / /srv rw - ext4 /dev/a rw,errors=remount-ro\n";
        assert_eq!(told(healthy, &[("/srv", true)]), [("/srv".to_owned(), false)]);
        assert_eq!(Mounts(mount_points(healthy)).read_only_at(Path::new("/srv")), None);
    }
}
