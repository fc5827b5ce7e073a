//! What one thread's calls say, and what their replies must say.

use std::ops::Range;
use std::sync::Arc;

use steadfast_client::{
    CallTemplate, CreateHow3, FileHandle, MknodData3, Procedure, Settings, StableHow, arguments,
    procedure,
};
use steadfast_wire::nfs3::{
    Fattr3, FileType3, Fsinfo3Ok, Fsstat3Ok, Pathconf3Ok, Renamed3, WccData3,
};
use steadfast_xdr::{Decode, Reader};

use super::check::{Ended, MODES};
use super::tree::{LISTED_NAMES, SMALL_FILES, TURN_NAME_BYTES, Tree};
use super::tree::{link_target, object_name, turn_name};
use super::{Load, Operation};
use crate::drive::{Script, Verdict};
use crate::error::BenchError;
use crate::pattern;
use crate::random::Random;
use crate::records::Outbox;
use crate::replies::{self, Complaint, LongData, at_end, formed};

/// File data longer than this is sent from the pattern itself instead of being copied.
const COPY_BYTES_MAX: usize = 8 << 10;
/// Files that one connection makes links to: ext4 takes 65,000 links a file.
const LINKED_FILES: usize = 16;

/// One call in flight at a time.
#[derive(Clone, Debug, Default)]
struct Slot {
    /// Whole turns ended (of WRITE + COMMIT: both).
    turns: u64,
    /// Which template.
    choice: usize,
    offset: u64,
    commits: bool,
    verifier: [u8; 8],
    /// COMMIT says that the WRITE may be lost: it is made again.
    is_lost: bool,
}

/// What replies promised and turned out to be.
#[derive(Clone, Debug, Default)]
pub(super) struct Promises {
    /// Replies of WRITE by what they say is committed: unstable, `DATA_SYNC`,
    /// `FILE_SYNC`.
    pub(super) committed: [u64; 3],
    pub(super) verifier_changes: u64,
    pub(super) sampled_data: u64,
    verifier: Option<[u8; 8]>,
}

impl Promises {
    /// A write verifier was told.
    pub(super) fn note_verifier(&mut self, verifier: [u8; 8]) {
        if self.verifier.is_some_and(|before| before != verifier) {
            self.verifier_changes += 1;
        }
        self.verifier = Some(verifier);
    }

    /// A WRITE was answered.
    pub(super) fn note_written(&mut self, committed: StableHow, verifier: [u8; 8]) {
        self.note_verifier(verifier);
        if let Some(count) = self.committed.get_mut(committed as usize) {
            *count += 1;
        }
    }
}

/// A call that is built once, and where in its record is what differs from call to call.
struct Template {
    call: CallTemplate,
    patch_at: usize,
    /// The second name of RENAME.
    second_at: usize,
}

/// A thread's script.
pub(super) struct Calls {
    operation: Operation,
    tree: Arc<Tree>,
    depth: usize,
    clients: Range<usize>,
    slots: Vec<Slot>,
    /// Some for each object, or each connection.
    templates: Vec<Template>,
    commits: Vec<Template>,
    random: Random,
    pub(super) promises: Promises,
    /// Objects that SETATTR has changed.
    has_set: Vec<bool>,
}

/// Bytes of a handle in a call.
fn handle_bytes(handle: &FileHandle) -> usize {
    4 + handle.as_bytes().len().next_multiple_of(4)
}

/// Bytes of a turn's name in a call.
const NAME_BYTES: usize = 4 + TURN_NAME_BYTES.next_multiple_of(4);

/// All templates of an operation.
struct Templates<'t> {
    load: &'t Load,
    all: Vec<Template>,
}

impl Templates<'_> {
    /// A call to be patched so many bytes after the beginning of its arguments.
    fn push(&mut self, procedure: Procedure, arguments: &[u8], payload: usize, after: usize) {
        let call = CallTemplate::new(procedure, &self.load.target.identity, arguments, payload);
        let patch_at = call.arguments_at() + after;
        self.all.push(Template { call, patch_at, second_at: 0 });
    }

    /// Of calls about a name in a directory of a connection's own.
    fn push_named(&mut self, directory: &FileHandle) {
        let name = turn_name(0, 0);
        let after = handle_bytes(directory) + 4;
        let (procedure, arguments) = match self.load.operation {
            Operation::Create => {
                let how = CreateHow3::Guarded(Settings::mode(0o644).0);
                (procedure::CREATE, arguments::create(directory, &name, &how))
            }
            Operation::Mkdir => {
                (procedure::MKDIR, arguments::mkdir(directory, &name, &Settings::mode(0o755)))
            }
            Operation::Symlink => {
                let set = Settings::mode(0o777);
                let arguments = arguments::symlink(directory, &name, &link_target(0), &set);
                (procedure::SYMLINK, arguments)
            }
            Operation::Mknod => {
                let what = MknodData3::Fifo(Settings::mode(0o600).0);
                (procedure::MKNOD, arguments::mknod(directory, &name, &what))
            }
            Operation::Rename => {
                let arguments = arguments::rename(directory, &name, directory, &name);
                self.push(procedure::RENAME, &arguments, 0, after);
                if let Some(template) = self.all.last_mut() {
                    template.second_at = template.patch_at + NAME_BYTES + handle_bytes(directory);
                }
                return;
            }
            Operation::Rmdir => (procedure::RMDIR, arguments::place(directory, &name)),
            _ => (procedure::REMOVE, arguments::place(directory, &name)),
        };
        self.push(procedure, &arguments, 0, after);
    }

    /// Of calls about an object that was made before.
    fn push_about(&mut self, tree: &Tree, index: usize, object: &FileHandle) {
        let operation = self.load.operation;
        let mut plain = |procedure: Procedure, arguments: &[u8]| {
            self.push(procedure, arguments, 0, 0);
        };
        let handle = arguments::handle(object);
        match operation {
            Operation::Getattr => plain(procedure::GETATTR, &handle),
            Operation::Readlink => plain(procedure::READLINK, &handle),
            Operation::Fsstat => plain(procedure::FSSTAT, &handle),
            Operation::Fsinfo => plain(procedure::FSINFO, &handle),
            Operation::Pathconf => plain(procedure::PATHCONF, &handle),
            Operation::Commit => plain(procedure::COMMIT, &arguments::commit(object, 0, 0)),
            Operation::Setattr => {
                for mode in MODES {
                    let arguments = arguments::setattr(object, &Settings::mode(mode), None);
                    plain(procedure::SETATTR, &arguments);
                }
            }
            Operation::Access => {
                let arguments = arguments::access(object, arguments::access::ALL);
                plain(procedure::ACCESS, &arguments);
            }
            Operation::Lookup => {
                if let Some(directory) = &tree.directory {
                    let arguments = arguments::place(directory, &object_name(index));
                    plain(procedure::LOOKUP, &arguments);
                }
            }
            Operation::Readdir { size } => {
                plain(procedure::READDIR, &arguments::readdir(object, 0, [0; 8], size));
            }
            Operation::Readdirplus { size } => {
                let arguments = arguments::readdirplus(object, 0, [0; 8], size, size);
                plain(procedure::READDIRPLUS, &arguments);
            }
            Operation::Read { size } => {
                let arguments = arguments::read(object, 0, size);
                self.push(procedure::READ, &arguments, 0, handle_bytes(object));
            }
            Operation::Write { size, .. } | Operation::WriteCommit { size } => {
                let stable = operation.stability().unwrap_or(StableHow::Unstable);
                let head = arguments::write_head(object, 0, size, stable);
                let payload = (size as usize).next_multiple_of(4);
                self.push(procedure::WRITE, &head, payload, handle_bytes(object));
            }
            _ => {}
        }
    }

    fn of(load: &Load, tree: &Tree) -> Vec<Template> {
        let mut templates = Templates { load, all: Vec::new() };
        match load.operation {
            Operation::Null => templates.push(procedure::NULL, &[], 0, 0),
            Operation::Link => {
                for (connection, directory) in tree.own.iter().enumerate() {
                    for number in 0..LINKED_FILES {
                        let file = (connection * LINKED_FILES + number) % SMALL_FILES;
                        let Some(file) = tree.objects.get(file) else { continue };
                        let arguments = arguments::link(file, directory, &turn_name(0, 0));
                        let after = handle_bytes(file) + handle_bytes(directory) + 4;
                        templates.push(procedure::LINK, &arguments, 0, after);
                    }
                }
            }
            _ => {
                for directory in &tree.own {
                    templates.push_named(directory);
                }
                for (index, object) in tree.objects.iter().enumerate() {
                    templates.push_about(tree, index, object);
                }
            }
        }
        templates.all
    }
}

impl Calls {
    pub(super) fn new(load: &Load, tree: &Arc<Tree>, clients: Range<usize>) -> Self {
        let mut commits = Templates { load, all: Vec::new() };
        if let Operation::WriteCommit { size } = load.operation {
            for file in &tree.objects {
                let arguments = arguments::commit(file, 0, size);
                commits.push(procedure::COMMIT, &arguments, 0, handle_bytes(file));
            }
        }
        Self {
            operation: load.operation,
            tree: Arc::clone(tree),
            depth: load.depth,
            slots: vec![Slot::default(); clients.len() * load.depth],
            templates: Templates::of(load, tree),
            commits: commits.all,
            random: Random::new(clients.start as u64),
            clients,
            promises: Promises::default(),
            has_set: vec![false; tree.objects.len()],
        }
    }

    fn broken(&self, what: impl Into<String>) -> BenchError {
        BenchError::broken(self.operation.name(), what)
    }

    /// Judges the results of a call that succeeded.
    fn judge(&mut self, lane: usize, r: &mut Reader<'_>) -> Result<(), Complaint> {
        let Some(slot) = self.slots.get_mut(lane) else { return Ok(()) };
        match self.operation {
            // NFSv3 has no opens and locks.
            Operation::Null | Operation::OpenClose | Operation::LockUnlock => {}
            Operation::Getattr => {
                if Fattr3::decode(r)?.file_type != FileType3::Reg {
                    return Err("a file is no file any more".into());
                }
            }
            Operation::Setattr => {
                formed::<WccData3>(r)?;
                if let Some(has_set) = self.has_set.get_mut(slot.choice / MODES.len()) {
                    *has_set = true;
                }
            }
            Operation::Lookup => {
                let expected = self.tree.objects.get(slot.choice).map(FileHandle::as_bytes);
                replies::found(r, expected)?;
            }
            Operation::Access => replies::access_granted(r)?,
            Operation::Readlink => replies::link_target(r, &link_target(slot.choice))?,
            Operation::Read { size } => {
                self.promises.sampled_data += 1;
                replies::data(r, size, |data| {
                    pattern::matches_sampled(slot.choice, slot.offset, data)
                })?;
            }
            Operation::WriteCommit { .. } if slot.commits => {
                let verifier = replies::committed(r)?;
                slot.is_lost = verifier != slot.verifier;
                self.promises.note_verifier(verifier);
            }
            Operation::Write { size, .. } | Operation::WriteCommit { size } => {
                let stable = self.operation.stability().unwrap_or(StableHow::Unstable);
                let (committed, verifier) = replies::written(r, size, stable)?;
                slot.verifier = verifier;
                self.promises.note_written(committed, verifier);
            }
            Operation::Create => replies::made(r, FileType3::Reg)?,
            Operation::Mkdir => replies::made(r, FileType3::Dir)?,
            Operation::Symlink => replies::made(r, FileType3::Lnk)?,
            Operation::Mknod => replies::made(r, FileType3::Fifo)?,
            Operation::Link => replies::linked(r)?,
            Operation::Remove | Operation::Rmdir => formed::<WccData3>(r)?,
            Operation::Rename => formed::<Renamed3>(r)?,
            Operation::Readdir { .. } => replies::names(r, false, LISTED_NAMES)?,
            Operation::Readdirplus { .. } => replies::names(r, true, LISTED_NAMES)?,
            Operation::Fsstat => formed::<Fsstat3Ok>(r)?,
            Operation::Fsinfo => formed::<Fsinfo3Ok>(r)?,
            Operation::Pathconf => formed::<Pathconf3Ok>(r)?,
            Operation::Commit => {
                let verifier = replies::committed(r)?;
                self.promises.note_verifier(verifier);
            }
        }
        at_end(r)
    }

    /// The slot goes on to its next turn, or from WRITE to COMMIT.
    fn advance(&mut self, lane: usize) {
        let Some(slot) = self.slots.get_mut(lane) else { return };
        let commits_next = matches!(self.operation, Operation::WriteCommit { .. }) && !slot.commits;
        slot.commits = commits_next;
        slot.turns += u64::from(!commits_next && !std::mem::take(&mut slot.is_lost));
    }
}

impl Ended for Calls {
    fn turns(&self) -> Vec<(usize, u64)> {
        let first = self.clients.start * self.depth;
        self.slots.iter().enumerate().map(|(slot, own)| (first + slot, own.turns)).collect()
    }

    fn has_set(&self, object: usize) -> bool {
        self.has_set.get(object).copied().unwrap_or(false)
    }

    fn promises(&self) -> &Promises {
        &self.promises
    }
}

impl Script for Calls {
    fn call(
        &mut self,
        lane: usize,
        xid: u32,
        out: &mut Outbox,
    ) -> Result<Option<usize>, BenchError> {
        let connection = self.clients.start + lane / self.depth;
        let number = self.clients.start * self.depth + lane;
        let Some(slot) = self.slots.get_mut(lane) else { return Ok(None) };
        if self.operation.removes_names() && slot.turns >= self.tree.names_per_slot {
            return Ok(None);
        }
        slot.choice = match self.operation {
            Operation::Link => {
                connection * LINKED_FILES + (slot.turns % LINKED_FILES as u64) as usize
            }
            _ if self.operation.stability().is_some() || !self.tree.own.is_empty() => connection,
            _ => self.random.below(self.templates.len()),
        };
        let templates = if slot.commits { &self.commits } else { &self.templates };
        let Some(template) = templates.get(slot.choice) else { return Ok(None) };
        let start = out.bytes().len();
        template.call.append(xid, out.bytes());
        let mut patch = |at: usize, value: &[u8]| {
            if let Some(place) = out.bytes().get_mut(start + at..start + at + value.len()) {
                place.copy_from_slice(value);
            }
        };
        match self.operation {
            Operation::Read { size } => {
                let places = (self.tree.file_bytes / u64::from(size)).max(1) as usize;
                slot.offset = self.random.below(places) as u64 * u64::from(size);
                patch(template.patch_at, &slot.offset.to_be_bytes());
            }
            Operation::Write { size, .. } | Operation::WriteCommit { size } => {
                if !slot.commits {
                    slot.offset = self.tree.write_offset(lane % self.depth, slot.turns, size);
                }
                patch(template.patch_at, &slot.offset.to_be_bytes());
                if !slot.commits {
                    let data = pattern::slice(connection, slot.offset, size as usize);
                    if data.len() <= COPY_BYTES_MAX {
                        out.bytes().extend_from_slice(data);
                    } else {
                        out.push_static(data);
                    }
                    let padding = data.len().next_multiple_of(4) - data.len();
                    out.bytes().extend(std::iter::repeat_n(0, padding));
                }
            }
            Operation::Rename => {
                patch(template.patch_at, &turn_name(number, slot.turns));
                patch(template.second_at, &turn_name(number, slot.turns + 1));
            }
            _ if !self.tree.own.is_empty() => {
                patch(template.patch_at, &turn_name(number, slot.turns));
            }
            _ => {}
        }
        Ok(Some(usize::from(slot.commits)))
    }

    fn reply(&mut self, lane: usize, message: &[u8]) -> Result<Verdict, BenchError> {
        let name = self.operation.name();
        let mut r = replies::results(name, message)?;
        if self.operation != Operation::Null && !replies::succeeded(name, &mut r)? {
            return Ok(Verdict::TryLater);
        }
        self.judge(lane, &mut r).map_err(|complaint| complaint.about(name))?;
        self.advance(lane);
        Ok(Verdict::Good)
    }

    fn long_reply(
        &mut self,
        lane: usize,
        head: &[u8],
        bytes: usize,
    ) -> Result<LongData, BenchError> {
        let (Operation::Read { size }, Some(slot)) = (self.operation, self.slots.get(lane)) else {
            return Err(self.broken("a reply of unreasonable length"));
        };
        self.promises.sampled_data += 1;
        LongData::of_read("read", head, bytes, slot.choice, slot.offset, size)
    }

    fn long_reply_ended(&mut self, lane: usize) {
        self.advance(lane);
    }
}
