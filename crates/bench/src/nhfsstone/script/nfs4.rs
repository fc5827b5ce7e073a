//! Operations of the mix over NFSv4: the requests that a Linux client makes of them, and what replies must say.
//!
//! CREATE is an OPEN, and a CLOSE as the lane's next call. READ and WRITE use what the client keeps open. FSSTAT, FSINFO
//! and PATHCONF are GETATTR of what they tell.

use steadfast_client::nfs4::{ANONYMOUS, Compound, CompoundReply, LINUX_ATTRIBUTES};
use steadfast_client::nfs4::{Opening4, Settings4};
use steadfast_client::procedure;
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, CreateType4, FileType4, Op4, OpenHow4, SetAttr4Args,
};

use super::{CLOSE, LISTING_BYTES, Mixed, missing, tree};
use crate::error::BenchError;
use crate::nfs4::judging::{self, Complaint, PERMISSIONS};
use crate::nfs4::requests::{self, Request};
use crate::nfs4::sessions::Open;
use crate::nfs4::{CONSISTENCY, FILE_RIGHTS, LIMITS, NAMES, SPACE};
use crate::nhfsstone::{WRITTEN, is_plausible};
use crate::pattern;
use crate::place4::is_later;
use crate::replies::{NEVER_WRITTEN, OTHER_COUNT};

/// The mode that SETATTR gives.
fn mode_of(offset: u64) -> u32 {
    if offset == 0 { 0o644 } else { 0o640 }
}

impl Mixed {
    /// A lane's request; `kept` is what its client keeps open.
    pub(super) fn request(
        &self,
        lane: usize,
        start: Compound,
        kept: &[Open],
    ) -> Result<Request, BenchError> {
        let state = self.lanes.get(lane).ok_or_else(missing)?;
        let file = || self.set.files.get(state.choice).ok_or_else(missing);
        let directory = |number: usize| {
            self.set.directories.get(number).map(|one| &one.handle).ok_or_else(missing)
        };
        let root = || self.set.roots.get(state.choice).ok_or_else(missing);
        if state.number == CLOSE {
            return Ok(requests::close(start, state.open.as_ref().ok_or_else(missing)?).into());
        }
        let compound = match procedure::ALL.get(state.number).copied().ok_or_else(missing)? {
            procedure::GETATTR => start.put(file()?).attributes(LINUX_ATTRIBUTES),
            procedure::SETATTR => {
                let settings = Settings4::mode(mode_of(state.offset)).encode();
                let set = SetAttr4Args { stateid: ANONYMOUS, obj_attributes: settings.fattr() };
                start.put(file()?).op(Op4::SetAttr, &set).attributes(LINUX_ATTRIBUTES)
            }
            procedure::LOOKUP => {
                let directory = directory(tree::directory_of(state.choice))?;
                requests::lookup(start, directory, &tree::file_name(state.choice))
            }
            procedure::ACCESS => start.put(file()?).access(FILE_RIGHTS).attributes(CONSISTENCY),
            procedure::READLINK => {
                let link = self.set.links.get(state.choice).ok_or_else(missing)?;
                start.put(link).plain(Op4::ReadLink)
            }
            procedure::READ => {
                let (file, stateid) = kept.get(state.kept).ok_or_else(missing)?;
                start.put(file).read(*stateid, state.offset, self.transfer)
            }
            procedure::WRITE => {
                let open = kept.get(state.kept).ok_or_else(missing)?;
                let (file, bytes) = (state.choice + WRITTEN, self.transfer as usize);
                let data = pattern::slice(file, state.offset, bytes);
                return Ok(Request::write(start, open, state.offset, data, self.stable));
            }
            procedure::LINK => {
                let (directory, name) = self.place(state.own.ok_or_else(missing)?)?;
                requests::link(start, file()?, directory, &name)
            }
            procedure::READDIR | procedure::READDIRPLUS => {
                let is_plus = state.number == procedure::READDIRPLUS.number as usize;
                let directory = directory(state.choice)?;
                requests::list(start, directory, (0, [0; 8]), LISTING_BYTES, is_plus)
            }
            procedure::FSSTAT => start.put(root()?).attributes(SPACE),
            procedure::FSINFO => start.put(root()?).attributes(LIMITS),
            procedure::PATHCONF => start.put(file()?).attributes(NAMES),
            procedure::COMMIT => requests::commit(start, file()?, 0, 0),
            _ => self.naming(lane, start)?,
        };
        Ok(compound.into())
    }

    /// What makes, removes and renames the names of clients.
    fn naming(&self, lane: usize, start: Compound) -> Result<Compound, BenchError> {
        let state = self.lanes.get(lane).ok_or_else(missing)?;
        let (directory, name) = self.place(state.own.ok_or_else(missing)?)?;
        Ok(match procedure::ALL.get(state.number).copied().ok_or_else(missing)? {
            procedure::CREATE => {
                let mode = Settings4::mode(0o644).encode();
                let opening = Opening4::making(&name, OpenHow4::Guarded(mode.fattr()));
                requests::open(start, directory, &opening)
            }
            procedure::MKDIR => {
                requests::make(start, directory, &name, CreateType4::Directory, 0o755)
            }
            procedure::SYMLINK => {
                requests::make(start, directory, &name, CreateType4::Link(&name), 0o777)
            }
            procedure::MKNOD => requests::make(start, directory, &name, CreateType4::Fifo, 0o600),
            procedure::REMOVE | procedure::RMDIR => requests::remove(start, directory, &name),
            procedure::RENAME => {
                let (to, new_name) = self.place(state.renamed)?;
                requests::rename(start, (directory, &name), (to, &new_name))
            }
            _ => return Err(missing()),
        })
    }

    /// Judges the results of a request, from behind PUTFH on.
    pub(super) fn judge4(
        &mut self,
        lane: usize,
        reply: &mut CompoundReply<'_>,
    ) -> Result<(), Complaint> {
        let Some(state) = self.lanes.get_mut(lane) else { return Ok(()) };
        if state.number == CLOSE {
            reply.attributes()?;
            let closed = reply.stateid(Op4::Close);
            // Unless it is to come again, nothing is to be closed from here on, whatever CLOSE says.
            if !closed.as_ref().is_err_and(is_later) {
                state.open = None;
            }
            closed?;
            return Ok(reply.end()?);
        }
        let (choice, offset) = (state.choice, state.offset);
        match procedure::ALL.get(state.number).copied().unwrap_or(procedure::NULL) {
            procedure::GETATTR => {
                let attributes = reply.attributes()?;
                let size = self.places as u64 * u64::from(self.transfer);
                if attributes.file_type != Some(FileType4::Regular) || attributes.size != Some(size)
                {
                    return Err("GETATTR tells another type or size than was made".into());
                }
            }
            procedure::SETATTR => {
                if reply.set_attributes()? != Bitmap4::of(&[Attribute4::Mode]) {
                    return Err("SETATTR set other attributes than it was told to".into());
                }
                // Others may have set the other mode between.
                let mode = reply.attributes()?.mode.map(|mode| mode & PERMISSIONS);
                if ![Some(mode_of(0)), Some(mode_of(1))].contains(&mode) {
                    return Err("GETATTR behind SETATTR told another mode".into());
                }
            }
            procedure::LOOKUP => judging::found(reply, self.set.files.get(choice)).map(drop)?,
            procedure::ACCESS => {
                judging::access_granted(reply)?;
                reply.attributes()?;
            }
            procedure::READLINK => {
                if reply.link()? != tree::link_target(choice) {
                    return Err("READLINK returned another target than was made".into());
                }
            }
            procedure::READ => {
                let read = reply.read()?;
                if read.data.len() != self.transfer as usize {
                    return Err(OTHER_COUNT.into());
                }
                if !is_plausible(choice, offset, read.data) {
                    return Err(NEVER_WRITTEN.into());
                }
                self.noticed.compared_reads += 1;
            }
            procedure::WRITE => {
                let written = judging::written(reply, self.transfer, self.stable)?;
                self.note_written(lane, written.committed, written.verifier);
            }
            procedure::CREATE => state.open = Some(judging::opened(reply, None)?),
            procedure::MKDIR => judging::made(reply, FileType4::Directory).map(drop)?,
            procedure::SYMLINK => judging::made(reply, FileType4::Symlink).map(drop)?,
            procedure::MKNOD => judging::made(reply, FileType4::Fifo).map(drop)?,
            procedure::LINK => judging::linked(reply)?,
            procedure::REMOVE | procedure::RMDIR => reply.change(Op4::Remove).map(drop)?,
            procedure::RENAME => judging::renamed(reply)?,
            procedure::READDIR | procedure::READDIRPLUS => {
                let is_plus = state.number == procedure::READDIRPLUS.number as usize;
                let expected = self.set.directories.get(choice).map_or(0, |one| one.entries);
                judging::lists(reply, is_plus, expected)?;
            }
            procedure::COMMIT => {
                let verifier = reply.commit()?;
                self.note_committed(lane, verifier);
            }
            // FSSTAT, FSINFO and PATHCONF.
            _ => {
                if reply.attributes()?.told().is_empty() {
                    return Err("GETATTR told nothing of the file system".into());
                }
            }
        }
        Ok(reply.end()?)
    }
}
