//! What operations that change something have in common.

use steadfast_state::Change;
use steadfast_vfs::{Name, PreAttr, Wcc};
use steadfast_wire::nfs4::NfsStat4;
use steadfast_xdr::Writer;

use super::fattr;
use super::status::OrStatus;
use crate::call::{Call, Target};
use crate::change_attribute::change_of;
use crate::compound::Run;

/// The current object, which is to be changed: the call may wait for its storage from here on.
///
/// # Errors
/// `RoFs` if the caller may only read, or if it is a directory of the pseudo file system; as
/// [`Run::stored`]; `Delay` if the call may not wait.
pub(super) fn stored<'r, 'a>(
    run: &'r mut Run<'_, 'a>,
) -> Result<(&'r mut Call<'a>, &'r Target<'a>), NfsStat4> {
    let (call, target) = run.stored(NfsStat4::RoFs)?;
    require_changing(call, target)?;
    Ok((call, target))
}

/// The same for an object that was found otherwise.
pub(super) fn require_changing(call: &mut Call<'_>, target: &Target<'_>) -> Result<(), NfsStat4> {
    if target.rights.is_read_only {
        return Err(NfsStat4::RoFs);
    }
    call.may_block(target).or_status()
}

/// The current object is about to be changed. To be held until it is.
///
/// # Errors
/// As [`Run::stored`]; `Delay` while delegations of others are recalled.
pub(super) fn begin<'a>(run: &mut Run<'_, 'a>) -> Result<Change<'a>, NfsStat4> {
    let by = run.holder();
    let (call, target) = run.stored(NfsStat4::RoFs)?;
    call.begin_change(target, by.as_ref()).or_status()
}

/// The same of what has a name in the current directory; `None` if there is nothing.
///
/// # Errors
/// As [`begin`].
pub(super) fn begin_of_name<'a>(
    run: &mut Run<'_, 'a>,
    name: Name<'_>,
) -> Result<Option<Change<'a>>, NfsStat4> {
    let by = run.holder();
    let (call, dir) = run.stored(NfsStat4::RoFs)?;
    call.begin_change_of_name(dir, name, by.as_ref()).or_status()
}

/// How a directory is that an operation has changed before the process was killed: how it was is not known.
pub(super) fn as_it_is(dir: &Target<'_>) -> Wcc {
    Wcc { before: None, after: dir.storage.attributes(&dir.caller(), &dir.handle).ok() }
}

/// Whether both were reached by one share, and one has the rules for both.
pub(super) fn is_of_one_share(one: &Target<'_>, other: &Target<'_>) -> bool {
    one.share.id == other.share.id && one.ruling == other.ruling
}

/// The change attribute before a change.
fn change_before(before: &PreAttr) -> u64 {
    change_of(before.ctime)
}

/// Appends how a directory changed (`change_info4`).
pub(super) fn change_info(w: &mut Writer<'_>, wcc: &Wcc) {
    let before = wcc.before.as_ref().map(change_before);
    let after = wcc.after.as_ref().map(fattr::change);
    w.bool(before.is_some() && after.is_some());
    w.u64(before.unwrap_or(0));
    w.u64(after.unwrap_or(0));
}
