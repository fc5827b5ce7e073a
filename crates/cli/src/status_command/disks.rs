//! How full the disks of shares are.
//!
//! A disk that hangs keeps whoever asks it from ending, so each is asked by a process of its own, which is left
//! alone if it does not answer. Which disk a directory is on is taken from `/proc/self/mountinfo`, without a look
//! at the directory.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// How long all disks have for their answers.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks whether one has answered.
const PAUSE: Duration = Duration::from_millis(5);
/// Bytes of what a disk's process says.
const SAID_MAX: u64 = 500;
/// The word for a disk that takes no changes.
const READ_ONLY: &str = "read-only";
/// Most disks that are asked.
const DISKS_MAX: usize = 32;

/// A file system with shares on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Disk {
    /// Where it is mounted.
    pub(super) path: String,
    /// Its size.
    pub(super) total_bytes: u64,
    /// What is written.
    pub(super) used_bytes: u64,
    /// What users who are not root may still write. The rest is kept for root.
    pub(super) available_bytes: u64,
    /// It takes no changes: it is full by nature, or of no use for them.
    #[serde(default)]
    pub(super) is_read_only: bool,
    /// Why its size is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// It has not answered in time. Else what is not known is so for a lesser reason.
    #[serde(default)]
    pub(super) hangs: bool,
}

/// The disks that these directories are on, at most [`DISKS_MAX`], in the order of their paths.
pub(super) fn usage<'a>(directories: impl Iterator<Item = &'a str>) -> Vec<Disk> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = mount_points(&mounts);
    let found: BTreeSet<&Mount> =
        directories.filter_map(|directory| mount_of(Path::new(directory), &mounts)).collect();
    // One that is mounted at several places is asked at the first.
    let mut devices = BTreeSet::new();
    let used = found.into_iter().filter(|mount| devices.insert(&mount.device));
    let used = used.map(|mount| &mount.path);
    let asked: Vec<_> =
        used.take(DISKS_MAX).map(|path| (path.display().to_string(), begin(path))).collect();
    let deadline = Instant::now() + PATIENCE;
    asked.into_iter().map(|(path, child)| answer(path, child, deadline)).collect()
}

fn begin(path: &Path) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg("disk-usage")
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
        let (why, hangs) = (None, false);
        return Disk { path, total_bytes, used_bytes, available_bytes, is_read_only, why, hangs };
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

/// The other side, in the process that may hang: prints how many bytes there are, are used and are available.
///
/// # Errors
/// Why they are not known.
pub(crate) fn print_usage(directory: &Path) -> anyhow::Result<()> {
    let found = rustix::fs::statvfs(directory)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let used = found.f_blocks.saturating_sub(found.f_bfree);
    let is_read_only = found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY);
    let mode = if is_read_only { READ_ONLY } else { "read-write" };
    println!("{} {} {} {mode}", bytes(found.f_blocks), bytes(used), bytes(found.f_bavail));
    Ok(())
}

/// Something that is mounted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mount {
    path: PathBuf,
    /// The same wherever the file system is mounted.
    device: String,
}

/// What is mounted, as `/proc/self/mountinfo` tells: what is mounted over something else comes after it.
fn mount_points(text: &str) -> Vec<Mount> {
    let mount = |line: &str| {
        let mut words = line.split(' ').skip(2);
        let device = words.next()?.to_owned();
        Some(Mount { path: unescaped(words.nth(1)?), device })
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
}
