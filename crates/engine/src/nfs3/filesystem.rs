//! FSSTAT, FSINFO, PATHCONF (RFC 1813 §3.3.18 to §3.3.20).

use steadfast_vfs::Attr;
use steadfast_wire::nfs3::{Fsinfo3Args, Fsstat3Args, Pathconf3Args};
use steadfast_xdr::Writer;

use super::encode;
use super::status::reads;
use crate::call::{Call, Outcome};
use crate::operation::Operation;
use crate::program::Procedure;
use crate::reply::ReplyBuffer;

/// What READ, WRITE and READDIR sizes should be multiples of, in bytes: a page.
const TRANSFER_MULTIPLE_BYTES: u32 = 4096;

const NANOSECONDS: u32 = 1_000_000_000;

/// `FSF3_LINK`, `FSF3_SYMLINK`, `FSF3_HOMOGENEOUS`, `FSF3_CANSETTIME` (RFC 1813 §3.3.19).
const HAS_LINKS: u32 = 0x01;
const HAS_SYMLINKS: u32 = 0x02;
const IS_HOMOGENEOUS: u32 = 0x08;
const CAN_SET_TIME: u32 = 0x10;

pub(super) struct Fsstat;

impl Procedure for Fsstat {
    const OPERATION: Operation = reads("FSSTAT", 1).while_recovering();
    type Arguments<'a> = Fsstat3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Fsstat3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let since = call.begin_telling();
        let result = call.resolve(arguments.fsroot.0).and_then(|target| {
            let (statistics, attr) =
                call.read(&target, |caller| target.storage.statistics(caller, &target.handle))?;
            Ok((statistics, call.told(since, target.storage, &target.handle, &attr).copied()))
        });
        match result {
            Ok((statistics, attr)) => {
                encode::ok(&mut w);
                encode::post_op_attr(&mut w, attr.as_ref());
                w.u64(statistics.total_bytes);
                w.u64(statistics.free_bytes);
                w.u64(statistics.available_bytes);
                w.u64(statistics.total_files);
                w.u64(statistics.free_files);
                w.u64(statistics.available_files);
                // No promise how long these stay true.
                w.u32(0);
            }
            Err(error) => return call.fail(&mut w, error),
        }
        Outcome::Done
    }
}

pub(super) struct Fsinfo;

impl Procedure for Fsinfo {
    const OPERATION: Operation = reads("FSINFO", 1).while_recovering();
    type Arguments<'a> = Fsinfo3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Fsinfo3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let since = call.begin_telling();
        let result = call.resolve(arguments.fsroot.0).and_then(|target| {
            let attr =
                call.read(&target, |caller| target.storage.attributes(caller, &target.handle))?;
            let told = call.told(since, target.storage, &target.handle, &attr).copied();
            Ok((target.storage.info(&target.handle)?, told))
        });
        match result {
            Ok((info, attr)) => {
                let transfer_bytes_max = call.transfer_bytes_max();
                encode::ok(&mut w);
                encode::post_op_attr(&mut w, attr.as_ref());
                for _read_then_write in 0..2 {
                    w.u32(transfer_bytes_max);
                    w.u32(transfer_bytes_max);
                    w.u32(TRANSFER_MULTIPLE_BYTES);
                }
                w.u32(transfer_bytes_max);
                w.u64(info.file_bytes_max);
                w.u32(info.time_granularity_ns / NANOSECONDS);
                w.u32(info.time_granularity_ns % NANOSECONDS);
                let mut properties = CAN_SET_TIME;
                if info.is_homogeneous {
                    properties |= IS_HOMOGENEOUS;
                }
                if info.has_links {
                    properties |= HAS_LINKS;
                }
                if info.has_symlinks {
                    properties |= HAS_SYMLINKS;
                }
                w.u32(properties);
            }
            Err(error) => return call.fail(&mut w, error),
        }
        Outcome::Done
    }
}

pub(super) struct Pathconf;

impl Procedure for Pathconf {
    const OPERATION: Operation = reads("PATHCONF", 1).while_recovering();
    type Arguments<'a> = Pathconf3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Pathconf3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let mut attr: Option<Attr> = None;
        let since = call.begin_telling();
        let result = call.resolve(arguments.object.0).and_then(|target| {
            let read =
                call.read(&target, |caller| target.storage.attributes(caller, &target.handle))?;
            attr = call.told(since, target.storage, &target.handle, &read).copied();
            target.storage.path_limits(&target.handle)
        });
        match result {
            Ok(limits) => {
                encode::ok(&mut w);
                encode::post_op_attr(&mut w, attr.as_ref());
                w.u32(limits.links_max);
                w.u32(limits.name_bytes_max);
                // Linux refuses longer names whatever the file system, and lets only root give files away.
                let (no_trunc, chown_restricted) = (true, true);
                w.bool(no_trunc);
                w.bool(chown_restricted);
                w.bool(limits.is_case_insensitive);
                w.bool(limits.preserves_case);
            }
            Err(error) => return call.fail(&mut w, error),
        }
        Outcome::Done
    }
}
