//! A session whose requests are kept as bytes, so that they can be sent again in their slots.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use steadfast_client::nfs4::{
    COMPOUND, ClientSettings, Compound, CompoundReply, Nfs4Client, NfsStat4, Session4, Slot,
};
use steadfast_client::{ClientError, Identity, Reply, RpcConnection, append_call};

/// How long a reply may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Slots of a session.
const SLOTS: u32 = 4;
/// Status, tag and number of results: a tag of no bytes.
const HEAD_BYTES: usize = 12;
/// The result of SEQUENCE, which is made anew each time.
const SEQUENCE_BYTES: usize = 44;

/// A request that has no reply yet.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) xid: u32,
    pub(crate) call: Vec<u8>,
    slot: Slot,
}

/// A call and the results of its reply.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) call: Vec<u8>,
    pub(crate) results: Vec<u8>,
}

/// A session over a connection.
#[derive(Debug)]
pub(crate) struct Session {
    connection: RpcConnection,
    known: Session4,
    /// By slot, the last request that was answered.
    last: BTreeMap<u32, Answered>,
}

/// How a client makes itself known.
pub(crate) fn settings(owner: &[u8], verifier: [u8; 8]) -> ClientSettings {
    ClientSettings { owner: owner.to_vec(), verifier, slots: SLOTS, ..ClientSettings::default() }
}

/// A client that has said nothing of what it reclaims.
pub(crate) fn client(
    server: SocketAddr,
    owner: &[u8],
    verifier: [u8; 8],
) -> Result<Nfs4Client, ClientError> {
    let connection = RpcConnection::connect(server, PATIENCE)?;
    Nfs4Client::connect_to_reclaim(connection, Identity::root(), &settings(owner, verifier))
}

impl Session {
    /// Goes on with what a client has.
    pub(crate) fn of(client: Nfs4Client) -> Self {
        let (connection, known) = client.into_parts();
        Self { connection, known, last: BTreeMap::new() }
    }

    /// Goes on over another connection.
    pub(crate) fn reconnect(&mut self, server: SocketAddr) -> Result<()> {
        self.connection = RpcConnection::connect(server, PATIENCE)?;
        Ok(())
    }

    /// A request in a free slot, whose reply the server is to keep.
    pub(crate) fn prepare(&mut self, build: impl FnOnce(Compound) -> Compound) -> Result<Sent> {
        let slot = self.known.slots.take().context("no slot is free")?;
        let sequence = self.known.slots.arguments(&slot, true);
        let compound = build(self.known.compound().sequence(&sequence));
        let xid = self.connection.take_xid();
        let mut call = Vec::new();
        append_call(&mut call, xid, COMPOUND, &Identity::root(), &compound.arguments());
        Ok(Sent { xid, call, slot })
    }

    /// Sends a request, for the first time or again.
    pub(crate) fn send(&mut self, sent: &Sent) -> Result<()> {
        Ok(self.connection.send_message(&sent.call)?)
    }

    /// Waits for any reply.
    pub(crate) fn receive(&mut self) -> Result<Reply> {
        Ok(self.connection.receive_any()?)
    }

    /// Takes the reply to a request; returns its results.
    pub(crate) fn take(&mut self, sent: Sent, reply: &Reply) -> Result<Vec<u8>> {
        let results = results(reply)?;
        let Sent { call, mut slot, .. } = sent;
        let mut read = CompoundReply::parse(results)?;
        let told = read.sequence().context("SEQUENCE")?;
        if (told.slotid, told.sequenceid) != (slot.number(), slot.sequence()) {
            bail!("the reply to another request of the session than was sent");
        }
        self.known.slots.heed(&told);
        let answered = Answered { call, results: results.to_vec() };
        self.last.insert(slot.number(), answered);
        slot.advance();
        self.known.slots.give_back(slot);
        Ok(results.to_vec())
    }

    /// A request by itself.
    pub(crate) fn ask(&mut self, build: impl FnOnce(Compound) -> Compound) -> Result<Answered> {
        let sent = self.prepare(build)?;
        self.send(&sent)?;
        let call = sent.call.clone();
        let reply = self.receive()?;
        let results = self.take(sent, &reply)?;
        Ok(Answered { call, results })
    }

    /// The last request of each slot that was answered.
    pub(crate) fn answered(&self) -> Vec<Answered> {
        self.last.values().cloned().collect()
    }

    /// Sends the bytes of a request again; whether the results are the same.
    pub(crate) fn is_answered_alike(&mut self, answered: &Answered) -> Result<bool> {
        self.connection.send_message(&answered.call)?;
        let reply = self.connection.receive_any()?;
        Ok(is_alike(results(&reply)?, &answered.results))
    }

    /// Ends session and client; everything must be closed.
    pub(crate) fn destroy(self) -> Result<()> {
        let client = Nfs4Client::with_session(self.connection, Identity::root(), self.known);
        client.destroy().context("the end of a client")?;
        Ok(())
    }
}

/// What a call came to.
pub(crate) fn results(reply: &Reply) -> Result<&[u8]> {
    reply.results().context("a call that was not executed")
}

/// Whether results are the same but for what SEQUENCE tells of the session.
fn is_alike(one: &[u8], other: &[u8]) -> bool {
    let parts = |results: &[u8]| {
        let rest = results.get(HEAD_BYTES + SEQUENCE_BYTES..).map(<[u8]>::to_vec);
        results.get(..HEAD_BYTES).map(<[u8]>::to_vec).zip(rest)
    };
    one == other || parts(one).is_some() && parts(one) == parts(other)
}

/// Reads the results behind that of SEQUENCE: what they say, or with which status an operation failed.
pub(crate) fn read<T>(
    results: &[u8],
    read: impl FnOnce(&mut CompoundReply<'_>) -> Result<T, ClientError>,
) -> Result<Result<T, NfsStat4>> {
    let mut reply = CompoundReply::parse(results)?;
    reply.sequence()?;
    match read(&mut reply) {
        Ok(told) => {
            reply.end()?;
            Ok(Ok(told))
        }
        Err(error) => match error.status4() {
            Some(status) => Ok(Err(status)),
            None => Err(error.into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sequence_tells_may_differ_and_nothing_else() {
        let results = [7_u8; HEAD_BYTES + SEQUENCE_BYTES + 20];
        let changed = |at: usize| {
            let mut results = results;
            results[at] = 8;
            results
        };
        assert!(is_alike(&results, &results));
        assert!(is_alike(&results, &changed(HEAD_BYTES)));
        assert!(is_alike(&results, &changed(HEAD_BYTES + SEQUENCE_BYTES - 1)));
        assert!(!is_alike(&results, &changed(0)));
        assert!(!is_alike(&results, &changed(HEAD_BYTES + SEQUENCE_BYTES)));
        assert!(!is_alike(&results[..60], &results));
        assert!(!is_alike(&results[..10], &results[..9]));
    }
}
