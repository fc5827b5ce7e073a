//! SETATTR (RFC 8881 §18.30).

use steadfast_state::ShareAccess;
use steadfast_vfs::{FileKind, SetAttr as Attributes};
use steadfast_wire::nfs4::{NfsStat4, Op4, SetAttr4Args};
use steadfast_xdr::{Encode, Writer};

use super::acl::Lists;
use super::fattr_decode::ToSet;
use super::stateids::{client_of, file_key, given, judge};
use super::status::OrStatus;
use super::{acl, changing, fattr_decode, idmap};
use crate::call::Target;
use crate::compound::{Op, Run};
use crate::reply::ReplyBuffer;

/// Set-user-ID, set-group-ID, and the sticky bit.
const SPECIAL_BITS: u32 = 0o7000;

/// What is set is told with success and failure alike: of a failure nothing is.
pub(super) struct SetAttr;

impl Op for SetAttr {
    const NUMBER: Op4 = Op4::SetAttr;
    const NAME: &'static str = "SETATTR";
    const RESULT_BYTES_MAX: usize = 16;
    type Arguments<'a> = SetAttr4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &SetAttr4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        run.current()?;
        let ToSet { attributes: set, acl } =
            idmap::to_set(run, &arguments.obj_attributes, fattr_decode::decode)?;
        if set.size.is_some() {
            let id = given(run, &arguments.stateid)?;
            let client = client_of(run, &id)?;
            let file = file_key(run.stored(NfsStat4::RoFs)?.1);
            judge(run, &client, &id, &file, ShareAccess::WRITE)?;
        }
        let lists = match &acl {
            Some(entries) => Some(meant(run, entries, &set)?),
            None => None,
        };
        let _change = changing::begin(run)?;
        if let Some(lists) = &lists {
            set_acls(run, lists)?;
        }
        // The list has said what is permitted: the mode says no more than that.
        let set = match &lists {
            Some(lists) => with_permissions(&set, lists.access.mode()),
            None => set,
        };
        let (_, target) = changing::stored(run)?;
        if lists.is_none() || !set.is_empty() {
            let (storage, caller) = (target.storage, target.caller());
            let durable = storage.set_attributes(&caller, &target.handle, &set, None);
            let mut result = Ok(());
            let promised = durable.map(|changed| result = changed.result);
            run.promise(promised);
            result.or_status()?;
        }
        arguments.obj_attributes.attrmask.encode(&mut Writer::new(&mut reply.bytes));
        Ok(())
    }
}

/// The lists that entries mean for the current object, which is about to be changed.
fn meant(
    run: &mut Run<'_, '_>,
    entries: &[acl::Entry],
    set: &Attributes,
) -> Result<Lists, NfsStat4> {
    let (call, target) = run.stored(NfsStat4::RoFs)?;
    let attr = call.read(target, |caller| target.storage.attributes(caller, &target.handle));
    let attr = attr.or_status()?;
    require_acls(target)?;
    if attr.kind == FileKind::Symlink {
        return Err(NfsStat4::Inval);
    }
    acl::meant(entries, set.uid.unwrap_or(attr.uid), attr.kind == FileKind::Directory)
}

/// The lists that entries mean for what is to be made in a directory.
///
/// # Errors
/// As [`acl::meant`]; `AttrNotSupp` where there are no lists.
pub(super) fn meant_of_new(
    dir: &Target<'_>,
    entries: &[acl::Entry],
    set: &Attributes,
    is_directory: bool,
) -> Result<Lists, NfsStat4> {
    require_acls(dir)?;
    acl::meant(entries, set.uid.unwrap_or(dir.cred.uid), is_directory)
}

fn require_acls(target: &Target<'_>) -> Result<(), NfsStat4> {
    let info = target.storage.info(&target.handle).or_status()?;
    if info.has_acls { Ok(()) } else { Err(NfsStat4::AttrNotSupp) }
}

/// The same attributes, with these permissions in the mode, if that is set.
fn with_permissions(set: &Attributes, permissions: u32) -> Attributes {
    let mode = set.mode.map(|mode| mode & SPECIAL_BITS | permissions);
    Attributes { mode, ..*set }
}

/// With what an object is made that gets access control lists afterwards: nobody may do anything with
/// it before.
pub(super) fn without_permissions(set: &Attributes) -> Attributes {
    Attributes { mode: Some(set.mode.unwrap_or(0) & SPECIAL_BITS), umask: 0, ..*set }
}

/// Sets the access control lists of the current object.
pub(super) fn set_acls(run: &mut Run<'_, '_>, lists: &Lists) -> Result<(), NfsStat4> {
    let (_, target) = changing::stored(run)?;
    let (storage, caller) = (target.storage, target.caller());
    let (access, default) = (Some(&lists.access), lists.default.as_ref());
    let durable = storage.set_acls(&caller, &target.handle, access, default);
    let mut result = Ok(());
    let promised = durable.map(|changed| result = changed.result);
    run.promise(promised);
    result.or_status()
}
