//! READZ and WRITEZ: READ and WRITE of NFSv3 whose data is compressed on its way (docs/recovery.md).
//!
//! All but the form of the data is done by what READ and WRITE do: whose files they are, who may, locks, delegations,
//! the duplicate request cache, the log.

use std::sync::atomic::{AtomicUsize, Ordering};

use steadfast_vfs::FsError;
use steadfast_wire::frame;
use steadfast_wire::nfs3::Read3Args;
use steadfast_wire::recovery::WritezArgs;
use steadfast_xdr::Writer;

use crate::call::{Call, Outcome};
use crate::nfs3::data::{read, write};
use crate::nfs3::encode;
use crate::nfs3::status::{changes, reads};
use crate::operation::Operation;
use crate::program::Procedure;
use crate::reply::ReplyBuffer;

/// How many READZ compress. Each has a worker of its own meanwhile and memory of about three times its data, and a client
/// may have as many under way as it likes: beyond some nothing is gained, and the data of further ones goes as it is.
#[derive(Debug)]
pub(crate) struct Compressions {
    running: AtomicUsize,
    running_max: AtomicUsize,
}

impl Default for Compressions {
    fn default() -> Self {
        Self { running: AtomicUsize::new(0), running_max: AtomicUsize::new(1) }
    }
}

impl Compressions {
    /// From now on so many may run at once.
    pub(crate) fn set_running_max(&self, running_max: usize) {
        self.running_max.store(running_max, Ordering::Relaxed);
    }

    /// One more, until it is dropped; `None` if there are enough.
    fn begin(&self) -> Option<Running<'_>> {
        let running_max = self.running_max.load(Ordering::Relaxed);
        let one_more = |running| (running < running_max).then_some(running + 1);
        self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Running(self))
    }
}

/// A READZ that compresses.
struct Running<'c>(&'c Compressions);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// WRITE of a frame.
pub(super) struct Writez;

impl Procedure for Writez {
    const OPERATION: Operation = changes("WRITEZ", 2);
    type Arguments<'a> = WritezArgs<'a>;

    fn run(call: &mut Call<'_>, arguments: &WritezArgs<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let WritezArgs { file, offset, count, stable, frame } = arguments;
        // What a small frame can make of the server's memory and time has this bound.
        let is_short_enough = *count <= call.transfer_bytes_max();
        write(call, (file, *offset, *stable), reply, || {
            let data = is_short_enough.then(|| frame::decompress(frame, *count as usize));
            data.and_then(Result::ok).map(Into::into).ok_or(FsError::Invalid)
        })
    }
}

/// READ whose data is compressed where that makes it shorter.
pub(super) struct Readz;

impl Procedure for Readz {
    const OPERATION: Operation = reads("READZ", 1);
    type Arguments<'a> = Read3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Read3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut data = Vec::new();
        let read = read(call, arguments, false, &mut data);
        let mut w = Writer::new(&mut reply.bytes);
        let done = match read {
            Ok(done) => done,
            Err(error) => return call.fail(&mut w, error),
        };
        let is_worth_trying = data.len() >= frame::DATA_BYTES_MIN;
        let running = is_worth_trying.then(|| call.shared.compressions.begin()).flatten();
        let frame = running.and_then(|_running| {
            // It takes as long as many small calls, which somebody else may answer meanwhile. It waits for no storage,
            // and so takes no room of those that do: there are few of these.
            call.host.may_block();
            frame::compress(&data)
        });
        encode::ok(&mut w);
        encode::post_op_attr(&mut w, Some(&done.attr));
        w.u32(done.count);
        w.bool(done.is_end);
        w.bool(frame.is_some());
        w.opaque(frame.as_deref().unwrap_or(&data));
        Outcome::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_wait_for_clients_that_bring_back_what_was_lost_as_read_and_write_do() {
        let both = [Writez::OPERATION, Readz::OPERATION];
        assert!(both.iter().all(|one| !one.is_answered_while_recovering));
        assert_eq!(both.map(|one| one.is_changing), [true, false]);
    }
}
