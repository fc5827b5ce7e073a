//! Process ring: what local processes do beside the server, and what a replay makes of it: access that
//! was inherited, handles that another object got, objects that cannot be changed, and changes that
//! local processes have flushed. `docs/durability.md` has the table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use common::{Running, utf8};
use intent_log_support::site::{Site, write};
use intent_log_support::{create, kill, run, stop};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// A server with one disk, of each file system that can be had.
fn sites() -> impl Iterator<Item = (&'static str, Site)> {
    let sites = [
        ("ext4", Site::new(&["disk"])),
        ("XFS", Site::with_xfs()),
        ("btrfs", Site::with_btrfs(300)),
    ];
    sites.into_iter().filter_map(|(name, site)| Some((name, site?)))
}

/// The power fails: the disk has what it was kept with.
fn lose(site: &Site, running: Running) {
    kill(running);
    site.disks[0].lose();
    site.disks[0].mount("rw");
}

/// An access list as the kernel keeps it.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&bits.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// Grants a user all, and the group of the object nothing.
fn for_a_user() -> Vec<u8> {
    let none = u32::MAX;
    list(&[(1, 7, none), (2, 7, 1234), (4, 0, none), (0x10, 7, none), (0x20, 0, none)])
}

fn attribute(path: &Path, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; 1000];
    let length = rustix::fs::lgetxattr(path, name, &mut bytes[..]).unwrap_or(0);
    bytes.truncate(length);
    bytes
}

/// Mode, owner and access lists.
fn access(path: &Path) -> (u32, u32, u32, [Vec<u8>; 2]) {
    let it = std::fs::symlink_metadata(path).unwrap();
    (it.mode(), it.uid(), it.gid(), [ACCESS, DEFAULT].map(|name| attribute(path, name)))
}

/// The one name in a directory that replay has made.
fn kept_beside(share: &Path) -> Vec<PathBuf> {
    let names = std::fs::read_dir(share).unwrap().map(|entry| entry.unwrap().path());
    let is_kept = |path: &PathBuf| {
        path.file_name().unwrap().to_string_lossy().starts_with(".steadfast-replay-")
    };
    names.filter(is_kept).collect()
}

/// What was made has the access list that its directory gave it then, and not that which it would give
/// it now.
#[test]
fn a_file_that_is_made_again_has_the_access_that_was_acknowledged() {
    for (name, site) in sites() {
        let share = site.disks[0].share.clone();
        let set = |list: &[u8]| {
            rustix::fs::lsetxattr(&share, DEFAULT, list, rustix::fs::XattrFlags::empty()).unwrap();
        };
        let running = site.start();
        let (mut client, root) = site.mount(&running, 0);
        set(&for_a_user());
        site.disks[0].keep();
        create(&mut client, &root, "with");
        let settings = steadfast_client::Settings::mode(0o775);
        client.mkdir(&root, b"dir", &settings).unwrap();
        rustix::fs::lremovexattr(&share, DEFAULT).unwrap();
        create(&mut client, &root, "without");
        let names = ["with", "dir", "without"].map(|name| share.join(name));
        let acknowledged = names.each_ref().map(|path| access(path));
        assert!(!acknowledged[0].3[0].is_empty() && !acknowledged[1].3[1].is_empty(), "{name}");
        assert!(acknowledged[2].3[0].is_empty(), "{name}");
        // The disk has the directory with its list.
        lose(&site, running);
        let running = site.start();
        assert_eq!(names.each_ref().map(|path| access(path)), acknowledged, "{name}");
        stop(running);
    }
}

/// What got the number and the generation of a lost file is not that file.
#[test]
fn what_has_the_handle_of_a_lost_file_is_served_beside_it() {
    for (name, site) in sites() {
        let share = site.disks[0].share.clone();
        let running = site.start();
        let (mut client, root) = site.mount(&running, 0);
        site.disks[0].keep();
        let file = create(&mut client, &root, "a");
        write(&mut client, &file, b"acknowledged");
        let other = create(&mut client, &root, "b");
        write(&mut client, &other, b"also");
        lose(&site, running);
        std::fs::create_dir(share.join("local")).unwrap();
        std::fs::write(share.join("local file"), "of a local process").unwrap();
        let running = site.start();
        let (mut client, root) = site.mount(&running, 0);
        for (at, of, data) in [("a", file, &b"acknowledged"[..]), ("b", other, b"also")] {
            let found = client.lookup(&root, at.as_bytes()).unwrap().handle;
            assert_eq!(found, of, "{name}");
            assert_eq!(client.read(&of, 0, 99).unwrap().data, data, "{name}");
        }
        assert!(share.join("local").is_dir(), "{name}");
        assert_eq!(std::fs::read(share.join("local file")).unwrap(), b"of a local process");
        assert!(!site.said().contains("cannot be replayed"), "{name}: {}", site.said());
        stop(running);
    }
}

/// One file that cannot be written is told with its path, and kept; all others are served.
#[test]
fn a_file_that_cannot_be_changed_keeps_no_other_from_being_served() {
    for (name, site) in sites() {
        let share = site.disks[0].share.clone();
        let running = site.start();
        let (mut client, root) = site.mount(&running, 0);
        let [fixed, free] = ["fixed\x1b", "free"].map(|name| create(&mut client, &root, name));
        site.disks[0].keep();
        for file in [&fixed, &free] {
            write(&mut client, file, b"acknowledged");
        }
        lose(&site, running);
        let path = share.join("fixed\x1b");
        assert!(run(&["chattr", "+i", utf8(&path)]), "{name}");
        let running = site.start();
        let (mut client, root) = site.mount(&running, 0);
        let found = client.lookup(&root, b"free").unwrap().handle;
        assert_eq!(client.read(&found, 0, 99).unwrap().data, b"acknowledged", "{name}");
        let said = site.said();
        let told = format!("{}: cannot be replayed", utf8(&share.join("fixed\\u{1b}")));
        assert!(said.contains(&told) && !said.contains('\x1b'), "{name}: {said}");
        let kept = std::fs::read_dir(&site.place.state).unwrap().map(|entry| entry.unwrap().path());
        let kept: Vec<Vec<u8>> = kept
            .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("not-replayed-"))
            .map(|path| std::fs::read(path).unwrap())
            .collect();
        let has = |bytes: &[u8]| bytes.windows(12).any(|part| part == b"acknowledged");
        assert!(kept.len() == 1 && has(&kept[0]), "{name}: {}", kept.len());
        assert!(run(&["chattr", "-i", utf8(&path)]), "{name}");
        stop(running);
    }
}

/// A local process made something under a name, whenever that was: the acknowledged name wins, and what
/// has it is kept beside it.
#[test]
fn what_came_soon_after_the_last_change_is_kept_beside_what_was_acknowledged() {
    for (name, site) in sites() {
        let share = site.disks[0].share.clone();
        let running = site.start();
        let (mut client, root) = site.mount(&running, 0);
        site.disks[0].keep();
        let files = ["a", "b", "c"].map(|name| {
            let file = create(&mut client, &root, name);
            write(&mut client, &file, name.as_bytes());
            file
        });
        kill(running);
        site.disks[0].lose();
        site.disks[0].mount("rw");
        std::fs::write(share.join("a"), "of a local process").unwrap();
        let running = site.start();
        let (mut client, root) = site.mount(&running, 0);
        for (file, at) in files.iter().zip(["a", "b", "c"]) {
            assert_eq!(&client.lookup(&root, at.as_bytes()).unwrap().handle, file, "{name}");
            assert_eq!(client.read(file, 0, 99).unwrap().data, at.as_bytes(), "{name}");
        }
        let kept = kept_beside(&share);
        assert_eq!(kept.len(), 1, "{name}");
        assert_eq!(std::fs::read(&kept[0]).unwrap(), b"of a local process", "{name}");
        assert!(site.said().contains("/share/a: something"), "{name}: {}", site.said());
        stop(running);
    }
}

/// Waits until a time mark follows what was done.
fn await_mark() {
    std::thread::sleep(std::time::Duration::from_millis(400));
}

fn sync(site: &Site) {
    assert!(run(&["sync", "--file-system", utf8(&site.disks[0].share)]));
}

/// A client has written; then a local process has changed the file, and flushed that. It stays, after a kill as
/// after a power failure; what was acknowledged is kept beside it.
#[test]
fn what_a_local_process_has_changed_and_flushed_stays() {
    use std::os::unix::fs::FileExt;
    for (name, site) in sites() {
        let share = site.disks[0].share.clone();
        let running = site.start();
        let (mut client, root) = site.mount(&running, 0);
        let files = ["over", "cut", "replaced", "removed", "mode", "times", "again"];
        let handles = files.map(|name| {
            let file = create(&mut client, &root, name);
            write(&mut client, &file, b"acknowledged");
            file
        });
        let open =
            |name: &str| std::fs::File::options().write(true).open(share.join(name)).unwrap();
        await_mark();
        open("over").write_all_at(b"LOCAL", 0).unwrap();
        open("cut").set_len(4).unwrap();
        std::fs::write(share.join("new"), "replaced locally").unwrap();
        std::fs::rename(share.join("new"), share.join("replaced")).unwrap();
        std::fs::remove_file(share.join("removed")).unwrap();
        let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
        std::fs::set_permissions(share.join("mode"), mode).unwrap();
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        open("times").set_modified(long_ago).unwrap();
        open("again").write_all_at(b"LOCAL", 0).unwrap();
        // Another operation of a client's, behind what was changed.
        let data = b" and more";
        client.write(&handles[6], 12, data, steadfast_client::StableHow::FileSync).unwrap();
        sync(&site);
        await_mark();
        site.disks[0].keep();
        let looks = || {
            let read = |name: &str| std::fs::read(share.join(name)).unwrap();
            assert_eq!(read("over"), b"LOCALwledged", "{name}");
            assert_eq!(read("cut"), b"ackn", "{name}");
            assert_eq!(read("replaced"), b"replaced locally", "{name}");
            assert!(!share.join("removed").exists(), "{name}");
            assert_eq!(std::fs::metadata(share.join("mode")).unwrap().mode() & 0o777, 0o600);
            let times = std::fs::metadata(share.join("times")).unwrap();
            assert_eq!(times.modified().unwrap(), long_ago, "{name}");
            assert_eq!(read("times"), b"acknowledged", "{name}");
            assert_eq!(read("again"), b"LOCALwledged and more", "{name}");
        };
        looks();
        kill(running);
        let running = site.start();
        looks();
        assert!(kept_beside(&share).is_empty(), "{name}: {}", site.said());
        kill(running);
        // As the log was after the operations.
        site.disks[0].lose();
        site.disks[0].mount("rw");
        let running = site.start();
        looks();
        stop(running);
    }
}

/// The same, where the power fails at once.
#[test]
fn of_a_local_change_and_an_acknowledged_one_none_is_lost_when_the_power_fails() {
    use std::os::unix::fs::FileExt;
    for (name, site) in sites() {
        let share = site.disks[0].share.clone();
        let running = site.start();
        let (mut client, root) = site.mount(&running, 0);
        let file = create(&mut client, &root, "over");
        write(&mut client, &file, b"acknowledged");
        let gone = create(&mut client, &root, "removed");
        write(&mut client, &gone, b"acknowledged");
        let open = std::fs::File::options().write(true).open(share.join("over")).unwrap();
        await_mark();
        open.write_all_at(b"LOCAL", 0).unwrap();
        std::fs::remove_file(share.join("removed")).unwrap();
        sync(&site);
        await_mark();
        site.disks[0].keep();
        drop(open);
        lose(&site, running);
        let running = site.start();
        let read = |path: &Path| std::fs::read(path).unwrap();
        assert_eq!(read(&share.join("over")), b"LOCALwledged", "{name}: {}", site.said());
        assert!(!share.join("removed").exists(), "{name}: {}", site.said());
        let [kept] = &kept_beside(&share)[..] else { panic!("{name}: {}", site.said()) };
        assert_eq!(read(kept), b"acknowledged", "{name}");
        let told =
            format!("{}: its data was changed by a local process", utf8(&share.join("over")));
        assert!(site.said().contains(&told), "{name}: {}", site.said());
        stop(running);
    }
}

/// What a local process does to a file, and flushes by `fsync`.
const FLUSHED: [&str; 6] = ["removed", "mode", "times", "over", "cut", "replaced"];
const LONG_AGO_S: u64 = 1_000_000;

fn change_and_flush(dir: &Path, what: &str) {
    use std::os::unix::fs::FileExt;
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join("file");
    let open = |path: &Path| std::fs::File::options().write(true).open(path).unwrap();
    match what {
        "removed" => std::fs::remove_file(&path).unwrap(),
        "mode" => {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        "times" => {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(LONG_AGO_S);
            open(&path).set_modified(time).unwrap();
        }
        "over" => open(&path).write_all_at(b"LOCAL", 0).unwrap(),
        "cut" => open(&path).set_len(4).unwrap(),
        _ => {
            let new = dir.join("new");
            std::fs::write(&new, "replaced locally").unwrap();
            open(&new).sync_all().unwrap();
            std::fs::rename(&new, &path).unwrap();
        }
    }
    match what {
        "removed" | "replaced" => std::fs::File::open(dir).unwrap().sync_all().unwrap(),
        _ => open(&path).sync_all().unwrap(),
    }
}

/// Whether what a local process did is there.
fn is_changed(dir: &Path, what: &str) -> bool {
    let path = dir.join("file");
    let read = || std::fs::read(&path).unwrap_or_default();
    let attr = || std::fs::metadata(&path).unwrap();
    match what {
        "removed" => !path.exists(),
        "mode" => attr().mode() & 0o777 == 0o600,
        "times" => attr().mtime() == LONG_AGO_S as i64,
        "over" => read() == b"LOCALwledged",
        "cut" => read() == b"ackn",
        _ => read() == b"replaced locally",
    }
}

/// A flush of one file or directory is enough for what a local process has changed to stay, but for what
/// mounting makes of some on btrfs.
#[test]
fn what_a_local_process_has_flushed_by_itself_stays() {
    for (name, site) in sites() {
        let share = site.disks[0].share.clone();
        for (what, age) in FLUSHED.iter().flat_map(|what| ["old", "new"].map(|age| (what, age))) {
            let dir = share.join(format!("{age}-{what}"));
            std::fs::create_dir(&dir).unwrap();
            if age == "old" {
                std::fs::write(dir.join("file"), "before").unwrap();
            }
        }
        sync(&site);
        let running = site.start();
        let (mut client, root) = site.mount(&running, 0);
        let all = FLUSHED.iter().flat_map(|what| ["old", "new"].map(|age| format!("{age}-{what}")));
        let all: Vec<String> = all.collect();
        for dir in &all {
            let at = client.lookup(&root, dir.as_bytes()).unwrap().handle;
            let file = if dir.starts_with("old") {
                client.lookup(&at, b"file").unwrap().handle
            } else {
                create(&mut client, &at, "file")
            };
            write(&mut client, &file, b"acknowledged");
        }
        await_mark();
        for dir in &all {
            change_and_flush(&share.join(dir), dir.split_once('-').unwrap().1);
        }
        await_mark();
        site.disks[0].keep_unflushed();
        lose(&site, running);
        let running = site.start();
        let lost =
            all.iter().filter(|dir| !is_changed(&share.join(dir), dir.split_once('-').unwrap().1));
        let lost: Vec<&str> = lost.map(String::as_str).collect();
        let expected: &[&str] = &[];
        assert_eq!(lost, expected, "{name}: {}", site.said());
        stop(running);
    }
}
