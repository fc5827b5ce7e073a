//! The nodes that a thread found last, so that it finds them again without a lock or a cache
//! line that other threads write: what is in many clients' use at once is found by every call.
//!
//! Only weak references are kept: nothing here keeps a descriptor open, or a removed file's
//! space. Whether the [`crate::cache`] still has the node is told by the node itself.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Weak};

use crate::node::Node;

/// Places of each kind in a thread's memory: two words each, and the memory of a node that is gone
/// until another is noted in its place.
const PLACES: usize = 512;

struct Recent {
    by_handle: Vec<(u64, Weak<Node>)>,
    by_inode: Vec<(u64, Weak<Node>)>,
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
pub(crate) fn find(by: By, hash: u64) -> Option<Arc<Node>> {
    RECENT.with_borrow(|recent| {
        let places = if by == By::Handle { &recent.by_handle } else { &recent.by_inode };
        let (known, node) = places.get(hash as usize % PLACES)?;
        if *known != hash {
            return None;
        }
        node.upgrade().filter(|node| !node.tenure.has_ended())
    })
}

/// Notes a node that the cache has, in the place of what was there.
pub(crate) fn note(by: By, hash: u64, node: &Arc<Node>) {
    let forgotten = RECENT.with_borrow_mut(|recent| {
        let places = if by == By::Handle { &mut recent.by_handle } else { &mut recent.by_inode };
        if places.is_empty() {
            places.resize_with(PLACES, || (0, Weak::new()));
        }
        let place = places.get_mut(hash as usize % PLACES)?;
        Some(std::mem::replace(place, (hash, Arc::downgrade(node))))
    });
    drop(forgotten);
}

/// Whether the cache has a node, or has let it go, which it does only with those that nobody
/// uses: so that there is one node an object.
#[derive(Debug, Default)]
pub(crate) struct Tenure(AtomicBool);

impl Tenure {
    /// The cache no longer has it.
    pub(crate) fn end(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// The cache lets it go if nobody uses it. Who asks meanwhile is told that it has, unless
    /// `is_unused` has seen his reference.
    pub(crate) fn end_if(&self, is_unused: impl FnOnce() -> bool) -> bool {
        let before = self.0.swap(true, Ordering::SeqCst);
        // Pairs with the fence of `has_ended`. There a reference is made and then the mark looked
        // at; here the mark is made and then the references are looked at: one sees the other.
        fence(Ordering::SeqCst);
        let is_unused = is_unused();
        if !is_unused {
            self.0.store(before, Ordering::SeqCst);
        }
        is_unused
    }

    /// To be asked by who has just made a reference of a weak one.
    pub(crate) fn has_ended(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn nothing_is_let_go_that_somebody_has_found() {
        for round in 0..20 {
            let cached: Vec<Arc<Tenure>> = (0..5_000).map(|_| Arc::default()).collect();
            let noted: Vec<Weak<Tenure>> = cached.iter().map(Arc::downgrade).collect();
            let start = Barrier::new(2);
            let (found, let_go) = std::thread::scope(|scope| {
                let user = scope.spawn(|| {
                    start.wait();
                    let find =
                        |weak: &Weak<Tenure>| weak.upgrade().filter(|tenure| !tenure.has_ended());
                    noted.iter().map(find).collect::<Vec<_>>()
                });
                start.wait();
                let let_go: Vec<bool> = cached
                    .iter()
                    .map(|tenure| tenure.end_if(|| Arc::strong_count(tenure) == 1))
                    .collect();
                (user.join().unwrap(), let_go)
            });
            for (found, let_go) in found.iter().zip(let_go) {
                assert!(found.is_none() || !let_go, "round {round}");
            }
        }
    }

    #[test]
    fn what_has_ended_stays_so() {
        let tenure = Tenure::default();
        assert!(!tenure.end_if(|| false) && !tenure.has_ended());
        tenure.end();
        assert!(!tenure.end_if(|| false) && tenure.has_ended());
    }
}
