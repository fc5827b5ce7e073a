//! OPEN, CLOSE, `OPEN_DOWNGRADE` (RFC 8881 §18.2, §18.16, §18.18).

use std::sync::Arc;

use steadfast_state::{
    Client, Granted, OwnerInUse, Repeats, ShareAccess, ShareDeny, StateError, StateId,
};
use steadfast_vfs::{AccessMask, Attr, CreateHow, FileKind, FsError, PreAttr, SetAttr, Wcc};
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, Close4Args, NfsStat4, Op4, Open4Args, OpenClaim4, OpenDelegation4,
    OpenDowngrade4Args, OpenHow4,
};
use steadfast_xdr::{Encode, Writer};

use super::changing::{self, change_info};
use super::delegations;
use super::fattr_decode::{ToSet, decode_new, settable_by_exclusive};
use super::idmap::to_set;
use super::names::{self, look_up};
use super::stateids::{self, client_named, client_of, file_key, given};
use super::status::{OrStatus, status_of_state};
use super::wishes::{self, ACCESS_BITS, WANT_OPEN_XOR_DELEGATION};
use super::{owners, reclaim, setting};
use crate::call::{Call, Target};
use crate::compound::{Op, Run};
use crate::progress::{Object, Told};
use crate::reply::ReplyBuffer;

/// The owner has to confirm it (RFC 7530 §16.16.2).
const RESULT_CONFIRM: u32 = 0x2;
/// Locks are as POSIX has them.
const RESULT_LOCKTYPE_POSIX: u32 = 0x4;
/// There is a delegation, and no open (RFC 9754 §4).
const RESULT_NO_OPEN_STATEID: u32 = 0x10;
/// Who waits for a lock of the file is told when it is free (`CB_NOTIFY_LOCK`).
const RESULT_MAY_NOTIFY_LOCK: u32 = 0x20;
/// The times that an exclusive create sets to its verifier.
const TIMES: Bitmap4 = Bitmap4::of(&[Attribute4::TimeAccess, Attribute4::TimeModify]);

/// What of a file a client opens. Minor version 0 has no wishes for delegations.
fn share_access(bits: u32, minor_version: u32) -> Result<ShareAccess, NfsStat4> {
    if bits & !wishes::known_bits(minor_version) != 0 {
        return Err(NfsStat4::Inval);
    }
    match ShareAccess::from_bits_truncate((bits & ACCESS_BITS) as u8) {
        access if access.is_empty() => Err(NfsStat4::Inval),
        access => Ok(access),
    }
}

fn share_deny(bits: u32) -> Result<ShareDeny, NfsStat4> {
    u8::try_from(bits).ok().and_then(ShareDeny::from_bits).ok_or(NfsStat4::Inval)
}

/// Whether a file that is there may be opened. Whoever may execute a program must be able to read
/// it. The owner has no more than the mode gives him: clients leave that to OPEN.
/// What he reclaims he may have opened by making the file, whatever its mode.
fn may_open(
    call: &mut Call<'_>,
    target: &Target<'_>,
    access: ShareAccess,
    is_reclaim: bool,
) -> Result<(), NfsStat4> {
    let reads = AccessMask::READ | AccessMask::EXECUTE;
    let granted = call.read(target, |caller| {
        target.storage.access(caller, &target.handle, reads | AccessMask::MODIFY)
    });
    let (granted, attr) = granted.or_status()?;
    match attr.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(NfsStat4::IsDir),
        FileKind::Symlink => return Err(NfsStat4::SymLink),
        _ => return Err(NfsStat4::WrongType),
    }
    if access.contains(ShareAccess::WRITE) && target.rights.is_read_only {
        return Err(NfsStat4::RoFs);
    }
    if is_reclaim && attr.uid == target.cred.uid {
        return Ok(());
    }
    let lacks_reading = access.contains(ShareAccess::READ) && !granted.intersects(reads);
    let lacks_writing =
        access.contains(ShareAccess::WRITE) && !granted.contains(AccessMask::MODIFY);
    if lacks_reading || lacks_writing { Err(NfsStat4::Access) } else { Ok(()) }
}

/// What OPEN found or made; it is the current object.
struct Opened {
    /// How the directory changed.
    wcc: Wcc,
    /// Attributes of the file that were set.
    set: Bitmap4,
    /// Whether the file was made, so that its mode says nothing about this open.
    is_made: bool,
    /// Whether the file, which was there, is to be cut.
    is_to_be_cut: bool,
}

impl Opened {
    /// A file that was there, in a directory that is as it was.
    fn found(dir_attr: Option<&Attr>, is_to_be_cut: bool) -> Self {
        let wcc = Wcc { before: dir_attr.map(PreAttr::from), after: dir_attr.copied() };
        Self { wcc, set: Bitmap4::EMPTY, is_made: false, is_to_be_cut }
    }
}

/// Why no file is made where nothing can be, or a directory of the pseudo file system is not opened. Who wants a
/// new file is told first that there is something by its name.
fn not_made(run: &mut Run<'_, '_>, name: &[u8], how: &OpenHow4<'_>) -> NfsStat4 {
    match (look_up(run, name), how) {
        (Ok(_), OpenHow4::NoCreate | OpenHow4::Unchecked(_)) => NfsStat4::IsDir,
        (Ok(_), _) => NfsStat4::Exist,
        (Err(NfsStat4::NoEnt), OpenHow4::NoCreate) => NfsStat4::NoEnt,
        (Err(NfsStat4::NoEnt), _) => NfsStat4::RoFs,
        (Err(status), _) => status,
    }
}

/// Finds the file of a name, or makes it.
fn find_or_make(
    run: &mut Run<'_, '_>,
    name: &[u8],
    how: &OpenHow4<'_>,
) -> Result<Opened, NfsStat4> {
    let (attributes, verifier) = match how {
        OpenHow4::NoCreate => {
            let dir_attr = look_up(run, name)?;
            return Ok(Opened::found(dir_attr.as_ref(), false));
        }
        OpenHow4::Unchecked(attributes) | OpenHow4::Guarded(attributes) => (Some(attributes), None),
        OpenHow4::Exclusive(verifier) => (None, Some(*verifier)),
        OpenHow4::Exclusive41(verifier, attributes) => (Some(attributes), Some(*verifier)),
    };
    let minor = run.minor_version;
    let ToSet { attributes: mut set, acl } =
        attributes.map(|set| to_set(run, set, decode_new)).transpose()?.unwrap_or_default();
    let mask = attributes.map_or(Bitmap4::EMPTY, |attributes| attributes.attrmask);
    if verifier.is_some() && !mask.without(&settable_by_exclusive(minor)).is_empty() {
        return Err(NfsStat4::Inval);
    }
    let is_unchecked = matches!(how, OpenHow4::Unchecked(_));
    let before = run.made_before();
    if is_unchecked && before.is_none() {
        let dir = run.progress.current;
        match look_up(run, name) {
            Ok(dir_attr) => return Ok(Opened::found(dir_attr.as_ref(), set.size == Some(0))),
            Err(NfsStat4::NoEnt) => run.set_current_place(dir),
            Err(status) => return Err(status),
        }
    }
    if !is_unchecked && before.is_none() && run.stored(NfsStat4::RoFs)?.1.rights.is_read_only {
        return Err(not_made(run, name, how));
    }
    let name = names::name(name)?;
    let (_, dir) = changing::stored(run)?;
    let lists = match &acl {
        None => None,
        Some(entries) => {
            let lists = setting::meant_of_new(dir, entries, &set, false)?;
            set = setting::without_permissions(&set);
            Some(lists)
        }
    };
    let how = match verifier {
        Some(verifier) => {
            let (mode, umask) = (set.mode.unwrap_or(0), set.umask);
            CreateHow::Exclusive { verifier, mode, umask }
        }
        None => CreateHow::Guarded(set),
    };
    let share = dir.share.id;
    let (handle, wcc) = if let Some(handle) = before {
        (handle, changing::as_it_is(dir))
    } else {
        let mut made = None;
        let promised = dir
            .storage
            .create(&dir.caller(), &dir.handle, name, &how)
            .map(|changed| made = Some((changed.result, changed.wcc)));
        run.promise(promised);
        let (result, wcc) = made.ok_or(NfsStat4::ServerFault)?;
        let entry = result.map_err(|error| match error {
            // Somebody made it since it was looked up.
            FsError::Exists if is_unchecked => NfsStat4::Delay,
            error => super::status::status(error),
        })?;
        (entry.handle, wcc)
    };
    run.set_current(Object::Stored(share, handle));
    let owners = SetAttr { uid: set.uid, gid: set.gid, ..SetAttr::default() };
    if verifier.is_some() && !owners.is_empty() {
        let (_, file) = changing::stored(run)?;
        let mut result = Ok(());
        let promised = file
            .storage
            .set_attributes(&file.caller(), &file.handle, &owners, None)
            .map(|changed| result = changed.result);
        run.promise(promised);
        result.or_status()?;
    }
    if let Some(lists) = &lists {
        setting::set_acls(run, lists)?;
    }
    // The verifier is kept in the times: a client sets them afterwards if it is told so.
    let set = if verifier.is_some() { mask.or(&TIMES) } else { mask };
    Ok(Opened { wcc, set, is_made: true, is_to_be_cut: false })
}

pub(super) struct Open;

impl Op for Open {
    const NUMBER: Op4 = Op4::Open;
    const NAME: &'static str = "OPEN";
    const RESULT_BYTES_MAX: usize = 160;
    type Arguments<'a> = Open4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Open4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        run.current()?;
        let client = client_named(run, arguments.clientid)?;
        if run.minor_version > 0 {
            // Who has not said that nothing is left to reclaim may get nothing new (RFC 8881
            // §18.51.3).
            let is_reclaim = matches!(arguments.claim, OpenClaim4::Previous(_));
            if !is_reclaim && !client.has_completed_reclaim() {
                return Err(NfsStat4::Grace);
            }
            return open(run, arguments, &client, None, reply);
        }
        if is_of_later_versions(arguments) {
            return Err(NfsStat4::BadXdr);
        }
        let request = owners::request_here(run, Self::NUMBER, arguments.seqid, arguments);
        let state = &run.nfs4.state;
        owners::in_sequence(
            run,
            reply,
            |_| state.begin_open(&client, arguments.owner, &request).or_status(),
            |run, reply, owner| open(run, arguments, &client, Some(owner), reply),
        )
    }
}

/// Whether an OPEN says what minor version 0 does not know.
fn is_of_later_versions(arguments: &Open4Args<'_>) -> bool {
    let is_claim = matches!(
        arguments.claim,
        OpenClaim4::Fh | OpenClaim4::DelegCurFh(_) | OpenClaim4::DelegPrevFh
    );
    is_claim || matches!(arguments.openhow, OpenHow4::Exclusive41(..))
}

/// Finds or makes the file that is to be opened.
fn claimed(run: &mut Run<'_, '_>, arguments: &Open4Args<'_>) -> Result<Opened, NfsStat4> {
    match &arguments.claim {
        OpenClaim4::Null(name) => {
            if let Object::Node(_) = run.current()? {
                return Err(not_made(run, name, &arguments.openhow));
            }
            find_or_make(run, name, &arguments.openhow)
        }
        OpenClaim4::Fh if arguments.openhow == OpenHow4::NoCreate => Ok(Opened::found(None, false)),
        OpenClaim4::Previous(delegation) if arguments.openhow == OpenHow4::NoCreate => {
            if run.minor_version == 0 {
                reclaim::require_no_delegation(*delegation)?;
            }
            Ok(Opened::found(None, false))
        }
        OpenClaim4::DelegateCur(_, name)
            if arguments.openhow == OpenHow4::NoCreate && run.minor_version > 0 =>
        {
            let dir_attr = look_up(run, name)?;
            Ok(Opened::found(dir_attr.as_ref(), false))
        }
        OpenClaim4::DelegCurFh(_) if arguments.openhow == OpenHow4::NoCreate => {
            Ok(Opened::found(None, false))
        }
        // Minor version 0 has no delegations; and what has a handle is not made.
        OpenClaim4::Fh
        | OpenClaim4::Previous(_)
        | OpenClaim4::DelegateCur(..)
        | OpenClaim4::DelegCurFh(_) => Err(NfsStat4::Inval),
        OpenClaim4::DelegatePrev(_) | OpenClaim4::DelegPrevFh => Err(NfsStat4::NotSupp),
    }
}

/// The delegation by which a file is opened, which is the current object.
fn by_delegation(
    run: &mut Run<'_, '_>,
    claim: &OpenClaim4<'_>,
    client: &Arc<Client>,
    access: ShareAccess,
) -> Result<Option<StateId>, NfsStat4> {
    let (OpenClaim4::DelegateCur(id, _) | OpenClaim4::DelegCurFh(id)) = claim else {
        return Ok(None);
    };
    let id = given(run, id)?;
    let state = &run.nfs4.state;
    let (_, target) = run.stored(NfsStat4::IsDir)?;
    let file = file_key(target);
    // Linux would ask for ever after BAD_STATEID of a delegation that is good for another file.
    match state.judge_by_delegation(client, &id, &file, access) {
        Err(StateError::BadStateId) if state.test(client, &id).is_ok() => Err(NfsStat4::Inval),
        judged => judged.or_status().map(|()| Some(id)),
    }
}

/// OPEN for a client; in minor version 0, in the sequence of its owner. What fails leaves nothing open.
fn open(
    run: &mut Run<'_, '_>,
    arguments: &Open4Args<'_>,
    client: &Arc<Client>,
    owner: Option<&OwnerInUse>,
    reply: &mut ReplyBuffer,
) -> Result<(), NfsStat4> {
    let opened = match finish_before(run, client, reply) {
        None => find_and_open(run, arguments, client, owner, reply),
        Some(finished) => finished,
    };
    if let Err(status) = opened {
        run.take_back(status, reply);
    }
    opened
}

/// Does what is left of an OPEN that the process before this one has granted: the file is to be cut. `None` if
/// it has granted nothing.
fn finish_before(
    run: &mut Run<'_, '_>,
    client: &Arc<Client>,
    reply: &mut ReplyBuffer,
) -> Option<Result<(), NfsStat4>> {
    let bytes = run.told_before()?;
    let told = Told::decode(&bytes);
    if let Some((added, file)) = told.granted {
        if !run.has_grants() {
            let id = file.stateid;
            let granted = id.and_then(|id| run.nfs4.state.granted_before(client, id, added));
            let Some(granted) = granted else {
                run.forget_told();
                return None;
            };
            run.is_granted(granted);
            let delegated = told.delegation;
            let delegated = delegated.and_then(|id| run.nfs4.state.delegated_before(client, id));
            if let Some(delegated) = delegated {
                run.is_granted(delegated);
            }
        }
        run.set_current_place(file);
    }
    Some(changing::begin(run).and_then(|_change| {
        cut(run)?;
        reply.bytes.extend_from_slice(told.result);
        Ok(())
    }))
}

/// Which OPENs may ask again for what their owner has.
fn repeats(run: &Run<'_, '_>, is_reclaim: bool) -> Repeats {
    match run.minor_version {
        _ if is_reclaim => Repeats::Reclaim,
        // From minor version 1 on what a request has done is known by its slot.
        0 => Repeats::AfterRestart,
        _ => Repeats::None,
    }
}

fn find_and_open(
    run: &mut Run<'_, '_>,
    arguments: &Open4Args<'_>,
    client: &Arc<Client>,
    owner: Option<&OwnerInUse>,
    reply: &mut ReplyBuffer,
) -> Result<(), NfsStat4> {
    let access = share_access(arguments.share_access, run.minor_version)?;
    let deny = share_deny(arguments.share_deny)?;
    let wanted = delegations::wanted(arguments.share_access, access)?;
    let (is_reclaim, reclaimed) = match arguments.claim {
        OpenClaim4::Previous(kind) => (true, delegations::claimed(kind)?),
        _ => (false, None),
    };
    reclaim::admit(run, client, is_reclaim)?;
    let opened = claimed(run, arguments)?;
    let state = &run.nfs4.state;
    let delegation = by_delegation(run, &arguments.claim, client, access)?;
    let reclaimed = reclaim::delegation_of(run, client, (access, deny), (is_reclaim, reclaimed))?;
    let (call, target) = run.stored(NfsStat4::IsDir)?;
    if !opened.is_made {
        let access = if opened.is_to_be_cut { access | ShareAccess::WRITE } else { access };
        may_open(call, target, access, is_reclaim || delegation.is_some())?;
    }
    let file = file_key(target);
    let request = steadfast_state::Open { owner: arguments.owner, file, access, deny };
    let repeats = repeats(run, is_reclaim);
    let refused = |error| reclaim::status_of(error, is_reclaim);
    if opened.is_to_be_cut {
        // What is denied anyhow must not have delegations recalled.
        state.judge_open(client, &request, repeats).map_err(refused)?;
    }
    let _change = if opened.is_to_be_cut { Some(changing::begin(run)?) } else { None };
    if opened.is_to_be_cut {
        // Before state is made, which must not be made twice: cutting may have to wait.
        changing::stored(run)?;
    }
    // State is not noted while a disk is waited for.
    let wanted = delegations::possible(run, wanted)?;
    // What is being cut is not delegated: it is being changed.
    let wanted = if is_reclaim || delegation.is_some() || opened.is_to_be_cut {
        (wanted, None)
    } else {
        delegations::guard(run, client, wanted, opened.is_made)?
    };
    run.begin_state();
    let mut granted = state.grant_open(client, &request, repeats).map_err(|error| {
        if error == StateError::Recalling {
            run.call.awaits_recall(&file);
        }
        refused(error)
    })?;
    let mut flags = RESULT_LOCKTYPE_POSIX;
    if let Some(owner) = owner.filter(|owner| state.opened(owner, &granted.id())) {
        if is_reclaim {
            // It was confirmed before (RFC 7530 §9.1.11).
            match state.confirm_open(owner, &granted.id(), &file) {
                Ok(id) => granted.follow(id),
                Err(error) => {
                    state.take_back(granted);
                    return Err(status_of_state(error));
                }
            }
        } else {
            flags |= RESULT_CONFIRM;
        }
    }
    let (mut id, added) = (granted.id(), granted.added());
    // What the owner had open already stays, and is told. To deny something takes an open.
    let may_be_left_out = arguments.share_access & WANT_OPEN_XOR_DELEGATION != 0
        && granted.is_new_open()
        && deny.is_empty()
        && !opened.is_to_be_cut;
    let left_out = if may_be_left_out {
        Some(granted)
    } else {
        run.is_granted(granted);
        None
    };
    // Who is told so asks seldom by itself.
    if client.has_callback_path() {
        flags |= RESULT_MAY_NOTIFY_LOCK;
    }
    let set = if opened.is_to_be_cut { Bitmap4::of(&[Attribute4::Size]) } else { opened.set };
    run.progress.current.stateid = Some(id);
    let delegated = if is_reclaim {
        delegations::reclaim(run, client, file, reclaimed)
    } else if run.minor_version == 0 || delegation.is_some() {
        Ok(OpenDelegation4::None)
    } else {
        delegations::delegate(run, client, file, wanted)
    };
    if let Some(open) = left_out
        && let Some(stands_for_it) = leave_out(run, open, access, delegated.as_ref().ok())
    {
        flags |= RESULT_NO_OPEN_STATEID;
        id = StateId::ANONYMOUS;
        run.progress.current.stateid = Some(stands_for_it);
    }
    let delegated = delegated?;
    let told_at = reply.bytes.len();
    let mut w = Writer::new(&mut reply.bytes);
    stateids::encode(&mut w, &id);
    change_info(&mut w, &opened.wcc);
    w.u32(flags);
    set.encode(&mut w);
    delegated.encode(&mut w);
    if opened.is_to_be_cut {
        run.end_state((added, delegations::stateid(&delegated)), told_at, reply);
        cut(run)?;
    }
    Ok(())
}

/// Ends the open that was granted, if what is delegated stands for it: the stateid of that. Else it stays.
fn leave_out(
    run: &mut Run<'_, '_>,
    open: Granted,
    access: ShareAccess,
    delegated: Option<&OpenDelegation4<'_>>,
) -> Option<StateId> {
    let is_enough = match delegated {
        // Reclaims may have an open to write beside it.
        Some(OpenDelegation4::Read { .. }) => !access.contains(ShareAccess::WRITE),
        Some(OpenDelegation4::Write { .. }) => true,
        _ => false,
    };
    let left = if is_enough { run.nfs4.state.leave_out(open) } else { Some(open) };
    if let Some(open) = left {
        run.is_granted(open);
        return None;
    }
    delegated.and_then(delegations::stateid)
}

/// Cuts the current file, which was opened.
fn cut(run: &mut Run<'_, '_>) -> Result<(), NfsStat4> {
    let (_, file) = changing::stored(run)?;
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    let mut result = Ok(());
    let promised = file
        .storage
        .set_attributes(&file.caller(), &file.handle, &set, None)
        .map(|changed| result = changed.result);
    run.promise(promised);
    result.or_status()
}

pub(super) struct Close;

impl Op for Close {
    const NUMBER: Op4 = Op4::Close;
    const NAME: &'static str = "CLOSE";
    const RESULT_BYTES_MAX: usize = 16;
    type Arguments<'a> = Close4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Close4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let id = given(run, &arguments.open_stateid)?;
        run.current()?;
        let client = client_of(run, &id)?;
        if run.minor_version > 0 {
            close(run, &client, &id)?;
            // A stateid that nobody may use again (RFC 8881 §18.2.4).
            stateids::encode(&mut Writer::new(&mut reply.bytes), &StateId::INVALID);
            return Ok(());
        }
        let request = owners::request(Self::NUMBER, arguments.seqid, arguments);
        let state = &run.nfs4.state;
        owners::in_sequence(
            run,
            reply,
            |_| state.begin_by_open(&client, &id, &request, false).or_status(),
            |run, reply, owner| {
                close(run, &client, &id)?;
                state.closed(owner, &id);
                stateids::encode(&mut Writer::new(&mut reply.bytes), &id.closed());
                Ok(())
            },
        )
    }
}

fn close(run: &mut Run<'_, '_>, client: &Arc<Client>, id: &StateId) -> Result<(), NfsStat4> {
    // Who closes what is gone, or what he may not use any more, closes it all the same.
    let file = match run.current()? {
        Object::Node(_) => return Err(NfsStat4::BadStateId),
        Object::Stored(..) => {
            run.stored(NfsStat4::BadStateId).ok().map(|(_, target)| file_key(target))
        }
    };
    run.begin_state();
    run.nfs4.state.close(client, id, file.as_ref()).or_status()?;
    run.progress.has_made_state = true;
    run.progress.current.stateid = None;
    Ok(())
}

pub(super) struct OpenDowngrade;

impl Op for OpenDowngrade {
    const NUMBER: Op4 = Op4::OpenDowngrade;
    const NAME: &'static str = "OPEN_DOWNGRADE";
    const RESULT_BYTES_MAX: usize = 16;
    type Arguments<'a> = OpenDowngrade4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &OpenDowngrade4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let id = given(run, &arguments.open_stateid)?;
        run.current()?;
        let client = client_of(run, &id)?;
        if run.minor_version > 0 {
            return downgrade(run, arguments, &client, &id, reply);
        }
        let request = owners::request(Self::NUMBER, arguments.seqid, arguments);
        let state = &run.nfs4.state;
        owners::in_sequence(
            run,
            reply,
            |_| state.begin_by_open(&client, &id, &request, false).or_status(),
            |run, reply, _| downgrade(run, arguments, &client, &id, reply),
        )
    }
}

fn downgrade(
    run: &mut Run<'_, '_>,
    arguments: &OpenDowngrade4Args,
    client: &Arc<Client>,
    id: &StateId,
    reply: &mut ReplyBuffer,
) -> Result<(), NfsStat4> {
    let access = share_access(arguments.share_access, run.minor_version)?;
    let deny = share_deny(arguments.share_deny)?;
    let state = &run.nfs4.state;
    let (_, target) = run.stored(NfsStat4::BadStateId)?;
    let file = file_key(target);
    run.begin_state();
    let granted = run.progress.grants.all();
    let id = state.downgrade_granted(client, id, &file, (access, deny), &granted).or_status()?;
    run.progress.has_made_state = true;
    run.progress.current.stateid = Some(id);
    stateids::encode(&mut Writer::new(&mut reply.bytes), &id);
    Ok(())
}
