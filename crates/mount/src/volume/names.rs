//! Names: look-up, making, removing and renaming.

use std::sync::Arc;
use std::time::{Duration, Instant};

use steadfast_client::arguments::{Settings, access};
use steadfast_client::{
    ClientError, CreateHow3, DeviceData3, Made, MknodData3, NfsStat3, SetTime3, SpecData3,
};

use super::{Asker, Outcome, Volume, of_node};
use crate::errors::Errno;
use crate::node::{Asking, Hidden, Node};
use crate::transport::Patience;

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
        let found = self.call(asker, |nfs| nfs.lookup(&directory.handle, name));
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
        match self.call(asker, |nfs| nfs.lookup(&directory.handle, name)) {
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
            let found = self.call(asker, |nfs| nfs.lookup(&directory.handle, name))?;
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
        let handle = &directory.handle;
        let asking = directory.ask();
        let made = match making {
            Making::Directory(mode) => {
                let settings = Settings::mode(mode & 0o7777);
                self.change_directory(
                    &directory,
                    |made: &Made| &made.directory,
                    || self.call(asker, |nfs| nfs.mkdir(handle, name, &settings)),
                )
            }
            Making::Symlink(target) => self.change_directory(
                &directory,
                |made: &Made| &made.directory,
                || self.call(asker, |nfs| nfs.symlink(handle, name, target, &Settings::default())),
            ),
            Making::Special(mode, device) => {
                let settings = Settings::mode(mode & 0o7777).0;
                let what = special(*mode, *device, settings);
                self.change_directory(
                    &directory,
                    |made: &Made| &made.directory,
                    || {
                        self.call(asker, |nfs| match &what {
                            Some(what) => nfs.mknod(handle, name, what),
                            None => nfs.create(handle, name, &CreateHow3::Guarded(settings)),
                        })
                    },
                )
            }
        };
        self.enter_made(asker, &directory, name, made?, asking)
    }

    /// Makes a file, or finds it unless `is_exclusive`.
    pub(super) fn create_file(
        &self,
        asker: &Asker,
        directory: &Node,
        name: &[u8],
        mode: u32,
        (is_exclusive, truncates): (bool, bool),
    ) -> Outcome<Arc<Node>> {
        let asking = directory.ask();
        let settings =
            Settings::mode(mode & 0o7777).with(|set| set.size = truncates.then_some(0)).0;
        let create = |how: &CreateHow3| {
            self.change_directory(
                directory,
                |made: &Made| &made.directory,
                || self.call(asker, |nfs| nfs.create(&directory.handle, name, how)),
            )
        };
        if !is_exclusive {
            let made = create(&CreateHow3::Unchecked(settings))?;
            let node = self.enter_made(asker, directory, name, made, asking)?;
            if truncates {
                // Another name of the file may have data that is not written.
                let cut = self.write_back.change(&node, asker.patience, Some(0), || Ok(()));
                if let Err(error) = cut {
                    self.nodes.forget(node.number, 1);
                    return Err(error);
                }
            }
            return Ok(node);
        }
        let mut verifier = [0; 8];
        steadfast_sys::process::random_bytes(&mut verifier).map_err(|_| Errno::EIO)?;
        let made = match create(&CreateHow3::Exclusive(verifier)) {
            Err(error) if error.status() == Some(NfsStat3::NotSupp) => {
                let made = create(&CreateHow3::Guarded(settings))?;
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
        let begun = node.begin_change();
        let set = self.call(asker, |nfs| nfs.setattr(&node.handle, &settings, None));
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
        self.change_directory(
            &directory,
            |wcc| wcc,
            || self.call(asker, |nfs| nfs.remove(&directory.handle, name)),
        )?;
        directory.forget_name(name);
        if let Some(node) = node {
            if node.attributes().nlink <= 1 {
                node.data.note_removed();
            }
            node.expire();
        }
        Ok(())
    }

    /// What a name loses, if it may be open: else that need not be known.
    fn victim(&self, asker: &Asker, directory: &Node, name: &[u8]) -> Outcome<Option<Arc<Node>>> {
        if self.files.read().is_empty() {
            let number = directory.name(name);
            return Ok(number.and_then(|number| self.nodes.by_number(number)));
        }
        self.find(asker, directory, name)
    }

    /// Removes the name of an open file: it gets another one until it is closed, since a server of
    /// NFSv3 does not know what is open.
    fn hide(&self, asker: &Asker, directory: &Node, name: &[u8], node: &Node) -> Outcome<()> {
        let hidden = self.set_aside(asker, directory, name, node)?;
        self.keep_hidden(node, &hidden);
        Ok(())
    }

    /// Gives a file another name; it is not removed when the file is closed before [`Self::keep_hidden`].
    fn set_aside(
        &self,
        asker: &Asker,
        directory: &Node,
        name: &[u8],
        node: &Node,
    ) -> Outcome<Hidden> {
        let mut random = [0; 4];
        steadfast_sys::process::random_bytes(&mut random).map_err(|_| Errno::EIO)?;
        let fileid = node.attributes().fileid;
        let hidden = format!(".nfs{fileid:016x}{:08x}", u32::from_be_bytes(random)).into_bytes();
        self.rename_on_server(asker, directory, name, directory, &hidden)?;
        directory.forget_name(name);
        node.expire();
        Ok(Hidden {
            directory: directory.handle.clone(),
            name: hidden,
            file: node.handle.clone(),
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
        directory: &Node,
        name: &[u8],
        node: &Node,
        hidden: &Hidden,
    ) {
        // Whoever asked may have been killed.
        let patience = Patience { pid: 0, until: Some(Instant::now() + TAKING_BACK) };
        let asker = Asker { identity: asker.identity.clone(), patience };
        let linked = self.change_directory(
            directory,
            |linked: &steadfast_client::Linked| &linked.directory,
            || self.call(&asker, |nfs| nfs.link(&node.handle, &directory.handle, name)),
        );
        node.expire();
        match linked.map_err(|error| (error.status(), error)) {
            Ok(_) => self.remove_hidden(hidden),
            Err((Some(NfsStat3::Exist), _)) => self.keep_hidden(node, hidden),
            Err((Some(NfsStat3::NotSupp | NfsStat3::MLink), _))
                if self
                    .rename_on_server(&asker, directory, &hidden.name, directory, name)
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
        let asker = Asker { identity: hidden.identity.clone(), patience: Patience::default() };
        let remove = || self.call(&asker, |nfs| nfs.remove(&hidden.directory, &hidden.name));
        let outcome = match self.nodes.by_handle(&hidden.directory) {
            Some(directory) => self.change_directory(&directory, |wcc| wcc, remove),
            None => remove(),
        };
        // It may have other names, and has one link less.
        if let Some(node) = self.nodes.by_handle(&hidden.file) {
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
        self.change_directory(
            &directory,
            |wcc| wcc,
            || self.call(asker, |nfs| nfs.rmdir(&directory.handle, name)),
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
        let mut aside = None;
        if let Some(node) = &replaced
            && !node.is_directory()
            && node.is_open()
            && !node.is_hidden()
        {
            // Two names of one file: the server does nothing then, and nothing is lost.
            let moved = self.find(asker, &from, name)?;
            if moved.is_none_or(|moved| moved.handle != node.handle) {
                aside = Some((node, self.set_aside(asker, &to, new_name, node)?));
            }
        }
        let renamed = self.rename_on_server(asker, &from, name, &to, new_name);
        match (aside, renamed.is_ok()) {
            (Some((node, hidden)), true) => self.keep_hidden(node, &hidden),
            (Some((node, hidden)), false) => self.take_back(asker, &to, new_name, node, &hidden),
            (None, _) => {}
        }
        renamed?;
        let number = from.name(name);
        from.forget_name(name);
        to.forget_name(new_name);
        if let Some(number) = number {
            to.remember_made(new_name, number, asking);
            if let Some(node) = self.nodes.by_number(number) {
                node.note_name(to.number, new_name);
                node.expire();
            }
        }
        if let Some(node) = replaced {
            if node.attributes().nlink <= 1 {
                node.data.note_removed();
            }
            node.expire();
        }
        Ok(())
    }

    fn rename_on_server(
        &self,
        asker: &Asker,
        from: &Node,
        name: &[u8],
        to: &Node,
        new_name: &[u8],
    ) -> Outcome<()> {
        let times = &self.options.cache_times;
        let is_same = from.handle == to.handle;
        let begun = from.begin_change();
        let begun_there = (!is_same).then(|| to.begin_change());
        let rename = |nfs: &mut steadfast_client::Nfs3Client<_>| {
            nfs.rename(&from.handle, name, &to.handle, new_name)
        };
        let outcome = self.call(asker, rename);
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
        let linked = self.change_directory(
            &directory,
            |linked: &steadfast_client::Linked| &linked.directory,
            || self.call(asker, |nfs| nfs.link(&node.handle, &directory.handle, name)),
        );
        let after = linked.as_ref().ok().and_then(|linked| linked.attributes.as_ref());
        node.settle_change(begun, after, &self.options.cache_times);
        linked?;
        let node = self.nodes.enter_again(number).ok_or(Errno::ESTALE)?;
        directory.remember_made(name, number, asking);
        Ok(node)
    }
}

/// What MKNOD makes; `None` for a regular file, which CREATE makes.
fn special(mode: u32, device: u32, settings: steadfast_client::Sattr3) -> Option<MknodData3> {
    // The kernel packs them so (`new_encode_dev`).
    let spec = SpecData3 {
        specdata1: (device & 0xfff00) >> 8,
        specdata2: (device & 0xff) | ((device >> 12) & 0xfff00),
    };
    let of_device = DeviceData3 { dev_attributes: settings, spec };
    match mode & 0o170_000 {
        0o020_000 => Some(MknodData3::Chr(of_device)),
        0o060_000 => Some(MknodData3::Blk(of_device)),
        0o010_000 => Some(MknodData3::Fifo(settings)),
        0o140_000 => Some(MknodData3::Sock(settings)),
        _ => None,
    }
}
