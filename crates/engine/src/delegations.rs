//! What delegations of others have to do with a call (RFC 8881 §10.4): whoever is about to change an
//! object, or to read one that somebody may have changed unseen, asks here first.
//!
//! Who only looks at the attributes of a file has its holder asked whether it has changed them ([`Call::look`]). If it
//! has, or somebody has another delegation that conflicts, that is being recalled from then on. Meanwhile the call fails
//! with `TryLater`. It waits ([`crate::waits`]) until the delegations are returned, for a while; then its
//! client is told DELAY, JUKEBOX, or in NFSv2 nothing.

use std::sync::Arc;

use steadfast_state::{Change, Client, FileKey, Look, StateError, StoredLook, Telling};
use steadfast_vfs::{
    Attr, Caller, Entry, FileKind, FileSystem, FsError, Name, StorageHandle, Waiting,
};

use crate::Shared;
use crate::call::{Call, Target};
use crate::change_attribute::change_of;
use crate::gate::file_key;
use crate::waits::{Wait, WaitFor};

/// Which delegations the server grants.
pub use steadfast_state::Delegations;

/// How often a look begins again by whose answer, or while the storage was read, something has changed.
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
            self.shared.keep_revocations();
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
            self.shared.keep_revocations();
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
            self.shared.keep_revocations();
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

    /// The object is about to be read by whoever has not opened it; or its attributes are.
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

    /// The attributes of an object, which somebody is told who asks for them: nobody has changed it unseen at some time
    /// after the call came. All protocols ask here; [`Call::told`] is for what is told beside something else.
    ///
    /// # Errors
    /// The storage's; `TryLater` while the holder of a delegation to write is asked, or that is recalled.
    pub(crate) fn look(
        &mut self,
        target: &Target<'_>,
        by: Option<&Arc<Client>>,
    ) -> Result<Attr, FsError> {
        if self.shared.state.has_delegations() {
            let file = file_key(target);
            if self.shared.state.may_be_written_unseen(&file) {
                return self.look_at_delegated(target, &file, by);
            }
        }
        self.read(target, |caller| target.storage.attributes(caller, &target.handle))
    }

    /// Attributes are about to be read that are told beside something else ([`Call::told`]).
    pub(crate) fn begin_telling(&self) -> Telling {
        self.shared.state.begin_telling()
    }

    /// What may be told of an object beside something else: nothing, if somebody may have changed it unseen since then.
    /// Who was told that would take it for all that there is, as by [`Call::look`], and read what it has kept of the file.
    pub(crate) fn told<'t>(
        &self,
        since: Telling,
        storage: &dyn FileSystem,
        handle: &StorageHandle,
        attr: &'t Attr,
    ) -> Option<&'t Attr> {
        let key = || {
            let (file_system, object) = storage.object(handle);
            FileKey { file_system, object }
        };
        let may_tell = attr.kind != FileKind::Regular || self.shared.state.may_tell(since, key);
        may_tell.then_some(attr)
    }

    /// [`Call::told`] of an object that should be a directory.
    pub(crate) fn told_of_directory<'t>(&self, attr: &'t Attr) -> Option<&'t Attr> {
        let may_tell = attr.kind != FileKind::Regular || !self.shared.state.has_delegations();
        may_tell.then_some(attr)
    }

    /// What was found beside a directory, for who is told its attributes in any case.
    ///
    /// # Errors
    /// As [`Call::look`].
    pub(crate) fn look_at_found(
        &mut self,
        since: Telling,
        dir: Target<'_>,
        found: Entry,
    ) -> Result<Entry, FsError> {
        if self.told(since, dir.storage, &found.handle, &found.attr).is_some() {
            return Ok(found);
        }
        let attr = self.look(&Target { handle: found.handle, ..dir }, None)?;
        Ok(Entry { attr, ..found })
    }

    fn look_at_delegated(
        &mut self,
        target: &Target<'_>,
        file: &FileKey,
        by: Option<&Arc<Client>>,
    ) -> Result<Attr, FsError> {
        // Which says what it has waited for.
        drop(self.take_suspended());
        let state = &self.shared.state;
        for _ in 0..LOOKS_MAX {
            let begun = state.begin_look(self.now_ms, by, file, self.wait.question);
            let at = match begun.map_err(|error| self.is_kept_out(file, error))? {
                Look::Stored => None,
                Look::Answered(at) => Some(at),
                waits @ (Look::Waits(question) | Look::WaitsToAsk { question, .. }) => {
                    self.wait.question = Some(question);
                    let what = WaitFor::Answer(*file, question);
                    let error = match waits {
                        Look::WaitsToAsk { for_ms, .. } => self.wait_at_first(what, for_ms),
                        _ => self.wait_for(what),
                    };
                    if self.wait.is_due_again() {
                        return Err(error);
                    }
                    // Asked by its client once more, it would be a look that no answer before is for.
                    let recalled = state.look_cannot_wait(self.now_ms, by, file);
                    recalled.map_err(|error| self.is_kept_out(file, error))?;
                    continue;
                }
            };
            let attr =
                self.read(target, |caller| target.storage.attributes(caller, &target.handle))?;
            let Some(at) = at else { return Ok(attr) };
            let stored = StoredLook { change: change_of(attr.ctime), size: attr.size };
            let judged = state.end_look(self.now_ms, &at, stored);
            if judged.map_err(|error| self.is_kept_out(file, error))? {
                return Ok(attr);
            }
        }
        Err(FsError::TryLater)
    }

    fn change_of(
        &mut self,
        file: &FileKey,
        by: Option<&Arc<Client>>,
    ) -> Result<Change<'a>, FsError> {
        let shared: &'a Shared = self.shared;
        let begun = shared.state.begin_change(self.now_ms, by, file);
        let begun = begun.map_err(|error| self.is_kept_out(file, error))?;
        shared.keep_revocations();
        // Were all lost behind that, who has lost its right to hear of it would have it again.
        let is_kept = !shared.state.awaits_record(file) || self.keep_records();
        if is_kept { Ok(begun) } else { Err(FsError::TryLater) }
    }

    /// Notes what the call waits for.
    fn is_kept_out(&mut self, file: &FileKey, error: StateError) -> FsError {
        if error == StateError::Recalling {
            self.awaits_recall(file);
        }
        FsError::TryLater
    }

    /// The call cannot be executed before delegations of this file are returned or revoked.
    pub(crate) fn awaits_recall(&mut self, file: &FileKey) {
        self.wait_for(WaitFor::File(*file));
    }
}

impl Shared {
    /// A file is about to be changed. Were the process killed behind that, the next one would not know who
    /// had lost its right to hear of it.
    pub(crate) fn keep_revocations(&self) {
        if self.state.has_unkept_revocations() {
            self.keep_state();
        }
    }

    /// A call that waits is told to try later instead. As a look it would be another one then, for which no answer
    /// before counts, and so for ever: the delegation is recalled.
    pub(crate) fn wait_is_refused(&self, now_ms: u64, wait: &Wait) {
        if let WaitFor::Answer(file, _) = wait.what() {
            let by = wait.client().and_then(|client| self.state.client(client));
            // It recalls, or there is nothing more to recall.
            let _ = self.state.look_cannot_wait(now_ms, by.as_ref(), &file);
            self.send_effects(now_ms);
        }
    }

    /// No delegation of this file is being recalled any more: calls that wait for that go on.
    pub(crate) fn delegation_is_returned(&self, file: &FileKey) {
        self.waits.wake(&WaitFor::File(*file));
    }
}
