//! Single files: unlinked and renamed over while open, created read-only, appended to, sparse,
//! big.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use xxhash_rust::xxh3::Xxh3;

use super::{expect_bytes, expect_equal, expect_errno};
use crate::children::{self, User};
use crate::context::Context;

/// A file that was unlinked while open can be read and written until it is closed, and is gone
/// afterwards.
pub(crate) fn open_unlinked(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let path = directory.join("open");
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    file.write_all_at(b"before", 0)?;
    std::fs::remove_file(&path)?;
    expect_errno(File::open(&path), Errno::NOENT, "open of the unlinked name")?;
    file.write_all_at(b"after, and longer", 6)?;
    file.sync_all()?;
    let mut bytes = [0; 23];
    file.read_exact_at(&mut bytes, 0)?;
    expect_bytes(&bytes, b"beforeafter, and longer", "read of the unlinked file")?;
    // The same name again is another file.
    std::fs::write(&path, "another")?;
    file.read_exact_at(&mut bytes, 0)?;
    expect_bytes(&bytes, b"beforeafter, and longer", "read beside another of its name")?;
    drop(file);
    std::fs::remove_file(&path)?;
    mount.again()?;
    let left = std::fs::read_dir(&directory)?.count();
    expect_equal(&left, &0, "names left when all is closed")?;

    // Unlinked behind this client's back: the data or ESTALE, never anything else.
    let path = directory.join("behind");
    std::fs::write(&path, "content")?;
    let file = File::open(&path)?;
    let other = context.mount_other("main")?;
    std::fs::remove_file(other.path().join("open-unlinked/behind"))?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    let mut bytes = [0; 7];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => expect_bytes(&bytes, b"content", "read of a file another client unlinked"),
        Err(error) => expect_errno::<()>(Err(error), Errno::STALE, "the same read"),
    }
}

/// A file renamed over while open stays readable through its descriptor; the name shows the
/// new one.
pub(crate) fn open_renamed_over(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let (old, new) = (directory.join("old"), directory.join("new"));
    std::fs::write(&old, "the old content")?;
    std::fs::write(&new, "the new content!")?;
    let file = File::options().read(true).write(true).open(&old)?;
    let inode = std::fs::metadata(&new)?.ino();
    std::fs::rename(&new, &old)?;
    expect_errno(std::fs::metadata(&new), Errno::NOENT, "the source's name")?;
    expect_equal(&std::fs::read_to_string(&old)?, &"the new content!".to_owned(), "the name")?;
    expect_equal(&std::fs::metadata(&old)?.ino(), &inode, "fileid kept by rename")?;
    file.write_all_at(b"THE", 0)?;
    file.sync_all()?;
    let mut bytes = [0; 15];
    file.read_exact_at(&mut bytes, 0)?;
    expect_bytes(&bytes, b"THE old content", "the descriptor of the file renamed over")?;
    drop(file);
    mount.again()?;
    let names: Vec<_> = std::fs::read_dir(&directory)?.flatten().map(|e| e.file_name()).collect();
    expect_equal(&names, &vec!["old".into()], "names left")?;
    expect_equal(&std::fs::metadata(&old)?.ino(), &inode, "fileid after a fresh mount")
}

/// `open(O_CREAT, 0444)` and writing through that descriptor works for the owner, for no one
/// else, and not by opening again.
pub(crate) fn owner_writes_0444(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let (owner, other) = (User::new(1000, 1000), User::new(1001, 1001));
    for (name, mode) in [("readable", "444"), ("nothing", "000")] {
        let path = directory.join(name).to_string_lossy().into_owned();
        owner.can(&["create-long", &path, mode, "3000000"])?;
        mount.again()?;
        let status = std::fs::metadata(&path)?;
        expect_equal(&status.len(), &(3_000_000 / 4096 * 4096), "its size")?;
        expect_equal(
            &format!("{:o}", status.mode() & 0o7777),
            &format!("{:o}", u32::from_str_radix(mode, 8)?),
            "its mode",
        )?;
        expect_equal(&(status.uid(), status.gid()), &(1000, 1000), "its owner")?;
        owner.cannot(&["write", &path, "x"], Errno::ACCESS)?;
        other.cannot(&["write", &path, "x"], Errno::ACCESS)?;
        let content = std::fs::read(&path)?;
        ensure!(content.iter().all(|byte| *byte == 0x5a), "{name}: the bytes are wrong");
    }
    // The owner may also give the mode back and go on.
    let path = directory.join("readable").to_string_lossy().into_owned();
    owner.can(&["chmod", &path, "644"])?;
    owner.can(&["write", &path, "again"])?;
    other.can(&["read", &path, "again"])
}

/// Several processes create the same names with `O_EXCL`: each name has exactly one winner.
pub(crate) fn exclusive_create(context: &Context) -> Result<()> {
    let (_mount, directory) = context.mount_main("lookupcache=none")?;
    let scratch = context.scratch()?;
    let count = context.by_version(150, 2000);
    let mut processes = Vec::new();
    for number in 0..4 {
        let won = scratch.join(number.to_string());
        processes.push(children::start(&[
            "exclusive",
            &directory.to_string_lossy(),
            &won.to_string_lossy(),
            &count.to_string(),
        ])?);
    }
    children::finish(processes)?;
    let mut winners = vec![0; count];
    for number in 0..4 {
        let text = std::fs::read_to_string(scratch.join(number.to_string()))?;
        for name in text.lines() {
            let index: usize = name.parse()?;
            winners[index] += 1;
        }
    }
    for (name, count) in winners.iter().enumerate() {
        ensure!(*count == 1, "{count} processes created the name {name}");
        let mode = std::fs::metadata(directory.join(name.to_string()))?.mode();
        ensure!(mode & 0o777 == 0o640, "{name} has mode {mode:o} instead of 640");
    }
    Ok(())
}

/// Tries to create names 0 to COUNT and writes down those it won.
pub(crate) fn exclusive_child(words: &[&str]) -> Result<()> {
    let [directory, won, count] = words else { bail!("exclusive DIRECTORY WON COUNT") };
    rustix::process::umask(rustix::fs::Mode::empty());
    let mut list: Vec<u8> = Vec::new();
    for name in 0..count.parse::<u32>()? {
        let path = Path::new(directory).join(name.to_string());
        let flags =
            rustix::fs::OFlags::CREATE | rustix::fs::OFlags::EXCL | rustix::fs::OFlags::WRONLY;
        match rustix::fs::open(&path, flags, rustix::fs::Mode::from_raw_mode(0o640)) {
            Ok(_) => writeln!(list, "{name}")?,
            Err(Errno::EXIST) => {}
            Err(error) => bail!("create {}: {error}", path.display()),
        }
    }
    std::fs::write(won, list)?;
    Ok(())
}

/// `O_APPEND` through two descriptors of one client: nothing overwritten.
pub(crate) fn append(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let path = directory.join("log");
    let mut files = Vec::new();
    for _ in 0..2 {
        files.push(File::options().append(true).create(true).open(&path)?);
    }
    let mut expected = Vec::new();
    for number in 0..400 {
        let line = format!("line {number} {}\n", "x".repeat(number % 97));
        files[number % 2].write_all(line.as_bytes())?;
        expected.extend_from_slice(line.as_bytes());
    }
    drop(files);
    mount.again()?;
    expect_bytes(&std::fs::read(&path)?, &expected, "the appended file")
}

/// Holes read as zeros and take no space; truncation leaves nothing behind; offsets beyond
/// 32 bits; `SEEK_DATA` and `SEEK_HOLE` as version 3 has them (no hole but the one at the end).
pub(crate) fn sparse(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let path = directory.join("sparse");
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    let places = [0_u64, 1_000_003, (4 << 30) - 5, 6 << 30];
    for place in places {
        file.write_all_at(b"0123456789", place)?;
    }
    file.sync_all()?;
    file.set_len(8 << 30)?;
    mount.again().err().context("umount with an open file has to fail")?;
    drop(file);
    mount.again()?;

    let file = File::options().read(true).write(true).open(&path)?;
    let status = file.metadata()?;
    expect_equal(&status.len(), &(8 << 30), "size")?;
    let used = status.blocks() * 512;
    ensure!(used < 1 << 20, "a file with 40 bytes of data takes {used} bytes");
    for place in places {
        let from = place.saturating_sub(5000);
        let mut bytes = vec![0xff; 10_010];
        file.read_exact_at(&mut bytes, from)?;
        let mut expected = vec![0; 10_010];
        let at = (place - from) as usize;
        expected[at..at + 10].copy_from_slice(b"0123456789");
        expect_bytes(&bytes, &expected, &format!("around {place}"))?;
    }
    let mut bytes = vec![0xff; 65_536];
    let read = file.read_at(&mut bytes, (8 << 30) - 30_000)?;
    expect_equal(&read, &30_000, "read across the end")?;
    ensure!(bytes[..read].iter().all(|byte| *byte == 0), "the hole at the end is not zero");
    expect_equal(&rustix::fs::seek(&file, SeekFrom::Data(0))?, &0, "SEEK_DATA at 0")?;
    let hole = rustix::fs::seek(&file, SeekFrom::Hole(0))?;
    ensure!(hole == 8 << 30 || hole < places[1], "SEEK_HOLE at 0 found {hole}");
    expect_equal(
        &rustix::fs::seek(&file, SeekFrom::Data(8 << 30)).err(),
        &Some(Errno::NXIO),
        "SEEK_DATA at the end",
    )?;

    // Cut in the middle of the data, grown again: zeros, not what was there.
    file.set_len(1_000_006)?;
    file.set_len(2_000_000)?;
    let mut bytes = vec![0xff; 20];
    file.read_exact_at(&mut bytes, 1_000_003)?;
    let mut expected = vec![0; 20];
    expected[..3].copy_from_slice(b"012");
    expect_bytes(&bytes, &expected, "after truncation and growth")?;
    drop(file);
    mount.again()?;
    let found = std::fs::read(&path)?;
    expect_bytes(&found[1_000_003..1_000_023], &expected, "the same after a fresh mount")?;

    // Far out: XFS and btrfs store that, ext4 does not.
    let file = File::options().read(true).write(true).open(&path)?;
    let far = (1 << 62) + 1;
    match file.write_at(b"x", far).and_then(|_| file.sync_all()) {
        Ok(()) => {
            drop(file);
            mount.again()?;
            let mut byte = [0];
            File::open(&path)?.read_exact_at(&mut byte, far)?;
            expect_equal(&byte, b"x", "what was written at 2^62")?;
            return Ok(());
        }
        refused => expect_errno(refused, Errno::FBIG, "a write at 2^62")?,
    }
    let result = file.set_len(i64::MAX as u64);
    ensure!(result.is_err(), "truncate to 2^63-1 succeeded");
    expect_equal(&file.metadata()?.len(), &2_000_000, "size after refused growth")
}

/// A big file by checksum: written, read back from the server.
pub(crate) fn big(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let size_mib = context.by_version(64, 2048);
    let path = directory.join("big");
    let mut random = context.random();
    let mut file = File::create(&path)?;
    let mut written = Xxh3::new();
    for _ in 0..size_mib {
        let block = random.bytes(1 << 20);
        written.update(&block);
        file.write_all(&block)?;
    }
    file.write_all(b"tail")?;
    written.update(b"tail");
    file.sync_all()?;
    drop(file);
    mount.again()?;
    let mut file = File::open(&path)?;
    expect_equal(&file.metadata()?.len(), &((size_mib << 20) + 4), "size")?;
    let mut read = Xxh3::new();
    let mut buffer = vec![0; 300_007];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            length => read.update(&buffer[..length]),
        }
    }
    expect_equal(&read.digest(), &written.digest(), "checksum")?;
    std::fs::remove_file(&path)?;
    Ok(())
}
