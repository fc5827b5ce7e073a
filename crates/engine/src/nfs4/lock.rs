//! LOCK, LOCKT, LOCKU (RFC 8881 §18.10 to §18.12).

use std::sync::Arc;

use steadfast_state::{
    Client, ClientId, Conflict, LockBy, LockError, LockKind, LockRange, StateId,
};
use steadfast_vfs::FileKind;
use steadfast_wire::nfs4::{
    Lock4Args, LockDenied4, LockOwner4, LockT4Args, LockType4, LockU4Args, Locker4, NfsStat4, Op4,
};
use steadfast_xdr::{Encode, Writer};

use super::handles::sealed;

use super::stateids::{self, client_named, client_of, file_key, given};
use super::status::{OrStatus, status_of_state};
use super::{owners, reclaim};
use crate::compound::{Op, Run};
use crate::local_locks::{self, KeptOut, Place};
use crate::reply::ReplyBuffer;

/// Bytes of an owner (`NFS4_OPAQUE_LIMIT`).
const OWNER_BYTES_MAX: usize = 1024;

fn kind(kind: LockType4) -> LockKind {
    match kind {
        LockType4::Read | LockType4::ReadWaiting => LockKind::Read,
        LockType4::Write | LockType4::WriteWaiting => LockKind::Write,
    }
}

/// Whether the client will ask again if the lock is denied.
fn is_waited_for(kind: LockType4) -> bool {
    matches!(kind, LockType4::ReadWaiting | LockType4::WriteWaiting)
}

/// The status of a lock that was not given; a denial tells whose lock is in the way.
fn denied(run: &mut Run<'_, '_>, error: LockError) -> NfsStat4 {
    let conflict = match error {
        LockError::State(error) => return status_of_state(error),
        LockError::Denied(conflict) => conflict,
    };
    let Conflict { offset, length, kind, client, owner } = conflict;
    let locktype = match kind {
        LockKind::Read => LockType4::Read,
        LockKind::Write => LockType4::Write,
    };
    // Of a host that speaks NLM it has a number too, and may be longer than an owner can be here.
    let owner = owner.get(..OWNER_BYTES_MAX).unwrap_or(&owner);
    let owner = LockOwner4 { clientid: client.0, owner };
    let told = LockDenied4 { offset, length, locktype, owner };
    told.encode(&mut Writer::new(&mut run.failure));
    NfsStat4::Denied
}

/// The status of a lock that a local process keeps from the client: nobody's that the client could know.
fn kept_out(run: &mut Run<'_, '_>, why: KeptOut) -> NfsStat4 {
    let KeptOut::By(lock) = why else { return NfsStat4::Delay };
    let (LockRange { offset, length }, kind) = local_locks::told(lock);
    let (client, owner) = (ClientId(0), Box::default());
    denied(run, LockError::Denied(Conflict { offset, length, kind, client, owner }))
}

/// Only ordinary files are locked.
fn require_file(run: &mut Run<'_, '_>) -> Result<(), NfsStat4> {
    let (call, target) = run.stored(NfsStat4::IsDir)?;
    let attr = call.read(target, |caller| target.storage.attributes(caller, &target.handle));
    match attr.or_status()?.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(NfsStat4::IsDir),
        FileKind::Symlink => Err(NfsStat4::SymLink),
        _ => Err(NfsStat4::WrongType),
    }
}

pub(super) struct Lock;

impl Op for Lock {
    const NUMBER: Op4 = Op4::Lock;
    const NAME: &'static str = "LOCK";
    const RESULT_BYTES_MAX: usize = 16;
    type Arguments<'a> = Lock4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Lock4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        run.current()?;
        let id = match arguments.locker {
            Locker4::Open { open_stateid, .. } => given(run, &open_stateid)?,
            Locker4::Lock { lock_stateid, .. } => given(run, &lock_stateid)?,
        };
        let client = client_of(run, &id)?;
        if run.minor_version > 0 {
            return lock(run, arguments, &client, id, reply);
        }
        let state = &run.nfs4.state;
        match arguments.locker {
            Locker4::Open { open_seqid, lock_seqid, lock_owner, .. } => {
                let request = owners::request(Self::NUMBER, open_seqid, arguments);
                owners::in_sequence(
                    run,
                    reply,
                    |_| state.begin_by_open(&client, &id, &request, false).or_status(),
                    |run, reply, _| {
                        if lock_owner.clientid != client.id().0 {
                            return Err(NfsStat4::BadStateId);
                        }
                        state.judge_locker(&client, lock_owner.owner, lock_seqid).or_status()?;
                        let locked = lock(run, arguments, &client, id, reply);
                        let is_used = locked.map_or_else(owners::uses_sequence, |()| true);
                        let waits = locked.is_err_and(|status| run.is_to_wait(status));
                        run.progress.locker = waits.then(|| (lock_owner.owner.into(), lock_seqid));
                        if is_used && !waits {
                            state.locked(&client, lock_owner.owner, lock_seqid);
                        }
                        locked
                    },
                )
            }
            Locker4::Lock { lock_seqid, .. } => {
                let request = owners::request(Self::NUMBER, lock_seqid, arguments);
                owners::in_sequence(
                    run,
                    reply,
                    |_| state.begin_by_lock(&client, &id, &request).or_status(),
                    |run, reply, _| lock(run, arguments, &client, id, reply),
                )
            }
        }
    }
}

/// LOCK by an open or by locks, whose stateid `id` is.
fn lock(
    run: &mut Run<'_, '_>,
    arguments: &Lock4Args<'_>,
    client: &Arc<Client>,
    id: StateId,
    reply: &mut ReplyBuffer,
) -> Result<(), NfsStat4> {
    require_file(run)?;
    reclaim::admit(run, client, arguments.reclaim)?;
    let by = match arguments.locker {
        Locker4::Open { lock_owner, .. } => LockBy::Open { open: id, owner: lock_owner.owner },
        Locker4::Lock { .. } => LockBy::Lock(id),
    };
    // Who lost its state is told that, whoever has the lock.
    run.nfs4.state.test(client, &id).or_status()?;
    // Of minor version 0 nobody ever wants callbacks.
    let is_to_be_told = is_waited_for(arguments.locktype) && client.wants_callbacks();
    let handle = is_to_be_told.then(|| {
        let object = run.current()?;
        Ok(Arc::from(sealed(run, &object).as_bytes()))
    });
    let handle = handle.transpose()?;
    let shared = run.call.shared;
    let (call, target) = run.stored(NfsStat4::IsDir)?;
    call.seldom_blocks(target).or_status()?;
    let place = Place::from(target);
    let kind = kind(arguments.locktype);
    let range = LockRange { offset: arguments.offset, length: arguments.length };
    let request = steadfast_state::Lock {
        file: place.file,
        kind,
        range,
        by,
        is_waited_for: is_waited_for(arguments.locktype) && !arguments.reclaim,
    };
    let mut together = None;
    let locked = shared.lock_for_all(&place, range, kind, || {
        let kept = shared.state.together();
        let locked = shared.state.grant_lock(client, &request, handle.as_ref());
        together = kept.filter(|_| locked.is_ok());
        locked
    });
    run.go_on_with_state(together);
    let locked = locked.map_err(|why| match why {
        KeptOut::By(_) if arguments.reclaim => NfsStat4::ReclaimConflict,
        // Nobody would tell the client when the local process is done: it is to ask again by itself.
        KeptOut::By(_) if is_to_be_told => NfsStat4::Delay,
        why => kept_out(run, why),
    })?;
    match locked {
        Ok(granted) => {
            let id = granted.id();
            run.is_granted(granted);
            run.progress.current.stateid = Some(id);
            stateids::encode(&mut Writer::new(&mut reply.bytes), &id);
            Ok(())
        }
        Err(LockError::Denied(_)) if arguments.reclaim => Err(NfsStat4::ReclaimConflict),
        Err(error) => Err(denied(run, error)),
    }
}

pub(super) struct LockT;

impl Op for LockT {
    const NUMBER: Op4 = Op4::LockT;
    const NAME: &'static str = "LOCKT";
    type Arguments<'a> = LockT4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &LockT4Args<'_>,
        _: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        run.current()?;
        let client = client_named(run, arguments.owner.clientid)?;
        reclaim::require_over(run)?;
        require_file(run)?;
        let shared = run.call.shared;
        let (call, target) = run.stored(NfsStat4::IsDir)?;
        call.seldom_blocks(target).or_status()?;
        let place = Place::from(target);
        let range = LockRange { offset: arguments.offset, length: arguments.length };
        let (kind, owner) = (kind(arguments.locktype), arguments.owner.owner);
        let tested = shared.state.test_lock(&client, &place.file, kind, range, owner);
        let local = match tested {
            Ok(()) => shared.local_conflict(&place, range, kind).or_status()?,
            Err(error) => return Err(denied(run, error)),
        };
        local.map_or(Ok(()), |lock| Err(kept_out(run, KeptOut::By(lock))))
    }
}

pub(super) struct LockU;

impl Op for LockU {
    const NUMBER: Op4 = Op4::LockU;
    const NAME: &'static str = "LOCKU";
    const RESULT_BYTES_MAX: usize = 16;
    type Arguments<'a> = LockU4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &LockU4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        run.current()?;
        let id = given(run, &arguments.lock_stateid)?;
        let client = client_of(run, &id)?;
        if run.minor_version > 0 {
            return unlock(run, arguments, &client, &id, reply);
        }
        let request = owners::request(Self::NUMBER, arguments.seqid, arguments);
        let state = &run.nfs4.state;
        owners::in_sequence(
            run,
            reply,
            |_| state.begin_by_lock(&client, &id, &request).or_status(),
            |run, reply, _| unlock(run, arguments, &client, &id, reply),
        )
    }
}

fn unlock(
    run: &mut Run<'_, '_>,
    arguments: &LockU4Args,
    client: &Arc<Client>,
    id: &StateId,
    reply: &mut ReplyBuffer,
) -> Result<(), NfsStat4> {
    let state = &run.nfs4.state;
    let (_, target) = run.stored(NfsStat4::BadStateId)?;
    let range = LockRange { offset: arguments.offset, length: arguments.length };
    let file = file_key(target);
    run.begin_state();
    let id = state.unlock(client, id, &file, range).or_status()?;
    run.progress.has_made_state = true;
    run.progress.current.stateid = Some(id);
    stateids::encode(&mut Writer::new(&mut reply.bytes), &id);
    Ok(())
}
