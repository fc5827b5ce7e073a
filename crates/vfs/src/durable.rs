//! Results that may not leave before what they tell of is stable.
//!
//! A changing operation of [`crate::FileSystem`] returns [`Durable`]: the result together with
//! an [`Obligation`]. A protocol may transform the result ([`Durable::map`]), which is how it
//! encodes the reply, but only the engine's reply barrier takes it apart. A reply that forgets
//! stability does not compile.
//!
//! An obligation is met by the intent log, which gets the change together with its reply, or, of
//! what is not logged, by flushing objects, gathered across calls.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use smallvec::SmallVec;

use crate::FsError;

/// A file system as the flusher sees it: one queue of flushes each. Small numbers, dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlushDomain(pub u32);

/// How much of an object must reach the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlushWhat {
    /// The data and what is needed to read it back (`fdatasync`).
    Data,
    /// The data and all attributes; for a directory its entries (`fsync`).
    Everything,
}

/// An object that can be made stable.
pub trait FlushTarget: Send + Sync {
    /// A number that two targets share exactly when one flush serves both, unique in its domain.
    fn flush_key(&self) -> u64;

    /// Makes the object stable. Blocks.
    ///
    /// # Errors
    /// The storage's; after one, nothing written before may be assumed stable.
    fn flush(&self, what: FlushWhat) -> Result<(), FsError>;

    /// Makes the object's whole file system stable (`syncfs`). Blocks.
    ///
    /// # Errors
    /// As [`FlushTarget::flush`].
    fn flush_file_system(&self) -> Result<(), FsError>;

    /// If a flush of the object is one of its whole file system, and serves all who came before it began, also those of
    /// other domains (subvolumes): the number of the last one that failed, by the count of whoever makes these flushes.
    /// They are made by [`FlushTarget::flush_for_all`] then.
    fn last_shared_failure(&self) -> Option<&AtomicU64> {
        None
    }

    /// As [`FlushTarget::flush_file_system`]. The kernel tells of a failure once, and the next such flush succeeds: so it
    /// is `noted` before that can end.
    ///
    /// # Errors
    /// As [`FlushTarget::flush`].
    fn flush_for_all(&self, noted: &dyn Fn(FsError)) -> Result<(), FsError> {
        let flushed = self.flush_file_system();
        if let Err(error) = flushed {
            noted(error);
        }
        flushed
    }

    /// A flush of the whole file system, by another target, begins: what is written to the
    /// object from here on may not be part of it.
    fn flush_begins(&self) {}

    /// A flush that began ([`FlushTarget::flush_begins`]) has ended, with success or without.
    fn flush_ended(&self, _is_done: bool) {}
}

/// The record of a change that has its place in the intent log. What a record is, only the log and
/// who reads it after a crash know.
pub trait LogRecord: Send {
    /// Fills the record: `append` adds what stands behind the change, to be called once. Returns the
    /// record's LSN.
    fn fill(self: Box<Self>, append: &mut dyn FnMut(&mut Vec<u8>)) -> u64;
}

/// A change that has its place in the log, to be filled together with the reply that tells of it.
/// Dropped, it is filled without a reply: the change was applied.
pub struct LoggedChange(Option<Box<dyn LogRecord>>);

impl LoggedChange {
    /// A change whose record has everything but what stands behind it.
    pub fn new(record: Box<dyn LogRecord>) -> Self {
        Self(Some(record))
    }

    /// Fills the record: `append` adds what belongs behind the change. Returns the LSN.
    pub fn fill(mut self, append: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let mut append = Some(append);
        self.0.take().map_or(0, |record| {
            record.fill(&mut |bytes| {
                if let Some(append) = append.take() {
                    append(bytes);
                }
            })
        })
    }
}

impl Drop for LoggedChange {
    fn drop(&mut self) {
        if let Some(record) = self.0.take() {
            record.fill(&mut |_| {});
        }
    }
}

impl std::fmt::Debug for LoggedChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LoggedChange")
    }
}

/// What must be done before a result may be told.
#[derive(Debug)]
pub enum Obligation {
    /// Objects must be flushed.
    Flush(Flush),
    /// The change must be stable in the intent log, where it has its place.
    Log(LoggedChange),
}

/// Objects to be flushed.
pub struct Flush {
    /// Whose queue the flush belongs to. All targets share it.
    pub domain: FlushDomain,
    /// The objects, in the order in which they are to be flushed.
    pub targets: SmallVec<[(Arc<dyn FlushTarget>, FlushWhat); 2]>,
}

impl std::fmt::Debug for Flush {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Flush({:?}, {} targets)", self.domain, self.targets.len())
    }
}

/// Permission to take a [`Durable`] apart. Only the engine's reply barrier makes one.
#[derive(Debug)]
pub struct ReplyBarrier(());

impl ReplyBarrier {
    /// For the engine's `barrier` module and for tests, nobody else.
    pub fn for_engine() -> Self {
        Self(())
    }
}

/// A value that is true only once its obligation is met.
#[derive(Debug)]
#[must_use = "a durable result must pass the reply barrier"]
pub struct Durable<T> {
    value: T,
    obligation: Option<Obligation>,
}

impl<T> Durable<T> {
    /// A value that promises nothing about stability: a failure, an unstable write, or something
    /// already stable.
    pub fn promising_nothing(value: T) -> Self {
        Self { value, obligation: None }
    }

    /// A value that may be told when `obligation` is met.
    pub fn after(value: T, obligation: Obligation) -> Self {
        Self { value, obligation: Some(obligation) }
    }

    /// Transforms the value; the obligation stays with it.
    pub fn map<U>(self, transform: impl FnOnce(T) -> U) -> Durable<U> {
        Durable { value: transform(self.value), obligation: self.obligation }
    }

    /// Takes value and obligation apart.
    pub fn release(self, _barrier: &ReplyBarrier) -> (T, Option<Obligation>) {
        (self.value, self.obligation)
    }
}
