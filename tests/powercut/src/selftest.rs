//! Before anything is believed: what reaches a recording disk when its loop device is written and
//! flushed. A kernel whose loop device did not pass flushes on would make every server look broken,
//! and one that did so unasked would hide every fault.

use std::fs::File;
use std::sync::Arc;

use anyhow::{Result, bail};

use crate::disk;
use crate::journal::{Event, Journal};
use crate::recording::Places;
use crate::storage::{call, output};

const DISK_BYTES: u64 = 1 << 20;

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
    Ok(())
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
            Event::Sent(_) | Event::Acknowledged(_) => None,
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
