//! Who the client's users are on the server: groups, squashing, read-only shares.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{CWD, FileType, Mode};
use rustix::io::Errno;

use super::{expect_bytes, expect_equal, expect_errno};
use crate::children::User;
use crate::context::{Context, set_mode};

/// AUTH_SYS carries 16 groups; each of them counts.
pub(crate) fn supplementary_groups(context: &Context) -> Result<()> {
    let (_mount, directory) = context.mount_main("")?;
    let groups: Vec<u32> = (3001..=3016).collect();
    let user = User::new(1000, 1000).with_groups(&groups);
    for group in [3001, 3008, 3016, 3099] {
        let path = directory.join(format!("of-{group}"));
        std::fs::write(&path, "x")?;
        std::os::unix::fs::chown(&path, Some(0), Some(group))?;
        set_mode(&path, 0o660)?;
        let text = path.to_string_lossy().into_owned();
        if group == 3099 {
            user.cannot(&["read", &text, "x"], Errno::ACCESS)?;
        } else {
            user.can(&["write", &text, "y"])?;
        }
        User::new(1001, 1001).cannot(&["read", &text, "y"], Errno::ACCESS)?;
    }
    Ok(())
}

/// `no_root_squash`: root owns what he makes, may give it away and read everything.
pub(crate) fn no_root_squash(context: &Context) -> Result<()> {
    let (_mount, directory) = context.mount_main("")?;
    let path = directory.join("file");
    std::fs::write(&path, "x")?;
    expect_owner(&path, 0, 0)?;
    std::os::unix::fs::chown(&path, Some(1000), Some(1000))?;
    set_mode(&path, 0o000)?;
    expect_equal(&std::fs::read_to_string(&path)?, &"x".to_owned(), "root's read of mode 0")?;
    std::fs::write(&path, "y").context("root's write of mode 0")?;
    expect_owner(&path, 1000, 1000)
}

/// `root_squash`: root is nobody, others are themselves.
pub(crate) fn root_squash(context: &Context) -> Result<()> {
    let mount = context.mount("root_squash", "")?;
    let directory = mount.path().join(context.case_name());
    std::fs::create_dir(&directory)?;
    expect_owner(&directory, 65_534, 65_534)?;
    // Nobody made it, so nobody, which is whom root is here, may open it to all.
    set_mode(&directory, 0o777)?;
    let (made, given) = (directory.join("made"), directory.join("given"));
    std::fs::write(&made, "x")?;
    expect_owner(&made, 65_534, 65_534)?;
    expect_errno(std::os::unix::fs::chown(&made, Some(1000), None), Errno::PERM, "chown by root")?;
    let text = given.to_string_lossy().into_owned();
    let user = User::new(1000, 1001);
    user.can(&["create", &text, "600", "private"])?;
    expect_owner(&given, 1000, 1001)?;
    expect_errno(std::fs::read(&given), Errno::ACCESS, "root's read of a private file")?;
    expect_errno(set_mode_io(&given, 0o644), Errno::PERM, "root's chmod of another's file")?;
    user.can(&["read", &text, "private"])?;
    let device = rustix::fs::mknodat(
        CWD,
        directory.join("device"),
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o600),
        rustix::fs::makedev(1, 3),
    );
    expect_equal(&device, &Err(Errno::PERM), "mknod of a device by root")
}

/// `all_squash` with anonuid and anongid: everybody is that user, and no more.
pub(crate) fn all_squash(context: &Context) -> Result<()> {
    let mount = context.mount("all_squash", "")?;
    let directory = mount.path().join(context.case_name());
    std::fs::create_dir(&directory)?;
    expect_owner(&directory, 1234, 2345)?;
    set_mode(&directory, 0o700)?;
    for (uid, gid) in [(0, 0), (1000, 1000), (65_534, 65_534)] {
        // The client's own check asks the server (ACCESS), which squashes there too.
        let path = directory.join(format!("by-{uid}"));
        let text = path.to_string_lossy().into_owned();
        let user = User::new(uid, gid).with_groups(&[0]);
        user.can(&["create", &text, "600", "x"])?;
        expect_owner(&path, 1234, 2345)?;
        User::new(1777, 1777).can(&["read", &text, "x"])?;
    }
    // The groups that the client claims count for nothing.
    let secret = Path::new(context.value("local.all_squash")?).join("secret");
    std::fs::write(&secret, "x")?;
    crate::mount::run("chown", &["0:1000", &secret.to_string_lossy()])?;
    crate::mount::run("chmod", &["640", &secret.to_string_lossy()])?;
    let seen = mount.path().join("secret").to_string_lossy().into_owned();
    User::new(0, 0).with_groups(&[0, 1000]).cannot(&["read", &seen, "x"], Errno::ACCESS)
}

/// A read-only share can be read and refuses every change with EROFS.
pub(crate) fn read_only_share(context: &Context) -> Result<()> {
    let local = Path::new(context.value("local.ro")?);
    std::fs::create_dir_all(local.join("directory"))?;
    let content = context.random().bytes(200_000);
    std::fs::write(local.join("file"), &content)?;
    std::fs::File::open(local.join("file"))?.sync_all()?;
    let mount = context.mount("ro", "")?;
    let at = |name: &str| mount.path().join(name);
    expect_bytes(&std::fs::read(at("file"))?, &content, "the file")?;
    ensure!(std::fs::read_dir(mount.path())?.count() >= 2, "names are missing");
    let refused: Vec<(&str, std::io::Result<()>)> = vec![
        ("create", std::fs::write(at("new"), "")),
        (
            "open for writing",
            std::fs::File::options().write(true).open(at("file")).and_then(|file| {
                std::os::unix::fs::FileExt::write_all_at(&file, b"x", 0)
                    .and_then(|()| file.sync_all())
            }),
        ),
        ("mkdir", std::fs::create_dir(at("new"))),
        ("rmdir", std::fs::remove_dir(at("directory"))),
        ("unlink", std::fs::remove_file(at("file"))),
        ("rename", std::fs::rename(at("file"), at("new"))),
        ("link", std::fs::hard_link(at("file"), at("new"))),
        ("symlink", std::os::unix::fs::symlink("x", at("new"))),
        ("chmod", set_mode_io(&at("file"), 0o600)),
        ("chown", std::os::unix::fs::chown(at("file"), Some(1), None)),
        (
            "truncate",
            std::fs::File::options().write(true).truncate(true).open(at("file")).map(drop),
        ),
        (
            "mknod",
            rustix::fs::mknodat(CWD, at("new"), FileType::Fifo, Mode::RWXU, 0).map_err(Into::into),
        ),
    ];
    for (what, result) in refused {
        // Whether a file may be opened for writing the client asks by ACCESS, which has no
        // word for a read-only share.
        let expected = match (what, &result) {
            ("open for writing" | "truncate", Err(error))
                if error.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                Errno::ACCESS
            }
            _ => Errno::ROFS,
        };
        expect_errno(result, expected, what)?;
    }
    drop(mount);
    expect_bytes(&std::fs::read(local.join("file"))?, &content, "the file on the server")
}

fn set_mode_io(path: &Path, mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

fn expect_owner(path: &Path, uid: u32, gid: u32) -> Result<()> {
    let status = std::fs::metadata(path)?;
    let what = format!("owner of {}", path.display());
    expect_equal(&(status.uid(), status.gid()), &(uid, gid), &what)
}
