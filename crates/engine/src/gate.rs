//! Share denies for protocols that have no opens: NFSv2 and NFSv3.

use steadfast_state::{FileKey, ShareAccess, StateError};
use steadfast_vfs::{Caller, FileKind, FsError, Name, StorageHandle, Waiting};

use crate::call::{Call, Target};

/// What an object is called by state: the same by whatever share it is reached.
pub(crate) fn file_key(target: &Target<'_>) -> FileKey {
    let (file_system, object) = target.storage.object(&target.handle);
    FileKey { file_system, object }
}

impl Call<'_> {
    /// Refuses a READ, a WRITE or a change of the size that somebody's open denies to all others. What
    /// the caller's own host has reserved by NLM is not in its way: these protocols do not say by
    /// which open they read and write.
    ///
    /// # Errors
    /// `AccessDenied`, and `TryLater` while very many clients expire, or another client has to give back
    /// what it has of the file first.
    pub(crate) fn require_not_denied(
        &mut self,
        target: &Target<'_>,
        access: ShareAccess,
    ) -> Result<(), FsError> {
        self.judge(target, &target.handle, access)
    }

    /// The same for a CREATE that sets the size of a file that has the name already. The storage finds
    /// it once more: an OPEN with a deny that comes in between is not respected.
    ///
    /// # Errors
    /// As [`Call::require_not_denied`].
    pub(crate) fn require_name_not_denied(
        &mut self,
        dir: &Target<'_>,
        name: Name<'_>,
    ) -> Result<(), FsError> {
        if !self.shared.state.has_denies() {
            return Ok(());
        }
        let caller = Caller::new(&dir.cred, Waiting::Allowed);
        match dir.storage.lookup(&caller, &dir.handle, name).result {
            Ok(entry) if entry.attr.kind == FileKind::Regular => {
                self.judge(dir, &entry.handle, ShareAccess::WRITE)
            }
            // The call itself finds out what is to be told.
            _ => Ok(()),
        }
    }

    fn judge(
        &mut self,
        target: &Target<'_>,
        handle: &StorageHandle,
        access: ShareAccess,
    ) -> Result<(), FsError> {
        let (file_system, object) = target.storage.object(handle);
        let (state, address) = (&self.shared.state, self.peer.address.ip());
        let (now_ms, file) = (self.now_ms, FileKey { file_system, object });
        let judged = self.judged(|| state.judge_stranger(now_ms, address, &file, access));
        judged.map_err(|error| match error {
            StateError::TryLater => FsError::TryLater,
            _ => FsError::AccessDenied,
        })
    }

    /// Judges an access; once more when the records are stable that it may have to wait for.
    ///
    /// # Errors
    /// Those of `judge`.
    pub(crate) fn judged(
        &mut self,
        judge: impl Fn() -> Result<(), StateError>,
    ) -> Result<(), StateError> {
        let judged = judge();
        let waits = judged == Err(StateError::TryLater) && self.shared.state.has_unkept_records();
        if waits && self.keep_records() { judge() } else { judged }
    }
}
