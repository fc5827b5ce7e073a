//! What OPEN delegates, and DELEGRETURN (RFC 8881 §10.4, §18.6, §18.16).

use std::sync::Arc;

use steadfast_state::{
    Client, Delegate, DelegationKind, FileKey, NotDelegated, ShareAccess, StateId,
};
use steadfast_vfs::{Caller, FsError, Waiting};
use steadfast_wire::nfs4::{
    Ace4, DelegReturn4Args, NfsStat4, Op4, OpenDelegation4, SpaceLimit4, StateId4,
};

use super::fattr;
use super::handles::sealed;
use super::stateids::{self, file_key, given};
use super::status::OrStatus;
use crate::Shared;
use crate::complaint::Complaint;
use crate::compound::{Op, Run};
use crate::local_guards::Guarded;
use crate::local_locks::Place;
use crate::progress::Object;
use crate::reply::ReplyBuffer;

/// Bits of `share_access` that say which delegation is wanted.
const WANTED_BITS: u32 = 0xff00;
const WANT_READ: u32 = 0x100;
const WANT_WRITE: u32 = 0x200;
const WANT_ANY: u32 = 0x300;
const WANT_NONE: u32 = 0x400;
const WANT_CANCEL: u32 = 0x500;
/// `why_no_delegation4`.
const NOT_WANTED: u32 = 0;
const CONTENTION: u32 = 1;
const RESOURCE: u32 = 2;
const NOT_FOR_SUCH_FILES: u32 = 3;
const NO_WRITING: u32 = 4;
const NO_UPGRADE: u32 = 5;
const NO_DOWNGRADE: u32 = 6;
const CANCELLED: u32 = 7;
/// The mode's bits that make a program run as its owner or group. What is written unseen does not clear
/// them.
const SET_ID_BITS: u32 = 0o6000;
/// Whom the holder may let open the file without asking the server: nobody.
const NOBODY: Ace4<'static> = Ace4 { kind: 0, flag: 0, access_mask: 0, who: b"" };
/// How much the holder need not flush when a program closes the file (RFC 8881 §10.4.1): nothing. Linux 6.12 returns a
/// delegation before it has flushed. Where there was no limit, others then saw 65 of 134 MB that a program had written and
/// closed.
const KEPT_AT_CLOSE: SpaceLimit4 = SpaceLimit4::Size(0);

/// What a client wants of a delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    kind: Option<DelegationKind>,
    /// Why it is none, if the client wants none.
    why: u32,
    /// Whether the client said so: then it is told why it gets none.
    is_said: bool,
}

/// Reads the wishes in `share_access`. Who says nothing is given what fits its open.
///
/// # Errors
/// `Inval`.
pub(super) fn wanted(bits: u32, access: ShareAccess) -> Result<Wanted, NfsStat4> {
    let fitting = if access.contains(ShareAccess::WRITE) {
        DelegationKind::Write
    } else {
        DelegationKind::Read
    };
    let (kind, why) = match bits & WANTED_BITS {
        0 | WANT_WRITE | WANT_ANY => (Some(fitting), NOT_WANTED),
        WANT_READ => (Some(DelegationKind::Read), NOT_WANTED),
        WANT_NONE => (None, NOT_WANTED),
        WANT_CANCEL => (None, CANCELLED),
        _ => return Err(NfsStat4::Inval),
    };
    Ok(Wanted { kind, why, is_said: bits & WANTED_BITS != 0 })
}

/// What a client had of a delegation (`open_delegation_type4`).
///
/// # Errors
/// `Inval`.
pub(super) fn claimed(kind: u32) -> Result<Option<DelegationKind>, NfsStat4> {
    match kind {
        0 => Ok(None),
        1 => Ok(Some(DelegationKind::Read)),
        2 => Ok(Some(DelegationKind::Write)),
        _ => Err(NfsStat4::Inval),
    }
}

/// What of the wishes can be for the current file. May have to look at the file.
pub(super) fn possible(run: &mut Run<'_, '_>, wanted: Wanted) -> Result<Wanted, NfsStat4> {
    let is_to_write = wanted.kind == Some(DelegationKind::Write) && run.minor_version > 0;
    let gives = run.nfs4.state.settings().delegations.gives(DelegationKind::Write);
    if is_to_write && gives && has_set_id(run)? {
        return Ok(Wanted { kind: None, why: NO_WRITING, ..wanted });
    }
    Ok(wanted)
}

/// Has the current file guarded from local processes, if it may be delegated and the server delegates no others. May
/// wait for the file's disk, of which the host was told if the file `is_made` by the operation.
///
/// # Errors
/// `Delay`, if nothing was made.
pub(super) fn guard<'a>(
    run: &mut Run<'_, 'a>,
    client: &Arc<Client>,
    wanted: Wanted,
    is_made: bool,
) -> Result<(Wanted, Option<Guarded<'a>>), NfsStat4> {
    let shared: &'a Shared = run.call.shared;
    let kind = wanted.kind.filter(|_| run.minor_version > 0 && shared.local_guards.are_required());
    let Some(kind) = kind else { return Ok((wanted, None)) };
    let none = |why| Ok((Wanted { kind: None, why, ..wanted }, None));
    let (call, target) = run.stored(NfsStat4::IsDir)?;
    let place = Place::from(target);
    if let Err(why) = shared.state.prospect_of_delegation(call.now_ms, client, &place.file, kind) {
        return none(reason(why));
    }
    if shared.local_guards.cannot_guard(target.storage.domain()) {
        return none(NOT_FOR_SUCH_FILES);
    }
    if !is_made {
        call.seldom_blocks(target).map_err(super::status::status)?;
    }
    match shared.local_guards.guard(&place, kind) {
        Ok(guarded) => Ok((wanted, Some(guarded))),
        Err(FsError::TryLater) => none(CONTENTION),
        Err(FsError::NotSupported) => {
            let path = Arc::clone(&target.share.path);
            call.complaint = Some(Complaint::NotGuarded { path });
            none(NOT_FOR_SUCH_FILES)
        }
        Err(_) => none(RESOURCE),
    }
}

/// Why a client gets no delegation, as it is told.
fn reason(why: NotDelegated) -> u32 {
    match why {
        NotDelegated::Contention => CONTENTION,
        NotDelegated::Resource => RESOURCE,
        NotDelegated::Upgrade => NO_UPGRADE,
        NotDelegated::HasOne => NO_DOWNGRADE,
        NotDelegated::NotGiven => NO_WRITING,
    }
}

/// Delegates the current file, which the client has just opened, if that can be.
pub(super) fn delegate(
    run: &mut Run<'_, '_>,
    client: &Arc<Client>,
    file: FileKey,
    (wanted, guarded): (Wanted, Option<Guarded<'_>>),
) -> Result<OpenDelegation4<'static>, NfsStat4> {
    let none = |why| match (wanted.is_said, why) {
        (false, _) => OpenDelegation4::None,
        (true, CONTENTION | RESOURCE) => OpenDelegation4::NoneButTells(why, false),
        (true, _) => OpenDelegation4::NoneSince(why),
    };
    let Some(kind) = wanted.kind else { return Ok(none(wanted.why)) };
    if !run.nfs4.state.has_delegations() {
        return Ok(none(RESOURCE));
    }
    if guarded.is_none() && run.call.shared.local_guards.are_required() {
        return Ok(none(CONTENTION));
    }
    Ok(match grant(run, client, file, kind, false)? {
        Ok(granted) => {
            if let Some(guarded) = guarded {
                guarded.is_granted(run.call.now_ms);
            }
            granted
        }
        Err(why) => none(reason(why)),
    })
}

/// The stateid of what OPEN has delegated.
pub(super) fn stateid(delegated: &OpenDelegation4<'_>) -> Option<StateId> {
    match delegated {
        OpenDelegation4::Read { stateid, .. } | OpenDelegation4::Write { stateid, .. } => {
            Some(stateids::of_wire(stateid))
        }
        _ => None,
    }
}

/// Gives back the delegation that the client had before the server lost it, if that can be.
pub(super) fn reclaim(
    run: &mut Run<'_, '_>,
    client: &Arc<Client>,
    file: FileKey,
    kind: Option<DelegationKind>,
) -> Result<OpenDelegation4<'static>, NfsStat4> {
    let Some(kind) = kind else { return Ok(OpenDelegation4::None) };
    let granted = grant(run, client, file, kind, true)?;
    if granted.is_ok() {
        // What local processes have done meanwhile nobody knows.
        run.call.shared.local_guards.recall_unguarded(run.call.now_ms, &file);
    }
    Ok(granted.unwrap_or(OpenDelegation4::None))
}

fn grant(
    run: &mut Run<'_, '_>,
    client: &Arc<Client>,
    file: FileKey,
    kind: DelegationKind,
    is_reclaim: bool,
) -> Result<Result<OpenDelegation4<'static>, NotDelegated>, NfsStat4> {
    let object = run.current()?;
    let handle = sealed(run, &object);
    let request = Delegate { file, kind, handle: handle.as_bytes(), is_reclaim };
    let granted = run.nfs4.state.grant_delegation(run.call.now_ms, client, &request);
    if let (Ok(granted), DelegationKind::Write, false) = (&granted, kind, is_reclaim) {
        note_given_change(run, &file, &granted.id());
    }
    Ok(granted.map(|granted| {
        let StateId { seqid, other } = granted.id();
        run.is_granted(granted);
        let (stateid, recall, permissions) = (StateId4 { seqid, other }, false, NOBODY);
        match kind {
            DelegationKind::Read => OpenDelegation4::Read { stateid, recall, permissions },
            DelegationKind::Write => {
                OpenDelegation4::Write { stateid, recall, space_limit: KEPT_AT_CLOSE, permissions }
            }
        }
    }))
}

/// Notes which change attribute the client gets with its delegation: from now on nobody else changes the file. If it
/// cannot be known now, the client's answers are compared with what the storage has at their time only.
fn note_given_change(run: &mut Run<'_, '_>, file: &FileKey, id: &StateId) {
    let state = &run.nfs4.state;
    let Ok((_, target)) = run.stored(NfsStat4::IsDir) else { return };
    let caller = Caller::new(&target.cred, Waiting::Never);
    if let Ok(attr) = target.storage.attributes(&caller, &target.handle) {
        state.change_is_given(file, id, fattr::change(&attr));
    }
}

fn has_set_id(run: &mut Run<'_, '_>) -> Result<bool, NfsStat4> {
    let (call, target) = run.stored(NfsStat4::IsDir)?;
    let attr = call.read(target, |caller| target.storage.attributes(caller, &target.handle));
    Ok(attr.map_or(true, |attr| attr.mode & SET_ID_BITS != 0))
}

pub(super) struct DelegReturn;

impl Op for DelegReturn {
    const NUMBER: Op4 = Op4::DelegReturn;
    const NAME: &'static str = "DELEGRETURN";
    // Nothing, but what cannot be told must not be done.
    const RESULT_BYTES_MAX: usize = 4;
    type Arguments<'a> = DelegReturn4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &DelegReturn4Args,
        _: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let id = given(run, &arguments.stateid)?;
        let object = run.current()?;
        if run.minor_version == 0 {
            // Its clients are given none.
            return Err(NfsStat4::BadStateId);
        }
        let client = Arc::clone(run.client()?);
        // Who returns one of a file that is gone, or that he may not use any more, returns it all the
        // same.
        let file = match object {
            Object::Node(_) => return Err(NfsStat4::BadStateId),
            Object::Stored(..) => {
                run.stored(NfsStat4::BadStateId).ok().map(|(_, target)| file_key(target))
            }
        };
        run.begin_state();
        run.nfs4.state.return_delegation(&client, &id, file.as_ref()).or_status()?;
        run.progress.has_made_state = true;
        Ok(())
    }
}
