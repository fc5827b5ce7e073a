//! A file system in memory, and what replay does to it.

use super::*;

pub(super) const DIRS: usize = 3;
pub(super) const NAMES: u64 = 4;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Body {
    Names(std::collections::BTreeMap<Vec<u8>, ObjectKey>),
    Data(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) attr: Attr,
    pub(super) body: Body,
    /// Its own access list, and that for what is made in it.
    pub(super) acls: MadeAcls,
    pub(super) born: Time,
}

/// A file system in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) nodes: HashMap<ObjectKey, Node>,
    pub(super) clock: i64,
    /// How many further changes succeed.
    pub(super) budget: Option<usize>,
    pub(super) lost: Vec<ObjectKey>,
    /// Files that nobody can write to, nor set attributes of.
    pub(super) immutable: Vec<ObjectKey>,
    /// Copies of files have nothing at first.
    pub(super) copies_nothing: bool,
    /// Names that cannot be changed.
    pub(super) mounted_on: Vec<Vec<u8>>,
    pub(super) sets_ctimes: bool,
}

pub(super) fn key(number: u64) -> ObjectKey {
    // So that keys are in the order of their numbers.
    ObjectKey(StorageHandle::new(&number.to_be_bytes()).unwrap())
}

/// A tick is a millisecond: what is under way at a crash is not much later than what was logged.
/// What a stranger is known by that has the handle of what was lost.
pub(super) fn displaced(object: &ObjectKey) -> ObjectKey {
    let number = u64::from_be_bytes(object.0.as_bytes().try_into().unwrap());
    key(number | 1 << 60)
}

pub(super) fn time(clock: i64) -> Time {
    Time { seconds: clock / 1000, nanoseconds: (clock % 1000) as u32 * 1_000_000 }
}

impl Disk {
    pub(super) fn new() -> Self {
        let mut disk = Self { clock: 10, ..Self::default() };
        for number in 0..DIRS as u64 {
            disk.add(key(number), FileKind::Directory);
        }
        disk
    }

    pub(super) fn add(&mut self, object: ObjectKey, kind: FileKind) {
        let now = time(self.clock);
        let body = match kind {
            FileKind::Directory => Body::Names(std::collections::BTreeMap::new()),
            _ => Body::Data(Vec::new()),
        };
        let attr = Attr {
            kind,
            mode: 0o644,
            links: 1,
            uid: 1,
            gid: 2,
            size: 0,
            used: 0,
            device: DeviceNumber::default(),
            fsid: 0,
            fileid: 0,
            atime: now,
            mtime: now,
            ctime: now,
        };
        self.nodes.insert(object, Node { attr, body, acls: MadeAcls::default(), born: now });
    }

    pub(super) fn names_of(
        &self,
        dir: &ObjectKey,
    ) -> Option<&std::collections::BTreeMap<Vec<u8>, ObjectKey>> {
        match &self.nodes.get(dir)?.body {
            Body::Names(names) => Some(names),
            Body::Data(_) => None,
        }
    }

    pub(super) fn change_names(
        &mut self,
        dir: &ObjectKey,
        change: impl FnOnce(&mut std::collections::BTreeMap<Vec<u8>, ObjectKey>),
    ) {
        let now = time(self.clock);
        let node = self.nodes.get_mut(dir).unwrap();
        (node.attr.mtime, node.attr.ctime) = (now, now);
        let Body::Names(names) = &mut node.body else { panic!("not a directory") };
        change(names);
    }

    pub(super) fn links(&self, object: &ObjectKey) -> usize {
        let names = self.nodes.values().filter_map(|node| match &node.body {
            Body::Names(names) => Some(names),
            Body::Data(_) => None,
        });
        names.flat_map(|names| names.values()).filter(|bound| *bound == object).count()
    }

    pub(super) fn attr(&self, object: &ObjectKey) -> Option<Attr> {
        let attr = self.nodes.get(object)?.attr;
        Some(Attr { links: self.links(object) as u32, ..attr })
    }

    /// Frees an object without names.
    pub(super) fn reap(&mut self, object: &ObjectKey) {
        if self.links(object) == 0 && *object >= key(DIRS as u64) {
            self.nodes.remove(object);
        }
    }

    pub(super) fn is_beneath(&self, dir: &ObjectKey, above: &ObjectKey) -> bool {
        if dir == above {
            return true;
        }
        let children = self.names_of(above).into_iter().flat_map(|names| names.values());
        children
            .filter(|child| self.names_of(child).is_some())
            .any(|child| self.is_beneath(dir, child))
    }

    pub(super) fn touch(&mut self, object: &ObjectKey, is_data: bool) {
        let now = time(self.clock);
        if let Some(node) = self.nodes.get_mut(object) {
            node.attr.ctime = now;
            if is_data {
                node.attr.mtime = now;
            }
        }
    }

    pub(super) fn put(&mut self, object: &ObjectKey, offset: usize, data: &[u8]) {
        let Some(Node { body: Body::Data(old), attr, .. }) = self.nodes.get_mut(object) else {
            return;
        };
        if old.len() < offset + data.len() {
            old.resize(offset + data.len(), 0);
        }
        old[offset..offset + data.len()].copy_from_slice(data);
        attr.size = old.len() as u64;
    }

    pub(super) fn cut(&mut self, object: &ObjectKey, size: usize) {
        let Some(Node { body: Body::Data(old), attr, .. }) = self.nodes.get_mut(object) else {
            return;
        };
        old.resize(size, 0);
        attr.size = size as u64;
    }

    /// A gap has what was there before, as if what had made the file shorter were not on the disk.
    pub(super) fn show_old(&mut self, object: &ObjectKey, gap: Option<u64>, to: u64) {
        let Some(gap) = gap else { return };
        self.put(object, gap as usize, &vec![0xee; (to - gap) as usize]);
    }

    /// Makes something in a directory, which inherits from it. The name is not given yet.
    pub(super) fn inherit(&mut self, object: &ObjectKey, dir: &ObjectKey) {
        let inherited = self.nodes[dir].acls.default.clone();
        let node = self.nodes.get_mut(object).unwrap();
        if node.attr.kind == FileKind::Directory {
            node.acls.default.clone_from(&inherited);
        }
        node.acls.access = inherited;
    }

    /// A local process makes something that gets the handle of what was lost.
    pub(super) fn add_stranger(&mut self, handle: ObjectKey, kind: FileKind, name: Vec<u8>) {
        self.add(handle, kind);
        self.put(&handle, 0, b"of a stranger");
        self.change_names(&key(0), |names| {
            names.insert(name, handle);
        });
    }

    fn require_not_immutable(&self, object: &ObjectKey) -> Result<(), FsError> {
        if self.immutable.contains(object) { Err(FsError::NotPermitted) } else { Ok(()) }
    }

    pub(super) fn spend(&mut self) -> Result<(), FsError> {
        self.clock += 1;
        match &mut self.budget {
            Some(0) => Err(FsError::Io),
            Some(budget) => {
                *budget -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Recoverable for Disk {
    fn names_follow_ctimes(&self) -> bool {
        !self.sets_ctimes
    }

    fn still_mounted(&self) -> Option<&str> {
        None
    }

    fn set_lost(&mut self, lost: &[ObjectKey]) {
        for object in lost.iter().filter(|object| !self.lost.contains(object)) {
            // Whatever else has its handle is known by another from here on.
            let Some(stranger) = self.nodes.remove(object) else { continue };
            let displaced = displaced(object);
            self.nodes.insert(displaced, stranger);
            for node in self.nodes.values_mut() {
                if let Body::Names(names) = &mut node.body {
                    names.values_mut().filter(|to| *to == object).for_each(|to| *to = displaced);
                }
            }
        }
        self.lost = lost.to_vec();
    }

    fn look(&mut self, object: &ObjectKey) -> Result<Option<Attr>, FsError> {
        Ok(self.attr(object))
    }

    fn born(&mut self, object: &ObjectKey) -> Result<Option<Time>, FsError> {
        let is_known = !self.lost.contains(object);
        Ok(self.nodes.get(object).filter(|_| is_known).map(|node| node.born))
    }

    fn bound(&mut self, place: &Place<'_>) -> Result<Option<(ObjectKey, FileKind)>, FsError> {
        let object = self.names_of(&place.dir).and_then(|names| names.get(place.name));
        Ok(object.map(|object| (*object, self.nodes[object].attr.kind)))
    }

    fn names(&mut self, dir: &ObjectKey, prefix: &[u8]) -> Result<Vec<Vec<u8>>, FsError> {
        let names = self.names_of(dir).into_iter().flat_map(|names| names.keys());
        Ok(names.filter(|name| name.starts_with(prefix)).cloned().collect())
    }

    fn make(
        &mut self,
        place: &Place<'_>,
        object: &ObjectKey,
        attr: &Attr,
        target: &[u8],
    ) -> Result<(), FsError> {
        self.spend()?;
        assert!(!self.nodes.contains_key(object), "made though it is there");
        assert!(self.lost.contains(object), "made though it was not lost");
        assert_eq!(self.bound(place)?, None, "made in place of something");
        self.add(*object, attr.kind);
        self.nodes.get_mut(object).unwrap().attr.mode = 0;
        self.put(object, 0, target);
        self.change_names(&place.dir, |names| {
            names.insert(place.name.to_vec(), *object);
        });
        Ok(())
    }

    fn link(&mut self, object: &ObjectKey, place: &Place<'_>) -> Result<(), FsError> {
        self.spend()?;
        assert_eq!(self.bound(place)?, None, "linked in place of something");
        assert!(self.nodes.contains_key(object));
        self.change_names(&place.dir, |names| {
            names.insert(place.name.to_vec(), *object);
        });
        self.touch(object, false);
        Ok(())
    }

    fn rename(&mut self, from: &Place<'_>, to: &Place<'_>) -> Result<(), FsError> {
        self.spend()?;
        if self.mounted_on.iter().any(|name| [from.name, to.name].contains(&&name[..])) {
            return Err(FsError::AccessDenied);
        }
        let (object, _) = self.bound(from)?.ok_or(FsError::NotFound)?;
        assert_eq!(self.bound(to)?, None, "renamed over something");
        if self.names_of(&object).is_some() && self.is_beneath(&to.dir, &object) {
            return Err(FsError::Invalid);
        }
        self.change_names(&from.dir, |names| {
            names.remove(from.name);
        });
        self.change_names(&to.dir, |names| {
            names.insert(to.name.to_vec(), object);
        });
        self.touch(&object, false);
        Ok(())
    }

    fn remove(&mut self, place: &Place<'_>, is_directory: bool) -> Result<(), FsError> {
        self.spend()?;
        let (object, kind) = self.bound(place)?.ok_or(FsError::NotFound)?;
        assert_eq!(kind == FileKind::Directory, is_directory);
        if self.names_of(&object).is_some_and(|names| !names.is_empty()) {
            return Err(FsError::NotEmpty);
        }
        self.change_names(&place.dir, |names| {
            names.remove(place.name);
        });
        self.reap(&object);
        Ok(())
    }

    fn write(&mut self, object: &ObjectKey, offset: u64, data: &[u8]) -> Result<(), FsError> {
        self.spend()?;
        self.require_not_immutable(object)?;
        if !self.nodes.contains_key(object) {
            return Err(FsError::Stale);
        }
        self.put(object, offset as usize, data);
        self.touch(object, true);
        Ok(())
    }

    fn truncate(&mut self, object: &ObjectKey, size: u64) -> Result<(), FsError> {
        self.spend()?;
        self.require_not_immutable(object)?;
        if !self.nodes.contains_key(object) {
            return Err(FsError::Stale);
        }
        self.cut(object, size as usize);
        self.touch(object, true);
        Ok(())
    }

    fn zero(&mut self, object: &ObjectKey, from: u64, to: u64) -> Result<(), FsError> {
        let end = to.min(self.attr(object).map_or(0, |attr| attr.size));
        self.write(object, from, &vec![0; end.saturating_sub(from) as usize])
    }

    fn set_attributes(
        &mut self,
        object: &ObjectKey,
        attr: &Attr,
        acls: &AclsToSet<'_>,
    ) -> Result<(), FsError> {
        self.spend()?;
        self.require_not_immutable(object)?;
        let node = self.nodes.get_mut(object).ok_or(FsError::Stale)?;
        if let Some(access) = acls.access {
            node.acls.access = access.to_vec();
        }
        if let Some(default) = acls.default {
            node.acls.default = default.to_vec();
        }
        (node.attr.uid, node.attr.gid) = (attr.uid, attr.gid);
        (node.attr.mode, node.attr.mtime) = (attr.mode, attr.mtime);
        self.touch(object, false);
        Ok(())
    }

    fn has_acls(&mut self, object: &ObjectKey, acls: &AclsToSet<'_>) -> Result<bool, FsError> {
        let has = &self.nodes.get(object).ok_or(FsError::Stale)?.acls;
        Ok(acls.access.is_none_or(|access| access == has.access)
            && acls.default.is_none_or(|default| default == has.default))
    }

    fn keep(
        &mut self,
        object: &ObjectKey,
        dir: Option<&ObjectKey>,
        name: &[u8],
        anew: bool,
    ) -> Result<KeptFile, FsError> {
        self.spend()?;
        let dir = dir.copied().unwrap_or(key(0));
        let copy = key(u64::from_be_bytes(object.0.as_bytes().try_into().unwrap()) | 1 << 61);
        let is_whole = !self.copies_nothing;
        let has_name = self.names_of(&dir).ok_or(FsError::Stale)?.contains_key(name);
        if anew || !has_name {
            let Some(Node { body: Body::Data(data), .. }) = self.nodes.get(object).cloned() else {
                return Err(FsError::Stale);
            };
            self.add(copy, FileKind::Regular);
            self.put(&copy, 0, &if is_whole { data } else { vec![0; data.len()] });
            self.change_names(&dir, |names| {
                names.insert(name.to_vec(), copy);
            });
        }
        Ok(KeptFile { object: copy, dir, is_whole })
    }

    fn keep_part(
        &mut self,
        object: &ObjectKey,
        copy: &ObjectKey,
        offset: u64,
        bytes: u64,
    ) -> Result<(), FsError> {
        self.spend()?;
        let data = |node: &Node| match &node.body {
            Body::Data(data) => data.clone(),
            Body::Names(_) => panic!("not a file"),
        };
        let from = data(&self.nodes[object]);
        let mut to = data(&self.nodes[copy]);
        let end = offset.saturating_add(bytes).min(from.len() as u64).min(to.len() as u64);
        for at in offset as usize..end as usize {
            // What has nothing yet is 0.
            if to[at] == 0 {
                to[at] = from[at];
            }
        }
        self.put(copy, 0, &to);
        Ok(())
    }

    fn has_same_data(&mut self, object: &ObjectKey, kept: &KeptFile) -> Result<bool, FsError> {
        let data = |object| match self.nodes.get(object).map(|node| &node.body) {
            Some(Body::Data(data)) => Ok(data),
            _ => Err(FsError::Stale),
        };
        let (file, copy) = (data(object)?, data(&kept.object)?);
        let is_same = |(one, other): (&u8, &u8)| one == other || (!kept.is_whole && *other == 0);
        Ok(file.len() == copy.len() && file.iter().zip(copy).all(is_same))
    }

    fn make_stable(&mut self) -> Result<(), String> {
        Ok(())
    }
}
