//! A client's walk over NFSv4: what it sends for each step, as Linux does, and what the replies must say.

use steadfast_client::FileHandle;
use steadfast_client::nfs4::{Compound, CompoundReply, LINUX_ATTRIBUTES};
use steadfast_wire::nfs4::{FileType4, Op4};

use super::Pattern;
use super::script::{Client, Found, Step, lost};
use super::tree::{Named, Tree, link_target, named};
use crate::error::BenchError;
use crate::nfs4::judging::{self, Complaint, LOOKUP_RIGHT};
use crate::nfs4::requests::{self, Request};
use crate::nfs4::{CONSISTENCY, DIRECTORY_RIGHTS};

/// The request of a client's next step.
pub(super) fn request(
    client: &Client,
    start: Compound,
    pattern: Pattern,
    listing_bytes: u32,
) -> Result<Request, BenchError> {
    let frame = client.stack.last().ok_or_else(lost)?;
    let found = || frame.names.front().ok_or_else(lost);
    let handle = || found().and_then(|found| found.handle.as_ref().ok_or_else(lost));
    let compound = match client.step {
        Step::DirectoryGetattr | Step::NameDirectoryGetattr => {
            start.put(&frame.handle).attributes(LINUX_ATTRIBUTES)
        }
        Step::DirectoryAccess | Step::NameAccess => {
            start.put(&frame.handle).access(DIRECTORY_RIGHTS).attributes(CONSISTENCY)
        }
        Step::List => {
            let from = (frame.cookie, frame.verifier);
            let is_plus = pattern == Pattern::Plus;
            requests::list(start, &frame.handle, from, listing_bytes, is_plus)
        }
        Step::Lookup => requests::lookup(start, &frame.handle, &found()?.name),
        Step::NameGetattr => start.put(handle()?).attributes(LINUX_ATTRIBUTES),
        Step::Readlink => start.put(handle()?).plain(Op4::ReadLink),
    };
    Ok(compound.into())
}

/// Judges the results of a client's step, from behind PUTFH on.
pub(super) fn judge(
    client: &mut Client,
    tree: &Tree,
    pattern: Pattern,
    reply: &mut CompoundReply<'_>,
) -> Result<(), Complaint> {
    let Some(frame) = client.stack.last_mut() else { return Ok(()) };
    match client.step {
        Step::DirectoryGetattr | Step::NameDirectoryGetattr => {
            if reply.attributes()?.file_type != Some(FileType4::Directory) {
                return Err("a directory is none any more".into());
            }
        }
        Step::DirectoryAccess | Step::NameAccess => {
            if judging::rights(reply, DIRECTORY_RIGHTS)? & LOOKUP_RIGHT == 0 {
                return Err("ACCESS denies to look up".into());
            }
            reply.attributes()?;
        }
        Step::List => {
            let listing = reply.listing()?;
            judging::are_sound(&listing.entries, pattern == Pattern::Plus)?;
            let before = frame.cookie;
            for entry in listing.entries {
                frame.cookie = entry.cookie;
                let named = named(&entry.name)
                    .ok_or_else(|| Complaint::from("a name that was never made"))?;
                let attributes = entry.attributes;
                takes_type(named, attributes.file_type)?;
                frame.note(Found {
                    name: entry.name.into(),
                    named,
                    fileid: attributes.fileid.or(attributes.mounted_on_fileid),
                    handle: attributes.handle,
                });
            }
            frame
                .note_end(tree, (before, listing.verifier), listing.eof)
                .map_err(Complaint::Promise)?;
        }
        Step::Lookup => {
            let (handle, attributes) = judging::found(reply, None)?;
            if let Some(found) = frame.names.front_mut() {
                takes_type(found.named, attributes.file_type)?;
                if attributes.fileid.is_some_and(|fileid| found.is_other(fileid)) {
                    return Err("LOOKUP found another file than was listed".into());
                }
                found.handle = Some(FileHandle(handle.0));
            }
        }
        Step::NameGetattr => {
            let attributes = reply.attributes()?;
            if let Some(found) = frame.names.front() {
                if attributes.file_type.is_none() {
                    return Err("GETATTR without a type".into());
                }
                takes_type(found.named, attributes.file_type)?;
                if attributes.fileid.is_none_or(|fileid| found.is_other(fileid)) {
                    return Err("GETATTR tells of another file than was listed".into());
                }
            }
        }
        Step::Readlink => {
            let target = reply.link()?;
            if frame.names.front().is_some_and(|found| link_target(&found.name) != target) {
                return Err("READLINK returned another target than was made".into());
            }
        }
    }
    Ok(reply.end()?)
}

/// The type, if it was told, must be that of the name.
fn takes_type(named: Named, file_type: Option<FileType4>) -> Result<(), Complaint> {
    let expected = match named {
        Named::Directory(_) => FileType4::Directory,
        Named::File => FileType4::Regular,
        Named::Symlink => FileType4::Symlink,
    };
    if file_type.is_some_and(|told| told != expected) {
        return Err("an object of another type than made".into());
    }
    Ok(())
}
