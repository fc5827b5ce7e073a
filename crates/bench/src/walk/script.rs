//! What a virtual client does: walk the whole tree, again and again, as a program on an old or a
//! new client does.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;

use steadfast_client::{FileHandle, Procedure, arguments, procedure};
use steadfast_wire::nfs3::{Access3Ok, Fattr3, FileType3, Lookup3Ok, Readlink3Ok};
use steadfast_xdr::{Decode, Reader};

use super::tree::{Named, Place, Tree, link_target, named};
use super::{KINDS, Pattern, Walk, nfs4};
use crate::drive::{Script, Verdict};
use crate::error::BenchError;
use crate::nfs4::judging::Complaint as Complaint4;
use crate::records::Outbox;
use crate::replies::{self, Complaint, at_end, listing};
use crate::wire::Wire;

/// What a client does next; in this order for a directory, and for each name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    DirectoryGetattr,
    DirectoryAccess,
    List,
    /// Permission to look up, asked again for each name.
    NameAccess,
    /// Whether the directory is still the same, asked again for each name.
    NameDirectoryGetattr,
    Lookup,
    NameGetattr,
    Readlink,
}

impl Step {
    pub(super) fn procedure(self, pattern: Pattern) -> Procedure {
        match self {
            Self::DirectoryGetattr | Self::NameDirectoryGetattr | Self::NameGetattr => {
                procedure::GETATTR
            }
            Self::DirectoryAccess | Self::NameAccess => procedure::ACCESS,
            Self::List if pattern == Pattern::Plus => procedure::READDIRPLUS,
            Self::List => procedure::READDIR,
            Self::Lookup => procedure::LOOKUP,
            Self::Readlink => procedure::READLINK,
        }
    }
}

/// A name that was listed.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) name: Box<[u8]>,
    pub(super) named: Named,
    /// Of NFSv4: if the server told it.
    pub(super) fileid: Option<u64>,
    /// Known after LOOKUP or READDIRPLUS.
    pub(super) handle: Option<FileHandle>,
}

/// A directory that is being walked.
#[derive(Debug)]
pub(super) struct Frame {
    place: Place,
    pub(super) handle: FileHandle,
    /// Listed, and not yet looked at; the first is being looked at.
    pub(super) names: VecDeque<Found>,
    /// To be walked after the names.
    directories: Vec<(Place, FileHandle)>,
    pub(super) cookie: u64,
    pub(super) verifier: [u8; 8],
    is_end: bool,
    listed: usize,
}

impl Frame {
    fn new(place: Place, handle: FileHandle) -> Self {
        Self {
            place,
            handle,
            names: VecDeque::new(),
            directories: Vec::new(),
            cookie: 0,
            verifier: [0; 8],
            is_end: false,
            listed: 0,
        }
    }

    /// Takes note of a name that was listed.
    pub(super) fn note(&mut self, found: Found) {
        self.listed += 1;
        self.names.push_back(found);
    }

    /// The same of the end of one listing, which began behind this cookie.
    pub(super) fn note_end(
        &mut self,
        tree: &Tree,
        (before, verifier): (u64, [u8; 8]),
        is_end: bool,
    ) -> Result<(), String> {
        (self.verifier, self.is_end) = (verifier, is_end);
        if !is_end && self.cookie == before {
            return Err("a listing that does not go on".to_owned());
        }
        let (listed, made) = (self.listed, tree.shape.names_of(self.place));
        if is_end && listed != made {
            return Err(format!("a listing of {listed} names where {made} were made"));
        }
        Ok(())
    }
}

impl Found {
    /// Whether this is the number of another object.
    pub(super) fn is_other(&self, fileid: u64) -> bool {
        self.fileid.is_some_and(|listed| listed != fileid)
    }
}

#[derive(Debug)]
pub(super) struct Client {
    number: usize,
    pub(super) stack: Vec<Frame>,
    pub(super) step: Step,
    /// Names looked at in this walk.
    seen: usize,
    walks: u64,
}

/// A thread's script.
pub(crate) struct Walking {
    tree: Arc<Tree>,
    pattern: Pattern,
    listing_bytes: u32,
    wire: Wire,

    /// By lane: each client has one call in flight, clients that share a connection one each.
    clients: Vec<Client>,
    /// Inodes looked at, of all walks.
    pub(super) inodes: u64,
}

impl Walking {
    /// For the clients of these connections.
    pub(super) fn new(walk: &Walk, tree: &Arc<Tree>, connections: &Range<usize>) -> Self {
        let depth = walk.clients_of_connection;
        let client = |number| Client {
            number,
            stack: vec![Frame::new(Place::Root, tree.root.clone())],
            step: Step::DirectoryGetattr,
            seen: 0,
            walks: 0,
        };
        Self {
            tree: Arc::clone(tree),
            pattern: walk.pattern,
            listing_bytes: walk.listing_bytes,
            wire: Wire::new(&walk.target, walk.nfs, connections, depth, walk.listing_bytes),
            clients: (connections.start * depth..connections.end * depth).map(client).collect(),
            inodes: 0,
        }
    }

    /// Whole walks that have ended.
    pub(super) fn walks(&self) -> u64 {
        self.clients.iter().map(|client| client.walks).sum()
    }
}

/// A mistake in this program.
pub(super) fn lost() -> BenchError {
    BenchError::Usage("a virtual client has lost its way".to_owned())
}

fn takes_type(named: Named, file_type: FileType3) -> Result<(), Complaint> {
    let expected = match named {
        Named::Directory(_) => FileType3::Dir,
        Named::File => FileType3::Reg,
        Named::Symlink => FileType3::Lnk,
    };
    if file_type == expected { Ok(()) } else { Err("an object of another type than made".into()) }
}

impl Client {
    fn arguments(&self, pattern: Pattern, listing_bytes: u32) -> Result<Vec<u8>, BenchError> {
        let frame = self.stack.last().ok_or_else(lost)?;
        let found = || frame.names.front().ok_or_else(lost);
        let handle = || found().and_then(|found| found.handle.as_ref().ok_or_else(lost));
        Ok(match self.step {
            Step::DirectoryGetattr | Step::NameDirectoryGetattr => arguments::handle(&frame.handle),
            Step::DirectoryAccess | Step::NameAccess => {
                arguments::access(&frame.handle, arguments::access::ALL)
            }
            Step::List if pattern == Pattern::Plus => arguments::readdirplus(
                &frame.handle,
                frame.cookie,
                frame.verifier,
                listing_bytes,
                listing_bytes,
            ),
            Step::List => {
                arguments::readdir(&frame.handle, frame.cookie, frame.verifier, listing_bytes)
            }
            Step::Lookup => arguments::place(&frame.handle, &found()?.name),
            Step::NameGetattr | Step::Readlink => arguments::handle(handle()?),
        })
    }

    /// Judges the results of a call that succeeded.
    fn judge(
        &mut self,
        tree: &Tree,
        pattern: Pattern,
        r: &mut Reader<'_>,
    ) -> Result<(), Complaint> {
        let Some(frame) = self.stack.last_mut() else { return Ok(()) };
        match self.step {
            Step::DirectoryGetattr | Step::NameDirectoryGetattr => {
                if Fattr3::decode(r)?.file_type != FileType3::Dir {
                    return Err("a directory is none any more".into());
                }
            }
            Step::DirectoryAccess | Step::NameAccess => {
                if Access3Ok::decode(r)?.access & arguments::access::LOOKUP == 0 {
                    return Err("ACCESS denies to look up".into());
                }
            }
            Step::List => {
                let is_plus = pattern == Pattern::Plus;
                let before = frame.cookie;
                let (verifier, is_end) = listing(r, is_plus, |entry| {
                    frame.cookie = entry.cookie;
                    if entry.name == b"." || entry.name == b".." {
                        return Ok(());
                    }
                    let named = named(entry.name)
                        .ok_or_else(|| Complaint::from("a name that was never made"))?;
                    if let Some(attributes) = entry.name_attributes {
                        takes_type(named, attributes.file_type)?;
                    }
                    frame.note(Found {
                        name: entry.name.into(),
                        named,
                        fileid: Some(entry.fileid),
                        handle: entry.name_handle.map(|handle| FileHandle(handle.0.to_vec())),
                    });
                    Ok(())
                })?;
                frame.note_end(tree, (before, verifier), is_end).map_err(Complaint::Promise)?;
            }
            Step::Lookup => {
                let Lookup3Ok { object, obj_attributes, .. } = Decode::decode(r)?;
                if let Some(found) = frame.names.front_mut() {
                    if let Some(attributes) = obj_attributes {
                        takes_type(found.named, attributes.file_type)?;
                        if found.is_other(attributes.fileid) {
                            return Err("LOOKUP found another file than was listed".into());
                        }
                    }
                    found.handle = Some(FileHandle(object.0.to_vec()));
                }
            }
            Step::NameGetattr => {
                let attributes = Fattr3::decode(r)?;
                if let Some(found) = frame.names.front() {
                    takes_type(found.named, attributes.file_type)?;
                    if found.is_other(attributes.fileid) {
                        return Err("GETATTR tells of another file than was listed".into());
                    }
                }
            }
            Step::Readlink => {
                let target = Readlink3Ok::decode(r)?.data;
                if frame.names.front().is_some_and(|found| link_target(&found.name) != target) {
                    return Err("READLINK returned another target than was made".into());
                }
            }
        }
        at_end(r)
    }

    /// Goes on to the next step; true when a name was done with.
    fn advance(&mut self, tree: &Tree, pattern: Pattern) -> bool {
        let Some(frame) = self.stack.last_mut() else { return false };
        let symlink = frame.names.front().is_some_and(|found| found.named == Named::Symlink);
        let has_handle = frame.names.front().is_some_and(|found| found.handle.is_some());
        match (self.step, pattern) {
            (Step::DirectoryGetattr, _) => self.step = Step::DirectoryAccess,
            (Step::DirectoryAccess, _) => self.step = Step::List,
            (Step::NameAccess, Pattern::Redundant) => self.step = Step::NameDirectoryGetattr,
            (Step::NameAccess, Pattern::Plus) if has_handle => self.step = Step::NameGetattr,
            (Step::NameDirectoryGetattr | Step::NameAccess, _) => self.step = Step::Lookup,
            (Step::Lookup, _) => self.step = Step::NameGetattr,
            (Step::NameGetattr, _) if symlink => self.step = Step::Readlink,
            (Step::List, _) => self.next_name(tree),
            (Step::NameGetattr | Step::Readlink, _) => {
                if let Some(found) = frame.names.pop_front()
                    && let (Named::Directory(place), Some(handle)) = (found.named, found.handle)
                {
                    frame.directories.push((place, handle));
                }
                self.seen += 1;
                self.next_name(tree);
                return true;
            }
        }
        false
    }

    /// The next name of this listing, the next part of it, the next directory, or the whole walk
    /// again.
    fn next_name(&mut self, tree: &Tree) {
        loop {
            let Some(frame) = self.stack.last_mut() else {
                self.walks += u64::from(self.seen == tree.shape.inodes());
                self.seen = 0;
                self.stack.push(Frame::new(Place::Root, tree.root.clone()));
                self.step = Step::DirectoryGetattr;
                return;
            };
            if !frame.names.is_empty() {
                self.step = Step::NameAccess;
                return;
            }
            if !frame.is_end {
                self.step = Step::List;
                return;
            }
            // Clients are in different places, as they would be after a while.
            if frame.place == Place::Root && self.walks == 0 && frame.listed > 0 {
                let count = frame.directories.len().max(1);
                frame.directories.rotate_left(self.number % count);
                frame.listed = 0;
            }
            if let Some((place, handle)) = frame.directories.pop() {
                self.stack.push(Frame::new(place, handle));
                self.step = Step::DirectoryGetattr;
                return;
            }
            self.stack.pop();
        }
    }
}

impl Script for Walking {
    fn connected(&mut self, client: usize, stream: &TcpStream) -> Result<(), BenchError> {
        match &mut self.wire {
            Wire::V3(_) => Ok(()),
            Wire::V4(sessions) => sessions.connect(client, stream, |_| Ok(Vec::new())),
        }
    }

    fn finished(&mut self, client: usize, stream: &TcpStream) -> Result<(), BenchError> {
        match &mut self.wire {
            Wire::V3(_) => Ok(()),
            Wire::V4(sessions) => sessions.end(client, stream, Vec::new()),
        }
    }

    fn call(
        &mut self,
        lane: usize,
        xid: u32,
        out: &mut Outbox,
    ) -> Result<Option<usize>, BenchError> {
        let client = self.clients.get(lane).ok_or_else(lost)?;
        let procedure = client.step.procedure(self.pattern);
        match &self.wire {
            Wire::V3(writer) => {
                let arguments = client.arguments(self.pattern, self.listing_bytes)?;
                writer.append(out, xid, procedure, &arguments, &[]);
            }
            Wire::V4(sessions) => sessions.append(lane, xid, out, |start| {
                nfs4::request(client, start, self.pattern, self.listing_bytes)
            })?,
        }
        Ok(KINDS.iter().position(|(_, kind)| *kind == procedure.number))
    }

    fn reply(&mut self, lane: usize, message: &[u8]) -> Result<Verdict, BenchError> {
        let client = self.clients.get_mut(lane).ok_or_else(lost)?;
        let name = client.step.procedure(self.pattern).name;
        match &mut self.wire {
            Wire::V3(_) => {
                let mut r = replies::results(name, message)?;
                if !replies::succeeded(name, &mut r)? {
                    return Ok(Verdict::TryLater);
                }
                client
                    .judge(&self.tree, self.pattern, &mut r)
                    .map_err(|complaint| complaint.about(name))?;
            }
            Wire::V4(sessions) => {
                let judged = sessions.begin_reply(lane, name, message)?.and_then(|mut reply| {
                    nfs4::judge(client, &self.tree, self.pattern, &mut reply)
                });
                if Complaint4::is_later(judged, name)? {
                    return Ok(Verdict::TryLater);
                }
            }
        }
        self.inodes += u64::from(client.advance(&self.tree, self.pattern));
        Ok(Verdict::Good)
    }
}
