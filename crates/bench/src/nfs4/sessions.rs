//! The sessions of a thread's virtual clients.

use std::net::TcpStream;
use std::ops::Range;

use steadfast_client::nfs4::{
    COMPOUND, ClientSettings, Compound, CompoundReply, NULL4, Nfs4Client, Session4, Slot, StateId4,
};
use steadfast_client::{CallTemplate, FileHandle, Identity, RpcConnection};
use steadfast_wire::nfs4::Op4;

use super::blocking;
use super::judging::{Complaint, sequence};
use super::pipeline::pipelined;
use super::requests::Request;
use crate::drive::Control;
use crate::error::BenchError;
use crate::place4;
use crate::records::Outbox;
use crate::replies;
use crate::setup::Target;
use crate::version::NfsVersion;

/// Operations of the longest request.
const OPERATIONS_MAX: u32 = 8;
/// Bytes that a request or reply has beside the data of READ and WRITE, or the entries of READDIR.
pub(crate) const OVERHEAD_BYTES: u32 = 512;
/// The least that sessions are asked to carry.
const BYTES_MIN: u32 = 64 << 10;

/// What a virtual client has open.
pub(crate) type Open = (FileHandle, StateId4);

/// The session of a virtual client, and what it keeps open.
#[derive(Debug)]
struct Connected {
    session: Session4,
    kept: Vec<Open>,
}

/// Sessions by client, slots by lane.
#[derive(Debug)]
pub(crate) struct Sessions4 {
    identity: Identity,
    minor_version: u32,
    /// Calls in flight of a client.
    depth: usize,
    /// The number of the first client among those of all threads.
    first: usize,
    /// Data of the largest call.
    bytes: u32,
    /// Record mark and RPC header of a COMPOUND.
    head: Vec<u8>,
    null_head: Vec<u8>,
    connected: Vec<Option<Connected>>,
    slots: Vec<Option<Slot>>,
}

impl Sessions4 {
    /// For these clients, none of which has a session yet; `bytes` is the data of the largest call.
    pub(crate) fn new(
        target: &Target,
        nfs: NfsVersion,
        clients: &Range<usize>,
        depth: usize,
        bytes: u32,
    ) -> Self {
        let identity = &target.identity;
        let head = |procedure| CallTemplate::new(procedure, identity, &[], 0).record().to_vec();
        Self {
            identity: identity.clone(),
            minor_version: nfs.minor(),
            depth,
            first: clients.start,
            bytes,
            head: head(COMPOUND),
            null_head: head(NULL4),
            connected: clients.clone().map(|_| None).collect(),
            slots: (0..clients.len() * depth).map(|_| None).collect(),
        }
    }

    /// Makes a client's session, and opens what it keeps open.
    pub(crate) fn connect(
        &mut self,
        client: usize,
        stream: &TcpStream,
        open: impl FnOnce(&mut Nfs4Client<RpcConnection>) -> Result<Vec<Open>, BenchError>,
    ) -> Result<(), BenchError> {
        let settings = ClientSettings {
            slots: self.depth as u32,
            transfer_bytes_max: self.bytes.max(BYTES_MIN),
            operations_max: OPERATIONS_MAX,
            minor_version: self.minor_version,
            ..ClientSettings::default()
        };
        let bytes = self.bytes;
        let mut connected = blocking(stream, |stream| {
            let mut one = place4::connect_by(stream, &self.identity, &settings)?;
            check_channel(one.session(), bytes)?;
            let kept = open(&mut one)?;
            Ok(Connected { session: one.into_parts().1, kept })
        })?;
        let slots = &mut connected.session.slots;
        for place in self.slots.iter_mut().skip(client * self.depth).take(self.depth) {
            *place = Some(slots.take().ok_or_else(|| {
                let (number, count) = (self.first + client, slots.count());
                BenchError::Usage(format!(
                    "the server grants virtual client {number} {count} slots, and {} are needed: \
                     have fewer calls in flight a connection",
                    self.depth
                ))
            })?);
        }
        if let Some(place) = self.connected.get_mut(client) {
            *place = Some(connected);
        }
        Ok(())
    }

    /// Closes what a client keeps open and what its calls have left, and ends its session.
    pub(crate) fn end(
        &mut self,
        client: usize,
        stream: &TcpStream,
        left: Vec<Open>,
    ) -> Result<(), BenchError> {
        let Some(connected) = self.connected.get_mut(client).and_then(Option::take) else {
            return Ok(());
        };
        let Connected { mut session, mut kept } = connected;
        for place in self.slots.iter_mut().skip(client * self.depth).take(self.depth) {
            place.take().into_iter().for_each(|slot| session.slots.give_back(slot));
        }
        kept.extend(left);
        blocking(stream, |stream| {
            let connection =
                place4::connection(stream).map_err(BenchError::client("ending a session"))?;
            let mut one = Nfs4Client::with_session(connection, self.identity.clone(), session);
            close_all(&mut one, &kept)?;
            one.destroy().map_err(BenchError::client("ending a session")).map(drop)
        })
    }

    /// What a lane's client keeps open.
    pub(crate) fn kept(&self, lane: usize) -> &[Open] {
        let connected = self.connected.get(lane / self.depth).and_then(Option::as_ref);
        connected.map_or(&[], |connected| &connected.kept)
    }

    /// The same, where that is one file.
    pub(crate) fn only_open(&self, lane: usize) -> Result<&Open, BenchError> {
        let missing = || BenchError::Usage("a call of a client without an open file".to_owned());
        self.kept(lane).first().ok_or_else(missing)
    }

    /// Appends a lane's request, made of a compound that has its SEQUENCE already.
    pub(crate) fn append(
        &self,
        lane: usize,
        xid: u32,
        out: &mut Outbox,
        build: impl FnOnce(Compound) -> Result<Request, BenchError>,
    ) -> Result<(), BenchError> {
        let connected = self.connected.get(lane / self.depth).and_then(Option::as_ref);
        let slot = self.slots.get(lane).and_then(Option::as_ref);
        let (Some(connected), Some(slot)) = (connected, slot) else {
            return Err(BenchError::Usage("a call of a client without a session".to_owned()));
        };
        let session = &connected.session;
        let start = session.compound().sequence(&session.slots.arguments(slot, false));
        build(start)?.append(&self.head, xid, out);
        Ok(())
    }

    /// Appends a call of procedure NULL, which belongs to no session.
    pub(crate) fn append_null(&self, xid: u32, out: &mut Outbox) {
        out.push_head(&self.null_head, xid, 0);
    }

    /// Reads a reply to a lane's request up to the result of PUTFH; `Ok(Err(…))` if it complains, or says "later".
    pub(crate) fn begin_reply<'m>(
        &mut self,
        lane: usize,
        name: &str,
        message: &'m [u8],
    ) -> Result<Result<CompoundReply<'m>, Complaint>, BenchError> {
        let results = replies::result_bytes(name, message)?;
        let connected = self.connected.get(lane / self.depth).and_then(Option::as_ref);
        let slot = self.slots.get_mut(lane).and_then(Option::as_mut);
        let (Some(connected), Some(slot)) = (connected, slot) else {
            return Err(BenchError::broken(name, "a reply to a client without a session"));
        };
        let session = connected.session.slots.session();
        let mut begin = || -> Result<CompoundReply<'m>, Complaint> {
            let mut reply = CompoundReply::parse(results)?;
            sequence(&mut reply, session, slot)?;
            reply.done(Op4::PutFh)?;
            Ok(reply)
        };
        Ok(begin())
    }
}

impl Sessions4 {
    /// Reads what comes before the data of a long READ: how many bytes, and where in the message they begin.
    pub(crate) fn long_read(
        &mut self,
        lane: usize,
        name: &str,
        head: &[u8],
    ) -> Result<(u32, usize), BenchError> {
        let results_at = head.len() - replies::result_bytes(name, head)?.len();
        let begun = self.begin_reply(lane, name, head)?;
        let read = begun.and_then(|mut reply| Ok(reply.read_head()?));
        let read = read.map_err(|complaint| complaint.about(name))?;
        Ok((read.count, results_at + read.data_at))
    }
}

/// Closes all of these.
pub(crate) fn close_all(
    client: &mut Nfs4Client<RpcConnection>,
    opened: &[Open],
) -> Result<(), BenchError> {
    // What cleans up is not interrupted.
    let control = Control::default();
    pipelined(
        client,
        &control,
        opened.len(),
        |index, compound| match opened.get(index) {
            Some(open) => super::requests::close(compound, open),
            None => compound,
        },
        |_, reply| {
            reply.done(Op4::PutFh)?;
            reply.attributes()?;
            reply.stateid(Op4::Close).map(drop)
        },
    )
    .map(drop)
}

/// What the server grants must do for the calls.
fn check_channel(session: &Session4, bytes: u32) -> Result<(), BenchError> {
    let granted = session.fore.maxresponsesize.min(session.fore.maxrequestsize);
    if granted < bytes.saturating_add(OVERHEAD_BYTES) {
        return Err(BenchError::Usage(format!(
            "the server grants requests and replies of {granted} bytes: too few for calls of {bytes}"
        )));
    }
    Ok(())
}
