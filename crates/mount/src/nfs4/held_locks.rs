//! What is locked at the server, by whom and by which stateid.

use std::collections::HashMap;
use std::fmt;

use parking_lot::Mutex;
use steadfast_client::nfs4::StateId4;
use steadfast_client::{FileHandle, Identity};

/// A range: the first byte, how many (all ones: to the end), and whether others may not even read.
pub(crate) type Range = (u64, u64, bool);

/// What an owner of locks holds, for who tells a server that has lost it.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(crate) identity: Identity,
    pub(crate) handle: FileHandle,
    pub(crate) number: u32,
    pub(crate) ranges: Vec<Range>,
}

/// Whoever knows what is locked.
pub(crate) trait Holder4: fmt::Debug + Send + Sync {
    /// All that is held.
    fn held(&self) -> Vec<Holding>;
    /// The server has lost all locks of the owner with this number, and they cannot be had again.
    fn lost(&self, number: u32);
}

/// Locks of an owner in a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lock4 {
    /// With the epoch that it is of.
    pub(super) stateid: Option<(StateId4, u64)>,
    /// A request for one was not answered: the server may have given it.
    pub(super) is_in_doubt: bool,
}

impl Lock4 {
    /// Whether the server has it, or may have, in this epoch.
    pub(super) fn is_of(&self, epoch: u64) -> bool {
        self.stateid.is_some_and(|(_, of)| of == epoch)
    }
}

/// The locks by an open, by the numbers of their owners.
pub(super) type Locks4 = Mutex<HashMap<u32, Lock4>>;
