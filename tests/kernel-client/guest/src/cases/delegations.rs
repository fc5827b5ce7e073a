//! Delegations of NFSv4.1 and later, which another client recalls: one of NFSv3, since two mounts of one
//! guest by NFSv4 are one client to the server.

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

fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// What another client writes is read, and what the holder has written is read by another client, though
/// the holder asks the server about neither.
pub(crate) fn recalled_for_nfs3(context: &Context) -> Result<()> {
    let kind = context.value("delegations")?;
    if !["4.1", "4.2"].contains(&context.nfs_version()?) || kind == "none" {
        return context.note("the server grants no delegations: run it with --delegations");
    }
    let (_mount, directory) = context.mount_main("")?;
    let device = format!("{}:{}", context.value("server")?, context.value("share.main")?);
    let at = PathBuf::from(format!("/run/nfs/{}/nfs3", context.case_name()));
    let ports = context.value("port-options")?;
    let port = ports.strip_prefix("port=").context("the port of NFS")?;
    let options = format!("vers=3,nolock,noac,port={port},mountport={port}");
    let nfs3 = Mount::new(&device, at, &[&options])?;
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
    // The holder of a delegation to write need not flush what it closes.
    drop(file);
    std::thread::sleep(GRANTED);
    let began = Instant::now();
    let found = read(&theirs)?;
    let took = began.elapsed();
    ensure!(took < RETURNED, "a look of another client took {took:?}");
    context.note(&format!("what its holder had written was read in {took:?}"))?;
    expect_equal(&found.as_str(), &"made, then more", "what the holder wrote")
}
