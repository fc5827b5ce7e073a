//! The log as storage sees it: it gives places in its order, which changes are put into.

use std::sync::Arc;

use steadfast_vfs::{FileSystemSync, FsError, LoggedChange};

use crate::attributes_under_way::AttributesUnderWay;
use crate::begun_call::BegunCalls;
use crate::change::Change;
use crate::file_system::{FileSystemIdentity, LoggedFileSystem};

/// Takes down changes, so that they are stable before the disk has them.
pub trait ChangeLog: Send + Sync {
    /// To be called before anything of a file system is served that nobody uses yet, and of which
    /// `path` is a directory: what was set aside for it while it was not there is replayed. Whether
    /// something of it may be lost that the kernel has yet to tell of: it tells of each file's errors
    /// whoever flushes it next. Blocks.
    ///
    /// # Errors
    /// [`FsError::TryLater`] if that could not be done: the file system must not be served.
    fn prepare(&self, identity: &FileSystemIdentity, path: &[u8]) -> Result<bool, FsError>;

    /// The log's number of a file system that was [prepared](ChangeLog::prepare); `None` if its
    /// changes are not logged. `mount` is the kernel's number of the mount that `sync` holds.
    ///
    /// # Errors
    /// [`FsError::TryLater`] if that cannot be said now.
    fn register(
        &self,
        identity: &FileSystemIdentity,
        path: &[u8],
        mount: u64,
        sync: Arc<dyn FileSystemSync>,
    ) -> Result<Option<LoggedFileSystem>, FsError>;

    /// A share whose changes are to be logged uses a file system that was registered: a log that
    /// nobody needed before is made. Does not wait for that.
    fn want(&self, _file_system: LoggedFileSystem) {}

    /// One that was registered has no more changes to be logged. When it was the last of its mount,
    /// the mount is let go, and before that, if it was the last of the file system, what was changed
    /// is flushed. Does not wait for that.
    fn leave(&self, file_system: LoggedFileSystem, mount: u64);

    /// Makes sure that there is room for a record with a change of at most `change_bytes`. Waits
    /// while the log is full. `None`, or a place that [is not logged](LogPlace::is_logged): changes
    /// are not logged now, and must be flushed; the place is to be kept until the change has been
    /// applied. To be called before any lock is taken that orders an object.
    ///
    /// # Errors
    /// [`FsError::TryLater`] while the file system takes no changes, since one could not be made
    /// stable and is kept in the log.
    fn admit(
        &self,
        file_system: LoggedFileSystem,
        change_bytes: usize,
    ) -> Result<Option<Box<dyn LogPlace>>, FsError>;

    /// Whether a WRITE of so many bytes is worth a record; if not, its data is flushed, or, unless
    /// it is to be stable, waits for COMMIT.
    fn takes_write(&self, bytes: usize, is_stable: bool) -> bool;

    /// Whether changes are logged now, or the log still has some: those would be replayed after a
    /// crash.
    fn is_in_use(&self) -> bool;

    /// The last LSN taken. What has it has been applied.
    fn last(&self) -> u64;

    /// Notes a change that nobody replies to, and waits until it is stable.
    ///
    /// # Errors
    /// [`FsError::Io`] if it cannot be made stable.
    fn note(&self, place: Box<dyn LogPlace>, change: &Change<'_>) -> Result<(), FsError>;

    /// Why a file system takes no changes, if it could not be flushed. Costs next to nothing while
    /// there is none.
    fn fault(&self, file_system: LoggedFileSystem) -> Option<String>;

    /// Whether a file system could not be flushed, and is still in use.
    fn has_failed(&self, identity: &FileSystemIdentity) -> bool;

    /// Data that nobody was told to be stable may be lost: clients are to send it again.
    fn note_loss(&self);

    /// Where calls are noted that are about to change names; `None` if they are not, now.
    fn begun_calls(&self) -> Option<&dyn BegunCalls> {
        None
    }
}

/// A place in the log's order. Dropped before it is taken, it takes up nothing.
pub trait LogPlace: Send {
    /// Whether there will be a record. If not, there is nothing to take or to fill.
    fn is_logged(&self) -> bool {
        true
    }

    /// Notes that an object's attributes are about to be set, until the record is stable or the place is
    /// dropped. Should the process be killed before, the next start undoes it, or sees to it that a file
    /// that was cut stays cut. Nothing is noted if that cannot be done.
    fn note_under_way(
        &mut self,
        _file_system: &FileSystemIdentity,
        _under_way: &AttributesUnderWay,
    ) {
    }

    /// Takes the next place. To be called once, after the change was applied and under the lock
    /// that orders the object.
    fn take(&mut self);

    /// Puts the change into the place, encoded: what remains is to fill the record.
    fn put(self: Box<Self>, change: Vec<u8>) -> LoggedChange;
}

impl Change<'_> {
    /// Puts the change into a place that was taken, with room for so many bytes behind it.
    pub fn put(&self, place: Box<dyn LogPlace>, behind_bytes: usize) -> LoggedChange {
        let mut record = Vec::with_capacity(self.encoded_bytes_max() + behind_bytes);
        self.encode(&mut record);
        place.put(record)
    }
}

#[cfg(test)]
mod tests {
    use steadfast_vfs::LogRecord;

    use super::*;
    use crate::change::Action;

    /// A place that remembers what it was filled with.
    struct Remembered {
        taken: bool,
        change: Vec<u8>,
        to: std::sync::mpsc::Sender<(bool, Vec<u8>)>,
    }

    impl LogPlace for Remembered {
        fn take(&mut self) {
            self.taken = true;
        }

        fn put(mut self: Box<Self>, change: Vec<u8>) -> LoggedChange {
            self.change = change;
            LoggedChange::new(self)
        }
    }

    impl LogRecord for Remembered {
        fn fill(mut self: Box<Self>, append: &mut dyn FnMut(&mut Vec<u8>)) -> u64 {
            append(&mut self.change);
            self.to.send((self.taken, self.change)).unwrap();
            5
        }
    }

    #[test]
    fn a_change_whose_reply_is_lost_is_logged_all_the_same() {
        let (to, filled) = std::sync::mpsc::channel();
        let place = || {
            let mut place =
                Box::new(Remembered { taken: false, change: Vec::new(), to: to.clone() });
            place.take();
            place
        };
        let change = Change::new(Action::Nothing);
        let mut alone = Vec::new();
        change.encode(&mut alone);
        drop(change.put(place(), 10));
        assert_eq!(filled.try_recv(), Ok((true, alone.clone())));
        assert_eq!(change.put(place(), 10).fill(|record| record.push(7)), 5);
        alone.push(7);
        assert_eq!(filled.try_recv(), Ok((true, alone)));
        assert!(filled.try_recv().is_err());
    }
}
