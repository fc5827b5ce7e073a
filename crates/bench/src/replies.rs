//! Reading replies without keeping them: what every script needs to judge them.
//!
//! Results are read as [`steadfast_wire::nfs3`] declares them, borrowing from the message. Two are not, but by the
//! types of their parts, and tests hold them to the declarations byte by byte:
//!
//! - a listing ([`listing`]), whose entries are judged one by one: as a whole it would be a `Vec` a reply;
//! - the head of a long READ ([`LongData::of_read`]), whose data is not in memory.

use steadfast_client::{NfsStat3, ReplyBody, StableHow, arguments, parse_reply};
use steadfast_wire::ListReader;
use steadfast_wire::nfs3::{
    Access3Ok, Commit3Ok, Entry3, EntryPlus3, Fattr3, FileType3, Linked3, Lookup3Ok, Made3Ok,
    NfsFh3, Read3Ok, Readlink3Ok, Write3Ok,
};
use steadfast_xdr::{Decode, Reader, XdrError};

use crate::error::BenchError;
use crate::pattern;

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
/// And of one whose READ returns more or less.
pub(crate) const OTHER_COUNT: &str = "READ returned another count than was asked for";

/// Reads results of which nothing but their form is promised.
pub(crate) fn formed<'m, T: Decode<'m>>(r: &mut Reader<'m>) -> Result<(), Complaint> {
    T::decode(r)?;
    Ok(())
}

/// Reads the results of READ: as many bytes as were asked for, and the right ones.
pub(crate) fn data(
    r: &mut Reader<'_>,
    size: u32,
    is_right: impl FnOnce(&[u8]) -> bool,
) -> Result<(), Complaint> {
    let Read3Ok { count, data, .. } = Decode::decode(r)?;
    if count != size || data.len() != size as usize {
        return Err(OTHER_COUNT.into());
    }
    if is_right(data) { Ok(()) } else { Err(NEVER_WRITTEN.into()) }
}

/// Reads the results of WRITE, which must be at least as stable as was asked for.
pub(crate) fn written(
    r: &mut Reader<'_>,
    size: u32,
    stable: StableHow,
) -> Result<(StableHow, [u8; 8]), Complaint> {
    let Write3Ok { count, committed, verf, .. } = Decode::decode(r)?;
    if count != size {
        return Err("WRITE wrote less than it was given".into());
    }
    if (committed as u32) < stable as u32 {
        return Err("WRITE is less stable than was asked for".into());
    }
    Ok((committed, verf))
}

/// Reads the verifier of COMMIT.
pub(crate) fn committed(r: &mut Reader<'_>) -> Result<[u8; 8], Complaint> {
    Ok(Commit3Ok::decode(r)?.verf)
}

/// Reads the results of LOOKUP, which must find what was made.
pub(crate) fn found(r: &mut Reader<'_>, expected: Option<&[u8]>) -> Result<(), Complaint> {
    if expected == Some(Lookup3Ok::decode(r)?.object.0) {
        Ok(())
    } else {
        Err("LOOKUP returned another handle than CREATE".into())
    }
}

/// Reads the results of ACCESS by the owner of a file.
pub(crate) fn access_granted(r: &mut Reader<'_>) -> Result<(), Complaint> {
    if Access3Ok::decode(r)?.access & arguments::access::READ == 0 {
        return Err("ACCESS denies the owner to read".into());
    }
    Ok(())
}

/// Reads the results of CREATE and its like: an object of this type.
pub(crate) fn made(r: &mut Reader<'_>, file_type: FileType3) -> Result<(), Complaint> {
    let Made3Ok { obj, obj_attributes, .. } = Decode::decode(r)?;
    if obj.is_none() {
        return Err("a new object without a handle".into());
    }
    if obj_attributes.is_some_and(|attributes| attributes.file_type != file_type) {
        return Err("a new object of another type than was asked for".into());
    }
    Ok(())
}

/// Reads the results of LINK.
pub(crate) fn linked(r: &mut Reader<'_>) -> Result<(), Complaint> {
    if Linked3::decode(r)?.file_attributes.is_some_and(|attributes| attributes.nlink < 2) {
        return Err("LINK, and yet the file has one link".into());
    }
    Ok(())
}

/// Reads the results of READLINK.
pub(crate) fn link_target(r: &mut Reader<'_>, expected: &[u8]) -> Result<(), Complaint> {
    if Readlink3Ok::decode(r)?.data != expected {
        return Err("READLINK returned another target than was made".into());
    }
    Ok(())
}

/// Reads the results of READDIR or READDIRPLUS after the status; returns the verifier and
/// whether the listing is at its end. Entries of READDIR have neither attributes nor handle.
pub(crate) fn listing<'m>(
    r: &mut Reader<'m>,
    is_plus: bool,
    mut each: impl FnMut(EntryPlus3<'m>) -> Result<(), Complaint>,
) -> Result<([u8; 8], bool), Complaint> {
    formed::<Option<Fattr3>>(r)?;
    let verifier = r.array()?;
    if is_plus {
        for entry in ListReader::new(r) {
            each(entry?)?;
        }
    } else {
        for entry in ListReader::new(r) {
            let Entry3 { fileid, name, cookie } = entry?;
            let (name_attributes, name_handle) = (None, None);
            each(EntryPlus3 { fileid, name, cookie, name_attributes, name_handle })?;
        }
    }
    Ok((verifier, r.bool()?))
}

/// Reads a listing, from its beginning, of a directory with so many names.
pub(crate) fn names(r: &mut Reader<'_>, is_plus: bool, expected: usize) -> Result<(), Complaint> {
    let mut seen = 0;
    let (_, is_end) = listing(r, is_plus, |entry| {
        let is_own = entry.name == b"." || entry.name == b"..";
        seen += usize::from(!is_own);
        let other = entry.name_attributes.is_some_and(|one| one.fileid != entry.fileid);
        let is_unusable = entry.cookie == 0 || entry.name_handle == Some(NfsFh3(&[]));
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
        let mut parse = || -> Result<u32, Complaint> {
            let _status = r.u32()?;
            // What `Read3Ok` has before its data.
            formed::<Option<Fattr3>>(&mut r)?;
            let (count, _eof, length) = (r.u32()?, r.bool()?, r.u32()?);
            if length == count { Ok(count) } else { Err(OTHER_COUNT.into()) }
        };
        let count = parse().map_err(|complaint| complaint.about(operation))?;
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
            return Err(BenchError::broken(operation, OTHER_COUNT));
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

#[cfg(test)]
mod tests {
    use steadfast_wire::List;
    use steadfast_wire::nfs3::{NfsTime3, Read3Res, Readdir3Ok, Readdirplus3Ok, Res3, SpecData3};
    use steadfast_wire::rpc::{AcceptStat, ReplyHeader};
    use steadfast_xdr::{Encode, Writer};

    use super::*;

    const TIME: NfsTime3 = NfsTime3 { seconds: 20, nseconds: 21 };
    const ATTRIBUTES: Fattr3 = Fattr3 {
        file_type: FileType3::Reg,
        mode: 0o644,
        nlink: 1,
        uid: 3,
        gid: 4,
        size: 5,
        used: 6,
        rdev: SpecData3 { specdata1: 7, specdata2: 8 },
        fsid: 9,
        fileid: 10,
        atime: TIME,
        mtime: TIME,
        ctime: TIME,
    };
    const VERIFIER: [u8; 8] = *b"verifier";

    fn encoded(value: &impl Encode) -> Vec<u8> {
        let mut bytes = Vec::new();
        value.encode(&mut Writer::new(&mut bytes));
        bytes
    }

    /// The bytes, each of their beginnings, and the bytes with each of them changed.
    fn damaged(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
        let beginnings = (0..=bytes.len()).map(|end| bytes[..end].to_vec());
        let changed = (0..bytes.len()).flat_map(|at| {
            [0x01, 0x02, 0x04, 0x80, 0xff].map(|bits| {
                let mut bytes = bytes.to_vec();
                bytes[at] ^= bits;
                bytes
            })
        });
        beginnings.chain(changed)
    }

    /// A listing as [`listing`] reads it, and how many bytes that is.
    fn listed(bytes: &[u8], is_plus: bool) -> Option<(Readdirplus3Ok<'_>, usize)> {
        let mut r = Reader::new(bytes);
        let mut entries = Vec::new();
        let each = |entry| {
            entries.push(entry);
            Ok(())
        };
        let (cookieverf, eof) = listing(&mut r, is_plus, each).ok()?;
        let dir_attributes = Decode::decode(&mut Reader::new(bytes)).ok()?;
        let entries = List(entries);
        Some((Readdirplus3Ok { dir_attributes, cookieverf, entries, eof }, r.position()))
    }

    /// The same as it is declared.
    fn declared(bytes: &[u8], is_plus: bool) -> Option<(Readdirplus3Ok<'_>, usize)> {
        let mut r = Reader::new(bytes);
        if is_plus {
            let all = Readdirplus3Ok::decode(&mut r).ok()?;
            return Some((all, r.position()));
        }
        let Readdir3Ok { dir_attributes, cookieverf, entries, eof } =
            Decode::decode(&mut r).ok()?;
        let entries = entries.0.into_iter().map(|Entry3 { fileid, name, cookie }| EntryPlus3 {
            fileid,
            name,
            cookie,
            name_attributes: None,
            name_handle: None,
        });
        let entries = List(entries.collect());
        Some((Readdirplus3Ok { dir_attributes, cookieverf, entries, eof }, r.position()))
    }

    #[test]
    fn a_listing_is_read_as_it_is_declared() {
        let plain = [
            Entry3 { fileid: 1, name: b"a", cookie: 2 },
            Entry3 { fileid: 10, name: b"name", cookie: 1 << 40 },
        ];
        let plus = plain.map(|Entry3 { fileid, name, cookie }| EntryPlus3 {
            fileid,
            name,
            cookie,
            name_attributes: (fileid == 10).then_some(ATTRIBUTES),
            name_handle: (fileid == 10).then_some(NfsFh3(b"handle")),
        });
        for dir_attributes in [None, Some(ATTRIBUTES)] {
            let (cookieverf, eof) = (VERIFIER, true);
            let entries = List(plain.to_vec());
            let plain = encoded(&Readdir3Ok { dir_attributes, cookieverf, entries, eof });
            let entries = List(plus.to_vec());
            let plus = encoded(&Readdirplus3Ok { dir_attributes, cookieverf, entries, eof });
            for (bytes, is_plus) in [(plain, false), (plus, true)] {
                assert!(listed(&bytes, is_plus).is_some_and(|(all, _)| all.entries.0.len() == 2));
                for bytes in damaged(&bytes) {
                    assert_eq!(listed(&bytes, is_plus), declared(&bytes, is_plus), "{bytes:02x?}");
                }
            }
        }
    }

    /// Where the data of READ begins as the result is declared, if it has the size that was asked for.
    fn declared_data_at(message: &[u8], size: u32) -> Option<usize> {
        let mut r = Reader::new(message);
        ReplyHeader::decode(&mut r).ok().filter(ReplyHeader::is_success)?;
        match Read3Res::decode(&mut r).ok()? {
            Res3::Ok(Read3Ok { count, data, .. }) => {
                let is_whole = r.is_empty() && count == size && data.len() == size as usize;
                is_whole.then(|| message.len() - data.len().next_multiple_of(4))
            }
            Res3::Failed(..) => None,
        }
    }

    #[test]
    fn the_head_of_a_long_read_is_read_as_it_is_declared() {
        let data = [b'x'; 10];
        let size = data.len() as u32;
        for file_attributes in [None, Some(ATTRIBUTES)] {
            let result = Read3Ok { file_attributes, count: size, eof: false, data: &data };
            let mut message = encoded(&ReplyHeader::accepted(7, AcceptStat::Success));
            let head = message.len();
            message.extend(encoded(&Read3Res::Ok(result)));
            let data_at = message.len() - 12;
            assert_eq!(declared_data_at(&message, size), Some(data_at));
            for end in 0..=data_at {
                let read = LongData::of_read("read", &message[..end], message.len(), 0, 0, size);
                assert_eq!(read.is_ok(), end == data_at);
                assert!(read.is_ok_and(|long| long.starts_at == data_at) || end < data_at);
            }
            // Who asks has seen the status.
            for message in damaged(&message).filter(|one| one.len() == message.len()) {
                if message[head..head + 4] != [0; 4] {
                    continue;
                }
                let read = LongData::of_read("read", &message, message.len(), 0, 0, size);
                let starts_at = read.ok().map(|long| long.starts_at);
                assert_eq!(starts_at, declared_data_at(&message, size), "{message:02x?}");
            }
        }
    }
}
