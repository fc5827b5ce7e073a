//! Looks at the attributes of files that are delegated to write: their holders are asked (RFC 8881 §10.4.3), and
//! keep their delegations if they have changed nothing. Otherwise, and from a holder that cannot be asked or does not
//! answer, the delegation is recalled.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Held, MARK, REPLIED_MS, Toucher};
use crate::delegation_record::DelegationKind;
use crate::ids::DelegationNumber;
use crate::written_unseen::{Asking, HolderSays, StoredLook, Verdict, WrittenUnseen};
use crate::{Client, Effect, FileKey, State, StateError, StateId};

/// A delegation to write of a file that somebody else looks at, whose holder has said how the file is.
#[derive(Clone, Copy, Debug)]
pub struct AtHolder {
    file: FileKey,
    number: DelegationNumber,
}

impl State {
    /// The storage's change attribute of a file, read after a delegation to write was granted: if the holder has not
    /// changed the file at the server since the grant, this is what it was given.
    pub fn change_is_given(&self, file: &FileKey, id: &StateId, change: u64) {
        self.with_unseen(file, id, |unseen| unseen.note_given(change));
    }

    /// The attributes of a file are about to be told to somebody. `None` if those of its storage are right;
    /// otherwise they are to be read now, and judged by [`State::end_look`].
    ///
    /// # Errors
    /// [`StateError::Asking`] while the holder of a delegation to write is asked; [`StateError::Recalling`] if it
    /// cannot be; [`StateError::TryLater`] as of [`State::begin_change`].
    pub fn begin_look(
        &self,
        now_ms: u64,
        by: Option<&Arc<Client>>,
        file: &FileKey,
    ) -> Result<Option<AtHolder>, StateError> {
        if !self.may_be_written_unseen(file) {
            return Ok(None);
        }
        self.advance(now_ms);
        let asking = by.unwrap_or(&self.nobody);
        self.repeated(asking, || {
            let now_ms = asking.now_ms();
            let Some(mut shard) = self.delegations.shard(file) else { return Ok(None) };
            let Some(all) = shard.files.get_mut(file) else { return Ok(None) };
            let held = all.iter_mut().find(|held| is_of_other(held, by));
            let Some(held) = held else { return Ok(None) };
            let number = held.number;
            match self.ask(held, file, now_ms) {
                Asking::IsAnswered => return Ok(Some(AtHolder { file: *file, number })),
                Asking::Begins(_) | Asking::UnderWay => return Err(StateError::Asking.into()),
                Asking::IsOverdue => {}
            }
            let toucher = Toucher { client: by, now_ms, lease_ms: self.settings.lease_ms };
            let is_to_write = |kind| kind == DelegationKind::Write;
            self.recall_conflicting(&mut shard, toucher, file, &is_to_write).map(|()| None)
        })
    }

    /// Whether what the storage had after [`State::begin_look`] is all that there is. `false` if nobody knows any
    /// more, as the holder has changed the file meanwhile or returned its delegation: the look is to be begun again.
    ///
    /// # Errors
    /// [`StateError::Recalling`] if the holder has more.
    pub fn end_look(
        &self,
        now_ms: u64,
        at: &AtHolder,
        stored: StoredLook,
    ) -> Result<bool, StateError> {
        let Some(mut shard) = self.delegations.shard(&at.file) else { return Ok(false) };
        let Some(held) = shard.find_mut(&at.file, at.number) else { return Ok(false) };
        match held.unseen.as_mut().map_or(Verdict::Unknown, |it| it.judge(stored)) {
            Verdict::Right => Ok(true),
            Verdict::Unknown => Ok(false),
            Verdict::Behind => {
                self.begin_recall(held, &at.file, now_ms);
                shard.quieten(&at.file, now_ms);
                Err(StateError::Recalling)
            }
        }
    }

    /// Whether somebody may write a file unseen. `false` is certain.
    fn may_be_written_unseen(&self, file: &FileKey) -> bool {
        let cell = || self.delegations.cell(file);
        self.delegations.is_on() && cell().is_none_or(|cell| cell.load(Ordering::Acquire) >= MARK)
    }

    /// Asks the holder, if it can be asked and is not yet.
    fn ask(&self, held: &mut Held, file: &FileKey, now_ms: u64) -> Asking {
        let not_before_ms = held.granted_ms.saturating_add(REPLIED_MS);
        let is_alive = held.client.silent_ms(now_ms) <= self.settings.lease_ms
            && held.client.has_callback_path();
        let Some(unseen) = &mut held.unseen else { return Asking::IsOverdue };
        if unseen.has_answer(now_ms) {
            return Asking::IsAnswered;
        }
        if !is_alive || held.recall.is_some() {
            return Asking::IsOverdue;
        }
        // Who begins to change the file from here on waits for the lock, and says so (`is_written_by`).
        let is_changing = self
            .delegations
            .cell(file)
            .is_none_or(|cell| !cell.load(Ordering::SeqCst).is_multiple_of(MARK));
        let asking = unseen.look(now_ms, not_before_ms, is_changing);
        if let Asking::Begins(question) = asking {
            self.delegations.counters.asked.fetch_add(1, Ordering::Relaxed);
            let (client, handle) = (Arc::clone(&held.client), Arc::clone(&held.handle));
            let id = StateId::of_delegation(self.settings.instance, held.number);
            let file = *file;
            let asks = Effect::AskHolder { client, id, file, handle, question, not_before_ms };
            self.files.effects.push(asks);
        }
        asking
    }

    /// Whether a question to the holder of a delegation has no answer yet.
    pub fn is_holder_asked(&self, file: &FileKey, id: &StateId, question: u64) -> bool {
        self.with_unseen(file, id, |unseen| unseen.is_open(question)) == Some(true)
    }

    /// A holder says how its file is. Whether that was still asked: then who was told [`StateError::Asking`] is to ask
    /// again.
    pub fn holder_says(
        &self,
        now_ms: u64,
        (file, id): (&FileKey, &StateId),
        question: u64,
        says: HolderSays,
    ) -> bool {
        self.with_unseen(file, id, |unseen| unseen.take_answer(now_ms, question, says))
            == Some(true)
    }

    /// A holder does not say how its file is, or cannot be asked: its delegation is recalled. Whether that was still
    /// asked: then who was told [`StateError::Asking`] is to ask again.
    pub fn holder_is_mute(
        &self,
        now_ms: u64,
        (file, id): (&FileKey, &StateId),
        question: u64,
    ) -> bool {
        let Some(number) = id.delegation_number(self.settings.instance) else { return false };
        let Some(mut shard) = self.delegations.shard(file) else { return false };
        let Some(held) = shard.find_mut(file, number) else { return false };
        let was_asked = held.unseen.as_mut().is_some_and(|unseen| unseen.fail(question));
        if was_asked {
            self.begin_recall(held, file, now_ms);
            shard.quieten(file, now_ms);
        }
        was_asked
    }

    /// A client changes a file at the server that it may also change unseen.
    pub(super) fn is_written_by(&self, by: Option<&Arc<Client>>, file: &FileKey) {
        let (Some(by), Some(mut shard)) = (by, self.delegations.shard(file)) else { return };
        let all = shard.files.get_mut(file).into_iter().flatten();
        for held in all.filter(|held| Arc::ptr_eq(&held.client, by)) {
            if let Some(unseen) = &mut held.unseen {
                unseen.is_written();
            }
        }
    }

    fn with_unseen<T>(
        &self,
        file: &FileKey,
        id: &StateId,
        change: impl FnOnce(&mut WrittenUnseen) -> T,
    ) -> Option<T> {
        let number = id.delegation_number(self.settings.instance)?;
        let mut shard = self.delegations.shard(file)?;
        shard.find_mut(file, number)?.unseen.as_deref_mut().map(change)
    }
}

/// Whether a delegation is one to write, of somebody else.
fn is_of_other(held: &Held, by: Option<&Arc<Client>>) -> bool {
    held.kind == DelegationKind::Write && by.is_none_or(|by| !Arc::ptr_eq(by, &held.client))
}
