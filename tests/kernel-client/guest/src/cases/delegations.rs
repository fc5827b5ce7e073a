//! Delegations of NFSv4.1 and later, which another client recalls: one of NFSv3, since two mounts of one
//! guest by NFSv4 are one client to the server.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::expect_equal;
use crate::context::Context;
use crate::mount::Mount;

/// A delegation is returned within a round trip or two. Linux, which is told JUKEBOX after 2 s, asks
/// again 5 s later.
const RETURNED: Duration = Duration::from_secs(4);
/// A delegation is not recalled for so long after it was granted.
const GRANTED: Duration = Duration::from_secs(2);
/// What a client cannot flush while nobody waits for it.
const CLOSED_BYTES: usize = 64 << 20;

fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// The main share as another client mounts it.
fn mount_by_nfs3(context: &Context) -> Result<Mount> {
    let device = format!("{}:{}", context.value("server")?, context.value("share.main")?);
    let at = PathBuf::from(format!("/run/nfs/{}/nfs3", context.case_name()));
    let ports = context.value("port-options")?;
    let port = ports.strip_prefix("port=").context("the port of NFS")?;
    let options = format!("vers=3,nolock,noac,port={port},mountport={port}");
    Mount::new(&device, at, &[&options])
}

/// What another client writes is read, and what the holder has written is read by another client, though
/// the holder asks the server about neither.
pub(crate) fn recalled_for_nfs3(context: &Context) -> Result<()> {
    let kind = context.value("delegations")?;
    if !["4.1", "4.2"].contains(&context.nfs_version()?) || kind == "none" {
        return context.note("the server grants no delegations: run it with --delegations");
    }
    let (_mount, directory) = context.mount_main("")?;
    let nfs3 = mount_by_nfs3(context)?;
    let of_nfs3 = nfs3.path().join(context.case_name());

    let (mine, theirs) = (directory.join("read"), of_nfs3.join("read"));
    std::fs::write(&theirs, "first")?;
    for content in ["second", "third, by a file that is open"] {
        let is_open = content.len() > 6;
        // Not right after a recall: for 30 s none is granted again.
        let held = File::open(&mine)?;
        let before = read(&mine)?;
        std::thread::sleep(GRANTED);
        if !is_open {
            drop(held);
        }
        let began = Instant::now();
        std::fs::write(&theirs, content)?;
        let took = began.elapsed();
        ensure!(took < RETURNED, "a write of another client took {took:?}");
        context.note(&format!("{before:?} was written over in {took:?}"))?;
        expect_equal(&read(&mine)?.as_str(), &content, "what another client wrote")?;
    }
    if kind != "write" {
        return Ok(());
    }
    let (mine, theirs) = (directory.join("written"), of_nfs3.join("written"));
    let mut file = File::create(&mine)?;
    file.write_all(b"made")?;
    drop(file);
    let mut file = File::options().append(true).open(&mine)?;
    file.write_all(b", then more")?;
    // The holder of a delegation to write keeps the open; what it closes it has to flush.
    drop(file);
    std::thread::sleep(GRANTED);
    let began = Instant::now();
    let found = read(&theirs)?;
    let took = began.elapsed();
    ensure!(took < RETURNED, "a look of another client took {took:?}");
    context.note(&format!("what its holder had written was read in {took:?}"))?;
    expect_equal(&found.as_str(), &"made, then more", "what the holder wrote")
}

/// How often holders were asked and had their delegations recalled, as the server counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    granted: u64,
    asked: u64,
    recalled: u64,
}

impl Counts {
    fn take(context: &Context) -> Result<Self> {
        let count = |name: &str| -> Result<u64> {
            let request = format!("statistic delegations_{name}");
            context.host(&request)?.parse().with_context(|| request)
        };
        let (granted, asked) = (count("granted_write")?, count("asked")?);
        Ok(Self { granted, asked, recalled: count("recalled")? })
    }
}

/// What a program of the holder has done to its file when another client looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    /// It has opened it.
    Nothing,
    /// It has written, flushed, and not closed.
    Flushed,
    /// It has written much, and closed.
    Closed,
    /// It has written, and done nothing more.
    Written,
}

/// A look by NFSv3 at a file that is delegated to write asks its holder.
pub(crate) fn asked_for_nfs3(context: &Context) -> Result<()> {
    let kind = context.value("delegations")?;
    if !["4.1", "4.2"].contains(&context.nfs_version()?) || kind != "write" {
        return context.note("nothing is delegated to write: run it with --delegations write");
    }
    let (_mount, directory) = context.mount_main("")?;
    let nfs3 = mount_by_nfs3(context)?;
    let of_nfs3 = nfs3.path().join(context.case_name());
    for done in [Done::Nothing, Done::Flushed, Done::Closed, Done::Written] {
        asked_after(context, done, &directory, &of_nfs3).with_context(|| format!("{done:?}"))?;
    }
    Ok(())
}

/// Three looks. Who has changed nothing that is not flushed keeps the delegation. What a program has flushed or closed is
/// seen at once; what it has only written, when it closes the file at the latest.
fn asked_after(context: &Context, done: Done, mine: &Path, theirs: &Path) -> Result<()> {
    let name = format!("{done:?}");
    let (mine, theirs) = (mine.join(&name), theirs.join(&name));
    let more = match done {
        Done::Nothing => 0,
        Done::Flushed | Done::Written => 100,
        Done::Closed => CLOSED_BYTES,
    };
    let written = b"before".len() + more;
    std::fs::write(&theirs, "before")?;
    let at_first = Counts::take(context)?;
    let mut file = Some(File::options().read(true).append(true).open(&mine)?);
    std::thread::sleep(GRANTED);
    let before = Counts::take(context)?;
    let expected = Counts { granted: at_first.granted + 1, ..at_first };
    expect_equal(&before, &expected, "counts after the holder's open")?;
    if let Some(file) = &mut file {
        file.write_all(&vec![b'x'; more])?;
        if done == Done::Flushed {
            file.sync_all()?;
        }
    }
    if done == Done::Closed {
        file = None;
    }
    let is_kept_back = done == Done::Written;
    if is_kept_back {
        let stored = context.on_server("main")?.join(&name);
        expect_equal(&std::fs::metadata(stored)?.len(), &6, "what is flushed by itself")?;
    }
    let look = || Ok::<_, anyhow::Error>(std::fs::metadata(&theirs)?.len());
    let began = Instant::now();
    let told = [look()?, look()?, look()?];
    let took = began.elapsed();
    let after = Counts::take(context)?;
    let (asked, recalled) = (after.asked - before.asked, after.recalled - before.recalled);
    context
        .note(&format!("{name}: told {told:?}, asked {asked}, recalled {recalled}, {took:?}"))?;
    ensure!(took < RETURNED, "three looks of another client took {took:?}");
    let all = written as u64;
    // Who returns a delegation of an open file need not flush it before.
    ensure!(is_kept_back || told == [all; 3], "told {told:?} of {written} bytes");
    // After the recall nobody is asked.
    let is_right = if is_kept_back { asked == 1 } else { asked >= 3 };
    ensure!(is_right, "the holder was asked {asked} times by three looks");
    expect_equal(&recalled, &u64::from(is_kept_back), "recalls")?;
    drop(file);
    expect_equal(&look()?, &all, "what is told after the holder's close")?;
    expect_equal(&read(&theirs)?.len(), &written, "what another client reads")?;
    expect_equal(&read(&mine)?.len(), &written, "what the holder reads")
}

/// How many requests a mount has made of each operation.
fn requests(mount: &Mount) -> Result<BTreeMap<String, u64>> {
    let text = std::fs::read_to_string("/proc/self/mountstats")?;
    let at = format!(" mounted on {} ", mount.path().display());
    let mut lines = text.lines().skip_while(|line| !line.contains(&at)).skip(1);
    let of_it = lines.by_ref().take_while(|line| !line.starts_with("device "));
    let counts = of_it.skip_while(|line| line.trim() != "per-op statistics").skip(1);
    let counts = counts.filter_map(|line| {
        let (operation, numbers) = line.split_once(':')?;
        Some((operation.trim().to_owned(), numbers.split_whitespace().next()?))
    });
    counts.map(|(of, count)| Ok((of, count.parse().context("a count of mountstats")?))).collect()
}

/// Ten times a program looks at many files, opens and reads them, as imports do: with delegations the server hears
/// of the first time.
pub(crate) fn opened_again(context: &Context) -> Result<()> {
    const ROUNDS: u64 = 10;
    let files: u64 = context.by_version(100, 5_000);
    let kind = context.value("delegations")?;
    let (mount, directory) = context.mount_main("")?;
    let on_server = context.on_server("main")?;
    let of = |directory: &Path, number: u64| directory.join(format!("module-{number}.py"));
    for number in 0..files {
        std::fs::write(of(&on_server, number), format!("# {number}"))?;
    }
    let before = requests(&mount)?;
    let began = Instant::now();
    for round in 0..ROUNDS {
        for number in 0..files {
            let path = of(&directory, number);
            ensure!(std::fs::metadata(&path)?.is_file(), "{number} in round {round}");
            expect_equal(&read(&path)?, &format!("# {number}"), "what is read")?;
        }
    }
    let took = began.elapsed();
    let mut made = requests(&mount)?;
    for (operation, count) in &mut made {
        *count -= before.get(operation).copied().unwrap_or_default();
    }
    made.retain(|_, count| *count > 0);
    context.note(&format!(
        "{files} files, each looked at, opened and read {ROUNDS} times: {made:?}, {took:?}; delegations: {kind}"
    ))?;
    let made: u64 = made.values().sum();
    let is_delegating = ["4.1", "4.2"].contains(&context.nfs_version()?) && kind != "none";
    // Of each those of the first time; without, an open and a close each time.
    let most = if is_delegating { 6 * files } else { u64::MAX };
    ensure!(made <= most, "{made} requests, {most} are wanted at the most");
    Ok(())
}
