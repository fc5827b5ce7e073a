//! Shares added, changed and taken away under mounts: what the client of a mount sees of it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rustix::io::Errno;

use super::{expect_bytes, expect_equal, expect_errno};
use crate::context::Context;
use crate::mount::{Mount, run};

/// What mounts here have: every question goes to the server, and an error that may pass comes back.
const UNCACHED: &str = "noac,lookupcache=none";
/// The network that this client is in.
const CLIENTS: &str = "10.77.0.0/24";

/// A directory of the server's to be shared, and where clients find it.
struct Place {
    on_server: String,
    device: String,
}

impl Place {
    fn new(context: &Context, name: &str) -> Result<Self> {
        let on_server = text(&context.on_server("main")?.join(name));
        let device = format!("{}:{on_server}", context.value("server")?);
        Ok(Self { on_server, device })
    }

    fn mount(&self, context: &Context, at: &str, options: &str) -> Result<Mount> {
        let at = PathBuf::from(format!("/run/nfs/{}/{at}", context.case_name()));
        Mount::new(&self.device, at, &[&context.mount_options()?, UNCACHED, options])
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Has the host run `steadfast` with these words.
fn steadfast(context: &Context, words: &[&str]) -> Result<()> {
    context
        .host(&format!("steadfast {}", words.join(" ")))
        .map(drop)
        .with_context(|| format!("steadfast {}", words.join(" ")))
}

/// A share is added, made read-only, narrowed to other clients, switched off, and removed, while
/// it is mounted and a file is open.
pub(crate) fn changed_under_mounts(context: &Context) -> Result<()> {
    let (_main, directory) = context.mount_main("")?;
    std::fs::create_dir(directory.join("share"))?;
    run("chmod", &["777", &text(&directory.join("share"))])?;
    let place = Place::new(context, "share")?;
    let path = place.on_server.as_str();
    let mounting = place.mount(context, "early", "");
    if mounting.is_ok() {
        bail!("{path} can be mounted before it is shared");
    }
    steadfast(context, &["share", "add", path, "--client", CLIENTS, "-o", "rw,no_root_squash"])?;
    let exports = run("showmount", &["--no-headers", "--exports", context.value("server")?])?;
    anyhow::ensure!(exports.contains(path), "showmount -e lacks {path}: {exports}");
    let mount = place.mount(context, "mount", "")?;
    let file = mount.path().join("file");
    std::fs::write(&file, "first")?;
    let open = std::fs::File::options().read(true).write(true).open(&file)?;

    steadfast(context, &["share", "set", path, "-o", "ro"])?;
    expect_errno(std::fs::write(mount.path().join("new"), ""), Errno::ROFS, "create, read-only")?;
    expect_bytes(&std::fs::read(&file)?, b"first", "read, read-only")?;
    steadfast(context, &["share", "set", path, "-o", "rw"])?;
    std::fs::write(mount.path().join("new"), "").context("create, writable again")?;

    // Other clients alone: with the mount that there is, and the file that is open.
    let other = ["--add-client", "10.99.0.0/24", "--remove-client", CLIENTS];
    steadfast(context, &[&["share", "set", path][..], &other].concat())?;
    expect_errno(std::fs::metadata(&file), Errno::ACCESS, "a name, of another's share")?;
    expect_errno(open.metadata(), Errno::ACCESS, "an open file, of another's share")?;
    if place.mount(context, "other", "").is_ok() {
        bail!("{path} can be mounted though it is for others");
    }
    let back = ["--add-client", CLIENTS, "--remove-client", "10.99.0.0/24"];
    steadfast(context, &[&["share", "set", path][..], &back].concat())?;
    expect_equal(&open.metadata()?.len(), &5, "an open file, let in again")?;

    steadfast(context, &["share", "disable", path])?;
    expect_errno(open.metadata(), Errno::STALE, "an open file, switched off")?;
    steadfast(context, &["share", "enable", path])?;
    // This client does not forget that a file was stale; its handle is what it was.
    drop(open);
    drop(mount);
    let mount = place.mount(context, "again", "")?;
    let file = mount.path().join("file");
    let open = std::fs::File::open(&file)?;
    expect_bytes(&std::fs::read(&file)?, b"first", "read, switched on again")?;

    steadfast(context, &["share", "disable", "--drain", path])?;
    expect_equal(&open.metadata()?.len(), &5, "an open file, while the share drains")?;
    if place.mount(context, "late", "").is_ok() {
        bail!("{path} can be mounted while it drains");
    }
    steadfast(context, &["share", "enable", path])?;
    drop(open);
    drop(mount);
    steadfast(context, &["share", "remove", path])?;
    if place.mount(context, "late", "").is_ok() {
        bail!("{path} can be mounted after it was removed");
    }
    Ok(())
}

/// A share within a share: each has rights of its own, and goes without the other.
pub(crate) fn nested(context: &Context) -> Result<()> {
    let (_main, directory) = context.mount_main("")?;
    std::fs::create_dir_all(directory.join("outer/inner"))?;
    run("chmod", &["-R", "777", &text(&directory)])?;
    let (outer, inner) = (Place::new(context, "outer")?, Place::new(context, "outer/inner")?);
    let add = |place: &Place, options: &str| {
        let words = ["share", "add", &place.on_server, "--client", CLIENTS, "-o", options];
        steadfast(context, &words)
    };
    add(&outer, "ro,no_root_squash")?;
    add(&inner, "rw,no_root_squash")?;
    let outside = outer.mount(context, "outside", "")?;
    let inside = inner.mount(context, "inside", "")?;
    std::fs::write(inside.path().join("file"), "inner")?;
    let seen = outside.path().join("inner/file");
    expect_bytes(&std::fs::read(&seen)?, b"inner", "by the outer share")?;
    let new = outside.path().join("inner/new");
    let written = std::fs::write(&new, "");
    if context.nfs_version()? == "3" {
        expect_errno(written, Errno::ROFS, "by the outer share")?;
    } else {
        written.context("by NFSv4 the inner share is entered at its name, with its own rules")?;
    }
    steadfast(context, &["share", "remove", &outer.on_server])?;
    expect_errno(std::fs::metadata(&seen), Errno::STALE, "by the outer share, removed")?;
    std::fs::write(inside.path().join("file"), "still there")?;
    add(&outer, "ro,no_root_squash")?;
    steadfast(context, &["share", "remove", &inner.on_server])?;
    expect_errno(
        std::fs::metadata(inside.path().join("file")),
        Errno::STALE,
        "by the inner share, removed",
    )?;
    drop(outside);
    let outside = outer.mount(context, "outside-again", "")?;
    let seen = outside.path().join("inner/file");
    expect_bytes(&std::fs::read(&seen)?, b"still there", "by the outer share, back again")?;
    // Below a share that is shared, without being a share: the outer one has it.
    let below = inner.mount(context, "below", "")?;
    expect_errno(std::fs::write(below.path().join("new"), ""), Errno::ROFS, "below the outer")?;
    drop((outside, inside, below));
    steadfast(context, &["share", "remove", &outer.on_server])
}

/// Callers who say who they are may write; those who do not may read.
pub(crate) fn flavours(context: &Context) -> Result<()> {
    let (_main, directory) = context.mount_main("")?;
    std::fs::create_dir(directory.join("share"))?;
    run("chmod", &["777", &text(&directory.join("share"))])?;
    let place = Place::new(context, "share")?;
    let options = "no_root_squash,sec=sys,rw,sec=none,ro";
    steadfast(context, &["share", "add", &place.on_server, "--client", CLIENTS, "-o", options])?;
    let known = place.mount(context, "known", "sec=sys,nosharecache")?;
    std::fs::write(known.path().join("file"), "known")?;
    expect_equal(&known.effective("sec")?, &"sys".to_owned(), "flavour in effect")?;
    let unknown = place.mount(context, "unknown", "sec=none,nosharecache")?;
    expect_equal(&unknown.effective("sec")?, &"null".to_owned(), "flavour in effect")?;
    expect_bytes(&std::fs::read(unknown.path().join("file"))?, b"known", "by AUTH_NONE")?;
    expect_errno(std::fs::write(unknown.path().join("new"), ""), Errno::ROFS, "by AUTH_NONE")?;
    // From now on one has to say who he is.
    steadfast(context, &["share", "set", &place.on_server, "-o", "no_root_squash,sec=sys"])?;
    expect_errno(
        std::fs::metadata(unknown.path().join("file")),
        Errno::ACCESS,
        "by AUTH_NONE, which is not served any more",
    )?;
    if place.mount(context, "late", "sec=none,nosharecache").is_ok() {
        bail!("AUTH_NONE can be mounted though it is not served");
    }
    std::fs::write(known.path().join("file"), "still").context("by AUTH_SYS")?;
    drop((known, unknown));
    steadfast(context, &["share", "remove", &place.on_server])
}
