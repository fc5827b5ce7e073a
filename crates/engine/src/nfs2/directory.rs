//! READDIR (RFC 1094 §2.2.17). What a page has is [`listing`]'s to say.

use steadfast_vfs::FsError;
use steadfast_wire::nfs2::{DATA_BYTES_MAX, Readdir2Args};
use steadfast_xdr::Writer;

use super::encode::{self, folded};
use super::listing::{self, Each, Page};
use super::status::reads;
use crate::call::{Call, Outcome};
use crate::operation::Operation;
use crate::program::Procedure;
use crate::reply::ReplyBuffer;

pub(super) struct Readdir;

impl Procedure for Readdir {
    const OPERATION: Operation = reads("READDIR");
    type Arguments<'a> = Readdir2Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Readdir2Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        match page(call, arguments) {
            Ok(Page { entries, is_end }) => {
                encode::ok(&mut w);
                for entry in entries {
                    w.bool(true);
                    w.u32(folded(entry.fileid));
                    w.opaque(&entry.name);
                    w.u32(entry.cookie);
                }
                w.bool(false);
                w.bool(is_end);
                Outcome::Done
            }
            Err(error) => call.fail(&mut w, error),
        }
    }
}

fn page(call: &mut Call<'_>, arguments: &Readdir2Args<'_>) -> Result<Page, FsError> {
    let target = call.resolve(arguments.dir.0)?;
    // Directories cannot be read without the chance of waiting for the disk.
    call.may_block(&target)?;
    let caller = target.caller();
    let bytes_max = (arguments.count as usize).min(DATA_BYTES_MAX);
    let mut read = |position: u64, each: &mut Each<'_>| {
        let page = target.storage.read_directory(
            &caller,
            &target.handle,
            position,
            false,
            &mut |entry| each(entry.name, entry.fileid, entry.cookie),
        )?;
        Ok(page.is_end)
    };
    listing::page(&mut read, arguments.cookie, bytes_max)
}
