//! What the tests of trees share: places to test on, callers, and short forms of the calls.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Once};

use steadfast_posixfs::{Storage, StorageOptions, Tree, TreeOptions, prepare_process};
use steadfast_vfs::{
    Attr, Caller, Changed, CreateHow, Cred, Durable, Entry, FileSystem, Flush, FsError, Name,
    Obligation, ReplyBarrier, SetAttr, StorageHandle, Waiting, WriteHow,
};

static PREPARED: Once = Once::new();

/// The name of an ext4 where nothing orders changes of names and inodes.
pub const WITHOUT_JOURNAL: &str = "ext4 without a journal";

/// A file system to test on. Unmounted when dropped.
pub struct Place {
    pub name: &'static str,
    pub directory: PathBuf,
    mounted: bool,
    _temporary: tempfile::TempDir,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg("-l").arg(&self.directory).status();
        }
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// An empty directory on the file system that temporary files are on.
pub fn plain() -> Place {
    PREPARED.call_once(|| {
        prepare_process().unwrap();
    });
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path().join("share");
    std::fs::create_dir(&directory).unwrap();
    Place { name: "plain", directory, mounted: false, _temporary: temporary }
}

fn quiet(program: &str, args: &[&std::ffi::OsStr]) -> bool {
    Command::new(program)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A file system of its own, made on a loop device; `None`, with the reason printed, where that
/// cannot be done.
pub fn mounted(name: &'static str, size_mib: u64) -> Option<Place> {
    let mut place = plain();
    place.name = name;
    if !is_root() {
        println!("{name}: skipped: needs root");
        return None;
    }
    if name != "tmpfs" {
        let (kind, options): (_, &[&str]) = match name {
            WITHOUT_JOURNAL => ("ext4", &["-q", "-O", "^has_journal"]),
            kind => (kind, &["-q"]),
        };
        return mounted_with(name, kind, size_mib, options);
    }
    let target = place.directory.as_os_str();
    let done = {
        let options = format!("size={size_mib}m,mode=755");
        quiet(
            "mount",
            &[
                "-t".as_ref(),
                "tmpfs".as_ref(),
                "-o".as_ref(),
                options.as_ref(),
                "tmpfs".as_ref(),
                target,
            ],
        )
    };
    if !done {
        println!("{name}: skipped: cannot make or mount one");
        return None;
    }
    place.mounted = true;
    Some(place)
}

/// As [`mounted`], of a kind and made with these options.
pub fn mounted_with(
    name: &'static str,
    kind: &str,
    size_mib: u64,
    options: &[&str],
) -> Option<Place> {
    let mut place = plain();
    place.name = name;
    if !is_root() {
        println!("{name}: skipped: needs root");
        return None;
    }
    let image = place.directory.with_file_name("image");
    std::fs::File::create(&image).unwrap().set_len(size_mib << 20).unwrap();
    let mut words: Vec<&std::ffi::OsStr> = options.iter().map(std::ffi::OsStr::new).collect();
    words.push(image.as_os_str());
    let target = place.directory.as_os_str();
    let done = quiet(&format!("mkfs.{kind}"), &words)
        && quiet("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), target]);
    if !done {
        println!("{name}: skipped: cannot make or mount one");
        return None;
    }
    place.mounted = true;
    Some(place)
}

/// All the file systems that can be had here.
pub fn places() -> Vec<Place> {
    let mut places = vec![plain()];
    places.extend(mounted("tmpfs", 64));
    places.extend(mounted("ext4", 64));
    places.extend(mounted(WITHOUT_JOURNAL, 64));
    places.extend(mounted("xfs", 320));
    places.extend(mounted("btrfs", 128));
    places
}

pub fn storage() -> Arc<Storage> {
    Storage::new(StorageOptions { descriptors_max: 1000 })
}

pub fn open(directory: &Path) -> Tree {
    let options = TreeOptions { share_id: 7, ..TreeOptions::default() };
    Tree::open(directory, &options, &storage()).unwrap()
}

pub fn cred(uid: u32, gid: u32, groups: &[u32]) -> Cred {
    Cred { uid, gid, groups: groups.iter().copied().collect() }
}

pub fn as_user(cred: &Cred) -> Caller<'_> {
    Caller::new(cred, Waiting::Allowed)
}

pub fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

pub fn with_mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

/// Meets an obligation as the flusher would, and gives the value.
pub fn settle<T>(durable: Durable<T>) -> T {
    settle_counting(durable).0
}

/// As [`settle`], with how many objects had to be flushed.
pub fn settle_counting<T>(durable: Durable<T>) -> (T, usize) {
    let (value, obligation) = durable.release(&ReplyBarrier::for_engine());
    match obligation {
        None => (value, 0),
        Some(Obligation::Flush(Flush { targets, .. })) => {
            for (target, what) in &targets {
                target.flush(*what).unwrap();
            }
            (value, targets.len())
        }
        Some(Obligation::Log(logged)) => {
            logged.fill(|record| record.extend_from_slice(b"reply"));
            (value, 0)
        }
    }
}

/// As [`settle`], by one flush of the whole file system.
pub fn settle_with_all<T>(durable: Durable<T>) -> T {
    let (value, obligation) = durable.release(&ReplyBarrier::for_engine());
    if let Some(Obligation::Flush(Flush { targets, .. })) = obligation {
        targets.iter().for_each(|(target, _)| target.flush_begins());
        let flushed = targets[0].0.flush_file_system();
        targets.iter().for_each(|(target, _)| target.flush_ended(flushed.is_ok()));
        flushed.unwrap();
    }
    value
}

/// One tree, one caller, short names.
pub struct User<'a> {
    pub tree: &'a Tree,
    pub cred: Cred,
}

impl<'a> User<'a> {
    pub fn new(tree: &'a Tree, uid: u32, gid: u32) -> Self {
        Self { tree, cred: cred(uid, gid, &[]) }
    }

    pub fn root(&self) -> StorageHandle {
        self.tree.root().unwrap().handle
    }

    pub fn caller(&self) -> Caller<'_> {
        as_user(&self.cred)
    }

    pub fn attr(&self, object: &StorageHandle) -> Result<Attr, FsError> {
        self.tree.attributes(&self.caller(), object)
    }

    pub fn lookup(&self, dir: &StorageHandle, text: &str) -> Result<Entry, FsError> {
        self.tree.lookup(&self.caller(), dir, name(text)).result
    }

    pub fn create(&self, dir: &StorageHandle, text: &str, mode: u32) -> Result<Entry, FsError> {
        let how = CreateHow::Guarded(with_mode(mode));
        settle(self.tree.create(&self.caller(), dir, name(text), &how)).result
    }

    pub fn mkdir(&self, dir: &StorageHandle, text: &str, mode: u32) -> Result<Entry, FsError> {
        settle(self.tree.make_directory(&self.caller(), dir, name(text), &with_mode(mode))).result
    }

    pub fn write(&self, file: &StorageHandle, offset: u64, data: &[u8]) -> Result<u32, FsError> {
        let written =
            settle(self.tree.write(&self.caller(), file, offset, data, WriteHow::FileSync));
        written.result.map(|written| written.count)
    }

    pub fn read(
        &self,
        file: &StorageHandle,
        offset: u64,
        count: u32,
    ) -> Result<(Vec<u8>, bool), FsError> {
        let mut data = Vec::new();
        let done = self.tree.read(&self.caller(), file, offset, count, false, &mut data)?;
        assert_eq!(done.count as usize, data.len());
        Ok((data, done.is_end))
    }

    pub fn set(&self, object: &StorageHandle, set: &SetAttr) -> Changed<()> {
        settle(self.tree.set_attributes(&self.caller(), object, set, None))
    }

    pub fn remove(&self, dir: &StorageHandle, text: &str) -> Result<(), FsError> {
        settle(self.tree.remove(&self.caller(), dir, name(text))).result
    }

    pub fn rmdir(&self, dir: &StorageHandle, text: &str) -> Result<(), FsError> {
        settle(self.tree.remove_directory(&self.caller(), dir, name(text))).result
    }

    /// All names of a directory, `page` entries a call.
    pub fn list(&self, dir: &StorageHandle, page: usize) -> Vec<(Vec<u8>, u64, Option<Entry>)> {
        let mut all = Vec::new();
        let mut cookie = 0;
        loop {
            let mut told = 0;
            let done = self
                .tree
                .read_directory(&self.caller(), dir, cookie, true, &mut |entry| {
                    if told == page {
                        return false;
                    }
                    told += 1;
                    cookie = entry.cookie;
                    all.push((entry.name.to_vec(), entry.fileid, entry.entry));
                    true
                })
                .unwrap();
            if done.is_end {
                return all;
            }
        }
    }
}
