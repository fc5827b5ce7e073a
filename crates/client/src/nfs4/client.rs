//! A client with a session, one request at a time.

use std::time::{Duration, Instant};

use steadfast_wire::nfs4::{
    Access4Result, Bitmap4, Close4Args, NfsStat4, Op4, ReadDir4Args, Sequence4Result, StateId4,
};

use super::COMPOUND;
use super::attributes::Attributes4;
use super::changing::{ACCESS_READ, Opening4, WANT_NO_DELEGATION};
use super::compound::Compound;
use super::reply::{CompoundReply, Entry4};
use super::session::Session4;
use super::slots::{Slot, Slots};
use crate::call::Identity;
use crate::error::ClientError;
use crate::object::FileHandle;
use crate::stream::RpcConnection;
use crate::transport::RpcTransport;

/// Most entries of a directory that [`Nfs4Client::read_directory`] takes.
const ENTRIES_MAX: usize = 4 << 20;
/// Most LOOKUPs of one request.
const LOOKUPS_MAX: usize = 8;
/// Operations that a request has beside its LOOKUPs.
const OTHER_OPERATIONS: u32 = 3;
/// How long [`patiently4`] waits before it tries again.
const TRY_LATER: Duration = Duration::from_millis(20);

type Outcome<T> = Result<T, ClientError>;

/// A client of NFSv4.1 over one transport. The identity applies to the calls that follow.
///
/// A request whose reply does not come keeps its slot busy: [`Nfs4Client::resume`] says how to ask for
/// that reply again.
#[derive(Debug)]
pub struct Nfs4Client<T = RpcConnection> {
    pub(super) transport: T,
    pub(super) identity: Identity,
    pub(super) session: Session4,
    /// The slot of the last request that got no reply.
    pub(super) unanswered: Option<Slot>,
    /// The next request is that one again.
    pub(super) resumes: bool,
}

/// A file that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened4 {
    /// Its handle.
    pub handle: FileHandle,
    /// The open.
    pub stateid: StateId4,
    /// A delegation that came with it, though none was wanted.
    pub delegation: Option<StateId4>,
}

/// Data that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadData4 {
    /// Whether it reaches the end of the file.
    pub eof: bool,
    /// The data.
    pub data: Vec<u8>,
}

pub(super) fn contradiction<T>(procedure: &'static str, why: &'static str) -> Outcome<T> {
    Err(ClientError::Contradiction { procedure, why })
}

impl<T: RpcTransport> Nfs4Client<T> {
    /// Takes transport and session back.
    pub fn into_parts(self) -> (T, Session4) {
        (self.transport, self.session)
    }

    /// The transport, for requests by hand.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// The session, for requests by hand.
    pub fn session(&mut self) -> &mut Session4 {
        &mut self.session
    }

    /// Goes on over another connection. If a request got no reply, the next request must be that one:
    /// it is sent in the same slot, and the server executes it once.
    pub fn resume(&mut self, transport: T) {
        self.transport = transport;
        self.resumes = self.unanswered.is_some();
    }

    /// Who the calls come from, from now on.
    pub fn set_identity(&mut self, identity: Identity) {
        self.identity = identity;
    }

    /// Sends a COMPOUND as it is and returns its results.
    ///
    /// # Errors
    /// When the call was not executed.
    pub fn send(&mut self, compound: &Compound) -> Outcome<Vec<u8>> {
        self.transport.call(COMPOUND, &self.identity, &compound.arguments())
    }

    /// Sends a request in a free slot: SEQUENCE, then what `build` appends. `read` reads the
    /// results after that of SEQUENCE, all of them.
    ///
    /// # Errors
    /// As [`ClientError`] says; also when no slot is free.
    pub fn request<R>(
        &mut self,
        build: impl FnOnce(Compound) -> Compound,
        read: impl FnOnce(&mut CompoundReply<'_>) -> Outcome<R>,
    ) -> Outcome<R> {
        let before = self.unanswered.take_if(|_| std::mem::take(&mut self.resumes));
        let Some(slot) = before.or_else(|| self.session.slots.take()) else {
            return Err(ClientError::NoFreeSlot);
        };
        let sequence = self.session.slots.arguments(&slot, false);
        let compound = build(self.session.compound().sequence(&sequence));
        let results = match self.send(&compound) {
            Ok(results) => results,
            Err(error @ (ClientError::Accepted(_) | ClientError::Denied(_))) => {
                // It was not executed, so that its slot has not moved.
                self.session.slots.give_back(slot);
                return Err(error);
            }
            Err(error) => {
                self.unanswered = Some(slot);
                return Err(error);
            }
        };
        self.conclude(slot, &results, read)
    }

    /// Reads the results of a request, whose slot has moved by it, unless SEQUENCE has failed.
    pub(super) fn conclude<R>(
        &mut self,
        mut slot: Slot,
        results: &[u8],
        read: impl FnOnce(&mut CompoundReply<'_>) -> Outcome<R>,
    ) -> Outcome<R> {
        let mut reply = CompoundReply::parse(results)?;
        match reply.sequence() {
            Ok(told) => {
                is_of(&told, &self.session.slots, &slot)?;
                self.session.slots.heed(&told);
                slot.advance();
                self.session.slots.give_back(slot);
            }
            Err(error) => {
                if error.status4().is_some() {
                    self.session.slots.give_back(slot);
                }
                return Err(error);
            }
        }
        let result = read(&mut reply)?;
        reply.end()?;
        Ok(result)
    }

    /// The root of what the server shows.
    pub fn root(&mut self) -> Outcome<FileHandle> {
        self.request(
            |compound| compound.put_root().handle(),
            |reply| {
                reply.done(Op4::PutRootFh)?;
                reply.handle()
            },
        )
    }

    /// The object at a path from the root, name by name; empty names do not count.
    pub fn lookup_path(&mut self, path: &[u8]) -> Outcome<FileHandle> {
        let mut handle = self.root()?;
        let names: Vec<&[u8]> =
            path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        let room = self.session.fore.maxoperations.saturating_sub(OTHER_OPERATIONS) as usize;
        for names in names.chunks(room.clamp(1, LOOKUPS_MAX)) {
            handle = self.request(
                |compound| {
                    let start = compound.put(&handle);
                    names.iter().fold(start, |compound, name| compound.lookup(name)).handle()
                },
                |reply| {
                    reply.done(Op4::PutFh)?;
                    names.iter().try_for_each(|_| reply.done(Op4::Lookup))?;
                    reply.handle()
                },
            )?;
        }
        Ok(handle)
    }

    /// The object of a name, and its attributes.
    pub fn lookup(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        wanted: Bitmap4,
    ) -> Outcome<(FileHandle, Attributes4)> {
        self.request(
            |compound| compound.put(directory).lookup(name).handle().attributes(wanted),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.done(Op4::Lookup)?;
                let handle = reply.handle()?;
                Ok((handle, asked_for(reply.attributes()?, &wanted)?))
            },
        )
    }

    /// Attributes of an object: those of the wanted ones that it has.
    pub fn attributes(&mut self, object: &FileHandle, wanted: Bitmap4) -> Outcome<Attributes4> {
        self.request(
            |compound| compound.put(object).attributes(wanted),
            |reply| {
                reply.done(Op4::PutFh)?;
                asked_for(reply.attributes()?, &wanted)
            },
        )
    }

    /// Which rights of these the caller has.
    pub fn access(&mut self, object: &FileHandle, rights: u32) -> Outcome<Access4Result> {
        let result = self.request(
            |compound| compound.put(object).access(rights),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.access()
            },
        )?;
        if result.supported & !rights != 0 || result.access & !result.supported != 0 {
            return contradiction("ACCESS", "rights that nobody asked for");
        }
        Ok(result)
    }

    /// Reads, by an open or a special stateid.
    pub fn read(
        &mut self,
        file: &FileHandle,
        stateid: StateId4,
        offset: u64,
        count: u32,
    ) -> Outcome<ReadData4> {
        let read = self.request(
            |compound| compound.put(file).read(stateid, offset, count),
            |reply| {
                reply.done(Op4::PutFh)?;
                let result = reply.read()?;
                Ok(ReadData4 { eof: result.eof, data: result.data.to_vec() })
            },
        )?;
        if read.data.len() > count as usize {
            return contradiction("READ", "more data than was asked for");
        }
        Ok(read)
    }

    /// Opens a file of a directory for reading; no delegation is asked for.
    pub fn open_for_reading(&mut self, directory: &FileHandle, name: &[u8]) -> Outcome<Opened4> {
        let share_access = ACCESS_READ | WANT_NO_DELEGATION;
        self.open(directory, &Opening4 { share_access, ..Opening4::existing(name) })
    }

    /// Closes what was opened.
    pub fn close(&mut self, file: &FileHandle, stateid: StateId4) -> Outcome<()> {
        let arguments = Close4Args { seqid: 0, open_stateid: stateid };
        self.request(
            |compound| compound.put(file).op(Op4::Close, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.stateid(Op4::Close).map(drop)
            },
        )
    }

    /// All entries of a directory, `bytes_max` a request. Attributes of an entry that the server
    /// could not tell are missing, and `rdattr_error` says why if it was asked for.
    pub fn read_directory(
        &mut self,
        directory: &FileHandle,
        wanted: Bitmap4,
        bytes_max: u32,
    ) -> Outcome<Vec<Entry4>> {
        let (mut entries, mut cookie, mut cookieverf) = (Vec::new(), 0, [0; 8]);
        loop {
            let arguments = ReadDir4Args {
                cookie,
                cookieverf,
                dircount: bytes_max,
                maxcount: bytes_max,
                attr_request: wanted,
            };
            let listing = self.request(
                |compound| compound.put(directory).op(Op4::ReadDir, &arguments),
                |reply| {
                    reply.done(Op4::PutFh)?;
                    reply.listing()
                },
            )?;
            match listing.entries.last() {
                Some(last) if last.cookie == cookie => {
                    let why = "the last entry's cookie is where the listing began";
                    return contradiction("READDIR", why);
                }
                Some(last) => cookie = last.cookie,
                None if !listing.eof => {
                    return contradiction("READDIR", "no entry, and yet not the end");
                }
                None => {}
            }
            cookieverf = listing.verifier;
            for entry in listing.entries {
                if entries.len() >= ENTRIES_MAX {
                    let (procedure, max) = ("READDIR", ENTRIES_MAX);
                    return Err(ClientError::ListTooLong { procedure, max });
                }
                let Entry4 { cookie, name, attributes } = entry;
                let attributes = asked_for(attributes, &wanted)?;
                entries.push(Entry4 { cookie, name, attributes });
            }
            if listing.eof {
                return Ok(entries);
            }
        }
    }

    /// Where a symbolic link points.
    pub fn read_link(&mut self, symlink: &FileHandle) -> Outcome<Vec<u8>> {
        self.request(
            |compound| compound.put(symlink).plain(Op4::ReadLink),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.link()
            },
        )
    }
}

/// SEQUENCE's result must be of the request.
fn is_of(told: &Sequence4Result, slots: &Slots, slot: &Slot) -> Outcome<()> {
    let own = (slots.session(), slot.number(), slot.sequence());
    if (told.sessionid, told.slotid, told.sequenceid) != own {
        return contradiction("SEQUENCE", "the result of another slot or sequence id");
    }
    Ok(())
}

/// A server tells no attributes but those that it was asked for.
fn asked_for(told: Attributes4, wanted: &Bitmap4) -> Outcome<Attributes4> {
    if !told.told().without(wanted).is_empty() {
        return contradiction("GETATTR", "attributes that nobody asked for");
    }
    Ok(told)
}

/// Makes a request again and again while the server says `NFS4ERR_DELAY`, for so long at most.
///
/// # Errors
/// Those of the request; `NFS4ERR_DELAY` when the time is over.
pub fn patiently4<R>(
    limit: Duration,
    mut request: impl FnMut() -> Result<R, ClientError>,
) -> Result<R, ClientError> {
    let deadline = Instant::now() + limit;
    loop {
        match request() {
            Err(error) if error.status4() == Some(NfsStat4::Delay) && Instant::now() < deadline => {
                std::thread::sleep(TRY_LATER);
            }
            outcome => return outcome,
        }
    }
}
