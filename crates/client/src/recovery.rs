//! The recovery program of Steadfast, version 1 (docs/recovery.md): what is stable on the server.

use steadfast_wire::recovery::{StatusOk, SyncOk};
use steadfast_xdr::{Decode, Reader, XdrError};

use crate::call::Procedure;
use crate::error::ClientError;
use crate::nfs3::arguments;
use crate::nfs3::results::FileHandle;
use crate::nfs3::{Beside, Nfs3Client};
use crate::transport::RpcTransport;

/// The RPC program.
pub const RECOVERY: u32 = steadfast_wire::recovery::PROGRAM;

const fn recovery(number: u32, name: &'static str) -> Procedure {
    Procedure { program: RECOVERY, version: 1, number, name }
}

/// NULL.
pub const NULL: Procedure = recovery(0, "NULL");
/// STATUS.
pub const STATUS: Procedure = recovery(1, "STATUS");
/// SYNC.
pub const SYNC: Procedure = recovery(2, "SYNC");

/// What a server says of how it acknowledges changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryStatus {
    /// Whether changes of this caller, and his COMMITs, are acknowledged from memory on this share.
    pub is_async: bool,
    /// The write verifier, as WRITE and COMMIT give it.
    pub verifier: [u8; 8],
}

fn status(r: &mut Reader<'_>) -> Result<RecoveryStatus, XdrError> {
    let StatusOk { is_async, verifier, flags: _ } = StatusOk::decode(r)?;
    Ok(RecoveryStatus { is_async, verifier })
}

fn sync(r: &mut Reader<'_>) -> Result<[u8; 8], XdrError> {
    SyncOk::decode(r).map(|told| told.verifier)
}

impl<T: RpcTransport> Nfs3Client<T> {
    /// STATUS of the recovery program: whether the share of this object is `async` for this caller.
    ///
    /// # Errors
    /// See [`ClientError`]; [`ClientError::is_program_unavailable`] of a server that does not have the
    /// program.
    pub fn recovery_status(&mut self, handle: &FileHandle) -> Result<RecoveryStatus, ClientError> {
        self.run(STATUS, &arguments::handle(handle), Beside::Nothing, status)
    }

    /// SYNC of the recovery program: returns when every change of the object's file system that was
    /// acknowledged before the server received this call is stable, whoever made it. Returns the write
    /// verifier. Unstable data that was written under another verifier may be lost.
    ///
    /// # Errors
    /// As [`Nfs3Client::recovery_status`]. After one nothing is known to be stable.
    pub fn recovery_sync(&mut self, handle: &FileHandle) -> Result<[u8; 8], ClientError> {
        self.run(SYNC, &arguments::handle(handle), Beside::Nothing, sync)
    }
}
