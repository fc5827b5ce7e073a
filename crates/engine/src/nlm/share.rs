//! SHARE and UNSHARE: reservations, which clients of DOS make.

use std::marker::PhantomData;

use steadfast_state::{LockKind, NlmTaken, ShareAccess, ShareDeny};
use steadfast_wire::nlm::{self, NlmStat, v4};
use steadfast_xdr::{Encode, Writer};

use super::procedures::{file, file_to_lock, host, judge_grace, keep_records, known_host, record};
use super::refusal::{LATER, Refused};
use super::width::{ShareArgs, Width};
use crate::call::{Call, Outcome};
use crate::gate::file_key;
use crate::operation::Operation;
use crate::program::Procedure;
use crate::reply::ReplyBuffer;

/// SHARE, or UNSHARE.
pub(super) struct Share<W, const IS_TAKEN: bool>(PhantomData<W>);

impl<W: Width, const IS_TAKEN: bool> Procedure for Share<W, IS_TAKEN> {
    const OPERATION: Operation = Operation::answers(if IS_TAKEN { "SHARE" } else { "UNSHARE" });
    type Arguments<'a> = ShareArgs<'a, W>;

    fn is_remembered(_: &Self::Arguments<'_>) -> bool {
        true
    }

    fn run(
        call: &mut Call<'_>,
        arguments: &Self::Arguments<'_>,
        reply: &mut ReplyBuffer,
    ) -> Outcome {
        let v4::ShareArgs { cookie, reclaim, .. } = arguments.0;
        let judged = if IS_TAKEN { judge_grace(call, reclaim) } else { Ok(()) };
        let is_reclaim = IS_TAKEN && reclaim && judged.is_ok();
        let procedure = if IS_TAKEN { share } else { unshare };
        let shared = judged.and_then(|()| procedure(call, &arguments.0));
        let stat = shared.map_or_else(|refused| refused.told(call), |()| NlmStat::Granted);
        if is_reclaim && stat == LATER {
            return Outcome::Silent;
        }
        call.shared.keep_state();
        let mut w = Writer::new(&mut reply.bytes);
        W::res(&v4::Res { cookie, stat }, &mut w);
        // Nobody knows what it is for.
        let sequence = 0_u32;
        sequence.encode(&mut w);
        Outcome::Done
    }
}

fn access(access: nlm::ShareAccess) -> ShareAccess {
    ShareAccess::from_bits_truncate(access as u32 as u8)
}

fn deny(mode: nlm::ShareMode) -> ShareDeny {
    ShareDeny::from_bits_truncate(mode as u32 as u8)
}

fn share(call: &mut Call<'_>, arguments: &v4::ShareArgs<'_>) -> Result<(), Refused> {
    let access = access(arguments.access);
    let kind = if access.contains(ShareAccess::WRITE) { LockKind::Write } else { LockKind::Read };
    let file = file_key(&file_to_lock(call, arguments.fh, kind)?);
    let host = host(call, arguments.caller_name)?;
    let _in_use = record(call, &host)?;
    let (state, deny) = (&call.shared.state, deny(arguments.mode));
    let taken = NlmTaken::Share(arguments.oh);
    let before = state.nlm_before(&host, &file, &taken)?;
    state.nlm_share(&host, &file, arguments.oh, access, deny)?;
    keep_records(call).inspect_err(|_| {
        // A host that does not ask again would hold it until it restarts.
        let _together = state.together();
        let _ = state.nlm_take_back(&host, &file, &taken, &before);
    })
}

fn unshare(call: &mut Call<'_>, arguments: &v4::ShareArgs<'_>) -> Result<(), Refused> {
    let file = file(call, arguments.fh)?;
    if let Some(host) = known_host(call, arguments.caller_name) {
        call.shared.state.nlm_unshare(&host, &file, arguments.oh);
    }
    Ok(())
}
