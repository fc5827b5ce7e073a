//! OPEN, CLOSE, `OPEN_DOWNGRADE` (RFC 8881 §18.2, §18.16, §18.18): for reading, of files that are
//! there.

use std::sync::Arc;

use steadfast_state::{ShareAccess, ShareDeny, StateId};
use steadfast_vfs::{AccessMask, Attr, FileKind};
use steadfast_wire::nfs4::{
    Bitmap4, Close4Args, NfsStat4, Op4, Open4Args, OpenClaim4, OpenDowngrade4Args, OpenHow4,
};
use steadfast_xdr::{Encode, Writer};

use super::fattr;
use super::names::look_up;
use super::stateids::{self, file_key, given};
use super::status::OrStatus;
use crate::call::{Call, Target};
use crate::compound::{Object, Op, Run};
use crate::reply::ReplyBuffer;

/// Bits of `share_access` that say what the file is opened for.
const ACCESS_BITS: u32 = 0x3;
/// Those that say which delegation is wanted, and when (RFC 8881 §18.16.1).
const WANT_BITS: u32 = 0x3_ff00;
/// Locks are as POSIX has them.
const RESULT_LOCKTYPE_POSIX: u32 = 0x4;
/// Bytes of OPEN's result behind its status, without attributes that were set and a delegation.
const OPENED_BYTES: usize = 48;
/// No delegation.
const DELEGATE_NONE: u32 = 0;

/// What of a file a client opens.
fn share_access(bits: u32) -> Result<ShareAccess, NfsStat4> {
    if bits & !(ACCESS_BITS | WANT_BITS) != 0 {
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

/// Whether an object may be opened for reading. Whoever may execute a program must be able to
/// read it; that a file's owner may read it, the storage knows.
fn may_read(call: &mut Call<'_>, target: &Target<'_>) -> Result<Attr, NfsStat4> {
    let wanted = AccessMask::READ | AccessMask::EXECUTE;
    let access = call.read(target, |caller| target.storage.access(caller, &target.handle, wanted));
    let (granted, attr) = access.or_status()?;
    match attr.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(NfsStat4::IsDir),
        FileKind::Symlink => return Err(NfsStat4::SymLink),
        _ => return Err(NfsStat4::WrongType),
    }
    let is_owner = attr.uid == target.cred.uid;
    if granted.is_empty() && !is_owner { Err(NfsStat4::Access) } else { Ok(attr) }
}

pub(super) struct Open;

impl Op for Open {
    const NUMBER: Op4 = Op4::Open;
    const NAME: &'static str = "OPEN";
    type Arguments<'a> = Open4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Open4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let access = share_access(arguments.share_access)?;
        let deny = share_deny(arguments.share_deny)?;
        run.current()?;
        // Who has not said that nothing is left to reclaim may get nothing new (RFC 8881 §18.51.3).
        let is_reclaim = matches!(arguments.claim, OpenClaim4::Previous(_));
        if !is_reclaim && !run.client()?.has_completed_reclaim() {
            return Err(NfsStat4::Grace);
        }
        let mut dir_attr = None;
        match &arguments.claim {
            OpenClaim4::Null(name) => {
                if let Object::Node(_) = run.current()? {
                    look_up(run, name)?;
                    return Err(NfsStat4::IsDir);
                }
                let found = look_up(run, name);
                let found = match (found, &arguments.openhow) {
                    (Err(NfsStat4::NoEnt), OpenHow4::NoCreate) => return Err(NfsStat4::NoEnt),
                    // It would have to be made.
                    (Err(NfsStat4::NoEnt), _) => return Err(NfsStat4::RoFs),
                    (found, _) => found?,
                };
                match arguments.openhow {
                    OpenHow4::NoCreate => {}
                    OpenHow4::Guarded(_) => return Err(NfsStat4::Exist),
                    OpenHow4::Unchecked(set) if set.attrmask.is_empty() => {}
                    OpenHow4::Unchecked(_) | OpenHow4::Exclusive(_) | OpenHow4::Exclusive41(..) => {
                        return Err(NfsStat4::RoFs);
                    }
                }
                dir_attr = found;
            }
            OpenClaim4::Fh if arguments.openhow == OpenHow4::NoCreate => {}
            OpenClaim4::Fh => return Err(NfsStat4::Inval),
            // State is not lost as long as the server runs, and when it is there is no grace yet.
            OpenClaim4::Previous(_) => return Err(NfsStat4::NoGrace),
            // There are no delegations.
            OpenClaim4::DelegateCur(..) | OpenClaim4::DelegCurFh(_) => {
                return Err(NfsStat4::Inval);
            }
            OpenClaim4::DelegatePrev(_) | OpenClaim4::DelegPrevFh => {
                return Err(NfsStat4::NotSupp);
            }
        }
        run.require_room(reply, OPENED_BYTES)?;
        run.stored(NfsStat4::IsDir)?;
        if access.contains(ShareAccess::WRITE) {
            return Err(NfsStat4::RoFs);
        }
        let client = Arc::clone(run.client()?);
        let state = &run.nfs4.state;
        let (call, target) = run.stored(NfsStat4::IsDir)?;
        let attr = may_read(call, target)?;
        let file = file_key(target);
        let request = steadfast_state::Open { owner: arguments.owner, file, access, deny };
        let id = state.open(&client, &request).or_status()?;
        run.progress.has_made_state = true;
        run.progress.current.stateid = Some(id);
        let mut w = Writer::new(&mut reply.bytes);
        stateids::encode(&mut w, &id);
        // Nothing was made: the directory is as it was.
        let change = fattr::change(dir_attr.as_ref().unwrap_or(&attr));
        let is_atomic = true;
        w.bool(is_atomic);
        w.u64(change);
        w.u64(change);
        w.u32(RESULT_LOCKTYPE_POSIX);
        Bitmap4::EMPTY.encode(&mut w);
        w.u32(DELEGATE_NONE);
        Ok(())
    }
}

pub(super) struct Close;

impl Op for Close {
    const NUMBER: Op4 = Op4::Close;
    const NAME: &'static str = "CLOSE";
    type Arguments<'a> = Close4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Close4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let id = given(run, &arguments.open_stateid)?;
        let client = Arc::clone(run.client()?);
        // Who closes what is gone, or what he may not use any more, closes it all the same.
        let file = match run.current()? {
            Object::Node(_) => return Err(NfsStat4::BadStateId),
            Object::Stored(..) => {
                run.stored(NfsStat4::BadStateId).ok().map(|(_, target)| file_key(target))
            }
        };
        run.nfs4.state.close(&client, &id, file.as_ref()).or_status()?;
        run.progress.has_made_state = true;
        run.progress.current.stateid = None;
        // A stateid that nobody may use again (RFC 8881 §18.2.4).
        stateids::encode(&mut Writer::new(&mut reply.bytes), &StateId::INVALID);
        Ok(())
    }
}

pub(super) struct OpenDowngrade;

impl Op for OpenDowngrade {
    const NUMBER: Op4 = Op4::OpenDowngrade;
    const NAME: &'static str = "OPEN_DOWNGRADE";
    type Arguments<'a> = OpenDowngrade4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &OpenDowngrade4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let access = share_access(arguments.share_access)?;
        let deny = share_deny(arguments.share_deny)?;
        let id = given(run, &arguments.open_stateid)?;
        let client = Arc::clone(run.client()?);
        let state = &run.nfs4.state;
        let (_, target) = run.stored(NfsStat4::BadStateId)?;
        let id = state.downgrade(&client, &id, &file_key(target), access, deny).or_status()?;
        run.progress.has_made_state = true;
        run.progress.current.stateid = Some(id);
        stateids::encode(&mut Writer::new(&mut reply.bytes), &id);
        Ok(())
    }
}
