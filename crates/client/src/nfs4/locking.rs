//! Opens for writing, locks, and how both are reclaimed after the server has lost them
//! (RFC 8881 §8.4.2, §18.10, §18.16, §18.51).

use steadfast_wire::nfs4::{
    Lock4Args, LockOwner4, LockType4, Locker4, NfsStat4, Op4, Open4Args, OpenClaim4, OpenHow4,
    ReclaimComplete4Args, StateId4,
};

use super::client::{Nfs4Client, Opened4};
use crate::error::ClientError;
use crate::nfs3::results::FileHandle;
use crate::transport::RpcTransport;

/// `OPEN4_SHARE_ACCESS_BOTH`, and no delegation is wanted.
const FOR_ALL: u32 = 0x403;
/// `OPEN_DELEGATE_NONE`.
const DELEGATE_NONE: u32 = 0;
/// The owner of all opens of a client.
const OPEN_OWNER: &[u8] = b"steadfast client";

type Outcome<T> = Result<T, ClientError>;

fn open_arguments(claim: OpenClaim4<'_>) -> Open4Args<'_> {
    Open4Args {
        seqid: 0,
        share_access: FOR_ALL,
        share_deny: 0,
        clientid: 0,
        owner: OPEN_OWNER,
        openhow: OpenHow4::NoCreate,
        claim,
    }
}

impl<T: RpcTransport> Nfs4Client<T> {
    /// Says that the client has reclaimed all that it wants, or has nothing to reclaim.
    ///
    /// # Errors
    /// See [`ClientError`]. That it was said before is none.
    pub fn complete_reclaim(&mut self) -> Outcome<()> {
        let of_all = ReclaimComplete4Args { one_fs: false };
        let completed = self.request(
            |compound| compound.op(Op4::ReclaimComplete, &of_all),
            |reply| reply.done(Op4::ReclaimComplete),
        );
        match completed {
            Err(error) if error.status4() == Some(NfsStat4::CompleteAlready) => Ok(()),
            completed => completed,
        }
    }

    /// Opens a file of a directory for reading and writing.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn open_for_all(&mut self, directory: &FileHandle, name: &[u8]) -> Outcome<Opened4> {
        let arguments = open_arguments(OpenClaim4::Null(name));
        self.request(
            |compound| compound.put(directory).op(Op4::Open, &arguments).handle(),
            |reply| {
                reply.done(Op4::PutFh)?;
                let stateid = reply.open()?.stateid;
                Ok(Opened4 { handle: reply.handle()?, stateid, delegation: None })
            },
        )
    }

    /// Opens a file again that was open for reading and writing before the server lost that.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn reclaim_open(&mut self, file: &FileHandle) -> Outcome<StateId4> {
        let arguments = open_arguments(OpenClaim4::Previous(DELEGATE_NONE));
        self.request(
            |compound| compound.put(file).op(Op4::Open, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.open().map(|opened| opened.stateid)
            },
        )
    }

    /// Locks bytes of a file, from an offset on so many, for writing; by an open, for an owner that has
    /// no locks there yet. `is_reclaim`: as before the server lost it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn lock(
        &mut self,
        file: &FileHandle,
        open_stateid: StateId4,
        owner: &[u8],
        (offset, length): (u64, u64),
        is_reclaim: bool,
    ) -> Outcome<StateId4> {
        let arguments = Lock4Args {
            locktype: LockType4::Write,
            reclaim: is_reclaim,
            offset,
            length,
            locker: Locker4::Open {
                open_seqid: 0,
                open_stateid,
                lock_seqid: 0,
                lock_owner: LockOwner4 { clientid: 0, owner },
            },
        };
        self.request(
            |compound| compound.put(file).op(Op4::Lock, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.stateid(Op4::Lock)
            },
        )
    }
}
