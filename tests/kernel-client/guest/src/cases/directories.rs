//! Names: links and special files, any bytes, renames, a directory listed while it changes.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use anyhow::{Result, bail, ensure};
use rustix::fs::{CWD, FileType, Mode};
use rustix::io::Errno;

use super::{expect_equal, expect_errno};
use crate::children;
use crate::context::Context;
use crate::random::Random;

/// Hard links, symbolic links, FIFOs, sockets and devices, as made and as seen by a fresh
/// mount.
pub(crate) fn links_and_special_files(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let at = |name: &str| directory.join(name);
    std::fs::write(at("file"), "linked")?;
    for number in 0..50 {
        std::fs::hard_link(at("file"), at(&format!("link-{number}")))?;
    }
    let long_target = "t/".repeat(500);
    std::os::unix::fs::symlink(&long_target, at("long-symlink"))?;
    std::os::unix::fs::symlink("file", at("symlink"))?;
    std::os::unix::fs::symlink("../../../../etc/passwd", at("out"))?;
    let mode = Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, mode, 0)?;
    rustix::fs::mknodat(CWD, at("socket"), FileType::Socket, mode, 0)?;
    let null = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(CWD, at("null"), FileType::CharacterDevice, mode, null)?;
    let large = rustix::fs::makedev(259, 70_000);
    rustix::fs::mknodat(CWD, at("disk"), FileType::BlockDevice, mode, large)?;
    expect_errno(std::fs::hard_link(at("file"), at("link-0")), Errno::EXIST, "a link over a name")?;
    // A directory cannot be linked; the file system says how.
    ensure!(std::fs::hard_link(&directory, at("directory-link")).is_err(), "a directory linked");

    mount.again()?;
    let status = std::fs::metadata(at("link-49"))?;
    expect_equal(&status.nlink(), &51, "link count")?;
    expect_equal(&status.ino(), &std::fs::metadata(at("file"))?.ino(), "fileid of a link")?;
    std::fs::remove_file(at("file"))?;
    expect_equal(&std::fs::read_to_string(at("link-7"))?, &"linked".to_owned(), "by a link")?;
    expect_equal(&std::fs::metadata(at("link-7"))?.nlink(), &50, "link count after unlink")?;
    expect_equal(&std::fs::read_link(at("long-symlink"))?.as_os_str().len(), &1000, "target")?;
    expect_equal(&std::fs::read_link(at("out"))?, &"../../../../etc/passwd".into(), "target")?;
    expect_errno(std::fs::read(at("symlink")), Errno::NOENT, "a dangling symlink")?;
    for (name, check, device) in [
        ("fifo", FileTypeExt::is_fifo as fn(&std::fs::FileType) -> bool, 0),
        ("socket", FileTypeExt::is_socket, 0),
        ("null", FileTypeExt::is_char_device, null),
        ("disk", FileTypeExt::is_block_device, large),
    ] {
        let status = std::fs::symlink_metadata(at(name))?;
        ensure!(check(&status.file_type()), "{name} is a {:?}", status.file_type());
        expect_equal(&status.rdev(), &device, name)?;
    }
    // The node is the client's own device.
    std::fs::write(at("null"), "nothing")?;
    expect_equal(&std::fs::read(at("null"))?.len(), &0, "bytes in the null device")?;
    // The FIFO connects two processes of this client.
    let writer = std::thread::spawn({
        let path = at("fifo");
        move || std::fs::write(path, "through the pipe")
    });
    let text = std::fs::read_to_string(at("fifo"))?;
    expect_equal(&text, &"through the pipe".to_owned(), "what came through the FIFO")?;
    match writer.join() {
        Ok(result) => result?,
        Err(_) => bail!("the writer of the FIFO panicked"),
    }
    Ok(())
}

/// Names of 255 bytes and of any bytes but `/` and NUL: made, listed, found, removed; 256 bytes
/// are refused.
pub(crate) fn names(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let mut random = context.random();
    let mut made: HashSet<Vec<u8>> = HashSet::new();
    // Each byte alone, except those that POSIX keeps.
    made.extend((1..=255_u8).filter(|byte| !b"/.".contains(byte)).map(|byte| vec![byte]));
    for number in 0..context.by_version(100, 1000) {
        let length = if number % 2 == 0 { 255 } else { 1 + random.below(255) as usize };
        let mut name = random.bytes(length);
        for byte in &mut name {
            if matches!(*byte, 0 | b'/') {
                *byte = 0xff;
            }
        }
        made.insert(name);
    }
    for text in ["...", "..a", " ", "\n", "a\nb", "é", "e\u{301}", "\u{feff}", "-rf", "~"] {
        made.insert(text.as_bytes().to_vec());
    }
    made.remove(&b".."[..]);
    for name in &made {
        std::fs::write(directory.join(OsStr::from_bytes(name)), name)?;
    }
    mount.again()?;
    let mut listed = HashSet::new();
    for entry in std::fs::read_dir(&directory)? {
        let name = entry?.file_name().as_bytes().to_vec();
        ensure!(made.contains(&name), "a name that nobody made: {name:x?}");
        ensure!(listed.insert(name.clone()), "a name listed twice: {name:x?}");
    }
    expect_equal(&listed.len(), &made.len(), "names listed")?;
    for name in &made {
        let path = directory.join(OsStr::from_bytes(name));
        expect_equal(&std::fs::read(&path)?, name, "content by name")?;
    }
    for name in &made {
        std::fs::remove_file(directory.join(OsStr::from_bytes(name)))?;
    }
    let long = directory.join("n".repeat(256));
    expect_errno(std::fs::write(&long, ""), Errno::NAMETOOLONG, "a name of 256 bytes")?;
    mount.again()?;
    expect_equal(&std::fs::read_dir(&directory)?.count(), &0, "names left")
}

/// What `rename` has to do and to refuse.
pub(crate) fn rename(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let at = |name: &str| directory.join(name);
    std::fs::create_dir(at("full"))?;
    std::fs::write(at("full/file"), "inside")?;
    std::fs::create_dir(at("empty"))?;
    std::fs::create_dir(at("moved"))?;
    std::fs::write(at("file"), "")?;
    expect_errno(std::fs::rename(at("moved"), at("full")), Errno::NOTEMPTY, "over a full one")?;
    expect_errno(std::fs::rename(at("moved"), at("moved/in")), Errno::INVAL, "into itself")?;
    expect_errno(std::fs::rename(at("file"), at("empty")), Errno::ISDIR, "file over directory")?;
    expect_errno(std::fs::rename(at("moved"), at("file")), Errno::NOTDIR, "directory over file")?;
    expect_errno(std::fs::rename(at("none"), at("new")), Errno::NOENT, "of nothing")?;
    expect_errno(std::fs::remove_dir(at("full")), Errno::NOTEMPTY, "rmdir of a full one")?;
    expect_errno(std::fs::create_dir(at("file")), Errno::EXIST, "mkdir over a file")?;
    let before = std::fs::metadata(at("full"))?.ino();
    std::fs::rename(at("full"), at("empty"))?;
    std::fs::rename(at("empty"), at("moved/deeper"))?;
    std::fs::hard_link(at("file"), at("same"))?;
    // Two names of one file: POSIX says that nothing happens.
    std::fs::rename(at("file"), at("same"))?;
    mount.again()?;
    expect_equal(&std::fs::metadata(at("moved/deeper"))?.ino(), &before, "fileid")?;
    let text = std::fs::read_to_string(at("moved/deeper/file"))?;
    expect_equal(&text, &"inside".to_owned(), "content that moved along")?;
    let parent = std::fs::metadata(at("moved/deeper/.."))?.ino();
    expect_equal(&parent, &std::fs::metadata(at("moved"))?.ino(), "the new `..`")?;
    // btrfs does not count directories.
    let links = std::fs::metadata(at("moved"))?.nlink();
    ensure!(matches!(links, 1 | 3), "the new parent has {links} links, not 3");
    expect_equal(&std::fs::metadata(at("same"))?.nlink(), &2, "links after rename to itself")
}

/// A directory with many names is listed again and again while other names come and go: every
/// name that stays is listed exactly once, no name twice.
pub(crate) fn listed_under_change(context: &Context) -> Result<()> {
    let (_mount, directory) = context.mount_main("")?;
    let count: usize = context.by_version(5_000, 200_000);
    let lists = context.by_version(6, 12);
    // On the server itself: making them over NFS is not what this case is about.
    let local = context.on_server("main")?;
    for number in 0..count {
        std::fs::write(local.join(stable_name(number)), "")?;
    }
    let other = context.mount_other("main")?;
    let stop = context.scratch()?.join("stop");
    let mut processes = Vec::new();
    let elsewhere = other.path().join(context.case_name());
    for (label, mount) in [("same", &directory), ("other", &elsewhere)] {
        processes.push(children::start(&[
            "churn",
            &mount.to_string_lossy(),
            &stop.to_string_lossy(),
            label,
        ])?);
    }
    let result = (0..lists).try_for_each(|round| {
        // Every second time from a cache that was just dropped.
        if round % 2 == 1 {
            let _ = std::fs::write("/proc/sys/vm/drop_caches", "2");
        }
        list_once(&directory, count).map_err(|error| error.context(format!("listing {round}")))
    });
    std::fs::write(&stop, "")?;
    children::finish(processes)?;
    result
}

fn stable_name(number: usize) -> String {
    // Lengths vary, so that entries straddle block and reply borders differently.
    format!("stays-{number}{}", "-".repeat(number % 41))
}

fn list_once(directory: &Path, count: usize) -> Result<()> {
    let mut seen = HashSet::new();
    let mut stable = 0;
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        stable += usize::from(name.as_bytes().starts_with(b"stays-"));
        ensure!(!seen.contains(&name), "listed twice: {}", name.to_string_lossy());
        seen.insert(name);
    }
    if stable != count {
        let missing = (0..count).find(|number| !seen.contains(OsStr::new(&stable_name(*number))));
        bail!("{stable} of {count} names that stay are listed; the first missing: {missing:?}");
    }
    Ok(())
}

/// Creates, renames and removes names, none used twice, until the stop file is there.
pub(crate) fn churn_child(words: &[&str]) -> Result<()> {
    let [directory, stop, label] = words else { bail!("churn DIRECTORY STOP LABEL") };
    let directory = Path::new(directory);
    let mut random = Random::new(std::process::id().into());
    let mut present: Vec<String> = Vec::new();
    for number in 0_u64.. {
        if number % 8 == 0 && Path::new(stop).exists() {
            break;
        }
        let fresh = format!("{label}-{number}{}", "+".repeat(random.below(60) as usize));
        let chosen = random.below(present.len() as u64) as usize;
        match random.below(4) {
            0 if !present.is_empty() => {
                std::fs::remove_file(directory.join(present.swap_remove(chosen)))?;
            }
            1 if !present.is_empty() => {
                std::fs::rename(directory.join(&present[chosen]), directory.join(&fresh))?;
                present[chosen] = fresh;
            }
            _ => {
                std::fs::write(directory.join(&fresh), "")?;
                present.push(fresh);
            }
        }
    }
    Ok(())
}
