//! The recovery program of Steadfast, version 1 (docs/recovery.md): what is stable on the server, and data that is
//! compressed on its way.

use steadfast_wire::frame;
use steadfast_wire::nfs3::{NfsFh3, StableHow};
use steadfast_wire::recovery::{
    AttachArgs, COMPRESSION, JournalArgs, RECORDED, ReadzOk, StatusOk, SyncOk, WAITING,
    WAITING_FOR_YOU, WritezArgs,
};
use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use crate::call::Procedure;
use crate::error::ClientError;
use crate::nfs3::arguments;
use crate::nfs3::results::{self, Read, Write};
use crate::nfs3::{Beside, Nfs3Client};
use crate::object::FileHandle;
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
/// ATTACH.
pub const ATTACH: Procedure = recovery(3, "ATTACH");
/// RECOVERED.
pub const RECOVERED: Procedure = recovery(4, "RECOVERED");
/// DETACH.
pub const DETACH: Procedure = recovery(5, "DETACH");
/// WRITEZ.
pub const WRITEZ: Procedure = recovery(steadfast_wire::recovery::WRITEZ, "WRITEZ");
/// READZ.
pub const READZ: Procedure = recovery(steadfast_wire::recovery::READZ, "READZ");
/// All of them, by number.
pub const ALL: [Procedure; 8] = [NULL, STATUS, SYNC, ATTACH, RECOVERED, DETACH, WRITEZ, READZ];

/// What a server says of how it acknowledges changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryStatus {
    /// Whether changes of this caller, and his COMMITs, are acknowledged from memory on this share.
    pub is_async: bool,
    /// The write verifier, as WRITE and COMMIT give it.
    pub verifier: [u8; 8],
    /// The client is recorded: the server waits for it when it has lost something.
    pub is_recorded: bool,
    /// The server waits for clients that bring back what it has lost.
    pub is_waiting: bool,
    /// It waits for this one, and has served nobody else on the share since it has started.
    pub is_waited_for: bool,
    /// It has READZ and WRITEZ.
    pub has_compression: bool,
}

fn status(r: &mut Reader<'_>) -> Result<RecoveryStatus, XdrError> {
    let StatusOk { is_async, verifier, flags } = StatusOk::decode(r)?;
    Ok(RecoveryStatus {
        is_async,
        verifier,
        is_recorded: flags & RECORDED != 0,
        is_waiting: flags & WAITING != 0,
        is_waited_for: flags & WAITING_FOR_YOU != 0,
        has_compression: flags & COMPRESSION != 0,
    })
}

fn sync(r: &mut Reader<'_>) -> Result<[u8; 8], XdrError> {
    SyncOk::decode(r).map(|told| told.verifier)
}

/// The data of what READZ tells, which has to be so many bytes at the most.
///
/// # Errors
/// When it is longer, or no such frame.
pub fn data_of_readz(told: &ReadzOk<'_>, bytes_max: u32) -> Result<Vec<u8>, ClientError> {
    let contradiction = |why| ClientError::Contradiction { procedure: "READZ", why };
    if told.count > bytes_max {
        return Err(contradiction("more data than was asked for"));
    }
    let data = if told.is_compressed {
        frame::decompress(told.data, told.count as usize)
            .map_err(|_| contradiction("the data is no frame of its length"))?
    } else {
        told.data.to_vec()
    };
    if data.len() == told.count as usize {
        Ok(data)
    } else {
        Err(contradiction("count is not the data's length"))
    }
}

fn encoded(arguments: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    arguments.encode(&mut Writer::new(&mut bytes));
    bytes
}

impl<T: RpcTransport> Nfs3Client<T> {
    /// ATTACH of the recovery program: says on this connection which journal the client keeps of the share of
    /// this object, and under which name people know the client. As [`Nfs3Client::recovery_status`].
    ///
    /// # Errors
    /// As [`Nfs3Client::recovery_status`]; [`ClientError::is_procedure_unavailable`] of an older server.
    pub fn recovery_attach(
        &mut self,
        handle: &FileHandle,
        journal: [u8; 16],
        name: &[u8],
    ) -> Result<RecoveryStatus, ClientError> {
        let arguments = AttachArgs { object: NfsFh3(handle.as_bytes()), journal, name };
        self.run(ATTACH, &encoded(&arguments), Beside::Nothing, status)
    }

    /// RECOVERED of the recovery program: the client has brought back what the server had lost. Returns the
    /// write verifier.
    ///
    /// # Errors
    /// As [`Nfs3Client::recovery_attach`].
    pub fn recovery_done(
        &mut self,
        handle: &FileHandle,
        journal: [u8; 16],
    ) -> Result<[u8; 8], ClientError> {
        let arguments = JournalArgs { object: NfsFh3(handle.as_bytes()), journal };
        self.run(RECOVERED, &encoded(&arguments), Beside::Nothing, sync)
    }

    /// DETACH of the recovery program: nothing is in the journal any more. Returns the write verifier.
    ///
    /// # Errors
    /// As [`Nfs3Client::recovery_attach`].
    pub fn recovery_detach(
        &mut self,
        handle: &FileHandle,
        journal: [u8; 16],
    ) -> Result<[u8; 8], ClientError> {
        let arguments = JournalArgs { object: NfsFh3(handle.as_bytes()), journal };
        self.run(DETACH, &encoded(&arguments), Beside::Nothing, sync)
    }

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

    /// WRITEZ of the recovery program: as [`Nfs3Client::write`], with a frame whose data has `count` bytes
    /// ([`frame::compress`]).
    ///
    /// # Errors
    /// As [`Nfs3Client::write`], and [`ClientError::is_unavailable`] of an older or another server.
    pub fn recovery_writez(
        &mut self,
        file: &FileHandle,
        offset: u64,
        (frame, count): (&[u8], u32),
        stable: StableHow,
    ) -> Result<Write, ClientError> {
        let file = NfsFh3(file.as_bytes());
        let arguments = encoded(&WritezArgs { file, offset, count, stable, frame });
        self.run(WRITEZ, &arguments, Beside::Wcc, results::write)
    }

    /// READZ of the recovery program: as [`Nfs3Client::read`].
    ///
    /// # Errors
    /// As [`Nfs3Client::read`], and [`ClientError::is_unavailable`] of an older or another server.
    pub fn recovery_readz(
        &mut self,
        file: &FileHandle,
        offset: u64,
        count: u32,
    ) -> Result<Read, ClientError> {
        let arguments = arguments::read(file, offset, count);
        let told = self.run(READZ, &arguments, Beside::Attributes, |r| {
            let told = ReadzOk::decode(r)?;
            Ok((told.file_attributes.map(Into::into), told.eof, data_of_readz(&told, count)))
        });
        let (attributes, eof, data) = told?;
        let data = data?;
        Ok(Read { attributes, count: data.len() as u32, eof, data })
    }
}
