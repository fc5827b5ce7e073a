//! A server in memory, which forgets what is not stable, and does not answer when it is told so.

use std::collections::BTreeMap;

use steadfast_client::{Attributes, FileType, Time};
use steadfast_journal::{Attributes as Settings, SetTime};

use crate::replay::share::{Acknowledging, Answer, Failed, Making, Share, Stamp, Who, Written};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    File(Vec<u8>),
    Directory(BTreeMap<Vec<u8>, u64>),
    Symlink(Vec<u8>),
    Special(u32),
}

#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) content: Content,
    /// Of a file, what is stable of its data.
    stable: Vec<u8>,
    mode: u32,
    atime: u32,
    mtime: u32,
    ctime: u32,
    nlink: u32,
    verifier: Option<[u8; 8]>,
}

type Inodes = BTreeMap<u64, Inode>;
pub(super) const ROOT: u64 = 1;
/// When the clock begins: times that a client sets are before that.
const BEGINNING: u32 = 100;

/// What happens at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is not executed, and not answered.
    Lost,
    /// It is executed, and not answered.
    Unanswered,
    /// The server restarts before it; with a number that chooses what it loses.
    Restart(u64),
    /// As [`Fault::Restart`]; the connection tells of it, and the call is not executed.
    SeenRestart(u64),
}

/// What others do with a file that a replay has made, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    Write,
    /// They move it away, and make one of their own.
    TakeName,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) inodes: Inodes,
    /// On an `async` share: the states since all was stable, the stable one first.
    history: Vec<Inodes>,
    is_async: bool,
    next: u64,
    pub(super) clock: u32,
    pub(super) epoch: u64,
    pub(super) calls: u64,
    pub(super) faults: BTreeMap<u64, Fault>,
    /// It has the recovery program.
    pub(super) has_program: bool,
    /// History is not kept, for tests of speed.
    pub(super) is_plain: bool,
    /// Files that were committed.
    pub(super) committed: Vec<u64>,
    /// Files with nothing that COMMIT would have to write, and their ctimes.
    clean: BTreeMap<u64, u32>,
    /// What others do once the next COMMIT is done, with this name in the root.
    pub(super) others: Option<(Others, &'static [u8])>,
}

pub(super) fn handle(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn number(handle: &[u8]) -> u64 {
    handle.try_into().map_or(0, u64::from_be_bytes)
}

pub(super) fn mix(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Model {
    pub(super) fn new(is_async: bool) -> Self {
        let mut model = Self {
            inodes: Inodes::new(),
            history: Vec::new(),
            is_async,
            next: ROOT + 1,
            clock: BEGINNING,
            epoch: 1,
            calls: 0,
            faults: BTreeMap::new(),
            has_program: true,
            is_plain: false,
            committed: Vec::new(),
            clean: BTreeMap::new(),
            others: None,
        };
        let root = model.inode(Content::Directory(BTreeMap::new()), 0o755);
        model.inodes.insert(ROOT, root);
        model.history.push(model.inodes.clone());
        model
    }

    fn inode(&self, content: Content, mode: u32) -> Inode {
        let now = self.clock;
        Inode {
            content,
            stable: Vec::new(),
            mode,
            atime: now,
            mtime: now,
            ctime: now,
            nlink: 1,
            verifier: None,
        }
    }

    /// The server loses what is not stable, as the seed says.
    pub(super) fn crash(&mut self, seed: u64) {
        self.epoch += 1;
        if self.is_async && !self.history.is_empty() {
            let keep = (mix(seed) % self.history.len() as u64) as usize;
            self.inodes = self.history[keep].clone();
        }
        for (number, inode) in &mut self.inodes {
            if let Content::File(data) = &mut inode.content
                && !mix(seed ^ number << 8).is_multiple_of(3)
            {
                data.clone_from(&inode.stable);
            }
        }
        self.history = vec![self.inodes.clone()];
        self.all_is_clean();
    }

    /// What is there comes from the disk.
    fn all_is_clean(&mut self) {
        self.clean = self.inodes.iter().map(|(number, inode)| (*number, inode.ctime)).collect();
    }

    /// Whether COMMIT of this file would write anything, and with it all changes of names.
    pub(super) fn is_clean(&self, file: u64) -> bool {
        self.inodes.get(&file).is_some_and(|inode| {
            let is_stable = matches!(&inode.content, Content::File(data) if *data == inode.stable);
            is_stable && self.clean.get(&file) == Some(&inode.ctime)
        })
    }

    /// Only what is stable is left.
    pub(super) fn crash_hard(&mut self) {
        if self.is_async
            && let Some(first) = self.history.first()
        {
            self.inodes = first.clone();
        }
        for inode in self.inodes.values_mut() {
            if let Content::File(data) = &mut inode.content {
                data.clone_from(&inode.stable);
            }
        }
        self.epoch += 1;
        self.all_is_clean();
    }

    pub(super) fn verifier(&self) -> [u8; 8] {
        self.epoch.to_be_bytes()
    }

    fn begin(&mut self) -> Result<bool, Failed> {
        self.calls += 1;
        match self.faults.get(&self.calls) {
            None => Ok(true),
            Some(Fault::Lost) => Err(Failed::Unreachable("lost".to_owned())),
            Some(Fault::Unanswered) => Ok(false),
            Some(Fault::SeenRestart(seed)) => {
                self.crash(*seed);
                Err(Failed::Restarted)
            }
            Some(Fault::Restart(seed)) => {
                self.crash(*seed);
                Ok(true)
            }
        }
    }

    fn call<T>(&mut self, call: impl FnOnce(&mut Self) -> Answer<T>) -> Answer<T> {
        let is_answered = self.begin()?;
        self.clock += 1;
        let answer = call(self);
        if self.is_async && !self.is_plain {
            self.history.push(self.inodes.clone());
        }
        if is_answered { answer } else { Err(Failed::Unreachable("no answer".to_owned())) }
    }

    fn at(&mut self, handle: &[u8]) -> Answer<&mut Inode> {
        self.inodes.get_mut(&number(handle)).ok_or(Failed::Gone)
    }

    fn names(&mut self, handle: &[u8]) -> Answer<&mut BTreeMap<Vec<u8>, u64>> {
        let clock = self.clock;
        let inode = self.at(handle)?;
        inode.ctime = clock;
        inode.mtime = clock;
        match &mut inode.content {
            Content::Directory(names) => Ok(names),
            _ => Err(Failed::Refused("NotDir".to_owned())),
        }
    }

    fn file(&mut self, handle: &[u8]) -> Answer<(&mut Vec<u8>, &mut Vec<u8>)> {
        let inode = self.at(handle)?;
        match &mut inode.content {
            Content::File(data) => Ok((data, &mut inode.stable)),
            _ => Err(Failed::Refused("Inval".to_owned())),
        }
    }

    fn touch(&mut self, handle: &[u8], is_data: bool) {
        let clock = self.clock;
        if let Ok(inode) = self.at(handle) {
            inode.ctime = clock;
            if is_data {
                inode.mtime = clock;
                inode.verifier = None;
            }
        }
    }

    fn stamp(&self, handle: &[u8]) -> Option<Stamp> {
        let inode = self.inodes.get(&number(handle))?;
        Some(Stamp::of(&attributes(number(handle), inode)))
    }

    fn unlink(&mut self, number: u64) {
        let clock = self.clock;
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.nlink -= 1;
            inode.ctime = clock;
            if inode.nlink == 0 {
                self.inodes.remove(&number);
            }
        }
    }

    /// Every path with what it has: to compare trees.
    pub(super) fn tree(&self) -> BTreeMap<String, String> {
        let mut tree = BTreeMap::new();
        let mut todo = vec![(String::new(), ROOT)];
        while let Some((path, number)) = todo.pop() {
            let Some(inode) = self.inodes.get(&number) else { continue };
            let text = match &inode.content {
                Content::Directory(names) => {
                    let entry = |(name, number): (&Vec<u8>, &u64)| {
                        (format!("{path}/{}", String::from_utf8_lossy(name)), *number)
                    };
                    todo.extend(names.iter().map(entry));
                    "directory".to_owned()
                }
                Content::File(data) => {
                    // Times of the server's clock are never the same.
                    let is_set = inode.mtime < BEGINNING;
                    let when = if is_set { format!(" of {}", inode.mtime) } else { String::new() };
                    format!("{:o} {}{when}", inode.mode, String::from_utf8_lossy(data))
                }
                other => format!("{other:?}"),
            };
            tree.insert(path, text);
        }
        tree
    }
}

fn attributes(number: u64, inode: &Inode) -> Attributes {
    let time = |seconds| Time { seconds, nanoseconds: 0 };
    let (file_type, size) = match &inode.content {
        Content::File(data) => (FileType::Regular, data.len() as u64),
        Content::Directory(_) => (FileType::Directory, 0),
        Content::Symlink(_) => (FileType::Symlink, 0),
        Content::Special(_) => (FileType::Fifo, 0),
    };
    Attributes {
        file_type,
        mode: inode.mode,
        nlink: inode.nlink,
        uid: 0,
        gid: 0,
        size,
        used: size,
        rdev: (0, 0),
        fsid: 1,
        fileid: number,
        atime: time(inode.atime),
        mtime: time(inode.mtime),
        ctime: time(inode.ctime),
    }
}

impl Share for Model {
    fn begin(&mut self) {}
    fn status(&mut self) -> Answer<Option<Acknowledging>> {
        self.call(|this| {
            let (is_async, verifier) = (this.is_async, this.verifier());
            Ok(this.has_program.then_some(Acknowledging { is_async, verifier }))
        })
    }

    fn sync(&mut self, _: &Who, object: &[u8]) -> Answer<Option<[u8; 8]>> {
        self.call(|this| {
            this.at(object)?;
            for inode in this.inodes.values_mut() {
                if let Content::File(data) = &inode.content {
                    inode.stable.clone_from(data);
                }
            }
            this.history = vec![this.inodes.clone()];
            Ok(Some(this.verifier()))
        })
    }

    fn getattr(&mut self, _: &Who, object: &[u8]) -> Answer<Attributes> {
        self.call(|this| Ok(attributes(number(object), this.at(object)?)))
    }

    fn lookup(&mut self, _: &Who, parent: &[u8], name: &[u8]) -> Answer<Vec<u8>> {
        self.call(|this| match &this.at(parent)?.content {
            Content::Directory(names) => {
                names.get(name).map(|number| handle(*number)).ok_or(Failed::NoEntry)
            }
            _ => Err(Failed::Refused("NotDir".to_owned())),
        })
    }

    fn readlink(&mut self, _: &Who, object: &[u8]) -> Answer<Vec<u8>> {
        self.call(|this| match &this.at(object)?.content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(Failed::Refused("Inval".to_owned())),
        })
    }

    fn read(&mut self, _: &Who, file: &[u8], offset: u64, count: u32) -> Answer<Vec<u8>> {
        self.call(|this| {
            let (data, _) = this.file(file)?;
            let from = (offset as usize).min(data.len());
            let end = (from + count as usize).min(data.len());
            Ok(data[from..end].to_vec())
        })
    }

    fn write(&mut self, _: &Who, file: &[u8], offset: u64, from: &[u8]) -> Answer<Written> {
        self.call(|this| {
            let before = this.stamp(file);
            let verifier = this.epoch.to_be_bytes();
            let (data, _) = this.file(file)?;
            let (start, end) = (offset as usize, offset as usize + from.len());
            if data.len() < end {
                data.resize(end, 0);
            }
            data[start..end].copy_from_slice(from);
            this.touch(file, true);
            Ok(Written { bytes: from.len(), verifier, before, after: this.stamp(file) })
        })
    }

    fn commit(&mut self, _: &Who, file: &[u8]) -> Answer<[u8; 8]> {
        let committed = self.call(|this| {
            let says_nothing = this.is_async && this.has_program;
            let verifier = this.verifier();
            this.file(file)?;
            if says_nothing {
                return Ok(verifier);
            }
            this.committed.push(number(file));
            if this.is_clean(number(file)) {
                return Ok(verifier);
            }
            let (data, stable) = this.file(file)?;
            stable.clone_from(data);
            let ctime = this.at(file)?.ctime;
            this.clean.insert(number(file), ctime);
            // As fsync(2) on a journaling file system that has something to write of the file: all changes of names
            // before it are stable, too.
            this.history.clear();
            this.history.push(this.inodes.clone());
            Ok(verifier)
        });
        match self.others.take_if(|_| committed.is_ok()) {
            Some((Others::Write, _)) => drop(self.others_write(number(file), 0, b"theirs")),
            Some((Others::TakeName, name)) => {
                let root = handle(ROOT);
                let _ = self.rename(&Who::default(), (&root, name), (&root, b"moved"));
                self.others_make(name);
            }
            None => {}
        }
        committed
    }

    fn setattr(&mut self, _: &Who, object: &[u8], to: &Settings) -> Answer<Option<Stamp>> {
        self.call(|this| {
            this.touch(object, to.size.is_some());
            if let Some(size) = to.size {
                let (data, stable) = this.file(object)?;
                data.resize(size as usize, 0);
                stable.resize(size as usize, 0);
            }
            let clock = this.clock;
            let inode = this.at(object)?;
            inode.mode = to.mode.unwrap_or(inode.mode);
            match to.accessed {
                Some(SetTime::To { seconds, .. }) => inode.atime = seconds as u32,
                Some(SetTime::OfServer) => inode.atime = clock,
                None => {}
            }
            match to.modified {
                Some(SetTime::To { seconds, .. }) => inode.mtime = seconds as u32,
                Some(SetTime::OfServer) => inode.mtime = clock,
                None => {}
            }
            if to.modified.is_some() {
                inode.verifier = None;
            }
            Ok(this.stamp(object))
        })
    }

    fn make(
        &mut self,
        _: &Who,
        parent: &[u8],
        name: &[u8],
        what: &Making,
    ) -> Answer<(Vec<u8>, Option<Stamp>)> {
        self.call(|this| {
            if let Some(known) = this.names(parent)?.get(name).copied() {
                let is_it = match what {
                    Making::File { verifier } => {
                        this.inodes.get(&known).is_some_and(|one| one.verifier == Some(*verifier))
                    }
                    _ => false,
                };
                let known = handle(known);
                return if is_it {
                    Ok((known.clone(), this.stamp(&known)))
                } else {
                    Err(Failed::Exists)
                };
            }
            let content = match what {
                Making::File { .. } => Content::File(Vec::new()),
                Making::Directory(_) => Content::Directory(BTreeMap::new()),
                Making::Symlink(target, _) => Content::Symlink(target.clone()),
                Making::Special(kind, ..) => Content::Special(*kind),
            };
            let mut inode = this.inode(content, 0);
            if let Making::File { verifier } = what {
                inode.verifier = Some(*verifier);
            }
            let made = this.next;
            this.next += 1;
            this.inodes.insert(made, inode);
            this.names(parent)?.insert(name.to_vec(), made);
            Ok((handle(made), this.stamp(&handle(made))))
        })
    }

    fn link(&mut self, _: &Who, file: &[u8], parent: &[u8], name: &[u8]) -> Answer<()> {
        self.call(|this| {
            this.at(file)?;
            let names = this.names(parent)?;
            if names.contains_key(name) {
                return Err(Failed::Exists);
            }
            names.insert(name.to_vec(), number(file));
            this.touch(file, false);
            this.at(file)?.nlink += 1;
            Ok(())
        })
    }

    fn rename(&mut self, _: &Who, from: (&[u8], &[u8]), to: (&[u8], &[u8])) -> Answer<()> {
        self.call(|this| {
            let moved = *this.names(from.0)?.get(from.1).ok_or(Failed::NoEntry)?;
            let replaced = this.names(to.0)?.get(to.1).copied();
            if replaced == Some(moved) {
                return Ok(());
            }
            if let Some(replaced) = replaced {
                this.unlink(replaced);
            }
            this.names(from.0)?.remove(from.1);
            this.names(to.0)?.insert(to.1.to_vec(), moved);
            this.touch(&handle(moved), false);
            Ok(())
        })
    }

    fn remove(&mut self, _: &Who, parent: &[u8], name: &[u8]) -> Answer<()> {
        self.call(|this| {
            let removed = this.names(parent)?.remove(name).ok_or(Failed::NoEntry)?;
            this.unlink(removed);
            Ok(())
        })
    }

    fn rmdir(&mut self, _: &Who, parent: &[u8], name: &[u8]) -> Answer<()> {
        self.call(|this| {
            let number = *this.names(parent)?.get(name).ok_or(Failed::NoEntry)?;
            if !this.names(&handle(number))?.is_empty() {
                return Err(Failed::Refused("NotEmpty".to_owned()));
            }
            this.names(parent)?.remove(name);
            this.unlink(number);
            Ok(())
        })
    }
}

/// What others do: stable at once.
impl Model {
    pub(super) fn others_make(&mut self, name: &[u8]) {
        let faults = std::mem::take(&mut self.faults);
        let what = Making::File { verifier: [0xff; 8] };
        let _ = self.make(&Who::default(), &handle(ROOT), name, &what);
        self.faults = faults;
        self.history = vec![self.inodes.clone()];
    }

    pub(super) fn others_write(&mut self, file: u64, offset: u64, data: &[u8]) -> bool {
        let file = handle(file);
        let who = Who::default();
        let is_written = self.write(&who, &file, offset, data).is_ok();
        is_written && self.commit(&who, &file).is_ok() && self.sync(&who, &file).is_ok()
    }
}
