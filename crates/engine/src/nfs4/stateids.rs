//! Stateids (RFC 8881 §8.2), and `FREE_STATEID` and `TEST_STATEID` (§18.38, §18.48).

use std::sync::Arc;

use steadfast_state::{Client, ClientId, FileKey, ShareAccess, StateId};
use steadfast_wire::nfs4::{FreeStateId4Args, NfsStat4, Op4, StateId4, TestStateId4Args};
use steadfast_xdr::Writer;

use super::status::OrStatus;
use crate::compound::{Op, Run};
pub(super) use crate::gate::file_key;
use crate::reply::ReplyBuffer;

/// Whose client a stateid is: the session's. In minor version 0 the stateid names it, and the client was
/// heard; a special stateid names nobody.
///
/// # Errors
/// `OpNotInSession`; in minor version 0 `StaleStateId`, `Expired`, `BadStateId`, `OldStateId`.
pub(super) fn client_of(run: &Run<'_, '_>, id: &StateId) -> Result<Arc<Client>, NfsStat4> {
    if run.minor_version > 0 {
        return run.client().cloned();
    }
    let state = &run.nfs4.state;
    if matches!(*id, StateId::ANONYMOUS | StateId::READ_BYPASS) {
        return Ok(Arc::clone(state.nobody()));
    }
    let client = state.client_of_stateid(run.call.now_ms, id).or_status()?;
    state.require_usable(&client, id).or_status()?;
    Ok(client)
}

/// The client that an owner is of: the session's. In minor version 0 this id names it, and the client was
/// heard.
///
/// # Errors
/// `OpNotInSession`; in minor version 0 `StaleClientId`, `Expired`.
pub(super) fn client_named(run: &Run<'_, '_>, id: u64) -> Result<Arc<Client>, NfsStat4> {
    if run.minor_version > 0 {
        return run.client().cloned();
    }
    run.nfs4.state.set_client_of(run.call.now_ms, ClientId(id)).or_status()
}

/// Judges a READ, a WRITE or a change of the size by a stateid.
///
/// # Errors
/// As [`steadfast_state::State::judge`].
pub(super) fn judge(
    run: &mut Run<'_, '_>,
    client: &Arc<Client>,
    id: &StateId,
    file: &FileKey,
    access: ShareAccess,
) -> Result<(), NfsStat4> {
    let state = &run.nfs4.state;
    run.call.judged(|| state.judge(client, id, file, access)).or_status()
}

/// The stateid that an operation was given: the current one if it says so, from minor version 1 on.
///
/// # Errors
/// `BadStateId` if there is no current one.
pub(super) fn given(run: &Run<'_, '_>, id: &StateId4) -> Result<StateId, NfsStat4> {
    as_of(run, id, run.progress.current.stateid)
}

/// The same of what is given for the saved object.
///
/// # Errors
/// As [`given`].
pub(super) fn given_saved(run: &Run<'_, '_>, id: &StateId4) -> Result<StateId, NfsStat4> {
    as_of(run, id, run.progress.saved.stateid)
}

fn as_of(run: &Run<'_, '_>, id: &StateId4, current: Option<StateId>) -> Result<StateId, NfsStat4> {
    let id = of_wire(id);
    if id != StateId::CURRENT || run.minor_version == 0 {
        return Ok(id);
    }
    let current = current.ok_or(NfsStat4::BadStateId)?;
    // A current stateid means the state as it is.
    Ok(StateId { seqid: 0, ..current })
}

pub(super) fn of_wire(id: &StateId4) -> StateId {
    StateId { seqid: id.seqid, other: id.other }
}

pub(super) fn encode(w: &mut Writer<'_>, id: &StateId) {
    w.u32(id.seqid);
    w.fixed_opaque(&id.other);
}

pub(super) struct FreeStateId;

impl Op for FreeStateId {
    const NUMBER: Op4 = Op4::FreeStateId;
    const NAME: &'static str = "FREE_STATEID";
    type Arguments<'a> = FreeStateId4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &FreeStateId4Args,
        _: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let id = given(run, &arguments.stateid)?;
        run.progress.has_made_state = true;
        run.begin_state();
        run.nfs4.state.free(run.client()?, &id).or_status()
    }
}

pub(super) struct TestStateId;

impl Op for TestStateId {
    const NUMBER: Op4 = Op4::TestStateId;
    const NAME: &'static str = "TEST_STATEID";
    type Arguments<'a> = TestStateId4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &TestStateId4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let client = Arc::clone(run.client()?);
        let mut w = Writer::new(&mut reply.bytes);
        w.u32(arguments.stateids.len() as u32);
        for id in &arguments.stateids {
            let tested = run.nfs4.state.test(&client, &of_wire(id)).or_status();
            w.u32(tested.map_or_else(|status| status, |()| NfsStat4::Ok) as u32);
        }
        Ok(())
    }
}
