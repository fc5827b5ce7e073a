//! Owners of minor version 0: their requests follow each other by sequence ids (RFC 7530 §9.1.7).
//! `OPEN_CONFIRM` and `RELEASE_LOCKOWNER` (§16.18, §16.37).

use steadfast_shares::ShareId;
use steadfast_state::{OwnerBegun, OwnerInUse, OwnerReply, OwnerRequest};
use steadfast_wire::nfs4::{NfsStat4, Op4, OpenConfirm4Args, ReleaseLockOwner4Args};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

use super::stateids::{self, file_key, of_wire};
use super::status::{self, OrStatus};
use crate::compound::{Op, Run};
use crate::progress::Object;
use crate::reply::ReplyBuffer;
use crate::reply_cache::digest_of;

/// An operation's place in the sequence of an owner.
pub(super) fn request(operation: Op4, seqid: u32, arguments: &impl Encode) -> OwnerRequest {
    let mut bytes = Vec::new();
    arguments.encode(&mut Writer::new(&mut bytes));
    let (operation, digest, earlier_digest) = (operation as u32, digest_of(&bytes), None);
    OwnerRequest { seqid, operation, digest, earlier_digest }
}

/// As [`request`], of an operation that acts on the current object, which its arguments do not name: with
/// another object it is another request.
pub(super) fn request_here(
    run: &Run<'_, '_>,
    operation: Op4,
    seqid: u32,
    arguments: &impl Encode,
) -> OwnerRequest {
    let request = request(operation, seqid, arguments);
    let mut bytes = request.digest.to_be_bytes().to_vec();
    match &run.progress.current.object {
        Some(Object::Stored(share, handle)) => {
            bytes.extend_from_slice(&share.0.to_be_bytes());
            bytes.extend_from_slice(handle.as_bytes());
        }
        Some(Object::Node(key)) => bytes.extend_from_slice(&key.0),
        None => {}
    }
    // A reply that was kept before the object counted is still that of its request.
    let earlier_digest = Some(request.digest);
    OwnerRequest { digest: digest_of(&bytes), earlier_digest, ..request }
}

/// Whether an operation that ended so has used its sequence id (§9.1.7).
pub(super) fn uses_sequence(status: NfsStat4) -> bool {
    !matches!(
        status::of_minor_0(status),
        NfsStat4::StaleClientId
            | NfsStat4::StaleStateId
            | NfsStat4::BadStateId
            | NfsStat4::BadSeqId
            | NfsStat4::BadXdr
            | NfsStat4::Resource
            | NfsStat4::NoFileHandle
            | NfsStat4::Moved
    )
}

/// Executes an operation in the sequence of the owner that `begin` finds. Its repetition gets the same
/// result, and is not executed.
///
/// # Errors
/// Those of `begin` and of `execute`.
pub(super) fn in_sequence(
    run: &mut Run<'_, '_>,
    reply: &mut ReplyBuffer,
    begin: impl FnOnce(&mut Run<'_, '_>) -> Result<OwnerBegun, NfsStat4>,
    execute: impl FnOnce(&mut Run<'_, '_>, &mut ReplyBuffer, &OwnerInUse) -> Result<(), NfsStat4>,
) -> Result<(), NfsStat4> {
    // An operation that had to wait has begun before.
    let owner = match run.progress.owner.take() {
        Some(owner) => owner,
        None => match begin(run)? {
            OwnerBegun::New(owner) => owner,
            OwnerBegun::Again(kept) => return repeat(run, kept, reply),
        },
    };
    let start = reply.bytes.len();
    let result = execute(run, reply, &owner);
    match result {
        Ok(()) => {
            let object = match run.progress.current.object {
                Some(Object::Stored(share, handle)) => Some((share.0, handle)),
                _ => None,
            };
            let result = reply.bytes.get(start..).unwrap_or(&[]).into();
            let answered = owner.finish(OwnerReply { status: NfsStat4::Ok as u32, result, object });
            run.progress.grants.answered(run.progress.done, answered);
        }
        Err(status) if run.is_to_wait(status) => run.progress.owner = Some(owner),
        Err(status) if uses_sequence(status) => {
            let result = run.failure.as_slice().into();
            owner.finish(OwnerReply { status: status as u32, result, object: None });
        }
        Err(_) => drop(owner),
    }
    result
}

/// Says again what was said.
fn repeat(
    run: &mut Run<'_, '_>,
    kept: OwnerReply,
    reply: &mut ReplyBuffer,
) -> Result<(), NfsStat4> {
    let status = kept.status.to_be_bytes();
    match NfsStat4::decode(&mut Reader::new(&status)).unwrap_or(NfsStat4::ServerFault) {
        NfsStat4::Ok => {
            if let Some((share, handle)) = kept.object {
                run.set_current(Object::Stored(ShareId(share), handle));
            }
            reply.bytes.extend_from_slice(&kept.result);
            Ok(())
        }
        status => {
            run.failure = kept.result.into();
            Err(status)
        }
    }
}

pub(super) struct OpenConfirm;

impl Op for OpenConfirm {
    const NUMBER: Op4 = Op4::OpenConfirm;
    const NAME: &'static str = "OPEN_CONFIRM";
    const RESULT_BYTES_MAX: usize = 16;
    type Arguments<'a> = OpenConfirm4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &OpenConfirm4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        run.current()?;
        let id = of_wire(&arguments.open_stateid);
        let state = &run.nfs4.state;
        let client = state.client_of_stateid(run.call.now_ms, &id).or_status()?;
        let request = request(Self::NUMBER, arguments.seqid, arguments);
        in_sequence(
            run,
            reply,
            |_| state.begin_by_open(&client, &id, &request, true).or_status(),
            |run, reply, owner| {
                let (_, target) = run.stored(NfsStat4::BadStateId)?;
                let file = file_key(target);
                run.begin_state();
                let id = state.confirm_open(owner, &id, &file).or_status()?;
                run.progress.has_made_state = true;
                stateids::encode(&mut Writer::new(&mut reply.bytes), &id);
                Ok(())
            },
        )
    }
}

pub(super) struct ReleaseLockOwner;

impl Op for ReleaseLockOwner {
    const NUMBER: Op4 = Op4::ReleaseLockOwner;
    const NAME: &'static str = "RELEASE_LOCKOWNER";
    type Arguments<'a> = ReleaseLockOwner4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &ReleaseLockOwner4Args<'_>,
        _: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let client = stateids::client_named(run, arguments.lock_owner.clientid)?;
        run.nfs4.state.release_lock_owner(&client, arguments.lock_owner.owner).or_status()
    }
}
