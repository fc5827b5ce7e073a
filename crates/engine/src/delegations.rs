//! What delegations of others have to do with a call (RFC 8881 §10.4): whoever is about to change an
//! object, or to read one that somebody may have changed unseen, asks here first.
//!
//! Who only looks at the attributes of a file has its holder asked whether it has changed them ([`Call::look`]). If it
//! has, or somebody has another delegation that conflicts, that is being recalled from then on. Meanwhile the call fails
//! with `TryLater`. It waits ([`crate::waits`]) until the delegations are returned, for a while; then its
//! client is told DELAY, JUKEBOX, or in NFSv2 nothing.

use std::sync::Arc;

use steadfast_state::{AtHolder, Change, Client, FileKey, StateError, StoredLook};
use steadfast_vfs::{Attr, Caller, FsError, Name, StorageHandle, Waiting};

use crate::Shared;
use crate::call::{Call, Target};
use crate::change_attribute::change_of;
use crate::gate::file_key;
use crate::waits::WaitFor;

/// Which delegations the server grants.
pub use steadfast_state::Delegations;

/// How often a look begins again whose holder has changed the file, or returned it, while the storage was read.
const LOOKS_MAX: u32 = 4;

impl<'a> Call<'a> {
    /// The object is about to be changed. To be held until it is.
    ///
    /// # Errors
    /// `TryLater` while delegations of others are recalled.
    pub(crate) fn begin_change(
        &mut self,
        target: &Target<'_>,
        by: Option<&Arc<Client>>,
    ) -> Result<Change<'a>, FsError> {
        if !self.shared.state.has_delegations() {
            return Ok(Change::of_nothing());
        }
        self.change_of(&file_key(target), by)
    }

    /// The same of an object beside another one.
    ///
    /// # Errors
    /// As [`Call::begin_change`].
    pub(crate) fn begin_change_beside(
        &mut self,
        target: &Target<'_>,
        handle: &StorageHandle,
        by: Option<&Arc<Client>>,
    ) -> Result<Change<'a>, FsError> {
        if !self.shared.state.has_delegations() {
            return Ok(Change::of_nothing());
        }
        let (file_system, object) = target.storage.object(handle);
        self.change_of(&FileKey { file_system, object }, by)
    }

    /// The object that has this name is about to lose it, or to be changed; `None` if there is none. The
    /// storage finds it once more: a file that gets the name in between is not respected.
    ///
    /// # Errors
    /// As [`Call::begin_change`].
    pub(crate) fn begin_change_of_name(
        &mut self,
        dir: &Target<'_>,
        name: Name<'_>,
        by: Option<&Arc<Client>>,
    ) -> Result<Option<Change<'a>>, FsError> {
        if !self.shared.state.has_delegations() {
            return Ok(None);
        }
        let caller = Caller::new(&dir.cred, Waiting::Allowed);
        match dir.storage.lookup(&caller, &dir.handle, name).result {
            Ok(entry) => self.begin_change_beside(dir, &entry.handle, by).map(Some),
            // The call itself finds out what is to be told.
            Err(FsError::NotFound | FsError::NotDirectory | FsError::AccessDenied) => Ok(None),
            // There may be something, and the call may find it.
            Err(error) => Err(error),
        }
    }

    /// The object is about to be read by whoever has not opened it.
    ///
    /// # Errors
    /// `TryLater` while the delegation of another, by which it may write, is recalled.
    pub(crate) fn begin_read(
        &mut self,
        target: &Target<'_>,
        by: Option<&Arc<Client>>,
    ) -> Result<(), FsError> {
        if !self.shared.state.has_delegations() {
            return Ok(());
        }
        let file = file_key(target);
        let begun = self.shared.state.begin_read(self.now_ms, by, &file);
        begun.map_err(|error| self.is_kept_out(&file, error))
    }

    /// The attributes of an object, which somebody is told: the holder of a delegation to write has said that it has
    /// changed nothing, or there is none. All protocols ask here.
    ///
    /// # Errors
    /// The storage's; `TryLater` while that client is asked, or its delegation is recalled.
    pub(crate) fn look(
        &mut self,
        target: &Target<'_>,
        by: Option<&Arc<Client>>,
    ) -> Result<Attr, FsError> {
        for _ in 0..LOOKS_MAX {
            let at = self.begin_look(target, by)?;
            let attr =
                self.read(target, |caller| target.storage.attributes(caller, &target.handle))?;
            let Some(at) = at else { return Ok(attr) };
            let stored = StoredLook { change: change_of(attr.ctime), size: attr.size };
            match self.shared.state.end_look(self.now_ms, &at, stored) {
                Ok(true) => return Ok(attr),
                Ok(false) => {}
                Err(error) => return Err(self.is_kept_out(&file_key(target), error)),
            }
        }
        Err(FsError::TryLater)
    }

    fn begin_look(
        &mut self,
        target: &Target<'_>,
        by: Option<&Arc<Client>>,
    ) -> Result<Option<AtHolder>, FsError> {
        if !self.shared.state.has_delegations() {
            return Ok(None);
        }
        let file = file_key(target);
        let begun = self.shared.state.begin_look(self.now_ms, by, &file);
        begun.map_err(|error| self.is_kept_out(&file, error))
    }

    fn change_of(
        &mut self,
        file: &FileKey,
        by: Option<&Arc<Client>>,
    ) -> Result<Change<'a>, FsError> {
        let shared: &'a Shared = self.shared;
        let begun = shared.state.begin_change(self.now_ms, by, file);
        begun.map_err(|error| self.is_kept_out(file, error))
    }

    /// Notes what the call waits for.
    fn is_kept_out(&mut self, file: &FileKey, error: StateError) -> FsError {
        match error {
            StateError::Recalling => self.awaits_recall(file),
            StateError::Asking => {
                self.wait_for(WaitFor::Attributes(*file));
            }
            _ => {}
        }
        FsError::TryLater
    }

    /// The call cannot be executed before delegations of this file are returned or revoked.
    pub(crate) fn awaits_recall(&mut self, file: &FileKey) {
        self.wait_for(WaitFor::File(*file));
    }
}

impl Shared {
    /// No delegation of this file is being recalled any more: calls that wait for that go on.
    pub(crate) fn delegation_is_returned(&self, file: &FileKey) {
        self.waits.wake(&WaitFor::File(*file));
        self.holder_has_answered(file);
    }

    /// The holder of a delegation has said how its file is: calls that wait for that go on.
    pub(crate) fn holder_has_answered(&self, file: &FileKey) {
        self.waits.wake(&WaitFor::Attributes(*file));
    }
}
