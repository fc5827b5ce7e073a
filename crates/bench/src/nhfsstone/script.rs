//! What a thread's virtual clients say: operations drawn from the mix.

mod nfs4;

use std::collections::VecDeque;
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;

use steadfast_client::{
    CreateHow3, FileHandle, MknodData3, Procedure, Settings, StableHow, arguments, procedure,
};
use steadfast_wire::nfs3::{
    Fattr3, FileType3, Fsinfo3Ok, Fsstat3Ok, Pathconf3Ok, Renamed3, WccData3,
};
use steadfast_xdr::{Decode, Reader};

use super::tree::{self, WorkingSet};
use super::{Nhfsstone, WRITTEN, is_plausible};
use crate::drive::{Script, Verdict};
use crate::error::BenchError;
use crate::mix::{Deck, NAMES, OPERATIONS};
use crate::nfs4::judging::Complaint as Complaint4;
use crate::nfs4::sessions::Open;
use crate::pattern;
use crate::random::Random;
use crate::records::Outbox;
use crate::replies::{self, Complaint, at_end, formed};
use crate::version::NfsVersion;
use crate::wire::Wire;

/// Most bytes of a listing: replies are kept whole.
const LISTING_BYTES: u32 = 30 << 10;
/// Names that a thread's clients have made, at most; beyond that one is removed for each drawn
/// operation.
const NAMES_MAX: usize = 200_000;
/// How many WRITEs are remembered for a COMMIT.
const UNCOMMITTED_MAX: usize = 1024;
/// How many of the names removed last are remembered.
const REMOVED_MAX: usize = 256;

/// Behind the mix's operations: the CLOSE of a file that an OPEN of NFSv4 has made.
const CLOSE: usize = OPERATIONS;

/// Names of the kinds of calls.
pub(super) fn kinds(nfs: NfsVersion) -> Vec<&'static str> {
    let close = nfs.is_4().then_some("close");
    NAMES.into_iter().chain(close).collect()
}

/// An object that a client made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Own {
    /// In whose directory.
    client: usize,
    serial: u64,
    is_directory: bool,
}

/// One call in flight at a time.
#[derive(Debug, Default)]
struct Lane {
    /// The procedure's number, or [`CLOSE`].
    number: usize,
    /// Which file, directory, link or root.
    choice: usize,
    offset: u64,
    /// The name that the call is about.
    own: Option<Own>,
    /// The name that RENAME gives.
    renamed: Own,
    /// Drawn, but there was nothing to do it to yet.
    owed: Option<usize>,
    is_again: bool,
    /// Of the data that COMMIT is about.
    verifier: Option<[u8; 8]>,
    last_write: Option<(usize, u64)>,
    /// Of NFSv4: among the files that the client keeps open.
    kept: usize,
    /// Of NFSv4: a file that was made, and is closed by the next call.
    open: Option<Open>,
}

/// What was checked or noticed on the way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noticed {
    /// READs whose data was compared.
    pub(super) compared_reads: u64,
    /// Replies of WRITE by what they say is committed.
    pub(super) committed: [u64; 3],
    /// Unstable data that a COMMIT did not cover, since the server has lost it in between.
    pub(super) verifier_changes: u64,
    /// Calls that were made so that there is something for a drawn one to work on.
    pub(super) substitutes: u64,
}

/// A thread's script.
pub(crate) struct Mixed {
    set: Arc<WorkingSet>,
    wire: Wire,
    deck: Deck,
    random: Random,
    lanes: Vec<Lane>,
    depth: usize,
    clients: Range<usize>,
    /// Names that are there and that no call in flight is about, the oldest first.
    names: VecDeque<Own>,
    directories: VecDeque<Own>,
    /// Files with unstable data, and the verifier that came with it; the last ones.
    uncommitted: VecDeque<(usize, [u8; 8])>,
    /// Names that were removed last.
    removed: VecDeque<Own>,
    next_serial: u64,
    files: usize,
    /// Virtual clients of all threads.
    all_clients: usize,
    /// Files that each keeps open over NFSv4.
    kept: usize,
    level: usize,
    transfer: u32,
    places: usize,
    stable: StableHow,
    pub(super) noticed: Noticed,
}

impl Mixed {
    pub(super) fn new(
        load: &Nhfsstone,
        set: &Arc<WorkingSet>,
        files: usize,
        level: usize,
        clients: &Range<usize>,
    ) -> Self {
        let bytes = load.transfer_bytes.max(LISTING_BYTES);
        let files = files.min(set.files.len());
        let transfers = [procedure::READ, procedure::WRITE];
        let has_transfers = transfers.iter().any(|one| load.mix.percent(one.number as usize) > 0.0);
        let seed = (level as u64) << 32 | clients.start as u64;
        Self {
            set: Arc::clone(set),
            wire: Wire::new(&load.target, load.nfs, clients, load.depth, bytes),
            deck: load.mix.deck(seed),
            random: Random::new(!seed),
            lanes: (0..clients.len() * load.depth).map(|_| Lane::default()).collect(),
            depth: load.depth,
            clients: clients.clone(),
            names: VecDeque::new(),
            directories: VecDeque::new(),
            uncommitted: VecDeque::new(),
            removed: VecDeque::new(),
            next_serial: 0,
            files,
            all_clients: load.clients,
            kept: if has_transfers { tree::kept_of(load.clients, files) } else { 0 },
            level,
            transfer: load.transfer_bytes,
            places: (load.file_bytes / u64::from(load.transfer_bytes)) as usize,
            stable: load.stable,
            noticed: Noticed::default(),
        }
    }

    fn client(&self, lane: usize) -> usize {
        self.clients.start + lane / self.depth
    }

    /// The directory and the name of an object that a client made.
    fn place(&self, own: Own) -> Result<(&FileHandle, Vec<u8>), BenchError> {
        let kind = if own.is_directory { 'd' } else { 'n' };
        let name = format!("{kind}{:02}-{:010}", self.level, own.serial).into_bytes();
        Ok((self.set.own.get(own.client).ok_or_else(missing)?, name))
    }

    /// A new name of a client.
    fn new_name(&mut self, client: usize, is_directory: bool) -> Own {
        self.next_serial += 1;
        Own { client, serial: self.next_serial, is_directory }
    }

    /// Draws what a lane does next.
    fn choose(&mut self, lane: usize) {
        let client = self.client(lane);
        let share = client % self.set.shares.max(1);
        let drawn = match self.lanes.get_mut(lane).and_then(|state| state.owed.take()) {
            Some(owed) => owed,
            None => self.deck.draw(),
        };
        // Calls that need something to work on are preceded by one that makes it.
        let substitute = match procedure::ALL.get(drawn).copied().unwrap_or(procedure::NULL) {
            _ if self.names.len() > NAMES_MAX => Some(procedure::REMOVE),
            procedure::REMOVE | procedure::RENAME if self.names.is_empty() => {
                Some(procedure::CREATE)
            }
            procedure::RMDIR if self.directories.is_empty() => Some(procedure::MKDIR),
            _ => None,
        };
        let number = substitute.map_or(drawn, |procedure| procedure.number as usize);
        let procedure = procedure::ALL.get(number).copied().unwrap_or(procedure::NULL);
        let (mut own, mut renamed) = (None, Own::default());
        match procedure {
            procedure::CREATE | procedure::SYMLINK | procedure::MKNOD | procedure::LINK => {
                own = Some(self.new_name(client, false));
            }
            procedure::MKDIR => own = Some(self.new_name(client, true)),
            procedure::REMOVE => own = self.names.pop_front(),
            procedure::RENAME => {
                own = self.names.pop_front();
                renamed = self.new_name(own.map_or(client, |own| own.client), false);
            }
            procedure::RMDIR => own = self.directories.pop_front(),
            _ => {}
        }
        self.noticed.substitutes += u64::from(substitute.is_some());
        let Some(state) = self.lanes.get_mut(lane) else { return };
        state.owed = substitute.is_some().then_some(drawn);
        state.number = number;
        (state.own, state.renamed) = (own, renamed);
        state.choice = self.random.below(self.files);
        state.offset = self.random.below(self.places) as u64 * u64::from(self.transfer);
        match procedure {
            // The client reads and writes what it has open.
            procedure::READ | procedure::WRITE if matches!(self.wire, Wire::V4(_)) => {
                state.kept = self.random.below(self.kept);
                state.choice = tree::kept_file(client, self.all_clients, self.files, state.kept);
            }
            procedure::READLINK => state.choice = self.random.below(tree::links_of(self.files)),
            procedure::READDIR | procedure::READDIRPLUS => {
                state.choice = self.random.below(tree::directories_of(self.files));
            }
            procedure::FSSTAT | procedure::FSINFO => {
                state.choice = self.random.below(self.set.roots.len());
            }
            procedure::COMMIT => {
                let uncommitted = self.uncommitted.pop_back();
                state.choice = uncommitted.map_or(state.choice, |(file, _)| file);
                state.verifier = uncommitted.map(|(_, verifier)| verifier);
            }
            procedure::LINK => {
                // A link stays within its file system: take a file of the client's own share.
                let shares = self.set.shares.max(1);
                let directory = tree::directory_of(state.choice);
                let wanted = directory - directory % shares + share;
                let files = tree::files_of(wanted, self.files);
                state.choice = if files.is_empty() {
                    tree::files_of(share, self.files).start
                } else {
                    files.start + self.random.below(files.len())
                };
            }
            _ => {}
        }
    }

    /// The arguments of a lane's call, and the data that follows them.
    fn arguments(&self, lane: usize) -> Result<(Procedure, Vec<u8>, &'static [u8]), BenchError> {
        let state = self.lanes.get(lane).ok_or_else(missing)?;
        let procedure = procedure::ALL.get(state.number).copied().unwrap_or(procedure::NULL);
        let file = || self.set.files.get(state.choice).ok_or_else(missing);
        let directory = |number: usize| {
            self.set.directories.get(number).map(|one| &one.handle).ok_or_else(missing)
        };
        let root = || self.set.roots.get(state.choice).ok_or_else(missing);
        let own = || self.place(state.own.ok_or_else(missing)?);
        let mut data: &'static [u8] = &[];
        let arguments = match procedure {
            procedure::NULL => Vec::new(),
            procedure::GETATTR | procedure::PATHCONF => arguments::handle(file()?),
            procedure::SETATTR => {
                let mode = if state.offset == 0 { 0o644 } else { 0o640 };
                arguments::setattr(file()?, &Settings::mode(mode), None)
            }
            procedure::LOOKUP => {
                let directory = directory(tree::directory_of(state.choice))?;
                arguments::place(directory, &tree::file_name(state.choice))
            }
            procedure::ACCESS => arguments::access(file()?, arguments::access::ALL),
            procedure::READLINK => {
                arguments::handle(self.set.links.get(state.choice).ok_or_else(missing)?)
            }
            procedure::READ => arguments::read(file()?, state.offset, self.transfer),
            procedure::WRITE => {
                let file_number = state.choice + WRITTEN;
                data = pattern::slice(file_number, state.offset, self.transfer as usize);
                arguments::write_head(file()?, state.offset, self.transfer, self.stable)
            }
            procedure::CREATE => {
                let (directory, name) = own()?;
                let how = CreateHow3::Guarded(Settings::mode(0o644).0);
                arguments::create(directory, &name, &how)
            }
            procedure::MKDIR => {
                let (directory, name) = own()?;
                arguments::mkdir(directory, &name, &Settings::mode(0o755))
            }
            procedure::SYMLINK => {
                let (directory, name) = own()?;
                arguments::symlink(directory, &name, &name, &Settings::mode(0o777))
            }
            procedure::MKNOD => {
                let (directory, name) = own()?;
                let what = MknodData3::Fifo(Settings::mode(0o600).0);
                arguments::mknod(directory, &name, &what)
            }
            procedure::REMOVE | procedure::RMDIR => {
                let (directory, name) = own()?;
                arguments::place(directory, &name)
            }
            procedure::RENAME => {
                let (directory, name) = own()?;
                let (to, new_name) = self.place(state.renamed)?;
                arguments::rename(directory, &name, to, &new_name)
            }
            procedure::LINK => {
                let (directory, name) = own()?;
                arguments::link(file()?, directory, &name)
            }
            procedure::READDIR => {
                arguments::readdir(directory(state.choice)?, 0, [0; 8], LISTING_BYTES)
            }
            procedure::READDIRPLUS => {
                let directory = directory(state.choice)?;
                arguments::readdirplus(directory, 0, [0; 8], LISTING_BYTES, LISTING_BYTES)
            }
            procedure::COMMIT => arguments::commit(file()?, 0, 0),
            _ => arguments::handle(root()?),
        };
        Ok((procedure, arguments, data))
    }

    /// Judges the results of a call that succeeded.
    fn judge(&mut self, lane: usize, r: &mut Reader<'_>) -> Result<(), Complaint> {
        let Some(state) = self.lanes.get_mut(lane) else { return Ok(()) };
        let procedure = procedure::ALL.get(state.number).copied().unwrap_or(procedure::NULL);
        match procedure {
            procedure::GETATTR => {
                let attributes = Fattr3::decode(r)?;
                let size = self.places as u64 * u64::from(self.transfer);
                if attributes.file_type != FileType3::Reg || attributes.size != size {
                    return Err("GETATTR tells another type or size than was made".into());
                }
            }
            procedure::LOOKUP => {
                replies::found(r, self.set.files.get(state.choice).map(FileHandle::as_bytes))?;
            }
            procedure::ACCESS => replies::access_granted(r)?,
            procedure::READLINK => replies::link_target(r, &tree::link_target(state.choice))?,
            procedure::READ => {
                replies::data(r, self.transfer, |data| {
                    is_plausible(state.choice, state.offset, data)
                })?;
                self.noticed.compared_reads += 1;
            }
            procedure::WRITE => {
                let (committed, verifier) = replies::written(r, self.transfer, self.stable)?;
                self.note_written(lane, committed, verifier);
            }
            procedure::CREATE => replies::made(r, FileType3::Reg)?,
            procedure::MKDIR => replies::made(r, FileType3::Dir)?,
            procedure::SYMLINK => replies::made(r, FileType3::Lnk)?,
            procedure::MKNOD => replies::made(r, FileType3::Fifo)?,
            procedure::LINK => replies::linked(r)?,
            procedure::SETATTR | procedure::REMOVE | procedure::RMDIR => formed::<WccData3>(r)?,
            procedure::RENAME => formed::<Renamed3>(r)?,
            procedure::READDIR | procedure::READDIRPLUS => {
                let expected = self.set.directories.get(state.choice).map_or(0, |one| one.entries);
                replies::names(r, procedure == procedure::READDIRPLUS, expected)?;
            }
            procedure::FSSTAT => formed::<Fsstat3Ok>(r)?,
            procedure::FSINFO => formed::<Fsinfo3Ok>(r)?,
            procedure::PATHCONF => formed::<Pathconf3Ok>(r)?,
            procedure::COMMIT => {
                let verifier = replies::committed(r)?;
                self.note_committed(lane, verifier);
            }
            _ => {}
        }
        at_end(r)
    }

    /// The lane's call has succeeded.
    fn note(&mut self, lane: usize) {
        let Some(state) = self.lanes.get(lane) else { return };
        let procedure = procedure::ALL.get(state.number).copied().unwrap_or(procedure::NULL);
        let (own, renamed) = (state.own, state.renamed);
        match (procedure, own) {
            // A file that is open is not to be removed yet.
            _ if state.open.is_some() => {}
            (procedure::REMOVE | procedure::RMDIR, Some(own)) => self.note_removed(own),
            (procedure::RENAME, Some(own)) => {
                self.note_removed(own);
                self.names.push_back(renamed);
            }
            (_, Some(own)) if own.is_directory => self.directories.push_back(own),
            (_, Some(own)) => self.names.push_back(own),
            (_, None) => {}
        }
    }

    /// A WRITE was answered.
    fn note_written(&mut self, lane: usize, committed: StableHow, verifier: [u8; 8]) {
        let Some(state) = self.lanes.get_mut(lane) else { return };
        if let Some(count) = self.noticed.committed.get_mut(committed as usize) {
            *count += 1;
        }
        if committed == StableHow::Unstable {
            if self.uncommitted.len() == UNCOMMITTED_MAX {
                self.uncommitted.pop_front();
            }
            self.uncommitted.push_back((state.choice, verifier));
        }
        state.last_write = Some((state.choice, state.offset));
    }

    /// A COMMIT was answered.
    fn note_committed(&mut self, lane: usize, verifier: [u8; 8]) {
        let Some(state) = self.lanes.get_mut(lane) else { return };
        if state.verifier.take().is_some_and(|before| before != verifier) {
            self.noticed.verifier_changes += 1;
        }
    }

    fn note_removed(&mut self, own: Own) {
        if self.removed.len() == REMOVED_MAX {
            self.removed.pop_front();
        }
        self.removed.push_back(own);
    }

    /// What each lane wrote last.
    pub(super) fn written(&self) -> impl Iterator<Item = (usize, u64)> {
        self.lanes.iter().filter_map(|lane| lane.last_write)
    }

    /// Names that must be there (true) or must not, with their directories.
    pub(super) fn names(&self) -> impl Iterator<Item = (&FileHandle, Vec<u8>, bool)> {
        let present = self.names.iter().rev().chain(self.directories.iter().rev());
        let names =
            present.map(|own| (own, true)).chain(self.removed.iter().map(|own| (own, false)));
        names.filter_map(|(own, is_present)| {
            let (directory, name) = self.place(*own).ok()?;
            Some((directory, name, is_present))
        })
    }
}

/// A mistake in this program.
fn missing() -> BenchError {
    BenchError::Usage("the working set lacks what a call is about".to_owned())
}

impl Script for Mixed {
    fn connected(&mut self, client: usize, stream: &TcpStream) -> Result<(), BenchError> {
        let number = self.clients.start + client;
        let (all, files, kept) = (self.all_clients, self.files, self.kept);
        let file = |index| tree::kept_file(number, all, files, index);
        match &mut self.wire {
            Wire::V3(_) => Ok(()),
            Wire::V4(sessions) => {
                sessions.connect(client, stream, |client| self.set.open(client, kept, file))
            }
        }
    }

    fn finished(&mut self, client: usize, stream: &TcpStream) -> Result<(), BenchError> {
        let lanes = self.lanes.iter_mut().skip(client * self.depth).take(self.depth);
        let left = lanes.filter_map(|lane| lane.open.take()).collect();
        match &mut self.wire {
            Wire::V3(_) => Ok(()),
            Wire::V4(sessions) => sessions.end(client, stream, left),
        }
    }

    fn call(
        &mut self,
        lane: usize,
        xid: u32,
        out: &mut Outbox,
    ) -> Result<Option<usize>, BenchError> {
        let Some(state) = self.lanes.get_mut(lane) else { return Ok(None) };
        let is_again = std::mem::take(&mut state.is_again);
        if !is_again && state.open.is_some() {
            state.number = CLOSE;
        } else if !is_again {
            self.choose(lane);
        }
        let number = self.lanes.get(lane).map_or(0, |state| state.number);
        match &self.wire {
            Wire::V3(writer) => {
                let (procedure, arguments, data) = self.arguments(lane)?;
                writer.append(out, xid, procedure, &arguments, data);
            }
            Wire::V4(sessions) if number == 0 => sessions.append_null(xid, out),
            Wire::V4(sessions) => {
                let kept = sessions.kept(lane);
                sessions.append(lane, xid, out, |start| self.request(lane, start, kept))?;
            }
        }
        Ok(Some(number))
    }

    fn reply(&mut self, lane: usize, message: &[u8]) -> Result<Verdict, BenchError> {
        let number = self.lanes.get(lane).map_or(0, |state| state.number);
        let operation = NAMES.get(number).copied().unwrap_or("close");
        let is_later = match &mut self.wire {
            Wire::V4(sessions) if number != 0 => {
                let begun = sessions.begin_reply(lane, operation, message)?;
                let judged = begun.and_then(|mut reply| self.judge4(lane, &mut reply));
                Complaint4::is_later(judged, operation)?
            }
            _ => {
                let mut r = replies::results(operation, message)?;
                let is_later = number != 0 && !replies::succeeded(operation, &mut r)?;
                if !is_later {
                    self.judge(lane, &mut r).map_err(|complaint| complaint.about(operation))?;
                }
                is_later
            }
        };
        if is_later {
            if let Some(state) = self.lanes.get_mut(lane) {
                state.is_again = true;
            }
            return Ok(Verdict::TryLater);
        }
        self.note(lane);
        Ok(Verdict::Good)
    }
}
