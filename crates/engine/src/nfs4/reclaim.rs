//! What may be while clients reclaim what the server has lost (RFC 8881 §8.4.2, RFC 7530 §9.6.2).

use steadfast_state::{Client, StateError};
use steadfast_wire::nfs4::{NfsStat4, Op4};

use super::status::{OrStatus, status_of_state};
use crate::compound::Run;

/// `OPEN_DELEGATE_NONE`.
const DELEGATE_NONE: u32 = 0;

/// Refuses what may conflict with what has not been reclaimed yet.
///
/// # Errors
/// `Grace`.
pub(super) fn require_over(run: &Run<'_, '_>) -> Result<(), NfsStat4> {
    if run.nfs4.state.is_in_grace(run.call.now_ms) { Err(NfsStat4::Grace) } else { Ok(()) }
}

/// A client is about to get something: as of before the loss (`is_reclaim`), or new.
///
/// # Errors
/// `Grace` for something new in the grace period; `NoGrace` for who may not reclaim.
pub(super) fn admit(run: &Run<'_, '_>, client: &Client, is_reclaim: bool) -> Result<(), NfsStat4> {
    let state = &run.nfs4.state;
    if is_reclaim {
        state.may_reclaim(run.call.now_ms, client).or_status()?;
    } else {
        require_over(run)?;
        // Who has not said that he has all may get nothing new (RFC 8881 §18.51.3).
        if run.minor_version > 0 && !client.has_completed_reclaim() {
            return Err(NfsStat4::Grace);
        }
    }
    state.record(client, is_reclaim);
    Ok(())
}

/// An open that is reclaimed brings no delegation: none was ever given.
///
/// # Errors
/// `ReclaimBad`.
pub(super) fn require_no_delegation(delegation: u32) -> Result<(), NfsStat4> {
    if delegation == DELEGATE_NONE { Ok(()) } else { Err(NfsStat4::ReclaimBad) }
}

/// The status of an error of the state: what is reclaimed cannot be another's.
pub(super) fn status_of(error: StateError, is_reclaim: bool) -> NfsStat4 {
    match error {
        StateError::ShareDenied if is_reclaim => NfsStat4::ReclaimConflict,
        error => status_of_state(error),
    }
}

/// What an operation gave must not be told before the records are stable that it depends on: that its
/// client has state, and that others have lost theirs. Whatever is told to be tried again may be
/// executed twice.
///
/// # Errors
/// `Delay` if they cannot be made stable.
pub(crate) fn keep_records(run: &mut Run<'_, '_>, op: Op4) -> Result<(), NfsStat4> {
    if !run.nfs4.state.has_unkept_records() {
        return Ok(());
    }
    let gives = matches!(
        op,
        Op4::Open
            | Op4::Lock
            | Op4::LockT
            | Op4::ReclaimComplete
            | Op4::Read
            | Op4::ReadPlus
            | Op4::Write
            | Op4::SetAttr
            | Op4::Seek
            | Op4::Allocate
            | Op4::Deallocate
            | Op4::Copy
            | Op4::Clone
    );
    if !gives || run.call.keep_records() { Ok(()) } else { Err(NfsStat4::Delay) }
}
