//! Listing directories. A place in a listing is the server's cookie, which stays valid.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use steadfast_client::arguments::access;
use steadfast_client::{Attributes, ClientError, Entry, FileType, NfsStat3, Time};

use super::{Asker, Outcome, PROMPT, Volume, attributes_of, fuse_attributes, kind};
use crate::errors::Errno;
use crate::node::{Asking, Node, ROOT};

/// A directory that is open.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    node: Arc<Node>,
    place: Mutex<Place>,
}

/// What was read ahead: the entries after a cookie.
#[derive(Debug, Default)]
struct Place {
    cookie: u64,
    verifier: [u8; 8],
    entries: VecDeque<Entry>,
    is_over: bool,
    asking: Option<Asking>,
}

/// An entry for the kernel.
pub(crate) enum Listed {
    /// With a number only.
    Plain(u64, fuser::FileType),
    /// With all attributes; the kernel takes a reference unless it is `.` or `..`.
    Full(fuser::FileAttr),
}

/// What the kernel wants to know of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// Its number and type.
    Number,
    /// It is `.` or `..`, which the kernel knows.
    Dots,
    /// All of it.
    Node,
}

impl Volume {
    pub(crate) fn opendir(&self, asker: &Asker, number: u64) -> Outcome<u64> {
        let node = self.node(number)?;
        if number == ROOT && self.server.link.is_silent_for(PROMPT) {
            // As df does. Who reads it asks the server, which decides.
            return Ok(self.opened_directory(node));
        }
        let mut asker = asker.clone();
        if number == ROOT {
            asker.patience.until = Some(Instant::now() + PROMPT);
        }
        let asked = self.await_removals(&asker);
        // Close-to-open for directories too.
        let rights = access::READ | access::LOOKUP;
        match asked.and_then(|()| self.told_rights(&asker, &node, rights)) {
            Ok(granted) if granted & access::READ == 0 => Err(Errno::EACCES),
            Ok(_) => Ok(self.opened_directory(node)),
            // The mount's own patience may be without end: who reads the directory finds out.
            Err(ClientError::TimedOut { .. } | ClientError::Closed) if number == ROOT => {
                Ok(self.opened_directory(node))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn opened_directory(&self, node: Arc<Node>) -> u64 {
        let file = self.next_open();
        let open = OpenDirectory { node, place: Mutex::default() };
        self.directories.write().insert(file, Arc::new(open));
        file
    }

    pub(crate) fn releasedir(&self, file: u64) {
        self.directories.write().remove(&file);
    }

    /// Gives the entries after a cookie to `add` (cookie, name, what it is) until it says that it is
    /// full, or there are no more.
    pub(crate) fn readdir(
        &self,
        asker: &Asker,
        file: u64,
        cookie: u64,
        plus: bool,
        mut add: impl FnMut(u64, &[u8], &Listed) -> bool,
    ) -> Outcome<()> {
        let open = self.directories.read().get(&file).cloned().ok_or(Errno::EBADF)?;
        let mut place = open.place.lock();
        if place.cookie != cookie || cookie == 0 {
            let verifier = if cookie == 0 { [0; 8] } else { place.verifier };
            *place = Place { cookie, verifier, ..Place::default() };
        }
        let mut given = 0;
        loop {
            if place.entries.is_empty() {
                // What the kernel has got already is not to wait for the server.
                if place.is_over || given > 0 {
                    return Ok(());
                }
                self.fetch(asker, &open.node, &mut place, plus)?;
                continue;
            }
            let Some(entry) = place.entries.front() else { continue };
            let is_dots = matches!(entry.name.as_slice(), b"." | b"..");
            let asking = place.asking.unwrap_or_else(|| open.node.ask());
            let what = match (plus, is_dots) {
                (false, _) => Wanted::Number,
                (true, true) => Wanted::Dots,
                (true, false) => Wanted::Node,
            };
            let (listed, entered) = self.listed(asker, &open.node, entry, asking, what);
            let is_full = add(entry.cookie, &entry.name, &listed);
            if is_full {
                if let Some(number) = entered {
                    self.nodes.forget(number, 1);
                }
                return Ok(());
            }
            given += 1;
            place.cookie = entry.cookie;
            place.entries.pop_front();
        }
    }

    fn listed(
        &self,
        asker: &Asker,
        directory: &Node,
        entry: &Entry,
        asking: Asking,
        wanted: Wanted,
    ) -> (Listed, Option<u64>) {
        if wanted == Wanted::Number {
            let known = entry.attributes.as_ref().map(|attributes| attributes.file_type);
            let file_type = known.unwrap_or(FileType::Regular);
            return (Listed::Plain(entry.fileid, kind(file_type)), None);
        }
        if wanted == Wanted::Dots {
            // `.` and `..`: the kernel wants the number alone.
            let mut attributes = unknown(entry.fileid);
            attributes.file_type = FileType::Directory;
            return (Listed::Full(fuse_attributes(entry.fileid, &attributes, false)), None);
        }
        let node = match (&entry.handle, &entry.attributes) {
            (Some(handle), Some(attributes)) => {
                let node = self.nodes.enter(handle, attributes, asking.sent);
                directory.remember(&entry.name, node.number, asking);
                Some(node)
            }
            _ => self.lookup(asker, directory.number, &entry.name).ok(),
        };
        if let Some(node) = node {
            (Listed::Full(attributes_of(&node)), Some(node.number))
        } else {
            // The name may be read and not looked up. The kernel takes a reference to a number
            // that means nothing.
            let number = self.nodes.number_of_unknown();
            (Listed::Full(fuse_attributes(number, &unknown(number), false)), None)
        }
    }

    fn fetch(&self, asker: &Asker, node: &Node, place: &mut Place, plus: bool) -> Outcome<()> {
        let bytes_max = self.listing_bytes;
        let asking = node.ask();
        let ask = |verifier: [u8; 8]| {
            self.call(asker, |nfs| {
                if plus {
                    let listed = nfs.readdirplus(
                        &node.handle(),
                        place.cookie,
                        verifier,
                        bytes_max,
                        bytes_max,
                    );
                    match listed {
                        Err(error) if error.status() == Some(NfsStat3::NotSupp) => {}
                        listed => return listed,
                    }
                }
                nfs.readdir(&node.handle(), place.cookie, verifier, bytes_max)
            })
        };
        let listing = match ask(place.verifier) {
            // The directory has changed; most servers' cookies outlive that.
            Err(error) if error.status() == Some(NfsStat3::BadCookie) => ask([0; 8])?,
            listing => listing?,
        };
        node.learn(listing.attributes.as_ref(), asking, &self.options.cache_times);
        let makes_progress = listing.entries.last().is_none_or(|last| last.cookie != place.cookie);
        if !listing.eof && (listing.entries.is_empty() || !makes_progress) {
            tracing::warn!(directory = node.number, "the server's listing does not go on");
            return Err(Errno::EIO);
        }
        place.verifier = listing.verifier;
        place.entries = listing.entries.into();
        place.is_over = listing.eof;
        place.asking = Some(asking);
        Ok(())
    }
}

/// Attributes of what nobody may know.
fn unknown(fileid: u64) -> Attributes {
    let time = Time::default();
    Attributes {
        file_type: FileType::Regular,
        mode: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        rdev: (0, 0),
        fsid: 0,
        fileid,
        atime: time,
        mtime: time,
        ctime: time,
    }
}
