//! Results of NFSv3 procedures, owned.

use steadfast_wire::nfs3::{NfsStat3, StableHow};
use steadfast_xdr::{Decode, Reader};

use crate::object::{Attributes, Decoded, FileHandle, Time, Wcc, handle, post, time, wcc};

/// Longest name or target that this client takes from a server.
const NAME_BYTES_MAX: usize = 4096;
/// Largest READ that this client takes.
const DATA_BYTES_MAX: usize = 16 << 20;

/// Result of LOOKUP.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    pub handle: FileHandle,
    pub attributes: Option<Attributes>,
    pub directory: Option<Attributes>,
}

/// Result of ACCESS.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub attributes: Option<Attributes>,
    /// The bits that are granted.
    pub granted: u32,
}

/// Result of READLINK.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymlinkTarget {
    pub attributes: Option<Attributes>,
    pub target: Vec<u8>,
}

/// Result of READ.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub attributes: Option<Attributes>,
    /// As the server counts; the client checks that it is `data.len()`.
    pub count: u32,
    pub eof: bool,
    pub data: Vec<u8>,
}

/// Result of WRITE.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub wcc: Wcc,
    pub count: u32,
    pub committed: StableHow,
    pub verifier: [u8; 8],
}

/// Result of CREATE, MKDIR, SYMLINK and MKNOD.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub handle: Option<FileHandle>,
    pub attributes: Option<Attributes>,
    pub directory: Wcc,
}

/// Result of RENAME.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    pub from: Wcc,
    pub to: Wcc,
}

/// Result of LINK.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    pub attributes: Option<Attributes>,
    pub directory: Wcc,
}

/// An entry of a directory; READDIR leaves attributes and handle out.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub fileid: u64,
    pub name: Vec<u8>,
    pub cookie: u64,
    pub attributes: Option<Attributes>,
    pub handle: Option<FileHandle>,
}

/// Result of READDIR and READDIRPLUS.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    pub attributes: Option<Attributes>,
    pub verifier: [u8; 8],
    pub entries: Vec<Entry>,
    pub eof: bool,
}

/// Result of FSSTAT; sizes in bytes.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemStatistics {
    pub attributes: Option<Attributes>,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub available_bytes: u64,
    pub total_files: u64,
    pub free_files: u64,
    pub available_files: u64,
    pub unchanged_for_seconds: u32,
}

/// Result of FSINFO; sizes in bytes.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemInfo {
    pub attributes: Option<Attributes>,
    pub read_max: u32,
    pub read_preferred: u32,
    pub read_multiple: u32,
    pub write_max: u32,
    pub write_preferred: u32,
    pub write_multiple: u32,
    pub listing_preferred: u32,
    pub file_bytes_max: u64,
    pub time_delta: Time,
    pub properties: u32,
}

/// Result of PATHCONF.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathConfiguration {
    pub attributes: Option<Attributes>,
    pub link_max: u32,
    pub name_max: u32,
    pub no_trunc: bool,
    pub chown_restricted: bool,
    pub case_insensitive: bool,
    pub case_preserving: bool,
}

/// Result of COMMIT.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    pub wcc: Wcc,
    pub verifier: [u8; 8],
}

pub(crate) fn lookup(r: &mut Reader<'_>) -> Decoded<Lookup> {
    Ok(Lookup { handle: handle(r)?, attributes: post(r)?, directory: post(r)? })
}

pub(crate) fn access(r: &mut Reader<'_>) -> Decoded<Access> {
    Ok(Access { attributes: post(r)?, granted: r.u32()? })
}

pub(crate) fn readlink(r: &mut Reader<'_>) -> Decoded<SymlinkTarget> {
    Ok(SymlinkTarget { attributes: post(r)?, target: r.opaque(NAME_BYTES_MAX * 2)?.to_vec() })
}

pub(crate) fn read(r: &mut Reader<'_>) -> Decoded<Read> {
    Ok(Read {
        attributes: post(r)?,
        count: r.u32()?,
        eof: r.bool()?,
        data: r.opaque(DATA_BYTES_MAX)?.to_vec(),
    })
}

pub(crate) fn write(r: &mut Reader<'_>) -> Decoded<Write> {
    Ok(Write {
        wcc: wcc(r)?,
        count: r.u32()?,
        committed: StableHow::decode(r)?,
        verifier: r.array()?,
    })
}

pub(crate) fn made(r: &mut Reader<'_>) -> Decoded<Made> {
    Ok(Made { handle: r.optional(handle)?, attributes: post(r)?, directory: wcc(r)? })
}

pub(crate) fn renamed(r: &mut Reader<'_>) -> Decoded<Renamed> {
    Ok(Renamed { from: wcc(r)?, to: wcc(r)? })
}

pub(crate) fn linked(r: &mut Reader<'_>) -> Decoded<Linked> {
    Ok(Linked { attributes: post(r)?, directory: wcc(r)? })
}

fn listing(
    r: &mut Reader<'_>,
    more: impl Fn(&mut Reader<'_>) -> Decoded<(Option<Attributes>, Option<FileHandle>)>,
) -> Decoded<Listing> {
    let attributes = post(r)?;
    let verifier = r.array()?;
    let mut entries = Vec::new();
    while r.bool()? {
        let fileid = r.u64()?;
        let name = r.opaque(NAME_BYTES_MAX)?.to_vec();
        let cookie = r.u64()?;
        let (attributes, handle) = more(r)?;
        entries.push(Entry { fileid, name, cookie, attributes, handle });
    }
    Ok(Listing { attributes, verifier, entries, eof: r.bool()? })
}

pub(crate) fn readdir(r: &mut Reader<'_>) -> Decoded<Listing> {
    listing(r, |_| Ok((None, None)))
}

pub(crate) fn readdirplus(r: &mut Reader<'_>) -> Decoded<Listing> {
    listing(r, |r| Ok((post(r)?, r.optional(handle)?)))
}

pub(crate) fn fsstat(r: &mut Reader<'_>) -> Decoded<FileSystemStatistics> {
    Ok(FileSystemStatistics {
        attributes: post(r)?,
        total_bytes: r.u64()?,
        free_bytes: r.u64()?,
        available_bytes: r.u64()?,
        total_files: r.u64()?,
        free_files: r.u64()?,
        available_files: r.u64()?,
        unchanged_for_seconds: r.u32()?,
    })
}

pub(crate) fn fsinfo(r: &mut Reader<'_>) -> Decoded<FileSystemInfo> {
    Ok(FileSystemInfo {
        attributes: post(r)?,
        read_max: r.u32()?,
        read_preferred: r.u32()?,
        read_multiple: r.u32()?,
        write_max: r.u32()?,
        write_preferred: r.u32()?,
        write_multiple: r.u32()?,
        listing_preferred: r.u32()?,
        file_bytes_max: r.u64()?,
        time_delta: time(r)?,
        properties: r.u32()?,
    })
}

pub(crate) fn pathconf(r: &mut Reader<'_>) -> Decoded<PathConfiguration> {
    Ok(PathConfiguration {
        attributes: post(r)?,
        link_max: r.u32()?,
        name_max: r.u32()?,
        no_trunc: r.bool()?,
        chown_restricted: r.bool()?,
        case_insensitive: r.bool()?,
        case_preserving: r.bool()?,
    })
}

pub(crate) fn commit(r: &mut Reader<'_>) -> Decoded<Commit> {
    Ok(Commit { wcc: wcc(r)?, verifier: r.array()? })
}

/// A status; `Ok(None)` is `NFS3_OK`.
pub(crate) fn status(r: &mut Reader<'_>) -> Decoded<Option<NfsStat3>> {
    let status = NfsStat3::decode(r)?;
    Ok((status != NfsStat3::Ok).then_some(status))
}
