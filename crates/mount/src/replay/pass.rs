//! One pass over a journal: all steps in order, then all data, then COMMIT. Nothing leaves the journal
//! before its end. If the server has restarted in between (its write verifier tells), all is looked at
//! once more.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use steadfast_client::{Attributes, FileType};
use steadfast_journal::{Attributes as Settings, Journal, Sequence};

use super::data::Records;
use super::keeper::Keeper;
use super::known;
use super::plan::{Action, Object, ObjectState, Place, Plan, Step};
use super::report::{Conflict, Report};
use super::share::{Answer, Failed, Making, Share, Stamp, Who};
use super::{ReplayError, Replayed};

/// Files that are tried when the write verifier is asked for.
const FILES_ASKED_ABOUT: usize = 16;

/// What is known about an object at the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Life {
    #[default]
    Unknown,
    Alive,
    Gone,
    /// It cannot be made: what is to be done with it cannot be done either.
    Lost {
        why: String,
        is_refused: bool,
    },
}

/// What has become of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    Sent,
    NotMade,
}

/// What one pass has learned that the next one has to know, also one of a later attempt: what it has changed
/// would look like a change of others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried {
    /// What was ours last, by handle.
    pub(crate) stamps: HashMap<Vec<u8>, Stamp>,
    /// Handles of what was made again: old and new.
    pub(crate) handles: Vec<(Vec<u8>, Vec<u8>)>,
    /// Handles of objects with a change that was sent and is not answered: they may have any stamp. Of use
    /// only while the server serves nobody else.
    pub(crate) in_doubt: HashSet<Vec<u8>>,
}

impl Carried {
    /// Others may have changed what was in doubt.
    pub(crate) fn forget_doubts(&mut self) {
        self.in_doubt.clear();
    }
}

pub(crate) struct Pass<'a> {
    pub(super) journal: &'a Journal,
    pub(super) share: &'a mut dyn Share,
    pub(super) keeper: &'a mut dyn Keeper,
    /// The largest WRITE, and READ, in bytes.
    pub(super) transfer_bytes: usize,
    pub(super) plan: Plan,
    pub(super) life: Vec<Life>,
    /// Steps of names that the server has done.
    pub(super) done: HashSet<usize>,
    /// Objects that lack a name, as a link could not be made.
    pub(super) unlinked: HashSet<Object>,
    /// Where an object is, by the steps so far.
    pub(super) places: HashMap<Object, Place>,
    /// Files that were made, whose attributes are still to be set: their steps.
    pub(super) fresh: Vec<usize>,
    /// Directories that were made before the verifier was known: their steps, and where.
    pub(super) unsure: Vec<(usize, Place)>,
    /// Files that have to be committed.
    pub(super) touched: BTreeMap<Object, Who>,
    /// Data of records before this one is done.
    pub(super) settled: HashMap<Object, Sequence>,
    pub(super) records: Records,
    /// Changes that are in flight: writes may come after those of others, and programs wait for the rest.
    pub(super) unanswered: &'a HashSet<Sequence>,
    pub(super) verifier: Option<[u8; 8]>,
    /// The server says itself what is stable.
    pub(super) has_program: bool,
    /// COMMIT says nothing; all is made stable at the end.
    pub(super) is_async: bool,
    pub(super) has_restarted: bool,
    pub(super) fates: HashMap<Sequence, Fate>,
    pub(super) carried: &'a mut Carried,
    pub(super) report: Report,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(
        journal: &'a Journal,
        share: &'a mut dyn Share,
        keeper: &'a mut dyn Keeper,
        transfer_bytes: usize,
        unanswered: &'a HashSet<Sequence>,
        carried: &'a mut Carried,
    ) -> Self {
        let mut plan = Plan::read(journal);
        for (old, new) in &carried.handles {
            if let Some(object) = plan.known(old) {
                plan.rename_handle(object, new.clone());
            }
        }
        for object in &mut plan.objects {
            let ours = object.handle.as_ref().and_then(|handle| carried.stamps.get(handle));
            object.stamp = Stamp::newer(object.stamp, ours.copied());
        }
        let report = Report {
            records: (plan.sequences.len() + plan.unreadable.len()) as u64,
            unreadable: plan.unreadable.clone(),
            ..Report::default()
        };
        Self {
            journal,
            share,
            keeper,
            transfer_bytes,
            life: vec![Life::Unknown; plan.objects.len()],
            plan,
            done: HashSet::new(),
            unlinked: HashSet::new(),
            places: HashMap::new(),
            fresh: Vec::new(),
            unsure: Vec::new(),
            touched: BTreeMap::new(),
            settled: HashMap::new(),
            records: Records::default(),
            unanswered,
            verifier: None,
            has_program: false,
            is_async: false,
            has_restarted: false,
            fates: HashMap::new(),
            carried,
            report,
        }
    }

    /// Brings everything to the server, or to conflict files. Returns the records that are settled.
    pub(crate) fn run(
        &mut self,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<Sequence>, ReplayError> {
        let all = self.report.records;
        self.share.begin();
        self.look_at_verifier()?;
        self.done = self.find_done()?;
        for index in 0..self.plan.steps.len() {
            let step = self.plan.steps[index].clone();
            if self.is_had(step.answered_under) {
                self.pass_over(&step);
                self.keep_times(&step)?;
                continue;
            }
            let is_done = self.done.contains(&index);
            match &step.action {
                Action::Make { .. } => self.make(index, &step)?,
                Action::Remove { .. } | Action::Rename { .. } | Action::Link { .. } if is_done => {
                    self.pass_over(&step);
                }
                Action::SetAttr { object, settings } => self.set(&step, *object, settings)?,
                Action::Remove { at, object, is_directory } => {
                    self.remove(&step, at, *object, *is_directory)?;
                }
                Action::Rename { from, to, object, replaced } => {
                    self.rename(&step, (from, to), *object, *replaced)?;
                }
                Action::Link { object, at } => self.link(&step, *object, at)?,
            }
            progress(index as u64 + 1, all);
        }
        self.set_fresh()?;
        let mut done = self.plan.steps.len() as u64;
        for object in 0..self.plan.objects.len() {
            self.settle_data(object, None)?;
            done += self.plan.objects[object].writes.len() as u64;
            progress(done.min(all), all);
        }
        self.take_back_directories()?;
        self.stabilize()?;
        progress(all, all);
        self.count();
        let unreadable = std::mem::take(&mut self.report.unreadable);
        let is_settled = |sequence: &Sequence| !unreadable.contains(sequence);
        let settled = self.plan.sequences.iter().copied().filter(is_settled).collect();
        self.report.unreadable = unreadable;
        Ok(settled)
    }

    /// The end of a pass that is the last one.
    pub(crate) fn replayed(self) -> Replayed {
        let is_lost =
            |(sequence, fate): (Sequence, Fate)| (fate == Fate::NotMade).then_some(sequence);
        let mut not_made: HashSet<Sequence> = self.fates.into_iter().filter_map(is_lost).collect();
        not_made.extend(&self.report.unreadable);
        let made = self.plan.steps.iter().filter_map(|step| {
            let Action::Make { object, .. } = &step.action else { return None };
            Some((step.sequence, self.plan.objects[*object].handle.clone()?))
        });
        let made = made.collect();
        let verifier = self.verifier;
        let report = Report { made_again: self.plan.renamed_handles(), ..self.report };
        Replayed { report, not_made, made, verifier }
    }

    /// Whether the server has not lost what it acknowledged under this verifier.
    pub(super) fn is_had(&self, answered_under: Option<[u8; 8]>) -> bool {
        answered_under.is_some() && answered_under == self.verifier
    }

    /// Notes where an object is by a change that the server has.
    fn pass_over(&mut self, step: &Step) {
        match &step.action {
            Action::Make { at, object, .. } => self.places.insert(*object, at.clone()),
            Action::Rename { to, object: Some(object), .. } => {
                self.places.insert(*object, to.clone())
            }
            _ => None,
        };
    }

    /// Has everything made stable that was sent, or found to be there.
    fn stabilize(&mut self) -> Result<(), ReplayError> {
        self.look_at_verifier()?;
        // Also if the share is not `async` (any more): what is there may have been acknowledged before.
        if self.has_program {
            self.sync_all()?;
        } else {
            self.commit_named()?;
        }
        for (object, who) in self.touched.clone() {
            self.commit(object, &who)?;
        }
        self.look_at_verifier()
    }

    /// Without the program, COMMIT of a file is all there is to make its names stable. All records leave at the end, so
    /// that also goes for names that the server had already: it may have acknowledged them just before. What of these
    /// cannot be committed has no data that would be lost.
    fn commit_named(&mut self) -> Result<(), ReplayError> {
        for (object, who) in self.named() {
            if self.touched.contains_key(&object) {
                continue;
            }
            let now = self.attributes(&who, Some(object))?;
            let Some(handle) = self.plan.objects[object].handle.clone() else { continue };
            if now.is_some_and(|now| now.file_type == FileType::Regular)
                && let Ok(verifier) = self.ask(|share| share.commit(&who, &handle))?
            {
                self.saw(verifier);
            }
        }
        Ok(())
    }

    /// All that a step is about, with who wrote to it, or who did the first of them.
    fn named(&mut self) -> BTreeMap<Object, Who> {
        let mut named: BTreeMap<Object, Who> = BTreeMap::new();
        for step in &self.plan.steps {
            for object in step.objects().into_iter().flatten() {
                named.entry(object).or_insert_with(|| step.who.clone());
            }
        }
        for (object, who) in &mut named {
            if !self.plan.objects[*object].writes.is_empty() {
                *who = self.who_writes(*object);
            }
        }
        named
    }

    /// One SYNC for each file system of the share that something was changed on.
    fn sync_all(&mut self) -> Result<(), ReplayError> {
        let mut objects: BTreeMap<Object, Who> = BTreeMap::new();
        for step in &self.plan.steps {
            let of_step: [Option<Object>; 2] = match &step.action {
                Action::Make { at, object, .. } => [Some(at.0), Some(*object)],
                Action::SetAttr { object, .. } => [Some(*object), None],
                Action::Remove { at, .. } | Action::Link { at, .. } => [Some(at.0), None],
                Action::Rename { from, to, .. } => [Some(from.0), Some(to.0)],
            };
            objects.extend(of_step.into_iter().flatten().map(|object| (object, step.who.clone())));
        }
        objects.extend(self.touched.clone());
        let mut synced: HashMap<u64, bool> = HashMap::new();
        for (object, who) in objects {
            let Some(now) = self.attributes(&who, Some(object))? else { continue };
            let Some(handle) = self.plan.objects[object].handle.clone() else { continue };
            let is_synced = if let Some(known) = synced.get(&now.fsid) {
                *known
            } else {
                match self.ask(|share| share.sync(&who, &handle))? {
                    Ok(Some(verifier)) => {
                        self.saw(verifier);
                        synced.insert(now.fsid, true);
                        true
                    }
                    // Then COMMIT is all there is.
                    Ok(None) => {
                        synced.insert(now.fsid, false);
                        false
                    }
                    Err(Failed::Gone | Failed::NoEntry) => continue,
                    Err(error) => return Err(ReplayError::Unreachable(format!("{error:?}"))),
                }
            };
            if is_synced {
                self.touched.remove(&object);
            }
        }
        Ok(())
    }

    fn count(&mut self) {
        self.report.unreadable.sort_unstable();
        self.report.unreadable.dedup();
        let of = |fate| self.fates.values().filter(|one| **one == fate).count() as u64;
        let (sent, not_made) = (of(Fate::Sent), of(Fate::NotMade));
        self.report.sent_records = sent;
        let others = sent + not_made + self.report.unreadable.len() as u64;
        self.report.already_there = self.report.records.saturating_sub(others);
    }

    /// Makes a call. What the server says of the object is an answer; no answer ends the replay.
    pub(super) fn ask<T>(
        &mut self,
        call: impl FnOnce(&mut dyn Share) -> Answer<T>,
    ) -> Result<Result<T, Failed>, ReplayError> {
        match call(self.share) {
            Err(Failed::Unreachable(why)) => Err(ReplayError::Unreachable(why)),
            Err(Failed::Restarted) => Err(ReplayError::Restarted),
            answer => Ok(answer),
        }
    }

    /// A write verifier was seen.
    pub(super) fn saw(&mut self, verifier: [u8; 8]) {
        self.has_restarted |= *self.verifier.get_or_insert(verifier) != verifier;
    }

    /// Asks for the verifier: by the recovery program, or if there is a file to ask about; so that a restart
    /// during changes of names is seen, too.
    fn look_at_verifier(&mut self) -> Result<(), ReplayError> {
        let status = self.ask(|share| share.status())?;
        if let Some(told) = status.map_err(|why| ReplayError::Unreachable(format!("{why:?}")))? {
            self.has_program = true;
            self.is_async = told.is_async;
            self.saw(told.verifier);
            return Ok(());
        }
        let is_file = |state: &ObjectState| {
            let is_made = |step: usize| {
                let action = self.plan.steps.get(step).map(|step| &step.action);
                matches!(action, Some(Action::Make { what: Making::File { .. }, .. }))
            };
            !state.writes.is_empty() || state.made_by.is_some_and(is_made)
        };
        let objects = self.plan.objects.iter().enumerate();
        let files = objects.filter(|(_, state)| state.handle.is_some() && is_file(state));
        let files: Vec<Object> = files.map(|(object, _)| object).take(FILES_ASKED_ABOUT).collect();
        // Those that were there before may be no files: then COMMIT is refused.
        let named = self.named();
        let others = named.keys().filter(|object| {
            let state = &self.plan.objects[**object];
            state.handle.is_some() && state.made_by.is_none() && !files.contains(object)
        });
        let others: Vec<Object> = others.copied().take(FILES_ASKED_ABOUT).collect();
        for object in files.into_iter().chain(others) {
            let who = match (self.plan.objects[object].made_by, named.get(&object)) {
                (Some(step), _) => self.plan.steps[step].who.clone(),
                (None, Some(who)) => who.clone(),
                (None, None) => self.who_writes(object),
            };
            let Some(handle) = self.plan.objects[object].handle.clone() else { continue };
            if let Ok(verifier) = self.ask(|share| share.commit(&who, &handle))? {
                self.saw(verifier);
                return Ok(());
            }
        }
        Ok(())
    }

    /// The first file that is made tells the verifier.
    pub(super) fn look_at_new_file(&mut self, who: &Who, file: &[u8]) -> Result<(), ReplayError> {
        if self.verifier.is_none() && !self.has_program {
            match self.ask(|share| share.commit(who, file))? {
                Ok(verifier) => self.saw(verifier),
                // It was made just now.
                Err(Failed::Gone) => self.has_restarted = true,
                Err(_) => {}
            }
        }
        Ok(())
    }

    pub(super) fn commit(&mut self, object: Object, who: &Who) -> Result<(), ReplayError> {
        let Some(handle) = self.plan.objects[object].handle.clone() else { return Ok(()) };
        match self.ask(|share| share.commit(who, &handle))? {
            Ok(verifier) => self.saw(verifier),
            Err(Failed::Gone) if self.plan.objects[object].is_removed_later() => {}
            Err(Failed::Refused(why)) => {
                self.keep_all(object, &format!("the server could not commit it: {why}"), true)?;
            }
            Err(_) => self.keep_all(object, "it was removed by others", false)?,
        }
        self.touched.remove(&object);
        Ok(())
    }

    /// Whether an object is at the server.
    pub(super) fn life(&mut self, who: &Who, object: Object) -> Result<Life, ReplayError> {
        if self.life[object] == Life::Unknown {
            let Some(handle) = self.plan.objects[object].handle.clone() else {
                return Ok(Life::Unknown);
            };
            let found = self.ask(|share| share.getattr(who, &handle))?;
            let is_gone = matches!(found, Err(Failed::Gone | Failed::NoEntry));
            self.life[object] = if is_gone { Life::Gone } else { Life::Alive };
        }
        Ok(self.life[object].clone())
    }

    /// The object has changed by our own hand just now.
    pub(super) fn ours(&mut self, object: Object, stamp: Option<Stamp>) {
        let Some(stamp) = stamp else { return };
        let state = &mut self.plan.objects[object];
        state.stamp = Some(stamp);
        if let Some(handle) = &state.handle {
            self.carried.in_doubt.remove(handle);
            self.carried.stamps.insert(handle.clone(), stamp);
        }
    }

    /// Makes a call that changes an object which nobody else has changed (`is_ours`). The next pass has to
    /// know of it, if it gets no answer.
    pub(super) fn ask_to_change<T>(
        &mut self,
        is_ours: bool,
        handle: &[u8],
        call: impl FnOnce(&mut dyn Share) -> Answer<T>,
    ) -> Result<Result<T, Failed>, ReplayError> {
        let is_first = is_ours && self.carried.in_doubt.insert(handle.to_vec());
        let answer = self.ask(call)?;
        if is_first {
            self.carried.in_doubt.remove(handle);
        }
        Ok(answer)
    }

    fn is_in_doubt(&self, state: &ObjectState) -> bool {
        state.handle.as_ref().is_some_and(|handle| self.carried.in_doubt.contains(handle))
    }

    /// Whether somebody else may have changed anything of an object.
    pub(super) fn is_changed(&self, object: Object, now: &Attributes) -> bool {
        let state = &self.plan.objects[object];
        if self.is_in_doubt(state) {
            return false;
        }
        state.stamp.is_none_or(|stamp| {
            // A new name changes the ctime, and no answer tells it. What was changed before it may be lost.
            let is_older =
                now.mtime < stamp.mtime || now.mtime == stamp.mtime && now.size <= stamp.size;
            let is_renamed_by_us = state.last_renamed.is_some() && is_older;
            now.ctime > stamp.ctime && !is_renamed_by_us
        })
    }

    /// Whether somebody else may have changed its data. A name, a link or a mode that was changed leaves
    /// the time of the last change of data as it was.
    pub(super) fn is_data_changed(&self, object: Object, now: Stamp) -> bool {
        let state = &self.plan.objects[object];
        if self.is_in_doubt(state) {
            return false;
        }
        let Some(stamp) = state.stamp else { return true };
        let is_renamed_by_us = state.last_renamed.is_some() && now.mtime < stamp.mtime;
        now.ctime > stamp.ctime && now.mtime != stamp.mtime && !is_renamed_by_us
    }

    /// A call that changes an object's ctime without telling it: what is ours stays ours.
    pub(super) fn around(
        &mut self,
        who: &Who,
        object: Option<Object>,
        call: impl FnOnce(&mut dyn Share) -> Answer<()>,
    ) -> Result<Result<(), Failed>, ReplayError> {
        let before = self.attributes(who, object)?;
        let ours = object.zip(before).filter(|(object, before)| !self.is_changed(*object, before));
        let Some((object, before)) = ours else { return self.ask(call) };
        let handle = self.plan.objects[object].handle.clone().unwrap_or_default();
        let is_first = self.carried.in_doubt.insert(handle.clone());
        let outcome = self.ask(call)?;
        if outcome.is_ok() {
            let after = self.attributes(who, Some(object))?;
            // Data that came in between is not ours.
            let same = after.filter(|after| before.mtime == after.mtime);
            self.ours(object, same.as_ref().map(Stamp::of));
        }
        if is_first {
            self.carried.in_doubt.remove(&handle);
        }
        Ok(outcome)
    }

    pub(super) fn attributes(
        &mut self,
        who: &Who,
        object: Option<Object>,
    ) -> Result<Option<Attributes>, ReplayError> {
        let handle = object.and_then(|object| self.plan.objects[object].handle.clone());
        let Some(handle) = handle else { return Ok(None) };
        Ok(self.ask(|share| share.getattr(who, &handle))?.ok())
    }

    pub(super) fn sync(&mut self) {
        if let Err(failed) = self.journal.sync(self.journal.status().last) {
            self.report.journal_error = Some(failed.why);
        }
    }

    /// Reports a change that is not made.
    pub(super) fn not_made(&mut self, step: &Step, why: impl Into<String>, is_refused: bool) {
        self.fates.insert(step.sequence, Fate::NotMade);
        self.report.conflicts.push(Conflict {
            sequence: step.sequence,
            path: step.path.to_vec(),
            time_ns: step.time_ns,
            uid: step.who.uid,
            is_refused,
            why: why.into(),
            kept_in: None,
            kept_bytes: 0,
        });
    }

    pub(super) fn sent(&mut self, sequence: Sequence) {
        self.fates.entry(sequence).or_insert(Fate::Sent);
    }

    /// Times that the server has as they were set, and that data of before changes if it is written again.
    fn keep_times(&mut self, step: &Step) -> Result<(), ReplayError> {
        let Action::SetAttr { object, settings } = &step.action else { return Ok(()) };
        let (accessed, modified) =
            (settings.accessed.filter(is_chosen), settings.modified.filter(is_chosen));
        if modified.is_some() && self.settle_data(*object, Some(step.sequence.next()))? {
            self.set(step, *object, &Settings { accessed, modified, ..Settings::default() })?;
        }
        Ok(())
    }

    /// Attributes of an object are set.
    fn set(&mut self, step: &Step, object: Object, settings: &Settings) -> Result<(), ReplayError> {
        self.settle_data(object, Some(step.sequence.next()))?;
        if *settings == Settings::default() {
            return Ok(());
        }
        self.set_fresh()?;
        match self.life(&step.who, object)? {
            Life::Alive => {}
            Life::Gone if !self.plan.objects[object].is_removed_later() => {
                self.not_made(step, "its attributes are not set: it was removed by others", false);
                return Ok(());
            }
            Life::Lost { .. } => {
                self.fates.insert(step.sequence, Fate::NotMade);
                return Ok(());
            }
            Life::Gone | Life::Unknown => return Ok(()),
        }
        let Some(now) = self.attributes(&step.who, Some(object))? else { return Ok(()) };
        let different = different(settings, &now);
        if different == Settings::default() {
            return Ok(());
        }
        // A time that the server chooses is there if anything came after our last change.
        let is_about_now = Settings { accessed: None, modified: None, ..different }
            == Settings::default()
            && ![different.accessed, different.modified].iter().flatten().any(is_chosen);
        if step.is_doubtful || self.is_changed(object, &now) {
            if !is_about_now {
                let why = "its attributes are not set: others have changed it meanwhile";
                self.not_made(step, why, false);
            }
            return Ok(());
        }
        self.set_attributes(step, object, &different)
    }

    pub(super) fn set_attributes(
        &mut self,
        step: &Step,
        object: Object,
        settings: &Settings,
    ) -> Result<(), ReplayError> {
        let Some(handle) = self.plan.objects[object].handle.clone() else { return Ok(()) };
        match self
            .ask_to_change(true, &handle, |share| share.setattr(&step.who, &handle, settings))?
        {
            Ok(stamp) => {
                self.ours(object, stamp);
                if let Action::SetAttr { .. } = &step.action {
                    known::note(self.journal, step.sequence, b"", stamp);
                }
                self.sent(step.sequence);
            }
            Err(Failed::Refused(why)) => {
                self.not_made(step, format!("its attributes are not set: {why}"), true);
            }
            Err(_) => self.not_made(step, "its attributes are not set: it is gone", false),
        }
        Ok(())
    }

    /// Sets the attributes of files that were made. Their handles are stable in the journal before that: it
    /// takes away the verifier by which the file would be found again.
    pub(super) fn set_fresh(&mut self) -> Result<(), ReplayError> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        self.sync();
        for index in std::mem::take(&mut self.fresh) {
            let step = self.plan.steps[index].clone();
            if let Action::Make { object, settings, .. } = step.action {
                self.set_attributes(&step, object, &made_settings(&settings))?;
            }
        }
        Ok(())
    }

    pub(super) fn path_of(&self, object: Object) -> Arc<[u8]> {
        Arc::clone(&self.plan.objects[object].path)
    }
}

/// The server may keep the verifier of an exclusive create in the times (RFC 1813 §3.3.8).
pub(super) fn made_settings(settings: &Settings) -> Settings {
    use steadfast_journal::SetTime::OfServer;
    Settings {
        accessed: settings.accessed.or(Some(OfServer)),
        modified: settings.modified.or(Some(OfServer)),
        ..*settings
    }
}

fn is_chosen(time: &steadfast_journal::SetTime) -> bool {
    matches!(time, steadfast_journal::SetTime::To { .. })
}

/// The settings that are not as they are wished.
pub(super) fn different(settings: &Settings, now: &Attributes) -> Settings {
    use steadfast_journal::SetTime;
    let time = |wished: Option<SetTime>, is: steadfast_client::Time| {
        wished.filter(|wished| match wished {
            SetTime::OfServer => true,
            SetTime::To { seconds, nanoseconds } => {
                (*seconds, *nanoseconds) != (i64::from(is.seconds), is.nanoseconds)
            }
        })
    };
    Settings {
        size: None,
        mode: settings.mode.filter(|mode| mode & 0o7777 != now.mode & 0o7777),
        uid: settings.uid.filter(|uid| *uid != now.uid),
        gid: settings.gid.filter(|gid| *gid != now.gid),
        accessed: time(settings.accessed, now.atime),
        modified: time(settings.modified, now.mtime),
    }
}
