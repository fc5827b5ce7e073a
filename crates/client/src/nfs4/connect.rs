//! How a client comes and goes (RFC 8881 §18.35 to §18.37, §18.50, §18.51).

use std::time::Duration;

use steadfast_wire::nfs4::{CreateSession4Result, DestroyClientId4Args, DestroySession4Args, Op4};

use super::COMPOUND;
use super::client::{Nfs4Client, contradiction, patiently4};
use super::compound::Compound;
use super::reply::CompoundReply;
use super::session::{ClientSettings, Session4};
use super::slots::Slots;
use crate::call::Identity;
use crate::error::ClientError;
use crate::transport::RpcTransport;

/// How long an ending client waits for a server that answers `NFS4ERR_DELAY`.
const ENDING: Duration = Duration::from_secs(5);

type Outcome<T> = Result<T, ClientError>;

impl<T: RpcTransport> Nfs4Client<T> {
    /// Makes the client known, makes a session, and reclaims nothing.
    ///
    /// # Errors
    /// See [`ClientError`]. `NFS4ERR_DELAY` is given back too: connect again.
    pub fn connect(transport: T, identity: Identity, settings: &ClientSettings) -> Outcome<Self> {
        let mut client = Self::connect_to_reclaim(transport, identity, settings)?;
        client.complete_reclaim()?;
        Ok(client)
    }

    /// Makes the client known, and makes a session. What it had before the server lost it may be
    /// reclaimed until [`Nfs4Client::complete_reclaim`]; nothing else is given to it before that.
    ///
    /// # Errors
    /// As [`Nfs4Client::connect`].
    pub fn connect_to_reclaim(
        mut transport: T,
        identity: Identity,
        settings: &ClientSettings,
    ) -> Outcome<Self> {
        let session = establish4(&mut transport, &identity, settings)?;
        Ok(Self::with_session(transport, identity, session))
    }

    /// A client with a session that was made before.
    pub fn with_session(transport: T, identity: Identity, session: Session4) -> Self {
        Self { transport, identity, session, unanswered: None, resumes: false }
    }

    /// Ends the session and the client; everything must be closed. Returns the transport.
    pub fn destroy(mut self) -> Outcome<T> {
        let sessionid = self.session.slots.session();
        let compound = || self.session.compound();
        let session = compound().op(Op4::DestroySession, &DestroySession4Args { sessionid });
        let clientid = self.session.clientid;
        let client = compound().op(Op4::DestroyClientId, &DestroyClientId4Args { clientid });
        for (op, compound) in [(Op4::DestroySession, session), (Op4::DestroyClientId, client)] {
            patiently4(ENDING, || {
                alone(&mut self.transport, &self.identity, &compound, |reply| reply.done(op))
            })?;
        }
        Ok(self.transport)
    }
}

/// Makes a client known, or finds it, and makes a session: for who has many threads that send by it. What a client has
/// had is its own still if the client's id is the same.
///
/// # Errors
/// As [`Nfs4Client::connect`].
pub fn establish4<T: RpcTransport>(
    transport: &mut T,
    identity: &Identity,
    settings: &ClientSettings,
) -> Outcome<Session4> {
    let start = || Compound::new().of_minor_version(settings.minor_version);
    let compound = start().op(Op4::ExchangeId, &settings.exchange_id());
    let (clientid, sequence) = alone(transport, identity, &compound, |reply| {
        reply.exchange_id().map(|result| (result.clientid, result.sequenceid))
    })?;
    let arguments = settings.create_session(clientid, sequence);
    let compound = start().op(Op4::CreateSession, &arguments);
    let created: CreateSession4Result =
        alone(transport, identity, &compound, |reply| reply.result(Op4::CreateSession))?;
    let count = created.fore.maxrequests.min(settings.slots);
    if count == 0 {
        return contradiction("CREATE_SESSION", "a session without slots");
    }
    let slots = Slots::new(created.sessionid, count);
    let minor_version = settings.minor_version;
    Ok(Session4 { clientid, fore: created.fore, slots, minor_version })
}

/// Sends a request that belongs to no session.
fn alone<T: RpcTransport, R>(
    transport: &mut T,
    identity: &Identity,
    compound: &Compound,
    read: impl FnOnce(&mut CompoundReply<'_>) -> Outcome<R>,
) -> Outcome<R> {
    let results = transport.call(COMPOUND, identity, &compound.arguments())?;
    let mut reply = CompoundReply::parse(&results)?;
    let result = read(&mut reply)?;
    reply.end()?;
    Ok(result)
}
