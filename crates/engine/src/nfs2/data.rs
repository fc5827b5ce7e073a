//! READLINK, READ, WRITE (RFC 1094 §2.2.6, §2.2.7, §2.2.9).

use steadfast_state::ShareAccess;
use steadfast_vfs::{Caller, FsError, ReadPlace, WriteHow};
use steadfast_wire::nfs2::{DATA_BYTES_MAX, NfsFh2, PATH_BYTES_MAX, Read2Args, Write2Args};
use steadfast_xdr::Writer;

use super::FILE_BYTES_MAX;
use super::attributes::after;
use super::encode::{self, FATTR_BYTES};
use super::status::{changes, reads};
use crate::call::{Call, Outcome};
use crate::operation::Operation;
use crate::program::Procedure;
use crate::reply::ReplyBuffer;

pub(super) struct Readlink;

impl Procedure for Readlink {
    const OPERATION: Operation = reads("READLINK");
    type Arguments<'a> = NfsFh2<'a>;

    fn run(call: &mut Call<'_>, arguments: &NfsFh2<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut text = Vec::new();
        let result = call.resolve(arguments.0).and_then(|target| {
            // A long target is in a block of its own, on the disk perhaps.
            call.seldom_blocks(&target)?;
            call.read(&target, |caller| {
                text.clear();
                target.storage.read_link(caller, &target.handle, &mut text)
            })
        });
        let mut w = Writer::new(&mut reply.bytes);
        match result {
            Ok(_) if text.len() > PATH_BYTES_MAX => call.fail(&mut w, FsError::NameTooLong),
            Ok(_) => {
                encode::ok(&mut w);
                w.opaque(&text);
                Outcome::Done
            }
            Err(error) => call.fail(&mut w, error),
        }
    }
}

/// READ's data is appended straight to the reply, behind room for what is known only afterwards.
pub(super) struct Read;

impl Procedure for Read {
    const OPERATION: Operation = reads("READ");
    type Arguments<'a> = Read2Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Read2Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let start = reply.bytes.len();
        let mut w = Writer::new(&mut reply.bytes);
        encode::ok(&mut w);
        w.zeros(FATTR_BYTES + 4);
        let data_start = reply.bytes.len();
        let may_be_place = reply.may_place_files;
        let result = call.resolve(arguments.file.0).and_then(|target| {
            // What lies beyond is there, perhaps: this is not its end.
            let reachable =
                FILE_BYTES_MAX.checked_sub(arguments.offset).ok_or(FsError::FileTooLarge)?;
            let bytes_max = call.transfer_bytes_max().min(DATA_BYTES_MAX as u32).min(reachable);
            let count = arguments.count.min(bytes_max);
            call.require_not_denied(&target, ShareAccess::READ)?;
            call.begin_read(&target, None)?;
            call.read(&target, |caller: &Caller<'_>| {
                target.storage.read(
                    caller,
                    &target.handle,
                    u64::from(arguments.offset),
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
                encode::fattr(&mut w, &done.attr);
                w.u32(done.count);
                if let Some(room) = reply.bytes.get_mut(start..data_start) {
                    room.copy_from_slice(&head);
                }
                if let ReadPlace::File(range) = done.place {
                    reply.files.push((reply.bytes.len(), range));
                }
                let padding = (4 - done.count as usize % 4) % 4;
                Writer::new(&mut reply.bytes).zeros(padding);
                Outcome::Done
            }
            Err(error) => {
                reply.bytes.truncate(start);
                call.fail(&mut Writer::new(&mut reply.bytes), error)
            }
        }
    }
}

/// There is no COMMIT: what is written is stable before the reply.
pub(super) struct Write;

impl Procedure for Write {
    const OPERATION: Operation = changes("WRITE");
    type Arguments<'a> = Write2Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Write2Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let data = arguments.data;
        let resolved = call.resolve(arguments.file.0).and_then(|target| {
            let end = u64::from(arguments.offset) + data.len() as u64;
            if end > u64::from(FILE_BYTES_MAX) {
                return Err(FsError::FileTooLarge);
            }
            call.require_not_denied(&target, ShareAccess::WRITE)?;
            let change = call.begin_change(&target, None)?;
            Ok((target, change))
        });
        let (target, _change) = match resolved {
            Ok(resolved) => resolved,
            Err(error) => return call.fail(&mut w, error),
        };
        let durable = target.storage.write(
            &target.caller(),
            &target.handle,
            u64::from(arguments.offset),
            data,
            WriteHow::FileSync,
        );
        let encoded = durable.map(|changed| {
            let attr = after(&changed);
            // The result has no place for how much was written: part of it is a failure.
            let attr = match changed.result {
                Ok(written) if (written.count as usize) < data.len() => Err(FsError::NoSpace),
                _ => attr,
            };
            encode::attrstat(&mut w, attr);
        });
        call.barrier(encoded)
    }
}
