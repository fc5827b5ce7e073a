//! Data that is compressed on its way (option `compress`): WRITEs and READs of NFSv3 are sent as WRITEZ and READZ of the
//! recovery program (docs/recovery.md), which do the same.
//!
//! It sits between the calls of a mount and its connections, so that all calls that carry data go through it: those of the
//! write-back, of read-ahead and of a replay. A call that the server refuses only in this form, or answers with data that is none, is
//! sent again as it was, and nothing is compressed from then on: that a link is slow must not cost anybody data.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use steadfast_client::recovery::{READZ, WRITEZ, data_of_readz};
use steadfast_client::{
    AcceptedError, ClientError, NFS3, Procedure, RecoveryStatus, Reply, ReplyBody, procedure,
};
use steadfast_wire::frame;
use steadfast_wire::nfs3::{NfsStat3, Read3Args, Read3Ok, Res3, Write3Args};
use steadfast_wire::recovery::{ReadzRes, WritezArgs};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

use crate::counters::Count;
use crate::document::CompressionStatus;

/// After data that did not become shorter so many calls of its file go as they are: one of 16 is tried.
const PLAIN_CALLS: u8 = 15;
/// Files share as many places. Two that share one spoil each other's chances, no more.
const PLACES: usize = 256;

type Outcome = Result<Reply, ClientError>;

/// What of the data of a mount is compressed, and how well.
#[derive(Debug)]
pub(crate) struct Compression {
    /// Why nothing is compressed.
    why_not: Mutex<Option<String>>,
    hasher: RandomState,
    writes: Samples,
    reads: Samples,
    /// Data that was sent compressed, and as how much.
    sent: (Count, Count),
    /// Data that was received compressed, and as how much.
    received: (Count, Count),
}

/// For each place how many calls go as they are before the next is tried.
#[derive(Debug)]
struct Samples([AtomicU8; PLACES]);

impl Default for Samples {
    fn default() -> Self {
        Self([const { AtomicU8::new(0) }; PLACES])
    }
}

impl Samples {
    /// Whether the next call is tried.
    fn is_due(&self, place: usize) -> bool {
        let Some(left) = self.0.get(place % PLACES) else { return true };
        let one_less = |left: u8| left.checked_sub(1);
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err()
    }

    fn note(&self, place: usize, was_worth_it: bool) {
        if let Some(left) = self.0.get(place % PLACES) {
            left.store(if was_worth_it { 0 } else { PLAIN_CALLS }, Ordering::Relaxed);
        }
    }
}

impl Compression {
    /// As the server's answer to STATUS of the recovery program says.
    pub(crate) fn agreed(asked: &Result<RecoveryStatus, ClientError>) -> Self {
        let why_not = match asked {
            Ok(status) if status.has_compression => None,
            Ok(_) => {
                Some("the server is an older Steadfast, which takes no compressed data".to_owned())
            }
            Err(error) if error.is_program_unavailable() => {
                Some("the server has no recovery program".to_owned())
            }
            Err(error) => Some(format!("the server does not say whether it can: {error}")),
        };
        match &why_not {
            None => tracing::info!("data is compressed on its way, where that makes it shorter"),
            Some(why) => tracing::warn!(%why, "nothing is compressed on its way"),
        }
        Self {
            why_not: Mutex::new(why_not),
            hasher: RandomState::new(),
            writes: Samples::default(),
            reads: Samples::default(),
            sent: Default::default(),
            received: Default::default(),
        }
    }

    /// How it is.
    pub(crate) fn told(&self) -> CompressionStatus {
        let why_not = self.why_not.lock().clone();
        CompressionStatus {
            is_used: why_not.is_none(),
            why_not,
            sent_bytes: self.sent.0.value(),
            sent_as_bytes: self.sent.1.value(),
            received_bytes: self.received.0.value(),
            received_as_bytes: self.received.1.value(),
        }
    }

    /// Has a call carried, compressed if that is worth it. The reply is the one to the call that was given.
    pub(crate) fn exchange(
        &self,
        procedure: Procedure,
        arguments: &[u8],
        mut carry: impl FnMut(Procedure, &[u8]) -> Outcome,
    ) -> Outcome {
        let is_of_nfs3 = procedure.program == NFS3 && procedure.version == 3;
        if is_of_nfs3 && self.why_not.lock().is_none() {
            let carried = if procedure.number == procedure::WRITE.number {
                self.write(arguments, &mut carry)
            } else if procedure.number == procedure::READ.number {
                self.read(arguments, &mut carry)
            } else {
                None
            };
            if let Some(outcome) = carried {
                return outcome;
            }
        }
        carry(procedure, arguments)
    }

    /// Whether the server has refused a procedure that it had told of: it was replaced by another one.
    fn has_ended_with(&self, outcome: &Outcome) -> bool {
        let Ok(Reply { body: ReplyBody::Accepted(refused), .. }) = outcome else { return false };
        if *refused == AcceptedError::SystemError {
            return false;
        }
        self.end(&format!("the server takes no compressed data any more: {refused}"));
        true
    }

    /// Nothing is compressed from now on. Of the calls that find that out at the same time the first tells.
    fn end(&self, why: &str) {
        let mut why_not = self.why_not.lock();
        if why_not.is_none() {
            tracing::warn!(%why, "nothing is compressed on its way any more");
            *why_not = Some(why.to_owned());
        }
    }

    /// A WRITE as WRITEZ; `None` if it is to be sent as it is.
    fn write(
        &self,
        arguments: &[u8],
        carry: &mut impl FnMut(Procedure, &[u8]) -> Outcome,
    ) -> Option<Outcome> {
        let Write3Args { file, offset, count, stable, data } =
            Write3Args::decode(&mut Reader::new(arguments)).ok()?;
        let place = self.place_of(file.0);
        let is_worth_trying = data.len() >= frame::DATA_BYTES_MIN && data.len() == count as usize;
        if !is_worth_trying || !self.writes.is_due(place) {
            return None;
        }
        let frame = frame::compress(data);
        self.writes.note(place, frame.is_some());
        let frame = frame?;
        let mut writez = Vec::with_capacity(frame.len() + 128);
        let call = WritezArgs { file, offset, count, stable, frame: &frame };
        call.encode(&mut Writer::new(&mut writez));
        let outcome = carry(WRITEZ, &writez);
        if self.has_ended_with(&outcome) {
            return None;
        }
        if has_status(&outcome, NfsStat3::Inval) {
            // So it answers what it cannot decompress, and more at once than it takes now, of which WRITE takes a
            // part. Nothing was written. If WRITE fails, too, it is not the form that is refused.
            let outcome = carry(procedure::WRITE, arguments);
            if has_status(&outcome, NfsStat3::Ok) {
                self.end("the server takes data only as it is: it has answered WRITEZ with NFS3ERR_INVAL");
            }
            return Some(outcome);
        }
        if has_status(&outcome, NfsStat3::Ok) {
            self.sent.0.add(data.len() as u64);
            self.sent.1.add(frame.len() as u64);
        }
        Some(outcome)
    }

    /// A READ as READZ; `None` if it is to be sent as it is.
    fn read(
        &self,
        arguments: &[u8],
        carry: &mut impl FnMut(Procedure, &[u8]) -> Outcome,
    ) -> Option<Outcome> {
        let Read3Args { file, count, .. } = Read3Args::decode(&mut Reader::new(arguments)).ok()?;
        let place = self.place_of(file.0);
        if (count as usize) < frame::DATA_BYTES_MIN || !self.reads.is_due(place) {
            return None;
        }
        let outcome = carry(READZ, arguments);
        if self.has_ended_with(&outcome) {
            return None;
        }
        let reply = match outcome {
            Ok(reply) => reply,
            Err(error) => return Some(Err(error)),
        };
        match self.as_read(reply, count, place) {
            Ok(reply) => Some(Ok(reply)),
            // The file is there all the same: its reader gets it by READ.
            Err(error) => {
                self.end(&format!("the server has answered READZ with what is no data: {error}"));
                None
            }
        }
    }

    /// The reply to READZ as one to READ. A status other than `NFS3_OK` has the same beside it.
    ///
    /// # Errors
    /// When the reply is faulty.
    fn as_read(&self, mut reply: Reply, bytes_max: u32, place: usize) -> Outcome {
        let malformed = |error| ClientError::Malformed { procedure: READZ.name, error };
        let ReplyBody::Success { results_at } = reply.body else { return Ok(reply) };
        let mut r = Reader::new(reply.results().unwrap_or(&[]));
        let Res3::Ok(told) = ReadzRes::decode(&mut r).map_err(malformed)? else {
            return Ok(reply);
        };
        if !r.is_empty() {
            let bytes = r.remaining();
            return Err(ClientError::TrailingBytes { procedure: READZ.name, bytes });
        }
        // Short data, at the end of a file, says nothing of the next.
        if told.is_compressed || told.count as usize >= frame::DATA_BYTES_MIN {
            self.reads.note(place, told.is_compressed);
        }
        let data = data_of_readz(&told, bytes_max)?;
        if told.is_compressed {
            self.received.0.add(data.len() as u64);
            self.received.1.add(told.data.len() as u64);
        }
        let read = Read3Ok {
            file_attributes: told.file_attributes,
            count: told.count,
            eof: told.eof,
            data: &data,
        };
        let mut message = reply.message.get(..results_at).unwrap_or(&[]).to_vec();
        message.reserve(data.len() + 128);
        Res3::<_, Option<steadfast_wire::nfs3::Fattr3>>::Ok(read)
            .encode(&mut Writer::new(&mut message));
        reply.message = message;
        Ok(reply)
    }

    fn place_of(&self, file: &[u8]) -> usize {
        self.hasher.hash_one(file) as usize % PLACES
    }
}

/// Whether the call was executed, with results that begin with this status.
fn has_status(outcome: &Outcome, status: NfsStat3) -> bool {
    let results = outcome.as_ref().ok().and_then(Reply::results);
    results.and_then(<[u8]>::first_chunk).is_some_and(|told| *told == (status as u32).to_be_bytes())
}

#[cfg(test)]
mod tests;
