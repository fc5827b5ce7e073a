//! What a lane sends.

use steadfast_client::nfs4::{
    ANONYMOUS, Compound, LINUX_ATTRIBUTES, Opening4, Settings4, StateId4,
};
use steadfast_client::{FileHandle, StableHow};
use steadfast_wire::nfs4::{
    CreateType4, Lock4Args, LockOwner4, LockType4, LockU4Args, Locker4, Op4, OpenHow4, SetAttr4Args,
};

use super::{Changes4, Lane, Turn};
use crate::nfs4::requests::{self, Request};
use crate::op::Operation;
use crate::op::check::MODES;
use crate::op::tree::{link_target, object_name, turn_name};
use crate::pattern;
use crate::records::Outbox;

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
        request.append(&self.head, xid, out);
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
                Some(requests::close(start, own.open.as_ref()?).into())
            }
            Operation::Create => {
                let mode = Settings4::mode(0o644).encode();
                let how = OpenHow4::Guarded(mode.fattr());
                Some(requests::open(start, directory?, &Opening4::making(&name, how)).into())
            }
            Operation::OpenClose => {
                let name = object_name(choice);
                let opening = Opening4::existing(&name);
                Some(requests::open(start, &self.objects.directory, &opening).into())
            }
            Operation::Setattr => {
                let mode = MODES.get((turn.turns % 2) as usize)?;
                let settings = Settings4::mode(*mode).encode();
                let obj_attributes = settings.fattr();
                let set = SetAttr4Args { stateid: ANONYMOUS, obj_attributes };
                let compound = start.put(object?).op(Op4::SetAttr, &set);
                Some(compound.attributes(LINUX_ATTRIBUTES).into())
            }
            Operation::Commit => Some(requests::commit(start, object?, 0, 0).into()),
            Operation::WriteCommit { size } if turn.is_second => {
                let offset = self.tree.write_offset(turn.lane, turn.turns, size);
                Some(requests::commit(start, object?, offset, size).into())
            }
            Operation::Write { size, .. } | Operation::WriteCommit { size } => {
                let offset = self.tree.write_offset(turn.lane, turn.turns, size);
                let data = pattern::slice(turn.connection, offset, size as usize);
                let stable = self.load.operation.stability().unwrap_or(StableHow::Unstable);
                Some(Request::write(start, opened?, offset, data, stable))
            }
            Operation::LockUnlock => Some(locking(own, turn, start, opened?)?.into()),
            _ => naming(self.load.operation, start, directory?, object, turn).map(Request::from),
        }
    }
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
    let make = |objtype: CreateType4<'_>, mode: u32| {
        requests::make(start.clone(), directory, &name, objtype, mode)
    };
    Some(match operation {
        Operation::Mkdir => make(CreateType4::Directory, 0o755),
        Operation::Symlink => make(CreateType4::Link(&link_target(0)), 0o777),
        Operation::Mknod => make(CreateType4::Fifo, 0o600),
        Operation::Remove | Operation::Rmdir => requests::remove(start, directory, &name),
        Operation::Rename => {
            let new = turn_name(turn.number, turn.turns + 1);
            requests::rename(start, (directory, &name), (directory, &new))
        }
        Operation::Link => requests::link(start, object?, directory, &name),
        _ => return None,
    })
}
