//! Why an object stays open.
//!
//! Whoever uses a node has a pin of it, whose type says why: one of the reasons below. An object is
//! evicted, or let go because it was idle, only when nobody has a pin but the cache and who lets it go;
//! a share that nobody uses is closed only when no object of its tree has a pin by [`keeps_tree`].
//!
//! A share that is removed is closed whoever has pins: its objects are found by nobody any more, and each
//! of them stays open, with its mount and its part of the log, until its last pin is gone. That is also what
//! becomes of a pin that comes after it was decided to close a share.
//!
//! Some things are no reason. Data that is not flushed is a mark of the node: it is evicted last, and the
//! mount remembers that there was some. The log knows objects by their keys. What NFSv4 calls an open is
//! known to the state only, and a lock of a client has a descriptor of its own
//! ([`crate::tree::Tree::do_open_to_lock`]). A listing is the node's, and read by calls.
//!
//! # Who can take a pin while eviction decides
//!
//! - Who finds the node in an index does it under that index's lock, and takes his pin there. Eviction has
//!   the locks of both indexes of the node when it decides ([`crate::cache`]), and has taken the node out
//!   of one before it lets go of that one's lock, and out of the other before it lets go of the other's.
//! - Who finds it by a weak pointer, as [`crate::recent`] has them, takes no lock. His pin is one atomic
//!   step on the word that has all pins and the mark that the node was ended, and so is eviction's decision,
//!   which compares the whole word. Whichever is first, the other sees it: the decision finds one pin too
//!   many, or the pin is refused.
//! - Who has a pin makes others of it, or has it for another reason from now on. The word is another one
//!   than eviction decides by, before and after: what has a pin never looks as if it had none.
//!
//! What was done to the node with a pin, as to mark it dirty, is seen by who finds that there are none.

use steadfast_sys::pinned::{Lane, Pins, Reason};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident: $lane:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) enum $name {}

        impl Reason for $name {
            const LANE: Lane = $lane;
        }
    )*};
}

// The first ones decide something. If there are more pins than fit, their numbers are too low, and a tree stays that
// need not; of the others, numbers that are told are wrong then.
reasons! {
    /// The cache has it: a pin of each index.
    Kept: Lane::above(Lane::REST, 2);
    /// The cache looks at it, or lets it go.
    Look: Lane::above(Kept::LANE, 4);
    /// It is the root of an open tree.
    Root: Lane::above(Look::LANE, 2);
    /// A client has it guarded: a delegation.
    Guard: Lane::above(Root::LANE, 4);
    /// A checkpoint has its data written before the flush.
    WriteBack: Lane::above(Guard::LANE, 2);
    /// What was changed of it is to be flushed before a reply is sent.
    Flush: Lane::above(WriteBack::LANE, 9);
    /// A reply with its data is sent from the page cache.
    Sent: Lane::above(Flush::LANE, 9);
    /// A call uses it.
    Call: Lane::REST;
}

/// Whether the tree of an object with these pins must stay open: somebody besides the tree and the cache
/// has one.
pub(crate) fn keeps_tree(pins: Pins) -> bool {
    pins.total() > [Kept::LANE, Look::LANE, Root::LANE].map(|lane| pins.of(lane)).iter().sum()
}

/// How many objects are open, and why. One that is open for many reasons is counted with each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenObjects {
    /// All: those that nobody uses are closed when there is no room, or after a while.
    pub open: u64,
    /// That have data which was not flushed and is not in the log.
    pub unflushed: u64,
    /// That are roots of open trees.
    pub roots: u64,
    /// That calls use.
    pub in_calls: u64,
    /// That are to be flushed before replies are sent.
    pub in_flushes: u64,
    /// That replies are sent from.
    pub sent: u64,
    /// That clients have guarded.
    pub guarded: u64,
    /// That checkpoints write.
    pub written_back: u64,
}

impl OpenObjects {
    /// Counts an object.
    pub(crate) fn add(&mut self, pins: Pins, is_unflushed: bool) {
        let has = |lane| u64::from(pins.of(lane) > 0);
        let with_lane = [
            Kept::LANE,
            Look::LANE,
            Root::LANE,
            Guard::LANE,
            WriteBack::LANE,
            Flush::LANE,
            Sent::LANE,
        ];
        let others: u64 = with_lane.map(|lane| pins.of(lane)).iter().sum();
        self.open += 1;
        self.unflushed += u64::from(is_unflushed);
        self.roots += has(Root::LANE);
        self.in_calls += u64::from(pins.total() > others);
        self.in_flushes += has(Flush::LANE);
        self.sent += has(Sent::LANE);
        self.guarded += has(Guard::LANE);
        self.written_back += has(WriteBack::LANE);
    }
}

#[cfg(test)]
mod tests;
