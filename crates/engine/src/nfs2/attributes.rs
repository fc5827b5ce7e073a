//! GETATTR, SETATTR, STATFS (RFC 1094 §2.2.2, §2.2.3, §2.2.18).

use steadfast_state::ShareAccess;
use steadfast_vfs::{Attr, Changed, FsError, FsStatistics, SetAttr};
use steadfast_wire::nfs2::{DATA_BYTES_MAX, NfsFh2, Setattr2Args};
use steadfast_xdr::Writer;

use super::encode::{self, at_most};
use super::status::{changes, reads};
use super::{FILE_BYTES_MAX, decode};
use crate::call::{Call, Outcome, Target};
use crate::operation::Operation;
use crate::program::Procedure;
use crate::reply::ReplyBuffer;

/// The smallest unit in which space is told, in bytes.
const BLOCK_BYTES: u32 = 4096;

pub(super) struct Getattr;

impl Procedure for Getattr {
    const OPERATION: Operation = reads("GETATTR");
    type Arguments<'a> = NfsFh2<'a>;

    fn run(call: &mut Call<'_>, arguments: &NfsFh2<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let result = call.resolve(arguments.0).and_then(|target| call.look(&target, None));
        encode::attrstat(&mut Writer::new(&mut reply.bytes), result);
        Outcome::Done
    }
}

pub(super) struct Setattr;

impl Procedure for Setattr {
    const OPERATION: Operation = changes("SETATTR");
    type Arguments<'a> = Setattr2Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Setattr2Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let resolved = call.resolve(arguments.file.0).and_then(|target| {
            let set = decode::set_attr(&arguments.attributes)?;
            require_true_size(&target, &set)?;
            if set.size.is_some() {
                call.require_not_denied(&target, ShareAccess::WRITE)?;
            }
            let change = call.begin_change(&target, None)?;
            Ok((target, set, change))
        });
        let (target, set, _change) = match resolved {
            Ok(resolved) => resolved,
            Err(error) => return call.fail(&mut w, error),
        };
        let durable = target.storage.set_attributes(&target.caller(), &target.handle, &set, None);
        let encoded = durable.map(|changed| encode::attrstat(&mut w, after(&changed)));
        call.barrier(encoded)
    }
}

/// Refuses to cut a file to the size that was shown in the place of its own, which NFSv2 cannot tell:
/// a client that sends back all attributes means no such thing.
fn require_true_size(target: &Target<'_>, set: &SetAttr) -> Result<(), FsError> {
    if set.size != Some(u64::from(FILE_BYTES_MAX)) {
        return Ok(());
    }
    let attr = target.storage.attributes(&target.caller(), &target.handle)?;
    if attr.size > u64::from(FILE_BYTES_MAX) { Err(FsError::FileTooLarge) } else { Ok(()) }
}

/// The attributes that go with the success of a change. `Io` if they could not be read.
pub(super) fn after<T>(changed: &Changed<T>) -> Result<Attr, FsError> {
    match &changed.result {
        Ok(_) => changed.wcc.after.ok_or(FsError::Io),
        Err(error) => Err(*error),
    }
}

pub(super) struct Statfs;

impl Procedure for Statfs {
    const OPERATION: Operation = reads("STATFS");
    type Arguments<'a> = NfsFh2<'a>;

    fn run(call: &mut Call<'_>, arguments: &NfsFh2<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let result = call.resolve(arguments.0).and_then(|target| {
            call.read(&target, |caller| target.storage.statistics(caller, &target.handle))
        });
        match result {
            Ok((statistics, _)) => {
                encode::ok(&mut w);
                w.u32(DATA_BYTES_MAX as u32);
                for word in space(&statistics) {
                    w.u32(word);
                }
                Outcome::Done
            }
            Err(error) => call.fail(&mut w, error),
        }
    }
}

/// Bytes of a block, all blocks, the free ones, those available to the caller. Blocks are so large
/// that their number has 31 bits, which clients of that time can count.
fn space(statistics: &FsStatistics) -> [u32; 4] {
    let FsStatistics { total_bytes, free_bytes, available_bytes, .. } = *statistics;
    let mut block_bytes = BLOCK_BYTES;
    while total_bytes / u64::from(block_bytes) > u64::from(FILE_BYTES_MAX) && block_bytes < 1 << 30
    {
        block_bytes *= 2;
    }
    let blocks = |bytes: u64| at_most(bytes / u64::from(block_bytes), FILE_BYTES_MAX);
    [block_bytes, blocks(total_bytes), blocks(free_bytes), blocks(available_bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_grow_until_31_bits_count_them() {
        let of = |total_bytes| {
            let statistics = FsStatistics {
                total_bytes,
                free_bytes: total_bytes / 2,
                available_bytes: total_bytes / 4,
                ..FsStatistics::default()
            };
            space(&statistics)
        };
        assert_eq!(of(1 << 30), [4096, 1 << 18, 1 << 17, 1 << 16]);
        assert_eq!(of(1 << 43), [8192, 1 << 30, 1 << 29, 1 << 28]);
        assert_eq!(of((1 << 43) - 1), [4096, 0x7fff_ffff, 0x3fff_ffff, 0x1fff_ffff]);
        assert_eq!(of(u64::MAX)[..2], [1 << 30, 0x7fff_ffff]);
    }
}
