//! Before anything is believed: what reaches a recording disk when its loop device is written and
//! flushed. A kernel whose loop device did not pass flushes on would make every server look broken,
//! and one that did so unasked would hide every fault. And whether an ext4 with a torn super block is
//! repaired, which happens too seldom to be found out otherwise.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};

use crate::disk;
use crate::journal::{Event, Journal};
use crate::recording::Places;
use crate::storage::{FileSystem, Mounted, call, output};

const DISK_BYTES: u64 = 1 << 20;
/// With room for copies of the super block.
const EXT4_BYTES: u64 = 32 << 20;
const SUPER_BLOCK_OFFSET: u64 = 1024;
const SUPER_BLOCK_BYTES: usize = 1024;

/// What is written how, and the events that it has to become.
const CASES: &[(&[&str], &[Kind])] = &[
    (&["oflag=direct"], &[Kind::Write]),
    (&["oflag=direct", "conv=fsync"], &[Kind::Write, Kind::Flush]),
    (&["oflag=direct,dsync"], &[Kind::Write, Kind::Flush]),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write,
    Flush,
}

/// Tries it.
pub(crate) fn run(places: &Places) -> Result<()> {
    let file = |name: &str| {
        let path = places.top.join(name);
        File::options().read(true).write(true).create(true).truncate(true).open(path)
    };
    let content = file("selftest.img")?;
    content.set_len(DISK_BYTES)?;
    let journal = Arc::new(Journal::new(vec![content], file("recorded")?));
    let at = places.top.join("disks");
    std::fs::create_dir_all(&at)?;
    let name = "steadfast-powercut-selftest".to_owned();
    let session = disk::mount(&journal, std::slice::from_ref(&name), &at)?;
    let image = at.join(&name).display().to_string();
    let device = output("losetup", &["--find", "--show", "--direct-io=on", &image])?;
    let device = device.trim().to_owned();
    let tried = CASES.iter().try_for_each(|(how, wanted)| attempt(&journal, &device, how, wanted));
    let detached = call("losetup", &["--detach", &device]);
    tried.and(detached)?;
    session.umount_and_join()?;
    repair_torn_super_block(places)
}

/// An ext4 in the middle of something, with half of its super block as it was before, is repaired so that
/// what it had in its journal is there.
fn repair_torn_super_block(places: &Places) -> Result<()> {
    let (image, cut) = (places.top.join("selftest.img"), places.top.join("selftest-cut.img"));
    let at = places.top.join("selftest");
    FileSystem::Ext4.make(&image, EXT4_BYTES)?;
    let before = super_block(&image)?;
    let mounted = Mounted::new(FileSystem::Ext4, &image, &at, false)?;
    let mut file = File::create(at.join("file"))?;
    file.write_all(b"there")?;
    file.sync_all()?;
    let directory = File::open(&at)?;
    directory.sync_all()?;
    drop((file, directory));
    // Its page cache is that of the loop device's file, so that a copy has all that was flushed.
    std::fs::copy(&image, &cut)?;
    mounted.unmount()?;
    let after = super_block(&cut)?;
    if after == before {
        bail!("an ext4 that was used has the super block that it had before");
    }
    let halves =
        [after.split_at(SUPER_BLOCK_BYTES / 2).0, before.split_at(SUPER_BLOCK_BYTES / 2).1];
    let image = File::options().write(true).open(&cut)?;
    image.write_all_at(&halves.concat(), SUPER_BLOCK_OFFSET)?;
    drop(image);
    if let Ok(mounted) = Mounted::new(FileSystem::Ext4, &cut, &at, false) {
        mounted.unmount()?;
        bail!("an ext4 with a torn super block was mounted");
    }
    if !FileSystem::Ext4.repair_super_block(&cut)? {
        bail!("e2fsck does not repair an ext4 with a torn super block");
    }
    if FileSystem::Ext4.repair_super_block(&cut)? {
        bail!("an ext4 whose super block is whole is repaired");
    }
    let mounted = Mounted::new(FileSystem::Ext4, &cut, &at, false)?;
    let found = std::fs::read(at.join("file"));
    mounted.unmount()?;
    if !matches!(&found, Ok(bytes) if bytes == b"there") {
        bail!("what was flushed to an ext4 is not there after a repair: {found:?}");
    }
    Ok(())
}

fn super_block(image: &Path) -> Result<[u8; SUPER_BLOCK_BYTES]> {
    let mut bytes = [0; SUPER_BLOCK_BYTES];
    File::open(image)?.read_exact_at(&mut bytes, SUPER_BLOCK_OFFSET)?;
    Ok(bytes)
}

fn attempt(journal: &Journal, device: &str, how: &[&str], wanted: &[Kind]) -> Result<()> {
    let before = journal.length();
    let to = format!("of={device}");
    let all = [&["if=/dev/zero", &to, "bs=4096", "count=1", "status=none"], how].concat();
    call("dd", &all)?;
    let mut seen: Vec<Kind> = (journal.events().iter().skip(before))
        .filter_map(|event| match event {
            Event::Write { .. } => Some(Kind::Write),
            Event::Flush { .. } => Some(Kind::Flush),
            Event::Sent(_)
            | Event::Acknowledged(_)
            | Event::DeedSent(_)
            | Event::DeedAnswered(_) => None,
        })
        .collect();
    // A block layer that cannot write through flushes before, too.
    seen.dedup();
    let is_flushed_at_end = seen.ends_with(wanted);
    let is_unasked = !wanted.contains(&Kind::Flush) && seen.contains(&Kind::Flush);
    if !is_flushed_at_end || is_unasked {
        bail!("dd {}: the recording disk saw {seen:?} instead of {wanted:?}", how.join(" "));
    }
    Ok(())
}
