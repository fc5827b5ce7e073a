//! Opens for writing, locks, and how both are reclaimed after the server has lost them
//! (RFC 8881 §8.4.2, §18.10, §18.16, §18.51).

use steadfast_wire::nfs4::{
    Lock4Args, LockOwner4, LockT4Args, LockType4, LockU4Args, Locker4, NfsStat4, Op4, OpenClaim4,
    ReclaimComplete4Args, StateId4,
};

use super::changing::Opening4;
use super::client::{Nfs4Client, Opened4};
use crate::error::ClientError;
use crate::object::FileHandle;
use crate::operation4::Denied4;
use crate::transport::RpcTransport;

/// `OPEN_DELEGATE_NONE`.
const DELEGATE_NONE: u32 = 0;

type Outcome<T> = Result<T, ClientError>;

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
        self.open(directory, &Opening4::existing(name))
    }

    /// Opens a file again that was open for reading and writing before the server lost that.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn reclaim_open(&mut self, file: &FileHandle) -> Outcome<StateId4> {
        let opening = Opening4::with_claim(OpenClaim4::Previous(DELEGATE_NONE));
        self.open(file, &opening).map(|opened| opened.stateid)
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

    /// Locks bytes of a file for who has locks there, or waits for one. `kind`: what for; one of the
    /// waiting kinds asks to be told when a lock that is denied is free.
    ///
    /// # Errors
    /// See [`ClientError`]; [`Denied4`] is in the failure.
    pub fn lock_by(
        &mut self,
        file: &FileHandle,
        kind: LockType4,
        (offset, length): (u64, u64),
        locker: Locker4<'_>,
    ) -> Outcome<StateId4> {
        let arguments = Lock4Args { locktype: kind, reclaim: false, offset, length, locker };
        self.request(
            |compound| compound.put(file).op(Op4::Lock, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.stateid(Op4::Lock)
            },
        )
    }

    /// Unlocks bytes of a file; returns the lock's stateid as it is now.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn unlock(
        &mut self,
        file: &FileHandle,
        lock_stateid: StateId4,
        (offset, length): (u64, u64),
    ) -> Outcome<StateId4> {
        let locktype = LockType4::Write;
        let arguments = LockU4Args { locktype, seqid: 0, lock_stateid, offset, length };
        self.request(
            |compound| compound.put(file).op(Op4::LockU, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.stateid(Op4::LockU)
            },
        )
    }

    /// Whose lock would be in the way of this one.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn test_lock(
        &mut self,
        file: &FileHandle,
        kind: LockType4,
        (offset, length): (u64, u64),
        owner: &[u8],
    ) -> Outcome<Option<Denied4>> {
        let owner = LockOwner4 { clientid: 0, owner };
        let arguments = LockT4Args { locktype: kind, offset, length, owner };
        let tested = self.request(
            |compound| compound.put(file).op(Op4::LockT, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.done(Op4::LockT)
            },
        );
        match tested {
            Err(ClientError::Operation(failure)) if failure.denied.is_some() => Ok(failure.denied),
            tested => tested.map(|()| None),
        }
    }
}
