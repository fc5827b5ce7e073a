//! The recovery program, version 1 (docs/recovery.md): a client that keeps a journal of its changes is
//! told when they are stable, also where COMMIT is answered from memory (`async`).
//!
//! It has the handles, statuses, write verifiers and rules of access of NFSv3, and is registered with no
//! rpcbind: who wants it asks on the port of NFS. READ and WRITE of data that is compressed on its way are in
//! [`compressed`].

mod compressed;

pub(crate) use compressed::Compressions;

use steadfast_shares::ShareId;
use steadfast_vfs::FsError;
use steadfast_wire::recovery::{
    AttachArgs, COMPRESSION, JournalArgs, RECORDED, StatusArgs, StatusOk, StatusRes, SyncArgs,
    SyncOk, SyncRes, WAITING, WAITING_FOR_YOU,
};
use steadfast_xdr::{Encode, Writer};

use crate::call::{Call, Outcome, Target};
use crate::journaling_clients::{Attached, JournalId, JournalingClient, JournalingClients};
use crate::nfs3::status::{reads, status};
use crate::operation::Operation;
use crate::peer::Origin;
use crate::program::{Null, Port, Procedure, Program, Row, Version};
use crate::reply::ReplyBuffer;

/// Its procedures by number.
const PROCEDURES: &[Row] = &[
    Row::of::<Null>(),
    Row::of::<Status>(),
    Row::of::<Sync>(),
    Row::of::<Attach>(),
    Row::of::<Recovered>(),
    Row::of::<Detach>(),
    Row::of::<compressed::Writez>(),
    Row::of::<compressed::Readz>(),
];

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
    const OPERATION: Operation = reads("STATUS", 0).while_recovering();
    type Arguments<'a> = StatusArgs<'a>;

    fn run(call: &mut Call<'_>, arguments: &StatusArgs<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let result = call.resolve(arguments.object.0).and_then(|target| {
            // Whether the object is there: a handle that is stale for NFS is stale here.
            call.read(&target, |caller| target.storage.attributes(caller, &target.handle))?;
            let is_async = target.rights.is_async;
            Ok((target, is_async))
        });
        match result {
            Ok((target, is_async)) => {
                tell(call, &mut w, &target, is_async, 0);
                Outcome::Done
            }
            Err(error) => call.fail(&mut w, error),
        }
    }
}

fn tell(call: &Call<'_>, w: &mut Writer<'_>, target: &Target<'_>, is_async: bool, recorded: u32) {
    let is_waiting = call.shared.journaling_clients.is_waiting(target.share.id);
    let flags = COMPRESSION | recorded | if is_waiting { WAITING } else { 0 };
    let verifier = call.shared.verifier.now().to_be_bytes();
    StatusRes::Ok(StatusOk { is_async, verifier, flags }).encode(w);
}

/// A client says on its connection which journal it keeps.
struct Attach;

impl Procedure for Attach {
    const OPERATION: Operation = reads("ATTACH", 0).while_recovering();
    type Arguments<'a> = AttachArgs<'a>;

    fn run(call: &mut Call<'_>, arguments: &AttachArgs<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let result = call.resolve(arguments.object.0).and_then(|target| {
            call.read(&target, |caller| target.storage.attributes(caller, &target.handle))?;
            let clients = &call.shared.journaling_clients;
            let is_known = clients.is_recorded(target.share.id, &arguments.journal);
            let is_async = target.rights.is_async;
            // Of a share that is not `async` (any more) there is nothing to wait for but what was
            // promised before; who may change nothing is promised nothing.
            if !is_known && (!is_async || target.rights.is_read_only) {
                return Ok((target, is_async, 0));
            }
            if !is_known {
                call.may_block(&target)?;
            }
            let client = JournalingClient {
                share: target.share.id,
                journal: arguments.journal,
                address: call.peer.address.ip(),
                name: arguments.name.to_vec(),
            };
            let flags = match clients.attach(&client, call.peer.origin(), call.now_ms) {
                Attached::Unrecorded => 0,
                Attached::Recorded => RECORDED,
                Attached::WaitedFor => RECORDED | WAITING_FOR_YOU,
            };
            Ok((target, is_async, flags))
        });
        match result {
            Ok((target, is_async, recorded)) => {
                tell(call, &mut w, &target, is_async, recorded);
                Outcome::Done
            }
            Err(error) => call.fail(&mut w, error),
        }
    }
}

/// Does something for a client with a journal, and tells the write verifier.
fn for_journal(
    call: &mut Call<'_>,
    arguments: &JournalArgs<'_>,
    reply: &mut ReplyBuffer,
    work: fn(&JournalingClients, ShareId, &JournalId, Origin) -> bool,
) -> Outcome {
    let mut w = Writer::new(&mut reply.bytes);
    let result = call.resolve(arguments.object.0).and_then(|target| {
        let (clients, from) = (&call.shared.journaling_clients, call.peer.origin());
        let is_known = work(clients, target.share.id, &arguments.journal, from);
        // It has to say first who it is.
        if is_known { Ok(()) } else { Err(FsError::Invalid) }
    });
    match result {
        Ok(()) => {
            let verifier = call.shared.verifier.now().to_be_bytes();
            SyncRes::Ok(SyncOk { verifier }).encode(&mut w);
            Outcome::Done
        }
        Err(error) => call.fail(&mut w, error),
    }
}

/// A client has brought back what was lost.
struct Recovered;

impl Procedure for Recovered {
    const OPERATION: Operation = reads("RECOVERED", 0).while_recovering();
    type Arguments<'a> = JournalArgs<'a>;

    fn run(call: &mut Call<'_>, arguments: &JournalArgs<'_>, reply: &mut ReplyBuffer) -> Outcome {
        for_journal(call, arguments, reply, JournalingClients::recovered)
    }
}

/// A client has nothing in its journal any more, and ends.
struct Detach;

impl Procedure for Detach {
    const OPERATION: Operation = reads("DETACH", 0).while_recovering();
    type Arguments<'a> = JournalArgs<'a>;

    fn run(call: &mut Call<'_>, arguments: &JournalArgs<'_>, reply: &mut ReplyBuffer) -> Outcome {
        for_journal(call, arguments, reply, JournalingClients::detach)
    }
}

/// Answers when all that was acknowledged of a file system is stable.
struct Sync;

impl Procedure for Sync {
    // It changes nothing that a client could see: read-only shares allow it, and a repetition is executed.
    const OPERATION: Operation = reads("SYNC", 0).while_recovering();
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
        let verifier = call.shared.verifier.now().to_be_bytes();
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
