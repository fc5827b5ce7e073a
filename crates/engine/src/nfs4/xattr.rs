//! GETXATTR, SETXATTR, LISTXATTRS, REMOVEXATTR (RFC 8276 §8.4): attributes of users.

use steadfast_vfs::{Changed, Durable, FsError, SetXattrHow, XATTR_NAME_BYTES_MAX};
use steadfast_wire::nfs4::{
    ListXattrs4Args, ListXattrs4Result, NfsStat4, Op4, SetXattr4Args, SetXattrOption4,
    XattrName4Args,
};
use steadfast_xdr::{Encode, Writer};

use super::changing::{self, change_info};
use super::reclaim;
use super::status::{OrStatus, status};
use crate::call::Target;
use crate::compound::{Op, Run};
use crate::progress::Object;
use crate::reply::ReplyBuffer;

/// Bytes of the result of LISTXATTRS beside the names: cookie, count, end.
const LIST_BYTES: usize = 8 + 4 + 4;

/// A name that an attribute may have.
fn name(bytes: &[u8]) -> Result<&[u8], NfsStat4> {
    if bytes.is_empty() {
        return Err(NfsStat4::Inval);
    }
    if bytes.contains(&0) {
        return Err(NfsStat4::BadChar);
    }
    if bytes.len() > XATTR_NAME_BYTES_MAX { Err(NfsStat4::NameTooLong) } else { Ok(bytes) }
}

/// The status of an error of an attribute: the object itself is there.
fn of_attribute(error: FsError) -> NfsStat4 {
    match error {
        FsError::NotFound => NfsStat4::NoXattr,
        FsError::FileTooLarge => NfsStat4::Xattr2Big,
        error => status(error),
    }
}

pub(super) struct GetXattr;

impl Op for GetXattr {
    const NUMBER: Op4 = Op4::GetXattr;
    const NAME: &'static str = "GETXATTR";
    type Arguments<'a> = XattrName4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &XattrName4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let name = name(arguments.name)?;
        if let Object::Node(_) = run.current()? {
            return Err(NfsStat4::NoXattr);
        }
        let (call, target) = run.stored(NfsStat4::NoXattr)?;
        // A large one is in a block of its own, on the disk perhaps.
        call.seldom_blocks(target).or_status()?;
        let value = call.read(target, |caller| target.storage.xattr(caller, &target.handle, name));
        let value = value.map_err(of_attribute)?;
        Writer::new(&mut reply.bytes).opaque(&value);
        Ok(())
    }
}

/// Names are told in the order of their hashes: so a cookie stays good while others come and go.
pub(super) struct ListXattrs;

impl Op for ListXattrs {
    const NUMBER: Op4 = Op4::ListXattrs;
    const NAME: &'static str = "LISTXATTRS";
    type Arguments<'a> = ListXattrs4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &ListXattrs4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let room = (arguments.maxcount as usize).min(run.room(reply));
        let mut room = room.checked_sub(LIST_BYTES).ok_or(NfsStat4::TooSmall)?;
        let all = if let Object::Node(_) = run.current()? {
            Vec::new()
        } else {
            let (call, target) = run.stored(NfsStat4::ServerFault)?;
            call.seldom_blocks(target).or_status()?;
            let names =
                call.read(target, |caller| target.storage.xattr_names(caller, &target.handle));
            names.or_status()?
        };
        let mut rest: Vec<(u64, &[u8])> =
            all.iter().map(|name| (place(name), name.as_slice())).collect();
        rest.retain(|(place, _)| *place > arguments.cookie);
        rest.sort_unstable();
        let mut told = ListXattrs4Result { cookie: arguments.cookie, names: vec![], eof: true };
        for (place, name) in rest {
            let bytes = 4 + name.len().next_multiple_of(4);
            let Some(left) = room.checked_sub(bytes) else {
                told.eof = false;
                break;
            };
            room = left;
            told.names.push(name);
            told.cookie = place;
        }
        if told.names.is_empty() && !told.eof {
            return Err(NfsStat4::TooSmall);
        }
        told.encode(&mut Writer::new(&mut reply.bytes));
        Ok(())
    }
}

/// The cookie behind a name: FNV-1a, then mixed; never that of the beginning.
fn place(name: &[u8]) -> u64 {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325, fnv);
    (hash ^ hash >> 32).max(1)
}

/// Ends a change of an attribute.
fn changed(
    run: &mut Run<'_, '_>,
    durable: Durable<Changed<()>>,
    reply: &mut ReplyBuffer,
) -> Result<(), NfsStat4> {
    let mut changed = None;
    let promised = durable.map(|it| changed = Some((it.result, it.wcc)));
    run.promise(promised);
    let (result, wcc) = changed.ok_or(NfsStat4::ServerFault)?;
    result.map_err(of_attribute)?;
    change_info(&mut Writer::new(&mut reply.bytes), &wcc);
    Ok(())
}

pub(super) struct SetXattr;

impl Op for SetXattr {
    const NUMBER: Op4 = Op4::SetXattr;
    const NAME: &'static str = "SETXATTR";
    const RESULT_BYTES_MAX: usize = 20;
    type Arguments<'a> = SetXattr4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &SetXattr4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        run.current()?;
        let name = name(arguments.name)?;
        let how = match arguments.option {
            SetXattrOption4::Either => SetXattrHow::Either,
            SetXattrOption4::Create => SetXattrHow::Create,
            SetXattrOption4::Replace => SetXattrHow::Replace,
        };
        reclaim::require_over(run)?;
        let _change = changing::begin(run)?;
        let (_, target) = changing::stored(run)?;
        let Target { storage, handle, .. } = target;
        let durable = storage.set_xattr(&target.caller(), handle, name, arguments.value, how);
        changed(run, durable, reply)
    }
}

pub(super) struct RemoveXattr;

impl Op for RemoveXattr {
    const NUMBER: Op4 = Op4::RemoveXattr;
    const NAME: &'static str = "REMOVEXATTR";
    const RESULT_BYTES_MAX: usize = 20;
    type Arguments<'a> = XattrName4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &XattrName4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        run.current()?;
        let name = name(arguments.name)?;
        reclaim::require_over(run)?;
        let _change = changing::begin(run)?;
        let (_, target) = changing::stored(run)?;
        let durable = target.storage.remove_xattr(&target.caller(), &target.handle, name);
        changed(run, durable, reply)
    }
}
