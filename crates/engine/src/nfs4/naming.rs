//! REMOVE, RENAME, LINK (RFC 8881 §18.9, §18.25, §18.26).

use steadfast_vfs::FsError;
use steadfast_wire::nfs4::{Link4Args, NfsStat4, Op4, Remove4Args, Rename4Args};
use steadfast_xdr::Writer;

use super::changing::{self, change_info, is_of_one_share};
use super::names;
use super::reclaim;
use super::status::OrStatus;
use crate::call::Target;
use crate::compound::{Op, Run};
use crate::progress::Object;
use crate::reply::ReplyBuffer;

/// The saved object, which is to be changed with the current one.
///
/// # Errors
/// `RoFs` if it is a directory of the pseudo file system; as [`Run::resolve`].
fn saved<'a>(run: &mut Run<'_, 'a>) -> Result<Target<'a>, NfsStat4> {
    match run.progress.saved.object.ok_or(NfsStat4::NoFileHandle)? {
        Object::Node(_) => Err(NfsStat4::RoFs),
        Object::Stored(share, handle) => run.resolve(share, handle).or_status(),
    }
}

pub(super) struct Remove;

impl Op for Remove {
    const NUMBER: Op4 = Op4::Remove;
    const NAME: &'static str = "REMOVE";
    const RESULT_BYTES_MAX: usize = 20;
    type Arguments<'a> = Remove4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Remove4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        run.current()?;
        let is_done = run.done_before().is_some();
        if !is_done {
            reclaim::require_over(run)?;
        }
        let name = names::name(arguments.target)?;
        changing::stored(run)?;
        let _change = if is_done { None } else { changing::begin_of_name(run, name)? };
        let (_, dir) = changing::stored(run)?;
        if is_done {
            change_info(&mut Writer::new(&mut reply.bytes), &changing::as_it_is(dir));
            return Ok(());
        }
        let mut removed = None;
        let mut durable = dir
            .storage
            .remove(&dir.caller(), &dir.handle, name)
            .map(|changed| removed = Some((changed.result, changed.wcc)));
        // Linux says EISDIR, POSIX EPERM.
        if matches!(removed, Some((Err(FsError::IsDirectory), _))) {
            durable = dir
                .storage
                .remove_directory(&dir.caller(), &dir.handle, name)
                .map(|changed| removed = Some((changed.result, changed.wcc)));
        }
        run.promise(durable);
        let (result, wcc) = removed.ok_or(NfsStat4::ServerFault)?;
        result.or_status()?;
        change_info(&mut Writer::new(&mut reply.bytes), &wcc);
        Ok(())
    }
}

pub(super) struct Rename;

impl Op for Rename {
    const NUMBER: Op4 = Op4::Rename;
    const NAME: &'static str = "RENAME";
    const RESULT_BYTES_MAX: usize = 40;
    type Arguments<'a> = Rename4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Rename4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        run.current()?;
        let is_done = run.done_before().is_some();
        if !is_done {
            reclaim::require_over(run)?;
        }
        let from = saved(run)?;
        let (old, new) = (names::name(arguments.oldname)?, names::name(arguments.newname)?);
        let (_, to) = changing::stored(run)?;
        if !is_of_one_share(&from, to) {
            return Err(NfsStat4::XDev);
        }
        if is_done {
            let mut w = Writer::new(&mut reply.bytes);
            change_info(&mut w, &changing::as_it_is(&from));
            change_info(&mut w, &changing::as_it_is(to));
            return Ok(());
        }
        let by = run.holder();
        let (call, to) = changing::stored(run)?;
        let _changes = (
            call.begin_change_of_name(&from, old, by.as_ref()).or_status()?,
            call.begin_change_of_name(to, new, by.as_ref()).or_status()?,
        );
        let mut renamed = None;
        let promised = from
            .storage
            .rename(&from.caller(), &from.handle, old, &to.handle, new)
            .map(|it| renamed = Some(it));
        run.promise(promised);
        let renamed = renamed.ok_or(NfsStat4::ServerFault)?;
        renamed.result.or_status()?;
        let mut w = Writer::new(&mut reply.bytes);
        change_info(&mut w, &renamed.from);
        change_info(&mut w, &renamed.to);
        Ok(())
    }
}

pub(super) struct Link;

impl Op for Link {
    const NUMBER: Op4 = Op4::Link;
    const NAME: &'static str = "LINK";
    const RESULT_BYTES_MAX: usize = 20;
    type Arguments<'a> = Link4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Link4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        run.current()?;
        let object = saved(run)?;
        let name = names::name(arguments.newname)?;
        let is_done = run.done_before().is_some();
        let (_, dir) = changing::stored(run)?;
        if !is_of_one_share(&object, dir) {
            return Err(NfsStat4::XDev);
        }
        if is_done {
            change_info(&mut Writer::new(&mut reply.bytes), &changing::as_it_is(dir));
            return Ok(());
        }
        let by = run.holder();
        let (call, dir) = changing::stored(run)?;
        let _change = call.begin_change(&object, by.as_ref()).or_status()?;
        let mut linked = None;
        let promised = dir
            .storage
            .link(&dir.caller(), &object.handle, &dir.handle, name)
            .map(|(_, changed)| linked = Some((changed.result, changed.wcc)));
        run.promise(promised);
        let (result, wcc) = linked.ok_or(NfsStat4::ServerFault)?;
        result.or_status()?;
        change_info(&mut Writer::new(&mut reply.bytes), &wcc);
        Ok(())
    }
}
