//! The calls that a replay needs, and what they can answer.

use steadfast_client::{Attributes, Time};
use steadfast_journal::Attributes as Settings;

/// Whose call it is: the user of the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

/// What tells whether a file was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) size: u64,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
}

impl Stamp {
    pub(crate) fn of(attributes: &Attributes) -> Self {
        Self { size: attributes.size, mtime: attributes.mtime, ctime: attributes.ctime }
    }

    pub(crate) fn newer(this: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (this, other) {
            (Some(this), Some(other)) if other.ctime > this.ctime => Some(other),
            (this, other) => this.or(other),
        }
    }
}

/// Why a call has brought nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The handle names nothing (any more).
    Gone,
    /// The name is not there.
    NoEntry,
    /// The name is there.
    Exists,
    /// The server has executed the call, and it failed: in words.
    Refused(String),
    /// There is no answer: everything stays pending.
    Unreachable(String),
    /// The server has restarted, and may have lost something: all is looked at once more.
    Restarted,
}

pub(crate) type Answer<T> = Result<T, Failed>;

/// What a WRITE has done.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) bytes: usize,
    pub(crate) verifier: [u8; 8],
    /// The file before, if the server tells it.
    pub(crate) before: Option<Stamp>,
    pub(crate) after: Option<Stamp>,
}

/// What is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Making {
    /// A file: exclusively with this verifier. Its attributes are set later.
    File {
        verifier: [u8; 8],
    },
    Directory(Settings),
    Symlink(Vec<u8>, Settings),
    /// The `S_IFMT` bits, major and minor number.
    Special(u32, [u32; 2], Settings),
}

/// How a server acknowledges changes (docs/recovery.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledging {
    /// From memory, and COMMIT too.
    pub(crate) is_async: bool,
    pub(crate) verifier: [u8; 8],
}

/// A share as a replay sees it. A server that says "later" is asked again in here.
pub(crate) trait Share {
    /// A pass begins: restarts of before are of no interest any more.
    fn begin(&mut self);
    /// `None`: the server does not say; its answers to COMMIT are believed.
    fn status(&mut self) -> Answer<Option<Acknowledging>>;
    /// Has everything of the object's file system made stable that was acknowledged. `None`: it cannot be
    /// flushed as a whole.
    fn sync(&mut self, who: &Who, object: &[u8]) -> Answer<Option<[u8; 8]>>;
    fn getattr(&mut self, who: &Who, object: &[u8]) -> Answer<Attributes>;
    /// The handle that a name is bound to.
    fn lookup(&mut self, who: &Who, parent: &[u8], name: &[u8]) -> Answer<Vec<u8>>;
    fn readlink(&mut self, who: &Who, object: &[u8]) -> Answer<Vec<u8>>;
    /// May be shorter than asked for; empty at the end of the file.
    fn read(&mut self, who: &Who, file: &[u8], offset: u64, count: u32) -> Answer<Vec<u8>>;
    /// UNSTABLE.
    fn write(&mut self, who: &Who, file: &[u8], offset: u64, data: &[u8]) -> Answer<Written>;
    /// All of a file. Returns the write verifier.
    fn commit(&mut self, who: &Who, file: &[u8]) -> Answer<[u8; 8]>;
    fn setattr(&mut self, who: &Who, object: &[u8], to: &Settings) -> Answer<Option<Stamp>>;
    /// The handle of what was made, with its stamp if the server tells it.
    fn make(
        &mut self,
        who: &Who,
        parent: &[u8],
        name: &[u8],
        what: &Making,
    ) -> Answer<(Vec<u8>, Option<Stamp>)>;
    fn link(&mut self, who: &Who, file: &[u8], parent: &[u8], name: &[u8]) -> Answer<()>;
    fn rename(&mut self, who: &Who, from: (&[u8], &[u8]), to: (&[u8], &[u8])) -> Answer<()>;
    fn remove(&mut self, who: &Who, parent: &[u8], name: &[u8]) -> Answer<()>;
    fn rmdir(&mut self, who: &Who, parent: &[u8], name: &[u8]) -> Answer<()>;
}
