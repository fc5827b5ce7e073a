//! Calls that change nothing.

use std::sync::Arc;

use steadfast_client::nfs4::{Attributes4, Compound, CompoundReply};
use steadfast_client::{
    Access, Attributes, ClientError, Entry, FileHandle, FileSystemInfo, FileSystemStatistics,
    Identity, Listing, Lookup, PathConfiguration, SymlinkTarget, Time,
};
use steadfast_wire::nfs4::{Attribute4, Bitmap4, Op4, ReadDir4Args};

use super::convert::{self, WANTED};
use super::session::{Client4, Manner, Outcome, Requests};
use crate::options::TRANSFER_BYTES_MAX;
use crate::transport::Caller;

/// What a request or reply has beside the data of one READ or WRITE, in bytes.
const OVERHEAD_BYTES: u32 = 8192;
/// Cookies of `.` and `..`, which no server gives (RFC 8881 §18.23.3).
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
/// Bytes of a listing that are asked for at once.
const LISTING_BYTES: u32 = 64 << 10;

/// Calls under one user's identity.
#[derive(Debug)]
pub(crate) struct Calls4 {
    pub(super) requests: Requests,
}

/// What comes beside what was asked for; if it does not come, it is asked for later.
pub(super) fn beside(reply: &mut CompoundReply<'_>) -> Option<Attributes4> {
    reply.attributes().ok()
}

pub(super) fn told(attributes: Option<&Attributes4>) -> Option<Attributes> {
    attributes.and_then(convert::attributes)
}

fn no_attributes() -> ClientError {
    ClientError::Contradiction {
        procedure: "GETATTR",
        why: "attributes that each object has are missing",
    }
}

impl Calls4 {
    pub(crate) fn new(client: &Arc<Client4>, caller: Caller, identity: Identity) -> Self {
        let client = Arc::clone(client);
        Self { requests: Requests { client, caller, identity, is_keeper: false } }
    }

    /// Asks for something.
    pub(super) fn ask<R>(
        &mut self,
        name: &'static str,
        build: impl Fn(Compound) -> Compound,
        read: impl Fn(&mut CompoundReply<'_>) -> Outcome<R>,
    ) -> Outcome<R> {
        let asked = self.requests.request(Manner::asking(name), build, read);
        asked.map(|(told, _)| told).map_err(convert::failed)
    }

    /// Changes something: the server keeps the reply.
    pub(super) fn change<R>(
        &mut self,
        name: &'static str,
        build: impl Fn(Compound) -> Compound,
        read: impl Fn(&mut CompoundReply<'_>) -> Outcome<R>,
    ) -> Outcome<(R, u64)> {
        self.requests.request(Manner::changing(name), build, read).map_err(convert::failed)
    }

    fn attributes_of(&mut self, object: &FileHandle, wanted: Bitmap4) -> Outcome<Attributes4> {
        self.ask(
            "GETATTR",
            |compound| compound.put(object).attributes(wanted),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.attributes()
            },
        )
    }

    pub(crate) fn getattr(&mut self, object: &FileHandle) -> Outcome<Attributes> {
        let told = self.attributes_of(object, WANTED)?;
        convert::attributes(&told).ok_or_else(no_attributes)
    }

    pub(crate) fn lookup(&mut self, directory: &FileHandle, name: &[u8]) -> Outcome<Lookup> {
        self.ask(
            "LOOKUP",
            |compound| {
                let start = compound.put(directory).attributes(WANTED);
                start.lookup(name).handle().attributes(WANTED)
            },
            |reply| {
                reply.done(Op4::PutFh)?;
                let directory = reply.attributes()?;
                reply.done(Op4::Lookup)?;
                let handle = reply.handle()?;
                let attributes = told(beside(reply).as_ref());
                Ok(Lookup { handle, attributes, directory: convert::attributes(&directory) })
            },
        )
    }

    pub(crate) fn access(&mut self, object: &FileHandle, bits: u32) -> Outcome<Access> {
        self.ask(
            "ACCESS",
            |compound| compound.put(object).access(bits).attributes(WANTED),
            |reply| {
                reply.done(Op4::PutFh)?;
                let granted = reply.access()?.access & bits;
                Ok(Access { attributes: told(beside(reply).as_ref()), granted })
            },
        )
    }

    pub(crate) fn readlink(&mut self, symlink: &FileHandle) -> Outcome<SymlinkTarget> {
        self.ask(
            "READLINK",
            |compound| compound.put(symlink).plain(Op4::ReadLink).attributes(WANTED),
            |reply| {
                reply.done(Op4::PutFh)?;
                let target = reply.link()?;
                Ok(SymlinkTarget { attributes: told(beside(reply).as_ref()), target })
            },
        )
    }

    pub(crate) fn readdir(
        &mut self,
        directory: &FileHandle,
        cookie: u64,
        verifier: [u8; 8],
        count: u32,
    ) -> Outcome<Listing> {
        let wanted = Bitmap4::of(&[
            Attribute4::RdattrError,
            Attribute4::Type,
            Attribute4::FileId,
            Attribute4::MountedOnFileId,
        ]);
        self.list(directory, cookie, verifier, count, wanted)
    }

    pub(crate) fn readdirplus(
        &mut self,
        directory: &FileHandle,
        cookie: u64,
        verifier: [u8; 8],
        _names_bytes_max: u32,
        bytes_max: u32,
    ) -> Outcome<Listing> {
        let more = Bitmap4::of(&[
            Attribute4::RdattrError,
            Attribute4::FileHandle,
            Attribute4::MountedOnFileId,
        ]);
        self.list(directory, cookie, verifier, bytes_max, WANTED.or(&more))
    }

    /// Lists a directory; `.` and `..`, which NFSv4 does not list, come first.
    fn list(
        &mut self,
        directory: &FileHandle,
        cookie: u64,
        verifier: [u8; 8],
        bytes_max: u32,
        wanted: Bitmap4,
    ) -> Outcome<Listing> {
        let is_start = cookie <= DOT_DOT;
        let arguments = ReadDir4Args {
            cookie: if is_start { 0 } else { cookie },
            cookieverf: if is_start { [0; 8] } else { verifier },
            dircount: bytes_max,
            maxcount: bytes_max,
            attr_request: wanted,
        };
        let number = Bitmap4::of(&[Attribute4::FileId]);
        let (own, mut listed, parent) = self.ask(
            "READDIR",
            |compound| {
                let start = compound.put(directory).attributes(WANTED);
                let listing = start.op(Op4::ReadDir, &arguments);
                if is_start { listing.plain(Op4::LookupP).attributes(number) } else { listing }
            },
            |reply| {
                reply.done(Op4::PutFh)?;
                let own = reply.attributes()?;
                let listed = reply.listing()?;
                // Above the share's root there may be nothing, or nothing that may be seen.
                let parent = if is_start && reply.done(Op4::LookupP).is_ok() {
                    beside(reply).and_then(|parent| parent.fileid)
                } else {
                    None
                };
                Ok((own, listed, parent))
            },
        )?;
        let attributes = convert::attributes(&own);
        let own_number = attributes.as_ref().map_or(0, |own| own.fileid);
        let dots = [
            (DOT, b".".as_slice(), own_number),
            (DOT_DOT, b"..".as_slice(), parent.unwrap_or(own_number)),
        ];
        let dots = dots.into_iter().filter(|(dot, ..)| is_start && *dot > cookie);
        let mut entries: Vec<Entry> = dots
            .map(|(cookie, name, fileid)| Entry {
                fileid,
                name: name.to_vec(),
                cookie,
                attributes: None,
                handle: None,
            })
            .collect();
        entries.extend(listed.entries.drain(..).map(|entry| {
            let of = &entry.attributes;
            let attributes = convert::attributes(of);
            let fileid = of.fileid.or(of.mounted_on_fileid).unwrap_or(0);
            // What is mounted there on the server has another number than its name.
            let handle = of.handle.clone().filter(|_| attributes.is_some());
            Entry { fileid, name: entry.name, cookie: entry.cookie, attributes, handle }
        }));
        Ok(Listing { attributes, verifier: listed.verifier, entries, eof: listed.eof })
    }

    pub(crate) fn fsstat(&mut self, root: &FileHandle) -> Outcome<FileSystemStatistics> {
        let wanted = Bitmap4::of(&[
            Attribute4::FilesAvail,
            Attribute4::FilesFree,
            Attribute4::FilesTotal,
            Attribute4::SpaceAvail,
            Attribute4::SpaceFree,
            Attribute4::SpaceTotal,
        ]);
        let of = self.attributes_of(root, WANTED.or(&wanted))?;
        Ok(FileSystemStatistics {
            attributes: convert::attributes(&of),
            total_bytes: of.total_bytes.unwrap_or(0),
            free_bytes: of.free_bytes.unwrap_or(0),
            available_bytes: of.available_bytes.unwrap_or(0),
            total_files: of.total_files.unwrap_or(0),
            free_files: of.free_files.unwrap_or(0),
            available_files: of.available_files.unwrap_or(0),
            unchanged_for_seconds: 0,
        })
    }

    pub(crate) fn fsinfo(&mut self, root: &FileHandle) -> Outcome<FileSystemInfo> {
        let wanted = Bitmap4::of(&[
            Attribute4::MaxFileSize,
            Attribute4::MaxRead,
            Attribute4::MaxWrite,
            Attribute4::TimeDelta,
        ]);
        let of = self.attributes_of(root, WANTED.or(&wanted))?;
        let (request_bytes, reply_bytes) = self.requests.client.bytes_max();
        let size = |told: Option<u64>, room: u32| {
            let told = told.and_then(|told| u32::try_from(told).ok()).unwrap_or(TRANSFER_BYTES_MAX);
            told.min(room.saturating_sub(OVERHEAD_BYTES)).clamp(512, TRANSFER_BYTES_MAX)
        };
        let read = size(of.read_bytes_max, reply_bytes);
        let write = size(of.write_bytes_max, request_bytes);
        let delta = of.time_delta;
        let time_delta = Time {
            seconds: delta.map_or(0, |delta| delta.seconds.clamp(0, 1000) as u32),
            nanoseconds: delta.map_or(1, |delta| delta.nseconds),
        };
        Ok(FileSystemInfo {
            attributes: convert::attributes(&of),
            read_max: read,
            read_preferred: read,
            read_multiple: 1,
            write_max: write,
            write_preferred: write,
            write_multiple: 1,
            listing_preferred: LISTING_BYTES.min(reply_bytes.saturating_sub(OVERHEAD_BYTES)),
            file_bytes_max: of.file_bytes_max.unwrap_or(i64::MAX as u64),
            time_delta,
            properties: 0,
        })
    }

    pub(crate) fn pathconf(&mut self, object: &FileHandle) -> Outcome<PathConfiguration> {
        let wanted = Bitmap4::of(&[
            Attribute4::MaxLink,
            Attribute4::MaxName,
            Attribute4::NoTrunc,
            Attribute4::ChownRestricted,
            Attribute4::CaseInsensitive,
            Attribute4::CasePreserving,
        ]);
        let of = self.attributes_of(object, WANTED.or(&wanted))?;
        Ok(PathConfiguration {
            attributes: convert::attributes(&of),
            link_max: of.links_max.unwrap_or(32_000),
            name_max: of.name_bytes_max.unwrap_or(255),
            no_trunc: of.has_no_truncation.unwrap_or(true),
            chown_restricted: of.is_chown_restricted.unwrap_or(true),
            case_insensitive: of.is_case_insensitive.unwrap_or(false),
            case_preserving: of.preserves_case.unwrap_or(true),
        })
    }
}
