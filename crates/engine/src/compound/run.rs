//! A COMPOUND that is being executed.

use std::sync::Arc;

use steadfast_shares::ShareId;
use steadfast_state::{Client, SlotInUse, Together};
use steadfast_vfs::{Durable, FsError, StorageHandle};
use steadfast_wire::nfs4::{CompoundHead4, NfsStat4, Op4};
use steadfast_xdr::{Decode, Reader, Writer, XdrError};

use super::going_on::GoesOn;
use super::{OpRow, Stands, Versions};
use crate::call::{Call, Outcome, Target};
use crate::call_mark::CallMark;
use crate::compound_operation::CompoundOperation;
use crate::host::Room;
use crate::nfs4::status::{self, OrStatus};
use crate::nfs4::{self, Nfs4};
use crate::operation::Operation;
use crate::program::Procedure;
use crate::progress::under_way::is_told_alike;
use crate::progress::{
    OP_HEAD_BYTES, Object, OpPlace, Place, Progress, ResultPlace, SuspendedRun, Waiting,
    append_failure, set, word,
};
use crate::pseudo::{Node, NodeKey};
use crate::reply::ReplyBuffer;
use crate::verdict::Kept;
use crate::waits::InSession;

/// Longest tag that is given back, in bytes.
const TAG_BYTES_MAX: usize = 1024;
/// Of minor version 0, which has no sessions to agree on bounds: room for what comes with the data of
/// a READ, in bytes; operations of one COMPOUND; and bytes of a reply that is kept.
const BESIDE_DATA_BYTES: usize = 4096;
const OPERATIONS_MAX: u32 = 128;
const KEPT_BYTES_MAX: usize = 16 << 10;
/// Bytes of RPC's header before a COMPOUND's result.
const RPC_HEADER_BYTES: usize = 24;

/// The procedure.
pub(crate) struct Compound;

/// Head and operations of a COMPOUND.
pub(crate) struct Arguments<'a> {
    head: CompoundHead4<'a>,
    operations: Reader<'a>,
}

impl<'a> Decode<'a> for Arguments<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self { head: Decode::decode(r)?, operations: r.clone() })
    }
}

impl Procedure for Compound {
    // A failure has an empty tag and no operations.
    const OPERATION: Operation = Operation::reads("COMPOUND", status::number, 2);
    type Arguments<'a> = Arguments<'a>;

    fn run(call: &mut Call<'_>, arguments: &Arguments<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let CompoundHead4 { tag, minorversion, operations } = arguments.head;
        let start = reply.bytes.len();
        let known = tag.get(..tag.len().min(TAG_BYTES_MAX)).filter(|known| *known == tag);
        let place = ResultPlace::begin(&mut reply.bytes, known.unwrap_or(&[]));
        let refused = match call.shared.nfs4.as_ref() {
            None => Err(NfsStat4::MinorVersMismatch),
            Some(_) if !Versions::SERVED.has(minorversion) => Err(NfsStat4::MinorVersMismatch),
            Some(_) if known.is_none() => Err(NfsStat4::Inval),
            Some(nfs4) => Ok(nfs4),
        };
        let nfs4 = match refused {
            Ok(nfs4) => nfs4,
            Err(status) => {
                place.end(&mut reply.bytes, status as u32, 0);
                return Outcome::Done;
            }
        };
        let connection = call.peer.connection();
        let mut progress = Progress { connection, ..Progress::default() };
        let suspended = call.take_suspended().and_then(|suspended| suspended.kept);
        if let Some(Kept::Run(suspended)) = suspended {
            reply.bytes.extend_from_slice(&suspended.results);
            progress = suspended.progress;
            call.admitted.resume(suspended.execution);
        }
        call.minor_version = minorversion;
        let beside_data = if minorversion == 0 { BESIDE_DATA_BYTES } else { 0 };
        let reply_bytes_max = call.transfer_bytes_max() as usize + beside_data;
        let mut run = Run {
            nfs4,
            call,
            progress,
            minor_version: minorversion,
            count: operations,
            target: None,
            start,
            reply_bytes_max,
            place,
            op_at: 0,
            op_places: (Place::default(), Place::default()),
            failure: Vec::new(),
            has_mark: false,
            together: None,
        };
        if let Some(slot) = &run.progress.slot {
            run.call.wait.session = Some(InSession::of(slot));
            run.reply_bytes_max = slot.session().fore().response_bytes_max as usize;
        }
        run.call.host.operations_begin();
        let ended = run.execute(&arguments.operations, reply);
        reply.facts.operations = run.progress.operations;
        run.end(ended, reply)
    }
}

/// A COMPOUND that is being executed.
pub(crate) struct Run<'c, 'a> {
    pub(crate) nfs4: &'c Nfs4,
    pub(crate) call: &'c mut Call<'a>,
    pub(crate) progress: Progress,
    /// One that is served.
    pub(crate) minor_version: u32,
    /// Operations that it has.
    pub(crate) count: u32,
    /// The current object, if it is one of a share, and has been asked for.
    target: Option<Target<'a>>,
    /// Where the result begins in the buffer of replies.
    start: usize,
    /// How large the reply may be, with RPC's header.
    pub(crate) reply_bytes_max: usize,
    pub(super) place: ResultPlace,
    /// Where the result of the operation that is being executed begins, in bytes from the first.
    pub(super) op_at: usize,
    /// The current and the saved place when it began.
    pub(super) op_places: (Place, Place),
    /// What follows the status if the operation fails.
    pub(crate) failure: Vec<u8>,
    /// Whether begun marks tell of the operation that is being executed.
    pub(super) has_mark: bool,
    /// While the operation's changes of the state are made, which are kept together with its result.
    pub(super) together: Option<Together<'c>>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug)]
enum Ended {
    /// With this status.
    With(u32),
    /// It is to go on later.
    Later,
    /// What it has to say was said before.
    Replayed,
    /// The same request is being executed.
    InProgress,
}

impl<'a> Run<'_, 'a> {
    /// Executes what is left of it.
    fn execute(&mut self, operations: &Reader<'_>, reply: &mut ReplyBuffer) -> Ended {
        let mut r = operations.clone();
        if r.fixed_opaque(self.progress.at).is_err() {
            return Ended::With(NfsStat4::ServerFault as u32);
        }
        let first = operations.position();
        while self.progress.done < self.count {
            let number = r.u32();
            let row = number.ok().and_then(|number| self.row(number));
            let result_at = reply.bytes.len();
            let mut w = Writer::new(&mut reply.bytes);
            w.u32(row.map_or(Op4::Illegal, |row| row.number) as u32);
            w.u32(NfsStat4::Ok as u32);
            self.call.lacks_room = None;
            self.call.wait.reset();
            self.call.wait.results_bytes = reply.bytes.len();
            self.op_places = (self.progress.current, self.progress.saved);
            self.op_at = result_at - self.place.operations_at();
            let result = match (number, row) {
                (Err(_), _) => Err(NfsStat4::BadXdr),
                (Ok(_), None) => Err(NfsStat4::OpIllegal),
                (Ok(_), Some(row)) => self.may_stand(row.stands).and_then(|()| {
                    row.require_in(self.minor_version)?;
                    if row.result_bytes_max > 0 {
                        if let Some(ended) = self.admit(reply) {
                            return Ok(Some(ended));
                        }
                        self.has_room(reply, row.result_bytes_max)?;
                        self.before_change(row.number, result_at, reply);
                    }
                    if row.number == Op4::Sequence {
                        return match self.sequence(&mut r, reply)? {
                            Begun::New => Ok(None),
                            Begun::Ended(ended) => Ok(Some(ended)),
                        };
                    }
                    self.call.op.operation = &row.operation;
                    let noted = self.nfs4.state.noted_records();
                    let result = (row.run)(self, &mut r, reply);
                    self.after_operation(result.is_ok(), r.position() - first, reply);
                    result?;
                    nfs4::reclaim::keep_records(self, noted).map(|()| None)
                }),
            };
            let result = match result {
                Ok(Some(ended)) => return ended,
                Ok(None) => self.has_room(reply, 0),
                Err(status) => Err(status),
            };
            if let Err(status) = result {
                let failure = status;
                self.take_back(failure, reply);
                self.together = None;
                let status = match self.minor_version {
                    0 => row.map_or(status, |row| status::of_minor_0_by(row.number, status)),
                    _ => row.map_or(status, |row| status::of_later_by(row.number, status)),
                };
                reply.bytes.truncate(result_at + OP_HEAD_BYTES);
                while reply.files.last().is_some_and(|(at, _)| *at > result_at) {
                    reply.files.pop();
                }
                set(&mut reply.bytes, result_at + 4, status as u32);
                // What has promised something cannot wait for anything else.
                if self.is_to_wait(failure) {
                    // It will be executed from its beginning.
                    (self.progress.current, self.progress.saved) = self.op_places;
                    self.target = None;
                    if self.call.wait.begins_again() {
                        self.failure.clear();
                        reply.bytes.truncate(result_at);
                        r = operations.clone();
                        if r.fixed_opaque(self.progress.at).is_err() {
                            return Ended::With(NfsStat4::ServerFault as u32);
                        }
                        continue;
                    }
                    return Ended::Later;
                }
                self.note_ended(row, true);
                append_failure(word(&reply.bytes, result_at), &mut reply.bytes);
                reply.bytes.append(&mut self.failure);
                self.progress.done += 1;
                return Ended::With(status as u32);
            }
            self.note_ended(row, false);
            self.call.wait.question = None;
            self.progress.done += 1;
            self.progress.at = r.position() - first;
            self.progress.depends |= row.is_some_and(|row| !is_told_alike(row.number));
            if self.progress.done == 1 {
                match self.go_on(reply) {
                    GoesOn::Here => {}
                    GoesOn::Nowhere => return self.is_not_kept(&mut r, reply),
                    GoesOn::Elsewhere => {
                        r = operations.clone();
                        if r.fixed_opaque(self.progress.at).is_err() {
                            return Ended::With(NfsStat4::ServerFault as u32);
                        }
                    }
                }
            }
        }
        Ended::With(NfsStat4::Ok as u32)
    }

    /// Tells the host of an operation that has ended.
    fn note_ended(&mut self, row: Option<&OpRow>, is_error: bool) {
        let operation =
            row.map_or(CompoundOperation::ILLEGAL, |row| CompoundOperation::of(row.number));
        self.progress.operations.push(operation);
        self.call.host.operation_ended(operation, is_error);
    }

    /// The row of an operation, if its minor version knows that.
    fn row(&self, number: u32) -> Option<&'static OpRow> {
        nfs4::row(number).filter(|row| !row.versions.are_after(self.minor_version))
    }

    /// Asks the duplicate request cache, before the first operation that must not be executed twice.
    /// Slots do that from minor version 1 on. `Some` if nothing is to be executed.
    fn admit(&mut self, reply: &mut ReplyBuffer) -> Option<Ended> {
        if self.minor_version > 0 || self.call.admitted.is_some() {
            return None;
        }
        let mut replayed = Vec::new();
        match self.call.admit(&mut replayed) {
            None => {
                let key = self.call.admitted.key();
                let mark = || key.map(|key| CallMark::of_compound(key, 0));
                self.progress.before = self.nfs4.outcomes.take(mark);
                None
            }
            Some(Outcome::Replayed) => {
                reply.bytes.truncate(self.start);
                reply.bytes.append(&mut replayed);
                Some(Ended::Replayed)
            }
            Some(_) => Some(Ended::InProgress),
        }
    }

    /// Whether an operation may stand where it does.
    fn may_stand(&self, stands: Stands) -> Result<(), NfsStat4> {
        if self.minor_version == 0 {
            let is_too_many = self.progress.done >= OPERATIONS_MAX;
            return if is_too_many { Err(NfsStat4::Resource) } else { Ok(()) };
        }
        let is_first = self.progress.done == 0;
        let is_alone = is_first && self.count == 1;
        match stands {
            Stands::First if is_first => Ok(()),
            Stands::First => Err(NfsStat4::SequencePos),
            Stands::InSession | Stands::InSessionOrAlone if !is_first => Ok(()),
            Stands::InSession => Err(NfsStat4::OpNotInSession),
            Stands::InSessionOrAlone | Stands::Alone if is_alone => Ok(()),
            Stands::InSessionOrAlone | Stands::Alone => Err(NfsStat4::NotOnlyOp),
        }
    }

    /// Whether so many bytes more may be appended to the reply.
    fn has_room(&self, reply: &ReplyBuffer, more: usize) -> Result<(), NfsStat4> {
        let bytes = self.reply_bytes(reply) + more;
        if bytes > self.reply_bytes_max {
            return Err(NfsStat4::RepTooBig);
        }
        match &self.progress.slot {
            Some(slot) if slot.is_kept() => {
                let kept_max = slot.session().fore().response_bytes_cached_max as usize;
                if bytes > kept_max { Err(NfsStat4::RepTooBigToCache) } else { Ok(()) }
            }
            None if self.call.admitted.is_some() && bytes > KEPT_BYTES_MAX => {
                Err(NfsStat4::RepTooBigToCache)
            }
            _ => Ok(()),
        }
    }

    /// Bytes of the reply so far, with RPC's header.
    fn reply_bytes(&self, reply: &ReplyBuffer) -> usize {
        let placed = reply.files.iter().filter(|(at, _)| *at > self.start);
        let placed: usize = placed.map(|(_, range)| range.length as usize).sum();
        RPC_HEADER_BYTES + reply.bytes.len() - self.start + placed
    }

    /// How many bytes may be appended to the reply still.
    pub(crate) fn room(&self, reply: &ReplyBuffer) -> usize {
        let kept_max = match &self.progress.slot {
            Some(slot) if slot.is_kept() => {
                slot.session().fore().response_bytes_cached_max as usize
            }
            None if self.call.admitted.is_some() => KEPT_BYTES_MAX,
            _ => usize::MAX,
        };
        self.reply_bytes_max.min(kept_max).saturating_sub(self.reply_bytes(reply))
    }

    /// Whether the operation that is being executed is the last.
    pub(crate) fn is_last(&self) -> bool {
        self.progress.done + 1 == self.count
    }

    /// Whether the reply is kept for a retransmission.
    pub(crate) fn is_kept(&self) -> bool {
        self.progress.slot.as_ref().is_some_and(SlotInUse::is_kept)
            || self.progress.has_made_state
            || self.call.admitted.is_some()
    }

    /// Whose session it is of.
    ///
    /// # Errors
    /// `OpNotInSession` if it is of none.
    pub(crate) fn client(&self) -> Result<&Arc<Client>, NfsStat4> {
        let slot = self.progress.slot.as_ref().ok_or(NfsStat4::OpNotInSession)?;
        Ok(slot.session().client())
    }

    /// Whose delegations are not in its way: the client's of its session. Nobody else is known.
    pub(crate) fn holder(&self) -> Option<Arc<Client>> {
        let slot = self.progress.slot.as_ref().filter(|_| self.nfs4.state.has_delegations())?;
        Some(Arc::clone(slot.session().client()))
    }

    /// SEQUENCE (RFC 8881 §18.46), which decides whether anything else is executed.
    fn sequence(
        &mut self,
        arguments: &mut Reader<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<Begun, NfsStat4> {
        let request = nfs4::session::Request::decode(self, arguments)?;
        request.require_room(self.reply_bytes(reply) + nfs4::session::TOLD_BYTES)?;
        let mut begun = request.begin(self)?;
        if let nfs4::session::Begun::InProgress = begun
            && let Some(sink) = self.call.host.reply_sink()
        {
            let (session, slot) = request.slot();
            let (xid, connection) = (self.call.message.xid, self.call.peer.connection());
            let repeated = &self.nfs4.repeated;
            repeated.keep(Waiting { session, slot, xid, connection, sink });
            // It may have ended before somebody could know that it is waited for.
            begun = request.begin(self)?;
            if !matches!(begun, nfs4::session::Begun::InProgress) {
                drop(repeated.take(&session, slot));
            }
        }
        self.call.is_repeat = !matches!(begun, nfs4::session::Begun::New(..));
        let (slot, told) = match begun {
            nfs4::session::Begun::New(slot, told) => (slot, told),
            nfs4::session::Begun::Replay(replayed, told) => {
                told.encode(&mut Writer::new(&mut reply.bytes));
                return Ok(Begun::Ended(self.replay(&replayed, arguments, reply)));
            }
            nfs4::session::Begun::InProgress => return Ok(Begun::Ended(Ended::InProgress)),
        };
        told.encode(&mut Writer::new(&mut reply.bytes));
        self.reply_bytes_max = slot.session().fore().response_bytes_max as usize;
        self.call.wait.session = Some(InSession::of(&slot));
        self.progress.slot = Some(slot);
        self.progress.kept_from = reply.bytes.len() - self.place.operations_at();
        Ok(Begun::New)
    }

    /// Says again what was said: SEQUENCE's result is made anew, the others were kept.
    fn replay(
        &self,
        replayed: &steadfast_state::Replayed,
        rest: &mut Reader<'_>,
        reply: &mut ReplyBuffer,
    ) -> Ended {
        match replayed {
            steadfast_state::Replayed::Kept(kept) => {
                let (status, count) = (word(kept, 0), word(kept, 4));
                reply.bytes.extend_from_slice(kept.get(OP_HEAD_BYTES..).unwrap_or(&[]));
                self.place.end(&mut reply.bytes, status, count);
            }
            steadfast_state::Replayed::NotKept if self.count == 1 => {
                self.place.end(&mut reply.bytes, NfsStat4::Ok as u32, 1);
            }
            steadfast_state::Replayed::NotKept => {
                self.refuse_not_kept(rest, reply);
                self.place.end(&mut reply.bytes, NfsStat4::RetryUncachedRep as u32, 2);
            }
        }
        Ended::Replayed
    }

    /// Appends what the operation behind SEQUENCE tells of a request whose reply was not kept (RFC 8881
    /// §2.10.6.1.3).
    fn refuse_not_kept(&self, rest: &mut Reader<'_>, reply: &mut ReplyBuffer) {
        let row = rest.u32().ok().and_then(|number| self.row(number));
        let mut w = Writer::new(&mut reply.bytes);
        w.u32(row.map_or(Op4::Illegal, |row| row.number) as u32);
        w.u32(NfsStat4::RetryUncachedRep as u32);
    }

    /// The process before this one has executed the request, and could not keep what it has to say.
    fn is_not_kept(&mut self, rest: &mut Reader<'_>, reply: &mut ReplyBuffer) -> Ended {
        self.refuse_not_kept(rest, reply);
        self.progress.done += 1;
        Ended::With(NfsStat4::RetryUncachedRep as u32)
    }

    /// Ends the run.
    fn end(mut self, ended: Ended, reply: &mut ReplyBuffer) -> Outcome {
        match ended {
            Ended::With(status) => {
                if self.call.lacks_room == Some(Room::Later) {
                    self.call.lacks_room = None;
                }
                // What has ended is not executed again.
                self.call.wait.reset();
                self.place.end(&mut reply.bytes, status, self.progress.done);
                if self.progress.slot.is_none() {
                    // A client or a session may have been made or ended.
                    self.call.shared.keep_state();
                }
                if self.progress.slot.is_some() || self.call.admitted.is_some() {
                    let is_whole = reply.files.iter().all(|(at, _)| *at <= self.start);
                    self.call.ended_run = Some(self.progress.ended(is_whole));
                }
                Outcome::Done
            }
            Ended::Later => {
                // What its client is told if it waits for too long.
                let (count, status) = (self.progress.done + 1, NfsStat4::Delay as u32);
                self.place.end(&mut reply.bytes, status, count);
                let results = reply.bytes.get(self.place.operations_at()..).unwrap_or(&[]);
                let ended = results.len().saturating_sub(OP_HEAD_BYTES);
                let results = results.get(..ended).unwrap_or(&[]).to_vec();
                let progress = std::mem::take(&mut self.progress);
                let execution = self.call.admitted.take();
                self.call.suspended = Some(SuspendedRun { progress, results, execution });
                Outcome::Done
            }
            Ended::Replayed => {
                // Who executed it may not have come to that yet.
                self.call.shared.keep_state();
                Outcome::Replayed
            }
            Ended::InProgress => Outcome::Silent,
        }
    }

    /// The operation that is being executed has changed something, which must not be done again,
    /// and perhaps promises that it is stable.
    pub(crate) fn promise(&mut self, promised: Durable<()>) {
        self.progress.has_made_state = true;
        // The last change's record has the reply of a call that the duplicate request cache knows.
        let is_last_kept = self.call.admitted.is_some();
        if self.call.barrier_of_one(promised, is_last_kept) && self.progress.first_promise.is_none()
        {
            let (index, at) = (self.progress.done, self.op_at);
            self.progress.first_promise = Some(OpPlace { index, at });
        }
    }

    /// The current object.
    ///
    /// # Errors
    /// `NoFileHandle` if there is none.
    pub(crate) fn current(&self) -> Result<Object, NfsStat4> {
        self.progress.current.object.ok_or(NfsStat4::NoFileHandle)
    }

    /// Another object becomes the current one, without a stateid.
    pub(crate) fn set_current(&mut self, object: Object) {
        self.progress.current = Place { object: Some(object), stateid: None };
        self.target = None;
    }

    /// An object that is resolved becomes the current one.
    pub(crate) fn set_current_target(&mut self, target: Target<'a>) {
        self.set_current(Object::Stored(target.share.id, target.handle));
        self.target = Some(target);
    }

    /// Filehandle and stateid become the current ones.
    pub(crate) fn set_current_place(&mut self, place: Place) {
        self.progress.current = place;
        self.target = None;
    }

    /// A directory of the pseudo file system.
    ///
    /// # Errors
    /// `Stale` if it is not there any more.
    pub(crate) fn node(&self, key: &NodeKey) -> Result<&'a Node, NfsStat4> {
        self.call.exports.pseudo().node(key).ok_or(NfsStat4::Stale)
    }

    /// The current object, which is one of a share, with what the caller may do there.
    ///
    /// # Errors
    /// As [`Call::target`]; `NoFileHandle`; `otherwise` if it is a directory of the pseudo file system.
    pub(crate) fn stored(
        &mut self,
        otherwise: NfsStat4,
    ) -> Result<(&mut Call<'a>, &Target<'a>), NfsStat4> {
        let (share, handle) = match self.current()? {
            Object::Node(_) => return Err(otherwise),
            Object::Stored(share, handle) => (share, handle),
        };
        if self.target.is_none() {
            self.target = Some(self.call.target(share, handle).or_status()?);
        }
        let mark = self.mark();
        let target = self.target.as_mut().ok_or(NfsStat4::ServerFault)?;
        target.call = mark;
        Ok((self.call, target))
    }

    /// The object that a handle of a share names.
    pub(crate) fn resolve(
        &mut self,
        share: ShareId,
        handle: StorageHandle,
    ) -> Result<Target<'a>, FsError> {
        let call = self.mark();
        self.call.target(share, handle).map(|target| Target { call, ..target })
    }
}

/// What came of SEQUENCE.
enum Begun {
    /// The others are executed.
    New,
    Ended(Ended),
}
