//! What NFSv4.2 adds: space and holes of files, copies that the server makes, extended attributes.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{FallocateFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;

use super::{expect_bytes, expect_equal};
use crate::context::Context;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// `fallocate`, holes made and found, `copy_file_range` and `FICLONE`, with fresh mounts between. Before
/// version 4.2 there is no `fallocate`.
pub(crate) fn extents(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let path = directory.join("extents");
    let open = |path: &Path| {
        File::options().read(true).write(true).create(true).truncate(false).open(path)
    };
    let file = open(&path)?;
    let mut expected = vec![0; MIB as usize];
    context.random().fill(&mut expected);
    file.write_all_at(&expected, 0)?;
    file.sync_all()?;
    let allocated = rustix::fs::fallocate(&file, FallocateFlags::empty(), MIB, MIB);
    if context.nfs_version()? != "4.2" {
        return expect_equal(&allocated, &Err(Errno::OPNOTSUPP), "fallocate");
    }
    allocated.context("fallocate")?;
    expect_equal(&file.metadata()?.len(), &(2 * MIB), "size after fallocate")?;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, hole, 256 * KIB, 256 * KIB).context("making a hole")?;
    expected[256 << 10..512 << 10].fill(0);
    expected.resize(2 << 20, 0);
    drop(file);
    mount.again()?;

    let file = open(&path)?;
    let used = file.metadata()?.blocks() * 512;
    ensure!((MIB..2 * MIB).contains(&used), "a file with a hole takes {used} bytes");
    expect_equal(&rustix::fs::seek(&file, SeekFrom::Hole(0))?, &(256 * KIB), "the hole")?;
    let data = rustix::fs::seek(&file, SeekFrom::Data(300 * KIB))?;
    expect_equal(&data, &(512 * KIB), "data behind the hole")?;
    let end = rustix::fs::seek(&file, SeekFrom::Data(2 * MIB)).err();
    expect_equal(&end, &Some(Errno::NXIO), "data behind the end")?;
    let mut found = vec![0xff; 2 << 20];
    file.read_exact_at(&mut found, 0)?;
    expect_bytes(&found, &expected, "the file with a hole")?;

    let copy = open(&directory.join("copy"))?;
    let mut calls = 0;
    let (mut from, mut to) = (0, 0);
    while from < 2 * MIB {
        let rest = (2 * MIB - from) as usize;
        let copied =
            rustix::fs::copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), rest)
                .context("copy_file_range")?;
        calls += 1;
        ensure!(copied > 0, "copy_file_range copied nothing at {from}");
    }
    context.note(&format!("2 MiB copied by {calls} calls"))?;
    let clone = open(&directory.join("clone"))?;
    let cloned = rustix::fs::ioctl_ficlone(&clone, &file);
    drop((file, copy, clone));
    mount.again()?;
    expect_bytes(&std::fs::read(directory.join("copy"))?, &expected, "the copy")?;
    match cloned {
        Ok(()) => expect_bytes(&std::fs::read(directory.join("clone"))?, &expected, "the clone"),
        Err(Errno::OPNOTSUPP) => context.note("files share no blocks here"),
        Err(errno) => Err(errno).context("FICLONE"),
    }
}

/// Attributes of users are set, found by a fresh mount, listed, and removed. Before version 4.2 there are
/// none.
pub(crate) fn extended_attributes(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let file = directory.join("file");
    std::fs::write(&file, b"data")?;
    let is_served = context.nfs_version()? == "4.2";
    for object in [&file, &directory] {
        let set = |name, value, how| rustix::fs::setxattr(object, name, value, how);
        let first = set("user.colour", b"red", XattrFlags::CREATE);
        if !is_served {
            expect_equal(&first, &Err(Errno::OPNOTSUPP), "setxattr")?;
            continue;
        }
        first.context("setxattr")?;
        let again = set("user.colour", b"green", XattrFlags::CREATE);
        expect_equal(&again, &Err(Errno::EXIST), "setxattr of one that is there")?;
        let missing = set("user.none", b"", XattrFlags::REPLACE);
        expect_equal(&missing, &Err(Errno::NODATA), "setxattr of one that is not there")?;
        set("user.colour", b"blue", XattrFlags::REPLACE).context("setxattr again")?;
        set("user.empty", b"", XattrFlags::empty()).context("setxattr of nothing")?;
        mount.again()?;
        let mut value = [0; 100];
        let length = rustix::fs::getxattr(object, "user.colour", &mut value[..])?;
        expect_bytes(&value[..length], b"blue", "the attribute")?;
        let mut names = [0; 1000];
        let length = rustix::fs::listxattr(object, &mut names[..])?;
        let mut names: Vec<&[u8]> =
            names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
        names.retain(|name| name.starts_with(b"user."));
        names.sort_unstable();
        let expected = [&b"user.colour"[..], b"user.empty"];
        expect_equal(&names.as_slice(), &&expected[..], "names of attributes")?;
        rustix::fs::removexattr(object, "user.colour").context("removexattr")?;
        mount.again()?;
        let gone = rustix::fs::getxattr(object, "user.colour", &mut value[..]);
        expect_equal(&gone, &Err(Errno::NODATA), "getxattr of a removed one")?;
    }
    Ok(())
}
