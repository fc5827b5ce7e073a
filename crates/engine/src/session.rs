//! What a procedure works with while one call runs: who calls, on what, with which rights.

use steadfast_shares::{Rights, Share, Squash};
use steadfast_vfs::{Caller, Cred, Durable, FileSystem, FsError, Obligation, ReplyBarrier};
use steadfast_vfs::{StorageHandle, Waiting};

use crate::call::{CallHost, Complaint, Peer, Stage, Transport};
use crate::operation::Operation;
use crate::wire_handle::SealedHandle;
use crate::{Engine, Export, ExportTable};

/// The largest transfer over UDP in bytes: with the headers it must fit one datagram.
const UDP_TRANSFER_BYTES_MAX: u32 = 32 * 1024;

/// The identity on the wire, before squashing.
#[derive(Clone, Debug)]
pub(crate) enum WireIdentity {
    /// `AUTH_NONE`: nobody in particular.
    Anonymous,
    /// `AUTH_SYS`: as the client claims.
    Claimed(Cred),
}

/// One call's surroundings.
pub(crate) struct Session<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) operation: &'static Operation,
    pub(crate) exports: &'a ExportTable,
    pub(crate) host: &'a mut dyn CallHost,
    pub(crate) peer: &'a Peer,
    pub(crate) identity: WireIdentity,
    pub(crate) complaint: &'a mut Option<Complaint>,
}

/// An object that a handle named, with what the caller may do there.
pub(crate) struct Target<'a> {
    pub(crate) storage: &'a dyn FileSystem,
    pub(crate) share: &'a Share,
    pub(crate) rights: &'a Rights,
    pub(crate) handle: StorageHandle,
    pub(crate) cred: Cred,
}

impl Target<'_> {
    /// The caller of an operation that may wait.
    pub(crate) fn caller(&self) -> Caller<'_> {
        Caller { cred: &self.cred, waiting: Waiting::Allowed }
    }
}

/// How a procedure ended, its result being encoded already.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The result may go out.
    Done,
    /// The result waits for its obligation.
    Waits {
        obligation: Obligation,
        /// The result's last eight bytes are the write verifier, to be the one in force when the
        /// obligation is met (COMMIT).
        ends_with_verifier: bool,
    },
}

/// The reply barrier: the only place where a [`Durable`] is taken apart.
pub(crate) fn barrier(encoded: Durable<()>) -> Outcome {
    match encoded.release(&ReplyBarrier::for_engine()) {
        ((), None) => Outcome::Done,
        ((), Some(obligation)) => Outcome::Waits { obligation, ends_with_verifier: false },
    }
}

impl<'a> Session<'a> {
    /// Finds what a wire handle names. If the operation's row says that it changes something,
    /// read-only shares refuse it, and the host is told that the thread may sleep. What follows
    /// is storage's time, as the host is told too.
    ///
    /// # Errors
    /// `BadHandle` for one that we did not make, `Stale` when its share is not served,
    /// `AccessDenied` when this client has no rights there, `ReadOnly`.
    pub(crate) fn resolve(&mut self, wire: &[u8]) -> Result<Target<'a>, FsError> {
        self.host.stage(Stage::Access);
        let Some((share_id, handle)) = self.engine.sealer.open(wire) else {
            *self.complaint = Some(Complaint::ForgedHandle);
            return Err(FsError::BadHandle);
        };
        let (place, export) = self.exports.place(share_id).ok_or(FsError::Stale)?;
        let share: &'a Share = &export.share;
        let rights = self.rights(place, export)?;
        if self.operation.is_changing {
            if rights.is_read_only {
                return Err(FsError::ReadOnly);
            }
            self.host.may_block();
        }
        let cred = squashed(&self.identity, rights);
        self.host.stage(Stage::Storage);
        Ok(Target { storage: &*export.storage, share, rights, handle, cred })
    }

    /// What the client may do on the export at this place of the table.
    ///
    /// # Errors
    /// `AccessDenied` if nothing.
    pub(crate) fn rights(&self, place: usize, export: &'a Export) -> Result<&'a Rights, FsError> {
        let Peer { memo, address, .. } = self.peer;
        memo.rights(self.exports, place, export, address.ip()).ok_or(FsError::AccessDenied)
    }

    /// Runs an operation that only reads: first without waiting for storage; if that is not
    /// enough, again after others have taken over what this thread would hold up.
    pub(crate) fn read<T>(
        &mut self,
        cred: &Cred,
        mut attempt: impl FnMut(&Caller<'_>) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        match attempt(&Caller { cred, waiting: Waiting::Never }) {
            Err(FsError::WouldBlock) => {
                self.host.will_block();
                attempt(&Caller { cred, waiting: Waiting::Allowed })
            }
            result => result,
        }
    }

    /// The largest READ, WRITE or listing over this call's transport, in bytes.
    pub(crate) fn transfer_bytes_max(&self) -> u32 {
        let bytes_max = self.engine.config.transfer_bytes_max;
        match self.peer.transport {
            Transport::Tcp => bytes_max,
            Transport::Udp => bytes_max.min(UDP_TRANSFER_BYTES_MAX),
        }
    }

    /// A handle of a share as the client will hold it.
    pub(crate) fn seal(&self, share: &Share, handle: &StorageHandle) -> SealedHandle {
        self.engine.sealer.seal(share.id, handle)
    }
}

/// The local identity of a caller, by the share's rules.
fn squashed(identity: &WireIdentity, rights: &Rights) -> Cred {
    let anonymous = || Cred {
        uid: rights.anonymous_uid,
        gid: rights.anonymous_gid,
        groups: smallvec::SmallVec::new(),
    };
    let WireIdentity::Claimed(claimed) = identity else { return anonymous() };
    let is_root_squashed = match rights.squash {
        Squash::All => return anonymous(),
        Squash::Root if claimed.uid == 0 => return anonymous(),
        Squash::Root => true,
        Squash::None => false,
    };
    let mut cred = claimed.clone();
    // To the kernel -1 is "leave it as it is", never somebody.
    if cred.uid == u32::MAX {
        cred.uid = rights.anonymous_uid;
    }
    if cred.gid == u32::MAX {
        cred.gid = rights.anonymous_gid;
    }
    cred.groups.retain(|gid| *gid != u32::MAX);
    if is_root_squashed {
        // Group 0 is squashed by itself too, as it may own what only root should touch.
        for gid in std::iter::once(&mut cred.gid).chain(&mut cred.groups) {
            if *gid == 0 {
                *gid = rights.anonymous_gid;
            }
        }
    }
    cred
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    fn claimed(uid: u32, gid: u32) -> WireIdentity {
        WireIdentity::Claimed(Cred { uid, gid, groups: smallvec![0, 5] })
    }

    #[test]
    fn squashing_follows_the_rights() {
        let mut rights = Rights { anonymous_uid: 7, anonymous_gid: 8, ..Rights::default() };
        let anonymous = Cred { uid: 7, gid: 8, groups: smallvec![] };
        assert_eq!(squashed(&claimed(0, 0), &rights), anonymous);
        assert_eq!(squashed(&WireIdentity::Anonymous, &rights), anonymous);
        assert_eq!(
            squashed(&claimed(5, 0), &rights),
            Cred { uid: 5, gid: 8, groups: smallvec![8, 5] }
        );
        rights.squash = Squash::All;
        assert_eq!(squashed(&claimed(5, 5), &rights), anonymous);
        rights.squash = Squash::None;
        assert_eq!(
            squashed(&claimed(0, 0), &rights),
            Cred { uid: 0, gid: 0, groups: smallvec![0, 5] }
        );
        assert_eq!(squashed(&WireIdentity::Anonymous, &rights), anonymous);
    }

    #[test]
    fn minus_one_is_nobody_whatever_the_squashing() {
        let mut rights = Rights { anonymous_uid: 7, anonymous_gid: 8, ..Rights::default() };
        let minus_one = u32::MAX;
        let identity = WireIdentity::Claimed(Cred {
            uid: minus_one,
            gid: minus_one,
            groups: smallvec![5, minus_one],
        });
        for squash in [Squash::Root, Squash::None] {
            rights.squash = squash;
            let nobody = Cred { uid: 7, gid: 8, groups: smallvec![5] };
            assert_eq!(squashed(&identity, &rights), nobody);
        }
    }
}
