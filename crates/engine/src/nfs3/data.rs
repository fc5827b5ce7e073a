//! READ, WRITE, COMMIT, READLINK (RFC 1813 §3.3.5 to §3.3.7, §3.3.21).

use std::borrow::Cow;

use steadfast_state::ShareAccess;
use steadfast_vfs::{Caller, FsError, ReadDone, ReadPlace, Wcc, WriteHow};
use steadfast_wire::nfs3::{Commit3Args, NfsFh3, Read3Args, Readlink3Args, StableHow, Write3Args};
use steadfast_xdr::Writer;

use super::encode;
use super::status::{changes, reads, status};
use crate::call::{Call, Outcome};
use crate::operation::Operation;
use crate::program::Procedure;
use crate::reply::ReplyBuffer;

pub(super) struct Readlink;

impl Procedure for Readlink {
    const OPERATION: Operation = reads("READLINK", 1);
    type Arguments<'a> = Readlink3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Readlink3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut text = Vec::new();
        let result = call.resolve(arguments.symlink.0).and_then(|target| {
            // A long target is in a block of its own, on the disk perhaps.
            call.seldom_blocks(&target)?;
            call.read(&target, |caller| {
                text.clear();
                target.storage.read_link(caller, &target.handle, &mut text)
            })
        });
        let mut w = Writer::new(&mut reply.bytes);
        match result {
            Ok(attr) => {
                encode::ok(&mut w);
                encode::post_op_attr(&mut w, Some(&attr));
                w.opaque(&text);
            }
            Err(error) => return call.fail(&mut w, error),
        }
        Outcome::Done
    }
}

/// READ's data is appended straight to the reply, behind room for what is known only afterwards.
pub(super) struct Read;

impl Procedure for Read {
    const OPERATION: Operation = reads("READ", 1);
    type Arguments<'a> = Read3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Read3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let start = reply.bytes.len();
        let mut w = Writer::new(&mut reply.bytes);
        encode::ok(&mut w);
        w.zeros(encode::POST_OP_ATTR_BYTES + 4 + 4 + 4);
        let data_start = reply.bytes.len();
        let may_be_place = reply.may_place_files;
        match read(call, arguments, may_be_place, &mut reply.bytes) {
            Ok(done) => {
                let mut head = Vec::with_capacity(data_start - start);
                let mut w = Writer::new(&mut head);
                encode::ok(&mut w);
                encode::post_op_attr(&mut w, Some(&done.attr));
                w.u32(done.count);
                w.bool(done.is_end);
                w.u32(done.count);
                if let Some(room) = reply.bytes.get_mut(start..data_start) {
                    room.copy_from_slice(&head);
                }
                if let ReadPlace::File(range) = done.place {
                    reply.files.push((reply.bytes.len(), range));
                }
                let padding = (4 - done.count as usize % 4) % 4;
                Writer::new(&mut reply.bytes).zeros(padding);
            }
            Err(error) => {
                reply.bytes.truncate(start);
                return call.fail(&mut Writer::new(&mut reply.bytes), error);
            }
        }
        Outcome::Done
    }
}

/// What READ does, whatever form its result has: appends the data, or with `may_be_place` may answer with a range of
/// the file.
///
/// # Errors
/// As the result of READ tells.
pub(crate) fn read(
    call: &mut Call<'_>,
    arguments: &Read3Args<'_>,
    may_be_place: bool,
    into: &mut Vec<u8>,
) -> Result<ReadDone, FsError> {
    let count = arguments.count.min(call.transfer_bytes_max());
    let target = call.resolve(arguments.file.0)?;
    call.require_not_denied(&target, ShareAccess::READ)?;
    call.begin_read(&target, None)?;
    call.read(&target, |caller: &Caller<'_>| {
        let offset = arguments.offset;
        target.storage.read(caller, &target.handle, offset, count, may_be_place, into)
    })
}

pub(super) struct Write;

impl Procedure for Write {
    const OPERATION: Operation = changes("WRITE", 2);
    type Arguments<'a> = Write3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Write3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let Write3Args { file, offset, count, stable, data } = arguments;
        write(call, (file, *offset, *stable), reply, || {
            // `count` says how many of the bytes sent are to be written.
            Ok(data.get(..*count as usize).unwrap_or(data).into())
        })
    }
}

/// What WRITE does, whatever form its data has: to a file, from an offset, this stable at least. `data` is not asked for where the
/// share, its rules for the caller's address and user (read-only ones too), or what others have opened forbid the call. Whether the
/// file's mode allows it the storage finds out later.
pub(crate) fn write<'d>(
    call: &mut Call<'_>,
    (file, offset, stable): (&NfsFh3<'_>, u64, StableHow),
    reply: &mut ReplyBuffer,
    data: impl FnOnce() -> Result<Cow<'d, [u8]>, FsError>,
) -> Outcome {
    let mut w = Writer::new(&mut reply.bytes);
    let how = match stable {
        StableHow::Unstable => WriteHow::Unstable,
        StableHow::DataSync => WriteHow::DataSync,
        StableHow::FileSync => WriteHow::FileSync,
    };
    let resolved = call.resolve(file.0).and_then(|target| {
        call.require_not_denied(&target, ShareAccess::WRITE)?;
        let data = data()?;
        let change = call.begin_change(&target, None)?;
        Ok((target, data, change))
    });
    let (target, data, _change) = match resolved {
        Ok(resolved) => resolved,
        Err(error) => {
            return call.fail(&mut w, error);
        }
    };
    // The verifier is taken before the data: a flush that fails in between makes the client send
    // the data again, which is safe; the other order could hide the loss.
    let verifier = call.shared.verifier.now();
    let durable = target.storage.write(&target.caller(), &target.handle, offset, &data, how);
    let encoded = durable.map(|changed| match changed.result {
        Ok(written) => {
            encode::ok(&mut w);
            encode::wcc_data(&mut w, &changed.wcc);
            w.u32(written.count);
            w.u32(match written.committed {
                WriteHow::Unstable => StableHow::Unstable,
                WriteHow::DataSync => StableHow::DataSync,
                WriteHow::FileSync => StableHow::FileSync,
            } as u32);
            w.u64(verifier);
        }
        Err(error) => {
            w.u32(status(error) as u32);
            encode::wcc_data(&mut w, &changed.wcc);
        }
    });
    call.barrier(encoded)
}

pub(super) struct Commit;

impl Procedure for Commit {
    const OPERATION: Operation = reads("COMMIT", 2);
    type Arguments<'a> = Commit3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Commit3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let result = call.resolve(arguments.file.0).and_then(|target| {
            if arguments.offset.checked_add(u64::from(arguments.count)).is_none() {
                return Err(FsError::Invalid);
            }
            call.may_block(&target)?;
            Ok(target)
        });
        let target = match result {
            Ok(target) => target,
            Err(error) => {
                return call.fail(&mut w, error);
            }
        };
        let since = call.begin_telling();
        let durable = target.storage.commit(
            &target.caller(),
            &target.handle,
            arguments.offset,
            arguments.count,
        );
        // Not before: what the storage finds out on its way, that data was lost, has to be told.
        let verifier = call.shared.verifier.now();
        let mut is_ok = false;
        let encoded = durable.map(|mut changed| {
            is_ok = changed.result.is_ok();
            let hides = |attr| call.told(since, target.storage, &target.handle, attr).is_none();
            // It conflicts with nobody's delegation.
            if changed.wcc.after.as_ref().is_some_and(hides) {
                changed.wcc = Wcc::default();
            }
            encode::changed(&mut w, &changed);
            if is_ok {
                w.u64(verifier);
            }
        });
        if is_ok {
            call.note_verifier(&reply.bytes);
        }
        call.barrier(encoded)
    }
}
