//! What may be while clients reclaim what the server has lost (RFC 8881 §8.4.2, RFC 7530 §9.6.2).

use steadfast_state::{Client, DelegationKind, Reclaimable, ShareAccess, ShareDeny, StateError};
use steadfast_wire::nfs4::NfsStat4;

use super::handles::sealed;
use super::status::{OrStatus, status_of_state};
use crate::compound::Run;

/// `OPEN_DELEGATE_NONE`.
const DELEGATE_NONE: u32 = 0;

/// Refuses what may conflict with what has not been reclaimed yet.
///
/// # Errors
/// `Grace`.
pub(super) fn require_over(run: &mut Run<'_, '_>) -> Result<(), NfsStat4> {
    if run.nfs4.state.is_in_grace(run.call.now_ms) {
        return Err(NfsStat4::Grace);
    }
    // Also that it is over: after a loss it would be again, and what is changed now reclaimed.
    if run.call.keep_records() { Ok(()) } else { Err(NfsStat4::Delay) }
}

/// A client is about to get something: as of before the loss (`is_reclaim`), or new.
///
/// # Errors
/// `Grace` for something new in the grace period; `NoGrace` for who may not reclaim; `Delay` if it
/// cannot be recorded that the client has something.
pub(super) fn admit(
    run: &mut Run<'_, '_>,
    client: &Client,
    is_reclaim: bool,
) -> Result<(), NfsStat4> {
    let state = &run.nfs4.state;
    if is_reclaim {
        state.may_reclaim(run.call.now_ms, client).or_status()?;
        state.goes_on_reclaiming(run.call.now_ms);
    } else {
        // Of a file that this request has made before a kill nobody else had anything.
        if state.is_in_grace(run.call.now_ms) && !run.has_made_before() {
            return Err(NfsStat4::Grace);
        }
        // Who has not said that he has all may get nothing new (RFC 8881 §18.51.3).
        if run.minor_version > 0 && !client.has_completed_reclaim() {
            return Err(NfsStat4::Grace);
        }
    }
    state.record(client, is_reclaim);
    // Before anything is done, which would be done again.
    if run.call.keep_records() { Ok(()) } else { Err(NfsStat4::Delay) }
}

/// Minor version 0 has no delegations: an open that is reclaimed claims none.
///
/// # Errors
/// `ReclaimBad`.
pub(super) fn require_no_delegation(delegation: u32) -> Result<(), NfsStat4> {
    if delegation == DELEGATE_NONE { Ok(()) } else { Err(NfsStat4::ReclaimBad) }
}

/// Which delegation may be given back with an open of the current file that a client reclaims, if it does: none that was
/// revoked before the server lost all.
///
/// # Errors
/// `ReclaimBad`: the server did not know of that open, which the client has made by itself under such a delegation, or for
/// which the delegation stood (`OPEN_XOR_DELEGATION`). Not `NoGrace`, after which Linux reclaims nothing more.
pub(super) fn delegation_of(
    run: &Run<'_, '_>,
    client: &Client,
    share: (ShareAccess, ShareDeny),
    (is_reclaim, claimed): (bool, Option<DelegationKind>),
) -> Result<Option<DelegationKind>, NfsStat4> {
    if !is_reclaim {
        return Ok(None);
    }
    let handle = sealed(run, &run.current()?);
    let state = &run.nfs4.state;
    let judged = state.may_reclaim_open(client, handle.as_bytes(), share, claimed.is_some());
    match judged.or_status()? {
        Reclaimable::All => Ok(claimed),
        Reclaimable::Open => Ok(None),
        Reclaimable::Nothing => Err(NfsStat4::ReclaimBad),
    }
}

/// The status of an error of the state: what is reclaimed cannot be another's.
pub(super) fn status_of(error: StateError, is_reclaim: bool) -> NfsStat4 {
    match error {
        StateError::ShareDenied if is_reclaim => NfsStat4::ReclaimConflict,
        error => status_of_state(error),
    }
}

/// What an operation took from others must not be told before the records are stable that say so.
/// `noted` is what [`steadfast_state::State::noted_records`] was before it: an operation that took nothing
/// waits for nobody's record. Whatever is told to be tried again may be executed twice.
///
/// # Errors
/// `Delay` if they cannot be made stable.
pub(crate) fn keep_records(run: &mut Run<'_, '_>, noted: u64) -> Result<(), NfsStat4> {
    if run.nfs4.state.noted_records() == noted || run.call.keep_records() {
        Ok(())
    } else {
        Err(NfsStat4::Delay)
    }
}
