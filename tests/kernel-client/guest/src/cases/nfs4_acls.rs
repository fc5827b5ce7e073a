//! Access control lists of NFSv4, by the tools that administrators set them with.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::Mode;
use rustix::io::Errno;

use super::expect_equal;
use crate::children::User;
use crate::context::{Context, set_mode};
use crate::mount::run;

fn change(words: &[&str], path: &Path) -> Result<()> {
    let text = path.to_string_lossy();
    let words: Vec<&str> = words.iter().copied().chain([text.as_ref()]).collect();
    run("nfs4_setfacl", &words).map(|_| ())
}

/// The entries of a list, without the tool's comments.
fn entries(path: &Path) -> Result<Vec<String>> {
    let told = run("nfs4_getfacl", &[path.to_string_lossy().as_ref()])?;
    let lines = told.lines().map(str::trim);
    Ok(lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect())
}

/// Lists are set, read, enforced and inherited. Before NFSv4 there are none.
pub(crate) fn set_read_and_enforced(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let path = directory.join("file");
    let text = path.to_string_lossy().into_owned();
    std::fs::write(&path, "secret")?;
    set_mode(&path, 0o640)?;
    if !context.nfs_version()?.starts_with('4') {
        ensure!(change(&["-a", "A::1234:r"], &path).is_err(), "a list was set without NFSv4");
        return Ok(());
    }
    let told = entries(&path)?;
    let expected = ["A::OWNER@:rwatTcCy", "A:g:GROUP@:rtcy", "A::EVERYONE@:tcy"];
    expect_equal(&told, &expected.map(str::to_owned).to_vec(), "the list of mode 640")?;

    let (named, other) = (User::new(1234, 1234), User::new(1235, 1235));
    let member = User::new(1236, 1236).with_groups(&[2345]);
    named.cannot(&["read", &text, "secret"], Errno::ACCESS)?;
    change(&["-a", "A::1234:r"], &path).context("to let a user read")?;
    change(&["-a", "A:g:2345:rwa"], &path).context("to let a group write")?;
    named.can(&["read", &text, "secret"])?;
    named.cannot(&["write", &text, "x"], Errno::ACCESS)?;
    other.cannot(&["read", &text, "secret"], Errno::ACCESS)?;
    member.can(&["write", &text, "public"])?;
    // A denial beats what everybody may.
    change(&["-a", "A::EVERYONE@:r"], &path)?;
    change(&["-a", "D::1235:r"], &path)?;
    other.cannot(&["read", &text, "public"], Errno::ACCESS)?;
    User::new(1239, 1239).can(&["read", &text, "public"])?;
    mount.again()?;
    let told = entries(&path)?;
    ensure!(told.iter().any(|entry| entry == "A:g:2345:rwatcy"), "the group is not told: {told:?}");
    ensure!(told.iter().any(|entry| entry.starts_with("D::1235:")), "no denial: {told:?}");
    // A list that is told can be set again, and means the same.
    change(&["-s", &told.join(",")], &path).context("to set what was told")?;
    expect_equal(&entries(&path)?, &told, "the list set again")?;

    // What the file system cannot do is refused, and changes nothing.
    for refused in ["D::EVERYONE@:t", "A::1234:w", "U::1234:r", "A::nobody@nowhere:r"] {
        if change(&["-a", refused], &path).is_ok() {
            bail!("{refused} was accepted");
        }
    }
    expect_equal(&entries(&path)?, &told, "the list after refusals")?;
    inherited(context, &directory, &named, &other)
}

fn inherited(context: &Context, directory: &Path, named: &User, other: &User) -> Result<()> {
    let parent = directory.join("parent");
    std::fs::create_dir(&parent)?;
    let list = "A::OWNER@:RWX,A:g:GROUP@:RX,A::EVERYONE@:RX,\
                A:fdi:OWNER@:RWX,A:fdi:1234:RWX,A:fdig:GROUP@:RX,A:fdi:EVERYONE@:tcy";
    change(&["-s", list], &parent).context("to set a list that is inherited")?;
    // Before 4.2 the client takes its umask from the mode itself, which narrows the list (RFC 8275).
    let is_told_umask = context.nfs_version()? == "4.2";
    let umask = (!is_told_umask).then(|| rustix::process::umask(Mode::empty()));
    std::fs::create_dir(parent.join("inner"))?;
    let path = parent.join("inner/file");
    std::fs::write(&path, "x")?;
    if let Some(umask) = umask {
        rustix::process::umask(umask);
    }
    let text = path.to_string_lossy().into_owned();
    named.can(&["write", &text, "y"])?;
    other.cannot(&["read", &text, "y"], Errno::ACCESS)?;
    let told = entries(&parent.join("inner"))?;
    let is_named = |entry: &String| entry.starts_with("A:fdi:1234:");
    ensure!(told.iter().any(is_named), "inner hands nothing on: {told:?}");
    change(&["-s", "A::OWNER@:RWX,A:g:GROUP@:RX,A::EVERYONE@:RX"], &parent)?;
    let told = entries(&parent)?;
    ensure!(!told.iter().any(|entry| entry.starts_with("A:fd")), "something is left: {told:?}");
    Ok(())
}
