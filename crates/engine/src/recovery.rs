//! The recovery program, version 1 (docs/recovery.md): a client that keeps a journal of its changes is
//! told when they are stable, also where COMMIT is answered from memory (`async`).
//!
//! It has the handles, statuses, write verifiers and rules of access of NFSv3, and is registered with no
//! rpcbind: who wants it asks on the port of NFS.

use steadfast_wire::recovery::{StatusArgs, StatusOk, StatusRes, SyncArgs, SyncOk, SyncRes};
use steadfast_xdr::{Encode, Writer};

use crate::call::{Call, Outcome};
use crate::nfs3::status::{reads, status};
use crate::operation::Operation;
use crate::program::{Null, Port, Procedure, Program, Row, Version};
use crate::reply::ReplyBuffer;

/// Its procedures by number.
const PROCEDURES: &[Row] = &[Row::of::<Null>(), Row::of::<Status>(), Row::of::<Sync>()];

/// The recovery program.
pub(crate) const PROGRAM: Program = Program {
    name: "recovery",
    number: steadfast_wire::recovery::PROGRAM,
    port: Port::NfsUnlisted,
    versions: &[Version::new(1, PROCEDURES)],
};

/// Tells how changes of this caller are acknowledged.
struct Status;

impl Procedure for Status {
    const OPERATION: Operation = reads("STATUS", 0);
    type Arguments<'a> = StatusArgs<'a>;

    fn run(call: &mut Call<'_>, arguments: &StatusArgs<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let result = call.resolve(arguments.object.0).and_then(|target| {
            // Whether the object is there: a handle that is stale for NFS is stale here.
            call.read(&target, |caller| target.storage.attributes(caller, &target.handle))?;
            Ok(target.rights.is_async)
        });
        match result {
            Ok(is_async) => {
                let verifier = call.shared.write_verifier().to_be_bytes();
                StatusRes::Ok(StatusOk { is_async, verifier, flags: 0 }).encode(&mut w);
                Outcome::Done
            }
            Err(error) => call.fail(&mut w, error),
        }
    }
}

/// Answers when all that was acknowledged of a file system is stable.
struct Sync;

impl Procedure for Sync {
    // It changes nothing that a client could see: read-only shares allow it, and a repetition is executed.
    const OPERATION: Operation = reads("SYNC", 0);
    type Arguments<'a> = SyncArgs<'a>;

    fn run(call: &mut Call<'_>, arguments: &SyncArgs<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let result = call.resolve(arguments.object.0).and_then(|target| {
            call.may_block(&target)?;
            Ok(target)
        });
        let target = match result {
            Ok(target) => target,
            Err(error) => return call.fail(&mut w, error),
        };
        let durable = target.storage.sync(&target.caller(), &target.handle);
        // Not before, as of COMMIT: that something was lost has to be told.
        let verifier = call.shared.write_verifier().to_be_bytes();
        let mut is_ok = false;
        let encoded = durable.map(|result| {
            is_ok = result.is_ok();
            match result {
                Ok(()) => SyncRes::Ok(SyncOk { verifier }).encode(&mut w),
                Err(error) => SyncRes::Failed(status(error)).encode(&mut w),
            }
        });
        if is_ok {
            call.note_verifier(&reply.bytes);
        }
        call.barrier(encoded)
    }
}
