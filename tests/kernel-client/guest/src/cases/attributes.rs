//! Attributes: times, modes, owners, statistics, ACLs, and changes made beside NFS.

use std::fs::FileTimes;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use rustix::io::Errno;

use super::{expect_equal, expect_errno};
use crate::children::User;
use crate::context::{Context, set_mode};
use crate::mount::run;

/// utimens to the nanosecond, "now" from the server's clock, and what changes which time.
pub(crate) fn times(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let path = directory.join("file");
    std::fs::write(&path, "x")?;
    // Not second 0: Linux cuts the nanoseconds off the first and the last second that a file
    // system has.
    for (seconds, nanoseconds) in
        [(1_000_000_000, 999_999_998), (1, 0), (1, 1), (2_147_483_648, 123), (4_000_000_000, 7)]
    {
        let accessed = UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        let modified = accessed + Duration::from_nanos(1);
        let times = FileTimes::new().set_accessed(accessed).set_modified(modified);
        std::fs::File::options().write(true).open(&path)?.set_times(times)?;
        mount.again()?;
        let status = std::fs::metadata(&path)?;
        expect_equal(&status.accessed()?, &accessed, "atime")?;
        expect_equal(&status.modified()?, &modified, "mtime")?;
    }
    // touch -m leaves atime alone, and the other way round.
    run("touch", &["-m", "-d", "2001-02-03 04:05:06.789012345 UTC", &path.to_string_lossy()])?;
    let status = std::fs::metadata(&path)?;
    expect_equal(&(status.mtime(), status.mtime_nsec()), &(981_173_106, 789_012_345), "touch -m")?;
    expect_equal(&status.atime(), &4_000_000_000, "atime after touch -m")?;
    // The guest's clock and the server's are one.
    run("touch", &[&path.to_string_lossy()])?;
    mount.again()?;
    let status = std::fs::metadata(&path)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64;
    ensure!((status.mtime() - now).abs() < 10, "touched at {} instead of {now}", status.mtime());

    // A link changes ctime only; a name changes the directory's mtime.
    let before = (std::fs::metadata(&path)?, std::fs::metadata(&directory)?);
    std::thread::sleep(Duration::from_millis(20));
    std::fs::hard_link(&path, directory.join("link"))?;
    mount.again()?;
    let after = (std::fs::metadata(&path)?, std::fs::metadata(&directory)?);
    let times = |status: &std::fs::Metadata| {
        ((status.mtime(), status.mtime_nsec()), (status.ctime(), status.ctime_nsec()))
    };
    expect_equal(&times(&after.0).0, &times(&before.0).0, "mtime after link")?;
    ensure!(times(&after.0).1 > times(&before.0).1, "ctime did not change by link");
    ensure!(times(&after.1).0 > times(&before.1).0, "the directory's mtime did not change");
    // Another user who may write may set "now" but no other time.
    set_mode(&path, 0o666)?;
    let user = User::new(1001, 1001);
    user.can(&["write", &path.to_string_lossy(), "y"])?;
    user.cannot(&["chmod", &path.to_string_lossy(), "600"], Errno::PERM)
}

/// chmod and chown: every bit kept, set-id bits cleared by those who may not keep them.
pub(crate) fn modes_and_owners(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let path = directory.join("file");
    let text = path.to_string_lossy().into_owned();
    std::fs::write(&path, "x")?;
    for mode in [0o0, 0o7777, 0o4755, 0o2755, 0o1644, 0o600] {
        set_mode(&path, mode)?;
        mount.again()?;
        expect_equal(&(std::fs::metadata(&path)?.mode() & 0o7777), &mode, "mode")?;
    }
    for (uid, gid) in [(1000, 1000), (65_534, 65_534), (4_000_000_000, 3_999_999_999), (0, 0)] {
        std::os::unix::fs::chown(&path, Some(uid), Some(gid))?;
        mount.again()?;
        let status = std::fs::metadata(&path)?;
        expect_equal(&(status.uid(), status.gid()), &(uid, gid), "owner")?;
    }
    std::os::unix::fs::chown(&path, Some(1000), None)?;
    expect_equal(&std::fs::metadata(&path)?.gid(), &0, "group after chown of the user")?;
    set_mode(&path, 0o644)?;
    let (owner, other) = (User::new(1000, 1000).with_groups(&[1000, 1500]), User::new(1001, 1001));
    owner.cannot(&["chown", &text, "1001", "0"], Errno::PERM)?;
    owner.cannot(&["chown", &text, "1000", "1600"], Errno::PERM)?;
    owner.can(&["chown", &text, "1000", "1500"])?;
    other.cannot(&["chmod", &text, "777"], Errno::PERM)?;
    other.can(&["read", &text, "x"])?;
    owner.can(&["chmod", &text, "600"])?;
    other.cannot(&["read", &text, "x"], Errno::ACCESS)?;
    // A write by somebody who is not root takes set-user-id away.
    set_mode(&path, 0o4777)?;
    other.can(&["write", &text, "z"])?;
    mount.again()?;
    expect_equal(&(std::fs::metadata(&path)?.mode() & 0o7777), &0o777, "mode after a write")?;

    // Directories: search without reading, the sticky bit, the group of a set-group-id one.
    let drop_box = directory.join("drop");
    std::fs::create_dir(&drop_box)?;
    set_mode(&drop_box, 0o1777)?;
    let mine = drop_box.join("mine").to_string_lossy().into_owned();
    owner.can(&["create", &mine, "644", "mine"])?;
    ensure!(other.attempt(&["unlink", &mine])?.is_err(), "the sticky bit did not protect a name");
    set_mode(&drop_box, 0o711)?;
    other.can(&["read", &mine, "mine"])?;
    other.cannot(&["list", &drop_box.to_string_lossy()], Errno::ACCESS)?;
    let shared = directory.join("shared");
    std::fs::create_dir(&shared)?;
    std::os::unix::fs::chown(&shared, None, Some(1700))?;
    set_mode(&shared, 0o2777)?;
    let inside = shared.join("inside").to_string_lossy().into_owned();
    owner.can(&["create", &inside, "644", ""])?;
    mount.again()?;
    expect_equal(&std::fs::metadata(&inside)?.gid(), &1700, "group in a set-group-id directory")
}

/// `statfs` has the server's numbers.
pub(crate) fn file_system_statistics(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let remote = rustix::fs::statvfs(mount.path())?;
    // Asked by the host: in the guest every path of the host's has the root's numbers.
    let bytes = remote.f_blocks * remote.f_frsize;
    // Linux rounds up to its own block size.
    let server_bytes: u64 = context.value("main-bytes")?.parse()?;
    let rounded_up = server_bytes.next_multiple_of(remote.f_frsize);
    expect_equal(&bytes, &rounded_up, "size in bytes")?;
    expect_equal(&remote.f_files.to_string().as_str(), &context.value("main-files")?, "files")?;
    expect_equal(&remote.f_namemax, &255, "length of names")?;
    std::fs::write(directory.join("file"), vec![1; 10 << 20])?;
    mount.again()?;
    let after = rustix::fs::statvfs(mount.path())?;
    ensure!(after.f_bfree < remote.f_bfree, "10 MiB more, and as much free as before");
    Ok(())
}

/// What a local process changes on the server is seen by a client that does not cache.
pub(crate) fn local_changes(context: &Context) -> Result<()> {
    let (_mount, directory) = context.mount_main("noac,lookupcache=none")?;
    let local = context.on_server("main")?;
    let write = |name: &str, text: &str| -> Result<()> {
        use std::io::Write;
        let mut file = std::fs::File::create(local.join(name))?;
        file.write_all(text.as_bytes())?;
        // The guest sees the server's directory through a cache of its own.
        file.sync_all()?;
        Ok(())
    };
    for round in 0..20 {
        let text = format!("round {round} {}", "x".repeat(round * 100));
        write("file", &text)?;
        let seen = std::fs::read_to_string(directory.join("file"))?;
        expect_equal(&seen, &text, "content changed on the server")?;
        let new = format!("new-{round}");
        expect_errno(std::fs::metadata(directory.join(&new)), Errno::NOENT, "before")?;
        write(&new, "")?;
        std::fs::metadata(directory.join(&new)).context("a name made on the server")?;
        let names = std::fs::read_dir(&directory)?.count();
        expect_equal(&names, &(round + 2), "names listed")?;
    }
    std::fs::remove_file(local.join("new-3"))?;
    expect_errno(std::fs::metadata(directory.join("new-3")), Errno::NOENT, "removed there")?;
    // Permissions taken away there hold here at once.
    let path = directory.join("file").to_string_lossy().into_owned();
    let user = User::new(1001, 1001);
    user.cannot(&["write", &path, ""], Errno::ACCESS)?;
    run("chmod", &["666", &local.join("file").to_string_lossy()])?;
    user.can(&["write", &path, "now"])?;
    run("chmod", &["600", &local.join("file").to_string_lossy()])?;
    user.cannot(&["read", &path, "now"], Errno::ACCESS)
}

/// `setfacl` and `getfacl`, with a fresh mount between.
pub(crate) fn acl_set_and_read(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let path = directory.join("file");
    std::fs::write(&path, "x")?;
    set_mode(&path, 0o640)?;
    let many: Vec<String> = (0..30).map(|number| format!("u:{}:r", 20_000 + number)).collect();
    let cases =
        [("u:1234:rw", 1), ("g:2345:r-x,u:1235:---", 3), (many.join(",").leak() as &str, 33)];
    for (entries, count) in cases {
        setfacl(&["-m", entries], &path)?;
        mount.again()?;
        let text = acl(&path)?;
        let found = named_entries(&text);
        ensure!(found.len() == count, "after {entries}: {found:?}");
    }
    ensure!(acl(&path)?.contains("user:1234:rw-"), "the first entry was lost");
    // The mask bounds them, and is what chmod's group bits then mean.
    setfacl(&["-m", "m::r"], &path)?;
    expect_equal(&(std::fs::metadata(&path)?.mode() & 0o777), &0o640, "mode with a mask of r")?;
    set_mode(&path, 0o670)?;
    mount.again()?;
    ensure!(acl(&path)?.contains("mask::rwx"), "chmod did not set the mask: {}", acl(&path)?);
    setfacl(&["-x", "u:1234"], &path)?;
    mount.again()?;
    ensure!(!acl(&path)?.contains("user:1234:"), "an entry taken out is still there");
    setfacl(&["-b"], &path)?;
    mount.again()?;
    let text = acl(&path)?;
    ensure!(named_entries(&text).is_empty() && !text.contains("mask"), "setfacl -b left {text}");
    Ok(())
}

/// ACLs decide on the server, also against the mode bits.
pub(crate) fn acl_enforced(context: &Context) -> Result<()> {
    let (_mount, directory) = context.mount_main("")?;
    let path = directory.join("file");
    let text = path.to_string_lossy().into_owned();
    std::fs::write(&path, "secret")?;
    set_mode(&path, 0o600)?;
    let (named, other, member) =
        (User::new(1234, 1234), User::new(1235, 1235), User::new(1236, 1236).with_groups(&[2345]));
    named.cannot(&["read", &text, "secret"], Errno::ACCESS)?;
    setfacl(&["-m", "u:1234:r,g:2345:rw"], &path)?;
    named.can(&["read", &text, "secret"])?;
    named.cannot(&["write", &text, "x"], Errno::ACCESS)?;
    other.cannot(&["read", &text, "secret"], Errno::ACCESS)?;
    member.can(&["write", &text, "public"])?;
    // An entry for a user beats a generous mode.
    setfacl(&["-m", "u:1235:---,o::rw"], &path)?;
    other.cannot(&["read", &text, "public"], Errno::ACCESS)?;
    User::new(1239, 1239).can(&["read", &text, "public"])
}

/// Default ACLs are inherited by files and directories, without the umask.
pub(crate) fn acl_inherited(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let parent = directory.join("parent");
    std::fs::create_dir(&parent)?;
    setfacl(&["-d", "-m", "u:1234:rwx,g::r-x,o::---"], &parent)?;
    std::fs::write(parent.join("file"), "x")?;
    std::fs::create_dir(parent.join("inner"))?;
    std::fs::write(parent.join("inner/file"), "x")?;
    mount.again()?;
    for name in ["file", "inner/file"] {
        let text = acl(&parent.join(name))?;
        ensure!(text.contains("user:1234:rwx"), "{name} did not inherit: {text}");
        ensure!(text.contains("other::---"), "{name} is open to others: {text}");
    }
    let text = acl(&parent.join("inner"))?;
    ensure!(text.contains("default:user:1234:rwx"), "inner has no default ACL: {text}");
    setfacl(&["-k"], &parent)?;
    mount.again()?;
    let text = acl(&parent)?;
    ensure!(!text.contains("default:"), "setfacl -k left {text}");
    Ok(())
}

/// `cp -p` and `cp -a` keep ACLs, modes, owners and times.
pub(crate) fn acl_kept_by_cp(context: &Context) -> Result<()> {
    let (mount, directory) = context.mount_main("")?;
    let tree = directory.join("tree");
    std::fs::create_dir(&tree)?;
    let (from, to) = (tree.join("from"), directory.join("to"));
    std::fs::write(&from, "copied")?;
    setfacl(&["-m", "u:1234:rw,g:2345:r"], &from)?;
    setfacl(&["-d", "-m", "u:4321:rx"], &tree)?;
    std::os::unix::fs::chown(&from, Some(1000), Some(1001))?;
    run("touch", &["-d", "2011-11-11 11:11:11.111111111 UTC", &from.to_string_lossy()])?;
    mount.again()?;
    run("cp", &["-p", &from.to_string_lossy(), &to.to_string_lossy()])?;
    let copy = directory.join("copy");
    run("cp", &["-a", &tree.to_string_lossy(), &copy.to_string_lossy()])?;
    mount.again()?;
    for path in [to, copy.join("from")] {
        expect_equal(&acl(&path)?, &acl(&from)?, "ACL of the copy")?;
        let key = |path: &Path| -> Result<_> {
            let s = std::fs::metadata(path)?;
            Ok((s.mode(), s.uid(), s.gid(), s.mtime(), s.mtime_nsec()))
        };
        expect_equal(&key(&path)?, &key(&from)?, "attributes of the copy")?;
    }
    expect_equal(&acl(&copy)?, &acl(&tree)?, "default ACL of the copied directory")
}

fn setfacl(arguments: &[&str], path: &Path) -> Result<()> {
    let path = path.to_string_lossy();
    let all: Vec<&str> = arguments.iter().copied().chain([&*path]).collect();
    run("setfacl", &all).map(drop)
}

fn acl(path: &Path) -> Result<String> {
    run("getfacl", &["--omit-header", "--numeric", "--absolute-names", &path.to_string_lossy()])
}

/// Lines that name a user or a group.
fn named_entries(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| {
            let mut words = line.split(':');
            matches!(words.next(), Some("user" | "group"))
                && words.next().is_some_and(|name| !name.is_empty())
        })
        .collect()
}
