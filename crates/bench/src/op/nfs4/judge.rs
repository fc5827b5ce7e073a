//! What replies of NFSv4.1 must say.

use steadfast_client::nfs4::{Attributes4, CompoundReply};
use steadfast_wire::nfs4::{FileType4, Op4};

use super::objects::Object;
use super::{Calls4, Lane};
use crate::drive::Verdict;
use crate::error::BenchError;
use crate::nfs4::judging::{self, Complaint, sequence};
use crate::op::Operation;
use crate::op::tree::{LISTED_NAMES, link_target};
use crate::pattern;
use crate::replies::{self, LongData, NEVER_WRITTEN};

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
                let (_, attributes) = judging::found(&mut reply, Some(&object.handle))?;
                is_of(&attributes, object, "LOOKUP")?;
            }
            Operation::Access => judging::access_granted(&mut reply)?,
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
                judging::lists(&mut reply, operation.is_plus(), LISTED_NAMES)?;
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
