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
    /// Why its size is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
}

/// The disks that these directories are on, at most [`DISKS_MAX`], in the order of their paths.
pub(super) fn usage<'a>(directories: impl Iterator<Item = &'a str>) -> Vec<Disk> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = mount_points(&mounts);
    let used: BTreeSet<&PathBuf> =
        directories.filter_map(|directory| mount_of(Path::new(directory), &mounts)).collect();
    let asked: Vec<_> = used
        .into_iter()
        .take(DISKS_MAX)
        .map(|path| (path.display().to_string(), begin(path)))
        .collect();
    let deadline = Instant::now() + PATIENCE;
    asked.into_iter().map(|(path, child)| answer(path, child, deadline)).collect()
}

fn begin(path: &Path) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg("disk-usage")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
}

fn answer(path: String, child: std::io::Result<Child>, deadline: Instant) -> Disk {
    let unknown = |path, why: String| Disk {
        path,
        total_bytes: 0,
        used_bytes: 0,
        available_bytes: 0,
        why: Some(why),
    };
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return unknown(path, format!("cannot be asked: {error}")),
    };
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            // It ends when its disk answers, if it cannot be killed before.
            Ok(None) => {
                let _ = child.kill();
                let why = format!("no answer within {} s", PATIENCE.as_secs());
                return unknown(path, why);
            }
            Err(error) => return unknown(path, format!("cannot be asked: {error}")),
        }
    }
    let mut text = String::new();
    if let Some(output) = child.stdout.take() {
        let _ = output.take(200).read_to_string(&mut text);
    }
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(total_bytes)), Some(Ok(used_bytes)), Some(Ok(available_bytes))) => {
            Disk { path, total_bytes, used_bytes, available_bytes, why: None }
        }
        _ => unknown(path, "its size cannot be read".to_owned()),
    }
}

/// The other side, in the process that may hang: prints how many bytes there are, are used and are available.
///
/// # Errors
/// Why they are not known.
pub(crate) fn print_usage(directory: &Path) -> anyhow::Result<()> {
    let found = rustix::fs::statvfs(directory)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let used = found.f_blocks.saturating_sub(found.f_bfree);
    println!("{} {} {}", bytes(found.f_blocks), bytes(used), bytes(found.f_bavail));
    Ok(())
}

/// Where something is mounted, as `/proc/self/mountinfo` tells.
fn mount_points(text: &str) -> Vec<PathBuf> {
    text.lines().filter_map(|line| line.split(' ').nth(4)).map(unescaped).collect()
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

fn mount_of<'a>(directory: &Path, mounts: &'a [PathBuf]) -> Option<&'a PathBuf> {
    let above = mounts.iter().filter(|mount| directory.starts_with(mount));
    above.max_by_key(|mount| mount.components().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_does_not_answer_or_not_as_it_should_has_a_reason() {
        let ask = |words: &[&str], patience| {
            let child = Command::new(words[0]).args(&words[1..]).stdout(Stdio::piped()).spawn();
            answer("/srv".to_owned(), child, Instant::now() + patience)
        };
        let why = |disk: Disk| disk.why.expect("a reason");
        assert!(why(ask(&["sleep", "5"], Duration::ZERO)).contains("no answer within"));
        let patience = Duration::from_secs(60);
        assert!(why(ask(&["echo", "12"], patience)).contains("cannot be read"));
        assert!(why(ask(&["/nonexistent/program"], patience)).contains("cannot be asked"));
        let told = ask(&["echo", "100 60 30"], patience);
        assert_eq!((told.total_bytes, told.used_bytes, told.available_bytes), (100, 60, 30));
        assert_eq!((told.why.clone(), told.used_percent()), (None, 66));
    }

    #[test]
    fn a_directory_is_on_the_innermost_mount() {
        let mounts = mount_points(
            "21 1 254:0 / / rw - ext4 /dev/vda rw\n30 21 8:1 / /srv rw - xfs /dev/sda1 rw\n\
             31 30 8:2 / /srv/a\\040b rw - ext4 /dev/sdb rw\nbroken\n",
        );
        let of =
            |path: &str| mount_of(Path::new(path), &mounts).map(|path| path.display().to_string());
        assert_eq!(of("/home").as_deref(), Some("/"));
        assert_eq!(of("/srv/x").as_deref(), Some("/srv"));
        assert_eq!(of("/srvx").as_deref(), Some("/"));
        assert_eq!(of("/srv/a b/c").as_deref(), Some("/srv/a b"));
        assert_eq!(of("relative"), None);
        assert_eq!(unescaped("a\\0"), Path::new("a\\0"));
        assert_eq!(unescaped("a\\999"), Path::new("a\\999"));
    }
}
