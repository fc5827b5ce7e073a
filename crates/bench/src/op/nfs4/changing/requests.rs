//! What a lane sends.

use steadfast_client::nfs4::{
    ANONYMOUS, Compound, LINUX_ATTRIBUTES, Opening4, Settings4, StateId4,
};
use steadfast_client::{FileHandle, StableHow};
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, Close4Args, Commit4Args, Create4Args, CreateType4, Link4Args, Lock4Args,
    LockOwner4, LockType4, LockU4Args, Locker4, Op4, OpenHow4, Remove4Args, Rename4Args,
    SetAttr4Args,
};

use super::super::FILE_RIGHTS;
use super::{Changes4, Lane, Turn};
use crate::op::Operation;
use crate::op::check::MODES;
use crate::op::tree::{link_target, object_name, turn_name};
use crate::pattern;
use crate::records::Outbox;

/// File data longer than this is sent from the pattern itself instead of being copied.
const COPY_BYTES_MAX: usize = 8 << 10;
/// What Linux asks for behind changes (`nfs4_cache_consistency_bitmap`).
const CONSISTENCY: Bitmap4 = Bitmap4::of(&[
    Attribute4::Change,
    Attribute4::Size,
    Attribute4::SpaceUsed,
    Attribute4::TimeMetadata,
    Attribute4::TimeModify,
]);

/// A request's operations, and the data that goes in between.
struct Request {
    compound: Compound,
    /// Follows what the compound has so far.
    data: &'static [u8],
    /// Follows the data.
    tail: Compound,
}

impl From<Compound> for Request {
    fn from(compound: Compound) -> Self {
        Self { compound, data: &[], tail: Compound::new() }
    }
}

impl Changes4 {
    /// Appends the lane's request; `false` if there is none.
    pub(super) fn append(&self, lane: usize, turn: Turn, xid: u32, out: &mut Outbox) -> bool {
        let connected = self.connected.get(turn.client).and_then(Option::as_ref);
        let Some(own) = self.lanes.get(lane) else { return false };
        let (Some(slot), Some(connected)) = (&own.slot, connected) else { return false };
        let slots = &connected.session.slots;
        let start = connected.session.compound().sequence(&slots.arguments(slot, false));
        let opened = connected.opened.first();
        let Some(request) = self.request(own, turn, start, opened) else { return false };
        let Request { compound, data, tail } = request;
        let count = compound.count() + tail.count();
        let arguments = compound.announcing(count).arguments();
        let padded = data.len().next_multiple_of(4);
        out.push_head(&self.head, xid, arguments.len() + padded + tail.operations().len());
        let bytes = out.bytes();
        bytes.extend_from_slice(&arguments);
        if data.len() <= COPY_BYTES_MAX {
            bytes.extend_from_slice(data);
        } else {
            out.push_static(data);
        }
        let bytes = out.bytes();
        bytes.extend(std::iter::repeat_n(0, padded - data.len()));
        bytes.extend_from_slice(tail.operations());
        true
    }

    fn request(
        &self,
        own: &Lane,
        turn: Turn,
        start: Compound,
        opened: Option<&(FileHandle, StateId4)>,
    ) -> Option<Request> {
        let choice = self.choice(turn);
        let object = self.objects.all.get(choice).map(|object| &object.handle);
        let directory = self.objects.own.get(turn.connection);
        let name = turn_name(turn.number, turn.turns);
        match self.load.operation {
            Operation::Create | Operation::OpenClose if turn.is_second => {
                let (file, open_stateid) = own.open.as_ref()?;
                let close = Close4Args { seqid: 0, open_stateid: *open_stateid };
                Some(start.put(file).attributes(CONSISTENCY).op(Op4::Close, &close).into())
            }
            Operation::Create => {
                let mode = Settings4::mode(0o644).encode();
                let how = OpenHow4::Guarded(mode.fattr());
                Some(open(start.put(directory?), &Opening4::making(&name, how)).into())
            }
            Operation::OpenClose => {
                let name = object_name(choice);
                Some(open(start.put(&self.objects.directory), &Opening4::existing(&name)).into())
            }
            Operation::Setattr => {
                let mode = MODES.get((turn.turns % 2) as usize)?;
                let settings = Settings4::mode(*mode).encode();
                let obj_attributes = settings.fattr();
                let set = SetAttr4Args { stateid: ANONYMOUS, obj_attributes };
                let compound = start.put(object?).op(Op4::SetAttr, &set);
                Some(compound.attributes(LINUX_ATTRIBUTES).into())
            }
            Operation::Commit => {
                let commit = Commit4Args { offset: 0, count: 0 };
                Some(start.put(object?).op(Op4::Commit, &commit).into())
            }
            Operation::WriteCommit { size } if turn.is_second => {
                let offset = self.tree.write_offset(turn.lane, turn.turns, size);
                let commit = Commit4Args { offset, count: size };
                Some(start.put(object?).op(Op4::Commit, &commit).into())
            }
            Operation::Write { size, .. } | Operation::WriteCommit { size } => {
                let offset = self.tree.write_offset(turn.lane, turn.turns, size);
                let data = pattern::slice(turn.connection, offset, size as usize);
                let stable = self.load.operation.stability().unwrap_or(StableHow::Unstable);
                let (file, stateid) = opened?;
                let compound = start.put(file).write_head(*stateid, offset, stable, size);
                let tail = Compound::new().attributes(CONSISTENCY);
                Some(Request { compound, data, tail })
            }
            Operation::LockUnlock => Some(locking(own, turn, start, opened?)?.into()),
            _ => naming(self.load.operation, start, directory?, object, turn).map(Request::from),
        }
    }
}

/// OPEN with what Linux asks for behind it.
fn open(compound: Compound, opening: &Opening4<'_>) -> Compound {
    compound
        .op(Op4::Open, &opening.arguments())
        .handle()
        .access(FILE_RIGHTS)
        .attributes(LINUX_ATTRIBUTES)
}

/// LOCK or LOCKU of the bytes that are the lane's own.
fn locking(
    own: &Lane,
    turn: Turn,
    start: Compound,
    (file, open_stateid): &(FileHandle, StateId4),
) -> Option<Compound> {
    let (offset, length) = turn.locked();
    let locktype = LockType4::Write;
    if turn.is_second {
        let lock_stateid = own.lock?;
        let unlock = LockU4Args { locktype, seqid: 0, lock_stateid, offset, length };
        return Some(start.put(file).op(Op4::LockU, &unlock));
    }
    let owner = (turn.lane as u64).to_be_bytes();
    let locker = match own.lock {
        Some(lock_stateid) => Locker4::Lock { lock_stateid, lock_seqid: 0 },
        None => Locker4::Open {
            open_seqid: 0,
            open_stateid: *open_stateid,
            lock_seqid: 0,
            lock_owner: LockOwner4 { clientid: 0, owner: &owner },
        },
    };
    let lock = Lock4Args { locktype, reclaim: false, offset, length, locker };
    Some(start.put(file).op(Op4::Lock, &lock))
}

/// What makes, removes and renames.
fn naming(
    operation: Operation,
    start: Compound,
    directory: &FileHandle,
    object: Option<&FileHandle>,
    turn: Turn,
) -> Option<Compound> {
    let name = turn_name(turn.number, turn.turns);
    let make = |start: Compound, objtype: CreateType4<'_>, mode: u32| {
        let mode = Settings4::mode(mode).encode();
        let create = Create4Args { objtype, objname: &name, createattrs: mode.fattr() };
        start.put(directory).op(Op4::Create, &create).handle().attributes(LINUX_ATTRIBUTES)
    };
    Some(match operation {
        Operation::Mkdir => make(start, CreateType4::Directory, 0o755),
        Operation::Symlink => make(start, CreateType4::Link(&link_target(0)), 0o777),
        Operation::Mknod => make(start, CreateType4::Fifo, 0o600),
        Operation::Remove | Operation::Rmdir => {
            start.put(directory).op(Op4::Remove, &Remove4Args { target: &name })
        }
        Operation::Rename => {
            let new = turn_name(turn.number, turn.turns + 1);
            let rename = Rename4Args { oldname: &name, newname: &new };
            start.put(directory).plain(Op4::SaveFh).put(directory).op(Op4::Rename, &rename)
        }
        Operation::Link => {
            let link = Link4Args { newname: &name };
            start
                .put(object?)
                .plain(Op4::SaveFh)
                .put(directory)
                .op(Op4::Link, &link)
                .plain(Op4::RestoreFh)
                .attributes(LINUX_ATTRIBUTES)
        }
        _ => return None,
    })
}
