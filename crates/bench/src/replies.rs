//! Reading replies without keeping them: what every script needs to judge them.

use steadfast_client::{NfsStat3, ReplyBody, StableHow, arguments, parse_reply};
use steadfast_xdr::{Decode, Reader, XdrError};

use crate::error::BenchError;
use crate::pattern;

/// Bytes of `fattr3`.
pub(crate) const ATTRIBUTES_BYTES: usize = 84;
/// Longest handle (RFC 1813 §2.4).
pub(crate) const HANDLE_BYTES_MAX: usize = 64;
/// Longest name taken from a server.
pub(crate) const NAME_BYTES_MAX: usize = 1024;

/// What is wrong with a reply.
#[derive(Debug)]
pub(crate) enum Complaint {
    Xdr(XdrError),
    Promise(String),
}

impl From<XdrError> for Complaint {
    fn from(error: XdrError) -> Self {
        Self::Xdr(error)
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
            Self::Xdr(error) => BenchError::broken(operation, error.to_string()),
            Self::Promise(what) => BenchError::broken(operation, what),
        }
    }
}

/// The attributes that scripts look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Brief {
    /// `ftype3`: 1 is a file, 2 a directory, 5 a symbolic link.
    pub(crate) file_type: u32,
    pub(crate) nlink: u32,
    pub(crate) size: u64,
    pub(crate) fileid: u64,
}

/// Reads `fattr3`.
pub(crate) fn attributes(r: &mut Reader<'_>) -> Result<Brief, XdrError> {
    let file_type = r.u32()?;
    let _mode = r.u32()?;
    let nlink = r.u32()?;
    r.fixed_opaque(8)?;
    let size = r.u64()?;
    r.fixed_opaque(24)?;
    let fileid = r.u64()?;
    r.fixed_opaque(24)?;
    Ok(Brief { file_type, nlink, size, fileid })
}

/// Reads `post_op_attr`.
pub(crate) fn post(r: &mut Reader<'_>) -> Result<Option<Brief>, XdrError> {
    r.optional(attributes)
}

pub(crate) fn skip_post(r: &mut Reader<'_>) -> Result<(), XdrError> {
    if r.bool()? {
        r.fixed_opaque(ATTRIBUTES_BYTES)?;
    }
    Ok(())
}

pub(crate) fn skip_wcc(r: &mut Reader<'_>) -> Result<(), XdrError> {
    if r.bool()? {
        r.fixed_opaque(24)?;
    }
    skip_post(r)
}

/// The results of a reply to a call that was executed.
pub(crate) fn results<'m>(operation: &str, message: &'m [u8]) -> Result<Reader<'m>, BenchError> {
    result_bytes(operation, message).map(Reader::new)
}

/// The same as bytes.
pub(crate) fn result_bytes<'m>(operation: &str, message: &'m [u8]) -> Result<&'m [u8], BenchError> {
    let broken = |what: String| BenchError::broken(operation, what);
    match parse_reply(message) {
        Ok((_, ReplyBody::Success { results_at })) => Ok(message.get(results_at..).unwrap_or(&[])),
        Ok((_, ReplyBody::Accepted(error))) => Err(broken(error.to_string())),
        Ok((_, ReplyBody::Denied(denial))) => Err(broken(denial.to_string())),
        Err(error) => Err(broken(error.to_string())),
    }
}

/// Reads the status: true when the call succeeded, false when it is to be made again later.
pub(crate) fn succeeded(operation: &str, r: &mut Reader<'_>) -> Result<bool, BenchError> {
    match NfsStat3::decode(r) {
        Ok(NfsStat3::Ok) => Ok(true),
        Ok(NfsStat3::Jukebox) => Ok(false),
        Ok(status) => Err(BenchError::Failed { operation: operation.to_owned(), status }),
        Err(error) => Err(BenchError::broken(operation, error.to_string())),
    }
}

/// Nothing may follow a reply's results.
pub(crate) fn at_end(r: &Reader<'_>) -> Result<(), Complaint> {
    if r.is_empty() { Ok(()) } else { Err("a reply with bytes too many".into()) }
}

/// What is said of a server whose READ returns other data than it should.
pub(crate) const NEVER_WRITTEN: &str = "READ returned what was never written there";

/// Reads the results of READ: as many bytes as were asked for, and the right ones.
pub(crate) fn data(
    r: &mut Reader<'_>,
    size: u32,
    is_right: impl FnOnce(&[u8]) -> bool,
) -> Result<(), Complaint> {
    skip_post(r)?;
    let count = r.u32()?;
    let _eof = r.bool()?;
    let data = r.opaque(size as usize)?;
    if count != size || data.len() != size as usize {
        return Err("READ returned another count than was asked for".into());
    }
    if is_right(data) { Ok(()) } else { Err(NEVER_WRITTEN.into()) }
}

/// Reads the results of WRITE, which must be at least as stable as was asked for.
pub(crate) fn written(
    r: &mut Reader<'_>,
    size: u32,
    stable: StableHow,
) -> Result<(StableHow, [u8; 8]), Complaint> {
    skip_wcc(r)?;
    if r.u32()? != size {
        return Err("WRITE wrote less than it was given".into());
    }
    let committed = StableHow::decode(r)?;
    if (committed as u32) < stable as u32 {
        return Err("WRITE is less stable than was asked for".into());
    }
    Ok((committed, r.array()?))
}

/// Reads the verifier of COMMIT.
pub(crate) fn committed(r: &mut Reader<'_>) -> Result<[u8; 8], Complaint> {
    skip_wcc(r)?;
    Ok(r.array()?)
}

/// Reads the results of LOOKUP, which must find what was made.
pub(crate) fn found(r: &mut Reader<'_>, expected: Option<&[u8]>) -> Result<(), Complaint> {
    let handle = r.opaque(HANDLE_BYTES_MAX)?;
    skip_post(r)?;
    skip_post(r)?;
    if expected == Some(handle) {
        Ok(())
    } else {
        Err("LOOKUP returned another handle than CREATE".into())
    }
}

/// Reads the results of ACCESS by the owner of a file.
pub(crate) fn access_granted(r: &mut Reader<'_>) -> Result<(), Complaint> {
    skip_post(r)?;
    if r.u32()? & arguments::access::READ == 0 {
        return Err("ACCESS denies the owner to read".into());
    }
    Ok(())
}

/// Reads the results of CREATE and its like: an object of this type.
pub(crate) fn made(r: &mut Reader<'_>, file_type: u32) -> Result<(), Complaint> {
    let handle = r.optional(|r| r.opaque(HANDLE_BYTES_MAX))?;
    let attributes = post(r)?;
    skip_wcc(r)?;
    if handle.is_none() {
        return Err("a new object without a handle".into());
    }
    if attributes.is_some_and(|attributes| attributes.file_type != file_type) {
        return Err("a new object of another type than was asked for".into());
    }
    Ok(())
}

/// Reads the results of LINK.
pub(crate) fn linked(r: &mut Reader<'_>) -> Result<(), Complaint> {
    if post(r)?.is_some_and(|attributes| attributes.nlink < 2) {
        return Err("LINK, and yet the file has one link".into());
    }
    Ok(skip_wcc(r)?)
}

/// Reads the results of READLINK.
pub(crate) fn link_target(r: &mut Reader<'_>, expected: &[u8]) -> Result<(), Complaint> {
    skip_post(r)?;
    if r.opaque(NAME_BYTES_MAX)? != expected {
        return Err("READLINK returned another target than was made".into());
    }
    Ok(())
}

/// Reads attributes, and so many bytes more: FSSTAT, FSINFO, PATHCONF.
pub(crate) fn post_and(r: &mut Reader<'_>, bytes: usize) -> Result<(), Complaint> {
    skip_post(r)?;
    r.fixed_opaque(bytes)?;
    Ok(())
}

/// Bytes of the results after the attributes of FSSTAT, FSINFO and PATHCONF.
pub(crate) const FSSTAT_BYTES: usize = 52;
pub(crate) const FSINFO_BYTES: usize = 48;
pub(crate) const PATHCONF_BYTES: usize = 24;

/// An entry of a listing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListedEntry<'m> {
    pub(crate) fileid: u64,
    pub(crate) name: &'m [u8],
    pub(crate) cookie: u64,
    /// Of READDIRPLUS only.
    pub(crate) attributes: Option<Brief>,
    pub(crate) handle: Option<&'m [u8]>,
}

/// Reads the results of READDIR or READDIRPLUS after the status; returns the verifier and
/// whether the listing is at its end.
pub(crate) fn listing<'m>(
    r: &mut Reader<'m>,
    is_plus: bool,
    mut each: impl FnMut(ListedEntry<'m>) -> Result<(), Complaint>,
) -> Result<([u8; 8], bool), Complaint> {
    skip_post(r)?;
    let verifier = r.array()?;
    while r.bool()? {
        let fileid = r.u64()?;
        let name = r.opaque(NAME_BYTES_MAX)?;
        let cookie = r.u64()?;
        let (mut attributes, mut handle) = (None, None);
        if is_plus {
            attributes = post(r)?;
            handle = r.optional(|r| r.opaque(HANDLE_BYTES_MAX))?;
        }
        each(ListedEntry { fileid, name, cookie, attributes, handle })?;
    }
    Ok((verifier, r.bool()?))
}

/// Reads a listing, from its beginning, of a directory with so many names.
pub(crate) fn names(r: &mut Reader<'_>, is_plus: bool, expected: usize) -> Result<(), Complaint> {
    let mut seen = 0;
    let (_, is_end) = listing(r, is_plus, |entry| {
        let is_own = entry.name == b"." || entry.name == b"..";
        seen += usize::from(!is_own);
        let other = entry.attributes.is_some_and(|one| one.fileid != entry.fileid);
        let is_unusable = entry.cookie == 0 || entry.handle == Some(&[]);
        if !is_own && other || is_unusable {
            return Err("an entry that contradicts itself".into());
        }
        Ok(())
    })?;
    if is_end && seen != expected || seen == 0 || seen > expected {
        return Err("a listing with other names than were made".into());
    }
    Ok(())
}

/// The data of a long READ, of which only samples are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongData {
    file: usize,
    offset: u64,
    /// Where in the message the data begins.
    starts_at: usize,
    bytes: usize,
}

impl LongData {
    /// Judges the head of a READ reply too long to be kept.
    pub(crate) fn of_read(
        operation: &str,
        head: &[u8],
        message_bytes: usize,
        file: usize,
        offset: u64,
        size: u32,
    ) -> Result<Self, BenchError> {
        let mut r = results(operation, head)?;
        let before = r.remaining();
        let mut parse = || -> Result<u32, XdrError> {
            let _status = r.u32()?;
            skip_post(&mut r)?;
            let count = r.u32()?;
            let _eof = r.bool()?;
            let _length = r.u32()?;
            Ok(count)
        };
        let count = parse().map_err(|error| BenchError::broken(operation, error.to_string()))?;
        let starts_at = head.len() - before + (before - r.remaining());
        Self::new(operation, file, offset, size, count, starts_at, message_bytes)
    }

    /// Judges how much data there is: as much as was asked for, and nothing after it.
    pub(crate) fn new(
        operation: &str,
        file: usize,
        offset: u64,
        size: u32,
        count: u32,
        starts_at: usize,
        message_bytes: usize,
    ) -> Result<Self, BenchError> {
        if count != size || message_bytes != starts_at + (count as usize).next_multiple_of(4) {
            let what = "READ returned another count than was asked for";
            return Err(BenchError::broken(operation, what));
        }
        Ok(Self { file, offset, starts_at, bytes: count as usize })
    }

    /// Whether this piece of the message, beginning `at`, holds the right data.
    pub(crate) fn matches(&self, at: usize, piece: &[u8]) -> bool {
        let skip = self.starts_at.saturating_sub(at);
        let Some(piece) = piece.get(skip..) else { return true };
        let position = at + skip - self.starts_at;
        let piece = piece.get(..piece.len().min(self.bytes.saturating_sub(position)));
        let Some(piece) = piece else { return true };
        pattern::matches_sampled(self.file, self.offset + position as u64, piece)
    }
}
