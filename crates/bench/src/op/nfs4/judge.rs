//! What replies of NFSv4.1 must say.

use steadfast_client::nfs4::{Attributes4, CompoundReply, Listing4, Slot};
use steadfast_client::{ClientError, FileHandle};
use steadfast_wire::nfs4::{FileType4, NfsStat4, Op4};

use super::objects::Object;
use super::{Calls4, FILE_RIGHTS, Lane, listed_attributes};
use crate::drive::Verdict;
use crate::error::BenchError;
use crate::op::Operation;
use crate::op::tree::{LISTED_NAMES, link_target};
use crate::pattern;
use crate::replies::{self, LongData, NEVER_WRITTEN};

/// The right to read (`ACCESS4_READ`).
const READ_RIGHT: u32 = 0x1;

/// What is wrong with a reply.
pub(super) enum Complaint {
    /// It cannot be read, or an operation failed.
    Client(ClientError),
    Promise(String),
}

impl From<ClientError> for Complaint {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<&str> for Complaint {
    fn from(what: &str) -> Self {
        Self::Promise(what.to_owned())
    }
}

impl Complaint {
    /// The complaint about this kind of call.
    pub(super) fn about(self, operation: &str) -> BenchError {
        match self {
            Self::Client(ClientError::Operation(failure)) => {
                BenchError::FailedCompound { operation: operation.to_owned(), failure }
            }
            Self::Client(error) => BenchError::broken(operation, error.to_string()),
            Self::Promise(what) => BenchError::broken(operation, what),
        }
    }

    /// Whether the server only says that the call is to be made again later.
    pub(super) fn is_delay(&self) -> bool {
        let later = [Some(NfsStat4::Delay), Some(NfsStat4::Grace)];
        matches!(self, Self::Client(error) if later.contains(&error.status4()))
    }
}

/// Reads SEQUENCE's result, which must be of this slot's request; the slot moves on.
pub(super) fn sequence(
    reply: &mut CompoundReply<'_>,
    session: [u8; 16],
    slot: &mut Slot,
) -> Result<(), Complaint> {
    let told = reply.sequence()?;
    let own = (session, slot.number(), slot.sequence());
    if (told.sessionid, told.slotid, told.sequenceid) != own {
        return Err("SEQUENCE returned another session, slot or sequence id".into());
    }
    slot.advance();
    Ok(())
}

/// Attributes must be those of the object that was made.
fn is_of(attributes: &Attributes4, object: &Object, what: &str) -> Result<(), Complaint> {
    if attributes.told() != object.told {
        return Err(Complaint::Promise(format!("{what} told other attributes than before")));
    }
    if attributes.file_type != Some(FileType4::Regular) || attributes.fileid != Some(object.fileid)
    {
        return Err(Complaint::Promise(format!("{what} told of another object")));
    }
    Ok(())
}

/// A listing must have the names that were made.
fn lists(operation: Operation, listing: &Listing4) -> Result<(), Complaint> {
    let wanted = listed_attributes(operation);
    let seen = listing.entries.len();
    for entry in &listing.entries {
        let attributes = &entry.attributes;
        let is_own = entry.name == b"." || entry.name == b"..";
        let is_unusable = entry.cookie < 3 || attributes.handle.as_ref().is_some_and(is_empty);
        if is_own || is_unusable || !attributes.told().without(&wanted).is_empty() {
            return Err("an entry that contradicts itself".into());
        }
        if attributes.rdattr_error.is_some_and(|status| status != NfsStat4::Ok) {
            return Err("an entry without its attributes".into());
        }
        let is_plus = matches!(operation, Operation::Readdirplus { .. });
        if is_plus && (attributes.handle.is_none() || attributes.fileid.is_none()) {
            return Err("an entry without handle or number".into());
        }
    }
    if listing.eof && seen != LISTED_NAMES || seen == 0 || seen > LISTED_NAMES {
        return Err("a listing with other names than were made".into());
    }
    Ok(())
}

fn is_empty(handle: &FileHandle) -> bool {
    handle.as_bytes().is_empty()
}

impl Calls4 {
    pub(super) fn judge(&mut self, lane: usize, message: &[u8]) -> Result<Verdict, BenchError> {
        let name = self.load.operation.name();
        let results = replies::result_bytes(name, message)?;
        if self.load.operation == Operation::Null {
            let is_right = results.is_empty();
            return if is_right { Ok(Verdict::Good) } else { Err(self.broken("bytes too many")) };
        }
        match self.judge_results(lane, results) {
            Ok(()) => Ok(Verdict::Good),
            Err(complaint) if complaint.is_delay() => Ok(Verdict::TryLater),
            Err(complaint) => Err(complaint.about(name)),
        }
    }

    /// The lane, its session, and the object that its call is about.
    fn of_lane(&mut self, lane: usize) -> Option<(&mut Lane, [u8; 16], &Object)> {
        let connected = self.connected.get(lane / self.load.depth)?.as_ref()?;
        let lane = self.lanes.get_mut(lane)?;
        let object = self.objects.all.get(lane.choice)?;
        Some((lane, connected.session.slots.session(), object))
    }

    fn judge_results(&mut self, lane: usize, results: &[u8]) -> Result<(), Complaint> {
        let operation = self.load.operation;
        let mut reply = CompoundReply::parse(results)?;
        let Some((lane, session, object)) = self.of_lane(lane) else { return Ok(()) };
        let Some(slot) = &mut lane.slot else { return Ok(()) };
        sequence(&mut reply, session, slot)?;
        reply.done(Op4::PutFh)?;
        match operation {
            Operation::Lookup => {
                reply.done(Op4::Lookup)?;
                if reply.handle()? != object.handle {
                    return Err("LOOKUP returned another handle than before".into());
                }
                is_of(&reply.attributes()?, object, "LOOKUP")?;
            }
            Operation::Access => {
                let rights = reply.access()?;
                if rights.supported & !FILE_RIGHTS != 0 || rights.access & !rights.supported != 0 {
                    return Err("ACCESS told rights that nobody asked for".into());
                }
                if rights.access & READ_RIGHT == 0 {
                    return Err("ACCESS denies the owner to read".into());
                }
            }
            Operation::Readlink => {
                if reply.link()? != link_target(lane.choice) {
                    return Err("READLINK returned another target than was made".into());
                }
            }
            Operation::Read { size } => {
                let read = reply.read()?;
                if read.data.len() != size as usize {
                    return Err("READ returned another count than was asked for".into());
                }
                if !pattern::matches_sampled(lane.choice, lane.offset, read.data) {
                    return Err(NEVER_WRITTEN.into());
                }
                self.promises.sampled_data += 1;
            }
            Operation::Readdir { .. } | Operation::Readdirplus { .. } => {
                lists(operation, &reply.listing()?)?;
            }
            Operation::Fsstat | Operation::Fsinfo | Operation::Pathconf => {
                if reply.attributes()?.told().is_empty() {
                    return Err("GETATTR told nothing of the file system".into());
                }
            }
            _ => is_of(&reply.attributes()?, object, "GETATTR")?,
        }
        Ok(reply.end()?)
    }

    /// Judges what comes before the data of a long READ.
    pub(super) fn judge_long(
        &mut self,
        lane: usize,
        head: &[u8],
        message_bytes: usize,
    ) -> Result<LongData, BenchError> {
        let name = self.load.operation.name();
        let results = replies::result_bytes(name, head)?;
        let results_at = head.len() - results.len();
        let operation = self.load.operation;
        let (Operation::Read { size }, Some((lane, session, _))) = (operation, self.of_lane(lane))
        else {
            return Err(self.broken("a reply of unreasonable length"));
        };
        let Some(slot) = &mut lane.slot else {
            return Err(self.broken("a reply to a client without a session"));
        };
        let mut parse = || -> Result<_, Complaint> {
            let mut reply = CompoundReply::parse(results)?;
            sequence(&mut reply, session, slot)?;
            reply.done(Op4::PutFh)?;
            Ok(reply.read_head()?)
        };
        let read = parse().map_err(|complaint| complaint.about(name))?;
        let starts_at = results_at + read.data_at;
        let (file, offset) = (lane.choice, lane.offset);
        self.promises.sampled_data += 1;
        LongData::new(name, file, offset, size, read.count, starts_at, message_bytes)
    }
}
