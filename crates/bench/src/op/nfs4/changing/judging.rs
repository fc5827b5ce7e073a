//! What replies must say.

use steadfast_client::StableHow;
use steadfast_client::nfs4::CompoundReply;
use steadfast_wire::nfs4::{Attribute4, Bitmap4, FileType4, Op4};

use super::Changes4;
use crate::error::BenchError;
use crate::nfs4::judging::{self, Complaint, PERMISSIONS, sequence};
use crate::op::Operation;
use crate::op::check::MODES;
use crate::replies;

/// A reply that cannot be understood is an error; one that is wrong, or says "later", a complaint.
type Judged = Result<Result<(), Complaint>, BenchError>;

impl Changes4 {
    pub(super) fn judge(&mut self, lane: usize, name: &str, message: &[u8]) -> Judged {
        let results = replies::result_bytes(name, message)?;
        Ok(self.judge_results(lane, results))
    }

    fn judge_results(&mut self, lane: usize, results: &[u8]) -> Result<(), Complaint> {
        let Some(turn) = self.turn(lane) else { return Ok(()) };
        let choice = self.choice(turn);
        let connected = self.connected.get(turn.client).and_then(Option::as_ref);
        let (Some(own), Some(connected)) = (self.lanes.get_mut(lane), connected) else {
            return Ok(());
        };
        let mut reply = CompoundReply::parse(results)?;
        let Some(slot) = &mut own.slot else { return Ok(()) };
        sequence(&mut reply, connected.session.slots.session(), slot)?;
        reply.done(Op4::PutFh)?;
        match self.load.operation {
            Operation::Create | Operation::OpenClose if turn.is_second => {
                reply.attributes()?;
                // From here on there is nothing to be closed, whatever CLOSE says.
                own.open = None;
                reply.stateid(Op4::Close)?;
            }
            Operation::Create | Operation::OpenClose => {
                let expected = match self.load.operation {
                    Operation::OpenClose => self.objects.all.get(choice).map(|one| &one.handle),
                    _ => None,
                };
                own.open = Some(judging::opened(&mut reply, expected)?);
            }
            Operation::Setattr => {
                if reply.set_attributes()? != Bitmap4::of(&[Attribute4::Mode]) {
                    return Err("SETATTR set other attributes than it was told to".into());
                }
                let mode = MODES.get((turn.turns % 2) as usize).copied();
                if reply.attributes()?.mode.map(|mode| mode & PERMISSIONS) != mode {
                    return Err("GETATTR behind SETATTR told another mode".into());
                }
                if let Some(has_set) = self.has_set.get_mut(choice) {
                    *has_set = true;
                }
            }
            Operation::Commit => self.promises.note_verifier(reply.commit()?),
            Operation::WriteCommit { .. } if turn.is_second => {
                let verifier = reply.commit()?;
                own.is_lost = verifier != own.verifier;
                self.promises.note_verifier(verifier);
            }
            Operation::Write { size, .. } | Operation::WriteCommit { size } => {
                let stable = self.load.operation.stability().unwrap_or(StableHow::Unstable);
                let written = judging::written(&mut reply, size, stable)?;
                own.verifier = written.verifier;
                self.promises.note_written(written.committed, written.verifier);
            }
            Operation::LockUnlock => {
                let op = if turn.is_second { Op4::LockU } else { Op4::Lock };
                let stateid = reply.stateid(op)?;
                own.is_locked = !turn.is_second;
                own.lock = Some(stateid);
            }
            operation => named(operation, &mut reply)?,
        }
        Ok(reply.end()?)
    }
}

/// A name that was made, removed or changed.
fn named(operation: Operation, reply: &mut CompoundReply<'_>) -> Result<(), Complaint> {
    match operation {
        Operation::Mkdir => judging::made(reply, FileType4::Directory).map(drop),
        Operation::Symlink => judging::made(reply, FileType4::Symlink).map(drop),
        Operation::Mknod => judging::made(reply, FileType4::Fifo).map(drop),
        Operation::Remove | Operation::Rmdir => {
            reply.change(Op4::Remove)?;
            Ok(())
        }
        Operation::Rename => judging::renamed(reply),
        _ => judging::linked(reply),
    }
}
