//! The nodes that a thread found last, so that it finds them again without a lock or a cache
//! line that other threads write: what is in many clients' use at once is found by every call.
//!
//! Only weak references are kept: nothing here keeps a descriptor open, or a removed file's
//! space. Where the [`crate::cache`] has ended the node, they lead nowhere.

use std::cell::RefCell;

use steadfast_sys::pinned::WeakPinned;

use crate::node::{Node, NodePin};

/// Places of each kind in a thread's memory: two words each, and the memory of a node that is gone
/// until another is noted in its place.
const PLACES: usize = 512;

struct Recent {
    by_handle: Vec<(u64, Option<WeakPinned<Node>>)>,
    by_inode: Vec<(u64, Option<WeakPinned<Node>>)>,
}

thread_local! {
    // What belongs to a thread is shared with none, which is all that this is for.
    static RECENT: RefCell<Recent> = const {
        RefCell::new(Recent { by_handle: Vec::new(), by_inode: Vec::new() })
    };
}

/// By what a node is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Handle,
    Inode,
}

/// The node that this thread noted under a hash, if the cache still has it. Another may have the
/// same hash: the caller compares.
pub(crate) fn find(by: By, hash: u64) -> Option<NodePin> {
    RECENT.with_borrow(|recent| {
        let places = if by == By::Handle { &recent.by_handle } else { &recent.by_inode };
        let (known, node) = places.get(hash as usize % PLACES)?;
        if *known != hash {
            return None;
        }
        node.as_ref()?.upgrade()
    })
}

/// Notes a node that the cache has, in the place of what was there.
pub(crate) fn note(by: By, hash: u64, node: &NodePin) {
    let forgotten = RECENT.with_borrow_mut(|recent| {
        let places = if by == By::Handle { &mut recent.by_handle } else { &mut recent.by_inode };
        if places.is_empty() {
            places.resize_with(PLACES, || (0, None));
        }
        let place = places.get_mut(hash as usize % PLACES)?;
        Some(std::mem::replace(place, (hash, Some(node.downgrade()))))
    });
    drop(forgotten);
}
