//! What replies of NFSv4.1 must say.

use steadfast_client::nfs4::{Attributes4, CompoundReply, Entry4, Slot};
use steadfast_client::{ClientError, FileHandle, StableHow};
use steadfast_wire::nfs4::{FileType4, NfsStat4, Op4, StateId4, Write4Result};

use super::{FILE_RIGHTS, listed_attributes};
use crate::error::BenchError;
use crate::place4::is_later;

/// The right to read (`ACCESS4_READ`).
const READ_RIGHT: u32 = 0x1;
/// The right to look up (`ACCESS4_LOOKUP`).
pub(crate) const LOOKUP_RIGHT: u32 = 0x2;
/// A mode's permissions.
pub(crate) const PERMISSIONS: u32 = 0o7777;

/// What is wrong with a reply.
pub(crate) enum Complaint {
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
    pub(crate) fn about(self, operation: &str) -> BenchError {
        match self {
            Self::Client(ClientError::Operation(failure)) => {
                BenchError::FailedCompound { operation: operation.to_owned(), failure }
            }
            Self::Client(error) => BenchError::broken(operation, error.to_string()),
            Self::Promise(what) => BenchError::broken(operation, what),
        }
    }

    /// Whether what was judged says only that the call is to be made again later.
    ///
    /// # Errors
    /// Any other complaint, about this kind of call.
    pub(crate) fn is_later(judged: Result<(), Self>, operation: &str) -> Result<bool, BenchError> {
        match judged {
            Ok(()) => Ok(false),
            Err(complaint) if complaint.is_delay() => Ok(true),
            Err(complaint) => Err(complaint.about(operation)),
        }
    }

    /// Whether the server only says that the call is to be made again later.
    pub(crate) fn is_delay(&self) -> bool {
        matches!(self, Self::Client(error) if is_later(error))
    }
}

/// Reads SEQUENCE's result, which must be of this slot's request; the slot moves on.
pub(crate) fn sequence(
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

/// Reads LOOKUP with the handle and attributes behind it; the object must be this one.
pub(crate) fn found(
    reply: &mut CompoundReply<'_>,
    expected: Option<&FileHandle>,
) -> Result<(FileHandle, Attributes4), Complaint> {
    reply.done(Op4::Lookup)?;
    let handle = reply.handle()?;
    if expected.is_some_and(|expected| *expected != handle) {
        return Err("LOOKUP returned another handle than before".into());
    }
    Ok((handle, reply.attributes()?))
}

/// Reads ACCESS: the rights that the caller has, of those that were asked for.
pub(crate) fn rights(reply: &mut CompoundReply<'_>, asked: u32) -> Result<u32, Complaint> {
    let rights = reply.access()?;
    if rights.supported & !asked != 0 || rights.access & !rights.supported != 0 {
        return Err("ACCESS told rights that nobody asked for".into());
    }
    Ok(rights.access)
}

/// Reads ACCESS by the owner of a file.
pub(crate) fn access_granted(reply: &mut CompoundReply<'_>) -> Result<(), Complaint> {
    if rights(reply, FILE_RIGHTS)? & READ_RIGHT == 0 {
        return Err("ACCESS denies the owner to read".into());
    }
    Ok(())
}

/// Reads OPEN with what Linux asks for behind it.
pub(crate) fn opened(
    reply: &mut CompoundReply<'_>,
    expected: Option<&FileHandle>,
) -> Result<(FileHandle, StateId4), Complaint> {
    let stateid = reply.open()?.stateid;
    let handle = reply.handle()?;
    if handle.as_bytes().is_empty() || expected.is_some_and(|expected| *expected != handle) {
        return Err("OPEN returned another handle than LOOKUP".into());
    }
    reply.access()?;
    is_a(&reply.attributes()?, FileType4::Regular)?;
    Ok((handle, stateid))
}

/// Reads CREATE with what Linux asks for behind it.
pub(crate) fn made(
    reply: &mut CompoundReply<'_>,
    file_type: FileType4,
) -> Result<FileHandle, Complaint> {
    reply.create()?;
    let handle = reply.handle()?;
    if handle.as_bytes().is_empty() {
        return Err("a new object without a handle".into());
    }
    is_a(&reply.attributes()?, file_type)?;
    Ok(handle)
}

/// Reads RENAME with what comes before it.
pub(crate) fn renamed(reply: &mut CompoundReply<'_>) -> Result<(), Complaint> {
    reply.done(Op4::SaveFh)?;
    reply.done(Op4::PutFh)?;
    reply.rename()?;
    Ok(())
}

/// Reads LINK with what comes before and behind it.
pub(crate) fn linked(reply: &mut CompoundReply<'_>) -> Result<(), Complaint> {
    reply.done(Op4::SaveFh)?;
    reply.done(Op4::PutFh)?;
    reply.change(Op4::Link)?;
    reply.done(Op4::RestoreFh)?;
    if reply.attributes()?.links.is_some_and(|links| links < 2) {
        return Err("LINK, and yet the file has one link".into());
    }
    Ok(())
}

/// Reads WRITE with what Linux asks for behind it; it must be at least as stable as was asked for.
pub(crate) fn written(
    reply: &mut CompoundReply<'_>,
    size: u32,
    stable: StableHow,
) -> Result<Write4Result, Complaint> {
    let written = reply.write()?;
    if written.count != size {
        return Err("WRITE wrote less than it was given".into());
    }
    if (written.committed as u32) < stable as u32 {
        return Err("WRITE is less stable than was asked for".into());
    }
    reply.attributes()?;
    Ok(written)
}

/// Entries of a listing must not contradict themselves.
pub(crate) fn are_sound(entries: &[Entry4], is_plus: bool) -> Result<(), Complaint> {
    let wanted = listed_attributes(is_plus);
    for entry in entries {
        let attributes = &entry.attributes;
        let is_own = entry.name == b"." || entry.name == b"..";
        let is_unusable = entry.cookie < 3 || attributes.handle.as_ref().is_some_and(is_empty);
        if is_own || is_unusable || !attributes.told().without(&wanted).is_empty() {
            return Err("an entry that contradicts itself".into());
        }
        if attributes.rdattr_error.is_some_and(|status| status != NfsStat4::Ok) {
            return Err("an entry without its attributes".into());
        }
        if is_plus && (attributes.handle.is_none() || attributes.fileid.is_none()) {
            return Err("an entry without handle or number".into());
        }
    }
    Ok(())
}

/// A listing from its beginning, of a directory with so many names.
pub(crate) fn lists(
    reply: &mut CompoundReply<'_>,
    is_plus: bool,
    expected: usize,
) -> Result<(), Complaint> {
    let listing = reply.listing()?;
    are_sound(&listing.entries, is_plus)?;
    let seen = listing.entries.len();
    if listing.eof && seen != expected || seen == 0 || seen > expected {
        return Err("a listing with other names than were made".into());
    }
    Ok(())
}

/// The type, if it was told, must be this one.
pub(crate) fn is_a(attributes: &Attributes4, file_type: FileType4) -> Result<(), Complaint> {
    if attributes.file_type.is_some_and(|told| told != file_type) {
        return Err("an object of another type than was asked for".into());
    }
    Ok(())
}

fn is_empty(handle: &FileHandle) -> bool {
    handle.as_bytes().is_empty()
}
