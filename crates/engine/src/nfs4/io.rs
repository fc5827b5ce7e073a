//! READ, READLINK, WRITE, COMMIT (RFC 8881 §18.3, §18.22, §18.24, §18.32).

use steadfast_state::{ShareAccess, StateId};
use steadfast_vfs::{FileKind, FsError, ReadDone, ReadPlace, WriteHow};
use steadfast_wire::nfs3::StableHow;
use steadfast_wire::nfs4::{Commit4Args, NfsStat4, Op4, Read4Args, Write4Args};
use steadfast_xdr::Writer;

use super::changing;
use super::stateids::{client_of, file_key, given, judge};
use super::status::OrStatus;
use crate::call::{Call, Target};
use crate::compound::{Op, Run};
use crate::program::Ignored;
use crate::reply::ReplyBuffer;

/// Bytes of READ's result beside the data: end of file, length.
const HEAD_BYTES: usize = 8;

/// READ's data is appended straight to the reply, behind room for what is known only afterwards.
pub(super) struct Read;

impl Op for Read {
    const NUMBER: Op4 = Op4::Read;
    const NAME: &'static str = "READ";
    type Arguments<'a> = Read4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Read4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let id: StateId = given(run, &arguments.stateid)?;
        // Nothing behind a place in a file: what waits would have to keep it.
        let may_be_place = reply.may_place_files && run.is_last() && !run.is_kept();
        let room = run.room(reply).saturating_sub(HEAD_BYTES + 3);
        let count = arguments.count.min(run.call.transfer_bytes_max());
        let count = count.min(u32::try_from(room).unwrap_or(u32::MAX));
        run.stored(NfsStat4::IsDir)?;
        let client = client_of(run, &id)?;
        let file = file_key(run.stored(NfsStat4::IsDir)?.1);
        judge(run, &client, &id, &file, ShareAccess::READ)?;
        let by = run.holder();
        let (call, target) = run.stored(NfsStat4::IsDir)?;
        call.begin_read(target, by.as_ref()).or_status()?;
        let start = reply.bytes.len();
        Writer::new(&mut reply.bytes).zeros(HEAD_BYTES);
        let done = append(call, target, (arguments.offset, count), may_be_place, reply)?;
        let head = [u32::from(done.is_end), done.count].map(u32::to_be_bytes);
        if let Some(place) = reply.bytes.get_mut(start..start + HEAD_BYTES) {
            place.copy_from_slice(head.as_flattened());
        }
        Ok(())
    }
}

/// Appends a file's data, from an offset on so many bytes, or a place in the file, and what fills a word.
pub(super) fn append(
    call: &mut Call<'_>,
    target: &Target<'_>,
    (offset, count): (u64, u32),
    may_be_place: bool,
    reply: &mut ReplyBuffer,
) -> Result<ReadDone, NfsStat4> {
    let start = reply.bytes.len();
    let done = call.read(target, |caller| {
        reply.bytes.truncate(start);
        let into = &mut reply.bytes;
        target.storage.read(caller, &target.handle, offset, count, may_be_place, into)
    });
    let done = done.map_err(|error| of_no_data(call, target, error))?;
    if let ReadPlace::File(range) = &done.place {
        reply.files.push((reply.bytes.len(), range.clone()));
    }
    let padding = (4 - done.count as usize % 4) % 4;
    Writer::new(&mut reply.bytes).zeros(padding);
    Ok(done)
}

/// Refuses what is no ordinary file.
pub(super) fn require_file(call: &mut Call<'_>, target: &Target<'_>) -> Result<(), NfsStat4> {
    let storage = target.storage;
    let attr = call.read(target, |caller| storage.attributes(caller, &target.handle));
    match attr.or_status()?.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(NfsStat4::IsDir),
        FileKind::Symlink => Err(NfsStat4::SymLink),
        _ => Err(NfsStat4::WrongType),
    }
}

pub(super) struct Write;

impl Op for Write {
    const NUMBER: Op4 = Op4::Write;
    const NAME: &'static str = "WRITE";
    const RESULT_BYTES_MAX: usize = 16;
    type Arguments<'a> = Write4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Write4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let id = given(run, &arguments.stateid)?;
        let how = match arguments.stable {
            StableHow::Unstable => WriteHow::Unstable,
            StableHow::DataSync => WriteHow::DataSync,
            StableHow::FileSync => WriteHow::FileSync,
        };
        run.stored(NfsStat4::IsDir)?;
        let client = client_of(run, &id)?;
        let file = file_key(run.stored(NfsStat4::IsDir)?.1);
        judge(run, &client, &id, &file, ShareAccess::WRITE)?;
        let _change = changing::begin(run)?;
        let (call, target) = changing::stored(run)?;
        // The verifier is taken before the data: a flush that fails in between makes the client send
        // the data again, which is safe; the other order could hide the loss.
        let verifier = call.shared.verifier.now();
        let mut written = Err(FsError::Io);
        let promised = target
            .storage
            .write(&target.caller(), &target.handle, arguments.offset, arguments.data, how)
            .map(|changed| written = changed.result);
        run.promise(promised);
        if let Err(error) = written {
            let (call, target) = run.stored(NfsStat4::IsDir)?;
            return Err(of_no_data(call, target, error));
        }
        let written = written.or_status()?;
        let mut w = Writer::new(&mut reply.bytes);
        w.u32(written.count);
        w.u32(match written.committed {
            WriteHow::Unstable => StableHow::Unstable,
            WriteHow::DataSync => StableHow::DataSync,
            WriteHow::FileSync => StableHow::FileSync,
        } as u32);
        w.u64(verifier);
        Ok(())
    }
}

pub(super) struct Commit;

impl Op for Commit {
    const NUMBER: Op4 = Op4::Commit;
    const NAME: &'static str = "COMMIT";
    type Arguments<'a> = Commit4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Commit4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let Commit4Args { offset, count } = *arguments;
        if offset.checked_add(u64::from(count)).is_none() {
            return Err(NfsStat4::Inval);
        }
        let (call, target) = run.stored(NfsStat4::IsDir)?;
        call.may_block(target).or_status()?;
        let mut result = Ok(());
        let promised = target
            .storage
            .commit(&target.caller(), &target.handle, offset, count)
            .map(|changed| result = changed.result);
        // Not before: what the storage finds out on its way, that data was lost, has to be told.
        let verifier = call.shared.verifier.now();
        run.promise(promised);
        if let Err(error) = result {
            let (call, target) = run.stored(NfsStat4::IsDir)?;
            return Err(of_no_data(call, target, error));
        }
        Writer::new(&mut reply.bytes).u64(verifier);
        run.call.note_verifier(&reply.bytes);
        Ok(())
    }
}

/// The status of an error of data. Objects without data have one for each kind (RFC 8881 §15.1.2.9, RFC 7530 §13.1.8).
fn of_no_data(call: &mut Call<'_>, target: &Target<'_>, error: FsError) -> NfsStat4 {
    match error {
        FsError::Invalid => require_file(call, target).err().unwrap_or(NfsStat4::Inval),
        error => super::status::status(error),
    }
}

/// The status of an error of READLINK: what is no link has none.
fn wrong_type(error: FsError) -> NfsStat4 {
    match error {
        FsError::Invalid => NfsStat4::WrongType,
        error => super::status::status(error),
    }
}

pub(super) struct ReadLink;

impl Op for ReadLink {
    const NUMBER: Op4 = Op4::ReadLink;
    const NAME: &'static str = "READLINK";
    type Arguments<'a> = Ignored;

    fn run(run: &mut Run<'_, '_>, _: &Ignored, reply: &mut ReplyBuffer) -> Result<(), NfsStat4> {
        let mut text = Vec::new();
        let (call, target) = run.stored(NfsStat4::WrongType)?;
        // A long target is in a block of its own, on the disk perhaps.
        call.seldom_blocks(target).or_status()?;
        let attr = call.read(target, |caller| {
            text.clear();
            target.storage.read_link(caller, &target.handle, &mut text)
        });
        attr.map_err(wrong_type)?;
        Writer::new(&mut reply.bytes).opaque(&text);
        Ok(())
    }
}
