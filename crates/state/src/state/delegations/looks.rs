//! Looks at the attributes of files that are delegated to write: their holders are asked (RFC 8881 §10.4.3), and
//! keep their delegations if they have changed nothing. Otherwise, and from a holder that cannot be asked or does not
//! answer, the delegation is recalled; then nobody is asked any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Held, MARK, REPLIED_MS, Toucher};
use crate::delegation_record::DelegationKind;
use crate::ids::DelegationNumber;
use crate::written_unseen::{HolderSays, StoredLook, Verdict};
use crate::{Client, Effect, FileKey, State, StateError, StateId};

/// What becomes of a look at a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// What the storage has is right.
    Stored,
    /// What the storage has is to be read now, and judged by [`State::end_look`].
    Answered(HolderAnswered),
    /// It goes on when the question of this number has an answer ([`Effect::Answered`]).
    Waits(u64),
    /// The holder may not know of its delegation yet: the question of this number is sent by the first look that is begun
    /// again after this time.
    WaitsToAsk {
        /// The question.
        question: u64,
        /// In ms from now on.
        for_ms: u64,
    },
}

/// Attributes are about to be read that are told beside something else, without asking anybody.
#[derive(Clone, Copy, Debug)]
pub struct Telling {
    released: u64,
}

/// The answer of a holder that a look may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderAnswered {
    file: FileKey,
    number: DelegationNumber,
    question: u64,
}

impl State {
    /// The storage's change attribute of a file, read after a delegation to write was granted: if the holder has not
    /// changed the file at the server since the grant, this is what it was given.
    pub fn change_is_given(&self, file: &FileKey, id: &StateId, change: u64) {
        let Some(number) = id.delegation_number(self.settings.instance) else { return };
        let Some(mut shard) = self.delegations.shard(file) else { return };
        if let Some(unseen) = shard.find_mut(file, number).and_then(|it| it.unseen.as_mut()) {
            unseen.note_given(change);
        }
    }

    /// Whether somebody may write a file unseen. `false` is certain, and takes no lock.
    pub fn may_be_written_unseen(&self, file: &FileKey) -> bool {
        let cell = || self.delegations.cell(file);
        // Who looks at the time of a grant has looked before the holder could write.
        self.delegations.is_on() && cell().is_some_and(|cell| cell.load(Ordering::Acquire) >= MARK)
    }

    /// Attributes are about to be read that are told beside something else: [`State::may_tell`] says then whether they
    /// may be.
    pub fn begin_telling(&self) -> Telling {
        Telling { released: self.delegations.released.load(Ordering::Acquire) }
    }

    /// Whether what was read of a file since then may be told to whoever is no holder of a delegation: nobody could have
    /// written the file unseen at that time. If nothing is delegated, this is one look at two numbers.
    pub fn may_tell(&self, since: Telling, file: impl FnOnce() -> FileKey) -> bool {
        let is_delegated = || {
            let file = file();
            let is_to_write = |held: &Held| held.kind == DelegationKind::Write;
            self.may_be_written_unseen(&file)
                && self.delegations.shard(&file).is_none_or(|shard| {
                    shard.files.get(&file).is_some_and(|all| all.iter().any(is_to_write))
                })
        };
        let may_be_some = self.delegations.total.load(Ordering::Acquire) > 0;
        // What is gone by now may have been written when this was read.
        !(may_be_some && is_delegated()) && self.begin_telling().released == since.released
    }

    /// The attributes of a file are about to be told to somebody. `waited`: the question that this look has waited for,
    /// if it has ([`Look::Waits`], [`Look::WaitsToAsk`]).
    ///
    /// # Errors
    /// [`StateError::Recalling`] if the holder of a delegation to write cannot be asked; [`StateError::TryLater`] as of
    /// [`State::begin_change`].
    pub fn begin_look(
        &self,
        now_ms: u64,
        by: Option<&Arc<Client>>,
        file: &FileKey,
        waited: Option<u64>,
    ) -> Result<Look, StateError> {
        if !self.may_be_written_unseen(file) {
            return Ok(Look::Stored);
        }
        self.advance(now_ms);
        let asking = by.unwrap_or(&self.nobody);
        self.repeated(asking, || {
            let now_ms = asking.now_ms();
            let Some(mut shard) = self.delegations.shard(file) else { return Ok(Look::Stored) };
            let Some(all) = shard.files.get_mut(file) else { return Ok(Look::Stored) };
            let held = all.iter_mut().find(|held| is_of_other(held, by));
            let Some(held) = held else { return Ok(Look::Stored) };
            if let Some(look) = self.ask(held, file, now_ms, waited) {
                return Ok(look);
            }
            let toucher = Toucher { client: by, now_ms, lease_ms: self.settings.lease_ms };
            let is_to_write = |kind| kind == DelegationKind::Write;
            self.recall_conflicting(&mut shard, toucher, file, &is_to_write).map(|()| Look::Stored)
        })
    }

    /// Has a look wait for the holder of a delegation. `None` if that is to be recalled.
    fn ask(
        &self,
        held: &mut Held,
        file: &FileKey,
        now_ms: u64,
        waited: Option<u64>,
    ) -> Option<Look> {
        let number = held.number;
        let unseen = held.unseen.as_mut().filter(|_| held.recall.is_none())?;
        if let Some(question) = unseen.answer_for(waited) {
            return Some(Look::Answered(HolderAnswered { file: *file, number, question }));
        }
        if held.client.silent_ms(now_ms) > self.settings.lease_ms || unseen.is_overdue(now_ms) {
            return None;
        }
        if !held.client.has_callback_path() {
            self.delegations.counters.unasked.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let next = || self.delegations.questions.fetch_add(1, Ordering::Relaxed);
        let question = unseen.join(waited, next);
        let replied_ms = held.granted_ms.saturating_add(REPLIED_MS);
        if now_ms < replied_ms {
            return Some(Look::WaitsToAsk { question, for_ms: replied_ms - now_ms });
        }
        self.send_question(held, file, now_ms);
        Some(Look::Waits(question))
    }

    /// Sends the next question, if somebody waits for it and no other is open.
    fn send_question(&self, held: &mut Held, file: &FileKey, now_ms: u64) {
        let Some(unseen) = &mut held.unseen else { return };
        // Who begins to change the file from here on waits for the lock, and says so.
        let is_changing = self
            .delegations
            .cell(file)
            .is_none_or(|cell| !cell.load(Ordering::SeqCst).is_multiple_of(MARK));
        let Some(question) = unseen.send(now_ms, is_changing) else { return };
        self.delegations.counters.asked.fetch_add(1, Ordering::Relaxed);
        let (client, handle) = (Arc::clone(&held.client), Arc::clone(&held.handle));
        let id = StateId::of_delegation(self.settings.instance, held.number);
        self.files.effects.push(Effect::AskHolder { client, id, file: *file, handle, question });
    }

    /// Whether what the storage had after [`State::begin_look`] is all that there is. `false` if the answer does not say
    /// so, or the delegation is gone: the look is to be begun again.
    ///
    /// # Errors
    /// [`StateError::Recalling`] if the holder has more.
    pub fn end_look(
        &self,
        now_ms: u64,
        at: &HolderAnswered,
        stored: StoredLook,
    ) -> Result<bool, StateError> {
        let Some(mut shard) = self.delegations.shard(&at.file) else { return Ok(false) };
        let Some(held) = shard.find_mut(&at.file, at.number) else { return Ok(false) };
        let verdict = held.unseen.as_mut().map(|unseen| unseen.judge(at.question, stored));
        match verdict.unwrap_or(Verdict::Unknown) {
            Verdict::Right => Ok(true),
            Verdict::Unknown => Ok(false),
            Verdict::Behind => {
                self.begin_recall(held, &at.file, now_ms);
                shard.quieten(&at.file, now_ms);
                Err(StateError::Recalling)
            }
        }
    }

    /// A look cannot wait for an answer: the delegation is recalled.
    ///
    /// # Errors
    /// As [`State::begin_read`].
    pub fn look_cannot_wait(
        &self,
        now_ms: u64,
        by: Option<&Arc<Client>>,
        file: &FileKey,
    ) -> Result<(), StateError> {
        if let Some(mut shard) = self.delegations.shard(file) {
            let all = shard.files.get_mut(file).into_iter().flatten();
            let held = all.filter(|held| is_of_other(held, by)).find(|held| held.recall.is_none());
            if let Some(held) = held {
                self.delegations.counters.unasked.fetch_add(1, Ordering::Relaxed);
                self.begin_recall(held, file, now_ms);
                shard.quieten(file, now_ms);
            }
        }
        self.begin_read(now_ms, by, file)
    }

    /// A holder says how its file is; `None` if it does not say, or not in time: then its delegation is recalled.
    /// `false`, and nothing happens, if the question has been answered or given up.
    pub fn holder_says(
        &self,
        now_ms: u64,
        (file, id): (&FileKey, &StateId),
        question: u64,
        says: Option<HolderSays>,
    ) -> bool {
        let Some(number) = id.delegation_number(self.settings.instance) else { return false };
        let Some(mut shard) = self.delegations.shard(file) else { return false };
        let Some(held) = shard.find_mut(file, number) else { return false };
        let Some(unseen) = held.unseen.as_mut().filter(|unseen| unseen.is_open(question)) else {
            return false;
        };
        if let Some(says) = says {
            unseen.take_answer(question, says);
            self.files.effects.push(Effect::Answered { file: *file, question });
            self.send_question(held, file, now_ms);
        } else {
            self.begin_recall(held, file, now_ms);
            shard.quieten(file, now_ms);
        }
        true
    }

    /// Whether a question was sent, and has no answer yet.
    pub fn is_asked(&self, (file, id): (&FileKey, &StateId), question: u64) -> bool {
        let Some(number) = id.delegation_number(self.settings.instance) else { return false };
        let shard = self.delegations.shard(file);
        let held = shard.as_ref().and_then(|shard| shard.find(file, number));
        held.and_then(|held| held.unseen.as_ref()).is_some_and(|unseen| unseen.is_open(question))
    }

    /// A question cannot be sent: the delegation is recalled.
    pub fn cannot_ask(&self, now_ms: u64, at: (&FileKey, &StateId), question: u64) {
        if self.holder_says(now_ms, at, question, None) {
            self.delegations.counters.unasked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Nobody is asked about a delegation any more: who waits for that goes on.
    pub(super) fn give_up_questions(&self, held: &mut Held, file: &FileKey) {
        for question in held.unseen.iter_mut().flat_map(|unseen| unseen.give_up()) {
            self.files.effects.push(Effect::Answered { file: *file, question });
        }
    }
}

/// Whether a delegation is one to write, of somebody else.
fn is_of_other(held: &Held, by: Option<&Arc<Client>>) -> bool {
    held.kind == DelegationKind::Write && by.is_none_or(|by| !Arc::ptr_eq(by, &held.client))
}
