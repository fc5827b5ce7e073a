//! What one thread's calls say, and what their replies must say.

use std::sync::Arc;

use steadfast_client::{
    CallTemplate, CreateHow3, FileHandle, Procedure, Settings, StableHow, arguments, procedure,
};
use steadfast_xdr::{Decode, Reader};

use super::tree::{Tree, turn_name};
use super::{BenchError, Load, Operation};
use crate::pattern;
use crate::records::Outbox;
use crate::replies::{self, ATTRIBUTES_BYTES, Complaint, LongData, skip_post, skip_wcc};

/// File data longer than this is sent from the pattern itself instead of being copied.
const COPY_BYTES_MAX: usize = 8 << 10;

/// One call in flight at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot {
    pub(crate) xid: u32,
    /// Nanoseconds on the worker's clock.
    pub(crate) sent_ns: u64,
    /// Whole turns ended (of WRITE + COMMIT: both).
    pub(crate) turns: u64,
    /// Which file the call is about.
    choice: usize,
    offset: u64,
    commits: bool,
    verifier: [u8; 8],
}

/// What replies promised and turned out to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promises {
    /// Replies of WRITE by what they say is committed: unstable, `DATA_SYNC`,
    /// `FILE_SYNC`.
    pub(crate) committed: [u64; 3],
    pub(crate) verifier_changes: u64,
    pub(crate) sampled_data: u64,
    pub(crate) try_later: u64,
    verifier: Option<[u8; 8]>,
}

/// What a reply brought.
pub(crate) enum Judged {
    /// A good reply; the slot's next call may go.
    Good,
    /// The same call has to be sent again (JUKEBOX).
    TryLater,
}

pub(crate) struct Script {
    operation: Operation,
    /// The operation, for messages.
    name: String,
    tree: Arc<Tree>,
    depth: usize,
    /// One a file, name or connection.
    templates: Vec<CallTemplate>,
    commits: Vec<CallTemplate>,
    /// Where in a record the fixed part ends that differs from call to call.
    patch_at: Vec<usize>,
    random: u64,
    pub(crate) promises: Promises,
}

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(4)
}

impl Script {
    pub(crate) fn new(load: &Load, tree: &Arc<Tree>, thread: usize) -> Self {
        let mut script = Self {
            operation: load.operation,
            name: load.operation.to_string(),
            tree: Arc::clone(tree),
            depth: load.depth,
            templates: Vec::new(),
            commits: Vec::new(),
            patch_at: Vec::new(),
            random: 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(thread as u64 * 2 + 1),
            promises: Promises::default(),
        };
        let template = |procedure: Procedure, arguments: &[u8], payload: usize| {
            CallTemplate::new(procedure, &load.identity, arguments, payload)
        };
        let after_handle = |template: &CallTemplate, handle: &FileHandle| {
            template.arguments_at() + 4 + padded(handle.as_bytes().len())
        };
        let set = CreateHow3::Guarded(Settings::mode(0o644).0);
        match load.operation {
            Operation::Null => script.templates.push(template(procedure::NULL, &[], 0)),
            Operation::Getattr | Operation::Access | Operation::Lookup => {
                for file in &tree.files {
                    let (procedure, arguments) = match (load.operation, &tree.directory) {
                        (Operation::Lookup, Some(directory)) => {
                            (procedure::LOOKUP, arguments::place(directory, &file.name))
                        }
                        (Operation::Access, _) => (
                            procedure::ACCESS,
                            arguments::access(&file.handle, arguments::access::ALL),
                        ),
                        _ => (procedure::GETATTR, arguments::handle(&file.handle)),
                    };
                    script.templates.push(template(procedure, &arguments, 0));
                }
            }
            Operation::Read { size } => {
                for file in &tree.files {
                    let arguments = arguments::read(&file.handle, 0, size);
                    let template = template(procedure::READ, &arguments, 0);
                    script.patch_at.push(after_handle(&template, &file.handle));
                    script.templates.push(template);
                }
            }
            Operation::Write { size, .. } | Operation::WriteCommit { size } => {
                let stable = match load.operation {
                    Operation::Write { stable, .. } => stable,
                    _ => StableHow::Unstable,
                };
                for file in &tree.files {
                    let head = arguments::write_head(&file.handle, 0, size, stable);
                    let template_of_write =
                        template(procedure::WRITE, &head, padded(size as usize));
                    script.patch_at.push(after_handle(&template_of_write, &file.handle));
                    script.templates.push(template_of_write);
                    let arguments = arguments::commit(&file.handle, 0, size);
                    script.commits.push(template(procedure::COMMIT, &arguments, 0));
                }
            }
            Operation::Create | Operation::Remove => {
                for directory in &tree.directories {
                    let name = turn_name(0, 0);
                    let (procedure, arguments) = if load.operation == Operation::Create {
                        let arguments = arguments::create(&directory.handle, &name, &set);
                        (procedure::CREATE, arguments)
                    } else {
                        (procedure::REMOVE, arguments::place(&directory.handle, &name))
                    };
                    let template = template(procedure, &arguments, 0);
                    script.patch_at.push(after_handle(&template, &directory.handle) + 4);
                    script.templates.push(template);
                }
            }
        }
        script
    }

    fn random(&mut self, below: usize) -> usize {
        // xorshift64: which file is asked about needs no better.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 33) as usize) % below.max(1)
    }

    /// Appends the slot's next call; false when there is none left.
    pub(crate) fn call(&mut self, number: usize, slot: &mut Slot, out: &mut Outbox) -> bool {
        let connection = number / self.depth;
        slot.choice = match self.operation {
            Operation::Write { .. }
            | Operation::WriteCommit { .. }
            | Operation::Create
            | Operation::Remove => connection,
            _ => self.random(self.templates.len()),
        };
        if self.operation == Operation::Remove && slot.turns >= self.tree.names_per_slot {
            return false;
        }
        let template = if slot.commits {
            self.commits.get(slot.choice)
        } else {
            self.templates.get(slot.choice)
        };
        let (Some(template), patch_at) = (template, self.patch_at.get(slot.choice)) else {
            return false;
        };
        let start = out.bytes().len();
        template.append(slot.xid, out.bytes());
        let mut patch = |value: &[u8]| {
            let place = patch_at.map(|at| start + at..start + at + value.len());
            if let Some(place) = place.and_then(|place| out.bytes().get_mut(place)) {
                place.copy_from_slice(value);
            }
        };
        match self.operation {
            Operation::Read { size } => {
                let places = (self.tree.file_bytes / u64::from(size)).max(1) as usize;
                // Not `self.random`: the template borrows `self`.
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                slot.offset = (self.random >> 33) % places as u64 * u64::from(size);
                patch(&slot.offset.to_be_bytes());
            }
            Operation::Write { size, .. } | Operation::WriteCommit { size } => {
                if !slot.commits {
                    slot.offset = self.tree.write_offset(number % self.depth, slot.turns, size);
                }
                patch(&slot.offset.to_be_bytes());
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
            Operation::Create | Operation::Remove => patch(&turn_name(number, slot.turns)),
            _ => {}
        }
        true
    }

    fn broken(&self, what: impl Into<String>) -> BenchError {
        BenchError::broken(&self.name, what)
    }

    /// Judges a whole reply.
    pub(crate) fn judge(&mut self, slot: &mut Slot, message: &[u8]) -> Result<Judged, BenchError> {
        let mut r = replies::results(&self.name, message)?;
        if self.operation == Operation::Null {
            slot.turns += 1;
            return Ok(Judged::Good);
        }
        if !replies::succeeded(&self.name, &mut r)? {
            self.promises.try_later += 1;
            return Ok(Judged::TryLater);
        }
        let judged = match self.operation {
            Operation::Null => Ok(()),
            Operation::Getattr => getattr(&mut r),
            Operation::Lookup => {
                let expected = self.tree.files.get(slot.choice).map(|file| &file.handle);
                lookup(&mut r, expected)
            }
            Operation::Access => access(&mut r),
            Operation::Read { size } => {
                self.promises.sampled_data += 1;
                read(&mut r, slot, size)
            }
            Operation::Write { size, stable } => self.wrote(&mut r, slot, size, stable),
            Operation::WriteCommit { size } if !slot.commits => {
                self.wrote(&mut r, slot, size, StableHow::Unstable)
            }
            Operation::WriteCommit { .. } => self.committed(&mut r, slot),
            Operation::Create => created(&mut r),
            Operation::Remove => skip_wcc(&mut r).map_err(Complaint::Xdr),
        };
        match judged {
            Ok(()) if r.is_empty() => {}
            Ok(()) => return Err(self.broken("a reply with bytes too many")),
            Err(complaint) => return Err(complaint.about(&self.name)),
        }
        let is_write_commit = matches!(self.operation, Operation::WriteCommit { .. });
        if is_write_commit && !slot.commits {
            slot.commits = true;
        } else {
            slot.commits = false;
            slot.turns += 1;
        }
        Ok(Judged::Good)
    }

    /// Judges the head of a READ reply too long to be kept.
    pub(crate) fn judge_head(
        &mut self,
        slot: &Slot,
        head: &[u8],
        message_bytes: usize,
    ) -> Result<LongData, BenchError> {
        let Operation::Read { size } = self.operation else {
            return Err(self.broken("a reply of unreasonable length"));
        };
        self.promises.sampled_data += 1;
        LongData::of_read("read", head, message_bytes, slot.choice, slot.offset, size)
    }

    fn note_verifier(&mut self, verifier: [u8; 8]) {
        if self.promises.verifier.is_some_and(|before| before != verifier) {
            self.promises.verifier_changes += 1;
        }
        self.promises.verifier = Some(verifier);
    }

    fn wrote(
        &mut self,
        r: &mut Reader<'_>,
        slot: &mut Slot,
        size: u32,
        stable: StableHow,
    ) -> Result<(), Complaint> {
        skip_wcc(r)?;
        if r.u32()? != size {
            return Err("WRITE wrote less than it was given".into());
        }
        let committed = StableHow::decode(r)?;
        slot.verifier = r.array()?;
        self.note_verifier(slot.verifier);
        if let Some(count) = self.promises.committed.get_mut(committed as usize) {
            *count += 1;
        }
        if (committed as u32) < stable as u32 {
            return Err("WRITE is less stable than was asked for".into());
        }
        Ok(())
    }

    fn committed(&mut self, r: &mut Reader<'_>, slot: &Slot) -> Result<(), Complaint> {
        skip_wcc(r)?;
        let verifier = r.array()?;
        self.note_verifier(verifier);
        if verifier != slot.verifier {
            return Err("COMMIT's verifier is not WRITE's: the server lost unstable data".into());
        }
        Ok(())
    }
}

fn getattr(r: &mut Reader<'_>) -> Result<(), Complaint> {
    let file_type = r.u32()?;
    r.fixed_opaque(ATTRIBUTES_BYTES - 4)?;
    if file_type == 1 { Ok(()) } else { Err("a file is no file any more".into()) }
}

fn lookup(r: &mut Reader<'_>, expected: Option<&FileHandle>) -> Result<(), Complaint> {
    let handle = r.opaque(64)?;
    skip_post(r)?;
    skip_post(r)?;
    if expected.is_some_and(|expected| expected.as_bytes() == handle) {
        Ok(())
    } else {
        Err("LOOKUP returned another handle than CREATE".into())
    }
}

fn access(r: &mut Reader<'_>) -> Result<(), Complaint> {
    skip_post(r)?;
    if r.u32()? & arguments::access::READ == 0 {
        return Err("ACCESS denies the owner to read".into());
    }
    Ok(())
}

fn read(r: &mut Reader<'_>, slot: &Slot, size: u32) -> Result<(), Complaint> {
    skip_post(r)?;
    let count = r.u32()?;
    let _eof = r.bool()?;
    let data = r.opaque(size as usize)?;
    if count != size || data.len() != size as usize {
        return Err("READ returned another count than was asked for".into());
    }
    if pattern::matches_sampled(slot.choice, slot.offset, data) {
        Ok(())
    } else {
        Err("READ returned other data than was written".into())
    }
}

fn created(r: &mut Reader<'_>) -> Result<(), Complaint> {
    let handle = r.optional(|r| r.opaque(64))?;
    skip_post(r)?;
    skip_wcc(r)?;
    if handle.is_some() { Ok(()) } else { Err("CREATE returned no handle".into()) }
}
