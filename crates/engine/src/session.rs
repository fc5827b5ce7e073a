//! What a procedure works with while one call runs: who calls, on what, with which rights.

use steadfast_shares::{Decision, Flavor, Groups, Rights, Share, ShareId, Squash};
use steadfast_vfs::{CallName, Caller, Cred, Durable, FileSystem, FsError, Obligation};
use steadfast_vfs::{ReplyBarrier, StorageHandle, Waiting};

use crate::call::{CallHost, Complaint, Peer, Room, Stage, StorageId, Transport};
use crate::export::Exported;
use crate::operation::Operation;
use crate::reply_cache::{CallKey, KEY_BYTES};
use crate::wire_handle::SealedHandle;
use crate::{Engine, ExportTable};

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
    /// The call's, if its reply is kept.
    pub(crate) key: Option<CallKey>,
    /// Whether the call may be executed again when more is known ([`Outcome::AskAgain`]).
    pub(crate) may_wait: bool,
    /// Why the call may not wait for its storage, once that is so.
    pub(crate) lacks_room: Option<Room>,
    /// The share that a handle of the call led to last.
    pub(crate) used: Option<ShareId>,
}

/// An object that a handle named, with what the caller may do there.
pub(crate) struct Target<'a> {
    pub(crate) storage: &'a dyn FileSystem,
    /// By which it was reached: in its handles.
    pub(crate) share: &'a Share,
    /// Whose rules are the object's: the innermost share that has it.
    pub(crate) ruling: ShareId,
    pub(crate) rights: &'a Rights,
    pub(crate) handle: StorageHandle,
    pub(crate) cred: Cred,
    /// The call's key, if it changes something and its reply is kept.
    pub(crate) call: Option<[u8; KEY_BYTES]>,
}

impl Target<'_> {
    /// The caller of an operation that may wait.
    pub(crate) fn caller(&self) -> Caller<'_> {
        let share = self.share.id.0;
        let call = self.call.as_ref().map(|key| CallName { key, share });
        Caller { call, ..Caller::new(&self.cred, Waiting::Allowed) }
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
    /// What decides about the call, which is to this share, is not known yet: it is to be executed
    /// again when it is.
    AskAgain(ShareId),
    /// Nothing is to be said about it: it was called in a way that is silent in the face of errors.
    Silent,
    /// It was to be passed on to a program that is not served.
    NoProgram,
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
        let exported = self.exports.exported(share_id).ok_or(FsError::Stale)?;
        let share: &'a Share = &exported.export.share;
        self.used = Some(share.id);
        let ruling = if share.crosses_mounts { self.ruling(exported, &handle)? } else { exported };
        let rights = self.rights(ruling)?;
        if self.operation.is_changing && rights.is_read_only {
            return Err(FsError::ReadOnly);
        }
        let cred = self.cred(rights)?;
        let storage = self.storage(exported)?;
        let ruling = ruling.export.share.id;
        let call = self.key.filter(|_| self.operation.is_changing).map(CallKey::to_bytes);
        let target = Target { storage, share, ruling, rights, handle, cred, call };
        if self.operation.is_changing {
            self.may_block(&target)?;
        }
        self.host.stage(Stage::Storage);
        Ok(target)
    }

    /// The share whose rules are those of an object that was reached by another one, which crosses
    /// mounts: the innermost that has it, whatever the way.
    ///
    /// # Errors
    /// `AccessDenied` if what it is on is not served, `Stale` if it is not mounted any more, `TryLater`
    /// if that cannot be found out now.
    pub(crate) fn ruling(
        &mut self,
        outer: &'a Exported,
        object: &StorageHandle,
    ) -> Result<&'a Exported, FsError> {
        let storage = self.storage(outer)?;
        match ruling(self.exports, outer, storage, object, Waiting::Never) {
            Err(FsError::WouldOpen | FsError::WouldBlock) => {
                self.ask_for_room(storage.domain().into(), &outer.export.share)?;
                self.host.will_block();
                ruling(self.exports, outer, storage, object, Waiting::Allowed)
            }
            known => known,
        }
    }

    /// Refuses what was found from a directory if it is on another mount, and its rules give nothing to
    /// the caller.
    ///
    /// # Errors
    /// As [`Session::ruling`], and `AccessDenied` if the caller may do nothing there.
    pub(crate) fn require_access(
        &self,
        from: &Target<'a>,
        found: &StorageHandle,
    ) -> Result<(), FsError> {
        if !from.share.crosses_mounts {
            return Ok(());
        }
        let mount = |object| from.storage.mount(object, Waiting::Never);
        if mount(found)? == mount(&from.handle)? {
            return Ok(());
        }
        let exported = self.exports.exported(from.share.id).ok_or(FsError::Stale)?;
        // Just found, it is known.
        let ruling = ruling(self.exports, exported, from.storage, found, Waiting::Never)?;
        if ruling.export.share.id == from.ruling {
            return Ok(());
        }
        self.rights(ruling).map(drop)
    }

    /// The storage of an export, opened if it was not.
    ///
    /// # Errors
    /// `TryLater` if it cannot be opened now.
    pub(crate) fn storage(
        &mut self,
        exported: &'a Exported,
    ) -> Result<&'a dyn FileSystem, FsError> {
        let source = &exported.export.storage;
        if let Some(storage) = source.opened() {
            return Ok(storage);
        }
        let id = source.expected_domain().map_or(StorageId::UNKNOWN, StorageId::from);
        self.ask_for_room(id, &exported.export.share)?;
        self.host.will_block();
        source.open()
    }

    /// Asks the host whether the call may wait.
    ///
    /// # Errors
    /// `TryLater` if it may not.
    fn ask_for_room(&mut self, storage: StorageId, share: &Share) -> Result<(), FsError> {
        let room = self.host.room_to_wait(storage);
        allow(room, share, self.complaint, &mut self.lacks_room)
    }

    /// As [`CallHost::may_block`], if the call may wait for its storage.
    ///
    /// # Errors
    /// `TryLater` if it may not.
    pub(crate) fn may_block(&mut self, target: &Target<'_>) -> Result<(), FsError> {
        self.may_block_for(target.storage, target.share)
    }

    /// The same before an object is known.
    ///
    /// # Errors
    /// `TryLater` if it may not.
    pub(crate) fn may_block_for(
        &mut self,
        storage: &dyn FileSystem,
        share: &Share,
    ) -> Result<(), FsError> {
        self.ask_for_room(storage.domain().into(), share)?;
        self.host.may_block();
        Ok(())
    }

    /// As [`CallHost::seldom_blocks`], if the call may wait for its storage.
    ///
    /// # Errors
    /// `TryLater` if it may not.
    pub(crate) fn seldom_blocks(&mut self, target: &Target<'_>) -> Result<(), FsError> {
        self.ask_for_room(target.storage.domain().into(), target.share)?;
        self.host.seldom_blocks();
        Ok(())
    }

    /// As whom the caller acts.
    ///
    /// # Errors
    /// `TryLater` while the caller's groups are being looked up.
    fn cred(&self, rights: &Rights) -> Result<Cred, FsError> {
        let Acting { mut cred, is_himself } = squashed(&self.identity, rights);
        if is_himself && rights.looks_up_groups {
            match self.engine.authority.groups(cred.uid) {
                Groups::Known(groups) => {
                    cred.groups = groups.iter().copied().collect();
                    squash_groups(&mut cred, rights);
                }
                Groups::NoUser => {}
                Groups::NotYet => return Err(FsError::TryLater),
            }
        }
        Ok(cred)
    }

    /// What the caller may do on an export.
    ///
    /// # Errors
    /// `AccessDenied` if nothing, `TryLater` while a name that decides is being looked up.
    pub(crate) fn rights(&self, exported: &'a Exported) -> Result<&'a Rights, FsError> {
        let flavor = match self.identity {
            WireIdentity::Anonymous => Flavor::None,
            WireIdentity::Claimed(_) => Flavor::Sys,
        };
        let question = self.peer.question(flavor);
        match self.peer.memo.decide(&*self.engine.authority, exported, &question) {
            Decision::Granted(place) => {
                exported.export.share.rules.grant(place).ok_or(FsError::AccessDenied)
            }
            Decision::Refused(_) => Err(FsError::AccessDenied),
            Decision::Pending => Err(FsError::TryLater),
        }
    }

    /// Runs an operation that only reads: first without waiting for storage; then, if an object
    /// must be opened, in such a way that somebody else serves the others if it takes long; and if
    /// that is not enough, again after others have taken over what this thread would hold up.
    ///
    /// # Errors
    /// The operation's; `TryLater` if it would have to wait and may not.
    pub(crate) fn read<T>(
        &mut self,
        target: &Target<'_>,
        mut attempt: impl FnMut(&Caller<'_>) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let Self { host, complaint, lacks_room, .. } = self;
        let Target { storage, share, cred, .. } = target;
        waiting_by_degrees(
            *host,
            |host| allow(host.room_to_wait(storage.domain().into()), share, complaint, lacks_room),
            |waiting| attempt(&Caller::new(cred, waiting)),
        )
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

fn ruling<'a>(
    exports: &'a ExportTable,
    outer: &'a Exported,
    storage: &dyn FileSystem,
    object: &StorageHandle,
    waiting: Waiting,
) -> Result<&'a Exported, FsError> {
    match storage.mount(object, waiting)? {
        0 => Ok(outer),
        mount => {
            let mut found = Ok(outer);
            storage.mount_points(mount, waiting, &mut |points| {
                found = exports.innermost(outer, points);
            })?;
            found
        }
    }
}

/// Whether a call to a share may wait.
fn allow(
    room: Room,
    share: &Share,
    complaint: &mut Option<Complaint>,
    lacks_room: &mut Option<Room>,
) -> Result<(), FsError> {
    match room {
        Room::Free => return Ok(()),
        Room::Later => {}
        Room::None => *complaint = Some(Complaint::StorageHangs { path: share.path.clone() }),
    }
    *lacks_room = Some(room);
    Err(FsError::TryLater)
}

/// Tries what only reads again, waiting for more each time, as long as that is what it lacks and
/// it may.
fn waiting_by_degrees<T>(
    host: &mut dyn CallHost,
    mut may_wait: impl FnMut(&mut dyn CallHost) -> Result<(), FsError>,
    mut attempt: impl FnMut(Waiting) -> Result<T, FsError>,
) -> Result<T, FsError> {
    let mut result = attempt(Waiting::Never);
    if matches!(result, Err(FsError::WouldOpen)) {
        may_wait(host)?;
        host.opens();
        result = attempt(Waiting::ToOpen);
        host.has_opened();
    }
    match result {
        Err(FsError::WouldBlock) => {
            may_wait(host)?;
            host.will_block();
            attempt(Waiting::Allowed)
        }
        result => result,
    }
}

/// As whom a caller acts.
#[derive(Debug, PartialEq, Eq)]
struct Acting {
    cred: Cred,
    /// Whether that is the user whom the client claims. Somebody else who has the same number is
    /// not: squashing takes his groups from him.
    is_himself: bool,
}

/// The local identity of a caller, by the share's rules.
fn squashed(identity: &WireIdentity, rights: &Rights) -> Acting {
    let anonymous = || Acting {
        cred: Cred {
            uid: rights.anonymous_uid,
            gid: rights.anonymous_gid,
            groups: smallvec::SmallVec::new(),
        },
        is_himself: false,
    };
    let WireIdentity::Claimed(claimed) = identity else { return anonymous() };
    match rights.squash {
        Squash::All => return anonymous(),
        Squash::Root if claimed.uid == 0 => return anonymous(),
        Squash::Root | Squash::None => {}
    }
    let mut cred = claimed.clone();
    // To the kernel -1 is "leave it as it is", never somebody.
    let is_himself = cred.uid != u32::MAX;
    if !is_himself {
        cred.uid = rights.anonymous_uid;
    }
    if cred.gid == u32::MAX {
        cred.gid = rights.anonymous_gid;
    }
    squash_groups(&mut cred, rights);
    Acting { cred, is_himself }
}

/// The groups of one who is himself.
fn squash_groups(cred: &mut Cred, rights: &Rights) {
    cred.groups.retain(|gid| *gid != u32::MAX);
    if rights.squash == Squash::Root {
        // Group 0 is squashed by itself too, as it may own what only root should touch.
        for gid in std::iter::once(&mut cred.gid).chain(&mut cred.groups) {
            if *gid == 0 {
                *gid = rights.anonymous_gid;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    fn claimed(uid: u32, gid: u32) -> WireIdentity {
        WireIdentity::Claimed(Cred { uid, gid, groups: smallvec![0, 5] })
    }

    #[derive(Default)]
    struct Heard(Vec<&'static str>);

    impl CallHost for Heard {
        fn may_block(&mut self) {
            self.0.push("may block");
        }

        fn opens(&mut self) {
            self.0.push("opens");
        }

        fn has_opened(&mut self) {
            self.0.push("has opened");
        }

        fn will_block(&mut self) {
            self.0.push("will block");
        }
    }

    #[test]
    fn a_host_hears_what_a_call_waits_for_before_it_does() {
        use FsError::{Io, WouldBlock, WouldOpen};
        for (outcomes, heard) in [
            (vec![Ok(1)], vec![]),
            (vec![Err(WouldOpen), Ok(1)], vec!["opens", "has opened"]),
            (vec![Err(WouldOpen), Err(Io)], vec!["opens", "has opened"]),
            (vec![Err(WouldBlock), Ok(1)], vec!["will block"]),
            (
                vec![Err(WouldOpen), Err(WouldBlock), Ok(1)],
                vec!["opens", "has opened", "will block"],
            ),
        ] {
            let mut host = Heard::default();
            let mut attempts = outcomes.iter();
            let mut waited = Vec::new();
            let result = waiting_by_degrees(
                &mut host,
                |_| Ok(()),
                |waiting| {
                    waited.push(waiting);
                    *attempts.next().expect("an attempt too many")
                },
            );
            assert_eq!((&Some(&result), host.0), (&outcomes.last(), heard));
            let asked = match &outcomes[0] {
                Err(WouldOpen) => &[Waiting::Never, Waiting::ToOpen, Waiting::Allowed][..],
                _ => &[Waiting::Never, Waiting::Allowed],
            };
            assert_eq!(waited, asked[..outcomes.len()]);
        }
    }

    #[test]
    fn who_may_not_wait_does_not() {
        for lacked in [FsError::WouldOpen, FsError::WouldBlock] {
            let mut host = Heard::default();
            let mut waited = Vec::new();
            let result: Result<(), _> = waiting_by_degrees(
                &mut host,
                |_| Err(FsError::TryLater),
                |waiting| {
                    waited.push(waiting);
                    Err(lacked)
                },
            );
            assert_eq!((result, host.0), (Err(FsError::TryLater), vec![]));
            assert_eq!(waited, [Waiting::Never]);
        }
    }

    #[test]
    fn squashing_follows_the_rights() {
        let mut rights = Rights { anonymous_uid: 7, anonymous_gid: 8, ..Rights::default() };
        let anonymous =
            Acting { cred: Cred { uid: 7, gid: 8, groups: smallvec![] }, is_himself: false };
        let himself = |cred| Acting { cred, is_himself: true };
        assert_eq!(squashed(&claimed(0, 0), &rights), anonymous);
        assert_eq!(squashed(&WireIdentity::Anonymous, &rights), anonymous);
        assert_eq!(
            squashed(&claimed(5, 0), &rights),
            himself(Cred { uid: 5, gid: 8, groups: smallvec![8, 5] })
        );
        rights.squash = Squash::All;
        assert_eq!(squashed(&claimed(5, 5), &rights), anonymous);
        // Also who claims to be whom all are squashed to.
        assert_eq!(squashed(&claimed(7, 5), &rights), anonymous);
        rights.squash = Squash::None;
        assert_eq!(
            squashed(&claimed(0, 0), &rights),
            himself(Cred { uid: 0, gid: 0, groups: smallvec![0, 5] })
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
            assert_eq!(squashed(&identity, &rights), Acting { cred: nobody, is_himself: false });
        }
    }
}
