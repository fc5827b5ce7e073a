//! What replies must say.

use steadfast_client::nfs4::{Attributes4, CompoundReply};
use steadfast_wire::nfs4::{Attribute4, Bitmap4, FileType4, Op4};

use super::super::judge::{Complaint, sequence};
use super::{Changes4, Lane};
use crate::error::BenchError;
use crate::op::Operation;
use crate::op::check::MODES;
use crate::op::script::Promises;
use crate::replies;
use steadfast_client::{FileHandle, StableHow};

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
                opened(&mut reply, own, expected)?;
            }
            Operation::Setattr => {
                if reply.set_attributes()? != Bitmap4::of(&[Attribute4::Mode]) {
                    return Err("SETATTR set other attributes than it was told to".into());
                }
                let mode = MODES.get((turn.turns % 2) as usize).copied();
                if reply.attributes()?.mode.map(|mode| mode & 0o7777) != mode {
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
                written(&mut reply, own, &mut self.promises, size, stable)?;
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

/// A file that was opened.
fn opened(
    reply: &mut CompoundReply<'_>,
    own: &mut Lane,
    expected: Option<&FileHandle>,
) -> Result<(), Complaint> {
    let stateid = reply.open()?.stateid;
    let handle = reply.handle()?;
    if handle.as_bytes().is_empty() || expected.is_some_and(|expected| *expected != handle) {
        return Err("OPEN returned another handle than LOOKUP".into());
    }
    own.open = Some((handle, stateid));
    reply.access()?;
    is_a(&reply.attributes()?, FileType4::Regular)
}

/// Data that was written.
fn written(
    reply: &mut CompoundReply<'_>,
    own: &mut Lane,
    promises: &mut Promises,
    size: u32,
    stable: StableHow,
) -> Result<(), Complaint> {
    let written = reply.write()?;
    if written.count != size {
        return Err("WRITE wrote less than it was given".into());
    }
    if (written.committed as u32) < stable as u32 {
        return Err("WRITE is less stable than was asked for".into());
    }
    own.verifier = written.verifier;
    promises.note_written(written.committed, written.verifier);
    reply.attributes()?;
    Ok(())
}

/// A name that was made, removed or changed.
fn named(operation: Operation, reply: &mut CompoundReply<'_>) -> Result<(), Complaint> {
    let file_type = match operation {
        Operation::Mkdir => FileType4::Directory,
        Operation::Symlink => FileType4::Symlink,
        Operation::Mknod => FileType4::Fifo,
        Operation::Remove | Operation::Rmdir => {
            reply.change(Op4::Remove)?;
            return Ok(());
        }
        Operation::Rename => {
            reply.done(Op4::SaveFh)?;
            reply.done(Op4::PutFh)?;
            reply.rename()?;
            return Ok(());
        }
        _ => {
            reply.done(Op4::SaveFh)?;
            reply.done(Op4::PutFh)?;
            reply.change(Op4::Link)?;
            reply.done(Op4::RestoreFh)?;
            if reply.attributes()?.links.is_some_and(|links| links < 2) {
                return Err("LINK, and yet the file has one link".into());
            }
            return Ok(());
        }
    };
    reply.create()?;
    if reply.handle()?.as_bytes().is_empty() {
        return Err("a new object without a handle".into());
    }
    is_a(&reply.attributes()?, file_type)
}

fn is_a(attributes: &Attributes4, file_type: FileType4) -> Result<(), Complaint> {
    if attributes.file_type.is_some_and(|told| told != file_type) {
        return Err("an object of another type than was asked for".into());
    }
    Ok(())
}
