//! What clients have opened and were delegated, as far as they know, and what others did meanwhile.
//!
//! When the server executes a call nobody knows but the server: between the time at which it was sent
//! first, and that at which it was answered. A client has something at least from the reply that gives it
//! until it sent the last call whose reply says that nothing was revoked, or gives it up. So an act of
//! another that lies wholly within that time, and conflicts, is a fault.

use std::collections::{BTreeMap, VecDeque};

use crate::Checked;

/// Acts of a file that are remembered.
const ACTS_MAX: usize = 10_000;

/// What somebody has of a file, or does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// An open; whether it is to write.
    Open(bool),
    /// A delegation; whether it is to write.
    Delegation(bool),
    /// A change of its data, attributes or names.
    Change,
    /// A look at its data or attributes, by who has not opened it.
    Look,
}

impl What {
    pub(crate) fn is_delegation(self) -> bool {
        matches!(self, Self::Delegation(_))
    }

    /// Whether nobody may do `act` while another has this.
    fn forbids(self, act: Self) -> bool {
        match (self, act) {
            (Self::Delegation(true), _) | (Self::Delegation(false), Self::Change) => true,
            (Self::Delegation(false), Self::Open(writes) | Self::Delegation(writes)) => writes,
            (Self::Open(is_open_to_write), Self::Delegation(writes)) => writes || is_open_to_write,
            _ => false,
        }
    }
}

#[derive(Clone, Debug)]
struct Hold {
    who: u64,
    what: What,
    from_ms: u64,
    /// Acts that were answered before were compared.
    compared_ms: u64,
    /// What is known since the first loss of all after it was given: whether others had ended it by then.
    was_ended: Option<bool>,
}

/// Something that was done.
#[derive(Clone, Debug)]
struct Act {
    by: u64,
    what: What,
    sent_ms: u64,
    answered_ms: u64,
}

#[derive(Debug, Default)]
struct File {
    holds: Vec<Hold>,
    acts: VecDeque<Act>,
    /// When somebody tried last to change it.
    disturbed_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Change(u64),
    Unlink,
}

/// All that there is.
#[derive(Debug, Default)]
pub(crate) struct Delegated {
    files: BTreeMap<u64, File>,
    /// Calls under way that change a file, by their workers.
    asked: BTreeMap<(u64, usize), Asked>,
    /// When a name of one of the files was removed last, whichever it was.
    unlinked_ms: Option<u64>,
    /// Delegations that were granted, and given back after a loss.
    pub(crate) granted: u64,
    /// Recalls that a client has taken.
    pub(crate) recalled: u64,
    /// Delegations that were revoked.
    pub(crate) revoked: u64,
}

impl Delegated {
    /// Somebody was given something, by a call that was sent then and is answered now.
    pub(crate) fn gets(&mut self, who: u64, file: u64, what: What, sent_ms: u64, now_ms: u64) {
        self.did(who, file, what, sent_ms, now_ms);
        let file = self.files.entry(file).or_default();
        file.holds
            .retain(|hold| (hold.who, hold.what.is_delegation()) != (who, what.is_delegation()));
        file.holds.push(Hold { who, what, from_ms: now_ms, compared_ms: now_ms, was_ended: None });
        self.granted += u64::from(what.is_delegation());
    }

    /// Somebody has done something.
    pub(crate) fn did(&mut self, by: u64, file: u64, what: What, sent_ms: u64, answered_ms: u64) {
        let acts = &mut self.files.entry(file).or_default().acts;
        if acts.len() >= ACTS_MAX {
            acts.pop_front();
        }
        acts.push_back(Act { by, what, sent_ms, answered_ms });
    }

    /// A worker has sent a call that changes a file, or removes some name, or neither.
    pub(crate) fn asks(
        &mut self,
        worker: (u64, usize),
        changes: Option<u64>,
        unlinks: bool,
        now_ms: u64,
    ) {
        // It may have begun anew, and the call of before be under way still.
        self.is_answered(worker, now_ms);
        let asked = changes.map(Asked::Change).or(unlinks.then_some(Asked::Unlink));
        self.asked.extend(asked.map(|asked| (worker, asked)));
    }

    /// The call of a worker is answered, whatever it was told.
    pub(crate) fn is_answered(&mut self, worker: (u64, usize), now_ms: u64) {
        match self.asked.remove(&worker) {
            Some(Asked::Change(file)) => {
                self.files.entry(file).or_default().disturbed_ms = Some(now_ms);
            }
            Some(Asked::Unlink) => self.unlinked_ms = Some(now_ms),
            None => {}
        }
    }

    /// Whether somebody may have tried to change a file since a time.
    pub(crate) fn is_disturbed_since(&self, file: u64, since_ms: u64) -> bool {
        let disturbed_ms = self.files.get(&file).and_then(|file| file.disturbed_ms);
        let last_ms = disturbed_ms.max(self.unlinked_ms);
        let is_its = |asked: &Asked| [Asked::Change(file), Asked::Unlink].contains(asked);
        last_ms >= Some(since_ms) || self.asked.values().any(is_its)
    }

    /// Somebody gives up its delegation of a file, or its open.
    pub(crate) fn gives_up(&mut self, who: u64, file: u64, is_delegation: bool) {
        let file = self.files.entry(file).or_default();
        file.holds.retain(|hold| (hold.who, hold.what.is_delegation()) != (who, is_delegation));
    }

    /// Somebody has nothing any more.
    pub(crate) fn gives_up_all(&mut self, who: u64) {
        for file in self.files.values_mut() {
            file.holds.retain(|hold| hold.who != who);
        }
    }

    /// The server loses all that it does not record: what others did before a time, and were told of, it has recorded
    /// of whose delegations that ended. After the loss it knows of none that they could end.
    pub(crate) fn loses_all(&mut self, before_ms: u64) {
        for File { holds, acts, .. } in self.files.values_mut() {
            for hold in holds.iter_mut().filter(|hold| hold.what.is_delegation()) {
                let ends = |act: &Act| {
                    act.by != hold.who
                        && act.sent_ms > hold.from_ms
                        && act.answered_ms < before_ms
                        && hold.what.forbids(act.what)
                };
                let is_ended = acts.iter().any(ends);
                hold.was_ended.get_or_insert(is_ended);
            }
        }
    }

    /// Whether somebody counts on its delegation of a file, or on its open: it has not sent that it gives that up.
    pub(crate) fn is_counted_on(&self, who: u64, file: u64, is_delegation: bool) -> bool {
        let holds = self.files.get(&file).map_or(&[][..], |file| &file.holds);
        holds.iter().any(|hold| hold.who == who && hold.what.is_delegation() == is_delegation)
    }

    /// Whether others had ended somebody's delegation of a file before the server lost all, though it may not have
    /// heard so.
    pub(crate) fn was_ended(&self, who: u64, file: u64) -> bool {
        let holds = self.files.get(&file).map_or(&[][..], |file| &file.holds);
        let mut delegations = holds.iter().filter(|hold| hold.what.is_delegation());
        delegations.any(|hold| hold.who == who && hold.was_ended == Some(true))
    }

    /// Whatever somebody has it still had when the server executed a call that was sent then.
    ///
    /// # Errors
    /// What another did meanwhile.
    pub(crate) fn had_all(&mut self, who: u64, sent_ms: u64) -> Checked {
        for (number, file) in &mut self.files {
            for hold in file.holds.iter_mut().filter(|hold| hold.who == who) {
                let later = file.acts.iter().rev();
                let mut new = later.take_while(|act| act.answered_ms >= hold.compared_ms);
                let is_within = |act: &&Act| {
                    act.by != who
                        && act.sent_ms > hold.from_ms
                        && act.answered_ms < sent_ms
                        && hold.what.forbids(act.what)
                };
                if let Some(act) = new.find(is_within) {
                    return Err(format!(
                        "file {number}: {hold:?} was in the way of {act:?}, until {sent_ms} at least"
                    ));
                }
                hold.compared_ms = hold.compared_ms.max(sent_ms);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_within_a_delegation_is_found() {
        for (act, forbidden) in [
            (What::Change, [true, true]),
            (What::Look, [false, true]),
            (What::Open(false), [false, true]),
            (What::Open(true), [true, true]),
            (What::Delegation(false), [false, true]),
            (What::Delegation(true), [true, true]),
        ] {
            for (writes, forbidden) in [false, true].into_iter().zip(forbidden) {
                let mut all = Delegated::default();
                all.gets(1, 0, What::Delegation(writes), 5, 10);
                all.did(2, 0, act, 20, 30);
                all.had_all(1, 30).expect("it may have been given up before");
                assert_eq!(all.had_all(1, 31).is_err(), forbidden, "{act:?}, {writes}");
            }
        }
    }

    #[test]
    fn what_was_ended_before_a_loss_is_known() {
        for (before_ms, ended) in [(30, false), (31, true)] {
            let mut all = Delegated::default();
            all.gets(1, 0, What::Delegation(false), 5, 10);
            all.did(1, 0, What::Change, 11, 12);
            all.did(2, 0, What::Look, 11, 12);
            all.did(2, 0, What::Change, 20, 30);
            assert!(!all.was_ended(1, 0), "nothing is lost yet");
            all.loses_all(before_ms);
            assert_eq!(all.was_ended(1, 0), ended);
            assert!(!all.was_ended(2, 0) && !all.was_ended(1, 1));
            all.loses_all(40);
            assert_eq!(all.was_ended(1, 0), ended, "the server did not have it any more");
            all.gets(1, 0, What::Delegation(false), 35, 41);
            assert!(!all.was_ended(1, 0), "it is another one");
        }
    }

    #[test]
    fn what_may_lie_outside_is_no_fault() {
        let mut all = Delegated::default();
        all.gets(1, 0, What::Delegation(true), 5, 10);
        all.did(2, 0, What::Change, 10, 30);
        all.did(1, 0, What::Change, 11, 31);
        all.did(2, 1, What::Change, 11, 31);
        all.had_all(1, 50).expect("before the grant, of its own, and of another file");
        all.did(2, 0, What::Change, 60, 70);
        all.gives_up(1, 0, true);
        all.had_all(1, 80).expect("it was given up");
        all.gets(1, 0, What::Open(false), 85, 90);
        all.did(2, 0, What::Delegation(true), 100, 110);
        all.had_all(1, 120).expect_err("it has the file open");
        all.gives_up_all(1);
        all.had_all(1, 120).expect("it has nothing");
    }
}
