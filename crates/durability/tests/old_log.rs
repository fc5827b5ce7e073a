//! Unit ring: a log that an earlier server left when it was killed is replayed, on a file system in
//! memory, and the replies that it kept are there.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use steadfast_durability::{IntentLogOptions, StartIntentLog};
use steadfast_recovery::{AclsToSet, ObjectKey, Place, Recoverable};
use steadfast_vfs::{Attr, DeviceNumber, FileKind, FsError, StorageHandle, Time};

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Makes the state directory as it was left.
fn restore(directory: &Path) {
    let mut file = None;
    for line in include_str!("golden/state.txt").lines().filter(|line| !line.starts_with('#')) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["file", name, length] => {
                let path = directory.join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                let made = File::create(path).unwrap();
                made.set_len(length.parse().unwrap()).unwrap();
                file = Some(made);
            }
            [offset, hex] => {
                let file = file.as_ref().unwrap();
                file.write_all_at(&bytes(hex), offset.parse().unwrap()).unwrap();
            }
            _ => panic!("{line}"),
        }
    }
}

struct Object {
    attr: Attr,
    /// A file's data, a symbolic link's target.
    data: Vec<u8>,
    names: BTreeMap<Vec<u8>, ObjectKey>,
    access: Vec<u8>,
    default: Vec<u8>,
}

/// A file system as a crash left it: nothing has reached the disk but what the log says has.
struct Disk(BTreeMap<ObjectKey, Object>);

/// Shared with who looks at it afterwards.
#[derive(Clone)]
struct SharedDisk(Arc<Mutex<Disk>>);

fn key(number: u8) -> ObjectKey {
    ObjectKey(StorageHandle::new(&[number; 8]).unwrap())
}

fn root() -> ObjectKey {
    key(1)
}

impl Disk {
    fn new() -> Self {
        let time = Time { seconds: 1_600_000_000, nanoseconds: 0 };
        let attr = Attr {
            kind: FileKind::Directory,
            mode: 0o777,
            links: 2,
            uid: 0,
            gid: 0,
            size: 4096,
            used: 4096,
            device: DeviceNumber::default(),
            fsid: 6,
            fileid: 1,
            atime: time,
            mtime: time,
            ctime: time,
        };
        let mut disk = Self(BTreeMap::new());
        disk.add(root(), attr, b"");
        // What was written to these is on the disk: replay must leave it alone.
        for (number, name, seconds) in [(9, "nine", 1), (10, "ten", 19), (6, "big", 17)] {
            let time = Time { seconds: 1_700_000_000 + seconds, nanoseconds: 5 };
            let (uid, gid, kind) = (1000 + u32::from(number), 100, FileKind::Regular);
            let (mtime, ctime, fileid) = (time, time, u64::from(number));
            let attr = Attr { kind, mode: 0o600, uid, gid, fileid, mtime, ctime, ..attr };
            disk.add(key(number), attr, b"DISK!");
            disk.bind(&Place { dir: root(), name: name.as_bytes() }, key(number)).unwrap();
        }
        disk
    }

    fn add(&mut self, key: ObjectKey, attr: Attr, data: &[u8]) {
        let names = BTreeMap::new();
        let (data, access, default) = (data.to_vec(), Vec::new(), Vec::new());
        let is_new = self.0.insert(key, Object { attr, data, names, access, default }).is_none();
        assert!(is_new, "{key:?} is there");
    }

    fn object(&mut self, key: &ObjectKey) -> Result<&mut Object, FsError> {
        self.0.get_mut(key).ok_or(FsError::Stale)
    }

    fn bind(&mut self, place: &Place<'_>, key: ObjectKey) -> Result<(), FsError> {
        let names = &mut self.object(&place.dir)?.names;
        assert!(names.insert(place.name.to_vec(), key).is_none(), "{place:?} is taken");
        Ok(())
    }

    /// What is there, a line a name.
    fn tree(&self, dir: ObjectKey, path: &str, text: &mut String) {
        for (name, key) in &self.0[&dir].names {
            let path = format!("{path}/{}", std::str::from_utf8(name).unwrap());
            let Object { attr, data, access, default, .. } = &self.0[key];
            let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
            writeln!(
                text,
                "{path}: {:?} {:o} {}:{} changed {} \"{}\" acls \"{}\" \"{}\"",
                attr.kind,
                attr.mode,
                attr.uid,
                attr.gid,
                attr.mtime.seconds - 1_700_000_000,
                shown(data),
                shown(access),
                shown(default),
            )
            .unwrap();
            self.tree(*key, &path, text);
        }
    }
}

impl Recoverable for SharedDisk {
    fn names_follow_ctimes(&self) -> bool {
        true
    }

    fn still_mounted(&self) -> Option<&str> {
        None
    }

    fn set_lost(&mut self, _lost: &[ObjectKey]) {}

    fn look(&mut self, object: &ObjectKey) -> Result<Option<Attr>, FsError> {
        Ok(self.0.lock().unwrap().0.get(object).map(|object| object.attr))
    }

    fn bound(&mut self, place: &Place<'_>) -> Result<Option<(ObjectKey, FileKind)>, FsError> {
        let disk = &self.0.lock().unwrap().0;
        let dir = disk.get(&place.dir);
        let bound = dir.and_then(|dir| dir.names.get(place.name));
        Ok(bound.map(|key| (*key, disk[key].attr.kind)))
    }

    fn names(&mut self, dir: &ObjectKey, prefix: &[u8]) -> Result<Vec<Vec<u8>>, FsError> {
        let mut disk = self.0.lock().unwrap();
        let names = disk.object(dir)?.names.keys();
        Ok(names.filter(|name| name.starts_with(prefix)).cloned().collect())
    }

    fn make(
        &mut self,
        place: &Place<'_>,
        object: &ObjectKey,
        attr: &Attr,
        target: &[u8],
    ) -> Result<(), FsError> {
        let mut disk = self.0.lock().unwrap();
        disk.add(*object, Attr { mode: 0, uid: 0, gid: 0, ..*attr }, target);
        disk.bind(place, *object)
    }

    fn link(&mut self, object: &ObjectKey, place: &Place<'_>) -> Result<(), FsError> {
        self.0.lock().unwrap().bind(place, *object)
    }

    fn rename(&mut self, from: &Place<'_>, to: &Place<'_>) -> Result<(), FsError> {
        let mut disk = self.0.lock().unwrap();
        let key = disk.object(&from.dir)?.names.remove(from.name).ok_or(FsError::NotFound)?;
        disk.bind(to, key)
    }

    fn remove(&mut self, place: &Place<'_>, _is_directory: bool) -> Result<(), FsError> {
        let mut disk = self.0.lock().unwrap();
        let removed = disk.object(&place.dir)?.names.remove(place.name);
        removed.map(|_| ()).ok_or(FsError::NotFound)
    }

    fn write(&mut self, object: &ObjectKey, offset: u64, data: &[u8]) -> Result<(), FsError> {
        let mut disk = self.0.lock().unwrap();
        let content = &mut disk.object(object)?.data;
        let start = usize::try_from(offset).unwrap();
        content.resize(content.len().max(start + data.len()), 0);
        content[start..start + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn truncate(&mut self, object: &ObjectKey, size: u64) -> Result<(), FsError> {
        self.0.lock().unwrap().object(object)?.data.resize(usize::try_from(size).unwrap(), 0);
        Ok(())
    }

    fn zero(&mut self, object: &ObjectKey, from: u64, to: u64) -> Result<(), FsError> {
        let mut disk = self.0.lock().unwrap();
        for (at, byte) in (0..).zip(&mut disk.object(object)?.data) {
            if (from..to).contains(&at) {
                *byte = 0;
            }
        }
        Ok(())
    }

    fn set_attributes(
        &mut self,
        object: &ObjectKey,
        attr: &Attr,
        acls: &AclsToSet<'_>,
    ) -> Result<(), FsError> {
        let mut disk = self.0.lock().unwrap();
        let object = disk.object(object)?;
        object.attr = *attr;
        for (kept, set) in [(&mut object.access, acls.access), (&mut object.default, acls.default)]
        {
            if let Some(set) = set {
                set.clone_into(kept);
            }
        }
        Ok(())
    }

    fn has_acls(&mut self, object: &ObjectKey, acls: &AclsToSet<'_>) -> Result<bool, FsError> {
        let mut disk = self.0.lock().unwrap();
        let object = disk.object(object)?;
        Ok(acls.access.is_none_or(|access| access == object.access)
            && acls.default.is_none_or(|default| default == object.default))
    }

    fn make_stable(&mut self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_log_of_an_earlier_server_is_replayed() {
    let place = tempfile::tempdir().unwrap();
    restore(place.path());
    let disk = SharedDisk(Arc::new(Mutex::new(Disk::new())));
    let found = disk.clone();
    let started = StartIntentLog {
        path: place.path().join("intent.log"),
        file_bytes: 16 << 20,
        state_directory: place.path().to_owned(),
        host: [1; 16],
        new_uuid: [2; 16],
        new_write_verifier: 3,
        untold_write_verifier: 4,
        handle_key: [6; 16],
        options: IntentLogOptions::default(),
        open_storage: Box::new(move |entry| {
            assert_eq!((entry.identity.uuid, entry.identity.kind), ([5; 16], 6));
            assert_eq!(&*entry.path, b"/srv");
            Ok(Some(Box::new(found.clone()) as Box<dyn Recoverable>))
        }),
        look_around: Box::new(Vec::new),
    };
    let started = started.start().unwrap();
    let mut tree = String::new();
    disk.0.lock().unwrap().tree(root(), "", &mut tree);
    assert_eq!(tree, include_str!("golden/tree.txt"));
    // One was in the store of replies, the others behind changes. What each means, the engine's test of
    // the same calls knows.
    let kept: BTreeSet<&[u8]> = started.replies.iter().map(Vec::as_slice).collect();
    let replies = include_str!("../../engine/tests/golden/replies.txt");
    let lines: Vec<&str> = replies.lines().filter(|line| !line.starts_with('#')).collect();
    let behind: Vec<Vec<u8>> = lines.chunks(4).map(|kept| bytes(kept[2])).collect();
    assert_eq!(kept, behind.iter().map(Vec::as_slice).collect());
}
