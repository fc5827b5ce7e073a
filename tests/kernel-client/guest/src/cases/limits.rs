//! Full file systems and used-up quotas: the right error, and nothing lost that was promised.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use rustix::io::Errno;

use super::{expect_bytes, expect_equal};
use crate::context::Context;

/// ENOSPC on a file system of 48 MiB.
pub(crate) fn enospc(context: &Context) -> Result<()> {
    fill(context, "small", Errno::NOSPC, 64)
}

/// EDQUOT on a btrfs subvolume limited to 16 MiB.
pub(crate) fn edquot(context: &Context) -> Result<()> {
    fill(context, "quota", Errno::DQUOT, 32)
}

/// Writes until the error, three ways, and goes on after making room.
fn fill(context: &Context, share: &str, expected: Errno, at_most_mib: usize) -> Result<()> {
    let mount = context.mount(share, "")?;
    let directory = context.fresh_directory(&mount)?;
    let mut random = context.random();
    let kept = random.bytes(4 << 20);
    write_synced(&directory.join("kept"), &kept)?;
    for (way, is_synced) in [("buffered", false), ("synced", true)] {
        let path = directory.join(way);
        let mut file = File::create(&path)?;
        let mut written: u64 = 0;
        let mut failure = None;
        for _ in 0..at_most_mib {
            let block = random.bytes(1 << 20);
            let result = file
                .write_all(&block)
                .and_then(|()| if is_synced { file.sync_all() } else { Ok(()) });
            match result {
                Ok(()) => written += 1 << 20,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        // A buffered write may hear of it only when it is flushed.
        let failure = failure.or_else(|| file.sync_all().err());
        match failure {
            Some(error) if error.raw_os_error() == Some(expected.raw_os_error()) => {}
            Some(error) => bail!("{way} after {written} bytes: {error} instead of {expected}"),
            None => bail!("{way}: {written} bytes were taken without {expected}"),
        }
        ensure!(written > 1 << 20, "{way}: {expected} after {written} bytes");
        drop(file);
        mount.again()?;
        expect_bytes(&std::fs::read(directory.join("kept"))?, &kept, "what was there before")?;
        if is_synced {
            let found = std::fs::metadata(&path)?.len();
            ensure!(found >= written, "{found} bytes of {written} that were acknowledged");
        }
        std::fs::remove_file(&path)?;
        wait_for_room(&directory, &random.bytes(2 << 20), expected)?;
    }
    mount.again()?;
    let names = std::fs::read_dir(&directory)?.count();
    expect_equal(&names, &1, "names left")
}

/// Freed space comes back with the file system's next commit: some seconds on btrfs.
fn wait_for_room(directory: &Path, content: &[u8], full: Errno) -> Result<()> {
    let path = directory.join("again");
    let mut attempts = 0;
    loop {
        match write_synced(&path, content) {
            Ok(()) => break,
            Err(error) if error.raw_os_error() == Some(full.raw_os_error()) && attempts < 80 => {
                attempts += 1;
                std::thread::sleep(std::time::Duration::from_millis(500));
            }
            Err(error) => bail!("2 MiB after making room: {error}"),
        }
    }
    expect_bytes(&std::fs::read(&path)?, content, "what was written after making room")?;
    std::fs::remove_file(path)?;
    Ok(())
}

fn write_synced(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// A file system without inodes left: names that were acknowledged are there, others are not.
pub(crate) fn enospc_inodes(context: &Context) -> Result<()> {
    let mount = context.mount("small", "")?;
    let directory = context.fresh_directory(&mount)?;
    let mut made = 0;
    let failure = loop {
        ensure!(made < 10_000, "10,000 files on a file system with 2,048 inodes");
        match File::create_new(directory.join(made.to_string())) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    if failure.raw_os_error() != Some(Errno::NOSPC.raw_os_error()) {
        bail!("file {made}: {failure} instead of ENOSPC");
    }
    for attempt in [
        std::fs::create_dir(directory.join("directory")),
        std::os::unix::fs::symlink("x", directory.join("symlink")),
    ] {
        super::expect_errno(attempt, Errno::NOSPC, "another inode")?;
    }
    mount.again()?;
    let names = std::fs::read_dir(&directory)?.count();
    expect_equal(&names, &made, "names after ENOSPC")?;
    std::fs::remove_dir_all(&directory)?;
    std::fs::create_dir(&directory)?;
    std::fs::write(directory.join("again"), "x")?;
    Ok(())
}
