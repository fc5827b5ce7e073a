//! From an RPC message to a procedure and back (RFC 5531).

use std::sync::Arc;

use steadfast_rpc::Credentials;
use steadfast_vfs::{Cred, FsError};
use steadfast_wire::rpc::{AuthStat, CallHeader, OpaqueAuth, RPCSEC_GSS};
use steadfast_xdr::{Decode, Reader, Writer};

use crate::Engine;
use crate::call::{Admitted, Call, CallWait, Message, Op, Outcome, Refusal};
use crate::complaint::{Complaint, HangUp};
use crate::export::ExportTable;
use crate::host::{CallHost, Room};
use crate::identity::WireIdentity;
use crate::peer::Peer;
use crate::program::Row;
use crate::programs::{self, PROGRAMS, Unserved};
use crate::promises::Promises;
use crate::record;
use crate::reply::{CallFacts, CallSubject, ReplyBuffer};
use crate::verdict::{Kept, ParkedCall, SuspendedCall, Verdict};

const RPC_VERSION: u32 = 2;
const MESSAGE_TYPE_CALL: u32 = 0;
const MESSAGE_TYPE_REPLY: u32 = 1;

impl Engine {
    /// Executes one call: `record` is one whole RPC message without record marks.
    ///
    /// With [`Verdict::Replied`] exactly one RPC message has been appended to `reply` (the
    /// caller adds the record mark). `now_ms` is any monotonic clock.
    pub fn call(
        &self,
        host: &mut dyn CallHost,
        peer: &Peer,
        now_ms: u64,
        record: &[u8],
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let mut reader = Reader::new(record);
        let xid = match (reader.u32(), reader.u32()) {
            (Ok(xid), Ok(MESSAGE_TYPE_CALL)) => xid,
            (Ok(_), Ok(MESSAGE_TYPE_REPLY)) if self.callback_reply(peer, now_ms, record) => {
                reply.facts = CallFacts::default();
                return Verdict::Silent;
            }
            _ => return Verdict::HangUp(HangUp::NotACall),
        };
        // Until more is known.
        reply.facts = CallFacts { xid, is_error: true, ..CallFacts::default() };
        reply.subject = CallSubject::default();
        let mut arguments = Reader::new(record);
        let Ok(header) = CallHeader::decode(&mut arguments) else {
            return refuse_header(record, xid, reply);
        };
        if header.rpcvers != RPC_VERSION {
            return refuse_header(record, xid, reply);
        }
        let numbers = (header.prog, header.vers, header.proc_);
        let found = match programs::find(
            header.prog,
            header.vers,
            header.proc_,
            peer.transport,
            self.shared.optional_versions(),
        ) {
            Ok(found) => found,
            Err(why) => return refuse_program(why, xid, reply),
        };
        if let Some((id, _)) = found {
            reply.facts.operation = id;
        }
        let asks_identity = found.is_none_or(|(_, row)| row.operation.asks_identity);
        let identity = match identity(&header, asks_identity) {
            Ok(identity) => identity,
            Err(why) => return refuse_credentials(why, header.cred.flavor, xid, reply),
        };
        let Some((_, row)) = found else {
            steadfast_rpc::proc_unavail(&mut Writer::new(&mut reply.bytes), xid);
            return Verdict::Replied;
        };
        let exports = self.shared.exports.load();
        let start = Start { reply_at: reply.bytes.len(), files: reply.files.len() };
        steadfast_rpc::accepted_success(&mut Writer::new(&mut reply.bytes), xid);
        let result_at = reply.bytes.len();
        let mut call = Call {
            shared: &self.shared,
            programs: &PROGRAMS,
            exports: &exports,
            host,
            peer,
            identity,
            now_ms,
            message: Message { bytes: record, xid, numbers },
            admitted: Admitted::nothing(&self.replies),
            minor_version: 0,
            complaint: None,
            lacks_room: None,
            wait: CallWait::default(),
            op: Op { operation: &row.operation, used: None },
            subject: CallSubject::default(),
            is_repeat: false,
            promises: Promises::of_result(result_at),
            suspended: None,
            ended_run: None,
        };
        let outcome = run(row, &mut call, &arguments, start, reply);
        reply.subject = call.subject;
        reply.facts.is_repeat = call.is_repeat;
        self.shared.send_effects(now_ms);
        match outcome {
            Outcome::Done => self.finish(&mut call, start, now_ms, reply),
            Outcome::Replayed => {
                let result = reply.bytes.get(result_at..).unwrap_or(&[]);
                reply.facts.is_error = row.operation.is_failure(result);
                Verdict::Replied
            }
            Outcome::Silent => {
                start.drop_reply(reply);
                reply.facts.is_error = false;
                end_silently(&mut call, reply)
            }
            Outcome::Refused(why) => {
                start.drop_reply(reply);
                refuse(why, &call, reply);
                Verdict::Replied
            }
        }
    }

    /// Ends a call whose result is in the reply.
    fn finish(
        &self,
        call: &mut Call<'_>,
        start: Start,
        now_ms: u64,
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let operation = call.op.operation;
        let xid = call.message.xid;
        let result_at = call.promises.result_at;
        let result = reply.bytes.get(result_at..).unwrap_or(&[]);
        reply.facts.is_error = operation.is_failure(result);
        if let Some(complaint) = call.complaint.take() {
            reply.complaint = Some(complaint);
        } else if let Some(complaint) = no_room(call.exports, &call.op, result) {
            reply.complaint = Some(complaint);
        }
        let execution = call.admitted.take();
        if call.is_suspended(result) {
            let result = reply.bytes.split_off(result_at);
            start.drop_reply(reply);
            // Not even then does the client get a result that its protocol does not have.
            let result = (!operation.stays_silent(&result)).then_some(result);
            let run = call.suspended.take().map(|run| Kept::Run(Box::new(run)));
            let kept = run.or(execution.map(|execution| Kept::Execution(Box::new(execution))));
            let wait = (call.wait.take(), call.wait.question);
            return Verdict::Suspended(SuspendedCall::new(xid, result, kept, wait));
        }
        let mut run = call.ended_run.take();
        if operation.stays_silent(result) {
            if call.promises.is_empty() {
                start.drop_reply(reply);
                if let Some(execution) = execution {
                    self.replies.abandon(&execution);
                }
                return Verdict::Silent;
            }
            // What has promised something was executed, and must not be again.
            reply.bytes.truncate(result_at);
            operation.fail(&mut Writer::new(&mut reply.bytes), FsError::Io);
        }
        let result = reply.bytes.get(result_at..).unwrap_or(&[]);
        if call.promises.is_empty() {
            if let Some(execution) = execution {
                // What a COMPOUND has done before it had to try later is not done again.
                let is_done = run.as_ref().is_some_and(|run| run.must_be_kept);
                if operation.tells_of(result, FsError::TryLater) && !is_done {
                    self.replies.forget(&execution, result);
                } else {
                    self.replies.finish(&execution, now_ms, result);
                }
            }
            if let (Some(run), Some(nfs4)) = (run, &self.shared.nfs4) {
                run.finish(&self.shared, &nfs4.repeated, result);
            }
            return Verdict::Replied;
        }
        let mut promises = std::mem::take(&mut call.promises);
        let verifiers_at = std::mem::take(&mut promises.verifiers_at);
        let mut further = promises.end(|record| {
            let key = execution.as_ref().map(|execution| &execution.key);
            record::append(record, key, result);
        });
        let Some(awaited) = further.next() else { return Verdict::Replied };
        match &mut run {
            Some(run) => run.further.extend(further),
            None => drop(further),
        }
        let run = run.map(Box::new);
        let result = reply.bytes.split_off(result_at);
        start.drop_reply(reply);
        let operation = Some(operation);
        Verdict::Parked(Box::new(ParkedCall {
            awaited,
            xid,
            result,
            verifiers_at,
            operation,
            execution,
            run,
        }))
    }
}

/// Where a reply begins in its buffer.
#[derive(Clone, Copy)]
struct Start {
    reply_at: usize,
    files: usize,
}

impl Start {
    fn drop_reply(self, reply: &mut ReplyBuffer) {
        reply.bytes.truncate(self.reply_at);
        reply.files.truncate(self.files);
    }
}

/// Executes a call; and again, if it was found that it has to wait for a client ([`crate::waits`]).
fn run(
    row: &Row,
    call: &mut Call<'_>,
    arguments: &Reader<'_>,
    start: Start,
    reply: &mut ReplyBuffer,
) -> Outcome {
    let result_at = call.promises.result_at;
    loop {
        let outcome = (row.run)(call, &mut arguments.clone(), reply);
        let is_undecided = match outcome {
            Outcome::Done => row
                .operation
                .may_tell_of(reply.bytes.get(result_at..).unwrap_or(&[]), FsError::TryLater),
            Outcome::Silent => true,
            _ => false,
        };
        // What has promised something was executed, and must not be again.
        if !is_undecided || !call.promises.is_empty() || !call.wait.begins_again() {
            return outcome;
        }
        reply.bytes.truncate(result_at);
        reply.files.truncate(start.files);
        (call.lacks_room, call.complaint) = (None, None);
    }
}

/// Ends a call that gets no reply, or none yet.
fn end_silently(call: &mut Call<'_>, reply: &mut ReplyBuffer) -> Verdict {
    if call.lacks_room == Some(Room::Later) {
        let execution = call.admitted.take();
        let kept = execution.map(|execution| Kept::Execution(Box::new(execution)));
        let wait = (call.wait.take(), call.wait.question);
        return Verdict::Suspended(SuspendedCall::new(call.message.xid, None, kept, wait));
    }
    reply.complaint = call.complaint.take();
    Verdict::Silent
}

/// Appends the reply by which RPC refuses a call.
fn refuse(why: Refusal, call: &Call<'_>, reply: &mut ReplyBuffer) {
    let mut w = Writer::new(&mut reply.bytes);
    let Message { xid, numbers: (program, ..), .. } = call.message;
    match why {
        Refusal::NoProgram => steadfast_rpc::prog_unavail(&mut w, xid),
        Refusal::NoProcedure => steadfast_rpc::proc_unavail(&mut w, xid),
        Refusal::GarbageArguments => {
            steadfast_rpc::garbage_args(&mut w, xid);
            let operation = call.op.operation.name;
            reply.complaint = Some(Complaint::GarbageArguments { program, operation });
        }
    }
}

/// What is to be logged of a change that failed since its file system has not enough of something.
fn no_room(exports: &ExportTable, op: &Op, result: &[u8]) -> Option<Complaint> {
    let Op { operation, used } = op;
    if !operation.is_changing {
        return None;
    }
    let why = if operation.tells_of(result, FsError::NoSpace) {
        "its file system is full"
    } else if operation.tells_of(result, FsError::QuotaExceeded) {
        "a quota is used up"
    } else {
        return None;
    };
    let path = Arc::clone(&exports.exported((*used)?)?.export.share.path);
    Some(Complaint::NoRoom { operation: operation.name, path, why })
}

/// The caller's identity as it was sent; nobody's if the procedure asks for none and it cannot be read.
#[inline]
fn identity(header: &CallHeader<'_>, is_asked: bool) -> Result<WireIdentity, AuthStat> {
    match Credentials::decode(&header.cred) {
        Ok(Credentials::None) => Ok(WireIdentity::Anonymous),
        Ok(Credentials::Sys(sys)) => Ok(WireIdentity::Claimed(Cred {
            uid: sys.uid,
            gid: sys.gid,
            groups: sys.gids.iter().copied().collect(),
        })),
        // RPCSEC_GSS makes its contexts by procedure 0, and takes any success for one
        // (RFC 2203 §5.2.2).
        Err(_) if !is_asked && header.cred.flavor != RPCSEC_GSS => Ok(WireIdentity::Anonymous),
        Err(why) => Err(why),
    }
}

/// Answers a call of a program or version that is not served.
fn refuse_program(why: Unserved, xid: u32, reply: &mut ReplyBuffer) -> Verdict {
    let mut w = Writer::new(&mut reply.bytes);
    match why {
        Unserved::Program => steadfast_rpc::prog_unavail(&mut w, xid),
        Unserved::Version { low, high } => steadfast_rpc::prog_mismatch(&mut w, xid, low, high),
    }
    Verdict::Replied
}

/// Answers a call whose credentials cannot be read, or are of a flavour that is not served.
fn refuse_credentials(why: AuthStat, flavour: u32, xid: u32, reply: &mut ReplyBuffer) -> Verdict {
    steadfast_rpc::auth_error(&mut Writer::new(&mut reply.bytes), xid, why);
    reply.complaint = Some(Complaint::BadCredentials { flavour });
    Verdict::Replied
}

/// Answers a call whose header is not as RFC 5531 says, as far as one can.
fn refuse_header(record: &[u8], xid: u32, reply: &mut ReplyBuffer) -> Verdict {
    let mut words = Reader::new(record);
    let rpc_version = (words.u32(), words.u32(), words.u32()).2;
    match rpc_version {
        Ok(RPC_VERSION) => {
            let _program_version_procedure = (words.u32(), words.u32(), words.u32());
            let flavour = words.clone().u32().unwrap_or(u32::MAX);
            let is_good = OpaqueAuth::decode(&mut words).is_ok();
            let why = if is_good { AuthStat::BadVerf } else { AuthStat::BadCred };
            refuse_credentials(why, flavour, xid, reply)
        }
        Ok(version) => {
            let mut w = Writer::new(&mut reply.bytes);
            steadfast_rpc::rpc_mismatch(&mut w, xid, RPC_VERSION, RPC_VERSION);
            reply.complaint = Some(Complaint::RpcVersion { version });
            Verdict::Replied
        }
        Err(_) => Verdict::HangUp(HangUp::NotACall),
    }
}
