//! What a change leaves behind on its way to being stable: a place in the intent log with what to
//! do again after a crash, and, where there is no log, the objects to be flushed.
//!
//! The place is taken under the locks that order the objects, just after the kernel has done the
//! change; the record is made outside them. What is flushed without the log while a log is in use
//! is told to it ([`crate::volume_log::VolumeLog::settled`]): older records must not be replayed over it.

use std::sync::Arc;

use smallvec::SmallVec;
use steadfast_recovery::{
    Action, AttributesUnderWay, Before, BegunCall, BegunMark, BeingMade, Change, LogPlace,
    ObjectKey, Ownership, Place,
};
use steadfast_vfs::{
    Attr, Caller, Durable, Flush, FlushTarget, FlushWhat, FsError, Obligation, Time,
};

use crate::async_changes::AsyncChange;
use crate::node::{AllOf, Node, NodePin, flush_target};
use crate::pins;
use crate::volume::Volume;

/// What has to be flushed for a change.
pub(crate) type Targets = SmallVec<[(NodePin<pins::Flush>, FlushWhat); 3]>;

/// What is told of an object before a change of its attributes.
pub(crate) fn before(attr: &Attr) -> Before {
    let Attr { ctime, mtime, .. } = *attr;
    Before { ctime, mtime, ownership: Some(Ownership::of(attr)) }
}

/// What times an object had before a change that leaves its owner and mode.
pub(crate) fn times_before(attr: &Attr) -> Before {
    let Attr { ctime, mtime, .. } = *attr;
    Before { ctime, mtime, ownership: None }
}

/// Where a gap begins that a change leaves in a file by what it puts at `start`.
pub(crate) fn gap(before: &Attr, start: u64) -> Option<u64> {
    (before.size < start).then_some(before.size)
}

/// A name in a directory, as the log has it.
pub(crate) fn place<'n>(dir: &Node, name: &'n [u8]) -> Place<'n> {
    Place { dir: dir.key(), name }
}

/// What a change leaves behind.
pub(crate) struct Effects<'a> {
    place: Option<Box<dyn LogPlace>>,
    /// Of a change that is not logged: held until it has been applied, so that the log is not
    /// switched on while it is half done.
    _pass: Option<Box<dyn LogPlace>>,
    /// For telling that something was written that is not logged.
    touch: Option<Box<dyn LogPlace>>,
    is_taken: bool,
    /// Of an `async` caller who has no place in the log.
    async_change: Option<AsyncChange>,
    /// Whether nobody is promised that the change is stable.
    is_async: bool,
    /// Where it is written down that the call has begun.
    begun: Option<BegunMark>,
    /// What was done.
    pub(crate) change: Change<'a>,
    /// What must be flushed if it is not logged.
    pub(crate) targets: Targets,
}

impl Effects<'_> {
    /// To be called before any lock is taken: waits while the log is full. `data_bytes` is how
    /// much there is in the change beside names and attributes.
    pub(crate) fn begin(
        volume: &Volume,
        caller: &Caller<'_>,
        data_bytes: usize,
    ) -> Result<Self, FsError> {
        if caller.is_async {
            return Self::begin_async(volume, data_bytes);
        }
        let place = match &volume.log {
            Some(log) if log.is_on() => log.admit(data_bytes)?,
            Some(log) => {
                log.require_no_fault()?;
                None
            }
            None => None,
        };
        Ok(Self::new(place))
    }

    /// The same of a caller to whom stability is not promised: in the log only if records are there
    /// already, which it must come after.
    fn begin_async(volume: &Volume, data_bytes: usize) -> Result<Self, FsError> {
        let mut effects = Self::of_async(volume)?;
        if let Some(log) = volume.log.as_ref().filter(|log| log.is_on())
            && volume.async_changes.has_records()
        {
            // Nobody is to have everything flushed for one that waits for room.
            if let Some(change) = effects.async_change.take() {
                change.cancel();
            }
            effects = Self::new(log.admit(data_bytes)?);
            effects.is_async = true;
            if effects.place.is_none() {
                effects.async_change = Some(volume.async_changes.begin());
            }
        }
        Ok(effects)
    }

    /// Of a caller to whom stability is not promised, and not in the log.
    fn of_async(volume: &Volume) -> Result<Self, FsError> {
        if let Some(log) = &volume.log {
            log.require_no_fault()?;
        }
        let mut effects = Self::new(None);
        effects.is_async = true;
        effects.async_change = Some(volume.async_changes.begin());
        Ok(effects)
    }

    /// Of a WRITE whose data is not to be logged: the log is told that it was done.
    pub(crate) fn of_touch(volume: &Volume, caller: &Caller<'_>) -> Result<Self, FsError> {
        if caller.is_async {
            let mut effects = Self::of_async(volume)?;
            if let Some(log) = volume.log.as_ref().filter(|log| log.is_on())
                && volume.async_changes.has_records()
            {
                let touch = log.admit(0)?;
                effects.touch = touch.filter(|place| place.is_logged());
            }
            return Ok(effects);
        }
        let touch = match &volume.log {
            Some(log) => {
                log.require_no_fault()?;
                if log.is_on() && log.is_in_use() { log.admit(0)? } else { None }
            }
            None => None,
        };
        let mut effects = Self::new(None);
        effects.touch = touch.filter(|place| place.is_logged());
        Ok(effects)
    }

    /// Tells the log that data was written that it does not have: so replay knows the times that the
    /// object got by it, and does not take it for changed by a local process. Under the lock that orders
    /// the object.
    pub(crate) fn touch(&mut self, node: &Node, before: Option<Before>) {
        let Some(mut place) = self.touch.take() else { return };
        place.take();
        let mut record = Vec::new();
        // Of an object that is gone there is nothing to tell.
        let action = node.attr().map_or(Action::Nothing, |attr| Action::Touched {
            object: node.key(),
            ctime: attr.ctime,
            mtime: attr.mtime,
        });
        Change { before, ..Change::new(action) }.encode(&mut record);
        drop(place.put(record));
    }

    /// Of what changes nothing.
    pub(crate) fn of_flush() -> Self {
        Self::new(None)
    }

    fn new(admitted: Option<Box<dyn LogPlace>>) -> Self {
        let (place, pass) = match admitted {
            Some(place) if place.is_logged() => (Some(place), None),
            pass => (None, pass),
        };
        Self {
            place,
            _pass: pass,
            touch: None,
            is_taken: false,
            async_change: None,
            is_async: false,
            begun: None,
            change: Change::new(Action::Nothing),
            targets: Targets::new(),
        }
    }

    pub(crate) fn is_logged(&self) -> bool {
        self.place.is_some()
    }

    /// Has the change flushed instead of logged, as what its place was admitted for has no room for it.
    /// Its place must not have been taken. The log can still be [told](Effects::touch) of it, so that replay
    /// does not take it for a local process's.
    pub(crate) fn flush_instead(&mut self, volume: &Volume) {
        self.touch = self.place.take();
        if self.is_async {
            self.async_change = Some(volume.async_changes.begin());
        }
    }

    /// Takes the change's place in the log, unless it has one. Under the locks that order the
    /// objects. Where the change may depend on others that are not stable, it has no place any more: it
    /// is flushed together with these.
    pub(crate) fn take(&mut self, volume: &Volume) {
        if let Some(place) = &mut self.place
            && !self.is_taken
        {
            if volume.async_changes.may_log() {
                place.take();
                self.is_taken = true;
                volume.async_changes.note_record();
            } else {
                self.flush_instead(volume);
            }
        }
    }

    /// Notes that attributes are about to be set. A change that is not logged may be there by halves after
    /// a crash.
    pub(crate) fn note_under_way(&mut self, volume: &Volume, under_way: &AttributesUnderWay) {
        if let (Some(place), Some(log)) = (&mut self.place, &volume.log) {
            place.note_under_way(log.identity(), under_way);
        }
    }

    /// Whether it is written down that the call begins.
    pub(crate) fn notes_calls(volume: &Volume, caller: &Caller<'_>) -> bool {
        let log = volume.log.as_ref().filter(|_| caller.call.is_some());
        log.is_some_and(|log| log.begun_calls().is_some())
    }

    /// Whether it is to be known what the call is about to change: for its record, or for that.
    pub(crate) fn needs_keys(&self, volume: &Volume, caller: &Caller<'_>) -> bool {
        self.is_logged() || Self::notes_calls(volume, caller)
    }

    /// Writes down that the call is about to change names, starting from this directory. Under the locks
    /// that order the directories, when nothing has been changed yet.
    pub(crate) fn begin_call(
        &mut self,
        caller: &Caller<'_>,
        dir: &Node,
        made: Option<BeingMade>,
        action: Action<'_>,
    ) {
        let (Some(call), Some(log)) = (caller.call, &dir.volume.log) else { return };
        let Some(calls) = log.begun_calls() else { return };
        self.begun = calls.begin(&BegunCall {
            call,
            file_system: *log.identity(),
            at: Time::default(),
            dir: dir.handle,
            fsid: dir.volume.fsid,
            made,
            action,
        });
    }

    /// The call has changed nothing after all.
    pub(crate) fn take_back_begin(&mut self, volume: &Volume) {
        if let Some(mark) = self.begun.take()
            && let Some(calls) = volume.log.as_ref().and_then(|log| log.begun_calls())
        {
            calls.take_back(mark);
        }
    }

    /// Tells an object's attributes after the change.
    pub(crate) fn tell(&mut self, object: ObjectKey, attr: Option<Attr>) {
        if let Some(attr) = attr
            && self.place.is_some()
        {
            self.change.after.retain(|(known, _)| *known != object);
            if self.change.after.len() < steadfast_recovery::AFTER_MAX {
                self.change.after.push((object, attr));
            }
        }
    }

    /// Has an object flushed as well, if the change is not logged. To be called when it has its place in the
    /// log, or will have none.
    pub(crate) fn also_flush(&mut self, node: &NodePin, what: FlushWhat) {
        if self.is_flushed() {
            self.targets.push((node.pin(), what));
        }
    }

    /// Whether what is to be flushed matters: nobody waits for that if the change is in the log, or it is
    /// not promised that it is stable.
    pub(crate) fn is_flushed(&self) -> bool {
        self.place.is_none() && !self.is_async
    }

    /// A failure. It is logged too, so that the call, should it come again after a crash, is
    /// answered alike and does not succeed then.
    pub(crate) fn fail<T>(mut self, volume: &Volume, error: FsError, value: T) -> Durable<T> {
        self.take_back_begin(volume);
        // A call that is to come again is executed again.
        if self.place.is_none()
            || self.is_async
            || matches!(error, FsError::TryLater | FsError::WouldBlock | FsError::WouldOpen)
        {
            return Durable::promising_nothing(value);
        }
        if !self.is_taken {
            // Whatever it was about to do was not done.
            self.change = Change::new(Action::Nothing);
        }
        self.take(volume);
        if self.place.is_none() {
            return Durable::promising_nothing(value);
        }
        self.promise(volume, value)
    }

    /// A result that may be told when the change is stable.
    pub(crate) fn promise<T>(mut self, volume: &Volume, value: T) -> Durable<T> {
        if let Some(place) = self.place.take() {
            // Not taken, there is nothing that must be stable.
            return if self.is_async {
                // Nobody waits for its record.
                if self.is_taken {
                    drop(self.change.put(place, 0));
                }
                Durable::promising_nothing(value)
            } else if self.is_taken {
                Durable::after(value, Obligation::Log(self.change.put(place, REPLY_BYTES)))
            } else {
                Durable::promising_nothing(value)
            };
        }
        let targets = std::mem::take(&mut self.targets);
        if volume.is_volatile() || self.is_async {
            return Durable::promising_nothing(value);
        }
        if volume.async_changes.are_unstable() && !targets.is_empty() {
            let all = |(node, what)| (Arc::new(AllOf(node)) as Arc<dyn FlushTarget>, what);
            let targets = targets.into_iter().take(1).map(all).collect();
            return Durable::after(
                value,
                Obligation::Flush(Flush { domain: volume.domain, targets }),
            );
        }
        let targets = targets.into_iter().map(|(node, what)| (flush_target(node), what)).collect();
        Durable::after(value, Obligation::Flush(Flush { domain: volume.domain, targets }))
    }
}

/// Room for what goes behind a change: whose call it was, and the reply.
const REPLY_BYTES: usize = 512;

impl Drop for Effects<'_> {
    fn drop(&mut self) {
        // Something was done before the operation failed.
        if let Some(place) = self.place.take()
            && self.is_taken
        {
            drop(self.change.put(place, 0));
        }
    }
}
