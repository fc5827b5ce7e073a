//! The session of a virtual client.

use std::net::TcpStream;

use steadfast_client::RpcConnection;
use steadfast_client::nfs4::{ClientSettings, Nfs4Client, Session4, Slot, patiently4};
use steadfast_wire::nfs4::StateId4;

use super::Objects;
use crate::error::BenchError;
use crate::op::tree::object_name;
use crate::op::{Load, Operation};
use crate::setup::CALL_TIMEOUT;

/// Operations of the longest request.
const OPERATIONS_MAX: u32 = 8;
/// Bytes that a reply has beside the data of READ, or the entries of READDIR.
const REPLY_OVERHEAD_BYTES: u32 = 256;

/// A client that has a session.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) session: Session4,
    /// Of READ: what it has opened, by object.
    pub(super) stateids: Vec<StateId4>,
}

impl Connected {
    /// Makes a session, and opens the files that are read.
    pub(super) fn make(
        load: &Load,
        objects: &Objects,
        stream: &TcpStream,
    ) -> Result<Self, BenchError> {
        let settings = ClientSettings {
            slots: load.depth as u32,
            transfer_bytes_max: reply_bytes(load).max(64 << 10),
            operations_max: OPERATIONS_MAX,
            ..ClientSettings::default()
        };
        let identity = load.target.identity.clone();
        let connecting = BenchError::client("connecting over NFSv4.1");
        blocking(stream, |connection| {
            let mut client =
                Nfs4Client::connect(connection, identity, &settings).map_err(connecting)?;
            check_channel(load, client.session())?;
            let mut stateids = Vec::new();
            if let Operation::Read { .. } = load.operation {
                for (index, object) in objects.all.iter().enumerate() {
                    let name = object_name(index);
                    let opened = patiently4(CALL_TIMEOUT, || {
                        client.open_for_reading(&objects.directory, &name)
                    });
                    let opened =
                        opened.map_err(BenchError::client("opening the files to be read"))?;
                    if opened.handle != object.handle {
                        return Err(BenchError::broken("open", "another handle than of LOOKUP"));
                    }
                    stateids.push(opened.stateid);
                }
            }
            Ok(Self { session: client.into_parts().1, stateids })
        })
    }

    /// A slot for one of the calls that the virtual client may have in flight.
    pub(super) fn take_slot(&mut self, client: usize) -> Result<Slot, BenchError> {
        let count = self.session.slots.count();
        self.session.slots.take().ok_or_else(|| {
            BenchError::Usage(format!(
                "the server grants virtual client {client} {count} slots: --depth can be no more"
            ))
        })
    }

    /// Closes what is open, and ends the session.
    pub(super) fn end(
        mut self,
        load: &Load,
        objects: &Objects,
        slots: impl Iterator<Item = Slot>,
        stream: &TcpStream,
    ) -> Result<(), BenchError> {
        for slot in slots {
            self.session.slots.give_back(slot);
        }
        let identity = load.target.identity.clone();
        blocking(stream, |connection| {
            let mut client = Nfs4Client::with_session(connection, identity, self.session);
            for (object, stateid) in objects.all.iter().zip(self.stateids) {
                patiently4(CALL_TIMEOUT, || client.close(&object.handle, stateid))
                    .map_err(BenchError::client("closing the files that were read"))?;
            }
            client.destroy().map_err(BenchError::client("ending a session")).map(drop)
        })
    }
}

/// Bytes of the largest reply's data or entries.
fn reply_bytes(load: &Load) -> u32 {
    match load.operation {
        Operation::Read { size }
        | Operation::Readdir { size }
        | Operation::Readdirplus { size } => size,
        _ => 0,
    }
}

/// What the server grants must do for the calls.
fn check_channel(load: &Load, session: &Session4) -> Result<(), BenchError> {
    let granted = session.fore.maxresponsesize;
    if granted < reply_bytes(load).saturating_add(REPLY_OVERHEAD_BYTES) {
        return Err(BenchError::Usage(format!(
            "the server grants replies of {granted} bytes: too few for {}",
            load.operation
        )));
    }
    Ok(())
}

/// Does something over a socket that otherwise does not block.
fn blocking<R>(
    stream: &TcpStream,
    work: impl FnOnce(RpcConnection) -> Result<R, BenchError>,
) -> Result<R, BenchError> {
    stream.set_nonblocking(false)?;
    let connection = RpcConnection::over(stream.try_clone()?, CALL_TIMEOUT)
        .map_err(BenchError::client("connecting over NFSv4.1"))?;
    let outcome = work(connection);
    stream.set_nonblocking(true)?;
    outcome
}
