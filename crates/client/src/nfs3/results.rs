//! Results of NFSv3 procedures, owned.

use steadfast_wire::ListReader;
use steadfast_wire::nfs3::{
    Access3Ok, Commit3Ok, Entry3, EntryPlus3, Fattr3, Fsinfo3Ok, Fsstat3Ok, Linked3, Lookup3Ok,
    Made3Ok, NfsStat3, Pathconf3Ok, Read3Ok, Readlink3Ok, Renamed3, StableHow, Write3Ok,
};
use steadfast_xdr::{Decode, Reader};

use crate::object::{Attributes, Decoded, FileHandle, Time, Wcc};

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
    let it = Lookup3Ok::decode(r)?;
    Ok(Lookup {
        handle: it.object.into(),
        attributes: it.obj_attributes.map(Into::into),
        directory: it.dir_attributes.map(Into::into),
    })
}

pub(crate) fn access(r: &mut Reader<'_>) -> Decoded<Access> {
    let it = Access3Ok::decode(r)?;
    Ok(Access { attributes: it.obj_attributes.map(Into::into), granted: it.access })
}

pub(crate) fn readlink(r: &mut Reader<'_>) -> Decoded<SymlinkTarget> {
    let it = Readlink3Ok::decode(r)?;
    let attributes = it.symlink_attributes.map(Into::into);
    Ok(SymlinkTarget { attributes, target: it.data.to_vec() })
}

pub(crate) fn read(r: &mut Reader<'_>) -> Decoded<Read> {
    let it = Read3Ok::decode(r)?;
    let attributes = it.file_attributes.map(Into::into);
    Ok(Read { attributes, count: it.count, eof: it.eof, data: it.data.to_vec() })
}

pub(crate) fn write(r: &mut Reader<'_>) -> Decoded<Write> {
    let it = Write3Ok::decode(r)?;
    Ok(Write {
        wcc: it.file_wcc.into(),
        count: it.count,
        committed: it.committed,
        verifier: it.verf,
    })
}

pub(crate) fn made(r: &mut Reader<'_>) -> Decoded<Made> {
    let it = Made3Ok::decode(r)?;
    Ok(Made {
        handle: it.obj.map(Into::into),
        attributes: it.obj_attributes.map(Into::into),
        directory: it.dir_wcc.into(),
    })
}

pub(crate) fn renamed(r: &mut Reader<'_>) -> Decoded<Renamed> {
    let it = Renamed3::decode(r)?;
    Ok(Renamed { from: it.fromdir_wcc.into(), to: it.todir_wcc.into() })
}

pub(crate) fn linked(r: &mut Reader<'_>) -> Decoded<Linked> {
    let it = Linked3::decode(r)?;
    Ok(Linked { attributes: it.file_attributes.map(Into::into), directory: it.linkdir_wcc.into() })
}

/// A listing, decoded entry by entry: the parts of
/// [`Readdir3Ok`](steadfast_wire::nfs3::Readdir3Ok) and
/// [`Readdirplus3Ok`](steadfast_wire::nfs3::Readdirplus3Ok), in their order.
fn listing<'a, T: Decode<'a>>(r: &mut Reader<'a>, entry: impl Fn(T) -> Entry) -> Decoded<Listing> {
    let attributes = Option::<Fattr3>::decode(r)?.map(Into::into);
    let verifier = r.array()?;
    let entries = ListReader::new(r).map(|it| it.map(&entry)).collect::<Result<_, _>>()?;
    Ok(Listing { attributes, verifier, entries, eof: r.bool()? })
}

pub(crate) fn readdir(r: &mut Reader<'_>) -> Decoded<Listing> {
    listing(r, |it: Entry3<'_>| Entry {
        fileid: it.fileid,
        name: it.name.to_vec(),
        cookie: it.cookie,
        attributes: None,
        handle: None,
    })
}

pub(crate) fn readdirplus(r: &mut Reader<'_>) -> Decoded<Listing> {
    listing(r, |it: EntryPlus3<'_>| Entry {
        fileid: it.fileid,
        name: it.name.to_vec(),
        cookie: it.cookie,
        attributes: it.name_attributes.map(Into::into),
        handle: it.name_handle.map(Into::into),
    })
}

pub(crate) fn fsstat(r: &mut Reader<'_>) -> Decoded<FileSystemStatistics> {
    let it = Fsstat3Ok::decode(r)?;
    Ok(FileSystemStatistics {
        attributes: it.obj_attributes.map(Into::into),
        total_bytes: it.tbytes,
        free_bytes: it.fbytes,
        available_bytes: it.abytes,
        total_files: it.tfiles,
        free_files: it.ffiles,
        available_files: it.afiles,
        unchanged_for_seconds: it.invarsec,
    })
}

pub(crate) fn fsinfo(r: &mut Reader<'_>) -> Decoded<FileSystemInfo> {
    let it = Fsinfo3Ok::decode(r)?;
    Ok(FileSystemInfo {
        attributes: it.obj_attributes.map(Into::into),
        read_max: it.rtmax,
        read_preferred: it.rtpref,
        read_multiple: it.rtmult,
        write_max: it.wtmax,
        write_preferred: it.wtpref,
        write_multiple: it.wtmult,
        listing_preferred: it.dtpref,
        file_bytes_max: it.maxfilesize,
        time_delta: it.time_delta.into(),
        properties: it.properties,
    })
}

pub(crate) fn pathconf(r: &mut Reader<'_>) -> Decoded<PathConfiguration> {
    let it = Pathconf3Ok::decode(r)?;
    Ok(PathConfiguration {
        attributes: it.obj_attributes.map(Into::into),
        link_max: it.linkmax,
        name_max: it.name_max,
        no_trunc: it.no_trunc,
        chown_restricted: it.chown_restricted,
        case_insensitive: it.case_insensitive,
        case_preserving: it.case_preserving,
    })
}

pub(crate) fn commit(r: &mut Reader<'_>) -> Decoded<Commit> {
    let it = Commit3Ok::decode(r)?;
    Ok(Commit { wcc: it.file_wcc.into(), verifier: it.verf })
}

/// A status; `Ok(None)` is `NFS3_OK`.
pub(crate) fn status(r: &mut Reader<'_>) -> Decoded<Option<NfsStat3>> {
    let status = NfsStat3::decode(r)?;
    Ok((status != NfsStat3::Ok).then_some(status))
}
