//! SEEK, `READ_PLUS`, `IO_ADVISE`, ALLOCATE, DEALLOCATE, COPY, CLONE (RFC 7862 §15).
//!
//! A COPY is done when it is answered, and copies within one share alone.

use std::sync::Arc;

use steadfast_state::{ShareAccess, StateId};
use steadfast_vfs::{Caller, Changed, Durable, FilePlace, FileSystem, SeekFor, StorageHandle};
use steadfast_wire::nfs3::StableHow;
use steadfast_wire::nfs4::{
    Allocate4Args, Bitmap4, CONTENT_DATA, CONTENT_HOLE, Clone4Args, Copy4Args, Copy4Result,
    CopyRequirements4, IoAdvise4Args, NfsStat4, Op4, ReadPlus4Args, Seek4Args, Seek4Result,
    StateId4,
};
use steadfast_xdr::{Encode, Writer};

use super::changing::{self, is_of_one_share};
use super::io::{append, require_file};
use super::stateids::{self, file_key, given, given_saved};
use super::status::OrStatus;
use crate::call::Target;
use crate::compound::{Op, Run};
use crate::progress::Object;
use crate::reply::ReplyBuffer;

/// Bytes of `READ_PLUS`'s result beside the data: end of file, count, a hole, the data's offset and length.
const READ_PLUS_BYTES: usize = 4 + 4 + 20 + 16;

/// Judges a stateid for the current file.
fn judge(run: &mut Run<'_, '_>, id: &StateId, access: ShareAccess) -> Result<(), NfsStat4> {
    run.stored(NfsStat4::IsDir)?;
    let client = Arc::clone(run.client()?);
    let file = file_key(run.stored(NfsStat4::IsDir)?.1);
    stateids::judge(run, &client, id, &file, access)?;
    let by = run.holder();
    let (call, target) = run.stored(NfsStat4::IsDir)?;
    if access == ShareAccess::READ {
        call.begin_read(target, by.as_ref()).or_status()?;
    }
    require_file(call, target)
}

pub(super) struct Seek;

impl Op for Seek {
    const NUMBER: Op4 = Op4::Seek;
    const NAME: &'static str = "SEEK";
    type Arguments<'a> = Seek4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Seek4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let what = match arguments.what {
            CONTENT_DATA => SeekFor::Data,
            CONTENT_HOLE => SeekFor::Hole,
            _ => return Err(NfsStat4::UnionNotSupp),
        };
        let id = given(run, &arguments.stateid)?;
        judge(run, &id, ShareAccess::READ)?;
        let (call, target) = run.stored(NfsStat4::IsDir)?;
        let sought = call.read(target, |caller| {
            target.storage.seek(caller, &target.handle, arguments.offset, what)
        });
        let sought = sought.or_status()?;
        let told = Seek4Result { eof: sought.is_end, offset: sought.offset };
        told.encode(&mut Writer::new(&mut reply.bytes));
        Ok(())
    }
}

/// Tells a hole, then data, each if there is any: clients have room for few parts, and ask again.
pub(super) struct ReadPlus;

impl Op for ReadPlus {
    const NUMBER: Op4 = Op4::ReadPlus;
    const NAME: &'static str = "READ_PLUS";
    type Arguments<'a> = ReadPlus4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &ReadPlus4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let ReadPlus4Args { stateid, offset, count } = *arguments;
        let id = given(run, &stateid)?;
        judge(run, &id, ShareAccess::READ)?;
        // As of READ.
        let may_be_place = reply.may_place_files && run.is_last() && !run.is_kept();
        let room = run.room(reply).saturating_sub(READ_PLUS_BYTES + 3);
        let count = count.min(run.call.transfer_bytes_max());
        let count = count.min(u32::try_from(room).unwrap_or(u32::MAX));
        let (call, target) = run.stored(NfsStat4::IsDir)?;
        let found = call
            .read(target, |caller| target.storage.extents(caller, &target.handle, offset, count));
        let found = found.or_status()?;
        let head_at = reply.bytes.len();
        let mut w = Writer::new(&mut reply.bytes);
        w.zeros(8);
        let mut parts = 0;
        if found.hole_bytes > 0 {
            parts += 1;
            w.u32(CONTENT_HOLE);
            w.u64(offset);
            w.u64(found.hole_bytes);
        }
        let mut is_end = found.is_end;
        if found.data_bytes > 0 {
            let part_at = reply.bytes.len();
            let at = offset + found.hole_bytes;
            let mut w = Writer::new(&mut reply.bytes);
            w.u32(CONTENT_DATA);
            w.u64(at);
            w.u32(0);
            let wanted = u32::try_from(found.data_bytes).unwrap_or(count);
            let done = append(call, target, (at, wanted), may_be_place, reply)?;
            is_end = done.is_end;
            if done.count > 0 {
                parts += 1;
                put(&mut reply.bytes, part_at + 12, done.count);
            } else {
                // It was cut meanwhile.
                reply.bytes.truncate(part_at);
            }
        }
        put(&mut reply.bytes, head_at, u32::from(is_end));
        put(&mut reply.bytes, head_at + 4, parts);
        Ok(())
    }
}

/// Overwrites a word.
fn put(bytes: &mut [u8], at: usize, word: u32) {
    if let Some(place) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>) {
        *place = word.to_be_bytes();
    }
}

/// What clients say of how they will read is told by how they read.
pub(super) struct IoAdvise;

impl Op for IoAdvise {
    const NUMBER: Op4 = Op4::IoAdvise;
    const NAME: &'static str = "IO_ADVISE";
    type Arguments<'a> = IoAdvise4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &IoAdvise4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let id = given(run, &arguments.stateid)?;
        judge(run, &id, ShareAccess::READ)?;
        // The hints that are heeded.
        Bitmap4::EMPTY.encode(&mut Writer::new(&mut reply.bytes));
        Ok(())
    }
}

/// How storage changes a range of a file.
type Change = fn(&dyn FileSystem, &Caller<'_>, &StorageHandle, u64, u64) -> Durable<Changed<()>>;

/// Changes a range of the current file.
fn change(
    run: &mut Run<'_, '_>,
    arguments: &Allocate4Args,
    change: Change,
) -> Result<(), NfsStat4> {
    let Allocate4Args { stateid, offset, length } = *arguments;
    let id = given(run, &stateid)?;
    judge(run, &id, ShareAccess::WRITE)?;
    let _change = changing::begin(run)?;
    let (_, target) = changing::stored(run)?;
    let durable = change(target.storage, &target.caller(), &target.handle, offset, length);
    let mut result = Ok(());
    let promised = durable.map(|changed| result = changed.result);
    run.promise(promised);
    result.or_status()
}

pub(super) struct Allocate;

impl Op for Allocate {
    const NUMBER: Op4 = Op4::Allocate;
    const NAME: &'static str = "ALLOCATE";
    // Nothing, but what cannot be told must not be done.
    const RESULT_BYTES_MAX: usize = 4;
    type Arguments<'a> = Allocate4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Allocate4Args,
        _: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        change(run, arguments, |storage, caller, file, offset, length| {
            storage.allocate(caller, file, offset, length)
        })
    }
}

pub(super) struct Deallocate;

impl Op for Deallocate {
    const NUMBER: Op4 = Op4::Deallocate;
    const NAME: &'static str = "DEALLOCATE";
    // Nothing, but what cannot be told must not be done.
    const RESULT_BYTES_MAX: usize = 4;
    type Arguments<'a> = Allocate4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Allocate4Args,
        _: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        change(run, arguments, |storage, caller, file, offset, length| {
            storage.deallocate(caller, file, offset, length)
        })
    }
}

/// Judges the stateids of the saved file, which is read, and of the current one, which is written. Both
/// must be of one share. The saved one is the result; the call may wait for its storage from here on.
fn source<'a>(
    run: &mut Run<'_, 'a>,
    source: &StateId4,
    target: &StateId4,
) -> Result<Target<'a>, NfsStat4> {
    run.current()?;
    let (source_id, target_id) = (given_saved(run, source)?, given(run, target)?);
    let from = match run.progress.saved.object.ok_or(NfsStat4::NoFileHandle)? {
        Object::Node(_) => return Err(NfsStat4::IsDir),
        Object::Stored(share, handle) => run.resolve(share, handle).or_status()?,
    };
    let client = Arc::clone(run.client()?);
    stateids::judge(run, &client, &source_id, &file_key(&from), ShareAccess::READ)?;
    let by = run.holder();
    run.call.begin_read(&from, by.as_ref()).or_status()?;
    require_file(run.call, &from)?;
    judge(run, &target_id, ShareAccess::WRITE)?;
    let (_, to) = changing::stored(run)?;
    if is_of_one_share(&from, to) { Ok(from) } else { Err(NfsStat4::XDev) }
}

pub(super) struct Copy;

impl Op for Copy {
    const NUMBER: Op4 = Op4::Copy;
    const NAME: &'static str = "COPY";
    const RESULT_BYTES_MAX: usize = 32;
    type Arguments<'a> = Copy4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Copy4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        if !arguments.source_server.is_empty() {
            return Err(NfsStat4::NotSupp);
        }
        let from = source(run, &arguments.src_stateid, &arguments.dst_stateid)?;
        let _change = changing::begin(run)?;
        let (call, to) = run.stored(NfsStat4::IsDir)?;
        let verifier = call.shared.verifier.now();
        let source = FilePlace { file: &from.handle, offset: arguments.src_offset };
        let target = FilePlace { file: &to.handle, offset: arguments.dst_offset };
        let durable = to.storage.copy(&to.caller(), source, target, arguments.count);
        let mut copied = Ok(0);
        let promised = durable.map(|changed| copied = changed.result);
        run.promise(promised);
        let told = Copy4Result {
            callback_id: None,
            count: copied.or_status()?,
            committed: StableHow::FileSync,
            verifier: verifier.to_be_bytes(),
            requirements: CopyRequirements4 { consecutive: true, synchronous: true },
        };
        told.encode(&mut Writer::new(&mut reply.bytes));
        Ok(())
    }
}

pub(super) struct Clone;

impl Op for Clone {
    const NUMBER: Op4 = Op4::Clone;
    const NAME: &'static str = "CLONE";
    // Nothing, but what cannot be told must not be done.
    const RESULT_BYTES_MAX: usize = 4;
    type Arguments<'a> = Clone4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Clone4Args,
        _: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let from = source(run, &arguments.src_stateid, &arguments.dst_stateid)?;
        let _change = changing::begin(run)?;
        let (_, to) = run.stored(NfsStat4::IsDir)?;
        let source = FilePlace { file: &from.handle, offset: arguments.src_offset };
        let target = FilePlace { file: &to.handle, offset: arguments.dst_offset };
        let durable = to.storage.clone_range(&to.caller(), source, target, arguments.count);
        let mut result = Ok(());
        let promised = durable.map(|changed| result = changed.result);
        run.promise(promised);
        result.or_status()
    }
}
