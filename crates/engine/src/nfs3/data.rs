//! READ, WRITE, COMMIT, READLINK (RFC 1813 §3.3.5 to §3.3.7, §3.3.21).

use steadfast_vfs::{Caller, FsError, ReadPlace, WriteHow};
use steadfast_wire::nfs3::{Commit3Args, Read3Args, Readlink3Args, StableHow, Write3Args};
use steadfast_xdr::{Decode, Reader, Writer, XdrError};

use super::encode;
use super::status::status;
use crate::call::ReplyBuffer;
use crate::session::{Outcome, Session, barrier};

pub(super) fn readlink(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, XdrError> {
    let arguments = Readlink3Args::decode(arguments)?;
    let mut text = Vec::new();
    let result = session.resolve(arguments.symlink.0).and_then(|target| {
        // A long target is in a block of its own, on the disk perhaps.
        session.seldom_blocks(&target)?;
        session.read(&target, |caller| {
            text.clear();
            target.storage.read_link(caller, &target.handle, &mut text)
        })
    });
    let mut w = Writer::new(reply);
    match result {
        Ok(attr) => {
            encode::ok(&mut w);
            encode::post_op_attr(&mut w, Some(&attr));
            w.opaque(&text);
        }
        Err(error) => encode::failure(&mut w, error, 1),
    }
    Ok(Outcome::Done)
}

/// READ's data is appended straight to the reply, behind room for what is known only afterwards.
pub(super) fn read(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut ReplyBuffer,
) -> Result<Outcome, XdrError> {
    let arguments = Read3Args::decode(arguments)?;
    let count = arguments.count.min(session.transfer_bytes_max());
    let start = reply.bytes.len();
    let mut w = Writer::new(&mut reply.bytes);
    encode::ok(&mut w);
    w.zeros(encode::POST_OP_ATTR_BYTES + 4 + 4 + 4);
    let data_start = reply.bytes.len();
    let may_be_place = reply.may_place_files;
    let result = session.resolve(arguments.file.0).and_then(|target| {
        session.read(&target, |caller: &Caller<'_>| {
            target.storage.read(
                caller,
                &target.handle,
                arguments.offset,
                count,
                may_be_place,
                &mut reply.bytes,
            )
        })
    });
    match result {
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
            encode::failure(&mut Writer::new(&mut reply.bytes), error, 1);
        }
    }
    Ok(Outcome::Done)
}

pub(super) fn write(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, XdrError> {
    let arguments = Write3Args::decode(arguments)?;
    let mut w = Writer::new(reply);
    let how = match arguments.stable {
        StableHow::Unstable => WriteHow::Unstable,
        StableHow::DataSync => WriteHow::DataSync,
        StableHow::FileSync => WriteHow::FileSync,
    };
    // `count` says how many of the bytes sent are to be written.
    let data = arguments.data.get(..arguments.count as usize).unwrap_or(arguments.data);
    let target = match session.resolve(arguments.file.0) {
        Ok(target) => target,
        Err(error) => {
            encode::failure(&mut w, error, 2);
            return Ok(Outcome::Done);
        }
    };
    // The verifier is taken before the data: a flush that fails in between makes the client send
    // the data again, which is safe; the other order could hide the loss.
    let verifier = session.engine.write_verifier();
    let durable =
        target.storage.write(&target.caller(), &target.handle, arguments.offset, data, how);
    Ok(barrier(durable.map(|changed| match changed.result {
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
    })))
}

pub(super) fn commit(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, XdrError> {
    let arguments = Commit3Args::decode(arguments)?;
    let mut w = Writer::new(reply);
    let result = session.resolve(arguments.file.0).and_then(|target| {
        if arguments.offset.checked_add(u64::from(arguments.count)).is_none() {
            return Err(FsError::Invalid);
        }
        session.may_block(&target)?;
        Ok(target)
    });
    let target = match result {
        Ok(target) => target,
        Err(error) => {
            encode::failure(&mut w, error, 2);
            return Ok(Outcome::Done);
        }
    };
    let durable =
        target.storage.commit(&target.caller(), &target.handle, arguments.offset, arguments.count);
    // Not before: what the storage finds out on its way, that data was lost, has to be told.
    let verifier = session.engine.write_verifier();
    let mut is_ok = false;
    let outcome = barrier(durable.map(|changed| {
        is_ok = changed.result.is_ok();
        encode::changed(&mut w, &changed);
        if is_ok {
            w.u64(verifier);
        }
    }));
    Ok(match outcome {
        Outcome::Waits { obligation, .. } => {
            Outcome::Waits { obligation, ends_with_verifier: is_ok }
        }
        done => done,
    })
}
