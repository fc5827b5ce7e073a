//! The ledger's model of the share: what is there when these operations, and no others, were done.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_client::{FileHandle, FileType, NfsStat3, Time};

use crate::acl::Acl;
use crate::content::Content;
use crate::local::{Local, Step, Sync};
use crate::operation::{Action, Change, Done, How, Number, Place, ROOT, target};
use crate::random::pattern;

/// What sets objects of one type apart from those of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file.
    File(Content),
    /// A directory.
    Directory,
    /// A symbolic link, with the seed of its target.
    Symlink(u64),
    /// A named pipe.
    Fifo,
}

impl Kind {
    /// As clients see it.
    pub(crate) fn file_type(&self) -> FileType {
        match self {
            Self::File(_) => FileType::Regular,
            Self::Directory => FileType::Directory,
            Self::Symlink(_) => FileType::Symlink,
            Self::Fifo => FileType::Fifo,
        }
    }
}

/// Whose promise it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Last {
    pub(crate) links: Number,
    pub(crate) data: Number,
    pub(crate) attributes: Number,
}

/// A file, directory, …; what is `None` is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) handle: Option<FileHandle>,
    pub(crate) fileid: Option<u64>,
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    /// Names of it (of a directory: one).
    pub(crate) links: u32,
    /// Set by a client, and not changed since.
    pub(crate) atime: Option<Time>,
    pub(crate) mtime: Option<Time>,
    /// As the last reply told it, where nothing unstable came after.
    pub(crate) mtime_told: Option<Time>,
    /// The last operation on its names, its data and its attributes.
    pub(crate) last: Last,
    /// The access ACL: not known, none, or one (whose owner, mask and other are the mode's).
    #[expect(clippy::option_option, reason = "not known, none, and one are three cases")]
    pub(crate) acl: Option<Option<Acl>>,
    /// The same of the default ACL.
    #[expect(clippy::option_option, reason = "as above")]
    pub(crate) default_acl: Option<Option<Acl>>,
    /// A local process changed its names, or made it, and did not make that stable.
    pub(crate) is_loose: bool,
    /// The same of its attributes.
    pub(crate) has_loose_attributes: bool,
    /// A client of NFSv4 has it for itself: others leave it alone.
    pub(crate) is_held: bool,
}

/// An object that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Removed {
    /// The operation that took its last name.
    pub(crate) by: Number,
    pub(crate) object: Number,
    pub(crate) handle: FileHandle,
}

/// Objects and the names by which they are found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) objects: BTreeMap<Number, Object>,
    pub(crate) names: BTreeMap<Place, Number>,
    /// Objects that are gone.
    pub(crate) removed: Vec<Removed>,
    /// The last operation on a name.
    pub(crate) last: BTreeMap<Place, Number>,
    /// Names that a local process changed, and did not make stable.
    pub(crate) loose: BTreeSet<Place>,
    /// Whether everything that was done stays: no power fails.
    pub(crate) keeps_all: bool,
}

impl State {
    /// An empty share.
    pub(crate) fn new(root: FileHandle) -> Self {
        let mut state = Self::default();
        let mut object = Object::new(Kind::Directory, ROOT);
        object.handle = Some(root);
        object.default_acl = Some(None);
        state.objects.insert(ROOT, object);
        state
    }

    /// The object of a name.
    pub(crate) fn at(&self, place: Place) -> Option<(Number, &Object)> {
        let number = *self.names.get(&place)?;
        Some((number, self.objects.get(&number)?))
    }

    fn is_empty(&self, directory: Number) -> bool {
        let first = Place { directory, name: crate::operation::Name(0) };
        self.names.range(first..).next().is_none_or(|(place, _)| place.directory != directory)
    }

    /// Whether `directory` is `ancestor` or below it.
    pub(crate) fn is_below(&self, mut directory: Number, ancestor: Number) -> bool {
        // Trees are not that deep; a loop would be a fault of ours.
        for _ in 0..1000 {
            if directory == ancestor {
                return true;
            }
            let above = self.names.iter().find(|(_, number)| **number == directory);
            match above {
                Some((place, _)) => directory = place.directory,
                None => return false,
            }
        }
        true
    }

    /// What a server has to answer now.
    pub(crate) fn expected(&self, action: &Action) -> NfsStat3 {
        let is_directory = |(_, object): (Number, &Object)| object.kind == Kind::Directory;
        match *action {
            Action::Create { at, how: How::Unchecked, .. } => {
                match self.at(at).map(|(_, object)| &object.kind) {
                    None | Some(Kind::File(_)) => NfsStat3::Ok,
                    Some(_) => NfsStat3::Exist,
                }
            }
            Action::Create { at, .. }
            | Action::Mkdir { at, .. }
            | Action::Symlink { at, .. }
            | Action::Mknod { at, .. }
            | Action::Link { at, .. } => match self.at(at) {
                None => NfsStat3::Ok,
                Some(_) => NfsStat3::Exist,
            },
            Action::Remove { at } => match self.at(at) {
                None => NfsStat3::NoEnt,
                Some(there) if is_directory(there) => NfsStat3::IsDir,
                Some(_) => NfsStat3::Ok,
            },
            Action::Rmdir { at } => match self.at(at) {
                None => NfsStat3::NoEnt,
                Some(there) if !is_directory(there) => NfsStat3::NotDir,
                Some((number, _)) if !self.is_empty(number) => NfsStat3::NotEmpty,
                Some(_) => NfsStat3::Ok,
            },
            Action::Rename { from, to } => match (self.at(from), self.at(to)) {
                (None, _) => NfsStat3::NoEnt,
                (Some(moved), Some(victim)) => match (is_directory(moved), is_directory(victim)) {
                    (true, false) => NfsStat3::NotDir,
                    (false, true) => NfsStat3::IsDir,
                    (true, true) if moved.0 != victim.0 && !self.is_empty(victim.0) => {
                        NfsStat3::NotEmpty
                    }
                    _ => NfsStat3::Ok,
                },
                (Some(_), None) => NfsStat3::Ok,
            },
            Action::Setattr { .. }
            | Action::Write { .. }
            | Action::Commit { .. }
            | Action::Setacl { .. }
            | Action::Local(_) => NfsStat3::Ok,
        }
    }

    /// An operation was done, and promised.
    pub(crate) fn apply(&mut self, number: Number, action: &Action, done: &Done) {
        for place in action.places() {
            self.last.insert(place, number);
        }
        match *action {
            Action::Create { at, size, how, .. } => match self.names.get(&at) {
                Some(there) if how == How::Unchecked => {
                    let there = *there;
                    if let Some(size) = size {
                        self.change(
                            number,
                            there,
                            &Change { size: Some(size), ..Change::default() },
                        );
                    }
                    self.told(there, done);
                }
                _ => {
                    let mut content = Content::default();
                    if let (Some(size), How::Unchecked | How::Guarded) = (size, how) {
                        content.truncate(size);
                    }
                    self.make(number, at, Kind::File(content), done);
                }
            },
            Action::Mkdir { at, .. } => self.make(number, at, Kind::Directory, done),
            Action::Symlink { at, target } => self.make(number, at, Kind::Symlink(target), done),
            Action::Mknod { at, .. } => self.make(number, at, Kind::Fifo, done),
            Action::Remove { at } | Action::Rmdir { at } => {
                if let Some(object) = self.names.remove(&at) {
                    self.unlink(number, object);
                }
            }
            Action::Rename { from, to } => self.rename(number, from, to),
            Action::Link { object, at } => {
                self.names.insert(at, object);
                if let Some(linked) = self.objects.get_mut(&object) {
                    linked.links += 1;
                    linked.last.links = number;
                }
            }
            Action::Setattr { object, change } => {
                self.change(number, object, &change);
                self.told(object, done);
            }
            Action::Write { object, offset, seed, bytes, .. } => {
                let data = pattern(seed, bytes);
                let written = data.get(..done.count).unwrap_or(&data);
                self.write(object, offset, written, done.is_stable);
                if let Some(object) = self.objects.get_mut(&object) {
                    object.last.data = number;
                }
                if done.is_file_stable {
                    self.told(object, done);
                }
            }
            Action::Commit { object, offset, count } => {
                if let Some(object) = self.objects.get_mut(&object) {
                    object.last.data = number;
                    if let Kind::File(content) = &mut object.kind {
                        content.commit(offset, count);
                    }
                }
            }
            Action::Setacl { object, acl, is_default } => {
                self.set_acl(number, object, acl, is_default);
            }
            Action::Local(local) => {
                let is_stable = self.keeps_all || local.sync != Sync::None;
                self.apply_local(number, &local, done, is_stable);
            }
        }
    }

    fn rename(&mut self, number: Number, from: Place, to: Place) {
        let Some(moved) = self.names.get(&from).copied() else { return };
        let victim = self.names.get(&to).copied();
        // Two names of one object: nothing is done (RFC 1813 §3.3.14).
        if victim == Some(moved) {
            return;
        }
        self.names.remove(&from);
        self.names.insert(to, moved);
        if let Some(victim) = victim {
            self.unlink(number, victim);
        }
        if let Some(moved) = self.objects.get_mut(&moved) {
            moved.last.links = number;
        }
    }

    fn set_acl(&mut self, number: Number, object: Number, acl: Option<Acl>, is_default: bool) {
        let Some(object) = self.objects.get_mut(&object) else { return };
        object.last.attributes = number;
        if is_default {
            object.default_acl = Some(acl);
            return;
        }
        object.acl = Some(acl);
        if let Some(acl) = acl {
            object.mode = Some(acl.mode());
        }
    }

    /// A local process changed something. What is not stable may be there, or what was before.
    pub(crate) fn apply_local(
        &mut self,
        number: Number,
        local: &Local,
        done: &Done,
        is_stable: bool,
    ) {
        let places = local.places();
        let mut touched: BTreeSet<Number> =
            places.iter().filter_map(|place| self.names.get(place).copied()).collect();
        let removed = self.removed.len();
        match local.step {
            Step::Truncate { object, size } => {
                self.put(number, object, is_stable, |bytes| bytes.resize(size as usize, 0));
            }
            Step::Overwrite { object, offset, seed, bytes, keeps_mtime } => {
                let data = pattern(seed, bytes);
                // After a power failure nothing tells such a change (docs/durability.md, Not yet).
                let is_noticed = !keeps_mtime || self.keeps_all;
                self.put(number, object, is_stable && is_noticed, |bytes| {
                    let end = offset as usize + data.len();
                    bytes.resize(bytes.len().max(end), 0);
                    if let Some(place) = bytes.get_mut(offset as usize..end) {
                        place.copy_from_slice(&data);
                    }
                });
                if !is_noticed
                    && let Some(Kind::File(content)) =
                        self.objects.get_mut(&object).map(|object| &mut object.kind)
                {
                    content.be_unstable();
                }
            }
            Step::Replace { at, seed, bytes, mode } | Step::Create { at, seed, bytes, mode } => {
                if let Some(victim) = self.names.remove(&at) {
                    self.unlink(number, victim);
                }
                let mut content = Content::default();
                content.put(pattern(seed, bytes), is_stable);
                self.make(number, at, Kind::File(content), done);
                self.made_locally(number, mode);
            }
            Step::Mkdir { at, mode } => {
                self.make(number, at, Kind::Directory, done);
                self.made_locally(number, mode);
            }
            Step::Unlink { at } | Step::Rmdir { at } => {
                if let Some(object) = self.names.remove(&at) {
                    self.unlink(number, object);
                }
            }
            Step::Rename { from, to } => self.rename(number, from, to),
            Step::Chmod { object, mode } => {
                self.change(number, object, &Change { mode: Some(mode), ..Change::default() });
            }
            Step::Chown { object, uid, gid } => {
                let change = Change { uid: Some(uid), gid: Some(gid), ..Change::default() };
                self.change(number, object, &change);
            }
            Step::Utimes { object, atime, mtime } => {
                let change = Change { times: Some((atime, mtime)), ..Change::default() };
                self.change(number, object, &change);
            }
            Step::Acl { object, acl } => self.set_acl(number, object, acl, false),
            Step::DefaultAcl { object, acl } => self.set_acl(number, object, acl, true),
            Step::Nothing => {}
        }
        touched.extend(local.made().map(|_| number));
        if !is_stable {
            self.loose.extend(places.iter().copied());
            // Nobody knows whether they are gone.
            self.removed.truncate(removed);
        }
        for object in touched.iter().chain(local.object().as_ref()) {
            let Some(object) = self.objects.get_mut(object) else { continue };
            object.mtime_told = None;
            object.is_loose |= !is_stable && !places.is_empty();
            object.has_loose_attributes |= !is_stable;
            if is_stable && local.sync == Sync::Own && local.object().is_some() {
                object.has_loose_attributes = false;
                if let Kind::File(content) = &mut object.kind {
                    content.settle_locally();
                }
            }
        }
        if is_stable && local.sync == Sync::All {
            self.settle();
        }
    }

    /// Everything is stable.
    fn settle(&mut self) {
        self.loose.clear();
        for object in self.objects.values_mut() {
            object.is_loose = false;
            object.has_loose_attributes = false;
            if let Kind::File(content) = &mut object.kind {
                content.settle_locally();
            }
        }
    }

    fn put(
        &mut self,
        number: Number,
        object: Number,
        is_stable: bool,
        change: impl FnOnce(&mut Vec<u8>),
    ) {
        let Some(object) = self.objects.get_mut(&object) else { return };
        if let Kind::File(content) = &mut object.kind {
            let mut bytes = content.newest().to_vec();
            change(&mut bytes);
            content.put(bytes, is_stable);
        }
        object.last.data = number;
        object.mtime = None;
    }

    fn made_locally(&mut self, number: Number, mode: u32) {
        if let Some(object) = self.objects.get_mut(&number) {
            (object.mode, object.uid, object.gid) = (Some(mode), Some(0), Some(0));
        }
    }

    /// A name of an object; a directory has one.
    pub(crate) fn place_of(&self, object: Number) -> Option<Place> {
        let mut names = self.names.iter();
        names.find(|(_, number)| **number == object).map(|(place, _)| *place)
    }

    /// Whether an operation names what may be there or not: clients do not.
    pub(crate) fn is_loose(&self, action: &Action) -> bool {
        let is_loose =
            |number: &Number| self.objects.get(number).is_none_or(|object| object.is_loose);
        action.places().iter().any(|place| {
            self.loose.contains(place)
                || is_loose(&place.directory)
                || self.names.get(place).is_some_and(is_loose)
        }) || action.object().as_ref().is_some_and(is_loose)
    }

    /// Whether a name is of what one client has for itself.
    pub(crate) fn is_held_place(&self, at: Place) -> bool {
        let directory = self.objects.get(&at.directory);
        at.name.is_of_holder() && at.directory == ROOT
            || directory.is_some_and(|directory| directory.is_held)
    }

    /// Whether an operation has to do with what one client has for itself.
    pub(crate) fn touches_held(&self, action: &Action) -> bool {
        let object = action.object().and_then(|number| self.objects.get(&number));
        object.is_some_and(|object| object.is_held)
            || action.places().iter().any(|place| self.is_held_place(*place))
    }

    /// A write or a change of size is under way: it may be there, wholly or partly.
    pub(crate) fn maybe(&mut self, action: &Action) {
        match *action {
            Action::Write { object, offset, seed, bytes, .. } => {
                self.write(object, offset, &pattern(seed, bytes), false);
            }
            Action::Setattr { object, change: Change { size: Some(size), .. } } => {
                self.maybe_truncate(object, size);
            }
            Action::Create { at, size: Some(size), how: How::Unchecked, .. } => {
                if let Some(object) = self.names.get(&at).copied() {
                    self.maybe_truncate(object, size);
                }
            }
            _ => {}
        }
    }

    fn maybe_truncate(&mut self, object: Number, size: u64) {
        let Some(object) = self.objects.get_mut(&object) else { return };
        if let Kind::File(content) = &mut object.kind {
            content.maybe_truncate(size);
        }
        object.mtime = None;
        object.mtime_told = None;
    }

    fn write(&mut self, object: Number, offset: u64, data: &[u8], is_stable: bool) {
        let Some(object) = self.objects.get_mut(&object) else { return };
        if let Kind::File(content) = &mut object.kind {
            content.write(offset, data, is_stable);
        }
        object.mtime = None;
        object.mtime_told = None;
    }

    fn told(&mut self, object: Number, done: &Done) {
        if let Some(object) = self.objects.get_mut(&object)
            && object.kind != Kind::Directory
        {
            object.mtime_told = done.attributes.as_ref().map(|attributes| attributes.mtime);
        }
    }

    fn make(&mut self, number: Number, at: Place, kind: Kind, done: &Done) {
        let mut object = Object::new(kind, number);
        let directory = self.objects.get(&at.directory);
        object.is_held = self.is_held_place(at);
        let inherited = directory
            .filter(|directory| !directory.has_loose_attributes)
            .and_then(|directory| directory.default_acl);
        match object.kind {
            Kind::Symlink(_) => {}
            Kind::Directory => (object.acl, object.default_acl) = (inherited, inherited),
            Kind::File(_) | Kind::Fifo => {
                (object.acl, object.default_acl) = (inherited, Some(None));
            }
        }
        object.handle.clone_from(&done.handle);
        if let Some(attributes) = &done.attributes {
            object.fileid = Some(attributes.fileid);
            object.mode = Some(attributes.mode);
            object.uid = Some(attributes.uid);
            object.gid = Some(attributes.gid);
        }
        self.objects.insert(number, object);
        self.names.insert(at, number);
    }

    fn unlink(&mut self, number: Number, object: Number) {
        let Some(there) = self.objects.get_mut(&object) else { return };
        there.last.links = number;
        there.links = there.links.saturating_sub(1);
        if there.links == 0
            && let Some(gone) = self.objects.remove(&object)
        {
            self.removed.extend(gone.handle.map(|handle| Removed { by: number, object, handle }));
        }
    }

    fn change(&mut self, number: Number, object: Number, change: &Change) {
        let Some(object) = self.objects.get_mut(&object) else { return };
        object.last.attributes = number;
        object.mode = change.mode.or(object.mode);
        object.uid = change.uid.or(object.uid);
        object.gid = change.gid.or(object.gid);
        if let (Some(size), Kind::File(content)) = (change.size, &mut object.kind) {
            content.truncate(size);
            object.last.data = number;
            object.mtime = None;
            object.mtime_told = None;
        }
        if let Some((atime, mtime)) = change.times {
            object.atime = Some(atime);
            object.mtime = Some(mtime);
        }
    }
}

impl Object {
    /// An access list of it, the default one or the other, was set or was not: nobody knows. Whatever
    /// else becomes stable does not tell.
    pub(crate) fn forget_acl(&mut self, is_default: bool) {
        if is_default {
            self.default_acl = None;
        } else {
            (self.acl, self.mode) = (None, None);
        }
    }

    fn new(kind: Kind, number: Number) -> Self {
        Self {
            kind,
            handle: None,
            fileid: None,
            mode: None,
            uid: None,
            gid: None,
            links: 1,
            atime: None,
            mtime: None,
            mtime_told: None,
            last: Last { links: number, data: number, attributes: number },
            acl: None,
            default_acl: None,
            is_loose: false,
            has_loose_attributes: false,
            is_held: false,
        }
    }

    /// The target of a symbolic link.
    pub(crate) fn target(&self) -> Option<Vec<u8>> {
        match self.kind {
            Kind::Symlink(seed) => Some(target(seed)),
            _ => None,
        }
    }
}
