//! From an RPC message to a procedure and back (RFC 5531).

use steadfast_rpc::Credentials;
use steadfast_vfs::{Cred, FsError, Obligation};
use steadfast_wire::rpc::{AuthStat, CallHeader, OpaqueAuth, RPCSEC_GSS};
use steadfast_xdr::{Decode, Reader, Writer};

use crate::call::{
    Awaited, CallFacts, CallHost, Complaint, HangUp, ParkedCall, Peer, PutOffCall, ReplyBuffer,
    Room, Verdict,
};
use crate::nfs3::encode;
use crate::nfs3::status::status;
use crate::operation::{self, Operation, OperationId};
use crate::reply_cache::{Admission, CallKey, Execution, Judged};
use crate::session::{Outcome, Session, WireIdentity};
use crate::{Engine, mount, nfs3, nfsacl, record, rpcbind};

const RPC_VERSION: u32 = 2;
/// Where a call has its credential: after xid, message type, RPC version, program, version and
/// procedure.
const CREDENTIAL_AT: usize = 24;
const MESSAGE_TYPE_CALL: u32 = 0;

pub(crate) const PROGRAM_RPCBIND: u32 = 100_000;
pub(crate) const PROGRAM_NFS: u32 = 100_003;
pub(crate) const PROGRAM_MOUNT: u32 = 100_005;
pub(crate) const PROGRAM_NFSACL: u32 = 100_227;

/// Where a reply's status is: after xid, message type, reply status, verifier (two words) and
/// accept status.
const STATUS_AT: usize = 24;

/// Which protocol answers.
#[derive(Clone, Copy)]
enum Protocol {
    Nfs3,
    NfsAcl3,
    Mount,
    Rpcbind,
}

/// Appends the failure of a call of which nothing more is known.
pub(crate) fn append_failure(reply: &mut Vec<u8>, xid: u32, error: FsError, failure_words: usize) {
    let mut w = Writer::new(reply);
    steadfast_rpc::accepted_success(&mut w, xid);
    encode::failure(&mut w, error, failure_words);
}

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
        self.call_once(host, peer, now_ms, record, reply, Some(now_ms))
    }

    /// As [`Engine::call`], for a call that may wait to be executed again, if it came then.
    pub(crate) fn call_once(
        &self,
        host: &mut dyn CallHost,
        peer: &Peer,
        now_ms: u64,
        record: &[u8],
        reply: &mut ReplyBuffer,
        may_wait_since_ms: Option<u64>,
    ) -> Verdict {
        let mut reader = Reader::new(record);
        let (Ok(xid), Ok(MESSAGE_TYPE_CALL)) = (reader.u32(), reader.u32()) else {
            return Verdict::HangUp(HangUp::NotACall);
        };
        // Until more is known.
        reply.facts = CallFacts { xid, operation: OperationId::OTHER, is_error: true };
        let mut reader = Reader::new(record);
        let Ok(header) = CallHeader::decode(&mut reader) else {
            return refuse_header(record, xid, reply);
        };
        if header.rpcvers != RPC_VERSION {
            return refuse_header(record, xid, reply);
        }
        let operation_number = (header.prog, header.vers, header.proc_);
        let mut w = Writer::new(&mut reply.bytes);
        let protocol = match protocol(header.prog, header.vers) {
            Ok(protocol) => protocol,
            Err(Unserved::Program) => {
                steadfast_rpc::prog_unavail(&mut w, xid);
                return Verdict::Replied;
            }
            Err(Unserved::Version { low, high }) => {
                steadfast_rpc::prog_mismatch(&mut w, xid, low, high);
                return Verdict::Replied;
            }
        };
        let found = operation::find(header.prog, header.vers, header.proc_);
        if let Some((id, _)) = found {
            reply.facts.operation = id;
        }
        let identity = match identity(&header) {
            Ok(identity) => identity,
            // NULL does no work and asks for no identity (RFC 1813 §3.3.0). But RPCSEC_GSS makes
            // its contexts by procedure 0, and takes any success for one (RFC 2203 §5.2.2).
            Err(_) if header.proc_ == 0 && header.cred.flavor != RPCSEC_GSS => {
                WireIdentity::Anonymous
            }
            Err(why) => {
                steadfast_rpc::auth_error(&mut w, xid, why);
                reply.complaint = Some(Complaint::BadCredentials { flavour: header.cred.flavor });
                return Verdict::Replied;
            }
        };
        let Some((_, operation)) = found else {
            steadfast_rpc::proc_unavail(&mut w, xid);
            return Verdict::Replied;
        };
        let key = operation.is_remembered.then(|| {
            let signed = record.get(CREDENTIAL_AT..).unwrap_or(&[]);
            let (client, transport) = (peer.address.ip(), peer.transport);
            let key = CallKey::new(client, transport, xid, operation_number, signed);
            Execution { key, connection: peer.connection() }
        });
        if let Some(key) = &key
            && !host.was_put_off()
        {
            let start = reply.bytes.len();
            match self.admit(&key.key, host, peer, &mut reply.bytes) {
                Admission::New => {}
                Admission::InProgress
                | Admission::InProgressElsewhere(_)
                | Admission::DependsOn(_) => {
                    reply.facts.is_error = false;
                    return Verdict::Silent;
                }
                Admission::Replayed => {
                    reply.facts.is_error = is_failure(operation, &reply.bytes, start);
                    return Verdict::Replied;
                }
            }
        }
        let admitted = Admitted {
            engine: self,
            key,
            now_ms,
            xid,
            operation_number,
            protocol,
            operation,
            arguments: reader,
            record,
            may_wait_since_ms,
        };
        admitted.execute(host, peer, identity, reply)
    }

    /// Asks the duplicate request cache about a call. A duplicate of one in progress that came
    /// another way gets the reply when there is one: its client has connected again, and the way
    /// of the first may be gone.
    fn admit(
        &self,
        key: &CallKey,
        host: &mut dyn CallHost,
        peer: &Peer,
        replayed: &mut Vec<u8>,
    ) -> Admission {
        let origin = peer.origin();
        let mut judged = Judged::default();
        loop {
            match self.replies.admit(key, origin, &judged, replayed) {
                // Each time another one, and no more than are judged.
                Admission::DependsOn(connection) => {
                    judged.note(connection, host.is_gone(connection));
                }
                Admission::InProgressElsewhere(connection) => {
                    let execution = Execution { key: *key, connection };
                    return match host.reply_sink() {
                        Some(sink) => self.replies.wait(&execution, origin, sink, replayed),
                        None => Admission::InProgress,
                    };
                }
                admission => return admission,
            }
        }
    }
}

/// A call on its way through a procedure. If the procedure panics, the cache must not keep the
/// call as one in progress for ever.
struct Admitted<'e, 'r> {
    engine: &'e Engine,
    key: Option<Execution>,
    now_ms: u64,
    xid: u32,
    /// Program, version, procedure.
    operation_number: (u32, u32, u32),
    protocol: Protocol,
    operation: &'static Operation,
    arguments: Reader<'r>,
    /// The whole call.
    record: &'r [u8],
    /// Since when the call has waited to be executed, if it may.
    may_wait_since_ms: Option<u64>,
}

impl Drop for Admitted<'_, '_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.engine.replies.abandon(&key);
        }
    }
}

impl Admitted<'_, '_> {
    fn execute(
        mut self,
        host: &mut dyn CallHost,
        peer: &Peer,
        identity: WireIdentity,
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let Self { xid, operation, protocol, operation_number, .. } = self;
        let start = reply.bytes.len();
        let files = reply.files.len();
        steadfast_rpc::accepted_success(&mut Writer::new(&mut reply.bytes), xid);
        let exports = self.engine.exports.load();
        let mut complaint = None;
        let mut session = Session {
            engine: self.engine,
            operation,
            exports: &exports,
            host,
            peer,
            identity,
            complaint: &mut complaint,
            key: self.key.as_ref().map(|execution| execution.key),
            may_wait: self.may_wait_since_ms.is_some(),
            lacks_room: None,
            used: None,
        };
        let (program, version, procedure) = operation_number;
        let executed = match protocol {
            Protocol::Nfs3 => nfs3::execute(procedure, &mut session, &mut self.arguments, reply),
            Protocol::NfsAcl3 => {
                nfsacl::execute(procedure, &mut session, &mut self.arguments, &mut reply.bytes)
            }
            Protocol::Mount => mount::execute(
                version,
                procedure,
                &mut session,
                &mut self.arguments,
                &mut reply.bytes,
            ),
            Protocol::Rpcbind => rpcbind::execute(
                version,
                procedure,
                &mut session,
                &mut self.arguments,
                &mut reply.bytes,
            ),
        };
        let is_put_off = session.lacks_room == Some(Room::Later);
        let used = session.used;
        if complaint.is_some() {
            reply.complaint = complaint;
        } else if let (Some(share), Some(why)) = (used, lacks(operation, &reply.bytes, start))
            && let Some(exported) = exports.exported(share)
        {
            let path = std::sync::Arc::clone(&exported.export.share.path);
            reply.complaint = Some(Complaint::NoRoom { operation: operation.name, path, why });
        }
        match executed {
            Some(Ok(Outcome::Done)) => {
                reply.facts.is_error = is_failure(operation, &reply.bytes, start);
                if is_put_off {
                    reply.files.truncate(files);
                    let reply = reply.bytes.split_off(start);
                    return Verdict::PutOff(PutOffCall { reply, key: self.key.take() });
                }
                self.remember(reply.bytes.get(start..).unwrap_or(&[]));
                Verdict::Replied
            }
            Some(Ok(Outcome::Waits { obligation, ends_with_verifier })) => {
                reply.facts.is_error = is_failure(operation, &reply.bytes, start);
                let awaited = match obligation {
                    Obligation::Flush(flush) => Awaited::Flush(flush),
                    Obligation::Log(logged) => {
                        let reply = reply.bytes.get(start..).unwrap_or(&[]);
                        let key = self.key.as_ref().map(|execution| &execution.key);
                        Awaited::Lsn(logged.fill(|record| record::append(record, key, reply)))
                    }
                };
                Verdict::Parked(ParkedCall {
                    awaited,
                    reply: reply.bytes.split_off(start),
                    ends_with_verifier,
                    xid,
                    failure_words: operation.failure_words,
                    key: self.key.take(),
                })
            }
            Some(Ok(Outcome::AskAgain(share))) => {
                let since_ms = self.may_wait_since_ms.unwrap_or(self.now_ms);
                let is_kept = host.reply_sink().is_some_and(|sink| {
                    self.engine.waiting_mounts.keep(share, self.record, peer, sink, since_ms)
                });
                if is_kept {
                    reply.bytes.truncate(start);
                    reply.facts.is_error = false;
                    return Verdict::Silent;
                }
                mount::refuse_for_now(&mut reply.bytes);
                reply.facts.is_error = true;
                Verdict::Replied
            }
            Some(Ok(Outcome::Silent)) => {
                reply.bytes.truncate(start);
                reply.facts.is_error = false;
                Verdict::Silent
            }
            Some(Ok(Outcome::NoProgram)) => {
                reply.bytes.truncate(start);
                steadfast_rpc::prog_unavail(&mut Writer::new(&mut reply.bytes), xid);
                Verdict::Replied
            }
            Some(Err(_undecodable)) => {
                reply.bytes.truncate(start);
                reply.files.truncate(files);
                steadfast_rpc::garbage_args(&mut Writer::new(&mut reply.bytes), xid);
                reply.complaint =
                    Some(Complaint::GarbageArguments { program, operation: operation.name });
                Verdict::Replied
            }
            None => {
                reply.bytes.truncate(start);
                steadfast_rpc::proc_unavail(&mut Writer::new(&mut reply.bytes), xid);
                Verdict::Replied
            }
        }
    }

    /// Keeps the reply for duplicates, unless it tells the client to try again.
    fn remember(&mut self, reply: &[u8]) {
        let Some(key) = self.key.take() else { return };
        let try_later = (status(FsError::TryLater) as u32).to_be_bytes();
        if reply.get(STATUS_AT..STATUS_AT + 4) == Some(&try_later) {
            self.engine.replies.forget(&key, reply);
        } else {
            self.engine.replies.finish(&key, self.now_ms, reply);
        }
    }
}

/// What a file system had not enough of for a change, if that is why it failed.
fn lacks(operation: &Operation, reply: &[u8], start: usize) -> Option<&'static str> {
    if !operation.is_changing {
        return None;
    }
    let at = start.checked_add(STATUS_AT)?;
    let found = u32::from_be_bytes(*reply.get(at..)?.first_chunk()?);
    let is = |error| found == status(error) as u32;
    if is(FsError::NoSpace) {
        Some("its file system is full")
    } else if is(FsError::QuotaExceeded) {
        Some("a quota is used up")
    } else {
        None
    }
}

/// Why nobody answers for a program.
enum Unserved {
    Program,
    Version { low: u32, high: u32 },
}

fn protocol(program: u32, version: u32) -> Result<Protocol, Unserved> {
    let (protocol, low, high) = match program {
        PROGRAM_NFS => (Protocol::Nfs3, 3, 3),
        PROGRAM_NFSACL => (Protocol::NfsAcl3, 3, 3),
        PROGRAM_MOUNT => (Protocol::Mount, 1, 3),
        PROGRAM_RPCBIND => (Protocol::Rpcbind, 2, 4),
        _ => return Err(Unserved::Program),
    };
    if (low..=high).contains(&version) {
        Ok(protocol)
    } else {
        Err(Unserved::Version { low, high })
    }
}

/// Whether the accepted reply that begins at `start` tells of a failure.
fn is_failure(operation: &Operation, reply: &[u8], start: usize) -> bool {
    let status_at = start + STATUS_AT;
    operation.has_status
        && reply.get(status_at..status_at + 4).is_some_and(|status| status != [0; 4])
}

/// The caller's identity as it was sent.
fn identity(header: &CallHeader<'_>) -> Result<WireIdentity, AuthStat> {
    match Credentials::decode(&header.cred)? {
        Credentials::None => Ok(WireIdentity::Anonymous),
        Credentials::Sys(sys) => Ok(WireIdentity::Claimed(Cred {
            uid: sys.uid,
            gid: sys.gid,
            groups: sys.gids().iter().copied().collect(),
        })),
    }
}

/// Answers a call whose header is not as RFC 5531 says, as far as one can.
fn refuse_header(record: &[u8], xid: u32, reply: &mut ReplyBuffer) -> Verdict {
    let mut words = Reader::new(record);
    let rpc_version = (words.u32(), words.u32(), words.u32()).2;
    let mut w = Writer::new(&mut reply.bytes);
    match rpc_version {
        Ok(RPC_VERSION) => {
            let _program_version_procedure = (words.u32(), words.u32(), words.u32());
            let flavour = words.clone().u32().unwrap_or(u32::MAX);
            let is_good = OpaqueAuth::decode(&mut words).is_ok();
            let why = if is_good { AuthStat::BadVerf } else { AuthStat::BadCred };
            steadfast_rpc::auth_error(&mut w, xid, why);
            reply.complaint = Some(Complaint::BadCredentials { flavour });
            Verdict::Replied
        }
        Ok(version) => {
            steadfast_rpc::rpc_mismatch(&mut w, xid, RPC_VERSION, RPC_VERSION);
            reply.complaint = Some(Complaint::RpcVersion { version });
            Verdict::Replied
        }
        Err(_) => Verdict::HangUp(HangUp::NotACall),
    }
}
