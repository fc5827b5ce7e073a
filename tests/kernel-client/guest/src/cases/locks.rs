//! Locks of byte ranges between two mounts, which know nothing of each other: what excludes is the
//! server. Over NFSv3 the guest's lock manager and monitor take part (NLM, NSM).

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use super::{expect_equal, expect_errno, guest_monitor};
use crate::children;
use crate::context::Context;

/// A process of another client waits for a lock no longer than this after it is
/// free: Linux asks again after 1 s, then 2 s and so on.
const HANDED_OVER: Duration = Duration::from_secs(10);

fn open(path: &Path) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).with_context(|| path.display().to_string())
}

/// Exclusion, by `fcntl` of whole files, between two mounts and several processes.
pub(crate) fn between_clients(context: &Context) -> Result<()> {
    let is_nfs3 = context.nfs_version()? == "3";
    if is_nfs3 {
        guest_monitor::ensure(context)?;
    }
    let Err(error) = exclude(context, is_nfs3) else { return Ok(()) };
    // Linux says no more than ENOLCK, whoever refused the lock: the server, which logs it, or the
    // guest itself, which does so without its monitor. The guest's kernel kills a process now and
    // then (`model.rs`).
    if !is_nfs3 || !is_enolck(&error) {
        return Err(error);
    }
    let told = guest_monitor::kernel_messages()?;
    context.host("refused-locks").with_context(|| format!("{error:#}; {told}"))?;
    context
        .note(&format!("the guest refused a lock by itself, so once more: {error:#}; {told}"))?;
    guest_monitor::ensure(context)?;
    exclude(context, is_nfs3)
}

/// Of this process or of one that it has started.
fn is_enolck(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains(&format!("os error {}", Errno::NOLCK.raw_os_error()))
}

fn exclude(context: &Context, is_nfs3: bool) -> Result<()> {
    let locks = if is_nfs3 { "lock" } else { "" };
    let (_one, directory) = context.mount_main(locks)?;
    let other = context.mount_other_with("main", locks)?;
    let of_other = other.path().join(context.case_name());
    let (mine, theirs) = (open(&directory.join("file"))?, open(&of_other.join("file"))?);
    if is_nfs3 {
        context
            .note("over NFSv3 a process owns its locks by all mounts: only others are excluded")?;
    } else {
        between_opens(&mine, &theirs)?;
    }
    drop(theirs);
    fcntl_lock(&mine, FlockOperation::NonBlockingLockExclusive)
        .context("what is closed is free")?;
    let waiting = children::start(&["lock-and-note", &text(&of_other.join("file"))])?;
    std::thread::sleep(Duration::from_millis(1500));
    expect_equal(&std::fs::read_to_string(directory.join("file"))?.as_str(), &"", "it waits")?;
    let freed = Instant::now();
    drop(mine);
    children::finish(vec![waiting])?;
    ensure!(freed.elapsed() < HANDED_OVER, "a lock was handed over after {:?}", freed.elapsed());
    count(context, &directory, &of_other)
}

/// The server loses all that it knows of clients, as by a power cut: who had a lock has it still, and
/// nobody else got it in between.
pub(crate) fn reclaimed(context: &Context) -> Result<()> {
    // Their clients do not say when they have all, so that the grace period lasts.
    let lasts = ["3", "4.0"].contains(&context.nfs_version()?);
    if lasts && !context.by_version(false, true) {
        return context.note("the grace period takes 90 s: in the long version only");
    }
    let locks = if context.nfs_version()? == "3" {
        guest_monitor::ensure(context)?;
        "lock"
    } else {
        ""
    };
    let (_one, directory) = context.mount_main(locks)?;
    let other = context.mount_other_with("main", locks)?;
    let of_other = other.path().join(context.case_name());
    let (mut mine, theirs) = (open(&directory.join("file"))?, open(&of_other.join("file"))?);
    let exclusive = FlockOperation::NonBlockingLockExclusive;
    fcntl_lock(&mine, exclusive)?;
    mine.write_all(b"before")?;
    mine.sync_all()?;
    let lost = Instant::now();
    context.host("lose-state")?;
    expect_errno(as_io(fcntl_lock(&theirs, exclusive)), Errno::AGAIN, "a lock that is reclaimed")?;
    context.note(&format!("{:.1} s from the loss to a refusal", lost.elapsed().as_secs_f64()))?;
    mine.write_all(b", and after").context("a write under the lock that was reclaimed")?;
    mine.sync_all().context("fsync under it")?;
    fcntl_lock(&mine, FlockOperation::NonBlockingUnlock)?;
    fcntl_lock(&theirs, exclusive).context("what was reclaimed and freed")?;
    let found = std::fs::read_to_string(of_other.join("file"))?;
    expect_equal(&found.as_str(), &"before, and after", "what was written")
}

/// Exclusion of two files that one process has open by two mounts.
fn between_opens(mine: &File, theirs: &File) -> Result<()> {
    let exclusive = FlockOperation::NonBlockingLockExclusive;
    let shared = FlockOperation::NonBlockingLockShared;
    fcntl_lock(mine, exclusive)?;
    expect_errno(as_io(fcntl_lock(theirs, exclusive)), Errno::AGAIN, "a lock that is held")?;
    expect_errno(as_io(fcntl_lock(theirs, shared)), Errno::AGAIN, "a read lock of it")?;
    fcntl_lock(mine, shared)?;
    fcntl_lock(theirs, shared).context("two readers")?;
    expect_errno(as_io(fcntl_lock(mine, exclusive)), Errno::AGAIN, "what another reads")
}

/// Processes of both mounts add to one number, each under the lock.
fn count(context: &Context, directory: &Path, of_other: &Path) -> Result<()> {
    let turns = context.by_version(20, 300);
    let started: Vec<_> = [directory, of_other, directory]
        .iter()
        .map(|at| children::start(&["count-locked", &text(at), &turns.to_string()]))
        .collect::<Result<_>>()?;
    children::finish(started)?;
    let counted = std::fs::read_to_string(directory.join("count"))?;
    expect_equal(&counted.trim(), &(3 * turns).to_string().as_str(), "what three have counted")
}

/// Child: waits for the lock, and writes into the file that it has it.
pub(crate) fn lock_and_note(path: &str) -> Result<()> {
    let mut file = open(Path::new(path))?;
    fcntl_lock(&file, FlockOperation::LockExclusive)?;
    file.write_all(b"locked")?;
    file.sync_all().context("fsync")
}

/// Child: adds to the number in a file, so many times, each time under the lock of another file.
pub(crate) fn count_locked(directory: &str, turns: u32) -> Result<()> {
    let directory = Path::new(directory);
    let lock = open(&directory.join("lock"))?;
    for _ in 0..turns {
        fcntl_lock(&lock, FlockOperation::LockExclusive)?;
        let mut file = open(&directory.join("count"))?;
        let mut number = String::new();
        file.read_to_string(&mut number)?;
        let number = if number.is_empty() { 0 } else { number.parse::<u64>()? };
        file.seek(SeekFrom::Start(0))?;
        file.write_all((number + 1).to_string().as_bytes())?;
        drop(file);
        fcntl_lock(&lock, FlockOperation::Unlock)?;
    }
    Ok(())
}

fn as_io(result: rustix::io::Result<()>) -> std::io::Result<()> {
    result.map_err(Into::into)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
