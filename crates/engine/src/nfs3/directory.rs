//! READDIR and READDIRPLUS (RFC 1813 §3.3.16, §3.3.17).
//!
//! Cookies are the file system's own positions and stay good while names come and go, so the
//! cookie verifier is always zero and never refused.

use steadfast_state::Telling;
use steadfast_vfs::{DirEntry, FsError};
use steadfast_wire::nfs3::{Readdir3Args, Readdirplus3Args};
use steadfast_xdr::Writer;

use super::encode::{self, POST_OP_ATTR_BYTES};
use super::status::reads;
use crate::call::{Call, Outcome, Target};
use crate::operation::Operation;
use crate::program::Procedure;
use crate::reply::ReplyBuffer;
use crate::wire_handle::WIRE_HANDLE_BYTES_MAX;

/// What a list costs besides its entries: directory attributes, cookie verifier, end of list, eof.
const LIST_BYTES: usize = POST_OP_ATTR_BYTES + 8 + 4 + 4;

/// How large one reply may be, in bytes: what the client asks for, bounded by what we send.
#[derive(Clone, Copy)]
struct Budget {
    /// Everything.
    all_bytes: usize,
    /// File numbers, names and cookies alone (READDIRPLUS `dircount`).
    names_bytes: usize,
}

pub(super) struct Readdir;

impl Procedure for Readdir {
    const OPERATION: Operation = reads("READDIR", 1);
    type Arguments<'a> = Readdir3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Readdir3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let budget = Budget { all_bytes: arguments.count as usize, names_bytes: usize::MAX };
        list(call, arguments.dir.0, arguments.cookie, budget, false, &mut reply.bytes);
        Outcome::Done
    }
}

pub(super) struct Readdirplus;

impl Procedure for Readdirplus {
    const OPERATION: Operation = reads("READDIRPLUS", 1);
    type Arguments<'a> = Readdirplus3Args<'a>;

    fn run(
        call: &mut Call<'_>,
        arguments: &Readdirplus3Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Outcome {
        let budget = Budget {
            all_bytes: arguments.maxcount as usize,
            names_bytes: arguments.dircount as usize,
        };
        list(call, arguments.dir.0, arguments.cookie, budget, true, &mut reply.bytes);
        Outcome::Done
    }
}

fn list(
    call: &mut Call<'_>,
    dir: &[u8],
    cookie: u64,
    budget: Budget,
    is_plus: bool,
    reply: &mut Vec<u8>,
) {
    let start = reply.len();
    let all_bytes = budget.all_bytes.min(call.transfer_bytes_max() as usize);
    let result = call.resolve(dir).and_then(|target| {
        // Directories cannot be read without the chance of waiting for the disk.
        call.may_block(&target)?;
        let mut w = Writer::new(reply);
        encode::ok(&mut w);
        w.zeros(POST_OP_ATTR_BYTES + 8);
        let mut room = all_bytes.saturating_sub(LIST_BYTES);
        let mut names_room = budget.names_bytes;
        let mut told = 0_usize;
        let since = call.begin_telling();
        let page = target.storage.read_directory(
            &target.caller(),
            &target.handle,
            cookie,
            is_plus,
            &mut |entry| {
                let (size, names_size) = sizes(entry, is_plus);
                if size > room || (names_size > names_room && told > 0) {
                    return false;
                }
                room -= size;
                names_room = names_room.saturating_sub(names_size);
                told += 1;
                tell(&mut Writer::new(reply), call, &target, entry, is_plus.then_some(since));
                true
            },
        )?;
        if told == 0 && !page.is_end { Err(FsError::TooSmall) } else { Ok(page) }
    });
    match result {
        Ok(page) => {
            let mut w = Writer::new(reply);
            w.bool(false);
            w.bool(page.is_end);
            // The directory's attributes come first, but are known last.
            let mut head = Vec::with_capacity(POST_OP_ATTR_BYTES);
            encode::post_op_attr(&mut Writer::new(&mut head), page.dir_attr.as_ref());
            let room = start + 4..start + 4 + POST_OP_ATTR_BYTES;
            reply.splice(room, head);
        }
        Err(error) => {
            reply.truncate(start);
            call.fail(&mut Writer::new(reply), error);
        }
    }
}

fn padded(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// Encoded sizes of an entry in bytes: all of it, and number, name and cookie alone. Handles
/// count with their greatest length, so that an entry never exceeds what was counted.
fn sizes(entry: &DirEntry<'_>, is_plus: bool) -> (usize, usize) {
    let name_bytes = padded(entry.name.len());
    let names = 8 + 4 + name_bytes + 8;
    let attributes_and_handle = match (&entry.entry, is_plus) {
        (_, false) => 0,
        (Some(_), true) => POST_OP_ATTR_BYTES + 4 + 4 + padded(WIRE_HANDLE_BYTES_MAX),
        (None, true) => 4 + 4,
    };
    (4 + names + attributes_and_handle, names)
}

fn tell<'a>(
    w: &mut Writer<'_>,
    call: &Call<'a>,
    dir: &Target<'a>,
    entry: &DirEntry<'_>,
    plus: Option<Telling>,
) {
    w.bool(true);
    w.u64(entry.fileid);
    w.opaque(entry.name);
    w.u64(entry.cookie);
    if let Some(since) = plus {
        // Of what the caller may not use on another mount, no more than the name.
        let entry = entry.entry.as_ref();
        let entry = entry.filter(|entry| call.require_access(dir, &entry.handle).is_ok());
        let told =
            entry.and_then(|entry| call.told(since, dir.storage, &entry.handle, &entry.attr));
        encode::post_op_attr(w, told);
        w.bool(entry.is_some());
        if let Some(entry) = entry {
            w.opaque(call.seal(dir.share, &entry.handle).as_bytes());
        }
    }
}
