//! What is pending, as steps on objects. Each object has its latest known handle, whatever handles it
//! had before, and its fate: whether the journal itself removes it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use steadfast_journal::{
    Attributes as Settings, Change, Journal, Kind, Pending, ReadError, Sequence,
};

use super::known;
use super::share::{Making, Stamp, Who};

/// An object of a plan: its place in [`Plan::objects`].
pub(crate) type Object = usize;
/// A name in a directory.
pub(crate) type Place = (Object, Arc<[u8]>);

/// What is known of an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectState {
    /// The latest handle. `None` if the answer that told it was lost.
    pub(crate) handle: Option<Vec<u8>>,
    /// What the journal knows was ours last.
    pub(crate) stamp: Option<Stamp>,
    pub(crate) path: Arc<[u8]>,
    /// The step that makes it.
    pub(crate) made_by: Option<usize>,
    /// Names it gets and loses in the journal.
    names: i64,
    removals: u32,
    /// The last record that renames it, links it or removes a name of it.
    pub(crate) last_renamed: Option<Sequence>,
    pub(crate) writes: Vec<Piece>,
    /// Sizes that it is truncated to, in order.
    pub(crate) truncations: Vec<Truncation>,
}

impl ObjectState {
    /// Whether it is not there any more once all is done.
    pub(crate) fn is_removed_later(&self) -> bool {
        self.removals > 0 && (self.made_by.is_none() || self.names <= 0)
    }
}

/// A range of a write that nothing later has superseded.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) sequence: Sequence,
    pub(crate) range: Range<u64>,
    pub(crate) is_doubtful: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Truncation {
    pub(crate) sequence: Sequence,
    pub(crate) size: u64,
    pub(crate) who: Who,
    pub(crate) time_ns: u64,
    pub(crate) is_doubtful: bool,
    /// The handle in the record.
    pub(crate) handle: Vec<u8>,
    /// As of [`Step`].
    pub(crate) answered_under: Option<[u8; 8]>,
}

/// A record that is no write.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) sequence: Sequence,
    pub(crate) time_ns: u64,
    pub(crate) who: Who,
    pub(crate) path: Arc<[u8]>,
    /// A later change may have superseded it.
    pub(crate) is_doubtful: bool,
    /// The server's verifier when it acknowledged the change: while it has that one, it has not lost it.
    pub(crate) answered_under: Option<[u8; 8]>,
    /// What the server said of the object then, or since it was replayed.
    pub(crate) answer: Option<Stamp>,
    pub(crate) action: Action,
}

impl Step {
    /// What it is about, without directories. `None`: an object that is not known.
    pub(crate) fn objects(&self) -> Vec<Option<Object>> {
        match &self.action {
            Action::SetAttr { object, .. }
            | Action::Make { object, .. }
            | Action::Link { object, .. } => vec![Some(*object)],
            Action::Remove { object, .. } => vec![*object],
            // What is not replaced is not unknown.
            Action::Rename { object, replaced, .. } => {
                std::iter::once(*object).chain(replaced.map(Some)).collect()
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Make {
        at: Place,
        object: Object,
        what: Making,
        settings: Settings,
    },
    /// Without a size. Attributes that a later record sets are left out.
    SetAttr {
        object: Object,
        settings: Settings,
    },
    Remove {
        at: Place,
        object: Option<Object>,
        is_directory: bool,
    },
    Rename {
        from: Place,
        to: Place,
        object: Option<Object>,
        replaced: Option<Object>,
    },
    Link {
        object: Object,
        at: Place,
    },
}

fn verifier_of(one: &Pending) -> Option<[u8; 8]> {
    one.outcome.as_ref().and_then(|outcome| outcome.verifier)
}

/// All that is to be done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) objects: Vec<ObjectState>,
    pub(crate) steps: Vec<Step>,
    /// All records that are settled when everything is done.
    pub(crate) sequences: Vec<Sequence>,
    /// Records that the ring does not give.
    pub(crate) unreadable: Vec<Sequence>,
    /// The steps about each object, in order.
    steps_of: HashMap<Object, Vec<usize>>,
    by_handle: HashMap<Vec<u8>, Object>,
    bindings: HashMap<Place, Vec<(Sequence, Object)>>,
}

impl Plan {
    pub(crate) fn read(journal: &Journal) -> Self {
        let mut plan = Self::default();
        let pending = journal.pending();
        // A handle that an object got later is known from the start.
        for one in &pending {
            plan.enter_made(one);
        }
        for one in &pending {
            if let Err(error) = plan.enter(journal, one) {
                tracing::error!(record = one.sequence.0, %error, "a record cannot be replayed");
                plan.unreadable.push(one.sequence);
            }
        }
        for (handle, object) in &plan.by_handle {
            let state = &mut plan.objects[*object];
            state.stamp = Stamp::newer(state.stamp, known::stamp_of(journal, handle));
        }
        plan.thin_settings();
        plan.thin_times();
        for (index, step) in plan.steps.iter().enumerate() {
            for object in step.objects().into_iter().flatten() {
                plan.steps_of.entry(object).or_default().push(index);
            }
        }
        plan
    }

    fn enter_made(&mut self, one: &Pending) {
        let mut object = None;
        for handle in known::handles_of(one) {
            let object = *object.get_or_insert_with(|| self.object(&handle));
            self.rename_handle(object, handle);
        }
    }

    /// The object of a handle.
    fn object(&mut self, handle: &[u8]) -> Object {
        if let Some(known) = self.by_handle.get(handle) {
            return *known;
        }
        self.objects.push(ObjectState { handle: Some(handle.to_vec()), ..Default::default() });
        self.by_handle.insert(handle.to_vec(), self.objects.len() - 1);
        self.objects.len() - 1
    }

    /// The steps about an object, in order.
    pub(crate) fn steps_of(&self, object: Object) -> impl Iterator<Item = usize> {
        self.steps_of.get(&object).into_iter().flatten().copied()
    }

    pub(crate) fn known(&self, handle: &[u8]) -> Option<Object> {
        self.by_handle.get(handle).copied()
    }

    /// The object has this handle from now on.
    pub(crate) fn rename_handle(&mut self, object: Object, handle: Vec<u8>) {
        self.by_handle.insert(handle.clone(), object);
        self.objects[object].handle = Some(handle);
    }

    /// Handles that objects had, with the latest one of each.
    pub(crate) fn renamed_handles(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let latest = |object: Object| self.objects.get(object)?.handle.as_ref();
        let known = self.by_handle.iter();
        let renamed = known.filter_map(|(old, object)| {
            let new = latest(*object)?;
            (new != old).then(|| (old.clone(), new.clone()))
        });
        renamed.collect()
    }

    fn optional(&mut self, handle: &[u8]) -> Option<Object> {
        (!handle.is_empty()).then(|| self.object(handle))
    }

    fn bind(&mut self, at: &Place, sequence: Sequence, object: Object) {
        self.bindings.entry(at.clone()).or_default().push((sequence, object));
    }

    fn unbind(&mut self, sequence: Sequence, object: Option<Object>) {
        if let Some(object) = object {
            let state = &mut self.objects[object];
            state.removals += 1;
            state.names -= 1;
            state.last_renamed = Some(sequence);
        }
    }

    /// Whether a later record binds the name to what this handle names: then the server has done that
    /// already, and all that came before it at this name.
    pub(crate) fn is_bound_later(&self, at: &Place, after: Sequence, handle: &[u8]) -> bool {
        let Some(object) = self.known(handle) else { return false };
        let bound = self.bindings.get(at).into_iter().flatten();
        bound.into_iter().any(|(sequence, which)| *sequence > after && *which == object)
    }

    fn enter_write(&mut self, one: &Pending) {
        let Some(file) = one.objects[0].as_deref() else { return };
        let object = self.object(file);
        let state = &mut self.objects[object];
        if state.path.is_empty() {
            state.path = Arc::clone(&one.path);
        }
        let (sequence, is_doubtful) = (one.sequence, one.may_be_superseded);
        let pieces = one.ranges.iter();
        let pieces = pieces.map(|range| Piece { sequence, range: range.clone(), is_doubtful });
        state.writes.extend(pieces);
        self.sequences.push(sequence);
    }

    fn enter(&mut self, journal: &Journal, one: &Pending) -> Result<(), ReadError> {
        let sequence = one.sequence;
        if one.kind == Kind::Write {
            self.enter_write(one);
            return Ok(());
        }
        let Some(stored) = journal.read(sequence)? else { return Ok(()) };
        let record = stored.record();
        let who = known::who_of(&record);
        let action = match record.change {
            Change::Write { .. } => return Ok(()),
            Change::SetAttr { object: handle, attributes } => {
                let object = self.object(handle);
                let state = &mut self.objects[object];
                if state.path.is_empty() {
                    state.path = Arc::clone(&one.path);
                }
                if let Some(size) = attributes.size {
                    state.truncations.push(Truncation {
                        sequence,
                        size,
                        who: who.clone(),
                        time_ns: one.time_ns,
                        is_doubtful: one.may_be_superseded,
                        handle: handle.to_vec(),
                        answered_under: verifier_of(one),
                    });
                }
                Action::SetAttr { object, settings: Settings { size: None, ..attributes } }
            }
            Change::Create { parent, name, verifier, attributes } => {
                let settings = Settings { size: None, ..attributes };
                self.making(one, parent, name, Making::File { verifier }, settings)
            }
            Change::Mkdir { parent, name, attributes } => {
                self.making(one, parent, name, Making::Directory(attributes), Settings::default())
            }
            Change::Symlink { parent, name, target, attributes } => {
                let what = Making::Symlink(target.to_vec(), attributes);
                self.making(one, parent, name, what, Settings::default())
            }
            Change::Mknod { parent, name, file_type, device, attributes } => {
                let what = Making::Special(file_type, device, attributes);
                self.making(one, parent, name, what, Settings::default())
            }
            Change::Remove { parent, name, object } | Change::Rmdir { parent, name, object } => {
                let at = (self.object(parent), name.into());
                let object = self.optional(object);
                self.unbind(sequence, object);
                Action::Remove { at, object, is_directory: one.kind == Kind::Rmdir }
            }
            Change::Rename {
                from_parent, from_name, to_parent, to_name, object, replaced, ..
            } => {
                let from = (self.object(from_parent), from_name.into());
                let to = (self.object(to_parent), to_name.into());
                let object = self.optional(object);
                let replaced = self.optional(replaced);
                // A rename to itself, or to another name of the same file, does nothing (rename(2)).
                if object.is_some() && replaced == object {
                    self.sequences.push(sequence);
                    return Ok(());
                }
                self.unbind(sequence, replaced);
                if let Some(object) = object {
                    self.objects[object].last_renamed = Some(sequence);
                    self.bind(&to, sequence, object);
                }
                Action::Rename { from, to, object, replaced }
            }
            Change::Link { file, parent, name } => {
                let object = self.object(file);
                let at = (self.object(parent), name.into());
                self.objects[object].names += 1;
                self.objects[object].last_renamed = Some(sequence);
                self.bind(&at, sequence, object);
                Action::Link { object, at }
            }
        };
        let path = Arc::clone(&one.path);
        let (time_ns, is_doubtful) = (one.time_ns, one.may_be_superseded);
        let answered_under = verifier_of(one);
        let answer = known::answer_of(one);
        self.steps.push(Step {
            sequence,
            time_ns,
            who,
            path,
            is_doubtful,
            answered_under,
            answer,
            action,
        });
        self.sequences.push(sequence);
        Ok(())
    }

    fn making(
        &mut self,
        one: &Pending,
        parent: &[u8],
        name: &[u8],
        what: Making,
        settings: Settings,
    ) -> Action {
        let at: Place = (self.object(parent), name.into());
        let object = if let Some(handle) = known::handles_of(one).last() {
            self.object(&handle)
        } else {
            self.objects.push(ObjectState::default());
            self.objects.len() - 1
        };
        let step = self.steps.len();
        let state = &mut self.objects[object];
        state.made_by = Some(step);
        state.names += 1;
        state.path = Arc::clone(&one.path);
        self.bind(&at, one.sequence, object);
        Action::Make { at, object, what, settings }
    }

    /// Leaves out times of the last change that a later write of ours replaces, whether its record has left or not. The
    /// time of the last access stays as it was set.
    fn thin_times(&mut self) {
        for step in &mut self.steps {
            let Action::SetAttr { object, settings } = &mut step.action else { continue };
            let state = &self.objects[*object];
            let data = state.writes.iter().map(|piece| piece.sequence);
            let data = data.chain(state.truncations.iter().map(|one| one.sequence));
            let (mut has_earlier, mut has_later) = (false, false);
            for sequence in data {
                has_earlier |= sequence < step.sequence;
                has_later |= sequence > step.sequence;
            }
            // What is earlier may be the newest change, since a replay has brought it that was cut off.
            let is_newer = |(last, answer): (Stamp, Stamp)| {
                !has_earlier && last.ctime > answer.ctime && last.mtime != answer.mtime
            };
            if has_later || state.stamp.zip(step.answer).is_some_and(is_newer) {
                settings.modified = None;
            }
        }
    }

    /// Leaves out attributes that a later record sets to something else.
    fn thin_settings(&mut self) {
        let mut set_later: HashSet<(Object, u8)> = HashSet::new();
        for step in self.steps.iter_mut().rev() {
            let (object, settings) = match &mut step.action {
                Action::SetAttr { object, settings } | Action::Make { object, settings, .. } => {
                    (*object, settings)
                }
                _ => continue,
            };
            let mut is_last = |which: u8| set_later.insert((object, which));
            settings.mode = settings.mode.filter(|_| is_last(0));
            settings.uid = settings.uid.filter(|_| is_last(1));
            settings.gid = settings.gid.filter(|_| is_last(2));
            settings.accessed = settings.accessed.filter(|_| is_last(3));
            settings.modified = settings.modified.filter(|_| is_last(4));
        }
    }
}
