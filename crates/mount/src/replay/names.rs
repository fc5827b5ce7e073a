//! Changes of names: each is made only where its precondition holds and its effect is absent. Objects are
//! compared by their handles. A name that has an object which a *later* record puts there is evidence that
//! the server has done this record already.

use steadfast_client::FileType;
use steadfast_journal::{Attributes as Settings, Sequence};

use super::ReplayError;
use super::known;
use super::pass::{Fate, Life, Pass, different, made_settings};
use super::plan::{Action, Object, Place, Step};
use super::share::{Failed, Making, Stamp, Who};

/// What a name is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Bound {
    Nothing,
    /// There is no such directory.
    NoDirectory,
    /// The one that is looked for.
    Wanted,
    /// Another one, that a later record puts there.
    Later,
    Other(Vec<u8>),
}

/// A rename of an object.
struct Move {
    step: Step,
    from: Place,
    to: Place,
}

impl Pass<'_> {
    fn handle(&self, object: Object) -> Option<Vec<u8>> {
        self.plan.objects[object].handle.clone()
    }

    fn bound(
        &mut self,
        step: &Step,
        at: &Place,
        wanted: Option<Object>,
    ) -> Result<Bound, ReplayError> {
        if matches!(self.life(&step.who, at.0)?, Life::Gone | Life::Lost { .. }) {
            return Ok(Bound::NoDirectory);
        }
        let Some(directory) = self.handle(at.0) else { return Ok(Bound::NoDirectory) };
        let found = match self.ask(|share| share.lookup(&step.who, &directory, &at.1))? {
            Ok(found) => found,
            Err(Failed::NoEntry) => return Ok(Bound::Nothing),
            Err(Failed::Gone) => return Ok(Bound::NoDirectory),
            // It cannot be seen: as if it were somebody else's.
            Err(_) => return Ok(Bound::Other(Vec::new())),
        };
        if wanted.is_some() && self.plan.known(&found) == wanted {
            return Ok(Bound::Wanted);
        }
        if self.plan.is_bound_later(at, step.sequence, &found) {
            return Ok(Bound::Later);
        }
        Ok(Bound::Other(found))
    }

    /// The object of a step that makes one.
    pub(super) fn make(&mut self, index: usize, step: &Step) -> Result<(), ReplayError> {
        let Action::Make { at, object, settings, .. } = &step.action else { return Ok(()) };
        self.places.insert(*object, at.clone());
        match self.life(&step.who, *object)? {
            Life::Alive => self.complete(step, *object, at, settings),
            Life::Lost { .. } => Ok(()),
            // What the journal itself removes is not made again, unless something is to be made in it.
            Life::Gone if self.plan.objects[*object].is_removed_later() => Ok(()),
            Life::Gone | Life::Unknown => self.make_anew(index),
        }
    }

    /// The object is there; its attributes may have been cut off.
    fn complete(
        &mut self,
        step: &Step,
        object: Object,
        at: &Place,
        settings: &Settings,
    ) -> Result<(), ReplayError> {
        let Action::Make { what: what @ Making::File { verifier }, .. } = &step.action else {
            return Ok(());
        };
        if *settings == Settings::default() {
            return Ok(());
        }
        let Some(now) = self.attributes(&step.who, Some(object))? else { return Ok(()) };
        if different(settings, &now) == Settings::default() {
            return Ok(());
        }
        let is_ours = !self.is_changed(object, &now) && !step.is_doubtful;
        let is_untouched = !is_ours
            && *verifier != [0; 8]
            && self.bound(step, at, Some(object))? == Bound::Wanted
            && self
                .is_met_again(step, at, what)?
                .is_some_and(|handle| self.plan.known(&handle) == Some(object));
        if is_ours || is_untouched {
            return self.set_attributes(step, object, &made_settings(settings));
        }
        Ok(())
    }

    /// An exclusive create that meets its own file: nobody has set its times since.
    fn is_met_again(
        &mut self,
        step: &Step,
        at: &Place,
        what: &Making,
    ) -> Result<Option<Vec<u8>>, ReplayError> {
        let Some(directory) = self.handle(at.0) else { return Ok(None) };
        let made = self.ask(|share| share.make(&step.who, &directory, &at.1, what))?;
        Ok(made.ok().map(|(handle, _)| handle))
    }

    /// Makes what is not there.
    fn make_anew(&mut self, index: usize) -> Result<(), ReplayError> {
        let step = self.plan.steps[index].clone();
        let Action::Make { object, what, settings, .. } = &step.action else { return Ok(()) };
        let object = *object;
        let Some(at) = self.places.get(&object).cloned() else { return Ok(()) };
        self.make_directory_anew(&step, at.0)?;
        let is_there = self.life(&step.who, at.0)? == Life::Alive;
        let directory = self.handle(at.0).filter(|_| is_there);
        let Some(directory) = directory else {
            self.lose(&step, object, "its directory is not there any more", false);
            return Ok(());
        };
        match self.ask(|share| share.make(&step.who, &directory, &at.1, what))? {
            Ok((handle, mut stamp)) => {
                let is_file = matches!(what, Making::File { .. });
                if is_file {
                    if stamp.is_none() {
                        let now = self.ask(|share| share.getattr(&step.who, &handle))?;
                        stamp = now.ok().as_ref().map(Stamp::of);
                    }
                    // Before the journal notes it: that forgets the verifier of the first answer, and a replay
                    // after one that is cut off here could not tell any more that nothing was lost.
                    self.look_at_new_file(&step.who, &handle)?;
                    if self.is_had(step.answered_under) {
                        return self.take_back(&step, &at, object, (&handle, stamp));
                    }
                }
                self.was_made(&step, object, handle, stamp);
                self.sent(step.sequence);
                let has_settings = *settings != Settings::default();
                self.fresh.extend((is_file && has_settings).then_some(index));
                if self.verifier.is_none() && matches!(what, Making::Directory(_)) {
                    self.unsure.push((index, at));
                }
            }
            Err(Failed::Exists) => self.meet(&step, &at, object, what)?,
            Err(Failed::Refused(why)) => {
                self.lose(&step, object, &format!("it cannot be made: {why}"), true);
            }
            Err(_) => self.lose(&step, object, "its directory is not there any more", false),
        }
        Ok(())
    }

    /// The first file that was made again has told that the server has lost nothing: somebody else has removed it.
    /// If others have used the one that was made meanwhile, or have its name, that is theirs.
    fn take_back(
        &mut self,
        step: &Step,
        at: &Place,
        object: Object,
        (handle, made): (&[u8], Option<Stamp>),
    ) -> Result<(), ReplayError> {
        let now = self.ask(|share| share.getattr(&step.who, handle))?.ok();
        let is_untouched = made
            .zip(now.as_ref().map(Stamp::of))
            .is_some_and(|(made, now)| now.size == 0 && (0, made.ctime) == (made.size, now.ctime));
        if let Some(directory) = self.handle(at.0).filter(|_| is_untouched)
            && self.ask(|share| share.lookup(&step.who, &directory, &at.1))?.as_deref()
                == Ok(handle)
        {
            // If it stays, it is an empty file too many, which the report names.
            let _ = self.ask(|share| share.remove(&step.who, &directory, &at.1))?;
        }
        self.lose(step, object, "it was removed by others", false);
        Ok(())
    }

    /// Directories that were made again before the server told that it had lost nothing: somebody else has removed them.
    /// One in which something is by now stays.
    pub(super) fn take_back_directories(&mut self) -> Result<(), ReplayError> {
        while let Some((index, at)) = self.unsure.pop() {
            let step = self.plan.steps[index].clone();
            let Action::Make { object, .. } = step.action else { continue };
            if self.has_restarted || !self.is_had(step.answered_under) {
                continue;
            }
            let Some((parent, handle)) = self.handle(at.0).zip(self.handle(object)) else {
                continue;
            };
            if self.ask(|share| share.lookup(&step.who, &parent, &at.1))?.as_ref() == Ok(&handle)
                && self.ask(|share| share.rmdir(&step.who, &parent, &at.1))?.is_ok()
            {
                self.lose(&step, object, "it was removed by others", false);
            }
        }
        Ok(())
    }

    /// A directory that the journal removes later was not made again until something comes into it.
    fn make_directory_anew(&mut self, step: &Step, directory: Object) -> Result<(), ReplayError> {
        let state = &self.plan.objects[directory];
        let maker = state.made_by.filter(|_| state.is_removed_later());
        let maker = maker.filter(|maker| self.plan.steps[*maker].sequence < step.sequence);
        match maker {
            Some(maker) if self.life(&step.who, directory)? == Life::Gone => self.make_anew(maker),
            _ => Ok(()),
        }
    }

    fn was_made(&mut self, step: &Step, object: Object, handle: Vec<u8>, stamp: Option<Stamp>) {
        if let Some(old) = self.handle(object).filter(|old| *old != handle) {
            self.carried.handles.push((old, handle.clone()));
        }
        // The stamps of a record that makes something are its directory's.
        known::note(self.journal, step.sequence, &handle, None);
        self.plan.rename_handle(object, handle);
        // What was known of the one that was lost says nothing about this one.
        self.plan.objects[object].stamp = stamp;
        self.ours(object, stamp);
        self.life[object] = Life::Alive;
        // That it is not there was no sign of its removal.
        self.not_done(object);
    }

    /// The name of what is to be made is there.
    fn meet(
        &mut self,
        step: &Step,
        at: &Place,
        object: Object,
        what: &Making,
    ) -> Result<(), ReplayError> {
        let why = "another object has its name now";
        match self.bound(step, at, Some(object))? {
            Bound::Wanted => self.life[object] = Life::Alive,
            // It was moved away or removed later, and is not known: nothing later is about it.
            Bound::Later if self.handle(object).is_none() => {}
            // Whoever waits for it may mean to be the only one, and the server would have known its own by
            // the verifier.
            Bound::Other(_) if self.is_exclusive_now(step, what) => {
                self.lose(step, object, why, false);
            }
            Bound::Other(handle) if self.is_as_good(&step.who, object, &handle, what)? => {
                self.was_made(step, object, handle, None);
            }
            _ => self.lose(step, object, why, false),
        }
        Ok(())
    }

    fn is_exclusive_now(&self, step: &Step, what: &Making) -> bool {
        matches!(what, Making::File { verifier } if *verifier != [0; 8])
            && self.unanswered.contains(&step.sequence)
    }

    /// Whether what has the name is what was to be made, and nothing of anybody is lost by taking it for
    /// that.
    fn is_as_good(
        &mut self,
        who: &Who,
        object: Object,
        handle: &[u8],
        what: &Making,
    ) -> Result<bool, ReplayError> {
        let Ok(now) = self.ask(|share| share.getattr(who, handle))? else { return Ok(false) };
        Ok(match what {
            // Of a file whose handle the client never got it has written nothing.
            Making::File { .. } => {
                let is_unknown = self.handle(object).is_none();
                is_unknown && now.file_type == FileType::Regular && now.size == 0
            }
            Making::Directory(_) => now.file_type == FileType::Directory,
            Making::Symlink(target, _) => {
                now.file_type == FileType::Symlink
                    && self.ask(|share| share.readlink(who, handle))?.as_ref() == Ok(target)
            }
            Making::Special(file_type, device, _) => {
                let is = match now.file_type {
                    FileType::Fifo => 0o010_000,
                    FileType::CharacterDevice => 0o020_000,
                    FileType::BlockDevice => 0o060_000,
                    FileType::Socket => 0o140_000,
                    FileType::Regular | FileType::Directory | FileType::Symlink => {
                        return Ok(false);
                    }
                };
                let has_device = matches!(is, 0o020_000 | 0o060_000);
                is == file_type & 0o170_000
                    && (!has_device || <[u32; 2]>::from(now.rdev) == *device)
            }
        })
    }

    /// The object cannot be made. Its data is kept when its turn comes.
    fn lose(&mut self, step: &Step, object: Object, why: &str, is_refused: bool) {
        let removed = self.plan.objects[object].is_removed_later();
        self.life[object] = Life::Lost { why: why.to_owned(), is_refused };
        // What is not there any more at the end is nobody's loss.
        if !removed {
            self.not_made(step, why, is_refused);
        }
    }

    /// A name is removed.
    pub(super) fn remove(
        &mut self,
        step: &Step,
        at: &Place,
        object: Option<Object>,
        is_directory: bool,
    ) -> Result<(), ReplayError> {
        match self.bound(step, at, object)? {
            Bound::Wanted => self.remove_bound(step, at, object, is_directory),
            // Without a handle nobody knows what was meant.
            Bound::Other(_) if object.is_none() => {
                self.not_made(step, "it is not removed: what had the name is not known", false);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn remove_bound(
        &mut self,
        step: &Step,
        at: &Place,
        object: Option<Object>,
        is_directory: bool,
    ) -> Result<(), ReplayError> {
        let Some(directory) = self.handle(at.0) else { return Ok(()) };
        if let Some(object) = object
            && !is_directory
            && self.is_put_back(step, at, object)?
        {
            return Ok(());
        }
        if !is_directory && let Some(why) = self.must_stay(&step.who, object)? {
            self.not_made(step, format!("it is not removed: {why}"), false);
            return Ok(());
        }
        let removed = self.around(&step.who, object, |share| {
            if is_directory {
                share.rmdir(&step.who, &directory, &at.1)
            } else {
                share.remove(&step.who, &directory, &at.1)
            }
        })?;
        match removed {
            Ok(()) => {
                self.sent(step.sequence);
                if let Some(object) = object {
                    // It may have other names.
                    self.life[object] = Life::Unknown;
                }
            }
            Err(Failed::NoEntry | Failed::Gone) => {}
            Err(Failed::Refused(why)) => self.not_made(step, format!("not removed: {why}"), true),
            Err(_) => self.not_made(step, "not removed", true),
        }
        Ok(())
    }

    /// Why a name of an object is not taken from it, if something would be lost with that.
    fn must_stay(
        &mut self,
        who: &Who,
        object: Option<Object>,
    ) -> Result<Option<&'static str>, ReplayError> {
        let Some((object, now)) = object.zip(self.attributes(who, object)?) else {
            return Ok(None);
        };
        if self.unlinked.contains(&object) && now.nlink == 1 {
            return Ok(Some("it would have no name, as a link of it could not be made"));
        }
        let is_known = self.plan.objects[object].stamp.is_some();
        let is_changed = is_known && self.is_data_changed(object, Stamp::of(&now));
        Ok(is_changed.then_some("others have changed it meanwhile"))
    }

    /// An object gets another name.
    pub(super) fn rename(
        &mut self,
        step: &Step,
        (from, to): (&Place, &Place),
        object: Option<Object>,
        replaced: Option<Object>,
    ) -> Result<(), ReplayError> {
        let Some(object) = object else { return self.rename_unknown(step, from, to, replaced) };
        self.places.insert(object, to.clone());
        match self.life(&step.who, object)? {
            Life::Lost { .. } => {
                self.fates.insert(step.sequence, Fate::NotMade);
                return Ok(());
            }
            Life::Gone => return self.rename_gone(step, object, to, replaced),
            Life::Unknown | Life::Alive => {}
        }
        // A later replay finds the attributes that are to be set by the name.
        if self.fresh.iter().any(|index| self.is_made_by(object, *index)) {
            self.set_fresh()?;
        }
        // A name that gets a file has its data, so that nobody sees, or is left with, half of it.
        if self.settle_data(object, None)? {
            self.set_fresh()?;
            if let (Some(who), false) = (self.touched.get(&object).cloned(), self.is_async) {
                self.commit(object, &who)?;
            }
        }
        if self.bound(step, from, Some(object))? != Bound::Wanted {
            let is_done = self.bound(step, to, Some(object))? == Bound::Wanted
                || self.is_moved_later(object, step.sequence);
            if !is_done {
                self.not_made(step, "it is not renamed: others have renamed it meanwhile", false);
            }
            return Ok(());
        }
        self.make_directory_anew(step, to.0)?;
        let what = match self.bound(step, to, Some(object))? {
            // What is replaced may get the name back later.
            Bound::Later if replaced.is_some() => self.bound(step, to, replaced)?,
            Bound::Other(handle) if replaced.is_some() && self.plan.known(&handle) == replaced => {
                Bound::Wanted
            }
            // Two names of one file: a rename does nothing then (rename(2)).
            Bound::Wanted => return Ok(()),
            what => what,
        };
        match what {
            Bound::Later => return Ok(()),
            Bound::Nothing => {}
            Bound::NoDirectory => {
                if !self.is_moved_later(object, step.sequence) {
                    let why = "it is not renamed: the directory is not there any more";
                    self.not_made(step, why, false);
                }
                return Ok(());
            }
            Bound::Wanted if self.must_stay(&step.who, replaced)?.is_none() => {}
            Bound::Wanted | Bound::Other(_) => {
                let why = "it is not renamed: the new name has something else of others";
                self.not_made(step, why, false);
                return Ok(());
            }
        }
        self.rename_now(step, from, to, Some(object))?;
        if let Some(replaced) = replaced {
            self.life[replaced] = Life::Unknown;
        }
        Ok(())
    }

    fn rename_now(
        &mut self,
        step: &Step,
        from: &Place,
        to: &Place,
        object: Option<Object>,
    ) -> Result<(), ReplayError> {
        let (Some(old), Some(new)) = (self.handle(from.0), self.handle(to.0)) else {
            return Ok(());
        };
        let renamed = self.around(&step.who, object, |share| {
            share.rename(&step.who, (&old, &from.1), (&new, &to.1))
        })?;
        match renamed {
            Ok(()) => self.sent(step.sequence),
            Err(Failed::Refused(why)) => self.not_made(step, format!("not renamed: {why}"), true),
            Err(_) => self.not_made(step, "it is not renamed: others were faster", false),
        }
        Ok(())
    }

    /// A rename of something that is not there.
    fn rename_gone(
        &mut self,
        step: &Step,
        object: Object,
        to: &Place,
        replaced: Option<Object>,
    ) -> Result<(), ReplayError> {
        if !self.plan.objects[object].is_removed_later() {
            self.not_made(step, "it is not renamed: it was removed by others", false);
            return Ok(());
        }
        // It was there, was renamed and removed; or it was never there again, and what it replaced is.
        let Some(replaced) = replaced else { return Ok(()) };
        if self.bound(step, to, Some(replaced))? == Bound::Wanted {
            let is_directory = self
                .attributes(&step.who, Some(replaced))?
                .is_some_and(|now| now.file_type == FileType::Directory);
            self.remove_bound(step, to, Some(replaced), is_directory)?;
        }
        Ok(())
    }

    /// A rename of what has no known handle.
    fn rename_unknown(
        &mut self,
        step: &Step,
        from: &Place,
        to: &Place,
        replaced: Option<Object>,
    ) -> Result<(), ReplayError> {
        match self.bound(step, from, None)? {
            Bound::Other(handle) if !handle.is_empty() => {}
            _ => return Ok(()),
        }
        let may_replace = match self.bound(step, to, replaced)? {
            Bound::Nothing => true,
            Bound::Wanted => self.must_stay(&step.who, replaced)?.is_none(),
            Bound::Later | Bound::NoDirectory | Bound::Other(_) => false,
        };
        if may_replace {
            return self.rename_now(step, from, to, None);
        }
        self.not_made(step, "it is not renamed: what had the names is not known", false);
        Ok(())
    }

    /// Whether a name that was taken from an object has it because a later record gave it back: removing it
    /// again would be the end of the object.
    fn is_put_back(
        &mut self,
        step: &Step,
        at: &Place,
        object: Object,
    ) -> Result<bool, ReplayError> {
        let moves = self.moves_since(step, object);
        if let Some(back) = moves.iter().rposition(|one| one.to == *at) {
            // It was moved back if it is nowhere on the way there.
            let mut place = moves[back].to.clone();
            for one in moves[..=back].iter().rev() {
                if one.to == place {
                    place = one.from.clone();
                    if self.bound(&one.step, &place, Some(object))? == Bound::Wanted {
                        return Ok(false);
                    }
                }
            }
            return Ok(true);
        }
        let is_linked_later = self.plan.steps_of(object).any(|index| {
            let other = &self.plan.steps[index];
            other.sequence > step.sequence
                && matches!(&other.action, Action::Link { object: linked, at: name }
                    if *linked == object && name == at)
        });
        // Nobody could link what had lost its only name.
        let now = if is_linked_later { self.attributes(&step.who, Some(object))? } else { None };
        Ok(now.is_some_and(|now| now.nlink == 1))
    }

    /// The renames of an object from a step on, with that.
    fn moves_since(&self, step: &Step, object: Object) -> Vec<Move> {
        let steps = self.plan.steps_of(object).map(|index| &self.plan.steps[index]);
        let later = steps.filter(|other| other.sequence >= step.sequence);
        let moves = later.filter_map(|other| match &other.action {
            Action::Rename { object: Some(moved), from, to, .. } if *moved == object => {
                Some(Move { step: other.clone(), from: from.clone(), to: to.clone() })
            }
            _ => None,
        });
        moves.collect()
    }

    fn is_moved_later(&self, object: Object, after: Sequence) -> bool {
        self.plan.objects[object].last_renamed.is_some_and(|last| last > after)
    }

    /// A file gets one more name.
    pub(super) fn link(
        &mut self,
        step: &Step,
        object: Object,
        at: &Place,
    ) -> Result<(), ReplayError> {
        match self.life(&step.who, object)? {
            Life::Alive => {}
            Life::Lost { .. } => {
                self.fates.insert(step.sequence, Fate::NotMade);
                return Ok(());
            }
            Life::Gone | Life::Unknown => {
                if !self.plan.objects[object].is_removed_later() {
                    self.not_made(step, "it gets no link: it was removed by others", false);
                }
                return Ok(());
            }
        }
        self.make_directory_anew(step, at.0)?;
        match self.bound(step, at, Some(object))? {
            Bound::Wanted | Bound::Later => Ok(()),
            Bound::NoDirectory if self.is_moved_later(object, step.sequence) => Ok(()),
            Bound::NoDirectory | Bound::Other(_) => {
                let why = "it gets no link: the name has another object, or no directory";
                self.unlinked.insert(object);
                self.not_made(step, why, false);
                Ok(())
            }
            Bound::Nothing => {
                let (Some(file), Some(directory)) = (self.handle(object), self.handle(at.0)) else {
                    return Ok(());
                };
                let linked = self.around(&step.who, Some(object), |share| {
                    share.link(&step.who, &file, &directory, &at.1)
                })?;
                match linked {
                    Ok(()) => self.sent(step.sequence),
                    Err(error) => {
                        self.unlinked.insert(object);
                        match error {
                            Failed::Refused(why) => {
                                self.not_made(step, format!("it gets no link: {why}"), true);
                            }
                            _ => self.not_made(step, "it gets no link: others were faster", false),
                        }
                    }
                }
                Ok(())
            }
        }
    }
}
