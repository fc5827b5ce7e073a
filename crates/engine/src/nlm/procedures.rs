//! The procedures on locks.

use std::marker::PhantomData;
use std::sync::Arc;

use steadfast_state::{
    FileKey, Host, HostInUse, LockKind, LockRange, NlmError, NlmHolder, NlmLock, NlmOwner, NlmTaken,
};
use steadfast_vfs::{AccessMask, FileKind, FsError};
use steadfast_wire::nlm::{NlmStat, v1, v4};
use steadfast_xdr::{Encode, Writer};

use super::note::Note;
use super::procedure::{MESSAGES_BEHIND, RESULTS_BEHIND};
use super::refusal::{LATER, Refused};
use super::width::{CancelArgs, LockArgs, TestArgs, UnlockArgs, Width};
use crate::call::{Call, Outcome, Refusal, Target};
use crate::complaint::LockRefusal;
use crate::host::Room;
use crate::local_locks::{self, KeptOut, Place};
use crate::operation::Operation;
use crate::outbound::OutboundCall;
use crate::program::{Ignored, Procedure};
use crate::reply::ReplyBuffer;

/// The number that stands for all bytes that follow: NLM's, and the state's.
const TO_END: u64 = 0;
const STATE_TO_END: u64 = u64::MAX;

fn kind(exclusive: bool) -> LockKind {
    if exclusive { LockKind::Write } else { LockKind::Read }
}

fn range(lock: &v4::Lock<'_>) -> LockRange {
    let length = if lock.length == TO_END { STATE_TO_END } else { lock.length };
    LockRange { offset: lock.offset, length }
}

fn owner(lock: &v4::Lock<'_>) -> NlmOwner {
    NlmOwner { svid: lock.svid, oh: lock.oh.into() }
}

/// The file that a handle names: for who gives something up. A client may do so though it has lost
/// its rights meanwhile. But not any user of it may: they can know handles, and guess owners.
pub(super) fn file(call: &mut Call<'_>, handle: &[u8]) -> Result<FileKey, Refused> {
    if !call.peer.is_privileged() {
        call.resolve(handle)?;
    }
    let (storage, handle) = call.named(handle)?;
    let (file_system, object) = storage.object(&handle);
    Ok(FileKey { file_system, object })
}

/// The same for who wants something: he must have a right to the file.
pub(super) fn file_to_lock<'a>(
    call: &mut Call<'a>,
    handle: &[u8],
    kind: LockKind,
) -> Result<Target<'a>, Refused> {
    let target = call.resolve(handle)?;
    if kind == LockKind::Write && target.rights.is_read_only {
        return Err(FsError::ReadOnly.into());
    }
    let enough = match kind {
        LockKind::Read => AccessMask::READ | AccessMask::EXECUTE,
        LockKind::Write => AccessMask::READ | AccessMask::EXECUTE | AccessMask::MODIFY,
    };
    let (granted, attr) =
        call.read(&target, |caller| target.storage.access(caller, &target.handle, enough))?;
    let is_owner = attr.uid == target.cred.uid;
    if attr.kind != FileKind::Regular || !is_owner && !granted.intersects(enough) {
        return Err(LockRefusal::NoRight.into());
    }
    Ok(target)
}

/// The host that calls.
pub(super) fn host(call: &Call<'_>, name: &[u8]) -> Result<Host, Refused> {
    let address = call.peer.address.ip();
    Ok(call.shared.state.host(call.now_ms, name, address)?)
}

/// The host that calls, for what it gives up: one that is not known has nothing.
pub(super) fn known_host(call: &Call<'_>, name: &[u8]) -> Option<Host> {
    call.shared.state.known_host(call.now_ms, name, call.peer.address.ip())
}

/// Has a host recorded before it gets its first lock, so that a restart of the server tells it. It
/// stays so as long as the result lives or the host has something.
pub(super) fn record(call: &mut Call<'_>, host: &Host) -> Result<HostInUse, Refused> {
    let in_use = host.begin_use();
    if host.is_recorded() {
        return Ok(in_use);
    }
    let Some(outbound) = call.shared.outbound.get() else { return Ok(in_use) };
    call.host.will_block();
    if !outbound.record(host.name(), host.address()) {
        return Err(LockRefusal::NotRecorded.into());
    }
    host.set_recorded();
    Ok(in_use)
}

/// Refuses what may not be while hosts take again what they had, or may only be then.
pub(super) fn judge_grace(call: &Call<'_>, is_reclaim: bool) -> Result<(), Refused> {
    let state = &call.shared.state;
    let may = if is_reclaim {
        state.hosts_may_reclaim(call.now_ms)
    } else {
        !state.is_in_grace(call.now_ms)
    };
    if may { Ok(()) } else { Err(Refused::Later) }
}

/// Has it made stable who lost what the host got, before the host is told. If that cannot be done, it is taken
/// back, and the host asks again.
pub(super) fn keep_records(call: &mut Call<'_>) -> Result<(), Refused> {
    if call.keep_records() { Ok(()) } else { Err(Refused::Later) }
}

/// Ends a call with its result: by its reply, or by a call of ours.
fn end(
    call: &Call<'_>,
    is_message: bool,
    reply: &mut ReplyBuffer,
    encode: impl FnOnce(&mut Writer<'_>),
) -> Outcome {
    call.shared.keep_state();
    if !is_message {
        encode(&mut Writer::new(&mut reply.bytes));
        return Outcome::Done;
    }
    // It is executed again, and has its result then.
    if call.lacks_room == Some(Room::Later) || call.wait.is_due_again() {
        return Outcome::Done;
    }
    let (program, version, number) = call.message.numbers;
    if let Some(outbound) = call.shared.outbound.get() {
        let mut arguments = Vec::new();
        encode(&mut Writer::new(&mut arguments));
        outbound.send(OutboundCall {
            to: call.peer.address.ip().to_canonical(),
            from: call.peer.local.ip().to_canonical(),
            transport: call.peer.transport,
            program,
            version,
            procedure: number - MESSAGES_BEHIND + RESULTS_BEHIND,
            arguments,
            grant: None,
        });
    }
    Outcome::Done
}

/// TEST: whether a lock could be had.
pub(super) struct Test<W, const IS_MESSAGE: bool>(PhantomData<W>);

impl<W: Width, const IS_MESSAGE: bool> Procedure for Test<W, IS_MESSAGE> {
    const OPERATION: Operation = Operation::answers(if IS_MESSAGE { "TEST_MSG" } else { "TEST" });
    type Arguments<'a> = TestArgs<'a, W>;

    fn run(
        call: &mut Call<'_>,
        arguments: &Self::Arguments<'_>,
        reply: &mut ReplyBuffer,
    ) -> Outcome {
        let v4::TestArgs { cookie, exclusive, lock } = &arguments.0;
        let mut holder = None;
        let stat = test(call, lock, kind(*exclusive), &mut holder);
        end(call, IS_MESSAGE, reply, |w| {
            let holder = holder.as_ref().map(|NlmHolder { owner, range, kind }| v4::Holder {
                exclusive: *kind == LockKind::Write,
                svid: owner.svid,
                oh: &owner.oh,
                offset: range.offset,
                length: if range.length == STATE_TO_END { TO_END } else { range.length },
            });
            let res = match holder {
                Some(holder) => v4::TestRes::Denied { cookie, holder },
                None => v4::TestRes::Other(v4::Res { cookie, stat }),
            };
            W::test_res(&res, w);
        })
    }
}

fn test(
    call: &mut Call<'_>,
    lock: &v4::Lock<'_>,
    kind: LockKind,
    holder: &mut Option<NlmHolder>,
) -> NlmStat {
    let tested = judge_grace(call, false)
        // Whoever may have one kind may ask for the other.
        .and_then(|()| file_to_lock(call, lock.fh, LockKind::Read))
        .and_then(|target| {
            call.seldom_blocks(&target)?;
            Ok((target, host(call, lock.caller_name)?))
        });
    let (target, host) = match tested {
        Ok(found) => found,
        Err(refused) => return refused.told(call),
    };
    let (place, range) = (Place::from(&target), range(lock));
    match call.shared.state.nlm_test(&host, &place.file, &owner(lock), range, kind) {
        Ok(()) => match call.shared.local_conflict(&place, range, kind) {
            Ok(None) => NlmStat::Granted,
            Ok(Some(local)) => {
                let (range, kind) = local_locks::told(local);
                let owner = NlmOwner { svid: 0, oh: Box::default() };
                *holder = Some(NlmHolder { owner, range, kind });
                NlmStat::Denied
            }
            Err(error) => Refused::from(error).told(call),
        },
        Err(NlmError::Denied(denied)) => {
            *holder = Some(denied);
            NlmStat::Denied
        }
        Err(NlmError::Blocked | NlmError::Crowded) => NlmStat::Failed,
        Err(NlmError::State(error)) => Refused::from(error).told(call),
    }
}

/// LOCK, and `NM_LOCK` of a host that has no monitor.
pub(super) struct Lock<W, const IS_MESSAGE: bool, const IS_MONITORED: bool>(PhantomData<W>);

impl<W: Width, const IS_MESSAGE: bool, const IS_MONITORED: bool> Procedure
    for Lock<W, IS_MESSAGE, IS_MONITORED>
{
    const OPERATION: Operation = Operation::answers(match (IS_MESSAGE, IS_MONITORED) {
        (true, _) => "LOCK_MSG",
        (false, true) => "LOCK",
        (false, false) => "NM_LOCK",
    });
    type Arguments<'a> = LockArgs<'a, W>;

    fn is_remembered(_: &Self::Arguments<'_>) -> bool {
        true
    }

    fn run(
        call: &mut Call<'_>,
        arguments: &Self::Arguments<'_>,
        reply: &mut ReplyBuffer,
    ) -> Outcome {
        let v4::LockArgs { cookie, reclaim, .. } = arguments.0;
        let judged = judge_grace(call, reclaim);
        let is_reclaim = reclaim && judged.is_ok();
        let locked = judged.and_then(|()| lock(call, &arguments.0, IS_MONITORED));
        let stat = locked.unwrap_or_else(|refused| refused.told(call));
        if is_reclaim && stat == LATER {
            return Outcome::Silent;
        }
        end(call, IS_MESSAGE, reply, |w| W::res(&v4::Res { cookie, stat }, w))
    }
}

fn lock(
    call: &mut Call<'_>,
    arguments: &v4::LockArgs<'_>,
    is_monitored: bool,
) -> Result<NlmStat, Refused> {
    let lock = &arguments.lock;
    let kind = kind(arguments.exclusive);
    let target = file_to_lock(call, lock.fh, kind)?;
    call.seldom_blocks(&target)?;
    let host = host(call, lock.caller_name)?;
    let mut in_use = None;
    if is_monitored {
        call.shared.state.host_heard(&host, arguments.state);
        in_use = Some(record(call, &host)?);
    }
    let (_, version, _) = call.message.numbers;
    let note: Option<Arc<[u8]>> = arguments.block.then(|| {
        let mut bytes = Vec::new();
        Note::new(call.peer, version, lock.fh).encode(&mut Writer::new(&mut bytes));
        bytes.into()
    });
    let owner = owner(lock);
    let (place, range) = (Place::from(&target), range(lock));
    let request = NlmLock { file: place.file, owner: &owner, range, kind, waits: note.as_ref() };
    let state = &call.shared.state;
    let taken = NlmTaken::Lock(&owner, range);
    let before = state.nlm_before(&host, &place.file, &taken)?;
    let locked = call.shared.lock_for_all(&place, range, kind, || state.nlm_lock(&host, &request));
    let locked = match locked {
        Ok(locked) => locked,
        Err(KeptOut::TryLater) => return Err(Refused::Later),
        Err(KeptOut::By(_)) if note.is_none() => return Ok(NlmStat::Denied),
        Err(KeptOut::By(_)) => state.nlm_hold_back(&host, &request),
    };
    drop(in_use);
    match locked {
        Ok(()) => keep_records(call).map(|()| NlmStat::Granted).inspect_err(|_| {
            // A host that does not ask again would hold it until it restarts.
            let _together = state.together();
            let _ = state.nlm_take_back(&host, &place.file, &taken, &before);
        }),
        Err(NlmError::Denied(_)) => Ok(NlmStat::Denied),
        Err(NlmError::Blocked) => Ok(NlmStat::Blocked),
        Err(NlmError::Crowded) => Err(Refused::Later),
        Err(NlmError::State(error)) => Err(error.into()),
    }
}

/// CANCEL: the client does not wait any more.
pub(super) struct Cancel<W, const IS_MESSAGE: bool>(PhantomData<W>);

impl<W: Width, const IS_MESSAGE: bool> Procedure for Cancel<W, IS_MESSAGE> {
    const OPERATION: Operation =
        Operation::answers(if IS_MESSAGE { "CANCEL_MSG" } else { "CANCEL" });
    type Arguments<'a> = CancelArgs<'a, W>;

    fn is_remembered(_: &Self::Arguments<'_>) -> bool {
        true
    }

    fn run(
        call: &mut Call<'_>,
        arguments: &Self::Arguments<'_>,
        reply: &mut ReplyBuffer,
    ) -> Outcome {
        let v4::CancelArgs { cookie, exclusive, lock, .. } = &arguments.0;
        let cancelled = cancel(call, lock, kind(*exclusive));
        let stat = cancelled.unwrap_or_else(|refused| refused.told(call));
        end(call, IS_MESSAGE, reply, |w| W::res(&v4::Res { cookie, stat }, w))
    }
}

fn cancel(call: &mut Call<'_>, lock: &v4::Lock<'_>, kind: LockKind) -> Result<NlmStat, Refused> {
    let file = file(call, lock.fh)?;
    let Some(host) = known_host(call, lock.caller_name) else { return Ok(NlmStat::Denied) };
    let state = &call.shared.state;
    let cancelled = state.nlm_cancel(&host, &file, &owner(lock), range(lock), kind);
    let is_found = cancelled?;
    // Linux gives the lock up after this, should it have it.
    Ok(if is_found { NlmStat::Granted } else { NlmStat::Denied })
}

/// UNLOCK.
pub(super) struct Unlock<W, const IS_MESSAGE: bool>(PhantomData<W>);

impl<W: Width, const IS_MESSAGE: bool> Procedure for Unlock<W, IS_MESSAGE> {
    const OPERATION: Operation =
        Operation::answers(if IS_MESSAGE { "UNLOCK_MSG" } else { "UNLOCK" });
    type Arguments<'a> = UnlockArgs<'a, W>;

    fn is_remembered(_: &Self::Arguments<'_>) -> bool {
        true
    }

    fn run(
        call: &mut Call<'_>,
        arguments: &Self::Arguments<'_>,
        reply: &mut ReplyBuffer,
    ) -> Outcome {
        let v4::UnlockArgs { cookie, lock } = &arguments.0;
        let stat = unlock(call, lock).unwrap_or_else(|refused| refused.told(call));
        end(call, IS_MESSAGE, reply, |w| W::res(&v4::Res { cookie, stat }, w))
    }
}

fn unlock(call: &mut Call<'_>, lock: &v4::Lock<'_>) -> Result<NlmStat, Refused> {
    let file = file(call, lock.fh)?;
    let Some(host) = known_host(call, lock.caller_name) else { return Ok(NlmStat::Granted) };
    call.shared.state.nlm_unlock(&host, &file, &owner(lock), range(lock))?;
    Ok(NlmStat::Granted)
}

/// GRANTED: this server waits for nobody's locks.
pub(super) struct Granted<W>(PhantomData<W>);

impl<W: Width> Procedure for Granted<W> {
    const OPERATION: Operation = Operation::answers("GRANTED");
    type Arguments<'a> = TestArgs<'a, W>;

    fn run(_: &mut Call<'_>, arguments: &Self::Arguments<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let res = v4::Res { cookie: arguments.0.cookie, stat: NlmStat::Denied };
        W::res(&res, &mut Writer::new(&mut reply.bytes));
        Outcome::Done
    }
}

/// Messages that tell this server nothing: `GRANTED_MSG`, since it waits for nobody's locks; and results
/// of messages, since it sends none.
pub(super) struct Ignore<const NUMBER: u32>;

impl<const NUMBER: u32> Procedure for Ignore<NUMBER> {
    const OPERATION: Operation = Operation::answers(match NUMBER {
        10 => "GRANTED_MSG",
        11 => "TEST_RES",
        12 => "LOCK_RES",
        13 => "CANCEL_RES",
        14 => "UNLOCK_RES",
        _ => "GRANTED_RES",
    });
    type Arguments<'a> = Ignored;

    fn run(_: &mut Call<'_>, _: &Ignored, _: &mut ReplyBuffer) -> Outcome {
        Outcome::Done
    }
}

/// A number that no procedure has.
pub(super) struct Unavailable;

impl Procedure for Unavailable {
    const OPERATION: Operation = Operation::answers("UNAVAILABLE");
    type Arguments<'a> = Ignored;

    fn run(_: &mut Call<'_>, _: &Ignored, _: &mut ReplyBuffer) -> Outcome {
        Outcome::Refused(Refusal::NoProcedure)
    }
}

/// `FREE_ALL`: the host that calls has restarted. The same in all versions. Not any user of the host
/// may say so.
pub(super) struct FreeAll;

impl Procedure for FreeAll {
    const OPERATION: Operation = Operation::answers("FREE_ALL");
    type Arguments<'a> = v1::Notify<'a>;

    fn is_remembered(_: &v1::Notify<'_>) -> bool {
        true
    }

    fn run(call: &mut Call<'_>, arguments: &v1::Notify<'_>, _: &mut ReplyBuffer) -> Outcome {
        if call.peer.is_privileged()
            && let Some(host) = known_host(call, arguments.name)
        {
            call.shared.state.free_host(&host);
            call.shared.keep_state();
        }
        Outcome::Done
    }
}
