//! Names: look-up, making, removing and renaming.

use std::sync::Arc;
use std::time::{Duration, Instant};

use steadfast_client::arguments::{Settings, access};
use steadfast_client::{
    ClientError, CreateHow3, DeviceData3, FileHandle, FileType, Linked, Made, MknodData3, NfsStat3,
    Renamed, SetTime3, SpecData3, Wcc,
};
use steadfast_journal::{Attributes, Change, SetTime};

use super::{Asker, Changes, Outcome, Volume, of_node};
use crate::errors::Errno;
use crate::node::{Asking, Hidden, Node};
use crate::transport::Patience;

/// The type in a mode (inode(7), `S_IFMT`).
const FILE_TYPE: u32 = 0o170_000;

/// How long is tried to give a file its name back.
const TAKING_BACK: Duration = Duration::from_secs(10);

/// What is to be made.
#[derive(Clone, Debug)]
pub(crate) enum Making {
    /// A directory with this mode.
    Directory(u32),
    /// A symbolic link with this target.
    Symlink(Vec<u8>),
    /// Anything that mknod(2) makes: mode with its type, device number as FUSE has it.
    Special(u32, u32),
}

impl Volume {
    pub(crate) fn lookup(&self, asker: &Asker, parent: u64, name: &[u8]) -> Outcome<Arc<Node>> {
        if let Some(node) = self.lookup_known(asker, parent, name) {
            return Ok(node);
        }
        let directory = self.node(parent)?;
        if directory.has_name(name) {
            // One call for all names, if the directory has not changed.
            self.ask_rights(asker, &directory, access::LOOKUP)?;
            if let Some(node) = self.lookup_known(asker, parent, name) {
                return Ok(node);
            }
        }
        let asking = directory.ask();
        let found = self.call(asker, |nfs| nfs.lookup(&directory.handle(), name));
        let found = of_node(&directory, found);
        let times = &self.options.cache_times;
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                if let ClientError::Failed(failure) = &error {
                    directory.learn(failure.attributes.as_ref(), asking, times);
                }
                directory.forget_name(name);
                return Err(error.into());
            }
        };
        directory.learn(found.directory.as_ref(), asking, times);
        let attributes = self.attributes_or_ask(asker, &found.handle, found.attributes)?;
        let node = self.nodes.enter(&found.handle, &attributes, asking.sent);
        directory.grant(&asker.identity, access::LOOKUP, access::LOOKUP);
        directory.remember(name, node.number, asking);
        node.note_name(parent, name);
        Ok(node)
    }

    /// A look-up that needs no call.
    pub(crate) fn lookup_known(
        &self,
        asker: &Asker,
        parent: u64,
        name: &[u8],
    ) -> Option<Arc<Node>> {
        let directory = self.nodes.by_number(parent)?;
        let number = directory.name(name)?;
        if directory.granted(&asker.identity, access::LOOKUP)? != access::LOOKUP {
            return None;
        }
        if self.nodes.by_number(number)?.is_dead() {
            directory.forget_name(name);
            return None;
        }
        self.nodes.enter_again(number)
    }

    /// The node that has a name now, if the kernel knows it. It is not entered.
    fn find(&self, asker: &Asker, directory: &Node, name: &[u8]) -> Outcome<Option<Arc<Node>>> {
        if let Some(node) = directory.name(name).and_then(|number| self.nodes.by_number(number))
            && !node.is_dead()
        {
            return Ok(Some(node));
        }
        match self.call(asker, |nfs| nfs.lookup(&directory.handle(), name)) {
            Ok(found) => Ok(self.nodes.by_handle(&found.handle)),
            Err(error) if error.status() == Some(NfsStat3::NoEnt) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What was made gets a node.
    pub(super) fn enter_made(
        &self,
        asker: &Asker,
        directory: &Node,
        name: &[u8],
        made: Made,
        asking: Asking,
    ) -> Outcome<Arc<Node>> {
        let (handle, attributes) = if let Some(handle) = made.handle {
            (handle, made.attributes)
        } else {
            let found = self.call(asker, |nfs| nfs.lookup(&directory.handle(), name))?;
            (found.handle, found.attributes)
        };
        let attributes = self.attributes_or_ask(asker, &handle, attributes)?;
        let node = self.nodes.enter(&handle, &attributes, asking.sent);
        directory.remember_made(name, node.number, asking);
        node.note_name(directory.number, name);
        Ok(node)
    }

    pub(crate) fn make(
        &self,
        asker: &Asker,
        parent: u64,
        name: &[u8],
        making: &Making,
    ) -> Outcome<Arc<Node>> {
        let directory = self.node(parent)?;
        let asking = directory.ask();
        let path = self.path_of(&directory, name);
        let describe = |append: &mut dyn FnMut(Change<'_>)| {
            let parent = directory.handle();
            let parent = parent.as_bytes();
            let of_mode =
                |mode: u32| Attributes { mode: Some(mode & 0o7777), ..Attributes::default() };
            append(match making {
                Making::Directory(mode) => {
                    Change::Mkdir { parent, name, attributes: of_mode(*mode) }
                }
                Making::Symlink(target) => {
                    Change::Symlink { parent, name, target, attributes: Attributes::default() }
                }
                Making::Special(mode, device) => {
                    let attributes = of_mode(*mode);
                    match device_of(*mode, *device) {
                        Some(device) => {
                            let file_type = mode & FILE_TYPE;
                            Change::Mknod { parent, name, file_type, device, attributes }
                        }
                        None => Change::Create { parent, name, verifier: [0; 8], attributes },
                    }
                }
            });
        };
        let made = self.change_directory(
            &directory,
            |made: &Made| &made.directory,
            || {
                self.recorded(asker, &directory, &path, &describe, |nfs| {
                    let handle = &directory.handle();
                    match making {
                        Making::Directory(mode) => {
                            nfs.mkdir(handle, name, &Settings::mode(mode & 0o7777))
                        }
                        Making::Symlink(target) => {
                            nfs.symlink(handle, name, target, &Settings::default())
                        }
                        Making::Special(mode, device) => {
                            let settings = Settings::mode(mode & 0o7777).0;
                            match special(*mode, *device, settings) {
                                Some(what) => nfs.mknod(handle, name, &what),
                                None => nfs.create(handle, name, &CreateHow3::Guarded(settings)),
                            }
                        }
                    }
                })
            },
        );
        self.enter_made(asker, &directory, name, made?, asking)
    }

    /// Makes a file, or finds it unless `is_exclusive`.
    pub(super) fn create_file(
        &self,
        asker: &Asker,
        directory: &Arc<Node>,
        name: &[u8],
        mode: u32,
        (is_exclusive, truncates): (bool, bool),
    ) -> Outcome<Arc<Node>> {
        let asking = directory.ask();
        let settings =
            Settings::mode(mode & 0o7777).with(|set| set.size = truncates.then_some(0)).0;
        if is_exclusive {
            return self.create_exclusively(asker, directory, name, mode);
        }
        if self.is_kept() {
            // A record says what was made here, and a file that was there was not.
            return match self.create_on_server(asker, directory, name, mode, [0; 8], &guarded(mode))
            {
                Ok(made) => self.enter_made(asker, directory, name, made, asking),
                Err(error) if error.status() == Some(NfsStat3::Exist) => {
                    self.find_instead(asker, directory, name, truncates)
                }
                Err(error) => Err(error.into()),
            };
        }
        let how = CreateHow3::Unchecked(settings);
        let made = match self.create_on_server(asker, directory, name, mode, [0; 8], &how) {
            Ok(made) => made,
            // NFSv4 makes a file by opening it to read and to write. Another host may have made it meanwhile, and allow
            // less; then it is opened for what is asked, as a file that is there.
            Err(error) if matches!(error.status(), Some(NfsStat3::Acces | NfsStat3::Perm)) => {
                return match self.find_instead(asker, directory, name, truncates) {
                    Err(Errno::ESTALE) => Err(error.into()),
                    found => found,
                };
            }
            Err(error) => return Err(error.into()),
        };
        let node = self.enter_made(asker, directory, name, made, asking)?;
        if truncates {
            // Another name of the file may have data that is not written.
            let cut = self.write_back.change(&node, asker.patience, Some(0), || Ok(()));
            if let Err(error) = cut {
                self.nodes.forget(node.number, 1);
                return Err(error);
            }
        }
        Ok(node)
    }

    /// One CREATE.
    fn create_on_server(
        &self,
        asker: &Asker,
        directory: &Arc<Node>,
        name: &[u8],
        mode: u32,
        verifier: [u8; 8],
        how: &CreateHow3,
    ) -> Result<Made, ClientError> {
        let path = self.path_of(directory, name);
        let attributes = Attributes { mode: Some(mode & 0o7777), ..Attributes::default() };
        let describe = |append: &mut dyn FnMut(Change<'_>)| {
            let parent = directory.handle();
            let parent = parent.as_bytes();
            append(Change::Create { parent, name, verifier, attributes });
        };
        self.change_directory(
            directory,
            |made: &Made| &made.directory,
            || {
                self.recorded(asker, directory, &path, &describe, |nfs| {
                    nfs.create(&directory.handle(), name, how)
                })
            },
        )
    }

    /// A file that was to be made was there already.
    fn find_instead(
        &self,
        asker: &Asker,
        directory: &Node,
        name: &[u8],
        truncates: bool,
    ) -> Outcome<Arc<Node>> {
        directory.forget_name(name);
        let node = match self.lookup(asker, directory.number, name) {
            Ok(node) if node.file_type == FileType::Regular => node,
            Ok(node) => {
                self.nodes.forget(node.number, 1);
                return Err(Errno::ESTALE);
            }
            // Others have changed the name meanwhile: the kernel looks again.
            Err(_) => return Err(Errno::ESTALE),
        };
        if truncates {
            let size = Some(0);
            let cut =
                self.setattr(asker, node.number, Changes { size, ..Changes::default() }, None);
            if let Err(error) = cut {
                self.nodes.forget(node.number, 1);
                return Err(error);
            }
        }
        Ok(node)
    }

    fn create_exclusively(
        &self,
        asker: &Asker,
        directory: &Arc<Node>,
        name: &[u8],
        mode: u32,
    ) -> Outcome<Arc<Node>> {
        let asking = directory.ask();
        let mut verifier = [0; 8];
        steadfast_sys::process::random_bytes(&mut verifier).map_err(|_| Errno::EIO)?;
        // None has the one that means none.
        verifier[0] |= 1;
        let how = CreateHow3::Exclusive(verifier);
        let made = match self.create_on_server(asker, directory, name, mode, verifier, &how) {
            Err(error) if error.status() == Some(NfsStat3::NotSupp) => {
                let made =
                    self.create_on_server(asker, directory, name, mode, [0; 8], &guarded(mode))?;
                return self.enter_made(asker, directory, name, made, asking);
            }
            made => made?,
        };
        let node = self.enter_made(asker, directory, name, made, asking)?;
        // The server may keep the verifier in the times (RFC 1813 §3.3.8).
        let settings = Settings::mode(mode & 0o7777).with(|set| {
            set.atime = SetTime3::SetToServerTime;
            set.mtime = SetTime3::SetToServerTime;
        });
        let now = Some(SetTime::OfServer);
        let mode = Some(mode & 0o7777);
        let attributes = Attributes { mode, accessed: now, modified: now, ..Attributes::default() };
        let path = self.path_of(directory, name);
        let describe = |append: &mut dyn FnMut(Change<'_>)| {
            append(Change::SetAttr { object: node.handle().as_bytes(), attributes });
        };
        let begun = node.begin_change();
        let set: Result<Wcc, ClientError> = self.recorded(asker, &node, &path, &describe, |nfs| {
            nfs.setattr(&node.handle(), &settings, None)
        });
        node.end_change(begun, set.as_ref().ok(), &self.options.cache_times);
        if let Err(error) = set {
            self.nodes.forget(node.number, 1);
            return Err(error.into());
        }
        Ok(node)
    }

    pub(crate) fn unlink(&self, asker: &Asker, parent: u64, name: &[u8]) -> Outcome<()> {
        let directory = self.node(parent)?;
        let node = self.victim(asker, &directory, name)?;
        if let Some(node) = &node
            && node.is_open()
            && !node.is_hidden()
        {
            return self.hide(asker, &directory, name, node);
        }
        let removed = self.remove(asker, &directory, name, node.as_deref());
        let is_gone = removed.as_ref().is_err_and(|error| error.status() == Some(NfsStat3::NoEnt));
        if let Err(error) = &removed
            && !is_gone
        {
            return Err(error.into());
        }
        directory.forget_name(name);
        if let Some(node) = node {
            // Others may have given the file another name, unless the server tells of the removal.
            let is_told = removed.as_ref().is_ok_and(|wcc| *wcc != Wcc::default());
            let had_one_name = node.attributes().nlink <= 1;
            if had_one_name && (is_told || self.refresh(asker, &node) == Err(Errno::ESTALE)) {
                self.write_back.forget_removed(&node);
            }
            node.expire();
        }
        removed.map(drop).map_err(Errno::from)
    }

    /// One REMOVE.
    fn remove(
        &self,
        asker: &Asker,
        directory: &Arc<Node>,
        name: &[u8],
        node: Option<&Node>,
    ) -> Result<Wcc, ClientError> {
        let path = self.path_of(directory, name);
        let describe = |append: &mut dyn FnMut(Change<'_>)| {
            let (parent, object) = (directory.handle(), node.map(Node::handle));
            let (parent, object) = (parent.as_bytes(), bytes_of(object.as_deref()));
            append(Change::Remove { parent, name, object });
        };
        self.change_directory(
            directory,
            |wcc| wcc,
            || {
                self.recorded(asker, directory, &path, &describe, |nfs| {
                    nfs.remove(&directory.handle(), name)
                })
            },
        )
    }

    /// What a name loses, if it may be open, or a record names it: else that need not be known.
    fn victim(&self, asker: &Asker, directory: &Node, name: &[u8]) -> Outcome<Option<Arc<Node>>> {
        if self.files.read().is_empty() && !self.is_kept() {
            let number = directory.name(name);
            return Ok(number.and_then(|number| self.nodes.by_number(number)));
        }
        self.find(asker, directory, name)
    }

    /// Removes the name of an open file: it gets another one until it is closed, since a server of
    /// NFSv3 does not know what is open.
    fn hide(&self, asker: &Asker, directory: &Arc<Node>, name: &[u8], node: &Node) -> Outcome<()> {
        let hidden = self.set_aside(asker, directory, name, node)?;
        self.keep_hidden(node, &hidden);
        Ok(())
    }

    /// Gives a file another name; it is not removed when the file is closed before [`Self::keep_hidden`].
    fn set_aside(
        &self,
        asker: &Asker,
        directory: &Arc<Node>,
        name: &[u8],
        node: &Node,
    ) -> Outcome<Hidden> {
        let mut random = [0; 4];
        steadfast_sys::process::random_bytes(&mut random).map_err(|_| Errno::EIO)?;
        let fileid = node.attributes().fileid;
        let hidden = format!(".nfs{fileid:016x}{:08x}", u32::from_be_bytes(random)).into_bytes();
        self.rename_on_server(asker, (directory, name), (directory, &hidden), (Some(node), None))?;
        directory.forget_name(name);
        node.expire();
        Ok(Hidden {
            directory: Arc::clone(directory),
            name: hidden,
            file: node.number,
            identity: asker.identity.clone(),
        })
    }

    /// A file that was set aside is removed once it is closed.
    fn keep_hidden(&self, node: &Node, hidden: &Hidden) {
        if !node.hide(hidden.clone()) {
            // It was closed meanwhile.
            self.remove_hidden(hidden);
        }
    }

    /// Gives a file that was set aside its name back, since what was to replace it has not; or keeps
    /// it hidden, if it was replaced nevertheless. By LINK, which replaces nothing.
    fn take_back(
        &self,
        asker: &Asker,
        directory: &Arc<Node>,
        name: &[u8],
        node: &Arc<Node>,
        hidden: &Hidden,
    ) {
        // Whoever asked may have been killed.
        let patience = Patience { pid: 0, until: Some(Instant::now() + TAKING_BACK) };
        let asker = Asker { identity: asker.identity.clone(), patience };
        let linked = self.link_on_server(&asker, node, directory, name);
        node.expire();
        match linked.map_err(|error| (error.status(), error)) {
            Ok(_) => self.remove_hidden(hidden),
            Err((Some(NfsStat3::Exist), _)) => self.keep_hidden(node, hidden),
            Err((Some(NfsStat3::NotSupp | NfsStat3::MLink), _))
                if self
                    .rename_on_server(
                        &asker,
                        (directory, &hidden.name),
                        (directory, name),
                        (Some(node), None),
                    )
                    .is_ok() => {}
            Err((_, error)) => {
                let kept = String::from_utf8_lossy(&hidden.name).into_owned();
                let name = String::from_utf8_lossy(name).into_owned();
                tracing::error!(name, kept, %error, "a file that could not be replaced has another name now");
            }
        }
    }

    /// Removes what nobody has open any more.
    pub(super) fn remove_hidden(&self, hidden: &Hidden) {
        self.remove_hidden_within(hidden, Patience::default());
    }

    /// As [`Volume::remove_hidden`], of a file that has lost its last name with that, unless it has others.
    pub(super) fn remove_closed(&self, hidden: &Hidden, patience: Patience) {
        let node = self.nodes.by_number(hidden.file);
        let node = node.filter(|node| node.attributes().nlink <= 1);
        self.remove_hidden_within(hidden, patience);
        if let Some(node) = node {
            self.write_back.forget_removed(&node);
        }
    }

    fn remove_hidden_within(&self, hidden: &Hidden, patience: Patience) {
        let asker = Asker { identity: hidden.identity.clone(), patience };
        let node = self.nodes.by_number(hidden.file);
        let outcome = self.remove(&asker, &hidden.directory, &hidden.name, node.as_deref());
        // It may have other names, and has one link less.
        if let Some(node) = node {
            node.expire();
        }
        if let Err(error) = outcome {
            let name = String::from_utf8_lossy(&hidden.name).into_owned();
            tracing::warn!(name, %error, "a removed file that was open is left on the server");
        }
    }

    pub(crate) fn rmdir(&self, asker: &Asker, parent: u64, name: &[u8]) -> Outcome<()> {
        let directory = self.node(parent)?;
        self.await_removals(asker)?;
        let path = self.path_of(&directory, name);
        let removed = if self.is_kept() { self.find(asker, &directory, name)? } else { None };
        let describe = |append: &mut dyn FnMut(Change<'_>)| {
            let (parent, object) = (directory.handle(), removed.as_deref().map(Node::handle));
            let (parent, object) = (parent.as_bytes(), bytes_of(object.as_deref()));
            append(Change::Rmdir { parent, name, object });
        };
        self.change_directory(
            &directory,
            |wcc| wcc,
            || {
                self.recorded(asker, &directory, &path, &describe, |nfs| {
                    nfs.rmdir(&directory.handle(), name)
                })
            },
        )?;
        directory.forget_name(name);
        Ok(())
    }

    pub(crate) fn rename(
        &self,
        asker: &Asker,
        (from, name): (u64, &[u8]),
        (to, new_name): (u64, &[u8]),
    ) -> Outcome<()> {
        let (from, to) = (self.node(from)?, self.node(to)?);
        let replaced = self.victim(asker, &to, new_name)?;
        let asking = to.ask();
        // A repetition is known by the object that has the new name. Looked for first: what is set aside has to come
        // back whatever fails afterwards.
        let moved = self.find(asker, &from, name)?;
        let mut aside = None;
        if let Some(node) = &replaced
            && !node.is_directory()
            && node.is_open()
            && !node.is_hidden()
        {
            // Two names of one file: the server does nothing then, and nothing is lost.
            if moved.as_ref().is_none_or(|moved| moved.handle() != node.handle()) {
                aside = Some((node, self.set_aside(asker, &to, new_name, node)?));
            }
        }
        let gone = replaced.as_deref().filter(|_| aside.is_none());
        let objects = (moved.as_deref(), gone);
        let renamed = self.rename_on_server(asker, (&from, name), (&to, new_name), objects);
        let was_set_aside = aside.is_some();
        match (aside, renamed.is_ok()) {
            (Some((node, hidden)), true) => self.keep_hidden(node, &hidden),
            (Some((node, hidden)), false) => self.take_back(asker, &to, new_name, node, &hidden),
            (None, _) => {}
        }
        renamed?;
        from.forget_name(name);
        to.forget_name(new_name);
        if let Some(node) = moved {
            to.remember_made(new_name, node.number, asking);
            node.note_name(to.number, new_name);
            node.expire();
        }
        if let Some(node) = replaced {
            // One that is open has another name still, until it is closed.
            if node.attributes().nlink <= 1 && !was_set_aside {
                self.write_back.forget_removed(&node);
            }
            node.expire();
        }
        Ok(())
    }

    /// One RENAME. The objects are what is renamed, and what that replaces, as far as they are known.
    fn rename_on_server(
        &self,
        asker: &Asker,
        (from, name): (&Arc<Node>, &[u8]),
        (to, new_name): (&Arc<Node>, &[u8]),
        (moved, replaced): (Option<&Node>, Option<&Node>),
    ) -> Outcome<()> {
        let times = &self.options.cache_times;
        let is_same = from.number == to.number;
        let begun = from.begin_change();
        let begun_there = (!is_same).then(|| to.begin_change());
        let (path, to_path) = (self.path_of(from, name), self.path_of(to, new_name));
        let describe = |append: &mut dyn FnMut(Change<'_>)| {
            let (from, to) = (from.handle(), to.handle());
            let (object, gone) = (moved.map(Node::handle), replaced.map(Node::handle));
            append(Change::Rename {
                from_parent: from.as_bytes(),
                from_name: name,
                to_parent: to.as_bytes(),
                to_name: new_name,
                to_path: &to_path,
                object: bytes_of(object.as_deref()),
                replaced: bytes_of(gone.as_deref()),
            });
        };
        let outcome: Result<Renamed, ClientError> =
            self.recorded(asker, from, &path, &describe, |nfs| {
                nfs.rename(&from.handle(), name, &to.handle(), new_name)
            });
        let (first, second) = match &outcome {
            Ok(renamed) => (Some(&renamed.from), Some(&renamed.to)),
            Err(ClientError::Failed(failure)) => (Some(&failure.wcc), Some(&failure.second_wcc)),
            Err(_) => (None, None),
        };
        from.end_change(begun, first, times);
        if let Some(begun) = begun_there {
            to.end_change(begun, second, times);
        }
        outcome.map(drop).map_err(Errno::from)
    }

    /// One LINK.
    fn link_on_server(
        &self,
        asker: &Asker,
        node: &Arc<Node>,
        directory: &Arc<Node>,
        name: &[u8],
    ) -> Result<Linked, ClientError> {
        let path = self.path_of(directory, name);
        let describe = |append: &mut dyn FnMut(Change<'_>)| {
            let (file, parent) = (node.handle(), directory.handle());
            append(Change::Link { file: file.as_bytes(), parent: parent.as_bytes(), name });
        };
        self.change_directory(
            directory,
            |linked: &Linked| &linked.directory,
            || {
                self.recorded(asker, directory, &path, &describe, |nfs| {
                    nfs.link(&node.handle(), &directory.handle(), name)
                })
            },
        )
    }

    pub(crate) fn link(
        &self,
        asker: &Asker,
        number: u64,
        parent: u64,
        name: &[u8],
    ) -> Outcome<Arc<Node>> {
        let (node, directory) = (self.node(number)?, self.node(parent)?);
        let asking = directory.ask();
        let begun = node.begin_change();
        let linked = self.link_on_server(asker, &node, &directory, name);
        let after = linked.as_ref().ok().and_then(|linked| linked.attributes.as_ref());
        node.settle_change(begun, after, &self.options.cache_times);
        linked?;
        let node = self.nodes.enter_again(number).ok_or(Errno::ESTALE)?;
        directory.remember_made(name, number, asking);
        Ok(node)
    }
}

fn guarded(mode: u32) -> CreateHow3 {
    CreateHow3::Guarded(Settings::mode(mode & 0o7777).0)
}

fn bytes_of(handle: Option<&FileHandle>) -> &[u8] {
    handle.map_or(&[], FileHandle::as_bytes)
}

/// Major and minor number, as MKNOD has them; `None` for a regular file.
fn device_of(mode: u32, device: u32) -> Option<[u32; 2]> {
    let SpecData3 { specdata1, specdata2 } = spec(device);
    let is_special = special(mode, device, Settings::default().0).is_some();
    is_special.then_some([specdata1, specdata2])
}

/// The kernel packs them so (`new_encode_dev`).
fn spec(device: u32) -> SpecData3 {
    SpecData3 {
        specdata1: (device & 0xfff00) >> 8,
        specdata2: (device & 0xff) | ((device >> 12) & 0xfff00),
    }
}

/// What MKNOD makes; `None` for a regular file, which CREATE makes.
fn special(mode: u32, device: u32, settings: steadfast_client::Sattr3) -> Option<MknodData3> {
    let of_device = DeviceData3 { dev_attributes: settings, spec: spec(device) };
    match mode & FILE_TYPE {
        0o020_000 => Some(MknodData3::Chr(of_device)),
        0o060_000 => Some(MknodData3::Blk(of_device)),
        0o010_000 => Some(MknodData3::Fifo(settings)),
        0o140_000 => Some(MknodData3::Sock(settings)),
        _ => None,
    }
}
