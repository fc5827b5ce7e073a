//! A call that is being executed: who calls, how, and what has come of it so far.

mod wait;

pub(crate) use wait::CallWait;

use steadfast_shares::{Decision, Flavor, Groups, Rights, Share, ShareId};
use steadfast_vfs::{CallName, Caller, Cred, Durable, FileSystem, FsError};
use steadfast_vfs::{ReplyBarrier, StorageHandle, Waiting};
use steadfast_xdr::Writer;

use crate::Shared;
use crate::call_mark::CallMark;
use crate::complaint::Complaint;
use crate::export::{ExportTable, Exported};
use crate::host::{CallHost, Room, Stage, StorageId};
use crate::identity::{Acting, WireIdentity, squash_groups, squashed};
use crate::operation::Operation;
use crate::peer::{Peer, Transport};
use crate::program::Program;
use crate::progress::{EndedRun, SuspendedRun};
use crate::promises::Promises;
use crate::reply::CallSubject;
use crate::reply_cache::{Admission, CREDENTIAL_AT, CallKey, Execution, Judged, ReplyCache};
use crate::waiting::{allow, waiting_by_degrees};
use crate::waits::WaitFor;
use crate::wire_handle::{FIXED_HANDLE_BYTES, SealedHandle};

/// The largest transfer over UDP in bytes: with the headers it must fit one datagram.
const UDP_TRANSFER_BYTES_MAX: u32 = 32 * 1024;
const VERIFIER_BYTES: usize = 8;

/// One call on its way through its procedure.
pub(crate) struct Call<'a> {
    pub(crate) shared: &'a Shared,
    /// What is served, for who is asked that.
    pub(crate) programs: &'static [Program],
    pub(crate) exports: &'a ExportTable,
    pub(crate) host: &'a mut dyn CallHost,
    pub(crate) peer: &'a Peer,
    pub(crate) identity: WireIdentity,
    /// By any monotonic clock.
    pub(crate) now_ms: u64,
    pub(crate) message: Message<'a>,
    pub(crate) admitted: Admitted<'a>,
    /// Of a COMPOUND.
    pub(crate) minor_version: u32,
    /// To be logged about the client.
    pub(crate) complaint: Option<Complaint>,
    /// Why the call may not wait for its storage, once that is so.
    pub(crate) lacks_room: Option<Room>,
    /// What it knows of waiting for clients and names.
    pub(crate) wait: CallWait,
    /// What is being executed.
    pub(crate) op: Op,
    /// What it is about, for who tells why it was slow.
    pub(crate) subject: CallSubject,
    /// Whether it repeats a call that the duplicate request cache, or a slot, knows.
    pub(crate) is_repeat: bool,
    pub(crate) promises: Promises,
    /// What is left of a COMPOUND that waits for its storage.
    pub(crate) suspended: Option<SuspendedRun>,
    /// What a COMPOUND's session has to know when its reply goes out.
    pub(crate) ended_run: Option<EndedRun>,
}

/// What the message of a call says in its header.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    /// All of it.
    pub(crate) bytes: &'a [u8],
    pub(crate) xid: u32,
    /// Program, version, procedure.
    pub(crate) numbers: (u32, u32, u32),
}

/// The operation of a call that is being executed.
pub(crate) struct Op {
    pub(crate) operation: &'static Operation,
    /// The share that a handle of it led to last.
    pub(crate) used: Option<ShareId>,
}

/// A call that the duplicate request cache has in progress, if it remembers this one. If the
/// procedure panics, the cache must not keep it so for ever.
pub(crate) struct Admitted<'a> {
    replies: &'a ReplyCache,
    execution: Option<Execution>,
}

impl<'a> Admitted<'a> {
    pub(crate) fn nothing(replies: &'a ReplyCache) -> Self {
        Self { replies, execution: None }
    }

    /// Whoever takes it out ends it.
    pub(crate) fn take(&mut self) -> Option<Execution> {
        self.execution.take()
    }

    /// Whether the cache remembers the call.
    pub(crate) fn is_some(&self) -> bool {
        self.execution.is_some()
    }

    /// The call was suspended, and goes on.
    pub(crate) fn resume(&mut self, execution: Option<Execution>) {
        self.execution = execution;
    }

    pub(crate) fn key(&self) -> Option<CallKey> {
        self.execution.as_ref().map(|execution| execution.key)
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if let Some(execution) = self.execution.take() {
            self.replies.abandon(&execution);
        }
    }
}

/// An object that a handle named, with what the caller may do there.
pub(crate) struct Target<'a> {
    pub(crate) storage: &'a dyn FileSystem,
    /// By which it was reached: in its handles.
    pub(crate) share: &'a Share,
    /// Whose rules are the object's: the innermost share that has it.
    pub(crate) ruling: ShareId,
    pub(crate) rights: &'a Rights,
    pub(crate) handle: StorageHandle,
    pub(crate) cred: Cred,
    /// By which name the call is known, if it changes something and its repetition gets the same reply.
    pub(crate) call: Option<CallMark>,
}

impl Target<'_> {
    /// The caller of an operation that may wait.
    pub(crate) fn caller(&self) -> Caller<'_> {
        let share = self.share.id.0;
        let is_async = self.rights.is_async;
        // Where nothing is promised of the change, nothing is of its reply after the server was killed.
        let mark = self.call.as_ref().filter(|_| !is_async);
        let call = mark.map(|mark| CallName { key: mark.as_bytes(), share });
        Caller { call, is_async, ..Caller::new(&self.cred, Waiting::Allowed) }
    }
}

/// How a procedure ended. What it has to say is appended to the reply already.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The result may go out when the call's obligation is met.
    Done,
    /// A duplicate, whose result was appended.
    Replayed,
    /// Nothing is to be said about it: it is a duplicate of a call in progress, or was called in a
    /// way that is silent in the face of errors.
    Silent,
    /// RPC refuses the call.
    Refused(Refusal),
}

/// Why RPC refuses a call of which the program and version are served (RFC 5531 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It was to be passed on to a program that is not served.
    NoProgram,
    /// There is no such procedure.
    NoProcedure,
    /// The arguments cannot be decoded.
    GarbageArguments,
}

impl<'a> Call<'a> {
    /// Asks the duplicate request cache about the call, which must not be executed twice. `Some`
    /// if it is not to be executed: a reply was appended, or none is due.
    pub(crate) fn admit(&mut self, reply: &mut Vec<u8>) -> Option<Outcome> {
        // It is being judged again.
        if self.admitted.is_some() {
            return None;
        }
        let key = self.key();
        // In progress since it was executed first.
        if self.take_suspended().is_none() {
            match self.ask_cache(&key, reply) {
                Admission::New => {}
                Admission::Replayed => {
                    self.is_repeat = true;
                    return Some(Outcome::Replayed);
                }
                Admission::InProgress
                | Admission::InProgressElsewhere(_)
                | Admission::DependsOn(_) => {
                    self.is_repeat = true;
                    return Some(Outcome::Silent);
                }
            }
        }
        let connection = self.peer.connection();
        self.admitted.execution = Some(Execution { key, connection });
        None
    }

    /// Whether the call, which has this result, is to be executed again later.
    pub(crate) fn is_suspended(&self, result: &[u8]) -> bool {
        let operation = self.op.operation;
        self.lacks_room == Some(Room::Later)
            && (!self.wait.is_due_again() || operation.may_tell_of(result, FsError::TryLater))
    }

    /// What tells the call from others, for the duplicate request cache.
    pub(crate) fn key(&self) -> CallKey {
        let Message { bytes, xid, numbers } = self.message;
        let signed = bytes.get(CREDENTIAL_AT..).unwrap_or(&[]);
        let Peer { address, transport, .. } = self.peer;
        CallKey::new(address.ip(), *transport, xid, numbers, signed)
    }

    /// A duplicate of one in progress that came another way gets the reply when there is one: its
    /// client has connected again, and the way of the first may be gone.
    fn ask_cache(&mut self, key: &CallKey, replayed: &mut Vec<u8>) -> Admission {
        let replies = self.admitted.replies;
        let origin = self.peer.origin();
        let mut judged = Judged::default();
        loop {
            match replies.admit(key, origin, &judged, replayed) {
                // Each time another one, and no more than are judged.
                Admission::DependsOn(connection) => {
                    let is_gone = self.host.is_gone(connection);
                    if !is_gone && self.host.has_left() {
                        // Its client has left this connection, and has sent it again by that one.
                        return Admission::InProgress;
                    }
                    judged.note(connection, is_gone);
                }
                Admission::InProgressElsewhere(connection) => {
                    let execution = Execution { key: *key, connection };
                    return match self.host.reply_sink() {
                        Some(sink) => replies.wait(&execution, origin, sink, replayed),
                        None => Admission::InProgress,
                    };
                }
                admission => return admission,
            }
        }
    }

    /// The reply barrier: the only place where a [`Durable`] is taken apart. The call's reply waits
    /// until what the result promises is stable.
    pub(crate) fn barrier(&mut self, encoded: Durable<()>) -> Outcome {
        let ((), obligation) = encoded.release(&ReplyBarrier::for_engine());
        if let Some(obligation) = obligation {
            self.promises.join(obligation);
        }
        Outcome::Done
    }

    /// As [`Call::barrier`], of one change among several: the log gets no reply with it, but with the
    /// last if `is_last_kept` and nothing is waited for after it.
    pub(crate) fn barrier_of_one(&mut self, encoded: Durable<()>, is_last_kept: bool) -> bool {
        let ((), obligation) = encoded.release(&ReplyBarrier::for_engine());
        let Some(obligation) = obligation else { return false };
        self.promises.join(obligation);
        if !is_last_kept {
            self.promises.fill();
        }
        true
    }

    /// Ends the operation with the result that tells of an error, nothing being known of the objects.
    pub(crate) fn fail(&self, w: &mut Writer<'_>, error: FsError) -> Outcome {
        self.op.operation.fail(w, error);
        Outcome::Done
    }

    /// The write verifier that a result ends with is to be the one in force when the call's
    /// obligation is met (COMMIT).
    pub(crate) fn note_verifier(&mut self, reply: &[u8]) {
        let at = reply.len().checked_sub(self.promises.result_at + VERIFIER_BYTES);
        self.promises.verifiers_at.extend(at);
    }

    /// Finds what a wire handle names. If the operation's row says that it changes something,
    /// read-only shares refuse it, and the host is told that the thread may sleep. What follows
    /// is storage's time, as the host is told too.
    ///
    /// # Errors
    /// `BadHandle` for one that we did not make, `Stale` when its share is not served,
    /// `AccessDenied` when this client has no rights there, `ReadOnly`.
    pub(crate) fn resolve(&mut self, wire: &[u8]) -> Result<Target<'a>, FsError> {
        self.host.stage(Stage::Access);
        let (share, handle) = self.unseal(wire)?;
        self.target(share, handle)
    }

    /// What a wire handle names, whatever the caller may do there: for who gives something up.
    ///
    /// # Errors
    /// `BadHandle` for one that we did not make, `Stale` when its share is not served, `TryLater`.
    pub(crate) fn named(
        &mut self,
        wire: &[u8],
    ) -> Result<(&'a dyn FileSystem, StorageHandle), FsError> {
        let (share, handle) = self.unseal(wire)?;
        let exported = self.exports.exported(share).ok_or(FsError::Stale)?;
        self.op.used = Some(share);
        Ok((self.storage(exported)?, handle))
    }

    fn unseal(&mut self, wire: &[u8]) -> Result<(ShareId, StorageHandle), FsError> {
        let unsealed = self.shared.sealer.open(wire);
        if unsealed.is_none() {
            self.complaint = Some(Complaint::ForgedHandle);
        }
        unsealed.ok_or(FsError::BadHandle)
    }

    /// The same for an object of a share, which was a handle before. A target is large: it is made where it is
    /// given to, and moved no more.
    ///
    /// # Errors
    /// As [`Call::resolve`], but `BadHandle`.
    pub(crate) fn target(
        &mut self,
        share_id: ShareId,
        handle: StorageHandle,
    ) -> Result<Target<'a>, FsError> {
        let exported = self.exports.exported(share_id).ok_or(FsError::Stale)?;
        let share: &'a Share = &exported.export.share;
        self.op.used = Some(share.id);
        self.subject = CallSubject { share: Some(share.id), file: Some(handle), uid: None };
        let clients = &self.shared.journaling_clients;
        if self.op.operation.is_answered_while_recovering {
            clients.heard(share.id, || self.peer.origin(), self.now_ms);
        } else if clients.holds(share.id, || self.peer.origin(), self.now_ms) {
            return Err(FsError::TryLater);
        }
        let ruling = if share.crosses_mounts { self.ruling(exported, &handle)? } else { exported };
        let rights = self.rights(ruling).map_err(|error| self.for_names(error, share_id))?;
        if self.op.operation.is_changing && rights.is_read_only {
            return Err(FsError::ReadOnly);
        }
        let cred = self.cred(rights).map_err(|error| self.for_names(error, share_id))?;
        self.subject.uid = Some(cred.uid);
        let storage = self.storage(exported)?;
        let ruling = ruling.export.share.id;
        let call =
            self.admitted.key().filter(|_| self.op.operation.is_changing).map(CallMark::of_call);
        if self.op.operation.is_changing {
            self.may_block_for(storage, share)?;
        }
        self.host.stage(Stage::Storage);
        Ok(Target { storage, share, ruling, rights, handle, cred, call })
    }

    /// What cannot be told before a name service has answered waits for that, for a call to a share.
    pub(crate) fn for_names(&mut self, error: FsError, share: ShareId) -> FsError {
        match error {
            FsError::TryLater => self.wait_for(WaitFor::Names(share)),
            error => error,
        }
    }

    /// The share whose rules are those of an object that was reached by another one, which crosses
    /// mounts: the innermost that has it, whatever the way.
    ///
    /// # Errors
    /// `AccessDenied` if what it is on is not served, `Stale` if it is not mounted any more, `TryLater`
    /// if that cannot be found out now.
    pub(crate) fn ruling(
        &mut self,
        outer: &'a Exported,
        object: &StorageHandle,
    ) -> Result<&'a Exported, FsError> {
        let storage = self.storage(outer)?;
        match ruling(self.exports, outer, storage, object, Waiting::Never) {
            Err(FsError::WouldOpen | FsError::WouldBlock) => {
                self.ask_for_room(storage.domain().into(), &outer.export.share)?;
                self.host.will_block();
                ruling(self.exports, outer, storage, object, Waiting::Allowed)
            }
            known => known,
        }
    }

    /// Refuses what was found from a directory if it is on another mount, and its rules give nothing to
    /// the caller.
    ///
    /// # Errors
    /// As [`Call::ruling`], and `AccessDenied` if the caller may do nothing there.
    pub(crate) fn require_access(
        &self,
        from: &Target<'a>,
        found: &StorageHandle,
    ) -> Result<(), FsError> {
        if !from.share.crosses_mounts {
            return Ok(());
        }
        let mount = |object| from.storage.mount(object, Waiting::Never);
        if mount(found)? == mount(&from.handle)? {
            return Ok(());
        }
        let exported = self.exports.exported(from.share.id).ok_or(FsError::Stale)?;
        // Just found, it is known.
        let ruling = ruling(self.exports, exported, from.storage, found, Waiting::Never)?;
        if ruling.export.share.id == from.ruling {
            return Ok(());
        }
        self.rights(ruling).map(drop)
    }

    /// The storage of an export, opened if it was not.
    ///
    /// # Errors
    /// `TryLater` if it cannot be opened now.
    pub(crate) fn storage(
        &mut self,
        exported: &'a Exported,
    ) -> Result<&'a dyn FileSystem, FsError> {
        let source = &exported.export.storage;
        if let Some(storage) = source.opened() {
            return Ok(storage);
        }
        let id = source.expected_domain().map_or(StorageId::UNKNOWN, StorageId::from);
        self.ask_for_room(id, &exported.export.share)?;
        self.host.will_block();
        source.open()
    }

    /// Asks the host whether the call may wait.
    ///
    /// # Errors
    /// `TryLater` if it may not.
    fn ask_for_room(&mut self, storage: StorageId, share: &Share) -> Result<(), FsError> {
        // No place in the log stays unfilled across a wait.
        self.promises.fill();
        let room = self.host.room_to_wait(storage);
        allow(room, share, &mut self.complaint, &mut self.lacks_room)
    }

    /// As [`CallHost::may_block`], if the call may wait for its storage.
    ///
    /// # Errors
    /// `TryLater` if it may not.
    pub(crate) fn may_block(&mut self, target: &Target<'_>) -> Result<(), FsError> {
        self.may_block_for(target.storage, target.share)
    }

    /// The same before an object is known.
    ///
    /// # Errors
    /// `TryLater` if it may not.
    pub(crate) fn may_block_for(
        &mut self,
        storage: &dyn FileSystem,
        share: &Share,
    ) -> Result<(), FsError> {
        self.ask_for_room(storage.domain().into(), share)?;
        self.host.may_block();
        Ok(())
    }

    /// As [`CallHost::seldom_blocks`], if the call may wait for its storage.
    ///
    /// # Errors
    /// `TryLater` if it may not.
    pub(crate) fn seldom_blocks(&mut self, target: &Target<'_>) -> Result<(), FsError> {
        self.ask_for_room(target.storage.domain().into(), target.share)?;
        self.host.seldom_blocks();
        Ok(())
    }

    /// As whom the caller acts.
    ///
    /// # Errors
    /// `TryLater` while the caller's groups are being looked up.
    #[inline]
    fn cred(&self, rights: &Rights) -> Result<Cred, FsError> {
        let Acting { mut cred, is_himself } = squashed(&self.identity, rights);
        if is_himself && rights.looks_up_groups {
            match self.shared.authority.groups(cred.uid) {
                Groups::Known(groups) => {
                    cred.groups = groups.iter().copied().collect();
                    squash_groups(&mut cred, rights);
                }
                Groups::NoUser => {}
                Groups::NotYet => return Err(FsError::TryLater),
            }
        }
        Ok(cred)
    }

    /// By which flavour the caller says who he is.
    pub(crate) fn flavor(&self) -> Flavor {
        match self.identity {
            WireIdentity::Anonymous => Flavor::None,
            WireIdentity::Claimed(_) => Flavor::Sys,
        }
    }

    /// What the caller may do on an export.
    ///
    /// # Errors
    /// `AccessDenied` if nothing, `TryLater` while a name that decides is being looked up.
    pub(crate) fn rights(&self, exported: &'a Exported) -> Result<&'a Rights, FsError> {
        let question = self.peer.question(self.flavor());
        match self.peer.memo.decide(&*self.shared.authority, exported, &question) {
            Decision::Granted(place) => {
                exported.export.share.rules.grant(place).ok_or(FsError::AccessDenied)
            }
            Decision::Refused(_) => Err(FsError::AccessDenied),
            Decision::Pending => Err(FsError::TryLater),
        }
    }

    /// Runs an operation that only reads: first without waiting for storage; then, if an object
    /// must be opened, in such a way that somebody else serves the others if it takes long; and if
    /// that is not enough, again after others have taken over what this thread would hold up.
    ///
    /// # Errors
    /// The operation's; `TryLater` if it would have to wait and may not.
    pub(crate) fn read<T>(
        &mut self,
        target: &Target<'_>,
        mut attempt: impl FnMut(&Caller<'_>) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let Self { host, complaint, lacks_room, promises, .. } = self;
        let Target { storage, share, cred, .. } = target;
        waiting_by_degrees(
            *host,
            |host| {
                promises.fill();
                allow(host.room_to_wait(storage.domain().into()), share, complaint, lacks_room)
            },
            |waiting| attempt(&Caller::new(cred, waiting)),
        )
    }

    /// The largest READ, WRITE or listing over this call's transport, in bytes.
    pub(crate) fn transfer_bytes_max(&self) -> u32 {
        let bytes_max = self.shared.config.transfer_bytes_max;
        match self.peer.transport {
            Transport::Tcp => bytes_max,
            Transport::Udp => bytes_max.min(UDP_TRANSFER_BYTES_MAX),
        }
    }

    /// A handle of a share as the client will hold it.
    pub(crate) fn seal(&self, share: &Share, handle: &StorageHandle) -> SealedHandle {
        self.shared.sealer.seal(share.id, handle)
    }

    /// The same in the 32 bytes that NFSv2 has.
    ///
    /// # Errors
    /// `NotSupported` if it does not fit.
    pub(crate) fn seal_fixed(
        &self,
        share: &Share,
        handle: &StorageHandle,
    ) -> Result<[u8; FIXED_HANDLE_BYTES], FsError> {
        self.shared.sealer.seal_fixed(share.id, handle).ok_or(FsError::NotSupported)
    }
}

fn ruling<'a>(
    exports: &'a ExportTable,
    outer: &'a Exported,
    storage: &dyn FileSystem,
    object: &StorageHandle,
    waiting: Waiting,
) -> Result<&'a Exported, FsError> {
    match storage.mount(object, waiting)? {
        0 => Ok(outer),
        mount => {
            let mut found = Ok(outer);
            storage.mount_points(mount, waiting, &mut |points| {
                found = exports.innermost(outer, points);
            })?;
            found
        }
    }
}
