//! The session of a virtual client.

use std::net::TcpStream;

use steadfast_client::FileHandle;
use steadfast_client::nfs4::{
    ACCESS_BOTH, ACCESS_READ, ClientSettings, Nfs4Client, Opening4, Session4, Slot,
    WANT_NO_DELEGATION, patiently4,
};
use steadfast_wire::nfs4::StateId4;

use super::Objects;
use crate::error::BenchError;
use crate::nfs4::blocking;
use crate::op::tree::object_name;
use crate::op::{Load, Operation};
use crate::place4;
use crate::setup::CALL_TIMEOUT;

/// Operations of the longest request.
const OPERATIONS_MAX: u32 = 8;
/// Bytes that a reply has beside the data of READ, or the entries of READDIR.
const REPLY_OVERHEAD_BYTES: u32 = 512;

/// A client that has a session.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) session: Session4,
    /// What it keeps open. For READ all objects, for WRITE and LOCK its own.
    pub(super) opened: Vec<(FileHandle, StateId4)>,
}

impl Connected {
    /// Makes a session, and opens the files that are read.
    pub(super) fn make(
        load: &Load,
        objects: &Objects,
        client_number: usize,
        stream: &TcpStream,
    ) -> Result<Self, BenchError> {
        let settings = ClientSettings {
            slots: load.depth as u32,
            transfer_bytes_max: reply_bytes(load).max(64 << 10),
            operations_max: OPERATIONS_MAX,
            minor_version: load.nfs.minor(),
            ..ClientSettings::default()
        };
        let identity = load.target.identity.clone();
        blocking(stream, |stream| {
            let mut client = place4::connect_by(stream, &identity, &settings)?;
            check_channel(load, client.session())?;
            let keeps = match load.operation {
                Operation::Read { .. } => 0..objects.all.len(),
                Operation::Write { .. } | Operation::WriteCommit { .. } | Operation::LockUnlock => {
                    client_number..client_number + 1
                }
                _ => 0..0,
            };
            let mut opened = Vec::new();
            for index in keeps {
                let name = object_name(index);
                let is_read = matches!(load.operation, Operation::Read { .. });
                let access = if is_read { ACCESS_READ } else { ACCESS_BOTH };
                let share_access = access | WANT_NO_DELEGATION;
                let opening = Opening4 { share_access, ..Opening4::existing(&name) };
                let file = patiently4(CALL_TIMEOUT, || client.open(&objects.directory, &opening));
                let file = file.map_err(BenchError::client("opening files"))?;
                if objects.all.get(index).is_none_or(|object| object.handle != file.handle) {
                    return Err(BenchError::broken("open", "another handle than of LOOKUP"));
                }
                opened.push((file.handle, file.stateid));
            }
            Ok(Self { session: client.into_parts().1, opened })
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

    /// The same for all of them.
    pub(super) fn take_slots<'s>(
        &mut self,
        client: usize,
        places: impl Iterator<Item = &'s mut Option<Slot>>,
    ) -> Result<(), BenchError> {
        for place in places {
            *place = Some(self.take_slot(client)?);
        }
        Ok(())
    }

    /// Closes what is open, and ends the session.
    pub(super) fn end(
        mut self,
        load: &Load,
        slots: impl Iterator<Item = Slot>,
        left: &Left,
        stream: &TcpStream,
    ) -> Result<(), BenchError> {
        for slot in slots {
            self.session.slots.give_back(slot);
        }
        let identity = load.target.identity.clone();
        blocking(stream, |stream| {
            let ending = BenchError::client("ending a session");
            let connection = place4::connection(stream).map_err(ending)?;
            let mut client = Nfs4Client::with_session(connection, identity, self.session);
            for (file, stateid, range) in &left.locked {
                patiently4(CALL_TIMEOUT, || client.unlock(file, *stateid, *range))
                    .map_err(BenchError::client("unlocking at the end"))?;
            }
            for (file, stateid) in self.opened.iter().chain(&left.opened) {
                patiently4(CALL_TIMEOUT, || client.close(file, *stateid))
                    .map_err(BenchError::client("closing files at the end"))?;
            }
            client.destroy().map_err(BenchError::client("ending a session")).map(drop)
        })
    }
}

/// What calls that were not followed by their second ones have left.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) opened: Vec<(FileHandle, StateId4)>,
    pub(super) locked: Vec<(FileHandle, StateId4, (u64, u64))>,
}

/// Bytes of the largest request's or reply's data or entries.
fn reply_bytes(load: &Load) -> u32 {
    match load.operation {
        Operation::Read { size }
        | Operation::Write { size, .. }
        | Operation::WriteCommit { size }
        | Operation::Readdir { size }
        | Operation::Readdirplus { size } => size,
        _ => 0,
    }
}

/// What the server grants must do for the calls.
fn check_channel(load: &Load, session: &Session4) -> Result<(), BenchError> {
    let granted = session.fore.maxresponsesize.min(session.fore.maxrequestsize);
    if granted < reply_bytes(load).saturating_add(REPLY_OVERHEAD_BYTES) {
        return Err(BenchError::Usage(format!(
            "the server grants requests and replies of {granted} bytes: too few for {}",
            load.operation
        )));
    }
    Ok(())
}
